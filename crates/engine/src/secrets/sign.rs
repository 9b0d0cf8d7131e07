//! Signatures of webhooks, as Standard Webhooks has them, and the secrets that they are made with.
//!
//! A secret is made from the server's key, the subscription and a number, so none is stored: what a database gives away
//! signs nothing. A new number is a new secret.

use std::fmt;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use standfast_core::digest::{self, Digest};
use standfast_core::name::Tenant;
use standfast_core::time::Timestamp;
use zeroize::{Zeroize as _, ZeroizeOnDrop};

/// What the secrets of all subscriptions are made from. Never stored in a database, listed or logged.
///
/// The keys before it are still known after a rotation: they open what they sealed, and receivers that know a secret made
/// from one find its signature beside the new one. Nothing new is sealed with them.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey {
    current: [u8; 32],
    previous: Vec<[u8; 32]>,
}

/// What both sides of a subscription know. Shown when it is made, and never again.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningSecret(Vec<u8>);

impl SigningKey {
    /// A key of random bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> SigningKey {
        SigningKey { current: bytes, previous: Vec::new() }
    }

    /// A key from a text that somebody chose: long and random, because nothing here makes it harder to guess.
    #[must_use]
    pub fn of_text(text: &str) -> SigningKey {
        SigningKey::new(digest::of_parts("standfast.webhook-key.1", &[text.as_bytes()]).0)
    }

    /// This key, in the place of those.
    #[must_use]
    pub fn after(mut self, previous: impl IntoIterator<Item = SigningKey>) -> SigningKey {
        let all = previous.into_iter().flat_map(|key| [vec![key.current], key.previous.clone()].concat());
        for key in all {
            if key != self.current && !self.previous.contains(&key) {
                self.previous.push(key);
            }
        }
        self
    }

    /// The current key, then those before it, each alone.
    pub(crate) fn each(&self) -> impl Iterator<Item = SigningKey> {
        [self.current].into_iter().chain(self.previous.iter().copied()).map(SigningKey::new)
    }

    /// The secret of a subscription with this number.
    #[must_use]
    pub fn secret(&self, tenant: &Tenant, subscription: &str, number: u32) -> SigningSecret {
        let parts = [tenant.as_str().as_bytes(), subscription.as_bytes(), &number.to_be_bytes()];
        let named = digest::of_parts("standfast.webhook.1", &parts);
        SigningSecret(mac(&self.current, &[&named.0]))
    }

    /// A code of what is stored elsewhere, for one use: only who has the key can make it.
    pub(crate) fn code(&self, purpose: &str, parts: &[&[u8]]) -> Digest {
        let named = digest::of_parts(purpose, parts);
        let made = mac(&self.derived(purpose), &[&named.0]);
        let mut code = Digest::default();
        code.0.iter_mut().zip(made).for_each(|(to, from)| *to = from);
        code
    }

    /// Whether this key, or one before it, made a code.
    pub(crate) fn made(&self, code: Digest, purpose: &str, parts: &[&[u8]]) -> bool {
        let differs = |key: SigningKey| {
            let own = key.code(purpose, parts);
            // All of it is looked at, whatever differs first.
            own.0.iter().zip(code.0).fold(0, |sum, (one, other)| sum | (one ^ other))
        };
        self.each().any(|key| differs(key) == 0)
    }

    /// Another key made from this one, for another use.
    pub(super) fn derived(&self, what: &str) -> Vec<u8> {
        mac(&self.current, &[what.as_bytes()])
    }
}

impl SigningSecret {
    /// The secret as receivers know it.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("whsec_{}", BASE64_STANDARD.encode(&self.0))
    }
}

/// The header `webhook-signature`: one signature for each secret, so that a receiver may know the old or the new one.
#[must_use]
pub fn signature(secrets: &[SigningSecret], id: &str, at: Timestamp, body: &str) -> String {
    let at = seconds(at).to_string();
    let one = |secret: &SigningSecret| {
        let parts = [id.as_bytes(), b".", at.as_bytes(), b".", body.as_bytes()];
        format!("v1,{}", BASE64_STANDARD.encode(mac(&secret.0, &parts)))
    };
    secrets.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// The header `webhook-timestamp`.
#[must_use]
pub fn seconds(at: Timestamp) -> i64 {
    at.0.div_euclid(1000)
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { unreachable!("any length is a key") };
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

impl Drop for SigningKey {
    fn drop(&mut self) {
        self.current.zeroize();
        self.previous.zeroize();
    }
}

impl ZeroizeOnDrop for SigningKey {}

impl Drop for SigningSecret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for SigningSecret {}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(..)")
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(text: &str) -> SigningSecret {
        SigningSecret(BASE64_STANDARD.decode(text.strip_prefix("whsec_").unwrap()).unwrap())
    }

    /// The vector that the libraries of Standard Webhooks are tested with.
    #[test]
    fn a_signature_is_that_of_the_standard() {
        let secret = known("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let signed = signature(
            std::slice::from_ref(&secret),
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            Timestamp(1_614_265_330_000),
            r#"{"test": 2432232314}"#,
        );
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(secret.reveal(), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    }

    #[test]
    fn secrets_differ_by_key_tenant_subscription_and_number() {
        let tenant = |name| Tenant::new(name).unwrap();
        let (key, other) = (SigningKey::new([1; 32]), SigningKey::of_text("another one"));
        let secrets = [
            key.secret(&tenant("a"), "s", 1),
            key.secret(&tenant("a"), "s", 2),
            key.secret(&tenant("a"), "t", 1),
            key.secret(&tenant("b"), "s", 1),
            other.secret(&tenant("a"), "s", 1),
        ];
        for (at, secret) in secrets.iter().enumerate() {
            assert!(secrets.iter().skip(at + 1).all(|later| later != secret));
            assert_eq!(secret.reveal().len(), "whsec_".len() + 44);
        }
        assert_eq!(format!("{key:?} {:?}", secrets[0]), "SigningKey(..) SigningSecret(..)");
        let both = signature(&secrets[..2], "id", Timestamp(1_999), "{}");
        assert_eq!(both.split(' ').filter(|one| one.starts_with("v1,")).count(), 2);
    }
}

//! Approval links: what one says, how it is signed, and the token of the form on its page (T7, T8).
//!
//! The signature covers all that a link is bound to: hold, digest, revision, tenant, person and end. The token names its key,
//! so that those of before a rotation are still known. Nothing of it is stored, and a database gives no key away.

use std::fmt;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use standfast_core::base32;
use standfast_core::digest::{self, Digest};
use standfast_core::id::HoldId;
use standfast_core::name::{Tenant, UserId};
use standfast_core::time::Timestamp;
use zeroize::{Zeroize as _, ZeroizeOnDrop};

use super::SigningKey;

/// Characters of a token at most; a name of 256 bytes fits.
const LONGEST: usize = 2_000;

/// What a link is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalLink {
    /// The hold.
    #[serde(rename = "h")]
    pub hold: HoldId,
    /// Digest of the call as it was when the link was issued; none where nothing runs.
    #[serde(rename = "d", default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// How often its arguments had been edited.
    #[serde(rename = "r")]
    pub revision: u32,
    /// The tenant of the person.
    #[serde(rename = "t")]
    pub tenant: Tenant,
    /// The person who decides by it.
    #[serde(rename = "u")]
    pub audience: UserId,
    /// When it ends.
    #[serde(rename = "e")]
    pub expires_at: Timestamp,
}

/// What links are signed with: the current key first, then those of before.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkKeys(Vec<LinkKey>);

#[derive(Clone, PartialEq, Eq)]
struct LinkKey {
    /// Names it in tokens, and gives nothing of it away.
    id: String,
    bytes: Vec<u8>,
}

impl LinkKeys {
    /// Keys from texts that somebody chose: long and random, because nothing here makes them harder to guess.
    #[must_use]
    pub fn of_texts<'a>(current: &'a str, previous: impl IntoIterator<Item = &'a str>) -> LinkKeys {
        let key = |text: &str| {
            let key = SigningKey::of_text(text);
            let id = key.derived("standfast.link-key-id.1");
            let id = base32::encode(id.get(..5).unwrap_or_default());
            LinkKey { id, bytes: key.derived("standfast.link-key.1") }
        };
        LinkKeys(std::iter::once(current).chain(previous).map(key).collect())
    }

    /// The token of a link, under the current key: letters that can stand in an address.
    #[must_use]
    pub fn sign(&self, link: &ApprovalLink) -> String {
        let Some(key) = self.0.first() else { unreachable!("there always is a current key") };
        let said = match serde_json::to_string(link) {
            Ok(said) => BASE64_URL_SAFE_NO_PAD.encode(said),
            Err(error) => unreachable!("ids, names and numbers serialise: {error}"),
        };
        let signature = key.mac("standfast.approval-link.1", &[&key.id, &said]).finalize().into_bytes();
        format!("{}.{said}.{}", key.id, BASE64_URL_SAFE_NO_PAD.encode(signature))
    }

    /// What a token says, if it was signed here; whether it has ended is not looked at.
    #[must_use]
    pub fn open(&self, token: &str) -> Option<ApprovalLink> {
        let (key, said, signature) = self.parts(token)?;
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
        key.mac("standfast.approval-link.1", &[&key.id, said]).verify_slice(&signature).ok()?;
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(said).ok()?).ok()
    }

    /// What the form on the page of a link carries: only whoever was shown the page knows it.
    #[must_use]
    pub fn form_token(&self, token: &str, nonce: &str) -> Option<String> {
        let (key, ..) = self.parts(token)?;
        let signed = key.mac("standfast.link-form.1", &[token, nonce]).finalize().into_bytes();
        Some(BASE64_URL_SAFE_NO_PAD.encode(signed))
    }

    /// Whether a form is that of the page of this link.
    #[must_use]
    pub fn is_form_token(&self, token: &str, nonce: &str, given: &str) -> bool {
        let given = BASE64_URL_SAFE_NO_PAD.decode(given).ok();
        let known = self.parts(token).zip(given);
        known.is_some_and(|((key, ..), given)| {
            key.mac("standfast.link-form.1", &[token, nonce]).verify_slice(&given).is_ok()
        })
    }

    /// The key that a token names, what it says and its signature, none of it checked.
    fn parts<'a>(&self, token: &'a str) -> Option<(&LinkKey, &'a str, &'a str)> {
        let (id, rest) = Some(token).filter(|token| token.len() <= LONGEST)?.split_once('.')?;
        let (said, signature) = rest.split_once('.')?;
        Some((self.0.iter().find(|key| key.id == id)?, said, signature))
    }
}

impl Drop for LinkKey {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

impl ZeroizeOnDrop for LinkKey {}

// Nothing but keys, each of which is.
impl ZeroizeOnDrop for LinkKeys {}

impl LinkKey {
    /// A signature of these texts, of which none can be moved into another.
    fn mac(&self, what: &str, parts: &[&str]) -> Hmac<Sha256> {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.bytes) else {
            unreachable!("any length is a key")
        };
        let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
        mac.update(&digest::of_parts(what, &parts).0);
        mac
    }
}

impl fmt::Debug for LinkKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkKeys(..)")
    }
}

#[cfg(test)]
mod tests {
    use standfast_core::id::{CallNo, HoldKey, RunId, Secret, StorageKind};

    use super::*;

    fn link() -> ApprovalLink {
        let tenant = Tenant::default_tenant();
        let run = RunId::new(&tenant, StorageKind::Durable, Timestamp(1), [1; 5]);
        let hold = HoldId { run, key: HoldKey { call: CallNo(1), secret: Secret([3; 16]) } };
        ApprovalLink {
            hold,
            digest: Some(Digest([4; 32])),
            revision: 0,
            tenant,
            audience: UserId::new("ann/é").unwrap(),
            expires_at: Timestamp(5_000),
        }
    }

    /// T8: whatever a link is bound to is signed: with anything of it changed it opens nothing.
    #[test]
    fn t8_the_signature_covers_all_that_a_link_is_bound_to() {
        let keys = LinkKeys::of_texts("a key that is long enough to be one", []);
        let token = keys.sign(&link());
        assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)), "{token}");
        assert_eq!(keys.open(&token), Some(link()));
        assert_eq!(format!("{keys:?}"), "LinkKeys(..)");
        let parts: Vec<&str> = token.split('.').collect();
        let said = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap();
        let hold = link().hold.to_string();
        for (from, to) in [
            (hold.as_str(), hold.replace('3', "4").as_str()),
            ("\"r\":0", "\"r\":1"),
            ("5000", "5001"),
            ("ann/é", "bob"),
            ("default", "acme"),
            ("{", "{ "),
        ] {
            let changed = said.replace(from, to);
            let changed = BASE64_URL_SAFE_NO_PAD.encode(&changed);
            let is_same = changed == parts[1];
            let forged = format!("{}.{changed}.{}", parts[0], parts[2]);
            assert_eq!(keys.open(&forged).is_some(), is_same, "{from} {to}");
        }
        // No byte of a token can be another one.
        for at in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(keys.open(&String::from_utf8(bytes).unwrap()), None, "{at}");
        }
        for odd in
            ["", ".", "..", "a.b", "a.b.c", &token[1..], &token[..token.len() - 1], &format!("{token}=")]
        {
            assert_eq!(keys.open(odd), None, "{odd}");
        }
        assert_eq!(keys.open(&"x".repeat(1_000_000)), None);
    }

    /// T7: after a rotation old links open, new ones are signed with the new key, and a key that was removed opens nothing.
    #[test]
    fn t7_old_links_open_after_a_rotation() {
        let (first, second) = ("the first key, which is long enough", "the second key, which is long too");
        let old = LinkKeys::of_texts(first, []);
        let both = LinkKeys::of_texts(second, [first]);
        let new = LinkKeys::of_texts(second, []);
        let (before, after) = (old.sign(&link()), both.sign(&link()));
        assert_ne!(before.split('.').next(), after.split('.').next());
        assert!(both.open(&before).is_some() && both.open(&after).is_some() && new.open(&after).is_some());
        assert!(new.open(&before).is_none() && old.open(&after).is_none());
    }

    /// T8: a form is that of one link and one showing of its page, and no link is a form.
    #[test]
    fn t8_a_form_belongs_to_its_link() {
        let keys = LinkKeys::of_texts("a key that is long enough to be one", []);
        let token = keys.sign(&link());
        let other = keys.sign(&ApprovalLink { revision: 1, ..link() });
        let form = keys.form_token(&token, "nonce").unwrap();
        assert!(keys.is_form_token(&token, "nonce", &form));
        assert!(!keys.is_form_token(&token, "other", &form));
        assert!(!keys.is_form_token(&other, "nonce", &form));
        assert!(!keys.is_form_token(&token, "nonce", ""));
        assert!(!keys.is_form_token(&token, "nonce", token.rsplit('.').next().unwrap()));
        assert_eq!(keys.form_token("nothing", "nonce"), None);
    }

    /// T9: a million signatures under a token that somebody saw, for another hold than it is of, open nothing.
    #[test]
    fn t9_a_million_signatures_open_no_link() {
        let keys = LinkKeys::of_texts("a key that is long enough to be one", []);
        let wanted = keys.sign(&ApprovalLink { revision: 1, ..link() });
        let (said, own) = wanted.rsplit_once('.').unwrap();
        let mut signature = [7u8; 32];
        for guess in 0..1_000_000u64 {
            signature[..8].copy_from_slice(&guess.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
            let token = format!("{said}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature));
            assert!(keys.open(&token).is_none());
        }
        assert!(keys.open(&format!("{said}.{own}")).is_some());
    }
}

//! Links by which somebody says on our pages that an account in a chat is theirs: what one says, and how it is signed (T8, T13).
//!
//! The key is made from a secret of the channel, so that every node knows it and a rotation of that secret ends every link. Nothing of
//! it is stored.

use std::fmt;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use standfast_core::digest;
use standfast_core::time::Timestamp;
use zeroize::{Zeroize as _, ZeroizeOnDrop};

use super::SigningKey;

/// Characters of a token at most.
const LONGEST: usize = 2_000;

/// What a link offers: an account that a chat has shown to be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccountLink {
    /// The channel in which it was seen.
    #[serde(rename = "c")]
    pub channel: String,
    /// The workspace or server, by its id.
    #[serde(rename = "t")]
    pub team: String,
    /// The account, by its id.
    #[serde(rename = "u")]
    pub user: String,
    /// What the chat calls it: for people to look at, and for nothing else.
    #[serde(rename = "n")]
    pub shown: String,
    /// When it ends.
    #[serde(rename = "e")]
    pub expires_at: Timestamp,
}

/// What the links of one channel are signed with.
#[derive(Clone, PartialEq, Eq)]
pub struct AccountLinkKey(Vec<u8>);

impl Drop for AccountLinkKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for AccountLinkKey {}

impl AccountLinkKey {
    /// The key of a channel, from a secret of it.
    #[must_use]
    pub fn of_secret(secret: &str) -> AccountLinkKey {
        AccountLinkKey(SigningKey::of_text(secret).derived("standfast.account-link-key.1"))
    }

    /// The token of a link: letters that can stand in an address.
    #[must_use]
    pub fn sign(&self, link: &AccountLink) -> String {
        let said = match serde_json::to_string(link) {
            Ok(said) => BASE64_URL_SAFE_NO_PAD.encode(said),
            Err(error) => unreachable!("texts and numbers serialise: {error}"),
        };
        let signature = self.mac(&link.channel, &said).finalize().into_bytes();
        format!("{}.{said}.{}", link.channel, BASE64_URL_SAFE_NO_PAD.encode(signature))
    }

    /// What a token says, if it was signed with this key; whether it has ended is not looked at.
    #[must_use]
    pub fn open(&self, token: &str) -> Option<AccountLink> {
        let (channel, said, signature) = parts(token)?;
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
        self.mac(channel, said).verify_slice(&signature).ok()?;
        let link: AccountLink = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(said).ok()?).ok()?;
        (link.channel == channel).then_some(link)
    }

    fn mac(&self, channel: &str, said: &str) -> Hmac<Sha256> {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else {
            unreachable!("any length is a key")
        };
        mac.update(&digest::of_parts("standfast.account-link.1", &[channel.as_bytes(), said.as_bytes()]).0);
        mac
    }
}

/// The channel that a token names, which says whose key it is to be opened with.
#[must_use]
pub fn channel_of(token: &str) -> Option<&str> {
    parts(token).map(|(channel, ..)| channel)
}

fn parts(token: &str) -> Option<(&str, &str, &str)> {
    let (channel, rest) = Some(token).filter(|token| token.len() <= LONGEST)?.split_once('.')?;
    let (said, signature) = rest.split_once('.')?;
    Some((channel, said, signature))
}

impl fmt::Debug for AccountLinkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccountLinkKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T8: no byte of a token can be another one, and the key of another channel opens nothing.
    #[test]
    fn t8_nobody_offers_an_account_that_was_not_seen() {
        let key = AccountLinkKey::of_secret("a signing secret");
        let link = AccountLink {
            channel: "slack".into(),
            team: "T1".into(),
            user: "U1".into(),
            shown: "ann".into(),
            expires_at: Timestamp(5_000),
        };
        let token = key.sign(&link);
        assert_eq!(key.open(&token), Some(link.clone()));
        assert_eq!(channel_of(&token), Some("slack"));
        assert_eq!(AccountLinkKey::of_secret("another").open(&token), None);
        for at in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(key.open(&String::from_utf8(bytes).unwrap()), None, "{at}");
        }
        for odd in ["", ".", "..", "slack", "slack.x", &format!("{token}="), &token[1..]] {
            assert_eq!(key.open(odd), None, "{odd}");
        }
        assert_eq!(key.open(&"x".repeat(1_000_000)), None);
        assert_eq!(format!("{key:?}"), "AccountLinkKey(..)");
    }
}

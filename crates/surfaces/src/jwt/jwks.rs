//! The public keys of an identity provider (RFC 7517): how they are fetched, read and chosen.
//!
//! The address comes from the configuration and is never followed anywhere else. What comes back is small and soon
//! there, or it counts as not there. A key that is of no use here is passed over, as the standard wants: providers
//! publish keys for encryption, and kinds that are yet to be invented, beside those that sign tokens.

use std::error::Error;
use std::net::IpAddr;
use std::time::Duration;

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey, crypto};
use reqwest::{Client, Url, redirect};
use serde::Deserialize;
use serde_json::Value;

use super::token::{Token, TokenRefusal};

/// How long the provider may take to answer.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// How many bytes its keys may have. Large ones have some ten thousand.
const MAX_BYTES: usize = 256 * 1024;

/// How many keys there may be.
const MAX_KEYS: usize = 100;

/// Why an address cannot be that of an identity provider's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    /// It is not an address.
    #[error("must be an address that begins with https://")]
    Unreadable,
    /// Whoever is on the way could put other keys in the place of the provider's.
    #[error("must begin with https://; http:// is for this machine only: localhost, 127.0.0.1 or [::1]")]
    NotSecure,
    /// It would be in logs.
    #[error("must not have a user or a password in it")]
    HasPassword,
}

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoKeys {
    #[error("{0}")]
    Unreachable(String),
    #[error("it answered {0}")]
    Status(u16),
    #[error(
        "it answered {status} and points to {to:?}; redirects are not followed, so write the final address"
    )]
    Redirect { status: u16, to: String },
    #[error("it sent more than {MAX_BYTES} bytes")]
    TooLarge,
    #[error("the response is not a JWK set: {0}")]
    Unreadable(serde_json::Error),
    #[error("it has {0} keys, and {MAX_KEYS} are allowed")]
    TooMany(usize),
}

/// Reads the address of a provider's keys.
pub fn keys_address(text: &str) -> Result<Url, BadAddress> {
    let url = Url::parse(text).map_err(|_| BadAddress::Unreadable)?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(BadAddress::HasPassword);
    }
    let host = url.host_str().ok_or(BadAddress::Unreadable)?;
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let is_here = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_here => Ok(url),
        "http" => Err(BadAddress::NotSecure),
        _ => Err(BadAddress::Unreadable),
    }
}

/// A client for fetching keys from an address.
pub(super) fn client(url: &Url) -> reqwest::Result<Client> {
    let client = Client::builder().timeout(TIME_LIMIT).redirect(redirect::Policy::none());
    // A proxy sees nothing of https. What is on this machine it cannot even reach.
    if url.scheme() == "https" { client.build() } else { client.no_proxy().build() }
}

/// Fetches the keys.
pub(super) async fn fetch(client: &Client, url: &Url) -> Result<Keys, NoKeys> {
    let mut response = client.get(url.clone()).send().await.map_err(unreachable)?;
    let status = response.status();
    if status.is_redirection() {
        let to = response.headers().get("location").and_then(|to| to.to_str().ok()).unwrap_or_default();
        let to = to.chars().take(200).collect();
        return Err(NoKeys::Redirect { status: status.as_u16(), to });
    }
    if status.as_u16() != 200 {
        return Err(NoKeys::Status(status.as_u16()));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
        if bytes.len() + chunk.len() > MAX_BYTES {
            return Err(NoKeys::TooLarge);
        }
        bytes.extend_from_slice(&chunk);
    }
    Keys::parse(&bytes)
}

/// The error with its causes: the first one alone says only that something went wrong.
fn unreachable(error: reqwest::Error) -> NoKeys {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    NoKeys::Unreachable(text)
}

/// The keys that can check signatures.
pub(super) struct Keys(Vec<Key>);

struct Key {
    id: Option<String>,
    fits: Vec<Algorithm>,
    key: DecodingKey,
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

/// What a key says of itself.
#[derive(Deserialize)]
struct Facts {
    kid: Option<String>,
    kty: String,
    crv: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    meant_for: Option<String>,
    key_ops: Option<Vec<String>>,
}

impl Keys {
    pub(super) fn parse(bytes: &[u8]) -> Result<Keys, NoKeys> {
        let Set { keys } = serde_json::from_slice(bytes).map_err(NoKeys::Unreadable)?;
        if keys.len() > MAX_KEYS {
            Err(NoKeys::TooMany(keys.len()))
        } else {
            Ok(Keys(keys.into_iter().filter_map(Key::read).collect()))
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the provider signed a token. Its key is chosen by name; without a name there must be one key only that
    /// could be meant.
    pub(super) fn check(&self, token: &Token<'_>) -> Result<(), TokenRefusal> {
        let unknown = || TokenRefusal::UnknownKey(token.key_id.clone());
        let Some(id) = &token.key_id else {
            let mut fitting = self.0.iter().filter(|key| key.fits(token));
            return match (fitting.next(), fitting.next()) {
                (Some(key), None) if key.signed(token) => Ok(()),
                _ => Err(unknown()),
            };
        };
        let named: Vec<&Key> = self.0.iter().filter(|key| key.id.as_ref() == Some(id)).collect();
        let mut fitting = named.iter().filter(|key| key.fits(token)).peekable();
        if named.is_empty() {
            return Err(unknown());
        }
        if fitting.peek().is_none() {
            return Err(TokenRefusal::WrongKind);
        }
        if fitting.any(|key| key.signed(token)) { Ok(()) } else { Err(TokenRefusal::Signature) }
    }
}

impl Key {
    fn read(value: Value) -> Option<Key> {
        let facts = Facts::deserialize(&value).ok()?;
        let is_for_signatures = facts.meant_for.as_ref().is_none_or(|meant| meant == "sig")
            && facts.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
        let mut fits = facts.algorithms();
        if let Some(only) = &facts.alg {
            fits.retain(|algorithm| format!("{algorithm:?}") == *only);
        }
        if !is_for_signatures || fits.is_empty() {
            return None;
        }
        let key = serde_json::from_value::<Jwk>(value).ok()?;
        Some(Key { id: facts.kid, fits, key: DecodingKey::from_jwk(&key).ok()? })
    }

    fn fits(&self, token: &Token<'_>) -> bool {
        self.fits.contains(&token.algorithm)
    }

    fn signed(&self, token: &Token<'_>) -> bool {
        crypto::verify(token.signature, token.signed.as_bytes(), &self.key, token.algorithm).unwrap_or(false)
    }
}

impl Facts {
    /// What a key of this kind can check. A kind that is not here, such as a shared secret, is for nothing.
    fn algorithms(&self) -> Vec<Algorithm> {
        match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", None) => vec![
                Algorithm::RS256,
                Algorithm::RS384,
                Algorithm::RS512,
                Algorithm::PS256,
                Algorithm::PS384,
                Algorithm::PS512,
            ],
            ("EC", Some("P-256")) => vec![Algorithm::ES256],
            ("EC", Some("P-384")) => vec![Algorithm::ES384],
            ("OKP", Some("Ed25519")) => vec![Algorithm::EdDSA],
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_over_https_or_from_this_machine() {
        use BadAddress::{HasPassword, NotSecure, Unreadable};
        for (text, expected) in [
            ("https://login.example.org/keys", None),
            ("http://localhost:8080/keys", None),
            ("http://127.0.0.1:8080/keys", None),
            ("http://127.8.9.1/keys", None),
            ("http://[::1]:8080/keys", None),
            ("http://login.example.org/keys", Some(NotSecure)),
            ("http://localhost.example.org/keys", Some(NotSecure)),
            ("http://127.0.0.1.example.org/keys", Some(NotSecure)),
            ("http://10.0.0.1/keys", Some(NotSecure)),
            ("http://localhost@example.org/keys", Some(HasPassword)),
            ("https://me:secret@login.example.org/keys", Some(HasPassword)),
            ("ftp://localhost/keys", Some(Unreadable)),
            ("file:///etc/keys", Some(Unreadable)),
            ("localhost", Some(Unreadable)),
            ("", Some(Unreadable)),
        ] {
            assert_eq!(keys_address(text).err(), expected, "{text}");
        }
    }

    /// Of the examples of RFC 7517 and RFC 8037, those that can check signatures are kept.
    #[test]
    fn keys_of_no_use_are_passed_over() {
        let point = r#""x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM""#;
        let kept =
            |key: &str| Keys::parse(format!(r#"{{"keys":[{key}],"more":1}}"#).as_bytes()).unwrap().len();
        for (key, is_kept) in [
            (format!(r#"{{"kty":"EC","crv":"P-256",{point}}}"#), 1),
            (
                format!(
                    r#"{{"kty":"EC","crv":"P-256",{point},"use":"sig","alg":"ES256","key_ops":["verify"]}}"#
                ),
                1,
            ),
            (format!(r#"{{"kty":"EC","crv":"P-256",{point},"use":"enc"}}"#), 0),
            (format!(r#"{{"kty":"EC","crv":"P-256",{point},"key_ops":["deriveKey"]}}"#), 0),
            (format!(r#"{{"kty":"EC","crv":"P-256",{point},"alg":"RS256"}}"#), 0),
            (format!(r#"{{"kty":"EC","crv":"P-521",{point}}}"#), 0),
            (r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#.into(), 1),
            (r#"{"kty":"OKP","crv":"X25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#.into(), 0),
            (r#"{"kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ","kid":"a","alg":"HS256"}"#.into(), 0),
            (r#"{"kty":"EC","crv":"P-256"}"#.into(), 0),
            (r#"{"kty":"new","kid":7}"#.into(), 0),
            ("7".into(), 0),
        ] {
            assert_eq!(kept(&key), is_kept, "{key}");
        }
        assert_eq!(kept(""), 0);
        for garbage in ["", "<html>", "[]", "{}", r#"{"keys":{}}"#, r#"{"keys":[}"#] {
            assert!(matches!(Keys::parse(garbage.as_bytes()), Err(NoKeys::Unreadable(_))), "{garbage}");
        }
        let many = format!(r#"{{"keys":[{}1]}}"#, "1,".repeat(MAX_KEYS));
        assert!(matches!(Keys::parse(many.as_bytes()), Err(NoKeys::TooMany(101))));
    }
}

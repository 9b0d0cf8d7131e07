//! The key that agents' cards are signed with: Ed25519, from the configuration.
//!
//! The same card has the same signature every time, so that caches can go by it; other kinds of keys sign with chance.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine as _};
use serde::Serialize;

/// What a key looks like in a file.
const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";

/// A key that cards are signed with, and how receivers of a card find the other half of it.
#[derive(Clone)]
pub struct CardKey {
    pair: Arc<Ed25519KeyPair>,
    id: String,
    found_at: Option<String>,
}

/// Why a text is not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not an Ed25519 key in PKCS#8; create one with `openssl genpkey -algorithm ed25519`")]
pub struct NoCardKey;

/// A signature over something that stands elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetachedSignature {
    /// What is said about the key, as it was signed.
    pub protected: String,
    /// The signature.
    pub signature: String,
}

impl CardKey {
    /// Reads a key in PEM; `id` names it, and `found_at` is where its public half is.
    pub fn read(pem: &str, id: &str, found_at: Option<&str>) -> Result<CardKey, NoCardKey> {
        let inside =
            pem.trim().strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END)).ok_or(NoCardKey)?;
        let text: String = inside.chars().filter(|c| !c.is_whitespace()).collect();
        let bytes = BASE64_STANDARD.decode(text).map_err(|_| NoCardKey)?;
        let pair = Ed25519KeyPair::from_pkcs8(&bytes).map_err(|_| NoCardKey)?;
        Ok(CardKey { pair: Arc::new(pair), id: id.to_owned(), found_at: found_at.map(str::to_owned) })
    }

    /// Signs these bytes, as a JSON Web Signature without its payload.
    #[must_use]
    pub fn sign(&self, payload: &[u8]) -> DetachedSignature {
        #[derive(Serialize)]
        struct ProtectedHeader<'a> {
            alg: &'static str,
            kid: &'a str,
            typ: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            jku: Option<&'a str>,
        }
        let said =
            ProtectedHeader { alg: "EdDSA", kid: &self.id, typ: "JOSE", jku: self.found_at.as_deref() };
        let protected = BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_string(&said).unwrap_or_default());
        let signed = format!("{protected}.{}", BASE64_URL_SAFE_NO_PAD.encode(payload));
        let signature = BASE64_URL_SAFE_NO_PAD.encode(self.pair.sign(signed.as_bytes()));
        DetachedSignature { protected, signature }
    }
}

impl PartialEq for CardKey {
    fn eq(&self, other: &CardKey) -> bool {
        let named = |key: &CardKey| (key.id.clone(), key.found_at.clone());
        named(self) == named(other) && self.pair.public_key().as_ref() == other.pair.public_key().as_ref()
    }
}

impl Eq for CardKey {}

impl fmt::Debug for CardKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CardKey({:?})", self.id)
    }
}

//! The section `server.encryption`: with which keys payloads are sealed before they are stored.
//!
//! Where a key comes from is said here; it is fetched by `encryption.rs` of the server, when a database is opened.

use std::collections::BTreeMap;

use garde::Validate;
use schemars::JsonSchema;
use serde::Deserialize;

use super::llm::web_address;
use super::values::Secret;

/// Encryption of payloads at rest.
#[derive(Debug, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct Encryption {
    /// The keys that wrap the key of each run. The first wraps new ones; the others still open what they wrapped, until
    /// `standfast encryption reseal` has wrapped that anew.
    #[garde(length(min = 1, max = 16), dive)]
    pub keys: Vec<EncryptionKey>,
    /// The file with the wrapped keys of runs, relative to this file. Default: the path of the database with `.keys` at its
    /// end. Back it up apart from the database: both together are needed, and what was erased stays unreadable only where
    /// no old copy of this file is left.
    #[serde(default)]
    #[garde(inner(length(min = 1)))]
    pub key_file: Option<String>,
}

/// A key that wraps the keys of runs, from one of `file`, `command` or `kms`: 32 bytes in base64.
#[derive(Debug, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct EncryptionKey {
    /// A name of the key that is never used again for another one, such as `2026-11`.
    #[garde(custom(key_id))]
    pub id: String,
    /// A file with the key, relative to this file: create one with `openssl rand -base64 32`.
    #[serde(default)]
    #[garde(inner(length(min = 1)))]
    pub file: Option<String>,
    /// A command that prints the key, with its arguments.
    #[serde(default)]
    pub command: Vec<String>,
    /// A key management service that decrypts the key.
    #[serde(default)]
    #[garde(dive)]
    pub kms: Option<Kms>,
}

/// A key management service: asked once at each start, by a POST of `{"ciphertext": …}`. It responds with `plaintext`, or with
/// `data` that has it, in base64; HashiCorp Vault and OpenBao do so at `/v1/transit/decrypt/NAME`.
#[derive(Debug, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct Kms {
    /// The address. Any other than this machine must be https.
    #[garde(custom(web_address))]
    pub url: String,
    /// The key as the service encrypted it.
    #[garde(length(min = 1))]
    pub ciphertext: String,
    /// Headers of the request, such as `X-Vault-Token`, by variables of the environment. Values are never shown.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
    /// A PEM file with the authority of the service's certificate, relative to this file. Default: those that the system
    /// trusts.
    #[serde(default)]
    pub certificate_authority: Option<String>,
}

fn key_id(id: &str, (): &()) -> garde::Result {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !id.is_empty() && id.len() <= 64 && id.chars().all(is_plain) {
        Ok(())
    } else {
        Err(garde::Error::new("must be a name of letters, digits, `-`, `_` and `.`, 64 at most"))
    }
}

//! The keys that payloads are sealed with: fetched from a file, a command or a key management service when a database is opened.
//!
//! They are in memory for as long as the database is open, and nowhere else; what they were read from is overwritten. Sealing is
//! the store's.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use standfast_engine::clock;
use standfast_store::sqlite::{PayloadSealer, WrappingKey};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use zeroize::Zeroizing;

/// How long a key management service may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// What it may say at most.
const ANSWER_MAX: u64 = 64 * 1024;

/// How payloads of a database are sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncryptionSettings {
    /// The file of the keys of runs; none means the one beside the database.
    pub key_file: Option<PathBuf>,
    /// The keys that wrap them, by id: the first one wraps new ones.
    pub keys: Vec<(String, KeySource)>,
}

/// Where a key comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file.
    File(PathBuf),
    /// What a program prints.
    Command(Vec<String>),
    /// A service that decrypts it.
    Kms(Kms),
}

/// A key management service.
#[derive(Clone, PartialEq, Eq)]
pub struct Kms {
    /// The address that decrypts.
    pub url: String,
    /// What is to be decrypted.
    pub ciphertext: String,
    /// What the request says beside it.
    pub headers: BTreeMap<String, String>,
    /// The authority of its certificate; none means those of this machine.
    pub certificate_authority: Option<PathBuf>,
}

/// Without what only the owner may know.
impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::File(path) => write!(f, "the file {}", path.display()),
            // Its arguments may be nobody's business.
            KeySource::Command(argv) => {
                write!(f, "the command {}", argv.first().map(String::as_str).unwrap_or_default())
            }
            KeySource::Kms(kms) => write!(f, "the service {}", without_query(&kms.url)),
        }
    }
}

fn without_query(url: &str) -> &str {
    url.split('?').next().unwrap_or_default()
}

/// Why a key cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("the key {id} of server.encryption.keys cannot be had from {from}: {why}")]
pub struct BadKey {
    id: String,
    from: String,
    why: String,
}

impl EncryptionSettings {
    /// The file of the keys of runs of this database.
    #[must_use]
    pub fn file_for(&self, database: &Path) -> PathBuf {
        self.key_file.clone().unwrap_or_else(|| {
            let mut name = database.as_os_str().to_owned();
            name.push(".keys");
            PathBuf::from(name)
        })
    }

    /// Fetches the keys.
    pub fn sealing(&self, database: &Path) -> Result<PayloadSealer, BadKey> {
        let fetched = self.keys.iter().map(|(id, source)| -> Result<WrappingKey, BadKey> {
            let failed = |why| BadKey { id: id.clone(), from: source.to_string(), why };
            let bytes = source.text().and_then(|text| key(&text)).map_err(failed)?;
            Ok(WrappingKey::new(id.as_str(), &bytes))
        });
        let keys: Arc<[WrappingKey]> = fetched.collect::<Result<Vec<_>, BadKey>>()?.into();
        Ok(PayloadSealer { file: self.file_for(database), keys, random: clock::random_bytes::<32> })
    }
}

fn key(text: &str) -> Result<Zeroizing<[u8; 32]>, String> {
    let wrong = || "it is not 32 bytes in base64; `openssl rand -base64 32` makes a key".to_owned();
    let decoded = Zeroizing::new(BASE64_STANDARD.decode(text.trim()).map_err(|_| wrong())?);
    let mut bytes = Zeroizing::new([0; 32]);
    if decoded.len() != bytes.len() {
        return Err(wrong());
    }
    bytes.copy_from_slice(&decoded);
    Ok(bytes)
}

impl KeySource {
    fn text(&self) -> Result<Zeroizing<String>, String> {
        match self {
            KeySource::File(path) => {
                std::fs::read_to_string(path).map(Zeroizing::new).map_err(|error| error.to_string())
            }
            KeySource::Command(argv) => {
                let (program, arguments) = argv.split_first().ok_or("it is empty")?;
                let mut command = Command::new(program);
                command.args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit());
                let output = command.output().map_err(|error| error.to_string())?;
                let printed = Zeroizing::new(output.stdout);
                if !output.status.success() {
                    return Err(format!("it ended with {}", output.status));
                }
                let text = std::str::from_utf8(&printed).map_err(|_| "it prints no text")?;
                Ok(Zeroizing::new(text.to_owned()))
            }
            KeySource::Kms(kms) => kms.decrypt(),
        }
    }
}

impl Kms {
    fn decrypt(&self) -> Result<Zeroizing<String>, String> {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            // A key is for nobody in between.
            .proxy(None)
            .timeout_global(Some(PATIENCE))
            .tls_config(self.tls()?)
            .build()
            .into();
        let mut request = agent.post(&self.url).header("content-type", "application/json");
        for (name, value) in &self.headers {
            request = request.header(name.as_str(), value.as_str());
        }
        let body = serde_json::json!({ "ciphertext": self.ciphertext }).to_string();
        let mut response = request.send(body.as_str()).map_err(|error| format!("no response: {error}"))?;
        let status = response.status();
        let text = response.body_mut().with_config().limit(ANSWER_MAX).read_to_string();
        let text = Zeroizing::new(text.map_err(|error| format!("its response cannot be read: {error}"))?);
        if !status.is_success() {
            return Err(format!("it responded with {status}; check its log, and the headers of the key"));
        }
        plaintext(&text).ok_or_else(|| "its response has no `plaintext`".to_owned())
    }

    fn tls(&self) -> Result<TlsConfig, String> {
        let own = rustls_native_certs::load_native_certs().certs;
        let mut trusted: Vec<Certificate<'static>> =
            own.iter().map(|one| Certificate::from_der(one).to_owned()).collect();
        if let Some(path) = &self.certificate_authority {
            let shown = path.display();
            let text = std::fs::read(path).map_err(|error| format!("{shown} cannot be read: {error}"))?;
            // Named, it is the only one.
            trusted.clear();
            for item in parse_pem(&text) {
                if let PemItem::Certificate(one) = item.map_err(|error| format!("{shown}: {error}"))? {
                    trusted.push(one);
                }
            }
            if trusted.is_empty() {
                return Err(format!("{shown} has no certificate in it; name a PEM file"));
            }
        }
        Ok(TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(trusted)))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .build())
    }
}

/// What a service responds with.
#[derive(serde::Deserialize)]
struct KmsResponse {
    #[serde(alias = "Plaintext")]
    plaintext: Option<String>,
    data: Option<KmsData>,
}

#[derive(serde::Deserialize)]
struct KmsData {
    plaintext: Option<String>,
}

fn plaintext(text: &str) -> Option<Zeroizing<String>> {
    let decrypted: KmsResponse = serde_json::from_str(text).ok()?;
    decrypted.plaintext.or_else(|| decrypted.data?.plaintext).map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_32_bytes_in_base64() {
        let text = BASE64_STANDARD.encode([7; 32]);
        assert_eq!(*key(&format!("{text}\n")).unwrap(), [7; 32]);
        let (short, long) = (BASE64_STANDARD.encode([7; 31]), BASE64_STANDARD.encode([7; 33]));
        for wrong in ["", "short", short.as_str(), long.as_str(), text.trim_end_matches('=')] {
            assert!(key(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn services_respond_in_several_ways() {
        let said = |text| plaintext(text).map(|text| text.to_string());
        for text in
            [r#"{"plaintext":"a"}"#, r#"{"Plaintext":"a","KeyId":"x"}"#, r#"{"data":{"plaintext":"a"}}"#]
        {
            assert_eq!(said(text).as_deref(), Some("a"), "{text}");
        }
        for text in ["", "[]", "{}", r#"{"data":{}}"#, r#"{"errors":["permission denied"]}"#] {
            assert_eq!(said(text), None, "{text}");
        }
    }

    /// T29: neither the arguments of a command nor what a service is asked with are shown.
    #[test]
    fn where_a_key_comes_from_is_shown_without_secrets() {
        let command = KeySource::Command(vec!["pass".into(), "canary".into()]);
        let kms = KeySource::Kms(Kms {
            url: "https://kms.example/decrypt?token=canary".into(),
            ciphertext: "canary".into(),
            headers: BTreeMap::from([("X-Vault-Token".into(), "canary".into())]),
            certificate_authority: None,
        });
        let shown = format!("{command} {command:?} {kms} {kms:?}");
        assert!(!shown.contains("canary") && shown.contains("https://kms.example/decrypt"), "{shown}");
    }
}

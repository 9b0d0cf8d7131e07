//! The server's own TLS: a certificate from files, reloaded when they change, without a restart and without a connection
//! that is lost.
//!
//! Knows certificates, not what is served behind them. rustls with aws-lc-rs, TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadCertificate {
    /// The file with the chain.
    #[error("cannot use the certificate {}: {why}", path.display())]
    Chain {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The file with the key.
    #[error("cannot use the private key {}: {why}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The two do not fit together, or not this program.
    #[error("the certificate {} and the key {} cannot be used: {why}", chain.display(), key.display())]
    Pair {
        /// The file with the chain.
        chain: PathBuf,
        /// The file with the key.
        key: PathBuf,
        /// Why.
        why: String,
    },
}

/// A certificate with its key, from two PEM files.
#[derive(Debug)]
pub struct ServerCertificate {
    chain: PathBuf,
    key: PathBuf,
    current: RwLock<Arc<CertifiedKey>>,
}

impl ServerCertificate {
    /// Reads the chain, the server's own certificate first, and its key.
    pub fn read(chain: PathBuf, key: PathBuf) -> Result<Arc<ServerCertificate>, BadCertificate> {
        let current = RwLock::new(Arc::new(read(&chain, &key)?));
        Ok(Arc::new(ServerCertificate { chain, key, current }))
    }

    /// What takes connections with it.
    pub fn acceptor(self: &Arc<Self>) -> Result<TlsAcceptor, BadCertificate> {
        let unusable = |error: rustls::Error| self.unusable(&error);
        let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let mut config = config.map_err(unusable)?.with_no_client_auth().with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Reloads the files whenever they change, for as long as it is polled. New files that cannot be used change
    /// nothing.
    pub async fn keep_up(&self) {
        let mut seen = self.files();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = self.files();
            // One that is being replaced is looked at again.
            if now == seen || now.0.is_none() || now.1.is_none() {
                continue;
            }
            seen = now;
            match read(&self.chain, &self.key) {
                Ok(taken) => {
                    *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(taken);
                    tracing::info!(certificate = %self.chain.display(), "tls: certificate reloaded");
                }
                Err(error) => {
                    tracing::error!(
                        "tls: the changed certificate is invalid, the old one stays in use: {error}"
                    );
                }
            }
        }
    }

    fn files(&self) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        (std::fs::read(&self.chain).ok(), std::fs::read(&self.key).ok())
    }

    fn unusable(&self, error: &rustls::Error) -> BadCertificate {
        BadCertificate::Pair { chain: self.chain.clone(), key: self.key.clone(), why: error.to_string() }
    }
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn read(chain: &Path, key: &Path) -> Result<CertifiedKey, BadCertificate> {
    let bad_chain = |why: String| BadCertificate::Chain { path: chain.to_owned(), why };
    let found = CertificateDer::pem_file_iter(chain).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = found.map_err(|error| bad_chain(error.to_string()))?;
    if certificates.is_empty() {
        return Err(bad_chain("there is no certificate in it; name a PEM file".to_owned()));
    }
    let bad_key = |error: rustls::pki_types::pem::Error| BadCertificate::Key {
        path: key.to_owned(),
        why: error.to_string(),
    };
    let private = PrivateKeyDer::from_pem_file(key).map_err(bad_key)?;
    CertifiedKey::from_der(certificates, private, &provider()).map_err(|error| BadCertificate::Pair {
        chain: chain.to_owned(),
        key: key.to_owned(),
        why: error.to_string(),
    })
}

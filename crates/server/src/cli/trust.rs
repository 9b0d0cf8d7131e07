//! Whom the client commands trust: the authorities of this machine, and those of a file that somebody names.
//!
//! TLS is rustls with aws-lc-rs, as everywhere in the program. Verification cannot be switched off; what asks a server of this very
//! machine whether it is ready, and nothing else, goes without.

use std::path::Path;
use std::sync::Arc;

use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// How https is spoken.
pub(super) fn config(authority: Option<&Path>) -> Result<TlsConfig, String> {
    let own = rustls_native_certs::load_native_certs().certs;
    let mut trusted: Vec<Certificate<'static>> =
        own.iter().map(|one| Certificate::from_der(one).to_owned()).collect();
    if let Some(path) = authority {
        let shown = path.display();
        let text = std::fs::read(path)
            .map_err(|error| format!("cannot read the authorities in {shown}: {error}"))?;
        let before = trusted.len();
        for item in parse_pem(&text) {
            if let PemItem::Certificate(one) = item.map_err(|error| format!("{shown}: {error}"))? {
                trusted.push(one);
            }
        }
        if trusted.len() == before {
            return Err(format!("{shown} has no certificate in it; name a PEM file"));
        }
    }
    let builder = TlsConfig::builder().root_certs(RootCerts::Specific(Arc::new(trusted)));
    Ok(builder.unversioned_rustls_crypto_provider(provider()).build())
}

/// How a server is asked for its readiness that announced its address in the data directory: its certificate is for the name by which
/// others reach it, not for that address. No key is sent.
pub(super) fn of_this_machine() -> TlsConfig {
    TlsConfig::builder().disable_verification(true).unversioned_rustls_crypto_provider(provider()).build()
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

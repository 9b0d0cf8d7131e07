//! Whom the client commands trust: the authorities of this machine, and those of a file that somebody names.
//!
//! TLS is rustls with aws-lc-rs, as everywhere in the program. Verification cannot be switched off.

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
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(trusted)))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .build())
}

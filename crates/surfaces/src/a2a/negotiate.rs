//! What client and server agree on before anything is read: version, media types, extensions.
//!
//! In the order in which mistakes are reported: version first, then the type of the body.

use axum::http::{HeaderMap, Uri, header};

use super::card::{IDEMPOTENCY, VERSION};
use super::error::{A2aError, Kind};

/// The older version that is spoken here, see `v03/`.
pub(super) const V03: &str = "0.3";
/// The header, and the query argument, with the protocol's version.
const VERSION_HEADER: &str = "a2a-version";
/// The header with the extensions that a client wants.
pub(super) const EXTENSIONS_HEADER: &str = "a2a-extensions";
/// The media type of HTTP+JSON.
pub(super) const A2A_JSON: &str = "application/a2a+json";
/// What older clients expect.
pub(super) const JSON: &str = "application/json";

/// What a client says about the version that it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// 1.0, whatever its patch.
    One,
    /// Nothing: the shape of the request shows it.
    Unsaid,
}

/// The version that a client speaks, if it is one of ours.
pub(super) fn version(headers: &HeaderMap, uri: &Uri) -> Result<Version, A2aError> {
    match said(headers, uri).as_str() {
        "" => Ok(Version::Unsaid),
        said if is_patch_of(said, VERSION) => Ok(Version::One),
        said => Err(not_supported(said)),
    }
}

/// What a client says about the version, in its header or as an argument; empty when it says nothing.
pub(super) fn said(headers: &HeaderMap, uri: &Uri) -> String {
    let in_query = uri.query().unwrap_or_default().split('&').find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.eq_ignore_ascii_case(VERSION_HEADER).then(|| value.to_owned())
    });
    let said = headers.get(VERSION_HEADER).map(|value| value.to_str().unwrap_or("unreadable").to_owned());
    said.or(in_query).unwrap_or_default().trim().to_owned()
}

/// Whether a version is this one, whatever its patch.
pub(super) fn is_patch_of(said: &str, version: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    said.strip_prefix(version)
        .is_some_and(|patch| patch.is_empty() || patch.strip_prefix('.').is_some_and(is_number))
}

fn not_supported(said: &str) -> A2aError {
    let spoken = format!("{VERSION}, {V03}");
    let message =
        format!("A2A version {said} is not supported at this address; this agent supports {spoken}");
    let mut error = A2aError::new(Kind::VersionNotSupported, message);
    error.metadata.insert("supported_versions", spoken);
    error
}

/// Refuses bodies of other types. A browser sends others across origins without asking first.
pub(super) fn content_type(headers: &HeaderMap) -> Result<(), A2aError> {
    let said = text(headers, header::CONTENT_TYPE.as_str());
    let media = said.split(';').next().unwrap_or_default().trim();
    if [JSON, A2A_JSON].iter().any(|known| media.eq_ignore_ascii_case(known)) {
        Ok(())
    } else {
        let message = format!("send content-type: {JSON} or {A2A_JSON}");
        Err(A2aError::new(Kind::ContentTypeNotSupported, message))
    }
}

/// The type of an answer over HTTP+JSON: the protocol's own for whoever names it.
pub(super) fn answer_type(headers: &HeaderMap) -> &'static str {
    let names = |name: header::HeaderName| text(headers, name.as_str()).contains(A2A_JSON);
    if names(header::ACCEPT) || names(header::CONTENT_TYPE) { A2A_JSON } else { JSON }
}

/// Those of the extensions that a client wants which are spoken here; others are ignored.
pub(super) fn extensions(headers: &HeaderMap) -> Option<&'static str> {
    extensions_in(headers, EXTENSIONS_HEADER)
}

/// The same, where the header is called otherwise.
pub(super) fn extensions_in(headers: &HeaderMap, header: &str) -> Option<&'static str> {
    lists(headers, header, IDEMPOTENCY).then_some(IDEMPOTENCY)
}

/// Whether a header lists an extension.
pub(super) fn lists(headers: &HeaderMap, header: &str, uri: &str) -> bool {
    let values = headers.get_all(header).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|listed| listed.trim() == uri)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        headers
    }

    #[test]
    fn the_patch_of_a_version_does_not_count() {
        let uri: Uri = "/".parse().unwrap();
        let said = |value: &str| version(&headers("A2A-Version", value), &uri).map_err(|error| error.kind);
        for (value, expected) in [
            ("1.0", Ok(Version::One)),
            (" 1.0 ", Ok(Version::One)),
            ("1.0.7", Ok(Version::One)),
            ("", Ok(Version::Unsaid)),
            ("0.3", Err(Kind::VersionNotSupported)),
            ("1", Err(Kind::VersionNotSupported)),
            ("1.1", Err(Kind::VersionNotSupported)),
            ("1.0.x", Err(Kind::VersionNotSupported)),
            ("99.0", Err(Kind::VersionNotSupported)),
        ] {
            assert_eq!(said(value), expected, "{value:?}");
        }
        let none = HeaderMap::new();
        assert_eq!(version(&none, &"/?A2A-Version=1.0".parse().unwrap()), Ok(Version::One));
        assert!(version(&none, &"/?a=b&a2a-version=2.0".parse().unwrap()).is_err());
        assert_eq!(version(&none, &"/?pageSize=1".parse().unwrap()), Ok(Version::Unsaid));
    }

    #[test]
    fn answers_have_the_type_that_the_client_names() {
        let both = "application/a2a+json, application/json";
        assert_eq!(answer_type(&headers("accept", both)), A2A_JSON);
        assert_eq!(answer_type(&headers("content-type", "application/a2a+json")), A2A_JSON);
        assert_eq!(answer_type(&headers("accept", "*/*")), JSON);
        assert_eq!(answer_type(&HeaderMap::new()), JSON);
        for (media, is_taken) in [
            ("application/json", true),
            ("application/json; charset=utf-8", true),
            ("Application/A2A+JSON", true),
            ("text/plain", false),
            ("application/xml", false),
        ] {
            assert_eq!(content_type(&headers("content-type", media)).is_ok(), is_taken, "{media}");
        }
        assert!(content_type(&HeaderMap::new()).is_err());
    }
}

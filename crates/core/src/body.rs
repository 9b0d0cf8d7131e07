//! Values that people and models write: inline when small, by reference when large.
//!
//! A value over 16 KiB is stored once as a blob of its run and named by its digest, so that a row of the log stays
//! readable and quick to load. The three forms carry different tags: no inline value can pass for a reference.

use serde::{Deserialize, Serialize};

use crate::digest::{self, Digest};
use crate::json::RawJson;

/// Values up to this many bytes stay in the event.
pub const INLINE_MAX: usize = 16 * 1024;

/// A text, a JSON value, or a reference to one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// Plain text.
    Text(String),
    /// A JSON value, byte for byte.
    Json(RawJson),
    /// A large value, stored beside the log.
    Blob(BlobRef),
}

/// Names a large value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRef {
    /// SHA-256 of its bytes.
    pub digest: Digest,
    /// Its length.
    pub bytes: u64,
    /// What the bytes are.
    pub form: BlobForm,
}

/// What the bytes of a large value are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlobForm {
    /// Plain text.
    Text,
    /// JSON text.
    Json,
}

/// A large value on its way to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// How the log names it.
    pub name: BlobRef,
    /// The value itself.
    pub text: String,
}

impl Body {
    /// A plain text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Body {
        Body::Text(text.into())
    }

    /// The text of an inline value: what is shown, hashed and handed to a tool.
    #[must_use]
    pub fn inline(&self) -> Option<&str> {
        match self {
            Body::Text(text) => Some(text),
            Body::Json(json) => Some(json.text()),
            Body::Blob(_) => None,
        }
    }

    /// The reference, when the value is stored beside the log.
    #[must_use]
    pub fn blob(&self) -> Option<&BlobRef> {
        match self {
            Body::Text(_) | Body::Json(_) => None,
            Body::Blob(name) => Some(name),
        }
    }

    /// Moves a large value out: what stays is its name, what comes back is for the store.
    pub fn outsource(&mut self) -> Option<Blob> {
        let form = match self {
            Body::Text(_) => BlobForm::Text,
            Body::Json(_) => BlobForm::Json,
            Body::Blob(_) => return None,
        };
        let text = self.inline().filter(|text| text.len() > INLINE_MAX)?.to_owned();
        let name = BlobRef { digest: digest::of_bytes(text.as_bytes()), bytes: text.len() as u64, form };
        *self = Body::Blob(name);
        Some(Blob { name, text })
    }

    /// Puts a large value back in its place, if it is the one that was moved out.
    pub fn fill(&mut self, text: &str) -> Result<(), WrongBlob> {
        let Body::Blob(name) = self else { return Ok(()) };
        if digest::of_bytes(text.as_bytes()) != name.digest {
            return Err(WrongBlob { wanted: name.digest });
        }
        *self = match name.form {
            BlobForm::Text => Body::Text(text.to_owned()),
            BlobForm::Json => {
                Body::Json(RawJson::parse(text).map_err(|_| WrongBlob { wanted: name.digest })?)
            }
        };
        Ok(())
    }
}

/// The stored value is not the one that the log names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongBlob {
    /// The digest that the log names.
    pub wanted: Digest,
}

impl std::fmt::Display for WrongBlob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the stored value is not the one with digest {}", self.wanted)
    }
}

impl std::error::Error for WrongBlob {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_value_moves_out_and_back() {
        let long = "x".repeat(INLINE_MAX + 1);
        let mut body = Body::text(long.clone());
        let blob = body.outsource().unwrap();
        assert_eq!(body.blob(), Some(&blob.name));
        assert_eq!(body.fill("another value"), Err(WrongBlob { wanted: blob.name.digest }));
        body.fill(&blob.text).unwrap();
        assert_eq!(body, Body::Text(long));
    }

    #[test]
    fn a_small_value_stays() {
        let mut body = Body::text("x".repeat(INLINE_MAX));
        assert_eq!(body.outsource(), None);
    }

    /// T1: arguments that look like a reference are arguments.
    #[test]
    fn no_inline_value_passes_for_a_reference() {
        let forged = RawJson::parse(r#"{"blob":{"digest":"00","bytes":1,"form":"json"}}"#).unwrap();
        let stored = serde_json::to_string(&Body::Json(forged.clone())).unwrap();
        assert_eq!(serde_json::from_str::<Body>(&stored).unwrap(), Body::Json(forged));
    }
}

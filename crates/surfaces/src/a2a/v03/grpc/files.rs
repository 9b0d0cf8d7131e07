//! What the bytes of a file are in messages of 0.3 over gRPC: the bytes, or their base64.
//!
//! The definition says bytes, and so does the official library for JavaScript. The one for Python puts the text of the base64 there, and
//! reads nothing else, so it is known by its name in `user-agent`.

use axum::http::{HeaderMap, header};
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE, Engine as _};

/// What a client takes the bytes of a file for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileForm {
    /// The bytes themselves.
    Bytes,
    /// The text of their base64.
    Base64Text,
}

impl FileForm {
    /// That of whoever asks.
    pub(super) fn of(headers: &HeaderMap) -> FileForm {
        let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        if agent.is_some_and(|agent| agent.contains("grpc-python")) {
            FileForm::Base64Text
        } else {
            FileForm::Bytes
        }
    }

    /// As the other bindings have it.
    pub(super) fn base64_of(self, bytes: Vec<u8>) -> String {
        match (self, String::from_utf8(bytes)) {
            (FileForm::Base64Text, Ok(text)) => text,
            (FileForm::Bytes, Ok(text)) => BASE64_STANDARD.encode(text),
            (FileForm::Bytes | FileForm::Base64Text, Err(binary)) => {
                BASE64_STANDARD.encode(binary.into_bytes())
            }
        }
    }

    /// The other way round.
    pub(super) fn bytes_of(self, text: String) -> Vec<u8> {
        match self {
            FileForm::Base64Text => text.into_bytes(),
            FileForm::Bytes => {
                let bytes = BASE64_STANDARD.decode(&text).or_else(|_| BASE64_URL_SAFE.decode(&text));
                bytes.unwrap_or_default()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn each_client_sends_and_gets_what_it_takes_a_file_for() {
        for (agent, form, sent) in [
            ("grpc-node-js/1.14.1", FileForm::Bytes, vec![0x89, 0x50, 0xff]),
            ("grpc-node-js/1.14.1", FileForm::Bytes, b"eA==".to_vec()),
            ("grpc-python-asyncio/1.76.0 grpc-c/51.0.0", FileForm::Base64Text, b"iVD/".to_vec()),
        ] {
            let headers = HeaderMap::from_iter([(header::USER_AGENT, HeaderValue::from_static(agent))]);
            assert_eq!(FileForm::of(&headers), form, "{agent}");
            let base64 = form.base64_of(sent.clone());
            assert_eq!(form.bytes_of(base64), sent, "{agent}");
        }
        assert_eq!(FileForm::Bytes.base64_of(vec![0x89, 0x50, 0xff]), "iVD/");
        assert_eq!(FileForm::Base64Text.base64_of(b"iVD/".to_vec()), "iVD/");
        assert_eq!(FileForm::of(&HeaderMap::new()), FileForm::Bytes);
    }
}

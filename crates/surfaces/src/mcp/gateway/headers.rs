//! Headers of a request that say what its body says: whoever routes by them must not be told something else than whoever reads the
//! body.
//!
//! Only compares; which of them go on to a server is said in `route.rs`.

use axum::http::HeaderValue;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::Value;

use super::super::message::ClientMessage;
use super::ClientRequest;
use super::route::PARAM;

impl ClientRequest {
    /// Whoever routes by headers must not be told something else than whoever reads the body.
    pub(super) fn headers_fit(&self, message: &ClientMessage) -> Result<(), String> {
        let (method, name, profile) = match message {
            ClientMessage::Call(call) => ("tools/call", Some(call.tool.as_str()), call.profile.as_ref()),
            ClientMessage::Request(request) => {
                (request.method.as_str(), request.name.as_deref(), request.profile.as_ref())
            }
            ClientMessage::Cancel(_) => ("notifications/cancelled", None, None),
            ClientMessage::Hello(_) => ("initialize", None, None),
            ClientMessage::Answer(_) | ClientMessage::Other => return Ok(()),
        };
        // Each value that a header has: whoever reads another one than the first must not be told something else either.
        let values = |header: &str| self.headers.get_all(header).into_iter().map(decoded);
        let differs = |header: &str, said: &str| values(header).any(|value| value.as_deref() != Some(said));
        if differs("mcp-method", method) {
            return Err(format!("the header Mcp-Method is not {method}, as the body says"));
        }
        if let Some(name) = name.filter(|name| differs("mcp-name", name)) {
            return Err(format!("the header Mcp-Name is not {name}, as the body says"));
        }
        if let ClientMessage::Call(call) = message {
            let arguments = serde_json::from_str(call.arguments.get()).unwrap_or_default();
            let mut named = self.headers.iter().filter(|(name, _)| name.as_str().starts_with(PARAM));
            let is_argument =
                |value: &HeaderValue| decoded(value).is_some_and(|value| says(&arguments, &value));
            if let Some((name, _)) = named.find(|(_, value)| !is_argument(value)) {
                return Err(format!("the header {name} has a value that no argument in the body has"));
            }
        }
        if let Some(profile) = profile.filter(|profile| differs("mcp-protocol-version", &profile.version)) {
            let version = &profile.version;
            return Err(format!("the header Mcp-Protocol-Version is not {version}, as the body says"));
        }
        Ok(())
    }
}

/// What a header of the protocol says: as it is, or in base64 where it is no plain text. None where it cannot be read.
fn decoded(value: &HeaderValue) -> Option<String> {
    let text = value.to_str().ok()?;
    match text.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        Some(encoded) => String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok(),
        None => Some(text.to_owned()),
    }
}

/// Whether one of these arguments, or a part of one, is this value.
fn says(arguments: &Value, value: &str) -> bool {
    match arguments {
        Value::String(text) => text == value,
        Value::Number(number) => number.to_string() == value,
        Value::Bool(is_so) => is_so.to_string() == value,
        Value::Null => false,
        Value::Array(parts) => parts.iter().any(|part| says(part, value)),
        Value::Object(members) => members.values().any(|member| says(member, value)),
    }
}

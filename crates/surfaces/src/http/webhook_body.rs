//! What webhooks of every surface have in common: the envelope of their bodies, and the headers of Standard Webhooks.
//!
//! What an event is called and says is its surface's; when and how often it is sent is the engine's.

use serde::Serialize;
use standfast_core::time::Timestamp;
use standfast_engine::secrets::{seconds, signature};
use standfast_engine::{Delivery, DeliveryRequest};

use super::rfc3339;

#[derive(Serialize)]
struct Envelope<'a, T> {
    #[serde(rename = "type")]
    kind: &'a str,
    timestamp: String,
    data: T,
}

#[derive(Serialize)]
struct Ping<'a> {
    subscription: &'a str,
}

/// The body of a webhook: what happened, when, and its data.
pub(crate) fn body(kind: &str, at: Timestamp, data: impl Serialize) -> Option<String> {
    serde_json::to_string(&Envelope { kind, timestamp: rfc3339(at), data }).ok()
}

/// The body of a webhook that only tries whether its receiver is there.
pub(crate) fn ping(delivery: &Delivery<'_>) -> Option<String> {
    body("ping", delivery.now, Ping { subscription: delivery.subscription })
}

/// A body, signed as Standard Webhooks says.
pub(crate) fn signed(delivery: &Delivery<'_>, id: String, body: String) -> DeliveryRequest {
    let headers = [
        ("content-type", "application/json".to_owned()),
        ("webhook-id", id.clone()),
        ("webhook-timestamp", seconds(delivery.now).to_string()),
        ("webhook-signature", signature(delivery.secrets, &id, delivery.now, &body)),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value)).to_vec();
    DeliveryRequest { id, headers, body }
}

//! What the `webhookURL` of a call is sent: how the call ended, signed with the secret of the call; of a call that is given
//! up, `action: stop`.
//!
//! A pure function from what happened to a request; when and how often it is sent is the deliverer's business.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hmac::{Hmac, KeyInit, Mac};
use serde::Serialize;
use sha2::Sha256;
use standfast_core::event::{Envelope, Event};
use standfast_core::hold::HoldKind;
use standfast_core::id::HoldId;
use standfast_core::job::{self, JobEnd};
use standfast_engine::secrets::seconds;
use standfast_engine::{
    Delivery, DeliveryPayload, DeliveryRequest, JOB_RECEIVER, Receiver, ReceiverKind, delivery_id,
};

use super::map;
use super::wire::{CallStatus, ToolResult};

/// The receiver of how a call ended.
#[derive(Debug, Clone, Copy)]
pub struct JobReceiver;

/// The details of a receiver that is notified of every call of its run.
pub(super) const OF_EVERY_CALL: &str = "*";

/// What the job is asked for: its result is no longer needed.
const STOP: &str = "stop";

#[derive(Serialize)]
struct JobNotice {
    #[serde(rename = "pendingID")]
    pending_id: String,
    status: CallStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<ToolResult>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl ReceiverKind for JobReceiver {
    fn name(&self) -> &'static str {
        JOB_RECEIVER
    }

    fn is_last(&self, receiver: &Receiver, event: &Envelope) -> bool {
        if receiver.brought.as_ref().is_some_and(|brought| brought.details == OF_EVERY_CALL) {
            return matches!(event.event, Event::RunEnded(_));
        }
        let Event::HoldResolved(resolved) = &event.event else { return false };
        let key = format!("{}", resolved.hold);
        receiver.brought.as_ref().is_some_and(|brought| brought.details == key)
    }

    fn request(&self, telling: &Delivery<'_>) -> Option<DeliveryRequest> {
        let DeliveryPayload::Event { run, event, hold: Some(view) } = &telling.what else { return None };
        let Event::HoldResolved(resolved) = &event.event else { return None };
        let id = HoldId { run: run.id, key: resolved.hold }.to_string();
        // A receiver belongs to one call, or to all of a run.
        let key = format!("{}", resolved.hold);
        let of = telling.receiver.brought.as_ref().map(|brought| brought.details.as_str());
        let is_job = view.row.kind == HoldKind::External && view.ask.child.is_none();
        if !is_job || !of.is_some_and(|of| of == key || of == OF_EVERY_CALL) {
            return None;
        }
        let end = job::end_of(resolved);
        let tool = view.row.tool.clone()?;
        let (result, error) = match map::came_to(&tool, &end) {
            Ok(result) => (Some(result), None),
            Err(error) => (None, Some(error)),
        };
        let action = is_given_up(&end).then_some(STOP);
        let told = JobNotice { pending_id: id, status: map::status_of_end(&end), action, result, error };
        let body = serde_json::to_string(&told).ok()?;
        let secret = telling.brought?;
        let id = delivery_id(telling.subscription, run.id, event);
        let at = seconds(telling.now).to_string();
        let key = BASE64_STANDARD.decode(secret).unwrap_or_else(|_| secret.as_bytes().to_vec());
        let signed = mac(&key, &[id.as_bytes(), b".", at.as_bytes(), b".", body.as_bytes()]);
        let plain: String =
            mac(secret.as_bytes(), &[body.as_bytes()]).iter().map(|byte| format!("{byte:02x}")).collect();
        let headers = [
            ("content-type", "application/json".to_owned()),
            ("x-webhook-signature", format!("sha256={plain}")),
            ("webhook-id", id.clone()),
            ("webhook-timestamp", at),
            ("webhook-signature", format!("v1,{}", BASE64_STANDARD.encode(signed))),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value)).to_vec();
        Some(DeliveryRequest { id, headers, body })
    }
}

/// Whether it ended without a word from the job, which may still be at work.
fn is_given_up(end: &JobEnd) -> bool {
    match end {
        JobEnd::Result(_) | JobEnd::Failed(_) => false,
        JobEnd::Withdrawn | JobEnd::RunEnded | JobEnd::Expired | JobEnd::Abandoned(_) => true,
    }
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { unreachable!("any length is a key") };
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

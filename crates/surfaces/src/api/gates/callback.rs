//! What whoever waits for a gate in another program is sent once it is decided: the gate, or what the client's template makes of it.
//!
//! Pure but for the look at the log; when and how often it is sent is the deliverer's business. The same log makes the same
//! bodies, so a delivery that is repeated says what it said before.

use std::collections::BTreeMap;

use axum::http::{HeaderName, HeaderValue};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use standfast_core::apply;
use standfast_core::digest;
use standfast_core::event::Envelope;
use standfast_core::id::{RunId, Seq};
use standfast_engine::auth::Scope;
use standfast_engine::{
    Callback, Delivery, DeliveryPayload, DeliveryRequest, EngineError, Frame, FrameSource, GateState,
    GateView, ReceiverKind,
};

use super::{map, template, wire};
use crate::http::Problem;

/// Bytes of a template.
const TEMPLATE_MAX: usize = 16 * 1024;

/// Headers of a callback, and bytes of each.
const HEADERS_MAX: usize = 16;
const HEADER_BYTES: usize = 4096;

/// What a template may name.
const NAMES: [&str; 20] = [
    "body",
    "delivery",
    "gate",
    "state",
    "session",
    "call",
    "tool",
    "arguments",
    "digest",
    "revision",
    "decision",
    "decision.allowed",
    "decision.by",
    "decision.at",
    "decision.reason",
    "decision.edited",
    "outcome",
    "outcome.ok",
    "outcome.value",
    "model_text",
];

/// Receivers of what was decided about a gate.
#[derive(Debug, Clone, Copy)]
pub struct GateCallback;

impl GateCallback {
    const NAME: &'static str = "gate";
}

/// What is remembered of a callback beside its address.
#[derive(Serialize, Deserialize)]
struct Details {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    template: Option<Box<RawValue>>,
}

/// A callback as its client writes it.
pub(super) fn read(asked: wire::GateCallback) -> Result<Callback, Problem> {
    let bad = |why: String| Problem::invalid(format!("callback.{why}"));
    let wire::GateCallback { url, headers, template } = asked;
    if let Some(template) = &template {
        if template.get().len() > TEMPLATE_MAX {
            return Err(bad(format!("template: has more than {TEMPLATE_MAX} bytes")));
        }
        template::check(template, &NAMES).map_err(|why| bad(format!("template: {why}")))?;
    }
    if headers.len() > HEADERS_MAX {
        return Err(bad(format!("headers: more than {HEADERS_MAX}")));
    }
    for (name, value) in &headers {
        let is_sendable = HeaderName::try_from(name).is_ok_and(|name| !is_ours(name.as_str()))
            && HeaderValue::try_from(value).is_ok()
            && value.len() <= HEADER_BYTES;
        if !is_sendable {
            return Err(bad(format!("headers: {name:?} cannot be sent; leave it out")));
        }
    }
    let parts = [url.as_bytes(), template.as_ref().map_or("", |template| template.get()).as_bytes()];
    Ok(Callback {
        kind: GateCallback::NAME,
        name: digest::of_parts("standfast.gate-callback.1", &parts).to_string(),
        url,
        details: serde_json::to_string(&Details { template }).unwrap_or_default(),
        secrets: (!headers.is_empty()).then(|| serde_json::to_string(&headers).unwrap_or_default()),
    })
}

/// Headers that the delivery sets itself, or that belong to the connection.
fn is_ours(name: &str) -> bool {
    const OURS: [&str; 11] = [
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "upgrade",
        "te",
        "trailer",
        "expect",
        "keep-alive",
        "idempotency-key",
        "content-type",
    ];
    OURS.contains(&name) || name.starts_with("proxy-") || name.starts_with("webhook-")
}

impl ReceiverKind for GateCallback {
    fn name(&self) -> &'static str {
        GateCallback::NAME
    }

    fn needs(&self) -> Scope {
        Scope::GatesOpen
    }

    fn request(&self, telling: &Delivery<'_>) -> Option<DeliveryRequest> {
        let DeliveryPayload::Frame { run, frame } = &telling.what else { return None };
        let id = delivery(run.id, frame.number.unwrap_or_default());
        let brought = telling.brought.and_then(|brought| serde_json::from_str(brought).ok());
        let brought: BTreeMap<String, String> = brought.unwrap_or_default();
        let own = [("content-type", "application/json".to_owned()), ("webhook-id", id.clone())];
        let own = own.map(|(name, value)| (name.to_owned(), value));
        Some(DeliveryRequest {
            id,
            headers: own.into_iter().chain(brought).collect(),
            body: frame.body.clone(),
        })
    }

    fn frames<'a>(
        &'a self,
        reading: FrameSource<'a>,
    ) -> Option<BoxFuture<'a, Result<Vec<Frame>, EngineError>>> {
        Some(Box::pin(async move {
            let details = reading.receiver.brought.as_ref().map(|brought| brought.details.as_str());
            let details = details.and_then(|details| serde_json::from_str::<Details>(details).ok());
            let template = details.and_then(|details| details.template);
            let appends = reading.views.appends(reading.run, Seq(0)).await?;
            Ok(frames(reading.run, appends, reading.from, template.as_deref()))
        }))
    }
}

/// The id of a delivery: the same whenever it is repeated.
fn delivery(gate: RunId, number: u64) -> String {
    format!("{gate}-{number}")
}

/// The decisions of a gate, from an event on. Their numbers count from the beginning of its log.
fn frames(gate: RunId, appends: Vec<Vec<Envelope>>, from: Seq, template: Option<&RawValue>) -> Vec<Frame> {
    let (mut frames, mut number, mut told) = (Vec::new(), 0, None);
    let (mut run, mut log) = (None, Vec::new());
    for append in appends {
        for envelope in append {
            match &mut run {
                Some(run) => apply::apply(run, &envelope),
                None => run = apply::begin(gate, &envelope),
            }
            log.push(envelope);
        }
        let Some(view) = run.as_ref().and_then(|run| GateView::of(run, &log)) else { continue };
        if !is_decision(&view) {
            // Asked again, it is decided again.
            if view.state == GateState::Held {
                told = None;
            }
            continue;
        }
        if told.replace(view.state) == Some(view.state) {
            continue;
        }
        number += 1;
        if view.seq >= from {
            let body = body(&view, number, template);
            frames.push(Frame { seq: view.seq, number: Some(number), body });
        }
    }
    frames
}

/// Whether somebody who waits for a decision has it. What becomes of a call afterwards its own client knows best.
fn is_decision(view: &GateView) -> bool {
    match view.state {
        GateState::Allowed | GateState::Denied | GateState::Expired | GateState::Withdrawn => {
            view.attempt.is_none()
        }
        GateState::Done => view.is_question,
        GateState::Held | GateState::Started | GateState::OutcomeUnknown => false,
    }
}

fn body(view: &GateView, number: u64, template: Option<&RawValue>) -> String {
    // Nobody has to decide any more, so it has no address.
    let gate = serde_json::to_string(&map::gate(view, "")).unwrap_or_default();
    let Some(template) = template else { return gate };
    let member = |of: &str, name: &str| -> Option<Box<RawValue>> {
        let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(of).ok()?;
        members.remove(name)
    };
    template::filled(template.get(), |name| match name.split_once('.') {
        _ if name == "body" => RawValue::from_string(gate.clone()).ok(),
        _ if name == "delivery" => serde_json::value::to_raw_value(&delivery(view.gate, number)).ok(),
        Some((outer, inner)) => member(member(&gate, outer)?.get(), inner),
        None => member(&gate, name),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn asked(body: Value) -> Result<Callback, Problem> {
        read(serde_json::from_value(body).unwrap())
    }

    #[test]
    fn what_cannot_be_sent_is_named_when_it_is_asked_for() {
        let url = "https://a.example/x";
        assert!(asked(json!({"url": url, "template": {"input": ["{{body}}"]}})).is_ok());
        for (more, why) in [
            (json!({"template": "{{stat}}"}), "callback.template: there is no {{stat}}"),
            (json!({"headers": {"Host": "b"}}), "callback.headers: \"Host\""),
            (json!({"headers": {"webhook-id": "b"}}), "callback.headers: \"webhook-id\""),
            (json!({"headers": {"x": "a\nb"}}), "callback.headers: \"x\""),
            (json!({"template": "x".repeat(TEMPLATE_MAX)}), "callback.template: has more than"),
        ] {
            let mut body = json!({"url": url});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let refused = asked(body).err().map(|problem| problem.detail).unwrap_or_default();
            assert!(refused.starts_with(why), "{more}: {refused}");
        }
    }

    #[test]
    fn the_same_receiver_has_the_same_name_and_another_template_another() {
        let name = |body: Value| asked(body).unwrap().name;
        let plain = name(json!({"url": "https://a.example"}));
        assert_eq!(
            plain,
            name(json!({"url": "https://a.example", "headers": {"authorization": "Bearer x"}}))
        );
        assert_ne!(plain, name(json!({"url": "https://a.example", "template": "{{state}}"})));
    }
}

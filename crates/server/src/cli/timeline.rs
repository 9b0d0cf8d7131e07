//! The events of a run in readable lines.
//!
//! Reads of each event what people look for; an event that it does not know is shown as it is stored.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use standfast_core::event::Envelope;
use standfast_core::id::{HoldId, RunId};
use standfast_core::project::hold_of;
use standfast_surfaces::http::rfc3339;

use super::colour::{Colour, Paint};
use super::plain::{Text, block};

/// The events of a run.
#[derive(Deserialize)]
pub(super) struct Timeline {
    pub(super) events: Vec<EventBody>,
}

/// An event.
#[derive(Deserialize)]
pub(super) struct EventBody {
    pub(super) seq: u64,
    at: Text,
    actor: Text,
    #[serde(rename = "type")]
    pub(super) kind: Text,
    hold: Option<Text>,
    data: Box<RawValue>,
}

impl EventBody {
    /// An event of a run that is at hand, as a server would send it.
    pub(super) fn of(run: RunId, envelope: &Envelope) -> EventBody {
        let stored = serde_json::to_string(&envelope.event).unwrap_or_default();
        let members = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(&stored).unwrap_or_default();
        EventBody {
            seq: envelope.seq.0,
            at: Text::from(rfc3339(envelope.at)),
            actor: Text::from(envelope.actor.to_string()),
            kind: Text::from(envelope.event.kind().to_owned()),
            hold: hold_of(&envelope.event).map(|key| Text::from(HoldId { run, key }.to_string())),
            data: members.into_values().next().unwrap_or_else(|| RawValue::NULL.to_owned()),
        }
    }

    /// When, what and who on a line; what it says below, indented.
    pub(super) fn lines(&self) -> String {
        self.painted(Paint::No)
    }

    /// The same with colours, for a terminal.
    pub(super) fn painted(&self, paint: Paint) -> String {
        let EventBody { seq, at, actor, .. } = self;
        let kind = format!("{:<16}", self.kind);
        let kind = match self.kind.raw() {
            "hold.opened" | "call.orphaned" => paint.with(Colour::Yellow, &kind),
            "model.failed" | "call.contradicted" => paint.with(Colour::Red, &kind),
            "run.ended" => match serde_json::from_str::<EndedRun>(self.data.get()) {
                Ok(ended) if ended.outcome.raw() == "completed" => paint.with(Colour::Green, &kind),
                Ok(_) | Err(_) => paint.with(Colour::Red, &kind),
            },
            _ => kind,
        };
        let at = paint.with(Colour::Dim, &at.to_string());
        let what = self.what().unwrap_or_else(|_| self.data.get().to_owned());
        let what = if what.is_empty() || what == "{}" { String::new() } else { block(&what) };
        format!("{seq:>4}  {at}  {kind}  {actor}\n{what}")
    }

    /// What it says in words; events that have no words here are shown as they are stored.
    fn what(&self) -> serde_json::Result<String> {
        let data = self.data.get();
        Ok(match self.kind.raw() {
            "run.started" => String::new(),
            "message.received" | "message.queued" => {
                let ReceivedMessage { message } = serde_json::from_str(data)?;
                message.parts.iter().map(Part::words).collect::<Vec<_>>().join("\n")
            }
            "model.replied" => {
                let ModelReply { reply } = serde_json::from_str(data)?;
                let calls = reply
                    .calls
                    .iter()
                    .map(|call| format!("{}: {} {}", call.no, call.tool, call.arguments.words()));
                let words = reply.text.iter().map(Body::words).chain(reply.parts.iter().map(Part::words));
                words.chain(calls).collect::<Vec<_>>().join("\n")
            }
            "call.finished" | "call.contradicted" => {
                let FinishedCall { call, result } = serde_json::from_str(data)?;
                match result {
                    Outcome { ok: Some(body), .. } => format!("{call}: {}", body.words()),
                    Outcome { failed: Some(body), .. } => format!("{call}: failed: {}", body.words()),
                    Outcome { ok: None, failed: None } => data.to_owned(),
                }
            }
            "call.started" => {
                let StartedCall { call, attempt } = serde_json::from_str(data)?;
                format!("{call}: attempt {attempt}")
            }
            "hold.opened" => {
                let OpenedHold { kind } = serde_json::from_str(data)?;
                format!("{kind}: {}", self.hold.as_ref().map_or(String::new(), Text::to_string))
            }
            "hold.resolved" => {
                let ResolvedHold { resolution } = serde_json::from_str(data)?;
                let hold = self.hold.as_ref().map_or(String::new(), Text::to_string);
                format!("{}\n{hold}", decision(&resolution)?)
            }
            "model.failed" => {
                let ModelFailure { error, failures } = serde_json::from_str(data)?;
                format!("failure {failures}: {}", error.words())
            }
            "run.ended" => {
                let EndedRun { outcome, reason } = serde_json::from_str(data)?;
                reason.map_or(outcome.to_string(), |reason| format!("{outcome}: {reason}"))
            }
            _ => data.to_owned(),
        })
    }
}

/// A decision is stored as its word, or as its word with what belongs to it.
fn decision(resolution: &RawValue) -> serde_json::Result<String> {
    if let Ok(word) = serde_json::from_str::<String>(resolution.get()) {
        return Ok(word);
    }
    let words: BTreeMap<String, Details> = serde_json::from_str(resolution.get())?;
    let said = words.into_iter().map(|(word, details)| {
        let Details { edited, reason, value, error } = details;
        let bodies = edited.map(|edited| edited.arguments).into_iter().chain(value).chain(error);
        let more = bodies.map(|body| body.words()).chain(reason);
        more.fold(word, |word, more| format!("{word}: {more}"))
    });
    Ok(said.collect::<Vec<_>>().join("\n"))
}

#[derive(Deserialize)]
struct OpenedHold {
    kind: Text,
}

#[derive(Deserialize)]
struct ResolvedHold {
    resolution: Box<RawValue>,
}

#[derive(Deserialize)]
struct Details {
    edited: Option<EditedHold>,
    reason: Option<String>,
    value: Option<Body>,
    error: Option<Body>,
}

#[derive(Deserialize)]
struct EditedHold {
    arguments: Body,
}

#[derive(Deserialize)]
struct ModelFailure {
    failures: u64,
    error: Body,
}

#[derive(Deserialize)]
struct ReceivedMessage {
    message: Message,
}

#[derive(Deserialize)]
struct Message {
    parts: Vec<Part>,
}

#[derive(Deserialize)]
struct Part {
    text: Option<Body>,
}

impl Part {
    fn words(&self) -> String {
        self.text.as_ref().map_or_else(|| "(not a text)".into(), Body::words)
    }
}

#[derive(Deserialize)]
struct ModelReply {
    reply: Reply,
}

#[derive(Deserialize)]
struct Reply {
    text: Option<Body>,
    #[serde(default)]
    parts: Vec<Part>,
    #[serde(default)]
    calls: Vec<Call>,
}

#[derive(Deserialize)]
struct Call {
    no: u64,
    tool: Text,
    arguments: Body,
}

#[derive(Deserialize)]
struct StartedCall {
    call: u64,
    attempt: u64,
}

#[derive(Deserialize)]
struct FinishedCall {
    call: u64,
    result: Outcome,
}

#[derive(Deserialize)]
struct Outcome {
    ok: Option<Body>,
    failed: Option<Body>,
}

#[derive(Deserialize)]
struct EndedRun {
    outcome: Text,
    reason: Option<Text>,
}

/// Contents as they are stored: a text, JSON, or too large to be here.
#[derive(Deserialize)]
struct Body {
    text: Option<String>,
    json: Option<Box<RawValue>>,
}

impl Body {
    fn words(&self) -> String {
        match (&self.text, &self.json) {
            (Some(text), _) => text.clone(),
            (None, Some(json)) => json.get().to_owned(),
            (None, None) => "(stored elsewhere)".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(kind: &str, data: &str) -> String {
        let text = format!(
            r#"{{"seq": 7, "at": "2026-01-01T00:00:00Z", "actor": "person:a", "type": "{kind}", "hold": "hold_1", "data": {data}}}"#
        );
        let event: EventBody = serde_json::from_str(&text).unwrap();
        event.lines().split_once('\n').unwrap().1.to_owned()
    }

    #[test]
    fn decisions_are_said_in_words() {
        for (resolution, expected) in [
            (r#""withdraw""#, "withdraw"),
            (r#"{"approve": {}}"#, "approve"),
            (r#"{"approve": {"edited": {"arguments": {"json": {"n":  1.0}}}}}"#, r#"approve: {"n":  1.0}"#),
            (r#"{"deny": {"reason": "no\u001b"}}"#, r"deny: no\u{1b}"),
            (r#"{"answer": {"value": {"text": "two"}}}"#, "answer: two"),
            (r#"{"fail": {"error": {"blob": {}}}}"#, "fail: (stored elsewhere)"),
        ] {
            let data = format!(r#"{{"resolution": {resolution}}}"#);
            assert_eq!(lines("hold.resolved", &data), format!("    | {expected}\n    | hold_1\n"));
        }
    }

    #[test]
    fn what_is_not_known_is_shown_as_it_is_stored() {
        let data = "{\"a\":  \"\u{202e}\"}";
        assert_eq!(lines("run.dreamed", data), "    | {\"a\":  \"\\u{202e}\"}\n");
        assert_eq!(lines("call.finished", "[1]"), "    | [1]\n");
        assert_eq!(lines("run.claimed", "{}"), "");
    }
}

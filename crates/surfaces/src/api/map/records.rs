//! Receipts and conversations in the words of the native API: pure functions.
//!
//! Instants become dates, ids their whole text; everything else goes out as the core spells it, byte for byte.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::receipt::{CallReceipt, Receipt, ShownRevision};
use standfast_core::time::Timestamp;
use standfast_engine::{PENDING, SessionDeletion, SessionRow, SessionView, metadata};

use super::super::wire;
use super::kind;
use crate::http::rfc3339;

pub(in crate::api) fn receipt(id: HoldId, receipt: &Receipt) -> wire::ReceiptBody {
    let decision = receipt.decision.as_ref();
    wire::ReceiptBody {
        id: id.to_string(),
        run: id.run.to_string(),
        receipt: wire::ReceiptDetail {
            hold: id.to_string(),
            kind: kind(receipt.kind.unwrap_or(HoldKind::Approval)),
            asked: receipt.asked.as_ref().map(|asked| timed(asked.seq, asked.at, asked)),
            shown: receipt.shown.iter().map(shown).collect(),
            votes: receipt.votes.iter().map(|vote| timed(vote.seq, vote.at, vote)).collect(),
            decision: decision.map(|decision| timed(decision.seq, decision.at, decision)),
            call: receipt.call.as_ref().map(call),
            events: receipt.events.iter().map(|seq| seq.0).collect(),
        },
    }
}

pub(in crate::api) fn call_receipt(run: RunId, no: u32, receipt: &Receipt) -> wire::CallReceiptBody {
    let decision = receipt.decision.as_ref();
    wire::CallReceiptBody {
        run: run.to_string(),
        call: no,
        hold: receipt.hold.map(|key| HoldId { run, key }.to_string()),
        asked: receipt.asked.as_ref().map(|asked| timed(asked.seq, asked.at, asked)),
        shown: receipt.shown.iter().map(shown).collect(),
        votes: receipt.votes.iter().map(|vote| timed(vote.seq, vote.at, vote)).collect(),
        decision: decision.map(|decision| timed(decision.seq, decision.at, decision)),
        outcome: receipt.call.as_ref().map(call),
        events: receipt.events.iter().map(|seq| seq.0).collect(),
    }
}

fn shown(shown: &ShownRevision) -> wire::ShownBody {
    let text = shown.arguments.as_ref().and_then(standfast_core::body::Body::inline);
    wire::ShownBody { arguments_text: text.map(str::to_owned), rest: timed(shown.seq, shown.at, shown) }
}

fn call(call: &CallReceipt) -> wire::CallBody {
    let contradictions = call.contradictions.iter();
    wire::CallBody {
        no: call.no.0,
        effect: call.effect,
        attempts: call.attempts.iter().map(|attempt| timed(attempt.seq, attempt.at, attempt)).collect(),
        report: call.report.clone(),
        contradictions: contradictions.map(|said| timed(said.seq, said.at, said)).collect(),
    }
}

/// A part of a record, its instant as a date.
fn timed(seq: Seq, at: Timestamp, part: &impl Serialize) -> wire::TimedBody {
    let text = serde_json::to_string(part).unwrap_or_default();
    let mut rest: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&text).unwrap_or_default();
    rest.retain(|name, _| name != "seq" && name != "at");
    wire::TimedBody { seq: seq.0, at: rfc3339(at), rest }
}

pub(in crate::api) fn session(row: &SessionRow) -> wire::SessionBody {
    let (agent, session) = (&row.key.agent, &row.key.session);
    wire::SessionBody {
        id: session.to_string(),
        agent: agent.to_string(),
        owner: row.key.owner.to_string(),
        created_at: rfc3339(row.created_at),
        updated_at: rfc3339(row.updated_at),
        closed: row.closed,
        metadata: metadata(row).unwrap_or_default(),
        runs_url: format!(
            "/api/v1/runs?agent={}&session={}",
            escaped(agent.as_str()),
            escaped(session.as_str())
        ),
    }
}

pub(in crate::api) fn session_view(view: &SessionView) -> wire::SessionBody {
    let mut body = session(&view.row);
    let pending: BTreeMap<String, _> =
        view.pending.iter().map(|state| (state.task_id.to_string(), state)).collect();
    if !pending.is_empty() {
        let text = serde_json::to_string(&pending).unwrap_or_default();
        body.metadata.extend(RawValue::from_string(text).ok().map(|raw| (PENDING.to_owned(), raw)));
    }
    body
}

pub(in crate::api) fn deleted(deleted: &SessionDeletion) -> wire::DeletedSession {
    let texts = |runs: &[standfast_core::id::RunId]| runs.iter().map(ToString::to_string).collect();
    wire::DeletedSession { erased: texts(&deleted.erased), left: texts(&deleted.left) }
}

/// A value of a query: everything but plain letters, digits and a few signs as percent codes.
fn escaped(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let code = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(code).collect()
}

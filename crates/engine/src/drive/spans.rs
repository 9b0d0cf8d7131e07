//! The spans of a drive: itself, the models that it asks, the tools that it runs.
//!
//! A drive is a span below the start of its run, whichever node that was on, and says at its end what it was: what it went on
//! from (links to the span of each hold and to the request that decided it), what it opened, what the run came to. Where traces
//! are off there is none of it.

use std::sync::Arc;

use standfast_core::actor::Actor;
use standfast_core::event::{Envelope, Event, HoldResolved, Outcome as RunOutcome};
use standfast_core::id::{CallNo, HoldId, HoldKey, Seq};
use standfast_core::message::ToolResult;
use standfast_core::name::ToolName;
use standfast_core::run::{Run, Status, status};
use standfast_core::transcript::stored_call;

use super::Drive;
use super::known_log::known_events;
use crate::model::{Model, ModelFailure, ModelReply};
use crate::tool::Outcome;
use crate::traces::{
    Attribute, AttributeValue, RunTrace, Span, SpanEvent, SpanKind, SpanLink, Traces, decision_attributes,
    micros,
};

/// What a drive keeps of its span until its end.
pub(super) struct DriveSpan {
    traces: Arc<Traces>,
    /// Its id, and when it began.
    begun: ([u8; 8], u64),
    /// What the run was when it began.
    since: Seq,
}

impl DriveSpan {
    pub(super) fn begin(traces: Option<&Arc<Traces>>, since: Seq) -> Option<DriveSpan> {
        let traces = traces?.clone();
        Some(DriveSpan { begun: traces.begin_later(), traces, since })
    }
}

/// A span of something that a drive does, and where it goes.
pub(super) struct WorkSpan {
    traces: Arc<Traces>,
    pub(super) span: Span,
}

fn run_trace(drive: &Drive) -> Option<(&DriveSpan, RunTrace)> {
    let traced = drive.traced.as_ref()?;
    let trace = traced.traces.of_run(drive.run, known_events(drive).next());
    Some((traced, trace))
}

/// The drive's own span, for what it begins elsewhere.
pub(super) fn span_of(drive: &Drive) -> Option<standfast_core::trace::TraceContext> {
    let (traced, trace) = run_trace(drive)?;
    Some(trace.span(traced.begun.0))
}

fn begin_work(drive: &Drive, kind: SpanKind, name: String) -> Option<WorkSpan> {
    let traces = drive.traced.as_ref()?.traces.clone();
    let span = traces.begin(kind, name, span_of(drive));
    Some(WorkSpan { traces, span })
}

/// A model is about to be asked.
pub(super) fn begin_model_span(
    drive: &Drive,
    run: &Run,
    pinned: &str,
    model: &dyn Model,
) -> Option<WorkSpan> {
    drive.traced.as_ref()?;
    let kind = if model.is_in_process() { SpanKind::Internal } else { SpanKind::Client };
    let mut work = begin_work(drive, kind, format!("chat {pinned}"))?;
    let span = &mut work.span;
    span.set("gen_ai.operation.name", "chat");
    span.set("gen_ai.provider.name", model.provider(pinned));
    span.set("gen_ai.request.model", pinned.to_owned());
    span.set("gen_ai.agent.name", run.facts.agent.to_string());
    span.set("gen_ai.conversation.id", run.facts.session.to_string());
    span.set("standfast.run.id", run.facts.id.to_string());
    span.set("standfast.turn", run.state.turn);
    Some(work)
}

/// A tool is about to run.
pub(super) fn begin_tool_span(
    drive: &Drive,
    run: &Run,
    tool: &ToolName,
    (call, attempt): (CallNo, u32),
    asked_as: &str,
) -> Option<WorkSpan> {
    drive.traced.as_ref()?;
    let mut work = begin_work(drive, SpanKind::Internal, format!("execute_tool {tool}"))?;
    let span = &mut work.span;
    span.set("gen_ai.operation.name", "execute_tool");
    span.set("gen_ai.tool.name", tool.to_string());
    span.set("gen_ai.tool.call.id", asked_as.to_owned());
    span.set("gen_ai.agent.name", run.facts.agent.to_string());
    span.set("standfast.run.id", run.facts.id.to_string());
    span.set("standfast.call", call.0);
    span.set("standfast.attempt", attempt);
    Some(work)
}

/// The drive ends.
pub(super) fn end_span(drive: &Drive) {
    // What it was begun for was not written: there was nothing to drive.
    let Some((traced, trace)) = run_trace(drive).filter(|_| !drive.is_void) else { return };
    let Some(run) = drive.pipeline.durable().map(|row| &row.run) else { return };
    let mut span = traced.traces.begun(trace, traced.begun, format!("invoke_agent {}", run.facts.agent));
    span.set("gen_ai.operation.name", "invoke_agent");
    span.set("gen_ai.agent.name", run.facts.agent.to_string());
    span.set("gen_ai.conversation.id", run.facts.session.to_string());
    span.set("standfast.run.id", drive.run.to_string());
    span.set("standfast.run.state", state_word(run));
    span.set("standfast.node.id", drive.drives.host.node.to_string());
    if matches!(run.outcome(), Some(RunOutcome::Failed)) {
        span.fail("run_failed");
    }
    if span.context.is_sampled {
        tell_events(drive, &mut span, traced.since, trace);
    }
    traced.traces.end(span);
}

/// What the drive went on from, and what happened in it.
fn tell_events(drive: &Drive, span: &mut Span, since: Seq, trace: RunTrace) {
    let (before, during): (Vec<&Envelope>, Vec<&Envelope>) =
        known_events(drive).partition(|envelope| envelope.seq <= since);
    // What came after the last word of whoever drove it before: what people and outside systems said meanwhile.
    let meanwhile = before.into_iter().rev();
    let meanwhile = meanwhile.take_while(|envelope| !matches!(envelope.actor, Actor::Node(_)));
    let mut meanwhile: Vec<&Envelope> = meanwhile.collect();
    meanwhile.reverse();
    for envelope in meanwhile.into_iter().chain(during) {
        match &envelope.event {
            Event::HoldOpened(opened) if envelope.seq > since => {
                let mut attributes = hold_attributes(drive, opened.hold);
                attributes.push(("standfast.hold.kind", opened.kind.as_str().into()));
                span.events.push(event("hold.opened", envelope, attributes));
            }
            Event::HoldResolved(resolved) => tell_decision(drive, span, trace, (envelope, resolved)),
            _ => {}
        }
    }
}

/// The decision is on the span that it let go on, which is linked to the hold and to the request that decided it.
fn tell_decision(
    drive: &Drive,
    span: &mut Span,
    trace: RunTrace,
    (envelope, resolved): (&Envelope, &HoldResolved),
) {
    let decision = decision_attributes(envelope, resolved);
    let hold = HoldId { run: drive.run, key: resolved.hold };
    let told = [hold_attributes(drive, resolved.hold), decision.clone()].concat();
    span.events.push(event("hold.decided", envelope, told.clone()));
    span.links.push(SpanLink { to: trace.of_hold(hold), attributes: told.clone() });
    if let Some(origin) = &resolved.origin {
        let request = ("standfast.link", AttributeValue::from("decision"));
        let attributes = [vec![request], told].concat();
        span.links.push(SpanLink { to: origin.traceparent, attributes });
    }
    // The last one is what it goes on from.
    span.attributes.retain(|(name, _)| !name.starts_with("standfast.decision."));
    span.attributes.extend(decision);
}

fn hold_attributes(drive: &Drive, key: HoldKey) -> Vec<Attribute> {
    let hold = HoldId { run: drive.run, key };
    let mut attributes = vec![("standfast.hold.id", hold.to_string().into())];
    let tool = stored_call(&drive.log, key.call).map(|stored| stored.tool.to_string().into());
    attributes.extend(tool.map(|tool| ("gen_ai.tool.name", tool)));
    attributes
}

/// Spans of holds that were decided by what this drive wrote.
pub(super) fn trace_decided(drive: &Drive, holds: &[standfast_core::project::HoldRow], events: &[Envelope]) {
    if let Some((traced, trace)) = run_trace(drive).filter(|_| !holds.is_empty()) {
        traced.traces.tell_decided(trace, holds, events);
    }
}

impl WorkSpan {
    /// A model has replied, or failed.
    pub(super) fn end_model(mut self, replied: &Result<ModelReply, ModelFailure>) {
        let span = &mut self.span;
        match replied {
            Ok(reply) => {
                if let Some(model) = &reply.model {
                    span.set("gen_ai.response.model", model.clone());
                }
                let plain = |word: &String| {
                    word.len() <= 64 && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                };
                let finish = reply.finish.clone().filter(plain).map_or_else(
                    || if reply.calls.is_empty() { "stop".into() } else { "tool_calls".into() },
                    std::borrow::Cow::Owned,
                );
                span.set("gen_ai.response.finish_reasons", AttributeValue::Texts(vec![finish]));
                span.set("gen_ai.usage.input_tokens", reply.usage.input);
                span.set("gen_ai.usage.output_tokens", reply.usage.output);
                if reply.gives_up.is_some() {
                    span.fail("gave_up");
                }
            }
            // What a provider says may be anything; the log of the run has it.
            Err(failure) => {
                span.fail("model_error");
                span.set("standfast.retryable", failure.retry_after.is_some());
            }
        }
        self.traces.end(self.span);
    }

    /// A tool has ended.
    pub(super) fn end_tool(mut self, came: &Outcome) {
        let span = &mut self.span;
        match came {
            Outcome::Done(ToolResult::Ok(_)) => {}
            Outcome::Done(ToolResult::Failed(_)) => span.fail("tool_error"),
            Outcome::Unknown(_) => span.fail("outcome_unknown"),
            Outcome::Pending(_) => span.set("standfast.pending", true),
        }
        self.traces.end(self.span);
    }
}

fn event(name: &'static str, envelope: &Envelope, attributes: Vec<Attribute>) -> SpanEvent {
    SpanEvent { name, at: micros(envelope.at), attributes }
}

fn state_word(run: &Run) -> &'static str {
    match status(run) {
        Status::Ended(RunOutcome::Completed) => "completed",
        Status::Ended(RunOutcome::Failed) => "failed",
        Status::Ended(RunOutcome::Canceled) => "canceled",
        Status::Ended(RunOutcome::Rejected) => "rejected",
        Status::Held(_) => "held",
        _ => "working",
    }
}

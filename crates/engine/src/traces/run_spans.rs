//! The spans of a run: where they belong, and what its holds were.
//!
//! The start of a run keeps the span of its request. Where it has none, because traces were off then or nobody asked, trace and
//! sampling follow from the run's id, on every node alike. The span of a hold has an id that follows from the hold's, so that
//! whoever goes on can link to it without having opened it.

use std::borrow::Cow;

use standfast_core::digest::{self, Digest};
use standfast_core::event::{Envelope, Event, HoldResolved};
use standfast_core::id::{HoldId, RunId};
use standfast_core::project::{HoldRow, ResolutionKind};
use standfast_core::time::Timestamp;
use standfast_core::trace::{Origin, TraceContext};

use super::span::{Attribute, AttributeValue, Span, SpanKind, SpanLink};
use super::{Traces, new_span};

/// Where the spans of a run belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunTrace {
    run: RunId,
    trace: [u8; 16],
    /// The request that started it.
    parent: Option<[u8; 8]>,
    is_sampled: bool,
}

impl RunTrace {
    /// A span of this trace.
    pub(crate) fn span(self, span: [u8; 8]) -> TraceContext {
        TraceContext { trace: self.trace, span, is_sampled: self.is_sampled }
    }

    /// The request that started it; a span that nobody sent where there was none.
    pub(crate) fn start(self) -> TraceContext {
        let Digest(bytes) = digest::of_parts("standfast.trace.start.1", &[self.run.to_string().as_bytes()]);
        self.span(self.parent.unwrap_or_else(|| beginning(bytes)))
    }

    /// The span of one of its holds.
    pub(crate) fn of_hold(self, hold: HoldId) -> TraceContext {
        let Digest(bytes) = digest::of_parts("standfast.trace.hold.1", &[hold.to_string().as_bytes()]);
        self.span(beginning(bytes))
    }
}

impl Traces {
    /// The trace of a run, by its first event.
    pub(crate) fn of_run(&self, run: RunId, first: Option<&Envelope>) -> RunTrace {
        if let Some(Origin { traceparent, .. }) = first.and_then(origin_of_start) {
            let TraceContext { trace, span, is_sampled } = *traceparent;
            return RunTrace { run, trace, parent: Some(span), is_sampled };
        }
        let Digest(bytes) = digest::of_parts("standfast.trace.run.1", &[run.to_string().as_bytes()]);
        let trace = beginning(bytes);
        RunTrace { run, trace, parent: None, is_sampled: self.share.takes(trace) }
    }

    /// The id of a span whose trace is not known yet, and when it begins.
    pub(crate) fn begin_later(&self) -> ([u8; 8], u64) {
        (new_span(), self.clock.micros())
    }

    /// A span of a run that began before: below its start.
    pub(crate) fn begun(
        &self,
        trace: RunTrace,
        (span, begun): ([u8; 8], u64),
        name: impl Into<Cow<'static, str>>,
    ) -> Span {
        Span::new(trace.span(span), trace.parent, SpanKind::Internal, name.into(), begun)
    }

    /// A span of its own for each hold that was decided: as long as it was open.
    pub(crate) fn tell_decided(&self, trace: RunTrace, holds: &[HoldRow], events: &[Envelope]) {
        if !trace.is_sampled {
            return;
        }
        for row in holds {
            let Some(closed) = &row.closed else { continue };
            let name = format!("hold {}", row.kind.as_str());
            let id = trace.of_hold(row.id);
            let begun = micros(row.opened_at);
            let mut span = Span::new(id, trace.parent, SpanKind::Internal, name.into(), begun);
            span.ended = micros(closed.at).max(begun);
            span.set("standfast.run.id", row.id.run.to_string());
            span.set("standfast.hold.id", row.id.to_string());
            span.set("standfast.hold.kind", row.kind.as_str());
            span.set("gen_ai.agent.name", row.agent.to_string());
            if let Some(tool) = &row.tool {
                span.set("gen_ai.tool.name", tool.to_string());
            }
            let resolved = events.iter().find_map(|envelope| match &envelope.event {
                Event::HoldResolved(resolved) if resolved.hold == row.id.key => Some((envelope, resolved)),
                _ => None,
            });
            if let Some((envelope, resolved)) = resolved {
                span.attributes.extend(decision_attributes(envelope, resolved));
                span.links.extend(resolved.origin.as_ref().map(|origin| SpanLink::to(origin.traceparent)));
            }
            self.record(span);
        }
    }
}

/// How a hold was decided: who, how, by which way.
pub(crate) fn decision_attributes(envelope: &Envelope, resolved: &HoldResolved) -> Vec<Attribute> {
    let how = ResolutionKind::from(&resolved.resolution).as_str();
    let channel = resolved.origin.as_ref().map(|origin| AttributeValue::Text(origin.channel.clone()));
    let mut attributes = vec![
        ("standfast.decision.outcome", how.into()),
        ("standfast.decision.by", envelope.actor.to_string().into()),
    ];
    attributes.extend(channel.map(|channel| ("standfast.decision.channel", channel)));
    if resolved.late {
        attributes.push(("standfast.decision.late", true.into()));
    }
    attributes
}

/// Microseconds since 1970.
pub(crate) fn micros(at: Timestamp) -> u64 {
    u64::try_from(at.0).unwrap_or(0).saturating_mul(1_000)
}

fn origin_of_start(first: &Envelope) -> Option<&Origin> {
    match &first.event {
        Event::RunStarted(started) => started.origin.as_deref(),
        _ => None,
    }
}

/// The first bytes of a digest; never all zeros.
fn beginning<const N: usize>(bytes: [u8; 32]) -> [u8; N] {
    let mut found = [0; N];
    found.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
    if found == [0; N] {
        found[N - 1] = 1;
    }
    found
}

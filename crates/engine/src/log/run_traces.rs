//! The traces of runs that nobody drives just now: which one a run belongs to, and spans of holds that were decided.
//!
//! Reads the first event of the run, and only where traces are on. What a drive knows by itself is `drive/spans.rs`.

use std::sync::Arc;

use standfast_core::event::Envelope;
use standfast_core::id::{RunId, Seq};
use standfast_core::project::HoldRow;

use super::Log;
use crate::traces::{RunTrace, Traces};

/// The trace of a run; none where traces are off, or its start cannot be read.
pub(crate) async fn trace_of(log: &Log, run: RunId) -> Option<(Arc<Traces>, RunTrace)> {
    let traces = log.host.fixed.traces.clone()?;
    let links = log.store.links(run, Seq(0), 1).await.ok()?;
    let events = links.first()?.events().ok()?;
    let trace = traces.of_run(run, events.first());
    Some((traces, trace))
}

/// Spans of holds that these events decided.
pub(crate) async fn trace_decided(log: &Log, holds: &[HoldRow], events: &[Envelope]) {
    let Some(first) = holds.first() else { return };
    if let Some((traces, trace)) = trace_of(log, first.id.run).await {
        traces.tell_decided(trace, holds, events);
    }
}

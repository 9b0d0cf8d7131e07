//! Traces: what the server does, as spans for a collector. Off unless the configuration says otherwise.
//!
//! A run is one trace over its pauses: its start keeps the span of the request that asked for it, on any node, and each drive
//! that goes on links to what it waited for (`traces/run_spans.rs`). Spans have names, ids and kinds, never what people, models
//! or tools wrote. Whoever sends them takes them from a bounded queue, and what does not fit is dropped and counted: nothing
//! waits for a collector. How they are sent is not known here.

mod run_spans;
mod span;

use std::borrow::Cow;
use std::sync::Arc;

use standfast_core::trace::TraceContext;
use tokio::sync::mpsc;

use crate::clock::{Clock, random_bytes};
use crate::request_context::{self, RequestContext};
use crate::telemetry::{SpanFate, Telemetry};

pub(crate) use run_spans::{RunTrace, decision_attributes, micros};
pub use span::{Attribute, AttributeValue, Span, SpanEvent, SpanKind, SpanLink};

/// How many spans may wait to be sent.
const QUEUE: usize = 4_096;

/// Makes spans, and hands those that are recorded to whoever sends them.
pub struct Traces {
    clock: Clock,
    queue: mpsc::Sender<Span>,
    share: SampleShare,
    telemetry: Arc<Telemetry>,
}

/// How many of the traces that begin here are recorded. Which ones follows from their ids, so that every node says the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleShare(f64);

impl SampleShare {
    /// A share between 0 and 1.
    #[must_use]
    pub fn new(share: f64) -> SampleShare {
        SampleShare(if share.is_finite() { share.clamp(0.0, 1.0) } else { 1.0 })
    }

    /// Whether a trace is recorded.
    fn takes(self, trace: [u8; 16]) -> bool {
        let [.., a, b, c, d, e, f, g] = trace;
        let number = u64::from_be_bytes([0, a, b, c, d, e, f, g]);
        // 56 random bits: as many as the standard promises. The largest of them would be rounded up.
        self.0 >= 1.0 || (number as f64) < self.0 * (1_u64 << 56) as f64
    }
}

impl std::fmt::Debug for Traces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Traces").field("share", &self.share).finish_non_exhaustive()
    }
}

impl Traces {
    /// Traces, and the queue that somebody must empty.
    #[must_use]
    pub fn new(
        clock: Clock,
        share: SampleShare,
        telemetry: Arc<Telemetry>,
    ) -> (Traces, mpsc::Receiver<Span>) {
        let (queue, spans) = mpsc::channel(QUEUE);
        (Traces { clock, queue, share, telemetry }, spans)
    }

    /// Begins a span below another one, here or elsewhere; without one it begins a trace.
    #[must_use]
    pub fn begin(
        &self,
        kind: SpanKind,
        name: impl Into<Cow<'static, str>>,
        parent: Option<TraceContext>,
    ) -> Span {
        let context = match parent {
            Some(parent) => TraceContext { span: new_span(), ..parent },
            None => {
                let trace = random_bytes();
                TraceContext { trace, span: new_span(), is_sampled: self.share.takes(trace) }
            }
        };
        let begun = self.clock.micros();
        Span::new(context, parent.map(|parent| parent.span), kind, name.into(), begun)
    }

    /// A span ends now.
    pub fn end(&self, span: Span) {
        let ended = self.clock.micros();
        self.record(Span { ended: ended.max(span.begun), ..span });
    }

    /// Hands a span over, if its trace is recorded and there is room.
    fn record(&self, span: Span) {
        if span.context.is_sampled && self.queue.try_send(span).is_err() {
            self.telemetry.spans(SpanFate::Dropped, 1);
        }
    }

    /// Answers within a span of its own that continues a trace which a message names, where its transport does not name the
    /// same: the two are linked.
    pub async fn continued<T>(
        traces: Option<&Arc<Traces>>,
        name: &'static str,
        parent: Option<TraceContext>,
        answering: impl Future<Output = T>,
    ) -> T {
        let around = request_context::current();
        let is_same = around.span.zip(parent).is_some_and(|(span, parent)| span.trace == parent.trace);
        let (Some(traces), Some(parent), false) = (traces, parent, is_same) else {
            return answering.await;
        };
        let mut span = traces.begin(SpanKind::Server, name, Some(parent));
        span.set("standfast.channel", around.channel.as_str());
        span.links.extend(around.span.map(SpanLink::to));
        let context = RequestContext { span: Some(span.context), ..around };
        let answer = request_context::within(context, answering).await;
        traces.end(span);
        answer
    }
}

fn new_span() -> [u8; 8] {
    loop {
        let span: [u8; 8] = random_bytes();
        if span != [0; 8] {
            return span;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_queue_drops_and_never_waits() {
        let telemetry = Arc::<Telemetry>::default();
        let (traces, mut spans) = Traces::new(Clock::system(), SampleShare::new(1.0), telemetry.clone());
        for _ in 0..QUEUE + 3 {
            traces.end(traces.begin(SpanKind::Internal, "work", None));
        }
        let told = telemetry.render(None, 0, standfast_core::time::Timestamp(0));
        assert!(told.contains("standfast_trace_spans_total{result=\"dropped\"} 3\n"), "{told}");
        assert!(spans.recv().await.is_some());
    }

    #[test]
    fn a_trace_that_is_not_sampled_costs_no_place() {
        let (traces, mut spans) = Traces::new(Clock::system(), SampleShare::new(0.0), Arc::default());
        let root = traces.begin(SpanKind::Server, "request", None);
        let below = traces.begin(SpanKind::Internal, "work", Some(root.context));
        assert!(!below.context.is_sampled && below.context.trace == root.context.trace);
        traces.end(below);
        traces.end(root);
        assert!(spans.try_recv().is_err());
    }

    #[test]
    fn which_traces_are_taken_follows_from_their_ids() {
        let [low, high] = [[0; 16], [0xff; 16]];
        assert!(SampleShare::new(0.5).takes(low) && !SampleShare::new(0.5).takes(high));
        assert!(SampleShare::new(1.0).takes(high) && !SampleShare::new(0.0).takes(low));
        assert!(SampleShare::new(f64::NAN).takes(high) && SampleShare::new(7.0).takes(high));
    }
}

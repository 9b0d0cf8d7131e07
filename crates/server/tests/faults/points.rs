//! Named crash points: a store and a tool that pass a point before and after whatever they do.
//!
//! A point is named by what is written, such as `before:hold.resolved` or `after:model.replied+hold.opened`, and
//! `before:effect`, `after:effect` around a tool. The product knows nothing of them: the server under test is built
//! with these around its own store and tools.

use std::collections::HashMap;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use standfast_engine::tool::{Invocation, Tool, ToolFuture};
use standfast_store::{
    Answer, AuditLayer, Batch, Claim, ClaimedRun, DeliveryLayer, IdempotencyLayer, Layer, RunLayer,
    SecretLayer, SessionLayer, Store, WorkLayer,
};

/// A point, the n-th time that it is passed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Nth {
    pub(crate) point: String,
    pub(crate) nth: u64,
}

/// What happens at which point.
#[derive(Debug, Default)]
pub(crate) struct Points {
    /// The process aborts here.
    pub(crate) abort_at: Option<Nth>,
    /// Answers of appends with this event come so much later.
    pub(crate) late: Option<(String, Duration)>,
    /// Every point that is passed becomes a line of this file.
    pub(crate) trace: Option<Mutex<std::fs::File>>,
    pub(crate) passed: Mutex<HashMap<String, u64>>,
    /// How often the events of a run were read.
    pub(crate) reads: AtomicU64,
}

impl Points {
    fn pass(&self, point: &str) {
        let mut passed = self.passed.lock().unwrap();
        let nth = passed.entry(point.to_owned()).or_default();
        *nth += 1;
        if let Some(trace) = &self.trace {
            writeln!(trace.lock().unwrap(), "{point}#{nth}").unwrap();
        }
        if self.abort_at.as_ref().is_some_and(|at| at.point == point && at.nth == *nth) {
            std::process::abort();
        }
    }
}

/// A store that passes a point before and after each write.
pub(crate) struct Crashing<S> {
    pub(crate) inner: S,
    pub(crate) points: Arc<Points>,
}

impl<S> Crashing<S> {
    /// Passes a point now, and one when the answer is there.
    fn around<T: Send + 'static>(&self, what: String, write: impl FnOnce(&S) -> Answer<T>) -> Answer<T> {
        self.points.pass(&format!("before:{what}"));
        // Handed over now, not when somebody waits for it.
        let answer = write(&self.inner);
        let points = self.points.clone();
        Box::pin(async move {
            let answer = answer.await;
            if answer.is_ok() {
                points.pass(&format!("after:{what}"));
            }
            if let Some((kind, late)) = &points.late
                && what.split('+').any(|written| written == kind)
            {
                tokio::time::sleep(*late).await;
            }
            answer
        })
    }
}

fn kinds(batches: &[Batch]) -> String {
    let events = batches.iter().flat_map(|batch| batch.link.events().unwrap());
    let mut kinds: Vec<&str> = events.map(|envelope| envelope.event.kind()).collect();
    kinds.dedup();
    kinds.join("+")
}

impl<S: Store> Layer for Crashing<S> {
    fn below(&self) -> &dyn Store {
        &self.inner
    }
}

impl<S: Store> RunLayer for Crashing<S> {
    fn append(&self, batches: Vec<Batch>) -> Answer<()> {
        self.around(kinds(&batches), |store| store.append(batches))
    }

    fn links(
        &self,
        run: standfast_core::id::RunId,
        after: standfast_core::id::Seq,
        limit: usize,
    ) -> Answer<Vec<standfast_core::link::Link>> {
        self.points.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.links(run, after, limit)
    }
}

impl<S: Store> WorkLayer for Crashing<S> {
    fn release(
        &self,
        run: standfast_core::id::RunId,
        node: standfast_core::id::Incarnation,
        wake_at: Option<standfast_core::time::Timestamp>,
    ) -> Answer<()> {
        self.around("release".into(), |store| store.release(run, node, wake_at))
    }

    /// Only claims that found something are a point: the rest is looking around.
    fn claim_due(&self, claim: Claim) -> Answer<Vec<ClaimedRun>> {
        let (answer, points) = (self.inner.claim_due(claim), self.points.clone());
        Box::pin(async move {
            let claimed = answer.await?;
            if !claimed.is_empty() {
                points.pass("after:claim");
            }
            Ok(claimed)
        })
    }
}

impl<S: Store> DeliveryLayer for Crashing<S> {}
impl<S: Store> SessionLayer for Crashing<S> {}
impl<S: Store> IdempotencyLayer for Crashing<S> {}
impl<S: Store> SecretLayer for Crashing<S> {}
impl<S: Store> AuditLayer for Crashing<S> {}

/// A tool that passes a point before and after its effect.
pub(crate) struct Watched {
    tool: Arc<dyn Tool>,
    points: Arc<Points>,
}

impl Watched {
    pub(crate) fn new(tool: Arc<dyn Tool>, points: Arc<Points>) -> Watched {
        Watched { tool, points }
    }
}

impl Tool for Watched {
    fn run(&self, invocation: Invocation) -> ToolFuture {
        let (running, points) = (self.tool.run(invocation), self.points.clone());
        Box::pin(async move {
            points.pass("before:effect");
            let outcome = running.await;
            points.pass("after:effect");
            outcome
        })
    }
}

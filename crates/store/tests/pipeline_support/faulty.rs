//! A store that misbehaves by plan: appends that fail before or after writing, reads that are lost, writers that
//! sneak in.
//!
//! Every fault is one that the contract of `Store` allows. When the plan is used up everything works.

use std::collections::VecDeque;
use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use standfast_core::id::{RunId, Seq};
use standfast_core::link::Link;
use standfast_store::memory::MemoryStore;
use standfast_store::{
    Answer, AuditLayer, Batch, DeliveryLayer, IdempotencyLayer, Layer, RunLayer, RunStore, SecretLayer,
    SessionLayer, Store, StoreError, StoredRun, WorkLayer,
};

use crate::block_on::block_on;

/// What happens to one append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// It fails before anything is written.
    Unavailable,
    /// It is written, and the answer is lost.
    AnswerLost,
    /// It is not written, and nobody says so.
    NeverArrived,
}

/// A writer that is quicker than the append that called it.
pub(crate) type Sneak = Box<dyn FnOnce(Arc<MemoryStore>) + Send>;

/// A store that misbehaves by plan.
pub(crate) struct Faulty {
    pub(crate) inner: Arc<MemoryStore>,
    plan: Mutex<Plan>,
}

#[derive(Default)]
pub(crate) struct Plan {
    /// One for each append, in order.
    pub(crate) appends: VecDeque<Fault>,
    /// One for each read of the driver, in order: whether it is lost.
    pub(crate) reads_lost: VecDeque<bool>,
    /// One for each append, in order: who comes first.
    pub(crate) sneaks: VecDeque<Option<Sneak>>,
    /// While it is closed, no append is acknowledged.
    pub(crate) gate: Option<Arc<AtomicBool>>,
    /// Whether every answer lets its caller wait once.
    pub(crate) pace: Pace,
}

/// How soon answers are there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Pace {
    #[default]
    AtOnce,
    /// At the second look: so there is somewhere to go away.
    WhenAskedAgain,
}

impl Pace {
    fn of<T: Send + 'static>(self, mut answer: Answer<T>) -> Answer<T> {
        let mut is_first = self == Pace::WhenAskedAgain;
        Box::pin(std::future::poll_fn(move |context| {
            if std::mem::take(&mut is_first) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            answer.as_mut().poll(context)
        }))
    }
}

impl Faulty {
    pub(crate) fn new(plan: Plan) -> Faulty {
        Faulty { inner: Arc::new(MemoryStore::new()), plan: Mutex::new(plan) }
    }

    fn next_append(&self) -> (Fault, Option<Sneak>, Option<Arc<AtomicBool>>) {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = plan.appends.pop_front().unwrap_or(Fault::None);
        (fault, plan.sneaks.pop_front().flatten(), plan.gate.clone())
    }

    fn read<T: Send + 'static>(&self, read: impl FnOnce(&MemoryStore) -> Answer<T>) -> Answer<T> {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let is_lost = plan.reads_lost.pop_front().unwrap_or(false);
        plan.pace.of(if is_lost { answer(Err(unavailable("the read was lost"))) } else { read(&self.inner) })
    }
}

/// The answer, once the gate is open.
fn behind(gate: Option<Arc<AtomicBool>>, mut answer: Answer<()>) -> Answer<()> {
    let Some(gate) = gate else { return answer };
    Box::pin(std::future::poll_fn(move |context| {
        if gate.load(Ordering::Acquire) { answer.as_mut().poll(context) } else { Poll::Pending }
    }))
}

fn answer<T: Send + 'static>(result: Result<T, StoreError>) -> Answer<T> {
    Box::pin(ready(result))
}

fn unavailable(why: &str) -> StoreError {
    StoreError::Unavailable { why: why.into() }
}

fn unknown() -> StoreError {
    StoreError::Unknown { why: "the connection broke".into() }
}

impl Layer for Faulty {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }
}

impl RunLayer for Faulty {
    fn append(&self, batches: Vec<Batch>) -> Answer<()> {
        let (fault, sneak, gate) = self.next_append();
        if let Some(sneak) = sneak {
            sneak(self.inner.clone());
        }
        let pace = self.plan.lock().unwrap_or_else(PoisonError::into_inner).pace;
        pace.of(match fault {
            Fault::None => behind(gate, self.inner.append(batches)),
            Fault::Unavailable => answer(Err(unavailable("the disk is full"))),
            // Refused is refused: only the answer to something that was written can say nothing.
            Fault::AnswerLost => answer(block_on(self.inner.append(batches)).and(Err(unknown()))),
            Fault::NeverArrived => answer(Err(unknown())),
        })
    }

    fn load(&self, run: RunId) -> Answer<StoredRun> {
        self.read(|inner| inner.load(run))
    }

    fn links(&self, run: RunId, after: Seq, limit: usize) -> Answer<Vec<Link>> {
        self.read(|inner| inner.links(run, after, limit))
    }
}

impl WorkLayer for Faulty {}
impl DeliveryLayer for Faulty {}
impl SessionLayer for Faulty {}
impl IdempotencyLayer for Faulty {}
impl SecretLayer for Faulty {}
impl AuditLayer for Faulty {}

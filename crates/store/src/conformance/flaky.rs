//! A store that loses answers: wraps another and fails appends by a script.
//!
//! What a network or a disk does to an append is one of three things: it never arrives, it arrives and its answer is
//! lost, or somebody else was first. The script says which, for each append in order; behind its end all is well.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::random::Random;
use crate::{
    Answer, AuditLayer, Batch, DeliveryLayer, IdempotencyLayer, Layer, RunLayer, SecretLayer, SessionLayer,
    Store, StoreError, WorkLayer,
};

/// What happens to one append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// Nothing: it is written and answered.
    None,
    /// It never arrives: `Unavailable`, nothing is written.
    Before,
    /// It is written and its answer is lost: `Unknown`.
    After,
    /// It never arrives and its failure is not told apart: `Unknown`, nothing is written.
    Lost,
    /// Somebody else is said to have been first: `Conflict`, nothing is written.
    Conflict,
}

/// A store that fails appends by a script.
pub struct Flaky {
    inner: Arc<dyn Store>,
    script: Mutex<VecDeque<Mishap>>,
}

impl Flaky {
    /// Fails appends by this script; behind its end all is well.
    #[must_use]
    pub fn scripted(inner: Arc<dyn Store>, script: impl IntoIterator<Item = Mishap>) -> Flaky {
        Flaky { inner, script: Mutex::new(script.into_iter().collect()) }
    }

    /// Fails about one append in `one_in`, in any of the ways, for this many appends.
    #[must_use]
    pub fn seeded(inner: Arc<dyn Store>, seed: u64, one_in: u64, appends: usize) -> Flaky {
        let mut random = Random::new(seed);
        let ways = [Mishap::Before, Mishap::After, Mishap::Lost, Mishap::Conflict];
        let mishap = |_| if random.below(one_in) == 0 { *random.pick(&ways) } else { Mishap::None };
        let script: Vec<Mishap> = (0..appends).map(mishap).collect();
        Flaky::scripted(inner, script)
    }

    fn next(&self) -> Mishap {
        self.script.lock().unwrap_or_else(PoisonError::into_inner).pop_front().unwrap_or(Mishap::None)
    }
}

fn failed<T: Send + 'static>(error: StoreError) -> Answer<T> {
    Box::pin(std::future::ready(Err(error)))
}

impl Layer for Flaky {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }
}

impl RunLayer for Flaky {
    fn append(&self, batches: Vec<Batch>) -> Answer<()> {
        let unknown = |why: &str| StoreError::Unknown { why: why.into() };
        match self.next() {
            Mishap::None => self.inner.append(batches),
            Mishap::Before => failed(StoreError::Unavailable { why: "flaky: it never arrived".into() }),
            Mishap::Lost => failed(unknown("flaky: nobody knows, and it never arrived")),
            Mishap::Conflict => match batches.first() {
                Some(batch) => failed(StoreError::Conflict { run: batch.run() }),
                None => self.inner.append(batches),
            },
            Mishap::After => {
                let answer = self.inner.append(batches);
                let lost = unknown("flaky: the answer was lost");
                Box::pin(async move {
                    match answer.await {
                        Ok(()) => Err(lost),
                        Err(error) => Err(error),
                    }
                })
            }
        }
    }
}

impl WorkLayer for Flaky {}
impl DeliveryLayer for Flaky {}
impl SessionLayer for Flaky {}
impl IdempotencyLayer for Flaky {}
impl SecretLayer for Flaky {}
impl AuditLayer for Flaky {}

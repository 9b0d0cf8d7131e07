//! What models are saying just now, for whoever follows a run live.
//!
//! Beside the log, never in it: words are not stored, move no cursor, and are lost on a reader that is too slow; the
//! reply in the log has them all. A run that nobody listens to costs one look at a counter.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use standfast_core::id::{RunId, Seq};
use standfast_core::run::Run;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use crate::clock::Clock;
use crate::model::Live;
use crate::settings::StreamingMode;

/// Pieces that are kept for a slow reader of one run; older ones are lost to it.
const KEPT: usize = 256;

/// A piece of a reply that is being made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// The turn whose reply it belongs to, counted from 0.
    pub turn: u32,
    /// Counts the pieces of one try from 1, so that a reader sees a gap, and a new try.
    pub no: u32,
    /// The last event that the model was asked with: the piece belongs behind it.
    pub after: Seq,
    /// The words.
    pub text: String,
}

/// Who listens to which run.
#[derive(Debug, Default)]
pub(crate) struct Deltas {
    listeners: AtomicUsize,
    runs: Mutex<HashMap<RunId, broadcast::Sender<Delta>>>,
}

impl Deltas {
    /// Hears what the model of this run says from now on.
    pub(crate) fn listen(self: &Arc<Deltas>, run: RunId) -> DeltaListener {
        self.listeners.fetch_add(1, Ordering::SeqCst);
        let mut runs = self.runs();
        let sender = runs.entry(run).or_insert_with(|| broadcast::Sender::new(KEPT));
        DeltaListener {
            deltas: self.clone(),
            run,
            receiver: Some(sender.subscribe()),
            ready: VecDeque::new(),
        }
    }

    fn say(&self, run: RunId, delta: impl FnOnce() -> Delta) {
        if self.listeners.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(sender) = self.runs().get(&run) {
            // Nobody is left to hear it.
            let _ = sender.send(delta());
        }
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<RunId, broadcast::Sender<Delta>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deltas {
    /// What the model of this run has while it is asked.
    pub(crate) fn live(self: &Arc<Deltas>, clock: &Clock, run: &Run, streaming: StreamingMode) -> Live {
        if streaming == StreamingMode::Off {
            return Live::new(clock.clone(), |_| {});
        }
        let (deltas, id) = (self.clone(), run.facts.id);
        let (turn, after, said) = (run.state.turn, run.state.seq, AtomicU32::new(0));
        Live::new(clock.clone(), move |text| {
            let no = said.fetch_add(1, Ordering::SeqCst) + 1;
            deltas.say(id, || Delta { turn, no, after, text: text.to_owned() });
        })
    }
}

/// Somebody who listens to a run.
#[derive(Debug)]
pub(crate) struct DeltaListener {
    deltas: Arc<Deltas>,
    run: RunId,
    receiver: Option<broadcast::Receiver<Delta>>,
    ready: VecDeque<Delta>,
}

impl DeltaListener {
    /// Everything that was said so far.
    pub(crate) fn drain(&mut self) -> VecDeque<Delta> {
        let mut said = std::mem::take(&mut self.ready);
        while let Some(receiver) = &mut self.receiver {
            match receiver.try_recv() {
                Ok(delta) => said.push_back(delta),
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        said
    }

    /// Keeps what it is too early for.
    pub(crate) fn put_back(&mut self, early: VecDeque<Delta>) {
        self.ready = early;
    }

    /// Waits until something is said; `drain` has it.
    pub(crate) async fn next(&mut self) {
        while let Some(receiver) = &mut self.receiver {
            match receiver.recv().await {
                Ok(delta) => {
                    self.ready.push_back(delta);
                    return;
                }
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => break,
            }
        }
        std::future::pending::<()>().await;
    }
}

impl Drop for DeltaListener {
    fn drop(&mut self) {
        drop(self.receiver.take());
        let mut runs = self.deltas.runs();
        if runs.get(&self.run).is_some_and(|sender| sender.receiver_count() == 0) {
            runs.remove(&self.run);
        }
        drop(runs);
        self.deltas.listeners.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use standfast_core::id::StorageKind;
    use standfast_core::name::Tenant;
    use standfast_core::time::Timestamp;

    use super::*;

    fn run(no: u8) -> RunId {
        RunId::new(&Tenant::default_tenant(), StorageKind::Durable, Timestamp(0), [no; 5])
    }

    fn delta(no: u32) -> Delta {
        Delta { turn: 0, no, after: Seq(1), text: no.to_string() }
    }

    #[test]
    fn a_slow_reader_loses_the_oldest_and_sees_the_gap() {
        let deltas = Arc::new(Deltas::default());
        let mut reader = deltas.listen(run(1));
        (1..=1000).for_each(|no| deltas.say(run(1), || delta(no)));
        let heard: Vec<u32> = reader.drain().iter().map(|delta| delta.no).collect();
        assert_eq!(heard, (1000 - KEPT as u32 + 1..=1000).collect::<Vec<_>>());
    }

    #[test]
    fn nothing_is_made_for_nobody() {
        let deltas = Arc::new(Deltas::default());
        let other = deltas.listen(run(1));
        deltas.say(run(2), || panic!("nobody listens to this run"));
        drop(other);
        deltas.say(run(1), || panic!("nobody listens at all"));
        assert!(deltas.runs().is_empty());
    }
}

//! Following a run: read after a cursor, then wait for a wake or a tick, and read again.
//!
//! A wake carries no data, so losing one costs latency only. The cursor is the sequence, so a reader can come back
//! anywhere, after any restart, and misses and repeats nothing.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use holdpoint_core::event::Envelope;
use holdpoint_core::id::{RunId, Seq};
use holdpoint_core::time::Millis;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::{Engine, EngineError};
use crate::clock::duration;

/// A reader that hears nothing looks at least this often by itself.
const LONGEST_TICK: Millis = Millis::seconds(30);

/// Who wants to hear when something changed.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    runs: Mutex<HashMap<RunId, Weak<Notify>>>,
    worker: Notify,
}

impl Wakes {
    /// Something was appended to this run.
    pub(super) fn wake(&self, run: RunId) {
        let mut runs = self.runs();
        match runs.get(&run).and_then(Weak::upgrade) {
            Some(notify) => notify.notify_waiters(),
            // Nobody listens any more.
            None => drop(runs.remove(&run)),
        }
    }

    /// A run may have become due.
    pub(super) fn wake_worker(&self) {
        self.worker.notify_one();
    }

    /// Waits until a run may have become due.
    pub(super) async fn worker_woken(&self) {
        self.worker.notified().await;
    }

    /// Hears about this run from now on.
    pub(super) fn listen(&self, run: RunId) -> Arc<Notify> {
        let mut runs = self.runs();
        if let Some(notify) = runs.get(&run).and_then(Weak::upgrade) {
            return notify;
        }
        let notify = Arc::new(Notify::new());
        runs.insert(run, Arc::downgrade(&notify));
        notify
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<RunId, Weak<Notify>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a run's events as they come.
pub struct Follower {
    engine: Engine,
    run: RunId,
    cursor: Seq,
    notify: Arc<Notify>,
}

impl Engine {
    /// Follows a run from the event after this one.
    #[must_use]
    pub fn follow(&self, run: RunId, after: Seq) -> Follower {
        Follower { engine: self.clone(), run, cursor: after, notify: self.shared.wakes.listen(run) }
    }
}

impl Follower {
    /// The next events; waits until there are some.
    pub async fn next(&mut self) -> Result<Vec<Envelope>, EngineError> {
        let mut tick = self.engine.shared.settings.poll;
        loop {
            // Registered before reading, so that nothing falls between the two.
            let mut woken = pin!(self.notify.notified());
            woken.as_mut().enable();
            let events = self.engine.events(self.run, self.cursor).await?;
            if let Some(last) = events.last() {
                self.cursor = last.seq;
                return Ok(events);
            }
            // A tick makes up for a wake that was lost. The longer nothing happens, the longer it is in coming, so that
            // thousands of readers of runs that wait cost next to nothing.
            if timeout(duration(tick), woken).await.is_err() {
                tick = Millis(tick.0.saturating_mul(2).min(LONGEST_TICK.0));
            }
        }
    }
}

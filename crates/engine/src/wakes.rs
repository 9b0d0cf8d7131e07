//! Who is woken when something changes: followers and drives of a run, the worker, inboxes, the deliverer.
//!
//! A wake carries no data, so losing one costs latency only. `deltas.rs` carries the tokens that a model is streaming, beside the
//! log; `rest.rs` a run that came to rest, from its drive to the caller who asked for it. `reads/follow.rs` reads a run after each wake.

mod deltas;
mod rest;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use standfast_core::event::Envelope;
use standfast_core::id::{RunId, Seq, Shard};
use standfast_store::ShardSet;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, broadcast};

pub use deltas::Delta;
pub(crate) use deltas::{DeltaListener, Deltas};
pub use rest::RestTicket;
pub(crate) use rest::{RestSlot, RestState, RestedRun, rest_slot};

/// Who wants to hear when something changed.
#[derive(Debug)]
pub(crate) struct Wakes {
    runs: Mutex<HashMap<RunId, Weak<RunListener>>>,
    worker: Notify,
    inboxes: Notify,
    deliverer: Notify,
    /// Something was appended that the deliverer may have to tell of.
    appended: Notify,
    /// Most appends have nothing to tell: where commits that put notices are counted, only those wake the deliverer.
    notices: NoticeCounter,
    /// The runs that are driven here and known to go on: whoever drives one says when it rests.
    going_on: Mutex<HashSet<RunId>>,
    /// Every run that changes, for those who follow many.
    all: broadcast::Sender<RunId>,
}

/// How many commits have put notices, and of how many the deliverer has heard.
#[derive(Default)]
struct NoticeCounter {
    count: OnceLock<Box<CountNotices>>,
    told: AtomicU64,
}

/// Says how many commits have put notices; none where nobody counts them.
type CountNotices = dyn Fn() -> Option<u64> + Send + Sync;

impl std::fmt::Debug for NoticeCounter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NoticeCounter").field("told", &self.told).finish_non_exhaustive()
    }
}

impl NoticeCounter {
    /// Whether there may be more than the deliverer has heard of.
    fn has_news(&self) -> bool {
        match self.count.get().and_then(|count| count()) {
            Some(put) => {
                self.told.load(Ordering::SeqCst) != put && self.told.swap(put, Ordering::SeqCst) != put
            }
            None => true,
        }
    }
}

/// Whoever listens to a run.
#[derive(Debug, Default)]
pub(crate) struct RunListener {
    /// Something was appended.
    changed: Notify,
    /// It may wait or be over now.
    rested: Notify,
    /// How often something was appended, as far as was heard here.
    changes: AtomicU64,
    /// What was read after the last of them: thousands of readers of one run read it once.
    pub(crate) last_read: tokio::sync::Mutex<Option<LastRead>>,
}

/// What was read for somebody who was woken.
#[derive(Debug)]
pub(crate) struct LastRead {
    /// How many changes there had been before it was read.
    pub(crate) changes: u64,
    pub(crate) after: Seq,
    pub(crate) appends: Vec<Vec<Envelope>>,
}

impl RunListener {
    /// Hears from now on when something is appended.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Hears from now on when the run may wait or be over.
    pub(crate) fn rested(&self) -> Notified<'_> {
        self.rested.notified()
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    fn notify(&self, continuation: Continuation) {
        self.notify_after(continuation, |_| ());
    }

    /// The same; before anybody is woken, `counted` hears how many changes there have been with this one.
    fn notify_after(&self, continuation: Continuation, counted: impl FnOnce(u64)) {
        // Counted first: whoever is woken compares the count.
        counted(self.changes.fetch_add(1, Ordering::SeqCst) + 1);
        self.changed.notify_waiters();
        if continuation == Continuation::Rests {
            self.rested.notify_waiters();
        }
    }
}

/// Where a change leaves a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Continuation {
    /// Whoever drives it here goes on with it, and will tell when it rests.
    GoesOn,
    /// It waits or ends, or nobody here knows.
    Rests,
}

/// Changes that are kept for a reader who is slow; one who falls further behind looks for itself.
const KEPT: usize = 1024;

impl Default for Wakes {
    fn default() -> Wakes {
        Wakes {
            runs: Mutex::default(),
            worker: Notify::default(),
            inboxes: Notify::default(),
            deliverer: Notify::default(),
            appended: Notify::default(),
            notices: NoticeCounter::default(),
            going_on: Mutex::default(),
            all: broadcast::Sender::new(KEPT),
        }
    }
}

impl Wakes {
    /// Hears of every run that changes here, from now on.
    pub(crate) fn changes(&self) -> broadcast::Receiver<RunId> {
        self.all.subscribe()
    }

    /// Something was appended to this run, or it is no longer driven here.
    pub(crate) fn wake(&self, run: RunId) {
        self.wake_after(run, Continuation::Rests, |_| ());
    }

    /// Something was appended to this run. Those who wait for its rest are left alone while it goes on.
    fn wake_after(&self, run: RunId, continuation: Continuation, counted: impl FnOnce(u64)) {
        if self.notices.has_news() {
            self.appended.notify_one();
        }
        // Nobody may be listening, and that is not a failure.
        let _ = self.all.send(run);
        let mut runs = self.runs();
        match runs.get(&run).and_then(Weak::upgrade) {
            Some(listener) => listener.notify_after(continuation, counted),
            // Nobody listens any more.
            None => drop(runs.remove(&run)),
        }
    }

    /// Somebody here drives a run from now on, and will say when it rests.
    pub(crate) fn begin_drive(&self, run: RunId) {
        self.going_on().insert(run);
    }

    /// Lets what was appended be seen, and says whether the run goes on. Before anybody is woken, `counted` hears how many
    /// changes there have been.
    pub(crate) fn show(&self, run: RunId, continuation: Continuation, counted: impl FnOnce(u64)) {
        match continuation {
            Continuation::GoesOn => self.going_on().insert(run),
            Continuation::Rests => self.going_on().remove(&run),
        };
        self.wake_after(run, continuation, counted);
    }

    /// Nobody here drives a run any more. If it was going on when it was last seen, nobody here will say when it rests.
    pub(crate) fn end_drive(&self, run: RunId) {
        if self.going_on().remove(&run) {
            self.wake(run);
        }
    }

    /// Whether a run is driven here and known to go on.
    pub(crate) fn goes_on(&self, run: RunId) -> bool {
        self.going_on().contains(&run)
    }

    fn going_on(&self) -> MutexGuard<'_, HashSet<RunId>> {
        self.going_on.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other nodes changed something in these shards. Whose runs those are is worked out here, so that a hint costs
    /// nothing where nobody listens.
    pub(crate) fn wake_shards(&self, shards: &ShardSet, shard_of: impl Fn(RunId) -> Shard) {
        let is_all = *shards == ShardSet::all();
        let is_meant = |run: RunId| is_all || shards.contains(shard_of(run));
        let mut meant: Vec<(RunId, Arc<RunListener>)> = self
            .runs()
            .iter()
            .filter(|(run, _)| is_meant(**run))
            .filter_map(|(run, listener)| Some((*run, listener.upgrade()?)))
            .collect();
        // In the same order every time, so that a history that is played again is the same.
        meant.sort_unstable_by_key(|(run, _)| *run);
        meant.into_iter().for_each(|(_, listener)| listener.notify(Continuation::Rests));
    }

    /// A run may have become due.
    pub(crate) fn wake_worker(&self) {
        self.worker.notify_one();
    }

    /// Waits until a run may have become due.
    pub(crate) async fn worker_woken(&self) {
        self.worker.notified().await;
    }

    /// Something may have been put into an inbox, or given back to one.
    pub(crate) fn wake_inboxes(&self) {
        self.inboxes.notify_waiters();
    }

    /// Hears, from now on, when something may have been put into an inbox.
    pub(crate) fn inbox_news(&self) -> impl Future<Output = ()> + '_ {
        let mut news = Box::pin(self.inboxes.notified());
        news.as_mut().enable();
        news
    }

    /// There is something to tell outside, or somebody else has to tell it now.
    pub(crate) fn wake_deliverer(&self) {
        self.deliverer.notify_one();
    }

    /// Waits until the deliverer has to look.
    pub(crate) async fn deliverer_woken(&self) {
        self.deliverer.notified().await;
    }

    /// From now on the deliverer is only woken for appends that put notices.
    pub(crate) fn count_notices(&self, count: impl Fn() -> Option<u64> + Send + Sync + 'static) {
        // It was said before, of the same store.
        let _ = self.notices.count.set(Box::new(count));
    }

    /// Waits until something was appended that may have to be told.
    pub(crate) async fn appended(&self) {
        self.appended.notified().await;
    }

    /// Hears about this run from now on.
    pub(crate) fn listen(&self, run: RunId) -> Arc<RunListener> {
        let mut runs = self.runs();
        if let Some(listener) = runs.get(&run).and_then(Weak::upgrade) {
            return listener;
        }
        // Those who stopped listening are swept when the map would grow: it stays as large as its listeners.
        if runs.len() == runs.capacity() {
            runs.retain(|_, listener| listener.strong_count() > 0);
        }
        let listener = Arc::new(RunListener::default());
        runs.insert(run, Arc::downgrade(&listener));
        listener
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<RunId, Weak<RunListener>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;
    use standfast_core::id::StorageKind;
    use standfast_core::name::Tenant;
    use standfast_core::time::Timestamp;

    use super::*;

    /// Whoever tells the outside is left alone by appends that put nothing to tell.
    #[tokio::test]
    async fn only_notices_wake_whoever_delivers() {
        let (wakes, put) = (Wakes::default(), Arc::new(AtomicU64::new(0)));
        let counted = put.clone();
        let run = RunId::new(&Tenant::default_tenant(), StorageKind::Durable, Timestamp(1), [7; 5]);
        let is_woken = || pin!(wakes.appended()).now_or_never().is_some();
        wakes.wake(run);
        assert!(is_woken(), "nobody counts");
        wakes.count_notices(move || Some(counted.load(Ordering::SeqCst)));
        wakes.wake(run);
        assert!(!is_woken());
        put.store(1, Ordering::SeqCst);
        wakes.wake(run);
        wakes.wake(run);
        assert!(is_woken());
        assert!(!is_woken(), "it has heard of it");
    }

    /// A server that runs for months remembers nobody who stopped listening, and forgets nobody who did not.
    #[tokio::test]
    async fn those_who_stopped_listening_are_swept() {
        let run =
            |at: i64| RunId::new(&Tenant::default_tenant(), StorageKind::Durable, Timestamp(at), [7; 5]);
        let wakes = Wakes::default();
        let listeners: Vec<_> = (0..100).map(|at| (run(at), wakes.listen(run(at)))).collect();
        for at in 100..20_000 {
            drop(wakes.listen(run(at)));
        }
        let remembered = wakes.runs().len();
        assert!(remembered < 1_000, "{remembered} are remembered");
        for (run, listener) in &listeners {
            let mut woken = pin!(listener.changed());
            woken.as_mut().enable();
            wakes.wake(*run);
            woken.await;
        }
    }
}

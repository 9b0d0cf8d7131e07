//! Following a run: read after a cursor, then wait for a wake or a tick, and read again.
//!
//! A wake carries no data, so losing one costs latency only. The cursor is the sequence, so a reader can come back
//! anywhere, after any restart, and misses and repeats nothing. What a model is just saying can be heard beside the log.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use standfast_core::event::Envelope;
use standfast_core::hold::HoldKind;
use standfast_core::id::{RunId, Seq, Shard};
use standfast_core::run::{Run, Status, Waiting, status};
use standfast_core::time::Millis;
use standfast_store::ShardSet;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, broadcast};

use super::deltas::{Delta, Listening};
use super::{Engine, EngineError};

/// A reader that hears nothing looks at least this often by itself.
const LONGEST_TICK: Millis = Millis::seconds(30);

/// Who wants to hear when something changed.
#[derive(Debug)]
pub(super) struct Wakes {
    runs: Mutex<HashMap<RunId, Weak<Ear>>>,
    worker: Notify,
    inboxes: Notify,
    deliverer: Notify,
    /// Every run that changes, for those who follow many.
    all: broadcast::Sender<RunId>,
}

/// Whoever listens to a run.
#[derive(Debug, Default)]
pub(super) struct Ear {
    /// Something was appended.
    changed: Notify,
    /// It may wait or be over now.
    rested: Notify,
    /// How often something was appended, as far as was heard here.
    changes: AtomicU64,
    /// What was read after the last of them: thousands of readers of one run read it once.
    last_read: tokio::sync::Mutex<Option<LastRead>>,
}

/// What was read for somebody who was woken.
#[derive(Debug)]
struct LastRead {
    /// How many changes there had been before it was read.
    changes: u64,
    after: Seq,
    appends: Vec<Vec<Envelope>>,
}

impl Ear {
    /// Hears from now on when something is appended.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Hears from now on when the run may wait or be over.
    fn rested(&self) -> Notified<'_> {
        self.rested.notified()
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    fn tell(&self, goes: Goes) {
        // Counted before anybody is woken, so that whoever is finds it counted.
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_waiters();
        if goes == Goes::ToRest {
            self.rested.notify_waiters();
        }
    }
}

/// Where a change leaves a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goes {
    /// Whoever drives it here goes on with it, and will tell when it rests.
    On,
    /// It waits or is over, or nobody here knows.
    ToRest,
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
            all: broadcast::Sender::new(KEPT),
        }
    }
}

impl Wakes {
    /// Hears of every run that changes here, from now on.
    pub(super) fn changes(&self) -> broadcast::Receiver<RunId> {
        self.all.subscribe()
    }

    /// Something was appended to this run, or it is no longer driven here.
    pub(super) fn wake(&self, run: RunId) {
        self.wake_as(run, Goes::ToRest);
    }

    /// Something was appended to this run. Those who wait for its rest are left alone while it goes on.
    pub(super) fn wake_as(&self, run: RunId, goes: Goes) {
        self.deliverer.notify_one();
        // Nobody may be listening, and that is no failure.
        let _ = self.all.send(run);
        let mut runs = self.runs();
        match runs.get(&run).and_then(Weak::upgrade) {
            Some(ear) => ear.tell(goes),
            // Nobody listens any more.
            None => drop(runs.remove(&run)),
        }
    }

    /// Other nodes changed something in these shards. Whose runs those are is worked out here, so that a hint costs
    /// nothing where nobody listens.
    pub(super) fn wake_shards(&self, shards: &ShardSet, shard_of: impl Fn(RunId) -> Shard) {
        let is_all = *shards == ShardSet::all();
        let is_meant = |run: RunId| is_all || shards.contains(shard_of(run));
        let mut meant: Vec<(RunId, Arc<Ear>)> = self
            .runs()
            .iter()
            .filter(|(run, _)| is_meant(**run))
            .filter_map(|(run, ear)| Some((*run, ear.upgrade()?)))
            .collect();
        // In the same order every time, so that a history that is played again is the same.
        meant.sort_unstable_by_key(|(run, _)| *run);
        meant.into_iter().for_each(|(_, ear)| ear.tell(Goes::ToRest));
    }

    /// A run may have become due.
    pub(super) fn wake_worker(&self) {
        self.worker.notify_one();
    }

    /// Waits until a run may have become due.
    pub(super) async fn worker_woken(&self) {
        self.worker.notified().await;
    }

    /// Something may have been put into an inbox, or given back to one.
    pub(super) fn wake_inboxes(&self) {
        self.inboxes.notify_waiters();
    }

    /// Hears, from now on, when something may have been put into an inbox.
    pub(super) fn inbox_news(&self) -> impl Future<Output = ()> + '_ {
        let mut news = Box::pin(self.inboxes.notified());
        news.as_mut().enable();
        news
    }

    /// There may be something to tell outside.
    pub(super) fn wake_deliverer(&self) {
        self.deliverer.notify_one();
    }

    /// Waits until there may be something to tell outside.
    pub(super) async fn news(&self) {
        self.deliverer.notified().await;
    }

    /// Hears about this run from now on.
    pub(super) fn listen(&self, run: RunId) -> Arc<Ear> {
        let mut runs = self.runs();
        if let Some(ear) = runs.get(&run).and_then(Weak::upgrade) {
            return ear;
        }
        // Those who stopped listening are swept when the map would grow: it stays as large as its listeners.
        if runs.len() == runs.capacity() {
            runs.retain(|_, ear| ear.strong_count() > 0);
        }
        let ear = Arc::new(Ear::default());
        runs.insert(run, Arc::downgrade(&ear));
        ear
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<RunId, Weak<Ear>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a run's events as they come.
pub struct Follower {
    engine: Engine,
    run: RunId,
    cursor: Seq,
    ear: Arc<Ear>,
    /// How many changes there had been when it last read; none when it has to look for itself.
    seen: Option<u64>,
    /// What the model is saying, for those who want to hear it.
    live: Option<Listening>,
}

/// What there is to tell a reader.
#[derive(Debug)]
pub enum News {
    /// Something was appended.
    Event(Box<Envelope>),
    /// The model is saying something; it is stored nowhere and moves no cursor.
    Delta(Delta),
}

/// What there is to tell a reader for whom the events of one append are one change.
#[derive(Debug)]
pub enum Step {
    /// All events of an append.
    Append(Vec<Envelope>),
    /// The model is saying something; it is stored nowhere and moves no cursor.
    Delta(Delta),
}

impl Engine {
    /// Follows a run from the event after this one.
    #[must_use]
    pub fn follow(&self, run: RunId, after: Seq) -> Follower {
        let ear = self.shared.wakes.listen(run);
        Follower { engine: self.clone(), run, cursor: after, ear, seen: None, live: None }
    }

    /// Follows a run, and hears what its model says from now on.
    #[must_use]
    pub fn follow_live(&self, run: RunId, after: Seq) -> Follower {
        Follower { live: Some(self.shared.deltas.listen(run)), ..self.follow(run, after) }
    }
}

impl Follower {
    /// The next events; waits until there are some.
    pub async fn next(&mut self) -> Result<Vec<Envelope>, EngineError> {
        loop {
            let news = self.news().await?;
            let events: Vec<Envelope> = news.into_iter().filter_map(News::event).collect();
            if !events.is_empty() {
                return Ok(events);
            }
        }
    }

    /// Leaves out everything up to this event, which was read elsewhere.
    pub fn skip_to(&mut self, seq: Seq) {
        self.cursor = self.cursor.max(seq);
    }

    /// What happened since, append by append; waits until there is something. Words of a reply come before the reply.
    /// May be dropped and asked again.
    pub async fn steps(&mut self) -> Result<Vec<Step>, EngineError> {
        let (mut tick, ear) = (self.engine.shared.settings().fixed.poll, self.ear.clone());
        loop {
            let mut woken = pin!(ear.changed());
            woken.as_mut().enable();
            let appends = self.read().await?;
            let mut said = drained(&mut self.live);
            let mut steps = Vec::new();
            for append in appends {
                steps.extend(heard(&mut said, self.cursor).map(Step::Delta));
                self.cursor = append.last().map_or(self.cursor, |event| event.seq);
                steps.push(Step::Append(append));
            }
            steps.extend(heard(&mut said, self.cursor).map(Step::Delta));
            put_back(&mut self.live, said);
            if !steps.is_empty() {
                return Ok(steps);
            }
            tokio::select! {
                biased;
                () = woken => {}
                said = words(&mut self.live, self.cursor) => {
                    if !said.is_empty() {
                        return Ok(said.into_iter().map(Step::Delta).collect());
                    }
                    self.seen = None;
                }
                () = self.engine.shared.clock.sleep(tick) => (tick, self.seen) = (longer(tick), None),
            }
        }
    }

    /// What was appended behind the cursor. After a wake all readers of a run share one read, and without one there is
    /// nothing to read; at first, and after a tick, each looks for itself, because a wake may have been lost.
    async fn read(&mut self) -> Result<Vec<Vec<Envelope>>, EngineError> {
        let changes = self.ear.changes();
        let appends = match self.seen {
            None => {
                // Nothing is kept for readers who only wait.
                *self.ear.last_read.lock().await = None;
                self.engine.appends(self.run, self.cursor).await?
            }
            Some(seen) if seen == changes => return Ok(Vec::new()),
            Some(_) => self.read_with_others(changes).await?,
        };
        self.seen = Some(changes);
        Ok(appends)
    }

    async fn read_with_others(&self, changes: u64) -> Result<Vec<Vec<Envelope>>, EngineError> {
        let mut last_read = self.ear.last_read.lock().await;
        let covers = |read: &&LastRead| read.changes >= changes && read.after <= self.cursor;
        if let Some(read) = last_read.as_ref().filter(covers) {
            return Ok(behind(self.cursor, &read.appends));
        }
        let changes = self.ear.changes();
        let appends = self.engine.appends(self.run, self.cursor).await?;
        *last_read = Some(LastRead { changes, after: self.cursor, appends: appends.clone() });
        Ok(appends)
    }

    /// Waits until somebody is needed, also by a sub-run, or the run is over. A run that only outside systems can move
    /// is still at work.
    pub(super) async fn needs_somebody(self) -> Result<Run, EngineError> {
        let poll = self.engine.shared.settings().fixed.poll;
        let (mut tick, mut is_first) = (poll, true);
        loop {
            let mut rested = pin!(self.ear.rested());
            rested.as_mut().enable();
            let mut has_children = false;
            if let Some(run) = self.unless_it_goes_on(std::mem::take(&mut is_first)).await? {
                match status(&run) {
                    Status::Held(Waiting::Person | Waiting::Auth) | Status::Ended(_) => return Ok(run),
                    Status::Held(Waiting::External) => {
                        let below = self.engine.holds_below(&run).await?;
                        if below.iter().any(|(_, kind)| *kind != HoldKind::External) {
                            return Ok(run);
                        }
                    }
                    Status::Queued | Status::Claimed | Status::Working | Status::Retrying(_) => {}
                }
                // What happens in a sub-run wakes nobody here.
                has_children = run.state.holds.iter().any(|hold| hold.child.is_some());
            }
            tokio::select! {
                () = rested => {}
                () = self.engine.shared.clock.sleep(tick) => {
                    tick = if has_children { poll } else { longer(tick) };
                }
            }
        }
    }

    /// Waits until the run waits or is over. Looks at its row only: nobody's log is read for it.
    pub(super) async fn settles(self) -> Result<Run, EngineError> {
        let (mut tick, mut is_first) = (self.engine.shared.settings().fixed.poll, true);
        loop {
            let mut rested = pin!(self.ear.rested());
            rested.as_mut().enable();
            if let Some(run) = self.unless_it_goes_on(std::mem::take(&mut is_first)).await? {
                match status(&run) {
                    Status::Held(_) | Status::Ended(_) => return Ok(run),
                    Status::Queued | Status::Claimed | Status::Working | Status::Retrying(_) => {}
                }
            }
            tokio::select! {
                biased;
                () = rested => {}
                () = self.engine.shared.clock.sleep(tick) => tick = longer(tick),
            }
        }
    }

    /// The run as it is stored. None at first while it is driven here and known to go on: whoever drives it tells when it
    /// rests, so that nobody looks at it after each append.
    async fn unless_it_goes_on(&self, is_first: bool) -> Result<Option<Run>, EngineError> {
        match is_first && self.engine.shared.goes_on(self.run) {
            true => Ok(None),
            false => Ok(Some(self.engine.load(self.run).await?.row.run)),
        }
    }

    /// What happened since, in order; waits until there is something. Words of a reply come before the reply.
    pub async fn news(&mut self) -> Result<Vec<News>, EngineError> {
        let (mut tick, ear) = (self.engine.shared.settings().fixed.poll, self.ear.clone());
        loop {
            // Registered before reading, so that nothing falls between the two.
            let mut woken = pin!(ear.changed());
            woken.as_mut().enable();
            let events = self.read().await?.into_iter().flatten();
            // Read after the events: whatever was said before one of them is here.
            let mut said = drained(&mut self.live);
            let mut news = Vec::new();
            for event in events {
                news.extend(heard(&mut said, self.cursor).map(News::Delta));
                self.cursor = event.seq;
                news.push(News::Event(Box::new(event)));
            }
            news.extend(heard(&mut said, self.cursor).map(News::Delta));
            put_back(&mut self.live, said);
            if !news.is_empty() {
                return Ok(news);
            }
            tokio::select! {
                biased;
                () = woken => {}
                said = words(&mut self.live, self.cursor) => {
                    if !said.is_empty() {
                        return Ok(said.into_iter().map(News::Delta).collect());
                    }
                    self.seen = None;
                }
                // A tick makes up for a wake that was lost. The longer nothing happens, the longer it is in coming, so
                // that thousands of readers of runs that wait cost next to nothing.
                () = self.engine.shared.clock.sleep(tick) => (tick, self.seen) = (longer(tick), None),
            }
        }
    }
}

/// What of these appends is behind a cursor.
fn behind(cursor: Seq, appends: &[Vec<Envelope>]) -> Vec<Vec<Envelope>> {
    let rest = |append: &Vec<Envelope>| -> Vec<Envelope> {
        append.iter().filter(|event| event.seq > cursor).cloned().collect()
    };
    appends.iter().map(rest).filter(|append| !append.is_empty()).collect()
}

fn longer(tick: Millis) -> Millis {
    Millis(tick.0.saturating_mul(2).min(LONGEST_TICK.0))
}

impl News {
    fn event(self) -> Option<Envelope> {
        match self {
            News::Event(event) => Some(*event),
            News::Delta(_) => None,
        }
    }
}

/// Words belong behind the events that the model was asked with.
fn heard(said: &mut VecDeque<Delta>, cursor: Seq) -> impl Iterator<Item = Delta> {
    std::iter::from_fn(move || match said.front() {
        Some(delta) if delta.after <= cursor => said.pop_front(),
        Some(_) | None => None,
    })
}

fn drained(live: &mut Option<Listening>) -> VecDeque<Delta> {
    live.as_mut().map(Listening::drain).unwrap_or_default()
}

fn put_back(live: &mut Option<Listening>, early: VecDeque<Delta>) {
    if let Some(live) = live {
        live.put_back(early);
    }
}

/// Waits for words. Those that belong where the reader is are told without a look at the store: whatever became of them
/// is behind them. None, when a look at the store has to come first.
async fn words(live: &mut Option<Listening>, cursor: Seq) -> Vec<Delta> {
    let Some(live) = live else { return std::future::pending().await };
    live.next().await;
    let mut said = live.drain();
    let words = heard(&mut said, cursor).collect();
    live.put_back(said);
    words
}

#[cfg(test)]
mod tests {
    use standfast_core::id::Place;
    use standfast_core::name::Tenant;
    use standfast_core::time::Timestamp;

    use super::*;

    /// A server that runs for months remembers nobody who stopped listening, and forgets nobody who did not.
    #[tokio::test]
    async fn those_who_stopped_listening_are_swept() {
        let run = |at: i64| RunId::new(&Tenant::default_tenant(), Place::Durable, Timestamp(at), [7; 5]);
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

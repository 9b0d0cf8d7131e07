//! Following a run: read after a cursor, then wait for a wake or a tick, and read again.
//!
//! The cursor is the sequence, so a reader can come back anywhere, after any restart, and misses and repeats nothing. What
//! a model is streaming can be read beside the log.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use standfast_core::event::Envelope;
use standfast_core::hold::HoldKind;
use standfast_core::id::{RunId, Seq};
use standfast_core::run::{Status, WaitKind, status};
use standfast_core::time::Millis;
use standfast_store::StoredRun;

use super::Reads;
use crate::EngineError;
use crate::log::{Log, Snapshot};
use crate::wakes::{Delta, DeltaListener, LastRead, RestState, RestTicket, RestedRun, RunListener, Wakes};

/// A reader that hears nothing looks at least this often by itself.
const LONGEST_TICK: Millis = Millis::seconds(30);

/// Reads a run's events as they come.
pub struct Follower {
    log: Arc<Log>,
    wakes: Arc<Wakes>,
    run: RunId,
    cursor: Seq,
    listener: Arc<RunListener>,
    /// How many changes there had been when it last read; none when it has to look for itself.
    seen: Option<u64>,
    /// What the model is saying, for those who want to hear it.
    live: Option<DeltaListener>,
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

impl Reads {
    /// Follows a run from the event after this one.
    #[must_use]
    pub fn follow(&self, run: RunId, after: Seq) -> Follower {
        let (log, wakes, listener) = (self.log.clone(), self.wakes.clone(), self.wakes.listen(run));
        Follower { log, wakes, run, cursor: after, listener, seen: None, live: None }
    }

    /// Follows a run, and hears what its model says from now on.
    #[must_use]
    pub fn follow_live(&self, run: RunId, after: Seq) -> Follower {
        Follower { live: Some(self.deltas.listen(run)), ..self.follow(run, after) }
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
        let (mut tick, listener) = (self.log.host.fixed.poll, self.listener.clone());
        loop {
            let mut woken = pin!(listener.changed());
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
                () = self.log.host.clock.sleep(tick) => (tick, self.seen) = (longer(tick), None),
            }
        }
    }

    /// What was appended behind the cursor. After a wake all readers of a run share one read, and without one there is
    /// nothing to read; at first, and after a tick, each looks for itself, because a wake may have been lost.
    async fn read(&mut self) -> Result<Vec<Vec<Envelope>>, EngineError> {
        let changes = self.listener.changes();
        let appends = match self.seen {
            None => {
                // Nothing is kept for readers who only wait.
                *self.listener.last_read.lock().await = None;
                self.log.appends(self.run, self.cursor).await?
            }
            Some(seen) if seen == changes => return Ok(Vec::new()),
            Some(_) => self.read_with_others(changes).await?,
        };
        self.seen = Some(changes);
        Ok(appends)
    }

    async fn read_with_others(&self, changes: u64) -> Result<Vec<Vec<Envelope>>, EngineError> {
        let mut last_read = self.listener.last_read.lock().await;
        let covers = |read: &&LastRead| read.changes >= changes && read.after <= self.cursor;
        if let Some(read) = last_read.as_ref().filter(covers) {
            return Ok(behind(self.cursor, &read.appends));
        }
        let changes = self.listener.changes();
        let appends = self.log.appends(self.run, self.cursor).await?;
        *last_read = Some(LastRead { changes, after: self.cursor, appends: appends.clone() });
        Ok(appends)
    }

    /// Waits until somebody is needed, also by a sub-run, or the run has ended. A run that only outside systems can move
    /// is still at work.
    pub(crate) async fn needs_somebody(self, mut rest: Option<RestTicket>) -> Result<Snapshot, EngineError> {
        let poll = self.log.host.fixed.poll;
        let (mut tick, mut is_first) = (poll, true);
        loop {
            let mut rested = pin!(self.listener.rested());
            rested.as_mut().enable();
            let mut has_children = false;
            if let Some(found) = self.unless_it_goes_on(&mut rest, std::mem::take(&mut is_first)).await? {
                match status(found.run()) {
                    Status::Held(WaitKind::Person | WaitKind::Auth) | Status::Ended(_) => return Ok(found),
                    Status::Held(WaitKind::External) => {
                        let below = self.log.holds_below(found.run()).await?;
                        if below.iter().any(|(_, kind)| *kind != HoldKind::External) {
                            return Ok(found);
                        }
                    }
                    Status::Queued | Status::Claimed | Status::Working | Status::Retrying(_) => {}
                }
                // What happens in a sub-run wakes nobody here.
                has_children = found.run().state.holds.iter().any(|hold| hold.child.is_some());
            }
            tokio::select! {
                () = rested => {}
                () = self.log.host.clock.sleep(tick) => {
                    tick = if has_children { poll } else { longer(tick) };
                }
            }
        }
    }

    /// Waits until the run waits or ends. Looks at its row only: nobody's log is read for it.
    pub(crate) async fn settles(self, mut rest: Option<RestTicket>) -> Result<Snapshot, EngineError> {
        let (mut tick, mut is_first) = (self.log.host.fixed.poll, true);
        loop {
            let mut rested = pin!(self.listener.rested());
            rested.as_mut().enable();
            if let Some(found) = self.unless_it_goes_on(&mut rest, std::mem::take(&mut is_first)).await? {
                match status(found.run()) {
                    Status::Held(_) | Status::Ended(_) => return Ok(found),
                    Status::Queued | Status::Claimed | Status::Working | Status::Retrying(_) => {}
                }
            }
            tokio::select! {
                biased;
                () = rested => {}
                () = self.log.host.clock.sleep(tick) => tick = longer(tick),
            }
        }
    }

    /// What whoever drove the run left for its caller, or what is stored. None at first while it is driven here and known to go
    /// on: whoever drives it tells when it rests, so that nobody looks at it after each append.
    async fn unless_it_goes_on(
        &self,
        rest: &mut Option<RestTicket>,
        is_first: bool,
    ) -> Result<Option<Snapshot>, EngineError> {
        let state = rest.as_mut().map_or(RestState::Unknown, RestTicket::look);
        let goes_on = match state {
            RestState::Rests(rested) => {
                let RestedRun { row, log, decided } = *rested;
                let stored = StoredRun { row, lease: None };
                return Ok(Some(Snapshot::whole(self.log.clone(), stored, log, decided)));
            }
            RestState::GoesOn => true,
            RestState::Unknown => self.wakes.goes_on(self.run),
        };
        if is_first && goes_on {
            return Ok(None);
        }
        Ok(Some(Snapshot::new(self.log.clone(), self.log.load(self.run).await?)))
    }

    /// What happened since, in order; waits until there is something. Words of a reply come before the reply.
    pub async fn news(&mut self) -> Result<Vec<News>, EngineError> {
        let (mut tick, listener) = (self.log.host.fixed.poll, self.listener.clone());
        loop {
            // Registered before reading, so that nothing falls between the two.
            let mut woken = pin!(listener.changed());
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
                () = self.log.host.clock.sleep(tick) => (tick, self.seen) = (longer(tick), None),
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

fn drained(live: &mut Option<DeltaListener>) -> VecDeque<Delta> {
    live.as_mut().map(DeltaListener::drain).unwrap_or_default()
}

fn put_back(live: &mut Option<DeltaListener>, early: VecDeque<Delta>) {
    if let Some(live) = live {
        live.put_back(early);
    }
}

/// Waits for words. Those that belong where the reader is are passed on without a look at the store: whatever became of them
/// is behind them. None, when a look at the store has to come first.
async fn words(live: &mut Option<DeltaListener>, cursor: Seq) -> Vec<Delta> {
    let Some(live) = live else { return std::future::pending().await };
    live.next().await;
    let mut said = live.drain();
    let words = heard(&mut said, cursor).collect();
    live.put_back(said);
    words
}

//! A world for tests of stores: runs made by the real rules, kept by the backend under test.
//!
//! [`Scribe`] turns commands into batches and knows no store; [`World`] hands them to one and reads back. Names are
//! facts of the domain (`held_run`, `the_model_asks`). Everything is made from a seed: the same test makes the same
//! ids, salts and secrets every time.

mod scribe;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use standfast_core::apply;
use standfast_core::command::{Begin, Choice, Command, FinishCall, Resolve, Suspend, SuspendFor};
use standfast_core::digest;
use standfast_core::event::{Envelope, OrphanCause};
use standfast_core::hold::Ask;
use standfast_core::id::{CallNo, HoldId, HoldKey, RunId, Seq};
use standfast_core::link::{Contents, FIRST_PREVIOUS, Link};
use standfast_core::message::ToolResult;
use standfast_core::project::{self, HoldRow, RunRow};
use standfast_core::time::{Millis, Timestamp};

use super::{Backend, Factory};
use crate::sqlite::{PayloadSealer, WrappingKey};
use crate::{
    Audience, AudienceMember, Batch, Claim, ClaimedRun, HoldFilter, HoldQuery, Page, RunFilter, RunQuery,
    SessionKey, ShardSet, Store, StoreError, StoredRun,
};

pub use scribe::{
    BEGIN, LOOKUP, NODE, NewRun, OTHER_NODE, SHELL, Scribe, agent, as_seen, asked, model_reply, session,
    stored_call, tenant, tool, user, worker,
};
pub use waiting::block_on;

/// A backend with a store in it, and somebody who writes.
pub struct World {
    backend: Box<dyn Backend>,
    store: Option<Arc<dyn Store>>,
    /// Makes what is appended.
    pub scribe: Scribe,
}

impl World {
    /// A fresh, empty store.
    #[must_use]
    pub fn new(factory: &Factory) -> World {
        World::on(factory())
    }

    /// A store in this place.
    #[must_use]
    pub fn on(backend: Box<dyn Backend>) -> World {
        let store = Some(backend.open());
        World { backend, store, scribe: Scribe::new(1) }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> Arc<dyn Store> {
        self.store.clone().expect("a world has a store")
    }

    /// Closes the store and opens it again: what was acknowledged must still be there.
    pub fn reopen(&mut self) {
        drop(self.store.take());
        self.store = Some(self.backend.open());
    }

    /// The instant of whatever happens next.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.scribe.now
    }

    /// Lets time pass.
    pub fn later(&mut self, span: Millis) {
        self.scribe.now = self.scribe.now.plus(span);
    }

    /// Appends, and says what the store said.
    pub fn append(&self, batches: Vec<Batch>) -> Result<(), StoreError> {
        block_on(self.store().append(batches))
    }

    /// Appends one batch that must succeed; the run after it.
    pub fn write(&self, batch: Batch) -> RunRow {
        let row = batch.row.clone();
        assert_eq!(self.append(vec![batch]), Ok(()));
        row
    }

    /// Stores a new run.
    pub fn start(&mut self, new: &NewRun) -> RunRow {
        let batch = self.scribe.start(new);
        self.write(batch)
    }

    /// A run that waits for a node.
    pub fn queued_run(&mut self, agent: &str) -> RunRow {
        self.start(&NewRun::of(agent))
    }

    /// A run whose only call waits for approval, and its hold.
    pub fn held_run(&mut self, agent: &str) -> (RunRow, HoldId) {
        self.held(&NewRun::of(agent), &[])
    }

    /// A run whose only call waits for the approval of these.
    pub fn held(&mut self, new: &NewRun, audience: &[&str]) -> (RunRow, HoldId) {
        let row = self.start(new);
        let mut batch = self.scribe.reply(&row, &[SHELL]);
        let hold = the_hold(&batch.row);
        if !audience.is_empty() {
            let who = audience.iter().map(|one| AudienceMember((*one).to_owned())).collect();
            batch.puts.push(crate::SideWrite::Audience { hold, who });
        }
        (self.write(batch), hold)
    }

    /// A run that has ended.
    pub fn ended_run(&mut self, agent: &str) -> RunRow {
        let row = self.queued_run(agent);
        self.send(&row, &Command::Cancel { reason: None })
    }

    /// Sends a command that must be taken; the run after it.
    pub fn send(&mut self, row: &RunRow, command: &Command) -> RunRow {
        let batch = self.scribe.batch(row, command);
        self.write(batch)
    }

    /// The model asks for a call of each of these tools.
    pub fn the_model_asks(&mut self, row: &RunRow, tools: &[&str]) -> RunRow {
        let batch = self.scribe.reply(row, tools);
        self.write(batch)
    }

    /// Somebody decides a hold.
    pub fn decides(&mut self, row: &RunRow, hold: HoldId, wanted: Choice) -> RunRow {
        self.send(row, &resolve(hold.key, wanted))
    }

    /// A node starts a call, as the log holds it.
    pub fn begins(&mut self, row: &RunRow, call: u32) -> RunRow {
        let command = self.begin(row, call);
        self.send(row, &command)
    }

    /// A node is about to start a call, as the log holds it.
    #[must_use]
    pub fn begin(&self, row: &RunRow, call: u32) -> Command {
        let events = self.events(row.run.facts.id);
        begin(&events, CallNo(call), self.now())
    }

    /// A call that waits for something outside; the run and its hold.
    pub fn suspended_run(&mut self, agent: &str, kind: SuspendFor) -> (RunRow, HoldId) {
        let row = self.queued_run(agent);
        let row = self.the_model_asks(&row, &[LOOKUP]);
        let row = self.begins(&row, 1);
        let row = self.send(&row, &suspend(1, 1, kind));
        let hold = the_hold(&row);
        (row, hold)
    }

    /// A run that began a call of which nobody knows what it did.
    pub fn recovering_run(&mut self, agent: &str) -> (RunRow, HoldId) {
        let (row, hold) = self.held_run(agent);
        let row = self.decides(&row, hold, Choice::Approve);
        let row = self.begins(&row, 1);
        let row = self.send(
            &row,
            &Command::Orphan {
                call: CallNo(1),
                attempt: 1,
                node: NODE,
                why: OrphanCause::ServerLost,
                reconciled: None,
            },
        );
        let hold = the_hold(&row);
        (row, hold)
    }

    /// The run as stored.
    pub fn load(&self, run: RunId) -> Result<StoredRun, StoreError> {
        block_on(self.store().load(run))
    }

    /// All links of a run.
    #[must_use]
    pub fn links(&self, run: RunId) -> Vec<Link> {
        block_on(self.store().links(run, Seq(0), usize::MAX)).unwrap()
    }

    /// All events of a run.
    #[must_use]
    pub fn events(&self, run: RunId) -> Vec<Envelope> {
        events_of(&self.links(run))
    }

    /// The run is stored exactly as this row says, its chain verifies, and its events fold into it.
    #[track_caller]
    pub fn expect_stored(&self, row: &RunRow) {
        let run = row.run.facts.id;
        assert_eq!(self.load(run).map(|stored| stored.row), Ok(row.clone()));
        assert_eq!(checked(&*self.store(), run), Ok(row.clone()));
    }

    /// A hold by its id.
    #[must_use]
    pub fn find_hold(&self, hold: HoldId) -> Option<HoldRow> {
        block_on(self.store().find_hold(hold)).unwrap()
    }

    /// A page of runs.
    #[must_use]
    pub fn list_runs(&self, query: RunQuery) -> Page<RunRow> {
        block_on(self.store().list_runs(query)).unwrap()
    }

    /// Everything that a query for runs gives, following its cursors.
    #[must_use]
    pub fn all_runs(&self, query: &RunQuery) -> Vec<RunRow> {
        all_pages(|cursor| self.list_runs(RunQuery { cursor, ..query.clone() }))
    }

    /// Everything that a query for holds gives, following its cursors.
    #[must_use]
    pub fn all_holds(&self, query: &HoldQuery) -> Vec<HoldRow> {
        all_pages(|cursor| block_on(self.store().list_holds(HoldQuery { cursor, ..query.clone() })).unwrap())
    }

    /// What a node gets when it asks for this many due runs.
    pub fn claim(&self, limit: usize) -> Vec<ClaimedRun> {
        block_on(self.store().claim_due(self.asking(limit))).unwrap()
    }

    /// The runs that a node gets when it asks for this many.
    pub fn claimed(&self, limit: usize) -> Vec<RunId> {
        claimed_runs(&self.claim(limit))
    }

    /// A node asks for due runs, for a minute.
    #[must_use]
    pub fn asking(&self, limit: usize) -> Claim {
        let until = self.now().plus(Millis::seconds(60));
        Claim { node: NODE, now: self.now(), until, shards: ShardSet::all(), limit, room: Vec::new() }
    }
}

/// Follows the cursors of a list to its end.
pub fn all_pages<T>(page_at: impl Fn(Option<u64>) -> Page<T>) -> Vec<T> {
    let (mut items, mut cursor) = (Vec::new(), None);
    for _ in 0..100_000 {
        let page = page_at(cursor);
        items.extend(page.items);
        match page.next {
            Some(next) => cursor = Some(next),
            None => return items,
        }
    }
    panic!("the cursors of a list never end");
}

/// Reads a run completely: its chain verifies and its events fold into its row, or what is wrong.
pub fn checked(store: &dyn Store, run: RunId) -> Result<RunRow, String> {
    let stored = block_on(store.load(run)).map_err(|error| error.to_string())?;
    let links = block_on(store.links(run, Seq(0), usize::MAX)).map_err(|error| error.to_string())?;
    verify(&links)?;
    let head = links.last().map(|link| link.hash).ok_or("no links")?;
    if links.iter().any(|link| matches!(link.contents, Contents::Erased { .. })) {
        return Ok(stored.row);
    }
    let folded = apply::fold(run, &events_of(&links)).ok_or("the events do not begin a run")?;
    if project::run_row(folded, head) == stored.row {
        Ok(stored.row)
    } else {
        Err(format!("run {run}: its events do not fold into its row"))
    }
}

/// The links are a chain.
pub fn verify(links: &[Link]) -> Result<(), String> {
    let (mut previous, mut wanted) = (FIRST_PREVIOUS, Seq(1));
    for link in links {
        link.verify(previous, wanted).map_err(|bad| bad.to_string())?;
        link.events().map_err(|bad| bad.to_string())?;
        (previous, wanted) = (link.hash, link.next());
    }
    Ok(())
}

/// The events of these links.
#[must_use]
pub fn events_of(links: &[Link]) -> Vec<Envelope> {
    links.iter().flat_map(|link| link.events().unwrap()).collect()
}

/// The ids of runs that were claimed.
#[must_use]
pub fn claimed_runs(claimed: &[ClaimedRun]) -> Vec<RunId> {
    let run = |claimed: &ClaimedRun| match claimed {
        ClaimedRun::Run { stored, .. } => stored.row.run.facts.id,
        ClaimedRun::Corrupt { run, why } => panic!("run {run} is corrupt: {why}"),
    };
    claimed.iter().map(run).collect()
}

/// The ids of runs.
#[must_use]
pub fn ids(rows: &[RunRow]) -> Vec<RunId> {
    rows.iter().map(|row| row.run.facts.id).collect()
}

/// The ids of holds.
#[must_use]
pub fn hold_ids(rows: &[HoldRow]) -> Vec<HoldId> {
    rows.iter().map(|row| row.id).collect()
}

/// The only open hold of a run.
#[must_use]
#[track_caller]
pub fn the_hold(row: &RunRow) -> HoldId {
    let [hold] = row.run.state.holds.as_slice() else { panic!("not one hold: {:?}", row.run.state.holds) };
    HoldId { run: row.run.facts.id, key: hold.key }
}

/// The row of an open hold, as the core makes it.
#[must_use]
pub fn hold_row(row: &RunRow, hold: HoldId) -> HoldRow {
    project::hold_row(&row.run, row.run.hold(hold.key).expect("the hold is open"))
}

/// All runs of the usual tenant.
#[must_use]
pub fn runs_by(filter: RunFilter) -> RunQuery {
    RunQuery { tenant: tenant("default"), filter, phases: Vec::new(), since: None, cursor: None, limit: 50 }
}

/// All open holds of the usual tenant.
#[must_use]
pub fn holds_by(filter: HoldFilter) -> HoldQuery {
    let (audience, kinds) = (Audience::Everyone, Vec::new());
    HoldQuery { tenant: tenant("default"), audience, filter, kinds, cursor: None, limit: 50 }
}

/// The conversation of a run.
#[must_use]
pub fn session_of(row: &RunRow) -> SessionKey {
    SessionKey::of(&row.run.facts)
}

/// Somebody decides a hold as they saw it.
#[must_use]
pub fn resolve(hold: HoldKey, resolution: Choice) -> Command {
    Command::Resolve(Resolve { decide: as_seen(hold), resolution, idempotency_key: None, message: None })
}

/// A node is about to start a call, as these events hold it.
#[must_use]
pub fn begin(events: &[Envelope], call: CallNo, now: Timestamp) -> Command {
    let stored = stored_call(events, call).expect("the log has the call");
    let start_by = now.plus(Millis::seconds(30));
    Command::Begin(Begin { call, node: NODE, start_by, stored, pending: None })
}

/// A call is done.
#[must_use]
pub fn finish(call: u32, attempt: u32, text: &str) -> Command {
    let result = ToolResult::Ok(standfast_core::body::Body::text(text));
    Command::FinishCall(FinishCall { call: CallNo(call), attempt, result, worker: Some(worker("w-1")) })
}

/// A call, or the run (call 0), waits for something outside.
#[must_use]
pub fn suspend(call: u32, attempt: u32, kind: SuspendFor) -> Command {
    let worker = Some(worker("w-1"));
    Command::Suspend(Suspend {
        call: CallNo(call),
        attempt,
        kind,
        ask: Ask::default(),
        timeout: None,
        secret: None,
        worker,
    })
}

/// Payloads sealed with keys that are made from their ids.
#[must_use]
pub fn sealing(file: &std::path::Path, ids: &[&str]) -> PayloadSealer {
    let key = |id: &&str| WrappingKey::new(*id, &digest::of_bytes(id.as_bytes()).0);
    PayloadSealer { file: file.to_owned(), keys: ids.iter().map(key).collect(), random: drawn }
}

/// Bytes that are never the same again within a process: a test needs no more.
fn drawn() -> [u8; 32] {
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    digest::of_bytes(&DRAWN.fetch_add(1, Ordering::Relaxed).to_be_bytes()).0
}

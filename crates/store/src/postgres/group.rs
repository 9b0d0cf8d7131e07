//! What a group of appends reads, and what it writes.
//!
//! Everything that can refuse an append is read under locks first. Then the appends are judged one after the other on
//! that picture, each seeing what those before it did, and what is left to write is the difference.

use std::collections::{BTreeMap, HashMap};

use standfast_core::digest::Digest;
use standfast_core::id::{RunId, Seq, Shard};
use standfast_core::name::Tenant;
use standfast_core::time::Timestamp;
use tokio_postgres::Row;

use super::rows::{column, digest, instant, lease, seq};
use super::types::Bytes16;
use crate::batch::{Batch, Guard, Notice, SideWrite};
use crate::columns::{self, CorruptRow, LeaseColumns};
use crate::error::StoreError;
use crate::query::{Lease, SessionKey};
use crate::subscription::Scope;

/// A batch with its fold as it is stored.
#[derive(Debug)]
pub(super) struct EncodedBatch {
    pub(super) batch: Batch,
    pub(super) state: String,
}

impl EncodedBatch {
    pub(super) fn new(batch: Batch) -> EncodedBatch {
        let state = columns::json(&batch.row.run.state);
        EncodedBatch { batch, state }
    }
}

/// What an append needs to know of a run, and changes.
#[derive(Debug, Clone)]
pub(super) struct RunPosition {
    /// None for a run that is created now.
    pub(super) no: Option<i64>,
    pub(super) tenant: String,
    pub(super) agent: String,
    pub(super) shard: Shard,
    pub(super) seq: Seq,
    pub(super) head: Digest,
    pub(super) lease: Option<Lease>,
    pub(super) wake_at: Option<Timestamp>,
    wants_at: Option<Timestamp>,
    pub(super) due_at: Option<Timestamp>,
    /// As the database has it.
    pub(super) due_before: Option<Timestamp>,
    pub(super) is_written: bool,
    pub(super) is_woken: bool,
    /// Nothing follows: little is gained by remembering it.
    pub(super) is_over: bool,
}

/// What an idempotency key was used for.
#[derive(Debug, Clone)]
pub(super) struct KeyUse {
    pub(super) run: RunId,
    /// Set when this group uses it: what is to be written.
    pub(super) written: Option<(Digest, Seq, Timestamp)>,
}

pub(super) type TenantKey = (String, Vec<u8>);

/// The picture that appends are judged on.
#[derive(Debug, Default)]
pub(super) struct Picture {
    pub(super) places: BTreeMap<RunId, RunPosition>,
    broken: HashMap<RunId, String>,
    pub(super) keys: BTreeMap<TenantKey, KeyUse>,
    /// Keys that only this group has put in, to keep others from them.
    pub(super) reserved: Vec<TenantKey>,
    /// As they are, and whether they changed.
    pub(super) counters: BTreeMap<TenantKey, (i64, bool)>,
    closed: Vec<SessionKey>,
    /// Who listens, by tenant and topic, with the kinds of events that they want.
    listeners: HashMap<(String, String), Vec<Listener>>,
}

/// A subscription that an append may put a notice for.
#[derive(Debug)]
struct Listener {
    id: String,
    owner: String,
    wants: u64,
}

/// What has to be read to judge these appends.
#[derive(Debug, Default)]
pub(super) struct GroupReads {
    pub(super) runs: Vec<Bytes16>,
    pub(super) guarded_keys: Vec<TenantKey>,
    pub(super) counters: Vec<TenantKey>,
    pub(super) sessions: Vec<SessionKey>,
    /// Tenants and topics that somebody may listen to.
    pub(super) topics: Vec<(String, String)>,
}

impl GroupReads {
    pub(super) fn of<'a>(batches: impl Iterator<Item = &'a Batch>) -> GroupReads {
        let mut wanted = GroupReads::default();
        for batch in batches {
            wanted.runs.push(batch.run().into());
            let tenant = batch.tenant().as_str().to_owned();
            for scope in Scope::of_batch(batch) {
                wanted.topics.push((tenant.clone(), scope.topic()));
            }
            for guard in &batch.guards {
                match guard {
                    Guard::KeyUnused { key } => {
                        wanted.guarded_keys.push((tenant.clone(), key.clone().into_bytes()));
                    }
                    Guard::CounterWithin { counter, .. } => {
                        wanted.counters.push((tenant.clone(), counter.clone().into_bytes()));
                    }
                    Guard::SessionOpen { session } => wanted.sessions.push(session.clone()),
                    // The run is read anyway.
                    Guard::NotLeased { .. } => {}
                }
            }
            for put in &batch.puts {
                if let SideWrite::Wake { run, .. } = put {
                    wanted.runs.push((*run).into());
                }
            }
        }
        // Everyone locks in the same order.
        wanted.runs.sort_unstable();
        wanted.runs.dedup();
        wanted.guarded_keys.sort_unstable();
        wanted.guarded_keys.dedup();
        wanted.counters.sort_unstable();
        wanted.counters.dedup();
        wanted.sessions.sort_unstable();
        wanted.sessions.dedup();
        wanted.topics.sort_unstable();
        wanted.topics.dedup();
        wanted
    }
}

/// Judged, but not yet part of the picture.
struct JudgedCounters {
    counters: HashMap<TenantKey, i64>,
}

impl Picture {
    /// A picture of these runs, to which nobody listens.
    pub(super) fn of(places: BTreeMap<RunId, RunPosition>) -> Picture {
        Picture { places, ..Picture::default() }
    }

    pub(super) fn is_listened_to(&self) -> bool {
        !self.listeners.is_empty()
    }

    pub(super) fn saw_run(&mut self, row: &Row) -> Result<(), StoreError> {
        let id: Bytes16 = column(row, 0).map_err(unreadable)?;
        match RunPosition::read(id.run(), row) {
            Ok(place) => {
                self.places.insert(id.run(), place);
            }
            Err(CorruptRow(why)) => {
                self.broken.insert(id.run(), why);
            }
        }
        Ok(())
    }

    pub(super) fn saw_key(&mut self, row: &Row) -> Result<(), StoreError> {
        let run: Bytes16 = column(row, 2).map_err(unreadable)?;
        let name = named(row)?;
        if !self.reserved.contains(&name) {
            self.keys.insert(name, KeyUse { run: run.run(), written: None });
        }
        Ok(())
    }

    pub(super) fn reserved_key(&mut self, row: &Row) -> Result<(), StoreError> {
        self.reserved.push(named(row)?);
        Ok(())
    }

    pub(super) fn saw_counter(&mut self, row: &Row) -> Result<(), StoreError> {
        self.counters.insert(named(row)?, (column(row, 2).map_err(unreadable)?, false));
        Ok(())
    }

    pub(super) fn saw_session(&mut self, row: &Row, wanted: &[SessionKey]) -> Result<(), StoreError> {
        let name = |at| column::<&str>(row, at).map_err(unreadable);
        let (tenant, agent, session, owner) = (name(0)?, name(1)?, name(2)?, name(3)?);
        let is_it = |key: &&SessionKey| {
            key.tenant.as_str() == tenant
                && key.agent.as_str() == agent
                && key.session.as_str() == session
                && key.owner.as_str() == owner
        };
        if column::<bool>(row, 4).map_err(unreadable)? {
            self.closed.extend(wanted.iter().find(is_it).cloned());
        }
        Ok(())
    }

    pub(super) fn saw_listener(&mut self, row: &Row) -> Result<(), StoreError> {
        let text = |at| column::<String>(row, at).map_err(unreadable);
        let wants: i64 = column(row, 3).map_err(unreadable)?;
        let listeners = self.listeners.entry((text(0)?, text(1)?)).or_default();
        listeners.push(Listener { id: text(2)?, owner: text(4)?, wants: wants.cast_unsigned() });
        Ok(())
    }

    /// The notices of a batch, one for each subscription to it.
    pub(super) fn wanted_notices(&self, batch: &Batch) -> Vec<Notice> {
        if self.listeners.is_empty() {
            return Vec::new();
        }
        let topics = Scope::of_batch(batch).map(|scope| (batch.tenant().as_str().to_owned(), scope.topic()));
        let who = topics.iter().filter_map(|topic| self.listeners.get(topic)).flatten();
        let mut who: Vec<&Listener> = who.filter(|one| one.wants & batch.tells != 0).collect();
        who.sort_unstable_by_key(|one| &one.id);
        who.into_iter().map(|one| Notice::of_batch(batch, one.id.clone(), one.owner.clone())).collect()
    }

    /// Judges one append and makes it part of the picture, or refuses it and leaves the picture as it was.
    pub(super) fn take(&mut self, batches: &[EncodedBatch]) -> Result<(), StoreError> {
        let judged = self.judge(batches)?;
        for (name, value) in judged.counters {
            self.counters.insert(name, (value, true));
        }
        batches.iter().for_each(|encoded| self.add(&encoded.batch));
        Ok(())
    }

    fn judge(&self, batches: &[EncodedBatch]) -> Result<JudgedCounters, StoreError> {
        for (at, EncodedBatch { batch, .. }) in batches.iter().enumerate() {
            self.check_expected(batch)?;
            // Of two batches of one run the second was decided on a state that the first one changes.
            if batches.iter().take(at).any(|earlier| earlier.batch.run() == batch.run()) {
                return Err(StoreError::Conflict { run: batch.run() });
            }
        }
        let mut judged = JudgedCounters { counters: HashMap::new() };
        let guards = batches.iter().flat_map(|e| e.batch.guards.iter().map(move |guard| (&e.batch, guard)));
        for (which, (batch, guard)) in guards.enumerate() {
            let checked = self.check_guard(batch, guard, &mut judged);
            checked.map_err(|why| StoreError::Guard { which, why })?;
        }
        Ok(judged)
    }

    fn check_expected(&self, batch: &Batch) -> Result<(), StoreError> {
        let run = batch.run();
        if let Some(why) = self.broken.get(&run) {
            return Err(StoreError::Corrupt { run, why: why.clone() });
        }
        match (self.places.get(&run), batch.expected.seq) {
            (None, Seq(0)) => Ok(()),
            (None, _) => Err(StoreError::NotFound { run }),
            (Some(_), Seq(0)) => Err(StoreError::Conflict { run }),
            (Some(found), seq) if found.seq == seq && found.head == batch.expected.head => Ok(()),
            (Some(_), _) => Err(StoreError::Conflict { run }),
        }
    }

    fn check_guard(&self, batch: &Batch, guard: &Guard, judged: &mut JudgedCounters) -> Result<(), String> {
        let name = |text: &str| (batch.tenant().as_str().to_owned(), text.as_bytes().to_vec());
        match guard {
            Guard::KeyUnused { key } => match self.keys.get(&name(key)) {
                Some(used) => Err(format!("the key was used for run {}", used.run)),
                None => Ok(()),
            },
            Guard::CounterWithin { counter, add, max } => {
                let name = name(counter);
                let stored = || self.counters.get(&name).map(|(value, _)| *value);
                let now = judged.counters.get(&name).copied().or_else(stored).unwrap_or(0);
                let after = now.saturating_add(*add);
                if after > *max {
                    return Err(format!("{counter} is at {now} of {max}"));
                }
                judged.counters.insert(name, after);
                Ok(())
            }
            Guard::SessionOpen { session } => {
                if self.closed.contains(session) {
                    Err(format!("session {} is closed", session.session))
                } else {
                    Ok(())
                }
            }
            Guard::NotLeased { node, now } => {
                let lease = self.places.get(&batch.run()).and_then(|place| place.lease);
                Guard::leased(lease, *node, *now).map_or(Ok(()), Err)
            }
        }
    }

    fn add(&mut self, batch: &Batch) {
        let (run, row) = (batch.run(), &batch.row);
        let before = self.places.get(&run);
        let wake_at = before.and_then(|place| place.wake_at);
        let after =
            LeaseColumns::after(batch.lease, before.and_then(|place| place.lease), wake_at, row.due_at);
        let facts = &row.run.facts;
        let place = RunPosition {
            no: before.and_then(|place| place.no),
            tenant: facts.tenant.as_str().to_owned(),
            agent: facts.agent.as_str().to_owned(),
            shard: run.shard(&facts.tenant),
            seq: row.run.state.seq,
            head: row.head,
            lease: after.node.zip(after.until).map(|(node, until)| Lease { node, until }),
            wake_at: after.wake_at,
            wants_at: row.due_at,
            due_at: after.due_at,
            due_before: before.and_then(|place| place.due_before),
            is_written: true,
            is_woken: false,
            is_over: row.run.outcome().is_some(),
        };
        self.places.insert(run, place);
        for put in &batch.puts {
            match put {
                SideWrite::Key { key, request, expires_at } => {
                    let name = (batch.tenant().as_str().to_owned(), key.clone().into_bytes());
                    let written = Some((*request, row.run.state.seq, *expires_at));
                    self.keys.insert(name, KeyUse { run, written });
                }
                SideWrite::Wake { run, at } => self.wake(*run, *at),
                SideWrite::Notice(_)
                | SideWrite::Audience { .. }
                | SideWrite::Blob(_)
                | SideWrite::Definition { .. } => {}
            }
        }
    }

    /// A run that is not there, or cannot be read, wakes nobody up, and is no reason to refuse whoever wakes it.
    fn wake(&mut self, run: RunId, at: Timestamp) {
        let Some(place) = self.places.get_mut(&run) else { return };
        place.wake_at = Some(place.wake_at.map_or(at, |wake| wake.min(at)));
        place.due_at = match place.lease {
            Some(lease) => Some(lease.until),
            None => [place.wants_at, place.wake_at].into_iter().flatten().min(),
        };
        place.is_woken = true;
    }
}

impl RunPosition {
    /// The order is that of `RUNS_LOCK`.
    fn read(run: RunId, row: &Row) -> Result<RunPosition, CorruptRow> {
        if let Some(why) = column::<Option<String>>(row, 11)? {
            return Err(CorruptRow(why));
        }
        let tenant = Tenant::new(column::<&str>(row, 2)?)?;
        let due_at = instant(row, 10)?;
        Ok(RunPosition {
            no: Some(column(row, 1)?),
            tenant: tenant.as_str().to_owned(),
            agent: column(row, 3)?,
            shard: run.shard(&tenant),
            seq: seq(row, 4)?,
            head: digest(row, 5)?,
            lease: lease(row, 6, 7)?,
            wake_at: instant(row, 8)?,
            wants_at: instant(row, 9)?,
            due_at,
            due_before: due_at,
            is_written: false,
            is_woken: false,
            is_over: false,
        })
    }

    /// As the next group finds it.
    pub(super) fn at_rest(self, no: Option<i64>) -> RunPosition {
        RunPosition { no, due_before: self.due_at, is_written: false, is_woken: false, ..self }
    }
}

fn named(row: &Row) -> Result<TenantKey, StoreError> {
    Ok((column(row, 0).map_err(unreadable)?, column(row, 1).map_err(unreadable)?))
}

fn unreadable(corrupt: CorruptRow) -> StoreError {
    StoreError::unavailable(corrupt.0)
}

//! Leases and due work, notices and conversations: the writer's smaller jobs.
//!
//! They share the writer's transaction with appends, so a lease and an append never see half of each other.

use rusqlite::{Connection, OptionalExtension, Row, params};
use standfast_core::digest::Digest;
use standfast_core::id::{HoldKey, Incarnation, RunId, Seq};
use standfast_core::name::Tenant;
use standfast_core::project::RunRow;
use standfast_core::run::FOLD_VERSION;
use standfast_core::time::Timestamp;

use super::append::{id_of, run_number};
use super::conversations::session_row;
use super::job::Failure;
use super::names::Texts;
use super::rows::RunColumns;
use super::sql;
use super::tally::Tally;
use super::writer_memory::{AppendIndex, HoldPosition, WriterMemory};
use crate::audit::entry_hash;
use crate::batch::LeaseChange;
use crate::columns::{CorruptRow, LeaseColumns};
use crate::error::StoreError;
use crate::fairness::take_turns;
use crate::query::{Claim, ClaimedRun, KeyNote, Lease, SCAN_MAX, SealedChange, SessionChange, SessionKey};
use crate::row_audit::RowEntry;

/// What the writer needs to know of a run before it changes it.
#[derive(Debug, Clone)]
pub(super) struct RunPosition {
    pub(super) no: i64,
    pub(super) seq: Seq,
    pub(super) head: Digest,
    node: Option<Incarnation>,
    until: Option<Timestamp>,
    pub(super) wake_at: Option<Timestamp>,
    pub(super) due_at: Option<Timestamp>,
    pub(super) phase: i64,
    /// Open holds that were just written.
    pub(super) holds: Vec<HoldPosition>,
    /// The append whose row is not written yet.
    pub(super) unwritten: Option<AppendIndex>,
}

impl RunPosition {
    /// The row of a run, if there is one; a row that cannot be read is corrupt, and no failure of the database.
    pub(super) fn find(connection: &Connection, run: RunId) -> Result<Option<RunPosition>, Failure> {
        let mut statement = connection.prepare_cached(sql::RUN_PLACE)?;
        let place = statement.query_row(params![run.bytes()], |row| Ok(RunPosition::read(row))).optional()?;
        match place.transpose().map_err(|error| CorruptRow::from(error).of(run))? {
            Some(Err(quarantined)) => Err(quarantined.of(run).into()),
            Some(Ok(place)) => Ok(Some(place)),
            None => Ok(None),
        }
    }

    /// The same, remembered.
    pub(super) fn look_up<'m>(
        connection: &Connection,
        memory: &'m mut WriterMemory,
        run: RunId,
    ) -> Result<Option<&'m mut RunPosition>, Failure> {
        if memory.runs.get(run).is_none()
            && let Some(found) = RunPosition::find(connection, run)?
        {
            memory.runs.put(run, found);
        }
        Ok(memory.runs.get(run))
    }

    /// A run that was just added.
    pub(super) fn new(no: i64, row: &RunRow, lease: &LeaseColumns) -> RunPosition {
        let mut position = RunPosition {
            no,
            seq: Seq(0),
            head: row.head,
            node: None,
            until: None,
            wake_at: None,
            due_at: None,
            phase: 0,
            holds: Vec::new(),
            unwritten: None,
        };
        position.follow(row, lease);
        position
    }

    /// The run after an append.
    pub(super) fn follow(&mut self, row: &RunRow, lease: &LeaseColumns) {
        self.seq = row.run.state.seq;
        self.head = row.head;
        self.node = lease.node;
        self.until = lease.until;
        self.wake_at = lease.wake_at;
        self.due_at = lease.due_at;
        self.phase = i64::from(row.phase as u8);
    }

    /// An open hold, which is remembered no longer.
    pub(super) fn take_hold(&mut self, key: HoldKey) -> Option<HoldPosition> {
        let at = self.holds.iter().position(|hold| hold.key == key)?;
        Some(self.holds.swap_remove(at))
    }

    /// Its lease as it is stored.
    pub(super) fn columns(&self) -> LeaseColumns {
        LeaseColumns { node: self.node, until: self.until, wake_at: self.wake_at, due_at: self.due_at }
    }

    /// A row; what is wrong with it, if it was quarantined.
    fn read(row: &Row<'_>) -> rusqlite::Result<Result<RunPosition, CorruptRow>> {
        if let Some(why) = row.get(8)? {
            return Ok(Err(CorruptRow(why)));
        }
        Ok(Ok(RunPosition {
            no: row.get(0)?,
            seq: Seq(row.get(1)?),
            head: Digest(row.get(2)?),
            node: row.get::<_, Option<[u8; 16]>>(3)?.map(Incarnation),
            until: row.get::<_, Option<i64>>(4)?.map(Timestamp),
            wake_at: row.get::<_, Option<i64>>(5)?.map(Timestamp),
            due_at: row.get::<_, Option<i64>>(6)?.map(Timestamp),
            phase: row.get(7)?,
            holds: Vec::new(),
            unwritten: None,
        }))
    }

    pub(super) fn lease(&self) -> Option<Lease> {
        self.node.zip(self.until).map(|(node, until)| Lease { node, until })
    }
}

pub(super) fn claim_due(
    connection: &Connection,
    memory: &mut WriterMemory,
    texts: &Texts,
    claim: &Claim,
) -> Result<Vec<ClaimedRun>, Failure> {
    let mut rooms = Vec::with_capacity(claim.room.len());
    for (tenant, agent, room) in &claim.room {
        let tenant = memory.number(connection, tenant.as_str())?;
        rooms.push(((tenant, memory.number(connection, agent.as_str())?), *room));
    }
    let mut queues = Vec::new();
    let mut lane = (i64::MIN, i64::MIN);
    while let Some(next) = next_lane(connection, lane)? {
        lane = next;
        let room = rooms.iter().find(|(of, _)| *of == lane).map_or(claim.limit, |(_, room)| *room);
        if room > 0 {
            queues.push(due_in_lane(connection, texts, lane, (claim, room.min(claim.limit)))?);
        }
    }
    let mut claimed = Vec::new();
    for no in take_turns(queues, claim.limit) {
        claimed.extend(lease(connection, memory, texts, (no, claim))?);
    }
    Ok(claimed)
}

/// The numbers of a tenant and an agent: turns are taken by both.
type Lane = (i64, i64);

fn next_lane(connection: &Connection, (tenant, agent): Lane) -> rusqlite::Result<Option<Lane>> {
    let mut statement = connection.prepare_cached(sql::DUE_NEXT_AGENT)?;
    statement.query_row(params![tenant, agent], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

fn due_in_lane(
    connection: &Connection,
    texts: &Texts,
    (tenant, agent): Lane,
    (claim, room): (&Claim, usize),
) -> rusqlite::Result<Vec<(Timestamp, i64)>> {
    let name = texts.text(connection, tenant).ok().and_then(|name| Tenant::new(name).ok());
    let mut statement = connection.prepare_cached(sql::DUE_OF_AGENT)?;
    let mut rows = statement.query(params![tenant, agent, claim.now.0, SCAN_MAX, FOLD_VERSION])?;
    let mut queue = Vec::new();
    while let Some(row) = rows.next()? {
        // A row that names no run or tenant belongs to nobody's shard: whoever comes first says that it is corrupt.
        let run = row.get(1).ok().map(RunId::from_bytes);
        let shard = run.zip(name.as_ref()).map(|(run, tenant)| run.shard(tenant));
        if shard.is_none_or(|shard| claim.shards.contains(shard)) {
            queue.push((Timestamp(row.get(2)?), row.get(0)?));
        }
        if queue.len() >= room {
            break;
        }
    }
    Ok(queue)
}

fn lease(
    connection: &Connection,
    memory: &mut WriterMemory,
    texts: &Texts,
    (no, claim): (i64, &Claim),
) -> Result<Option<ClaimedRun>, Failure> {
    let columns =
        connection.prepare_cached(sql::RUN_BY_NUMBER)?.query_row(params![no], RunColumns::read).optional()?;
    let Some(columns) = columns else { return Ok(None) };
    memory.runs.forget(columns.id);
    match columns.stored(connection, texts) {
        Ok(mut stored) => {
            let (node, until, from) = (claim.node, claim.until, stored.lease);
            let after = LeaseColumns::after(LeaseChange::Take { node, until }, None, None, None);
            write_lease(connection, no, &after)?;
            stored.lease = Some(Lease { node, until });
            Ok(Some(ClaimedRun::Run { stored: Box::new(stored), from }))
        }
        // Not asked for: a newer node will take it, this one leaves it alone.
        Err(StoreError::Newer { .. }) => Ok(None),
        Err(StoreError::Corrupt { run, why }) => {
            // Its row stays as it is, except that nobody looks at it any more, or it would come up for ever.
            connection.prepare_cached(sql::DUE_CLEAR)?.execute(params![no])?;
            Ok(Some(ClaimedRun::Corrupt { run, why }))
        }
        Err(other) => Err(other.into()),
    }
}

pub(super) fn renew(
    connection: &Connection,
    memory: &mut WriterMemory,
    runs: &[RunId],
    node: Incarnation,
    until: Timestamp,
) -> Result<Vec<RunId>, Failure> {
    let mut still = Vec::new();
    for run in runs {
        memory.runs.forget(*run);
        let Some(place) = unless_corrupt(leased_by(connection, *run, node))? else { continue };
        let after =
            LeaseColumns::after(LeaseChange::Take { node, until }, place.lease(), place.wake_at, None);
        write_lease(connection, place.no, &after)?;
        still.push(*run);
    }
    Ok(still)
}

pub(super) fn release(
    connection: &Connection,
    memory: &mut WriterMemory,
    texts: &Texts,
    run: RunId,
    node: Incarnation,
    wake_at: Option<Timestamp>,
) -> Result<(), Failure> {
    memory.runs.forget(run);
    let Some(place) = leased_by(connection, run, node)? else { return Ok(()) };
    let columns =
        connection.prepare_cached(sql::RUN_BY_NUMBER)?.query_row(params![place.no], RunColumns::read)?;
    let stored = columns.stored(connection, texts)?;
    let wake_at = [place.wake_at, wake_at].into_iter().flatten().min();
    let after = LeaseColumns::after(LeaseChange::Release, place.lease(), wake_at, stored.row.due_at);
    write_lease(connection, place.no, &after)?;
    Ok(())
}

/// Another run's end wants this one looked at.
pub(super) fn wake(
    connection: &Connection,
    memory: &mut WriterMemory,
    run: RunId,
    at: Timestamp,
) -> Result<(), Failure> {
    // A run that cannot be read wakes nobody up, and is no reason to refuse whoever wakes it.
    let Some(place) = unless_corrupt(RunPosition::look_up(connection, memory, run))? else { return Ok(()) };
    place.wake_at = Some(place.wake_at.map_or(at, |wake| wake.min(at)));
    place.due_at = match place.lease() {
        Some(lease) => Some(lease.until),
        None => [place.due_at, place.wake_at].into_iter().flatten().min(),
    };
    // Otherwise it is written with the rest of its row.
    if place.unwritten.is_none() {
        write_lease(connection, place.no, &place.columns())?;
    }
    Ok(())
}

fn leased_by(connection: &Connection, run: RunId, node: Incarnation) -> Result<Option<RunPosition>, Failure> {
    let place = RunPosition::find(connection, run)?;
    Ok(place.filter(|place| place.node == Some(node)))
}

/// What cannot be read is treated as if it were not there.
fn unless_corrupt<T>(place: Result<Option<T>, Failure>) -> Result<Option<T>, Failure> {
    match place {
        Err(Failure::Refused(StoreError::Corrupt { .. })) => Ok(None),
        other => other,
    }
}

fn write_lease(connection: &Connection, no: i64, lease: &LeaseColumns) -> rusqlite::Result<()> {
    connection.prepare_cached(sql::RUN_LEASE)?.execute(params![
        no,
        lease.node.map(|node| node.0),
        lease.until.map(|at| at.0),
        lease.wake_at.map(|at| at.0),
        lease.due_at.map(|at| at.0),
    ])?;
    Ok(())
}

/// Puts a run aside; says what that changes of the memory.
pub(super) fn quarantine(connection: &Connection, run: RunId, why: &str) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let no = run_number(connection, run)?.ok_or(StoreError::NotFound { run })?;
    let counted = connection
        .prepare_cached(sql::RUN_PHASE)?
        .query_row(params![no], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    // The first reason is the one that counts.
    if let Some((tenant, phase)) = counted {
        tally.moved(tenant, Some(phase), None);
        connection.prepare_cached(sql::RUN_QUARANTINE)?.execute(params![no, why])?;
    }
    Ok(tally)
}

/// Keeps or forgets keys apart from any append.
pub(super) fn note_keys(
    connection: &Connection,
    memory: &mut WriterMemory,
    notes: &[KeyNote],
) -> Result<(), Failure> {
    for note in notes {
        let tenant = memory.number(connection, note.tenant.as_str())?;
        match note.kept {
            Some((request, expires_at)) => {
                let Some(run) = run_number(connection, note.run)? else { continue };
                let refreshed = KeyNote::REFRESHED_MILLIS;
                let row = params![tenant, note.key, request.0, run, expires_at.0, refreshed];
                connection.prepare_cached(sql::KEY_NOTE)?.execute(row)?;
            }
            None => {
                connection.prepare_cached(sql::KEY_REMOVE)?.execute(params![tenant, note.key])?;
            }
        }
    }
    Ok(())
}

pub(super) fn forget_keys(connection: &Connection, until: Timestamp, limit: usize) -> Result<usize, Failure> {
    Ok(connection.prepare_cached(sql::KEYS_FORGET)?.execute(params![until.0, limit])?)
}

pub(super) fn change_session(
    connection: &Connection,
    memory: &mut WriterMemory,
    key: &SessionKey,
    change: &SessionChange,
    at: Timestamp,
) -> Result<bool, Failure> {
    let Some(no) = session_row(connection, memory, key)? else { return Ok(false) };
    memory.forget_session(key);
    let changed = match change {
        SessionChange::Metadata { before, after } => {
            connection.prepare_cached(sql::SESSION_METADATA)?.execute(params![no, before, after, at.0])?
        }
        SessionChange::Close => connection.prepare_cached(sql::SESSION_CLOSE)?.execute(params![no])?,
    };
    if changed > 0 && change.is_said() {
        let now = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get(1)?));
        let (metadata, is_closed) =
            connection.prepare_cached(sql::SESSION_NOW)?.query_row(params![no], now)?;
        let row = RowEntry::session(key, &metadata, is_closed);
        put_audit(connection, memory, &key.tenant, at, &row.text())?;
    }
    Ok(changed > 0)
}

/// Adds the entry of a row beside the runs to the audit, at the database's time.
pub(super) fn put_row(
    connection: &Connection,
    memory: &mut WriterMemory,
    tenant: &Tenant,
    row: &RowEntry,
) -> rusqlite::Result<()> {
    let now = connection.prepare_cached(sql::TIME)?.query_row([], |row| row.get(0))?;
    put_audit(connection, memory, tenant, Timestamp(now), &row.text())
}

pub(super) fn put_audit(
    connection: &Connection,
    memory: &mut WriterMemory,
    tenant: &Tenant,
    at: Timestamp,
    entry: &str,
) -> rusqlite::Result<()> {
    let number = memory.number(connection, tenant.as_str())?;
    let last: Option<(u64, [u8; 32])> = connection
        .prepare_cached(sql::AUDIT_LAST)?
        .query_row(params![number], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let no = last.map_or(1, |(no, _)| no + 1);
    let hash = entry_hash(last.map(|(_, hash)| Digest(hash)), tenant.as_str(), no, at, entry);
    connection.prepare_cached(sql::AUDIT_ADD)?.execute(params![number, no, at.0, entry, hash.0])?;
    Ok(())
}

/// Keeps, changes or removes a sealed secret, with its entry in the audit; false when it is not what the caller read.
pub(super) fn change_sealed(
    connection: &Connection,
    memory: &mut WriterMemory,
    change: &SealedChange,
) -> Result<bool, Failure> {
    let tenant = memory.number(connection, change.tenant.as_str())?;
    let name = &change.name;
    let changed = match (&change.before, &change.after) {
        (None, Some(after)) => {
            connection.prepare_cached(sql::SEALED_ADD)?.execute(params![tenant, name, after])?
        }
        (Some(before), Some(after)) => {
            connection.prepare_cached(sql::SEALED_CHANGE)?.execute(params![tenant, name, before, after])?
        }
        (Some(before), None) => {
            connection.prepare_cached(sql::SEALED_REMOVE)?.execute(params![tenant, name, before])?
        }
        (None, None) => {
            return Ok(!connection.prepare_cached(sql::SEALED)?.exists(params![tenant, name])?);
        }
    };
    if changed > 0 {
        put_row(connection, memory, &change.tenant, &RowEntry::sealed(name, change.after.as_deref()))?;
    }
    Ok(changed > 0)
}

/// The id of a run by its number, for rows that name runs by number.
pub(super) fn run_id(connection: &Connection, no: i64) -> rusqlite::Result<RunId> {
    id_of(connection, no)
}

//! Leases and due work, notices and conversations: the writer's smaller jobs.
//!
//! They share the writer's transaction with appends, so a lease and an append never see half of each other.

use rusqlite::{Connection, OptionalExtension, Row, params};
use standfast_core::digest::Digest;
use standfast_core::id::{Incarnation, RunId, Seq, Shard};
use standfast_core::name::Tenant;
use standfast_core::run::FOLD_VERSION;
use standfast_core::time::Timestamp;

use super::append::{find_session, id_of, run_number};
use super::names::{self, Numbers, Texts};
use super::rows::RunColumns;
use super::sql;
use super::tally::Tally;
use super::writer::Failure;
use crate::audit::entry_hash;
use crate::batch::LeaseChange;
use crate::columns::{CorruptRow, LeaseColumns};
use crate::error::StoreError;
use crate::fairness::take_turns;
use crate::query::{Claim, ClaimedRun, KeyNote, Lease, SCAN_MAX, SealedChange, SessionChange, SessionKey};

/// What the writer needs to know of a run before it changes it.
pub(super) struct RunPosition {
    pub(super) no: i64,
    pub(super) seq: Seq,
    pub(super) head: Digest,
    node: Option<Incarnation>,
    until: Option<Timestamp>,
    pub(super) wake_at: Option<Timestamp>,
    pub(super) due_at: Option<Timestamp>,
    pub(super) phase: i64,
    quarantined: Option<String>,
}

impl RunPosition {
    /// The row of a run, if there is one; a row that cannot be read is corrupt, and no failure of the database.
    pub(super) fn find(connection: &Connection, run: RunId) -> Result<Option<RunPosition>, Failure> {
        let mut statement = connection.prepare_cached(sql::RUN_PLACE)?;
        let place = statement.query_row(params![run.bytes()], |row| Ok(RunPosition::read(row))).optional()?;
        match place.transpose().map_err(|error| CorruptRow::from(error).of(run))? {
            Some(RunPosition { quarantined: Some(why), .. }) => Err(CorruptRow(why).of(run).into()),
            place => Ok(place),
        }
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<RunPosition> {
        Ok(RunPosition {
            no: row.get(0)?,
            seq: Seq(row.get(1)?),
            head: Digest(row.get(2)?),
            node: row.get::<_, Option<[u8; 16]>>(3)?.map(Incarnation),
            until: row.get::<_, Option<i64>>(4)?.map(Timestamp),
            wake_at: row.get::<_, Option<i64>>(5)?.map(Timestamp),
            due_at: row.get::<_, Option<i64>>(6)?.map(Timestamp),
            phase: row.get(7)?,
            quarantined: row.get(8)?,
        })
    }

    pub(super) fn lease(&self) -> Option<Lease> {
        self.node.zip(self.until).map(|(node, until)| Lease { node, until })
    }
}

pub(super) fn claim_due(
    connection: &Connection,
    numbers: &mut Numbers,
    texts: &Texts,
    claim: &Claim,
) -> Result<Vec<ClaimedRun>, Failure> {
    let mut rooms = Vec::with_capacity(claim.room.len());
    for (tenant, agent, room) in &claim.room {
        rooms.push((numbers.number(connection, &names::within(tenant.as_str(), agent.as_str()))?, *room));
    }
    let mut queues = Vec::new();
    let mut lane = 0i64;
    while let Some(next) = next_lane(connection, lane)? {
        lane = next;
        let room = rooms.iter().find(|(of, _)| *of == lane).map_or(claim.limit, |(_, room)| *room);
        if room > 0 {
            queues.push(due_in_lane(connection, lane, claim, room.min(claim.limit))?);
        }
    }
    let mut claimed = Vec::new();
    for no in take_turns(queues, claim.limit) {
        claimed.extend(lease(connection, texts, no, claim)?);
    }
    Ok(claimed)
}

fn next_lane(connection: &Connection, after: i64) -> rusqlite::Result<Option<i64>> {
    connection.prepare_cached(sql::DUE_NEXT_AGENT)?.query_row(params![after], |row| row.get(0)).optional()
}

fn due_in_lane(
    connection: &Connection,
    lane: i64,
    claim: &Claim,
    room: usize,
) -> rusqlite::Result<Vec<(Timestamp, i64)>> {
    let mut statement = connection.prepare_cached(sql::DUE_OF_AGENT)?;
    let mut rows = statement.query(params![lane, claim.now.0, SCAN_MAX, FOLD_VERSION])?;
    let mut queue = Vec::new();
    while let Some(row) = rows.next()? {
        if claim.shards.contains(Shard(row.get(1)?)) {
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
    texts: &Texts,
    no: i64,
    claim: &Claim,
) -> Result<Option<ClaimedRun>, Failure> {
    let columns =
        connection.prepare_cached(sql::RUN_BY_NUMBER)?.query_row(params![no], RunColumns::read).optional()?;
    let Some(columns) = columns else {
        connection.prepare_cached(sql::DUE_CLEAR)?.execute(params![no])?;
        return Ok(None);
    };
    match columns.stored(connection, texts) {
        Ok(mut stored) => {
            let (node, until, from) = (claim.node, claim.until, stored.lease);
            let after = LeaseColumns::after(LeaseChange::Take { node, until }, None, None, None);
            write_lease(connection, no, &after)?;
            connection.prepare_cached(sql::DUE_MOVE)?.execute(params![no, until.0])?;
            stored.lease = Some(Lease { node, until });
            Ok(Some(ClaimedRun::Run { stored: Box::new(stored), from }))
        }
        // Not asked for: a newer node will take it, this one leaves it alone.
        Err(StoreError::Newer { .. }) => Ok(None),
        Err(StoreError::Corrupt { run, why }) => {
            // Its rows stay as they are; only the work list forgets it, or it would come up for ever.
            connection.prepare_cached(sql::DUE_CLEAR)?.execute(params![no])?;
            Ok(Some(ClaimedRun::Corrupt { run, why }))
        }
        Err(other) => Err(other.into()),
    }
}

pub(super) fn renew(
    connection: &Connection,
    runs: &[RunId],
    node: Incarnation,
    until: Timestamp,
) -> Result<Vec<RunId>, Failure> {
    let mut still = Vec::new();
    for run in runs {
        let Some(place) = unless_corrupt(leased_by(connection, *run, node))? else { continue };
        let after =
            LeaseColumns::after(LeaseChange::Take { node, until }, place.lease(), place.wake_at, None);
        write_lease(connection, place.no, &after)?;
        connection.prepare_cached(sql::DUE_MOVE)?.execute(params![place.no, until.0])?;
        still.push(*run);
    }
    Ok(still)
}

pub(super) fn release(
    connection: &Connection,
    numbers: &mut Numbers,
    texts: &Texts,
    run: RunId,
    node: Incarnation,
    wake_at: Option<Timestamp>,
) -> Result<(), Failure> {
    let Some(place) = leased_by(connection, run, node)? else { return Ok(()) };
    let columns =
        connection.prepare_cached(sql::RUN_BY_NUMBER)?.query_row(params![place.no], RunColumns::read)?;
    let stored = columns.stored(connection, texts)?;
    let wake_at = [place.wake_at, wake_at].into_iter().flatten().min();
    let after = LeaseColumns::after(LeaseChange::Release, place.lease(), wake_at, stored.row.due_at);
    write_lease(connection, place.no, &after)?;
    let facts = &stored.row.run.facts;
    set_due(connection, numbers, &facts.tenant, facts.agent.as_str(), run, place.no, after.due_at)
}

/// Another run's end wants this one looked at.
pub(super) fn wake(
    connection: &Connection,
    numbers: &mut Numbers,
    run: RunId,
    at: Timestamp,
) -> Result<(), Failure> {
    // A run that cannot be read wakes nobody up, and is no reason to refuse whoever wakes it.
    let Some(place) = unless_corrupt(RunPosition::find(connection, run))? else { return Ok(()) };
    let Some((tenant, agent)) = lane_of(connection, place.no)? else { return Ok(()) };
    let wake_at = Some(place.wake_at.map_or(at, |wake| wake.min(at)));
    let due_at = match place.lease() {
        Some(lease) => Some(lease.until),
        None => [place.due_at, wake_at].into_iter().flatten().min(),
    };
    let after = LeaseColumns { node: place.node, until: place.until, wake_at, due_at };
    write_lease(connection, place.no, &after)?;
    set_due(connection, numbers, &tenant, &agent, run, place.no, due_at)
}

fn set_due(
    connection: &Connection,
    numbers: &mut Numbers,
    tenant: &Tenant,
    agent: &str,
    run: RunId,
    no: i64,
    due_at: Option<Timestamp>,
) -> Result<(), Failure> {
    match due_at {
        Some(at) => {
            let lane = numbers.number(connection, &names::within(tenant.as_str(), agent))?;
            let row = params![no, lane, run.shard(tenant).0, at.0];
            connection.prepare_cached(sql::DUE_SET)?.execute(row)?;
        }
        None => {
            connection.prepare_cached(sql::DUE_CLEAR)?.execute(params![no])?;
        }
    }
    Ok(())
}

fn leased_by(connection: &Connection, run: RunId, node: Incarnation) -> Result<Option<RunPosition>, Failure> {
    let place = RunPosition::find(connection, run)?;
    Ok(place.filter(|place| place.node == Some(node)))
}

/// What cannot be read is treated as if it were not there.
fn unless_corrupt(place: Result<Option<RunPosition>, Failure>) -> Result<Option<RunPosition>, Failure> {
    match place {
        Err(Failure::Refused(StoreError::Corrupt { .. })) => Ok(None),
        other => other,
    }
}

/// The tenant and the agent of a run; none when they cannot be read.
fn lane_of(connection: &Connection, no: i64) -> rusqlite::Result<Option<(Tenant, String)>> {
    let (tenant, agent): (i64, i64) = connection
        .prepare_cached(sql::RUN_NAMES)?
        .query_row(params![no], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let text = |number: i64| -> rusqlite::Result<Option<String>> {
        connection.prepare_cached(sql::NAME_TEXT)?.query_row(params![number], |row| row.get(0)).optional()
    };
    let tenant = text(tenant)?.and_then(|tenant| Tenant::new(tenant).ok());
    Ok(tenant.zip(text(agent)?))
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

/// Puts a run aside; says what that changes of the numbers.
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
        connection.prepare_cached(sql::DUE_CLEAR)?.execute(params![no])?;
    }
    Ok(tally)
}

/// Keeps or forgets keys apart from any append.
pub(super) fn note_keys(
    connection: &Connection,
    numbers: &mut Numbers,
    notes: &[KeyNote],
) -> Result<(), Failure> {
    for note in notes {
        let tenant = numbers.number(connection, note.tenant.as_str())?;
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
    numbers: &mut Numbers,
    key: &SessionKey,
    change: &SessionChange,
    at: Timestamp,
) -> Result<bool, Failure> {
    let Some((no, _)) = find_session(connection, numbers, key)? else { return Ok(false) };
    let changed = match change {
        SessionChange::Metadata { before, after } => {
            connection.prepare_cached(sql::SESSION_METADATA)?.execute(params![no, before, after, at.0])?
        }
        SessionChange::Close => connection.prepare_cached(sql::SESSION_CLOSE)?.execute(params![no])?,
    };
    Ok(changed > 0)
}

pub(super) fn put_audit(
    connection: &Connection,
    numbers: &mut Numbers,
    tenant: &Tenant,
    at: Timestamp,
    entry: &str,
) -> Result<(), Failure> {
    let number = numbers.number(connection, tenant.as_str())?;
    let last: Option<(u64, [u8; 32])> = connection
        .prepare_cached(sql::AUDIT_LAST)?
        .query_row(params![number], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let no = last.map_or(1, |(no, _)| no + 1);
    let hash = entry_hash(last.map(|(_, hash)| Digest(hash)), tenant.as_str(), no, at, entry);
    connection.prepare_cached(sql::AUDIT_ADD)?.execute(params![number, no, at.0, entry, hash.0])?;
    Ok(())
}

/// Keeps, changes or removes a sealed secret; false when it is not what the caller read.
pub(super) fn change_sealed(
    connection: &Connection,
    numbers: &mut Numbers,
    change: &SealedChange,
) -> Result<bool, Failure> {
    let tenant = numbers.number(connection, change.tenant.as_str())?;
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
            let is_there = connection.prepare_cached(sql::SEALED)?.exists(params![tenant, name])?;
            usize::from(!is_there)
        }
    };
    Ok(changed > 0)
}

/// The id of a run by its number, for rows that name runs by number.
pub(super) fn run_id(connection: &Connection, no: i64) -> rusqlite::Result<RunId> {
    id_of(connection, no)
}

//! What an append does, inside the writer's transaction.
//!
//! Everything that can refuse it is read first (expected sequence, guards), then everything is written: the writer is
//! alone, so nothing changes in between and no savepoint is needed. Whether a new run is new is found out by adding its
//! row, which then is the first thing written. The row of a run that is there already is written once for all appends of
//! the transaction, see [`write_rows`].

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, params};
use standfast_core::body::Blob;
use standfast_core::digest::Digest;
use standfast_core::id::{RunId, Seq, tenant_tag};
use standfast_core::link::Contents;
use standfast_core::project::Phase;
use standfast_core::run::FOLD_VERSION;

use super::conversations::ChosenSession;
use super::deliveries;
use super::holds::{opens, write_audience, write_hold};
use super::job::Failure;
use super::payload_keys::PayloadKeys;
use super::rows::{SEQ_MAX, StoredFold, link_key, sealed_payload};
use super::sealing::Place;
use super::sql;
use super::tally::Tally;
use super::work::RunPosition;
use super::writer_memory::{AppendIndex, WriterMemory};
use crate::batch::{Batch, Guard, Notice, SideWrite};
use crate::columns::{self, LeaseColumns};
use crate::error::StoreError;

/// A batch with what can be encoded outside the writer's thread.
#[derive(Debug)]
pub(super) struct EncodedBatch {
    pub(super) batch: Batch,
    fold: StoredFold,
    /// What is written in the place of payloads, where they are sealed.
    sealed: Option<SealedPayloads>,
    /// Nothing more can be stored of the run: it was erased, and its key destroyed.
    has_no_key: bool,
}

/// The payloads of a batch, sealed.
#[derive(Debug)]
struct SealedPayloads {
    events: String,
    values: HashMap<Digest, Vec<u8>>,
}

/// Where large values are sealed for.
pub(super) const VALUE_COLUMN: &str = "blobs.value";

impl EncodedBatch {
    pub(super) fn new(batch: Batch, keys: Option<&PayloadKeys>) -> Result<EncodedBatch, StoreError> {
        let fold = StoredFold::of(&batch.row.run.state);
        match keys {
            // What says that a run is erased stays readable, and its key goes.
            Some(keys) if !batch.row.run.state.erased => EncodedBatch::sealed(batch, fold, keys),
            Some(_) | None => Ok(EncodedBatch { batch, fold, sealed: None, has_no_key: false }),
        }
    }

    fn sealed(batch: Batch, fold: StoredFold, keys: &PayloadKeys) -> Result<EncodedBatch, StoreError> {
        let Contents::Whole { salt, payload } = &batch.link.contents else {
            return Err(StoreError::unavailable("an append without contents"));
        };
        let (run, random) = (batch.run(), keys.random());
        let Some(key) = keys.to_seal(run, batch.tenant().as_str())? else {
            return Ok(EncodedBatch { batch, fold, sealed: None, has_no_key: true });
        };
        let events = sealed_payload(&key, &batch.link, salt, payload, random);
        let values = batch.puts.iter().filter_map(|put| match put {
            SideWrite::Blob(Blob { name, text }) => {
                let place = Place { run, column: VALUE_COLUMN, row: &[&name.digest.0] };
                Some((name.digest, key.seal(place, text.as_bytes(), random)))
            }
            SideWrite::Key { .. }
            | SideWrite::Notice(_)
            | SideWrite::Audience { .. }
            | SideWrite::Definition { .. }
            | SideWrite::Wake { .. } => None,
        });
        let sealed = Some(SealedPayloads { events, values: values.collect() });
        let fold = fold.sealed(&key, &batch.row, random);
        Ok(EncodedBatch { batch, fold, sealed, has_no_key: false })
    }
}

/// Writes one append and says what it changed, or refuses it without having written anything. `job` is its place in the
/// transaction.
pub(super) fn append(
    connection: &Connection,
    memory: &mut WriterMemory,
    job: usize,
    batches: &[EncodedBatch],
) -> Result<Tally, Failure> {
    for (at, EncodedBatch { batch, has_no_key, .. }) in batches.iter().enumerate() {
        if batch.row.run.state.seq.0 > SEQ_MAX {
            let why =
                format!("run {} has more than {SEQ_MAX} events; end it and start a new one", batch.run());
            return Err(StoreError::unavailable(why).into());
        }
        let is_found_out_by_adding = batches.len() == 1 && batch.expected.seq == Seq(0);
        if !is_found_out_by_adding || *has_no_key || memory.runs.get(batch.run()).is_some() {
            check_expected(connection, memory, batch)?;
        }
        // Of two batches of one run the second was decided on a state that the first one changes.
        if batches.iter().take(at).any(|earlier| earlier.batch.run() == batch.run()) {
            return Err(StoreError::Conflict { run: batch.run() }.into());
        }
    }
    let mut counted = CounterSums::default();
    let guards = batches.iter().flat_map(|e| e.batch.guards.iter().map(move |guard| (&e.batch, guard)));
    for (which, (batch, guard)) in guards.enumerate() {
        if let Some(why) = broken(connection, memory, batch, guard, &mut counted)? {
            return Err(StoreError::Guard { which, why }.into());
        }
    }
    // Whoever comes late has been told so by now. What is left is a database from before the erasure.
    if let Some(erased) = batches.iter().find(|encoded| encoded.has_no_key) {
        let run = erased.batch.run();
        let why =
            format!("run {run} was erased and its payload key destroyed; nothing more can be stored of it");
        return Err(StoreError::unavailable(why).into());
    }
    let mut tally = Tally::default();
    for (batch, encoded) in batches.iter().enumerate() {
        write(connection, memory, encoded, AppendIndex { job, batch }, &mut tally)?;
    }
    Ok(tally)
}

/// The run must be the expected one, or not there when it is to be created.
fn check_expected(connection: &Connection, memory: &mut WriterMemory, batch: &Batch) -> Result<(), Failure> {
    let run = batch.run();
    match (RunPosition::look_up(connection, memory, run)?, batch.expected.seq) {
        (None, Seq(0)) => Ok(()),
        (None, _) => Err(StoreError::NotFound { run }.into()),
        (Some(_), Seq(0)) => Err(StoreError::Conflict { run }.into()),
        (Some(found), seq) if found.seq == seq && found.head == batch.expected.head => Ok(()),
        (Some(_), _) => Err(StoreError::Conflict { run }.into()),
    }
}

/// The counters after an append, by tenant and name: its guards add up.
type CounterSums<'a> = HashMap<(i64, &'a str), i64>;

/// What a guard found, if it does not hold.
fn broken<'a>(
    connection: &Connection,
    memory: &mut WriterMemory,
    batch: &Batch,
    guard: &'a Guard,
    counted: &mut CounterSums<'a>,
) -> Result<Option<String>, Failure> {
    let tenant = memory.number(connection, batch.tenant().as_str())?;
    match guard {
        Guard::KeyUnused { key } => {
            let used: Option<i64> = connection
                .prepare_cached(sql::KEY)?
                .query_row(params![tenant, key], |row| row.get(1))
                .optional()?;
            Ok(used
                .map(|run| id_of(connection, run))
                .transpose()?
                .map(|run| format!("the key was used for run {run}")))
        }
        Guard::CounterWithin { counter, add, max } => {
            let now = match counted.get(&(tenant, counter.as_str())) {
                Some(now) => *now,
                None => counter_value(connection, tenant, counter)?,
            };
            let after = now.saturating_add(*add);
            counted.insert((tenant, counter), after);
            Ok((after > *max).then(|| format!("{counter} is at {now} of {max}")))
        }
        Guard::SessionOpen { session } => {
            // A run's own conversation begins with it: nobody can have closed it.
            let is_own = RunId::of_own_session(&session.session) == Some(batch.run());
            let is_new = batch.expected.seq == Seq(0);
            let found = if is_own && is_new { None } else { memory.session(connection, session)? };
            let is_closed = found.is_some_and(|found| found.is_closed);
            Ok(is_closed.then(|| format!("session {} is closed", session.session)))
        }
        Guard::NotLeased { node, now } => {
            let lease = memory.runs.get(batch.run()).and_then(|place| place.lease());
            Ok(Guard::leased(lease, *node, *now))
        }
    }
}

fn counter_value(connection: &Connection, tenant: i64, counter: &str) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached(sql::COUNTER)?;
    Ok(statement.query_row(params![tenant, counter], |row| row.get(0)).optional()?.unwrap_or(0))
}

fn write(
    connection: &Connection,
    memory: &mut WriterMemory,
    encoded: &EncodedBatch,
    index: AppendIndex,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let batch = &encoded.batch;
    let tenant = memory.number(connection, batch.tenant().as_str())?;
    let (no, before) = if batch.expected.seq == Seq(0) {
        (create(connection, memory, encoded, tenant)?, None)
    } else {
        update(memory, batch, index)?
    };
    tally.moved(tenant, before, Some(i64::from(batch.row.phase as u8)));
    for guard in &batch.guards {
        if let Guard::CounterWithin { counter, add, .. } = guard {
            connection.prepare_cached(sql::COUNTER_ADD)?.execute(params![tenant, counter, add])?;
        }
    }
    write_link(connection, memory, encoded, no)?;
    for change in &batch.holds {
        write_hold(connection, memory, batch, change, (no, tenant), tally)?;
    }
    for put in &batch.puts {
        write_put(connection, memory, encoded, put, no, tenant)?;
    }
    deliveries::put_notices(connection, memory, batch, no, tenant)?;
    Ok(())
}

fn create(
    connection: &Connection,
    memory: &mut WriterMemory,
    encoded: &EncodedBatch,
    tenant: i64,
) -> Result<i64, Failure> {
    let row = &encoded.batch.row;
    let (facts, state) = (&row.run.facts, &row.run.state);
    let agent = memory.number(connection, facts.agent.as_str())?;
    let owner = memory.number(connection, facts.owner.as_str())?;
    let no = memory.next_run(connection)?;
    let session = ChosenSession::of(connection, memory, facts, (no, tenant))?;
    let lease = LeaseColumns::after(encoded.batch.lease, None, None, row.due_at);
    let inbox = match &facts.inbox {
        Some(place) => Some(memory.number(connection, place.inbox.as_str())?),
        None => None,
    };
    let (text, packed) = encoded.fold.columns();
    let added = connection.prepare_cached(sql::RUN_ADD)?.execute(params![
        no,
        facts.id.bytes(),
        tenant,
        agent,
        session.no,
        owner,
        columns::driver_number(facts.driver),
        facts.started_at.0,
        facts.parent.as_ref().map(columns::json),
        inbox,
        facts.inbox.as_ref().map(columns::inbox_facts),
        facts.inbox.as_ref().map(|place| place.priority),
        state.seq.0,
        state.at.0,
        row.head.0,
        memory.digest_number(connection, state.definition)?,
        row.phase as u8,
        row.claimable_at.map(|at| at.0),
        FOLD_VERSION,
        lease.node.map(|node| node.0),
        lease.until.map(|at| at.0),
        lease.due_at.map(|at| at.0),
        text,
        packed,
    ])?;
    if added == 0 {
        // A quarantined one says why.
        RunPosition::find(connection, facts.id)?;
        return Err(StoreError::Conflict { run: facts.id }.into());
    }
    memory.run_added();
    if memory.meets_tenant(tenant) {
        let tag = tenant_tag(&facts.tenant);
        connection.prepare_cached(sql::TENANT_ADD)?.execute(params![tenant, tag, facts.started_at.0])?;
    }
    session.write(connection, memory, facts, (tenant, agent, owner))?;
    memory.runs.put(facts.id, RunPosition::new(no, row, &lease));
    Ok(no)
}

/// Changes what is remembered of a run; its row is written with the others. Its number, and the phase that it had.
fn update(
    memory: &mut WriterMemory,
    batch: &Batch,
    index: AppendIndex,
) -> Result<(i64, Option<i64>), Failure> {
    let (run, row) = (batch.run(), &batch.row);
    let Some(place) = memory.runs.get(run) else { return Err(StoreError::NotFound { run }.into()) };
    let before = place.phase;
    let lease = LeaseColumns::after(batch.lease, place.lease(), place.wake_at, row.due_at);
    place.follow(row, &lease);
    let no = place.no;
    memory.runs.defer(run, index);
    Ok((no, Some(before)))
}

/// Writes the rows of the runs that were appended to: of each the last, whatever the number of appends.
pub(super) fn write_rows<'a>(
    connection: &Connection,
    memory: &mut WriterMemory,
    appended: impl Fn(AppendIndex) -> Option<&'a EncodedBatch>,
) -> rusqlite::Result<()> {
    for run in memory.runs.take_unwritten() {
        let Some(place) = memory.runs.get(run) else { continue };
        let Some(encoded) = place.unwritten.take().and_then(&appended) else { continue };
        let (no, lease) = (place.no, place.columns());
        let (row, (text, packed)) = (&encoded.batch.row, encoded.fold.columns());
        let state = &row.run.state;
        let definition = memory.digest_number(connection, state.definition)?;
        connection.prepare_cached(sql::RUN_UPDATE)?.execute(params![
            no,
            state.seq.0,
            state.at.0,
            row.head.0,
            definition,
            row.phase as u8,
            row.claimable_at.map(|at| at.0),
            FOLD_VERSION,
            lease.node.map(|node| node.0),
            lease.until.map(|at| at.0),
            lease.wake_at.map(|at| at.0),
            lease.due_at.map(|at| at.0),
            text,
            packed,
        ])?;
        // Little follows the end of a run.
        if row.phase >= Phase::Completed {
            memory.runs.forget(run);
        }
    }
    Ok(())
}

fn write_link(
    connection: &Connection,
    memory: &mut WriterMemory,
    encoded: &EncodedBatch,
    no: i64,
) -> Result<(), Failure> {
    let link = &encoded.batch.link;
    let Contents::Whole { salt, payload } = &link.contents else {
        return Err(StoreError::unavailable("an append without contents").into());
    };
    let payload = match std::str::from_utf8(payload) {
        Ok(text) => text,
        Err(error) => unreachable!("JSON is UTF-8: {error}"),
    };
    let actor = link.header.actor.with_text(|actor| memory.number(connection, actor))?;
    if let Some(sealed) = &encoded.sealed {
        connection.prepare_cached(sql::LINK_ADD_SEALED)?.execute(params![
            link_key(no, link.header.first),
            link.header.count,
            link.header.at.0,
            actor,
            link.hash.0,
            sealed.events,
            link.contents.commitment().0,
        ])?;
        return Ok(());
    }
    connection.prepare_cached(sql::LINK_ADD)?.execute(params![
        link_key(no, link.header.first),
        link.header.count,
        link.header.at.0,
        actor,
        link.hash.0,
        salt,
        payload,
    ])?;
    Ok(())
}

fn write_put(
    connection: &Connection,
    memory: &mut WriterMemory,
    encoded: &EncodedBatch,
    put: &SideWrite,
    no: i64,
    tenant: i64,
) -> Result<(), Failure> {
    let batch = &encoded.batch;
    match put {
        SideWrite::Key { key, request, expires_at } => {
            let seq = batch.row.run.state.seq.0;
            let row = params![tenant, key, request.0, no, seq, expires_at.0];
            connection.prepare_cached(sql::KEY_ADD)?.execute(row)?;
        }
        SideWrite::Notice(notice) => write_notice(connection, memory, batch, notice, no)?,
        SideWrite::Audience { hold, .. } if opens(batch, *hold) => {}
        SideWrite::Audience { hold, who } => write_audience(connection, memory, batch, *hold, who)?,
        SideWrite::Blob(Blob { name, text }) => match &encoded.sealed {
            Some(sealed) => {
                let value = sealed.values.get(&name.digest);
                connection.prepare_cached(sql::BLOB_ADD_SEALED)?.execute(params![
                    no,
                    name.digest.0,
                    value
                ])?;
            }
            None => {
                connection.prepare_cached(sql::BLOB_ADD)?.execute(params![no, name.digest.0, text])?;
            }
        },
        // Definitions are never removed.
        SideWrite::Definition { digest, .. } if !memory.meets_definition(tenant, *digest) => {}
        SideWrite::Definition { digest, bytes } => {
            connection.prepare_cached(sql::DEFINITION_ADD)?.execute(params![tenant, digest.0, &**bytes])?;
        }
        SideWrite::Wake { run, at } => super::work::wake(connection, memory, *run, *at)?,
    }
    Ok(())
}

pub(super) fn write_notice(
    connection: &Connection,
    memory: &mut WriterMemory,
    batch: &Batch,
    notice: &Notice,
    no: i64,
) -> Result<(), Failure> {
    let shard = batch.run().shard(batch.tenant()).0;
    memory.puts_notice();
    let subscription = memory.number(connection, &notice.subscription)?;
    let latest = batch.link.header.first.0;
    let row = params![shard, notice.due_at.0, subscription, no, notice.from.0, latest, notice.owner];
    connection.prepare_cached(sql::NOTICE_ADD)?.execute(row)?;
    Ok(())
}

/// The number of a run, if it exists.
pub(super) fn run_number(connection: &Connection, run: RunId) -> rusqlite::Result<Option<i64>> {
    connection.prepare_cached(sql::RUN_NUMBER)?.query_row(params![run.bytes()], |row| row.get(0)).optional()
}

/// The id of a run.
pub(super) fn id_of(connection: &Connection, no: i64) -> rusqlite::Result<RunId> {
    connection.prepare_cached(sql::RUN_ID)?.query_row(params![no], |row| row.get(0)).map(RunId::from_bytes)
}

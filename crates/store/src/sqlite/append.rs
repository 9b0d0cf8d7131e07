//! What an append does, inside the writer's transaction.
//!
//! Everything that can refuse it is read first (expected sequence, guards), then everything is written: the writer is
//! alone, so nothing changes in between and no savepoint is needed.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, Row, params};
use standfast_core::body::Blob;
use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, RunId, Secret, Seq, tenant_tag};
use standfast_core::link::Contents;
use standfast_core::project::{HoldChange, HoldRow};
use standfast_core::run::FOLD_VERSION;
use standfast_core::time::Timestamp;

use super::deliveries;
use super::names::{self, Numbers};
use super::rows::{SEQ_MAX, link_key};
use super::sql;
use super::tally::Tally;
use super::work::RunPosition;
use super::writer::Failure;
use crate::batch::{AudienceMember, Batch, Guard, Notice, SideWrite};
use crate::columns::{self, LeaseColumns, Record};
use crate::error::StoreError;
use crate::query::SessionKey;

/// A batch with what can be encoded outside the writer's thread.
#[derive(Debug)]
pub(super) struct EncodedBatch {
    pub(super) batch: Batch,
    state: String,
}

impl EncodedBatch {
    pub(super) fn new(batch: Batch) -> EncodedBatch {
        let state = columns::json(&batch.row.run.state);
        EncodedBatch { batch, state }
    }
}

/// Writes one append and says what it changed, or refuses it without having written anything.
pub(super) fn append(
    connection: &Connection,
    numbers: &mut Numbers,
    batches: &[EncodedBatch],
) -> Result<Tally, Failure> {
    let mut places = Vec::with_capacity(batches.len());
    for (at, EncodedBatch { batch, .. }) in batches.iter().enumerate() {
        if batch.row.run.state.seq.0 > SEQ_MAX {
            let why =
                format!("run {} has more than {SEQ_MAX} events; end it and start a new one", batch.run());
            return Err(StoreError::unavailable(why).into());
        }
        places.push(expected_place(connection, batch)?);
        // Of two batches of one run the second was decided on a state that the first one changes.
        if batches.iter().take(at).any(|earlier| earlier.batch.run() == batch.run()) {
            return Err(StoreError::Conflict { run: batch.run() }.into());
        }
    }
    let mut counted = CounterSums::default();
    let guards = batches
        .iter()
        .zip(&places)
        .flat_map(|(e, place)| e.batch.guards.iter().map(move |guard| (&e.batch, place.as_ref(), guard)));
    for (which, (batch, place, guard)) in guards.enumerate() {
        if let Some(why) = broken(connection, numbers, (batch, place), guard, &mut counted)? {
            return Err(StoreError::Guard { which, why }.into());
        }
    }
    let mut tally = Tally::default();
    for (at, (encoded, place)) in batches.iter().zip(places).enumerate() {
        // An earlier batch may have woken this run.
        let place = if at == 0 { place } else { RunPosition::find(connection, encoded.batch.run())? };
        write(connection, numbers, encoded, place, &mut tally)?;
    }
    Ok(tally)
}

/// The run's row if it is the expected one; none when it is to be created.
fn expected_place(connection: &Connection, batch: &Batch) -> Result<Option<RunPosition>, Failure> {
    let run = batch.run();
    let place = RunPosition::find(connection, run)?;
    match (&place, batch.expected.seq) {
        (None, Seq(0)) => Ok(None),
        (None, _) => Err(StoreError::NotFound { run }.into()),
        (Some(_), Seq(0)) => Err(StoreError::Conflict { run }.into()),
        (Some(found), seq) if found.seq == seq && found.head == batch.expected.head => Ok(place),
        (Some(_), _) => Err(StoreError::Conflict { run }.into()),
    }
}

/// The counters after an append, by tenant and name: its guards add up.
type CounterSums<'a> = HashMap<(i64, &'a str), i64>;

/// What a guard found, if it does not hold.
fn broken<'a>(
    connection: &Connection,
    numbers: &mut Numbers,
    (batch, place): (&Batch, Option<&RunPosition>),
    guard: &'a Guard,
    counted: &mut CounterSums<'a>,
) -> Result<Option<String>, Failure> {
    let tenant = numbers.number(connection, batch.tenant().as_str())?;
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
            let found = find_session(connection, numbers, session)?;
            let is_closed = found.is_some_and(|(_, closed)| closed);
            Ok(is_closed.then(|| format!("session {} is closed", session.session)))
        }
        Guard::NotLeased { node, now } => Ok(Guard::leased(place.and_then(RunPosition::lease), *node, *now)),
    }
}

fn counter_value(connection: &Connection, tenant: i64, counter: &str) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached(sql::COUNTER)?;
    Ok(statement.query_row(params![tenant, counter], |row| row.get(0)).optional()?.unwrap_or(0))
}

fn write(
    connection: &Connection,
    numbers: &mut Numbers,
    encoded: &EncodedBatch,
    place: Option<RunPosition>,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let batch = &encoded.batch;
    let tenant = numbers.number(connection, batch.tenant().as_str())?;
    for guard in &batch.guards {
        if let Guard::CounterWithin { counter, add, .. } = guard {
            connection.prepare_cached(sql::COUNTER_ADD)?.execute(params![tenant, counter, add])?;
        }
    }
    tally.moved(tenant, place.as_ref().map(|place| place.phase), Some(i64::from(batch.row.phase as u8)));
    let no = match place {
        Some(place) => update(connection, numbers, encoded, &place)?,
        None => create(connection, numbers, encoded, tenant)?,
    };
    write_link(connection, numbers, batch, no)?;
    for change in &batch.holds {
        write_hold(connection, numbers, batch, change, (no, tenant), tally)?;
    }
    for put in &batch.puts {
        write_put(connection, numbers, batch, put, no, tenant)?;
    }
    deliveries::put_notices(connection, numbers, batch, no, tenant)?;
    Ok(())
}

/// Who may see a hold that this batch opens: written with it.
fn audience_of(batch: &Batch, hold: HoldId) -> impl Iterator<Item = &AudienceMember> {
    let of_hold = move |put: &SideWrite| matches!(put, SideWrite::Audience { hold: of, .. } if *of == hold);
    let lists = batch.puts.iter().filter(move |put| of_hold(put));
    lists.flat_map(|put| match put {
        SideWrite::Audience { who, .. } => who.as_slice(),
        SideWrite::Key { .. }
        | SideWrite::Notice(_)
        | SideWrite::Blob(_)
        | SideWrite::Definition { .. }
        | SideWrite::Wake { .. } => &[],
    })
}

fn opens(batch: &Batch, hold: HoldId) -> bool {
    batch.holds.iter().any(|change| matches!(change, HoldChange::Open(row) if row.id == hold))
}

fn create(
    connection: &Connection,
    numbers: &mut Numbers,
    encoded: &EncodedBatch,
    tenant: i64,
) -> Result<i64, Failure> {
    let row = &encoded.batch.row;
    let (facts, state) = (&row.run.facts, &row.run.state);
    let agent = numbers.number(connection, facts.agent.as_str())?;
    let owner = numbers.number(connection, facts.owner.as_str())?;
    let session = open_session(connection, encoded, (tenant, agent, owner))?;
    let lease = LeaseColumns::after(encoded.batch.lease, None, None, row.due_at);
    let inbox = match &facts.inbox {
        Some(place) => Some(numbers.number(connection, place.inbox.as_str())?),
        None => None,
    };
    connection.prepare_cached(sql::RUN_ADD)?.execute(params![
        facts.id.bytes(),
        tenant,
        agent,
        session,
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
        numbers.number(connection, &state.definition.to_string())?,
        row.phase as u8,
        row.claimable_at.map(|at| at.0),
        FOLD_VERSION,
        lease.node.map(|node| node.0),
        lease.until.map(|at| at.0),
        lease.due_at.map(|at| at.0),
        encoded.state,
    ])?;
    let no = connection.last_insert_rowid();
    if let Some(at) = lease.due_at {
        set_due(connection, numbers, &encoded.batch, no, at)?;
    }
    Ok(no)
}

fn update(
    connection: &Connection,
    numbers: &mut Numbers,
    encoded: &EncodedBatch,
    place: &RunPosition,
) -> Result<i64, Failure> {
    let row = &encoded.batch.row;
    let state = &row.run.state;
    let lease = LeaseColumns::after(encoded.batch.lease, place.lease(), place.wake_at, row.due_at);
    connection.prepare_cached(sql::RUN_UPDATE)?.execute(params![
        place.no,
        state.seq.0,
        state.at.0,
        row.head.0,
        numbers.number(connection, &state.definition.to_string())?,
        row.phase as u8,
        row.claimable_at.map(|at| at.0),
        FOLD_VERSION,
        lease.node.map(|node| node.0),
        lease.until.map(|at| at.0),
        lease.wake_at.map(|at| at.0),
        lease.due_at.map(|at| at.0),
        encoded.state,
    ])?;
    match (place.due_at, lease.due_at) {
        (before, after) if before == after => {}
        (_, None) => {
            connection.prepare_cached(sql::DUE_CLEAR)?.execute(params![place.no])?;
        }
        (Some(_), Some(at)) => {
            connection.prepare_cached(sql::DUE_MOVE)?.execute(params![place.no, at.0])?;
        }
        (None, Some(at)) => set_due(connection, numbers, &encoded.batch, place.no, at)?,
    }
    Ok(place.no)
}

fn set_due(
    connection: &Connection,
    numbers: &mut Numbers,
    batch: &Batch,
    no: i64,
    at: Timestamp,
) -> Result<(), Failure> {
    let facts = &batch.row.run.facts;
    let lane = numbers.number(connection, &names::within(facts.tenant.as_str(), facts.agent.as_str()))?;
    let shard = facts.id.shard(&facts.tenant).0;
    connection.prepare_cached(sql::DUE_SET)?.execute(params![no, lane, shard, at.0])?;
    Ok(())
}

fn open_session(
    connection: &Connection,
    encoded: &EncodedBatch,
    (tenant, agent, owner): (i64, i64, i64),
) -> Result<i64, Failure> {
    let facts = &encoded.batch.row.run.facts;
    let key = params![tenant, agent, facts.session.as_str(), owner];
    let found =
        connection.prepare_cached(sql::SESSION_NUMBER)?.query_row(key, |row| row.get(0)).optional()?;
    if let Some(no) = found {
        return Ok(no);
    }
    // A tenant's first conversation is the first that the store hears of it.
    let tag = tenant_tag(&facts.tenant);
    connection.prepare_cached(sql::TENANT_ADD)?.execute(params![tenant, tag, facts.started_at.0])?;
    let row = params![tenant, agent, facts.session.as_str(), owner, facts.started_at.0];
    connection.prepare_cached(sql::SESSION_ADD)?.execute(row)?;
    Ok(connection.last_insert_rowid())
}

/// A conversation's number and whether it is closed.
pub(super) fn find_session(
    connection: &Connection,
    numbers: &mut Numbers,
    key: &SessionKey,
) -> Result<Option<(i64, bool)>, Failure> {
    let tenant = numbers.number(connection, key.tenant.as_str())?;
    let agent = numbers.number(connection, key.agent.as_str())?;
    let owner = numbers.number(connection, key.owner.as_str())?;
    let found = connection
        .prepare_cached(sql::SESSION_NUMBER)?
        .query_row(params![tenant, agent, key.session.as_str(), owner], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(found)
}

fn write_link(connection: &Connection, numbers: &mut Numbers, batch: &Batch, no: i64) -> Result<(), Failure> {
    let link = &batch.link;
    let Contents::Whole { salt, payload } = &link.contents else {
        return Err(StoreError::unavailable("an append without contents").into());
    };
    let payload = match std::str::from_utf8(payload) {
        Ok(text) => text,
        Err(error) => unreachable!("JSON is UTF-8: {error}"),
    };
    connection.prepare_cached(sql::LINK_ADD)?.execute(params![
        link_key(no, link.header.first),
        link.header.count,
        link.header.at.0,
        numbers.number(connection, &link.header.actor.to_string())?,
        link.hash.0,
        salt,
        payload,
    ])?;
    Ok(())
}

fn write_hold(
    connection: &Connection,
    numbers: &mut Numbers,
    batch: &Batch,
    change: &HoldChange,
    (run, tenant): (i64, i64),
    tally: &mut Tally,
) -> Result<(), Failure> {
    match change {
        HoldChange::Open(row) => {
            let tool = match &row.tool {
                Some(tool) => Some(numbers.number(connection, tool.as_str())?),
                None => None,
            };
            let inbox = match &row.inbox {
                Some(inbox) => Some(numbers.number(connection, inbox.as_str())?),
                None => None,
            };
            let audience = audience_numbers(connection, numbers, batch, audience_of(batch, row.id))?;
            let (agent, kind) =
                (numbers.number(connection, row.agent.as_str())?, columns::kind_number(row.kind));
            tally.holds(tenant, agent, kind, 1);
            connection.prepare_cached(sql::HOLD_ADD)?.execute(params![
                run,
                row.id.key.call.0,
                row.id.key.secret.0,
                tenant,
                agent,
                tool,
                kind,
                (!audience.is_empty()).then(|| list(&audience)),
                inbox,
            ])?;
            let no = connection.last_insert_rowid();
            for who in audience {
                connection.prepare_cached(sql::AUDIENCE_ADD)?.execute(params![who, no])?;
            }
            if row.kind == HoldKind::External {
                let (session, status) = (row.session.as_str(), columns::external_status(row));
                let timeout = row.expires_at.map(|at| at.0);
                connection
                    .prepare_cached(sql::EXTERNAL_ADD)?
                    .execute(params![no, tenant, run, session, status, timeout])?;
            }
        }
        // What changes of an open hold stands in the fold of its run, but for what it is found by.
        HoldChange::Update(row) => {
            if row.kind == HoldKind::External
                && let Some(found) = find_hold(connection, run, row.id)?
            {
                set_external(connection, row, found.no)?;
            }
        }
        HoldChange::Close(row) => {
            if close_hold(connection, row, run)? {
                let agent = numbers.number(connection, row.agent.as_str())?;
                tally.holds(tenant, agent, columns::kind_number(row.kind), -1);
            }
        }
    }
    Ok(())
}

/// Closes a hold; says whether it was open.
fn close_hold(connection: &Connection, row: &HoldRow, run: i64) -> Result<bool, Failure> {
    let Some(found) = find_hold(connection, run, row.id)? else { return Ok(false) };
    let record = columns::json(&Record::of(row));
    connection.prepare_cached(sql::HOLD_CLOSE)?.execute(params![found.no, record])?;
    if row.kind == HoldKind::External {
        set_external(connection, row, found.no)?;
    }
    for who in found.audience() {
        connection.prepare_cached(sql::AUDIENCE_REMOVE)?.execute(params![who, found.no])?;
    }
    Ok(found.record.is_none())
}

/// How a hold that waits for an outside system is found from now on.
fn set_external(connection: &Connection, row: &HoldRow, hold: i64) -> Result<(), Failure> {
    let (status, timeout) = (columns::external_status(row), row.expires_at.map(|at| at.0));
    connection.prepare_cached(sql::EXTERNAL_SET)?.execute(params![hold, status, timeout])?;
    Ok(())
}

/// A hold's row by its id; the secret is compared in constant time.
pub(super) struct FoundHold {
    pub(super) no: i64,
    audience: Option<String>,
    pub(super) record: Option<String>,
}

impl FoundHold {
    fn read(row: &Row<'_>) -> rusqlite::Result<FoundHold> {
        Ok(FoundHold { no: row.get(0)?, audience: row.get(2)?, record: row.get(3)? })
    }

    fn audience(&self) -> Vec<i64> {
        let list = self.audience.as_deref().unwrap_or_default();
        list.split(' ').filter_map(|who| who.parse().ok()).collect()
    }
}

pub(super) fn find_hold(connection: &Connection, run: i64, id: HoldId) -> Result<Option<FoundHold>, Failure> {
    let mut statement = connection.prepare_cached(sql::HOLDS_OF_CALL)?;
    let mut found = None;
    let mut holds = statement.query(params![run, id.key.call.0])?;
    while let Some(row) = holds.next()? {
        let secret: Vec<u8> = row.get(1)?;
        let is_it = <[u8; 16]>::try_from(secret).is_ok_and(|secret| Secret(secret) == id.key.secret);
        if is_it {
            found = Some(FoundHold::read(row).map_err(|error| columns::CorruptRow::from(error).of(id.run))?);
        }
    }
    Ok(found)
}

fn write_put(
    connection: &Connection,
    numbers: &mut Numbers,
    batch: &Batch,
    put: &SideWrite,
    no: i64,
    tenant: i64,
) -> Result<(), Failure> {
    match put {
        SideWrite::Key { key, request, expires_at } => {
            let seq = batch.row.run.state.seq.0;
            let row = params![tenant, key, request.0, no, seq, expires_at.0];
            connection.prepare_cached(sql::KEY_ADD)?.execute(row)?;
        }
        SideWrite::Notice(notice) => write_notice(connection, numbers, batch, notice, no)?,
        SideWrite::Audience { hold, .. } if opens(batch, *hold) => {}
        SideWrite::Audience { hold, who } => write_audience(connection, numbers, batch, *hold, who)?,
        SideWrite::Blob(Blob { name, text }) => {
            connection.prepare_cached(sql::BLOB_ADD)?.execute(params![no, name.digest.0, text])?;
        }
        SideWrite::Definition { digest, bytes } => {
            connection.prepare_cached(sql::DEFINITION_ADD)?.execute(params![tenant, digest.0, bytes])?;
        }
        SideWrite::Wake { run, at } => super::work::wake(connection, numbers, *run, *at)?,
    }
    Ok(())
}

pub(super) fn write_notice(
    connection: &Connection,
    numbers: &mut Numbers,
    batch: &Batch,
    notice: &Notice,
    no: i64,
) -> Result<(), Failure> {
    let shard = batch.run().shard(batch.tenant()).0;
    let subscription = numbers.number(connection, &notice.subscription)?;
    let latest = batch.link.header.first.0;
    let row = params![shard, notice.due_at.0, subscription, no, notice.from.0, latest, notice.owner];
    connection.prepare_cached(sql::NOTICE_ADD)?.execute(row)?;
    Ok(())
}

/// Further people may see a hold that is open already.
fn write_audience(
    connection: &Connection,
    numbers: &mut Numbers,
    batch: &Batch,
    hold: HoldId,
    who: &[AudienceMember],
) -> Result<(), Failure> {
    let Some(run) = run_number(connection, hold.run)? else { return Ok(()) };
    let Some(found) = find_hold(connection, run, hold)?.filter(|found| found.record.is_none()) else {
        return Ok(());
    };
    let mut all = found.audience();
    all.extend(audience_numbers(connection, numbers, batch, who.iter())?);
    all.sort_unstable();
    all.dedup();
    for who in &all {
        connection.prepare_cached(sql::AUDIENCE_ADD)?.execute(params![who, found.no])?;
    }
    connection.prepare_cached(sql::HOLD_AUDIENCE)?.execute(params![found.no, list(&all)])?;
    Ok(())
}

fn audience_numbers<'a>(
    connection: &Connection,
    numbers: &mut Numbers,
    batch: &Batch,
    who: impl Iterator<Item = &'a AudienceMember>,
) -> Result<Vec<i64>, Failure> {
    let mut all = Vec::new();
    for AudienceMember(one) in who {
        all.push(numbers.number(connection, &names::within(batch.tenant().as_str(), one))?);
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

fn list(numbers: &[i64]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// The number of a run, if it exists.
pub(super) fn run_number(connection: &Connection, run: RunId) -> rusqlite::Result<Option<i64>> {
    connection.prepare_cached(sql::RUN_NUMBER)?.query_row(params![run.bytes()], |row| row.get(0)).optional()
}

/// The id of a run.
pub(super) fn id_of(connection: &Connection, no: i64) -> rusqlite::Result<RunId> {
    connection.prepare_cached(sql::RUN_ID)?.query_row(params![no], |row| row.get(0)).map(RunId::from_bytes)
}

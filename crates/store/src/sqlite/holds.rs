//! The rows of holds: opened, closed, found, and who may see them.
//!
//! What an open hold says beyond its number stands in the fold of its run; a decided one has its record here.

use rusqlite::{Connection, Row, Rows, params};
use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, Secret};
use standfast_core::project::{HoldChange, HoldRow};

use super::append::run_number;
use super::job::Failure;
use super::names;
use super::sql;
use super::tally::Tally;
use super::writer_memory::{HoldPosition, WriterMemory};
use crate::batch::{AudienceMember, Batch, SideWrite};
use crate::columns::{self, Record, deadline};

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

pub(super) fn opens(batch: &Batch, hold: HoldId) -> bool {
    batch.holds.iter().any(|change| matches!(change, HoldChange::Open(row) if row.id == hold))
}

pub(super) fn write_hold(
    connection: &Connection,
    memory: &mut WriterMemory,
    batch: &Batch,
    change: &HoldChange,
    (run, tenant): (i64, i64),
    tally: &mut Tally,
) -> Result<(), Failure> {
    match change {
        HoldChange::Open(row) => {
            let tool = match &row.tool {
                Some(tool) => Some(memory.number(connection, tool.as_str())?),
                None => None,
            };
            let inbox = match &row.inbox {
                Some(inbox) => Some(memory.number(connection, inbox.as_str())?),
                None => None,
            };
            let audience = audience_numbers(connection, memory, batch, audience_of(batch, row.id))?;
            let (agent, kind) =
                (memory.number(connection, row.agent.as_str())?, columns::kind_number(row.kind));
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
                deadline(row),
            ])?;
            let no = connection.last_insert_rowid();
            add_audience(connection, no, &audience)?;
            if row.kind == HoldKind::External {
                let (session, status) = (row.session.as_str(), columns::external_status(row));
                let timeout = row.expires_at.map(|at| at.0);
                connection
                    .prepare_cached(sql::EXTERNAL_ADD)?
                    .execute(params![no, tenant, run, session, status, timeout])?;
            }
            if let Some(place) = memory.runs.get(batch.run()) {
                place.holds.push(HoldPosition { key: row.id.key, no, audience });
            }
        }
        // What changes of an open hold stands in the fold of its run, but for what it is found by.
        HoldChange::Update(row) => {
            if let Some(found) = find_hold(connection, run, row.id)? {
                connection.prepare_cached(sql::HOLD_DEADLINE)?.execute(params![found.no, deadline(row)])?;
                if row.kind == HoldKind::External {
                    set_external(connection, row, found.no)?;
                }
            }
        }
        HoldChange::Close(row) => {
            if close_hold(connection, memory, row, run)? {
                let agent = memory.number(connection, row.agent.as_str())?;
                tally.holds(tenant, agent, columns::kind_number(row.kind), -1);
            }
        }
    }
    Ok(())
}

/// Closes a hold; says whether it was open.
fn close_hold(
    connection: &Connection,
    memory: &mut WriterMemory,
    row: &HoldRow,
    run: i64,
) -> Result<bool, Failure> {
    let remembered = memory.runs.get(row.id.run).and_then(|place| place.take_hold(row.id.key));
    let (no, audience, was_open) = match remembered {
        Some(hold) => (hold.no, hold.audience, true),
        None => {
            let Some(found) = find_hold(connection, run, row.id)? else { return Ok(false) };
            (found.no, found.audience(), found.record.is_none())
        }
    };
    let record = columns::json(&Record::of(row));
    connection.prepare_cached(sql::HOLD_CLOSE)?.execute(params![no, record])?;
    if row.kind == HoldKind::External {
        set_external(connection, row, no)?;
    }
    match audience.as_slice() {
        [] => {}
        [who] => {
            connection.prepare_cached(sql::AUDIENCE_REMOVE)?.execute(params![who, no])?;
        }
        several => {
            connection.prepare_cached(sql::AUDIENCE_REMOVE_ALL)?.execute(params![json_list(several), no])?;
        }
    }
    Ok(was_open)
}

/// How a hold that waits for an outside system is found from now on.
fn set_external(connection: &Connection, row: &HoldRow, hold: i64) -> Result<(), Failure> {
    let (status, timeout) = (columns::external_status(row), row.expires_at.map(|at| at.0));
    connection.prepare_cached(sql::EXTERNAL_SET)?.execute(params![hold, status, timeout])?;
    Ok(())
}

fn add_audience(connection: &Connection, hold: i64, audience: &[i64]) -> Result<(), Failure> {
    match audience {
        [] => {}
        [who] => {
            connection.prepare_cached(sql::AUDIENCE_ADD)?.execute(params![who, hold])?;
        }
        several => {
            connection.prepare_cached(sql::AUDIENCE_ADD_ALL)?.execute(params![json_list(several), hold])?;
        }
    }
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
    matching_hold(connection.prepare_cached(sql::HOLDS_OF_CALL)?.query(params![run, id.key.call.0])?, id)
}

/// The same, by the id of the run.
pub(super) fn find_hold_of_run(connection: &Connection, id: HoldId) -> Result<Option<FoundHold>, Failure> {
    let mut statement = connection.prepare_cached(sql::HOLDS_OF_RUN_CALL)?;
    matching_hold(statement.query(params![id.run.bytes(), id.key.call.0])?, id)
}

fn matching_hold(mut holds: Rows<'_>, id: HoldId) -> Result<Option<FoundHold>, Failure> {
    let mut found = None;
    while let Some(row) = holds.next()? {
        let secret: Vec<u8> = row.get(1)?;
        let is_it = <[u8; 16]>::try_from(secret).is_ok_and(|secret| Secret(secret) == id.key.secret);
        if is_it {
            found = Some(FoundHold::read(row).map_err(|error| columns::CorruptRow::from(error).of(id.run))?);
        }
    }
    Ok(found)
}

/// Further people may see a hold that is open already.
pub(super) fn write_audience(
    connection: &Connection,
    memory: &mut WriterMemory,
    batch: &Batch,
    hold: HoldId,
    who: &[AudienceMember],
) -> Result<(), Failure> {
    let Some(run) = run_number(connection, hold.run)? else { return Ok(()) };
    let Some(found) = find_hold(connection, run, hold)?.filter(|found| found.record.is_none()) else {
        return Ok(());
    };
    let mut all = found.audience();
    all.extend(audience_numbers(connection, memory, batch, who.iter())?);
    all.sort_unstable();
    all.dedup();
    add_audience(connection, found.no, &all)?;
    if let Some(place) = memory.runs.get(hold.run) {
        place.take_hold(hold.key);
    }
    connection.prepare_cached(sql::HOLD_AUDIENCE)?.execute(params![found.no, list(&all)])?;
    Ok(())
}

fn audience_numbers<'a>(
    connection: &Connection,
    memory: &mut WriterMemory,
    batch: &Batch,
    who: impl Iterator<Item = &'a AudienceMember>,
) -> Result<Vec<i64>, Failure> {
    let mut all = Vec::new();
    for AudienceMember(one) in who {
        all.push(memory.number(connection, &names::within(batch.tenant().as_str(), one))?);
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

fn list(numbers: &[i64]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn json_list(numbers: &[i64]) -> String {
    format!("[{}]", numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
}

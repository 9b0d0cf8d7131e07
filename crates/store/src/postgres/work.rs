//! Leases and due work, conversations, credentials, erasing: the smaller changes.
//!
//! Each is one statement, except a claim, which looks for candidates and then takes those that are still due, and
//! erasing, which reads what it deletes.

use std::collections::BTreeMap;

use standfast_core::digest::Digest;
use standfast_core::id::{Incarnation, RunId};
use standfast_core::link::Link;
use standfast_core::name::Tenant;
use standfast_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::connect::Connection;
use super::failure::Failure;
use super::pool::{Pool, TRIES};
use super::read::{load, read_credential, shard_numbers, stored, unreadable};
use super::rows::{self, RunColumns, column, digest};
use super::side::SideConnection;
use super::sql;
use super::types::{self, Bytes16, signed};
use crate::audit::entry_hash;
use crate::columns::CorruptRow;
use crate::error::StoreError;
use crate::fairness::take_turns;
use crate::query::{
    Claim, ClaimedRun, Credential, KeyNote, SCAN_MAX, SealedChange, SessionChange, SessionKey, StoredRun,
};
use crate::row_audit::RowEntry;

/// Where `sql::LEASE` has the lease before: behind the columns of a whole run.
const BEFORE: usize = 22;

/// Goes on while others were quicker, so that whoever asks gets as much as there is.
pub(super) async fn claim_due(pool: &Pool, claim: &Claim) -> Result<Vec<ClaimedRun>, StoreError> {
    let mut claimed = Vec::new();
    let mut room = claim.room.clone();
    for _ in 0..TRIES {
        let limit = claim.limit - claimed.len();
        if limit == 0 {
            break;
        }
        let wanted = candidates(pool, &Claim { limit, room: room.clone(), ..claim.clone() }).await?;
        let (count, taken) = (wanted.len(), lease(pool, claim, &wanted).await?);
        let is_all = taken.len() == count;
        for one in &taken {
            if let ClaimedRun::Run { stored, .. } = one {
                use_room(&mut room, stored);
            }
        }
        claimed.extend(taken);
        if is_all {
            break;
        }
    }
    Ok(claimed)
}

fn use_room(room: &mut [(Tenant, standfast_core::name::AgentName, usize)], stored: &StoredRun) {
    let facts = &stored.row.run.facts;
    if let Some((_, _, left)) =
        room.iter_mut().find(|(tenant, agent, _)| *tenant == facts.tenant && *agent == facts.agent)
    {
        *left = left.saturating_sub(1);
    }
}

/// Due runs in the order in which they are to be taken.
async fn candidates(pool: &Pool, claim: &Claim) -> Result<Vec<RunId>, StoreError> {
    let params: [&(dyn ToSql + Sync); 5] = [
        &claim.now.0,
        &types::rows(SCAN_MAX),
        &shard_numbers(&claim.shards),
        &types::fold(),
        &types::rows(claim.limit),
    ];
    let rows = pool.read(sql::DUE, &params).await?;
    let mut lanes: BTreeMap<(&str, &str), Vec<(Timestamp, i64)>> = BTreeMap::new();
    let mut runs: BTreeMap<i64, RunId> = BTreeMap::new();
    for row in &rows {
        let read = || -> Result<_, CorruptRow> {
            Ok((
                (column(row, 0)?, column(row, 1)?),
                column::<Bytes16>(row, 2)?,
                column(row, 3)?,
                column(row, 4)?,
            ))
        };
        let (lane, run, no, at) = read().map_err(unreadable)?;
        lanes.entry(lane).or_default().push((Timestamp(at), no));
        runs.insert(no, run.run());
    }
    let cut = |((tenant, agent), mut queue): ((&str, &str), Vec<(Timestamp, i64)>)| {
        let room = claim.room.iter().find(|(t, a, _)| t.as_str() == tenant && a.as_str() == agent);
        queue.truncate(room.map_or(claim.limit, |(_, _, room)| *room));
        queue
    };
    let taken = take_turns(lanes.into_iter().map(cut).collect(), claim.limit);
    Ok(taken.iter().filter_map(|no| runs.get(no).copied()).collect())
}

/// Leases those that are still due, in the order wanted.
async fn lease(pool: &Pool, claim: &Claim, wanted: &[RunId]) -> Result<Vec<ClaimedRun>, StoreError> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<Bytes16> = wanted.iter().map(|run| Bytes16::from(*run)).collect();
    let params: [&(dyn ToSql + Sync); 5] =
        [&ids, &Bytes16(claim.node.0), &claim.until.0, &claim.now.0, &types::fold()];
    let rows = pool.write(sql::LEASE, &params).await?;
    let mut taken: BTreeMap<RunId, &Row> = BTreeMap::new();
    for row in &rows {
        taken.insert(column::<Bytes16>(row, 0).map_err(unreadable)?.run(), row);
    }
    let mut claimed = Vec::with_capacity(taken.len());
    for run in wanted {
        let Some(row) = taken.get(run) else { continue };
        let found = match stored(pool, row, 0).await {
            // Another node appended while this statement waited for the run: then the row is newer than the link that it
            // was compared with. Only what is still wrong when it is read by itself is wrong.
            Err(StoreError::Corrupt { .. }) => load(pool, *run).await,
            other => other,
        };
        match found {
            Ok(stored) => {
                let from = rows::lease(row, BEFORE, BEFORE + 1).map_err(|corrupt| corrupt.of(*run))?;
                claimed.push(ClaimedRun::Run { stored: Box::new(stored), from });
            }
            Err(StoreError::Corrupt { run, why }) => {
                // Its events stay as they are; only the work list forgets it, or it would come up for ever.
                pool.write(sql::NOT_DUE, &[&Bytes16::from(run)]).await?;
                claimed.push(ClaimedRun::Corrupt { run, why });
            }
            Err(other) => return Err(other),
        }
    }
    Ok(claimed)
}

pub(super) async fn renew(
    pool: &Pool,
    runs: Vec<RunId>,
    node: Incarnation,
    until: Timestamp,
) -> Result<Vec<RunId>, StoreError> {
    let ids: Vec<Bytes16> = runs.iter().map(|run| Bytes16::from(*run)).collect();
    let rows = pool.write(sql::RENEW, &[&ids, &Bytes16(node.0), &until.0]).await?;
    let still = rows.iter().map(|row| column::<Bytes16>(row, 0).map(Bytes16::run));
    let still = still.collect::<Result<Vec<RunId>, CorruptRow>>().map_err(unreadable)?;
    Ok(runs.into_iter().filter(|run| still.contains(run)).collect())
}

pub(super) async fn release(
    pool: &Pool,
    run: RunId,
    node: Incarnation,
    wake_at: Option<Timestamp>,
) -> Result<(), StoreError> {
    let params: [&(dyn ToSql + Sync); 3] = [&Bytes16::from(run), &Bytes16(node.0), &wake_at.map(|at| at.0)];
    pool.write(sql::RELEASE, &params).await.map(|_| ())
}

/// Puts a run aside; the first reason is the one that counts.
pub(super) async fn quarantine(side: &SideConnection, run: RunId, why: &str) -> Result<(), StoreError> {
    // Text has no NUL.
    let why = why.replace('\0', "\u{fffd}");
    side.transact(|connection| Box::pin(quarantine_now(connection, run, why.clone()))).await
}

async fn quarantine_now(connection: &Connection, run: RunId, why: String) -> Result<(), Failure> {
    let id = Bytes16::from(run);
    // Locked first, so that the statement after it sees the work that an append has just added.
    if connection.query(sql::RUN_LOCK, &[&id]).await?.is_empty() {
        return Err(StoreError::NotFound { run }.into());
    }
    connection.query(sql::QUARANTINE, &[&id, &why]).await?;
    Ok(())
}

/// Keeps or forgets keys apart from any append.
pub(super) async fn note_keys(pool: &Pool, notes: Vec<KeyNote>) -> Result<(), StoreError> {
    let (kept, gone): (Vec<KeyNote>, Vec<KeyNote>) =
        KeyNote::last_of_each(notes).into_iter().partition(|note| note.kept.is_some());
    let names = |notes: &[KeyNote]| -> (Vec<String>, Vec<Vec<u8>>) {
        let name = |note: &KeyNote| (note.tenant.as_str().to_owned(), note.key.clone().into_bytes());
        notes.iter().map(name).unzip()
    };
    let ((tenants, keys), (gone_tenants, gone_keys)) = (names(&kept), names(&gone));
    let says = kept.iter().filter_map(|note| note.kept);
    let (requests, until): (Vec<Vec<u8>>, Vec<i64>) =
        says.map(|(request, until)| (request.0.to_vec(), until.0)).unzip();
    let runs: Vec<Bytes16> = kept.iter().map(|note| Bytes16::from(note.run)).collect();
    let params: [&(dyn ToSql + Sync); 8] =
        [&tenants, &keys, &requests, &runs, &until, &KeyNote::REFRESHED_MILLIS, &gone_tenants, &gone_keys];
    pool.write(sql::KEYS_NOTE, &params).await?;
    Ok(())
}

pub(super) async fn forget_keys(pool: &Pool, until: Timestamp, limit: usize) -> Result<usize, StoreError> {
    let rows = pool.write(sql::KEYS_FORGET, &[&until.0, &types::rows(limit)]).await?;
    let count: i64 = rows.first().map(|row| column(row, 0)).transpose().map_err(unreadable)?.unwrap_or(0);
    Ok(usize::try_from(count).unwrap_or_default())
}

/// How often an entry of the audit is tried when others add theirs.
const AUDIT_TRIES: u32 = 64;

pub(super) async fn change_session(
    side: &SideConnection,
    key: SessionKey,
    change: SessionChange,
    at: Timestamp,
) -> Result<bool, StoreError> {
    side.transact(|connection| Box::pin(change_session_now(connection, key.clone(), change.clone(), at)))
        .await
}

async fn change_session_now(
    connection: &Connection,
    key: SessionKey,
    change: SessionChange,
    at: Timestamp,
) -> Result<bool, Failure> {
    let (tenant, agent) = (key.tenant.as_str(), key.agent.as_str());
    let (session, owner) = (key.session.as_str(), key.owner.as_str());
    let changed = match &change {
        SessionChange::Metadata { before, after } => {
            let params: [&(dyn ToSql + Sync); 7] = [&tenant, &agent, &session, &owner, before, after, &at.0];
            connection.query(sql::SESSION_METADATA, &params).await?
        }
        SessionChange::Close => {
            connection.query(sql::SESSION_CLOSE, &[&tenant, &agent, &session, &owner]).await?
        }
    };
    if changed.is_empty() || !change.is_said() {
        return Ok(!changed.is_empty());
    }
    let now = connection.query(sql::SESSION, &[&tenant, &agent, &session, &owner]).await?;
    if let Some(now) = now.first() {
        let read = || Ok((column::<&str>(now, 0)?, column(now, 3)?));
        let (metadata, is_closed) = read().map_err(unreadable)?;
        put_entry(connection, tenant, at, &RowEntry::session(&key, metadata, is_closed).text()).await?;
    }
    Ok(true)
}

/// The time of the database.
pub(super) async fn time_of(connection: &Connection) -> Result<Timestamp, Failure> {
    let rows = connection.query(sql::TIME, &[]).await?;
    let now = rows.first().map(|row| column(row, 0)).transpose().map_err(unreadable)?;
    Ok(Timestamp(now.unwrap_or_default()))
}

/// Adds the entry of a row beside the runs to the audit, in the transaction that changes the row, at the database's time.
pub(super) async fn put_row(connection: &Connection, tenant: &str, row: &RowEntry) -> Result<(), Failure> {
    let now = time_of(connection).await?;
    put_entry(connection, tenant, now, &row.text()).await
}

/// Whoever lost the number to somebody else waits for their transaction, and takes the next.
async fn put_entry(connection: &Connection, tenant: &str, at: Timestamp, entry: &str) -> Result<(), Failure> {
    for _ in 0..AUDIT_TRIES {
        let last = connection.query(sql::AUDIT_LAST, &[&tenant]).await?;
        let (no, previous) = next_entry(last.first()).map_err(unreadable)?;
        let number = u64::try_from(no).unwrap_or_default();
        let hash = entry_hash(previous, tenant, number, at, entry);
        let params: [&(dyn ToSql + Sync); 5] = [&tenant, &no, &at.0, &entry, &hash.0.as_slice()];
        if !connection.query(sql::AUDIT_ADD, &params).await?.is_empty() {
            return Ok(());
        }
    }
    Err(Failure::Again("others keep adding entries to the audit".into()))
}

/// The number of the next entry, and the hash of the one before it.
fn next_entry(last: Option<&Row>) -> Result<(i64, Option<Digest>), CorruptRow> {
    let read = |row: &Row| Ok::<(i64, Digest), CorruptRow>((column(row, 0)?, digest(row, 1)?));
    let last = last.map(read).transpose()?;
    Ok((last.map_or(1, |(no, _)| no.saturating_add(1)), last.map(|(_, hash)| hash)))
}

/// Entries added at the same moment want the same number; whoever lost takes the next.
pub(super) async fn put_audit(
    pool: &Pool,
    tenant: &Tenant,
    at: Timestamp,
    entry: &str,
) -> Result<(), StoreError> {
    for _ in 0..AUDIT_TRIES {
        let last = pool.read(sql::AUDIT_LAST, &[&tenant.as_str()]).await?;
        let (no, previous) = next_entry(last.first()).map_err(unreadable)?;
        let number = u64::try_from(no).unwrap_or_default();
        let hash = entry_hash(previous, tenant.as_str(), number, at, entry);
        let added =
            pool.write(sql::AUDIT_ADD, &[&tenant.as_str(), &no, &at.0, &entry, &hash.0.as_slice()]).await?;
        if !added.is_empty() {
            return Ok(());
        }
    }
    Err(StoreError::unavailable("many entries are added to the audit at the same moment; try again"))
}

pub(super) async fn change_sealed(side: &SideConnection, change: SealedChange) -> Result<bool, StoreError> {
    side.transact(|connection| Box::pin(change_sealed_now(connection, change.clone()))).await
}

async fn change_sealed_now(connection: &Connection, change: SealedChange) -> Result<bool, Failure> {
    let (tenant, name) = (change.tenant.as_str(), &change.name);
    let rows = match (&change.before, &change.after) {
        (None, Some(after)) => connection.query(sql::SEALED_ADD, &[&tenant, name, after]).await?,
        (Some(before), Some(after)) => {
            connection.query(sql::SEALED_CHANGE, &[&tenant, name, before, after]).await?
        }
        (Some(before), None) => connection.query(sql::SEALED_REMOVE, &[&tenant, name, before]).await?,
        (None, None) => return Ok(connection.query(sql::SEALED, &[&tenant, name]).await?.is_empty()),
    };
    if !rows.is_empty() {
        put_row(connection, tenant, &RowEntry::sealed(name, change.after.as_deref())).await?;
    }
    Ok(!rows.is_empty())
}

pub(super) async fn put_credential(side: &SideConnection, new: Credential) -> Result<bool, StoreError> {
    side.transact(|connection| Box::pin(put_credential_now(connection, new.clone()))).await
}

async fn put_credential_now(connection: &Connection, new: Credential) -> Result<bool, Failure> {
    let params: [&(dyn ToSql + Sync); 6] = [
        &new.tenant.as_str(),
        &new.prefix,
        &new.hash.0.as_slice(),
        &new.facts,
        &new.expires_at.map(|at| at.0),
        &new.revoked_at.map(|at| at.0),
    ];
    let is_new = !connection.query(sql::CREDENTIAL_ADD, &params).await?.is_empty();
    if is_new {
        put_row(connection, new.tenant.as_str(), &RowEntry::key(&new)).await?;
    }
    Ok(is_new)
}

/// Ends a credential by one of two statements.
pub(super) async fn end_credential(
    side: &SideConnection,
    statement: &'static str,
    (tenant, prefix): (Tenant, String),
    at: Timestamp,
) -> Result<bool, StoreError> {
    if prefix.contains('\0') {
        return Ok(false);
    }
    side.transact(|connection| {
        Box::pin(end_credential_now(connection, statement, tenant.clone(), prefix.clone(), at))
    })
    .await
}

async fn end_credential_now(
    connection: &Connection,
    statement: &'static str,
    tenant: Tenant,
    prefix: String,
    at: Timestamp,
) -> Result<bool, Failure> {
    let changed = connection.query(statement, &[&tenant.as_str(), &prefix, &at.0]).await?;
    if changed.is_empty() {
        return Ok(false);
    }
    let found = connection.query(sql::CREDENTIAL, &[&prefix]).await?;
    if let Some(row) = found.first() {
        let key = read_credential(row).map_err(unreadable)?;
        put_row(connection, tenant.as_str(), &RowEntry::key(&key)).await?;
    }
    Ok(true)
}

/// Deletes payloads, salts, large values and what could not be told; the event that says so stays readable.
pub(super) async fn erase(side: &SideConnection, run: RunId) -> Result<(), StoreError> {
    side.transact(|connection| Box::pin(erase_now(connection, run))).await
}

async fn erase_now(connection: &Connection, run: RunId) -> Result<(), Failure> {
    let id = Bytes16::from(run);
    let found = connection.query(sql::RUN_LOCK, &[&id]).await?;
    let row = found.first().ok_or(StoreError::NotFound { run })?;
    let columns = RunColumns::of(row, 0)?;
    let log = connection.query(sql::LINKS, &[&id, &0i64, &i64::MAX]).await?;
    let links = log.iter().map(|row| rows::link(run, row)).collect::<Result<Vec<Link>, CorruptRow>>();
    let links = links.map_err(|corrupt| corrupt.of(run))?;
    let older = columns.is_of_an_older_fold().then_some(&*links);
    if !columns.stored(older)?.row.run.state.erased {
        let why = format!("run {run} has no run.erased event yet; append it first");
        return Err(StoreError::unavailable(why).into());
    }
    // The event that says so stays readable, and so does what followed it.
    let said_at = links.iter().position(Link::says_erased).unwrap_or(0);
    let (firsts, commitments): (Vec<i64>, Vec<Vec<u8>>) = links
        .iter()
        .take(said_at)
        .map(|link| (signed(link.header.first.0), link.contents.commitment().0.to_vec()))
        .unzip();
    connection.query(sql::LINKS_ERASE, &[&id, &firsts, &commitments]).await?;
    connection.query(sql::BLOBS_ERASE, &[&id]).await?;
    connection.query(sql::LETTERS_ERASE, &[&id]).await?;
    connection.query(sql::RUN_ERASED, &[&id]).await?;
    Ok(())
}

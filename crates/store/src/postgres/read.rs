//! Point reads: each is one statement, and so sees one moment.
//!
//! Pages are in `lists.rs`. A row that cannot be read concerns its own run only.

use standfast_core::digest::Digest;
use standfast_core::id::{HoldId, RunId, Secret, Seq};
use standfast_core::link::Link;
use standfast_core::name::Tenant;
use standfast_core::project::{self, HoldRow};
use standfast_core::run::Facts;
use standfast_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::pool::Pool;
use super::rows::{self, RunColumns, column, digest, instant, seq};
use super::sql;
use super::types::{self, Bytes16, signed};
use crate::columns::{self, CorruptRow, Record};
use crate::error::StoreError;
use crate::key_query::KeyQuery;
use crate::query::{AuditEntry, Credential, KeyRecord, SessionKey, SessionRow, ShardSet, StoredRun};

pub(super) async fn load(pool: &Pool, run: RunId) -> Result<StoredRun, StoreError> {
    let rows = pool.read(sql::RUN, &[&Bytes16::from(run)]).await?;
    stored(pool, rows.first().ok_or(StoreError::NotFound { run })?, 0).await
}

/// What never changes of a run; none when there is no such run, or when not even that can be read.
pub(super) async fn facts(pool: &Pool, run: RunId) -> Result<Option<Facts>, StoreError> {
    let rows = pool.read(sql::RUN_FACTS, &[&Bytes16::from(run)]).await?;
    Ok(rows.first().and_then(|row| RunColumns::of(row, 0).ok()?.facts().ok()))
}

/// The run in this row. One of an older fold is made again from its events.
pub(super) async fn stored(pool: &Pool, row: &Row, from: usize) -> Result<StoredRun, StoreError> {
    let columns = RunColumns::of(row, from)?;
    let older = if columns.is_of_an_older_fold() {
        Some(links(pool, columns.id, Seq(0), usize::MAX).await?)
    } else {
        None
    };
    columns.stored(older.as_deref())
}

pub(super) async fn links(
    pool: &Pool,
    run: RunId,
    after: Seq,
    limit: usize,
) -> Result<Vec<Link>, StoreError> {
    // The link that holds the next event may begin before it, or end before it too.
    let most = types::rows(limit).saturating_add(1);
    let found = pool.read(sql::LINKS, &[&Bytes16::from(run), &signed(after.plus(1).0), &most]).await?;
    if found.is_empty() {
        return Err(StoreError::NotFound { run });
    }
    let links = found.iter().map(|row| rows::link(run, row)).collect::<Result<Vec<Link>, CorruptRow>>();
    let mut links = links.map_err(|corrupt| corrupt.of(run))?;
    links.retain(|link| link.next() > after.plus(1));
    links.truncate(limit);
    Ok(links)
}

pub(super) async fn blob(pool: &Pool, run: RunId, name: Digest) -> Result<Option<String>, StoreError> {
    let rows = pool.read(sql::BLOB, &[&Bytes16::from(run), &name.0.as_slice()]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let value = column(row, 0).map_err(|corrupt| corrupt.of(run))?;
    let text =
        String::from_utf8(value).map_err(|_| CorruptRow("a large value is not text".into()).of(run))?;
    Ok(Some(text))
}

pub(super) async fn definition(
    pool: &Pool,
    tenant: &Tenant,
    name: Digest,
) -> Result<Option<Vec<u8>>, StoreError> {
    let rows = pool.read(sql::DEFINITION, &[&tenant.as_str(), &name.0.as_slice()]).await?;
    rows.first().map(|row| column(row, 0)).transpose().map_err(unreadable)
}

/// The secret is compared in constant time. What an open hold asks stands in its run, which is read after it: one that
/// was closed between the two is looked for once more, and has its record then.
pub(super) async fn find_hold(pool: &Pool, hold: HoldId) -> Result<Option<HoldRow>, StoreError> {
    for _ in 0..2 {
        match hold_record(pool, hold).await? {
            None => return Ok(None),
            Some(Some(record)) => return Ok(Some(record.row(hold))),
            Some(None) => {
                let run = load(pool, hold.run).await?.row.run;
                if let Some(open) = run.hold(hold.key) {
                    return Ok(Some(project::hold_row(&run, open)));
                }
            }
        }
    }
    Ok(None)
}

/// What became of a hold; an open one has no record yet.
async fn hold_record(pool: &Pool, hold: HoldId) -> Result<Option<Option<Record>>, StoreError> {
    let key = hold.key;
    let rows = pool.read(sql::HOLDS_OF_CALL, &[&Bytes16::from(hold.run), &i64::from(key.call.0)]).await?;
    let mut found = None;
    for row in &rows {
        let secret: Bytes16 = column(row, 0).map_err(|corrupt| corrupt.of(hold.run))?;
        if Secret(secret.0) == key.secret {
            found = Some(column::<Option<&str>>(row, 1).map_err(|corrupt| corrupt.of(hold.run))?);
        }
    }
    let parsed = |record: Option<&str>| record.map(columns::parse::<Record>).transpose();
    found.map(parsed).transpose().map_err(|corrupt| corrupt.of(hold.run))
}

pub(super) async fn find_key(
    pool: &Pool,
    tenant: &Tenant,
    key: &str,
) -> Result<Option<KeyRecord>, StoreError> {
    let rows = pool.read(sql::KEY, &[&tenant.as_str(), &key.as_bytes()]).await?;
    rows.first().map(key_record).transpose().map_err(unreadable)
}

fn key_record(row: &Row) -> Result<KeyRecord, CorruptRow> {
    Ok(KeyRecord {
        request: digest(row, 0)?,
        run: column::<Bytes16>(row, 1)?.run(),
        seq: seq(row, 2)?,
        expires_at: Timestamp(column(row, 3)?),
    })
}

pub(super) async fn keys_under(
    pool: &Pool,
    query: &KeyQuery,
) -> Result<Vec<(String, KeyRecord)>, StoreError> {
    let (tenant, end) = (query.tenant.as_str(), query.end());
    let limit = types::rows(query.limit);
    let bounds: [&(dyn ToSql + Sync); 4] = [&tenant, &query.prefix.as_bytes(), &end.as_bytes(), &limit];
    let rows = pool.read(sql::KEYS_UNDER, &bounds).await?;
    let named = |row: &Row| -> Result<(String, KeyRecord), CorruptRow> {
        // What is stored is text; a row that is not was not written by a server.
        let key = String::from_utf8_lossy(&column::<Vec<u8>>(row, 4)?).into_owned();
        Ok((key, key_record(row)?))
    };
    rows.iter().map(named).collect::<Result<_, _>>().map_err(unreadable)
}

pub(super) fn shard_numbers(shards: &ShardSet) -> Vec<i16> {
    shards.iter().map(|shard| i16::from(shard.0)).collect()
}

pub(super) async fn tenants(pool: &Pool) -> Result<Vec<Tenant>, StoreError> {
    let rows = pool.read(sql::TENANTS, &[&""]).await?;
    let names = rows.iter().map(|row| column::<String>(row, 0)).collect::<Result<Vec<_>, _>>();
    // An invalid name has no runs that anybody could see.
    Ok(names.map_err(unreadable)?.into_iter().filter_map(|name| Tenant::new(name).ok()).collect())
}

pub(super) async fn session(pool: &Pool, key: SessionKey) -> Result<Option<SessionRow>, StoreError> {
    let (tenant, agent) = (key.tenant.as_str(), key.agent.as_str());
    let rows =
        pool.read(sql::SESSION, &[&tenant, &agent, &key.session.as_str(), &key.owner.as_str()]).await?;
    let row = |row: &Row| -> Result<SessionRow, CorruptRow> {
        Ok(SessionRow {
            key: key.clone(),
            metadata: column(row, 0)?,
            created_at: Timestamp(column(row, 1)?),
            updated_at: Timestamp(column(row, 2)?),
            closed: column(row, 3)?,
        })
    };
    rows.first().map(row).transpose().map_err(unreadable)
}

pub(super) async fn sealed(pool: &Pool, tenant: &Tenant, name: &str) -> Result<Option<String>, StoreError> {
    // Text has no NUL, so nothing has such a name.
    if name.contains('\0') {
        return Ok(None);
    }
    let rows = pool.read(sql::SEALED, &[&tenant.as_str(), &name]).await?;
    rows.first().map(|row| column(row, 0)).transpose().map_err(unreadable)
}

pub(super) async fn credential(pool: &Pool, prefix: &str) -> Result<Option<Credential>, StoreError> {
    // Text has no NUL, so nobody has such a prefix.
    if prefix.contains('\0') {
        return Ok(None);
    }
    let rows = pool.read(sql::CREDENTIAL, &[&prefix]).await?;
    rows.first().map(read_credential).transpose().map_err(unreadable)
}

pub(super) async fn credentials(pool: &Pool, tenant: &Tenant) -> Result<Vec<Credential>, StoreError> {
    let rows = pool.read(sql::CREDENTIALS, &[&tenant.as_str()]).await?;
    rows.iter().map(read_credential).collect::<Result<_, CorruptRow>>().map_err(unreadable)
}

pub(super) fn read_credential(row: &Row) -> Result<Credential, CorruptRow> {
    Ok(Credential {
        tenant: Tenant::new(column::<&str>(row, 0)?)?,
        prefix: column(row, 1)?,
        hash: digest(row, 2)?,
        facts: column(row, 3)?,
        expires_at: instant(row, 4)?,
        revoked_at: instant(row, 5)?,
    })
}

pub(super) async fn audit_entries(
    pool: &Pool,
    tenant: &Tenant,
    after: u64,
    limit: usize,
) -> Result<Vec<AuditEntry>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = pool.read(sql::AUDIT_AFTER, &[&tenant.as_str(), &signed(after), &limit]).await?;
    rows.iter().map(|row| read_entry(row, 0)).collect::<Result<_, CorruptRow>>().map_err(unreadable)
}

/// The audit of all tenants behind a place, with the tenant of each entry.
pub(super) async fn audit_of_all(
    pool: &Pool,
    (tenant, no): &(String, u64),
    limit: usize,
) -> Result<Vec<(String, AuditEntry)>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = pool.read(sql::AUDIT_ALL, &[tenant, &signed(*no), &limit]).await?;
    rows.iter().map(entry_of_all).collect::<Result<_, CorruptRow>>().map_err(unreadable)
}

/// An entry of the audit of all tenants, and whose it is.
pub(super) fn entry_of_all(row: &Row) -> Result<(String, AuditEntry), CorruptRow> {
    Ok((column(row, 0)?, read_entry(row, 1)?))
}

/// An entry whose columns begin at this one.
fn read_entry(row: &Row, first: usize) -> Result<AuditEntry, CorruptRow> {
    let no = u64::try_from(column::<i64>(row, first)?).unwrap_or_default();
    let hash = digest(row, first + 3)?;
    Ok(AuditEntry { no, at: Timestamp(column(row, first + 1)?), entry: column(row, first + 2)?, hash })
}

pub(super) async fn time(pool: &Pool) -> Result<Option<Timestamp>, StoreError> {
    let rows = pool.read(sql::TIME, &[]).await?;
    rows.first().map(|row| column(row, 0).map(Timestamp)).transpose().map_err(unreadable)
}

pub(super) fn unreadable(corrupt: CorruptRow) -> StoreError {
    StoreError::unavailable(format!("the database cannot be read: {}", corrupt.0))
}

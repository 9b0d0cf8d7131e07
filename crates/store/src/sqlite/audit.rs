//! Proving a SQLite file right: every chain verifies, every row is what its events fold into, the audits of tenants are
//! whole. Exporting what is proven, and saying where each chain ends, for heads that are signed.
//!
//! Reads only, run by run in short transactions, so that it can look at the file of a server that is at work.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, Row, params};
use standfast_core::digest::Digest;
use standfast_core::id::{CallNo, HoldId, HoldKey, RunId, Secret, Seq};
use standfast_core::link::Link;
use standfast_core::name::Tenant;
use standfast_core::run::Run;
use standfast_core::time::Timestamp;

use super::read::{ReadSession, Readers};
use super::writer_memory::WriterMemory;
use super::{OpenError, SqliteFile, credentials, deliveries, schema, sql, work};
use crate::audit::{
    AuditContext, Entries, Evidence, ExportedRun, Finding, Report, RunFindings, SignedCoverage,
    StoredColumns, StoredHold, entry_hash, look_and_export, look_at,
};
use crate::columns::{self, CorruptRow, Record};
use crate::error::StoreError;
use crate::query::{AuditEntry, KeyRecord};
use crate::row_audit::{Adoption, RowEntry, RowEvidence, RowKind, wrong_rows};

/// Rows of runs and entries that are read at once.
const PAGE: i64 = 500;

/// Findings of one kind that are reported; there may be as many as rows.
const TOLD: i64 = 20;

/// Which phase a run is listed under, and by which fold.
const COLUMNS: &str = "SELECT phase, fold FROM runs WHERE id = ?1";

/// The rows of a run's holds.
const HOLDS: &str = "SELECT h.call, h.secret, t.text, a.text, o.text, h.kind, i.text, h.closed, h.record FROM runs r \
     JOIN holds h ON h.run = r.no LEFT JOIN names t ON t.no = h.tenant LEFT JOIN names a ON a.no = h.agent \
     LEFT JOIN names o ON o.no = h.tool LEFT JOIN names i ON i.no = h.inbox WHERE r.id = ?1 ORDER BY h.no";

/// Every definition.
const DEFINITIONS: &str =
    "SELECT n.text, d.digest, d.bytes FROM definitions d JOIN names n ON n.no = d.tenant";

/// Every API key.
const KEYS: &str =
    "SELECT coalesce(n.text, ''), c.prefix FROM credentials c LEFT JOIN names n ON n.no = c.tenant";

/// Every subscription.
const SUBSCRIPTIONS: &str =
    "SELECT coalesce(n.text, ''), s.id FROM subscriptions s LEFT JOIN names n ON n.no = s.tenant";

/// Every session that is not as it began: with metadata, or closed.
const SESSIONS: &str = "SELECT t.text, a.text, o.text, s.session, coalesce(s.metadata, '{}'), CAST(s.closed AS TEXT) \
     FROM sessions s JOIN names t ON t.no = s.tenant JOIN names a ON a.no = s.agent JOIN names o ON o.no = s.owner \
     WHERE coalesce(s.metadata, '{}') <> '{}' OR s.closed <> 0";

/// Every sealed document.
const SEALED: &str =
    "SELECT coalesce(n.text, ''), s.name, s.value FROM sealed s LEFT JOIN names n ON n.no = s.tenant";

/// How many kinds of rows of an older version wait to be taken into the audit, and whether that is all of them.
const UNSAID: &str = "SELECT count(*), coalesce(max(kind IS NULL), 0) FROM unsaid_rows";

/// They have been.
const ALL_SAID: &str = "DELETE FROM unsaid_rows";

/// Links and holds of runs that are not there.
const ORPHANS: &str = "SELECT DISTINCT key >> 20 FROM links WHERE NOT EXISTS (SELECT 1 FROM runs WHERE no = key >> 20) \
     UNION SELECT DISTINCT run FROM holds h WHERE NOT EXISTS (SELECT 1 FROM runs WHERE no = h.run) LIMIT ?1";

/// Where each chain ends.
const HEADS: &str = "SELECT no, id, seq, head FROM runs WHERE no > ?1 ORDER BY no LIMIT ?2";

/// Whether an entry of the audit is tied to the one before it.
const HAS_SEALED_ENTRY: &str = "SELECT count(*) FROM (SELECT 1 FROM audit WHERE length(hash) = 32 LIMIT 1)";

/// Looks at every run of a file. `progress` hears after each page how many runs were looked at.
pub fn verify(path: &Path, progress: impl FnMut(u64)) -> Result<Report, OpenError> {
    verify_against(path, &SignedCoverage::default(), progress)
}

/// The same, and whether everything that was signed is still there.
pub fn verify_against<'a>(
    file: impl Into<SqliteFile<'a>>,
    covered: &SignedCoverage,
    progress: impl FnMut(u64),
) -> Result<Report, OpenError> {
    let look = |reading: &ReadSession<'_>, known: &AuditContext, run| Ok((look_at(reading, known, run)?, ()));
    walk(&file.into(), covered, progress, look, |()| ControlFlow::Continue(()))
}

/// Looks at one run, or at every run, and hands over what its log says, as far as it verifies. Ends early when `take`
/// says so.
pub fn export<'a>(
    file: impl Into<SqliteFile<'a>>,
    only: Option<RunId>,
    mut take: impl FnMut(ExportedRun) -> ControlFlow<()>,
) -> Result<Report, OpenError> {
    let look =
        |reading: &ReadSession<'_>, known: &AuditContext, run| look_and_export(reading, known, only, run);
    let hand_on = |exported: Option<ExportedRun>| exported.map_or(ControlFlow::Continue(()), &mut take);
    let report = walk(&file.into(), &SignedCoverage::default(), |_| {}, look, hand_on)?;
    Ok(report.only(only))
}

/// Where the chain of each run ends: its last event and the hash of its last link.
pub fn heads(path: &Path, mut take: impl FnMut(RunId, Seq, Digest)) -> Result<(), OpenError> {
    schema::check_readable(path)?;
    let readers = Readers::new(&path.into())?;
    let mut after = 0i64;
    loop {
        let page = readers.read(|reading| heads_after(reading, after));
        let page = page.map_err(|error| unusable(path, &error))?;
        let Some((last, ..)) = page.last() else { return Ok(()) };
        after = *last;
        page.into_iter().for_each(|(_, run, seq, head)| take(run, seq, head));
    }
}

fn heads_after(reading: &ReadSession<'_>, after: i64) -> Result<Vec<(i64, RunId, Seq, Digest)>, StoreError> {
    let read = || -> rusqlite::Result<Vec<(i64, RunId, Seq, Digest)>> {
        let mut statement = reading.connection.prepare_cached(HEADS)?;
        let head = |row: &Row<'_>| {
            Ok((row.get(0)?, RunId::from_bytes(row.get(1)?), Seq(row.get(2)?), Digest(row.get(3)?)))
        };
        statement.query_map(params![after, PAGE], head)?.collect()
    };
    read().map_err(|error| StoreError::unavailable(format!("the runs cannot be listed: {error}")))
}

/// The audit of every tenant, oldest first: what happened beside the runs. Ends early when `take` says so.
pub fn audit_entries(
    path: &Path,
    mut take: impl FnMut(&str, AuditEntry) -> ControlFlow<()>,
) -> Result<(), OpenError> {
    schema::check_readable(path)?;
    let readers = Readers::new(&path.into())?;
    let mut after = (0i64, 0i64);
    loop {
        let page = readers.read(|reading| page_of_audit(reading.connection, after));
        let page = page.map_err(|error| unusable(path, &error))?;
        if page.is_empty() {
            return Ok(());
        }
        for (tenant, name, entry) in page {
            after = (tenant, i64::try_from(entry.no).unwrap_or(i64::MAX));
            if take(&name, entry).is_break() {
                return Ok(());
            }
        }
    }
}

type NamedEntry = (i64, String, AuditEntry);

fn page_of_audit(connection: &Connection, (tenant, no): (i64, i64)) -> Result<Vec<NamedEntry>, StoreError> {
    let read = || -> rusqlite::Result<Vec<NamedEntry>> {
        let mut statement = connection.prepare_cached(sql::AUDIT_ALL)?;
        let entry = |row: &Row<'_>| {
            let no = u64::try_from(row.get::<_, i64>(2)?).unwrap_or_default();
            // One that has none fits nothing.
            let hash = Digest(row.get(5).unwrap_or_default());
            let entry = AuditEntry { no, at: Timestamp(row.get(3)?), entry: row.get(4)?, hash };
            Ok((row.get(0)?, row.get(1)?, entry))
        };
        statement.query_map(params![tenant, no], entry)?.collect()
    };
    read().map_err(|error| StoreError::unavailable(format!("the audit cannot be read: {error}")))
}

/// Ties the entries of an older version together, once: where one is tied already, it is done.
pub(super) fn seal_entries(connection: &mut Connection) -> Result<(), String> {
    let said = |error: rusqlite::Error| error.to_string();
    let sealed: i64 = connection.query_row(HAS_SEALED_ENTRY, [], |row| row.get(0)).map_err(said)?;
    if sealed > 0 {
        return Ok(());
    }
    let transaction = connection.transaction().map_err(said)?;
    let (mut after, mut previous) = ((0i64, 0i64), None);
    loop {
        let page = page_of_audit(&transaction, after).map_err(|error| error.to_string())?;
        if page.is_empty() {
            break;
        }
        for (tenant, name, entry) in page {
            let before = previous.filter(|_| after.0 == tenant);
            let hash = entry_hash(before, &name, entry.no, entry.at, &entry.entry);
            let seal = params![tenant, entry.no, hash.0];
            transaction.execute(sql::AUDIT_SEAL, seal).map_err(said)?;
            (after, previous) = ((tenant, i64::try_from(entry.no).unwrap_or(i64::MAX)), Some(hash));
        }
    }
    transaction.commit().map_err(said)
}

/// Takes rows into the audit that an older version wrote, whose audit has no entries for them: once, and all or none.
pub(super) fn adopt_rows(connection: &mut Connection) -> Result<(), String> {
    let said = |error: rusqlite::Error| error.to_string();
    let waiting = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get(1)?));
    let adoption = match connection.query_row(UNSAID, [], waiting).map_err(said)? {
        (0, _) => return Ok(()),
        (_, true) => Adoption::Everything,
        (_, false) => Adoption::Sealed,
    };
    let behavior = rusqlite::TransactionBehavior::Immediate;
    let transaction = connection.transaction_with_behavior(behavior).map_err(said)?;
    let unsaid = rows(&transaction).map_err(|error| error.to_string())?.unsaid(adoption);
    for (tenant, row) in unsaid {
        work::put_row(&transaction, &mut WriterMemory::default(), &tenant, &row).map_err(said)?;
    }
    transaction.execute(ALL_SAID, []).map_err(said)?;
    transaction.commit().map_err(said)
}

/// Looks at each run in a transaction of its own, which ends when what was found is handed on.
fn walk<T>(
    file: &SqliteFile<'_>,
    covered: &SignedCoverage,
    mut progress: impl FnMut(u64),
    look: impl Fn(&ReadSession<'_>, &AuditContext, RunId) -> Result<(RunFindings, T), StoreError>,
    mut hand_on: impl FnMut(T) -> ControlFlow<()>,
) -> Result<Report, OpenError> {
    let path = file.path;
    schema::check_readable(path)?;
    let readers = Readers::new(file)?;
    let mut report = Report::default();
    let failed = |error: StoreError| unusable(path, &error);
    let mut known = beside_runs(path, &readers, covered, &mut report)?;
    let mut after = 0i64;
    loop {
        let page = readers.read(|reading| runs_after(reading, after)).map_err(failed)?;
        if page.is_empty() {
            break;
        }
        for (no, run) in page {
            // Numbers are given one after the other, and rows are never deleted.
            if no != after + 1 {
                let (first, last) = (after + 1, no - 1);
                let run =
                    if first == last { format!("row {first}") } else { format!("rows {first} to {last}") };
                report.findings.push(Finding { run, what: "of runs that are gone".into() });
            }
            after = no;
            report.runs += 1;
            let Some(run) = run else {
                report
                    .findings
                    .push(Finding { run: format!("row {no}"), what: "it has no readable id".into() });
                continue;
            };
            match readers.read(|reading| look(reading, &known, run)) {
                Ok((seen, _)) if seen.is_skipped => report.runs -= 1,
                Ok((seen, found)) => {
                    report.add(run, seen, &mut known);
                    if hand_on(found).is_break() {
                        return Ok(report);
                    }
                }
                Err(error) => report.add_unreadable(run, &error, &mut known),
            }
        }
        progress(report.runs);
    }
    let suspects = report.suspects();
    if !suspects.is_empty() {
        // What was stored while runs were looked at, a definition or a proof, clears them.
        let later = beside_runs(path, &readers, covered, &mut Report::default())?;
        for run in suspects {
            let looked = readers.read(|reading| look(reading, &later, run));
            report.look_again(run, looked.map(|(seen, _)| seen));
        }
    }
    readers.read(|reading| orphans(reading, &mut report)).map_err(failed)?;
    let look = || readers.read(|reading| rows(reading.connection));
    report.findings.extend(wrong_rows(schema::row_audit(path)?, look).map_err(failed)?);
    known.end(&mut report);
    Ok(report)
}

/// What is stored beside the runs, and what is wrong with it.
fn beside_runs(
    path: &Path,
    readers: &Readers,
    covered: &SignedCoverage,
    report: &mut Report,
) -> Result<AuditContext, OpenError> {
    let (mut known, mut entries) = (AuditContext::of(covered), Entries::default());
    let read = readers.read(|reading| definitions(reading, &mut known, report));
    read.map_err(|error| unusable(path, &error))?;
    audit_entries(path, |tenant, entry| {
        entries.take(tenant, &entry, &mut known, report);
        ControlFlow::Continue(())
    })?;
    entries.end(&known, report);
    Ok(known)
}

fn unusable(path: &Path, error: &StoreError) -> OpenError {
    OpenError::Unusable { path: path.to_owned(), why: error.to_string() }
}

fn unreadable(what: &str) -> impl Fn(rusqlite::Error) -> StoreError {
    move |error| StoreError::unavailable(format!("the {what} cannot be read: {error}"))
}

/// The definitions that runs are pinned to: whose, their digest, their bytes.
pub fn agent_definitions(path: &Path, mut take: impl FnMut(&str, Digest, &[u8])) -> Result<(), OpenError> {
    schema::check_readable(path)?;
    let read = Readers::new(&path.into())?.read(|reading| each_definition(reading, &mut take));
    read.map_err(|error| unusable(path, &error))
}

fn definitions(
    reading: &ReadSession<'_>,
    known: &mut AuditContext,
    report: &mut Report,
) -> Result<(), StoreError> {
    each_definition(reading, &mut |tenant, digest, bytes| {
        known.take_definition(tenant, digest, bytes, report)
    })
}

fn each_definition(
    reading: &ReadSession<'_>,
    take: &mut dyn FnMut(&str, Digest, &[u8]),
) -> Result<(), StoreError> {
    let mut read = || -> rusqlite::Result<()> {
        let mut statement = reading.connection.prepare(DEFINITIONS)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (tenant, digest, bytes): (String, [u8; 32], Vec<u8>) =
                (row.get(0)?, row.get(1)?, row.get(2)?);
            take(&tenant, Digest(digest), &bytes);
        }
        Ok(())
    };
    read().map_err(unreadable("definitions"))
}

/// Keys, subscriptions, sessions and sealed documents, and what the audit says of them.
fn rows(connection: &Connection) -> Result<RowEvidence, StoreError> {
    let mut evidence = RowEvidence::default();
    let mut after = (0i64, 0i64);
    loop {
        let page = page_of_audit(connection, after)?;
        let Some((tenant, _, last)) = page.last() else { break };
        after = (*tenant, i64::try_from(last.no).unwrap_or(i64::MAX));
        page.iter().for_each(|(_, tenant, entry)| evidence.take_entry(tenant, entry));
    }
    let mut read = || -> rusqlite::Result<()> {
        let texts = |statement: &str| -> rusqlite::Result<Vec<Vec<String>>> {
            let mut statement = connection.prepare(statement)?;
            let count = statement.column_count();
            let texts = |row: &Row<'_>| (0..count).map(|column| row.get(column)).collect();
            statement.query_map([], texts)?.collect()
        };
        for row in texts(KEYS)? {
            let [tenant, prefix] = row.as_slice() else { continue };
            match credentials::find(connection, prefix) {
                Ok(Some(key)) => evidence.take_row(tenant, RowEntry::key(&key)),
                Ok(None) | Err(_) => evidence.take_unreadable(tenant, RowKind::Key, prefix),
            }
        }
        for row in texts(SUBSCRIPTIONS)? {
            let [tenant, id] = row.as_slice() else { continue };
            let found =
                Tenant::new(tenant.as_str()).ok().map(|named| deliveries::find(connection, &named, id));
            match found {
                Some(Ok(Some(one))) => evidence.take_row(tenant, RowEntry::subscription(&one)),
                Some(Ok(None) | Err(_)) | None => {
                    evidence.take_unreadable(tenant, RowKind::Subscription, id);
                }
            }
        }
        for row in texts(SESSIONS)? {
            let [tenant, agent, owner, session, metadata, closed] = row.as_slice() else { continue };
            let names = [agent, owner, session].map(String::as_str);
            evidence.take_row(tenant, RowEntry::session_of(names, metadata, closed != "0"));
        }
        for row in texts(SEALED)? {
            let [tenant, name, value] = row.as_slice() else { continue };
            evidence.take_row(tenant, RowEntry::sealed(name, Some(value)));
        }
        Ok(())
    };
    read().map_err(unreadable("keys, subscriptions, sessions and sealed documents"))?;
    Ok(evidence)
}

fn orphans(reading: &ReadSession<'_>, report: &mut Report) -> Result<(), StoreError> {
    let mut read = || -> rusqlite::Result<()> {
        let mut statement = reading.connection.prepare(ORPHANS)?;
        let mut rows = statement.query(params![TOLD])?;
        while let Some(row) = rows.next()? {
            let no: i64 = row.get(0)?;
            let what = "of a run that is gone: its events or holds are still here".to_owned();
            report.findings.push(Finding { run: format!("row {no}"), what });
        }
        Ok(())
    };
    read().map_err(unreadable("links"))
}

fn runs_after(reading: &ReadSession<'_>, after: i64) -> Result<Vec<(i64, Option<RunId>)>, StoreError> {
    let read = || -> rusqlite::Result<Vec<(i64, Option<RunId>)>> {
        let mut statement = reading.connection.prepare_cached(sql::RUNS_AFTER)?;
        let place = |row: &Row<'_>| Ok((row.get(0)?, row.get(1).ok().map(RunId::from_bytes)));
        statement.query_map(params![after, PAGE], place)?.collect()
    };
    read().map_err(|error| StoreError::unavailable(format!("the runs cannot be listed: {error}")))
}

/// A hold from its row; names that are gone are empty.
fn stored_hold(run: RunId, row: &Row<'_>) -> Result<StoredHold, CorruptRow> {
    let key = HoldKey { call: CallNo(row.get(0)?), secret: Secret(row.get(1)?) };
    let is_closed = row.get::<_, i64>(7)? != 0;
    let record = row.get::<_, Option<String>>(8)?.map(|text| columns::parse::<Record>(&text)).transpose()?;
    Ok(StoredHold {
        key,
        tenant: row.get::<_, Option<String>>(2)?.unwrap_or_default(),
        agent: row.get::<_, Option<String>>(3)?.unwrap_or_default(),
        tool: row.get(4)?,
        kind: row.get(5)?,
        inbox: row.get::<_, Option<String>>(6)?.filter(|_| !is_closed),
        is_closed,
        record: record.map(|record| record.row(HoldId { run, key })),
    })
}

impl Evidence for ReadSession<'_> {
    fn is_locked(&self, run: RunId) -> Result<bool, StoreError> {
        self.is_locked(run)
    }

    fn links(&self, run: RunId) -> Result<Vec<Link>, StoreError> {
        self.links(run, Seq(0), usize::MAX)
    }

    fn run(&self, run: RunId) -> Result<Run, StoreError> {
        Ok(Arc::unwrap_or_clone(self.load(run)?.row.run))
    }

    fn blob(&self, run: RunId, digest: Digest) -> Result<Option<String>, StoreError> {
        self.blob(run, digest)
    }

    fn columns(&self, run: RunId) -> Result<StoredColumns, StoreError> {
        let read = |row: &Row<'_>| Ok(StoredColumns { phase: row.get(0)?, fold: row.get(1)? });
        let mut statement = self.connection.prepare_cached(COLUMNS).map_err(unreadable("runs"))?;
        statement.query_row(params![run.bytes()], read).map_err(|error| CorruptRow::from(error).of(run))
    }

    fn holds(&self, run: RunId) -> Result<Vec<StoredHold>, StoreError> {
        let read = || -> Result<Vec<StoredHold>, CorruptRow> {
            let mut statement = self.connection.prepare_cached(HOLDS)?;
            let mut rows = statement.query(params![run.bytes()])?;
            let mut holds = Vec::new();
            while let Some(row) = rows.next()? {
                holds.push(stored_hold(run, row)?);
            }
            Ok(holds)
        };
        read().map_err(|corrupt| corrupt.of(run))
    }

    fn key(&self, tenant: &Tenant, key: &str) -> Result<Option<KeyRecord>, StoreError> {
        self.find_key(tenant, key)
    }
}

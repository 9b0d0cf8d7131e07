//! Proving a SQLite file right: every chain verifies, every fold reproduces its row. Exporting what is proven.
//!
//! Reads only, run by run in short transactions, so that it can look at the file of a server that is at work.

use std::ops::ControlFlow;
use std::path::Path;

use holdpoint_core::digest::Digest;
use holdpoint_core::id::{RunId, Seq};
use holdpoint_core::link::Link;
use holdpoint_core::run::Run;
use holdpoint_core::time::Timestamp;
use rusqlite::params;

use super::read::{Readers, Reading};
use super::{OpenError, schema, sql};
use crate::audit::{Evidence, Exported, Finding, Report, Seen, look_and_export, look_at};
use crate::error::StoreError;
use crate::query::AuditEntry;

/// Looks at every run of a file. `progress` hears after each page how many runs were looked at.
pub fn verify(path: &Path, progress: impl FnMut(u64)) -> Result<Report, OpenError> {
    let look = |reading: &Reading<'_>, run| Ok((look_at(reading, run)?, ()));
    walk(path, progress, look, |()| ControlFlow::Continue(()))
}

/// Looks at one run, or at every run, and hands over what its log says, as far as it verifies. Ends early when `take`
/// says so.
pub fn export(
    path: &Path,
    only: Option<RunId>,
    mut take: impl FnMut(Exported) -> ControlFlow<()>,
) -> Result<Report, OpenError> {
    let look = |reading: &Reading<'_>, run| look_and_export(reading, only, run);
    walk(path, |_| {}, look, |exported| exported.map_or(ControlFlow::Continue(()), &mut take))
}

/// The audit of every tenant, oldest first: what happened beside the runs. Ends early when `take` says so.
pub fn audit_entries(
    path: &Path,
    mut take: impl FnMut(&str, AuditEntry) -> ControlFlow<()>,
) -> Result<(), OpenError> {
    schema::check_readable(path)?;
    let readers = Readers::new(path)?;
    let mut after = (0i64, 0i64);
    loop {
        let page =
            readers.read(|reading| page_of_audit(reading, after)).map_err(|error| unusable(path, &error))?;
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

fn page_of_audit(
    reading: &Reading<'_>,
    (tenant, no): (i64, i64),
) -> Result<Vec<(i64, String, AuditEntry)>, StoreError> {
    let read = || -> rusqlite::Result<Vec<(i64, String, AuditEntry)>> {
        let mut statement = reading.connection.prepare_cached(sql::AUDIT_ALL)?;
        let entry = |row: &rusqlite::Row<'_>| {
            let no = u64::try_from(row.get::<_, i64>(2)?).unwrap_or_default();
            Ok((row.get(0)?, row.get(1)?, AuditEntry { no, at: Timestamp(row.get(3)?), entry: row.get(4)? }))
        };
        statement.query_map(params![tenant, no], entry)?.collect()
    };
    read().map_err(|error| StoreError::unavailable(format!("the audit cannot be read: {error}")))
}

/// Looks at each run in a transaction of its own, which is over when what was found is handed on.
fn walk<T>(
    path: &Path,
    mut progress: impl FnMut(u64),
    look: impl Fn(&Reading<'_>, RunId) -> Result<(Seen, T), StoreError>,
    mut hand_on: impl FnMut(T) -> ControlFlow<()>,
) -> Result<Report, OpenError> {
    schema::check_readable(path)?;
    let readers = Readers::new(path)?;
    let mut report = Report::default();
    let mut after = 0i64;
    loop {
        let page =
            readers.read(|reading| runs_after(reading, after)).map_err(|error| unusable(path, &error))?;
        let Some((last, _)) = page.last() else { return Ok(report) };
        after = *last;
        for (no, run) in page {
            report.runs += 1;
            let Some(run) = run else {
                report
                    .findings
                    .push(Finding { run: format!("row {no}"), what: "it has no readable id".into() });
                continue;
            };
            match readers.read(|reading| look(reading, run)) {
                Ok((seen, _)) if seen.is_skipped => report.runs -= 1,
                Ok((seen, found)) => {
                    report.add(run, seen);
                    if hand_on(found).is_break() {
                        return Ok(report);
                    }
                }
                Err(error) => report.findings.push(Finding { run: run.to_string(), what: error.to_string() }),
            }
        }
        progress(report.runs);
    }
}

fn unusable(path: &Path, error: &StoreError) -> OpenError {
    OpenError::Unusable { path: path.to_owned(), why: error.to_string() }
}

fn runs_after(reading: &Reading<'_>, after: i64) -> Result<Vec<(i64, Option<RunId>)>, StoreError> {
    let read = || -> rusqlite::Result<Vec<(i64, Option<RunId>)>> {
        let mut statement = reading.connection.prepare_cached(sql::RUNS_AFTER)?;
        let place = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1).ok().map(RunId::from_bytes)));
        statement.query_map(params![after, 500], place)?.collect()
    };
    read().map_err(|error| StoreError::unavailable(format!("the runs cannot be listed: {error}")))
}

impl Evidence for Reading<'_> {
    fn links(&self, run: RunId) -> Result<Vec<Link>, StoreError> {
        self.links(run, Seq(0), usize::MAX)
    }

    fn run(&self, run: RunId) -> Result<Run, StoreError> {
        Ok(self.load(run)?.row.run)
    }

    fn blob(&self, run: RunId, digest: Digest) -> Result<Option<String>, StoreError> {
        self.blob(run, digest)
    }
}

//! Proving a SQLite file right: every chain verifies, every fold reproduces its row. Exporting what is proven.
//!
//! Reads only, run by run in short transactions, so that it can look at the file of a server that is at work.

use std::ops::ControlFlow;
use std::path::Path;

use holdpoint_core::apply;
use holdpoint_core::event::Envelope;
use holdpoint_core::id::{RunId, Seq};
use holdpoint_core::link::{Contents, FIRST_PREVIOUS, Link};
use holdpoint_core::run::Run;
use holdpoint_core::time::Timestamp;
use rusqlite::params;

use super::read::{Readers, Reading};
use super::{OpenError, schema, sql};
use crate::audit::{Exported, ExportedLink, Finding, Report};
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
    let look = |reading: &Reading<'_>, run| {
        if only.is_some_and(|only| only != run) {
            return Ok((Seen { is_skipped: true, ..Seen::default() }, None));
        }
        let seen = look_at(reading, run)?;
        let exported = Exported { run, links: exported(reading, run)?, wrong: seen.wrong.clone() };
        Ok((seen, Some(exported)))
    };
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

/// The links of a run that verify, with the large values of their events in place.
fn exported(reading: &Reading<'_>, run: RunId) -> Result<Vec<ExportedLink>, StoreError> {
    let (mut previous, mut next) = (FIRST_PREVIOUS, Seq(1));
    let mut exported = Vec::new();
    for link in reading.links(run, Seq(0), usize::MAX)? {
        let Ok(mut events) = link.verify(previous, next).and_then(|()| link.events()) else { break };
        for envelope in &mut events {
            for name in envelope.event.blobs() {
                // A value that is missing or changed stays a reference; the audit says so beside it.
                if let Some(value) = reading.blob(run, name.digest)? {
                    let _ = envelope.event.fill(&name, &value);
                }
            }
        }
        (previous, next) = (link.hash, link.next());
        exported.push(ExportedLink { link, events });
    }
    Ok(exported)
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
                    report.links += seen.links;
                    report.events += seen.events;
                    report.erased += u64::from(seen.is_erased);
                    report.findings.extend(seen.wrong.map(|what| Finding { run: run.to_string(), what }));
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

#[derive(Default)]
struct Seen {
    /// Nobody wanted to look at it.
    is_skipped: bool,
    links: u64,
    events: u64,
    is_erased: bool,
    wrong: Option<String>,
}

fn look_at(reading: &Reading<'_>, run: RunId) -> Result<Seen, StoreError> {
    let links = reading.links(run, Seq(0), usize::MAX)?;
    let mut seen = Seen { links: links.len() as u64, ..Seen::default() };
    let (mut previous, mut next) = (FIRST_PREVIOUS, Seq(1));
    let mut events: Vec<Envelope> = Vec::new();
    for link in &links {
        let checked = link.verify(previous, next).and_then(|()| link.events());
        match checked {
            Ok(more) => events.extend(more),
            Err(bad) => {
                seen.wrong = Some(bad.to_string());
                return Ok(seen);
            }
        }
        (previous, next) = (link.hash, link.next());
    }
    seen.events = next.0.saturating_sub(1);
    seen.is_erased = links.iter().any(|link| matches!(link.contents, Contents::Erased { .. }));
    let stored = reading.load(run)?.row;
    seen.wrong = first_wrong(reading, &links, &events, &stored.run, seen.is_erased)?;
    Ok(seen)
}

/// The first thing that the row or the large values say otherwise than the events.
fn first_wrong(
    reading: &Reading<'_>,
    links: &[Link],
    events: &[Envelope],
    stored: &Run,
    is_erased: bool,
) -> Result<Option<String>, StoreError> {
    let run = stored.facts.id;
    if links.is_empty() {
        return Ok(Some("it has no events".into()));
    }
    if is_erased {
        // Without contents there is nothing to fold; the chain is all that is left to check.
        return Ok(match stored.state.erased {
            true => None,
            false => Some("contents are missing although the run was never erased".into()),
        });
    }
    if apply::fold(run, events).as_ref() != Some(stored) {
        return Ok(Some("its row is not what its events fold into".into()));
    }
    for name in events.iter().flat_map(|envelope| envelope.event.blobs()) {
        let value = reading.blob(run, name.digest)?;
        if value.is_none_or(|value| holdpoint_core::digest::of_bytes(value.as_bytes()) != name.digest) {
            return Ok(Some(format!("the large value {} is missing or changed", name.digest)));
        }
    }
    Ok(None)
}

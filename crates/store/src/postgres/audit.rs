//! Proving a Postgres database right: every chain verifies, every fold reproduces its row. Exporting what is proven.
//!
//! Reads only, run by run in single statements, so that no snapshot is held open beside the nodes at work. A run that is
//! appended to meanwhile is judged by what it was when its row was read.

use std::ops::ControlFlow;
use std::sync::Arc;

use holdpoint_core::digest::Digest;
use holdpoint_core::id::{RunId, Seq};
use holdpoint_core::link::Link;
use holdpoint_core::run::Run;
use tokio::runtime::{Builder, Runtime};

use super::connect::Connector;
use super::pool::Pool;
use super::rows::column;
use super::types::{self, Bytes16};
use super::{OpenError, PostgresOptions, read, schema, sql};
use crate::audit::{Evidence, Exported, Finding, Report, Seen, look_and_export, look_at};
use crate::error::StoreError;
use crate::query::AuditEntry;

/// Runs listed at once.
const PAGE: usize = 500;

/// A run that changes while it is looked at is looked at again before anything is said of it.
const LOOKS: u32 = 3;

/// Looks at every run of a database. `progress` hears after each page how many runs were looked at. Must not be called
/// inside a runtime.
pub fn verify(options: &PostgresOptions, progress: impl FnMut(u64)) -> Result<Report, OpenError> {
    walk(options, progress, |evidence, run| Ok((look_at(evidence, run)?, ())), |()| ControlFlow::Continue(()))
}

/// Looks at one run, or at every run, and hands over what its log says, as far as it verifies. Ends early when `take`
/// says so.
pub fn export(
    options: &PostgresOptions,
    only: Option<RunId>,
    mut take: impl FnMut(Exported) -> ControlFlow<()>,
) -> Result<Report, OpenError> {
    let look = |evidence: &AsOf<'_>, run| look_and_export(evidence, only, run);
    walk(options, |_| {}, look, |exported| exported.map_or(ControlFlow::Continue(()), &mut take))
}

/// The audit of every tenant, oldest first: what happened beside the runs. Ends early when `take` says so.
pub fn audit_entries(
    options: &PostgresOptions,
    mut take: impl FnMut(&str, AuditEntry) -> ControlFlow<()>,
) -> Result<(), OpenError> {
    let (runtime, pool, place) = open(options)?;
    let mut after = (String::new(), 0);
    loop {
        let page = runtime.block_on(read::audit_of_all(&pool, &after, PAGE));
        let page =
            page.map_err(|error| OpenError::Unusable { place: place.clone(), why: error.to_string() })?;
        if page.is_empty() {
            return Ok(());
        }
        for (tenant, entry) in page {
            after = (tenant, entry.no);
            if take(&after.0, entry).is_break() {
                return Ok(());
            }
        }
    }
}

/// A database that is only read, by one connection.
fn open(options: &PostgresOptions) -> Result<(Runtime, Pool, String), OpenError> {
    let connector = Arc::new(Connector::new(options)?);
    let place = connector.place().to_owned();
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| OpenError::Unusable { place: place.clone(), why: error.to_string() })?;
    runtime.block_on(schema::check_readable(&connector))?;
    Ok((runtime, Pool::new(connector, 1), place))
}

fn walk<T>(
    options: &PostgresOptions,
    mut progress: impl FnMut(u64),
    look: impl Fn(&AsOf<'_>, RunId) -> Result<(Seen, T), StoreError>,
    mut hand_on: impl FnMut(T) -> ControlFlow<()>,
) -> Result<Report, OpenError> {
    let (runtime, pool, place) = open(options)?;
    let unusable = |why: String| OpenError::Unusable { place: place.clone(), why };
    let mut report = Report::default();
    let mut after = 0i64;
    loop {
        let page = runtime.block_on(runs_after(&pool, after)).map_err(|error| unusable(error.to_string()))?;
        let Some((last, _)) = page.last() else { return Ok(report) };
        after = *last;
        for (_, run) in page {
            report.runs += 1;
            match look_until_still(&runtime, &pool, run, &look) {
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

fn look_until_still<T>(
    runtime: &Runtime,
    pool: &Pool,
    run: RunId,
    look: impl Fn(&AsOf<'_>, RunId) -> Result<(Seen, T), StoreError>,
) -> Result<(Seen, T), StoreError> {
    let mut looks = 0;
    loop {
        looks += 1;
        let stored = runtime.block_on(read::load(pool, run)).map(|stored| stored.row.run);
        let seen = look(&AsOf { runtime, pool, stored }, run);
        if looks == LOOKS || seen.as_ref().is_ok_and(|(seen, _)| seen.wrong.is_none()) {
            return seen;
        }
    }
}

async fn runs_after(pool: &Pool, after: i64) -> Result<Vec<(i64, RunId)>, StoreError> {
    let rows = pool.read(sql::RUNS_AFTER, &[&after, &types::rows(PAGE)]).await?;
    let place = |row: &tokio_postgres::Row| Ok((column(row, 0)?, column::<Bytes16>(row, 1)?.run()));
    rows.iter().map(place).collect::<Result<_, crate::columns::Corrupt>>().map_err(read::unreadable)
}

/// A run as its row says: what was appended later is not looked at.
struct AsOf<'a> {
    runtime: &'a Runtime,
    pool: &'a Pool,
    stored: Result<Run, StoreError>,
}

impl Evidence for AsOf<'_> {
    fn links(&self, run: RunId) -> Result<Vec<Link>, StoreError> {
        let mut links = self.runtime.block_on(read::links(self.pool, run, Seq(0), usize::MAX))?;
        if let Ok(stored) = &self.stored {
            links.retain(|link| link.header.first <= stored.state.seq);
        }
        Ok(links)
    }

    fn run(&self, _: RunId) -> Result<Run, StoreError> {
        self.stored.clone()
    }

    fn blob(&self, run: RunId, digest: Digest) -> Result<Option<String>, StoreError> {
        self.runtime.block_on(read::blob(self.pool, run, digest))
    }
}

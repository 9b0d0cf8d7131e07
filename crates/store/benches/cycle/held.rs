//! What many held runs cost: latency, pages, bytes, memory, time to open.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use standfast_core::id::HoldId;
use standfast_core::name::Tenant;
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use standfast_store::{Audience, AudienceMember, HoldFilter, HoldQuery, Store};
use tokio::runtime::Runtime;

use crate::cycle::Bench;
use crate::measure::{now, percentile, runtime};

/// The argument with which the bench starts itself to measure memory in a process of its own.
pub(crate) const CHILD: &str = "--held-child";

/// What many held runs cost.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeldRuns {
    pub(crate) count: usize,
    pub(crate) fill_per_second: f64,
    pub(crate) approve_p50_ms: f64,
    pub(crate) approve_p99_ms: f64,
    pub(crate) fresh_per_second_64: f64,
    pub(crate) old_per_second_64: f64,
    pub(crate) page50_ms: f64,
    pub(crate) page50_audience_ms: f64,
    pub(crate) bytes_per_run: f64,
    pub(crate) bytes_outside_events: f64,
    pub(crate) open_ms: f64,
    /// The first count after opening, which looks at every run, and the counts after it.
    pub(crate) first_count_ms: f64,
    pub(crate) count_ms: f64,
    pub(crate) rss_mb: f64,
}

/// Old holds that are approved one by one, and as many again by 64 tasks.
const SAMPLES: usize = 2_000;

pub(crate) fn run(runtime: &Runtime, count: usize) -> HeldRuns {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("held.db");
    let mut held = HeldRuns { count, ..HeldRuns::default() };
    let samples = {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&SqliteOptions::at(&path)).unwrap());
        let bench = Arc::new(Bench::new(store));
        let start = now();
        let samples = runtime.block_on(fill(&bench, count));
        held.fill_per_second = count as f64 / start.elapsed().as_secs_f64();
        samples
    };
    sizes(&path, &mut held);
    if let Some(keep) = std::env::var_os("BENCH_KEEP") {
        std::fs::copy(&path, keep).unwrap();
    }
    child_measures(&path, &mut held);
    let start = now();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&SqliteOptions::at(&path)).unwrap());
    held.open_ms = start.elapsed().as_secs_f64() * 1000.0;
    let bench = Arc::new(Bench::numbered(store, 10_000_000));
    runtime.block_on(async {
        held.first_count_ms = counting(&bench).await;
        held.count_ms = counting(&bench).await;
        held.page50_ms = page(&bench, Audience::Everyone).await;
        held.page50_audience_ms =
            page(&bench, Audience::AnyOf(vec![AudienceMember("user:alice".into())])).await;
        let (one_by_one, together) = samples.split_at(samples.len() / 2);
        let mut latencies = Vec::new();
        for hold in one_by_one {
            let start = now();
            bench.approve_until_done(*hold).await;
            latencies.push(start.elapsed().as_secs_f64() * 1000.0);
        }
        held.approve_p50_ms = percentile(&latencies, 0.5);
        held.approve_p99_ms = percentile(&latencies, 0.99);
        let mut fresh = Vec::new();
        for _ in 0..together.len() {
            fresh.push(bench.start_until_held().await);
        }
        held.fresh_per_second_64 = approve_at_64(&bench, &fresh).await;
        held.old_per_second_64 = approve_at_64(&bench, together).await;
    });
    held
}

/// Holds `count` runs; keeps a sample spread over all of them.
async fn fill(bench: &Arc<Bench>, count: usize) -> Vec<HoldId> {
    let every = (count / SAMPLES).max(1);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..256 {
        let bench = bench.clone();
        tasks.spawn(async move {
            let mut sample = Vec::new();
            for n in (task..count).step_by(256) {
                let hold = bench.start_until_held().await;
                if n % every == 0 {
                    sample.push(hold);
                }
            }
            sample
        });
    }
    let mut samples = Vec::new();
    while let Some(sample) = tasks.join_next().await {
        samples.extend(sample.unwrap());
    }
    // Neither in the order in which they are stored nor all from one place.
    samples.sort_by_key(|hold| standfast_core::digest::of_bytes(hold.run.bytes()));
    samples
}

async fn approve_at_64(bench: &Arc<Bench>, holds: &[HoldId]) -> f64 {
    let start = now();
    let mut tasks = tokio::task::JoinSet::new();
    for chunk in holds.chunks(holds.len().div_ceil(64).max(1)) {
        let (bench, chunk) = (bench.clone(), chunk.to_vec());
        tasks.spawn(async move {
            for hold in chunk {
                bench.approve_until_done(hold).await;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    holds.len() as f64 / start.elapsed().as_secs_f64()
}

async fn counting(bench: &Bench) -> f64 {
    let start = now();
    let counts = bench.store.counts(Tenant::default_tenant()).await.unwrap();
    assert!(!counts.runs.is_empty());
    start.elapsed().as_secs_f64() * 1000.0
}

async fn page(bench: &Bench, audience: Audience) -> f64 {
    let mut times = Vec::new();
    for _ in 0..50 {
        let query = HoldQuery {
            tenant: Tenant::default_tenant(),
            audience: audience.clone(),
            filter: HoldFilter::All,
            kinds: Vec::new(),
            cursor: None,
            limit: 50,
        };
        let start = now();
        let page = bench.store.list_holds(query).await.unwrap();
        times.push(start.elapsed().as_secs_f64() * 1000.0);
        assert_eq!(page.items.len(), 50);
    }
    percentile(&times, 0.5)
}

/// Bytes on disk, in all and without the links table, which is the events.
fn sizes(path: &Path, held: &mut HeldRuns) {
    let connection = rusqlite::Connection::open(path).unwrap();
    let pages = |filter: &str| -> f64 {
        let sql = format!("SELECT coalesce(sum(pgsize), 0) FROM dbstat {filter}");
        connection.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap() as f64
    };
    held.bytes_per_run = pages("") / held.count as f64;
    held.bytes_outside_events = pages("WHERE name <> 'links'") / held.count as f64;
    if std::env::var_os("BENCH_TABLES").is_some() {
        let sql =
            "SELECT name, sum(pgsize) FROM dbstat GROUP BY name HAVING sum(pgsize) > 100000 ORDER BY 2 DESC";
        let mut statement = connection.prepare(sql).unwrap();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let (name, bytes): (String, i64) = (row.get(0).unwrap(), row.get(1).unwrap());
            eprintln!("  {name}: {:.1} bytes a run", bytes as f64 / held.count as f64);
        }
    }
}

/// Memory is measured in a process that did not fill the store.
fn child_measures(path: &Path, held: &mut HeldRuns) {
    let output = Command::new(std::env::current_exe().unwrap()).arg(CHILD).arg(path).output().unwrap();
    held.rss_mb = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(f64::NAN);
}

/// Opens the store, reads some pages and prints the resident memory in MB.
pub(crate) fn child(arguments: &[String]) {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&SqliteOptions::at(&arguments[0])).unwrap());
    let bench = Bench::numbered(store, 20_000_000);
    runtime().block_on(page(&bench, Audience::Everyone));
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kilobytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    println!("{:.1}", kilobytes / 1024.0);
}

//! Rounds, laps and percentiles.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::client::Connection;
use crate::process::{Served, runtime};
use crate::{Plan, backlog, floor, held, ours, postgres};

/// What one configuration reached.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    pub(crate) cycles: usize,
    pub(crate) seconds: f64,
    pub(crate) cycle_ms: Vec<f64>,
    pub(crate) approve_ms: Vec<f64>,
}

impl Measured {
    pub(crate) fn add(&mut self, other: Measured) {
        self.cycles += other.cycles;
        self.seconds += other.seconds;
        self.cycle_ms.extend(other.cycle_ms);
        self.approve_ms.extend(other.approve_ms);
    }

    pub(crate) fn per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.cycles as f64 / self.seconds } else { 0.0 }
    }
}

/// Figures by how many clients work at once.
pub(crate) type ByConcurrency = BTreeMap<usize, Measured>;

/// Everything that was measured.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) floor: ByConcurrency,
    pub(crate) statements: ByConcurrency,
    pub(crate) ours: ByConcurrency,
    pub(crate) with_model: ByConcurrency,
    pub(crate) base_rss_mb: f64,
    pub(crate) held: Vec<held::Held>,
    pub(crate) backlog: backlog::Backlog,
}

/// One cycle: how long it took in all, and from approve to done.
pub(crate) struct Lap {
    pub(crate) cycle: Duration,
    pub(crate) approve: Duration,
}

/// A cycle under way.
pub(crate) type Cycling<'a> = Pin<Box<dyn Future<Output = Option<Lap>> + Send + 'a>>;
/// What a client does again and again.
pub(crate) type Cycle<Client = Connection> = for<'a> fn(&'a mut Client) -> Cycling<'a>;

/// How long each model thinks in the second measurement.
const THINKS_MS: i64 = 50;

pub(crate) fn all(plan: &Plan) -> Results {
    let runtime = runtime();
    let mut results = Results::default();
    let our_cycle: Cycle = |connection| Box::pin(ours::cycle(connection));
    let floor_cycle: Cycle = |connection| Box::pin(floor::cycle(connection));
    for at in &plan.concurrency {
        eprintln!("bench: {at} concurrent …");
        let half = plan.seconds / 2.0;
        // Alternating rounds, so that a slow minute of the machine hits all three alike.
        for _ in 0..2 {
            let fresh = |kind: &str, more: i64, cycle: Cycle| {
                let directory = tempfile::tempdir().unwrap();
                let served = Served::start(kind, directory.path(), &more.to_string());
                (
                    runtime.block_on(async {
                        load(connected(&[&served.address], *at).await, half, cycle).await
                    }),
                    served.resident_mb(),
                )
            };
            // More than any machine here gets through; when they run out the time so far counts.
            let recorded = (half * if *at == 1 { 2_000.0 } else { 8_000.0 }) as i64;
            results.floor.entry(*at).or_default().add(fresh("floor", 0, floor_cycle).0);
            results.statements.entry(*at).or_default().add(fresh("statements", recorded, floor_cycle).0);
            let (measured, rss) = fresh("ours", 0, our_cycle);
            results.ours.entry(*at).or_default().add(measured);
            results.base_rss_mb = rss;
            results.with_model.entry(*at).or_default().add(fresh("ours", THINKS_MS, our_cycle).0);
        }
    }
    for count in &plan.held {
        eprintln!("bench: {count} held …");
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("standfast.db");
        let size = || std::fs::metadata(&file).map_or(0.0, |file| file.len() as f64);
        results.held.push(held::run(&runtime, *count, directory.path(), size));
    }
    results.backlog = backlog_in_file(&runtime, plan);
    results
}

fn backlog_in_file(runtime: &Runtime, plan: &Plan) -> backlog::Backlog {
    eprintln!("bench: a backlog of {} …", plan.backlog);
    backlog::run(runtime, plan.backlog, tempfile::tempdir().unwrap().path())
}

/// The backlog alone, in a file or on Postgres.
pub(crate) fn only_backlog(plan: &Plan) {
    let runtime = runtime();
    if plan.postgres {
        postgres::backlog(&runtime, plan).print("Postgres")
    } else {
        backlog_in_file(&runtime, plan).print("SQLite FULL")
    }
}

/// So many kept connections, spread over the servers.
pub(crate) async fn connected(addresses: &[&str], count: usize) -> Vec<Connection> {
    let mut connections = Vec::new();
    for address in addresses.iter().cycle().take(count) {
        connections.push(Connection::open(address).await);
    }
    connections
}

/// Lets these clients do their cycles until the time is up.
pub(crate) async fn load<Client: Send + 'static>(
    waiting: Vec<Client>,
    seconds: f64,
    cycle: Cycle<Client>,
) -> Measured {
    let (start, length) = (now(), Duration::from_secs_f64(seconds));
    let mut clients = tokio::task::JoinSet::new();
    for mut client in waiting {
        clients.spawn(async move {
            let mut laps = Vec::new();
            while start.elapsed() < length {
                match cycle(&mut client).await {
                    Some(lap) => laps.push(lap),
                    None => break,
                }
            }
            laps
        });
    }
    let mut measured = Measured::default();
    while let Some(laps) = clients.join_next().await {
        for lap in laps.unwrap_or_default() {
            measured.cycles += 1;
            measured.cycle_ms.push(lap.cycle.as_secs_f64() * 1000.0);
            measured.approve_ms.push(lap.approve.as_secs_f64() * 1000.0);
        }
    }
    measured.seconds = start.elapsed().as_secs_f64();
    measured
}

/// The value below which this share of the samples lies.
pub(crate) fn percentile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = ((sorted.len() as f64 - 1.0) * share).round();
    sorted.get(at.max(0.0) as usize).copied().unwrap_or(f64::NAN)
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

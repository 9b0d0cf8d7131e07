//! Rounds, laps and percentiles.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::client::Connection;
use crate::counting::Counts;
#[cfg(feature = "postgres")]
use crate::postgres;
use crate::process::{Build, Served, runtime};
use crate::usage::Usage;
use crate::{Plan, backlog, big, floor, held, ours};

/// What one configuration reached.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    pub(crate) cycles: usize,
    pub(crate) seconds: f64,
    pub(crate) cycle_ms: Vec<f64>,
    pub(crate) approve_ms: Vec<f64>,
    /// What the server used for all of them.
    pub(crate) usage: Usage,
    /// What one cycle costs inside the server; none where nothing was counted.
    pub(crate) counts: Option<Counts>,
}

impl Measured {
    pub(crate) fn add(&mut self, other: Measured) {
        self.usage.add(other.usage);
        self.counts = other.counts.or(self.counts);
        self.cycles += other.cycles;
        self.seconds += other.seconds;
        self.cycle_ms.extend(other.cycle_ms);
        self.approve_ms.extend(other.approve_ms);
    }

    pub(crate) fn per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.cycles as f64 / self.seconds } else { 0.0 }
    }

    /// What the server used for one cycle.
    pub(crate) fn usage_per_cycle(&self) -> Usage {
        self.usage.per(self.cycles as f64)
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
    /// One client of an agent in blocking mode.
    pub(crate) blocking: Measured,
    pub(crate) memory: Memory,
    pub(crate) held: Vec<held::Held>,
    pub(crate) backlog: backlog::Backlog,
    pub(crate) big: big::Big,
}

/// Resident memory of our server, in MB.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memory {
    /// Before its first request.
    pub(crate) base_mb: f64,
    /// After the load with most clients.
    pub(crate) loaded_mb: f64,
    /// Some seconds after it.
    pub(crate) idle_mb: f64,
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

/// How long a server that counts is kept busy: enough for groups to form.
const COUNTED_SECONDS: f64 = 1.0;

/// Cycles a second that no server of ours reaches here; so many are recorded beforehand.
const MOST_PER_SECOND: f64 = 8_000.0;

/// How long a server has nothing to do before its memory is looked at again.
const IDLE: Duration = Duration::from_secs(3);

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
                let served = Served::start(Build::This, kind, directory.path(), &more.to_string());
                let base_mb = served.resident_mb();
                let mut measured = runtime.block_on(async {
                    let connections = connected(&[&served.address], *at).await;
                    let before = served.usage();
                    let measured = load(connections, half, cycle).await;
                    Measured { usage: served.usage().since(before), ..measured }
                });
                measured.counts = counted(&runtime, kind, *at, cycle);
                (measured, base_mb, served)
            };
            // More than any machine here gets through; when they run out the time so far counts.
            let recorded = (half * if *at == 1 { 2_000.0 } else { MOST_PER_SECOND }) as i64;
            results.floor.entry(*at).or_default().add(fresh("floor", 0, floor_cycle).0);
            results.statements.entry(*at).or_default().add(fresh("statements", recorded, floor_cycle).0);
            let (measured, base_mb, served) = fresh("ours", 0, our_cycle);
            results.ours.entry(*at).or_default().add(measured);
            let loaded_mb = served.resident_mb();
            std::thread::sleep(IDLE);
            results.memory = Memory { base_mb, loaded_mb, idle_mb: served.resident_mb() };
            drop(served);
            if plan.only_cycles {
                continue;
            }
            results.with_model.entry(*at).or_default().add(fresh("ours", THINKS_MS, our_cycle).0);
            if *at == 1 {
                results.blocking.add(fresh("blocking", 0, our_cycle).0);
            }
        }
    }
    for count in &plan.held {
        eprintln!("bench: {count} held …");
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("standfast.db");
        let size = || std::fs::metadata(&file).map_or(0.0, |file| file.len() as f64);
        results.held.push(held::run(&runtime, *count, directory.path(), size));
    }
    if plan.only_cycles {
        return results;
    }
    results.backlog = backlog_in_file(&runtime, plan);
    results.big = big::run(&runtime, plan);
    results
}

/// What one cycle costs inside a server of this kind, if there is a build that counts.
fn counted(runtime: &Runtime, kind: &str, at: usize, cycle: Cycle) -> Option<Counts> {
    Build::Counting.program()?;
    let directory = tempfile::tempdir().unwrap();
    let recorded = COUNTED_SECONDS * 2.0 * MOST_PER_SECOND;
    let more = if kind == "statements" { recorded as i64 } else { 0 };
    let mut served = Served::start(Build::Counting, kind, directory.path(), &more.to_string());
    runtime.block_on(async {
        let warm_up = load(connected(&[&served.address], at).await, COUNTED_SECONDS / 4.0, cycle).await;
        assert!(warm_up.cycles > 0, "{kind} did nothing");
        let before = served.counts().unwrap();
        let counted = load(connected(&[&served.address], at).await, COUNTED_SECONDS, cycle).await;
        Some(served.counts().unwrap().since(before, counted.cycles))
    })
}

fn backlog_in_file(runtime: &Runtime, plan: &Plan) -> backlog::Backlog {
    eprintln!("bench: a backlog of {} …", plan.backlog);
    backlog::run(runtime, plan.backlog, tempfile::tempdir().unwrap().path())
}

/// The backlog alone, in a file or on Postgres.
pub(crate) fn only_backlog(plan: &Plan) {
    let runtime = runtime();
    #[cfg(feature = "postgres")]
    if plan.postgres {
        return postgres::backlog(&runtime, plan).print("Postgres");
    }
    backlog_in_file(&runtime, plan).print("SQLite FULL");
}

/// So many kept connections, spread over the servers.
pub(crate) async fn connected(addresses: &[&str], count: usize) -> Vec<Connection> {
    let mut connections = Vec::new();
    for address in addresses.iter().cycle().take(count) {
        connections.push(Connection::open(address).await);
    }
    connections
}

/// So many cycles, one after the other.
pub(crate) async fn cycles(client: &mut Connection, count: usize, cycle: Cycle) {
    for _ in 0..count {
        cycle(client).await;
    }
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

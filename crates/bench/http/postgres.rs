//! Several servers on one Postgres: the cycle with one, two and three of them, beside pgbench with the same statements.
//!
//! The Postgres is one of its own, started here on the same cores and synced as everywhere. What is measured beside the
//! cycle: the search for due runs while somebody holds an old snapshot open, many held runs, and how soon a reader on one
//! node sees what was decided on another.

mod database;
mod pgbench;
mod report;

use std::collections::BTreeMap;
use std::path::Path;

use standfast_core::id::Incarnation;
use standfast_core::time::Millis;
use standfast_engine::clock::Clock;
use standfast_store::{Claim, ShardSet};
use tokio::runtime::Runtime;

use crate::client::Connection;
use crate::counting::Counts;
use crate::measure::{ByConcurrency, Cycle, Measured, connected, load, now};
use crate::process::{Build, Served, runtime};
use crate::usage::Usage;
use crate::{Plan, backlog, held, ours};
use database::{Database, Postgres};

pub(crate) use report::print;

/// Connections with which pgbench sends the statements of many cycles at once: fewer and more than a node has.
const CONNECTIONS: [usize; 3] = [1, 2, 4];

/// How many nodes there are in a configuration.
const NODES: [usize; 3] = [1, 2, 3];

/// Clients while somebody holds an old snapshot open.
const BESIDE_A_SNAPSHOT: usize = 16;

/// Decisions whose way to a reader is measured, for each second of the plan.
const HINTS_PER_SECOND: f64 = 50.0;

/// Before the clock starts, so that what is done once for each connection is not measured.
const WARM_UP_SECONDS: f64 = 0.5;

/// Everything that was measured.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// What pgbench reached with the statements of a cycle, by clients: cycles a second.
    pgbench: BTreeMap<usize, Measured>,
    /// How many statements a cycle has, and in how many trips to the database.
    statements: usize,
    trips: usize,
    /// The same with the statements of many cycles at once, in the groups in which a busy node sends them.
    together: Together,
    /// What a cycle of one node costs inside it, by clients; none where nothing was counted.
    counts: BTreeMap<usize, Counts>,
    /// By how many nodes there are.
    nodes: BTreeMap<usize, ByConcurrency>,
    /// Three nodes, each run decided through another one than the one that began it.
    crossed: ByConcurrency,
    snapshot: Snapshot,
    held: Vec<held::Held>,
    backlog: backlog::Backlog,
    hints: Hints,
}

/// What pgbench reaches with the statements of many cycles at once.
#[derive(Debug, Default)]
struct Together {
    cycles: usize,
    statements: usize,
    trips: usize,
    /// By how many connections share it; a node has [`CONNECTIONS`] that write.
    measured: BTreeMap<usize, Measured>,
}

/// Before and while somebody holds an old snapshot open.
#[derive(Debug, Default)]
struct Snapshot {
    before: Measured,
    during: Measured,
    /// Searches for due runs, in milliseconds.
    claims_before: Vec<f64>,
    claims_during: Vec<f64>,
}

/// From sending an approval to one node until a reader sees it, in milliseconds.
#[derive(Debug, Default)]
struct Hints {
    /// The reader is on the same node.
    same_node: Vec<f64>,
    /// The reader is on another one.
    other_node: Vec<f64>,
    /// The same reader, until it sees the end of the run.
    other_node_end: Vec<f64>,
}

pub(crate) fn all(plan: &Plan) -> Results {
    let (runtime, postgres) = (runtime(), Postgres::start());
    eprintln!("bench: recording the statements of a cycle …");
    let script = pgbench::record(&runtime, &postgres);
    let most = plan.concurrency.iter().copied().max().unwrap_or(1);
    let grouped = pgbench::record_together(&runtime, &postgres, most);
    let mut results = Results { statements: script.statements, trips: script.trips, ..Results::default() };
    let (statements, trips) = (grouped.statements, grouped.trips);
    results.together = Together { cycles: most, statements, trips, measured: BTreeMap::new() };
    for at in &plan.concurrency {
        eprintln!("bench: {at} concurrent …");
        // Alternating rounds, so that a slow minute of the machine hits all alike.
        for _ in 0..2 {
            let half = plan.seconds / 2.0;
            results.pgbench.entry(*at).or_default().add(script.run(&postgres.database(), *at, half));
            for connections in CONNECTIONS.iter().filter(|_| *at == most) {
                let measured = grouped.run(&postgres.database(), *connections, half);
                results.together.measured.entry(*connections).or_default().add(measured);
            }
            for count in NODES {
                let measured = cycles(&runtime, &postgres, count, *at, half);
                results.nodes.entry(count).or_default().entry(*at).or_default().add(measured);
            }
            let measured = crossed_cycles(&runtime, &postgres, *at, half);
            results.crossed.entry(*at).or_default().add(measured);
        }
        results.counts.extend(counted(&runtime, &postgres, *at).map(|counts| (*at, counts)));
    }
    eprintln!("bench: beside an old snapshot …");
    results.snapshot = beside_a_snapshot(&runtime, &postgres, plan.seconds);
    eprintln!("bench: hints …");
    results.hints = hints(&runtime, &postgres, (plan.seconds * HINTS_PER_SECOND) as usize);
    for count in &plan.held {
        eprintln!("bench: {count} held …");
        let database = postgres.database();
        results.held.push(held::run(&runtime, *count, Path::new(&database.address), || database.bytes()));
    }
    results.backlog = backlog_on(&runtime, &postgres, plan);
    results
}

/// The backlog alone.
pub(crate) fn backlog(runtime: &Runtime, plan: &Plan) -> backlog::Backlog {
    backlog_on(runtime, &Postgres::start(), plan)
}

fn backlog_on(runtime: &Runtime, postgres: &Postgres, plan: &Plan) -> backlog::Backlog {
    eprintln!("bench: a backlog of {} …", plan.backlog);
    let database = postgres.database();
    backlog::run(runtime, plan.backlog, Path::new(&database.address))
}

/// So many nodes on a database.
fn nodes(database: &Database, count: usize) -> Vec<Served> {
    (0..count).map(|_| Served::start(Build::This, "ours", Path::new(&database.address), "0")).collect()
}

fn addresses(nodes: &[Served]) -> Vec<&str> {
    nodes.iter().map(|node| node.address.as_str()).collect()
}

const OUR_CYCLE: Cycle = |connection| Box::pin(ours::cycle(connection));

fn cycles(runtime: &Runtime, postgres: &Postgres, count: usize, at: usize, seconds: f64) -> Measured {
    let database = postgres.database();
    let nodes = nodes(&database, count);
    runtime.block_on(async {
        load(connected(&addresses(&nodes), at).await, WARM_UP_SECONDS, OUR_CYCLE).await;
        let before = used(&nodes, postgres);
        let measured = load(connected(&addresses(&nodes), at).await, seconds, OUR_CYCLE).await;
        Measured { usage: used(&nodes, postgres).since(before), ..measured }
    })
}

/// What all nodes and the database have used.
fn used(nodes: &[Served], postgres: &Postgres) -> Usage {
    let mut usage = Usage { database_us: postgres.processor_us(), ..Usage::default() };
    nodes.iter().for_each(|node| usage.add(node.usage()));
    usage
}

/// What one cycle costs inside a node, if there is a build that counts.
fn counted(runtime: &Runtime, postgres: &Postgres, at: usize) -> Option<Counts> {
    Build::Counting.program()?;
    let database = postgres.database();
    let mut node = Served::start(Build::Counting, "ours", Path::new(&database.address), "0");
    runtime.block_on(async {
        load(connected(&[&node.address], at).await, WARM_UP_SECONDS, OUR_CYCLE).await;
        let before = node.counts().unwrap();
        let measured = load(connected(&[&node.address], at).await, 1.0, OUR_CYCLE).await;
        Some(node.counts().unwrap().since(before, measured.cycles))
    })
}

fn crossed_cycles(runtime: &Runtime, postgres: &Postgres, at: usize, seconds: f64) -> Measured {
    let cycle: Cycle<(Connection, Connection)> = |pair| Box::pin(ours::crossed(pair));
    let database = postgres.database();
    let nodes = nodes(&database, 3);
    let mut addresses = addresses(&nodes);
    runtime.block_on(async {
        load(connected(&addresses, at).await, WARM_UP_SECONDS, OUR_CYCLE).await;
        let ones = connected(&addresses, at).await;
        addresses.rotate_left(1);
        let others = connected(&addresses, at).await;
        load(ones.into_iter().zip(others).collect(), seconds, cycle).await
    })
}

/// The same load before and while a transaction that began earlier keeps every old row alive, as a backup does.
fn beside_a_snapshot(runtime: &Runtime, postgres: &Postgres, seconds: f64) -> Snapshot {
    let database = postgres.database();
    let node = nodes(&database, 1);
    let mut snapshot = Snapshot::default();
    let window = |measured: &mut Measured, claims: &mut Vec<f64>| {
        runtime.block_on(async {
            let clients = connected(&addresses(&node), BESIDE_A_SNAPSHOT).await;
            let loading = tokio::spawn(load(clients, seconds, OUR_CYCLE));
            *claims = searches(&database, || loading.is_finished()).await;
            *measured = loading.await.unwrap();
        });
    };
    // Twice without, so that both windows begin on a database that has seen some work.
    window(&mut snapshot.before, &mut snapshot.claims_before);
    window(&mut snapshot.before, &mut snapshot.claims_before);
    let open = database.open_snapshot();
    // Twice with, so that what cannot be cleared away has piled up.
    window(&mut snapshot.during, &mut snapshot.claims_during);
    window(&mut snapshot.during, &mut snapshot.claims_during);
    open.close();
    snapshot
}

/// How long it takes to look for due runs, again and again until the load has ended. What is found is left to the nodes.
async fn searches(database: &Database, is_over: impl Fn() -> bool) -> Vec<f64> {
    let (store, clock) = (ours::open(Path::new(&database.address)), Clock::system());
    let mut took = Vec::new();
    while !is_over() {
        let at = clock.now();
        let claim = Claim {
            node: Incarnation([9; 16]),
            now: at,
            until: at.plus(Millis::seconds(10)),
            shards: ShardSet::of([]),
            limit: 64,
            room: Vec::new(),
        };
        let begin = now();
        store.claim_due(claim).await.unwrap();
        took.push(begin.elapsed().as_secs_f64() * 1000.0);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    // The first one connects and prepares.
    took.split_off(1.min(took.len()))
}

/// Approvals on one node, with a reader of events on it or on another one.
fn hints(runtime: &Runtime, postgres: &Postgres, count: usize) -> Hints {
    let database = postgres.database();
    let nodes = nodes(&database, 3);
    let mut hints = Hints::default();
    runtime.block_on(async {
        let mut first = Connection::open(&nodes[0].address).await;
        let mut second = Connection::open(&nodes[1].address).await;
        // The first few make connections and prepare statements.
        let warm_up = 10;
        for n in 0..count + warm_up {
            for (reads, is_other) in [(&nodes[0], false), (&nodes[2], true)] {
                let (run, hold) = ours::started(&mut second).await;
                let mut reader = Connection::open(&reads.address).await;
                reader.follow(&format!("/api/v1/runs/{run}/events")).await.unwrap();
                reader.wait_for("hold.opened").await.unwrap();
                let begin = now();
                let seen = async {
                    reader.wait_for("hold.resolved").await.unwrap();
                    let decision = begin.elapsed();
                    reader.wait_for("run.ended").await.unwrap();
                    (decision.as_secs_f64() * 1000.0, begin.elapsed().as_secs_f64() * 1000.0)
                };
                let ((decision, end), ()) = tokio::join!(seen, ours::approved(&mut first, &hold));
                if n < warm_up {
                    continue;
                }
                if is_other {
                    hints.other_node.push(decision);
                    hints.other_node_end.push(end);
                } else {
                    hints.same_node.push(decision);
                }
            }
        }
    });
    hints
}

//! What many held runs cost, over HTTP: latency, pages, bytes, memory, time until ready.

use std::path::Path;

use standfast_core::digest::of_bytes;
use standfast_core::id::HoldId;
use standfast_core::message::Message;
use standfast_core::name::AgentName;
use standfast_core::time::Millis;
use standfast_engine::{Engine, NewRun};
use tokio::runtime::Runtime;

use crate::client::Connection;
use crate::measure::{now, percentile};
use crate::ours;
use crate::process::{Build, Served};

/// What many held runs cost.
#[derive(Debug, Clone, Default)]
pub(crate) struct Held {
    pub(crate) count: usize,
    pub(crate) fill_per_second: f64,
    pub(crate) approve_p50_ms: f64,
    pub(crate) approve_p99_ms: f64,
    pub(crate) fresh_p50_ms: f64,
    pub(crate) fresh_per_second_64: f64,
    pub(crate) old_per_second_64: f64,
    pub(crate) page50_ms: f64,
    pub(crate) bytes_per_run: f64,
    pub(crate) ready_ms: f64,
    pub(crate) rss_mb: f64,
}

/// Old holds that are approved one by one, and as many again by 64 clients.
const SAMPLES: usize = 2_000;

/// On this place, of which `size` says how many bytes it takes.
pub(crate) fn run(runtime: &Runtime, count: usize, place: &Path, size: impl Fn() -> f64) -> Held {
    let empty = size();
    let mut held = Held { count, ..Held::default() };
    let begin = now();
    let samples = runtime.block_on(fill(place, count));
    held.fill_per_second = count as f64 / begin.elapsed().as_secs_f64();
    held.bytes_per_run = (size() - empty) / count as f64;
    let served = Served::start(Build::This, "ours", place, "0");
    held.ready_ms = served.ready.as_secs_f64() * 1000.0;
    runtime.block_on(async {
        let mut connection = Connection::open(&served.address).await;
        let mut pages = Vec::new();
        for _ in 0..50 {
            let begin = now();
            connection.get("/api/v1/holds?limit=50").await;
            pages.push(begin.elapsed().as_secs_f64() * 1000.0);
        }
        held.page50_ms = percentile(&pages, 0.5);
        let (one_by_one, together) = samples.split_at(samples.len() / 2);
        let (mut old, mut fresh) = (Vec::new(), Vec::new());
        for hold in one_by_one {
            old.push(timed(&mut connection, hold).await);
            // Fresh ones in between, so that both see the same machine.
            let hold = ours::held(&mut connection).await;
            fresh.push(timed(&mut connection, &hold).await);
        }
        held.approve_p50_ms = percentile(&old, 0.5);
        held.approve_p99_ms = percentile(&old, 0.99);
        held.fresh_p50_ms = percentile(&fresh, 0.5);
        held.rss_mb = served.resident_mb();
        let mut fresh = Vec::new();
        for _ in 0..together.len() {
            fresh.push(ours::held(&mut connection).await);
        }
        held.fresh_per_second_64 = at_64(&served.address, &fresh).await;
        held.old_per_second_64 = at_64(&served.address, together).await;
    });
    held
}

async fn timed(connection: &mut Connection, hold: &str) -> f64 {
    let begin = now();
    ours::approved(connection, hold).await;
    begin.elapsed().as_secs_f64() * 1000.0
}

/// Holds `count` runs through the engine; keeps a sample spread over all of them.
async fn fill(place: &Path, count: usize) -> Vec<String> {
    let engine = ours::engine(ours::open(place), 0);
    let every = (count / SAMPLES).max(1);
    let mut filling = tokio::task::JoinSet::new();
    for task in 0..256 {
        let engine = engine.clone();
        filling.spawn(async move {
            let mut sample = Vec::new();
            for n in (task..count).step_by(256) {
                let hold = held(&engine).await;
                if n % every == 0 {
                    sample.push(hold);
                }
            }
            sample
        });
    }
    let mut samples = filling.join_all().await.concat();
    engine.die().await;
    // Neither in the order in which they are stored nor all from one place.
    samples.sort_by_key(|hold| of_bytes(hold.as_bytes()));
    samples
}

async fn held(engine: &Engine) -> String {
    let agent = AgentName::new("ops").unwrap();
    let new = NewRun { agent, session: None, message: Message::text("Free some space"), once: None };
    let run = engine.submit().start(&ours::local(), new).await.unwrap();
    let held = engine.reads().settled_run(&ours::local(), run, Millis::seconds(60)).await.unwrap();
    HoldId { run, key: held.run.state.holds[0].key }.to_string()
}

async fn at_64(address: &str, holds: &[String]) -> f64 {
    let mut clients = tokio::task::JoinSet::new();
    let begin = now();
    for chunk in holds.chunks(holds.len().div_ceil(64).max(1)) {
        let (address, chunk) = (address.to_owned(), chunk.to_vec());
        clients.spawn(async move {
            let mut connection = Connection::open(&address).await;
            for hold in chunk {
                ours::approved(&mut connection, &hold).await;
            }
        });
    }
    clients.join_all().await;
    holds.len() as f64 / begin.elapsed().as_secs_f64()
}

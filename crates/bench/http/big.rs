//! Big things: one run of many turns, many readers of many runs, one run that is looked at again and again.
//!
//! What counts is that the cost of each stays flat: of the last turn as of the first, of a reader however many there are.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use serde_json::{Value, json};
use standfast_core::command::Limits;
use standfast_core::event::Event;
use standfast_core::id::Seq;
use standfast_core::message::Message;
use standfast_core::time::Millis;
use standfast_engine::clock::Clock;
use standfast_engine::settings::{Agent, Settings};
use standfast_engine::{Engine, NewRun};
use standfast_models::scripted::Line;
use tokio::runtime::Runtime;

use crate::client::Connection;
use crate::measure::{Cycle, Lap, connected, load, now, percentile};
use crate::process::{Build, Served, make_room};
use crate::{Plan, ours};

/// What big things cost.
#[derive(Debug, Default)]
pub(crate) struct Big {
    turns: usize,
    /// Milliseconds of a turn among the first tenth, and among the last.
    first_turn_ms: f64,
    last_turn_ms: f64,
    readers: usize,
    runs: usize,
    reader_kb: f64,
    /// Processor time of the server for each second in which nothing happens.
    idle_us_per_s: f64,
    /// From sending an approval until the last reader of that run has got its end.
    heard_p50_ms: f64,
    heard_p99_ms: f64,
    looks_per_s: f64,
    look_us: f64,
}

/// Readers of each run.
const READERS_OF_A_RUN: usize = 10;
/// Runs whose end is sent to their readers.
const ENDED: usize = 50;
/// How many readers are let in at once.
const AT_ONCE: usize = 64;
/// How long nothing happens.
const IDLE: Duration = Duration::from_secs(3);
/// Connections that look at a run.
const LOOKING: usize = 64;

pub(crate) fn run(runtime: &Runtime, plan: &Plan) -> Big {
    let mut big = Big { turns: plan.turns, readers: plan.readers, ..Big::default() };
    eprintln!("bench: a run of {} turns …", big.turns);
    runtime.block_on(long_run(&mut big));
    eprintln!("bench: {} readers …", big.readers);
    if let Err(why) = many_readers(runtime, &mut big) {
        eprintln!("bench: {why}");
    }
    eprintln!("bench: one run, looked at again and again …");
    looks(runtime, plan.seconds, &mut big);
    big
}

impl Big {
    pub(crate) fn print(&self) {
        println!(
            "a run of {} turns: {:.2} ms a turn in the first tenth, {:.2} ms in the last",
            self.turns, self.first_turn_ms, self.last_turn_ms
        );
        println!(
            "{} readers of {} runs: {:.1} KB each, {:.0} µs of the processor a second while nothing happens; the end of a run reaches its last reader after p50 {:.1} ms, p99 {:.1} ms",
            self.readers, self.runs, self.reader_kb, self.idle_us_per_s, self.heard_p50_ms, self.heard_p99_ms
        );
        println!(
            "GET /api/v1/runs/ID, {LOOKING} connections: {:.0} requests/s, {:.0} µs of the server's processor each (goal: 20,000/s)",
            self.looks_per_s, self.look_us
        );
    }

    pub(crate) fn figures(&self) -> Value {
        json!({
            "turns": self.turns, "first_turn_ms": self.first_turn_ms, "last_turn_ms": self.last_turn_ms,
            "readers": self.readers, "runs": self.runs, "reader_kb": self.reader_kb,
            "idle_us_per_s": self.idle_us_per_s,
            "heard_p50_ms": self.heard_p50_ms, "heard_p99_ms": self.heard_p99_ms,
            "looks_per_s": self.looks_per_s, "look_us": self.look_us,
        })
    }
}

/// One run whose model calls a tool in each turn, which nobody has to approve.
async fn long_run(big: &mut Big) {
    let directory = tempfile::tempdir().unwrap();
    let mut lines = vec![Line::calls(&[("delete_file", r#"{"path": "/var/cache/old"}"#)]); big.turns - 1];
    lines.push(Line::says(ours::DONE));
    let (name, agent) = ours::agent("long", lines);
    let mut agent = Agent { needs_approval: Default::default(), ..Arc::unwrap_or_clone(agent) };
    agent.digest = agent.definition.digest();
    let limits = Arc::new(Limits { turns: big.turns as u32 + 1, ..Limits::default() });
    let settings = Settings { agents: [(name.clone(), Arc::new(agent))].into(), limits, ..Settings::usual() };
    let engine = Engine::new(ours::open(directory.path()), Clock::system(), ours::fixed(), settings);
    let new = NewRun { agent: name, session: None, message: Message::text("Free some space"), once: None };
    let run = engine.submit().start(&ours::local(), new).await.unwrap();
    engine.reads().settled_run(&ours::local(), run, Millis::seconds(600)).await.unwrap();
    let events = engine.reads().events(run, Seq(0)).await.unwrap();
    let replied: Vec<i64> = events
        .iter()
        .filter(|envelope| matches!(envelope.event, Event::ModelReplied(_)))
        .map(|envelope| envelope.at.0)
        .collect();
    let tenth = (replied.len() / 10).max(1);
    let of = |part: &[i64]| match part {
        [first, .., last] => (last - first) as f64 / (part.len() - 1) as f64,
        [_] | [] => f64::NAN,
    };
    big.first_turn_ms = of(&replied[..tenth.min(replied.len())]);
    big.last_turn_ms = of(&replied[replied.len().saturating_sub(tenth)..]);
    engine.die().await;
}

fn many_readers(runtime: &Runtime, big: &mut Big) -> Result<(), String> {
    make_room(big.readers as u64 + 1_000)?;
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(Build::This, "ours", directory.path(), "0");
    runtime.block_on(async {
        let mut caller = Connection::open(&served.address).await;
        let mut runs = Vec::new();
        for _ in 0..big.readers.div_ceil(READERS_OF_A_RUN) {
            runs.push(ours::started(&mut caller).await);
        }
        big.runs = runs.len();
        let before = served.resident_mb();
        let address = served.address.as_str();
        let each = runs.iter().flat_map(|(run, _)| std::iter::repeat_n(run, READERS_OF_A_RUN));
        let opening = stream::iter(each).map(|run| async move {
            let mut connection = Connection::try_open(address).await?;
            connection.follow(&format!("/api/v1/runs/{run}/events")).await?;
            connection.wait_for("hold.opened").await?;
            Ok::<_, std::io::Error>((run.clone(), connection))
        });
        let opened: Result<Vec<_>, _> =
            opening.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await.into_iter().collect();
        let opened = opened.map_err(|error| format!("not all readers were let in: {error}"))?;
        big.reader_kb = (served.resident_mb() - before) * 1024.0 / opened.len() as f64;
        let idle = served.usage();
        tokio::time::sleep(IDLE).await;
        let idle = served.usage().since(idle);
        big.idle_us_per_s = (idle.writer_us + idle.other_us) / IDLE.as_secs_f64();
        let mut readers: std::collections::HashMap<String, Vec<Connection>> = Default::default();
        opened.into_iter().for_each(|(run, connection)| readers.entry(run).or_default().push(connection));
        let mut heard = Vec::new();
        for (run, hold) in runs.iter().take(ENDED) {
            let begin = now();
            let waiting = readers.remove(run).unwrap_or_default();
            let waiting = waiting.into_iter().map(|mut connection| async move {
                connection.wait_for("run.ended").await.map(|()| begin.elapsed())
            });
            let all = futures_util::future::join_all(waiting);
            let (ends, ()) = futures_util::future::join(all, ours::approved(&mut caller, hold)).await;
            let last = ends.into_iter().filter_map(Result::ok).max().unwrap_or_default();
            heard.push(last.as_secs_f64() * 1000.0);
        }
        big.heard_p50_ms = percentile(&heard, 0.5);
        big.heard_p99_ms = percentile(&heard, 0.99);
        Ok(())
    })
}

/// A client and the run that it looks at.
type Look = (Connection, String);

fn looks(runtime: &Runtime, seconds: f64, big: &mut Big) {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(Build::This, "ours", directory.path(), "0");
    let look: Cycle<Look> = |(connection, path)| {
        Box::pin(async move {
            let begin = now();
            connection.get(path).await;
            Some(Lap { cycle: begin.elapsed(), approve: Duration::ZERO })
        })
    };
    let (measured, usage) = runtime.block_on(async {
        let mut caller = Connection::open(&served.address).await;
        let (run, _) = ours::started(&mut caller).await;
        let path = format!("/api/v1/runs/{run}");
        let clients = connected(&[&served.address], LOOKING).await;
        let clients = clients.into_iter().map(|connection| (connection, path.clone())).collect();
        let before = served.usage();
        let measured = load(clients, seconds, look).await;
        (measured, served.usage().since(before))
    });
    big.looks_per_s = measured.per_second();
    let usage = usage.per(measured.cycles as f64);
    big.look_us = usage.writer_us + usage.other_us;
}

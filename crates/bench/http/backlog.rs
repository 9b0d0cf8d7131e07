//! A backlog: queued runs of several agents, worked off by one node with the pools that agents have by default.
//!
//! One agent has most of it and was first; the others must not wait for it. The runs are started by an engine that has no
//! room for any, and worked off by another one on the same store, whose model notes when it was asked for which agent.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use standfast_core::message::Message;
use standfast_core::name::AgentName;
use standfast_core::time::Millis;
use standfast_engine::clock::Clock;
use standfast_engine::model::{Live, Model, ModelFuture, ModelReply, Prompt};
use standfast_engine::settings::{Agent, Settings};
use standfast_engine::{Engine, NewRun};
use tokio::runtime::Runtime;

use crate::measure::now;
use crate::ours;

/// The pool of an agent whose configuration says nothing of it.
const POOL: usize = 5;

/// The share of each agent in a hundredth of the backlog; the first one is there before the others.
const SHARES: [(&str, usize); 4] = [("first", 70), ("second", 10), ("third", 10), ("fourth", 10)];

/// Longest wait between two runs before the bench gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// The result of working off a backlog.
#[derive(Debug, Clone, Default)]
pub(crate) struct Backlog {
    pub(crate) count: usize,
    pub(crate) seconds: f64,
    /// Runs of the slowest agent for each run of the fastest, while all of them had some left.
    pub(crate) fairness: f64,
    pub(crate) poll_ms: i64,
}

impl Backlog {
    fn per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.count as f64 / self.seconds } else { 0.0 }
    }

    pub(crate) fn print(&self, place: &str) {
        println!(
            "backlog of {} queued runs of {} agents with {POOL} places each, {place}: {:.0} runs/s; fairness {:.2} (1 is equal); a node looks by itself every {} ms",
            self.count,
            SHARES.len(),
            self.per_second(),
            self.fairness,
            self.poll_ms,
        );
    }

    pub(crate) fn figures(&self) -> Value {
        json!({"runs": self.count, "runs_per_s": self.per_second(), "fairness": self.fairness})
    }
}

/// When the model was asked, and for which agent.
type Asks = Arc<Mutex<Vec<(AgentName, Instant)>>>;

/// Queues so many runs at a place and has them worked off.
pub(crate) fn run(runtime: &Runtime, count: usize, place: &Path) -> Backlog {
    let asks = Asks::default();
    let shares: Vec<(AgentName, usize)> =
        SHARES.iter().map(|(name, share)| (AgentName::new(*name).unwrap(), count * share / 100)).collect();
    let queued: usize = shares.iter().map(|(_, runs)| runs).sum();
    let seconds = runtime.block_on(async {
        let filler = Engine::new(ours::open(place), Clock::system(), ours::fixed(), settings(0, &asks));
        for (agent, runs) in &shares {
            queue(&filler, agent, *runs).await;
        }
        filler.die().await;
        drop(filler);
        let engine = Engine::new(ours::open(place), Clock::system(), ours::fixed(), settings(POOL, &asks));
        engine.join().await.unwrap();
        let begin = now();
        engine.work();
        let seconds = wait_for(&asks, queued, begin).await;
        engine.drain(Millis::seconds(10)).await;
        seconds
    });
    let asks = asks.lock().unwrap();
    Backlog { count: asks.len(), seconds, fairness: fairness(&asks, &shares), poll_ms: ours::POLL_MS }
}

/// Starts runs that find no place.
async fn queue(engine: &Engine, agent: &AgentName, runs: usize) {
    let mut starting = tokio::task::JoinSet::new();
    for task in 0..64 {
        let (engine, agent) = (engine.clone(), agent.clone());
        starting.spawn(async move {
            for _ in (task..runs).step_by(64) {
                let message = Message::text("Free some space");
                let new = NewRun { agent: agent.clone(), session: None, message, once: None };
                engine.submit().start(&ours::local(), new).await.unwrap();
            }
        });
    }
    starting.join_all().await;
}

/// Seconds until the last of them was worked on.
async fn wait_for(asks: &Asks, queued: usize, begin: Instant) -> f64 {
    let (mut seen, mut since) = (0, now());
    loop {
        let done = asks.lock().unwrap().len();
        if done >= queued {
            return begin.elapsed().as_secs_f64();
        }
        if done > seen {
            (seen, since) = (done, now());
        }
        if since.elapsed() > PATIENCE {
            eprintln!("bench: the backlog stands still at {done} of {queued}");
            return begin.elapsed().as_secs_f64();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Runs of the slowest agent for each run of the fastest, until the first of them had none left.
fn fairness(asks: &[(AgentName, Instant)], shares: &[(AgentName, usize)]) -> f64 {
    let mut done: BTreeMap<&AgentName, usize> = shares.iter().map(|(agent, _)| (agent, 0)).collect();
    for (agent, _) in asks {
        let count = done.entry(agent).or_default();
        *count += 1;
        let all = shares.iter().find(|(name, _)| name == agent).map_or(0, |(_, runs)| *runs);
        if *count >= all {
            break;
        }
    }
    let (least, most) = (done.values().min(), done.values().max());
    match (least, most) {
        (Some(least), Some(most)) if *most > 0 => *least as f64 / *most as f64,
        (_, _) => 0.0,
    }
}

fn settings(pool: usize, asks: &Asks) -> Settings {
    let agents = SHARES.iter().map(|(name, _)| {
        let (name, agent) = ours::agent(name, Vec::new());
        let model = Arc::new(Noting { agent: name.clone(), asks: asks.clone() });
        (name, Arc::new(Agent { worker_pool: pool, model, ..Arc::unwrap_or_clone(agent) }))
    });
    Settings { agents: agents.collect(), ..Settings::usual() }
}

/// Says at once that it is done, and notes that it was asked.
struct Noting {
    agent: AgentName,
    asks: Asks,
}

impl Model for Noting {
    fn ask<'a>(&'a self, _: Prompt, _: &'a Live) -> ModelFuture<'a> {
        self.asks.lock().unwrap().push((self.agent.clone(), now()));
        let reply = ModelReply { text: Some(ours::DONE.into()), ..ModelReply::default() };
        Box::pin(std::future::ready(Ok(reply)))
    }
}

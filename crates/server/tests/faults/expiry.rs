//! F21: very many holds expire in the same moment, while somebody approves.
//!
//! The runs are made by an engine whose clock stands an hour back, so that their deadlines fall together.

use std::sync::Arc;
use std::time::Duration;

use standfast_core::message::Message;
use standfast_core::name::AgentName;
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::clock::Clock;
use standfast_engine::{Engine, NewRun};
use tokio::task::JoinSet;

use crate::agents::{Behaviour, fixed, settings};
use crate::child::{Options, local};
use crate::commands::ended;
use crate::points::Points;
use crate::races::held;
use crate::report::Row;
use crate::server::{Http, now, pause};
use crate::site::{Field, Kept};

const HOUR: Millis = Millis(3_600_000);

/// Lets so many holds expire at once.
pub(crate) fn expiry(count: usize, kept: Kept) -> Row {
    let field = Field::new(kept);
    let behaviour = Behaviour { expiry: HOUR, ..Options::default().behaviour };
    let runtime = crate::runtime();
    let begin = now();
    // The deadlines lie a little ahead: time to start a server and see what an approval costs without them.
    let lead = Millis(2_000 + i64::try_from(count).unwrap());
    let clock = Clock::system().now().plus(lead);
    let deadline = Duration::from_millis(u64::try_from(lead.0).unwrap());
    let past = Clock::standing_at(Timestamp(clock.0 - HOUR.0));
    runtime.block_on(fill(&field, "expires", count, &behaviour, past));
    let mut server = field.start(&Options { behaviour, ..Options::default() });
    let http = server.http();
    let mut violations = Vec::new();
    let note = runtime.block_on(async {
        let calm = approvals(&http, 20).await;
        tokio::time::sleep(deadline.saturating_sub(begin.elapsed())).await;
        let expiring = now();
        let mut busy = Vec::new();
        while left(&http).await > 0 {
            busy.extend(approvals(&http, 5).await);
            if expiring.elapsed() > Duration::from_secs(120) {
                violations.push(format!("I6: {} holds are still open two minutes later", left(&http).await));
                break;
            }
        }
        let took = expiring.elapsed().as_secs_f64();
        format!(
            "all expired after {took:.1} s; approve→done p50 {:.0} ms before, p50 {:.0} and p99 {:.0} ms meanwhile",
            percentile(calm, 0.5),
            percentile(busy.clone(), 0.5),
            percentile(busy, 0.99)
        )
    });
    // Whoever is at work just now shall come to an end first.
    runtime.block_on(async { tokio::time::sleep(Duration::from_millis(500)).await });
    server.kill();
    violations.extend(field.check(&[]));
    Row::new(kept.row("F21", "F21-PG"), "holds expire in one second", count, violations).with(note)
}

/// Starts so many runs of an agent, which are all held in the end.
pub(crate) async fn fill(
    field: &Field,
    agent: &'static str,
    count: usize,
    behaviour: &Behaviour,
    clock: Clock,
) {
    let settings = settings(field.data(), behaviour, &Arc::new(Points::default()));
    let engine = Engine::new(field.store(), clock, fixed(behaviour), settings);
    let mut filling = JoinSet::new();
    for task in 0..64 {
        let engine = engine.clone();
        filling.spawn(async move {
            for _ in (task..count).step_by(64) {
                let agent = AgentName::new(agent).unwrap();
                let new = NewRun { agent, session: None, message: Message::text("Go"), once: None };
                let run = engine.submit().start(&local(), new).await.unwrap();
                engine.reads().settled_run(&local(), run, Millis::seconds(30)).await.unwrap();
            }
        });
    }
    filling.join_all().await;
    engine.die().await;
}

/// Whether holds of the crowd are still open.
async fn left(http: &Http) -> usize {
    let (_, list) = http.get("/api/v1/holds?agent=expires&limit=1").await.unwrap();
    list["holds"].as_array().map_or(0, Vec::len)
}

/// Approves some fresh runs one by one; milliseconds from approve to done.
async fn approvals(http: &Http, count: usize) -> Vec<f64> {
    let mut times = Vec::new();
    for _ in 0..count {
        let (run, hold) = held(http, "ops").await;
        let begin = now();
        let path = format!("/api/v1/holds/{hold}/resolve");
        http.post(&path, r#"{"resolution": "approve"}"#, None).await.unwrap();
        ended(http, &run).await.unwrap();
        times.push(begin.elapsed().as_secs_f64() * 1000.0);
    }
    pause().await;
    times
}

pub(crate) fn percentile(mut samples: Vec<f64>, share: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let at = (samples.len().saturating_sub(1) as f64 * share).round();
    samples.get(at as usize).copied().unwrap_or(0.0)
}

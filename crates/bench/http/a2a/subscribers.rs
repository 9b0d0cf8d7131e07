//! Many who follow one task: what each costs the server, and when the last of them gets its end.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::{COMPLETED, OPS, Server, VERSION, approval, held};
use crate::client::Connection;
use crate::measure::{now, percentile};
use crate::process::Served;

/// What so many subscribers cost.
#[derive(Debug)]
pub(crate) struct Followed {
    pub(crate) server: Server,
    pub(crate) count: usize,
    /// Or what went wrong: not every server has room for so many.
    pub(crate) came: Result<Came, String>,
}

/// How the event reached them.
#[derive(Debug)]
pub(crate) struct Came {
    /// Until all of them had got the task as it was.
    pub(crate) opened_s: f64,
    /// Resident memory that came with them, for each.
    pub(crate) kb_each: f64,
    /// From sending the approval to the first who got the end.
    pub(crate) first_ms: f64,
    pub(crate) p50_ms: f64,
    pub(crate) last_ms: f64,
}

/// How many are let in at once.
const AT_ONCE: usize = 64;

/// How long all of them may take to be let in, and how long until all have heard.
const PATIENCE: Duration = Duration::from_secs(180);

/// So many subscribers of one task of this server, which then is approved.
pub(crate) fn run(runtime: &Runtime, server: Server, served: &Served, count: usize) -> Followed {
    let came = runtime.block_on(follow(served, count));
    Followed { server, count, came }
}

async fn follow(served: &Served, count: usize) -> Result<Came, String> {
    let mut caller = Connection::open(&served.address).await.with(VERSION);
    // The first one of each kind costs what no other does.
    let (task, hold) = held(&mut caller).await;
    let _ = subscribed(&served.address, &task).await?;
    caller.post(OPS, &approval(&task, &hold)).await;

    let (task, hold) = held(&mut caller).await;
    let (before, begin) = (served.resident_mb(), now());
    let opening = stream::iter(0..count).map(|_| subscribed(&served.address, &task));
    let opening = opening.buffer_unordered(AT_ONCE).collect::<Vec<_>>();
    let opened = tokio::time::timeout(PATIENCE, opening).await;
    let opened = opened.map_err(|_| format!("not all were let in within {} s", PATIENCE.as_secs()))?;
    let opened: Vec<Connection> = opened.into_iter().collect::<Result<_, _>>()?;
    let opened_s = begin.elapsed().as_secs_f64();
    let kb_each = (served.resident_mb() - before) * 1024.0 / count as f64;

    let mut waiting = JoinSet::new();
    for mut connection in opened {
        waiting.spawn(async move { connection.wait_for(COMPLETED).await.map(|()| now()) });
    }
    // A connection of its own: letting all of them in may have taken longer than a server keeps an idle one.
    let approving = Connection::try_open(&served.address).await;
    let mut approving = approving.map_err(|error| format!("nobody can approve: {error}"))?.with(VERSION);
    let begin = now();
    let approved = tokio::spawn(async move { approving.post(OPS, &approval(&task, &hold)).await });
    let heard = tokio::time::timeout(PATIENCE, all(waiting)).await;
    let heard = heard.map_err(|_| format!("not all had heard within {} s", PATIENCE.as_secs()))??;
    approved.await.map_err(|error| format!("the approval was not taken: {error}"))?;
    let took: Vec<f64> = heard.iter().map(|at| (*at - begin).as_secs_f64() * 1000.0).collect();
    Ok(Came {
        opened_s,
        kb_each,
        first_ms: percentile(&took, 0.0),
        p50_ms: percentile(&took, 0.5),
        last_ms: percentile(&took, 1.0),
    })
}

/// A connection that has got the task as it is.
async fn subscribed(address: &str, task: &str) -> Result<Connection, String> {
    let open = async {
        let mut connection = Connection::try_open(address).await?.with(VERSION);
        connection.follow(&format!("/v1/agents/ops/tasks/{task}:subscribe")).await?;
        connection.wait_for("TASK_STATE_INPUT_REQUIRED").await?;
        Ok::<_, std::io::Error>(connection)
    };
    open.await.map_err(|error| format!("a subscriber was not let in: {error}"))
}

/// When each of them had heard.
async fn all(mut waiting: JoinSet<std::io::Result<Instant>>) -> Result<Vec<Instant>, String> {
    let mut heard = Vec::new();
    while let Some(one) = waiting.join_next().await {
        let lost = |why: &dyn std::fmt::Display| {
            let count = heard.len();
            format!("a subscriber was lost after {count} had heard: {why}")
        };
        match one {
            Ok(Ok(at)) => heard.push(at),
            Ok(Err(error)) => return Err(lost(&error)),
            Err(error) => return Err(lost(&error)),
        }
    }
    Ok(heard)
}

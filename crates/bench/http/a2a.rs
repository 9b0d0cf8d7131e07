//! A2A over HTTP+JSON: `message:send` round trips, and many who follow one task.
//!
//! Beside ours, in alternating rounds of the same run and asked the same: the server of the official Python SDK, with
//! tasks in memory and in SQLite (`a2a/server.py`). It is one process, as its streams live in the memory of one.
//! `cargo xtask bench --a2a` installs it. `subscribers.rs` has the followers, `report.rs` the tables.

mod report;
mod subscribers;

pub(crate) use report::print;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::Plan;
use crate::client::{Connection, text_of};
use crate::measure::{ByConcurrency, Cycle, Lap, connected, load, now};
use crate::process::{Build, Served, make_room, runtime};
use subscribers::Followed;

/// Whose servers are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Server {
    Ours,
    /// The official Python SDK's, with tasks in memory.
    PythonMemory,
    /// The same with tasks in SQLite, synced like ours.
    PythonSqlite,
}

/// Those whose round trips are measured.
const SERVERS: [Server; 3] = [Server::Ours, Server::PythonMemory, Server::PythonSqlite];

/// What one server reached.
#[derive(Debug, Default)]
pub(crate) struct Trips {
    /// A message and its answer.
    pub(crate) plain: ByConcurrency,
    /// A message, a question, an approval, the end.
    pub(crate) cycle: ByConcurrency,
}

/// Everything that was measured.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) trips: Vec<(Server, Trips)>,
    pub(crate) followed: Vec<Followed>,
}

/// What every request says about itself.
const VERSION: &str = "A2A-Version: 1.0\r\n";

/// How long a fresh server is asked before it counts: an interpreter is slow at first.
const WARM_UP: f64 = 0.3;

/// Files that a process has open beside the sockets of subscribers.
const OTHER_FILES: u64 = 300;

pub(crate) fn all(plan: &Plan) -> Result<Results, String> {
    let most = plan.subscribers.iter().max().copied().unwrap_or(0);
    make_room(most as u64 + OTHER_FILES)?;
    let runtime = runtime();
    let mut trips: Vec<(Server, Trips)> = SERVERS.map(|server| (server, Trips::default())).into();
    let plain: Cycle = |connection| Box::pin(one_trip(connection));
    let cycle: Cycle = |connection| Box::pin(approved_cycle(connection));
    for at in &plan.concurrency {
        eprintln!("bench: {at} concurrent …");
        let half = plan.seconds / 2.0;
        // Alternating rounds, so that a slow minute of the machine hits all alike.
        for _ in 0..2 {
            for (server, trips) in &mut trips {
                let running = Running::start(*server)?;
                let asked = |what: Cycle, seconds: f64| {
                    runtime.block_on(async {
                        let connections = connected(&[&running.served.address], *at).await;
                        let clients = connections.into_iter().map(|one| one.with(VERSION)).collect();
                        load(clients, seconds, what).await
                    })
                };
                for (what, figures) in [(plain, &mut trips.plain), (cycle, &mut trips.cycle)] {
                    asked(what, WARM_UP);
                    figures.entry(*at).or_default().add(asked(what, half));
                }
            }
        }
    }
    let mut followed = Vec::new();
    for count in &plan.subscribers {
        // Streams are the same with either of its stores.
        for server in [Server::Ours, Server::PythonMemory] {
            eprintln!("bench: {count} subscribers of {} …", server.name());
            let running = Running::start(server)?;
            followed.push(subscribers::run(&runtime, server, &running.served, *count));
        }
    }
    Ok(Results { trips, followed })
}

/// A server and where it keeps things.
struct Running {
    served: Served,
    _folder: TempDir,
}

impl Running {
    fn start(server: Server) -> Result<Running, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let served = match server {
            Server::Ours => Served::start(Build::This, "ours", folder.path(), "0"),
            Server::PythonMemory => python("memory", folder.path())?,
            Server::PythonSqlite => python("sqlite", folder.path())?,
        };
        if served.address.is_empty() {
            Err(format!("{} did not start; what it wrote above says why", server.name()))
        } else {
            Ok(Running { served, _folder: folder })
        }
    }
}

impl Server {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Server::Ours => "ours",
            Server::PythonMemory => "python_memory",
            Server::PythonSqlite => "python_sqlite",
        }
    }
}

/// The server of the official Python SDK, which `cargo xtask bench --a2a` installs below the target folder.
fn python(store: &str, place: &Path) -> Result<Served, String> {
    // It is in a folder of the target folder, which is named after the profile.
    let here = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = here.ancestors().nth(2).ok_or("this program is not in a target folder")?;
    let python = target.join("a2a-bench/bin/python");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("a2a/server.py");
    let mut command = Command::new(&python);
    // With its tracing on it is slower, and writes a traceback for every stream that ends.
    command.arg(script).arg(store).arg(place).env("OTEL_INSTRUMENTATION_A2A_SDK_ENABLED", "false");
    Served::by(&mut command)
        .map_err(|error| format!("{}: {error}; `cargo xtask bench --a2a` installs it", python.display()))
}

/// A message and its answer.
async fn one_trip(connection: &mut Connection) -> Option<Lap> {
    let start = now();
    let done = connection.post("/v1/agents/plain/message:send", FIRST).await;
    assert!(done.contains(COMPLETED), "{done}");
    Some(Lap { cycle: start.elapsed(), approve: Duration::ZERO })
}

/// A message, a question, an approval, the end.
async fn approved_cycle(connection: &mut Connection) -> Option<Lap> {
    let start = now();
    let (task, hold) = held(connection).await;
    let approve = now();
    let done = connection.post(OPS, &approval(&task, &hold)).await;
    assert!(done.contains(COMPLETED), "{done}");
    Some(Lap { cycle: start.elapsed(), approve: approve.elapsed() })
}

/// Begins a task that waits; its id, and that of what it waits for.
async fn held(connection: &mut Connection) -> (String, String) {
    let held = connection.post(OPS, FIRST).await;
    assert!(held.contains("TASK_STATE_INPUT_REQUIRED"), "{held}");
    (text_of(&held, "id").to_owned(), text_of(&held, "hold_id").to_owned())
}

fn approval(task: &str, hold: &str) -> String {
    format!(
        r#"{{"message": {{"messageId": "m-2", "role": "ROLE_USER", "taskId": "{task}", "parts": [{{"data": {{"decision": "approve", "hold_id": "{hold}"}}}}]}}}}"#
    )
}

/// Where the agent is that asks.
const OPS: &str = "/v1/agents/ops/message:send";

const COMPLETED: &str = "TASK_STATE_COMPLETED";

const FIRST: &str =
    r#"{"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "Free some space"}]}}"#;

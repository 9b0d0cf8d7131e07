//! A stage for one case: a folder with a store of its own, the keys of its people, and servers that can be killed.
//!
//! Servers are this very program, started as people start it. Each ends with its stage, and with this process whatever
//! becomes of that (`Rehearsal::end_with_parent`). What is played on it is `play.rs`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::auth::KeyFacts;
use standfast_engine::clock::{Clock, random_bytes};
use standfast_store::postgres::ScratchDatabase;

use super::rehearsal::{ADDRESS, Rehearsal, StoreKind, ToolConduct};
use crate::cli::keys;

/// What a server says once it can be asked, before its address.
const GREETING: &str = "Standfast listens on ";

/// How long a server may take until it listens.
const START_WAIT: Duration = Duration::from_secs(20);

/// How long one request may take.
const ANSWER_WAIT: Duration = Duration::from_secs(15);

/// How often is looked again.
const AGAIN: Duration = Duration::from_millis(25);

/// Until when a case must have ended.
#[derive(Debug, Clone)]
pub(super) struct Deadline {
    clock: Clock,
    at: Timestamp,
}

impl Deadline {
    pub(super) fn after(clock: &Clock, span: Millis) -> Deadline {
        Deadline { clock: clock.clone(), at: clock.now().plus(span) }
    }

    /// Looks again and again until there is something to see.
    pub(super) fn until<T>(
        &self,
        what: &str,
        mut look: impl FnMut() -> Result<Option<T>, String>,
    ) -> Result<T, String> {
        loop {
            if let Some(seen) = look()? {
                return Ok(seen);
            }
            if self.clock.now() >= self.at {
                return Err(format!("{what} did not happen in time"));
            }
            std::thread::sleep(AGAIN);
        }
    }
}

/// Every server that was started, so that all of them can be ended at once.
#[derive(Debug, Clone, Default)]
pub(super) struct Nursery {
    started: Arc<Mutex<RunningServers>>,
}

#[derive(Debug, Default)]
struct RunningServers {
    is_closed: bool,
    children: Vec<Child>,
}

impl Nursery {
    fn started(&self) -> MutexGuard<'_, RunningServers> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a server; says its number among them.
    fn start(&self, command: &mut Command) -> Result<(u32, mpsc::Receiver<String>), String> {
        let mut started = self.started();
        if started.is_closed {
            return Err("the verification was stopped".to_owned());
        }
        let mut child =
            command.spawn().map_err(|error| format!("the server could not be started: {error}"))?;
        let (id, stdout) = (child.id(), child.stdout.take());
        started.children.push(child);
        let (said, first_line) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            if let Some(stdout) = stdout
                && BufReader::new(stdout).read_line(&mut line).is_ok()
            {
                // Whoever waits for it may have given up.
                let _ = said.send(line);
            }
        });
        Ok((id, first_line))
    }

    /// Kills a server, as `kill -9` does.
    fn kill(&self, id: u32) {
        let mut started = self.started();
        if let Some(at) = started.children.iter().position(|child| child.id() == id) {
            end(started.children.swap_remove(at));
        }
    }

    /// Whether no more are started.
    pub(super) fn is_closed(&self) -> bool {
        self.started().is_closed
    }

    /// Kills all of them, and starts no more.
    pub(super) fn close(&self) {
        let mut started = self.started();
        started.is_closed = true;
        started.children.drain(..).for_each(end);
    }
}

fn end(mut child: Child) {
    // One that has ended by itself cannot be killed.
    let _ = child.kill();
    let _ = child.wait();
}

/// What every stage of a verification has.
#[derive(Debug)]
pub(super) struct Setup {
    /// The user's file.
    pub(super) config: PathBuf,
    /// A Postgres in which databases may be made.
    pub(super) postgres: Option<String>,
    pub(super) nursery: Nursery,
    pub(super) clock: Clock,
}

/// A stage.
pub(super) struct Stage<'a> {
    setup: &'a Setup,
    pub(super) rehearsal: Rehearsal,
    pub(super) people: Vec<Person>,
    database: Option<ScratchDatabase>,
}

/// Somebody with a key.
#[derive(Debug, Clone)]
pub(super) struct Person {
    pub(super) name: String,
    key: String,
}

impl<'a> Stage<'a> {
    /// A stage with these people, in the folder of the rehearsal.
    pub(super) fn set(
        setup: &'a Setup,
        rehearsal: Rehearsal,
        cast: &[KeyFacts],
    ) -> Result<Stage<'a>, String> {
        for folder in [&rehearsal.folder, &rehearsal.store_folder()] {
            std::fs::create_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        let database = match (&setup.postgres, rehearsal.store) {
            (Some(address), StoreKind::Postgres) => Some(scratch(address)?),
            _ => None,
        };
        let address = database.as_ref().map(ScratchDatabase::address).unwrap_or_default();
        let made = keys::make(rehearsal.database(address), cast)?;
        let people = cast.iter().zip(made);
        let people = people.map(|(facts, key)| Person { name: facts.user.to_string(), key }).collect();
        Ok(Stage { setup, rehearsal, people, database })
    }

    /// Who starts runs: the last one.
    pub(super) fn starter(&self) -> Result<&Person, String> {
        self.people.last().ok_or_else(|| "there is nobody to start a run".to_owned())
    }

    /// Starts a server whose tools do this.
    pub(super) fn serve(&self, tools: ToolConduct) -> Result<Node, String> {
        let Rehearsal { folder, .. } = &self.rehearsal;
        let file = folder.join("rehearsal.json");
        let rehearsal = Rehearsal { tools, ..self.rehearsal.clone() };
        rehearsal.write(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let program =
            std::env::current_exe().map_err(|error| format!("this program is not found: {error}"))?;
        let log_path = folder.join("server.log");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&log_path);
        let log = log.map_err(|error| format!("{}: {error}", log_path.display()))?;
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--log-format", "text", "--config"]);
        command.arg(&self.setup.config).arg("--data").arg(folder.join("data"));
        command.arg("--rehearse").arg(&file);
        // What is meant for the server of a machine is not meant for this one.
        command.env_remove("NOTIFY_SOCKET").env_remove(ADDRESS).env("RUST_LOG", "warn");
        if let Some(database) = &self.database {
            command.env(ADDRESS, database.address());
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let (id, first_line) = self.setup.nursery.start(&mut command)?;
        let line = first_line.recv_timeout(START_WAIT).unwrap_or_default();
        let base = line.trim().strip_prefix(GREETING);
        let node =
            Node { nursery: self.setup.nursery.clone(), id, base: base.unwrap_or_default().to_owned() };
        if base.is_some() {
            Ok(node)
        } else {
            drop(node);
            Err(format!("the server did not start: {}", last_line(&log_path)))
        }
    }

    /// Takes the store away, whoever has it open.
    pub(super) fn lose_store(&self) -> Result<(), String> {
        match &self.database {
            Some(database) => database.remove().map_err(|error| error.to_string()),
            None => remove_but_keys(&self.rehearsal.store_folder())
                .map_err(|error| format!("the store could not be removed: {error}")),
        }
    }
}

/// The folder in which a store of files keeps keys.
const KEYS: &str = "credential";

/// Removes everything below a folder but keys: without them nobody would be let in, and nothing shown.
fn remove_but_keys(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name == KEYS) {
            continue;
        }
        let removed = if path.is_dir() { remove_but_keys(&path) } else { std::fs::remove_file(&path) };
        match removed {
            // The server has files that it removes itself.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    Ok(())
}

/// Makes a database and removes it: whether that can be done is better known before anything is played.
pub(super) fn try_postgres(address: &str) -> Result<(), String> {
    scratch(address).map(drop)
}

fn scratch(address: &str) -> Result<ScratchDatabase, String> {
    let name = format!("standfast_verify_{:016x}", u64::from_ne_bytes(random_bytes()));
    let made = ScratchDatabase::create(address, &name);
    made.map_err(|error| format!("no database could be made in the Postgres of --postgres: {error}"))
}

/// The last thing that a server said.
fn last_line(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.unwrap_or("it said nothing").to_owned()
}

/// A running server; dropping it kills it.
pub(super) struct Node {
    nursery: Nursery,
    id: u32,
    base: String,
}

/// What came of a request.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Value,
}

impl Reply {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// A member of the body, as text.
    pub(super) fn text(&self, pointer: &str) -> String {
        self.body.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// What the server said, if it is a no.
    pub(super) fn expect(self, what: &str) -> Result<Reply, String> {
        if self.is_success() {
            Ok(self)
        } else {
            Err(format!("{what} was answered with {}: {}", self.status, self.text("/detail")))
        }
    }
}

impl Node {
    /// Ends it, as `kill -9` does.
    pub(super) fn kill(self) {
        drop(self);
    }

    pub(super) fn get(&self, person: &Person, path: &str) -> Result<Reply, String> {
        let request = agent().get(self.url(path)).header("authorization", format!("Bearer {}", person.key));
        read(request.call())
    }

    pub(super) fn post(&self, person: &Person, path: &str, body: &str) -> Result<Reply, String> {
        let request = agent().post(self.url(path)).header("authorization", format!("Bearer {}", person.key));
        read(request.header("content-type", "application/json").send(body))
    }

    fn url(&self, path: &str) -> String {
        format!("{}/api/v1{path}", self.base)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.nursery.kill(self.id);
    }
}

/// A client of its own for each request, as different people have.
fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).max_redirects(0).proxy(None);
    config.timeout_global(Some(ANSWER_WAIT)).build().into()
}

fn read(asked: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<Reply, String> {
    let lost = |error: ureq::Error| format!("the server did not answer: {error}");
    let mut response = asked.map_err(lost)?;
    let text = response.body_mut().with_config().read_to_string().map_err(lost)?;
    let body = serde_json::from_str(&text).unwrap_or(Value::Null);
    Ok(Reply { status: response.status().as_u16(), body })
}

//! A Redis as a quick index of calls (S2-26): optional, over the files, never instead of them.
//!
//! Sets `pending:by-session:{sessionID}` and `pending:by-status:{status}`, and the sorted set `pending:expiration`; those of
//! a tenant other than `default` with its name and a colon in front. Files are written first, then Redis, by a thread of its
//! own: nothing waits for it. A Redis that was away, was flushed or says something else than the files is rebuilt from
//! them. `resp.rs` speaks its protocol.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use standfast_core::id::HoldId;
use standfast_core::name::Tenant;
use tokio::sync::{RwLock, oneshot};

use super::calls::{CallEntry, Calls};
use super::folder::Folder;
use super::model::Model;
use super::resp::{Connection, RedisAddress, RedisError};
use crate::call_query::{CallQuery, CallStatus};
use crate::error::StoreError;

/// How long after a failure a Redis is tried again.
const AGAIN: Duration = Duration::from_secs(2);

/// How many commands are sent at once.
const AT_ONCE: usize = 500;

/// The jobs of the thread.
pub(super) enum IndexJob {
    /// These calls are, or are no longer, what the files say.
    Changed(Vec<CallChange>),
    /// Which calls a set has; none when the Redis cannot say.
    Members(String, oneshot::Sender<Option<Vec<String>>>),
    /// It says something else than the files.
    Wrong,
}

/// How a call changed in the files.
#[derive(Debug, Clone)]
pub(super) struct CallChange {
    pub(super) id: HoldId,
    pub(super) before: Option<CallEntry>,
    pub(super) after: Option<CallEntry>,
}

/// The thread that keeps a Redis in step with the files. Dropping it ends the thread.
#[derive(Debug, Clone)]
pub(super) struct RedisIndex {
    jobs: Sender<IndexJob>,
}

/// The set of a session's calls.
pub(super) fn session_key(tenant: &Tenant, session: &str) -> String {
    format!("{}pending:by-session:{session}", before(tenant))
}

/// The set of the calls that stand like this.
pub(super) fn status_key(tenant: &Tenant, status: CallStatus) -> String {
    format!("{}pending:by-status:{}", before(tenant), status.word())
}

/// The calls that are given up some day, by when.
pub(super) fn expiration_key(tenant: &Tenant) -> String {
    format!("{}pending:expiration", before(tenant))
}

fn before(tenant: &Tenant) -> String {
    if *tenant == Tenant::default_tenant() { String::new() } else { format!("{tenant}:") }
}

impl RedisIndex {
    pub(super) fn start(
        address: RedisAddress,
        model: Arc<RwLock<Model>>,
        folder: Folder,
    ) -> std::io::Result<RedisIndex> {
        let (jobs, queue) = channel();
        let thread = std::thread::Builder::new().name("standfast-redis".into());
        let state =
            IndexState { address, folder, model, connection: None, tried_at: now(), is_reported: false };
        thread.spawn(move || state.run(&queue))?;
        Ok(RedisIndex { jobs })
    }

    /// Tells of changes that are in the files.
    pub(super) fn tell(&self, job: IndexJob) {
        // A thread that ended does not come back: the files have everything.
        let _ = self.jobs.send(job);
    }

    /// The members of a set; none when the Redis cannot say.
    pub(super) async fn members(&self, key: String) -> Option<Vec<String>> {
        let (reply, answer) = oneshot::channel();
        self.tell(IndexJob::Members(key, reply));
        answer.await.ok().flatten()
    }
}

struct IndexState {
    address: RedisAddress,
    folder: Folder,
    model: Arc<RwLock<Model>>,
    /// None while it is away, or not in step with the files.
    connection: Option<Connection>,
    /// When it was last tried to connect.
    tried_at: Instant,
    /// It was reported as away.
    is_reported: bool,
}

impl IndexState {
    fn run(mut self, queue: &Receiver<IndexJob>) {
        self.connect();
        loop {
            match queue.recv_timeout(AGAIN) {
                // What happens while it is away is in the files; it is filled from them when it is back.
                Ok(IndexJob::Changed(changes)) => {
                    let commands: Vec<Vec<String>> = changes.iter().flat_map(commands).collect();
                    self.send(&commands);
                }
                Ok(IndexJob::Members(key, reply)) => {
                    let _ = reply.send(self.members(&key));
                }
                Ok(IndexJob::Wrong) => {
                    self.connection = None;
                    self.connect();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // Behind every job as well: on a server that always has something to do the queue is never empty for so long.
            if self.connection.is_none() && now().duration_since(self.tried_at) >= AGAIN {
                self.connect();
            }
        }
    }

    /// Connects, and fills it with what the files say.
    fn connect(&mut self) {
        match Connection::open(&self.address).and_then(|connection| self.fill(connection)) {
            Ok(connection) => {
                if std::mem::take(&mut self.is_reported) {
                    let address = &self.address;
                    self.folder
                        .report(&format!("reconnected to the Redis at {address}; its index is rebuilt"));
                }
                self.connection = Some(connection);
            }
            Err(error) => self.lost(&error),
        }
        // Behind the try: a Redis that does not answer takes its time.
        self.tried_at = now();
    }

    fn fill(&self, mut connection: Connection) -> Result<Connection, RedisError> {
        let (stale, commands) = {
            let model = self.model.blocking_read();
            // Also those that have no calls any more: what was said of them while nobody could be told is still there.
            let (known, default) = (model.state.tenants(), Tenant::default_tenant());
            let of_calls = model.calls.all().map(|(_, entry)| &entry.tenant);
            let tenants: BTreeSet<&Tenant> = of_calls.chain(&known).chain([&default]).collect();
            // Others may keep keys of their own beside these: only what is this index is deleted.
            let stale: Vec<String> = tenants.into_iter().map(before).collect();
            let put = |(id, entry): (&HoldId, &CallEntry)| {
                commands(&CallChange { id: *id, before: None, after: Some(entry.clone()) })
            };
            (stale, model.calls.all().flat_map(put).collect::<Vec<Vec<String>>>())
        };
        for start in stale {
            connection.delete_below(&format!("{start}pending:by-session:"))?;
            connection.delete_below(&format!("{start}pending:by-status:"))?;
            connection.ask(&[vec!["DEL".to_owned(), format!("{start}pending:expiration")]])?;
        }
        for some in commands.chunks(AT_ONCE) {
            connection.ask(some)?;
        }
        Ok(connection)
    }

    fn send(&mut self, commands: &[Vec<String>]) {
        let Some(connection) = &mut self.connection else { return };
        for some in commands.chunks(AT_ONCE) {
            if let Err(error) = connection.ask(some) {
                return self.lost(&error);
            }
        }
    }

    fn members(&mut self, key: &str) -> Option<Vec<String>> {
        let connection = self.connection.as_mut()?;
        match connection.members(key) {
            Ok(members) => Some(members),
            Err(error) => {
                self.lost(&error);
                None
            }
        }
    }

    fn lost(&mut self, error: &RedisError) {
        self.connection = None;
        if !std::mem::replace(&mut self.is_reported, true) {
            self.folder.report(&format!(
                "the Redis at {} cannot be used ({error}); lookups read the files until it is back",
                self.address
            ));
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long ago a Redis was tried; nothing that is kept depends on it"
)]
fn now() -> Instant {
    Instant::now()
}

/// What makes the sets say what the file says.
fn commands(change: &CallChange) -> Vec<Vec<String>> {
    let id = change.id.to_string();
    let command = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
    let mut commands = Vec::new();
    if let Some(entry) = change.before.as_ref().filter(|before| Some(*before) != change.after.as_ref()) {
        commands.push(command(&["SREM", &session_key(&entry.tenant, &entry.session), &id]));
        commands.push(command(&["SREM", &status_key(&entry.tenant, entry.status), &id]));
        commands.push(command(&["ZREM", &expiration_key(&entry.tenant), &id]));
    }
    if let Some(entry) = &change.after {
        commands.push(command(&["SADD", &session_key(&entry.tenant, &entry.session), &id]));
        commands.push(command(&["SADD", &status_key(&entry.tenant, entry.status), &id]));
        if let Some(at) = entry.expires_at {
            commands.push(command(&["ZADD", &expiration_key(&entry.tenant), &at.0.to_string(), &id]));
        }
    }
    commands
}

/// What a lookup means for the sets.
impl CallQuery {
    /// The sets that have them.
    fn keys(&self) -> Vec<String> {
        match &self.session {
            Some(session) => vec![session_key(&self.tenant, session)],
            None => {
                let wanted = if self.statuses.is_empty() { &CallStatus::ALL[..] } else { &self.statuses };
                wanted.iter().map(|status| status_key(&self.tenant, *status)).collect()
            }
        }
    }

    fn is_in_a_set(&self, entry: &CallEntry) -> bool {
        entry.tenant == self.tenant
            && match &self.session {
                Some(session) => entry.session == *session,
                None => self.statuses.is_empty() || self.statuses.contains(&entry.status),
            }
    }

    fn is_wanted(&self, entry: &CallEntry) -> bool {
        self.is_in_a_set(entry) && (self.statuses.is_empty() || self.statuses.contains(&entry.status))
    }
}

/// Looks calls up: the sets first, then the files. What the Redis says otherwise than the files does not count.
pub(super) async fn look_up(
    index: Option<&RedisIndex>,
    model: &RwLock<Model>,
    query: &CallQuery,
) -> Result<Vec<HoldId>, StoreError> {
    if let Some(index) = index {
        let mut named = BTreeSet::new();
        let mut is_known = true;
        for key in query.keys() {
            match index.members(key).await {
                Some(members) => named.extend(members),
                None => is_known = false,
            }
        }
        let model = model.read().await;
        let found = if is_known { read_files(&model, &named)? } else { None };
        match found {
            Some(found) if in_step(&model.calls, query, &named) => {
                let wanted = found.into_iter().filter(|(_, entry)| query.is_wanted(entry));
                return Ok(wanted.map(|(id, _)| id).collect());
            }
            Some(_) => index.tell(IndexJob::Wrong),
            None if is_known => index.tell(IndexJob::Wrong),
            None => {}
        }
    }
    let model = model.read().await;
    Ok(model.calls.all().filter(|(_, entry)| query.is_wanted(entry)).map(|(id, _)| *id).collect())
}

/// The files of the calls that a set names; none when one of them has no file.
fn read_files(
    model: &Model,
    named: &BTreeSet<String>,
) -> Result<Option<Vec<(HoldId, CallEntry)>>, StoreError> {
    let mut found = Vec::new();
    for name in named {
        let Ok(id) = name.parse::<HoldId>() else { return Ok(None) };
        let Some(tenant) = model.calls.entry(id).map(|entry| entry.tenant.clone()) else { return Ok(None) };
        let path = super::paths::call(&tenant, id);
        let Some(bytes) = model.bytes(&path)? else { return Ok(None) };
        let Ok((_, entry)) = Calls::read_file(&tenant, &bytes) else { return Ok(None) };
        found.push((id, entry));
    }
    Ok(Some(found))
}

/// Whether the sets have neither more nor less than the files.
fn in_step(calls: &Calls, query: &CallQuery, named: &BTreeSet<String>) -> bool {
    let mut wanted = 0;
    for (id, _) in calls.all().filter(|(_, entry)| query.is_in_a_set(entry)) {
        if !named.contains(&id.to_string()) {
            return false;
        }
        wanted += 1;
    }
    wanted == named.len()
}

//! The record as copies in readable files: one for each call, an index of them, one for each conversation.
//!
//! Copies, made from the log whenever somebody asks, or kept up beside a server: nothing reads them back. Each file is
//! written beside its place and renamed into it, so whoever looks sees a whole one; the index comes last.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::{Value, json};
use standfast_core::name::{AgentName, Tenant};
use standfast_engine::auth::Principal;
use standfast_engine::{
    Engine, EngineError, FileCopies, SessionError, SessionKey, SessionList, SessionName, metadata,
};
use tokio::sync::{mpsc, oneshot};

use super::map;
use crate::http::rfc3339;

/// Conversations that are read at once.
const AT_ONCE: usize = 200;

/// How often everything is written anew: what other nodes changed is seen then, and what is no longer shown goes.
const EVERYTHING: Duration = Duration::from_secs(60);

/// Conversations that wait to be written, at most; the others are due in the store.
const QUEUE: usize = 16;

/// How long after a failure it is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// How much was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ExportCount {
    /// Files of calls.
    pub calls: u64,
    /// Files of conversations.
    pub sessions: u64,
}

/// Why not everything was written.
#[derive(Debug, thiserror::Error)]
pub enum NotWritten {
    /// The store refuses it.
    #[error("{0}")]
    Engine(#[from] EngineError),
    /// A conversation cannot be read.
    #[error("{0}")]
    Session(#[from] SessionError),
    /// A file cannot be written.
    #[error("{0}")]
    File(#[from] io::Error),
}

/// Where calls are found by what.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    by_session: BTreeMap<String, Vec<String>>,
    by_status: BTreeMap<String, Vec<String>>,
    by_expiration: Vec<Expiration>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Expiration {
    #[serde(rename = "expiresAt")]
    expires_at: i64,
    #[serde(rename = "pendingID")]
    pending_id: String,
}

/// What is known of a call that has a file.
#[derive(Debug, Clone)]
struct KnownCall {
    of: SessionKey,
    status: String,
    expires_at: Option<i64>,
}

/// The files below a directory.
#[derive(Debug)]
struct Files {
    directory: PathBuf,
    calls: BTreeMap<String, KnownCall>,
}

impl Files {
    fn below(directory: &Path) -> io::Result<Files> {
        fs::create_dir_all(directory.join("pending_tool"))?;
        Ok(Files { directory: directory.to_owned(), calls: BTreeMap::new() })
    }

    /// Writes every conversation of these agents, or of all; and takes away what is no longer shown.
    async fn write_all(
        &mut self,
        engine: &Engine,
        who: &Principal,
        agents: Option<&BTreeSet<AgentName>>,
    ) -> Result<ExportCount, NotWritten> {
        let (mut written, mut cursor) = (ExportCount::default(), None);
        self.calls.clear();
        loop {
            let page =
                engine.sessions().list(who, SessionList { agent: None, cursor, limit: AT_ONCE }).await?;
            let wanted = |agent: &AgentName| agents.is_none_or(|agents| agents.contains(agent));
            for key in page.items.into_iter().map(|row| row.key).filter(|key| wanted(&key.agent)) {
                written.calls += self.write_session(engine, who, key).await?;
                written.sessions += 1;
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        self.forget_others()?;
        self.write_index()?;
        Ok(written)
    }

    /// Writes one conversation with its calls.
    async fn write_session(
        &mut self,
        engine: &Engine,
        who: &Principal,
        key: SessionKey,
    ) -> Result<u64, NotWritten> {
        let of = key.clone();
        self.calls.retain(|_, known| known.of != of);
        let name = SessionName { session: key.session, agent: Some(key.agent), owner: Some(key.owner) };
        let views = engine.jobs().session_jobs(who, &name).await?;
        for view in &views {
            let record = serde_json::to_value(map::record(view)).unwrap_or_default();
            let id = view.id().to_string();
            put(&self.directory.join("pending_tool").join(format!("{id}.json")), &record)?;
            let status = record["status"].as_str().unwrap_or_default().to_owned();
            let expires_at = view.job.expires_at.filter(|_| view.job.is_open()).map(|at| at.0);
            self.calls.insert(id, KnownCall { of: of.clone(), status, expires_at });
        }
        write_session(engine, who, &name, &self.directory).await?;
        Ok(u64::try_from(views.len()).unwrap_or(u64::MAX))
    }

    /// Writes one conversation as it is now, and the index behind it.
    async fn renew(&mut self, engine: &Engine, who: &Principal, key: SessionKey) -> Result<(), NotWritten> {
        match self.write_session(engine, who, key).await {
            // There is no such conversation any more.
            Ok(_) | Err(NotWritten::Session(SessionError::Engine(EngineError::NotFound))) => {}
            Err(error) => return Err(error),
        }
        Ok(self.write_index()?)
    }

    fn write_index(&self) -> io::Result<()> {
        let mut index = Index::default();
        for (id, known) in &self.calls {
            index.by_session.entry(known.of.session.to_string()).or_default().push(id.clone());
            index.by_status.entry(known.status.clone()).or_default().push(id.clone());
            let expiration = |expires_at| Expiration { expires_at, pending_id: id.clone() };
            index.by_expiration.extend(known.expires_at.map(expiration));
        }
        index.by_expiration.sort();
        put(&self.directory.join("pending_tool/index.json"), &serde_json::to_value(&index)?)
    }

    /// Takes away the files of calls that are not known.
    fn forget_others(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.directory.join("pending_tool"))? {
            let path = entry?.path();
            let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
            let is_call = name.starts_with("hold_") && path.extension().is_some_and(|end| end == "json");
            if is_call && !self.calls.contains_key(name) {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }
}

/// Writes everything that this principal may see below a directory. Files of calls that are no longer shown are removed.
pub async fn write_files(
    engine: &Engine,
    who: &Principal,
    directory: &Path,
) -> Result<ExportCount, NotWritten> {
    Files::below(directory)?.write_all(engine, who, None).await
}

/// Directories, and the agents of which each has copies.
type Mirrors = BTreeMap<PathBuf, BTreeSet<AgentName>>;

/// A session that is to be copied, and who waits for it.
struct CopyOrder {
    session: SessionKey,
    done: oneshot::Sender<Result<(), String>>,
}

/// Where the deliverer leaves the sessions of runs that changed.
struct CopyQueue(mpsc::Sender<CopyOrder>);

impl FileCopies for CopyQueue {
    fn copy(&self, session: SessionKey) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let (done, answer) = oneshot::channel();
            let stopping = || "the server is stopping".to_owned();
            self.0.send(CopyOrder { session, done }).await.map_err(|_| stopping())?;
            answer.await.map_err(|_| stopping())?
        })
    }
}

/// Keeps files of some agents' calls and conversations, for as long as the engine works. Everything is written at first and once
/// in a while, in between what the deliverer says has changed: that is noted in the store with the change itself, and due until
/// it was written, so nothing is missed by a crash or a full queue. Call it before deliveries begin.
pub fn mirror(engine: &Engine, mirrors: Mirrors) {
    let (sender, orders) = mpsc::channel(QUEUE);
    engine.deliveries().copy_files(Arc::new(CopyQueue(sender)));
    tokio::spawn(keep_mirrors(engine.clone(), mirrors, orders));
}

async fn keep_mirrors(engine: Engine, mirrors: Mirrors, mut orders: mpsc::Receiver<CopyOrder>) {
    let mut pause = Duration::ZERO;
    while !engine.is_stopping() {
        tokio::time::sleep(pause).await;
        pause = Duration::ZERO;
        if let Err(error) = keep(&engine, &mirrors, &mut orders).await {
            tracing::warn!(%error, "mirror: could not write files; retrying");
            pause = AGAIN;
        }
    }
}

/// The mirrors of one tenant, each with the agents that it has copies of.
struct TenantMirrors<'a> {
    who: Principal,
    files: Vec<(Files, &'a BTreeSet<AgentName>)>,
}

impl<'a> TenantMirrors<'a> {
    /// Writes everything of a tenant: the server's own into the directories themselves, others below `tenant`.
    async fn written(engine: &Engine, mirrors: &'a Mirrors, tenant: Tenant) -> Result<Self, NotWritten> {
        let is_own = tenant == engine.fixed().tenant;
        let below = PathBuf::from("tenant").join(file_name(tenant.as_str()));
        let who = Principal { tenant, ..Principal::local() };
        let mut all = Vec::new();
        for (directory, agents) in mirrors {
            let directory = if is_own { directory.clone() } else { directory.join(&below) };
            let mut files = Files::below(&directory)?;
            files.write_all(engine, &who, Some(agents)).await?;
            all.push((files, agents));
        }
        Ok(TenantMirrors { who, files: all })
    }

    /// Writes one session as it is now.
    async fn renew(&mut self, engine: &Engine, session: &SessionKey) -> Result<(), NotWritten> {
        for (files, agents) in &mut self.files {
            if agents.contains(&session.agent) {
                files.renew(engine, &self.who, session.clone()).await?;
            }
        }
        Ok(())
    }
}

/// Writes everything, and then what changes, until it is time to write everything again.
async fn keep(
    engine: &Engine,
    mirrors: &Mirrors,
    orders: &mut mpsc::Receiver<CopyOrder>,
) -> Result<(), NotWritten> {
    let mut all = BTreeMap::new();
    for tenant in engine.sessions().tenants().await? {
        all.insert(tenant.clone(), TenantMirrors::written(engine, mirrors, tenant).await?);
    }
    let everything = tokio::time::sleep(EVERYTHING);
    tokio::pin!(everything);
    loop {
        let first = tokio::select! {
            () = &mut everything => return Ok(()),
            order = orders.recv() => order,
        };
        let Some(CopyOrder { session, done }) = first else { return Ok(()) };
        let copied = match all.get_mut(&session.tenant) {
            Some(known) => known.renew(engine, &session).await,
            // A tenant is there with its first run.
            None => TenantMirrors::written(engine, mirrors, session.tenant.clone())
                .await
                .map(|written| drop(all.insert(session.tenant.clone(), written))),
        };
        // Whoever waits for it tries again; so does everything else that is due.
        let _ = done.send(copied.as_ref().map_err(ToString::to_string).copied());
        copied?;
    }
}

/// A conversation with what is needed to go on with what of it waits.
async fn write_session(
    engine: &Engine,
    who: &Principal,
    name: &SessionName,
    directory: &Path,
) -> Result<(), NotWritten> {
    let view = engine.sessions().session(who, name).await?;
    let now = map::session(engine.jobs().session_now(who, name).await?);
    let pending: serde_json::Map<String, Value> = view
        .pending
        .iter()
        .map(|state| (state.task_id.to_string(), serde_json::to_value(state).unwrap_or_default()))
        .collect();
    let body = json!({
        "id": view.row.key.session,
        "projectID": view.row.key.agent,
        "time": {"created": view.row.created_at.0, "updated": view.row.updated_at.0},
        "created": rfc3339(view.row.created_at),
        "status": now,
        "metadata": metadata(&view.row).unwrap_or_default(),
        "pending_executions": pending,
    });
    let folder = directory.join("session").join(file_name(view.row.key.agent.as_str()));
    fs::create_dir_all(&folder)?;
    // Whoever used a name first has the plain one; the same name of others has theirs beside it.
    let first = engine.sessions().first_of_name(&view.row.key).await?;
    let file = if first.is_none_or(|first| first == view.row.key.owner) {
        file_name(view.row.key.session.as_str())
    } else {
        format!("{}~{}", file_name(view.row.key.session.as_str()), file_name(view.row.key.owner.as_str()))
    };
    put(&folder.join(format!("{file}.json")), &body)?;
    Ok(())
}

fn put(path: &Path, body: &Value) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(body)?;
    text.push(b'\n');
    let beside = path.with_extension("json.new");
    fs::write(&beside, text)?;
    fs::rename(&beside, path)
}

/// A name as a file name: whatever could lead elsewhere is written as `%` and its hex digits.
fn file_name(name: &str) -> String {
    let mut safe = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => safe.push(char::from(byte)),
            b'.' if !safe.is_empty() => safe.push('.'),
            _ => safe.push_str(&format!("%{byte:02X}")),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T25: no name of a session leads out of the directory.
    #[test]
    fn names_stay_where_they_are_put() {
        for (name, expected) in [
            ("s-1", "s-1"),
            ("run_06.x", "run_06.x"),
            ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd"),
            (".hidden", "%2Ehidden"),
            ("a b", "a%20b"),
            ("ü", "%C3%BC"),
        ] {
            assert_eq!(file_name(name), expected);
        }
    }
}

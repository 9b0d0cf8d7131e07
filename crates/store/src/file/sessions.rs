//! `session/{projectID}/{sessionID}.json`: a conversation, how it stands, and what is needed to go on with what of it
//! waits (S2-24). `projectID` is the agent's name.
//!
//! The conversation itself is what counts. Its status and the state of its held runs are made from the logs, in the
//! transaction that changes them. Whoever used a name first has the plain file name; the same name of others has theirs
//! behind it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use standfast_core::hold::{Hold, HoldKind};
use standfast_core::id::{HoldId, RunId};
use standfast_core::name::{AgentName, SessionId, Tenant, UserId};
use standfast_core::project::RunRow;
use standfast_core::run::{Stage, Status, status};
use standfast_core::time::Timestamp;

use super::documents::pretty;
use super::paths;
use crate::memory::state::SessionDocument;
use crate::query::SessionKey;

/// The file of a conversation.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SessionFile {
    id: SessionId,
    #[serde(rename = "projectID")]
    project: AgentName,
    tenant: Tenant,
    owner: UserId,
    no: i64,
    time: SessionTime,
    closed: bool,
    status: Box<RawValue>,
    /// As the user wrote it.
    #[serde(default)]
    metadata: Option<Box<RawValue>>,
    /// Metadata that are no JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metadata_text: Option<String>,
    /// What is needed to go on with each run that waits.
    #[serde(default)]
    pub(super) pending_executions: BTreeMap<RunId, Box<RawValue>>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct SessionTime {
    created: Timestamp,
    updated: Timestamp,
}

/// What a conversation is doing, as the async-tool API says it (S2-30).
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum SessionStatus {
    Idle,
    Busy {
        /// What it waits for, when that is not an outside job: such a hold has no pending id (C25).
        #[serde(rename = "waitingFor", skip_serializing_if = "Option::is_none")]
        waiting_for: Option<&'static str>,
    },
    Retry {
        attempt: u32,
        next: Timestamp,
    },
    WaitingAsync {
        #[serde(rename = "pendingID")]
        pending_id: HoldId,
        #[serde(skip_serializing_if = "Option::is_none")]
        tool: Option<String>,
        since: Timestamp,
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout: Option<Timestamp>,
    },
}

/// A conversation that has a file.
#[derive(Debug, Default)]
pub(super) struct SessionEntry {
    pub(super) path: String,
    /// Its runs that are not over.
    pub(super) open: BTreeSet<RunId>,
    /// Those of them whose state is in the file.
    pub(super) shown: BTreeSet<RunId>,
    /// Its status as it is in the file.
    pub(super) status: String,
}

/// Every conversation that has a file.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    entries: HashMap<SessionKey, SessionEntry>,
    taken: HashMap<String, SessionKey>,
}

impl Sessions {
    /// The entry of a conversation, with a name of its own for its file.
    pub(super) fn entry(&mut self, key: &SessionKey) -> &mut SessionEntry {
        if !self.entries.contains_key(key) {
            let plain = paths::session(key);
            let is_taken = self.taken.get(&plain).is_some_and(|other| other != key);
            let path = if is_taken { paths::session_of(key) } else { plain };
            self.enter(key.clone(), path);
        }
        self.entries.entry(key.clone()).or_default()
    }

    /// A conversation whose file has this name.
    pub(super) fn enter(&mut self, key: SessionKey, path: String) {
        self.taken.insert(path.clone(), key.clone());
        self.entries.insert(key, SessionEntry { path, ..SessionEntry::default() });
    }
}

impl SessionFile {
    /// Reads one; a sentence when it cannot be read.
    pub(super) fn parse(bytes: &[u8]) -> Result<SessionFile, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    pub(super) fn key(&self) -> SessionKey {
        SessionKey {
            tenant: self.tenant.clone(),
            agent: self.project.clone(),
            owner: self.owner.clone(),
            session: self.id.clone(),
        }
    }

    /// Its status as text.
    pub(super) fn status(&self) -> &str {
        self.status.get()
    }

    /// The conversation itself.
    pub(super) fn document(self) -> SessionDocument {
        let metadata = self.metadata.map(|raw| String::from(Box::<str>::from(raw)));
        SessionDocument {
            tenant: self.tenant,
            agent: self.project,
            owner: self.owner,
            session: self.id,
            no: self.no,
            metadata: self.metadata_text.or(metadata).unwrap_or_default(),
            created_at: self.time.created,
            updated_at: self.time.updated,
            closed: self.closed,
        }
    }

    /// The text of the file.
    pub(super) fn text(
        document: SessionDocument,
        status: &str,
        pending_executions: BTreeMap<RunId, Box<RawValue>>,
    ) -> String {
        let raw = RawValue::from_string(document.metadata.clone());
        // A `null` would be read as nothing.
        let is_same = |raw: &RawValue| raw.get() == document.metadata && raw.get() != "null";
        let metadata = raw.ok().filter(|raw| is_same(raw));
        let metadata_text = if metadata.is_none() { Some(document.metadata) } else { None };
        let idle = || RawValue::from_string(r#"{"type":"idle"}"#.into());
        let Ok(status) = RawValue::from_string(status.to_owned()).or_else(|_| idle()) else {
            unreachable!("a status is JSON");
        };
        pretty(&SessionFile {
            id: document.session,
            project: document.agent,
            tenant: document.tenant,
            owner: document.owner,
            no: document.no,
            time: SessionTime { created: document.created_at, updated: document.updated_at },
            closed: document.closed,
            status,
            metadata,
            metadata_text,
            pending_executions,
        })
    }
}

/// What a conversation with these runs is doing: work first, then what is tried again, then what is pending.
pub(super) fn status_of(runs: &[&RunRow]) -> String {
    crate::columns::json(&session_status(runs))
}

fn session_status(runs: &[&RunRow]) -> SessionStatus {
    let mut retrying = None;
    for row in runs {
        match status(&row.run) {
            Status::Queued | Status::Claimed | Status::Working => {
                return SessionStatus::Busy { waiting_for: None };
            }
            Status::Retrying(next) => {
                let attempt = match row.run.state.stage {
                    Stage::Thinking { failures, .. } => failures,
                    Stage::Acting | Stage::Ended(_) => 0,
                };
                retrying = Some(SessionStatus::Retry { attempt, next });
            }
            Status::Held(_) | Status::Ended(_) => {}
        }
    }
    retrying.unwrap_or_else(|| waiting(runs))
}

/// The oldest outside job that is waited for; without one, the oldest hold.
fn waiting(runs: &[&RunRow]) -> SessionStatus {
    let holds = || runs.iter().flat_map(|row| row.run.state.holds.iter().map(move |hold| (&row.run, hold)));
    let is_job = |hold: &Hold| hold.kind == HoldKind::External && hold.child.is_none();
    if let Some((run, hold)) = holds().filter(|(_, hold)| is_job(hold)).min_by_key(|(_, hold)| hold.opened_at)
    {
        return SessionStatus::WaitingAsync {
            pending_id: HoldId { run: run.facts.id, key: hold.key },
            tool: run.call(hold.call()).map(|call| call.tool.to_string()),
            since: hold.opened_at,
            timeout: hold.expires_at,
        };
    }
    let Some((_, oldest)) = holds().min_by_key(|(_, hold)| hold.opened_at) else {
        return SessionStatus::Idle;
    };
    let waiting_for = match oldest.kind {
        HoldKind::Approval => Some("approval"),
        HoldKind::Input => Some("input"),
        HoldKind::Auth => Some("login"),
        HoldKind::Recovery => Some("recovery"),
        HoldKind::External => None,
    };
    SessionStatus::Busy { waiting_for }
}

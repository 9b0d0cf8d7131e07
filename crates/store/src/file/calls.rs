//! `pending_tool/{id}.json`, one file for each call of an outside job (S2-24), and `pending_tool/index.json` (S2-25).
//!
//! The files are made from the log of their run, in the transaction that changes it, and say what the async-tool API says.
//! The index is kept in memory, made again from the files at every start, and written behind each transaction; nothing
//! reads it back.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use standfast_core::body::Body;
use standfast_core::event::Envelope;
use standfast_core::id::{HoldId, MessageId, RunId};
use standfast_core::job::{self, Job, JobEnd, JobProgress};
use standfast_core::json::RawJson;
use standfast_core::name::{Tenant, ToolName};
use standfast_core::run::Facts;
use standfast_core::time::{Millis, Timestamp};

use super::documents::pretty;
use super::redis::CallChange;
use crate::call_query::CallStatus;

/// S2-33: what is said of a call that was not reported in time.
const TIMED_OUT: &str = "Tool execution timed out";
/// C37: what is said of a call that somebody cancelled.
const CANCELLED: &str = "Cancelled";
/// The same of a call whose run ended first.
const RUN_ENDED: &str = "Cancelled: the run ended first";

/// The file of a call (S2-3).
#[derive(Debug, Serialize)]
struct CallFile {
    id: HoldId,
    #[serde(rename = "sessionID")]
    session_id: String,
    #[serde(rename = "messageID")]
    message_id: MessageId,
    #[serde(rename = "callID")]
    call_id: String,
    tool: ToolName,
    input: RawJson,
    status: CallStatus,
    #[serde(rename = "webhookURL", skip_serializing_if = "Option::is_none")]
    webhook_url: Option<String>,
    #[serde(rename = "externalRef", skip_serializing_if = "Option::is_none")]
    external_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<Timestamp>,
    time: CallTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<CallResult>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct CallTime {
    created: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    completed: Option<Timestamp>,
}

#[derive(Debug, Serialize, Deserialize)]
struct CallResult {
    #[serde(default)]
    title: String,
    output: String,
    #[serde(default)]
    metadata: serde_json::Map<String, serde_json::Value>,
}

/// What the index needs of a file.
#[derive(Debug, Deserialize)]
struct IndexedFile {
    id: HoldId,
    #[serde(rename = "sessionID")]
    session_id: String,
    status: CallStatus,
    #[serde(default)]
    timeout: Option<Timestamp>,
    time: CallTime,
}

/// What the index knows of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallEntry {
    pub(super) tenant: Tenant,
    pub(super) session: String,
    pub(super) status: CallStatus,
    /// When it is given up, while it waits.
    pub(super) expires_at: Option<Timestamp>,
    /// When it was over.
    settled_at: Option<Timestamp>,
}

/// A call as it is to be written.
#[derive(Debug)]
pub(super) struct CallRecord {
    pub(super) id: HoldId,
    pub(super) entry: CallEntry,
    pub(super) text: String,
}

/// Every call that has a file.
#[derive(Debug, Default)]
pub(super) struct Calls {
    of_run: BTreeMap<RunId, Vec<(HoldId, CallEntry)>>,
    /// Tenants whose index is to be written.
    stale: BTreeSet<Tenant>,
    /// How calls changed since somebody last asked; none when nobody asks.
    changed: Option<Vec<CallChange>>,
    /// When it was last looked for calls that have been over for long.
    looked_at: Timestamp,
}

/// How often that is done.
const LOOK_EVERY: Millis = Millis(60_000);

/// The index as a file.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    by_session: BTreeMap<String, Vec<HoldId>>,
    by_status: BTreeMap<CallStatus, Vec<HoldId>>,
    by_expiration: Vec<Expiration>,
}

#[derive(Debug, Serialize)]
struct Expiration {
    #[serde(rename = "expiresAt")]
    expires_at: Timestamp,
    #[serde(rename = "pendingID")]
    pending_id: HoldId,
}

/// The calls of a run, as its events say. Large values are in place.
pub(super) fn records(facts: &Facts, events: &[Envelope]) -> Vec<CallRecord> {
    job::jobs(events).iter().map(|job| record(facts, job)).collect()
}

fn record(facts: &Facts, job: &Job) -> CallRecord {
    let id = HoldId { run: facts.id, key: job.key };
    let (completed, came_to) = match &job.stands {
        JobProgress::Over { at, end } => (Some(*at), Some(came_to(&job.tool, end))),
        JobProgress::Starting | JobProgress::Unknown { .. } | JobProgress::Waiting { .. } => (None, None),
    };
    let (result, error) = match came_to {
        Some(Ok(result)) => (Some(result), None),
        Some(Err(error)) => (None, Some(error)),
        None => (None, None),
    };
    let arguments = job.arguments.as_deref().unwrap_or("{}");
    let file = CallFile {
        id,
        session_id: facts.session.to_string(),
        message_id: MessageId { run: facts.id, seq: job.message },
        call_id: job.call_id.clone(),
        tool: job.tool.clone(),
        input: RawJson::parse(arguments).unwrap_or_else(|_| RawJson::string(arguments)),
        status: status(&job.stands),
        webhook_url: webhook_url(job),
        external_ref: job.ask.external_ref.clone(),
        timeout: job.expires_at,
        time: CallTime { created: job.created_at, started: job.started_at, completed },
        result,
        error,
    };
    let entry = CallEntry {
        tenant: facts.tenant.clone(),
        session: file.session_id.clone(),
        status: file.status,
        expires_at: job.expires_at.filter(|_| job.is_open()),
        settled_at: completed,
    };
    CallRecord { id, entry, text: pretty(&file) }
}

fn status(stands: &JobProgress) -> CallStatus {
    match stands {
        JobProgress::Starting | JobProgress::Unknown { .. } | JobProgress::Waiting { processing: false } => {
            CallStatus::Waiting
        }
        JobProgress::Waiting { processing: true } => CallStatus::Processing,
        JobProgress::Over { end, .. } => match end {
            JobEnd::Result(_) => CallStatus::Completed,
            JobEnd::Failed(_) | JobEnd::Withdrawn | JobEnd::RunEnded | JobEnd::Abandoned(_) => {
                CallStatus::Failed
            }
            JobEnd::Expired => CallStatus::Expired,
        },
    }
}

fn came_to(tool: &ToolName, end: &JobEnd) -> Result<CallResult, String> {
    match end {
        JobEnd::Result(value) => {
            let own = match value {
                Body::Json(json) => serde_json::from_str(json.text()).ok(),
                Body::Text(_) | Body::Blob(_) => None,
            };
            Ok(own.unwrap_or_else(|| CallResult {
                title: tool.to_string(),
                output: value.inline().unwrap_or_default().to_owned(),
                metadata: serde_json::Map::new(),
            }))
        }
        JobEnd::Failed(error) => Err(error.inline().unwrap_or_default().to_owned()),
        JobEnd::Withdrawn => Err(CANCELLED.to_owned()),
        JobEnd::RunEnded => Err(RUN_ENDED.to_owned()),
        JobEnd::Expired => Err(TIMED_OUT.to_owned()),
        JobEnd::Abandoned(why) => Err((*why).to_owned()),
    }
}

fn webhook_url(job: &Job) -> Option<String> {
    let said: serde_json::Value = serde_json::from_str(job.ask.data.as_ref()?.inline()?).ok()?;
    said.get("webhookURL")?.as_str().map(str::to_owned)
}

impl Calls {
    /// Whether a run has calls.
    pub(super) fn has(&self, run: RunId) -> bool {
        self.of_run.contains_key(&run)
    }

    /// How many calls of a run have a file.
    pub(super) fn count(&self, run: RunId) -> u32 {
        self.of_run.get(&run).map_or(0, |calls| u32::try_from(calls.len()).unwrap_or(u32::MAX))
    }

    /// A call.
    pub(super) fn entry(&self, id: HoldId) -> Option<&CallEntry> {
        self.of_run.get(&id.run)?.iter().find(|(known, _)| *known == id).map(|(_, entry)| entry)
    }

    /// Takes a file into the index; a sentence when it cannot be read.
    pub(super) fn take_file(&mut self, tenant: &Tenant, bytes: &[u8]) -> Result<(), String> {
        let (id, entry) = Calls::read_file(tenant, bytes)?;
        self.put(id, entry);
        Ok(())
    }

    /// What the index needs of a file.
    pub(super) fn read_file(tenant: &Tenant, bytes: &[u8]) -> Result<(HoldId, CallEntry), String> {
        let file: IndexedFile = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let entry = CallEntry {
            tenant: tenant.clone(),
            session: file.session_id,
            status: file.status,
            expires_at: file.timeout.filter(|_| file.time.completed.is_none()),
            settled_at: file.time.completed,
        };
        Ok((file.id, entry))
    }

    pub(super) fn put(&mut self, id: HoldId, entry: CallEntry) {
        self.stale.insert(entry.tenant.clone());
        if self.changed.is_some() {
            let change = CallChange { id, before: self.entry(id).cloned(), after: Some(entry.clone()) };
            self.changed.get_or_insert_default().push(change);
        }
        let calls = self.of_run.entry(id.run).or_default();
        match calls.iter_mut().find(|(known, _)| *known == id) {
            Some((_, known)) => *known = entry,
            None => calls.push((id, entry)),
        }
    }

    /// Takes a call out of the index.
    pub(super) fn forget(&mut self, id: HoldId) -> Option<CallEntry> {
        let calls = self.of_run.get_mut(&id.run)?;
        let at = calls.iter().position(|(known, _)| *known == id)?;
        let (_, entry) = calls.remove(at);
        if calls.is_empty() {
            self.of_run.remove(&id.run);
        }
        self.stale.insert(entry.tenant.clone());
        if let Some(changed) = &mut self.changed {
            changed.push(CallChange { id, before: Some(entry.clone()), after: None });
        }
        Some(entry)
    }

    /// The calls of a run.
    pub(super) fn of_run(&self, run: RunId) -> Vec<HoldId> {
        self.of_run.get(&run).into_iter().flatten().map(|(id, _)| *id).collect()
    }

    /// From now on changes are remembered until they are taken.
    pub(super) fn remember_changes(&mut self) {
        self.changed = Some(Vec::new());
    }

    /// How calls changed since this was last asked.
    pub(super) fn take_changes(&mut self) -> Vec<CallChange> {
        self.changed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Every call.
    pub(super) fn all(&self) -> impl Iterator<Item = (&HoldId, &CallEntry)> {
        self.of_run.values().flatten().map(|(id, entry)| (id, entry))
    }

    /// Calls that have been over for longer than this; looked for once in a while.
    pub(super) fn past(&mut self, keep: Millis, now: Timestamp) -> Vec<HoldId> {
        if now < self.looked_at.plus(LOOK_EVERY) {
            return Vec::new();
        }
        self.looked_at = now;
        let is_past = |entry: &CallEntry| entry.settled_at.is_some_and(|at| at.plus(keep) <= now);
        self.all().filter(|(_, entry)| is_past(entry)).map(|(id, _)| *id).collect()
    }

    /// The tenants whose index is to be written, and its text. After this none is.
    pub(super) fn take_stale(&mut self) -> Vec<(Tenant, String)> {
        let stale = std::mem::take(&mut self.stale);
        stale.into_iter().map(|tenant| (tenant.clone(), self.index(&tenant))).collect()
    }

    fn index(&self, tenant: &Tenant) -> String {
        let mut index = Index::default();
        for (id, entry) in self.all().filter(|(_, entry)| entry.tenant == *tenant) {
            index.by_session.entry(entry.session.clone()).or_default().push(*id);
            index.by_status.entry(entry.status).or_default().push(*id);
            let expiration = |expires_at| Expiration { expires_at, pending_id: *id };
            index.by_expiration.extend(entry.expires_at.map(expiration));
        }
        index.by_expiration.sort_by_key(|one| (one.expires_at, one.pending_id.to_string()));
        pretty(&index)
    }
}

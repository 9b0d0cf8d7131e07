//! What jobs become in this protocol's words: pure functions, tested over every state.
//!
//! A job of which nobody knows whether it began is `waiting`: its result is still welcome. What a run that ended left
//! behind is `failed`, like what somebody cancelled (C37).

#![warn(clippy::wildcard_enum_match_arm)]

use standfast_core::body::Body;
use standfast_core::hold::HoldKind;
use standfast_core::id::{CallId, MessageId};
use standfast_core::job::{JobEnd, JobProgress};
use standfast_core::json::RawJson;
use standfast_core::name::ToolName;
use standfast_core::time::Timestamp;
use standfast_engine::tool::webhook_url;
use standfast_engine::{JobView, SessionNow, StartupReport, WaitingSession};

use super::wire::{
    CallStatus, CallTime, PartState, PartTime, PendingToolCall, RecoveryStatus, SessionStatus, ToolPart,
    ToolResult, WaitingSession as WireWaitingSession,
};

/// S2-33: what is said of a call that was not reported in time.
const TIMED_OUT: &str = "Tool execution timed out";
/// C37: what is said of a call that somebody cancelled.
const CANCELLED: &str = "Cancelled";
/// The same of a call whose run ended first.
const RUN_ENDED: &str = "Cancelled: the run ended first";

/// How a job stands.
pub(super) fn status(stands: &JobProgress) -> CallStatus {
    match stands {
        JobProgress::Starting | JobProgress::Unknown { .. } | JobProgress::Waiting { processing: false } => {
            CallStatus::Waiting
        }
        JobProgress::Waiting { processing: true } => CallStatus::Processing,
        JobProgress::Over { end, .. } => status_of_end(end),
    }
}

/// How a job stands that has ended.
pub(super) fn status_of_end(end: &JobEnd) -> CallStatus {
    match end {
        JobEnd::Result(_) => CallStatus::Completed,
        JobEnd::Failed(_) | JobEnd::Withdrawn | JobEnd::RunEnded | JobEnd::Abandoned(_) => CallStatus::Failed,
        JobEnd::Expired => CallStatus::Expired,
    }
}

/// The record of a call.
pub(super) fn record(view: &JobView) -> PendingToolCall {
    let job = &view.job;
    let (completed, came_to) = match &job.stands {
        JobProgress::Over { at, end } => (Some(*at), Some(came_to(&job.tool, end))),
        JobProgress::Starting | JobProgress::Unknown { .. } | JobProgress::Waiting { .. } => (None, None),
    };
    let (result, error) = match came_to {
        Some(Ok(result)) => (Some(result), None),
        Some(Err(error)) => (None, Some(error)),
        None => (None, None),
    };
    PendingToolCall {
        id: view.id().to_string(),
        session_id: view.run.session.to_string(),
        message_id: message_id(view),
        call_id: job.call_id.clone(),
        tool: job.tool.to_string(),
        input: input(view),
        status: status(&job.stands),
        webhook_url: webhook_url(&job.ask),
        external_ref: job.ask.external_ref.clone(),
        timeout: job.expires_at.map(millis),
        time: CallTime {
            created: millis(job.created_at),
            started: job.started_at.map(millis),
            completed: completed.map(millis),
        },
        result,
        error,
    }
}

/// A call as a part of its message. Its id is the call's (C37).
pub(super) fn part(view: &JobView) -> ToolPart {
    let job = &view.job;
    let start = millis(job.started_at.unwrap_or(job.created_at));
    let state = match &job.stands {
        JobProgress::Starting | JobProgress::Unknown { .. } | JobProgress::Waiting { .. } => {
            PartState::WaitingAsync {
                input: input(view),
                pending_id: view.id().to_string(),
                time: PartTime { start, end: None },
            }
        }
        JobProgress::Over { at, end } => {
            let (input, time) = (input(view), PartTime { start, end: Some(millis(*at)) });
            match came_to(&job.tool, end) {
                Ok(ToolResult { title, output, metadata }) => {
                    PartState::Completed { input, output, title, metadata, time }
                }
                Err(error) => PartState::Error { input, error, time },
            }
        }
    };
    ToolPart {
        id: CallId { run: view.run.id, no: job.key.call }.to_string(),
        message_id: message_id(view),
        session_id: view.run.session.to_string(),
        kind: "tool",
        call_id: job.call_id.clone(),
        tool: job.tool.to_string(),
        state,
    }
}

/// What came of a job: its result, or why there is none.
pub(super) fn came_to(tool: &ToolName, end: &JobEnd) -> Result<ToolResult, String> {
    match end {
        JobEnd::Result(value) => Ok(result(tool, value)),
        JobEnd::Failed(error) => Err(error.inline().unwrap_or_default().to_owned()),
        JobEnd::Withdrawn => Err(CANCELLED.to_owned()),
        JobEnd::RunEnded => Err(RUN_ENDED.to_owned()),
        JobEnd::Expired => Err(TIMED_OUT.to_owned()),
        JobEnd::Abandoned(why) => Err((*why).to_owned()),
    }
}

/// A result in this protocol's form; one that came another way, such as a person's words, is its output.
fn result(tool: &ToolName, value: &Body) -> ToolResult {
    let text = value.inline().unwrap_or_default();
    let own = match value {
        Body::Json(json) => serde_json::from_str(json.text()).ok(),
        Body::Text(_) | Body::Blob(_) => None,
    };
    own.unwrap_or_else(|| ToolResult {
        title: tool.to_string(),
        output: text.to_owned(),
        metadata: serde_json::Map::new(),
    })
}

fn input(view: &JobView) -> RawJson {
    let text = view.job.arguments.as_deref().unwrap_or("{}");
    RawJson::parse(text).unwrap_or_else(|_| RawJson::string(text))
}

fn message_id(view: &JobView) -> String {
    MessageId { run: view.run.id, seq: view.job.message }.to_string()
}

/// What a conversation is doing.
pub(super) fn session(now: SessionNow) -> SessionStatus {
    match now {
        SessionNow::Idle => SessionStatus::Idle,
        SessionNow::Busy => SessionStatus::Busy { waiting_for: None },
        SessionNow::Asks(kind) => SessionStatus::Busy { waiting_for: asks(kind) },
        SessionNow::Retry { attempt, message, next } => {
            SessionStatus::Retry { attempt, message, next: millis(next) }
        }
        SessionNow::Waiting { hold, tool, since, until } => SessionStatus::WaitingAsync {
            pending_id: hold.to_string(),
            tool: tool.unwrap_or_default(),
            since: millis(since),
            timeout: until.map(millis),
        },
    }
}

/// What a conversation waits for that is not an outside job; of a sub-run that works, nothing.
fn asks(kind: HoldKind) -> Option<&'static str> {
    match kind {
        HoldKind::Approval => Some("approval"),
        HoldKind::Input => Some("input"),
        HoldKind::Auth => Some("login"),
        HoldKind::Recovery => Some("recovery"),
        HoldKind::External => None,
    }
}

/// A conversation that waits for outside jobs.
pub(super) fn waiting_session(waiting: WaitingSession) -> WireWaitingSession {
    WireWaitingSession {
        session_id: waiting.key.session.to_string(),
        project_id: waiting.key.agent.to_string(),
        owner: waiting.key.owner.to_string(),
        status: session(waiting.now),
    }
}

/// What the server found.
pub(super) fn recovery(found: &StartupReport, stale_processing: u64) -> RecoveryStatus {
    RecoveryStatus {
        started: millis(found.began_at),
        completed: found.ended_at.map(millis),
        waiting: found.waiting_for_outside,
        expired: found.expired,
        stale_processing,
        taken_over: found.taken_over,
        quarantined: found.quarantined,
    }
}

fn millis(at: Timestamp) -> i64 {
    at.0
}

#[cfg(test)]
mod tests;

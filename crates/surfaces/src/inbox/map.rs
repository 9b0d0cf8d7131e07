//! Between the words of the core and those of the inbox: pure functions.
//!
//! Matches are exhaustive, so that a new status, kind or event forces a visit here. `map/task.rs` tells a task from its
//! events, `map/answers.rs` what people are asked and what their answers mean.

#![warn(clippy::wildcard_enum_match_arm)]

mod answers;
mod calls;
mod task;
#[cfg(test)]
mod tests;

use serde_json::value::RawValue;
use standfast_core::body::Body;
use standfast_core::event::{self, Outcome};
use standfast_core::hold::{Ask, HoldKind};
use standfast_core::id::HoldId;
use standfast_core::json::RawJson;
use standfast_core::message::Message;
use standfast_core::name::{AgentName, InboxName};
use standfast_core::project::Phase;
use standfast_core::run::{Run, Status, WaitKind, status as core_status};
use standfast_core::time::Millis;
use standfast_engine::{
    ClaimTask, IdempotencyKey, InboxView, NewTask, Page, TaskList, TaskReport, TaskView, UnreadableRun,
    claimed_by,
};

use super::wire::{self, InboxStats, Priority, PriorityWord, TaskStatus};
use crate::http::Problem;

pub(super) use answers::{hold_to_resume, suspend_payload, wanted};
pub(super) use calls::{call_result, calls, proposal};
pub(super) use task::{task, unreadable};

/// Tries of a task, unless its sender says otherwise (S4-28).
const MAX_ATTEMPTS: u32 = 3;
/// How long a claim lasts without a sign of life (S4-29).
const LEASE: Millis = Millis::seconds(30 * 60);
/// Shortest and longest lease, in milliseconds.
const LEASES: std::ops::RangeInclusive<u64> = 1_000..=24 * 60 * 60 * 1_000;
/// Bytes of a type, a title and the like.
const TEXT_MAX: usize = 1_024;
/// Bytes of what a worker calls itself.
const WORKER_MAX: usize = 100;

/// Where a run stands, as a task. `below` are the open holds of its sub-runs: what it really waits for.
pub(super) fn status(status: Status, below: &[(HoldId, HoldKind)]) -> TaskStatus {
    let waits_below = below.iter().any(|(_, kind)| *kind != HoldKind::External);
    match status {
        Status::Queued => TaskStatus::Pending,
        Status::Claimed => TaskStatus::Claimed,
        Status::Working | Status::Retrying(_) => TaskStatus::InProgress,
        Status::Held(WaitKind::Person | WaitKind::Auth) => TaskStatus::WaitingForInput,
        Status::Held(WaitKind::External) if waits_below => TaskStatus::WaitingForInput,
        Status::Held(WaitKind::External) => TaskStatus::InProgress,
        Status::Ended(Outcome::Completed) => TaskStatus::Completed,
        Status::Ended(Outcome::Failed | Outcome::Rejected) => TaskStatus::Failed,
        Status::Ended(Outcome::Canceled) => TaskStatus::Cancelled,
    }
}

/// The phases that tasks in this status can be in.
fn phases(status: TaskStatus) -> Vec<Phase> {
    match status {
        TaskStatus::Pending => vec![Phase::Queued],
        TaskStatus::Claimed => vec![Phase::Claimed],
        TaskStatus::InProgress => vec![Phase::Working, Phase::Retrying, Phase::HeldForExternal],
        TaskStatus::WaitingForInput => vec![Phase::HeldForPerson, Phase::HeldForAuth, Phase::HeldForExternal],
        TaskStatus::Completed => vec![Phase::Completed],
        TaskStatus::Failed => vec![Phase::Failed, Phase::Rejected],
        TaskStatus::Cancelled => vec![Phase::Canceled],
    }
}

pub(super) fn is_waiting(run: &Run, below: &[(HoldId, HoldKind)]) -> bool {
    status(core_status(run), below) == TaskStatus::WaitingForInput
}

pub(super) fn list(inbox: InboxName, args: &wire::TasksArgs, limit: usize) -> TaskList {
    let phases = args.status.map(phases).unwrap_or_default();
    TaskList { inbox, phases, cursor: args.cursor, limit }
}

/// Whether a task is one of those that were asked for.
pub(super) fn is_listed(run: &Run, below: &[(HoldId, HoldKind)], args: &wire::TasksArgs) -> bool {
    let Some(place) = &run.facts.inbox else { return false };
    let target = place.target_agent.as_ref().map(AgentName::as_str);
    let claimed = run.state.claim.as_ref().map(|claim| claimed_by(&claim.worker));
    args.status.is_none_or(|wanted| status(core_status(run), below) == wanted)
        && args.kind.as_ref().is_none_or(|kind| *kind == place.kind)
        && args.priority.is_none_or(|priority| priority == place.priority)
        && args.target_agent_id.as_ref().is_none_or(|wanted| Some(wanted.as_str()) == target)
        && args.claimed_by.as_ref().is_none_or(|wanted| Some(wanted.as_str()) == claimed)
}

/// Whether one that cannot be read is one of those that were asked for: it has failed, and nobody has it.
pub(super) fn is_listed_unreadable(found: &UnreadableRun, args: &wire::TasksArgs) -> bool {
    let Some(task) = unreadable(found) else { return false };
    args.status.is_none_or(|wanted| wanted == task.status)
        && args.kind.as_ref().is_none_or(|kind| *kind == task.kind)
        && args.priority.is_none_or(|priority| priority == task.priority)
        && args.target_agent_id.as_ref().is_none_or(|wanted| Some(wanted) == task.target_agent_id.as_ref())
        && args.claimed_by.is_none()
}

pub(super) fn tasks(page: &Page<TaskView>) -> wire::Tasks {
    let tasks = page.items.iter().map(task).chain(page.unreadable.iter().filter_map(unreadable)).collect();
    wire::Tasks { tasks, next_cursor: page.next.map(|next| next.to_string()) }
}

pub(super) fn inbox(view: &InboxView) -> wire::Inbox {
    wire::Inbox {
        inbox_id: view.counts.inbox.to_string(),
        agents: view.agents.iter().map(ToString::to_string).collect(),
        stats: stats(view),
    }
}

/// How many tasks are in which status. One whose sub-run waits for a person counts as in progress here.
pub(super) fn stats(view: &InboxView) -> InboxStats {
    let mut stats = InboxStats::default();
    for (phase, count) in &view.counts.runs {
        let of_status = match phase {
            Phase::Queued => &mut stats.pending,
            Phase::Claimed => &mut stats.claimed,
            Phase::Working | Phase::Retrying | Phase::HeldForExternal => &mut stats.in_progress,
            Phase::HeldForPerson | Phase::HeldForAuth => &mut stats.waiting_for_input,
            Phase::Completed => &mut stats.completed,
            Phase::Failed | Phase::Rejected => &mut stats.failed,
            Phase::Canceled => &mut stats.cancelled,
        };
        *of_status += count;
        stats.total += count;
    }
    stats
}

/// A new task, as the engine takes it. The first message is the JSON text of the payload.
pub(super) fn new_task(
    inbox: InboxName,
    body: wire::NewTask,
    once: Option<IdempotencyKey>,
) -> Result<NewTask, Problem> {
    let text = |name: &str, text: Option<String>| match text {
        Some(text) if text.is_empty() || text.len() > TEXT_MAX => {
            Err(Problem::invalid(format!("{name} must have 1 to {TEXT_MAX} bytes")))
        }
        other => Ok(other),
    };
    let kind = text("type", Some(body.kind))?.unwrap_or_default();
    let priority = match body.priority {
        None | Some(Priority::Word(PriorityWord::Normal)) => 1,
        Some(Priority::Word(PriorityWord::Low)) => 0,
        Some(Priority::Word(PriorityWord::High)) => 2,
        Some(Priority::Word(PriorityWord::Urgent)) => 3,
        Some(Priority::Number(number @ 0..=3)) => number,
        Some(Priority::Number(_)) => {
            return Err(Problem::invalid("priority must be 0 (low), 1 (normal), 2 (high) or 3 (urgent)"));
        }
    };
    let max_attempts = match body.max_attempts {
        Some(attempts @ 1..=1000) => attempts,
        Some(_) => return Err(Problem::invalid("maxAttempts must be 1 to 1000")),
        None => MAX_ATTEMPTS,
    };
    let ttl = match body.task_ttl {
        Some(0) => return Err(Problem::invalid("taskTtl must be 1 millisecond or more")),
        other => other.map(millis),
    };
    let target_agent = body.target_agent_id.map(AgentName::new).transpose();
    let metadata = body.metadata.as_ref().map(|raw| json("metadata", raw)).transpose()?;
    let payload = json("payload", &body.payload)?;
    Ok(NewTask {
        inbox: event::Inbox {
            inbox,
            kind,
            priority,
            target_agent: target_agent.map_err(|bad| Problem::invalid(format!("targetAgentId: {bad}")))?,
            title: text("title", body.title)?,
            source_id: text("sourceId", body.source_id)?,
            source_url: text("sourceUrl", body.source_url)?,
            max_attempts,
            expires_at: None,
            metadata: metadata.map(Body::Json),
        },
        message: Message::text(payload.text()),
        ttl,
        once,
    })
}

/// What a worker asks for, as the engine takes it.
pub(super) fn claim(inbox: InboxName, body: wire::Claim, max_wait: Millis) -> Result<ClaimTask, Problem> {
    let agent = AgentName::new(&body.agent_id).map_err(|bad| Problem::invalid(format!("agentId: {bad}")))?;
    let worker = body.worker_id.unwrap_or(body.agent_id);
    if worker.is_empty() || worker.len() > WORKER_MAX || worker.contains('#') {
        let why = format!("workerId must have 1 to {WORKER_MAX} bytes and no #");
        return Err(Problem::invalid(why));
    }
    let lease = match body.lease_ms {
        None => LEASE,
        Some(span) if LEASES.contains(&span) => millis(span),
        Some(_) => return Err(Problem::invalid("leaseMs must be 1000 (a second) to 86400000 (a day)")),
    };
    let wait = body.wait_ms.map_or(Millis(0), millis).min(max_wait);
    Ok(ClaimTask { inbox, agent, worker, kinds: body.types, lease, wait })
}

/// What a worker asks people. `question` and `options` of its payload are shown as such (C36).
pub(super) fn ask(body: &wire::Suspend) -> Result<Ask, Problem> {
    #[derive(serde::Deserialize, Default)]
    struct ShownAnswer {
        #[serde(default)]
        question: serde_json::Value,
        #[serde(default)]
        options: serde_json::Value,
    }
    let payload = body.payload.as_ref().map(|raw| json("payload", raw)).transpose()?;
    let schema = body.resume_schema.as_ref().map(|raw| json("resumeSchema", raw)).transpose()?;
    if let Some(schema) = &schema {
        let wrong = |why: String| Problem::invalid(format!("resumeSchema: {why}"));
        standfast_engine::schema::is_usable(schema).map_err(wrong)?;
    }
    let shown: ShownAnswer =
        payload.as_ref().and_then(|payload| serde_json::from_str(payload.text()).ok()).unwrap_or_default();
    let options: Option<Vec<String>> = serde_json::from_value(shown.options).ok();
    Ok(Ask {
        reason: Some(body.reason.clone()),
        question: shown.question.as_str().map(Body::text),
        options: options.unwrap_or_default(),
        answer_schema: schema,
        data: payload.map(Body::Json),
        ..Ask::default()
    })
}

/// What a worker says that went wrong.
pub(super) fn failure(error: &wire::TaskError) -> Result<TaskReport, Problem> {
    if error.message.is_empty() {
        return Err(Problem::invalid("error.message is empty; say what went wrong"));
    }
    let text = serde_json::to_string(error).unwrap_or_default();
    let detail = RawJson::parse(&text).map_err(|bad| Problem::invalid(format!("error: {bad}")))?;
    Ok(TaskReport::Fail {
        message: error.message.clone(),
        detail: Body::Json(detail),
        retryable: error.retryable,
    })
}

/// A value that somebody sent: a string is words, everything else stays JSON.
pub(super) fn value(name: &str, raw: &RawValue) -> Result<Body, Problem> {
    let json = json(name, raw)?;
    Ok(serde_json::from_str::<String>(json.text()).map_or(Body::Json(json), Body::Text))
}

/// JSON that two readers understand alike; its text is kept.
fn json(name: &str, raw: &RawValue) -> Result<RawJson, Problem> {
    RawJson::parse(raw.get()).map_err(|bad| Problem::invalid(format!("{name}: {bad}")))
}

fn millis(span: u64) -> Millis {
    Millis(i64::try_from(span).unwrap_or(i64::MAX))
}

/// A stored value as JSON text.
fn raw(body: &Body) -> Option<Box<RawValue>> {
    let text = match body {
        Body::Text(text) => RawJson::string(text).text().to_owned(),
        Body::Json(json) => json.text().to_owned(),
        Body::Blob(_) => return None,
    };
    RawValue::from_string(text).ok()
}

//! A task, told from its run and its events.
//!
//! What was asked and answered last stays on the task after it went on (S4-3, S4-20).

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use standfast_core::body::Body;
use standfast_core::event::{self, Driver, Envelope, Event, Outcome, ReleaseReason};
use standfast_core::hold::{HoldKind, Resolution};
use standfast_core::id::HoldKey;
use standfast_core::json::RawJson;
use standfast_core::run::{Run, Status, status as core_status};
use standfast_core::time::Timestamp;
use standfast_engine::{TaskView, UnreadableRun, claimed_by};

use super::answers::{asked_by_worker, suspend_payload};
use super::{raw, status};
use crate::http::rfc3339;
use crate::inbox::wire::{Object, Task, TaskError, TaskStatus};

/// A task.
pub(in crate::inbox) fn task(view: &TaskView) -> Task {
    let run = &view.run;
    let told = TaskHistory::from(&view.events);
    let place = told.place;
    let id = run.facts.id.to_string();
    let status = status(core_status(run), &view.below);
    let claim = run.state.claim.as_ref();
    let claimed = match run.facts.driver {
        Driver::Outside | Driver::Gate => told.worker.map(|worker| claimed_by(worker).to_owned()),
        Driver::Loop => run.was_claimed().then(|| run.facts.agent.to_string()),
    };
    let open = view.waits_for.first();
    let asked = told.asked.as_ref();
    Task {
        inbox_id: place.map(|place| place.inbox.to_string()).unwrap_or_default(),
        kind: place.map(|place| place.kind.clone()).unwrap_or_default(),
        priority: place.map_or(1, |place| place.priority),
        title: place.and_then(|place| place.title.clone()),
        source_id: place.and_then(|place| place.source_id.clone()),
        source_url: place.and_then(|place| place.source_url.clone()),
        payload: told.payload.unwrap_or_else(|| RawValue::NULL.to_owned()),
        result: told.result.filter(|_| status == TaskStatus::Completed),
        error: told.error.filter(|_| matches!(status, TaskStatus::Pending | TaskStatus::Failed)),
        target_agent_id: place.and_then(|place| place.target_agent.as_ref()).map(ToString::to_string),
        claimed_by: claimed.filter(|_| status != TaskStatus::Pending),
        claim_id: claim.map(|claim| claim.worker.to_string()),
        run_id: id.clone(),
        id,
        created_at: rfc3339(run.facts.started_at),
        claimed_at: told.claimed_at.map(rfc3339),
        claim_expires_at: claim.map(|claim| rfc3339(claim.until)),
        started_at: told.started_at.map(rfc3339),
        suspended_at: open.map(|hold| hold.row.opened_at).or(asked.map(|asked| asked.at)).map(rfc3339),
        suspend_payload: open.map(suspend_payload).or_else(|| asked.map(LastQuestion::payload)),
        resume_schema: match open {
            Some(hold) => hold.ask.answer_schema.as_ref().and_then(schema),
            None => asked.and_then(|asked| asked.opened.ask.answer_schema.as_ref()).and_then(schema),
        },
        resume_payload: asked.and_then(|asked| asked.answer.clone()),
        completed_at: told.ended_at.map(rfc3339),
        attempts: match run.facts.driver {
            Driver::Outside | Driver::Gate => run.attempts(),
            Driver::Loop => u32::from(run.was_claimed()),
        },
        max_attempts: place.map_or(1, |place| place.max_attempts),
        next_retry_at: next_retry_at(run).map(rfc3339),
        metadata: place.and_then(|place| place.metadata.as_ref()).and_then(raw),
        status,
    }
}

/// A task whose row or log cannot be read has failed, with what else is known of it (C35).
pub(in crate::inbox) fn unreadable(found: &UnreadableRun) -> Option<Task> {
    let facts = found.facts.as_ref()?;
    let place = facts.inbox.as_ref()?;
    let id = found.run.to_string();
    let message = format!("failed to load execution state: {}", found.why);
    Some(Task {
        inbox_id: place.inbox.to_string(),
        kind: place.kind.clone(),
        status: TaskStatus::Failed,
        priority: place.priority,
        title: None,
        source_id: None,
        source_url: None,
        payload: RawValue::NULL.to_owned(),
        result: None,
        error: Some(TaskError { message, stack: None, retryable: Some(false) }),
        target_agent_id: place.target_agent.as_ref().map(ToString::to_string),
        claimed_by: None,
        claim_id: None,
        run_id: id.clone(),
        id,
        created_at: rfc3339(facts.started_at),
        claimed_at: None,
        claim_expires_at: None,
        started_at: None,
        suspended_at: None,
        suspend_payload: None,
        resume_schema: None,
        resume_payload: None,
        completed_at: None,
        attempts: 0,
        max_attempts: place.max_attempts,
        next_retry_at: None,
        metadata: None,
    })
}

fn next_retry_at(run: &Run) -> Option<Timestamp> {
    match core_status(run) {
        Status::Retrying(at) => Some(at),
        Status::Queued | Status::Claimed | Status::Working | Status::Held(_) | Status::Ended(_) => {
            run.state.claimable_at
        }
    }
}

fn schema(schema: &RawJson) -> Option<Box<RawValue>> {
    RawValue::from_string(schema.text().to_owned()).ok()
}

/// What the events of a task say of it.
#[derive(Default)]
struct TaskHistory<'a> {
    place: Option<&'a event::Inbox>,
    payload: Option<Box<RawValue>>,
    worker: Option<&'a standfast_core::name::WorkerName>,
    claimed_at: Option<Timestamp>,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    asked: Option<LastQuestion<'a>>,
    result: Option<Box<RawValue>>,
    error: Option<TaskError>,
}

/// The last question, and its answer.
struct LastQuestion<'a> {
    opened: &'a event::HoldOpened,
    at: Timestamp,
    answer: Option<Box<RawValue>>,
    is_outside: bool,
}

impl LastQuestion<'_> {
    fn payload(&self) -> Object {
        asked_by_worker(&self.opened.ask, self.is_outside)
    }
}

impl<'a> TaskHistory<'a> {
    fn from(events: &'a [Envelope]) -> TaskHistory<'a> {
        let mut told = TaskHistory::default();
        let mut is_outside = false;
        for Envelope { at, event, .. } in events {
            match event {
                Event::RunStarted(started) => {
                    told.place = started.inbox.as_ref();
                    is_outside = started.driver == Driver::Outside;
                }
                Event::MessageReceived(received) if told.payload.is_none() => {
                    told.payload = RawValue::from_string(received.message.words()).ok();
                }
                Event::RunClaimed(claimed) => {
                    let worker = claimed.claim.as_ref().map(|claim| &claim.worker);
                    // A heartbeat is shown like a claim, by the same worker.
                    if worker.is_none() || worker != told.worker {
                        told.claimed_at = Some(*at);
                    }
                    told.worker = worker;
                    if claimed.started {
                        told.started_at = told.started_at.or(Some(*at));
                    }
                }
                Event::RunReleased(released) => {
                    if let ReleaseReason::Failed(error) = &released.why {
                        told.error = Some(error_of(error, None));
                    }
                    told.worker = told.worker.filter(|_| released.why == ReleaseReason::Suspended);
                }
                Event::ModelReplied(replied) => {
                    told.result = replied.reply.text.as_ref().and_then(raw).or(told.result.take());
                }
                Event::HoldOpened(opened) if opened.kind != HoldKind::External => {
                    told.asked = Some(LastQuestion { opened, at: *at, answer: None, is_outside });
                }
                Event::HoldResolved(resolved) => told.answered(resolved.hold, &resolved.resolution),
                Event::RunEnded(ended) => {
                    told.ended_at = Some(*at);
                    match ended.outcome {
                        Outcome::Completed => {
                            told.result = ended.result.as_ref().and_then(raw).or(told.result.take())
                        }
                        Outcome::Failed | Outcome::Rejected => {
                            let reason = ended.reason.clone().unwrap_or_default();
                            let detail = ended.result.clone().unwrap_or_else(|| Body::text(reason.clone()));
                            told.error = Some(error_of(&detail, Some(reason)));
                        }
                        Outcome::Canceled => {}
                    }
                }
                Event::RunRepinned(_)
                | Event::RunErased(_)
                | Event::MessageReceived(_)
                | Event::MessageQueued(_)
                | Event::ModelFailed(_)
                | Event::CallProposed(_)
                | Event::CallStarted(_)
                | Event::CallReturned(_)
                | Event::CallProgressed(_)
                | Event::CallFinished(_)
                | Event::CallOrphaned(_)
                | Event::CallContradicted(_)
                | Event::HoldOpened(_)
                | Event::HoldVoted(_)
                | Event::HoldEdited(_)
                | Event::HoldAssigned(_)
                | Event::HoldReminded(_)
                | Event::HoldExpired(_)
                | Event::HoldReopened(_)
                | Event::HoldEscalated(_)
                | Event::HoldDelegated(_) => {}
            }
        }
        told
    }

    fn answered(&mut self, hold: HoldKey, resolution: &Resolution) {
        let Some(asked) = self.asked.as_mut().filter(|asked| asked.opened.hold == hold) else { return };
        asked.answer = match resolution {
            Resolution::Answer { value } => raw(value),
            Resolution::Approve { edited } => {
                let modified_input = edited.as_ref().and_then(|edited| raw(&edited.arguments));
                let decision = if modified_input.is_some() { "modify" } else { "approve" };
                to_raw_value(&DecisionRecord { decision, modified_input, reason: None }).ok()
            }
            Resolution::Deny { reason } => to_raw_value(&DecisionRecord {
                decision: "deny",
                modified_input: None,
                reason: reason.as_deref(),
            })
            .ok(),
            Resolution::Fail { .. } | Resolution::Expire | Resolution::Withdraw | Resolution::Supersede => {
                None
            }
        };
    }
}

#[derive(Serialize)]
struct DecisionRecord<'a> {
    decision: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified_input: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

/// What a worker said that went wrong, or what the server says.
fn error_of(detail: &Body, reason: Option<String>) -> TaskError {
    let text = detail.inline().unwrap_or_default();
    serde_json::from_str(text).unwrap_or_else(|_| TaskError {
        message: reason.unwrap_or_else(|| text.to_owned()),
        stack: None,
        retryable: None,
    })
}

//! Notifications about tasks: `task.started` (S4-1), `task.suspended` when somebody is asked (S4-14), and what became
//! of it.
//!
//! Signed and sent like every webhook (C21); runs that are in no inbox are none of their business.

use serde::Serialize;
use standfast_core::event::{Event, Outcome, ReleaseReason};
use standfast_core::hold::HoldKind;
use standfast_core::run::{Facts, InboxEntry};
use standfast_engine::{Delivery, DeliveryPayload, DeliveryRequest, HoldView, ReceiverKind, delivery_id};

use super::map;
use super::wire::Object;
use crate::http::webhook_body;

/// Receivers that are notified of tasks.
#[derive(Debug, Clone, Copy)]
pub struct TaskWebhook;

impl TaskWebhook {
    /// The name of this kind.
    pub(super) const NAME: &'static str = "inbox";

    /// The events of runs that it is made from.
    pub(super) const EVENTS: [&'static str; 5] =
        ["run.claimed", "hold.opened", "hold.resolved", "run.released", "run.ended"];
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TaskEvent<'a> {
    subscription: &'a str,
    task: TaskNames<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suspend_payload: Option<Object>,
    /// The page on which people answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TaskNames<'a> {
    id: String,
    run_id: String,
    inbox_id: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    priority: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_agent_id: Option<String>,
}

impl ReceiverKind for TaskWebhook {
    fn name(&self) -> &'static str {
        TaskWebhook::NAME
    }

    fn request(&self, telling: &Delivery<'_>) -> Option<DeliveryRequest> {
        let subscription = telling.subscription;
        let (id, body) = match &telling.what {
            DeliveryPayload::Frame { .. } | DeliveryPayload::Digest { .. } => return None,
            DeliveryPayload::Ping { id } => ((*id).to_owned(), webhook_body::ping(telling)?),
            DeliveryPayload::Event { run, event, hold } => {
                let place = run.inbox.as_ref()?;
                let (kind, reason) = word(&event.event)?;
                let open = hold.as_deref().filter(|_| kind == SUSPENDED);
                let data = TaskEvent {
                    subscription,
                    task: names(run, place),
                    reason,
                    suspend_payload: open.map(map::suspend_payload),
                    url: open.and_then(|hold| page(telling.public_url, hold)),
                };
                let body = webhook_body::body(kind, event.at, data)?;
                (delivery_id(subscription, run.id, event), body)
            }
        };
        Some(webhook_body::signed(telling, id, body))
    }
}

const SUSPENDED: &str = "task.suspended";

/// What an event of a run is called of a task, and why it happened.
fn word(event: &Event) -> Option<(&'static str, Option<String>)> {
    match event {
        Event::HoldOpened(opened) => {
            (opened.kind != HoldKind::External).then(|| (SUSPENDED, opened.ask.reason.clone()))
        }
        // A claim alone, and a sign of life, are nothing to tell.
        Event::RunClaimed(claimed) => claimed.started.then_some(("task.started", None)),
        Event::HoldResolved(_) => Some(("task.resumed", None)),
        Event::RunReleased(released) => match &released.why {
            ReleaseReason::Failed(_) => Some(("task.retrying", None)),
            ReleaseReason::Returned | ReleaseReason::Lapsed => Some(("task.released", None)),
            // Told as what is asked.
            ReleaseReason::Suspended => None,
        },
        Event::RunEnded(ended) => {
            let kind = match ended.outcome {
                Outcome::Completed => "task.completed",
                Outcome::Failed | Outcome::Rejected => "task.failed",
                Outcome::Canceled => "task.cancelled",
            };
            Some((kind, ended.reason.clone()))
        }
        Event::RunStarted(_)
        | Event::RunRepinned(_)
        | Event::RunErased(_)
        | Event::MessageReceived(_)
        | Event::MessageQueued(_)
        | Event::ModelReplied(_)
        | Event::ModelFailed(_)
        | Event::CallProposed(_)
        | Event::CallStarted(_)
        | Event::CallReturned(_)
        | Event::CallProgressed(_)
        | Event::CallFinished(_)
        | Event::CallOrphaned(_)
        | Event::CallContradicted(_)
        | Event::HoldVoted(_)
        | Event::HoldEdited(_)
        | Event::HoldAssigned(_)
        | Event::HoldReminded(_)
        | Event::HoldExpired(_)
        | Event::HoldReopened(_)
        | Event::HoldEscalated(_)
        | Event::HoldDelegated(_) => None,
    }
}

fn names<'a>(run: &Facts, place: &'a InboxEntry) -> TaskNames<'a> {
    TaskNames {
        id: run.id.to_string(),
        run_id: run.id.to_string(),
        inbox_id: place.inbox.as_str(),
        kind: &place.kind,
        priority: place.priority,
        target_agent_id: place.target_agent.as_ref().map(ToString::to_string),
    }
}

fn page(public_url: Option<&str>, hold: &HoldView) -> Option<String> {
    public_url.map(|base| format!("{}/approve/{}", base.trim_end_matches('/'), hold.row.id))
}

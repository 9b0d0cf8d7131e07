//! Calls that wait for a person as tasks, for clients that come back for results: the gate of each, looked at and run.
//!
//! A task is its gate under another name, so any node answers and nothing is kept here; what it says is `../tasks.rs`. Whoever asks
//! about an approved call makes it run: nothing runs that nobody waits for.

use std::sync::Arc;

use serde_json::value::RawValue;
use standfast_engine::{GateState, GateView, Withdrawal};

use super::super::message::{CallRequest, OtherRequest};
use super::super::tasks::{self, TaskFacts, TaskState};
use super::call::CallRun;
use super::keeper::{Keeper, Permit, stored};
use super::memory::Memory;
use super::route::UpstreamRoute;
use crate::http::{gate_value, rfc3339};

/// The answer to a call that waits: a task.
pub(super) fn created(keeper: &Keeper, call: &CallRequest, view: &GateView) -> String {
    with_facts(keeper, view, |facts| facts.created(call, &keeper.text(view)))
}

fn with_facts<T>(keeper: &Keeper, view: &GateView, make: impl FnOnce(TaskFacts<'_>) -> T) -> T {
    let now = rfc3339(keeper.app.engine.clock().now());
    let since = view.decision.as_ref().map_or_else(|| now.clone(), |decision| rfc3339(decision.at));
    make(TaskFacts { gate: &view.gate.to_string(), since: &since, now: &now })
}

/// Answers a request about a task of ours; `way` is how its call reaches the server.
pub(super) async fn answer(
    keeper: &Keeper,
    memory: &Arc<Memory>,
    request: &OtherRequest,
    route: UpstreamRoute,
) -> String {
    let id = &request.id;
    let gate = tasks::gate_of(request).and_then(|gate| gate.parse().ok());
    let Some(gate) = gate else { return tasks::unknown(id) };
    let Ok(view) = keeper.look(gate).await else { return tasks::unknown(id) };
    let prefix = format!("mcp__{}__", keeper.gateway.name);
    let Some(tool) = view.tool.as_str().strip_prefix(&prefix).map(str::to_owned) else {
        return tasks::unknown(id);
    };
    if request.method == "tasks/cancel"
        && let Err(error) =
            keeper.app.engine.gates().withdraw(&keeper.who, gate, Withdrawal::Cancelled, None).await
    {
        tracing::debug!(%gate, %error, "mcp: a task was not withdrawn");
    }
    if request.method != "tasks/get" {
        return tasks::taken(id);
    }
    if view.state == GateState::Allowed
        && let Some(run) = run_of(keeper, memory, request, (&view, &tool), route)
    {
        run.begin_approved(view.clone());
    }
    if view.state == GateState::Done {
        keeper.handed_out(Permit::of(&view, view.attempt.unwrap_or_default())).await;
    }
    of_gate(keeper, &view, id)
}

/// A gate as the answer to `tasks/get`.
fn of_gate(keeper: &Keeper, view: &GateView, id: &RawValue) -> String {
    let (text, stored) = (keeper.text(view), stored(view));
    let state = match (view.state, &stored) {
        (GateState::Done, Some((value, is_error))) => TaskState::Done { value, is_error: *is_error },
        (GateState::Held | GateState::Allowed | GateState::Started, _) => TaskState::Working(&text),
        (GateState::Withdrawn, _) => TaskState::Cancelled(&text),
        (GateState::Done | GateState::Denied | GateState::Expired | GateState::OutcomeUnknown, _) => {
            TaskState::Told(&text)
        }
    };
    with_facts(keeper, view, |facts| facts.answer(id, state))
}

/// The call of a gate, as a request of ours.
fn run_of(
    keeper: &Keeper,
    memory: &Arc<Memory>,
    request: &OtherRequest,
    (view, tool): (&GateView, &str),
    route: UpstreamRoute,
) -> Option<CallRun> {
    let client = request.profile.clone()?;
    let call = tasks::call_of(&view.gate.to_string(), &client, tool, &gate_value(&view.arguments))?;
    Some(CallRun {
        keeper: keeper.clone(),
        memory: memory.clone(),
        call,
        client,
        route,
        session: format!("task {}", view.gate),
    })
}

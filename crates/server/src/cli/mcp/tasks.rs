//! Calls behind the proxy that wait for a person as tasks: a client asks for them by the id of their gate, at this proxy or a later one.
//!
//! What a task says is `standfast_surfaces::mcp::tasks`. Whoever asks about an approved call makes it run; its result is kept with its
//! gate, on the server.

use std::sync::Arc;

use standfast_surfaces::mcp::message::OtherRequest;
use standfast_surfaces::mcp::tasks::{self, TaskFacts, TaskState};

use super::keeper::{Gate, State, Verdict};
use super::link::Link;

/// Answers a request about a task of ours, beside everything else.
pub(super) fn attend(link: &Arc<Link>, request: OtherRequest) {
    let (link, alive) = (link.clone(), link.kept_alive());
    std::thread::spawn(move || {
        Link::answer(&answer(&link, &request));
        drop(alive);
    });
}

fn answer(link: &Arc<Link>, request: &OtherRequest) -> String {
    let id = &request.id;
    let found = tasks::gate_of(request).and_then(|gate| link.keeper.look(gate));
    let Some((gate, tool)) = found else { return tasks::unknown(id) };
    if request.method == "tasks/cancel" {
        link.keeper.withdraw(&gate.gate);
    }
    if request.method != "tasks/get" {
        return tasks::taken(id);
    }
    let now = link.keeper.now();
    let since = gate.decision.as_ref().map_or(now.clone(), |decision| decision.at.clone());
    let facts = TaskFacts { gate: &gate.gate, since: &since, now: &now };
    let text = &gate.model_text;
    let state = match (gate.state, &gate.outcome) {
        (State::Done, Some(outcome)) => {
            let value = &outcome.value;
            TaskState::Done { value, is_error: tasks::is_protocol_error(value) }
        }
        (State::Held | State::Allowed | State::Started, _) => TaskState::Working(text),
        (State::Withdrawn, _) => TaskState::Cancelled(text),
        (State::Done | State::Denied | State::Expired | State::OutcomeUnknown, _) => TaskState::Told(text),
    };
    let said = facts.answer(id, state);
    if gate.state == State::Allowed {
        runs(link, request, gate, &tool);
    }
    said
}

/// Runs the call of a task that may run, once, whoever asks how often.
fn runs(link: &Arc<Link>, request: &OtherRequest, gate: Gate, tool: &str) {
    let client = request.profile.clone().unwrap_or_default();
    let Some(call) = tasks::call_of(&gate.gate, &client, tool, &gate.arguments) else { return };
    let (link, alive) = (link.clone(), link.kept_alive());
    std::thread::spawn(move || {
        if let Verdict::Run { permit, line } = link.keeper.follow_task(&call, gate) {
            link.run_for_task(&call, &permit, &line);
        }
        drop(alive);
    });
}

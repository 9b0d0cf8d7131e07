//! A run with its timeline, and the list of runs.
//!
//! The timeline is the log in words, complete and in order.

use serde::Serialize;
use standfast_core::body::Body;
use standfast_core::event::{Envelope, Event};
use standfast_core::hold::{Hold, HoldKind};
use standfast_core::id::{HoldId, HoldKey};
use standfast_core::project::{RunRow, hold_of};
use standfast_core::run::{Status, status};
use standfast_core::time::Timestamp;
use standfast_engine::RunView;

use super::{ShownInstant, tone};
use crate::labels;

/// The page of a run.
#[derive(Debug, Serialize)]
pub(in crate::web) struct RunPage {
    #[serde(flatten)]
    run: RunItem,
    usage: Option<String>,
    holds: Vec<OpenHold>,
    result: Option<String>,
    reason: Option<String>,
    is_over: bool,
    /// It goes on by itself: the page loads itself again.
    is_busy: bool,
    timeline: Vec<ShownEvent>,
}

/// A run in a list.
#[derive(Debug, Serialize)]
pub(in crate::web) struct RunItem {
    id: String,
    agent: String,
    session: String,
    owner: String,
    status: &'static str,
    tone: &'static str,
    started: ShownInstant,
    updated: ShownInstant,
    turns: u32,
}

/// The list of runs.
#[derive(Debug, Serialize)]
pub(in crate::web) struct RunsPage {
    pub(in crate::web) runs: Vec<RunItem>,
    /// The address of the next page.
    pub(in crate::web) next: Option<String>,
}

#[derive(Debug, Serialize)]
struct OpenHold {
    id: String,
    kind: &'static str,
    tool: Option<String>,
    opened: ShownInstant,
}

/// An event in words.
#[derive(Debug, Serialize)]
struct ShownEvent {
    seq: u64,
    kind: &'static str,
    title: String,
    who: String,
    at: ShownInstant,
    tone: &'static str,
    said: Vec<Line>,
    hold: Option<String>,
}

#[derive(Debug, Serialize)]
struct Line {
    label: String,
    text: String,
    is_code: bool,
}

pub(in crate::web) fn item(row: &RunRow, now: Timestamp) -> RunItem {
    run_item(&row.run, now)
}

pub(in crate::web) fn page(view: &RunView, log: &[Envelope], now: Timestamp) -> RunPage {
    let run = &view.run;
    let open = |hold: &Hold| OpenHold {
        id: HoldId { run: run.facts.id, key: hold.key }.to_string(),
        kind: labels::kind(hold.kind),
        tool: run.call(hold.call()).map(|call| call.tool.to_string()),
        opened: ShownInstant::new(hold.opened_at, now),
    };
    let usage = run.state.usage;
    RunPage {
        run: run_item(run, now),
        usage: (usage.tokens() > 0)
            .then(|| format!("{} input tokens, {} output tokens", usage.input, usage.output)),
        holds: run.state.holds.iter().map(open).collect(),
        result: view.result.as_ref().and_then(Body::inline).map(str::to_owned),
        reason: view.reason.clone(),
        is_over: run.outcome().is_some(),
        is_busy: match status(run) {
            Status::Queued | Status::Working => true,
            Status::Claimed | Status::Retrying(_) | Status::Held(_) | Status::Ended(_) => false,
        },
        timeline: timeline(run, log, now),
    }
}

fn run_item(run: &standfast_core::run::Run, now: Timestamp) -> RunItem {
    let status = status(run);
    RunItem {
        id: run.facts.id.to_string(),
        agent: run.facts.agent.to_string(),
        session: run.facts.session.to_string(),
        owner: run.facts.owner.to_string(),
        status: labels::status(status),
        tone: tone(status),
        started: ShownInstant::new(run.facts.started_at, now),
        updated: ShownInstant::new(run.state.at, now),
        turns: run.state.turn,
    }
}

fn timeline(run: &standfast_core::run::Run, log: &[Envelope], now: Timestamp) -> Vec<ShownEvent> {
    let mut kinds: Vec<(HoldKey, HoldKind)> = Vec::new();
    let mut happened = Vec::with_capacity(log.len());
    for Envelope { seq, at, actor, event } in log {
        if let Event::HoldOpened(opened) = event {
            kinds.push((opened.hold, opened.kind));
        }
        let hold = hold_of(event);
        let kind = kinds.iter().find(|(key, _)| Some(*key) == hold).map(|(_, kind)| *kind);
        let told = labels::describe(event, kind);
        happened.push(ShownEvent {
            seq: seq.0,
            kind: event.kind(),
            title: told.title,
            who: if matches!(event, Event::ModelReplied(_)) {
                run.facts.agent.to_string()
            } else {
                labels::actor(actor)
            },
            at: ShownInstant::new(*at, now),
            tone: tone_of(event),
            said: told.said.into_iter().map(line).collect(),
            hold: hold.map(|key| HoldId { run: run.facts.id, key }.to_string()),
        });
    }
    happened
}

fn line(said: labels::LabelledText) -> Line {
    Line { is_code: said.text.starts_with(['{', '[']), label: said.label, text: said.text }
}

/// What stands out in a timeline.
fn tone_of(event: &Event) -> &'static str {
    match event {
        Event::HoldOpened(_) | Event::CallOrphaned(_) | Event::CallContradicted(_) => "waits",
        Event::HoldResolved(_) | Event::HoldVoted(_) | Event::HoldEdited(_) => "decided",
        Event::MessageReceived(_) | Event::MessageQueued(_) => "person",
        Event::ModelReplied(_) => "agent",
        Event::ModelFailed(_) => "bad",
        Event::CallProposed(_)
        | Event::CallStarted(_)
        | Event::CallReturned(_)
        | Event::CallProgressed(_)
        | Event::CallFinished(_) => "call",
        Event::RunStarted(_)
        | Event::RunClaimed(_)
        | Event::RunReleased(_)
        | Event::RunRepinned(_)
        | Event::RunErased(_)
        | Event::RunEnded(_)
        | Event::HoldAssigned(_)
        | Event::HoldReminded(_)
        | Event::HoldExpired(_)
        | Event::HoldReopened(_)
        | Event::HoldEscalated(_)
        | Event::HoldDelegated(_) => "over",
    }
}

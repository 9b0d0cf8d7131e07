//! What a conversation shows: who said what, what was called and decided, and what is asked now (S0-70 … S0-76).
//!
//! The texts of a pause and of a lost state are those that clients of the protocol know.

use serde::Serialize;
use standfast_core::body::Body;
use standfast_core::event::{Envelope, Event, Outcome};
use standfast_core::hold::HoldKind;
use standfast_core::id::{CallNo, HoldId, HoldKey, RunId};
use standfast_core::message::ToolResult;
use standfast_core::project::ResolutionKind;
use standfast_core::run::{Run, Status, WaitKind, status};
use standfast_core::time::Timestamp;

use super::message::{self, MessagePart};
use super::{ShownInstant, tone};
use crate::labels;
use crate::web::addresses;
use crate::web::widget::Widget;

/// Said when a task is found paused, and as long as it is.
const PAUSED: &str = "Task paused - waiting for your input";
/// Said when a task cannot be continued.
const LOST: &str = "Task state lost. Would you like to restart?";
/// Parts of one run that a conversation shows; the rest is on the run's own page.
const ITEMS_MAX: usize = 200;
/// Characters of a title.
const TITLE_MAX: usize = 90;

/// The list of conversations.
#[derive(Debug, Serialize)]
pub(in crate::web) struct SessionsPage {
    pub(in crate::web) sessions: Vec<SessionItem>,
    /// The address of the next page.
    pub(in crate::web) next: Option<String>,
    /// Whom one can talk to.
    pub(in crate::web) agents: Vec<String>,
    /// Whom one was talking to.
    pub(in crate::web) agent: Option<String>,
}

/// A conversation in a list.
#[derive(Debug, Serialize)]
pub(in crate::web) struct SessionItem {
    id: String,
    href: String,
    title: String,
    agent: String,
    owner: String,
    status: &'static str,
    tone: &'static str,
    is_paused: bool,
    updated: ShownInstant,
}

/// A conversation.
#[derive(Debug, Serialize)]
pub(in crate::web) struct SessionPage {
    pub(in crate::web) session: String,
    pub(in crate::web) agent: String,
    pub(in crate::web) owner: String,
    /// Whether whoever looks may go on with it.
    pub(in crate::web) is_mine: bool,
    pub(in crate::web) address: String,
    /// Where to start over with the same agent.
    pub(in crate::web) restart: String,
    /// Where older runs are.
    pub(in crate::web) older: Option<String>,
    pub(in crate::web) runs: Vec<RunItems>,
    pub(in crate::web) lost: Vec<LostRun>,
    pub(in crate::web) state: State,
    /// What went wrong with the message that was just sent.
    pub(in crate::web) notice: Option<(String, String)>,
    /// The message, to try again.
    pub(in crate::web) kept: String,
    /// A form has what was entered in it: nothing may be shown over that.
    pub(in crate::web) is_kept: bool,
    pub(in crate::web) is_first_page: bool,
}

/// Where the conversation stands.
#[derive(Debug, Default, Serialize)]
pub(in crate::web) struct State {
    /// The run that goes on, or went on last.
    task: Option<String>,
    seq: u64,
    /// The turn that a model may be speaking in, counted from 0.
    turn: Option<u32>,
    /// `paused`, `working`, `waiting` or `over`.
    word: &'static str,
    text: &'static str,
    /// What it was asked first.
    asked: String,
}

/// A run of the conversation.
#[derive(Debug, Serialize)]
pub(in crate::web) struct RunItems {
    id: String,
    items: Vec<Item>,
    /// How many parts before the last ones are not shown, behind the first.
    left_out: usize,
}

/// Something that was said, done or is asked.
#[derive(Debug, Serialize)]
struct Item {
    /// Stands in the page once.
    id: String,
    kind: ItemKind,
    who: String,
    at: Option<ShownInstant>,
    text: String,
    /// What was said beside the words.
    parts: Vec<MessagePart>,
    /// What belongs to it: what that is, and the text.
    more: Option<(String, String)>,
    href: Option<String>,
    widget: Option<Widget>,
}

/// What an item is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum ItemKind {
    Person,
    Agent,
    /// A line about what happened.
    Note,
    Widget,
}

/// A run that cannot be continued.
#[derive(Debug, Serialize)]
pub(in crate::web) struct LostRun {
    id: String,
    text: &'static str,
    why: String,
}

/// What became of a task that a browser remembers.
#[derive(Debug, Serialize)]
pub(in crate::web) struct RememberedTask {
    state: &'static str,
    text: &'static str,
    why: Option<String>,
    href: Option<String>,
}

impl RememberedTask {
    pub(in crate::web) fn paused(href: String) -> RememberedTask {
        RememberedTask { state: "paused", text: PAUSED, why: None, href: Some(href) }
    }

    pub(in crate::web) fn over() -> RememberedTask {
        RememberedTask { state: "over", text: "", why: None, href: None }
    }

    pub(in crate::web) fn lost(why: &str) -> RememberedTask {
        let why = Some(format!("failed to load execution state: {why}"));
        RememberedTask { state: "lost", text: LOST, why, href: None }
    }

    pub(in crate::web) fn unknown(task: &str) -> RememberedTask {
        RememberedTask::lost(&format!("execution state not found for task {task}"))
    }
}

/// A run, and what is read of it.
pub(in crate::web) struct RunParts<'a> {
    pub(in crate::web) run: &'a Run,
    pub(in crate::web) log: &'a [Envelope],
    pub(in crate::web) now: Timestamp,
}

pub(in crate::web) fn session_item(run: &Run, log: &[Envelope], now: Timestamp) -> SessionItem {
    let facts = &run.facts;
    let status = status(run);
    SessionItem {
        id: facts.session.to_string(),
        href: addresses::session(&facts.session, &facts.agent, &facts.owner),
        title: super::run::task_title(log).unwrap_or_else(|| first_words(log)),
        agent: facts.agent.to_string(),
        owner: facts.owner.to_string(),
        status: super::run::status_text(run),
        tone: tone(status),
        is_paused: is_paused(status),
        updated: ShownInstant::new(run.state.at, now),
    }
}

pub(in crate::web) fn lost(run: RunId, why: &str) -> LostRun {
    LostRun { id: run.to_string(), text: LOST, why: format!("failed to load execution state: {why}") }
}

/// Where a conversation stands, by its last run, and whether that or a run below it asks somebody.
pub(in crate::web) fn state(last: Option<(&Run, &[Envelope])>, asks_somebody: bool) -> State {
    let Some((run, log)) = last else { return State { word: "over", ..State::default() } };
    let (word, text) = match status(run) {
        Status::Held(WaitKind::Person | WaitKind::Auth) => ("paused", PAUSED),
        Status::Held(WaitKind::External) if asks_somebody => ("paused", PAUSED),
        Status::Held(WaitKind::External) if run.state.holds.iter().all(|hold| hold.child.is_some()) => {
            ("waiting", "Waiting for a sub-run")
        }
        Status::Held(WaitKind::External) => ("waiting", "Waiting for an external system"),
        Status::Queued => ("working", "Queued"),
        Status::Claimed => ("working", "A worker has claimed it"),
        Status::Working => ("working", "The agent is working"),
        Status::Retrying(_) => ("working", "The model could not be asked; trying again"),
        Status::Ended(_) => ("over", ""),
    };
    let (task, seq) = (Some(run.facts.id.to_string()), run.state.seq.0);
    let turn = (word == "working").then_some(run.state.turn);
    State { task, seq, turn, word, text, asked: first_words(log) }
}

fn is_paused(status: Status) -> bool {
    matches!(status, Status::Held(WaitKind::Person | WaitKind::Auth))
}

/// A run in the order in which it happened. The widget of an open hold stands where the hold opened; those of sub-runs at
/// the end.
pub(in crate::web) fn run(parts: RunParts<'_>, mut widgets: Vec<(HoldId, Widget)>) -> RunItems {
    let RunParts { run, log, now } = parts;
    let mut kinds: Vec<(HoldKey, HoldKind)> = Vec::new();
    let mut tools: Vec<(CallNo, String)> = Vec::new();
    let mut items = Vec::new();
    for Envelope { seq, at, actor, event } in log {
        let item = |kind: ItemKind, who: String, text: String| Item {
            id: format!("{}-{}", run.facts.id, seq.0),
            kind,
            who,
            at: Some(ShownInstant::new(*at, now)),
            text,
            parts: Vec::new(),
            more: None,
            href: None,
            widget: None,
        };
        match event {
            Event::MessageReceived(said) | Event::MessageQueued(said) => {
                let parts = message::parts(&said.message);
                let text =
                    if parts.is_empty() { message::words(&said.message) } else { said.message.words() };
                items.push(Item { parts, ..item(ItemKind::Person, labels::actor(actor), text) });
            }
            Event::ModelReplied(replied) => {
                tools.extend(replied.reply.calls.iter().map(|call| (call.no, call.tool.to_string())));
                let agent = run.facts.agent.to_string();
                if let Some(text) =
                    replied.reply.text.as_ref().and_then(Body::inline).filter(|text| !text.is_empty())
                {
                    items.push(item(ItemKind::Agent, agent, text.to_owned()));
                }
            }
            Event::ModelFailed(failed) => {
                let more = failed.error.inline().map(|error| ("error".to_owned(), error.to_owned()));
                items.push(Item {
                    more,
                    ..item(ItemKind::Note, String::new(), "The model could not be asked".into())
                });
            }
            Event::HoldOpened(opened) => {
                kinds.push((opened.hold, opened.kind));
                let id = HoldId { run: run.facts.id, key: opened.hold };
                if let Some(at) = widgets.iter().position(|(known, _)| *known == id) {
                    let (_, widget) = widgets.remove(at);
                    let shown = item(ItemKind::Widget, String::new(), String::new());
                    items.push(Item { widget: Some(widget), ..shown });
                }
            }
            Event::HoldResolved(resolved) => {
                let kind = kinds.iter().find(|(key, _)| *key == resolved.hold).map(|(_, kind)| *kind);
                let how = labels::decision(kind, ResolutionKind::from(&resolved.resolution));
                let more = labels::decided(&resolved.resolution).map(|said| (said.label, said.text));
                let href = Some(format!("/approve/{}", HoldId { run: run.facts.id, key: resolved.hold }));
                items.push(Item { more, href, ..item(ItemKind::Note, labels::actor(actor), how.to_owned()) });
            }
            Event::CallFinished(finished) => {
                let tool = tools.iter().find(|(no, _)| *no == finished.call).map(|(_, tool)| tool.clone());
                let tool = tool.unwrap_or_else(|| format!("Call {}", finished.call));
                let (what, label, body) = match &finished.result {
                    ToolResult::Ok(body) => ("finished", "result", body),
                    ToolResult::Failed(body) if finished.refused.is_some() => {
                        ("was blocked by a rule", "why", body)
                    }
                    ToolResult::Failed(body) => ("did not succeed", "why", body),
                };
                let more = body.inline().map(|text| (label.to_owned(), text.to_owned()));
                items.push(Item { more, ..item(ItemKind::Note, String::new(), format!("{tool} {what}")) });
            }
            Event::RunEnded(ended) if ended.outcome != Outcome::Completed => {
                let text = format!("{} by {}", labels::outcome(ended.outcome), labels::actor(actor));
                let more = ended.reason.clone().map(|reason| ("reason".to_owned(), reason));
                items.push(Item { more, ..item(ItemKind::Note, String::new(), text) });
            }
            Event::RunErased(_) => {
                items.push(item(ItemKind::Note, labels::actor(actor), "Contents erased".into()));
            }
            Event::CallProposed(proposed) => {
                tools.push((proposed.call.no, proposed.call.tool.to_string()));
            }
            Event::RunEnded(_)
            | Event::RunStarted(_)
            | Event::RunClaimed(_)
            | Event::RunReleased(_)
            | Event::RunRepinned(_)
            | Event::CallStarted(_)
            | Event::CallReturned(_)
            | Event::CallProgressed(_)
            | Event::CallOrphaned(_)
            | Event::CallContradicted(_)
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
    items.extend(widgets.into_iter().map(|(id, widget)| Item {
        id: format!("widget-{id}"),
        kind: ItemKind::Widget,
        who: String::new(),
        at: None,
        text: String::new(),
        parts: Vec::new(),
        more: None,
        href: None,
        widget: Some(widget),
    }));
    let left_out = shorten(&mut items);
    RunItems { id: run.facts.id.to_string(), items, left_out }
}

/// Leaves the first part of a long run, the last ones, and all that is asked now; says how many are gone.
fn shorten(items: &mut Vec<Item>) -> usize {
    let before = items.len();
    let last = before.saturating_sub(ITEMS_MAX);
    let mut at = 0;
    items.retain(|item| {
        at += 1;
        at == 1 || at > last || item.widget.is_some()
    });
    before - items.len()
}

/// What a run was asked first, as a title.
fn first_words(log: &[Envelope]) -> String {
    let said = log.iter().find_map(|envelope| match &envelope.event {
        Event::MessageReceived(said) | Event::MessageQueued(said) => Some(message::words(&said.message)),
        _ => None,
    });
    let said = said.unwrap_or_else(|| "(contents erased)".into());
    let line = said.lines().next().unwrap_or_default();
    match line.char_indices().nth(TITLE_MAX) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line.to_owned(),
    }
}

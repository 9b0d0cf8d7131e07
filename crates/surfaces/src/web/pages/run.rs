//! A run with its timeline, and the list of runs.
//!
//! The timeline is the log in words, complete and in order, in parts where it is long; runs that it started stand within it.

use serde::Serialize;
use standfast_core::body::Body;
use standfast_core::event::{Envelope, Event, Outcome};
use standfast_core::hold::{Hold, HoldKind};
use standfast_core::id::{CallNo, HoldId, HoldKey, RunId};
use standfast_core::json::RawJson;
use standfast_core::message::Usage;
use standfast_core::project::{Phase, RunRow, hold_of};
use standfast_core::run::{Run, Status, status};
use standfast_core::time::Timestamp;
use standfast_engine::RunView;

use super::waiting::Pager;
use super::{ShownInstant, message, tone};
use crate::http::Problem;
use crate::http::filters::chosen;
use crate::labels;
use crate::web::{json_view, svg};

/// The page of a run.
#[derive(Debug, Serialize)]
pub(in crate::web) struct RunPage {
    #[serde(flatten)]
    run: RunItem,
    usage: Option<String>,
    holds: Vec<OpenHold>,
    /// Events before the part that is shown, and where that begins.
    earlier: usize,
    before: Option<u64>,
    /// Whether the part that is shown is not the latest.
    has_later: bool,
    /// Model requests that failed and calls that were started again.
    retries: usize,
    result: Option<String>,
    reason: Option<String>,
    is_over: bool,
    /// It goes on by itself: the page loads itself again.
    is_busy: bool,
    /// It waits for somebody.
    is_paused: bool,
    /// The turn that a model may be speaking in, counted from 0: its words are shown until they are on record.
    turn: Option<u32>,
    timeline: Vec<ShownEvent>,
}

/// A run that another one started, as it is stored.
pub(in crate::web) struct SubRun {
    pub(in crate::web) run: Run,
    pub(in crate::web) log: Vec<Envelope>,
}

#[derive(Debug, Serialize)]
struct ShownSubRun {
    #[serde(flatten)]
    run: RunItem,
    timeline: Vec<ShownEvent>,
    left_out: usize,
}

/// A run in a list.
#[derive(Debug, Serialize)]
pub(in crate::web) struct RunItem {
    id: String,
    /// The first words that it was asked with.
    title: String,
    agent: String,
    session: String,
    owner: String,
    tokens: u64,
    /// In units of the price table; none where there is no price.
    cost: Option<String>,
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
    pub(in crate::web) pager: Pager,
    pub(in crate::web) agent: String,
    pub(in crate::web) session: String,
    pub(in crate::web) owner: String,
    pub(in crate::web) states: Vec<StateOption>,
    pub(in crate::web) is_filtered: bool,
}

/// A state that runs can be filtered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::web) enum StateFilter {
    Working,
    Waiting,
    Completed,
    Failed,
    Canceled,
}

/// The same as a choice.
#[derive(Debug, Serialize)]
pub(in crate::web) struct StateOption {
    word: &'static str,
    label: &'static str,
    is_current: bool,
}

const STATES: [(&str, &str, StateFilter); 5] = [
    ("working", "Working", StateFilter::Working),
    ("waiting", "Paused", StateFilter::Waiting),
    ("completed", "Completed", StateFilter::Completed),
    ("failed", "Failed or rejected", StateFilter::Failed),
    ("canceled", "Canceled", StateFilter::Canceled),
];

pub(in crate::web) fn state(word: &str) -> Result<Option<StateFilter>, Problem> {
    chosen("state", word, &STATES.map(|(word, _, state)| (word, state)))
}

pub(in crate::web) fn states(current: &str) -> Vec<StateOption> {
    STATES.iter().map(|(word, label, _)| StateOption { word, label, is_current: *word == current }).collect()
}

impl StateFilter {
    pub(in crate::web) fn includes(self, phase: Phase) -> bool {
        self == match phase {
            Phase::Queued | Phase::Claimed | Phase::Working | Phase::Retrying => StateFilter::Working,
            Phase::HeldForPerson | Phase::HeldForAuth | Phase::HeldForExternal => StateFilter::Waiting,
            Phase::Completed => StateFilter::Completed,
            Phase::Failed | Phase::Rejected => StateFilter::Failed,
            Phase::Canceled => StateFilter::Canceled,
        }
    }
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
    /// The tokens of a reply.
    tokens: Option<String>,
    hold: Option<String>,
    /// Where the receipt of the call is that it ended.
    receipt: Option<String>,
    /// The run that it started, with its own timeline.
    below: Option<Box<ShownSubRun>>,
}

#[derive(Debug, Serialize)]
struct Line {
    label: String,
    text: String,
    /// What it is as a tree: JSON that is not long.
    tree: Option<String>,
    is_code: bool,
    /// What a model wrote, to be shown as Markdown.
    is_markdown: bool,
}

/// Events that a page shows.
const EVENTS_MAX: usize = 500;
/// Events of a sub-run that a page shows.
const SUB_EVENTS_MAX: usize = 100;
/// Bytes of JSON that a timeline shows as a tree; what is longer is shown as it is stored, to its end.
const TREE_MAX: usize = 2_000;
/// Characters of a title.
const TITLE_MAX: usize = 90;

pub(in crate::web) fn item(row: &RunRow, log: &[Envelope], now: Timestamp) -> RunItem {
    run_item(&row.run, log, now)
}

/// The runs that a log says were started.
pub(in crate::web) fn children(log: &[Envelope]) -> Vec<RunId> {
    log.iter().filter_map(|envelope| child(&envelope.event)).collect()
}

/// The run that an event started.
fn child(event: &Event) -> Option<RunId> {
    match event {
        Event::HoldOpened(opened) => opened.ask.child,
        _ => None,
    }
}

/// The call that an event ended.
fn ended_call(event: &Event) -> Option<CallNo> {
    if let Event::CallFinished(finished) = event { Some(finished.call) } else { None }
}

pub(in crate::web) fn page(
    view: &RunView,
    log: &[Envelope],
    below: &[SubRun],
    before: Option<u64>,
    now: Timestamp,
) -> RunPage {
    let run = &view.run;
    let open = |hold: &Hold| OpenHold {
        id: HoldId { run: run.facts.id, key: hold.key }.to_string(),
        kind: if hold.child.is_some() { "Sub-run" } else { labels::kind(hold.kind) },
        tool: run.call(hold.call()).map(|call| call.tool.to_string()),
        opened: ShownInstant::new(hold.opened_at, now),
    };
    let end =
        before.map_or(log.len(), |before| log.iter().filter(|envelope| envelope.seq.0 < before).count());
    let first = end.saturating_sub(EVENTS_MAX);
    let shown = &log[first..end];
    let status = status(run);
    let is_busy = match status {
        Status::Queued | Status::Claimed | Status::Working | Status::Retrying(_) => true,
        Status::Held(_) | Status::Ended(_) => false,
    };
    RunPage {
        run: run_item(run, log, now),
        usage: usage(run.state.usage),
        holds: run.state.holds.iter().map(open).collect(),
        earlier: first,
        before: shown.first().map(|envelope| envelope.seq.0),
        has_later: end < log.len(),
        retries: log.iter().filter(|envelope| is_retry(&envelope.event)).count(),
        // What a worker reports of its failure is the reason as JSON.
        result: view
            .result
            .as_ref()
            .filter(|_| !(run.facts.driver.is_elsewhere() && run.outcome() == Some(Outcome::Failed)))
            .and_then(Body::inline)
            .map(str::to_owned),
        reason: view.reason.clone(),
        is_over: run.outcome().is_some(),
        is_busy,
        is_paused: matches!(status, Status::Held(_)),
        timeline: timeline(run, log, shown, &TimelineContext { runs: below, now }),
        turn: is_busy.then_some(run.state.turn),
    }
}

/// The state of a run. A sub-run is not outside, and may itself wait for a person.
pub(in crate::web) fn status_text(run: &Run) -> &'static str {
    let only_below = !run.state.holds.is_empty() && run.state.holds.iter().all(|hold| hold.child.is_some());
    if only_below { "Waiting for a sub-run" } else { labels::status(status(run)) }
}

fn is_retry(event: &Event) -> bool {
    match event {
        Event::ModelFailed(failed) => failed.retry_at.is_some(),
        Event::CallStarted(started) => started.attempt > 1,
        _ => false,
    }
}

/// What the timelines of a page are made of beside their logs.
struct TimelineContext<'a> {
    /// Runs that were started, and theirs, as far as they are shown.
    runs: &'a [SubRun],
    now: Timestamp,
}

fn sub_run(sub: &SubRun, below: &TimelineContext<'_>) -> ShownSubRun {
    let first = sub.log.len().saturating_sub(SUB_EVENTS_MAX);
    ShownSubRun {
        run: run_item(&sub.run, &sub.log, below.now),
        timeline: timeline(&sub.run, &sub.log, &sub.log[first..], below),
        left_out: first,
    }
}

fn run_item(run: &Run, log: &[Envelope], now: Timestamp) -> RunItem {
    let status = status(run);
    RunItem {
        id: run.facts.id.to_string(),
        title: first_words(log).unwrap_or_else(|| format!("Run of {}", run.facts.agent)),
        agent: run.facts.agent.to_string(),
        session: run.facts.session.to_string(),
        owner: run.facts.owner.to_string(),
        tokens: run.state.usage.tokens(),
        cost: cost(run.state.usage.cost_micros),
        status: status_text(run),
        tone: tone(status),
        started: ShownInstant::new(run.facts.started_at, now),
        updated: ShownInstant::new(run.state.at, now),
        turns: run.state.turn,
    }
}

fn cost(micros: u64) -> Option<String> {
    (micros > 0).then(|| format!("{}.{:04}", micros / 1_000_000, micros % 1_000_000 / 100))
}

/// What whoever added a task of an inbox called it; its first message is what is to be done, often as JSON.
pub(in crate::web) fn task_title(log: &[Envelope]) -> Option<String> {
    log.iter().find_map(|envelope| match &envelope.event {
        Event::RunStarted(started) => started.inbox.as_ref().and_then(|inbox| inbox.title.clone()),
        _ => None,
    })
}

/// What the run was first asked with, or what a task is called, on one line.
fn first_words(log: &[Envelope]) -> Option<String> {
    let said = || {
        log.iter().find_map(|envelope| match &envelope.event {
            Event::MessageReceived(received) => Some(message::words(&received.message)),
            _ => None,
        })
    };
    let words = task_title(log).or_else(said)?;
    let line = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let short: String = line.chars().take(TITLE_MAX).collect();
    let more = if short.len() < line.len() { " …" } else { "" };
    (!short.is_empty()).then(|| format!("{short}{more}"))
}

/// The events of a part of a log, in words. A decision is described by the kind of its hold, which may stand before the part.
/// A run that an event started stands within it.
fn timeline(run: &Run, log: &[Envelope], shown: &[Envelope], below: &TimelineContext<'_>) -> Vec<ShownEvent> {
    let kinds: Vec<(HoldKey, HoldKind)> = log
        .iter()
        .filter_map(|envelope| match &envelope.event {
            Event::HoldOpened(opened) => Some((opened.hold, opened.kind)),
            _ => None,
        })
        .collect();
    let event = |Envelope { seq, at, actor, event }: &Envelope| {
        let hold = hold_of(event);
        let kind = kinds.iter().find(|(key, _)| Some(*key) == hold).map(|(_, kind)| *kind);
        let told = labels::describe(event, kind);
        let is_model = matches!(event, Event::ModelReplied(_));
        ShownEvent {
            seq: seq.0,
            kind: event.kind(),
            title: told.title,
            who: if is_model { run.facts.agent.to_string() } else { labels::actor(actor) },
            at: ShownInstant::new(*at, below.now),
            tone: svg::tone(event),
            said: told.said.into_iter().map(|said| line(said, is_model)).collect(),
            tokens: tokens(event),
            hold: hold.map(|key| HoldId { run: run.facts.id, key }.to_string()),
            receipt: ended_call(event).map(|no| format!("/runs/{}/calls/{no}/receipt", run.facts.id)),
            below: child(event)
                .and_then(|child| below.runs.iter().find(|sub| sub.run.facts.id == child))
                .map(|sub| Box::new(sub_run(sub, below))),
        }
    };
    shown.iter().map(event).collect()
}

/// What a reply took.
fn tokens(event: &Event) -> Option<String> {
    let Event::ModelReplied(replied) = event else { return None };
    usage(replied.reply.usage)
}

/// Tokens in words; none where nobody counted any.
fn usage(usage: Usage) -> Option<String> {
    (usage.tokens() > 0).then(|| format!("{} input tokens, {} output tokens", usage.input, usage.output))
}

fn line(said: labels::LabelledText, is_model: bool) -> Line {
    let is_code = said.text.starts_with(['{', '[']);
    let json = (is_code && said.text.len() <= TREE_MAX).then(|| RawJson::parse(&said.text).ok()).flatten();
    Line {
        is_code,
        is_markdown: is_model && said.label.is_empty() && json.is_none(),
        label: said.label,
        tree: json.as_ref().map(json_view::html),
        text: said.text,
    }
}

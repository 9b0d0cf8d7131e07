//! Inboxes: queues with counts, their tasks by status, a form to add one, and tasks that wait for input (S4-17, S4-18, S4-26).
//!
//! A task that waits shows its question as a widget; its answer is a decision as everywhere (`widget.rs`). The words of a
//! task's status are `task_status.rs`.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde::{Deserialize, Serialize};
use standfast_core::body::Body;
use standfast_core::digest;
use standfast_core::event::{self, Envelope, Event, Outcome};
use standfast_core::id::{HoldId, RunId};
use standfast_core::json::RawJson;
use standfast_core::message::Message;
use standfast_core::name::InboxName;
use standfast_core::run::Run;
use standfast_core::time::Timestamp;
use standfast_engine::auth::Principal;
use standfast_engine::{EngineError, IdempotencyKey, InboxView, NewTask, TaskList, TaskView, claimed_by};

use super::addresses;
use super::conversation::Visit;
use super::media::FileAccess;
use super::pages::ShownInstant;
use super::pages::run::task_title;
use super::routes::{PAGES, hold_id, see_other};
use super::task_status::TaskStatus;
use super::widget::{self, Widget, WidgetFailure, WidgetParts};
use crate::html::{Failure, PostedForm, Site, Token};
use crate::http::{App, Args, Segment};

/// Tasks of a page.
const TASKS: usize = 25;
/// Characters of a payload in a list.
const PAYLOAD_MAX: usize = 400;

/// Tries of a task, as the API has it unless its sender says otherwise (S4-28).
const MAX_ATTEMPTS: u32 = 3;
/// Bytes of a type and a title.
const TEXT_MAX: usize = 1_024;

/// The routes.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/inboxes", get(inboxes))
        .route("/inboxes/{inbox}", get(inbox).post(add))
        .route("/inboxes/{inbox}/holds/{hold}", post(resume))
        .route("/inboxes/{inbox}/tasks/{task}/cancel", post(cancel))
}

type CallerOf = Extension<Principal>;
type Browser = Extension<Token>;

#[derive(Debug, Serialize)]
struct InboxesPage {
    inboxes: Vec<InboxItem>,
    /// Why there are none, where a key is the reason.
    why: Option<String>,
}

/// An inbox in the list.
#[derive(Debug, Serialize)]
struct InboxItem {
    name: String,
    href: String,
    agents: Vec<String>,
    total: u64,
    counts: Vec<StatusCount>,
}

/// How many tasks are in a status.
#[derive(Debug, Serialize)]
struct StatusCount {
    label: &'static str,
    word: &'static str,
    count: u64,
    href: String,
    is_current: bool,
}

/// An inbox with its tasks.
#[derive(Debug, Serialize)]
struct InboxPage {
    name: String,
    address: String,
    filters: Vec<StatusCount>,
    all: String,
    is_all: bool,
    tasks: Vec<TaskItem>,
    next: Option<String>,
    /// What went wrong with an answer to something that does not wait any more.
    refusal: Option<(String, String)>,
    /// What went wrong with the task that was just to be added, and what was entered.
    notice: Option<String>,
    kept: EnteredTask,
    /// A widget has what was entered in it: nothing may be shown over that.
    is_kept: bool,
}

/// What was entered, to go on with after a mistake.
#[derive(Debug, Default, Serialize)]
struct EnteredTask {
    title: String,
    kind: String,
    payload: String,
    priority: String,
}

/// A task in the list.
#[derive(Debug, Serialize)]
struct TaskItem {
    id: String,
    title: String,
    kind: String,
    priority: u8,
    status: &'static str,
    word: &'static str,
    payload: Option<String>,
    is_payload_cut: bool,
    worker: Option<String>,
    result: Option<String>,
    created: ShownInstant,
    is_over: bool,
    widgets: Vec<Widget>,
}

async fn inboxes(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
) -> Result<Response, Failure> {
    let (found, why) = match app.engine.inboxes().list(&who).await {
        Ok(found) => (found, None),
        Err(error @ EngineError::MissingScope(_)) => (Vec::new(), Some(error.to_string())),
        Err(error) => return Err(error.into()),
    };
    let page = InboxesPage { inboxes: found.iter().map(item).collect(), why };
    Ok(PAGES.page(StatusCode::OK, "inboxes.html", &Site::of(&who, &token), &page))
}

fn item(view: &InboxView) -> InboxItem {
    let address = addresses::inbox(&view.counts.inbox);
    InboxItem {
        name: view.counts.inbox.to_string(),
        agents: view.agents.iter().map(ToString::to_string).collect(),
        total: view.counts.runs.values().sum(),
        counts: counts(Some(view), &address, None).into_iter().filter(|count| count.count > 0).collect(),
        href: address,
    }
}

fn counts(view: Option<&InboxView>, address: &str, current: Option<TaskStatus>) -> Vec<StatusCount> {
    let shown = TaskStatus::ALL.iter().map(|status| StatusCount {
        label: status.label(),
        word: status.word(),
        count: view.map_or(0, |view| status.count(&view.counts.runs)),
        href: format!("{address}?status={}", status.word()),
        is_current: current == Some(*status),
    });
    shown.collect()
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct InboxArgs {
    status: Option<String>,
    cursor: Option<u64>,
}

async fn inbox(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Segment(name): Segment,
    Args(args): Args<InboxArgs>,
) -> Result<Response, Failure> {
    let name = inbox_name(name)?;
    show(&Visit { app: &app, who: &who, token: &token }, &name, &args, Attempt::Nothing).await
}

/// What was just tried and did not count.
enum Attempt {
    Nothing,
    Task { kept: EnteredTask, why: String },
    Decision(Box<WidgetFailure>),
}

async fn show(
    visit: &Visit<'_>,
    name: &InboxName,
    args: &InboxArgs,
    tried: Attempt,
) -> Result<Response, Failure> {
    let Visit { app, who, token } = *visit;
    let wanted = match args.status.as_deref() {
        Some(word) => Some(find_status(word)?),
        None => None,
    };
    let inboxes = app.engine.inboxes();
    let list = TaskList {
        inbox: name.clone(),
        phases: wanted.map(TaskStatus::phases).unwrap_or_default(),
        cursor: args.cursor,
        limit: TASKS,
    };
    let is_wanted = |run: &Run, below: &[_]| wanted.is_none_or(|wanted| TaskStatus::of(run, below) == wanted);
    let found = inboxes.tasks(who, list, is_wanted).await?;
    let views = match inboxes.list(who).await {
        Ok(views) => views,
        // Whoever may not work in inboxes sees the tasks that they added, without counts.
        Err(EngineError::MissingScope(_)) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let view = views.iter().find(|view| view.counts.inbox == *name);
    let (address, now) = (addresses::inbox(name), app.engine.clock().now());
    let failed = match &tried {
        Attempt::Decision(failed) => Some(failed.as_ref()),
        Attempt::Nothing | Attempt::Task { .. } => None,
    };
    let mut tasks = Vec::with_capacity(found.items.len());
    for task in &found.items {
        let mut widgets = Vec::with_capacity(task.waits_for.len());
        for view in &task.waits_for {
            let action = format!("{address}/holds/{}", view.row.id);
            let parts = WidgetParts {
                view,
                action,
                now,
                tried: failed,
                who: &who.user,
                files: FileAccess::Open,
                said_before: 0,
            };
            widgets.push(widget::previewed(app, parts).await);
        }
        tasks.push(task_item(task, widgets, now));
    }
    let status = args.status.as_ref().map(|word| format!("status={word}&")).unwrap_or_default();
    let code = match &tried {
        Attempt::Nothing => StatusCode::OK,
        Attempt::Task { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        Attempt::Decision(failed) => failed.status(),
    };
    let waits =
        |hold: HoldId| found.items.iter().flat_map(|task| &task.waits_for).any(|view| view.row.id == hold);
    let is_kept = failed.is_some();
    let (kept, notice, refusal) = match tried {
        Attempt::Task { kept, why } => (kept, Some(why), None),
        Attempt::Decision(failed) if !waits(failed.hold) => {
            let refusal = failed.failure.map(|failure| (failure.title, failure.text));
            (EnteredTask::default(), None, refusal)
        }
        Attempt::Nothing | Attempt::Decision(_) => (EnteredTask::default(), None, None),
    };
    let page = InboxPage {
        name: name.to_string(),
        filters: counts(view, &address, wanted),
        all: address.clone(),
        is_all: wanted.is_none(),
        tasks,
        next: found.next.map(|next| format!("{address}?{status}cursor={next}")),
        address,
        refusal,
        notice,
        kept,
        is_kept,
    };
    Ok(PAGES.page(code, "inbox.html", &Site::of(who, token), &page))
}

fn task_item(task: &TaskView, widgets: Vec<Widget>, now: Timestamp) -> TaskItem {
    let run = &task.run;
    let place = run.facts.inbox.as_ref();
    let status = TaskStatus::of(run, &task.below);
    let payload = payload(&task.events);
    let cut = payload.as_ref().and_then(|payload| payload.char_indices().nth(PAYLOAD_MAX)).map(|(at, _)| at);
    TaskItem {
        id: run.facts.id.to_string(),
        title: task_title(&task.events).unwrap_or_else(|| "(no title)".into()),
        kind: place.map(|place| place.kind.clone()).unwrap_or_default(),
        priority: place.map_or(1, |place| place.priority),
        status: status.label(),
        word: status.word(),
        is_payload_cut: cut.is_some(),
        payload: payload.map(|payload| cut.map_or(payload.clone(), |at| format!("{} …", &payload[..at]))),
        worker: run.state.claim.as_ref().map(|claim| claimed_by(&claim.worker).to_owned()),
        result: result(&task.events),
        created: ShownInstant::new(run.facts.started_at, now),
        is_over: run.outcome().is_some(),
        widgets,
    }
}

/// What is to be done: the first message.
fn payload(events: &[Envelope]) -> Option<String> {
    events
        .iter()
        .find_map(|envelope| match &envelope.event {
            Event::MessageReceived(said) | Event::MessageQueued(said) => Some(said.message.words()),
            _ => None,
        })
        // A text is shown as one, not as the JSON that it is stored as.
        .map(|words| serde_json::from_str(&words).unwrap_or(words))
}

/// Its result; of one that failed, why.
fn result(events: &[Envelope]) -> Option<String> {
    events.iter().rev().find_map(|envelope| match &envelope.event {
        Event::RunEnded(ended) if ended.outcome == Outcome::Failed && ended.reason.is_some() => {
            ended.reason.clone()
        }
        Event::RunEnded(ended) => {
            ended.result.as_ref().and_then(Body::inline).map(str::to_owned).or_else(|| ended.reason.clone())
        }
        _ => None,
    })
}

async fn add(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Segment(name): Segment,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let name = inbox_name(name)?;
    let field = |name: &str| posted.get(name).unwrap_or_default();
    let kept = EnteredTask {
        title: field("title"),
        kind: field("type"),
        payload: field("payload"),
        priority: field("priority"),
    };
    let nonce = posted.get("once").filter(|nonce| !nonce.is_empty());
    let once = nonce.map(|nonce| {
        let request = digest::of_bytes(format!("{}\n{}", kept.title, kept.payload).as_bytes());
        IdempotencyKey::new(addresses::inbox(&name), format!("page:{nonce}"), request)
    });
    let new = match new_task(name.clone(), &kept, once) {
        Ok(new) => new,
        Err(why) => {
            let visit = Visit { app: &app, who: &who, token: &token };
            return show(&visit, &name, &InboxArgs::default(), Attempt::Task { kept, why }).await;
        }
    };
    let run = app.engine.tasks().add(&who, new).await?;
    Ok(see_other(&format!("{}#task-{run}", addresses::inbox(&name))))
}

/// A task as it was entered, or what is wrong with it. A payload that is no JSON is a text, and JSON keeps its spelling.
fn new_task(
    inbox: InboxName,
    entered: &EnteredTask,
    once: Option<IdempotencyKey>,
) -> Result<NewTask, String> {
    let (title, kind) = (entered.title.trim(), entered.kind.trim());
    if kind.is_empty() || kind.len() > TEXT_MAX || title.len() > TEXT_MAX {
        return Err(format!("The type must have 1 to {TEXT_MAX} bytes, and the title at most as many."));
    }
    let priority = entered.priority.parse::<u8>().ok().filter(|priority| *priority <= 3);
    let payload = RawJson::parse(&entered.payload).unwrap_or_else(|_| RawJson::string(&entered.payload));
    Ok(NewTask {
        inbox: event::Inbox {
            inbox,
            kind: kind.to_owned(),
            priority: priority.ok_or("Choose a priority.")?,
            target_agent: None,
            title: (!title.is_empty()).then(|| title.to_owned()),
            source_id: None,
            source_url: None,
            max_attempts: MAX_ATTEMPTS,
            expires_at: None,
            metadata: None,
        },
        message: Message::text(payload.text()),
        ttl: None,
        once,
    })
}

async fn resume(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Path((name, hold)): Path<(String, String)>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let (name, hold) = (inbox_name(name)?, hold_id(&hold)?);
    match widget::decide(&app, &who, hold, posted).await? {
        Ok(()) => Ok(see_other(&addresses::inbox(&name))),
        Err(failed) => {
            let visit = Visit { app: &app, who: &who, token: &token };
            show(&visit, &name, &InboxArgs::default(), Attempt::Decision(Box::new(failed))).await
        }
    }
}

async fn cancel(
    State(app): State<App>,
    Extension(who): CallerOf,
    Path((name, task)): Path<(String, String)>,
    _posted: PostedForm,
) -> Result<Response, Failure> {
    let name = inbox_name(name)?;
    let run: RunId = task.parse().map_err(|_| Failure::not_found())?;
    let found = app.engine.inboxes().snapshot(&who, &name, run).await?;
    app.engine.submit().cancel_on(&who, &found, None, None).await?;
    Ok(see_other(&format!("{}#task-{run}", addresses::inbox(&name))))
}

fn inbox_name(name: String) -> Result<InboxName, Failure> {
    InboxName::new(name).map_err(|_| Failure::not_found())
}

fn find_status(word: &str) -> Result<TaskStatus, Failure> {
    let found = TaskStatus::ALL.into_iter().find(|status| status.word() == word);
    found.ok_or_else(|| {
        let words = TaskStatus::ALL.map(TaskStatus::word).join(", ");
        Failure::new(
            StatusCode::BAD_REQUEST,
            "Unknown status",
            &format!("The statuses of tasks are: {words}."),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entered(payload: &str, priority: &str) -> EnteredTask {
        EnteredTask {
            title: " a ".into(),
            kind: "task".into(),
            payload: payload.into(),
            priority: priority.into(),
        }
    }

    #[test]
    fn a_payload_keeps_its_spelling_and_a_text_is_one() {
        for (payload, expected) in
            [("{\"n\": 1.50}", "{\"n\": 1.50}"), ("no json", "\"no json\""), ("", "\"\"")]
        {
            let made = new_task(InboxName::new("support").unwrap(), &entered(payload, "2"), None).unwrap();
            assert_eq!((made.message.words().as_str(), made.inbox.title.as_deref()), (expected, Some("a")));
        }
    }

    #[test]
    fn what_cannot_be_a_task_is_said() {
        for wrong in
            [entered("x", "7"), entered("x", ""), EnteredTask { kind: " ".into(), ..entered("x", "1") }]
        {
            assert!(new_task(InboxName::new("support").unwrap(), &wrong, None).is_err());
        }
    }
}

//! Conversations: the list, one of them, and what is said in it (S0-70 … S0-76).
//!
//! A conversation is the runs of one session, oldest first; each open hold is a widget of its own. Everything is read from
//! the log, so a reload, a restart or another node shows the same. A message continues the run that is going on, or begins
//! the next one. What each part looks like is `pages/conversation.rs`; a decision is `widget.rs`.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde::Deserialize;
use standfast_core::command::{OnHold, Say};
use standfast_core::digest;
use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, RunId};
use standfast_core::message::Message;
use standfast_core::name::{AgentName, SessionId, UserId};
use standfast_core::refusal::Refusal;
use standfast_core::run::{Facts, Run, Status, WaitKind, status};
use standfast_engine::auth::Principal;
use standfast_engine::{
    EngineError, HoldView, IdempotencyKey, LookedUpRun, NewRun, RunList, RunView, SessionList, Snapshot,
};

use super::addresses;
use super::media::FileAccess;
use super::pages::conversation::{self as page, RunParts, SessionPage, SessionsPage};
use super::routes::{PAGES, SETTLE, hold_id, see_other};
use super::widget::{self, WidgetFailure, WidgetParts};
use crate::html::{Failure, PostedForm, Site, Token};
use crate::http::{App, Args, Segment};

/// Conversations of a page.
const SESSIONS: usize = 25;
/// Runs of a page of a conversation.
const RUNS: usize = 20;

/// The routes.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/sessions", get(sessions).post(start))
        .route("/sessions/remembered", get(remembered))
        .route("/sessions/{session}", get(session).post(say))
        .route("/sessions/{session}/holds/{hold}", post(decide))
}

type CallerOf = Extension<Principal>;
type Browser = Extension<Token>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListArgs {
    cursor: Option<u64>,
    agent: Option<String>,
}

/// Which conversation of that name, and where to go on in it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionArgs {
    agent: Option<String>,
    owner: Option<String>,
    cursor: Option<u64>,
}

/// A conversation by all its names.
#[derive(Debug, Clone)]
struct Conversation {
    session: SessionId,
    agent: AgentName,
    owner: UserId,
}

impl Conversation {
    /// As an address names it; whoever names no owner means their own.
    fn of(
        session: String,
        agent: Option<String>,
        owner: Option<String>,
        who: &Principal,
    ) -> Result<Self, Failure> {
        let none = |_| Failure::not_found();
        let agent = agent.ok_or_else(Failure::not_found)?;
        Ok(Conversation {
            session: SessionId::new(session).map_err(none)?,
            agent: AgentName::new(agent).map_err(none)?,
            owner: owner.map(UserId::new).transpose().map_err(none)?.unwrap_or_else(|| who.user.clone()),
        })
    }

    fn address(&self) -> String {
        addresses::session(&self.session, &self.agent, &self.owner)
    }
}

/// A page of conversations, newest first, and a form to begin one.
async fn sessions(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Args(args): Args<ListArgs>,
) -> Result<Response, Failure> {
    let (engine, now) = (&app.engine, app.engine.clock().now());
    let list = SessionList { agent: None, cursor: args.cursor, limit: SESSIONS };
    let found = engine.sessions().list(&who, list).await?;
    let mut items = Vec::with_capacity(found.items.len());
    for row in &found.items {
        let key = &row.key;
        let list = RunList {
            agent: Some(key.agent.clone()),
            session: Some(key.session.clone()),
            cursor: None,
            limit: RUNS,
        };
        let runs = engine.reads().runs(&who, list).await?.items;
        let Some(last) = runs.iter().find(|run| run.run.facts.owner == key.owner) else { continue };
        let opening = engine.reads().opening(&who, last.run.facts.id).await?;
        items.push(page::session_item(&last.run, &opening, now));
    }
    let page = SessionsPage {
        sessions: items,
        next: found.next.map(|next| format!("/sessions?cursor={next}")),
        agents: engine
            .settings()
            .agents
            .keys()
            .filter(|name| who.reads(name))
            .map(ToString::to_string)
            .collect(),
        agent: args.agent,
    };
    Ok(PAGES.page(StatusCode::OK, "sessions.html", &Site::of(&who, &token), &page))
}

async fn session(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Segment(name): Segment,
    Args(args): Args<SessionArgs>,
) -> Result<Response, Failure> {
    let conversation = Conversation::of(name, args.agent, args.owner, &who)?;
    let visit = Visit { app: &app, who: &who, token: &token };
    show(&visit, &conversation, args.cursor, Attempt::Nothing).await
}

/// What was just tried and did not count.
enum Attempt {
    Nothing,
    Decision(Box<WidgetFailure>),
    Message { text: String, failure: Failure },
}

/// Somebody who looks.
pub(super) struct Visit<'a> {
    pub(super) app: &'a App,
    pub(super) who: &'a Principal,
    pub(super) token: &'a Token,
}

async fn show(
    visit: &Visit<'_>,
    conversation: &Conversation,
    cursor: Option<u64>,
    tried: Attempt,
) -> Result<Response, Failure> {
    let Visit { app, who, token } = *visit;
    let now = app.engine.clock().now();
    let (runs, lost, next) = runs_of(app, who, conversation, cursor).await?;
    if runs.is_empty() && lost.is_empty() {
        return Err(Failure::not_found());
    }
    let address = conversation.address();
    let failed = match &tried {
        Attempt::Decision(failed) => Some(failed.as_ref()),
        Attempt::Nothing | Attempt::Message { .. } => None,
    };
    let mut shown = Vec::with_capacity(runs.len());
    let mut is_told = false;
    let mut asks_somebody = false;
    for snapshot in &runs {
        let mut widgets = Vec::new();
        let views = open_holds(app, who, snapshot).await?;
        // The last run says where the conversation stands.
        asks_somebody =
            views.iter().any(|view| view.ask.child.is_none() && view.row.kind != HoldKind::External);
        for view in views {
            is_told |= failed.is_some_and(|failed| failed.hold == view.row.id);
            let action = decide_address(&address, &view.row.id.to_string());
            let parts = WidgetParts {
                view: &view,
                action,
                now,
                tried: failed,
                who: &who.user,
                files: FileAccess::Open,
                said_before: 0,
            };
            widgets.push((view.row.id, widget::previewed(app, parts).await));
        }
        let log = snapshot.log().await.map_err(EngineError::from)?;
        shown.push(page::run(RunParts { run: snapshot.run(), log, now }, widgets));
    }
    let last = match runs.last() {
        Some(snapshot) => Some((snapshot.run(), snapshot.log().await.map_err(EngineError::from)?)),
        None => None,
    };
    let status_code = match &tried {
        Attempt::Nothing => StatusCode::OK,
        Attempt::Decision(failed) => failed.status(),
        Attempt::Message { failure, .. } => failure.status,
    };
    let is_kept = failed.is_some();
    let (kept, notice) = match tried {
        Attempt::Message { text, failure } => (text, Some(failure)),
        // Somebody else was faster: the hold has no widget any more that could say so.
        Attempt::Decision(failed) if !is_told => (String::new(), failed.failure),
        Attempt::Nothing | Attempt::Decision(_) => (String::new(), None),
    };
    let page = SessionPage {
        session: conversation.session.to_string(),
        agent: conversation.agent.to_string(),
        owner: conversation.owner.to_string(),
        is_mine: conversation.owner == who.user,
        older: next.map(|next| format!("{address}&cursor={next}")),
        address,
        restart: format!("/sessions?agent={}", addresses::encoded(conversation.agent.as_str())),
        runs: shown,
        lost: lost.into_iter().map(|(run, why)| page::lost(run, &why)).collect(),
        state: page::state(last, asks_somebody),
        notice: notice.map(|failure| (failure.title, failure.text)),
        kept,
        is_kept,
        is_first_page: cursor.is_none(),
    };
    Ok(PAGES.page(status_code, "session.html", &Site::of(who, token), &page))
}

/// A run that cannot be read, and why.
type UnreadRun = (RunId, String);

/// The runs of a conversation in the order in which they began, those that cannot be read, and where older ones are.
async fn runs_of(
    app: &App,
    who: &Principal,
    of: &Conversation,
    cursor: Option<u64>,
) -> Result<(Vec<Arc<Snapshot>>, Vec<UnreadRun>, Option<u64>), Failure> {
    let list =
        RunList { agent: Some(of.agent.clone()), session: Some(of.session.clone()), cursor, limit: RUNS };
    let found = app.engine.reads().runs(who, list).await?;
    let mut lost: Vec<UnreadRun> = found.unreadable.into_iter().map(|lost| (lost.run, lost.why)).collect();
    let mut runs = Vec::new();
    for row in found.items.iter().rev().filter(|row| row.run.facts.owner == of.owner) {
        match app.engine.reads().look_up(who, row.run.facts.id).await {
            Ok(LookedUpRun::Run(snapshot)) => runs.push(snapshot),
            Ok(LookedUpRun::Quarantined(found)) => lost.push((found.run, found.why)),
            Err(EngineError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok((runs, lost, found.next))
}

/// What a run waits for, as far as the caller may see it; also what its sub-runs wait for.
async fn open_holds(app: &App, who: &Principal, snapshot: &Snapshot) -> Result<Vec<HoldView>, Failure> {
    let run = snapshot.run();
    let mut views = Vec::new();
    for hold in &run.state.holds {
        let id = standfast_core::id::HoldId { run: run.facts.id, key: hold.key };
        views.push(app.engine.reads().views().hold_with_drift(who, snapshot, id).await?);
    }
    for (id, _) in app.engine.reads().holds_below(run).await? {
        match app.engine.reads().hold(who, id).await {
            Ok(view) => views.push(view),
            Err(EngineError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(views)
}

/// Begins a conversation.
async fn start(
    State(app): State<App>,
    Extension(who): CallerOf,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let facts = begin(&app, &who, &posted).await?;
    Ok(see_other(&addresses::session(&facts.session, &facts.agent, &facts.owner)))
}

/// Starts the run that a form asks for; comes back when it rests, or after a moment. A form that is sent twice starts one.
pub(super) async fn begin(app: &App, who: &Principal, posted: &PostedForm) -> Result<Facts, Failure> {
    let invalid = |text: &str| Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "No run was started", text);
    let agent = AgentName::new(posted.get("agent").unwrap_or_default());
    let agent = agent.map_err(|_| invalid("Choose an agent."))?;
    let input = posted.get("input").filter(|input| !input.trim().is_empty());
    let input = input.ok_or_else(|| invalid("Enter what the agent should do."))?;
    let once = once(posted, "/sessions");
    let id = app
        .engine
        .submit()
        .start(who, NewRun { agent, session: None, message: Message::text(input), once })
        .await?;
    Ok(app.engine.reads().settled_run(who, id, SETTLE).await?.run.facts.clone())
}

/// Says something: to the run that is going on, or as the beginning of the next one.
async fn say(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Segment(name): Segment,
    Args(args): Args<SessionArgs>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let conversation = Conversation::of(name, args.agent, args.owner, &who)?;
    if conversation.owner != who.user {
        let text = format!("This conversation belongs to {}. Begin one of your own.", conversation.owner);
        return Err(Failure::new(StatusCode::FORBIDDEN, "Not your conversation", &text));
    }
    let Some(text) = posted.get("input").filter(|input| !input.trim().is_empty()) else {
        return Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Nothing was said", "Enter a message."));
    };
    match speak(&app, &who, &conversation, &posted, &text).await {
        Ok(run) => {
            let settled = app.engine.reads().settled_run(&who, run, SETTLE).await?;
            Ok(see_other(&going_on(&conversation, Some(&settled))))
        }
        Err(EngineError::NotFound) => Err(Failure::not_found()),
        Err(error) => {
            let failure = Failure::from(error);
            let visit = Visit { app: &app, who: &who, token: &token };
            show(&visit, &conversation, None, Attempt::Message { text, failure }).await
        }
    }
}

async fn speak(
    app: &App,
    who: &Principal,
    conversation: &Conversation,
    posted: &PostedForm,
    text: &str,
) -> Result<RunId, EngineError> {
    let Conversation { session, agent, .. } = conversation;
    let once = once(posted, &conversation.address());
    // The task that the page showed (S0-70), if it is one of this conversation and still goes on.
    let task = posted.get("task").and_then(|task| task.parse::<RunId>().ok());
    if let Some(task) = task {
        let found = match app.engine.reads().snapshot(who, task).await {
            Ok(snapshot) => Some(snapshot),
            Err(EngineError::NotFound) => None,
            Err(error) => return Err(error),
        };
        let is_here = |run: &Run| run.facts.session == *session && run.facts.agent == *agent;
        let goes_on = |run: &Run| is_here(run) && run.outcome().is_none();
        if let Some(snapshot) = found.filter(|snapshot| goes_on(snapshot.run())) {
            let say = Say { message: Message::text(text), on_hold: OnHold::Refuse };
            match app.engine.submit().say_on(who, &snapshot, say, once.clone()).await {
                Ok(_) => return Ok(task),
                // It ended while somebody typed: what they say begins the next one.
                Err(EngineError::Refused(Refusal::Ended(_))) => {}
                Err(error) => return Err(error),
            }
        }
    }
    let new =
        NewRun { agent: agent.clone(), session: Some(session.clone()), message: Message::text(text), once };
    app.engine.submit().start(who, new).await
}

/// Where a conversation goes on: at what a run asks next, else at its end.
fn going_on(conversation: &Conversation, view: Option<&RunView>) -> String {
    let next = view.and_then(|view| {
        let own = view.run.state.holds.iter().find(|hold| hold.child.is_none());
        let run = view.run.facts.id;
        own.map(|hold| HoldId { run, key: hold.key }).or(view.holds_below.first().map(|(below, _)| *below))
    });
    let place = next.map_or_else(|| "last".to_owned(), |hold| format!("hold-{hold}"));
    format!("{}#{place}", conversation.address())
}

/// Decides one hold of a conversation; the others are not touched (S0-74).
async fn decide(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Path((name, hold)): Path<(String, String)>,
    Args(args): Args<SessionArgs>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let conversation = Conversation::of(name, args.agent, args.owner, &who)?;
    let hold = hold_id(&hold)?;
    match widget::decide(&app, &who, hold, posted).await? {
        Ok(()) => {
            let view = app.engine.reads().run(&who, hold.run).await.ok();
            Ok(see_other(&going_on(&conversation, view.as_ref())))
        }
        Err(failed) => {
            let visit = Visit { app: &app, who: &who, token: &token };
            show(&visit, &conversation, None, Attempt::Decision(Box::new(failed))).await
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskArgs {
    task: String,
}

/// What became of a task that a browser remembers (S0-71, S0-73); the script of the page shows it.
async fn remembered(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Args(asked): Args<TaskArgs>,
) -> Result<Response, Failure> {
    let found = match asked.task.parse::<RunId>() {
        Ok(run) => match app.engine.reads().look_up(&who, run).await {
            Ok(LookedUpRun::Run(snapshot)) => {
                let facts = &snapshot.run().facts;
                let is_paused =
                    matches!(status(snapshot.run()), Status::Held(WaitKind::Person | WaitKind::Auth));
                if is_paused {
                    let href = addresses::session(&facts.session, &facts.agent, &facts.owner);
                    page::RememberedTask::paused(href)
                } else {
                    page::RememberedTask::over()
                }
            }
            Ok(LookedUpRun::Quarantined(found)) => page::RememberedTask::lost(&found.why),
            Err(EngineError::NotFound) => page::RememberedTask::unknown(&asked.task),
            Err(error) => return Err(error.into()),
        },
        Err(_) => page::RememberedTask::unknown(&asked.task),
    };
    Ok(PAGES.page(StatusCode::OK, "remembered.html", &Site::of(&who, &token), &found))
}

/// A form that is sent twice says one thing.
pub(super) fn once(posted: &PostedForm, route: &str) -> Option<IdempotencyKey> {
    let nonce = posted.get("once").filter(|nonce| !nonce.is_empty())?;
    let said = posted.get("input").unwrap_or_default();
    Some(IdempotencyKey::new(route.to_owned(), format!("page:{nonce}"), digest::of_bytes(said.as_bytes())))
}

/// Where the widget of a hold sends its form.
fn decide_address(address: &str, hold: &str) -> String {
    match address.split_once('?') {
        Some((path, query)) => format!("{path}/holds/{hold}?{query}"),
        None => format!("{address}/holds/{hold}"),
    }
}

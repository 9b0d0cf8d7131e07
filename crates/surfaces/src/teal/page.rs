//! What a browser sees at an approval or rejection URL: what is pending, and a button. Looking decides nothing.
//!
//! The form repeats what was shown, so that a page that is out of date decides nothing (T19). What needs more than a yes
//! is answered on the page of its hold.

use std::sync::LazyLock;

use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use standfast_core::body::Body;
use standfast_core::command::Choice;
use standfast_core::digest;
use standfast_core::hold::HoldKind;
use standfast_core::run::status;
use standfast_core::time::Millis;
use standfast_engine::{HoldDecision, HoldView, IdempotencyKey, RequestView};

use super::error::PREFIX;
use super::map::{self, Needs};
use super::reply::Asker;
use super::resume::ResumeRequest;
use super::wire::{ResumeArgs, ResumeBody};
use crate::html::{PostedForm, Site, Templates, Token};
use crate::http::{Problem, mount, rfc3339};
use crate::labels;
use crate::labels::hidden_characters::is_hidden_in_lines;

static PAGES: LazyLock<Templates> =
    LazyLock::new(|| Templates::new(&[("request.html", include_str!("templates/request.html"))]));

/// How long the form waits for what follows from it, so that the next page shows it.
const SETTLE: Millis = Millis(1_500);

/// The page.
#[derive(Debug, Serialize)]
struct Page {
    title: &'static str,
    agent: String,
    owner: String,
    run: String,
    session: String,
    request: String,
    status: &'static str,
    notice: Option<Notice>,
    calls: Vec<Call>,
    hidden: usize,
    /// What the address asks for, which stands out.
    intent: &'static str,
    form: Form,
    /// What was shown, for the form to repeat.
    seen: String,
}

#[derive(Debug, Serialize)]
struct Notice {
    title: &'static str,
    text: String,
}

/// What can be done here.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Form {
    /// Approve or reject.
    Both,
    /// Reject; what approving needs more is said elsewhere.
    Reject,
    NotYours,
    Closed,
}

/// One call that waits, or waited.
#[derive(Debug, Serialize)]
struct Call {
    hold: String,
    kind: &'static str,
    tool: Option<String>,
    description: Option<String>,
    reason: Option<String>,
    question: Option<String>,
    arguments: Option<String>,
    reversible: Option<bool>,
    revision: u32,
    digest: Option<String>,
    opened: String,
    expires: Option<String>,
    /// When it expired, if a late decision is still taken.
    expired: Option<String>,
    decided: Option<DecisionRecord>,
    /// Whether it is answered on a page of its own.
    is_elsewhere: bool,
}

#[derive(Debug, Serialize)]
struct DecisionRecord {
    what: &'static str,
    by: String,
    at: String,
    /// It came after the deadline.
    late: bool,
}

/// The token of the browser that asks.
pub(super) fn token(request: &Request) -> Option<Token> {
    request.extensions().get::<Token>().cloned()
}

/// The page as it is now.
pub(super) async fn show(
    asker: &Asker,
    id: &str,
    args: &ResumeArgs,
    token: Option<Token>,
) -> Result<Response, Problem> {
    let view = asker.request(id).await?;
    Ok(page(asker, id, args, &view, token.as_ref(), None))
}

/// The form of the page.
pub(super) async fn decide(
    asker: &Asker,
    id: &str,
    args: &ResumeArgs,
    request: Request,
) -> Result<Response, Problem> {
    let token = token(&request);
    // Whoever may not see it gets that error before anything about the form.
    let view = asker.request(id).await?;
    let posted = match PostedForm::from_request(request, &()).await {
        Ok(posted) => posted,
        Err(failure) => return Ok(failure.into_response()),
    };
    match asker.decide(id, view, || wish(id, &posted)).await {
        Ok(resumed) => {
            // What follows is shown if it comes soon; whether it does changes nothing.
            let _ = asker.app.engine.reads().needs_somebody(&asker.who, resumed.task, None, SETTLE).await;
            let settings = asker.app.engine.settings();
            let back = format!("{}{PREFIX}/resume/{id}", mount(&settings));
            Ok((StatusCode::SEE_OTHER, [(header::LOCATION, back)]).into_response())
        }
        Err(problem) => {
            let view = asker.request(id).await?;
            Ok(page(asker, id, args, &view, token.as_ref(), Some(&problem)))
        }
    }
}

/// What the form says. Its button says what is wanted, whatever the address does.
fn wish(id: &str, posted: &PostedForm) -> Result<ResumeRequest, Problem> {
    let action = posted.get("action");
    let once = posted.get("once").filter(|nonce| !nonce.is_empty()).map(|nonce| {
        // The nonce is the page's own, so a click that is sent again is the same click.
        let key = format!("page:{nonce}:{}", action.as_deref().unwrap_or_default());
        let request = digest::of_bytes(key.as_bytes());
        IdempotencyKey::new(format!("{PREFIX}/resume/{id}"), key, request)
    });
    let reason = posted.get("reason").filter(|reason| !reason.trim().is_empty());
    let body = ResumeBody { action, payload: None, reason };
    let unreadable = || Problem::invalid("the form is incomplete; reload the page");
    let seen = posted.get("seen").and_then(|text| text.split_whitespace().map(shown).collect());
    let wish = ResumeRequest::of(body, &ResumeArgs::default(), once)?;
    Ok(ResumeRequest { seen: Some(seen.ok_or_else(unreadable)?), ..wish })
}

/// What was shown of a hold: its key, its digest, its revision.
fn shown(text: &str) -> Option<HoldDecision> {
    let mut parts = text.split('/');
    let hold = parts.next()?.parse().ok()?;
    let digest = parts.next()?;
    let digest = if digest.is_empty() { None } else { Some(digest.parse().ok()?) };
    let revision = Some(parts.next()?.parse().ok()?);
    Some(HoldDecision { hold, wanted: Choice::Approve, digest, revision })
}

fn repeated(view: &HoldView) -> String {
    let digest = view.row.digest.map(|digest| digest.to_string()).unwrap_or_default();
    format!("{}/{digest}/{}", view.row.id.key, view.row.revision)
}

fn page(
    asker: &Asker,
    id: &str,
    args: &ResumeArgs,
    view: &RequestView,
    token: Option<&Token>,
    tried: Option<&Problem>,
) -> Response {
    let asked: Vec<&HoldView> = view.holds.iter().filter(|hold| map::is_asked(hold.row.kind)).collect();
    let open: Vec<&HoldView> = asked.iter().copied().filter(|hold| hold.row.closed.is_none()).collect();
    let calls: Vec<Call> = asked.iter().map(|hold| call(hold)).collect();
    let form = match () {
        () if open.is_empty() => Form::Closed,
        () if asked.iter().any(|hold| !hold.may_decide) => Form::NotYours,
        () if calls.iter().any(|call| call.is_elsewhere) => Form::Reject,
        () => Form::Both,
    };
    let texts = calls.iter().flat_map(|call| [&call.reason, &call.question, &call.arguments]);
    let run = view.snapshot.run();
    let facts = &run.facts;
    let shown = Page {
        title: match (form != Form::Closed, open.len()) {
            (false, _) => "This request has been decided",
            (true, _) if open.iter().all(|hold| is_question(hold)) => "The agent asks a question",
            (true, 1) => "Approve this call?",
            (true, _) => "Approve these calls?",
        },
        agent: facts.agent.to_string(),
        owner: facts.owner.to_string(),
        run: facts.id.to_string(),
        session: facts.session.to_string(),
        request: id.to_owned(),
        status: labels::status(status(run)),
        notice: tried.map(|problem| Notice { title: problem.title, text: problem.detail.clone() }),
        hidden: texts.flatten().map(|text| text.chars().filter(|c| is_hidden_in_lines(*c)).count()).sum(),
        calls,
        intent: match args.action.as_deref() {
            Some("reject") => "reject",
            Some(_) | None => "approve",
        },
        form,
        seen: open.iter().map(|hold| repeated(hold)).collect::<Vec<_>>().join(" "),
    };
    let settings = asker.app.engine.settings();
    let site = token.map_or_else(Site::anonymous, |token| Site::of(&asker.who, token));
    let status = tried.and_then(|problem| StatusCode::from_u16(problem.status).ok());
    PAGES.page(status.unwrap_or(StatusCode::OK), "request.html", &site.below(mount(&settings)), &shown)
}

fn is_question(view: &HoldView) -> bool {
    view.row.kind == HoldKind::Input
}

fn call(view: &HoldView) -> Call {
    let (row, ask) = (&view.row, &view.ask);
    let needs_more = matches!(map::needs(row.kind), Some(Needs::Answer | Needs::Truth));
    Call {
        hold: row.id.to_string(),
        kind: labels::kind(row.kind),
        tool: row.tool.as_ref().map(ToString::to_string),
        description: view.description.clone().filter(|text| !text.is_empty()),
        reason: ask.reason.clone(),
        question: ask.question.as_ref().and_then(Body::inline).map(str::to_owned),
        arguments: view
            .arguments
            .as_ref()
            .filter(|_| !is_question(view))
            .map(|arguments| arguments.text().to_owned()),
        // A question does nothing that could be undone.
        reversible: view.reversible.filter(|_| !is_question(view)),
        revision: row.revision,
        digest: row.digest.map(|digest| digest.to_string()),
        opened: rfc3339(row.opened_at),
        expires: row.expires_at.map(rfc3339),
        expired: row.expired_at.filter(|_| row.closed.is_none()).map(rfc3339),
        decided: row.closed.as_ref().map(|closed| DecisionRecord {
            what: labels::decision(Some(row.kind), closed.how),
            by: labels::actor(&closed.by),
            at: rfc3339(closed.at),
            late: view.late,
        }),
        is_elsewhere: row.closed.is_none() && needs_more,
    }
}

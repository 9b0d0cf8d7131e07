//! One open hold as a widget inside another page: a conversation, an inbox (S0-74, S4-17, S4-18).
//!
//! It shows the call or the question and has a form of its own, so that several are decided independently. What does not
//! fit in a few lines is decided on the hold's own page. What a posted form means is `forms.rs`, as everywhere.

use axum::http::StatusCode;
use serde::Serialize;
use standfast_core::body::Body;
use standfast_core::hold::HoldKind;
use standfast_core::id::HoldId;
use standfast_core::name::UserId;
use standfast_core::time::Timestamp;
use standfast_engine::HoldView;
use standfast_engine::auth::Principal;
use standfast_engine::tool::preview::{CallPreview, Risk};

use super::deciding::{self, Objection};
use super::fields::{AnswerForm, Field};
use super::forms;
use super::json_view::DataShown;
use super::media::FileAccess;
use super::pages::ShownInstant;
use super::pages::call::{self, CallShown, EDIT_MAX};
use super::pages::hold::readable;
use super::pages::stakes::{self, Stakes};
use crate::html::{Failure, PostedForm};
use crate::http::App;
use crate::labels::hidden_characters::{count_hidden, escaped_json};

/// A widget.
#[derive(Debug, Serialize)]
pub(super) struct Widget {
    id: String,
    kind: &'static str,
    title: String,
    agent: String,
    stakes: Stakes,
    question: Option<String>,
    data: Option<DataShown>,
    tool: Option<String>,
    /// The call, by what its tool would do.
    shown: Option<CallShown>,
    /// How many hidden characters are shown as marks.
    hidden: usize,
    is_final: bool,
    /// Why no single key approves it.
    needs_care: Option<&'static str>,
    /// Whoever looks has approved it already, and others must as well.
    has_agreed: bool,
    /// Neither the agent nor a tool asks.
    is_asked_by_server: bool,
    /// Whether the login that it waits for is for whoever looks.
    may_log_in: bool,
    /// Why whoever looks may not decide it.
    why_not: Option<String>,
    digest: String,
    revision: u32,
    opened: ShownInstant,
    expires: Option<ShownInstant>,
    /// It has expired, and a late decision still counts.
    is_late: bool,
    /// Where its form is sent.
    action: String,
    form: WidgetForm,
    /// What went wrong with the decision that was just tried.
    notice: Option<Notice>,
    kept: KeptValues,
}

#[derive(Debug, Serialize)]
struct Notice {
    title: String,
    text: String,
}

/// What was entered, to go on with after a mistake.
#[derive(Debug, Default, Serialize)]
struct KeptValues {
    decision: Option<String>,
    arguments: Option<String>,
    reason: Option<String>,
    value: Option<String>,
}

/// What can be decided here.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum WidgetForm {
    /// Approve, deny, and other arguments where they are short enough to be edited on a page.
    Approval { arguments: Option<String> },
    /// One button for each.
    Options { options: Vec<String> },
    /// A form from a schema.
    Fields { fields: Vec<Field> },
    /// A text box; for JSON where there is a schema.
    Text { schema: Option<String> },
    /// A sub-run has its result.
    Child { run: String },
    /// On its own page.
    Page,
    /// The caller may look only.
    NotYours,
}

/// A form of a widget that decided nothing.
pub(super) struct WidgetFailure {
    pub(super) hold: HoldId,
    /// Why; none where more room was asked for.
    pub(super) failure: Option<Failure>,
    posted: PostedForm,
    pointer: Option<String>,
}

impl WidgetFailure {
    /// Of a decision that was tried on another page with the same form.
    pub(super) fn of(hold: HoldId, posted: PostedForm, objection: Objection) -> WidgetFailure {
        let Objection { failure, pointer } = objection;
        WidgetFailure { hold, failure: Some(failure), posted, pointer }
    }

    /// Of a form that asks for one more entry of a list.
    pub(super) fn asking_for_more(hold: HoldId, posted: PostedForm) -> WidgetFailure {
        WidgetFailure { hold, failure: None, posted, pointer: None }
    }

    /// The status of the page that says so.
    pub(super) fn status(&self) -> StatusCode {
        self.failure.as_ref().map_or(StatusCode::OK, |failure| failure.status)
    }
}

/// What a widget is made of.
pub(super) struct WidgetParts<'a> {
    pub(super) view: &'a HoldView,
    /// Where its form is sent.
    pub(super) action: String,
    pub(super) now: Timestamp,
    /// A decision that was just tried, of this hold or another.
    pub(super) tried: Option<&'a WidgetFailure>,
    /// Who looks, and decides.
    pub(super) who: &'a UserId,
    /// Whether they can open the files of the call.
    pub(super) files: FileAccess,
    /// Hidden characters of what was said before, where that is shown with the widget.
    pub(super) said_before: usize,
}

/// The widget of a hold, with what its tool says that the call would do.
pub(super) async fn previewed(app: &App, parts: WidgetParts<'_>) -> Widget {
    let preview = app.engine.reads().views().preview(parts.view).await;
    widget(parts, preview)
}

/// The widget of a hold.
pub(super) fn widget(parts: WidgetParts<'_>, preview: Option<CallPreview>) -> Widget {
    let WidgetParts { view, action, now, tried, who, files, said_before } = parts;
    let (row, ask) = (&view.row, &view.ask);
    let inline = |body: &Option<Body>| body.as_ref().and_then(Body::inline).map(str::to_owned);
    let tried = tried.filter(|tried| tried.hold == row.id);
    let is_asked = row.kind == HoldKind::Input;
    let arguments = view.arguments.as_ref().filter(|_| !is_asked).map(|json| readable(json.text()));
    let (question, data) = (inline(&ask.question), inline(&ask.data));
    let (title, stakes) = (stakes::title(view), Stakes::of(view, who, now));
    let read = data.as_deref().map(readable);
    let texts = [&question, &read, &arguments].into_iter().flatten().chain(&ask.options);
    let shown = call::shown(view, preview, files, now).filter(|_| !is_asked);
    let in_files = shown.as_ref().map_or(0, |shown| shown.hidden_in_files);
    let hidden =
        texts.map(|text| count_hidden(text)).sum::<usize>() + stakes.hidden() + said_before + in_files;
    let tool = row.tool.as_ref().map(ToString::to_string);
    Widget {
        id: row.id.to_string(),
        kind: call::kind(view),
        question: question.filter(|question| *question != title),
        title,
        agent: row.agent.to_string(),
        stakes,
        data: ask.data.as_ref().and_then(DataShown::of),
        shown,
        tool: tool.filter(|_| !is_asked),
        hidden,
        is_final: view.risk == Some(Risk::Destructive) && row.kind == HoldKind::Approval,
        needs_care: call::care(view.risk, hidden),
        has_agreed: call::has_agreed(view, who),
        is_asked_by_server: view.is_asked_by_server,
        may_log_in: view.may_log_in,
        why_not: view.why_not.as_ref().map(ToString::to_string),
        digest: row.digest.map(|digest| digest.to_string()).unwrap_or_default(),
        revision: row.revision,
        opened: ShownInstant::new(row.opened_at, now),
        expires: row.expires_at.map(|at| ShownInstant::new(at, now)),
        is_late: row.closed.is_none() && row.expired_at.is_some(),
        action,
        form: form(view, tried),
        notice: tried
            .and_then(|tried| tried.failure.as_ref())
            .map(|failure| Notice { title: failure.title.clone(), text: failure.text.clone() }),
        kept: tried.map(|tried| kept(&tried.posted)).unwrap_or_default(),
    }
}

fn form(view: &HoldView, tried: Option<&WidgetFailure>) -> WidgetForm {
    if let Some(child) = &view.ask.child {
        return WidgetForm::Child { run: child.to_string() };
    }
    if !view.may_decide {
        return WidgetForm::NotYours;
    }
    match view.row.kind {
        // Whoever must sign in again first does so on its own page.
        HoldKind::Approval if view.needs_sign_in.is_some() => WidgetForm::Page,
        HoldKind::Approval => {
            let text = view.arguments.as_ref().map_or("", |arguments| arguments.text());
            let arguments = escaped_json(text);
            WidgetForm::Approval { arguments: (arguments.len() <= EDIT_MAX).then(|| arguments.into_owned()) }
        }
        HoldKind::Input => question(view, tried),
        HoldKind::External | HoldKind::Auth | HoldKind::Recovery => WidgetForm::Page,
    }
}

/// Options come first, then a form, then a text box.
fn question(view: &HoldView, tried: Option<&WidgetFailure>) -> WidgetForm {
    if !view.ask.options.is_empty() {
        return WidgetForm::Options { options: view.ask.options.clone() };
    }
    let Some(schema) = &view.ask.answer_schema else { return WidgetForm::Text { schema: None } };
    let Some(mut form) = AnswerForm::read(schema) else {
        return WidgetForm::Text { schema: Some(schema.text().to_owned()) };
    };
    if let Some(tried) = tried {
        form.keep(&tried.posted);
        if let (Some(pointer), Some(failure)) = (&tried.pointer, &tried.failure) {
            form.blame(&tried.posted, pointer, &failure.text);
        }
    }
    WidgetForm::Fields { fields: form.into_fields() }
}

fn kept(posted: &PostedForm) -> KeptValues {
    KeptValues {
        decision: posted.get("decision"),
        arguments: posted.get("arguments"),
        reason: posted.get("reason"),
        value: posted.get("value"),
    }
}

/// Decides a hold as the form of its widget says, unless that asks for more room; comes back when the run rests, or after a
/// moment.
pub(super) async fn decide(
    app: &App,
    who: &Principal,
    hold: HoldId,
    posted: PostedForm,
) -> Result<Result<(), WidgetFailure>, Failure> {
    if forms::asks_for_more(&posted) {
        return Ok(Err(WidgetFailure::asking_for_more(hold, posted)));
    }
    let tried = deciding::decide(app, who, hold, &posted).await?;
    Ok(tried.map_err(|objection| WidgetFailure::of(hold, posted, objection)))
}

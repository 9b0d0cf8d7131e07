//! One open hold as a widget inside another page: a conversation, an inbox (S0-74, S4-17, S4-18).
//!
//! It shows the call or the question and has a form of its own, so that several are decided independently. What does not
//! fit in a few lines is decided on the hold's own page. What a posted form means is `forms.rs`, as everywhere.

use serde::Serialize;
use standfast_core::body::Body;
use standfast_core::hold::HoldKind;
use standfast_core::id::HoldId;
use standfast_core::time::Timestamp;
use standfast_engine::HoldView;
use standfast_engine::auth::Principal;
use standfast_engine::tool::preview::Risk;

use super::deciding::{self, Objection};
use super::fields::{AnswerForm, Field, Kind};
use super::json_view::{self, DataShown};
use super::pages::ShownInstant;
use crate::html::{Failure, PostedForm};
use crate::http::App;
use crate::labels;
use crate::labels::hidden::{count_hidden, escaped_json};

/// A widget.
#[derive(Debug, Serialize)]
pub(super) struct Widget {
    id: String,
    kind: &'static str,
    title: String,
    reason: Option<String>,
    question: Option<String>,
    data: Option<DataShown>,
    tool: Option<String>,
    /// Byte for byte what will run.
    arguments: Option<String>,
    /// The same as people read it: markup, escaped.
    tree: Option<String>,
    /// How many hidden characters are shown as marks.
    hidden: usize,
    is_final: bool,
    digest: String,
    revision: u32,
    opened: ShownInstant,
    expires: Option<ShownInstant>,
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
    /// Approve, deny, other arguments.
    Approval { arguments: String },
    /// One button for each.
    Options { options: Vec<String> },
    /// A form from a flat schema.
    Fields { fields: Vec<Field> },
    /// A text box; for JSON where there is a schema.
    Text { schema: Option<String> },
    /// On its own page.
    Page,
    /// The caller may look only.
    NotYours,
}

/// A decision of a widget that did not count.
pub(super) struct WidgetFailure {
    pub(super) hold: HoldId,
    pub(super) failure: Failure,
    posted: PostedForm,
    pointer: Option<String>,
}

/// The widget of an open hold. `action` is where its form is sent.
pub(super) fn widget(
    view: &HoldView,
    action: String,
    now: Timestamp,
    tried: Option<&WidgetFailure>,
) -> Widget {
    let (row, ask) = (&view.row, &view.ask);
    let inline = |body: &Option<Body>| body.as_ref().and_then(Body::inline).map(str::to_owned);
    let tried = tried.filter(|tried| tried.hold == row.id);
    let is_asked = row.kind == HoldKind::Input;
    let arguments = view.arguments.as_ref().filter(|_| !is_asked).map(|json| json.text().to_owned());
    let (question, data) = (inline(&ask.question), inline(&ask.data));
    let texts = [&ask.reason, &question, &data, &arguments];
    let hidden = texts.into_iter().flatten().chain(&ask.options).map(|text| count_hidden(text)).sum();
    let tool = row.tool.as_ref().map(ToString::to_string);
    let name = tool.clone().unwrap_or_else(|| "the run".into());
    Widget {
        id: row.id.to_string(),
        kind: labels::kind(row.kind),
        title: match row.kind {
            HoldKind::Approval => format!("Approve {name}?"),
            HoldKind::Input => question.clone().unwrap_or_else(|| "The agent asks for input".into()),
            HoldKind::External => format!("Waiting for the result of {name}"),
            HoldKind::Auth => format!("{name} needs a login"),
            HoldKind::Recovery => format!("Did {name} take effect?"),
        },
        reason: ask.reason.clone(),
        question: question.filter(|_| !is_asked),
        data: ask.data.as_ref().and_then(DataShown::of),
        tree: view.arguments.as_ref().filter(|_| !is_asked).map(json_view::html),
        tool: tool.filter(|_| !is_asked),
        arguments,
        hidden,
        is_final: view.risk == Some(Risk::Destructive) && row.kind == HoldKind::Approval,
        digest: row.digest.map(|digest| digest.to_string()).unwrap_or_default(),
        revision: row.revision,
        opened: ShownInstant::new(row.opened_at, now),
        expires: row.expires_at.map(|at| ShownInstant::new(at, now)),
        action,
        form: form(view, tried),
        notice: tried
            .map(|tried| Notice { title: tried.failure.title.clone(), text: tried.failure.text.clone() }),
        kept: tried.map(|tried| kept(&tried.posted)).unwrap_or_default(),
    }
}

fn form(view: &HoldView, tried: Option<&WidgetFailure>) -> WidgetForm {
    if !view.may_decide {
        return WidgetForm::NotYours;
    }
    match view.row.kind {
        HoldKind::Approval => {
            let text = view.arguments.as_ref().map_or("", |arguments| arguments.text());
            WidgetForm::Approval { arguments: escaped_json(text).into_owned() }
        }
        HoldKind::Input if view.ask.child.is_none() => question(view, tried),
        HoldKind::Input | HoldKind::External | HoldKind::Auth | HoldKind::Recovery => WidgetForm::Page,
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
        if let Some(pointer) = &tried.pointer {
            form.blame(&tried.posted, pointer, &tried.failure.text);
        }
    }
    let fields = form.into_fields();
    // What has parts of its own needs more room than a widget has.
    let is_simple = |field: &Field| match field.kind {
        Kind::Text | Kind::Number | Kind::Integer | Kind::Boolean | Kind::Choice => true,
        Kind::Object | Kind::Lines | Kind::Several | Kind::List => false,
    };
    if fields.iter().all(is_simple) { WidgetForm::Fields { fields } } else { WidgetForm::Page }
}

fn kept(posted: &PostedForm) -> KeptValues {
    KeptValues {
        decision: posted.get("decision"),
        arguments: posted.get("arguments"),
        reason: posted.get("reason"),
        value: posted.get("value"),
    }
}

/// Decides a hold as the form of its widget says; comes back when the run rests, or after a moment.
pub(super) async fn decide(
    app: &App,
    who: &Principal,
    hold: HoldId,
    posted: PostedForm,
) -> Result<Result<(), WidgetFailure>, Failure> {
    let tried = deciding::decide(app, who, hold, &posted).await?;
    Ok(tried.map_err(|Objection { failure, pointer }| WidgetFailure { hold, failure, posted, pointer }))
}

//! One hold: what is asked, the call from the bytes that will run, and what can be decided (S4-17, S4-18).
//!
//! Nothing is left out without saying so: the buttons decide what is shown, and the raw bytes are one click away (T19).
//! How the call is rendered is `call.rs`, what stands around the hold `context.rs`.

use serde::Serialize;
use standfast_core::body::Body;
use standfast_core::event::Envelope;
use standfast_core::hold::{Escalation, HoldKind};
use standfast_core::id::HoldId;
use standfast_core::name::UserId;
use standfast_core::project::HoldClosure;
use standfast_core::receipt::{CallReceipt, Receipt};
use standfast_core::run::Run;
use standfast_core::time::{Millis, Timestamp};
use standfast_core::transcript::warned_approval_text;
use standfast_engine::HoldView;
use standfast_engine::tool::preview::CallPreview;

use super::ShownInstant;
use super::call::{self, CallShown, RiskShown};
use super::context::{self, Conversation};
use super::stakes::{self, Stakes};
use crate::html::{Failure, PostedForm};
use crate::http::filters::encoded;
use crate::labels;
use crate::labels::hidden_characters::{count_hidden, escaped_json};
use crate::web::fields::{AnswerForm, Field};
use crate::web::json_view::DataShown;
use crate::web::media::FileAccess;

/// The page.
#[derive(Debug, Serialize)]
pub(in crate::web) struct HoldPage {
    id: String,
    run: String,
    /// The runs that it works for, the root first.
    path: Vec<ParentRun>,
    agent: String,
    /// The inbox that its run is a task of.
    inbox: Option<String>,
    session: String,
    owner: String,
    kind: &'static str,
    title: String,
    opened: ShownInstant,
    /// When an external job is expected to end.
    expected: Option<ShownInstant>,
    expires: Option<ShownInstant>,
    is_late: bool,
    assignee: Option<String>,
    /// The list that it was opened from, as an address has it; the next hold of it opens after a decision.
    queue: Option<Queue>,
    /// What was just decided.
    done: Option<DoneLine>,
    conversation: Conversation,
    stakes: Stakes,
    /// Why whoever looks may not decide it.
    why_not: Option<String>,
    /// How lately whoever looks must have signed in to approve it, and where they do that.
    fresh_sign_in: Option<FreshSignIn>,
    unknown_because: String,
    risk: Option<RiskShown>,
    /// Why no single key approves it.
    needs_care: Option<&'static str>,
    /// Whoever looks has approved it already, and others must as well.
    has_agreed: bool,
    /// Neither the agent nor a tool asks.
    is_asked_by_server: bool,
    shown: Option<CallShown>,
    /// What went wrong with the decision that was just tried.
    notice: Option<Notice>,
    question: Option<String>,
    prompt: Option<String>,
    data: Option<DataShown>,
    /// The page of the login that is wanted.
    login: Option<String>,
    /// Whether the login is for whoever looks.
    may_log_in: bool,
    interim: Option<String>,
    external_ref: Option<String>,
    call: Option<Call>,
    /// How many hidden characters the page shows as marks.
    hidden: usize,
    digest: String,
    revision: u32,
    form: Form,
    /// Who is asked, where whoever looks may change it.
    people: Option<People>,
    /// Where further calls like this one can be approved with it.
    grant_offer: Option<String>,
    kept: EnteredValues,
    decided: Option<DecisionShown>,
}

/// A run above the one that waits.
#[derive(Debug, Serialize)]
struct ParentRun {
    run: String,
    agent: String,
}

/// Something to say first.
#[derive(Debug, Serialize)]
struct Notice {
    title: String,
    text: String,
}

/// The call that waits.
#[derive(Debug, Serialize)]
struct Call {
    no: u32,
    tool: String,
    description: Option<String>,
    digest: Option<String>,
}

/// The list that a hold was opened from.
#[derive(Debug, Clone, Serialize)]
pub(in crate::web) struct Queue {
    /// Its filters, as an address has them.
    pub(in crate::web) query: String,
    /// The same as one value of an address.
    pub(in crate::web) encoded: String,
    /// The hold behind this one.
    pub(in crate::web) next: Option<String>,
}

/// A decision that was just made, in a line.
#[derive(Debug, Serialize)]
pub(in crate::web) struct DoneLine {
    pub(in crate::web) id: String,
    pub(in crate::web) what: String,
}

/// What whoever may decide can do beside deciding.
#[derive(Debug, Serialize)]
struct People {
    /// Whether it is assigned to whoever looks.
    is_yours: bool,
    /// Whether it expired and was kept, so that it can get a new deadline.
    can_reopen: bool,
    /// Whether something of it was just tried.
    is_open: bool,
    /// Who decides in whose place.
    delegations: Vec<StandIn>,
    /// Who is asked as well by now, or will be.
    escalations: Vec<EscalationShown>,
}

/// Somebody who decides in another's place for a while.
#[derive(Debug, Serialize)]
struct StandIn {
    by: String,
    to: String,
    until: ShownInstant,
}

/// Others who are asked when nobody has decided for long enough.
#[derive(Debug, Serialize)]
struct EscalationShown {
    to: String,
    at: ShownInstant,
    is_done: bool,
}

/// What can be decided, as a form.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Form {
    /// Approve, other arguments, deny.
    Approval {
        /// The arguments to change, with hidden characters as escapes.
        arguments: String,
    },
    /// One button for each.
    Options { options: Vec<String> },
    /// A form from a schema.
    Fields { fields: Vec<Field> },
    /// A text box; with a schema for JSON.
    Text { schema: Option<String> },
    /// Run again, it happened, it did not happen.
    Recovery,
    /// Result or failure.
    External,
    /// Logged in, or not.
    Auth,
    /// A sub-run has its result.
    Child { run: String },
    /// The caller may look only.
    NotYours,
    /// There is nothing left to decide.
    Closed,
}

/// What was entered, to go on with after a mistake.
#[derive(Debug, Default, Serialize)]
struct EnteredValues {
    decision: Option<String>,
    arguments: Option<String>,
    reason: Option<String>,
    value: Option<String>,
    error: Option<String>,
}

/// The decision, and what came of it.
#[derive(Debug, Serialize)]
struct DecisionShown {
    what: &'static str,
    tone: &'static str,
    by: String,
    at: ShownInstant,
    said_label: Option<String>,
    said: Option<String>,
    late: bool,
    effect: Option<&'static str>,
    /// The hold that asks what became of the call.
    asked_since: Option<String>,
    attempts: Vec<Attempt>,
    contradictions: Vec<String>,
}

/// One start of the call.
#[derive(Debug, Serialize)]
struct Attempt {
    no: u32,
    at: ShownInstant,
    digest: Option<String>,
}

/// A decision that was tried and did not count.
pub(in crate::web) struct FailedDecision<'a> {
    pub(in crate::web) posted: &'a PostedForm,
    /// Why; none when nothing was decided because more room was asked for.
    pub(in crate::web) failure: Option<Failure>,
    /// JSON pointer to what is wrong in the value.
    pub(in crate::web) pointer: Option<&'a str>,
}

/// Everything that a page about a hold is made of.
pub(in crate::web) struct HoldPageParts<'a> {
    pub(in crate::web) run: &'a Run,
    pub(in crate::web) view: &'a HoldView,
    /// Who looks.
    pub(in crate::web) who: &'a UserId,
    pub(in crate::web) log: &'a [Envelope],
    /// How the run at the top began, of a sub-run.
    pub(in crate::web) root: &'a [Envelope],
    pub(in crate::web) preview: Option<CallPreview>,
    pub(in crate::web) receipt: Option<&'a Receipt>,
    pub(in crate::web) queue: Option<Queue>,
    pub(in crate::web) done: Option<DoneLine>,
    pub(in crate::web) grant_offer: Option<String>,
    pub(in crate::web) now: Timestamp,
}

/// Signing in again before one approves.
#[derive(Debug, Serialize)]
struct FreshSignIn {
    within: String,
    address: String,
}

impl FreshSignIn {
    fn of(view: &HoldView, max_age: Millis) -> FreshSignIn {
        let next = encoded(&format!("/approve/{}", view.row.id));
        let address = format!("/sign-in/start?next={next}&max_age={}", max_age.0 / 1000);
        FreshSignIn { within: labels::span(max_age), address }
    }
}

pub(in crate::web) fn page(parts: HoldPageParts<'_>, tried: Option<&FailedDecision<'_>>) -> HoldPage {
    let HoldPageParts { run, view, who, log, root, preview, receipt, queue, done, grant_offer, now } = parts;
    let (row, ask) = (&view.row, &view.ask);
    let inline = |body: &Option<Body>| body.as_ref().and_then(Body::inline).map(str::to_owned);
    let call = row.tool.as_ref().map(|tool| Call {
        no: row.id.key.call.0,
        tool: tool.to_string(),
        description: view.description.clone().filter(|text| !text.is_empty()),
        digest: row.digest.map(|digest| digest.to_string()),
    });
    let (question, data, interim) = (inline(&ask.question), inline(&ask.data), inline(&ask.interim));
    let (title, stakes) = (stakes::title(view), Stakes::of(view, who, now));
    let arguments = view.arguments.as_ref().map(|arguments| readable(arguments.text()));
    let (conversation, prompt) = (context::conversation(run, view, log, root), own_prompt(view));
    let login = login(view);
    let read = data.as_deref().map(readable);
    let description = call.as_ref().and_then(|call| call.description.clone());
    let around = [&question, &read, &interim, &arguments, &prompt, &description, &ask.external_ref];
    let texts = around.into_iter().flatten().chain(&ask.options);
    let shown = call::shown(view, preview, FileAccess::Open, now);
    let in_files = shown.as_ref().map_or(0, |shown| shown.hidden_in_files);
    let in_texts = texts.map(|text| count_hidden(text)).sum::<usize>();
    let hidden = in_texts + in_files + stakes.hidden() + conversation.hidden();
    let decided = row.closed.as_ref().map(|closed| decided((run, view), closed, receipt, now));
    HoldPage {
        id: row.id.to_string(),
        run: row.id.run.to_string(),
        path: view
            .path
            .iter()
            .map(|(run, agent)| ParentRun { run: run.to_string(), agent: agent.to_string() })
            .collect(),
        agent: row.agent.to_string(),
        inbox: row.inbox.as_ref().map(ToString::to_string),
        session: row.session.to_string(),
        owner: run.facts.owner.to_string(),
        kind: call::kind(view),
        opened: ShownInstant::new(row.opened_at, now),
        expected: ask.expected_at.map(|at| ShownInstant::new(at, now)),
        expires: row.expires_at.map(|at| ShownInstant::new(at, now)),
        is_late: row.closed.is_none() && row.expires_at.is_some_and(|at| at <= now),
        assignee: row.assignee.as_ref().map(ToString::to_string),
        queue,
        done,
        conversation,
        stakes,
        why_not: view.why_not.as_ref().map(ToString::to_string),
        fresh_sign_in: view.needs_sign_in.map(|max_age| FreshSignIn::of(view, max_age)),
        unknown_because: labels::unknown_because(view.unknown_because.as_ref()),
        risk: call::risk(view.risk),
        needs_care: call::care(view.risk, hidden),
        has_agreed: call::has_agreed(view, who),
        is_asked_by_server: view.is_asked_by_server,
        shown,
        notice: tried
            .and_then(|tried| tried.failure.as_ref())
            .map(|failure| Notice { title: failure.title.clone(), text: failure.text.clone() }),
        // The address that a login is asked for with is the button.
        question: question.filter(|question| *question != title && login.is_none()),
        title,
        prompt,
        login,
        may_log_in: view.may_log_in,
        data: ask.data.as_ref().and_then(DataShown::of),
        interim,
        external_ref: ask.external_ref.clone(),
        call,
        hidden,
        digest: row.digest.map(|digest| digest.to_string()).unwrap_or_default(),
        revision: row.revision,
        form: form(view, tried),
        people: people(run, view, who, tried, now),
        grant_offer,
        kept: tried.map(|tried| kept(tried.posted)).unwrap_or_default(),
        decided,
    }
}

/// Who is asked, for whoever may decide an open hold.
fn people(
    run: &Run,
    view: &HoldView,
    who: &UserId,
    tried: Option<&FailedDecision<'_>>,
    now: Timestamp,
) -> Option<People> {
    let hold = run.hold(view.row.id.key).filter(|_| view.may_decide && view.ask.child.is_none())?;
    let escalated = |is_done| {
        move |one: &Escalation| EscalationShown {
            to: one.to.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            at: ShownInstant::new(one.at, now),
            is_done,
        }
    };
    Some(People {
        is_yours: hold.assignee.as_ref() == Some(who),
        can_reopen: hold.expired_at.is_some(),
        is_open: tried.is_some_and(|tried| tried.posted.get("action").is_some()),
        delegations: hold
            .delegations
            .iter()
            .filter(|one| now < one.until)
            .map(|one| StandIn {
                by: one.by.to_string(),
                to: one.to.to_string(),
                until: ShownInstant::new(one.until, now),
            })
            .collect(),
        escalations: hold
            .escalated
            .iter()
            .map(escalated(true))
            .chain(hold.escalations.iter().map(escalated(false)))
            .collect(),
    })
}

/// The page of the login that a hold waits for, where there is one.
fn login(view: &HoldView) -> Option<String> {
    let data = view.ask.data.as_ref().and_then(Body::inline)?;
    let has_address = view.row.kind == HoldKind::Auth && data.contains(r#""auth_url""#);
    has_address.then(|| format!("/login/{}", view.row.id))
}

/// The text that the tool's owner wrote for approvers; the usual one says nothing that the page does not.
fn own_prompt(view: &HoldView) -> Option<String> {
    let (tool, arguments) = (view.row.tool.as_ref()?, view.arguments.as_ref()?);
    let usual = warned_approval_text(None, tool, arguments, view.ask.warning.as_deref());
    view.prompt.clone().filter(|prompt| *prompt != usual)
}

fn form(view: &HoldView, tried: Option<&FailedDecision<'_>>) -> Form {
    if view.row.closed.is_some() {
        return Form::Closed;
    }
    if !view.may_decide {
        return Form::NotYours;
    }
    match (view.row.kind, &view.ask.child) {
        (_, Some(child)) => Form::Child { run: child.to_string() },
        (HoldKind::Approval, None) => {
            let text = view.arguments.as_ref().map_or("", |arguments| arguments.text());
            Form::Approval { arguments: escaped_json(text).into_owned() }
        }
        (HoldKind::Input, None) => question(view, tried),
        (HoldKind::External, None) => Form::External,
        (HoldKind::Auth, None) => Form::Auth,
        (HoldKind::Recovery, None) => Form::Recovery,
    }
}

/// Options come first, then a form, then a text box.
fn question(view: &HoldView, tried: Option<&FailedDecision<'_>>) -> Form {
    if !view.ask.options.is_empty() {
        return Form::Options { options: view.ask.options.clone() };
    }
    match view.ask.answer_schema.as_ref().map(|schema| (schema, AnswerForm::read(schema))) {
        Some((_, Some(mut form))) => {
            if let Some(tried) = tried {
                form.keep(tried.posted);
                if let (Some(pointer), Some(failure)) = (tried.pointer, &tried.failure) {
                    form.blame(tried.posted, pointer, &failure.text);
                }
            }
            Form::Fields { fields: form.into_fields() }
        }
        Some((schema, None)) => Form::Text { schema: Some(schema.text().to_owned()) },
        None => Form::Text { schema: None },
    }
}

fn kept(posted: &PostedForm) -> EnteredValues {
    EnteredValues {
        decision: posted.get("decision"),
        arguments: posted.get("arguments"),
        reason: posted.get("reason"),
        value: posted.get("value"),
        error: posted.get("error"),
    }
}

fn decided(
    (run, view): (&Run, &HoldView),
    closed: &HoldClosure,
    receipt: Option<&Receipt>,
    now: Timestamp,
) -> DecisionShown {
    let said = view.recorded.as_ref().and_then(|recorded| labels::decided(&recorded.resolution));
    let (said_label, said) = said.map(|said| (said.label, said.text)).unzip();
    // A question runs nothing: what became of its call is its answer.
    let ran = |receipt: &'_ &Receipt| view.row.kind != HoldKind::Input && receipt.call.is_some();
    let call = receipt.filter(ran).and_then(|receipt| receipt.call.as_ref());
    let starts = |call: &CallReceipt| {
        call.attempts
            .iter()
            .map(|attempt| Attempt {
                no: attempt.attempt,
                at: ShownInstant::new(attempt.at, now),
                digest: attempt.digest.map(|digest| digest.to_string()),
            })
            .collect()
    };
    let contradicted = |call: &CallReceipt| {
        let told = |one: &standfast_core::receipt::Contradiction| {
            format!("{} reported a result of attempt {} anyway", labels::actor(&one.by), one.attempt)
        };
        call.contradictions.iter().map(told).collect()
    };
    DecisionShown {
        what: labels::decision(Some(view.row.kind), closed.how),
        tone: super::resolution_tone(closed.how),
        by: labels::actor(&closed.by),
        at: ShownInstant::new(closed.at, now),
        said_label,
        said,
        late: receipt.and_then(|receipt| receipt.decision.as_ref()).is_some_and(|decision| decision.late),
        effect: call.map(labels::effect),
        asked_since: asked_since(run, view),
        attempts: call.map(starts).unwrap_or_default(),
        contradictions: call.map(contradicted).unwrap_or_default(),
    }
}

/// The open hold that asks what became of the call of a decided one.
fn asked_since(run: &Run, view: &HoldView) -> Option<String> {
    let call = view.row.id.key.call;
    let asks = run.state.holds.iter().find(|hold| hold.kind == HoldKind::Recovery && hold.call() == call)?;
    Some(HoldId { run: run.facts.id, key: asks.key }.to_string())
}

/// With the characters that escapes stand for: those are what is shown.
pub(in crate::web) fn readable(json: &str) -> String {
    serde_json::from_str::<serde_json::Value>(json)
        .map_or_else(|_| json.to_owned(), |value| value.to_string())
}

//! What a task that waits asks: one text for people, and one data part for each open hold (S3-5 … S3-8).
//!
//! The text of an approval is its tool's own or the default one; both come ready from the engine.

use serde::Serialize;
use standfast_core::body::Body;
use standfast_core::hold::{Finding, Hold, HoldKind, Risk};
use standfast_core::id::{CallId, CallNo, MessageId};
use standfast_core::message::shown_input;
use standfast_engine::HoldView;

use super::{PartKind, TaskIds, body_part, raw, wire};
use crate::http::rfc3339;

/// What a program needs to answer a hold.
#[derive(Serialize)]
struct Interaction<'a> {
    interaction_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_input: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    question: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    options: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<wire::Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer_schema: Option<wire::Json>,
    hold_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    /// When it expired, if a late answer is still taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    expired_at: Option<String>,
    /// Until when a late answer is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    grace_ends_at: Option<String>,
    /// Who has agreed, and how many more must, where several have to.
    #[serde(skip_serializing_if = "Option::is_none")]
    votes: Option<Votes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    assignee: Option<String>,
    /// Why the rules that hold it do.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    because: &'a [String],
    /// How bad it can get, as the rules say.
    #[serde(skip_serializing_if = "Option::is_none")]
    risk: Option<&'static str>,
    /// Whether it can be undone, as the rules say.
    #[serde(skip_serializing_if = "Option::is_none")]
    reversible: Option<bool>,
    /// What was looked up before anybody was asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    findings: Vec<ShownFinding<'a>>,
}

/// What a read-only call said before people were asked.
#[derive(Serialize)]
struct ShownFinding<'a> {
    tool: &'a str,
    arguments: &'a str,
    result: &'a str,
    /// It could not be asked; the result says why.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    failed: bool,
}

impl<'a> ShownFinding<'a> {
    fn of(found: &'a Finding) -> ShownFinding<'a> {
        let Finding { tool, arguments, result, fails, digest: _ } = found;
        ShownFinding { tool, arguments, result, failed: *fails }
    }

    /// The same for people.
    fn line(&self) -> String {
        let said = if self.failed { "could not be asked" } else { "was asked, and said" };
        format!("\n\n{} {said}: {}", self.tool, self.result)
    }
}

/// How the vote on a hold stands.
#[derive(Serialize)]
struct Votes {
    agreed: Vec<String>,
    missing: u32,
}

/// Whether clients are asked about holds of this kind. What an outside system owes nobody else can give.
pub(in crate::a2a) fn listed(kind: HoldKind) -> bool {
    match kind {
        HoldKind::Approval | HoldKind::Input | HoldKind::Auth | HoldKind::Recovery => true,
        HoldKind::External => false,
    }
}

/// The question of a task that waits; none when it asks nobody.
pub(in crate::a2a) fn prompt(place: TaskIds<'_>, views: &[HoldView]) -> Option<wire::Message> {
    let asked: Vec<&HoldView> = views.iter().filter(|view| listed(view.row.kind)).collect();
    let last = asked.last()?;
    let id = MessageId { run: last.row.id.run, seq: last.row.at };
    let texts: Vec<String> = asked.iter().map(|view| marked(view)).collect();
    let mut parts = vec![wire::Part::text(texts.join("\n\n"))];
    parts.extend(asked.iter().map(|view| wire::Part::data(&interaction(view))));
    Some(place.agent(id, parts))
}

/// The text of a hold, behind what has to be known of it: that its time has passed, that several must agree.
fn marked(view: &HoldView) -> String {
    let expired = view.row.expired_at.map(|at| {
        let until = view.open.as_ref().and_then(Hold::grace_ends_at);
        let until = until.map_or(String::new(), |until| format!(" until {}", rfc3339(until)));
        format!("⏰ Expired at {}; a late answer is still taken{until}.\n\n", rfc3339(at))
    });
    let several = votes(view).map(|votes| {
        let agreed = if votes.agreed.is_empty() { "nobody".to_owned() } else { votes.agreed.join(", ") };
        format!("\n\nAgreed so far: {agreed}; {} more must agree.", votes.missing)
    });
    let found: String = findings(view).iter().map(ShownFinding::line).collect();
    [expired.unwrap_or_default(), text(view), found, several.unwrap_or_default()].concat()
}

fn findings(view: &HoldView) -> Vec<ShownFinding<'_>> {
    view.ask.stakes.findings.iter().map(ShownFinding::of).collect()
}

/// How the vote stands, where several must agree.
fn votes(view: &HoldView) -> Option<Votes> {
    let open = view.open.as_ref().filter(|open| open.has_quorum())?;
    let agreed = open.votes.iter().map(ToString::to_string).collect();
    Some(Votes { agreed, missing: open.votes_missing() })
}

fn question(view: &HoldView) -> Option<&str> {
    view.ask.question.as_ref().and_then(Body::inline)
}

fn text(view: &HoldView) -> String {
    let asked = || question(view).or(view.ask.reason.as_deref()).map(str::to_owned);
    match view.row.kind {
        HoldKind::Approval => {
            view.prompt.clone().or_else(asked).unwrap_or_else(|| "Approval is needed.".into())
        }
        HoldKind::Input | HoldKind::External => asked().unwrap_or_else(|| "An answer is needed.".into()),
        HoldKind::Auth => asked().unwrap_or_else(|| "A login is needed.".into()),
        HoldKind::Recovery => format!(
            "⚠️ Outcome Unknown\n\nTool: {}\nInput: {}\n\nThe call was started and its outcome is unknown. \
             Please respond with one of: run_again, happened, did_not_happen",
            view.row.tool.as_ref().map_or("", |tool| tool.as_str()),
            tool_input(view).unwrap_or_default()
        ),
    }
}

fn tool_input(view: &HoldView) -> Option<String> {
    view.arguments.as_ref().map(shown_input)
}

fn interaction(view: &HoldView) -> Interaction<'_> {
    let (row, ask) = (&view.row, &view.ask);
    let (interaction_type, options) = match row.kind {
        HoldKind::Approval => ("tool_approval", vec!["approve", "deny", "modify"]),
        HoldKind::Input | HoldKind::External => ("input", ask.options.iter().map(String::as_str).collect()),
        HoldKind::Auth => ("auth", ask.options.iter().map(String::as_str).collect()),
        HoldKind::Recovery => ("recovery", vec!["run_again", "happened", "did_not_happen"]),
    };
    let is_about_a_call = match row.kind {
        HoldKind::Approval | HoldKind::Recovery => true,
        // The tool that asks is not what people are asked about.
        HoldKind::Input | HoldKind::External | HoldKind::Auth => false,
    };
    let call = row.id.key.call;
    Interaction {
        interaction_type,
        tool_name: row.tool.as_ref().filter(|_| is_about_a_call).map(|tool| tool.as_str()),
        tool_input: tool_input(view).filter(|_| is_about_a_call),
        reason: ask.reason.as_deref(),
        question: question(view),
        options,
        data: ask.data.as_ref().and_then(|data| body_part(data, PartKind::Data).data),
        answer_schema: ask.answer_schema.as_ref().and_then(raw),
        hold_id: row.id.to_string(),
        tool_call_id: (call != CallNo::RUN).then(|| CallId { run: row.id.run, no: call }.to_string()),
        digest: row.digest.filter(|_| is_about_a_call).map(|digest| digest.to_string()),
        expires_at: row.expires_at.map(rfc3339),
        expired_at: row.expired_at.map(rfc3339),
        grace_ends_at: view.open.as_ref().and_then(Hold::grace_ends_at).map(rfc3339),
        because: &ask.stakes.because,
        risk: ask.stakes.risk.map(Risk::as_str),
        reversible: ask.stakes.reversible,
        findings: findings(view),
        votes: votes(view),
        assignee: row.assignee.as_ref().map(ToString::to_string),
    }
}

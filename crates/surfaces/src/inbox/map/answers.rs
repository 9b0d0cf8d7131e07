//! What people are asked, and what their answers mean (C36).
//!
//! Options and text boxes send the bare string, forms the object. An answer never settles an approval (C25): that takes
//! one of its words, `approved`, or a decision.

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use standfast_core::body::Body;
use standfast_core::command::Choice;
use standfast_core::hold::{Ask, Hold, HoldKind};
use standfast_core::id::{CallNo, HoldId};
use standfast_core::run::status as core_status;
use standfast_engine::{HoldView, TaskView};

use super::{json, raw, status, value};
use crate::http::{Problem, rfc3339};
use crate::inbox::error;
use crate::inbox::wire::{Object, TaskStatus};

/// What an approval takes, as options.
const APPROVAL: [&str; 3] = ["approve", "deny", "modify"];
/// What an unknown outcome takes, as options.
const RECOVERY: [&str; 3] = ["run_again", "happened", "did_not_happen"];

/// The question that a payload is meant for.
pub(in crate::inbox) fn hold_to_resume<'a>(
    task: &'a TaskView,
    named: Option<&str>,
) -> Result<&'a HoldView, Problem> {
    let id = task.run.facts.id.to_string();
    let open: Vec<HoldId> = task.waits_for.iter().map(|hold| hold.row.id).collect();
    match (named, task.waits_for.as_slice()) {
        (_, []) => Err(match status(core_status(&task.run), &task.below) {
            // It waits for somebody else.
            TaskStatus::WaitingForInput => error::not_yours(&id),
            other @ (TaskStatus::Pending
            | TaskStatus::Claimed
            | TaskStatus::InProgress
            | TaskStatus::Completed
            | TaskStatus::Failed
            | TaskStatus::Cancelled) => error::not_waiting(&id, other),
        }),
        (None, [only]) => Ok(only),
        (None, [_, _, ..]) => Err(error::which_hold(&id, &open)),
        (Some(named), holds) => {
            let found = holds.iter().find(|hold| hold.row.id.to_string() == named);
            found.ok_or_else(|| error::which_hold(&id, &open))
        }
    }
}

/// What an answer decides.
pub(in crate::inbox) fn wanted(hold: &HoldView, payload: &RawValue) -> Result<Choice, Problem> {
    // Members that stand twice are refused before anything is read from them.
    json("payload", payload)?;
    match hold.row.kind {
        HoldKind::Input | HoldKind::External => Ok(Choice::Answer { value: value("payload", payload)? }),
        HoldKind::Approval => approval(payload),
        HoldKind::Recovery => recovery(payload),
        HoldKind::Auth => {
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields)]
            struct Login {
                authorized: bool,
            }
            match serde_json::from_str(payload.get()) {
                Ok(Login { authorized: true }) => Ok(Choice::Answer { value: value("payload", payload)? }),
                Ok(Login { authorized: false }) => Ok(Choice::Deny { reason: None }),
                Err(_) => {
                    Err(Problem::invalid(r#"a login takes {"authorized": true} or {"authorized": false}"#))
                }
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decision {
    approved: Option<bool>,
    decision: Option<String>,
    modified_input: Option<Box<RawValue>>,
    reason: Option<String>,
    result: Option<Box<RawValue>>,
}

impl Decision {
    /// A bare word, or an object.
    fn read(payload: &RawValue) -> Option<Decision> {
        let word = serde_json::from_str::<String>(payload.get()).ok();
        let of_word = |word| Decision {
            approved: None,
            decision: Some(word),
            modified_input: None,
            reason: None,
            result: None,
        };
        word.map(of_word).or_else(|| serde_json::from_str(payload.get()).ok())
    }
}

fn approval(payload: &RawValue) -> Result<Choice, Problem> {
    let read = Decision::read(payload).filter(|read| read.result.is_none());
    let wrong = || {
        Problem::invalid(
            r#"an approval takes "approve", "deny", {"approved": true or false}, or {"decision": "approve", "deny" or "modify", "modified_input"?, "reason"?}"#,
        )
    };
    let Decision { approved, decision, modified_input, reason, .. } = read.ok_or_else(wrong)?;
    match (approved, decision.as_deref(), modified_input) {
        (Some(true), None, None) | (None, Some("approve"), None) => Ok(Choice::Approve),
        (Some(false), None, None) | (None, Some("deny"), None) => Ok(Choice::Deny { reason }),
        (None, Some("modify"), Some(input)) => {
            Ok(Choice::ApproveEdited { arguments: json("modified_input", &input)? })
        }
        (None, Some("modify"), None) => {
            Err(Problem::invalid("modify needs modified_input: what to run instead"))
        }
        (_, _, _) => Err(wrong()),
    }
}

fn recovery(payload: &RawValue) -> Result<Choice, Problem> {
    let wrong = || {
        Problem::invalid(
            r#"an unknown outcome takes "run_again", "did_not_happen", or {"decision": "happened", "result": …}"#,
        )
    };
    let Decision { decision, result, reason, .. } = Decision::read(payload).ok_or_else(wrong)?;
    match (decision.as_deref(), result) {
        (Some("run_again"), None) => Ok(Choice::Approve),
        (Some("did_not_happen"), None) => Ok(Choice::Deny { reason }),
        (Some("happened"), Some(result)) => Ok(Choice::Answer { value: value("result", &result)? }),
        (_, _) => Err(wrong()),
    }
}

#[derive(Serialize)]
struct HeldCall<'a> {
    hold_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_input: Option<&'a str>,
}

/// What people are asked by an open hold.
pub(in crate::inbox) fn suspend_payload(hold: &HoldView) -> Object {
    let held = || HeldCall {
        hold_id: hold.row.id.to_string(),
        tool_name: hold.row.tool.as_ref().map(|tool| tool.as_str()),
        tool_input: hold.arguments.as_ref().map(|arguments| arguments.text()),
    };
    let by_rule = |reason: &str, question: Option<String>, options: &[&str]| {
        let reason = hold.ask.reason.as_deref().unwrap_or(reason);
        let mut payload = Object::new();
        put(&mut payload, "reason", &reason);
        if let Some(question) = question {
            put(&mut payload, "question", &question);
        }
        put(&mut payload, "options", &options);
        put(&mut payload, "data", &held());
        payload
    };
    let mut payload = match hold.row.kind {
        HoldKind::Approval => by_rule("Approval needed", hold.prompt.clone(), &APPROVAL),
        HoldKind::Recovery => {
            let question = "Its outcome is unknown. Did it happen?".to_owned();
            by_rule("Outcome unknown", Some(question), &RECOVERY)
        }
        HoldKind::Auth => {
            let question = hold.ask.question.as_ref().and_then(Body::inline).map(str::to_owned);
            by_rule("Login needed", question, &[])
        }
        HoldKind::Input | HoldKind::External => {
            asked_by_worker(&hold.ask, hold.row.id.key.call == CallNo::RUN && hold.ask.data.is_some())
        }
    };
    // Its time has passed, and a late answer is still taken. What a worker says itself stays as it is.
    let ends = hold.open.as_ref().and_then(Hold::grace_ends_at).filter(|_| hold.row.expired_at.is_some());
    for (name, at) in [("expiredAt", hold.row.expired_at), ("graceEndsAt", ends)] {
        if let Some(at) = at.filter(|_| !payload.contains_key(name)) {
            put(&mut payload, name, &rfc3339(at));
        }
    }
    payload
}

/// What a model or a worker asks. An outside worker's payload stands beside the reason, a model's `data` is a member.
pub(super) fn asked_by_worker(ask: &Ask, is_outside: bool) -> Object {
    let mut payload = Object::new();
    let merged = match &ask.data {
        Some(Body::Json(data)) if is_outside => serde_json::from_str::<Object>(data.text()).ok(),
        Some(_) | None => None,
    };
    let is_merged = merged.is_some();
    payload.extend(merged.into_iter().flatten());
    if let Some(reason) = &ask.reason {
        put(&mut payload, "reason", reason);
    }
    if is_merged {
        return payload;
    }
    if let Some(question) = ask.question.as_ref().and_then(raw) {
        payload.insert("question".into(), question);
    }
    if !ask.options.is_empty() {
        put(&mut payload, "options", &ask.options);
    }
    if let Some(data) = ask.data.as_ref().and_then(raw) {
        payload.insert("data".into(), data);
    }
    payload
}

fn put(payload: &mut Object, name: &str, value: &impl Serialize) {
    if let Ok(raw) = to_raw_value(value) {
        payload.insert(name.into(), raw);
    }
}

//! What `approve` means for each kind of hold, and where it needs more than that word (C31).
//!
//! An approval is a yes. A question needs its answer, an unknown outcome what is true; a login is said to be there.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use standfast_core::body::Body;
use standfast_core::command::Choice;
use standfast_core::hold::HoldKind;
use standfast_core::id::{CallId, HoldId};
use standfast_core::json::RawJson;
use standfast_engine::{HoldDecision, HoldView};

/// What approving a hold takes beside the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::teal) enum Needs {
    /// Nothing.
    Nothing,
    /// Something may be said.
    Maybe,
    /// The answer to a question.
    Answer,
    /// What a call did.
    Truth,
}

pub(in crate::teal) fn needs(kind: HoldKind) -> Option<Needs> {
    match kind {
        HoldKind::Approval => Some(Needs::Nothing),
        HoldKind::Auth => Some(Needs::Maybe),
        HoldKind::Input => Some(Needs::Answer),
        HoldKind::Recovery => Some(Needs::Truth),
        // Its result is not a person's to give here (C25).
        HoldKind::External => None,
    }
}

/// The decision on each of these holds that an approval with this payload is. Where several need an answer, the payload
/// has one for each, under the id of its call.
pub(in crate::teal) fn resolutions(
    holds: &[&HoldView],
    payload: Option<&RawValue>,
) -> Result<Vec<HoldDecision>, String> {
    let wanting =
        holds.iter().filter(|view| matches!(needs(view.row.kind), Some(Needs::Answer | Needs::Truth)));
    let by_call: Option<BTreeMap<String, Box<RawValue>>> = match wanting.count() {
        0 | 1 => None,
        _ => {
            let given = payload.and_then(|payload| serde_json::from_str(payload.get()).ok());
            Some(given.ok_or(
                "several answers are required: payload must be an object with one answer for each id in tool_calls",
            )?)
        }
    };
    let mut each = Vec::new();
    for view in holds {
        let Some(needs) = needs(view.row.kind) else { continue };
        let call = call_id(view.row.id);
        let own = match &by_call {
            Some(answers) => answers.get(&call).map(AsRef::as_ref),
            None => payload,
        };
        let missing = || format!("approving {call} needs a payload: {}", wanted_payload(needs));
        let wanted = match needs {
            Needs::Nothing => Choice::Approve,
            Needs::Maybe => Choice::Answer { value: own.map_or_else(|| Ok(Body::text("logged in")), body)? },
            Needs::Answer => Choice::Answer { value: body(own.ok_or_else(missing)?)? },
            Needs::Truth => truth(own.ok_or_else(missing)?)?,
        };
        each.push(HoldDecision { hold: view.row.id.key, wanted, digest: None, revision: None });
    }
    Ok(each)
}

fn wanted_payload(needs: Needs) -> &'static str {
    match needs {
        Needs::Nothing | Needs::Maybe => "none",
        Needs::Answer => "the answer to its question",
        Needs::Truth => TRUTH,
    }
}

const TRUTH: &str =
    r#"{"decision": "run_again" | "happened" | "did_not_happen", "result": what came of it, if it happened}"#;

fn call_id(hold: HoldId) -> String {
    CallId { run: hold.run, no: hold.key.call }.to_string()
}

/// A text is an answer in words; everything else stays the JSON that it is.
fn body(raw: &RawValue) -> Result<Body, String> {
    if let Ok(text) = serde_json::from_str::<String>(raw.get()) {
        return Ok(Body::text(text));
    }
    RawJson::parse(raw.get()).map(Body::Json).map_err(|bad| format!("invalid payload: {bad}"))
}

/// What nobody knew: nothing but these words says it (C23).
fn truth(raw: &RawValue) -> Result<Choice, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Truth {
        decision: Word,
        result: Option<Box<RawValue>>,
        reason: Option<String>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Word {
        RunAgain,
        Happened,
        DidNotHappen,
    }
    let misfit = |_| format!("the outcome of this call is unknown; payload must be {TRUTH}");
    let said: Truth = serde_json::from_str(raw.get()).map_err(misfit)?;
    match (said.decision, said.result) {
        (Word::RunAgain, None) => Ok(Choice::Approve),
        (Word::DidNotHappen, None) => Ok(Choice::Deny { reason: said.reason }),
        (Word::Happened, Some(result)) => Ok(Choice::Answer { value: body(&result)? }),
        (Word::Happened, None) => Err("it happened: say its result".into()),
        (Word::RunAgain | Word::DidNotHappen, Some(_)) => Err("only what happened has a result".into()),
    }
}

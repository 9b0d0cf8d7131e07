//! What a posted form decides: digest and revision as they were shown, and what is wanted.
//!
//! Reads only; whether the decision counts is the engine's to say.

use standfast_core::body::Body;
use standfast_core::command::Choice;
use standfast_core::digest;
use standfast_core::hold::HoldKind;
use standfast_core::json::RawJson;
use standfast_engine::{Decision, HoldView, IdempotencyKey};

use super::fields::AnswerForm;
use crate::html::PostedForm;
use crate::labels::hidden_characters::escaped_json;

/// Why a form says nothing that could be decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mistake(pub(super) String);

/// What the button of a list says before the name of the list; it decides nothing.
const MORE: &str = "more:";

/// Whether a form asks for one more entry of a list.
pub(super) fn asks_for_more(posted: &PostedForm) -> bool {
    posted.get("decision").is_some_and(|word| word.starts_with(MORE))
}

/// The decision that a form is.
pub(super) fn decision(view: &HoldView, posted: &PostedForm) -> Result<Decision, Mistake> {
    let word = posted.get("decision").unwrap_or_default();
    let shown = |name: &str| posted.get(name).filter(|value| !value.is_empty());
    let unreadable = || Mistake("The form is incomplete. Reload the page.".into());
    // A form always repeats what it was shown with: a page that is out of date decides nothing.
    let revision = shown("revision").and_then(|text| text.parse().ok()).ok_or_else(unreadable)?;
    let digest = match (view.row.digest, shown("digest")) {
        (Some(_), None) => return Err(unreadable()),
        (_, given) => given.map(|text| text.parse()).transpose().map_err(|_| unreadable())?,
    };
    Ok(Decision {
        hold: view.row.id,
        wanted: wanted(view, posted, &word)?,
        digest,
        revision: Some(revision),
        once: shown("once").map(|nonce| {
            // The nonce is the page's own, so a click that is sent again is the same click whatever else it carries.
            let key = format!("page:{nonce}:{word}");
            let request = digest::of_bytes(key.as_bytes());
            IdempotencyKey::new(format!("/approve/{}", view.row.id), key, request)
        }),
    })
}

fn wanted(view: &HoldView, posted: &PostedForm, word: &str) -> Result<Choice, Mistake> {
    let text = |name: &str| posted.get(name).filter(|text| !text.trim().is_empty());
    let needed = |what: &str| Mistake(format!("{what} Nothing was decided."));
    match word {
        "approve" => Ok(Choice::Approve),
        "edit" => {
            let entered = text("arguments").ok_or_else(|| needed("Arguments are missing."))?;
            let is_unchanged =
                view.arguments.as_ref().is_some_and(|shown| escaped_json(shown.text()) == entered);
            if is_unchanged {
                Ok(Choice::Approve)
            } else {
                Ok(Choice::ApproveEdited { arguments: json(&entered)? })
            }
        }
        "deny" => Ok(Choice::Deny { reason: text("reason") }),
        "option" => {
            let chosen = posted.get("option").and_then(|at| at.parse::<usize>().ok());
            let option = chosen.and_then(|at| view.ask.options.get(at));
            let option = option.ok_or_else(|| needed("Choose one of the options."))?;
            Ok(Choice::Answer { value: Body::text(option.clone()) })
        }
        "fields" => {
            let form = view.ask.answer_schema.as_ref().and_then(AnswerForm::read);
            let answer = form.and_then(|form| form.answer(posted));
            Ok(Choice::Answer { value: words(answer.ok_or_else(|| needed("The answer is missing."))?) })
        }
        "answer" => {
            let entered = text("value").ok_or_else(|| needed("The answer is missing."))?;
            Ok(Choice::Answer { value: answer(view, entered)? })
        }
        "fail" => {
            let error = text("error").ok_or_else(|| needed("Enter what went wrong."))?;
            Ok(Choice::Fail { error: Body::text(error) })
        }
        _ => Err(needed("The form has no decision.")),
    }
}

/// A question with a schema wants JSON, any other question a text; a result is JSON if it looks like it.
fn answer(view: &HoldView, entered: String) -> Result<Body, Mistake> {
    match (view.row.kind, &view.ask.answer_schema) {
        (HoldKind::Input, Some(_)) => Ok(words(json(&entered)?)),
        (HoldKind::Input, None) => Ok(Body::Text(entered)),
        (HoldKind::Approval | HoldKind::External | HoldKind::Auth | HoldKind::Recovery, _) => {
            let looks_like_json = entered.trim_start().starts_with(['{', '[']);
            match RawJson::parse(&entered) {
                Ok(json) if looks_like_json => Ok(Body::Json(json)),
                Ok(_) | Err(_) => Ok(Body::Text(entered)),
            }
        }
    }
}

fn json(text: &str) -> Result<RawJson, Mistake> {
    RawJson::parse(text).map_err(|bad| {
        let bad = bad.to_string();
        let rest = bad.strip_prefix('t').map_or(bad.clone(), |rest| format!("T{rest}"));
        Mistake(format!("{rest}. Nothing was decided."))
    })
}

fn words(json: RawJson) -> Body {
    serde_json::from_str::<String>(json.text()).map_or(Body::Json(json), Body::Text)
}

//! Whether what a person decided with fits: edited arguments the tool's pinned schema, answers what was asked.
//!
//! Says nothing of kinds and authority; those are the core's, and its refusals come first where they apply.

use standfast_core::body::Body;
use standfast_core::command::Choice;
use standfast_core::definition::Definition;
use standfast_core::hold::{Ask, HoldKind};
use standfast_core::json::RawJson;
use standfast_core::project::HoldRow;

use super::Submit;
use crate::EngineError;
use crate::log::Snapshot;
use crate::log::asked;
use crate::schema::{self, SchemaMismatch};

impl Submit {
    /// Refuses a decision whose value breaks the schema that it must keep to.
    pub(super) async fn refuse_misfit(
        &self,
        hold: &HoldRow,
        wanted: &Choice,
        definition: &Definition,
        snapshot: &Snapshot,
    ) -> Result<(), EngineError> {
        let checked = match wanted {
            Choice::ApproveEdited { arguments } if hold.kind == HoldKind::Approval => {
                let spec = hold.tool.as_ref().and_then(|tool| definition.tools.get(tool));
                spec.map_or(Ok(()), |spec| schema::check(&spec.schema, arguments))
            }
            Choice::Answer { value } if matches!(hold.kind, HoldKind::Input | HoldKind::External) => {
                // In an inbox what is not text is passed to the model as it stands (S4-16, C23).
                let ask = asked(hold, snapshot.log().await?);
                let passes = hold.inbox.is_some() && matches!(value, Body::Json(_));
                if passes && ask.answer_schema.is_none() { Ok(()) } else { answer_fits(&ask, value) }
            }
            Choice::Approve
            | Choice::ApproveEdited { .. }
            | Choice::Deny { .. }
            | Choice::Answer { .. }
            | Choice::Fail { .. }
            | Choice::Withdraw => Ok(()),
        };
        checked.map_err(EngineError::BreaksSchema)
    }
}

/// The schema decides where there is one; else the options, where there are some.
fn answer_fits(ask: &Ask, value: &Body) -> Result<(), SchemaMismatch> {
    let as_json = || match value {
        Body::Text(text) => Some(RawJson::string(text)),
        Body::Json(json) => Some(json.clone()),
        Body::Blob(_) => None,
    };
    match (&ask.answer_schema, as_json()) {
        (Some(schema), Some(json)) => schema::check(schema, &json),
        (None, _) if ask.options.is_empty() => Ok(()),
        (None, _) if ask.options.iter().any(|option| value.inline() == Some(option)) => Ok(()),
        (None, _) | (Some(_), None) => {
            let why = format!("the answer must be one of: {}", ask.options.join(", "));
            Err(SchemaMismatch { pointer: String::new(), why })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_keeps_to_the_schema_else_to_the_options() {
        let json = |text: &str| RawJson::parse(text).unwrap();
        let schema =
            Ask { answer_schema: Some(json(r#"{"type":"string","maxLength":3}"#)), ..Ask::default() };
        let options = Ask { options: vec!["blue".into(), "green".into()], ..Ask::default() };
        for (ask, value, fits) in [
            (&schema, Body::text("abc"), true),
            (&schema, Body::text("abcd"), false),
            (&schema, Body::Json(json("1")), false),
            (&options, Body::text("blue"), true),
            (&options, Body::text("red"), false),
            (&Ask::default(), Body::text("anything"), true),
        ] {
            assert_eq!(answer_fits(ask, &value).is_ok(), fits, "{value:?}");
        }
    }
}

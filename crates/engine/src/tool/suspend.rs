//! The tool `suspend-for-input` (S4-11): the model itself judges when to ask, and the call waits for a person.
//!
//! Nothing happens here but reading what is asked. The hold, its deadline and the answer are the engine's.

use serde::Deserialize;
use standfast_core::body::Body;
use standfast_core::command::SuspendFor;
use standfast_core::definition::ToolSpec;
use standfast_core::hold::Ask;
use standfast_core::json::RawJson;
use standfast_core::message::{Replay, ToolResult};

use super::{Invocation, Outcome, Suspension, Tool, ToolFuture};

/// Its name, unless an agent calls it otherwise.
pub const NAME: &str = "suspend-for-input";

/// What models know it by when they work on a task of an inbox (C36).
pub const IN_INBOXES: &str = "suspend";

/// How it is described to the model.
const DESCRIPTION: &str = "Pause task execution to request human input";

/// What it takes.
const SCHEMA: &str = r#"{"type":"object","properties":{"reason":{"type":"string"},"question":{"type":"string"},"options":{"type":"array","items":{"type":"string"}},"data":{},"resumeSchema":{"type":"object"}},"required":["reason"],"additionalProperties":false}"#;

/// Asks a person; the answer is the result of the call.
#[derive(Debug, Clone, Copy, Default)]
pub struct SuspendForInput;

impl SuspendForInput {
    /// How it is described to a model. Asking twice harms nobody, so a lost start is repeated without asking about it.
    #[must_use]
    pub fn spec() -> ToolSpec {
        let Ok(schema) = RawJson::parse(SCHEMA) else { unreachable!("the schema is a constant") };
        ToolSpec {
            description: DESCRIPTION.into(),
            schema,
            replay: Replay::Idempotent,
            reversible: true,
            approval_prompt: None,
            holds: None,
        }
    }
}

impl Tool for SuspendForInput {
    fn run(&self, invocation: Invocation) -> ToolFuture {
        let outcome = match ask(&invocation.arguments) {
            Ok(ask) => Outcome::Pending(Box::new(Suspension {
                kind: SuspendFor::Input,
                ask,
                timeout: None,
                secret: None,
            })),
            Err(bad) => Outcome::Done(ToolResult::Failed(Body::text(format!("nobody was asked: {bad}")))),
        };
        Box::pin(std::future::ready(outcome))
    }
}

/// Why nobody can be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAsk {
    /// The arguments are not what the tool takes.
    #[error("the arguments do not fit {NAME}: {0}")]
    Input(String),
    /// A schema that is not an object.
    #[error("`resumeSchema` must be a JSON object")]
    Schema,
}

/// What is asked, from the argument text; `data` and the schema keep their bytes.
fn ask(arguments: &str) -> Result<Ask, BadAsk> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Input {
        reason: String,
        question: Option<String>,
        options: Option<Vec<String>>,
        data: Option<RawJson>,
        #[serde(rename = "resumeSchema")]
        resume_schema: Option<RawJson>,
    }
    // Also finds members that stand twice somewhere inside `data`.
    RawJson::parse(arguments).map_err(|error| BadAsk::Input(error.to_string()))?;
    let input: Input = serde_json::from_str(arguments).map_err(|error| BadAsk::Input(error.to_string()))?;
    if input.resume_schema.as_ref().is_some_and(|schema| !schema.text().starts_with('{')) {
        return Err(BadAsk::Schema);
    }
    Ok(Ask {
        reason: Some(input.reason),
        question: input.question.map(Body::text),
        options: input.options.unwrap_or_default(),
        answer_schema: input.resume_schema,
        data: input.data.map(Body::Json),
        ..Ask::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S4-11, S4-15: the model starts the pause, and says why, what it asks and what may be answered.
    #[test]
    fn everything_that_is_asked_reaches_the_person_byte_for_byte() {
        let asked = ask(r#"{"reason": "two invoices", "question": "Which one?", "options": ["A", "B"],
               "data": {"total": 9007199254740993, "b" : [1.0]}, "resumeSchema": {"type" : "string"}}"#)
        .unwrap();
        let expected = Ask {
            reason: Some("two invoices".into()),
            question: Some(Body::text("Which one?")),
            options: vec!["A".into(), "B".into()],
            data: Some(Body::Json(RawJson::parse(r#"{"total": 9007199254740993, "b" : [1.0]}"#).unwrap())),
            answer_schema: Some(RawJson::parse(r#"{"type" : "string"}"#).unwrap()),
            ..Ask::default()
        };
        assert_eq!(asked, expected);
    }

    #[test]
    fn a_reason_is_enough() {
        let expected = Ask { reason: Some("stuck".into()), ..Ask::default() };
        assert_eq!(ask(r#"{"reason": "stuck"}"#), Ok(expected));
    }

    #[test]
    fn what_cannot_be_asked_says_why() {
        let why = |text: &str| ask(text).unwrap_err().to_string();
        assert!(why("{}").contains("missing field `reason`"), "{}", why("{}"));
        assert!(why(r#"{"reason": 1}"#).contains("expected a string"));
        assert!(why(r#"{"reason": "x", "options": [1]}"#).contains("expected a string"));
        assert!(why(r#"{"reason": "x", "who": "me"}"#).contains("unknown field `who`"));
        assert!(why(r#"{"reason": "x", "data": {"a": 1, "a": 2}}"#).contains("more than once"));
        assert_eq!(why(r#"{"reason": "x", "resumeSchema": true}"#), BadAsk::Schema.to_string());
        assert!(why("no").contains("not JSON"));
    }

    #[tokio::test]
    async fn a_good_call_waits_for_a_person_and_a_bad_one_fails() {
        let outcome = |arguments: &str| {
            let run = standfast_core::id::RunId::new(
                &standfast_core::name::Tenant::default_tenant(),
                standfast_core::id::StorageKind::Durable,
                standfast_core::time::Timestamp(0),
                [0; 5],
            );
            let call = standfast_core::id::CallId { run, no: standfast_core::id::CallNo(1) };
            let pending = standfast_core::id::HoldId {
                run,
                key: standfast_core::id::HoldKey {
                    call: call.no,
                    secret: standfast_core::id::Secret([0; 16]),
                },
            };
            SuspendForInput.run(Invocation {
                call,
                attempt: 1,
                arguments: arguments.into(),
                tool: standfast_core::name::ToolName::new(NAME).unwrap(),
                session: standfast_core::name::SessionId::new("s").unwrap(),
                message: standfast_core::id::MessageId { run, seq: standfast_core::id::Seq(3) },
                asked_as: String::new(),
                owner: standfast_core::name::UserId::new("ann").unwrap(),
                resumed: None,
                pending,
            })
        };
        let waits = outcome(r#"{"reason": "stuck"}"#).await;
        assert!(matches!(waits, Outcome::Pending(pending) if pending.kind == SuspendFor::Input));
        assert!(matches!(outcome("{}").await, Outcome::Done(ToolResult::Failed(_))));
    }

    #[test]
    fn the_model_is_told_the_exact_words() {
        let spec = SuspendForInput::spec();
        assert_eq!(spec.description, "Pause task execution to request human input");
        assert!(spec.schema.text().contains(r#""required":["reason"]"#));
    }
}

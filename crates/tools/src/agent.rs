//! `agent`: another agent of this server does the work, in a run of its own.
//!
//! The call waits for that run like for any outside job; its holds are ordinary holds that show where they come from.

use serde::Deserialize;
use standfast_core::body::Body;
use standfast_core::command::SuspendFor;
use standfast_core::definition::ToolSpec;
use standfast_core::hold::Ask;
use standfast_core::json::RawJson;
use standfast_core::message::{Message, Replay, ToolResult};
use standfast_core::name::AgentName;
use standfast_engine::tool::{Delegation, Invocation, Nature, Outcome, SubRun, Suspension, Tool, ToolFuture};

/// What it takes.
pub(super) const SCHEMA: &str = r#"{"type":"object","properties":{"message":{"type":"string","minLength":1,"description":"What the agent shall do."}},"required":["message"],"additionalProperties":false}"#;

/// Hands the work to an agent.
#[derive(Debug)]
pub struct AsksAgent {
    agent: AgentName,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    pub(super) message: String,
}

impl AsksAgent {
    /// A tool that hands its work to this agent.
    #[must_use]
    pub fn new(agent: AgentName) -> AsksAgent {
        AsksAgent { agent }
    }

    /// How it is described to a model.
    #[must_use]
    pub fn spec(&self, description: Option<&str>) -> ToolSpec {
        let usual = || format!("Hands work to the agent {} and waits for its answer.", self.agent);
        let Ok(schema) = RawJson::parse(SCHEMA) else { unreachable!("a constant that the tests read") };
        ToolSpec {
            description: description.map_or_else(usual, str::to_owned),
            schema,
            // The run that it begins follows from the call, so beginning it twice is beginning it once.
            replay: Replay::Idempotent,
            reversible: true,
            approval_prompt: None,
            holds: None,
        }
    }
}

impl Tool for AsksAgent {
    fn run(&self, invocation: Invocation) -> ToolFuture {
        let outcome = match self.sub_run(&invocation.arguments) {
            Some(_) => {
                let child = invocation.call.run.child(invocation.call.no, invocation.attempt);
                let interim = Some(Body::text(format!("agent {} works on it", self.agent)));
                let ask = Ask { child: Some(child), interim, ..Ask::default() };
                Outcome::Pending(Box::new(Suspension {
                    kind: SuspendFor::External,
                    ask,
                    timeout: None,
                    secret: None,
                }))
            }
            None => Outcome::Done(ToolResult::Failed(Body::text("give a message: what the agent shall do"))),
        };
        Box::pin(std::future::ready(outcome))
    }

    fn nature(&self) -> Nature<'_> {
        Nature::Delegation(self)
    }
}

impl Delegation for AsksAgent {
    fn sub_run(&self, arguments: &str) -> Option<SubRun> {
        let Arguments { message } = serde_json::from_str(arguments).ok()?;
        Some(SubRun { agent: self.agent.clone(), message: Message::text(&message) })
    }
}

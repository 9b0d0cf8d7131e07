//! The built-in agent of gates: calls that somebody else's agent asks about before it runs them itself.
//!
//! It has no model and no tools of its own; what it has are the policy of the file and whom that lets decide. How gates are
//! opened and what becomes of them is `submit/gates.rs`.

use std::sync::Arc;

use standfast_core::body::Body;
use standfast_core::definition::Definition;
use standfast_core::message::ToolResult;
use standfast_core::name::AgentName;

use super::agent::Agent;
use super::rules::Rules;
use crate::auth::Approvers;
use crate::model::{Live, Model, ModelFailure, ModelFuture, Prompt};
use crate::tool::{Invocation, Outcome, Tool, ToolFuture};

/// The agent that gates are runs of.
pub const GATE: &str = "gate";

/// The agent of gates, with the policy that their calls are judged by.
#[must_use]
pub fn gate_agent(rules: Rules) -> Agent {
    let name = match AgentName::new(GATE) {
        Ok(name) => name,
        Err(_) => unreachable!("the text is a name"),
    };
    let approvers = Approvers { rules: Arc::new(rules.approvers(&name)), ..Approvers::default() };
    let definition = Definition {
        agent: name,
        prompt: String::new(),
        model: String::new(),
        model_parameters: None,
        tools: Default::default(),
        policy: None,
        sub_agents: Vec::new(),
        show_thinking: false,
        hold_batch: false,
        holds: Default::default(),
    };
    Agent {
        rules,
        approvers,
        any_tool: Some(Arc::new(CallersTool)),
        ..Agent::new(definition, Arc::new(NoModel))
    }
}

/// A tool of whoever opened the gate. It runs there, never here.
struct CallersTool;

impl Tool for CallersTool {
    fn run(&self, _invocation: Invocation) -> ToolFuture {
        let why = Body::text("not executed: the gate's caller runs its call");
        Box::pin(std::future::ready(Outcome::Done(ToolResult::Failed(why))))
    }
}

/// Nobody is asked what to do next.
struct NoModel;

impl Model for NoModel {
    fn ask<'a>(&'a self, _prompt: Prompt, _live: &'a Live) -> ModelFuture<'a> {
        let error = "gates have no model".to_owned();
        Box::pin(std::future::ready(Err(ModelFailure { error, retry_after: None })))
    }
}

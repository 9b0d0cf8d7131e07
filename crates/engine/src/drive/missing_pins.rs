//! What a run is pinned to and this server no longer has: its agent, its model, a tool that it wants to call.
//!
//! Nothing is put in its place and nothing is guessed. The run asks a person, on a hold of its own (call number 0), says
//! what is missing, and looks again when they say so (rule 8, F30).

use std::sync::Arc;

use standfast_core::body::Body;
use standfast_core::command::{Command, Suspend, SuspendFor};
use standfast_core::definition::Definition;
use standfast_core::hold::Ask;
use standfast_core::id::CallNo;
use standfast_core::name::{AgentName, ToolName};
use standfast_core::run::Run;

use super::Drives;
use crate::model::Model;
use crate::settings::Agent;

/// What a person answers when the missing thing is there again.
const GO_ON: &str = "go on";

/// What is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MissingPin {
    /// The agent.
    Agent(AgentName),
    /// Its model.
    Model { agent: AgentName, model: String },
    /// Tools that it wants to call.
    Tools { agent: AgentName, tools: Vec<ToolName> },
}

impl MissingPin {
    fn what(&self) -> String {
        match self {
            MissingPin::Agent(agent) => format!("the agent {agent} is no longer configured"),
            MissingPin::Model { agent, model } => {
                format!("agent {agent} no longer has the model {model}, which this run is pinned to")
            }
            MissingPin::Tools { agent, tools } => {
                let tools: Vec<&str> = tools.iter().map(ToolName::as_str).collect();
                let s = if tools.len() == 1 { "" } else { "s" };
                format!("agent {agent} no longer has the tool{s} {}, which this run calls", tools.join(", "))
            }
        }
    }

    /// The question that the run asks.
    pub(super) fn question(&self) -> Command {
        let question = format!(
            "This run cannot go on: {}. Configure it again and answer `{GO_ON}`, or deny to end the run.",
            self.what()
        );
        let ask = Ask {
            reason: Some(self.what()),
            question: Some(Body::text(question)),
            options: vec![GO_ON.to_owned()],
            ..Ask::default()
        };
        Command::Suspend(Suspend {
            call: CallNo::RUN,
            attempt: 0,
            kind: SuspendFor::Input,
            ask,
            timeout: None,
            secret: None,
            worker: None,
        })
    }
}

impl Drives {
    /// The agent of a run and the model that it is pinned to: its own, that of another agent of this server, or one that
    /// is set up and that no agent uses just now.
    pub(super) fn model_of(
        &self,
        run: &Run,
        pinned: &Definition,
    ) -> Result<(Arc<Agent>, Arc<dyn Model>), MissingPin> {
        let settings = self.host.settings();
        let name = &run.facts.agent;
        let agent = settings.agents.get(name).ok_or_else(|| MissingPin::Agent(name.clone()))?;
        let has = |agent: &&Arc<Agent>| {
            agent.definition.model == pinned.model || agent.model.also_has(&pinned.model)
        };
        let mut having = std::iter::once(agent).chain(settings.agents.values());
        let model = having.find(has).map(|agent| agent.model.clone());
        let missing = || MissingPin::Model { agent: name.clone(), model: pinned.model.clone() };
        Ok((agent.clone(), model.ok_or_else(missing)?))
    }

    /// Which of these calls can start, and what the others miss.
    pub(super) fn tools_of(&self, run: &Run, calls: Vec<CallNo>) -> (Vec<CallNo>, Option<MissingPin>) {
        let name = &run.facts.agent;
        let Some(agent) = self.host.settings().agents.get(name).cloned() else {
            return (Vec::new(), Some(MissingPin::Agent(name.clone())));
        };
        let tool = |no: &CallNo| run.call(*no).map(|call| call.tool.clone());
        let has = |no: &CallNo| tool(no).is_none_or(|tool| agent.tools.contains_key(&tool));
        let (there, gone): (Vec<CallNo>, Vec<CallNo>) = calls.into_iter().partition(has);
        let mut tools: Vec<ToolName> = gone.iter().filter_map(tool).collect();
        tools.sort();
        tools.dedup();
        let missing = (!tools.is_empty()).then(|| MissingPin::Tools { agent: name.clone(), tools });
        (there, missing)
    }
}

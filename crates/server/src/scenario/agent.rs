//! The agent under test: its definition from the file, its model and its tools scripted.
//!
//! Made again for each start of the server, as a real one reads its configuration again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use standfast_core::approver::Approver;
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::hold::HoldPolicy;
use standfast_core::json::RawJson;
use standfast_core::message::Replay;
use standfast_core::name::{AgentName, ToolName, UserId};
use standfast_core::time::Millis;
use standfast_engine::auth::{Approvers, SelfApproval};
use standfast_engine::clock::Clock;
use standfast_engine::model::Model;
use standfast_engine::settings::{Agent, FixedSettings, Settings};
use standfast_engine::tool::Tool;
use standfast_engine::tool::suspend::{self, SuspendForInput};
use standfast_models::scripted::Script;

use super::ScenarioError;
use super::file::{AgentText, InlineText, InlineToolText, SelfApprovalText, ToolText};
use super::tools::{Behaviour, Oracle, RecordedTool, ScriptedTool};
use crate::demo;

/// How long a node's claim lasts. Longer than usual, so that a tool that takes hours is not renewed too often.
const LEASE: Millis = Millis::seconds(60);
/// Due runs are looked for whenever time is moved; by itself the server looks about once in a lifetime.
const NEVER: Millis = Millis::seconds(100 * 365 * 24 * 3600);

/// An agent that servers can be made with.
pub(super) struct Cast {
    pub(super) name: AgentName,
    definition: Arc<Definition>,
    model: Arc<dyn Model>,
    needs_approval: BTreeSet<ToolName>,
    approvers: Approvers,
    built_in: BTreeSet<ToolName>,
    behaviours: BTreeMap<ToolName, Vec<Behaviour>>,
}

impl Cast {
    /// The agent of a scenario.
    pub(super) fn new(
        agent: &AgentText,
        script: Option<Script>,
        behaviours: BTreeMap<ToolName, Vec<Behaviour>>,
    ) -> Result<Cast, ScenarioError> {
        let mut cast = match agent {
            AgentText::Named(name) => named(name)?,
            AgentText::Inline(text) => inline(text)?,
        };
        if let Some(script) = script {
            cast.model = Arc::new(script);
        }
        let scripted = |tool: &&ToolName| !cast.built_in.contains(*tool);
        let known: Vec<&ToolName> = cast.definition.tools.keys().filter(scripted).collect();
        if let Some(unknown) = behaviours.keys().find(|tool| !known.contains(tool)) {
            let known: Vec<&str> = known.iter().map(|tool| tool.as_str()).collect();
            return Err(ScenarioError::here(format!(
                "`results` names {unknown}, which is not a scripted tool of the agent; known tools: {}",
                known.join(", ")
            )));
        }
        cast.behaviours = behaviours;
        Ok(cast)
    }

    /// What a server with this agent is made of.
    pub(super) fn settings(&self, oracle: &Arc<Oracle>, clock: &Clock) -> Settings {
        let tool = |name: &ToolName| -> Arc<dyn Tool> {
            let (name, oracle) = (name.clone(), oracle.clone());
            if self.built_in.contains(&name) {
                Arc::new(RecordedTool { name, tool: SuspendForInput, oracle })
            } else {
                let behaviours = self.behaviours.get(&name).cloned().unwrap_or_default();
                Arc::new(ScriptedTool { name, behaviours, oracle, clock: clock.clone() })
            }
        };
        let agent = Agent {
            tools: self.definition.tools.keys().map(|name| (name.clone(), tool(name))).collect(),
            needs_approval: self.needs_approval.clone(),
            approvers: self.approvers.clone(),
            ..Agent::new(self.definition.clone(), self.model.clone())
        };
        let agents = BTreeMap::from([(self.name.clone(), Arc::new(agent))]);
        Settings { agents, ..Settings::usual() }
    }
}

/// What the process of a scenario's server has only once.
pub(super) fn fixed() -> FixedSettings {
    FixedSettings { lease: LEASE, poll: NEVER, ..FixedSettings::default() }
}

/// An agent that is known by its name.
fn named(name: &str) -> Result<Cast, ScenarioError> {
    if name != "demo" {
        return Err(ScenarioError::here(format!(
            "there is no agent {name:?}: write `agent: demo` for the embedded demo, or describe the agent here"
        )));
    }
    let settings = demo::settings(Path::new("")).map_err(|error| ScenarioError::here(error.to_string()))?;
    let found = settings.agents.into_iter().next();
    let (name, agent) = found.ok_or_else(|| ScenarioError::here("the demo has no agent"))?;
    Ok(Cast {
        name,
        definition: agent.definition.clone(),
        model: agent.model.clone(),
        needs_approval: agent.needs_approval.clone(),
        approvers: agent.approvers.clone(),
        built_in: BTreeSet::new(),
        behaviours: BTreeMap::new(),
    })
}

fn inline(text: &InlineText) -> Result<Cast, ScenarioError> {
    let bad = |what: &dyn std::fmt::Display| ScenarioError::here(format!("`agent`: {what}"));
    let name = AgentName::new(text.name.as_deref().unwrap_or("agent")).map_err(|error| bad(&error))?;
    let (mut tools, mut needs_approval, mut built_in) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
    for (tool, described) in &text.tools {
        let name = ToolName::new(tool).map_err(|error| bad(&error))?;
        let spec = match described {
            ToolText::BuiltIn if tool == suspend::NAME => {
                built_in.insert(name.clone());
                SuspendForInput::spec()
            }
            ToolText::BuiltIn => {
                return Err(bad(&format!("the only built-in tool is {}, not {tool}", suspend::NAME)));
            }
            ToolText::Inline(described) => {
                if described.requires_approval {
                    needs_approval.insert(name.clone());
                }
                spec(described).map_err(|error| bad(&format!("the tool {tool}: {error}")))?
            }
        };
        tools.insert(name, spec);
    }
    let definition = Definition {
        agent: name.clone(),
        prompt: text.prompt.clone(),
        model: "scripted".into(),
        model_parameters: None,
        tools,
        policy: None,
        sub_agents: Vec::new(),
        show_thinking: false,
        hold_batch: text.hold_batch,
        holds: text.holds.as_ref().map_or_else(HoldPolicy::default, |holds| holds.policy()),
    };
    let approver = |name: &String| match name.as_str() {
        "owner" => Ok(Approver::Owner),
        name => UserId::new(name).map(Approver::User),
    };
    let approvers = |names: &Vec<String>| names.iter().map(approver).collect::<Result<BTreeSet<_>, _>>();
    let approvers = Approvers {
        named: text.approvers.as_ref().map(approvers).transpose().map_err(|error| bad(&error))?,
        self_approval: match text.self_approval {
            SelfApprovalText::Allow => SelfApproval::Allow,
            SelfApprovalText::Forbid => SelfApproval::Forbid,
        },
        ..Approvers::default()
    };
    Ok(Cast {
        name,
        definition: Arc::new(definition),
        model: Arc::new(Script::default()),
        needs_approval,
        approvers,
        built_in,
        behaviours: BTreeMap::new(),
    })
}

fn spec(text: &InlineToolText) -> Result<ToolSpec, String> {
    let schema = text.schema.as_ref().map_or(r#"{"type":"object"}"#, |schema| &schema.0);
    let schema = RawJson::parse(schema).map_err(|error| error.to_string())?;
    if !schema.text().starts_with('{') {
        return Err("`schema` must be a mapping".into());
    }
    Ok(ToolSpec {
        description: text.description.clone(),
        schema,
        replay: if text.idempotent { Replay::Idempotent } else { Replay::Never },
        reversible: text.reversible,
        approval_prompt: text.approval_prompt.clone(),
        holds: text.holds.as_ref().map(|holds| holds.policy()),
    })
}

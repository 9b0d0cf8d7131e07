//! The effective settings of each agent: its mode and why, which tools ask, how long a decision may take, where it lives.
//!
//! `validate` prints this, `build.rs` makes settings of it.

use standfast_core::approver::Approver;
use standfast_core::hold::{AfterGrace, HoldPolicy, OnDeny, OnTimeout};
use standfast_core::time::Millis;

use super::file::{Agent, CommonKeys, File, Hitl, Task, Tool, ToolKind, ToolType};
use super::mode::{self, Effective, EffectiveMode, Store};
use super::stores::{RunStorage, lives};

/// S3-14: how long a decision may take in a blocking agent.
pub(super) const BLOCKING_TIMEOUT: Millis = Millis::seconds(600);

/// The effective settings of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPlan {
    /// Its name.
    pub name: String,
    /// Its mode; none without a `task` block, when nothing can wait (C29).
    pub mode: Option<Effective>,
    /// Its tools, without the disabled ones.
    pub tools: Vec<ToolPlan>,
    /// What deny and silence do.
    pub holds: HoldPolicy,
    /// Where its runs live.
    pub lives: RunStorage,
    /// How many of its runs are worked on at once.
    pub worker_pool: u32,
    /// How long each may work; without limit when it is none.
    pub may_work: Option<Millis>,
}

/// The effective settings of an agent's tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPlan {
    /// Its name.
    pub name: String,
    /// What it does.
    pub kind: ToolType,
    /// Whether a person is asked.
    pub asks: bool,
    /// Whether it depends on the call, or on the tools of an MCP server, if a person is asked.
    pub may_ask: bool,
    /// The agent that it hands work to, if that is what it does.
    pub agent: Option<String>,
}

/// What the agents of a right file come to.
pub(super) fn agents(file: &File) -> Vec<AgentPlan> {
    file.agents.iter().map(|(name, agent)| plan(name, agent, file)).collect()
}

fn plan(name: &str, agent: &Agent, file: &File) -> AgentPlan {
    let mode = agent.task.as_ref().and_then(|task| mode::effective(task.hitl.mode, store_of(agent)));
    AgentPlan {
        name: name.to_owned(),
        mode,
        tools: tools(agent, file),
        holds: holds(agent.task.as_ref(), mode.map(|effective| effective.mode)),
        lives: lives(agent, file),
        worker_pool: agent.task.as_ref().and_then(|task| task.worker_pool).unwrap_or(Task::WORKER_POOL),
        may_work: agent.task.as_ref().and_then(|task| task.timeout).map(|span| span.0),
    }
}

/// The matrix looks at `session_store` only (C28).
pub(super) fn store_of(agent: &Agent) -> Store {
    if agent.session_store.is_some() { Store::Named } else { Store::None }
}

/// The tools that the model is offered: those of the list, and one for each agent that work can be handed to.
pub(super) fn tools(agent: &Agent, file: &File) -> Vec<ToolPlan> {
    let mut plans: Vec<ToolPlan> = agent.tools.iter().filter_map(|name| listed(name, file)).collect();
    for sub_agent in &agent.sub_agents {
        let is_target = |plan: &ToolPlan| plan.agent.as_ref() == Some(sub_agent);
        if !plans.iter().any(is_target) {
            plans.extend(asks_agent(sub_agent, file));
        }
    }
    plans
}

/// A tool that an agent names.
fn listed(name: &str, file: &File) -> Option<ToolPlan> {
    let tool = file.tools.get(name);
    let kind = tool.map_or_else(|| ToolType::built_in(name), Tool::tool_type)?;
    let agent = match tool.and_then(|tool| tool.kind.as_ref()) {
        Some(ToolKind::Agent(keys)) => keys.agent.clone(),
        Some(_) | None => None,
    };
    let asks = asks(name, kind, tool, file);
    let plan = ToolPlan { name: name.to_owned(), kind, asks, may_ask: may_ask(kind, tool, asks), agent };
    tool.is_none_or(|tool| tool.common.enabled != Some(false)).then_some(plan)
}

/// The tool that stands for a name below `sub_agents`. An entry below `tools` with its name can say more about it.
fn asks_agent(sub_agent: &str, file: &File) -> Option<ToolPlan> {
    let name = sub_agent_tool(sub_agent);
    if file.tools.contains_key(&name) {
        listed(&name, file)
    } else {
        let (kind, agent) = (ToolType::Agent, Some(sub_agent.to_owned()));
        Some(ToolPlan { asks: asks(&name, kind, None, file), may_ask: false, name, kind, agent })
    }
}

/// What the tool is called that hands work to an agent of `sub_agents`.
pub(super) fn sub_agent_tool(sub_agent: &str) -> String {
    format!("ask_{sub_agent}")
}

/// C32: what the entry says, else what is usual for its type; names of high risk always ask.
fn asks(name: &str, kind: ToolType, tool: Option<&Tool>, file: &File) -> bool {
    let said = tool.and_then(|tool| tool.common.requires_approval);
    said.unwrap_or(kind.needs_approval()) || file.policy.high_risk_tools.iter().any(|risky| risky == name)
}

/// Tools that judge each call: commands that the entry frees, unless they are of a kind that always asks; remote agents
/// whose card nobody has seen; and the tools of an MCP server, each by its own annotations.
fn may_ask(kind: ToolType, tool: Option<&Tool>, asks: bool) -> bool {
    match (kind, tool.and_then(|tool| tool.kind.as_ref())) {
        (ToolType::Mcp, Some(ToolKind::Mcp(keys))) => {
            let said = tool.and_then(|tool| tool.common.requires_approval);
            let frees_some = keys.overrides.values().any(|own| own.requires_approval == Some(false));
            said != Some(true) || frees_some
        }
        (ToolType::Command | ToolType::A2a, _) => !asks,
        _ => false,
    }
}

/// What deny and silence do to an agent's holds (C7).
fn holds(task: Option<&Task>, mode: Option<EffectiveMode>) -> HoldPolicy {
    let hitl = task.map(|task| &task.hitl);
    let usual = match mode {
        Some(EffectiveMode::Blocking) => Some(BLOCKING_TIMEOUT),
        Some(EffectiveMode::Async) | None => None,
    };
    HoldPolicy {
        on_deny: hitl.and_then(|hitl| hitl.on_deny).map_or(OnDeny::default(), OnDeny::from),
        on_timeout: hitl.and_then(|hitl| hitl.on_timeout).map_or(OnTimeout::default(), OnTimeout::from),
        timeout: task.and_then(|task| task.input_timeout).map(|span| span.0).or(usual),
        grace: hitl.and_then(|hitl| hitl.expiry_grace).map(|span| span.0),
        after_grace: hitl.and_then(|hitl| hitl.after_grace).map_or(AfterGrace::default(), AfterGrace::from),
        remind_after: hitl.and_then(|hitl| hitl.remind_after).map(|span| span.0),
        escalate_after: hitl.and_then(|hitl| hitl.escalate_after).map(|span| span.0),
        escalate_to: hitl.map(escalate_to).unwrap_or_default(),
    }
}

/// Whom an agent's holds are escalated to; what names nobody has been refused before.
fn escalate_to(hitl: &Hitl) -> Vec<Approver> {
    hitl.escalate_to.iter().flatten().filter_map(|name| Approver::parse(name).ok()).collect()
}

/// The same for one tool, where it says something of its own (C7: the tool wins).
pub(super) fn tool_holds(agent: &HoldPolicy, tool: &CommonKeys) -> Option<HoldPolicy> {
    let own = HoldPolicy {
        on_deny: tool.on_deny.map_or(agent.on_deny, OnDeny::from),
        on_timeout: tool.on_timeout.map_or(agent.on_timeout, OnTimeout::from),
        timeout: tool.input_timeout.map(|span| span.0).or(agent.timeout),
        grace: tool.expiry_grace.map(|span| span.0).or(agent.grace),
        after_grace: tool.after_grace.map_or(agent.after_grace, AfterGrace::from),
        remind_after: agent.remind_after,
        escalate_after: agent.escalate_after,
        escalate_to: agent.escalate_to.clone(),
    };
    (own != *agent).then_some(own)
}

//! Which call of an agent is played: one that its policy holds, found by asking what the server asks.
//!
//! Arguments come from the examples and conditions of rules, from what commands and hosts the file names, and from the
//! tool's JSON Schema. What the answer depends on beside them (groups of callers, sessions) is not made up.

use serde_json::{Value, json};
use standfast::config::file::ToolKind;
use standfast::config::{AgentPlan, Config, ToolPlan, ToolType};
use standfast_core::command::AskedCall;
use standfast_core::event::Driver;
use standfast_core::hold::HoldPolicy;
use standfast_core::id::{RunId, StorageKind};
use standfast_core::message::Replay;
use standfast_core::name::{AgentName, SessionId, Tenant, ToolName, UserId};
use standfast_core::policy::{Effect, Verdicts};
use standfast_core::run::Facts;
use standfast_core::time::Timestamp;
use standfast_engine::policy;
use standfast_engine::settings::Agent;
use standfast_policy::call::Call;
use standfast_policy::rule::Mode;
use standfast_policy::witness::example_calls;

use super::arguments::{overlaid, sample};
use super::people::STARTER;
use super::rehearsal::is_elsewhere;

/// Arguments that are tried with one tool.
const MOST_TRIED: usize = 5_000;

/// Variants that are made up from a schema.
const VARIANTS: usize = 4;

/// A call that is held.
#[derive(Debug)]
pub(super) struct HeldCall {
    pub(super) tool: ToolName,
    pub(super) arguments: String,
    /// Other arguments that the policy does not deny.
    pub(super) edited: Option<String>,
    /// What holds it.
    pub(super) rules: Vec<String>,
    /// What deny and silence do.
    pub(super) holds: HoldPolicy,
    pub(super) replay: Replay,
}

/// A call that the policy holds, or why none was found.
pub(super) fn held_call(
    config: &Config,
    plan: &AgentPlan,
    agent: &Agent,
    now: Timestamp,
) -> Result<HeldCall, String> {
    if plan.mode.is_none() {
        return Err(
            "it has no task block, so nothing of it can wait: calls that need approval are denied".into()
        );
    }
    let is_playable = |tool: &&ToolPlan| !is_elsewhere(tool.kind) && tool.kind != ToolType::SuspendForInput;
    let mut tools: Vec<&ToolPlan> = plan.tools.iter().filter(is_playable).collect();
    // What is not started again by itself shows more, and another agent has more to it than one call.
    tools.sort_by_key(|tool| tool.kind == ToolType::Agent);
    let Some(facts) = facts(&plan.name, now) else { return Err("its name is none".into()) };
    let examples = example_calls(&config.policy);
    let (mut tried, mut second_best) = (0, None);
    for tool in &tools {
        let Ok(name) = ToolName::new(&tool.name) else { continue };
        let Some(spec) = agent.definition.tools.get(&name) else { continue };
        let schema: Value = serde_json::from_str(spec.schema.text()).unwrap_or_default();
        let all = candidates(config, tool, &name, &schema, &examples);
        tried += all.len();
        let judged: Vec<(&String, Effect, Verdicts)> = all
            .iter()
            .map(|arguments| {
                let verdicts = judged(agent, (&facts, now), &name, arguments);
                let effect = verdicts.by_call.iter().map(|(_, verdict)| verdict.effect).max();
                (arguments, effect.unwrap_or(Effect::Hold), verdicts)
            })
            .collect();
        let Some((arguments, _, verdicts)) = judged.iter().find(|(_, effect, _)| *effect == Effect::Hold)
        else {
            continue;
        };
        let others = |wanted: Effect| {
            let mut others = judged.iter().filter(move |(_, effect, _)| *effect == wanted);
            others.find(|(other, ..)| !is_same(other, arguments)).map(|(other, ..)| (*other).clone())
        };
        let usual = agent.definition.policy_for(&name);
        let held = HeldCall {
            edited: others(Effect::Hold).or_else(|| others(Effect::Allow)),
            arguments: (*arguments).clone(),
            rules: deciding(verdicts),
            holds: match verdicts.terms.first() {
                Some((_, terms)) => terms.over(usual),
                None => usual,
            },
            replay: spec.replay,
            tool: name,
        };
        match held.replay {
            Replay::Never => return Ok(held),
            Replay::Idempotent => second_best = second_best.or(Some(held)),
        }
    }
    second_best.ok_or_else(|| nothing_held(config, plan, &tools, tried))
}

/// Why nothing can be played.
fn nothing_held(config: &Config, plan: &AgentPlan, tools: &[&ToolPlan], tried: usize) -> String {
    let names =
        |tools: &[&ToolPlan]| tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>().join(", ");
    let elsewhere: Vec<&ToolPlan> = plan.tools.iter().filter(|tool| is_elsewhere(tool.kind)).collect();
    let of_others = || {
        format!(
            "MCP servers and remote agents ({}) are not started or asked by this command",
            names(&elsewhere)
        )
    };
    if tools.is_empty() && elsewhere.is_empty() {
        return "it has no tool that does something".to_owned();
    }
    if tools.is_empty() {
        return format!("it has no tools of its own; {}", of_others());
    }
    let mode = match config.policy.file().mode {
        Mode::Observe => "; the rules only observe (policy.mode)",
        Mode::Enforce => "",
    };
    let others = if elsewhere.is_empty() { String::new() } else { format!("; {}", of_others()) };
    format!(
        "none of the {tried} calls that were tried with {} is held: they run or are denied{mode}{others}",
        names(tools)
    )
}

fn facts(agent: &str, now: Timestamp) -> Option<Facts> {
    let tenant = Tenant::default_tenant();
    Some(Facts {
        id: RunId::new(&tenant, StorageKind::Durable, now, [0; 5]),
        tenant,
        agent: AgentName::new(agent).ok()?,
        session: SessionId::new("verify").ok()?,
        owner: UserId::new(STARTER).ok()?,
        driver: Driver::Loop,
        parent: None,
        started_at: now,
        inbox: None,
    })
}

fn judged(agent: &Agent, (facts, now): (&Facts, Timestamp), tool: &ToolName, arguments: &str) -> Verdicts {
    let call = AskedCall {
        id: String::new(),
        tool: tool.to_string(),
        arguments: arguments.to_owned(),
        problem: None,
    };
    policy::of_gate(agent, &agent.definition, (facts, now), (&call, Effect::Allow))
}

/// The rules that hold a call.
fn deciding(verdicts: &Verdicts) -> Vec<String> {
    let holds = verdicts.by_call.iter().filter(|(_, verdict)| verdict.effect == Effect::Hold);
    holds.map(|(_, verdict)| verdict.rule.to_string()).collect()
}

fn is_same(one: &str, other: &str) -> bool {
    let read = |text: &str| serde_json::from_str::<Value>(text).ok();
    one == other || (read(one).is_some() && read(one) == read(other))
}

/// Arguments to try, the most telling first.
fn candidates(
    config: &Config,
    plan: &ToolPlan,
    tool: &ToolName,
    schema: &Value,
    examples: &[Call],
) -> Vec<String> {
    let bases: Vec<Value> = (0..VARIANTS).map(|variant| sample(schema, variant)).collect();
    let base = bases.first().cloned().unwrap_or_default();
    let of_tool = examples.iter().filter(|call| call.tool == *tool);
    let values = of_tool.filter_map(|call| call.arguments.value());
    let by_rules = values.filter_map(|value| serde_json::from_str::<Value>(&value.to_string()).ok());
    let by_rules: Vec<Value> = by_rules.take(MOST_TRIED).collect();
    let mut all: Vec<Value> = by_rules.iter().map(|value| overlaid(&base, value)).collect();
    // As they are: an example is often whole.
    all.extend(by_rules);
    all.extend(own(config, plan));
    all.extend(bases);
    let mut texts: Vec<String> = Vec::new();
    for value in all.iter().filter(|value| value.is_object()) {
        let text = value.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
        if texts.len() == MOST_TRIED {
            break;
        }
    }
    texts
}

/// What the entry of a tool names: programs, hosts.
fn own(config: &Config, plan: &ToolPlan) -> Vec<Value> {
    let kind = config.file.tools.get(&plan.name).and_then(|tool| tool.kind.as_ref());
    let (commands, hosts) = match kind {
        Some(ToolKind::Command(keys)) => (keys.allowed_commands.clone().unwrap_or_default(), Vec::new()),
        Some(ToolKind::HttpRequest(keys)) => (Vec::new(), keys.allowed_hosts.clone().unwrap_or_default()),
        Some(_) | None => (Vec::new(), Vec::new()),
    };
    match plan.kind {
        ToolType::Command => {
            let named = commands.iter().flat_map(|command| {
                [format!("{command} verify-1"), format!("{command} verify-2"), command.clone()]
            });
            let usual = ["touch verify-1", "touch verify-2", "rm verify-1"].map(str::to_owned);
            named.chain(usual).map(|command| json!({ "command": command })).collect()
        }
        ToolType::HttpRequest => {
            let request = |host: &String| {
                let at = |n: u8| format!("https://{host}/verify-{n}");
                [1, 2].map(|n| json!({ "method": "POST", "url": at(n), "body": "{}" }))
            };
            hosts.iter().flat_map(request).collect()
        }
        _ => Vec::new(),
    }
}

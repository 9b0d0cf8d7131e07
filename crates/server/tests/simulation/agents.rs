//! The agents of a simulation: models that ask for whatever chance says, and tools that tell the oracle each start.
//!
//! `clerk` has a tool of each sort: asked about or not, repeatable or not, waiting for a person, for an outside job or
//! for another agent. `helper` is that other agent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use standfast_core::approver::Approver;
use standfast_core::body::Body;
use standfast_core::command::{AskedCall, Limits, SuspendFor};
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::hold::{Ask, HoldPolicy, OnTimeout};
use standfast_core::json::RawJson;
use standfast_core::message::{Replay, ToolResult};
use standfast_core::name::{AgentName, ToolName, UserId};
use standfast_core::time::Millis;
use standfast_engine::auth::Approvers;
use standfast_engine::clock::Clock;
use standfast_engine::model::{Live, Model, ModelFailure, ModelFuture, ModelReply, Prompt};
use standfast_engine::settings::{Agent, FixedSettings, Settings};
use standfast_engine::tool::suspend::{self, SuspendForInput};
use standfast_engine::tool::{Invocation, Outcome, Suspension, Tool, ToolFuture};
use standfast_tools::agent::AsksAgent;

use crate::people;
use crate::requests;
use crate::world::{Blind, Effect, Sim};

/// How long a node's claim on a run lasts.
pub(crate) const LEASE: Millis = Millis::seconds(6);
/// How often a node looks for work by itself.
const POLL: Millis = Millis::seconds(1);
/// Longer than any simulation.
const NEVER: Millis = Millis::hours(24);

/// What a tool of the simulation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    /// Changes the world; a person is asked first.
    Pay,
    /// Changes the world without asking.
    Wipe,
    /// May be repeated.
    Fetch,
    /// Begins a job elsewhere, which calls back.
    Job,
}

const SORTS: [(&str, Sort); 4] =
    [("pay", Sort::Pay), ("wipe", Sort::Wipe), ("fetch", Sort::Fetch), ("job", Sort::Job)];

const DELEGATE: &str = "delegate";

/// What tools say.
pub(crate) const DONE: &str = "done";

pub(crate) fn clerk() -> AgentName {
    AgentName::new("clerk").unwrap()
}

fn helper() -> AgentName {
    AgentName::new("helper").unwrap()
}

/// What the nodes are made of.
pub(crate) fn settings(sim: &Arc<Sim>, seat: usize, life: u64, clock: &Clock) -> Settings {
    let doing = |sort| -> Arc<dyn Tool> {
        Arc::new(Doer { sort, sim: sim.clone(), seat, life, clock: clock.clone() })
    };
    let mut tools: BTreeMap<ToolName, (ToolSpec, Arc<dyn Tool>)> =
        SORTS.into_iter().map(|(name, sort)| (tool_name(name), (spec(sort), doing(sort)))).collect();
    tools.insert(tool_name(suspend::NAME), (SuspendForInput::spec(), Arc::new(SuspendForInput)));
    let helper_tools = tools.clone();
    let asks = AsksAgent::new(helper());
    tools.insert(tool_name(DELEGATE), (asks.spec(None), Arc::new(asks)));
    let agents = [(clerk(), tools), (helper(), helper_tools)];
    let agents = agents.into_iter().map(|(name, tools)| (name.clone(), Arc::new(agent(sim, name, tools))));
    Settings { agents: agents.collect(), limits: Arc::new(Limits::default()), ..Settings::usual() }
}

/// What the process of a node has only once.
pub(crate) fn fixed(sim: &Sim) -> FixedSettings {
    let poll = if sim.blind == Blind::ToTime { NEVER } else { POLL };
    FixedSettings { lease: LEASE, poll, ..FixedSettings::default() }
}

fn agent(sim: &Arc<Sim>, name: AgentName, tools: BTreeMap<ToolName, (ToolSpec, Arc<dyn Tool>)>) -> Agent {
    // The same on every node: they share the definition.
    let on_timeout = [OnTimeout::Fail, OnTimeout::Deny, OnTimeout::ResumeWithError, OnTimeout::Cancel];
    let at = usize::try_from(sim.seed % 4).unwrap();
    let holds = HoldPolicy {
        timeout: sim.seed.is_multiple_of(3).then_some(Millis::seconds(15)),
        on_timeout: on_timeout[at],
        ..HoldPolicy::default()
    };
    let definition = Definition {
        agent: name.clone(),
        prompt: "You do what chance says.".into(),
        model: "scripted".into(),
        model_parameters: None,
        tools: tools.iter().map(|(name, (spec, _))| (name.clone(), spec.clone())).collect(),
        policy: None,
        sub_agents: Vec::new(),
        show_thinking: false,
        hold_batch: false,
        holds,
    };
    let names: Vec<String> = tools.keys().map(|name| name.as_str().to_owned()).collect();
    Agent {
        tools: tools.into_iter().map(|(name, (_, tool))| (name, tool)).collect(),
        needs_approval: BTreeSet::from([tool_name("pay")]),
        approvers: Approvers {
            named: Some(BTreeSet::from([
                Approver::Owner,
                Approver::User(UserId::new(people::APPROVER).unwrap()),
            ])),
            ..Approvers::default()
        },
        worker_pool: 8,
        ..Agent::new(definition, Arc::new(Chance { sim: sim.clone(), names }))
    }
}

fn tool_name(text: &str) -> ToolName {
    ToolName::new(text).unwrap()
}

fn spec(sort: Sort) -> ToolSpec {
    ToolSpec {
        description: format!("{sort:?}"),
        schema: RawJson::parse(r#"{"type":"object"}"#).unwrap(),
        replay: match sort {
            Sort::Fetch => Replay::Idempotent,
            Sort::Pay | Sort::Wipe | Sort::Job => Replay::Never,
        },
        reversible: false,
        approval_prompt: None,
        holds: None,
    }
}

/// Asks for whatever chance says, for a few turns.
struct Chance {
    sim: Arc<Sim>,
    names: Vec<String>,
}

impl Chance {
    fn call(&self, no: usize) -> AskedCall {
        // Payments are what it is about.
        let pays = self.sim.one_in(2);
        let tool = if pays { "pay".to_owned() } else { self.sim.pick(&self.names) };
        let some = self.sim.below(1_000_000);
        let arguments = match tool.as_str() {
            suspend::NAME => r#"{"reason": "chance", "question": "Which one?"}"#.to_owned(),
            DELEGATE => format!(r#"{{"message": "do {some}"}}"#),
            _ => format!(r#"{{"amount":  {some}, "exact": 9007199254740993}}"#),
        };
        AskedCall { id: format!("call_{no}"), tool, arguments, problem: None }
    }
}

impl Model for Chance {
    fn ask<'a>(&'a self, prompt: Prompt, live: &'a Live) -> ModelFuture<'a> {
        Box::pin(async move {
            let is_slow = self.sim.strikes(8);
            let thinks = self.sim.span(if is_slow { 2 * LEASE.0 } else { 50 });
            let no = self.sim.asked(prompt.transcript);
            live.sleep(thinks).await;
            if prompt.failures < 3 && self.sim.strikes(12) {
                return Err(ModelFailure { error: "busy".into(), retry_after: Some(Millis(200)) });
            }
            let is_done = prompt.turn >= 4 || (prompt.turn > 0 && self.sim.one_in(2));
            let calls = if is_done {
                Vec::new()
            } else {
                let calls = 1 + self.sim.index(3);
                (1..=calls).map(|no| self.call(no)).collect()
            };
            Ok(ModelReply { text: Some(requests::words(no)), calls, ..ModelReply::default() })
        })
    }
}

/// Does something, and tells the oracle.
struct Doer {
    sort: Sort,
    sim: Arc<Sim>,
    seat: usize,
    life: u64,
    clock: Clock,
}

impl Tool for Doer {
    fn run(&self, invocation: Invocation) -> ToolFuture {
        let (sort, sim, seat, life) = (self.sort, self.sim.clone(), self.seat, self.life);
        let clock = self.clock.clone();
        Box::pin(async move {
            // Nothing that the engine does can help from here on: the instant that counts is this one.
            let at = sim.now();
            let (token, arguments) = (invocation.token(), invocation.arguments.clone());
            sim.pass(seat, life).await;
            sim.tell(|| format!("node {seat} does {token} {arguments}"));
            sim.effects.lock().unwrap().push(Effect { token, arguments, at });
            if sort == Sort::Job {
                let told = sim.one_in(2);
                let secret = told.then_some(invocation.pending.key.secret);
                if told {
                    people::calls_back(&sim, invocation.pending);
                }
                sim.pass(seat, life).await;
                let pending =
                    Suspension { kind: SuspendFor::External, ask: Ask::default(), timeout: None, secret };
                return Outcome::Pending(Box::new(pending));
            }
            let takes = if sim.strikes(6) { 2 * LEASE.0 } else { 80 };
            let takes = sim.span(takes);
            clock.sleep(takes).await;
            sim.pass(seat, life).await;
            if sim.strikes(25) {
                return Outcome::Unknown("the line went dead".into());
            }
            if sim.strikes(40) {
                // As a panic, without its noise.
                std::panic::resume_unwind(Box::new("a tool with a bug"));
            }
            let said = Body::text(DONE);
            Outcome::Done(if sim.strikes(12) { ToolResult::Failed(said) } else { ToolResult::Ok(said) })
        })
    }
}

//! The agent of the conformance kits: its definition, and two tools whose calls only wait.
//!
//! What it does with a message is `behaviour.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use standfast_core::body::Body;
use standfast_core::command::SuspendFor;
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::hold::{Ask, HoldPolicy};
use standfast_core::json::RawJson;
use standfast_core::message::ToolResult;
use standfast_core::name::{AgentName, BadName, ToolName};
use standfast_engine::settings::{Agent, Card, CardReaders, Settings};
use standfast_engine::tool::suspend::{self, SuspendForInput};
use standfast_engine::tool::{Invocation, Outcome, Suspension, Tool, ToolFuture};

use crate::behaviour::{ANYTHING_ELSE, Behaviour};
use crate::interceptor::{KitInterceptor, Passes};
use crate::model::KitModel;

/// The agent's name.
pub(crate) const AGENT: &str = "conformance";

/// The tool whose calls wait for a login.
pub(crate) const LOGIN: &str = "wait-for-login";

/// The tool whose calls wait for an outside system that never reports.
pub(crate) const FOR_EVER: &str = "wait-for-ever";

/// Puts the agent into a server's settings, as the only one and at the root.
pub(crate) fn install(settings: &mut Settings, passes: Passes) -> Result<(), BadName> {
    let name = AgentName::new(AGENT)?;
    let purpose =
        "Answers the public conformance kits of A2A: what it does is chosen by how a message begins.";
    let agent = Agent { purpose: Some(purpose.to_owned()), ..agent(&name, passes)? };
    settings.agents.insert(name.clone(), Arc::new(agent));
    settings.default_agent = Some(name);
    if passes.reduced_capabilities {
        settings.a2a.push_notifications = false;
        settings.a2a.streaming = false;
        settings.a2a.extended_card = false;
    }
    settings.a2a_interceptor = Some(Arc::new(KitInterceptor { passes }));
    Ok(())
}

fn agent(name: &AgentName, passes: Passes) -> Result<Agent, BadName> {
    let login =
        Waits { kind: SuspendFor::Auth, question: "Log in out of band: this needs your authorization." };
    let for_ever = Waits { kind: SuspendFor::External, question: "Waits until it is cancelled." };
    let waits = |description: &str| ToolSpec { description: description.into(), ..SuspendForInput::spec() };
    let open = |spec: ToolSpec| ToolSpec { schema: any_object(), ..spec };
    let specs = BTreeMap::from([
        (ToolName::new(suspend::NAME)?, SuspendForInput::spec()),
        (ToolName::new(LOGIN)?, open(waits("Waits for a login."))),
        (ToolName::new(FOR_EVER)?, open(waits("Waits for an outside system that never reports."))),
    ]);
    let tools: BTreeMap<ToolName, Arc<dyn Tool>> = BTreeMap::from([
        (ToolName::new(suspend::NAME)?, Arc::new(SuspendForInput) as Arc<dyn Tool>),
        (ToolName::new(LOGIN)?, Arc::new(login) as Arc<dyn Tool>),
        (ToolName::new(FOR_EVER)?, Arc::new(for_ever) as Arc<dyn Tool>),
    ]);
    let definition = Definition {
        agent: name.clone(),
        prompt: String::new(),
        model: AGENT.into(),
        model_parameters: None,
        tools: specs,
        policy: None,
        sub_agents: Vec::new(),
        show_thinking: false,
        hold_batch: false,
        holds: HoldPolicy::default(),
    };
    // The kit of 0.3 leaves tasks that it wants to continue and to cancel.
    let anything_else = if passes.v03 { Behaviour::AsksOnce } else { ANYTHING_ELSE };
    let readers = if passes.v03 { CardReaders::CurrentAndV03 } else { CardReaders::default() };
    Ok(Agent {
        card: Card { readers, ..Card::default() },
        tools,
        // The kits open many tasks and leave them.
        worker_pool: 1024,
        ..Agent::new(definition, Arc::new(KitModel { anything_else }))
    })
}

fn any_object() -> RawJson {
    let Ok(schema) = RawJson::parse(r#"{"type":"object"}"#) else { unreachable!("the schema is a constant") };
    schema
}

/// A tool whose calls only wait. Nothing has happened yet, so a lost start is repeated.
struct Waits {
    kind: SuspendFor,
    question: &'static str,
}

impl Tool for Waits {
    fn run(&self, invocation: Invocation) -> ToolFuture {
        // After a login the call runs, as with every tool.
        if invocation.resumed.is_some() {
            let done = ToolResult::Ok(Body::text("somebody logged in"));
            return Box::pin(std::future::ready(Outcome::Done(done)));
        }
        let resume = match self.kind {
            SuspendFor::Auth => Some(Box::new(Body::text("asked for a login"))),
            SuspendFor::Input | SuspendFor::External => None,
        };
        let ask = Ask { question: Some(Body::text(self.question)), resume, ..Ask::default() };
        let pending = Suspension { kind: self.kind, ask, timeout: None, secret: None };
        Box::pin(std::future::ready(Outcome::Pending(Box::new(pending))))
    }
}

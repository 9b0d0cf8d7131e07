//! A run made up command by command, each settled before the next: the truth that other ways are compared with.
//!
//! What comes next is chosen by the state of the run and a random number, as an engine and its people would act:
//! replies, starts, results, decisions, messages, and now and then something that is refused. Every reply and every
//! result carries its own number, so that a lost or doubled one is seen.

use std::collections::BTreeMap;
use std::sync::Arc;

use standfast_core::actor::Actor;
use standfast_core::body::Body;
use standfast_core::command::{
    Admission, AskedCall, Begin, Choice, Command, Decide, Entropy, FinishCall, Limits, OnHold, RecordReply,
    Resolve, Say, Start, StoredCall, Suspend, SuspendFor,
};
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::digest;
use standfast_core::event::{Driver as DrivenBy, Envelope};
use standfast_core::hold::{Ask, Hold, HoldKind, HoldPolicy};
use standfast_core::id::{CallNo, Incarnation, RunId, Seq, StorageKind};
use standfast_core::json::RawJson;
use standfast_core::link::Link;
use standfast_core::message::{Message, Replay, ToolResult, Usage};
use standfast_core::name::{AgentName, RuleId, SessionId, Tenant, ToolName, UserId};
use standfast_core::policy::{Effect, Role, Verdict, Verdicts};
use standfast_core::run::{Call, CallState, Run, Stage};
use standfast_core::time::{Millis, Timestamp};
use standfast_store::Store;
use standfast_store::memory::MemoryStore;
use standfast_store::pipeline::{Order, OrderContext, Pipeline, SettledOrder, Writes};

use crate::block_on::block_on;

pub(crate) const NODE: Incarnation = Incarnation([7; 16]);

/// When everything began.
pub(crate) const BEGINNING: Timestamp = Timestamp(1_762_000_000_000);

/// A run that was made up: its start, its orders, and their outcomes one by one.
pub(crate) struct Script {
    pub(crate) start: Start,
    pub(crate) orders: Vec<Order>,
    /// The result of the start and each order.
    pub(crate) settled: Vec<SettledOrder>,
    /// The log.
    pub(crate) links: Vec<Link>,
}

/// Which decisions people make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum People {
    /// They approve and deny.
    Decide,
    /// They only approve.
    Approve,
}

impl Script {
    /// Makes up a run from random numbers, one command for each.
    pub(crate) fn new(choices: &[u8], people: People) -> Script {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let start = start();
        let run = start.id;
        let mut driver = Pipeline::start(store.clone(), start.clone(), first_order()).unwrap();
        let mut settled = block_on(driver.settle()).done;
        let mut orders = Vec::new();
        for (at, choice) in choices.iter().enumerate() {
            let order = next_order(driver.tip().unwrap(), at, *choice, people);
            orders.push(order.clone());
            driver.push(order);
            let settlement = block_on(driver.settle());
            assert_eq!(settlement.failed, None);
            settled.extend(settlement.done);
        }
        Script { start, orders, settled, links: links(&*store, run) }
    }
}

/// All links of a run.
pub(crate) fn links(store: &dyn Store, run: RunId) -> Vec<Link> {
    block_on(store.links(run, Seq(0), 10_000)).unwrap()
}

/// All events of a run.
pub(crate) fn events(store: &dyn Store, run: RunId) -> Vec<Envelope> {
    links(store, run).iter().flat_map(|link| link.events().unwrap()).collect()
}

/// The order that begins the run.
pub(crate) fn first_order() -> Order {
    Order { commands: Vec::new(), ..order(usize::MAX, Actor::Client(user("client")), Command::Tick) }
}

/// One command with everything that deciding it needs.
pub(crate) fn order(at: usize, actor: Actor, command: Command) -> Order {
    let rule = |tool: &str| match tool {
        "pay" => Verdict::new(Effect::Hold, RuleId::new("about-pay").unwrap()),
        _ => Verdict::new(Effect::Allow, RuleId::new("free").unwrap()),
    };
    // Call numbers tell which tool it is, so that verdicts do not depend on the state.
    let by_call = (1..500).map(|no| (CallNo(no), rule(tool_of(no)))).collect();
    let authority = match actor {
        Actor::Person(_) | Actor::Link(_) => Some(Role::Approver),
        Actor::Callback(_) => Some(Role::Callback),
        Actor::Client(_) | Actor::Outside(_) | Actor::Node(_) | Actor::Clock => None,
    };
    let given = OrderContext {
        now: BEGINNING.plus(Millis::seconds(i64::try_from(at.wrapping_add(1)).unwrap())),
        entropy: Entropy(digest::of_parts("ahead", &[&at.to_be_bytes()]).0),
        actor,
        definition: Arc::new(definition()),
        verdicts: Verdicts { by_call, ..Verdicts::default() },
        authority,
        counts_for: Vec::new(),
        recorded: None,
        limits: Arc::new(Limits::default()),
        origin: None,
    };
    Order { commands: vec![command], given, writes: Writes::default() }
}

/// Call numbers tell the tool: every third must be approved.
pub(crate) fn tool_of(no: u32) -> &'static str {
    if no.is_multiple_of(3) { "pay" } else { "read" }
}

fn arguments_of(no: u32) -> String {
    format!(r#"{{"n":{no}}}"#)
}

pub(crate) fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

fn start() -> Start {
    let tenant = Tenant::default_tenant();
    Start {
        id: RunId::new(&tenant, StorageKind::Durable, BEGINNING, [1, 2, 3, 4, 5]),
        tenant,
        agent: definition().agent,
        session: SessionId::new("conversation-1").unwrap(),
        owner: user("client"),
        driver: DrivenBy::Loop,
        definition: definition().digest(),
        parent: None,
        inbox: None,
        message: Message::text("go"),
        taken: Admission::AtOnce,
        history: None,
    }
}

fn definition() -> Definition {
    let tool = |name: &str| {
        let spec = ToolSpec {
            description: name.into(),
            schema: RawJson::parse("{}").unwrap(),
            replay: Replay::Never,
            reversible: false,
            approval_prompt: None,
            holds: None,
        };
        (ToolName::new(name).unwrap(), spec)
    };
    Definition {
        agent: AgentName::new("assistant").unwrap(),
        prompt: String::new(),
        model: String::new(),
        model_parameters: None,
        tools: BTreeMap::from([tool("read"), tool("pay")]),
        policy: None,
        sub_agents: Vec::new(),
        show_thinking: false,
        hold_batch: false,
        holds: HoldPolicy::default(),
    }
}

/// What somebody does next with a run in this state.
pub(crate) fn next_order(run: &Run, at: usize, choice: u8, people: People) -> Order {
    let (actor, command) = next_command(run, at, choice, people);
    order(at, actor, command)
}

fn next_command(run: &Run, at: usize, choice: u8, people: People) -> (Actor, Command) {
    let node = Actor::Node(NODE);
    // Whatever the state: a message, or time that passes.
    match choice % 11 {
        0 => {
            let say = Say { message: Message::text(format!("message-{at}")), on_hold: OnHold::Refuse };
            return (Actor::Client(user("client")), Command::Say(say));
        }
        1 => return (Actor::Clock, Command::Tick),
        // A result for a call that nobody started is refused.
        2 => return (node, finish(CallNo(400), 1, at)),
        _ => {}
    }
    let calls = &run.state.calls;
    let is_started = |call: &&Call| matches!(call.state, CallState::Started { .. });
    let started = calls.iter().find(is_started);
    let ready = calls.iter().find(|call| call.state == CallState::Ready);
    let hold = run.state.holds.get(usize::from(choice) % run.state.holds.len().max(1));
    match (run.state.stage, ready, started, hold) {
        (Stage::Thinking { .. }, ..) => (node, reply(run, at, choice)),
        (Stage::Acting, Some(call), _, _) if choice.is_multiple_of(2) => (node, begin(call, at)),
        (Stage::Acting, _, Some(call), _) if choice.is_multiple_of(5) => (node, suspend(call)),
        (Stage::Acting, _, Some(call), _) => (node, finish(call.no, call.attempt, at)),
        (Stage::Acting, _, _, Some(hold)) => resolve(hold, at, choice, people),
        (Stage::Acting, Some(call), ..) => (node, begin(call, at)),
        (Stage::Acting, None, None, None) | (Stage::Ended(_), ..) => (node, finish(CallNo(1), 1, at)),
    }
}

fn reply(run: &Run, at: usize, choice: u8) -> Command {
    let count = u32::from(choice % 4);
    let numbers = run.state.calls_made + 1..run.state.calls_made + 1 + count;
    let asked = |no: u32| AskedCall {
        id: format!("toolu_{no}"),
        tool: tool_of(no).into(),
        arguments: arguments_of(no),
        problem: None,
    };
    Command::RecordReply(RecordReply {
        text: Some(format!("reply-{at}")),
        parts: Vec::new(),
        calls: numbers.map(asked).collect(),
        opaque: None,
        usage: Usage::default(),
        model: None,
        heard: run.heard(),
    })
}

fn begin(call: &Call, at: usize) -> Command {
    let start_by = BEGINNING.plus(Millis::seconds(i64::try_from(at).unwrap() + 10));
    let stored = StoredCall { tool: call.tool.clone(), arguments: arguments_of(call.no.0) };
    Command::Begin(Begin { call: call.no, node: NODE, start_by, stored, pending: None })
}

fn finish(call: CallNo, attempt: u32, at: usize) -> Command {
    let result = ToolResult::Ok(Body::text(format!("result-{at}")));
    Command::FinishCall(FinishCall { call, attempt, result, worker: None })
}

fn suspend(call: &Call) -> Command {
    Command::Suspend(Suspend {
        call: call.no,
        attempt: call.attempt,
        kind: SuspendFor::External,
        ask: Ask::default(),
        timeout: None,
        secret: None,
        worker: None,
    })
}

fn resolve(hold: &Hold, at: usize, choice: u8, people: People) -> (Actor, Command) {
    let decide = Decide { hold: hold.key, digest: None, revision: None };
    let (actor, resolution) = match hold.kind {
        HoldKind::Approval if people == People::Decide && choice.is_multiple_of(3) => {
            (Actor::Person(user("alice")), Choice::Deny { reason: Some("no".into()) })
        }
        HoldKind::Approval | HoldKind::Recovery => (Actor::Person(user("alice")), Choice::Approve),
        HoldKind::Input | HoldKind::External | HoldKind::Auth => {
            (Actor::Callback(user("job")), Choice::Answer { value: Body::text(format!("result-{at}")) })
        }
    };
    (actor, Command::Resolve(Resolve { decide, resolution, idempotency_key: None, message: None }))
}

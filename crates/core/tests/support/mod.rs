//! A run in a test: sends commands as the engine would, and keeps run and log as a store would.
//!
//! Names here are facts of the domain (`the_model_asks`, `a_person_is_asked`); what must hold of any run at any time
//! is in `invariants.rs`.

pub(crate) mod chain;
pub(crate) mod decisions;
pub(crate) mod invariants;

use std::collections::BTreeMap;

use standfast_core::actor::Actor;
use standfast_core::body::Body;
use standfast_core::command::{
    Admission, AskedCall, Begin, Choice, ClaimRun, Command, Context, Decide, Entropy, FinishCall, Limits,
    OnHold, Propose, RecordReply, Resolve, Say, Start, StoredCall, Suspend, SuspendFor,
};
use standfast_core::decide::{self, Answer, Transition};
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::event::{Driver, Envelope, Event, OrphanCause, Parent};
use standfast_core::hold::{Ask, EditedArguments, Hold, HoldPolicy, RecordedDecision, Resolution};
use standfast_core::id::{CallNo, HoldKey, Incarnation, RunId, StorageKind};
use standfast_core::json::RawJson;
use standfast_core::message::{Message, Replay, ToolCall, ToolResult, Usage};
use standfast_core::name::{AgentName, RuleId, SessionId, Tenant, ToolName, UserId, WorkerName};
use standfast_core::policy::{Effect, Role, Verdict, Verdicts};
use standfast_core::refusal::Refusal;
use standfast_core::run::Run;
use standfast_core::time::{Millis, Timestamp};

/// When every test begins.
pub(crate) const BEGIN: Timestamp = Timestamp(1_762_000_000_000);
/// The node that works in tests.
pub(crate) const NODE: Incarnation = Incarnation([7; 16]);
/// Another node, or the same one after a restart.
pub(crate) const OTHER_NODE: Incarnation = Incarnation([8; 16]);
/// A tool that changes the world.
pub(crate) const SHELL: &str = "shell";
/// A tool that may be started again with the same key.
pub(crate) const LOOKUP: &str = "lookup";

/// A run, its log, and everything that the engine would hand to the rules.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) run: Run,
    pub(crate) log: Vec<Envelope>,
    pub(crate) now: Timestamp,
    pub(crate) definition: Definition,
    pub(crate) limits: Limits,
    pub(crate) verdicts: Verdicts,
    pub(crate) actor: Actor,
    pub(crate) authority: Option<Role>,
    pub(crate) counts_for: Vec<RuleId>,
    pub(crate) canceled_children: Vec<RunId>,
}

impl Scene {
    /// A run that has just started, by its own loop or an outside worker.
    pub(crate) fn start(definition: Definition, driver: Driver) -> Scene {
        Scene::start_below(definition, driver, None).unwrap()
    }

    /// A run that has just started, perhaps as a sub-agent.
    pub(crate) fn start_below(
        definition: Definition,
        driver: Driver,
        parent: Option<Parent>,
    ) -> Result<Scene, Refusal> {
        let start = Start {
            id: run_id(),
            tenant: Tenant::default_tenant(),
            agent: definition.agent.clone(),
            session: SessionId::new("s-1").unwrap(),
            owner: user("alice"),
            driver,
            definition: definition.digest(),
            parent,
            inbox: None,
            message: Message::text("tidy up"),
            taken: Admission::Queued,
            history: None,
        };
        let (limits, verdicts) = (Limits::default(), the_policy_says(Effect::Allow));
        let ctx = Context {
            now: BEGIN,
            entropy: Entropy([0; 32]),
            actor: Actor::Client(user("alice")),
            definition: &definition,
            verdicts: &verdicts,
            authority: None,
            counts_for: &[],
            recorded: None,
            limits: &limits,
            origin: None,
        };
        let Transition { events, run, outcome, cancel_children } = decide::start(&start, &ctx)?;
        outcome?;
        Ok(Scene {
            run,
            log: events,
            now: BEGIN,
            limits,
            verdicts,
            actor: person("alice"),
            authority: Some(Role::Approver),
            counts_for: Vec::new(),
            canceled_children: cancel_children,
            definition,
        })
    }

    /// A run of Standfast's own loop.
    pub(crate) fn of_loop() -> Scene {
        Scene::start(an_agent(), Driver::Loop)
    }

    /// A run that a worker elsewhere has claimed.
    pub(crate) fn of_worker() -> Scene {
        let mut scene = Scene::start(an_agent(), Driver::Outside);
        scene.send(the_worker_claims()).unwrap();
        scene
    }

    /// A run of the loop whose only call waits for approval under this policy.
    pub(crate) fn waiting_for_approval(holds: HoldPolicy) -> (Scene, HoldKey) {
        let mut scene = Scene::start(Definition { holds, ..an_agent() }, Driver::Loop);
        scene.verdicts = the_policy_says(Effect::Hold);
        scene.the_model_asks(&[SHELL]);
        let hold = scene.hold();
        (scene, hold)
    }

    /// A run of the loop whose only call was started, and nobody knows what it did.
    pub(crate) fn with_unknown_outcome() -> (Scene, HoldKey) {
        let mut scene = Scene::of_loop();
        scene.the_model_asks(&[SHELL]);
        scene.begins(1).unwrap();
        scene
            .send(Command::Orphan {
                call: CallNo(1),
                attempt: 1,
                node: NODE,
                why: OrphanCause::ServerLost,
                reconciled: None,
            })
            .unwrap();
        let hold = scene.hold();
        (scene, hold)
    }

    /// A run of the loop whose only call waits for this.
    pub(crate) fn suspended(kind: SuspendFor, holds: HoldPolicy) -> (Scene, HoldKey) {
        let mut scene = Scene::start(Definition { holds, ..an_agent() }, Driver::Loop);
        scene.the_model_asks(&[SHELL]);
        scene.begins(1).unwrap();
        scene.send(Command::Suspend(suspend(1, 1, kind))).unwrap();
        let hold = scene.hold();
        (scene, hold)
    }

    /// What follows from a command, without making it so.
    pub(crate) fn decided(&self, command: &Command) -> Transition {
        let recorded = named_hold(command).and_then(|hold| recorded(&self.log, hold));
        let ctx = self.context(recorded.as_ref());
        decide::decide(&self.run, command, &ctx)
    }

    /// What the engine hands to the rules now.
    pub(crate) fn context<'a>(&'a self, recorded: Option<&'a RecordedDecision>) -> Context<'a> {
        let mut entropy = [0; 32];
        entropy[..8].copy_from_slice(&self.run.state.seq.0.to_be_bytes());
        Context {
            now: self.now,
            entropy: Entropy(entropy),
            actor: self.actor.clone(),
            definition: &self.definition,
            verdicts: &self.verdicts,
            authority: self.authority,
            counts_for: &self.counts_for,
            recorded,
            limits: &self.limits,
            origin: None,
        }
    }

    /// Sends a command and makes what follows so.
    pub(crate) fn send(&mut self, command: Command) -> Result<Answer, Refusal> {
        let decided = self.decided(&command);
        self.take(decided)
    }

    /// Makes what was decided so.
    pub(crate) fn take(&mut self, decided: Transition) -> Result<Answer, Refusal> {
        self.log.extend(decided.events);
        self.run = decided.run;
        self.canceled_children.extend(decided.cancel_children);
        decided.outcome
    }

    /// The model asks for one call of each tool.
    pub(crate) fn the_model_asks(&mut self, tools: &[&str]) {
        let calls = tools.iter().map(|tool| asked(tool, r#"{"n": 1}"#)).collect();
        self.send(self.reply(calls)).unwrap();
    }

    /// A reply with these calls.
    pub(crate) fn reply(&self, calls: Vec<AskedCall>) -> Command {
        let usage = Usage { input: 10, output: 1, cost_micros: 0 };
        let text = Some("I am on it.".into());
        Command::RecordReply(RecordReply {
            text,
            parts: Vec::new(),
            calls,
            opaque: None,
            usage,
            model: None,
            heard: self.run.heard(),
        })
    }

    /// A node begins a call as the log holds it, with a minute to start.
    pub(crate) fn begins(&mut self, call: u32) -> Result<Answer, Refusal> {
        self.send(self.begin(call))
    }

    /// A node is about to run a call as the log holds it.
    pub(crate) fn begin(&self, call: u32) -> Command {
        let call = CallNo(call);
        let stored = stored(&self.log, call).unwrap();
        let start_by = self.now.plus(Millis::seconds(60));
        Command::Begin(Begin { call, node: NODE, start_by, stored, pending: None })
    }

    /// A node begins a call and finds that it must wait: one append, as the engine does it.
    pub(crate) fn begins_and_suspends(&mut self, wanted: Suspend) -> Result<Answer, Refusal> {
        let begin = self.begin(wanted.call.0);
        let ctx = self.context(None);
        let begun = decide::decide(&self.run, &begin, &ctx);
        let decided = match begun.outcome {
            Ok(Answer::Done) => decide::decide_more(begun, &Command::Suspend(wanted), &ctx),
            Ok(_) | Err(_) => begun,
        };
        self.take(decided)
    }

    /// Someone moves the run to another definition of its agent.
    pub(crate) fn moves_to(&mut self, definition: Definition) {
        self.send(Command::Repin { definition: definition.digest() }).unwrap();
        self.definition = definition;
    }

    /// The call finishes well.
    pub(crate) fn finishes(&mut self, call: u32, attempt: u32) -> Result<Answer, Refusal> {
        self.send(Command::FinishCall(finish(call, attempt)))
    }

    /// Someone decides a hold.
    pub(crate) fn resolves(&mut self, hold: HoldKey, wanted: Choice) -> Result<Answer, Refusal> {
        self.send(resolve(hold, wanted))
    }

    /// Lets time pass.
    pub(crate) fn later(&mut self, span: Millis) {
        self.now = self.now.plus(span);
    }

    /// The only open hold.
    pub(crate) fn hold(&self) -> HoldKey {
        let [hold] = self.run.state.holds.as_slice() else {
            panic!("not one hold: {:?}", self.run.state.holds)
        };
        hold.key
    }

    /// The open hold of a call.
    pub(crate) fn hold_of(&self, call: u32) -> &Hold {
        self.run.state.holds.iter().find(|hold| hold.call() == CallNo(call)).unwrap()
    }

    /// The kinds of all events after the first `n`.
    pub(crate) fn kinds_after(&self, n: usize) -> Vec<&'static str> {
        self.log[n..].iter().map(|envelope| envelope.event.kind()).collect()
    }

    /// How a hold was resolved.
    pub(crate) fn resolution(&self, hold: HoldKey) -> Option<Resolution> {
        recorded(&self.log, hold).map(|recorded| recorded.resolution)
    }
}

/// An agent with one tool that changes the world and one that does not.
pub(crate) fn an_agent() -> Definition {
    let tool = |name: &str, replay| {
        let spec = ToolSpec {
            description: format!("the tool {name}"),
            schema: RawJson::parse(r#"{"type":"object"}"#).unwrap(),
            replay,
            reversible: false,
            approval_prompt: None,
            holds: None,
        };
        (ToolName::new(name).unwrap(), spec)
    };
    Definition {
        agent: AgentName::new("helper").unwrap(),
        prompt: String::new(),
        model: String::new(),
        model_parameters: None,
        tools: BTreeMap::from([tool(SHELL, Replay::Never), tool(LOOKUP, Replay::Idempotent)]),
        policy: None,
        sub_agents: Vec::new(),
        show_thinking: false,
        hold_batch: false,
        holds: HoldPolicy::default(),
    }
}

/// The same agent after its tool that changes the world was changed.
pub(crate) fn with_another_schema(mut definition: Definition) -> Definition {
    let shell = definition.tools.get_mut(&ToolName::new(SHELL).unwrap()).unwrap();
    shell.schema = RawJson::parse(r#"{"type":"object","required":["n"]}"#).unwrap();
    definition
}

/// The same verdict of one rule for every call.
pub(crate) fn the_policy_says(effect: Effect) -> Verdicts {
    the_rule_says("r", effect, 1)
}

/// A verdict of this rule for every call; so many people must agree if it holds.
pub(crate) fn the_rule_says(rule: &str, effect: Effect, votes: u32) -> Verdicts {
    let verdict = Verdict { votes, ..Verdict::new(effect, RuleId::new(rule).unwrap()) };
    Verdicts { by_call: (1..100).map(|no| (CallNo(no), verdict.clone())).collect(), ..Verdicts::default() }
}

pub(crate) fn run_id() -> RunId {
    RunId::new(&Tenant::default_tenant(), StorageKind::Durable, BEGIN, [1, 2, 3, 4, 5])
}

pub(crate) fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

pub(crate) fn person(name: &str) -> Actor {
    Actor::Person(user(name))
}

pub(crate) fn worker(name: &str) -> WorkerName {
    WorkerName::new(name).unwrap()
}

pub(crate) fn asked(tool: &str, arguments: &str) -> AskedCall {
    AskedCall { id: "c".into(), tool: tool.into(), arguments: arguments.into(), problem: None }
}

pub(crate) fn resolve(hold: HoldKey, resolution: Choice) -> Command {
    Command::Resolve(Resolve { decide: as_seen(hold), resolution, idempotency_key: None, message: None })
}

pub(crate) fn as_seen(hold: HoldKey) -> Decide {
    Decide { hold, digest: None, revision: None }
}

pub(crate) fn deny() -> Choice {
    Choice::Deny { reason: Some("no".into()) }
}

pub(crate) fn answer() -> Choice {
    Choice::Answer { value: Body::text("yes") }
}

pub(crate) fn fail() -> Choice {
    Choice::Fail { error: Body::text("exit 1") }
}

pub(crate) fn edited() -> Choice {
    Choice::ApproveEdited { arguments: RawJson::parse(r#"{"n": 2}"#).unwrap() }
}

pub(crate) fn finish(call: u32, attempt: u32) -> FinishCall {
    FinishCall { call: CallNo(call), attempt, result: ToolResult::Ok(Body::text("ok")), worker: None }
}

pub(crate) fn suspend(call: u32, attempt: u32, kind: SuspendFor) -> Suspend {
    let (ask, timeout) = (Ask::default(), None);
    Suspend { call: CallNo(call), attempt, kind, ask, timeout, secret: None, worker: Some(worker("w-1")) }
}

/// The wish to wait for a sub-run that this start of a call needs.
pub(crate) fn suspend_for_child(call: u32, attempt: u32) -> Suspend {
    let ask = Ask { child: Some(run_id().child(CallNo(call), attempt)), ..Ask::default() };
    Suspend { ask, ..suspend(call, attempt, SuspendFor::External) }
}

pub(crate) fn the_worker_claims() -> Command {
    Command::Claim(ClaimRun::Worker { worker: worker("w-1"), period: Millis::seconds(60) })
}

pub(crate) fn the_worker_proposes(tool: &str) -> Command {
    Command::Propose(Propose { worker: worker("w-1"), call: asked(tool, "{}"), context: None, schema: None })
}

pub(crate) fn say(on_hold: OnHold) -> Command {
    Command::Say(Say { message: Message::text("wait"), on_hold })
}

pub(crate) fn cancel() -> Command {
    Command::Cancel { reason: None }
}

/// A call as the log holds it: what a node reads before it begins.
pub(crate) fn stored(log: &[Envelope], no: CallNo) -> Option<StoredCall> {
    let mut found: Option<StoredCall> = None;
    for envelope in log {
        let event = &envelope.event;
        if let Event::ModelReplied(replied) = event {
            found = replied.reply.calls.iter().find(|call| call.no == no).map(as_proposed).or(found);
        } else if let Event::CallProposed(proposed) = event
            && proposed.call.no == no
        {
            found = Some(as_proposed(&proposed.call));
        } else if let (Some(edited), Some(call)) = (edit_of(event, no), &mut found) {
            call.arguments = edited.arguments.inline().unwrap().to_owned();
        }
    }
    found
}

fn as_proposed(call: &ToolCall) -> StoredCall {
    StoredCall { tool: call.tool.clone(), arguments: call.arguments.inline().unwrap().to_owned() }
}

/// The arguments that an event puts in the place of a call's earlier ones.
fn edit_of(event: &Event, no: CallNo) -> Option<&EditedArguments> {
    if let Event::HoldEdited(edit) = event {
        return (edit.hold.call == no).then_some(&edit.edited);
    }
    let Event::HoldResolved(resolved) = event else { return None };
    let Resolution::Approve { edited } = &resolved.resolution else { return None };
    edited.as_ref().filter(|_| resolved.hold.call == no)
}

/// The decision on a hold, as the engine reads it for later attempts.
pub(crate) fn recorded(log: &[Envelope], hold: HoldKey) -> Option<RecordedDecision> {
    log.iter().find_map(|envelope| {
        let Event::HoldResolved(resolved) = &envelope.event else { return None };
        (resolved.hold == hold).then(|| RecordedDecision {
            resolution: resolved.resolution.clone(),
            by: envelope.actor.clone(),
            at: envelope.at,
            idempotency_key: resolved.idempotency_key.clone(),
        })
    })
}

/// The hold that a command names.
fn named_hold(command: &Command) -> Option<HoldKey> {
    match command {
        Command::Resolve(resolve) => Some(resolve.decide.hold),
        Command::ResolveAll(each) => each.first().map(|first| first.decide.hold),
        Command::Reject(reject) => reject.holds.first().copied(),
        Command::Vote(decide) => Some(decide.hold),
        Command::Edit(edit) => Some(edit.decide.hold),
        Command::Assign { hold, .. } | Command::Delegate { hold, .. } | Command::Reopen { hold, .. } => {
            Some(*hold)
        }
        Command::Say(_)
        | Command::Cancel { .. }
        | Command::Erase { .. }
        | Command::Claim(_)
        | Command::Propose(_)
        | Command::Finish { .. }
        | Command::Fail(_)
        | Command::StartWork { .. }
        | Command::Heartbeat { .. }
        | Command::Release { .. }
        | Command::Repin { .. }
        | Command::RecordReply(_)
        | Command::RecordFailure(_)
        | Command::Begin(_)
        | Command::Return { .. }
        | Command::Progress { .. }
        | Command::FinishCall(_)
        | Command::Suspend(_)
        | Command::Orphan { .. }
        | Command::Tick => None,
    }
}

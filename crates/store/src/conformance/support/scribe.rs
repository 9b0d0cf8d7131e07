//! Turns commands into batches by the real rules, and knows no store.
//!
//! The policy of every test: the tool [`SHELL`] needs an approval, [`LOOKUP`] does not.

use std::collections::{BTreeMap, HashMap};

use standfast_core::actor::Actor;
use standfast_core::command::{
    Admission, AskedCall, Command, Context, Decide, Entropy, Limits, RecordReply, Start, StoredCall,
};
use standfast_core::decide::{self, Transition};
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::digest::{self, Digest};
use standfast_core::event::{Driver, Envelope, Event, Inbox, Parent};
use standfast_core::hold::{EditedArguments, HoldPolicy, Resolution};
use standfast_core::id::{CallNo, HoldKey, Incarnation, RunId, StorageKind};
use standfast_core::json::RawJson;
use standfast_core::message::{Message, Replay, ToolCall, Usage};
use standfast_core::name::{AgentName, InboxName, RuleId, SessionId, Tenant, ToolName, UserId, WorkerName};
use standfast_core::policy::{Effect, Role, Verdict, Verdicts};
use standfast_core::project::RunRow;
use standfast_core::run::Run;
use standfast_core::time::Timestamp;

use crate::{Batch, LeaseChange, Seal, SideWrite};

/// When every test begins.
pub const BEGIN: Timestamp = Timestamp(1_762_000_000_000);
/// The node that works in tests.
pub const NODE: Incarnation = Incarnation([7; 16]);
/// Another node, or the same one after a restart.
pub const OTHER_NODE: Incarnation = Incarnation([8; 16]);
/// A tool that changes the world: a person is asked.
pub const SHELL: &str = "shell";
/// A tool that may be started again with the same key: nobody is asked.
pub const LOOKUP: &str = "lookup";

/// Makes batches: everything random comes from the seed.
#[derive(Debug, Clone)]
pub struct Scribe {
    /// The instant of whatever is decided next.
    pub now: Timestamp,
    seed: u64,
    drawn: u64,
    definitions: HashMap<Digest, Definition>,
}

/// A run that is about to start.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Whose.
    pub tenant: Tenant,
    /// The agent.
    pub agent: AgentName,
    /// Who started it.
    pub owner: UserId,
    /// The conversation.
    pub session: SessionId,
    /// Who drives it.
    pub driver: Driver,
    /// Where it comes from.
    pub parent: Option<Parent>,
    /// Its id, when it is not made here.
    pub id: Option<RunId>,
    /// Its place in an inbox.
    pub inbox: Option<Inbox>,
    /// What to do.
    pub message: Message,
    /// What deny and silence do to its holds.
    pub holds: HoldPolicy,
}

impl NewRun {
    /// A run of this agent's own loop.
    #[must_use]
    pub fn of(name: &str) -> NewRun {
        NewRun {
            tenant: tenant("default"),
            agent: agent(name),
            owner: user("olga"),
            session: session("s-1"),
            driver: Driver::Loop,
            parent: None,
            id: None,
            inbox: None,
            message: Message::text("tidy up"),
            holds: HoldPolicy::default(),
        }
    }

    /// In this conversation.
    #[must_use]
    pub fn in_session(self, name: &str) -> NewRun {
        NewRun { session: session(name), ..self }
    }

    /// Started by this user.
    #[must_use]
    pub fn of_user(self, name: &str) -> NewRun {
        NewRun { owner: user(name), ..self }
    }

    /// Of this tenant.
    #[must_use]
    pub fn of_tenant(self, name: &str) -> NewRun {
        NewRun { tenant: tenant(name), ..self }
    }

    /// Driven by a worker elsewhere, which finds it in this inbox.
    #[must_use]
    pub fn in_inbox(self, name: &str, priority: u8) -> NewRun {
        let inbox = Inbox {
            inbox: InboxName::new(name).unwrap(),
            kind: "ticket".into(),
            priority,
            target_agent: None,
            title: Some("a ticket".into()),
            source_id: None,
            source_url: None,
            max_attempts: 3,
            expires_at: None,
            metadata: None,
        };
        NewRun { driver: Driver::Outside, inbox: Some(inbox), ..self }
    }

    /// With this policy for its holds.
    #[must_use]
    pub fn holding(self, holds: HoldPolicy) -> NewRun {
        NewRun { holds, ..self }
    }

    /// With this message.
    #[must_use]
    pub fn saying(self, text: impl Into<String>) -> NewRun {
        NewRun { message: Message::text(text), ..self }
    }
}

impl Scribe {
    /// A scribe whose ids differ from those of every other seed.
    #[must_use]
    pub fn new(seed: u64) -> Scribe {
        Scribe { now: BEGIN, seed, drawn: 0, definitions: HashMap::new() }
    }

    /// What an engine stores with the first append of a run: the definition that it is pinned to.
    #[must_use]
    pub fn pinned(&self, row: &RunRow) -> SideWrite {
        let digest = row.run.state.definition;
        SideWrite::Definition { digest, bytes: self.definitions[&digest].to_bytes().into() }
    }

    /// The first append of a run.
    pub fn start(&mut self, new: &NewRun) -> Batch {
        let definition = definition(new);
        let pinned = definition.digest();
        self.definitions.entry(pinned).or_insert_with(|| definition.clone());
        let id = new.id.unwrap_or_else(|| self.run_id(&new.tenant));
        let start = Start {
            id,
            tenant: new.tenant.clone(),
            agent: new.agent.clone(),
            session: new.session.clone(),
            owner: new.owner.clone(),
            driver: new.driver,
            definition: pinned,
            parent: new.parent,
            inbox: new.inbox.clone(),
            message: new.message.clone(),
            taken: Admission::Queued,
            history: None,
        };
        let (limits, verdicts) = (Limits::default(), Verdicts::default());
        let ctx = self.context(Actor::Client(user("olga")), &definition, &verdicts, &limits);
        let decided = decide::start(&start, &ctx).unwrap();
        self.seal(None, &decided).unwrap()
    }

    /// A new id of a run.
    pub fn run_id(&mut self, tenant: &Tenant) -> RunId {
        let random = self.draw("run");
        let mut bytes = [0; 5];
        bytes.copy_from_slice(&random[..5]);
        RunId::new(tenant, StorageKind::Durable, self.now, bytes)
    }

    /// What follows from a command.
    pub fn decided(&mut self, row: &RunRow, command: &Command) -> Transition {
        let definition = self.definitions.get(&row.run.state.definition).cloned();
        let definition =
            definition.unwrap_or_else(|| definition_of(&row.run.facts.agent, &HoldPolicy::default()));
        let (limits, verdicts) = (Limits::default(), verdicts(&row.run, command));
        let ctx = self.context(actor(command), &definition, &verdicts, &limits);
        decide::decide(&row.run, command, &ctx)
    }

    /// What follows from a command, as a batch; none when nothing does.
    pub fn try_batch(&mut self, row: &RunRow, command: &Command) -> Option<Batch> {
        let decided = self.decided(row, command);
        self.seal(Some(row), &decided)
    }

    /// What follows from a command that must be taken, as a batch.
    #[track_caller]
    pub fn batch(&mut self, row: &RunRow, command: &Command) -> Batch {
        let decided = self.decided(row, command);
        assert!(decided.outcome.is_ok(), "{command:?} is refused: {:?}", decided.outcome);
        self.seal(Some(row), &decided).expect("the command changes something")
    }

    /// The model asks for a call of each of these tools.
    pub fn reply(&mut self, row: &RunRow, tools: &[&str]) -> Batch {
        let calls = tools.iter().map(|tool| asked(tool, r#"{"n": 1}"#)).collect();
        self.batch(row, &model_reply(&row.run, calls))
    }

    fn seal(&mut self, before: Option<&RunRow>, decided: &Transition) -> Option<Batch> {
        let mut salt = [0; 16];
        salt.copy_from_slice(&self.draw("salt")[..16]);
        Batch::seal(
            before,
            decided,
            Seal { salt, lease: LeaseChange::Keep, guards: Vec::new(), puts: Vec::new() },
        )
    }

    fn context<'a>(
        &mut self,
        actor: Actor,
        definition: &'a Definition,
        verdicts: &'a Verdicts,
        limits: &'a Limits,
    ) -> Context<'a> {
        Context {
            now: self.now,
            entropy: Entropy(self.draw("entropy")),
            actor,
            definition,
            verdicts,
            authority: Some(Role::Approver),
            counts_for: &[],
            recorded: None,
            limits,
            origin: None,
        }
    }

    fn draw(&mut self, label: &str) -> [u8; 32] {
        self.drawn += 1;
        let parts = [label.as_bytes(), &self.seed.to_be_bytes(), &self.drawn.to_be_bytes()];
        digest::of_parts("standfast.conformance", &parts).0
    }
}

/// A reply of the model that asks for these calls.
#[must_use]
pub fn model_reply(run: &Run, calls: Vec<AskedCall>) -> Command {
    let usage = Usage { input: 10, output: 1, cost_micros: 3 };
    let text = Some("I am on it.".into());
    let (parts, opaque, model) = (Vec::new(), None, None);
    Command::RecordReply(RecordReply { text, parts, calls, opaque, usage, model, heard: run.heard() })
}

fn definition(new: &NewRun) -> Definition {
    definition_of(&new.agent, &new.holds)
}

fn definition_of(agent: &AgentName, holds: &HoldPolicy) -> Definition {
    let spec = |name: &str, replay| {
        let schema = RawJson::parse(r#"{"type":"object"}"#).unwrap();
        let description = format!("the tool {name}");
        let spec =
            ToolSpec { description, schema, replay, reversible: false, approval_prompt: None, holds: None };
        (tool(name), spec)
    };
    Definition {
        agent: agent.clone(),
        prompt: "be brief".into(),
        model: "m-1".into(),
        model_parameters: None,
        tools: BTreeMap::from([spec(SHELL, Replay::Never), spec(LOOKUP, Replay::Idempotent)]),
        policy: None,
        sub_agents: Vec::new(),
        show_thinking: false,
        hold_batch: false,
        holds: holds.clone(),
    }
}

/// What the policy says of every call that the run has or would get: by its tool.
fn verdicts(run: &Run, command: &Command) -> Verdicts {
    let said = |no: CallNo, tool: &str| {
        let effect = if tool == SHELL { Effect::Hold } else { Effect::Allow };
        (no, Verdict::new(effect, RuleId::new("r").unwrap()))
    };
    let asked: Vec<&AskedCall> = if let Command::RecordReply(reply) = command {
        reply.calls.iter().collect()
    } else if let Command::Propose(propose) = command {
        vec![&propose.call]
    } else {
        Vec::new()
    };
    let old = run.state.calls.iter().map(|call| said(call.no, call.tool.as_str()));
    let new = asked.iter().zip(run.state.calls_made + 1..).map(|(call, no)| said(CallNo(no), &call.tool));
    Verdicts { by_call: old.chain(new).collect(), ..Verdicts::default() }
}

fn actor(command: &Command) -> Actor {
    match command {
        Command::Say(_) | Command::Cancel { .. } | Command::Erase { .. } => Actor::Client(user("olga")),
        Command::Claim(_)
        | Command::Propose(_)
        | Command::Finish { .. }
        | Command::Fail(_)
        | Command::StartWork { .. }
        | Command::Heartbeat { .. }
        | Command::Release { .. } => Actor::Outside(worker("w-1")),
        Command::Resolve(_)
        | Command::ResolveAll(_)
        | Command::Reject(_)
        | Command::Vote(_)
        | Command::Edit(_)
        | Command::Assign { .. }
        | Command::Delegate { .. }
        | Command::Reopen { .. }
        | Command::Repin { .. } => Actor::Person(user("alice")),
        Command::RecordReply(_)
        | Command::RecordFailure(_)
        | Command::Begin(_)
        | Command::Return { .. }
        | Command::Progress { .. }
        | Command::FinishCall(_)
        | Command::Suspend(_)
        | Command::Orphan { .. } => Actor::Node(NODE),
        Command::Tick => Actor::Clock,
    }
}

/// A call as the log holds it: what a node reads before it begins.
#[must_use]
pub fn stored_call(events: &[Envelope], no: CallNo) -> Option<StoredCall> {
    let mut found: Option<StoredCall> = None;
    for Envelope { event, .. } in events {
        if let Event::ModelReplied(replied) = event {
            found = replied.reply.calls.iter().find(|call| call.no == no).and_then(as_proposed).or(found);
        } else if let Event::CallProposed(proposed) = event
            && proposed.call.no == no
        {
            found = as_proposed(&proposed.call);
        } else if let (Some(edited), Some(call)) = (edit_of(event, no), &mut found) {
            call.arguments = edited.arguments.inline()?.to_owned();
        }
    }
    found
}

fn as_proposed(call: &ToolCall) -> Option<StoredCall> {
    let arguments = call.arguments.inline()?.to_owned();
    Some(StoredCall { tool: call.tool.clone(), arguments })
}

fn edit_of(event: &Event, no: CallNo) -> Option<&EditedArguments> {
    if let Event::HoldEdited(edit) = event {
        return (edit.hold.call == no).then_some(&edit.edited);
    }
    let Event::HoldResolved(resolved) = event else { return None };
    let Resolution::Approve { edited } = &resolved.resolution else { return None };
    edited.as_ref().filter(|_| resolved.hold.call == no)
}

/// A call as the model writes it.
#[must_use]
pub fn asked(tool: &str, arguments: &str) -> AskedCall {
    AskedCall { id: "c".into(), tool: tool.into(), arguments: arguments.into(), problem: None }
}

/// A hold as somebody saw it who repeats neither digest nor revision.
#[must_use]
pub fn as_seen(hold: HoldKey) -> Decide {
    Decide { hold, digest: None, revision: None }
}

/// A tenant.
#[must_use]
pub fn tenant(name: &str) -> Tenant {
    Tenant::new(name).unwrap()
}

/// An agent.
#[must_use]
pub fn agent(name: &str) -> AgentName {
    AgentName::new(name).unwrap()
}

/// A conversation.
#[must_use]
pub fn session(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

/// A tool.
#[must_use]
pub fn tool(name: &str) -> ToolName {
    ToolName::new(name).unwrap()
}

/// A person.
#[must_use]
pub fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

/// A worker elsewhere.
#[must_use]
pub fn worker(name: &str) -> WorkerName {
    WorkerName::new(name).unwrap()
}

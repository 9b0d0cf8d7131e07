//! Stories for tests: a run that real commands move, one second apart.
//!
//! Tools say by their name what policy thinks of them: `read` may run and may be tried again, `write` and `deploy`
//! are held, `banned` is forbidden. Nothing here knows what a test looks for.

mod pieces;

use self::pieces::{asked, context, definition};
pub(crate) use self::pieces::{body, json, reply, suspension, tool, user, worker};
use crate::actor::Actor;
use crate::command::{
    Admission, AskedCall, Begin, Choice, ClaimRun, Command, Context, Decide, Entropy, FinishCall, Limits,
    OnHold, Propose, Resolve, Say, Start, Suspend, SuspendFor,
};
use crate::decide::{self, Answer, Transition};
use crate::definition::Definition;
use crate::event::{Driver, Envelope, OrphanCause};
use crate::id::{CallNo, HoldKey, Incarnation, RunId, StorageKind};
use crate::message::{Message, ToolResult};
use crate::name::{RuleId, SessionId, Tenant};
use crate::policy::{Effect, Role, Verdict, Verdicts};
use crate::refusal::Refusal;
use crate::run::{PromptBasis, Run};
use crate::time::{Millis, Timestamp};
use crate::transcript::stored_call;

pub(crate) const NODE: Incarnation = Incarnation([7; 16]);

/// A run and everything that happened to it.
#[derive(Clone)]
pub(crate) struct Story {
    pub(crate) run: Run,
    pub(crate) events: Vec<Envelope>,
    pub(crate) now: Timestamp,
    pub(crate) definition: Definition,
    pub(crate) votes: u32,
    bans: Vec<String>,
}

impl Story {
    /// Our loop, asked to "tidy up" by alice.
    pub(crate) fn new() -> Story {
        Story::driven_by(Driver::Loop)
    }

    /// A worker elsewhere that has claimed the run.
    pub(crate) fn outside() -> Story {
        let mut story = Story::driven_by(Driver::Outside);
        story.by(
            Actor::Outside(worker()),
            Command::Claim(ClaimRun::Worker { worker: worker(), period: Millis::hours(1) }),
        );
        story
    }

    /// A gate, claimed by whoever opened it.
    pub(crate) fn gate() -> Story {
        let mut story = Story::driven_by(Driver::Gate);
        let claim = ClaimRun::Worker { worker: worker(), period: Millis::hours(1) };
        story.by(Actor::Outside(worker()), Command::Claim(claim));
        story
    }

    fn driven_by(driver: Driver) -> Story {
        let definition = definition();
        let now = Timestamp(1_762_000_000_000);
        let tenant = Tenant::default_tenant();
        let start = Start {
            id: RunId::new(&tenant, StorageKind::Durable, now, [1, 2, 3, 4, 5]),
            tenant,
            agent: definition.agent.clone(),
            session: SessionId::new("ctx-1").unwrap(),
            owner: user("alice"),
            driver,
            definition: definition.digest(),
            parent: None,
            inbox: None,
            message: Message::text("tidy up"),
            taken: Admission::AtOnce,
            history: None,
        };
        let (verdicts, limits) = (Verdicts::default(), Limits::default());
        let alice = Actor::Client(user("alice"));
        let ctx = context(now, alice, &definition, &verdicts, &limits);
        let Transition { events, run, .. } = decide::start(&start, &ctx).unwrap();
        Story { run, events, now, definition, votes: 1, bans: Vec::new() }
    }

    /// What follows from a command, taken or refused.
    pub(crate) fn tries(&mut self, actor: Actor, command: Command) -> Result<Answer, Refusal> {
        self.now = self.now.plus(Millis::seconds(1));
        let verdicts = self.verdicts(&command);
        let authority = match &actor {
            Actor::Person(_) | Actor::Link(_) => Some(Role::Approver),
            Actor::Callback(_) => Some(Role::Callback),
            Actor::Client(_) | Actor::Outside(_) | Actor::Node(_) | Actor::Clock => None,
        };
        let mut random = [0; 32];
        random[..8].copy_from_slice(&self.run.state.seq.0.to_be_bytes());
        let limits = Limits::default();
        let ctx = Context {
            entropy: Entropy(random),
            authority,
            ..context(self.now, actor, &self.definition, &verdicts, &limits)
        };
        let decided = decide::decide(&self.run, &command, &ctx);
        self.run = decided.run;
        self.events.extend(decided.events);
        decided.outcome
    }

    /// A command that must be taken.
    pub(crate) fn by(&mut self, actor: Actor, command: Command) -> Answer {
        self.tries(actor, command).unwrap()
    }

    /// The model says `text` and asks for calls `(tool, arguments)`, having seen everything so far.
    pub(crate) fn replies(&mut self, text: &str, calls: &[(&str, &str)]) {
        let heard = self.run.heard();
        self.replies_having_heard(heard, text, calls);
    }

    pub(crate) fn replies_having_heard(&mut self, heard: PromptBasis, text: &str, calls: &[(&str, &str)]) {
        let reply = reply(heard, text, calls);
        self.by(Actor::Node(NODE), Command::RecordReply(reply));
    }

    /// The outside worker asks for a call.
    pub(crate) fn proposes(&mut self, tool: &str, arguments: &str) {
        let propose =
            Propose { worker: worker(), call: asked(0, &(tool, arguments)), context: None, schema: None };
        self.by(Actor::Outside(worker()), Command::Propose(propose));
    }

    /// A node starts the call with what the log holds for it.
    pub(crate) fn begins(&mut self, no: u32) -> Answer {
        let stored = stored_call(&self.events, CallNo(no)).unwrap();
        let start_by = self.now.plus(Millis::seconds(10));
        let begin = Begin { call: CallNo(no), node: NODE, start_by, stored, pending: None };
        self.by(Actor::Node(NODE), Command::Begin(begin))
    }

    /// The current start of the call reports.
    pub(crate) fn finishes(&mut self, no: u32, result: ToolResult) -> Answer {
        let attempt = self.run.call(CallNo(no)).unwrap().attempt;
        self.finishes_attempt(no, attempt, result)
    }

    pub(crate) fn finishes_attempt(&mut self, no: u32, attempt: u32, result: ToolResult) -> Answer {
        let finish = FinishCall { call: CallNo(no), attempt, result, worker: None };
        self.by(Actor::Node(NODE), Command::FinishCall(finish))
    }

    /// The outside worker reports.
    pub(crate) fn reports(&mut self, no: u32, result: ToolResult) {
        let finish = FinishCall { call: CallNo(no), attempt: 0, result, worker: Some(worker()) };
        self.by(Actor::Outside(worker()), Command::FinishCall(finish));
    }

    /// The call waits for something outside.
    pub(crate) fn suspends(&mut self, no: u32, kind: SuspendFor) {
        let attempt = self.run.call(CallNo(no)).unwrap().attempt;
        let suspend = Suspend { attempt, ..suspension(CallNo(no), kind) };
        self.by(Actor::Node(NODE), Command::Suspend(suspend));
    }

    /// The node that started the call says that it lost it.
    pub(crate) fn loses(&mut self, no: u32) {
        let attempt = self.run.call(CallNo(no)).unwrap().attempt;
        self.by(
            Actor::Node(NODE),
            Command::Orphan {
                call: CallNo(no),
                attempt,
                node: NODE,
                why: OrphanCause::ServerLost,
                reconciled: None,
            },
        );
    }

    /// The node was too late to run the call.
    pub(crate) fn gives_back(&mut self, no: u32) {
        let attempt = self.run.call(CallNo(no)).unwrap().attempt;
        self.by(Actor::Node(NODE), Command::Return { call: CallNo(no), attempt });
    }

    /// Bob moves the run to a definition with this change.
    pub(crate) fn is_moved(&mut self, change: impl FnOnce(&mut Definition)) {
        let mut definition = self.definition.clone();
        change(&mut definition);
        self.by(Actor::Person(user("bob")), Command::Repin { definition: definition.digest() });
        self.definition = definition;
    }

    /// The open hold of the call.
    pub(crate) fn hold(&self, no: u32) -> HoldKey {
        self.run.state.holds.iter().find(|hold| hold.call() == CallNo(no)).unwrap().key
    }

    /// Bob decides the open hold of the call.
    pub(crate) fn decides(&mut self, no: u32, wanted: Choice) -> Answer {
        self.decides_as("bob", no, wanted)
    }

    pub(crate) fn decides_as(&mut self, name: &str, no: u32, wanted: Choice) -> Answer {
        let hold = self.hold(no);
        let revision = self.run.hold(hold).map(|hold| hold.revision);
        let decide = Decide { hold, digest: None, revision };
        let resolve = Resolve {
            decide,
            resolution: wanted,
            idempotency_key: Some(format!("key-{name}")),
            message: None,
        };
        self.by(Actor::Person(user(name)), Command::Resolve(resolve))
    }

    pub(crate) fn says(&mut self, text: &str, on_hold: OnHold) {
        let say = Say { message: Message::text(text), on_hold };
        self.by(Actor::Client(user("alice")), Command::Say(say));
    }

    pub(crate) fn is_canceled(&mut self) {
        self.by(Actor::Client(user("alice")), Command::Cancel { reason: None });
    }

    /// Time passes and is noticed.
    pub(crate) fn waits(&mut self, span: Millis) {
        self.now = self.now.plus(span);
        let _ = self.tries(Actor::Clock, Command::Tick);
    }

    /// From now on policy forbids the tool.
    pub(crate) fn bans(&mut self, tool: &str) {
        self.bans.push(tool.to_owned());
    }

    /// What policy says of the calls that the command concerns.
    fn verdicts(&self, command: &Command) -> Verdicts {
        let of_call = |no: CallNo| self.run.call(no).map(|call| (no, call.tool.as_str().to_owned()));
        let asked = |asked: &[AskedCall]| {
            let numbers = self.run.state.calls_made + 1..;
            numbers.map(CallNo).zip(asked.iter().map(|call| call.tool.clone())).collect()
        };
        let calls: Vec<(CallNo, String)> = if let Command::RecordReply(reply) = command {
            asked(&reply.calls)
        } else if let Command::Propose(propose) = command {
            asked(std::slice::from_ref(&propose.call))
        } else if let Command::Begin(begin) = command {
            of_call(begin.call).into_iter().collect()
        } else if let Command::Resolve(resolve) = command {
            of_call(resolve.decide.hold.call).into_iter().collect()
        } else if let Command::Edit(edit) = command {
            of_call(edit.decide.hold.call).into_iter().collect()
        } else {
            Vec::new()
        };
        let by_call = calls.into_iter().map(|(no, tool)| (no, self.verdict(&tool))).collect();
        Verdicts { policy: Some(crate::digest::of_bytes(b"policy")), by_call, ..Verdicts::default() }
    }

    fn verdict(&self, tool: &str) -> Verdict {
        let effect = match tool {
            "read" => Effect::Allow,
            "banned" => Effect::Deny,
            _ => Effect::Hold,
        };
        let effect = if self.bans.iter().any(|banned| banned == tool) { Effect::Deny } else { effect };
        Verdict { votes: self.votes, ..Verdict::new(effect, RuleId::new(format!("about-{tool}")).unwrap()) }
    }
}

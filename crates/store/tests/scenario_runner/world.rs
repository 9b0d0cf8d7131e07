//! A server in miniature: one store, a clock, runs by name, and the one path by which commands reach them.
//!
//! It does what the engine does around the core: works out verdicts, authority and the recorded decision, decides,
//! appends through the driver, reloads. Sub-runs, which need appends of two runs, are in `sub_runs.rs`.

use std::sync::Arc;

use standfast_core::actor::Actor;
use standfast_core::command::{AskedCall, Choice, Command, Entropy, Start};
use standfast_core::decide::Answer;
use standfast_core::definition::Definition;
use standfast_core::digest;
use standfast_core::event::{Envelope, Event};
use standfast_core::hold::RecordedDecision;
use standfast_core::id::{CallNo, HoldKey, Incarnation, RunId, Seq};
use standfast_core::name::{UserId, WorkerName};
use standfast_core::project::RunRow;
use standfast_core::refusal::Refusal;
use standfast_core::run::PromptBasis;
use standfast_core::time::{Millis, Timestamp};
use standfast_store::memory::MemoryStore;
use standfast_store::pipeline::{HoldAudience, Order, OrderContext, Pipeline, SettledOrder, Writes};
use standfast_store::{AudienceMember, SideWrite, Store};

use super::backends::Backend;
use super::block_on::block_on;
use super::setting::{JudgedCall, Setting};

/// Everything that a scenario moves.
pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) setting: Setting,
    pub(crate) now: Timestamp,
    pub(crate) runs: Vec<NamedRun>,
    /// The run that sentences are about.
    pub(crate) current: usize,
    /// The result of the last step; none once an expectation has looked at it.
    pub(crate) outcome: Option<Result<Answer, Refusal>>,
    /// What workers really did.
    pub(crate) effects: Vec<Effect>,
    /// The node that works.
    pub(crate) node: Incarnation,
    backend: Box<dyn Backend>,
    drawn: u64,
}

/// A run and the name that the scenario gives it.
pub(crate) struct NamedRun {
    pub(crate) name: String,
    pub(crate) id: RunId,
    /// What the model had seen when it was asked, while it thinks.
    pub(crate) asked_with: Option<PromptBasis>,
    driver: Option<Pipeline>,
}

/// A side effect: a worker was told that the start is durable, and did it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) run: RunId,
    pub(crate) call: CallNo,
    pub(crate) attempt: u32,
    pub(crate) arguments: String,
}

/// A run as stored, with large values filled in.
pub(crate) struct View {
    pub(crate) row: RunRow,
    pub(crate) events: Vec<Envelope>,
}

impl World {
    /// An empty server.
    pub(crate) fn new(mut backend: Box<dyn Backend>) -> Result<World, String> {
        Ok(World {
            store: backend.open()?,
            setting: Setting::new()?,
            now: Timestamp(1_762_000_000_000),
            runs: Vec::new(),
            current: 0,
            outcome: None,
            effects: Vec::new(),
            node: Incarnation([1; 16]),
            backend,
            drawn: 0,
        })
    }

    /// The process ends and another one begins: only the store is left.
    pub(crate) fn restart(&mut self) -> Result<(), String> {
        self.forget_drivers();
        let store = std::mem::replace(&mut self.store, Arc::new(MemoryStore::new()));
        self.store = self.backend.reopen(store)?;
        self.node = self.next_node();
        Ok(())
    }

    /// The node is gone; another one works from here on.
    pub(crate) fn lose_node(&mut self) {
        self.forget_drivers();
        self.node = self.next_node();
    }

    fn next_node(&self) -> Incarnation {
        Incarnation(self.node.0.map(|byte| byte.wrapping_add(1)))
    }

    /// Whoever drove a run loads it again.
    pub(crate) fn forget_drivers(&mut self) {
        self.runs.iter_mut().for_each(|run| run.driver = None);
    }

    /// The run that sentences are about.
    pub(crate) fn current(&self) -> Result<&NamedRun, String> {
        self.runs
            .get(self.current)
            .ok_or_else(|| "there is no run yet; the client says something first".into())
    }

    /// Sentences are about this run from here on.
    pub(crate) fn switch(&mut self, name: &str) -> Result<(), String> {
        self.current = self.position(name)?;
        Ok(())
    }

    fn position(&self, name: &str) -> Result<usize, String> {
        self.runs.iter().position(|run| run.name == name).ok_or_else(|| format!("there is no run {name}"))
    }

    /// The run with this id.
    pub(crate) fn index(&self, id: RunId) -> Result<usize, String> {
        self.runs.iter().position(|run| run.id == id).ok_or_else(|| format!("run {id} is not known"))
    }

    /// The current run as stored.
    pub(crate) fn view(&self) -> Result<View, String> {
        self.view_of(self.current()?.id)
    }

    /// A run as stored.
    pub(crate) fn view_of(&self, run: RunId) -> Result<View, String> {
        let row = block_on(self.store.load(run)).map_err(|error| error.to_string())?.row;
        let links = block_on(self.store.links(run, Seq(0), 10_000)).map_err(|error| error.to_string())?;
        let mut events = Vec::new();
        for link in links {
            events.extend(link.events().map_err(|bad| format!("{bad:?}"))?);
        }
        for envelope in &mut events {
            for name in envelope.event.blobs() {
                let found = block_on(self.store.blob(run, name.digest)).map_err(|error| error.to_string())?;
                let text = found.ok_or_else(|| format!("the large value {} is gone", name.digest))?;
                envelope.event.fill(&name, &text).map_err(|wrong| wrong.to_string())?;
            }
        }
        Ok(View { row, events })
    }

    /// Begins a run and makes it the current one.
    pub(crate) fn start(&mut self, name: &str, start: Start) -> Result<(), String> {
        let given = self.given(Actor::Client(start.owner.clone()), &start.definition)?;
        let definition = self.setting.definition.to_bytes();
        let put = SideWrite::Definition { digest: start.definition, bytes: definition.into() };
        let writes = Writes { puts: vec![put], ..Writes::default() };
        let id = start.id;
        let order = Order { commands: Vec::new(), given, writes };
        match Pipeline::start(self.store.clone(), start, order) {
            Ok(driver) => {
                self.add(name, id, Some(driver));
                let settled = self.settle(self.current)?;
                self.outcome = Some(settled.outcome);
            }
            Err(refusal) => self.outcome = Some(Err(refusal)),
        }
        Ok(())
    }

    /// Remembers a run by its name and makes it the current one.
    pub(crate) fn add(&mut self, name: &str, id: RunId, driver: Option<Pipeline>) {
        self.runs.push(NamedRun { name: name.to_owned(), id, asked_with: None, driver });
        self.current = self.runs.len() - 1;
    }

    /// Somebody wants something of the current run.
    pub(crate) fn submit(&mut self, actor: Actor, command: Command) -> Result<Vec<Envelope>, String> {
        self.now = self.now.plus(Millis::seconds(1));
        self.submit_to(self.current, actor, command)
    }

    /// Somebody wants something of a run.
    pub(crate) fn submit_to(
        &mut self,
        index: usize,
        actor: Actor,
        command: Command,
    ) -> Result<Vec<Envelope>, String> {
        let settled = match self.end_below_parent(index, &actor, &command)? {
            Some(settled) => settled,
            None => {
                let order = self.order(index, actor, command)?;
                self.push(index, order)?
            }
        };
        self.outcome = Some(settled.outcome);
        for child in settled.cancel_children {
            let above = self.outcome.take();
            let command = Command::Cancel { reason: Some("the run above it ended".into()) };
            self.submit_to(self.index(child)?, Actor::Node(self.node), command)?;
            self.outcome = above;
        }
        Ok(settled.events)
    }

    /// The node that works on a run keeps its driver; everyone else loads committed state, and wakes the node.
    fn push(&mut self, index: usize, order: Order) -> Result<SettledOrder, String> {
        let is_node = matches!(order.given.actor, Actor::Node(_));
        let row = self.view_of(self.runs[index].id)?.row;
        let kept = self.runs[index].driver.take().filter(|_| is_node);
        let mut driver = kept.unwrap_or_else(|| Pipeline::of(self.store.clone(), row));
        driver.push(order);
        self.runs[index].driver = Some(driver);
        let settled = self.settle(index)?;
        if !is_node {
            self.runs[index].driver = None;
        }
        Ok(settled)
    }

    fn settle(&mut self, index: usize) -> Result<SettledOrder, String> {
        let driver = self.runs[index].driver.as_mut().ok_or("no driver")?;
        let settlement = block_on(driver.settle());
        match (settlement.failed, settlement.done.into_iter().next()) {
            (None, Some(settled)) => Ok(settled),
            (failed, _) => Err(format!("the append failed: {failed:?}")),
        }
    }

    /// Everything that deciding a command needs.
    pub(crate) fn order(&mut self, index: usize, actor: Actor, command: Command) -> Result<Order, String> {
        let id = self.runs[index].id;
        let view = self.view_of(id)?;
        let mut given = self.given(actor, &view.row.run.state.definition)?;
        given.verdicts = self.setting.verdicts(&asked(&view, &command));
        given.recorded = held_by(&command).and_then(|hold| recorded(&view.events, hold));
        let puts = if matches!(command, Command::Repin { .. }) { vec![self.pin()] } else { Vec::new() };
        let named: Vec<AudienceMember> =
            self.setting.audience().iter().map(|name| AudienceMember(format!("user:{name}"))).collect();
        let audience = HoldAudience { owner: None, named };
        let writes = Writes { puts, audience, ..Writes::default() };
        Ok(Order { commands: vec![command], given, writes })
    }

    /// Stores the current definition, so that runs can be pinned to it.
    pub(crate) fn pin(&mut self) -> SideWrite {
        let definition = self.setting.definition.clone();
        let (digest, bytes) = (definition.digest(), definition.to_bytes());
        self.setting.pinned.insert(digest, definition);
        SideWrite::Definition { digest, bytes: bytes.into() }
    }

    /// The context of an actor; verdicts and the recorded decision are for the caller to fill in.
    pub(crate) fn given(
        &mut self,
        actor: Actor,
        definition: &digest::Digest,
    ) -> Result<OrderContext, String> {
        let definition: &Definition =
            self.setting.pinned.get(definition).ok_or("the definition is not known")?;
        self.drawn += 1;
        Ok(OrderContext {
            now: self.now,
            entropy: Entropy(digest::of_parts("scenario", &[&self.drawn.to_be_bytes()]).0),
            authority: self.setting.authority(&actor),
            counts_for: Vec::new(),
            actor,
            definition: Arc::new(definition.clone()),
            verdicts: Default::default(),
            recorded: None,
            limits: Arc::new(self.setting.limits.clone()),
            origin: None,
        })
    }
}

/// The calls that a command is about, as policy sees them.
fn asked(view: &View, command: &Command) -> Vec<JudgedCall> {
    let run = &view.row.run;
    let made = run.state.calls_made;
    let new = |calls: &[AskedCall]| {
        let numbered = (made + 1..).map(CallNo).zip(calls);
        let about = |(no, call): (CallNo, &AskedCall)| JudgedCall {
            no,
            tool: call.tool.clone(),
            arguments: call.arguments.clone(),
        };
        numbered.map(about).collect()
    };
    let known = |no: CallNo, arguments: &str| {
        let tool = run.call(no).map(|call| call.tool.as_str().to_owned());
        tool.map(|tool| JudgedCall { no, tool, arguments: arguments.to_owned() }).into_iter().collect()
    };
    if let Command::RecordReply(reply) = command {
        new(&reply.calls)
    } else if let Command::Propose(propose) = command {
        new(std::slice::from_ref(&propose.call))
    } else if let Command::Begin(begin) = command {
        known(begin.call, &begin.stored.arguments)
    } else if let Command::Edit(edit) = command {
        known(edit.decide.hold.call, edit.arguments.text())
    } else if let Command::Resolve(resolve) = command
        && let Choice::ApproveEdited { arguments } = &resolve.resolution
    {
        known(resolve.decide.hold.call, arguments.text())
    } else {
        Vec::new()
    }
}

/// The hold that a command names.
fn held_by(command: &Command) -> Option<HoldKey> {
    if let Command::Resolve(resolve) = command {
        Some(resolve.decide.hold)
    } else if let Command::ResolveAll(each) = command {
        each.first().map(|first| first.decide.hold)
    } else if let Command::Reject(reject) = command {
        reject.holds.first().copied()
    } else if let Command::Vote(decide) = command {
        Some(decide.hold)
    } else if let Command::Edit(edit) = command {
        Some(edit.decide.hold)
    } else if let Command::Assign { hold, .. }
    | Command::Delegate { hold, .. }
    | Command::Reopen { hold, .. } = command
    {
        Some(*hold)
    } else {
        None
    }
}

/// The decision on a hold, if it has one.
fn recorded(events: &[Envelope], hold: HoldKey) -> Option<RecordedDecision> {
    events.iter().find_map(|envelope| {
        let Event::HoldResolved(resolved) = &envelope.event else { return None };
        (resolved.hold == hold).then(|| RecordedDecision {
            resolution: resolved.resolution.clone(),
            by: envelope.actor.clone(),
            at: envelope.at,
            idempotency_key: resolved.idempotency_key.clone(),
        })
    })
}

/// A user by name.
pub(crate) fn user(name: &str) -> Result<UserId, String> {
    UserId::new(name).map_err(|bad| bad.to_string())
}

/// An outside worker by name.
pub(crate) fn worker(name: &str) -> Result<WorkerName, String> {
    WorkerName::new(name).map_err(|bad| bad.to_string())
}

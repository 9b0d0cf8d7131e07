//! The pipeline of a run: further commands are decided while earlier appends are still on their way.
//!
//! Each command is decided on the state that the run will have; its append is handed to the store at once. Nothing
//! that was decided on state which is not durable leaves this module: outcomes come out of [`Pipeline::settle`] only,
//! after the store has acknowledged everything below them. If an append fails, everything decided on top of it is
//! thrown away and the same *commands* are decided again on what is really there: a tool's result is a command and is
//! kept, never run again; so is a model's reply, unless it was asked with something that is not there in the end: then the
//! core refuses it. What is written beside the events is data: [`Writes`]. Several runs in one append are `joint.rs`.

mod joint;
mod writes;

use std::collections::VecDeque;
use std::sync::Arc;

use standfast_core::actor::Actor;
use standfast_core::command::{Command, Context, Entropy, Limits, Start};
use standfast_core::decide::{self, Answer as Outcome, Transition};
use standfast_core::definition::Definition;
use standfast_core::digest::Digest;
use standfast_core::event::Envelope;
use standfast_core::execution_state::RestoredRun;
use standfast_core::hold::RecordedDecision;
use standfast_core::id::{RunId, Seq};
use standfast_core::name::RuleId;
use standfast_core::policy::{Role, Verdicts};
use standfast_core::project::{HoldChange, HoldRow, RunRow};
use standfast_core::refusal::Refusal;
use standfast_core::run::Run;
use standfast_core::time::Timestamp;
use standfast_core::trace::Origin;

use crate::batch::{Batch, LeaseChange, Seal};
use crate::contract::{Answer, Store};
use crate::error::StoreError;

pub(crate) use writes::{audiences, claim_puts, counted_takes, taken_for_good};

pub use joint::{JointSettlement, append_jointly, start_jointly};
pub use writes::{
    HoldAudience, LeaseRule, NoticeRule, NoticeTrigger, SideWrites, Writes, asks_people, has_relatives,
    hold_given_up, keeps_lease,
};

/// How often the same commands are decided again before the caller gets the conflict.
const TRIES: u32 = 16;

/// Commands for one append, with everything that deciding them needs. Owned, so that they can be decided again.
#[derive(Debug, Clone)]
pub struct Order {
    /// What to do, in order; the events share one link.
    pub commands: Vec<Command>,
    /// Time, actor, definition, verdicts, authority, limits.
    pub given: OrderContext,
    /// What is written beside the events.
    pub writes: Writes,
}

/// The owned form of a [`Context`].
#[derive(Debug, Clone)]
pub struct OrderContext {
    /// The instant of the decision.
    pub now: Timestamp,
    /// Random bytes for ids and the link's salt.
    pub entropy: Entropy,
    /// Who sends the commands.
    pub actor: Actor,
    /// The definition that the run is pinned to.
    pub definition: Arc<Definition>,
    /// What rules and grants say.
    pub verdicts: Verdicts,
    /// In what role the actor may decide.
    pub authority: Option<Role>,
    /// The rules whose demands on a hold the actor counts for.
    pub counts_for: Vec<RuleId>,
    /// The recorded decision of a hold that is no longer open.
    pub recorded: Option<RecordedDecision>,
    /// Budgets and caps.
    pub limits: Arc<Limits>,
    /// The request that the commands came with, where traces are on.
    pub origin: Option<Origin>,
}

/// What became of an order, durably.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledOrder {
    /// The outcome of its first command, or of the start. What a node adds to a person's command is not for them.
    pub outcome: Result<Outcome, Refusal>,
    /// The events that were written.
    pub events: Vec<Envelope>,
    /// The holds that they decided.
    pub decided: Vec<HoldRow>,
    /// Sub-runs that must now be canceled.
    pub cancel_children: Vec<RunId>,
}

/// What [`Pipeline::settle`] found.
#[derive(Debug)]
pub struct Settlement {
    /// The orders that are settled, in the order in which they were pushed.
    pub done: Vec<SettledOrder>,
    /// Why the rest is not. They are kept and tried again with the next call, unless they are taken back.
    pub failed: Option<StoreError>,
}

impl OrderContext {
    fn context(&self) -> Context<'_> {
        Context {
            now: self.now,
            entropy: self.entropy,
            actor: self.actor.clone(),
            definition: &self.definition,
            verdicts: &self.verdicts,
            authority: self.authority,
            counts_for: &self.counts_for,
            recorded: self.recorded.as_ref(),
            limits: &self.limits,
            origin: self.origin.as_ref(),
        }
    }
}

/// The appends of one run, in order. Only one pipeline of a run may be at work at a time; everyone else loads committed
/// state.
pub struct Pipeline {
    store: Arc<dyn Store>,
    run: RunId,
    /// The run as the store has acknowledged it; none before its first append.
    durable: Option<RunRow>,
    /// Orders whose appends were handed over and are not settled yet.
    flight: VecDeque<OrderInFlight>,
    /// Orders that must be decided again, or whose answers are still unknown.
    grounded: VecDeque<GroundedOrder>,
    /// What is settled and was not told yet: whoever settled it went away before.
    done: Vec<SettledOrder>,
}

/// An order, behind the start of the run if it is the first one.
#[derive(Clone)]
struct Work {
    start: Option<RunOrigin>,
    order: Order,
}

/// What a run begins with.
#[derive(Clone)]
enum RunOrigin {
    Started(Box<Start>),
    /// Its execution state, of which it was made again.
    Restored(Box<RestoredRun>),
}

/// An order on the ground: if its append may have been written, what that would have made of it.
struct GroundedOrder {
    work: Work,
    lost: Option<Box<LostAppend>>,
}

struct LostAppend {
    /// First event; none when it wrote nothing: then it counts if everything below it does.
    first: Option<Seq>,
    row: Option<RunRow>,
    settled: SettledOrder,
}

struct OrderInFlight {
    work: Work,
    settled: SettledOrder,
    /// The row after it; the same as before when nothing is written.
    row: Option<RunRow>,
    /// None when nothing is written.
    append: Option<Append>,
}

/// An append on its way to the store.
struct Append {
    /// Its first event.
    first: Seq,
    answer: AppendAnswer,
}

/// The answer of the store is kept as soon as it is there: whoever waits for it may go away at any moment.
enum AppendAnswer {
    Awaited(Answer<()>),
    Known(Result<(), StoreError>),
}

impl Append {
    /// Waits for the answer, and keeps it.
    async fn answered(&mut self) -> Result<(), StoreError> {
        let known = match &mut self.answer {
            AppendAnswer::Awaited(answer) => answer.await,
            AppendAnswer::Known(known) => return known.clone(),
        };
        self.answer = AppendAnswer::Known(known.clone());
        known
    }
}

impl Pipeline {
    /// Takes over a run that exists.
    #[must_use]
    pub fn of(store: Arc<dyn Store>, row: RunRow) -> Pipeline {
        let run = row.run.facts.id;
        Pipeline::at(store, run, Some(row))
    }

    /// Begins a run. Its first append is handed over at once; `commands` of the order follow it in the same link.
    pub fn start(store: Arc<dyn Store>, start: Start, order: Order) -> Result<Pipeline, Refusal> {
        let run = start.id;
        let mut pipeline = Pipeline::at(store, run, None);
        pipeline.take_off(Work { start: Some(RunOrigin::Started(Box::new(start))), order })?;
        Ok(pipeline)
    }

    /// Begins a run that was made of its execution state, in the same way.
    pub fn restore(store: Arc<dyn Store>, restored: RestoredRun, order: Order) -> Result<Pipeline, Refusal> {
        let mut pipeline = Pipeline::at(store, restored.run.facts.id, None);
        pipeline.take_off(Work { start: Some(RunOrigin::Restored(Box::new(restored))), order })?;
        Ok(pipeline)
    }

    fn at(store: Arc<dyn Store>, run: RunId, durable: Option<RunRow>) -> Pipeline {
        let (flight, grounded) = (VecDeque::new(), VecDeque::new());
        Pipeline { store, run, durable, flight, grounded, done: Vec::new() }
    }

    /// The run as it will be once everything that was pushed is durable. To plan by, never to show.
    #[must_use]
    pub fn tip(&self) -> Option<&Arc<Run>> {
        self.tip_row().map(|row| &row.run)
    }

    /// The run as the store has acknowledged it.
    #[must_use]
    pub fn durable(&self) -> Option<&RunRow> {
        self.durable.as_ref()
    }

    /// Events that were decided and are not settled yet. To plan by, never to show.
    pub fn unsettled(&self) -> impl Iterator<Item = &Envelope> {
        self.flight.iter().flat_map(|flying| &flying.settled.events)
    }

    /// Loads what others have appended. Does nothing while something of ours is on its way: settling finds it out.
    pub async fn refresh(&mut self) -> Result<(), StoreError> {
        if self.flight.is_empty() && self.grounded.is_empty() { self.reload().await } else { Ok(()) }
    }

    /// Decides an order on the tip and hands its append over.
    pub fn push(&mut self, order: Order) {
        if !self.grounded.is_empty() {
            // Something below it has failed: it waits its turn.
            self.grounded.push_back(GroundedOrder { work: Work { start: None, order }, lost: None });
            return;
        }
        if let Err(refusal) = self.take_off(Work { start: None, order }) {
            unreachable!("only a start is refused here: {refusal}");
        }
    }

    /// Waits until everything pushed is durable, deciding again what lost a race. May be dropped at any point and called
    /// again, also after more was pushed: nothing is lost, written twice or told twice.
    pub async fn settle(&mut self) -> Settlement {
        for _ in 0..TRIES {
            match self.land().await {
                Ok(()) => return self.settlement(None),
                Err(StoreError::Conflict { .. }) if self.durable.is_some() => {}
                Err(error) => return self.settlement(Some(error)),
            }
        }
        self.settlement(Some(StoreError::Conflict { run: self.run }))
    }

    fn settlement(&mut self, failed: Option<StoreError>) -> Settlement {
        Settlement { done: std::mem::take(&mut self.done), failed }
    }

    /// Gives back the orders that are not settled, for a caller that must decide otherwise (a guard did not hold). After
    /// an unknown answer settle first: what comes back may have been written.
    pub fn take_back(&mut self) -> Vec<Order> {
        let flying = self.flight.drain(..).map(|flying| flying.work);
        let unsettled: Vec<Work> =
            flying.chain(self.grounded.drain(..).map(|grounded| grounded.work)).collect();
        unsettled.into_iter().map(|work| work.order).collect()
    }

    /// One pass: take off what is queued, then wait for everything in the air. Whatever is found out is kept before anything
    /// else is waited for, because whoever waits may go away.
    async fn land(&mut self) -> Result<(), StoreError> {
        if !self.grounded.is_empty() {
            self.settle_lost().await?;
            self.reload().await?;
            for grounded in std::mem::take(&mut self.grounded) {
                if let Err(refusal) = self.take_off(grounded.work) {
                    unreachable!("a start that was decided once is decided the same again: {refusal}");
                }
            }
        }
        let landed = self.land_flight().await;
        if let Err(error) = &landed {
            self.ground(error).await;
        }
        landed
    }

    /// Lands one after the other, until none is left or the next one cannot.
    async fn land_flight(&mut self) -> Result<(), StoreError> {
        loop {
            let is_last = self.flight.len() == 1;
            let Some(flying) = self.flight.front_mut() else { return Ok(()) };
            let landed = match &mut flying.append {
                // It was refused, and no append of ours follows that would fail if others had changed the run meanwhile.
                None if is_last && flying.settled.outcome.is_err() => self.is_current().await,
                None => Ok(()),
                Some(append) => {
                    let answer = append.answered().await;
                    let (first, ours) = (append.first, head(flying.row.as_ref()));
                    match answer {
                        Err(StoreError::Unknown { why }) => self.find_out(first, ours, why).await,
                        known => known,
                    }
                }
            };
            landed?;
            if let Some(flying) = self.flight.pop_front() {
                self.durable = flying.row;
                self.done.push(flying.settled);
            }
        }
    }

    /// Everything still in the air was decided on top of what failed. The store refuses each of them, because each
    /// names the hash of the one before it; unless nobody knows whether that one was written.
    async fn ground(&mut self, error: &StoreError) {
        for append in self.flight.iter_mut().filter_map(|flying| flying.append.as_mut()) {
            // Written only if what is below it was, which is looked up before anything is decided again.
            let _ = append.answered().await;
        }
        let is_lost = matches!(error, StoreError::Unknown { .. });
        self.grounded.extend(self.flight.drain(..).map(|flying| {
            let first = flying.append.map(|append| append.first);
            let lost = LostAppend { first, row: flying.row, settled: flying.settled };
            GroundedOrder { lost: is_lost.then(|| Box::new(lost)), work: flying.work }
        }));
    }

    /// Looks up whether appends whose answers were lost had been written, as far as they had.
    async fn settle_lost(&mut self) -> Result<(), StoreError> {
        while let Some(lost) = self.grounded.front().and_then(|grounded| grounded.lost.as_ref()) {
            let (first, ours) = (lost.first, head(lost.row.as_ref()));
            let written = match first {
                Some(first) => self.find_out(first, ours, "the answer was lost".into()).await,
                None => Ok(()),
            };
            match written {
                Ok(()) => {
                    if let Some(GroundedOrder { lost: Some(lost), .. }) = self.grounded.pop_front() {
                        self.durable = lost.row;
                        self.done.push(lost.settled);
                    }
                }
                Err(unknown @ StoreError::Unknown { .. }) => return Err(unknown),
                Err(_) => {
                    // It was not, so nothing above it was either.
                    self.grounded.iter_mut().for_each(|grounded| grounded.lost = None);
                }
            }
        }
        Ok(())
    }

    /// An append whose answer was lost is settled by the link at its sequence: our hash means ours, another one means
    /// conflict, none means that it never happened.
    fn find_out(
        &self,
        first: Seq,
        ours: Option<Digest>,
        why: String,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + use<> {
        let run = self.run;
        let links = self.store.links(run, Seq(first.0.saturating_sub(1)), 1);
        async move {
            let never_happened = |why| Err(StoreError::unavailable(format!("it was not written: {why}")));
            match links.await {
                Ok(links) => match links.first() {
                    Some(link) if Some(link.hash) == ours => Ok(()),
                    Some(_) => Err(StoreError::Conflict { run }),
                    None => never_happened(why),
                },
                Err(StoreError::NotFound { .. }) => never_happened(why),
                Err(_) => Err(StoreError::Unknown { why }),
            }
        }
    }

    /// A conflict when somebody else has appended since the run was last loaded.
    fn is_current(&self) -> impl Future<Output = Result<(), StoreError>> + Send + use<> {
        let (run, ours) = (self.run, head(self.durable.as_ref()));
        let load = self.store.load(run);
        async move {
            let is_ours = Some(load.await?.row.head) == ours;
            if is_ours { Ok(()) } else { Err(StoreError::Conflict { run }) }
        }
    }

    async fn reload(&mut self) -> Result<(), StoreError> {
        match self.store.load(self.run).await {
            Ok(stored) => {
                self.durable = Some(stored.row);
                Ok(())
            }
            Err(StoreError::NotFound { .. }) if self.durable.is_none() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn tip_row(&self) -> Option<&RunRow> {
        self.flight.back().map_or(self.durable.as_ref(), |flying| flying.row.as_ref())
    }

    /// Decides on the tip and hands the append over.
    fn take_off(&mut self, work: Work) -> Result<(), Refusal> {
        let order = &work.order;
        let before = self.tip_row().filter(|_| work.start.is_none());
        let decided = match (&work.start, before) {
            (Some(RunOrigin::Started(start)), _) => {
                all(decide::start(start, &order.given.context())?, true, order)
            }
            (Some(RunOrigin::Restored(restored)), _) => all(restored.transition(), true, order),
            (None, Some(row)) => all(unchanged(&row.run), false, order),
            (None, None) => unreachable!("a pipeline begins with a run or with a start"),
        };
        let seal = seal(&decided, order);
        let Transition { events, run, outcome, cancel_children } = decided;
        let batch = Batch::of(before, &events, run.into(), seal);
        let row = batch.as_ref().map(|batch| &batch.row).or(before).cloned();
        let closed = decided_holds(batch.as_ref());
        let append = batch.map(|batch| Append {
            first: batch.link.header.first,
            answer: AppendAnswer::Awaited(self.store.append(vec![batch])),
        });
        let settled = SettledOrder { outcome, events, decided: closed, cancel_children };
        self.flight.push_back(OrderInFlight { work, settled, row, append });
        Ok(())
    }
}

fn head(row: Option<&RunRow>) -> Option<Digest> {
    row.map(|row| row.head)
}

/// The holds that an append decides.
fn decided_holds(batch: Option<&Batch>) -> Vec<HoldRow> {
    let closed = |change: &HoldChange| match change {
        HoldChange::Close(row) => Some(row.clone()),
        HoldChange::Open(_) | HoldChange::Update(_) => None,
    };
    batch.iter().flat_map(|batch| &batch.holds).filter_map(closed).collect()
}

/// What is written beside the events of an order with this outcome.
fn seal(decided: &Transition, order: &Order) -> Seal {
    let beside = order.writes.beside(decided);
    Seal {
        salt: order.given.entropy.draw("salt", 0).0,
        lease: beside.lease.unwrap_or(LeaseChange::Keep),
        guards: beside.guards,
        puts: beside.puts,
    }
}

fn unchanged(run: &Run) -> Transition {
    Transition {
        events: Vec::new(),
        run: run.clone(),
        outcome: Ok(Outcome::Repeated),
        cancel_children: Vec::new(),
    }
}

/// Decides the commands one on top of the other; the first refusal ends the order, what came before it counts.
fn all(mut decided: Transition, is_start: bool, order: &Order) -> Transition {
    let ctx = order.given.context();
    let mut first = is_start.then(|| decided.outcome.clone());
    for command in &order.commands {
        decided = decide::decide_more(decided, command, &ctx);
        let is_refused = decided.outcome.is_err();
        first.get_or_insert_with(|| decided.outcome.clone());
        if is_refused {
            break;
        }
    }
    Transition { outcome: first.unwrap_or(Ok(Outcome::Repeated)), ..decided }
}

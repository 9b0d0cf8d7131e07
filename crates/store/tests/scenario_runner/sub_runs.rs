//! Sub-runs: appends that change two runs, all or nothing.
//!
//! A parent's hold and its child's start are one append; a child's end and the answer to that hold are one append
//! (rule 7). Everything else of a sub-run is an ordinary run.

use standfast_core::actor::Actor;
use standfast_core::body::Body;
use standfast_core::command::{Admission, Choice, Command, Decide, Resolve, Start, Suspend, SuspendFor};
use standfast_core::decide::{self, Transition};
use standfast_core::event::{Driver, Envelope, Event, Outcome, Parent};
use standfast_core::hold::Ask;
use standfast_core::id::{CallNo, HoldKey, Secret};
use standfast_core::message::Message;
use standfast_core::policy::Role;
use standfast_core::project::RunRow;
use standfast_core::time::Millis;
use standfast_store::pipeline::{Order, OrderContext, SettledOrder};
use standfast_store::{Batch, LeaseChange, Seal};

use super::block_on::block_on;
use super::world::World;

impl World {
    /// A node hands a call to a sub-run: the parent's hold and the child's start are one append.
    pub(crate) fn hand_to_sub_run(&mut self, call: CallNo, name: &str, text: &str) -> Result<(), String> {
        self.now = self.now.plus(Millis::seconds(1));
        let index = self.current;
        let row = self.view()?.row;
        let facts = row.run.facts.clone();
        let attempt = row.run.call(call).map_or(0, |call| call.attempt);
        let child = facts.id.child(call, attempt);
        let hold = HoldKey { call, secret: Secret([call.0 as u8; 16]) };
        let suspend = Command::Suspend(Suspend {
            call,
            attempt,
            kind: SuspendFor::External,
            ask: Ask { child: Some(child), ..Ask::default() },
            timeout: None,
            secret: Some(hold.secret),
            worker: None,
        });
        let order = self.order(index, Actor::Node(self.node), suspend)?;
        let above = decided(&row, &order);
        if let Err(refusal) = above.outcome {
            self.outcome = Some(Err(refusal));
            return Ok(());
        }
        let depth = facts.parent.map_or(0, |parent| parent.depth) + 1;
        let start = Start {
            id: child,
            tenant: facts.tenant,
            agent: facts.agent,
            session: facts.session,
            owner: facts.owner,
            driver: Driver::Loop,
            definition: row.run.state.definition,
            parent: Some(Parent { run: facts.id, call, hold, depth }),
            inbox: None,
            message: Message::text(text),
            taken: Admission::AtOnce,
            history: None,
        };
        let given = self.given(Actor::Node(self.node), &row.run.state.definition)?;
        match decide::start(&start, &context(&given)) {
            Err(refusal) => self.outcome = Some(Err(refusal)),
            Ok(below) => {
                let batches = [sealed(Some(&row), &above, &order.given), sealed(None, &below, &given)];
                self.append(batches.into_iter().flatten().collect())?;
                self.outcome = Some(above.outcome);
                self.add(name, child, None);
            }
        }
        Ok(())
    }

    /// A command that ends a sub-run answers the hold of the parent in the same append. None when it does not end
    /// one, and the ordinary path is taken.
    pub(crate) fn end_below_parent(
        &mut self,
        index: usize,
        actor: &Actor,
        command: &Command,
    ) -> Result<Option<SettledOrder>, String> {
        let row = self.view_of(self.runs[index].id)?.row;
        let Some(parent) = row.run.facts.parent else { return Ok(None) };
        let order = self.order(index, actor.clone(), command.clone())?;
        let below = decided(&row, &order);
        let ended = below.run.outcome().filter(|_| row.run.outcome().is_none());
        let Some(outcome) = ended else { return Ok(None) };
        let resolve = Command::Resolve(Resolve {
            decide: Decide { hold: parent.hold, digest: None, revision: None },
            resolution: answer(outcome, &below.events),
            idempotency_key: None,
            message: None,
        });
        let above_row = self.view_of(parent.run)?.row;
        let mut above_order = self.order(self.index(parent.run)?, Actor::Node(self.node), resolve)?;
        above_order.given.authority = Some(Role::System);
        let above = decided(&above_row, &above_order);
        let mut batches = vec![sealed(Some(&row), &below, &order.given)];
        if above.outcome.is_ok() {
            batches.push(sealed(Some(&above_row), &above, &above_order.given));
        }
        self.append(batches.into_iter().flatten().collect())?;
        let Transition { events, outcome, cancel_children, .. } = below;
        Ok(Some(SettledOrder { outcome, events, decided: Vec::new(), cancel_children }))
    }

    /// Writes several runs, all or none.
    fn append(&mut self, batches: Vec<Batch>) -> Result<(), String> {
        block_on(self.store.append(batches)).map_err(|error| error.to_string())?;
        self.forget_drivers();
        Ok(())
    }
}

/// The result of an order on a row.
pub(crate) fn decided(row: &RunRow, order: &Order) -> Transition {
    let ctx = context(&order.given);
    let nothing = Transition {
        events: Vec::new(),
        run: (*row.run).clone(),
        outcome: Ok(decide::Answer::Repeated),
        cancel_children: Vec::new(),
    };
    order.commands.iter().fold(nothing, |before, command| decide::decide_more(before, command, &ctx))
}

/// What is appended for it.
pub(crate) fn sealed(before: Option<&RunRow>, decided: &Transition, given: &OrderContext) -> Option<Batch> {
    let salt = given.entropy.draw("salt", 0).0;
    Batch::seal(
        before,
        decided,
        Seal { salt, lease: LeaseChange::Keep, guards: Vec::new(), puts: Vec::new() },
    )
}

fn context(given: &OrderContext) -> standfast_core::command::Context<'_> {
    standfast_core::command::Context {
        now: given.now,
        entropy: given.entropy,
        actor: given.actor.clone(),
        definition: &given.definition,
        verdicts: &given.verdicts,
        authority: given.authority,
        counts_for: &given.counts_for,
        recorded: given.recorded.as_ref(),
        limits: &given.limits,
        origin: None,
    }
}

/// What a parent learns of its child's end.
fn answer(outcome: Outcome, events: &[Envelope]) -> Choice {
    let said = events.iter().find_map(|envelope| {
        let Event::ModelReplied(replied) = &envelope.event else { return None };
        replied.reply.text.clone()
    });
    match outcome {
        Outcome::Completed => Choice::Answer { value: said.unwrap_or_else(|| Body::text("")) },
        Outcome::Failed => Choice::Fail { error: Body::text("the sub-run failed") },
        Outcome::Canceled => Choice::Fail { error: Body::text("the sub-run was canceled") },
        Outcome::Rejected => Choice::Fail { error: Body::text("the sub-run was rejected") },
    }
}

//! Every rule about what may follow what.
//!
//! `decide` looks at a run and a command and says which events follow, or why none do. It changes nothing, reads no
//! clock and draws no random number; the caller appends the events. One file for each kind of sender:
//! `client`, `outside`, `holds` (people and callbacks), `people` (who is asked, until when), `model`, `calls` (nodes), `clock`.

mod calls;
mod clients;
mod clock;
#[cfg(test)]
mod gate_tests;
mod holds;
mod judge;
mod model;
mod outside;
mod people;

use crate::actor::Actor;
use crate::apply;
use crate::body::Body;
use crate::command::{Command, Context, Start};
use crate::event::{Driver, Envelope, Event, HoldResolved, Outcome, RunEnded};
use crate::hold::Resolution;
use crate::id::{HoldKey, RunId, Secret};
use crate::refusal::Refusal;
use crate::run::Run;
use crate::time::Timestamp;

/// What follows from a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// The events to append, in order. There may be some although the command was refused: time that had passed.
    pub events: Vec<Envelope>,
    /// The run after them.
    pub run: Run,
    /// The answer to the sender, once they are durable.
    pub outcome: Result<Answer, Refusal>,
    /// Sub-runs that must now be canceled.
    pub cancel_children: Vec<RunId>,
}

/// The answer to the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// It had been done already; nothing changed.
    Repeated,
    /// The vote counts, and more are needed.
    Voted {
        /// How many agree.
        votes: u32,
        /// How many must.
        needed: u32,
    },
    /// The arguments were changed and must be decided on again.
    Edited,
    /// The call was not started: a person is asked first.
    Held,
    /// The call was not started: a rule forbids it now.
    Refused,
    /// The result contradicts what a person had declared; it is on record.
    Contradicted,
}

/// The events that begin a run.
pub fn start(start: &Start, ctx: &Context<'_>) -> Result<Transition, Refusal> {
    clients::start(start, ctx)
}

/// What follows from a command on a run.
#[must_use]
pub fn decide(run: &Run, command: &Command, ctx: &Context<'_>) -> Transition {
    let nothing = Transition {
        events: Vec::new(),
        run: run.clone(),
        outcome: Ok(Answer::Repeated),
        cancel_children: Vec::new(),
    };
    decide_more(nothing, command, ctx)
}

/// What follows from a further command on the run as the earlier ones leave it, for one append.
#[must_use]
pub fn decide_more(before: Transition, command: &Command, ctx: &Context<'_>) -> Transition {
    // An event draws at most once, so nothing is drawn again for a further command.
    let drawn = u32::try_from(before.events.len()).unwrap_or(u32::MAX);
    // The events of one append share instant and actor: those of its first command.
    let (now, actor) = match before.events.first() {
        Some(first) => (first.at, first.actor.clone()),
        None => (ctx.now, ctx.actor.clone()),
    };
    let cancel_children = before.cancel_children;
    let mut draft = Draft { run: before.run, events: before.events, cancel_children, ctx, now, actor, drawn };
    let open_before: Vec<_> = draft.run.state.holds.iter().map(|hold| hold.key).collect();
    if draft.run.outcome().is_none() {
        clock::pass_time(&mut draft);
    }
    let outcome = match command {
        Command::Say(say) => clients::say(&mut draft, say),
        Command::Cancel { reason } => clients::cancel(&mut draft, reason.as_deref()),
        Command::Erase { reason } => clients::erase(&mut draft, reason.as_deref()),
        Command::Claim(claim) => outside::claim(&mut draft, claim),
        Command::Propose(propose) => outside::propose(&mut draft, propose),
        Command::Finish { worker, result } => outside::finish(&mut draft, worker, result),
        Command::Fail(fail) => outside::fail(&mut draft, fail),
        Command::StartWork { worker } => outside::start_work(&mut draft, worker),
        Command::Heartbeat { worker } => outside::heartbeat(&mut draft, worker),
        Command::Release { worker } => outside::release(&mut draft, worker),
        Command::Resolve(resolve) => holds::resolve(&mut draft, resolve, &open_before),
        Command::ResolveAll(each) => holds::resolve_all(&mut draft, each, &open_before),
        Command::Reject(reject) => holds::reject(&mut draft, reject, &open_before),
        Command::Vote(decide) => holds::vote(&mut draft, decide, &open_before),
        Command::Edit(edit) => holds::edit(&mut draft, edit, &open_before),
        Command::Assign { hold, to, until } => {
            people::assign(&mut draft, *hold, (to.as_ref(), *until), &open_before)
        }
        Command::Delegate { hold, to, until } => {
            people::delegate(&mut draft, *hold, (to, *until), &open_before)
        }
        Command::Reopen { hold, expires_at } => people::reopen(&mut draft, *hold, *expires_at, &open_before),
        Command::Repin { definition } => holds::repin(&mut draft, *definition),
        Command::RecordReply(reply) => model::reply(&mut draft, reply),
        Command::RecordFailure(failure) => model::failure(&mut draft, failure),
        Command::Begin(begin) => calls::begin(&mut draft, begin),
        Command::Return { call, attempt } => calls::give_back(&mut draft, *call, *attempt),
        Command::Progress { call, note, processing } => calls::progress(&mut draft, *call, note, *processing),
        Command::FinishCall(finish) => calls::finish(&mut draft, finish),
        Command::Suspend(suspend) => calls::suspend(&mut draft, suspend),
        Command::Orphan { call, attempt, node, why, reconciled } => {
            calls::orphan(&mut draft, (*call, *attempt), *node, (why, reconciled.as_deref()))
        }
        Command::Tick => clock::ask_more(&mut draft),
    };
    if draft.run.facts.driver == Driver::Gate {
        outside::end_with_its_call(&mut draft);
    }
    Transition { events: draft.events, run: draft.run, outcome, cancel_children: draft.cancel_children }
}

/// A decision under way: each event is applied as it is emitted, so that the next rule sees its effect.
struct Draft<'a> {
    run: Run,
    events: Vec<Envelope>,
    cancel_children: Vec<RunId>,
    ctx: &'a Context<'a>,
    now: Timestamp,
    actor: Actor,
    drawn: u32,
}

impl Draft<'_> {
    fn emit(&mut self, mut event: Event) {
        // Nobody's request lets time pass.
        if let (Event::HoldResolved(resolved), Some(origin)) = (&mut event, self.ctx.origin)
            && !matches!(resolved.resolution, Resolution::Expire)
        {
            resolved.origin = Some(Box::new(origin.clone()));
        }
        let envelope = Envelope {
            seq: self.run.state.seq.plus(1),
            // Clocks of nodes differ a little; within a run time never goes back.
            at: self.now.max(self.run.state.at),
            actor: self.actor.clone(),
            event,
        };
        apply::apply(&mut self.run, &envelope);
        self.events.push(envelope);
    }

    /// 128 fresh random bits.
    fn draw(&mut self, label: &str) -> Secret {
        self.drawn += 1;
        self.ctx.entropy.draw(label, self.drawn)
    }

    fn refuse_if_ended(&self) -> Result<(), Refusal> {
        self.run.outcome().map_or(Ok(()), |outcome| Err(Refusal::Ended(outcome)))
    }

    /// Ends the run: what is still waited for is withdrawn first, so that every hold has its resolution.
    fn end(&mut self, outcome: Outcome, reason: Option<String>, result: Option<Body>) {
        let is_gate = self.run.facts.driver == Driver::Gate;
        if self.run.state.claim.is_some() && !is_gate {
            clock::unreported_calls_are_unknown(self);
        }
        self.withdraw_holds();
        self.emit(Event::RunEnded(RunEnded { outcome, reason, result }));
        if is_gate {
            outside::give_back_unstarted(self);
        }
    }

    /// Nothing is waited for any more; sub-runs that were are to be canceled.
    fn withdraw_holds(&mut self) {
        for (key, child) in self.run.state.holds.iter().map(|hold| (hold.key, hold.child)).collect::<Vec<_>>()
        {
            self.cancel_children.extend(child);
            self.close(key, Resolution::Withdraw);
        }
    }

    /// Resolves a hold that nobody decided.
    fn close(&mut self, hold: HoldKey, resolution: Resolution) {
        self.emit(Event::HoldResolved(Box::new(HoldResolved {
            hold,
            resolution,
            role: None,
            in_place_of: None,
            idempotency_key: None,
            late: false,
            judged: None,
            digest: None,
            message: None,
            grant: None,
            origin: None,
        })));
    }
}

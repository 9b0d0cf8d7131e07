//! What people decide: one hold, several at once, or a no that stops the run.
//!
//! Every decision, on every surface, comes through here: who may is worked out by `auth`, what fits by `fits.rs`, and the
//! core says what follows. Several holds are decided by one command in one append, all or none of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use standfast_core::actor::Actor;
use standfast_core::command::{Command, Decide, Reject, Resolve, StoredCall, Wanted};
use standfast_core::decide::Answer;
use standfast_core::digest::Digest;
use standfast_core::event::{Envelope, Event};
use standfast_core::hold::{HoldKind, Recorded};
use standfast_core::id::{CallNo, HoldId, HoldKey, RunId, Seq};
use standfast_core::name::ToolName;
use standfast_core::policy::Role;
use standfast_core::project::HoldRow;
use standfast_core::refusal::Refusal;
use standfast_core::run::Facts;
use standfast_core::transcript::stored_call;
use standfast_store::ahead::Driver;
use standfast_store::{StoreError, Stored};

use super::drive::Reins;
use super::identify::needs;
use super::once::Once;
use super::orders::{Lease, beside, is_leased_elsewhere};
use super::submit::Taking;
use super::{Engine, EngineError, Queue, Shared};
use crate::auth::{Approvers, Principal, Scope, may_decide};
use crate::policy;
use crate::tool::Tool;

/// A decision on a hold.
#[derive(Debug, Clone)]
pub struct Decision {
    /// Which hold.
    pub hold: HoldId,
    /// What is decided.
    pub wanted: Wanted,
    /// The digest that was shown, if the decider repeats it.
    pub digest: Option<Digest>,
    /// The revision that was shown, if the decider repeats it.
    pub revision: Option<u32>,
    /// Makes a repeat safe.
    pub once: Option<Once>,
}

/// Decisions on several holds of one run, which all count or none does.
#[derive(Debug, Clone)]
pub struct Decisions {
    /// Whose holds.
    pub run: RunId,
    /// What is decided.
    pub what: Deciding,
    /// Makes a repeat safe.
    pub once: Option<Once>,
}

/// What is decided of several holds.
#[derive(Debug, Clone)]
pub enum Deciding {
    /// Each as it says.
    Each(Vec<One>),
    /// No to all of them, and the run ends with it.
    Reject {
        /// Which holds.
        holds: Vec<HoldKey>,
        /// Why.
        reason: Option<String>,
    },
}

/// One hold of several, with its decision.
#[derive(Debug, Clone)]
pub struct One {
    /// Which hold.
    pub hold: HoldKey,
    /// What is decided.
    pub wanted: Wanted,
    /// The digest that was shown, if the decider repeats it.
    pub digest: Option<Digest>,
    /// The revision that was shown, if the decider repeats it.
    pub revision: Option<u32>,
}

/// Whoever decides, and by what right.
#[derive(Debug, Clone)]
pub(super) enum By {
    /// A person, as far as they may decide.
    Person(Principal),
    /// An outside system that has shown that it may report.
    Callback(Principal),
}

impl By {
    pub(super) fn principal(&self) -> &Principal {
        let (By::Person(who) | By::Callback(who)) = self;
        who
    }

    pub(super) fn actor(&self) -> Actor {
        match self {
            By::Person(who) => Actor::Person(who.user.clone()),
            By::Callback(who) => Actor::Callback(who.user.clone()),
        }
    }
}

/// How often a decision is decided again when others were faster.
const DECIDED_AGAIN: u32 = 2;

/// Whether a decision takes the run that it lets go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Take {
    IfFree,
    Never,
}

impl From<Decision> for Decisions {
    fn from(decision: Decision) -> Decisions {
        let Decision { hold, wanted, digest, revision, once } = decision;
        let one = One { hold: hold.key, wanted, digest, revision };
        Decisions { run: hold.run, what: Deciding::Each(vec![one]), once }
    }
}

impl Deciding {
    fn holds(&self) -> Vec<HoldKey> {
        match self {
            Deciding::Each(each) => each.iter().map(|one| one.hold).collect(),
            Deciding::Reject { holds, .. } => holds.clone(),
        }
    }

    fn wanted(&self, hold: HoldKey) -> Option<&Wanted> {
        match self {
            Deciding::Each(each) => each.iter().find(|one| one.hold == hold).map(|one| &one.wanted),
            Deciding::Reject { .. } => None,
        }
    }

    /// Arguments that a person puts in the place of the model's.
    fn edited(&self, call: CallNo) -> Option<String> {
        let Deciding::Each(each) = self else { return None };
        each.iter().find(|one| one.hold.call == call).and_then(|one| match &one.wanted {
            Wanted::ApproveEdited { arguments } => Some(arguments.text().to_owned()),
            Wanted::Approve
            | Wanted::Deny { .. }
            | Wanted::Answer { .. }
            | Wanted::Fail { .. }
            | Wanted::Withdraw => None,
        })
    }

    /// Whoever reports for a job, also by a decision, may repeat what the job was told (T29).
    fn cut_secrets(&mut self, holds: &[HoldRow], tools: &BTreeMap<ToolName, Arc<dyn Tool>>) {
        let Deciding::Each(each) = self else { return };
        for one in each {
            let hold = holds.iter().find(|hold| hold.id.key == one.hold);
            let job = hold.filter(|hold| hold.kind == HoldKind::External);
            let tool = job.and_then(|hold| Some((hold.id, tools.get(hold.tool.as_ref()?)?)));
            if let Some((id, job)) = tool.and_then(|(id, tool)| Some((id, tool.external()?))) {
                let wanted = std::mem::replace(&mut one.wanted, Wanted::Withdraw);
                one.wanted = job.handed(id).cut_wanted(wanted);
            }
        }
    }

    fn command(self, idempotency_key: Option<&str>) -> Command {
        let resolve = |one: One| Resolve {
            decide: Decide { hold: one.hold, digest: one.digest, revision: one.revision },
            resolution: one.wanted,
            idempotency_key: idempotency_key.map(str::to_owned),
        };
        match self {
            Deciding::Reject { holds, reason } => {
                Command::Reject(Reject { holds, reason, idempotency_key: idempotency_key.map(str::to_owned) })
            }
            Deciding::Each(mut each) => match each.len() {
                1 => Command::Resolve(resolve(each.remove(0))),
                _ => Command::ResolveAll(each.into_iter().map(resolve).collect()),
            },
        }
    }
}

impl Shared {
    /// Takes a held run, if there is room and nobody works on it.
    async fn taking(
        self: &Arc<Shared>,
        stored: &Stored,
        reins: Option<Reins>,
    ) -> Result<Option<Taking>, EngineError> {
        let facts = &stored.row.run.facts;
        let Some(reins) = reins else { return Ok(None) };
        // A lease of this very node, whose run nobody drives here, is about to be given back, or to be driven with.
        let is_others = |lease: standfast_store::Lease| lease.node != self.node;
        if stored.lease.is_some_and(|lease| is_others(lease) && lease.until > self.clock.now()) {
            return Ok(None);
        }
        let Some(place) = self.place(&facts.agent, Queue::of(facts)) else { return Ok(None) };
        match self.events(facts.id, Seq(0)).await {
            Ok(log) => Ok(Some(Taking { place, reins, log, may_lose: true })),
            Err(StoreError::Corrupt { run, why }) => {
                self.put_aside(run, &why).await;
                Err(StoreError::Corrupt { run, why }.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The start of the call that a decision lets run: written with the decision, so that nothing comes between. The
    /// core refuses it where the decision alone does not let it run.
    fn begin_decided(&self, hold: &HoldRow, wanted: &Wanted, log: &[Envelope]) -> Option<Command> {
        let call = hold.id.key.call;
        let stored = stored_call(log, call)?;
        let decided = match wanted {
            Wanted::Approve => stored,
            Wanted::ApproveEdited { arguments } => {
                StoredCall { arguments: arguments.text().to_owned(), ..stored }
            }
            Wanted::Deny { .. } | Wanted::Answer { .. } | Wanted::Fail { .. } | Wanted::Withdraw => {
                return None;
            }
        };
        Some(self.begin(&hold.agent, call, decided))
    }

    /// In what role somebody may decide all of these; none when one of them is not theirs.
    fn authority(&self, by: &By, facts: &Facts, holds: &[HoldRow], approvers: &Approvers) -> Option<Role> {
        let role = |hold: &HoldRow| match by {
            By::Person(who) => may_decide(who, facts, hold.into(), approvers),
            By::Callback(_) => (hold.kind == HoldKind::External).then_some(Role::Callback),
        };
        let mut roles = holds.iter().map(role);
        let first = roles.next()?;
        roles.try_fold(first?, |first, role| role.map(|_| first))
    }
}

impl Engine {
    /// Decides a hold.
    pub async fn decide(&self, who: &Principal, decision: Decision) -> Result<Answer, EngineError> {
        self.decide_all(who, decision.into()).await
    }

    /// Decides several holds of a run at once. Every decision, on every surface, comes through here.
    pub async fn decide_all(&self, who: &Principal, decisions: Decisions) -> Result<Answer, EngineError> {
        needs(who, Scope::HoldsDecide)?;
        self.decide_all_by(&By::Person(who.clone()), decisions).await
    }

    /// One hold by whoever has a right to.
    pub(super) async fn decide_by(&self, by: &By, decision: Decision) -> Result<Answer, EngineError> {
        self.decide_all_by(by, decision.into()).await
    }

    async fn decide_all_by(&self, by: &By, decisions: Decisions) -> Result<Answer, EngineError> {
        let mut decided = self.decide_on_what_is(by, decisions.clone(), Take::IfFree).await;
        for _ in 0..DECIDED_AGAIN {
            match &decided {
                // It was there: somebody was faster. Once more, with their decision in hand.
                Err(EngineError::Refused(Refusal::NoSuchHold(_))) => {}
                // Another node works on the run, and goes on with it.
                Err(EngineError::Store(error)) if is_leased_elsewhere(error) => {}
                Ok(_) | Err(_) => break,
            }
            decided = self.decide_on_what_is(by, decisions.clone(), Take::Never).await;
        }
        decided
    }

    async fn decide_on_what_is(
        &self,
        by: &By,
        decisions: Decisions,
        take: Take,
    ) -> Result<Answer, EngineError> {
        let who = by.principal();
        let Decisions { run, mut what, once } = decisions;
        let shared = &self.shared;
        let reins = match (take, &what) {
            (Take::IfFree, Deciding::Each(_)) => shared.reins(run),
            (Take::Never, _) | (_, Deciding::Reject { .. }) => None,
        };
        let stored = match by {
            By::Person(who) => self.visible(who, run).await?,
            By::Callback(_) => self.load(run).await?,
        };
        let facts = &stored.row.run.facts;
        let agent = shared.agent(&facts.agent).ok();
        let approvers = shared.approvers(&facts.agent);
        let mut holds = Vec::new();
        for key in what.holds() {
            let found = shared.store.find_hold(HoldId { run, key }).await?;
            holds.push(found.ok_or(EngineError::NotFound)?);
        }
        if shared.done_before(who, once.as_ref()).await?.is_some() {
            return Ok(Answer::Repeated);
        }
        if let Some(agent) = &agent {
            what.cut_secrets(&holds, &agent.tools);
        }
        let authority = shared.authority(by, facts, &holds, &approvers);
        let closed = holds.iter().find_map(|hold| Some((hold.id, hold.closed.as_ref()?.seq)));
        let recorded = match closed {
            Some((hold, seq)) => self.recorded(hold, seq).await?,
            None => None,
        };
        let definition = shared.definition(&facts.agent, stored.row.run.state.definition).await?;
        let is_open = authority.is_some() && closed.is_none();
        for hold in holds.iter().filter(|_| is_open) {
            if let Some(wanted) = what.wanted(hold.id.key) {
                shared.refuse_misfit(hold, wanted, &definition).await?;
            }
        }
        let taking = match is_open {
            true => shared.taking(&stored, reins).await?,
            false => None,
        };
        // A tool that is gone is not begun: whoever drives the run asks about it. Nor is one for which something outside
        // has to be looked at first.
        let can_begin = |hold: &&HoldRow| {
            let called = stored.row.run.call(hold.id.key.call).map(|call| &call.tool);
            let tool = called.and_then(|tool| agent.as_ref()?.tools.get(tool));
            tool.is_some_and(|tool| tool.look(&super::login::account(facts)).is_none())
        };
        let mut begins = Vec::new();
        if let Some(taking) = &taking {
            let begin = |hold: &HoldRow| shared.begin_decided(hold, what.wanted(hold.id.key)?, &taking.log);
            begins.extend(holds.iter().filter(can_begin).filter_map(begin));
        }
        // What is about to be decided: edited arguments where there are some, the stored ones otherwise.
        let arguments =
            |call| what.edited(call).or_else(|| Some(stored_call(&taking.as_ref()?.log, call)?.arguments));
        let verdicts = policy::of_run(agent.as_deref(), &definition, &stored.row.run, arguments);
        let lease = match taking {
            Some(_) => shared.while_busy(),
            None => Lease::Untouched,
        };
        let command = what.command(once.as_ref().and_then(Once::chosen_key));
        let mut order = shared.order(
            std::iter::once(command).chain(begins).collect(),
            by.actor(),
            definition,
            verdicts,
            beside(lease, &approvers, shared.mark(who, once.as_ref()).into()),
        );
        order.given.authority = authority;
        order.given.recorded = recorded;
        let mut driver = Driver::of(shared.store.clone(), stored.row);
        driver.push(order);
        self.settled_once(who, run, driver, taking, once.as_ref()).await
    }

    /// The decision that a hold had, from the log.
    async fn recorded(&self, hold: HoldId, at: Seq) -> Result<Option<Recorded>, EngineError> {
        let before = Seq(at.0.saturating_sub(1));
        let events = self.shared.events(hold.run, before).await?;
        let Some(envelope) = events.into_iter().find(|envelope| envelope.seq == at) else { return Ok(None) };
        let Event::HoldResolved(resolved) = envelope.event else { return Ok(None) };
        Ok(Some(Recorded {
            resolution: resolved.resolution,
            by: envelope.actor,
            at: envelope.at,
            idempotency_key: resolved.idempotency_key,
        }))
    }
}

//! What clients and people want: start, say, cancel, decide.
//!
//! Load, decide, append at the expected sequence, decide again after a conflict, wake. An answer, also a no, leaves
//! only after what it depends on is durable.

use holdpoint_core::actor::Actor;
use holdpoint_core::command::{Command, Decide, Resolve, Say, Start, Taken, Wanted};
use holdpoint_core::decide::Answer;
use holdpoint_core::digest::Digest;
use holdpoint_core::event::{Driver as DrivenBy, Event};
use holdpoint_core::hold::Recorded;
use holdpoint_core::id::{HoldId, RunId, Seq};
use holdpoint_core::message::Message;
use holdpoint_core::name::{AgentName, SessionId};
use holdpoint_core::refusal::Refusal;
use holdpoint_store::Put;
use holdpoint_store::ahead::Driver;

use super::orders::{Lease, beside};
use super::{Engine, EngineError};
use crate::auth::{Principal, may_decide};
use crate::{clock, policy};

/// A run that somebody wants.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Of which agent.
    pub agent: AgentName,
    /// In which conversation; none makes a new one.
    pub session: Option<SessionId>,
    /// What to do.
    pub message: Message,
}

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
    pub idempotency_key: Option<String>,
}

impl Engine {
    /// Begins a run. It is durable when this comes back; it is worked on here at once if there is room.
    pub async fn start(&self, who: &Principal, new: NewRun) -> Result<RunId, EngineError> {
        let shared = &self.shared;
        let agent = shared.agent(&new.agent)?;
        let place = shared.place(&new.agent);
        let (taken, lease) = match place {
            Some(_) => (Taken::AtOnce, shared.while_busy()),
            None => (Taken::Queued, Lease::Untouched),
        };
        let id = clock::run_id(&who.tenant, agent.lives, shared.clock.now());
        let session = match new.session {
            Some(session) => session,
            None => {
                SessionId::new(id.to_string().replace("run_", "ses_")).map_err(|_| EngineError::NotFound)?
            }
        };
        let start = Start {
            id,
            tenant: who.tenant.clone(),
            agent: new.agent,
            session,
            owner: who.user.clone(),
            driver: DrivenBy::Loop,
            definition: agent.digest,
            parent: None,
            inbox: None,
            message: new.message,
            taken,
        };
        let definition = Put::Definition { digest: agent.digest, bytes: agent.definition.to_bytes() };
        let order = shared.order(
            Vec::new(),
            Actor::Client(who.user.clone()),
            agent.definition.clone(),
            Default::default(),
            beside(lease, &agent.approvers, Some(definition)),
        );
        let mut driver = Driver::start(shared.store.clone(), start, order)?;
        let settlement = driver.settle().await;
        if let Some(error) = settlement.failed {
            return Err(error.into());
        }
        match place {
            Some(place) => {
                let log = settlement.done.into_iter().flat_map(|settled| settled.events).collect();
                shared.drive(driver, log, place);
            }
            None => shared.wakes.wake_worker(),
        }
        Ok(id)
    }

    /// Says something more to a run.
    pub async fn say(&self, who: &Principal, run: RunId, say: Say) -> Result<Answer, EngineError> {
        self.submit(who, run, Command::Say(say)).await
    }

    /// Stops a run.
    pub async fn cancel(
        &self,
        who: &Principal,
        run: RunId,
        reason: Option<String>,
    ) -> Result<Answer, EngineError> {
        self.submit(who, run, Command::Cancel { reason }).await
    }

    /// Decides a hold. Every decision, on every surface, comes through here.
    pub async fn decide(&self, who: &Principal, decision: Decision) -> Result<Answer, EngineError> {
        match self.decide_on_what_is(who, decision.clone()).await {
            // It was there: somebody was faster. Once more, with their decision in hand.
            Err(EngineError::Refused(Refusal::NoSuchHold(_))) => self.decide_on_what_is(who, decision).await,
            first => first,
        }
    }

    async fn decide_on_what_is(&self, who: &Principal, decision: Decision) -> Result<Answer, EngineError> {
        let (shared, run) = (&self.shared, decision.hold.run);
        let stored = self.visible(who, run).await?;
        let facts = &stored.row.run.facts;
        let agent = shared.agent(&facts.agent)?;
        let hold = shared.store.find_hold(decision.hold).await?.ok_or(EngineError::NotFound)?;
        let authority = may_decide(who, &stored.row.run, hold.kind, &agent.approvers);
        let recorded = match &hold.closed {
            Some(closed) => self.recorded(decision.hold, closed.seq).await?,
            None => None,
        };
        let definition = shared.definition(agent, stored.row.run.state.definition).await?;
        if authority.is_some() && hold.closed.is_none() {
            shared.refuse_misfit(&hold, &decision.wanted, &definition).await?;
        }
        let resolve = Resolve {
            decide: Decide { hold: decision.hold.key, digest: decision.digest, revision: decision.revision },
            resolution: decision.wanted,
            idempotency_key: decision.idempotency_key,
        };
        let mut order = shared.order(
            vec![Command::Resolve(resolve)],
            Actor::Person(who.user.clone()),
            definition,
            policy::of_run(agent, &stored.row.run),
            beside(Lease::Untouched, &agent.approvers, None),
        );
        order.given.authority = authority;
        order.given.recorded = recorded;
        let mut driver = Driver::of(shared.store.clone(), stored.row);
        driver.push(order);
        self.settled(run, driver).await
    }

    async fn submit(&self, who: &Principal, run: RunId, command: Command) -> Result<Answer, EngineError> {
        let shared = &self.shared;
        let actor = Actor::Client(who.user.clone());
        let stored = self.visible(who, run).await?;
        let agent = shared.agent(&stored.row.run.facts.agent)?;
        let definition = shared.definition(agent, stored.row.run.state.definition).await?;
        let order = shared.order(
            vec![command],
            actor,
            definition,
            Default::default(),
            beside(Lease::Untouched, &agent.approvers, None),
        );
        let mut driver = Driver::of(shared.store.clone(), stored.row);
        driver.push(order);
        self.settled(run, driver).await
    }

    /// Waits until it is durable, wakes whoever follows or should go on, and tells the outcome.
    async fn settled(&self, run: RunId, mut driver: Driver) -> Result<Answer, EngineError> {
        let mut settlement = driver.settle().await;
        if let Some(error) = settlement.failed {
            return Err(error.into());
        }
        self.shared.wakes.wake(run);
        self.shared.wakes.wake_worker();
        match settlement.done.pop() {
            Some(settled) => Ok(settled.outcome?),
            None => Err(EngineError::NotFound),
        }
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

impl EngineError {
    /// The rule that said no, if one did.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            EngineError::Refused(refusal) => Some(refusal),
            EngineError::Store(_)
            | EngineError::NoSuchAgent { .. }
            | EngineError::BreaksSchema(_)
            | EngineError::NotFound => None,
        }
    }
}

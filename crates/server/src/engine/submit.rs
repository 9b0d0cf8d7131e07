//! What clients and people want: start, say, cancel, decide.
//!
//! Load, decide, append at the expected sequence, decide again after a conflict, wake. An answer, also a no, leaves
//! only after what it depends on is durable.

use std::sync::Arc;

use holdpoint_core::actor::Actor;
use holdpoint_core::command::{Command, Decide, Resolve, Say, Start, StoredCall, Taken, Wanted};
use holdpoint_core::decide::Answer;
use holdpoint_core::definition::Definition;
use holdpoint_core::digest::Digest;
use holdpoint_core::event::{Driver as DrivenBy, Envelope, Event, Inbox};
use holdpoint_core::hold::{HoldKind, Recorded};
use holdpoint_core::id::{HoldId, RunId, Seq};
use holdpoint_core::message::Message;
use holdpoint_core::name::{AgentName, SessionId};
use holdpoint_core::policy::Role;
use holdpoint_core::project::HoldRow;
use holdpoint_core::refusal::Refusal;
use holdpoint_core::transcript::stored_call;
use holdpoint_store::ahead::Driver;
use holdpoint_store::{Guard, Put, SessionKey, StoreError, Stored};
use tokio::sync::oneshot;

use super::drive::Reins;
use super::identify::needs;
use super::once::Once;
use super::orders::{Lease, More, beside, is_leased_elsewhere};
use super::{Engine, EngineError, Place, Queue, Shared};
use crate::auth::{Principal, Scope, may_decide};
use crate::policy;

/// A run that somebody wants.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Of which agent.
    pub agent: AgentName,
    /// In which conversation; none makes a new one.
    pub session: Option<SessionId>,
    /// What to do.
    pub message: Message,
    /// Makes a repeat safe.
    pub once: Option<Once>,
}

/// What a new run is made of, wherever it comes from.
pub(super) struct Beginning {
    pub(super) agent: AgentName,
    /// None makes a new one.
    pub(super) session: Option<SessionId>,
    pub(super) driver: DrivenBy,
    /// What it is pinned to.
    pub(super) definition: (Digest, Arc<Definition>),
    pub(super) id: RunId,
    pub(super) inbox: Option<Inbox>,
    pub(super) message: Message,
    /// Whether it is worked on here at once if there is room.
    pub(super) taken: Taken,
    /// Makes a repeat safe.
    pub(super) once: Option<Once>,
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
    pub once: Option<Once>,
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

/// A run that this node takes with the append that makes it go on: no claim is needed first.
pub(super) struct Taking {
    place: Place,
    reins: Reins,
    log: Vec<Envelope>,
}

/// How often a decision is decided again when others were faster.
const DECIDED_AGAIN: u32 = 2;

/// Whether a decision takes the run that it lets go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Take {
    IfFree,
    Never,
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
        if stored.lease.is_some_and(|lease| lease.until > self.clock.now()) {
            return Ok(None);
        }
        let Some(place) = self.place(&facts.agent, Queue::of(facts)) else { return Ok(None) };
        match self.events(facts.id, Seq(0)).await {
            Ok(log) => Ok(Some(Taking { place, reins, log })),
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
}

impl Engine {
    /// Begins a run. It is durable when this comes back; it is worked on here at once if there is room.
    pub async fn start(&self, who: &Principal, new: NewRun) -> Result<RunId, EngineError> {
        let id = self.new_id(who, &new)?;
        self.start_as(who, new, id).await
    }

    /// The id that a run will have.
    pub(super) fn new_id(&self, who: &Principal, new: &NewRun) -> Result<RunId, EngineError> {
        let agent = self.shared.agent(&new.agent)?;
        Ok(self.shared.clock.run_id(&who.tenant, agent.lives))
    }

    /// Begins a run with this id. The one that comes back has another when the request was carried out before.
    pub(super) async fn start_as(
        &self,
        who: &Principal,
        new: NewRun,
        id: RunId,
    ) -> Result<RunId, EngineError> {
        needs(who, Scope::RunsWrite)?;
        let agent = self.shared.agent(&new.agent)?;
        let beginning = Beginning {
            agent: new.agent,
            session: new.session,
            driver: DrivenBy::Loop,
            definition: (agent.digest, agent.definition.clone()),
            id,
            inbox: None,
            message: new.message,
            taken: Taken::AtOnce,
            once: new.once,
        };
        self.begin(who, beginning).await
    }

    /// Begins a run, wherever it comes from.
    pub(super) async fn begin(&self, who: &Principal, new: Beginning) -> Result<RunId, EngineError> {
        needs(who, Scope::RunsWrite)?;
        let shared = &self.shared;
        if let Some(before) = shared.done_before(who, new.once.as_ref()).await? {
            return Ok(before.run);
        }
        let id = new.id;
        let place = match new.taken {
            Taken::AtOnce => shared.place(&new.agent, Queue::Other),
            Taken::Queued => None,
        };
        let reins = shared.reins(id);
        let (taken, lease) = match place {
            Some(_) => (Taken::AtOnce, shared.while_busy()),
            None => (Taken::Queued, Lease::Untouched),
        };
        let session = match &new.session {
            Some(session) => session.clone(),
            None => {
                SessionId::new(id.to_string().replace("run_", "ses_")).map_err(|_| EngineError::NotFound)?
            }
        };
        let (digest, definition) = new.definition;
        let start = Start {
            id,
            tenant: who.tenant.clone(),
            agent: new.agent.clone(),
            session: session.clone(),
            owner: who.user.clone(),
            driver: new.driver,
            definition: digest,
            parent: None,
            inbox: new.inbox,
            message: new.message,
            taken,
        };
        let mut more = More::from(shared.mark(who, new.once.as_ref()));
        let key =
            SessionKey { tenant: who.tenant.clone(), agent: new.agent.clone(), session: session.clone() };
        more.guards.push(Guard::SessionOpen { session: key });
        more.puts.push(Put::Definition { digest, bytes: definition.to_bytes() });
        let order = shared.order(
            Vec::new(),
            Actor::Client(who.user.clone()),
            definition,
            Default::default(),
            beside(lease, &shared.approvers(&new.agent), more),
        );
        let driver = Driver::start(shared.store.clone(), start, order)?;
        let taking = match (place, reins) {
            (Some(place), Some(reins)) => Some(Taking { place, reins, log: Vec::new() }),
            (_, _) => None,
        };
        match self.settled(id, driver, taking).await {
            Ok(_) => Ok(id),
            Err(EngineError::Store(StoreError::Guard { .. })) => {
                match shared.done_before(who, new.once.as_ref()).await? {
                    Some(before) => Ok(before.run),
                    None => Err(EngineError::SessionClosed { agent: new.agent, session }),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Says something more to a run.
    pub async fn say(
        &self,
        who: &Principal,
        run: RunId,
        say: Say,
        once: Option<Once>,
    ) -> Result<Answer, EngineError> {
        self.submit(who, run, Command::Say(say), once).await
    }

    /// Stops a run.
    pub async fn cancel(
        &self,
        who: &Principal,
        run: RunId,
        reason: Option<String>,
        once: Option<Once>,
    ) -> Result<Answer, EngineError> {
        self.submit(who, run, Command::Cancel { reason }, once).await
    }

    /// Decides a hold. Every decision, on every surface, comes through here.
    pub async fn decide(&self, who: &Principal, decision: Decision) -> Result<Answer, EngineError> {
        needs(who, Scope::HoldsDecide)?;
        self.decide_by(&By::Person(who.clone()), decision).await
    }

    /// The same by whoever has a right to.
    pub(super) async fn decide_by(&self, who: &By, decision: Decision) -> Result<Answer, EngineError> {
        let mut decided = self.decide_on_what_is(who, decision.clone(), Take::IfFree).await;
        for _ in 0..DECIDED_AGAIN {
            match &decided {
                // It was there: somebody was faster. Once more, with their decision in hand.
                Err(EngineError::Refused(Refusal::NoSuchHold(_))) => {}
                // Another node works on the run, and goes on with it.
                Err(EngineError::Store(error)) if is_leased_elsewhere(error) => {}
                Ok(_) | Err(_) => break,
            }
            decided = self.decide_on_what_is(who, decision.clone(), Take::Never).await;
        }
        decided
    }

    async fn decide_on_what_is(
        &self,
        by: &By,
        decision: Decision,
        take: Take,
    ) -> Result<Answer, EngineError> {
        let who = by.principal();
        let (shared, run) = (&self.shared, decision.hold.run);
        let reins = match take {
            Take::IfFree => shared.reins(run),
            Take::Never => None,
        };
        let stored = match by {
            By::Person(who) => self.visible(who, run).await?,
            By::Callback(_) => self.load(run).await?,
        };
        let facts = &stored.row.run.facts;
        let agent = shared.agent(&facts.agent).ok();
        let approvers = shared.approvers(&facts.agent);
        let hold = shared.store.find_hold(decision.hold).await?.ok_or(EngineError::NotFound)?;
        if shared.done_before(who, decision.once.as_ref()).await?.is_some() {
            return Ok(Answer::Repeated);
        }
        let authority = match by {
            By::Person(who) => may_decide(who, facts, (&hold).into(), &approvers),
            By::Callback(_) => (hold.kind == HoldKind::External).then_some(Role::Callback),
        };
        let recorded = match &hold.closed {
            Some(closed) => self.recorded(decision.hold, closed.seq).await?,
            None => None,
        };
        let definition = shared.definition(&facts.agent, stored.row.run.state.definition).await?;
        let is_open = authority.is_some() && hold.closed.is_none();
        if is_open {
            shared.refuse_misfit(&hold, &decision.wanted, &definition).await?;
        }
        let taking = match is_open {
            true => shared.taking(&stored, reins).await?,
            false => None,
        };
        // A tool that is gone is not begun: whoever drives the run asks about it. Nor is one for which something outside
        // has to be looked at first.
        let called = stored.row.run.call(hold.id.key.call).map(|call| &call.tool);
        let tool = called.and_then(|tool| agent.as_ref()?.tools.get(tool));
        let can_begin = tool.is_some_and(|tool| tool.look().is_none());
        let begin = taking
            .as_ref()
            .filter(|_| can_begin)
            .and_then(|taking| shared.begin_decided(&hold, &decision.wanted, &taking.log));
        // What is about to be decided: edited arguments where there are some, the stored ones otherwise.
        let arguments = |call| match &decision.wanted {
            Wanted::ApproveEdited { arguments } if call == hold.id.key.call => {
                Some(arguments.text().to_owned())
            }
            Wanted::Approve
            | Wanted::ApproveEdited { .. }
            | Wanted::Deny { .. }
            | Wanted::Answer { .. }
            | Wanted::Fail { .. }
            | Wanted::Withdraw => Some(stored_call(&taking.as_ref()?.log, call)?.arguments),
        };
        let verdicts = policy::of_run(agent.as_deref(), &definition, &stored.row.run, arguments);
        let resolve = Command::Resolve(Resolve {
            decide: Decide { hold: decision.hold.key, digest: decision.digest, revision: decision.revision },
            resolution: decision.wanted,
            idempotency_key: decision.once.as_ref().map(|once| once.key.clone()),
        });
        let lease = match taking {
            Some(_) => shared.while_busy(),
            None => Lease::Untouched,
        };
        let mut order = shared.order(
            std::iter::once(resolve).chain(begin).collect(),
            by.actor(),
            definition,
            verdicts,
            beside(lease, &approvers, shared.mark(who, decision.once.as_ref()).into()),
        );
        order.given.authority = authority;
        order.given.recorded = recorded;
        let mut driver = Driver::of(shared.store.clone(), stored.row);
        driver.push(order);
        self.settled_once(who, run, driver, taking, decision.once.as_ref()).await
    }

    pub(super) async fn submit(
        &self,
        who: &Principal,
        run: RunId,
        command: Command,
        once: Option<Once>,
    ) -> Result<Answer, EngineError> {
        needs(who, Scope::RunsWrite)?;
        let shared = &self.shared;
        let actor = Actor::Client(who.user.clone());
        let stored = self.visible(who, run).await?;
        if shared.done_before(who, once.as_ref()).await?.is_some() {
            return Ok(Answer::Repeated);
        }
        let agent = &stored.row.run.facts.agent;
        let definition = shared.definition(agent, stored.row.run.state.definition).await?;
        let order = shared.order(
            vec![command],
            actor,
            definition,
            Default::default(),
            beside(Lease::Untouched, &shared.approvers(agent), shared.mark(who, once.as_ref()).into()),
        );
        let mut driver = Driver::of(shared.store.clone(), stored.row);
        driver.push(order);
        self.settled_once(who, run, driver, None, once.as_ref()).await
    }

    /// The same request may have been faster than itself.
    pub(super) async fn settled_once(
        &self,
        who: &Principal,
        run: RunId,
        driver: Driver,
        taking: Option<Taking>,
        once: Option<&Once>,
    ) -> Result<Answer, EngineError> {
        match self.settled(run, driver, taking).await {
            // Refused, perhaps because of what it has done itself a moment ago.
            Err(error @ (EngineError::Store(StoreError::Guard { .. }) | EngineError::Refused(_))) => {
                let before = self.shared.done_before(who, once).await?;
                before.map(|_| Answer::Repeated).ok_or(error)
            }
            other => other,
        }
    }

    /// Waits until it is durable, wakes whoever follows or should go on, and tells the outcome. A run that is taken with
    /// it is driven on from here.
    async fn settled(
        &self,
        run: RunId,
        mut driver: Driver,
        taking: Option<Taking>,
    ) -> Result<Answer, EngineError> {
        let (accepted, answer) = oneshot::channel();
        match taking {
            Some(Taking { place, reins, log }) => {
                self.shared.drive(driver, log, (place, reins), Some(accepted));
            }
            // In the background: who asked may hang up, and whoever drives the run must hear of it all the same.
            None => self.shared.spawn({
                let shared = self.shared.clone();
                async move {
                    let mut settlement = driver.settle().await;
                    shared.wakes.wake(run);
                    shared.wakes.wake_worker();
                    if driver.durable().is_some_and(|row| row.run.facts.inbox.is_some()) {
                        shared.wakes.wake_inboxes();
                    }
                    let outcome = match (settlement.failed, settlement.done.pop()) {
                        (Some(error), _) => Err(error.into()),
                        (None, Some(settled)) => settled.outcome.map_err(EngineError::from),
                        (None, None) => Err(EngineError::NotFound),
                    };
                    let _ = accepted.send(outcome);
                }
            }),
        }
        let died = |_| StoreError::Unknown { why: "the server is stopping".into() };
        answer.await.map_err(died)?
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
            | EngineError::KeyReused { .. }
            | EngineError::SessionClosed { .. }
            | EngineError::MissingScope(_)
            | EngineError::NotFound => None,
        }
    }
}

//! What clients want: start, say, cancel. `decisions.rs` is what people decide, `grants.rs` what they approve in advance, `people.rs` what they do to a hold without deciding it,
//! `absences.rs` who stands in for whoever is away, `links.rs` links that let one person decide one hold, `reports.rs` what outside systems report,
//! `logins.rs` how people log in for a run, `tasks.rs` what is put into inboxes and claimed from them,
//! `session_delete.rs` how a conversation is deleted, `restore.rs` how a run is made of its execution state.
//!
//! Load, decide, append at the expected sequence, decide again after a conflict, wake. An answer, also a no, leaves
//! only after what it depends on is durable.

mod absences;
mod decisions;
mod gates;
mod grants;
mod links;
mod logins;
mod people;
mod reports;
mod restore;
mod session_delete;
mod shedding;
mod tasks;
mod validate;

use std::sync::Arc;

use standfast_core::actor::Actor;
use standfast_core::command::{Admission, Command, Say, Start};
use standfast_core::decide::Answer;
use standfast_core::definition::Definition;
use standfast_core::digest::Digest;
use standfast_core::event::{Driver as DrivenBy, Inbox};
use standfast_core::id::RunId;
use standfast_core::message::Message;
use standfast_core::name::{AgentName, SessionId};
use standfast_store::{Guard, SessionKey, StoreError};

use super::EngineError;
use super::commit::{Change, Commit, IdempotencyKey};
use super::drive::{Drives, Rivals};
use super::host::Host;
use super::log::refused_decisions::RefusedDecisions;
use super::log::{Log, Snapshot, needs, needs_for};
use super::reads::Sessions;
use super::receivers::{Callback, Callbacks, SubscriptionError};
use crate::auth::{Principal, Scope};
use crate::settings::PinnedDefinition;
use crate::wakes::RestTicket;

pub use decisions::{Decision, DecisionSet, Decisions, HoldDecision};
pub use gates::{
    ClosedDialogs, GateDecision, GateError, GateOutcome, GateStart, GateState, GateView, Gates, LoginAsked,
    LookedUpGate, NewGate, OpenedGate, Withdrawal,
};
pub use grants::{GrantError, GrantState, GrantView, Grants};
pub use links::{IssuedLink, LinkError, LinkRefusal, Links, OpenedLink};
pub use logins::{LoginError, Logins};
pub use people::{Adjustment, HoldAdjustment};
pub use reports::{Report, ReportBody, ReportError, Reports, Signature};
pub use restore::{RestoreError, RestoredState};
pub use session_delete::SessionDeletion;
pub use tasks::{CallReport, ClaimTask, NewTask, ProposedCall, TaskQueue, TaskReport, claimed_by};

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
    pub once: Option<IdempotencyKey>,
}

/// A run that is durable.
#[derive(Debug)]
pub struct StartedRun {
    /// Its id; of the one before when the request was carried out before.
    pub id: RunId,
    /// What it will come to; none when it is not driven here because of this request.
    pub rest: Option<RestTicket>,
}

impl From<RunId> for StartedRun {
    fn from(id: RunId) -> StartedRun {
        StartedRun { id, rest: None }
    }
}

/// What a new run is made of, wherever it comes from.
struct RunBasis {
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
    pub(super) taken: Admission,
    /// Makes a repeat safe.
    pub(super) once: Option<IdempotencyKey>,
}

/// What clients and people ask for.
pub struct Submit {
    host: Arc<Host>,
    log: Arc<Log>,
    commit: Arc<Commit>,
    drives: Arc<Drives>,
    callbacks: Arc<Callbacks>,
    sessions: Arc<Sessions>,
    links: Links,
    refused: RefusedDecisions,
}

impl Submit {
    pub(crate) fn new(
        drives: Arc<Drives>,
        callbacks: Arc<Callbacks>,
        sessions: Arc<Sessions>,
        links: Links,
    ) -> Submit {
        let (host, log, commit) = (drives.host.clone(), drives.log.clone(), drives.commit.clone());
        let refused = RefusedDecisions::default();
        Submit { host, log, commit, drives, callbacks, sessions, links, refused }
    }

    /// Approval links.
    #[must_use]
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Whether this very request was carried out before; a different one under its key is refused.
    pub async fn was_done(
        &self,
        who: &Principal,
        once: Option<&IdempotencyKey>,
    ) -> Result<bool, EngineError> {
        self.commit.was_done(who, once).await
    }

    /// Begins a run. It is durable when this comes back; it is worked on here at once if there is room.
    pub async fn start(&self, who: &Principal, new: NewRun) -> Result<RunId, EngineError> {
        Ok(self.start_run(who, new).await?.id)
    }

    /// The same, for whoever waits until the run settles.
    pub async fn start_run(&self, who: &Principal, new: NewRun) -> Result<StartedRun, EngineError> {
        let id = self.new_id(who, &new)?;
        let pinned = self.host.agent(&new.agent)?.pin();
        self.start_as(who, new, id, pinned).await
    }

    /// The same, where one held call holds all calls of its reply unless the agent's configuration turns that off.
    pub async fn start_batched(&self, who: &Principal, new: NewRun) -> Result<RunId, EngineError> {
        let id = self.new_id(who, &new)?;
        let agent = self.host.agent(&new.agent)?;
        let pinned = agent.batched.clone().unwrap_or_else(|| agent.pin());
        Ok(self.start_as(who, new, id, pinned).await?.id)
    }

    /// The id that a run will have.
    fn new_id(&self, who: &Principal, new: &NewRun) -> Result<RunId, EngineError> {
        let agent = self.host.configured_agent(&new.agent)?;
        Ok(self.host.clock.run_id(&who.tenant, agent.lives))
    }

    /// Begins a run with this id. The one that comes back has another when the request was carried out before.
    async fn start_as(
        &self,
        who: &Principal,
        new: NewRun,
        id: RunId,
        pinned: PinnedDefinition,
    ) -> Result<StartedRun, EngineError> {
        needs_for(who, Scope::RunsWrite, &new.agent)?;
        let beginning = RunBasis {
            agent: new.agent,
            session: new.session,
            driver: DrivenBy::Loop,
            definition: (pinned.digest, pinned.definition),
            id,
            inbox: None,
            message: new.message,
            taken: Admission::AtOnce,
            once: new.once,
        };
        self.begin(who, beginning).await
    }

    /// Begins a run, wherever it comes from.
    async fn begin(&self, who: &Principal, new: RunBasis) -> Result<StartedRun, EngineError> {
        needs_for(who, Scope::RunsWrite, &new.agent)?;
        if let Some(before) = self.commit.done_before(who, new.once.as_ref()).await? {
            return Ok(before.run.into());
        }
        self.refuse_if_overloaded()?;
        let id = new.id;
        let taking = match new.taken {
            Admission::AtOnce => self.drives.room_for(id, &new.agent),
            Admission::Queued => None,
        };
        let taken = if taking.is_some() { Admission::AtOnce } else { Admission::Queued };
        let session = new.session.clone().unwrap_or_else(|| id.own_session());
        self.log.heard_of(&who.tenant);
        // The same request may be under way twice, and a conversation may be closed at the same moment.
        let has_rivals = new.once.is_some() || new.session.is_some();
        let (digest, definition) = new.definition;
        let key = SessionKey {
            tenant: who.tenant.clone(),
            agent: new.agent.clone(),
            owner: who.user.clone(),
            session: session.clone(),
        };
        // A conversation that begins with this run has nothing before it; a task for a worker is not talk.
        let continues = new.session.is_some() && new.driver == DrivenBy::Loop && new.inbox.is_none();
        let history =
            if continues { self.log.history(&key, self.history_tokens(&new.agent)).await? } else { None };
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
            history,
        };
        let mut writes = self.commit.mark(who, new.once.as_ref());
        writes.guards.push(Guard::SessionOpen { session: key });
        writes.puts.push(self.log.put_definition(digest, &definition));
        let change = Change { writes, ..Change::new(Actor::Client(who.user.clone()), Vec::new()) };
        let rivals = if has_rivals { Rivals::Possible } else { Rivals::None };
        match self.drives.start((start, definition), change, taking, rivals).await {
            Ok((facts, rest)) => {
                facts.into_iter().for_each(|facts| self.log.known.put(facts));
                Ok(StartedRun { id, rest })
            }
            Err(EngineError::Store(StoreError::Guard { .. })) => {
                match self.commit.done(who, new.once.as_ref()).await? {
                    Some(before) => Ok(before.run.into()),
                    None => Err(EngineError::SessionClosed { agent: new.agent, session }),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// How much of a conversation an agent keeps in mind; nothing for an agent that this server does not have.
    fn history_tokens(&self, agent: &AgentName) -> u32 {
        self.host.agent(agent).map_or(0, |agent| agent.history_tokens)
    }

    /// Says something more to a run.
    pub async fn say(
        &self,
        who: &Principal,
        run: RunId,
        say: Say,
        once: Option<IdempotencyKey>,
    ) -> Result<Answer, EngineError> {
        needs(who, Scope::RunsWrite)?;
        self.say_on(who, &self.log.snapshot(who, run).await?, say, once).await
    }

    /// The same, on what the caller has read of the run.
    pub async fn say_on(
        &self,
        who: &Principal,
        snapshot: &Snapshot,
        say: Say,
        once: Option<IdempotencyKey>,
    ) -> Result<Answer, EngineError> {
        self.submit(who, snapshot, Command::Say(say), once).await
    }

    /// Stops a run.
    pub async fn cancel(
        &self,
        who: &Principal,
        run: RunId,
        reason: Option<String>,
        once: Option<IdempotencyKey>,
    ) -> Result<Answer, EngineError> {
        needs(who, Scope::RunsWrite)?;
        self.cancel_on(who, &self.log.snapshot(who, run).await?, reason, once).await
    }

    /// The same, on what the caller has read of the run.
    pub async fn cancel_on(
        &self,
        who: &Principal,
        snapshot: &Snapshot,
        reason: Option<String>,
        once: Option<IdempotencyKey>,
    ) -> Result<Answer, EngineError> {
        self.submit(who, snapshot, Command::Cancel { reason }, once).await
    }

    async fn submit(
        &self,
        who: &Principal,
        snapshot: &Snapshot,
        command: Command,
        once: Option<IdempotencyKey>,
    ) -> Result<Answer, EngineError> {
        needs_for(who, Scope::RunsWrite, &snapshot.run().facts.agent)?;
        // A worker of an inbox has read tasks that it may not change like this.
        if !self.log.may_see(who, &snapshot.run().facts) {
            return Err(EngineError::NotFound);
        }
        if self.commit.done_before(who, once.as_ref()).await?.is_some() {
            return Ok(Answer::Repeated);
        }
        let (actor, once) = (Actor::Client(who.user.clone()), once.as_ref());
        let change = Change { writes: self.commit.mark(who, once), ..Change::new(actor, vec![command]) };
        self.commit.commit_once(who, once, snapshot.stored().row.clone(), change).await
    }

    /// Begins a run that a receiver follows, from its first event on.
    pub async fn start_with_callback(
        &self,
        who: &Principal,
        new: NewRun,
        callback: Callback,
    ) -> Result<RunId, SubscriptionError> {
        needs_for(who, Scope::RunsWrite, &new.agent)?;
        let once = new.once.clone();
        if let Some(before) = self.commit.done_before(who, once.as_ref()).await? {
            self.callbacks.call_back(who, before.run, callback).await?;
            return Ok(before.run);
        }
        let id = self.new_id(who, &new)?;
        let pinned = self.host.agent(&new.agent)?.pin();
        self.callbacks.keep_callback(who, id, callback.clone()).await?;
        let started = self.start_as(who, new, id, pinned).await.map(|started| started.id);
        if started.as_ref().ok() != Some(&id) {
            // Nobody is notified of a run that is not there.
            self.callbacks.drop_callback(who, id, &callback).await?;
            self.callbacks.call_back(who, started.clone()?, callback).await?;
        }
        Ok(started?)
    }
}

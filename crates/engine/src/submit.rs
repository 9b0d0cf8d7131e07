//! What clients want: start, say, cancel. `decisions.rs` is what people decide, `reports.rs` what outside systems report,
//! `logins.rs` how people log in for a run, `tasks.rs` what is put into inboxes and claimed from them,
//! `session_delete.rs` how a conversation is deleted.
//!
//! Load, decide, append at the expected sequence, decide again after a conflict, wake. An answer, also a no, leaves
//! only after what it depends on is durable.

mod decisions;
mod logins;
mod reports;
mod session_delete;
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
use standfast_store::{Guard, SessionKey, SideWrite, StoreError};

use super::EngineError;
use super::commit::{Change, Commit, IdempotencyKey};
use super::drive::{Drives, Queue, Rivals, TakenRun};
use super::host::Host;
use super::log::{Log, needs};
use super::reads::Sessions;
use super::receivers::{Callback, Callbacks, SubscriptionError};
use crate::auth::{Principal, Scope};

pub use decisions::{Decision, DecisionSet, Decisions, HoldDecision};
pub use logins::{LoginError, Logins};
pub use reports::{Report, ReportBody, ReportError, Reports, Signature};
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
}

impl Submit {
    pub(crate) fn new(drives: Arc<Drives>, callbacks: Arc<Callbacks>, sessions: Arc<Sessions>) -> Submit {
        let (host, log, commit) = (drives.host.clone(), drives.log.clone(), drives.commit.clone());
        Submit { host, log, commit, drives, callbacks, sessions }
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
        let id = self.new_id(who, &new)?;
        self.start_as(who, new, id).await
    }

    /// The id that a run will have.
    fn new_id(&self, who: &Principal, new: &NewRun) -> Result<RunId, EngineError> {
        let agent = self.host.agent(&new.agent)?;
        Ok(self.host.clock.run_id(&who.tenant, agent.lives))
    }

    /// Begins a run with this id. The one that comes back has another when the request was carried out before.
    async fn start_as(&self, who: &Principal, new: NewRun, id: RunId) -> Result<RunId, EngineError> {
        needs(who, Scope::RunsWrite)?;
        let agent = self.host.agent(&new.agent)?;
        let beginning = RunBasis {
            agent: new.agent,
            session: new.session,
            driver: DrivenBy::Loop,
            definition: (agent.digest, agent.definition.clone()),
            id,
            inbox: None,
            message: new.message,
            taken: Admission::AtOnce,
            once: new.once,
        };
        self.begin(who, beginning).await
    }

    /// Begins a run, wherever it comes from.
    async fn begin(&self, who: &Principal, new: RunBasis) -> Result<RunId, EngineError> {
        needs(who, Scope::RunsWrite)?;
        if let Some(before) = self.commit.done_before(who, new.once.as_ref()).await? {
            return Ok(before.run);
        }
        let id = new.id;
        let slot = match new.taken {
            Admission::AtOnce => self.drives.pool.slot(&new.agent, Queue::Other),
            Admission::Queued => None,
        };
        let taking =
            slot.and_then(|slot| Some(TakenRun { guard: self.drives.guard(id)?, slot, log: Vec::new() }));
        let taken = if taking.is_some() { Admission::AtOnce } else { Admission::Queued };
        let session = match &new.session {
            Some(session) => session.clone(),
            None => {
                SessionId::new(id.to_string().replace("run_", "ses_")).map_err(|_| EngineError::NotFound)?
            }
        };
        self.log.heard_of(&who.tenant);
        // The same request may be under way twice, and a conversation may be closed at the same moment.
        let has_rivals = new.once.is_some() || new.session.is_some();
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
        let mut writes = self.commit.mark(who, new.once.as_ref());
        let key = SessionKey {
            tenant: who.tenant.clone(),
            agent: new.agent.clone(),
            owner: who.user.clone(),
            session: session.clone(),
        };
        writes.guards.push(Guard::SessionOpen { session: key });
        writes.puts.push(SideWrite::Definition { digest, bytes: definition.to_bytes() });
        let actor = Actor::Client(who.user.clone());
        let started = match taking {
            Some(taking) => {
                writes.lease = self.commit.while_busy();
                let change = Change { writes, ..Change::new(actor, Vec::new()) };
                let rivals = if has_rivals { Rivals::Possible } else { Rivals::None };
                self.drives.take_start((start, definition), change, taking, rivals).await
            }
            None => {
                let change = Change { writes, ..Change::new(actor, Vec::new()) };
                self.commit.commit_start(start, definition, change).await.map(|done| Some(done.row.run.facts))
            }
        };
        match started {
            Ok(facts) => {
                facts.into_iter().for_each(|facts| self.log.known.put(facts));
                Ok(id)
            }
            Err(EngineError::Store(StoreError::Guard { .. })) => {
                match self.commit.done(who, new.once.as_ref()).await? {
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
        once: Option<IdempotencyKey>,
    ) -> Result<Answer, EngineError> {
        self.submit(who, run, Command::Say(say), once).await
    }

    /// Stops a run.
    pub async fn cancel(
        &self,
        who: &Principal,
        run: RunId,
        reason: Option<String>,
        once: Option<IdempotencyKey>,
    ) -> Result<Answer, EngineError> {
        self.submit(who, run, Command::Cancel { reason }, once).await
    }

    async fn submit(
        &self,
        who: &Principal,
        run: RunId,
        command: Command,
        once: Option<IdempotencyKey>,
    ) -> Result<Answer, EngineError> {
        needs(who, Scope::RunsWrite)?;
        let actor = Actor::Client(who.user.clone());
        let stored = self.log.visible(who, run).await?;
        if self.commit.done_before(who, once.as_ref()).await?.is_some() {
            return Ok(Answer::Repeated);
        }
        let once = once.as_ref();
        let change = Change { writes: self.commit.mark(who, once), ..Change::new(actor, vec![command]) };
        self.commit.commit_once(who, once, stored.row, change).await
    }

    /// Begins a run that a receiver is told everything of, from its first event on.
    pub async fn start_with_callback(
        &self,
        who: &Principal,
        new: NewRun,
        callback: Callback,
    ) -> Result<RunId, SubscriptionError> {
        let once = new.once.clone();
        if let Some(before) = self.commit.done_before(who, once.as_ref()).await? {
            self.callbacks.call_back(who, before.run, callback).await?;
            return Ok(before.run);
        }
        let id = self.new_id(who, &new)?;
        self.callbacks.keep_callback(who, id, callback.clone()).await?;
        let started = self.start_as(who, new, id).await;
        if started.as_ref().ok() != Some(&id) {
            // Nobody is notified of a run that is not there.
            self.callbacks.drop_callback(who, id, &callback).await?;
            self.callbacks.call_back(who, started.clone()?, callback).await?;
        }
        Ok(started?)
    }
}

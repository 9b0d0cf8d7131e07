//! What clients want: start, say, cancel. What people decide is `deciding.rs`.
//!
//! Load, decide, append at the expected sequence, decide again after a conflict, wake. An answer, also a no, leaves
//! only after what it depends on is durable.

use std::sync::Arc;

use standfast_core::actor::Actor;
use standfast_core::command::{Command, Say, Start, Taken};
use standfast_core::decide::Answer;
use standfast_core::definition::Definition;
use standfast_core::digest::Digest;
use standfast_core::event::{Driver as DrivenBy, Inbox};
use standfast_core::id::RunId;
use standfast_core::message::Message;
use standfast_core::name::{AgentName, SessionId};
use standfast_core::refusal::Refusal;
use standfast_store::{Guard, Put, SessionKey, StoreError};

use super::commit::Change;
use super::drive::{Rivals, TakenRun};
use super::identify::needs;
use super::once::Once;
use super::{Engine, EngineError, Queue};
use crate::auth::{Principal, Scope};

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
        let taking = place.zip(reins).map(|(place, reins)| TakenRun { place, reins, log: Vec::new() });
        let taken = if taking.is_some() { Taken::AtOnce } else { Taken::Queued };
        let session = match &new.session {
            Some(session) => session.clone(),
            None => {
                SessionId::new(id.to_string().replace("run_", "ses_")).map_err(|_| EngineError::NotFound)?
            }
        };
        shared.heard_of(&who.tenant);
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
        let mut writes = shared.mark(who, new.once.as_ref());
        let key = SessionKey {
            tenant: who.tenant.clone(),
            agent: new.agent.clone(),
            owner: who.user.clone(),
            session: session.clone(),
        };
        writes.guards.push(Guard::SessionOpen { session: key });
        writes.puts.push(Put::Definition { digest, bytes: definition.to_bytes() });
        let actor = Actor::Client(who.user.clone());
        let started = match taking {
            Some(taking) => {
                writes.lease = shared.while_busy();
                let change = Change { writes, ..Change::new(actor, Vec::new()) };
                let rivals = if has_rivals { Rivals::Possible } else { Rivals::None };
                shared.take_start((start, definition), change, taking, rivals).await
            }
            None => {
                let change = Change { writes, ..Change::new(actor, Vec::new()) };
                shared.commit_start(start, definition, change).await.map(|done| Some(done.row.run.facts))
            }
        };
        match started {
            Ok(facts) => {
                facts.into_iter().for_each(|facts| shared.facts.put(facts));
                Ok(id)
            }
            Err(EngineError::Store(StoreError::Guard { .. })) => {
                match shared.done(who, new.once.as_ref()).await? {
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
        let once = once.as_ref();
        let change = Change { writes: shared.mark(who, once), ..Change::new(actor, vec![command]) };
        shared.commit_once(who, once, stored.row, change).await
    }

    /// Does what nobody asked for but time.
    pub(super) async fn by_the_clock(&self, run: RunId, command: Command) -> Result<Answer, EngineError> {
        let shared = &self.shared;
        let stored = self.load(run).await?;
        let change = Change::new(Actor::Clock, vec![command]);
        Ok(shared.commit(stored.row, change).await?.answer)
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

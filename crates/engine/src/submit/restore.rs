//! Restoring a run from its execution state, where its events are not: the state of another server, a backup that kept only the
//! sessions (S0-18, S0-19).
//!
//! Core makes the run (`execution_state/restore.rs`); here is who may ask for it, where it lives, and its one append. A
//! history that somebody brings along is their word, so this is for administrators, and the audit names them.

use serde::Serialize;
use standfast_core::actor::Actor;
use standfast_core::digest::{self, Digest};
use standfast_core::event::Event;
use standfast_core::execution_state::{BadState, ExecutionState, RestoredRun, Setting};
use standfast_core::id::{RunId, StorageKind, tenant_tag};
use standfast_core::name::{AgentName, RuleId, SessionId, UserId};
use standfast_store::{Guard, SessionKey, StoreError};

use super::Submit;
use crate::EngineError;
use crate::auth::{Principal, Scope};
use crate::commit::Change;
use crate::log::needs;
use crate::policy::REQUIRES_APPROVAL;

/// What became of a state that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoredState {
    /// There is a run again.
    Restored(RunId),
    /// There is a run with this very state already.
    AlreadyThere(RunId),
}

/// Why no run was made of a state.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// As everywhere.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// It is not a state that a run can be made of.
    #[error("{0}")]
    State(#[from] BadState),
    /// Its id is that of another tenant's run, or of a run in another kind of store.
    #[error("run {run} cannot live here: {why}")]
    Misplaced {
        /// Which run.
        run: RunId,
        /// Why.
        why: &'static str,
    },
    /// There is such a run, and it went another way.
    #[error("run {0} exists and has another state; nothing was restored")]
    Exists(RunId),
}

impl From<StoreError> for RestoreError {
    fn from(error: StoreError) -> RestoreError {
        RestoreError::Engine(error.into())
    }
}

impl Submit {
    /// Makes a run of its execution state. Every call that was open is held for a person. Sent again it changes nothing.
    pub async fn restore(
        &self,
        who: &Principal,
        state: &ExecutionState,
        owner: Option<UserId>,
    ) -> Result<RestoredState, RestoreError> {
        needs(who, Scope::Admin)?;
        let (id, agent_name) = (state.task_id, &state.reasoning_state.agent_name);
        let agent = self.host.agent(agent_name)?;
        check_place(state.task_id, agent.lives, who)?;
        if let Some(found) = self.found(who, state).await? {
            return Ok(found);
        }
        let (pinned, owner) = (agent.pin(), owner.unwrap_or_else(|| who.user.clone()));
        let actor = Actor::Client(who.user.clone());
        let mut restored = state.restore(&Setting {
            tenant: who.tenant.clone(),
            owner: owner.clone(),
            by: actor.clone(),
            definition: &pinned.definition,
            at: self.host.clock.now(),
            entropy: self.host.clock.entropy(),
        })?;
        satisfy_usual_rule(&mut restored);
        self.log.heard_of(&who.tenant);
        let session = state.context_id.clone();
        let record = RestoreRecord {
            kind: "run.restored",
            run: id,
            agent: agent_name,
            session: &session,
            owner: &owner,
            by: &who.user,
            state: digest::of_bytes(&state.to_json()),
        };
        // Written first, so that no history is there of which the audit does not say who brought it.
        let entry = serde_json::to_string(&record).unwrap_or_default();
        self.log.store.put_audit(who.tenant.clone(), self.host.clock.now(), entry).await?;
        let key = SessionKey {
            tenant: who.tenant.clone(),
            agent: agent_name.clone(),
            owner,
            session: session.clone(),
        };
        let mut change = Change::new(actor, Vec::new());
        change.writes.guards.push(Guard::SessionOpen { session: key });
        change.writes.puts.push(self.log.put_definition(pinned.digest, &pinned.definition));
        match self.commit.commit_restored(restored, pinned.definition, change).await {
            Ok(done) => {
                self.log.known.put(done.row.run.facts.clone());
                Ok(RestoredState::Restored(id))
            }
            Err(EngineError::Store(StoreError::Guard { .. })) => {
                Err(EngineError::SessionClosed { agent: agent_name.clone(), session }.into())
            }
            // Somebody else restored it at the same moment.
            Err(EngineError::Store(StoreError::Conflict { .. })) => {
                self.found(who, state).await?.ok_or(RestoreError::Exists(id))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The run of this id, if there is one: it must have this state.
    async fn found(
        &self,
        who: &Principal,
        state: &ExecutionState,
    ) -> Result<Option<RestoredState>, RestoreError> {
        let id = state.task_id;
        let row = match self.log.load(id).await {
            Err(EngineError::NotFound) => return Ok(None),
            other => other?.row,
        };
        let is_same = self.log.may_see(who, &row.run.facts)
            && reparsed(&self.sessions.state_of(&row.run).await?) == reparsed(state);
        if is_same { Ok(Some(RestoredState::AlreadyThere(id))) } else { Err(RestoreError::Exists(id)) }
    }
}

/// A state as any reader of JSON has it: spaces and the order of members are whoever's who wrote it last.
fn reparsed(state: &ExecutionState) -> serde_json::Value {
    serde_json::from_slice(&state.to_json()).unwrap_or_default()
}

/// Ids route themselves: a run lives where its id says.
fn check_place(run: RunId, lives: StorageKind, who: &Principal) -> Result<(), RestoreError> {
    if run.tenant_tag() != tenant_tag(&who.tenant) {
        return Err(RestoreError::Misplaced { run, why: "it is a run of another tenant" });
    }
    match (run.storage(), lives) {
        (StorageKind::Durable, StorageKind::Durable) | (StorageKind::Memory, StorageKind::Memory) => Ok(()),
        (StorageKind::Memory, StorageKind::Durable) => {
            let why = "it lived in memory, and its agent's runs are in a database now";
            Err(RestoreError::Misplaced { run, why })
        }
        (StorageKind::Durable, StorageKind::Memory) => {
            let why = "it lived in a database, and its agent's runs are in memory now";
            Err(RestoreError::Misplaced { run, why })
        }
    }
}

/// Who brought which history, as it stands in the audit.
#[derive(Serialize)]
struct RestoreRecord<'a> {
    kind: &'static str,
    run: RunId,
    agent: &'a AgentName,
    session: &'a SessionId,
    owner: &'a UserId,
    by: &'a UserId,
    /// Digest of the state.
    state: Digest,
}

/// Whoever approves what was restored has been asked what the tool's own `requires_approval` asks, and is not asked twice. Rules of
/// the policy ask for themselves, as they have people of their own.
fn satisfy_usual_rule(restored: &mut RestoredRun) {
    let Ok(usual) = RuleId::new(REQUIRES_APPROVAL) else { return };
    for envelope in &mut restored.events {
        if let Event::HoldOpened(opened) = &mut envelope.event
            && let Some(judged) = &mut opened.judged
        {
            judged.rules.push(usual.clone());
        }
    }
    for hold in restored.run.state.holds.iter_mut().filter(|hold| !hold.rules.is_empty()) {
        hold.rules.push(usual.clone());
    }
}

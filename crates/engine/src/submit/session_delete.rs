//! Deleting a conversation: no more runs, those under way are stopped, and the contents of all are erased (S0-12).
//!
//! The chains of hashes stay, and the audit gets the proof before anything goes.

use serde::Serialize;
use standfast_core::command::Command;
use standfast_core::id::{CallNo, RunId};
use standfast_core::message::Replay;
use standfast_core::name::{AgentName, SessionId, UserId};
use standfast_core::project::RunRow;
use standfast_core::refusal::Refusal;
use standfast_core::run::{CallState, Run};
use standfast_store::SessionChange;

use super::Submit;
use crate::EngineError;
use crate::auth::Principal;
use crate::log::ErasedRun;
use crate::reads::{SessionError, SessionName};

/// The result of deleting a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionDeletion {
    /// Runs whose contents are gone.
    pub erased: Vec<RunId>,
    /// Runs that cannot be read, and so not be erased either.
    pub left: Vec<RunId>,
}

impl Submit {
    /// Deletes a conversation: no more runs, those under way are stopped, and the contents of all are erased (S0-12).
    /// The chains of hashes stay.
    pub async fn delete_session(
        &self,
        who: &Principal,
        name: &SessionName,
        force: bool,
    ) -> Result<SessionDeletion, SessionError> {
        let row = self.sessions.find_own_session(who, name).await?;
        for run in self.sessions.runs_of(&row.key, Vec::new()).await?.items {
            if let (false, Some(call)) = (force, may_have_run(&run.run)) {
                return Err(SessionError::CallStarted { run: run.run.facts.id, call });
            }
        }
        let (store, now) = (&self.log.store, self.host.clock.now());
        store.change_session(row.key.clone(), SessionChange::Close, now).await?;
        // Once it is closed no run is added any more.
        let runs = self.sessions.runs_of(&row.key, Vec::new()).await?;
        let mut deleted = SessionDeletion::default();
        let mut proven = Vec::new();
        deleted.left.extend(runs.unreadable.into_iter().map(|found| found.run));
        for RunRow { run, .. } in runs.items {
            let id = run.facts.id;
            let reason = Some("its session was deleted".to_owned());
            if run.outcome().is_none() {
                unless_over(self.cancel(who, id, reason.clone(), None).await)?;
            }
            let ended = self.log.snapshot(who, id).await?;
            self.submit(who, &ended, Command::Erase { reason }, None).await?;
            proven.push(self.log.remains_of(id).await?);
            deleted.erased.push(id);
        }
        let proof = Proof {
            kind: "session.deleted",
            agent: &row.key.agent,
            session: &row.key.session,
            owner: &row.key.owner,
            by: &who.user,
            forced: force,
            erased: proven,
            left: &deleted.left,
        };
        // Written before anything goes, so that nothing is gone without its proof. A server that ends in between has not
        // answered, and whoever asks again gets it.
        let entry = serde_json::to_string(&proof).unwrap_or_default();
        store.put_audit(who.tenant.clone(), self.host.clock.now(), entry).await?;
        for run in &deleted.erased {
            store.erase(*run).await?;
        }
        let empty = SessionChange::Metadata { before: row.metadata, after: "{}".into() };
        store.change_session(row.key, empty, now).await?;
        Ok(deleted)
    }
}

/// A run that ended by itself meanwhile needs no cancelling.
fn unless_over<T>(answer: Result<T, EngineError>) -> Result<(), EngineError> {
    match answer {
        Ok(_) | Err(EngineError::Refused(Refusal::Ended(_))) => Ok(()),
        Err(other) => Err(other),
    }
}

/// The proof that a conversation was deleted, as it stands in the audit.
#[derive(Serialize)]
struct Proof<'a> {
    kind: &'static str,
    agent: &'a AgentName,
    session: &'a SessionId,
    owner: &'a UserId,
    by: &'a UserId,
    /// Whether calls that had started were no hindrance.
    forced: bool,
    /// The runs whose contents are gone, with the head of the chain that stays.
    erased: Vec<ErasedRun>,
    /// Runs that could not be read, and so not be erased either.
    left: &'a [RunId],
}

/// A call that has started and changes the world.
fn may_have_run(run: &Run) -> Option<CallNo> {
    let started = run
        .state
        .calls
        .iter()
        .find(|call| matches!(call.state, CallState::Started { .. }) && call.replay == Replay::Never);
    started.map(|call| call.no)
}

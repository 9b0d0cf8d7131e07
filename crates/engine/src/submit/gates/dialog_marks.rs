//! Which gates were also put before somebody at the agent's own terminal, for any node: when that dialog is gone, whoever sat there has
//! decided, and no button elsewhere may stay for a call that will not come back.
//!
//! A mark beside the gate says so, with the agent that showed the dialog; it is written before the client is told to ask. Without a mark
//! a gate stays open whatever its client does next: giving up is never a denial.

use standfast_core::digest::{self, Digest};
use standfast_core::id::RunId;
use standfast_core::name::SessionId;
use standfast_core::time::Millis;
use standfast_store::KeyNote;

use super::{GateError, GateState, GateView, Gates, Withdrawal};
use crate::EngineError;
use crate::auth::Principal;

/// How long it is remembered where a dialog was: longer than anybody leaves one open.
const REMEMBERED: Millis = Millis::hours(30 * 24);

/// Whose dialogs are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosedDialogs<'a> {
    /// Those of the whole conversation.
    All,
    /// Those of the conversation's own agent, or of one that it started.
    OfAgent(Option<&'a str>),
    /// That of one gate.
    OfGate(RunId),
}

impl ClosedDialogs<'_> {
    fn has(self, gate: RunId, mark: Digest) -> bool {
        match self {
            ClosedDialogs::All => true,
            ClosedDialogs::OfAgent(agent) => digest_of(agent) == mark,
            ClosedDialogs::OfGate(closed) => closed == gate,
        }
    }
}

impl Gates {
    /// The caller's agent asks about this call at its own terminal too: itself, or an agent that it started.
    pub async fn note_dialog(
        &self,
        who: &Principal,
        gate: RunId,
        agent: Option<&str>,
    ) -> Result<(), EngineError> {
        let expires_at = self.host.clock.now().plus(REMEMBERED);
        let note = KeyNote {
            tenant: who.tenant.clone(),
            key: mark(who, gate),
            run: gate,
            kept: Some((digest_of(agent), expires_at)),
        };
        Ok(self.log.store.note_keys(vec![note]).await?)
    }

    /// Dialogs of a conversation are gone. A call of theirs that nobody decided here and that was not started was decided there: its
    /// gate is withdrawn.
    pub async fn withdraw_closed(
        &self,
        who: &Principal,
        session: &SessionId,
        closed: ClosedDialogs<'_>,
    ) -> Result<(), GateError> {
        for view in self.live(who, session).await? {
            if self.was_shown_there(who, &view, closed).await? {
                match self.withdraw(who, view.gate, Withdrawal::DecidedElsewhere, None).await {
                    // Somebody decided meanwhile, or it runs.
                    Ok(()) | Err(GateError::WrongState { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Whether the call of a gate was put before somebody at the agent's own terminal.
    pub async fn has_dialog(&self, who: &Principal, view: &GateView) -> Result<bool, EngineError> {
        self.was_shown_there(who, view, ClosedDialogs::All).await
    }

    async fn was_shown_there(
        &self,
        who: &Principal,
        view: &GateView,
        closed: ClosedDialogs<'_>,
    ) -> Result<bool, EngineError> {
        match view.state {
            GateState::Held | GateState::Allowed => {}
            GateState::Denied
            | GateState::Expired
            | GateState::Withdrawn
            | GateState::Started
            | GateState::Done
            | GateState::OutcomeUnknown => return Ok(false),
        }
        let mark = self.log.store.find_key(who.tenant.clone(), mark(who, view.gate)).await?;
        Ok(mark.is_some_and(|mark| closed.has(view.gate, mark.request)))
    }
}

/// The key of the mark.
fn mark(who: &Principal, gate: RunId) -> String {
    let gate = gate.to_string();
    digest::of_parts("standfast.gate-dialog.1", &[who.user.as_str().as_bytes(), gate.as_bytes()]).to_string()
}

/// What the mark of an agent says; a conversation's own agent has no name.
fn digest_of(agent: Option<&str>) -> Digest {
    match agent {
        None => digest::of_parts("standfast.dialog-of.1", &[]),
        Some(agent) => digest::of_parts("standfast.dialog-of.1", &[agent.as_bytes()]),
    }
}

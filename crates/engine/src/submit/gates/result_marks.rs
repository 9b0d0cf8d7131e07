//! Which results of calls reached whoever asked for them, for any node: a result that nobody has is the answer to the next who asks
//! the same.
//!
//! A mark beside the gate says that somebody has it, written when the answer was handed over, without a sync of its own. A mark that
//! is lost costs one more reading of the same result, never a second run.

use standfast_core::digest;
use standfast_core::id::RunId;
use standfast_core::time::Millis;
use standfast_store::KeyNote;

use super::{GateView, Gates};
use crate::EngineError;
use crate::auth::Principal;

/// How long a result waits for whoever did not get it.
const KEPT_FOR: Millis = Millis::hours(24);

/// How long it is remembered that somebody has it: longer than it would wait.
const REMEMBERED: Millis = Millis::hours(48);

impl Gates {
    /// Whether the result of a gate's call still waits for somebody.
    pub async fn awaits_reader(&self, who: &Principal, view: &GateView) -> Result<bool, EngineError> {
        let is_old = |at| self.host.clock.now().since(at) > KEPT_FOR;
        if view.result.is_none() || view.finished_at.is_none_or(is_old) {
            return Ok(false);
        }
        let mark = self.log.store.find_key(who.tenant.clone(), mark(who, view.gate)).await?;
        Ok(mark.is_none())
    }

    /// Somebody has the result of a gate's call.
    pub async fn note_taken(&self, who: &Principal, gate: RunId) -> Result<(), EngineError> {
        let expires_at = self.host.clock.now().plus(REMEMBERED);
        let note = KeyNote {
            tenant: who.tenant.clone(),
            key: mark(who, gate),
            run: gate,
            kept: Some((digest::of_bytes(b"taken"), expires_at)),
        };
        Ok(self.log.store.note_keys(vec![note]).await?)
    }
}

/// The key of the mark.
fn mark(who: &Principal, gate: RunId) -> String {
    let gate = gate.to_string();
    digest::of_parts("standfast.gate-taken.1", &[who.user.as_str().as_bytes(), gate.as_bytes()]).to_string()
}

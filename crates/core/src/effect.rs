//! Effects: what the start of a call claims in the world, by name, and what came of it.
//!
//! A name is made of the call's arguments by whoever configured the tool. Each claim of a name has a number, and at most one
//! append has it: the guard is the store's. What the second one needs is `decide/`'s business, by a rule like any other.

use serde::{Deserialize, Serialize};

use crate::digest::{self, Digest};
use crate::event::{Envelope, Event};
use crate::id::{CallNo, RunId};
use crate::receipt::{CallEffect, call_effect};

/// A start's claim on an effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectClaim {
    /// The name of the effect, such as `refund:p-17`.
    pub key: String,
    /// Counts the starts of it, over all runs.
    pub no: u32,
}

impl EffectClaim {
    /// The key under which stores keep it.
    #[must_use]
    pub fn stored(&self) -> String {
        format!("effect {} {}", self.no, self.key)
    }

    /// What a stored claim says of whose it is.
    #[must_use]
    pub fn owner(run: RunId, call: CallNo) -> Digest {
        digest::of_parts("standfast.effect.1", &[run.to_string().as_bytes(), &call.0.to_be_bytes()])
    }
}

/// A call that claimed an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimingCall {
    /// Which call of its run.
    pub call: CallNo,
    /// What came of it.
    pub effect: CallEffect,
}

/// The call of a run that has a claim, from all events of the run; none when the log does not have it.
#[must_use]
pub fn claiming_call(claim: &EffectClaim, events: &[Envelope]) -> Option<ClaimingCall> {
    let call = events.iter().find_map(|envelope| {
        let Event::CallStarted(started) = &envelope.event else { return None };
        started.effects.contains(claim).then_some(started.call)
    })?;
    call_effect(call, events).map(|effect| ClaimingCall { call, effect })
}

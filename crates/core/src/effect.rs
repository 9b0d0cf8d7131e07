//! Effects: what the start of a call claims in the world, by name.
//!
//! A name is made of the call's arguments by whoever configured the tool. Each claim of a name has a number, and at most one
//! append has it: the guard is the store's. What the second one needs is `decide/`'s business, by a rule like any other; what came of a
//! claim is `receipt.rs`.

use serde::{Deserialize, Serialize};

use crate::digest::{self, Digest};
use crate::id::{CallNo, RunId};

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

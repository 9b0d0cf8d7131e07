//! The effect of a verdict about a call: allow, hold or deny.
//!
//! It is in a file of its own because messages and holds record it as well as the policy. Which rules lead to it, and how
//! several combine, is `policy.rs`.

use serde::{Deserialize, Serialize};

/// What should happen to a call; later ones are stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It may run.
    Allow,
    /// A person is asked.
    Hold,
    /// It must not run; the model is given the reason.
    Deny,
}

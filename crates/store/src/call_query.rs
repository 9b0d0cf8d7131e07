//! What is asked of an index of outside jobs: which calls, by conversation and by how they stand.
//!
//! Only a store that has such an index answers ([`crate::RunStore::find_calls`]).

use serde::{Deserialize, Serialize};
use standfast_core::name::Tenant;

/// How a call stands (S2-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallStatus {
    /// Nobody has reported yet.
    Waiting,
    /// The outside system works on it.
    Processing,
    /// It has its result.
    Completed,
    /// It failed, or was cancelled.
    Failed,
    /// It was not reported in time.
    Expired,
}

impl CallStatus {
    /// All of them.
    pub const ALL: [CallStatus; 5] = [
        CallStatus::Waiting,
        CallStatus::Processing,
        CallStatus::Completed,
        CallStatus::Failed,
        CallStatus::Expired,
    ];

    /// Those of calls whose result is still welcome.
    pub const OPEN: [CallStatus; 2] = [CallStatus::Waiting, CallStatus::Processing];

    /// Those of calls that are over.
    pub const OVER: [CallStatus; 3] = [CallStatus::Completed, CallStatus::Failed, CallStatus::Expired];

    /// As it is written.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            CallStatus::Waiting => "waiting",
            CallStatus::Processing => "processing",
            CallStatus::Completed => "completed",
            CallStatus::Failed => "failed",
            CallStatus::Expired => "expired",
        }
    }
}

/// Which calls a lookup is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallQuery {
    /// Whose.
    pub tenant: Tenant,
    /// Of which session; none means any.
    pub session: Option<String>,
    /// How they stand; empty means any way.
    pub statuses: Vec<CallStatus>,
}

//! What rules have to do with a hold: what they demand, what was found, what is different now.
//!
//! Parts of `HoldDetail` in `wire.rs`.

use serde::Serialize;
use utoipa::ToSchema;

use super::is_false;

/// What one rule demands of those who decide.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(in crate::api) struct DemandBody {
    pub(in crate::api) rule: String,
    /// Exactly who may decide for it; absent: the approvers of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) approvers: Option<Vec<String>>,
    /// How many of them must agree.
    pub(in crate::api) quorum: u32,
    /// Who has agreed.
    pub(in crate::api) agreed: Vec<String>,
}

/// What a read-only call said before people were asked.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(in crate::api) struct FindingBody {
    pub(in crate::api) tool: String,
    pub(in crate::api) arguments: String,
    pub(in crate::api) result: String,
    /// It could not be asked; `result` says why.
    #[serde(skip_serializing_if = "is_false")]
    pub(in crate::api) failed: bool,
    pub(in crate::api) digest: String,
}

/// Something that is different now from when a hold was opened.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(in crate::api) struct DriftBody {
    /// `definition`, `tool`, `policy` or `file`.
    pub(in crate::api) what: String,
    /// In words, with what follows.
    pub(in crate::api) text: String,
}

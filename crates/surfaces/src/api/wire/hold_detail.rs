//! A hold with what people need to decide it: what is asked, what rules demand and found, what is different now.
//!
//! Lists of holds and decisions are in `wire.rs`.

use serde::Serialize;
use utoipa::ToSchema;

use super::super::people::{DelegationBody, EscalationBody, VotesBody};
use super::{HoldBody, RawText, is_false};

/// A hold with what people need to decide it.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct HoldDetail {
    #[serde(flatten)]
    pub(in crate::api) hold: HoldBody,
    /// The arguments, byte for byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub(in crate::api) arguments: Option<Box<RawText>>,
    /// The same as a text, for clients whose JSON loses digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) arguments_text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) reason: Option<String>,
    /// Why the rules that hold it do, in their own words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::api) because: Vec<String>,
    /// The worst risk class that a matching rule names: `low`, `medium`, `high` or `destructive`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) risk: Option<String>,
    /// Whether what the call does can be undone, as its tool and the rules say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) reversible: Option<bool>,
    /// What the read-only calls found that rules want made before people are asked; of an unknown outcome, the call that
    /// the tool's `reconcile` names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::api) findings: Vec<FindingBody>,
    /// Of an unknown outcome, what that call says: `did_not_happen` (so far) or `cannot_tell`. What happened is not asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) reconciled: Option<String>,
    /// Who may decide, in words.
    pub(in crate::api) deciders: String,
    /// Whether the caller may decide.
    pub(in crate::api) may_decide: bool,
    /// Why the caller may not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) why_not: Option<String>,
    /// How many seconds ago the caller may have signed in at the identity provider to approve it, where their sign-in is older
    /// or is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) needs_sign_in: Option<i64>,
    /// What each rule that holds it demands; each must be met.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::api) demands: Vec<DemandBody>,
    /// What is different now from when it was asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::api) drift: Vec<DriftBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) question: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::api) options: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub(in crate::api) answer_schema: Option<Box<RawText>>,
    /// Progress of the external job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) interim: Option<String>,
    /// The id of the job in the external system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) external_ref: Option<String>,
    /// When the job is expected to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) expected_at: Option<String>,
    /// What is shown with the question, as it came; of a login `server_name`, `auth_server`, `scopes` and `auth_url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub(in crate::api) data: Option<Box<RawText>>,
    /// The parent runs, the root first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::api) path: Vec<ParentRun>,
    /// How the vote stands; absent once it is decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) votes: Option<VotesBody>,
    /// Until when it is assigned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) assigned_until: Option<String>,
    /// When people are reminded next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) remind_at: Option<String>,
    /// Who is, or will be, asked as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::api) escalations: Vec<EscalationBody>,
    /// Who decides in whose place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::api) delegations: Vec<DelegationBody>,
    /// Until when a late decision is taken, of a hold that expired and is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) grace_ends_at: Option<String>,
    /// The decision came after the deadline.
    #[serde(skip_serializing_if = "is_false")]
    pub(in crate::api) late: bool,
}

/// A parent run of a sub-run.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(in crate::api) struct ParentRun {
    pub(in crate::api) run: String,
    pub(in crate::api) agent: String,
}

/// What one rule demands of those who decide.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(in crate::api) struct DemandBody {
    pub(in crate::api) rule: String,
    /// Exactly who may decide for it; absent: the approvers of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) approvers: Option<Vec<String>>,
    /// How many of them must agree.
    pub(in crate::api) quorum: u32,
    /// The maximum age, in seconds, of the approver's sign-in at the identity provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) sign_in_max_age: Option<i64>,
    /// Who has agreed.
    pub(in crate::api) agreed: Vec<String>,
}

/// The result of a read-only call that ran before people were asked.
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

//! Who must agree, as one hold rule asks for it.
//!
//! Of several rules each one's demand must be met. Whether somebody is one of those people is the engine's to say
//! (`auth/may_decide.rs`), how votes and edits count the core's (`decide/holds.rs`).

use standfast_core::approver::{Approver, SelfApproval};
use standfast_core::hold::Demand;
use standfast_core::name::RuleId;
use standfast_core::time::Millis;

/// What one hold rule asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The rule.
    pub rule: RuleId,
    /// Exactly who may decide; none means whoever the agent says.
    pub approvers: Option<Vec<Approver>>,
    /// How many of them must agree; at least one.
    pub quorum: u32,
    /// Whether whoever started the run may be one of them.
    pub self_approval: SelfApproval,
    /// How long ago whoever approves may have signed in; none means that nobody asks.
    pub sign_in_max_age: Option<Millis>,
}

impl From<&Requirement> for Demand {
    fn from(requirement: &Requirement) -> Demand {
        let quorum = if requirement.quorum > 1 { requirement.quorum } else { 0 };
        Demand {
            approvers: requirement.approvers.clone(),
            quorum,
            self_approval: requirement.self_approval,
            sign_in_max_age: requirement.sign_in_max_age,
            ..Demand::of(requirement.rule.clone())
        }
    }
}

impl Requirement {
    /// One of whoever the agent says.
    #[must_use]
    pub fn anybody(rule: RuleId) -> Requirement {
        let self_approval = SelfApproval::Allow;
        Requirement { rule, approvers: None, quorum: 1, self_approval, sign_in_max_age: None }
    }
}

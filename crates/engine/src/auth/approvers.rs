//! Who may decide, as an agent's settings and the rules of the policy say it.
//!
//! Values. What follows from them for one caller and one hold is `may_decide.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use standfast_core::approver::Approver;
use standfast_core::name::{RuleId, ToolName};
use standfast_core::time::Millis;

use super::principal::Principal;

pub use standfast_core::approver::SelfApproval;

/// Who may decide (C24).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Approvers {
    /// Exactly who: users, groups, roles, and the owner if named. None means the owner, an empty list that nobody does.
    pub named: Option<BTreeSet<Approver>>,
    /// Whether whoever started a run may decide its holds.
    pub self_approval: SelfApproval,
    /// Tools about which they may not, whatever else says that they may.
    pub four_eyes: BTreeSet<ToolName>,
    /// Whom the rules of the policy name.
    pub rules: Arc<RuleApprovers>,
}

/// Whom the rules about an agent let decide, as of now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleApprovers {
    /// For each hold rule, whom it names.
    pub by_rule: BTreeMap<RuleId, RuleElectorate>,
    /// Everybody whom any of them names, also those who are asked later.
    pub seen_by: BTreeSet<Approver>,
}

/// Whom one rule lets decide.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleElectorate {
    /// Exactly who; none means whoever the agent says.
    pub approvers: Option<Vec<Approver>>,
    /// Whether whoever started the run may be one of them.
    pub self_approval: SelfApproval,
    /// How long ago whoever approves may have signed in; none means that the rule does not ask.
    pub sign_in_max_age: Option<Millis>,
}

impl Approvers {
    /// Whether whoever started a run may decide about a call of this tool. The strictest counts.
    #[must_use]
    pub fn self_approval_of(&self, tool: Option<&ToolName>) -> SelfApproval {
        let needs_four_eyes = tool.is_some_and(|tool| self.four_eyes.contains(tool));
        if needs_four_eyes { SelfApproval::Forbid } else { self.self_approval }
    }

    /// Whether somebody is named, by their name, by a group, or by a role: by the agent or by a rule.
    #[must_use]
    pub fn include(&self, who: &Principal) -> bool {
        let by_agent = self.named.iter().flatten();
        by_agent.chain(&self.rules.seen_by).any(|approver| names(approver, who))
    }
}

/// Whether an entry names somebody. The entry `owner` says nothing by itself.
pub(super) fn names(approver: &Approver, who: &Principal) -> bool {
    match approver {
        Approver::Owner => false,
        Approver::User(user) => who.user == *user,
        Approver::Group(group) => who.groups.contains(group),
        Approver::Role(role) => who.roles.contains(role),
    }
}

//! Who may decide beside the owner of a run, as an agent's settings say it.
//!
//! A value. What follows from it for one caller and one hold is `may_decide.rs`.

use std::collections::BTreeSet;

use standfast_core::name::ToolName;

use super::principal::{Party, Principal};

/// Who may decide (C24).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Approvers {
    /// Those named: users, groups, roles. None means that only the owner decides, an empty list that nobody does.
    pub named: Option<BTreeSet<Party>>,
    /// Whether whoever started a run may decide its holds.
    pub self_approval: SelfApproval,
    /// Tools about which they may not, whatever else says that they may.
    pub four_eyes: BTreeSet<ToolName>,
}

/// Whether whoever started a run may decide its holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SelfApproval {
    /// Yes.
    #[default]
    Allow,
    /// No: four eyes.
    Forbid,
}

impl Approvers {
    /// Whether whoever started a run may decide about a call of this tool. The strictest counts.
    #[must_use]
    pub fn self_approval_of(&self, tool: Option<&ToolName>) -> SelfApproval {
        let needs_four_eyes = tool.is_some_and(|tool| self.four_eyes.contains(tool));
        if needs_four_eyes { SelfApproval::Forbid } else { self.self_approval }
    }

    /// Whether somebody is named: by their name, by a group, or by a role.
    #[must_use]
    pub fn include(&self, who: &Principal) -> bool {
        self.named.as_ref().is_some_and(|named| who.parties().any(|party| named.contains(&party)))
    }
}

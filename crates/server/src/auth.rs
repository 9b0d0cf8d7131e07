//! Who is calling, and what they may decide.
//!
//! A principal comes from a credential, never from what a message claims. `may_decide` is the one function that every
//! surface asks.

use holdpoint_core::hold::HoldKind;
use holdpoint_core::name::{Tenant, UserId};
use holdpoint_core::policy::Role;
use holdpoint_core::run::Run;

use crate::settings::{Approvers, SelfApproval};

/// Who is calling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Whose data they may see.
    pub tenant: Tenant,
    /// Who they are.
    pub user: UserId,
    /// Whether they administer the server.
    pub is_admin: bool,
}

/// In what role this principal may decide holds of this kind of this run; none when not at all.
///
/// Absent approvers mean the owner, an empty list means nobody (T13). With `self_approval: forbid` whoever started the
/// run may not decide, whatever else they are (T12).
#[must_use]
pub fn may_decide(who: &Principal, run: &Run, kind: HoldKind, approvers: &Approvers) -> Option<Role> {
    if who.tenant != run.facts.tenant {
        return None;
    }
    // An empty list is meant: nobody, not even the owner.
    if approvers.named.as_ref().is_some_and(|named| named.is_empty()) {
        return None;
    }
    let is_owner = who.user == run.facts.owner;
    let is_named = approvers.named.as_ref().is_some_and(|named| named.contains(&who.user));
    if is_owner && approvers.self_approval == SelfApproval::Forbid {
        return None;
    }
    if is_named {
        return Some(Role::Approver);
    }
    if is_owner {
        return Some(Role::Owner);
    }
    // An unknown outcome is also the administrators' business.
    (who.is_admin && kind == HoldKind::Recovery).then_some(Role::Admin)
}

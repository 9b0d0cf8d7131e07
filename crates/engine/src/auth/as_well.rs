//! Who may decide an open hold beside those whom the agent and the rules name: whoever it was escalated to, and whoever stands
//! in for one of them for a while.
//!
//! Both stand in the fold of the run. Four eyes count here too: whoever started a run does not decide it by standing in.

use standfast_core::approver::{Approver, Person};
use standfast_core::hold::{Demand, Hold, HoldKind};
use standfast_core::name::RuleId;
use standfast_core::policy::Role;
use standfast_core::run::Run;
use standfast_core::time::Timestamp;

use super::approvers::{Approvers, SelfApproval};
use super::principal::{Principal, Scope};

/// In what role this principal may decide an open hold although nobody named them at first; none when not at all.
#[must_use]
pub fn may_decide_as_well(
    who: &Principal,
    run: &Run,
    hold: &Hold,
    approvers: &Approvers,
    now: Timestamp,
) -> Option<Role> {
    let facts = &run.facts;
    if who.tenant != facts.tenant || !who.has(Scope::HoldsDecide) {
        return None;
    }
    let tool = run.call(hold.call()).map(|call| &call.tool);
    let forbids = approvers.self_approval_of(tool) == SelfApproval::Forbid
        || hold.demands.iter().any(|demand| demand.self_approval == SELF_APPROVAL_FORBID);
    if who.user == facts.owner && forbids && hold.kind != HoldKind::Auth {
        return None;
    }
    let person = person(who);
    if hold.asked_as_well().any(|approver| approver.means(&person, &facts.owner)) {
        return Some(Role::Approver);
    }
    hold.delegated_to(&who.user, now).next().map(|_| Role::Delegate)
}

const SELF_APPROVAL_FORBID: standfast_core::approver::SelfApproval =
    standfast_core::approver::SelfApproval::Forbid;

/// The rules of an open hold whose demands this principal counts for. `decides` says whether the agent's approvers are they.
#[must_use]
pub fn counts_for(
    who: &Principal,
    run: &Run,
    hold: &Hold,
    (approvers, decides): (&Approvers, Option<Role>),
) -> Vec<RuleId> {
    if hold.demands.is_empty() || who.tenant != run.facts.tenant || !who.has(Scope::HoldsDecide) {
        return Vec::new();
    }
    let (person, owner) = (person(who), &run.facts.owner);
    let tool = run.call(hold.call()).map(|call| &call.tool);
    let is_own = who.user == *owner;
    let forbids = is_own && approvers.self_approval_of(tool) == SelfApproval::Forbid;
    let is_asked_as_well = hold.asked_as_well().any(|approver| approver.means(&person, owner));
    let counts = |demand: &&Demand| {
        let is_named = match &demand.approvers {
            Some(named) => named.iter().any(|approver| approver.means(&person, owner)),
            None => decides.is_some() || is_asked_as_well,
        };
        is_named && !forbids && !(is_own && demand.self_approval == SELF_APPROVAL_FORBID)
    };
    hold.demands.iter().filter(counts).map(|demand| demand.rule.clone()).collect()
}

/// Whether something of a run was escalated or handed on to this principal, so that they may see it.
#[must_use]
pub fn is_let_in(who: &Principal, run: &Run) -> bool {
    let person = person(who);
    let is_named = |approver: &Approver| approver.means(&person, &run.facts.owner);
    who.tenant == run.facts.tenant && run.state.let_in.iter().any(is_named)
}

/// Somebody as the core knows people.
#[must_use]
pub fn person(who: &Principal) -> Person {
    Person { user: who.user.clone(), groups: who.groups.clone(), roles: who.roles.clone() }
}

//! Who may decide an open hold beside those whom the agent and the rules name: whoever it was escalated to, and whoever stands
//! in for one of them for a while.
//!
//! Both stand in the fold of the run. Four eyes count here too: whoever started a run does not decide it by standing in.

use standfast_core::approver::{Approver, Person, SelfApproval};
use standfast_core::hold::{Demand, Escalation, Hold, HoldKind};
use standfast_core::policy::Role;
use standfast_core::run::Run;
use standfast_core::time::Timestamp;

use super::approvers::Approvers;
use super::may_decide::DecisionRight;
use super::principal::{Principal, Scope};

/// By what right this principal may decide an open hold although nobody named them at first; none when not at all. For whom
/// somebody stands in, and so what they count for, the core knows.
#[must_use]
pub fn may_decide_as_well(
    who: &Principal,
    run: &Run,
    hold: &Hold,
    approvers: &Approvers,
    now: Timestamp,
) -> Option<DecisionRight> {
    let facts = &run.facts;
    if who.tenant != facts.tenant || !who.has_for(Scope::HoldsDecide, facts.agent.as_str()) {
        return None;
    }
    let tool = run.call(hold.call()).map(|call| &call.tool);
    let is_own = who.user == facts.owner && hold.kind != HoldKind::Auth;
    let forbids = |demand: &Demand| demand.self_approval == SelfApproval::Forbid;
    if is_own
        && (approvers.self_approval_of(tool) == SelfApproval::Forbid || hold.demands.iter().any(forbids))
    {
        return None;
    }
    let person = person(who);
    let names = |one: &&Escalation| one.to.iter().any(|approver| approver.means(&person, &facts.owner));
    let escalated: Vec<&Escalation> = hold.escalated.iter().filter(names).collect();
    if !escalated.is_empty() {
        let concerns = |demand: &&Demand| {
            escalated.iter().any(|one| one.rule.as_ref().is_none_or(|rule| *rule == demand.rule))
        };
        let counts_for = hold.demands.iter().filter(concerns).map(|demand| demand.rule.clone()).collect();
        return Some(DecisionRight { role: Role::Approver, counts_for });
    }
    let stands_in = hold.delegated_to(&who.user, now).next();
    stands_in.map(|_| DecisionRight { role: Role::Delegate, counts_for: Vec::new() })
}

/// Whether something of a run was escalated or handed on to this principal, so that they may see it.
#[must_use]
pub fn is_let_in(who: &Principal, run: &Run) -> bool {
    let person = person(who);
    let is_named = |approver: &Approver| approver.means(&person, &run.facts.owner);
    who.tenant == run.facts.tenant && who.reads(&run.facts.agent) && run.state.let_in.iter().any(is_named)
}

/// Somebody as the core knows people.
#[must_use]
pub fn person(who: &Principal) -> Person {
    Person { groups: who.groups.clone(), roles: who.roles.clone(), ..Person::of(who.user.clone()) }
}

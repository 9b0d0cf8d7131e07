//! Who takes part: one who starts runs, everybody whom the file lets decide, and some more of each of its groups and roles.
//!
//! Their keys are made in the store of the rehearsal and end with it.

use std::collections::BTreeSet;

use standfast::config::{AgentPlan, Config};
use standfast_core::approver::Approver;
use standfast_core::name::{BadName, GroupName, RoleName, UserId};
use standfast_core::time::Timestamp;
use standfast_engine::auth::{KeyFacts, Scope, ScopeLimits};
use standfast_engine::settings::Agent;

/// Who starts runs.
pub(super) const STARTER: &str = "verify-starter";

/// More people than any quorum of a file can ask for.
const MOST: u32 = 22;

/// The people who may be asked: the starter last, because others show more.
pub(super) fn cast(
    config: &Config,
    plan: &AgentPlan,
    agent: &Agent,
    now: Timestamp,
) -> Result<Vec<KeyFacts>, BadName> {
    let mut named: BTreeSet<Approver> = agent.approvers.named.clone().unwrap_or_default();
    named.extend(agent.approvers.rules.seen_by.iter().cloned());
    named.extend(plan.holds.escalate_to.iter().cloned());
    let (mut users, mut groups, mut roles) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for approver in named {
        match approver {
            Approver::Owner => {}
            Approver::User(user) => users.push(user),
            Approver::Group(group) => drop(groups.insert(group)),
            Approver::Role(role) => drop(roles.insert(role)),
        }
    }
    let quorums = config.policy.rules().iter().filter_map(|rule| rule.rule.quorum);
    let quorum = quorums.chain(agent.quorum.values().copied()).max().unwrap_or(1);
    for no in 1..=quorum.saturating_add(1).min(MOST) {
        users.push(UserId::new(format!("verify-{no}"))?);
    }
    let mut people: Vec<KeyFacts> =
        users.into_iter().map(|user| facts(user, groups.clone(), roles.clone(), now)).collect();
    people.push(facts(UserId::new(STARTER)?, BTreeSet::new(), BTreeSet::new(), now));
    Ok(people)
}

fn facts(
    user: UserId,
    groups: BTreeSet<GroupName>,
    roles: BTreeSet<RoleName>,
    created_at: Timestamp,
) -> KeyFacts {
    let (scopes, inboxes, limits) = (Scope::usual(), BTreeSet::new(), ScopeLimits::default());
    KeyFacts { name: None, user, groups, roles, scopes, inboxes, limits, created_at }
}

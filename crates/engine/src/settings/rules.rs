//! The policy as agents keep it: readable or not, and whom its rules let decide.
//!
//! A value. What it says of a call is `policy.rs`; what follows for one caller and one hold is `auth/may_decide.rs`.

use std::sync::Arc;

use standfast_core::digest::Digest;
use standfast_core::name::AgentName;
use standfast_core::policy::Effect;
use standfast_policy::matching::CheckedRule;
use standfast_policy::policy::Policy;
use standfast_policy::rule::GrantRule;

use crate::auth::{RuleApprovers, RuleElectorate};

/// The policy that an agent's calls are judged by.
#[derive(Debug, Clone)]
pub enum Rules {
    /// It can be asked.
    Readable(Arc<Policy>),
    /// It cannot, and why: every call is held.
    Unreadable(Arc<str>),
}

/// No rules: what tools say counts.
impl Default for Rules {
    fn default() -> Rules {
        Rules::Readable(Arc::new(Policy::silent()))
    }
}

impl Rules {
    /// What the log knows the policy by; none where it says nothing.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        match self {
            Rules::Readable(policy) if !policy.rules().is_empty() => Some(policy.digest()),
            Rules::Readable(_) | Rules::Unreadable(_) => None,
        }
    }

    /// Whether something may have to be looked at before a call starts.
    #[must_use]
    pub fn wants_a_look(&self) -> bool {
        match self {
            Rules::Readable(policy) => policy.has_preconditions(),
            Rules::Unreadable(_) => false,
        }
    }

    /// Whether standing approvals may answer what it holds.
    #[must_use]
    pub fn takes_grants(&self) -> bool {
        match self {
            Rules::Readable(policy) => policy.takes_grants(),
            Rules::Unreadable(_) => false,
        }
    }

    /// Whether standing approvals may answer calls with which something is lost.
    #[must_use]
    pub fn grants_for_losses(&self) -> bool {
        match self {
            Rules::Readable(policy) => policy.file().grants.destructive == GrantRule::Allow,
            Rules::Unreadable(_) => false,
        }
    }

    /// Whether a rule names what calls do in the world.
    #[must_use]
    pub fn name_effects(&self) -> bool {
        match self {
            Rules::Readable(policy) => policy.names_effects(),
            Rules::Unreadable(_) => false,
        }
    }

    /// Whether a rule has a budget.
    #[must_use]
    pub fn have_budgets(&self) -> bool {
        match self {
            Rules::Readable(policy) => policy.has_budgets(),
            Rules::Unreadable(_) => false,
        }
    }

    /// Whom its rules let decide about calls of an agent.
    #[must_use]
    pub fn approvers(&self, agent: &AgentName) -> RuleApprovers {
        let Rules::Readable(policy) = self else { return RuleApprovers::default() };
        let mut found = RuleApprovers::default();
        for rule in policy.rules().iter().filter(|rule| is_about(rule, agent)) {
            let named = rule.rule.approvers.clone();
            let asked_later = rule.rule.escalate_to.iter().flatten();
            found.seen_by.extend(named.iter().flatten().chain(asked_later).cloned());
            let self_approval = rule.rule.self_approval.unwrap_or_default();
            let sign_in_max_age = rule.rule.sign_in_max_age.map(|span| span.0);
            let electorate = RuleElectorate { approvers: named, self_approval, sign_in_max_age };
            found.by_rule.insert(rule.id.clone(), electorate);
        }
        found
    }
}

fn is_about(rule: &CheckedRule, agent: &AgentName) -> bool {
    let in_scope = rule.scope.agent.as_ref().is_none_or(|only| only == agent);
    let is_named = rule.rule.agent.as_ref().is_none_or(|agents| agents.matches(agent.as_str()));
    rule.effect == Effect::Hold && in_scope && is_named
}

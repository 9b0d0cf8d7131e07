//! A policy against calls that were recorded: what it would have done, and how people decided those.
//!
//! Tells whoever writes rules which of them only cost people time, and which would have let something through that people
//! denied.

use std::collections::BTreeMap;

use standfast_core::name::RuleId;
use standfast_core::policy::Effect;

use crate::call::{Call, ToolDefault};
use crate::policy::Policy;

/// Examples that are kept of each kind.
const EXAMPLES: usize = 3;

/// A call as it was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedCall {
    /// What it is known by, such as its run and number.
    pub id: String,
    /// The call.
    pub call: Call,
    /// What its tool says where no rule matches.
    pub tool: ToolDefault,
    /// What came of it.
    pub outcome: RecordedOutcome,
}

/// What came of a recorded call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordedOutcome {
    /// It ran without a person.
    Ran,
    /// People approved it.
    Approved,
    /// People approved it with other arguments.
    Edited,
    /// People denied it.
    Denied,
    /// Nobody decided in time.
    Expired,
    /// A rule denied it.
    Refused,
    /// It is still pending.
    Pending,
}

/// How many calls, by what came of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Count {
    /// All of them.
    pub calls: usize,
    /// By what came of them.
    pub by_outcome: BTreeMap<RecordedOutcome, usize>,
    /// The first few.
    pub examples: Vec<String>,
}

impl Count {
    fn add(&mut self, call: &RecordedCall) {
        self.calls += 1;
        *self.by_outcome.entry(call.outcome).or_default() += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(call.id.clone());
        }
    }
}

/// What a policy would have done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Backtest {
    /// By what it would have done; in `observe` mode by what its rules alone would have.
    pub by_effect: BTreeMap<Effect, Count>,
    /// For each rule: the calls that it matched, and those that it decided.
    pub by_rule: BTreeMap<RuleId, RuleCount>,
    /// Calls that people denied and that would run without a person.
    pub denied_and_allowed: Count,
    /// Calls that people approved and that would be denied.
    pub approved_and_denied: Count,
    /// Rules that matched nothing.
    pub unused: Vec<RuleId>,
}

/// What one rule did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleCount {
    /// Calls that it matched.
    pub matched: Count,
    /// Those among them that it decided.
    pub decided: Count,
}

/// Plays recorded calls against a policy.
#[must_use]
pub fn backtest(policy: &Policy, calls: &[RecordedCall]) -> Backtest {
    let mut summary = Backtest::default();
    for call in calls {
        let decision = policy.decide(&call.call, call.tool);
        let effect = decision.observed.unwrap_or(decision.effect);
        summary.by_effect.entry(effect).or_default().add(call);
        for rule in &decision.matched {
            let count = summary.by_rule.entry(rule.rule.clone()).or_default();
            count.matched.add(call);
            if rule.effect == effect {
                count.decided.add(call);
            }
        }
        if decision.matched.is_empty() {
            for rule in &decision.decided_by {
                summary.by_rule.entry(rule.clone()).or_default().decided.add(call);
            }
        }
        match (call.outcome, effect) {
            (RecordedOutcome::Denied, Effect::Allow) => summary.denied_and_allowed.add(call),
            (RecordedOutcome::Approved | RecordedOutcome::Edited, Effect::Deny) => {
                summary.approved_and_denied.add(call)
            }
            (
                RecordedOutcome::Ran
                | RecordedOutcome::Approved
                | RecordedOutcome::Edited
                | RecordedOutcome::Denied
                | RecordedOutcome::Expired
                | RecordedOutcome::Refused
                | RecordedOutcome::Pending,
                Effect::Allow | Effect::Hold | Effect::Deny,
            ) => {}
        }
    }
    let is_unused = |rule: &&crate::matching::CheckedRule| !summary.by_rule.contains_key(&rule.id);
    summary.unused = policy.rules().iter().filter(is_unused).map(|rule| rule.id.clone()).collect();
    summary
}

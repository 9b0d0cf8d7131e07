//! What became looser between two policies: every class of calls with an example, and the rules that changed.
//!
//! Calls that were recorded are asked first, then made-up ones at every corner of both policies (`witness.rs`).

use std::collections::BTreeMap;

use standfast_core::name::{RuleId, ToolName};
use standfast_core::policy::Effect;

use crate::budget::{Budget, RuleClaim};
use crate::call::{Call, ToolDefault};
use crate::decision::Decision;
use crate::policy::Policy;
use crate::quorum::Requirement;
use crate::witness::{Coverage, witnesses};
use standfast_core::approver::SelfApproval;

/// What changed between two policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyDiff {
    /// Rules and settings, as they are written.
    pub changes: Vec<PolicyChange>,
    /// Every class of calls that became looser.
    pub looser: Vec<LooserCalls>,
    /// Whether made-up calls reached every corner.
    pub coverage: Coverage,
}

/// Something that is written otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyChange {
    /// A rule is new.
    Added(RuleId, Effect),
    /// A rule is gone.
    Removed(RuleId, Effect),
    /// A rule says something else; which keys.
    Changed(RuleId, Vec<String>),
    /// A key of the section says something else.
    Setting(&'static str),
}

/// How calls became looser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LooseningKind {
    /// What was denied or held is held or runs.
    Effect {
        /// What happened.
        from: Effect,
        /// What happens now.
        to: Effect,
    },
    /// They are still held, and fewer or other people can approve them.
    Approval,
    /// The same happens to them, and a budget is gone or has more.
    Budget,
}

/// Calls that became looser in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LooserCalls {
    /// The tool.
    pub tool: ToolName,
    /// How.
    pub loosening: LooseningKind,
    /// What decided before.
    pub before: Vec<RuleId>,
    /// What decides now.
    pub after: Vec<RuleId>,
    /// One of them.
    pub example: Call,
    /// How many of the recorded calls.
    pub recorded: usize,
}

/// What became looser from one policy to another, on these recorded calls and at every corner.
#[must_use]
pub fn diff(
    old: &Policy,
    new: &Policy,
    recorded: &[Call],
    tool_default: &dyn Fn(&ToolName) -> ToolDefault,
) -> PolicyDiff {
    let (made, coverage) = witnesses(&[old, new]);
    let mut classes: BTreeMap<(ToolName, LooseningKind, Vec<RuleId>, Vec<RuleId>), LooserCalls> =
        BTreeMap::new();
    for (no, call) in recorded.iter().chain(&made).enumerate() {
        let default = tool_default(&call.tool);
        let (before, after) = (old.decide(call, default), new.decide(call, default));
        let Some(loosening) = loosening(&before, &after) else { continue };
        let key = (call.tool.clone(), loosening, before.decided_by.clone(), after.decided_by.clone());
        let class = classes.entry(key).or_insert_with(|| LooserCalls {
            tool: call.tool.clone(),
            loosening,
            before: before.decided_by,
            after: after.decided_by,
            example: call.clone(),
            recorded: 0,
        });
        class.recorded += usize::from(no < recorded.len());
    }
    PolicyDiff { changes: changes(old, new), looser: classes.into_values().collect(), coverage }
}

/// How one decision is looser than another one.
#[must_use]
pub fn loosening(before: &Decision, after: &Decision) -> Option<LooseningKind> {
    if after.effect < before.effect {
        return Some(LooseningKind::Effect { from: before.effect, to: after.effect });
    }
    let is_implied = |old: &Requirement| after.requirements.iter().any(|new| implies(new, old));
    let both_hold = before.effect == Effect::Hold && after.effect == Effect::Hold;
    if both_hold && !before.requirements.iter().all(is_implied) {
        return Some(LooseningKind::Approval);
    }
    let is_kept = |old: &RuleClaim| after.budgets.iter().any(|new| keeps(&new.budget, &old.budget));
    let may_run = before.effect != Effect::Deny && after.effect != Effect::Deny;
    (may_run && !before.budgets.iter().all(is_kept)).then_some(LooseningKind::Budget)
}

/// Whether what is within one budget is within another: it counts the same, as much together, and has no more of it.
fn keeps(new: &Budget, old: &Budget) -> bool {
    new.sum == old.sum
        && new.per.iter().all(|one| old.per.contains(one))
        && new.limit <= old.limit
        && new.window >= old.window
        && new.over >= old.over
}

/// Whether meeting one requirement always meets another.
fn implies(new: &Requirement, old: &Requirement) -> bool {
    let people = match (&new.approvers, &old.approvers) {
        (None, None) => true,
        (Some(new), Some(old)) => new.iter().all(|one| old.contains(one)),
        (Some(_), None) | (None, Some(_)) => false,
    };
    let forbids = new.self_approval == SelfApproval::Forbid || old.self_approval == SelfApproval::Allow;
    let fresh = old.sign_in_max_age.is_none_or(|old| new.sign_in_max_age.is_some_and(|new| new <= old));
    people && forbids && fresh && new.quorum >= old.quorum
}

fn changes(old: &Policy, new: &Policy) -> Vec<PolicyChange> {
    let mut changes = Vec::new();
    let (was, is) = (old.file(), new.file());
    let settings = [
        ("default", was.default == is.default),
        ("mode", was.mode == is.mode),
        ("high_risk_tools", was.high_risk_tools == is.high_risk_tools),
        ("grants", was.grants == is.grants),
        ("business_hours", was.business_hours == is.business_hours),
    ];
    changes.extend(settings.into_iter().filter(|(_, same)| !same).map(|(key, _)| PolicyChange::Setting(key)));
    for rule in old.rules() {
        match new.rule(&rule.id) {
            None => changes.push(PolicyChange::Removed(rule.id.clone(), rule.effect)),
            Some(now) if now.digest != rule.digest || now.scope != rule.scope => {
                changes.push(PolicyChange::Changed(rule.id.clone(), keys(&rule.rule, &now.rule)));
            }
            Some(_) => {}
        }
    }
    let added = new.rules().iter().filter(|rule| old.rule(&rule.id).is_none());
    changes.extend(added.map(|rule| PolicyChange::Added(rule.id.clone(), rule.effect)));
    changes
}

/// The keys in which two rules differ.
fn keys(old: &crate::rule::Rule, new: &crate::rule::Rule) -> Vec<String> {
    let written = |rule: &crate::rule::Rule| serde_json::to_value(rule).unwrap_or_default();
    let (old, new) = (written(old), written(new));
    let differs = |key: &&&str| old.get(**key) != new.get(**key);
    crate::read::RULE_KEYS.iter().filter(differs).map(|key| (*key).to_owned()).collect()
}

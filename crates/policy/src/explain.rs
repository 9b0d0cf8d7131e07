//! Why a policy decides a call as it does: which rules matched, which did not and because of what, and what decided.
//!
//! For people and `policy explain`; looks at every rule, also at those that an index would leave out.

use std::fmt;

use standfast_core::name::RuleId;
use standfast_core::policy::Effect;

use crate::call::{Call, ToolDefault};
use crate::decision::Decision;
use crate::matching::{ConditionTrace, RuleOutcome};
use crate::policy::Policy;
use crate::problem::RulePath;
use crate::truth::Truth;

/// Why a call is decided as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What comes of it.
    pub decision: Decision,
    /// Every rule, in the order of the file.
    pub rules: Vec<RuleTrace>,
}

/// One rule of an explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleTrace {
    /// The rule.
    pub rule: RuleId,
    /// What it would do.
    pub effect: Effect,
    /// Where it stands.
    pub place: RulePath,
    /// What it did.
    pub outcome: RuleOutcome,
    /// Its conditions.
    pub conditions: Vec<ConditionTrace>,
}

impl RuleTrace {
    /// The condition that kept it from matching.
    #[must_use]
    pub fn obstacle(&self) -> Option<&ConditionTrace> {
        if self.outcome != RuleOutcome::NoMatch {
            return None;
        }
        let is_no = |one: &&ConditionTrace| one.truth == Truth::No;
        self.conditions
            .iter()
            .find(is_no)
            .or_else(|| self.conditions.iter().find(|one| one.truth != Truth::Yes))
    }
}

impl Policy {
    /// Why it decides a call as it does.
    #[must_use]
    pub fn explain(&self, call: &Call, tool: ToolDefault) -> Explanation {
        let trace = |rule: &crate::matching::CheckedRule| RuleTrace {
            rule: rule.id.clone(),
            effect: rule.effect,
            place: rule.place.clone(),
            outcome: rule.test(call),
            conditions: rule.trace(call),
        };
        Explanation { decision: self.decide(call, tool), rules: self.rules().iter().map(trace).collect() }
    }
}

/// An effect, for people.
#[must_use]
pub fn word(effect: Effect) -> &'static str {
    match effect {
        Effect::Allow => "allow",
        Effect::Hold => "hold",
        Effect::Deny => "deny",
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by: Vec<&str> = self.decision.decided_by.iter().map(RuleId::as_str).collect();
        writeln!(f, "{}: decided by {}", word(self.decision.effect), by.join(", "))?;
        if let Some(observed) = self.decision.observed {
            writeln!(f, "observed only: the rules would {}", word(observed))?;
        }
        for because in &self.decision.because {
            writeln!(f, "  because: {because}")?;
        }
        for rule in &self.rules {
            match rule.outcome {
                RuleOutcome::Match(effect) => writeln!(f, "{} matched: {}", rule.rule, word(effect))?,
                RuleOutcome::NoMatch => writeln!(f, "{} ({}) did not match", rule.rule, word(rule.effect))?,
            }
            let shown: Vec<&ConditionTrace> = match rule.obstacle() {
                Some(obstacle) => vec![obstacle],
                None => rule.conditions.iter().collect(),
            };
            for one in shown {
                let said = match one.truth {
                    Truth::Yes => "yes",
                    Truth::No => "no",
                    Truth::Unknown => "unknown",
                };
                writeln!(f, "  {}: wants {}, found {}: {said}", one.subject, one.wanted, one.found)?;
            }
        }
        Ok(())
    }
}

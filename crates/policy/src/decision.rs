//! What a policy says of a call: every matching rule counts, and the strictest wins.
//!
//! Deny is stricter than hold, hold than allow. So adding a hold or deny rule never loosens anything, and only an allow rule
//! does, against the default alone. In `observe` mode rules change nothing, and what they would have done is said beside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use standfast_core::hold::{Demand, Escalation, HoldTerms as CoreTerms, OnDeny, OnTimeout, Risk, Stakes};
use standfast_core::name::RuleId;
use standfast_core::policy::{Effect, Verdict};
use standfast_core::time::{Millis, Timestamp};

use crate::budget::{RuleClaim, Spender};
use crate::call::{Call, ToolDefault};
use crate::effect_key::{EffectKey, NoKey};
use crate::hours::BusinessHours;
use crate::index::Candidate;
use crate::matching::{CheckedRule, RuleOutcome};
use crate::policy::Policy;
use crate::quorum::Requirement;
use crate::rule::{GrantRule, Mode, Precondition, Rule};
use standfast_core::approver::{Approver, SelfApproval};

/// The rule of tools in `high_risk_tools`.
pub const HIGH_RISK: &str = "policy:high_risk_tools";

/// The rule of calls that no rule matches.
pub const DEFAULT: &str = "policy:default";

/// The rule of calls whose effect key cannot be made.
pub const NO_EFFECT_KEY: &str = "policy:no_effect_key";

/// The rule of calls of which cannot be told what they take from a budget.
pub const NO_BUDGET_CLAIM: &str = "policy:no_budget_claim";

/// A rule that matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchedRule {
    /// The rule.
    pub rule: RuleId,
    /// What it does here.
    pub effect: Effect,
    /// Why, as the file says it.
    pub because: Option<Arc<str>>,
}

/// What a policy says of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What happens.
    pub effect: Effect,
    /// What the rules alone come to, where they only observe.
    pub observed: Option<Effect>,
    /// Every rule that matched; in `observe` mode too.
    pub matched: Vec<MatchedRule>,
    /// The rules that decided: those that matched with the effect, or the default.
    pub decided_by: Vec<RuleId>,
    /// Why, in the words of the rules that decided.
    pub because: Vec<Arc<str>>,
    /// How bad it can get; the worst that a matching rule says.
    pub risk: Option<Risk>,
    /// Whether it can be undone; no as soon as one matching rule says so.
    pub reversible: Option<bool>,
    /// Who must agree, for each hold rule.
    pub requirements: Vec<Requirement>,
    /// Times, and what deny and silence do.
    pub terms: HoldTerms,
    /// Whether standing approvals may answer it.
    pub grants: GrantRule,
    /// What names the effect, for each matching rule that says so.
    pub effect_keys: Vec<EffectKey>,
    /// Why there is no key where a rule wants one; the call is held.
    pub no_effect_key: Option<NoKey>,
    /// What it takes from, for each matching rule that says so.
    pub budgets: Vec<RuleClaim>,
    /// Why it cannot be told what it takes where a rule has a budget; the call is held.
    pub no_budget_claim: Option<String>,
    /// Calls to make before it is shown and before it starts.
    pub preconditions: Vec<(RuleId, Precondition)>,
}

/// Times of a hold, and what deny and silence do; what no rule says is none and up to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HoldTerms {
    /// When it is denied: the strictest.
    pub on_deny: Option<OnDeny>,
    /// When nobody decides in time: the strictest.
    pub on_timeout: Option<OnTimeout>,
    /// The shortest grace.
    pub grace: Option<Millis>,
    /// The times of each rule, each counted in its own hours.
    pub times: Vec<RuleTimes>,
}

/// Times of one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleTimes {
    /// The rule.
    pub rule: RuleId,
    /// Before people are reminded.
    pub remind_after: Option<Millis>,
    /// Before others are asked as well, and who.
    pub escalate: Option<(Millis, Vec<Approver>)>,
    /// Before it expires.
    pub expire_after: Option<Millis>,
    /// The hours in which they are counted; always, if there are none.
    pub hours: Option<BusinessHours>,
}

/// The instants of a hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deadlines {
    /// When people are reminded: the earliest.
    pub remind_at: Option<Timestamp>,
    /// When who else is asked for which rule, in order of time.
    pub escalations: Vec<(Timestamp, RuleId, Vec<Approver>)>,
    /// When it expires: the earliest.
    pub expires_at: Option<Timestamp>,
}

impl RuleTimes {
    /// When a span that begins now is over, counted in the rule's hours.
    fn after(&self, now: Timestamp, span: Millis) -> Option<Timestamp> {
        match &self.hours {
            None => Some(now.plus(span)),
            Some(hours) => hours.after(now, span),
        }
    }
}

impl HoldTerms {
    /// The instants of a hold that opens now.
    #[must_use]
    pub fn deadlines(&self, opened_at: Timestamp) -> Deadlines {
        let at = |times: &RuleTimes, span: Millis| times.after(opened_at, span);
        let earliest = |of: fn(&RuleTimes) -> Option<Millis>| {
            self.times.iter().filter_map(|times| at(times, of(times)?)).min()
        };
        let escalation = |times: &RuleTimes| {
            let (span, to) = times.escalate.clone()?;
            Some((at(times, span)?, times.rule.clone(), to))
        };
        let mut escalations: Vec<_> = self.times.iter().filter_map(escalation).collect();
        escalations.sort();
        Deadlines {
            remind_at: earliest(|times| times.remind_after),
            escalations,
            expires_at: earliest(|times| times.expire_after),
        }
    }
}

/// How strict it is to let time decide in this way: a kept hold can still be approved, a failed run cannot go on.
#[must_use]
pub fn strictness(on_timeout: OnTimeout) -> u8 {
    match on_timeout {
        OnTimeout::Keep => 0,
        OnTimeout::ResumeWithError => 1,
        OnTimeout::Deny => 2,
        OnTimeout::Cancel => 3,
        OnTimeout::Fail => 4,
    }
}

/// The strictest of all that rules say.
#[must_use]
pub fn strictest(all: impl IntoIterator<Item = OnTimeout>) -> Option<OnTimeout> {
    all.into_iter().max_by_key(|one| strictness(*one))
}

impl Policy {
    /// What it says of a call.
    #[must_use]
    pub fn decide(&self, call: &Call, tool: ToolDefault) -> Decision {
        let found = self.found(call);
        let is_high_risk = self.file().high_risk_tools.iter().any(|name| name == call.tool.as_str());
        let high_risk =
            is_high_risk.then(|| named(HIGH_RISK, Effect::Hold, "the tool is in high_risk_tools"));
        let default = tool.effect(self.file().default);
        let default = || named(DEFAULT, default, tool.reason());
        match self.file().mode {
            Mode::Enforce => {
                let mut said = self.said(&found);
                said.extend(high_risk.into_iter().flatten());
                let mut decision = combine(said, default);
                terms(self, &found, call, &mut decision);
                decision
            }
            Mode::Observe => {
                let base: Vec<MatchedRule> = high_risk.into_iter().flatten().collect();
                let mut said = self.said(&found);
                said.extend(base.iter().cloned());
                let all = combine(said, default);
                let mut decision = combine(base, default);
                decision.observed = Some(all.effect);
                decision.matched = all.matched;
                let own = builtin(&decision);
                decision.requirements.extend(own);
                if is_high_risk && self.file().grants.destructive == GrantRule::Never {
                    decision.grants = GrantRule::Never;
                }
                decision
            }
        }
    }
}

impl Policy {
    /// The rules that match a call, in the order of the file, and what each does here.
    fn found(&self, call: &Call) -> Vec<(usize, Effect)> {
        let candidates = self.candidates(call);
        let mut found = Vec::with_capacity(candidates.len());
        let mut reading = None;
        for Candidate { no, truth } in candidates {
            let outcome = match (truth, self.head(no)) {
                (Some(truth), Some(head)) => RuleOutcome::of(head.effect, truth),
                (_, _) => self.rules().get(no).map_or(RuleOutcome::NoMatch, |rule| {
                    let reading = reading.get_or_insert_with(|| self.read(call));
                    rule.outcome(call, reading.truth(no, rule))
                }),
            };
            match outcome {
                RuleOutcome::Match(effect) => found.push((no, effect)),
                RuleOutcome::NoMatch => {}
            }
        }
        found
    }

    /// When people who were reminded now are reminded again of what these rules hold, each counted in its own hours; none where
    /// no rule says so.
    #[must_use]
    pub fn remind_again_at(&self, rules: &[RuleId], now: Timestamp) -> Option<Timestamp> {
        let next = |id: &RuleId| {
            let times = times(self, self.rule(id)?);
            times.after(now, times.remind_after?)
        };
        rules.iter().filter_map(next).min()
    }

    fn said(&self, found: &[(usize, Effect)]) -> Vec<MatchedRule> {
        let said = found.iter().filter_map(|(no, effect)| {
            let head = self.head(*no)?;
            let because = if head.effect == *effect {
                head.because.clone()
            } else {
                Some(unevaluated(&self.rules().get(*no)?.rule))
            };
            Some(MatchedRule { rule: head.id.clone(), effect: *effect, because })
        });
        said.collect()
    }
}

fn unevaluated(rule: &Rule) -> Arc<str> {
    format!("the expression of rule `{}` could not be evaluated", rule.id).into()
}

fn named(rule: &str, effect: Effect, because: &str) -> Option<MatchedRule> {
    Some(MatchedRule { rule: RuleId::new(rule).ok()?, effect, because: Some(because.into()) })
}

/// The strictest wins. The default speaks where no rule does, and wherever it is stricter and no allow rule answers it: so a
/// hold rule never turns a default of deny into a question.
fn combine(said: Vec<MatchedRule>, default: impl Fn() -> Option<MatchedRule>) -> Decision {
    let strictest = said.iter().map(|one| one.effect).max();
    let is_answered = said.iter().any(|one| one.effect == Effect::Allow);
    let is_stricter = |one: &MatchedRule| strictest.is_none_or(|effect| one.effect > effect);
    let fallback = default().filter(|one| is_stricter(one) && !is_answered);
    let effect = fallback.as_ref().map(|one| one.effect).or(strictest);
    // What nobody judged is held, never allowed.
    let effect = effect.unwrap_or(Effect::Hold);
    let deciding = || said.iter().chain(&fallback).filter(|one| one.effect == effect);
    Decision {
        effect,
        observed: None,
        decided_by: deciding().map(|one| one.rule.clone()).collect(),
        because: deciding().filter_map(|one| one.because.clone()).collect(),
        matched: said,
        risk: None,
        reversible: None,
        requirements: Vec::new(),
        terms: HoldTerms::default(),
        grants: GrantRule::Allow,
        effect_keys: Vec::new(),
        no_effect_key: None,
        budgets: Vec::new(),
        no_budget_claim: None,
        preconditions: Vec::new(),
    }
}

/// What a hold by a rule of our own asks for: one of whoever the agent says.
fn builtin(decision: &Decision) -> Option<Requirement> {
    let is_ours = |rule: &&RuleId| !rule.as_str().starts_with(crate::check::RULE_PREFIX);
    let rule = decision.decided_by.iter().find(is_ours).filter(|_| decision.effect == Effect::Hold)?.clone();
    Some(Requirement::anybody(rule))
}

/// What all matching rules ask for, beside the effect.
fn terms(policy: &Policy, found: &[(usize, Effect)], call: &Call, decision: &mut Decision) {
    // Most rules of a long list say nothing beside their effect, and need not be looked at again.
    let speaks = |no: usize| policy.head(no).is_none_or(|head| !head.says_nothing_else);
    let spoken: Vec<(&CheckedRule, Effect)> = found
        .iter()
        .filter(|(no, _)| speaks(*no))
        .filter_map(|(no, effect)| Some((policy.rules().get(*no)?, *effect)))
        .collect();
    let rules = || spoken.iter().map(|(rule, _)| *rule);
    decision.risk = rules().filter_map(|rule| rule.rule.risk).max();
    // `false` is stricter than `true`.
    decision.reversible = rules().filter_map(|rule| rule.rule.reversible).min();
    claim_budgets(rules(), call, decision);
    for template in rules().filter_map(|rule| rule.rule.effect_key.as_ref()) {
        let nothing = crate::value::Value::Null;
        match template.fill(call.arguments.value().unwrap_or(&nothing)) {
            Ok(key) if !decision.effect_keys.contains(&key) => decision.effect_keys.push(key),
            Ok(_) => {}
            Err(no_key) => decision.no_effect_key = Some(no_key),
        }
    }
    if let Some(no_key) = &decision.no_effect_key
        && let Some(rule) = named(NO_EFFECT_KEY, Effect::Hold, &no_key.to_string())
    {
        tighten(decision, rule);
    }
    decision.preconditions =
        rules().filter_map(|rule| Some((rule.id.clone(), rule.rule.precondition.clone()?))).collect();
    if decision.effect == Effect::Deny {
        decision.terms.on_deny = rules()
            .filter(|rule| rule.effect == Effect::Deny)
            .filter_map(|rule| rule.rule.on_deny)
            .max_by_key(|one| *one == OnDeny::Cancel);
    }
    if decision.effect != Effect::Hold {
        return;
    }
    let holds: Vec<&CheckedRule> =
        spoken.iter().filter(|(_, effect)| *effect == Effect::Hold).map(|(rule, _)| *rule).collect();
    let held = found.iter().filter(|(_, effect)| *effect == Effect::Hold);
    decision.requirements = held.filter_map(|(no, _)| requirement(policy, *no)).collect();
    let own = builtin(decision);
    decision.requirements.extend(own);
    // Whoever signs in anew for each approval gives none in advance, unless the rule says so itself.
    let is_never = |rule: &Rule| {
        rule.grants == Some(GrantRule::Never) || (rule.grants.is_none() && rule.sign_in_max_age.is_some())
    };
    let never = holds.iter().any(|rule| is_never(&rule.rule));
    let is_high_risk = decision.matched.iter().any(|rule| rule.rule.as_str() == HIGH_RISK);
    let is_destructive =
        is_high_risk || decision.risk == Some(Risk::Destructive) || decision.reversible == Some(false);
    let limits = &policy.file().grants;
    if never || (is_destructive && limits.destructive == GrantRule::Never) {
        decision.grants = GrantRule::Never;
    }
    decision.terms = HoldTerms {
        on_deny: holds.iter().filter_map(|rule| rule.rule.on_deny).max_by_key(|one| *one == OnDeny::Cancel),
        on_timeout: strictest(holds.iter().filter_map(|rule| rule.rule.on_timeout)),
        grace: holds.iter().filter_map(|rule| rule.rule.expiry_grace).map(|span| span.0).min(),
        times: holds.iter().map(|rule| times(policy, rule)).collect(),
    };
}

/// What a call takes from the budgets of the rules that match it.
fn claim_budgets<'a>(rules: impl Iterator<Item = &'a CheckedRule>, call: &Call, decision: &mut Decision) {
    let spender = Spender {
        tool: call.tool.as_str(),
        agent: call.agent.as_str(),
        owner: call.caller.user.as_str(),
        arguments: call.arguments.value(),
    };
    for rule in rules {
        for budget in &rule.rule.budgets {
            match budget.claim(rule.id.as_str(), spender) {
                Ok(claim) => {
                    decision.budgets.push(RuleClaim { rule: rule.id.clone(), budget: budget.clone(), claim });
                }
                Err(why) => decision.no_budget_claim = Some(why),
            }
        }
    }
    if let Some(why) = &decision.no_budget_claim
        && let Some(rule) = named(NO_BUDGET_CLAIM, Effect::Hold, why)
    {
        tighten(decision, rule);
    }
}

/// What a hold rule asks of people.
fn requirement(policy: &Policy, no: usize) -> Option<Requirement> {
    let head = policy.head(no)?;
    let anybody = Requirement::anybody(head.id.clone());
    if head.says_nothing_else {
        return Some(anybody);
    }
    let rule = &policy.rules().get(no)?.rule;
    Some(Requirement {
        approvers: rule.approvers.clone(),
        quorum: rule.quorum.unwrap_or(1).max(1),
        self_approval: rule.self_approval.unwrap_or(SelfApproval::Allow),
        sign_in_max_age: rule.sign_in_max_age.map(|span| span.0),
        ..anybody
    })
}

fn times(policy: &Policy, rule: &CheckedRule) -> RuleTimes {
    let written = &rule.rule;
    RuleTimes {
        rule: rule.id.clone(),
        remind_after: written.remind_after.map(|span| span.0),
        escalate: written.escalate_after.map(|span| span.0).zip(written.escalate_to.clone()),
        expire_after: written.expire_after.map(|span| span.0),
        hours: written
            .business_hours
            .as_ref()
            .and_then(|name| policy.file().business_hours.get(name).cloned()),
    }
}

/// Adds what holds beside the rules.
fn tighten(decision: &mut Decision, rule: MatchedRule) {
    if rule.effect > decision.effect {
        decision.effect = rule.effect;
        decision.decided_by = Vec::new();
        decision.because = Vec::new();
    }
    if rule.effect == decision.effect {
        decision.decided_by.push(rule.rule.clone());
        decision.because.extend(rule.because.clone());
    }
    decision.matched.push(rule);
}

impl Decision {
    /// What counts for a hold that opens now, as the core takes it.
    #[must_use]
    pub fn hold_terms(&self, now: Timestamp) -> CoreTerms {
        let deadlines = self.terms.deadlines(now);
        let until = |at: Timestamp| Millis((at.0 - now.0).max(1));
        let because = self.because.iter().map(ToString::to_string).collect();
        let (risk, reversible) = (self.risk, self.reversible);
        CoreTerms {
            on_deny: self.terms.on_deny,
            on_timeout: self.terms.on_timeout,
            timeout: deadlines.expires_at.map(until),
            grace: self.terms.grace,
            remind_after: deadlines.remind_at.map(until),
            escalations: deadlines
                .escalations
                .into_iter()
                .map(|(at, rule, to)| Escalation { at, to, rule: Some(rule) })
                .collect(),
            stakes: Stakes { because, risk, reversible, findings: Vec::new() },
        }
    }

    /// The rules that would have decided, where rules only observe.
    #[must_use]
    pub fn observed_rules(&self) -> Vec<RuleId> {
        let decides = |rule: &&MatchedRule| Some(rule.effect) == self.observed;
        self.matched.iter().filter(decides).map(|rule| rule.rule.clone()).collect()
    }

    /// Whether a rule allows it, not only the default.
    #[must_use]
    pub fn is_allowed_by_rule(&self) -> bool {
        self.effect == Effect::Allow && !self.is_by_default()
    }

    /// Whether it cannot be told what the call does in the world, or takes: then only a person who sees it lets it run.
    pub(crate) fn is_untold(&self) -> bool {
        self.no_effect_key.is_some() || self.no_budget_claim.is_some()
    }

    /// Whether no rule had a say.
    #[must_use]
    pub fn is_by_default(&self) -> bool {
        self.decided_by.iter().all(|rule| rule.as_str() == DEFAULT)
    }

    /// As the core takes it: one verdict for each rule that decided.
    #[must_use]
    pub fn verdicts(&self) -> Vec<Verdict> {
        let mut asked: BTreeMap<&RuleId, &Requirement> = BTreeMap::new();
        for requirement in &self.requirements {
            asked.entry(&requirement.rule).or_insert(requirement);
        }
        let votes = |rule: &RuleId| asked.get(rule).map_or(1, |requirement| requirement.quorum);
        let reason = (!self.because.is_empty()).then(|| self.because.join(". "));
        let demand = |rule: &RuleId| asked.get(rule).map(|requirement| Demand::from(*requirement));
        let verdict = |rule: &RuleId| Verdict {
            votes: votes(rule),
            demand: demand(rule),
            reason: reason.clone(),
            ..Verdict::new(self.effect, rule.clone())
        };
        self.decided_by.iter().map(verdict).collect()
    }
}

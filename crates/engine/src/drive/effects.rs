//! Effect keys: whether what a call would do in the world was started before, by whichever run, and the claim that its own
//! start makes.
//!
//! The claim is written with the start, behind a guard, so that of two starts of one effect one is refused, on any node. Who was
//! first is looked up before people are asked and again before the start: then the second one is held, with what came of the
//! first. Tools without a key cost nothing. Budgets, which are taken from in the same way, are in `budgets.rs`.

use standfast_core::effect::EffectClaim;
use standfast_core::event::{Envelope, Event};
use standfast_core::id::{CallNo, Seq};
use standfast_core::name::{RuleId, ToolName};
use standfast_core::policy::{Effect, Verdict, Verdicts};
use standfast_core::receipt::{CallEffect, claiming_call};
use standfast_core::run::Facts;
use standfast_policy::budget::RuleClaim;
use standfast_policy::value::{Arguments, Value};
use standfast_store::{KeyRecord, StoreError};

use super::Drives;
use super::budgets::Accounts;
use crate::EngineError;
use crate::policy::{DENYING, NO_TRACKING, NOT_TRACKED, call_of};
use crate::settings::{Agent, CallTracking, Rules};

/// The rule of calls whose effect key cannot be made.
const NO_KEY: &str = "effect:no_key";

/// A call whose effect is looked up.
#[derive(Clone)]
pub(crate) struct EffectCall {
    pub(crate) no: CallNo,
    pub(crate) tool: ToolName,
    /// What it would run with.
    pub(crate) arguments: String,
}

impl Drives {
    /// Adds to the verdicts what is known of the effects of these calls: holds where they were started before or a budget does
    /// not have enough left, claims and takes for their own starts.
    pub(crate) async fn see_to_effects(
        &self,
        facts: &Facts,
        agent: &Agent,
        calls: impl IntoIterator<Item = EffectCall>,
        verdicts: &mut Verdicts,
    ) -> Result<(), EngineError> {
        if !agent.may_claim_effects() {
            return Ok(());
        }
        let mut accounts = Accounts::default();
        for EffectCall { no, tool, arguments } in calls {
            let (mut keys, claims) = by_rules(facts, agent, &tool, &arguments);
            if let Some(template) = agent.effect_keys.get(&tool) {
                let arguments = Arguments::parse(&arguments);
                match template.fill(arguments.value().unwrap_or(&Value::Null)) {
                    Ok(key) => keys.push(key.as_str().to_owned()),
                    Err(no_key) => hold(agent, no, NO_KEY, no_key.to_string(), verdicts),
                }
            }
            keys.sort();
            keys.dedup();
            for key in keys {
                self.see_to_effect(facts, agent, (no, key), verdicts).await?;
            }
            self.see_to_budgets((facts, agent), (no, claims), &mut accounts, verdicts).await?;
        }
        Ok(())
    }

    async fn see_to_effect(
        &self,
        facts: &Facts,
        agent: &Agent,
        (no, key): (CallNo, String),
        verdicts: &mut Verdicts,
    ) -> Result<(), EngineError> {
        let mut claim = EffectClaim { key, no: 1 };
        let mut last: Option<(EffectClaim, KeyRecord)> = None;
        while let Some(record) = self.log.store.find_key(facts.tenant.clone(), claim.stored()).await? {
            last = Some((claim.clone(), record));
            claim.no += 1;
        }
        let Some((claimed, record)) = last else {
            verdicts.effects.push((no, claim));
            return Ok(());
        };
        // Its own earlier start has the effect: beginning again is what people, or its tool's nature, have said.
        if record.run == facts.id && record.request == EffectClaim::owner(facts.id, no) {
            return Ok(());
        }
        let events = match self.log.events(record.run, Seq(0)).await {
            Ok(events) => events,
            Err(StoreError::NotFound { .. } | StoreError::Corrupt { .. }) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let first = claiming_call(&claimed, &events);
        let is_orphaned = first.as_ref().is_some_and(|first| is_orphaned(first.call, &events));
        let came_of_it = match first.as_ref().map(|first| first.effect) {
            // It is known that nothing happened.
            Some(CallEffect::NotExecuted) => {
                verdicts.effects.push((no, claim));
                return Ok(());
            }
            Some(CallEffect::Executed) => "it was executed",
            Some(CallEffect::Failed) => "it failed, perhaps halfway",
            Some(CallEffect::OutcomeUnknown) => "its outcome is unknown",
            // It has started, so what it waits for now is a person who says what became of it, or a job elsewhere.
            Some(CallEffect::Waiting) if is_orphaned => "its outcome is unknown",
            Some(CallEffect::Running | CallEffect::Waiting) => "it is still running",
            None => "its outcome cannot be read",
        };
        let call = first.map_or(String::new(), |first| format!(", call {}", first.call));
        let reason = format!(
            "{} was started before, by {}{call}: {came_of_it}. Approve only if it is to happen again",
            claim.key, record.run
        );
        hold(agent, no, &format!("effect:started_before:{}", claimed.no), reason, verdicts);
        verdicts.effects.push((no, claim));
        Ok(())
    }
}

/// Whether the last start of a call was given up without knowing what it did.
fn is_orphaned(call: CallNo, events: &[Envelope]) -> bool {
    let last = events.iter().rev().find_map(|envelope| match &envelope.event {
        Event::CallOrphaned(orphaned) if orphaned.call == call => Some(true),
        Event::CallStarted(started) if started.call == call => Some(false),
        _ => None,
    });
    last == Some(true)
}

/// What the rules call the effects of a call, and what it takes from their budgets. Where that cannot be told, the rules
/// themselves hold the call.
fn by_rules(facts: &Facts, agent: &Agent, tool: &ToolName, arguments: &str) -> (Vec<String>, Vec<RuleClaim>) {
    match &agent.rules {
        Rules::Readable(policy) if agent.rules.name_effects() || agent.rules.have_budgets() => {
            let call = call_of(facts, tool, Some(arguments));
            let decision = policy.decide(&call, agent.tool_default(tool));
            let keys = decision.effect_keys.iter().map(|key| key.as_str().to_owned()).collect();
            (keys, decision.budgets)
        }
        Rules::Readable(_) | Rules::Unreadable(_) => (Vec::new(), Vec::new()),
    }
}

/// Whether a start was refused because somebody else has claimed one of its effects, or taken from one of its budgets, meanwhile: no guard of the lease, and
/// none of a request that was sent before.
pub(crate) fn is_claimed_meanwhile(error: &EngineError) -> bool {
    matches!(error, EngineError::Store(StoreError::Guard { which, .. }) if *which > 0)
}

/// A call that a person is asked about; without tracking nobody can be (C29). What was looked up is what they are told first: what
/// rules say of a call stands beside it anyway.
pub(super) fn hold(agent: &Agent, no: CallNo, rule: &str, reason: String, verdicts: &mut Verdicts) {
    let (effect, rule, reason, note) = match agent.tracking {
        CallTracking::On => (Effect::Hold, rule, all_reasons(no, reason, verdicts), None),
        CallTracking::Off => (Effect::Deny, NO_TRACKING, NOT_TRACKED.to_owned(), Some(DENYING.to_owned())),
    };
    if let Ok(rule) = RuleId::new(rule) {
        let verdict = Verdict { reason: Some(reason), note, ..Verdict::new(effect, rule) };
        verdicts.by_call.insert(0, (no, verdict));
    }
}

/// A reason behind what else was found out about a call: of several verdicts one says why.
fn all_reasons(no: CallNo, reason: String, verdicts: &Verdicts) -> String {
    let is_found_out =
        |verdict: &Verdict| ["effect:", "budget:"].iter().any(|kind| verdict.rule.as_str().starts_with(kind));
    let before = verdicts.by_call.iter().find(|(of, verdict)| *of == no && is_found_out(verdict));
    match before.and_then(|(_, verdict)| verdict.reason.as_deref()) {
        Some(before) => format!("{before}. {reason}"),
        None => reason,
    }
}

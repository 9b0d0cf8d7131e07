//! Standing approvals that answer what holds a call, and the use that its start takes.
//!
//! Looked up when the model asks for a call, and again directly before it starts: then the use is written with the start,
//! behind a guard. What a grant covers is the policy's to say, and every rule that holds the call must be one that the grant
//! answers. Where the policy knows no grants nothing is looked up.

use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::event::{Envelope, Event};
use standfast_core::grant::GrantUse;
use standfast_core::id::CallNo;
use standfast_core::name::{GrantId, RuleId};
use standfast_core::policy::{Effect, Verdict, Verdicts};
use standfast_core::run::Run;
use standfast_policy::call::Call;
use standfast_policy::decision::{DEFAULT, Decision, HIGH_RISK};
use standfast_policy::grant::HeldCall;
use standfast_policy::rule::GrantRule;

use super::Drives;
use super::effects::EffectCall;
use crate::EngineError;
use crate::log::KeptGrant;
use crate::policy::{REQUIRES_APPROVAL, call_of};
use crate::settings::{Agent, Rules};
use crate::tool::preview::Risk;

impl Drives {
    /// Lets standing approvals answer what holds these calls.
    pub(crate) async fn see_to_grants(
        &self,
        (run, log): (&Run, &[Envelope]),
        agent: &Agent,
        definition: &Definition,
        calls: impl IntoIterator<Item = EffectCall>,
        verdicts: &mut Verdicts,
    ) -> Result<(), EngineError> {
        if !agent.rules.takes_grants() {
            return Ok(());
        }
        let mut kept: Option<Vec<KeptGrant>> = None;
        let mut taken: Vec<GrantUse> = Vec::new();
        for EffectCall { no, tool, arguments } in calls {
            let combined = verdicts.combine(no).judged;
            let satisfied = run.call(no).map(|call| call.satisfied.as_slice()).unwrap_or_default();
            let is_answered = combined.rules.iter().all(|rule| satisfied.contains(rule));
            let Some(schema) = definition.tools.get(&tool).map(ToolSpec::schema_digest) else { continue };
            if combined.effect != Effect::Hold || is_answered {
                continue;
            }
            let Rules::Readable(policy) = &agent.rules else { continue };
            let call = call_of(&run.facts, &tool, Some(&arguments));
            let decision = judged(agent, policy, &call, &arguments);
            let Some(also) = beside_policy(&decision, &combined.rules) else { continue };
            let held = HeldCall { policy, call: &call, decision: &decision, schema, also: &also };
            let kept = match &mut kept {
                Some(kept) => kept,
                None => kept.insert(self.log.grants().of_agent(&run.facts.tenant, &run.facts.agent).await?),
            };
            for one in kept.iter() {
                if let Some(used) = self.use_of(run, (no, log), one, held, &mut taken).await? {
                    allow(no, &one.grant.id, used, verdicts);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Whether a grant lets a call run, and the use that it takes; none where an earlier start of the call has taken it.
    async fn use_of(
        &self,
        run: &Run,
        (no, log): (CallNo, &[Envelope]),
        kept: &KeptGrant,
        held: HeldCall<'_>,
        taken: &mut Vec<GrantUse>,
    ) -> Result<Option<Option<GrantUse>>, EngineError> {
        let (tenant, id, most) = (&run.facts.tenant, &kept.grant.id, kept.grant.proposal.uses);
        let covers = |used| kept.grant.covers(held, used, self.host.clock.now()).is_ok();
        if !covers(0) || self.log.grants().is_revoked(tenant, kept).await? {
            return Ok(None);
        }
        if has_taken(log, no, id) {
            return Ok(Some(None));
        }
        let here = taken.iter().filter(|one| one.grant == *id).count();
        let used = self.log.grants().count_uses(tenant, id, most).await?;
        let used = used.saturating_add(u32::try_from(here).unwrap_or(u32::MAX));
        if !covers(used) {
            return Ok(None);
        }
        let new = GrantUse { grant: id.clone(), no: used.saturating_add(1) };
        taken.push(new.clone());
        Ok(Some(Some(new)))
    }
}

/// What the policy says of a call, with what the tool itself says of the harm: a loss is a loss, whoever says so.
pub(crate) fn judged(
    agent: &Agent,
    policy: &standfast_policy::policy::Policy,
    call: &Call,
    arguments: &str,
) -> Decision {
    let mut decision = policy.decide(call, agent.tool_default(&call.tool));
    let risk = agent.tools.get(&call.tool).and_then(|tool| tool.risk(arguments));
    if risk == Some(Risk::Destructive) && policy.file().grants.destructive == GrantRule::Never {
        decision.grants = GrantRule::Never;
    }
    decision
}

/// What holds a call beside the policy; none where something does that no standing approval answers: an effect that was started
/// before, a tool or a file that has changed, what nobody could judge.
pub(crate) fn beside_policy(decision: &Decision, rules: &[RuleId]) -> Option<Vec<RuleId>> {
    let is_policys = |rule: &RuleId| {
        let name = rule.as_str();
        decision.decided_by.contains(rule)
            || name == HIGH_RISK
            || (decision.decided_by.iter().any(|by| by.as_str() == DEFAULT) && name == REQUIRES_APPROVAL)
    };
    let beside: Vec<RuleId> = rules.iter().filter(|rule| !is_policys(rule)).cloned().collect();
    let is_answerable =
        |rule: &RuleId| rule.as_str().starts_with("command:") || rule.as_str().starts_with("precondition:");
    beside.iter().all(is_answerable).then_some(beside)
}

/// Whether an earlier start of this very call took a use.
fn has_taken(log: &[Envelope], no: CallNo, id: &GrantId) -> bool {
    log.iter().any(|envelope| {
        let Event::CallStarted(started) = &envelope.event else { return false };
        started.call == no && started.grant_use.as_ref().is_some_and(|taken| taken.grant == *id)
    })
}

/// Puts the grant in the place of what holds the call.
fn allow(no: CallNo, id: &GrantId, taken: Option<GrantUse>, verdicts: &mut Verdicts) {
    for (_, verdict) in verdicts.by_call.iter_mut().filter(|(of, _)| *of == no) {
        if verdict.effect == Effect::Hold {
            let granted = Verdict::new(Effect::Allow, verdict.rule.clone());
            *verdict = Verdict { grant: Some(id.clone()), ..granted };
        }
    }
    verdicts.grant_uses.extend(taken.map(|taken| (no, taken)));
}

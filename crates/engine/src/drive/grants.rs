//! Standing approvals that answer what holds a call, and the use that its start takes.
//!
//! Looked up when the model asks for a call, and again directly before it starts: then the use is written with the start,
//! behind a guard. A call that is run elsewhere takes it with the append that allows it, as nobody has to say that it starts. What a grant covers is the policy's to say, and every rule that holds the call must be one that the grant
//! answers. Where the policy knows no grants nothing is looked up.

use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::digest::Digest;
use standfast_core::event::{Driver, Envelope, Event};
use standfast_core::grant::GrantUse;
use standfast_core::id::CallNo;
use standfast_core::name::{GrantId, RuleId, ToolName};
use standfast_core::policy::{Effect, Verdict, Verdicts};
use standfast_core::run::{Facts, Run};
use standfast_policy::call::Call;
use standfast_policy::decision::{DEFAULT, Decision, HIGH_RISK};
use standfast_policy::grant::HeldCall;
use standfast_policy::rule::GrantRule;

use super::Drives;
use super::effects::EffectCall;
use crate::EngineError;
use crate::log::KeptGrant;
use crate::policy::{REQUIRES_APPROVAL, WORKER_ASKS, call_of};
use crate::settings::{Agent, Rules};
use crate::tool::preview::Risk;

/// The calls that standing approvals may answer, and whose they are.
#[derive(Clone, Copy)]
pub(crate) struct GrantScope<'a> {
    pub(crate) facts: &'a Facts,
    /// What people have answered of its calls; none where the run is not there yet.
    pub(crate) run: Option<&'a Run>,
    /// What its calls have taken before.
    pub(crate) log: &'a [Envelope],
    pub(crate) agent: &'a Agent,
    pub(crate) definition: &'a Definition,
    /// The schema of a tool that comes with its call.
    pub(crate) brought: Option<Digest>,
}

impl Drives {
    /// Lets standing approvals answer what holds these calls. `taken` are the uses that the same append takes.
    pub(crate) async fn see_to_grants(
        &self,
        of: GrantScope<'_>,
        calls: impl IntoIterator<Item = EffectCall>,
        taken: &mut Vec<GrantUse>,
        verdicts: &mut Verdicts,
    ) -> Result<(), EngineError> {
        let GrantScope { facts, agent, definition, .. } = of;
        if !agent.rules.takes_grants() {
            return Ok(());
        }
        let mut kept: Option<Vec<KeptGrant>> = None;
        for EffectCall { no, tool, arguments } in calls {
            let combined = verdicts.combine(no).judged;
            let satisfied = of.run.and_then(|run| run.call(no)).map(|call| call.satisfied.as_slice());
            let satisfied = satisfied.unwrap_or_default();
            let is_answered = combined.rules.iter().all(|rule| satisfied.contains(rule));
            let Some(schema) = schema_of(facts.driver, (definition, agent), &tool, of.brought) else {
                continue;
            };
            if combined.effect != Effect::Hold || is_answered {
                continue;
            }
            let Rules::Readable(policy) = &agent.rules else { continue };
            let call = call_of(facts, &tool, Some(&arguments));
            let decision = judged(agent, policy, &call, &arguments);
            let Some(also) = beside_policy(&decision, &combined.rules, facts.driver) else { continue };
            let held = HeldCall { policy, call: &call, decision: &decision, schema, also: &also };
            let kept = match &mut kept {
                Some(kept) => kept,
                None => kept.insert(self.log.grants().of_agent(&facts.tenant, &facts.agent).await?),
            };
            for one in kept.iter() {
                if let Some(used) = self.use_of(of, no, one, held, taken).await? {
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
        of: GrantScope<'_>,
        no: CallNo,
        kept: &KeptGrant,
        held: HeldCall<'_>,
        taken: &mut Vec<GrantUse>,
    ) -> Result<Option<Option<GrantUse>>, EngineError> {
        let (tenant, id, most) = (&of.facts.tenant, &kept.grant.id, kept.grant.proposal.uses);
        let covers = |used| kept.grant.covers(held, used, self.host.clock.now()).is_ok();
        if !covers(0) || self.log.grants().is_revoked(tenant, kept).await? {
            return Ok(None);
        }
        if has_taken(of.log, no, id) {
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

/// The schema that a call's tool is known by: of the run's own tool, of what a worker elsewhere says of it, or of the agent's tool
/// that the worker uses.
pub(crate) fn schema_of(
    driver: Driver,
    (definition, agent): (&Definition, &Agent),
    tool: &ToolName,
    brought: Option<Digest>,
) -> Option<Digest> {
    let of = |definition: &Definition| definition.tools.get(tool).map(ToolSpec::schema_digest);
    let elsewhere = || of(&agent.definition).filter(|_| driver == Driver::Outside);
    of(definition).or(brought).or_else(elsewhere)
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
pub(crate) fn beside_policy(decision: &Decision, rules: &[RuleId], driver: Driver) -> Option<Vec<RuleId>> {
    let is_policys = |rule: &RuleId| {
        let name = rule.as_str();
        decision.decided_by.contains(rule)
            || name == HIGH_RISK
            || (decision.decided_by.iter().any(|by| by.as_str() == DEFAULT) && name == REQUIRES_APPROVAL)
    };
    let beside: Vec<RuleId> = rules.iter().filter(|rule| !is_policys(rule)).cloned().collect();
    // A worker asks about what it runs; whoever opens a gate only says so where the call cannot be read or counted.
    let is_asked = |rule: &RuleId| driver == Driver::Outside && rule.as_str() == WORKER_ASKS;
    let is_answerable = |rule: &RuleId| {
        let name = rule.as_str();
        name.starts_with("command:") || name.starts_with("precondition:") || is_asked(rule)
    };
    beside.iter().all(is_answerable).then_some(beside)
}

/// Whether an earlier start of this very call took a use, or its permission to be run elsewhere.
fn has_taken(log: &[Envelope], no: CallNo, id: &GrantId) -> bool {
    log.iter().any(|envelope| {
        let (call, taken) = match &envelope.event {
            Event::CallStarted(started) => (started.call, started.grant_use.as_ref()),
            Event::CallProposed(proposed) => (proposed.call.no, proposed.grant_use.as_ref()),
            _ => return false,
        };
        call == no && taken.is_some_and(|taken| taken.grant == *id)
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

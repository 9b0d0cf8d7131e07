//! What a hold is opened with beside the question: the instants at which time does something to it, where business hours
//! count; and whether it opens muted, because its agent or its owner has too many.
//!
//! Nothing is looked at unless the settings say so. What follows at those instants is the core's business.

use standfast_core::command::{AskedCall, SuspendFor};
use standfast_core::definition::Definition;
use standfast_core::hold::{Escalation, Hold, HoldPolicy, HoldTerms};
use standfast_core::id::CallNo;
use standfast_core::name::ToolName;
use standfast_core::policy::{Effect, HoldTimes, Verdicts};
use standfast_core::project::Phase;
use standfast_core::run::{Facts, Run};
use standfast_core::time::{Millis, Timestamp};
use standfast_store::{RunFilter, RunQuery};

use super::{Drive, Drives};
use crate::policy;
use crate::settings::{Agent, NotifiedHolds, Rules};

/// The phases of runs that wait for a person.
const WAITING: [Phase; 3] = [Phase::HeldForPerson, Phase::HeldForAuth, Phase::HeldForExternal];

/// Fills in what the holds of a reply are opened with.
pub(super) async fn fill_in(
    drive: &mut Drive,
    run: &Run,
    agent: &Agent,
    (definition, calls): (&Definition, &[AskedCall]),
    verdicts: &mut Verdicts,
) {
    let is_held = verdicts.by_call.iter().any(|(_, verdict)| verdict.effect == Effect::Hold);
    if !is_held {
        return;
    }
    let now = drive.drives.host.clock.now();
    for (no, call) in policy::numbered(run, calls).filter(|_| counts_times(agent)) {
        let Ok(tool) = ToolName::new(&call.tool) else { continue };
        let terms = verdicts.terms(no);
        let found = times(agent, &definition.policy_for(&tool), &terms, now, None);
        verdicts.times.extend(found.map(|times| (no, times)));
    }
    verdicts.mutes = drive.drives.is_over_soft_cap(&run.facts).await;
}

/// The same for a call that waits for an answer or a login.
pub(super) async fn of_suspension(drive: &mut Drive, call: CallNo, kind: SuspendFor) -> Verdicts {
    let mut verdicts = Verdicts::default();
    let settings = drive.drives.host.settings();
    let has_times = settings.agents.values().any(|agent| counts_times(agent));
    if !has_times && settings.notified_holds == NotifiedHolds::default() {
        return verdicts;
    }
    let asking = drive.pipeline.tip().filter(|_| kind != SuspendFor::External).cloned();
    let Some(run) = asking else { return verdicts };
    let definition = drive.definition.as_ref().map(|(_, definition)| definition.clone());
    let agent = drive.drives.host.agent(&run.facts.agent).ok();
    if let (Some(agent), Some(definition), Some(asks)) = (agent, definition, run.call(call)) {
        let policy = definition.policy_for(&asks.tool);
        let now = drive.drives.host.clock.now();
        let found = times(&agent, &policy, &HoldTerms::default(), now, None);
        verdicts.times.extend(found.map(|times| (call, times)));
    }
    verdicts.mutes = drive.drives.is_over_soft_cap(&run.facts).await;
    verdicts
}

/// When people are reminded next of what is open, where business hours count: the rules' own, or else the agent's.
pub(super) fn of_tick(drive: &Drive, run: &Run) -> Verdicts {
    let mut verdicts = Verdicts::default();
    let Ok(agent) = drive.drives.host.agent(&run.facts.agent) else { return verdicts };
    let now = drive.drives.host.clock.now();
    let terms = HoldTerms::default();
    let of_hold = |hold: &Hold| {
        let own = times(&agent, &hold.policy, &terms, now, hold.expires_at);
        let by_rules = match &agent.rules {
            Rules::Readable(policy) => policy.remind_again_at(&hold.rules, now),
            Rules::Unreadable(_) => None,
        };
        let times = match by_rules {
            Some(at) => {
                let next = last_reminder(&agent, hold.expires_at, now).into_iter().chain([at]).min();
                HoldTimes { remind_at: next, ..own.unwrap_or_default() }
            }
            None => own?,
        };
        Some((hold.call(), times))
    };
    verdicts.times.extend(run.state.holds.iter().filter_map(of_hold));
    verdicts
}

/// Whether the instants of an agent's holds are more than spans from their opening.
fn counts_times(agent: &Agent) -> bool {
    agent.hours.is_some() || agent.remind_before.is_some()
}

/// The reminder shortly before a deadline, if there is one to come.
fn last_reminder(agent: &Agent, deadline: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    let last = agent.remind_before.zip(deadline);
    last.map(|(before, at)| Timestamp(at.0.saturating_sub(before.0))).filter(|at| *at > now)
}

/// The instants of a hold that opens now, or whose deadline is known, counted in the agent's hours; none where plain spans say it all.
/// What rules say was counted in their own hours before. The last reminder is so long before the deadline, whatever the hours are.
fn times(
    agent: &Agent,
    policy: &HoldPolicy,
    terms: &HoldTerms,
    now: Timestamp,
    deadline: Option<Timestamp>,
) -> Option<HoldTimes> {
    if !counts_times(agent) {
        return None;
    }
    let after = |span: Option<Millis>| {
        let span = span.filter(|span| span.0 > 0)?;
        agent.hours.as_ref().map_or_else(|| Some(now.plus(span)), |hours| hours.after(now, span))
    };
    let by_rule = |span: Option<Millis>| span.map(|span| now.plus(span));
    let escalation = after(policy.escalate_after).filter(|_| !policy.escalate_to.is_empty());
    let escalation = escalation.map(|at| Escalation { at, to: policy.escalate_to.clone(), rule: None });
    let expires_at = by_rule(terms.timeout).or_else(|| after(policy.timeout));
    let last = last_reminder(agent, deadline.or(expires_at), now);
    let next = by_rule(terms.remind_after).or_else(|| after(policy.remind_after));
    Some(HoldTimes {
        expires_at,
        remind_at: next.into_iter().chain(last).min(),
        escalations: escalation.into_iter().collect(),
    })
}

impl Drives {
    /// Whether the agent of a run, or its owner, has as many open holds as people are notified of. What cannot be counted
    /// is not muted.
    async fn is_over_soft_cap(&self, facts: &Facts) -> bool {
        let caps = self.host.settings().notified_holds;
        if let Some(most) = caps.per_agent
            && let Ok(counts) = self.log.store.counts(facts.tenant.clone()).await
        {
            let of_agent = counts.holds.iter().filter(|open| open.agent == facts.agent);
            if of_agent.map(|open| open.count).sum::<u64>() >= most {
                return true;
            }
        }
        let Some(most) = caps.per_owner else { return false };
        let query = RunQuery {
            tenant: facts.tenant.clone(),
            filter: RunFilter::Owner(facts.owner.clone()),
            phases: WAITING.to_vec(),
            since: None,
            cursor: None,
            limit: usize::try_from(most).unwrap_or(usize::MAX),
        };
        let Ok(page) = self.log.store.list_runs(query).await else { return false };
        page.items.iter().map(|row| row.run.state.holds.len() as u64).sum::<u64>() >= most
    }
}

//! A call that a person has denied is not asked about again: it is refused, and the model gets the reason (T28).
//!
//! Looked for in the log of the run, in those above and below it, and in other recent runs of its session; only when
//! somebody would be asked. What a person says in this run after the denial lifts it: then they, not the model, ask for it.

use standfast_core::command::AskedCall;
use standfast_core::denials::{Denial, denials, last_asked_at, loose};
use standfast_core::event::{Envelope, Event};
use standfast_core::id::{CallNo, RunId, Seq};
use standfast_core::name::{RuleId, ToolName};
use standfast_core::policy::{Effect, Verdict, Verdicts};
use standfast_core::run::Run;
use standfast_core::time::{Millis, Timestamp};
use standfast_store::{RunFilter, RunQuery};

use super::known_log::with_known_log;
use super::{Drive, Drives};
use crate::policy;
use crate::settings::Agent;

/// How many other runs are looked at: the newest.
const OTHER_RUNS: usize = 20;

/// The text for the model.
const DENIED: &str = "not executed: a person denied this call. It is refused without asking until a person asks for it; \
                      do not raise it again by yourself";

/// Refuses the calls of a reply that a person would be asked about although one has denied them.
pub(super) async fn refuse_denied(
    drive: &mut Drive,
    run: &Run,
    agent: &Agent,
    calls: &[AskedCall],
    verdicts: &mut Verdicts,
) {
    let limits = drive.drives.host.settings().limits.clone();
    let is_held = |no: CallNo| verdicts.combine(no).judged.effect == Effect::Hold;
    let held: Vec<(CallNo, &AskedCall)> =
        policy::numbered(run, calls).filter(|(no, _)| is_held(*no)).collect();
    if held.is_empty() || limits.deny_memory.0 == 0 {
        return;
    }
    // Nobody can know of a conversation that has the name of a run which is not even stored: there is nobody to ask about.
    let is_unknown = drive.pipeline.durable().is_none()
        && run.facts.parent.is_none()
        && run.facts.session == run.facts.id.own_session();
    if is_unknown {
        return;
    }
    let drives = drive.drives.clone();
    let since = drives.host.clock.now().plus(Millis(-limits.deny_memory.0));
    let (asked_at, mut denied, children) =
        with_known_log(drive, |events| (last_asked_at(events), denials(events), started_by(events)));
    let since = asked_at.map_or(since, |asked| asked.max(since));
    for other in drives.related(run, children, since).await {
        // What cannot be read is not remembered: then a person is asked once more.
        denied.extend(denials(&drives.log.events(other, Seq(0)).await.unwrap_or_default()));
    }
    denied.retain(|denial| denial.at >= since);
    for (no, call) in held {
        let Ok(tool) = ToolName::new(&call.tool) else { continue };
        let key = |arguments: &str| {
            let own = agent.tools.get(&tool).and_then(|tool| tool.loose_key(arguments));
            own.unwrap_or_else(|| loose(arguments))
        };
        let is_same = |denial: &Denial| denial.tool == tool && key(&denial.arguments) == key(&call.arguments);
        if denied.iter().any(is_same) {
            let verdict = Verdict::new(Effect::Deny, RuleId::denied_before());
            verdicts.by_call.push((no, Verdict { reason: Some(DENIED.to_owned()), ..verdict }));
        }
    }
}

/// The sub-runs that a run has waited for.
fn started_by(events: &[Envelope]) -> Vec<RunId> {
    let child = |envelope: &Envelope| {
        let Event::HoldOpened(opened) = &envelope.event else { return None };
        opened.ask.child
    };
    events.iter().filter_map(child).collect()
}

impl Drives {
    /// Other runs that speak for the same people: those above, those that this one started, and the newest of its session
    /// that have changed since.
    async fn related(&self, run: &Run, children: Vec<RunId>, since: Timestamp) -> Vec<RunId> {
        let facts = &run.facts;
        let mut found = children;
        let mut above = facts.parent.map(|parent| parent.run);
        while let Some(parent) = above.filter(|parent| !found.contains(parent)) {
            found.push(parent);
            above = match self.log.store.facts(parent).await {
                Ok(Some(facts)) => facts.parent.map(|parent| parent.run),
                Ok(None) | Err(_) => None,
            };
        }
        let query = RunQuery {
            tenant: facts.tenant.clone(),
            filter: RunFilter::Session(facts.agent.clone(), facts.session.clone()),
            phases: Vec::new(),
            since: Some(since),
            cursor: None,
            limit: OTHER_RUNS,
        };
        if let Ok(page) = self.log.store.list_runs(query).await {
            let recent = page
                .items
                .iter()
                .filter(|row| row.run.state.at >= since && row.run.facts.owner == facts.owner);
            found.extend(recent.map(|row| row.run.facts.id));
        }
        found.retain(|other| *other != facts.id);
        found.sort();
        found.dedup();
        found.truncate(OTHER_RUNS);
        found
    }
}

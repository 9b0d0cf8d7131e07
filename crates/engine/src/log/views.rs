//! What is shown of one run and of its holds, made from a [`Snapshot`]: the same for callers, streams and receivers.
//!
//! Lists and waiting are `reads`; what receivers are sent is `deliver`. The functions at the end are pure: what a log says.

use std::sync::Arc;

use standfast_core::body::Body;
use standfast_core::event::{CallOrphaned, Driver, Envelope, Event, OrphanCause};
use standfast_core::hold::{self, Ask, Demand, Hold, HoldKind, RecordedDecision, name_files};
use standfast_core::id::{CallNo, HoldId, RunId, Seq};
use standfast_core::json::RawJson;
use standfast_core::name::{AgentName, RuleId, UserId};
use standfast_core::project::HoldRow;
use standfast_core::receipt::receipt;
use standfast_core::reconcile::EffectAnswer;
use standfast_core::run::Run;
use standfast_core::time::{Millis, Timestamp};
use standfast_core::transcript::{stored_call, warned_approval_text};

use super::drift::{Drift, drift};
use super::{Log, Snapshot};
use crate::EngineError;
use crate::auth::{
    Principal, ToDecide, WhyNot, may_decide, may_decide_as_well, may_log_in, needs_sign_in, who_decides,
};
use crate::tool::preview::{CallPreview, Risk};

/// A run with its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunView {
    /// The fold of its events.
    pub run: Arc<Run>,
    /// What came out, once it has ended.
    pub result: Option<Body>,
    /// Why it did not complete.
    pub reason: Option<String>,
    /// Open holds of its sub-runs: what it really waits for.
    pub holds_below: Vec<(HoldId, HoldKind)>,
}

/// A hold with everything that people need to decide it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldView {
    /// The hold.
    pub row: HoldRow,
    /// Who started its run.
    pub owner: UserId,
    /// The argument text of its call: what will run when it is approved now, or what was last shown.
    pub arguments: Option<RawJson>,
    /// What is asked.
    pub ask: Ask,
    /// The text that people are asked with before a call runs.
    pub prompt: Option<String>,
    /// What its tool does, as the run was told.
    pub description: Option<String>,
    /// Whether what its call does can be undone; none where that is not known.
    pub reversible: Option<bool>,
    /// What is known of the harm that its call can do.
    pub risk: Option<Risk>,
    /// Whether this server asks, because the run cannot go on: neither its agent nor a tool does.
    pub is_asked_by_server: bool,
    /// Why nobody knows what the call did, of an unknown outcome.
    pub unknown_because: Option<OrphanCause>,
    /// What the read-only call said of it that its tool names for this.
    pub reconciled: Option<EffectAnswer>,
    /// Its decision.
    pub recorded: Option<RecordedDecision>,
    /// The runs above its run, the root first, each with its agent; empty when it is not a sub-run.
    pub path: Vec<(RunId, AgentName)>,
    /// The hold as the run carries it, with votes, deadlines and who is asked; none once it is decided.
    pub open: Option<Hold>,
    /// Whether its decision came after the deadline.
    pub late: bool,
    /// Whether the caller may decide it.
    pub may_decide: bool,
    /// Why not, if they may not.
    pub why_not: Option<WhyNot>,
    /// Who may decide it, in words.
    pub deciders: String,
    /// What each rule demands of those who decide, and who has agreed.
    pub demands: Vec<Demand>,
    /// The rules that it is held by; none of what no rule decides about.
    pub rules: Vec<RuleId>,
    /// What drives its run: the loop of this server, a worker elsewhere, or whoever opened a gate.
    pub driver: Driver,
    /// What is different now from when it was asked, where that was looked at.
    pub drift: Vec<Drift>,
    /// How lately the caller must have signed in to approve it, where they have not.
    pub needs_sign_in: Option<Millis>,
    /// Whether the caller may give the login that it waits for.
    pub may_log_in: bool,
}

impl HoldView {
    /// The risk class of what is decided; none where nobody has given it one.
    #[must_use]
    pub fn risk_class(&self) -> Option<hold::Risk> {
        let by_tool = self.risk.map(|risk| match risk {
            Risk::ReadOnly | Risk::Reversible => hold::Risk::Low,
            Risk::Destructive => hold::Risk::Destructive,
        });
        // Rules say it more exactly, and never make it better than something that is lost.
        match (by_tool, self.ask.stakes.risk) {
            (Some(hold::Risk::Destructive), _) => Some(hold::Risk::Destructive),
            (by_tool, by_rules) => by_rules.or(by_tool),
        }
    }
}

/// Makes views of runs and holds, for those who may see them.
pub struct Views {
    log: Arc<Log>,
}

impl Views {
    pub(crate) fn new(log: Arc<Log>) -> Views {
        Views { log }
    }

    /// What is stored of a run now, if the caller may see it: one request reads one, and hands it on.
    pub async fn snapshot(&self, who: &Principal, run: RunId) -> Result<Snapshot, EngineError> {
        self.log.snapshot(who, run).await
    }

    /// The events of a run after a position, if the caller may see it.
    pub async fn log(&self, who: &Principal, run: RunId, after: Seq) -> Result<Vec<Envelope>, EngineError> {
        self.log.see(who, run).await?;
        Ok(self.log.events(run, after).await?)
    }

    /// The events of a run's first append, if the caller may see it: what it was asked first, whatever came of it.
    pub async fn opening(&self, who: &Principal, run: RunId) -> Result<Vec<Envelope>, EngineError> {
        self.log.seen_by(who, run).await?;
        Ok(self.log.opening(run).await?)
    }

    /// The events of a run after a position, those of one append together: between them the run was never seen.
    pub async fn appends(&self, run: RunId, after: Seq) -> Result<Vec<Vec<Envelope>>, EngineError> {
        Ok(self.log.appends(run, after).await?)
    }

    /// A run, if the caller may see it.
    pub async fn run(&self, who: &Principal, run: RunId) -> Result<RunView, EngineError> {
        self.run_view(&self.snapshot(who, run).await?).await
    }

    /// What is shown of a run as it was at one moment.
    pub async fn run_view(&self, snapshot: &Snapshot) -> Result<RunView, EngineError> {
        let run = snapshot.run();
        let (result, reason) = match run.outcome() {
            Some(_) => result_of(snapshot.log().await?),
            None => (None, None),
        };
        let holds_below = self.log.holds_below(run).await?;
        Ok(RunView { run: snapshot.stored().row.run.clone(), result, reason, holds_below })
    }

    /// What the call of a hold would do, as its tool sees it now; none where the tool cannot say, and of what is decided.
    pub async fn preview(&self, view: &HoldView) -> Option<CallPreview> {
        let (tool, arguments) = (view.row.tool.as_ref()?, view.arguments.clone()?);
        if view.row.closed.is_some() {
            return None;
        }
        let agent = self.log.host.agent(&view.row.agent).ok()?;
        let tool = agent.tools.get(tool)?.clone();
        tokio::task::spawn_blocking(move || tool.preview(arguments.text())).await.ok().flatten()
    }

    /// A hold, pending or decided, if the caller may see it; with what is different now from when it was asked.
    pub async fn hold(&self, who: &Principal, hold: HoldId) -> Result<HoldView, EngineError> {
        self.hold_with_drift(who, &self.snapshot(who, hold.run).await?, hold).await
    }

    /// The same of a run as it was at one moment.
    pub async fn hold_with_drift(
        &self,
        who: &Principal,
        snapshot: &Snapshot,
        hold: HoldId,
    ) -> Result<HoldView, EngineError> {
        let mut view = self.hold_view(who, snapshot, hold).await?;
        let (run, events) = (snapshot.run(), snapshot.log().await?);
        let definition = self.log.definition(&run.facts.agent, run.state.definition).await?;
        let agent = self.log.host.agent(&run.facts.agent).ok();
        let shown = (&view.row, view.arguments.as_ref());
        view.drift = drift(agent.as_deref(), (run, &definition), shown, events);
        Ok(view)
    }

    /// What is shown of a hold of a run as it was at one moment.
    pub async fn hold_view(
        &self,
        who: &Principal,
        snapshot: &Snapshot,
        hold: HoldId,
    ) -> Result<HoldView, EngineError> {
        let row = snapshot.hold(hold.key).await?.ok_or(EngineError::NotFound)?;
        let (run, events) = (snapshot.run(), snapshot.log().await?);
        let arguments = arguments(&row, events);
        let definition = self.log.definition(&run.facts.agent, run.state.definition).await?;
        let spec = row.tool.as_ref().and_then(|tool| definition.tools.get(tool));
        let mut ask = asked(&row, events);
        let orphaned = orphaned(&row, events);
        let reconciled = orphaned.and_then(|orphaned| orphaned.reconciled.as_deref());
        ask.stakes.findings.extend(reconciled.map(|found| found.finding.clone()));
        let prompt = match (row.kind, &row.tool, &arguments) {
            (HoldKind::Approval, Some(tool), Some(arguments)) => {
                let own = spec.and_then(|spec| spec.approval_prompt.as_deref());
                Some(warned_approval_text(own, tool, arguments, ask.warning.as_deref()))
            }
            (
                HoldKind::Approval
                | HoldKind::Input
                | HoldKind::External
                | HoldKind::Auth
                | HoldKind::Recovery,
                _,
                _,
            ) => None,
        };
        let agent = self.log.host.agent(&run.facts.agent).ok();
        let tool = row.tool.as_ref().and_then(|tool| agent.as_ref()?.tools.get(tool).cloned());
        let harm = tool.zip(arguments.as_ref()).and_then(|(tool, arguments)| tool.risk(arguments.text()));
        // A definition says `false` also of tools of which nothing is known.
        let promised = spec.filter(|spec| spec.reversible).map(|_| Risk::Reversible);
        // A rule may know better than the tool, and only make it worse.
        let promised_by_rules = ask.stakes.reversible;
        let is_lost = promised_by_rules == Some(false) || ask.stakes.risk == Some(hold::Risk::Destructive);
        let risk = if is_lost { Some(Risk::Destructive) } else { harm.or(promised) };
        let approvers = self.log.host.approvers(&run.facts.agent);
        let demands = demands(&row, run, events);
        let rules = rules(&row, events);
        let to_decide = ToDecide { demands: &demands, ..ToDecide::of(&row, run) };
        let may_log_in = may_log_in(who, &run.facts, to_decide, &approvers);
        let standing = may_decide(who, &run.facts, to_decide, &approvers);
        let open = run.hold(row.id.key).cloned();
        let now = self.log.host.clock.now();
        let mut deciders = who_decides(&run.facts, to_decide, &approvers);
        deciders.extend(open.iter().flat_map(|open| decide_as_well(open, now)));
        let is_asked_as_well =
            open.as_ref().is_some_and(|open| may_decide_as_well(who, run, open, &approvers, now).is_some());
        let is_theirs = row.closed.is_none() && (standing.is_ok() || is_asked_as_well);
        let needs_sign_in = if is_theirs { needs_sign_in(who, to_decide, &approvers, now) } else { None };
        let late = row.closed.as_ref().is_some_and(|closed| is_late(closed.seq, events));
        let recorded = row.closed.as_ref().and_then(|closed| recorded(closed.seq, events));
        let path = self.log.path_to(run).await?;
        if let Some(warning) = &ask.warning {
            let reason = ask.reason.iter().map(|reason| format!("{}. ", reason.trim_end_matches('.')));
            ask.reason = Some(reason.chain([format!("Warning: {warning}")]).collect());
        }
        // A question does nothing itself, and a job elsewhere has begun: there is nothing left to weigh.
        let shown_risk = risk.filter(|_| matches!(row.kind, HoldKind::Approval | HoldKind::Recovery));
        Ok(HoldView {
            ask,
            description: spec.map(|spec| spec.description.clone()),
            reversible: risk.map(|risk| risk != Risk::Destructive).or(promised_by_rules),
            risk: shown_risk,
            is_asked_by_server: is_asked_by_server(&row, run),
            unknown_because: orphaned.and_then(|orphaned| orphaned.why.clone()),
            reconciled: reconciled.map(|found| found.says),
            row,
            arguments,
            prompt,
            recorded,
            path,
            open,
            late,
            may_decide: standing.is_ok() || is_asked_as_well,
            why_not: standing.err().filter(|_| !is_asked_as_well),
            deciders,
            demands,
            rules,
            owner: run.facts.owner.clone(),
            driver: run.facts.driver,
            drift: Vec::new(),
            needs_sign_in,
            may_log_in,
        })
    }
}

/// Who may decide an open hold beside those whom the agent and the rules name: whoever it was escalated to, and whoever stands in
/// for somebody.
fn decide_as_well(hold: &Hold, now: Timestamp) -> Vec<String> {
    let escalated: Vec<String> =
        hold.escalated.iter().flat_map(|one| &one.to).map(ToString::to_string).collect();
    let escalated =
        (!escalated.is_empty()).then(|| format!("; and, asked as well, {}", escalated.join(", ")));
    let stands_in = hold.delegations.iter().filter(|one| now < one.until);
    let stands_in = stands_in.map(|one| format!("; and user:{} in the place of user:{}", one.to, one.by));
    escalated.into_iter().chain(stands_in).collect()
}

/// A question about a run of the loop that no call of it asks: the agent, its model or a tool is gone. A worker elsewhere
/// asks about a run as a whole, too, but such a run is its own.
fn is_asked_by_server(row: &HoldRow, run: &Run) -> bool {
    row.kind == HoldKind::Input && row.id.key.call == CallNo::RUN && run.facts.driver == Driver::Loop
}

/// What is known of a start of which nobody knows what it did, where a hold asks about one.
fn orphaned<'a>(row: &HoldRow, events: &'a [Envelope]) -> Option<&'a CallOrphaned> {
    if row.kind != HoldKind::Recovery {
        return None;
    }
    let before = events.iter().rev().filter(|envelope| envelope.seq < row.at);
    before.map(|envelope| &envelope.event).find_map(|event| match event {
        Event::CallOrphaned(orphaned) if orphaned.call == row.id.key.call => Some(orphaned),
        _ => None,
    })
}

/// The result of a run, and why it did not complete.
pub(crate) fn result_of(events: &[Envelope]) -> (Option<Body>, Option<String>) {
    let (mut result, mut reason) = (None, None);
    for envelope in events {
        if let Event::ModelReplied(replied) = &envelope.event {
            result = replied.reply.text.clone().or(result);
        } else if let Event::RunEnded(ended) = &envelope.event {
            (result, reason) = (ended.result.clone().or(result), ended.reason.clone());
        }
    }
    (result, reason)
}

/// Of an open hold what will run when it is approved now; of a decided one what was last shown.
fn arguments(row: &HoldRow, events: &[Envelope]) -> Option<RawJson> {
    let text = match &row.closed {
        None => stored_call(events, row.id.key.call)?.arguments,
        Some(_) => {
            let shown = receipt(row.id.key, events)?.shown.pop()?.arguments?;
            shown.inline()?.to_owned()
        }
    };
    RawJson::parse(&text).ok()
}

/// What the rules about effects that were started before begin with.
const EFFECT_RULES: &str = "effect:";

/// What people were asked when it opened.
pub(crate) fn asked(row: &HoldRow, events: &[Envelope]) -> Ask {
    let opened = events.iter().find(|envelope| envelope.seq == row.at);
    let Some(Event::HoldOpened(opened)) = opened.map(|envelope| &envelope.event) else {
        return Ask::default();
    };
    // Other arguments name other files.
    let edited = events.iter().rev().find_map(|envelope| {
        let Event::HoldEdited(edited) = &envelope.event else { return None };
        (edited.hold == opened.hold).then_some(edited)
    });
    let ask = opened.ask.clone();
    match edited {
        // What was said of the arguments before says nothing of these.
        Some(edited) => {
            // Nor does the name of an effect that they had.
            let mut rules = opened.judged.iter().flat_map(|judged| &judged.rules);
            let names_an_effect = rules.any(|rule| rule.as_str().starts_with(EFFECT_RULES));
            let before = ask.reason.filter(|_| !names_an_effect);
            let reason = name_files(edited.reason.clone().or(before), &edited.edited.files);
            Ask { reason, warning: None, stakes: edited.stakes.clone(), ..ask }
        }
        None => ask,
    }
}

/// Whether a decision came after the deadline.
fn is_late(at: Seq, events: &[Envelope]) -> bool {
    let decision = events.iter().find(|envelope| envelope.seq == at);
    decision.is_some_and(|one| matches!(&one.event, Event::HoldResolved(resolved) if resolved.late))
}

/// What each rule demands of those who decide; of a hold that is decided, what it demanded last.
pub(crate) fn demands(row: &HoldRow, run: &Run, events: &[Envelope]) -> Vec<Demand> {
    if let Some(open) = run.hold(row.id.key) {
        return open.demands.clone();
    }
    let last = events.iter().rev().find_map(|envelope| match &envelope.event {
        Event::HoldOpened(opened) if opened.hold == row.id.key => Some(opened.demands.clone()),
        Event::HoldEdited(edited) if edited.hold == row.id.key => Some(edited.demands.clone()),
        _ => None,
    });
    last.unwrap_or_default()
}

/// The rules that a hold is held by, as what was asked last was judged.
fn rules(row: &HoldRow, events: &[Envelope]) -> Vec<RuleId> {
    let last = events.iter().rev().find_map(|envelope| match &envelope.event {
        Event::HoldOpened(opened) if opened.hold == row.id.key => {
            Some(opened.judged.iter().flat_map(|judged| judged.rules.clone()).collect())
        }
        Event::HoldEdited(edited) if edited.hold == row.id.key => Some(edited.judged.rules.clone()),
        _ => None,
    });
    last.unwrap_or_default()
}

pub(crate) fn recorded(at: Seq, events: &[Envelope]) -> Option<RecordedDecision> {
    let envelope = events.iter().find(|envelope| envelope.seq == at)?;
    let Event::HoldResolved(resolved) = &envelope.event else { return None };
    Some(RecordedDecision {
        resolution: resolved.resolution.clone(),
        by: envelope.actor.clone(),
        at: envelope.at,
        idempotency_key: resolved.idempotency_key.clone(),
    })
}

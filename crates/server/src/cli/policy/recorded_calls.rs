//! The calls that a database has, as rules see them, and what came of each.
//!
//! Read from the logs of runs, which are verified on the way. What a tool says where no rule matches is the configuration's
//! word, or what was recorded of a tool that the configuration does not name.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::path::Path;

use standfast::config::Config;
use standfast_core::approver::Person;
use standfast_core::event::{Envelope, Event, RunStarted};
use standfast_core::hold::{HoldKind, Resolution};
use standfast_core::id::{CallNo, HoldKey, RunId};
use standfast_core::message::{PolicyVerdict, ToolCall};
use standfast_core::name::{AgentName, ToolName};
use standfast_core::policy::Effect;
use standfast_policy::backtest::RecordedOutcome;
use standfast_policy::call::{Call, ToolDefault};
use standfast_policy::value::Arguments;

use crate::cli::audit::AuditTarget;

/// A stored call.
#[derive(Debug)]
pub(super) struct Record {
    /// Its run and number.
    pub(super) id: String,
    pub(super) call: Call,
    pub(super) outcome: RecordedOutcome,
    /// What happened to it by what its tool said, where no rule had a say.
    pub(super) judged: Option<Effect>,
}

/// Every call of a database: this one, or the one of a configuration file.
pub(super) fn calls(database: Option<&Path>, config: &Path) -> Result<Vec<Record>, String> {
    let what = AuditTarget::new(database.map(Path::to_owned), config.to_owned());
    let mut records = Vec::new();
    what.export(None, |exported| {
        let events: Vec<&Envelope> = exported.links.iter().flat_map(|link| &link.events).collect();
        records.extend(of_run(exported.run, &events));
        ControlFlow::Continue(())
    })?;
    Ok(records)
}

/// What is known of a call so far.
struct Progress<'a> {
    call: &'a ToolCall,
    judged: Option<&'a PolicyVerdict>,
    outcome: RecordedOutcome,
}

fn of_run(run: RunId, events: &[&Envelope]) -> Vec<Record> {
    let mut started: Option<&RunStarted> = None;
    let mut calls: BTreeMap<CallNo, Progress<'_>> = BTreeMap::new();
    let mut kinds: HashMap<HoldKey, HoldKind> = HashMap::new();
    for envelope in events {
        match &envelope.event {
            Event::RunStarted(event) => started = Some(event),
            Event::ModelReplied(replied) => {
                calls.extend(replied.reply.calls.iter().map(|call| (call.no, proposed(call))));
            }
            Event::CallProposed(event) => drop(calls.insert(event.call.no, proposed(&event.call))),
            Event::HoldOpened(opened) => {
                kinds.insert(opened.hold, opened.kind);
                if let Some(call) = calls.get_mut(&opened.hold.call)
                    && opened.kind == HoldKind::Approval
                {
                    (call.judged, call.outcome) = (opened.judged.as_ref(), RecordedOutcome::Pending);
                }
            }
            Event::HoldResolved(resolved) => {
                let is_approval = kinds.get(&resolved.hold) == Some(&HoldKind::Approval);
                if let Some(call) = calls.get_mut(&resolved.hold.call).filter(|_| is_approval) {
                    call.outcome = outcome(&resolved.resolution);
                }
            }
            _ => {}
        }
    }
    let Some(started) = started else { return Vec::new() };
    calls.into_values().map(|call| record(run, started, &call)).collect()
}

fn proposed(call: &ToolCall) -> Progress<'_> {
    let outcome = if call.refused.is_some() { RecordedOutcome::Refused } else { RecordedOutcome::Ran };
    Progress { call, judged: call.judged.as_ref(), outcome }
}

fn outcome(resolution: &Resolution) -> RecordedOutcome {
    match resolution {
        Resolution::Approve { edited: Some(_) } => RecordedOutcome::Edited,
        Resolution::Approve { edited: None } | Resolution::Answer { .. } => RecordedOutcome::Approved,
        Resolution::Deny { .. } | Resolution::Fail { .. } => RecordedOutcome::Denied,
        Resolution::Expire => RecordedOutcome::Expired,
        Resolution::Withdraw | Resolution::Supersede => RecordedOutcome::Pending,
    }
}

fn record(run: RunId, started: &RunStarted, call: &Progress<'_>) -> Record {
    let says =
        |rule: &str| call.judged.is_some_and(|judged| judged.rules.iter().any(|one| one.as_str() == rule));
    let arguments = call.call.arguments.inline().unwrap_or_default();
    Record {
        id: format!("{run}:{}", call.call.no.0),
        call: Call {
            tool: call.call.tool.clone(),
            agent: started.agent.clone(),
            caller: Person::by_name(started.owner.clone()),
            session: Some(started.session.clone()),
            arguments: Arguments::parse(arguments),
        },
        outcome: call.outcome,
        judged: if says(standfast_engine::policy::REQUIRES_APPROVAL) {
            Some(Effect::Hold)
        } else if says(standfast_engine::policy::NEEDS_NO_APPROVAL) {
            Some(Effect::Allow)
        } else {
            None
        },
    }
}

/// What a tool says where no rule matches: by the configuration, else as it was recorded.
pub(super) fn tool_default(config: &Config, call: &Call, judged: Option<Effect>) -> ToolDefault {
    configured(config, Some(&call.agent), &call.tool).unwrap_or(match judged {
        Some(Effect::Allow) => ToolDefault::ReadOnly,
        Some(Effect::Hold | Effect::Deny) | None => ToolDefault::ChangesWorld,
    })
}

/// What a configuration says of a tool, of this agent or of any.
pub(super) fn configured(config: &Config, agent: Option<&AgentName>, tool: &ToolName) -> Option<ToolDefault> {
    let plans = config.agents.iter().filter(|plan| agent.is_none_or(|agent| agent.as_str() == plan.name));
    let plan = plans.flat_map(|plan| &plan.tools).find(|plan| plan.name == tool.as_str())?;
    let entry = config.file.tools.get(&plan.name);
    let said = entry.and_then(|entry| entry.common.requires_approval);
    Some(match (said, plan.asks) {
        (Some(true), _) => ToolDefault::RequiresApproval,
        (Some(false), _) => ToolDefault::NeedsNoApproval,
        (None, true) => ToolDefault::ChangesWorld,
        (None, false) => ToolDefault::ReadOnly,
    })
}

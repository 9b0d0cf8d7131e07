//! Rules become verdicts here, before the core is asked.
//!
//! Taken when the model replies and again directly before a call starts. What nobody judged is held by the core.

use standfast_core::command::AskedCall;
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::event::Driver;
use standfast_core::hold::Demand;
use standfast_core::id::CallNo;
use standfast_core::json::RawJson;
use standfast_core::message::FileDigest;
use standfast_core::name::{RuleId, ToolName, UserId};
use standfast_core::policy::{Effect, Verdict, Verdicts};
use standfast_core::run::{CallState, Run};

use crate::schema;
use crate::settings::{Agent, Tracking};
use crate::tool::Judgement;

/// Characters of the reason why arguments do not fit: it quotes them.
const WHY_CHARS: usize = 1_000;

/// The rule of tools that a person is asked about.
pub const REQUIRES_APPROVAL: &str = "tool:requires_approval";

/// The rule of tools that run without asking.
pub const NEEDS_NO_APPROVAL: &str = "tool:needs_no_approval";

/// The rule of tools that a person would be asked about if the agent's runs were tracked (C29).
pub const NO_TRACKING: &str = "agent:no_task_tracking";

/// C29: what the model is told when such a tool is denied.
pub const NOT_TRACKED: &str = "Tool requires approval but task tracking not enabled";

/// S0-30, C29: what whoever follows the run is told then (the sign, two spaces).
pub const DENYING: &str = "⚠️  Tool requires approval but task tracking not enabled, denying\n";

/// The rule of calls that an outside worker asks about before it runs them.
pub const WORKER_ASKS: &str = "worker:asks";

/// The rule of calls that an outside worker only tells of.
pub const WORKER_TELLS: &str = "worker:needs_no_approval";

/// The rule of calls whose arguments could not be read where a tool wants to judge them.
pub const ARGUMENTS_UNREAD: &str = "tool:arguments_unread";

/// The rule of calls whose arguments break the schema that the model was told.
pub const ARGUMENTS_BREAK_SCHEMA: &str = "tool:arguments_break_schema";

/// Verdicts on the calls of a reply, numbered as they will be.
#[must_use]
pub fn of_reply(agent: &Agent, definition: &Definition, run: &Run, calls: &[AskedCall]) -> Verdicts {
    let mut verdicts = Verdicts::default();
    for (no, call) in numbered(run, calls) {
        let Ok(tool) = ToolName::new(&call.tool) else { continue };
        let judged = judge(agent, definition, (&tool, &run.facts.owner), Some(&call.arguments));
        verdicts.by_call.extend(judged.into_iter().map(|verdict| (no, verdict)));
    }
    // One that holds may hold the whole turn. What nobody is asked about is shown to nobody.
    if verdicts.by_call.iter().any(|(_, verdict)| verdict.effect == Effect::Hold) {
        for (no, call) in numbered(run, calls) {
            let Ok(tool) = ToolName::new(&call.tool) else { continue };
            verdicts.files.extend(files(agent, &tool, &call.arguments).into_iter().map(|file| (no, file)));
            verdicts.warnings.extend(warning(agent, &tool, &call.arguments).map(|warning| (no, warning)));
        }
    }
    verdicts
}

/// Verdicts on a call that an outside worker proposes: what it says itself, and what the agent says that it works for, where
/// that is one of this server. The strictest wins.
#[must_use]
pub fn of_proposal(
    agent: Option<&Agent>,
    definition: &Definition,
    run: &Run,
    (call, asks): (&AskedCall, Effect),
) -> Verdicts {
    let calls = std::slice::from_ref(call);
    let mut verdicts = agent.map(|agent| of_reply(agent, definition, run, calls)).unwrap_or_default();
    let rule = match asks {
        Effect::Hold | Effect::Deny => WORKER_ASKS,
        Effect::Allow => WORKER_TELLS,
    };
    let said = RuleId::new(rule).ok().map(|rule| Verdict::new(asks, rule));
    let no = CallNo(run.state.calls_made + 1);
    verdicts.by_call.extend(said.map(|verdict| (no, verdict)));
    verdicts
}

/// The calls of a reply, numbered as they will be.
pub fn numbered<'a>(run: &Run, calls: &'a [AskedCall]) -> impl Iterator<Item = (CallNo, &'a AskedCall)> {
    (run.state.calls_made + 1..).map(CallNo).zip(calls)
}

/// The files that a call names, as they are now.
fn files(agent: &Agent, tool: &ToolName, arguments: &str) -> Vec<FileDigest> {
    agent.tools.get(tool).map(|tool| tool.files(arguments)).unwrap_or_default()
}

/// What people should know of a call.
fn warning(agent: &Agent, tool: &ToolName, arguments: &str) -> Option<String> {
    agent.tools.get(tool)?.warning(arguments)
}

/// Verdicts on the calls of the current turn, as of now, with the arguments that they would run with. Of an agent that
/// is no longer configured nobody judges anything.
#[must_use]
pub fn of_run(
    agent: Option<&Agent>,
    definition: &Definition,
    run: &Run,
    arguments: impl Fn(CallNo) -> Option<String>,
) -> Verdicts {
    let mut verdicts = Verdicts::default();
    if run.facts.driver == Driver::Outside && definition.tools.is_empty() {
        // Of its own tools a worker has said that somebody is to be asked; what they change is theirs to decide.
        let rule = RuleId::new(WORKER_ASKS).ok();
        let asks = rule.map(|rule| Verdict::new(Effect::Hold, rule));
        verdicts.by_call.extend(run.state.calls.iter().filter_map(|call| Some((call.no, asks.clone()?))));
    }
    let Some(agent) = agent else { return verdicts };
    for call in &run.state.calls {
        let arguments = arguments(call.no);
        let judged = judge(agent, definition, (&call.tool, &run.facts.owner), arguments.as_deref());
        verdicts.by_call.extend(judged.into_iter().map(|verdict| (call.no, verdict)));
        let is_approved = call.state == CallState::Ready && !call.satisfied.is_empty();
        if let Some(arguments) = arguments.filter(|_| is_approved || call.state == CallState::Held) {
            let files = files(agent, &call.tool, &arguments);
            verdicts.files.extend(files.into_iter().map(|file| (call.no, file)));
            let warning = warning(agent, &call.tool, &arguments);
            verdicts.warnings.extend(warning.map(|warning| (call.no, warning)));
        }
    }
    verdicts
}

/// What the agent's settings say, and what the tool itself says of the arguments and of how the run was told of it; the
/// core lets the strictest win. A tool that the agent does not have any more is judged by nobody: the core holds or refuses it.
fn judge(
    agent: &Agent,
    definition: &Definition,
    (name, owner): (&ToolName, &UserId),
    arguments: Option<&str>,
) -> Vec<Verdict> {
    let Some(tool) = agent.tools.get(name) else { return Vec::new() };
    let by_settings = if agent.needs_approval.contains(name) {
        (Effect::Hold, REQUIRES_APPROVAL, None)
    } else {
        (Effect::Allow, NEEDS_NO_APPROVAL, None)
    };
    let by_tool = match arguments.map(|arguments| tool.judge(arguments)) {
        Some(Judgement::Allow) => None,
        Some(Judgement::Ask(why)) => Some((Effect::Hold, why.rule, Some(why.reason))),
        Some(Judgement::Forbid(why)) => Some((Effect::Deny, why.rule, Some(why.reason))),
        None => Some((Effect::Hold, ARGUMENTS_UNREAD, None)),
    };
    let shown = definition.tools.get(name);
    let by_schema = shown.zip(arguments).and_then(|(shown, arguments)| misfit(shown, arguments));
    let by_schema = by_schema.map(|why| (Effect::Deny, ARGUMENTS_BREAK_SCHEMA, Some(why)));
    let changed = shown.and_then(|shown| tool.changed(shown, owner));
    let by_change =
        changed.as_ref().map(|changed| (Effect::Hold, changed.rule.as_str(), Some(changed.reason.clone())));
    let verdict = |(effect, rule, reason): (Effect, &str, Option<String>)| {
        let (effect, rule, reason, note) = match (effect, agent.tracking) {
            (Effect::Hold, Tracking::Off) => {
                (Effect::Deny, NO_TRACKING, Some(NOT_TRACKED.to_owned()), Some(DENYING.to_owned()))
            }
            (Effect::Hold | Effect::Allow | Effect::Deny, Tracking::On | Tracking::Off) => {
                (effect, rule, reason, None)
            }
        };
        Some(Verdict { reason, note, ..Verdict::new(effect, RuleId::new(rule).ok()?) })
    };
    std::iter::once(by_settings)
        .chain(by_tool)
        .chain(by_schema)
        .chain(by_change)
        .filter_map(verdict)
        .map(|verdict| with_quorum(agent, name, verdict))
        .collect()
}

/// Where several people must agree before a call of a tool runs, its approval says so.
fn with_quorum(agent: &Agent, tool: &ToolName, verdict: Verdict) -> Verdict {
    let quorum = agent.quorum.get(tool).copied().filter(|_| verdict.rule.as_str() == REQUIRES_APPROVAL);
    match quorum {
        Some(quorum) => {
            let demand = Demand { quorum, ..Demand::of(verdict.rule.clone()) };
            Verdict { votes: quorum, demand: Some(demand), ..verdict }
        }
        None => verdict,
    }
}

/// How arguments break the schema of their tool, for the model to repair; none when they keep to it. What is not JSON is
/// refused by the core, and a schema that cannot be used is its tool's own business.
fn misfit(shown: &ToolSpec, arguments: &str) -> Option<String> {
    let arguments = RawJson::parse(arguments).ok()?;
    let broken = schema::misfit(&shown.schema, &arguments)?;
    let place = if broken.pointer.is_empty() { String::new() } else { format!(" at {}", broken.pointer) };
    let why: String = broken.why.chars().take(WHY_CHARS).collect();
    Some(format!("not executed: the arguments do not match the tool's schema{place}: {why}"))
}

//! Rules become verdicts here, before the core is asked.
//!
//! Taken when the model replies and again directly before a call starts. What nobody judged is held by the core.

use holdpoint_core::command::AskedCall;
use holdpoint_core::id::CallNo;
use holdpoint_core::name::{RuleId, ToolName};
use holdpoint_core::policy::{Effect, Verdict, Verdicts};
use holdpoint_core::run::Run;

use crate::settings::{Agent, Tracking};

/// The rule of tools that a person is asked about.
pub const REQUIRES_APPROVAL: &str = "tool:requires_approval";

/// The rule of tools that run without asking.
pub const NEEDS_NO_APPROVAL: &str = "tool:needs_no_approval";

/// The rule of tools that a person would be asked about if the agent's runs were tracked (C29).
pub const NO_TRACKING: &str = "agent:no_task_tracking";

/// C29: what the model is told when such a tool is denied.
pub const NOT_TRACKED: &str = "Tool requires approval but task tracking not enabled";

/// Verdicts on the calls of a reply, numbered as they will be.
#[must_use]
pub fn of_reply(agent: &Agent, run: &Run, calls: &[AskedCall]) -> Verdicts {
    let numbers = (run.state.calls_made + 1..).map(CallNo);
    let judged = numbers
        .zip(calls)
        .filter_map(|(no, call)| Some((no, judge(agent, &ToolName::new(&call.tool).ok()?)?)));
    Verdicts { policy: None, by_call: judged.collect() }
}

/// Verdicts on the calls of the current turn, as of now.
#[must_use]
pub fn of_run(agent: &Agent, run: &Run) -> Verdicts {
    let judged = run.state.calls.iter().filter_map(|call| Some((call.no, judge(agent, &call.tool)?)));
    Verdicts { policy: None, by_call: judged.collect() }
}

fn judge(agent: &Agent, tool: &ToolName) -> Option<Verdict> {
    let (effect, rule, reason) = match (agent.needs_approval.contains(tool), agent.tracking) {
        (false, _) => (Effect::Allow, NEEDS_NO_APPROVAL, None),
        (true, Tracking::On) => (Effect::Hold, REQUIRES_APPROVAL, None),
        (true, Tracking::Off) => (Effect::Deny, NO_TRACKING, Some(NOT_TRACKED.to_owned())),
    };
    // A tool that the agent does not have any more is judged by nobody: the core holds or refuses it.
    agent.tools.get(tool)?;
    Some(Verdict { reason, ..Verdict::new(effect, RuleId::new(rule).ok()?) })
}

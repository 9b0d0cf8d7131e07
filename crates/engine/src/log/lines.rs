//! What the operator's log says of runs: one line for each event that people look for, once it is durable.
//!
//! Started, held, decided, a tool started and ended, ended. Nothing is made of an event when the level is off. What models,
//! tools and people wrote is not in a line: it may be long, and it may be secret; the event log of the run has it. Who asked
//! and from where is said by the span of the request.

use standfast_core::event::{Envelope, Event, Outcome};
use standfast_core::id::CallNo;
use standfast_core::message::ToolResult;
use standfast_core::name::ToolName;
use standfast_core::project::ResolutionKind;
use standfast_core::reconcile::EffectAnswer;
use standfast_core::run::Run;
use tracing::field::display;

/// Logs what these events of a run say. They are durable, and `run` is the run with them.
pub(crate) fn log_events(run: &Run, events: &[Envelope]) {
    if tracing::enabled!(tracing::Level::INFO) {
        events.iter().for_each(|envelope| log_event(run, envelope));
    }
}

fn log_event(run: &Run, envelope: &Envelope) {
    let Envelope { actor, event, .. } = envelope;
    let (id, agent) = (run.facts.id, &run.facts.agent);
    match event {
        Event::RunStarted(started) => {
            let user = &started.owner;
            let parent_run = started.parent.as_ref().map(|parent| display(parent.run));
            tracing::info!(run = %id, %agent, %user, by = %actor, parent_run, "runs: started");
        }
        Event::HoldOpened(opened) => {
            let (hold, kind) = (run.hold_id(opened.hold), opened.kind.as_str());
            let tool = tool(run, opened.hold.call).map(display);
            tracing::info!(run = %id, %hold, kind, %agent, tool, "holds: opened");
        }
        Event::HoldResolved(resolved) => {
            let (hold, how) =
                (run.hold_id(resolved.hold), ResolutionKind::from(&resolved.resolution).as_str());
            let tool = tool(run, resolved.hold.call).map(display);
            tracing::info!(run = %id, %hold, how, by = %actor, %agent, tool, late = resolved.late, "holds: decided");
        }
        Event::CallStarted(started) => {
            let (call, attempt) = (started.call.0, started.attempt);
            let tool = tool(run, started.call).map(display);
            tracing::info!(run = %id, call, tool, attempt, "calls: started");
        }
        Event::CallFinished(finished) => {
            let (call, attempt) = (finished.call.0, finished.attempt);
            let tool = tool(run, finished.call).map(display);
            let result = match (&finished.result, attempt) {
                (_, 0) => "not started",
                (ToolResult::Ok(_), _) => "ok",
                (ToolResult::Failed(_), _) => "failed",
            };
            tracing::info!(run = %id, call, tool, attempt, result, "calls: ended");
        }
        Event::CallOrphaned(orphaned) => {
            let (call, attempt) = (orphaned.call.0, orphaned.attempt);
            let tool = tool(run, orphaned.call).map(display);
            let says = orphaned.reconciled.as_ref().map(|found| found.says);
            match says {
                Some(EffectAnswer::Happened) => {
                    tracing::info!(run = %id, call, tool, attempt, "calls: outcome lost and looked up; it happened");
                }
                Some(EffectAnswer::DidNotHappen | EffectAnswer::CannotTell) | None => {
                    let says = says.map(EffectAnswer::as_str);
                    tracing::warn!(run = %id, call, tool, attempt, says, "calls: outcome unknown");
                }
            }
        }
        Event::CallContradicted(late) => {
            let (call, attempt) = (late.call.0, late.attempt);
            let tool = tool(run, late.call).map(display);
            tracing::warn!(run = %id, call, tool, attempt, "calls: a result contradicts the recorded one");
        }
        Event::RunEnded(ended) => {
            let outcome = match ended.outcome {
                Outcome::Completed => "completed",
                Outcome::Failed => "failed",
                Outcome::Canceled => "canceled",
                Outcome::Rejected => "rejected",
            };
            tracing::info!(run = %id, %agent, outcome, by = %actor, "runs: ended");
        }
        _ => {}
    }
}

/// The tool of a call, as long as its turn lasts.
fn tool(run: &Run, call: CallNo) -> Option<&ToolName> {
    run.call(call).map(|call| &call.tool)
}

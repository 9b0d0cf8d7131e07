//! Calls of a worker elsewhere, told from the events of its task; and what it sends of them.
//!
//! What is to be run is the input as it was last shown and approved: an edit takes the place of what was asked for.

use serde_json::value::RawValue;
use standfast_core::body::Body;
use standfast_core::event::{Envelope, Event};
use standfast_core::hold::Resolution;
use standfast_core::id::{CallId, CallNo, HoldId, RunId};
use standfast_core::message::{ToolCall, ToolResult};
use standfast_core::policy::Effect;
use standfast_engine::{ProposedCall, TaskView};

use super::{json, raw, value};
use crate::http::Problem;
use crate::inbox::wire::{Call, CallResult, CallStatus, NewCall};

/// Bytes of what a worker calls a call, and of why it wants it.
const TEXT_MAX: usize = 4_096;

/// What a worker wants to run, as the engine takes it.
pub(in crate::inbox) fn proposal(body: &NewCall) -> Result<ProposedCall, Problem> {
    let fits = |name: &str, text: &Option<String>| match text {
        Some(text) if text.len() > TEXT_MAX => {
            Err(Problem::invalid(format!("{name} must have at most {TEXT_MAX} bytes")))
        }
        Some(_) | None => Ok(()),
    };
    fits("callId", &body.call_id)?;
    fits("context", &body.context)?;
    standfast_core::name::ToolName::new(&body.tool)
        .map_err(|bad| Problem::invalid(format!("tool: {bad}")))?;
    let schema = body.input_schema.as_ref().map(|schema| json("inputSchema", schema)).transpose()?;
    if let Some(schema) = &schema {
        let wrong = |why: String| Problem::invalid(format!("inputSchema: {why}"));
        standfast_engine::schema::is_usable(schema).map_err(wrong)?;
    }
    Ok(ProposedCall {
        id: body.call_id.clone().unwrap_or_default(),
        tool: body.tool.clone(),
        arguments: json("input", &body.input)?.text().to_owned(),
        context: body.context.as_ref().map(Body::text),
        asks: if body.requires_approval == Some(false) { Effect::Allow } else { Effect::Hold },
        schema,
    })
}

/// What came of a call, as the engine takes it.
pub(in crate::inbox) fn call_result(body: &CallResult) -> Result<ToolResult, Problem> {
    match (&body.result, &body.error) {
        (Some(result), None) => Ok(ToolResult::Ok(value("result", result)?)),
        (None, Some(error)) => Ok(ToolResult::Failed(Body::text(error))),
        (Some(_), Some(_)) | (None, None) => {
            Err(Problem::invalid("the body has either a result or an error"))
        }
    }
}

/// The calls that workers asked for, oldest first.
pub(in crate::inbox) fn calls(task: &TaskView) -> Vec<Call> {
    let run = task.run.facts.id;
    let mut all: Vec<(CallNo, Call)> = Vec::new();
    for Envelope { event, .. } in &task.events {
        if let Event::CallProposed(proposed) = event {
            all.push((proposed.call.no, asked(run, &proposed.call)));
        } else if let Some((no, change)) = change(run, event)
            && let Some((_, call)) = all.iter_mut().find(|(known, _)| *known == no)
        {
            change(call);
        }
    }
    all.into_iter().map(|(_, call)| call).collect()
}

fn asked(run: RunId, call: &ToolCall) -> Call {
    Call {
        id: CallId { run, no: call.no }.to_string(),
        call_id: Some(call.id.clone()).filter(|id| !id.is_empty()),
        tool: call.tool.to_string(),
        input: raw(&call.arguments).unwrap_or_else(|| RawValue::NULL.to_owned()),
        status: if call.refused.is_some() { CallStatus::Refused } else { CallStatus::Approved },
        hold_id: None,
        reason: call.refused.clone(),
        result: None,
        error: None,
    }
}

/// A change of a call.
type CallChange<'a> = Box<dyn FnOnce(&mut Call) + 'a>;

/// What an event changes of a call.
fn change(run: RunId, event: &Event) -> Option<(CallNo, CallChange<'_>)> {
    if let Event::HoldOpened(opened) = event {
        let hold = HoldId { run, key: opened.hold }.to_string();
        return Some((
            opened.hold.call,
            Box::new(move |call| {
                call.status = CallStatus::WaitingForApproval;
                call.hold_id = Some(hold);
            }),
        ));
    }
    if let Event::HoldEdited(edited) = event {
        let input = raw(&edited.edited.arguments);
        return Some((edited.hold.call, Box::new(move |call| replace(call, input))));
    }
    if let Event::HoldResolved(resolved) = event {
        return Some((resolved.hold.call, Box::new(|call| decided(call, &resolved.resolution))));
    }
    if let Event::CallFinished(finished) = event {
        let (status, result, error) = match &finished.result {
            ToolResult::Ok(result) => (CallStatus::Completed, raw(result), None),
            ToolResult::Failed(error) => (CallStatus::Failed, None, raw(error)),
        };
        return Some((
            finished.call,
            Box::new(move |call| {
                (call.status, call.result, call.error) = (status, result, error);
            }),
        ));
    }
    if let Event::CallOrphaned(orphaned) = event {
        return Some((orphaned.call, Box::new(|call| call.status = CallStatus::Unknown)));
    }
    None
}

fn replace(call: &mut Call, input: Option<Box<RawValue>>) {
    if let Some(input) = input {
        call.input = input;
    }
}

fn decided(call: &mut Call, resolution: &Resolution) {
    call.hold_id = None;
    call.status = match resolution {
        Resolution::Approve { edited } => {
            replace(call, edited.as_ref().and_then(|edited| raw(&edited.arguments)));
            CallStatus::Approved
        }
        Resolution::Deny { reason } => {
            call.reason.clone_from(reason);
            CallStatus::Denied
        }
        Resolution::Answer { .. } => CallStatus::Completed,
        Resolution::Fail { .. } => CallStatus::Failed,
        Resolution::Expire => CallStatus::Expired,
        Resolution::Withdraw | Resolution::Supersede => CallStatus::Cancelled,
    };
}

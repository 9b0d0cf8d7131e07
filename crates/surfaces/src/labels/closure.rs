//! What those who follow a run read of a hold that ended without its call going on: the same words over every protocol.
//!
//! Where they stand, and which of them a protocol says in a form of its own, is for its `map.rs`.

use standfast_core::event::{Envelope, Event, HoldResolved};
use standfast_core::hold::Resolution;

/// What followers get of a hold that ended without its call going on; none when it goes on.
pub(crate) fn closure<'a>(
    resolved: &HoldResolved,
    events: impl DoubleEndedIterator<Item = &'a Envelope>,
) -> Option<String> {
    let call = resolved.hold.call;
    let asked = |envelope: &'a Envelope| {
        if let Event::ModelReplied(replied) = &envelope.event {
            replied.reply.calls.iter().find(|asked| asked.no == call)
        } else if let Event::CallProposed(proposed) = &envelope.event {
            Some(&proposed.call).filter(|asked| asked.no == call)
        } else {
            None
        }
    };
    let tool = events.rev().find_map(asked).map(|asked| &asked.tool);
    let what = tool.map_or("what was asked".to_owned(), |tool| format!("the call of {tool}"));
    match &resolved.resolution {
        Resolution::Deny { reason } => {
            let why = reason.as_ref().map_or(String::new(), |reason| format!(" ({reason})"));
            Some(format!("Denied: {what} was not executed{why}"))
        }
        Resolution::Expire => Some(format!("Expired: nobody decided about {what} in time")),
        Resolution::Withdraw => Some(format!("Withdrawn: {what} is no longer waited for")),
        Resolution::Supersede => Some(format!("Superseded: a newer message took the place of {what}")),
        Resolution::Approve { .. } | Resolution::Answer { .. } | Resolution::Fail { .. } => None,
    }
}

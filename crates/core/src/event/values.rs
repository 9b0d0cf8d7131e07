//! The values in events that people, models or tools wrote: found, moved out when they are large, put back.
//!
//! What an event means is not known here, only where its values stand.

use super::{Event, ReleaseReason};
use crate::body::{Blob, BlobRef, Body, WrongBlob};
use crate::hold::Resolution;
use crate::message::{Message, ToolResult};

impl Event {
    /// Moves large values out of the event; what comes back is for the store.
    pub fn outsource(&mut self) -> Vec<Blob> {
        let mut blobs = Vec::new();
        self.bodies(&mut |body| blobs.extend(body.outsource()));
        blobs
    }

    /// The large values that the event names.
    #[must_use]
    pub fn blobs(&self) -> Vec<BlobRef> {
        let mut names = Vec::new();
        self.clone().bodies(&mut |body| names.extend(body.blob().copied()));
        names
    }

    /// Puts the large value with this name back in its places.
    pub fn fill(&mut self, name: &BlobRef, text: &str) -> Result<(), WrongBlob> {
        let mut result = Ok(());
        self.bodies(&mut |body| {
            if body.blob() == Some(name) {
                result = std::mem::replace(&mut result, Ok(())).and_then(|()| body.fill(text));
            }
        });
        result
    }

    /// Visits every value that people, models or tools wrote.
    fn bodies(&mut self, visit: &mut dyn FnMut(&mut Body)) {
        match self {
            Event::RunStarted(started) => {
                started.inbox.iter_mut().filter_map(|i| i.metadata.as_mut()).for_each(visit);
            }
            Event::RunReleased(released) => match &mut released.why {
                ReleaseReason::Failed(body) => visit(body),
                ReleaseReason::Returned | ReleaseReason::Lapsed | ReleaseReason::Suspended => {}
            },
            Event::RunEnded(ended) => ended.result.iter_mut().for_each(visit),
            Event::MessageReceived(received) | Event::MessageQueued(received) => {
                written(&mut received.message, visit);
            }
            Event::ModelReplied(replied) => {
                let reply = &mut replied.reply;
                reply.text.iter_mut().for_each(&mut *visit);
                reply.parts.iter_mut().for_each(|part| visit(part.body()));
                reply.calls.iter_mut().for_each(|call| visit(&mut call.arguments));
                reply.opaque.iter_mut().for_each(visit);
            }
            Event::ModelFailed(failed) => visit(&mut failed.error),
            Event::CallProposed(proposed) => {
                visit(&mut proposed.call.arguments);
                proposed.context.iter_mut().for_each(visit);
            }
            Event::CallProgressed(progressed) => visit(&mut progressed.note),
            Event::CallFinished(finished) | Event::CallContradicted(finished) => match &mut finished.result {
                ToolResult::Ok(body) | ToolResult::Failed(body) => visit(body),
            },
            Event::HoldOpened(opened) => {
                let ask = &mut opened.ask;
                ask.resume.iter_mut().for_each(|state| visit(state));
                [&mut ask.question, &mut ask.data, &mut ask.interim].into_iter().flatten().for_each(visit);
            }
            Event::HoldVoted(voted) => {
                voted.message.iter_mut().for_each(|message| written(message, visit));
            }
            Event::HoldEdited(edited) => {
                visit(&mut edited.edited.arguments);
                edited.message.iter_mut().for_each(|message| written(message, visit));
            }
            Event::HoldResolved(resolved) => {
                match &mut resolved.resolution {
                    Resolution::Approve { edited: Some(edited) } => visit(&mut edited.arguments),
                    Resolution::Answer { value: body } | Resolution::Fail { error: body } => visit(body),
                    Resolution::Approve { edited: None }
                    | Resolution::Deny { .. }
                    | Resolution::Expire
                    | Resolution::Withdraw
                    | Resolution::Supersede => {}
                }
                resolved.message.iter_mut().for_each(|message| written(message, visit));
            }
            Event::RunClaimed(_)
            | Event::RunRepinned(_)
            | Event::RunErased(_)
            | Event::CallStarted(_)
            | Event::CallReturned(_)
            | Event::CallOrphaned(_)
            | Event::HoldAssigned(_)
            | Event::HoldReminded(_)
            | Event::HoldExpired(_)
            | Event::HoldReopened(_)
            | Event::HoldEscalated(_)
            | Event::HoldDelegated(_) => {}
        }
    }
}

/// Visits what somebody wrote in a message.
fn written(message: &mut Message, visit: &mut dyn FnMut(&mut Body)) {
    message.parts.iter_mut().for_each(|part| visit(part.body()));
    message.metadata.iter_mut().for_each(visit);
}

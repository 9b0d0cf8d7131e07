//! The values in events that people, models or tools wrote: found, moved out when they are large, put back.
//!
//! What an event means is not known here, only where its values stand.

use super::{Event, ReleaseReason};
use crate::body::{Blob, BlobRef, Body, INLINE_MAX, WrongBlob};
use crate::hold::Resolution;
use crate::message::{Message, ToolResult};

impl Event {
    /// Moves large values out of the event; what comes back is for the store.
    pub fn outsource(&mut self) -> Vec<Blob> {
        let mut blobs = Vec::new();
        self.bodies_mut(&mut |body| blobs.extend(body.outsource()));
        blobs
    }

    /// Whether it has a value that belongs beside the log.
    #[must_use]
    pub fn has_large_values(&self) -> bool {
        let mut has_some = false;
        self.bodies(&mut |body| has_some |= body.inline().is_some_and(|text| text.len() > INLINE_MAX));
        has_some
    }

    /// The large values that the event names.
    #[must_use]
    pub fn blobs(&self) -> Vec<BlobRef> {
        let mut names = Vec::new();
        self.bodies(&mut |body| names.extend(body.blob().copied()));
        names
    }

    /// Puts the large value with this name back in its places.
    pub fn fill(&mut self, name: &BlobRef, text: &str) -> Result<(), WrongBlob> {
        let mut result = Ok(());
        self.bodies_mut(&mut |body| {
            if body.blob() == Some(name) {
                result = std::mem::replace(&mut result, Ok(())).and_then(|()| body.fill(text));
            }
        });
        result
    }
}

/// The same walk twice, to look and to change: nothing is copied for a look.
macro_rules! visits_bodies {
    ($bodies:ident, $written:ident, $body:ident, $iter:ident $(, $mutable:tt)?) => {
        impl Event {
            /// Visits every value that people, models or tools wrote.
            fn $bodies(& $($mutable)? self, visit: &mut dyn FnMut(& $($mutable)? Body)) {
                match self {
                    Event::RunStarted(started) => {
                        let inbox = & $($mutable)? started.inbox;
                        inbox.$iter().flat_map(|inbox| inbox.metadata.$iter()).for_each(visit);
                    }
                    Event::RunReleased(released) => match & $($mutable)? released.why {
                        ReleaseReason::Failed(body) => visit(body),
                        ReleaseReason::Returned | ReleaseReason::Lapsed | ReleaseReason::Suspended => {}
                    },
                    Event::RunEnded(ended) => ended.result.$iter().for_each(visit),
                    Event::MessageReceived(received) | Event::MessageQueued(received) => {
                        $written(& $($mutable)? received.message, visit);
                    }
                    Event::ModelReplied(replied) => {
                        let reply = & $($mutable)? replied.reply;
                        reply.text.$iter().for_each(&mut *visit);
                        reply.parts.$iter().for_each(|part| visit(part.$body()));
                        reply.calls.$iter().for_each(|call| visit(& $($mutable)? call.arguments));
                        reply.opaque.$iter().for_each(visit);
                    }
                    Event::ModelFailed(failed) => visit(& $($mutable)? failed.error),
                    Event::CallProposed(proposed) => {
                        visit(& $($mutable)? proposed.call.arguments);
                        proposed.context.$iter().for_each(visit);
                    }
                    Event::CallProgressed(progressed) => visit(& $($mutable)? progressed.note),
                    Event::CallFinished(finished) | Event::CallContradicted(finished) => {
                        match & $($mutable)? finished.result {
                            ToolResult::Ok(body) | ToolResult::Failed(body) => visit(body),
                        }
                    }
                    Event::HoldOpened(opened) => {
                        let ask = & $($mutable)? opened.ask;
                        ask.resume.$iter().for_each(|state| visit(state));
                        [& $($mutable)? ask.question, & $($mutable)? ask.data, & $($mutable)? ask.interim]
                            .into_iter()
                            .flatten()
                            .for_each(visit);
                    }
                    Event::HoldVoted(voted) => {
                        voted.message.$iter().for_each(|message| $written(message, visit));
                    }
                    Event::HoldEdited(edited) => {
                        visit(& $($mutable)? edited.edited.arguments);
                        edited.message.$iter().for_each(|message| $written(message, visit));
                    }
                    Event::HoldResolved(resolved) => {
                        match & $($mutable)? resolved.resolution {
                            Resolution::Approve { edited: Some(edited) } => {
                                visit(& $($mutable)? edited.arguments);
                            }
                            Resolution::Answer { value: body } | Resolution::Fail { error: body } => visit(body),
                            Resolution::Approve { edited: None }
                            | Resolution::Deny { .. }
                            | Resolution::Expire
                            | Resolution::Withdraw
                            | Resolution::Supersede => {}
                        }
                        resolved.message.$iter().for_each(|message| $written(message, visit));
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
        fn $written(message: & $($mutable)? Message, visit: &mut dyn FnMut(& $($mutable)? Body)) {
            message.parts.$iter().for_each(|part| visit(part.$body()));
            message.metadata.$iter().for_each(visit);
        }
    };
}

visits_bodies!(bodies, written, body, iter);
visits_bodies!(bodies_mut, written_mut, body_mut, iter_mut, mut);

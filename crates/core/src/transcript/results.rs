//! The outcome of each call of a run, followed through its events.
//!
//! One walk over the log serves the transcript, the receipt and the execution state, so that they cannot tell
//! different stories. What nobody knows is said to be unknown, never guessed: a start whose outcome was not told, or
//! a job that an outside system had, may have run.

use std::collections::BTreeMap;

use serde::Serialize;

use super::ResultKind;
use crate::body::Body;
use crate::event::{
    AfterOrphan, CallFinished, CallOrphaned, CallStarted, Driver, Envelope, Event, HoldOpened, HoldResolved,
};
use crate::hold::{EditedArguments, HoldKind, Resolution};
use crate::id::{CallNo, HoldKey, Seq};
use crate::json::RawJson;
use crate::message::{ToolCall, ToolResult};

/// The calls of a run and what became of each.
pub(crate) struct CallTracks<'a> {
    pub(crate) calls: BTreeMap<CallNo, Track<'a>>,
    pub(crate) driver: Driver,
    /// The end of the run.
    pub(crate) ended_at: Option<Seq>,
    holds: Vec<(HoldKey, HoldKind)>,
}

/// One call, as the events left it.
pub(crate) struct Track<'a> {
    pub(crate) call: &'a ToolCall,
    /// Its arguments, if a person changed them.
    pub(crate) edited: Option<&'a EditedArguments>,
    /// The same, as they were when the call last left our hands.
    pub(crate) sent: Option<&'a EditedArguments>,
    /// Somebody has started it and not reported.
    pub(crate) is_running: bool,
    /// Whoever may run it says that nothing has happened.
    is_given_back: bool,
    came_to: Option<CallConclusion>,
    /// Starts of which nobody has told what they did.
    untold: Vec<u32>,
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallConclusion {
    pub(crate) kind: ResultKind,
    pub(crate) ran: Execution,
    pub(crate) content: Body,
}

/// Whether a call had its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Execution {
    Yes,
    No,
    Perhaps,
}

/// S2-33: the text of an outside job that did not report in time.
const JOB_TIMEOUT: &str = "Tool execution timed out";
/// S3-28: the text when a person did not answer in time; the run that fails of it says the same.
const PERSON_TIMEOUT: &str = "timeout waiting for user input";

/// Walks over all events of a run.
pub(crate) fn follow(events: &[Envelope]) -> CallTracks<'_> {
    let driver = Driver::default();
    let mut followed = CallTracks { calls: BTreeMap::new(), driver, ended_at: None, holds: Vec::new() };
    events.iter().for_each(|envelope| followed.see(envelope));
    followed
}

impl<'a> CallTracks<'a> {
    /// What a hold of the run waits, or waited, for.
    pub(crate) fn kind_of(&self, key: HoldKey) -> Option<HoldKind> {
        self.holds.iter().find(|(hold, _)| *hold == key).map(|(_, kind)| *kind)
    }

    /// The outcome of the call; when the run has ended, that is something for every call.
    pub(crate) fn result(&self, track: &Track<'a>) -> Option<CallConclusion> {
        match (&track.came_to, self.ended_at) {
            (Some(came_to), _) => Some(came_to.clone()),
            (None, None) => None,
            (None, Some(_)) => Some(self.left_behind(track)),
        }
    }

    /// A call without a result in a run that has ended.
    fn left_behind(&self, track: &Track<'a>) -> CallConclusion {
        if track.is_running {
            unknown("outcome unknown: the run ended while the call was running")
        } else if !track.untold.is_empty() {
            unknown("outcome unknown: the call was started, and nobody knows what it did")
        } else if self.driver.is_elsewhere() && !track.is_given_back {
            unknown("outcome unknown: the worker was allowed to run the call and never reported")
        } else {
            not_run(ResultKind::Canceled, Some("not executed: the run ended first"), &[])
        }
    }

    fn see(&mut self, envelope: &'a Envelope) {
        match &envelope.event {
            Event::RunStarted(started) => self.driver = started.driver,
            Event::RunEnded(_) => self.ended_at = Some(envelope.seq),
            Event::ModelReplied(replied) => replied.reply.calls.iter().for_each(|call| self.add(call)),
            Event::CallProposed(proposed) => self.add(&proposed.call),
            Event::CallStarted(started) => self.with(started.call, |track| track.start(started)),
            Event::CallReturned(returned) => self.with(returned.call, |track| {
                track.is_running = false;
                track.is_given_back = true;
                track.untold.retain(|attempt| *attempt != returned.attempt);
            }),
            Event::CallFinished(finished) => {
                let driver = self.driver;
                self.with(finished.call, |track| track.finish(finished, driver));
            }
            Event::CallOrphaned(orphaned) => {
                let driver = self.driver;
                self.with(orphaned.call, |track| track.orphan(orphaned, driver));
            }
            Event::HoldOpened(opened) => {
                // An answer that the tool goes on with is not a result, nor is a login.
                let kind = if opened.ask.resume.is_some() { HoldKind::Auth } else { opened.kind };
                self.holds.push((opened.hold, kind));
                self.with(opened.hold.call, |track| track.open(opened));
            }
            // Asked again, it runs with what it had.
            Event::HoldEdited(edited) if edited.asked_again => {}
            Event::HoldEdited(edited) => self.with(edited.hold.call, |track| track.edit(&edited.edited)),
            Event::HoldResolved(resolved) => {
                if let Some(kind) = self.kind_of(resolved.hold) {
                    self.with(resolved.hold.call, |track| track.resolve(kind, resolved));
                }
            }
            // What contradicts a person's word is for the receipt: the model goes by that word.
            Event::CallContradicted(_)
            | Event::RunClaimed(_)
            | Event::RunReleased(_)
            | Event::RunRepinned(_)
            | Event::RunErased(_)
            | Event::MessageReceived(_)
            | Event::MessageQueued(_)
            | Event::ModelFailed(_)
            | Event::CallProgressed(_)
            | Event::HoldVoted(_)
            | Event::HoldAssigned(_)
            | Event::HoldReminded(_)
            | Event::HoldExpired(_)
            | Event::HoldReopened(_)
            | Event::HoldEscalated(_)
            | Event::HoldDelegated(_) => {}
        }
    }

    fn add(&mut self, call: &'a ToolCall) {
        let refused = call.refused.as_deref().map(|why| not_run(ResultKind::Refused, Some(why), &[]));
        let track = Track {
            call,
            edited: None,
            sent: None,
            is_running: false,
            is_given_back: false,
            came_to: refused,
            untold: Vec::new(),
        };
        self.calls.insert(call.no, track);
    }

    fn with(&mut self, no: CallNo, change: impl FnOnce(&mut Track<'a>)) {
        if let Some(track) = self.calls.get_mut(&no) {
            change(track);
        }
    }
}

impl<'a> Track<'a> {
    /// The arguments that run when the call starts now.
    pub(crate) fn arguments(&self) -> &'a Body {
        self.edited.map_or(&self.call.arguments, |edited| &edited.arguments)
    }

    /// Whether its events record its outcome, without the end of the run.
    pub(crate) fn is_settled(&self) -> bool {
        self.came_to.is_some()
    }

    fn start(&mut self, started: &CallStarted) {
        self.is_running = true;
        self.is_given_back = false;
        self.sent = self.edited;
        self.untold.push(started.attempt);
    }

    fn finish(&mut self, finished: &CallFinished, driver: Driver) {
        self.is_running = false;
        if driver.is_elsewhere() {
            self.sent = self.edited;
        }
        let ran = Execution::Yes;
        self.came_to = Some(match (&finished.refused, &finished.result) {
            (Some(_), ToolResult::Ok(body) | ToolResult::Failed(body)) => {
                not_run(ResultKind::Refused, body.inline(), &self.untold)
            }
            (None, ToolResult::Ok(body)) => {
                CallConclusion { kind: ResultKind::Ok, ran, content: body.clone() }
            }
            (None, ToolResult::Failed(body)) => {
                CallConclusion { kind: ResultKind::Failed, ran, content: body.clone() }
            }
        });
    }

    fn orphan(&mut self, orphaned: &CallOrphaned, driver: Driver) {
        self.is_running = false;
        if driver.is_elsewhere() {
            self.sent = self.edited;
        }
        match (orphaned.then, driver) {
            (AfterOrphan::Retry | AfterOrphan::Ask, _) => {}
            (AfterOrphan::Unknown, Driver::Outside | Driver::Gate) => {
                let why = "outcome unknown: the worker was allowed to run the call and never reported";
                self.came_to = Some(unknown(why));
            }
            (AfterOrphan::Unknown, Driver::Loop) => {
                self.came_to = Some(unknown("outcome unknown: the node that ran the call is gone"));
            }
        }
    }

    fn open(&mut self, opened: &HoldOpened) {
        match opened.kind {
            // Whoever started it says that it did not go ahead: it needs an answer or a login first.
            HoldKind::Input | HoldKind::Auth if self.is_running => drop(self.untold.pop()),
            HoldKind::External => self.sent = self.edited,
            HoldKind::Approval | HoldKind::Input | HoldKind::Auth | HoldKind::Recovery => {}
        }
        self.is_running = false;
    }

    fn edit(&mut self, edited: &'a EditedArguments) {
        self.edited = Some(edited);
    }

    fn resolve(&mut self, kind: HoldKind, resolved: &'a HoldResolved) {
        if let Resolution::Approve { edited: Some(edited) } = &resolved.resolution {
            self.edit(edited);
        }
        self.came_to = self.after(kind, resolved).or(self.came_to.take());
    }

    /// What a resolution means for the result of the call: the one table of it.
    fn after(&self, kind: HoldKind, resolved: &HoldResolved) -> Option<CallConclusion> {
        let ran = Execution::Yes;
        let without = |kind, why| not_run(kind, why, &self.untold);
        Some(match (&resolved.resolution, kind) {
            (Resolution::Approve { .. }, _) | (Resolution::Answer { .. }, HoldKind::Auth) => return None,
            (Resolution::Answer { value }, _) => {
                CallConclusion { kind: ResultKind::Ok, ran, content: value.clone() }
            }
            (Resolution::Fail { error }, HoldKind::Auth) => {
                CallConclusion { kind: ResultKind::Failed, ran: Execution::No, content: error.clone() }
            }
            (Resolution::Fail { error }, _) => {
                CallConclusion { kind: ResultKind::Failed, ran, content: error.clone() }
            }
            // A person's word about an unknown outcome settles every start before it.
            (Resolution::Deny { reason }, HoldKind::Recovery) => {
                let why = reason.as_deref().unwrap_or("not executed: a person says that it did not happen");
                not_run(ResultKind::DidNotHappen, Some(why), &[])
            }
            (Resolution::Deny { reason }, _) => without(ResultKind::Denied, reason.as_deref()),
            (Resolution::Expire, HoldKind::External) => perhaps(ResultKind::Expired, JOB_TIMEOUT),
            (Resolution::Expire, _) => without(ResultKind::Expired, Some(PERSON_TIMEOUT)),
            (Resolution::Withdraw | Resolution::Supersede, HoldKind::Recovery) => {
                unknown("outcome unknown: nobody said what the call did before the run ended")
            }
            // Someone withdrew this very hold (C37); otherwise the run ended.
            (Resolution::Withdraw, HoldKind::External) if resolved.role.is_some() => {
                perhaps(ResultKind::Withdrawn, "Cancelled")
            }
            (Resolution::Withdraw | Resolution::Supersede, HoldKind::External) => {
                unknown("outcome unknown: the run ended while an outside system had the call")
            }
            (Resolution::Withdraw, _) => {
                without(ResultKind::Canceled, Some("not executed: the run ended first"))
            }
            (Resolution::Supersede, _) => {
                without(ResultKind::Superseded, Some("not executed, superseded by a newer message"))
            }
        })
    }
}

/// The result of a call that has no word of its own.
#[derive(Serialize)]
struct StatusResult<'a> {
    status: ResultKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<&'static str>,
}

fn not_run(kind: ResultKind, reason: Option<&str>, untold: &[u32]) -> CallConclusion {
    let (ran, warning) = if untold.is_empty() {
        (Execution::No, None)
    } else {
        (Execution::Perhaps, Some("an earlier start of this call may have run"))
    };
    CallConclusion {
        kind,
        ran,
        content: Body::Json(spelled(&StatusResult { status: kind, reason, warning })),
    }
}

fn perhaps(kind: ResultKind, reason: &str) -> CallConclusion {
    let instead = StatusResult { status: kind, reason: Some(reason), warning: None };
    CallConclusion { kind, ran: Execution::Perhaps, content: Body::Json(spelled(&instead)) }
}

fn unknown(reason: &str) -> CallConclusion {
    perhaps(ResultKind::Unknown, reason)
}

fn spelled(value: &StatusResult<'_>) -> RawJson {
    match serde_json::to_string(value).map(|text| RawJson::parse(&text)) {
        Ok(Ok(json)) => json,
        Ok(Err(_)) | Err(_) => unreachable!("flat objects with string keys are JSON"),
    }
}

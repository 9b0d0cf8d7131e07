//! Outside jobs: calls whose result somebody else brings, as the log tells them.
//!
//! A view, made whenever somebody asks; nothing is stored for it. A job exists from the moment its call is started: the
//! id that the outside system gets stands in `call.started`, before it is sent. Sub-runs are no jobs: what
//! they come to is theirs to say.

use crate::body::Body;
use crate::event::{AfterOrphan, CallStarted, Envelope, Event, HoldOpened, HoldResolved};
use crate::hold::{Ask, HoldKind, Resolution};
use crate::id::{CallNo, HoldKey, Seq};
use crate::message::{ToolCall, ToolResult};
use crate::name::ToolName;
use crate::time::Timestamp;
use crate::transcript::stored_call;

/// An outside job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The id by which its result is brought: that of its hold.
    pub key: HoldKey,
    /// The provider's id of the call; may be empty.
    pub call_id: String,
    /// The tool.
    pub tool: ToolName,
    /// The argument text that was decided on; none when it cannot be found.
    pub arguments: Option<String>,
    /// The assistant's message that asked for it.
    pub message: Seq,
    /// What is known of it from whoever does it.
    pub ask: Ask,
    /// When it began to wait.
    pub created_at: Timestamp,
    /// When it is given up.
    pub expires_at: Option<Timestamp>,
    /// When the outside system first said that it works on it.
    pub started_at: Option<Timestamp>,
    /// When it last said anything.
    pub heard_at: Option<Timestamp>,
    /// The last thing that it said.
    pub note: Option<Body>,
    /// How far it is.
    pub stands: JobProgress,
    /// The last event that is about it.
    pub at: Seq,
}

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobProgress {
    /// The outside system is being told; it may answer before the hold is there.
    Starting,
    /// Its hold is open.
    Waiting {
        /// The outside system said that it works on it.
        processing: bool,
    },
    /// Whoever started it is gone; nobody knows whether the outside system was told. Its result is still welcome.
    Unknown {
        /// The start in question.
        attempt: u32,
    },
    /// It has ended.
    Over {
        /// When.
        at: Timestamp,
        /// What came of it.
        end: JobEnd,
    },
}

/// What came of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEnd {
    /// Its result.
    Result(Body),
    /// It failed, and this is what it said.
    Failed(Body),
    /// Somebody took it back.
    Withdrawn,
    /// The run ended first.
    RunEnded,
    /// It did not report in time.
    Expired,
    /// The call goes on without it.
    Abandoned(&'static str),
}

impl Job {
    /// Whether its result is still welcome.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(self.stands, JobProgress::Over { .. })
    }
}

/// What the resolution of its hold means for a job.
#[must_use]
pub fn end_of(resolved: &HoldResolved) -> JobEnd {
    match &resolved.resolution {
        Resolution::Answer { value } => JobEnd::Result(value.clone()),
        Resolution::Fail { error } => JobEnd::Failed(error.clone()),
        Resolution::Expire => JobEnd::Expired,
        Resolution::Withdraw if resolved.role.is_some() => JobEnd::Withdrawn,
        Resolution::Approve { .. }
        | Resolution::Deny { .. }
        | Resolution::Withdraw
        | Resolution::Supersede => JobEnd::RunEnded,
    }
}

/// The jobs of a run, in the order in which they began.
#[must_use]
pub fn jobs(events: &[Envelope]) -> Vec<Job> {
    let mut seen =
        JobScan { events, calls: Vec::new(), replied_at: Seq(0), jobs: Vec::new(), recovery: Vec::new() };
    events.iter().for_each(|envelope| seen.see(envelope));
    seen.jobs
}

struct JobScan<'a> {
    events: &'a [Envelope],
    calls: Vec<&'a ToolCall>,
    replied_at: Seq,
    jobs: Vec<Job>,
    /// Holds that ask what became of a start.
    recovery: Vec<HoldKey>,
}

impl<'a> JobScan<'a> {
    fn see(&mut self, envelope: &'a Envelope) {
        match &envelope.event {
            Event::ModelReplied(replied) => {
                self.calls.extend(&replied.reply.calls);
                self.replied_at = envelope.seq;
            }
            Event::CallProposed(proposed) => self.calls.push(&proposed.call),
            Event::CallStarted(started) => self.started(envelope, started),
            Event::CallReturned(returned) => self.jobs.retain(|job| {
                let is_it = job.key.call == returned.call && job.stands == JobProgress::Starting;
                !is_it
            }),
            Event::CallProgressed(progressed) => {
                if let Some(job) = self.open_job(progressed.call) {
                    job.at = envelope.seq;
                    job.heard_at = Some(envelope.at);
                    job.note = Some(progressed.note.clone());
                    if let (JobProgress::Waiting { processing }, Some(now)) =
                        (&mut job.stands, progressed.processing)
                    {
                        *processing = now;
                        job.started_at = job.started_at.or(now.then_some(envelope.at));
                    }
                }
            }
            Event::CallFinished(finished) => {
                let end = match finished.result.clone() {
                    ToolResult::Ok(value) => JobEnd::Result(value),
                    ToolResult::Failed(error) => JobEnd::Failed(error),
                };
                self.end(envelope, finished.call, end);
            }
            Event::CallOrphaned(orphaned) => {
                if orphaned.then == AfterOrphan::Retry {
                    self.end(envelope, orphaned.call, JobEnd::Abandoned(AGAIN));
                } else if let Some(job) = self.open_job(orphaned.call) {
                    job.at = envelope.seq;
                    job.stands = JobProgress::Unknown { attempt: orphaned.attempt };
                }
            }
            Event::HoldOpened(opened) => self.opened(envelope, opened),
            Event::HoldExpired(expired) => {
                if let Some(job) = self.jobs.iter_mut().find(|job| job.key == expired.hold) {
                    job.at = envelope.seq;
                }
            }
            Event::HoldResolved(resolved) => self.resolved(envelope, resolved),
            Event::RunEnded(_) => {
                for job in self.jobs.iter_mut().filter(|job| job.is_open()) {
                    job.at = envelope.seq;
                    job.stands = JobProgress::Over { at: envelope.at, end: JobEnd::RunEnded };
                }
            }
            Event::RunStarted(_)
            | Event::RunClaimed(_)
            | Event::RunReleased(_)
            | Event::RunRepinned(_)
            | Event::RunErased(_)
            | Event::MessageReceived(_)
            | Event::MessageQueued(_)
            | Event::ModelFailed(_)
            | Event::CallContradicted(_)
            | Event::HoldVoted(_)
            | Event::HoldEdited(_)
            | Event::HoldAssigned(_)
            | Event::HoldReminded(_)
            | Event::HoldReopened(_)
            | Event::HoldEscalated(_)
            | Event::HoldDelegated(_) => {}
        }
    }

    /// The job of a call that is not over.
    fn open_job(&mut self, call: CallNo) -> Option<&mut Job> {
        self.jobs.iter_mut().rev().find(|job| job.key.call == call && job.is_open())
    }

    fn end(&mut self, envelope: &Envelope, call: CallNo, end: JobEnd) {
        if let Some(job) = self.open_job(call) {
            job.at = envelope.seq;
            job.stands = JobProgress::Over { at: envelope.at, end };
        }
    }

    fn started(&mut self, envelope: &Envelope, started: &CallStarted) {
        let job = started.pending.and_then(|key| self.job(key, envelope, JobProgress::Starting));
        self.jobs.extend(job);
    }

    fn opened(&mut self, envelope: &Envelope, opened: &HoldOpened) {
        if opened.kind == HoldKind::Recovery {
            self.recovery.push(opened.hold);
            return;
        }
        let is_known = self.jobs.iter().any(|job| job.key == opened.hold);
        if opened.kind != HoldKind::External || opened.ask.child.is_some() {
            if let Some(started) =
                self.jobs.iter().position(|job| job.key.call == opened.hold.call && job.is_open())
            {
                // It needs an answer or a login before it can begin.
                self.jobs.remove(started);
            }
            return;
        }
        if !is_known {
            let job = self.job(opened.hold, envelope, JobProgress::Starting);
            self.jobs.extend(job);
        }
        if let Some(job) = self.jobs.iter_mut().find(|job| job.key == opened.hold) {
            job.at = envelope.seq;
            job.ask = opened.ask.clone();
            job.expires_at = opened.expires_at;
            job.stands = JobProgress::Waiting { processing: false };
        }
    }

    fn resolved(&mut self, envelope: &Envelope, resolved: &HoldResolved) {
        let over = |end| JobProgress::Over { at: envelope.at, end };
        if let Some(job) = self.jobs.iter_mut().find(|job| job.key == resolved.hold && job.is_open()) {
            job.at = envelope.seq;
            job.stands = over(end_of(resolved));
            return;
        }
        if !self.recovery.contains(&resolved.hold) {
            return;
        }
        let end = match &resolved.resolution {
            Resolution::Answer { value } => JobEnd::Result(value.clone()),
            Resolution::Fail { error } => JobEnd::Failed(error.clone()),
            Resolution::Approve { .. } => JobEnd::Abandoned(AGAIN),
            Resolution::Deny { .. } => JobEnd::Abandoned("a person says that the job was not started"),
            // What it did is still not known.
            Resolution::Expire | Resolution::Withdraw | Resolution::Supersede => return,
        };
        self.end(envelope, resolved.hold.call, end);
    }

    fn job(&self, key: HoldKey, envelope: &Envelope, stands: JobProgress) -> Option<Job> {
        let call = self.calls.iter().rev().find(|call| call.no == key.call)?;
        Some(Job {
            key,
            call_id: call.id.clone(),
            tool: call.tool.clone(),
            arguments: stored_call(self.events, key.call).map(|stored| stored.arguments),
            message: self.replied_at,
            ask: Ask::default(),
            created_at: envelope.at,
            expires_at: None,
            started_at: None,
            heard_at: None,
            note: None,
            stands,
            at: envelope.seq,
        })
    }
}

/// Why a job is no longer asked about although nobody knows what it did.
const AGAIN: &str = "the job was started again";

#[cfg(test)]
mod tests;

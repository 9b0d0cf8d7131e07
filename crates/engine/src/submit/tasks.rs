//! Tasks of inboxes, named queues of work that wait for whoever claims it.
//!
//! A task of an inbox is a run like any other. It is driven by an agent of this server that serves the inbox
//! (`work/inbox_server.rs`) or by a worker elsewhere that claims it (`claims.rs`); `add.rs` begins it, `reads/inboxes.rs`
//! shows it. What may follow what is
//! the core's business.

mod add;
mod calls;
mod claims;
mod retry;

use std::sync::Arc;

use standfast_core::body::Body;
use standfast_core::event::Inbox;
use standfast_core::hold::Ask;
use standfast_core::message::Message;
use standfast_core::name::{AgentName, InboxName, UserId, WorkerName};
use standfast_core::time::Millis;

use super::Submit;
use crate::commit::{Commit, IdempotencyKey};
use crate::drive::Drives;
use crate::host::Host;
use crate::log::Log;
use crate::reads::Inboxes;
use crate::wakes::Wakes;

/// What somebody puts into an inbox.
#[derive(Debug, Clone)]
pub struct NewTask {
    /// Where, of which kind, how urgent, for whom.
    pub inbox: Inbox,
    /// What to do.
    pub message: Message,
    /// How long it may lie there until somebody takes it; none means as the server's settings say.
    pub ttl: Option<Millis>,
    /// Makes a repeat safe.
    pub once: Option<IdempotencyKey>,
}

/// A worker elsewhere asks for work.
#[derive(Debug, Clone)]
pub struct ClaimTask {
    /// From which inbox.
    pub inbox: InboxName,
    /// The agent that it works for: work for another agent is left alone.
    pub agent: AgentName,
    /// What it calls itself.
    pub worker: String,
    /// The kinds of work that it takes; empty means any.
    pub kinds: Vec<String>,
    /// How long a sign of life counts.
    pub lease: Millis,
    /// How long it waits for work when there is none.
    pub wait: Millis,
}

/// What a worker says of a task that it has claimed.
#[derive(Debug, Clone)]
pub enum TaskReport {
    /// It is done.
    Complete(Body),
    /// It failed.
    Fail {
        /// In words.
        message: String,
        /// All of what the worker said.
        detail: Body,
        /// Whether it may pass; none leaves that to how it reads.
        retryable: Option<bool>,
    },
    /// Somebody must be asked first.
    Suspend(Box<Ask>),
    /// It begins to work on it.
    Start,
    /// It still works.
    Heartbeat,
    /// It gives the task back.
    Release,
}

pub use calls::{CallReport, ProposedCall};

/// Work that is put into inboxes and claimed from them.
pub struct TaskQueue {
    host: Arc<Host>,
    log: Arc<Log>,
    wakes: Arc<Wakes>,
    commit: Arc<Commit>,
    drives: Arc<Drives>,
    inboxes: Arc<Inboxes>,
    submit: Arc<Submit>,
}

impl TaskQueue {
    pub(crate) fn new(submit: Arc<Submit>, inboxes: Arc<Inboxes>) -> TaskQueue {
        let (host, log) = (submit.host.clone(), submit.log.clone());
        let (commit, drives, wakes) =
            (submit.commit.clone(), submit.drives.clone(), submit.drives.wakes.clone());
        TaskQueue { host, log, wakes, commit, drives, inboxes, submit }
    }
}

/// How a claim is named in the log: worker, number of the claim, and the user whose key it came with. So no claim has the
/// name of another, and nobody speaks for a claim that is not their own.
pub(super) fn claim_name(worker: &str, number: u32, user: &UserId) -> Option<WorkerName> {
    WorkerName::new(format!("{worker}#{number}@{}", bound(user))).ok()
}

/// What the worker of a claim calls itself.
#[must_use]
pub fn claimed_by(claim: &WorkerName) -> &str {
    claim.as_str().split_once('#').map_or(claim.as_str(), |(worker, _)| worker)
}

fn is_claim_of(claim: &WorkerName, user: &UserId) -> bool {
    let after = claim.as_str().split_once('#').and_then(|(_, after)| after.split_once('@'));
    after.is_some_and(|(_, claimed_for)| claimed_for == bound(user))
}

/// The user's name, as far as there is room for it.
fn bound(user: &UserId) -> &str {
    const ROOM: usize = 128;
    let name = user.as_str();
    name.get(..name.floor_char_boundary(ROOM)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_bound_to_whoever_made_it() {
        let user = |name: &str| UserId::new(name).unwrap();
        let claim = claim_name("w-1", 2, &user("e@alice")).unwrap();
        assert_eq!((claim.as_str(), claimed_by(&claim)), ("w-1#2@e@alice", "w-1"));
        assert!(is_claim_of(&claim, &user("e@alice")));
        for other in ["alice", "e", "2@e@alice"] {
            assert!(!is_claim_of(&claim, &user(other)), "{other}");
        }
        let long = user(&"ü".repeat(128));
        assert!(is_claim_of(&claim_name("w", 1, &long).unwrap(), &long));
    }
}

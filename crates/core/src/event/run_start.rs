//! What the first event of a run says: whose it is, who drives it, where it comes from.
//!
//! Part of the durable format, by the rules of `event.rs`. What a run makes of it is `apply.rs`.

use serde::{Deserialize, Serialize};

use crate::body::Body;
use crate::digest::Digest;
use crate::id::{CallNo, HoldKey, RunId, Seq};
use crate::message::is_default;
use crate::name::{AgentName, InboxName, SessionId, Tenant, UserId};
use crate::time::Timestamp;
use crate::trace::Origin;

/// What `run.started` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStarted {
    /// Whose run it is.
    pub tenant: Tenant,
    /// The agent.
    pub agent: AgentName,
    /// The conversation.
    pub session: SessionId,
    /// Who started it.
    pub owner: UserId,
    /// Who drives it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub driver: Driver,
    /// The definition it is pinned to.
    pub definition: Digest,
    /// The run and call that started it, for a sub-agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Its place in an inbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbox: Option<Inbox>,
    /// A node took it in the same append: it was never queued.
    #[serde(default, skip_serializing_if = "is_default")]
    pub taken: bool,
    /// What its model is reminded of; absent where nothing came before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
    /// The request that started it; only where traces are on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Box<Origin>>,
}

/// The earlier runs of a conversation, as they were when a run began in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// About how many tokens of them a model is reminded of.
    pub tokens: u32,
    /// The runs, oldest first: of the same agent and owner, ended by then.
    pub runs: Vec<EarlierRun>,
}

/// An earlier run of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierRun {
    /// Which run.
    pub run: RunId,
    /// Its last event by then; what follows is no part of the history.
    pub upto: Seq,
}

/// Who drives a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Driver {
    /// Standfast's own loop: model, tools, model.
    #[default]
    Loop,
    /// A worker elsewhere, which claims, proposes and reports.
    Outside,
    /// Whoever opened it: a gate, whose one call they run themselves once they may.
    Gate,
}

impl Driver {
    /// Whether the calls of such a run are run elsewhere, so that what became of them is somebody's word.
    #[must_use]
    pub fn is_elsewhere(self) -> bool {
        match self {
            Driver::Loop => false,
            Driver::Outside | Driver::Gate => true,
        }
    }
}

/// Where a sub-run comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The run.
    pub run: RunId,
    /// Its call.
    pub call: CallNo,
    /// The hold of the parent that this run's end resolves.
    pub hold: HoldKey,
    /// How many runs stand above this one.
    pub depth: u32,
}

/// A run's place in an inbox (S4-28).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inbox {
    /// Which inbox.
    pub inbox: InboxName,
    /// The kind of work.
    #[serde(rename = "type")]
    pub kind: String,
    /// 0 low, 1 normal, 2 high, 3 urgent.
    pub priority: u8,
    /// The agent that should take it, if only one should.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_agent: Option<AgentName>,
    /// A title for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Where the work came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_id: Option<String>,
    /// Its address there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_url: Option<String>,
    /// How often it may be tried.
    pub max_attempts: u32,
    /// Until when somebody must have taken it; absent means that it lies there without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The sender's own notes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Body>,
}

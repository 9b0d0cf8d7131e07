//! What a server is made of: agents, their models and tools, limits, times.
//!
//! A typed value that is checked once. The demo and the tests build it by hand; a configuration file becomes one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdpoint_core::command::Limits;
use holdpoint_core::definition::Definition;
use holdpoint_core::digest::Digest;
use holdpoint_core::id::Place;
use holdpoint_core::name::{AgentName, Tenant, ToolName, UserId};
use holdpoint_core::time::Millis;

use crate::model::Model;
use crate::tool::Tool;

/// What a server is made of.
pub struct Settings {
    /// Whose runs they are.
    pub tenant: Tenant,
    /// The agents.
    pub agents: BTreeMap<AgentName, Agent>,
    /// Budgets and caps.
    pub limits: Arc<Limits>,
    /// How long a node's claim on a run lasts without renewal.
    pub lease: Millis,
    /// How often a node looks for due runs when nobody tells it.
    pub poll: Millis,
    /// How long a caller who waits for a run is kept at most.
    pub max_wait: Millis,
    /// How many bytes the body of a request may have.
    pub max_body: usize,
}

/// An agent.
pub struct Agent {
    /// What its runs are pinned to.
    pub definition: Arc<Definition>,
    /// The name of that definition.
    pub digest: Digest,
    /// What it asks.
    pub model: Arc<dyn Model>,
    /// What it can do.
    pub tools: BTreeMap<ToolName, Arc<dyn Tool>>,
    /// Which of its tools a person is asked about.
    pub needs_approval: BTreeSet<ToolName>,
    /// Who may decide beside the owner.
    pub approvers: Approvers,
    /// How many of its runs are worked on at once.
    pub worker_pool: usize,
    /// Whether its calls can wait for a person.
    pub tracking: Tracking,
    /// Where its runs live.
    pub lives: Place,
}

/// Whether the calls of an agent can wait for a person (C29).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tracking {
    /// They can.
    #[default]
    On,
    /// They cannot: calls that need approval are denied.
    Off,
}

/// Who may decide (C24).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Approvers {
    /// Those named; none means that only the owner decides, an empty list that nobody else does.
    pub named: Option<BTreeSet<UserId>>,
    /// Whether whoever started a run may decide its holds.
    pub self_approval: SelfApproval,
}

/// Whether whoever started a run may decide its holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SelfApproval {
    /// Yes.
    #[default]
    Allow,
    /// No: four eyes.
    Forbid,
}

impl Settings {
    /// Settings with the usual times and limits, and no agents.
    #[must_use]
    pub fn usual() -> Settings {
        Settings {
            tenant: Tenant::default_tenant(),
            agents: BTreeMap::new(),
            limits: Arc::new(Limits::default()),
            lease: Millis::seconds(10),
            poll: Millis(500),
            max_wait: Millis::seconds(300),
            max_body: 1024 * 1024,
        }
    }
}

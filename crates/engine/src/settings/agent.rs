//! An agent with all that belongs to it: its model and tools, who may decide, its card, its limits, the inboxes it serves.
//!
//! A value. What its runs are pinned to is its definition; everything else is as it is now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use standfast_core::command::Limits;
use standfast_core::definition::Definition;
use standfast_core::digest::Digest;
use standfast_core::event::Inbox;
use standfast_core::id::StorageKind;
use standfast_core::name::{InboxName, ToolName};
use standfast_core::time::Millis;
use standfast_policy::call::ToolDefault;
use standfast_policy::effect_key::KeyTemplate;
use standfast_policy::hours::BusinessHours;
use standfast_policy::reconcile::Reconcile;

use super::rules::Rules;
use crate::auth::Approvers;
use crate::model::Model;
use crate::tool::Tool;
use crate::tool::login::LoginDesk;
use crate::tool::suspend::{self, SuspendForInput};

/// An agent.
#[derive(Clone)]
pub struct Agent {
    /// What its runs are pinned to.
    pub definition: Arc<Definition>,
    /// The name of that definition.
    pub digest: Digest,
    /// The same where one held call holds its whole reply, for runs that begin where that is the custom; none where the
    /// definition says so itself, or the configuration turns it off.
    pub batched: Option<PinnedDefinition>,
    /// What it asks.
    pub model: Arc<dyn Model>,
    /// What it can do.
    pub tools: BTreeMap<ToolName, Arc<dyn Tool>>,
    /// What stands for every tool that it does not name: of gates, whose callers bring tools of their own.
    pub any_tool: Option<Arc<dyn Tool>>,
    /// Which of its tools a person is asked about.
    pub needs_approval: BTreeSet<ToolName>,
    /// How many people must agree before a call runs, of tools where it is more than one.
    pub quorum: BTreeMap<ToolName, u32>,
    /// Those of them, and of the others, whose entries do not say whether a person is asked: then it goes by their type, and
    /// the policy's default is for those that may change something.
    pub says_nothing: BTreeSet<ToolName>,
    /// What its calls are judged by, beside what its tools say.
    pub rules: Rules,
    /// Who may decide.
    pub approvers: Approvers,
    /// What names the effects of its tools, where they have one: at most one start has each.
    pub effect_keys: BTreeMap<ToolName, KeyTemplate>,
    /// What says of a lost start of its tools whether it had its effect, where they name a call for that.
    pub reconcile: BTreeMap<ToolName, Arc<Reconcile>>,
    /// The hours in which the spans of its holds are counted; none means all.
    pub hours: Option<Arc<BusinessHours>>,
    /// How long before its deadline people are reminded of a hold once more; none means never.
    pub remind_before: Option<Millis>,
    /// How many of its runs are worked on at once.
    pub worker_pool: usize,
    /// How long each may work, waiting left out; without limit when it is none.
    pub may_work: Option<Millis>,
    /// About how many tokens of the earlier runs of a conversation its model is reminded of.
    pub history_tokens: u32,
    /// Whether clients get its model's words while they come.
    pub streaming: StreamingMode,
    /// Whether its calls can wait for a person.
    pub tracking: CallTracking,
    /// Where its runs live.
    pub lives: StorageKind,
    /// How long the contents of its runs are kept once they have ended, where that is not the server's time.
    pub keep_ended: Option<Millis>,
    /// The inboxes that it takes work from.
    pub serves: Option<InboxService>,
    /// What it is for, where that is said.
    pub purpose: Option<String>,
    /// What it says on its A2A card beyond the usual.
    pub card: Card,
    /// Its budgets and caps, where they are not the server's.
    pub limits: Option<Arc<Limits>>,
    /// Logins without which some of its tools are not known.
    pub logins: Vec<Arc<dyn LoginDesk>>,
}

/// Runs of an agent that are worked on at once, unless it says otherwise.
const WORKER_POOL: usize = 64;

/// Tokens of earlier runs that a model is reminded of, unless its agent says otherwise.
pub const HISTORY_TOKENS: u32 = 8_000;

impl Agent {
    /// An agent without tools, and with everything else as usual.
    #[must_use]
    pub fn new(definition: impl Into<Arc<Definition>>, model: Arc<dyn Model>) -> Agent {
        let definition = definition.into();
        Agent {
            digest: definition.digest(),
            batched: PinnedDefinition::batched(&definition),
            definition,
            model,
            tools: BTreeMap::new(),
            any_tool: None,
            needs_approval: BTreeSet::new(),
            quorum: BTreeMap::new(),
            says_nothing: BTreeSet::new(),
            rules: Rules::default(),
            approvers: Approvers::default(),
            effect_keys: BTreeMap::new(),
            reconcile: BTreeMap::new(),
            hours: None,
            remind_before: None,
            worker_pool: WORKER_POOL,
            may_work: None,
            history_tokens: HISTORY_TOKENS,
            streaming: StreamingMode::default(),
            tracking: CallTracking::default(),
            lives: StorageKind::Durable,
            keep_ended: None,
            serves: None,
            purpose: None,
            card: Card::default(),
            limits: None,
            logins: Vec::new(),
        }
    }
}

impl Agent {
    /// Whether starts of its calls may claim effects by name, or take from budgets.
    #[must_use]
    pub fn may_claim_effects(&self) -> bool {
        !self.effect_keys.is_empty() || self.rules.name_effects() || self.rules.have_budgets()
    }

    /// The tool of this name, or what stands for it.
    #[must_use]
    pub fn tool(&self, name: &ToolName) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name).or(self.any_tool.as_ref())
    }

    /// What one of its tools says where no rule matches (C32).
    #[must_use]
    pub fn tool_default(&self, tool: &ToolName) -> ToolDefault {
        if self.any_tool.is_some() && !self.tools.contains_key(tool) {
            return ToolDefault::ChangesWorld;
        }
        match (self.needs_approval.contains(tool), self.says_nothing.contains(tool)) {
            (true, false) => ToolDefault::RequiresApproval,
            (true, true) => ToolDefault::ChangesWorld,
            (false, false) => ToolDefault::NeedsNoApproval,
            (false, true) => ToolDefault::ReadOnly,
        }
    }

    /// Whether a run with this definition is pinned to the agent as it is now.
    #[must_use]
    pub fn pins(&self, digest: Digest) -> bool {
        self.digest == digest || self.batched.as_ref().is_some_and(|batched| batched.digest == digest)
    }

    /// What a run is pinned to now that was pinned to `before`: whether its calls wait together stays as it is.
    #[must_use]
    pub fn pin_like(&self, before: &Definition) -> PinnedDefinition {
        self.batched.clone().filter(|_| before.hold_batch).unwrap_or_else(|| self.pin())
    }

    /// What a run is pinned to that begins now.
    #[must_use]
    pub fn pin(&self) -> PinnedDefinition {
        PinnedDefinition { definition: self.definition.clone(), digest: self.digest }
    }
}

/// A definition with its name.
#[derive(Debug, Clone)]
pub struct PinnedDefinition {
    /// The definition.
    pub definition: Arc<Definition>,
    /// Its name.
    pub digest: Digest,
}

impl PinnedDefinition {
    /// A definition whose held calls hold their whole reply (S1-10); none if this one is so.
    fn batched(usual: &Definition) -> Option<PinnedDefinition> {
        let definition = Definition { hold_batch: true, ..usual.clone() };
        let digest = definition.digest();
        (!usual.hold_batch).then(|| PinnedDefinition { definition: Arc::new(definition), digest })
    }
}

/// How an agent serves inboxes (S4-30).
#[derive(Debug, Clone)]
pub struct InboxService {
    /// From which it takes work.
    pub inboxes: Vec<ServedInbox>,
    /// How many tasks it works on at once, on each node.
    pub max_concurrent: usize,
    /// What its tasks are pinned to: the agent, able to ask people (C36).
    pub definition: Arc<Definition>,
    /// The name of that definition.
    pub digest: Digest,
}

/// An inbox that an agent takes work from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedInbox {
    /// Its name.
    pub name: InboxName,
    /// The kinds of work that it takes; empty means any.
    pub types: Vec<String>,
}

impl InboxService {
    /// What an agent's tasks are pinned to: `suspend` is there beside its own tools, and is the only one of its kind.
    #[must_use]
    pub fn new(agent: &Definition, inboxes: Vec<ServedInbox>, max_concurrent: usize) -> Option<InboxService> {
        let mut definition = agent.clone();
        let usual = ToolName::new(suspend::NAME).ok()?;
        definition.tools.remove(&usual);
        definition.tools.insert(ToolName::new(suspend::IN_INBOXES).ok()?, SuspendForInput::spec());
        let digest = definition.digest();
        Some(InboxService { inboxes, max_concurrent, definition: Arc::new(definition), digest })
    }

    /// Whether it takes such work.
    #[must_use]
    pub fn takes(&self, work: &Inbox) -> bool {
        let suits = |served: &ServedInbox| {
            served.name == work.inbox && (served.types.is_empty() || served.types.contains(&work.kind))
        };
        self.inboxes.iter().any(suits)
    }
}

/// Whether clients get a model's words while they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StreamingMode {
    /// They do.
    #[default]
    On,
    /// They get whole replies only.
    Off,
}

/// Whether the calls of an agent can wait for a person (C29).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallTracking {
    /// They can.
    #[default]
    On,
    /// They cannot: calls that need approval are denied.
    Off,
}

/// What an agent says on its A2A card beyond the usual.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Card {
    /// What it is good at; where there is nothing, the card makes one skill of its name and purpose.
    pub skills: Vec<Skill>,
    /// The media types that it takes; none means the usual ones.
    pub input_modes: Option<Vec<String>>,
    /// The media types that it answers with; none means the usual ones.
    pub output_modes: Option<Vec<String>>,
    /// Whose clients can read it.
    pub readers: CardReaders,
}

/// Whose clients can read a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CardReaders {
    /// Those of the current version of A2A.
    #[default]
    Current,
    /// Those of version 0.3 too.
    CurrentAndV03,
}

/// Something that an agent is good at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Its name for programs.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// What it is.
    pub description: String,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// What one might ask for.
    pub examples: Vec<String>,
}

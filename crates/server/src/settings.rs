//! What a server is made of: agents, their models and tools, limits, times.
//!
//! A typed value that is checked once. The demo and the tests build it by hand; a configuration file becomes one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;
use standfast_core::command::Limits;
use standfast_core::definition::Definition;
use standfast_core::digest::Digest;
use standfast_core::event::Inbox;
use standfast_core::id::Place;
use standfast_core::name::{AgentName, InboxName, Tenant, ToolName};
use standfast_core::time::Millis;

use crate::auth::{Issuer, Party, Principal};
use crate::card_key::CardKey;
use crate::engine::SigningKey;
use crate::model::Model;
use crate::telemetry::Telemetry;
use crate::tool::Tool;
use crate::tool::guard::Guard;
use crate::tool::mcp::login::Desk;
use crate::tool::suspend::{self, SuspendForInput};
use crate::vault::Vault;

/// What a server is made of.
pub struct Settings {
    /// Whose runs they are.
    pub tenant: Tenant,
    /// The agents.
    pub agents: BTreeMap<AgentName, Arc<Agent>>,
    /// The agent at the root of the server, for protocols that have one there.
    pub default_agent: Option<AgentName>,
    /// What agents are for, by their names, where that is said.
    pub purposes: BTreeMap<String, String>,
    /// The agents whose A2A card clients of version 0.3 can read too.
    pub v03_cards: BTreeSet<AgentName>,
    /// What agents say on their A2A cards beyond the usual.
    pub cards: BTreeMap<AgentName, Card>,
    /// Budgets and caps.
    pub limits: Arc<Limits>,
    /// Those of agents that have others.
    pub agent_limits: BTreeMap<AgentName, Arc<Limits>>,
    /// How long a node's claim on a run lasts without renewal.
    pub lease: Millis,
    /// What this node is called among others.
    pub node_name: String,
    /// How often a node looks for due runs when nobody tells it.
    pub poll: Millis,
    /// How long the contents of a run are kept once it is over; for ever if that is not said.
    pub keep_ended: Option<Millis>,
    /// How long a caller who waits for a run is kept at most.
    pub max_wait: Millis,
    /// How many bytes the body of a request may have.
    pub max_body: usize,
    /// Who may call, and by which names.
    pub access: Access,
    /// What connections may cost.
    pub connections: Connections,
    /// What is measured, and by whom.
    pub telemetry: Arc<Telemetry>,
    /// The address that others reach this server by: links and callbacks begin with it.
    pub public_url: Option<String>,
    /// How the outside is told.
    pub webhooks: Webhooks,
    /// What A2A clients are offered.
    pub a2a: A2a,
    /// How outside jobs report back.
    pub jobs: Jobs,
    /// Directories in which readable copies are kept, and of which agents.
    pub mirrors: BTreeMap<PathBuf, BTreeSet<AgentName>>,
    /// Logins without which tools of an agent are not known.
    pub logins: BTreeMap<AgentName, Vec<Arc<Desk>>>,
    /// Where tokens of logins are kept, if they are.
    pub vault: Option<Arc<Vault>>,
    /// Intercepts A2A requests before the engine gets them: for programs that embed the server. `standfast` sets none.
    pub a2a_interceptor: Option<Arc<dyn A2aInterceptor>>,
}

/// What A2A clients are offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct A2a {
    /// Whether clients may name receivers of push notifications.
    pub push_notifications: bool,
    /// Whether they may follow tasks.
    pub streaming: bool,
    /// Whether those who are known are told more of an agent.
    pub extended_card: bool,
    /// What cards are signed with, if they are.
    pub card_key: Option<CardKey>,
    /// Which decisions count that name no hold.
    pub decisions: Decisions,
}

/// Intercepts A2A requests before the engine gets them. A program over the library may bring one.
pub trait A2aInterceptor: Send + Sync {
    /// Whether a request with this bearer token may pass. The public card is always open.
    fn authorize(&self, bearer: Option<&str>, resource: A2aResource) -> Result<(), A2aDenial>;

    /// How the card describes the credential that every request needs; none where it needs none.
    fn credential(&self) -> Option<&'static str>;

    /// An extension of the protocol that clients must declare before they send messages.
    fn required_extension(&self) -> Option<RequiredExtension>;

    /// What becomes of a message to an agent.
    fn route(&self, agent: &AgentName, message: &A2aMessage<'_>) -> MessageRoute;
}

/// What an A2A request is for, as far as an interceptor tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum A2aResource {
    /// Any operation.
    Any,
    /// The extended card of an agent.
    ExtendedCard,
}

/// Why an interceptor does not let a request pass, in words for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum A2aDenial {
    /// The credential is missing or invalid.
    Unauthenticated(String),
    /// The caller is known and lacks the permission.
    Forbidden(String),
}

/// An extension of the protocol, as the card names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequiredExtension {
    /// Its URI.
    pub uri: &'static str,
    /// What it is for.
    pub description: &'static str,
}

/// A message as an interceptor sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct A2aMessage<'a> {
    /// The client's id of it.
    pub id: &'a str,
    /// The task that it belongs to; none when it starts one.
    pub task: Option<&'a str>,
    /// The context that the client names.
    pub context: Option<&'a str>,
    /// Its first part, if that is text.
    pub first_text: &'a str,
    /// Whether a part of it is structured data, such as a decision.
    pub has_data: bool,
}

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageRoute {
    /// The engine handles it, as it does without an interceptor.
    Engine,
    /// It is answered with this text, and there is no task.
    Reply(String),
    /// Its context is refused.
    RefuseContext,
    /// The engine handles it; on a task that waits for input it supersedes the request instead of answering it.
    Supersede,
}

/// Which decisions count that name no hold (C26).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decisions {
    /// Those of callers who were shown the hold, by the last answer about its task.
    Shown,
    /// None.
    Strict,
}

impl Default for A2a {
    fn default() -> A2a {
        A2a {
            push_notifications: true,
            streaming: true,
            extended_card: true,
            card_key: None,
            decisions: Decisions::Shown,
        }
    }
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

/// How outside jobs report back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jobs {
    /// How long a job that is over is still shown; its run's log keeps it.
    pub keep: Millis,
    /// How long a job counts as worked on after its last word.
    pub processing_lasts: Millis,
    /// Reports of one caller within a minute.
    pub per_caller: u32,
    /// Reports about one job within a minute.
    pub per_job: u32,
}

impl Default for Jobs {
    fn default() -> Jobs {
        Jobs {
            keep: Millis::hours(7 * 24),
            processing_lasts: Millis::seconds(10 * 60),
            per_caller: 600,
            per_job: 60,
        }
    }
}

/// How the outside is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhooks {
    /// What the secrets of subscriptions are made from; without it nobody can subscribe.
    pub key: Option<SigningKey>,
    /// Which addresses may be told.
    pub guard: Guard,
    /// How long a receiver may take to answer.
    pub timeout: Millis,
    /// How long after each failed try the next one is; after the last it is given up.
    pub retries: Vec<Millis>,
}

impl Default for Webhooks {
    fn default() -> Webhooks {
        let (minute, hour) = (60, 60 * 60);
        let retries = [
            5,
            30,
            2 * minute,
            10 * minute,
            30 * minute,
            hour,
            3 * hour,
            6 * hour,
            12 * hour,
            24 * hour,
            24 * hour,
        ];
        Webhooks {
            key: None,
            guard: Guard::default(),
            timeout: Millis::seconds(15),
            retries: retries.map(Millis::seconds).to_vec(),
        }
    }
}

/// Who may call, and by which names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// How callers are known.
    pub auth: Auth,
    /// The address that the server listens on.
    pub listen: IpAddr,
    /// Names that callers may know it by, beside that address and those of this machine: in lower case, without port.
    pub hosts: BTreeSet<String>,
    /// Proxies that are believed when they say whom a request comes from.
    pub trusted_proxies: Vec<IpNet>,
}

/// How callers are known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Auth {
    /// Not at all: everyone is the user `local`, who administers. For this machine only.
    #[default]
    Local,
    /// By an API key on every request.
    Keys,
    /// By a token of this identity provider on every request.
    Tokens(Arc<Issuer>),
    /// By either.
    KeysAndTokens(Arc<Issuer>),
}

/// What connections may cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connections {
    /// How many there are at once; more wait until one ends.
    pub at_once: usize,
    /// How long a client may take for the headers of a request, and how long it may keep a connection without one.
    pub header_wait: Millis,
    /// How many headers a request may have.
    pub headers: usize,
    /// How many bytes its headers may have together.
    pub header_bytes: usize,
}

/// An agent.
#[derive(Clone)]
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
    /// How long each may work, waiting left out; without limit when it is none.
    pub may_work: Option<Millis>,
    /// Whether clients get its model's words while they come.
    pub streaming: Streaming,
    /// Whether its calls can wait for a person.
    pub tracking: Tracking,
    /// Where its runs live.
    pub lives: Place,
    /// The inboxes that it takes work from.
    pub serves: Option<Serves>,
}

/// How an agent serves inboxes (S4-30).
#[derive(Debug, Clone)]
pub struct Serves {
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

impl Serves {
    /// What an agent's tasks are pinned to: `suspend` is there beside its own tools, and is the only one of its kind.
    #[must_use]
    pub fn new(agent: &Definition, inboxes: Vec<ServedInbox>, max_concurrent: usize) -> Option<Serves> {
        let mut definition = agent.clone();
        let usual = ToolName::new(suspend::NAME).ok()?;
        definition.tools.remove(&usual);
        definition.tools.insert(ToolName::new(suspend::IN_INBOXES).ok()?, SuspendForInput::spec());
        let digest = definition.digest();
        Some(Serves { inboxes, max_concurrent, definition: Arc::new(definition), digest })
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
pub enum Streaming {
    /// They do.
    #[default]
    On,
    /// They get whole replies only.
    Off,
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
    /// Those named: users, groups, roles. None means that only the owner decides, an empty list that nobody does.
    pub named: Option<BTreeSet<Party>>,
    /// Whether whoever started a run may decide its holds.
    pub self_approval: SelfApproval,
    /// Tools about which they may not, whatever else says that they may.
    pub four_eyes: BTreeSet<ToolName>,
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

impl Approvers {
    /// Whether whoever started a run may decide about a call of this tool. The strictest counts.
    #[must_use]
    pub fn self_approval_of(&self, tool: Option<&ToolName>) -> SelfApproval {
        match tool.is_some_and(|tool| self.four_eyes.contains(tool)) {
            true => SelfApproval::Forbid,
            false => self.self_approval,
        }
    }

    /// Whether somebody is named: by their name, by a group, or by a role.
    #[must_use]
    pub fn include(&self, who: &Principal) -> bool {
        self.named.as_ref().is_some_and(|named| who.parties().any(|party| named.contains(&party)))
    }
}

impl Auth {
    /// Whether API keys are taken.
    #[must_use]
    pub fn takes_keys(&self) -> bool {
        match self {
            Auth::Keys | Auth::KeysAndTokens(_) => true,
            Auth::Local | Auth::Tokens(_) => false,
        }
    }

    /// Whose tokens are taken.
    #[must_use]
    pub fn issuer(&self) -> Option<&Arc<Issuer>> {
        match self {
            Auth::Tokens(issuer) | Auth::KeysAndTokens(issuer) => Some(issuer),
            Auth::Local | Auth::Keys => None,
        }
    }
}

impl Default for Access {
    fn default() -> Access {
        Access {
            auth: Auth::Local,
            listen: Ipv4Addr::LOCALHOST.into(),
            hosts: BTreeSet::new(),
            trusted_proxies: Vec::new(),
        }
    }
}

impl Default for Connections {
    fn default() -> Connections {
        Connections {
            at_once: 20_000,
            header_wait: Millis::seconds(30),
            headers: 100,
            header_bytes: 64 * 1024,
        }
    }
}

impl Settings {
    /// Settings with the usual times and limits, and no agents.
    #[must_use]
    pub fn usual() -> Settings {
        Settings {
            tenant: Tenant::default_tenant(),
            agents: BTreeMap::new(),
            default_agent: None,
            purposes: BTreeMap::new(),
            v03_cards: BTreeSet::new(),
            cards: BTreeMap::new(),
            limits: Arc::new(Limits::default()),
            agent_limits: BTreeMap::new(),
            lease: Millis::seconds(6),
            node_name: String::new(),
            poll: Millis(500),
            keep_ended: None,
            max_wait: Millis::seconds(300),
            max_body: 1024 * 1024,
            access: Access::default(),
            connections: Connections::default(),
            telemetry: Arc::default(),
            public_url: None,
            webhooks: Webhooks::default(),
            a2a: A2a::default(),
            jobs: Jobs::default(),
            mirrors: BTreeMap::new(),
            logins: BTreeMap::new(),
            vault: None,
            a2a_interceptor: None,
        }
    }
}

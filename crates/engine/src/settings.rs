//! What a server is made of: agents, their models and tools, limits, times.
//!
//! A typed value that is checked once. The demo and the tests build it by hand; a configuration file becomes one.

mod agent;
mod channels;
mod gate;
mod people;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;
use standfast_core::command::Limits;
use standfast_core::name::{AgentName, Tenant, UserId};
use standfast_core::time::Millis;

use crate::auth::IdentityProvider;
use crate::card_key::CardKey;
use crate::outbound::guard::Guard;
use crate::secrets::SigningKey;
use crate::telemetry::Telemetry;
use crate::traces::Traces;
use crate::upstream::Gateway;
use crate::vault::Vault;

pub use agent::{
    Agent, CallTracking, Card, CardReaders, HISTORY_TOKENS, InboxService, PinnedDefinition, ServedInbox,
    Skill, StreamingMode,
};
pub use channels::{
    Channel, ChannelSecret, ChannelVia, DecideInChat, DiscordInteractive, DiscordRoom, MailLogin, MailServer,
    MailTls, NtfyTopic, SlackInteractive, SlackRoom, WebhookFormat, WebhookRoom,
};
pub use gate::{GATE, gate_agent};
pub use people::{Absence, ApprovalLinks, BearerLinks, ConfiguredPerson, LinkSignIn, NotifyWishes};
pub use rules::Rules;

/// What the user names of rooms begin with.
pub(crate) const ROOM: &str = "channel:";

/// What a process has only once, given to it when it starts: nothing that is reloaded has it.
#[derive(Debug, Clone)]
pub struct FixedSettings {
    /// Whose runs they are.
    pub tenant: Tenant,
    /// How long a node's claim on a run lasts without renewal.
    pub lease: Millis,
    /// What this node is called among others.
    pub node_name: String,
    /// How often a node looks for due runs when nobody tells it.
    pub poll: Millis,
    /// How many bytes the body of a request may have.
    pub max_body: usize,
    /// What connections may cost.
    pub connections: Connections,
    /// The address that the server listens on.
    pub listen: IpAddr,
    /// Directories in which readable copies are kept, and of which agents.
    pub mirrors: BTreeMap<PathBuf, BTreeSet<AgentName>>,
    /// Whether this process ends TLS itself: then callers reach it by https, whatever `public_url` says.
    pub speaks_https: bool,
    /// What is measured, and by whom.
    pub telemetry: Arc<Telemetry>,
    /// Where spans go; none where traces are off.
    pub traces: Option<Arc<Traces>>,
}

/// What a server is made of, as far as a reload may change it.
pub struct Settings {
    /// The agents.
    pub agents: BTreeMap<AgentName, Arc<Agent>>,
    /// The built-in agent of gates: by its rules and approvers their calls are judged and decided.
    pub gate: Arc<Agent>,
    /// The agent at the root of the server, for protocols that have one there.
    pub default_agent: Option<AgentName>,
    /// The MCP servers that clients reach through this one, by name.
    pub gateways: BTreeMap<String, Arc<Gateway>>,
    /// Budgets and caps of agents that have no others.
    pub limits: Arc<Limits>,
    /// Of how many open holds people are notified; those above are listed, and nobody is notified of them.
    pub notified_holds: NotifiedHolds,
    /// How long the contents of a run are kept once it has ended, unless its agent says otherwise; for ever if that is not said.
    pub keep_ended: Option<Millis>,
    /// How long a caller who waits for a run is kept at most.
    pub max_wait: Millis,
    /// From when on new runs are refused.
    pub load: Load,
    /// Who may call, and by which names.
    pub access: Access,
    /// The address that others reach this server by: links and callbacks begin with it.
    pub public_url: Option<String>,
    /// People whom the configuration names: approval links are issued for them, and channels reach them.
    pub people: BTreeMap<UserId, ConfiguredPerson>,
    /// How approval links are signed; without it there are none.
    pub links: Option<ApprovalLinks>,
    /// How those people, and rooms of chats, are notified of pending holds.
    pub channels: Vec<Channel>,
    /// How webhooks are delivered.
    pub webhooks: Webhooks,
    /// What A2A clients are offered.
    pub a2a: A2a,
    /// How outside jobs report back.
    pub jobs: JobSettings,
    /// How long a task lies in an inbox until somebody must have taken it, unless it says otherwise (S4-29).
    pub task_ttl: Option<Millis>,
    /// Where tokens of logins are kept, if they are.
    pub vault: Option<Arc<Vault>>,
    /// What pages lead a newcomer through; only the embedded demo has something.
    pub tour: Option<Tour>,
    /// Intercepts A2A requests before the engine gets them: for programs that embed the server. `standfast` sets none.
    pub a2a_interceptor: Option<Arc<dyn A2aInterceptor>>,
}

/// Of how many open holds people are notified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NotifiedHolds {
    /// Of one agent; none means of all.
    pub per_agent: Option<u64>,
    /// Of the runs of one owner; none means of all.
    pub per_owner: Option<u64>,
}

/// What A2A clients are offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct A2a {
    /// Whether clients may name receivers of push notifications.
    pub push_notifications: bool,
    /// Whether they may follow tasks.
    pub streaming: bool,
    /// Whether authenticated callers see more of an agent.
    pub extended_card: bool,
    /// What cards are signed with, if they are.
    pub card_key: Option<CardKey>,
    /// Which decisions count that name no hold.
    pub decisions: ImpliedDecisions,
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
pub enum ImpliedDecisions {
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
            decisions: ImpliedDecisions::Shown,
        }
    }
}

/// How outside jobs report back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSettings {
    /// How long a job that has ended is still shown; its run's log keeps it.
    pub keep: Millis,
    /// How long a job counts as worked on after its last word.
    pub processing_lasts: Millis,
    /// Reports of one caller within a minute.
    pub per_caller: u32,
    /// Reports about one job within a minute.
    pub per_job: u32,
}

impl Default for JobSettings {
    fn default() -> JobSettings {
        JobSettings {
            keep: Millis::hours(7 * 24),
            processing_lasts: Millis::seconds(10 * 60),
            per_caller: 600,
            per_job: 60,
        }
    }
}

/// How webhooks are delivered.
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
    /// Names that callers may know it by, beside the address that it listens on and those of this machine: in lower case,
    /// without port.
    pub hosts: BTreeSet<String>,
    /// Proxies that are believed when they say whom a request comes from.
    pub trusted_proxies: Vec<IpNet>,
    /// How long sessions of browsers and of the command line last.
    pub sessions: SessionLimits,
    /// How often they may ask.
    pub rates: RateLimits,
}

/// How many requests are let in within a minute; none where there is no limit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RateLimits {
    /// From one address, before it is known who asks.
    pub per_address: Option<u32>,
    /// Of one user, decisions apart.
    pub per_principal: Option<u32>,
    /// Of all users of a tenant together, decisions apart.
    pub per_tenant: Option<u32>,
    /// Decisions of one user; as many as other requests where nothing is said.
    pub decisions: Option<u32>,
    /// Of one user to one route, such as `POST /api/v1/agents/{id}/runs`.
    pub routes: BTreeMap<String, u32>,
}

impl RateLimits {
    /// Whether nobody is limited who is known.
    #[must_use]
    pub fn are_none_for_people(&self) -> bool {
        self.per_principal.is_none()
            && self.per_tenant.is_none()
            && self.decisions.is_none()
            && self.routes.is_empty()
    }
}

/// How long a session lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// Without being used.
    pub idle: Millis,
    /// At most.
    pub lasts: Millis,
}

impl Default for SessionLimits {
    fn default() -> SessionLimits {
        SessionLimits { idle: Millis::hours(24), lasts: Millis::hours(7 * 24) }
    }
}

/// How callers are known.
#[derive(Debug, Clone, Default)]
pub enum Auth {
    /// Not at all: everyone is the user `local`, who administers. For this machine only.
    #[default]
    Local,
    /// By an API key on every request.
    Keys,
    /// By a token of this identity provider on every request.
    Tokens(Arc<dyn IdentityProvider>),
    /// By either.
    KeysAndTokens(Arc<dyn IdentityProvider>),
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

/// By the same means, and by the same provider.
impl PartialEq for Auth {
    fn eq(&self, other: &Auth) -> bool {
        match (self, other) {
            (Auth::Local, Auth::Local) | (Auth::Keys, Auth::Keys) => true,
            (Auth::Tokens(one), Auth::Tokens(other))
            | (Auth::KeysAndTokens(one), Auth::KeysAndTokens(other)) => one == other,
            (Auth::Local | Auth::Keys | Auth::Tokens(_) | Auth::KeysAndTokens(_), _) => false,
        }
    }
}

impl Eq for Auth {}

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
    pub fn issuer(&self) -> Option<&Arc<dyn IdentityProvider>> {
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
            hosts: BTreeSet::new(),
            trusted_proxies: Vec::new(),
            sessions: SessionLimits::default(),
            rates: RateLimits::default(),
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

/// From when on new runs are refused, on each node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// How many writes may wait for the store.
    pub waiting_writes: usize,
    /// How many stored runs may wait for a slot.
    pub queued_runs: u64,
}

impl Default for Load {
    fn default() -> Load {
        Load { waiting_writes: 1024, queued_runs: 100_000 }
    }
}

/// The usual times and limits.
impl Default for FixedSettings {
    fn default() -> FixedSettings {
        FixedSettings {
            tenant: Tenant::default_tenant(),
            lease: Millis::seconds(6),
            node_name: String::new(),
            poll: Millis(500),
            max_body: 1024 * 1024,
            connections: Connections::default(),
            listen: Ipv4Addr::LOCALHOST.into(),
            mirrors: BTreeMap::new(),
            speaks_https: false,
            telemetry: Arc::default(),
            traces: None,
        }
    }
}

/// A first minute with the server: an agent that asks before it changes something, and where its effects can be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tour {
    /// Whom to ask.
    pub agent: AgentName,
    /// For what.
    pub message: String,
    /// The file with a line for each effect.
    pub effects: PathBuf,
    /// Whom to ask for a change of a file, and for what.
    pub change: (AgentName, String),
}

impl Settings {
    /// The agent of this name.
    #[must_use]
    pub fn agent(&self, name: &str) -> Option<&Arc<Agent>> {
        self.agents.iter().find(|(known, _)| known.as_str() == name).map(|(_, agent)| agent)
    }

    /// The agent that runs of this name belong to: a configured one, or the one of gates.
    #[must_use]
    pub fn configured_or_built_in(&self, name: &AgentName) -> Option<&Arc<Agent>> {
        self.agents.get(name).or((name.as_str() == GATE).then_some(&self.gate))
    }

    /// Somebody of a tenant whom the configuration names.
    #[must_use]
    pub fn person(&self, tenant: &Tenant, user: &UserId) -> Option<&ConfiguredPerson> {
        self.people.get(user).filter(|person| person.tenant == *tenant)
    }

    /// The room of a chat that a user name stands for: whom notices to several people at once are for.
    #[must_use]
    pub fn room(&self, tenant: &Tenant, user: &UserId) -> Option<&Channel> {
        let name = user.as_str().strip_prefix(ROOM)?;
        self.channels.iter().find(|one| one.is_room() && one.name == name && one.tenant == *tenant)
    }

    /// The budgets and caps of an agent, also of one that is not configured any more.
    #[must_use]
    pub fn limits_of(&self, agent: &AgentName) -> &Arc<Limits> {
        let own = self.agents.get(agent).and_then(|agent| agent.limits.as_ref());
        own.unwrap_or(&self.limits)
    }

    /// Settings with the usual times and limits, and no agents.
    #[must_use]
    pub fn usual() -> Settings {
        Settings {
            agents: BTreeMap::new(),
            gate: Arc::new(gate_agent(Rules::default())),
            default_agent: None,
            limits: Arc::new(Limits::default()),
            notified_holds: NotifiedHolds::default(),
            keep_ended: None,
            max_wait: Millis::seconds(300),
            load: Load::default(),
            access: Access::default(),
            public_url: None,
            people: BTreeMap::new(),
            links: None,
            channels: Vec::new(),
            gateways: BTreeMap::new(),
            webhooks: Webhooks::default(),
            a2a: A2a::default(),
            jobs: JobSettings::default(),
            task_ttl: Some(Millis::hours(24)),
            vault: None,
            tour: None,
            a2a_interceptor: None,
        }
    }
}

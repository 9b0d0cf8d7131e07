//! From a right configuration to settings: models, tools and definitions that a server runs with.
//!
//! What a run is pinned to (`Definition`) gets instructions, model name, tools and what deny and silence do; never keys
//! or addresses: those are read from the current configuration whenever they are needed (rule 8).

mod channels;
mod people;
mod reconcile;
pub(super) mod tools;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use standfast_core::approver::Approver;
use standfast_core::command::Limits;
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::id::StorageKind;
use standfast_core::name::{AgentName, BadName, InboxName, ToolName, UserId};
use standfast_core::time::Millis;
use standfast_engine::auth::{Approvers, SelfApproval as Decides};
use standfast_engine::card_key::{CardKey, NoCardKey};
use standfast_engine::clock::Clock;
use standfast_engine::outbound::guard::Guard;
use standfast_engine::secrets::SigningKey;
use standfast_engine::settings::{
    A2a, Access, Agent, Auth, CallTracking, Card, CardReaders, Connections, FixedSettings, HISTORY_TOKENS,
    ImpliedDecisions, InboxService, JobSettings, Load, NotifiedHolds, RateLimits, Rules, ServedInbox,
    SessionLimits, Settings, Skill, StreamingMode, Webhooks, gate_agent,
};
use standfast_engine::tool::Tool;
use standfast_engine::tool::read_result::{self, ReadResult};
use standfast_engine::tool::suspend::{self, SuspendForInput};
use standfast_models::provider::BadProvider;
use standfast_policy::effect_key::KeyTemplate;
use standfast_policy::hours::BusinessHours;
use standfast_surfaces::jwt::{BadIssuer, Issuer, IssuerSettings, TokenRules};
use standfast_tools::mcp::login::Logins;
use standfast_tools::sandbox::{NoSandbox, probe};
use standfast_tools::workspace::BadWorkspace;
use tools::ToolFactory;

use super::Config;
use super::file::{self, Sandbox, SelfApproval, ToolKind, ToolType};
use super::mcp::McpTools;
use super::models::{self, Models};
use super::plan::{AgentPlan, tool_holds};
use super::problem::Problems;
use super::stores::{RunStorage, absolute};
use crate::database::Database;
use crate::encryption::{self, EncryptionSettings, Kms};
use crate::heads::{self, HeadSettings, KeySource};
pub use tools::kept_key;

/// Why a right configuration is not a server.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A name is none.
    #[error(transparent)]
    Name(#[from] BadName),
    /// An approver is none.
    #[error("approvers: {0}")]
    Approver(String),
    /// The identity provider is none.
    #[error(transparent)]
    Issuer(#[from] BadIssuer),
    /// The key of cards is none.
    #[error("server.a2a.card_signature.key {0}")]
    CardKey(#[from] NoCardKey),
    /// A script is gone or changed since it was checked.
    #[error("the script {}: {why}", path.display())]
    Script {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A provider cannot be set up.
    #[error(transparent)]
    Provider(#[from] BadProvider),
    /// Commands cannot be confined.
    #[error("tools.{tool}: {error}")]
    Sandbox {
        /// The tool.
        tool: String,
        /// Why.
        error: NoSandbox,
    },
    /// The key that the secrets of outside jobs are made of cannot be kept.
    #[error(
        "cannot store the key for callbacks of external jobs in {}: {error}; give the tools a webhook_secret, or repair \
         the file", path.display()
    )]
    CallbackKey {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// The directory that tools work in cannot be made.
    #[error("cannot create {}, the working directory of the tools: {error}; set another one with working_directory", path.display())]
    NoWorkspace {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// A file of a channel cannot be read.
    #[error("cannot read {}, the certificate_authority of a channel: {error}", path.display())]
    ChannelFile {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// MCP servers that cannot be used as the file says.
    #[error("{}", .0.show())]
    Mcp(Box<Problems>),
    /// A gateway cannot reach its server as the file says.
    #[error("the gateway `{name}` cannot be used: {why}; repair its entry below `gateways`")]
    Gateway {
        /// Its name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// Remote agents that cannot be used as the file says.
    #[error("{}", .0.show())]
    Remote(Box<Problems>),
    /// A call that is to say what became of another one may change something itself.
    #[error("`reconcile` of tool {tool}: {asked} is not read-only here; name a tool that changes nothing")]
    Reconcile {
        /// The tool.
        tool: String,
        /// The one that it names.
        asked: String,
    },
    /// The directory of the file tools cannot be used.
    #[error(transparent)]
    Workspace(#[from] BadWorkspace),
}

/// What a server has beside its configuration.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// The directory of its data: store and keys. No tool can reach it.
    pub data: PathBuf,
    /// The clock that it goes by.
    pub clock: Clock,
    /// What logins at MCP servers need; without it nobody can log in there.
    pub logins: Option<Logins>,
}

/// A server to be.
pub struct ServerParts {
    /// What its process has only once.
    pub fixed: FixedSettings,
    /// What it is made of besides, which a reload may change.
    pub settings: Settings,
    /// The database, if the file names one.
    pub database: Option<Database>,
    /// Whether agents live in memory beside it.
    pub uses_memory: bool,
}

impl Config {
    /// Whether this machine can do what the file asks of its kernel. Asked before anything is opened, so that a start
    /// that is refused leaves nothing behind.
    pub fn fits_this_machine(&self) -> Result<(), BuildError> {
        let commands = self.agents.iter().flat_map(|agent| &agent.tools);
        for plan in commands.filter(|plan| plan.kind == ToolType::Command) {
            let keys = self.file.tools.get(&plan.name).and_then(|tool| tool.kind.as_ref());
            let is_off = matches!(keys, Some(ToolKind::Command(keys)) if keys.sandbox == Some(Sandbox::Off));
            if !is_off {
                probe().map_err(|error| BuildError::Sandbox { tool: plan.name.clone(), error })?;
            }
        }
        Ok(())
    }

    /// The settings of this configuration. No tool can reach the server's data, the file itself and its
    /// `.env`. MCP servers that the file names are connected to.
    pub async fn build(&self, beside: &Surroundings) -> Result<ServerParts, BuildError> {
        let remotes = self.remote_agents(&beside.clock).await?;
        let workshop = ToolFactory::of(self, beside, &remotes);
        let models = Models::of_file(self)?;
        let mcp = self.mcp_tools(&workshop).await?;
        let mut agents = BTreeMap::new();
        for plan in &self.agents {
            if let Some(agent) = self.file.agents.get(&plan.name) {
                let agent = self.agent(agent, plan, &models, &workshop, &mcp)?;
                agents.insert(AgentName::new(&plan.name)?, Arc::new(agent));
            }
        }
        let usual = Settings::usual();
        let waiting_writes = self.file.server.limits.waiting_writes.and_then(|n| usize::try_from(n).ok());
        let server = &self.file.server.limits;
        let settings = Settings {
            agents,
            gate: Arc::new(gate_agent(Rules::Readable(self.policy.clone()))),
            default_agent: self.file.server.default_agent.as_ref().map(AgentName::new).transpose()?,
            limits: Arc::new(limits(server)),
            notified_holds: NotifiedHolds {
                per_agent: server.notified_holds_per_agent,
                per_owner: server.notified_holds_per_owner,
            },
            access: access(&self.file.server)?,
            people: people::people(&self.file)?,
            links: self.file.server.links.as_ref().map(people::links),
            channels: channels::channels(&self.file, &self.folder)?,
            webhooks: webhooks(&self.file.server),
            gateways: self.gateways(&workshop)?,
            a2a: a2a(&self.file.server)?,
            jobs: jobs(&self.file.server.async_tools),
            task_ttl: task_ttl(&self.file.server.inboxes),
            keep_ended: self.file.server.retention.ended_runs.map(|span| span.0),
            max_wait: server.max_wait.map_or(usual.max_wait, |span| span.0),
            load: Load {
                waiting_writes: waiting_writes.unwrap_or(usual.load.waiting_writes),
                queued_runs: server.queued_runs.unwrap_or(usual.load.queued_runs),
            },
            public_url: self.file.server.public_url.clone(),
            vault: beside.logins.as_ref().map(|logins| logins.vault.clone()),
            ..usual
        };
        Ok(ServerParts {
            fixed: self.fixed(),
            settings,
            database: self.database.clone(),
            uses_memory: self.uses_memory(),
        })
    }

    /// What a reload of this file does not change.
    fn fixed(&self) -> FixedSettings {
        let usual = FixedSettings::default();
        let (server, nodes) = (&self.file.server.limits, &self.file.server.nodes);
        let at_once = server.max_connections.and_then(|n| usize::try_from(n).ok());
        let max_body = server.max_body.and_then(|bytes| usize::try_from(bytes).ok());
        FixedSettings {
            node_name: nodes.name.clone().unwrap_or_default(),
            lease: nodes.take_over_after.map_or(usual.lease, |span| span.0),
            poll: nodes.poll.map_or(usual.poll, |span| span.0),
            connections: Connections {
                at_once: at_once.unwrap_or(usual.connections.at_once),
                ..usual.connections
            },
            max_body: max_body.unwrap_or(usual.max_body),
            mirrors: self.mirrors(),
            speaks_https: self.file.server.tls.is_some(),
            ..usual
        }
    }

    /// Whether agents live in memory beside the database.
    #[must_use]
    pub fn uses_memory(&self) -> bool {
        self.agents.iter().any(|plan| plan.lives == RunStorage::InMemory)
    }

    /// The key that the file names for secrets.
    #[must_use]
    pub fn secret_key(&self) -> Option<SigningKey> {
        signing_key(&self.file.server)
    }

    /// The files of the server's own certificate and of its key, if it has one.
    #[must_use]
    pub fn tls_files(&self) -> Option<(PathBuf, PathBuf)> {
        let tls = self.file.server.tls.as_ref()?;
        Some((absolute(&self.folder, &tls.certificate), absolute(&self.folder, &tls.key)))
    }

    /// How heads of the database are signed, if they are.
    #[must_use]
    pub fn heads(&self) -> Option<HeadSettings> {
        let audit = self.file.server.audit.as_ref()?;
        let key = match &audit.key_file {
            Some(file) => KeySource::File(absolute(&self.folder, file)),
            None => KeySource::Command(audit.key_command.clone()),
        };
        Some(HeadSettings {
            file: absolute(&self.folder, &audit.heads),
            key,
            every: audit.every.map_or(heads::USUAL_INTERVAL, |span| span.0),
            send_command: audit.send_command.clone(),
        })
    }

    /// How payloads are sealed, if they are.
    #[must_use]
    pub fn encryption(&self) -> Option<EncryptionSettings> {
        let encryption = self.file.server.encryption.as_ref()?;
        let path = |said: &str| absolute(&self.folder, said);
        let keys = encryption.keys.iter().map(|key| {
            let source = match (&key.file, &key.kms) {
                (Some(file), _) => encryption::KeySource::File(path(file)),
                (None, Some(kms)) => encryption::KeySource::Kms(Kms {
                    url: kms.url.clone(),
                    ciphertext: kms.ciphertext.clone(),
                    headers: kms
                        .headers
                        .iter()
                        .map(|(name, value)| (name.clone(), value.expose().to_owned()))
                        .collect(),
                    certificate_authority: kms.certificate_authority.as_deref().map(path),
                }),
                (None, None) => encryption::KeySource::Command(key.command.clone()),
            };
            (key.id.clone(), source)
        });
        Some(EncryptionSettings { key_file: encryption.key_file.as_deref().map(path), keys: keys.collect() })
    }

    /// Where readable copies are kept, and of which agents.
    pub(super) fn mirrors(&self) -> BTreeMap<PathBuf, BTreeSet<AgentName>> {
        let mut mirrors: BTreeMap<PathBuf, BTreeSet<AgentName>> = BTreeMap::new();
        for (name, agent) in &self.file.agents {
            let store = agent.session_store.as_ref().and_then(|store| self.file.session_stores.get(store));
            let mirror = store.and_then(|store| store.mirror.as_deref());
            if let (Some(mirror), Ok(name)) = (mirror, AgentName::new(name)) {
                mirrors.entry(absolute(&self.folder, mirror)).or_default().insert(name);
            }
        }
        mirrors
    }

    /// The budgets of an agent that has its own: the smaller counts, so that an agent cannot free itself.
    fn own_limits(&self, agent: &file::Agent) -> Option<Arc<Limits>> {
        let usual = limits(&self.file.server.limits);
        let smaller = |own: Option<u64>, usual: Option<u64>| own.into_iter().chain(usual).min();
        let own = Limits {
            turns: agent.max_turns.map_or(usual.turns, |turns| turns.min(usual.turns)),
            tokens: smaller(agent.budget.tokens, usual.tokens),
            cost_micros: smaller(agent.budget.cost.map(micros), usual.cost_micros),
            ..usual.clone()
        };
        (own != usual).then(|| Arc::new(own))
    }

    fn agent(
        &self,
        agent: &file::Agent,
        plan: &AgentPlan,
        models: &Models,
        workshop: &ToolFactory<'_>,
        mcp: &McpTools,
    ) -> Result<Agent, BuildError> {
        let definition = self.definition(agent, plan, workshop, mcp)?;
        let mut tools: BTreeMap<ToolName, Arc<dyn Tool>> = BTreeMap::new();
        let (mut needs_approval, mut says_nothing) = (BTreeSet::new(), BTreeSet::new());
        for tool in &plan.tools {
            for offered in mcp.get(&tool.name).into_iter().flatten() {
                tools.insert(offered.name.clone(), offered.tool.clone());
                if offered.tool.asks {
                    needs_approval.insert(offered.name.clone());
                }
                let terms = &offered.tool.terms;
                if terms.asks.is_none() && terms.all_ask.is_none() {
                    says_nothing.insert(offered.name.clone());
                }
            }
            // An entry that stands for the tools of a server is none itself; what it brings is a way to read on.
            if tool.kind == ToolType::Mcp {
                tools.insert(ToolName::new(read_result::NAME)?, workshop.tool(tool)?);
                continue;
            }
            let name = ToolName::new(&tool.name)?;
            tools.insert(name.clone(), workshop.tool(tool)?);
            if tool.asks {
                needs_approval.insert(name.clone());
            }
            let entry = self.file.tools.get(&tool.name);
            if entry.is_none_or(|entry| entry.common.requires_approval.is_none()) {
                says_nothing.insert(name);
            }
        }
        let serves = serves(agent, &definition)?;
        if serves.is_some() {
            tools.insert(ToolName::new(suspend::IN_INBOXES)?, Arc::new(SuspendForInput));
        }
        let awaited = plan.tools.iter().filter_map(|tool| mcp.awaited.get(&tool.name)).cloned();
        let built = Agent {
            tools,
            needs_approval,
            says_nothing,
            rules: Rules::Readable(self.policy.clone()),
            approvers: self.approvers(agent, plan, mcp)?,
            hours: hours(agent),
            remind_before: agent.task.as_ref().and_then(|task| task.hitl.remind_before).map(|span| span.0),
            effect_keys: self.effect_keys(plan)?,
            reconcile: self.reconcile(plan)?,
            quorum: self.quorum(plan, mcp)?,
            worker_pool: usize::try_from(plan.worker_pool).unwrap_or(usize::MAX),
            may_work: plan.may_work,
            history_tokens: agent.history_tokens.unwrap_or(HISTORY_TOKENS),
            streaming: match agent.reasoning.enable_streaming {
                Some(false) => StreamingMode::Off,
                Some(true) | None => StreamingMode::On,
            },
            tracking: if plan.mode.is_some() { CallTracking::On } else { CallTracking::Off },
            lives: match plan.lives {
                RunStorage::InMemory => StorageKind::Memory,
                RunStorage::Durably => StorageKind::Durable,
            },
            keep_ended: agent.retention.map(|span| span.0),
            serves,
            purpose: agent.description.clone(),
            card: card(&agent.a2a),
            limits: self.own_limits(agent),
            logins: awaited.collect(),
            ..Agent::new(definition, models.of(agent, self)?)
        };
        let built = reconcile::checked(built)?;
        let says_no = agent.task.as_ref().is_some_and(|task| task.hitl.hold_batch == Some(false));
        Ok(if says_no { Agent { batched: None, ..built } } else { built })
    }

    fn definition(
        &self,
        agent: &file::Agent,
        plan: &AgentPlan,
        workshop: &ToolFactory<'_>,
        mcp: &McpTools,
    ) -> Result<Definition, BuildError> {
        let llm = self.file.llms.get(&agent.llm);
        let mut tools = BTreeMap::new();
        for tool in &plan.tools {
            if tool.kind == ToolType::Mcp {
                let entry = self.file.tools.get(&tool.name);
                let holds = entry.and_then(|tool| tool_holds(&plan.holds, &tool.common));
                tools.insert(ToolName::new(read_result::NAME)?, ReadResult::spec());
                tools.extend(mcp.get(&tool.name).into_iter().flatten().map(|offered| {
                    (offered.name.clone(), ToolSpec { holds: holds.clone(), ..offered.spec.clone() })
                }));
                continue;
            }
            tools.insert(ToolName::new(&tool.name)?, workshop.spec(tool, plan)?);
        }
        // Those that it names, and those that its tools hand work to.
        let handed = plan.tools.iter().filter_map(|tool| tool.agent.as_ref());
        let handed = handed.filter(|name| !agent.sub_agents.contains(name));
        let sub_agents: Result<Vec<AgentName>, BadName> =
            agent.sub_agents.iter().chain(handed).map(AgentName::new).collect();
        Ok(Definition {
            agent: AgentName::new(&plan.name)?,
            prompt: agent.instructions.clone(),
            model: llm.and_then(|llm| llm.model.clone()).unwrap_or_else(|| agent.llm.clone()),
            model_parameters: llm.and_then(models::parameters),
            tools,
            policy: None,
            sub_agents: sub_agents?,
            show_thinking: agent.reasoning.show_thinking.unwrap_or(false),
            hold_batch: agent.task.as_ref().and_then(|task| task.hitl.hold_batch).unwrap_or(false),
            holds: plan.holds.clone(),
        })
    }

    /// How many must agree about calls of an agent's tools, where it is more than one.
    fn quorum(&self, plan: &AgentPlan, mcp: &McpTools) -> Result<BTreeMap<ToolName, u32>, BuildError> {
        let mut needed = BTreeMap::new();
        for tool in &plan.tools {
            let said = self.file.tools.get(&tool.name).and_then(|entry| entry.common.quorum);
            let Some(quorum) = said.filter(|quorum| *quorum > 1) else { continue };
            needed.insert(ToolName::new(&tool.name)?, quorum);
            let offered = mcp.get(&tool.name).into_iter().flatten();
            needed.extend(offered.map(|offered| (offered.name.clone(), quorum)));
        }
        Ok(needed)
    }

    /// What names the effects of an agent's tools; what cannot be read has been refused before.
    fn effect_keys(&self, plan: &AgentPlan) -> Result<BTreeMap<ToolName, KeyTemplate>, BuildError> {
        let mut keys = BTreeMap::new();
        for tool in &plan.tools {
            let written = self.file.tools.get(&tool.name).and_then(|entry| entry.common.effect_key.as_ref());
            if let Some(template) = written.and_then(|text| KeyTemplate::parse(text).ok()) {
                keys.insert(ToolName::new(&tool.name)?, template);
            }
        }
        Ok(keys)
    }

    /// Who may decide: the strictest of server, agent and tool (C24).
    fn approvers(
        &self,
        agent: &file::Agent,
        plan: &AgentPlan,
        mcp: &McpTools,
    ) -> Result<Approvers, BuildError> {
        let forbids =
            [self.file.server.self_approval, agent.self_approval].contains(&Some(SelfApproval::Forbid));
        let named: Option<Result<BTreeSet<Approver>, String>> =
            agent.approvers.as_ref().map(|named| named.iter().map(|name| approver(name)).collect());
        let rules = Rules::Readable(self.policy.clone()).approvers(&AgentName::new(&plan.name)?);
        let forbids_for = |name: &String| {
            let tool = self.file.tools.get(name);
            tool.and_then(|tool| tool.common.self_approval) == Some(SelfApproval::Forbid)
        };
        let mut four_eyes = BTreeSet::new();
        for name in plan.tools.iter().map(|tool| &tool.name).filter(|name| forbids_for(name)) {
            four_eyes.insert(ToolName::new(name)?);
            four_eyes.extend(mcp.get(name).into_iter().flatten().map(|offered| offered.name.clone()));
        }
        Ok(Approvers {
            four_eyes,
            named: named.transpose().map_err(BuildError::Approver)?,
            rules: Arc::new(rules),
            self_approval: if forbids { Decides::Forbid } else { Decides::Allow },
        })
    }
}

/// The hours in which an agent's holds are counted; what cannot be read has been refused before.
fn hours(agent: &file::Agent) -> Option<Arc<BusinessHours>> {
    let hours = agent.task.as_ref()?.hitl.business_hours.as_ref()?;
    hours.counted().ok().map(Arc::new)
}

/// The inboxes that an agent takes work from.
fn serves(agent: &file::Agent, definition: &Definition) -> Result<Option<InboxService>, BuildError> {
    let served = |name: &String| {
        let name = InboxName::new(name)?;
        Ok(ServedInbox { name, types: agent.inbox_types.clone() })
    };
    let inboxes = agent.inboxes.iter().map(served).collect::<Result<Vec<_>, BadName>>()?;
    let at_once = agent.max_concurrent.unwrap_or(file::Agent::MAX_CONCURRENT);
    let at_once = usize::try_from(at_once).unwrap_or(usize::MAX);
    Ok(if inboxes.is_empty() { None } else { InboxService::new(definition, inboxes, at_once) })
}

/// `owner`, `ann` or `user:ann`, `group:finance`, `role:on-call`.
pub(super) fn approver(name: &str) -> Result<Approver, String> {
    if name.contains(':') || name == "owner" {
        name.parse()
    } else {
        UserId::new(name).map(Approver::User).map_err(|bad| bad.to_string())
    }
}

/// Who may call, as far as the file says; the address is known later.
fn access(server: &file::Server) -> Result<Access, BuildError> {
    let takes_keys = server.auth.as_ref().is_some_and(|auth| auth.api_keys == Some(true));
    let issuer = server.auth.as_ref().and_then(|auth| auth.jwt.as_ref()).map(issuer).transpose()?;
    let auth = match (issuer.map(Arc::new), takes_keys) {
        (None, false) => Auth::Local,
        (None, true) => Auth::Keys,
        (Some(issuer), false) => Auth::Tokens(issuer),
        (Some(issuer), true) => Auth::KeysAndTokens(issuer),
    };
    let public = server.public_url.as_deref().and_then(host_of);
    let hosts = server.hosts.iter().map(|host| host.to_ascii_lowercase()).chain(public).collect();
    // An invalid network was refused when the file was checked.
    let trusted_proxies = server.trusted_proxies.iter().filter_map(|text| file::network(text)).collect();
    let usual = SessionLimits::default();
    let sessions = SessionLimits {
        idle: server.sessions.idle.map_or(usual.idle, |span| span.0),
        lasts: server.sessions.lasts.map_or(usual.lasts, |span| span.0),
    };
    let rates = rates(&server.limits.rates);
    Ok(Access { auth, hosts, trusted_proxies, sessions, rates })
}

/// How often somebody may ask.
fn rates(said: &file::Rates) -> RateLimits {
    RateLimits {
        per_address: said.per_address,
        per_principal: said.per_principal,
        per_tenant: said.per_tenant,
        decisions: said.decisions,
        routes: said.routes.clone(),
    }
}

/// The host of an address, in lower case, without its port.
pub(super) fn host_of(url: &str) -> Option<String> {
    reqwest::Url::parse(url).ok()?.host_str().map(str::to_ascii_lowercase)
}

fn a2a(server: &file::Server) -> Result<A2a, NoCardKey> {
    let usual = A2a::default();
    let signature = server.a2a.card_signature.as_ref();
    let read = |it: &file::CardSignature| CardKey::read(it.key.expose(), &it.key_id, it.jku.as_deref());
    Ok(A2a {
        push_notifications: server.a2a.push_notifications.unwrap_or(usual.push_notifications),
        streaming: usual.streaming,
        extended_card: usual.extended_card,
        card_key: signature.map(read).transpose()?,
        decisions: match server.a2a.decisions {
            Some(file::A2aDecisions::Strict) => ImpliedDecisions::Strict,
            Some(file::A2aDecisions::Shown) => ImpliedDecisions::Shown,
            None => usual.decisions,
        },
    })
}

/// What an agent says on its card beyond the usual.
fn card(said: &file::AgentA2a) -> Card {
    let skill = |skill: &file::Skill| Skill {
        id: skill.id.clone(),
        name: skill.name.clone().unwrap_or_else(|| skill.id.clone()),
        description: skill.description.clone(),
        tags: skill.tags.clone(),
        examples: skill.examples.clone(),
    };
    Card {
        skills: said.skills.iter().map(skill).collect(),
        input_modes: said.input_modes.clone(),
        output_modes: said.output_modes.clone(),
        readers: if said.v03_card == Some(true) { CardReaders::CurrentAndV03 } else { CardReaders::Current },
    }
}

fn webhooks(server: &file::Server) -> Webhooks {
    let (said, usual) = (&server.webhooks, Webhooks::default());
    let allowed_hosts = said.allowed_hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
    let retries = said.retries.as_ref().map(|spans| spans.iter().map(|span| span.0).collect());
    Webhooks {
        key: signing_key(server),
        guard: Guard { allowed_hosts, ..usual.guard },
        timeout: said.timeout.map_or(usual.timeout, |span| span.0),
        retries: retries.unwrap_or(usual.retries),
    }
}

fn signing_key(server: &file::Server) -> Option<SigningKey> {
    let (said, key_of) = (&server.webhooks, |key: &file::Secret| SigningKey::of_text(key.expose()));
    Some(key_of(said.key.as_ref()?).after(said.previous_keys.iter().map(key_of)))
}

/// How long a task may lie in its inbox; none means without limit.
fn task_ttl(said: &file::Inboxes) -> Option<Millis> {
    let ttl = said.task_ttl.map_or(Millis::hours(24), |span| span.0);
    Some(ttl).filter(|ttl| ttl.0 > 0)
}

fn jobs(said: &file::AsyncTools) -> JobSettings {
    let usual = JobSettings::default();
    JobSettings {
        keep: said.keep_settled.map_or(usual.keep, |span| span.0),
        processing_lasts: said.processing_lasts.map_or(usual.processing_lasts, |span| span.0),
        per_caller: said.per_caller.unwrap_or(usual.per_caller),
        per_job: said.per_call.unwrap_or(usual.per_job),
    }
}

fn issuer(jwt: &file::Jwt) -> Result<Issuer, BadIssuer> {
    let claim = |said: &Option<String>, usual: &str| said.clone().unwrap_or_else(|| usual.to_owned());
    Issuer::new(IssuerSettings {
        jwks_url: jwt.jwks_url.clone(),
        refresh: jwt.refresh.map_or(Millis::seconds(15 * 60), |span| span.0),
        max_age: jwt.max_age.map_or(Millis::hours(24), |span| span.0),
        rules: TokenRules {
            issuer: jwt.issuer.clone(),
            audience: jwt.audience.clone(),
            skew: jwt.skew.map_or(Millis::seconds(60), |span| span.0),
            user_claim: claim(&jwt.user_claim, "sub"),
            groups_claim: claim(&jwt.groups_claim, "groups"),
            roles_claim: claim(&jwt.roles_claim, "roles"),
            tenant_claim: jwt.tenant_claim.clone(),
        },
        sign_in: jwt.sign_in.as_ref().map(people::sign_in),
    })
}

fn limits(limits: &file::Limits) -> Limits {
    let usual = Limits::default();
    Limits {
        open_holds: limits.open_holds.and_then(|n| usize::try_from(n).ok()).unwrap_or(usual.open_holds),
        depth: limits.depth.unwrap_or(usual.depth),
        children: limits.children.unwrap_or(usual.children),
        model_attempts: limits.model_attempts.unwrap_or(usual.model_attempts),
        call_attempts: limits.call_attempts.unwrap_or(usual.call_attempts),
        turns: limits.turns.unwrap_or(usual.turns),
        tokens: limits.tokens.or(usual.tokens),
        cost_micros: limits.cost.map(micros).or(usual.cost_micros),
        orphan_margin: Millis(usual.orphan_margin.0),
        deny_memory: limits.deny_memory.map_or(usual.deny_memory, |span| span.0),
    }
}

/// Millionths of a unit.
fn micros(cost: f64) -> u64 {
    (cost * 1e6).round() as u64
}

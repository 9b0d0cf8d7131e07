//! From a right configuration to settings: models, tools and definitions that a server runs with.
//!
//! What a run is pinned to (`Definition`) gets instructions, model name, tools and what deny and silence do; never keys
//! or addresses: those are read from the current configuration whenever they are needed (rule 8).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use holdpoint_core::command::Limits;
use holdpoint_core::definition::{Definition, ToolSpec};
use holdpoint_core::id::Place;
use holdpoint_core::json::RawJson;
use holdpoint_core::name::{AgentName, BadName, ToolName, UserId};
use holdpoint_core::time::Millis;

use super::file::{self, LlmType, SelfApproval, ToolType};
use super::plan::{AgentPlan, ToolPlan, tool_holds};
use super::stores::{Lives, absolute};
use super::{Config, available};
use crate::auth::{BadIssuer, BadParty, Issuer, IssuerSettings, Party, TokenRules};
use crate::model::Model;
use crate::model::script_file::{self, ScriptError};
use crate::settings::{
    Access, Agent, Approvers, Auth, Connections, SelfApproval as Decides, Settings, Tracking,
};
use crate::tool::Tool;
use crate::tool::command::{CommandOptions, CommandTool};
use crate::tool::files::{FileKind, FileLimits, FileTool};
use crate::tool::sandbox::NoSandbox;
use crate::tool::suspend::SuspendForInput;
use crate::tool::workspace::{BadWorkspace, Workspace};

/// Where tools work beside the configuration file, unless it says otherwise.
const WORKSPACE: &str = "workspace";

/// Why a right configuration is not a server.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// It asks for what a later version will have.
    #[error("this version cannot do all that {file} asks for:\n{}", list(.missing))]
    NotYet {
        /// The file.
        file: String,
        /// What is missing, one entry each.
        missing: Vec<String>,
    },
    /// A name is none.
    #[error(transparent)]
    Name(#[from] BadName),
    /// An approver is none.
    #[error(transparent)]
    Party(#[from] BadParty),
    /// The identity provider is none.
    #[error(transparent)]
    Issuer(#[from] BadIssuer),
    /// A script is gone or changed since it was checked.
    #[error("the script {}: {why}", path.display())]
    Script {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Commands cannot be confined.
    #[error("commands cannot run here: {0}")]
    Sandbox(#[from] NoSandbox),
    /// The directory that tools work in cannot be made.
    #[error("cannot make {}, where tools work: {error}; name another one with working_directory", path.display())]
    NoWorkspace {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// The directory of the file tools cannot be used.
    #[error(transparent)]
    Workspace(#[from] BadWorkspace),
}

fn list(missing: &[String]) -> String {
    let lines: Vec<String> = missing.iter().map(|line| format!("  not yet available: {line}")).collect();
    lines.join("\n")
}

/// A server to be.
pub struct Built {
    /// What it is made of.
    pub settings: Settings,
    /// The database, if the file names one.
    pub database: Option<PathBuf>,
    /// Whether agents live in memory beside it.
    pub uses_memory: bool,
}

impl Config {
    /// The settings that this configuration comes to.
    ///
    /// What is `protected` no tool can reach: store and keys. The file itself and its `.env` always are.
    pub fn build(&self, protected: &[PathBuf]) -> Result<Built, BuildError> {
        let missing = available::not_yet(self);
        if !missing.is_empty() {
            return Err(BuildError::NotYet { file: self.source.name.clone(), missing });
        }
        let own = [PathBuf::from(&self.source.name), self.folder.join(".env")];
        let protected: Vec<PathBuf> = protected
            .iter()
            .cloned()
            .chain(self.database.clone())
            .chain(own)
            .filter(|path| path.exists())
            .collect();
        let mut agents = BTreeMap::new();
        for plan in &self.agents {
            if let Some(agent) = self.file.agents.get(&plan.name) {
                agents.insert(AgentName::new(&plan.name)?, Arc::new(self.agent(agent, plan, &protected)?));
            }
        }
        let usual = Settings::usual();
        let server = &self.file.server.limits;
        let settings = Settings {
            agents,
            limits: Arc::new(limits(server)),
            access: access(&self.file.server)?,
            connections: Connections {
                at_once: server
                    .max_connections
                    .and_then(|n| usize::try_from(n).ok())
                    .unwrap_or(usual.connections.at_once),
                ..usual.connections
            },
            max_wait: server.max_wait.map_or(usual.max_wait, |span| span.0),
            max_body: server.max_body.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usual.max_body),
            ..usual
        };
        let uses_memory = self.agents.iter().any(|plan| plan.lives == Lives::InMemory);
        Ok(Built { settings, database: self.database.clone(), uses_memory })
    }

    fn agent(
        &self,
        agent: &file::Agent,
        plan: &AgentPlan,
        protected: &[PathBuf],
    ) -> Result<Agent, BuildError> {
        let definition = self.definition(agent, plan)?;
        let mut tools: BTreeMap<ToolName, Arc<dyn Tool>> = BTreeMap::new();
        let mut needs_approval = BTreeSet::new();
        for tool in &plan.tools {
            let name = ToolName::new(&tool.name)?;
            if let Some(built) = self.tool(tool, protected)? {
                tools.insert(name.clone(), built);
            }
            if tool.asks {
                needs_approval.insert(name);
            }
        }
        Ok(Agent {
            digest: definition.digest(),
            definition: Arc::new(definition),
            model: self.model(agent)?,
            tools,
            needs_approval,
            approvers: self.approvers(agent)?,
            worker_pool: usize::try_from(plan.worker_pool).unwrap_or(usize::MAX),
            tracking: if plan.mode.is_some() { Tracking::On } else { Tracking::Off },
            lives: match plan.lives {
                Lives::InMemory => Place::Memory,
                Lives::Durably => Place::Durable,
            },
        })
    }

    fn definition(&self, agent: &file::Agent, plan: &AgentPlan) -> Result<Definition, BuildError> {
        let llm = self.file.llms.get(&agent.llm);
        let mut tools = BTreeMap::new();
        for tool in &plan.tools {
            if let Some(spec) = self.spec(tool, plan) {
                tools.insert(ToolName::new(&tool.name)?, spec);
            }
        }
        let sub_agents: Result<Vec<AgentName>, BadName> =
            agent.sub_agents.iter().map(AgentName::new).collect();
        Ok(Definition {
            agent: AgentName::new(&plan.name)?,
            prompt: agent.instructions.clone(),
            model: llm.and_then(|llm| llm.model.clone()).unwrap_or_else(|| agent.llm.clone()),
            model_parameters: llm.and_then(parameters),
            tools,
            policy: None,
            sub_agents: sub_agents?,
            show_thinking: agent.reasoning.show_thinking.unwrap_or(false),
            hold_batch: agent.task.as_ref().and_then(|task| task.hitl.hold_batch).unwrap_or(false),
            holds: plan.holds.clone(),
        })
    }

    /// A tool as the model is told of it.
    fn spec(&self, plan: &ToolPlan, agent: &AgentPlan) -> Option<ToolSpec> {
        let mut spec = match plan.kind {
            ToolType::Command => CommandTool::spec(),
            ToolType::SuspendForInput => SuspendForInput::spec(),
            ToolType::ReadFile => FileKind::Read.spec(),
            ToolType::WriteFile => FileKind::Write.spec(),
            ToolType::DeleteFile => FileKind::Delete.spec(),
            ToolType::ListDir => FileKind::List.spec(),
            ToolType::SearchFiles => FileKind::Search.spec(),
            ToolType::External => return None,
        };
        if let Some(tool) = self.file.tools.get(&plan.name) {
            spec.description = tool.description.clone().unwrap_or(spec.description);
            spec.approval_prompt = tool.approval_prompt.clone();
            spec.holds = tool_holds(&agent.holds, tool);
        }
        Some(spec)
    }

    fn tool(&self, plan: &ToolPlan, protected: &[PathBuf]) -> Result<Option<Arc<dyn Tool>>, BuildError> {
        let tool = self.file.tools.get(&plan.name);
        let file = |kind: FileKind| -> Result<Option<Arc<dyn Tool>>, BuildError> {
            let workspace = Workspace::open(&self.directory(tool)?, protected)?;
            Ok(Some(Arc::new(FileTool::new(kind, Arc::new(workspace), FileLimits::default()))))
        };
        match plan.kind {
            ToolType::Command => Ok(Some(Arc::new(self.command(tool, protected)?))),
            ToolType::SuspendForInput => Ok(Some(Arc::new(SuspendForInput))),
            ToolType::ReadFile => file(FileKind::Read),
            ToolType::WriteFile => file(FileKind::Write),
            ToolType::DeleteFile => file(FileKind::Delete),
            ToolType::ListDir => file(FileKind::List),
            ToolType::SearchFiles => file(FileKind::Search),
            ToolType::External => Ok(None),
        }
    }

    /// Where a tool works: what the file says, else a directory of its own, so that nothing else lies within reach.
    fn directory(&self, tool: Option<&file::Tool>) -> Result<PathBuf, BuildError> {
        let said = tool.and_then(|tool| tool.working_directory.as_deref());
        if let Some(path) = said {
            return Ok(absolute(&self.folder, path));
        }
        let path = self.folder.join(WORKSPACE);
        match std::fs::create_dir_all(&path) {
            Ok(()) => Ok(path),
            Err(error) => Err(BuildError::NoWorkspace { path, error }),
        }
    }

    fn command(&self, tool: Option<&file::Tool>, protected: &[PathBuf]) -> Result<CommandTool, BuildError> {
        let usual = CommandOptions::default();
        Ok(CommandTool::new(CommandOptions {
            allowed_commands: tool.and_then(|tool| tool.allowed_commands.clone()),
            working_directory: Some(self.directory(tool)?),
            max_execution_time: tool
                .and_then(|tool| tool.timeout)
                .map_or(usual.max_execution_time, |span| span.0),
            output_limit: tool.and_then(|tool| tool.max_output).unwrap_or(usual.output_limit),
            protected: protected.to_vec(),
            ..usual
        })?)
    }

    fn model(&self, agent: &file::Agent) -> Result<Arc<dyn Model>, BuildError> {
        let script = self.file.llms.get(&agent.llm).filter(|llm| llm.kind == LlmType::Scripted);
        let path = absolute(&self.folder, script.and_then(|llm| llm.script.as_deref()).unwrap_or_default());
        let wrong = |why: String| BuildError::Script { path: path.clone(), why };
        let text = std::fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
        let script = script_file::parse(&text).map_err(|error: ScriptError| wrong(error.to_string()))?;
        Ok(Arc::new(script))
    }

    /// Who may decide: the strictest of server and agent (C24).
    fn approvers(&self, agent: &file::Agent) -> Result<Approvers, BuildError> {
        let forbids =
            [self.file.server.self_approval, agent.self_approval].contains(&Some(SelfApproval::Forbid));
        let named: Option<Result<BTreeSet<Party>, BadParty>> =
            agent.approvers.as_ref().map(|named| named.iter().map(|name| party(name)).collect());
        Ok(Approvers {
            named: named.transpose()?,
            self_approval: if forbids { Decides::Forbid } else { Decides::Allow },
        })
    }
}

/// `ann` or `user:ann`, `group:finance`, `role:on-call`.
fn party(name: &str) -> Result<Party, BadParty> {
    match name.contains(':') {
        true => name.parse(),
        false => Ok(Party::User(UserId::new(name)?)),
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
    let hosts = server.hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
    Ok(Access { auth, hosts, ..Access::default() })
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
        },
    })
}

/// What a model is asked with beside the conversation.
fn parameters(llm: &file::Llm) -> Option<RawJson> {
    let mut members = serde_json::Map::new();
    members.extend(llm.temperature.map(|value| ("temperature".to_owned(), value.into())));
    members.extend(llm.max_tokens.map(|value| ("max_tokens".to_owned(), value.into())));
    if members.is_empty() {
        return None;
    }
    RawJson::parse(&serde_json::Value::Object(members).to_string()).ok()
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
        orphan_margin: Millis(usual.orphan_margin.0),
    }
}

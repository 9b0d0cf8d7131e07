//! Tools from the file: how each is described to the model, and what runs when it is called.
//!
//! Addresses and secrets go into the tool, never into what a run is pinned to.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use standfast_core::definition::ToolSpec;
use standfast_core::digest;
use standfast_core::json::RawJson;
use standfast_core::name::AgentName;
use standfast_engine::clock::{Clock, random_bytes};
use standfast_engine::outbound::guard::{Guard, UnnamedHosts};
use standfast_engine::outbound::http::HttpLimits;
use standfast_engine::tool::Tool;
use standfast_engine::tool::read_result::ReadResult;
use standfast_engine::tool::suspend::SuspendForInput;
use standfast_tools::a2a::{AsksRemote, RemoteAgent};
use standfast_tools::agent::AsksAgent;
use standfast_tools::command::{CommandOptions, CommandTool};
use standfast_tools::external::{CallbackSecret, External, ExternalOptions, USUAL_TIMEOUT};
use standfast_tools::files::{FileKind, FileLimits, FileTool};
use standfast_tools::http_request::{HttpRequest, HttpRequestOptions};
use standfast_tools::mcp::login::Logins;
use standfast_tools::sandbox::{self, Confinement, Plan, Reach};
use standfast_tools::workspace::Workspace;

use super::{BuildError, Surroundings};
use crate::config::Config;
use crate::config::file::{
    self, CommandKeys, ExternalKeys, FileKeys, HttpRequestKeys, McpConnection, Sandbox, ToolKind, ToolType,
};
use crate::config::plan::{AgentPlan, ToolPlan, tool_holds};
use crate::config::remotes::Remotes;
use crate::config::stores::absolute;

/// The file, in the data directory, with the key that the secrets of outside jobs are made of.
const CALLBACK_KEY: &str = "callback.key";

/// Where tools are made.
pub(in crate::config) struct ToolFactory<'a> {
    config: &'a Config,
    data: &'a Path,
    clock: &'a Clock,
    remotes: &'a Remotes,
    logins: Option<&'a Logins>,
    /// What no tool can reach.
    protected: Vec<PathBuf>,
}

impl<'a> ToolFactory<'a> {
    /// For the tools of a file.
    pub(super) fn of(config: &'a Config, beside: &'a Surroundings, remotes: &'a Remotes) -> ToolFactory<'a> {
        let protected = config.own_files().into_iter().chain([beside.data.clone()]).collect();
        let (data, clock, logins) = (&beside.data, &beside.clock, beside.logins.as_ref());
        ToolFactory { config, data, clock, remotes, logins, protected }
    }

    /// What logins need of the server, where it keeps any.
    pub(in crate::config) fn logins(&self) -> Option<(Logins, Clock)> {
        Some((self.logins?.clone(), self.clock.clone()))
    }

    fn entry(&self, plan: &ToolPlan) -> Option<&'a file::Tool> {
        self.config.file.tools.get(&plan.name)
    }

    fn keys(&self, plan: &ToolPlan) -> Option<&'a ToolKind> {
        self.entry(plan)?.kind.as_ref()
    }

    /// A tool as it is described to the model.
    pub(super) fn spec(&self, plan: &ToolPlan, agent: &AgentPlan) -> Result<ToolSpec, BuildError> {
        let entry = self.entry(plan);
        let description = entry.and_then(|tool| tool.common.description.as_deref());
        let mut spec = match plan.kind {
            ToolType::Command => CommandTool::spec(),
            ToolType::SuspendForInput => SuspendForInput::spec(),
            ToolType::HttpRequest => HttpRequest::spec(),
            ToolType::External => {
                let usual = format!("Starts the job {} and waits for its result.", plan.name);
                External::spec(description.unwrap_or(&usual), parameters(self.external_keys(plan)))
            }
            ToolType::Agent => self.asks_agent(plan)?.spec(self.purpose(plan).as_deref()),
            ToolType::ReadFile => FileKind::Read.spec(),
            ToolType::WriteFile => FileKind::Write.spec(),
            ToolType::DeleteFile => FileKind::Delete.spec(),
            ToolType::ListDir => FileKind::List.spec(),
            ToolType::SearchFiles => FileKind::Search.spec(),
            ToolType::EditFile => FileKind::Edit.spec(),
            ToolType::Mcp => ReadResult::spec(),
            ToolType::A2a => self.remote(plan).spec(),
        };
        if let Some(tool) = entry.map(|entry| &entry.common) {
            // What a remote agent is described with names its card too.
            if plan.kind != ToolType::A2a {
                spec.description = tool.description.clone().unwrap_or(spec.description);
            }
            spec.approval_prompt = tool.approval_prompt.clone();
            spec.holds = tool_holds(&agent.holds, tool);
        }
        Ok(spec)
    }

    /// What runs when a tool is called.
    pub(super) fn tool(&self, plan: &ToolPlan) -> Result<Arc<dyn Tool>, BuildError> {
        Ok(match plan.kind {
            ToolType::Command => Arc::new(self.command(plan)?),
            ToolType::SuspendForInput => Arc::new(SuspendForInput),
            ToolType::HttpRequest => Arc::new(self.http_request(plan)),
            ToolType::External => Arc::new(self.external(plan)?),
            ToolType::Agent => Arc::new(self.asks_agent(plan)?),
            ToolType::ReadFile => Arc::new(self.files(FileKind::Read, plan)?),
            ToolType::WriteFile => Arc::new(self.files(FileKind::Write, plan)?),
            ToolType::DeleteFile => Arc::new(self.files(FileKind::Delete, plan)?),
            ToolType::ListDir => Arc::new(self.files(FileKind::List, plan)?),
            ToolType::SearchFiles => Arc::new(self.files(FileKind::Search, plan)?),
            ToolType::EditFile => Arc::new(self.files(FileKind::Edit, plan)?),
            // What the server offers comes from `config/mcp.rs`.
            ToolType::Mcp => Arc::new(ReadResult),
            ToolType::A2a => Arc::new(AsksRemote(self.remote(plan))),
        })
    }

    fn files(&self, kind: FileKind, plan: &ToolPlan) -> Result<FileTool, BuildError> {
        let said = match self.keys(plan) {
            Some(
                ToolKind::ReadFile(FileKeys { working_directory })
                | ToolKind::WriteFile(FileKeys { working_directory })
                | ToolKind::DeleteFile(FileKeys { working_directory })
                | ToolKind::ListDir(FileKeys { working_directory })
                | ToolKind::SearchFiles(FileKeys { working_directory })
                | ToolKind::EditFile(FileKeys { working_directory }),
            ) => working_directory.as_deref(),
            Some(_) | None => None,
        };
        let workspace = Workspace::open(&self.directory(said)?, &self.protected)?;
        Ok(FileTool::new(kind, Arc::new(workspace), FileLimits::default()))
    }

    /// Where a tool works: what the file says, else a directory of its own, so that nothing else lies within reach.
    fn directory(&self, said: Option<&str>) -> Result<PathBuf, BuildError> {
        if said.is_some() {
            return Ok(self.config.workspace(said));
        }
        let path = self.config.workspace(None);
        match std::fs::create_dir_all(&path) {
            Ok(()) => Ok(path),
            Err(error) => Err(BuildError::NoWorkspace { path, error }),
        }
    }

    fn command(&self, plan: &ToolPlan) -> Result<CommandTool, BuildError> {
        let usual = CommandOptions::default();
        let none = CommandKeys::default();
        let keys = match self.keys(plan) {
            Some(ToolKind::Command(keys)) => keys,
            Some(_) | None => &none,
        };
        let options = CommandOptions {
            allowed_commands: keys.allowed_commands.clone(),
            denied_commands: keys.denied_commands.clone().unwrap_or_default(),
            deny_by_default: keys.deny_by_default,
            working_directory: Some(self.directory(keys.working_directory.as_deref())?),
            max_execution_time: keys.max_execution_time.map_or(usual.max_execution_time, |span| span.0),
            output_limit: keys.max_output.unwrap_or(usual.output_limit),
            process_limit: keys.max_processes.unwrap_or(usual.process_limit),
            memory_limit: keys.max_memory.unwrap_or(usual.memory_limit),
            file_limit: keys.max_file_size.unwrap_or(usual.file_limit),
            disk_limit: keys.max_disk.unwrap_or(usual.disk_limit),
            confinement: match keys.sandbox {
                Some(Sandbox::Off) => Confinement::Off,
                Some(Sandbox::On) | None => Confinement::On,
            },
            network: reach(keys.network),
            writable: self.readable(keys.writable.as_deref()),
            readable: self.readable(keys.readable.as_deref()),
            protected: self.protected.clone(),
            ..usual
        };
        CommandTool::new(options).map_err(|error| BuildError::Sandbox { tool: plan.name.clone(), error })
    }

    /// Where the program of an MCP server runs that is confined, and what it can reach.
    pub(in crate::config) fn confined(
        &self,
        name: &str,
        tool: &McpConnection<'_>,
    ) -> Result<(PathBuf, Plan), BuildError> {
        let directory = self.directory(tool.working_directory)?;
        let readable: Vec<PathBuf> = self.readable(tool.readable);
        let plan = sandbox::probe()
            .and_then(|()| Plan::around(&directory, &readable, &self.protected, reach(tool.network)));
        let error = |error| BuildError::Sandbox { tool: name.to_owned(), error };
        Ok((directory.clone(), plan.map_err(error)?))
    }

    fn readable(&self, said: Option<&[String]>) -> Vec<PathBuf> {
        said.into_iter().flatten().map(|path| absolute(&self.config.folder, path)).collect()
    }

    fn http_request(&self, plan: &ToolPlan) -> HttpRequest {
        let (none, usual) = (HttpRequestKeys::default(), HttpLimits::default());
        let keys = match self.keys(plan) {
            Some(ToolKind::HttpRequest(keys)) => keys,
            Some(_) | None => &none,
        };
        let kept = keys.max_output.and_then(|bytes| usize::try_from(bytes).ok());
        let limits = HttpLimits {
            time: keys.timeout.map_or(usual.time, |span| span.0),
            answer_bytes: kept.unwrap_or(usual.answer_bytes),
            ..usual
        };
        let guard = guard(keys.allowed_hosts.as_deref(), others(keys.only_allowed_hosts));
        HttpRequest::new(HttpRequestOptions { guard, limits })
    }

    fn external_keys(&self, plan: &ToolPlan) -> Option<&'a ExternalKeys> {
        match self.keys(plan) {
            Some(ToolKind::External(keys)) => Some(keys),
            Some(_) | None => None,
        }
    }

    fn external(&self, plan: &ToolPlan) -> Result<External, BuildError> {
        let none = ExternalKeys::default();
        let keys = self.external_keys(plan).unwrap_or(&none);
        let options = ExternalOptions {
            url: keys.url.clone().unwrap_or_default(),
            guard: guard(keys.allowed_hosts.as_deref(), others(keys.only_allowed_hosts)),
            limits: HttpLimits::default(),
            timeout: keys.timeout.map_or(USUAL_TIMEOUT, |span| span.0),
            public_url: self.config.file.server.public_url.clone(),
            secrets: self.callback_secrets(keys)?,
            webhook_url: keys.webhook_url.clone(),
            result_schema: keys.validate_result.as_ref().and_then(as_json),
        };
        Ok(External::new(options, self.clock.clone()).taking(parameters(Some(keys))))
    }

    /// The agent elsewhere; one for all agents that have the tool, so that its card is fetched once.
    fn remote(&self, plan: &ToolPlan) -> Arc<RemoteAgent> {
        let known = self.remotes.get(&plan.name).cloned();
        known.unwrap_or_else(|| {
            unreachable!("`config/remotes.rs` makes one for every tool of the type `a2a` that an agent has")
        })
    }

    fn asks_agent(&self, plan: &ToolPlan) -> Result<AsksAgent, BuildError> {
        Ok(AsksAgent::new(AgentName::new(plan.agent.as_deref().unwrap_or_default())?))
    }

    /// What the agent that gets the work is for, so that the model knows when to ask it.
    fn purpose(&self, plan: &ToolPlan) -> Option<String> {
        let name = plan.agent.as_ref()?;
        let purpose = self.config.file.agents.get(name)?.description.as_ref()?;
        Some(format!("Hands work to the agent {name} and waits for its answer. {purpose}"))
    }

    /// What callbacks may be signed with, the newest first. Those of before are still taken: jobs under way know no others.
    fn callback_secrets(&self, keys: &ExternalKeys) -> Result<Vec<CallbackSecret>, BuildError> {
        let shared = |secret: Option<&file::Secret>| {
            secret.map(|secret| CallbackSecret::Shared(secret.expose().to_owned()))
        };
        let mut secrets = Vec::new();
        secrets.extend(shared(keys.webhook_secret.as_ref()));
        secrets.extend(shared(keys.previous_webhook_secret.as_ref()));
        // A key that all nodes share lets any of them check what another one's job sends.
        let webhooks = &self.config.file.server.webhooks;
        for key in webhooks.key.iter().chain(&webhooks.previous_keys) {
            let key = digest::of_parts("standfast.callback-key.1", &[key.expose().as_bytes()]);
            secrets.push(CallbackSecret::Derived(key.0));
        }
        if secrets.is_empty() || self.data.join(CALLBACK_KEY).exists() {
            secrets.push(CallbackSecret::Derived(self.callback_key()?));
        }
        Ok(secrets)
    }

    /// The key of this server for callbacks: made once, and kept where no tool can reach it.
    fn callback_key(&self) -> Result<[u8; 32], BuildError> {
        let path = self.data.join(CALLBACK_KEY);
        kept_key(&path).map_err(|error| BuildError::CallbackKey { path, error })
    }
}

/// What of the network a confined program reaches.
fn reach(network: Option<bool>) -> Reach {
    match network {
        Some(true) => Reach::Internet,
        Some(false) | None => Reach::None,
    }
}

/// A key of this server: made once, and kept in a file for its own eyes.
pub fn kept_key(path: &Path) -> std::io::Result<[u8; 32]> {
    let mut key = [0; 32];
    match std::fs::File::open(path) {
        Ok(mut file) => {
            file.read_exact(&mut key)?;
            Ok(key)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            key = random_bytes();
            let mut options = std::fs::OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(&key)?;
            file.sync_all()?;
            Ok(key)
        }
        Err(error) => Err(error),
    }
}

/// Where a tool may call.
pub(in crate::config) fn guard(allowed_hosts: Option<&[String]>, others: UnnamedHosts) -> Guard {
    let named = allowed_hosts.into_iter().flatten();
    // The guard compares addresses without the brackets that IPv6 has in a URL.
    let allowed_hosts = named.map(|host| host.to_ascii_lowercase().replace(['[', ']'], "")).collect();
    Guard { allowed_hosts, others }
}

/// Which hosts a tool may call beside those that are named.
pub(in crate::config) fn others(only_allowed_hosts: Option<bool>) -> UnnamedHosts {
    match only_allowed_hosts {
        Some(true) => UnnamedHosts::Never,
        Some(false) | None => UnnamedHosts::Public,
    }
}

/// What an outside job takes: any object, unless the file says more.
fn parameters(keys: Option<&ExternalKeys>) -> RawJson {
    let said = keys.and_then(|keys| keys.parameters.as_ref()).and_then(as_json);
    let Ok(usual) = RawJson::parse(r#"{"type":"object"}"#) else {
        unreachable!("a constant that the tests read")
    };
    said.unwrap_or(usual)
}

fn as_json(schema: &file::Parameters) -> Option<RawJson> {
    RawJson::parse(&serde_json::Value::Object(schema.0.clone()).to_string()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T11: a host is named as it stands in an address, with or without its port.
    #[test]
    fn hosts_are_named_as_in_an_address() {
        let named = ["Jobs.Internal", "10.0.0.7:8443", "[::1]", "[fd00::7]:80"].map(str::to_owned);
        let is_open = |url: &str| guard(Some(&named), UnnamedHosts::Never).check_text(url).is_ok();
        for url in
            ["https://jobs.internal/a", "https://10.0.0.7:8443/", "http://[::1]:7/", "http://[fd00::7]/"]
        {
            assert!(is_open(url), "{url}");
        }
        for url in ["https://10.0.0.7/", "http://[fd00::7]:81/", "https://example.org/", "http://127.0.0.1/"]
        {
            assert!(!is_open(url), "{url}");
        }
        assert!(guard(None, UnnamedHosts::Public).check_text("https://example.org/").is_ok());
    }
}

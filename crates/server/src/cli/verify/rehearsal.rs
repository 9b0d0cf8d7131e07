//! A configuration as `verify` serves it: the file's agents, tools and rules, with a script for each model, stand-ins for
//! what tools do, and a store of its own.
//!
//! `verify` writes one of these for each server that it starts, and `serve` reads it. Everything that could reach the
//! user's world is replaced here: models, tools, database, webhooks, remote agents, MCP servers, certificates, mirrors.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use standfast::config::file::{Auth, CommandKeys, FileKeys, Llm, LlmType, Sandbox, Span, ToolKind};
use standfast::config::{Config, ToolType, Unset};
use standfast::database::{Database, Files, Postgres};
use standfast_core::time::Millis;
use standfast_engine::settings::Settings;
use standfast_engine::tool::Tool;
use standfast_policy::span::Span as RuleSpan;

use super::stand_in::StandIn;

/// The variable that names the Postgres of a rehearsal: an address may have a password in it, and files are kept.
pub(in crate::cli) const ADDRESS: &str = "STANDFAST_REHEARSAL_POSTGRES";

/// How soon another node, or the next start, takes over: the least that a file may say.
const TAKE_OVER_AFTER: Millis = Millis::seconds(3);

/// What is different from what the file says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::cli) struct Rehearsal {
    /// The folder for everything that is written: scripts, working directories, the store, what tools were asked to do.
    pub(super) folder: PathBuf,
    /// What the store is.
    pub(super) store: StoreKind,
    /// What each agent's model asks for; none where it only says something.
    pub(super) calls: BTreeMap<String, Option<ScriptedCall>>,
    /// What a started tool does.
    pub(super) tools: ToolConduct,
    /// How long a decision may take, where the file has a bound.
    pub(super) timeout: Option<Millis>,
    /// Whether variables may be unset.
    pub(super) allows_unset: bool,
}

/// A call that a model asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ScriptedCall {
    pub(super) tool: String,
    pub(super) arguments: String,
}

/// What the store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StoreKind {
    Sqlite,
    Files,
    Postgres,
}

/// What a started tool does, once its start is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToolConduct {
    /// It returns at once.
    Returns,
    /// It goes on until its server ends.
    GoesOn,
}

impl StoreKind {
    /// The kind of what a file names.
    pub(super) fn of(database: Option<&Database>) -> StoreKind {
        match database {
            None | Some(Database::Sqlite(_)) => StoreKind::Sqlite,
            Some(Database::Files(_)) => StoreKind::Files,
            Some(Database::Postgres(_)) => StoreKind::Postgres,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            StoreKind::Sqlite => "SQLite",
            StoreKind::Files => "a folder of files",
            StoreKind::Postgres => "Postgres",
        }
    }
}

impl Rehearsal {
    /// Reads what `verify` wrote.
    pub(in crate::cli) fn read(path: &Path) -> Result<Rehearsal, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Writes it, and the scripts that it names.
    pub(super) fn write(&self, path: &Path) -> std::io::Result<()> {
        for (agent, call) in &self.calls {
            let asks = call.as_ref().map(|ScriptedCall { tool, arguments }| {
                serde_json::json!({ "calls": [{ "tool": tool, "arguments": arguments }] })
            });
            let replies: Vec<serde_json::Value> =
                asks.into_iter().chain([serde_json::json!({ "text": "done" })]).collect();
            let script = serde_json::json!({ "replies": replies });
            // Whatever is JSON is YAML.
            std::fs::write(self.folder.join(script_of(agent)), script.to_string())?;
        }
        std::fs::write(path, serde_json::to_string(self)?)
    }

    pub(in crate::cli) fn unset(&self) -> Unset {
        if self.allows_unset { Unset::Allow } else { Unset::Refuse }
    }

    /// The folder that has the store and nothing else.
    pub(super) fn store_folder(&self) -> PathBuf {
        self.folder.join("store")
    }

    /// Where starts of tools are written down.
    pub(super) fn starts(&self) -> PathBuf {
        self.folder.join("starts.jsonl")
    }

    /// The store; a Postgres is at this address.
    pub(super) fn database(&self, address: &str) -> Database {
        match self.store {
            StoreKind::Sqlite => Database::Sqlite(self.store_folder().join("standfast.db")),
            StoreKind::Files => Database::Files(Files::at(self.store_folder().join("files"))),
            StoreKind::Postgres => Database::Postgres(Postgres::at(ADDRESS, address.to_owned())),
        }
    }

    /// The configuration that is served.
    pub(in crate::cli) fn of(&self, mut config: Config) -> Config {
        config.folder = self.folder.clone();
        config.database = Some(self.database(&std::env::var(ADDRESS).unwrap_or_default()));
        // Its store is one of its own, for a moment.
        config.file.server.encryption = None;
        self.replace_models(&mut config);
        self.keep_to_folder(&mut config);
        self.hide_server(&mut config);
        if let Some(timeout) = self.timeout {
            shorten(&mut config, timeout);
        }
        config
    }

    fn replace_models(&self, config: &mut Config) {
        config.file.llms.clear();
        for (name, agent) in &mut config.file.agents {
            agent.llm.clone_from(name);
            config.file.llms.insert(name.clone(), scripted(&script_of(name)));
        }
    }

    /// Tools work below the folder, and those of others are not there at all.
    fn keep_to_folder(&self, config: &mut Config) {
        for plan in &mut config.agents {
            plan.tools.retain(|tool| !is_elsewhere(tool.kind));
        }
        for tool in config.file.tools.values_mut() {
            match &mut tool.kind {
                Some(ToolKind::Command(keys)) => {
                    (keys.working_directory, keys.writable, keys.readable) = (None, None, None);
                }
                Some(
                    ToolKind::ReadFile(keys)
                    | ToolKind::WriteFile(keys)
                    | ToolKind::DeleteFile(keys)
                    | ToolKind::ListDir(keys)
                    | ToolKind::SearchFiles(keys)
                    | ToolKind::EditFile(keys),
                ) => *keys = FileKeys::default(),
                Some(_) | None => {}
            }
        }
        // Nothing is run, so nothing needs to be confined; where it can be, what tools say of calls is as it will be.
        if config.fits_this_machine().is_err() {
            let commands = config.agents.iter().flat_map(|plan| &plan.tools);
            let names = commands.filter(|tool| tool.kind == ToolType::Command).map(|tool| tool.name.clone());
            for name in names.collect::<Vec<_>>() {
                let tool = config.file.tools.entry(name).or_default();
                match &mut tool.kind {
                    Some(ToolKind::Command(keys)) => keys.sandbox = Some(Sandbox::Off),
                    other => {
                        let off = CommandKeys { sandbox: Some(Sandbox::Off), ..CommandKeys::default() };
                        *other = Some(ToolKind::Command(off));
                    }
                }
            }
        }
    }

    /// Nobody but this machine can reach it, and it notifies nobody.
    fn hide_server(&self, config: &mut Config) {
        for store in config.file.session_stores.values_mut() {
            store.mirror = None;
        }
        let server = &mut config.file.server;
        (server.listen, server.public_url, server.tls, server.audit) = (None, None, None, None);
        server.hosts.clear();
        server.trusted_proxies.clear();
        server.auth = Some(Auth { api_keys: Some(true), jwt: None });
        server.webhooks.key = None;
        server.webhooks.previous_keys.clear();
        server.webhooks.allowed_hosts.clear();
        server.a2a.card_signature = None;
        server.log.level = Some("warn".to_owned());
        server.nodes.name = None;
        server.nodes.take_over_after = Some(Span(TAKE_OVER_AFTER));
    }

    /// Puts stand-ins in the place of all tools.
    pub(in crate::cli) fn stand_in(&self, settings: &mut Settings) {
        for agent in settings.agents.values_mut().map(Arc::make_mut) {
            // Every one, whatever it is called: none of them is asked for but the one that is held.
            for tool in agent.tools.values_mut() {
                *tool = Arc::new(StandIn::new(tool.clone(), self.starts(), self.tools)) as Arc<dyn Tool>;
            }
        }
    }

    /// Ends this process with the one that started it, whatever that died of: then standard input ends.
    pub(in crate::cli) fn end_with_parent(&self) {
        std::thread::spawn(|| {
            let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
            std::process::exit(1);
        });
    }
}

/// Tools that are known only to a server elsewhere, or by a program that would have to be started.
pub(super) fn is_elsewhere(kind: ToolType) -> bool {
    matches!(kind, ToolType::Mcp | ToolType::A2a)
}

fn script_of(agent: &str) -> String {
    format!("{agent}.script.yaml")
}

fn scripted(script: &str) -> Llm {
    Llm {
        kind: LlmType::Scripted,
        model: None,
        api_key: None,
        base_url: None,
        temperature: None,
        max_tokens: None,
        timeout: None,
        headers: BTreeMap::new(),
        max_retries: None,
        fallback: None,
        max_concurrent: None,
        price: None,
        parameters: None,
        script: Some(script.to_owned()),
    }
}

/// Decisions may take this long, at any hour, wherever the file has a bound.
fn shorten(config: &mut Config, timeout: Millis) {
    for plan in &mut config.agents {
        plan.holds.timeout = plan.holds.timeout.map(|_| timeout);
        (plan.holds.remind_after, plan.holds.escalate_after) = (None, None);
    }
    for tool in config.file.tools.values_mut() {
        tool.common.input_timeout = tool.common.input_timeout.map(|_| Span(timeout));
    }
    for agent in config.file.agents.values_mut() {
        if let Some(task) = &mut agent.task {
            task.hitl.business_hours = None;
        }
    }
    let shorter = config.policy.with_rules(|rule| {
        rule.expire_after = rule.expire_after.map(|_| RuleSpan(timeout));
        rule.business_hours = None;
        (rule.remind_after, rule.escalate_after, rule.escalate_to) = (None, None, None);
    });
    if let Some(policy) = shorter {
        config.policy = Arc::new(policy);
    }
}

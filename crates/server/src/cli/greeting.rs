//! What a server says on standard output once it listens: where, with which files, who may call, what to try.
//!
//! The first line is for programs that start one: `Standfast listens on URL`. Everything that may go wrong later and is
//! easier seen now stands below it: the database, how callers sign in, where the pages are.

use std::io::Write;
use std::net::IpAddr;
use std::path::Path;

use standfast::config::{Config, ToolType};
use standfast::database::Database;
use standfast::demo;
use standfast_engine::settings::{Auth, Settings};

/// What stands between the name of an MCP server and that of its tool.
const BETWEEN: &str = "__";

/// What there is to say.
pub(super) struct Greeting<'a> {
    pub(super) url: &'a str,
    /// The address that it listens on.
    pub(super) listen: IpAddr,
    pub(super) data: &'a Path,
    pub(super) database: &'a Database,
    /// Whether the database was created by this start.
    pub(super) is_new: bool,
    /// None for the demo.
    pub(super) config: Option<&'a Config>,
}

impl Greeting<'_> {
    /// The lines.
    pub(super) fn text(&self, settings: &Settings) -> String {
        let Greeting { url, data, database, is_new, config, .. } = self;
        let new = if *is_new { " (new, created by this start)" } else { "" };
        let mut text = format!("Standfast listens on {url}\ndata:     {}\n", data.display());
        text.extend(config.map(|config| format!("config:   {}\n", config.source.name)));
        text.push_str(&format!("database: {database}{new}\n"));
        text.push_str(&format!("sign-in:  {}\n", self.sign_in(&settings.access.auth)));
        match config {
            Some(config) => self.of_config(config, settings, &mut text),
            None => self.of_demo(&settings.access.auth, &mut text),
        }
        text.push_str(&format!("pending:  {url}/api/v1/holds\n"));
        if config.is_none() {
            let effects = data.join(demo::EFFECTS);
            text.push_str(&format!(
                "effects:  {} (the demo's tool writes a line here and deletes nothing)\n",
                effects.display()
            ));
        }
        text
    }

    fn of_config(&self, config: &Config, settings: &Settings, text: &mut String) {
        let url = self.url;
        text.push_str(&format!("page:     {url}/ in a browser\n"));
        text.extend(config.file.server.public_url.iter().map(|public| format!("public:   {public}\n")));
        let servers: std::collections::BTreeSet<&str> = config
            .agents
            .iter()
            .flat_map(|plan| &plan.tools)
            .filter(|tool| tool.kind == ToolType::Mcp)
            .map(|tool| tool.name.as_str())
            .collect();
        for server in servers {
            let prefix = format!("{server}{BETWEEN}");
            let of_agent = |agent: &std::sync::Arc<standfast_engine::settings::Agent>| {
                agent.tools.keys().filter(|name| name.as_str().starts_with(&prefix)).count()
            };
            let found = match settings.agents.values().map(of_agent).max().unwrap_or_default() {
                0 => "tools are known after a login".to_owned(),
                1 => "1 tool".to_owned(),
                n => format!("{n} tools"),
            };
            text.push_str(&format!("mcp:      {server} ({found})\n"));
        }
        for plan in &config.agents {
            let mode = plan.mode.map_or("no approvals", |effective| effective.mode.as_str());
            text.push_str(&format!("agent:    {url}/api/v1/agents/{} ({mode})\n", plan.name));
        }
    }

    fn of_demo(&self, auth: &Auth, text: &mut String) {
        let (url, agent) = (self.url, demo::AGENT);
        let key = if auth.takes_keys() { "-H \"authorization: Bearer $STANDFAST_KEY\" " } else { "" };
        text.push_str(&format!(
            "try:      curl -sS {url}/api/v1/agents/{agent}/runs -H 'content-type: application/json' {key}\
             -d '{{\"input\": \"Free some space\", \"wait\": \"settled\"}}'\n\
             page:     {url}/ in a browser\n"
        ));
    }

    fn sign_in(&self, auth: &Auth) -> String {
        let place = match self.config {
            Some(config) => format!("--config '{}'", config.source.name),
            None => format!("--data '{}'", self.data.display()),
        };
        let key = format!("export STANDFAST_KEY=$(standfast keys create --user NAME {place})");
        match auth {
            Auth::Local if !self.listen.is_loopback() => {
                "NONE: anyone who reaches this address may see and decide everything".to_owned()
            }
            Auth::Local => "none; only this machine may call".to_owned(),
            Auth::Keys => format!("API key: {key}"),
            Auth::Tokens(_) => "tokens of the identity provider".to_owned(),
            Auth::KeysAndTokens(_) => format!("tokens of the identity provider, or API key: {key}"),
        }
    }
}

/// Prints it, all at once.
pub(super) fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

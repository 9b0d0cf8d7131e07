//! `standfast validate --connect`: what a configuration names is there and answers, tried as `serve` would.
//!
//! Starts MCP servers, fetches the cards of remote agents, asks each provider once, greets mail servers and sends the collector
//! of traces nothing. Nothing is stored: what the server would keep is kept in a temporary folder. `doctor` asks the same.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use standfast::config::{Config, Surroundings};
use standfast::otlp::{self, TraceSettings};
use standfast_engine::clock::Clock;
use standfast_engine::settings::ChannelVia;
use standfast_surfaces::{chat, mail};
use ureq::tls::TlsConfig;

use super::client::{self, Patience};
use super::llm;
use super::plain::plain;
use super::trust;
use super::validate::print;

/// One thing that was tried.
#[derive(Debug)]
pub(super) struct Trial {
    /// What: `llm claude`, `tools`.
    pub(super) what: String,
    /// What came of it: a sentence, or what is wrong and what to do.
    pub(super) result: Result<String, String>,
}

/// Tries everything, prints the report and what came of it.
pub(super) fn run(config: &Config, report: &str, as_json: bool) -> ExitCode {
    let trials = match try_all(config) {
        Ok(trials) => trials,
        Err(why) => {
            eprintln!("standfast: {}", plain(&why));
            return ExitCode::from(2);
        }
    };
    let is_good = trials.iter().all(|trial| trial.result.is_ok());
    let text = if as_json {
        let mut body: Value = serde_json::from_str(report).unwrap_or_default();
        body["connections"] = trials.iter().map(Trial::as_json).collect();
        format!("{body:#}\n")
    } else {
        let lines: String = trials.iter().map(Trial::line).collect();
        format!("{report}\nconnections\n{lines}")
    };
    print(&text, if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Trial {
    fn line(&self) -> String {
        match &self.result {
            Ok(said) => format!("  ok      {}: {}\n", plain(&self.what), plain(said)),
            Err(why) => {
                let why: Vec<String> = why.trim_end().lines().map(plain).collect();
                format!("  failed  {}: {}\n", plain(&self.what), why.join("\n          "))
            }
        }
    }

    pub(super) fn as_json(&self) -> Value {
        let (Ok(said) | Err(said)) = &self.result;
        json!({"what": self.what, "ok": self.result.is_ok(), "message": said})
    }
}

/// What `health` can be told.
#[derive(Debug, Args)]
pub(super) struct Health {
    /// The URL of the server.
    #[arg(default_value = "http://127.0.0.1:8080")]
    url: String,
    /// A PEM file with authorities that the server's certificate may be from, beside those that this machine trusts.
    #[arg(long, value_name = "FILE", env = "STANDFAST_AUTHORITY")]
    authority: Option<PathBuf>,
}

/// Exit code 0 when the server is ready.
pub(super) fn health(arguments: &Health) -> ExitCode {
    let url = arguments.url.trim_end_matches('/');
    let authority = arguments.authority.as_deref();
    let tls = if url.starts_with("https://") { trust::config(authority).map(Some) } else { Ok(None) };
    match tls.and_then(|tls| ready(url, tls.as_ref())) {
        Ok(()) => print("ready\n", ExitCode::SUCCESS),
        Err(why) => {
            eprintln!("standfast: {} is not ready: {}", plain(&arguments.url), plain(&why));
            ExitCode::FAILURE
        }
    }
}

/// Whether a server says that it is ready; why not.
pub(super) fn ready(url: &str, tls: Option<&TlsConfig>) -> Result<(), String> {
    let asked = client::agent(Patience::Usual, tls).get(format!("{url}/readyz")).call();
    let mut answer = asked.map_err(|error| error.to_string())?;
    let text = answer.body_mut().read_to_string().map_err(|error| error.to_string())?;
    if answer.status().is_success() { Ok(()) } else { Err(text.trim().to_owned()) }
}

/// Asks whatever the file names.
pub(super) fn try_all(config: &Config) -> Result<Vec<Trial>, String> {
    let data = tempfile::tempdir().map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let trials = runtime.block_on(async {
        let mut trials = build(config, data.path()).await;
        for name in config.file.llms.keys() {
            trials.extend(ask(config, name).await);
        }
        trials.extend(collect(config).await);
        trials
    });
    // MCP servers that were started end with what was built; nothing else is waited for.
    runtime.shutdown_background();
    Ok(trials)
}

/// Builds all that `serve` would build: connects to MCP servers and remote agents, greets mail servers, and
/// asks Slack whether it opens sockets.
async fn build(config: &Config, data: &Path) -> Vec<Trial> {
    let around = Surroundings { data: data.to_owned(), clock: Clock::system(), logins: None };
    let built = match config.fits_this_machine() {
        Ok(()) => config.build(&around).await,
        Err(error) => Err(error),
    };
    let mut channels = Vec::new();
    let result = match built {
        Ok(parts) => {
            for channel in &parts.settings.channels {
                let result = match &channel.via {
                    ChannelVia::Mail(server) => {
                        let reached = mail::reach(server, channel.timeout).await;
                        reached.map(|()| "the mail server answers".to_owned())
                    }
                    _ => match chat::reach_socket(channel).await {
                        Some(reached) => reached.map(|()| "Slack opens a socket".to_owned()),
                        None => continue,
                    },
                };
                channels.push(Trial { what: format!("channel {}", channel.name), result });
            }
            let tools: std::collections::BTreeSet<&str> = parts
                .settings
                .agents
                .values()
                .flat_map(|agent| agent.tools.keys())
                .map(|name| name.as_str())
                .collect();
            Ok(match tools.len() {
                0 => "none are used".to_owned(),
                _ => tools.into_iter().collect::<Vec<_>>().join(", "),
            })
        }
        Err(error) => Err(error.to_string()),
    };
    let mut trials = vec![Trial { what: "tools".into(), result }];
    trials.extend(channels);
    trials
}

/// Asks the collector of traces; none where traces are off.
async fn collect(config: &Config) -> Option<Trial> {
    let section = config.file.server.traces.as_ref()?;
    let variable = |name: &str| std::env::var(name).ok();
    let result = match TraceSettings::of(section, &config.folder, "a trial", variable) {
        Ok(settings) => otlp::try_collector(&settings?).await,
        Err(error) => Err(error.to_string()),
    };
    Some(Trial { what: "traces".into(), result })
}

/// Asks a provider; none for a script.
async fn ask(config: &Config, name: &str) -> Option<Trial> {
    let result = match config.provider(name) {
        Ok(None) => return None,
        Ok(Some(provider)) => llm::answers(provider).await,
        Err(error) => Err(error.to_string()),
    };
    Some(Trial { what: format!("llm {name}"), result })
}

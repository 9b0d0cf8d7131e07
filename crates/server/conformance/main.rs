//! A server for the public conformance kits of A2A, and for nothing else: an example of a program over the library.
//!
//! Its one agent does what the kits choose by their messages (`behaviour.rs`). It authenticates nobody, so it listens on
//! this machine only. How to run the kits against it is docs/a2a-conformance.md.

mod agent;
mod behaviour;
mod interceptor;
mod model;

use std::error::Error;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use standfast::app;
use standfast::config::{self, ServerParts, Surroundings, Unset};
use standfast_core::time::Millis;
use standfast_engine::Engine;
use standfast_engine::clock::Clock;
use standfast_engine::secrets::SigningKey;
use standfast_engine::settings::{FixedSettings, Settings};
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use standfast_surfaces::http;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

use interceptor::Passes;

/// A server for the public conformance kits of A2A.
#[derive(Debug, Parser)]
#[command(name = "standfast-conformance")]
struct Arguments {
    /// The address to listen on, of this machine; port 0 picks a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9999")]
    listen: SocketAddr,
    /// The data directory.
    #[arg(long, value_name = "DIR", default_value = "conformance-data")]
    data: PathBuf,
    /// A configuration file without agents, for settings of the server such as `webhooks`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What is different in this pass of a kit. May be repeated.
    #[arg(long = "pass", value_name = "PASS")]
    passes: Vec<Pass>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Pass {
    /// No streams, no push notifications, no extended card. Also on when `ITK_ACTS_REDUCED_CAPABILITIES` is set.
    ReducedCapabilities,
    /// Every request needs the token `itk-valid-token`. Also on when `ITK_ACTS_AUTH` is set.
    Auth,
    /// Clients must declare the extension `urn:a2a:tck:required-extension`.
    RequiredExtension,
    /// The card is for clients of 0.3 too, and messages that choose nothing are asked about.
    V03,
}

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let arguments = Arguments::parse();
    let served = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(serve(&arguments)),
        Err(error) => Err(error.into()),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("standfast-conformance: {error}");
            ExitCode::from(2)
        }
    }
}

async fn serve(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    if !arguments.listen.ip().is_loopback() {
        let why = "this server authenticates nobody; listen on 127.0.0.1 or [::1]";
        return Err(format!("refusing to listen on {}: {why}", arguments.listen).into());
    }
    std::fs::create_dir_all(&arguments.data)?;
    let store = SqliteStore::open(&SqliteOptions::at(arguments.data.join("standfast.db")))?;
    let clock = Clock::system();
    let (mut fixed, mut settings) = settings(arguments, &clock).await?;
    fixed.listen = arguments.listen.ip();
    agent::install(&mut settings, passes(&arguments.passes))?;
    let listener = TcpListener::bind(arguments.listen).await?;
    let address = listener.local_addr()?;
    let limits = fixed.connections.clone();
    let engine = Engine::new(Arc::new(store), clock, fixed, settings);
    engine.join().await?;
    engine.work();
    engine.deliver(app::receivers());
    engine.node_work().sweep_jobs();
    let (stop, stopping) = watch::channel(false);
    let surfaces = http::App { engine: engine.clone(), stopping: stopping.clone() };
    let server =
        tokio::spawn(async move { http::serve(listener, app::router(surfaces), &limits, stopping).await });
    let base = format!("http://{address}");
    let greeting = format!("Standfast listens on {base}\nagent:    {base}/v1/agents/{}\n", agent::AGENT);
    std::io::stdout().write_all(greeting.as_bytes())?;
    tokio::signal::ctrl_c().await?;
    let _ = stop.send(true);
    let _ = tokio::join!(server, engine.drain(Millis::seconds(5)));
    Ok(())
}

/// The settings of a server: the usual ones, or those of the file.
async fn settings(arguments: &Arguments, clock: &Clock) -> Result<(FixedSettings, Settings), Box<dyn Error>> {
    let (fixed, mut settings) = match &arguments.config {
        Some(path) => {
            let config = config::load(path, Unset::Refuse)?;
            if !config.agents.is_empty() {
                return Err(format!("{} has agents; name a file without them", path.display()).into());
            }
            let beside = Surroundings { data: arguments.data.clone(), clock: clock.clone(), logins: None };
            let ServerParts { fixed, settings, .. } = config.build(&beside).await?;
            (fixed, settings)
        }
        None => (FixedSettings::default(), Settings::usual()),
    };
    if settings.webhooks.key.is_none() {
        settings.webhooks.key = Some(SigningKey::new(config::kept_key(&arguments.data.join("webhook.key"))?));
    }
    Ok((fixed, settings))
}

fn passes(named: &[Pass]) -> Passes {
    let passes = Passes {
        reduced_capabilities: named.contains(&Pass::ReducedCapabilities),
        auth: named.contains(&Pass::Auth),
        required_extension: named.contains(&Pass::RequiredExtension),
        v03: named.contains(&Pass::V03),
    };
    passes.in_environment(&|name| std::env::var(name).ok())
}

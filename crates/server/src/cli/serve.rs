//! `holdpoint serve`: the server, with what a configuration file says or with the embedded demo.
//!
//! Opens the data directory, listens, says where, and serves until a signal. Without identities only this machine may
//! call, so any other address is refused.

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use holdpoint::auth::Principal;
use holdpoint::clock::Clock;
use holdpoint::config::{self, BuildError, Built, Config, Lives, LoadError, Unset};
use holdpoint::engine::Engine;
use holdpoint::{demo, http};
use holdpoint_core::name::{BadName, Tenant, UserId};
use holdpoint_store::Store;
use holdpoint_store::beside::Beside;
use holdpoint_store::memory::MemoryStore;
use holdpoint_store::sqlite::{OpenError, SqliteOptions, SqliteStore};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

/// How long requests in progress may take once the server stops.
const DRAIN: Duration = Duration::from_secs(10);

/// What `serve` can be told.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The configuration file; without it the embedded demo.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen; port 0 takes a free one. Default: what the configuration says, else 127.0.0.1:8080.
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Where runs are kept. Default: $XDG_DATA_HOME/holdpoint, else ~/.local/share/holdpoint.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Why the server did not start, or did not go on.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(
        "refusing to listen on {0}: no identities are configured, so whoever reaches this server may decide \
         everything; listen on 127.0.0.1 or [::1]"
    )]
    NotLoopback(SocketAddr),
    #[error("there is no home directory to keep data in; name one with --data DIR")]
    NoDataDirectory,
    #[error("cannot use the data directory {path}: {error}")]
    DataDirectory { path: PathBuf, error: std::io::Error },
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error("{0} is in use by another program; stop it, or listen elsewhere with --listen ADDR")]
    PortInUse(SocketAddr),
    #[error("cannot listen on {address}: {error}")]
    Listen { address: SocketAddr, error: std::io::Error },
    #[error(transparent)]
    Demo(#[from] demo::BadDemo),
    #[error("{0}\nrepair the file; holdpoint validate checks it again")]
    Config(#[from] LoadError),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Name(#[from] BadName),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

pub(crate) fn run(arguments: &Serve) -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let is_terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(is_terminal)
        .with_writer(std::io::stderr)
        .init();
    let served = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(serve(arguments)),
        Err(error) => Err(error.into()),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("holdpoint: {failure}");
            ExitCode::from(2)
        }
    }
}

async fn serve(arguments: &Serve) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let config = arguments.config.as_deref().map(|path| config::load(path, Unset::Refuse)).transpose()?;
    let wanted = wanted_address(arguments, config.as_ref());
    if !wanted.ip().is_loopback() {
        return Err(Failure::NotLoopback(wanted));
    }
    let data = data_directory(arguments.data.as_deref())?;
    let Built { settings, database, uses_memory } = match &config {
        Some(config) => config.build()?,
        None => Built { settings: demo::settings(&data)?, database: None, uses_memory: false },
    };
    config.iter().for_each(warn);
    let store = open(&database.unwrap_or_else(|| data.join("holdpoint.db")), uses_memory)?;
    let listener = listen(wanted).await?;
    let address = listener.local_addr()?;

    let engine = Engine::new(store, Clock::system(), settings);
    engine.work();
    let (stop, stopping) = watch::channel(false);
    let app = http::App { engine: engine.clone(), stopping: stopping.clone() };
    let server = tokio::spawn(http::serve(listener, http::router(app, local()?), stopping));
    match &config {
        Some(config) => greet_config(address, &data, config)?,
        None => greet(address, &data)?,
    }

    signals.next().await;
    tracing::info!("stopping; a second signal ends at once");
    let _ = stop.send(true);
    let stopped = async {
        let _ = tokio::time::timeout(DRAIN, server).await;
        engine.die().await;
    };
    tokio::select! {
        () = stopped => {}
        () = signals.next() => std::process::exit(1),
    }
    Ok(())
}

/// Says what one should know of a configuration (C10, C28).
fn warn(config: &Config) {
    for notice in &config.notices {
        tracing::warn!(line = notice.at.line, "{}", notice.what);
    }
    for plan in config.agents.iter().filter(|plan| plan.lives == Lives::InMemory) {
        tracing::warn!(agent = plan.name, "its runs live in memory: a restart loses them");
    }
}

/// The arguments win over the file.
fn wanted_address(arguments: &Serve, config: Option<&Config>) -> SocketAddr {
    let said = config.and_then(|config| config.file.server.listen.as_ref()?.parse().ok());
    arguments.listen.or(said).unwrap_or(SocketAddr::from(([127, 0, 0, 1], 8080)))
}

/// The database, with a memory store beside it for agents that live there (C28).
fn open(database: &Path, uses_memory: bool) -> Result<Arc<dyn Store>, Failure> {
    if let Some(folder) = database.parent() {
        let failed = |error| Failure::DataDirectory { path: folder.to_owned(), error };
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let durable = Arc::new(SqliteStore::open(&SqliteOptions::at(database))?);
    Ok(match uses_memory {
        true => Arc::new(Beside::new(durable, Arc::new(MemoryStore::new()))),
        false => durable,
    })
}

/// Whoever is at this machine.
fn local() -> Result<Principal, BadName> {
    Ok(Principal { tenant: Tenant::default_tenant(), user: UserId::new("local")?, is_admin: true })
}

fn data_directory(wanted: Option<&Path>) -> Result<PathBuf, Failure> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let usual = || {
        let share = || variable("HOME").map(|home| home.join(".local").join("share"));
        variable("XDG_DATA_HOME").or_else(share).map(|share| share.join("holdpoint"))
    };
    let path = wanted.map(Path::to_owned).or_else(usual).ok_or(Failure::NoDataDirectory)?;
    match std::fs::create_dir_all(&path) {
        Ok(()) => Ok(path),
        Err(error) => Err(Failure::DataDirectory { path, error }),
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    let is_taken = |error: &std::io::Error| error.kind() == std::io::ErrorKind::AddrInUse;
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(listener),
        Err(error) if is_taken(&error) => Err(Failure::PortInUse(address)),
        Err(error) => Err(Failure::Listen { address, error }),
    }
}

fn greet(address: SocketAddr, data: &Path) -> std::io::Result<()> {
    let base = format!("http://{address}");
    let agent = demo::AGENT;
    let effects = data.join(demo::EFFECTS);
    let text = format!(
        "Holdpoint listens on {base}\n\
         data:     {}\n\
         try:      curl -sS {base}/api/v1/agents/{agent}/runs -H 'content-type: application/json' \
         -d '{{\"input\": \"Free some space\", \"wait\": \"settled\"}}'\n\
         waiting:  {base}/api/v1/holds\n\
         effects:  {} (the demo's tool writes a line here and deletes nothing)\n",
        data.display(),
        effects.display()
    );
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn greet_config(address: SocketAddr, data: &Path, config: &Config) -> std::io::Result<()> {
    let base = format!("http://{address}");
    let mut text = format!(
        "Holdpoint listens on {base}\ndata:     {}\nconfig:   {}\n",
        data.display(),
        config.source.name
    );
    for plan in &config.agents {
        let mode = plan.mode.map_or("nothing can wait", |effective| effective.mode.as_str());
        text.push_str(&format!("agent:    {base}/api/v1/agents/{} ({mode})\n", plan.name));
    }
    text.push_str(&format!("waiting:  {base}/api/v1/holds\n"));
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// What asks the server to stop.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        let (interrupt, terminate) = (SignalKind::interrupt(), SignalKind::terminate());
        Ok(Signals { interrupt: signal(interrupt)?, terminate: signal(terminate)? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

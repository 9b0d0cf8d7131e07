//! `holdpoint serve`: the server with the embedded demo.
//!
//! Opens the data directory, listens, says where, and serves until a signal. Without identities only this machine may
//! call: any other address is refused, unless a flag insists.

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use holdpoint::auth::Party;
use holdpoint::clock::Clock;
use holdpoint::engine::Engine;
use holdpoint::settings::{Access, Auth, SelfApproval, Settings};
use holdpoint::{demo, http};
use holdpoint_core::time::Millis;
use holdpoint_store::Observer;
use holdpoint_store::sqlite::{OpenError, SqliteOptions, SqliteStore};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

use super::data::{self, NoDirectory};

/// How long requests in progress may take once the server stops.
const DRAIN: Duration = Duration::from_secs(10);

/// How long models and tools that are at work may take once the server stops.
const DRAIN_RUNS: Millis = Millis::seconds(30);

/// What `serve` can be told.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Where runs are kept. Default: $XDG_DATA_HOME/holdpoint, else ~/.local/share/holdpoint.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// How callers are known: `local` not at all, for this machine only; `keys` by an API key on every request.
    #[arg(long, value_name = "HOW", default_value = "local")]
    auth: AuthArg,
    /// A name that callers may know this server by, beside its address and those of this machine. May be repeated.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Listen beyond this machine without any identities: whoever reaches the server may decide everything.
    #[arg(long)]
    allow_unauthenticated: bool,
    /// Connections at once; more wait.
    #[arg(long, value_name = "N", default_value = "20000")]
    max_connections: NonZeroUsize,
    /// Who may decide the demo's holds beside the owner: user:NAME, group:NAME or role:NAME. May be repeated.
    #[arg(long = "approver", value_name = "WHO")]
    approvers: Vec<Party>,
    /// Whoever started a run of the demo may not decide its holds.
    #[arg(long)]
    forbid_self_approval: bool,
}

/// How callers are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AuthArg {
    Local,
    Keys,
}

/// Why the server did not start, or did not go on.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(
        "refusing to listen on {0}: no identities are configured, so whoever reaches this server may decide \
         everything; listen on 127.0.0.1 or [::1], or ask for API keys with --auth keys"
    )]
    NotLoopback(SocketAddr),
    #[error(
        "--host {0}: without identities this server answers to the names of this machine only; add --auth keys"
    )]
    HostWithoutAuth(String),
    #[error("--host {0}: give the name alone, without scheme and port")]
    BadHost(String),
    #[error(transparent)]
    NoDirectory(#[from] NoDirectory),
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error("{0} is in use by another program; stop it, or listen elsewhere with --listen ADDR")]
    PortInUse(SocketAddr),
    #[error("cannot listen on {address}: {error}")]
    Listen { address: SocketAddr, error: std::io::Error },
    #[error(transparent)]
    Demo(#[from] demo::BadDemo),
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
    let access = access(arguments)?;
    let data = data::directory(arguments.data.as_deref())?;
    let settings = settings(arguments, access, &data)?;
    let observer = Some(settings.telemetry.clone() as Arc<dyn Observer>);
    let store = SqliteStore::open(&SqliteOptions { observer, ..SqliteOptions::at(data::database(&data)) })?;
    let listener = listen(arguments.listen).await?;
    let address = listener.local_addr()?;

    let limits = settings.connections.clone();
    let engine = Engine::new(Arc::new(store), Clock::system(), settings);
    engine.work();
    let (stop, stopping) = watch::channel(false);
    let app = http::App { engine: engine.clone(), stopping: stopping.clone() };
    let server =
        tokio::spawn(async move { http::serve(listener, http::router(app), &limits, stopping).await });
    greet(address, &data, arguments.auth)?;

    signals.next().await;
    tracing::info!("stopping; a second signal ends at once");
    let _ = stop.send(true);
    let stopped = async {
        // Requests that wait for a run are answered as soon as the engine begins nothing new.
        let requests = tokio::time::timeout(DRAIN, server);
        let _ = tokio::join!(requests, engine.drain(DRAIN_RUNS));
        // What the last requests began.
        engine.drain(Millis(0)).await;
    };
    tokio::select! {
        () = stopped => {}
        () = signals.next() => std::process::exit(1),
    }
    Ok(())
}

/// Who may call. Beyond this machine nobody may without saying who they are, unless the flag says so.
fn access(arguments: &Serve) -> Result<Access, Failure> {
    let listen = arguments.listen.ip();
    let auth = match arguments.auth {
        AuthArg::Local => Auth::Local,
        AuthArg::Keys => Auth::Keys,
    };
    if auth == Auth::Local && !arguments.allow_unauthenticated {
        if !listen.is_loopback() {
            return Err(Failure::NotLoopback(arguments.listen));
        }
        if let Some(host) = arguments.hosts.first() {
            return Err(Failure::HostWithoutAuth(host.clone()));
        }
    }
    if auth == Auth::Local && !listen.is_loopback() {
        tracing::warn!(
            "ANYONE WHO REACHES {} MAY SEE AND DECIDE EVERYTHING: it asks nobody who they are (--allow-unauthenticated)",
            arguments.listen
        );
    }
    let is_name = |host: &&String| {
        !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
    };
    if let Some(host) = arguments.hosts.iter().find(|host| !is_name(host)) {
        return Err(Failure::BadHost(host.clone()));
    }
    let hosts = arguments.hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
    Ok(Access { auth, listen, hosts })
}

/// The demo as the arguments want it.
fn settings(arguments: &Serve, access: Access, data: &Path) -> Result<Settings, Failure> {
    let mut settings = demo::settings(data)?;
    settings.access = access;
    settings.connections.at_once = arguments.max_connections.get();
    for agent in settings.agents.values_mut() {
        if !arguments.approvers.is_empty() {
            agent.approvers.named = Some(arguments.approvers.iter().cloned().collect());
        }
        if arguments.forbid_self_approval {
            agent.approvers.self_approval = SelfApproval::Forbid;
        }
    }
    Ok(settings)
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    let is_taken = |error: &std::io::Error| error.kind() == std::io::ErrorKind::AddrInUse;
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(listener),
        Err(error) if is_taken(&error) => Err(Failure::PortInUse(address)),
        Err(error) => Err(Failure::Listen { address, error }),
    }
}

fn greet(address: SocketAddr, data: &Path, auth: AuthArg) -> std::io::Result<()> {
    let base = format!("http://{address}");
    let agent = demo::AGENT;
    let effects = data.join(demo::EFFECTS);
    let (key, make_key) = match auth {
        AuthArg::Local => ("", String::new()),
        AuthArg::Keys => {
            let make = format!("holdpoint keys create --user NAME --data '{}'", data.display());
            (
                "-H \"authorization: Bearer $HOLDPOINT_KEY\" ",
                format!("key:      export HOLDPOINT_KEY=$({make})\n"),
            )
        }
    };
    let text = format!(
        "Holdpoint listens on {base}\n\
         data:     {}\n\
         {make_key}\
         try:      curl -sS {base}/api/v1/agents/{agent}/runs -H 'content-type: application/json' {key}\
         -d '{{\"input\": \"Free some space\", \"wait\": \"settled\"}}'\n\
         decide:   {base}/ in a browser\n\
         waiting:  {base}/api/v1/holds\n\
         effects:  {} (the demo's tool writes a line here and deletes nothing)\n",
        data.display(),
        effects.display()
    );
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

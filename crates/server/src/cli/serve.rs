//! `standfast serve`: the server, with what a configuration file says or with the embedded demo.
//!
//! Opens the data directory, listens, says where, and serves until a signal. Without identities only this machine may
//! call: any other address is refused, unless a flag insists.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use standfast::config::file::LogFormat;
use standfast::config::{
    self, BuildError, Config, LoadError, RunStorage, ServerParts, Surroundings as Around, Unset,
};
use standfast::database::Database;
use standfast::encryption::BadKey;
use standfast::otlp::{BadTraces, Exporter, TraceSettings};
use standfast::{app, demo, heads};
use standfast_core::approver::Approver;
use standfast_core::time::Millis;
use standfast_engine::Engine;
use standfast_engine::auth::SelfApproval;
use standfast_engine::clock::Clock;
use standfast_engine::settings::{Auth, FixedSettings, Settings};
use standfast_engine::telemetry::Telemetry;
use standfast_engine::vault::Vault;
use standfast_store::file::{self, FileOptions, FileStore};
use standfast_store::memory::MemoryStore;
use standfast_store::postgres::{self, PostgresOptions, PostgresStore};
use standfast_store::split_store::SplitStore;
use standfast_store::sqlite::{OpenError, PayloadSealer, SqliteOptions, SqliteStore};
use standfast_store::{Observer, Store};
use standfast_surfaces::http::{BadCertificate, ServerCertificate, TlsAcceptor};
use standfast_surfaces::{async_tool, chat, http};
use standfast_tools::mcp::login::{Logins, Site};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::data::{self, NoDirectory};
use super::greeting::{self, Greeting};
use super::logging;
#[cfg(target_os = "linux")]
use super::notify::{ServiceState, notify};
use super::reload::{self, FixedAtStart};
use super::running::{self, Announcement, RunningServer};
use super::verify::Rehearsal;

/// How long requests in progress may take once the server stops.
const DRAIN: Duration = Duration::from_secs(10);

/// How long models and tools that are at work may take once the server stops.
const DRAIN_RUNS: Millis = Millis::seconds(30);

/// What `serve` can be told.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The configuration file. Default: `standfast.yaml` in the current directory, else the embedded demo.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Serve the embedded demo, also where there is a `standfast.yaml`.
    #[arg(long, conflicts_with = "config")]
    demo: bool,
    /// The address to listen on; port 0 picks a free one. Default: `server.listen` of the configuration, else 127.0.0.1:8080.
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// The data directory. Default: $XDG_DATA_HOME/standfast, else ~/.local/share/standfast.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// How callers authenticate: `local`, not at all, for this machine only; `keys`, with an API key on every request.
    /// Default: `server.auth` of the configuration, else `local`.
    #[arg(long, value_name = "HOW")]
    auth: Option<AuthArg>,
    /// A host name that requests may use, besides the address and the names of this machine. May be repeated.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Listen on a public address without authentication: anyone who reaches the server may decide everything.
    #[arg(long)]
    allow_unauthenticated: bool,
    /// How the log is written: `text` or `json`, one object a line. Default: `server.log.format`, else `text`.
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// Maximum number of connections; further ones wait. Default: `server.limits.max_connections`, else 20000.
    #[arg(long, value_name = "N")]
    max_connections: Option<NonZeroUsize>,
    /// Who may decide, instead of the `approvers` in the configuration: owner, user:NAME, group:NAME or role:NAME. May be
    /// repeated.
    #[arg(long = "approver", value_name = "WHO")]
    approvers: Vec<Approver>,
    /// Forbid people to decide holds of runs that they started.
    #[arg(long)]
    forbid_self_approval: bool,
    /// For `standfast verify`: serve a rehearsal of the configuration, as this file says.
    #[arg(long, value_name = "FILE", hide = true, requires = "config")]
    rehearse: Option<PathBuf>,
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
        "refusing to listen on {0}: no authentication is configured, so anyone who reaches this server may decide \
         everything; listen on 127.0.0.1 or [::1], or require API keys with --auth keys"
    )]
    NotLoopback(SocketAddr),
    #[error(
        "--host {0}: without authentication this server accepts the names of this machine only; add --auth keys"
    )]
    HostWithoutAuth(String),
    #[error("--host {0}: pass the name alone, without scheme and port")]
    BadHost(String),
    #[error(transparent)]
    NoDirectory(#[from] NoDirectory),
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error(transparent)]
    Key(#[from] BadKey),
    #[error(transparent)]
    Files(#[from] file::OpenError),
    #[error("{setting}: {error}")]
    Database { setting: String, error: postgres::OpenError },
    #[error("{0} is in use by another program; stop it, or listen elsewhere with --listen ADDR")]
    PortInUse(SocketAddr),
    #[error("cannot listen on {address}: {error}")]
    Listen { address: SocketAddr, error: std::io::Error },
    #[error(transparent)]
    Demo(#[from] demo::BadDemo),
    #[error("{0}\nrepair the file; standfast validate checks it again")]
    Config(#[from] LoadError),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error("{0}")]
    Rehearsal(String),
    #[error("server.tls: {0}")]
    Tls(#[from] BadCertificate),
    #[error(transparent)]
    Traces(#[from] BadTraces),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl Failure {
    /// A database that refuses is an answer; everything else kept the question from being asked.
    fn exit_code(&self) -> u8 {
        if let Failure::Database { .. } = self { 1 } else { 2 }
    }
}

/// The memory of this process has every key that the configuration names: a crash must not write it into a file.
fn leave_no_core() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    // Where even that is forbidden, the limit is already as somebody wants it.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
}

pub(crate) fn run(arguments: &Serve) -> ExitCode {
    leave_no_core();
    // Read before anything is logged: it says how.
    let path = if arguments.demo { None } else { data::config_file(arguments.config.as_deref()) };
    let file = path.as_deref().and_then(|path| std::fs::read(path).ok());
    let read = arguments.rehearse.as_deref().map(Rehearsal::read).transpose();
    let served = read.map_err(Failure::Rehearsal).and_then(|rehearsal| {
        let unset = rehearsal.as_ref().map_or(Unset::Refuse, Rehearsal::unset);
        let config = path.as_deref().map(|path| config::load(path, unset)).transpose()?;
        let config = match (config, &rehearsal) {
            (Some(config), Some(rehearsal)) => Some(rehearsal.of(config)),
            (config, _) => config,
        };
        logging::begin(arguments.log_format, config.as_ref().map(|config| &config.file.server.log));
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let wanted = wanted_address(arguments, config.as_ref());
        runtime.block_on(serve(StartPlan { arguments, path, file, config, rehearsal, wanted }))
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("standfast: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

/// What a start goes by.
struct StartPlan<'a> {
    arguments: &'a Serve,
    path: Option<PathBuf>,
    /// The file as it was before it was read: what is written later is a change.
    file: Option<Vec<u8>>,
    config: Option<Config>,
    rehearsal: Option<Rehearsal>,
    /// The address to listen on.
    wanted: SocketAddr,
}

/// A server of which everything is opened and built, and nothing runs yet.
struct PreparedServer {
    store: Arc<dyn Store>,
    database: Database,
    /// Whether the database was created by this start.
    is_new: bool,
    data: PathBuf,
    fixed: FixedSettings,
    settings: Settings,
    at_start: FixedAtStart,
    certificate: Option<Arc<ServerCertificate>>,
    acceptor: Option<TlsAcceptor>,
    /// What logins go by.
    site: Arc<Site>,
}

/// A server that answers.
struct ActiveServer {
    engine: Engine,
    requests: JoinHandle<()>,
    /// Clicks that are fetched.
    sockets: Option<JoinHandle<()>>,
    signing: Option<JoinHandle<()>>,
    exporter: Option<Exporter>,
    stop: watch::Sender<bool>,
    at_start: FixedAtStart,
    certificate: Option<Arc<ServerCertificate>>,
    /// Kept until the end. Who reads it are commands on this machine; without it they know less.
    _announcement: Option<Announcement>,
}

async fn serve(plan: StartPlan<'_>) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    if let Some(rehearsal) = &plan.rehearsal {
        rehearsal.end_with_parent();
    }
    if let (None, Some(found)) = (&plan.arguments.config, &plan.path) {
        tracing::info!("config: using {} of the current directory; --demo serves the demo", found.display());
    }
    let Some(prepared) = prepare(&plan, &mut signals).await? else { return Ok(()) };
    let server = begin(&plan, prepared).await?;
    tokio::select! {
        () = signals.next() => {}
        failed = server.keep_up(&plan) => failed?,
        () = server.keep_certificate() => {}
    }
    tracing::info!("serve: stopping; a second signal stops at once");
    tokio::select! {
        () = server.stop() => {}
        () = signals.next() => std::process::exit(1),
    }
    Ok(())
}

/// Opens the store, builds the settings. None when a signal came first.
async fn prepare(plan: &StartPlan<'_>, signals: &mut Signals) -> Result<Option<PreparedServer>, Failure> {
    let config = plan.config.as_ref();
    config.map_or(Ok(()), Config::fits_this_machine)?;
    let files = config.and_then(Config::tls_files);
    let certificate = files.map(|(chain, key)| ServerCertificate::read(chain, key)).transpose()?;
    let acceptor = certificate.as_ref().map(|certificate| certificate.acceptor()).transpose()?;
    let data = data::directory(plan.arguments.data.as_deref())?;
    // Opened first: logins are kept there, and MCP servers may ask for them.
    let telemetry = Arc::<Telemetry>::default();
    let uses_memory = config.is_some_and(Config::uses_memory);
    let named = config.and_then(|config| config.database.clone());
    let database = named.unwrap_or_else(|| Database::Sqlite(data::database(&data)));
    let is_new = database.file().is_some_and(|file| !file.exists());
    let sealing = database.file().map(|file| data::sealing(config, &file)).transpose()?.flatten();
    let store = open(&database, sealing, uses_memory, telemetry.clone() as Arc<dyn Observer>)?;
    let key = data::webhook_key(&data, config.and_then(Config::secret_key))?;
    let site = Arc::<Site>::default();
    let tenant = FixedSettings::default().tenant;
    let logins =
        Logins { vault: Arc::new(Vault::new(store.clone(), tenant, key.clone())), site: site.clone() };
    let around = Around { data: data.clone(), clock: Clock::system(), logins: Some(logins) };
    let mut parts = match config {
        // MCP servers may take their time; whoever has enough of that can stop here.
        Some(config) => tokio::select! {
            built = config.build(&around) => built?,
            () = signals.next() => return Ok(None),
        },
        None => ServerParts {
            fixed: FixedSettings::default(),
            settings: demo::settings(&data)?,
            database: None,
            uses_memory: false,
        },
    };
    overrule(&mut parts.settings, plan.arguments, plan.wanted)?;
    if let Some(rehearsal) = &plan.rehearsal {
        rehearsal.stand_in(&mut parts.settings);
    }
    parts.settings.webhooks.key = Some(key);
    parts.fixed.telemetry = telemetry;
    parts.fixed.listen = plan.wanted.ip();
    if let Some(most) = plan.arguments.max_connections {
        parts.fixed.connections.at_once = most.get();
    }
    if parts.fixed.node_name.is_empty() {
        parts.fixed.node_name = machine_name();
    }
    let ServerParts { fixed, settings, database: named, uses_memory } = parts;
    let restart_keys = config.map(Config::restart_keys).unwrap_or_default();
    let file = plan.file.clone();
    let at_start = FixedAtStart { database: named, uses_memory, restart_keys, file, around };
    let prepared = PreparedServer {
        store,
        database,
        is_new,
        data,
        fixed,
        settings,
        at_start,
        certificate,
        acceptor,
        site,
    };
    Ok(Some(prepared))
}

/// Listens, lets engine and surfaces work, and says where.
async fn begin(plan: &StartPlan<'_>, prepared: PreparedServer) -> Result<ActiveServer, Failure> {
    let PreparedServer { store, database, is_new, data, mut fixed, settings, at_start, .. } = prepared;
    let config = plan.config.as_ref();
    if let Some(config) = config {
        warn(config);
    }
    let listener = listen(plan.wanted).await?;
    let address = listener.local_addr()?;
    let url = format!("{}://{address}", if prepared.acceptor.is_some() { "https" } else { "http" });
    prepared.site.listens_on(url.clone());
    let running = RunningServer {
        pid: std::process::id(),
        url: url.clone(),
        config: plan.path.as_ref().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone())),
        database: running::name_of(&database),
    };
    let announcement = running::announce(&data, &running).inspect_err(
        |error| tracing::warn!(%error, "serve: could not note in the data directory that a server runs"),
    );
    let greeting =
        Greeting { url: &url, listen: fixed.listen, data: &data, database: &database, is_new, config };
    let greeting = greeting.text(&settings);
    let clock = at_start.around.clock.clone();
    let exporter = export_traces(config, &clock, &mut fixed)?;
    let (limits, mirrors) = (fixed.connections.clone(), fixed.mirrors.clone());
    let engine = Engine::new(store, clock, fixed, settings);
    if let Err(error) = engine.join().await {
        // It was just opened; whatever is wrong now, the node goes on trying.
        tracing::warn!(%error, "nodes: could not announce this node; retrying");
    }
    engine.work();
    if !mirrors.is_empty() {
        async_tool::mirror(&engine, mirrors);
    }
    engine.deliver(app::receivers());
    engine.node_work().sweep_jobs();
    let (stop, stopping) = watch::channel(false);
    let signing = config.and_then(Config::heads).map(|heads| {
        tokio::spawn(heads::keep_signing(heads, database, engine.clock().clone(), stopping.clone()))
    });
    let app = http::App { engine: engine.clone(), stopping: stopping.clone() };
    // A rehearsal decides nothing for anybody outside.
    let sockets = plan.rehearsal.is_none().then(|| tokio::spawn(chat::keep_sockets(app.clone())));
    let acceptor = prepared.acceptor;
    let requests = tokio::spawn(async move {
        http::serve_with(listener, app::router(app), &limits, stopping, acceptor).await
    });
    greeting::print(&greeting)?;
    #[cfg(target_os = "linux")]
    notify(ServiceState::Ready);
    Ok(ActiveServer {
        engine,
        requests,
        sockets,
        signing,
        exporter,
        stop,
        at_start,
        certificate: prepared.certificate,
        _announcement: announcement.ok(),
    })
}

impl ActiveServer {
    /// Goes on with the file as it changes. A rehearsal is what it was when it began.
    async fn keep_up(&self, plan: &StartPlan<'_>) -> std::io::Result<()> {
        let Some(path) = plan.path.as_ref().filter(|_| plan.rehearsal.is_none()) else {
            return std::future::pending().await;
        };
        let overrule = |settings: &mut Settings| {
            overrule(settings, plan.arguments, plan.wanted).map_err(|no| no.to_string())
        };
        reload::keep_up(path, &self.engine, &self.at_start, overrule).await
    }

    /// Goes on with the certificate as it is renewed.
    async fn keep_certificate(&self) {
        match &self.certificate {
            Some(certificate) => certificate.keep_up().await,
            None => std::future::pending().await,
        }
    }

    /// Takes no more requests, and lets what is under way finish.
    async fn stop(self) {
        #[cfg(target_os = "linux")]
        notify(ServiceState::Stopping);
        let _ = self.stop.send(true);
        // Requests that wait for a run are answered as soon as the engine begins nothing new.
        let requests = tokio::time::timeout(DRAIN, self.requests);
        let sockets = async {
            if let Some(sockets) = self.sockets {
                let _ = tokio::time::timeout(DRAIN, sockets).await;
            }
        };
        let _ = tokio::join!(requests, sockets, self.engine.drain(DRAIN_RUNS));
        // What the last requests began.
        self.engine.drain(Millis(0)).await;
        if let Some(signing) = self.signing {
            let _ = signing.await;
        }
        if let Some(exporter) = self.exporter {
            exporter.stop().await;
        }
    }
}

/// Says what one should know of a configuration (C10, C28).
fn warn(config: &Config) {
    for notice in &config.notices {
        tracing::warn!(line = notice.at.line, "config: {}", notice.what);
    }
    for plan in config.agents.iter().filter(|plan| plan.lives == RunStorage::InMemory) {
        tracing::warn!(
            agent = plan.name,
            "config: runs of this agent are kept in memory; a restart loses them"
        );
    }
}

/// Sends traces from now on, if the file wants it.
fn export_traces(
    config: Option<&Config>,
    clock: &Clock,
    fixed: &mut FixedSettings,
) -> Result<Option<Exporter>, BadTraces> {
    let Some((config, section)) =
        config.and_then(|config| Some((config, config.file.server.traces.as_ref()?)))
    else {
        return Ok(None);
    };
    let variable = |name: &str| std::env::var(name).ok();
    let Some(wanted) = TraceSettings::of(section, &config.folder, &fixed.node_name, variable)? else {
        tracing::info!("traces: off, as the environment says");
        return Ok(None);
    };
    let (traces, exporter) = Exporter::start(wanted, clock.clone(), fixed.telemetry.clone())?;
    fixed.traces = Some(Arc::new(traces));
    Ok(Some(exporter))
}

/// The arguments win over the file.
fn wanted_address(arguments: &Serve, config: Option<&Config>) -> SocketAddr {
    let said = config.and_then(|config| config.file.server.listen.as_ref()?.parse().ok());
    arguments.listen.or(said).unwrap_or(SocketAddr::from(([127, 0, 0, 1], 8080)))
}

/// What the arguments say beside or against the settings. Beyond this machine nobody may call without saying who they
/// are, unless the flag says so.
fn overrule(settings: &mut Settings, arguments: &Serve, wanted: SocketAddr) -> Result<(), Failure> {
    let (access, is_loopback) = (&mut settings.access, wanted.ip().is_loopback());
    if let Some(auth) = arguments.auth {
        access.auth = match auth {
            AuthArg::Local => Auth::Local,
            AuthArg::Keys => Auth::Keys,
        };
    }
    if access.auth == Auth::Local && !arguments.allow_unauthenticated {
        if !is_loopback {
            return Err(Failure::NotLoopback(wanted));
        }
        if let Some(host) = arguments.hosts.first() {
            return Err(Failure::HostWithoutAuth(host.clone()));
        }
    }
    if access.auth == Auth::Local && !is_loopback {
        tracing::warn!(
            "serve: ANYONE WHO REACHES {wanted} MAY SEE AND DECIDE EVERYTHING: no authentication (--allow-unauthenticated)"
        );
    }
    let is_name = |host: &&String| {
        !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
    };
    if let Some(host) = arguments.hosts.iter().find(|host| !is_name(host)) {
        return Err(Failure::BadHost(host.clone()));
    }
    access.hosts.extend(arguments.hosts.iter().map(|host| host.to_ascii_lowercase()));
    for agent in settings.agents.values_mut().map(Arc::make_mut) {
        if !arguments.approvers.is_empty() {
            agent.approvers.named = Some(arguments.approvers.iter().cloned().collect());
        }
        if arguments.forbid_self_approval {
            agent.approvers.self_approval = SelfApproval::Forbid;
        }
    }
    Ok(())
}

/// The database, with a memory store beside it for agents that live there (C28).
fn open(
    database: &Database,
    sealing: Option<PayloadSealer>,
    uses_memory: bool,
    observer: Arc<dyn Observer>,
) -> Result<Arc<dyn Store>, Failure> {
    let durable: Arc<dyn Store> = match database {
        Database::Sqlite(path) => {
            data::make_folder_of(path)?;
            let options = SqliteOptions { observer: Some(observer), sealing, ..SqliteOptions::at(path) };
            Arc::new(SqliteStore::open(&options)?)
        }
        Database::Files(files) => {
            data::make_folder_of(&files.path)?;
            let options = FileOptions { observer: Some(observer), ..files.options() };
            Arc::new(FileStore::open(&options)?)
        }
        Database::Postgres(named) => {
            let options = PostgresOptions { observer: Some(observer), ..named.options() };
            let refused = |error| Failure::Database { setting: named.setting.clone(), error };
            Arc::new(PostgresStore::open(&options).map_err(refused)?)
        }
    };
    Ok(if uses_memory { Arc::new(SplitStore::new(durable, Arc::new(MemoryStore::new()))) } else { durable })
}

/// What this machine is called; the number of the process if it has no name.
fn machine_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or(std::env::var("HOSTNAME").ok());
    let name = name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    name.unwrap_or_else(|| format!("process {}", std::process::id()))
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    let is_taken = |error: &std::io::Error| error.kind() == std::io::ErrorKind::AddrInUse;
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(listener),
        Err(error) if is_taken(&error) => Err(Failure::PortInUse(address)),
        Err(error) => Err(Failure::Listen { address, error }),
    }
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

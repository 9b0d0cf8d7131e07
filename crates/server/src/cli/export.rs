//! `standfast export` and `standfast import`: runs as lines of text, from one database to another.
//!
//! The lines are the store's (`standfast_store::export`); this finds the databases, shows how far it is, and says who may
//! see what is pending, as the configuration of the target has it. `--files` writes readable files instead.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use standfast::config::{self, Unset};
use standfast::database::Database;
use standfast_core::name::{AgentName, SessionId, Tenant};
use standfast_core::run::Run;
use standfast_engine::Engine;
use standfast_engine::auth::Principal;
use standfast_engine::clock::Clock;
use standfast_engine::settings::{FixedSettings, Settings};
use standfast_store::export::{self, ExportScope, Target, TransferCounts, TransferError};
use standfast_store::file::FileStore;
use standfast_store::postgres::PostgresStore;
use standfast_store::sqlite::{OpenError, SqliteFile, SqliteOptions, SqliteSnapshot, SqliteStore};
use standfast_store::{AudienceMember, Store};
use standfast_surfaces::async_tool;

use super::data;
use super::export_record::{self, TakenOut};
use super::plain::lines;

/// Which database.
#[derive(Debug, Args)]
struct DatabaseArgs {
    /// The database that this configuration file names: SQLite or Postgres.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data directory of a server whose configuration names no database.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Print one JSON object at the end, on standard error.
    #[arg(long)]
    json: bool,
}

/// A database, or one session, as JSON lines. A server may be running: what is exported is one instant of it.
#[derive(Debug, Args)]
pub(super) struct Export {
    #[command(flatten)]
    place: DatabaseArgs,
    /// The output file. Default: standard output.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The tenant: an export has one.
    #[arg(long, value_name = "T", default_value_t = Tenant::default_tenant(), value_parser = |text: &str| Tenant::new(text))]
    tenant: Tenant,
    /// Only this session, of every user who has one with this name; needs `--agent`.
    #[arg(long, value_name = "ID", requires = "agent")]
    session: Option<String>,
    /// The agent of the session.
    #[arg(long, value_name = "NAME", requires = "session")]
    agent: Option<String>,
    /// Write readable files below this directory instead: the calls of async tools with an index, and the sessions.
    /// They cannot be imported.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "session"])]
    files: Option<PathBuf>,
}

/// An export into a database. Refuses a database that already has runs, unless told otherwise.
#[derive(Debug, Args)]
pub(super) struct Import {
    /// The export; `-` for standard input.
    file: PathBuf,
    #[command(flatten)]
    place: DatabaseArgs,
    /// Add to a database that already has runs.
    #[arg(long)]
    into_existing: bool,
}

pub(crate) fn export(arguments: &Export) -> ExitCode {
    if let Some(directory) = &arguments.files {
        return files(&arguments.place, directory, &arguments.tenant);
    }
    let done = wanted(arguments).and_then(|wanted| {
        record(&arguments.place, TakenOut::Runs, &arguments.tenant)?;
        let store = open_to_read(&arguments.place)?;
        let mut out: Box<dyn Write + Send> = match &arguments.output {
            Some(path) => Box::new(BufWriter::new(private(path).map_err(|error| unusable(path, &error))?)),
            None => Box::new(BufWriter::new(io::stdout())),
        };
        let mut progress = progress("exported", arguments.place.json);
        wait(export::export(store.as_ref(), &arguments.tenant, &wanted, &mut out, &mut progress))
    });
    finish("exported", done, arguments.place.json)
}

pub(crate) fn import(arguments: &Import) -> ExitCode {
    let done = open(&arguments.place).and_then(|store| {
        let mut lines: Box<dyn io::BufRead + Send> = if arguments.file.as_os_str() == "-" {
            Box::new(BufReader::new(io::stdin()))
        } else {
            let path = &arguments.file;
            Box::new(BufReader::new(File::open(path).map_err(|error| unusable(path, &error))?))
        };
        let audiences = audiences(data::config_file(arguments.place.config.as_deref()).as_deref())?;
        let into = if arguments.into_existing { Target::Existing } else { Target::Empty };
        let mut progress = progress("imported", arguments.place.json);
        wait(export::import(store.as_ref(), &mut lines, into, &audiences, &mut progress))
    });
    finish("imported", done, arguments.place.json)
}

/// The calls and conversations of a database as readable files.
fn files(place: &DatabaseArgs, directory: &Path, tenant: &Tenant) -> ExitCode {
    let written =
        record(place, TakenOut::Files, tenant).and_then(|()| open_to_read(place)).and_then(|store| {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
            let runtime = runtime.map_err(|error| error.to_string())?;
            runtime.block_on(async {
                // An engine that only looks: nothing is worked on.
                let engine = Engine::new(store, Clock::system(), FixedSettings::default(), Settings::usual());
                let who = Principal { tenant: tenant.clone(), ..Principal::local() };
                let written = async_tool::write_files(&engine, &who, directory).await;
                written.map_err(|error| error.to_string())
            })
        });
    match written {
        Ok(written) if place.json => eprintln!("{}", json!(written)),
        Ok(written) => {
            let (calls, sessions, place) = (written.calls, written.sessions, directory.display());
            eprintln!("{calls} calls and {sessions} sessions written below {place}");
        }
        Err(error) => return finish("exported", Err(error), place.json),
    }
    ExitCode::SUCCESS
}

/// Records that a tenant's data is taken out.
fn record(place: &DatabaseArgs, taken: TakenOut, tenant: &Tenant) -> Result<(), String> {
    let database = data::of_server(place.config.as_deref(), place.data.as_deref());
    export_record::record(&database.map_err(|error| error.to_string())?, taken, Some(tenant));
    Ok(())
}

fn wanted(arguments: &Export) -> Result<ExportScope, String> {
    let (Some(agent), Some(session)) = (&arguments.agent, &arguments.session) else {
        return Ok(ExportScope::default());
    };
    let agent = AgentName::new(agent).map_err(|error| format!("--agent: {error}"))?;
    let session = SessionId::new(session).map_err(|error| format!("--session: {error}"))?;
    Ok(ExportScope { session: Some((agent, session)) })
}

fn open(place: &DatabaseArgs) -> Result<Arc<dyn Store>, String> {
    let database =
        data::of_server(place.config.as_deref(), place.data.as_deref()).map_err(|error| error.to_string())?;
    match &database {
        Database::Sqlite(path) => {
            let sealing = data::sealing_by(place.config.as_deref(), path)?;
            let options = SqliteOptions { sealing, ..SqliteOptions::at(path) };
            Ok(Arc::new(SqliteStore::open(&options).map_err(|error| error.to_string())?))
        }
        Database::Files(files) => {
            let store = FileStore::open(&files.options()).map_err(|error| error.to_string())?;
            Ok(Arc::new(store))
        }
        Database::Postgres(named) => {
            let store = PostgresStore::open(&named.options());
            Ok(Arc::new(store.map_err(|error| format!("{}: {error}", named.setting))?))
        }
    }
}

/// A database to read from. A SQLite file that a server has is seen as it is at this instant, in one read transaction.
fn open_to_read(place: &DatabaseArgs) -> Result<Arc<dyn Store>, String> {
    let database =
        data::of_server(place.config.as_deref(), place.data.as_deref()).map_err(|error| error.to_string())?;
    let Database::Sqlite(path) = &database else { return open(place) };
    let sealing = data::sealing_by(place.config.as_deref(), path)?;
    match SqliteStore::open(&SqliteOptions { sealing: sealing.clone(), ..SqliteOptions::at(path) }) {
        Ok(store) => Ok(Arc::new(store)),
        Err(OpenError::InUse { .. }) => {
            let snapshot = SqliteSnapshot::open(SqliteFile { path, sealing });
            Ok(Arc::new(snapshot.map_err(|error| error.to_string())?))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Who may see pending holds: the owner, and whoever the configuration of the target names as approvers.
fn audiences(
    config: Option<&Path>,
) -> Result<impl Fn(&Run) -> Vec<AudienceMember> + Send + Sync + use<>, String> {
    let config =
        config.map(|path| config::load(path, Unset::Ask)).transpose().map_err(|error| error.to_string())?;
    let approvers: std::collections::BTreeMap<String, Vec<String>> = config
        .iter()
        .flat_map(|config| &config.file.agents)
        .map(|(name, agent)| (name.clone(), agent.approvers.clone().unwrap_or_default()))
        .collect();
    Ok(move |run: &Run| {
        let owner = AudienceMember(format!("user:{}", run.facts.owner));
        let named =
            approvers.get(run.facts.agent.as_str()).into_iter().flatten().cloned().map(AudienceMember);
        let mut who: Vec<AudienceMember> = std::iter::once(owner).chain(named).collect();
        who.sort();
        who.dedup();
        who
    })
}

fn wait<T>(work: impl Future<Output = Result<T, TransferError>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(work).map_err(|error| error.to_string())
}

/// Says now and then how many runs are done, where somebody looks.
fn progress(what: &'static str, as_json: bool) -> impl FnMut(u64) + Send {
    let shows = io::stderr().is_terminal() && !as_json;
    move |runs| {
        if shows && runs % 100 == 0 {
            // Nobody needs to hear that a progress line could not be written.
            let _ = write!(io::stderr(), "\r{runs} runs {what}");
        }
    }
}

fn finish(what: &str, done: Result<TransferCounts, String>, as_json: bool) -> ExitCode {
    match (done, as_json) {
        (Ok(TransferCounts { runs, links, sessions, erased }), true) => {
            let done = json!({"runs": runs, "links": links, "sessions": sessions, "erased": erased});
            eprintln!("{done}");
            ExitCode::SUCCESS
        }
        (Ok(TransferCounts { runs, links, sessions, erased }), false) => {
            eprintln!("{runs} runs of {sessions} sessions {what}, {links} links, every chain verified");
            if erased > 0 {
                eprintln!("{erased} runs were skipped: their contents were erased");
            }
            ExitCode::SUCCESS
        }
        (Err(error), true) => {
            eprintln!("{}", json!({ "error": error }));
            ExitCode::from(2)
        }
        (Err(error), false) => {
            eprintln!("standfast: {}", lines(&error));
            ExitCode::from(2)
        }
    }
}

/// A file for its owner's eyes: an export has everything that the database has.
fn private(path: &Path) -> std::io::Result<File> {
    File::options().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn unusable(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

//! `standfast doctor`: everything that a server needs, looked at one by one, each with what to do about it.
//!
//! Reads only, and never brings a database up to date: a doctor of another version must not change what it looks at. What
//! an answer of the outside costs (a request to each provider, MCP servers that are started) `--offline` leaves out.
//! Exit codes: 0 nothing failed, 1 something did.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use standfast::config::{self, Config, ToolType, Unset};
use standfast::database::Database;
use standfast_core::digest::Digest;
use standfast_core::id::{RunId, Seq};
use standfast_core::name::Tenant;
use standfast_engine::clock::Clock;
use standfast_store::sqlite::{PayloadSealer, SqliteFile, SqliteSnapshot};
use standfast_store::{DeadQuery, DeliveryStore, RunStore, SubscriptionQuery, file, postgres, sqlite};
use standfast_surfaces::http::rfc3339;
use standfast_tools::sandbox;

use super::plain::plain;
use super::running::{self, RunningServer};
use super::{connect, data, trust};

/// Runs whose chains are verified; the newest.
const SAMPLE: usize = 20;

/// With less room than this on a disk, somebody should know.
const LOW_DISK: u64 = 1024 * 1024 * 1024;

/// With less than this, the server would soon refuse to write.
const LEAST_DISK: u64 = 64 * 1024 * 1024;

/// Files beside connections: databases, programs, logs.
const OTHER_FILES: u64 = 256;

/// The connections that a server takes, unless its configuration says otherwise.
const CONNECTIONS: u64 = 20_000;

/// An instant that was before this program was written: a clock that is behind it is wrong.
const LONG_AGO_MS: i64 = 1_750_000_000_000;

/// What `doctor` can be told.
#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// The configuration file. Default: `standfast.yaml` in the current directory, if it is there.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The server's data directory. Default: $XDG_DATA_HOME/standfast, else ~/.local/share/standfast.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Do not start MCP servers and do not send requests to providers of models.
    #[arg(long)]
    offline: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Good,
    Warning,
    Failed,
    NotChecked,
}

/// One check.
#[derive(Debug)]
struct Finding {
    what: &'static str,
    health: Health,
    said: String,
    /// What to do; empty when nothing is.
    advice: String,
}

impl Finding {
    fn good(what: &'static str, said: impl Into<String>) -> Finding {
        Finding { what, health: Health::Good, said: said.into(), advice: String::new() }
    }

    fn warning(what: &'static str, said: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { what, health: Health::Warning, said: said.into(), advice: advice.into() }
    }

    fn failed(what: &'static str, said: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { what, health: Health::Failed, said: said.into(), advice: advice.into() }
    }

    fn not_checked(what: &'static str, said: impl Into<String>) -> Finding {
        Finding { what, health: Health::NotChecked, said: said.into(), advice: String::new() }
    }
}

pub(super) fn run(arguments: &Doctor) -> ExitCode {
    let findings = examine(arguments);
    let is_well = findings.iter().all(|finding| finding.health != Health::Failed);
    if arguments.json {
        let checks: Vec<Value> = findings.iter().map(as_json).collect();
        println!("{:#}", json!({"ok": is_well, "checks": checks}));
    } else {
        findings.iter().for_each(|finding| print!("{}", line(finding)));
        let count = |health| findings.iter().filter(|finding| finding.health == health).count();
        println!("{} failed, {} warnings", count(Health::Failed), count(Health::Warning));
    }
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn word(health: Health) -> &'static str {
    match health {
        Health::Good => "ok",
        Health::Warning => "warning",
        Health::Failed => "failed",
        Health::NotChecked => "skipped",
    }
}

fn line(finding: &Finding) -> String {
    let lines =
        |text: &str| text.trim_end().lines().map(plain).collect::<Vec<_>>().join("\n                     ");
    let mut text = format!("{:8} {:11} {}\n", word(finding.health), finding.what, lines(&finding.said));
    if !finding.advice.is_empty() {
        text.push_str(&format!("                     do: {}\n", lines(&finding.advice)));
    }
    text
}

fn as_json(finding: &Finding) -> Value {
    let advice = Some(&finding.advice).filter(|advice| !advice.is_empty());
    json!({"check": finding.what, "result": word(finding.health), "message": finding.said, "do": advice})
}

fn examine(arguments: &Doctor) -> Vec<Finding> {
    let mut findings = Vec::new();
    let path = data::config_file(arguments.config.as_deref());
    let config = match path.as_deref().map(|path| config::load(path, Unset::Refuse)) {
        None => {
            findings.push(Finding::not_checked(
                "config",
                "there is no standfast.yaml here: a server serves the demo",
            ));
            None
        }
        Some(Ok(config)) => {
            let agents = config.agents.len();
            findings
                .push(Finding::good("config", format!("{} is valid, agents: {agents}", config.source.name)));
            let notices = config.notices.iter().map(|notice| notice.what.clone());
            findings.extend(notices.map(|what| Finding::warning("config", what, "see `standfast validate`")));
            Some(config)
        }
        Some(Err(error)) => {
            findings.push(Finding::failed("config", error.to_string(), "repair the file"));
            // Which database it would be is not known, then.
            return findings;
        }
    };
    let folder = match data::directory(arguments.data.as_deref()) {
        Ok(folder) => folder,
        Err(error) => {
            findings.push(Finding::failed("data", error.to_string(), "name another directory with --data"));
            return findings;
        }
    };
    let named = config.as_ref().and_then(|config| config.database.clone());
    let database = named.unwrap_or_else(|| Database::Sqlite(data::database(&folder)));
    findings.push(data_directory(&folder));
    findings.push(servers(&folder, &database));
    let sealing = match database.file().map(|file| data::sealing(config.as_ref(), &file)).transpose() {
        Ok(sealing) => sealing.flatten(),
        Err(error) => {
            findings.push(Finding::failed(
                "encryption",
                error.to_string(),
                "a server does not start without it",
            ));
            None
        }
    };
    findings.extend(stored(&database, sealing.as_ref()));
    findings.push(clock(&database));
    findings.extend(disks(&folder, &database));
    findings.push(webhooks(&database, sealing));
    findings.push(confinement(config.as_ref()));
    findings.push(file_limits(config.as_ref()));
    findings.extend(outside(arguments, config.as_ref()));
    findings
}

fn data_directory(folder: &Path) -> Finding {
    let mode = std::fs::metadata(folder).map(|metadata| metadata.permissions().mode() & 0o777);
    match mode {
        Ok(mode) if mode & 0o007 != 0 => Finding::warning(
            "data",
            format!("everybody on this machine can look into {} (mode {mode:o})", folder.display()),
            format!("chmod 700 '{}'", folder.display()),
        ),
        Ok(_) => Finding::good("data", folder.display().to_string()),
        Err(error) => {
            Finding::failed("data", format!("{}: {error}", folder.display()), "check its permissions")
        }
    }
}

/// Servers that run with this data directory, and whether they answer.
fn servers(folder: &Path, database: &Database) -> Finding {
    let running = running::running(folder);
    let Some(RunningServer { url, database: theirs, .. }) = running.first() else {
        return Finding::not_checked("server", "no server runs with this data directory on this machine");
    };
    let here = running::name_of(database);
    if running.iter().all(|server| server.database != here) {
        return Finding::warning(
            "server",
            format!("{url} runs with this data directory and uses another database, {theirs}"),
            "pass its configuration with --config",
        );
    }
    match connect::ready(url, Some(&trust::of_this_machine())) {
        Ok(()) => Finding::good("server", format!("{url} is ready")),
        Err(why) => Finding::failed("server", format!("{url} is not ready: {why}"), "see its log"),
    }
}

/// The database, and the chains of its newest runs.
fn stored(database: &Database, sealing: Option<&PayloadSealer>) -> Vec<Finding> {
    if let Some(path) = database.file()
        && !path.exists()
    {
        return vec![Finding::warning(
            "database",
            format!("{} does not exist yet", path.display()),
            "the first start creates it; if there should be one, check the path",
        )];
    }
    let (mut newest, mut count) = (VecDeque::new(), 0u64);
    let take = |run: RunId, _: Seq, _: Digest| {
        count += 1;
        newest.push_back(run);
        if newest.len() > SAMPLE {
            newest.pop_front();
        }
    };
    let listed = match database {
        Database::Sqlite(path) => sqlite::heads(path, take).map_err(|error| error.to_string()),
        Database::Files(files) => file::heads(&files.path, take).map_err(|error| error.to_string()),
        Database::Postgres(named) => {
            postgres::heads(&named.options(), take).map_err(|error| error.to_string())
        }
    };
    if let Err(error) = listed {
        let advice = "restore a backup, or upgrade Standfast if it is newer than this program";
        return vec![Finding::failed("database", error, advice)];
    }
    let mut findings = vec![Finding::good("database", format!("{database} can be read, runs: {count}"))];
    let mut wrong = Vec::new();
    for run in &newest {
        let go_on = |_| ControlFlow::Continue(());
        let report = match database {
            Database::Sqlite(path) => {
                let file = SqliteFile { path, sealing: sealing.cloned() };
                sqlite::export(file, Some(*run), go_on).map_err(|error| error.to_string())
            }
            Database::Files(files) => {
                file::export(&files.path, Some(*run), go_on).map_err(|error| error.to_string())
            }
            Database::Postgres(named) => {
                postgres::export(&named.options(), Some(*run), go_on).map_err(|error| error.to_string())
            }
        };
        match report {
            Ok(report) => {
                wrong.extend(report.findings.into_iter().map(|one| format!("{}: {}", one.run, one.what)))
            }
            Err(error) => wrong.push(format!("{run}: {error}")),
        }
    }
    findings.push(if wrong.is_empty() {
        Finding::good("chains", format!("verified, the newest {} of {count} runs", newest.len()))
    } else {
        Finding::failed(
            "chains",
            wrong.join("\n"),
            "`standfast audit verify` looks at every run; restore a backup",
        )
    });
    findings
}

/// Whether the clock can be right: not long ago, and not behind what is stored.
fn clock(database: &Database) -> Finding {
    let now = Clock::system().now();
    if now.0 < LONG_AGO_MS {
        let advice = "set it, and keep it right with NTP";
        return Finding::failed("clock", format!("this machine thinks that it is {}", rfc3339(now)), advice);
    }
    let Database::Sqlite(path) = database else {
        return Finding::good("clock", format!("{}; servers go by the time of their database", rfc3339(now)));
    };
    match sqlite::last_event_at(path) {
        Ok(Some(last)) if last > now => Finding::failed(
            "clock",
            format!(
                "it is {}, and the newest event is of {}: the clock went back",
                rfc3339(now),
                rfc3339(last)
            ),
            "set it, and keep it right with NTP: deadlines of holds go by it",
        ),
        Ok(_) | Err(_) => Finding::good("clock", rfc3339(now)),
    }
}

fn disks(folder: &Path, database: &Database) -> Vec<Finding> {
    let mut places = vec![folder.to_owned()];
    let parent = database.file().and_then(|file| file.parent().map(Path::to_owned));
    places.extend(parent.filter(|parent| parent != folder && parent.exists()));
    places.iter().map(|place| disk(place)).collect()
}

fn disk(place: &Path) -> Finding {
    let shown = place.display();
    let Ok(disk) = rustix::fs::statvfs(place) else {
        return Finding::not_checked(
            "disk",
            format!("the system does not say how full the disk of {shown} is"),
        );
    };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let said = format!("{} MiB are free at {shown}", free / (1024 * 1024));
    match free {
        // Some file systems do not say how large they are.
        _ if disk.f_blocks == 0 => {
            Finding::not_checked("disk", format!("the size of the disk of {shown} is unknown"))
        }
        free if free < LEAST_DISK => {
            Finding::failed("disk", said, "free some space now: without it nothing is accepted")
        }
        free if free < LOW_DISK => Finding::warning("disk", said, "free some space, or set server.retention"),
        _ => Finding::good("disk", said),
    }
}

/// Deliveries that were given up.
fn webhooks(database: &Database, sealing: Option<PayloadSealer>) -> Finding {
    let counted = match database {
        Database::Sqlite(path) if !path.exists() => {
            return Finding::not_checked("webhooks", "there is no database yet");
        }
        Database::Sqlite(path) => dead_letters(SqliteFile { path, sealing }),
        Database::Postgres(named) => {
            postgres::delivery_counts(&named.options()).map_err(|error| error.to_string())
        }
        Database::Files(_) => {
            return Finding::not_checked(
                "webhooks",
                "ask a server: `standfast subscriptions list` and `dead-letters`",
            );
        }
    };
    match counted {
        Ok((subscriptions, 0)) => {
            Finding::good("webhooks", format!("{subscriptions} subscriptions, no dead letters"))
        }
        Ok((subscriptions, dead)) => Finding::warning(
            "webhooks",
            format!("{subscriptions} subscriptions, {dead} deliveries were given up"),
            "`standfast subscriptions dead-letters` shows why, `resend` sends them again",
        ),
        Err(error) => Finding::failed("webhooks", error, "see `standfast audit verify`"),
    }
}

fn dead_letters(file: SqliteFile<'_>) -> Result<(u64, u64), String> {
    let store = SqliteSnapshot::open(file).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let (mut subscriptions, mut dead) = (0, 0);
        let tenants: Vec<Tenant> = store.tenants().await.map_err(|error| error.to_string())?;
        for tenant in tenants {
            let query = SubscriptionQuery { tenant: tenant.clone(), owner: None, after: None, limit: 1000 };
            for subscription in store.list_subscriptions(query).await.map_err(|error| error.to_string())? {
                subscriptions += 1;
                let (tenant, subscription) = (tenant.clone(), subscription.id);
                let query = DeadQuery { tenant, subscription, cursor: None, limit: 1000 };
                let letters = store.dead_letters(query).await.map_err(|error| error.to_string())?.items;
                dead += u64::try_from(letters.len()).unwrap_or(u64::MAX);
            }
        }
        Ok((subscriptions, dead))
    })
}

fn confinement(config: Option<&Config>) -> Finding {
    let is_used = config.is_some_and(|config| {
        config.agents.iter().flat_map(|agent| &agent.tools).any(|tool| tool.kind == ToolType::Command)
    });
    match (sandbox::probe(), is_used) {
        (Ok(()), _) => Finding::good("sandbox", "the kernel can confine commands"),
        (Err(error), true) => Finding::failed(
            "sandbox",
            error.to_string(),
            "use a kernel with Landlock (6.2 or newer), let the container use it, or write `sandbox: off`",
        ),
        (Err(error), false) => Finding::warning(
            "sandbox",
            format!("{error}; no tool of this configuration needs it"),
            "tools of type command will need it",
        ),
    }
}

fn file_limits(config: Option<&Config>) -> Finding {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let wanted = config.and_then(|config| config.file.server.limits.max_connections);
    let wanted = wanted.map_or(CONNECTIONS, u64::from) + OTHER_FILES;
    match limit {
        Some(limit) if limit < wanted => Finding::warning(
            "files",
            format!("{limit} files may be open; {wanted} are needed when all connections are used"),
            "raise it (ulimit -n, LimitNOFILE= of systemd), or lower server.limits.max_connections",
        ),
        Some(limit) => Finding::good("files", format!("{limit} files may be open")),
        None => Finding::good("files", "any number of files may be open"),
    }
}

/// MCP servers, remote agents, providers of models, mail servers and the collector of traces.
fn outside(arguments: &Doctor, config: Option<&Config>) -> Vec<Finding> {
    let Some(config) = config else { return Vec::new() };
    if arguments.offline {
        return vec![Finding::not_checked("connections", "left out by --offline")];
    }
    match connect::try_all(config) {
        Ok(trials) => trials
            .into_iter()
            .map(|trial| match trial.result {
                Ok(said) => Finding::good("connections", format!("{}: {said}", trial.what)),
                Err(why) => Finding::failed(
                    "connections",
                    format!("{}: {why}", trial.what),
                    "repair what it names; `standfast validate --connect` tries again",
                ),
            })
            .collect(),
        Err(why) => vec![Finding::failed("connections", why, "try again")],
    }
}

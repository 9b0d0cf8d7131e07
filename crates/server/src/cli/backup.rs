//! `standfast backup` and `standfast restore`: a copy of the SQLite file of a running server, and the way back.
//!
//! Copying and verifying is the store's; this finds the database and says what a restored one brings back to life: what
//! happened after the backup happened in the world, and the database does not know of it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use standfast::database::Database;
use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::project::{HoldRow, Phase, RunRow};
use standfast_store::sqlite::{self, FileCopy, PayloadSealer, SqliteFile, SqliteSnapshot};
use standfast_store::{Audience, HoldFilter, HoldQuery, RunFilter, RunQuery, RunStore, StoreError};
use standfast_surfaces::http::rfc3339;

use super::data;
use super::plain::{lines, plain};

/// Holds and runs that are listed one by one.
const LISTED: usize = 20;

/// Rows asked for at once.
const PAGE: usize = 200;

/// Which database.
#[derive(Debug, Args)]
struct DatabaseArgs {
    /// The server's configuration file, if it names the database.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The server's data directory. Default: $XDG_DATA_HOME/standfast, else ~/.local/share/standfast.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// What `backup` can be told.
#[derive(Debug, Args)]
pub(super) struct Backup {
    /// The file to write. It must not exist.
    file: PathBuf,
    #[command(flatten)]
    place: DatabaseArgs,
}

/// What `restore` can be told.
#[derive(Debug, Args)]
pub(super) struct Restore {
    /// The backup.
    file: PathBuf,
    /// The database that is replaced, moved away and still readable: names the holds that were decided and the runs that
    /// went on after the backup.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    #[command(flatten)]
    place: DatabaseArgs,
}

pub(super) fn backup(arguments: &Backup) -> ExitCode {
    let Backup { file, place } = arguments;
    let done = database(place).and_then(|database| {
        let sealing = data::sealing_by(place.config.as_deref(), &database)?;
        let source = SqliteFile { path: &database, sealing };
        let copy = sqlite::copy(source, file, |_| {}).map_err(|error| error.to_string())?;
        Ok((database, copy))
    });
    match done {
        Ok((database, copy)) => {
            let mut body = copy_json(&copy);
            body["database"] = database.display().to_string().into();
            body["backup"] = file.display().to_string().into();
            let text =
                format!("backed up {} to {}\n{}", database.display(), file.display(), copy_text(&copy));
            let text = text
                + "not in it: the configuration with its .env, and the keys in the data directory (webhook.key, \
                   callback.key); copy them too, once\n"
                + keys_text(&copy);
            finish(place, &text, &body, &copy)
        }
        Err(why) => refused(place, &why),
    }
}

pub(super) fn restore(arguments: &Restore) -> ExitCode {
    let Restore { file, compare, place } = arguments;
    let done = database(place).and_then(|database| {
        data::make_folder_of(&database).map_err(|error| error.to_string())?;
        let sealing = data::sealing_by(place.config.as_deref(), &database)?;
        // What is brought back to life is named, so its keys are needed before anything is written.
        let source = SqliteFile { path: file, sealing: sealing.clone() };
        drop(SqliteSnapshot::open(source.clone()).map_err(|error| error.to_string())?);
        let copy = sqlite::copy(source, &database, |_| {}).map_err(|error| error.to_string())?;
        let revived = wait(RevivedWork::of(&database, compare.as_deref(), sealing))?;
        Ok((database, copy, revived))
    });
    match done {
        Ok((database, copy, revived)) => {
            let mut body = copy_json(&copy);
            body["database"] = database.display().to_string().into();
            body["backup"] = file.display().to_string().into();
            body["revived"] = revived.as_json();
            let text = format!(
                "restored {} to {}\n{}{}",
                file.display(),
                database.display(),
                copy_text(&copy),
                revived.text(&copy)
            );
            finish(place, &text, &body, &copy)
        }
        Err(why) => refused(place, &why),
    }
}

fn database(place: &DatabaseArgs) -> Result<PathBuf, String> {
    let found = data::of_server(place.config.as_deref(), place.data.as_deref());
    match found.map_err(|error| error.to_string())? {
        Database::Sqlite(path) => Ok(path),
        Database::Files(files) => Err(format!(
            "{} is a folder of files: stop the server and copy the folder, or export it with `standfast export`",
            files.path.display()
        )),
        database @ Database::Postgres(_) => Err(format!(
            "{database} is backed up with its own tools, while servers run: pg_dump --format=custom --file=FILE, and \
             pg_restore into an empty database; the guide (Back up and restore) has the steps"
        )),
    }
}

fn finish(place: &DatabaseArgs, text: &str, body: &Value, copy: &FileCopy) -> ExitCode {
    if place.json {
        println!("{body}");
    } else {
        print!("{text}");
    }
    if copy.report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn refused(place: &DatabaseArgs, why: &str) -> ExitCode {
    if place.json {
        println!("{}", json!({ "error": why }));
    } else {
        eprintln!("standfast: {}", lines(why));
    }
    ExitCode::from(2)
}

fn copy_json(copy: &FileCopy) -> Value {
    let FileCopy { bytes, report, last_event_at, undelivered, .. } = copy;
    let findings: Vec<Value> =
        report.findings.iter().map(|finding| json!({"run": finding.run, "what": finding.what})).collect();
    json!({
        "ok": findings.is_empty(), "bytes": bytes, "runs": report.runs, "links": report.links,
        "events": report.events, "last_event_at": last_event_at.map(rfc3339), "undelivered": undelivered,
        "findings": findings, "sealed": copy.is_sealed, "locked": report.locked,
    })
}

/// What else is needed to read a copy with sealed payloads.
fn keys_text(copy: &FileCopy) -> &'static str {
    if copy.is_sealed {
        "payloads are sealed: the copy is of no use without the file of their keys and the keys of server.encryption. Copy \
         that file apart, and keep no copy of it for longer than contents may outlive their erasure\n"
    } else {
        ""
    }
}

fn copy_text(copy: &FileCopy) -> String {
    let FileCopy { bytes, report, last_event_at, .. } = copy;
    let until = last_event_at
        .map_or("there is no event in it".to_owned(), |at| format!("the last event is of {}", rfc3339(at)));
    let mut text = format!(
        "{} runs, {} links, {} events, {bytes} bytes; {until}\n",
        report.runs, report.links, report.events
    );
    text.extend(report.findings.iter().map(|one| format!("{}: {}\n", plain(&one.run), plain(&one.what))));
    if report.locked > 0 {
        text.push_str(&format!(
            "the contents of {} runs are sealed and were not read; pass the configuration that has their keys with --config\n",
            report.locked
        ));
    }
    text.push_str(&match report.findings.len() {
        0 if report.locked > 0 => "every chain verifies\n".to_owned(),
        0 => "every chain verifies and every row follows from its events\n".to_owned(),
        n => format!("{n} runs do not verify, in the source as in the copy; the others are not affected\n"),
    });
    text
}

/// What a restored database takes up again when a server starts on it.
struct RevivedWork {
    /// Open holds for people.
    pending: Vec<HoldRow>,
    /// Jobs elsewhere that are waited for.
    jobs: Vec<HoldRow>,
    /// Runs that were queued or at work.
    at_work: u64,
    /// What the database that is replaced says of them, if there is one.
    later: Option<Later>,
}

/// What a backup knows, to be compared with what came later.
struct KnownBefore {
    /// Its open holds.
    holds: Vec<HoldId>,
    /// Its runs, and how far they were.
    runs: Vec<(RunId, Seq)>,
}

/// What happened after the backup.
struct Later {
    decided: Vec<HoldRow>,
    new_runs: u64,
    advanced: Vec<String>,
}

impl RevivedWork {
    async fn of(
        restored: &Path,
        replaced: Option<&Path>,
        sealing: Option<PayloadSealer>,
    ) -> Result<RevivedWork, String> {
        let store = snapshot(restored, sealing.clone())?;
        let failed = |error: StoreError| error.to_string();
        let holds = open_holds(&store).await.map_err(failed)?;
        let (jobs, pending): (Vec<_>, Vec<_>) =
            holds.into_iter().partition(|hold| hold.kind == HoldKind::External);
        let (mut at_work, mut runs) = (0, Vec::new());
        for_each_run(&store, |row| {
            at_work += u64::from(is_at_work(row));
            runs.push((row.run.facts.id, row.run.state.seq));
        })
        .await
        .map_err(failed)?;
        let later = match replaced {
            Some(replaced) => {
                let known =
                    KnownBefore { holds: pending.iter().chain(&jobs).map(|hold| hold.id).collect(), runs };
                Some(Later::of(&snapshot(replaced, sealing)?, &known).await.map_err(failed)?)
            }
            None => None,
        };
        Ok(RevivedWork { pending, jobs, at_work, later })
    }

    fn text(&self, copy: &FileCopy) -> String {
        let RevivedWork { pending, jobs, at_work, later } = self;
        let mut text = "\nwhat happened after the backup happened in the world, and this database does not know of it:\n".to_owned();
        if !pending.is_empty() {
            text.push_str(&format!(
                "- {} holds are pending again. A call that was approved later may have run already: look at its target \
                 system before you decide\n",
                pending.len()
            ));
            text.push_str(&listed(pending));
        }
        if !jobs.is_empty() {
            text.push_str(&format!(
                "- {} external jobs are waited for. They may report again; what they reported later is gone, so have them \
                 repeat it\n",
                jobs.len()
            ));
            text.push_str(&listed(jobs));
        }
        if *at_work > 0 {
            text.push_str(&format!(
                "- {at_work} runs were queued or at work and continue when a server starts; a call that had started \
                 becomes a hold with an unknown outcome\n"
            ));
        }
        if copy.undelivered > 0 {
            text.push_str(&format!(
                "- {} webhook deliveries are due, also those that were made later; receivers tell them apart by their id\n",
                copy.undelivered
            ));
        }
        text.push_str(
            "- API keys, subscriptions and sessions are as they were: revoke again what was revoked later\n\
             - signed heads of later will not verify: `standfast audit verify` names the runs that are behind them\n",
        );
        text.extend(later.as_ref().map(Later::text));
        text
    }

    fn as_json(&self) -> Value {
        let ids = |holds: &[HoldRow]| holds.iter().map(|hold| hold.id.to_string()).collect::<Vec<_>>();
        json!({
            "pending": ids(&self.pending),
            "jobs": ids(&self.jobs),
            "at_work": self.at_work,
            "later": self.later.as_ref().map(|later| json!({
                "decided": later.decided.iter().map(|hold| json!({
                    "hold": hold.id.to_string(),
                    "by": hold.closed.as_ref().map(|closed| closed.by.to_string()),
                    "how": hold.closed.as_ref().map(|closed| format!("{:?}", closed.how).to_lowercase()),
                })).collect::<Vec<_>>(),
                "new_runs": later.new_runs,
                "advanced": later.advanced,
            })),
        })
    }
}

impl Later {
    async fn of(replaced: &SqliteSnapshot, known: &KnownBefore) -> Result<Later, StoreError> {
        let mut decided = Vec::new();
        for hold in &known.holds {
            decided.extend(replaced.find_hold(*hold).await?.filter(|now| now.closed.is_some()));
        }
        let mut advanced = Vec::new();
        for (run, seq) in &known.runs {
            // A run that cannot be read any more is one reason to restore.
            if let Ok(stored) = replaced.load(*run).await
                && stored.row.run.state.seq > *seq
            {
                advanced.push(run.to_string());
            }
        }
        let mut all = 0;
        let unreadable = for_each_run(replaced, |_| all += 1).await?;
        let known = known.runs.len() as u64;
        Ok(Later { decided, new_runs: (all + unreadable).saturating_sub(known), advanced })
    }

    fn text(&self) -> String {
        let mut text = format!(
            "compared with the database that it replaces: {} runs began later and are gone, {} went on\n",
            self.new_runs,
            self.advanced.len()
        );
        for hold in self.decided.iter().take(LISTED) {
            if let Some(closed) = &hold.closed {
                let how = format!("{:?}", closed.how).to_lowercase();
                text.push_str(&format!(
                    "    {} was {how} by {} at {}\n",
                    hold.id,
                    plain(&closed.by.to_string()),
                    rfc3339(closed.at)
                ));
            }
        }
        text.push_str(&more(self.decided.len()));
        text
    }
}

/// Every open hold, of all tenants.
async fn open_holds(store: &SqliteSnapshot) -> Result<Vec<HoldRow>, StoreError> {
    let mut holds = Vec::new();
    for tenant in store.tenants().await? {
        let mut query = HoldQuery {
            tenant,
            audience: Audience::Everyone,
            filter: HoldFilter::All,
            kinds: Vec::new(),
            cursor: None,
            limit: PAGE,
        };
        loop {
            let page = store.list_holds(query.clone()).await?;
            holds.extend(page.items);
            query.cursor = page.next;
            if query.cursor.is_none() {
                break;
            }
        }
    }
    Ok(holds)
}

/// Shows every run, of all tenants; says how many cannot be read.
async fn for_each_run(store: &SqliteSnapshot, mut take: impl FnMut(&RunRow)) -> Result<u64, StoreError> {
    let mut unreadable = 0;
    for tenant in store.tenants().await? {
        let (filter, phases) = (RunFilter::All, Vec::new());
        let mut query = RunQuery { tenant, filter, phases, since: None, cursor: None, limit: PAGE };
        loop {
            let page = store.list_runs(query.clone()).await?;
            page.items.iter().for_each(&mut take);
            unreadable += page.unreadable.len() as u64;
            query.cursor = page.next;
            if query.cursor.is_none() {
                break;
            }
        }
    }
    Ok(unreadable)
}

fn is_at_work(row: &RunRow) -> bool {
    matches!(row.phase, Phase::Queued | Phase::Claimed | Phase::Working | Phase::Retrying)
}

fn listed(holds: &[HoldRow]) -> String {
    let line = |hold: &HoldRow| {
        let tool = hold.tool.as_ref().map_or(String::new(), |tool| format!(" of {tool}"));
        let kind = format!("{:?}", hold.kind).to_lowercase();
        format!(
            "    {}  {kind}{} ({}), opened {}\n",
            hold.id,
            plain(&tool),
            plain(hold.agent.as_str()),
            rfc3339(hold.opened_at)
        )
    };
    let lines: String = holds.iter().take(LISTED).map(line).collect();
    lines + &more(holds.len())
}

fn more(count: usize) -> String {
    if count > LISTED { format!("    and {} more\n", count - LISTED) } else { String::new() }
}

fn snapshot(path: &Path, sealing: Option<PayloadSealer>) -> Result<SqliteSnapshot, String> {
    SqliteSnapshot::open(SqliteFile { path, sealing }).map_err(|error| error.to_string())
}

fn wait<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|error| error.to_string())?;
    runtime.block_on(work)
}

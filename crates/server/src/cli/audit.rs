//! `standfast audit verify` and `head`: is everything that is stored what was stored, and signing that it is there.
//!
//! The proof is the store's, signing is `heads`; this finds the database and the files and turns what comes of it into
//! words, JSON and an exit code.

use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use standfast::config::{self, Unset};
use standfast::database::{Database, Files};
use standfast::heads::{self, HeadSettings, KeySource, PublicKey, SignedHeads};
use standfast_core::digest::Digest;
use standfast_core::id::RunId;
use standfast_engine::clock::Clock;
use standfast_store::audit::{ExportedRun, Report};
use standfast_store::sqlite::SqliteFile;
use standfast_store::{AuditEntry, file, postgres, sqlite};
use standfast_surfaces::http::rfc3339;

use super::audit_receipt::{self, CheckedReceipt};
use super::data;
use super::export_record::{self, TakenOut};
use super::plain::{lines, plain};

/// What is audited.
#[derive(Debug, Args)]
pub(super) struct AuditTarget {
    /// The SQLite file of a server, or its folder of files.
    #[arg(required_unless_present = "config", conflicts_with = "config")]
    file: Option<PathBuf>,
    /// The database that this configuration file names: SQLite, a folder of files, or Postgres.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The configuration file whose `server.encryption` has the keys of sealed payloads. Default: that of --config. Without
    /// keys only the chains of hashes are verified.
    #[arg(long, value_name = "FILE")]
    keys_from: Option<PathBuf>,
}

/// The file of signed heads, and its keys.
#[derive(Debug, Args)]
pub(super) struct SignedHeadsArgs {
    /// A file of signed heads. Default: `server.audit.heads` of the configuration.
    #[arg(long, value_name = "FILE")]
    heads: Option<PathBuf>,
    /// A file with the key, as PEM. To verify, the public half is enough, and it may be repeated after a change of keys.
    /// Default: the key that the configuration names.
    #[arg(long = "key", value_name = "FILE")]
    keys: Vec<PathBuf>,
}

impl SignedHeadsArgs {
    /// The heads that must hold; none when nobody names any.
    fn read(&self, what: &AuditTarget) -> Result<Option<SignedHeads>, String> {
        let settings = what.heads()?;
        let configured = settings.as_ref().map(|settings| &settings.file);
        let Some(file) = self.heads.as_ref().or(configured) else { return Ok(None) };
        let mut sources: Vec<KeySource> = self.keys.iter().cloned().map(KeySource::File).collect();
        if sources.is_empty() {
            sources.extend(settings.as_ref().map(|settings| settings.key.clone()));
        }
        let keys: Result<Vec<PublicKey>, _> = sources.iter().map(KeySource::public).collect();
        let keys = keys.map_err(|error| error.to_string())?;
        heads::read(file, &keys).map(Some).map_err(|error| error.to_string())
    }

    /// The heads as they were signed, if they are; none when nobody names any.
    pub(super) fn text(&self, what: &AuditTarget) -> Result<Option<String>, String> {
        let settings = what.heads()?;
        let configured = settings.as_ref().map(|settings| &settings.file);
        let Some(file) = self.heads.as_ref().or(configured) else { return Ok(None) };
        self.read(what)?;
        let text = std::fs::read_to_string(file);
        text.map(Some).map_err(|error| format!("cannot read {}: {error}", file.display()))
    }

    /// Which file is added to, with which key.
    fn settings(&self, what: &AuditTarget) -> Result<(PathBuf, KeySource), String> {
        let settings = what.heads()?;
        let (file, key) = match settings {
            Some(HeadSettings { file, key, .. }) => (Some(file), Some(key)),
            None => (None, None),
        };
        let file = self.heads.clone().or(file);
        let key = self.keys.last().cloned().map(KeySource::File).or(key);
        let named = file.zip(key);
        named.ok_or_else(|| {
            "pass the file with --heads and the key with --key, or configure both in server.audit".into()
        })
    }
}

impl AuditTarget {
    /// This file, or else what a configuration names.
    pub(super) fn new(file: Option<PathBuf>, config: PathBuf) -> AuditTarget {
        let config = file.is_none().then_some(config);
        AuditTarget { file, config, keys_from: None }
    }

    /// A file of SQLite, with the keys that were named.
    fn sqlite<'a>(&self, path: &'a Path) -> Result<SqliteFile<'a>, String> {
        let named = self.keys_from.as_deref().or(self.config.as_deref());
        let config = named.map(|path| config::load(path, Unset::Ask)).transpose();
        let config = config.map_err(|error| error.to_string())?;
        let database = config.as_ref().and_then(|config| config.database.as_ref()?.file());
        // The keys of a copy are beside the database that it is a copy of.
        let beside = database.as_deref().unwrap_or(path);
        let sealing = data::sealing(config.as_ref(), beside).map_err(|error| error.to_string())?;
        Ok(SqliteFile { path, sealing })
    }

    /// What the configuration says of signed heads.
    fn heads(&self) -> Result<Option<HeadSettings>, String> {
        let Some(path) = &self.config else { return Ok(None) };
        let config = config::load(path, Unset::Ask).map_err(|error| error.to_string())?;
        Ok(config.heads())
    }

    /// Records that what is in it is taken out, unless it is a copy: a file that is named itself stays as it is.
    pub(super) fn record(&self, taken: TakenOut) -> Result<(), String> {
        if self.config.is_some() {
            export_record::record(&self.database()?, taken, None);
        }
        Ok(())
    }

    fn database(&self) -> Result<Database, String> {
        match &self.file {
            // A file store is a folder; SQLite is a file.
            Some(folder) if folder.is_dir() => Ok(Database::Files(Files::at(folder))),
            Some(file) => Ok(Database::Sqlite(file.clone())),
            None => data::of_server(self.config.as_deref(), None).map_err(|error| error.to_string()),
        }
    }

    /// What there is to say of every run, and which database that was.
    fn verify(
        &self,
        signed: &SignedHeadsArgs,
        receipts: &[PathBuf],
        progress: impl FnMut(u64),
    ) -> Result<Verification, String> {
        let database = self.database()?;
        // Read first: what is appended meanwhile is in the database, not in the heads.
        let heads = signed.read(self)?;
        let mut covered = heads.as_ref().map(|heads| heads.covered.clone()).unwrap_or_default();
        covered.asked_at = Some(Clock::system().now());
        let report = match &database {
            Database::Sqlite(file) => sqlite::verify_against(self.sqlite(file)?, &covered, progress)
                .map_err(|error| error.to_string()),
            Database::Files(files) => {
                file::verify_against(&files.path, &covered, progress).map_err(|error| error.to_string())
            }
            Database::Postgres(named) => postgres::verify_against(&named.options(), &covered, progress)
                .map_err(|error| format!("{}: {error}", named.setting)),
        };
        let report = report?;
        let covered = heads.as_ref().map(|heads| &heads.covered);
        let receipts: Result<Vec<CheckedReceipt>, String> =
            receipts.iter().map(|file| audit_receipt::check(file, self, covered)).collect();
        Ok(Verification { database, report, heads, receipts: receipts? })
    }

    /// Hands over the log of one run, or of every run.
    /// Runs that are sealed have no events without their keys: an error, unless the caller can do without.
    pub(super) fn export(
        &self,
        only: Option<RunId>,
        take: impl FnMut(ExportedRun) -> ControlFlow<()>,
    ) -> Result<(Database, Report), String> {
        let (database, report) = self.export_what_opens(only, take)?;
        if report.locked > 0 {
            let locked = report.locked;
            return Err(format!(
                "the contents of {locked} runs in {database} are sealed; pass the configuration that has their keys with \
                 --config, or with --keys-from"
            ));
        }
        Ok((database, report))
    }

    /// The same, with runs that are sealed as chains alone.
    pub(super) fn export_what_opens(
        &self,
        only: Option<RunId>,
        take: impl FnMut(ExportedRun) -> ControlFlow<()>,
    ) -> Result<(Database, Report), String> {
        let database = self.database()?;
        let report = match &database {
            Database::Sqlite(file) => {
                sqlite::export(self.sqlite(file)?, only, take).map_err(|error| error.to_string())
            }
            Database::Files(files) => {
                file::export(&files.path, only, take).map_err(|error| error.to_string())
            }
            Database::Postgres(named) => postgres::export(&named.options(), only, take)
                .map_err(|error| format!("{}: {error}", named.setting)),
        };
        Ok((database, report?))
    }

    /// Hands over the definitions that runs are pinned to.
    pub(super) fn definitions(&self, take: impl FnMut(&str, Digest, &[u8])) -> Result<(), String> {
        match self.database()? {
            Database::Sqlite(file) => {
                sqlite::agent_definitions(&file, take).map_err(|error| error.to_string())
            }
            Database::Files(files) => {
                file::agent_definitions(&files.path, take).map_err(|error| error.to_string())
            }
            Database::Postgres(named) => postgres::agent_definitions(&named.options(), take)
                .map_err(|error| format!("{}: {error}", named.setting)),
        }
    }

    /// Hands over what happened beside the runs.
    pub(super) fn entries(
        &self,
        take: impl FnMut(&str, AuditEntry) -> ControlFlow<()>,
    ) -> Result<(), String> {
        match self.database()? {
            Database::Sqlite(file) => sqlite::audit_entries(&file, take).map_err(|error| error.to_string()),
            Database::Files(files) => {
                file::audit_entries(&files.path, take).map_err(|error| error.to_string())
            }
            Database::Postgres(named) => postgres::audit_entries(&named.options(), take)
                .map_err(|error| format!("{}: {error}", named.setting)),
        }
    }
}

/// What was verified, and with which heads.
struct Verification {
    database: Database,
    report: Report,
    heads: Option<SignedHeads>,
    receipts: Vec<CheckedReceipt>,
}

impl Verification {
    fn is_good(&self) -> bool {
        self.report.findings.is_empty() && self.receipts.iter().all(CheckedReceipt::is_good)
    }
}

/// Signs a head, whether or not anything changed.
pub(crate) fn head(what: &AuditTarget, signed: &SignedHeadsArgs, as_json: bool) -> ExitCode {
    let write = || -> Result<heads::WrittenHead, String> {
        let (file, key) = signed.settings(what)?;
        let written = heads::append(&what.database()?, &file, &key, Clock::system().now(), true);
        written.map_err(|error| error.to_string())?.ok_or_else(|| "there was nothing to sign".into())
    };
    match (write(), as_json) {
        (Ok(head), true) => {
            let key = head.key.to_string();
            println!(
                "{}",
                json!({ "head": head.no, "runs": head.runs, "changed": head.changed, "key": key })
            );
            ExitCode::SUCCESS
        }
        (Ok(head), false) => {
            let heads::WrittenHead { no, runs, changed, key } = head;
            println!("head {no}: {runs} runs, {changed} of them new or changed; signed with key {key}");
            ExitCode::SUCCESS
        }
        (Err(error), as_json) => could_not(&error, as_json),
    }
}

fn could_not(error: &str, as_json: bool) -> ExitCode {
    if as_json {
        println!("{}", json!({ "error": error }))
    } else {
        eprintln!("standfast: {}", lines(error))
    }
    ExitCode::from(2)
}

pub(crate) fn verify(
    what: &AuditTarget,
    signed: &SignedHeadsArgs,
    receipts: &[PathBuf],
    as_json: bool,
) -> ExitCode {
    let shows_progress = std::io::stderr().is_terminal() && !as_json;
    let progress = |runs: u64| {
        if shows_progress {
            // Nobody needs to hear that a progress line could not be written.
            let _ = write!(std::io::stderr(), "\r{runs} runs checked");
        }
    };
    let result = what.verify(signed, receipts, progress);
    if shows_progress {
        eprintln!();
    }
    match (result, as_json) {
        (Ok(verified), true) => print_json(&verified),
        (Ok(verified), false) => print_text(&verified),
        (Err(error), as_json) => could_not(&error, as_json),
    }
}

fn print_text(verified: &Verification) -> ExitCode {
    let Verification { database, report, heads, receipts } = verified;
    for finding in &report.findings {
        println!("{}: {}", plain(&finding.run), plain(&finding.what));
    }
    let Report { runs, links, events, erased, locked, entries, findings } = report;
    println!(
        "{database}: {runs} runs, {links} links, {events} events, {erased} erased, {entries} audit entries"
    );
    match heads {
        Some(heads) => {
            let keys: Vec<String> = heads.keys.iter().map(ToString::to_string).collect();
            let newest = heads.newest.map(rfc3339).unwrap_or_else(|| "never".into());
            println!("{} signed heads, the newest of {newest}, by key {}", heads.heads, keys.join(", "));
        }
        None => println!("no signed heads were given: deleted runs and a rewritten history are not detected"),
    }
    receipts.iter().for_each(|receipt| println!("{}", receipt.line()));
    if *locked > 0 {
        println!(
            "the contents of {locked} runs are sealed and were not read: of those only the chains of hashes were checked; \
             pass the configuration that has their keys with --config"
        );
    }
    if findings.is_empty() && *locked > 0 {
        println!("every chain verifies, and every row that could be read follows from its events");
    } else if findings.is_empty() {
        println!("every chain verifies and every row follows from its events");
    } else {
        println!(
            "{} findings: restore those runs from a backup, or leave them; other runs are not affected",
            findings.len()
        );
    }
    if verified.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_json(verified: &Verification) -> ExitCode {
    let Verification { report, heads, receipts, .. } = verified;
    let findings: Vec<_> =
        report.findings.iter().map(|finding| json!({ "run": finding.run, "what": finding.what })).collect();
    let is_good = verified.is_good();
    let heads = heads.as_ref().map(|heads| {
        let keys: Vec<String> = heads.keys.iter().map(ToString::to_string).collect();
        json!({ "count": heads.heads, "newest": heads.newest.map(rfc3339), "keys": keys })
    });
    let body = json!({
        "ok": is_good,
        "runs": report.runs,
        "links": report.links,
        "events": report.events,
        "erased": report.erased,
        "locked": report.locked,
        "entries": report.entries,
        "heads": heads,
        "findings": findings,
        "receipts": receipts.iter().map(CheckedReceipt::json).collect::<Vec<_>>(),
    });
    println!("{body}");
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

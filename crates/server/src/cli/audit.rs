//! `holdpoint audit verify`: is everything that is stored what was stored?
//!
//! The proof is the store's; this finds the database and turns the report into words, JSON and an exit code.

use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use holdpoint::config::Database;
use holdpoint_core::id::RunId;
use holdpoint_store::audit::{Exported, Report};
use holdpoint_store::{AuditEntry, postgres, sqlite};
use serde_json::json;

use super::data;
use super::plain::plain;

/// What is audited.
#[derive(Debug, Args)]
pub(super) struct Audited {
    /// The SQLite file of a server.
    #[arg(required_unless_present = "config", conflicts_with = "config")]
    file: Option<PathBuf>,
    /// The database that this configuration file names: SQLite or Postgres.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Audited {
    fn database(&self) -> Result<Database, String> {
        match &self.file {
            Some(file) => Ok(Database::Sqlite(file.clone())),
            None => data::of_server(self.config.as_deref(), None).map_err(|error| error.to_string()),
        }
    }

    /// What there is to say of every run, and which database that was.
    fn verify(&self, progress: impl FnMut(u64)) -> Result<(Database, Report), String> {
        let database = self.database()?;
        let report = match &database {
            Database::Sqlite(file) => sqlite::verify(file, progress).map_err(|error| error.to_string()),
            Database::Postgres(named) => postgres::verify(&named.options(), progress)
                .map_err(|error| format!("{}: {error}", named.setting)),
        };
        Ok((database, report?))
    }

    /// Hands over the log of one run, or of every run.
    pub(super) fn export(
        &self,
        only: Option<RunId>,
        take: impl FnMut(Exported) -> ControlFlow<()>,
    ) -> Result<(Database, Report), String> {
        let database = self.database()?;
        let report = match &database {
            Database::Sqlite(file) => sqlite::export(file, only, take).map_err(|error| error.to_string()),
            Database::Postgres(named) => postgres::export(&named.options(), only, take)
                .map_err(|error| format!("{}: {error}", named.setting)),
        };
        Ok((database, report?))
    }

    /// Hands over what happened beside the runs.
    pub(super) fn entries(
        &self,
        take: impl FnMut(&str, AuditEntry) -> ControlFlow<()>,
    ) -> Result<(), String> {
        match self.database()? {
            Database::Sqlite(file) => sqlite::audit_entries(&file, take).map_err(|error| error.to_string()),
            Database::Postgres(named) => postgres::audit_entries(&named.options(), take)
                .map_err(|error| format!("{}: {error}", named.setting)),
        }
    }
}

pub(crate) fn verify(what: &Audited, as_json: bool) -> ExitCode {
    let shows_progress = std::io::stderr().is_terminal() && !as_json;
    let progress = |runs: u64| {
        if shows_progress {
            // Nobody needs to hear that a progress line could not be written.
            let _ = write!(std::io::stderr(), "\r{runs} runs checked");
        }
    };
    let result = what.verify(progress);
    if shows_progress {
        eprintln!();
    }
    match (result, as_json) {
        (Ok((_, report)), true) => print_json(&report),
        (Ok((database, report)), false) => print_text(&database, &report),
        (Err(error), true) => {
            println!("{}", json!({ "error": error }));
            ExitCode::from(2)
        }
        (Err(error), false) => {
            eprintln!("holdpoint: {}", plain(&error));
            ExitCode::from(2)
        }
    }
}

fn print_text(database: &Database, report: &Report) -> ExitCode {
    for finding in &report.findings {
        println!("{}: {}", plain(&finding.run), plain(&finding.what));
    }
    let Report { runs, links, events, erased, findings } = report;
    println!("{database}: {runs} runs, {links} links, {events} events, {erased} erased");
    if findings.is_empty() {
        println!("every chain verifies and every row follows from its events");
        ExitCode::SUCCESS
    } else {
        println!(
            "{} runs are quarantined: restore them from a backup, or leave them; others are not affected",
            findings.len()
        );
        ExitCode::FAILURE
    }
}

fn print_json(report: &Report) -> ExitCode {
    let findings: Vec<_> =
        report.findings.iter().map(|finding| json!({ "run": finding.run, "what": finding.what })).collect();
    let is_good = findings.is_empty();
    let body = json!({
        "ok": is_good,
        "runs": report.runs,
        "links": report.links,
        "events": report.events,
        "erased": report.erased,
        "findings": findings,
    });
    println!("{body}");
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

//! `holdpoint audit verify FILE`: is everything that is stored what was stored?
//!
//! The proof is the store's; this turns its report into words, JSON and an exit code.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use holdpoint_store::audit::Report;
use holdpoint_store::sqlite;
use serde_json::json;

use super::plain::plain;

pub(crate) fn verify(file: &Path, as_json: bool) -> ExitCode {
    let shows_progress = std::io::stderr().is_terminal() && !as_json;
    let progress = |runs: u64| {
        if shows_progress {
            // Nobody needs to hear that a progress line could not be written.
            let _ = write!(std::io::stderr(), "\r{runs} runs checked");
        }
    };
    let result = sqlite::verify(file, progress);
    if shows_progress {
        eprintln!();
    }
    match (result, as_json) {
        (Ok(report), true) => print_json(&report),
        (Ok(report), false) => print_text(file, &report),
        (Err(error), true) => {
            println!("{}", json!({ "error": error.to_string() }));
            ExitCode::from(2)
        }
        (Err(error), false) => {
            eprintln!("holdpoint: {}", plain(&error.to_string()));
            ExitCode::from(2)
        }
    }
}

fn print_text(file: &Path, report: &Report) -> ExitCode {
    for finding in &report.findings {
        println!("{}: {}", plain(&finding.run), plain(&finding.what));
    }
    let Report { runs, links, events, erased, findings } = report;
    println!("{}: {runs} runs, {links} links, {events} events, {erased} erased", file.display());
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

//! `standfast test FILE…`: plays scenarios and says which went as expected.
//!
//! Exit codes: 0 all did, 1 some did not, 2 some could not be played. Playing is the library's; this finds the files and
//! makes words and JSON of what came out.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use standfast::scenario::{self, FailedStep, Outcome, Report, RunLog};
use standfast_surfaces::http::rfc3339;

use super::colour::{Colour, Paint};
use super::plain::plain;
use super::timeline::EventBody;

/// Which scenarios.
#[derive(Debug, Args)]
pub(super) struct Test {
    /// Scenario files, or directories with .yaml or .yml files.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(test: &Test) -> ExitCode {
    let paths = match found(&test.files) {
        Ok(paths) => paths,
        Err(why) => {
            eprintln!("standfast: {}", plain(&why));
            return ExitCode::from(2);
        }
    };
    let mut out = io::stdout().lock();
    let paint = Paint::for_stdout();
    let (mut reports, mut printed) = (Vec::new(), Ok(()));
    for path in paths {
        let report = scenario::run(&path);
        if !test.json {
            // Each as soon as it is known.
            printed =
                printed.and_then(|()| write!(out, "{}", text(&report, paint))).and_then(|()| out.flush());
        }
        reports.push(report);
    }
    let totals = Totals::of(&reports);
    let last = if test.json {
        json!({
            "ok": totals.code == 0,
            "passed": totals.passed,
            "failed": totals.failed,
            "broken": totals.broken,
            "scenarios": reports.iter().map(body).collect::<Vec<_>>(),
        })
        .to_string()
    } else {
        totals.line()
    };
    match printed.and_then(|()| writeln!(out, "{last}")).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::from(totals.code),
        // Whoever read it has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::from(totals.code),
        Err(error) => {
            eprintln!("standfast: the report could not be printed: {error}");
            ExitCode::from(2)
        }
    }
}

/// The files to play: those named, and those in directories that are named, by name.
fn found(named: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut paths = Vec::new();
    for path in named {
        if !path.is_dir() {
            paths.push(path.clone());
            continue;
        }
        let unreadable = |error: io::Error| format!("{}: {error}", path.display());
        let entries: Vec<PathBuf> = std::fs::read_dir(path)
            .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
            .map_err(unreadable)?;
        let is_scenario = |path: &PathBuf| {
            let ending = path.extension().and_then(|ending| ending.to_str());
            path.is_file() && matches!(ending, Some("yaml" | "yml"))
        };
        let mut inside: Vec<PathBuf> = entries.into_iter().filter(is_scenario).collect();
        if inside.is_empty() {
            return Err(format!("{}: no file in this directory ends in .yaml or .yml", path.display()));
        }
        inside.sort();
        paths.extend(inside);
    }
    Ok(paths)
}

struct Totals {
    passed: usize,
    failed: usize,
    broken: usize,
    code: u8,
}

impl Totals {
    fn of(reports: &[Report]) -> Totals {
        let mut totals = Totals { passed: 0, failed: 0, broken: 0, code: 0 };
        for report in reports {
            match report.outcome {
                Outcome::Passed { .. } => totals.passed += 1,
                Outcome::Failed(_) => totals.failed += 1,
                Outcome::Broken(_) => totals.broken += 1,
            }
        }
        totals.code = match (totals.broken, totals.failed) {
            (0, 0) => 0,
            (0, _) => 1,
            (_, _) => 2,
        };
        totals
    }

    fn line(&self) -> String {
        let Totals { passed, failed, broken, .. } = self;
        let more = match broken {
            0 => String::new(),
            _ => format!(", {broken} could not be run"),
        };
        format!("{passed} passed, {failed} failed{more}")
    }
}

fn text(report: &Report, paint: Paint) -> String {
    let path = plain(&report.path.display().to_string());
    let name = report.name.as_ref().map_or(String::new(), |name| format!("  {}", plain(name)));
    match &report.outcome {
        Outcome::Passed { .. } => format!("{}  {path}{name}\n", paint.with(Colour::Green, "pass")),
        Outcome::Broken(broken) => {
            let line = broken.line.map_or(String::new(), |line| format!("{line}:"));
            let message = plain(&broken.message);
            format!("{}  {path}{name}\n  {path}:{line} {message}\n", paint.with(Colour::Red, "cannot be run"))
        }
        Outcome::Failed(failed) => {
            let FailedStep { line, step, verb, problems, logs } = failed;
            let mut text = format!("{}  {path}{name}\n", paint.with(Colour::Red, "FAIL"));
            text.push_str(&format!("  {path}:{line}: step {step} ({verb})\n"));
            text.extend(problems.iter().map(|problem| format!("    {}\n", plain(problem))));
            text.extend(logs.iter().map(timeline));
            text
        }
    }
}

fn timeline(log: &RunLog) -> String {
    let label = log.label.as_ref().map_or(String::new(), |label| format!(" ({})", plain(label)));
    let mut text = format!("  what happened in {}{label}:\n", log.run);
    for envelope in &log.events {
        for line in EventBody::of(log.run, envelope).lines().lines() {
            text.push_str(&format!("  {line}\n"));
        }
    }
    text
}

fn body(report: &Report) -> Value {
    let Report { path, name, outcome } = report;
    let path = path_text(path);
    match outcome {
        Outcome::Passed { steps } => {
            json!({ "file": path, "name": name, "outcome": "passed", "steps": steps })
        }
        Outcome::Broken(broken) => {
            let (line, message) = (broken.line, &broken.message);
            json!({ "file": path, "name": name, "outcome": "broken", "line": line, "message": message })
        }
        Outcome::Failed(FailedStep { line, step, verb, problems, logs }) => json!({
            "file": path,
            "name": name,
            "outcome": "failed",
            "line": line,
            "step": step,
            "verb": verb,
            "problems": problems,
            "runs": logs.iter().map(log_body).collect::<Vec<_>>(),
        }),
    }
}

fn log_body(log: &RunLog) -> Value {
    let event = |envelope: &standfast_core::event::Envelope| {
        json!({
            "seq": envelope.seq.0,
            "at": rfc3339(envelope.at),
            "actor": envelope.actor,
            "type": envelope.event.kind(),
            "event": envelope.event,
        })
    };
    let events: Vec<Value> = log.events.iter().map(event).collect();
    json!({ "run": log.run.to_string(), "label": log.label, "events": events })
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

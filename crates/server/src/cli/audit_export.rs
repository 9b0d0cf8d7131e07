//! `standfast audit export`: the logs of runs as JSON lines, verified as they are read.
//!
//! One line for each event, with the hash of the link that it is sealed in, so that whoever keeps the lines can compare
//! them with the database later. Only what verifies is printed; what does not is named. Behind the runs comes what
//! happened beside them: sessions that were deleted.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use standfast_core::event::Envelope;
use standfast_core::id::RunId;
use standfast_core::link::{Contents, Link};
use standfast_store::AuditEntry;
use standfast_store::audit::{ExportedLink, ExportedRun, Report};
use standfast_surfaces::http::rfc3339;

use super::audit::AuditTarget;
use super::export_record::TakenOut;
use super::plain::{lines, plain};

/// An event as it is exported.
#[derive(Serialize)]
struct Line {
    run: String,
    seq: u64,
    at: String,
    actor: String,
    #[serde(rename = "type")]
    kind: &'static str,
    data: Box<RawValue>,
    link: LinkBody,
}

/// A link whose contents were erased, or are sealed and cannot be opened here.
#[derive(Serialize)]
struct EmptyLine {
    run: String,
    seq: u64,
    at: String,
    actor: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    erased: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sealed: Option<bool>,
    link: LinkBody,
}

#[derive(Serialize)]
struct LinkBody {
    first: u64,
    count: u32,
    hash: String,
}

pub(super) fn run(what: &AuditTarget, only: Option<&str>, as_json: bool) -> ExitCode {
    let only = match only.map(str::parse::<RunId>).transpose() {
        Ok(only) => only,
        Err(error) => return could_not(&format!("--run: {error}"), as_json),
    };
    if let Err(error) = what.record(TakenOut::Events) {
        return could_not(&error, as_json);
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut written = Ok(());
    let result = what.export_what_opens(only, |exported| match print(&mut out, &exported) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            written = Err(error);
            ControlFlow::Break(())
        }
    });
    let (database, report) = match result {
        Ok(found) => found,
        Err(error) => return could_not(&error, as_json),
    };
    if only.is_none()
        && written.is_ok()
        && let Err(error) = what.entries(|tenant, entry| match print_entry(&mut out, tenant, &entry) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                written = Err(error);
                ControlFlow::Break(())
            }
        })
    {
        return could_not(&error, as_json);
    }
    match written.and_then(|()| out.flush()) {
        Ok(()) => {}
        // Whoever read it has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
        Err(error) => return could_not(&format!("cannot print the export: {error}"), as_json),
    }
    if let (Some(only), 0) = (only, report.runs) {
        return could_not(&format!("there is no run {only} in {database}"), as_json);
    }
    summary(&report, as_json);
    if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print(out: &mut impl Write, exported: &ExportedRun) -> io::Result<()> {
    let ExportedRun { run, links, wrong, is_locked, .. } = exported;
    for ExportedLink { link, events } in links {
        if matches!(link.contents, Contents::Erased { .. }) {
            writeln!(out, "{}", text(&without_contents(link, *is_locked)))?;
        }
        for envelope in events {
            writeln!(out, "{}", text(&line(*run, envelope, link)))?;
        }
    }
    if let Some(wrong) = wrong {
        writeln!(out, "{}", json!({ "run": run.to_string(), "problem": wrong }))?;
    }
    Ok(())
}

/// What happened beside the runs: a session that was deleted. `data` is the entry as it is stored.
fn print_entry(out: &mut impl Write, tenant: &str, entry: &AuditEntry) -> io::Result<()> {
    #[derive(Serialize)]
    struct AuditLine<'a> {
        audit: u64,
        tenant: &'a str,
        at: String,
        data: Box<RawValue>,
        hash: String,
    }
    let data = RawValue::from_string(entry.entry.clone()).unwrap_or_else(|_| RawValue::NULL.to_owned());
    let hash = entry.hash.to_string();
    writeln!(out, "{}", text(&AuditLine { audit: entry.no, tenant, at: rfc3339(entry.at), data, hash }))
}

fn line(run: RunId, envelope: &Envelope, link: &Link) -> Line {
    let stored = serde_json::to_string(&envelope.event).unwrap_or_default();
    let members = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(&stored).unwrap_or_default();
    Line {
        run: run.to_string(),
        seq: envelope.seq.0,
        at: rfc3339(envelope.at),
        actor: envelope.actor.to_string(),
        kind: envelope.event.kind(),
        data: members.into_values().next().unwrap_or_else(|| RawValue::NULL.to_owned()),
        link: body(link),
    }
}

fn without_contents(link: &Link, is_locked: bool) -> EmptyLine {
    EmptyLine {
        run: link.header.run.to_string(),
        seq: link.header.first.0,
        at: rfc3339(link.header.at),
        actor: link.header.actor.to_string(),
        erased: (!is_locked).then_some(true),
        sealed: is_locked.then_some(true),
        link: body(link),
    }
}

fn body(link: &Link) -> LinkBody {
    LinkBody { first: link.header.first.0, count: link.header.count, hash: link.hash.to_string() }
}

fn text(line: &impl Serialize) -> String {
    serde_json::to_string(line).unwrap_or_default()
}

/// On standard error: the lines are for whoever reads standard output.
fn summary(report: &Report, as_json: bool) {
    let Report { runs, links, events, erased, locked, findings, .. } = report;
    if as_json {
        let is_good = findings.is_empty();
        let body = json!({ "ok": is_good, "runs": runs, "links": links, "events": events, "erased": erased, "locked": locked,
            "findings": findings.iter().map(|finding| json!({ "run": finding.run, "what": finding.what })).collect::<Vec<_>>() });
        eprintln!("{body}");
        return;
    }
    for finding in findings {
        eprintln!("standfast: {}: {}", plain(&finding.run), plain(&finding.what));
    }
    if *locked > 0 {
        eprintln!(
            "the contents of {locked} runs are sealed and not in the export; pass the configuration that has their keys with \
             --config, or with --keys-from"
        );
    }
    eprintln!(
        "{runs} runs, {links} links, {events} events, {erased} erased; {} do not verify",
        findings.len()
    );
}

fn could_not(why: &str, as_json: bool) -> ExitCode {
    if as_json {
        eprintln!("{}", json!({ "error": why }))
    } else {
        eprintln!("standfast: {}", lines(why))
    }
    ExitCode::from(2)
}

//! `standfast audit bundle`: everything that an auditor needs in one file, with a program that verifies it.
//!
//! A ZIP archive with the chains, large values, definitions, entries of the audit, receipts and signed heads as JSON lines, and
//! `__main__.py`, which uses nothing but Python's standard library: `python3 FILE` verifies the file that it is in. Only what
//! verifies here is written; what does not is named and said in the manifest. How members are written is `archive.rs`,
//! what belongs in where only a part is wanted `window.rs`.

mod archive;
mod window;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use serde_json::json;
use standfast_core::event::{Envelope, Event};
use standfast_core::id::{HoldKey, RunId};
use standfast_core::link::{Contents, Link};
use standfast_core::receipt::{Receipt, receipt};
use standfast_engine::clock::Clock;
use standfast_store::audit::{ExportedRun, Report};
use standfast_surfaces::http::rfc3339;

use super::audit::{AuditTarget, SignedHeadsArgs};
use super::export_record::TakenOut;
use super::plain::{lines, plain};
use archive::Archive;
use window::{TimeRange, Window};

/// The program that verifies a bundle.
const VERIFIER: &str = include_str!("audit_bundle/verify.py");

const README: &str = "An audit bundle of Standfast.

  python3 THIS_FILE                     verifies it: Python 3.9 or newer, nothing else, no network
  python3 THIS_FILE --key audit-public.pem    the same, and signed heads count only by this key
  python3 THIS_FILE --show              verifies it and prints who decided what, when

To be sure of the program, compare it with the one that you have from elsewhere: `standfast audit verifier` prints it.
";

/// What a bundle is made of and where it goes.
#[derive(Debug, Args)]
pub(super) struct BundleArgs {
    #[command(flatten)]
    what: AuditTarget,
    #[command(flatten)]
    signed: SignedHeadsArgs,
    #[command(flatten)]
    range: TimeRange,
    /// The file to write. It must not be there yet.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct LinkLine<'a> {
    run: String,
    first: u64,
    count: u32,
    at: i64,
    actor: String,
    #[serde(flatten)]
    contents: ContentsLine<'a>,
    hash: String,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ContentsLine<'a> {
    Whole { salt: String, payload: &'a str },
    Erased { commitment: String },
}

#[derive(Serialize)]
struct ReceiptLine<'a> {
    run: String,
    hold: HoldKey,
    receipt: &'a Receipt,
}

/// What was written.
struct BundleSummary {
    report: Report,
    counts: BTreeMap<&'static str, u64>,
    heads: Option<u64>,
}

/// Prints the program that verifies a bundle.
pub(super) fn verifier() -> ExitCode {
    print!("{VERIFIER}");
    ExitCode::SUCCESS
}

pub(super) fn run(arguments: &BundleArgs) -> ExitCode {
    let BundleArgs { what, out, json: as_json, .. } = arguments;
    let unfinished = out.with_extension("part");
    let written = what.record(TakenOut::Bundle).and_then(|()| write(arguments, &unfinished));
    if written.is_err() {
        // What is not whole proves nothing.
        let _ = std::fs::remove_file(&unfinished);
    }
    match (written, as_json) {
        (Ok(bundled), true) => {
            let findings: Vec<_> =
                bundled.report.findings.iter().map(|one| json!({"run": one.run, "what": one.what})).collect();
            let ok = findings.is_empty();
            println!(
                "{}",
                json!({"ok": ok, "counts": bundled.counts, "heads": bundled.heads, "findings": findings})
            );
            if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        (Ok(bundled), false) => say(&bundled, out),
        (Err(why), true) => {
            println!("{}", json!({ "error": why }));
            ExitCode::from(2)
        }
        (Err(why), false) => {
            eprintln!("standfast: {}", lines(&why));
            ExitCode::from(2)
        }
    }
}

fn say(BundleSummary { report, counts, heads }: &BundleSummary, out: &Path) -> ExitCode {
    for finding in &report.findings {
        println!("{}: {}", plain(&finding.run), plain(&finding.what));
    }
    let counts: Vec<String> = counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
    println!("{}: {}", out.display(), counts.join(", "));
    match heads {
        Some(heads) => println!("{heads} signed heads"),
        None => println!(
            "no signed heads were given: the bundle proves what is in it, not that nothing is missing"
        ),
    }
    println!("verify it with `python3 {}`", out.display());
    if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn write(arguments: &BundleArgs, unfinished: &Path) -> Result<BundleSummary, String> {
    let BundleArgs { what, signed, range, out, .. } = arguments;
    if out.exists() {
        return Err(format!("{} is there already; name another file with --out", out.display()));
    }
    // Read first: what is appended meanwhile is in the database, not in the heads.
    let window = Window::new(range, signed.text(what)?)?;
    let failed = |error: io::Error| format!("cannot write {}: {error}", out.display());
    let _ = std::fs::remove_file(unfinished);
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(unfinished);
    let mut archive = Archive::new(file.map_err(failed)?);
    archive.member("__main__.py", VERIFIER.as_bytes()).map_err(failed)?;
    archive.member("README.txt", README.as_bytes()).map_err(failed)?;
    let mut counts = BTreeMap::new();
    let (report, beside) = links(what, &window, &mut archive, &mut counts)?;
    for (name, lines) in [("values.jsonl", &beside.values), ("receipts.jsonl", &beside.receipts)] {
        archive.member(name, lines).map_err(failed)?;
    }
    archive.member("definitions.jsonl", &definitions(what, &mut counts)?).map_err(failed)?;
    archive.member("entries.jsonl", &entries(what, &window, &mut counts)?).map_err(failed)?;
    if let Some(heads) = window.heads() {
        archive.member("heads.jsonl", heads.as_bytes()).map_err(failed)?;
    }
    let members: BTreeMap<&str, String> =
        archive.whole().map_err(failed)?.iter().map(|member| (member.name, member.sha256.clone())).collect();
    let findings: Vec<_> =
        report.findings.iter().map(|finding| json!({"run": finding.run, "what": finding.what})).collect();
    let manifest = json!({
        "format": 1,
        "made_at": rfc3339(Clock::system().now()),
        "made_by": format!("standfast {}", env!("CARGO_PKG_VERSION")),
        "counts": counts,
        "range": window.manifest(),
        "findings": findings,
        "sha256": members,
    });
    archive.member("manifest.json", format!("{manifest:#}\n").as_bytes()).map_err(failed)?;
    archive.end().map_err(failed)?;
    std::fs::rename(unfinished, out).map_err(failed)?;
    let heads = window.heads().map(|heads| heads.lines().count() as u64);
    Ok(BundleSummary { report, counts, heads })
}

/// What is written behind the chains.
#[derive(Default)]
struct BesideChains {
    values: Vec<u8>,
    receipts: Vec<u8>,
}

/// Every chain, with what else there is of its run.
fn links(
    what: &AuditTarget,
    window: &Window,
    archive: &mut Archive,
    counts: &mut BTreeMap<&'static str, u64>,
) -> Result<(Report, BesideChains), String> {
    let mut beside = BesideChains::default();
    let mut written = archive.begin("links.jsonl");
    let mut count = |what: &'static str, more: usize| *counts.entry(what).or_insert(0) += more as u64;
    let (_, report) = what.export(None, |exported| {
        let Some(ExportedRun { run, links, values, .. }) = window.part_of(exported) else {
            return ControlFlow::Continue(());
        };
        count("runs", 1);
        count("links", links.len());
        for exported in &links {
            if written.is_ok() {
                written = line(&exported.link).and_then(|line| archive.add(&line));
            }
        }
        for (digest, text) in &values {
            count("values", 1);
            let value = json!({"run": run.to_string(), "digest": digest.to_string(), "text": text});
            beside.values.extend(format!("{value}\n").into_bytes());
        }
        let is_whole = links.iter().all(|one| matches!(one.link.contents, Contents::Whole { .. }));
        let events: Vec<Envelope> = links.into_iter().flat_map(|one| one.events).collect();
        if is_whole {
            count("receipts", receipts(run, &events, &mut beside.receipts));
        }
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    written.map_err(|error| format!("cannot write the bundle: {error}"))?;
    Ok((report, beside))
}

fn line(link: &Link) -> io::Result<Vec<u8>> {
    let header = &link.header;
    let contents = match &link.contents {
        Contents::Whole { salt, payload } => ContentsLine::Whole {
            salt: salt.iter().map(|byte| format!("{byte:02x}")).collect(),
            payload: std::str::from_utf8(payload).map_err(io::Error::other)?,
        },
        Contents::Erased { commitment } => ContentsLine::Erased { commitment: commitment.to_string() },
    };
    let line = LinkLine {
        run: header.run.to_string(),
        first: header.first.0,
        count: header.count,
        at: header.at.0,
        actor: header.actor.text(),
        contents,
        hash: link.hash.to_string(),
    };
    let mut bytes = serde_json::to_vec(&line).map_err(io::Error::other)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The receipt of every hold of a run; how many.
fn receipts(run: RunId, events: &[Envelope], out: &mut Vec<u8>) -> usize {
    let mut count = 0;
    for envelope in events {
        let Event::HoldOpened(opened) = &envelope.event else { continue };
        let Some(receipt) = receipt(opened.hold, events) else { continue };
        let line = ReceiptLine { run: run.to_string(), hold: opened.hold, receipt: &receipt };
        out.extend(serde_json::to_vec(&line).unwrap_or_default());
        out.push(b'\n');
        count += 1;
    }
    count
}

fn definitions(what: &AuditTarget, counts: &mut BTreeMap<&'static str, u64>) -> Result<Vec<u8>, String> {
    let (mut out, mut count) = (Vec::new(), 0);
    what.definitions(|tenant, digest, bytes| {
        let text = String::from_utf8_lossy(bytes);
        let line = json!({"tenant": tenant, "digest": digest.to_string(), "text": text});
        out.extend(format!("{line}\n").into_bytes());
        count += 1;
    })?;
    counts.insert("definitions", count);
    Ok(out)
}

fn entries(
    what: &AuditTarget,
    window: &Window,
    counts: &mut BTreeMap<&'static str, u64>,
) -> Result<Vec<u8>, String> {
    let (mut out, mut count) = (Vec::new(), 0);
    what.entries(|tenant, entry| {
        if !window.has_entry(tenant, &entry) {
            return ControlFlow::Continue(());
        }
        let hash = entry.hash.to_string();
        let line =
            json!({"tenant": tenant, "no": entry.no, "at": entry.at.0, "entry": entry.entry, "hash": hash});
        out.extend(format!("{line}\n").into_bytes());
        count += 1;
        ControlFlow::Continue(())
    })?;
    counts.insert("entries", count);
    Ok(out)
}

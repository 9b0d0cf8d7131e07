//! `standfast audit verify --receipt FILE`: is what a receipt says what is stored, and is that covered by signed heads.
//!
//! A receipt is made anew from the verified log of its run and compared with the file, member by member, numbers digit by digit.
//! A receipt may be older than the log: then it is what the log said at some moment. Reads nothing of a server.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use standfast_core::event::Envelope;
use standfast_core::id::{CallNo, HoldId, RunId, Seq};
use standfast_core::json::RawJson;
use standfast_core::receipt::{receipt, receipt_of_call};
use standfast_store::audit::SignedCoverage;
use standfast_surfaces::api;

use super::audit::AuditTarget;
use super::plain::plain;

/// What a file says that it is about.
#[derive(Deserialize)]
struct ReceiptFile {
    run: String,
    /// The hold, in the receipt of one.
    id: Option<String>,
    /// The call, in the receipt of one.
    call: Option<u32>,
    receipt: Option<ReceiptEvents>,
    events: Option<Vec<u64>>,
}

#[derive(Deserialize)]
struct ReceiptEvents {
    events: Vec<u64>,
}

/// What a receipt is the receipt of.
#[derive(Debug, Clone, Copy)]
enum ReceiptOf {
    Hold(HoldId),
    Call(RunId, CallNo),
}

impl ReceiptOf {
    fn run(self) -> RunId {
        match self {
            ReceiptOf::Hold(hold) => hold.run,
            ReceiptOf::Call(run, _) => run,
        }
    }

    /// The same receipt, made of these events.
    fn made_of(self, events: &[Envelope]) -> Option<String> {
        match self {
            ReceiptOf::Hold(hold) => Some(api::receipt_text(hold, &receipt(hold.key, events)?)),
            ReceiptOf::Call(run, call) => {
                Some(api::call_receipt_text(run, call, &receipt_of_call(call, events)?))
            }
        }
    }
}

/// A receipt that was compared.
pub(super) struct CheckedReceipt {
    file: PathBuf,
    run: RunId,
    events: Vec<u64>,
    /// What is not as it is stored; none if all of it is.
    wrong: Option<String>,
    /// Whether more has happened since.
    is_older: bool,
    /// Whether signed heads cover all of it; none without heads.
    is_signed: Option<bool>,
}

impl CheckedReceipt {
    pub(super) fn is_good(&self) -> bool {
        self.wrong.is_none()
    }

    pub(super) fn line(&self) -> String {
        let CheckedReceipt { file, run, events, wrong, is_older, is_signed } = self;
        let file = plain(&file.display().to_string());
        if let Some(wrong) = wrong {
            return format!("{file}: this receipt is not what is stored: {}", plain(wrong));
        }
        let events: Vec<String> = events.iter().map(ToString::to_string).collect();
        let signed = match is_signed {
            Some(true) => "signed heads cover it",
            Some(false) => "it is newer than the newest signed head",
            None => "no signed heads were given",
        };
        let since = if *is_older { "; more has happened since" } else { "" };
        format!("{file}: as stored in events {} of {run}; {signed}{since}", events.join(", "))
    }

    pub(super) fn json(&self) -> serde_json::Value {
        json!({
            "file": self.file.display().to_string(), "ok": self.is_good(), "run": self.run.to_string(), "events": self.events,
            "wrong": self.wrong, "signed": self.is_signed, "older": self.is_older,
        })
    }
}

/// Compares a file with what is stored. What cannot be read at all is an error.
pub(super) fn check(
    file: &Path,
    what: &AuditTarget,
    covered: Option<&SignedCoverage>,
) -> Result<CheckedReceipt, String> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot read {name}: {error}"))?;
    let not_one = |why: &str| {
        format!(
            "{name} is not a receipt: {why}; take the answer of GET /api/v1/holds/HOLD/receipt or \
             /api/v1/runs/RUN/calls/NO/receipt as it is"
        )
    };
    let given = RawJson::parse(text.trim()).map_err(|bad| not_one(&bad.to_string()))?;
    let read: ReceiptFile = serde_json::from_str(given.text()).map_err(|bad| not_one(&bad.to_string()))?;
    let run: RunId = read.run.parse().map_err(|_| not_one("its `run` is no id of a run"))?;
    let of = match (&read.id, read.call) {
        (Some(id), None) => ReceiptOf::Hold(id.parse().map_err(|_| not_one("its `id` is no id of a hold"))?),
        (None, Some(call)) => ReceiptOf::Call(run, CallNo(call)),
        (_, _) => return Err(not_one("it names neither a hold nor a call")),
    };
    let events = read.receipt.map(|receipt| receipt.events).or(read.events).unwrap_or_default();
    let mut checked = CheckedReceipt {
        file: file.to_owned(),
        run: of.run(),
        events,
        wrong: None,
        is_older: false,
        is_signed: None,
    };
    let last = Seq(checked.events.iter().copied().max().unwrap_or(0));
    let (log, wrong) = log_of(of.run(), what)?;
    match compare(of, &log, last, &given) {
        Ok(is_older) => checked.is_older = is_older,
        Err(why) => checked.wrong = Some(why),
    }
    checked.wrong = wrong.or(checked.wrong);
    checked.is_signed =
        covered.map(|covered| covered.runs.get(&of.run()).is_some_and(|(seq, _)| *seq >= last));
    Ok(checked)
}

/// The events of a run, and what is wrong with its chain.
fn log_of(run: RunId, what: &AuditTarget) -> Result<(Vec<Envelope>, Option<String>), String> {
    let (mut log, mut wrong) = (Vec::new(), None);
    what.export(Some(run), |exported| {
        log.extend(exported.links.into_iter().flat_map(|link| link.events));
        wrong = exported.wrong.map(|why| format!("the chain of its run does not verify: {why}"));
        ControlFlow::Continue(())
    })?;
    Ok((log, wrong))
}

/// Whether the log says the same, now or at a moment since the receipt's last event; whether it was only at such a moment.
fn compare(of: ReceiptOf, log: &[Envelope], last: Seq, given: &RawJson) -> Result<bool, String> {
    if log.is_empty() {
        return Err(format!(
            "{} has no events here: it is gone, was erased, or is of another database",
            of.run()
        ));
    }
    let differs = |log: &[Envelope]| match of.made_of(log) {
        Some(stored) => difference(given.text(), &stored, ""),
        None => Some("its run has no such hold or call".to_owned()),
    };
    let Some(now) = differs(log) else { return Ok(false) };
    let from = log.partition_point(|envelope| envelope.seq < last).saturating_add(1);
    let was = (from..log.len()).any(|end| log.get(..end).is_some_and(|log| differs(log).is_none()));
    if was { Ok(true) } else { Err(now) }
}

/// Where two JSON texts first differ; numbers are compared as they are written.
fn difference(given: &str, stored: &str, at: &str) -> Option<String> {
    let here = || Some(if at.is_empty() { "all of it".to_owned() } else { format!("`{at}`") });
    let members = |text: &str| serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(text).ok();
    let items = |text: &str| serde_json::from_str::<Vec<Box<RawValue>>>(text).ok();
    match (members(given), members(stored)) {
        (Some(given), Some(stored)) => {
            let below = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
            let unknown = given.keys().find(|name| !stored.contains_key(*name));
            if let Some(name) = unknown {
                return Some(format!("`{}`", below(name)));
            }
            return stored.iter().find_map(|(name, stored)| match given.get(name) {
                Some(given) => difference(given.get(), stored.get(), &below(name)),
                None => Some(format!("`{}`", below(name))),
            });
        }
        (None, None) => {}
        (_, _) => return here(),
    }
    match (items(given), items(stored)) {
        (Some(given), Some(stored)) if given.len() == stored.len() => {
            let mut pairs = given.iter().zip(&stored).enumerate();
            return pairs.find_map(|(no, (given, stored))| {
                difference(given.get(), stored.get(), &format!("{at}[{no}]"))
            });
        }
        (None, None) => {}
        (_, _) => return here(),
    }
    let text = |text: &str| serde_json::from_str::<String>(text).ok();
    match (text(given), text(stored)) {
        (Some(given), Some(stored)) if given == stored => None,
        (None, None) if given.trim() == stored.trim() => None,
        (_, _) => here(),
    }
}

#[cfg(test)]
mod tests {
    use super::difference;

    /// Order and spaces mean nothing; every digit does.
    #[test]
    fn the_first_difference_is_named() {
        let stored = r#"{"run":"r","receipt":{"events":[1,2],"asked":{"arguments":{"n":9007199254740993}}},"text":"é"}"#;
        let given = "{\"text\":\"\\u00e9\", \"receipt\":{\"asked\":{\"arguments\":{\"n\": 9007199254740993}},\"events\":[ 1,2 ]}, \"run\":\"r\"}";
        assert_eq!(difference(given, stored, ""), None);
        for (from, to, at) in [
            ("9007199254740993", "9007199254740992", "`receipt.asked.arguments.n`"),
            ("[ 1,2 ]", "[1]", "`receipt.events`"),
            ("[ 1,2 ]", "[1,3]", "`receipt.events[1]`"),
            ("\"r\"", "\"s\"", "`run`"),
            ("\"run\"", "\"more\":1,\"run\"", "`more`"),
            ("\"text\":\"\\u00e9\",", "", "`text`"),
        ] {
            assert_eq!(difference(&given.replacen(from, to, 1), stored, "").as_deref(), Some(at), "{to}");
        }
    }
}

//! What must hold after any fault, checked from outside: the log, the lines that tools left, and what clients were told.
//!
//! The server is dead when this looks; the file is read as it was left. Each violation begins with its invariant
//! (I1 acknowledged is durable, I2 one decision, I3 one start for each approval, I4 what was decided is what ran, I5 one
//! result for each call, I6 nothing is stuck, I7 no gap, I8 the chains verify).

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use standfast_core::event::{Envelope, Outcome};
use standfast_core::hold::Resolution;
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::run::{Status, status};
use standfast_store::conformance::faults::open_any;
use standfast_store::conformance::support::{block_on, runs_by};
use standfast_store::postgres::{self, PostgresOptions, PostgresStore};
use standfast_store::{RunFilter, RunQuery, Store};

use crate::facts::{Facts, wrong_effects};
use crate::server::panics;
use crate::story::{Acked, lines};

/// Everything that is wrong with what a dead server left behind.
pub(crate) fn check(data: &Path, name: &str, acked: &[Acked]) -> Vec<String> {
    let mut wrong = audit(&data.join(name));
    match open_any(&data.join(name)) {
        Ok(store) => wrong.extend(check_store(&*store, data, acked)),
        Err(error) => wrong.push(format!("I1: the file cannot be opened: {error}")),
    }
    wrong
}

/// Everything that is wrong with what dead servers left in the database that they shared.
pub(crate) fn check_postgres(url: &str, data: &Path, acked: &[Acked]) -> Vec<String> {
    let options = PostgresOptions::at(url);
    let mut wrong = match postgres::verify(&options, |_| {}) {
        Ok(report) => report.findings.iter().map(|finding| format!("I8: {finding:?}")).collect(),
        Err(error) => vec![format!("I8: {error}")],
    };
    match PostgresStore::open(&options) {
        Ok(store) => wrong.extend(check_store(&store, data, acked)),
        Err(error) => wrong.push(format!("I1: the database cannot be opened: {error}")),
    }
    wrong
}

fn check_store(store: &dyn Store, data: &Path, acked: &[Acked]) -> Vec<String> {
    let mut wrong = panics(data);
    let mut logs = HashMap::new();
    for (run, log) in logs_of(store, &mut wrong) {
        let facts = Facts::of(&log);
        wrong.extend(facts.wrong.iter().map(|why| format!("{why} in {run}")));
        logs.insert(run, facts);
    }
    wrong.extend(acked.iter().filter_map(|acked| lost(acked, &logs)));
    wrong.extend(wrong_effects(lines(data), &logs));
    wrong
}

/// `standfast audit verify`, as an operator runs it.
fn audit(place: &Path) -> Vec<String> {
    let output = Command::new(crate::standfast()).args(["audit", "verify"]).arg(place).output();
    match output {
        Ok(output) if output.status.success() => Vec::new(),
        Ok(output) => vec![format!("I8: {}", String::from_utf8_lossy(&output.stdout))],
        Err(error) => vec![format!("I8: {error}")],
    }
}

/// The events of every run.
pub(crate) fn logs_of(store: &dyn Store, wrong: &mut Vec<String>) -> Vec<(RunId, Vec<Envelope>)> {
    let (mut cursor, mut logs) = (None, Vec::new());
    loop {
        let query = RunQuery { cursor, limit: 500, ..runs_by(RunFilter::All) };
        let page = block_on(store.list_runs(query)).unwrap();
        for row in &page.items {
            let run = row.run.facts.id;
            match status(&row.run) {
                Status::Held(_) | Status::Ended(_) => {}
                other @ (Status::Queued | Status::Claimed | Status::Working | Status::Retrying(_)) => {
                    wrong.push(format!("I6: {run} is {other:?}, neither over nor waiting"));
                }
            }
            let links = block_on(store.links(run, Seq(0), usize::MAX)).unwrap();
            logs.push((run, links.iter().flat_map(|link| link.events().unwrap()).collect()));
        }
        match page.next {
            Some(next) => cursor = Some(next),
            None => return logs,
        }
    }
}

/// Whether something that was acknowledged is not there.
fn lost(acked: &Acked, logs: &HashMap<RunId, Facts>) -> Option<String> {
    let facts = |run: &str| run.parse().ok().and_then(|run: RunId| logs.get(&run));
    let missing = || Some(format!("I1: acknowledged and not there: {acked:?}"));
    match acked {
        Acked::Started { run } => facts(run).is_none().then(missing)?,
        Acked::Canceled { run } => match facts(run).and_then(|facts| facts.outcome) {
            Some(Outcome::Canceled) => None,
            Some(Outcome::Completed | Outcome::Failed | Outcome::Rejected) | None => missing(),
        },
        Acked::Superseded { run } => {
            if facts(run).is_some_and(|facts| facts.superseded) {
                None
            } else {
                missing()
            }
        }
        Acked::Decided { run, hold, key, word } => {
            let hold: HoldId = hold.parse().ok()?;
            let Some((resolution, with)) = facts(run).and_then(|facts| facts.resolved.get(&hold.key)) else {
                return missing();
            };
            let recorded = match resolution {
                Resolution::Approve { .. } => "approve",
                Resolution::Deny { .. } => "deny",
                Resolution::Answer { .. } => "answer",
                Resolution::Fail { .. } => "fail",
                Resolution::Expire | Resolution::Withdraw | Resolution::Supersede => "nobody's",
            };
            let is_kept = recorded == *word && with.as_deref().is_none_or(|with| with == key);
            (!is_kept)
                .then(|| format!("I2: acknowledged {word} with {key}, recorded {recorded} with {with:?}"))
        }
    }
}

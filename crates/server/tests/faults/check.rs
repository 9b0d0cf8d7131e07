//! What must hold after any fault, checked from outside: the log, the lines that tools left, and what clients were told.
//!
//! The server is dead when this looks; the file is read as it was left. Each violation begins with its invariant
//! (I1 acknowledged is durable, I2 one decision, I3 one start for each approval, I4 what was decided is what ran, I5 one
//! result for each call, I6 nothing is stuck, I7 no gap, I8 the chains verify).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::process::Command;

use holdpoint_core::body::Body;
use holdpoint_core::event::{AfterOrphan, Envelope, Event, Outcome};
use holdpoint_core::hold::{HoldKind, Resolution};
use holdpoint_core::id::{CallNo, HoldId, HoldKey, RunId, Seq};
use holdpoint_core::message::Replay;
use holdpoint_core::run::{Status, status};
use holdpoint_core::transcript::{Entry, transcript};
use holdpoint_store::conformance::faults::open;
use holdpoint_store::conformance::support::{block_on, runs_by};
use holdpoint_store::{RunFilter, RunQuery, Store};

use crate::server::panics;
use crate::story::{Acked, lines};

/// Everything that is wrong with what a dead server left behind.
pub(crate) fn check(data: &Path, acked: &[Acked]) -> Vec<String> {
    let mut wrong = audit(data);
    wrong.extend(panics(data));
    let store = match open(&data.join("holdpoint.db")) {
        Ok(store) => store,
        Err(error) => return vec![format!("I1: the file cannot be opened: {error}")],
    };
    let mut logs = HashMap::new();
    for (run, log) in logs_of(&*store, &mut wrong) {
        let facts = Facts::of(&log);
        wrong.extend(facts.wrong.iter().map(|why| format!("{why} in {run}")));
        logs.insert(run, facts);
    }
    wrong.extend(acked.iter().filter_map(|acked| lost(acked, &logs)));
    wrong.extend(wrong_effects(data, &logs));
    wrong
}

/// `holdpoint audit verify`, as an operator runs it.
fn audit(data: &Path) -> Vec<String> {
    let output =
        Command::new(crate::HOLDPOINT).args(["audit", "verify"]).arg(data.join("holdpoint.db")).output();
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

/// What a call is, and what it was allowed.
#[derive(Default)]
struct Call {
    arguments: String,
    is_repeatable: bool,
    needs_approval: bool,
    /// Approvals, and times that a person said to run it again.
    allowed: usize,
    starts: HashSet<u32>,
    ends: HashSet<u32>,
}

/// What the log of one run says.
struct Facts {
    calls: BTreeMap<CallNo, Call>,
    opened: HashMap<HoldKey, HoldKind>,
    resolved: HashMap<HoldKey, (Resolution, Option<String>)>,
    outcome: Option<Outcome>,
    superseded: bool,
    wrong: Vec<String>,
}

impl Facts {
    fn of(log: &[Envelope]) -> Facts {
        let mut facts = Facts {
            calls: BTreeMap::new(),
            opened: HashMap::new(),
            resolved: HashMap::new(),
            outcome: None,
            superseded: false,
            wrong: Vec::new(),
        };
        for (expected, envelope) in (1..).zip(log) {
            if envelope.seq != Seq(expected) {
                facts.wrong.push(format!("I7: event {expected} has the number {}", envelope.seq));
            }
            facts.read(&envelope.event);
        }
        facts.judge(log);
        facts
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "only what the invariants speak of")]
    fn read(&mut self, event: &Event) {
        match event {
            Event::ModelReplied(replied) => {
                for call in &replied.reply.calls {
                    let arguments = text(&call.arguments);
                    let is_repeatable = call.replay == Replay::Idempotent;
                    self.calls.insert(call.no, Call { arguments, is_repeatable, ..Call::default() });
                }
            }
            Event::HoldOpened(opened) => {
                if self.opened.insert(opened.hold, opened.kind).is_some() {
                    self.wrong.push("I2: a hold was opened twice".into());
                }
                let call = self.calls.entry(opened.hold.call).or_default();
                match opened.kind {
                    HoldKind::Approval => call.needs_approval = true,
                    // The start led to this hold: it has its outcome.
                    HoldKind::External | HoldKind::Input | HoldKind::Auth => {
                        call.ends.extend(call.starts.iter().copied());
                    }
                    HoldKind::Recovery => {}
                }
            }
            Event::HoldResolved(resolved) => self.resolve(resolved),
            Event::CallStarted(started) => {
                let call = self.calls.entry(started.call).or_default();
                let may = call.allowed + usize::from(!call.needs_approval);
                if !call.starts.insert(started.attempt) {
                    self.wrong.push(format!("I3: attempt {} started twice", started.attempt));
                }
                let given_back = call.starts.len() - call.starts.difference(&call.ends).count();
                if !call.is_repeatable && call.starts.len() > may + given_back {
                    self.wrong.push(format!("I3: {} starts, {may} allowed", call.starts.len()));
                }
            }
            Event::CallFinished(finished) => self.end(finished.call, finished.attempt),
            Event::CallReturned(returned) => self.end(returned.call, returned.attempt),
            Event::CallOrphaned(orphaned) => {
                self.end(orphaned.call, orphaned.attempt);
                let call = self.calls.entry(orphaned.call).or_default();
                match (orphaned.then, call.is_repeatable, self.outcome) {
                    (AfterOrphan::Retry, false, _) => {
                        self.wrong.push("I3: a call that must not be repeated is tried again".into());
                    }
                    (AfterOrphan::Unknown, _, None) => {
                        self.wrong.push("I3: nobody is asked about an unknown outcome".into());
                    }
                    (AfterOrphan::Retry | AfterOrphan::Ask | AfterOrphan::Unknown, _, _) => {}
                }
            }
            Event::RunEnded(ended) => {
                let before = self.outcome.replace(ended.outcome);
                self.wrong.extend(before.map(|_| "I6: it ended twice".to_owned()));
            }
            _ => {}
        }
    }

    fn resolve(&mut self, resolved: &holdpoint_core::event::HoldResolved) {
        let decision = (resolved.resolution.clone(), resolved.idempotency_key.clone());
        if self.resolved.insert(resolved.hold, decision).is_some() {
            self.wrong.push("I2: a hold has two decisions".into());
        }
        if !self.opened.contains_key(&resolved.hold) {
            self.wrong.push("I2: a decision on a hold that was never opened".into());
        }
        let call = self.calls.entry(resolved.hold.call).or_default();
        if let Resolution::Approve { edited } = &resolved.resolution {
            call.allowed += 1;
            if let Some(edited) = edited {
                call.arguments = text(&edited.arguments);
            }
        }
        self.superseded |= matches!(resolved.resolution, Resolution::Supersede);
    }

    fn end(&mut self, call: CallNo, attempt: u32) {
        self.calls.entry(call).or_default().ends.insert(attempt);
    }

    /// What must hold at the end of the log.
    fn judge(&mut self, log: &[Envelope]) {
        let open = self.opened.keys().filter(|hold| !self.resolved.contains_key(hold)).count();
        match (self.outcome, open) {
            (Some(_), 1..) => self.wrong.push(format!("I6: {open} holds are open on a run that is over")),
            (None, 0) => self.wrong.push("I6: it waits for nothing".into()),
            (Some(_), 0) | (None, 1..) => {}
        }
        for (no, call) in &self.calls {
            let unended = call.starts.difference(&call.ends).count();
            if unended > 0 {
                self.wrong.push(format!("I3: call {no} was started and nothing says what became of it"));
            }
        }
        if self.outcome.is_none() {
            return;
        }
        let entries = transcript(log);
        for no in self.calls.keys() {
            let results =
                entries.iter().filter(|entry| matches!(entry, Entry::Tool(result) if result.call == *no));
            let count = results.count();
            if count != 1 {
                self.wrong.push(format!("I5: call {no} has {count} results"));
            }
        }
    }
}

fn text(body: &Body) -> String {
    match body {
        Body::Text(text) => text.clone(),
        Body::Json(json) => json.text().to_owned(),
        Body::Blob(_) => String::new(),
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
        Acked::Superseded { run } => match facts(run).is_some_and(|facts| facts.superseded) {
            true => None,
            false => missing(),
        },
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

/// What the lines of the tools say against the logs.
fn wrong_effects(data: &Path, logs: &HashMap<RunId, Facts>) -> Vec<String> {
    let (mut wrong, mut tokens) = (Vec::new(), HashSet::new());
    let mut of_call: HashMap<(RunId, CallNo), usize> = HashMap::new();
    for (token, arguments) in lines(data) {
        let mut parts = token.split('/');
        let mut part = || parts.next().unwrap_or_default();
        let (Ok(run), Ok(no), Ok(attempt)) = (part().parse::<RunId>(), part().parse::<u32>(), part().parse())
        else {
            wrong.push(format!("I4: a line that no start explains: {token}"));
            continue;
        };
        if !tokens.insert(token.clone()) {
            wrong.push(format!("I3: {token} had its effect twice"));
        }
        let Some(call) = logs.get(&run).and_then(|facts| facts.calls.get(&CallNo(no))) else {
            wrong.push(format!("I4: {token} ran, and its log does not know it"));
            continue;
        };
        if !call.starts.contains(&attempt) {
            wrong.push(format!("I4: {token} ran without a recorded start"));
        }
        if call.arguments != arguments {
            wrong.push(format!("I4: {token} ran with {arguments}, decided was {}", call.arguments));
        }
        let effects = of_call.entry((run, CallNo(no))).or_default();
        *effects += 1;
        let allowed = call.allowed + usize::from(!call.needs_approval);
        if !call.is_repeatable && *effects > allowed {
            wrong.push(format!("I3: {token} is effect {effects} of a call that was allowed {allowed} times"));
        }
    }
    wrong
}

//! What the log of a run says, what must hold of it, and what tools did that it does not explain.
//!
//! Shared by the faults of real servers and by the simulation. Each violation begins with its invariant, see `check.rs`.

use std::collections::{BTreeMap, HashMap, HashSet};

use standfast_core::body::Body;
use standfast_core::event::{AfterOrphan, Envelope, Event, Outcome};
use standfast_core::hold::{HoldKind, Resolution};
use standfast_core::id::{CallNo, HoldKey, RunId, Seq};
use standfast_core::message::Replay;
use standfast_core::transcript::{Entry, transcript};

/// What a call is, and what it was allowed.
#[derive(Default)]
pub(crate) struct Call {
    arguments: String,
    is_repeatable: bool,
    needs_approval: bool,
    /// Approvals, and times that a person said to run it again.
    allowed: usize,
    pub(crate) starts: HashSet<u32>,
    ends: HashSet<u32>,
    /// Starts that were given back before anything happened.
    returned: HashSet<u32>,
}

/// What the log of one run says.
pub(crate) struct Facts {
    pub(crate) calls: BTreeMap<CallNo, Call>,
    opened: HashMap<HoldKey, HoldKind>,
    pub(crate) resolved: HashMap<HoldKey, (Resolution, Option<String>)>,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) superseded: bool,
    pub(crate) wrong: Vec<String>,
}

impl Facts {
    pub(crate) fn of(log: &[Envelope]) -> Facts {
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
                if !call.is_repeatable && call.starts.len() > may + call.returned.len() {
                    self.wrong.push(format!("I3: {} starts, {may} allowed", call.starts.len()));
                }
            }
            Event::CallFinished(finished) => self.end(finished.call, finished.attempt),
            Event::CallReturned(returned) => {
                self.end(returned.call, returned.attempt);
                self.calls.entry(returned.call).or_default().returned.insert(returned.attempt);
            }
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

    fn resolve(&mut self, resolved: &standfast_core::event::HoldResolved) {
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
            (Some(_), 1..) => self.wrong.push(format!("I6: {open} holds are open on a run that has ended")),
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

pub(crate) fn text(body: &Body) -> String {
    match body {
        Body::Text(text) => text.clone(),
        Body::Json(json) => json.text().to_owned(),
        Body::Blob(_) => String::new(),
    }
}

/// What the lines of the tools say against the logs.
pub(crate) fn wrong_effects(
    lines: impl IntoIterator<Item = (String, String)>,
    logs: &HashMap<RunId, Facts>,
) -> Vec<String> {
    let (mut wrong, mut tokens) = (Vec::new(), HashSet::new());
    let mut of_call: HashMap<(RunId, CallNo), usize> = HashMap::new();
    for (token, arguments) in lines {
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

//! Plays one case on a stage of its own, as people and machines would: requests over HTTP, `kill -9`, a store taken away.
//!
//! Every case ends with what `judge.rs` says of what was seen.

use std::sync::Barrier;

use serde_json::{Value, json};
use standfast_core::time::Millis;
use standfast_engine::auth::KeyFacts;

use super::case::Case;
use super::choose::HeldCall;
use super::judge::{self, Approvals, HoldSeen};
use super::rehearsal::ToolConduct;
use super::stage::{Deadline, Node, Person, Reply, Setup, Stage};
use super::stand_in::{Start, starts_of};
use super::{AgentPart, rehearsal::Rehearsal};

/// How long one case may take.
const CASE_WAIT: Millis = Millis::seconds(40);

/// How long a decision may take where silence is what is played.
const SHORT: Millis = Millis(1_500);

/// What the file says is too short for people who are killed in between.
const TOO_SHORT: Millis = Millis::seconds(120);

/// How many people approve at once, each from two clients.
const MOST_AT_ONCE: usize = 4;

/// Why a case did not pass.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The promise was not kept, or could not be looked at.
    Wrong(String),
    /// It turned out that it does not apply.
    Unfit(String),
}

impl From<String> for Trouble {
    fn from(why: String) -> Trouble {
        Trouble::Wrong(why)
    }
}

/// What was seen.
pub(super) type PlayResult = Result<String, Trouble>;

/// Plays a case.
pub(super) fn play(
    case: Case,
    setup: &Setup,
    part: &AgentPart<'_>,
    call: &HeldCall,
    cast: &[KeyFacts],
) -> PlayResult {
    let bound = call.holds.timeout;
    let timeout = match case {
        Case::Expiry => bound.map(|_| SHORT),
        _ => bound.filter(|bound| *bound < TOO_SHORT).map(|_| TOO_SHORT),
    };
    let rehearsal = Rehearsal { timeout, ..part.rehearsal(case) };
    let stage = Stage::set(setup, rehearsal, cast)?;
    let scene =
        Scene { agent: &part.plan.name, call, deadline: Deadline::after(&setup.clock, CASE_WAIT), stage };
    match case {
        Case::KillWhileHeld => scene.kill_while_held(),
        Case::KillInTool => scene.kill_in_tool(),
        Case::DoubleApproval => scene.double_approval(),
        Case::StaleDigest => scene.stale_digest(),
        Case::EditedArguments => scene.edited_arguments(),
        Case::Denied => scene.denied(),
        Case::Expiry => scene.expiry(),
        Case::LostStore => scene.lost_store(),
        Case::TwoNodes => scene.two_nodes(),
    }
}

struct Scene<'a> {
    agent: &'a str,
    call: &'a HeldCall,
    deadline: Deadline,
    stage: Stage<'a>,
}

/// What a decision says beside which hold.
enum Decision<'a> {
    Approve,
    Edit(&'a str),
    Deny,
    /// The call happened, and this is its result.
    Happened,
}

impl Scene<'_> {
    fn kill_while_held(&self) -> PlayResult {
        let node = self.stage.serve(ToolConduct::Returns)?;
        let (run, hold) = self.begin(&node)?;
        let before = self.hold(&node, &hold)?;
        node.kill();
        let node = self.stage.serve(ToolConduct::Returns)?;
        let after = self.hold(&node, &hold)?;
        let kept = judge::same_hold(&before, &after)?;
        self.decide(&node, &hold, &Decision::Approve)?;
        let status = self.rest(&node, &run)?;
        Ok(judge::all([Ok(kept), self.ran_once(&run), judge::completed(&status)])?)
    }

    fn kill_in_tool(&self) -> PlayResult {
        let node = self.stage.serve(ToolConduct::GoesOn)?;
        let (run, hold) = self.begin(&node)?;
        self.decide(&node, &hold, &Decision::Approve)?;
        self.deadline.until("the start of the tool", || Ok(self.starts(&run)?.into_iter().next()))?;
        node.kill();
        let node = self.stage.serve(ToolConduct::Returns)?;
        let asked = self.deadline.until("a question about the unknown outcome", || {
            let shown = self.run(&node, &run)?;
            match shown.text("/status").as_str() {
                "held" => Ok(Some(shown.text("/holds/0/id"))),
                "working" | "queued" | "claimed" | "retrying" => Ok(None),
                other => Err(format!("the run is {other}, and nobody was asked what became of the call")),
            }
        })?;
        let question = self.hold(&node, &asked)?;
        let (asks, once) = (judge::asks_person(&question)?, self.ran_once(&run)?);
        self.decide(&node, &asked, &Decision::Happened)?;
        let status = self.rest(&node, &run)?;
        Ok(judge::all([
            Ok(asks),
            Ok(once),
            self.ran_once(&run).map(|_| "no second one".to_owned()),
            judge::completed(&status),
        ])?)
    }

    fn double_approval(&self) -> PlayResult {
        let node = self.stage.serve(ToolConduct::Returns)?;
        let (run, hold) = self.begin(&node)?;
        let deciders = self.deciders(&node, &hold)?;
        let seen = self.hold(&node, &hold)?;
        let clients: Vec<&Person> =
            deciders.into_iter().take(MOST_AT_ONCE).flat_map(|person| [person, person]).collect();
        let start = Barrier::new(clients.len());
        let body = body(&seen, &Decision::Approve);
        let replies: Vec<Result<Reply, String>> = std::thread::scope(|scope| {
            let ask = |person| {
                let (start, node, body, path) = (&start, &node, &body, resolve_path(&hold));
                scope.spawn(move || {
                    start.wait();
                    node.post(person, &path, body)
                })
            };
            let asking: Vec<_> = clients.iter().map(|person| ask(*person)).collect();
            let lost = |_| Err("a client ended".to_owned());
            asking.into_iter().map(|client| client.join().unwrap_or_else(lost)).collect()
        });
        let decided = |reply: &&Reply| reply.is_success() && reply.text("/outcome") == "decided";
        let mut told_decided = replies.iter().flatten().filter(decided).count();
        if self.hold(&node, &hold)?.state == "open" {
            // More have to agree than those who came at once.
            self.decide(&node, &hold, &Decision::Approve)?;
            told_decided += 1;
        }
        let status = self.rest(&node, &run)?;
        let approvals =
            Approvals { sent: clients.len(), told_decided, in_log: self.decisions(&node, &run, &hold)? };
        Ok(judge::all([judge::one_decision(approvals), self.ran_once(&run), judge::completed(&status)])?)
    }

    fn stale_digest(&self) -> PlayResult {
        let node = self.stage.serve(ToolConduct::Returns)?;
        let (run, hold) = self.begin(&node)?;
        let deciders = self.deciders(&node, &hold)?;
        let seen = self.hold(&node, &hold)?;
        let stale = HoldSeen { digest: other_digest(&seen.digest), ..seen };
        let Some(person) = deciders.first() else { return Err(nobody()) };
        let reply = node.post(person, &resolve_path(&hold), &body(&stale, &Decision::Approve))?;
        let after = self.hold(&node, &hold)?;
        let refused = judge::refused_stale(reply.status, &reply.text("/type"), &after);
        Ok(judge::all([refused, judge::never_ran(&self.starts(&run)?)])?)
    }

    fn edited_arguments(&self) -> PlayResult {
        let edited = self.call.edited.as_deref().unwrap_or_default();
        let node = self.stage.serve(ToolConduct::Returns)?;
        let (run, hold) = self.begin(&node)?;
        self.decide(&node, &hold, &Decision::Edit(edited))?;
        let mut status = self.rest(&node, &run)?;
        if status == "held" {
            // Other rules are about the new arguments: they ask, too.
            let next = self.run(&node, &run)?.text("/holds/0/id");
            self.decide(&node, &next, &Decision::Approve)?;
            status = self.rest(&node, &run)?;
        }
        let ran = judge::ran_once(&self.starts(&run)?, edited);
        let ran = ran.map(|_| "one start, with the edited arguments byte for byte".to_owned());
        Ok(judge::all([ran, judge::completed(&status)])?)
    }

    fn denied(&self) -> PlayResult {
        let node = self.stage.serve(ToolConduct::Returns)?;
        let (run, hold) = self.begin(&node)?;
        self.decide(&node, &hold, &Decision::Deny)?;
        let status = self.rest(&node, &run)?;
        let after = judge::after_denial(self.call.holds.on_deny, &status);
        Ok(judge::all([judge::never_ran(&self.starts(&run)?), after])?)
    }

    fn expiry(&self) -> PlayResult {
        let node = self.stage.serve(ToolConduct::Returns)?;
        let (run, hold) = self.begin(&node)?;
        self.deadline.until("the end of the time for a decision", || {
            let seen = self.hold(&node, &hold)?;
            Ok((seen.state != "open" || seen.has_expired).then_some(()))
        })?;
        let status = self.rest(&node, &run)?;
        let holds = &self.call.holds;
        let after = judge::after_silence(holds.on_timeout, holds.on_deny, &status, &self.hold(&node, &hold)?);
        Ok(judge::all([judge::never_ran(&self.starts(&run)?), after])?)
    }

    fn lost_store(&self) -> PlayResult {
        let node = self.stage.serve(ToolConduct::Returns)?;
        let (run, hold) = self.begin(&node)?;
        let deciders = self.deciders(&node, &hold)?;
        let seen = self.hold(&node, &hold)?;
        let Some(person) = deciders.first() else { return Err(nobody()) };
        self.stage.lose_store()?;
        let approved = node.post(person, &resolve_path(&hold), &body(&seen, &Decision::Approve));
        let begun = node.post(self.stage.starter()?, &self.runs_path(), &start_body("accepted"));
        let status = |reply: Result<Reply, String>| reply.ok().map(|reply| reply.status);
        let asked = [("an approval", status(approved)), ("a new run", status(begun))];
        Ok(judge::all([judge::none_acknowledged(&asked), judge::never_ran(&self.starts(&run)?)])?)
    }

    fn two_nodes(&self) -> PlayResult {
        let nodes = [self.stage.serve(ToolConduct::Returns)?, self.stage.serve(ToolConduct::Returns)?];
        let [first, second] = &nodes;
        let (run, hold) = self.begin(first)?;
        self.decide(second, &hold, &Decision::Approve)?;
        let there = self.rest(second, &run)?;
        let here = self.rest(first, &run)?;
        if here != there {
            return Err(Trouble::Wrong(format!("one node says that the run is {here}, the other {there}")));
        }
        let decided = Ok("begun on one node, decided on the other".to_owned());
        Ok(judge::all([decided, self.ran_once(&run), judge::completed(&here)])?)
    }

    fn runs_path(&self) -> String {
        format!("/agents/{}/runs", self.agent)
    }

    /// Starts a run that is held; its id and its hold's.
    fn begin(&self, node: &Node) -> Result<(String, String), Trouble> {
        let reply = node.post(self.stage.starter()?, &self.runs_path(), &start_body("settled"))?;
        let reply = reply.expect("a new run")?;
        let (status, hold) = (reply.text("/status"), reply.text("/holds/0/id"));
        if status != "held" || hold.is_empty() {
            let why = reply.text("/reason");
            let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
            return Err(Trouble::Wrong(format!("the call should be held, and the run is {status}{why}")));
        }
        Ok((reply.text("/id"), hold))
    }

    fn run(&self, node: &Node, run: &str) -> Result<Reply, String> {
        node.get(self.stage.starter()?, &format!("/runs/{run}"))?.expect("a run")
    }

    /// Waits until a run ends or is held; where it stands then.
    fn rest(&self, node: &Node, run: &str) -> Result<String, String> {
        self.deadline.until("the end of the run", || {
            let status = self.run(node, run)?.text("/status");
            let is_at_work = matches!(status.as_str(), "working" | "queued" | "claimed" | "retrying");
            Ok((!is_at_work).then_some(status))
        })
    }

    /// A hold, as whoever may see it sees it.
    fn hold(&self, node: &Node, hold: &str) -> Result<HoldSeen, String> {
        let mut said = String::new();
        for person in &self.stage.people {
            let reply = node.get(person, &format!("/holds/{hold}"))?;
            if reply.is_success() {
                return Ok(seen(&reply));
            }
            said = format!("{}: {}", reply.status, reply.text("/detail"));
        }
        Err(format!("nobody can see the hold ({said})"))
    }

    /// Who may decide a hold.
    fn deciders(&self, node: &Node, hold: &str) -> Result<Vec<&Person>, Trouble> {
        let mut deciders = Vec::new();
        for person in &self.stage.people {
            let reply = node.get(person, &format!("/holds/{hold}"))?;
            if reply.is_success() && reply.body.get("may_decide") == Some(&Value::Bool(true)) {
                deciders.push(person);
            }
        }
        if deciders.is_empty() { Err(nobody()) } else { Ok(deciders) }
    }

    /// Decides a hold: one after the other, until enough have.
    fn decide(&self, node: &Node, hold: &str, decision: &Decision<'_>) -> Result<(), Trouble> {
        let deciders = self.deciders(node, hold)?;
        let mut decision = decision;
        for person in &deciders {
            let seen = self.hold(node, hold)?;
            if seen.state != "open" {
                return Ok(());
            }
            let reply = node.post(person, &resolve_path(hold), &body(&seen, decision))?;
            let reply = reply.expect(&format!("the decision of {}", person.name))?;
            if reply.text("/outcome") == "decided" {
                return Ok(());
            }
            // Others agree with what it is now.
            if let Decision::Edit(_) = decision {
                decision = &Decision::Approve;
            }
        }
        match self.hold(node, hold)?.state.as_str() {
            "open" => Err(Trouble::Wrong(format!(
                "{} people decided, and the hold is still pending",
                deciders.len()
            ))),
            _ => Ok(()),
        }
    }

    /// How many decisions of a hold the log has.
    fn decisions(&self, node: &Node, run: &str, hold: &str) -> Result<usize, String> {
        let log =
            node.get(self.stage.starter()?, &format!("/runs/{run}/events"))?.expect("the log of a run")?;
        let events = log.body.get("events").and_then(Value::as_array).cloned().unwrap_or_default();
        let is_decision = |event: &&Value| {
            event.get("type") == Some(&json!("hold.resolved")) && event.get("hold") == Some(&json!(hold))
        };
        Ok(events.iter().filter(is_decision).count())
    }

    fn starts(&self, run: &str) -> Result<Vec<Start>, String> {
        let all = starts_of(&self.stage.rehearsal.starts(), run)?;
        // Read-only calls before it are not what was approved.
        Ok(all.into_iter().filter(|start| start.tool == self.call.tool.as_str()).collect())
    }

    fn ran_once(&self, run: &str) -> judge::Assessment {
        judge::ran_once(&self.starts(run)?, &self.call.arguments)
    }
}

/// A digest of something else, of the same form: one letter in the middle is another one of its letters.
fn other_digest(digest: &str) -> String {
    let mut letters: Vec<char> = digest.chars().collect();
    let middle = letters.len() / 2;
    let is_other = |c: &&char| c.is_ascii_alphanumeric() && Some(*c) != letters.get(middle);
    let other = letters.iter().rev().find(is_other).copied().unwrap_or('0');
    if let Some(letter) = letters.get_mut(middle) {
        *letter = other;
    }
    letters.into_iter().collect()
}

fn nobody() -> Trouble {
    Trouble::Unfit(
        "nobody may decide its holds: no person with any of the file's users, groups and roles".to_owned(),
    )
}

fn resolve_path(hold: &str) -> String {
    format!("/holds/{hold}/resolve")
}

fn start_body(wait: &str) -> String {
    json!({ "input": "standfast verify", "wait": wait }).to_string()
}

/// A decision about what was seen.
fn body(seen: &HoldSeen, decision: &Decision<'_>) -> String {
    let (word, rest) = match decision {
        Decision::Approve => ("approve", String::new()),
        // As they are: every byte counts.
        Decision::Edit(arguments) => ("approve", format!(r#","arguments":{arguments}"#)),
        Decision::Deny => ("deny", r#","reason":"standfast verify""#.to_owned()),
        Decision::Happened => ("answer", r#","value":"standfast verify""#.to_owned()),
    };
    let digest = match seen.digest.as_str() {
        "" => String::new(),
        digest => format!(r#","digest":{},"revision":{}"#, json!(digest), seen.revision),
    };
    format!(r#"{{"resolution":"{word}"{digest}{rest}}}"#)
}

fn seen(reply: &Reply) -> HoldSeen {
    let shown = |key: &str| reply.body.get(key).map(Value::to_string).unwrap_or_default();
    HoldSeen {
        id: reply.text("/id"),
        kind: reply.text("/kind"),
        state: reply.text("/state"),
        digest: reply.text("/digest"),
        revision: reply.body.get("revision").and_then(Value::as_u64).unwrap_or_default(),
        arguments: format!("{}{}", shown("arguments"), shown("arguments_text")),
        has_expired: reply.body.get("expired_at").is_some_and(|at| !at.is_null()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_digest_has_the_same_form() {
        let digest = "dg_06gyxj23vj03v0jf7tv1b8gdb8";
        let other = other_digest(digest);
        assert_ne!(other, digest);
        assert_eq!(other.len(), digest.len());
        assert!(other.chars().all(|c| digest.contains(c)), "{other}");
    }

    #[test]
    fn edited_arguments_are_sent_byte_for_byte() {
        let seen = HoldSeen {
            id: "hold_1".into(),
            kind: "approval".into(),
            state: "open".into(),
            digest: "d".into(),
            revision: 3,
            arguments: "{}".into(),
            has_expired: false,
        };
        let sent = body(&seen, &Decision::Edit(r#"{"amount": 1.50}"#));
        let expected = r#"{"resolution":"approve","digest":"d","revision":3,"arguments":{"amount": 1.50}}"#;
        assert_eq!(sent, expected);
    }
}

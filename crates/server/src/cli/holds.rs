//! `standfast holds`: what is pending, and deciding it.
//!
//! The list is `listing.rs`, and `picker.rs` where somebody sits at a terminal; who is asked is `people.rs`,
//! links that let somebody decide are `link.rs`.
//! Arguments are shown and sent as they are written, byte for byte: what is approved is what runs.

mod grant;
mod link;
mod listing;
mod people;
mod picker;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::client::{Failure, Form, Patience, Server, ServerArgs, ask, joined, read, segment};
use super::edit;
use super::plain::{Text, block, plain};

/// What is wanted of holds; without a command they are listed.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Holds {
    #[command(subcommand)]
    command: Option<HoldsCommand>,
    #[command(flatten)]
    list: List,
}

#[derive(Debug, Subcommand)]
enum HoldsCommand {
    /// List pending holds.
    List(List),
    /// Show a hold with everything needed to decide it.
    Show(Show),
    /// Approve a call; it runs with the shown arguments, or with --arguments.
    Approve(Approve),
    /// Show the rule of a standing approval for calls like a held one, without saving it.
    GrantRule(grant::GrantRule),
    /// Edit the arguments of a call in your editor, as with `git commit`, and approve it with them.
    Edit(Edit),
    /// Deny a call.
    Deny(Deny),
    /// Answer a question.
    Answer(Answer),
    /// Assign a hold to a person.
    Assign(people::Assign),
    /// Assign a hold to yourself.
    Take(Show),
    /// Remove the assignee of a hold.
    Release(Show),
    /// Issue an approval link to a hold for one person (admins only).
    Link(link::Link),
    /// Let somebody else decide a hold in your place for a while.
    Delegate(people::Delegate),
    /// Give a hold that expired and was kept a new deadline.
    Reopen(people::Reopen),
    /// Check a held call again against the current rules, files and lookups, and ask anew.
    AskAgain(Show),
}

#[derive(Debug, Args)]
struct List {
    /// Only this kind: approval, input, external, auth or recovery.
    #[arg(long)]
    kind: Option<String>,
    /// Only holds of this agent.
    #[arg(long)]
    agent: Option<String>,
    /// Only calls of this tool.
    #[arg(long)]
    tool: Option<String>,
    /// Only holds of this session.
    #[arg(long)]
    session: Option<String>,
    #[command(flatten)]
    asking: ServerArgs,
}

impl List {
    /// What of all holds is wanted, as the server is asked for it.
    fn only(&self) -> [(&'static str, &Option<String>); 4] {
        let List { kind, agent, tool, session, asking: _ } = self;
        [("kind", kind), ("agent", agent), ("tool", tool), ("session", session)]
    }
}

#[derive(Debug, Args)]
struct Show {
    /// The id of the hold, or its beginning.
    id: String,
    #[command(flatten)]
    asking: ServerArgs,
}

#[derive(Debug, Args)]
struct Approve {
    /// The id of the hold, or its beginning.
    id: String,
    /// Run the call with these arguments instead.
    #[arg(long, value_name = "JSON", value_parser = json)]
    arguments: Option<Box<RawValue>>,
    /// The digest shown with the hold: the approval is refused if the call has changed since.
    #[arg(long)]
    digest: Option<String>,
    /// Also approve further calls: the digest of the rule that `holds grant-rule` showed for the same options.
    #[arg(long, value_name = "DIGEST", requires_all = ["uses", "until"], conflicts_with = "arguments")]
    rule: Option<String>,
    #[command(flatten)]
    wish: grant::GrantTerms,
    #[command(flatten)]
    asking: ServerArgs,
}

#[derive(Debug, Args)]
struct Edit {
    /// The id of the hold, or its beginning.
    id: String,
    /// Use these arguments instead of opening an editor.
    #[arg(long, value_name = "JSON", value_parser = json)]
    arguments: Option<Box<RawValue>>,
    /// Read the arguments from this file; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "arguments")]
    arguments_file: Option<PathBuf>,
    #[command(flatten)]
    asking: ServerArgs,
}

#[derive(Debug, Args)]
struct Deny {
    /// The id of the hold, or its beginning.
    id: String,
    /// The reason; the agent sees it.
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    asking: ServerArgs,
}

#[derive(Debug, Args)]
struct Answer {
    /// The id of the hold, or its beginning.
    id: String,
    /// The answer: JSON if it parses as JSON, else text.
    #[arg(allow_negative_numbers = true, value_parser = json_or_text)]
    value: Box<RawValue>,
    #[command(flatten)]
    asking: ServerArgs,
}

pub(super) fn run(holds: &Holds) -> ExitCode {
    match holds.command.as_ref() {
        None if holds.list.asking.wants_text() && picker::has_terminal() => {
            ask(&holds.list.asking, |server| picker::pick(server, &holds.list))
        }
        None => list(&holds.list),
        Some(HoldsCommand::List(wanted)) => list(wanted),
        Some(HoldsCommand::Show(Show { id, asking })) => ask(asking, |server| show(server, id)),
        Some(HoldsCommand::GrantRule(wanted)) => grant::grant_rule(wanted),
        Some(HoldsCommand::Approve(Approve { id, arguments, digest, rule, wish, asking })) => {
            let (arguments, digest) = (arguments.as_deref(), digest.as_deref());
            let grant = rule.as_deref().map(|rule| wish.body(Some(rule)));
            let decision = Decision { arguments, digest, grant, ..Decision::of("approve") };
            ask(asking, |server| match (rule, wish.is_empty()) {
                // Without the rule nothing further would be approved, and nobody would notice.
                (None, false) => Err(Failure::Refused { said: grant::NO_RULE.into(), body: String::new() }),
                (Some(_), _) | (None, true) => decide(server, id, &decision),
            })
        }
        Some(HoldsCommand::Edit(wanted)) => ask(&wanted.asking, |server| edited(server, wanted)),
        Some(HoldsCommand::Deny(Deny { id, reason, asking })) => {
            let decision = Decision { reason: reason.as_deref(), ..Decision::of("deny") };
            ask(asking, |server| decide(server, id, &decision))
        }
        Some(HoldsCommand::Answer(Answer { id, value, asking })) => {
            let decision = Decision { value: Some(value), ..Decision::of("answer") };
            ask(asking, |server| decide(server, id, &decision))
        }
        Some(HoldsCommand::Assign(wanted)) => people::assign(wanted),
        Some(HoldsCommand::Take(Show { id, asking })) => people::change(asking, id, "take", "{}"),
        Some(HoldsCommand::Release(Show { id, asking })) => people::change(asking, id, "release", "{}"),
        Some(HoldsCommand::Link(wanted)) => link::issue(wanted),
        Some(HoldsCommand::Delegate(wanted)) => people::delegate(wanted),
        Some(HoldsCommand::Reopen(wanted)) => people::reopen(wanted),
        Some(HoldsCommand::AskAgain(Show { id, asking })) => people::ask_again(asking, id),
    }
}

/// A decision as it is sent.
#[derive(Debug, Serialize)]
struct Decision<'a> {
    resolution: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grant: Option<grant::GrantWish<'a>>,
}

impl Decision<'_> {
    fn of(resolution: &'static str) -> Self {
        Decision {
            resolution,
            arguments: None,
            value: None,
            reason: None,
            digest: None,
            revision: None,
            grant: None,
        }
    }
}

fn json(text: &str) -> serde_json::Result<Box<RawValue>> {
    serde_json::from_str(text)
}

fn json_or_text(text: &str) -> serde_json::Result<Box<RawValue>> {
    json(text).or_else(|_| serde_json::value::to_raw_value(text))
}

fn list(list: &List) -> ExitCode {
    ask(&list.asking, |server| {
        let items = server.list("/holds", &list.only())?;
        match server.form {
            Form::Json => Ok(joined("holds", &items)),
            Form::Text => listing::rows(server, &items),
        }
    })
}

fn show(server: &Server, id: &str) -> Result<String, Failure> {
    let id = listing::whole_id(server, id)?;
    let text = server.get(&format!("/holds/{}", segment(&id)))?;
    match server.form {
        Form::Json => Ok(text),
        Form::Text => Ok(read::<HoldBody>(&text)?.page()),
    }
}

fn decide(server: &Server, id: &str, decision: &Decision<'_>) -> Result<String, Failure> {
    let text = sent(server, &listing::whole_id(server, id)?, decision)?;
    match server.form {
        Form::Json => Ok(text),
        Form::Text => Ok(read::<DecisionResponse>(&text)?.line()),
    }
}

/// Sends a decision; what the server answers.
fn sent(server: &Server, id: &str, decision: &Decision<'_>) -> Result<String, Failure> {
    let path = format!("/holds/{}/resolve", segment(id));
    let body = serde_json::to_string(decision).map_err(|error| Failure::CouldNotAsk(error.to_string()))?;
    server.post(&path, &body, Patience::Usual)
}

/// The same, read.
fn decided(server: &Server, id: &str, decision: &Decision<'_>) -> Result<DecisionResponse, Failure> {
    read(&sent(server, id, decision)?)
}

/// Approves a call with arguments that a person has changed, as it was when they began to.
fn edited(server: &Server, wanted: &Edit) -> Result<String, Failure> {
    let id = listing::whole_id(server, &wanted.id)?;
    let hold = listing::hold(server, &id)?;
    let Some(before) = &hold.arguments_text else {
        let said = format!("{} is not about a call, so there are no arguments to edit", hold.id);
        return Err(Failure::Refused { said, body: String::new() });
    };
    let (text, file) = match (&wanted.arguments, &wanted.arguments_file) {
        (Some(arguments), _) => (arguments.get().to_owned(), None),
        (None, Some(path)) => (edit::from_file(path)?, None),
        (None, None) => {
            let tool = hold.tool.as_ref().map_or(String::new(), Text::to_string);
            let (text, file) = edit::in_editor(&tool, &hold.id.to_string(), before.raw())?;
            (text, Some(file))
        }
    };
    let kept = |why: String| match file {
        Some(file) => format!("{why}\n{}", file.keep()),
        None => why,
    };
    let arguments = match json(text.trim()) {
        Ok(arguments) => arguments,
        Err(error) => {
            let said = kept(format!("these arguments are not JSON: {}", plain(&error.to_string())));
            return Err(Failure::Refused { said, body: String::new() });
        }
    };
    let digest = hold.digest.as_ref().map(Text::raw);
    let revision = Some(hold.revision);
    let decision = Decision { arguments: Some(&arguments), digest, revision, ..Decision::of("approve") };
    decide(server, &id, &decision).map_err(|failure| match failure {
        Failure::Refused { said, body } => Failure::Refused { said: kept(said), body },
        Failure::CouldNotAsk(why) => Failure::CouldNotAsk(kept(why)),
    })
}

/// The result of a decision.
#[derive(Deserialize)]
struct DecisionResponse {
    outcome: Text,
    votes: Option<u32>,
    votes_needed: Option<u32>,
    hold: HoldBody,
}

impl DecisionResponse {
    fn line(&self) -> String {
        let HoldBody { id, run, digest, decided, .. } = &self.hold;
        match (decided, self.votes, self.votes_needed, digest) {
            (Some(decided), ..) => format!("{id}  {decided}\nrun: {run}\n"),
            (None, Some(votes), Some(needed), _) => {
                format!("{id}  {} ({votes} of {needed} votes)\n", self.outcome)
            }
            (None, _, _, _) if self.outcome.raw() == "changed" => format!("{}\n", self.hold.asked()),
            (None, _, _, Some(digest)) => format!("{id}  {}, still open; digest: {digest}\n", self.outcome),
            (None, ..) => format!("{id}  {}, still open\n", self.outcome),
        }
    }
}

/// A hold, as far as it is shown.
#[derive(Deserialize)]
pub(super) struct HoldBody {
    id: Text,
    run: Text,
    agent: Text,
    session: Text,
    kind: Text,
    state: Text,
    tool: Option<Text>,
    digest: Option<Text>,
    revision: u32,
    opened_at: Text,
    expires_at: Option<Text>,
    expired_at: Option<Text>,
    assignee: Option<Text>,
    decided: Option<DecisionRecord>,
    arguments_text: Option<Text>,
    deciders: Option<Text>,
    why_not: Option<Text>,
    risk: Option<Text>,
    reason: Option<Text>,
    question: Option<Text>,
    #[serde(default)]
    findings: Vec<Finding>,
    #[serde(default)]
    drift: Vec<Drift>,
    #[serde(default)]
    options: Vec<Text>,
    answer_schema: Option<Box<RawValue>>,
    data: Option<Box<RawValue>>,
    #[serde(default)]
    path: Vec<ParentRun>,
    votes: Option<people::Votes>,
    #[serde(default)]
    demands: Vec<people::Demand>,
    assigned_until: Option<Text>,
    remind_at: Option<Text>,
    grace_ends_at: Option<Text>,
    #[serde(default)]
    escalations: Vec<people::Escalation>,
    #[serde(default)]
    delegations: Vec<people::Delegation>,
    #[serde(default)]
    muted: bool,
    #[serde(default)]
    late: bool,
}

/// What a read-only call found before people were asked.
#[derive(Deserialize)]
struct Finding {
    tool: Text,
    arguments: Text,
    result: Text,
}

/// Something that is different now from when it was asked.
#[derive(Deserialize)]
struct Drift {
    text: Text,
}

/// A run above the one that waits.
#[derive(Deserialize)]
struct ParentRun {
    run: Text,
    agent: Text,
}

impl HoldBody {
    /// One line: what is pending, or what became of it.
    pub(super) fn line(&self) -> String {
        let HoldBody { id, kind, agent, .. } = self;
        let tool = self.tool.as_ref().map_or(String::new(), |tool| format!(" of {tool}"));
        let state = self.decided.as_ref().map_or("pending".to_owned(), DecisionRecord::to_string);
        format!("{id}  {kind}{tool} ({agent}): {state}")
    }

    /// One line: who is asked now.
    fn asked(&self) -> String {
        let assignee = self.assignee.as_ref().map_or("nobody in particular".to_owned(), Text::to_string);
        let people = people::page(self);
        let mut lines = vec![format!("{}  assigned to {assignee}", self.id)];
        lines.extend(self.expires_at.iter().map(|at| format!("expires:  {at}")));
        lines.extend(people.lines().map(str::to_owned));
        lines.join("\n")
    }

    fn page(&self) -> String {
        let HoldBody { id, run, agent, session, kind, opened_at, .. } = self;
        let state = self.decided.as_ref().map_or(self.state.to_string(), DecisionRecord::to_string);
        let mut text = format!("{id}  {kind}, {state}\n");
        text.push_str(&format!(
            "run:      {run}\nagent:    {agent}\nsession:  {session}\nopened:   {opened_at}\n"
        ));
        // The root first.
        let above = self.path.iter().map(|ParentRun { run, agent }| format!("for:      {agent}, {run}\n"));
        text.extend(above);
        let more = [
            ("expires:  ", &self.expires_at),
            ("expired:  ", &self.expired_at),
            ("assignee: ", &self.assignee),
            ("tool:     ", &self.tool),
            ("digest:   ", &self.digest),
            ("risk:     ", &self.risk),
            ("decides:  ", &self.deciders),
            ("not you:  ", &self.why_not),
        ];
        for (name, value) in more {
            text.extend(value.iter().map(|value| format!("{name}{value}\n")));
        }
        if self.revision > 0 {
            text.push_str(&format!("revision: {}\n", self.revision));
        }
        text.push_str(&people::page(self));
        let blocks =
            [("reason", &self.reason), ("question", &self.question), ("arguments", &self.arguments_text)];
        for (name, value) in blocks {
            text.extend(value.iter().map(|value| format!("{name}:\n{}", block(value.raw()))));
        }
        text.extend(self.findings.iter().map(|Finding { tool, arguments, result }| {
            format!("looked up with {tool} {arguments}:\n{}", block(result.raw()))
        }));
        text.extend(self.drift.iter().map(|one| format!("changed since it was asked: {}\n", one.text)));
        if !self.drift.is_empty() {
            text.push_str(&format!(
                "approve to go on with what was shown, `standfast holds ask-again {id}` to have it asked by what is there now, or \
                 `standfast cancel {run}`\n"
            ));
        }
        text.extend(self.data.iter().map(|data| format!("data:\n{}", block(data.get()))));
        if !self.options.is_empty() {
            text.push_str("options:\n");
            text.extend(self.options.iter().map(|option| format!("    | {option}\n")));
        }
        text.extend(
            self.answer_schema.iter().map(|schema| format!("answer schema:\n{}", block(schema.get()))),
        );
        text
    }
}

/// A decision on record.
#[derive(Deserialize)]
struct DecisionRecord {
    by: Text,
    at: Text,
    how: Text,
}

impl std::fmt::Display for DecisionRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let DecisionRecord { by, at, how } = self;
        write!(f, "{how} by {by} at {at}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_question_shows_is_printed_once() {
        let hold = serde_json::json!({
            "id": "hold_1", "run": "run_1", "agent": "ops", "session": "s-1", "kind": "input", "state": "open",
            "opened_at": "2026-01-01T00:00:00Z", "question": "Which one?", "options": ["a", "b"],
            "data": {"rows": 2}, "revision": 0,
        });
        let hold: HoldBody = serde_json::from_str(&hold.to_string()).unwrap();
        let page = hold.page();
        for block in ["data:\n", "question:\n", "options:\n"] {
            assert_eq!(page.matches(block).count(), 1, "{page}");
        }
    }
}

//! Who is asked about a hold: assign, take, release, delegate, reopen, ask again; and how the vote stands.
//!
//! None of it decides anything. Deciding is `holds.rs`.

use std::process::ExitCode;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::listing::whole_id;
use super::{DecisionResponse, HoldBody};
use crate::cli::client::{Failure, Form, Patience, ServerArgs, ask, read, segment};
use crate::cli::plain::Text;

#[derive(Debug, Args)]
pub(super) struct Assign {
    /// The id of the hold, or its beginning.
    id: String,
    /// Who is to be asked.
    to: String,
    /// When the assignment ends by itself, such as 2026-12-24T18:00:00Z.
    #[arg(long, value_name = "INSTANT")]
    until: Option<String>,
    #[command(flatten)]
    asking: ServerArgs,
}

#[derive(Debug, Args)]
pub(super) struct Delegate {
    /// The id of the hold, or its beginning.
    id: String,
    /// Who decides in your place.
    to: String,
    /// Until when, such as 2026-12-24T18:00:00Z.
    #[arg(long, value_name = "INSTANT")]
    until: String,
    #[command(flatten)]
    asking: ServerArgs,
}

#[derive(Debug, Args)]
pub(super) struct Reopen {
    /// The id of the hold, or its beginning.
    id: String,
    /// The new deadline, such as 2026-12-24T18:00:00Z; without limit if there is none.
    #[arg(long, value_name = "INSTANT")]
    until: Option<String>,
    #[command(flatten)]
    asking: ServerArgs,
}

pub(super) fn assign(wanted: &Assign) -> ExitCode {
    #[derive(Serialize)]
    struct Body<'a> {
        to: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        until: Option<&'a str>,
    }
    let Assign { id, to, until, asking } = wanted;
    let body = serde_json::to_string(&Body { to, until: until.as_deref() }).unwrap_or_default();
    change(asking, id, "assign", &body)
}

pub(super) fn delegate(wanted: &Delegate) -> ExitCode {
    #[derive(Serialize)]
    struct Body<'a> {
        to: &'a str,
        until: &'a str,
    }
    let Delegate { id, to, until, asking } = wanted;
    change(asking, id, "delegate", &serde_json::to_string(&Body { to, until }).unwrap_or_default())
}

pub(super) fn reopen(wanted: &Reopen) -> ExitCode {
    #[derive(Serialize)]
    struct Body<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        expires_at: Option<&'a str>,
    }
    let Reopen { id, until, asking } = wanted;
    let body = serde_json::to_string(&Body { expires_at: until.as_deref() }).unwrap_or_default();
    change(asking, id, "reopen", &body)
}

/// Has a call asked about again, and prints what is asked now.
pub(super) fn ask_again(asking: &ServerArgs, id: &str) -> ExitCode {
    ask(asking, |server| {
        let id = whole_id(server, id)?;
        let text = server.post(&format!("/holds/{}/ask-again", segment(&id)), "{}", Patience::Usual)?;
        match server.form {
            Form::Json => Ok::<String, Failure>(text),
            Form::Text => Ok(read::<DecisionResponse>(&text)?.hold.page()),
        }
    })
}

/// Asks the server for one of these, and prints who is asked now.
pub(super) fn change(asking: &ServerArgs, id: &str, what: &str, body: &str) -> ExitCode {
    ask(asking, |server| {
        let id = whole_id(server, id)?;
        let text = server.post(&format!("/holds/{}/{what}", segment(&id)), body, Patience::Usual)?;
        match server.form {
            Form::Json => Ok::<String, Failure>(text),
            Form::Text => Ok(read::<DecisionResponse>(&text)?.line()),
        }
    })
}

/// How the vote stands.
#[derive(Deserialize)]
pub(super) struct Votes {
    agreed: Vec<Text>,
    missing: u32,
}

/// What one rule demands.
#[derive(Deserialize)]
pub(super) struct Demand {
    rule: Text,
    approvers: Option<Vec<Text>>,
    quorum: u32,
    agreed: Vec<Text>,
}

/// Others who are asked as well.
#[derive(Deserialize)]
pub(super) struct Escalation {
    at: Text,
    to: Vec<Text>,
    done: bool,
}

/// Who stands in for whom.
#[derive(Deserialize)]
pub(super) struct Delegation {
    by: Text,
    to: Text,
    until: Text,
}

fn list(all: &[Text]) -> String {
    all.iter().map(Text::to_string).collect::<Vec<_>>().join(", ")
}

/// The lines about who is asked.
pub(super) fn page(hold: &HoldBody) -> String {
    let mut lines = Vec::new();
    lines.extend(hold.assigned_until.iter().map(|until| format!("assigned until: {until}")));
    let is_plain = |votes: &&Votes| votes.agreed.is_empty() && votes.missing <= 1;
    if let Some(votes) = hold.votes.as_ref().filter(|votes| !is_plain(votes)) {
        let agreed = if votes.agreed.is_empty() { "nobody yet".to_owned() } else { list(&votes.agreed) };
        lines.push(format!("agreed:   {agreed}; {} more needed", votes.missing));
    }
    lines.extend(hold.demands.iter().map(Demand::line));
    lines.extend(hold.remind_at.iter().map(|at| format!("reminder: {at}")));
    lines.extend(hold.escalations.iter().map(|one| {
        let word = if one.done { "escalated" } else { "escalates" };
        format!("{word} at {} to {}", one.at, list(&one.to))
    }));
    lines.extend(hold.delegations.iter().map(|one| {
        let Delegation { by, to, until } = one;
        format!("{to} decides in the place of {by} until {until}")
    }));
    lines.extend(hold.grace_ends_at.iter().map(|at| format!("late decisions are taken until {at}")));
    let muted = "muted:    too many are open, nobody is notified of this one";
    lines.extend(hold.muted.then(|| muted.to_owned()));
    lines.extend(hold.late.then(|| "late:     the decision came after the deadline".to_owned()));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

impl Demand {
    fn line(&self) -> String {
        let Demand { rule, approvers, quorum, agreed } = self;
        let who = approvers.as_deref().map_or("the agent's approvers".to_owned(), list);
        let done = if agreed.is_empty() { "nobody yet".to_owned() } else { list(agreed) };
        format!("rule {rule}: {quorum} of {who}; agreed: {done}")
    }
}

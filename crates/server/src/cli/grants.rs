//! `standfast grants`: standing approvals, how far they are used, and their end.
//!
//! One is made by an approval: `standfast holds approve` with the rule that `standfast holds grant-rule` showed.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Deserialize;

use super::client::{Failure, Form, Patience, Server, ServerArgs, ask, read, segment};
use super::plain::{Text, table};

/// What is done with standing approvals.
#[derive(Debug, Subcommand)]
pub(super) enum Grants {
    /// List standing approvals with their usage.
    List(Listing),
    /// Show a standing approval with its rule.
    Show(GrantArgs),
    /// Revoke a standing approval: calls are held again from now on.
    Revoke(GrantArgs),
}

/// All of them.
#[derive(Debug, Args)]
pub(super) struct Listing {
    #[command(flatten)]
    asking: ServerArgs,
}

/// One of them.
#[derive(Debug, Args)]
pub(super) struct GrantArgs {
    /// The id of the grant.
    grant: String,
    #[command(flatten)]
    asking: ServerArgs,
}

pub(super) fn run(grants: &Grants) -> ExitCode {
    match grants {
        Grants::List(Listing { asking }) => ask(asking, list),
        Grants::Show(GrantArgs { grant, asking }) => ask(asking, |server| {
            let text = server.get(&format!("/grants/{}", segment(grant)))?;
            shown(server, text)
        }),
        Grants::Revoke(GrantArgs { grant, asking }) => ask(asking, |server| {
            let path = format!("/grants/{}/revoke", segment(grant));
            let text = server.post(&path, "{}", Patience::Usual)?;
            shown(server, text)
        }),
    }
}

fn list(server: &Server) -> Result<String, Failure> {
    let text = server.get("/grants")?;
    if server.form == Form::Json {
        return Ok(text);
    }
    let found: GrantsBody = read(&text)?;
    if found.grants.is_empty() {
        return Ok("no standing approvals".into());
    }
    let row = |grant: &GrantBody| {
        let GrantBody { id, state, tool, agent, used, uses, until, .. } = grant;
        let [id, state, tool, agent, until] = [id, state, tool, agent, until].map(Text::to_string);
        vec![id, state, tool, agent, format!("{used} of {uses}"), until]
    };
    let rows: Vec<Vec<String>> = found.grants.iter().map(row).collect();
    Ok(table(&["GRANT", "STATE", "TOOL", "AGENT", "USED", "UNTIL"], &rows))
}

fn shown(server: &Server, text: String) -> Result<String, Failure> {
    match server.form {
        Form::Json => Ok(text),
        Form::Text => Ok(read::<GrantBody>(&text)?.page()),
    }
}

#[derive(Deserialize)]
struct GrantsBody {
    grants: Vec<GrantBody>,
}

/// A standing approval, as far as it is shown.
#[derive(Deserialize)]
struct GrantBody {
    id: Text,
    state: Text,
    tool: Text,
    agent: Text,
    used: u32,
    uses: u32,
    until: Text,
    hold: Text,
    rule: Vec<Text>,
    approved_by: Vec<Text>,
    used_by: Vec<Text>,
    revoked_by: Option<Text>,
}

impl GrantBody {
    fn page(&self) -> String {
        let GrantBody { id, state, used, uses, hold, .. } = self;
        let mut text = format!("{id}  {state}, {used} of {uses} used\nfrom:     {hold}\n");
        text.extend(self.approved_by.iter().map(|who| format!("by:       {who}\n")));
        text.extend(self.revoked_by.iter().map(|who| format!("revoked:  {who}\n")));
        text.extend(self.used_by.iter().map(|run| format!("used by:  {run}\n")));
        text.push_str("rule:\n");
        text.extend(self.rule.iter().map(|line| format!("    | {line}\n")));
        text
    }
}

//! `standfast sign-ins`: where the caller is signed in, and the end of it.
//!
//! What a session is, the server says. Signing in is `standfast login` (`sign_in.rs`).

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Deserialize;

use super::client::{Failure, Form, Server, ServerArgs, ask, read, segment};
use super::plain::{Text, table};

/// What is done with sessions.
#[derive(Debug, Subcommand)]
pub(super) enum SignIns {
    /// List where you are signed in: browsers and command lines.
    List(Listing),
    /// End one of your sessions.
    End(EndArgs),
}

/// All of them.
#[derive(Debug, Args)]
pub(super) struct Listing {
    #[command(flatten)]
    asking: ServerArgs,
}

/// One of them.
#[derive(Debug, Args)]
pub(super) struct EndArgs {
    /// The id of the session; `current` is the one that this command uses.
    sign_in: String,
    #[command(flatten)]
    asking: ServerArgs,
}

#[derive(Deserialize)]
struct SignInsBody {
    sign_ins: Vec<SignInBody>,
}

#[derive(Deserialize)]
struct SignInBody {
    id: Text,
    client: Text,
    by: Text,
    label: Option<Text>,
    seen_at: Option<Text>,
    expires_at: Text,
    current: bool,
}

pub(super) fn run(sign_ins: &SignIns) -> ExitCode {
    match sign_ins {
        SignIns::List(Listing { asking }) => ask(asking, list),
        SignIns::End(EndArgs { sign_in, asking }) => ask(asking, |server| {
            let text = server.delete(&format!("/sign-ins/{}", segment(sign_in)))?;
            Ok(if server.form == Form::Json { text } else { "ended".into() })
        }),
    }
}

fn list(server: &Server) -> Result<String, Failure> {
    let text = server.get("/sign-ins")?;
    if server.form == Form::Json {
        return Ok(text);
    }
    let found: SignInsBody = read(&text)?;
    if found.sign_ins.is_empty() {
        return Ok("no sessions; API keys are listed with `standfast keys list`".into());
    }
    let row = |one: &SignInBody| {
        let text = |text: &Option<Text>| text.as_ref().map(Text::to_string).unwrap_or_default();
        let current = if one.current { " (this one)" } else { "" };
        vec![
            format!("{}{current}", one.id),
            one.client.to_string(),
            one.by.to_string(),
            text(&one.seen_at),
            one.expires_at.to_string(),
            text(&one.label),
        ]
    };
    let rows: Vec<Vec<String>> = found.sign_ins.iter().map(row).collect();
    Ok(table(&["SIGN-IN", "CLIENT", "BY", "LAST USED", "ENDS", "PROGRAM"], &rows))
}

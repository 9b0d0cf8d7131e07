//! `standfast holds link`: an approval link to one hold for one person.
//!
//! Printed once and kept nowhere. What it opens is the server's business.

use std::process::ExitCode;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::listing::whole_id;
use crate::cli::client::{Failure, Form, Patience, ServerArgs, ask, read, segment};
use crate::cli::plain::Text;

#[derive(Debug, Args)]
pub(super) struct Link {
    /// The id of the hold, or its beginning.
    id: String,
    /// The person who decides by it: one of the `people` of the configuration.
    #[arg(long = "for", value_name = "USER")]
    audience: String,
    #[command(flatten)]
    asking: ServerArgs,
}

#[derive(Serialize)]
struct LinkRequest<'a> {
    #[serde(rename = "for")]
    audience: &'a str,
}

#[derive(Deserialize)]
struct LinkResponse {
    url: Text,
    #[serde(rename = "for")]
    audience: Text,
    expires_at: Text,
}

pub(super) fn issue(wanted: &Link) -> ExitCode {
    let Link { id, audience, asking } = wanted;
    ask(asking, |server| {
        let id = whole_id(server, id)?;
        let body = serde_json::to_string(&LinkRequest { audience }).unwrap_or_default();
        let text = server.post(&format!("/holds/{}/link", segment(&id)), &body, Patience::Usual)?;
        match server.form {
            Form::Json => Ok::<String, Failure>(text),
            Form::Text => {
                let LinkResponse { url, audience, expires_at } = read(&text)?;
                Ok(format!(
                    "{url}\nfor {audience} until {expires_at}; whoever has it may be able to decide\n"
                ))
            }
        }
    })
}

//! `standfast send AGENT TEXT`: a message to an agent begins a run.
//!
//! With `--wait` the answer comes when the run waits for somebody or has ended; the run is durable in either case.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::client::{Failure, Form, Patience, Server, ServerArgs, ask, read, segment};
use super::runs::RunBody;

/// What is sent to whom.
#[derive(Debug, Args)]
pub(super) struct Send {
    /// The agent.
    agent: String,
    /// The message.
    text: String,
    /// The session that the run belongs to.
    #[arg(long)]
    session: Option<String>,
    /// Wait until the run is held or has ended.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    asking: ServerArgs,
}

pub(super) fn run(send: &Send) -> ExitCode {
    ask(&send.asking, |server| start(server, send))
}

fn start(server: &Server, send: &Send) -> Result<String, Failure> {
    let (wait, patience) = if send.wait { ("settled", Patience::Any) } else { ("accepted", Patience::Usual) };
    let body = match &send.session {
        Some(session) => json!({ "input": send.text, "session": session, "wait": wait }),
        None => json!({ "input": send.text, "wait": wait }),
    };
    let path = format!("/agents/{}/runs", segment(&send.agent));
    let text = server.post(&path, &body.to_string(), patience)?;
    match server.form {
        Form::Json => Ok(text),
        Form::Text => Ok(read::<RunBody>(&text)?.summary()),
    }
}

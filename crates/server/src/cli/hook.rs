//! `standfast hook`: what a coding agent calls before and after it runs something, and how that is set up.
//!
//! Reads the client's event from standard input, asks a server, prints the client's answer. Where the server cannot be asked it
//! blocks: exit code 2 (Copilot: a no in its own words), and a sentence that says why and how to switch it off. What the answers are is the server's business
//! (`/hooks/{client}`); the settings of clients are `install.rs`, the end of a client's own dialog is `dialog.rs`.

mod dialog;
mod install;

use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::clock::Clock;

use self::dialog::DialogEnd;
use super::client::{Failure, Form, Patience, Server, ServerArgs};
use super::plain::plain;

/// The answer of a server that has none yet; the server says the same.
const WAIT: &str = r#"{"standfast":"wait"}"#;

/// How long one request waits, in seconds.
const STRETCH: u64 = 20;

/// How long a server that is away is waited for: it may be restarting.
const AWAY: Millis = Millis::seconds(60);

/// The same where only something is told.
const NEWS_AWAY: Millis = Millis::seconds(5);

/// The events that ask nothing: what happened shows that dialogs of the client are gone. A client would take a no as one to the prompt, or
/// to the end of its turn.
const NEWS: [&str; 12] = [
    "PostToolBatch",
    "UserPromptSubmit",
    "userPromptSubmitted",
    "beforeSubmitPrompt",
    "Stop",
    "StopFailure",
    "SubagentStop",
    "agentStop",
    "subagentStop",
    "stop",
    "SessionEnd",
    "sessionEnd",
];

/// What a coding agent calls, or the setup of it.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Hook {
    #[command(subcommand)]
    command: Option<HookCommand>,
    #[command(flatten)]
    call: HookCall,
}

#[derive(Debug, Subcommand)]
enum HookCommand {
    /// Add the hook to the settings of a coding agent; shows what changes first.
    Install(install::Install),
    /// Remove it again.
    Uninstall(install::Install),
}

#[derive(Debug, Args)]
struct HookCall {
    /// The coding agent that calls.
    #[arg(long)]
    client: Option<ClientName>,
    /// How many seconds to wait for a decision. Must be less than the client's own limit: many clients let a call through
    /// when their hook takes too long.
    #[arg(long, default_value_t = STRETCH)]
    wait: u64,
    /// The answer to the client when nobody has decided by then. The request stays open all the same.
    #[arg(long, default_value = "deny")]
    then: ThenWord,
    #[command(flatten)]
    asking: ServerArgs,
}

/// A coding agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ClientName {
    ClaudeCode,
    Codex,
    Copilot,
    Gemini,
    Cursor,
    Opencode,
}

impl ClientName {
    fn name(self) -> &'static str {
        match self {
            ClientName::ClaudeCode => "claude-code",
            ClientName::Codex => "codex",
            ClientName::Copilot => "copilot",
            ClientName::Gemini => "gemini",
            ClientName::Cursor => "cursor",
            ClientName::Opencode => "opencode",
        }
    }
}

/// The answer to a client when nobody has decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ThenWord {
    /// Not now; the model may repeat the call.
    Deny,
    /// The client asks its own user (Claude Code).
    Ask,
    /// The client ends, and is resumed later (Claude Code with -p).
    Defer,
}

impl ThenWord {
    fn word(self) -> &'static str {
        match self {
            ThenWord::Deny => "deny",
            ThenWord::Ask => "ask",
            ThenWord::Defer => "defer",
        }
    }
}

impl Hook {
    pub(super) fn run(&self) -> ExitCode {
        match &self.command {
            Some(HookCommand::Install(install)) => install.run(install::Change::Install),
            Some(HookCommand::Uninstall(install)) => install.run(install::Change::Uninstall),
            None => self.call.run(),
        }
    }
}

impl HookCall {
    fn run(&self) -> ExitCode {
        let mut event = String::new();
        let read = std::io::stdin().read_to_string(&mut event);
        let read = read.map_err(|error| format!("standard input: {error}"));
        let is_news = is_news(&event);
        let end = DialogEnd::default();
        match read.and_then(|_| self.answer(&event, (if is_news { NEWS_AWAY } else { AWAY }, &end))) {
            _ if end.has_come() => ExitCode::from(dialog::ENDED),
            Ok(answer) => {
                if !answer.is_empty() {
                    println!("{answer}");
                }
                ExitCode::SUCCESS
            }
            // It blocks no prompt and no end of a turn that something could not be told.
            Err(why) if is_news => {
                eprintln!("Standfast could not be told: {}", plain(&why.trim().replace('\n', "; ")));
                ExitCode::FAILURE
            }
            Err(why) => {
                let client = self.client.map_or("CLIENT", ClientName::name);
                let sentence = format!(
                    "Not executed: Standfast could not be asked whether this call may run ({}). Nothing runs without it; to \
                     switch it off: standfast hook uninstall {client}",
                    plain(&why.trim().replace('\n', "; "))
                );
                eprintln!("{sentence}");
                match self.client.and_then(|client| no_in_its_words(client, &event, &sentence)) {
                    Some(no) => {
                        println!("{no}");
                        ExitCode::SUCCESS
                    }
                    None => ExitCode::from(2),
                }
            }
        }
    }

    fn answer(&self, event: &str, (away, end): (Millis, &DialogEnd)) -> Result<String, String> {
        let client = self.client.ok_or("no --client is named")?;
        let server = || Server::at(&self.asking, Form::Json).map_err(in_words);
        end.watch(client, event, server()?);
        let server = server()?;
        let clock = Clock::system();
        let until = clock.now().plus(Millis::seconds(i64::try_from(self.wait).unwrap_or(i64::MAX)));
        let mut away_since: Option<Timestamp> = None;
        loop {
            let left = until.since(clock.now());
            let seconds = u64::try_from((left.0 + 999) / 1000).unwrap_or(0);
            let (wait, then) =
                if seconds > STRETCH { (STRETCH, "wait") } else { (seconds, self.then.word()) };
            let path = format!("/hooks/{}?wait={wait}&then={then}", client.name());
            match server.post(&path, event, Patience::Any) {
                Ok(answer) if answer.trim() == WAIT => away_since = None,
                Ok(answer) => return Ok(answer),
                // A repeat attaches to the same request for approval, so trying again is safe.
                Err(Failure::CouldNotAsk(why)) => {
                    let since = *away_since.get_or_insert(clock.now());
                    if clock.now().since(since) >= away.min(left) {
                        return Err(why);
                    }
                    std::thread::sleep(Duration::from_millis(500));
                }
                Err(refused @ Failure::Refused { .. }) => return Err(in_words(refused)),
            }
        }
    }
}

/// Whether an event only tells something. What cannot be read asks.
fn is_news(event: &str) -> bool {
    let Ok(event) = serde_json::from_str::<Value>(event) else { return false };
    let names = ["hook_event_name", "hookEventName", "event"];
    let name = names.into_iter().find_map(|key| event.get(key)?.as_str());
    name.is_some_and(|name| NEWS.contains(&name))
}

/// The no of a hook that could not ask, for a client that hands on nothing of what is said beside an exit code. It is sure that the
/// event is one of those that are answered like this; any other client is told by the code.
fn no_in_its_words(client: ClientName, event: &str, sentence: &str) -> Option<String> {
    let event: Value = serde_json::from_str(event).ok()?;
    let is_its_own = event.get("toolName").is_some() && event.get("hook_event_name").is_none();
    let no = || {
        json!({
            "permissionDecision": "deny", "permissionDecisionReason": sentence, "behavior": "deny", "message": sentence,
        })
    };
    (client == ClientName::Copilot && is_its_own).then(|| no().to_string())
}

fn in_words(failure: Failure) -> String {
    match failure {
        Failure::Refused { said, .. } => said,
        Failure::CouldNotAsk(why) => why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only what asks nothing goes on without a server.
    #[test]
    fn what_asks_something_is_no_news() {
        for event in NEWS {
            assert!(is_news(&json!({"hook_event_name": event}).to_string()), "{event}");
        }
        for event in ["PreToolUse", "PermissionRequest", "PostToolUse", "BeforeTool", "beforeShellExecution"]
        {
            assert!(!is_news(&json!({"hook_event_name": event}).to_string()), "{event}");
        }
        assert!(!is_news("{}x") && !is_news("{}"));
    }

    /// Copilot hands on nothing but the code; a client that reads the same events in another form goes by the code.
    #[test]
    fn a_no_without_a_server_is_in_the_client_s_words() {
        let own = r#"{"sessionId":"s","toolName":"bash","toolArgs":{}}"#;
        let no: Value =
            serde_json::from_str(&no_in_its_words(ClientName::Copilot, own, "away").unwrap()).unwrap();
        assert_eq!(
            (&no["permissionDecision"], &no["permissionDecisionReason"]),
            (&json!("deny"), &json!("away"))
        );
        for (client, event) in [
            (ClientName::Copilot, r#"{"hook_event_name":"PreToolUse","toolName":"x"}"#),
            (ClientName::Copilot, "not JSON"),
            (ClientName::Gemini, own),
        ] {
            assert_eq!(no_in_its_words(client, event, "away"), None, "{client:?}: {event}");
        }
    }
}

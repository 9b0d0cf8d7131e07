//! The table of answers to each client. Pure; `golden/` has all of it.
//!
//! An answer that a client does not understand is as good as none, and many clients then let the call through: so each gets
//! exactly the shape that it documents. Edited arguments keep their text.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::IgnoredAny;
use standfast_core::json::RawJson;

use super::event::{Client, HookEvent, Moment};

/// What a gate means for whoever asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GateVerdict {
    /// It may run.
    Approved(String),
    /// It may run with other arguments.
    Edited(RawJson, String),
    /// It must not run.
    Denied(String),
    /// Nobody has decided yet.
    Undecided(String),
    /// No rule is about it: the client does as it would without us.
    NoRule,
}

/// The answer to a client when nobody has decided yet. Nothing of it is recorded: the gate stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fallback {
    /// Not now: the model may repeat the call.
    #[default]
    Deny,
    /// The client's own user is asked.
    Ask,
    /// The client stops, and is resumed later.
    Defer,
    /// `standfast hook` asks again.
    Wait,
}

impl Fallback {
    fn word(self) -> &'static str {
        match self {
            Fallback::Deny => "deny",
            Fallback::Ask => "ask",
            Fallback::Defer => "defer",
            Fallback::Wait => "wait",
        }
    }
}

/// The answer to `standfast hook` while nobody has decided.
const WAIT: &str = r#"{"standfast":"wait"}"#;

/// The answer to a client that gets no decision.
pub(super) fn silence(client: Client) -> &'static str {
    match client {
        Client::Codex | Client::Copilot | Client::Gemini => "",
        Client::ClaudeCode | Client::Cursor | Client::Opencode => "{}",
    }
}

/// The answer to an event that asks nothing.
pub(super) fn to_news(client: Client, event: &HookEvent) -> &'static str {
    match client {
        // It sends the prompt on where it is told so.
        Client::Cursor if event.name == "beforeSubmitPrompt" => r#"{"continue":true}"#,
        Client::ClaudeCode
        | Client::Codex
        | Client::Copilot
        | Client::Gemini
        | Client::Cursor
        | Client::Opencode => silence(client),
    }
}

/// Where a client puts a call before its own user too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialog {
    /// Nowhere.
    Nowhere,
    /// Beside the hook, while that waits.
    Beside,
    /// When the hook has answered that nobody has decided.
    Afterwards,
}

impl Dialog {
    pub(super) fn of(client: Client, moment: &Moment, then: Fallback) -> Dialog {
        match (client, moment) {
            (Client::ClaudeCode, Moment::Permission) => Dialog::Beside,
            _ if then == Fallback::Wait => Dialog::Nowhere,
            (Client::Codex | Client::Copilot, Moment::Permission) | (Client::Cursor, _) => Dialog::Afterwards,
            (Client::ClaudeCode, _) if then == Fallback::Ask => Dialog::Afterwards,
            (Client::ClaudeCode | Client::Codex | Client::Copilot | Client::Gemini | Client::Opencode, _) => {
                Dialog::Nowhere
            }
        }
    }
}

/// What a client does with other arguments than those that it asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edits {
    /// It runs them.
    Taken,
    /// It lays them over its own, member by member: what was removed would run all the same.
    Merged,
    /// It has no place for them: the model has to ask for them.
    Refused,
}

impl Edits {
    pub(super) fn of(client: Client, moment: &Moment) -> Edits {
        match (client, moment) {
            (Client::Cursor, _) | (Client::Codex | Client::Copilot, Moment::Permission) => Edits::Refused,
            (Client::Gemini, _) => Edits::Merged,
            (Client::ClaudeCode | Client::Codex | Client::Copilot | Client::Opencode, _) => Edits::Taken,
        }
    }

    /// Whether a client that asked about `asked` and is sent `edited` runs exactly that.
    pub(super) fn run(self, asked: &RawJson, edited: &RawJson) -> bool {
        let members = |json: &RawJson| -> Option<BTreeSet<String>> {
            let object: BTreeMap<String, IgnoredAny> = serde_json::from_str(json.text()).ok()?;
            Some(object.into_keys().collect())
        };
        match self {
            Edits::Taken => true,
            Edits::Refused => false,
            Edits::Merged => match (members(asked), members(edited)) {
                (Some(asked), Some(edited)) => asked.is_subset(&edited),
                (None | Some(_), None | Some(_)) => false,
            },
        }
    }
}

/// The answer to a hook.
pub(super) fn of(client: Client, event: &HookEvent, verdict: &GateVerdict, then: Fallback) -> String {
    if *verdict == GateVerdict::NoRule {
        return silence(client).to_owned();
    }
    if let GateVerdict::Edited(arguments, text) = verdict
        && !Edits::of(client, &event.moment).run(&event.arguments, arguments)
    {
        return of(client, event, &GateVerdict::Denied(text.clone()), then);
    }
    if matches!(verdict, GateVerdict::Undecided(_)) && then == Fallback::Wait {
        return WAIT.to_owned();
    }
    match (client, &event.moment) {
        (Client::ClaudeCode | Client::Codex, Moment::Permission) => permission(client, verdict),
        (Client::ClaudeCode, _) => claude(event, verdict, then),
        (Client::Codex, _) => codex(event, verdict),
        (Client::Copilot, Moment::Permission) => copilot_permission(verdict),
        // VS Code speaks like Claude Code.
        (Client::Copilot, _) if event.name == "PreToolUse" => claude(event, verdict, Fallback::Deny),
        (Client::Copilot, _) => copilot(verdict),
        (Client::Gemini, _) => gemini(verdict),
        (Client::Cursor, _) => cursor(verdict),
        (Client::Opencode, _) => opencode(verdict),
    }
}

/// Claude Code's `PreToolUse`.
fn claude(event: &HookEvent, verdict: &GateVerdict, then: Fallback) -> String {
    let (word, reason, edited) = match verdict {
        GateVerdict::Approved(text) => ("allow", text, None),
        GateVerdict::Edited(arguments, text) => ("allow", text, Some(arguments)),
        GateVerdict::Denied(text) => ("deny", text, None),
        GateVerdict::Undecided(text) => (then.word(), text, None),
        GateVerdict::NoRule => return "{}".to_owned(),
    };
    let mut said = vec![
        ("hookEventName", quoted(&event.name)),
        ("permissionDecision", quoted(word)),
        ("permissionDecisionReason", quoted(reason)),
    ];
    said.extend(edited.map(|arguments| ("updatedInput", arguments.text().to_owned())));
    object(&[("hookSpecificOutput", object(&said))])
}

/// Codex takes `allow` only with other arguments, and goes on with the call at anything that it does not know.
fn codex(event: &HookEvent, verdict: &GateVerdict) -> String {
    match verdict {
        GateVerdict::Approved(_) | GateVerdict::NoRule => String::new(),
        GateVerdict::Edited(..) | GateVerdict::Denied(_) | GateVerdict::Undecided(_) => {
            claude(event, verdict, Fallback::Deny)
        }
    }
}

/// `PermissionRequest` of Claude Code and Codex: silence leaves the client's own dialog.
fn permission(client: Client, verdict: &GateVerdict) -> String {
    let allow = || ("behavior", quoted("allow"));
    let decision = match verdict {
        GateVerdict::Approved(_) => vec![allow()],
        GateVerdict::Edited(arguments, _) => vec![allow(), ("updatedInput", arguments.text().to_owned())],
        GateVerdict::Denied(why) => vec![("behavior", quoted("deny")), ("message", quoted(why))],
        GateVerdict::Undecided(_) | GateVerdict::NoRule => return silence(client).to_owned(),
    };
    let said = [("hookEventName", quoted("PermissionRequest")), ("decision", object(&decision))];
    object(&[("hookSpecificOutput", object(&said))])
}

/// Copilot's `preToolUse`.
fn copilot(verdict: &GateVerdict) -> String {
    let (word, reason, edited) = match verdict {
        GateVerdict::Approved(text) => ("allow", text, None),
        GateVerdict::Edited(arguments, text) => ("allow", text, Some(arguments)),
        GateVerdict::Denied(text) | GateVerdict::Undecided(text) => ("deny", text, None),
        GateVerdict::NoRule => return String::new(),
    };
    let mut said = vec![("permissionDecision", quoted(word)), ("permissionDecisionReason", quoted(reason))];
    said.extend(edited.map(|arguments| ("modifiedArgs", arguments.text().to_owned())));
    object(&said)
}

/// Copilot's `permissionRequest`, which takes no other arguments.
fn copilot_permission(verdict: &GateVerdict) -> String {
    match verdict {
        GateVerdict::Approved(_) => object(&[("behavior", quoted("allow"))]),
        GateVerdict::Edited(_, text) | GateVerdict::Denied(text) => {
            object(&[("behavior", quoted("deny")), ("message", quoted(text))])
        }
        GateVerdict::Undecided(_) | GateVerdict::NoRule => String::new(),
    }
}

/// Gemini's `BeforeTool`. It merges `tool_input` into what the model asked for: an edit without one of its keys is not sent.
fn gemini(verdict: &GateVerdict) -> String {
    match verdict {
        GateVerdict::Approved(_) => object(&[("decision", quoted("allow"))]),
        GateVerdict::Edited(arguments, _) => object(&[
            ("decision", quoted("allow")),
            ("hookSpecificOutput", object(&[("tool_input", arguments.text().to_owned())])),
        ]),
        GateVerdict::Denied(text) | GateVerdict::Undecided(text) => {
            object(&[("decision", quoted("deny")), ("reason", quoted(text))])
        }
        GateVerdict::NoRule => String::new(),
    }
}

/// Cursor's `before…` hooks, which take no other arguments.
fn cursor(verdict: &GateVerdict) -> String {
    let (word, text) = match verdict {
        GateVerdict::Approved(text) => ("allow", text),
        GateVerdict::Edited(_, text) | GateVerdict::Denied(text) => ("deny", text),
        GateVerdict::Undecided(text) => ("ask", text),
        GateVerdict::NoRule => return "{}".to_owned(),
    };
    object(&[("permission", quoted(word)), ("user_message", quoted(text)), ("agent_message", quoted(text))])
}

/// The plugin for opencode reads this: it throws where the decision is `deny`.
fn opencode(verdict: &GateVerdict) -> String {
    match verdict {
        GateVerdict::Approved(_) => object(&[("decision", quoted("allow"))]),
        GateVerdict::Edited(arguments, _) => {
            object(&[("decision", quoted("allow")), ("args", arguments.text().to_owned())])
        }
        GateVerdict::Denied(text) | GateVerdict::Undecided(text) => {
            object(&[("decision", quoted("deny")), ("reason", quoted(text))])
        }
        GateVerdict::NoRule => "{}".to_owned(),
    }
}

/// An object of values that are JSON already.
fn object(members: &[(&str, String)]) -> String {
    let members: Vec<String> =
        members.iter().map(|(name, value)| format!("{}:{value}", quoted(name))).collect();
    format!("{{{}}}", members.join(","))
}

fn quoted(text: &str) -> String {
    RawJson::string(text).text().to_owned()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use serde_json::value::RawValue;

    use super::super::event::read;
    use super::*;

    /// What each client sends before a call, and where it would ask its own user.
    fn sent(client: Client) -> Vec<&'static str> {
        match client {
            Client::ClaudeCode | Client::Codex => vec![
                r#"{"session_id":"s","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"rm x"},"tool_use_id":"t1"}"#,
                r#"{"session_id":"s","hook_event_name":"PermissionRequest","tool_name":"Bash","tool_input":{"command":"rm x"}}"#,
            ],
            Client::Copilot => vec![
                r#"{"sessionId":"s","cwd":"/w","toolName":"bash","toolArgs":"{\"command\":\"rm x\"}"}"#,
                r#"{"session_id":"s","hook_event_name":"PreToolUse","tool_name":"run","tool_input":{}}"#,
                r#"{"sessionId":"s","hookEventName":"permissionRequest","toolName":"bash","toolArgs":"{}"}"#,
            ],
            Client::Gemini => vec![
                r#"{"session_id":"s","hook_event_name":"BeforeTool","tool_name":"run_shell_command","tool_input":{"command":"rm x"}}"#,
            ],
            Client::Cursor => vec![
                r#"{"conversation_id":"s","hook_event_name":"beforeShellExecution","command":"rm x","cwd":"/w"}"#,
                r#"{"conversation_id":"s","hook_event_name":"beforeMCPExecution","tool_name":"pay","tool_input":"{\"n\":1.10}"}"#,
            ],
            Client::Opencode => vec![
                r#"{"sessionID":"s","event":"tool.execute.before","tool":"bash","args":{"command":"rm x"},"callID":"c1"}"#,
            ],
        }
    }

    /// What each client sends when dialogs of its own are gone.
    fn news(client: Client) -> Vec<&'static str> {
        match client {
            Client::ClaudeCode => vec![
                r#"{"session_id":"s","hook_event_name":"UserPromptSubmit","prompt":"p"}"#,
                r#"{"session_id":"s","hook_event_name":"SessionEnd","reason":"other"}"#,
                r#"{"session_id":"s","hook_event_name":"PostToolBatch","tool_calls":[{"tool_name":"Bash","tool_input":{}}]}"#,
                r#"{"session_id":"s","hook_event_name":"Stop"}"#,
                r#"{"session_id":"s","hook_event_name":"StopFailure"}"#,
                r#"{"session_id":"s","hook_event_name":"SubagentStop","agent_id":"a"}"#,
                r#"{"session_id":"s","hook_event_name":"Notification","message":"m"}"#,
            ],
            Client::Codex => vec![
                r#"{"session_id":"s","hook_event_name":"UserPromptSubmit","prompt":"p"}"#,
                r#"{"session_id":"s","hook_event_name":"Stop"}"#,
            ],
            Client::Copilot => vec![
                r#"{"sessionId":"s","hookEventName":"userPromptSubmitted","prompt":"p"}"#,
                r#"{"sessionId":"s","hookEventName":"agentStop"}"#,
                r#"{"sessionId":"s","hookEventName":"sessionEnd"}"#,
            ],
            Client::Cursor => vec![
                r#"{"conversation_id":"s","hook_event_name":"beforeSubmitPrompt","prompt":"p"}"#,
                r#"{"conversation_id":"s","hook_event_name":"stop","status":"completed"}"#,
                r#"{"conversation_id":"s","hook_event_name":"sessionEnd"}"#,
            ],
            Client::Gemini | Client::Opencode => Vec::new(),
        }
    }

    /// Every answer of every client, as a file that people can read; `STANDFAST_WRITE_EXPECTED=1` rewrites it.
    #[test]
    fn the_table_of_answers_is_the_golden_one() {
        let edited =
            |text: &str| GateVerdict::Edited(RawJson::parse(text).unwrap(), "run this instead".into());
        let verdicts = [
            ("approved", GateVerdict::Approved("yes".into())),
            ("edited", edited(r#"{"command":"ls","n":1.10}"#)),
            ("edited, all removed", edited("{}")),
            ("denied", GateVerdict::Denied("no \"way\"".into())),
            ("nobody yet", GateVerdict::Undecided("not yet".into())),
            ("no rule", GateVerdict::NoRule),
        ];
        let shown = |answer: String| if answer.is_empty() { "(nothing)".to_owned() } else { answer };
        for (client, name) in Client::ALL.into_iter().zip(Client::NAMES) {
            let mut table = String::new();
            for input in sent(client) {
                let fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(input).unwrap();
                let event = read(client, &fields).unwrap();
                writeln!(table, "# {input}").unwrap();
                for (case, verdict) in &verdicts {
                    let answer = shown(of(client, &event, verdict, Fallback::Deny));
                    writeln!(table, "{case}: {answer}").unwrap();
                }
                for then in [Fallback::Ask, Fallback::Defer] {
                    let answer = shown(of(client, &event, &verdicts[4].1, then));
                    writeln!(table, "nobody yet, then {}: {answer}", then.word()).unwrap();
                }
                for then in [Fallback::Deny, Fallback::Ask, Fallback::Defer, Fallback::Wait] {
                    let dialog = Dialog::of(client, &event.moment, then);
                    if dialog != Dialog::Nowhere {
                        writeln!(table, "its own dialog, then {}: {dialog:?}", then.word()).unwrap();
                    }
                }
            }
            for input in news(client) {
                let fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(input).unwrap();
                let event = read(client, &fields).unwrap();
                let answer = shown(to_news(client, &event).to_owned());
                writeln!(table, "# {input}\n{:?}: {answer}", event.moment).unwrap();
            }
            let file = format!("{}/src/hooks/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
            if std::env::var_os("STANDFAST_WRITE_EXPECTED").is_some() {
                std::fs::write(&file, &table).unwrap();
            }
            assert_eq!(std::fs::read_to_string(&file).unwrap_or_default(), table, "{name}");
        }
    }

    /// What is not JSON is a text, and said to be unreadable; numbers keep their digits; what is missing is named.
    #[test]
    fn events_are_read_as_they_came() {
        let read = |client, text: &str| {
            let fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text).unwrap();
            read(client, &fields)
        };
        let event = read(Client::Cursor, sent(Client::Cursor)[1]).unwrap();
        assert_eq!((event.arguments.text(), event.is_readable), (r#"{"n":1.10}"#, true));
        let odd = r#"{"sessionId":"s","toolName":"bash","toolArgs":"rm -rf /"}"#;
        let event = read(Client::Copilot, odd).unwrap();
        assert_eq!((event.arguments.text(), event.is_readable), (r#""rm -rf /""#, false));
        for (text, why) in [
            (r#"{"hook_event_name":"PreToolUse","tool_name":"t"}"#, "no session_id"),
            (r#"{"hook_event_name":"PreToolUse","session_id":"s"}"#, "no tool_name"),
        ] {
            assert!(read(Client::ClaudeCode, text).unwrap_err().contains(why), "{text}");
        }
        let other =
            read(Client::ClaudeCode, r#"{"hook_event_name":"SessionStart","session_id":"s"}"#).unwrap();
        assert_eq!(other.moment, Moment::Other);
    }
}

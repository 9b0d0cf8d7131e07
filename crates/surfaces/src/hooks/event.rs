//! What clients send to their hooks, read into one shape. Pure.
//!
//! Clients add fields as they like, so unknown ones are let be; what is missing is named. Arguments keep their text. Those
//! that are not JSON become a text, and their call is held whatever the rules say.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use standfast_core::body::Body;
use standfast_core::json::RawJson;
use standfast_engine::GateOutcome;

/// A coding agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Client {
    ClaudeCode,
    Codex,
    Copilot,
    Gemini,
    Cursor,
    Opencode,
}

impl Client {
    pub(super) const ALL: [Client; 6] = [
        Client::ClaudeCode,
        Client::Codex,
        Client::Copilot,
        Client::Gemini,
        Client::Cursor,
        Client::Opencode,
    ];
    pub(super) const NAMES: [&str; 6] = ["claude-code", "codex", "copilot", "gemini", "cursor", "opencode"];

    pub(super) fn named(name: &str) -> Option<Client> {
        let at = Client::NAMES.iter().position(|known| *known == name)?;
        Client::ALL.get(at).copied()
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Client::ClaudeCode => "Claude Code",
            Client::Codex => "Codex",
            Client::Copilot => "Copilot",
            Client::Gemini => "Gemini CLI",
            Client::Cursor => "Cursor",
            Client::Opencode => "opencode",
        }
    }
}

/// When the client asks, or what it tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Moment {
    /// Before a call runs.
    Before,
    /// Where the client would ask its own user.
    Permission,
    /// A call ran.
    After(GateOutcome),
    /// The client's own user refused a call.
    DecidedThere,
    /// Dialogs of the client are gone: its work went on, or ended.
    DialogsClosed(DialogReach),
    /// Nothing that is about a call.
    Other,
}

/// Which dialogs of a conversation an event shows to be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DialogReach {
    /// All of them: its user wrote something else, or left.
    All,
    /// Those of the agent that the event is from.
    OfAgent,
    /// That of one call.
    OfCall,
}

impl Moment {
    /// What calls without a name of their own are named after.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Moment::Permission => "permission",
            Moment::Before
            | Moment::After(_)
            | Moment::DecidedThere
            | Moment::DialogsClosed(_)
            | Moment::Other => "call",
        }
    }
}

/// What a hook was called with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HookEvent {
    /// What the client calls the event.
    pub(super) name: String,
    pub(super) moment: Moment,
    pub(super) tool: String,
    pub(super) arguments: RawJson,
    /// Whether the arguments were JSON.
    pub(super) is_readable: bool,
    pub(super) session: String,
    /// What the client calls the call; some have no name for it.
    pub(super) call: Option<String>,
    /// The agent that the conversation's own one started, if it is from one.
    pub(super) agent: Option<String>,
    pub(super) folder: Option<String>,
    pub(super) words: Option<String>,
}

type Fields = BTreeMap<String, Box<RawValue>>;

/// Where the tool of a call stands, and its input.
const TOOL: [&str; 3] = ["tool_name", "toolName", "tool"];
const INPUT: [&str; 3] = ["tool_input", "toolArgs", "args"];

/// The events about calls, for whoever sends another one.
const KNOWN: [&str; 19] = [
    "PreToolUse",
    "preToolUse",
    "BeforeTool",
    "beforeShellExecution",
    "beforeMCPExecution",
    "tool.execute.before",
    "PermissionRequest",
    "permissionRequest",
    "PostToolUse",
    "postToolUse",
    "PostToolUseFailure",
    "postToolUseFailure",
    "AfterTool",
    "afterShellExecution",
    "afterMCPExecution",
    "tool.execute.after",
    "PermissionDenied",
    "permissionDenied",
    "DialogClosed",
];

/// Whether an event is about a call. One that is, and has a name that nobody knows, is no news to be passed over.
fn is_about_a_call(fields: &Fields) -> bool {
    text(fields, &TOOL).is_some() && INPUT.iter().any(|key| fields.contains_key(*key))
}

/// Reads an event; why not, in words.
pub(super) fn read(client: Client, fields: &Fields) -> Result<HookEvent, String> {
    let name = text(fields, &["hook_event_name", "hookEventName", "event"])
        .unwrap_or_else(|| default_name(client, fields).to_owned());
    let moment = moment(&name, fields);
    let session = text(fields, &["session_id", "sessionId", "sessionID", "conversation_id"]);
    let call = text(fields, &["tool_use_id", "toolUseId", "callID", "tool_call_id"]);
    let agent = text(fields, &["agent_id", "agentId"]);
    let folder = text(fields, &["cwd"]);
    let words = text(fields, &["description"]);
    let empty = || RawJson::parse("{}").map_err(|bad| bad.to_string());
    if moment == Moment::Other && is_about_a_call(fields) {
        let known = KNOWN.join(", ");
        return Err(format!(
            "the event {name:?} has a tool and its input and is not known, so nobody can be asked about that call; the events are: \
             {known}"
        ));
    }
    let is_about_none = match moment {
        Moment::Other | Moment::DialogsClosed(DialogReach::All | DialogReach::OfAgent) => true,
        Moment::Before
        | Moment::Permission
        | Moment::After(_)
        | Moment::DecidedThere
        | Moment::DialogsClosed(DialogReach::OfCall) => false,
    };
    if is_about_none {
        let session = session.unwrap_or_default();
        let (tool, arguments) = (String::new(), empty()?);
        return Ok(HookEvent {
            name,
            moment,
            tool,
            arguments,
            is_readable: true,
            session,
            call,
            agent,
            folder,
            words,
        });
    }
    let session = session.ok_or("the hook's input has no session_id (sessionId, conversation_id)")?;
    let command = fields.get("command").filter(|_| name.ends_with("ShellExecution"));
    let (tool, arguments, is_readable) = match command {
        Some(command) => {
            let text = format!(r#"{{"command":{}}}"#, command.get());
            ("Shell".to_owned(), RawJson::parse(&text).map_err(|bad| bad.to_string())?, true)
        }
        None => {
            let tool = text(fields, &TOOL);
            let tool = tool.ok_or("the hook's input has no tool_name (toolName)")?;
            let given = INPUT.into_iter().find_map(|key| fields.get(key));
            let (arguments, is_readable) = match given {
                Some(given) => arguments(given)?,
                None => (empty()?, true),
            };
            (tool, arguments, is_readable)
        }
    };
    Ok(HookEvent { name, moment, tool, arguments, is_readable, session, call, agent, folder, words })
}

/// Arguments as they came; those that came as a text are what the text says, if that is JSON.
fn arguments(given: &RawValue) -> Result<(RawJson, bool), String> {
    let as_text: Option<String> = serde_json::from_str(given.get()).ok();
    match as_text {
        Some(text) => match RawJson::parse(&text) {
            Ok(json) => Ok((json, true)),
            Err(_) => Ok((RawJson::string(&text), false)),
        },
        None => RawJson::parse(given.get()).map(|json| (json, true)).map_err(|bad| bad.to_string()),
    }
}

/// Copilot says with nothing but its fields which hook it is.
fn default_name(client: Client, fields: &Fields) -> &'static str {
    match client {
        Client::Copilot if fields.contains_key("toolResult") => "postToolUse",
        Client::Copilot => "preToolUse",
        Client::ClaudeCode | Client::Codex | Client::Gemini | Client::Cursor | Client::Opencode => "",
    }
}

fn moment(name: &str, fields: &Fields) -> Moment {
    match name {
        "PreToolUse"
        | "preToolUse"
        | "BeforeTool"
        | "beforeShellExecution"
        | "beforeMCPExecution"
        | "tool.execute.before" => Moment::Before,
        "PermissionRequest" | "permissionRequest" => Moment::Permission,
        "PostToolUse"
        | "postToolUse"
        | "AfterTool"
        | "afterShellExecution"
        | "afterMCPExecution"
        | "tool.execute.after" => Moment::After(outcome(fields)),
        "PostToolUseFailure" | "postToolUseFailure" => {
            Moment::After(GateOutcome::Failed(said(fields, &["error", "tool_response"])))
        }
        "PermissionDenied" | "permissionDenied" => Moment::DecidedThere,
        "UserPromptSubmit" | "userPromptSubmitted" | "beforeSubmitPrompt" | "SessionEnd" | "sessionEnd" => {
            Moment::DialogsClosed(DialogReach::All)
        }
        // `standfast hook` says so when the client ends it beside a dialog.
        "DialogClosed" => Moment::DialogsClosed(DialogReach::OfCall),
        // Every call of the agent that ends, or of the batch, has come back.
        "PostToolBatch" | "Stop" | "StopFailure" | "SubagentStop" | "agentStop" | "subagentStop" | "stop" => {
            Moment::DialogsClosed(DialogReach::OfAgent)
        }
        _ => Moment::Other,
    }
}

/// What came of a call: an error if the client says so, what it returned otherwise.
fn outcome(fields: &Fields) -> GateOutcome {
    let has_failed = fields.get("error").is_some_and(|error| error.get() != "null" && error.get() != "\"\"");
    if has_failed {
        return GateOutcome::Failed(said(fields, &["error"]));
    }
    let keys = ["tool_response", "tool_output", "toolResult", "result_json", "output", "result"];
    GateOutcome::Succeeded(said(fields, &keys))
}

fn said(fields: &Fields, keys: &[&str]) -> Body {
    let found = keys.iter().find_map(|key| fields.get(*key));
    let Some(found) = found else { return Body::text("") };
    match serde_json::from_str::<String>(found.get()) {
        Ok(text) => Body::text(text),
        Err(_) => RawJson::parse(found.get()).map_or_else(|_| Body::text(found.get()), Body::Json),
    }
}

fn text(fields: &Fields, keys: &[&str]) -> Option<String> {
    let texts = keys.iter().filter_map(|key| serde_json::from_str::<String>(fields.get(*key)?.get()).ok());
    texts.into_iter().find(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What whoever sends another event is told is true.
    #[test]
    fn the_events_that_are_named_are_known() {
        for name in KNOWN {
            assert_ne!(moment(name, &Fields::new()), Moment::Other, "{name}");
        }
    }
}

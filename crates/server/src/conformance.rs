//! The conformance agent: what the public test kits of A2A drive a server with. Off unless the configuration says so.
//!
//! The kits choose what the agent does by how the id of a message begins (TCK) or its first words do (ACTS). What each
//! beginning means stands in the table here. `model.rs` does it in an ordinary run, and
//! `surface/a2a/conformance.rs` adds what no run can express.

mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use standfast_core::body::Body;
use standfast_core::command::SuspendFor;
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::hold::{Ask, HoldPolicy};
use standfast_core::id::Place;
use standfast_core::json::RawJson;
use standfast_core::message::ToolResult;
use standfast_core::name::{AgentName, BadName, ToolName};
use standfast_core::time::Millis;

use self::model::Follows;
use crate::auth::Approvers;
use crate::settings::{Agent, Passes, Settings, Streaming, Tracking};
use crate::tool::suspend::{self, SuspendForInput};
use crate::tool::{Invocation, Outcome, Pending, Running, Tool};

/// The agent's name.
pub const AGENT: &str = "conformance";

/// The tool whose calls wait for a login.
const LOGIN: &str = "wait-for-login";

/// The tool whose calls wait for an outside system that never reports.
const FOR_EVER: &str = "wait-for-ever";

/// The extension of the protocol that clients must know in the pass for it.
pub const REQUIRED_EXTENSION: &str = "urn:a2a:tck:required-extension";

/// The context that ACTS wants refused, where the TCK wants those of clients taken (CORE-CTX-001).
pub const REFUSED_CONTEXT: &str = "client-generated-context-that-should-be-rejected";

/// What the agent does with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// It works for a while, says something and completes.
    Says {
        /// How long it works.
        after: Millis,
        /// Its words; more than one piece is heard piece by piece.
        pieces: &'static [&'static str],
    },
    /// It makes something and completes.
    Makes(Made),
    /// It asks, and the next turn completes it.
    AsksOnce,
    /// It asks until somebody says `done`.
    AsksUntilDone,
    /// It waits for a login.
    AsksForLogin,
    /// It works until it is cancelled.
    WaitsForCancel,
    /// It fails.
    Fails,
    /// It will not do it.
    Rejects,
    /// It answers with a message, and there is no task.
    AnswersDirectly,
}

/// What the agent makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// A file, with its bytes.
    File,
    /// A file elsewhere.
    FileAtUrl,
    /// Structured content.
    Data,
}

const fn says(pieces: &'static [&'static str]) -> Behaviour {
    Behaviour::Says { after: Millis(0), pieces }
}

const fn works(ms: i64, pieces: &'static [&'static str]) -> Behaviour {
    Behaviour::Says { after: Millis(ms), pieces }
}

/// What the beginning of a message's id, or of its words, means. The longest that fits counts.
pub const TABLE: [(&str, Behaviour); 24] = [
    ("tck-complete-task", says(&["Hello from TCK"])),
    ("tck-input-required", Behaviour::AsksOnce),
    ("tck-auth-required", Behaviour::AsksForLogin),
    ("tck-delayed-complete", works(2_000, &["Done after delay"])),
    ("tck-reject-task", Behaviour::Rejects),
    ("tck-task-failure", Behaviour::Fails),
    ("tck-message-response", Behaviour::AnswersDirectly),
    ("tck-multi-turn", Behaviour::AsksUntilDone),
    ("tck-cancel", Behaviour::WaitsForCancel),
    ("tck-long-running", works(2_500, &["Done after a long run"])),
    ("tck-artifact-text", says(&["Generated text content"])),
    ("tck-artifact-file", Behaviour::Makes(Made::File)),
    ("tck-artifact-file-url", Behaviour::Makes(Made::FileAtUrl)),
    ("tck-artifact-data", Behaviour::Makes(Made::Data)),
    ("tck-stream-001", says(&["Stream hello from TCK"])),
    ("tck-stream-002", says(&[])),
    ("tck-stream-003", says(&["Stream task lifecycle"])),
    ("tck-stream-ordering-001", says(&["Ordered output"])),
    ("tck-stream-artifact-text", says(&["Streamed text content"])),
    ("tck-stream-artifact-file", Behaviour::Makes(Made::File)),
    ("tck-stream-artifact-chunked", says(&["chunk-1 ", "chunk-2"])),
    ("tck-stream-basic", says(&["Streamed content"])),
    ("tck-stream-chunked", says(&["chunk one ", "chunk two ", "chunk three"])),
    // Longer than twice what the kit waits for an event.
    ("test-resubscribe-message-id", works(4_500, &["Done after a resubscription"])),
];

/// Whatever the table has no beginning for: a task that can be continued and cancelled for a moment, then completes.
pub const ANYTHING_ELSE: Behaviour = works(1_000, &["Unhandled message, completed"]);

/// What a message chooses, by its id or by its first words; none when it chooses nothing.
#[must_use]
pub fn chosen(message_id: &str, first_words: &str) -> Option<Behaviour> {
    let fits = |text: &str| {
        let fitting = TABLE.iter().filter(|(prefix, _)| text.starts_with(prefix));
        fitting.max_by_key(|(prefix, _)| prefix.len()).map(|(_, behaviour)| *behaviour)
    };
    fits(message_id).or_else(|| fits(first_words.trim_start()))
}

/// Puts the agent into a server's settings, as the only one and at the root.
pub fn install(settings: &mut Settings, passes: Passes) -> Result<(), BadName> {
    let name = AgentName::new(AGENT)?;
    let purpose =
        "Answers the public conformance kits of A2A: what it does is chosen by how a message begins.";
    settings.purposes.insert(AGENT.to_owned(), purpose.to_owned());
    settings.agents.insert(name.clone(), Arc::new(agent(&name)?));
    settings.default_agent = Some(name);
    if passes.reduced_capabilities {
        settings.a2a.push_notifications = false;
        settings.a2a.streaming = false;
        settings.a2a.extended_card = false;
    }
    settings.conformance = Some(passes);
    Ok(())
}

fn agent(name: &AgentName) -> Result<Agent, BadName> {
    let login =
        Waits { kind: SuspendFor::Auth, question: "Log in out of band: this needs your authorization." };
    let for_ever = Waits { kind: SuspendFor::External, question: "Waits until it is cancelled." };
    let waits = |description: &str| ToolSpec { description: description.into(), ..SuspendForInput::spec() };
    let open = |spec: ToolSpec| ToolSpec { schema: any_object(), ..spec };
    let specs = BTreeMap::from([
        (ToolName::new(suspend::NAME)?, SuspendForInput::spec()),
        (ToolName::new(LOGIN)?, open(waits("Waits for a login."))),
        (ToolName::new(FOR_EVER)?, open(waits("Waits for an outside system that never reports."))),
    ]);
    let tools: BTreeMap<ToolName, Arc<dyn Tool>> = BTreeMap::from([
        (ToolName::new(suspend::NAME)?, Arc::new(SuspendForInput) as Arc<dyn Tool>),
        (ToolName::new(LOGIN)?, Arc::new(login) as Arc<dyn Tool>),
        (ToolName::new(FOR_EVER)?, Arc::new(for_ever) as Arc<dyn Tool>),
    ]);
    let definition = Definition {
        agent: name.clone(),
        prompt: String::new(),
        model: AGENT.into(),
        model_parameters: None,
        tools: specs,
        policy: None,
        sub_agents: Vec::new(),
        show_thinking: false,
        hold_batch: false,
        holds: HoldPolicy::default(),
    };
    Ok(Agent {
        digest: definition.digest(),
        definition: Arc::new(definition),
        model: Arc::new(Follows),
        tools,
        needs_approval: BTreeSet::new(),
        approvers: Approvers::default(),
        // The kits open many tasks and leave them.
        worker_pool: 1024,
        may_work: None,
        streaming: Streaming::On,
        tracking: Tracking::On,
        lives: Place::Durable,
        serves: None,
    })
}

fn any_object() -> RawJson {
    let Ok(schema) = RawJson::parse(r#"{"type":"object"}"#) else { unreachable!("the schema is a constant") };
    schema
}

/// A tool whose calls only wait. Nothing has happened yet, so a lost start is repeated.
struct Waits {
    kind: SuspendFor,
    question: &'static str,
}

impl Tool for Waits {
    fn run(&self, invocation: Invocation) -> Running {
        // After a login the call runs, as with every tool.
        if invocation.resumed.is_some() {
            let done = ToolResult::Ok(Body::text("somebody logged in"));
            return Box::pin(std::future::ready(Outcome::Done(done)));
        }
        let resume = match self.kind {
            SuspendFor::Auth => Some(Box::new(Body::text("asked for a login"))),
            SuspendFor::Input | SuspendFor::External => None,
        };
        let ask = Ask { question: Some(Body::text(self.question)), resume, ..Ask::default() };
        let pending = Pending { kind: self.kind, ask, timeout: None, secret: None };
        Box::pin(std::future::ready(Outcome::Pending(Box::new(pending))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_beginning_counts_and_ids_come_before_words() {
        for (prefix, behaviour) in TABLE {
            assert_eq!(chosen(&format!("{prefix}-1a2b"), "hello"), Some(behaviour), "TCK: {prefix}");
            assert_eq!(chosen("m-1", &format!("  {prefix} please")), Some(behaviour), "ACTS: {prefix}");
        }
        let both = chosen("tck-task-failure-1", "tck-complete-task");
        assert_eq!(both, Some(Behaviour::Fails));
        assert_eq!(chosen("m-1", "say tck-complete-task"), None);
        assert_eq!(chosen("", ""), None);
    }

    /// The list that ACTS is given says what there is, and all that it asks for.
    #[test]
    fn the_list_for_acts_is_right() {
        let list = include_str!("../../../examples/conformance/acts/sut-behaviors.yaml");
        let prefix = |line: &'static str| line.trim().strip_prefix("- prefix: \"")?.strip_suffix('"');
        let listed: Vec<&str> = list.lines().filter_map(prefix).collect();
        let known = |prefix: &&str| TABLE.iter().any(|(known, _)| known == prefix);
        assert!(listed.iter().all(known), "{listed:?}");
        // Those of the table that only the TCK has.
        let only_tck = |prefix: &str| {
            prefix.starts_with("tck-stream-0")
                || prefix.starts_with("tck-stream-artifact")
                || ["tck-delayed-complete", "tck-stream-ordering-001", "test-resubscribe-message-id"]
                    .contains(&prefix)
        };
        let wanted = TABLE.iter().filter(|(prefix, _)| !only_tck(prefix)).count();
        assert_eq!(listed.len(), wanted);
    }
}

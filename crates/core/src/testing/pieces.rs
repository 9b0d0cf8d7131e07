//! What stories are made of: names, values, replies, an agent.
//!
//! Plain values, each with a name that a test can read; the run that they meet is in `testing.rs`.

use std::collections::BTreeMap;

use crate::actor::Actor;
use crate::body::Body;
use crate::command::{AskedCall, Context, Entropy, Limits, RecordReply, Suspend, SuspendFor};
use crate::definition::{Definition, ToolSpec};
use crate::hold::{Ask, HoldPolicy, OnTimeout};
use crate::id::CallNo;
use crate::json::RawJson;
use crate::message::{Replay, Usage};
use crate::name::{AgentName, ToolName, UserId, WorkerName};
use crate::policy::Verdicts;
use crate::run::PromptBasis;
use crate::time::{Millis, Timestamp};

pub(crate) fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

pub(crate) fn tool(name: &str) -> ToolName {
    ToolName::new(name).unwrap()
}

pub(crate) fn worker() -> WorkerName {
    WorkerName::new("w1").unwrap()
}

pub(crate) fn json(text: &str) -> RawJson {
    RawJson::parse(text).unwrap()
}

pub(crate) fn body(text: &str) -> Body {
    Body::Json(json(text))
}

/// A reply of the model, for tests that need more of it than words and calls.
pub(crate) fn reply(heard: PromptBasis, text: &str, calls: &[(&str, &str)]) -> RecordReply {
    RecordReply {
        text: (!text.is_empty()).then(|| text.to_owned()),
        parts: Vec::new(),
        calls: calls.iter().enumerate().map(|(at, call)| asked(at, call)).collect(),
        opaque: None,
        usage: Usage { input: 10, output: 5, cost_micros: 0 },
        model: None,
        heard,
    }
}

/// A wait for something outside.
pub(crate) fn suspension(call: CallNo, kind: SuspendFor) -> Suspend {
    let (ask, timeout, secret, worker) = (Ask::default(), None, None, None);
    Suspend { call, attempt: 0, kind, ask, timeout, secret, worker }
}

pub(super) fn context<'a>(
    now: Timestamp,
    actor: Actor,
    definition: &'a Definition,
    verdicts: &'a Verdicts,
    limits: &'a Limits,
) -> Context<'a> {
    let (authority, recorded) = (None, None);
    let entropy = Entropy([0; 32]);
    Context {
        now,
        entropy,
        actor,
        definition,
        verdicts,
        authority,
        counts_for: &[],
        recorded,
        limits,
        origin: None,
    }
}

pub(super) fn asked(at: usize, (tool, arguments): &(&str, &str)) -> AskedCall {
    AskedCall { id: format!("p{at}"), tool: (*tool).into(), arguments: (*arguments).into(), problem: None }
}

pub(super) fn definition() -> Definition {
    let tools = ["read", "write", "deploy", "banned"].map(|name| {
        let replay = if name == "read" { Replay::Idempotent } else { Replay::Never };
        let schema = json(r#"{"type":"object"}"#);
        let (description, approval_prompt, holds) = (name.to_owned(), None, None);
        (tool(name), ToolSpec { description, schema, replay, reversible: false, approval_prompt, holds })
    });
    Definition {
        agent: AgentName::new("assistant").unwrap(),
        prompt: "Be tidy.".into(),
        model: "model-1".into(),
        model_parameters: None,
        tools: BTreeMap::from(tools),
        policy: None,
        sub_agents: vec![AgentName::new("helper").unwrap()],
        show_thinking: true,
        hold_batch: false,
        holds: HoldPolicy {
            on_timeout: OnTimeout::ResumeWithError,
            timeout: Some(Millis::hours(100)),
            ..HoldPolicy::default()
        },
    }
}

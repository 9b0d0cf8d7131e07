//! What a call through a gateway needs before it may run: a gate, a decision, a start; and its outcome after it.
//!
//! The same call of the same user attaches to the gate that is there, on any node and after any restart. What each answer looks
//! like is `call.rs`; gates are the engine's.

use std::sync::Arc;

use serde_json::value::RawValue;
use standfast_core::body::Body;
use standfast_core::digest::{self, Digest};
use standfast_core::hold::OnTimeout;
use standfast_core::id::RunId;
use standfast_core::json::RawJson;
use standfast_core::message::{Message, Part, ToolResult};
use standfast_core::name::{SessionId, ToolName};
use standfast_core::policy::Effect;
use standfast_core::time::Millis;
use standfast_engine::auth::Principal;
use standfast_engine::clock::random_bytes;
use standfast_engine::upstream::Gateway;
use standfast_engine::{GateError, GateOutcome, GateState, GateView, LookedUpGate, NewGate};

use super::super::message::{CallRequest, ListedTool};
use super::super::tasks;
use super::memory::Memory;
use crate::http::{App, gate_text, gate_url, gate_value, refusal};

/// How long a call may run before a person is asked what became of it: a gateway that was killed says nothing. An outcome that
/// comes later answers that question.
const LEASE: Millis = Millis::hours(1);

/// How long a denial answers the same call without asking anybody again.
const DENIED_FOR: Millis = Millis::hours(24);

/// What stands before the number of a repeat in the name of a gate that a repeat finds.
const REPEAT: char = '#';

/// How often what came of a call is told to a store that is away.
const REPORTS: u32 = 20;

/// Asks about calls, for one user of one gateway.
#[derive(Clone)]
pub(super) struct Keeper {
    pub(super) app: App,
    pub(super) who: Principal,
    pub(super) gateway: Arc<Gateway>,
    pub(super) memory: Arc<Memory>,
    /// The address that people reach this server by.
    pub(super) site: String,
}

/// A start of a call, durably.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Permit {
    pub(super) gate: RunId,
    pub(super) attempt: u32,
    /// Whether a repeat of the call finds this gate.
    pub(super) is_found_again: bool,
}

impl Permit {
    /// The start of a call, of which its gate knows whether a repeat finds it.
    pub(super) fn of(view: &GateView, attempt: u32) -> Permit {
        Permit { gate: view.gate, attempt, is_found_again: view.call.contains(REPEAT) }
    }
}

/// Why a call was not started.
pub(super) enum StartError {
    /// Somebody else started it, or it may not start any more: the gate says which.
    Elsewhere,
    /// In words.
    Failed(String),
}

impl Keeper {
    /// What rules know the tool as.
    pub(super) fn tool(&self, call: &CallRequest) -> String {
        format!("mcp__{}__{}", self.gateway.name, call.tool)
    }

    /// The gate of a call: the one that is there for it, or a new one.
    pub(super) async fn attach(
        &self,
        call: &CallRequest,
        listed: Option<&ListedTool>,
        client: &str,
    ) -> Result<LookedUpGate, String> {
        let mut new = self.new_gate(call, listed, client)?;
        let gates = self.app.engine.gates();
        let parts = [self.gateway.name.as_bytes(), call.tool.as_bytes(), call.arguments.get().as_bytes()];
        let key = digest::of_parts("standfast.mcp-gateway.1", &parts);
        // Where rules decide alone nobody comes back for a decision, and nothing has to be looked for.
        let rule = gates.by_a_rule(&self.who, &new.tool, new.arguments.text(), &new.session);
        if matches!(rule, Some(Effect::Allow | Effect::Deny)) {
            new.call = format!("{key}/{:032x}", u128::from_be_bytes(random_bytes()));
            return self.opened(new).await;
        }
        let name = |no: u32| format!("{key}{REPEAT}{no}");
        let last = gates.last_repeat(&self.who, &new, name).await.map_err(|error| self.words(&error))?;
        let mut no = 1;
        if let Some((last, gate)) = last {
            let view = self.look(gate).await?;
            if !self.is_used_up(&view).await? {
                return Ok(view);
            }
            no = last.saturating_add(1);
        }
        new.call = name(no);
        self.opened(new).await
    }

    /// Whether the next such call is another wish.
    async fn is_used_up(&self, view: &GateView) -> Result<bool, String> {
        Ok(match view.state {
            GateState::Held | GateState::Allowed | GateState::Started => false,
            GateState::Done if self.memory.is_handed_out(view.gate) => true,
            // Also at another node, and by one that was killed: nobody has it unless somebody says so.
            GateState::Done => {
                let gates = self.app.engine.gates();
                !gates.awaits_reader(&self.who, view).await.map_err(|error| self.words(&error))?
            }
            GateState::Expired | GateState::Withdrawn => true,
            // Approved, and nobody came for it in time; otherwise a person is asked what it did.
            GateState::OutcomeUnknown => view.attempt.is_none(),
            GateState::Denied => {
                let now = self.app.engine.clock().now();
                view.decision.as_ref().is_none_or(|decision| now.since(decision.at) > DENIED_FOR)
            }
        })
    }

    fn new_gate(
        &self,
        call: &CallRequest,
        listed: Option<&ListedTool>,
        client: &str,
    ) -> Result<NewGate, String> {
        let tool = ToolName::new(self.tool(call)).map_err(|why| format!("the tool has no name: {why}"))?;
        let arguments = RawJson::parse(call.arguments.get())
            .map_err(|why| format!("its arguments cannot be judged: {why}"))?;
        let session = SessionId::new(format!("mcp/{}", self.gateway.name)).map_err(|why| why.to_string())?;
        let client = if client.is_empty() { "an MCP client" } else { client };
        let mut text = format!("The agent {client} asks before it runs {tool}.");
        let hints = listed.map(|tool| tool.annotations.in_words()).unwrap_or_default();
        if !hints.is_empty() {
            text.push_str(&format!("\n\nThe tool says of itself: {hints}."));
        }
        Ok(NewGate {
            tool,
            arguments,
            schema: None,
            session,
            call: String::new(),
            message: Message::of(vec![Part::Text(Body::text(text))]),
            deadline: None,
            on_deadline: OnTimeout::Deny,
            asks: Effect::Allow,
            question: None,
            is_destructive: listed.is_some_and(|tool| tool.annotations.is_destructive()),
        })
    }

    async fn opened(&self, new: NewGate) -> Result<LookedUpGate, String> {
        let opened = self.app.engine.gates().open(&self.who, vec![new], None).await;
        let opened = opened.map_err(|error| self.words(&error))?;
        let opened = opened.first().ok_or_else(|| "no gate was opened".to_owned())?;
        self.look(opened.gate).await
    }

    /// A gate as it stands.
    pub(super) async fn look(&self, gate: RunId) -> Result<LookedUpGate, String> {
        self.app.engine.gates().look(&self.who, gate).await.map_err(|error| self.words(&error))
    }

    /// A gate as soon as it is in none of these states, or as it stands after so long.
    pub(super) async fn past(
        &self,
        states: &[GateState],
        gate: RunId,
        at_most: Millis,
    ) -> Result<LookedUpGate, String> {
        let gates = self.app.engine.gates();
        gates.past(states, &self.who, gate, at_most).await.map_err(|error| self.words(&error))
    }

    /// Says that the call begins: once, and never again.
    pub(super) async fn start(&self, view: &LookedUpGate) -> Result<Permit, StartError> {
        match self.app.engine.gates().start_on(&self.who, view, LEASE).await {
            Ok(started) => Ok(Permit::of(view, started.attempt)),
            Err(GateError::Engine(error)) => Err(StartError::Failed(self.words(&error))),
            Err(
                GateError::AlreadyStarted { .. }
                | GateError::WrongState { .. }
                | GateError::OtherDigest { .. },
            ) => Err(StartError::Elsewhere),
        }
    }

    /// Whether the answer to what the server asked first may be handed on: once, on any node.
    pub(super) async fn hands_on(&self, gate: RunId, attempt: u32, question: Digest) -> Result<bool, String> {
        let gates = self.app.engine.gates();
        gates.hands_on(&self.who, gate, attempt, question).await.map_err(|error| self.words(&error))
    }

    /// Says what came of a call; tries for a while, as nobody else knows.
    pub(super) async fn report(&self, permit: Permit, outcome: GateOutcome) {
        for no in 1..=REPORTS {
            let gates = self.app.engine.gates();
            match gates.report(&self.who, permit.gate, Some(permit.attempt), outcome.clone(), None).await {
                Ok(()) => return,
                Err(GateError::Engine(standfast_engine::EngineError::Store(_))) if no < REPORTS => {
                    self.app.engine.clock().sleep(Millis::seconds(1)).await;
                }
                Err(error) => {
                    tracing::warn!(gate = %permit.gate, %error, "mcp: the outcome of a call was not recorded");
                    return;
                }
            }
        }
    }

    /// The call was not sent: what was approved may be started by the next who asks the same.
    pub(super) async fn give_back(&self, permit: Permit) {
        let outcome = if permit.is_found_again { GateOutcome::GivenBack } else { GateOutcome::NotExecuted };
        self.report(permit, outcome).await;
    }

    /// Somebody has the result of a call: the next who asks the same means another one.
    pub(super) async fn handed_out(&self, permit: Permit) {
        if !permit.is_found_again {
            return;
        }
        self.memory.hand_out(permit.gate);
        if let Err(error) = self.app.engine.gates().note_taken(&self.who, permit.gate).await {
            tracing::debug!(gate = %permit.gate, %error, "mcp: could not note who has a result; it will be sent again");
        }
    }

    /// The sentence for the model.
    pub(super) fn text(&self, view: &GateView) -> String {
        gate_text(view, &self.site)
    }

    /// Where a person decides.
    pub(super) fn url(&self, view: &GateView) -> Option<String> {
        gate_url(view, &self.site)
    }

    pub(super) fn words(&self, error: &standfast_engine::EngineError) -> String {
        refusal::problem(None, error).detail
    }
}

/// What is kept of a call's result, as it was written.
pub(super) fn kept(text: &RawValue) -> Body {
    RawJson::parse(text.get()).map_or_else(|_| Body::text(text.get()), Body::Json)
}

/// The stored result of a call that has run, as it was written, and whether it is an error of the protocol.
pub(super) fn stored(view: &GateView) -> Option<(Box<RawValue>, bool)> {
    let (ToolResult::Ok(body) | ToolResult::Failed(body)) = view.result.as_ref()?;
    let value = gate_value(body);
    let is_error = tasks::is_protocol_error(&value);
    Some((value, is_error))
}

/// The same as the answer to the request with this id.
pub(super) fn stored_answer(view: &GateView, id: &RawValue) -> Option<String> {
    let (value, is_error) = stored(view)?;
    let member = if is_error { "error" } else { "result" };
    Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"{member}":{value}}}"#))
}

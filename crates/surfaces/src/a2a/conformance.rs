//! What conformance kits want of an agent that no run can express: an answer without a task, a context that is refused,
//! tokens of their own, an extension that clients must know.
//!
//! Without `server.conformance` nothing here has any effect. What the kits choose is `table.rs`.

mod table;

use axum::http::{HeaderMap, StatusCode, header};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use standfast_engine::settings::Settings;

use super::error::{A2aError, Kind};
use super::negotiate::{EXTENSIONS_HEADER, lists};
use super::operations::{Asked, Operation};
use super::wire::{self, AgentExtension, Role};
use crate::http::{More, Problem};

pub use table::{AGENT, ANYTHING_ELSE, Behaviour, Made, REFUSED_CONTEXT, REQUIRED_EXTENSION, TABLE, chosen};

/// The token that opens everything.
const VALID: &str = "itk-valid-token";
/// The token of somebody who is known and may nothing.
const INSUFFICIENT: &str = "itk-insufficient-token";

/// Lets a request in, or says why not: in the pass for it, every request needs the token.
pub(super) fn door(settings: &Settings, headers: &HeaderMap) -> Result<(), Problem> {
    match settings.conformance {
        Some(passes) if passes.auth => known(headers),
        Some(_) | None => Ok(()),
    }
}

/// Whether an operation may be: the extended card is never for those who are not known, and whoever sends must know the
/// extension that is required.
pub(super) fn check(settings: &Settings, headers: &HeaderMap, operation: &Operation) -> Result<(), A2aError> {
    let Some(passes) = settings.conformance else { return Ok(()) };
    match operation {
        Operation::ExtendedCard(_) if settings.a2a.extended_card => {
            known(headers).map_err(|problem| A2aError::from(&problem))
        }
        Operation::Send(_) | Operation::Stream(_)
            if passes.required_extension && !lists(headers, EXTENSIONS_HEADER, REQUIRED_EXTENSION) =>
        {
            let message = format!("name the extension {REQUIRED_EXTENSION} in the header A2A-Extensions");
            Err(A2aError::new(Kind::ExtensionSupportRequired, message))
        }
        Operation::Send(_)
        | Operation::Stream(_)
        | Operation::Get(_)
        | Operation::List(_)
        | Operation::Cancel(_)
        | Operation::Subscribe(_)
        | Operation::ExtendedCard(_)
        | Operation::CreatePush(_)
        | Operation::GetPush(_)
        | Operation::ListPush(_)
        | Operation::DeletePush(_) => Ok(()),
    }
}

fn known(headers: &HeaderMap) -> Result<(), Problem> {
    let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    match shown.and_then(|shown| shown.strip_prefix("Bearer ")) {
        Some(VALID) => Ok(()),
        Some(INSUFFICIENT) => {
            let detail = "this token is known and opens nothing";
            Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", "Not allowed", detail))
        }
        Some(_) | None => {
            let detail = format!("send `Authorization: Bearer {VALID}`, the token of the conformance kits");
            let problem = Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "Who are you?", detail);
            Err(problem.with(More { challenges: &["Bearer"], ..More::default() }))
        }
    }
}

/// The extension that a card says clients must know.
pub(super) fn extension(settings: &Settings) -> Option<AgentExtension> {
    let is_required = settings.conformance.is_some_and(|passes| passes.required_extension);
    is_required.then_some(AgentExtension {
        uri: REQUIRED_EXTENSION,
        description: "Clients must name it, for the test of required extensions.",
        required: true,
    })
}

/// The answer to a message that wants one without a task.
pub(super) fn direct(asked: &Asked, said: &wire::Message) -> Option<wire::Message> {
    let begins_a_task = said.task_id.as_deref().unwrap_or_default().is_empty();
    if !asked.is_for_kits() || !begins_a_task || choice(said) != Some(Behaviour::AnswersDirectly) {
        return None;
    }
    let entropy = asked.app.engine.clock().entropy();
    let random = |what| BASE64_URL_SAFE_NO_PAD.encode(entropy.draw(what, 0).0);
    let context = said.context_id.clone().filter(|id| !id.is_empty());
    Some(wire::Message {
        message_id: random("message"),
        context_id: Some(context.unwrap_or_else(|| random("context"))),
        task_id: None,
        role: Role::Agent,
        parts: vec![wire::Part::text("Direct message response")],
        metadata: None,
        extensions: None,
        reference_task_ids: None,
    })
}

/// Refuses the one context that ACTS wants refused.
pub(super) fn refuse_context(asked: &Asked, said: &wire::Message) -> Result<(), A2aError> {
    match asked.is_for_kits() && said.context_id.as_deref() == Some(REFUSED_CONTEXT) {
        true => Err(A2aError::invalid("message.contextId", "is not accepted by this agent; leave it out")),
        false => Ok(()),
    }
}

/// Whether a message takes the place of what was asked rather than answering it: the kits' next message chooses what
/// happens next, by its own id.
pub(super) fn supersedes(asked: &Asked, said: &wire::Message) -> bool {
    asked.is_for_kits() && said.parts.iter().all(|part| part.data.is_none())
}

fn choice(said: &wire::Message) -> Option<Behaviour> {
    let first_words = said.parts.first().and_then(|part| part.text.as_deref()).unwrap_or_default();
    chosen(&said.message_id, first_words)
}

impl Asked {
    fn is_for_kits(&self) -> bool {
        self.agent.as_str() == AGENT && self.app.engine.settings().conformance.is_some()
    }
}

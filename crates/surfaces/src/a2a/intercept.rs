//! Where an interceptor of the settings is asked: before a request, before a message, and for the card.
//!
//! `standfast` sets none, and then nothing here has any effect. What an interceptor may decide is `A2aInterceptor`.

use axum::http::{HeaderMap, StatusCode, header};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};

use super::error::{A2aError, Kind};
use super::negotiate::{EXTENSIONS_HEADER, lists};
use super::operations::{Operation, OperationContext};
use super::wire::{self, AgentExtension, Role};
use crate::http::{Problem, ProblemDetails};
use standfast_engine::settings::{A2aDenial, A2aMessage, A2aResource, MessageRoute, Settings};

/// Lets a request pass, or says why not.
pub(super) fn authorize(settings: &Settings, headers: &HeaderMap) -> Result<(), Problem> {
    authorize_for(settings, headers, A2aResource::Any)
}

/// Whether an operation may be performed: the extended card may need a credential, and whoever sends messages may have to
/// declare an extension.
pub(super) fn check(settings: &Settings, headers: &HeaderMap, operation: &Operation) -> Result<(), A2aError> {
    let Some(interceptor) = &settings.a2a_interceptor else { return Ok(()) };
    match operation {
        Operation::ExtendedCard(_) if settings.a2a.extended_card => {
            let authorized = authorize_for(settings, headers, A2aResource::ExtendedCard);
            authorized.map_err(|problem| A2aError::from(&problem))
        }
        Operation::Send(_) | Operation::Stream(_) => match interceptor.required_extension() {
            Some(extension) if !lists(headers, EXTENSIONS_HEADER, extension.uri) => {
                let message = format!("declare the extension {} in the header A2A-Extensions", extension.uri);
                Err(A2aError::new(Kind::ExtensionSupportRequired, message))
            }
            Some(_) | None => Ok(()),
        },
        Operation::Get(_)
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

/// Whether the interceptor lets nobody without a credential see the extended card.
pub(super) fn guards_extended_card(settings: &Settings) -> bool {
    authorize_for(settings, &HeaderMap::new(), A2aResource::ExtendedCard).is_err()
}

fn authorize_for(settings: &Settings, headers: &HeaderMap, resource: A2aResource) -> Result<(), Problem> {
    let Some(interceptor) = &settings.a2a_interceptor else { return Ok(()) };
    let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = authorization.and_then(|value| value.strip_prefix("Bearer "));
    interceptor.authorize(bearer, resource).map_err(|denial| match denial {
        A2aDenial::Forbidden(detail) => {
            Problem::new(StatusCode::FORBIDDEN, "forbidden", "Not allowed", detail)
        }
        A2aDenial::Unauthenticated(detail) => {
            let title = "Authentication required";
            let problem = Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", title, detail);
            problem.with(ProblemDetails { challenges: &["Bearer"], ..ProblemDetails::default() })
        }
    })
}

/// The extension that a card says clients must declare.
pub(super) fn extension(settings: &Settings) -> Option<AgentExtension> {
    let required = settings.a2a_interceptor.as_ref()?.required_extension()?;
    Some(AgentExtension { uri: required.uri, description: required.description, required: true })
}

/// How the card describes the credential that the interceptor wants of every request.
pub(super) fn credential(settings: &Settings) -> Option<&'static str> {
    settings.a2a_interceptor.as_ref()?.credential()
}

/// The reply to a message that gets one without a task.
pub(super) fn reply(asked: &OperationContext, said: &wire::Message) -> Option<wire::Message> {
    let MessageRoute::Reply(text) = route(asked, said) else { return None };
    let entropy = asked.app.engine.clock().entropy();
    let random = |what| BASE64_URL_SAFE_NO_PAD.encode(entropy.draw(what, 0).0);
    let context = said.context_id.clone().filter(|id| !id.is_empty());
    Some(wire::Message {
        message_id: random("message"),
        context_id: Some(context.unwrap_or_else(|| random("context"))),
        task_id: None,
        role: Role::Agent,
        parts: vec![wire::Part::text(text)],
        metadata: None,
        extensions: None,
        reference_task_ids: None,
    })
}

/// Refuses a context that the interceptor does not accept.
pub(super) fn refuse_context(asked: &OperationContext, said: &wire::Message) -> Result<(), A2aError> {
    if route(asked, said) == MessageRoute::RefuseContext {
        return Err(A2aError::invalid("message.contextId", "is not accepted by this agent; leave it out"));
    }
    Ok(())
}

/// Whether a message supersedes what was asked rather than answering it.
pub(super) fn supersedes(asked: &OperationContext, said: &wire::Message) -> bool {
    route(asked, said) == MessageRoute::Supersede
}

fn route(asked: &OperationContext, said: &wire::Message) -> MessageRoute {
    let settings = asked.app.engine.settings();
    let Some(interceptor) = &settings.a2a_interceptor else { return MessageRoute::Engine };
    let message = A2aMessage {
        id: &said.message_id,
        task: said.task_id.as_deref().filter(|id| !id.is_empty()),
        context: said.context_id.as_deref(),
        first_text: said.parts.first().and_then(|part| part.text.as_deref()).unwrap_or_default(),
        has_data: said.parts.iter().any(|part| part.data.is_some()),
    };
    interceptor.route(&asked.agent, &message)
}

//! A2A as older clients speak it: version 0.3 over JSON-RPC, HTTP+JSON and gRPC, and the dialect of Hector's users (C3).
//!
//! Everything is translated here, at the edge, onto the operations of 1.0; nothing behind it knows that there are older
//! versions. A client is known, in this order, by what its header says, by the address (`…/v1/…`), by the name of the
//! JSON-RPC method, and by the body. What `rpc.rs` and `rest.rs` write is `map.rs`; the dialect is `dialect.rs`. 0.3 over gRPC has
//! a service of its own, `grpc.rs`.

pub(super) mod card;
mod dialect;
mod error;
mod grpc;
mod map;
mod rest;
mod rpc;
#[cfg(test)]
mod tests;
mod wire;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use serde::Deserialize;
use serde_json::value::RawValue;
use standfast_core::digest;

use self::map::Form;
use super::error::{A2aError, Kind};
use super::operations::{Operation, OperationContext, OperationResult, perform};
use super::rest::{Path, PathTarget, Target, target};
use super::wire::{GetTaskRequest, StreamResponse, Task};
use super::{jsonrpc, negotiate, routes};
use crate::http::{App, body_bytes};

/// The header with the extensions that a client wants, as 0.3 calls it.
const EXTENSIONS_HEADER: &str = "x-a2a-extensions";

/// Whether a request was one of an older client.
pub(super) enum LegacyOutcome {
    /// It was, and this is the answer.
    Answered(Response),
    /// It was not; here it is again, as it came.
    Newer(Request),
}

/// A request, read whole.
struct LegacyRequest {
    parts: Parts,
    body: Vec<u8>,
}

/// Which older way of speaking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaks {
    /// 0.3 over JSON-RPC.
    Rpc,
    /// 0.3 over HTTP+JSON.
    Rest,
    /// The dialect.
    Dialect,
}

/// Answers a request of an older client; gives any other back.
pub(super) async fn take(app: &App, request: Request) -> LegacyOutcome {
    let said = negotiate::said(request.headers(), request.uri());
    let is_older = negotiate::is_patch_of(&said, negotiate::V03);
    if !is_older && !said.is_empty() {
        return LegacyOutcome::Newer(request);
    }
    let activated = activated(request.headers());
    let (speaks, target, heard) = match older_target(request.uri().path()) {
        Some(target) => match hear(request).await {
            Ok(heard) => (Some(Speaks::Rest), target, heard),
            Err(refused) => return LegacyOutcome::Answered(rest::refuse(&refused)),
        },
        None => {
            let target = target(request.uri().path());
            match &target.what {
                PathTarget::Rpc | PathTarget::Operation(_) => {}
                PathTarget::Card | PathTarget::Nothing => return LegacyOutcome::Newer(request),
            }
            let media = negotiate::answer_type(request.headers());
            match hear(request).await {
                Ok(heard) => (speaks(&target, &heard.body, is_older), target, heard),
                Err(refused) if target.what == PathTarget::Rpc => {
                    return LegacyOutcome::Answered(jsonrpc::refuse(&jsonrpc::null(), &refused));
                }
                Err(refused) => return LegacyOutcome::Answered(super::rest::refuse(media, &refused)),
            }
        }
    };
    let mut answer = match speaks {
        None => return LegacyOutcome::Newer(Request::from_parts(heard.parts, Body::from(heard.body))),
        Some(Speaks::Rpc) => rpc::answer(app, &target, &heard).await,
        Some(Speaks::Rest) => rest::answer(app, target, &heard).await,
        Some(Speaks::Dialect) => dialect::answer(app, target, &heard).await,
    };
    if let Some(activated) = activated {
        answer.headers_mut().insert(EXTENSIONS_HEADER, HeaderValue::from_static(activated));
    }
    LegacyOutcome::Answered(answer)
}

/// Whether an address is one of 0.3 alone, and so are its errors.
pub(super) fn is_addressed(path: &str) -> bool {
    older_target(path).is_some()
}

/// A no in the words of 0.3 over HTTP+JSON.
pub(super) fn refuse(error: &A2aError) -> Response {
    rest::refuse(error)
}

/// Where a path of 0.3 leads: those of 1.0 behind `/v1`, and the card.
fn older_target(path: &str) -> Option<Target> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (front, behind) = match segments.as_slice() {
        ["v1", "agents", agent, "v1", behind @ ..] => (format!("/v1/agents/{agent}"), behind),
        ["v1", "agents", ..] => return None,
        ["v1", behind @ ..] => (String::new(), behind),
        _ => return None,
    };
    let target = match behind {
        ["card"] => target(&format!("{front}/extendedAgentCard")),
        ["extendedAgentCard"] => return None,
        behind => target(&format!("{front}/{}", behind.join("/"))),
    };
    matches!(target.what, PathTarget::Operation(_)).then_some(target)
}

/// The routes of 0.3 over gRPC.
pub(super) fn grpc_routes(app: &App) -> Router<App> {
    grpc::routes(app)
}

/// Whether an address is the service of 0.3 over gRPC.
pub(super) fn is_grpc(path: &str) -> bool {
    path.starts_with(grpc::PATH)
}

/// How a request speaks, by its address and its body; none for 1.0.
fn speaks(target: &Target, body: &[u8], says_older: bool) -> Option<Speaks> {
    #[derive(Deserialize)]
    struct RequestHead<'a> {
        method: Option<String>,
        #[serde(borrow)]
        request: Option<&'a RawValue>,
    }
    let seen = serde_json::from_slice::<RequestHead<'_>>(body).ok();
    let PathTarget::Operation(path) = &target.what else {
        // Methods of 0.3 have a slash.
        let is_slashed = |method: &String| method.contains('/');
        let has_older_name = seen.as_ref().and_then(|seen| seen.method.as_ref()).is_some_and(is_slashed);
        return (says_older || has_older_name).then_some(Speaks::Rpc);
    };
    let is_said = match path {
        Path::Send | Path::Stream => seen.is_some_and(|seen| seen.request.is_some()),
        Path::Tasks | Path::Task(_) | Path::Cancel(_) | Path::Subscribe(_) => body.is_empty(),
        Path::PushConfigs(_) | Path::PushConfig(_, _) | Path::ExtendedCard => return None,
    };
    (target.agent.is_some() && (says_older || is_said)).then_some(Speaks::Dialect)
}

async fn hear(request: Request) -> Result<LegacyRequest, A2aError> {
    let (parts, body) = request.into_parts();
    let whole = Request::from_parts(parts.clone(), body);
    let body = body_bytes(whole).await.map_err(|problem| A2aError::from(&problem))?;
    Ok(LegacyRequest { parts, body })
}

impl LegacyRequest {
    /// Who asks; `members` are those of the operation, to know a repeat by.
    fn asked(
        &self,
        app: &App,
        target: &Target,
        operation: &Operation,
        members: &[u8],
    ) -> Result<OperationContext, A2aError> {
        let caller = routes::Caller::of(&self.parts.extensions);
        routes::asked(app, &self.parts.headers, caller, target, operation, digest::of_bytes(members))
    }

    /// Does what is asked, for whoever asks.
    async fn perform(
        &self,
        app: &App,
        target: &Target,
        operation: Operation,
        members: &[u8],
    ) -> Result<LegacyResult, A2aError> {
        perform_older(self.asked(app, target, &operation, members)?, operation).await
    }
}

/// Does what is asked, as 0.3 has it: a task that has ended can still be subscribed to. It is shown, and that is all.
async fn perform_older(mut asked: OperationContext, operation: Operation) -> Result<LegacyResult, A2aError> {
    asked.version = negotiate::V03;
    let Operation::Subscribe(request) = &operation else {
        // Elsewhere than on the stack, which has what this version adds above it: unoptimised it would be full.
        return Box::pin(perform(asked, operation)).await.map(LegacyResult::Done);
    };
    let get = GetTaskRequest { tenant: None, id: request.id.clone(), history_length: None };
    let subscribed = Box::pin(perform(asked.clone(), operation)).await;
    let is_over = matches!(&subscribed, Err(error) if error.kind == Kind::UnsupportedOperation);
    if is_over {
        match Box::pin(perform(asked, Operation::Get(get))).await? {
            OperationResult::Task(task) => Ok(LegacyResult::Ended(task)),
            done @ (OperationResult::Sent(_)
            | OperationResult::Tasks(_)
            | OperationResult::Card(_)
            | OperationResult::PushConfig(_)
            | OperationResult::PushConfigs(_)
            | OperationResult::Nothing
            | OperationResult::Once(_)
            | OperationResult::Frames(_)) => Ok(LegacyResult::Done(done)),
        }
    } else {
        subscribed.map(LegacyResult::Done)
    }
}

/// The result of an operation.
enum LegacyResult {
    Done(OperationResult),
    /// A subscription to a task that has ended.
    Ended(Box<Task>),
}

/// What a receiver of 0.3 is sent about a task: the task, as over JSON-RPC. Events that are none it does not know.
pub(super) fn pushed(frame: &StreamResponse) -> String {
    match frame {
        StreamResponse::Task(task) => serde_json::to_string(&map::task(Form::Rpc, task)),
        StreamResponse::Message(_) | StreamResponse::StatusUpdate(_) | StreamResponse::ArtifactUpdate(_) => {
            serde_json::to_string(frame)
        }
    }
    .unwrap_or_default()
}

/// Those of the extensions that a client wants which are spoken here.
fn activated(headers: &HeaderMap) -> Option<&'static str> {
    negotiate::extensions_in(headers, EXTENSIONS_HEADER)
}

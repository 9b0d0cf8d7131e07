//! Where A2A is served, and how a request finds its agent.
//!
//! An agent is at `/v1/agents/{agent}`; one of them, the default agent, also at the root. At the root the routing value
//! (`tenant`) may name another. Mistakes are reported in the protocol's order: who, version, type of body, body, operation,
//! its members, then the task.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use standfast_core::digest;
use standfast_core::name::AgentName;
use standfast_core::time::Millis;
use standfast_engine::auth::Principal;
use standfast_engine::settings::{CardReaders, Settings};

use super::answer_slip::AnswerSlip;
use super::error::{A2aError, Kind};
use super::modes::AcceptedModes;
use super::negotiate::{self, EXTENSIONS_HEADER, Version};
use super::operations::{Operation, OperationContext, QuestionPaging, perform};
use super::rest::{self, PathTarget, Target};
use super::v03::{self, LegacyOutcome};
use super::{card, grpc, intercept, jsonrpc};
use crate::http::{
    App, Pass, Problem, ProblemWriter, body_bytes, http_date, idempotency_key, keep_advice, site,
};

/// The member of a message's metadata that makes a repeat safe.
const KEY: &str = "a2a-rust.com/idempotency-key";

/// How long a card may be kept.
const CARD_LASTS: &str = "public, max-age=300";

/// The routes.
pub fn routes(app: &App) -> Router<App> {
    Router::new()
        .merge(grpc::routes(app))
        .merge(v03::grpc_routes(app))
        .route("/v1/agents/{agent}", any(handle))
        .route("/v1/agents/{agent}/", any(handle))
        .route("/v1/agents/{agent}/{*operation}", any(handle))
        .route("/", post(handle))
        .route("/v1/card", any(handle))
        .route("/.well-known/agent-card.json", get(handle))
        .route("/message:send", any(handle))
        .route("/message:stream", any(handle))
        .route("/extendedAgentCard", any(handle))
        .route("/tasks", any(handle))
        .route("/tasks/{*task}", any(handle))
        .route("/{tenant}/message:send", any(handle))
        .route("/{tenant}/message:stream", any(handle))
        .route("/{tenant}/extendedAgentCard", any(handle))
        .route("/{tenant}/tasks", any(handle))
        .route("/{tenant}/tasks/{*task}", any(handle))
}

/// Answers, and has noted what the answer showed once it is written.
async fn handle(State(app): State<App>, mut request: Request) -> Response {
    let shows = AnswerSlip::put(request.extensions_mut());
    let who = request.extensions().get::<Principal>().cloned();
    let response = answer(app.clone(), request).await;
    shows.noted(&app, who, response)
}

async fn answer(app: App, request: Request) -> Response {
    let is_card = rest::target(request.uri().path()).what == PathTarget::Card;
    if let Err(problem) = intercept::authorize(&app.engine.settings(), request.headers())
        && !is_card
    {
        return problem.into_response();
    }
    let request = match v03::take(&app, request).await {
        LegacyOutcome::Answered(response) => return response,
        LegacyOutcome::Newer(request) => request,
    };
    let target = rest::target(request.uri().path());
    let headers = request.headers().clone();
    let activated = negotiate::extensions(&headers);
    let mut response = match target.what {
        PathTarget::Card => self::card(&app, &target, &request),
        PathTarget::Rpc => rpc(app, target, request).await,
        PathTarget::Operation(_) => {
            let media = negotiate::answer_type(&headers);
            rest(app, target, request).await.unwrap_or_else(|error| rest::refuse(media, &error))
        }
        PathTarget::Nothing => {
            let message = format!("there is nothing at {}", request.uri().path());
            rest::refuse(negotiate::JSON, &A2aError::new(Kind::MethodNotFound, message))
        }
    };
    if let Some(activated) = activated {
        response.headers_mut().insert(EXTENSIONS_HEADER, HeaderValue::from_static(activated));
    }
    response
}

async fn rpc(app: App, target: Target, request: Request) -> Response {
    let refuse = |error: &A2aError| jsonrpc::refuse(&jsonrpc::null(), error);
    if request.method() != Method::POST {
        let detail = format!("{} takes POST with a JSON-RPC request", request.uri().path());
        return Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong-method", "Method not allowed", detail)
            .into_response();
    }
    let (headers, caller) = (request.headers().clone(), Caller::of(request.extensions()));
    let agreed = negotiate::version(&headers, request.uri());
    if let Err(error) = agreed.and_then(|_| negotiate::content_type(&headers)) {
        // Nothing of the body counts but the id, by which the client finds its answer.
        let bytes = body_bytes(request).await.unwrap_or_default();
        return jsonrpc::refuse(&jsonrpc::id(&bytes), &error);
    }
    let bytes = match body_bytes(request).await {
        Ok(bytes) => bytes,
        Err(problem) => return refuse(&A2aError::from(&problem)),
    };
    match jsonrpc::read(&bytes) {
        Ok(read) => {
            let done = match asked(&app, &headers, caller, &target, &read.operation, read.digest) {
                Ok(asked) => perform(asked, read.operation).await,
                Err(error) => Err(error),
            };
            jsonrpc::answer(read.id, done)
        }
        Err(unread) => jsonrpc::refuse(&unread.id, &unread.error),
    }
}

async fn rest(app: App, mut target: Target, request: Request) -> Result<Response, A2aError> {
    let headers = request.headers().clone();
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let caller = Caller::of(request.extensions());
    negotiate::version(&headers, &uri)?;
    let bytes = body_bytes(request).await;
    let bytes = bytes.map_err(|problem| A2aError::from(&problem))?;
    if !bytes.is_empty() {
        negotiate::content_type(&headers)?;
    }
    let PathTarget::Operation(path) = std::mem::replace(&mut target.what, PathTarget::Nothing) else {
        return Err(A2aError::new(Kind::MethodNotFound, "there is no such operation"));
    };
    let operation = rest::read(path, &method, &uri, &bytes)?;
    let asked = asked(&app, &headers, caller, &target, &operation, digest::of_bytes(&bytes))?;
    let done = perform(asked, operation).await;
    Ok(rest::answer(negotiate::answer_type(&headers), done))
}

/// Who is calling, and what they were let in with.
pub(super) struct Caller {
    who: Principal,
    pass: Pass,
    shows: AnswerSlip,
}

impl Caller {
    /// As the door says; none where nobody has to come through it.
    pub(super) fn of(extensions: &Extensions) -> Option<Caller> {
        let who = extensions.get::<Principal>()?.clone();
        let pass = extensions.get::<Pass>().cloned().unwrap_or_default();
        Some(Caller { who, pass, shows: AnswerSlip::of(extensions) })
    }
}

/// Who asks which agent, and with which key.
pub(super) fn asked(
    app: &App,
    headers: &HeaderMap,
    caller: Option<Caller>,
    target: &Target,
    operation: &Operation,
    digest: digest::Digest,
) -> Result<OperationContext, A2aError> {
    let unknown = || A2aError::new(Kind::Unauthenticated, "the caller is not authenticated");
    let key = idempotency_key(headers).map_err(|problem| A2aError::from(&problem))?;
    let settings = app.engine.settings();
    intercept::check(&settings, headers, operation)?;
    let tenant = [target.tenant.as_deref(), operation.tenant()];
    let agent = agent(&settings, target.agent.as_deref(), tenant)?;
    let Caller { who, pass, shows } = caller.ok_or_else(unknown)?;
    Ok(OperationContext {
        app: app.clone(),
        who,
        pass,
        agent,
        version: card::VERSION,
        site: site(&app.engine, headers),
        key: key.or_else(|| key_in(operation)),
        digest,
        last_event: headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned),
        accepts: AcceptedModes::of(operation),
        lingers: Millis(0),
        shows,
        is_unnamed: false,
        asks: QuestionPaging::Everything,
    })
}

/// The key in a message's own metadata: the same as the header, for clients that cannot set headers.
fn key_in(operation: &Operation) -> Option<String> {
    let (Operation::Send(request) | Operation::Stream(request)) = operation else { return None };
    let in_message = request.message.metadata.as_ref().and_then(|metadata| metadata.get(KEY));
    let raw = in_message.or_else(|| request.metadata.as_ref()?.get(KEY))?;
    serde_json::from_str::<String>(raw.get()).ok().filter(|key| !key.is_empty() && key.len() <= 256)
}

/// The agent that is meant: by the path, by the routing value, or because it is the default one.
fn agent(
    settings: &Settings,
    in_path: Option<&str>,
    tenants: [Option<&str>; 2],
) -> Result<AgentName, A2aError> {
    let mut names: Vec<&str> = in_path.into_iter().chain(tenants.into_iter().flatten()).collect();
    names.dedup();
    let name = match names.as_slice() {
        [name] => (*name).to_owned(),
        [] => match card::default_agent(settings) {
            Some(name) => name.to_string(),
            None => {
                let message =
                    "this server has no default agent; call one at /v1/agents/{agent}, or name it as tenant";
                return Err(A2aError::new(Kind::MethodNotFound, message));
            }
        },
        [_, ..] => return Err(A2aError::invalid("tenant", "does not match the agent in the path")),
    };
    let known = AgentName::new(&name).ok().filter(|name| settings.agents.contains_key(name));
    known.ok_or_else(|| A2aError::new(Kind::MethodNotFound, format!("there is no agent {name} here")))
}

/// The public card, with what caches need.
fn card(app: &App, target: &Target, request: &Request) -> Response {
    let (settings, headers) = (app.engine.settings(), request.headers());
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let detail = "an agent card is read-only";
        return Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong-method", "Method not allowed", detail)
            .into_response();
    }
    let found = agent(&settings, target.agent.as_deref(), [None, None]);
    let found = found.and_then(|name| {
        let agent = settings.agents.get(&name).cloned();
        let gone = || A2aError::new(Kind::MethodNotFound, "there is no such agent here");
        Ok((name, agent.ok_or_else(gone)?))
    });
    let (name, agent) = match found {
        Ok(found) => found,
        Err(error) => return rest::refuse(negotiate::JSON, &error),
    };
    let card = card::public(&settings, name.as_str(), &agent, &site(&app.engine, headers));
    let is_for_both = agent.card.readers == CardReaders::CurrentAndV03
        && negotiate::version(headers, request.uri()) != Ok(Version::One);
    let body =
        if is_for_both { serde_json::to_vec(&v03::card::hybrid(&card)) } else { serde_json::to_vec(&card) };
    let body = body.unwrap_or_default();
    let etag = card::etag(&body);
    let is_known = headers.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok());
    let is_known = is_known.is_some_and(|known| known.split(',').any(|one| one.trim() == etag));
    let caching = [
        (header::ETAG, etag),
        (header::CACHE_CONTROL, CARD_LASTS.to_owned()),
        (header::LAST_MODIFIED, http_date(app.engine.node_work().startup_report(None).began_at)),
        (header::CONTENT_TYPE, negotiate::JSON.to_owned()),
        (header::VARY, "host, a2a-version".to_owned()),
    ];
    if is_known {
        (StatusCode::NOT_MODIFIED, caching).into_response()
    } else {
        (caching, body).into_response()
    }
}

/// Whether an address is that of a gRPC service, of either version.
fn is_grpc(path: &str) -> bool {
    path.starts_with(grpc::PATH) || v03::is_grpc(path)
}

/// Whether a request is for this surface, whatever its binding and version.
pub fn is_addressed(request: &Request) -> bool {
    let path = request.uri().path();
    let target = rest::target(path);
    match (&target.what, &target.agent) {
        (PathTarget::Rpc, None) => request.method() == Method::POST && path == "/",
        (PathTarget::Nothing, None) => is_grpc(path),
        (_, _) => true,
    }
}

/// Tells in this protocol's words what the door said in those of others.
#[must_use]
pub fn retells(request: &Request) -> Option<ProblemWriter> {
    if !is_addressed(request) {
        return None;
    }
    let path = request.uri().path();
    let (is_grpc, is_older) = (is_grpc(path), v03::is_addressed(path));
    let target = rest::target(path);
    let media = negotiate::answer_type(request.headers());
    let what = target.what;
    Some(Box::new(move |problem, response| {
        let error = A2aError::from(problem);
        if is_grpc {
            return grpc::refuse(&error);
        }
        let mut told = match (is_older, what) {
            (true, _) => v03::refuse(&error),
            (false, PathTarget::Rpc) => jsonrpc::refuse(&jsonrpc::null(), &error),
            (false, PathTarget::Card | PathTarget::Operation(_) | PathTarget::Nothing) => {
                rest::refuse(media, &error)
            }
        };
        *told.status_mut() = response.status();
        keep_advice(response.headers(), told.headers_mut());
        told
    }))
}

//! The handlers of the async-tool protocol: take apart, one engine call, put together.
//!
//! Whoever has the secret of a call may report about it without being anybody else; everything else needs what the door
//! asks for. Bodies are kept byte for byte, because that is what is signed.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::{Extension, Json, Router};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use standfast_core::body::Body;
use standfast_core::digest;
use standfast_core::id::HoldId;
use standfast_core::json::RawJson;
use standfast_core::name::{AgentName, SessionId, UserId};
use standfast_core::time::Timestamp;
use standfast_engine::auth::Principal;
use standfast_engine::{IdempotencyKey, JobView, Report, ReportBody, SessionName, Signature};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::JobProblem;
use super::events::StreamStart;
use super::rate::{Rate, RateSubject};
use super::{events, lists, map, options, wire};
use crate::http::{App, Args, Pass, Peer, Segment, body_bytes, idempotency_key, is_too_deep};

pub(super) type JobResult<T> = Result<T, JobProblem>;
pub(super) type CallerOf = Extension<Principal>;

/// The routes, each with its description.
pub fn routes() -> OpenApiRouter<App> {
    let rate = Arc::<Rate>::default();
    OpenApiRouter::new()
        .routes(routes!(result))
        .routes(routes!(error))
        .routes(routes!(progress))
        .routes(routes!(webhook))
        .merge(lists::routes())
        .merge(options::routes())
        .routes(routes!(one_pending, cancel_pending))
        .routes(routes!(tools))
        .routes(routes!(follow))
        .routes(routes!(session_status))
        .routes(routes!(session_parts))
        .routes(routes!(recovery_status))
        .layer(Extension(rate))
}

/// The same routes under the other name that clients know them by (C14); they are described once.
pub fn alias() -> Router<App> {
    routes().split_for_parts().0
}

/// Reports the result of a call.
#[utoipa::path(
    post, path = "/result", tag = "async tools", request_body = wire::SubmitResult,
    responses(
        (status = 200, body = wire::DoneResponse),
        (status = "default", body = wire::ErrorBody, description = "Unknown, settled, not signed, or rate-limited")
    )
)]
async fn result(
    State(app): State<App>,
    Extension(rate): Extension<Arc<Rate>>,
    request: Request,
) -> JobResult<Json<wire::DoneResponse>> {
    let incoming = IncomingReport::of(&app, &rate, request).await?;
    let body: wire::SubmitResult = incoming.read()?;
    incoming.tell(&app, &rate, &body.pending_id, ReportBody::Result(checked_result(&body.result)?)).await
}

/// Reports that a call failed.
#[utoipa::path(
    post, path = "/error", tag = "async tools", request_body = wire::SubmitError,
    responses(
        (status = 200, body = wire::DoneResponse),
        (status = "default", body = wire::ErrorBody, description = "Unknown, settled, not signed, or rate-limited")
    )
)]
async fn error(
    State(app): State<App>,
    Extension(rate): Extension<Arc<Rate>>,
    request: Request,
) -> JobResult<Json<wire::DoneResponse>> {
    let incoming = IncomingReport::of(&app, &rate, request).await?;
    let body: wire::SubmitError = incoming.read()?;
    incoming.tell(&app, &rate, &body.pending_id, ReportBody::Error(body.error)).await
}

/// Says how far a call is; it counts as `processing` from then on, until nothing was heard for a while.
#[utoipa::path(
    post, path = "/progress", tag = "async tools", request_body = wire::Progress,
    responses(
        (status = 200, body = wire::DoneResponse),
        (status = "default", body = wire::ErrorBody, description = "Unknown, settled, not signed, or rate-limited")
    )
)]
async fn progress(
    State(app): State<App>,
    Extension(rate): Extension<Arc<Rate>>,
    request: Request,
) -> JobResult<Json<wire::DoneResponse>> {
    let incoming = IncomingReport::of(&app, &rate, request).await?;
    let body: wire::Progress = incoming.read()?;
    let processing = match body.status {
        None | Some(wire::CallStatus::Processing) => true,
        Some(wire::CallStatus::Waiting) => false,
        Some(wire::CallStatus::Completed | wire::CallStatus::Failed | wire::CallStatus::Expired) => {
            return Err(JobProblem::invalid(
                "progress has the status processing or waiting; a result goes to /result",
            ));
        }
    };
    if body.progress.is_some_and(|part| !(0.0..=1.0).contains(&part)) {
        return Err(JobProblem::invalid("progress is a number from 0 to 1"));
    }
    let said = ReportBody::Progress { note: note(body.output, body.progress), processing };
    incoming.tell(&app, &rate, &body.pending_id, said).await
}

/// Takes the signed report of an outside system: a result or an error.
#[utoipa::path(
    post, path = "/webhook", tag = "async tools", request_body = wire::Webhook,
    params(
        ("x-webhook-signature" = Option<String>, Header, description = "HMAC-SHA256 of the body in hex, with the call's secret"),
        ("webhook-id" = Option<String>, Header, description = "Standard Webhooks: the id of the message"),
        ("webhook-timestamp" = Option<String>, Header, description = "Standard Webhooks: when it was signed, in seconds"),
        ("webhook-signature" = Option<String>, Header, description = "Standard Webhooks: `v1,` and the signature in base64")
    ),
    responses(
        (status = 200, body = wire::DoneResponse),
        (status = "default", body = wire::ErrorBody, description = "Unknown, settled, not signed, or rate-limited")
    )
)]
async fn webhook(
    State(app): State<App>,
    Extension(rate): Extension<Arc<Rate>>,
    request: Request,
) -> JobResult<Json<wire::DoneResponse>> {
    let incoming = IncomingReport::of(&app, &rate, request).await?;
    if incoming.signature.is_none() {
        let why = "sign the body: X-Webhook-Signature with the secret of the call, or the headers of Standard Webhooks";
        return Err(JobProblem::new(StatusCode::UNAUTHORIZED, why));
    }
    let body: wire::Webhook = incoming.read()?;
    let said = match (&body.result, body.error) {
        (Some(result), None) => ReportBody::Result(checked_result(result)?),
        (None, Some(error)) => ReportBody::Error(error),
        (Some(_), Some(_)) | (None, None) => {
            return Err(JobProblem::invalid("the body has either a result or an error"));
        }
    };
    incoming.tell(&app, &rate, &body.pending_id, said).await
}

/// A call.
#[utoipa::path(
    get, path = "/pending/{id}", tag = "async tools", params(("id" = String, Path, description = "The call's pending id")),
    responses((status = 200, body = wire::PendingToolCall), (status = "default", body = wire::ErrorBody))
)]
async fn one_pending(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
) -> JobResult<Json<wire::PendingToolCall>> {
    Ok(Json(map::record(&app.engine.jobs().job(&who, hold_id(&id)?).await?)))
}

/// Cancels a call: its result is no longer awaited, and the model gets that as the result.
#[utoipa::path(
    delete, path = "/pending/{id}", tag = "async tools",
    params(("id" = String, Path, description = "The call's pending id")),
    responses((status = 200, body = wire::DoneResponse), (status = "default", body = wire::ErrorBody))
)]
async fn cancel_pending(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
) -> JobResult<Json<wire::DoneResponse>> {
    let report = Report {
        job: hold_id(&id)?,
        said: ReportBody::Withdrawn,
        sender: Some(who),
        signature: None,
        body: Vec::new(),
        once: None,
    };
    Ok(Json(done(&app.engine.reports().take(report).await?)))
}

/// The tools whose results come from elsewhere.
#[utoipa::path(get, path = "/tools", tag = "async tools", responses((status = 200, body = Vec<wire::AsyncToolDefinition>)))]
async fn tools(State(app): State<App>, Extension(who): CallerOf) -> Json<Vec<wire::AsyncToolDefinition>> {
    let settings = app.engine.settings();
    let mut found: BTreeMap<String, wire::AsyncToolDefinition> = BTreeMap::new();
    for (agent, made) in settings.agents.iter().filter(|(agent, _)| who.reads(agent)) {
        for (name, tool) in &made.tools {
            let (Some(job), Some(spec)) = (tool.external(), made.definition.tools.get(name)) else {
                continue;
            };
            let entry = found.entry(name.to_string()).or_insert_with(|| wire::AsyncToolDefinition {
                id: name.to_string(),
                description: spec.description.clone(),
                parameters: spec.schema.clone(),
                is_async: true,
                timeout: job.timeout().0,
                validate_result: job.result_schema().cloned(),
                agents: Vec::new(),
            });
            entry.agents.push(agent.to_string());
        }
    }
    Json(found.into_values().collect())
}

/// Calls as they change: each as a tool part, in a stream of server-sent events that begins with those that wait. Every event
/// has an id; with that of the last one, as `Last-Event-ID` or `cursor`, the stream goes on where it was left.
#[utoipa::path(
    get, path = "/events", tag = "async tools", params(wire::PendingArgs),
    responses((status = 200, body = wire::ToolPart, content_type = "text/event-stream"), (status = "default", body = wire::ErrorBody))
)]
async fn follow(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(pass): Extension<Pass>,
    Args(args): Args<wire::PendingArgs>,
    headers: HeaderMap,
) -> JobResult<Response> {
    let session = args.session_id.map(SessionId::new).transpose();
    let session = session.map_err(|bad| JobProblem::invalid(bad.to_string()))?;
    let last = headers.get("last-event-id").and_then(|last| last.to_str().ok());
    let last = last.map(|last| last.parse::<u64>()).transpose();
    let last = last.map_err(|_| JobProblem::invalid("Last-Event-ID is the id of an event of this stream"))?;
    let from = last.or(args.cursor).map(|at| Timestamp(i64::try_from(at).unwrap_or(i64::MAX)));
    Ok(events::stream(&app, who, pass, StreamStart { session, from }))
}

/// What a conversation is doing.
#[utoipa::path(
    get, path = "/session/{id}/status", tag = "async tools",
    params(("id" = String, Path, description = "The session"), wire::SessionArgs),
    responses((status = 200, body = wire::SessionStatus), (status = "default", body = wire::ErrorBody))
)]
async fn session_status(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
    Args(args): Args<wire::SessionArgs>,
) -> JobResult<Json<wire::SessionStatus>> {
    let now = app.engine.jobs().session_now(&who, &session_name(id, args)?).await?;
    Ok(Json(map::session(now)))
}

/// The calls of a conversation as parts of its messages, oldest first.
#[utoipa::path(
    get, path = "/session/{id}/parts", tag = "async tools",
    params(("id" = String, Path, description = "The session"), wire::SessionArgs),
    responses((status = 200, body = Vec<wire::ToolPart>), (status = "default", body = wire::ErrorBody))
)]
async fn session_parts(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
    Args(args): Args<wire::SessionArgs>,
) -> JobResult<Json<Vec<wire::ToolPart>>> {
    let views = app.engine.jobs().session_jobs(&who, &session_name(id, args)?).await?;
    Ok(Json(views.iter().map(map::part).collect()))
}

/// What the server found of the caller's tenant when it started.
#[utoipa::path(
    get, path = "/recovery/status", tag = "async tools",
    responses((status = 200, body = wire::RecoveryStatus), (status = "default", body = wire::ErrorBody))
)]
async fn recovery_status(
    State(app): State<App>,
    Extension(who): CallerOf,
) -> JobResult<Json<wire::RecoveryStatus>> {
    let found = app.engine.node_work().startup_report(Some(&who.tenant));
    Ok(Json(map::recovery(&found, app.engine.node_work().silent_jobs(&who.tenant))))
}

/// A report as it came.
struct IncomingReport {
    sender: Option<Principal>,
    signature: Option<Signature>,
    once: Option<IdempotencyKey>,
    body: Vec<u8>,
}

impl IncomingReport {
    /// Reads a report, unless its sender sends too many.
    async fn of(app: &App, rate: &Rate, request: Request) -> JobResult<IncomingReport> {
        let sender = request.extensions().get::<Principal>().cloned();
        let peer = request.extensions().get::<Peer>().map(|peer| peer.0.to_string());
        let name = match &sender {
            Some(who) => format!("user {} of {}", who.user, who.tenant),
            None => format!("peer {}", peer.unwrap_or_default()),
        };
        let most = app.engine.settings().jobs.per_caller;
        rate.take(RateSubject::Caller(&name), most, app.engine.clock().now()).map_err(too_often)?;
        let (signature, key) = (signature(request.headers())?, idempotency_key(request.headers())?);
        let route = format!("POST {}", request.uri().path());
        let body = body_bytes(request).await?;
        let once = key.map(|key| IdempotencyKey::new(route, key, digest::of_bytes(&body)));
        Ok(IncomingReport { sender, signature, once, body })
    }

    /// The body in the form that a route wants.
    fn read<T: DeserializeOwned>(&self) -> JobResult<T> {
        if is_too_deep(&self.body) {
            return Err(JobProblem::new(StatusCode::BAD_REQUEST, "the body is nested too deep"));
        }
        let raw: &RawValue = serde_json::from_slice(&self.body).map_err(|error| {
            JobProblem::new(StatusCode::BAD_REQUEST, format!("the body is not JSON: {error}"))
        })?;
        if !raw.get().starts_with('{') {
            return Err(JobProblem::invalid("the body must be a JSON object"));
        }
        serde_json::from_str(raw.get()).map_err(|error| JobProblem::invalid(format!("invalid body: {error}")))
    }

    /// Hands it on, unless there are too many about this call.
    async fn tell(
        self,
        app: &App,
        rate: &Rate,
        pending: &str,
        said: ReportBody,
    ) -> JobResult<Json<wire::DoneResponse>> {
        let job = hold_id(pending)?;
        let most = app.engine.settings().jobs.per_job;
        rate.take(RateSubject::Call(pending), most, app.engine.clock().now()).map_err(too_often)?;
        let IncomingReport { sender, signature, once, body } = self;
        let report = Report { job, said, sender, signature, body, once };
        Ok(Json(done(&app.engine.reports().take(report).await?)))
    }
}

fn done(view: &JobView) -> wire::DoneResponse {
    wire::DoneResponse {
        success: true,
        pending_id: view.id().to_string(),
        status: map::status(&view.job.stands),
    }
}

fn too_often(seconds: u32) -> JobProblem {
    let why = format!("too many reports; try again in {seconds} seconds");
    JobProblem::new(StatusCode::TOO_MANY_REQUESTS, why).again_after(seconds)
}

/// A result that has the form of the protocol, byte for byte as it came.
fn checked_result(result: &RawValue) -> JobResult<RawJson> {
    serde_json::from_str::<wire::ToolResult>(result.get()).map_err(|error| {
        JobProblem::invalid(format!("result must be {{title, output, metadata}}: {error}"))
    })?;
    RawJson::parse(result.get()).map_err(|error| JobProblem::invalid(format!("result: {error}")))
}

/// What people read of a job that is at work.
fn note(output: Option<String>, progress: Option<f64>) -> Body {
    match (output, progress) {
        (Some(output), None) => Body::Text(output),
        (output, progress) => {
            let said = serde_json::json!({ "output": output, "progress": progress }).to_string();
            RawJson::parse(&said).map_or_else(|_| Body::Text(said), Body::Json)
        }
    }
}

/// How a request is signed. A header that comes twice is none.
pub(super) fn signature(headers: &HeaderMap) -> JobResult<Option<Signature>> {
    let one = |name: &'static str| -> JobResult<Option<String>> {
        let mut values = headers.get_all(name).iter();
        let (first, second) = (values.next(), values.next());
        let unreadable = || {
            JobProblem::new(StatusCode::UNAUTHORIZED, format!("the header {name} must come once, as text"))
        };
        match (first, second) {
            (None, _) => Ok(None),
            (Some(value), None) => {
                value.to_str().map(|text| Some(text.trim().to_owned())).map_err(|_| unreadable())
            }
            (Some(_), Some(_)) => Err(unreadable()),
        }
    };
    let standard = (one("webhook-id")?, one("webhook-timestamp")?, one("webhook-signature")?);
    match standard {
        (None, None, None) => Ok(one("x-webhook-signature")?.map(Signature::Plain)),
        (Some(id), Some(timestamp), Some(signatures)) => {
            Ok(Some(Signature::Standard { id, timestamp, signatures }))
        }
        (_, _, _) => {
            let why = "webhook-id, webhook-timestamp and webhook-signature belong together";
            Err(JobProblem::new(StatusCode::UNAUTHORIZED, why))
        }
    }
}

/// What is not an id at all is answered like the id of nothing.
pub(super) fn hold_id(text: &str) -> JobResult<HoldId> {
    text.parse().map_err(|_| JobProblem::unknown())
}

fn session_name(id: String, args: wire::SessionArgs) -> JobResult<SessionName> {
    let nothing = || JobProblem::new(StatusCode::NOT_FOUND, "session not found, or you don't have access");
    let session = SessionId::new(id).map_err(|_| nothing())?;
    let agent = args.agent.map(AgentName::new).transpose().map_err(|_| nothing())?;
    let owner = args.owner.map(UserId::new).transpose().map_err(|_| nothing())?;
    Ok(SessionName { session, agent, owner })
}

//! The gRPC binding: the service `lf.a2a.v1.A2AService`, on the same port as everything else.
//!
//! Takes requests apart and puts answers together; what they do is `operations.rs`. A path of gRPC has no room for an
//! agent, so the routing value (`tenant`) names it, and without one the default agent is meant. `read.rs` and `write.rs`
//! convert by hand, because protobuf's own JSON changes what people approved. The service of 0.3 is `v03/grpc.rs`.

mod proto;
mod read;
mod status;
mod value;
mod write;

pub(super) use status::status as refusal;
pub(super) use value::{from_json, to_json, to_object};
pub(super) use write::instant;

use std::pin::Pin;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use prost::Message;
use proto::a2a_service_server::{A2aService, A2aServiceServer};
use standfast_core::digest;
use standfast_engine::auth::Principal;

use super::answer_slip::AnswerSlip;
use super::error::{A2aError, Kind};
use super::negotiate::{self, EXTENSIONS_HEADER};
use super::operations::{Operation, OperationResult, perform};
use super::rest::{PathTarget, Target};
use super::routes::{Caller, asked};
use super::stream::Frames;
use super::{intercept, wire};
use crate::http::{App, body_bytes};

/// Where the service is.
pub(super) const PATH: &str = "/lf.a2a.v1.A2AService/";

/// The route of the service.
pub(super) fn routes(app: &App) -> Router<App> {
    let size = app.engine.fixed().max_body;
    let service = A2aServiceServer::new(Grpc { app: app.clone() }).max_decoding_message_size(size);
    Router::new()
        .route_service("/lf.a2a.v1.A2AService/{*rpc}", service)
        .layer(axum::middleware::from_fn_with_state(app.clone(), in_one_piece))
}

/// Every request of this service is one message: it is read as a whole, within the limits that all bodies have.
pub(super) async fn in_one_piece(State(app): State<App>, request: Request, next: Next) -> Response {
    if let Err(problem) = intercept::authorize(&app.engine.settings(), request.headers()) {
        return problem.into_response();
    }
    let media = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if !media.is_some_and(|media| media.starts_with("application/grpc")) {
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, "this endpoint speaks gRPC\n").into_response();
    }
    let (mut parts, body) = request.into_parts();
    // What the limit of size is kept with goes along.
    let reading = Request::from_parts(parts.clone(), body);
    let bytes = match body_bytes(reading).await {
        Ok(bytes) => bytes,
        Err(problem) => return refuse(&A2aError::from(&problem)),
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    let shows = AnswerSlip::put(&mut parts.extensions);
    let who = parts.extensions.get::<Principal>().cloned();
    let activated = negotiate::extensions(&parts.headers);
    let mut response = next.run(Request::from_parts(parts, Body::from(bytes))).await;
    if let Some(activated) = activated {
        response.headers_mut().insert(EXTENSIONS_HEADER, HeaderValue::from_static(activated));
    }
    shows.noted(&app, who, response)
}

/// A no as the whole answer.
pub(super) fn refuse(error: &A2aError) -> Response {
    status::status(error).into_http::<Body>()
}

struct Grpc {
    app: App,
}

/// What was asked, before it is known what.
pub(super) struct Call {
    pub(super) headers: HeaderMap,
    pub(super) caller: Option<Caller>,
    pub(super) digest: digest::Digest,
}

impl Call {
    pub(super) fn take<T: Message>(request: tonic::Request<T>) -> (Call, T) {
        let (metadata, extensions, message) = request.into_parts();
        let call = Call {
            headers: metadata.into_headers(),
            caller: Caller::of(&extensions),
            digest: digest::of_bytes(&message.encode_to_vec()),
        };
        (call, message)
    }
}

type GrpcResult<T> = Result<tonic::Response<T>, tonic::Status>;

impl Grpc {
    /// Does what is asked, in the order of the other bindings: version, members, agent, task.
    async fn done(
        &self,
        call: Call,
        read: Result<Operation, A2aError>,
    ) -> Result<OperationResult, tonic::Status> {
        let done = async {
            negotiate::version(&call.headers, &Uri::default())?;
            let operation = read?;
            let target = Target { agent: None, tenant: None, what: PathTarget::Rpc };
            let asked = asked(&self.app, &call.headers, call.caller, &target, &operation, call.digest)?;
            perform(asked, operation).await
        };
        done.await.map_err(|error| status::status(&error))
    }

    async fn task(&self, call: Call, read: Result<Operation, A2aError>) -> GrpcResult<proto::Task> {
        let OperationResult::Task(task) = self.done(call, read).await? else { return Err(mixed_up()) };
        answer(write::task(&task))
    }

    async fn frames(&self, call: Call, read: Result<Operation, A2aError>) -> GrpcResult<FrameStream> {
        match self.done(call, read).await? {
            OperationResult::Frames(frames) => Ok(tonic::Response::new(stream(*frames))),
            OperationResult::Once(event) => {
                let message = write::frame(&event).map_err(|error| status::status(&error));
                Ok(tonic::Response::new(Box::pin(futures_util::stream::iter([message]))))
            }
            OperationResult::Sent(_)
            | OperationResult::Task(_)
            | OperationResult::Tasks(_)
            | OperationResult::Card(_)
            | OperationResult::PushConfig(_)
            | OperationResult::PushConfigs(_)
            | OperationResult::Nothing => Err(mixed_up()),
        }
    }
}

type FrameStream = Pin<Box<dyn Stream<Item = Result<proto::StreamResponse, tonic::Status>> + Send>>;

/// Frames as messages; an error ends them.
fn stream(frames: Frames) -> FrameStream {
    let messages = futures_util::stream::unfold(Some(frames), |frames| async {
        let mut frames = frames?;
        let frame = frames.next().await?;
        let message = frame.body.and_then(|body| write::frame(&body)).map_err(|error| status::status(&error));
        let rest = message.is_ok().then_some(frames);
        Some((message, rest))
    });
    Box::pin(messages)
}

fn answer<T>(written: Result<T, A2aError>) -> GrpcResult<T> {
    written.map(tonic::Response::new).map_err(|error| status::status(&error))
}

/// An operation returned the result of another kind of operation.
fn mixed_up() -> tonic::Status {
    status::status(&A2aError::new(Kind::Internal, "internal error: the response does not match the request"))
}

#[tonic::async_trait]
impl A2aService for Grpc {
    type SendStreamingMessageStream = FrameStream;
    type SubscribeToTaskStream = FrameStream;

    async fn send_message(
        &self,
        request: tonic::Request<proto::SendMessageRequest>,
    ) -> GrpcResult<proto::SendMessageResponse> {
        let (call, message) = Call::take(request);
        let read = read::send(message).map(|request| Operation::Send(Box::new(request)));
        let OperationResult::Sent(sent) = self.done(call, read).await? else { return Err(mixed_up()) };
        answer(write::sent(&sent))
    }

    async fn send_streaming_message(
        &self,
        request: tonic::Request<proto::SendMessageRequest>,
    ) -> GrpcResult<FrameStream> {
        let (call, message) = Call::take(request);
        let read = read::send(message).map(|request| Operation::Stream(Box::new(request)));
        self.frames(call, read).await
    }

    async fn get_task(&self, request: tonic::Request<proto::GetTaskRequest>) -> GrpcResult<proto::Task> {
        let (call, message) = Call::take(request);
        let proto::GetTaskRequest { tenant, id, history_length } = message;
        let request = wire::GetTaskRequest { tenant: read::said(tenant), id, history_length };
        self.task(call, Ok(Operation::Get(request))).await
    }

    async fn list_tasks(
        &self,
        request: tonic::Request<proto::ListTasksRequest>,
    ) -> GrpcResult<proto::ListTasksResponse> {
        let (call, message) = Call::take(request);
        let OperationResult::Tasks(page) = self.done(call, read::list(message).map(Operation::List)).await?
        else {
            return Err(mixed_up());
        };
        answer(write::tasks(&page))
    }

    async fn cancel_task(
        &self,
        request: tonic::Request<proto::CancelTaskRequest>,
    ) -> GrpcResult<proto::Task> {
        let (call, message) = Call::take(request);
        let metadata = message.metadata.as_ref().map(|it| value::to_object("metadata", it)).transpose();
        let read = metadata.map(|metadata| {
            let (tenant, id) = (read::said(message.tenant), message.id);
            Operation::Cancel(wire::TaskRequest { tenant, id, metadata })
        });
        self.task(call, read).await
    }

    async fn subscribe_to_task(
        &self,
        request: tonic::Request<proto::SubscribeToTaskRequest>,
    ) -> GrpcResult<FrameStream> {
        let (call, proto::SubscribeToTaskRequest { tenant, id }) = Call::take(request);
        let request = wire::TaskRequest { tenant: read::said(tenant), id, metadata: None };
        self.frames(call, Ok(Operation::Subscribe(request))).await
    }

    async fn create_task_push_notification_config(
        &self,
        request: tonic::Request<proto::TaskPushNotificationConfig>,
    ) -> GrpcResult<proto::TaskPushNotificationConfig> {
        let (call, config) = Call::take(request);
        let operation = Operation::CreatePush(Box::new(read::push_config(config)));
        let OperationResult::PushConfig(config) = self.done(call, Ok(operation)).await? else {
            return Err(mixed_up());
        };
        Ok(tonic::Response::new(write::push_config(*config)))
    }

    async fn get_task_push_notification_config(
        &self,
        request: tonic::Request<proto::GetTaskPushNotificationConfigRequest>,
    ) -> GrpcResult<proto::TaskPushNotificationConfig> {
        let (call, message) = Call::take(request);
        let proto::GetTaskPushNotificationConfigRequest { tenant, task_id, id } = message;
        let request = wire::PushRequest { tenant: read::said(tenant), task_id, id };
        let OperationResult::PushConfig(config) = self.done(call, Ok(Operation::GetPush(request))).await?
        else {
            return Err(mixed_up());
        };
        Ok(tonic::Response::new(write::push_config(*config)))
    }

    async fn list_task_push_notification_configs(
        &self,
        request: tonic::Request<proto::ListTaskPushNotificationConfigsRequest>,
    ) -> GrpcResult<proto::ListTaskPushNotificationConfigsResponse> {
        let (call, message) = Call::take(request);
        let request = wire::ListPushRequest {
            tenant: read::said(message.tenant),
            task_id: message.task_id,
            page_size: Some(message.page_size),
            page_token: read::said(message.page_token),
        };
        let OperationResult::PushConfigs(page) = self.done(call, Ok(Operation::ListPush(request))).await?
        else {
            return Err(mixed_up());
        };
        Ok(tonic::Response::new(write::push_configs(page)))
    }

    async fn get_extended_agent_card(
        &self,
        request: tonic::Request<proto::GetExtendedAgentCardRequest>,
    ) -> GrpcResult<proto::AgentCard> {
        let (call, proto::GetExtendedAgentCardRequest { tenant }) = Call::take(request);
        let routed = wire::RoutedRequest { tenant: read::said(tenant) };
        let OperationResult::Card(card) = self.done(call, Ok(Operation::ExtendedCard(routed))).await? else {
            return Err(mixed_up());
        };
        Ok(tonic::Response::new(write::card(&card)))
    }

    async fn delete_task_push_notification_config(
        &self,
        request: tonic::Request<proto::DeleteTaskPushNotificationConfigRequest>,
    ) -> GrpcResult<()> {
        let (call, message) = Call::take(request);
        let proto::DeleteTaskPushNotificationConfigRequest { tenant, task_id, id } = message;
        let request = wire::PushRequest { tenant: read::said(tenant), task_id, id };
        let OperationResult::Nothing = self.done(call, Ok(Operation::DeletePush(request))).await? else {
            return Err(mixed_up());
        };
        Ok(tonic::Response::new(()))
    }
}

//! 0.3 over gRPC: the service `a2a.v1.A2AService`, on the same port as everything else.
//!
//! Takes requests apart and puts answers together; what they do is `operations.rs`, what differs between the versions is `map.rs`.
//! A request of this service has no room for an agent, so it is always for the default one. `read.rs` and `write.rs` are the way
//! between protobuf's messages and those of `wire.rs`.

mod files;
mod proto;
mod read;
mod write;

use std::pin::Pin;

use axum::Router;
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use futures_util::Stream;
use proto::a2a_service_server::{A2aService, A2aServiceServer};

use self::files::FileForm;

use super::super::error::{A2aError, Kind};
use super::super::grpc::{Call, in_one_piece, refusal};
use super::super::operations::{Operation, OperationResult};
use super::super::rest::{PathTarget, Target};
use super::super::routes::asked;
use super::super::stream::Frames;
use super::super::wire::{
    self as newer, GetTaskRequest, ListPushRequest, PushRequest, RoutedRequest, TaskRequest,
};
use super::map::{self, Form};
use super::{EXTENSIONS_HEADER, LegacyResult, activated, error, perform_older};
use crate::http::App;

/// Where the service is.
pub(super) const PATH: &str = "/a2a.v1.A2AService/";

/// The route of the service.
pub(super) fn routes(app: &App) -> Router<App> {
    let size = app.engine.fixed().max_body;
    let service = A2aServiceServer::new(OlderGrpc { app: app.clone() }).max_decoding_message_size(size);
    Router::new()
        .route_service("/a2a.v1.A2AService/{*rpc}", service)
        .layer(from_fn_with_state(app.clone(), in_one_piece))
        .layer(from_fn(with_extensions))
}

/// Says which extensions are spoken, as 0.3 says it.
async fn with_extensions(request: Request, next: Next) -> Response {
    let activated = activated(request.headers());
    let mut response = next.run(request).await;
    if let Some(activated) = activated {
        response.headers_mut().insert(EXTENSIONS_HEADER, HeaderValue::from_static(activated));
    }
    response
}

struct OlderGrpc {
    app: App,
}

type GrpcResult<T> = Result<tonic::Response<T>, tonic::Status>;
type EventStream = Pin<Box<dyn Stream<Item = Result<proto::StreamResponse, tonic::Status>> + Send>>;

/// Whether a stream ends where a person is needed: one that came with a message does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamEnd {
    AtAQuestion,
    WithTheTask,
}

/// How the events of a stream are written.
#[derive(Debug, Clone, Copy)]
struct EventForm {
    end: StreamEnd,
    files: FileForm,
}

impl OlderGrpc {
    async fn done(
        &self,
        call: Call,
        read: Result<Operation, A2aError>,
    ) -> Result<LegacyResult, tonic::Status> {
        let done = async {
            let operation = read?;
            let target = Target { agent: None, tenant: None, what: PathTarget::Rpc };
            let asked = asked(&self.app, &call.headers, call.caller, &target, &operation, call.digest)?;
            perform_older(asked, operation).await
        };
        done.await.map_err(|error| status(&error))
    }

    /// For operations that subscribe to nothing.
    async fn once(
        &self,
        call: Call,
        read: Result<Operation, A2aError>,
    ) -> Result<OperationResult, tonic::Status> {
        match self.done(call, read).await? {
            LegacyResult::Done(done) => Ok(done),
            LegacyResult::Ended(_) => Err(mixed_up()),
        }
    }

    async fn task(&self, call: Call, read: Result<Operation, A2aError>) -> GrpcResult<proto::Task> {
        let files = FileForm::of(&call.headers);
        let OperationResult::Task(task) = self.once(call, read).await? else { return Err(mixed_up()) };
        answer(write::task(map::task(Form::Proto, &task), files))
    }

    async fn events(
        &self,
        call: Call,
        read: Result<Operation, A2aError>,
        end: StreamEnd,
    ) -> GrpcResult<EventStream> {
        let form = EventForm { end, files: FileForm::of(&call.headers) };
        match self.done(call, read).await? {
            LegacyResult::Ended(task) => Ok(one(form.written(&newer::StreamResponse::Task(task)))),
            LegacyResult::Done(OperationResult::Frames(frames)) => {
                Ok(tonic::Response::new(stream(*frames, form)))
            }
            LegacyResult::Done(OperationResult::Once(event)) => Ok(one(form.written(&event))),
            LegacyResult::Done(
                OperationResult::Sent(_)
                | OperationResult::Task(_)
                | OperationResult::Tasks(_)
                | OperationResult::Card(_)
                | OperationResult::PushConfig(_)
                | OperationResult::PushConfigs(_)
                | OperationResult::Nothing,
            ) => Err(mixed_up()),
        }
    }
}

/// A stream of one event.
fn one(event: Result<proto::StreamResponse, tonic::Status>) -> tonic::Response<EventStream> {
    tonic::Response::new(Box::pin(futures_util::stream::iter([event])))
}

/// Frames as messages; an error ends them.
fn stream(frames: Frames, form: EventForm) -> EventStream {
    let messages = futures_util::stream::unfold(Some(frames), move |frames| async move {
        let mut frames = frames?;
        let frame = frames.next().await?;
        let message = frame.body.map_err(|error| status(&error)).and_then(|body| form.written(&body));
        let rest = message.is_ok().then_some(frames);
        Some((message, rest))
    });
    Box::pin(messages)
}

impl EventForm {
    fn written(self, event: &newer::StreamResponse) -> Result<proto::StreamResponse, tonic::Status> {
        let event = map::event(Form::Proto, event, self.end == StreamEnd::AtAQuestion);
        write::event(event, self.files).map_err(|error| status(&error))
    }
}

fn answer<T>(written: Result<T, A2aError>) -> GrpcResult<T> {
    written.map(tonic::Response::new).map_err(|error| status(&error))
}

/// A no in the words of 0.3.
fn status(error: &A2aError) -> tonic::Status {
    refusal(&A2aError { message: error::message(error), ..error.clone() })
}

/// An operation returned the result of another kind of operation.
fn mixed_up() -> tonic::Status {
    status(&A2aError::new(Kind::Internal, "internal error: the response does not match the request"))
}

#[tonic::async_trait]
impl A2aService for OlderGrpc {
    type SendStreamingMessageStream = EventStream;
    type TaskSubscriptionStream = EventStream;

    async fn send_message(
        &self,
        request: tonic::Request<proto::SendMessageRequest>,
    ) -> GrpcResult<proto::SendMessageResponse> {
        let (call, message) = Call::take(request);
        let files = FileForm::of(&call.headers);
        let read = read::send(message, files).map(|request| Operation::Send(Box::new(request)));
        let OperationResult::Sent(sent) = self.once(call, read).await? else { return Err(mixed_up()) };
        answer(write::sent(&sent, files))
    }

    async fn send_streaming_message(
        &self,
        request: tonic::Request<proto::SendMessageRequest>,
    ) -> GrpcResult<EventStream> {
        let (call, message) = Call::take(request);
        let read = read::send(message, FileForm::of(&call.headers))
            .map(|request| Operation::Stream(Box::new(request)));
        self.events(call, read, StreamEnd::AtAQuestion).await
    }

    async fn get_task(&self, request: tonic::Request<proto::GetTaskRequest>) -> GrpcResult<proto::Task> {
        let (call, proto::GetTaskRequest { name, history_length }) = Call::take(request);
        let history_length = map::history(Some(history_length));
        let read = read::task_id("name", &name)
            .map(|id| Operation::Get(GetTaskRequest { tenant: None, id, history_length }));
        self.task(call, read).await
    }

    async fn cancel_task(
        &self,
        request: tonic::Request<proto::CancelTaskRequest>,
    ) -> GrpcResult<proto::Task> {
        let (call, proto::CancelTaskRequest { name }) = Call::take(request);
        let read = read::task_id("name", &name)
            .map(|id| Operation::Cancel(TaskRequest { tenant: None, id, metadata: None }));
        self.task(call, read).await
    }

    async fn task_subscription(
        &self,
        request: tonic::Request<proto::TaskSubscriptionRequest>,
    ) -> GrpcResult<EventStream> {
        let (call, proto::TaskSubscriptionRequest { name }) = Call::take(request);
        let read = read::task_id("name", &name)
            .map(|id| Operation::Subscribe(TaskRequest { tenant: None, id, metadata: None }));
        self.events(call, read, StreamEnd::WithTheTask).await
    }

    async fn create_task_push_notification_config(
        &self,
        request: tonic::Request<proto::CreateTaskPushNotificationConfigRequest>,
    ) -> GrpcResult<proto::TaskPushNotificationConfig> {
        let (call, message) = Call::take(request);
        let read = read::create_push(message).map(|config| Operation::CreatePush(Box::new(config)));
        let OperationResult::PushConfig(config) = self.once(call, read).await? else {
            return Err(mixed_up());
        };
        Ok(tonic::Response::new(write::task_push(*config)))
    }

    async fn get_task_push_notification_config(
        &self,
        request: tonic::Request<proto::GetTaskPushNotificationConfigRequest>,
    ) -> GrpcResult<proto::TaskPushNotificationConfig> {
        let (call, proto::GetTaskPushNotificationConfigRequest { name }) = Call::take(request);
        let read = read::push_ids(&name)
            .map(|(task_id, id)| Operation::GetPush(PushRequest { tenant: None, task_id, id }));
        let OperationResult::PushConfig(config) = self.once(call, read).await? else {
            return Err(mixed_up());
        };
        Ok(tonic::Response::new(write::task_push(*config)))
    }

    async fn list_task_push_notification_config(
        &self,
        request: tonic::Request<proto::ListTaskPushNotificationConfigRequest>,
    ) -> GrpcResult<proto::ListTaskPushNotificationConfigResponse> {
        let (call, message) = Call::take(request);
        let proto::ListTaskPushNotificationConfigRequest { parent, page_size, page_token } = message;
        let read = read::task_id("parent", &parent).map(|task_id| {
            let page_size = Some(page_size).filter(|size| *size != 0);
            let page_token = Some(page_token).filter(|token| !token.is_empty());
            Operation::ListPush(ListPushRequest { tenant: None, task_id, page_size, page_token })
        });
        let OperationResult::PushConfigs(page) = self.once(call, read).await? else {
            return Err(mixed_up());
        };
        Ok(tonic::Response::new(proto::ListTaskPushNotificationConfigResponse {
            configs: page.configs.into_iter().map(write::task_push).collect(),
            next_page_token: page.next_page_token,
        }))
    }

    async fn get_agent_card(
        &self,
        request: tonic::Request<proto::GetAgentCardRequest>,
    ) -> GrpcResult<proto::AgentCard> {
        let (call, proto::GetAgentCardRequest {}) = Call::take(request);
        let routed = RoutedRequest { tenant: None };
        let OperationResult::Card(card) = self.once(call, Ok(Operation::ExtendedCard(routed))).await? else {
            return Err(mixed_up());
        };
        Ok(tonic::Response::new(write::card(&card)))
    }

    async fn delete_task_push_notification_config(
        &self,
        request: tonic::Request<proto::DeleteTaskPushNotificationConfigRequest>,
    ) -> GrpcResult<()> {
        let (call, proto::DeleteTaskPushNotificationConfigRequest { name }) = Call::take(request);
        let read = read::push_ids(&name)
            .map(|(task_id, id)| Operation::DeletePush(PushRequest { tenant: None, task_id, id }));
        let OperationResult::Nothing = self.once(call, read).await? else {
            return Err(mixed_up());
        };
        Ok(tonic::Response::new(()))
    }
}

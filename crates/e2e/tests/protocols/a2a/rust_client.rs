//! The official Rust client, on all three bindings: it sends, streams, approves, denies, modifies, cancels, lists, subscribes
//! across `kill -9`, and names receivers of push notifications.

use std::path::Path;
use std::sync::Arc;

use a2a::{
    CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
    ListTasksRequest, Message, Part, PartContent, Role, SendMessageConfiguration, SendMessageRequest,
    SendMessageResponse, StreamResponse, SubscribeToTaskRequest, Task, TaskPushNotificationConfig, TaskState,
};
use a2a_client::agent_card::AgentCardResolver;
use a2a_client::{A2AClient, A2AClientFactory, Transport};
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::a2a::push::{folder, serve, story, whole};
use crate::a2a::server::{Server, configured_again};
use standfast_testkit::receiver::{Mood, Receiver};

pub(crate) type Client = A2AClient<Box<dyn Transport>>;

/// A client of the agent `ops`, made from its card.
async fn client(server: &Server, binding: &str) -> Client {
    client_of(server, "ops", binding).await
}

/// A client of an agent, made from its card.
pub(crate) async fn client_of(server: &Server, agent: &str, binding: &str) -> Client {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let base = format!("{}/v1/agents/{agent}", server.program.base);
    let card = AgentCardResolver::new(Some(http.clone())).resolve(&base).await.unwrap();
    let factory = A2AClientFactory::builder()
        .no_defaults()
        .register(Arc::new(a2a_client::jsonrpc::JsonRpcTransportFactory::new(Some(http.clone()))))
        .register(Arc::new(a2a_client::rest::RestTransportFactory::new(Some(http))))
        .register(Arc::new(a2a_grpc::GrpcTransportFactory::new()))
        .preferred_bindings(vec![binding.to_owned()])
        .build();
    let (client, interface) = factory.create_from_card_with_interface(&card).await.unwrap();
    assert_eq!(interface.protocol_binding, binding);
    client
}

fn request(parts: Vec<Part>, task: Option<&Task>) -> SendMessageRequest {
    let mut message = Message::new(Role::User, parts);
    message.task_id = task.map(|task| task.id.clone());
    message.context_id = task.map(|task| task.context_id.clone());
    SendMessageRequest { message, configuration: None, metadata: None, tenant: None }
}

fn decision(task: &Task, data: Value) -> SendMessageRequest {
    request(vec![Part::data(data)], Some(task))
}

async fn sent(client: &Client, request: SendMessageRequest) -> Task {
    match client.send_message(&request).await.unwrap() {
        SendMessageResponse::Task(task) => task,
        SendMessageResponse::Message(message) => panic!("no task: {message:?}"),
    }
}

/// What a task asks, as data.
fn question(task: &Task) -> Value {
    assert_eq!(task.status.state, TaskState::InputRequired, "{task:?}");
    let parts = &task.status.message.as_ref().unwrap().parts;
    let data = parts.iter().find_map(|part| match &part.content {
        PartContent::Data(data) => Some(data.clone()),
        PartContent::Text(_) | PartContent::Raw(_) | PartContent::Url(_) => None,
    });
    data.unwrap()
}

fn told(event: &StreamResponse) -> String {
    match event {
        StreamResponse::Task(task) => format!("task {:?}", task.status.state),
        StreamResponse::StatusUpdate(update) => format!("{:?}", update.status.state),
        StreamResponse::ArtifactUpdate(_) => "artifact".to_owned(),
        StreamResponse::Message(_) => "message".to_owned(),
    }
}

async fn decides(client: &Client) {
    let go = || request(vec![Part::text("please")], None);
    let task = sent(client, go()).await;
    let asked = question(&task);
    assert_eq!(
        (&asked["interaction_type"], &asked["tool_name"]),
        (&json!("tool_approval"), &json!("execute_command"))
    );
    let still = sent(client, request(vec![Part::text("what does it do?")], Some(&task))).await;
    assert_eq!(question(&still), asked, "what is no decision leaves the task waiting");
    let approved = sent(client, decision(&task, json!({"decision": "approve"}))).await;
    assert_eq!(approved.status.state, TaskState::Completed);
    assert_eq!(approved.artifacts.unwrap()[0].parts[0].as_text(), Some("done"));

    let task = sent(client, go()).await;
    let denied = sent(client, request(vec![Part::text("deny")], Some(&task))).await;
    assert_eq!(denied.status.state, TaskState::Completed);

    let task = sent(client, go()).await;
    let modify = json!({"decision": "modify", "modified_input": {"command": "echo else"}, "hold_id": question(&task)["hold_id"]});
    let modified = sent(client, decision(&task, modify)).await;
    assert_eq!(modified.status.state, TaskState::Completed);
    let over = client.send_message(&decision(&task, json!({"decision": "approve"}))).await.unwrap_err();
    assert_eq!(over.code, a2a::error_code::UNSUPPORTED_OPERATION, "{over:?}");
}

async fn gets_lists_and_cancels(client: &Client) {
    let configuration = SendMessageConfiguration {
        accepted_output_modes: None,
        task_push_notification_config: None,
        history_length: None,
        return_immediately: Some(true),
    };
    let at_once = SendMessageRequest {
        configuration: Some(configuration),
        ..request(vec![Part::text("please")], None)
    };
    let task = sent(client, at_once).await;
    let get = GetTaskRequest { id: task.id.clone(), history_length: Some(1), tenant: None };
    let mut found = client.get_task(&get).await.unwrap();
    for _ in 0..600 {
        if found.status.state == TaskState::InputRequired {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        found = client.get_task(&get).await.unwrap();
    }
    question(&found);
    assert_eq!(found.history.unwrap().len(), 1);
    let list = ListTasksRequest {
        context_id: None,
        status: Some(TaskState::InputRequired),
        page_size: Some(1),
        page_token: None,
        history_length: None,
        status_timestamp_after: None,
        include_artifacts: None,
        tenant: None,
    };
    let waiting = client.list_tasks(&list).await.unwrap();
    assert_eq!(waiting.tasks[0].id, task.id);
    let everything = client.list_tasks(&ListTasksRequest { status: None, ..list }).await.unwrap();
    assert!(everything.total_size > 1 && !everything.next_page_token.is_empty(), "{everything:?}");
    let cancel = CancelTaskRequest { id: task.id.clone(), metadata: None, tenant: None };
    assert_eq!(client.cancel_task(&cancel).await.unwrap().status.state, TaskState::Canceled);
    let unknown =
        GetTaskRequest { id: "run_00000000000000000000000000".into(), history_length: None, tenant: None };
    assert_eq!(client.get_task(&unknown).await.unwrap_err().code, a2a::error_code::TASK_NOT_FOUND);
    let card = client.get_extended_agent_card(&GetExtendedAgentCardRequest { tenant: None }).await;
    let refused = card.unwrap_err();
    assert_eq!(refused.code, a2a::error_code::UNSUPPORTED_OPERATION, "nobody is authenticated: {refused:?}");
}

async fn streams(client: &Client) -> Task {
    let stream = client.send_streaming_message(&request(vec![Part::text("please")], None)).await.unwrap();
    let heard: Vec<StreamResponse> = stream.map(Result::unwrap).collect().await;
    let words: Vec<String> = heard.iter().map(told).collect();
    assert_eq!(words, ["task Working", "InputRequired"]);
    let Some(StreamResponse::Task(task)) = heard.into_iter().next() else { panic!("no task comes first") };
    task
}

async fn subscribes_across_a_restart(server: Server, folder: &Path, binding: &str) -> Server {
    let before = client(&server, binding).await;
    let task = streams(&before).await;
    let subscribe = SubscribeToTaskRequest { id: task.id.clone(), tenant: None };
    let mut first = before.subscribe_to_task(&subscribe).await.unwrap();
    assert_eq!(told(&first.next().await.unwrap().unwrap()), "task InputRequired");
    let server = configured_again(server, folder);
    while let Some(event) = first.next().await {
        assert!(event.is_err(), "nothing happened before the server was killed: {event:?}");
    }
    let after = client(&server, binding).await;
    let mut second = after.subscribe_to_task(&subscribe).await.unwrap();
    assert_eq!(told(&second.next().await.unwrap().unwrap()), "task InputRequired");
    sent(&after, decision(&task, json!({"decision": "approve"}))).await;
    let rest: Vec<String> = second.map(|event| told(&event.unwrap())).collect().await;
    assert_eq!(rest, ["Working", "artifact", "Completed"]);
    let over = match after.subscribe_to_task(&subscribe).await {
        Err(error) => error,
        Ok(mut stream) => stream.next().await.unwrap().unwrap_err(),
    };
    assert_eq!(over.code, a2a::error_code::UNSUPPORTED_OPERATION, "{over:?}");
    server
}

async fn is_pushed_to(client: &Client) {
    let receiver = Receiver::new(Mood::Takes).await;
    let config = |task_id: &str, id: Option<&str>| TaskPushNotificationConfig {
        url: receiver.url(),
        id: id.map(str::to_owned),
        task_id: task_id.to_owned(),
        token: Some("token".into()),
        authentication: None,
        tenant: None,
    };
    let configuration = SendMessageConfiguration {
        accepted_output_modes: None,
        task_push_notification_config: Some(config("", None)),
        history_length: None,
        return_immediately: None,
    };
    let with_receiver = SendMessageRequest {
        configuration: Some(configuration),
        ..request(vec![Part::text("please")], None)
    };
    let task = sent(client, with_receiver).await;
    let made = client.create_push_config(&config(&task.id, Some("second"))).await.unwrap();
    assert_eq!((made.id.as_deref(), made.url), (Some("second"), receiver.url()));
    let named = |id: &str| (task.id.clone(), id.to_owned());
    let (task_id, id) = named("second");
    let get = GetTaskPushNotificationConfigRequest { task_id, id, tenant: None };
    assert_eq!(client.get_push_config(&get).await.unwrap().token.as_deref(), Some("token"));
    let list = ListTaskPushNotificationConfigsRequest {
        task_id: task.id.clone(),
        page_size: None,
        page_token: None,
        tenant: None,
    };
    assert_eq!(client.list_push_configs(&list).await.unwrap().configs.len(), 2);
    let (task_id, id) = named("second");
    let delete = DeleteTaskPushNotificationConfigRequest { task_id, id, tenant: None };
    client.delete_push_config(&delete).await.unwrap();
    client.delete_push_config(&delete).await.unwrap();
    assert_eq!(client.get_push_config(&get).await.unwrap_err().code, a2a::error_code::TASK_NOT_FOUND);
    sent(client, decision(&task, json!({"decision": "approve"}))).await;
    let all = whole(&receiver).await;
    assert_eq!(story(&all), crate::a2a::push::WHOLE);
    for got in &all {
        let event: StreamResponse = serde_json::from_str(&got.text).unwrap();
        assert!(!told(&event).is_empty(), "the client's own types read it");
    }
}

async fn everything(binding: &str) {
    let folder = folder();
    let server = serve(folder.path(), "");
    let ops = client(&server, binding).await;
    decides(&ops).await;
    gets_lists_and_cancels(&ops).await;
    is_pushed_to(&ops).await;
    drop(ops);
    subscribes_across_a_restart(server, folder.path(), binding).await;
}

#[tokio::test]
async fn the_rust_client_over_json_rpc() {
    everything("JSONRPC").await;
}

#[tokio::test]
async fn the_rust_client_over_http_json() {
    everything("HTTP+JSON").await;
}

#[tokio::test]
async fn the_rust_client_over_grpc() {
    everything("GRPC").await;
}

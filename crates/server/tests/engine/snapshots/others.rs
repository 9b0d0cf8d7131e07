//! What else is read of a run once: messages and cancels, decisions over gRPC and the pages of other surfaces, logins; and
//! what streams read, which go on reading what is appended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use a2a_pb::proto::a2a_service_client::A2aServiceClient;
use a2a_pb::proto::{self, part};
use futures_util::future::BoxFuture;
use serde_json::json;
use standfast_core::body::Body;
use standfast_core::command::SuspendFor;
use standfast_core::hold::Ask;
use standfast_core::id::HoldId;
use standfast_core::json::RawJson;
use standfast_core::message::ToolResult;
use standfast_core::name::UserId;
use standfast_engine::auth::Principal;
use standfast_engine::tool::login::{AuthorizationResponse, LoginDesk, NoLogin, StartedLogin};
use standfast_engine::tool::{Invocation, Nature, Outcome, Suspension, Tool, ToolFuture};

use super::{Call, Server, data};

/// A tool that needs a login before it does anything.
#[derive(Default)]
pub(super) struct NeedsLogin(Arc<Desk>);

/// Where people log in for it.
#[derive(Default)]
struct Desk {
    has_login: AtomicBool,
}

fn asks() -> Suspension {
    let told = r#"{"server_name": "crm", "auth_server": "https://login.example", "scopes": ["read"]}"#;
    let ask = Ask { data: Some(Body::Json(RawJson::parse(told).unwrap())), ..Ask::default() };
    Suspension { kind: SuspendFor::Auth, ask, timeout: None, secret: None }
}

impl Tool for NeedsLogin {
    fn run(&self, _: Invocation) -> ToolFuture {
        let outcome = if self.0.has_login.load(Ordering::SeqCst) {
            Outcome::Done(ToolResult::Ok(Body::text("deleted")))
        } else {
            Outcome::Pending(Box::new(asks()))
        };
        Box::pin(std::future::ready(outcome))
    }

    fn nature(&self) -> Nature<'_> {
        Nature::Login(self.0.clone())
    }
}

impl LoginDesk for Desk {
    fn server(&self) -> &str {
        "crm"
    }

    fn asks<'a>(&'a self, _: HoldId, _: &'a UserId) -> BoxFuture<'a, Suspension> {
        Box::pin(std::future::ready(asks()))
    }

    fn begin(&self, _: HoldId) -> BoxFuture<'_, Result<StartedLogin, NoLogin>> {
        let cookie = ("standfast_login_x".to_owned(), "sealed".to_owned());
        let url = "https://login.example/authorize".to_owned();
        Box::pin(std::future::ready(Ok(StartedLogin { url, cookie })))
    }

    fn finish<'a>(
        &'a self,
        _: HoldId,
        _: &'a UserId,
        _: &'a str,
        _: &'a AuthorizationResponse,
    ) -> BoxFuture<'a, Result<(), NoLogin>> {
        self.has_login.store(true, Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(())))
    }

    fn learn<'a>(self: Arc<Self>, _: &'a UserId) -> BoxFuture<'a, Result<(), NoLogin>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn knows_offers(&self) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(true))
    }

    fn tell(&self) {}
}

impl Server {
    /// Posts a form of a page, as the browser does that was shown the page.
    pub(super) async fn post_form(
        &self,
        path: &str,
        fields: &[&str],
        more: &[(&str, &str)],
    ) -> (u16, String) {
        self.post_form_of(path, path, fields, more).await
    }

    /// The same where the form leads to another address.
    pub(super) async fn post_form_of(
        &self,
        page: &str,
        path: &str,
        fields: &[&str],
        more: &[(&str, &str)],
    ) -> (u16, String) {
        let page = self.client.get(format!("{}{page}", self.base)).header("accept", "text/html");
        let page = page.send().await.unwrap();
        let cookie = page.headers()["set-cookie"].to_str().unwrap().to_owned();
        let token = cookie.split(['=', ';']).nth(1).unwrap().to_owned();
        let text = page.text().await.unwrap();
        let hidden = |name: &str| {
            let rest = text.split_once(&format!("name=\"{name}\" value=\"")).unwrap().1;
            rest.split_once('"').unwrap().0.replace("&#x2f;", "%2F").replace(' ', "+")
        };
        let mut form = vec![format!("csrf={token}")];
        form.extend(fields.iter().map(|name| format!("{name}={}", hidden(name))));
        form.extend(more.iter().map(|(name, value)| format!("{name}={value}")));
        let counted = self.store.counted.lock().unwrap().run;
        self.store.begin(counted.unwrap());
        let request = self.client.post(format!("{}{path}", self.base)).header("accept", "text/html");
        let request = request.header("origin", &self.base);
        let request = request.header("cookie", format!("standfast_csrf={token}"));
        let request =
            request.header("content-type", "application/x-www-form-urlencoded").body(form.join("&"));
        self.send(request).await
    }

    /// Where nothing is decided, everything that was read counts.
    #[track_caller]
    pub(super) fn assert_one_read(&self, surface: &str) {
        let reads = self.store.counted.lock().unwrap().before;
        assert!(reads.rows <= 1 && reads.logs + reads.tails <= 1, "{surface}: {reads:?}");
    }

    /// A stream reads the whole log this often; besides, it goes on with what is appended.
    #[track_caller]
    fn assert_stream_reads(&self, surface: &str, logs: usize) {
        let counted = self.store.counted.lock().unwrap();
        assert!(counted.is_written, "{surface}: nothing was decided");
        let (before, after) = (counted.before, counted.after);
        assert!(before.rows <= 1 && before.logs + before.tails <= 1, "{surface}: {before:?} before");
        assert!(after.logs <= logs, "{surface}: {after:?} after");
    }
}

#[tokio::test]
async fn a_cancel_reads_its_run_once() {
    let server = Server::new(Call::NeedsApproval).await;
    let run = server.held().await.run;
    server.store.begin(run);
    server.post(&format!("/api/v1/runs/{run}/cancel"), &json!({})).await;
    server.assert_few_reads("api");

    let run = server.held().await.run;
    server.store.begin(run);
    let done = server.post(&format!("/v1/agents/ops/tasks/{run}:cancel"), &json!({})).await;
    assert_eq!(done["status"]["state"], "TASK_STATE_CANCELED", "{done}");
    server.assert_few_reads("A2A");

    let task = server.post("/api/inboxes/support/tasks", &json!({"type": "ticket", "payload": {}})).await;
    let id = task["id"].as_str().unwrap();
    server.store.begin(id.parse().unwrap());
    server.post(&format!("/api/inboxes/support/tasks/{id}/cancel"), &json!({})).await;
    server.assert_few_reads("inbox");
}

#[tokio::test]
async fn a_message_reads_its_run_once() {
    let server = Server::new(Call::NeedsApproval).await;
    let run = server.held().await.run;
    server.store.begin(run);
    let body = json!({"input": "Never mind", "on_hold": "supersede"});
    server.post(&format!("/api/v1/runs/{run}/messages"), &body).await;
    let before = server.store.counted.lock().unwrap().before;
    assert!(before.rows <= 1 && before.logs + before.tails <= 1, "api: {before:?}");
}

#[tokio::test]
async fn a_decision_over_grpc_reads_its_task_once() {
    let server = Server::new(Call::NeedsApproval).await;
    let hold = server.held().await;
    // It names no hold, so it means the one that its sender was shown.
    server.get(&format!("/v1/agents/ops/tasks/{}", hold.run)).await;
    let message = proto::Message {
        message_id: "m-1".into(),
        task_id: hold.run.to_string(),
        role: proto::Role::User.into(),
        parts: vec![proto::Part {
            content: Some(part::Content::Text("approve".into())),
            ..Default::default()
        }],
        ..Default::default()
    };
    let mut client = A2aServiceClient::connect(server.base.clone()).await.unwrap();
    server.store.begin(hold.run);
    let request =
        proto::SendMessageRequest { message: Some(message), tenant: "ops".into(), ..Default::default() };
    client.send_message(request).await.unwrap();
    server.assert_few_reads("A2A over gRPC");
}

#[tokio::test]
async fn streams_read_the_whole_log_when_they_begin() {
    let server = Server::new(Call::NeedsApproval).await;
    let hold = server.held().await;
    let said = json!({"messageId": "m-1", "role": "ROLE_USER", "taskId": hold.run.to_string(), "parts": [{"data": data(hold)}]});
    let request = server.client.post(format!("{}/v1/agents/ops/message:stream", server.base));
    let request = request.header("content-type", "application/json");
    server.store.begin(hold.run);
    let (status, text) = server.send(request.body(json!({"message": said}).to_string())).await;
    assert!(status == 200 && text.contains("TASK_STATE_COMPLETED"), "{status} {text}");
    server.assert_stream_reads("A2A, a stream", 1);

    let hold = server.held().await;
    let view = server.engine.reads().hold(&Principal::local(), hold).await.unwrap();
    let path = format!("{}/tealagents/v1alpha1/resume/{}/sse", server.base, view.row.request.unwrap());
    let request = server.client.post(path).header("content-type", "application/json");
    server.store.begin(hold.run);
    let (status, text) = server.send(request.body(json!({"action": "approve"}).to_string())).await;
    assert!(status == 200 && text.contains("final-response"), "{status} {text}");
    // Once more for the answer, which is made of all of it.
    server.assert_stream_reads("Teal Agents, a stream", 2);
}

#[tokio::test]
async fn a_decision_on_the_page_of_teal_reads_its_task_once() {
    let server = Server::new(Call::NeedsApproval).await;
    let hold = server.held().await;
    let view = server.engine.reads().hold(&Principal::local(), hold).await.unwrap();
    let path = format!("/tealagents/v1alpha1/resume/{}", view.row.request.unwrap());
    server.store.begin(hold.run);
    let (status, text) = server.post_form(&path, &["seen", "once"], &[("action", "approve")]).await;
    assert_eq!(status, 303, "{text}");
    server.assert_few_reads("the page of Teal Agents");
}

#[tokio::test]
async fn the_pages_of_a_login_read_its_run_once() {
    let server = Server::new(Call::NeedsALogin).await;
    let hold = server.held().await;
    server.store.begin(hold.run);
    server.get(&format!("/login/{hold}")).await;
    server.assert_one_read("the page of a login");
    let (status, text) = server.post_form(&format!("/login/{hold}"), &[], &[]).await;
    assert_eq!(status, 200, "{text}");
    server.assert_one_read("the way to a login");
    server.store.begin(hold.run);
    let (who, returned) = (Principal::local(), AuthorizationResponse::default());
    server.engine.logins().finish_login(&who, hold, "cookie", &returned).await.unwrap();
    server.assert_few_reads("the way back from a login");
}

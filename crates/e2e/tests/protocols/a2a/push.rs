//! Push notifications: configurations over both bindings, and what receivers get, also across `kill -9`.
//!
//! The receiver is a real one on this machine, which the configuration names.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::a2a::server::{Server, configured, decides, says, serve_file, state};
use standfast_testkit::json::owned_text as text;
use standfast_testkit::receiver::{Got, Mood, Receiver};

const SCRIPT: &str = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"echo hello\"}'\n- text: done\n";

/// A folder with the script of an agent that asks before it runs something.
pub(crate) fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("script.yaml"), SCRIPT).unwrap();
    folder
}

pub(crate) fn serve(folder: &Path, more: &str) -> Server {
    let config = format!(
        "llms: {{script: {{type: scripted, script: script.yaml}}}}
server:
  webhooks: {{allowed_hosts: ['127.0.0.1'], timeout: 5s, retries: [{}]}}
{more}
tools: {{execute_command: {{allowed_commands: [echo]}}}}
session_stores: {{db: {{backend: sql, sql: {{driver: sqlite, database: ./kept.db}}}}}}
agents: {{ops: {{llm: script, session_store: db, tools: [execute_command], task: {{input_timeout: 2h}}}}}}
",
        vec!["200ms"; 600].join(", ")
    );
    configured(folder, &config)
}

/// What a notification says, in one word.
fn told(got: &Got) -> String {
    let body = got.body();
    let (name, value) = body.as_object().unwrap().iter().next().unwrap();
    match name.as_str() {
        "artifactUpdate" => name.clone(),
        _ => format!("{name} {}", state(value)),
    }
}

/// The notifications that were taken, without repeats.
pub(crate) fn story(all: &[Got]) -> Vec<String> {
    let mut seen = Vec::new();
    let mut story = Vec::new();
    for got in all.iter().filter(|got| got.was_taken) {
        if !seen.contains(&got.headers["webhook-id"]) {
            seen.push(got.headers["webhook-id"].clone());
            story.push(told(got));
        }
    }
    story
}

pub(crate) const WHOLE: [&str; 5] = [
    "task TASK_STATE_WORKING",
    "statusUpdate TASK_STATE_INPUT_REQUIRED",
    "statusUpdate TASK_STATE_WORKING",
    "artifactUpdate",
    "statusUpdate TASK_STATE_COMPLETED",
];

pub(crate) async fn whole(receiver: &Receiver) -> Vec<Got> {
    let is_over = |all: &[Got]| story(all).last().is_some_and(|last| last.ends_with("COMPLETED"));
    receiver.until("the end of the task", is_over).await
}

/// T30: the key is changed twice while a run waits, from the one that the server made itself to one of the file to
/// another. What was sealed before still opens, and what is sent is signed with the secret of before and with the new one.
/// Without the old key nothing is sent without its token, and the dead letters say what to do.
#[tokio::test]
async fn keys_change_while_a_run_waits() {
    let folder = folder();
    let mut server = serve(folder.path(), "");
    let config = std::fs::read_to_string(folder.path().join("standfast.yaml")).unwrap();
    let rewrite = |keys: &str| {
        let text = config.replace("webhooks: {", &format!("webhooks: {{{keys}"));
        std::fs::write(folder.path().join("standfast.yaml"), text).unwrap();
    };
    let (receiver, left) = (Receiver::new(Mood::Takes).await, Receiver::new(Mood::Takes).await);
    let mut tasks = Vec::new();
    for receiver in [&receiver, &left] {
        let config = json!({"url": receiver.url(), "token": "the-token-of-the-test"});
        let request =
            json!({"message": says("please"), "configuration": {"taskPushNotificationConfig": config}});
        tasks.push(server.post("/v1/agents/ops/message:send", &request).await.body["task"].clone());
        receiver.until("the question", |all| story(all).len() == 2).await;
    }
    let mut secrets = Vec::new();
    let (first, second) =
        ("the first key of the file, long enough", "the second key of the file, long enough");
    for keys in
        ["".to_owned(), format!("key: '{first}', "), format!("key: '{second}', previous_keys: ['{first}'], ")]
    {
        drop(server);
        rewrite(&keys);
        server = serve_file(folder.path(), &[]);
        let id = subscription(&server, &tasks[0]).await;
        let rotated = server.post(&format!("/api/v1/subscriptions/{id}/rotate"), &json!({})).await;
        secrets.push(text(&rotated.body["secret"]));
    }
    server.send("ops", &decides(&tasks[0], json!({"decision": "approve"}))).await;
    let last = whole(&receiver).await.pop().unwrap();
    assert_eq!(last.headers["x-a2a-notification-token"], "the-token-of-the-test");
    assert!(last.is_signed_with(&secrets[1]), "what was made under the key before is signed with too");
    assert!(last.is_signed_with(&secrets[2]));
    // The key that the server made itself is known for as long as its file is there.
    drop(server);
    std::fs::remove_file(folder.path().join("data/webhook.key")).unwrap();
    let text_of = std::fs::read_to_string(folder.path().join("standfast.yaml")).unwrap();
    let few = text_of.replace(&vec!["200ms"; 600].join(", "), "200ms");
    std::fs::write(folder.path().join("standfast.yaml"), few).unwrap();
    let server = serve_file(folder.path(), &[]);
    server.send("ops", &decides(&tasks[1], json!({"decision": "approve"}))).await;
    let path = format!("/api/v1/subscriptions/{}/dead-letters", subscription(&server, &tasks[1]).await);
    for _ in 0..600 {
        let shown = server.get(&path).await.body.to_string();
        if shown.contains("sealed under another server.webhooks.key") {
            assert_eq!(story(&left.all()).len(), 2, "nothing came without its token");
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the dead letters do not say what is wrong: {}", server.get(&path).await.body);
}

/// The id of the subscription to a task.
async fn subscription(server: &Server, task: &Value) -> String {
    let known = server.get("/api/v1/subscriptions").await.body;
    let about = |one: &&Value| one["run"] == task["id"];
    text(&known["subscriptions"].as_array().unwrap().iter().find(about).unwrap()["id"])
}

/// A receiver that came with the message gets the task from its first event on: in order, with token, credentials,
/// numbers and a signature; and neither the database nor the log has the secrets in clear (T29, T30).
#[tokio::test]
async fn a_receiver_that_comes_with_a_message_hears_everything() {
    let folder = folder();
    let server = serve(folder.path(), "");
    let receiver = Receiver::new(Mood::Takes).await;
    let config = json!({"url": receiver.url(), "token": "the-token-of-the-test",
        "authentication": {"scheme": "Bearer", "credentials": "the-credentials-of-the-test"}});
    let request = json!({"message": says("please"), "configuration": {"taskPushNotificationConfig": config}});
    let task = server.post("/v1/agents/ops/message:send", &request).await.body["task"].clone();
    assert_eq!(state(&task), "TASK_STATE_INPUT_REQUIRED");
    receiver.until("the question", |all| story(all).len() == 2).await;
    let listed =
        server.get(&format!("/v1/agents/ops/tasks/{}/pushNotificationConfigs", text(&task["id"]))).await;
    let id = text(&listed.body["configs"][0]["id"]);
    let subscriptions = server.get("/api/v1/subscriptions").await;
    let subscription = text(&subscriptions.body["subscriptions"][0]["id"]);
    let rotated = server.post(&format!("/api/v1/subscriptions/{subscription}/rotate"), &json!({})).await;

    server.send("ops", &decides(&task, json!({"decision": "approve"}))).await;
    let all = whole(&receiver).await;
    assert_eq!(story(&all), WHOLE);
    for (index, got) in all.iter().enumerate() {
        let header = |name: &str| got.headers[name].as_str();
        assert_eq!(header("content-type"), "application/a2a+json");
        assert_eq!(header("a2a-version"), "1.0");
        assert_eq!(header("authorization"), "Bearer the-credentials-of-the-test");
        assert_eq!(header("x-a2a-notification-token"), "the-token-of-the-test");
        assert_eq!(header("x-a2a-notification-sequence"), (index + 1).to_string());
        assert_eq!(got.body().as_object().unwrap().len(), 1, "one event each");
    }
    assert!(all.last().unwrap().is_signed_with(&text(&rotated.body["secret"])));
    let question = &all[1].body()["statusUpdate"]["status"]["message"];
    assert_eq!(question, &task["status"]["message"], "a receiver is asked what a caller is asked");

    let got =
        server.rpc("ops", "GetTaskPushNotificationConfig", json!({"taskId": task["id"], "id": id})).await;
    assert_eq!(got.body["result"]["authentication"], json!({"scheme": "Bearer"}), "credentials stay here");
    drop(server);
    let mut looked_at = 0;
    for file in std::fs::read_dir(folder.path().join("data"))
        .unwrap()
        .chain(std::fs::read_dir(folder.path()).unwrap())
    {
        let file = file.unwrap();
        if file.file_type().unwrap().is_file() {
            let bytes = std::fs::read(file.path()).unwrap();
            for secret in ["the-token-of-the-test", "the-credentials-of-the-test"] {
                let is_there = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
                assert!(!is_there, "{secret} stands in {:?}", file.path());
            }
            looked_at += 1;
        }
    }
    assert!(looked_at > 2, "the database was looked at");
}

/// Traps 3 and 5 of push: ids are the task's own, a task that has ended may have one, the second delete succeeds.
#[tokio::test]
async fn configurations_are_made_read_listed_and_deleted() {
    let folder = folder();
    let server = serve(folder.path(), "");
    let receiver = Receiver::new(Mood::Takes).await;
    let (first, second) = (server.send("ops", &says("a")).await, server.send("ops", &says("b")).await);
    let over = server.send("ops", &decides(&second, json!({"decision": "deny"}))).await;
    assert_eq!(state(&over), "TASK_STATE_COMPLETED");
    for task in [&first, &over] {
        let params = json!({"taskId": task["id"], "id": "mine", "url": receiver.url(), "token": "t"});
        let made = server.rpc("ops", "CreateTaskPushNotificationConfig", params.clone()).await;
        assert_eq!(made.body["result"], params, "{made:?}");
        let path = format!("/v1/agents/ops/tasks/{}/pushNotificationConfigs", text(&task["id"]));
        let over_http = server.post(&path, &json!({"url": format!("{}/2", receiver.url())})).await;
        let assigned = text(&over_http.body["id"]);
        assert!(!assigned.is_empty() && assigned != "mine");
        let again = server.post(&path, &json!({"url": format!("{}/2", receiver.url())})).await;
        assert_eq!(
            again.body["id"],
            assigned.as_str(),
            "the same address without an id is the same receiver"
        );
        let listed = server.get(&path).await;
        assert_eq!(listed.body["configs"].as_array().unwrap().len(), 2, "{listed:?}");
        assert!(listed.body.get("nextPageToken").is_none());
        let page = server.get(&format!("{path}?pageSize=1")).await;
        let token = text(&page.body["nextPageToken"]);
        let rest = server.get(&format!("{path}?pageSize=1&pageToken={token}")).await;
        let ids: Vec<&Value> = [&page, &rest].iter().map(|page| &page.body["configs"][0]["id"]).collect();
        assert!(ids.contains(&&json!("mine")) && ids[0] != ids[1], "{ids:?}");
        assert_eq!(server.get(&format!("{path}/mine")).await.body, params);
        for _ in 0..2 {
            let deleted = server.ask("DELETE", &format!("{path}/mine"), &[], b"").await;
            assert_eq!((deleted.status, deleted.body), (200, json!({})));
            let id = json!({"taskId": task["id"], "id": assigned});
            let deleted = server.rpc("ops", "DeleteTaskPushNotificationConfig", id).await;
            assert_eq!(deleted.body.get("result"), Some(&Value::Null), "{deleted:?}");
        }
        let gone = server.get(&format!("{path}/mine")).await;
        assert_eq!((gone.status, gone.reason()), (404, "TASK_NOT_FOUND"));
        assert_eq!(server.get(&path).await.body["configs"], json!([]));
    }
    let task = text(&first["id"]);
    for (params, reason, field) in [
        (json!({"taskId": "run_00000000000000000000000000", "url": receiver.url()}), "TASK_NOT_FOUND", ""),
        (json!({"taskId": "nothing", "url": receiver.url()}), "TASK_NOT_FOUND", ""),
        (json!({"url": receiver.url()}), "INVALID_PARAMS", "taskId"),
        (json!({"taskId": task, "url": ""}), "INVALID_PARAMS", "url"),
        (json!({"taskId": task, "url": "no address"}), "INVALID_PARAMS", "url"),
        (json!({"taskId": task, "url": "http://169.254.169.254/latest"}), "INVALID_PARAMS", "url"),
        (json!({"taskId": task, "url": "http://10.0.0.1/"}), "INVALID_PARAMS", "url"),
        (json!({"taskId": task, "url": "http://localhost:1/"}), "INVALID_PARAMS", "url"),
        (json!({"taskId": task, "url": receiver.url(), "token": "a\r\nb"}), "INVALID_PARAMS", "token"),
        (
            json!({"taskId": task, "url": receiver.url(), "authentication": {"scheme": "a b"}}),
            "INVALID_PARAMS",
            "authentication.scheme",
        ),
    ] {
        let answer = server.rpc("ops", "CreateTaskPushNotificationConfig", params.clone()).await;
        assert_eq!(answer.reason(), reason, "{params}: {answer:?}");
        if !field.is_empty() {
            assert_eq!(answer.body["error"]["data"][1]["fieldViolations"][0]["field"], field, "{answer:?}");
        }
    }
    for index in 0..20 {
        let params = json!({"taskId": task, "id": format!("c{index}"), "url": receiver.url()});
        let made = server.rpc("ops", "CreateTaskPushNotificationConfig", params).await;
        assert_eq!(made.body["result"]["id"], format!("c{index}"));
    }
    let one_more = json!({"taskId": task, "id": "more", "url": receiver.url()});
    let answer = server.rpc("ops", "CreateTaskPushNotificationConfig", one_more).await;
    assert_eq!(answer.reason(), "INVALID_PARAMS", "{answer:?}");
    assert!(receiver.all().is_empty(), "nothing happened since");
}

/// F25: what cannot be told is told later, after `kill -9` too, in order and with the same ids.
#[tokio::test]
async fn a_receiver_that_was_away_is_told_after_a_crash() {
    let folder = folder();
    let receiver = Receiver::new(Mood::Says("503 Service Unavailable\r\nretry-after: 1".into())).await;
    let config = json!({"url": receiver.url(), "id": "c"});
    let server = serve(folder.path(), "");
    let request = json!({"message": says("please"), "configuration": {"taskPushNotificationConfig": config}});
    let task = server.post("/message:send", &request).await.body["task"].clone();
    receiver.until("a first try", |all| !all.is_empty()).await;
    server.send("ops", &decides(&task, json!({"decision": "approve"}))).await;
    drop(server);
    receiver.becomes(Mood::Takes);
    let server = serve(folder.path(), "");
    let all = whole(&receiver).await;
    assert_eq!(story(&all), WHOLE);
    let ids: Vec<&str> = all.iter().map(|got| got.headers["webhook-id"].as_str()).collect();
    assert_eq!(
        ids[0],
        ids.iter().find(|id| id.ends_with("-1")).copied().unwrap(),
        "a repeat has the same id"
    );
    drop(server);
}

/// A server that was told to offer no push notifications says so in its card and in all five answers.
#[tokio::test]
async fn what_is_not_offered_is_refused() {
    let folder = folder();
    let server = serve(folder.path(), "  a2a: {push_notifications: false}");
    let card = server.get("/.well-known/agent-card.json").await;
    assert_eq!(card.body["capabilities"]["pushNotifications"], false);
    let task = server.send("ops", &says("a")).await;
    let config = json!({"taskId": task["id"], "id": "c", "url": "http://127.0.0.1:1/"});
    let inline = json!({"message": says("go"), "configuration": {"taskPushNotificationConfig": config}});
    for (method, params) in [
        ("SendMessage", &inline),
        ("SendStreamingMessage", &inline),
        ("CreateTaskPushNotificationConfig", &config),
        ("GetTaskPushNotificationConfig", &config),
        ("ListTaskPushNotificationConfigs", &config),
        ("DeleteTaskPushNotificationConfig", &config),
    ] {
        let answer = server.rpc("ops", method, params.clone()).await;
        let found = (answer.body["error"]["code"].as_i64(), answer.reason());
        assert_eq!(found, (Some(-32003), "PUSH_NOTIFICATION_NOT_SUPPORTED"), "{method}");
    }
    let path = format!("/v1/agents/ops/tasks/{}/pushNotificationConfigs", text(&task["id"]));
    for (method, path) in
        [("GET", path.clone()), ("GET", format!("{path}/c")), ("DELETE", format!("{path}/c"))]
    {
        let answer = server.ask(method, &path, &[], b"").await;
        assert_eq!(
            (answer.status, answer.reason()),
            (400, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
            "{method} {path}"
        );
    }
    let everything = server.get("/v1/agents/ops/tasks").await;
    assert_eq!(everything.body["totalSize"], 1, "nothing was begun");
}

/// S3-1, T11: a receiver whose name leads nowhere yet is kept, and looked at again at each sending; one whose name leads to this
/// machine is refused, and so is one that nobody could be told safely.
#[tokio::test]
async fn receivers_may_not_resolve_yet() {
    let folder = folder();
    let server = serve(folder.path(), "");
    let task = server.send("ops", &says("go")).await;
    let path = format!("/v1/agents/ops/tasks/{}/pushNotificationConfigs", task["id"].as_str().unwrap());
    let create = async |url: &str| server.post(&path, &json!({"url": url})).await;
    let kept = create("https://nobody-has-this-name.invalid/hook").await;
    assert_eq!(kept.status, 200, "{kept:?}");
    let listed = server.ask("GET", &path, &[("a2a-version", "1.0")], b"").await;
    assert_eq!(listed.body["configs"].as_array().unwrap().len(), 1, "{listed:?}");
    for url in ["https://localhost/hook", "https://10.0.0.1/hook", "http://nobody-has-this-name.invalid/hook"]
    {
        let refused = create(url).await;
        assert_eq!((refused.status, refused.reason()), (400, "INVALID_PARAMS"), "{url}: {refused:?}");
    }
    let inline = json!({"message": says("go"), "configuration": {"returnImmediately": true,
        "taskPushNotificationConfig": {"url": "https://nobody-has-this-name.invalid/hook"}}});
    assert_eq!(server.post("/v1/agents/ops/message:send", &inline).await.status, 200);
    let hook = json!({"url": "https://nobody-has-this-name.invalid/hook", "events": ["hold.opened"]});
    let webhook = server.post("/api/v1/subscriptions", &hook).await;
    assert_eq!(webhook.status, 422, "a person can correct it: {webhook:?}");
}

//! Holds that expired and are kept, and decisions that come late: shown as such wherever somebody looks or is answered.
//!
//! One agent, whose holds expire after a second and are kept. What expiry means is in the scenarios of the store, what a clock does
//! in `crates/server/tests/engine/hours.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use standfast_testkit::{Http, Process, folder, serve, text, until_found};
use tempfile::TempDir;

fn site() -> (TempDir, Process, Http) {
    let call =
        json!({"tool": "write_file", "arguments": json!({"path": "a.txt", "content": "x"}).to_string()});
    let script = json!({"replies": [{"calls": [call]}, {"text": "done"}]}).to_string();
    let folder = folder(
        &[("s", &script)],
        "agents:
  a:
    llm: s
    tools: [write_file]
    session_store: main
    inboxes: [support]
    task: {input_timeout: 1, hitl: {on_timeout: keep, expiry_grace: 2d}}
session_stores: {main: {backend: sql, sql: {driver: sqlite, database: kept.db}}}
",
    );
    std::fs::create_dir(folder.path().join("workspace")).unwrap();
    let server = serve(folder.path());
    let http = Http::new(&server.base);
    (folder, server, http)
}

/// The hold of a run over the native API, once it has expired.
async fn expired(http: &Http, run: &str) -> Value {
    until_found("the hold has expired", async || {
        let holds = http.get("/api/v1/holds").await.body;
        let mut of_run = holds["holds"].as_array().unwrap().iter().filter(|hold| hold["run"] == run);
        of_run.next().filter(|hold| hold["expired_at"].is_string()).cloned()
    })
    .await
}

/// C7, S0-49, S0-50: the native API, the command line, pages and the receipt.
#[tokio::test]
async fn late_on_the_api_the_command_line_and_pages() {
    let (_folder, server, http) = site();
    let run = http.post("/api/v1/agents/a/runs", &json!({"input": "go", "wait": "settled"})).await.body;
    let id = text(&run["id"]).to_owned();
    let hold = expired(&http, &id).await;
    let hold = text(&hold["id"]).to_owned();
    let detail = http.get(&format!("/api/v1/holds/{hold}")).await.body;
    assert!(detail["grace_ends_at"].is_string() && detail.get("late").is_none(), "{detail}");
    let shown = String::from_utf8(server.output(&["holds", "show", &hold]).stdout).unwrap();
    assert!(shown.contains("expired:  ") && shown.contains("late decisions are taken until"), "{shown}");
    let page = http.get(&format!("/approve/{hold}")).await.text;
    assert!(page.contains("deadline was") && page.contains("a late decision still counts"), "{page}");
    let list = http.get("/").await.text;
    assert!(list.contains("deadline was"), "{list}");
    let conversation = http.get(&format!("/runs/{id}")).await.text;
    assert!(conversation.contains("Expired; still open for a late decision"), "{conversation}");

    let resolve = json!({"resolution": "approve"});
    let decided = http.post(&format!("/api/v1/holds/{hold}/resolve"), &resolve).await;
    assert_eq!((decided.status, &decided.body["hold"]["late"]), (200, &json!(true)), "{decided:?}");
    let receipt = http.get(&format!("/api/v1/holds/{hold}/receipt")).await.body;
    assert_eq!(receipt["receipt"]["decision"]["late"], true, "{receipt}");
    let page = http.get(&format!("/approve/{hold}")).await.text;
    assert!(page.contains("after the deadline"), "{page}");
    let shown = String::from_utf8(server.output(&["holds", "show", &hold]).stdout).unwrap();
    assert!(shown.contains("late:     the decision came after the deadline"), "{shown}");
    let printed = http.get(&format!("/approve/{hold}/receipt")).await.text;
    assert!(printed.contains("after the deadline"), "{printed}");
}

/// The same over A2A: the task says that its time has passed and until when an answer is taken, as text and as data, and the answer
/// to a late decision says that it was late.
#[tokio::test]
async fn late_over_a2a() {
    let (_folder, _server, http) = site();
    let said = json!({"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "go"}]}});
    let task = http.post("/v1/agents/a/message:send", &said).await.body["task"].clone();
    let path = format!("/v1/agents/a/tasks/{}", text(&task["id"]));
    let asked = until_found("the task says that it has expired", async || {
        let task = http.get(&path).await.body;
        task["status"]["message"]["parts"][0]["text"].as_str()?.starts_with("⏰ Expired at ").then_some(task)
    })
    .await;
    assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let data = &asked["status"]["message"]["parts"][1]["data"];
    assert!(data["expired_at"].is_string() && data["grace_ends_at"].is_string(), "{asked}");
    let decision = json!({"message": {"messageId": "m-2", "role": "ROLE_USER", "taskId": task["id"],
        "contextId": task["contextId"], "parts": [{"data": {"decision": "approve"}}]}});
    let done = http.post("/v1/agents/a/message:send", &decision).await.body["task"].clone();
    assert_eq!(done["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
    assert!(done.to_string().contains("Late: the hold had expired at "), "{done}");
}

/// The same over Teal Agents: the call that waits, its page, and the trail of the task.
#[tokio::test]
async fn late_over_teal_agents() {
    let (_folder, _server, http) = site();
    let said = json!({"items": [{"content_type": "text", "content": "please"}]});
    let paused = http.post("/tealagents/v1alpha1/a", &said).await.body;
    assert!(paused["tool_calls"][0]["metadata"].get("expired_at").is_none(), "{paused}");
    let task = format!("/tealagents/v1alpha1/a/tasks/{}", text(&paused["task_id"]));
    let expired = until_found("the call says that it has expired", async || {
        let paused = http.get(&format!("{task}/response")).await.body;
        let metadata = paused["tool_calls"][0]["metadata"].clone();
        metadata["expired_at"].is_string().then_some(metadata)
    })
    .await;
    assert!(expired["grace_ends_at"].is_string(), "{expired}");
    let resume = format!("/tealagents/v1alpha1/resume/{}", text(&paused["request_id"]));
    let page = http.send("GET", &resume, &[("accept", "text/html")], "").await.text;
    assert!(page.contains("a late decision still counts"), "{page}");
    let done = http.post(&resume, &json!({"action": "approve"})).await;
    assert_eq!(done.body["output"], "done", "{done:?}");
    let trail = http.get(&task).await.body;
    let decided = trail["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|item| text(&item["item"]["content"]).contains(r#""action":"approve""#));
    assert!(text(&decided.unwrap()["item"]["content"]).contains(r#""late":true"#), "{trail}");
    let page = http.send("GET", &resume, &[("accept", "text/html")], "").await.text;
    assert!(page.contains("after the deadline"), "{page}");
}

/// The same in an inbox: what people are asked says that its time has passed, and the widget of the conversation too.
#[tokio::test]
async fn late_in_an_inbox_and_in_widgets() {
    let (_folder, _server, http) = site();
    let task = http.post("/api/inboxes/support/tasks", &json!({"type": "ticket", "payload": {}})).await.body;
    let path = format!("/api/inboxes/support/tasks/{}", text(&task["id"]));
    let asked = until_found("the question says that it has expired", async || {
        let asked = http.get(&path).await.body["suspendPayload"].clone();
        asked["expiredAt"].is_string().then_some(asked)
    })
    .await;
    assert!(asked["graceEndsAt"].is_string(), "{asked}");
    let resumed = http.post(&format!("{path}/resume"), &json!({"payload": "approve"})).await;
    assert_eq!(resumed.status, 200, "{resumed:?}");
    until_found("the task ends", async || {
        (http.get(&path).await.body["status"] == "completed").then_some(())
    })
    .await;
    let run = http
        .post("/api/v1/agents/a/runs", &json!({"input": "go", "wait": "settled", "session": "s-1"}))
        .await;
    expired(&http, text(&run.body["id"])).await;
    let page = http.get("/sessions/s-1?agent=a").await.text;
    assert!(page.contains("expired, a late decision still counts"), "{page}");
}

/// What expired gets a new deadline by command, by the native API and on its page; decided before that it is not late.
#[tokio::test]
async fn a_hold_that_expired_is_reopened() {
    let (_folder, server, http) = site();
    let tomorrow =
        std::process::Command::new("date").args(["-u", "-d", "+1 day", "+%FT%TZ"]).output().unwrap();
    let tomorrow = String::from_utf8(tomorrow.stdout).unwrap().trim().to_owned();
    for way in ["command", "api", "page"] {
        let run = http.post("/api/v1/agents/a/runs", &json!({"input": "go", "wait": "settled"})).await.body;
        let hold = text(&expired(&http, text(&run["id"])).await["id"]).to_owned();
        match way {
            "command" => {
                let reopened = server.output(&["holds", "reopen", &hold, "--until", &tomorrow]);
                assert!(reopened.status.success(), "{reopened:?}");
            }
            "api" => {
                let body = json!({"expires_at": tomorrow});
                let reopened = http.post(&format!("/api/v1/holds/{hold}/reopen"), &body).await;
                assert_eq!(reopened.status, 200, "{reopened:?}");
            }
            _ => reopened_on_its_page(&server.base, &hold).await,
        }
        let shown = http.get(&format!("/api/v1/holds/{hold}")).await.body;
        assert!(shown.get("expired_at").is_none() && shown["expires_at"].is_string(), "{way}: {shown}");
        assert!(shown.get("grace_ends_at").is_none(), "{way}: {shown}");
        let again = http.post(&format!("/api/v1/holds/{hold}/reopen"), &json!({})).await;
        assert_eq!(again.status, 409, "{way}: it is open and has not expired: {again:?}");
        let resolve = json!({"resolution": "approve"});
        let decided = http.post(&format!("/api/v1/holds/{hold}/resolve"), &resolve).await;
        assert_eq!(decided.status, 200, "{way}: {decided:?}");
        assert!(decided.body["hold"].get("late").is_none(), "{way}: {decided:?}");
        let receipt = http.get(&format!("/api/v1/holds/{hold}/receipt")).await.body;
        assert!(receipt["receipt"]["decision"].get("late").is_none_or(|late| late == false), "{receipt}");
    }
}

/// Posts the form of a hold's page that sets a new deadline.
async fn reopened_on_its_page(base: &str, hold: &str) {
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let answer = client.get(format!("{base}/approve/{hold}")).send().await.unwrap();
    let cookie = answer.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let page = answer.text().await.unwrap();
    assert!(page.contains("name=\"action\" value=\"reopen\""), "{page}");
    let field = |name: &str| {
        let (_, rest) = page.split_once(&format!("name=\"{name}\" value=\"")).unwrap();
        rest.split_once('"').unwrap().0.to_owned()
    };
    let form = format!("csrf={}&once={}&action=reopen&hours=24", field("csrf"), field("once"));
    let posted = client.post(format!("{base}/approve/{hold}/people")).header("cookie", cookie);
    let posted = posted.header("origin", base).header("content-type", "application/x-www-form-urlencoded");
    let answer = posted.body(form).send().await.unwrap();
    assert_eq!(answer.status(), 303, "{}", answer.text().await.unwrap());
}

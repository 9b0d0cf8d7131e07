//! The real binary on a real data directory, over HTTP, with real kills.
//!
//! The oracle of what ran is outside the store: the demo's tool writes a line for each start.

#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use reqwest::{Client, RequestBuilder, Response};
use serde_json::{Value, json};
use standfast_testkit::{Process, until_found};
use tempfile::TempDir;

const ARGUMENTS: &str = r#"{"path": "/srv/cache/old"}"#;

/// A running server; dropping it is `kill -9`.
struct Server {
    program: Process,
    client: Client,
}

fn serve(data: &Path) -> Server {
    let program = standfast_testkit::start(&mut program(data, "127.0.0.1:0"));
    Server { program, client: standfast_testkit::http::client() }
}

fn program(data: &Path, listen: &str) -> Command {
    let mut command = standfast_testkit::standfast();
    command.args(["serve", "--listen", listen, "--data"]).arg(data).env("RUST_LOG", "warn");
    command
}

impl Server {
    fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(format!("{}{path}", self.program.base)).timeout(Duration::from_secs(30))
    }

    fn post(&self, path: &str, body: &str) -> RequestBuilder {
        let request =
            self.client.post(format!("{}{path}", self.program.base)).timeout(Duration::from_secs(30));
        request.header("content-type", "application/json").body(body.to_owned())
    }

    async fn read(&self, path: &str) -> Value {
        let response = self.get(path).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response.json().await.unwrap()
    }

    /// Starts a run and waits until it is held; its id and that of its hold.
    async fn held(&self) -> (String, String) {
        let body = r#"{"input": "Free some space", "wait": "settled"}"#;
        let response = self.post("/api/v1/agents/ops/runs", body).send().await.unwrap();
        assert_eq!(response.status(), 201);
        let run: Value = response.json().await.unwrap();
        assert_eq!((&run["status"], &run["waiting_for"]), (&json!("held"), &json!("person")));
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&run["id"]), text(&run["holds"][0]["id"]))
    }

    async fn resolve(&self, hold: &str, body: &str) -> (u16, Value) {
        answer(self.post(&format!("/api/v1/holds/{hold}/resolve"), body)).await
    }

    async fn until(&self, run: &str, status: &str) -> Value {
        until_found(&format!("{run} is {status}"), async || {
            let body = self.read(&format!("/api/v1/runs/{run}")).await;
            (body["status"] == status).then_some(body)
        })
        .await
    }

    /// Reads the stream until an event of this type; the sequences that it saw.
    async fn stream(&self, run: &str, after: Option<u64>, until: &str) -> Vec<u64> {
        let request = self.get(&format!("/api/v1/runs/{run}/events")).header("accept", "text/event-stream");
        let request = match after {
            Some(id) => request.header("last-event-id", id.to_string()),
            None => request,
        };
        let mut response = request.send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let (mut text, mut done) = (String::new(), 0);
        let mut seen = Vec::new();
        loop {
            text.push_str(std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap());
            while let Some(end) = text[done..].find("\n\n") {
                let event = &text[done..done + end];
                done += end + 2;
                let field =
                    |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
                let Some(id) = field("id:") else { continue };
                seen.push(id.parse().unwrap());
                if field("event:") == Some(until) {
                    return seen;
                }
            }
        }
    }
}

async fn answer(request: RequestBuilder) -> (u16, Value) {
    let response: Response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let media_type = response.headers()["content-type"].to_str().unwrap().to_owned();
    let expected = if status < 400 { "application/json" } else { "application/problem+json" };
    assert_eq!(media_type, expected);
    let body: Value = response.json().await.unwrap();
    if status >= 400 {
        assert_eq!(body["status"], status);
        assert!(["type", "title", "detail"].iter().all(|name| body[name].is_string()), "{body}");
    }
    (status, body)
}

fn effects(data: &TempDir) -> Vec<String> {
    let text = std::fs::read_to_string(data.path().join("demo-effects.log")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// S0-1 … S0-5, S0-33, S0-34: killed while it waits, approved after a restart, it runs once with the stored arguments.
#[tokio::test]
async fn a_held_run_survives_kill_9_and_runs_once() {
    let data = tempfile::tempdir().unwrap();
    let first = serve(data.path());
    let (run, hold) = first.held().await;
    drop(first);
    assert_eq!(effects(&data), Vec::<String>::new());

    let second = serve(data.path());
    let list = second.read("/api/v1/holds?state=open&kind=approval&agent=ops&tool=delete_file").await;
    assert_eq!(list["holds"][0]["id"], json!(hold));
    let text = second.get(&format!("/api/v1/holds/{hold}")).send().await.unwrap().text().await.unwrap();
    assert!(text.contains(&format!(r#""arguments":{ARGUMENTS}"#)), "{text}");
    let shown: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(shown["arguments_text"], ARGUMENTS);
    let body = json!({"resolution": "approve", "digest": shown["digest"], "revision": 0}).to_string();
    let (status, decided) = second.resolve(&hold, &body).await;
    assert_eq!((status, &decided["outcome"]), (200, &json!("decided")));
    let ended = second.until(&run, "completed").await;
    assert_eq!(ended["result"], "I have dealt with the old cache.");
    assert_eq!(effects(&data), [format!("{run}/1/1 {ARGUMENTS}")]);
    assert_eq!(second.read("/api/v1/holds").await["holds"], json!([]));
    let receipt = second.read(&format!("/api/v1/holds/{hold}/receipt")).await;
    assert_eq!(receipt["receipt"]["call"]["effect"], "executed");
    assert_eq!(receipt["receipt"]["decision"]["by"], "person:local");
}

/// Deny, edit and cancel after a restart.
#[tokio::test]
async fn deny_edit_and_cancel_work_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let first = serve(data.path());
    let (denied, hold_of_denied) = first.held().await;
    let (edited, hold_of_edited) = first.held().await;
    let (canceled, hold_of_canceled) = first.held().await;
    drop(first);

    let second = serve(data.path());
    let deny = r#"{"resolution": "deny", "reason": "still needed"}"#;
    assert_eq!(second.resolve(&hold_of_denied, deny).await.0, 200);
    let other = r#"{"path":  "/srv/cache/older"}"#;
    let edit = format!(r#"{{"resolution": "approve", "arguments": {other}}}"#);
    let (status, body) = second.resolve(&hold_of_edited, &edit).await;
    assert_eq!((status, &body["hold"]["decided"]["how"]), (200, &json!("edited")));
    let cancel = second.post(&format!("/api/v1/runs/{canceled}/cancel"), r#"{"reason": "changed my mind"}"#);
    let (status, body) = answer(cancel).await;
    assert_eq!((status, &body["status"]), (200, &json!("canceled")));

    second.until(&denied, "completed").await;
    second.until(&edited, "completed").await;
    assert_eq!(effects(&data), [format!("{edited}/1/1 {other}")]);
    let (status, body) = second.resolve(&hold_of_canceled, r#"{"resolution": "approve"}"#).await;
    assert_eq!((status, &body["recorded"]["how"]), (409, &json!("withdrawn")));
    let list = second.read("/api/v1/runs?agent=ops&limit=2").await;
    assert_eq!((list["runs"].as_array().unwrap().len(), list["next_cursor"].is_string()), (2, true));
    let rest = format!("/api/v1/runs?agent=ops&cursor={}", list["next_cursor"].as_str().unwrap());
    assert_eq!(second.read(&rest).await["runs"].as_array().unwrap().len(), 1);
}

/// A hold has one decision; a repeat with the same key gets that one.
#[tokio::test]
async fn a_hold_is_decided_once() {
    let data = tempfile::tempdir().unwrap();
    let server = serve(data.path());
    let (run, hold) = server.held().await;
    let approve = || {
        let path = format!("/api/v1/holds/{hold}/resolve");
        server.post(&path, r#"{"resolution": "approve"}"#).header("idempotency-key", "k-1")
    };
    assert_eq!(answer(approve()).await.1["outcome"], "decided");
    server.until(&run, "completed").await;
    let (status, body) = answer(approve()).await;
    assert_eq!((status, &body["outcome"]), (200, &json!("repeated")));
    let (status, body) = server.resolve(&hold, r#"{"resolution": "deny"}"#).await;
    assert_eq!(status, 409);
    assert_eq!(
        (&body["recorded"]["by"], &body["recorded"]["how"]),
        (&json!("person:local"), &json!("approved"))
    );
    assert!(body["recorded"]["at"].is_string());
    assert_eq!(effects(&data).len(), 1);
}

/// However many decide at once, one decision counts and everyone else gets that one.
#[tokio::test]
async fn of_decisions_at_the_same_time_one_counts() {
    let data = tempfile::tempdir().unwrap();
    let server = serve(data.path());
    let (mut held, mut deciders) = (Vec::new(), tokio::task::JoinSet::new());
    for _ in 0..5 {
        held.push(server.held().await.1);
    }
    for hold in held.iter().flat_map(|hold| std::iter::repeat_n(hold, 8)) {
        let path = format!("/api/v1/holds/{hold}/resolve");
        deciders.spawn(answer(server.post(&path, r#"{"resolution": "approve"}"#)));
    }
    let answers = deciders.join_all().await;
    let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(status, _)| *status == 200);
    assert_eq!((won.len(), lost.len()), (5, 35));
    for (status, body) in lost {
        assert_eq!((status, &body["recorded"]["how"]), (409, &json!("approved")), "{body}");
    }
}

#[tokio::test]
async fn bad_input_gets_a_clear_error_and_nothing_is_lost() {
    let data = tempfile::tempdir().unwrap();
    let server = serve(data.path());
    let (run, hold) = server.held().await;
    let resolve = format!("/api/v1/holds/{hold}/resolve");
    let start = "/api/v1/agents/ops/runs";
    let large = format!(r#"{{"input": "{}"}}"#, "x".repeat(1024 * 1024));
    let unknown =
        format!("/api/v1/holds/{}/resolve", hold.replace(&hold[60..], &"0".repeat(hold.len() - 60)));
    for (path, body, expected) in [
        (start, "{", 400),
        (start, "[1,", 400),
        (start, r#"["x", null, "settled"]"#, 422),
        (start, r#"{"input": 1}"#, 422),
        (start, r#"{"input": ""}"#, 422),
        (start, r#"{"input": "x", "wiat": "settled"}"#, 422),
        (start, r#"{"input": {"parts": [{"txt": "x"}]}}"#, 422),
        (start, r#"{"input": "x", "session": ""}"#, 422),
        (start, "", 422),
        (start, &large, 413),
        ("/api/v1/agents/nobody/runs", r#"{"input": "x"}"#, 404),
        (&format!("/api/v1/runs/{run}/messages"), r#"{"input": "hello?"}"#, 409),
        ("/api/v1/runs/run_0/cancel", "{}", 404),
        (&unknown, r#"{"resolution": "approve"}"#, 404),
        ("/api/v1/runs/%FF/cancel", "{}", 404),
        ("/api/v1/holds/nonsense/resolve", r#"{"resolution": "approve"}"#, 404),
        (&resolve, r#"{"resolution": "approve", "sure": true}"#, 422),
        (&resolve, r#"{"resolution": "perhaps"}"#, 422),
        (&resolve, r#"{"resolution": "answer", "value": 1}"#, 422),
        (&resolve, r#"{"resolution": "fail", "reason": "x"}"#, 422),
        (&resolve, r#"{"resolution": "approve", "revision": 7}"#, 409),
        (&resolve, r#"{"resolution": "approve", "digest": "abc"}"#, 422),
        (&resolve, r#"{"resolution": "approve", "arguments": {"path": "a", "path": "b"}}"#, 422),
        (&resolve, r#"{"resolution": "approve", "arguments": {"path": 1}}"#, 422),
        (&resolve, r#"{"resolution": "approve", "arguments": "text"}"#, 422),
        ("/api/v1/nothing", "{}", 404),
        ("/api/v1/agents", "{}", 405),
    ] {
        let (status, answered) = answer(server.post(path, body)).await;
        assert_eq!(status, expected, "{path} {:.80} {answered}", body);
    }
    for path in ["/api/v1/holds?kind=odd", "/api/v1/holds?state=closed", "/api/v1/runs?agnt=ops"] {
        assert_eq!(answer(server.get(path)).await.0, 400, "{path}");
    }
    let (_, stale) = server.resolve(&hold, r#"{"resolution": "approve", "revision": 7}"#).await;
    assert_eq!((&stale["revision"], stale["digest"].is_string()), (&json!(0), true));
    let (_, broken) = server.resolve(&hold, r#"{"resolution": "approve", "arguments": {"path": 1}}"#).await;
    assert_eq!(broken["pointer"], "/path");
    let not_json =
        server.client.post(format!("{}{resolve}", server.program.base)).body(r#"{"resolution": "approve"}"#);
    assert_eq!(answer(not_json).await.0, 415);
    let foreign =
        server.post(&resolve, r#"{"resolution": "approve"}"#).header("origin", "https://evil.example");
    assert_eq!(answer(foreign).await.0, 403);
    assert_eq!(answer(server.get("/api/v1/holds").header("host", "evil.example")).await.0, 421);
    assert_eq!(server.read(&format!("/api/v1/runs/{run}")).await["status"], "held");
    assert_eq!(effects(&data), Vec::<String>::new());
}

/// An error about a hold names it by the id that clients know, never by the one that events have for it.
#[tokio::test]
async fn errors_name_a_hold_by_the_id_that_clients_know() {
    let data = tempfile::tempdir().unwrap();
    let server = serve(data.path());
    let (run, hold) = server.held().await;
    let (resolve, messages) =
        (format!("/api/v1/holds/{hold}/resolve"), format!("/api/v1/runs/{run}/messages"));
    for (path, body, kind) in [
        (&resolve, r#"{"resolution": "fail", "reason": "x"}"#, "wrong-kind"),
        (&resolve, r#"{"resolution": "approve", "revision": 7}"#, "stale"),
        (&messages, r#"{"input": "hello?"}"#, "held"),
    ] {
        let (_, problem) = answer(server.post(path, body)).await;
        assert!(problem["type"].as_str().unwrap().ends_with(kind), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(&hold), "{problem}");
    }
}

/// A foreign id and no id at all look the same.
#[tokio::test]
async fn what_is_not_there_has_one_answer() {
    let data = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let (run, hold) = serve(elsewhere.path()).held().await;
    let server = serve(data.path());
    let nonsense = answer(server.get("/api/v1/runs/nonsense")).await;
    assert_eq!(nonsense.0, 404);
    for path in [
        format!("/api/v1/runs/{run}"),
        format!("/api/v1/runs/{run}/events"),
        format!("/api/v1/holds/{hold}"),
        format!("/api/v1/holds/{hold}/receipt"),
    ] {
        assert_eq!(answer(server.get(&path)).await, nonsense, "{path}");
    }
}

/// SSE across a restart misses and repeats nothing.
#[tokio::test]
async fn a_stream_goes_on_after_a_restart_without_gap_or_repeat() {
    let data = tempfile::tempdir().unwrap();
    let first = serve(data.path());
    let (run, hold) = first.held().await;
    let mut seen = first.stream(&run, None, "hold.opened").await;
    drop(first);

    let second = serve(data.path());
    let decided = second.resolve(&hold, r#"{"resolution": "approve"}"#);
    let (rest, (status, _)) = tokio::join!(second.stream(&run, seen.last().copied(), "run.ended"), decided);
    assert_eq!(status, 200);
    seen.extend(rest);
    assert_eq!(seen, (1..=seen.len() as u64).collect::<Vec<_>>());
    let all = second.read(&format!("/api/v1/runs/{run}/events")).await;
    let listed: Vec<u64> =
        all["events"].as_array().unwrap().iter().map(|one| one["seq"].as_u64().unwrap()).collect();
    assert_eq!(listed, seen);
    let after = second.read(&format!("/api/v1/runs/{run}/events?after=2")).await;
    assert_eq!(after["events"][0]["seq"], 3);
}

/// A newer message may take the place of a question.
#[tokio::test]
async fn a_message_can_supersede_what_was_asked() {
    let data = tempfile::tempdir().unwrap();
    let server = serve(data.path());
    let (run, hold) = server.held().await;
    let path = format!("/api/v1/runs/{run}/messages");
    let body = r#"{"input": {"parts": [{"text": "Never mind"}]}, "on_hold": "supersede"}"#;
    assert_eq!(answer(server.post(&path, body)).await.0, 200);
    server.until(&run, "completed").await;
    let (status, body) = server.resolve(&hold, r#"{"resolution": "approve"}"#).await;
    assert_eq!((status, &body["recorded"]["how"]), (409, &json!("superseded")));
    assert_eq!(effects(&data), Vec::<String>::new());
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let data = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let server = serve(data.path());
    let taken = server.program.address();
    for (data, listen, expected) in [
        (&data, "127.0.0.1:0", "is in use by another Standfast server"),
        (&other, taken, "is in use by another program"),
        (&other, "0.0.0.0:0", "refusing to listen on 0.0.0.0:0"),
    ] {
        let output = program(data.path(), listen).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.contains(expected)), (Some(2), true), "{said}");
    }
}

/// SIGTERM: streams end, the process ends with 0, and what is pending still waits.
#[tokio::test]
async fn a_signal_ends_the_server_in_order() {
    let data = tempfile::tempdir().unwrap();
    let mut server = serve(data.path());
    for path in ["/healthz", "/readyz"] {
        assert_eq!(server.get(path).send().await.unwrap().status(), 200);
    }
    let (run, _) = server.held().await;
    let path = format!("/api/v1/runs/{run}/events");
    let mut stream = server.get(&path).header("accept", "text/event-stream").send().await.unwrap();
    let pid = server.program.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    while stream.chunk().await.unwrap().is_some() {}
    assert_eq!(server.program.child.wait().unwrap().code(), Some(0));
    let again = serve(data.path());
    assert_eq!(again.read(&format!("/api/v1/runs/{run}")).await["status"], "held");
}

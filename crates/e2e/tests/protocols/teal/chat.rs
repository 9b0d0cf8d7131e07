//! Chat: what an agent answers when it is done, when somebody is needed, and when it is still at work.

use serde_json::{Value, json};

use crate::teal::elsewhere::Elsewhere;
use crate::teal::server::{BASE, Folder, Line, demo, says, text, trail};

/// S1-1, S1-2, S1-3, S1-11, S1-31, C31: a pause is a model of its own, with the calls and two addresses; the task is
/// `Paused`, on record with its pending calls, before anybody sees it.
#[tokio::test]
async fn a_pause_tells_what_waits_and_where_to_decide() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let paused = server.paused("ops").await;
    let keys: Vec<&String> = paused.as_object().unwrap().keys().collect();
    let expected =
        ["approval_url", "message", "rejection_url", "request_id", "session_id", "task_id", "tool_calls"];
    assert_eq!(keys, expected, "and nothing of an ordinary answer");
    let resume = format!("{}{BASE}/resume/{}", server.program.base, text(&paused["request_id"]));
    assert_eq!(paused["approval_url"], format!("{resume}?action=approve"));
    assert_eq!(paused["rejection_url"], format!("{resume}?action=reject"));
    let call = &paused["tool_calls"][0];
    let wanted = json!({
        "content_type": "function_call", "id": call["id"], "index": 0, "name": "delete_file",
        "function_name": "delete_file", "plugin_name": null,
        "arguments": r#"{"path": "/srv/cache/old"}"#, "metadata": {}
    });
    assert_eq!(paused["tool_calls"], json!([wanted]));
    let task = server.task("ops", &paused["task_id"]).await;
    assert_eq!((&task["status"], &task["user_id"]), (&json!("Paused"), &json!("local")));
    assert_eq!(task["session_id"], paused["session_id"]);
    assert_eq!(trail(&task), ["user please", "assistant  pending delete_file"]);
    let item = &task["items"][1];
    assert_eq!(item["pending_tool_calls"], json!([wanted]));
    assert_eq!((&item["request_id"], &item["task_id"]), (&paused["request_id"], &paused["task_id"]));
    assert!(!data.path().join("demo-effects.log").exists(), "nothing has run");
}

/// S1-12, S1-13, S1-15, S1-20, S1-21, S1-22, S1-24, S1-27: approved at the published address, the call runs once, the
/// agent goes on with its result, and the trail says who decided what before what came of it.
#[tokio::test]
async fn an_approved_call_runs_and_the_agent_goes_on() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let paused = server.paused("ops").await;
    let done = server.post(text(&paused["approval_url"]), &json!({"action": "approve"})).await;
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(done.body["output"], "I have dealt with the old cache.");
    for same in ["task_id", "session_id", "request_id"] {
        assert_eq!(done.body[same], paused[same], "{same}");
    }
    assert_eq!(done.body["source"], "ops");
    let usage = &done.body["token_usage"];
    let tokens = ["completion_tokens", "prompt_tokens", "total_tokens"].map(|name| usage[name].as_u64());
    assert_eq!(tokens[0].zip(tokens[1]).map(|(out, read)| out + read), tokens[2], "{usage}");
    let effects = std::fs::read_to_string(data.path().join("demo-effects.log")).unwrap();
    assert_eq!(effects.lines().count(), 1, "{effects}");
    let task = server.task("ops", &paused["task_id"]).await;
    assert_eq!(task["status"], "Completed");
    let decision = json!({"action": "approve", "request_id": paused["request_id"]}).to_string();
    let trail = trail(&task);
    assert_eq!(trail[0], "user please");
    assert_eq!(trail[1], "assistant  pending delete_file");
    assert_eq!(trail[2], format!("user {decision}"));
    assert!(trail[3].contains("function_result") && trail[3].contains("delete_file"), "{trail:?}");
    assert_eq!(trail[4], "assistant I have dealt with the old cache.");
    assert_eq!(trail.len(), 5);
}

/// S1-19, S1-23, C4, C31: a rejection is on record, then the task is `Canceled`; nothing runs.
#[tokio::test]
async fn a_rejected_request_cancels_the_task() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let paused = server.paused("ops").await;
    // Without a body the address says what is meant.
    let done = server.send("POST", text(&paused["rejection_url"]), &[], "").await;
    assert_eq!(done.status, 200, "{done:?}");
    let confirmed = json!({
        "session_id": paused["session_id"], "task_id": paused["task_id"], "request_id": paused["request_id"],
        "status": "Canceled", "message": "The task was canceled"
    });
    assert_eq!(done.body, confirmed);
    let task = server.task("ops", &paused["task_id"]).await;
    assert_eq!(task["status"], "Canceled");
    let decision = json!({"action": "reject", "request_id": paused["request_id"]}).to_string();
    assert_eq!(trail(&task)[2..], [format!("user {decision}")]);
    assert!(!data.path().join("demo-effects.log").exists(), "nothing has run");
    let native = server.get(&format!("/api/v1/runs/{}/events", text(&paused["task_id"]))).await;
    let events = native.body["events"].as_array().unwrap();
    let of = |kind: &str| events.iter().position(|event| event["type"] == kind);
    assert!(of("hold.resolved") < of("run.ended") && of("run.ended").is_some(), "{}", native.text);
}

/// S1-7, S1-8, S1-10, C6: a high-risk tool is held by its name although its entry says otherwise; with `hold_batch` the
/// harmless call beside it waits too, and all of them are told. Without, it runs at once.
#[tokio::test]
async fn one_held_call_holds_its_whole_reply_where_that_is_wanted() {
    let elsewhere = Elsewhere::quick().await;
    let both = [Line::Calls("ShellCommand", json!({"command": "echo hi"})), Line::Says("done")];
    let folder = Folder::new(&elsewhere, &[("batch", &both), ("ops", &both)], "");
    // Two calls of one reply, one of which nobody needs to approve.
    let script = json!({"replies": [
        {"calls": [
            {"tool": "read_file", "arguments": r#"{"path": "a.txt"}"#},
            {"tool": "ShellCommand", "arguments": r#"{"command": "echo hi"}"#}
        ]},
        {"text": "done"}
    ]});
    for name in ["batch", "ops"] {
        let file = folder.folder.path().join(format!("{name}.script.yaml"));
        std::fs::write(file, script.to_string()).unwrap();
    }
    let server = folder.serve();
    for (agent, waiting, before) in
        [("batch", vec!["read_file", "ShellCommand"], false), ("ops", vec!["ShellCommand"], true)]
    {
        let paused = server.paused(agent).await;
        let names: Vec<&str> =
            paused["tool_calls"].as_array().unwrap().iter().map(|call| text(&call["name"])).collect();
        assert_eq!(names, waiting, "{agent}");
        let task = server.task(agent, &paused["task_id"]).await;
        assert_eq!(trail(&task).iter().any(|line| line.contains("hello")), before, "{agent}: {task}");
        let done = server.approve(&paused["request_id"]).await;
        assert_eq!(done.body["output"], "done", "{done:?}");
        let task = server.task(agent, &paused["task_id"]).await;
        assert!(trail(&task).iter().any(|line| line.contains("hello")), "{task}");
    }
}

/// What cannot be said is refused with what is wrong; what the user is, the agent hears.
#[tokio::test]
async fn what_is_said_must_be_readable() {
    let elsewhere = Elsewhere::quick().await;
    let folder = Folder::new(&elsewhere, &[("ops", &[Line::Says("hello")])], "");
    let server = folder.serve();
    for (agent, body, status, says) in [
        ("ops", "{", 400, "not JSON"),
        ("ops", "{}", 422, "items"),
        ("ops", r#"{"items": []}"#, 422, "items is empty"),
        ("ops", r#"{"items": [{"content_type": "video", "content": "x"}]}"#, 422, "`text` or `image`"),
        ("ops", r#"{"items": [{"content_type": "image", "content": "x"}]}"#, 422, "items[0].content"),
        ("ops", r#"{"items": [{"content_type": "text", "content": "x"}], "task": "1"}"#, 422, "task"),
        (
            "nobody",
            r#"{"items": [{"content_type": "text", "content": "x"}]}"#,
            404,
            "there is no agent nobody",
        ),
        (
            "ops",
            r#"{"items": [{"content_type": "text", "content": "x"}], "task_id": "run_1"}"#,
            404,
            "not found",
        ),
    ] {
        let answer = server.send("POST", &format!("{BASE}/{agent}"), &[], body).await;
        assert_eq!(answer.status, status, "{body}: {answer:?}");
        assert!(text(&answer.body["detail"]).contains(says), "{body}: {answer:?}");
    }
    let wrong_type =
        server.send("POST", &format!("{BASE}/ops"), &[("content-type", "text/plain")], "{}").await;
    assert_eq!(wrong_type.status, 415, "{wrong_type:?}");
    let mut said = says("hi");
    said["session_id"] = json!("s-1");
    said["user_context"] = json!({"team": "disks"});
    let image = json!({"content_type": "image", "content": "data:image/png;base64,aGk="});
    said["items"].as_array_mut().unwrap().push(image.clone());
    let done = server.post(&format!("{BASE}/ops"), &said).await;
    assert_eq!(
        (done.status, &done.body["output"], &done.body["session_id"]),
        (200, &json!("hello"), &json!("s-1"))
    );
    let task = server.task("ops", &done.body["task_id"]).await;
    assert_eq!(task["items"][1]["item"], image);
    assert_eq!(trail(&task)[2], "user The following user context was provided:\n  team: disks\n");
    // It has ended; the same conversation goes on in another task.
    said["task_id"] = done.body["task_id"].clone();
    let again = server.post(&format!("{BASE}/ops"), &said).await;
    assert_eq!(again.status, 409, "{again:?}");
    assert!(text(&again.body["detail"]).contains("Leave out task_id"), "{again:?}");
    said["session_id"] = json!("s-2");
    let other = server.post(&format!("{BASE}/ops"), &said).await;
    assert_eq!(other.status, 422, "{other:?}");
    let foreign = server.get(&format!("{BASE}/nobody/tasks/{}", text(&done.body["task_id"]))).await;
    assert_eq!(foreign.status, 404);
}

/// A call that takes longer than `server.limits.max_wait` is answered with the task as it is; a message to it is heard.
#[tokio::test]
async fn a_wait_has_an_end() {
    let elsewhere = Elsewhere::slow().await;
    let more = "server: {limits: {max_wait: 1s}}\n";
    let folder = Folder::new(&elsewhere, &[("ops", &[Line::Asks(&["/a"]), Line::Says("done")])], more);
    let server = folder.serve();
    let paused = server.paused("ops").await;
    let answer = server.approve(&paused["request_id"]).await;
    assert_eq!((answer.status, &answer.body["status"]), (202, &json!("Running")), "{answer:?}");
    assert_eq!(server.task("ops", &paused["task_id"]).await["status"], "Running");
    let mut more = says("and then?");
    more["task_id"] = paused["task_id"].clone();
    let queued = server.post(&format!("{BASE}/ops"), &more).await;
    assert_eq!(queued.status, 202, "{queued:?}");
    elsewhere.answer();
    let task = server.until("ops", &paused["task_id"], "Completed").await;
    assert!(trail(&task).contains(&"user and then?".to_owned()), "{task}");
}

/// S1-2, S1-27: a task that fails says so, with its reason, as 500; the trail has the status.
#[tokio::test]
async fn a_task_that_fails_says_so() {
    let elsewhere = Elsewhere::quick().await;
    let more = "server: {limits: {turns: 1}}\n";
    let lines = [Line::Calls("read_file", json!({"path": "a.txt"})), Line::Says("never said")];
    let folder = Folder::new(&elsewhere, &[("ops", &lines)], more);
    let server = folder.serve();
    let answer = server.chat("ops").await;
    assert_eq!(answer.status, 500, "{answer:?}");
    let detail = text(&answer.body["detail"]);
    assert!(detail.contains(" failed: "), "{detail}");
    let task = detail.split_whitespace().nth(1).unwrap();
    assert_eq!(server.task("ops", &json!(task)).await["status"], "Failed");
}

/// S1-10, C6: for runs that begin here one held call holds its whole reply without anybody saying so; the same agent lets
/// the harmless call run elsewhere, and `hold_batch: false` does so here too.
#[tokio::test]
async fn one_held_call_holds_its_whole_reply_by_default() {
    let elsewhere = Elsewhere::quick().await;
    let folder = Folder::new(&elsewhere, &[("batch", &[Line::Says("x")]), ("ops", &[Line::Says("x")])], "");
    let script = json!({"replies": [
        {"calls": [
            {"tool": "read_file", "arguments": r#"{"path": "a.txt"}"#},
            {"tool": "ShellCommand", "arguments": r#"{"command": "echo hi"}"#}
        ]},
        {"text": "done"}
    ]});
    for name in ["batch", "ops"] {
        std::fs::write(folder.folder.path().join(format!("{name}.script.yaml")), script.to_string()).unwrap();
    }
    let config = std::fs::read_to_string(folder.config()).unwrap();
    std::fs::write(folder.config(), config.replace("hitl: {hold_batch: true}", "")).unwrap();
    let server = folder.serve();
    let waiting = |paused: &Value| -> Vec<String> {
        paused["tool_calls"].as_array().unwrap().iter().map(|call| text(&call["name"]).to_owned()).collect()
    };
    let paused = server.paused("batch").await;
    assert_eq!(waiting(&paused), ["read_file", "ShellCommand"], "nobody said anything about it");
    let task = server.task("batch", &paused["task_id"]).await;
    assert!(!trail(&task).iter().any(|line| line.contains("hello")), "nothing has run: {task}");
    drop(server);
    let server = folder.serve();
    let done = server.approve(&paused["request_id"]).await;
    assert_eq!(done.body["output"], "done", "{done:?}");
    assert_eq!(waiting(&server.paused("ops").await), ["ShellCommand"], "hold_batch: false");
    let native = json!({"input": "please", "wait": "settled"});
    let native = server.post("/api/v1/agents/batch/runs", &native).await;
    let run = server.get(&format!("/api/v1/runs/{}", text(&native.body["id"]))).await;
    assert_eq!(run.body["holds"].as_array().map(Vec::len), Some(1), "elsewhere it is as before: {run:?}");
}

/// S1-20, C11: the client says how long it waits, by argument or by `Prefer`; 202 says how to go on, and whoever goes on by
/// GET, plainly or as a stream, gets the answer to their one request, however often they ask.
#[tokio::test]
async fn the_client_chooses_how_long_to_wait() {
    let elsewhere = Elsewhere::slow().await;
    let folder = Folder::new(&elsewhere, &[("ops", &[Line::Asks(&["/a"]), Line::Says("done")])], "");
    let server = folder.serve();
    let paused = server.paused("ops").await;
    let url = format!("{BASE}/resume/{}?wait=1", text(&paused["request_id"]));
    let working = server.post(&url, &json!({"action": "approve"})).await;
    assert_eq!((working.status, &working.body["status"]), (202, &json!("Running")), "{working:?}");
    let base = &server.program.base;
    let task = format!("{base}{BASE}/ops/tasks/{}", text(&paused["task_id"]));
    assert_eq!(working.body["task_url"], task.as_str());
    assert_eq!(working.body["response_url"], format!("{task}/response"));
    assert_eq!(working.body["stream_url"], format!("{task}/response/sse"));
    assert_eq!(working.headers["location"], format!("{task}/response"));
    assert_eq!(working.headers["retry-after"], "1");
    assert_eq!(working.body["request_id"], paused["request_id"]);
    // `Prefer` says the same; what it says wrongly decides nothing.
    let other = server.paused("ops").await;
    let url = format!("{BASE}/resume/{}", text(&other["request_id"]));
    let approve = r#"{"action": "approve"}"#;
    let wrong = server.send("POST", &url, &[("prefer", "wait=soon")], approve).await;
    assert_eq!(wrong.status, 400, "{wrong:?}");
    assert_eq!(server.task("ops", &other["task_id"]).await["status"], "Paused");
    let preferred = server.send("POST", &url, &[("prefer", "respond-async, wait=1")], approve).await;
    assert_eq!((preferred.status, &preferred.body["task_id"]), (202, &other["task_id"]), "{preferred:?}");
    assert!(preferred.body["response_url"].is_string(), "{preferred:?}");
    let path = |url: &Value| text(url).strip_prefix(base.as_str()).unwrap().to_owned();
    let response = path(&working.body["response_url"]);
    let still = server.get(&format!("{response}?wait=0")).await;
    assert_eq!(still.status, 202, "{still:?}");
    let wrong = server.get(&format!("{response}?wait=soon")).await;
    assert_eq!(wrong.status, 400, "{wrong:?}");
    let stream = path(&working.body["stream_url"]);
    elsewhere.until(2).await;
    let (streamed, answered, ()) = tokio::join!(server.get(&stream), server.get(&response), async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        elsewhere.answer();
    });
    assert_eq!((answered.status, &answered.body["output"]), (200, &json!("done")), "{answered:?}");
    assert!(streamed.text.contains("event: final-response"), "{}", streamed.text);
    assert_eq!(server.get(&response).await.body, answered.body, "asked again, it is told again");
    assert_eq!(elsewhere.got(), ["/a", "/a"], "one request, one call");
    let foreign = server.get(&response.replace("/ops/", "/nobody/")).await;
    assert_eq!(foreign.status, 404);
}

/// S1-20, C11: chat is waited for as long as the client says, too; whoever goes on by GET gets the answer of the run that their
/// message began, and there is no other.
#[tokio::test]
async fn a_chat_that_is_not_waited_for_begins_one_run() {
    let elsewhere = Elsewhere::slow().await;
    let folder = Folder::new(&elsewhere, &[("ops", &[Line::Asks(&["/a"]), Line::Says("done")])], "");
    let config = std::fs::read_to_string(folder.config()).unwrap();
    let free = config.replace("http_request: {", "http_request: {requires_approval: false, ");
    std::fs::write(folder.config(), free).unwrap();
    let server = folder.serve();
    let (plain, waits) = (format!("{BASE}/ops"), format!("{BASE}/ops?wait=1"));
    let preferring = |value: &'static str| vec![("prefer", value)];
    let ways = [
        ("s-1", &waits, Vec::new(), 202),
        ("s-2", &plain, preferring("respond-async, wait=1"), 202),
        ("s-3", &plain, preferring("wait=soon"), 400),
    ];
    let mut working = Vec::new();
    for (session, path, headers, status) in ways {
        let mut said = says("please");
        said["session_id"] = json!(session);
        let answer = server.send("POST", path, &headers, &said.to_string()).await;
        assert_eq!(answer.status, status, "{session}: {answer:?}");
        working.push((session, answer.body["response_url"].clone()));
    }
    elsewhere.until(2).await;
    elsewhere.answer();
    for (session, response) in &working[..2] {
        let done = server.get(text(response)).await;
        assert_eq!((done.status, &done.body["output"]), (200, &json!("done")), "{session}: {done:?}");
    }
    for (session, runs) in [("s-1", 1), ("s-2", 1), ("s-3", 0)] {
        let listed = server.get(&format!("/api/v1/runs?agent=ops&session={session}")).await.body;
        assert_eq!(listed["runs"].as_array().map(Vec::len), Some(runs), "{session}: {listed}");
    }
    assert_eq!(elsewhere.got(), ["/a", "/a"], "one request, one call");
}

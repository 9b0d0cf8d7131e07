//! The resume route: who may decide, what they may say, what a repeat does, and every kind of pause.

use serde_json::{Value, json};

use crate::teal::elsewhere::Elsewhere;
use crate::teal::server::{BASE, Folder, Line, demo, text, trail};

/// S1-14, S1-16, S1-17, S1-18, S1-26, S1-32, C12, C30: mistakes in their order: who, which request, whose, what, and
/// whether it is still open.
#[tokio::test]
async fn mistakes_are_told_in_their_order() {
    let elsewhere = Elsewhere::quick().await;
    let more = "server: {auth: {api_keys: true}}\n";
    let folder = Folder::new(&elsewhere, &[("ops", &[Line::Asks(&["/a"]), Line::Says("done")])], more);
    let (ann, bob) = (folder.key("ann"), folder.key("bob"));
    let server = folder.serve();
    let said = r#"{"items": [{"content_type": "text", "content": "please"}]}"#;
    let paused = server.by(&ann, "POST", &format!("{BASE}/ops"), said).await.body;
    let resume = format!("{BASE}/resume/{}", text(&paused["request_id"]));
    let mut forged = resume.clone();
    let last = if forged.pop() == Some('0') { '1' } else { '0' };
    forged.push(last);
    let wrong = [r#"{"action": "maybe"}"#, r#"{"action": 1}"#, "{}", "", r#"{"act": "approve"}"#];
    for body in wrong.into_iter().chain([r#"{"action": "approve"}"#]) {
        let nobody = server.send("POST", &resume, &[], body).await;
        assert_eq!(nobody.status, 401, "{body}: {nobody:?}");
        assert!(nobody.body["detail"].is_string() && nobody.headers.contains_key("www-authenticate"));
        for unknown in [format!("{BASE}/resume/nonsense"), forged.clone()] {
            let answer = server.by(&ann, "POST", &unknown, body).await;
            assert_eq!(answer.status, 404, "{body}: {answer:?}");
        }
        let not_theirs = server.by(&bob, "POST", &resume, body).await;
        assert_eq!(not_theirs.status, 403, "{body}: {not_theirs:?}");
        assert_eq!(not_theirs.body["detail"], "you are not an approver of this request");
        assert_eq!(server.by(&bob, "POST", &format!("{resume}/sse"), body).await.status, 403);
        assert_eq!(server.by(&bob, "GET", &resume, "").await.status, 403);
    }
    for body in wrong {
        let answer = server.by(&ann, "POST", &resume, body).await;
        assert_eq!(answer.status, 422, "{body}: {answer:?}");
    }
    let torn = server.by(&ann, "POST", &format!("{resume}?action=reject"), r#"{"action": "approve"}"#).await;
    assert_eq!(torn.status, 422, "{torn:?}");
    assert!(text(&torn.body["detail"]).contains("nothing was decided"), "{torn:?}");
    assert!(elsewhere.got().is_empty());
    let done = server.by(&ann, "POST", &resume, r#"{"action": "approve"}"#).await;
    assert_eq!(done.body["output"], "done", "{done:?}");
    // Once it is decided, what cannot be understood is still that; the rest is told who was faster.
    for (body, status) in
        [(r#"{"action": "maybe"}"#, 422), (r#"{"action": "approve"}"#, 409), (r#"{"action": "reject"}"#, 409)]
    {
        let answer = server.by(&ann, "POST", &resume, body).await;
        assert_eq!(answer.status, status, "{body}: {answer:?}");
        if status == 409 {
            assert_eq!(answer.body["recorded"]["by"], "person:ann");
            assert_eq!(answer.body["recorded"]["how"], "approved");
            let at = text(&answer.body["recorded"]["at"]);
            assert!(text(&answer.body["detail"]).contains(at), "{answer:?}");
        }
    }
    assert_eq!(elsewhere.got(), ["/a"]);
}

/// S1-33, C30: with the same key a decision is answered again and nothing runs again, whatever has happened since; with the
/// same key and something else to say it is refused.
#[tokio::test]
async fn a_repeat_with_its_key_is_answered_as_before() {
    let elsewhere = Elsewhere::quick().await;
    let twice = [Line::Asks(&["/a"]), Line::Asks(&["/b"]), Line::Says("done")];
    let folder = Folder::new(&elsewhere, &[("ops", &twice)], "");
    let server = folder.serve();
    let key = [("idempotency-key", "k-1")];
    let said = r#"{"items": [{"content_type": "text", "content": "please"}]}"#;
    let first = server.send("POST", &format!("{BASE}/ops"), &key, said).await;
    let resume = format!("{BASE}/resume/{}", text(&first.body["request_id"]));
    let approve = r#"{"action": "approve"}"#;
    let second = server.send("POST", &resume, &key, approve).await;
    assert_eq!(second.body["tool_calls"][0]["index"], 0, "{second:?}");
    let later = format!("{BASE}/resume/{}", text(&second.body["request_id"]));
    let third = server.send("POST", &later, &key, approve).await;
    assert_eq!(third.body["output"], "done", "{third:?}");
    for (path, body, before) in
        [(format!("{BASE}/ops"), said, &first), (resume.clone(), approve, &second), (later, approve, &third)]
    {
        let again = server.send("POST", &path, &key, body).await;
        assert_eq!((again.status, &again.body), (200, &before.body), "{path}");
    }
    let other = server.send("POST", &resume, &key, r#"{"action": "reject"}"#).await;
    assert_eq!(other.status, 422, "{other:?}");
    assert_eq!(elsewhere.got(), ["/a", "/b"]);
    let rejected = server.paused("ops").await;
    let resume = format!("{BASE}/resume/{}", text(&rejected["request_id"]));
    let reject = r#"{"action": "reject", "reason": "no"}"#;
    let stopped = server.send("POST", &resume, &key, reject).await;
    assert_eq!(stopped.body["status"], "Canceled", "{stopped:?}");
    assert_eq!(server.send("POST", &resume, &key, reject).await.body, stopped.body);
}

/// S1-20, S1-30, C5: all calls of the request are approved in one and run at the same time: the server elsewhere
/// answers nobody before it has both.
#[tokio::test]
async fn all_calls_of_a_request_run_at_the_same_time() {
    let elsewhere = Elsewhere::slow().await;
    let folder =
        Folder::new(&elsewhere, &[("ops", &[Line::Asks(&["/a", "/b", "/c"]), Line::Says("done")])], "");
    let server = folder.serve();
    let paused = server.paused("ops").await;
    let names = paused["tool_calls"].as_array().unwrap().iter().map(|call| call["index"].as_u64());
    assert_eq!(names.collect::<Vec<_>>(), [Some(0), Some(1), Some(2)]);
    let both = async {
        elsewhere.until(3).await;
        elsewhere.answer();
    };
    let (done, ()) = tokio::join!(server.approve(&paused["request_id"]), both);
    assert_eq!(done.body["output"], "done", "{done:?}");
    assert_eq!(elsewhere.got(), ["/a", "/b", "/c"]);
    let task = server.task("ops", &paused["task_id"]).await;
    let decisions = trail(&task).into_iter().filter(|line| line.starts_with("user {")).count();
    assert_eq!(decisions, 1, "one decision, however many calls: {task}");
}

/// S1-25, S1-26, S1-29, S1-33: a run that is held again answers with a new request; its calls are found by that id and
/// not by their place, so the older one decides nothing any more.
#[tokio::test]
async fn a_resumed_task_may_pause_again() {
    let elsewhere = Elsewhere::quick().await;
    let twice = [Line::Asks(&["/a"]), Line::Asks(&["/b"]), Line::Says("done")];
    let folder = Folder::new(&elsewhere, &[("ops", &twice)], "");
    let server = folder.serve();
    let first = server.paused("ops").await;
    let second = server.approve(&first["request_id"]).await.body;
    assert_eq!(second["message"], "Human intervention required.", "{second}");
    assert_eq!(second["task_id"], first["task_id"]);
    assert_ne!(second["request_id"], first["request_id"]);
    let stale = server.approve(&first["request_id"]).await;
    assert_eq!(stale.status, 409, "{stale:?}");
    assert_eq!(elsewhere.got(), ["/a"]);
    // Both ids lead to the one task.
    for request in [&first["request_id"], &second["request_id"]] {
        let task = server.get(&format!("{BASE}/resume/{}", text(request))).await;
        assert_eq!(task.body["task_id"], first["task_id"], "{task:?}");
        assert_eq!(task.body["status"], "Paused");
    }
    let done = server.approve(&second["request_id"]).await;
    assert_eq!(done.body["output"], "done", "{done:?}");
    assert_eq!(elsewhere.got(), ["/a", "/b"]);
}

/// S1-28, C31, C25: the one route serves questions too; without an answer nothing is decided, and one that breaks the
/// schema is refused with the place.
#[tokio::test]
async fn a_question_is_answered_by_the_same_route() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let paused = server.paused("receipts").await;
    assert_eq!(paused["tool_calls"][0]["name"], "suspend-for-input");
    let request = &paused["request_id"];
    let bare = server.approve(request).await;
    assert_eq!(bare.status, 422, "{bare:?}");
    assert!(text(&bare.body["detail"]).contains("needs a payload"), "{bare:?}");
    let schema = text(&paused["tool_calls"][0]["arguments"]);
    let schema: Value = serde_json::from_str(schema).unwrap();
    let properties = schema["resumeSchema"]["properties"].as_object().unwrap();
    let broken = server.resume(request, &json!({"action": "approve", "payload": {"amount": []}})).await;
    assert_eq!(broken.status, 422, "{broken:?}");
    let mut answer = serde_json::Map::new();
    for (name, property) in properties {
        let value = match (&property["enum"][0], text(property.get("type").unwrap_or(&json!("string")))) {
            (Value::Null, "number" | "integer") => json!(12),
            (Value::Null, "boolean") => json!(true),
            (Value::Null, _) => json!("2026-01-31"),
            (choice, _) => choice.clone(),
        };
        answer.insert(name.clone(), value);
    }
    let done = server.resume(request, &json!({"action": "approve", "payload": answer})).await;
    assert_eq!(done.status, 200, "{done:?}");
    assert!(done.body["output"].is_string() || done.body["message"].is_string(), "{done:?}");
    // A question can be refused as well, which stops the task.
    let paused = server.paused("travel").await;
    let stopped = server.resume(&paused["request_id"], &json!({"action": "reject"})).await;
    assert_eq!(stopped.body["status"], "Canceled", "{stopped:?}");
}

/// S1-28, C31: an approval and a question of one request are decided by one body.
#[tokio::test]
async fn an_approval_and_a_question_are_decided_together() {
    let elsewhere = Elsewhere::quick().await;
    let folder = Folder::new(&elsewhere, &[("ops", &[Line::Says("unused")])], "");
    let url = format!("http://127.0.0.1:{}/a", elsewhere.port);
    let question = |text: &str| json!({"tool": "suspend-for-input", "arguments": json!({"reason": "r", "question": text}).to_string()});
    let script = json!({"replies": [
        {"calls": [
            {"tool": "http_request", "arguments": json!({"url": url}).to_string()},
            question("which?"), question("when?")
        ]},
        {"text": "done"}
    ]});
    std::fs::write(folder.folder.path().join("ops.script.yaml"), script.to_string()).unwrap();
    let server = folder.serve();
    let paused = server.paused("ops").await;
    let calls = paused["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 3, "{paused}");
    let one = server.resume(&paused["request_id"], &json!({"action": "approve", "payload": "sda"})).await;
    assert_eq!(one.status, 422, "two are asked: {one:?}");
    assert!(elsewhere.got().is_empty());
    let answers: serde_json::Map<String, Value> = calls
        .iter()
        .filter(|call| call["name"] == "suspend-for-input")
        .zip(["sda", "now"])
        .map(|(call, answer)| (text(&call["id"]).to_owned(), json!(answer)))
        .collect();
    let done = server.resume(&paused["request_id"], &json!({"action": "approve", "payload": answers})).await;
    assert_eq!(done.body["output"], "done", "{done:?}");
    assert_eq!(elsewhere.got(), ["/a"]);
}

/// S1-28: what a sub-run asks is asked by its task: the same route decides it, and the task goes on or is stopped.
#[tokio::test]
async fn a_sub_run_is_decided_through_its_task() {
    let elsewhere = Elsewhere::quick().await;
    let folder = Folder::led(&elsewhere);
    let server = folder.serve();
    let paused = server.paused_below("lead").await;
    assert_eq!(paused["tool_calls"][0]["name"], "http_request", "{paused}");
    assert_eq!(server.task("lead", &paused["task_id"]).await["status"], "Paused");
    let done = server.approve(&paused["request_id"]).await;
    assert_eq!((&done.body["output"], &done.body["task_id"]), (&json!("all done"), &paused["task_id"]));
    let paused = server.paused_below("lead").await;
    let stopped = server.resume(&paused["request_id"], &json!({"action": "reject"})).await;
    assert_eq!((&stopped.body["status"], &stopped.body["task_id"]), (&json!("Canceled"), &paused["task_id"]));
    assert_eq!(elsewhere.got(), ["/a"]);
}

/// T5, C26: what a turn asks later has the same id. A decision that comes late does not meet a question that its sender was
/// not shown; whoever looked, or got it as an answer, decides it.
#[tokio::test]
async fn a_late_decision_does_not_meet_the_next_question_of_its_request() {
    let elsewhere = Elsewhere::quick().await;
    let asks = || Line::Calls("suspend-for-input", json!({"reason": "which?"}));
    let folder = Folder::new(&elsewhere, &[("ops", &[asks(), Line::Says("done")])], "");
    let config = std::fs::read_to_string(folder.config()).unwrap();
    let gated = "  suspend-for-input: {requires_approval: true}\n  ShellCommand:";
    std::fs::write(folder.config(), config.replace("  ShellCommand:", gated)).unwrap();
    let server = folder.serve();
    let said = r#"{"items": [{"content_type": "text", "content": "please"}]}"#;
    let approve = r#"{"action": "approve", "payload": "blue"}"#;
    for looks in [false, true] {
        let paused = server.send("POST", &format!("{BASE}/ops"), &[], said).await.body;
        let (request, task) = (text(&paused["request_id"]).to_owned(), text(&paused["task_id"]).to_owned());
        let resume = format!("{BASE}/resume/{request}");
        let open = async |kind: &str| {
            for _ in 0..1200 {
                let holds = server.send("GET", "/api/v1/holds", &[], "").await.body;
                let of_task = |hold: &&Value| hold["run"] == json!(task) && hold["kind"] == json!(kind);
                if let Some(hold) = holds["holds"].as_array().unwrap().iter().find(of_task) {
                    return text(&hold["id"]).to_owned();
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            panic!("{task} has no {kind}");
        };
        let approval = format!("/api/v1/holds/{}/resolve", open("approval").await);
        let elsewhere = server.send("POST", &approval, &[], r#"{"resolution": "approve"}"#).await;
        assert_eq!(elsewhere.status, 200, "{elsewhere:?}");
        open("input").await;
        for body in [approve, r#"{"action": "reject"}"#] {
            let late = server.send("POST", &resume, &[], body).await;
            assert_eq!(late.status, 409, "{body}: {late:?}");
            assert!(text(&late.body["detail"]).contains("nothing was decided"), "{late:?}");
        }
        let path = if looks { resume.clone() } else { format!("{BASE}/ops/tasks/{task}") };
        assert_eq!(server.send("GET", &path, &[], "").await.status, 200);
        let done = server.send("POST", &resume, &[], approve).await;
        assert_eq!((done.status, &done.body["output"]), (200, &json!("done")), "{done:?}");
    }
}

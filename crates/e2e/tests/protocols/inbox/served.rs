//! Agents of this server that serve an inbox: the loop, the tool `suspend`, approvals, going on where it stood.

use serde_json::{Value, json};
use standfast_testkit::provider::{self, Fake};

use crate::inbox::server::{asking, configure, ids, serve, serving, text};

/// S4-9, S4-13, S4-24, S4-30, S4-31: an agent takes tasks from its inbox by itself; the payload is its first message.
#[tokio::test]
async fn an_agent_takes_tasks_by_itself() {
    let (_folder, server) = serving("replies:\n- text: all done\n", "");
    let added = server.add(&json!({"type": "ticket", "payload": {"subject": "Refund"}})).await;
    let done = server.until(text(&added["id"]), "completed").await;
    assert_eq!((&done["result"], &done["claimedBy"]), (&json!("all done"), &json!("triage")));
    assert!(done["startedAt"].is_string() && done["completedAt"].is_string());
    let events = server.look(&format!("/api/v1/runs/{}/events", text(&done["runId"]))).await;
    let first = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .find(|event| event["type"] == "message.received")
        .unwrap();
    assert_eq!(first["data"]["message"]["parts"], json!([{"text": {"text": "{\"subject\":\"Refund\"}"}}]));
    let inboxes = server.get("").await.body;
    assert_eq!(inboxes["inboxes"][0]["agents"], json!(["triage"]));
    assert!(
        server.claim(&json!({"agentId": "triage"})).await.is_null(),
        "it is no task for workers elsewhere"
    );
}

/// S4-6, S4-11, S4-12, S4-15, S4-18, S4-21, S4-22, S4-24, S4-25, S4-27, C18, C36: the model asks with `suspend`, which it has in
/// inbox runs alone; the answer is the result of that call, and the conversation goes on where it stood.
#[tokio::test]
async fn the_model_asks_and_goes_on_where_it_stood() {
    let question =
        r#"{"reason": "two invoices", "question": "Which one?", "options": ["A", "B"], "data": {"n": 2}}"#;
    let (folder, server) = serving(&asking(question), "");
    let added = server.add_ticket().await;
    let id = text(&added["id"]).to_owned();
    let waiting = server.until(&id, "waiting_for_input").await;
    let shown =
        json!({"reason": "two invoices", "question": "Which one?", "options": ["A", "B"], "data": {"n": 2}});
    assert_eq!(waiting["suspendPayload"], shown);
    assert_eq!(ids(&server.get("/support/tasks/waiting").await), [id.as_str()]);
    drop(server);
    let server = serve(folder.path());
    // What was shown just before a crash may be forgotten: then it is shown once more (C26).
    assert_eq!(server.task(&id).await["suspendPayload"], shown);
    assert_eq!(server.resume(&id, json!("C")).await.status, 422);
    assert_eq!(server.resume(&id, json!("B")).await.body, json!({"success": true}));
    let done = server.until(&id, "completed").await;
    assert_eq!((&done["result"], &done["resumePayload"]), (&json!("done"), &json!("B")));
    assert_eq!(done["suspendPayload"], shown);
    let events = server.look(&format!("/api/v1/runs/{id}/events")).await;
    let count = |kind: &str| {
        events["events"].as_array().unwrap().iter().filter(|event| event["type"] == kind).count()
    };
    assert_eq!((count("message.received"), count("model.replied")), (1, 2), "nothing is asked or said again");
    let agents = server.look("/api/v1/agents").await;
    assert_eq!(agents["agents"][0]["tools"], json!([]), "elsewhere the agent has no such tool");
}

/// S4-11, S4-12, C18: in a run of an inbox the model is given `suspend` beside the agent's own tools, as the protocol describes it; in any
/// other run it has its own alone.
#[tokio::test(flavor = "multi_thread")]
async fn suspend_joins_the_tools_of_the_agent_for_each_task() {
    let says = json!({"choices": [{"index": 0, "delta": {"content": "Done."}, "finish_reason": "stop"}]});
    let fake = Fake::answering(vec![provider::Answer::stream(format!("data: {says}\n\ndata: [DONE]\n\n"))]);
    let folder = tempfile::tempdir().unwrap();
    let agent = "{llm: script, session_store: main, inboxes: [support], tools: [read_file], task: {}}";
    configure(folder.path(), "replies:\n- text: unused\n", &format!("agents: {{triage: {agent}}}\n"), "");
    let file = folder.path().join("standfast.yaml");
    let config = std::fs::read_to_string(&file).unwrap();
    let model = format!("{{type: openai, model: m-1, base_url: '{}'}}", fake.url);
    std::fs::write(&file, config.replace("{type: scripted, script: script.yaml}", &model)).unwrap();
    std::fs::create_dir(folder.path().join("workspace")).unwrap();
    let server = serve(folder.path());
    let asked_with = || -> Vec<Value> {
        let sent: Value = serde_json::from_str(&fake.request().unwrap().body).unwrap();
        sent["tools"].as_array().unwrap().iter().map(|tool| tool["function"].clone()).collect()
    };
    let names = |tools: &[Value]| -> Vec<String> {
        let mut names: Vec<String> = tools.iter().map(|tool| text(&tool["name"]).to_owned()).collect();
        names.sort_unstable();
        names
    };
    for subject in ["one", "two"] {
        let added = server.add(&json!({"type": "ticket", "payload": {"subject": subject}})).await;
        server.until(text(&added["id"]), "completed").await;
        let tools = asked_with();
        assert_eq!(names(&tools), ["read_file", "suspend"]);
        let suspend = tools.iter().find(|tool| tool["name"] == "suspend").unwrap();
        assert_eq!(suspend["description"], "Pause task execution to request human input");
        let parameters = &suspend["parameters"];
        assert_eq!(parameters["required"], json!(["reason"]), "{parameters}");
        let mut members: Vec<&String> = parameters["properties"].as_object().unwrap().keys().collect();
        members.sort_unstable();
        assert_eq!(members, ["data", "options", "question", "reason", "resumeSchema"]);
        assert_eq!(parameters["properties"]["options"]["type"], "array", "{parameters}");
    }
    let elsewhere = server.post_anywhere("/api/v1/agents/triage/runs", &json!({"input": "hello"})).await;
    assert_eq!(elsewhere.status, 201, "{elsewhere:?}");
    assert_eq!(names(&asked_with()), ["read_file"]);
}

/// S4-6, C36, C25: a task held by an approval shows reason, prompt, options, tool and input in one `suspendPayload`; its answer is one of the words or a decision, never
/// anything else.
#[tokio::test]
async fn an_approval_is_resumed_with_a_decision() {
    let script = "replies:\n- calls:\n  - tool: write_file\n    arguments: '{\"path\": \"a.txt\", \"content\": \"x\"}'\n- text: written\n";
    for (payload, expected) in [
        (json!("approve"), "approve"),
        (json!({"approved": true}), "approve"),
        (json!({"decision": "approve"}), "approve"),
        (json!({"approved": false}), "deny"),
        (json!({"decision": "deny", "reason": "not today"}), "deny"),
        (json!({"decision": "modify", "modified_input": {"path": "b.txt", "content": "y"}}), "modify"),
    ] {
        let (folder, server) = serving(script, ", tools: [write_file]");
        let added = server.add_ticket().await;
        let id = text(&added["id"]).to_owned();
        let waiting = server.until(&id, "waiting_for_input").await;
        let asked = &waiting["suspendPayload"];
        assert_eq!(asked["options"], json!(["approve", "deny", "modify"]));
        assert!(asked["reason"].is_string() && text(&asked["question"]).contains("write_file"), "{asked}");
        assert_eq!(asked["data"]["tool_name"], "write_file");
        assert_eq!(
            asked["data"]["tool_input"], r#"{"path": "a.txt", "content": "x"}"#,
            "text, as part 5 says"
        );
        for nothing in
            [json!("yes, please"), json!({"answer": "approve"}), json!(true), json!("modify"), json!({})]
        {
            let refused = server.resume(&id, nothing.clone()).await;
            assert_eq!(refused.status, 422, "{nothing}: {refused:?}");
        }
        let named = json!({"payload": payload, "holdId": asked["data"]["hold_id"]});
        let resumed = server.post(&format!("/support/tasks/{id}/resume"), &named).await;
        assert_eq!(resumed.status, 200, "{payload}: {resumed:?}");
        let done = server.until(&id, "completed").await;
        assert_eq!(done["resumePayload"]["decision"], expected, "{payload}");
        drop((server, folder));
    }
}

/// C36: several questions at once: the answer must say which one it is for.
#[tokio::test]
async fn several_questions_are_answered_by_name() {
    let script = "replies:\n- calls:\n  - tool: suspend\n    arguments: '{\"reason\": \"one\"}'\n  - tool: suspend\n    arguments: '{\"reason\": \"two\"}'\n- text: done\n";
    let (_folder, server) = serving(script, "");
    let added = server.add_ticket().await;
    let id = text(&added["id"]).to_owned();
    server.until(&id, "waiting_for_input").await;
    let which = server.resume(&id, json!("x")).await;
    assert_eq!((which.status, text(&which.body["type"])), (409, "urn:standfast:problem:which-hold"));
    let holds = which.body["holds"].as_array().unwrap().clone();
    assert_eq!(holds.len(), 2);
    let path = format!("/support/tasks/{id}/resume");
    for hold in &holds {
        let answered = server.post(&path, &json!({"payload": "x", "holdId": hold})).await;
        assert_eq!(answered.status, 200, "{answered:?}");
    }
    server.until(&id, "completed").await;
}

/// S4-29, S4-30: the most urgent first, then the oldest, never more at once than `max_concurrent`: of any two tasks that were
/// worked on one after the other the next began when one before it had ended, also with a crash in between.
#[tokio::test]
async fn tasks_are_taken_by_priority_and_age_within_the_bound() {
    let (folder, server) = serving("replies:\n- text: done\n  delay: 400ms\n", "");
    let first = server.add(&json!({"type": "t", "payload": 0, "priority": 0})).await;
    server.until(text(&first["id"]), "in_progress").await;
    let mut added = vec![(9, text(&first["id"]).to_owned())];
    for (payload, priority) in [(1, 1), (2, 3), (3, 0), (4, 2), (5, 3), (6, 1)] {
        let task = server.add(&json!({"type": "t", "payload": payload, "priority": priority})).await;
        added.push((priority, text(&task["id"]).to_owned()));
    }
    server.until(&added[2].1, "completed").await;
    drop(server);
    let server = serve(folder.path());
    let mut spans = Vec::new();
    for (priority, id) in &added {
        let done = server.until(id, "completed").await;
        let (from, to) = (text(&done["startedAt"]).to_owned(), text(&done["completedAt"]).to_owned());
        assert!(done["claimedAt"].as_str() <= done["startedAt"].as_str() && from < to, "{done}");
        spans.push((from, to, *priority, done["payload"].clone()));
    }
    spans.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
    let order: Vec<&serde_json::Value> = spans.iter().map(|(_, _, _, payload)| payload).collect();
    assert_eq!(order, [0, 2, 5, 4, 1, 6, 3], "by priority, then by age");
    // What the killed server was at is found later, when its lease has run out; meanwhile there is room for the next.
    let overlaps = |one: &(String, String, i32, serde_json::Value),
                    other: &(String, String, i32, serde_json::Value)| {
        one.0 < other.1 && other.0 < one.1
    };
    let crowded = spans.iter().filter(|one| spans.iter().filter(|other| overlaps(one, other)).count() > 1);
    let crowded: Vec<_> = crowded.collect();
    let interrupted = crowded.iter().find(|one| crowded.iter().all(|other| overlaps(one, other)));
    assert!(crowded.is_empty() || interrupted.is_some(), "more than one at once: {spans:?}");
    let undisturbed: Vec<_> = spans.iter().filter(|one| interrupted.is_none_or(|it| it.3 != one.3)).collect();
    for pair in undisturbed.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "two were worked on at once: {pair:?}");
    }
}

/// S4-30: a task that waits for a person takes no place.
#[tokio::test]
async fn a_task_that_waits_for_a_person_takes_no_place() {
    let (_folder, server) = serving(&asking(r#"{"reason": "r"}"#), "");
    let first = server.add(&json!({"type": "t", "payload": 1, "priority": 0})).await;
    server.until(text(&first["id"]), "waiting_for_input").await;
    // The first one waits for a person, so others are worked on.
    let mut added = Vec::new();
    for (payload, priority) in [(2, 1), (3, 3), (4, 2)] {
        let task = server.add(&json!({"type": "t", "payload": payload, "priority": priority})).await;
        added.push(text(&task["id"]).to_owned());
    }
    for id in &added {
        server.until(id, "waiting_for_input").await;
    }
    for id in &added {
        assert_eq!(server.resume(id, json!("go on")).await.status, 200);
        server.until(id, "completed").await;
    }
}

/// S4-30: an agent takes only the types that it serves; the rest is for others.
#[tokio::test]
async fn an_agent_takes_its_types_only() {
    let (_folder, server) = serving("replies:\n- text: done\n", ", inbox_types: [ticket], max_concurrent: 2");
    let other = server.add(&json!({"type": "mail", "payload": 1})).await;
    let targeted = server.add(&json!({"type": "ticket", "payload": 2, "targetAgentId": "somebody"})).await;
    let own = server.add(&json!({"type": "ticket", "payload": 3, "targetAgentId": "triage"})).await;
    server.until(text(&own["id"]), "completed").await;
    let claimed = server.claim(&json!({"agentId": "elsewhere"})).await;
    assert_eq!(claimed["id"], other["id"]);
    assert!(server.claim(&json!({"agentId": "elsewhere"})).await.is_null());
    assert_eq!(server.claim(&json!({"agentId": "somebody"})).await["id"], targeted["id"]);
    let refused = server.report(&claimed, "complete", json!({"claimId": 1, "result": 1})).await;
    assert_eq!(refused.status, 200, "{refused:?}");
}

/// S4-10, S4-29, I1: kill -9 with tasks in the inbox, at work and waiting: everything goes on with the next start.
#[tokio::test]
async fn tasks_survive_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let agents = "agents: {triage: {llm: script, session_store: main, inboxes: [support], task: {}}}\n";
    configure(folder.path(), &asking(r#"{"reason": "r"}"#), agents, "");
    let server = serve(folder.path());
    let mut added = Vec::new();
    for n in 0..10 {
        let task = server.add(&json!({"type": "t", "payload": n})).await;
        added.push(text(&task["id"]).to_owned());
    }
    drop(server);
    let server = serve(folder.path());
    for id in &added {
        server.until(id, "waiting_for_input").await;
        assert_eq!(server.resume(id, json!("go on")).await.status, 200);
    }
    drop(server);
    let server = serve(folder.path());
    for id in &added {
        let done = server.until(id, "completed").await;
        assert_eq!(done["resumePayload"], "go on");
    }
}

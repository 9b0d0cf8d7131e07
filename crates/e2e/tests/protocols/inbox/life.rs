//! The whole life of a task, for workers and for agents of this server: claimed, in progress, waiting, in progress again; its
//! time to live; and that nobody starves behind the tasks of others.

use std::time::Duration;

use serde_json::{Value, json};

use crate::inbox::server::{asking, configure, configure_with, plain, serve, text};
use standfast_testkit::provider::{self, Fake};
use standfast_testkit::receiver::{Got, Mood, Receiver};

/// S4-1, S4-2, S4-28: pending, claimed, in_progress, waiting_for_input, in_progress, completed, each after `kill -9`; a start
/// counts once, and only by whoever has the task.
#[tokio::test]
async fn a_worker_takes_a_task_through_its_whole_life() {
    let (folder, mut server) = plain();
    let added = server.add_ticket().await;
    let id = text(&added["id"]).to_owned();
    let mut life = vec![server.task(&id).await["status"].clone()];
    let claimed = server.claim(&json!({"agentId": "w"})).await;
    assert!(claimed.get("startedAt").is_none(), "{claimed}");
    drop(server);
    server = serve(folder.path());
    life.push(server.task(&id).await["status"].clone());
    let foreign = json!({"claimId": "other#1@local"});
    assert_eq!(server.post(&format!("/support/tasks/{id}/start"), &foreign).await.status, 409);
    let started = server.report(&claimed, "start", json!({})).await;
    assert_eq!(started.status, 200, "{started:?}");
    drop(server);
    server = serve(folder.path());
    let task = server.task(&id).await;
    life.push(task["status"].clone());
    assert!(task["startedAt"].is_string() && task["claimedAt"] == claimed["claimedAt"], "{task}");
    let again = server.report(&claimed, "start", json!({})).await;
    assert_eq!(
        (again.status, &again.body["startedAt"]),
        (200, &task["startedAt"]),
        "a repeat changes nothing"
    );
    let alive = server.report(&claimed, "heartbeat", json!({})).await;
    assert_eq!(
        (&alive.body["status"], &alive.body["startedAt"]),
        (&json!("in_progress"), &task["startedAt"])
    );
    server.report(&claimed, "suspend", json!({"reason": "which?"})).await;
    drop(server);
    server = serve(folder.path());
    life.push(server.task(&id).await["status"].clone());
    assert_eq!(server.resume(&id, json!("A")).await.status, 200);
    drop(server);
    server = serve(folder.path());
    life.push(server.task(&id).await["status"].clone());
    let again = server.claim(&json!({"agentId": "w"})).await;
    server.report(&again, "start", json!({})).await;
    let done = server.report(&again, "complete", json!({"result": 1})).await;
    life.push(done.body["status"].clone());
    let words = ["pending", "claimed", "in_progress", "waiting_for_input", "in_progress", "completed"];
    assert_eq!(life, words);
    assert_eq!(done.body["startedAt"], task["startedAt"], "when it first began");
    let late = server.report(&claimed, "start", json!({})).await;
    assert_eq!(late.status, 409, "{late:?}");
    let events = server.look(&format!("/api/v1/runs/{id}/events")).await.to_string();
    assert_eq!(events.matches(r#""started":true"#).count(), 2, "each claim began once: {events}");
}

/// S4-1, S4-14, S4-30: `task.started` is sent for a task of a worker, and for one that an agent of this server takes.
#[tokio::test]
async fn the_start_of_a_task_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let agents = "agents: {triage: {llm: script, session_store: main, inboxes: [served], task: {}}}\n";
    let hooks = ", webhooks: {allowed_hosts: ['127.0.0.1'], timeout: 5s}";
    let script = asking(r#"{"reason": "r"}"#);
    configure_with(folder.path(), &script, agents, hooks);
    let server = serve(folder.path());
    let receiver = Receiver::new(Mood::Takes).await;
    let made = server.post("/subscriptions", &json!({"url": receiver.url()})).await;
    assert_eq!(made.status, 201, "{made:?}");
    let served = server.post("/served/tasks", &json!({"type": "t", "payload": 1})).await.body;
    server.add_ticket().await;
    let claimed = server.claim(&json!({"agentId": "w"})).await;
    server.report(&claimed, "start", json!({})).await;
    server.report(&claimed, "heartbeat", json!({})).await;
    let starts = |all: &[Got]| -> Vec<Value> {
        let started = all.iter().filter(|got| got.kind() == "task.started");
        started.map(|got| got.body()["data"]["task"]["id"].clone()).collect()
    };
    let is_told =
        |all: &[Got]| starts(all).len() == 2 && all.iter().any(|got| got.kind() == "task.suspended");
    let told = receiver.until("both starts, and the question", is_told).await;
    let mut ids = starts(&told);
    ids.sort_by_key(Value::to_string);
    let mut wanted = vec![served["id"].clone(), claimed["id"].clone()];
    wanted.sort_by_key(Value::to_string);
    assert_eq!(ids, wanted);
    assert!(told.iter().all(|got| got.is_signed_with(text(&made.body["secret"]))));
    let of_served: Vec<String> =
        told.iter().filter(|got| got.body()["data"]["task"]["id"] == served["id"]).map(Got::kind).collect();
    assert_eq!(of_served, ["task.started", "task.suspended"], "in order");
    let events = server.look(&format!("/api/v1/runs/{}/events", text(&served["id"]))).await;
    let kinds: Vec<&str> =
        events["events"].as_array().unwrap().iter().map(|event| text(&event["type"])).collect();
    assert_eq!(
        kinds.iter().filter(|kind| **kind == "run.claimed").count(),
        2,
        "claimed, then started: {kinds:?}"
    );
}

/// S4-29: `taskTtl` is kept by the clock: a task that nobody took in time fails, also when no server ran meanwhile; one that
/// somebody has does not. What was not taken is not claimed either.
#[tokio::test]
async fn a_task_that_nobody_takes_in_time_fails() {
    let (folder, server) = plain();
    let ticket = json!({"type": "t", "payload": 1, "taskTtl": 4000});
    let taken = server.add(&ticket).await;
    let claimed = server.claim(&json!({"agentId": "w"})).await;
    assert_eq!(claimed["id"], taken["id"]);
    let left = server.add(&ticket).await;
    let failed = server.until(text(&left["id"]), "failed").await;
    assert!(text(&failed["error"]["message"]).contains("taskTtl"), "{failed}");
    assert!(server.claim(&json!({"agentId": "w"})).await.is_null());
    assert_eq!(server.task(text(&taken["id"])).await["status"], "claimed");
    let left = server.add(&ticket).await;
    drop(server);
    tokio::time::sleep(Duration::from_millis(4200)).await;
    let server = serve(folder.path());
    // Whoever is first: the clock, or a worker that finds it too late.
    assert!(server.claim(&json!({"agentId": "w"})).await.is_null());
    server.until(text(&left["id"]), "failed").await;
    assert_eq!(server.report(&claimed, "complete", json!({"result": 1})).await.body["status"], "completed");
    let bad = server.post("/support/tasks", &json!({"type": "t", "payload": 1, "taskTtl": 0})).await;
    assert_eq!(bad.status, 422, "{bad:?}");
}

/// S4-29: without a `taskTtl` of its own a task has that of the server, also one for an agent of this server.
#[tokio::test]
async fn the_servers_time_to_live_counts() {
    let folder = tempfile::tempdir().unwrap();
    let agents = "agents: {triage: {llm: script, session_store: main, inboxes: [support], task: {}}}\n";
    configure_with(
        folder.path(),
        "replies:\n- text: done\n  delay: 9s\n",
        agents,
        ", inboxes: {task_ttl: 4s}",
    );
    let server = serve(folder.path());
    let first = server.add_ticket().await;
    server.until(text(&first["id"]), "in_progress").await;
    let second = server.add_ticket().await;
    let failed = server.until(text(&second["id"]), "failed").await;
    assert!(text(&failed["error"]["message"]).contains("nobody took it"), "{failed}");
    assert!(failed.get("startedAt").is_none());
    server.until(text(&first["id"]), "completed").await;
}

/// S4-29: 2,100 more urgent tasks for others do not hide the one that is for this worker, or for this agent.
#[tokio::test]
async fn nobody_starves_behind_the_tasks_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let agents = "agents: {triage: {llm: script, session_store: main, inboxes: [support], inbox_types: [own], task: {}}}\n";
    configure(folder.path(), "replies:\n- text: done\n", agents, "");
    let server = serve(folder.path());
    let foreign = json!({"type": "mail", "payload": 1, "priority": 3, "targetAgentId": "others"});
    for _ in 0..21 {
        let added = server.post("/support/tasks/batch", &json!({"tasks": vec![foreign.clone(); 100]})).await;
        assert_eq!(added.status, 201, "{}", added.body);
    }
    let own = server.add(&json!({"type": "mail", "payload": 2, "priority": 0, "targetAgentId": "w"})).await;
    assert_eq!(server.claim(&json!({"agentId": "w"})).await["id"], own["id"]);
    let typed = server.add(&json!({"type": "sms", "payload": 3, "priority": 0})).await;
    assert_eq!(server.claim(&json!({"agentId": "v", "types": ["sms", "fax"]})).await["id"], typed["id"]);
    let served = server.add(&json!({"type": "own", "payload": 4, "priority": 0})).await;
    server.until(text(&served["id"]), "completed").await;
    assert!(server.claim(&json!({"agentId": "w"})).await.is_null());
}

/// C36: a hold is answered by its `holdId` while another call of the same reply still runs; without it the task is not waiting.
#[tokio::test]
async fn a_named_hold_is_answered_while_a_sibling_runs() {
    let folder = tempfile::tempdir().unwrap();
    let script = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"sleep 8\"}'\n  - tool: write_file\n    arguments: '{\"path\": \"a.txt\", \"content\": \"x\"}'\n- text: done\n";
    let agents = "tools: {execute_command: {allowed_commands: [sleep], requires_approval: false}}
agents: {triage: {llm: script, session_store: main, inboxes: [support], tools: [execute_command, write_file], task: {}}}\n";
    configure(folder.path(), script, agents, "");
    let server = serve(folder.path());
    let added = server.add_ticket().await;
    let id = text(&added["id"]).to_owned();
    let hold = standfast_testkit::until_found("the hold is open", async || {
        let holds = server.look("/api/v1/holds").await;
        holds["holds"].as_array().unwrap().first().map(|hold| text(&hold["id"]).to_owned())
    })
    .await;
    assert_eq!(server.task(&id).await["status"], "in_progress");
    assert_eq!(server.resume(&id, json!("approve")).await.status, 409, "which one is not said");
    let named = json!({"payload": "approve", "holdId": hold});
    let resumed = server.post(&format!("/support/tasks/{id}/resume"), &named).await;
    assert_eq!(resumed.status, 200, "{resumed:?}");
    assert_eq!(server.task(&id).await["status"], "in_progress", "the other call still runs");
    let second = server.post(&format!("/support/tasks/{id}/resume"), &named).await;
    assert_eq!(second.status, 409, "one decision: {second:?}");
    server.until(&id, "completed").await;
}

/// S4-16, C23: an object answers a question with options and reaches the model as it stands; a text must be one of them.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_answers_a_question_with_options_as_it_stands() {
    let question = r#"{"reason": "two invoices", "question": "Which one?", "options": ["A", "B"]}"#;
    let chunk = |delta: Value, reason: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
        format!("data: {}\n\n", json!({"choices": [choice]}))
    };
    let call = json!({"index": 0, "id": "call_1", "type": "function", "function": {"name": "suspend", "arguments": question}});
    let asks = chunk(json!({"tool_calls": [call]}), Value::Null) + &chunk(json!({}), json!("tool_calls"));
    let says = chunk(json!({"content": "Done."}), Value::Null) + &chunk(json!({}), json!("stop"));
    let stream = |chunks: String| provider::Answer::stream(chunks + "data: [DONE]\n\n");
    let fake = Fake::answering(vec![stream(asks), stream(says)]);
    let folder = tempfile::tempdir().unwrap();
    let agents = "agents: {triage: {llm: script, session_store: main, inboxes: [support], task: {}}}\n";
    configure(folder.path(), "replies:\n- text: unused\n", agents, "");
    let file = folder.path().join("standfast.yaml");
    let config = std::fs::read_to_string(&file).unwrap();
    let model = format!("{{type: openai, model: m-1, base_url: '{}'}}", fake.url);
    std::fs::write(&file, config.replace("{type: scripted, script: script.yaml}", &model)).unwrap();
    let server = serve(folder.path());
    let id = text(&server.add_ticket().await["id"]).to_owned();
    server.until(&id, "waiting_for_input").await;
    assert_eq!(server.resume(&id, json!("C")).await.status, 422);
    let resumed = server.resume(&id, json!({"approved": true})).await;
    assert_eq!((resumed.status, resumed.body), (200, json!({"success": true})));
    let done = server.until(&id, "completed").await;
    assert_eq!(done["resumePayload"], json!({"approved": true}));
    let events = server.look(&format!("/api/v1/runs/{id}/events")).await.to_string();
    assert!(events.contains(r#"{"approved":true}"#), "{events}");
    let requests = fake.requests();
    let [_, second] = requests.as_slice() else { panic!("the model was asked twice: {requests:?}") };
    let sent: Value = serde_json::from_str(&second.body).unwrap();
    let results: Vec<&Value> =
        sent["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "tool").collect();
    let [result] = results.as_slice() else { panic!("{sent}") };
    assert_eq!(
        (&result["tool_call_id"], &result["content"]),
        (&json!("call_1"), &json!(r#"{"approved":true}"#))
    );
}

/// S4-29, F2: `kill -9` around the instant at which a task that a worker claims has been there for too long: afterwards it is claimed, or it
/// has failed, once; who was given it has it, and nobody is given what has failed.
#[tokio::test]
async fn a_kill_while_a_task_expires_leaves_it_claimed_or_failed() {
    let (folder, mut server) = plain();
    for round in 0..standfast_testkit::rounds(8) {
        let added = server.add(&json!({"type": "t", "payload": round, "taskTtl": 300})).await;
        let id = text(&added["id"]);
        let url = format!("{}/api/inboxes/support/claim", server.program.base);
        tokio::time::sleep(Duration::from_millis(270 + 7 * (round as u64 % 8))).await;
        let claim = standfast_testkit::http::client().post(url).json(&json!({"agentId": "w"}));
        // Nobody knows what became of it unless it is answered.
        let cut = tokio::spawn(async move { claim.send().await.ok()?.json::<Value>().await.ok() });
        tokio::time::sleep(Duration::from_millis(round as u64 % 9)).await;
        drop(server);
        let given = cut.await.unwrap().map(|answer| answer["task"]["id"].clone());
        server = serve(folder.path());
        let task = standfast_testkit::until_found("it is claimed, or has failed", async || {
            let task = server.task(id).await;
            (task["status"] != "pending").then_some(task)
        })
        .await;
        let events = server.look(&format!("/api/v1/runs/{id}/events")).await.to_string();
        let count = |kind: &str| events.matches(&format!(r#""type":"{kind}""#)).count();
        if task["status"] == "claimed" {
            assert_eq!((count("run.claimed"), count("run.ended")), (1, 0), "{round}: {events}");
            assert!(given.is_none_or(|given| given == id), "{round}: {task}");
        } else {
            assert_eq!(task["status"], "failed", "{round}");
            assert!(text(&task["error"]["message"]).contains("taskTtl"), "{round}: {task}");
            assert_eq!((count("run.claimed"), count("run.ended")), (0, 1), "{round}: {events}");
            assert!(given.is_none_or(|given| given.is_null()), "{round}: {task}");
        }
        assert!(server.claim(&json!({"agentId": "v"})).await.is_null(), "{round}: {task}");
        if task["status"] == "claimed" {
            // So that the end of its lease is nothing to the rounds after this one.
            let cancelled = server.post(&format!("/support/tasks/{id}/cancel"), &json!({})).await;
            assert_eq!(cancelled.status, 200, "{round}: {cancelled:?}");
        }
    }
}

//! Tasks whose stored state cannot be read: every version of A2A shows them as failed and says why, and nothing else suffers.
//!
//! The rows are broken by hand while nobody has the database open. The native API and Teal Agents have tests of their own.

use serde_json::{Value, json};

use crate::a2a::server::{Server, asked, configured, decides, demo, says, state};

/// What begins every text about such a task.
const WHY: &str = "failed to load execution state: ";

/// How a task stands, and what its status says, in the versions that can be asked: 1.0, the dialect, 0.3.
async fn seen(server: &Server, id: &str) -> [(String, String); 3] {
    let path = format!("/v1/agents/ops/tasks/{id}");
    let newer = server.ask("GET", &path, &[("a2a-version", "1.0")], b"").await.body;
    let dialect = server.get(&path).await.body;
    let older = server.rpc("ops", "tasks/get", json!({"id": id})).await.body["result"].clone();
    [newer, dialect, older].map(|task| {
        let words = task["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default().to_owned();
        (state(&task).to_owned(), words)
    })
}

/// S0-37, S0-47, S0-48, C35: of three tasks that wait one's row and another's log cannot be read after a restart. In 1.0, the
/// older dialect, 0.3 and Teal Agents both are failed, and A2A says why; deciding them is an internal error with the same
/// words, as are cancelling and following the first, and nothing of them runs. Every list, and the page of what is pending, has the
/// others, and the third is decided as if nothing were.
#[tokio::test]
async fn what_cannot_be_read_is_failed_in_every_version_and_the_rest_goes_on() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let (row, log, sound) = (
        server.send("ops", &says("go")).await,
        server.send("ops", &says("go")).await,
        server.send("ops", &says("go")).await,
    );
    drop(server);
    let database = rusqlite::Connection::open(data.path().join("standfast.db")).unwrap();
    database.execute_batch("UPDATE runs SET state = '{\"s\": 17' WHERE no = 1").unwrap();
    let of_second = "SELECT min(key) FROM links WHERE key >= 2 << 20";
    let broken =
        database.execute(&format!("UPDATE links SET payload = '[{{' WHERE key = ({of_second})"), []).unwrap();
    assert_eq!(broken, 1);
    drop(database);

    let server = demo(data.path());
    let id = row["id"].as_str().unwrap();
    let [newer, dialect, older] = seen(&server, id).await;
    assert_eq!((newer.0.as_str(), dialect.0.as_str()), ("TASK_STATE_FAILED", "TASK_STATE_FAILED"));
    assert_eq!(older.0, "failed");
    assert!(newer.1.starts_with(WHY) && newer.1.len() > WHY.len(), "{newer:?}");
    assert_eq!((&dialect.1, &older.1), (&newer.1, &newer.1));
    let why = newer.1;

    let hold = asked(&row)[0]["hold_id"].clone();
    let decision = decides(&row, json!({"decision": "approve", "hold_id": hold}));
    let decided = server.post("/v1/agents/ops/message:send", &json!({"message": decision})).await;
    assert_eq!((decided.status, decided.reason()), (500, "INTERNAL_ERROR"), "{decided:?}");
    assert_eq!(decided.body["error"]["message"], why.as_str());
    let dialect = json!({"request": {"role": "user", "taskId": id, "parts": [{"text": "approve"}, {"data": {"decision": "approve"}}]}});
    let decided = server.post("/v1/agents/ops/message:send", &dialect).await;
    assert_eq!((decided.status, &decided.body["error"]["message"]), (500, &json!(why)), "{decided:?}");
    for (method, params) in [
        ("SendMessage", json!({"message": decision})),
        ("CancelTask", json!({"id": id})),
        ("SubscribeToTask", json!({"id": id})),
        (
            "message/send",
            json!({"message": {"kind": "message", "messageId": "m", "role": "user", "taskId": id, "parts": [{"kind": "text", "text": "approve"}]}}),
        ),
        ("tasks/cancel", json!({"id": id})),
    ] {
        let answer = server.rpc("ops", method, params).await;
        let error = &answer.body["error"];
        assert_eq!(
            (&error["code"], &error["message"]),
            (&json!(-32603), &json!(why)),
            "{method}: {answer:?}"
        );
    }
    // The log of the second: what is shown of it is the same.
    let second = log["id"].as_str().unwrap();
    let [newer, dialect, older] = seen(&server, second).await;
    assert_eq!(newer.0, "TASK_STATE_FAILED");
    assert!(newer.1.starts_with(WHY) && newer.1 != why, "{newer:?}");
    assert_eq!((&dialect, older.0.as_str(), &older.1), (&newer, "failed", &newer.1));
    let decision =
        decides(&log, json!({"decision": "approve", "hold_id": asked(&log)[0]["hold_id"].clone()}));
    let decided = server.post("/v1/agents/ops/message:send", &json!({"message": decision})).await;
    assert_eq!((decided.status, &decided.body["error"]["message"]), (500, &json!(newer.1)), "{decided:?}");
    for (task, why) in [(&row, &why), (&log, &newer.1)] {
        let (id, session) = (task["id"].as_str().unwrap(), task["contextId"].as_str().unwrap());
        let entry = server.get(&format!("/api/v1/sessions/{session}/pending_executions/{id}")).await;
        assert_eq!(
            (entry.status, &entry.body["detail"]),
            (500, &json!(format!("{why} (run {id})"))),
            "{entry:?}"
        );
        let teal = server.get(&format!("/tealagents/v1alpha1/ops/tasks/{id}")).await;
        assert_eq!((teal.status, &teal.body["status"]), (200, &json!("Failed")), "{teal:?}");
        let parts = server.get(&format!("/async-tool/session/{session}/parts")).await;
        assert_eq!((parts.status, &parts.body), (200, &json!([])), "{parts:?}");
    }
    for version in [&[("a2a-version", "1.0")][..], &[]] {
        let listed = server.ask("GET", "/v1/agents/ops/tasks", version, b"").await.body;
        let mut states: Vec<(&str, &str)> = listed["tasks"]
            .as_array()
            .unwrap_or_else(|| panic!("one that cannot be read hides the others: {listed}"))
            .iter()
            .map(|task| (task["id"].as_str().unwrap(), state(task)))
            .collect();
        states.sort_unstable();
        let mut expected = [
            (id, "TASK_STATE_FAILED"),
            (second, "TASK_STATE_FAILED"),
            (sound["id"].as_str().unwrap(), "TASK_STATE_INPUT_REQUIRED"),
        ];
        expected.sort_unstable();
        assert_eq!(states, expected, "{listed}");
    }
    let page = server.client.get(format!("{}/", server.program.base)).send().await.unwrap();
    assert_eq!(page.status(), 200);
    let page = page.text().await.unwrap();
    assert!(
        page.contains(asked(&sound)[0]["hold_id"].as_str().unwrap()),
        "what can be decided is on the page"
    );

    let decision =
        decides(&sound, json!({"decision": "approve", "hold_id": asked(&sound)[0]["hold_id"].clone()}));
    assert_eq!(state(&server.send("ops", &decision).await), "TASK_STATE_COMPLETED");
    let effects = std::fs::read_to_string(data.path().join("demo-effects.log")).unwrap();
    assert_eq!(effects.lines().count(), 1, "what cannot be read is not run: {effects}");
    drop(server);
    let server = demo(data.path());
    assert_eq!(seen(&server, id).await[0].1, why, "also after the next start");
}

/// C35: a task whose sub-run asks, and whose sub-run's log cannot be read: the task is shown without that question, as are the others beside it.
#[tokio::test]
async fn a_sub_run_that_cannot_be_read_leaves_its_task_readable() {
    let folder = tempfile::tempdir().unwrap();
    let script = |calls: Value| json!({"replies": [{"calls": [calls]}, {"text": "done"}]}).to_string();
    let lead = json!({"tool": "ask_helper", "arguments": r#"{"message": "look"}"#});
    let helper = json!({"tool": "write_file", "arguments": r#"{"path": "a.txt", "content": "x"}"#});
    for (name, calls) in [("lead", lead), ("helper", helper)] {
        std::fs::write(folder.path().join(format!("{name}.yaml")), script(calls)).unwrap();
    }
    let config =
        "llms: {lead: {type: scripted, script: lead.yaml}, helper: {type: scripted, script: helper.yaml}}
session_stores: {main: {backend: sql, sql: {driver: sqlite, database: runs.db}}}
agents:
  lead: {llm: lead, session_store: main, sub_agents: [helper], task: {}}
  helper: {llm: helper, session_store: main, tools: [write_file], task: {}}
";
    let server = configured(folder.path(), config);
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let mut task = server.send("lead", &says("go")).await;
        // Handing out work may be asked about first.
        while asked(&task)[0]["tool_name"] == "ask_helper" {
            let hold = asked(&task)[0]["hold_id"].clone();
            task =
                server.send("lead", &decides(&task, json!({"decision": "approve", "hold_id": hold}))).await;
        }
        assert_eq!(asked(&task)[0]["tool_name"], "write_file", "{task}");
        tasks.push(task);
    }
    let hold = asked(&tasks[0])[0]["hold_id"].as_str().unwrap().to_owned();
    let sub = server.get(&format!("/api/v1/holds/{hold}")).await.body["run"].as_str().unwrap().to_owned();
    drop(server);
    let database = rusqlite::Connection::open(folder.path().join("runs.db")).unwrap();
    let runs = "SELECT no FROM runs ORDER BY no";
    let runs: Vec<u32> = database
        .prepare(runs)
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    // Task, sub-run, task, sub-run.
    let change =
        "UPDATE links SET payload = '[{' WHERE key = (SELECT min(key) FROM links WHERE key >= ?1 << 20)";
    assert_eq!(database.execute(change, [runs[1]]).unwrap(), 1);
    drop(database);
    let server = crate::a2a::server::serve_file(folder.path(), &[]);
    let listed = server.ask("GET", "/v1/agents/lead/tasks", &[("a2a-version", "1.0")], b"").await;
    assert_eq!((listed.status, listed.body["totalSize"].as_u64()), (200, Some(2)), "{listed:?}");
    let path = format!("/v1/agents/lead/tasks/{}", tasks[0]["id"].as_str().unwrap());
    let shown = server.ask("GET", &path, &[("a2a-version", "1.0")], b"").await;
    assert_eq!(shown.status, 200, "{shown:?}");
    assert!(!shown.body["status"].to_string().contains(&hold), "{sub} asks nothing: {shown:?}");
    let other =
        decides(&tasks[1], json!({"decision": "approve", "hold_id": asked(&tasks[1])[0]["hold_id"].clone()}));
    assert_eq!(state(&server.send("lead", &other).await), "TASK_STATE_COMPLETED");
}

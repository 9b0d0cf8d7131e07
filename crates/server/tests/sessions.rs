//! Sessions over HTTP: the real binary, a real data directory.
//!
//! `pending_executions` is a view of what is pending, with the exact fields of Hector's execution state.

use std::time::Duration;

use serde_json::{Value, json};
use standfast_core::actor::Actor;
use standfast_core::command::Entropy;
use standfast_core::execution_state::{ExecutionState, RestoredRun, Setting, execution_state};
use standfast_core::name::{Tenant, UserId};
use standfast_core::time::Timestamp;

use standfast_testkit::Server;

/// S0-6, S0-8, S0-9, S0-15, S0-16, S0-26, C27: the map has an entry for each run that waits, flat, and is absent when
/// none does; it survives a restart because nothing is stored for it.
#[tokio::test]
async fn a_session_shows_the_runs_that_wait() {
    let data = tempfile::tempdir().unwrap();
    let first = Server::demo(data.path());
    let (one, hold) = first.held_in("night shift").await;
    let (two, _) = first.held_in("night shift").await;
    drop(first);
    let server = Server::demo(data.path());
    let path = "/api/v1/sessions/night%20shift";
    let session = server.get(path).await;
    assert_eq!((&session["id"], &session["agent"]), (&json!("night shift"), &json!("ops")));
    let pending = session["metadata"]["pending_executions"].as_object().unwrap();
    assert_eq!(pending.len(), 2);
    let entry = &pending[&one];
    assert_eq!((&entry["task_id"], &entry["context_id"]), (&json!(one), &json!("night shift")));
    assert_eq!((&entry["query"], &entry["iteration"]), (&json!("Free some space"), &json!(1)));
    assert_eq!(entry["pending_tool_call"]["name"], "delete_file");
    assert_eq!(entry["pending_tool_call"]["arguments"], json!({"path": "/srv/cache/old"}));
    assert_eq!(entry["reasoning_state"]["agent_name"], "ops");
    let names = ["history", "current_turn", "total_tokens", "assistant_response", "pending_tool_calls"];
    assert!(names.iter().all(|name| !entry[name].is_null()), "{entry}");
    assert_eq!(server.get(&format!("{path}/pending_executions/{two}")).await, pending[&two]);

    for id in [&hold, session["metadata"]["pending_executions"][&two]["task_id"].as_str().unwrap()] {
        let resolve = if id.starts_with("hold_") {
            format!("/api/v1/holds/{id}/resolve")
        } else {
            format!("/api/v1/runs/{id}/cancel")
        };
        let body = if id.starts_with("hold_") { json!({"resolution": "deny"}) } else { json!({}) };
        assert_eq!(server.ask("POST", &resolve, Some(body)).await.0, 200);
        // Each end takes its own entry along, the last one the key with it.
        let left = if id == hold { json!({"pending_executions": {&two: pending[&two]}}) } else { json!({}) };
        standfast_testkit::until_found("what is pending", async || {
            (server.get(path).await["metadata"] == left).then_some(())
        })
        .await;
    }
    let (status, problem) = server.ask("GET", &format!("{path}/pending_executions/{one}"), None).await;
    assert_eq!((status, &problem["detail"]), (404, &json!("no pending executions in session")));
}

/// S0-15 … S0-23, S0-77, S0-78, C27: what the server exports is the whole state, in JSON. A run made of it and of nothing
/// else is captured again with every field equal, and so is the run itself after `kill -9`.
#[tokio::test]
async fn a_run_is_restored_from_its_exported_state() {
    let data = tempfile::tempdir().unwrap();
    let first = Server::demo(data.path());
    let (run, _) = first.held_in("s").await;
    let path = format!("/api/v1/sessions/s/pending_executions/{run}");
    let exported = first.get(&path).await;
    drop(first);
    let state = ExecutionState::from_json(exported.to_string().as_bytes()).unwrap();
    let settings = standfast::demo::settings(data.path()).unwrap();
    let agent = &settings.agents[&state.reasoning_state.agent_name];
    let restored = state.restore(&Setting {
        tenant: Tenant::default_tenant(),
        owner: UserId::local(),
        by: Actor::Client(UserId::local()),
        definition: &agent.definition,
        at: Timestamp(1_762_000_000_000),
        entropy: Entropy([3; 32]),
    });
    let RestoredRun { run: made, events } = restored.unwrap();
    let again = execution_state(&made, &agent.definition, &events);
    let again: Value = serde_json::from_slice(&again.to_json()).unwrap();
    for (field, value) in exported.as_object().unwrap() {
        assert_eq!(&again[field], value, "{field}");
    }
    for (field, value) in exported["reasoning_state"].as_object().unwrap() {
        assert_eq!(&again["reasoning_state"][field], value, "{field}");
    }
    assert_eq!(again, exported);
    assert_eq!(exported["history"][0]["role"], "ROLE_USER");
    assert_eq!(exported["history"][0]["parts"], json!([{"text": "Free some space"}]));
    assert_eq!(exported["current_turn"][0]["role"], "ROLE_AGENT");
    let second = Server::demo(data.path());
    assert_eq!(second.get(&path).await, exported, "a restart changes nothing");
}

/// S0-11, S0-14, S0-82, C8: what is pending needs no column and no table of its own in the session, and sessions and runs are
/// in one database; what the user wrote into the metadata is not touched by it.
#[tokio::test]
async fn a_pause_changes_no_schema_and_no_metadata() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::demo(data.path());
    let database = || rusqlite::Connection::open(data.path().join("standfast.db")).unwrap();
    let schema = |database: &rusqlite::Connection| -> Vec<String> {
        let mut statement = database.prepare("SELECT sql FROM sqlite_master ORDER BY name").unwrap();
        let rows = statement.query_map([], |row| row.get::<_, Option<String>>(0)).unwrap();
        rows.map(|row| row.unwrap().unwrap_or_default()).collect()
    };
    let before = schema(&database());
    server.held_in("s").await;
    let patch = json!({"metadata": {"team": "night"}});
    assert_eq!(server.ask("PATCH", "/api/v1/sessions/s", Some(patch)).await.0, 200);
    server.held_in("s").await;
    let database = database();
    assert_eq!(schema(&database), before);
    let one = |sql: &str| database.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(one("SELECT metadata FROM sessions WHERE session = 's'"), r#"{"team":"night"}"#);
    assert_eq!(one("SELECT CAST(count(*) AS TEXT) FROM runs"), "2", "in the same file");
}

/// S0-9, S0-29: runs of a session that stop at the same moment are all in the map, with whole states.
#[tokio::test]
async fn runs_that_stop_at_the_same_moment_are_all_there() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::demo(data.path());
    for round in 0..5 {
        let session = format!("s{round}");
        let starts: Vec<_> = (0..8).map(|_| server.held_in(&session)).collect();
        let held: Vec<(String, String)> = futures_util::future::join_all(starts).await;
        let view = server.get(&format!("/api/v1/sessions/{session}")).await;
        let pending = view["metadata"]["pending_executions"].as_object().unwrap();
        assert_eq!(pending.len(), 8, "{view}");
        for (run, _) in &held {
            assert_eq!(pending[run]["pending_tool_call"]["name"], "delete_file", "{run}");
            assert_eq!(pending[run]["context_id"], json!(session));
        }
    }
}

/// S0-31: a run without a session gets a new one; only a session that is given and empty is refused, in these words.
#[tokio::test]
async fn a_run_always_has_a_session() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::demo(data.path());
    let (status, run) = server.ask("POST", "/api/v1/agents/ops/runs", Some(json!({"input": "hi"}))).await;
    assert_eq!(status, 201, "{run}");
    assert!(run["session"].as_str().is_some_and(|session| session.starts_with("ses_")), "{run}");
    let body = json!({"input": "hi", "session": ""});
    let (status, problem) = server.ask("POST", "/api/v1/agents/ops/runs", Some(body)).await;
    assert_eq!((status, &problem["detail"]), (422, &json!("session ID required for async HITL")));
}

/// S0-24, S0-25: metadata that somebody broke where they are stored are said to be broken, not taken for empty.
#[tokio::test]
async fn broken_metadata_are_not_taken_for_empty() {
    let data = tempfile::tempdir().unwrap();
    let first = Server::demo(data.path());
    let (run, _) = first.held_in("s").await;
    drop(first);
    let database = rusqlite::Connection::open(data.path().join("standfast.db")).unwrap();
    assert_eq!(database.execute("UPDATE sessions SET metadata = '[1'", []).unwrap(), 1);
    drop(database);
    let server = Server::demo(data.path());
    let said = "failed to get session metadata: ";
    for path in ["/api/v1/sessions/s".to_owned(), format!("/api/v1/sessions/s/pending_executions/{run}")] {
        let (status, problem) = server.ask("GET", &path, None).await;
        assert_eq!(status, 500, "{problem}");
        assert!(problem["detail"].as_str().unwrap().starts_with(said), "{problem}");
    }
    let patch = json!({"metadata": {"a": 1}});
    assert_eq!(server.ask("PATCH", "/api/v1/sessions/s", Some(patch)).await.0, 500, "nothing is overwritten");
    assert_eq!(server.get(&format!("/api/v1/runs/{run}")).await["status"], "held", "the run is not affected");
}

/// S0-25: each way in which there is no state has its own text.
#[tokio::test]
async fn a_missing_entry_is_told_apart_from_an_empty_map() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::demo(data.path());
    server.held_in("s").await;
    let (status, problem) = server.ask("GET", "/api/v1/sessions/s/pending_executions/run_x", None).await;
    assert_eq!((status, &problem["detail"]), (404, &json!("execution state not found for task run_x")));
    let (status, problem) = server.ask("GET", "/api/v1/sessions/none/pending_executions/run_x", None).await;
    assert_eq!((status, &problem["detail"]), (404, &json!("no execution state found for task run_x")));
    let written = json!({"metadata": {"pending_executions": 7}});
    let (status, problem) = server.ask("PATCH", "/api/v1/sessions/s", Some(written)).await;
    assert_eq!((status, &problem["detail"]), (422, &json!("invalid pending_executions format")));
}

/// S0-27, S0-28, S0-29: metadata are merged, keep their bytes and their instant, and cannot write the view.
#[tokio::test]
async fn metadata_are_merged_and_the_view_cannot_be_written() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::demo(data.path());
    server.held_in("s").await;
    let path = "/api/v1/sessions/s";
    let before = server.get(path).await;
    let patch = |metadata: Value| server.ask("PATCH", path, Some(json!({"metadata": metadata})));
    let (status, changed) = patch(json!({"team": "night", "ticket": 9_007_199_254_740_993u64})).await;
    assert_eq!((status, &changed["metadata"]["team"]), (200, &json!("night")));
    assert!(changed["updated_at"].as_str() >= before["updated_at"].as_str());
    let (_, changed) = patch(json!({"team": null, "floor": [1]})).await;
    assert_eq!(changed["metadata"]["ticket"], json!(9_007_199_254_740_993u64));
    assert_eq!((&changed["metadata"]["floor"], &changed["metadata"]["team"]), (&json!([1]), &Value::Null));
    assert!(changed["metadata"]["pending_executions"].is_object());
    let (status, problem) = patch(json!({"pending_executions": {}})).await;
    assert_eq!(status, 422, "{problem}");
    let (status, _) = patch(json!({"big": "x".repeat(70_000)})).await;
    assert_eq!(status, 422);
    let listed = server.get("/api/v1/sessions?agent=ops&limit=1").await;
    assert_eq!(listed["sessions"][0]["metadata"]["floor"], json!([1]));
    assert_eq!(server.get("/api/v1/sessions?agent=nobody").await["sessions"], json!([]));
}

/// S0-12: a deleted session stops its runs, erases what they said, and takes no more; its chains still verify.
#[tokio::test]
async fn a_deleted_session_loses_its_contents_and_takes_no_more_runs() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::demo(data.path());
    let (run, hold) = server.held_in("s").await;
    let (other, _) = server.held_in("t").await;
    let (status, deleted) = server.ask("DELETE", "/api/v1/sessions/s", None).await;
    assert_eq!((status, &deleted["erased"]), (200, &json!([run])), "{deleted}");
    let session = server.get("/api/v1/sessions/s").await;
    assert_eq!((&session["closed"], &session["metadata"]), (&json!(true), &json!({})));
    let body = json!({"input": "more", "session": "s"});
    let (status, problem) = server.ask("POST", "/api/v1/agents/ops/runs", Some(body)).await;
    assert_eq!(
        (status, &problem["detail"]),
        (409, &json!("session s of agent ops is closed; begin another one"))
    );
    let approve = Some(json!({"resolution": "approve"}));
    assert_eq!(server.ask("POST", &format!("/api/v1/holds/{hold}/resolve"), approve).await.0, 404);
    assert_eq!(server.get(&format!("/api/v1/runs/{other}")).await["status"], "held");
    drop(server);
    let bytes = std::fs::read(data.path().join("standfast.db")).unwrap();
    assert!(bytes.windows(4).any(|window| window == b"/srv"), "the other session keeps its arguments");
    let verify = standfast_testkit::standfast()
        .args(["audit", "verify"])
        .arg(data.path().join("standfast.db"))
        .output()
        .unwrap();
    let said = String::from_utf8(verify.stdout).unwrap();
    assert!(verify.status.success() && said.contains("1 erased"), "{said}");
    let export = standfast_testkit::standfast()
        .args(["audit", "export"])
        .arg(data.path().join("standfast.db"))
        .output()
        .unwrap();
    let lines = String::from_utf8(export.stdout).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let proof = lines.iter().find(|line| line["data"]["kind"] == "session.deleted").unwrap();
    assert_eq!((proof["audit"].is_number(), &proof["tenant"]), (true, &json!("default")));
    let said = &proof["data"];
    assert_eq!((&said["kind"], &said["session"]), (&json!("session.deleted"), &json!("s")));
    assert_eq!(
        (&said["agent"], &said["by"], &said["forced"]),
        (&json!("ops"), &json!("local"), &json!(false))
    );
    assert_eq!((&said["erased"][0]["run"], &said["left"]), (&json!(run), &json!([])));
    let of_run = lines.iter().filter(|line| line["run"] == json!(run));
    let head = of_run.map(|line| line["link"]["hash"].clone()).next_back().unwrap();
    assert_eq!(said["erased"][0]["hash"], head, "the proof names the head of the chain that stays");
}

/// Two users with a session of the same name have two sessions: neither reads, changes or closes the other's. Who administers
/// sees both and says whose; approvers see the owner's by right, without its metadata, and cannot change it.
#[tokio::test]
async fn a_session_belongs_to_its_user() {
    let data = tempfile::tempdir().unwrap();
    let standfast = || standfast_testkit::standfast();
    let mut command = standfast();
    command.args(["serve", "--listen", "127.0.0.1:0", "--auth", "keys", "--approver", "user:zoe", "--data"]);
    let program = standfast_testkit::start(command.arg(data.path()).env("RUST_LOG", "warn"));
    let key = |arguments: &[&str]| {
        let made =
            standfast().args(["keys", "create", "--data"]).arg(data.path()).args(arguments).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    let [ann, eve, zoe] = ["ann", "eve", "zoe"].map(|user| key(&["--user", user]));
    let admin = key(&["--user", "root", "--scope", "admin"]);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = async |key: &str, method: &str, path: &str, body: Option<Value>| {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let request = client.request(method, format!("{}/api/v1{path}", program.base)).bearer_auth(key);
        let request = request.timeout(Duration::from_secs(30));
        let request = match body {
            Some(body) => request.header("content-type", "application/json").body(body.to_string()),
            None => request,
        };
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        (status, serde_json::from_str(&response.text().await.unwrap()).unwrap_or(Value::Null))
    };
    let start = async |key: &str| {
        let body = json!({"input": "Free some space", "session": "disk", "wait": "settled"});
        ask(key, "POST", "/agents/ops/runs", Some(body)).await
    };
    let (status, ours) = start(&ann).await;
    assert_eq!(status, 201, "{ours}");
    let metadata = json!({"metadata": {"note": "mine"}});
    assert_eq!(ask(&ann, "PATCH", "/sessions/disk", Some(metadata)).await.0, 200);
    assert_eq!(ask(&eve, "GET", "/sessions/disk", None).await.0, 404);
    // A run in the name gives a session of one's own, and nothing of the other.
    assert_eq!(start(&eve).await.0, 201);
    let (_, seen) = ask(&eve, "GET", "/sessions/disk", None).await;
    assert_eq!((&seen["owner"], &seen["metadata"]["note"]), (&json!("eve"), &Value::Null), "{seen}");
    assert_eq!(seen["metadata"]["pending_executions"].as_object().unwrap().len(), 1, "{seen}");
    let theirs = json!({"metadata": {"note": "hers"}});
    assert_eq!(ask(&eve, "PATCH", "/sessions/disk", Some(theirs)).await.0, 200);
    for path in ["/sessions/disk?owner=ann", "/sessions/disk?owner=nobody"] {
        assert_eq!(ask(&eve, "GET", path, None).await.0, 404);
        assert_eq!(ask(&eve, "DELETE", path, None).await.0, 404);
    }
    let (_, listed) = ask(&eve, "GET", "/sessions", None).await;
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1, "{listed}");
    let (_, listed) = ask(&eve, "GET", "/runs?agent=ops&session=disk", None).await;
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1, "{listed}");
    // Deleting closes one's own.
    assert_eq!(ask(&eve, "DELETE", "/sessions/disk?force=true", None).await.0, 200);
    assert_eq!(start(&eve).await.0, 409);
    assert_eq!(start(&ann).await.0, 201);
    let (_, kept) = ask(&ann, "GET", "/sessions/disk", None).await;
    assert_eq!((&kept["metadata"]["note"], &kept["closed"]), (&json!("mine"), &json!(false)), "{kept}");
    // By right: whoever administers sees both, an approver those of the agent.
    let (status, which) = ask(&admin, "GET", "/sessions/disk", None).await;
    assert!(status == 409 && which.to_string().contains("?owner="), "{which}");
    let (_, seen) = ask(&admin, "GET", "/sessions/disk?owner=ann", None).await;
    assert_eq!(seen["metadata"]["note"], "mine");
    let (status, seen) = ask(&zoe, "GET", "/sessions/disk?owner=ann", None).await;
    assert_eq!((status, &seen["metadata"]["note"]), (200, &Value::Null), "{seen}");
    assert_eq!(seen["metadata"]["pending_executions"].as_object().unwrap().len(), 2, "{seen}");
    let change = json!({"metadata": {"note": "theirs"}});
    assert_eq!(ask(&zoe, "PATCH", "/sessions/disk?owner=ann", Some(change)).await.0, 403);
    assert_eq!(ask(&zoe, "DELETE", "/sessions/disk?owner=ann", None).await.0, 403);
}

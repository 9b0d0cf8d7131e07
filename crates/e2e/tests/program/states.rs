//! Execution states with the real binary: exported from one server, restored at another by a command or a request, and
//! what is said where there is none. Also what a mode costs, and how a run ends that can no longer be built.
//!
//! The oracle of what ran is outside the store: files that the tool writes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::{Value, json};
use standfast_store::conformance::cluster::OwnServer;
use standfast_testkit::{Answer, Http, Process, folder, serve, serve_command, start, text};
use tempfile::TempDir;

/// Writes one file after the other, each with an approval.
const SCRIPT: &str = r#"{"replies": [
    {"text": "I begin", "calls": [{"tool": "write_file", "arguments": "{\"path\": \"one.txt\", \"content\": \"1\"}"}]},
    {"calls": [{"tool": "write_file", "arguments": "{ \"path\": \"two.txt\", \"content\": \"9007199254740993\" }"}]},
    {"text": "both are there"}]}"#;

const SQLITE: &str = "backend: sql, sql: {driver: sqlite, database: runs.db}";

/// A folder with an agent that keeps its runs in this store.
fn with(store: &str) -> TempDir {
    let rest = format!(
        "session_stores: {{main: {{{store}}}}}
agents: {{ops: {{llm: s, session_store: main, tools: [write_file], task: {{}}}}}}
"
    );
    folder(&[("s", SCRIPT)], &rest)
}

/// A run whose first file was decided on and that is asked about the second: where its state is, and the exported state.
async fn exported(server: &Process, decision: &str) -> (String, Value) {
    let run = server.send("ops");
    let id = text(&run["id"]).to_owned();
    server.ask(&["holds", decision, text(&run["holds"][0]["id"])]);
    server.until(&id, "asked about the second file", |shown| {
        let hold = &shown["run"]["holds"][0]["id"];
        hold.is_string() && *hold != run["holds"][0]["id"]
    });
    let path = format!("/api/v1/sessions/{}/pending_executions/{id}", text(&run["session"]));
    let state = Http::new(&server.base).get(&path).await;
    assert_eq!(state.status, 200, "{state:?}");
    (path, state.body)
}

fn written(folder: &Path) -> Vec<&'static str> {
    let has = |name: &&str| folder.join("workspace").join(name).exists();
    ["one.txt", "two.txt"].into_iter().filter(has).collect()
}

fn standfast(arguments: &[&str], folder: &Path) -> Output {
    let config = folder.join("standfast.yaml");
    standfast_testkit::standfast().args(arguments).arg("--config").arg(config).output().unwrap()
}

fn verifies(folder: &Path) {
    let output = standfast(&["audit", "verify"], folder);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

async fn put(server: &Process, path: &str, state: &Value) -> Answer {
    Http::new(&server.base).ask("PUT", path, Some(state)).await
}

/// S0-18, S0-19, S0-20, S0-21, S0-22, S0-79: a run that wrote one file and was asked about the second is exported; the server
/// and everything it has is gone. `standfast restore-run` makes the run again elsewhere, in a database and in files, from that
/// one value: every field is the same, what ran does not run again, and what was open is asked about, runs once with its
/// stored arguments after `kill -9`, and the model goes on. The log verifies and the audit says who brought it. So it is where the first file was denied.
#[tokio::test]
async fn a_state_is_restored_at_another_server() {
    let files = "backend: file, file: {directory: ./runs}";
    for (store, decision) in [(SQLITE, "approve"), (files, "approve"), (SQLITE, "deny"), (files, "deny")] {
        let lost = with(SQLITE);
        let server = serve(lost.path());
        let (path, state) = exported(&server, decision).await;
        assert_eq!(written(lost.path()).len(), usize::from(decision == "approve"));
        drop((server, lost));
        let folder = with(store);
        let file = folder.path().join("state.json");
        std::fs::write(&file, state.to_string()).unwrap();
        let server = serve(folder.path());
        let restored = server.ask(&["restore-run", file.to_str().unwrap()]);
        let run = &restored[0];
        assert_eq!((&run["status"], &run["id"]), (&json!("held"), &state["task_id"]), "{store}: {restored}");
        assert_eq!(run["session"], state["context_id"]);
        assert_eq!(server.ask(&["restore-run", file.to_str().unwrap()]), restored, "again changes nothing");
        drop(server);
        let server = serve(folder.path());
        let again = Http::new(&server.base).get(&path).await.body;
        for (field, value) in state.as_object().unwrap() {
            assert_eq!(&again[field], value, "{store}: {field}");
        }
        assert_eq!(again, state, "{store}");
        let hold = server.hold(text(&run["id"]));
        assert_eq!(hold["arguments"], json!({"path": "two.txt", "content": "9007199254740993"}));
        assert!(text(&hold["reason"]).starts_with("This run was restored"), "{hold}");
        assert_eq!(written(folder.path()), Vec::<&str>::new(), "{store}: restoring runs nothing");
        server.ask(&["holds", "approve", text(&hold["id"])]);
        let done = server.run_once(text(&run["id"]), "completed");
        assert_eq!(done["result"], "both are there", "{store}: {done}");
        assert_eq!(written(folder.path()), ["two.txt"], "{store}: what ran before does not run again");
        let gone_on = put(&server, &path, &state).await;
        assert_eq!((gone_on.status, text(&gone_on.body["type"])), (409, "urn:standfast:problem:run-exists"));
        drop(server);
        verifies(folder.path());
        let log = standfast(&["audit", "export"], folder.path());
        let log = String::from_utf8(log.stdout).unwrap();
        let entries = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let told: Vec<Value> = entries.filter(|line| line["data"]["kind"] == "run.restored").collect();
        assert_eq!(told.len(), 1, "{store}: {told:?}");
        assert_eq!((&told[0]["data"]["run"], &told[0]["data"]["by"]), (&state["task_id"], &json!("local")));
    }
}

/// S0-18: a whole session is restored from what the API says of it, and from its file of a file store; a hold is denied and
/// the run goes on with that.
#[tokio::test]
async fn a_session_is_restored_with_all_that_waits() {
    let lost = with("backend: file, file: {directory: ./runs}");
    let server = serve(lost.path());
    let start = json!({"input": "go", "session": "night", "wait": "settled"});
    let http = Http::new(&server.base);
    for _ in 0..2 {
        assert_eq!(http.post("/api/v1/agents/ops/runs", &start).await.body["status"], "held");
    }
    let shown = http.get("/api/v1/sessions/night").await.body;
    drop(server);
    let kept = std::fs::read_to_string(lost.path().join("runs/session/ops/night.json")).unwrap();
    for session in [shown.to_string(), kept] {
        let folder = with(SQLITE);
        let file = folder.path().join("session.json");
        std::fs::write(&file, &session).unwrap();
        let server = serve(folder.path());
        let restored = server.ask(&["restore-run", file.to_str().unwrap()]);
        let runs = restored.as_array().unwrap();
        assert_eq!(runs.len(), 2, "{restored}");
        let listed = Http::new(&server.base).get("/api/v1/sessions/night").await.body;
        assert_eq!(
            listed["metadata"]["pending_executions"], shown["metadata"]["pending_executions"],
            "{listed}"
        );
        for run in runs {
            let id = text(&run["id"]);
            server.ask(&["holds", "deny", text(&server.hold(id)["id"])]);
            server.until(id, "asked about the next file", |shown| {
                shown["events"].as_array().unwrap().iter().any(|event| event["type"] == "hold.resolved")
            });
            assert_eq!(server.hold(id)["arguments"]["path"], "two.txt", "the model went on");
        }
    }
}

/// S0-7, S0-18, S0-19, C27: what cannot be restored whole is refused with a sentence, by the route and by the command, and leaves
/// nothing behind: broken bytes, the nested shape, two values of one field, another agent, another definition, a place that is
/// not free.
#[tokio::test]
async fn a_state_that_does_not_fit_is_refused() {
    let folder = with(SQLITE);
    let server = serve(folder.path());
    let (path, state) = exported(&server, "approve").await;
    drop((server, folder));
    let folder = with(SQLITE);
    let server = serve(folder.path());
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut other = state.clone();
        change(&mut other);
        other
    };
    let both = |state: &mut Value, field: &str, value: Value| {
        state["reasoning_state"][field] = value.clone();
        state[field] = value;
    };
    let cases = [
        (json!({"task_id": 7}), 422, "the execution state cannot be read"),
        (
            json!({"execution_state": state, "pending_tool_call": state["pending_tool_call"], "checkpoint_data": {}}),
            422,
            "the execution state cannot be read",
        ),
        (
            changed(&|state| state["iteration"] = json!(7)),
            422,
            "iteration and reasoning_state.iteration differ",
        ),
        (changed(&|state| both(state, "iteration", json!(7))), 422, "another iteration"),
        (
            changed(&|state| state["reasoning_state"]["sub_agents"] = json!(["other"])),
            422,
            "another sub_agents",
        ),
        (changed(&|state| state["reasoning_state"]["agent_name"] = json!("nobody")), 404, "no agent nobody"),
        (changed(&|state| state["context_id"] = json!("elsewhere")), 422, "names another run or session"),
        (
            changed(&|state| {
                let mut history = state["history"].clone();
                history[0]["metadata"]["seq"] = json!(4_000_000_000_u64);
                both(state, "history", history);
            }),
            422,
            "cannot stand at 4000000000",
        ),
    ];
    for (sent, status, why) in cases {
        let refused = put(&server, &path, &sent).await;
        assert_eq!(refused.status, status, "{why}: {refused:?}");
        assert!(text(&refused.body["detail"]).contains(why), "{why}: {refused:?}");
    }
    let file = folder.path().join("no.json");
    for (contents, why) in [("{}", "no execution state"), ("{", "not an exported execution state")] {
        std::fs::write(&file, contents).unwrap();
        let said = server.refused(&["restore-run", file.to_str().unwrap()]);
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(server.ask(&["runs"])["runs"], json!([]), "nothing is left behind");
    assert_eq!(put(&server, &path, &state).await.status, 201);
    let other = put(&server, &path, &changed(&|state| both(state, "query", json!("other")))).await;
    assert_eq!(other.status, 409, "{other:?}");
}

/// S0-18, T12: a history that somebody brings along is an administrator's to bring, for whomever they name; an ordinary key is
/// refused, and the owner then decides as they always do.
#[tokio::test]
async fn only_administrators_restore() {
    let folder = with(SQLITE);
    let server = serve(folder.path());
    let (path, state) = exported(&server, "approve").await;
    drop((server, folder));
    let folder = with(SQLITE);
    let server = start(serve_command(folder.path()).args(["--auth", "keys"]));
    let key = |arguments: &[&str]| {
        let data = folder.path().join("data");
        let mut all = vec!["keys", "create", "--data", data.to_str().unwrap()];
        all.extend(arguments);
        let made = standfast(&all, folder.path());
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    let (ann, root) = (key(&["--user", "ann"]), key(&["--user", "root", "--scope", "admin"]));
    let http = Http::new(&server.base);
    assert_eq!(http.ask("PUT", &path, Some(&state)).await.status, 401);
    let refused = http.with_key(&ann).ask("PUT", &path, Some(&state)).await;
    assert_eq!((refused.status, text(&refused.body["type"])), (403, "urn:standfast:problem:missing-scope"));
    let of_ann = format!("{path}?owner=ann");
    let restored = http.with_key(&root).ask("PUT", &of_ann, Some(&state)).await;
    assert_eq!((restored.status, &restored.body["owner"]), (201, &json!("ann")), "{restored:?}");
    let hold = text(&restored.body["holds"][0]["id"]).to_owned();
    let approve = json!({"resolution": "approve", "wait": "settled"});
    let decided = http.with_key(&ann).post(&format!("/api/v1/holds/{hold}/resolve"), &approve).await;
    assert_eq!(decided.status, 200, "{decided:?}");
    assert_eq!(written(folder.path()), ["two.txt"], "{decided:?}");
}

/// S0-18, F2: `kill -9` in the middle of restoring, and two who restore at once: sent again there is one run, whole, with one
/// question, and its log verifies.
#[tokio::test]
async fn a_kill_in_the_middle_of_restoring_leaves_all_or_nothing() {
    let folder = with(SQLITE);
    let server = serve(folder.path());
    let (path, state) = exported(&server, "approve").await;
    drop((server, folder));
    for round in 0..standfast_testkit::rounds(12) {
        let folder = with(SQLITE);
        let server = serve(folder.path());
        let (http, body) = (Http::new(&server.base), state.to_string());
        let url = format!("{}{path}", server.base);
        let cut = tokio::spawn(async move {
            let request = http.client.put(url).header("content-type", "application/json").body(body);
            let _ = request.timeout(Duration::from_secs(5)).send().await;
        });
        tokio::time::sleep(Duration::from_millis(round as u64 % 30)).await;
        drop(server);
        cut.await.unwrap();
        let server = serve(folder.path());
        let (one, other) = tokio::join!(put(&server, &path, &state), put(&server, &path, &state));
        let mut statuses = [one.status, other.status];
        statuses.sort_unstable();
        assert!(statuses == [200, 200] || statuses == [200, 201], "{round}: {one:?} {other:?}");
        assert_eq!(server.ask(&["runs"])["runs"].as_array().unwrap().len(), 1, "{round}");
        assert_eq!(server.ask(&["holds"])["holds"].as_array().unwrap().len(), 1, "{round}");
        assert_eq!(Http::new(&server.base).get(&path).await.body, state, "{round}");
        drop(server);
        verifies(folder.path());
    }
}

/// S0-25: a store that is away is reported as that, with its text, and a state is not said to be missing.
#[tokio::test]
async fn a_store_that_is_away_has_its_text() {
    let postgres = OwnServer::new();
    let folder = with(&format!("backend: sql, sql: {{driver: postgres, url: \"{}\"}}", postgres.url()));
    let server = serve(folder.path());
    let (path, state) = exported(&server, "approve").await;
    postgres.crash();
    let http = Http::new(&server.base);
    let away = http.get(&path).await;
    assert_eq!(away.status, 503, "{away:?}");
    assert!(text(&away.body["detail"]).contains("session service not available"), "{away:?}");
    postgres.start();
    standfast_testkit::until_found("the state", async || {
        let back = http.get(&path).await;
        (back.status == 200).then(|| assert_eq!(back.body, state))
    })
    .await;
}

/// S0-40, S0-47: a resumed run for which nothing can be built any more, because its model is no longer configured, runs
/// nothing in its place: it says what is missing, and ended there it is FAILED for A2A clients, with the reason. An engine
/// that there is not is refused when the file is loaded.
#[tokio::test]
async fn a_run_that_cannot_be_built_again_fails() {
    let folder = with(SQLITE);
    let server = serve(folder.path());
    let run = server.send("ops");
    let id = text(&run["id"]);
    drop(server);
    let file = folder.path().join("standfast.yaml");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(folder.path().join("other.script.yaml"), "replies:\n- text: not mine\n").unwrap();
    let other = config.replace(
        "s: {type: scripted, script: s.script.yaml}",
        "t: {type: scripted, script: other.script.yaml}",
    );
    std::fs::write(&file, other.replace("llm: s,", "llm: t,")).unwrap();
    let server = serve(folder.path());
    server.ask(&["holds", "approve", text(&run["holds"][0]["id"])]);
    let asked = server.hold_of_kind(id, "input");
    assert!(text(&asked["reason"]).contains("no longer has the model"), "{asked}");
    server.ask(&["holds", "deny", text(&asked["id"]), "--reason", "that model is gone for good"]);
    server.run_once(id, "failed");
    let http = Http::new(&server.base);
    let task = http.get(&format!("/v1/agents/ops/tasks/{id}")).await.body;
    assert_eq!(task["status"]["state"], "TASK_STATE_FAILED", "{task}");
    assert!(task["status"].to_string().contains("that model is gone for good"), "{task}");
    assert!(!task.to_string().contains("not mine"), "no other model took its place: {task}");
    drop(server);
    std::fs::write(&file, config.replace("llm: s,", "llm: s, reasoning: {engine: tree_of_thought},"))
        .unwrap();
    let refused = standfast_testkit::standfast().arg("validate").arg(&file).output().unwrap();
    let said =
        String::from_utf8_lossy(&refused.stdout).into_owned() + &String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("chain_of_thought"), "{said}");
}

/// S0-65: a cycle of a blocking agent costs no write at all: not a byte of the database changes, while every cycle of an async
/// one is written. What that takes is printed by the bench.
#[tokio::test]
async fn blocking_costs_no_write_and_async_a_few() {
    let rest = format!(
        "session_stores: {{main: {{{SQLITE}}}}}
agents:
  durable: {{llm: s, session_store: main, tools: [write_file], task: {{}}}}
  quick: {{llm: s, tools: [write_file], task: {{}}}}
"
    );
    let folder = folder(&[("s", SCRIPT)], &rest);
    let server = serve(folder.path());
    let http = Http::new(&server.base);
    let files = ["runs.db", "runs.db-wal"].map(|name| folder.path().join(name));
    let contents = || files.clone().map(|file| std::fs::read(file).unwrap_or_default());
    let cycle = async |agent: &str| {
        let before = contents();
        let begin = json!({"input": "go", "wait": "settled"});
        let mut run = http.post(&format!("/api/v1/agents/{agent}/runs"), &begin).await.body;
        while run["status"] == "held" {
            let hold = text(&run["holds"][0]["id"]).to_owned();
            let approve = json!({"resolution": "approve", "wait": "settled"});
            assert_eq!(http.post(&format!("/api/v1/holds/{hold}/resolve"), &approve).await.status, 200);
            run = http.get(&format!("/api/v1/runs/{}", text(&run["id"]))).await.body;
        }
        assert_eq!(run["status"], "completed", "{agent}: {run}");
        contents() != before
    };
    // What a server writes once in a while may fall into one of them.
    let (mut quick, mut durable) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        quick.push(cycle("quick").await);
        durable.push(cycle("durable").await);
    }
    assert!(quick.contains(&false), "nothing is written for a blocking agent: {quick:?}");
    assert!(!durable.contains(&false), "what is async is durable: {durable:?}");
}

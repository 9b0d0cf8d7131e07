//! Runs whose row or log was damaged where it is stored, as inboxes, async tools and pages see them: each is shown as failed, or not
//! at all, and hides nothing else.
//!
//! The database is broken by hand while nobody has it open. A2A and Teal Agents: `a2a/corrupt.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use standfast_testkit::{Http, Process, folder, serve, text, until_found};
use tokio::net::TcpListener;

const WHY: &str = "failed to load execution state: ";

/// What is broken of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    Row,
    Log,
}

impl Damage {
    /// Breaks the run that was begun so many runs after the first.
    fn strikes(self, folder: &Path, no: u32) {
        let database = rusqlite::Connection::open(folder.join("runs.db")).unwrap();
        let change = match self {
            Damage::Row => "UPDATE runs SET state = '{\"s\": 17' WHERE no = ?1",
            Damage::Log => {
                "UPDATE links SET payload = '[{' WHERE key = (SELECT min(key) FROM links WHERE key >= ?1 << 20)"
            }
        };
        let first: u32 = database.query_row("SELECT min(no) FROM runs", [], |row| row.get(0)).unwrap();
        assert_eq!(database.execute(change, [first + no]).unwrap(), 1);
    }
}

fn ids(list: &Value) -> Vec<&str> {
    list.as_array().unwrap_or_else(|| panic!("no list: {list}")).iter().map(|one| text(&one["id"])).collect()
}

/// Four runs that wait: two tasks of an inbox, and two that wait for a job.
async fn four_that_wait(server: &Process) -> [String; 4] {
    let http = Http::new(&server.base);
    let mut runs = Vec::new();
    for payload in 0..2 {
        let task = json!({"type": "t", "payload": payload});
        runs.push(text(&http.post("/api/inboxes/support/tasks", &task).await.body["id"]).to_owned());
    }
    for session in ["s-0", "s-1"] {
        let begin = json!({"input": "go", "session": session});
        runs.push(text(&http.post("/api/v1/agents/jobs/runs", &begin).await.body["id"]).to_owned());
    }
    for run in &runs {
        until_found("it waits", async || {
            (http.get(&format!("/api/v1/runs/{run}")).await.body["status"] == "held").then_some(())
        })
        .await;
    }
    runs.try_into().unwrap()
}

/// S0-48, C35: of two tasks of an inbox and of two runs that wait for a job, one of each cannot be read after a restart, by its row or by its
/// log. The task is shown as failed, with the reason, and answering it is an error; it is in no list of what waits. The job's
/// call is in no list. Every list and page has the others, and they go on to their ends.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_hides_nothing_else() {
    let jobs = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = jobs.local_addr().unwrap().port();
    let routes = Router::new().route("/jobs", post(|| async { Json(json!({})) }));
    tokio::spawn(async move { axum::serve(jobs, routes).await });
    let calls = |tool: &str, arguments: &str| {
        json!({"replies": [{"calls": [{"tool": tool, "arguments": arguments}]}, {"text": "done"}]})
            .to_string()
    };
    let (asks, deploys) = (calls("suspend", r#"{"reason": "r"}"#), calls("deploy", "{}"));
    let rest = format!(
        "tools:
  deploy: {{async: true, description: Deploys., url: 'http://127.0.0.1:{port}/jobs', allowed_hosts: ['127.0.0.1'], requires_approval: false,
    parameters: {{type: object}}}}
session_stores: {{main: {{backend: sql, sql: {{driver: sqlite, database: runs.db}}}}}}
agents:
  triage: {{llm: asks, session_store: main, inboxes: [support], max_concurrent: 4, task: {{}}}}
  jobs: {{llm: deploys, session_store: main, tools: [deploy], task: {{}}}}
"
    );
    for damage in [Damage::Row, Damage::Log] {
        let folder = folder(&[("asks", asks.as_str()), ("deploys", deploys.as_str())], &rest);
        let server = serve(folder.path());
        let [broken, sound, _, waits] = four_that_wait(&server).await;
        drop(server);
        damage.strikes(folder.path(), 0);
        damage.strikes(folder.path(), 2);
        let server = serve(folder.path());
        let http = Http::new(&server.base);
        let look = async |path: &str| {
            let answer = http.get(path).await;
            assert_eq!(answer.status, 200, "{damage:?}: {path}: {answer:?}");
            answer.body
        };

        let tasks = look("/api/inboxes/support/tasks").await["tasks"].clone();
        let mut listed = ids(&tasks);
        listed.sort_unstable();
        let mut expected = [broken.as_str(), sound.as_str()];
        expected.sort_unstable();
        assert_eq!(listed, expected, "{damage:?}");
        let task = look(&format!("/api/inboxes/support/tasks/{broken}")).await;
        assert_eq!((&task["status"], &task["type"]), (&json!("failed"), &json!("t")), "{damage:?}: {task}");
        assert!(text(&task["error"]["message"]).starts_with(WHY), "{damage:?}: {task}");
        let entry = tasks.as_array().unwrap().iter().find(|task| task["id"] == broken.as_str()).unwrap();
        assert_eq!(entry, &task, "{damage:?}: the list has the same");
        for path in [
            "/api/inboxes/support/tasks?status=waiting_for_input",
            "/api/inboxes/support/tasks/waiting",
            "/api/inboxes/tasks/waiting",
        ] {
            assert_eq!(ids(&look(path).await["tasks"]), [sound.as_str()], "{damage:?}: {path}");
        }
        let resume = format!("/api/inboxes/support/tasks/{broken}/resume");
        let refused = http.post(&resume, &json!({"payload": "x"})).await;
        assert_eq!(refused.status, 500, "{damage:?}: {refused:?}");
        assert!(text(&refused.body["detail"]).starts_with(WHY), "{damage:?}: {refused:?}");

        let pending = look("/async-tool/pending").await;
        let call = text(&pending[0]["id"]).to_owned();
        assert_eq!((ids(&pending).len(), &pending[0]["sessionID"]), (1, &json!("s-1")), "{damage:?}");
        for path in ["/async-tool/pending?status=completed", "/async-tool/session/s-0/parts"] {
            assert_eq!(look(path).await, json!([]), "{damage:?}: {path}");
        }
        let waiting = look("/async-tool/sessions/waiting").await;
        let sessions: Vec<&str> =
            waiting.as_array().unwrap().iter().map(|one| text(&one["sessionID"])).collect();
        assert!(sessions.contains(&"s-1"), "{damage:?}: {waiting}");
        for path in ["/", "/runs", "/inboxes", "/inboxes/support"] {
            look(path).await;
        }

        look(&format!("/api/inboxes/support/tasks/{sound}")).await;
        let resume = format!("/api/inboxes/support/tasks/{sound}/resume");
        assert_eq!(http.post(&resume, &json!({"payload": "x"})).await.status, 200, "{damage:?}");
        let report = json!({"pendingID": call, "result": {"output": "deployed"}});
        assert_eq!(http.post("/async-tool/result", &report).await.status, 200, "{damage:?}");
        for run in [&sound, &waits] {
            until_found("it goes on", async || {
                (http.get(&format!("/api/v1/runs/{run}")).await.body["status"] == "completed").then_some(())
            })
            .await;
        }
    }
}

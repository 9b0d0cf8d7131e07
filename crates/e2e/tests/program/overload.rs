//! A server with more to do than it can: new runs are refused with a time to come back, decisions and reads are not, and
//! what it said yes to is there.
//!
//! No time is measured: a server that may have one write waiting is asked by many at once, and one with a single slot is given
//! more runs than may wait for it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use standfast_testkit::{Process, serve_command, start, text};

const ASKS: &str = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"echo hello\"}'\n- text: done\n";

const SLEEPS: &str =
    "replies:\n- calls:\n  - tool: nap\n    arguments: '{\"command\": \"sleep 600\"}'\n- text: done\n";

fn config(limits: &str) -> String {
    format!(
        "
tools:
  execute_command: {{allowed_commands: [echo]}}
  nap: {{type: command, allowed_commands: [sleep], requires_approval: false}}
session_stores: {{main-db: {{backend: sql, sql: {{driver: sqlite, database: ./kept.db}}}}}}
agents:
  ops: {{llm: asks, session_store: main-db, tools: [execute_command], task: {{}}}}
  slow: {{llm: sleeps, session_store: main-db, tools: [nap], task: {{worker_pool: 1}}}}
server: {{limits: {{{limits}}}}}
"
    )
}

fn serve(limits: &str) -> (tempfile::TempDir, Process) {
    let folder = standfast_testkit::folder(&[("asks", ASKS), ("sleeps", SLEEPS)], &config(limits));
    let server = start(&mut serve_command(folder.path()));
    (folder, server)
}

struct Said {
    status: u16,
    retry_after: Option<String>,
    body: Value,
}

async fn post(client: &reqwest::Client, url: String, body: Value) -> Said {
    let response = client.post(url).json(&body).send().await.unwrap();
    let retry_after = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    Said { status: response.status().as_u16(), retry_after, body: response.json().await.unwrap() }
}

async fn new_run(client: &reqwest::Client, server: &Process, agent: &str) -> Said {
    post(client, format!("{}/api/v1/agents/{agent}/runs", server.base), json!({"input": "go"})).await
}

async fn status(client: &reqwest::Client, url: String) -> u16 {
    client.get(url).send().await.unwrap().status().as_u16()
}

/// One slot, and three runs that may wait for it: the next is refused, whatever its agent, and everything else goes on.
#[tokio::test]
async fn a_full_queue_refuses_new_runs_and_nothing_else() {
    let (_folder, server) = serve("queued_runs: 3");
    let client = standfast_testkit::http::client();
    let held = server.send("ops");
    let mut refused = None;
    for _ in 0..2000 {
        let said = new_run(&client, &server, "slow").await;
        if said.status == 503 {
            refused = Some(said);
            break;
        }
        assert!((200..300).contains(&said.status), "{}: {}", said.status, said.body);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let refused = refused.unwrap();
    assert_eq!(refused.retry_after.as_deref(), Some("1"), "{}", refused.body);
    let detail = text(&refused.body["detail"]);
    assert!(
        detail.contains("runs wait for a slot") && detail.contains("decisions and reads are not"),
        "{detail}"
    );
    assert_eq!(new_run(&client, &server, "ops").await.status, 503, "runs of every agent");
    assert_eq!(status(&client, format!("{}/api/v1/runs", server.base)).await, 200);
    assert_eq!(status(&client, format!("{}/readyz", server.base)).await, 200);
    server.ask(&["holds", "approve", text(&held["holds"][0]["id"])]);
    server.run_once(text(&held["id"]), "completed");
    let metrics = client.get(format!("{}/metrics", server.base)).send().await.unwrap().text().await.unwrap();
    assert!(!metrics.contains("standfast_runs_shed_total 0\n"), "{metrics}");
}

/// Many ask at once for more than the store may be behind: some new runs are refused, every one that was not is there, and
/// every decision that is made meanwhile counts.
#[tokio::test]
async fn a_store_that_is_behind_refuses_new_runs_before_decisions() {
    let (_folder, server) = serve("waiting_writes: 1");
    let client = standfast_testkit::http::client();
    let mut holds = Vec::new();
    for _ in 0..20 {
        holds.push(text(&server.send("ops")["holds"][0]["id"]).to_owned());
    }
    let starts = (0..24).map(|_| {
        let (client, url) = (client.clone(), format!("{}/api/v1/agents/ops/runs", server.base));
        tokio::spawn(async move {
            let mut said = Vec::new();
            for _ in 0..20 {
                said.push(post(&client, url.clone(), json!({"input": "go"})).await);
            }
            said
        })
    });
    let starts: Vec<_> = starts.collect();
    for hold in &holds {
        let url = format!("{}/api/v1/holds/{hold}/resolve", server.base);
        let said = post(&client, url, json!({"resolution": "approve"})).await;
        assert!((200..300).contains(&said.status), "a decision was refused: {} {}", said.status, said.body);
    }
    let (mut taken, mut shed) = (Vec::new(), 0);
    for start in starts {
        for said in start.await.unwrap() {
            match said.status {
                200..=299 => taken.push(text(&said.body["id"]).to_owned()),
                503 => {
                    assert_eq!(said.retry_after.as_deref(), Some("1"), "{}", said.body);
                    shed += 1;
                }
                other => panic!("{other}: {}", said.body),
            }
        }
    }
    assert!(shed > 0 && !taken.is_empty(), "{shed} of {} were refused", shed + taken.len());
    for run in taken {
        assert_eq!(status(&client, format!("{}/api/v1/runs/{run}", server.base)).await, 200, "{run}");
    }
}

//! A gateway on several servers of one Postgres: what a client left at one of them is found at any other.

use std::time::Duration;

use serde_json::{Value, json};
use standfast_testkit::http::Http;
use standfast_testkit::{Process, text, until};
use tempfile::TempDir;

use super::gateway::{RULES, folder};
use super::gateway_calls::{Client, hold, ran, resolve, result, upstream, words};
use super::gateway_ladder::{meta, modern};
use super::server::{on_postgres, packages};

const SHARED: &str =
    "server: {nodes: {take_over_after: 3s}, webhooks: {key: 0123456789abcdef0123456789abcdef}}\n";

/// One of the servers in this folder.
fn node(folder: &TempDir, name: &str) -> (Process, Http) {
    let mut command = standfast_testkit::standfast();
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(folder.path().join("standfast.yaml"));
    command.arg("--data").arg(folder.path().join(name)).env("RUST_LOG", "warn").env_remove("STANDFAST_KEY");
    let program = standfast_testkit::start(&mut command);
    let http = Http::new(&program.base);
    (program, http)
}

async fn until_done(http: &Http, gate: &str) {
    for _ in 0..1200 {
        if http.get(&format!("/api/v1/gates/{gate}")).await.body["state"] == "done" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{gate} is never done")
}

/// A call runs at one node, and its client dies before the result is there; that node is killed. The same call at another node gets
/// the result, without a run and without a question. Asked once more it is another wish, at every node.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_reached_nobody_is_found_at_any_node() {
    let port = standfast_testkit::free_port();
    let folder =
        folder(&format!("  web: {{url: 'http://127.0.0.1:{port}/mcp'}}\n"), &format!("{SHARED}{RULES}"));
    on_postgres(&folder);
    let _upstream = upstream(&folder, port);
    let [(one, first), (_two, second)] = ["one", "two"].map(|name| node(&folder, name));
    let client = Client::hello(&first, "web", "2025-06-18", json!({})).await;
    let runs = client.calls(1, "write", r#"{"how":"hang"}"#);
    let held = hold(&second).await;
    resolve(&second, &held, json!({"resolution": "approve"})).await;
    until("it runs", || ran(&folder) == ["hang"]);
    runs.abort();
    drop(runs.await);
    std::fs::write(folder.path().join("place/go.txt"), "").unwrap();
    let gate = text(&second.get("/api/v1/runs").await.body["runs"][0]["id"]).to_owned();
    until_done(&second, &gate).await;
    drop(one);
    // The session is known here too.
    let there = Client { http: second.clone(), ..client };
    let answer = there.call(2, "write", r#"{"how":"hang"}"#).await;
    assert!(words(&result(&answer)).starts_with("write hang"), "{answer:?}");
    assert_eq!(ran(&folder), ["hang"], "it ran once");
    assert_eq!(second.get("/api/v1/holds").await.body["holds"], json!([]));
    // Somebody has it now: at a node that was not there either, the same call is another one.
    let (_three, third) = node(&folder, "three");
    let waits = Client { http: third.clone(), ..there }.calls(3, "write", r#"{"how":"hang"}"#);
    let other = hold(&third).await;
    assert_ne!(other["id"], held["id"]);
    resolve(&third, &other, json!({"resolution": "deny"})).await;
    assert!(words(&result(&waits.await.unwrap())).contains("denied"));
}

/// What a server asked for before it runs an approved call is answered once, also when two nodes are told the answer at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_for_the_server_counts_at_one_node() {
    let asking = packages().join("asking.js").display().to_string();
    let port = standfast_testkit::free_port();
    let folder = folder(&format!("  ask: {{url: 'http://127.0.0.1:{port}/mcp'}}\n"), SHARED);
    on_postgres(&folder);
    let mut command = std::process::Command::new("node");
    command.arg(&asking).arg(folder.path().join("place")).arg(port.to_string());
    let _upstream = super::over_http::listening(command, port);
    let [(_one, first), (_two, second)] = ["one", "two"].map(|name| node(&folder, name));
    let capabilities = json!({"elicitation": {"url": {}, "form": {}}});
    let mut pay = json!({"name": "pay", "arguments": {"to": "Ann"}, "_meta": meta(&capabilities)});
    let asked = result(&modern(&first, "ask").ask(json!(1), "tools/call", pay.clone()).await);
    resolve(&second, &hold(&second).await, json!({"resolution": "approve"})).await;
    pay["requestState"] = asked["requestState"].clone();
    pay["inputResponses"] = json!({"standfast": {"action": "accept"}});
    let asked = result(&modern(&second, "ask").ask(json!(2), "tools/call", pay.clone()).await);
    assert_eq!(asked["inputRequests"]["amount"]["params"]["message"], "How much does Ann get?", "{asked}");
    pay["requestState"] = asked["requestState"].clone();
    pay["inputResponses"] = json!({"amount": {"action": "accept", "content": {"cents": 300}}});
    let (one, two) = (modern(&first, "ask"), modern(&second, "ask"));
    let answers = tokio::join!(
        one.ask(json!(3), "tools/call", pay.clone()),
        two.ask(json!(4), "tools/call", pay.clone()),
        one.ask(json!(5), "tools/call", pay.clone()),
        two.ask(json!(6), "tools/call", pay.clone()),
    );
    let said = [answers.0, answers.1, answers.2, answers.3].map(|answer| words(&result(&answer)));
    let paid = said.iter().filter(|said| said.starts_with("paid 300 cents")).count();
    assert_eq!(paid, 1, "{said:?}");
    assert!(said.iter().all(|said| said.starts_with("paid") || said.contains("used before")), "{said:?}");
    let later: Value = result(&modern(&second, "ask").ask(json!(7), "tools/call", pay).await);
    assert!(words(&later).contains("used before"), "{later}");
    let paid = std::fs::read_to_string(folder.path().join("place/paid.txt")).unwrap();
    assert_eq!(paid, "Ann 300\n");
}

/// A key of somebody in a tenant.
fn key(folder: &TempDir, user: &str, tenant: &str) -> String {
    let mut command = standfast_testkit::standfast();
    command.args(["keys", "create", "--scope", "admin", "--user", user, "--tenant", tenant, "--config"]);
    let made = command.arg(folder.path().join("standfast.yaml")).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

/// An id of the same form that nobody has.
fn nobodys(id: &str) -> String {
    format!("{}000000", &id[..id.len() - 6])
}

/// T15, T16: of a session, a task and a question of another tenant a gateway knows nothing, at any node and for nobody there: not for
/// somebody of the same name, not for an administrator. Nothing of it is cancelled, decided or run; its owner goes on with all three.
#[tokio::test(flavor = "multi_thread")]
async fn t15_t16_a_gateway_keeps_tenants_apart() {
    let (port, asking_port) = (standfast_testkit::free_port(), standfast_testkit::free_port());
    let gateways = format!(
        "  web: {{url: 'http://127.0.0.1:{port}/mcp'}}\n  ask: {{url: 'http://127.0.0.1:{asking_port}/mcp', wait: 2s}}\n"
    );
    let shared = SHARED.replace("server: {", "server: {auth: {api_keys: true}, ");
    let folder = folder(&gateways, &format!("{shared}{RULES}"));
    on_postgres(&folder);
    let _upstream = upstream(&folder, port);
    let mut command = std::process::Command::new("node");
    command.arg(packages().join("asking.js")).arg(folder.path().join("place")).arg(asking_port.to_string());
    let _asking = super::over_http::listening(command, asking_port);
    let [(_one, first), (_two, second)] = ["one", "two"].map(|name| node(&folder, name));
    let ann = first.with_key(&key(&folder, "ann", "default"));
    let mut strangers = Vec::new();
    for user in ["ann", "root"] {
        let key = key(&folder, user, "acme");
        strangers.extend([first.with_key(&key), second.with_key(&key)]);
    }
    // A session.
    let session = Client::hello(&ann, "web", "2025-06-18", json!({})).await;
    let id = session.session.clone().unwrap();
    for stranger in &strangers {
        let listed = async |id: &str| {
            let client = Client { http: stranger.clone(), session: Some(id.to_owned()), ..session.clone() };
            let answer = client.ask(json!(1), "tools/list", json!({})).await;
            (answer.status, answer.text.replace(id, "ID"))
        };
        let theirs = listed(&id).await;
        assert_eq!(theirs.0, 404, "{theirs:?}");
        assert_eq!(theirs, listed(&nobodys(&id)).await);
    }
    assert!(result(&session.ask(json!(2), "tools/list", json!({})).await)["tools"].is_array());
    // A task.
    let tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let call = json!({"name": "pay", "arguments": {"to": "Ann"}, "_meta": meta(&tasks)});
    let created = result(&modern(&ann, "ask").ask(json!(3), "tools/call", call).await);
    let task = text(&created["taskId"]).to_owned();
    let of = |task: &str| json!({"taskId": task, "_meta": meta(&tasks)});
    for stranger in &strangers {
        for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
            let asked = async |task: &str| {
                let answer = modern(stranger, "ask").ask(json!(4), method, of(task)).await;
                (answer.status, answer.text.replace(task, "ID"))
            };
            let theirs = asked(&task).await;
            assert!(theirs.1.contains("\"error\""), "{method}: {theirs:?}");
            assert_eq!(theirs, asked(&nobodys(&task)).await, "{method}");
        }
    }
    assert_eq!(result(&modern(&ann, "ask").ask(json!(5), "tasks/get", of(&task)).await)["status"], "working");
    modern(&ann, "ask").ask(json!(6), "tasks/cancel", of(&task)).await;
    // A question, before the call is approved and after it.
    let mut pay = json!({"name": "pay", "arguments": {"to": "Bob"}, "_meta": meta(&json!({"elicitation": {"form": {}}}))});
    let waits = result(&modern(&ann, "ask").ask(json!(7), "tools/call", pay.clone()).await);
    let held = hold(&ann).await;
    let mine = text(&held["id"]).to_owned();
    // The same words are a call of the stranger's own, about which somebody of their tenant is asked.
    let own_call = async |pay: &Value| {
        for stranger in &strangers {
            let said = result(&modern(stranger, "ask").ask(json!(8), "tools/call", pay.clone()).await);
            assert!(said["inputRequests"]["standfast"].is_object(), "{said}");
            assert!(!said.to_string().contains(&mine), "{said}");
            let open = stranger.get("/api/v1/holds").await;
            assert!(open.text.contains("hold_") && !open.text.contains(&mine), "{open:?}");
        }
    };
    pay["requestState"] = waits["requestState"].clone();
    pay["inputResponses"] = json!({"standfast": {"action": "accept", "content": {}}});
    own_call(&pay).await;
    resolve(&ann, &held, json!({"resolution": "approve"})).await;
    own_call(&pay).await;
    let asks = result(&modern(&ann, "ask").ask(json!(9), "tools/call", pay.clone()).await);
    assert!(asks["inputRequests"]["amount"].is_object(), "{asks}");
    pay["requestState"] = asks["requestState"].clone();
    pay["inputResponses"] = json!({"amount": {"action": "accept", "content": {"cents": 300}}});
    for stranger in &strangers {
        let said = result(&modern(stranger, "ask").ask(json!(11), "tools/call", pay.clone()).await);
        assert!(said["isError"] == true && words(&said).starts_with("Not executed"), "{said}");
    }
    assert!(!folder.path().join("place/paid.txt").exists());
    let done = result(&modern(&ann, "ask").ask(json!(10), "tools/call", pay).await);
    assert!(words(&done).starts_with("paid 300 cents to Bob"), "{done}");
}

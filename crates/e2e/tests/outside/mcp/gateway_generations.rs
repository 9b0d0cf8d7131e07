//! Clients of one generation of the protocol in front of servers of the other: those that know only sessions, and those that know none.
//!
//! Servers and clients are official ones, or made with the official SDKs, which refuse the other generation; and plain HTTP.

use std::process::Command;

use serde_json::{Value, json};
use standfast_testkit::{text, until};
use tempfile::TempDir;

use super::gateway::{RULES as OF_EVERYTHING, everything, folder, serve};
use super::gateway_calls::{Client, hold, messages, ran, resolve, result, upstream, words};
use super::gateway_ladder::{OfficialClient, Reading, meta, modern};
use super::over_http::{Program, listening};
use super::server::{package, packages};

const RULES: &str = "policy:
  rules:
  - {id: reads, allow: [mcp__*__where, mcp__*__touch], agent: gate}
";

/// The newest server over HTTP as `web`, and as a program as `local`.
fn newest() -> (TempDir, Program) {
    let port = standfast_testkit::free_port();
    let server = packages().join("newest.js").display().to_string();
    let gateways = format!(
        "  web: {{url: 'http://127.0.0.1:{port}/mcp'}}\n  local: {{command: node, args: ['{server}', PLACE]}}\n"
    );
    let folder = folder(&gateways, RULES);
    let mut command = Command::new("node");
    command.arg(&server).arg(folder.path().join("place")).arg(port.to_string());
    (folder, listening(command, port))
}

fn paid(folder: &TempDir) -> String {
    std::fs::read_to_string(folder.path().join("place/paid.txt")).unwrap_or_default()
}

/// The official client that knows only sessions uses a server that has none: what it lists, reads, calls, subscribes to and is asked is
/// what it knows; its call is approved once and runs once.
#[tokio::test]
async fn an_older_client_uses_a_server_without_sessions() {
    let (folder, _upstream) = newest();
    let (server, http) = serve(&folder, "127.0.0.1:0");
    for gateway in ["web", "local"] {
        let client = OfficialClient::start("sessions.js", &[&format!("{}/mcp/{gateway}", server.base)]);
        let hello = json!({"server": "newest", "instructions": "Pay nobody.", "tools": ["pay", "where", "touch"], "session": true});
        assert_eq!(client.next(), hello, "{gateway}");
        assert_eq!(client.next(), json!({"note": "n\u{2028}"}), "{gateway}");
        let looked = json!({"where": "in Köln", "logged": ["looks at Köln"]});
        assert_eq!(
            client.next(),
            looked,
            "{gateway}: its argument stands in a header, and what it logs is heard"
        );
        assert_eq!(client.next(), json!({"updated": "note://one"}), "{gateway}");
        let asked = client.next();
        let held = hold(&http).await;
        assert!(text(&asked["asked"]).contains(text(&held["id"])), "{gateway}: {asked}");
        resolve(&http, &held, json!({"resolution": "approve"})).await;
        assert_eq!(client.next(), json!({"asked": "How much does Ann get?"}), "{gateway}");
        let done = client.next();
        assert_eq!(words(&done["result"]), "paid 300 cents to Ann", "{gateway}: {done}");
        assert_eq!(http.get("/api/v1/holds").await.body["holds"], json!([]), "{gateway}");
    }
    assert_eq!(paid(&folder), "Ann 300\nAnn 300\n");
}

fn pay(id: u32, to: &str) -> Value {
    let arguments = json!({"to": to});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "pay", "arguments": arguments}})
}

/// Edited arguments are what the server gets; where the gateway is killed before anybody answered what the server asks, nothing is paid,
/// and the session goes on at the next one.
#[tokio::test]
async fn a_session_without_one_outlives_the_gateway() {
    let (folder, _upstream) = newest();
    let address = format!("127.0.0.1:{}", standfast_testkit::free_port());
    let (server, http) = serve(&folder, &address);
    let mut clients = Vec::new();
    for gateway in ["web", "local"] {
        let client = Client::hello(&http, gateway, "2025-06-18", json!({"elicitation": {}})).await;
        let tools = result(&client.ask(json!(1), "tools/list", json!({})).await);
        assert_eq!((&tools["tools"][0]["name"], tools.get("resultType")), (&json!("pay"), None), "{tools}");
        let mut reading = Reading::of(&client, &pay(2, "Bob")).await;
        reading.until("elicitation/create").await;
        let held = hold(&http).await;
        resolve(&http, &held, json!({"resolution": "approve", "arguments": {"to": "Zoe"}})).await;
        // What the server asks now nobody answers: the gateway dies first.
        let question = reading.until("elicitation/create").await;
        assert_eq!(question["params"]["message"], "How much does Zoe get?", "{question}");
        clients.push(client);
    }
    drop(server);
    let (_server, http) = serve(&folder, &address);
    assert_eq!(paid(&folder), "");
    for client in &clients {
        let client = Client { http: http.clone(), ..client.clone() };
        assert_eq!(result(&client.ask(json!(3), "ping", json!({})).await), json!({}));
        let unknown = client.ask(json!(4), "nothing/such", json!({})).await;
        assert!(messages(&unknown)[0]["error"]["code"].is_i64(), "{unknown:?}");
        let mut reading = Reading::of(&client, &pay(5, "Eve")).await;
        reading.until("elicitation/create").await;
        let held = hold(&http).await;
        resolve(&http, &held, json!({"resolution": "approve"})).await;
        let question = reading.until("elicitation/create").await;
        assert_eq!(question["params"]["message"], "How much does Eve get?", "{question}");
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"cents": 7}}});
        assert_eq!(client.say(&answer.to_string()).await.status, 202);
        let mut last = reading.next().await.unwrap();
        while last.get("method").is_some() {
            last = reading.next().await.unwrap();
        }
        assert_eq!(words(&last["result"]), "paid 7 cents to Eve", "{last}");
    }
    assert_eq!(paid(&folder), "Eve 7\nEve 7\n");
}

/// The official client that knows no sessions uses the official everything server, which needs them, over HTTP and as a program: what the
/// server asks while a call runs, the client is asked to bring back, and the call goes on where it was.
#[tokio::test]
async fn a_client_without_sessions_uses_a_server_that_needs_them() {
    let port = standfast_testkit::free_port();
    let program = package("server-everything");
    let gateways = format!(
        "  web: {{url: 'http://127.0.0.1:{port}/mcp', give_sessions: true}}\n  \
         local: {{command: node, args: ['{program}', stdio], give_sessions: true}}\n"
    );
    let rules = format!("{OF_EVERYTHING}  - {{id: env, hold: mcp__*__get-env, agent: gate}}\n");
    let folder = folder(&gateways, &rules);
    let _upstream = everything(port);
    let (server, http) = serve(&folder, "127.0.0.1:0");
    for gateway in ["web", "local"] {
        let client = OfficialClient::start("nosessions.js", &[&format!("{}/mcp/{gateway}", server.base)]);
        let next = || client.next();
        assert_eq!(next(), json!({"version": "2026-07-28", "echo": true, "instructions": true}), "{gateway}");
        assert_eq!(next()["text"], "Echo: 9007199254740993 \u{2028} é", "{gateway}");
        assert!(next()["temperature"].is_number(), "{gateway}");
        assert!(next()["text"].is_string(), "{gateway}");
        assert!(next()["read"].is_string(), "{gateway}");
        assert_eq!(next(), json!({"progress": true}), "{gateway}");
        let sampled = next();
        assert!(text(&sampled["sampled"]).contains("hello"), "{gateway}: {sampled}");
        assert_eq!(next(), json!({"sampling": true}), "{gateway}");
        assert!(next()["asked"].is_string(), "{gateway}");
        assert_eq!(next(), json!({"elicited": true}), "{gateway}");
        assert_eq!(next(), json!({"updated": true}), "{gateway}");
        let asked = next();
        let held = hold(&http).await;
        assert!(text(&asked["asked"]).contains(text(&held["id"])), "{gateway}: {asked}");
        resolve(&http, &held, json!({"resolution": "approve"})).await;
        let mut last = next();
        while last["asked"].is_string() {
            last = next();
        }
        assert_eq!(last, json!({"env": true}), "{gateway}");
    }
}

/// A server that was killed and started again does not know the session of ours: the next request has another one, and an approved call
/// runs once.
#[tokio::test]
async fn a_session_of_ours_that_is_lost_is_begun_again() {
    let port = standfast_testkit::free_port();
    let gateways = format!(
        "  web: {{url: 'http://127.0.0.1:{port}/mcp', give_sessions: true}}\n  \
         local: {{command: node, args: [UNRULY, PLACE], give_sessions: true}}\n"
    );
    let folder = folder(&gateways, OF_EVERYTHING);
    let mut over_http = upstream(&folder, port);
    let (_server, http) = serve(&folder, "127.0.0.1:0");
    let who = meta(&json!({"elicitation": {}}));
    for gateway in ["web", "local"] {
        drop(std::fs::remove_file(folder.path().join("place/ran.txt")));
        let client = modern(&http, gateway);
        let found = result(&client.ask(json!(1), "server/discover", json!({"_meta": who})).await);
        assert_eq!(found["supportedVersions"], json!(["2026-07-28"]), "{found}");
        let params = json!({"name": "write", "arguments": {"how": gateway}, "_meta": who});
        let asked = result(&client.ask(json!(2), "tools/call", params.clone()).await);
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        resolve(&http, &hold(&http).await, json!({"resolution": "approve"})).await;
        if gateway == "web" {
            drop(over_http);
            over_http = upstream(&folder, port);
        } else {
            let pid = std::fs::read_to_string(folder.path().join("place/pid.txt")).unwrap();
            assert!(Command::new("kill").args(["-9", pid.trim()]).status().unwrap().success());
            until("it is gone", || {
                !Command::new("kill").args(["-0", pid.trim()]).output().unwrap().status.success()
            });
            // The gateway hears of it on its own; then there is another program.
            let mut no = 50;
            while !client.ask(json!(no), "ping", json!({"_meta": who})).await.text.contains("result") {
                no += 1;
            }
        }
        let mut again = params.clone();
        again["requestState"] = asked["requestState"].clone();
        again["inputResponses"] = json!({"standfast": {"action": "accept"}});
        let done = result(&client.ask(json!(3), "tools/call", again).await);
        assert!(words(&done).starts_with(&format!("write {gateway}")), "{done}");
        assert_eq!(done["resultType"], "complete", "{done}");
        assert_eq!(ran(&folder), [gateway], "once");
    }
    drop(over_http);
}

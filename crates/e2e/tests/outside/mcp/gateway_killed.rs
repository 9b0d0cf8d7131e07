//! `kill -9` of the gateway, of its client and of the server behind it, while a call waits, on every rung of the ladder: what somebody
//! approved afterwards runs once, when the same is asked again, and nobody is asked twice.
//!
//! What dies while a call runs is in `gateway_calls.rs`.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use standfast_testkit::http::Http;
use standfast_testkit::wait::now_ms;
use standfast_testkit::{Process, text, until};
use tempfile::TempDir;

use super::gateway::{RULES, folder, serve};
use super::gateway_calls::{Client, hold, ran, resolve, result, upstream, words};
use super::gateway_ladder::{Reading, meta, modern};
use super::over_http::{Program, listening};
use super::server::packages;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rung {
    Task,
    ComeBack,
    Address,
    Form,
    Progress,
    Answer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Gateway,
    Client,
    Upstream,
}

const VICTIMS: [Victim; 3] = [Victim::Gateway, Victim::Client, Victim::Upstream];

/// Everything that a test may kill.
struct World {
    folder: TempDir,
    address: String,
    server: Option<Process>,
    http: Http,
    port: u16,
    upstream: Option<Program>,
    /// The port of a server of the newest protocol, which has no sessions.
    newest: u16,
    newest_upstream: Option<Program>,
}

/// The gateway in front of the server without sessions.
const NEWEST: &str = "newest";

fn newest(folder: &TempDir, port: u16) -> Program {
    let mut command = Command::new("node");
    command.arg(packages().join("asking.js")).arg(folder.path().join("place")).arg(port.to_string());
    listening(command, port)
}

impl World {
    fn new() -> World {
        let [port, own, new] = [(); 3].map(|()| standfast_testkit::free_port());
        let gateways = format!(
            "  web: {{url: 'http://127.0.0.1:{port}/mcp'}}\n  local: {{command: node, args: [UNRULY, PLACE]}}\n  \
             {NEWEST}: {{url: 'http://127.0.0.1:{new}/mcp'}}\n"
        );
        let folder = folder(&gateways, RULES);
        let address = format!("127.0.0.1:{own}");
        let (upstream, newest_upstream) = (Some(upstream(&folder, port)), Some(newest(&folder, new)));
        let (server, http) = serve(&folder, &address);
        World { folder, address, server: Some(server), http, port, upstream, newest: new, newest_upstream }
    }

    /// What ran at the server behind a gateway.
    fn ran(&self, gateway: &str) -> Vec<String> {
        if gateway != NEWEST {
            return ran(&self.folder);
        }
        let paid = std::fs::read_to_string(self.folder.path().join("place/paid.txt")).unwrap_or_default();
        paid.lines().map(|line| line.trim_end_matches(" 100").to_owned()).collect()
    }

    fn kill_gateway(&mut self) {
        self.server = None;
        let (server, http) = serve(&self.folder, &self.address);
        (self.server, self.http) = (Some(server), http);
    }

    /// Kills the server behind the gateway, and waits until the gateway knows.
    async fn kill_upstream(&mut self, gateway: &str, client: &Client) {
        if gateway == "web" {
            self.upstream = None;
            self.upstream = Some(upstream(&self.folder, self.port));
            return;
        }
        if gateway == NEWEST {
            self.newest_upstream = None;
            self.newest_upstream = Some(newest(&self.folder, self.newest));
            return;
        }
        let pid = std::fs::read_to_string(self.folder.path().join("place/pid.txt")).unwrap();
        assert!(Command::new("kill").args(["-9", pid.trim()]).status().unwrap().success());
        until("it is gone", || {
            !Command::new("kill").args(["-0", pid.trim()]).output().unwrap().status.success()
        });
        let mut last = None;
        for no in 0..600 {
            // There is no ping without sessions, and each request says what the client can do.
            let (method, params) = match client.session {
                Some(_) => ("ping", json!({})),
                None => ("tools/list", json!({"_meta": meta(&json!({}))})),
            };
            let answer = client.ask(json!(50 + no), method, params).await;
            // A session ends with its program; clients without one get another program.
            let is_known =
                if client.session.is_some() { answer.status == 404 } else { answer.text.contains("result") };
            if is_known {
                return;
            }
            last = Some(answer);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the gateway never knows that its program is gone: {last:?}")
    }
}

impl Rung {
    fn capabilities(self) -> Value {
        match self {
            Rung::Task => json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}),
            Rung::ComeBack | Rung::Address => json!({"elicitation": {"url": {}}}),
            Rung::Form => json!({"elicitation": {}}),
            Rung::Progress | Rung::Answer => json!({}),
        }
    }

    async fn client(self, http: &Http, gateway: &str) -> Client {
        match self {
            Rung::Task | Rung::ComeBack => modern(http, gateway),
            Rung::Address => Client::hello(http, gateway, "2025-11-25", self.capabilities()).await,
            Rung::Form | Rung::Progress | Rung::Answer => {
                Client::hello(http, gateway, "2025-06-18", self.capabilities()).await
            }
        }
    }

    fn call(self, id: u32, how: &str) -> Value {
        let mut params = if how.starts_with("Known ") {
            json!({"name": "pay", "arguments": {"to": how}})
        } else {
            json!({"name": "write", "arguments": {"how": how}})
        };
        match self {
            Rung::Task | Rung::ComeBack => params["_meta"] = meta(&self.capabilities()),
            Rung::Progress => params["_meta"] = json!({"progressToken": "t"}),
            Rung::Address | Rung::Form | Rung::Answer => {}
        }
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    }

    /// What the client hears while the call waits; none where it hears nothing.
    async fn sign(self, reading: &mut Reading) -> Option<Value> {
        let message = match self {
            Rung::Answer => return None,
            Rung::Address | Rung::Form => reading.until("elicitation/create").await,
            Rung::Progress => reading.until("notifications/progress").await,
            Rung::Task | Rung::ComeBack => reading.whole().await,
        };
        match self {
            Rung::Task => assert_eq!(message["result"]["resultType"], "task", "{message}"),
            Rung::ComeBack => assert_eq!(message["result"]["resultType"], "input_required", "{message}"),
            Rung::Address => assert_eq!(message["params"]["mode"], "url", "{message}"),
            Rung::Form => assert!(text(&message["params"]["message"]).contains("/approve/"), "{message}"),
            Rung::Progress | Rung::Answer => {}
        }
        Some(message)
    }

    /// Asks the same again as such a client does; the words of the result.
    async fn again(self, client: &Client, how: &str, sign: Option<&Value>) -> String {
        match (self, sign) {
            (Rung::Task, Some(created)) => {
                let params =
                    json!({"taskId": created["result"]["taskId"], "_meta": meta(&self.capabilities())});
                for no in 0..600 {
                    let task = result(&client.ask(json!(100 + no), "tasks/get", params.clone()).await);
                    if task["status"] != "working" {
                        return words(&task["result"]);
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                panic!("the task never ends")
            }
            (Rung::ComeBack, Some(asked)) => {
                let mut call = self.call(9, how);
                call["params"]["requestState"] = asked["result"]["requestState"].clone();
                call["params"]["inputResponses"] = json!({"standfast": {"action": "accept"}});
                words(&result(&client.say(&call.to_string()).await))
            }
            (_, _) => words(&result(&client.say(&self.call(9, how).to_string()).await)),
        }
    }
}

async fn survives(world: &mut World, gateway: &str, rung: Rung, victim: Victim) {
    let (how, done) = match gateway {
        NEWEST => (format!("Known {rung:?} {victim:?}"), "paid 100 cents to"),
        _ => (format!("{gateway} {rung:?} {victim:?}"), "write"),
    };
    for file in ["ran.txt", "paid.txt"] {
        drop(std::fs::remove_file(world.folder.path().join("place").join(file)));
    }
    let client = rung.client(&world.http, gateway).await;
    let mut reading = Some(Reading::of(&client, &rung.call(1, &how)).await);
    let sign = match &mut reading {
        Some(reading) => rung.sign(reading).await,
        None => None,
    };
    let held = hold(&world.http).await;
    assert!(world.ran(gateway).is_empty(), "{how}");
    match victim {
        Victim::Gateway => world.kill_gateway(),
        Victim::Client => drop(reading.take()),
        Victim::Upstream => world.kill_upstream(gateway, &client).await,
    }
    assert_eq!(hold(&world.http).await["id"], held["id"], "{how}: it still waits");
    resolve(&world.http, &held, json!({"resolution": "approve"})).await;
    // Somebody who is still there may have made it run already; or learns that the server is gone.
    let rest = reading.map(|mut reading| tokio::spawn(async move { reading.rest().await }));
    if let (Some(rest), Victim::Upstream) = (rest, victim) {
        drop(tokio::time::timeout(Duration::from_secs(60), rest).await.unwrap());
    }
    let client = match (victim, gateway, rung) {
        // A session over HTTP is known after a restart of the gateway; one of a program ended with it, as every session does with the server.
        (Victim::Gateway, "web", _) => Client { http: world.http.clone(), ..client },
        (_, _, _) => rung.client(&world.http, gateway).await,
    };
    let said = rung.again(&client, &how, sign.as_ref()).await;
    assert!(said.starts_with(&format!("{done} {how}")), "{how}: {said}");
    assert_eq!(world.ran(gateway), [how.as_str()], "once");
    let open = world.http.get("/api/v1/holds").await.body["holds"].clone();
    assert_eq!(open, json!([]), "{how}: nobody was asked twice");
}

/// The server is a program; clients of both generations.
#[tokio::test(flavor = "multi_thread")]
async fn an_approval_survives_whatever_dies_in_front_of_a_program() {
    let mut world = World::new();
    for rung in [Rung::Task, Rung::ComeBack, Rung::Address, Rung::Form, Rung::Progress, Rung::Answer] {
        for victim in VICTIMS {
            survives(&mut world, "local", rung, victim).await;
        }
    }
}

/// The server is reached over HTTP, without sessions.
#[tokio::test(flavor = "multi_thread")]
async fn an_approval_survives_whatever_dies_in_front_of_a_server_without_sessions() {
    let mut world = World::new();
    for rung in [Rung::Task, Rung::ComeBack] {
        for victim in VICTIMS {
            survives(&mut world, NEWEST, rung, victim).await;
        }
    }
}

/// The gateway is killed while a call runs that somebody approved: afterwards the gate says that it was started, and that its outcome is
/// awaited for an hour from then on.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_under_way_when_the_gateway_died_is_awaited_for_an_hour() {
    let mut world = World::new();
    let client = Rung::Answer.client(&world.http, "web").await;
    let before = now_ms() / 1000;
    let waits = client.calls(1, "write", r#"{"how":"hang"}"#);
    let held = hold(&world.http).await;
    resolve(&world.http, &held, json!({"resolution": "approve"})).await;
    until("it runs", || ran(&world.folder) == ["hang"]);
    world.kill_gateway();
    drop(waits.await);
    let latest = now_ms() / 1000;
    let gate = world.http.get(&format!("/api/v1/gates/{}", text(&held["run"]))).await.body;
    assert_eq!((&gate["state"], &gate["attempt"]), (&json!("started"), &json!(1)), "{gate}");
    // Within a day, which is all that an hour needs.
    let clock: Vec<i64> =
        text(&gate["start_by"])[11..19].split(':').map(|part| part.parse().unwrap()).collect();
    let start_by = clock[0] * 3600 + clock[1] * 60 + clock[2];
    let after = |begin: i64| (start_by + 86_400 - begin % 86_400) % 86_400;
    assert!(after(before) >= 3600 && after(latest) <= 3600, "{gate}");
    assert_eq!(ran(&world.folder), ["hang"]);
}

/// The server is reached over HTTP, with sessions.
#[tokio::test(flavor = "multi_thread")]
async fn an_approval_survives_whatever_dies_in_front_of_a_server_over_http() {
    let mut world = World::new();
    for rung in [Rung::Address, Rung::Form, Rung::Progress, Rung::Answer] {
        for victim in VICTIMS {
            survives(&mut world, "web", rung, victim).await;
        }
    }
}

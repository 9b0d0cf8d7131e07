//! Version 0.3 over both bindings: what its clients send, what they get, every error, and cards that both versions read.
//!
//! The official clients of 0.3 are in `clients.rs`.

use serde_json::{Value, json};

use crate::a2a::server::{Answer, Server, authorization, configured, demo, demo_with, unique};
use crate::a2a::streams::{Event, Reader};
use standfast_testkit::receiver::{Got, Mood, Receiver};

/// An agent that asks before it writes a file, and whose card older clients can read. It lives in a database.
pub(crate) fn older(folder: &std::path::Path) -> Server {
    configured(folder, &older_config(folder))
}

/// Writes its script; the configuration of `older`.
pub(crate) fn older_config(folder: &std::path::Path) -> String {
    let script =
        "replies:\n- calls: [{tool: write_file, arguments: {path: a.txt, content: x}}]\n- text: written\n";
    std::fs::write(folder.join("ops.yaml"), script).unwrap();
    "server: {webhooks: {allowed_hosts: ['127.0.0.1']}}\n\
     llms: {s: {type: scripted, script: ops.yaml}}\n\
     session_stores: {main: {backend: sql, sql: {driver: sqlite, database: ./sessions.db}}}\n\
     agents:\n  ops: {llm: s, tools: [write_file], session_store: main, task: {}, a2a: {v03_card: true}}\n  \
     new: {llm: s, description: Writes things down., tools: [write_file], session_store: main, task: {}}\n"
        .to_owned()
}

/// The two bindings of 0.3, behind one face.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Binding {
    Rpc,
    Rest,
}

impl Binding {
    fn parts(self, text: &str, data: Option<Value>) -> Value {
        let data = data.map(|data| match self {
            Binding::Rpc => json!({"kind": "data", "data": data}),
            Binding::Rest => json!({"data": {"data": data}}),
        });
        let text = match self {
            Binding::Rpc => json!({"kind": "text", "text": text}),
            Binding::Rest => json!({"text": text}),
        };
        Value::Array(std::iter::once(text).chain(data).collect())
    }

    fn message(self, task: Option<&Value>, parts: Value) -> Value {
        let (role, name) = match self {
            Binding::Rpc => ("user", "parts"),
            Binding::Rest => ("ROLE_USER", "content"),
        };
        let mut message = json!({"messageId": unique(), "role": role, name: parts});
        if let Some(task) = task {
            message["taskId"] = task["id"].clone();
            message["contextId"] = task["contextId"].clone();
        }
        message
    }

    /// Sends a message; the task that it came to, or the error.
    async fn send(self, server: &Server, message: Value, configuration: Value) -> Result<Value, Value> {
        let body = json!({"message": message, "configuration": configuration});
        let answer = match self {
            Binding::Rpc => server.rpc("ops", "message/send", body).await.body,
            Binding::Rest => server.post("/v1/agents/ops/v1/message:send", &body).await.body,
        };
        match self {
            Binding::Rpc if answer.get("error").is_some() => Err(answer["error"].clone()),
            Binding::Rpc => Ok(answer["result"].clone()),
            Binding::Rest if answer.get("code").is_some() => Err(answer),
            Binding::Rest => Ok(answer["task"].clone()),
        }
    }

    async fn on_task(self, server: &Server, verb: &str, id: &str) -> Value {
        match self {
            Binding::Rpc => {
                server.rpc("ops", &format!("tasks/{verb}"), json!({"id": id})).await.body["result"].clone()
            }
            Binding::Rest if verb == "get" => server.get(&format!("/v1/agents/ops/v1/tasks/{id}")).await.body,
            Binding::Rest => {
                server.ask("POST", &format!("/v1/agents/ops/v1/tasks/{id}:{verb}"), &[], b"").await.body
            }
        }
    }

    /// The word for a state.
    fn word(self, word: &str) -> Value {
        match (self, word) {
            (Binding::Rpc, word) => json!(word),
            (Binding::Rest, "canceled") => json!("TASK_STATE_CANCELLED"),
            (Binding::Rest, word) => json!(format!("TASK_STATE_{}", word.to_uppercase().replace('-', "_"))),
        }
    }

    async fn stream(self, server: &Server, message: Value) -> Vec<Event> {
        let body = json!({"message": message});
        let (path, body) = match self {
            Binding::Rpc => (
                "/v1/agents/ops",
                json!({"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": body}),
            ),
            Binding::Rest => ("/v1/agents/ops/v1/message:stream", body),
        };
        Reader::open(server, "POST", path, &[("a2a-version", "")], Some(&body)).await.rest().await
    }

    async fn subscribe(self, server: &Server, id: &str) -> Reader {
        let none = [("a2a-version", "")];
        match self {
            Binding::Rpc => {
                let body =
                    json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/resubscribe", "params": {"id": id}});
                Reader::open(server, "POST", "/v1/agents/ops", &none, Some(&body)).await
            }
            Binding::Rest => {
                let path = format!("/v1/agents/ops/v1/tasks/{id}:subscribe");
                Reader::open(server, "GET", &path, &none, None).await
            }
        }
    }

    /// What an event tells, in short.
    fn told(self, event: &Event) -> String {
        let word = |status: &Value| {
            let word = status["state"].as_str().unwrap().trim_start_matches("TASK_STATE_");
            word.to_lowercase().replace('_', "-")
        };
        let (kind, body) = match self {
            Binding::Rpc => {
                let body = &event.data["result"];
                (body["kind"].as_str().unwrap().to_owned(), body.clone())
            }
            Binding::Rest => {
                let (kind, body) = event.data.as_object().unwrap().iter().next().unwrap();
                (kind.clone(), body.clone())
            }
        };
        match kind.as_str() {
            "task" => format!("task {}", word(&body["status"])),
            "status-update" | "statusUpdate" => {
                format!("{}{}", word(&body["status"]), if body["final"] == true { " final" } else { "" })
            }
            "artifact-update" | "artifactUpdate" => "artifact".to_owned(),
            other => panic!("{other}: {body}"),
        }
    }
}

const BOTH: [Binding; 2] = [Binding::Rpc, Binding::Rest];

/// S3-21 … S3-24, C2: sent, approved, denied, modified and cancelled in the words of 0.3, without any header.
#[tokio::test]
async fn clients_of_0_3_do_it_all() {
    for binding in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let server = older(folder.path());
        let say = async |task: Option<&Value>, text: &str, data: Option<Value>| {
            let message = binding.message(task, binding.parts(text, data));
            binding.send(&server, message, json!({"blocking": true})).await.unwrap()
        };
        let task = say(None, "go", None).await;
        assert_eq!(task["status"]["state"], binding.word("input-required"), "{task}");
        assert_eq!(task.get("kind").is_some(), binding == Binding::Rpc);
        let said = &task["status"]["message"];
        let asked = match binding {
            Binding::Rpc => said["parts"][1]["data"].clone(),
            Binding::Rest => said["content"][1]["data"]["data"].clone(),
        };
        assert_eq!(
            (&asked["interaction_type"], &asked["tool_name"]),
            (&json!("tool_approval"), &json!("write_file"))
        );
        let still = say(Some(&task), "hm", None).await;
        assert_eq!(still["status"]["state"], binding.word("input-required"));

        let done = say(Some(&task), "approve", Some(json!({"decision": "approve"}))).await;
        assert_eq!(done["status"]["state"], binding.word("completed"), "{done}");
        assert_eq!(done["artifacts"][0]["parts"][0]["text"], "written");
        assert!(folder.path().join("workspace/a.txt").exists());
        let roles: Vec<&Value> = done["history"].as_array().unwrap().iter().map(|one| &one["role"]).collect();
        let (user, agent) = match binding {
            Binding::Rpc => ("user", "agent"),
            Binding::Rest => ("ROLE_USER", "ROLE_AGENT"),
        };
        assert_eq!(roles, [user, user, agent]);

        let task = say(None, "go", None).await;
        assert_eq!(say(Some(&task), "deny", None).await["status"]["state"], binding.word("completed"));
        let task = say(None, "go", None).await;
        let modified =
            json!({"decision": "modify", "modified_input": r#"{"path": "b.txt", "content": "y"}"#});
        say(Some(&task), "modify", Some(modified)).await;
        assert!(folder.path().join("workspace/b.txt").exists());

        let task = say(None, "go", None).await;
        let id = task["id"].as_str().unwrap();
        assert_eq!(binding.on_task(&server, "get", id).await["status"], task["status"]);
        let cancelled = binding.on_task(&server, "cancel", id).await;
        assert_eq!(cancelled["status"]["state"], binding.word("canceled"));
        let at_once = binding.message(None, binding.parts("go", None));
        let at_once =
            binding.send(&server, at_once, json!({"blocking": false, "historyLength": 0})).await.unwrap();
        assert!(at_once["history"].is_array(), "0 means all of it: {at_once}");
    }
}

/// S3-25: streams in the words of 0.3. The last event says so; a subscription stays open across questions, and to a task
/// that has ended it shows the task.
#[tokio::test]
async fn streams_of_0_3() {
    for binding in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let server = older(folder.path());
        let events = binding.stream(&server, binding.message(None, binding.parts("go", None))).await;
        let told: Vec<String> = events.iter().map(|event| binding.told(event)).collect();
        assert_eq!(told, ["task working", "input-required final"]);
        let body = match binding {
            Binding::Rpc => &events[0].data["result"],
            Binding::Rest => &events[0].data["task"],
        };
        let (task, id) = (body.clone(), body["id"].as_str().unwrap());
        let mut reader = binding.subscribe(&server, id).await;
        assert_eq!(binding.told(&reader.next().await.unwrap()), "task input-required");
        let approve = binding.parts("approve", Some(json!({"decision": "approve"})));
        binding
            .send(&server, binding.message(Some(&task), approve), json!({"blocking": true}))
            .await
            .unwrap();
        let rest: Vec<String> = reader.rest().await.iter().map(|event| binding.told(event)).collect();
        assert_eq!(rest, ["working", "artifact", "completed final"]);
        let over = binding.subscribe(&server, id).await.rest().await;
        assert_eq!(over.iter().map(|event| binding.told(event)).collect::<Vec<_>>(), ["task completed"]);
    }
}

/// Every error that a client of 0.3 can cause, in both bindings; C34 for unknown and finished tasks.
#[tokio::test]
async fn errors_of_0_3() {
    let folder = tempfile::tempdir().unwrap();
    let server = older(folder.path());
    let rpc = Binding::Rpc;
    let done = rpc.send(&server, rpc.message(None, rpc.parts("go", None)), json!({})).await.unwrap();
    let deny = rpc.message(Some(&done), rpc.parts("deny", None));
    let done = rpc.send(&server, deny.clone(), json!({})).await.unwrap();
    let id = done["id"].as_str().unwrap();
    for binding in BOTH {
        let send = async |message: Value| {
            binding.send(&server, message, json!({})).await.unwrap_err()["code"].clone()
        };
        let mut unknown = binding.message(Some(&done), binding.parts("x", None));
        assert_eq!(send(unknown.clone()).await, -32004, "over: {binding:?}");
        unknown["taskId"] = json!("run_x");
        assert_eq!(send(unknown).await, -32001);
        let mut agent = binding.message(None, binding.parts("x", None));
        agent["role"] = json!("agent");
        assert_eq!(send(agent).await, -32602);
        let mut nameless = binding.message(None, binding.parts("x", None));
        nameless["messageId"] = json!("");
        assert_eq!(send(nameless).await, -32602);
    }
    for (method, params, code) in [
        ("tasks/get", json!({"id": "run_x"}), -32001),
        ("tasks/get", json!({"id": 1}), -32602),
        ("tasks/get", json!({"id": id, "historyLength": -1}), -32602),
        ("tasks/cancel", json!({"id": id}), -32002),
        ("tasks/list", json!({}), -32601),
        ("tasks/pushNotificationConfig/set", json!({"taskId": id}), -32602),
        ("tasks/pushNotificationConfig/get", json!({"id": id}), -32001),
        ("tasks/pushNotificationConfig/list", json!({"id": "run_x"}), -32001),
        ("no/method", json!({}), -32601),
    ] {
        let answer = server.rpc("ops", method, params).await;
        assert_eq!(answer.body["error"]["code"], code, "{method}: {answer:?}");
    }
    let json_type = ("content-type", "application/json");
    for (method, path, headers, body, status, code) in [
        ("GET", "tasks/run_x".to_owned(), vec![], "", 404, -32001),
        ("GET", format!("tasks/{id}?historyLength=x"), vec![], "", 400, -32602),
        ("POST", format!("tasks/{id}:cancel"), vec![], "", 409, -32002),
        ("GET", "tasks".to_owned(), vec![], "", 404, -32601),
        ("POST", "card".to_owned(), vec![], "", 404, -32601),
        ("POST", "message:send".to_owned(), vec![json_type], "{", 400, -32700),
        ("POST", "message:send".to_owned(), vec![json_type], "{}", 400, -32602),
        ("POST", "message:send".to_owned(), vec![("content-type", "text/plain")], "{}", 415, -32005),
        ("POST", format!("tasks/{id}/pushNotificationConfigs"), vec![json_type], "{}", 400, -32602),
    ] {
        let answer =
            server.ask(method, &format!("/v1/agents/ops/v1/{path}"), &headers, body.as_bytes()).await;
        let found = (answer.status, answer.body["code"].as_i64());
        assert_eq!(found, (status, Some(code)), "{method} {path}: {answer:?}");
        assert!(answer.body["message"].is_string() && answer.body["data"].is_array());
    }
    let body = json!({"jsonrpc": "2.0", "id": 3, "method": "tasks/resubscribe", "params": {"id": "run_x"}});
    let events = Reader::open(&server, "POST", "/v1/agents/ops", &[("a2a-version", "")], Some(&body)).await;
    let events = events.rest().await;
    assert_eq!((events[0].data["id"].as_u64(), &events[0].data["error"]["code"]), (Some(3), &json!(-32001)));
}

/// Which version a request is in: the header says it, then the address, then the method.
#[tokio::test]
async fn the_header_decides_before_the_method() {
    let folder = tempfile::tempdir().unwrap();
    let server = older(folder.path());
    let asks = async |version: &str, method: &str| {
        let body =
            json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": "run_x"}}).to_string();
        let headers = [("a2a-version", version)];
        let headers = if version.is_empty() { &headers[..0] } else { &headers[..] };
        server.ask("POST", "/v1/agents/ops", headers, body.as_bytes()).await.body["error"]["code"].clone()
    };
    assert_eq!(asks("", "tasks/get").await, -32001);
    assert_eq!(asks("0.3", "tasks/get").await, -32001);
    assert_eq!(asks("0.3.0", "tasks/get").await, -32001);
    assert_eq!(asks("1.0", "tasks/get").await, -32601, "1.0 has no such method");
    assert_eq!(asks("0.3", "GetTask").await, -32601, "0.3 has no such method");
    assert_eq!(asks("", "GetTask").await, -32001);
    assert_eq!(asks("0.2", "tasks/get").await, -32009);
    let uri = "https://a2a-rust.com/extensions/idempotency/v1";
    let headers = [("x-a2a-extensions", uri)];
    let answer = server.ask("GET", "/v1/agents/ops/v1/tasks/run_x", &headers, b"").await;
    assert_eq!(answer.headers["x-a2a-extensions"], uri, "what is spoken is said back");
}

/// The card of 0.3 is there where the configuration says so, and only for those who do not say that they speak 1.0.
#[tokio::test]
async fn cards_for_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let server = older(folder.path());
    let path = |agent: &str| format!("/v1/agents/{agent}/.well-known/agent-card.json");
    let card = server.get(&path("ops")).await;
    let url = format!("{}/v1/agents/ops", server.program.base);
    assert_eq!(card.body["url"], json!(url));
    assert_eq!(
        (&card.body["protocolVersion"], &card.body["preferredTransport"]),
        (&json!("0.3.0"), &json!("JSONRPC"))
    );
    let interface = |transport: &str| json!({"url": url, "transport": transport});
    assert_eq!(card.body["additionalInterfaces"], json!([interface("JSONRPC"), interface("HTTP+JSON")]));
    let versions = |card: &Answer| -> Vec<String> {
        let interfaces = card.body["supportedInterfaces"].as_array().unwrap();
        interfaces.iter().map(|one| one["protocolVersion"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(versions(&card), ["1.0", "1.0", "1.0", "0.3", "0.3"]);
    assert!(card.headers["vary"].to_str().unwrap().contains("a2a-version"));
    let newer = server.ask("GET", &path("ops"), &[("a2a-version", "1.0")], b"").await;
    assert!(newer.body.get("url").is_none(), "{newer:?}");
    let plain = server.get(&path("new")).await;
    assert!(plain.body.get("url").is_none(), "off unless the configuration says otherwise");
    assert_eq!(versions(&plain), ["1.0", "1.0", "1.0"]);
    assert_eq!(plain.body["description"], "Writes things down.", "as the configuration says");
    assert_eq!(plain.body["skills"][0]["description"], "Writes things down.");
    let refused = server.rpc("ops", "agent/getAuthenticatedExtendedCard", json!(null)).await;
    assert_eq!(refused.body["error"]["code"], -32004, "nobody is authenticated here: {refused:?}");
    assert_eq!(card.body["supportsAuthenticatedExtendedCard"], false);
    drop(server);
    let keyed = older_config(folder.path()).replace("server: {", "server: {auth: {api_keys: true}, ");
    let server = configured(folder.path(), &keyed);
    let key = authorization(folder.path());
    let known = [("authorization", key.as_str())];
    let public = server.get(&path("ops")).await.body;
    assert_eq!(public["supportsAuthenticatedExtendedCard"], true, "{public}");
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "agent/getAuthenticatedExtendedCard"}).to_string();
    for card in [
        server.ask("GET", "/v1/agents/ops/v1/card", &known, b"").await.body,
        server.ask("POST", "/v1/agents/ops", &known, body.as_bytes()).await.body["result"].clone(),
    ] {
        assert_eq!(card["url"], public["url"], "{card}");
        let skills = card["skills"].as_array().unwrap();
        assert!(skills.iter().any(|skill| skill["name"] == "write_file"), "{skills:?}");
    }
}

/// At the root is the default agent, in 0.3 too; whoever is not known gets the error in its words.
#[tokio::test]
async fn the_root_and_the_door_speak_0_3() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let message = Binding::Rest.message(None, Binding::Rest.parts("go", None));
    let sent = server
        .post("/v1/message:send", &json!({"message": message, "configuration": {"blocking": true}}))
        .await;
    assert_eq!(sent.body["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{sent:?}");
    assert_eq!(server.get("/v1/card").await.body["code"], -32004, "it is for those who are known");
    drop(server);
    let data = tempfile::tempdir().unwrap();
    let server = demo_with(data.path(), &["--auth", "keys"]);
    let unknown = server.get("/v1/agents/ops/v1/tasks/run_x").await;
    assert_eq!((unknown.status, unknown.body["code"].as_i64()), (401, Some(-31401)), "{unknown:?}");
}

/// Receivers that were registered by 0.3 are sent what 0.3 sends: the task, as over JSON-RPC, and no words of 1.0.
#[tokio::test]
async fn receivers_of_0_3_are_told_in_its_words() {
    for binding in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let server = older(folder.path());
        let receiver = Receiver::new(Mood::Takes).await;
        let config = json!({"url": receiver.url(), "token": "known", "authentication": {"schemes": ["Bearer"], "credentials": "c"}});
        let name = if binding == Binding::Rpc { "pushNotificationConfig" } else { "pushNotification" };
        let message = binding.message(None, binding.parts("go", None));
        let configuration = json!({"blocking": true, name: config});
        let task = binding.send(&server, message, configuration).await.unwrap();
        let approve = binding.parts("approve", Some(json!({"decision": "approve"})));
        binding
            .send(&server, binding.message(Some(&task), approve), json!({"blocking": true}))
            .await
            .unwrap();
        let word = |got: &Got| got.body()["status"]["state"].as_str().unwrap_or_default().to_owned();
        let all =
            receiver.until("the end", |all| all.last().is_some_and(|got| word(got) == "completed")).await;
        let words: Vec<String> = all.iter().map(word).collect();
        assert_eq!(words, ["working", "input-required", "working", "completed"], "{binding:?}");
        for got in &all {
            assert_eq!((&got.body()["kind"], &got.body()["id"]), (&json!("task"), &task["id"]));
            assert_eq!(got.headers["content-type"], "application/json");
            assert_eq!(got.headers["x-a2a-notification-token"], "known");
            assert_eq!(got.headers["authorization"], "Bearer c");
        }
        assert_eq!(all[3].body()["artifacts"][0]["parts"][0], json!({"kind": "text", "text": "written"}));
    }
}

/// The four calls about receivers, in both bindings; ids may be the client's.
#[tokio::test]
async fn receivers_are_set_listed_and_deleted_by_0_3() {
    let folder = tempfile::tempdir().unwrap();
    let server = older(folder.path());
    let rpc = Binding::Rpc;
    let task = rpc.send(&server, rpc.message(None, rpc.parts("go", None)), json!({})).await.unwrap();
    let id = task["id"].as_str().unwrap();
    let asks = async |verb: &str, params: Value| {
        server.rpc("ops", &format!("tasks/pushNotificationConfig/{verb}"), params).await.body["result"]
            .clone()
    };
    let config =
        json!({"id": "mine", "url": "http://127.0.0.1:9/a", "authentication": {"schemes": ["Bearer"]}});
    let set = asks("set", json!({"taskId": id, "pushNotificationConfig": config})).await;
    assert_eq!(set, json!({"taskId": id, "pushNotificationConfig": config}));
    assert_eq!(asks("get", json!({"id": id, "pushNotificationConfigId": "mine"})).await, set);
    assert_eq!(asks("get", json!({"id": id})).await, set, "without its id, any");
    assert_eq!(asks("list", json!({"id": id})).await, json!([set]));

    let path = format!("/v1/agents/ops/v1/tasks/{id}/pushNotificationConfigs");
    let named =
        json!({"name": format!("tasks/{id}/pushNotificationConfigs/mine"), "pushNotificationConfig": config});
    assert_eq!(server.get(&format!("{path}/mine")).await.body, named);
    assert_eq!(server.get(&path).await.body, json!({"configs": [named]}));
    let other = json!({"url": "http://127.0.0.1:9/b"});
    for body in [
        json!({"pushNotificationConfig": {"id": "other", "url": "http://127.0.0.1:9/b"}}),
        json!({"parent": format!("tasks/{id}"), "configId": "other", "config": {"name": "x", "pushNotificationConfig": other}}),
    ] {
        let made = server.post(&path, &body).await;
        assert_eq!(
            (made.status, &made.body["pushNotificationConfig"]["id"]),
            (200, &json!("other")),
            "{made:?}"
        );
    }
    assert_eq!(server.ask("DELETE", &format!("{path}/other"), &[], b"").await.status, 200);
    assert_eq!(asks("delete", json!({"id": id, "pushNotificationConfigId": "mine"})).await, Value::Null);
    assert_eq!(asks("list", json!({"id": id})).await, json!([]));
}

/// S3-1, S3-24: what 0.3 says differently: a task that is not there is told by the first words, and cancelling twice is a mistake; in 1.0
/// the second changes nothing.
#[tokio::test]
async fn what_0_3_says_of_tasks_that_are_gone_or_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let server = older(folder.path());
    for (method, params) in [
        ("tasks/get", json!({"id": "run_x"})),
        ("tasks/cancel", json!({"id": "run_x"})),
        ("tasks/pushNotificationConfig/list", json!({"id": "run_x"})),
    ] {
        let answer = server.rpc("ops", method, params).await;
        let said = answer.body["error"]["message"].as_str().unwrap();
        assert!(said.starts_with("Task not found:"), "{method}: {said}");
    }
    let rest = server.get("/v1/agents/ops/v1/tasks/run_x").await;
    assert!(rest.body["message"].as_str().unwrap().starts_with("Task not found:"), "{rest:?}");
    let rpc = Binding::Rpc;
    for over_rest in [false, true] {
        let task = rpc.send(&server, rpc.message(None, rpc.parts("go", None)), json!({})).await.unwrap();
        let id = task["id"].as_str().unwrap();
        let cancel = async || {
            if over_rest {
                let answer =
                    server.ask("POST", &format!("/v1/agents/ops/v1/tasks/{id}:cancel"), &[], b"").await;
                answer.body["code"].clone()
            } else {
                server.rpc("ops", "tasks/cancel", json!({"id": id})).await.body["error"]["code"].clone()
            }
        };
        assert_eq!(cancel().await, Value::Null, "the first cancels");
        assert_eq!(cancel().await, -32002, "the second finds nothing to cancel");
        let newer = server.rpc("ops", "CancelTask", json!({"id": id})).await;
        assert_eq!(newer.body["result"]["status"]["state"], "TASK_STATE_CANCELED", "{newer:?}");
    }
}

/// S3-1: whoever is not known is told by HTTP, as clients of 0.3 expect it: 401, with how to say who you are.
#[tokio::test]
async fn callers_of_0_3_who_are_not_known_get_401() {
    let data = tempfile::tempdir().unwrap();
    let server = demo_with(data.path(), &["--auth", "keys"]);
    for method in
        ["message/send", "message/stream", "tasks/resubscribe", "agent/getAuthenticatedExtendedCard"]
    {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": {"id": "run_x"}});
        let answer = server.post("/v1/agents/ops", &body).await;
        assert_eq!(answer.status, 401, "{method}: {answer:?}");
        assert_eq!(answer.headers["www-authenticate"], "Bearer", "{method}");
        assert_eq!(answer.body["error"]["code"], -31401, "{method}: {answer:?}");
    }
}

/// A request of 0.3 over gRPC by hand: status, text, and the body behind its five bytes of frame.
async fn over_grpc(server: &Server, method: &str, key: Option<&str>, message: &[u8]) -> (String, String) {
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message);
    let url = format!("{}/a2a.v1.A2AService/{method}", server.program.base);
    let mut request = client.post(url).header("content-type", "application/grpc").body(body);
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 200, "{answer:?}");
    let header = |name: &str| answer.headers().get(name).map(|it| it.to_str().unwrap().to_owned());
    (header("grpc-status").unwrap_or_default(), header("grpc-message").unwrap_or_default())
}

/// A message whose first member is this text: `name` of most requests.
fn named(text: &str) -> Vec<u8> {
    let mut bytes = vec![0x0a, u8::try_from(text.len()).unwrap()];
    bytes.extend(text.as_bytes());
    bytes
}

/// S3-1, C3, F24, T15: 0.3 over gRPC refuses what the other bindings refuse: strangers, keys without the scope, names that are none, tasks
/// that are not there (in the words by which clients of 0.3 know them), messages that are none, methods that it does not have; and
/// where there is no default agent it says so.
#[tokio::test]
async fn grpc_of_0_3_refuses_what_the_others_refuse() {
    let data = tempfile::tempdir().unwrap();
    let made = standfast_testkit::standfast()
        .args(["keys", "create", "--user", "somebody", "--scope", "runs:read", "--data"])
        .arg(data.path())
        .output()
        .unwrap();
    let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let server = demo_with(data.path(), &["--auth", "keys"]);
    let known = Some(key.as_str());
    let task = named("tasks/run_00000000000000000000000000");
    // A message `m` of a user, whose one part is the text `go`.
    let go = b"\x0a\x0b\x0a\x01m\x20\x01\x2a\x04\x0a\x02go".to_vec();
    for (method, key, message, status) in [
        ("GetTask", None, task.clone(), "16"),
        ("SendMessage", None, Vec::new(), "16"),
        ("GetTask", known, task.clone(), "5"),
        ("CancelTask", known, task.clone(), "5"),
        ("TaskSubscription", known, task.clone(), "5"),
        ("GetTask", known, named("run_00000000000000000000000000"), "3"),
        ("GetTaskPushNotificationConfig", known, named("tasks/run_x"), "3"),
        ("SendMessage", known, Vec::new(), "3"),
        ("SendMessage", known, go, "7"),
        ("Nothing", known, Vec::new(), "12"),
    ] {
        let answer = over_grpc(&server, method, key, &message).await;
        assert_eq!(answer.0, status, "{method} {key:?}: {answer:?}");
    }
    let (_, said) = over_grpc(&server, "GetTask", known, &task).await;
    assert!(said.starts_with("Task not found:") || said.starts_with("Task%20not%20found:"), "{said}");
    let broken = over_grpc(&server, "SendMessage", known, &[0xff, 0xff, 0xff]).await;
    assert_ne!(broken.0, "0", "{broken:?}");

    let folder = tempfile::tempdir().unwrap();
    let server = older(folder.path());
    let (status, said) = over_grpc(&server, "GetTask", None, &task).await;
    assert!(
        status == "12" && said.contains("default"),
        "two agents, and none is the default: {status} {said}"
    );
}

//! Traces of the real program, read by a collector over the official packages of Python: a run is one trace over its pauses, its
//! crash and its nodes; the decision is on the span that goes on; others are told the trace and name theirs; nothing that people,
//! models or tools wrote is in it; and nobody waits for a collector.
//!
//! `collector.py` is the collector, over HTTP and gRPC.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod collector;
mod outgoing;
mod told;

use std::fs::File;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use standfast_store::conformance::cluster::shared;
use standfast_testkit::receiver::{Got, Mood, Receiver};
use standfast_testkit::{Http, Process, folder, serve_command, standfast, start, text, until};

use collector::{Collector, Spans};

/// One call that waits, then words; all of it must stay out of spans.
const SCRIPT: &str = "replies:\n- text: canary-thought\n  calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"echo canary-argument\"}'\n- text: canary-words\n";

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const DECIDER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn config(store: &str, server: &str) -> String {
    format!(
        "tools: {{execute_command: {{allowed_commands: [echo]}}}}
session_stores: {{main: {{backend: sql, sql: {store}}}}}
agents: {{ops: {{llm: script, session_store: main, tools: [execute_command], task: {{input_timeout: 2h}}}}}}
server: {{nodes: {{take_over_after: 3s}}{server}}}
"
    )
}

/// The same on every node.
const KEY: &str = "a key of thirty-two letters or more";

const FILE: &str = "{driver: sqlite, database: ./kept.db}";

/// Starts a run in somebody's trace, and waits until it is held; the run and its hold.
async fn held(server: &Process, traceparent: &str) -> (String, String) {
    let body = json!({"input": "canary-prompt", "wait": "settled"}).to_string();
    let http = Http::new(&server.base);
    let answer = http.send("POST", "/api/v1/agents/ops/runs", &[("traceparent", traceparent)], &body).await;
    assert_eq!(answer.body["status"], "held", "{}", answer.text);
    (text(&answer.body["id"]).to_owned(), text(&answer.body["holds"][0]["id"]).to_owned())
}

async fn approve(server: &Process, hold: &str, traceparent: &str) {
    let body = json!({"resolution": "approve", "wait": "settled"}).to_string();
    let http = Http::new(&server.base);
    let path = format!("/api/v1/holds/{hold}/resolve");
    let answer = http.send("POST", &path, &[("traceparent", traceparent)], &body).await;
    assert!((200..300).contains(&answer.status), "{}", answer.text);
}

fn stop(mut server: Process) {
    let id = server.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert!(server.child.wait().unwrap().success());
}

/// The two drives of a run that was held once: what the first paused with, the second goes on from.
fn assert_one_trace(spans: &Spans, run: &str, hold: &str) {
    let trace = &CALLER[3..35];
    let request = spans.one(|span| span["name"] == "POST /api/v1/agents/{id}/runs");
    assert_eq!((&request["trace"], &request["parent"]), (&trace.into(), &CALLER[36..52].into()));
    assert_eq!(request["kind"], "SPAN_KIND_SERVER");
    assert_eq!(request["attributes"]["standfast.channel"], "api");
    assert!(request["attributes"]["http.response.status_code"].as_i64().unwrap() < 300, "{request}");
    let drives = spans.all(|span| span["name"] == "invoke_agent ops" && span["trace"] == trace);
    let [first, second] = drives.as_slice() else { panic!("not two drives: {drives:#?}") };
    for drive in [first, second] {
        assert_eq!(drive["parent"], request["span"], "below the request that started the run");
        assert_eq!(drive["attributes"]["standfast.run.id"], run);
        assert_eq!(drive["attributes"]["gen_ai.operation.name"], "invoke_agent");
    }
    assert_eq!(first["attributes"]["standfast.run.state"], "held");
    assert_eq!(first["events"][0]["name"], "hold.opened");
    assert_eq!(first["events"][0]["attributes"]["standfast.hold.id"], hold);
    assert_eq!(first["events"][0]["attributes"]["gen_ai.tool.name"], "execute_command");

    // The decision is on the span that goes on, with links to the hold and to the request that decided it.
    let decision = json!({"outcome": "approved", "by": "person:local", "channel": "api"});
    for (name, wanted) in decision.as_object().unwrap() {
        assert_eq!(second["attributes"][format!("standfast.decision.{name}")], *wanted, "{second:#}");
    }
    let waited = spans.one(|span| span["name"] == "hold approval" && span["trace"] == trace);
    assert_eq!(waited["attributes"]["standfast.hold.id"], hold);
    assert_eq!(waited["attributes"]["standfast.decision.outcome"], "approved");
    let decided = spans.one(|span| span["name"] == "POST /api/v1/holds/{id}/resolve");
    assert_eq!((&decided["trace"], &decided["parent"]), (&DECIDER[3..35].into(), &DECIDER[36..52].into()));
    let links: Vec<(&Value, &Value)> =
        second["links"].as_array().unwrap().iter().map(|link| (&link["trace"], &link["span"])).collect();
    assert_eq!(links, [(&waited["trace"], &waited["span"]), (&decided["trace"], &decided["span"])]);
    assert_eq!(second["attributes"]["standfast.run.state"], "completed");

    // Models and tools are below the drive that asked them, by the conventions for generative models.
    let chats =
        spans.all(|span| span["name"].as_str().unwrap().starts_with("chat ") && span["trace"] == trace);
    let below: Vec<&Value> = chats.iter().map(|chat| &chat["parent"]).collect();
    assert_eq!(below, [&first["span"], &second["span"]]);
    assert_eq!(chats[0]["attributes"]["gen_ai.provider.name"], "scripted");
    assert_eq!(chats[0]["attributes"]["gen_ai.usage.input_tokens"], 100);
    assert_eq!(chats[0]["attributes"]["gen_ai.response.finish_reasons"], json!(["tool_calls"]));
    assert_eq!(chats[1]["attributes"]["gen_ai.response.finish_reasons"], json!(["stop"]));
    let tool = spans.one(|span| span["name"] == "execute_tool execute_command");
    assert_eq!((&tool["parent"], &tool["trace"]), (&second["span"], &trace.into()));
    assert_eq!(tool["attributes"]["gen_ai.tool.call.id"], "call_1");
    assert_eq!(tool["status"], "STATUS_CODE_UNSET");
}

/// A run is one trace over a pause in which its server was killed, over HTTP: the second drive is another process. Nothing that
/// was said is in it, and the key of the collector is in its header alone.
#[tokio::test]
async fn a_run_is_one_trace_over_its_pause_and_a_crash() {
    let collector = Collector::start("http");
    let traces = format!(
        ", traces: {{endpoint: 'http://127.0.0.1:{}', headers: {{x-collector-key: '${{COLLECTOR_KEY}}'}}, resource: \
         {{deployment.environment.name: test}}}}",
        collector.port
    );
    let folder = folder(&[("script", SCRIPT)], &config(FILE, &traces));
    let serve = || {
        let mut command = serve_command(folder.path());
        command.env("COLLECTOR_KEY", "canary-key").env("OTEL_SERVICE_NAME", "approvals");
        start(command.env("RUST_LOG", "info").stderr(File::create(folder.path().join("log")).unwrap()))
    };
    let server = serve();
    let (run, hold) = held(&server, CALLER).await;
    collector.until("the pause is traced", |spans| spans.has("invoke_agent ops"));
    drop(server);
    let server = serve();
    approve(&server, &hold, DECIDER).await;
    server.run_once(&run, "completed");
    stop(server);
    let spans = collector.spans();
    assert_one_trace(&spans, &run, &hold);
    let any = &spans.0[0];
    assert_eq!(any["resource"]["service.name"], "approvals");
    assert_eq!(any["resource"]["deployment.environment.name"], "test");
    assert_eq!(any["key"], "canary-key");
    let without_key = collector.text().replace("\"key\": \"canary-key\"", "");
    assert!(!without_key.contains("canary"), "what was said, or a key: {without_key}");
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(log.contains("traces: sending spans") && !log.contains("canary"), "{log}");
}

/// The same over two nodes on Postgres and over gRPC: one begins the run, the other decides and goes on. Whoever hears of it by a
/// webhook is told the trace.
#[tokio::test]
async fn a_run_is_one_trace_over_two_nodes() {
    let collector = Collector::start("grpc");
    let hooks = Receiver::new(Mood::Takes).await;
    let store = format!("{{driver: postgres, url: \"{}\"}}", shared().database());
    let serve = |name: &str| {
        let server = format!(
            ", webhooks: {{key: '{KEY}', allowed_hosts: [127.0.0.1]}}, traces: {{protocol: grpc, endpoint: 'http://127.0.0.1:{}', \
             headers: {{X-Collector-Key: abc}}, resource: {{service.instance.id: {name}}}}}",
            collector.port
        );
        let folder = folder(&[("script", SCRIPT)], &config(&store, &server));
        (start(&mut serve_command(folder.path())), folder)
    };
    let (one, _one) = serve("one");
    let (two, _two) = serve("two");
    let subscribed = Http::new(&one.base)
        .post("/api/v1/subscriptions", &json!({"url": hooks.url(), "events": ["*"]}))
        .await;
    assert!((200..300).contains(&subscribed.status), "{}", subscribed.text);
    let (run, hold) = held(&one, CALLER).await;
    approve(&two, &hold, DECIDER).await;
    two.run_once(&run, "completed");
    let told = hooks.whole_story(&run).await;
    stop(two);
    stop(one);
    let spans = collector.spans();
    assert_one_trace(&spans, &run, &hold);
    let drives = spans.all(|span| span["name"] == "invoke_agent ops");
    let nodes: Vec<&Value> = drives.iter().map(|drive| &drive["resource"]["service.instance.id"]).collect();
    assert_eq!(nodes, ["one", "two"]);
    assert_eq!(drives[0]["key"], "abc");
    let named = |got: &Got| Some(got.headers.get("traceparent")?[36..52].to_owned());
    let named: Vec<String> = told.iter().filter_map(named).collect();
    assert_eq!(named.len(), told.len(), "every webhook names a span");
    let sent = spans.all(|span| span["name"] == "deliver webhook");
    assert!(sent.iter().all(|span| span["trace"] == CALLER[3..35]), "{sent:#?}");
    assert!(sent.iter().any(|span| named.iter().any(|named| span["span"] == **named)), "{sent:#?}");
}

/// A collector that is away, or refuses, costs a line in the log and spans that are counted; runs go on, and the server stops in
/// time. One that comes back gets what comes then.
#[tokio::test]
async fn nobody_waits_for_a_collector() {
    let collector = Collector::start("http");
    collector.refuse(true);
    let traces = format!(", traces: {{endpoint: 'http://127.0.0.1:{}'}}", collector.port);
    let folder = folder(&[("script", SCRIPT)], &config(FILE, &traces));
    let log = folder.path().join("log");
    let mut command = serve_command(folder.path());
    let server = start(command.env("RUST_LOG", "info").stderr(File::create(&log).unwrap()));
    let (run, hold) = held(&server, CALLER).await;
    until("the log says so", || {
        std::fs::read_to_string(&log).unwrap().contains("traces: the collector does not")
    });
    approve(&server, &hold, DECIDER).await;
    server.run_once(&run, "completed");
    assert!(collector.spans().0.is_empty());
    collector.refuse(false);
    collector.until("what was kept is sent", |spans| spans.has("invoke_agent ops"));
    let metrics = Http::new(&server.base).get("/metrics").await.text;
    assert!(metrics.contains("standfast_trace_spans_total{result=\"dropped\"} 0\n"), "{metrics}");
    collector.refuse(true);
    Http::new(&server.base).get("/api/v1/runs").await;
    stop(server);
    let said = std::fs::read_to_string(&log).unwrap();
    assert_eq!(said.matches("traces: the collector takes spans again").count(), 1, "{said}");
}

/// Over TLS, with HTTP and gRPC: spans reach a collector whose certificate is from the authority that the file names, and no other
/// one. `validate --connect` and `doctor` say either before a server is started.
#[tokio::test]
async fn spans_go_only_to_a_collector_that_is_trusted() {
    for (mode, protocol) in [("https", "http/protobuf"), ("grpcs", "grpc")] {
        let collector = Collector::start(mode);
        let server = |authority: &str| {
            let port = collector.port;
            format!(", traces: {{protocol: {protocol}, endpoint: 'https://localhost:{port}'{authority}}}")
        };
        let authority = collector.authority();
        let trusted = server(&format!(", certificate_authority: '{}'", authority.display()));
        let folder = folder(&[("script", SCRIPT)], &config(FILE, &trusted));
        let said = asked(folder.path(), &["validate", "--connect"]);
        let line = format!("  ok      traces: https://localhost:{} over {protocol}\n", collector.port);
        assert!(said.contains(&line), "{said}");
        let server_of_it = start(&mut serve_command(folder.path()));
        let (run, hold) = held(&server_of_it, CALLER).await;
        approve(&server_of_it, &hold, DECIDER).await;
        server_of_it.run_once(&run, "completed");
        stop(server_of_it);
        assert!(collector.spans().has("invoke_agent ops"), "{mode}: {:#?}", collector.spans());

        let before = collector.text();
        let file = folder.path().join("standfast.yaml");
        std::fs::write(&file, std::fs::read_to_string(&file).unwrap().replace(&trusted, &server("")))
            .unwrap();
        let said = asked(folder.path(), &["doctor", "--data", "data"]);
        let place = format!("traces: https://localhost:{} over {protocol}: ", collector.port);
        assert!(said.contains(&place) && said.contains("do: repair what it names"), "{said}");
        let stranger = start(&mut serve_command(folder.path()));
        let (_, hold) = held(&stranger, CALLER).await;
        approve(&stranger, &hold, DECIDER).await;
        stop(stranger);
        assert_eq!(collector.text(), before, "{mode}: a server that is not trusted gets no span");
    }
}

/// What a command says of the configuration in a folder, whatever comes of it.
fn asked(folder: &Path, arguments: &[&str]) -> String {
    let output = standfast().args(arguments).current_dir(folder).output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Without the section there is nothing of it: no span, nothing stored, no header to others, whatever the caller sends. A caller
/// who does not record its trace gets no spans either.
#[tokio::test]
async fn traces_are_off_unless_wanted() {
    let collector = Collector::start("http");
    let hooks = Receiver::new(Mood::Takes).await;
    let endpoint = format!("http://127.0.0.1:{}", collector.port);
    let server = ", webhooks: {allowed_hosts: [127.0.0.1]}";
    let plain = folder(&[("script", SCRIPT)], &config(FILE, server));
    let mut command = serve_command(plain.path());
    let off = start(command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint));
    Http::new(&off.base).post("/api/v1/subscriptions", &json!({"url": hooks.url(), "events": ["*"]})).await;
    let (run, hold) = held(&off, CALLER).await;
    approve(&off, &hold, DECIDER).await;
    off.run_once(&run, "completed");
    assert!(hooks.whole_story(&run).await.iter().all(|got| !got.headers.contains_key("traceparent")));
    stop(off);
    let on = folder(&[("script", SCRIPT)], &config(FILE, ", traces: {}"));
    let mut command = serve_command(on.path());
    let on = start(command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint));
    let unrecorded = CALLER.replace("-01", "-00");
    let (run, hold) = held(&on, &unrecorded).await;
    approve(&on, &hold, &unrecorded).await;
    let of_run = Http::new(&on.base).get(&format!("/api/v1/runs/{run}")).await;
    assert_eq!(of_run.status, 200);
    stop(on);
    let spans = collector.spans();
    assert!(spans.all(|span| span["trace"] == CALLER[3..35]).is_empty(), "{:#?}", spans.0);
    assert!(spans.has("GET /api/v1/runs/{id}"), "what nobody else traces is recorded: {:#?}", spans.0);
}

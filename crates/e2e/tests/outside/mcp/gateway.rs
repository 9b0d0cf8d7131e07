//! MCP servers behind `/mcp/{name}`: what clients see of them through the gateway, and what does not reach them before somebody says so.
//!
//! Servers and clients are real ones: the official everything server, over HTTP and as a program, and the official clients for
//! TypeScript and Python. Everything is compared with direct access.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use standfast_testkit::http::Http;
use standfast_testkit::{Process, text, until};
use tempfile::TempDir;

use super::gateway_calls::{Client, result, words};
use super::over_http::{Program, listening};
use super::python::newer_node;
use super::server::{package, packages};

/// A folder whose server has these gateways; calls of `write` are held, everything else is allowed.
pub(crate) fn folder(gateways: &str, more: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("place").display().to_string();
    let unruly = packages().join("unruly.js").display().to_string();
    let gateways = gateways.replace("PLACE", &place).replace("UNRULY", &unruly);
    let config = format!(
        "llms: {{script: {{type: scripted, script: script.yaml}}}}\n\
         session_stores: {{main: {{backend: sql, sql: {{driver: sqlite, database: ./sessions.db}}}}}}\n\
         agents: {{helper: {{llm: script, session_store: main, task: {{}}}}}}\n\
         gateways:\n{gateways}\n{more}"
    );
    std::fs::write(folder.path().join("script.yaml"), "replies:\n- text: done\n").unwrap();
    std::fs::write(folder.path().join("standfast.yaml"), config).unwrap();
    std::fs::create_dir(folder.path().join("place")).unwrap();
    folder
}

pub(crate) const RULES: &str = "policy:
  rules:
  - {id: reads, allow: [mcp__*__echo, mcp__*__get-*, mcp__*__trigger-*, mcp__*__toggle-*, mcp__*__nothing, mcp__*__read], agent: gate}
";

pub(crate) fn serve(folder: &TempDir, address: &str) -> (Process, Http) {
    let mut command = standfast_testkit::standfast();
    command.args(["serve", "--listen", address, "--config"]).arg(folder.path().join("standfast.yaml"));
    command.arg("--data").arg(folder.path().join("data")).env("RUST_LOG", "warn").env_remove("STANDFAST_KEY");
    let program = standfast_testkit::start(&mut command);
    let http = Http::new(&program.base);
    (program, http)
}

/// The official everything server over HTTP.
pub(crate) fn everything(port: u16) -> Program {
    let mut command = Command::new("node");
    command.args([&package("server-everything"), "streamableHttp"]).env("PORT", port.to_string());
    listening(command, port)
}

/// What a client wrote down.
fn transcript(mut command: Command) -> Value {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn typescript(arguments: &[&str]) -> Value {
    let mut command = Command::new("node");
    command.arg(packages().join("through.js")).args(arguments);
    transcript(command)
}

fn python(address: &str) -> Value {
    let mut command = Command::new(super::python::python("python"));
    command.arg(packages().join("through.py")).arg(address);
    transcript(command)
}

/// Compares what was seen directly with what was seen through a gateway, member by member.
fn assert_same(direct: &Value, through: &Value) {
    let (direct, through) = (direct.as_object().unwrap(), through.as_object().unwrap());
    for (name, seen) in direct {
        assert_eq!(Some(seen), through.get(name), "{name}");
    }
    assert_eq!(direct.len(), through.len());
}

/// The official client for TypeScript sees the same of the everything server directly and through the gateway, over HTTP and as a
/// program: tools with all they say of themselves, resources, prompts, completion, sampling, elicitation, roots, logs, progress,
/// cancellation.
#[test]
fn typescript_sees_the_same_through_the_gateway() {
    let port = standfast_testkit::free_port();
    let upstream = everything(port);
    let program = package("server-everything");
    let gateways = format!(
        "  web: {{url: 'http://127.0.0.1:{port}/mcp'}}\n  local: {{command: node, args: ['{program}', stdio]}}\n"
    );
    let folder = folder(&gateways, RULES);
    let (server, _) = serve(&folder, "127.0.0.1:0");
    let direct = typescript(&["http", &format!("http://127.0.0.1:{port}/mcp")]);
    assert!(direct["tools"].to_string().contains("annotations"), "{}", direct["tools"]);
    assert_same(&direct, &typescript(&["http", &format!("{}/mcp/web", server.base)]));
    let direct = typescript(&["stdio", "node", &program, "stdio"]);
    assert_same(&direct, &typescript(&["http", &format!("{}/mcp/local", server.base)]));
    drop(upstream);
}

/// The same for the official client for Python.
#[test]
fn python_sees_the_same_through_the_gateway() {
    let port = standfast_testkit::free_port();
    let _upstream = everything(port);
    let program = package("server-everything");
    let gateways = format!(
        "  web: {{url: 'http://127.0.0.1:{port}/mcp'}}\n  local: {{command: node, args: ['{program}', stdio]}}\n"
    );
    let folder = folder(&gateways, RULES);
    let (server, _) = serve(&folder, "127.0.0.1:0");
    let direct = python(&format!("http://127.0.0.1:{port}/mcp"));
    assert_same(&direct, &python(&format!("{}/mcp/web", server.base)));
    let local = python(&format!("{}/mcp/local", server.base));
    // A program has no ids of sessions to speak of.
    for name in
        ["tools", "prompts", "resource", "structured", "sampling", "elicitation", "long", "steps", "complete"]
    {
        assert_eq!(direct[name], local[name], "{name}");
    }
}

/// The page docs/mcp-gateway.md as a reader follows it: its server, its configuration, its command; the one URL is changed, and what ran
/// before runs, but for what waits for a person.
#[test]
fn the_guide_page_makes_a_server_safe() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mcp-gateway.md");
    let page = std::fs::read_to_string(page).unwrap();
    let block = |kind: &str, no: usize| {
        let parts: Vec<&str> = page.split(&format!("```{kind}\n")).skip(1).collect();
        parts[no].split("\n```").next().unwrap().to_owned()
    };
    let port = standfast_testkit::free_port();
    assert_eq!(block("sh", 0), "PORT=3001 npx @modelcontextprotocol/server-everything streamableHttp");
    let _upstream = everything(port);
    let folder = tempfile::tempdir().unwrap();
    let config = block("yaml", 0).replace("3001", &port.to_string());
    std::fs::write(folder.path().join("standfast.yaml"), config).unwrap();
    assert_eq!(block("sh", 1), "standfast serve --config standfast.yaml");
    let (server, _) = serve(&folder, "127.0.0.1:0");
    let diff = block("diff", 0);
    let addresses: Vec<&str> = diff.split('"').filter(|part| part.starts_with("http://")).collect();
    assert_eq!(addresses, ["http://127.0.0.1:3001/mcp", "http://127.0.0.1:8080/mcp/everything"]);
    let before = format!("http://127.0.0.1:{port}/mcp");
    let after = addresses[1].replace("http://127.0.0.1:8080", &server.base);
    for tool in ["echo", "get-sum"] {
        let arguments = if tool == "echo" { r#"{"message":"hi"}"# } else { r#"{"a":1,"b":2}"# };
        assert_eq!(call_once(&before, tool, arguments), call_once(&after, tool, arguments), "{tool}");
    }
    let calling = std::thread::spawn(move || call_once(&after, "get-env", "{}"));
    until("the call waits", || server.ask(&["holds"]).to_string().contains("mcp__everything__get-env"));
    let holds = server.ask(&["holds"]);
    let hold = text(&holds["holds"][0]["id"]);
    assert_eq!(block("sh", 2), "standfast holds\nstandfast holds approve hold_…");
    server.ask(&["holds", "approve", hold]);
    assert!(calling.join().unwrap().to_string().contains("PORT"));
}

/// The last rung: a client that can do nothing but wait is told after `wait` that nothing ran. Where the tool promises structured output
/// that is an error, as it has none, and the client knows the gate; another tool's is an ordinary text.
#[tokio::test]
async fn whoever_only_waits_is_told_that_nothing_ran() {
    let port = standfast_testkit::free_port();
    let _upstream = everything(port);
    let folder = folder(&format!("  web: {{url: 'http://127.0.0.1:{port}/mcp', wait: 1s}}\n"), "");
    let (_server, http) = serve(&folder, "127.0.0.1:0");
    let client = Client::hello(&http, "web", "2025-06-18", json!({})).await;
    let call = async |id: u32, tool: &str, arguments: Value| {
        result(&client.ask(json!(id), "tools/call", json!({"name": tool, "arguments": arguments})).await)
    };
    // What a tool promises is known from the list.
    client.ask(json!(0), "tools/list", json!({})).await;
    let structured = call(1, "get-structured-content", json!({"location": "New York"})).await;
    assert!(words(&structured).starts_with("Not executed."), "{structured}");
    assert_eq!(structured["isError"], true, "{structured}");
    assert!(text(&structured["_meta"]["standfast/gate"]).starts_with("run_"), "{structured}");
    let plain = call(2, "echo", json!({"message": "hi"})).await;
    assert!(words(&plain).starts_with("Not executed."), "{plain}");
    assert_ne!(plain["isError"], true, "{plain}");
}

/// What a tool says to one call of the official client.
fn call_once(address: &str, tool: &str, arguments: &str) -> Value {
    let mut command = Command::new("node");
    command.arg(packages().join("desk.js")).args(["http", address]).env_remove("STANDFAST_KEY");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, r#"{{"id":1,"name":"{tool}","arguments":{arguments}}}"#).unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let lines =
        output.lines().map_while(Result::ok).map(|line| serde_json::from_str::<Value>(&line).unwrap());
    let answer = lines.into_iter().find(|line| line["id"] == 1).unwrap();
    drop(input);
    drop(child.kill());
    drop(child.wait());
    answer["result"].clone()
}

/// The official conformance tests of servers, through the gateway: everything passes that passes directly, and what the gateway adds
/// does too.
#[test]
fn the_conformance_tests_pass_through_the_gateway() {
    let port = standfast_testkit::free_port();
    let mut command = Command::new("node");
    command.arg(packages().join("conformant.js")).arg(port.to_string());
    let _upstream = listening(command, port);
    let rules = "policy:\n  rules:\n  - {id: tests, allow: 'mcp__kit__test_*', agent: gate}\n";
    let folder = folder(&format!("  kit: {{url: 'http://127.0.0.1:{port}/mcp'}}\n"), rules);
    let (server, _) = serve(&folder, "127.0.0.1:0");
    let mut kit = newer_node();
    kit.arg(package("conformance")).args(["server", "--url", &format!("{}/mcp/kit", server.base)]);
    let output = kit.current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let summary = said.split("=== SUMMARY ===").nth(1).unwrap_or(&said);
    assert!(summary.contains("Total: 73 passed, 0 failed"), "{summary}");
}

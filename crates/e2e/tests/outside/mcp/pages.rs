//! The pages docs/mcp-proxy.md, docs/mcp-server.md and docs/mcp.md as their readers follow them: their settings, their rules, their tools.
//!
//! What is fetched with `npx` is what `cargo xtask test` has installed; addresses and folders are those of the test.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use standfast_testkit::{standfast, text, until};
use tempfile::TempDir;

use super::desk::Desk;
use super::gateway::serve;
use super::gateway_calls::{hold, resolve, words};
use super::over_http::listening;
use super::server::{lines, package, packages};
use crate::pages::{block, page, quoted, table, with};

/// A folder with an agent whose model and store are called as on the pages, and this.
fn folder(replies: &str, rest: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "llms: {{main: {{type: scripted, script: script.yaml}}}}\n\
         session_stores: {{main-db: {{backend: sql, sql: {{driver: sqlite, database: ./sessions.db}}}}}}\n{rest}"
    );
    std::fs::write(folder.path().join("script.yaml"), format!("replies:\n{replies}")).unwrap();
    std::fs::write(folder.path().join("standfast.yaml"), config).unwrap();
    std::fs::create_dir(folder.path().join("place")).unwrap();
    folder
}

/// An agent of whoever has none on the page.
const HELPER: &str = "agents: {helper: {llm: main, session_store: main-db, task: {}}}\n";

/// The words of a command in the settings of a client, with the programs that are here.
fn command_of(settings: &Value, changes: &[(&str, &str)]) -> Vec<String> {
    let arguments = settings["args"].as_array().unwrap().iter().map(text);
    let words: Vec<&str> = std::iter::once(text(&settings["command"])).chain(arguments).collect();
    let program = format!("{}\n", standfast().get_program().to_str().unwrap());
    let changes = [&[("standfast\n", program.as_str())], changes].concat();
    with(&words.join("\n"), &changes).split('\n').map(str::to_owned).collect()
}

/// A client by these settings, as on the page.
fn desk(command: &[String], variables: &[(&str, &str)]) -> Desk {
    let words: Vec<&str> = std::iter::once("stdio").chain(command.iter().map(String::as_str)).collect();
    Desk::with(&words, variables)
}

/// docs/mcp-proxy.md: the server in the settings of the page, behind the rules of the page. What they allow runs at once; a file is moved
/// once somebody has read why that is asked; what no rule names is held.
#[tokio::test]
async fn the_page_of_the_proxy_puts_a_server_behind_approvals() {
    let page = page("mcp-proxy.md");
    let folder = folder("- text: done\n", &format!("{HELPER}{}\n", block(&page, "yaml", 0)));
    let (server, http) = serve(&folder, "127.0.0.1:0");
    let place = folder.path().join("place");
    let settings: Value = serde_json::from_str(block(&page, "json", 0)).unwrap();
    let program = format!("node\n{}", package("server-filesystem"));
    let command = command_of(
        &settings["mcpServers"]["files"],
        &[
            ("npx\n@modelcontextprotocol/server-filesystem", &program),
            ("/srv/files", place.to_str().unwrap()),
        ],
    );
    let state = folder.path().join("state").display().to_string();
    let variables = [("STANDFAST_SERVER", server.base.as_str()), ("XDG_STATE_HOME", &state)];
    let mut client = desk(&command, &variables);
    let path = |name: &str| place.join(name).display().to_string();
    std::fs::write(path("a.txt"), "precious").unwrap();
    assert_eq!(words(&client.call(1, "read_text_file", &json!({"path": path("a.txt")}))), "precious");

    let moves = json!({"source": path("a.txt"), "destination": path("b.txt")});
    client.calls(2, "move_file", &moves);
    let held = hold(&http).await;
    let shown = http.get(&format!("/api/v1/holds/{}", text(&held["id"]))).await;
    assert!(shown.text.contains("others link to these files"), "{}", shown.text);
    assert!(Path::new(&path("a.txt")).exists(), "nothing has run");
    // The page says where pending calls are kept, and that their arguments are not.
    assert!(page.contains("`$XDG_STATE_HOME/standfast/mcp`"));
    let kept = || {
        let files = std::fs::read_dir(Path::new(&state).join("standfast/mcp")).into_iter().flatten();
        files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect::<String>()
    };
    until("the pending call is kept", || !kept().is_empty());
    assert!(!kept().contains("a.txt"), "{}", kept());
    resolve(&http, &held, json!({"resolution": "approve"})).await;
    let moved = client.result(2);
    assert_ne!(moved["isError"], true, "{moved}");
    assert_eq!(std::fs::read_to_string(path("b.txt")).unwrap(), "precious");

    client.calls(3, "write_file", &json!({"path": path("c.txt"), "content": "x"}));
    let held = hold(&http).await;
    resolve(&http, &held, json!({"resolution": "deny", "reason": "not here"})).await;
    assert!(words(&client.result(3)).contains("not here"));
    assert!(!Path::new(&path("c.txt")).exists());
}

/// docs/mcp-server.md: a client by either settings of the page, with a key for gates alone, has the tools of its table with the arguments
/// that stand there, asks with them, and gets what people decide.
#[tokio::test]
async fn the_page_of_the_server_tells_agents_how_to_ask() {
    let page = page("mcp-server.md");
    let folder = folder("- text: done\n", &format!("{HELPER}server: {{auth: {{api_keys: true}}}}\n"));
    let (server, http) = serve(&folder, "127.0.0.1:0");
    let key = |scope: &str| {
        let mut command = standfast();
        command.args(["keys", "create", "--user", "ann", "--scope", scope, "--config"]);
        let made = command.arg(folder.path().join("standfast.yaml")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    let (gates, boss) = (key("gates:open"), http.with_key(&key("admin")));
    let settings = |no: usize| {
        let printed = with(block(&page, "json", no), &[("http://127.0.0.1:8080", &server.base)]);
        serde_json::from_str::<Value>(&printed).unwrap()["mcpServers"]["standfast"].clone()
    };
    let http_settings = settings(0);
    assert_eq!(http_settings["type"], "http");
    let by_http = Desk::with(&["http", text(&http_settings["url"])], &[("DESK_KEY", &gates)]);
    let by_command = desk(&command_of(&settings(1), &[]), &[("STANDFAST_KEY", &gates)]);
    for (way, mut client) in [by_http, by_command].into_iter().enumerate() {
        client.say(&json!({"id": 1, "list": true}));
        assert_tools_are_as_printed(&page, &client.result(1)["tools"]);
        let refund = json!({"tool": "refund", "arguments": {"way": way}, "reason": "it came back"});
        let asked = json!({"tool": "refund", "arguments": {"way": way}});
        assert_eq!(client.call(2, "check", &asked)["structuredContent"]["effect"], "hold");
        client.calls(3, "request_approval", &refund);
        resolve(&boss, &hold(&boss).await, json!({"resolution": "approve"})).await;
        let approved = client.result(3)["structuredContent"].clone();
        assert_eq!((&approved["state"], &approved["arguments"]["way"]), (&json!("approved"), &json!(way)));
        for status in ["succeeded", "failed", "not_executed", "unknown"] {
            assert!(quoted(&page).contains(&status), "{status}");
        }
        let report = json!({"gate": approved["gate"], "status": "succeeded", "result": {"paid": 1}});
        let done = client.call(4, "standfast_result", &report);
        assert_eq!(done["structuredContent"]["state"], "done", "{done}");
        let question = json!({"question": format!("Which way after {way}?"), "options": ["left", "right"]});
        client.calls(5, "ask_human", &question);
        resolve(&boss, &hold(&boss).await, json!({"resolution": "answer", "value": "left"})).await;
        assert_eq!(client.result(5)["structuredContent"]["answer"], "left");
    }
}

/// The tools of the page's table, each with the arguments that stand there; `?` is for those that may be left out.
fn assert_tools_are_as_printed(page: &str, listed: &Value) {
    let named = |tool: &Value| text(&tool["name"]).to_owned();
    let listed = listed.as_array().unwrap();
    let rows = table(page, "## Tools");
    let printed: Vec<&str> = rows.iter().map(|row| quoted(row[0])[0]).collect();
    assert_eq!(printed, listed.iter().map(named).collect::<Vec<_>>());
    for (row, tool) in rows.iter().zip(listed) {
        let mut wanted: Vec<(&str, bool)> =
            row[1].split(", ").map(|argument| (quoted(argument)[0], !argument.ends_with('?'))).collect();
        let schema = &tool["inputSchema"];
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let names = schema["properties"].as_object().unwrap().keys();
        let mut found: Vec<(&str, bool)> =
            names.map(|name| (name.as_str(), required.iter().any(|one| one == name))).collect();
        wanted.sort_unstable();
        found.sort_unstable();
        assert_eq!(wanted, found, "{}", row[0]);
    }
}

/// docs/mcp.md: the configuration of the page. What a server says changes nothing runs by itself; a ticket is closed once, after somebody was
/// asked in the words of the page; what `allow` leaves out the agent does not have.
#[test]
fn the_page_of_mcp_servers_gives_an_agent_their_tools() {
    let page = page("mcp.md");
    let port = standfast_testkit::free_port();
    let config = with(
        block(&page, "yaml", 0),
        &[
            ("command: npx", "command: node"),
            (
                r#""-y", "@modelcontextprotocol/server-filesystem""#,
                &format!("{:?}", package("server-filesystem")),
            ),
            ("/srv/reports", "PLACE"),
            ("https://tickets.example.org/mcp", &format!("http://127.0.0.1:{port}/mcp")),
        ],
    );
    let replies = "- calls:\n  - {tool: files__list_directory, arguments: {path: PLACE}}\n  \
                   - {tool: tickets__search, arguments: {words: late}}\n  \
                   - {tool: tickets__close_ticket, arguments: {id: 7}}\n  \
                   - {tool: tickets__delete_ticket, arguments: {id: 7}}\n- text: done\n";
    let folder = folder("", "");
    let place = folder.path().join("place").display().to_string();
    for (file, rest) in [("standfast.yaml", config), ("script.yaml", replies.to_owned())] {
        let file = folder.path().join(file);
        let before = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{before}{}\n", rest.replace("PLACE", &place))).unwrap();
    }
    std::fs::write(folder.path().join(".env"), "TICKETS_TOKEN=canary-of-tickets\n").unwrap();
    let mut tickets = Command::new("node");
    tickets.arg(packages().join("tickets.js")).arg(port.to_string()).args([&place, "canary-of-tickets"]);
    let _tickets = listening(tickets, port);

    let (server, _) = serve(&folder, "127.0.0.1:0");
    let run = text(&server.send("helper")["id"]).to_owned();
    let hold = server.hold(&run);
    assert_eq!(hold["tool"], "tickets__close_ticket", "{hold:#}");
    assert!(hold.to_string().contains("Close a ticket? {"), "{hold:#}");
    assert!(lines(&folder, "tickets.txt").is_empty());
    server.ask(&["holds", "approve", text(&hold["id"])]);
    let ended = server.until_status(&run, "completed").to_string();
    let closed = lines(&folder, "tickets.txt");
    assert_eq!(closed.len(), 1, "{closed:?}");
    assert!(closed[0].starts_with(&format!("close_ticket 7 {run}/")), "{closed:?}");
    assert!(ended.contains("search done") && !ended.contains("canary-of-tickets"), "{ended}");
}

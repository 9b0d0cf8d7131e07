//! Hooks of coding agents against the real program: over HTTP, and over `standfast hook` as the clients call it.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use standfast_testkit::{Server, text, until_found};

use super::{Gates, plain, serve};

fn bash(event: &str, call: &str) -> Value {
    json!({"session_id": "s-1", "cwd": "/w", "hook_event_name": event, "tool_name": "send_refund",
        "tool_input": {"amount": 40}, "tool_use_id": call, "permission_mode": "default"})
}

async fn decide(server: &Server, resolution: &Value) {
    let hold = until_found("a hold", async || server.open_holds().await.first().cloned()).await;
    let resolved = server.resolve(text(&hold["id"]), resolution).await;
    assert_eq!(resolved.status, 200, "{resolved:?}");
}

fn decision(answer: &Value) -> (&str, &str) {
    let said = &answer["hookSpecificOutput"];
    (text(&said["permissionDecision"]), text(&said["permissionDecisionReason"]))
}

/// Claude Code over HTTP: no rule is silence, nobody yet is what `then` says and leaves the request open, a repeat attaches and
/// is allowed once, what ran comes back as the outcome, and a second hook for the same call does not let it run again.
#[tokio::test]
async fn claude_code_over_http() {
    let (_folder, server) = plain();
    let mut other = bash("PreToolUse", "t0");
    other["tool_name"] = json!("Read");
    assert_eq!(server.http.post("/hooks/claude-code", &other).await.body, json!({}), "no rule");
    let mut denied = bash("PreToolUse", "t0");
    denied["tool_name"] = json!("drop_table");
    let answer = server.http.post("/hooks/claude-code", &denied).await.body;
    assert_eq!(decision(&answer).0, "deny");
    assert!(decision(&answer).1.contains("ask the owner of the data"), "{answer}");
    for then in ["deny", "ask", "defer"] {
        let path = format!("/hooks/claude-code?wait=0&then={then}");
        let answer = server.http.post(&path, &bash("PreToolUse", "t1")).await.body;
        assert_eq!(decision(&answer).0, then, "{answer}");
        assert!(decision(&answer).1.contains("Nobody has decided yet"), "{answer}");
    }
    assert_eq!(server.open_holds().await.len(), 1, "giving up leaves one request open");
    let (waits, yes) = (bash("PreToolUse", "t1"), json!({"resolution": "approve"}));
    let (answer, ()) =
        tokio::join!(server.http.post("/hooks/claude-code?wait=50", &waits), decide(&server, &yes));
    assert_eq!(decision(&answer.body).0, "allow", "{answer:?}");
    let again = server.http.post("/hooks/claude-code", &bash("PreToolUse", "t1")).await.body;
    assert_eq!(decision(&again).0, "deny", "it was let run once: {again}");
    let mut after = bash("PostToolUse", "t1");
    after["tool_response"] = json!({"stdout": "paid"});
    assert_eq!(server.http.post("/hooks/claude-code", &after).await.body, json!({}));
    let runs = server.http.get("/api/v1/runs?agent=gate").await.body;
    let done = runs["runs"].as_array().unwrap().iter().filter(|run| run["status"] == "completed").count();
    assert_eq!(done, 1, "{runs}");
    // The reviewer's other arguments reach the client.
    let (waits, less) =
        (bash("PreToolUse", "t2"), json!({"resolution": "approve", "arguments": {"amount": 4}}));
    let (answer, ()) =
        tokio::join!(server.http.post("/hooks/claude-code?wait=50", &waits), decide(&server, &less));
    assert_eq!(answer.body["hookSpecificOutput"]["updatedInput"], json!({"amount": 4}), "{answer:?}");
    // A decision at the terminal leaves no button behind.
    server.http.post("/hooks/claude-code?wait=0&then=ask", &bash("PreToolUse", "t3")).await;
    assert_eq!(server.open_holds().await.len(), 1);
    server.http.post("/hooks/claude-code", &bash("PermissionDenied", "t3")).await;
    assert!(server.open_holds().await.is_empty());
    server.http.post("/hooks/claude-code?wait=0&then=ask", &bash("PreToolUse", "t4")).await;
    server.http.post("/hooks/claude-code", &bash("PostToolUse", "t4")).await;
    assert!(server.open_holds().await.is_empty(), "it ran, so somebody decided there");
}

/// Who asks by a hook does not say when the call starts, so what a start takes from a budget or does once in the world is asked about
/// although a rule allows it, with the first start of that effect.
#[tokio::test]
async fn what_starts_unsaid_is_asked_about() {
    let folder = tempfile::tempdir().unwrap();
    super::configure(folder.path(), "");
    let file = folder.path().join("standfast.yaml");
    let counted = r#"  - {id: spending, allow: buy, budgets: [{name: daily, sum: amount, limit: 100, window: 1d}]}
  - {id: paid, allow: pay, effect_key: "pay:{order}"}
"#;
    std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + counted).unwrap();
    let server = serve(folder.path(), "data");
    // Whoever says when it starts has the effect.
    let gate = json!({"tool": "pay", "arguments": {"order": "A-7"}, "agent": "billing", "session": "s", "call": "c-1"});
    let first = server.open(&gate).await;
    assert_eq!(first["state"], "allowed", "{first}");
    let started = server.start(&first).await;
    assert_eq!(started.status, 200, "{started:?}");
    let call = |tool: &str, input: Value, id: &str| {
        let mut event = bash("PreToolUse", id);
        (event["tool_name"], event["tool_input"]) = (json!(tool), input);
        event
    };
    let path = "/hooks/claude-code?wait=0&then=deny";
    let answer = server.http.post(path, &call("buy", json!({"amount": 4}), "t1")).await.body;
    assert_eq!(decision(&answer).0, "deny", "nobody has decided yet: {answer}");
    server.http.post(path, &call("pay", json!({"order": "A-7"}), "t2")).await;
    let holds = server.open_holds().await;
    assert_eq!(holds.len(), 2, "{holds:?}");
    let of_pay = holds.iter().find(|hold| hold["tool"] == "pay").unwrap();
    let shown = server.http.get(&format!("/api/v1/holds/{}", text(&of_pay["id"]))).await.body.to_string();
    assert!(shown.contains("was started before") && shown.contains(text(&first["gate"])), "{shown}");
    // The same of a gate: asked about when it is opened, and not once more when it starts.
    let second = json!({"tool": "pay", "arguments": {"order": "A-7"}, "agent": "billing", "session": "s", "call": "c-2"});
    let second = server.open(&second).await;
    assert_eq!(second["state"], "held", "{second}");
    let resolved = server.resolve(text(&second["hold"]), &json!({"resolution": "approve"})).await;
    assert_eq!(resolved.status, 200, "{resolved:?}");
    let second = server.gate(&second).await;
    let started = server.start(&second).await;
    assert_eq!(started.status, 200, "{started:?}");
}

/// Clients that have no names for calls: a repeat while nobody has decided attaches, and once the call ran the same call again is
/// a new decision. What is not JSON is held although no rule is about it.
#[tokio::test]
async fn clients_without_names_for_calls() {
    let (_folder, server) = plain();
    let before = json!({"session_id": "g", "hook_event_name": "BeforeTool", "tool_name": "send_refund", "tool_input": {"a": 1}});
    for _ in 0..2 {
        let answer = server.http.post("/hooks/gemini?wait=0", &before).await.body;
        assert_eq!(answer["decision"], "deny", "{answer}");
    }
    assert_eq!(server.open_holds().await.len(), 1);
    decide(&server, &json!({"resolution": "approve"})).await;
    assert_eq!(server.http.post("/hooks/gemini?wait=0", &before).await.body, json!({"decision": "allow"}));
    let after = json!({"session_id": "g", "hook_event_name": "AfterTool", "tool_name": "send_refund", "tool_input": {"a": 1}, "tool_response": "ok"});
    assert_eq!(server.http.post("/hooks/gemini", &after).await.text, "");
    let next = server.http.post("/hooks/gemini?wait=0", &before).await.body;
    assert_eq!(next["decision"], "deny", "another run of it is another decision: {next}");
    assert_eq!(server.open_holds().await.len(), 1);
    let odd = json!({"sessionId": "c", "toolName": "anything", "toolArgs": "rm -rf /"});
    let answer = server.http.post("/hooks/copilot?wait=0", &odd).await.body;
    assert_eq!(answer["permissionDecision"], "deny", "held, not passed: {answer}");
    assert_eq!(server.open_holds().await.len(), 2);
}

/// T5: a client that asks where it would ask its own user, and has no name for the call then: an approval is for one call. The same once
/// more is a new question, also while the first one runs; what came of it is told under the name that it has by then.
#[tokio::test]
async fn t5_a_permission_is_given_once() {
    let (_folder, server) = plain();
    let event = |name: &str| json!({"session_id": "p", "hook_event_name": name, "tool_name": "send_refund", "tool_input": {"a": 1}});
    let path = "/hooks/claude-code?wait=0";
    assert_eq!(server.http.post(path, &event("PermissionRequest")).await.text, "{}", "its own dialog stays");
    let first = server.open_holds().await;
    decide(&server, &json!({"resolution": "approve"})).await;
    let given = server.http.post(path, &event("PermissionRequest")).await;
    assert!(given.text.contains("\"allow\""), "{given:?}");
    let again = server.http.post(path, &event("PermissionRequest")).await;
    assert_eq!(again.text, "{}", "nobody approved a second call");
    let second = server.open_holds().await;
    assert!(second.len() == 1 && second[0]["id"] != first[0]["id"], "{second:?}");
    let mut ran = event("PostToolUse");
    (ran["tool_use_id"], ran["tool_response"]) = (json!("toolu_9"), json!("paid"));
    server.http.post("/hooks/claude-code", &ran).await;
    let run = |hold: &Value| format!("/api/v1/gates/{}", text(&hold["run"]));
    assert_eq!(
        server.http.get(&run(&first[0])).await.body["state"],
        "done",
        "the one that was given has run"
    );
    assert_eq!(server.open_holds().await, second, "the other one still waits");
    // It ran all the same: somebody decided at the terminal.
    server.http.post("/hooks/claude-code", &ran).await;
    assert!(server.open_holds().await.is_empty());
}

/// The rules of the page docs/hooks.md: what they allow runs, what they hold is held however it is written, and what they do not
/// name is the client's own business.
#[tokio::test]
async fn the_guide_page_of_hooks() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/hooks.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rules = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let rules: String =
        rules.lines().map(|line| format!("{}\n", line.strip_prefix("   ").unwrap_or(line))).collect();
    std::fs::write(folder.path().join("standfast.yaml"), rules).unwrap();
    let server = serve(folder.path(), "data");
    let ask = async |command: &str| {
        let event = json!({"session_id": "s-1", "hook_event_name": "PreToolUse", "tool_name": "Bash",
            "tool_input": {"command": command}, "tool_use_id": command});
        server.http.post("/hooks/claude-code?wait=0", &event).await.body
    };
    for command in ["git status", "git log -3"] {
        let answer = ask(command).await;
        assert_eq!(decision(&answer).0, "allow", "{command}: {answer}");
    }
    for command in ["rm -rf build", "cd src && sudo rm x", "git status; rm x"] {
        let answer = ask(command).await;
        assert_eq!(decision(&answer).0, "deny", "{command}: {answer}");
    }
    assert_eq!(server.open_holds().await.len(), 3);
    assert_eq!(ask("ls").await, json!({}), "no rule is about it");
}

/// An edit at a client that takes none: the call is denied and nothing is started, so that nobody is asked later whether it ran. The same
/// call again hears the same. The edited one is allowed, once and without another question; after that it is a new one.
#[tokio::test]
async fn an_edit_that_a_client_cannot_take_is_allowed_when_it_asks_for_that() {
    let (_folder, server) = plain();
    let edit = json!({"resolution": "approve", "arguments": {"command": "ls  ü", "deep": {"n": 1}}});
    let shell = |command: &str| json!({"command": command, "deep": {"n": 1}});
    let cases = [
        (
            "cursor",
            json!({"conversation_id": "c", "hook_event_name": "beforeMCPExecution", "tool_name": "send_refund",
                "tool_input": shell("rm x").to_string()}),
            // In the client's own spelling.
            json!({"tool_input": "{ \"deep\": {\"n\": 1}, \"command\": \"ls  \\u00fc\"}"}),
        ),
        (
            "codex",
            json!({"session_id": "x", "hook_event_name": "PermissionRequest", "tool_name": "send_refund",
                "tool_input": shell("rm x")}),
            json!({"tool_input": shell("ls  ü")}),
        ),
        (
            "copilot",
            json!({"sessionId": "p", "hookEventName": "permissionRequest", "toolName": "send_refund",
                "toolArgs": shell("rm x").to_string()}),
            json!({"toolArgs": shell("ls  ü").to_string()}),
        ),
        // It would merge what it is sent over its own arguments, and so run what was removed.
        (
            "gemini",
            json!({"session_id": "g", "hook_event_name": "BeforeTool", "tool_name": "send_refund",
                "tool_input": {"command": "rm x", "deep": {"n": 1}, "force": true}}),
            json!({"tool_input": shell("ls  ü")}),
        ),
    ];
    for (client, asked, edited) in cases {
        let path = format!("/hooks/{client}?wait=0");
        server.http.post(&path, &asked).await;
        let held = server.open_holds().await;
        assert_eq!(held.len(), 1, "{client}: {held:?}");
        decide(&server, &edit).await;
        for _ in 0..2 {
            let refused = server.http.post(&path, &asked).await.text;
            assert!(refused.contains("\"deny\"") && refused.contains("exactly these"), "{client}: {refused}");
        }
        let gate = json!({"gate": held[0]["run"]});
        assert_eq!(server.gate(&gate).await["state"], "allowed", "{client}: nothing was started");
        let mut repeat = asked.clone();
        repeat.as_object_mut().unwrap().extend(edited.as_object().unwrap().clone());
        let allowed = server.http.post(&path, &repeat).await.text;
        assert!(allowed.contains("\"allow\"") && !allowed.contains("command"), "{client}: {allowed}");
        assert_eq!(server.gate(&gate).await["state"], "started", "{client}");
        assert!(server.open_holds().await.is_empty(), "{client}: it was asked about before");
        server.http.post(&path, &repeat).await;
        assert_eq!(server.open_holds().await.len(), 1, "{client}: an approval is for one call");
        decide(&server, &json!({"resolution": "deny"})).await;
    }
    // An edit that keeps every key is merged into the same.
    let asked = json!({"session_id": "g2", "hook_event_name": "BeforeTool", "tool_name": "send_refund", "tool_input": {"command": "rm x"}});
    server.http.post("/hooks/gemini?wait=0", &asked).await;
    decide(&server, &edit).await;
    let allowed = server.http.post("/hooks/gemini?wait=0", &asked).await.body;
    assert_eq!(allowed["decision"], "allow", "{allowed}");
    assert_eq!(allowed["hookSpecificOutput"]["tool_input"]["command"], "ls  ü", "{allowed}");
}

fn hook(server: &str, arguments: &[&str], event: &str) -> Output {
    let mut command = standfast_testkit::standfast();
    command.arg("hook").args(arguments).args(["--server", server]).env_remove("STANDFAST_KEY");
    piped(&mut command, event)
}

fn piped(command: &mut Command, event: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(event.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// `standfast hook`: the answer on standard output, and a server that cannot be asked blocks with a sentence that says how to
/// switch it off. A server that is killed while somebody waits costs nothing but the time.
#[tokio::test]
async fn the_command_waits_over_a_restart_and_fails_closed() {
    let (folder, server) = plain();
    let event = bash("PreToolUse", "t1").to_string();
    let away = hook("http://127.0.0.1:9", &["--client", "claude-code", "--wait", "0"], &event);
    let said = String::from_utf8_lossy(&away.stderr).into_owned();
    assert_eq!(away.status.code(), Some(2), "{said}");
    assert!(
        said.contains("could not be asked") && said.contains("standfast hook uninstall claude-code"),
        "{said}"
    );
    assert!(away.stdout.is_empty());
    let bad = hook(&server.program.base, &["--client", "claude-code", "--wait", "0"], "{}x");
    assert_eq!(bad.status.code(), Some(2), "{bad:?}");
    let now = hook(&server.program.base, &["--client", "codex", "--wait", "0"], &event);
    let answer: Value = serde_json::from_slice(&now.stdout).unwrap();
    assert_eq!((now.status.code(), decision(&answer).0), (Some(0), "deny"), "{now:?}");
    let port = server.program.base.rsplit(':').next().unwrap().to_owned();
    let base = server.program.base.clone();
    let waiting = tokio::task::spawn_blocking(move || {
        hook(&base, &["--client", "claude-code", "--wait", "600"], &event)
    });
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    drop(server);
    let mut command = standfast_testkit::standfast();
    command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--config"]);
    command.arg(folder.path().join("standfast.yaml")).arg("--data").arg(folder.path().join("data"));
    let program = standfast_testkit::start(command.env("RUST_LOG", "warn"));
    let server = Server::of(program);
    decide(&server, &json!({"resolution": "approve"})).await;
    let done = waiting.await.unwrap();
    let answer: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((done.status.code(), decision(&answer).0), (Some(0), "allow"), "{done:?}");
}

/// `hook install` shows what changes, changes nothing with `--dry-run`, keeps what was there, and can be taken back.
#[test]
fn the_hook_is_installed_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = standfast_testkit::standfast();
        command.arg("hook").args(arguments).arg("--project").arg(folder.path());
        let done = command.stdin(Stdio::null()).output().unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap() + &String::from_utf8_lossy(&done.stderr))
    };
    let file = folder.path().join(".claude/settings.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let own = "{\n  \"model\": \"x\"\n}\n";
    std::fs::write(&file, own).unwrap();
    let (code, said) = run(&["install", "claude-code", "--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("+ ") && said.contains("standfast hook --client claude-code"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), own);
    let (code, said) = run(&["install", "claude-code"]);
    assert_eq!(code, Some(2), "nobody can be asked: {said}");
    let (code, said) = run(&["install", "claude-code", "--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let installed: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let hook = &installed["hooks"]["PreToolUse"][0]["hooks"][0];
    assert_eq!(
        (&hook["onFailure"], &hook["timeout"], &installed["model"]),
        (&json!("block"), &json!(86400), &json!("x"))
    );
    let (_, said) = run(&["uninstall", "claude-code", "--yes"]);
    assert!(said.contains("- "), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), own);
    let (code, said) = run(&["install", "emacs"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("claude-code"), "the clients are named: {said}");
}

/// Unknown clients and arguments are named; a key that may not open gates gets the error.
#[tokio::test]
async fn mistakes_of_hooks_are_named() {
    let (folder, server) = plain();
    let event = bash("PreToolUse", "t");
    for (path, body, status, says) in [
        ("/hooks/emacs", &event, 404, "the clients are: claude-code, codex"),
        ("/hooks/claude-code?whait=1", &event, 400, "whait"),
        ("/hooks/claude-code?then=approve", &event, 400, "approve"),
        ("/hooks/claude-code", &json!({"hook_event_name": "PreToolUse"}), 422, "no session_id"),
        ("/hooks/claude-code", &bash("BeforeToolUse", "t"), 422, "\"BeforeToolUse\" has a tool"),
        ("/hooks/gemini", &bash("Pretooluse", "t"), 422, "the events are: PreToolUse, "),
        (
            "/hooks/codex",
            &json!({"session_id": "s", "tool_name": "Bash", "tool_input": {}}),
            422,
            "\"\" has a tool",
        ),
    ] {
        let refused = server.http.post(path, body).await;
        assert_eq!(refused.status, status, "{path}: {refused:?}");
        assert!(text(&refused.body["detail"]).contains(says), "{path}: {refused:?}");
    }
    // What is about no call is news of the client, whatever it is called.
    for event in ["Notification", "Stop", "SomethingNew"] {
        let event = json!({"session_id": "s", "hook_event_name": event, "message": "x"});
        assert_eq!(server.http.post("/hooks/claude-code", &event).await.body, json!({}), "{event}");
    }
    drop(server);
    let _ = serve(folder.path(), "data");
}

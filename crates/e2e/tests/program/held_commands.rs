//! Commands that wait for people, with the real binary: what is approved is what runs (T3), and what was denied is not
//! asked about again (T28).
//!
//! Each is shown for runs in memory and for runs in a database.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};
use standfast_testkit::{Process as Server, folder, serve, serve_command, text};

/// One reply with one call.
fn calls(arguments: &Value) -> Value {
    json!({"calls": [{"tool": "execute_command", "arguments": arguments.to_string()}]})
}

/// Where runs are kept: settings of an agent, and what goes with them.
const STORES: [(&str, &str); 2] = [
    ("", ""),
    (
        "session_store: main, ",
        "session_stores: {main: {backend: sql, sql: {driver: sqlite, database: kept.db}}}\n",
    ),
];

/// A server whose one agent has commands without a sandbox: what is shown here is who is asked.
fn server_with(replies: &Value, store: (&str, &str)) -> (tempfile::TempDir, Server) {
    let script = json!({ "replies": replies }).to_string();
    let rest = format!(
        "{}tools: {{execute_command: {{sandbox: off}}}}\nagents: {{a: {{llm: s, {}tools: [execute_command], task: {{}}}}}}\n",
        store.1, store.0
    );
    let folder = folder(&[("s", &script)], &rest);
    std::fs::create_dir(folder.path().join("workspace")).unwrap();
    let server = serve(folder.path());
    (folder, server)
}

fn hold(server: &Server, run: &Value) -> Value {
    let holds = run["holds"].as_array().unwrap();
    assert_eq!(holds.len(), 1, "{run}");
    server.try_ask(&["holds", "show", text(&holds[0]["id"])]).unwrap()
}

fn log(server: &Server, run: &Value) -> String {
    server.try_ask(&["show", text(&run["id"])]).unwrap().to_string()
}

/// Waits until a run asks about something else than this hold.
fn next_hold(server: &Server, run: &Value, before: &Value) -> Value {
    for _ in 0..1200 {
        let now = server.run(text(&run["id"]));
        let holds = now["holds"].as_array().cloned().unwrap_or_default();
        if holds.iter().any(|hold| hold["id"] != before["id"]) {
            return hold(server, &now);
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("it is not asked about again: {}", log(server, run));
}

/// The digest of `deploy.sh` in what an approver reads.
fn sha256_of(reason: &str) -> String {
    let (_, rest) = reason.split_once("deploy.sh (sha256 ").unwrap();
    rest.split_once(')').unwrap().0.to_owned()
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join("workspace").join(name), text).unwrap();
}

/// T3: a script that is rewritten, or made, while its call waits does not run: the call is asked about again, as a new
/// revision with another digest, which a decision has to name. What was approved then is what runs.
#[test]
fn t3_a_script_that_changes_while_its_call_waits_is_asked_about_again() {
    for store in STORES {
        for is_there_before in [true, false] {
            let replies = json!([calls(&json!({"command": "sh deploy.sh"})), {"text": "done"}]);
            let (folder, server) = server_with(&replies, store);
            if is_there_before {
                write(folder.path(), "deploy.sh", "echo first > ran");
            }
            let run = server.send("a");
            let first = hold(&server, &run);
            let shown = text(&first["reason"]).to_owned();
            assert_eq!(shown.contains("deploy.sh (sha256 "), is_there_before, "{first}");
            assert!(first.get("drift").is_none(), "{first}");
            write(folder.path(), "deploy.sh", "echo second > ran");
            let drift = hold(&server, &run)["drift"].clone();
            assert_eq!(drift[0]["what"], "file", "{drift}");
            let told = text(&drift[0]["text"]).to_owned();
            server.try_ask(&["holds", "approve", text(&first["id"])]).unwrap();
            let second = next_hold(&server, &run, &first);
            assert!(!folder.path().join("workspace/ran").exists(), "it ran");
            assert_ne!(first["digest"], second["digest"]);
            assert_eq!(second["revision"], 1, "{second}");
            let reason = text(&second["reason"]);
            assert!(reason.contains("has changed since it was approved"), "{reason}");
            assert!(reason.contains("deploy.sh (sha256 ") && reason != shown, "{reason}");
            assert!(told.contains("The file ") && told.contains("deploy.sh "), "{told}");
            assert!(told.contains(&sha256_of(reason)), "what it is now: {told}");
            assert!(!is_there_before || told.contains(&sha256_of(&shown)), "what it was: {told}");
            let blind = server.try_ask(&["holds", "approve", text(&second["id"])]);
            assert!(blind.is_none(), "a decision that does not say what it is about: {blind:?}");
            let stale = ["holds", "approve", text(&second["id"]), "--digest", text(&first["digest"])];
            assert!(server.try_ask(&stale).is_none(), "with the digest of before");
            let seen = ["holds", "approve", text(&second["id"]), "--digest", text(&second["digest"])];
            server.try_ask(&seen).unwrap();
            server.run_once(text(&run["id"]), "completed");
            assert_eq!(std::fs::read_to_string(folder.path().join("workspace/ran")).unwrap(), "second\n");
            let log = log(&server, &run);
            assert_eq!(log.matches("\"call.started\"").count(), 1, "{log}");
        }
    }
}

/// T3: a script that stays as it was runs after one approval, and its contents are part of the digest.
#[test]
fn t3_a_script_that_stays_runs_after_one_approval() {
    let replies = json!([calls(&json!({"command": "sh deploy.sh"})), {"text": "done"}]);
    let mut digests = Vec::new();
    for contents in ["echo one > ran", "echo two > ran"] {
        let (folder, server) = server_with(&replies, STORES[0]);
        write(folder.path(), "deploy.sh", contents);
        let run = server.send("a");
        let hold = hold(&server, &run);
        digests.push(hold["digest"].clone());
        server.try_ask(&["holds", "approve", text(&hold["id"]), "--digest", text(&hold["digest"])]).unwrap();
        server.run_once(text(&run["id"]), "completed");
        assert!(folder.path().join("workspace/ran").exists());
    }
    assert_ne!(digests[0], digests[1]);
}

/// T3: a program that gets in front of the one that was shown, because its folder comes earlier in `PATH`, does not run in
/// its place: the call is asked about again, with the other path.
#[test]
fn t3_a_program_that_shadows_the_one_that_was_shown_is_asked_about_again() {
    let replies = json!([calls(&json!({"command": "deploy now"})), {"text": "done"}]);
    let script = json!({ "replies": replies }).to_string();
    let rest = "tools: {execute_command: {sandbox: off}}\nagents: {a: {llm: s, tools: [execute_command], task: {}}}\n";
    let folder = folder(&[("s", &script)], rest);
    let program = |place: &str, says: &str| {
        std::fs::create_dir_all(folder.path().join(place)).unwrap();
        let file = folder.path().join(place).join("deploy");
        std::fs::write(&file, format!("#!/bin/sh\necho {says} >> ran\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        file.display().to_string()
    };
    std::fs::create_dir(folder.path().join("workspace")).unwrap();
    let shown = program("second", "shown");
    let path = format!("{0}/first:{0}/second:{1}", folder.path().display(), std::env::var("PATH").unwrap());
    let server = standfast_testkit::start(serve_command(folder.path()).env("PATH", path));
    let run = server.send("a");
    let first = hold(&server, &run);
    assert!(text(&first["reason"]).contains(&shown), "{first}");
    let shadow = program("first", "shadow");
    server.try_ask(&["holds", "approve", text(&first["id"])]).unwrap();
    let second = next_hold(&server, &run, &first);
    assert!(text(&second["reason"]).contains(&shadow), "{second}");
    assert_ne!(first["digest"], second["digest"]);
    assert!(!folder.path().join("workspace/ran").exists(), "it ran");
    let seen = ["holds", "approve", text(&second["id"]), "--digest", text(&second["digest"])];
    server.try_ask(&seen).unwrap();
    server.run_once(text(&run["id"]), "completed");
    assert_eq!(std::fs::read_to_string(folder.path().join("workspace/ran")).unwrap(), "shadow\n");
}

/// T28: a denied call that the model raises again, in other spelling too, is refused without asking, and the model is
/// told. A person who says something after it is asked again.
#[test]
fn t28_a_denied_call_is_not_asked_about_again() {
    let replies = json!([
        calls(&json!({"command": "rm -r  old"})),
        calls(&json!({"command": "rm -r  old"})),
        calls(&json!({"argv": ["rm", "-r", "old"]})),
        calls(&json!({"command": "rm  -r old"})),
        {"text": "I leave it"},
    ]);
    for store in STORES {
        let (_folder, server) = server_with(&replies, store);
        let run = server.try_ask(&["send", "a", "please", "--wait", "--session", "s1"]).unwrap();
        let first = hold(&server, &run);
        server.try_ask(&["holds", "deny", text(&first["id"]), "--reason", "keep it"]).unwrap();
        server.run_once(text(&run["id"]), "completed");
        let log = log(&server, &run);
        assert_eq!(log.matches("\"hold.opened\"").count(), 1, "asked once: {log}");
        assert_eq!(log.matches("a person denied this call").count(), 3, "told three times: {log}");
        assert!(log.contains("standfast:denied-before"), "{log}");
        let again =
            server.try_ask(&["send", "a", "delete it after all", "--wait", "--session", "s1"]).unwrap();
        assert_eq!(again["status"], "held", "a person asks for it: {again}");
    }
}

/// T28: handing the work to another agent is no way around: a sub-run is refused what was denied above it, and the run
/// above what was denied in its sub-run.
#[test]
fn t28_a_denied_call_is_not_raised_by_another_agent() {
    let remove = calls(&json!({"command": "rm -r old"}));
    let ask =
        json!({"calls": [{"tool": "ask_helper", "arguments": json!({"message": "remove old"}).to_string()}]});
    let done = json!({"text": "done"});
    for (lead, helper) in [
        (json!([remove, ask, done]), json!([remove, done])),
        (json!([ask, remove, done]), json!([remove, done])),
    ] {
        let scripts = [json!({ "replies": lead }).to_string(), json!({ "replies": helper }).to_string()];
        let rest = "tools: {execute_command: {sandbox: off}, ask_helper: {type: agent, agent: helper, requires_approval: false}}
agents:
  lead: {llm: lead, tools: [execute_command, ask_helper], task: {}}
  helper: {llm: helper, description: Helps., tools: [execute_command], task: {}}
";
        let folder = folder(&[("lead", &scripts[0]), ("helper", &scripts[1])], rest);
        let server = serve(folder.path());
        let run = server.send("lead");
        let holds = server.try_ask(&["holds"]).unwrap();
        let asked: Vec<&Value> =
            holds["holds"].as_array().unwrap().iter().filter(|hold| hold["kind"] == "approval").collect();
        assert_eq!(asked.len(), 1, "{holds}");
        server.try_ask(&["holds", "deny", text(&asked[0]["id"])]).unwrap();
        server.run_once(text(&run["id"]), "completed");
        let holds = server.try_ask(&["holds"]).unwrap();
        assert_eq!(holds["holds"], json!([]), "nobody is asked again");
    }
}

/// T28: how long a denial is remembered is a setting; with nothing every call asks.
#[test]
fn t28_a_denial_is_forgotten_at_once_where_the_file_says_so() {
    let remove = calls(&json!({"command": "rm -r old"}));
    let script = json!({ "replies": [remove, remove, {"text": "done"}] }).to_string();
    let rest = "server: {limits: {deny_memory: 0s}}
tools: {execute_command: {sandbox: off}}
agents: {a: {llm: s, tools: [execute_command], task: {}}}
";
    let folder = folder(&[("s", &script)], rest);
    let server = serve(folder.path());
    let run = server.send("a");
    let first = hold(&server, &run);
    server.try_ask(&["holds", "deny", text(&first["id"])]).unwrap();
    let second = next_hold(&server, &run, &first);
    server.try_ask(&["holds", "deny", text(&second["id"])]).unwrap();
    server.run_once(text(&run["id"]), "completed");
}

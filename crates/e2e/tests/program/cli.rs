//! The client commands of the real binary against a real server.
//!
//! What they print, what they never print, and their exit codes: 0 done, 1 the answer is no, 2 could not ask.

#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

use serde_json::Value;
use standfast_testkit::{Process, until};
use tempfile::TempDir;

/// A running server; dropping it is `kill -9`.
struct Server {
    program: Process,
    _data: TempDir,
}

/// What a command said, and its exit code.
#[derive(Debug)]
struct Said {
    code: i32,
    out: String,
    err: String,
}

fn serve() -> Server {
    let data = tempfile::tempdir().unwrap();
    let mut command = standfast_testkit::standfast();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path()).env("RUST_LOG", "warn");
    Server { program: standfast_testkit::start(&mut command), _data: data }
}

fn ask(server: &str, arguments: &[&str]) -> Said {
    let mut command = standfast_testkit::standfast();
    let output = command.args(arguments).env("STANDFAST_SERVER", server).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

impl Server {
    fn does(&self, arguments: &[&str]) -> String {
        let said = ask(&self.program.base, arguments);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{arguments:?} {said:?}");
        said.out
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.does(&[arguments, &["--json"]].concat())).unwrap()
    }

    fn refuses(&self, arguments: &[&str]) -> String {
        let said = ask(&self.program.base, arguments);
        assert_eq!((said.code, said.out.as_str()), (1, ""), "{arguments:?} {said:?}");
        said.err
    }

    /// Starts a run and waits until it is held; its id and that of its hold.
    fn held(&self) -> (String, String) {
        let run = self.json(&["send", "ops", "Free some space", "--wait"]);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&run["id"]), text(&run["holds"][0]["id"]))
    }

    fn until_completed(&self, run: &str) {
        until(&format!("{run} is completed"), || self.json(&["show", run])["run"]["status"] == "completed");
    }
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn a_held_call_is_listed_shown_approved_and_runs() {
    let server = serve();
    let sent = server.does(&["send", "ops", "Free some space", "--wait", "--session", "s-1"]);
    has(&sent, &["held, waits for: person", "approval: hold_"]);
    let list = server.json(&["holds"]);
    let (hold, run) = (list["holds"][0]["id"].as_str().unwrap(), list["holds"][0]["run"].as_str().unwrap());
    let filters = ["--kind", "approval", "--agent", "ops", "--tool", "delete_file", "--session", "s-1"];
    has(&server.does(&[&["holds", "list"], &filters[..]].concat()), &[hold, "approval  delete_file  ops"]);
    assert_eq!(server.does(&["holds", "--kind", "input"]), "no pending holds\n");
    let digest = list["holds"][0]["digest"].as_str().unwrap();
    has(&server.does(&["holds", "show", hold]), &["    | {\"path\": \"/srv/cache/old\"}\n", digest, "open"]);

    let approved = server.does(&["holds", "approve", hold, "--digest", digest]);
    has(&approved, &[hold, "approved by person:local at 2", run]);
    server.until_completed(run);
    let shown = server.does(&["show", run]);
    has(&shown, &["completed", "Free some space", "hold.resolved", "I have dealt with the old cache."]);
    has(&server.does(&["runs", "--agent", "ops", "--session", "s-1"]), &[run, "completed"]);
    assert_eq!(server.does(&["runs", "--session", "s-2"]), "no runs\n");

    let late = server.refuses(&["holds", "approve", hold]);
    has(&late, &["already decided: approved by person:local at 2"]);
    let late = ask(&server.program.base, &["holds", "approve", hold, "--json"]);
    let problem: Value = serde_json::from_str(&late.out).unwrap();
    assert_eq!((late.code, &problem["status"]), (1, &Value::from(409)));
}

/// A server that shares its database with nobody sends no heartbeats, so nothing says until when it counts as there.
#[test]
fn a_single_node_has_no_end() {
    let server = serve();
    let nodes = server.json(&["nodes"]);
    assert!(nodes["nodes"][0]["seen_until"].is_null(), "{nodes}");
    let shown = server.does(&["nodes"]);
    assert!(shown.lines().nth(1).unwrap().trim_end().ends_with(" -"), "{shown}");
}

#[test]
fn deny_edit_and_cancel() {
    let server = serve();
    let (denied, hold) = server.held();
    has(&server.does(&["holds", "deny", &hold, "--reason", "still needed"]), &["denied by person:local"]);
    server.until_completed(&denied);
    has(&server.does(&["show", &denied]), &["| deny: still needed\n"]);

    let (edited, hold) = server.held();
    has(&server.refuses(&["holds", "approve", &hold, "--arguments", "{\"path\": 1}"]), &["/path"]);
    has(&server.does(&["holds", "approve", &hold, "--arguments", "{\"path\":  \"/x\"}"]), &["edited by"]);
    server.until_completed(&edited);

    let (canceled, hold) = server.held();
    has(&server.does(&["cancel", &canceled, "--reason", "not now"]), &[&canceled, "canceled", "not now"]);
    has(&server.refuses(&["holds", "approve", &hold]), &["already decided: withdrawn"]);
}

#[test]
fn a_no_says_what_is_wrong() {
    let server = serve();
    let (_, hold) = server.held();
    server.refuses(&["holds", "answer", &hold, "yes"]);
    server.refuses(&["show", "run_0/../x y"]);
    has(&server.refuses(&["send", "nobody", "hello"]), &["nobody"]);
    for (arguments, expected) in [
        (&["holds", "answer", &hold][..], "<VALUE>"),
        (&["holds", "approve", &hold, "--arguments", "{path"], "--arguments"),
    ] {
        let said = ask(&server.program.base, arguments);
        assert_eq!(said.code, 2, "{said:?}");
        has(&said.err, &[expected]);
    }
    has(&server.does(&["holds", "show", &hold]), &["open"]);
}

#[test]
fn what_a_terminal_obeys_or_hides_is_escaped() {
    let server = serve();
    let run = server.json(&["send", "ops", "a\u{1b}]52;c;eA==\u{7}\u{202e}b\rc\nd", "--wait"]);
    let shown = server.does(&["show", run["id"].as_str().unwrap()]);
    has(&shown, &["    | a\\u{1b}]52;c;eA==\\u{7}\\u{202e}b\\u{d}c\n    | d\n"]);
    assert!(!shown.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{shown:?}");
}

#[test]
fn without_a_server_it_says_how_to_start_one() {
    let gone = serve().program.base.clone();
    for (server, expected) in [
        (gone.as_str(), [gone.as_str(), "standfast serve --listen 127.0.0.1:"]),
        ("https://127.0.0.1:1", ["no server answers at https://127.0.0.1:1", "standfast serve"]),
        ("somewhere", ["somewhere", "http://127.0.0.1:8080"]),
    ] {
        let said = ask(server, &["holds"]);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{said:?}");
        has(&said.err, &expected);
    }
}

/// A list is everything, however many pages the server needs for it.
#[test]
fn lists_have_no_end_but_the_last() {
    let server = serve();
    let send = |_| server.does(&["send", "ops", "Free some space"]);
    (0..203).for_each(|no| drop(send(no)));
    assert_eq!(server.json(&["runs"])["runs"].as_array().unwrap().len(), 203);
    assert_eq!(server.does(&["runs"]).lines().count(), 204);
}

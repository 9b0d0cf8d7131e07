//! Calls: held, edited, decided after a restart, run once; and everything that can happen to an answer.
//!
//! The effects are counted where they happen: in files that the MCP servers write.

use serde_json::{Value, json};

use crate::mcp::server::{folder, lines, of_run, package, serve, text};

/// One call of a tool, then the end.
fn calls(tool: &str, arguments: &str) -> String {
    format!("- calls:\n  - tool: {tool}\n    arguments: '{arguments}'\n- text: done\n")
}

const UNRULY: &str = "  it: {type: mcp, command: node, args: [UNRULY, PLACE], timeout: 3s}\n";

/// T3, C32: what a server calls destructive is held; the arguments that a person put in their place are what runs, once,
/// after both servers were killed and started again.
#[test]
fn a_destructive_tool_is_held_edited_approved_after_a_restart_and_runs_once() {
    let program = package("server-filesystem");
    let tools = format!("  it: {{type: mcp, command: node, args: [{program:?}, PLACE]}}\n");
    let folder = folder("", &tools);
    let place = folder.path().join("place");
    std::fs::write(place.join("a.txt"), "precious").unwrap();
    let arguments = json!({"source": place.join("a.txt"), "destination": place.join("b.txt")});
    let script = format!("replies:\n{}", calls("it__move_file", &arguments.to_string()));
    std::fs::write(folder.path().join("script.yaml"), script).unwrap();

    let first = serve(folder.path());
    let run = text(&first.send("helper")["id"]).to_owned();
    let hold = first.hold(&run);
    assert_eq!(hold["tool"], "it__move_file", "{hold:#}");
    assert!(place.join("a.txt").exists());
    drop(first);

    let second = serve(folder.path());
    let edited = json!({"source": place.join("a.txt"), "destination": place.join("c.txt")}).to_string();
    second.ask(&["holds", "approve", text(&hold["id"]), "--arguments", &edited]);
    let ended = second.until_status(&run, "completed");
    assert_eq!(std::fs::read_to_string(place.join("c.txt")).unwrap(), "precious");
    assert!(!place.join("a.txt").exists() && !place.join("b.txt").exists());
    assert_eq!(events(&ended, "call.started").count(), 1, "{ended:#}");
}

/// C32: a read-only tool runs by itself; one that says nothing of itself is held.
#[test]
fn hints_decide_who_is_asked() {
    for (tool, status) in [("it__read", "completed"), ("it__write", "held"), ("it__mystery", "held")] {
        let folder = folder(&calls(tool, r#"{"how": "well"}"#), UNRULY);
        let server = serve(folder.path());
        assert_eq!(server.send("helper")["status"], status, "{tool}");
        assert!(!folder.path().join("place/leaked.txt").exists(), "it sees nothing of our environment");
    }
}

/// T29: a server that prints its environment does not put the secrets that it was given into the log; what is not a secret
/// stays.
#[test]
fn a_secret_of_the_environment_is_cut_from_results() {
    let program = package("server-everything");
    let tools = format!(
        "  it: {{type: mcp, command: node, args: [{program:?}], requires_approval: false, \
         env: {{API_TOKEN: '${{TOKEN}}', REGION: eu-central-1}}}}\n"
    );
    let folder = folder(&calls("it__get-env", "{}"), &tools);
    std::fs::write(folder.path().join(".env"), "TOKEN=canary-3f9c2a77\n").unwrap();
    let server = serve(folder.path());
    let run = text(&server.send("helper")["id"]).to_owned();
    let ended = server.until_status(&run, "completed").to_string();
    assert!(ended.contains("eu-central-1") && ended.contains("[secret]"), "{ended}");
    assert!(!ended.contains("canary-3f9c2a77"), "{ended}");
    drop(server);
    for name in ["sessions.db", "sessions.db-wal"] {
        let bytes = std::fs::read(folder.path().join(name)).unwrap_or_default();
        assert!(!bytes.windows(15).any(|window| window == b"canary-3f9c2a77"), "it is in {name}");
    }
}

/// C35, F27: of a call whose server died in the middle nobody knows what it did, and nobody makes it again; a person says
/// what happened. The next call finds a new server.
#[test]
fn a_server_that_dies_in_the_middle_leaves_an_unknown_outcome() {
    let folder = folder(&calls("it__write", r#"{"how": "die"}"#), UNRULY);
    let server = serve(folder.path());
    let run = text(&server.send("helper")["id"]).to_owned();
    server.ask(&["holds", "approve", text(&server.hold(&run)["id"])]);
    let recovery = server.until(&run, "held for recovery", |shown| is_held_for(shown, "recovery"));
    assert_eq!(lines(&folder, "ran.txt"), ["die"], "{recovery:#}");
    let hold = server.hold(&run);
    server.ask(&["holds", "answer", text(&hold["id"]), "it was written"]);
    server.until_status(&run, "completed");
    assert_eq!(lines(&folder, "ran.txt"), ["die"], "once");
    let again = text(&server.send("helper")["id"]).to_owned();
    server.ask(&["holds", "approve", text(&server.hold(&again)["id"]), "--arguments", r#"{"how": "well"}"#]);
    server.until_status(&again, "completed");
    assert_eq!(lines(&folder, "ran.txt"), ["die", "well"]);
}

/// C35: what changes nothing ends with an error for the model, and no person is asked.
#[test]
fn a_lost_answer_of_a_harmless_tool_asks_nobody() {
    let folder = folder(&calls("it__read", r#"{"how": "die"}"#), UNRULY);
    let server = serve(folder.path());
    let sent = server.send("helper");
    assert_eq!(sent["status"], "completed", "{sent:#}");
}

/// F27: a server that hangs, answers with garbage or floods costs its call and nothing else.
#[test]
fn a_server_that_hangs_floods_or_talks_nonsense_is_contained() {
    for how in ["hang", "garbage", "flood", "one long line"] {
        let folder = folder(&calls("it__read", &json!({"how": how}).to_string()), UNRULY);
        let server = serve(folder.path());
        let sent = server.send("helper");
        assert_eq!(sent["status"], "completed", "{how}: {sent:#}");
        let kilobytes = memory_of(server.child.id());
        assert!(kilobytes < 400_000, "{how}: {kilobytes} kB");
        assert_eq!(server.send("helper")["status"], "completed", "{how}: the next one");
    }
}

/// A call that takes too long gets a stop request; what it did until then nobody knows.
#[test]
fn a_call_that_takes_too_long_is_cancelled_and_its_outcome_unknown() {
    let folder = folder(&calls("it__write", r#"{"how": "hang"}"#), UNRULY);
    let server = serve(folder.path());
    let run = text(&server.send("helper")["id"]).to_owned();
    server.ask(&["holds", "approve", text(&server.hold(&run)["id"])]);
    server.until(&run, "held for recovery", |shown| is_held_for(shown, "recovery"));
    assert_eq!(
        (lines(&folder, "ran.txt"), lines(&folder, "cancelled.txt")),
        (vec!["hang".to_owned()], vec!["hang".to_owned()])
    );
}

/// Cancelling a run tells the server.
#[test]
fn cancelling_a_run_cancels_its_call() {
    let tools = UNRULY.replace("timeout: 3s", "timeout: 10m");
    let folder = folder(&calls("it__write", r#"{"how": "hang"}"#), &tools);
    let server = serve(folder.path());
    let run = text(&server.send("helper")["id"]).to_owned();
    server.ask(&["holds", "approve", text(&server.hold(&run)["id"])]);
    server.until(&run, "at work", |_| lines(&folder, "ran.txt") == ["hang"]);
    server.ask(&["cancel", &run]);
    server.until(&run, "cancelled there too", |_| lines(&folder, "cancelled.txt") == ["hang"]);
}

/// T3: a tool that its server describes in other words while its call waits is asked about again, with the difference;
/// so is one that changes between the approval and the start, also over a restart.
#[test]
fn a_tool_that_changes_while_its_call_waits_is_asked_about_again() {
    let folder = folder(&calls("it__write", r#"{"how": "well"}"#), UNRULY);
    let place = folder.path().join("place");
    let mut server = serve(folder.path());
    let run = text(&server.send("helper")["id"]).to_owned();
    let mut hold = server.hold(&run);
    for (words, restarts) in [("Writes a line and mails it.", false), ("Writes two lines.", true)] {
        let schema = json!({"type": "object"});
        let tools = json!([{"name": "write", "description": words, "inputSchema": schema}]);
        std::fs::write(place.join("tools.json"), tools.to_string()).unwrap();
        if restarts {
            drop(server);
            server = serve(folder.path());
        }
        server.ask(&["holds", "approve", text(&hold["id"])]);
        let before = hold["id"].clone();
        server.until(&run, "asked again", |shown| {
            let holds = of_run(shown)["holds"].as_array().cloned().unwrap_or_default();
            holds.iter().any(|hold| hold["id"] != before)
        });
        hold = server.hold(&run);
        assert!(hold.to_string().contains(words), "{hold:#}");
        assert!(lines(&folder, "ran.txt").is_empty());
    }
    server.ask(&["holds", "approve", text(&hold["id"])]);
    server.until_status(&run, "completed");
    assert_eq!(lines(&folder, "ran.txt"), ["well"], "what was approved last is what runs");
}

/// A long answer is stored once; the model reads on in it from the log, and the server is not asked again.
#[test]
fn a_long_answer_is_read_in_parts() {
    let second = "- calls:\n  - {tool: read_result, arguments: {call: 1, offset: 190000}}\n- text: done\n";
    let first = calls("it__read", r#"{"how": "much"}"#).replace("- text: done\n", second);
    let folder = folder(&first, UNRULY);
    let server = serve(folder.path());
    let sent = server.send("helper");
    let shown = server.until_status(text(&sent["id"]), "completed");
    let results: Vec<&str> = finished(&shown).collect();
    assert_eq!(results.len(), 2, "{results:?}");
    assert_eq!(results[0].len(), 200_000);
    assert_eq!(results[1], &results[0][190_000..]);
    assert_eq!(lines(&folder, "read.txt"), ["much"]);
}

fn events<'a>(shown: &'a Value, kind: &'static str) -> impl Iterator<Item = &'a Value> {
    shown["events"].as_array().unwrap().iter().filter(move |event| event["type"] == kind)
}

/// The result texts of the calls of a run.
fn finished(shown: &Value) -> impl Iterator<Item = &str> {
    events(shown, "call.finished").map(|event| text(&event["data"]["result"]["ok"]["text"]))
}

/// F27: programs below a server that is killed with signal 9 do not outlive it.
#[test]
fn a_program_ends_with_the_server_that_is_killed() {
    let folder = folder(&calls("it__read", r#"{"how": "well"}"#), UNRULY);
    let server = serve(folder.path());
    server.send("helper");
    let program = lines(&folder, "pid.txt")[0].clone();
    let is_there = || std::path::Path::new("/proc").join(&program).join("exe").exists();
    assert!(is_there());
    drop(server);
    for _ in 0..400 {
        if !is_there() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("process {program} is still there");
}

fn is_held_for(shown: &Value, kind: &str) -> bool {
    let holds = of_run(shown)["holds"].as_array().cloned().unwrap_or_default();
    holds.iter().any(|hold| hold["kind"] == kind)
}

/// The most memory that a process has had, in kilobytes.
fn memory_of(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

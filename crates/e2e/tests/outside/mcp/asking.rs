//! Servers that ask back: in the newest protocol, where the answer may come after everything was started again, and in
//! older ones, where a call is made again with it.
//!
//! A person answers through the command line, as to any other question.

use serde_json::json;

use crate::mcp::server::{folder, lines, on_postgres, package, packages, serve, text};

fn asking() -> String {
    let program = packages().join("asking.js");
    let line = "  it: {type: mcp, command: node, args: [PROGRAM, PLACE], overrides: {pay: {requires_approval: false}}}\n";
    line.replace("PROGRAM", &program.display().to_string())
}

const PAY: &str = "- calls:\n  - {tool: it__pay, arguments: {to: Ann}}\n- text: done\n";

/// S4-11: "input required" is a question to a person. Its answer, days later and after both servers were killed, goes to
/// the server with the state that it gave; the call pays once, and the model hears what came of it.
#[test]
fn what_a_server_asks_is_answered_after_a_restart_and_it_goes_on() {
    let folder = folder(PAY, &asking());
    let first = serve(folder.path());
    let run = text(&first.send("helper")["id"]).to_owned();
    let hold = first.hold(&run);
    assert_eq!(
        (&hold["kind"], &hold["question"]),
        (&json!("input"), &json!("How much does Ann get?")),
        "{hold:#}"
    );
    drop(first);

    let second = serve(folder.path());
    second.ask(&["holds", "answer", text(&hold["id"]), r#"{"cents": 250}"#]);
    let ended = second.until_status(&run, "completed").to_string();
    assert_eq!(lines(&folder, "paid.txt"), ["Ann 250"]);
    assert!(ended.contains("paid 250 cents to Ann"), "{ended}");
}

/// S4-11, C28: the same with several servers: one asks, is gone, and another one goes on with the answer.
#[test]
fn what_a_server_asks_is_answered_on_another_node() {
    let folder = folder(PAY, &asking());
    on_postgres(&folder);
    let first = serve(folder.path());
    let second = serve(folder.path());
    let run = text(&first.send("helper")["id"]).to_owned();
    let hold = second.hold(&run);
    drop(first);
    second.ask(&["holds", "answer", text(&hold["id"]), r#"{"cents": 250}"#]);
    let ended = second.until_status(&run, "completed").to_string();
    assert_eq!(lines(&folder, "paid.txt"), ["Ann 250"]);
    assert!(ended.contains("paid 250 cents to Ann"), "{ended}");
}

/// An answer that does not fit what the server asked for is refused, and the hold stays open.
#[test]
fn an_answer_that_does_not_fit_is_refused() {
    let folder = folder(PAY, &asking());
    let server = serve(folder.path());
    let run = text(&server.send("helper")["id"]).to_owned();
    let hold = server.hold(&run);
    let refused = server.refused(&["holds", "answer", text(&hold["id"]), r#"{"cents": "many"}"#]);
    assert!(refused.contains("cents"), "{refused}");
    assert_eq!(server.hold(&run)["id"], hold["id"]);
    server.ask(&["holds", "deny", text(&hold["id"]), "--reason", "not today"]);
    server.until_status(&run, "completed");
    assert!(lines(&folder, "paid.txt").is_empty());
}

/// An older server asks while the call is open. A call that may be made twice is ended and made again with the answer.
#[test]
fn an_older_server_is_called_again_with_the_answer() {
    let tool = "trigger-elicitation-request";
    let program = package("server-everything");
    let tools = format!(
        "  it: {{type: mcp, command: node, args: [{program:?}], allow: [{tool}], overrides: \
         {{{tool}: {{requires_approval: false, idempotent: true}}}}}}\n"
    );
    let folder = folder(&format!("- calls:\n  - {{tool: it__{tool}}}\n- text: done\n"), &tools);
    let server = serve(folder.path());
    let run = text(&server.send("helper")["id"]).to_owned();
    let hold = server.hold(&run);
    assert_eq!(hold["kind"], "input", "{hold:#}");
    let answer = json!({"name": "Ann Example", "check": true}).to_string();
    server.ask(&["holds", "answer", text(&hold["id"]), &answer]);
    let ended = server.until_status(&run, "completed").to_string();
    assert!(ended.contains("Ann Example"), "{ended}");
}

//! Commands of pages of the guide, typed as they are printed: gates, and older A2A clients.
//!
//! Pages whose commands need more than a server have tests beside what they are about; CONTRIBUTING.md lists them all.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::process::Command;

use serde_json::{Value, json};
use standfast_testkit::{Server, serve_command, start, text, until};

use crate::printed::{answers, blocks, page, types};

/// Whatever a command printed, one JSON document after the other.
fn documents(printed: &str) -> Vec<Value> {
    serde_json::Deserializer::from_str(printed).into_iter().collect::<Result<_, _>>().unwrap()
}

/// "Try it" of docs/gates.md: a gate is opened, decided, asked for again, started and reported, by the commands of the page.
#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_about_gates_do_what_it_says() {
    let (_folder, server) = crate::gates::plain();
    let page = page("gates.md").replace("http://127.0.0.1:8080", &server.program.base);
    let commands = blocks(&page, "sh");
    let [open, report] = commands.as_slice() else { panic!("{commands:?}") };
    let held = answers(open, &[]);
    assert_eq!(held["state"], "held", "{held}");
    assert!(text(&held["url"]).ends_with(text(&held["hold"])), "{held}");
    server.approve(text(&held["hold"])).await;
    let allowed = answers(open, &[]);
    assert_eq!((&allowed["gate"], &allowed["state"]), (&held["gate"], &json!("allowed")), "{allowed}");
    let variables = [("GATE", text(&allowed["gate"])), ("DIGEST", text(&allowed["digest"]))];
    let done = documents(&types(report, &variables));
    assert_eq!((&done[0]["attempt"], &done[1]["state"]), (&json!(1), &json!("done")), "{done:?}");
    assert_eq!(done[1]["outcome"], json!({"ok": true, "value": {"paid": 40}}));
}

/// docs/a2a-older.md: what a client of 0.3 sends, and one of the dialect from its question to the end, by the commands of the page.
#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_about_older_clients_do_what_it_says() {
    let script =
        "replies:\n- calls: [{tool: write_file, arguments: {path: a.txt, content: x}}]\n- text: written\n";
    let folder = standfast_testkit::folder(
        &[("script", script)],
        "session_stores: {main: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}}\n\
         agents:\n  ops: {llm: script, tools: [write_file], session_store: main, task: {}, a2a: {v03_card: true}}\n  \
         assistant: {llm: script, tools: [write_file], session_store: main, task: {}}\n",
    );
    let server = Server::of(start(&mut serve_command(folder.path())));
    let page = page("a2a-older.md")
        .replace("http://127.0.0.1:8080", &server.program.base)
        .replace("http://localhost:8080", &server.program.base);
    let commands = blocks(&page, "sh");
    let [older, dialect] = commands.as_slice() else { panic!("{commands:?}") };

    let task = answers(older, &[]);
    assert_eq!(task["result"]["status"]["state"], "input-required", "{task}");

    let [send, approve, subscribe, cancel] = dialect.split("\ncurl ").collect::<Vec<_>>()[..] else {
        panic!("{dialect}")
    };
    let held = answers(send, &[]);
    let held = held.get("task").unwrap_or(&held);
    assert_eq!(held["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{held}");
    let run = text(&held["id"]);
    let of_it = |command: &str| format!("curl {}", command.replace("run_…", run));
    // Whoever subscribes sees the question first, and then what follows from its answer.
    let heard = folder.path().join("heard");
    let mut listens = Command::new("sh");
    listens.args(["-c", &format!("exec {}", of_it(subscribe))]).env("NO_PROXY", "*");
    let mut listens = listens.stdout(File::create(&heard).unwrap()).spawn().unwrap();
    let hears = |what: &str| until(what, || std::fs::read_to_string(&heard).unwrap().contains(what));
    hears("TASK_STATE_INPUT_REQUIRED");
    let answered = answers(&of_it(approve), &[]);
    let answered = answered.get("task").unwrap_or(&answered);
    assert_eq!(answered["id"], json!(run), "{answered}");
    server.until(run, "completed").await;
    assert_eq!(std::fs::read_to_string(folder.path().join("workspace/a.txt")).unwrap(), "x");
    hears("TASK_STATE_COMPLETED");
    assert!(listens.wait().unwrap().success(), "the stream ends with the task");
    assert!(std::fs::read_to_string(&heard).unwrap().starts_with("event: status_update\n"));

    let second = answers(send, &[]);
    let second = second.get("task").unwrap_or(&second);
    let cancelled = answers(&format!("curl {}", cancel.replace("run_…", text(&second["id"]))), &[]);
    let cancelled = cancelled.get("task").unwrap_or(&cancelled);
    assert_eq!(cancelled["status"]["state"], "TASK_STATE_CANCELLED", "{cancelled}");
}

//! The example client and the commands that the page prints, run against the real program.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::printed::{answers, blocks, is_as_shown, keyed, page};
use crate::teal::elsewhere::Elsewhere;
use crate::teal::server::{Folder, Line, Server, demo, keyed_demo, text};

fn client(server: &Server, key: Option<&str>, more: &[&str], typed: &str) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/teal_agents_client.py");
    let mut command = Command::new("python3");
    command.arg(script).args([&server.program.base, "ops", "Free some space"]).args(more);
    command.env_remove("STANDFAST_KEY").envs(key.map(|key| ("STANDFAST_KEY", key)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// S1-3, S1-12, S1-20: chat, the pause, a decision, the result, as the guide has it.
#[tokio::test]
async fn the_python_client_goes_round_the_loop() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let approved = client(&server, None, &["--yes"], "");
    let said = String::from_utf8_lossy(&approved.stdout).into_owned();
    assert!(approved.status.success(), "{said}{}", String::from_utf8_lossy(&approved.stderr));
    assert!(said.contains("Human intervention required."), "{said}");
    assert!(said.contains(r#"delete_file {"path": "/srv/cache/old"}"#), "{said}");
    assert!(said.ends_with("I have dealt with the old cache.\n"), "{said}");
    let rejected = client(&server, None, &[], "hm\nreject\n");
    let said = String::from_utf8_lossy(&rejected.stdout).into_owned();
    assert!(said.ends_with("Canceled: The task was canceled\n"), "{said}");
}

/// S1-20, C11: a task that works for longer than the client waits is asked for until it has ended; nothing is sent twice.
#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_goes_on_when_it_has_not_waited_long_enough() {
    let elsewhere = Elsewhere::slow().await;
    let folder = Folder::new(&elsewhere, &[("ops", &[Line::Asks(&["/a"]), Line::Says("done")])], "");
    let server = folder.serve();
    let later = elsewhere.clone();
    tokio::spawn(async move {
        // However long the client took to begin.
        later.until(1).await;
        tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
        later.answer();
    });
    let run =
        tokio::task::spawn_blocking(move || (client(&server, None, &["--yes", "--wait", "1"], ""), server));
    let (output, _server) = run.await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("still at work\n") && said.ends_with("done\n"), "{said}");
    assert_eq!(elsewhere.got(), ["/a"], "one call");
}

/// S1-3, S1-11, S1-12, S1-20: the commands of docs/teal-agents.md as they are printed, with the address and the id of the request in
/// their places: what comes has exactly the members and the values that the page shows below each.
#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_answer_as_it_shows() {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let address = server.program.address();
    let page = page("teal-agents.md").replace("localhost:8080", address);
    let (commands, shown) = (blocks(&page, "console"), blocks(&page, "json"));
    let [chat, decide, loops] = commands.as_slice() else { panic!("{commands:?}") };
    let [pause, done, _working] = shown.as_slice() else { panic!("{shown:?}") };
    let read = |shown: &str| serde_json::from_str::<Value>(shown).unwrap();
    let paused = answers(chat, &[]);
    is_as_shown(&read(pause), &paused);
    assert!(!data.path().join("demo-effects.log").exists(), "nothing has run yet");
    is_as_shown(&read(done), &answers(&decide.replace("req_…", text(&paused["request_id"])), &[]));
    // The program of the page asks whoever sits there.
    let said = crate::printed::types(&format!("echo approve | {}", loops.trim_start_matches("$ ")), &[]);
    assert!(said.ends_with("I have dealt with the old cache.\n"), "{said}");
}

/// S1-3, S1-12, S1-14, S1-20: the same commands and the program where keys are wanted, with the header that the page names and the variable
/// that the program reads; without a key both are refused.
#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_work_with_a_key() {
    let data = tempfile::tempdir().unwrap();
    let (server, key) = keyed_demo(data.path());
    let page = page("teal-agents.md").replace("localhost:8080", server.program.address());
    let commands = blocks(&page, "console");
    let [chat, decide, loops] = commands.as_slice() else { panic!("{commands:?}") };
    let shown = blocks(&page, "json");
    let [pause, done, _working] = shown.as_slice() else { panic!("{shown:?}") };
    let variables = [("STANDFAST_KEY", key.as_str())];
    let refused = answers(chat, &[]);
    assert!(refused["detail"].is_string() && refused["task_id"].is_null(), "{refused}");
    let read = |shown: &str| serde_json::from_str::<Value>(shown).unwrap();
    let paused = answers(&keyed(&page, chat), &variables);
    is_as_shown(&read(pause), &paused);
    let decide = decide.replace("req_…", text(&paused["request_id"]));
    is_as_shown(&read(done), &answers(&keyed(&page, &decide), &variables));
    let typed = format!("echo approve | {}", loops.trim_start_matches("$ "));
    let said = crate::printed::types(&typed, &variables);
    assert!(said.ends_with("I have dealt with the old cache.\n"), "{said}");
    let nobody = client(&server, None, &["--yes"], "");
    assert!(!nobody.status.success(), "{}", String::from_utf8_lossy(&nobody.stdout));
}

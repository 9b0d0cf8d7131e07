//! The printed command example with its effect on disk (S3-21): what is approved is removed, and where the sandbox is in the
//! way, people are warned before and told after.
//!
//! The folder of the server is not below /tmp, which commands can change here.

use std::path::Path;

use serde_json::{Value, json};

use crate::a2a::dialect::{BEGIN, curl, decision};
use crate::a2a::server::{Server, configured, state};

/// The agent of the printed examples, with `rm -rf` of this folder.
fn assistant(folder: &Path, removes: &Path, more: &str) -> Server {
    let call = json!({"command": format!("rm -rf {}", removes.display())}).to_string();
    let script = json!({"replies": [{"calls": [{"tool": "execute_command", "arguments": call}]}, {"text": "All done."}]});
    std::fs::write(folder.join("script.yaml"), script.to_string()).unwrap();
    let config = format!(
        "llms: {{s: {{type: scripted, script: script.yaml}}}}\n\
         tools: {{execute_command: {{type: command, requires_approval: true, allowed_commands: [rm]{more}}}}}\n\
         agents: {{assistant: {{llm: s, tools: [execute_command], task: {{}}}}}}\n"
    );
    configured(folder, &config)
}

fn folders() -> (tempfile::TempDir, tempfile::TempDir) {
    let own = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let temporary = tempfile::Builder::new().prefix("standfast-example-").tempdir_in("/tmp").unwrap();
    let old = temporary.path().join("old-files");
    std::fs::create_dir(&old).unwrap();
    std::fs::write(old.join("a.txt"), "old").unwrap();
    (own, temporary)
}

fn asked(server: &Server) -> (Value, String, Value) {
    let began = curl(server, BEGIN);
    let task = began["task"].clone();
    assert_eq!(state(&task), "TASK_STATE_INPUT_REQUIRED", "{began}");
    let parts = &task["status"]["message"]["parts"];
    let (text, data) = (parts[0]["text"].as_str().unwrap().to_owned(), parts[1]["data"].clone());
    (task, text, data)
}

/// What the model got of the call.
fn told(server: &Server, task: &Value) -> String {
    let log = server.program.try_ask(&["show", task["id"].as_str().unwrap()]).unwrap();
    log.to_string()
}

/// S3-21: with `writable: [/tmp]`, as the guide prints it, the command does what it says once it is approved, and is not
/// warned of.
#[test]
fn s3_21_the_printed_command_has_its_effect() {
    let (own, temporary) = folders();
    let old = temporary.path().join("old-files");
    let server = assistant(own.path(), &old, ", writable: [/tmp]");
    let (task, text, _) = asked(&server);
    let expected = format!(
        "🔐 Tool Approval Required\n\nTool: execute_command\nInput: rm -rf {}\n\nPlease respond with one of: approve, deny, modify",
        old.display()
    );
    assert_eq!(text, expected);
    assert!(old.join("a.txt").exists(), "nothing happens before the approval");
    let done = curl(&server, &decision(&task, "approve", ""));
    assert_eq!(state(&done["task"]), "TASK_STATE_COMPLETED", "{done}");
    assert!(!old.exists(), "{}", told(&server, &task));
    assert!(temporary.path().exists());
}

/// S3-21: without it the question warns of the path, and the refusal is told to the model and to whoever reads the log as
/// what it is.
#[test]
fn s3_21_what_the_sandbox_refuses_is_said_before_and_after() {
    let (own, temporary) = folders();
    let old = temporary.path().join("old-files");
    let server = assistant(own.path(), &old, "");
    let (task, text, data) = asked(&server);
    let warning = format!("{} is not there for commands: commands can change only ", old.display());
    assert!(text.contains(&format!("⚠️ {warning}")) && text.contains("(`writable`)"), "{text}");
    assert!(data["reason"].as_str().unwrap().contains(&format!("Warning: {warning}")), "{data}");
    let hold = server.program.try_ask(&["holds", "show", data["hold_id"].as_str().unwrap()]).unwrap();
    assert!(hold["reason"].as_str().unwrap().contains(&warning), "{hold}");
    let done = curl(&server, &decision(&task, "approve", ""));
    assert_eq!(state(&done["task"]), "TASK_STATE_COMPLETED", "{done}");
    assert!(old.join("a.txt").exists(), "the sandbox did not hold");
    let log = told(&server, &task);
    assert!(
        log.contains("the sandbox refused it") && log.contains("(`writable` and `readable` add directories)"),
        "{log}"
    );
}

/// A folder with the server's own files inside cannot be given to commands; `validate` says so with the key.
#[test]
fn what_the_server_lives_in_cannot_be_made_writable() {
    let own = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let config = "llms: {s: {type: scripted, script: script.yaml}}\n\
                  tools: {execute_command: {writable: [.]}}\n\
                  agents: {a: {llm: s, tools: [execute_command], task: {}}}\n";
    std::fs::write(own.path().join("script.yaml"), "replies: [{text: done}]\n").unwrap();
    std::fs::write(own.path().join("standfast.yaml"), config).unwrap();
    let output = standfast_testkit::standfast()
        .arg("validate")
        .arg(own.path().join("standfast.yaml"))
        .output()
        .unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("tools.execute_command.writable") || said.contains("it lies inside of ."),
        "{said}"
    );
}

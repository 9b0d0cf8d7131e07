//! A configuration file that a running server cannot take any more: its rules stay as they were, the log says so, and no server starts
//! with it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};
use standfast_testkit::{Process, folder, standfast, text, until};

use crate::policy::{logging, reloads, replaced};

const RULES: &str = "policy: {rules: [{id: kept, hold: write_file, because: others read it}]}\n";

/// What becomes of the file, and what the log says then.
type Damage = (&'static str, fn(&Path), &'static str);

const DAMAGES: [Damage; 4] = [
    (
        "garbage",
        |file| std::fs::write(file, "\0policy: [[[ %").unwrap(),
        "the changed configuration is invalid, the old one stays in use",
    ),
    (
        "a rule that is none",
        |file| {
            let text = std::fs::read_to_string(file).unwrap();
            std::fs::write(file, text.replace("hold: write_file", "alow: write_file")).unwrap();
        },
        "the changed configuration is invalid, the old one stays in use",
    ),
    (
        "a folder",
        |file| {
            std::fs::remove_file(file).unwrap();
            std::fs::create_dir(file).unwrap();
        },
        "the configuration cannot be read, the old one stays in use",
    ),
    (
        "gone",
        |file| std::fs::remove_file(file).unwrap(),
        "the configuration cannot be read, the old one stays in use",
    ),
];

/// A call of the agent is held by the rule.
fn is_held(server: &Process) -> Value {
    let run = server.send("a");
    assert_eq!(run["status"], "held", "{run}");
    let hold = server.ask(&["holds", "show", text(&run["holds"][0]["id"])]);
    assert_eq!(hold["because"], json!(["others read it"]), "{hold}");
    assert_eq!(hold["demands"][0]["rule"], "rule:kept", "{hold}");
    hold
}

/// What was held is held, whatever becomes of the file: garbage, a mistake, a folder in its place, nothing. A start refuses each.
#[test]
fn a_file_that_cannot_be_taken_loosens_nothing() {
    let call =
        json!({"tool": "write_file", "arguments": json!({"path": "a.txt", "content": "x"}).to_string()});
    let script = json!({"replies": [{"calls": [call]}, {"text": "done"}]}).to_string();
    let folder = folder(
        &[("s", &script)],
        &format!(
            "tools: {{write_file: {{requires_approval: false}}}}\nagents: {{a: {{llm: s, tools: [write_file], task: {{}}}}}}\n{RULES}"
        ),
    );
    let (at, file) = (folder.path(), folder.path().join("standfast.yaml"));
    let good = std::fs::read_to_string(&file).unwrap();
    let log_file = at.join("server.log");
    let server = logging(at, &log_file);
    let log = || std::fs::read_to_string(&log_file).unwrap();
    let first = is_held(&server);
    for (what, damage, told) in DAMAGES {
        let before = (log().matches(told).count(), reloads(&log_file));
        damage(&file);
        until(&format!("{what} is told"), || log().matches(told).count() > before.0);
        is_held(&server);
        let mut start = standfast();
        start.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&file);
        let refused = start.arg("--data").arg(at.join("other")).output().unwrap();
        assert!(!refused.status.success(), "{what}: {refused:?}");
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(why.contains("standfast.yaml"), "{what}: {why}");
        if file.is_dir() {
            std::fs::remove_dir(&file).unwrap();
        }
        replaced(at, &good);
        until(&format!("the file is back after {what}"), || reloads(&log_file) > before.1);
    }
    // Nobody may read it. Whoever may read everything still can, and nothing has changed for them.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::read(&file).is_err() {
        let told = "the configuration cannot be read, the old one stays in use: Permission denied";
        until("the permission is told", || log().contains(told));
    }
    is_held(&server);
    server.ask(&["holds", "deny", text(&first["id"])]);
    assert!(!at.join("workspace/a.txt").exists());
}

//! The page docs/remote-agents.md as its reader follows it: its configuration, the answers of its table and its command.
//!
//! The remote agent is another Standfast that wants keys.

use std::process::Command;

use serde_json::json;
use standfast_testkit::{binary, standfast};

use super::server::{free_port, serve, serve_at, text, worker};
use crate::pages::{block, page, quoted, table, with};

/// A call of the remote agent needs approval, like any other; its question shows here what it is about, by the members that the page names;
/// and each answer of the page does there what it says.
#[test]
fn the_page_of_remote_agents_hands_work_over_and_answers() {
    let page = page("remote-agents.md");
    let (there, port) = (worker(), free_port());
    let file = there.path().join("standfast.yaml");
    let config = with(&std::fs::read_to_string(&file).unwrap(), &[("{worker:", "{payments:")]);
    std::fs::write(&file, format!("{config}server: {{auth: {{api_keys: true}}}}\n")).unwrap();
    let mut keys = standfast();
    let made = keys.args(["keys", "create", "--user", "bank", "--config"]).arg(&file).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let key = String::from_utf8(made.stdout).unwrap();
    let _worker = serve_at(there.path(), port);
    let paid = || std::fs::read_to_string(there.path().join("workspace/paid.txt")).ok();

    let url = "    url: https://bank.example.org/v1/agents/payments\n";
    let here_instead =
        format!("    url: http://127.0.0.1:{port}/v1/agents/payments\n    allowed_hosts: [127.0.0.1]\n");
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "llms: {{main: {{type: scripted, script: script.yaml}}}}\n\
         session_stores: {{main-db: {{backend: sql, sql: {{driver: sqlite, database: ./sessions.db}}}}}}\n{}\n",
        with(block(&page, "yaml", 0), &[(url, &here_instead)])
    );
    let script = "replies:\n- calls: [{tool: bank, arguments: {message: pay the bill}}]\n- text: all done\n";
    std::fs::write(folder.path().join("script.yaml"), script).unwrap();
    std::fs::write(folder.path().join("standfast.yaml"), config).unwrap();
    std::fs::write(folder.path().join(".env"), format!("BANK_TOKEN={}\n", key.trim())).unwrap();
    let here = serve(folder.path());

    let (_, about) = page.split_once("A question from another Standfast shows in `data`").unwrap();
    let members = quoted(about.split('.').next().unwrap());
    let rows = table(&page, "## Another Standfast");
    let row = rows.iter().find(|row| row[0] == "`tool_approval`").unwrap();
    let answers: Vec<&str> = quoted(row[1]).into_iter().filter(|text| text.starts_with('{')).collect();
    let [approve, deny, modify] = answers.as_slice() else { panic!("{answers:?}") };
    let command = block(&page, "sh", 0);
    assert!(command.contains(approve), "{command}");
    let input = json!({"path": "paid.txt", "content": "twice"}).to_string();
    let modified = modify.replace("\"{…}\"", &json!(input).to_string());
    for (answer, outcome) in [
        (deny.replace('…', "too dear"), None),
        ((*approve).to_owned(), Some("once")),
        (modified, Some("twice")),
    ] {
        let run = here.begin("assistant");
        let asked = here.hold_of_kind(&run, "approval");
        assert_eq!(asked["tool"], "bank", "{asked:#}");
        here.ask(&["holds", "approve", text(&asked["id"])]);
        let question = here.hold_of_kind(&run, "input");
        let data = &question["data"];
        assert!(members.len() > 4 && members.iter().all(|name| data[*name].is_string()), "{question:#}");
        assert_eq!(data["interaction_type"], "tool_approval");
        let typed = command.replace("hold_…", text(&question["id"])).replace(approve, &answer);
        types(&typed, &here.base);
        here.until_status(&run, "completed");
        assert_eq!(paid().as_deref(), outcome, "{answer}");
    }
}

/// Types a command at a terminal whose `standfast` is the program that is tested.
fn types(command: &str, server: &str) {
    let program = binary::path();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(program.parent().unwrap().to_owned()).chain(std::env::split_paths(&path));
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env("PATH", std::env::join_paths(folders).unwrap());
    let done = shell.env("STANDFAST_SERVER", server).env_remove("STANDFAST_KEY").output().unwrap();
    assert!(done.status.success(), "{command}: {}", String::from_utf8_lossy(&done.stderr));
}

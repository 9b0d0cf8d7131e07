//! `standfast holds` on a real terminal: what is on the screen of tmux, key by key.
//!
//! Ids and ages differ from run to run; in the screens they are replaced. Each test has a tmux of its own, which ends with it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use standfast_testkit::{Process, serve_command, standfast, start, text, until};

const SCRIPT: &str = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"echo hello\"}'\n- text: done\n";

const CONFIG: &str = "
tools: {execute_command: {allowed_commands: [echo]}}
session_stores: {main-db: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}}
agents: {ops: {llm: script, session_store: main-db, tools: [execute_command], task: {}}}
";

/// A terminal of 140 columns and 24 lines.
struct Terminal {
    socket: String,
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

impl Terminal {
    fn open(folder: &Path, server: &Process, editor: &str) -> Terminal {
        let terminal = Terminal { socket: folder.join("tmux").to_str().unwrap().to_owned() };
        let program = standfast_testkit::binary::path();
        let run = format!(
            "EDITOR='{editor}' VISUAL= '{}' holds --server {}; sleep 600",
            program.display(),
            server.base
        );
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "140", "-y", "24", &run]);
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux").args(["-u", "-S", &self.socket]).args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"][..], keys].concat());
    }

    /// The screen once it has all of these.
    fn shows(&self, what: &[&str]) -> String {
        let mut screen = String::new();
        until(&format!("the screen shows {what:?}"), || {
            screen = self.screen();
            what.iter().all(|what| screen.contains(what))
        });
        screen
    }
}

fn held(folder: &Path) -> (Process, String, String) {
    let server = start(&mut serve_command(folder));
    let held = server.send("ops");
    let (run, hold) = (text(&held["id"]).to_owned(), text(&held["holds"][0]["id"]).to_owned());
    (server, run, hold)
}

/// What is the same in every run: ids, digests, instants and ages are replaced.
fn steady(screen: &str, hold: &str, run: &str) -> Vec<String> {
    let line = |line: &str| {
        let line =
            line.replace(hold, "HOLD").replace(run, "RUN").replace(&run.replace("run_", "ses_"), "SES");
        let words = line.split_whitespace().map(|word| {
            let is_age = word.strip_suffix(['s', 'm']).is_some_and(|n| n.parse::<u32>().is_ok());
            let is_instant = word.ends_with('Z') && word.contains('T');
            let is_digest = word.len() == 52 && word.bytes().all(|c| c.is_ascii_alphanumeric());
            match (is_age, is_instant, is_digest) {
                (true, _, _) => "AGE",
                (_, true, _) => "INSTANT",
                (_, _, true) => "DIGEST",
                _ => word,
            }
        });
        words.collect::<Vec<_>>().join(" ")
    };
    screen.lines().map(line).filter(|line| !line.is_empty()).collect()
}

/// List, detail, approval: nothing is approved before the call was on the screen.
#[test]
fn a_hold_is_looked_at_and_approved() {
    let folder = standfast_testkit::folder(&[("script", SCRIPT)], CONFIG);
    let (server, run, hold) = held(folder.path());
    let terminal = Terminal::open(folder.path(), &server, "vi");
    let list = terminal.shows(&["Pending holds: 1", "execute_command", "q leave"]);
    assert_eq!(
        steady(&list, &hold, &run),
        [
            "Pending holds: 1",
            "AGE KIND TOOL AGENT WHAT",
            r#"> AGE approval execute_command ops {"command": "echo hello"}"#,
            "↑↓ choose enter open r reload q leave",
        ]
    );
    terminal.keys(&["a"]);
    terminal.shows(&["open it first"]);
    terminal.keys(&["Enter"]);
    let detail = terminal.shows(&["arguments:", "a approve", "digest:"]);
    assert!(detail.contains(r#"| {"command": "echo hello"}"#), "{detail}");
    let lines = steady(&detail, &hold, &run);
    assert_eq!(lines[0], "HOLD approval of execute_command (ops): pending, open for AGE", "{detail}");
    assert!(
        lines.contains(&"run: RUN".to_owned()) && lines.contains(&"digest: DIGEST".to_owned()),
        "{lines:?}"
    );
    terminal.keys(&["a"]);
    terminal.shows(&["Run execute_command once with", "any other key: no"]);
    terminal.keys(&["n"]);
    terminal.shows(&["a approve"]);
    assert_eq!(server.run(&run)["status"], "held", "nothing was decided");
    terminal.keys(&["a", "y"]);
    terminal.shows(&["approved by person:local", "Nothing waits for anybody."]);
    server.run_once(&run, "completed");
    // Live: the next one appears by itself.
    server.send("ops");
    terminal.shows(&["Pending holds: 1"]);
}

/// A denial with its reason; an edit, which shows what changed before it counts.
#[test]
fn a_hold_is_denied_and_another_one_edited() {
    let folder = standfast_testkit::folder(&[("script", SCRIPT)], CONFIG);
    let (server, run, _) = held(folder.path());
    let terminal = Terminal::open(folder.path(), &server, "sed -i s/hello/other/");
    terminal.shows(&["Pending holds: 1"]);
    terminal.keys(&["Enter"]);
    terminal.shows(&["d deny"]);
    terminal.keys(&["d", "not today"]);
    terminal.shows(&["Reason, which the agent sees: not today_"]);
    terminal.keys(&["Enter"]);
    terminal.shows(&["denied by person:local", "Nothing waits for anybody."]);
    let log = server.ask(&["show", &run]).to_string();
    assert!(log.contains("not today"), "{log}");

    let other = server.send("ops");
    terminal.shows(&["Pending holds: 1"]);
    terminal.keys(&["Enter"]);
    terminal.shows(&["e edit"]);
    terminal.keys(&["e"]);
    let diff = terminal.shows(&["with the lines marked +?"]);
    assert!(diff.contains("- ") && diff.contains(r"+     | {") && diff.contains("other"), "{diff}");
    terminal.keys(&["y"]);
    terminal.shows(&["edited by person:local"]);
    server.run_once(text(&other["id"]), "completed");
}

/// What a model hides in arguments or in a question is seen as an escape, and the terminal obeys none of it.
#[test]
fn what_would_deceive_is_seen_in_the_picker() {
    let script = "replies:\n- calls:\n  - tool: execute_command\n    arguments: \"{\\\"command\\\": \\\"echo \\u202Efdp.exe\\\"}\"\n\
         - calls:\n  - tool: suspend-for-input\n    arguments: '{\"reason\": \"\\u001b[2J\\u001b]0;title\\u0007Which\\u202e folder?\"}'\n- text: done\n";
    let config = CONFIG.replace("tools: [execute_command]", "tools: [execute_command, suspend-for-input]");
    let folder = standfast_testkit::folder(&[("script", script)], &config);
    let (server, run, hold) = held(folder.path());
    let detail = |hold: &str, what: &str| {
        let terminal = Terminal::open(folder.path(), &server, "vi");
        let list = terminal.shows(&["Pending holds: 1", r"\u"]);
        assert!(!list.contains('\u{202e}'), "{list:?}");
        terminal.keys(&["Enter"]);
        let detail = terminal.shows(&[what, "esc back"]);
        assert!(!detail.contains('\u{202e}'), "{detail:?}");
        steady(&detail, hold, &run)
    };
    let call = detail(&hold, "arguments:");
    assert_eq!(
        call,
        [
            "HOLD approval of execute_command (ops): pending, open for AGE",
            "HOLD approval, open",
            "run: RUN",
            "agent: ops",
            "session: SES",
            "opened: INSTANT",
            "tool: execute_command",
            "digest: DIGEST",
            "decides: the owner of the run (user:local)",
            "reason:",
            r#"| "⟨U+202E⟩fdp.exe" has characters that are not shown as they are"#,
            "question:",
            "| 🔐 Tool Approval Required",
            "|",
            "| Tool: execute_command",
            r"| Input: echo \u{202e}fdp.exe",
            "|",
            "| Please respond with one of: approve, deny, modify",
            "arguments:",
            r#"| {"command": "echo \u{202e}fdp.exe"}"#,
            "a approve d deny e edit ↑↓ scroll esc back",
        ]
    );
    server.ask(&["holds", "approve", &hold]);
    let question = server.hold_of_kind(&run, "input");
    let asked = detail(text(&question["id"]), "folder?");
    assert_eq!(
        asked,
        [
            "HOLD input of suspend-for-input (ops): pending, open for AGE",
            "HOLD input, open",
            "run: RUN",
            "agent: ops",
            "session: SES",
            "opened: INSTANT",
            "tool: suspend-for-input",
            "digest: DIGEST",
            "decides: the owner of the run (user:local)",
            "reason:",
            r"| \u{1b}[2J\u{1b}]0;title\u{7}Which\u{202e} folder?",
            "arguments:",
            r#"| {"reason": "\u001b[2J\u001b]0;title\u0007Which\u202e folder?"}"#,
            "w answer d deny ↑↓ scroll esc back",
        ]
    );
}

/// Ids may be shortened as long as they fit one hold.
#[test]
fn ids_may_be_shortened() {
    let folder = standfast_testkit::folder(&[("script", SCRIPT)], CONFIG);
    let (server, run, first) = held(folder.path());
    let second = text(&server.send("ops")["holds"][0]["id"]).to_owned();
    let common = first.bytes().zip(second.bytes()).take_while(|(one, other)| one == other).count();
    let said = server.refused(&["holds", "show", &first[..common]]);
    assert!(
        said.contains("fits 2 pending holds") && said.contains(&first) && said.contains(&second),
        "{said}"
    );
    let listed = standfast().args(["holds", "--server", &server.base]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.starts_with("AGE") && listed.contains(&first) && listed.contains("\"echo "), "{listed}");
    server.ask(&["holds", "approve", first[..=common].trim_start_matches("hold_")]);
    server.run_once(&run, "completed");
}

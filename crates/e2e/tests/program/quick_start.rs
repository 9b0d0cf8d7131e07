//! The commands of docs/quick-start.md, of docs/a2a-approvals.md and of "Try it" in README.md, run as they stand against
//! the real program.
//!
//! What a page shows below a command is what the command must print. `…` stands for anything in a line, or for any lines
//! where it stands alone; blanks may be more or fewer. Four things are put in the place of others: the address, so that
//! no port must be free; that of a model on this machine; ids, where a page has `run_…` or `hold_…`; and building the program,
//! which cargo has done.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use standfast_testkit::process::listens_on;
use standfast_testkit::provider::{Answer, Fake};
use tempfile::TempDir;

/// How a page calls the server.
const ADDRESS: &str = "127.0.0.1:8080";

/// Where a page has a model that somebody runs on this machine.
const MODEL: &str = "127.0.0.1:11434";

/// What a page runs the server by.
const SERVERS: &[&str] = &["standfast serve"];

/// What makes `standfast` a command in a terminal; here it is one already.
const SETUP: &[&str] = &["cargo build --release", "export PATH="];

/// The process that pages kill; here it must be no other than the test's own.
const THE_SERVER: &str = "$(pgrep -x standfast)";

/// One command of a page, and what is shown below it.
pub(crate) struct Step {
    pub(crate) command: String,
    pub(crate) shown: Vec<String>,
}

/// The commands in the `console` blocks of a page.
pub(crate) fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut inside, mut goes_on) = (false, false);
    for line in page.lines() {
        if line.starts_with("```") {
            (inside, goes_on) = (line == "```console", false);
        } else if inside && let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_owned(), shown: Vec::new() });
            goes_on = command.ends_with('\\');
        } else if inside && goes_on {
            let step = steps.last_mut().unwrap();
            step.command.push_str(&format!("\n{line}"));
            goes_on = line.ends_with('\\');
        } else if inside {
            steps.last_mut().unwrap().shown.push(line.to_owned());
        }
    }
    steps
}

/// Whether what came is what is shown.
pub(crate) fn is_as_shown(shown: &[String], came: &[String]) -> bool {
    match shown.split_first() {
        None => came.is_empty(),
        Some((line, rest)) if line == "…" => (0..=came.len()).any(|skip| is_as_shown(rest, &came[skip..])),
        Some((line, rest)) => {
            came.split_first().is_some_and(|(first, others)| fits(line, first) && is_as_shown(rest, others))
        }
    }
}

/// Whether a line is as shown, with anything in the place of each `…`.
fn fits(shown: &str, came: &str) -> bool {
    let one_blank = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (shown, came) = (one_blank(shown), one_blank(came));
    let pieces: Vec<&str> = shown.split('…').collect();
    let [first, between @ .., last] = &pieces[..] else { return shown == came };
    let Some(mut rest) = came.strip_prefix(first) else { return false };
    for piece in between {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

/// The last id with this prefix in a text.
fn last_id(prefix: &str, text: &str) -> Option<String> {
    let ids = text.match_indices(prefix).map(|(at, _)| {
        let behind = &text[at + prefix.len()..];
        let length = behind.bytes().take_while(u8::is_ascii_alphanumeric).count();
        format!("{prefix}{}", &behind[..length])
    });
    ids.filter(|id| id.len() > prefix.len() + 10).last()
}

/// Somebody at two terminals: one with the server, one for everything else.
struct Person {
    folder: TempDir,
    server: Option<Child>,
    address: String,
    model: String,
    run: Option<String>,
    hold: Option<String>,
}

impl Drop for Person {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Person {
    /// In an empty home, in a folder with the examples.
    fn new() -> Person {
        let folder = tempfile::tempdir().unwrap();
        let (home, examples) = (folder.path().join("home"), folder.path().join("examples"));
        std::fs::create_dir(&home).unwrap();
        std::fs::create_dir(&examples).unwrap();
        for entry in std::fs::read_dir(repository().join("examples")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "yaml") {
                std::fs::copy(&path, examples.join(path.file_name().unwrap())).unwrap();
            }
        }
        Person {
            folder,
            server: None,
            address: ADDRESS.to_owned(),
            model: MODEL.to_owned(),
            run: None,
            hold: None,
        }
    }

    fn terminal(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let standfast = standfast_testkit::binary::path();
        let bin = standfast.parent().unwrap();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(bin.to_path_buf()).chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(folders).unwrap());
        command.env("HOME", self.folder.path().join("home")).current_dir(self.folder.path());
        for other in ["XDG_DATA_HOME", "STANDFAST_KEY", "OPENAI_API_KEY"] {
            command.env_remove(other);
        }
        command.env("STANDFAST_SERVER", format!("http://{}", self.address)).env("RUST_LOG", "warn");
        command
    }

    fn does(&mut self, step: &Step) {
        let command = &step.command;
        if SETUP.iter().any(|setup| command.starts_with(setup)) {
            assert!(step.shown.is_empty(), "{command} shows something");
        } else if SERVERS.iter().any(|server| command.starts_with(server)) {
            self.serves(step);
        } else if command.contains(THE_SERVER) {
            let mut server = self.server.take().unwrap();
            let killed = self.types(&command.replace(THE_SERVER, &server.id().to_string()));
            assert_eq!(killed, (true, String::new()), "{command}");
            server.wait().unwrap();
        } else {
            self.asks(step);
        }
    }

    /// Starts the server and waits until it has said what is shown. One that runs is stopped first, by ctrl-c.
    fn serves(&mut self, step: &Step) {
        if let Some(mut server) = self.server.take() {
            assert!(self.types(&format!("kill -INT {}", server.id())).0);
            assert!(server.wait().unwrap().success(), "ctrl-c ends it in order");
        }
        let arguments = SERVERS.iter().find_map(|server| step.command.strip_prefix(server)).unwrap();
        let mut command = self.terminal(standfast_testkit::binary::path());
        command.arg("serve").args(arguments.split_whitespace()).args(["--listen", "127.0.0.1:0"]);
        let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(server.stdout.take().unwrap());
        self.server = Some(server);
        let said = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                hears.lock().unwrap().push(line);
            }
        });
        for _ in 0..1500 {
            let came = said.lock().unwrap().clone();
            if let Some(address) = came.first().and_then(|line| listens_on(line)?.strip_prefix("http://")) {
                self.address = address.to_owned();
                if step.shown.is_empty() || is_as_shown(&self.meant(&step.shown), &came) {
                    return;
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!(
            "{}\nshown:\n{}\nsaid:\n{}",
            step.command,
            step.shown.join("\n"),
            said.lock().unwrap().join("\n")
        );
    }

    /// Types a command and compares what it prints. A file may still be on its way, and is looked at again.
    fn asks(&mut self, step: &Step) {
        let command = self.meant(std::slice::from_ref(&step.command)).remove(0);
        let id = |id: &Option<String>| id.clone().unwrap_or_default();
        let command = command.replace("run_…", &id(&self.run)).replace("hold_…", &id(&self.hold));
        assert!(!command.contains('…'), "nobody can type {command}");
        let shown = self.meant(&step.shown);
        let tries = if command.starts_with("cat ") { 500 } else { 1 };
        let mut printed = String::new();
        for _ in 0..tries {
            let (done, text) = self.types(&command);
            let came: Vec<String> = text.lines().map(str::to_owned).collect();
            self.run = last_id("run_", &text).or(self.run.take());
            self.hold = last_id("hold_", &text).or(self.hold.take());
            let is_fine = if shown.is_empty() {
                done && !text.contains("urn:standfast:problem:")
            } else {
                is_as_shown(&shown, &came)
            };
            if is_fine {
                return;
            }
            printed = text;
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("$ {command}\nshown:\n{}\nprinted:\n{printed}", shown.join("\n"));
    }

    /// Whether it ended well, and what it printed.
    fn types(&self, command: &str) -> (bool, String) {
        let output = self.terminal("sh").arg("-c").arg(format!("exec 2>&1\n{command}")).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    }

    /// What a page means here: with the addresses of this server and of the model.
    fn meant(&self, lines: &[String]) -> Vec<String> {
        lines.iter().map(|line| line.replace(ADDRESS, &self.address).replace(MODEL, &self.model)).collect()
    }
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

fn page(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap()
}

/// A reply of a model that speaks OpenAI's protocol, in one piece.
fn reply(delta: &serde_json::Value, why_it_ends: &str) -> Answer {
    let choice = |delta: &serde_json::Value, end: serde_json::Value| {
        let chunk = serde_json::json!({"choices": [{"index": 0, "delta": delta, "finish_reason": end}]});
        format!("data: {chunk}\n\n")
    };
    let end = choice(&serde_json::json!({}), why_it_ends.into());
    Answer::stream(format!("{}{end}data: [DONE]\n\n", choice(delta, serde_json::Value::Null)))
}

/// A reply that calls a tool.
fn call(tool: &str, arguments: &str) -> Answer {
    let function = serde_json::json!({"name": tool, "arguments": arguments});
    let call = serde_json::json!({"index": 0, "id": "call_1", "type": "function", "function": function});
    reply(&serde_json::json!({"tool_calls": [call]}), "tool_calls")
}

/// S0-79: a run that waits survives `kill -9`, is decided after a restart and goes on. The guide's first page of commands
/// shows it, and every command on it does what it says; also with a model of one's own, which is tried, asks and is asked again.
#[test]
fn the_five_minute_start_works_as_it_stands() {
    let steps = steps(&page("docs/quick-start.md"));
    assert!(steps.len() >= 15, "only {} commands were found", steps.len());
    let says = || reply(&serde_json::json!({"content": "Some examples."}), "stop");
    let model = Fake::answering(vec![
        call("ping", r#"{"word": "ready"}"#),
        says(),
        call("execute_command", r#"{"command": "ls"}"#),
        says(),
    ]);
    let mut person = Person::new();
    person.model = model.url.strip_prefix("http://").unwrap().to_owned();
    for step in &steps {
        person.does(step);
    }
    let asked = model.requests();
    assert_eq!(asked.len(), 4, "tried twice, and asked twice by the agent: {asked:?}");
    assert!(asked[3].body.contains("call_1"), "it is told what the command printed: {}", asked[3].body);
}

/// The same for the first thing that anybody reads.
#[test]
fn the_readme_can_be_tried_as_it_stands() {
    let page = page("README.md");
    let section = page.split("\n## Try it\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let steps = steps(section);
    assert!(steps.len() >= 10, "only {} commands were found", steps.len());
    let mut person = Person::new();
    for step in &steps {
        person.does(step);
    }
}

/// The ten lines of configuration in the README are ten at most, and right as they stand; with a script in the model's place they serve an
/// agent whose commands wait for a person.
#[test]
fn the_ten_lines_of_the_readme_are_right() {
    let page = page("README.md");
    let lines = page.split("\n```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(lines.lines().count() <= 10, "{lines}");
    let script = "replies:\n- calls: [{tool: execute_command, arguments: '{\"command\": \"git --version\"}'}]\n- text: done\n";
    let folder = standfast_testkit::folder(&[("unused", script)], "");
    let file = folder.path().join("standfast.yaml");
    std::fs::write(&file, lines).unwrap();
    let mut validate = standfast_testkit::standfast();
    let checked = validate.arg("validate").arg(&file).env("ANTHROPIC_API_KEY", "none").output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    let model = "{type: anthropic, model: claude-sonnet-4-5, api_key: \"${ANTHROPIC_API_KEY}\"}";
    assert!(lines.contains(model), "{lines}");
    std::fs::write(folder.path().join("script.yaml"), script).unwrap();
    std::fs::write(&file, lines.replace(model, "{type: scripted, script: script.yaml}")).unwrap();
    let server = standfast_testkit::serve(folder.path());
    let held = server.send("ops");
    let hold = server.ask(&["holds", "show", standfast_testkit::text(&held["holds"][0]["id"])]);
    assert_eq!((&hold["kind"], &hold["tool"]), (&"approval".into(), &"execute_command".into()), "{hold}");
}

/// S3-29, S3-30, C11: the guide to approvals over A2A has its chapters, every command in it does what it says, and the
/// programs that it shows are the ones that are tested.
#[test]
fn approvals_over_a2a_work_as_the_guide_says() {
    let page = page("docs/a2a-approvals.md");
    for chapter in [
        "What is standard about it",
        "Use cases",
        "Configuration",
        "How it works",
        "With curl",
        "In Python",
        "In TypeScript",
        "What you can answer",
        "Cancelling",
        "Subscribing",
        "Good practice",
        "When it does not work",
        "Complete example",
    ] {
        assert!(page.contains(&format!("\n## {chapter}\n")), "there is no chapter {chapter}");
    }
    for path in ["approval-loop/loop.py", "approval-loop/loop.ts", "complete.yaml"] {
        let file = std::fs::read_to_string(repository().join("examples").join(path)).unwrap();
        assert!(page.contains(file.trim_end()), "the page shows another {path}");
    }
    let steps = steps(&page);
    assert!(steps.len() >= 11, "only {} commands were found", steps.len());
    let mut person = Person::new();
    for step in &steps {
        person.does(step);
    }
}

/// The promise in the guide is the one in the README.
#[test]
fn there_is_one_promise() {
    let promise = |text: String| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("> ")).map(str::to_owned).collect()
    };
    let in_guide = promise(page("docs/README.md"));
    assert_eq!(in_guide.len(), 3);
    assert_eq!(promise(page("README.md")), in_guide);
}

#[test]
fn placeholders_stand_for_anything_and_everything_else_for_itself() {
    for (shown, came, is_so) in [
        ("run_…  held", "run_06gy held", true),
        ("run_…  held", "run_06gy  completed", false),
        ("a … b … c", "a 1 b 2 c", true),
        ("a … b", "a b b c", false),
        ("…", "", true),
        ("exact", "exact", true),
        ("exact", "exactly", false),
    ] {
        assert_eq!(fits(shown, came), is_so, "{shown} / {came}");
    }
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(is_as_shown(&lines("a\n…\nd"), &lines("a\nb\nc\nd")));
    assert!(is_as_shown(&lines("a\n…"), &lines("a")));
    assert!(!is_as_shown(&lines("a\n…\nd"), &lines("a\nb")));
    assert!(!is_as_shown(&lines("a"), &lines("a\nb")));
}

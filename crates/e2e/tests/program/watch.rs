//! Following runs with the real binary: words as they are said, `standfast watch`, and editing in an editor.
//!
//! Words of the model come beside the log: before the reply, without a number, and never twice.

#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use standfast_testkit::Process;
use tempfile::TempDir;

/// A process that is killed when it is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(data: &Path, listen: &str) -> Process {
    let mut command = standfast_testkit::standfast();
    command.args(["serve", "--listen", listen, "--data"]).arg(data).env("RUST_LOG", "warn");
    standfast_testkit::start(&mut command)
}

fn command(address: &str, arguments: &[&str]) -> Command {
    let mut command = standfast_testkit::standfast();
    command.args(arguments).env("STANDFAST_SERVER", format!("http://{address}"));
    command
}

/// What a command prints, and its exit code.
fn said(address: &str, arguments: &[&str]) -> (i32, String, String) {
    let output = command(address, arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn does(address: &str, arguments: &[&str]) -> String {
    let (code, out, err) = said(address, arguments);
    assert_eq!((code, err.as_str()), (0, ""), "{arguments:?} {out}");
    out
}

/// A run that waits; its id and that of its hold.
fn held(address: &str) -> (String, String) {
    let run: Value =
        serde_json::from_str(&does(address, &["send", "ops", "Free some space", "--wait", "--json"]))
            .unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&run["id"]), text(&run["holds"][0]["id"]))
}

/// A command that goes on, line by line.
struct Follower {
    _child: Killed,
    lines: BufReader<ChildStdout>,
}

impl Follower {
    fn start(address: &str, arguments: &[&str]) -> Follower {
        let mut child =
            command(address, arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Follower { _child: Killed(child), lines }
    }

    /// Reads until a line with this part; all lines until then. Ends when the command does.
    fn until(&mut self, part: &str) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "{part:?} never came: {seen:?}");
            seen.push(line.trim_end().to_owned());
            if line.contains(part) {
                return seen;
            }
        }
    }

    fn rest(mut self) -> String {
        let mut text = String::new();
        self.lines.read_to_string(&mut text).unwrap();
        text
    }
}

/// The events of a run as a raw stream, frame by frame.
struct Frames {
    lines: BufReader<TcpStream>,
}

#[derive(Debug, Default)]
struct Frame {
    id: Option<u64>,
    event: String,
    data: String,
}

impl Frames {
    fn open(address: &str, run: &str, after: u64) -> Frames {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(
            stream,
            "GET /api/v1/runs/{run}/events HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n\
             last-event-id: {after}\r\n\r\n"
        )
        .unwrap();
        Frames { lines: BufReader::new(stream) }
    }

    /// Frames up to the first of this type.
    fn until(&mut self, event: &str) -> Vec<Frame> {
        let (mut frames, mut frame) = (Vec::new(), Frame::default());
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "{event} never came: {frames:?}");
            match line.trim_end().split_once(": ") {
                Some(("id", id)) => frame.id = Some(id.parse().unwrap()),
                Some(("event", event)) => frame.event = event.to_owned(),
                Some(("data", data)) => frame.data = data.to_owned(),
                _ if line.trim_end().is_empty() && !frame.event.is_empty() => {
                    frames.push(std::mem::take(&mut frame));
                    if frames.last().unwrap().event == event {
                        return frames;
                    }
                }
                _ => {}
            }
        }
    }
}

/// What is said comes before the reply, without an id; whoever comes back hears nothing twice and misses no event.
#[test]
fn words_come_before_the_reply_and_move_no_cursor() {
    let data = tempfile::tempdir().unwrap();
    let server = serve(data.path(), "127.0.0.1:0");
    let (run, hold) = held(server.address());
    let mut frames = Frames::open(server.address(), &run, 0);
    let before = frames.until("hold.opened");
    assert!(before.iter().all(|frame| frame.event != "delta"), "{before:?}");
    let waited = before.last().unwrap().id.unwrap();
    does(server.address(), &["holds", "approve", &hold]);

    let after = frames.until("run.ended");
    let place = |event: &str| after.iter().position(|frame| frame.event == event).unwrap();
    let deltas: Vec<&Frame> = after.iter().filter(|frame| frame.event == "delta").collect();
    assert!(deltas.iter().all(|delta| delta.id.is_none()));
    assert_eq!(place("model.replied"), place("delta") + deltas.len(), "{after:?}");
    assert!(place("call.finished") < place("delta"), "{after:?}");
    let bodies: Vec<Value> = deltas.iter().map(|delta| serde_json::from_str(&delta.data).unwrap()).collect();
    let words: Vec<&str> = bodies.iter().map(|body| body["text"].as_str().unwrap()).collect();
    assert_eq!(words.concat(), "I have dealt with the old cache.");
    assert!(bodies.iter().zip(1..).all(|(body, no)| body["no"] == no && body["turn"] == 1), "{bodies:?}");

    let again = Frames::open(server.address(), &run, waited).until("run.ended");
    let ids = |frames: &[Frame]| frames.iter().filter_map(|frame| frame.id).collect::<Vec<_>>();
    assert_eq!(ids(&again), ids(&after));
    assert_eq!(ids(&again), (waited + 1..=waited + ids(&again).len() as u64).collect::<Vec<_>>());
    assert!(again.iter().all(|frame| frame.event != "delta"), "{again:?}");
}

/// A restart of the server neither ends the watching nor repeats a line.
#[test]
fn a_run_is_watched_across_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let address = format!("127.0.0.1:{}", standfast_testkit::free_port());
    let first = serve(data.path(), &address);
    let (run, hold) = held(&address);
    let settled = does(&address, &["watch", &run]);
    assert!(settled.lines().next().unwrap().contains("run.started"), "{settled}");
    assert!(settled.contains("hold.opened") && settled.contains(&hold), "{settled}");

    let mut watching = Follower::start(&address, &["watch", &run, "--until", "ended", "--json"]);
    let mut seen = watching.until("hold.opened");
    drop(first);
    let _second = serve(data.path(), &address);
    does(&address, &["holds", "approve", &hold]);
    seen.extend(watching.rest().lines().map(str::to_owned));
    let events: Vec<Value> = seen.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let numbers: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    assert_eq!(events.last().unwrap()["type"], "run.ended");
    let (code, out, err) = said(&address, &["watch", "run_0"]);
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
}

#[test]
fn without_a_run_what_waits_is_watched() {
    let data = tempfile::tempdir().unwrap();
    let server = serve(data.path(), "127.0.0.1:0");
    let (_, old) = held(server.address());
    let mut text = Follower::start(server.address(), &["watch"]);
    let mut json = Follower::start(server.address(), &["watch", "--json"]);
    text.until(&format!("{old}  approval of delete_file (ops): pending"));
    json.until(&old);
    let (_, new) = held(server.address());
    text.until(&format!("{new}  approval of delete_file (ops): pending"));
    does(server.address(), &["holds", "deny", &old]);
    text.until(&format!("{old}  approval of delete_file (ops): denied by person:local at 2"));
    let lines = json.until("\"type\":\"decided\"");
    let decided: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    assert_eq!((&decided["hold"]["id"], &decided["hold"]["decided"]["how"]), (&old.into(), &"denied".into()));
}

/// An editor that runs a line of shell on the file.
fn editor(directory: &TempDir, name: &str, line: &str) -> String {
    let path = directory.path().join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{line}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("'{}' --wait", path.display())
}

/// What a person wrote in their editor is what runs; what is not taken is not lost.
#[test]
fn arguments_are_edited_as_with_git_commit() {
    let data = tempfile::tempdir().unwrap();
    let server = serve(data.path(), "127.0.0.1:0");
    let (run, hold) = held(server.address());
    let edit = |editor: &str| {
        let mut command = command(server.address(), &["holds", "edit", &hold]);
        let output = command.env_remove("VISUAL").env("EDITOR", editor).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    for (name, line, code, expected) in [
        ("leave", "true", 1, "the arguments are unchanged"),
        ("empty", ": > \"$2\"", 1, "the file is empty"),
        ("fails", "exit 3", 2, "ended with exit status: 3"),
        ("not-json", "echo '{path' > \"$2\"", 1, "these arguments are not JSON"),
        ("misfit", "echo '{\"path\": 7}' > \"$2\"", 1, "what you wrote is kept in "),
    ] {
        let (was, out, err) = edit(&editor(&data, name, line));
        assert_eq!((was, out.as_str()), (code, ""), "{name} {err}");
        assert!(err.contains(expected), "{name} {err}");
        for kept in err.lines().filter_map(|line| line.strip_prefix("what you wrote is kept in ")) {
            assert!(std::fs::read_to_string(kept).unwrap().contains("path"), "{kept}");
            std::fs::remove_file(kept).unwrap();
        }
    }
    let change = editor(&data, "change", "sed -i 's|/srv/cache/old|/srv/cache/older|' \"$2\"");
    let (code, out, err) = edit(&change);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("edited by person:local"), "{out}");
    does(server.address(), &["watch", &run, "--until", "ended"]);
    let effects = std::fs::read_to_string(data.path().join("demo-effects.log")).unwrap();
    assert!(
        effects.ends_with("{\"path\": \"/srv/cache/older\"}\n") && effects.lines().count() == 1,
        "{effects}"
    );

    let (_, hold) = held(server.address());
    let file = data.path().join("arguments.json");
    std::fs::write(&file, "{\"path\":  \"/x\"}\n").unwrap();
    let out = does(
        server.address(),
        &["holds", "edit", &hold, "--arguments-file", file.to_str().unwrap(), "--json"],
    );
    let resolved: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(resolved["hold"]["decided"]["how"], "edited");
    does(server.address(), &["watch", resolved["hold"]["run"].as_str().unwrap(), "--until", "ended"]);
    let effects = std::fs::read_to_string(data.path().join("demo-effects.log")).unwrap();
    assert!(effects.ends_with(" {\"path\":  \"/x\"}\n"), "{effects}");
}

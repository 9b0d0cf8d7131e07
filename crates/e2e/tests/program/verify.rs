//! `standfast verify`: what it plays, what it prints, and that it leaves nothing behind, neither files nor processes.
//!
//! Whether a broken promise would be noticed is shown by the unit tests of its judgements; here it is played for real.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use standfast_store::conformance::cluster::shared;
use standfast_testkit::until;
use tempfile::TempDir;

use crate::quick_start::{is_as_shown, steps};

/// Pending holds, for whom and how long, in one file: rules with a quorum and groups, other people than the owner, a timeout.
const FILE: &str = r#"
llms:
  claude: {type: anthropic, model: some-model, api_key: "${VERIFY_TEST_KEY}"}
tools:
  execute_command:
    allowed_commands: [ls]
    working_directory: /nonexistent/verify
  pay:
    type: external
    url: https://pay.example.org/jobs
    parameters:
      type: object
      properties:
        to: {type: string, minLength: 3}
        amount: {type: integer, minimum: 1}
      required: [to, amount]
      additionalProperties: false
policy:
  rules:
    - id: small
      allow: pay
      where: {amount: {ge: 1, le: 100}}
    - id: large
      hold: pay
      where: {amount: {gt: 100}}
      because: large payments are looked at
      approvers: ["group:finance"]
      quorum: 2
      expire_after: 48h
      on_timeout: cancel
session_stores:
  main: {backend: sql, sql: {driver: sqlite, database: ./mine.db}}
server:
  listen: 0.0.0.0:1
  self_approval: forbid
  auth: {api_keys: true}
  public_url: https://standfast.example.org
agents:
  payer:
    llm: claude
    session_store: main
    tools: [pay]
    approvers: ["user:ann"]
    task: {}
  shell:
    llm: claude
    session_store: main
    tools: [execute_command]
    approvers: ["user:ann", "role:on-call"]
    task: {input_timeout: 2h, hitl: {on_timeout: keep, expiry_grace: 7d, on_deny: cancel}}
"#;

/// A folder with a file, and one for whatever is temporary.
struct Place {
    folder: TempDir,
    temporary: TempDir,
}

impl Place {
    fn with(text: &str) -> Place {
        let (folder, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(folder.path().join("mine.yaml"), text).unwrap();
        Place { folder, temporary }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = standfast_testkit::standfast();
        command.arg("verify").arg(self.folder.path().join("mine.yaml")).args(arguments);
        command.env("TMPDIR", self.temporary.path()).env_remove("VERIFY_TEST_KEY");
        command
    }

    fn verify(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The report, of a verification in which nothing failed.
    fn report(&self, arguments: &[&str]) -> Value {
        let output = self.command(arguments).arg("--json").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no report: {said}"));
        assert!(output.status.success(), "{report:#}\n{said}");
        report
    }

    /// Nothing is left of it: no file in the temporary folder, none beside the configuration, no process.
    fn assert_untouched(&self, beside: &[&str]) {
        assert_eq!(entries(self.temporary.path()), Vec::<String>::new());
        let mut expected = vec!["mine.yaml".to_owned()];
        expected.extend(beside.iter().map(|name| (*name).to_owned()));
        expected.sort();
        assert_eq!(entries(self.folder.path()), expected);
        assert_eq!(processes(self.temporary.path()), 0);
    }
}

fn entries(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Servers that were started with files of this folder.
fn processes(folder: &Path) -> usize {
    let folder = folder.to_str().unwrap();
    let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(folder)).count()
}

fn result<'a>(report: &'a Value, agent: &str, case: &str) -> (&'a str, &'a str) {
    let agents = report["agents"].as_array().unwrap();
    let agent = agents.iter().find(|one| one["agent"] == agent).unwrap();
    let cases = agent["cases"].as_array().unwrap();
    let case = cases.iter().find(|one| one["case"] == case).unwrap();
    (case["result"].as_str().unwrap(), case["why"].as_str().unwrap())
}

/// All of it is played and kept, with rules, groups, a quorum and times of the file; the keys of models are not needed, and
/// nothing of the user's is touched: neither the database that the file names nor the folder that its tools would work in.
#[test]
fn everything_that_a_file_promises_is_played() {
    let place = Place::with(FILE);
    let junit = place.temporary.path().join("junit.xml");
    let report = place.report(&["--allow-unset", "--junit", junit.to_str().unwrap()]);
    for agent in ["payer", "shell"] {
        for case in [
            "kill-while-held",
            "kill-in-tool",
            "double-approval",
            "stale-digest",
            "edited-arguments",
            "denied",
        ] {
            assert_eq!(result(&report, agent, case).0, "passed", "{report:#}");
        }
        for case in ["expiry", "lost-store"] {
            assert_eq!(result(&report, agent, case).0, "passed", "{report:#}");
        }
        let (verdict, why) = result(&report, agent, "two-nodes");
        assert_eq!((verdict, why), ("not applicable", "its store is SQLite, which one server opens"));
    }
    assert_eq!(report["agents"][0]["call"]["tool"], "pay");
    assert_eq!(report["agents"][0]["call"]["held_by"], serde_json::json!(["rule:large"]), "{report:#}");
    let (_, why) = result(&report, "payer", "expiry");
    assert_eq!(why, "no start; on_timeout: cancel, the run is canceled");
    let (_, why) = result(&report, "shell", "expiry");
    assert_eq!(why, "no start; on_timeout: keep, the run is held");
    let (_, why) = result(&report, "shell", "denied");
    assert_eq!(why, "no start; on_deny: cancel, the run is canceled");

    let read = "import sys, xml.etree.ElementTree as t; r = t.parse(sys.argv[1]).getroot(); \
                print(r.tag, len(r.findall('.//testcase')), len(r.findall('.//skipped')), len(r.findall('.//failure')))";
    let read = Command::new("python3").args(["-c", read]).arg(&junit).output().unwrap();
    assert_eq!(String::from_utf8(read.stdout).unwrap(), "testsuites 18 2 0\n");
    std::fs::remove_file(junit).unwrap();
    place.assert_untouched(&[]);
}

/// The table says what was played, on what, and that the tools themselves were not run; `--only` plays one case.
#[test]
fn the_table_is_for_people() {
    let place = Place::with(FILE);
    let output =
        place.verify(&["--allow-unset", "--agent", "shell", "--only", "denied", "--only", "two-nodes"]);
    let (text, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{text}{said}");
    assert!(text.contains("mine.yaml: played on SQLite, a store of its own"), "{text}");
    assert!(text.contains("Its tools were not run"), "{text}");
    assert!(text.contains("agent shell: execute_command {\"command\":"), "{text}");
    assert!(text.contains("\nCASE       RESULT          WHY\ndenied     passed          no start"), "{text}");
    assert!(text.contains("\ntwo-nodes  not applicable  its store is SQLite"), "{text}");
    assert!(text.ends_with("\n1 passed, 0 failed, 1 not applicable\n"), "{text}");
    assert_eq!(said, "verify: agent shell: denied (1 of 2)\n");
    place.assert_untouched(&[]);
}

/// The guide shows what is printed, all of it.
#[test]
fn the_page_shows_what_is_printed() {
    let root = standfast_testkit::binary::repository_root();
    let page = std::fs::read_to_string(root.join("docs/verify.md")).unwrap();
    let [step] = &steps(&page)[..1] else { panic!("{page}") };
    let words: Vec<&str> = step.command.split_whitespace().collect();
    assert_eq!(words[..2], ["standfast", "verify"], "{}", step.command);
    let temporary = tempfile::tempdir().unwrap();
    let mut command = standfast_testkit::standfast();
    let output =
        command.args(&words[1..]).current_dir(root).env("TMPDIR", temporary.path()).output().unwrap();
    let came: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    assert!(is_as_shown(&step.shown, &came), "{came:#?}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// An agent that holds nothing, and one whose runs a restart loses, say so; neither is a failure.
#[test]
fn what_does_not_apply_has_its_reason() {
    let text = "
llms: {script: {type: scripted, script: script.yaml}}
tools: {execute_command: {allowed_commands: [ls]}}
agents:
  quick: {llm: script, tools: [execute_command], task: {}}
  reader: {llm: script, tools: [read_file], task: {}}
  silent: {llm: script, tools: [execute_command]}
";
    let place = Place::with(text);
    std::fs::write(place.folder.path().join("script.yaml"), "replies: [{text: hello}]").unwrap();
    let report = place.report(&[]);
    let (verdict, why) = result(&report, "reader", "denied");
    assert_eq!(verdict, "not applicable");
    assert!(why.contains("calls that were tried with read_file is held"), "{why}");
    let (_, why) = result(&report, "silent", "expiry");
    assert!(why.starts_with("it has no task block"), "{why}");
    for case in ["kill-while-held", "kill-in-tool", "lost-store", "two-nodes"] {
        let (verdict, why) = result(&report, "quick", case);
        assert_eq!(verdict, "not applicable");
        assert!(why.starts_with("its runs are kept in memory"), "{why}");
    }
    for case in ["double-approval", "stale-digest", "edited-arguments", "denied", "expiry"] {
        assert_eq!(result(&report, "quick", case).0, "passed", "{report:#}");
    }
    place.assert_untouched(&["script.yaml"]);
}

/// A file that cannot be loaded is reported with file and line, and a server that does not start fails the case.
#[test]
fn a_broken_file_is_told_with_its_line() {
    let place = Place::with("agents:\n  ops:\n    llm: nothing\n    tolls: []\n");
    let output = place.verify(&[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("mine.yaml:4:5") && said.contains("tolls"), "{said}");
    assert!(output.stdout.is_empty());
    let unset = Place::with(FILE).verify(&[]);
    let said = String::from_utf8(unset.stderr).unwrap();
    assert_eq!(unset.status.code(), Some(2), "{said}");
    assert!(said.contains("VERIFY_TEST_KEY") && said.contains("--allow-unset"), "{said}");
    let other = Place::with(FILE).verify(&["--allow-unset", "--agent", "nobody"]);
    let said = String::from_utf8(other.stderr).unwrap();
    assert_eq!(other.status.code(), Some(2), "{said}");
    assert!(said.contains("there is no agent nobody; it has payer, shell"), "{said}");
    place.assert_untouched(&[]);
}

/// Runs as files keep the promise as well.
#[test]
fn a_folder_of_files_is_played_as_one() {
    let text = FILE.replace(
        "{backend: sql, sql: {driver: sqlite, database: ./mine.db}}",
        "{backend: file, file: {directory: ./mine}}",
    );
    let place = Place::with(&text);
    let report = place.report(&["--allow-unset", "--agent", "shell"]);
    assert_eq!(report["store"], "files");
    assert_eq!((&report["passed"], &report["not_applicable"]), (&8.into(), &1.into()), "{report:#}");
    // Keys are files, too, and stay: the answers are about the store, not about who asks.
    let (_, why) = result(&report, "shell", "lost-store");
    assert!(!why.contains("401") && why.ends_with("a new run: 503; no start"), "{why}");
    place.assert_untouched(&[]);
}

/// On Postgres a run that begins on one node is decided on the other, in a database that is made for it and removed; the
/// one that the file names is not even reachable. Without an address it is played on SQLite, and says so.
#[test]
fn two_nodes_are_played_on_a_postgres() {
    let text = FILE.replace(
        "{driver: sqlite, database: ./mine.db}",
        "{driver: postgres, url: \"postgres://nobody@127.0.0.1:1/mine\"}",
    );
    let place = Place::with(&text);
    let address = shared().database();
    let report = place.report(&["--allow-unset", "--agent", "payer", "--postgres", &address]);
    assert_eq!(report["store"], "postgres");
    assert_eq!((&report["passed"], &report["not_applicable"]), (&9.into(), &0.into()), "{report:#}");
    let (_, why) = result(&report, "payer", "two-nodes");
    assert_eq!(why, "begun on one node, decided on the other; one start; the run completed");
    let left = "SELECT FROM pg_database WHERE datname LIKE 'standfast_verify_%'";
    assert_eq!(standfast_store::conformance::cluster::query_count(&address, left), 0);
    let unreachable = place.verify(&["--allow-unset", "--postgres", "postgres://nobody@127.0.0.1:1/mine"]);
    let said = String::from_utf8(unreachable.stderr).unwrap();
    assert_eq!(unreachable.status.code(), Some(2), "{said}");
    assert!(said.contains("no database could be made in the Postgres of --postgres"), "{said}");
    let without = place.report(&["--allow-unset", "--agent", "payer", "--only", "two-nodes"]);
    assert_eq!(without["store"], "sqlite");
    let (verdict, why) = result(&without, "payer", "two-nodes");
    assert_eq!(verdict, "not applicable");
    assert!(why.contains("--postgres URL"), "{why}");
    place.assert_untouched(&[]);
}

/// A verification that plays, until it has started a server.
fn playing(place: &Place) -> Child {
    let mut command = place.command(&["--allow-unset", "--agent", "shell", "--only", "kill-in-tool"]);
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "verify: agent shell: kill-in-tool (1 of 1)\n");
    // Read on, so that it can go on to say something.
    std::thread::spawn(move || said.lines().for_each(drop));
    until("a server runs", || processes(place.temporary.path()) > 0);
    child
}

/// Ctrl-C ends the servers and removes the folder; `kill -9` of the verification ends its servers, too.
#[test]
fn nothing_outlives_a_verification() {
    let place = Place::with(FILE);
    let mut child = playing(&place);
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    place.assert_untouched(&[]);
    let mut child = playing(&place);
    child.kill().unwrap();
    child.wait().unwrap();
    until("its servers have ended", || processes(place.temporary.path()) == 0);
}

/// `--keep` keeps what was stored, and says where: the database of a case is one that can be verified.
#[test]
fn what_is_kept_can_be_looked_at() {
    let place = Place::with(FILE);
    let output = place.verify(&["--allow-unset", "--agent", "shell", "--only", "denied", "--keep"]);
    let said = String::from_utf8(output.stderr).unwrap();
    let (_, folder) = said.trim().rsplit_once("kept in ").unwrap();
    let store = Path::new(folder).join("agent-1/denied/store/standfast.db");
    let audit = standfast_testkit::standfast().args(["audit", "verify"]).arg(store).output().unwrap();
    assert!(audit.status.success(), "{}", String::from_utf8_lossy(&audit.stderr));
}

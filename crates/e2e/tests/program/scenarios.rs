//! `standfast test` of the real binary: the shipped examples pass, and whatever is wrong is named by file, line and step.
//!
//! The failing scenarios are files beside this one; those that cannot be run are made here, one mistake each.

#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

use std::path::{Path, PathBuf};

use serde_json::Value;

/// What the command said, and its exit code.
#[derive(Debug)]
struct Said {
    code: i32,
    out: String,
    err: String,
}

fn test(arguments: &[&str]) -> Said {
    let mut command = standfast_testkit::standfast();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = command.arg("test").args(arguments).current_dir(root).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

fn fixture(name: &str) -> String {
    format!("crates/e2e/tests/program/scenarios/{name}.yaml")
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

/// Plays a scenario text that cannot be run; what is said about it, without the path.
fn broken(text: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let file: PathBuf = directory.path().join("s.yaml");
    std::fs::write(&file, text).unwrap();
    let said = test(&[file.to_str().unwrap()]);
    assert_eq!((said.code, said.err.as_str()), (2, ""), "{said:?}");
    has(&said.out, &["cannot be run  ", "0 passed, 0 failed, 1 could not be run\n"]);
    let shown = format!("  {}:", file.display());
    said.out.lines().find_map(|line| line.strip_prefix(&shown)).unwrap().to_owned()
}

/// C7, C24, C35: the examples that users start from, on the real engine.
#[test]
fn the_shipped_examples_pass() {
    let said = test(&["examples/scenarios"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    let examples = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scenarios"));
    let count = examples.unwrap().count();
    assert!(count >= 8, "only {count} examples");
    has(
        &said.out,
        &[&format!("{count} passed, 0 failed\n"), "pass  examples/scenarios/approve.yaml  A deletion"],
    );

    let said = test(&["--json", "examples/scenarios/crash.yaml", "examples/scenarios/deny.yaml"]);
    let body: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &body["ok"], &body["passed"]), (0, &Value::from(true), &Value::from(2)));
    assert_eq!(body["scenarios"][0]["outcome"], "passed");
}

/// The example in the documentation is a scenario, and passes.
#[test]
fn the_documented_example_passes() {
    let page = include_str!("../../../../docs/testing-agents.md");
    let example = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("documented.yml");
    std::fs::write(&file, example).unwrap();
    let said = test(&[directory.path().to_str().unwrap()]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    has(&said.out, &["A denied call never starts\n1 passed, 0 failed\n"]);
}

/// A year of silence, a tool that takes an hour and a server that is killed take no real time.
#[test]
fn time_is_virtual_and_everything_happens_at_its_instant() {
    let text = "
agent:
  holds: {input_timeout: 365d, on_timeout: keep, expiry_grace: 30d, after_grace: cancel}
  tools: {build: {idempotent: true}, deploy: {requires_approval: true}}
script:
- calls: [{tool: build}, {tool: deploy}]
results:
  build: {takes: 1h, returns: built}
steps:
- send: Build and deploy
- wait: 50m
- expect: {status: working, starts: [build]}
- restart: 2m
- expect:
    status: working
    starts: [{tool: build, attempt: 1}, {tool: build, attempt: 2}]
    events: [call.started, call.orphaned, call.started]
- wait: 1h
- expect: {status: held, waiting_for: person}
- wait: 364d
- expect: {holds: [{kind: approval, expired: false}]}
- wait: 1d
- expect: {status: held, holds: [{kind: approval, expired: true, expires_in: 365d}]}
- wait: 30d
- expect: {status: canceled, starts: [build, build]}
";
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("s.yaml");
    std::fs::write(&file, text).unwrap();
    let said = test(&[file.to_str().unwrap()]);
    assert_eq!(said.code, 0, "{}", said.out);
}

#[test]
fn every_difference_is_named_with_what_happened() {
    let said = test(&[&fixture("failing")]);
    assert_eq!((said.code, said.err.as_str()), (1, ""), "{said:?}");
    has(
        &said.out,
        &[
            "FAIL  crates/e2e/tests/program/scenarios/failing.yaml  Everything is expected otherwise\n",
            "  crates/e2e/tests/program/scenarios/failing.yaml:5: step 2 (expect)\n",
            "    status: expected completed, was held\n",
            "    waiting_for: expected external, was person\n",
            "    hold 1: kind: expected input, was approval\n",
            "    hold 1: tool: expected send_mail, was delete_file\n",
            "    hold 1: arguments: expected {\"path\":\"/else\"}, was {\"path\": \"/srv/cache/old\"}\n",
            "    hold 1: question: expected Why?, was (none)\n",
            "    hold 1: expires_in: expected 3600000ms after it opened, was (never)\n",
            "    hold 1: expired: expected true, was false\n",
            "    result: expected Done., was (none)\n",
            "    reason: expected a text with \"because\", was (none)\n",
            "    starts: expected 1: delete_file, were none\n",
            "    events: expected hold.opened, run.started, but there is no run.started in its place; were ",
            "    told: expected delete_file to say \"deleted\", was (nothing)\n",
            "    open holds: approval of delete_file (call 1)\n",
            "  what happened in run_",
            "2026-01-01T09:00:00.000Z  hold.opened",
            "0 passed, 1 failed\n",
        ],
    );
    let said = test(&["--json", &fixture("failing")]);
    let body: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, body["ok"].as_bool()), (1, Some(false)));
    let failed = &body["scenarios"][0];
    assert_eq!(
        (failed["line"].as_u64(), failed["step"].as_u64(), failed["verb"].as_str()),
        (Some(5), Some(2), Some("expect"))
    );
    assert_eq!(failed["problems"][0], "status: expected completed, was held");
    assert_eq!(failed["runs"][0]["events"][0]["type"], "run.started");
}

/// T13: with an empty list of approvers nobody decides; a scenario can expect that, and is told when it is otherwise.
#[test]
fn refusals_are_compared_too() {
    for (name, expected) in [
        (
            "refusal",
            "step 2 (approve)\n    refused: expected expired, was not-allowed: you may not decide hold",
        ),
        ("unexpected_refusal", "step 2 (approve)\n    refused (not-allowed): you may not decide hold"),
        ("not_refused", "step 2 (approve)\n    expected a refusal (not-allowed), but it was done\n"),
        (
            "several",
            "several open holds match; select one with `tool`, `kind` or `call`; open holds: approval of a (call 1), approval of b (call 2)",
        ),
    ] {
        let said = test(&[&fixture(name)]);
        assert_eq!(said.code, 1, "{said:?}");
        has(&said.out, &[expected]);
    }
}

#[test]
fn nothing_that_a_terminal_obeys_is_printed() {
    let said = test(&[&fixture("hidden")]);
    assert_eq!(said.code, 1);
    has(&said.out, &[r"\u{1b}[2Jgone \u{202e}fdp.exe", r"\u{1b}]0;title\u{7}", r"\u{1b}[31mred"]);
    assert!(!said.out.contains(['\x1b', '\x07', '\u{202e}']), "{said:?}");
}

#[test]
fn a_file_that_cannot_be_played_says_why_and_where() {
    let with_steps = |steps: &str| format!("agent: demo\nsteps:\n{steps}");
    for (text, expected) in [
        (with_steps("- send: hello\n- aprove: x\n"), "4: unknown field `aprove`"),
        (
            with_steps("- send: hello\n- approve:\n  deny:\n"),
            "4: a step does one thing, not both `approve` and `deny`",
        ),
        (with_steps("- as: bob\n"), "3: a step needs one of `send`"),
        (with_steps("- edit: x\n"), "3: `edit` needs `arguments`"),
        (with_steps("- wait: 5m\n  reason: because\n"), "3: `reason` does not belong to `wait`"),
        (with_steps("- wait: 5m\n  refused: expired\n"), "3: `refused` does not belong to `wait`"),
        (with_steps("- wait: soon\n"), "3: \"soon\" is not a span"),
        (with_steps("- approve:\n"), "3: no run was started yet"),
        (
            with_steps("- send: a\n- cancel:\n  run: other\n"),
            "4: no `send` before this step has `run: other`",
        ),
        (with_steps("- send: a\n- approve: {kind: maybe}\n"), "4: unknown variant `maybe`"),
        ("agent: demo\nsteps: []\n".into(), "1: `steps` must have at least one step"),
        ("agent: nobody\nsteps:\n- send: a\n".into(), " there is no agent \"nobody\""),
        ("agent: {}\nsteps:\n- send: a\n".into(), "1: an agent that is described here needs a `script`"),
        ("agent: {prmpt: x}\nsteps:\n- send: a\n".into(), "1: unknown field `prmpt`"),
        ("agent: demo\nscript:\n- text: a\n- txet: b\nsteps:\n- send: a\n".into(), "4: unknown field `txet`"),
        ("agent: demo\nscript: none.yaml\nsteps:\n- send: a\n".into(), " the script none.yaml: "),
        ("agent: demo\nresults:\n  other: {fails: x}\nsteps:\n- send: a\n".into(), " `results` names other"),
        (
            "agent: demo\nresults:\n  delete_file: {fails: x, returns: y}\nsteps:\n- send: a\n".into(),
            "3: a start has one of",
        ),
    ] {
        let said = broken(&text);
        assert!(said.starts_with(expected), "{text}\nexpected {expected}\nsaid {said}");
    }
    let said = test(&["no/such/file.yaml"]);
    assert_eq!(said.code, 2);
    has(&said.out, &["no/such/file.yaml: No such file or directory"]);
    let empty = tempfile::tempdir().unwrap();
    let said = test(&[empty.path().to_str().unwrap()]);
    assert_eq!((said.code, said.out.as_str()), (2, ""), "{said:?}");
    has(&said.err, &["no file in this directory ends in .yaml or .yml"]);
}

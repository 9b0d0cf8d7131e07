//! Rules of a configuration file, with the real binary: what they allow, hold and deny, who may decide, and trying them out
//! before they act.
//!
//! The walk-through of the guide is run here: its file, and its commands in their order.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use standfast_store::conformance::cluster::shared;
use standfast_testkit::{Process as Server, folder, serve, serve_command, standfast, text, until};

use crate::form_pages::{Browser, decide};

const GUIDE: &str = include_str!("../../../../docs/policy-walk-through.md");

/// One reply that writes these files, and one that ends the run.
fn writes(paths: &[&str]) -> String {
    let call = |path: &&str| json!({"tool": "write_file", "arguments": json!({"path": path, "content": "x"}).to_string()});
    let calls: Vec<Value> = paths.iter().map(call).collect();
    json!({"replies": [{"calls": calls}, {"text": "done"}]}).to_string()
}

fn run(arguments: &[&str], folder: &Path) -> Output {
    standfast().args(arguments).current_dir(folder).env_remove("STANDFAST_KEY").output().unwrap()
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
        panic!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    })
}

fn key(folder: &Path, who: &[&str]) -> String {
    let made = run(&[&["keys", "create", "--config", "standfast.yaml"], who].concat(), folder);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

fn ask(server: &Server, key: &str, arguments: &[&str]) -> Value {
    server.ask_anyway(&[arguments, &["--key", key]].concat())
}

/// The file of the walk-through.
fn team() -> String {
    let (_, rest) = GUIDE.split_once("```yaml team\n").unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

/// Replaces the configuration of a folder, as an editor does, and waits until the server has read it.
pub(crate) fn replaced(folder: &Path, text: &str) {
    std::fs::write(folder.join("new.yaml"), text).unwrap();
    std::fs::rename(folder.join("new.yaml"), folder.join("standfast.yaml")).unwrap();
}

fn team_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("workspace")).unwrap();
    for below in ["notes", "production", "shared"] {
        std::fs::create_dir(folder.path().join("workspace").join(below)).unwrap();
    }
    let script = writes(&["notes/today.md", "production/app.yaml", ".env"]);
    std::fs::write(folder.path().join("team.script.yaml"), script).unwrap();
    std::fs::write(folder.path().join("pages.script.yaml"), writes(&["shared/plan.md"])).unwrap();
    std::fs::write(folder.path().join("standfast.yaml"), team()).unwrap();
    folder
}

fn exists(folder: &Path, name: &str) -> bool {
    folder.join("workspace").join(name).exists()
}

/// S1-7, C24, C32: the walk-through of the guide: observe holds nothing and records what would have been; the back-test counts
/// it; switched on, the rules allow, hold and deny; the owner is not on the list of approvers, and two of the others must agree.
#[test]
fn the_walk_through_of_the_guide() {
    for command in [
        "standfast validate team.yaml",
        "standfast policy test team.yaml",
        "standfast policy explain team.yaml RUN:2",
        "standfast policy diff team.yaml enforced.yaml",
        "standfast holds show HOLD",
        "standfast holds approve HOLD --key KEY-OF-BOB",
        "standfast holds grant-rule HOLD --uses 1 --until TOMORROW",
        "standfast holds approve HOLD --uses 1 --until TOMORROW --rule DIGEST",
        "standfast grants list",
        "standfast grants show GRANT",
        "standfast audit verify --config team.yaml --receipt receipt.json",
    ] {
        assert!(GUIDE.contains(&format!("$ {command}\n")), "{command}");
    }
    let folder = team_folder();
    let at = folder.path();
    let valid = run(&["validate", "standfast.yaml"], at);
    assert!(valid.status.success(), "{}", String::from_utf8_lossy(&valid.stdout));
    let log_file = at.join("server.log");
    let server = logging(at, &log_file);
    let (ann, bob, cy) = (
        key(at, &["--user", "ann"]),
        key(at, &["--user", "bob", "--group", "ops"]),
        key(at, &["--user", "cy", "--group", "ops"]),
    );
    // Observed: everything runs.
    let first = ask(&server, &ann, &["send", "ops", "prepare the release", "--wait"]);
    assert_eq!(first["status"], "completed", "{first}");
    assert!(exists(at, "production/app.yaml") && exists(at, ".env") && exists(at, "notes/today.md"));
    let log = ask(&server, &ann, &["show", text(&first["id"])]).to_string();
    assert!(log.contains(r#""observed":{"effect":"hold","rules":["rule:production"]}"#), "{log}");
    assert!(log.contains(r#""observed":{"effect":"deny","rules":["rule:secrets"]}"#), "{log}");
    // Back-test.
    let tested = json_of(&run(&["policy", "test", "standfast.yaml", "--json"], at));
    assert_eq!(tested["calls"], 3, "{tested}");
    for effect in ["deny", "hold", "allow"] {
        assert_eq!(tested["by_effect"][effect]["outcomes"], json!({"ran": 1}), "{tested}");
    }
    let told = String::from_utf8(run(&["policy", "test", "standfast.yaml"], at).stdout).unwrap();
    let shown = GUIDE.split_once("3 stored calls\n").unwrap().1.split_once("```").unwrap().0;
    assert!(told.starts_with(&format!("3 stored calls\n{shown}")), "{told}");
    let call = format!("{}:2", text(&first["id"]));
    let explained = json_of(&run(&["policy", "explain", "standfast.yaml", &call, "--json"], at));
    assert_eq!(
        (&explained["effect"], &explained["observed"]),
        (&json!("allow"), &json!("hold")),
        "{explained}"
    );
    // Switched on.
    let enforced = team().replace("  mode: observe\n", "");
    std::fs::write(at.join("enforced.yaml"), &enforced).unwrap();
    let differs = run(&["policy", "diff", "standfast.yaml", "enforced.yaml"], at);
    assert_eq!(String::from_utf8_lossy(&differs.stdout), "~ mode\nno call became looser\n");
    assert!(differs.status.success());
    let back = run(&["policy", "diff", "enforced.yaml", "standfast.yaml", "--json"], at);
    assert_eq!(back.status.code(), Some(1), "observing is looser");
    let looser = json_of(&back)["looser"].to_string();
    assert!(looser.contains("rule:production") && looser.contains("rule:secrets"), "{looser}");
    for file in ["production/app.yaml", ".env", "notes/today.md"] {
        std::fs::remove_file(at.join("workspace").join(file)).unwrap();
    }
    // The server that runs reads it: nothing is started again.
    replaced(at, &enforced);
    until("the rules are on", || reloads(&log_file) == 1);
    let second = ask(&server, &ann, &["send", "ops", "prepare the release", "--wait"]);
    assert_eq!(second["status"], "held", "{second}");
    assert!(exists(at, "notes/today.md") && !exists(at, "production/app.yaml") && !exists(at, ".env"));
    let id = text(&second["holds"][0]["id"]).to_owned();
    let seen = ask(&server, &ann, &["holds", "show", &id]);
    assert_eq!(seen["because"], json!(["this is what customers run on"]), "{seen}");
    assert_eq!((&seen["risk"], &seen["reversible"]), (&json!("high"), &json!(false)), "{seen}");
    assert_eq!(seen["deciders"], "2 people of: group:ops", "{seen}");
    assert_eq!(
        (&seen["may_decide"], &seen["why_not"]),
        (&json!(false), &json!("you are not one of its approvers"))
    );
    let refused = server.output(&["holds", "approve", &id, "--key", &ann]);
    assert!(!refused.status.success());
    // Two approve.
    let listed = ask(&server, &bob, &["holds"]).to_string();
    assert!(listed.contains(&id), "those whom a rule names see the hold: {listed}");
    let one = ask(&server, &bob, &["holds", "approve", &id]);
    assert_eq!(
        (&one["outcome"], &one["votes"], &one["votes_needed"]),
        (&json!("voted"), &json!(1), &json!(2)),
        "{one}"
    );
    let again = ask(&server, &bob, &["holds", "approve", &id]);
    assert_eq!(again["outcome"], "repeated", "one person counts once: {again}");
    assert!(!exists(at, "production/app.yaml"));
    let on_pages = Browser::with_key(&server, &cy);
    let page = on_pages.page(&format!("/approve/{id}"));
    assert!(page.contains("<strong>1 of 2</strong> approvals: bob"), "{page}");
    assert!(
        page.contains("this is what customers run on") && page.contains("2 people of: group:ops"),
        "{page}"
    );
    let (status, said) = decide(&on_pages, &id, "approve");
    assert_eq!(status, 303, "{said}");
    let ended = server.ask(&["show", text(&second["id"]), "--key", &ann]);
    let status = || {
        standfast_testkit::of_run(&server.ask(&["show", text(&second["id"]), "--key", &ann]))["status"]
            .clone()
    };
    for _ in 0..200 {
        if status() == "completed" {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(status(), "completed", "{ended}");
    assert!(exists(at, "production/app.yaml") && !exists(at, ".env"));
    let log = ask(&server, &ann, &["show", text(&second["id"])]).to_string();
    assert!(log.contains("secrets are not written by agents"), "the model is told why: {log}");
    let explained = json_of(&run(&["policy", "explain", "standfast.yaml", &id, "--json"], at));
    assert_eq!(explained["decided_by"], json!(["rule:production"]), "{explained}");
    let tested = json_of(&run(&["policy", "test", "standfast.yaml", "--json"], at));
    assert_eq!(
        tested["by_rule"]["rule:production"]["decided"]["outcomes"],
        json!({"approved": 1, "ran": 1}),
        "{tested}"
    );
    exception(&server, (&ann, &bob), at);
}

/// Steps 5 and 6 of the walk-through: an exception for a day, seen used and ended, and the receipt.
fn exception(server: &Server, (ann, bob): (&str, &str), at: &Path) {
    let tomorrow =
        std::process::Command::new("date").args(["-u", "-d", "+1 day", "+%FT%TZ"]).output().unwrap();
    let tomorrow = String::from_utf8(tomorrow.stdout).unwrap().trim().to_owned();
    let publish = || ask(server, ann, &["send", "docs", "publish the plan", "--wait"]);
    let held = publish();
    assert_eq!(held["status"], "held", "{held}");
    let id = text(&held["holds"][0]["id"]).to_owned();
    let wish = ["--uses", "1", "--until", &tomorrow];
    let told = server.output(&[&["holds", "grant-rule", &id], &wish[..], &["--key", bob]].concat());
    let told = String::from_utf8(told.stdout).unwrap();
    let shown = GUIDE.split_once("--until TOMORROW\nrule:\n").unwrap().1.split_once("```").unwrap().0;
    assert!(told.starts_with(&format!("rule:\n{shown}")), "{told}");
    let rule = ask(server, bob, &[&["holds", "grant-rule", &id], &wish[..]].concat());
    let save = ["--rule", text(&rule["digest"])];
    let own = server.output(&[&["holds", "approve", &id], &wish[..], &save[..], &["--key", ann]].concat());
    assert!(!own.status.success(), "whoever may not decide saves nothing");
    let saved = ask(server, bob, &[&["holds", "approve", &id], &wish[..], &save[..]].concat());
    assert_eq!(saved["outcome"], "decided", "{saved}");
    let used = publish();
    assert_eq!(used["status"], "completed", "{used}");
    let held_again = publish();
    assert_eq!(held_again["status"], "held", "the exception is used up");
    let page = Browser::with_key(server, bob).page("/grants");
    assert!(page.contains("write_file: 1 of 1 used") && page.contains("Used up"), "{page}");
    let listed = ask(server, bob, &["grants", "list"]);
    let grant = &listed["grants"][0];
    assert_eq!((&grant["state"], &grant["used_by"]), (&json!("used_up"), &json!([used["id"]])), "{listed}");
    let one = ask(server, bob, &["grants", "show", text(&grant["id"])]);
    assert_eq!(one["approved_by"], json!(["bob"]), "{one}");
    let get = |path: String| {
        let asked =
            ureq::get(format!("{}{path}", server.base)).header("authorization", format!("Bearer {ann}"));
        asked.call().unwrap().body_mut().read_to_string().unwrap()
    };
    let run_of = text(&used["id"]);
    let receipt: Value =
        serde_json::from_str(&get(format!("/api/v1/runs/{run_of}/calls/1/receipt"))).unwrap();
    assert_eq!(receipt["outcome"]["attempts"][0]["judged"]["grant"], grant["id"], "{receipt}");
    let written = get(format!("/api/v1/runs/{run_of}/calls/1/receipt"));
    std::fs::write(at.join("receipt.json"), &written).unwrap();
    let page = get(format!("/runs/{run_of}/calls/1/receipt"));
    assert!(page.contains(&format!("by standing approval {}", text(&grant["id"]))), "{page}");
    let page = get(format!("/approve/{id}/receipt"));
    assert!(page.contains("Also saved") && page.contains("rule:shared") && page.contains("bob"), "{page}");
    let verify = ["audit", "verify", "--config", "standfast.yaml", "--receipt", "receipt.json"];
    let verified = run(&verify, at);
    let said = String::from_utf8(verified.stdout).unwrap();
    assert!(verified.status.success() && said.contains("receipt.json: as stored in events "), "{said}");
    std::fs::write(at.join("receipt.json"), written.replace("shared/plan.md", "shared/plam.md")).unwrap();
    let verified = run(&verify, at);
    let said = String::from_utf8(verified.stdout).unwrap();
    assert_eq!(verified.status.code(), Some(1), "{said}");
    assert!(said.contains("receipt.json: this receipt is not what is stored: `asked.arguments"), "{said}");
    ends_by_itself(server, (ann, bob), &held_again);
}

/// A grant whose instant passes has expired, by command and on the page, and answers nothing any more.
fn ends_by_itself(server: &Server, (ann, bob): (&str, &str), held: &Value) {
    let id = text(&held["holds"][0]["id"]);
    // The shortest time in which this machine gets it saved.
    let is_saved = |seconds: &&str| {
        let until =
            std::process::Command::new("date").args(["-u", "-d", seconds, "+%FT%TZ"]).output().unwrap();
        let until = String::from_utf8(until.stdout).unwrap().trim().to_owned();
        let wish = ["--uses", "5", "--until", &until];
        let rule = server.output(&[&["holds", "grant-rule", id, "--json", "--key", bob], &wish[..]].concat());
        let Ok(rule) = serde_json::from_slice::<Value>(&rule.stdout) else { return false };
        let save = ["--rule", text(&rule["digest"]), "--key", bob];
        server.output(&[&["holds", "approve", id], &wish[..], &save[..]].concat()).status.success()
    };
    assert!(["+4 seconds", "+15 seconds", "+50 seconds"].iter().any(is_saved), "{held}");
    let newest = || {
        let listed = ask(server, bob, &["grants", "list"]);
        let all = listed["grants"].as_array().unwrap().clone();
        all.into_iter().find(|grant| grant["uses"] == 5).unwrap_or_else(|| panic!("{listed}"))
    };
    until("the grant has expired", || newest()["state"] == "expired");
    let page = Browser::with_key(server, bob).page("/grants");
    assert!(page.contains("Expired"), "{page}");
    let next = ask(server, ann, &["send", "docs", "publish the plan", "--wait"]);
    assert_eq!(next["status"], "held", "{next}");
}

/// The back-test counts the calls of each kind of store, and how people decided them.
#[test]
fn the_back_test_reads_every_store() {
    let postgres = format!("backend: sql, sql: {{driver: postgres, url: \"{}\"}}", shared().database());
    for store in [postgres.as_str(), "backend: file, file: {directory: ./kept}"] {
        let folder = folder(
            &[("s", &writes(&["a.txt"]))],
            &format!(
                "agents: {{a: {{llm: s, tools: [write_file], task: {{}}, session_store: main}}}}
session_stores: {{main: {{{store}}}}}
policy: {{rules: [{{id: files, hold: write_file}}]}}
"
            ),
        );
        std::fs::create_dir(folder.path().join("workspace")).unwrap();
        let server = serve(folder.path());
        for word in ["approve", "deny"] {
            let run = server.send("a");
            server.ask(&["holds", word, text(&run["holds"][0]["id"])]);
            server.run_once(text(&run["id"]), "completed");
        }
        // A folder is read by one process at a time.
        drop(server);
        let tested = json_of(&run(&["policy", "test", "standfast.yaml", "--json"], folder.path()));
        assert_eq!(tested["calls"], 2, "{store}: {tested}");
        let decided = &tested["by_rule"]["rule:files"]["decided"];
        assert_eq!(decided["outcomes"], json!({"approved": 1, "denied": 1}), "{store}: {tested}");
    }
}

/// Rules are replaced while runs wait under the old ones: who decides, and what is asked again, is what the new file says; a call
/// that was approved before is looked at again; nothing is lost, and a file that cannot be taken changes nothing.
#[test]
fn rules_are_replaced_while_runs_wait() {
    let rules = |rules: &str| {
        format!(
            "server: {{auth: {{api_keys: true}}}}
llms:
  s0: {{type: scripted, script: s0.script.yaml}}
  s1: {{type: scripted, script: s1.script.yaml}}
  s2: {{type: scripted, script: s2.script.yaml}}
tools: {{write_file: {{requires_approval: false}}}}
agents:
  a0: {{llm: s0, tools: [write_file], task: {{}}, session_store: main}}
  a1: {{llm: s1, tools: [write_file], task: {{}}, session_store: main}}
  a2: {{llm: s2, tools: [write_file], task: {{}}, session_store: main}}
session_stores: {{main: {{backend: sql, sql: {{driver: sqlite, database: kept.db}}}}}}
policy: {{rules: [{rules}]}}
"
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::create_dir(at.join("workspace")).unwrap();
    for no in 0..3 {
        std::fs::write(at.join(format!("s{no}.script.yaml")), writes(&[&format!("x{no}")])).unwrap();
    }
    let one = "{id: one, hold: write_file, approvers: ['user:bob']}";
    std::fs::write(at.join("standfast.yaml"), rules(one)).unwrap();
    let log_file = at.join("server.log");
    let server = logging(at, &log_file);
    let (ann, bob, cy) =
        (key(at, &["--user", "ann"]), key(at, &["--user", "bob"]), key(at, &["--user", "cy"]));
    let held: Vec<Value> =
        (0..3).map(|no| ask(&server, &ann, &["send", &format!("a{no}"), "go", "--wait"])).collect();
    let ends = |no: usize| {
        let run = || ask(&server, &ann, &["show", text(&held[no]["id"])]);
        until("the run ends", || standfast_testkit::of_run(&run())["status"] == "completed");
        assert!(exists(at, &format!("x{no}")));
    };
    let hold = |no: usize| text(&held[no]["holds"][0]["id"]).to_owned();
    let approve = |key: &str, hold: &str| server.output(&["holds", "approve", hold, "--key", key]);
    // A file with a mistake is not taken: bob still decides, and his approval counts.
    replaced(at, &rules("{id: one, hold: write_file, approvers: ['users:cy']}"));
    until("the mistake is told", || std::fs::read_to_string(&log_file).unwrap().contains("users:cy"));
    assert!(approve(&bob, &hold(0)).status.success());
    ends(0);
    // Now cy decides, and bob no longer; and a rule that is new asks again before the start.
    let two = "{id: one, hold: write_file, approvers: ['user:cy']}, {id: two, hold: write_file, because: it is new, approvers: ['user:bob']}";
    let before = reloads(&log_file);
    replaced(at, &rules(two));
    until("the new rules count", || reloads(&log_file) > before);
    let shown = ask(&server, &ann, &["holds", "show", &hold(1)]);
    assert!(shown["drift"].to_string().contains("The policy has changed"), "{shown}");
    let told = String::from_utf8(server.output(&["holds", "show", &hold(1), "--key", &ann]).stdout).unwrap();
    assert!(told.contains("changed since it was asked: The policy has changed"), "{told}");
    assert!(told.contains("standfast holds ask-again"), "{told}");
    assert!(!approve(&bob, &hold(1)).status.success(), "bob is no longer on the list");
    assert!(approve(&cy, &hold(1)).status.success());
    let asks_again = || {
        let listed = ask(&server, &ann, &["holds"])["holds"].as_array().unwrap().clone();
        listed.into_iter().find(|one| one["run"] == held[1]["id"] && one["id"] != json!(hold(1)))
    };
    until("the new rule asks again", || asks_again().is_some());
    assert!(!exists(at, "x1"));
    let again = text(&asks_again().unwrap()["id"]).to_owned();
    assert_eq!(ask(&server, &ann, &["holds", "show", &again])["deciders"], "user:bob");
    assert!(approve(&bob, &again).status.success());
    ends(1);
    // Asked again by what is there now: both rules are demanded at once, by name, of the same arguments.
    assert!(
        !server.output(&["holds", "ask-again", &hold(2), "--key", &ann]).status.success(),
        "ann decides nothing"
    );
    let asked = ask(&server, &cy, &["holds", "ask-again", &hold(2)]);
    assert_eq!(asked["hold"]["revision"], 1, "{asked}");
    let shown = ask(&server, &cy, &["holds", "show", &hold(2)]);
    assert_eq!((&shown["deciders"], shown.get("drift")), (&json!("user:cy; and user:bob"), None), "{shown}");
    let digest = text(&shown["digest"]).to_owned();
    for key in [&cy, &bob] {
        let agreed = server.output(&["holds", "approve", &hold(2), "--digest", &digest, "--key", key]);
        assert!(agreed.status.success(), "{}", String::from_utf8_lossy(&agreed.stderr));
    }
    ends(2);
    let log = ask(&server, &ann, &["show", text(&held[2]["id"])]).to_string();
    assert!(
        log.contains(r#""asked_again":true"#) && !log.contains("a person changed the arguments"),
        "{log}"
    );
    assert_eq!(
        log.matches(r#""type":"hold.opened""#).count(),
        1,
        "nothing is left to ask before the start: {log}"
    );
}

/// A server whose log is in a file.
pub(crate) fn logging(folder: &Path, log: &Path) -> Server {
    let file = std::fs::File::create(log).unwrap();
    standfast_testkit::start(serve_command(folder).env("RUST_LOG", "info").stderr(file))
}

/// How often it has read its configuration again.
pub(crate) fn reloads(log: &Path) -> usize {
    std::fs::read_to_string(log).unwrap().matches("configuration reloaded").count()
}

/// An allow rule lists a command, and only what it says: what the arguments could do more, an operator or a wrapper is still
/// held.
#[test]
fn an_allow_rule_lists_a_command() {
    let commands = ["touch a", "touch a -r ../b", "touch b", "sudo touch a", "touch a; touch b"];
    let calls: Vec<Value> = commands
        .iter()
        .map(|command| json!({"tool": "execute_command", "arguments": json!({"command": command}).to_string()}))
        .collect();
    let script = json!({"replies": [{"calls": calls}, {"text": "done"}]}).to_string();
    let folder = folder(
        &[("s", &script)],
        "tools: {execute_command: {sandbox: off}}
agents: {a: {llm: s, tools: [execute_command], task: {}}}
policy: {rules: [{id: a, allow: execute_command, where: {command: {argv: [touch, a]}}}]}
",
    );
    std::fs::create_dir(folder.path().join("workspace")).unwrap();
    let server = serve(folder.path());
    let run = server.send("a");
    assert_eq!(run["status"], "held", "{run}");
    assert_eq!(run["holds"].as_array().unwrap().len(), 4, "{run}");
    assert!(exists(folder.path(), "a") && !exists(folder.path(), "b"));
}

/// One rule is about a configured tool, work for another agent, a tool of an MCP server and a gate alike: each is held by its name,
/// with its words. What a server's entry says is for its tools alone, by the names that it has for them.
#[test]
fn one_file_serves_every_kind_of_call() {
    let calls = json!([
        {"tool": "pay__refund", "arguments": json!({"payment": "p-1"}).to_string()},
        {"tool": "write_file", "arguments": json!({"path": "a.txt", "content": "x"}).to_string()},
        {"tool": "research", "arguments": json!({"message": "find out"}).to_string()},
    ]);
    let script = json!({"replies": [{"calls": calls}, {"text": "done"}]}).to_string();
    let ledger = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/ledger.py");
    let folder = folder(
        &[("s", &script), ("h", &json!({"replies": [{"text": "found"}]}).to_string())],
        &format!(
            "tools:
  write_file: {{requires_approval: false}}
  research: {{type: agent, agent: helper, requires_approval: false}}
  pay:
    type: mcp
    command: python3
    args: [{ledger:?}]
    overrides: {{refund: {{requires_approval: false}}}}
    policy: {{rules: [{{id: pays, hold: refund, because: money is gone then}}]}}
agents:
  a: {{llm: s, tools: [write_file, research, pay], task: {{}}}}
  helper: {{llm: h, task: {{}}}}
policy: {{rules: [{{id: out, hold: [write_file, research, pay__refund, send_refund], because: it leaves the house}}]}}
"
        ),
    );
    std::fs::create_dir(folder.path().join("workspace")).unwrap();
    let server = serve(folder.path());
    let run = server.send("a");
    let gate = json!({"tool": "send_refund", "arguments": {"amount": 1}, "agent": "billing", "session": "s", "call": "c-1"});
    let opened = ureq::post(format!("{}/api/v1/gates", server.base))
        .header("content-type", "application/json")
        .send(gate.to_string());
    let opened: Value = serde_json::from_str(&opened.unwrap().body_mut().read_to_string().unwrap()).unwrap();
    let held: Vec<&Value> = run["holds"].as_array().unwrap().iter().map(|hold| &hold["id"]).collect();
    assert_eq!(held.len(), 3, "{run}");
    let mut of_the_server = 0;
    for hold in held.into_iter().chain([&opened["hold"]]) {
        let shown = server.ask(&["holds", "show", text(hold)]);
        let said: Vec<&str> = shown["because"].as_array().unwrap().iter().map(text).collect();
        let rules: Vec<&str> =
            shown["demands"].as_array().unwrap().iter().map(|one| text(&one["rule"])).collect();
        assert!(said.contains(&"it leaves the house") && rules.contains(&"rule:out"), "{shown}");
        let is_of_the_server = shown["tool"] == "pay__refund";
        assert_eq!(said.contains(&"money is gone then"), is_of_the_server, "{shown}");
        assert_eq!(rules.contains(&"rule:pays"), is_of_the_server, "{shown}");
        of_the_server += usize::from(is_of_the_server);
    }
    assert_eq!(of_the_server, 1);
}

/// Rules of an agent are for its calls, rules of a tool for that tool's; a hold rule comes with its own times and what deny does.
#[test]
fn rules_of_agents_and_tools_and_their_terms() {
    let script = writes(&["x"]);
    let folder = folder(
        &[("s", &script)],
        "tools: {write_file: {requires_approval: false, policy: {rules: [{id: tool, hold: '*', where: {path: x}, expire_after: 1h, on_timeout: deny}]}}}
agents:
  strict: {llm: s, tools: [write_file], task: {}, policy: {rules: [{id: agent, hold: write_file, on_deny: cancel, expire_after: 2h, on_timeout: keep, risk: low}]}}
  other: {llm: s, tools: [write_file], task: {}}
",
    );
    std::fs::create_dir(folder.path().join("workspace")).unwrap();
    let server = serve(folder.path());
    let log = |run: &Value| server.ask(&["show", text(&run["id"])]).to_string();
    let strict = server.send("strict");
    let shown = log(&strict);
    assert!(shown.contains(r#""rules":["rule:agent","rule:tool"]"#), "{shown}");
    // The shortest time and the strictest end count.
    assert!(shown.contains(r#""on_deny":"cancel""#) && shown.contains(r#""on_timeout":"deny""#), "{shown}");
    assert!(shown.contains(r#""timeout":3600000"#), "{shown}");
    let id = text(&strict["holds"][0]["id"]);
    server.ask_anyway(&["holds", "deny", id]);
    assert_eq!(server.run(text(&strict["id"]))["status"], "canceled");
    let other = server.send("other");
    let shown = log(&other);
    assert!(shown.contains(r#""rules":["rule:tool"]"#), "{shown}");
    assert!(!shown.contains(r#""on_deny":"cancel""#), "{shown}");
}

/// Bad rules, examples and approvers are refused with file, line and a proposal; an empty list is taken with a warning.
#[test]
fn mistakes_have_their_line() {
    let folder = folder(
        &[("s", &writes(&["x"]))],
        "agents:
  a:
    llm: s
    tools: [write_file]
    task: {}
    approvers:
      - users:bob
    policy:
      rules:
        - {id: twice, hold: write_file, approvers: []}
policy:
  rules:
    - id: twice
      alow: write_file
    - id: git
      allow: execute_command
      where: {command: {argv: [git, log]}}
      match: [git push]
",
    );
    let output = run(&["validate", "standfast.yaml", "--json"], folder.path());
    assert_eq!(output.status.code(), Some(1));
    let said = json_of(&output);
    let errors = said["errors"].as_array().unwrap();
    let of = |path: &str| {
        errors.iter().find(|error| text(&error["path"]) == path).unwrap_or_else(|| panic!("{path}: {said:#}"))
    };
    let approver = of("agents.a.approvers[0]");
    assert!(text(&approver["help"]).contains("user:bob"), "{approver}");
    assert_eq!(approver["line"], 9, "{approver}");
    let key = of("policy.rules[0].alow");
    assert!(text(&key["help"]).contains("`allow`"), "{key}");
    assert_eq!(key["line"], 16, "{key}");
    let example = of("policy.rules[1].match[0]");
    assert_eq!(example["line"], 20, "{example}");
    assert!(
        text(&example["message"]).contains("git push") && !text(&example["help"]).is_empty(),
        "{example}"
    );
}

/// C24: with a list of approvers exactly those on it decide; `owner` names the owner; the refusal and the hold say why not.
#[test]
fn a_list_of_approvers_is_who_may_decide() {
    let folder = folder(
        &[("s", &writes(&["x"]))],
        "server: {auth: {api_keys: true}}
agents:
  listed: {llm: s, tools: [write_file], task: {}, approvers: ['user:bob']}
  both: {llm: s, tools: [write_file], task: {}, approvers: [owner, 'user:bob']}
  nobody: {llm: s, tools: [write_file], task: {}, approvers: []}
session_stores: {main: {backend: sql, sql: {driver: sqlite, database: kept.db}}}
",
    );
    std::fs::create_dir(folder.path().join("workspace")).unwrap();
    let server = serve(folder.path());
    let made = |user: &str| {
        let data = folder.path().join("data");
        let made = run(&["keys", "create", "--user", user, "--data", data.to_str().unwrap()], folder.path());
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    let (ann, bob) = (made("ann"), made("bob"));
    for (agent, deciders, why_not) in [
        ("listed", "user:bob", json!("you are not one of its approvers")),
        ("both", "the owner of the run (user:ann) or user:bob", Value::Null),
        (
            "nobody",
            "nobody: the list of approvers is empty",
            json!("the list of approvers is empty, so nobody may decide"),
        ),
    ] {
        let held = ask(&server, &ann, &["send", agent, "please", "--wait"]);
        let id = text(&held["holds"][0]["id"]);
        let shown = ask(&server, &ann, &["holds", "show", id]);
        assert_eq!((&shown["deciders"], &shown["why_not"]), (&json!(deciders), &why_not), "{agent}");
        let own = server.output(&["holds", "approve", id, "--key", &ann]);
        assert_eq!(own.status.success(), why_not.is_null(), "{agent}");
        if agent == "listed" {
            assert!(server.output(&["holds", "approve", id, "--key", &bob]).status.success());
        }
    }
    let told = String::from_utf8(run(&["validate", "standfast.yaml"], folder.path()).stdout).unwrap();
    assert!(told.contains("may decide:     user:bob\n"), "{told}");
    assert!(told.contains("may decide:     the owner of the run or user:bob\n"), "{told}");
    assert!(told.contains("the list of approvers is empty, so nobody may decide"), "{told}");
}

//! What the audit says of people and of the configuration: keys that open nothing any more, data that was taken out, looks at what is left of
//! erased runs, changes of the file.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use standfast_testkit::{Http, folder, serve_command, standfast, start, text as string, until};

use super::text;

const SCRIPT: &str =
    "replies:\n- calls: [{tool: write_file, arguments: {path: a.txt, content: once}}]\n- text: done\n";

const CONFIG: &str = "server: {auth: {api_keys: true}}
session_stores: {db: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}}
agents: {ops: {llm: script, session_store: db, tools: [write_file], task: {}}}
";

fn with_config(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = standfast();
    let done = command.args(arguments).arg("--config").arg(folder.join("standfast.yaml")).output().unwrap();
    assert!(done.status.success(), "{arguments:?}: {}", text(&done.stderr));
    done
}

/// The entries of one kind, without what differs from time to time.
fn entries(folder: &Path, kind: &str) -> Vec<Value> {
    let export = with_config(folder, &["audit", "export"]);
    let lines = text(&export.stdout);
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["data"].take());
    lines.filter(|entry| entry["kind"] == kind).collect()
}

/// T12, T29: keys that are revoked, exports and looks at erased runs are in the audit with who it was and by which way; what was taken out
/// and what was shown is not.
#[tokio::test]
async fn t12_the_audit_says_who_was_refused_and_who_took_data_out() {
    let directory = folder(&[("script", SCRIPT)], CONFIG);
    let folder = directory.path();
    std::fs::create_dir(folder.join("workspace")).unwrap();
    let key = |user: &str| {
        let made = with_config(folder, &["keys", "create", "--user", user, "--scope", "admin"]);
        text(&made.stdout).trim().to_owned()
    };
    let (ann, bob, cid) = (key("ann"), key("bob"), key("cid"));
    let server = start(&mut serve_command(folder));
    let [http, other] = [&ann, &bob].map(|key| Http::new(&server.base).with_key(key));
    let body = json!({"input": "please", "session": "s-1", "wait": "settled"});
    let run = http.post("/api/v1/agents/ops/runs", &body).await.body;
    let id = string(&run["id"]).to_owned();
    assert_eq!(run["status"], "held", "{run}");
    let get = async |path: &str| http.send("GET", path, &[], "").await.status;
    assert_eq!(get(&format!("/api/v1/sessions/s-1/pending_executions/{id}")).await, 200);
    let hold = string(&run["holds"][0]["id"]);
    let approve = json!({"resolution": "approve", "wait": "settled"});
    http.post(&format!("/api/v1/holds/{hold}/resolve"), &approve).await;
    assert_eq!((get("/history.csv").await, get("/history.json").await), (200, 200));
    let exported: Vec<Value> = entries(folder, "data.exported");
    // Reading the audit by a command is an entry as well.
    let exported: Vec<Value> = exported.into_iter().filter(|entry| entry["by"] != "machine").collect();
    let what: Vec<(&str, &Value)> =
        exported.iter().map(|entry| (string(&entry["what"]), &entry["count"])).collect();
    let one = json!(1);
    assert_eq!(what, [("execution_state", &one), ("history_csv", &one), ("history_json", &one)]);
    for entry in &exported {
        assert_eq!((&entry["user"], &entry["by"]), (&json!("ann"), &json!("api_key")), "{entry}");
    }
    // Erased: who looks is written down, once for each run and user.
    assert_eq!(entries(folder, "erased.read"), Vec::<Value>::new());
    assert_eq!(http.send("DELETE", "/api/v1/sessions/s-1?force=true", &[], "").await.status, 200);
    for _ in 0..3 {
        assert_eq!(get(&format!("/api/v1/runs/{id}")).await, 200);
    }
    let read = entries(folder, "erased.read");
    assert_eq!(read.len(), 1, "{read:?}");
    assert_eq!((&read[0]["user"], &read[0]["run"]), (&json!("ann"), &json!(id)), "{read:?}");
    let events = Http::new(&server.base).with_key(&cid);
    assert_eq!(events.send("GET", &format!("/api/v1/runs/{id}/events"), &[], "").await.status, 200);
    let read = entries(folder, "erased.read");
    assert!(read.len() == 2 && read[1]["user"] == "cid", "{read:?}");
    // Revoked: a key that opened something yesterday.
    assert_eq!(entries(folder, "sign_in.refused"), Vec::<Value>::new());
    let prefix = bob.split('_').nth(1).unwrap();
    assert_eq!(other.send("GET", "/api/v1/runs", &[], "").await.status, 200);
    with_config(folder, &["keys", "revoke", prefix]);
    assert_eq!(other.send("GET", "/api/v1/runs", &[], "").await.status, 401);
    let refused = entries(folder, "sign_in.refused");
    let said = json!({"kind": "sign_in.refused", "user": "bob", "by": "api_key", "key": prefix, "channel": refused[0]["channel"], "why": "revoked"});
    assert_eq!(refused, [said]);
    let all = text(&with_config(folder, &["audit", "export"]).stdout);
    assert!(!all.contains(&bob) && !all.contains(&ann), "a key is in the audit");
}

/// T12, T32: what is taken out by commands is in the audit before it is handed out, with the user of the machine, also beside a running server,
/// and the chain stays whole. A copy that is named itself is evidence: reading it changes nothing.
#[tokio::test]
async fn t12_what_commands_take_out_is_in_the_audit() {
    let directory = folder(&[("script", SCRIPT)], CONFIG);
    let folder = directory.path();
    std::fs::create_dir(folder.join("workspace")).unwrap();
    let key = with_config(folder, &["keys", "create", "--user", "ann"]);
    let server = start(&mut serve_command(folder));
    let http = Http::new(&server.base).with_key(text(&key.stdout).trim());
    let body = json!({"input": "please", "session": "s-1", "wait": "settled"});
    assert_eq!(http.post("/api/v1/agents/ops/runs", &body).await.body["status"], "held");
    let place = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let take_out = |name: &str| {
        with_config(folder, &["audit", "export"]);
        with_config(folder, &["audit", "bundle", "--out", &place(&format!("{name}.zip"))]);
        with_config(folder, &["export", "--output", &place(&format!("{name}.jsonl"))]);
        with_config(folder, &["export", "--session", "s-1", "--agent", "ops"]);
    };
    take_out("running");
    drop(server);
    take_out("stopped");
    with_config(folder, &["export", "--files", &place("files")]);
    let each = ["audit_export", "audit_bundle", "export", "export"];
    let expected: Vec<&str> = each.into_iter().chain(each).chain(["export_files", "audit_export"]).collect();
    let taken = entries(folder, "data.exported");
    let what: Vec<&str> = taken.iter().map(|entry| string(&entry["what"])).collect();
    assert_eq!(what, expected);
    for entry in &taken {
        assert!(string(&entry["user"]).starts_with("uid ") && entry["channel"] == "cli", "{entry}");
    }
    with_config(folder, &["audit", "verify"]);
    let copy = place("kept.db");
    for command in [&["audit", "export", &copy][..], &["audit", "bundle", &copy, "--out", &place("copy.zip")]]
    {
        let done = standfast().args(command).output().unwrap();
        assert!(done.status.success(), "{}", text(&done.stderr));
    }
    // This look is the only one that was added.
    assert_eq!(entries(folder, "data.exported").len(), expected.len() + 1);
}

/// T26, T32: each change of the configuration is in the audit by digests, one after the other, also one that was made while nothing ran; the
/// first configuration is no change, and a start with the same one is none.
#[test]
fn t26_every_change_of_the_configuration_is_in_the_audit() {
    let directory = folder(&[("script", SCRIPT)], CONFIG);
    let folder = directory.path();
    let path = folder.join("standfast.yaml");
    let write = |more: &str| {
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(folder.join("part"), format!("{text}{more}")).unwrap();
        std::fs::rename(folder.join("part"), &path).unwrap();
    };
    let changes = || entries(folder, "config.changed");
    let known = folder.join("data/configuration.digest");
    let server = start(&mut serve_command(folder));
    until("the first configuration is known", || known.exists());
    assert_eq!(changes(), Vec::<Value>::new());
    write("policy: {default: hold}\n");
    until("the change is in the audit", || changes().len() == 1);
    drop(server);
    write("people: {ann: {}}\n");
    let server = start(&mut serve_command(folder));
    until("what changed meanwhile is in the audit", || changes().len() == 2);
    drop(server);
    let before = std::fs::read_to_string(&known).unwrap();
    let again = start(&mut serve_command(folder));
    write("# the same for people, other bytes\n");
    until("the last change is in the audit", || changes().len() == 3);
    drop(again);
    let changes = changes();
    for pair in changes.windows(2) {
        assert_eq!(pair[0]["after"], pair[1]["before"], "{changes:?}");
        assert_ne!(pair[0]["before"], pair[0]["after"], "{changes:?}");
    }
    assert_eq!(changes[1]["after"], before.trim(), "{changes:?}");
    assert_eq!(changes[2]["agents"], json!(["ops"]), "{changes:?}");
}

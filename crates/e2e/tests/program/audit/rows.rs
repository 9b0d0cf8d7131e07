//! T32: API keys, webhook subscriptions and metadata of sessions, changed by somebody with write access to the database,
//! are noticed: each has its entry in the tenant's audit.
//!
//! One server makes them, as in everyday use, on each kind of store; then the store is changed behind its back.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use standfast_store::conformance::cluster::{self, shared};
use standfast_testkit::Http;
use standfast_testkit::json::owned_text;
use tempfile::TempDir;

use super::text;

/// What a server left behind.
struct Left {
    folder: TempDir,
    /// The prefix of a key that was revoked.
    revoked: String,
    subscription: String,
    /// How the database writes what is so.
    is: &'static str,
}

impl Left {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn standfast(&self, arguments: &[&str]) -> (i32, String) {
        let mut command = standfast_testkit::standfast();
        let done = command.args(arguments).arg("--config").arg(self.path("standfast.yaml")).output().unwrap();
        (done.status.code().unwrap(), text(&done.stdout) + &text(&done.stderr))
    }

    fn verifies(&self) {
        let (code, said) = self.standfast(&["audit", "verify"]);
        assert_eq!(code, 0, "{said}");
    }

    /// The audit finds this wrong with this row, and nothing else.
    fn finds(&self, changed: &str, row: &str, what: &str) {
        let (code, said) = self.standfast(&["audit", "verify"]);
        assert_eq!(code, 1, "after {changed}: {said}");
        let named = |line: &&str| line.starts_with(row);
        let found: Vec<&str> = said.lines().filter(|line| line.contains("of tenant")).collect();
        assert!(found.iter().all(named), "after {changed}: {said}");
        assert!(found.iter().any(|line| line.contains(what)), "after {changed}: {said}");
    }
}

impl Left {
    /// Starts a server and ends it in order: what a killed one had in its journal is in the files then, and a change of a file
    /// is not undone by it.
    fn stop_in_order(&self) {
        let mut command = standfast_testkit::standfast();
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(self.path("standfast.yaml"));
        let mut server = standfast_testkit::start(command.arg("--data").arg(self.path("data")));
        let pid = server.child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
    }
}

/// Keys are made and one is revoked, a session gets metadata, two subscriptions are made, one is changed and one deleted:
/// before, while and after a server runs.
fn left(store: &str) -> Left {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("script.yaml"), "replies:\n- text: done\n").unwrap();
    let config = format!(
        "llms: {{s: {{type: scripted, script: script.yaml}}}}
session_stores: {{main: {{{store}}}}}
agents: {{ops: {{llm: s, session_store: main, task: {{}}}}}}
server: {{auth: {{api_keys: true}}, webhooks: {{key: 'a key that is long enough for tests', allowed_hosts: ['127.0.0.1']}}}}
"
    );
    std::fs::write(folder.path().join("standfast.yaml"), config).unwrap();
    let mut left = Left { folder, revoked: String::new(), subscription: String::new(), is: "1" };
    let mut command = standfast_testkit::standfast();
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(left.path("standfast.yaml"));
    let server = standfast_testkit::start(command.arg("--data").arg(left.path("data")));
    let made = |user: &str| {
        let (code, key) = left.standfast(&["keys", "create", "--user", user, "--scope", "admin"]);
        assert_eq!(code, 0, "{key}");
        key.lines().find(|line| line.starts_with("sf_")).unwrap().to_owned()
    };
    let (ann, bob) = (made("ann"), made("bob"));
    let revoked = bob.split('_').nth(1).unwrap().to_owned();
    let (code, said) = left.standfast(&["keys", "revoke", &revoked]);
    assert_eq!(code, 0, "{said}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let subscription = runtime.block_on(async {
        let http = Http::new(&server.base).with_key(&ann);
        let ask = async |method: &str, path: &str, body: Option<Value>| {
            let answer = http.ask(method, path, body.as_ref()).await;
            assert!((200..300).contains(&answer.status), "{method} {path}: {answer:?}");
            answer.body
        };
        let run = json!({"input": "please", "session": "s-1", "wait": "settled"});
        ask("POST", "/api/v1/agents/ops/runs", Some(run)).await;
        for metadata in [json!({"topic": "first"}), json!({"topic": "second"})] {
            ask("PATCH", "/api/v1/sessions/s-1", Some(json!({"metadata": metadata}))).await;
        }
        let hook = || Some(json!({"url": "http://127.0.0.1:9/hook"}));
        let kept = ask("POST", "/api/v1/subscriptions", hook()).await;
        let gone = ask("POST", "/api/v1/subscriptions", hook()).await;
        ask("DELETE", &format!("/api/v1/subscriptions/{}", owned_text(&gone["id"])), None).await;
        owned_text(&kept["id"])
    });
    // Asked while the server runs, and when it is gone.
    left.verifies();
    drop(server);
    left.verifies();
    (left.revoked, left.subscription) = (revoked, subscription);
    left
}

/// Changes by SQL, and what is found.
fn changes(left: &Left) -> Vec<(String, String, &'static str)> {
    let key = format!("key {} of tenant default", left.revoked);
    let subscription = format!("subscription {} of tenant default", left.subscription);
    let session = r#"session ["ops","ann","s-1"] of tenant default"#.to_owned();
    let (prefix, other) = (&left.revoked, "it is not what the audit says of it");
    vec![
        (format!("UPDATE credentials SET revoked_at = NULL WHERE prefix = '{prefix}'"), key.clone(), other),
        (
            format!("UPDATE credentials SET facts = replace(facts, 'bob', 'ann') WHERE prefix = '{prefix}'"),
            key.clone(),
            other,
        ),
        (
            format!("DELETE FROM credentials WHERE prefix = '{prefix}'"),
            key,
            "it is gone, and the audit does not say that it was deleted",
        ),
        (
            "INSERT INTO credentials (tenant, prefix, hash, facts) SELECT tenant, 'mallory', hash, facts FROM credentials LIMIT 1"
                .into(),
            "key mallory of tenant default".into(),
            "nothing in the audit says that it was made or changed",
        ),
        (
            "UPDATE subscriptions SET facts = replace(facts, ':9/hook', ':8/hook')".into(),
            subscription.clone(),
            other,
        ),
        ("DELETE FROM subscriptions".into(), subscription, "it is gone"),
        ("UPDATE sessions SET metadata = '{\"topic\":\"third\"}'".into(), session.clone(), other),
        ("UPDATE sessions SET metadata = '{}'".into(), session.clone(), other),
        (format!("UPDATE sessions SET closed = {}", left.is), session, other),
    ]
}

/// T32: on SQLite.
#[test]
fn keys_subscriptions_and_metadata_are_compared_with_the_audit() {
    let left = left("backend: sql, sql: {driver: sqlite, database: a.db}");
    let (file, whole) = (left.path("a.db"), left.path("whole.db"));
    let database = rusqlite::Connection::open(&file).unwrap();
    database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(database);
    std::fs::copy(&file, &whole).unwrap();
    let damage = format!("UPDATE credentials SET hash = x'00' WHERE prefix = '{}'", left.revoked);
    let damaged = (damage, format!("key {} of tenant default", left.revoked), "it cannot be read");
    for (sql, row, what) in changes(&left).into_iter().chain([damaged]) {
        let database = rusqlite::Connection::open(&file).unwrap();
        database.execute_batch(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        drop(database);
        left.finds(&sql, &row, what);
        for beside in ["a.db-wal", "a.db-shm"] {
            let _ = std::fs::remove_file(left.path(beside));
        }
        std::fs::copy(&whole, &file).unwrap();
    }
    left.verifies();
}

/// T32: the same on Postgres.
#[test]
fn keys_subscriptions_and_metadata_are_compared_with_the_audit_on_postgres() {
    let url = shared().database();
    let left =
        Left { is: "true", ..left(&format!("backend: sql, sql: {{driver: postgres, url: \"{url}\"}}")) };
    let tables = ["credentials", "subscriptions", "sessions"];
    let save = tables.map(|table| format!("CREATE TABLE saved_{table} AS TABLE {table}"));
    cluster::run(&url, &save);
    let back =
        tables.map(|table| format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM saved_{table}"));
    for (sql, row, what) in changes(&left) {
        cluster::run(&url, std::slice::from_ref(&sql));
        left.finds(&sql, &row, what);
        cluster::run(&url, &back);
    }
    left.verifies();
}

/// T32: in files, for subscriptions and metadata; keys are files that other processes write, and no audit has them.
#[test]
fn subscriptions_and_metadata_are_compared_with_the_audit_in_files() {
    let left = left("backend: file, file: {directory: ./kept}");
    left.stop_in_order();
    let edit = |file: &Path, from: &str, to: &str| {
        let before = std::fs::read_to_string(file).unwrap();
        assert!(before.contains(from), "{before}");
        std::fs::write(file, before.replace(from, to)).unwrap();
        before
    };
    let subscription = left.path("kept/subscription").join(format!("{}.json", left.subscription));
    let session = left.path("kept/session/ops/s-1.json");
    let other = "it is not what the audit says of it";
    for (file, from, to, row) in [
        (&subscription, ":9/hook", ":8/hook", format!("subscription {}", left.subscription)),
        (&session, "second", "third", r#"session ["ops","ann","s-1"]"#.to_owned()),
    ] {
        let before = edit(file, from, to);
        left.finds(to, &row, other);
        std::fs::write(file, before).unwrap();
    }
    let kept = std::fs::read_to_string(&subscription).unwrap();
    std::fs::remove_file(&subscription).unwrap();
    left.finds("a deletion", &format!("subscription {}", left.subscription), "it is gone");
    std::fs::write(&subscription, &kept).unwrap();
    let added = left.path("kept/subscription/sub_mallory.json");
    std::fs::write(&added, kept.replace(&left.subscription, "sub_mallory")).unwrap();
    left.finds(
        "an addition",
        "subscription sub_mallory",
        "nothing in the audit says that it was made or changed",
    );
    std::fs::remove_file(added).unwrap();
    left.verifies();
}

/// T32, F1: whoever is killed while they make or revoke a key leaves both the key and its entry, or neither.
#[test]
fn a_kill_while_a_key_is_made_leaves_nothing_that_does_not_fit() {
    let left = left("backend: sql, sql: {driver: sqlite, database: a.db}");
    let config = left.path("standfast.yaml");
    let mut made = 0;
    for round in 0..u64::try_from(standfast_testkit::rounds(24)).unwrap() {
        let mut command = standfast_testkit::standfast();
        command.args(["keys", "create", "--user", "eve", "--scope", "runs:read", "--config"]).arg(&config);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(round % 24 * 3));
        // It may have ended by itself.
        let _ = child.kill();
        made += u32::from(child.wait().unwrap().success());
    }
    left.verifies();
    let (code, listed) = left.standfast(&["keys", "list"]);
    assert_eq!(code, 0, "{listed}");
    let kept = listed.lines().filter(|line| line.contains("eve")).count();
    assert!(kept >= made as usize, "{made} were acknowledged: {listed}");
}

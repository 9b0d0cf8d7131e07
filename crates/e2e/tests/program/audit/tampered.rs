//! T32: a database that somebody with write access changed: rows, definitions, proofs of deletion, whole runs, chains that
//! were resealed.
//!
//! One server makes it, as in everyday use; each test changes a copy and asks the real program.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::Ed25519KeyPair;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use rusqlite::Connection;
use serde_json::{Value, json};
use standfast_store::conformance::cluster::{self, shared};
use tempfile::TempDir;

use super::{text, verify};
use standfast_testkit::Server;

/// What a server has left behind: the file, and the runs in it.
pub(super) struct Left {
    directory: TempDir,
    /// Approved and over; held; erased with its session; over.
    pub(super) runs: [String; 4],
}

fn standfast(arguments: &[&str]) -> Output {
    standfast_testkit::standfast().args(arguments).output().unwrap()
}

/// A server that is asked from a test that does not wait by itself.
struct Asked {
    server: Server,
    runtime: tokio::runtime::Runtime,
}

impl Asked {
    fn on(data: &Path) -> Asked {
        Asked::of(Server::demo(data))
    }

    fn of(server: Server) -> Asked {
        Asked { server, runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap() }
    }

    fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let (status, answer) = self.runtime.block_on(self.server.ask(method, path, body));
        assert!((200..300).contains(&status), "{path}: {status} {answer}");
        answer
    }

    /// A run that is held, and its hold.
    fn held(&self, session: &str) -> (String, String) {
        self.runtime.block_on(self.server.held_in(session))
    }

    fn over(&self, session: &str) -> String {
        let (run, hold) = self.held(session);
        let body = json!({"resolution": "approve", "wait": "settled"});
        self.ask("POST", &format!("/api/v1/holds/{hold}/resolve"), Some(body));
        run
    }
}

pub(super) fn left() -> &'static Left {
    static LEFT: OnceLock<Left> = OnceLock::new();
    LEFT.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let server = Asked::on(directory.path());
        let first = server.over("s-1");
        let (held, _) = server.held("s-2");
        let erased = server.over("s-3");
        server.ask("DELETE", "/api/v1/sessions/s-3", None);
        let last = server.over("s-4");
        drop(server);
        // Everything in one file, so that it can be copied.
        let database = Connection::open(directory.path().join("standfast.db")).unwrap();
        database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        std::fs::write(directory.path().join("key.pem"), pem()).unwrap();
        Left { directory, runs: [first, held, erased, last] }
    })
}

pub(super) fn pem() -> String {
    let key = Ed25519KeyPair::generate_pkcs8v1(&SystemRandom::new()).unwrap();
    let text = BASE64_STANDARD.encode(key.as_ref());
    format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n")
}

/// A copy of what the server left, with its key.
pub(super) fn copy() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("standfast.db");
    std::fs::copy(left().directory.path().join("standfast.db"), &path).unwrap();
    std::fs::copy(left().directory.path().join("key.pem"), directory.path().join("key.pem")).unwrap();
    (directory, path)
}

pub(super) fn change(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// T32, S0-53: untouched, everything verifies: holds, phases, definitions, the audit and the proof of the deletion.
#[test]
fn what_a_server_leaves_behind_verifies() {
    let (_directory, path) = copy();
    let answer = verify(&path, &[]);
    let said = text(&answer.stdout);
    assert_eq!(answer.status.code(), Some(0), "{said}");
    assert!(said.contains("4 runs") && said.contains("1 erased, 2 audit entries"), "{said}");
    assert!(said.contains("no signed heads were given"), "{said}");
}

/// T32: each row that a page or an API shows, changed, deleted or added by hand, is named with its run.
#[test]
fn t32_every_row_that_is_shown_is_compared_with_the_chain() {
    let [first, held, erased, _] = &left().runs;
    let decided = "(SELECT no FROM holds WHERE run = 1)";
    for (sql, named, says) in [
        // Rewritten, deleted and reopened holds.
        (format!("UPDATE holds SET record = replace(record, '\"how\":1', '\"how\":3') WHERE no = {decided}"), first, "the row of hold_"),
        (format!("UPDATE holds SET record = replace(record, 'person:local', 'person:mallory') WHERE no = {decided}"), first, "is not what its events say"),
        (format!("UPDATE holds SET record = replace(record, '\"closed_at\":1', '\"closed_at\":2') WHERE no = {decided}"), first, "is not what its events say"),
        (format!("DELETE FROM holds WHERE no = {decided}"), first, "is missing"),
        (format!("UPDATE holds SET closed = 0, record = NULL WHERE no = {decided}"), first, "its row says that it is open"),
        (format!("UPDATE holds SET record = NULL WHERE no = {decided}"), first, "its row says that it is open"),
        ("DELETE FROM holds WHERE run = 2".into(), held, "is missing"),
        ("UPDATE holds SET closed = 1, record = (SELECT record FROM holds WHERE run = 1) WHERE run = 2".into(), held, "its row says that it was decided"),
        ("UPDATE holds SET kind = 2 WHERE run = 2".into(), held, "is not what its events say"),
        ("UPDATE holds SET tool = NULL WHERE run = 2".into(), held, "is not what its events say"),
        ("UPDATE holds SET run = 2 WHERE run = 1".into(), first, "is missing"),
        ("INSERT INTO holds (run, call, secret, tenant, agent, kind) SELECT run, 9, secret, tenant, agent, kind FROM holds WHERE run = 2".into(), held, "no event opened"),
        // The columns of a run.
        ("UPDATE runs SET phase = 9 WHERE no = 1".into(), first, "it is listed under phase 9"),
        ("UPDATE runs SET phase = 8 WHERE no = 2".into(), held, "it is listed under phase 8"),
        ("UPDATE runs SET owner = (SELECT agent FROM runs WHERE no = 1) WHERE no = 1".into(), first, "its row is not what"),
        ("UPDATE runs SET started_at = started_at - 1 WHERE no = 2".into(), held, "its row is not what"),
        // What an erased run still says.
        ("UPDATE runs SET phase = 9 WHERE no = 3".into(), erased, "it is listed under phase 9"),
        ("UPDATE runs SET owner = agent WHERE no = 3".into(), erased, "what is left of it was changed"),
        ("UPDATE holds SET record = replace(record, '\"how\":1', '\"how\":3') WHERE run = 3".into(), erased, "what is left of it was changed"),
        ("DELETE FROM holds WHERE run = 3".into(), erased, "what is left of it was changed"),
        ("UPDATE links SET commitment = zeroblob(32) WHERE key = (3 << 20) + 1".into(), erased, "the hash of the link"),
    ] {
        let (_directory, path) = copy();
        change(&path, &sql);
        let answer = verify(&path, &[]);
        let said = text(&answer.stdout);
        assert_eq!(answer.status.code(), Some(1), "after {sql}: {said}");
        let finding = said.lines().find(|line| line.starts_with(named.as_str()));
        assert!(finding.is_some_and(|line| line.contains(says)), "after {sql}: {said}");
    }
}

/// T32: definitions, the audit of the tenant with its proofs, and runs that are gone and left something behind.
#[test]
fn what_stands_beside_the_runs_is_verified_too() {
    for (sql, says) in [
        (
            "UPDATE definitions SET bytes = CAST(replace(bytes, 'delete', 'create') AS BLOB)",
            "it was changed: its bytes do not have this digest",
        ),
        (
            "UPDATE definitions SET bytes = CAST(replace(bytes, 'delete', 'create') AS BLOB)",
            "that it is pinned to is missing or was changed",
        ),
        ("DELETE FROM definitions", "that it is pinned to is missing or was changed"),
        (
            "UPDATE audit SET entry = replace(entry, '\"by\":\"local\"', '\"by\":\"nobody\"')",
            "audit of tenant default: the hash of entry 2",
        ),
        ("UPDATE audit SET at = at - 1", "audit of tenant default: the hash of entry 1"),
        ("DELETE FROM audit WHERE no = 1", "audit of tenant default: entry 1 is missing"),
        ("DELETE FROM audit", "has no proof of that"),
        ("DELETE FROM runs WHERE no = 2", "row 2: of runs that are gone"),
        ("DELETE FROM runs WHERE no = 4", "row 4: of a run that is gone: its events or holds are still here"),
        (
            "DELETE FROM runs WHERE no = 3; DELETE FROM links WHERE key >> 20 = 3; DELETE FROM holds WHERE run = 3",
            "row 3: of runs that are gone",
        ),
    ] {
        let (_directory, path) = copy();
        change(&path, sql);
        let answer = verify(&path, &[]);
        let said = text(&answer.stdout);
        assert_eq!(answer.status.code(), Some(1), "after {sql}: {said}");
        assert!(said.contains(says), "after {sql}: {said}");
    }
}

fn sign(path: &Path, heads: &Path) -> Output {
    let key = path.with_file_name("key.pem");
    let arguments = ["audit", "head", path.to_str().unwrap(), "--heads", heads.to_str().unwrap()];
    standfast(&[&arguments[..], &["--key", key.to_str().unwrap()]].concat())
}

fn verified(path: &Path, heads: &Path) -> Output {
    let key = path.with_file_name("key.pem");
    verify(path, &["--heads", heads.to_str().unwrap(), "--key", key.to_str().unwrap()])
}

/// T32: without a trace in the database: the last run is taken out of it altogether, a run is rolled back to an earlier
/// event, a chain is resealed with other contents, the audit is cut or resealed. Without heads all of this
/// verifies; with them each is named.
#[test]
fn signed_heads_notice_what_is_gone_rolled_back_or_sealed_anew() {
    let [_, _, _, last] = &left().runs;
    let gone = "DELETE FROM runs WHERE no = 4; DELETE FROM links WHERE key >> 20 = 4; DELETE FROM holds WHERE run = 4;";
    type Tamper<'a> = (&'a str, Box<dyn Fn(&Path)>, String);
    let cases: Vec<Tamper<'_>> = vec![
        ("gone", Box::new(move |path| change(path, gone)), format!("{last}: it is gone")),
        ("rolled back", Box::new(roll_back), format!("{last}: it was rolled back")),
        ("sealed anew", Box::new(seal_anew), format!("{last}: its chain was rewritten")),
        ("audit sealed anew", Box::new(seal_audit_anew), "entry 2 is not the one that was signed".into()),
    ];
    for (what, tamper, says) in cases {
        let (directory, path) = copy();
        let heads = directory.path().join("elsewhere.jsonl");
        let signed = sign(&path, &heads);
        assert_eq!(signed.status.code(), Some(0), "{signed:?}");
        assert!(text(&signed.stdout).starts_with("head 1: 4 runs, 4 of them new or changed"), "{signed:?}");
        let before = verified(&path, &heads);
        assert_eq!(before.status.code(), Some(0), "{what}: {before:?}");
        assert!(text(&before.stdout).contains("1 signed heads"), "{before:?}");
        tamper(&path);
        let alone = verify(&path, &[]);
        assert_eq!(alone.status.code(), Some(0), "{what}: {}", text(&alone.stdout));
        let after = verified(&path, &heads);
        let said = text(&after.stdout);
        assert_eq!(after.status.code(), Some(1), "{what}: {said}");
        assert!(said.contains(&says), "{what}: {said}");
        // Nobody signs over it either.
        let again = sign(&path, &heads);
        assert_eq!(again.status.code(), Some(2), "{what}: {again:?}");
        assert!(text(&again.stderr).contains("not signed"), "{what}: {again:?}");
    }
}

/// S0-53: receipts are proven with a copy of the database, the heads and the key alone: one that the heads cover, and one of a run that
/// is newer than they are. What a receipt says otherwise is named.
#[test]
fn receipts_are_verified_offline_against_signed_heads() {
    let (data, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (path, heads) = (copies.path().join("standfast.db"), copies.path().join("heads.jsonl"));
    std::fs::write(copies.path().join("key.pem"), pem()).unwrap();
    let decided = |session: &str, name: &str| {
        let server = Asked::on(data.path());
        let (run, hold) = server.held(session);
        let body = json!({"resolution": "approve", "wait": "settled"});
        server.ask("POST", &format!("/api/v1/holds/{hold}/resolve"), Some(body));
        let receipt = server.ask("GET", &format!("/api/v1/holds/{hold}/receipt"), None);
        std::fs::write(copies.path().join(name), receipt.to_string()).unwrap();
        drop(server);
        let database = Connection::open(data.path().join("standfast.db")).unwrap();
        database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        std::fs::copy(data.path().join("standfast.db"), &path).unwrap();
        run
    };
    let older = decided("s-1", "older.json");
    assert_eq!(sign(&path, &heads).status.code(), Some(0));
    let newer = decided("s-2", "newer.json");
    let verified = |name: &str| {
        let [heads, key, receipt] = [&heads, &copies.path().join("key.pem"), &copies.path().join(name)]
            .map(|path| path.display().to_string());
        let answer = verify(&path, &["--heads", &heads, "--key", &key, "--receipt", &receipt]);
        (answer.status.code(), text(&answer.stdout))
    };
    for (name, run, says) in [
        ("older.json", &older, "; signed heads cover it"),
        ("newer.json", &newer, "; it is newer than the newest signed head"),
    ] {
        let (code, said) = verified(name);
        let line = said.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{said}"));
        assert_eq!(code, Some(0), "{said}");
        assert!(line.contains("as stored in events ") && line.contains(run.as_str()), "{line}");
        assert!(line.contains(says), "{line}");
    }
    let written = std::fs::read_to_string(copies.path().join("older.json")).unwrap();
    let forged = written.replace("person:local", "person:mallory");
    assert_ne!(written, forged);
    std::fs::write(copies.path().join("forged.json"), forged).unwrap();
    let (code, said) = verified("forged.json");
    assert!(code == Some(1) && said.contains("this receipt is not what is stored"), "{said}");
}

/// Rolls the last run back to its first append, with a row and holds that follow from it.
fn roll_back(path: &Path) {
    rewrite(path, |links| links.truncate(1));
}

/// Changes what the last run was asked for, and reseals everything after it.
fn seal_anew(path: &Path) {
    rewrite(path, |links| {
        let payload = links[0].1.replace("Free some space", "Clear out a disk");
        assert_ne!(payload, links[0].1);
        links[0].1 = payload;
    });
}

/// Rewrites the chain of run 4, as the store itself would: links, row and holds follow from the changed payloads.
fn rewrite(path: &Path, edit: impl FnOnce(&mut Vec<(Row, String)>)) {
    use standfast_core::link::{Chain, FIRST_PREVIOUS, Link};
    let database = Connection::open(path).unwrap();
    let id: [u8; 16] = database.query_row("SELECT id FROM runs WHERE no = 4", [], |row| row.get(0)).unwrap();
    let run = standfast_core::id::RunId::from_bytes(id);
    let mut statement = database
        .prepare("SELECT key, at, n.text, salt, payload FROM links JOIN names n ON n.no = actor WHERE key >> 20 = 4 ORDER BY key")
        .unwrap();
    let rows = statement.query_map([], |row| {
        Ok((Row { key: row.get(0)?, at: row.get(1)?, actor: row.get(2)?, salt: row.get(3)? }, row.get(4)?))
    });
    let mut links: Vec<(Row, String)> = rows.unwrap().map(Result::unwrap).collect();
    edit(&mut links);
    let (mut previous, mut events) = (FIRST_PREVIOUS, Vec::new());
    let mut sealed = Vec::new();
    for (row, payload) in &links {
        let contents: Vec<standfast_core::event::Event> = serde_json::from_str(payload).unwrap();
        let first = standfast_core::id::Seq(u64::try_from(row.key & 0xf_ffff).unwrap());
        let at = standfast_core::time::Timestamp(row.at);
        let chain = Chain { previous, salt: row.salt };
        let link = Link::seal(run, first, at, row.actor.parse().unwrap(), &contents, chain);
        previous = link.hash;
        events.extend(link.events().unwrap());
        sealed.push((row.key, link));
    }
    let folded = standfast_core::apply::fold(run, &events).unwrap();
    let row = standfast_core::project::run_row(folded.clone(), previous);
    let holds = standfast_core::project::hold_rows(run, &events);
    database
        .execute("DELETE FROM links WHERE key >> 20 = 4 AND key > ?1", [sealed.last().unwrap().0])
        .unwrap();
    for (key, link) in &sealed {
        let standfast_core::link::Contents::Whole { payload, .. } = &link.contents else { panic!() };
        let change = rusqlite::params![key, std::str::from_utf8(payload).unwrap(), link.hash.0];
        database.execute("UPDATE links SET payload = ?2, hash = ?3 WHERE key = ?1", change).unwrap();
    }
    if holds.is_empty() {
        database.execute("DELETE FROM holds WHERE run = 4", []).unwrap();
    }
    let state = serde_json::to_string(&folded.state).unwrap();
    let values = rusqlite::params![folded.state.seq.0, folded.state.at.0, previous.0, row.phase as u8, state];
    database
        .execute("UPDATE runs SET seq = ?1, at = ?2, head = ?3, phase = ?4, state = ?5 WHERE no = 4", values)
        .unwrap();
}

struct Row {
    key: i64,
    at: i64,
    actor: String,
    salt: [u8; 16],
}

/// Changes who deleted the session, and reseals the entry. The one before says that the session was closed.
fn seal_audit_anew(path: &Path) {
    let database = Connection::open(path).unwrap();
    let closed = "SELECT hash FROM audit WHERE no = 1";
    let closed = standfast_core::digest::Digest(database.query_row(closed, [], |row| row.get(0)).unwrap());
    let deleted = "SELECT at, entry FROM audit WHERE no = 2";
    let (at, entry): (i64, String) =
        database.query_row(deleted, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let entry = entry.replace("\"by\":\"local\"", "\"by\":\"nobody\"");
    let at = standfast_core::time::Timestamp(at);
    let hash = standfast_store::audit::entry_hash(Some(closed), "default", 2, at, &entry);
    let sealed = "UPDATE audit SET entry = ?1, hash = ?2 WHERE no = 2";
    database.execute(sealed, rusqlite::params![entry, hash.0]).unwrap();
}

/// T32: a file of heads that was changed, and heads of somebody else, are refused.
#[test]
fn heads_that_are_not_ours_are_refused() {
    let (directory, path) = copy();
    let heads = directory.path().join("heads.jsonl");
    assert_eq!(sign(&path, &heads).status.code(), Some(0));
    let whole = std::fs::read_to_string(&heads).unwrap();
    std::fs::write(&heads, whole.replace("\"runs\":4", "\"runs\":3")).unwrap();
    let no = verified(&path, &heads);
    assert_eq!(no.status.code(), Some(2), "{no:?}");
    assert!(text(&no.stderr).contains("line 1 of the heads file"), "{no:?}");
    std::fs::write(&heads, &whole).unwrap();
    std::fs::write(directory.path().join("key.pem"), pem()).unwrap();
    let no = verified(&path, &heads);
    assert!(text(&no.stderr).contains("it is signed with another key"), "{no:?}");
    let missing = verify(&path, &["--heads", "/nowhere/heads.jsonl"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("cannot be used"), "{missing:?}");
}

/// T32: a server signs by itself, at intervals and when it stops, with a key from a file or a command; the configuration
/// is enough to verify with.
#[test]
fn a_server_signs_at_intervals() {
    for key in ["key_file: key.pem", "key_command: [cat, KEY]"] {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("key.pem"), pem()).unwrap();
        std::fs::write(path("script.yaml"), r#"{"replies": [{"text": "done"}]}"#).unwrap();
        let key = key.replace("KEY", path("key.pem").to_str().unwrap());
        let text_of = format!(
            "llms: {{s: {{type: scripted, script: script.yaml}}}}
session_stores: {{main: {{backend: sql, sql: {{driver: sqlite, database: a.db}}}}}}
agents: {{ops: {{llm: s, session_store: main, task: {{}}}}}}
server: {{audit: {{heads: heads.jsonl, {key}, every: 1s}}}}
"
        );
        std::fs::write(path("standfast.yaml"), text_of).unwrap();
        let config = path("standfast.yaml").display().to_string();
        let mut command = standfast_testkit::standfast();
        command.args(["serve", "--listen", "127.0.0.1:0", "--config", &config, "--data"]).arg(path("data"));
        let server = Asked::of(Server::of(standfast_testkit::start(&mut command)));
        let begun = server.ask(
            "POST",
            "/api/v1/agents/ops/runs",
            Some(json!({"input": "please", "wait": "settled"})),
        );
        let run = begun["id"].as_str().unwrap().to_owned();
        let is_signed =
            || std::fs::read_to_string(path("heads.jsonl")).is_ok_and(|heads| heads.contains(&run));
        for _ in 0..600 {
            if is_signed() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(is_signed(), "{run} was never signed");
        let answer = standfast(&["audit", "verify", "--config", &config]);
        let said = text(&answer.stdout);
        assert_eq!(answer.status.code(), Some(0), "{said}");
        assert!(said.contains("signed heads, the newest of"), "{said}");
        let head = standfast(&["audit", "head", "--config", &config, "--json"]);
        let head: Value = serde_json::from_str(&text(&head.stdout)).unwrap();
        assert_eq!(head["runs"], 1, "{head}");
        let database = std::fs::read(path("a.db")).unwrap();
        let key = std::fs::read_to_string(path("key.pem")).unwrap();
        let secret = key.lines().nth(1).unwrap();
        assert!(
            !database.windows(secret.len()).any(|window| window == secret.as_bytes()),
            "the key is in the database"
        );
    }
}

/// A folder with a configuration of the agent `ops` on this database: a call that is held, then the end.
fn configured(sql: &str) -> (TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("key.pem"), pem()).unwrap();
    let script =
        "replies:\n- calls: [{tool: write_file, arguments: {path: a.txt, content: once}}]\n- text: done\n";
    std::fs::write(path("script.yaml"), script).unwrap();
    let config = format!(
        "llms: {{s: {{type: scripted, script: script.yaml}}}}
session_stores: {{main: {{backend: sql, sql: {{{sql}}}}}}}
agents: {{ops: {{llm: s, session_store: main, tools: [write_file], task: {{}}}}}}
server: {{audit: {{heads: heads.jsonl, key_file: key.pem, every: 1h}}}}
"
    );
    std::fs::write(path("standfast.yaml"), config).unwrap();
    let config = path("standfast.yaml").display().to_string();
    (directory, config)
}

/// T32: the same on Postgres: holds, phases, definitions, the audit, runs that are gone or were rolled back.
#[test]
fn postgres_is_compared_with_its_chains_too() {
    let url = shared().database();
    let (directory, config) = configured(&format!("driver: postgres, url: \"{url}\""));
    let mut command = standfast_testkit::standfast();
    command.args(["serve", "--listen", "127.0.0.1:0", "--config", &config, "--data"]);
    let server = Asked::of(Server::of(standfast_testkit::start(command.arg(directory.path().join("data")))));
    let first = server.over("s-1");
    let (held, _) = server.held("s-2");
    let erased = server.over("s-3");
    server.ask("DELETE", "/api/v1/sessions/s-3", None);
    drop(server);
    let verified = || standfast(&["audit", "verify", "--config", &config]);
    assert_eq!(standfast(&["audit", "head", "--config", &config]).status.code(), Some(0));
    let clean = verified();
    assert_eq!(clean.status.code(), Some(0), "{clean:?}");
    assert!(
        text(&clean.stdout).contains("3 runs") && text(&clean.stdout).contains("2 audit entries"),
        "{clean:?}"
    );
    let id = |run: &str| {
        let id: standfast_core::id::RunId = run.parse().unwrap();
        format!("'{}'", id.bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    };
    let (one, two, three) = (id(&first), id(&held), id(&erased));
    let saved = ["runs", "links", "holds", "definitions", "audit"];
    let save: Vec<String> =
        saved.iter().map(|table| format!("CREATE TABLE saved_{table} AS TABLE {table}")).collect();
    cluster::run(&url, &save);
    let all = |tables: &[&str]| -> Vec<String> {
        let back =
            |table: &&str| format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM saved_{table}");
        tables.iter().map(back).collect()
    };
    for (sql, says) in [
        (
            format!("UPDATE holds SET record = replace(record, '\"how\":1', '\"how\":3') WHERE run = {one}"),
            format!("{first}: the row of hold_"),
        ),
        (format!("DELETE FROM holds WHERE run = {one}"), "is missing".into()),
        (
            format!("UPDATE holds SET closed = false, record = NULL WHERE run = {one}"),
            "its row says that it is open".into(),
        ),
        (
            format!("UPDATE runs SET phase = 9 WHERE id = {two}"),
            format!("{held}: it is listed under phase 9"),
        ),
        (
            format!(
                "UPDATE holds SET record = replace(record, '\"how\":1', '\"how\":3') WHERE run = {three}"
            ),
            format!("{erased}: what is left of it was changed"),
        ),
        (
            "UPDATE definitions SET bytes = bytes || '\\x20'".into(),
            "its bytes do not have this digest".into(),
        ),
        ("UPDATE audit SET entry = replace(entry, 'local', 'nobody')".into(), "the hash of entry 1".into()),
        ("DELETE FROM audit".into(), "it ends with entry 0, but entry 2 was signed".into()),
        (
            format!("DELETE FROM runs WHERE id = {two}"),
            format!("{held}: it is gone: its events or holds are still here"),
        ),
        (
            format!(
                "DELETE FROM runs WHERE id = {two}; DELETE FROM links WHERE run = {two}; DELETE FROM holds WHERE run = {two}"
            ),
            format!("{held}: it is gone: its events up to"),
        ),
    ] {
        cluster::run(&url, std::slice::from_ref(&sql));
        let answer = verified();
        let said = text(&answer.stdout);
        assert_eq!(answer.status.code(), Some(1), "after {sql}: {said}");
        assert!(said.contains(&says), "after {sql}: {said}");
        cluster::run(&url, &all(&saved));
    }
    assert_eq!(verified().status.code(), Some(0));
}

//! T32: standing approvals are sealed documents, and each change of one has its entry in the tenant's audit. Whoever can write
//! the database cannot write themselves one, but could put an older document back: a revoked approval would count again.
//!
//! One server saves and revokes a standing approval on each kind of store; then what was stored before is put back.

use std::path::Path;

use serde_json::json;
use standfast_store::conformance::cluster::{self, query_text, shared};
use standfast_testkit::{Process, folder, serve};
use tempfile::TempDir;

use super::text;

/// The document with the standing approvals of the agent, as an audit names it.
const BOOK: &str = "sealed document grants a of tenant default: it is not what the audit says of it";

/// A folder whose agent wants to pay, every time the same, in a store.
fn paying(store: &str) -> TempDir {
    let arguments = json!({"path": "paid/a.txt", "content": "x"}).to_string();
    let call = json!({"tool": "write_file", "arguments": arguments});
    let script = json!({"replies": [{"calls": [call]}, {"text": "done"}]}).to_string();
    let folder = folder(
        &[("s", &script)],
        &format!(
            "tools: {{write_file: {{requires_approval: false}}}}
agents: {{a: {{llm: s, tools: [write_file], task: {{}}, session_store: main}}}}
session_stores: {{main: {{{store}}}}}
policy: {{rules: [{{id: pay, hold: write_file, because: it costs money}}]}}
"
        ),
    );
    std::fs::create_dir_all(folder.path().join("workspace/paid")).unwrap();
    folder
}

/// Saves a standing approval for a few calls; its id.
fn granted(server: &Process) -> String {
    let held = server.send("a");
    let id = standfast_testkit::text(&held["holds"][0]["id"]).to_owned();
    let like = ["--uses", "5"];
    let rule = server.ask(&[&["holds", "grant-rule", &id], &like[..]].concat());
    let (until, digest) = (standfast_testkit::text(&rule["until"]), standfast_testkit::text(&rule["digest"]));
    let exact = ["--until", until, "--rule", digest];
    server.ask(&[&["holds", "approve", &id], &like[..], &exact[..]].concat());
    assert_eq!(server.send("a")["status"], "completed", "the standing approval answers it");
    standfast_testkit::text(&server.ask(&["grants", "list"])["grants"][0]["id"]).to_owned()
}

fn verify(folder: &Path) -> (i32, String) {
    let mut command = standfast_testkit::standfast();
    let done = command.args(["audit", "verify", "--config"]).arg(folder.join("standfast.yaml")).output();
    let done = done.unwrap();
    (done.status.code().unwrap(), text(&done.stdout) + &text(&done.stderr))
}

/// Saves a standing approval, keeps what is stored of it, revokes it and ends the server, puts back what was kept: the
/// agent is not asked about any more, and the audit says why.
fn put_back<T>(
    store: &str,
    kept: impl FnOnce(&Path) -> T,
    put: impl FnOnce(&Path, T),
    end: impl FnOnce(Process),
) {
    let folder = paying(store);
    let server = serve(folder.path());
    let grant = granted(&server);
    let before = kept(folder.path());
    server.ask(&["grants", "revoke", &grant]);
    assert_eq!(server.send("a")["status"], "held", "it is revoked");
    assert_eq!(verify(folder.path()).0, 0, "{:?}", verify(folder.path()));
    end(server);
    assert_eq!(verify(folder.path()).0, 0, "{:?}", verify(folder.path()));
    put(folder.path(), before);
    let (code, said) = verify(folder.path());
    assert_eq!(code, 1, "{said}");
    let found: Vec<&str> = said.lines().filter(|line| line.contains("of tenant")).collect();
    assert_eq!(found, [BOOK], "{said}");
    let server = serve(folder.path());
    assert_eq!(server.send("a")["status"], "completed", "what the audit found is what it is about");
    // A start of the server is no upgrade: it takes nothing into the audit.
    drop(server);
    let (code, said) = verify(folder.path());
    assert!(code == 1 && said.contains(BOOK), "{said}");
}

const READ: &str = "SELECT value FROM sealed WHERE name = 'grants a'";

fn statements(value: &str) -> [String; 2] {
    [
        format!("UPDATE sealed SET value = '{value}' WHERE name = 'grants a'"),
        "DELETE FROM keys WHERE key LIKE 'grant revoked %'".to_owned(),
    ]
}

/// T32: on SQLite.
#[test]
fn a_revoked_standing_approval_that_is_put_back_is_noticed() {
    put_back(
        "backend: sql, sql: {driver: sqlite, database: a.db}",
        |folder| {
            let database = rusqlite::Connection::open(folder.join("a.db")).unwrap();
            database.query_row(READ, [], |row| row.get::<_, String>(0)).unwrap()
        },
        |folder, value| {
            let database = rusqlite::Connection::open(folder.join("a.db")).unwrap();
            statements(&value).iter().for_each(|one| database.execute_batch(one).unwrap());
        },
        drop,
    );
}

/// T32: the same on Postgres.
#[test]
fn a_revoked_standing_approval_that_is_put_back_is_noticed_on_postgres() {
    let url = shared().database();
    put_back(
        &format!("backend: sql, sql: {{driver: postgres, url: \"{url}\"}}"),
        |_| query_text(&url, READ).unwrap(),
        |_, value| cluster::run(&url, &statements(&value)),
        drop,
    );
}

/// In order: what a killed server had in its journal would undo the change of a file.
fn end_in_order(mut server: Process) {
    let pid = server.child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

/// Takes a key out of the file that has them.
fn forget_line(folder: &Path, key: &str) {
    let keys = folder.join("kept/keys.jsonl");
    let lines = std::fs::read_to_string(&keys).unwrap();
    let kept: String = lines.split_inclusive('\n').filter(|line| !line.contains(key)).collect();
    assert_ne!(kept, lines, "{key}");
    std::fs::write(&keys, kept).unwrap();
}

/// T32: the same in files.
#[test]
fn a_revoked_standing_approval_that_is_put_back_is_noticed_in_files() {
    let documents = |folder: &Path| -> Vec<std::path::PathBuf> {
        let all = std::fs::read_dir(folder.join("kept/sealed")).into_iter().flatten();
        all.map(|entry| entry.unwrap().path()).collect()
    };
    put_back(
        "backend: file, file: {directory: ./kept}",
        |folder| {
            // A second server on a copy of the folder, which ends in order, has the journal in the files.
            let copy = tempfile::tempdir().unwrap();
            let mut cp = std::process::Command::new("cp");
            assert!(cp.arg("-a").arg(folder.join(".")).arg(copy.path()).status().unwrap().success());
            end_in_order(serve(copy.path()));
            let book = documents(copy.path()).into_iter().next().unwrap();
            (book.file_name().unwrap().to_owned(), std::fs::read(&book).unwrap())
        },
        |folder, (name, bytes)| {
            std::fs::write(folder.join("kept/sealed").join(name), bytes).unwrap();
            forget_line(folder, "grant revoked");
        },
        end_in_order,
    );
}

const ON_SQLITE: &str = "backend: sql, sql: {driver: sqlite, database: a.db}";

/// What a start took is in its event and in a row that keeps others from taking it. Without the row it could be taken again: the audit
/// looks for it, and says what is missing.
fn misses(folder: &Path, took: &str, forget: impl FnOnce()) {
    let (code, said) = verify(folder);
    assert!(!said.contains(&format!("it took `{took}")), "{code} {said}");
    forget();
    let (code, said) = verify(folder);
    assert!(code == 1 && said.contains(&format!("it took `{took}")), "{took}: {code} {said}");
    assert!(said.contains("the row that says so is missing or changed"), "{said}");
}

/// T32: on SQLite: the use of a standing approval, a number of a budget and how much was taken with it, an effect.
#[test]
fn what_starts_took_is_looked_for() {
    let delete = |folder: &Path, key: &str| {
        let database = rusqlite::Connection::open(folder.join("a.db")).unwrap();
        let gone = database.execute(&format!("DELETE FROM keys WHERE key LIKE '{key}%'"), []).unwrap();
        assert_eq!(gone, 1, "{key}");
    };
    let folder = paying(ON_SQLITE);
    let server = serve(folder.path());
    granted(&server);
    drop(server);
    assert_eq!(verify(folder.path()).0, 0, "{:?}", verify(folder.path()));
    misses(folder.path(), "grant use 1 ", || delete(folder.path(), "grant use 1 "));

    let folder = paying(ON_SQLITE);
    let config = folder.path().join("standfast.yaml");
    let counted = "{id: pay, allow: write_file, effect_key: \"paid:{path}\", budgets: [{name: few, limit: 5, window: 1d}]}";
    let rules = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, rules.replace("{id: pay, hold: write_file, because: it costs money}", counted))
        .unwrap();
    let server = serve(folder.path());
    assert_eq!(server.send("a")["status"], "completed");
    drop(server);
    assert_eq!(verify(folder.path()).0, 0, "{:?}", verify(folder.path()));
    // Somebody gives back what was taken.
    misses(folder.path(), "budget [", || {
        let database = rusqlite::Connection::open(folder.path().join("a.db")).unwrap();
        let less = "UPDATE keys SET key = substr(key, 1, length(key) - 1) || '0' WHERE key LIKE 'budget [%'";
        assert_eq!(database.execute(less, []).unwrap(), 1);
    });
    misses(folder.path(), "budget number ", || delete(folder.path(), "budget number "));
    misses(folder.path(), "effect 1 paid:paid%2Fa.txt", || delete(folder.path(), "effect 1 "));
}

/// T32: the same on Postgres, where the row is not gone but another call's.
#[test]
fn what_starts_took_is_looked_for_on_postgres() {
    let url = shared().database();
    let folder = paying(&format!("backend: sql, sql: {{driver: postgres, url: \"{url}\"}}"));
    let server = serve(folder.path());
    granted(&server);
    drop(server);
    assert_eq!(verify(folder.path()).0, 0, "{:?}", verify(folder.path()));
    let other = "UPDATE keys SET request = decode(repeat('00', 32), 'hex') WHERE encode(key, 'escape') LIKE 'grant use 1 %'";
    misses(folder.path(), "grant use 1 ", || cluster::run(&url, &[other.to_owned()]));
}

/// T32: the same in files.
#[test]
fn what_starts_took_is_looked_for_in_files() {
    let folder = paying("backend: file, file: {directory: ./kept}");
    let server = serve(folder.path());
    granted(&server);
    end_in_order(server);
    assert_eq!(verify(folder.path()).0, 0, "{:?}", verify(folder.path()));
    misses(folder.path(), "grant use 1 ", || forget_line(folder.path(), "grant use 1 "));
}

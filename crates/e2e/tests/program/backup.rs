//! Backup and restore of the real program, as docs/backup.md has them: while it serves, verified, never over a file that is
//! there, and with a word on what comes back to life. F19: what was decided after a backup is not decided twice silently.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use standfast_store::conformance::cluster::{OwnServer, Replication, shared};
use standfast_testkit::receiver::{Mood, Receiver};
use standfast_testkit::{Http, serve, standfast, text};

const SCRIPT: &str = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"touch ran\"}'\n- text: done\n";

const CONFIG: &str = "
tools: {execute_command: {allowed_commands: [touch]}}
session_stores: {main-db: {backend: sql, sql: {driver: sqlite, database: ./kept/standfast.db}}}
agents: {ops: {llm: script, session_store: main-db, tools: [execute_command], task: {}}}
";

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A command about the database of the configuration in a folder.
fn about(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = standfast();
    command.args(arguments).args(["--config"]).arg(folder.join("standfast.yaml"));
    command.current_dir(folder).env_remove("STANDFAST_KEY").output().unwrap()
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(output)))
}

/// A backup of a server at work is one whole file; a copy of the database file alone would miss the write-ahead log. The
/// restored database says what is pending again, what was decided since, and goes on.
#[test]
fn a_backup_of_a_running_server_is_restored_and_goes_on() {
    let folder = standfast_testkit::folder(&[("script", SCRIPT)], CONFIG);
    let path = folder.path();
    let server = serve(path);
    let held: Vec<Value> = (0..5).map(|_| server.send("ops")).collect();
    let made = about(path, &["backup", "monday.backup", "--json"]);
    assert!(made.status.success(), "{}", said(&made));
    let report = json_of(&made);
    assert_eq!((&report["runs"], &report["ok"]), (&5.into(), &true.into()), "{report}");
    let again = about(path, &["backup", "monday.backup"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(said(&again).contains("monday.backup is there and is not overwritten"), "{}", said(&again));

    // What happens after the backup happens in the world.
    let hold = |no: usize| text(&held[no]["holds"][0]["id"]).to_owned();
    server.ask(&["holds", "approve", &hold(0)]);
    server.run_once(text(&held[0]["id"]), "completed");
    assert!(path.join("workspace/ran").exists());
    let later = server.send("ops");
    let refused = about(path, &["restore", "monday.backup"]);
    assert!(
        said(&refused).contains("is there and is not overwritten; move it away first"),
        "{}",
        said(&refused)
    );
    drop(server);

    std::fs::rename(path.join("kept"), path.join("broken")).unwrap();
    std::fs::create_dir(path.join("kept")).unwrap();
    let compare = ["restore", "monday.backup", "--compare", "broken/standfast.db"];
    let restored = about(path, &[&compare[..], &["--json"]].concat());
    assert!(restored.status.success(), "{}", said(&restored));
    let revived = &json_of(&restored)["revived"];
    assert_eq!(revived["pending"].as_array().unwrap().len(), 5, "{revived}");
    let since = &revived["later"];
    assert_eq!(since["decided"][0]["hold"], hold(0).as_str(), "{since}");
    assert_eq!(since["decided"][0]["how"], "approved", "{since}");
    assert_eq!((&since["new_runs"], &since["advanced"][0]), (&1.into(), &held[0]["id"]), "{since}");
    std::fs::remove_file(path.join("kept/standfast.db")).unwrap();
    let restored = said(&about(path, &compare));
    let expected = [
        "5 holds are pending again",
        "may have run already",
        " was approved by person:local",
        "revoke again",
    ];
    for line in expected {
        assert!(restored.contains(line), "{line}: {restored}");
    }

    let server = serve(path);
    assert!(server.try_ask(&["show", text(&later["id"])]).is_none(), "it began after the backup");
    // The approved call names this file: as long as it is another than the one that was shown, people are asked again.
    std::fs::remove_file(path.join("workspace/ran")).unwrap();
    server.ask(&["holds", "approve", &hold(1)]);
    server.run_once(text(&held[1]["id"]), "completed");
    let verified = about(path, &["audit", "verify"]);
    assert!(verified.status.success(), "{}", said(&verified));
}

/// What is not a backup is not restored, and a broken one neither.
#[test]
fn a_file_that_is_no_backup_is_refused() {
    let folder = standfast_testkit::folder(&[("script", SCRIPT)], CONFIG);
    let path = folder.path();
    std::fs::create_dir(path.join("kept")).unwrap();
    std::fs::write(path.join("notes"), "x".repeat(10_000)).unwrap();
    for file in ["notes", "missing"] {
        let refused = about(path, &["restore", file]);
        assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    }
    assert_eq!(std::fs::read_dir(path.join("kept")).unwrap().count(), 0, "nothing is left behind");
}

/// The steps of the guide, run as they stand: the drill of docs/backup.md.
#[test]
fn the_drill_of_the_guide() {
    let page = standfast_testkit::binary::repository_root().join("docs/backup.md");
    let page = std::fs::read_to_string(page).unwrap();
    let drill = page.split("```sh drill\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let folder = standfast_testkit::folder(&[("script", SCRIPT)], CONFIG);
    let path = folder.path();
    let server = serve(path);
    let held = server.send("ops");
    let program = standfast_testkit::binary::path();
    let paths = std::env::join_paths(
        std::iter::once(program.parent().unwrap().to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let mut shell = Command::new("sh");
    shell.args(["-eux", "-c", drill]).current_dir(path).env("PATH", paths.unwrap()).env("HOME", path);
    let done = shell.env_remove("STANDFAST_KEY").output().unwrap();
    assert!(done.status.success(), "{}", said(&done));
    assert!(said(&done).contains("1 holds are pending again"), "{}", said(&done));
    assert_eq!(server.run(text(&held["id"]))["status"], "held", "the drill leaves the server alone");
}

/// F19: `pg_dump` of a server at work, restored into an empty database as the guide says. The restored one verifies, its
/// holds are pending, and each has one decision.
#[test]
fn postgres_is_backed_up_with_its_own_tools() {
    let postgres = OwnServer::new();
    let url = |database: &str| postgres.url().replace("dbname=postgres", &format!("dbname={database}"));
    let psql = |database: &str, statement: &str| {
        let done = Command::new("psql")
            .args(["-v", "ON_ERROR_STOP=1", "-c", statement, &url(database)])
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", said(&done));
    };
    psql("postgres", "CREATE DATABASE runs");
    psql("postgres", "CREATE DATABASE restored");
    let config = |database: &str| {
        CONFIG.replace(
            "driver: sqlite, database: ./kept/standfast.db",
            &format!("driver: postgres, url: \"{}\"", url(database)),
        )
    };
    let folder = standfast_testkit::folder(&[("script", SCRIPT)], &config("runs"));
    let server = serve(folder.path());
    let held = server.send("ops");
    let refused = about(folder.path(), &["backup", "x"]);
    assert!(said(&refused).contains("pg_dump --format=custom"), "{}", said(&refused));
    let dump = folder.path().join("runs.dump");
    let dumped = Command::new("pg_dump")
        .args(["--format=custom", "--file"])
        .arg(&dump)
        .arg(url("runs"))
        .output()
        .unwrap();
    assert!(dumped.status.success(), "{}", said(&dumped));
    server.ask(&["holds", "approve", text(&held["holds"][0]["id"])]);
    server.run_once(text(&held["id"]), "completed");
    drop(server);
    let mut restore = Command::new("pg_restore");
    restore.args(["--no-owner", "--exit-on-error", "--dbname", &url("restored")]).arg(&dump);
    let restored = restore.output().unwrap();
    assert!(restored.status.success(), "{}", said(&restored));
    let folder = standfast_testkit::folder(&[("script", SCRIPT)], &config("restored"));
    let server = serve(folder.path());
    let hold = text(&held["holds"][0]["id"]);
    assert_eq!(server.ask(&["holds", "show", hold])["state"], "open");
    let verified = about(folder.path(), &["audit", "verify"]);
    assert!(verified.status.success(), "{}", said(&verified));
    server.ask(&["holds", "deny", hold, "--reason", "it ran before the restore"]);
    let second = server.refused(&["holds", "approve", hold]);
    assert!(second.contains("already decided"), "{second}");
}

/// F19: a Postgres whose log is archived goes back to an instant, with the commands of the guide: what was decided before it is as it
/// was, what was decided after it is pending again, the log verifies, and both are decided once from there on.
#[test]
fn postgres_goes_back_to_an_instant() {
    let page = standfast_testkit::binary::repository_root().join("docs/backup.md");
    let page = std::fs::read_to_string(page).unwrap();
    let block = |name: &str| {
        let found = page.split(&format!("```sh {name}\n")).nth(1).and_then(|rest| rest.split("```").next());
        found.unwrap_or_else(|| panic!("the guide has no block {name}")).to_owned()
    };
    let before = OwnServer::replicating(Replication::Asynchronous);
    let wal = before.archive();
    let base = before.directory().join("base");
    let on = |postgres: &OwnServer| {
        CONFIG.replace(
            "driver: sqlite, database: ./kept/standfast.db",
            &format!("driver: postgres, url: \"{}\"", postgres.url()),
        )
    };
    let folder = standfast_testkit::folder(&[("script", SCRIPT)], &on(&before));
    let server = serve(folder.path());
    let (kept, undone) = (server.send("ops"), server.send("ops"));
    let hold = |run: &Value| text(&run["holds"][0]["id"]).to_owned();
    let run = |run: &Value| text(&run["id"]).to_owned();
    before.types(&block("base"), &[("BASE", base.to_str().unwrap())]);
    server.ask(&["holds", "approve", &hold(&kept)]);
    server.run_once(&run(&kept), "completed");
    // The other run names the same file, and would ask again if it were there.
    std::fs::remove_file(folder.path().join("workspace/ran")).unwrap();
    let until =
        before.types("psql --no-psqlrc --tuples-only --no-align --command 'SELECT clock_timestamp()'", &[]);
    server.ask(&["holds", "approve", &hold(&undone)]);
    server.run_once(&run(&undone), "completed");
    drop(server);
    // The segment that is being written is archived too.
    let segment =
        "psql --no-psqlrc --tuples-only --no-align --command 'SELECT pg_walfile_name(pg_switch_wal())'";
    let last = before.types(segment, &[]).trim().to_owned();
    // A file that is there may still be copied; the server says which copy is whole.
    let archived = "psql --no-psqlrc --tuples-only --no-align --command 'SELECT last_archived_wal FROM pg_stat_archiver'";
    standfast_testkit::until("the log is archived", || *before.types(archived, &[]).trim() >= *last);
    before.crash();

    let after = OwnServer::to_be_made();
    let new = after.directory().join("data");
    let variables = [
        ("BASE", base.to_str().unwrap()),
        ("WAL", wal.to_str().unwrap()),
        ("NEW", new.to_str().unwrap()),
        ("UNTIL", until.trim()),
    ];
    after.types(&block("recovery"), &variables);
    let recovering = "psql --no-psqlrc --tuples-only --no-align --command 'SELECT pg_is_in_recovery()'";
    standfast_testkit::until("it takes writes", || after.types(recovering, &[]).trim() == "f");
    let folder = standfast_testkit::folder(&[("script", SCRIPT)], &on(&after));
    let verified = about(folder.path(), &["audit", "verify"]);
    assert!(verified.status.success(), "{}", said(&verified));
    let server = serve(folder.path());
    assert_eq!(server.run(&run(&kept))["status"], "completed");
    assert!(server.refused(&["holds", "approve", &hold(&kept)]).contains("already decided"));
    assert_eq!(server.run(&run(&undone))["status"], "held");
    server.ask(&["holds", "deny", &hold(&undone), "--reason", "it ran before the restore"]);
    server.run_once(&run(&undone), "completed");
    assert!(server.refused(&["holds", "approve", &hold(&undone)]).contains("already decided"));
}

/// The doctor finds nothing wrong with a server that is well, and names what is wrong with one that is not, in text and as
/// JSON.
#[test]
fn the_doctor_says_what_is_wrong_and_what_to_do() {
    let folder = standfast_testkit::folder(&[("script", SCRIPT)], CONFIG);
    let path = folder.path();
    let server = serve(path);
    server.send("ops");
    let data = path.join("data");
    let doctor = |more: &[&str]| about(path, &[&["doctor", "--data", data.to_str().unwrap()], more].concat());
    let well = doctor(&["--json"]);
    assert!(well.status.success(), "{}", said(&well));
    let checks = examined_checks(&well);
    let result = |what: &str| {
        let found = checks.iter().find(|check| check["check"] == what);
        found.unwrap_or_else(|| panic!("{what}: {checks:?}"))["result"].as_str().unwrap().to_owned()
    };
    for what in
        ["config", "data", "server", "database", "chains", "clock", "webhooks", "sandbox", "connections"]
    {
        assert_eq!(result(what), "ok", "{what}: {checks:?}");
    }
    result("disk");
    result("files");
    drop(server);
    let database = rusqlite::Connection::open(path.join("kept/standfast.db")).unwrap();
    database.execute("UPDATE links SET hash = zeroblob(32)", []).unwrap();
    drop(database);
    let ill = doctor(&["--offline"]);
    assert_eq!(ill.status.code(), Some(1), "{}", said(&ill));
    assert!(
        said(&ill).contains("failed   chains") && said(&ill).contains("do: `standfast audit verify`"),
        "{}",
        said(&ill)
    );
}

/// The doctor counts deliveries that were given up, whichever database they are in, and names the commands that help.
#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_counts_dead_letters() {
    let receiver = Receiver::new(Mood::Says("500 Internal Server Error".into())).await;
    let sqlite = "driver: sqlite, database: ./kept/standfast.db";
    for store in [sqlite.to_owned(), format!("driver: postgres, url: \"{}\"", shared().database())] {
        let config = CONFIG.replace(sqlite, &store);
        let config =
            format!("{config}server: {{webhooks: {{allowed_hosts: [127.0.0.1], retries: [100ms]}}}}\n");
        let folder = standfast_testkit::folder(&[("script", SCRIPT)], &config);
        let server = serve(folder.path());
        let http = Http::new(&server.base);
        let wanted = json!({"url": receiver.url(), "events": ["hold.opened"]});
        let made = http.post("/api/v1/subscriptions", &wanted).await;
        assert!((200..300).contains(&made.status), "{}", made.text);
        server.send("ops");
        let letters = format!("/api/v1/subscriptions/{}/dead-letters", text(&made.body["id"]));
        standfast_testkit::until_found("it was given up", async || {
            let found = http.get(&letters).await.body;
            found.to_string().contains("the receiver answered 500").then_some(())
        })
        .await;
        let data = folder.path().join("data");
        let examined =
            about(folder.path(), &["doctor", "--offline", "--json", "--data", data.to_str().unwrap()]);
        assert!(examined.status.success(), "{}", said(&examined));
        let checks = examined_checks(&examined);
        let webhooks = checks.iter().find(|check| check["check"] == "webhooks").unwrap();
        assert_eq!(webhooks["result"], "warning", "{store}: {webhooks}");
        assert_eq!(webhooks["message"], "1 subscriptions, 1 deliveries were given up", "{store}");
        assert!(text(&webhooks["do"]).contains("dead-letters"), "{webhooks}");
    }
}

fn examined_checks(examined: &Output) -> Vec<Value> {
    json_of(examined)["checks"].as_array().unwrap().clone()
}

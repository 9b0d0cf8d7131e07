//! Several real servers on one Postgres, asked as people and load balancers would.
//!
//! What happens when they die in the middle of something is in the fault tests.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use standfast_store::conformance::cluster::{self, OwnServer, Replication, shared};
use tempfile::TempDir;

use standfast_testkit::json::owned_text as text;
use standfast_testkit::{Process as Server, serve, serve_command, until};

const SCRIPT: &str = "replies:\n- calls:\n  - tool: execute_command\n    arguments: '{\"command\": \"echo hello\"}'\n- text: done\n";

/// A folder with a configuration whose agent lives in this database; `sql` is what stands below `sql:`, in one line.
fn folder(sql: &str, server: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("script.yaml"), SCRIPT).unwrap();
    let text = format!(
        "llms: {{script: {{type: scripted, script: script.yaml}}}}
tools: {{execute_command: {{allowed_commands: [echo]}}}}
session_stores: {{main: {{backend: sql, sql: {{driver: postgres, {sql}}}}}}}
server: {{nodes: {{take_over_after: 3s}}{server}}}
agents: {{ops: {{llm: script, session_store: main, tools: [execute_command], task: {{input_timeout: 2h}}}}}}
"
    );
    std::fs::write(folder.path().join("standfast.yaml"), text).unwrap();
    folder
}

fn standfast(arguments: &[&str]) -> Output {
    standfast_testkit::standfast().args(arguments).output().unwrap()
}

/// Status, `Retry-After` and body.
fn request(server: &Server, method: &str, path: &str, body: &str) -> (u16, Option<String>, String) {
    let output = Command::new("curl")
        .args(["-sS", "-m", "30", "-o", "-", "-w", "\n%{http_code} %header{retry-after}", "-X", method])
        .args(["-H", "content-type: application/json"])
        .args(if body.is_empty() { vec![] } else { vec!["-d", body] })
        .arg(format!("{}{path}", server.base))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, last) = text.rsplit_once('\n').unwrap();
    let (status, retry) = last.split_once(' ').unwrap_or((last, ""));
    let retry = Some(retry.to_owned()).filter(|retry| !retry.is_empty());
    (status.parse().unwrap_or(0), retry, body.to_owned())
}

fn signal(server: &Server, signal: &str) {
    let id = server.child.id().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
}

/// C28: a run begins on one node, is decided through another, and a third one tells the same story of it. Each
/// node has its share of the work; one that stops gives it back at once, one that is killed loses it.
#[test]
fn any_node_continues_any_run() {
    let folder = folder(&format!("url: \"{}\"", shared().database()), "");
    let nodes = [serve(folder.path()), serve(folder.path()), serve(folder.path())];
    let held = nodes[0].ask(&["send", "ops", "please", "--wait"]);
    let (run, hold) = (text(&held["id"]), text(&held["holds"][0]["id"]));
    assert_eq!(nodes[1].ask(&["holds"])["holds"][0]["id"], hold.as_str(), "every node lists it");
    // A reader on the third node from before the decision.
    let mut reader = Command::new("curl");
    reader.args(["-sSN", "-m", "60", "-H", "accept: text/event-stream"]);
    reader.arg(format!("{}/api/v1/runs/{run}/events", nodes[2].base));
    let mut reader = reader.stdout(Stdio::piped()).spawn().unwrap();
    nodes[1].ask(&["holds", "approve", &hold]);
    let seen = BufReader::new(reader.stdout.take().unwrap()).lines().map_while(Result::ok);
    let ended =
        seen.take_while(|line| !line.contains("run.ended")).filter(|line| line.contains("hold.resolved"));
    assert!(ended.count() > 0, "the reader on the third node sees the decision, and the end");
    let _ = (reader.kill(), reader.wait());
    let stories: Vec<Value> = nodes.iter().map(|node| node.ask(&["show", &run])).collect();
    assert_eq!(stories[0], stories[1], "every node tells the same");
    assert_eq!(stories[1], stories[2]);
    until("the shards are spread over three nodes", || {
        let there = nodes[1].ask(&["nodes"]);
        let shards: Vec<u64> =
            there["nodes"].as_array().unwrap().iter().filter_map(|n| n["shards"].as_u64()).collect();
        shards.len() == 3 && shards.iter().sum::<u64>() == 256 && shards.iter().all(|n| *n > 80)
    });
    let there = nodes[1].ask(&["nodes"]);
    assert_eq!(there["nodes"][0]["this"], true, "{there}");
    assert_eq!(there["nodes"][1]["version"], env!("CARGO_PKG_VERSION"), "{there}");
    assert_eq!(there["feature_level"], there["nodes"][0]["feature_level"], "{there}");
    let shown = standfast(&["nodes", "--server", &nodes[1].base]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("(asked)") && shown.contains("feature level in use: 2"), "{shown}");

    signal(&nodes[0], "-TERM");
    until("the one that stopped is gone", || {
        nodes[1].ask(&["nodes"])["nodes"].as_array().unwrap().len() == 2
    });
    let [_, second, third] = nodes;
    drop(third);
    until("the one that was killed is gone, and the last one has all its work", || {
        let there = second.ask(&["nodes"]);
        there["nodes"].as_array().unwrap().len() == 1 && there["nodes"][0]["shards"] == 256
    });
}

/// The keys of a server and the audit of its database work on Postgres as on a file.
#[test]
fn keys_and_audit_work_on_postgres() {
    let folder = folder(&format!("url: \"{}\"", shared().database()), ", auth: {api_keys: true}");
    let config = folder.path().join("standfast.yaml").display().to_string();
    let made = standfast(&["keys", "create", "--user", "ann", "--config", &config]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let listed = standfast(&["keys", "list", "--config", &config]);
    assert!(String::from_utf8(listed.stdout).unwrap().contains("ann"));
    let server = serve(folder.path());
    let sent =
        standfast(&["send", "ops", "please", "--wait", "--json", "--server", &server.base, "--key", &key]);
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    let verified = standfast(&["audit", "verify", "--config", &config, "--json"]);
    let report: Value = serde_json::from_slice(&verified.stdout).unwrap();
    assert_eq!((&report["ok"], &report["runs"]), (&true.into(), &1.into()), "{report}");
    let exported = standfast(&["audit", "export", "--config", &config]);
    let lines = String::from_utf8(exported.stdout).unwrap();
    assert!(lines.lines().next().unwrap().contains("run.started"), "{lines}");
    let prefix = key.split('_').nth(1).unwrap().to_owned();
    assert!(standfast(&["keys", "revoke", &prefix, "--config", &config]).status.success());
    let refused = standfast(&["runs", "--server", &server.base, "--key", &key]);
    assert!(!refused.status.success(), "a revoked key opens nothing");
}

/// A connection that is to be encrypted is, and only to a server whose certificate the machine trusts; a server that
/// wants encryption is not talked to without it.
#[test]
fn connections_to_postgres_are_encrypted_where_the_configuration_says_so() {
    let postgres = OwnServer::new();
    let authority = postgres.encrypt();
    let sql = |mode: &str| {
        let port = postgres.port();
        format!("host: localhost, port: {port}, database: postgres, user: postgres, ssl_mode: {mode}")
    };
    let encrypted = folder(&sql("verify-full"), "");
    let server = standfast_testkit::start(serve_command(encrypted.path()).env("SSL_CERT_FILE", &authority));
    let held = server.ask(&["send", "ops", "please", "--wait"]);
    server.ask(&["holds", "approve", &text(&held["holds"][0]["id"])]);
    let run = text(&held["id"]);
    until("the run has ended", || server.run(&run)["status"] == "completed");
    drop(server);
    let plain = folder(&sql("disable"), "");
    // An authority that has signed nothing of it.
    let stranger = OwnServer::new();
    let foreign = stranger.encrypt();
    for (folder, authorities, why) in
        [(&plain, authority.as_path(), "no encryption"), (&encrypted, foreign.as_path(), "certificate")]
    {
        let output = serve_command(folder.path()).env("SSL_CERT_FILE", authorities).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(why) && said.contains("session_stores.main"), "{said}");
    }
}

/// What cannot be used is refused with one line that names the setting, and exit code 1.
#[test]
fn a_database_that_cannot_be_used_is_refused_by_name() {
    let refused = |sql: &str| {
        let folder = folder(sql, "");
        let output = serve_command(folder.path()).env("RUST_LOG", "error").output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said.trim().lines().count(), 1, "{said}");
        assert!(said.starts_with("standfast: session_stores.main.sql: "), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
        said
    };
    let said = refused("host: 127.0.0.1, port: 1, database: runs, user: me, password: hunter2");
    assert!(said.contains("cannot open 127.0.0.1:1/runs: "), "{said}");

    let foreign = shared().empty_database();
    cluster::run(&foreign, &["CREATE TABLE somebody (elses int)".into()]);
    let said = refused(&format!("url: \"{foreign}\""));
    assert!(said.contains("has tables of another program; give Standfast a database of its own"), "{said}");

    let newer = shared().database();
    let later = "INSERT INTO refinery_schema_history SELECT 9999, 'later', applied_on, checksum \
                 FROM refinery_schema_history LIMIT 1";
    cluster::run(&newer, &[later.into()]);
    let said = refused(&format!("url: \"{newer}\""));
    assert!(said.contains("has schema 9999, but this version of Standfast knows only"), "{said}");

    let (secured, plain) = (OwnServer::new(), OwnServer::new());
    secured.ask_for_passwords("me", "secret");
    let port = secured.port();
    let said = refused(&format!("url: \"postgres://me:hunter2@127.0.0.1:{port}/postgres\""));
    assert!(said.contains("password authentication failed for user \"me\" (28P01)"), "{said}");
    let said = refused(&format!("url: \"postgres://nobody:hunter2@127.0.0.1:{port}/postgres\""));
    assert!(said.contains("\"nobody\" (28P01)"), "{said}");

    let port = plain.port();
    let said = refused(&format!("url: \"postgres://postgres@127.0.0.1:{port}/nowhere\""));
    assert!(said.contains("database \"nowhere\" does not exist (3D000)"), "{said}");
    let said = refused(&format!(
        "host: 127.0.0.1, port: {port}, database: postgres, user: postgres, password: hunter2, ssl_mode: require"
    ));
    assert!(said.contains("TLS") && said.contains("session_stores.main.sql"), "{said}");
    let said = refused("host: nowhere.invalid, database: runs, user: me, password: hunter2");
    assert!(said.contains("cannot open nowhere.invalid:5432/runs: "), "{said}");

    let primary = OwnServer::replicating(Replication::Asynchronous);
    let standby = primary.standby();
    let said = refused(&format!("url: \"{}\"", standby.url()));
    assert!(said.contains("it is a standby and takes no writes; name the primary"), "{said}");

    // Something listens there and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let said = refused(&format!("url: \"postgres://me:hunter2@127.0.0.1:{port}/runs\""));
    assert!(said.contains("it did not answer within 10 s"), "{said}");
}

/// What reads a database without a server does not change an older schema: it says in one line what to do.
#[test]
fn an_older_schema_is_not_read_by_tools_that_must_not_change_it() {
    let url = shared().database();
    let folder = folder(&format!("url: \"{url}\""), "");
    let config = folder.path().join("standfast.yaml").display().to_string();
    cluster::run(&url, &["DELETE FROM refinery_schema_history WHERE version > 1".into()]);
    let output = standfast(&["audit", "verify", "--config", &config]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.trim().lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("it has schema 1, and this version reads"), "{said}");
}

/// A server keeps to the connections that its configuration gives it, and to three more, however much is asked of it.
#[test]
fn a_node_takes_no_more_connections_than_it_is_given() {
    let url = shared().database();
    let folder = folder(&format!("url: \"{url}\", append_connections: 1, read_connections: 2"), "");
    let server = serve(folder.path());
    let taken =
        "SELECT FROM pg_stat_activity WHERE application_name = 'standfast' AND datname = current_database()";
    let mut most = 0;
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..5 {
                        let begun =
                            request(&server, "POST", "/api/v1/agents/ops/runs", r#"{"input": "more"}"#);
                        assert!((200..300).contains(&begun.0), "{begun:?}");
                        assert_eq!(request(&server, "GET", "/api/v1/holds", "").0, 200);
                    }
                })
            })
            .collect();
        while asking.iter().any(|one| !one.is_finished()) {
            most = most.max(cluster::query_count(&url, taken));
        }
    });
    assert!((4..=6).contains(&most), "{most} connections");
}

/// C28: what there is to know of each node: who it is, since when, of which version, how much it has to do and how far it
/// is behind. Only administrators see it.
#[test]
fn nodes_tell_what_an_operator_wants_to_know() {
    let url = shared().database();
    let folder = folder(&format!("url: \"{url}\""), "");
    let named = std::fs::read_to_string(folder.path().join("standfast.yaml")).unwrap();
    let named = named.replace("nodes: {take_over_after: 3s}", "nodes: {take_over_after: 3s, name: left}");
    std::fs::write(folder.path().join("standfast.yaml"), named).unwrap();
    let server = serve(folder.path());
    let stranger = "INSERT INTO nodes VALUES (gen_random_uuid(), 'no json', 4102444800000)";
    cluster::run(&url, &[stranger.into()]);
    let there = server.ask(&["nodes"]);
    let nodes = there["nodes"].as_array().unwrap();
    let mut keys: Vec<&String> = nodes[0].as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(
        keys,
        [
            "behind_ms",
            "feature_level",
            "id",
            "name",
            "runs_at_work",
            "seen_until",
            "shards",
            "started_at",
            "this",
            "version"
        ],
        "{there}"
    );
    assert_eq!((&nodes[0]["name"], &nodes[0]["this"]), (&"left".into(), &true.into()), "{there}");
    assert_eq!(nodes[0]["version"], env!("CARGO_PKG_VERSION"));
    assert!(nodes[0]["behind_ms"].as_i64().is_some() && nodes[0]["runs_at_work"] == 0, "{there}");
    for at in ["started_at", "seen_until"] {
        assert!(text(&nodes[0][at]).ends_with('Z'), "{there}");
    }
    // What cannot be read of another node is not made up.
    assert_eq!(nodes.len(), 2, "{there}");
    assert!(nodes[1]["name"].is_null() && nodes[1]["version"].is_null(), "{there}");
    assert_eq!(nodes[1]["seen_until"], "2100-01-01T00:00:00.000Z", "{there}");
}

/// F13: whatever goes wrong with the database of a running server: `/readyz` is red and says what, `/healthz` stays green,
/// requests get a time to retry, and once it is right again everything goes on by itself.
#[test]
fn every_trouble_of_the_database_is_told_and_passes() {
    let postgres = OwnServer::new();
    let folder = folder(&format!("url: \"{}\"", postgres.url()), "");
    let server = serve(folder.path());
    let held = server.ask(&["send", "ops", "please", "--wait"]);
    let (run, hold) = (text(&held["id"]), text(&held["holds"][0]["id"]));
    let approve = format!("/api/v1/holds/{hold}/resolve");
    let is_red = |why: &str, also: &str| {
        until(&format!("/readyz is red: {why}"), || {
            let (status, retry, body) = request(&server, "GET", "/readyz", "");
            status == 503 && retry.as_deref() == Some("1") && (body.contains(why) || body.contains(also))
        });
        assert_eq!(request(&server, "GET", "/healthz", "").0, 200, "the process answers: {why}");
        // A connection that was just ended leaves a place that others are yet to take: a start may still find it.
        until(&format!("starts are refused: {why}"), || {
            let refused = || {
                let (status, retry, said) =
                    request(&server, "POST", "/api/v1/agents/ops/runs", r#"{"input": "more"}"#);
                assert!(status == 201 || retry.as_deref() == Some("1"), "{why}: {status} {said}");
                status == 503
            };
            refused() && refused()
        });
        let (status, retry, said) = request(&server, "POST", &approve, r#"{"resolution": "approve"}"#);
        assert_eq!((status, retry.as_deref()), (503, Some("1")), "{why}: {said}");
    };
    let is_green = || until("/readyz is green again", || request(&server, "GET", "/readyz", "").0 == 200);

    let read_only = |to: &str| {
        let switch = format!("ALTER DATABASE postgres SET default_transaction_read_only = {to}");
        let statements =
            ["SET default_transaction_read_only = off".to_owned(), switch, cluster::END_NODES.into()];
        cluster::run(&postgres.url(), &statements);
    };
    read_only("on");
    is_red("the database takes no writes", "read-only");
    read_only("off");
    is_green();

    let others = std::thread::spawn({
        let url = postgres.url();
        move || cluster::use_up_connections(&url, Duration::from_secs(12))
    });
    is_red("too many clients", "remaining connection slots");
    others.join().unwrap();
    is_green();

    cluster::run(&postgres.url(), &["ALTER TABLE runs RENAME TO elsewhere".into()]);
    is_red("the schema is missing", "does not exist");
    cluster::run(&postgres.url(), &["ALTER TABLE elsewhere RENAME TO runs".into()]);
    is_green();

    assert_eq!(server.run(&run)["status"], "held", "nothing that was refused happened");
    assert_eq!(request(&server, "POST", &approve, r#"{"resolution": "approve"}"#).0, 200);
    until("the run has ended", || server.run(&run)["status"] == "completed");
    let verified = standfast(&[
        "audit",
        "verify",
        "--config",
        &folder.path().join("standfast.yaml").display().to_string(),
    ]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

/// F10: a database that goes away makes `/readyz` red with the reason, requests get a time to retry, and when it
/// is there again everything goes on by itself.
#[test]
fn a_database_that_goes_away_and_comes_back() {
    let postgres = OwnServer::new();
    let folder = folder(&format!("url: \"{}\"", postgres.url()), "");
    let server = serve(folder.path());
    let held = server.ask(&["send", "ops", "please", "--wait"]);
    let (run, hold) = (text(&held["id"]), text(&held["holds"][0]["id"]));
    postgres.crash();
    let (status, retry, body) = request(&server, "GET", "/readyz", "");
    assert_eq!((status, retry.as_deref()), (503, Some("1")), "{body}");
    assert!(body.contains("the database cannot be reached"), "{body}");
    assert_eq!(request(&server, "GET", "/healthz", "").0, 200, "the process answers");
    let approve = format!("/api/v1/holds/{hold}/resolve");
    for (method, path, body) in [
        ("GET", format!("/api/v1/runs/{run}"), ""),
        ("POST", approve.clone(), r#"{"resolution": "approve"}"#),
        ("POST", "/api/v1/agents/ops/runs".to_owned(), r#"{"input": "more"}"#),
    ] {
        let (status, retry, said) = request(&server, method, &path, body);
        assert_eq!((status, retry.as_deref()), (503, Some("1")), "{method} {path}: {said}");
    }
    postgres.start();
    until("it is ready again", || request(&server, "GET", "/readyz", "").0 == 200);
    assert_eq!(server.run(&run)["status"], "held", "nothing that was refused happened");
    assert_eq!(request(&server, "POST", &approve, r#"{"resolution": "approve"}"#).0, 200);
    until("the run has ended", || server.run(&run)["status"] == "completed");
}

/// F29: nodes of two versions side by side, as the older one sees it. What a newer one wrote in a newer form is left alone:
/// lists leave it out, a decision on it gets a retry, and whoever can read it decides it afterwards. Other runs go on.
/// Nothing newer is written than the oldest node can read.
#[test]
fn an_older_node_leaves_alone_what_a_newer_one_wrote() {
    let url = shared().database();
    let folder = folder(&format!("url: \"{url}\""), "");
    let node = serve(folder.path());
    let held = node.ask(&["send", "ops", "please", "--wait"]);
    let (run, hold) = (text(&held["id"]), text(&held["holds"][0]["id"]));
    cluster::run(&url, &["UPDATE runs SET fold = fold + 1".into()]);
    let approve = format!("/api/v1/holds/{hold}/resolve");
    let (status, retry, said) = request(&node, "POST", &approve, r#"{"resolution": "approve"}"#);
    assert_eq!((status, retry.is_some()), (503, true), "{said}");
    let (status, _, said) = request(&node, "GET", "/api/v1/runs", "");
    assert!(status == 200 && !said.contains(&run), "lists leave it out, and work: {status} {said}");
    let (status, retry, said) = request(&node, "GET", &format!("/api/v1/runs/{run}"), "");
    assert!(status == 503 && retry.is_some() && said.contains("newer"), "{status} {said}");
    assert_eq!(
        request(&node, "GET", "/readyz", "").0,
        200,
        "one run of a newer version is no reason to go away"
    );

    let other = node.ask(&["send", "ops", "and this", "--wait"]);
    node.ask(&["holds", "approve", &text(&other["holds"][0]["id"])]);
    until("a run of its own goes on", || node.run(&text(&other["id"]))["status"] == "completed");

    // What a newer program has written can be read by it; here the older form stands for that.
    cluster::run(&url, &["UPDATE runs SET fold = fold - 1 WHERE fold > (SELECT min(fold) FROM runs)".into()]);
    assert_eq!(request(&node, "POST", &approve, r#"{"resolution": "approve"}"#).0, 200);
    until("the run has ended", || node.run(&run)["status"] == "completed");

    let oldest = "INSERT INTO nodes VALUES (gen_random_uuid(), '{\"version\": \"0.0.1\"}', 4102444800000)";
    cluster::run(&url, &[oldest.into()]);
    until("nothing is written that the oldest node cannot read", || {
        node.ask(&["nodes"])["feature_level"] == 0
    });
    cluster::run(&url, &["DELETE FROM nodes WHERE seen_until = 4102444800000".into()]);
    until("the oldest node is gone", || node.ask(&["nodes"])["feature_level"] == 2);
}

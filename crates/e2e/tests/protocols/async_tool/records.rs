//! The record elsewhere than on the wire: as files, as a view of the database, and as a description of the routes.
//!
//! Whatever they say is what the API says.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::async_tool::world::{Outside, Setup, result, serve, text, until};

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// C9: `export --files` writes a file for each call, an index, and a file for each conversation with what is
/// needed to go on; again when something changed.
#[tokio::test(flavor = "multi_thread")]
async fn calls_and_conversations_are_written_as_files() {
    let outside = Outside::answering(json!({"externalRef": "deploy-1"})).await;
    let folder = Setup { branches: &["one", "two"], ..Setup::default() }.folder(&outside);
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let jobs = outside.jobs(2).await;
    server.run_is(&run, "held").await;
    let (first, second) = (text(&jobs[0]["pendingID"]), text(&jobs[1]["pendingID"]));
    let records = [first, second].map(|id| format!("/async-tool/pending/{id}"));
    let records = [server.get(&records[0]).await, server.get(&records[1]).await];
    drop(server);
    let files = folder.path().join("files");
    let written = export(folder.path(), &files);
    assert_eq!(written, json!({"calls": 2, "sessions": 1}));
    let calls = files.join("pending_tool");
    for (id, record) in [first, second].iter().zip(&records) {
        assert_eq!(read(&calls.join(format!("{id}.json"))), *record);
    }
    let index = read(&calls.join("index.json"));
    let mut of_session: Vec<&str> = index["bySession"]["s-1"].as_array().unwrap().iter().map(text).collect();
    of_session.sort_unstable();
    let mut ids = [first, second];
    ids.sort_unstable();
    assert_eq!(of_session, ids);
    assert_eq!(index["byStatus"]["waiting"].as_array().unwrap().len(), 2);
    assert_eq!(index["byExpiration"].as_array().unwrap().len(), 2);
    assert_eq!(index["byExpiration"][0].as_object().unwrap().len(), 2, "pendingID and expiresAt: {index}");
    let session = read(&files.join("session/ops/s-1.json"));
    assert_eq!((&session["id"], &session["projectID"]), (&"s-1".into(), &"ops".into()));
    assert_eq!(session["status"]["type"], "waiting_async");
    assert_eq!(session["pending_executions"][&run]["task_id"], run.as_str(), "{session}");

    let server = serve(folder.path());
    let body = json!({"pendingID": first, "result": result()});
    assert_eq!(server.webhook(&body, text(&jobs[0]["callbackSecret"])).await.status, 200);
    drop(server);
    std::fs::write(calls.join("hold_stale.json"), "{}").unwrap();
    export(folder.path(), &files);
    assert_eq!(read(&calls.join(format!("{first}.json")))["status"], "completed");
    let index = read(&calls.join("index.json"));
    assert_eq!(index["byStatus"], json!({"completed": [first], "waiting": [second]}));
    assert_eq!(index["byExpiration"].as_array().unwrap().len(), 1);
    assert!(!calls.join("hold_stale.json").exists(), "what is no call any more is gone");
}

fn export(folder: &Path, files: &Path) -> Value {
    let output = standfast_testkit::standfast()
        .args(["export", "--json", "--files"])
        .arg(files)
        .arg("--config")
        .arg(folder.join("standfast.yaml"))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    serde_json::from_str(said.trim().lines().last().unwrap()).unwrap()
}

/// A folder whose server keeps files of what it knows, and its configuration without that.
fn mirrored(outside: &Outside) -> (TempDir, String) {
    let folder = Setup::default().folder(outside);
    let file = folder.path().join("standfast.yaml");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(file, config.replace("{backend: sql,", "{backend: sql, mirror: ./files,")).unwrap();
    (folder, config)
}

/// How many changes are not yet in the files.
fn due(folder: &Path) -> i64 {
    let database = rusqlite::Connection::open(folder.join("a.db")).unwrap();
    database.query_row("SELECT count(*) FROM notices", [], |row| row.get(0)).unwrap()
}

/// Puts something else where the files are; where both are.
fn taken_away(folder: &Path) -> (PathBuf, PathBuf) {
    let (files, away) = (folder.join("files"), folder.join("away"));
    std::fs::rename(&files, &away).unwrap();
    std::fs::write(&files, "no directory").unwrap();
    (files, away)
}

/// C9: with `mirror` a server keeps the same files itself, as things happen and from the log at its start. What cannot be written is
/// due in the database with the change itself, over `kill -9`, until it was written.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_keeps_the_files_up_to_date() {
    let outside = Outside::answering(json!({})).await;
    let (folder, _) = mirrored(&outside);
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let job = outside.job().await;
    let id = text(&job["pendingID"]);
    server.run_is(&run, "held").await;
    let call = folder.path().join(format!("files/pending_tool/{id}.json"));
    let index = folder.path().join("files/pending_tool/index.json");
    let session = folder.path().join("files/session/ops/s-1.json");
    let says = async |status: &str, now: &str| {
        until(&format!("the files say {status}"), async || {
            // Each file appears whole, but one after the other.
            let [record, index, session] =
                [&call, &index, &session].map(|file| file.exists().then(|| read(file)));
            let (record, index, session) = (record?, index?, session?);
            let indexed = index["byStatus"][status][0] == id;
            let of_session = session["status"]["type"] == now;
            (record["status"] == status && indexed && of_session).then_some(())
        })
        .await;
    };
    says("waiting", "waiting_async").await;
    until("everything is written", async || (due(folder.path()) == 0).then_some(())).await;
    // The directory is away while the job reports, and the server is killed.
    let (files, away) = taken_away(folder.path());
    let body = json!({"pendingID": id, "result": result()});
    assert_eq!(server.webhook(&body, text(&job["callbackSecret"])).await.status, 200);
    server.run_is(&run, "completed").await;
    drop(server);
    assert!(due(folder.path()) > 0, "what was not written is due");
    std::fs::remove_file(&files).unwrap();
    std::fs::rename(&away, &files).unwrap();
    let server = serve(folder.path());
    says("completed", "idle").await;
    until("everything is written", async || (due(folder.path()) == 0).then_some(())).await;
    drop(server);
    std::fs::remove_dir_all(folder.path().join("files")).unwrap();
    let _server = serve(folder.path());
    says("completed", "idle").await;
}

/// C9: a directory of copies is taken in by a start alone. Where a reload leaves it out, the log says that the old value stays in
/// use, and it does: what happens afterwards is due until it is in the files.
#[tokio::test(flavor = "multi_thread")]
async fn a_reload_without_the_mirror_goes_on_with_the_copies() {
    let outside = Outside::answering(json!({})).await;
    let (folder, without_mirror) = mirrored(&outside);
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let job = outside.job().await;
    let id = text(&job["pendingID"]);
    server.run_is(&run, "held").await;
    let call = folder.path().join(format!("files/pending_tool/{id}.json"));
    let says = async |status: &str| {
        until(&format!("the copy says {status}"), async || {
            (call.exists() && read(&call)["status"] == status).then_some(())
        })
        .await;
    };
    says("waiting").await;
    std::fs::write(folder.path().join("standfast.yaml"), without_mirror).unwrap();
    until("the log says what needs a restart", async || {
        let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
        log.lines().any(|line| line.contains("need a restart") && line.contains("mirror")).then_some(())
    })
    .await;
    until("everything is written", async || (due(folder.path()) == 0).then_some(())).await;
    // While nothing can be written, what changes is due.
    let (files, away) = taken_away(folder.path());
    let body = json!({"pendingID": id, "result": result()});
    assert_eq!(server.webhook(&body, text(&job["callbackSecret"])).await.status, 200);
    server.run_is(&run, "completed").await;
    assert!(due(folder.path()) > 0, "the copy is due with the change");
    std::fs::remove_file(&files).unwrap();
    std::fs::rename(&away, &files).unwrap();
    says("completed").await;
}

/// C9, T16: the mirror has the files of each tenant in a folder of its own: also of one that comes while the server runs, and
/// nothing of one is in those of the other.
#[tokio::test(flavor = "multi_thread")]
async fn the_mirror_keeps_tenants_apart() {
    let outside = Outside::answering(json!({})).await;
    let folder = Setup { server: ", auth: {api_keys: true}", ..Setup::default() }.folder(&outside);
    let file = folder.path().join("standfast.yaml");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, config.replace("{backend: sql,", "{backend: sql, mirror: ./files,")).unwrap();
    let mut server = serve(folder.path());
    let mut places = Vec::new();
    for (tenant, below) in [("default", "files"), ("acme", "files/tenant/acme")] {
        let made = standfast_testkit::standfast()
            .args(["keys", "create", "--user", "ann", "--scope", "admin", "--tenant", tenant, "--config"])
            .arg(&file)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        server.key = Some(String::from_utf8(made.stdout).unwrap().trim().to_owned());
        server.begin("s-1").await;
        let job = outside.jobs(places.len() + 1).await.remove(places.len());
        let (id, secret) = (text(&job["pendingID"]).to_owned(), text(&job["callbackSecret"]).to_owned());
        places.push((folder.path().join(below), id, secret));
    }
    let says = async |place: &Path, id: &str, status: &str| {
        until(&format!("{} says {status}", place.display()), async || {
            let (call, index) = (place.join(format!("pending_tool/{id}.json")), "pending_tool/index.json");
            let files = [call, place.join(index), place.join("session/ops/s-1.json")];
            let [call, index, session] = files.map(|file| file.exists().then(|| read(&file)));
            let (call, index, session) = (call?, index?, session?);
            let is_only = index["bySession"]["s-1"] == json!([id]) && session["id"] == "s-1";
            (call["status"] == status && is_only).then_some(())
        })
        .await;
    };
    for (place, id, secret) in &places {
        says(place, id, "waiting").await;
        let body = json!({"pendingID": id, "result": result()});
        assert_eq!(server.webhook(&body, secret).await.status, 200);
        says(place, id, "completed").await;
    }
    for (place, _, _) in &places {
        let calls = std::fs::read_dir(place.join("pending_tool")).unwrap();
        assert_eq!(calls.count(), 2, "one call and the index in {}", place.display());
    }
}

/// S2-27, C8: the view `pending_tool_calls` has exactly these columns, and says of every call what the API says.
#[tokio::test(flavor = "multi_thread")]
async fn the_view_of_the_database_says_what_the_api_says() {
    let outside = Outside::answering(json!({"externalRef": "deploy-1"})).await;
    let folder = Setup { branches: &["one", "two", "three", "four"], ..Setup::default() }.folder(&outside);
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let jobs = outside.jobs(4).await;
    server.run_is(&run, "held").await;
    let id = |no: usize| text(&jobs[no]["pendingID"]);
    server.post("/async-tool/result", &json!({"pendingID": id(0), "result": result()})).await;
    server.post("/async-tool/error", &json!({"pendingID": id(1), "error": "broke"})).await;
    server.post("/async-tool/progress", &json!({"pendingID": id(2), "output": "half way"})).await;
    let mut records = Vec::new();
    for no in 0..4 {
        records.push(server.get(&format!("/async-tool/pending/{}", id(no))).await);
    }
    drop(server);
    let database = rusqlite::Connection::open(folder.path().join("a.db")).unwrap();
    let mut select = database.prepare("SELECT * FROM pending_tool_calls WHERE id = ?1").unwrap();
    let columns = [
        "id",
        "session_id",
        "message_id",
        "call_id",
        "tool",
        "input",
        "status",
        "external_ref",
        "timeout",
        "created_at",
        "started_at",
        "completed_at",
        "result",
        "error",
    ];
    assert_eq!(select.column_names().collect::<Vec<_>>(), columns);
    for record in &records {
        let row = select
            .query_row([text(&record["id"])], |row| {
                let mut found = serde_json::Map::new();
                for (at, name) in columns.iter().enumerate() {
                    let value = match row.get_ref(at)? {
                        rusqlite::types::ValueRef::Integer(number) => json!(number),
                        rusqlite::types::ValueRef::Text(text) => json!(String::from_utf8_lossy(text)),
                        rusqlite::types::ValueRef::Null
                        | rusqlite::types::ValueRef::Real(_)
                        | rusqlite::types::ValueRef::Blob(_) => Value::Null,
                    };
                    found.insert((*name).to_owned(), value);
                }
                Ok(Value::Object(found))
            })
            .unwrap();
        says_the_same(&row, record);
    }
    // By session, by status and by timeout it is looked for in an index, and nothing is read but what was found.
    for (condition, index, found) in [
        ("session_id = 's-1'", "external_holds_by_session", 4),
        ("status = 'waiting'", "external_holds_by_status", 1),
        ("status = 'processing'", "external_holds_by_status", 1),
        ("status = 'failed'", "external_holds_by_status", 1),
        ("timeout < 1000", "external_holds_by_timeout", 0),
        ("timeout > 1000", "external_holds_by_timeout", 4),
    ] {
        let query = format!("SELECT count(*) FROM pending_tool_calls WHERE {condition}");
        let count: i64 = database.query_row(&query, [], |row| row.get(0)).unwrap();
        assert_eq!(count, found, "{condition}");
        let mut explained = database.prepare(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
        let steps = explained.query_map([], |row| row.get::<_, String>(3)).unwrap();
        let steps: Vec<String> = steps.map(Result::unwrap).collect();
        let uses = |step: &String| step.contains(index);
        assert!(steps.iter().any(uses), "{condition}: {steps:#?}");
        let tables = ["SCAN x", "SCAN h", "SCAN r", "SCAN links"];
        let whole = |step: &&String| tables.contains(&step.as_str());
        assert_eq!(steps.iter().find(whole), None, "{condition}: {steps:#?}");
    }
    let count: i64 =
        database.query_row("SELECT count(*) FROM pending_tool_calls", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 4);
}

/// A row of the view against the record of the API.
pub(crate) fn says_the_same(row: &Value, record: &Value) {
    let parsed =
        |name: &str| -> Value { serde_json::from_str(row[name].as_str().unwrap_or("null")).unwrap() };
    for (column, field) in [
        ("session_id", "sessionID"),
        ("message_id", "messageID"),
        ("call_id", "callID"),
        ("tool", "tool"),
        ("status", "status"),
        ("external_ref", "externalRef"),
        ("timeout", "timeout"),
        ("error", "error"),
    ] {
        assert_eq!(row[column], record[field], "{column}: {row} {record}");
    }
    assert_eq!(parsed("input"), record["input"]);
    assert_eq!(parsed("result"), record["result"], "{row} {record}");
    assert_eq!(row["started_at"], record["time"]["started"]);
    assert_eq!(row["completed_at"], record["time"]["completed"]);
    assert!(row["created_at"].as_i64() >= record["time"]["created"].as_i64(), "{row} {record}");
}

/// S2-44: every part of the protocol is described: calls, tools, reports, recovery, conversations.
#[tokio::test(flavor = "multi_thread")]
async fn every_route_is_described() {
    let outside = Outside::answering(json!({})).await;
    let folder = Setup::default().folder(&outside);
    let server = serve(folder.path());
    let described = server.get("/openapi.json").await;
    for (path, methods) in [
        ("result", vec!["post"]),
        ("error", vec!["post"]),
        ("progress", vec!["post"]),
        ("webhook", vec!["post"]),
        ("pending", vec!["get"]),
        ("pending/{id}", vec!["delete", "get"]),
        ("pending/{id}/webhook", vec!["post"]),
        ("run/{id}/webhook", vec!["post"]),
        ("sessions/waiting", vec!["get"]),
        ("tools", vec!["get"]),
        ("events", vec!["get"]),
        ("session/{id}/status", vec!["get"]),
        ("session/{id}/parts", vec!["get"]),
        ("recovery/status", vec!["get"]),
    ] {
        let found = &described["paths"][format!("/async-tool/{path}")];
        let mut names: Vec<&String> = found.as_object().unwrap_or_else(|| panic!("{path}")).keys().collect();
        names.sort_unstable();
        assert_eq!(names, methods, "{path}");
    }
    let record = &described["components"]["schemas"]["PendingToolCall"]["properties"];
    assert!(record["pendingID"].is_null() && record["externalRef"].is_object(), "{record}");
    assert!(!described["paths"].to_string().contains("callbackSecret"));
}

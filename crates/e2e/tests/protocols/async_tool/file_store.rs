//! `backend: file`: the calls and sessions are files and nothing else, and a Redis may index them.
//!
//! What the files say is what the API says; what is killed, flushed or damaged on the way changes neither.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use standfast_testkit::redis::Redis;
use tempfile::TempDir;

use crate::async_tool::world::{Outside, Setup, result, serve, text, until};

/// A folder whose server keeps everything as files, perhaps with more keys of the store.
pub(crate) fn with_files(setup: &Setup<'_>, outside: &Outside, more: &str) -> TempDir {
    let folder = setup.folder(outside);
    let file = folder.path().join("standfast.yaml");
    let config = std::fs::read_to_string(&file).unwrap();
    let sql = "{backend: sql, sql: {driver: sqlite, database: a.db}}";
    assert!(config.contains(sql), "{config}");
    let files = format!("{{backend: file, file: {{directory: ./files{more}}}}}");
    std::fs::write(&file, config.replace(sql, &files)).unwrap();
    folder
}

pub(crate) fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn call(folder: &TempDir, id: &str) -> PathBuf {
    folder.path().join(format!("files/pending_tool/{id}.json"))
}

/// The index, once it says of a status that it has exactly these.
async fn indexed(folder: &TempDir, status: &str, ids: &[&str]) -> Value {
    let path = folder.path().join("files/pending_tool/index.json");
    let mut ids: Vec<&str> = ids.to_vec();
    ids.sort_unstable();
    until(&format!("the index has {ids:?} as {status}"), async || {
        let index = path.exists().then(|| read(&path))?;
        let mut found: Vec<&str> = index["byStatus"][status].as_array()?.iter().map(text).collect();
        found.sort_unstable();
        (found == ids).then(|| index.clone())
    })
    .await
}

pub(crate) fn standfast(arguments: &[&str], folder: &TempDir) -> std::process::Output {
    let mut command = standfast_testkit::standfast();
    command.args(arguments).arg("--config").arg(folder.path().join("standfast.yaml")).output().unwrap()
}

/// S2-24, S2-25, C9: each call is a file that says what the API says, the index has it by session, status and expiry, and the
/// session has what is needed to go on. The server is killed and the index deleted; the files are all that is left, and the
/// job's report continues the run from them. `audit verify` proves them, while the server runs and after.
#[tokio::test(flavor = "multi_thread")]
async fn calls_and_sessions_are_files_and_nothing_else() {
    let outside = Outside::answering(json!({"externalRef": "deploy-1"})).await;
    let setup = Setup { branches: &["one", "two"], ..Setup::default() };
    let folder = with_files(&setup, &outside, "");
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let jobs = outside.jobs(2).await;
    server.run_is(&run, "held").await;
    let (first, second) = (text(&jobs[0]["pendingID"]), text(&jobs[1]["pendingID"]));
    for id in [first, second] {
        let record = server.get(&format!("/async-tool/pending/{id}")).await;
        assert_eq!(record["status"], "waiting");
        assert_eq!(read(&call(&folder, id)), record);
    }
    let index = indexed(&folder, "waiting", &[first, second]).await;
    let mut of_session: Vec<&str> = index["bySession"]["s-1"].as_array().unwrap().iter().map(text).collect();
    of_session.sort_unstable();
    let mut ids = [first, second];
    ids.sort_unstable();
    assert_eq!(of_session, ids);
    let expiration = &index["byExpiration"];
    assert_eq!(expiration.as_array().unwrap().len(), 2, "{index}");
    let timeout = &read(&call(&folder, text(&expiration[0]["pendingID"])))["timeout"];
    assert_eq!(expiration[0], json!({"pendingID": expiration[0]["pendingID"], "expiresAt": timeout}));
    let session = read(&folder.path().join("files/session/ops/s-1.json"));
    assert_eq!((&session["id"], &session["projectID"]), (&"s-1".into(), &"ops".into()));
    assert_eq!(session["status"]["type"], "waiting_async", "{session}");
    assert_eq!(session["pending_executions"][&run]["task_id"], run.as_str(), "{session}");
    assert!(!folder.path().join("a.db").exists());
    let verified = standfast(&["audit", "verify"], &folder);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));

    // Killed; what follows from the files is made again from them.
    drop(server);
    std::fs::remove_file(folder.path().join("files/pending_tool/index.json")).unwrap();
    std::fs::write(call(&folder, first), "{ torn").unwrap();
    let server = serve(folder.path());
    indexed(&folder, "waiting", &[first, second]).await;
    let record = server.get(&format!("/async-tool/pending/{first}")).await;
    assert_eq!(read(&call(&folder, first)), record);
    for (job, id) in jobs.iter().zip([first, second]) {
        let body = json!({"pendingID": id, "result": result()});
        assert_eq!(server.webhook(&body, text(&job["callbackSecret"])).await.status, 200);
        // A 200 means that the file says it.
        assert_eq!(read(&call(&folder, id))["status"], "completed");
    }
    server.run_is(&run, "completed").await;
    let index = indexed(&folder, "completed", &[first, second]).await;
    assert_eq!(index["byExpiration"], json!([]));
    let listed = server.get("/async-tool/pending?status=completed").await;
    assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
    let session = read(&folder.path().join("files/session/ops/s-1.json"));
    assert_eq!((&session["status"]["type"], &session["pending_executions"]), (&"idle".into(), &json!({})));
    drop(server);
    let verified = standfast(&["audit", "verify"], &folder);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

/// S2-24, C9: one server has the folder, a second is refused with a sentence; a damaged session is refused with its name;
/// a key made beside a running server counts at once; everything moves to SQLite and back.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_files_is_a_whole_store() {
    let outside = Outside::answering(json!({})).await;
    let folder = with_files(&Setup::default(), &outside, "");
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let job = outside.job().await;
    server.run_is(&run, "held").await;
    let second = standfast(&["export", "--output", "/dev/null"], &folder);
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(!second.status.success() && said.contains("and a file store has one"), "{said}");
    let made = standfast(&["keys", "create", "--user", "ann"], &folder);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert_eq!(
        std::fs::read_dir(folder.path().join("files/credential")).unwrap().count(),
        2,
        "a lock, a key"
    );
    drop(server);

    // Out of the files, into SQLite, back into other files.
    let lines = folder.path().join("lines.jsonl");
    let lines = lines.to_str().unwrap();
    let exported = standfast(&["export", "--output", lines], &folder);
    assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
    let (lite, back) = (Setup::default().folder(&outside), with_files(&Setup::default(), &outside, ""));
    for other in [&lite, &back] {
        let imported = standfast(&["import", lines], other);
        assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
        let again = standfast(&["export", "--output", lines], other);
        assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
        let verified = standfast(&["audit", "verify"], other);
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    }
    let server = serve(back.path());
    let body = json!({"pendingID": text(&job["pendingID"]), "result": result()});
    assert_eq!(server.webhook(&body, text(&job["callbackSecret"])).await.status, 200);
    server.run_is(&run, "completed").await;
    drop(server);

    let session = folder.path().join("files/session/ops/s-1.json");
    let kept = std::fs::read(&session).unwrap();
    std::fs::write(&session, &kept[..kept.len() / 2]).unwrap();
    let refused = standfast(&["export", "--output", "/dev/null"], &folder);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("session/ops/s-1.json: it is damaged"), "{said}");
    std::fs::write(&session, kept).unwrap();
    assert!(standfast(&["export", "--output", "/dev/null"], &folder).status.success());
}

/// S2-26: the sets and the sorted set of a real Redis, written behind the files. It is flushed, lies, is killed and comes back
/// empty, all in the middle: every lookup says what the files say, and the Redis is filled again.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_indexes_the_files_and_is_never_believed() {
    let mut redis = Redis::start();
    // Keys of somebody else that look alike, and one that is left over.
    assert_eq!(redis.ask(&["SET", "pending:other", "theirs"]), ["OK"]);
    assert_eq!(redis.ask(&["SET", "pending:expirations", "theirs"]), ["OK"]);
    let _ = redis.ask(&["SADD", "pending:by-status:waiting", "hold_of_long_ago"]);
    let outside = Outside::answering(json!({})).await;
    let setup = Setup { branches: &["one", "two", "three"], ..Setup::default() };
    let folder = with_files(&setup, &outside, &format!(", redis: '{}'", redis.url()));
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let jobs = outside.jobs(3).await;
    server.run_is(&run, "held").await;
    let mut ids: Vec<String> = jobs.iter().map(|job| text(&job["pendingID"]).to_owned()).collect();
    ids.sort_unstable();
    let has = async |redis: &Redis, command: &[&str], wanted: &[String]| {
        until(&format!("{command:?} has {wanted:?}"), async || {
            let mut found = redis.ask(command);
            found.sort_unstable();
            (found == wanted).then_some(())
        })
        .await;
    };
    let by_session = ["SMEMBERS", "pending:by-session:s-1"];
    let by_waiting = ["SMEMBERS", "pending:by-status:waiting"];
    has(&redis, &by_session, &ids).await;
    has(&redis, &by_waiting, &ids).await;
    has(&redis, &["ZRANGE", "pending:expiration", "0", "-1"], &ids).await;
    let timeout = read(&call(&folder, &ids[0]))["timeout"].as_i64().unwrap();
    assert_eq!(redis.ask(&["ZSCORE", "pending:expiration", &ids[0]]), [timeout.to_string()]);

    let listed = async |query: &str| {
        let listed = server.get(&format!("/async-tool/pending?{query}")).await;
        let mut found: Vec<String> =
            listed.as_array().unwrap().iter().map(|one| text(&one["id"]).to_owned()).collect();
        found.sort_unstable();
        found
    };
    for query in ["sessionID=s-1", "status=waiting"] {
        assert_eq!(listed(query).await, ids, "{query}");
    }

    for key in ["pending:other", "pending:expirations"] {
        assert_eq!(redis.ask(&["GET", key]), ["theirs"], "what is not its own stays");
    }

    // Flushed: the files answer, and it is filled again.
    assert_eq!(redis.ask(&["FLUSHALL"]), ["OK"]);
    for query in ["sessionID=s-1", "status=waiting"] {
        assert_eq!(listed(query).await, ids, "{query}");
    }
    has(&redis, &by_session, &ids).await;
    has(&redis, &by_waiting, &ids).await;

    // It lies: one too many, one too few, one that is not a call.
    let _ = redis.ask(&["SREM", "pending:by-session:s-1", &ids[0]]);
    let _ = redis.ask(&["SADD", "pending:by-status:waiting", "hold_nonsense"]);
    for query in ["sessionID=s-1", "status=waiting"] {
        assert_eq!(listed(query).await, ids, "{query}");
    }
    has(&redis, &by_session, &ids).await;
    has(&redis, &by_waiting, &ids).await;

    // Killed in the middle of it all: a report is taken, the lists are right.
    redis.kill();
    let job = jobs.iter().find(|job| text(&job["pendingID"]) == ids[0]).unwrap();
    let body = json!({"pendingID": ids[0], "result": result()});
    assert_eq!(server.webhook(&body, text(&job["callbackSecret"])).await.status, 200);
    assert_eq!(listed("status=waiting").await, ids[1..]);
    assert_eq!(listed("status=completed").await, ids[..1]);
    assert_eq!(listed("sessionID=s-1&status=completed").await, ids[..1]);

    // It comes back empty, and is filled without anybody asking.
    redis.restart();
    has(&redis, &by_waiting, &ids[1..]).await;
    has(&redis, &["SMEMBERS", "pending:by-status:completed"], &ids[..1]).await;
    has(&redis, &by_session, &ids).await;
    has(&redis, &["ZRANGE", "pending:expiration", "0", "-1"], &ids[1..]).await;
    assert_eq!(listed("status=waiting").await, ids[1..]);
}

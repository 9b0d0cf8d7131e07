//! A Redis beside the files under load and under `kill -9`: it follows, and where it cannot it is found again and filled.
//!
//! What it is, and that it is never believed: `file_store.rs`. Here the server is busy, or dies between the files and the Redis.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use standfast_testkit::redis::Redis;

use crate::async_tool::file_store::{read, standfast, with_files};
use crate::async_tool::world::{Outside, Server, Setup, hmac_hex, result, serve, text, until};

/// The ids of a list, sorted.
fn ids(listed: &Value) -> Vec<String> {
    let mut ids: Vec<String> =
        listed.as_array().unwrap().iter().map(|one| text(&one["id"]).to_owned()).collect();
    ids.sort_unstable();
    ids
}

async fn has(redis: &Redis, command: &[&str], wanted: &[String]) {
    until(&format!("{command:?} has {wanted:?}"), async || {
        let mut found = redis.ask(command);
        found.sort_unstable();
        (found == wanted).then_some(())
    })
    .await;
}

/// Asks for a list that has two, again and again.
async fn asks_for_two(url: String) {
    let client = reqwest::Client::new();
    loop {
        let listed = client.get(&url).send().await.unwrap().json::<Value>().await.unwrap();
        assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// S2-26: a Redis that was away is found again and filled by a server that never has a moment of rest: lists are asked for
/// all the time, while it is away and after.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_server_finds_its_redis_again() {
    let mut redis = Redis::start();
    let outside = Outside::answering(json!({})).await;
    let setup = Setup { branches: &["one", "two"], ..Setup::default() };
    let folder = with_files(&setup, &outside, &format!(", redis: '{}'", redis.url()));
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    server.run_is(&run, "held").await;
    let waiting = ids(&server.get("/async-tool/pending?status=waiting").await);
    assert_eq!(waiting.len(), 2);
    has(&redis, &["SMEMBERS", "pending:by-status:waiting"], &waiting).await;
    redis.kill();
    let url = format!("{}/async-tool/pending?status=waiting", server.base());
    let asking = tokio::spawn(asks_for_two(url));
    redis.restart();
    has(&redis, &["SMEMBERS", "pending:by-status:waiting"], &waiting).await;
    has(&redis, &["SMEMBERS", "pending:by-session:s-1"], &waiting).await;
    has(&redis, &["ZRANGE", "pending:expiration", "0", "-1"], &waiting).await;
    assert!(!asking.is_finished(), "every list was complete");
    asking.abort();
}

/// S2-26: a server starts without its Redis and works; once it is there it has what the files say. A key of another type in the place
/// of a set is not believed, and put right.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_away_at_the_start_or_has_something_else_costs_nothing() {
    let mut redis = Redis::start();
    redis.kill();
    let outside = Outside::answering(json!({})).await;
    let setup = Setup { branches: &["one", "two"], ..Setup::default() };
    let folder = with_files(&setup, &outside, &format!(", redis: '{}'", redis.url()));
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let jobs = outside.jobs(2).await;
    server.run_is(&run, "held").await;
    let list = async |status: &str| ids(&server.get(&format!("/async-tool/pending?status={status}")).await);
    assert_eq!(list("waiting").await.len(), 2);
    let (done, id) = (&jobs[0], text(&jobs[0]["pendingID"]).to_owned());
    let report = json!({"pendingID": id, "result": result()});
    assert_eq!(server.webhook(&report, text(&done["callbackSecret"])).await.status, 200);
    let (waiting, completed) = (vec![text(&jobs[1]["pendingID"]).to_owned()], vec![id]);
    assert_eq!((list("waiting").await, list("completed").await), (waiting.clone(), completed.clone()));
    redis.restart();
    has(&redis, &["SMEMBERS", "pending:by-status:waiting"], &waiting).await;
    has(&redis, &["SMEMBERS", "pending:by-status:completed"], &completed).await;
    has(&redis, &["ZRANGE", "pending:expiration", "0", "-1"], &waiting).await;
    assert_eq!(redis.ask(&["SET", "pending:by-status:waiting", "x"]), ["OK"]);
    assert_eq!((list("waiting").await, list("completed").await), (waiting.clone(), completed.clone()));
    until("the set is a set again", async || {
        (redis.ask(&["TYPE", "pending:by-status:waiting"]) == ["set"]).then_some(())
    })
    .await;
    has(&redis, &["SMEMBERS", "pending:by-status:waiting"], &waiting).await;
}

/// S2-26, T16: what a Redis still says of a tenant that has no calls any more is noticed and taken away; lists of that tenant are
/// what the files say all the while.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_of_a_tenant_without_calls_goes() {
    let redis = Redis::start();
    let outside = Outside::answering(json!({})).await;
    let setup = Setup { server: ", auth: {api_keys: true}", ..Setup::default() };
    let folder = with_files(&setup, &outside, &format!(", redis: '{}'", redis.url()));
    std::fs::write(folder.path().join("words.yaml"), "replies:\n- text: hi\n").unwrap();
    let file = folder.path().join("standfast.yaml");
    let config = std::fs::read_to_string(&file).unwrap();
    let config = config
        .replace("llms: {", "llms: {w: {type: scripted, script: words.yaml}, ")
        .replace("agents: {", "agents: {chat: {llm: w, session_store: main, task: {}}, ");
    std::fs::write(&file, config).unwrap();
    let mut server = serve(folder.path());
    let made =
        standfast(&["keys", "create", "--user", "ann", "--scope", "admin", "--tenant", "acme"], &folder);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    server.key = Some(String::from_utf8(made.stdout).unwrap().trim().to_owned());
    let body = json!({"input": "hi", "session": "talk", "wait": "settled"});
    assert_eq!(server.post("/api/v1/agents/chat/runs", &body).await.status, 201);
    let left = ["acme:pending:by-status:waiting", "acme:pending:by-session:talk"];
    for key in left {
        let _ = redis.ask(&["SADD", key, "hold_of_long_ago"]);
    }
    for query in ["status=waiting", "sessionID=talk"] {
        assert_eq!(server.get(&format!("/async-tool/pending?{query}")).await, json!([]), "{query}");
    }
    for key in left {
        until(&format!("{key} is gone"), async || (redis.ask(&["EXISTS", key]) == ["0"]).then_some(())).await;
    }
}

/// The calls that the files have, by what they say.
fn by_status(folder: &Path) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in std::fs::read_dir(folder.join("files/pending_tool")).unwrap() {
        let path = entry.unwrap().path();
        let is_call = path.file_name().unwrap().to_str().unwrap().starts_with("hold_");
        if is_call && path.extension().is_some_and(|ending| ending == "json") {
            let record = read(&path);
            found.entry(text(&record["status"]).to_owned()).or_default().push(text(&record["id"]).to_owned());
        }
    }
    found.values_mut().for_each(|ids| ids.sort_unstable());
    found
}

/// API, index and Redis say what the files say.
async fn all_agree(server: &Server, folder: &Path, redis: &Redis) -> BTreeMap<String, Vec<String>> {
    let files = by_status(folder);
    for status in ["waiting", "processing", "completed", "failed", "expired"] {
        let of_files = files.get(status).cloned().unwrap_or_default();
        let listed = server.get(&format!("/async-tool/pending?status={status}&limit=1000")).await;
        assert_eq!(ids(&listed), of_files, "{status}");
        has(redis, &["SMEMBERS", &format!("pending:by-status:{status}")], &of_files).await;
        until(&format!("the index has what is {status}"), async || {
            let index = read(&folder.join("files/pending_tool/index.json"));
            let mut indexed: Vec<String> = index["byStatus"][status]
                .as_array()
                .map(|ids| ids.iter().map(|id| text(id).to_owned()).collect())
                .unwrap_or_default();
            indexed.sort_unstable();
            (indexed == of_files).then_some(())
        })
        .await;
    }
    files
}

/// S2-24, S2-26, S2-36, F2: `kill -9` while reports come in, so also between a file and the Redis: what was acknowledged is in the files, and
/// after the next start API, index and Redis say what the files say, for every call. What was not is taken then, and the run goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_the_files_and_the_redis_leaves_what_the_files_say() {
    const BRANCHES: [&str; 4] = ["one", "two", "three", "four"];
    let redis = Redis::start();
    let outside = Outside::answering(json!({})).await;
    let setup = Setup { branches: &BRANCHES, ..Setup::default() };
    let folder = with_files(&setup, &outside, &format!(", redis: '{}'", redis.url()));
    let mut server = serve(folder.path());
    for round in 0..standfast_testkit::rounds(6) {
        let session = format!("s-{round}");
        let run = server.begin(&session).await;
        let jobs = outside.jobs((round + 1) * BRANCHES.len()).await.split_off(round * BRANCHES.len());
        server.run_is(&run, "held").await;
        let reports: Vec<_> = jobs
            .iter()
            .map(|job| {
                let body = json!({"pendingID": job["pendingID"], "result": result()}).to_string();
                let signature = hmac_hex(text(&job["callbackSecret"]), &body);
                let url = format!("{}/async-tool/webhook", server.base());
                let request = reqwest::Client::new().post(url).header("content-type", "application/json");
                let request = request.header("x-webhook-signature", signature).body(body);
                // Whoever gets no answer does not know what became of it.
                tokio::spawn(async move { request.send().await.is_ok_and(|answer| answer.status() == 200) })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(3 * (round as u64 % 8))).await;
        drop(server);
        // The files are written first: the Redis has nothing that they do not have.
        let in_files = by_status(folder.path()).remove("completed").unwrap_or_default();
        for id in redis.ask(&["SMEMBERS", "pending:by-status:completed"]) {
            assert!(in_files.contains(&id), "{round}: {id} is ahead of its file: {in_files:?}");
        }
        let mut acknowledged = Vec::new();
        for (job, report) in jobs.iter().zip(reports) {
            if report.await.unwrap() {
                acknowledged.push(text(&job["pendingID"]).to_owned());
            }
        }
        server = serve(folder.path());
        let files = all_agree(&server, folder.path(), &redis).await;
        let completed = files.get("completed").cloned().unwrap_or_default();
        for id in &acknowledged {
            assert!(completed.contains(id), "{round}: {id} was acknowledged: {files:?}");
        }
        for job in &jobs {
            let body = json!({"pendingID": job["pendingID"], "result": result()});
            let report = server.webhook(&body, text(&job["callbackSecret"])).await;
            let is_over = completed.contains(&text(&job["pendingID"]).to_owned());
            assert_eq!(report.status, if is_over { 409 } else { 200 }, "{round}: {report:?}");
        }
        server.run_is(&run, "completed").await;
        all_agree(&server, folder.path(), &redis).await;
        assert_eq!(redis.ask(&["SCARD", &format!("pending:by-session:{session}")]), ["4"], "{round}");
    }
    drop(server);
    let verified = standfast(&["audit", "verify"], &folder);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

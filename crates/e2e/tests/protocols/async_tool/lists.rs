//! Lists and the stream: complete, with cursors, also when hundreds of other runs came since.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::async_tool::world::{Outside, Server, Setup, result, serve, text, until};

/// The next page of a list, as its header says.
async fn page(server: &Server, path: &str) -> (Vec<Value>, Option<String>) {
    let response = reqwest::get(format!("{}{path}", server.base())).await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    let link = response.headers().get("link").map(|link| link.to_str().unwrap().to_owned());
    let next = link.map(|link| {
        let (address, rel) = link.split_once('>').unwrap();
        assert_eq!(rel, "; rel=\"next\"");
        address.trim_start_matches('<').to_owned()
    });
    (response.json().await.unwrap(), next)
}

/// Every item of a list, page by page.
async fn all(server: &Server, path: &str) -> Vec<Value> {
    let (mut found, mut next) = page(server, path).await;
    while let Some(path) = next {
        let (more, after) = page(server, &path).await;
        found.extend(more);
        next = after;
    }
    found
}

fn ids(records: &[Value]) -> BTreeSet<String> {
    records.iter().map(|record| text(&record["id"]).to_owned()).collect()
}

/// S2-6, S2-12, S2-16: settled calls are listed completely, by index and with cursors, behind more than 500 other runs; so are
/// those that wait; each exactly once; and conversations that wait, each once.
#[tokio::test(flavor = "multi_thread")]
async fn lists_are_complete_and_go_on() {
    let outside = Outside::answering(json!({})).await;
    let folder = Setup { branches: &["one", "two"], ..Setup::default() }.folder(&outside);
    std::fs::write(folder.path().join("words.yaml"), "replies:\n- text: hi\n").unwrap();
    let file = folder.path().join("standfast.yaml");
    let config = std::fs::read_to_string(&file).unwrap();
    let config = config
        .replace("llms: {", "llms: {w: {type: scripted, script: words.yaml}, ")
        .replace("agents: {", "agents: {chat: {llm: w, session_store: main, task: {}}, ");
    std::fs::write(&file, config).unwrap();
    let mut server = serve(folder.path());
    let mut settled = BTreeSet::new();
    for n in 0..3 {
        let run = server.begin(&format!("over-{n}")).await;
        server.run_is(&run, "held").await;
        for job in outside.jobs(2 * n + 2).await.split_off(2 * n) {
            let id = text(&job["pendingID"]).to_owned();
            let body = json!({"pendingID": id, "result": result()});
            assert_eq!(server.webhook(&body, text(&job["callbackSecret"])).await.status, 200);
            settled.insert(id);
        }
        server.run_is(&run, "completed").await;
    }
    let mut waiting = BTreeSet::new();
    for n in 0..3 {
        let run = server.begin(&format!("open-{n}")).await;
        server.run_is(&run, "held").await;
        waiting.extend(
            outside
                .jobs(2 * n + 8)
                .await
                .split_off(2 * n + 6)
                .iter()
                .map(|job| text(&job["pendingID"]).to_owned()),
        );
    }
    let asked = &server;
    let began: Vec<_> = (0..520)
        .map(|n| async move {
            let body = json!({"input": "hi", "session": format!("chat-{n}"), "wait": "settled"});
            let begun = asked.post("/api/v1/agents/chat/runs", &body).await;
            assert_eq!(begun.status, 201, "{begun:?}");
        })
        .collect();
    futures_util::stream::iter(began).buffer_unordered(8).collect::<Vec<()>>().await;
    for is_restarted in [false, true] {
        if is_restarted {
            drop(server);
            server = serve(folder.path());
        }
        for path in ["/async-tool/pending?status=completed", "/async-tool/pending?status=completed&limit=2"] {
            let found = all(&server, path).await;
            assert_eq!((found.len(), ids(&found)), (6, settled.clone()), "{path}");
        }
        for path in [
            "/async-tool/pending",
            "/async-tool/pending?limit=2",
            "/async-tools/pending?status=waiting&limit=4",
        ] {
            let found = all(&server, path).await;
            assert_eq!((found.len(), ids(&found)), (6, waiting.clone()), "{path}");
        }
        assert_eq!(all(&server, "/async-tool/pending?status=failed").await, Vec::<Value>::new());
        for path in ["/async-tool/sessions/waiting", "/async-tool/sessions/waiting?limit=1"] {
            let found = all(&server, path).await;
            let names: Vec<&str> = found.iter().map(|one| text(&one["sessionID"])).collect();
            assert_eq!(names, ["open-0", "open-1", "open-2"], "{path}: the longest waiting first");
            assert!(
                found.iter().all(|one| one["projectID"] == "ops" && one["status"]["type"] == "waiting_async")
            );
            assert!(found.iter().all(|one| waiting.contains(text(&one["status"]["pendingID"]))), "{found:?}");
        }
    }
}

/// Reads the stream until it says this; answers with the last id and everything that was heard.
async fn listen(server: &Server, from: Option<&str>, until: &str) -> (String, String) {
    let mut request = reqwest::Client::new().get(format!("{}/async-tool/events", server.base()));
    if let Some(from) = from {
        request = request.header("last-event-id", from);
    }
    let mut chunks = request.send().await.unwrap().bytes_stream();
    let mut heard = String::new();
    let listening = async {
        while !(heard.contains(until) && heard.ends_with("\n\n")) {
            heard.push_str(&String::from_utf8_lossy(&chunks.next().await.unwrap().unwrap()));
        }
    };
    tokio::time::timeout(Duration::from_secs(60), listening).await.unwrap();
    let last = heard.lines().rev().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
    (last, heard)
}

/// S2-28, S2-29: the stream has a cursor: a reader that was away, while the call ended and the server was killed, comes back
/// with the last id that it heard and gets the end; without it only pending calls.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_was_away_goes_on_where_it_was() {
    let outside = Outside::answering(json!({})).await;
    let folder = Setup { branches: &["one", "two"], ..Setup::default() }.folder(&outside);
    let server = serve(folder.path());
    let run = server.begin("s-1").await;
    let jobs = outside.jobs(2).await;
    server.run_is(&run, "held").await;
    let (last, heard) = listen(&server, None, "waiting_async").await;
    assert!(last.parse::<u64>().is_ok(), "{heard}");
    let id = text(&jobs[0]["pendingID"]);
    let body = json!({"pendingID": id, "result": result()});
    assert_eq!(server.webhook(&body, text(&jobs[0]["callbackSecret"])).await.status, 200);
    server.call_is(id, "completed").await;
    drop(server);
    let server = serve(folder.path());
    let (again, heard) = listen(&server, Some(&last), r#""status":"completed""#).await;
    assert!(heard.contains(text(&result()["output"])), "{heard}");
    assert!(again.parse::<u64>().unwrap() >= last.parse::<u64>().unwrap());
    let (_, heard) = listen(&server, None, "waiting_async").await;
    assert!(!heard.contains("completed"), "pending calls only: {heard}");
    let bad = server
        .request(reqwest::Method::GET, "/async-tool/events", &[("last-event-id", "x".into())], None)
        .await;
    assert_eq!(bad.status, 422);
    until("the other one waits", async || {
        (server.get("/async-tool/pending").await.as_array().unwrap().len() == 1).then_some(())
    })
    .await;
}

//! One node tells at a time, also while shards move between nodes.
//!
//! The receiver here takes its time and counts who is talking to it: events of one run are never delivered by two at
//! once, whoever joins, stops or is killed meanwhile.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use serde_json::{Value, json};
use standfast_store::conformance::cluster;
use tempfile::TempDir;

use super::{folder_on, patience, serve, text};
use standfast_testkit::receiver::{Mood, Receiver};

/// How long the receiver takes; much less than `server.webhooks.timeout` here, so that nobody gives up and tells again while
/// it still answers, however busy the machine is.
const TAKES: Duration = Duration::from_millis(900);

/// A folder whose nodes are given this much time for a delivery, and for a sign of life before others take over: a node
/// that is slow on a busy machine is not a node that is gone.
fn unhurried(more: &str) -> TempDir {
    let url = format!("driver: postgres, url: \"{}\"", cluster::shared().database());
    let folder = folder_on(&url, &patience());
    let config = folder.path().join("standfast.yaml");
    let text = std::fs::read_to_string(&config).unwrap();
    let text = text.replace("take_over_after: 3s", &format!("take_over_after: 10s{more}"));
    std::fs::write(&config, text.replace("timeout: 2s", "timeout: 30s")).unwrap();
    folder
}

/// What the receiver saw.
#[derive(Default)]
struct Seen {
    /// Requests that are being answered, by subscription and run.
    open: BTreeMap<String, usize>,
    /// Subscriptions and runs that two told of at once.
    overlaps: Vec<String>,
    /// The events that were taken of each run, in order of arrival.
    taken: BTreeMap<String, Vec<(u64, bool)>>,
}

/// A request that is being answered; whoever hangs up ends it.
struct Talking {
    seen: Arc<Mutex<Seen>>,
    about: String,
}

impl Talking {
    fn begins(seen: &Arc<Mutex<Seen>>, about: String) -> Talking {
        let mut all = seen.lock().unwrap();
        let open = all.open.entry(about.clone()).or_default();
        *open += 1;
        if *open > 1 {
            all.overlaps.push(about.clone());
        }
        drop(all);
        Talking { seen: seen.clone(), about }
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        *self.seen.lock().unwrap().open.get_mut(&self.about).unwrap() -= 1;
    }
}

async fn takes(State(seen): State<Arc<Mutex<Seen>>>, body: Bytes) -> StatusCode {
    let body: Value = serde_json::from_slice(&body).unwrap();
    let (run, event) = (text(&body["data"]["run"]["id"]), &body["data"]["event"]);
    let (seq, is_last) = (event["seq"].as_u64().unwrap(), body["type"] == "run.ended");
    let talking = Talking::begins(&seen, format!("{} {run}", text(&body["data"]["subscription"])));
    tokio::time::sleep(TAKES).await;
    seen.lock().unwrap().taken.entry(run).or_default().push((seq, is_last));
    drop(talking);
    StatusCode::NO_CONTENT
}

/// Section 8 of the architecture, F25: shards move because nodes join, stop and are killed, while every delivery takes its
/// time. No two nodes deliver events of one run at once, nothing is missed, and the order is kept.
#[tokio::test(flavor = "multi_thread")]
async fn no_two_nodes_tell_of_one_run_at_once() {
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = Router::new().route("/hook", post(takes)).with_state(seen.clone());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });

    let folder = unhurried("");
    let mut nodes = vec![serve(folder.path())];
    let hook = json!({"url": format!("http://127.0.0.1:{port}/hook"), "events": ["*"]});
    nodes[0].post("/subscriptions", hook).await;
    let mut runs = Vec::new();
    for _ in 0..16 {
        let (run, hold) = nodes[0].held().await;
        nodes[0].approve(&hold).await;
        runs.push(run);
    }
    // Each of these moves shards: one joins, another one joins, one goes, one is killed and replaced.
    nodes.push(serve(folder.path()));
    tokio::time::sleep(Duration::from_secs(3)).await;
    nodes.push(serve(folder.path()));
    tokio::time::sleep(Duration::from_secs(3)).await;
    let pid = nodes[0].program.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    tokio::time::sleep(Duration::from_secs(2)).await;
    // Dropping it is kill -9.
    nodes[1] = serve(folder.path());

    let is_told = |seen: &Seen| {
        runs.iter().all(|run| seen.taken.get(run).is_some_and(|taken| taken.iter().any(|(_, last)| *last)))
    };
    for _ in 0..1800 {
        if is_told(&seen.lock().unwrap()) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let log = nodes[2].log(&runs[0]).await;
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert!(is_told(&seen), "not everything was told: {:?}", seen.taken);
    assert_eq!(seen.overlaps, Vec::<String>::new(), "two nodes told of these at once");
    assert!(seen.taken[&runs[0]].iter().filter(|(seq, _)| log.contains(seq)).count() >= log.len());
}

/// News that a run brings on one node are told by the node that has its shard at once, not when that one next looks by
/// itself: here that is after a minute.
#[tokio::test(flavor = "multi_thread")]
async fn news_on_another_node_are_told_at_once() {
    let folder = unhurried(", poll: 60s");
    let nodes = [serve(folder.path()), serve(folder.path())];
    let receiver = Receiver::new(Mood::Takes).await;
    nodes[0].subscribed(&receiver, json!({"events": ["hold.opened"]})).await;
    let is_spread = async || {
        let there = nodes[0].get("/nodes").await;
        let shards = there["nodes"].as_array().unwrap().iter().map(|node| node["shards"].as_u64().unwrap());
        shards.collect::<Vec<u64>>() == [128, 128]
    };
    for _ in 0..300 {
        if is_spread().await {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(is_spread().await, "both nodes have work of their own");
    // Of twelve runs some are in the shards of the other node, or chance is very unkind.
    for _ in 0..12 {
        nodes[0].held().await;
    }
    let all_are_told = receiver.until("every hold", |all| all.len() >= 12);
    tokio::time::timeout(Duration::from_secs(40), all_are_told)
        .await
        .expect("told before anybody looked by itself");
}

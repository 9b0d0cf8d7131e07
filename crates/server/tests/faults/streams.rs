//! Readers of events: across kills they miss and repeat nothing; thousands of idle ones cost little and sleep on.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use serde_json::Value;
use standfast_store::conformance::random::Random;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::agents::Behaviour;
use crate::child::Options;
use crate::commands::ended;
use crate::races::held;
use crate::report::Row;
use crate::server::{Http, Server, now, pause};
use crate::story::{ClearUp, Story, Wish};

/// Readers follow runs while the server is killed so many times.
pub(crate) fn across_kills(count: usize) -> Row {
    let violations = crate::runtime().block_on(read_across(count));
    Row::new("I7", "streams across kill -9", count, violations)
}

async fn read_across(kills: usize) -> Vec<String> {
    let data = tempfile::tempdir().unwrap();
    let slow = Duration::from_millis(30);
    let behaviour = Behaviour { tool: slow, model: slow, ..Options::default().behaviour };
    let options = Options { behaviour, ..Options::default() };
    let base = Arc::new(RwLock::new(String::new()));
    let mut random = Random::new(7);
    let wishes = [Wish::Approve, Wish::Answer, Wish::Result, Wish::Edit, Wish::Message, Wish::Deny];
    let mut tellers = JoinSet::new();
    for n in 0..kills.max(2) * 6 {
        let (base, data) = (base.clone(), data.path().to_owned());
        let begins_after = Duration::from_millis(random.below(200 * kills as u64));
        tellers.spawn(async move {
            tokio::time::sleep(begins_after).await;
            let story = Story::new(format!("read-{n}"), wishes[n % wishes.len()], ClearUp::ByLooking);
            told_and_read(story, &base, &data).await
        });
    }
    for _ in 0..kills {
        let mut server = Server::start(data.path(), &options);
        *base.write().unwrap() = server.bases.first().cloned().unwrap_or_default();
        tokio::time::sleep(Duration::from_millis(50 + random.below(250))).await;
        server.kill();
    }
    let server = Server::start(data.path(), &options);
    *base.write().unwrap() = server.bases.first().cloned().unwrap_or_default();
    let read = tellers.join_all().await;
    let http = server.http();
    let mut wrong = Vec::new();
    for (story, seen) in read {
        wrong.extend(story.violations.clone());
        let run = story.run.unwrap_or_default();
        let (_, log) = http.get(&format!("/api/v1/runs/{run}/events")).await.unwrap();
        let log = log["events"].as_array().cloned().unwrap_or_default();
        if log != seen {
            let numbers = |events: &[Value]| {
                events.iter().map(|one| one["seq"].to_string()).collect::<Vec<_>>().join(" ")
            };
            wrong.push(format!(
                "I7: the log of {run} is {}, the reader saw {}",
                numbers(&log),
                numbers(&seen)
            ));
        }
    }
    wrong
}

/// Lives a story while a reader follows its run; what the reader saw.
async fn told_and_read(
    mut story: Story,
    base: &RwLock<String>,
    data: &std::path::Path,
) -> (Story, Vec<Value>) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let http = || Http { client: client.clone(), base: base.read().unwrap().clone() };
    // The run begins with the first step; only then there is something to read.
    while story.run.is_none() && !story.is_over {
        if story.begin(&http()).await.is_err() {
            pause().await;
        }
    }
    let run = story.run.clone().unwrap_or_default();
    let telling = async {
        while !story.is_over {
            if story.live(&http(), data).await.is_err() {
                pause().await;
            }
        }
    };
    let reading = async {
        let mut seen: Vec<Value> = Vec::new();
        let begin = now();
        while seen.last().is_none_or(|event| event["type"] != "run.ended") && begin.elapsed().as_secs() < 60 {
            read_on(&http(), &run, &mut seen).await;
        }
        seen
    };
    let ((), seen) = tokio::join!(telling, reading);
    (story, seen)
}

/// Reads from where the reader was, until the run has ended or the server is gone.
async fn read_on(http: &Http, run: &str, seen: &mut Vec<Value>) {
    let request = http.client.get(format!("{}/api/v1/runs/{run}/events", http.base));
    let request = request.header("accept", "text/event-stream");
    let request = match seen.last() {
        Some(last) => request.header("last-event-id", last["seq"].to_string()),
        None => request,
    };
    let Ok(mut response) = request.send().await else { return pause().await };
    let mut text = String::new();
    while let Ok(Ok(Some(bytes))) = tokio::time::timeout(Duration::from_secs(20), response.chunk()).await {
        text.push_str(&String::from_utf8_lossy(&bytes));
        while let Some(end) = text.find("\n\n") {
            let event: String = text.drain(..end + 2).collect();
            let data = event.lines().find_map(|line| line.strip_prefix("data:")).map(str::trim);
            let Some(event) = data.and_then(|data| serde_json::from_str::<Value>(data).ok()) else {
                continue;
            };
            let is_last = event["type"] == "run.ended";
            seen.push(event);
            if is_last {
                return;
            }
        }
    }
}

/// Very many readers that hear nothing: what each costs, and that an event wakes only those concerned.
pub(crate) fn idle_readers(count: usize) -> Row {
    crate::runtime().block_on(idle(count))
}

async fn idle(wanted: usize) -> Row {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &Options::default());
    let http = server.http();
    // Both sides need a descriptor for each reader; some are for everything else.
    let count = wanted.min(crate::descriptors().saturating_sub(200));
    let address = http.base.strip_prefix("http://").unwrap().to_owned();
    let (concerned, hold) = held(&http, "ops").await;
    let (other, _) = held(&http, "ops").await;
    let before = server.resident_kb();
    let mut readers = Vec::with_capacity(count);
    for n in 0..count {
        let run = if n == 0 { &concerned } else { &other };
        readers.push(reader(&address, run).await);
    }
    let each = (server.resident_kb().saturating_sub(before)) as f64 / count as f64;
    let mut wrong = Vec::new();
    // A reader that hears nothing looks less and less often by itself.
    tokio::time::sleep(Duration::from_secs(if count > 1_000 { 30 } else { 3 })).await;
    let (ticks, reads) = (server.cpu_ticks(), read_count(&http).await);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let cpu = (server.cpu_ticks() - ticks) as f64 / 2.0;
    let idle_reads = (read_count(&http).await - reads) / 2;
    let begin = now();
    let reads = read_count(&http).await;
    http.post(&format!("/api/v1/holds/{hold}/resolve"), r#"{"resolution": "approve"}"#, None).await.unwrap();
    let heard = until_ended(&mut readers[0]).await;
    let woken = read_count(&http).await - reads;
    let took = begin.elapsed().as_secs_f64() * 1000.0;
    if !heard {
        wrong.push("I7: the reader concerned did not hear the end".into());
    }
    if woken as usize > count / 4 + 50 {
        wrong.push(format!("I9: {woken} reads of logs for one run with one reader"));
    }
    if idle_reads as usize > count {
        wrong.push(format!("I9: {count} idle readers make {idle_reads} reads a second"));
    }
    for (n, reader) in readers.iter_mut().enumerate().skip(1).step_by(97) {
        if let Some(text) = waiting(reader).filter(|text| text.contains("data:")) {
            wrong.push(format!("I7: reader {n} heard of something that is not its run: {text}"));
        }
    }
    if ended(&http, &concerned).await.map(|(status, _)| status) != Ok(200) {
        wrong.push("I6: the server does not answer any more".into());
    }
    let note = format!(
        "{each:.1} KB a reader; idle: {idle_reads} reads/s, {cpu:.0} % of a core; one event: {woken} reads, heard after {took:.0} ms"
    );
    Row::new("I9", "idle SSE readers", count, wrong).with(note)
}

async fn read_count(http: &Http) -> u64 {
    let (_, body) = http.get("/test/reads").await.unwrap();
    body.as_u64().unwrap()
}

/// Connects and reads until the hold was seen.
async fn reader(address: &str, run: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "GET /api/v1/runs/{run}/events HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    assert!(until(&mut stream, "event: hold.opened").await, "a reader is not served");
    stream
}

async fn until_ended(stream: &mut TcpStream) -> bool {
    until(stream, "event: run.ended").await
}

async fn until(stream: &mut TcpStream, wanted: &str) -> bool {
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    let reading = async {
        while !text.contains(wanted) {
            match stream.read(&mut buffer).await {
                Ok(read @ 1..) => text.push_str(&String::from_utf8_lossy(&buffer[..read])),
                Ok(0) | Err(_) => return false,
            }
        }
        true
    };
    tokio::time::timeout(Duration::from_secs(20), reading).await.unwrap_or(false)
}

/// What has arrived and was not read yet.
fn waiting(stream: &mut TcpStream) -> Option<String> {
    let mut buffer = [0; 4096];
    stream.try_read(&mut buffer).ok().map(|read| String::from_utf8_lossy(&buffer[..read]).into_owned())
}

//! F24: bodies, paths and headers that no client should send: cut, doubled, too deep, too long, of the wrong type.
//!
//! Every answer is a 2xx or a 4xx with problem details; the server neither panics nor grows, and nothing runs.

use std::sync::Arc;

use standfast_store::conformance::random::Random;
use tokio::task::JoinSet;

use crate::child::Options;
use crate::races::held;
use crate::report::Row;
use crate::server::{Http, Server, panics};
use crate::story::lines;

const SEEDS: [&str; 8] = [
    r#"{"input": "Free some space", "session": "s-1", "wait": "accepted"}"#,
    r#"{"input": {"parts": [{"text": "a"}, {"text": "b"}]}}"#,
    r#"{"resolution": "deny", "reason": "no"}"#,
    r#"{"resolution": "answer", "value": {"deep": [1, 2.5e300, null, true]}}"#,
    r#"{"resolution": "fail", "reason": "x", "digest": "00", "revision": 4294967295}"#,
    r#"{"reason": "changed my mind"}"#,
    r#"{"input": "x", "on_hold": "supersede"}"#,
    "{}",
];

const PIECES: [&str; 16] = [
    "\u{0}",
    "\"",
    "{",
    "[",
    "}",
    "]",
    ":",
    ",",
    "NaN",
    "1e999",
    "-0",
    "\\ud800",
    "\u{202e}",
    "null",
    "\"input\"",
    "99999999999999999999",
];

/// Sends so many.
pub(crate) fn malformed(count: usize) -> Row {
    crate::runtime().block_on(send_all(count))
}

async fn send_all(count: usize) -> Row {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path(), &Options::default());
    let http = server.http();
    let (run, hold) = held(&http, "ops").await;
    let paths = Arc::new([
        "/api/v1/agents/ops/runs".to_owned(),
        "/api/v1/agents/nobody/runs".to_owned(),
        format!("/api/v1/holds/{}/resolve", hold.replace('_', "-")),
        format!("/api/v1/holds/{hold}/resolve?x=%00"),
        format!("/api/v1/runs/{run}/messages"),
        format!("/api/v1/runs/{run}x/cancel"),
        "/api/v1/runs/%ff%fe/cancel".to_owned(),
        "/api/v1/holds?limit=-1&cursor=99999999999999999999".to_owned(),
    ]);
    let before = server.resident_kb();
    let mut senders = JoinSet::new();
    for sender in 0..8u64 {
        let (http, paths) = (http.clone(), paths.clone());
        let share = count / 8 + usize::from((sender as usize) < count % 8);
        senders.spawn(async move { send(&http, &paths[..], share, sender).await });
    }
    let answered = senders.join_all().await;
    let grown = server.resident_kb().saturating_sub(before);
    let mut wrong: Vec<String> = answered.iter().flat_map(|(_, wrong)| wrong.clone()).collect();
    let taken: usize = answered.iter().map(|(taken, _)| taken).sum();
    if grown > 60_000 + taken as u64 / 20 {
        wrong.push(format!("memory grew by {grown} KB"));
    }
    server.kill();
    wrong.extend(panics(data.path()));
    let effects = lines(data.path()).len();
    if effects > 0 {
        wrong.push(format!("I4: {effects} effects without an approval"));
    }
    let note = format!("{taken} were well-formed by chance and taken; memory grew by {grown} KB");
    Row::new("F24", "malformed and oversized bodies", count, wrong).with(note)
}

async fn send(http: &Http, paths: &[String], count: usize, seed: u64) -> (usize, Vec<String>) {
    let (mut random, mut taken, mut wrong) = (Random::new(seed), 0, Vec::new());
    for _ in 0..count {
        let body = body(&mut random);
        let path = random.pick(paths).clone();
        let media_type = if random.one_in(20) { "text/plain" } else { "application/json" };
        let request = || {
            let request = http.client.post(format!("{}{path}", http.base)).header("content-type", media_type);
            request.body(body.clone()).send()
        };
        // A kept connection may just have been closed after an answer to a body that was not wanted: once more.
        let answered = match request().await {
            Err(_) => request().await,
            answered => answered,
        };
        match answered {
            Ok(response) => {
                let (status, is_problem) = (response.status().as_u16(), is_problem(&response));
                // Read to its end, so that the connection can be used again.
                let _ = response.bytes().await;
                match status {
                    200..=299 => taken += 1,
                    400..=499 if is_problem => {}
                    _ => wrong.push(format!(
                        "{status} for {path} {:?}",
                        String::from_utf8_lossy(&body[..body.len().min(200)])
                    )),
                }
            }
            // It may answer and close before it has read a long body that it does not want.
            Err(_) if body.len() > 4096 => {}
            Err(error) => wrong.push(format!("no answer for {path}: {error:?}")),
        }
    }
    (taken, wrong)
}

fn is_problem(response: &reqwest::Response) -> bool {
    response.headers().get("content-type").is_some_and(|value| value == "application/problem+json")
}

/// A body that was well-formed once.
fn body(random: &mut Random) -> Vec<u8> {
    let mut bytes = random.pick(&SEEDS).as_bytes().to_vec();
    if random.one_in(200) {
        let depth = 100 + random.index(20_000);
        return [r#"{"input": "#.as_bytes(), "[".repeat(depth).as_bytes(), b"1"].concat();
    }
    if random.one_in(2_000) {
        return format!(r#"{{"input": "{}"}}"#, "x".repeat(1024 * 1024 + random.index(1_000))).into_bytes();
    }
    for _ in 0..1 + random.index(4) {
        let at = random.index(bytes.len() + 1);
        match random.below(5) {
            0 => bytes.truncate(at),
            1 => drop(bytes.splice(at..at, random.pick(&PIECES).bytes())),
            2 => drop(bytes.splice(at..at, [0x80 | random.below(128) as u8])),
            3 => {
                let copy = bytes.clone();
                bytes.extend(copy);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.below(256) as u8;
                }
            }
        }
    }
    bytes
}

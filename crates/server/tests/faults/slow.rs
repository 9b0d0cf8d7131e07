//! F23: clients that send their headers or bodies drop by drop, and readers that never read.
//!
//! Others are served meanwhile, memory stays flat, and whoever takes too long is cut off.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::child::Options;
use crate::expiry::percentile;
use crate::races::held;
use crate::report::Row;
use crate::server::{Server, now};

/// Keeps so many slow connections open for so many seconds.
pub(crate) fn slow_clients(count: usize, seconds: u64) -> Row {
    crate::runtime().block_on(slow(count, seconds))
}

async fn slow(count: usize, seconds: u64) -> Row {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &Options::default());
    let http = server.http();
    let address = http.base.strip_prefix("http://").unwrap().to_owned();
    let (run, _) = held(&http, "ops").await;
    let mut connections = Vec::new();
    for n in 0..count {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(opening(n, &address, &run).as_bytes()).await.unwrap();
        connections.push(stream);
    }
    let before = server.resident_kb();
    let (begin, mut times, mut wrong) = (now(), Vec::new(), Vec::new());
    while begin.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..10 {
            for (n, stream) in connections.iter_mut().enumerate() {
                // One more drop; those that were cut off do not take it.
                let _ = if n % 3 == 0 { stream.try_write(b"x") } else { stream.try_write(b" ") };
            }
            let asked = now();
            match http.get("/api/v1/holds").await {
                Ok((200, _)) => times.push(asked.elapsed().as_secs_f64() * 1000.0),
                other => wrong.push(format!("I6: others get {other:?}")),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let grown = server.resident_kb().saturating_sub(before);
    // A few buffers for each; what has not arrived yet must not cost anything.
    if grown > 4_000 + 40 * count as u64 {
        wrong.push(format!("memory grew by {grown} KB"));
    }
    if times.iter().any(|time| *time > 2_000.0) {
        wrong.push(format!("others wait {:.0} ms", percentile(times.clone(), 1.0)));
    }
    let mut cut = 0;
    for (_, stream) in connections.iter_mut().enumerate().filter(|(n, _)| n % 3 != 2) {
        cut += usize::from(is_cut(stream).await);
    }
    let slow = count - count / 3;
    let note = format!(
        "others p50 {:.1} ms, p99 {:.1} ms; memory grew by {grown} KB; {cut} of {slow} slow senders were cut off",
        percentile(times.clone(), 0.5),
        percentile(times, 0.99)
    );
    // The limit is half a minute; nobody is cut off before.
    if seconds > 45 && cut < slow {
        wrong.push(format!("only {cut} of {slow} slow senders were cut off"));
    }
    Row::new("F23", "slow headers, slow bodies, unread streams", count, wrong).with(note)
}

/// The beginning of a request that never ends; of every third: a stream that nobody reads.
fn opening(n: usize, address: &str, run: &str) -> String {
    match n % 3 {
        0 => format!("GET /api/v1/holds HTTP/1.1\r\nhost: {address}\r\nx-slow: "),
        1 => format!(
            "POST /api/v1/agents/ops/runs HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
             content-length: 100000\r\n\r\n{{"
        ),
        _ => format!(
            "GET /api/v1/runs/{run}/events HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n\r\n"
        ),
    }
}

/// Whether the server has closed this connection, perhaps after an answer.
async fn is_cut(stream: &mut TcpStream) -> bool {
    let mut buffer = [0; 4096];
    loop {
        match tokio::time::timeout(Duration::from_millis(5), stream.read(&mut buffer)).await {
            Ok(Ok(1..)) => {}
            Ok(Ok(0) | Err(_)) => return true,
            Err(_) => return false,
        }
    }
}

//! What connections may cost: headers, time and places, on a real socket with a real store behind it.
//!
//! In this process, so that the limits can be small. No test waits for a limit of the product.

#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use standfast::{app, demo};
use standfast_core::time::Millis;
use standfast_engine::Engine;
use standfast_engine::clock::Clock;
use standfast_engine::settings::{Connections, FixedSettings};
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use standfast_surfaces::http;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longer than anything here takes; only a failing test waits for it.
const LONG: Duration = Duration::from_secs(30);

/// A server with these limits.
struct Site {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    server: JoinHandle<()>,
    _data: TempDir,
}

async fn serve(connections: Connections) -> Site {
    let data = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&SqliteOptions::at(data.path().join("standfast.db"))).unwrap();
    let fixed = FixedSettings { connections: connections.clone(), ..FixedSettings::default() };
    let settings = demo::settings(data.path()).unwrap();
    let engine = Engine::new(Arc::new(store), Clock::system(), fixed, settings);
    let (stop, stopping) = watch::channel(false);
    let router = app::router(http::App { engine, stopping: stopping.clone() });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move { http::serve(listener, router, &connections, stopping).await });
    Site { address, stop, server, _data: data }
}

impl Site {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

/// Everything until the other side ends the connection.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    // A reset is an end too.
    let _ = timeout(LONG, stream.read_to_end(&mut text)).await.unwrap();
    String::from_utf8(text).unwrap()
}

/// The first line of the answer to a request on a connection that stays open.
async fn ask(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = Vec::new();
    while !text.windows(2).any(|end| end == b"\r\n") {
        let mut byte = [0];
        assert_eq!(timeout(LONG, stream.read(&mut byte)).await.unwrap().unwrap(), 1, "the connection ended");
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap().trim_end().to_owned()
}

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// F24: too many headers, or too large ones, are answered with 431 and nothing else.
#[tokio::test]
async fn headers_are_limited_in_number_and_size() {
    let site = serve(Connections { headers: 20, header_bytes: 16 * 1024, ..Connections::default() }).await;
    let with = |headers: &str| {
        format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{headers}connection: close\r\n\r\n")
    };
    for (headers, status) in [
        ("x: y\r\n".repeat(18), "200"),
        ("x: y\r\n".repeat(19), "431"),
        (format!("x: {}\r\n", "y".repeat(8 * 1024)), "200"),
        (format!("x: {}\r\n", "y".repeat(64 * 1024)), "431"),
    ] {
        let mut stream = site.connect().await;
        // The server may have had enough before all of it is written.
        let _ = stream.write_all(with(&headers).as_bytes()).await;
        let mut line = [0; 12];
        timeout(LONG, stream.read_exact(&mut line)).await.unwrap().unwrap();
        assert_eq!(String::from_utf8_lossy(&line), format!("HTTP/1.1 {status}"), "{} bytes", headers.len());
    }
}

/// F24: JSON that is nested too deep is refused before it can hurt, also where it would only be passed on.
#[tokio::test]
async fn json_that_is_nested_too_deep_is_refused() {
    let site = serve(Connections::default()).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let post = async |path: &str, body: String| {
        let request = client.post(format!("http://{}/api/v1{path}", site.address));
        request.header("content-type", "application/json").body(body).send().await.unwrap()
    };
    let started = post("/agents/ops/runs", r#"{"input": "x", "wait": "settled"}"#.into()).await;
    let run: serde_json::Value = started.json().await.unwrap();
    let resolve = format!("/holds/{}/resolve", run["holds"][0]["id"].as_str().unwrap());
    let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    for (depth, status) in [(1, 422), (64, 422), (70, 422), (80, 400), (200, 400), (500_000, 400)] {
        let body = format!(r#"{{"resolution": "approve", "arguments": {{"path": {}}}}}"#, nested(depth));
        assert_eq!(post(&resolve, body).await.status(), status, "{depth}");
    }
    for body in [format!(r#"{{"input": {}}}"#, nested(100)), nested(100_000), "[".repeat(1_000_000)] {
        assert_eq!(post("/agents/ops/runs", body).await.status(), 400);
    }
}

/// F23: whoever dawdles with the headers loses the connection; so does whoever sends nothing at all.
#[tokio::test]
async fn slow_headers_end_the_connection() {
    let site = serve(Connections { header_wait: Millis(200), ..Connections::default() }).await;
    let (mut silent, mut slow) = (site.connect().await, site.connect().await);
    slow.write_all(b"GET /healthz HTTP/1.1\r\nhost: local").await.unwrap();
    let (silent, slow) = tokio::join!(rest(&mut silent), rest(&mut slow));
    assert!(!silent.contains("200 OK") && !slow.contains("200 OK"), "{silent:?} {slow:?}");
    assert_eq!(ask(&mut site.connect().await, HEALTH).await, "HTTP/1.1 200 OK");
}

/// F23: a place is taken by an open connection and given back at its end; more clients wait until then.
#[tokio::test]
async fn connections_over_the_cap_wait_for_a_place() {
    let site = serve(Connections { at_once: 2, ..Connections::default() }).await;
    let (mut first, mut second) = (site.connect().await, site.connect().await);
    for stream in [&mut first, &mut second] {
        assert_eq!(ask(stream, HEALTH).await, "HTTP/1.1 200 OK");
    }
    let mut third = site.connect().await;
    third.write_all(HEALTH.as_bytes()).await.unwrap();
    let mut byte = [0];
    let early = timeout(Duration::from_millis(300), third.read(&mut byte)).await;
    assert!(early.is_err(), "there is no place for a third one");
    drop(first);
    assert_eq!(timeout(LONG, third.read(&mut byte)).await.unwrap().unwrap(), 1);
}

/// F23: idle readers of a stream are not slow clients. They stay for longer than headers may take, and end with the
/// server.
#[tokio::test]
async fn idle_streams_stay_until_the_server_stops() {
    let site = serve(Connections { header_wait: Millis(200), ..Connections::default() }).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let base = format!("http://{}/api/v1", site.address);
    let start = client.post(format!("{base}/agents/ops/runs")).header("content-type", "application/json");
    let run: serde_json::Value =
        start.body(r#"{"input": "x", "wait": "settled"}"#).send().await.unwrap().json().await.unwrap();
    let path = format!("/api/v1/runs/{}/events", run["id"].as_str().unwrap());
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n");
    let mut readers = Vec::new();
    for _ in 0..200 {
        let mut stream = site.connect().await;
        assert_eq!(ask(&mut stream, &request).await, "HTTP/1.1 200 OK");
        readers.push(stream);
    }
    // Five times as long as headers may take: a reader that were cut off would be by now.
    tokio::time::sleep(Duration::from_secs(1)).await;
    site.stop.send(true).unwrap();
    for stream in &mut readers {
        // The end of a chunked body: the stream was ended in order, not cut off.
        assert!(rest(stream).await.ends_with("\r\n0\r\n\r\n"));
    }
    timeout(LONG, site.server).await.unwrap().unwrap();
}

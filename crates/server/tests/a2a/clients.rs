//! The official clients, for Python and for JavaScript, on both bindings: they send, stream, approve, deny, modify, cancel,
//! list, and subscribe across `kill -9`.
//!
//! What they do stands in `crates/server/tests/clients`; `cargo xtask test` installs them.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::server::{demo, demo_with};

/// How long a client may take for all of it; then it is stopped and the test fails.
const PATIENCE: Duration = Duration::from_secs(240);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// Runs a client against a server of its own, which is killed and started again when the client asks for it.
fn drive(mut client: Command, script: &str, binding: &str) {
    let data = tempfile::tempdir().unwrap();
    let mut server = demo(data.path());
    let base = server.program.base.clone();
    client.arg(folder().join(script)).args([base.as_str(), binding]).current_dir(folder());
    let client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
    let missing = |error| panic!("there is no client, {error}: `cargo xtask test` installs it");
    let mut client = client.unwrap_or_else(missing);
    let (mut asks, said) = (client.stdin.take().unwrap(), BufReader::new(client.stdout.take().unwrap()));
    let client = Arc::new(Mutex::new(client));
    let watched = Arc::downgrade(&client);
    std::thread::spawn(move || {
        std::thread::sleep(PATIENCE);
        watched.upgrade().map(|client| client.lock().unwrap().kill())
    });
    let mut last = String::new();
    for line in said.lines() {
        last = line.unwrap();
        if last == "restart" {
            let listen = base.strip_prefix("http://").unwrap();
            drop(server);
            server = demo_with(data.path(), &["--listen", listen]);
            asks.write_all(b"\n").unwrap();
        }
    }
    let status = client.lock().unwrap().wait().unwrap();
    assert!(status.success() && last == "ok", "{script} over {binding}: {status}, {last}");
    drop(server);
}

fn python() -> Command {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    Command::new(target.join("a2a-clients/bin/python"))
}

#[test]
fn the_python_client_over_json_rpc() {
    drive(python(), "official.py", "JSONRPC");
}

#[test]
fn the_python_client_over_http_json() {
    drive(python(), "official.py", "HTTP+JSON");
}

#[test]
fn the_javascript_client_over_json_rpc() {
    drive(Command::new("node"), "official.mjs", "JSONRPC");
}

#[test]
fn the_javascript_client_over_http_json() {
    drive(Command::new("node"), "official.mjs", "HTTP+JSON");
}

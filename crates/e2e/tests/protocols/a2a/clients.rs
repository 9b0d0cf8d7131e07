//! The official clients, for Python and for JavaScript, of 1.0 and of 0.3, on every binding that they have: they send,
//! stream, approve, deny, modify, cancel, list, subscribe across `kill -9`, and are pushed to.
//!
//! What they do stands in `crates/e2e/clients`; `cargo xtask test` installs them.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine as _};
use standfast_testkit::certify;

use crate::a2a::server::{Server, authorization, demo, demo_with, serve_file};
use crate::a2a::v03::older_config;

/// How long a client may take for all of it; then it is stopped and the test fails.
const PATIENCE: Duration = Duration::from_secs(240);

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

/// Runs a client against the demo.
fn drive(client: Command, script: &str, binding: &str) {
    let data = tempfile::tempdir().unwrap();
    let again = |listen: &str| demo_with(data.path(), &["--listen", listen]);
    drive_against(demo(data.path()), again, client, script, binding);
}

/// Runs a client against a server that may send to this machine.
fn drive_receiver(client: Command, script: &str, binding: &str) {
    let folder = crate::a2a::push::folder();
    let server = crate::a2a::push::serve(folder.path(), "");
    drive_against(server, |_| panic!("{script} needs no other server"), client, script, binding);
}

/// Runs a client of 0.3 against an agent whose card it can read, and which is the default one: gRPC of 0.3 can name no other.
fn drive_older(client: Command, script: &str, binding: &str) {
    let folder = tempfile::tempdir().unwrap();
    let config = older_config(folder.path()).replacen("server: {", "server: {default_agent: ops, ", 1);
    std::fs::write(folder.path().join("standfast.yaml"), config).unwrap();
    let again = |listen: &str| serve_file(folder.path(), &["--listen", listen]);
    drive_against(serve_file(folder.path(), &[]), again, client, script, binding);
}

/// Runs a client against a server of its own, which is killed and started again when the client asks for it.
fn drive_against(
    server: Server,
    again: impl Fn(&str) -> Server,
    mut client: Command,
    script: &str,
    binding: &str,
) {
    let base = server.program.base.clone();
    let mut server = Some(server);
    client.arg(folder().join(script)).args([base.as_str(), binding]);
    talk(client, &format!("{script} over {binding}"), |line| {
        if line == "restart" {
            drop(server.take());
            server = Some(again(base.strip_prefix("http://").unwrap()));
        }
    });
    drop(server);
}

/// Runs a client to its end, which is `ok`. Each line that it prints is heard before the client is told to go on.
pub(crate) fn talk(mut client: Command, what: &str, mut hears: impl FnMut(&str)) {
    let client = client.current_dir(folder()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let missing = |error| panic!("there is no client, {error}: `cargo xtask test` installs it");
    let mut client = client.stderr(Stdio::inherit()).spawn().unwrap_or_else(missing);
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
        hears(&last);
        // One that is gone says by its status what became of it.
        let _ = asks.write_all(b"\n");
    }
    let status = client.lock().unwrap().wait().unwrap();
    assert!(status.success() && last == "ok", "{what}: {status}, {last}");
}

/// Python with the packages of an environment.
pub(crate) fn python(environment: &str) -> Command {
    let target = standfast_testkit::binary::target_folder();
    Command::new(target.join(environment).join("bin/python"))
}

#[test]
fn the_python_client_over_json_rpc() {
    drive(python("a2a-clients"), "official.py", "JSONRPC");
}

#[test]
fn the_python_client_over_http_json() {
    drive(python("a2a-clients"), "official.py", "HTTP+JSON");
}

/// The cards of an agent are signed, and the official verifier finds it out; the same card is signed alike each time.
#[test]
fn the_python_client_checks_the_signature_of_a_card() {
    let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
    let pem = format!(
        "-----BEGIN PRIVATE KEY-----\\n{}\\n-----END PRIVATE KEY-----\\n",
        BASE64_STANDARD.encode(document.as_ref())
    );
    let folder = crate::a2a::push::folder();
    let more = format!(
        "  auth: {{api_keys: true}}\n  a2a: {{card_signature: {{key: \"{pem}\", key_id: first, jku: 'https://example.com/keys.json'}}}}"
    );
    let server = crate::a2a::push::serve(folder.path(), &more);
    let key = authorization(folder.path());
    let public = BASE64_URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
    let none = |_: &str| panic!("signed.py needs no other server");
    let mut client = python("a2a-clients");
    client.env("AUTHORIZATION", key);
    drive_against(server, none, client, "signed.py", &public);
}

/// S3-1: every beginning of a message that the conformance kits use, with the client that they are made with.
fn drive_kit(binding: &str) {
    let folder = tempfile::tempdir().unwrap();
    let server = crate::a2a::conformance::serve(folder.path());
    let none = |_: &str| panic!("kit.py needs no other server");
    drive_against(server, none, python("a2a-clients"), "kit.py", binding);
}

#[test]
fn the_python_client_as_a_conformance_kit_over_json_rpc() {
    drive_kit("JSONRPC");
}

#[test]
fn the_python_client_as_a_conformance_kit_over_http_json() {
    drive_kit("HTTP+JSON");
}

#[test]
fn the_python_client_as_a_conformance_kit_over_grpc() {
    drive_kit("GRPC");
}

#[test]
fn the_python_client_over_grpc() {
    drive(python("a2a-clients"), "official.py", "GRPC");
}

/// S3-1: gRPC on the port of a server that ends TLS itself, with no proxy between.
#[test]
fn the_python_client_over_grpc_with_the_tls_of_the_server() {
    let config = "
session_stores: {db: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}}
agents: {ops: {llm: script, session_store: db, task: {}}}
server: {tls: {certificate: cert.pem, key: key.pem}, auth: {api_keys: true}}
";
    let folder = standfast_testkit::folder(&[("script", "replies:\n- text: done\n")], config);
    certify(folder.path(), 1);
    let key = authorization(folder.path());
    let none = |_: &str| panic!("secure.py needs no other server");
    let mut client = python("a2a-clients");
    client.env("KEY", key.strip_prefix("Bearer ").unwrap()).env("AUTHORITY", folder.path().join("ca.pem"));
    drive_against(serve_file(folder.path(), &[]), none, client, "secure.py", "GRPC");
}

#[test]
fn the_python_client_is_pushed_to_over_json_rpc() {
    drive_receiver(python("a2a-clients"), "pushed.py", "JSONRPC");
}

#[test]
fn the_python_client_is_pushed_to_over_http_json() {
    drive_receiver(python("a2a-clients"), "pushed.py", "HTTP+JSON");
}

#[test]
fn the_python_client_is_pushed_to_over_grpc() {
    drive_receiver(python("a2a-clients"), "pushed.py", "GRPC");
}

#[test]
fn the_javascript_client_is_pushed_to_over_json_rpc() {
    drive_receiver(Command::new("node"), "pushed.mjs", "JSONRPC");
}

#[test]
fn the_javascript_client_is_pushed_to_over_http_json() {
    drive_receiver(Command::new("node"), "pushed.mjs", "HTTP+JSON");
}

#[test]
fn the_javascript_client_is_pushed_to_over_grpc() {
    drive_receiver(Command::new("node"), "pushed.mjs", "GRPC");
}

#[test]
fn the_javascript_client_over_json_rpc() {
    drive(Command::new("node"), "official.mjs", "JSONRPC");
}

#[test]
fn the_javascript_client_over_http_json() {
    drive(Command::new("node"), "official.mjs", "HTTP+JSON");
}

#[test]
fn the_javascript_client_over_grpc() {
    drive(Command::new("node"), "official.mjs", "GRPC");
}

/// S3-1, C3: clients of 0.3 work as they did before, and are pushed to in their own words.
#[test]
fn the_python_client_of_0_3_over_json_rpc() {
    drive_older(python("a2a-clients-v03"), "v03/older.py", "JSONRPC");
}

#[test]
fn the_python_client_of_0_3_over_http_json() {
    drive_older(python("a2a-clients-v03"), "v03/older.py", "HTTP+JSON");
}

/// S3-1, C3: the official client of 0.3 over gRPC, which finds the address in the card of the default agent: it sends, decides, modifies,
/// streams, cancels, subscribes across `kill -9`, names receivers and is pushed to, as over the other bindings.
#[test]
fn the_python_client_of_0_3_over_grpc() {
    drive_older(python("a2a-clients-v03"), "v03/older.py", "GRPC");
}

#[test]
fn the_javascript_client_of_0_3_over_json_rpc() {
    drive_older(Command::new("node"), "v03/older.mjs", "JSONRPC");
}

/// S3-1, C3: the same with the official client for JavaScript, which takes other bytes for a file than the one for Python.
#[test]
fn the_javascript_client_of_0_3_over_grpc() {
    drive_older(Command::new("node"), "v03/older.mjs", "GRPC");
}

#[test]
fn the_javascript_client_of_0_3_over_http_json() {
    drive_older(Command::new("node"), "v03/older.mjs", "HTTP+JSON");
}

/// Runs a program of `examples/approval-loop` against an agent of the demo, with what a person types; what it prints.
fn loops(program: impl Fn() -> Command, agent: &str, typed: &str) -> String {
    let data = tempfile::tempdir().unwrap();
    let server = demo(data.path());
    let mut command = program();
    command.arg(format!("{}/v1/agents/{agent}", server.program.base)).arg("Please do it");
    let mut running = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    running.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    let output = running.wait_with_output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    printed
}

/// What each loop must do: ask again after what is not a decision, change arguments, and answer questions.
fn loops_to_the_end(program: impl Fn() -> Command) {
    let printed = loops(&program, "ops", "hm\nmodify\n{\"path\": \"/srv/else\"}\n");
    assert_eq!(printed.matches("🔐 Tool Approval Required").count(), 2, "{printed}");
    assert_eq!(printed.matches("Nothing was decided").count(), 1, "{printed}");
    assert!(printed.contains("approve/deny/modify> "), "{printed}");
    assert!(printed.ends_with("TASK_STATE_COMPLETED\nI have dealt with the old cache.\n"), "{printed}");
    let printed = loops(&program, "travel", "08:12, direct, 89 EUR\nnothing\n");
    assert!(printed.contains("TASK_STATE_COMPLETED"), "{printed}");
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/approval-loop")
}

/// S3-20: the approval loop in Python that the guide shows.
#[test]
fn the_python_client_in_the_approval_loop() {
    loops_to_the_end(|| {
        let mut command = python("a2a-clients");
        command.arg(examples().join("loop.py"));
        command
    });
}

/// S3-20: the approval loop in TypeScript that the guide shows, checked against the client's own types.
#[test]
fn the_javascript_client_in_the_approval_loop() {
    let beside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for file in ["loop.ts", "tsconfig.json", "package.json"] {
        std::fs::copy(examples().join(file), beside.path().join(file)).unwrap();
    }
    std::os::unix::fs::symlink(folder().join("node_modules"), beside.path().join("node_modules")).unwrap();
    let checked = Command::new("node_modules/.bin/tsc").current_dir(beside.path()).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    loops_to_the_end(|| {
        let mut command = Command::new("node");
        command.arg(beside.path().join("loop.js"));
        command
    });
}

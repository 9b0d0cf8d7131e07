//! Encryption at rest of the real program, as docs/encryption.md has it: what is on the disk, keys that change while runs wait, a
//! session whose contents are gone in every copy, and keys from a file, a command and a key management service.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Output;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};
use standfast_testkit::json::owned_text;
use standfast_testkit::other_server::{OtherServer, answer};
use standfast_testkit::{Http, serve, serve_command, standfast, text};
use tempfile::TempDir;

/// What is said, called and answered: it must not be on the disk.
const CANARY: &str = "xyzzy-canary";

const SCRIPT: &str = "replies:
- calls: [{tool: execute_command, arguments: {command: 'echo xyzzy-canary'}}]
- text: xyzzy-canary is done
";

/// The keys of a test, by their ids.
fn key(id: &str) -> String {
    let mut bytes = [7; 32];
    bytes.iter_mut().zip(id.bytes()).for_each(|(to, from)| *to = from);
    BASE64_STANDARD.encode(bytes)
}

/// A folder whose scripts are elsewhere: only what the server writes is in `kept` and `data`.
fn folder(keys: &str) -> TempDir {
    let folder = standfast_testkit::folder(&[("script", SCRIPT)], "");
    std::fs::create_dir(folder.path().join("kept")).unwrap();
    for id in ["k1", "k2"] {
        std::fs::write(folder.path().join(id), key(id)).unwrap();
    }
    configure(folder.path(), keys);
    folder
}

/// The same configuration with these keys, or without encryption.
fn configure(folder: &Path, keys: &str) {
    let encryption =
        if keys.is_empty() { String::new() } else { format!("server: {{encryption: {{keys: [{keys}]}}}}\n") };
    let text = format!(
        "llms: {{script: {{type: scripted, script: script.script.yaml}}}}
tools: {{execute_command: {{allowed_commands: [echo]}}}}
session_stores: {{main: {{backend: sql, sql: {{driver: sqlite, database: ./kept/standfast.db}}}}}}
{encryption}agents: {{ops: {{llm: script, session_store: main, tools: [execute_command], task: {{input_timeout: 2h}}}}}}
"
    );
    std::fs::write(folder.join("standfast.yaml"), text).unwrap();
}

const FILE_1: &str = "{id: k1, file: k1}";
const FILE_2: &str = "{id: k2, file: k2}";

fn about(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = standfast();
    command.args(arguments).arg("--config").arg(folder.join("standfast.yaml"));
    command.current_dir(folder).env_remove("STANDFAST_KEY").output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn done(folder: &Path, arguments: &[&str]) -> String {
    let output = about(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    said(&output)
}

fn asked(folder: &Path, arguments: &[&str]) -> Value {
    let output = about(folder, &[arguments, &["--json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)))
}

/// Why a server with this configuration does not start.
fn refused(folder: &Path) -> String {
    let output = serve_command(folder).output().unwrap();
    assert!(!output.status.success(), "it started: {}", said(&output));
    said(&output)
}

/// The files of the server's own folders that have a text.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for below in ["kept", "data"] {
        for entry in std::fs::read_dir(folder.join(below)).unwrap() {
            let path = entry.unwrap().path();
            let bytes = if path.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
            if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

fn approve(server: &standfast_testkit::Process, run: &Value) {
    server.ask(&["holds", "approve", text(&run["holds"][0]["id"])]);
    server.run_once(text(&run["id"]), "completed");
}

/// T29, T30: nothing that was said, called or answered is in the database, its write-ahead log, the backup or the file of keys, while
/// the server works and once it has ended. The audit verifies with the keys, and says what it cannot read without them.
#[test]
fn t30_nothing_that_was_said_is_on_the_disk() {
    let folder = folder(FILE_1);
    let path = folder.path();
    let server = serve(path);
    let large = format!("{CANARY} ").repeat(4000);
    server.ask(&["send", "ops", &large, "--wait"]);
    let run = server.ask(&["send", "ops", CANARY, "--wait"]);
    approve(&server, &run);
    assert_eq!(files_with(path, CANARY), [""; 0], "while it works");
    let backup = path.join("kept/backup.db").display().to_string();
    let told = done(path, &["backup", &backup]);
    assert!(told.contains("every row follows") && told.contains("payloads are sealed"), "{told}");
    drop(server);
    assert_eq!(files_with(path, CANARY), [""; 0], "with its backup, after a kill");

    assert!(done(path, &["audit", "verify"]).contains("every row follows from its events"));
    assert!(done(path, &["audit", "export"]).contains(CANARY));
    for file in [path.join("kept/standfast.db"), path.join("kept/backup.db")] {
        let file = file.display().to_string();
        let locked = standfast().args(["audit", "verify", file.as_str()]).output().unwrap();
        assert!(locked.status.success(), "{}", said(&locked));
        assert!(
            said(&locked).contains("the contents of 2 runs are sealed and were not read"),
            "{}",
            said(&locked)
        );
        let export = standfast().args(["audit", "export", file.as_str()]).output().unwrap();
        assert!(
            said(&export).contains(r#""sealed":true"#) && !said(&export).contains(CANARY),
            "{}",
            said(&export)
        );
        let bundle = standfast()
            .args(["audit", "bundle", file.as_str(), "--out"])
            .arg(path.join("bundle.tar"))
            .output();
        assert!(!bundle.unwrap().status.success(), "a bundle without contents proves nothing");
    }
    let keys_from = path.join("standfast.yaml").display().to_string();
    let verified = standfast()
        .args(["audit", "verify", backup.as_str(), "--keys-from", keys_from.as_str()])
        .output()
        .unwrap();
    assert!(said(&verified).contains("every row follows from its events"), "{}", said(&verified));
    assert!(done(path, &["export"]).contains(CANARY), "an export is in the clear");

    // Without its keys nothing starts, and nothing is written.
    configure(path, "");
    let why = refused(path);
    assert!(why.contains("its payloads are sealed") && why.contains("with the key k1"), "{why}");
    configure(path, FILE_1);
    let server = serve(path);
    assert_eq!(server.run(text(&run["id"]))["status"], "completed");
}

/// T30: runs that wait go on after a `kill -9` and with another key. New keys are wrapped by the first key; everything is wrapped anew
/// while the server works, and then the old key can go. The wrong key is refused with its id.
#[test]
fn keys_change_while_runs_wait() {
    let folder = folder(FILE_1);
    let path = folder.path();
    let server = serve(path);
    let first = server.send("ops");
    drop(server);

    let command = format!("{{id: k2, command: [cat, '{}']}}", path.join("k2").display());
    configure(path, &command);
    let why = refused(path);
    assert!(why.contains("payloads of 1 runs are sealed under the key k1"), "{why}");
    assert!(why.contains("standfast encryption reseal"), "{why}");

    configure(path, &format!("{command}, {FILE_1}"));
    let server = serve(path);
    let second = server.send("ops");
    let status = done(path, &["encryption", "status"]);
    assert!(status.contains("k2: 1 runs, wraps new ones"), "{status}");
    assert!(status.contains("k1: 1 runs, standfast encryption reseal frees it"), "{status}");
    assert_eq!(asked(path, &["encryption", "reseal"]), json!({"wrapped": 1, "by": "k2"}));
    let status = done(path, &["encryption", "status"]);
    assert!(status.contains("k2: 2 runs") && status.contains("k1: 0 runs, can be removed"), "{status}");
    let third = server.send("ops");
    drop(server);

    std::fs::remove_file(path.join("k1")).unwrap();
    configure(path, FILE_2);
    let server = serve(path);
    for run in [first, second, third] {
        approve(&server, &run);
    }
    assert!(done(path, &["audit", "verify"]).contains("every row follows from its events"));
    drop(server);
    std::fs::write(path.join("k2"), key("another")).unwrap();
    let why = refused(path);
    assert!(why.contains("the key k2 of server.encryption.keys is not the one"), "{why}");
}

/// A session that is deleted is unreadable in a backup from before, although every key of the configuration is there; its neighbour
/// is read in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_session_is_unreadable_in_an_older_copy() {
    let folder = folder(FILE_1);
    let path = folder.path();
    let server = serve(path);
    let http = Http::new(&server.base);
    let mut runs = Vec::new();
    for session in ["gone", "kept"] {
        let body = json!({"input": CANARY, "session": session, "wait": "settled"});
        let held = http.post("/api/v1/agents/ops/runs", &body).await.body;
        runs.push(owned_text(&held["id"]));
    }
    let backup = path.join("kept/before.db").display().to_string();
    done(path, &["backup", &backup]);
    let keys_from = path.join("standfast.yaml").display().to_string();
    let export = |run: &str| {
        let mut command = standfast();
        said(
            &command
                .args(["audit", "export", backup.as_str(), "--keys-from", keys_from.as_str(), "--run", run])
                .output()
                .unwrap(),
        )
    };
    assert!(export(&runs[0]).contains(CANARY), "until then the backup has it");
    let deleted = http.ask("DELETE", "/api/v1/sessions/gone?agent=ops", None).await;
    assert!(deleted.status < 300, "{deleted:?}");
    let gone = export(&runs[0]);
    assert!(!gone.contains(CANARY) && gone.contains("was destroyed"), "{gone}");
    assert!(export(&runs[1]).contains(CANARY));
    assert!(done(path, &["audit", "verify"]).contains("1 erased"));
    server.run_once(&runs[1], "held");
}

/// T29: a key that a service decrypts, as HashiCorp Vault does: asked with the headers of the configuration, at each start and by each
/// command that reads what is sealed; a program may print them. What it refuses is said without what it was asked with.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_decrypts_the_key() {
    let decrypted = |id: &str| answer("200 OK", &json!({"data": {"plaintext": key(id)}}).to_string());
    let denied = answer("403 Forbidden", &json!({"errors": ["permission denied: canary-token"]}).to_string());
    let mut service =
        OtherServer::answering(vec![decrypted("k1"), decrypted("k1"), decrypted("k2"), denied]).await;
    let kms = format!(
        "{{id: k1, kms: {{url: 'http://127.0.0.1:{}/v1/transit/decrypt/standfast', ciphertext: 'vault:v1:abc', \
         headers: {{X-Vault-Token: '${{command:cat token}}'}}}}}}",
        service.port
    );
    let folder = folder(&kms);
    std::fs::write(folder.path().join("token"), "canary-token\n").unwrap();
    let path = folder.path().to_owned();
    let (server, held) = tokio::task::spawn_blocking({
        let path = path.clone();
        move || {
            let server = serve(&path);
            let held = server.send("ops");
            assert!(done(&path, &["audit", "verify"]).contains("every row follows from its events"));
            (server, held)
        }
    })
    .await
    .unwrap();
    for _ in ["the start", "the command"] {
        let request = service.request().await;
        assert!(request.starts_with("POST /v1/transit/decrypt/standfast "), "{request}");
        assert!(request.to_ascii_lowercase().contains("x-vault-token: canary-token"), "{request}");
        assert!(request.ends_with(r#"{"ciphertext":"vault:v1:abc"}"#), "{request}");
    }
    assert_eq!(held["status"], "held");
    drop(server);
    let (wrong, denied) =
        tokio::task::spawn_blocking(move || (refused(&path), refused(&path))).await.unwrap();
    assert!(wrong.contains("the key k1 of server.encryption.keys is not the one"), "{wrong}");
    assert!(
        denied.contains("the key k1 of server.encryption.keys cannot be had from the service"),
        "{denied}"
    );
    assert!(denied.contains("403") && !denied.contains("canary-token"), "{denied}");
}

/// What cannot be done is refused when the file is read, with what to write.
#[test]
fn what_cannot_be_sealed_is_refused_by_validate() {
    let folder = folder(FILE_1);
    let path = folder.path();
    let validated = || standfast().arg("validate").arg(path.join("standfast.yaml")).output().unwrap();
    assert!(validated().status.success(), "{}", said(&validated()));
    for (keys, why) in [
        ("{id: k1}", "needs one of `file`, `command` and `kms`"),
        ("{id: k1, file: k1, command: [cat, k1]}", "needs one of `file`, `command` and `kms`"),
        ("{id: k1, file: k1}, {id: k1, file: k2}", "is the id of two keys"),
        (
            "{id: k1, kms: {url: 'http://kms.example.org/decrypt', ciphertext: x}}",
            "over the network in the clear",
        ),
        ("{id: 'a key', file: k1}", "must be a name of letters"),
    ] {
        configure(path, keys);
        let output = validated();
        assert!(!output.status.success() && said(&output).contains(why), "{keys}: {}", said(&output));
    }
    configure(path, FILE_1);
    let text = std::fs::read_to_string(path.join("standfast.yaml")).unwrap();
    let postgres = text.replace(
        "driver: sqlite, database: ./kept/standfast.db",
        "driver: postgres, url: 'postgres://u:p@127.0.0.1/x'",
    );
    let mirrored = text.replace("backend: sql,", "backend: sql, mirror: ./copies,");
    for (text, why) in [(postgres, "is for a SQLite database"), (mirrored, "writes readable copies")] {
        std::fs::write(path.join("standfast.yaml"), text).unwrap();
        let output = validated();
        assert!(!output.status.success() && said(&output).contains(why), "{}", said(&output));
    }
    configure(path, "{id: k1, file: nowhere}");
    let why = refused(path);
    assert!(why.contains("the key k1 of server.encryption.keys cannot be had from the file"), "{why}");
}

//! The OpenAPI document against the real program, by schemathesis: whatever fits a description is answered as described,
//! what does not fit is refused, and nothing is a server error.
//!
//! `cargo xtask test` installs it. What it generates is the same every time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use serde_json::{Value, json};

use standfast_testkit::Process;

/// Examples that are made up for each operation, beside those that its description calls for.
const EXAMPLES: &str = "5";

async fn asked(server: &Process, path: &str, body: Option<Value>) -> Value {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("{}{path}", server.base);
    let request = match body {
        Some(body) => client.post(url).header("content-type", "application/json").body(body.to_string()),
        None => client.get(url),
    };
    let answer = request.send().await.unwrap();
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
    serde_json::from_str(&answer.text().await.unwrap()).unwrap()
}

/// Ids of things that are there, so that more is asked than what is not.
async fn settings(server: &Process) -> String {
    let said = json!({"items": [{"content_type": "text", "content": "Free some space"}]});
    let paused = asked(server, "/tealagents/v1alpha1/ops", Some(said)).await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let run = text(&paused["task_id"]);
    let shown = asked(server, &format!("/api/v1/runs/{run}"), None).await;
    let known = [
        ("agent", "ops".to_owned()),
        ("request_id", text(&paused["request_id"])),
        ("task_id", run.clone()),
        ("run", run),
        ("hold", text(&shown["holds"][0]["id"])),
        ("session", text(&paused["session_id"])),
    ];
    let lines = known.map(|(name, value)| format!("\"path.{name}\" = \"{value}\"\n"));
    let waits = ["wait", "wait_ms", "waitMs"].map(|name| format!("\"query.{name}\" = 0\n"));
    format!("[parameters]\n{}{}", lines.concat(), waits.concat())
}

/// The document without the fields of bodies that ask to wait: what waits does so as long as it is asked to, up to minutes.
fn without_waits(document: &mut Value) {
    match document {
        Value::Object(fields) => {
            fields.remove("wait_ms");
            fields.remove("waitMs");
            fields.values_mut().for_each(without_waits);
        }
        Value::Array(items) => items.iter_mut().for_each(without_waits),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// S1-13: every route of the document, native and of every dialect that is in it. Rules that a schema cannot say (a name
/// without control characters, an address) are no failures.
#[tokio::test]
async fn the_document_is_kept_whatever_is_sent() {
    let data = tempfile::tempdir().unwrap();
    let mut command = standfast_testkit::standfast();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path()).env("RUST_LOG", "error");
    let server = standfast_testkit::start(&mut command);
    let file = data.path().join("schemathesis.toml");
    std::fs::write(&file, settings(&server).await).unwrap();
    let target = standfast_testkit::binary::target_folder();
    let mut schemathesis = Command::new(target.join("a2a-clients/bin/schemathesis"));
    let mut document = asked(&server, "/openapi.json", None).await;
    without_waits(&mut document);
    let described = data.path().join("openapi.json");
    std::fs::write(&described, document.to_string()).unwrap();
    schemathesis.arg("--config-file").arg(file).arg("run").arg(described).args(["--url", &server.base]);
    schemathesis.args(["--phases", "examples,coverage,fuzzing", "--max-examples", EXAMPLES]);
    schemathesis.args(["--generation-deterministic", "--continue-on-failure", "--no-color"]);
    schemathesis.args(["--exclude-checks", "positive_data_acceptance", "--request-timeout", "120"]);
    // They end with what they follow or never, as they should; schemathesis would wait for it.
    schemathesis.args(["--exclude-path", "/async-tool/events"]);
    schemathesis.args(["--exclude-path", "/api/v1/gates/{gate}/events"]);
    let missing = |error| panic!("there is no schemathesis, {error}: `cargo xtask test` installs it");
    let told = schemathesis.current_dir(data.path()).output().unwrap_or_else(missing);
    let said = String::from_utf8_lossy(&told.stdout);
    assert!(told.status.success(), "{said}{}", String::from_utf8_lossy(&told.stderr));
    assert!(said.contains("Fuzzing"), "{said}");
}

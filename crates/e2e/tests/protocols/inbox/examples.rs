//! The workers under `examples/inbox-worker`, as people would start them.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::json;

use crate::inbox::server::{Server, plain, text};

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/inbox-worker").join(name)
}

fn run(mut command: Command, server: &Server) -> Output {
    let output =
        command.env("STANDFAST_SERVER", &server.program.base).env_remove("STANDFAST_KEY").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// S4-30: a worker elsewhere, with a batch, hooks, a question with a schema, and a failure.
#[tokio::test]
async fn the_worker_in_python_works() {
    let (_folder, server) = plain();
    let small = server.add(&json!({"type": "refund", "payload": {"cents": 1250}})).await;
    let large = server.add(&json!({"type": "refund", "payload": {"cents": 90_000}})).await;
    let wrong = server.add(&json!({"type": "refund", "payload": {"euros": 1}})).await;
    let batch = |limit: &str| {
        let mut command = Command::new("python3");
        command.arg(example("worker.py")).args(["--inbox", "support", "--agent", "biller", "--limit", limit]);
        command
    };
    let said = String::from_utf8(run(batch("9"), &server).stdout).unwrap();
    for hook in ["onTaskStart", "onTaskComplete", "onTaskError", "onTaskSuspended", "onEmpty"] {
        assert!(said.contains(hook), "{hook}: {said}");
    }
    let (small, large, wrong) = (text(&small["id"]), text(&large["id"]), text(&wrong["id"]));
    assert_eq!(server.task(small).await["result"], json!({"refunded": 1250}));
    assert_eq!(server.task(wrong).await["error"], json!({"message": "'cents'"}));
    let waiting = server.task(large).await;
    assert_eq!(waiting["status"], "waiting_for_input");
    assert_eq!(waiting["suspendPayload"]["question"], "Refund 900.00?");
    assert_eq!(server.resume(large, json!({"cents": "all"})).await.status, 422);
    assert_eq!(server.resume(large, json!({"cents": 500})).await.status, 200);
    run(batch("9"), &server);
    assert_eq!(server.task(large).await["result"], json!({"refunded": 500}));
}

/// S4-30: the same in TypeScript, compiled with all checks on; a question with options.
#[tokio::test]
async fn the_worker_in_typescript_works() {
    let (folder, server) = plain();
    let mut compile = Command::new(example("../node_modules/.bin/tsc"));
    compile.arg(example("worker.ts")).args([
        "--target",
        "es2022",
        "--module",
        "es2022",
        "--moduleResolution",
        "bundler",
    ]);
    compile.args(["--strict", "--types", "node", "--outDir"]).arg(folder.path()).current_dir(example(".."));
    let compiled = compile.output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stdout));
    std::fs::write(folder.path().join("package.json"), r#"{"type": "module"}"#).unwrap();
    let small = server.add(&json!({"type": "refund", "payload": {"cents": 1250}})).await;
    let large = server.add(&json!({"type": "refund", "payload": {"cents": 90_000}})).await;
    let batch = || {
        let mut command = Command::new("node");
        command.arg(folder.path().join("worker.js")).args(["support", "biller", "--limit", "9"]);
        command
    };
    run(batch(), &server);
    let (small, large) = (text(&small["id"]), text(&large["id"]));
    assert_eq!(server.task(small).await["result"], json!({"refunded": 1250}));
    assert_eq!(server.task(large).await["suspendPayload"]["options"], json!(["yes", "no"]));
    assert_eq!(server.resume(large, json!("perhaps")).await.status, 422);
    assert_eq!(server.resume(large, json!("no")).await.status, 200);
    run(batch(), &server);
    assert_eq!(server.task(large).await["result"], json!({"refunded": 0}));
}

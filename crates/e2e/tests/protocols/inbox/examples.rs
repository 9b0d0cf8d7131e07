//! The workers under `examples/inbox-worker`, as people would start them, and the commands that the page prints.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::json;

use crate::inbox::server::{Server, asking, configure, key, keyed, plain, serve, text};
use crate::printed::{self, answers, blocks, page};

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/inbox-worker").join(name)
}

fn run(mut command: Command, server: &Server, key: Option<&str>) -> Output {
    command.env("STANDFAST_SERVER", &server.program.base).env_remove("STANDFAST_KEY");
    let output = command.envs(key.map(|key| ("STANDFAST_KEY", key))).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// S4-30: a worker elsewhere, with a batch, hooks, a question with a schema, and a failure.
#[tokio::test]
async fn the_worker_in_python_works() {
    let (_folder, server) = plain();
    works_in_python(&server, None).await;
}

/// S4-30: the same where keys are wanted, with one that is for this inbox alone.
#[tokio::test]
async fn the_worker_in_python_works_with_a_key() {
    let (folder, server) = keyed();
    works_in_python(&server, Some(&key(folder.path(), "biller", &["--inbox", "support"]))).await;
}

async fn works_in_python(server: &Server, key: Option<&str>) {
    let small = server.add(&json!({"type": "refund", "payload": {"cents": 1250}})).await;
    let large = server.add(&json!({"type": "refund", "payload": {"cents": 90_000}})).await;
    let wrong = server.add(&json!({"type": "refund", "payload": {"euros": 1}})).await;
    let batch = |limit: &str| {
        let mut command = Command::new("python3");
        command.arg(example("worker.py")).args(["--inbox", "support", "--agent", "biller", "--limit", limit]);
        command
    };
    let said = String::from_utf8(run(batch("9"), server, key).stdout).unwrap();
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
    run(batch("9"), server, key);
    assert_eq!(server.task(large).await["result"], json!({"refunded": 500}));
}

/// S4-30: the same in TypeScript, compiled with all checks on; a question with options.
#[tokio::test]
async fn the_worker_in_typescript_works() {
    let (folder, server) = plain();
    works_in_typescript(folder.path(), &server, None).await;
}

/// S4-30: the same where keys are wanted.
#[tokio::test]
async fn the_worker_in_typescript_works_with_a_key() {
    let (folder, server) = keyed();
    let key = key(folder.path(), "biller", &["--inbox", "support"]);
    works_in_typescript(folder.path(), &server, Some(&key)).await;
}

async fn works_in_typescript(folder: &Path, server: &Server, key: Option<&str>) {
    let mut compile = Command::new(example("../node_modules/.bin/tsc"));
    compile.arg(example("worker.ts")).args([
        "--target",
        "es2022",
        "--module",
        "es2022",
        "--moduleResolution",
        "bundler",
    ]);
    compile.args(["--strict", "--types", "node", "--outDir"]).arg(folder).current_dir(example(".."));
    let compiled = compile.output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stdout));
    std::fs::write(folder.join("package.json"), r#"{"type": "module"}"#).unwrap();
    let small = server.add(&json!({"type": "refund", "payload": {"cents": 1250}})).await;
    let large = server.add(&json!({"type": "refund", "payload": {"cents": 90_000}})).await;
    let batch = || {
        let mut command = Command::new("node");
        command.arg(folder.join("worker.js")).args(["support", "biller", "--limit", "9"]);
        command
    };
    run(batch(), server, key);
    let (small, large) = (text(&small["id"]), text(&large["id"]));
    assert_eq!(server.task(small).await["result"], json!({"refunded": 1250}));
    assert_eq!(server.task(large).await["suspendPayload"]["options"], json!(["yes", "no"]));
    assert_eq!(server.resume(large, json!("perhaps")).await.status, 422);
    assert_eq!(server.resume(large, json!("no")).await.status, 200);
    run(batch(), server, key);
    assert_eq!(server.task(large).await["result"], json!({"refunded": 0}));
}

/// S4-1, S4-16, S4-22, S4-24: the commands and the configuration of docs/inbox.md as they are printed, with the address and the id of the
/// task in their places: once with a worker elsewhere, once with the agent that the page configures. A task is added, claimed, asked
/// about, answered, and goes on with the answer.
#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_do_what_it_says() {
    let page = page("inbox.md");
    let commands = blocks(&page, "sh");
    let [add, claim, resume] = commands.as_slice() else { panic!("{commands:?}") };
    let here = |command: &str, server: &Server| command.replace("127.0.0.1:8080", server.program.address());

    let (_folder, server) = plain();
    let added = answers(&here(add, &server), &[]);
    assert_eq!((&added["status"], &added["priority"]), (&json!("pending"), &json!(2)), "{added}");
    let claimed = answers(&here(claim, &server), &[])["task"].clone();
    assert_eq!((&claimed["id"], &claimed["payload"]), (&added["id"], &json!({"cents": 1250})));
    let asked = server.report(&claimed, "suspend", json!({"reason": "Refund 12.50?"})).await;
    assert_eq!((asked.status, &asked.body["status"]), (200, &json!("waiting_for_input")), "{asked:?}");
    // Whoever answers has looked.
    server.task(text(&added["id"])).await;
    let resume = resume.replace("/ID/", &format!("/{}/", text(&added["id"])));
    assert_eq!(answers(&here(&resume, &server), &[]), json!({"success": true}));
    let again = answers(&here(claim, &server), &[])["task"].clone();
    assert_eq!((&again["id"], &again["resumePayload"]), (&added["id"], &json!("yes")), "{again}");

    let agents = blocks(&page, "yaml").concat();
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), &asking(r#"{"reason": "Refund 12.50?"}"#), &agents, "");
    let file = folder.path().join("standfast.yaml");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, config.replace("llms: {script:", "llms: {main:")).unwrap();
    let server = serve(folder.path());
    let added = answers(&here(add, &server), &[]);
    let id = text(&added["id"]);
    assert_eq!(server.until(id, "waiting_for_input").await["claimedBy"], "triage");
    let printed = blocks(&page, "sh")[2].replace("/ID/", &format!("/{id}/"));
    assert_eq!(answers(&here(&printed, &server), &[]), json!({"success": true}));
    assert_eq!(server.until(id, "completed").await["resumePayload"], "yes");
}

/// S4-1, S4-16, S4-24: the same commands where keys are wanted, each with the header that the page names: one key adds and answers, that of
/// the worker claims. Without the header nobody gets anything.
#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_work_with_keys() {
    let page = page("inbox.md");
    let (folder, server) = keyed();
    let commands: Vec<String> = blocks(&page, "sh")
        .iter()
        .map(|command| command.replace("127.0.0.1:8080", server.program.address()))
        .collect();
    let [add, claim, resume] = commands.as_slice() else { panic!("{commands:?}") };
    assert_eq!(answers(add, &[])["type"], "urn:standfast:problem:unauthorized");
    let ask = |command: &str, key: &str| answers(&printed::keyed(&page, command), &[("STANDFAST_KEY", key)]);
    let sender = key(folder.path(), "ann", &[]);
    let worker = key(folder.path(), "biller", &["--inbox", "support"]);
    let added = ask(add, &sender);
    assert_eq!(added["status"], "pending", "{added}");
    let claimed = ask(claim, &worker)["task"].clone();
    assert_eq!(claimed["id"], added["id"]);
    let reported = json!({"reason": "Refund 12.50?", "claimId": claimed["claimId"]});
    let path = format!("{}/api/inboxes/support/tasks/{}/suspend", server.program.base, text(&added["id"]));
    let asked = standfast_testkit::Http::new("").with_key(&worker).post(&path, &reported).await;
    assert_eq!((asked.status, &asked.body["status"]), (200, &json!("waiting_for_input")), "{asked:?}");
    // Whoever answers has looked.
    server.task(text(&added["id"])).await;
    let resume = resume.replace("/ID/", &format!("/{}/", text(&added["id"])));
    assert_eq!(ask(&resume, &sender), json!({"success": true}));
    let again = ask(claim, &worker)["task"].clone();
    assert_eq!((&again["id"], &again["resumePayload"]), (&added["id"], &json!("yes")), "{again}");
}

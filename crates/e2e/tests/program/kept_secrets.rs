//! Values that the configuration names and does not have: `${file:…}` and `${command:…}`, on the real program (T29).
//!
//! What is read and run, and how mistakes are worded, is `crates/server/src/config/secret_source.rs`.

use serde_json::json;
use standfast_testkit::{Http, text};

const SCRIPT: &str =
    "replies:\n- calls: [{tool: read_file, arguments: {path: secrets/links}}]\n- text: done\n";

const CONFIG: &str = "session_stores: {db: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}}
tools: {read_file: {working_directory: .}}
server:
  public_url: http://127.0.0.1:9
  webhooks: {key: '${command:cat secrets/webhooks}'}
  links: {key: '${file:secrets/links}', sign_in: none}
people: {ann: {}}
agents: {ops: {llm: s, tools: [read_file], session_store: db, task: {}}}
";

/// T26, T29: a server takes its keys from a file and from a program; no tool can read that file, and no output has what is in either.
#[tokio::test]
async fn t29_values_are_kept_in_files_and_by_programs() {
    let folder = standfast_testkit::folder(&[("s", SCRIPT)], CONFIG);
    let at = folder.path();
    std::fs::create_dir(at.join("secrets")).unwrap();
    std::fs::write(at.join("secrets/links"), "canary-of-the-links-that-is-long-enough\n").unwrap();
    std::fs::write(at.join("secrets/webhooks"), "canary-of-the-webhooks-that-is-long-enough\n").unwrap();
    let server = standfast_testkit::serve(at);
    let http = Http::new(&server.base);
    let run = http.post("/api/v1/agents/ops/runs", &json!({"input": "go", "wait": "settled"})).await;
    assert_eq!(run.body["status"], "completed", "{run:?}");
    let log = http.get(&format!("/api/v1/runs/{}/events", text(&run.body["id"]))).await;
    assert!(
        !log.text.contains("canary") && log.text.contains("is protected: it belongs to this server"),
        "{log:?}"
    );
    let validated = |arguments: &[&str]| {
        let mut command = standfast_testkit::standfast();
        let checked =
            command.arg("validate").args(arguments).arg(at.join("standfast.yaml")).output().unwrap();
        let said =
            String::from_utf8_lossy(&checked.stderr).into_owned() + &String::from_utf8_lossy(&checked.stdout);
        assert!(!said.contains("canary"), "{said}");
        (checked.status.success(), said)
    };
    let (is_right, said) = validated(&[]);
    assert!(is_right, "{said}");
    std::fs::remove_file(at.join("secrets/webhooks")).unwrap();
    let (is_right, said) = validated(&[]);
    assert!(!is_right && said.contains("the command cat of `${command:…}` ended with"), "{said}");
    std::fs::remove_file(at.join("secrets/links")).unwrap();
    let (is_right, said) = validated(&[]);
    assert!(!is_right && said.contains("the file secrets/links of `${file:…}` cannot be read"), "{said}");
    let (is_right, said) = validated(&["--allow-unset"]);
    assert!(is_right, "{said}");
}

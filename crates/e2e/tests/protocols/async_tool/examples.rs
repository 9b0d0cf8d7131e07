//! The examples of the guide: a deployment that is started, works for a while and reports back, in Python and TypeScript.
//!
//! They are run as they stand, against the configuration that stands beside them; so is what the page itself prints.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::async_tool::world::{Outside, Server, serve, text};
use crate::printed::{answers, blocks, page};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/async-tools")
}

/// A copy of the examples in a folder of its own.
fn copy() -> TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for entry in std::fs::read_dir(examples()).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    folder
}

/// A key, made as an operator would.
fn key(folder: &TempDir, variables: &[(&str, &str)]) -> String {
    let mut command = standfast_testkit::standfast();
    command.args(["keys", "create", "--user", "ann", "--config"]).arg(folder.path().join("standfast.yaml"));
    command.arg("--data").arg(folder.path().join("data")).envs(variables.iter().copied());
    let made = command.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

/// The job's side; dropping it ends it.
struct Job {
    child: Child,
    port: String,
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn job(program: &str, file: &Path) -> Job {
    let mut child = Command::new(program).arg(file).arg("0").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line:?}")).to_owned();
    Job { child, port }
}

/// The deployment runs, reports, and the model hears where the preview is; with a key where the server wants them, which the job never
/// needs.
async fn deploys(folder: &Path, job: &Job, key: Option<String>) {
    // The job is told where this server is, so the port must be known before.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = standfast_testkit::standfast();
    command
        .args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--config"])
        .arg(folder.join("standfast.yaml"));
    command.arg("--data").arg(folder.join("data")).env("RUST_LOG", "warn").env_remove("STANDFAST_KEY");
    command.env("DEPLOY_PORT", &job.port).env("STANDFAST_PORT", port.to_string());
    command.args(key.iter().flat_map(|_| ["--auth", "keys"]));
    let mut server = Server::of(standfast_testkit::start(&mut command));
    server.key = key;
    let run = server.begin("s-1").await;
    server.run_is(&run, "completed").await;
    let done = server.get("/async-tool/pending?status=completed&sessionID=s-1").await;
    assert_eq!(done[0]["tool"], "deploy_preview");
    assert_eq!(done[0]["externalRef"], "deploy-main");
    assert_eq!(done[0]["input"]["config"]["region"], "eu");
    assert_eq!(text(&done[0]["result"]["metadata"]["url"]), "https://main.preview.example.com");
    assert_eq!(text(&done[0]["result"]["metadata"]["deploymentID"]), "deploy-main");
}

/// S2-43: the worked example, in Python.
#[tokio::test(flavor = "multi_thread")]
async fn a_preview_is_deployed_by_the_python_example() {
    let folder = copy();
    let job = job("python3", &folder.path().join("deploy_preview.py"));
    deploys(folder.path(), &job, None).await;
}

/// S2-19, S2-43: the same where keys are wanted: the job reports with its signature alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_preview_is_deployed_where_keys_are_wanted() {
    let folder = copy();
    let job = job("python3", &folder.path().join("deploy_preview.py"));
    let key = key(&folder, &[("DEPLOY_PORT", &job.port)]);
    deploys(folder.path(), &job, Some(key)).await;
}

/// S2-43: the worked example, in TypeScript, checked by its compiler.
#[tokio::test(flavor = "multi_thread")]
async fn a_preview_is_deployed_by_the_typescript_example() {
    let folder = copy();
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/node_modules");
    std::os::unix::fs::symlink(modules, folder.path().join("node_modules")).unwrap();
    let checked = Command::new("node_modules/.bin/tsc").current_dir(folder.path()).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    let job = job("node", &folder.path().join("deploy_preview.js"));
    deploys(folder.path(), &job, None).await;
}

/// S2-3, S2-7, S2-19, S2-21, S2-27, S2-43: what docs/async-tools.md prints, with the addresses, the id and the secret in their places: its tool
/// is configured, its query finds the call, its shell signs a result that fits its own `validate_result` and needs no key where keys are wanted,
/// and the record has no member that the page does not show.
#[tokio::test(flavor = "multi_thread")]
async fn the_report_of_the_page_is_taken() {
    let outside = Outside::answering(json!({"externalRef": "deploy-123"})).await;
    let page = page("async-tools.md");
    let tools: String = blocks(&page, "yaml").concat();
    let ours = format!("http://127.0.0.1:{}/jobs\n    allowed_hosts: ['127.0.0.1']", outside.port);
    let tools = tools.replace("https://ci.example.com/deployments", &ours);
    let folder = tempfile::tempdir().unwrap();
    let call = json!({"tool": "deploy_preview", "arguments": json!({"branch": "main"}).to_string()});
    let script = json!({"replies": [{"calls": [call]}, {"text": "done"}]}).to_string();
    std::fs::write(folder.path().join("script.yaml"), script).unwrap();
    let config = format!(
        "{tools}
llms: {{s: {{type: scripted, script: script.yaml}}}}
session_stores: {{main: {{backend: sql, sql: {{driver: sqlite, database: a.db}}}}}}
agents: {{ops: {{llm: s, session_store: main, tools: [deploy_preview], task: {{}}}}}}
server: {{auth: {{api_keys: true}}}}
"
    );
    std::fs::write(folder.path().join("standfast.yaml"), config).unwrap();
    let mut server = serve(folder.path());
    server.key = Some(key(&folder, &[]));
    let run = server.begin("s-1").await;
    let job = outside.job().await;
    let (id, secret) = (text(&job["pendingID"]), text(&job["callbackSecret"]));
    server.run_is(&run, "held").await;
    let queries = blocks(&page, "sql");
    let [query] = queries.as_slice() else { panic!("{queries:?}") };
    let found: (String, String, String) = rusqlite::Connection::open(folder.path().join("a.db"))
        .unwrap()
        .query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap();
    assert_eq!(found, (id.to_owned(), "deploy_preview".to_owned(), "deploy-123".to_owned()));

    let reports = blocks(&page, "sh");
    let [report] = reports.as_slice() else { panic!("{reports:?}") };
    let report = report.replace("https://agents.example.com", server.base()).replace("hold_…", id);
    let taken = answers(&report, &[("CALLBACK_SECRET", secret)]);
    assert_eq!(taken, json!({"success": true, "pendingID": id, "status": "completed"}));
    server.run_is(&run, "completed").await;
    let record = server.get(&format!("/async-tool/pending/{id}")).await;
    let shown: Value = serde_json::from_str(blocks(&page, "json")[0]).unwrap();
    for part in ["", "/time", "/result"] {
        let members = |one: &Value| one.pointer(part).unwrap().as_object().unwrap().clone();
        for name in members(&record).keys() {
            assert!(members(&shown).contains_key(name), "{part}/{name} is not on the page");
        }
    }
}

//! The examples of the guide: a deployment that is started, works for a while and reports back, in Python and TypeScript.
//!
//! They are run as they stand, against the configuration that stands beside them.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::async_tool::world::{Server, text};

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

/// The deployment runs, reports, and the model hears where the preview is.
async fn deploys(folder: &Path, job: &Job) {
    // The job is told where this server is, so the port must be known before.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = standfast_testkit::standfast();
    command
        .args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--config"])
        .arg(folder.join("standfast.yaml"));
    command.arg("--data").arg(folder.join("data")).env("RUST_LOG", "warn").env_remove("STANDFAST_KEY");
    command.env("DEPLOY_PORT", &job.port).env("STANDFAST_PORT", port.to_string());
    let server = Server::of(standfast_testkit::start(&mut command));
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
    deploys(folder.path(), &job).await;
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
    deploys(folder.path(), &job).await;
}

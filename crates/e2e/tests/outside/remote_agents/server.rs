//! The server whose agent hands work to another one, its folder, and what people ask it.
//!
//! Dropping a server is `kill -9`.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

pub(crate) use standfast_testkit::{Process as Server, free_port, of_run, text};

/// A folder of a server whose agent `boss` hands one piece of work to the remote agent at this address, with more
/// members of the tool's entry.
pub(crate) fn boss(url: &str, more: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let script =
        "replies:\n- calls: [{tool: remote, arguments: {message: pay the bill}}]\n- text: all done\n";
    std::fs::write(folder.path().join("script.yaml"), script).unwrap();
    write_boss(&folder, url, more);
    folder
}

/// The same with another entry.
pub(crate) fn write_boss(folder: &TempDir, url: &str, more: &str) {
    let config = format!(
        "llms: {{script: {{type: scripted, script: script.yaml}}}}\n\
         session_stores: {{main: {{backend: sql, sql: {{driver: sqlite, database: ./sessions.db}}}}}}\n\
         agents: {{boss: {{llm: script, session_store: main, tools: [remote], task: {{}}}}}}\n\
         tools:\n  remote: {{type: a2a, url: \"{url}\", allowed_hosts: [127.0.0.1], requires_approval: false{more}}}\n"
    );
    std::fs::write(folder.path().join("standfast.yaml"), config).unwrap();
}

/// A folder of a server whose agent `worker` writes a line into a file, after somebody has agreed.
pub(crate) fn worker() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = "llms: {script: {type: scripted, script: script.yaml}}\n\
                  session_stores: {main: {backend: sql, sql: {driver: sqlite, database: ./sessions.db}}}\n\
                  agents: {worker: {llm: script, session_store: main, tools: [write_file], task: {}}}\n";
    let script = "replies:\n- calls: [{tool: write_file, arguments: {path: paid.txt, content: once}}]\n- text: written down\n";
    std::fs::write(folder.path().join("script.yaml"), script).unwrap();
    std::fs::write(folder.path().join("standfast.yaml"), config).unwrap();
    folder
}

fn command(folder: &Path, port: u16) -> Command {
    let mut command = standfast_testkit::standfast();
    command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--config"]);
    command.arg(folder.join("standfast.yaml")).arg("--data").arg(folder.join("data"));
    command.env("RUST_LOG", "warn");
    command
}

/// What a server that does not start says.
pub(crate) fn refused(folder: &Path) -> String {
    let Output { status, stderr, .. } = command(folder, 0).stdout(Stdio::null()).output().unwrap();
    assert_eq!(status.code(), Some(2), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stderr).unwrap()
}

pub(crate) fn serve(folder: &Path) -> Server {
    serve_at(folder, 0)
}

pub(crate) fn serve_at(folder: &Path, port: u16) -> Server {
    standfast_testkit::start(&mut command(folder, port))
}

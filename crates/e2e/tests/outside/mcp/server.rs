//! The real server with MCP servers below it, for these tests: its folder, its start, and what people ask it.
//!
//! Asked through the command line. Dropping a server is `kill -9`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use standfast_store::conformance::cluster::shared;
use tempfile::TempDir;

pub(crate) use standfast_testkit::{Process as Server, of_run, text};

/// Where the packages are that `cargo xtask test` installs.
pub(crate) fn packages() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outside/mcp");
    let modules = here.join("node_modules");
    assert!(modules.exists(), "run `npm ci` in {}, as cargo xtask test does", here.display());
    here
}

/// The program of a package's server.
pub(crate) fn package(name: &str) -> String {
    let path = packages().join(format!("node_modules/@modelcontextprotocol/{name}/dist/index.js"));
    path.display().to_string()
}

/// A folder with a script, a place for tools, and a configuration with these tools for one agent.
pub(crate) fn folder(replies: &str, tools: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("place")).unwrap();
    std::fs::write(folder.path().join("script.yaml"), format!("replies:\n{replies}")).unwrap();
    let place = folder.path().join("place").display().to_string();
    let tools = tools.replace("PLACE", &place).replace("UNRULY", &unruly());
    let config = format!(
        "llms: {{script: {{type: scripted, script: script.yaml}}}}\n\
         session_stores: {{main: {{backend: sql, sql: {{driver: sqlite, database: ./sessions.db}}}}}}\n\
         agents: {{helper: {{llm: script, session_store: main, tools: [it], task: {{}}}}}}\n\
         tools:\n{tools}"
    );
    std::fs::write(folder.path().join("standfast.yaml"), config).unwrap();
    folder
}

/// Changes the file of a folder.
pub(crate) fn rewrite(folder: &TempDir, before: &str, after: &str) {
    let path = folder.path().join("standfast.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(before), "{before} is not in {text}");
    std::fs::write(path, text.replace(before, after)).unwrap();
}

/// Puts the runs of a folder into a database of their own that several servers can have.
pub(crate) fn on_postgres(folder: &TempDir) {
    let database = format!("sql: {{driver: postgres, url: \"{}\"}}", shared().database());
    rewrite(folder, "sql: {driver: sqlite, database: ./sessions.db}", &database);
}

fn unruly() -> String {
    packages().join("unruly.js").display().to_string()
}

fn command(folder: &Path, port: u16) -> Command {
    let mut command = standfast_testkit::standfast();
    command.arg("serve").arg(format!("--listen=127.0.0.1:{port}"));
    command.arg("--config").arg(folder.join("standfast.yaml"));
    command.arg("--data").arg(folder.join("data")).env("RUST_LOG", "warn");
    command.env("SECRET_OF_STANDFAST", "not for programs");
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

/// The same on a port that stays.
pub(crate) fn serve_at(folder: &Path, port: u16) -> Server {
    standfast_testkit::start(&mut command(folder, port))
}

/// The lines of a file in the place of the tools; none if there is no file.
pub(crate) fn lines(folder: &TempDir, file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(folder.path().join("place").join(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

//! A folder with a configuration and scripted models, and the server that is started in it.
//!
//! For tests that need nothing special of either; others start the program by `process.rs`.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::binary::standfast;
use crate::process::{Process, start};

/// A folder with a configuration whose agents can ask these scripts, each by its name.
pub fn folder(scripts: &[(&str, &str)], rest: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut llms = String::new();
    for (name, script) in scripts {
        std::fs::write(folder.path().join(format!("{name}.script.yaml")), script).unwrap();
        llms.push_str(&format!("  {name}: {{type: scripted, script: {name}.script.yaml}}\n"));
    }
    std::fs::write(folder.path().join("standfast.yaml"), format!("llms:\n{llms}{rest}")).unwrap();
    folder
}

/// The command that serves what `standfast.yaml` in a folder says, on any port, with its data beside it.
pub fn serve_command(folder: &Path) -> Command {
    let mut command = standfast();
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(folder.join("standfast.yaml"));
    command.arg("--data").arg(folder.join("data")).env("RUST_LOG", "warn").env_remove("STANDFAST_KEY");
    command
}

/// A server with the configuration in a folder.
pub fn serve(folder: &Path) -> Process {
    start(&mut serve_command(folder))
}

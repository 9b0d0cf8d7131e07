//! The server's own files, which no tool may change (T26), and the working directories that contain some of them.
//!
//! `validate` and `serve` both find such a directory here, when the file is read; `tool/sandbox.rs` has the rule, and
//! applies it once more to the data directory, which only `serve` knows.

use std::path::{Path as FilePath, PathBuf};

use super::Config;
use super::file::{CommandKeys, FileKeys, McpKeys, Sandbox, ToolKind, ToolType};
use super::path::Path;
use super::plan::ToolPlan;
use super::problem::Problem;
use super::stores::absolute;
use super::tree::Node;
use crate::database::Database;
use crate::encryption;
use crate::heads::KeySource;
use standfast_tools::sandbox;

/// The directory of tools beside the configuration file, unless that names another one.
const WORKSPACE: &str = "workspace";

/// What a tool can do in its working directory.
enum Reach {
    /// Programs of a sandbox change everything in it.
    Everything,
    /// File tools keep away from the server's own files.
    AllButOwnFiles,
}

impl Config {
    /// Files that belong to the server, as far as the configuration names them: itself, its `.env`, the database, the
    /// signed heads and their key, the certificate and its key, the keys of payloads, and files that values of it are in. Also those that do not exist yet: a tool must not be able to create them.
    pub(super) fn own_files(&self) -> Vec<PathBuf> {
        let own = [PathBuf::from(&self.source.name), self.folder.join(".env")];
        let files = self.database.iter().filter_map(Database::file);
        let store = files.flat_map(|file| with_its_files(&file));
        let heads = self.heads().into_iter().flat_map(|heads| {
            let key = match heads.key {
                KeySource::File(path) => Some(path),
                KeySource::Command(_) => None,
            };
            key.into_iter().chain([heads.file])
        });
        let tls = self.tls_files().into_iter().flat_map(|(certificate, key)| [certificate, key]);
        let sealing = self.encryption().into_iter().flat_map(|encryption| {
            let keys = encryption.keys.into_iter().filter_map(|(_, source)| match source {
                encryption::KeySource::File(path) => Some(path),
                encryption::KeySource::Command(_) | encryption::KeySource::Kms(_) => None,
            });
            let runs = encryption.key_file.iter().flat_map(|file| with_its_files(file)).collect::<Vec<_>>();
            keys.chain(runs)
        });
        let secrets = self.secret_files.iter().cloned();
        own.into_iter().chain(store).chain(heads).chain(tls).chain(sealing).chain(secrets).collect()
    }

    /// The working directory of a tool: what the file says, else a directory for tools alone.
    pub(super) fn workspace(&self, said: Option<&str>) -> PathBuf {
        absolute(&self.folder, said.unwrap_or(WORKSPACE))
    }

    /// Working directories of agents' tools that contain files of the server.
    pub(super) fn exposed_files(&self, tree: &Node) -> Vec<Problem> {
        let mut problems: Vec<Problem> = Vec::new();
        for plan in self.agents.iter().flat_map(|agent| &agent.tools) {
            let path = Path::of(&["tools", &plan.name]);
            let key = path.key("working_directory");
            if let Some(what) = self.exposure(plan, &path)
                && !problems.iter().any(|problem| problem.path == key)
            {
                let help =
                    "write a folder without the server's own files, such as `working_directory: workspace`";
                problems.push(Problem { at: tree.spot(&key), path: key, what, help: help.to_owned() });
            }
            let key = path.key("writable");
            if let Some(what) = self.writable_exposure(plan, &path)
                && !problems.iter().any(|problem| problem.path == key)
            {
                let help = "name folders without the server's own files, or move the configuration and data elsewhere";
                problems.push(Problem { at: tree.spot(&key), path: key, what, help: help.to_owned() });
            }
        }
        problems
    }

    /// A folder beside the working directory that commands could change, with files of the server inside.
    fn writable_exposure(&self, plan: &ToolPlan, path: &Path) -> Option<String> {
        let kind = self.file.tools.get(&plan.name).and_then(|tool| tool.kind.as_ref());
        let Some(ToolKind::Command(keys)) = kind else { return None };
        if keys.sandbox == Some(Sandbox::Off) {
            return None;
        }
        keys.writable.iter().flatten().find_map(|said| {
            let folder = sandbox::real_or_planned(&absolute(&self.folder, said));
            if folder.parent().is_none() {
                return Some(format!("`{path}` cannot change all of /, which is the whole machine"));
            }
            let exposed = sandbox::exposed(&folder, &self.own_files())?;
            Some(format!("`{path}` could change {}: it lies inside of {said}", self.shown(&exposed)))
        })
    }

    fn exposure(&self, plan: &ToolPlan, path: &Path) -> Option<String> {
        let kind = self.file.tools.get(&plan.name).and_then(|tool| tool.kind.as_ref());
        let (said, reach) = match kind {
            Some(ToolKind::Command(CommandKeys { sandbox: Some(Sandbox::Off), .. })) => return None,
            Some(ToolKind::Command(keys)) => (keys.working_directory.as_deref(), Reach::Everything),
            Some(ToolKind::Mcp(keys)) => {
                let McpKeys { command: Some(_), sandbox: Some(Sandbox::On), working_directory, .. } = &**keys
                else {
                    return None;
                };
                (working_directory.as_deref(), Reach::Everything)
            }
            Some(
                ToolKind::ReadFile(FileKeys { working_directory })
                | ToolKind::WriteFile(FileKeys { working_directory })
                | ToolKind::DeleteFile(FileKeys { working_directory })
                | ToolKind::ListDir(FileKeys { working_directory })
                | ToolKind::SearchFiles(FileKeys { working_directory })
                | ToolKind::EditFile(FileKeys { working_directory }),
            ) => (working_directory.as_deref(), Reach::AllButOwnFiles),
            Some(
                ToolKind::SuspendForInput
                | ToolKind::HttpRequest(_)
                | ToolKind::External(_)
                | ToolKind::Agent(_)
                | ToolKind::A2a(_),
            ) => return None,
            None if plan.kind == ToolType::Command => (None, Reach::Everything),
            None => return None,
        };
        let workspace = sandbox::real_or_planned(&self.workspace(said));
        if workspace.parent().is_none() {
            return Some(format!("`{path}` cannot work in /, which is the whole machine"));
        }
        match reach {
            Reach::Everything => {
                let exposed = sandbox::exposed(&workspace, &self.own_files())?;
                let shown = self.shown(&exposed);
                Some(format!("`{path}` could change {shown}: it lies inside of its working directory"))
            }
            Reach::AllButOwnFiles => None,
        }
    }

    /// A path as people know it: the configuration file as they named it, others below its folder.
    fn shown(&self, file: &FilePath) -> String {
        let own = FilePath::new(&self.source.name);
        if sandbox::real_or_planned(own) == file {
            return self.source.name.clone();
        }
        let folder = sandbox::real_or_planned(&self.folder);
        file.strip_prefix(&folder).unwrap_or(file).display().to_string()
    }
}

/// A database, and the files that SQLite and this server keep beside it.
fn with_its_files(database: &FilePath) -> Vec<PathBuf> {
    let beside = |end: &str| {
        let mut name = database.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    ["", "-wal", "-shm", "-journal", ".lock", ".keys", ".keys-wal", ".keys-shm"]
        .into_iter()
        .map(beside)
        .collect()
}

//! The configuration file: read once, checked as a whole, turned into settings.
//!
//! The way of a file: `tree` (YAML with places) → `aliases` (older names of keys) → `expand` (`${NAME}`) → `shape`
//! (against the schema) → `file` (types) → `check` (what only shows between keys) → `plan` (each agent's effective settings) → `build`
//! (settings). Every step collects its mistakes and goes on, so one look at a file finds all of them. To add a key,
//! begin in `file.rs`. Nothing here listens, and nothing outside reads YAML of this kind.

mod aliases;
mod build;
mod check;
mod database;
mod dotenv;
mod expand;
pub mod file;
mod mcp;
mod mode;
mod models;
mod nearest;
mod own_files;
mod path;
mod plan;
mod problem;
mod reference;
mod remotes;
mod restart;
mod schema;
mod secret_source;
mod shape;
mod source;
mod stores;
mod tree;

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use file::File;
use garde::Validate;
use secret_source::SecretSources;
use standfast_policy::policy::Policy;

use crate::database::Database;

pub use build::{BuildError, ServerParts, Surroundings, kept_key};
pub use expand::{Lookup, Unset};
pub use file::ToolType;
pub use mode::{Effective, EffectiveMode};
pub use nearest::advice;
pub use path::Path;
pub use plan::{AgentPlan, ToolPlan};
pub use problem::{Notice, Problem, Problems};
pub use reference::markdown as reference;
pub use restart::RestartKey;
pub use schema::published as schema;
pub use source::{Source, Spot};
pub use stores::RunStorage;

/// A configuration that is right.
#[derive(Debug)]
pub struct Config {
    /// The text it was read from.
    pub source: Source,
    /// What paths in it are relative to.
    pub folder: PathBuf,
    /// What it says.
    pub file: File,
    /// The effective settings of each agent.
    pub agents: Vec<AgentPlan>,
    /// The database that it names, if it does.
    pub database: Option<Database>,
    /// What one should know.
    pub notices: Vec<Notice>,
    /// What its rules come to.
    pub policy: Arc<Policy>,
    /// Files that its values are in.
    pub secret_files: Vec<PathBuf>,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// A line of `.env` is not understood.
    #[error("{}:{line}: this is not NAME=value; write one variable on each line, quotes closed", path.display())]
    Dotenv {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// It has mistakes.
    #[error("{}", .0.show())]
    Wrong(Box<Problems>),
}

/// Reads and checks a file, with the variables of the environment and of `.env` beside it.
pub fn load(path: &FilePath, unset: Unset) -> Result<Config, LoadError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| LoadError::Read { path: path.to_owned(), error })?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(FilePath::new("."));
    let variables = variables(folder)?;
    let lookup = |name: &str| std::env::var(name).ok().or_else(|| variables.get(name).cloned());
    let source = Source { name: path.display().to_string(), text };
    check(source, folder, &lookup, unset).map_err(|problems| LoadError::Wrong(Box::new(problems)))
}

fn variables(folder: &FilePath) -> Result<std::collections::BTreeMap<String, String>, LoadError> {
    let path = folder.join(".env");
    match std::fs::read_to_string(&path) {
        Ok(text) => dotenv::parse(&text).map_err(|dotenv::BadLine(line)| LoadError::Dotenv { path, line }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Default::default()),
        Err(error) => Err(LoadError::Read { path, error }),
    }
}

/// Checks a text; finds every mistake in it.
pub fn check(
    source: Source,
    folder: &FilePath,
    lookup: Lookup<'_>,
    unset: Unset,
) -> Result<Config, Problems> {
    let (mut tree, mut problems) = match tree::parse(&source.text) {
        Ok(parsed) => parsed,
        Err(broken) => return Err(Problems { source, problems: vec![broken], notices: Vec::new() }),
    };
    let mut notices = Vec::new();
    aliases::rename(&mut tree, &mut problems, &mut notices);
    let secrets = SecretSources::new(folder, unset);
    let sources = expand::Sources { variables: lookup, secrets: &secrets };
    problems.extend(expand::expand(&mut tree, sources, unset, &Path::top()));
    let (shaped, misshapen) = shape::shape(&tree);
    problems.extend(misshapen);
    let file = typed(shaped, &tree, &mut problems);
    problems.extend(out_of_bounds(&file, &tree));
    let checked = check::check(&file, &tree, folder);
    problems.extend(checked.problems);
    notices.extend(checked.notices);
    problems.sort_by_key(|problem| problem.at);
    notices.sort_by_key(|notice| notice.at);
    if !problems.is_empty() {
        return Err(Problems { source, problems, notices });
    }
    let agents = plan::agents(&file);
    let database = stores::database(&file, &tree, folder);
    // Without a mistake there is one.
    let policy = Arc::new(checked.policy.unwrap_or_else(Policy::without_rules));
    let (folder, secret_files) = (folder.to_owned(), secrets.files());
    let config = Config { source, folder, file, agents, database, notices, policy, secret_files };
    let exposed = config.exposed_files(&tree);
    if exposed.is_empty() {
        return Ok(config);
    }
    let Config { source, notices, .. } = config;
    let mut problems = exposed;
    problems.sort_by_key(|problem| problem.at);
    Err(Problems { source, problems, notices })
}

/// The types. What does not fit has been left out and told before this.
fn typed(shaped: serde_json::Value, tree: &tree::Node, problems: &mut Vec<Problem>) -> File {
    serde_json::from_value(shaped).unwrap_or_else(|error| {
        let help = "this is a bug in Standfast's validation; please report it with the file".to_owned();
        problems.push(Problem { at: tree.at, path: Path::top(), what: error.to_string(), help });
        File::default()
    })
}

/// What a message begins with that says by itself what is wrong and, behind a semicolon, what would be right.
const WRONG: &str = "wrong: ";

/// Numbers and texts that are too small, too large, too short.
fn out_of_bounds(file: &File, tree: &tree::Node) -> Vec<Problem> {
    let Err(report) = file.validate() else { return Vec::new() };
    let told = report.iter().map(|(path, error)| {
        let path = garde_path(&path.to_string());
        let words = error.message().to_owned();
        let wrong = words.strip_prefix(WRONG);
        let what = if let Some(why) = wrong {
            format!("`{path}`: {}", why.split_once("; ").map_or(why, |(what, _)| what))
        } else if words.starts_with("must") {
            format!("`{path}` {words}")
        } else {
            format!("`{path}` is {}", words.replace("length is ", ""))
        };
        let bound = words.split_whitespace().next_back().unwrap_or_default();
        let help = if let Some((_, help)) = wrong.and_then(|why| why.split_once("; ")) {
            help.to_owned()
        } else if words.starts_with("lower") || words.contains("length") {
            format!("the least is {bound}")
        } else if words.starts_with("greater") {
            format!("the most is {bound}")
        } else if words.ends_with("or more") || words.contains("more than") || words.contains("second") {
            "write a number with its unit, such as 30s, 10m or 24h".to_owned()
        } else if words.contains("media type") {
            "write type and subtype with a slash between them".to_owned()
        } else {
            "write it in full, such as https://standfast.example.org".to_owned()
        };
        Problem { at: tree.spot(&path), path, what, help }
    });
    told.collect()
}

/// The path of a key from how garde writes it: `server.auth.api_keys[0].key`.
fn garde_path(text: &str) -> Path {
    let mut path = Path::top();
    for part in text.split('.') {
        let mut pieces = part.split('[');
        path = path.key(pieces.next().unwrap_or_default());
        for index in pieces {
            path = path.item(index.trim_end_matches(']').parse().unwrap_or_default());
        }
    }
    path
}

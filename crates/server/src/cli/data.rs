//! Where a server keeps its runs: the data directory, and the database in it.
//!
//! The same rule for the server and for the commands that work on its files.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use standfast::config::{self, Config, LoadError, Unset};
use standfast::database::Database;
use standfast::encryption::BadKey;
use standfast_engine::secrets::SigningKey;
use standfast_store::sqlite::PayloadSealer;

/// The configuration file that is taken when nobody names one and it is in the current directory.
const USUAL_CONFIG: &str = "standfast.yaml";

/// Why there is no data directory.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoDirectory {
    #[error("there is no home directory to keep data in; name one with --data DIR")]
    Unknown,
    #[error("cannot use the data directory {path}: {error}")]
    Unusable { path: PathBuf, error: std::io::Error },
    #[error(
        "the folder {missing} does not exist, so {path} was not created; check the path for typing mistakes, or create \
         the folder first: mkdir -p {missing}"
    )]
    Missing { path: PathBuf, missing: PathBuf },
}

/// The configuration file that a server goes by: the named one, else `standfast.yaml` in the current directory, if it is
/// there. The same for every command, so that they all mean the same database.
pub(super) fn config_file(named: Option<&Path>) -> Option<PathBuf> {
    let usual = || Some(PathBuf::from(USUAL_CONFIG)).filter(|usual| usual.is_file());
    named.map(Path::to_owned).or_else(usual)
}

/// Creates the folder of a database, the last one of its path only: a mistyped path is an error, not a new and empty
/// database.
pub(super) fn make_folder_of(database: &Path) -> Result<(), NoDirectory> {
    match database.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => make_last_folder(folder, 0o755),
        None => Ok(()),
    }
}

fn make_last_folder(path: &Path, mode: u32) -> Result<(), NoDirectory> {
    if path.is_dir() {
        return Ok(());
    }
    match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let missing = path.parent().unwrap_or(path).to_owned();
            Err(NoDirectory::Missing { path: path.to_owned(), missing })
        }
        Err(error) => Err(NoDirectory::Unusable { path: path.to_owned(), error }),
    }
}

/// The data directory: the wanted one, else the usual one; made when it is missing, of the wanted one only its last
/// folder.
pub(super) fn directory(wanted: Option<&Path>) -> Result<PathBuf, NoDirectory> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let usual = || {
        let share = || variable("HOME").map(|home| home.join(".local").join("share"));
        variable("XDG_DATA_HOME").or_else(share).map(|share| share.join("standfast"))
    };
    // What is kept there is for the server's own eyes.
    if let Some(wanted) = wanted {
        make_last_folder(wanted, 0o700)?;
        return Ok(wanted.to_owned());
    }
    let path = usual().ok_or(NoDirectory::Unknown)?;
    match DirBuilder::new().recursive(true).mode(0o700).create(&path) {
        Ok(()) => Ok(path),
        Err(error) => Err(NoDirectory::Unusable { path, error }),
    }
}

/// The key that the secrets of subscriptions are made from: the one that the file names, before the one that a server
/// without a file made here; made when both are missing.
pub(super) fn webhook_key(directory: &Path, named: Option<SigningKey>) -> Result<SigningKey, NoDirectory> {
    let path = directory.join("webhook.key");
    let kept = || match config::kept_key(&path) {
        Ok(key) => Ok(SigningKey::new(key)),
        Err(error) => Err(NoDirectory::Unusable { path: path.clone(), error }),
    };
    match named {
        None => kept(),
        Some(named) if path.exists() => Ok(named.after([kept()?])),
        Some(named) => Ok(named),
    }
}

/// The database of a data directory.
pub(super) fn database(directory: &Path) -> PathBuf {
    directory.join("standfast.db")
}

/// Why there is no database to work on.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoDatabase {
    #[error(transparent)]
    Directory(#[from] NoDirectory),
    #[error("{0}\nrepair the file; standfast validate checks it again")]
    Config(#[from] LoadError),
}

/// How the payloads of a database are sealed, if the configuration says so: its keys are fetched for it.
pub(super) fn sealing(config: Option<&Config>, database: &Path) -> Result<Option<PayloadSealer>, BadKey> {
    config.and_then(Config::encryption).map(|encryption| encryption.sealing(database)).transpose()
}

/// The same by the configuration file that commands go by.
pub(super) fn sealing_by(config: Option<&Path>, database: &Path) -> Result<Option<PayloadSealer>, String> {
    let config = config_file(config).map(|path| config::load(&path, Unset::Ask)).transpose();
    sealing(config.map_err(|error| error.to_string())?.as_ref(), database).map_err(|error| error.to_string())
}

/// The database that a server started with these arguments works on.
pub(super) fn of_server(config: Option<&Path>, data: Option<&Path>) -> Result<Database, NoDatabase> {
    let named = config_file(config).map(|path| config::load(&path, Unset::Ask)).transpose()?;
    match named.and_then(|config| config.database) {
        Some(database) => Ok(database),
        None => Ok(Database::Sqlite(database(&directory(data)?))),
    }
}

//! Whether `server.encryption` can be done: where each key comes from, and that nothing writes payloads elsewhere.
//! Looks at the file alone: keys are fetched by `encryption.rs` of the server, when a database is opened.

use std::collections::BTreeSet;
use std::path::Path as FilePath;

use crate::config::file::{EncryptionKey, File};
use crate::config::path::Path;
use crate::config::stores;
use crate::config::tree::Node;
use crate::database::Database;

use super::CheckResult;

pub(super) fn check(file: &File, tree: &Node, folder: &FilePath, found: &mut CheckResult) {
    let Some(encryption) = &file.server.encryption else { return };
    let path = Path::of(&["server", "encryption"]);
    let mut ids = BTreeSet::new();
    for (at, key) in encryption.keys.iter().enumerate() {
        let path = path.key("keys").item(at);
        if !ids.insert(key.id.as_str()) {
            let what = format!("`{}` is the id of two keys", key.id);
            found.problem(tree, &path.key("id"), what, "give each key an id of its own");
        }
        source(key, &path, tree, found);
    }
    match stores::database(file, tree, folder) {
        Some(Database::Postgres(_) | Database::Files(_)) => {
            let what =
                "`server.encryption` is for a SQLite database, and this server has another one".to_owned();
            let help = "remove it, and keep the database on an encrypted disk; or use `driver: sqlite`";
            found.problem(tree, &path, what, help);
        }
        Some(Database::Sqlite(_)) | None => {}
    }
    for (name, store) in &file.session_stores {
        if store.mirror.is_some() {
            let key = Path::of(&["session_stores", name, "mirror"]);
            let what = format!("`{key}` writes readable copies of what `server.encryption` seals");
            found.problem(tree, &key, what, "remove one of the two");
        }
    }
}

fn source(key: &EncryptionKey, path: &Path, tree: &Node, found: &mut CheckResult) {
    let sources = [key.file.is_some(), !key.command.is_empty(), key.kms.is_some()];
    if sources.iter().filter(|is_said| **is_said).count() != 1 {
        let what = format!("the key `{}` needs one of `file`, `command` and `kms`", key.id);
        let help = "`openssl rand -base64 32 > key.txt` makes a key for `file: key.txt`";
        found.problem(tree, path, what, help);
    }
    if let Some(kms) = &key.kms
        && let Some(rest) = kms.url.strip_prefix("http://")
        && !is_this_machine(rest)
        && !kms.url.contains("${")
    {
        let what = format!("the key `{}` would come over the network in the clear", key.id);
        found.problem(tree, &path.key("kms").key("url"), what, "write an address with https://");
    }
}

/// Whether what follows `http://` is on this machine.
fn is_this_machine(rest: &str) -> bool {
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let host = match host.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

//! Credentials: one file each, which the server reads every time and another process may change.
//!
//! They are not in the journal: a key that somebody revoked from the command line must not come back when the journal of
//! a crashed server is made good. Each change is one file, written beside its place, synced and renamed into it; a lock of
//! their own keeps two processes from changing the same one at once.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use standfast_core::name::Tenant;
use standfast_core::time::Timestamp;

use super::documents::{CredentialDocument, pretty};
use super::folder::Folder;
use super::{OpenError, paths};
use crate::error::StoreError;
use crate::query::Credential;

/// Where they are.
const FOLDER: &str = "credential";

/// The credentials of a file store, for a process that does not have the store.
#[derive(Debug, Clone)]
pub struct CredentialFolder {
    folder: Folder,
}

impl CredentialFolder {
    /// Opens the folder; makes it when it is missing.
    pub fn open(path: impl AsRef<Path>) -> Result<CredentialFolder, OpenError> {
        Ok(CredentialFolder { folder: Folder::open(path.as_ref())? })
    }

    pub(super) fn of(folder: Folder) -> CredentialFolder {
        CredentialFolder { folder }
    }

    /// Keeps a new credential. False when its prefix is taken.
    pub fn put(&self, credential: Credential) -> Result<bool, StoreError> {
        let _lock = self.lock().map_err(unwritable)?;
        if self.get(&credential.prefix)?.is_some() {
            return Ok(false);
        }
        self.write(credential).map_err(unwritable)?;
        Ok(true)
    }

    /// Marks a credential as revoked; the first instant stays. False when the tenant has none with this prefix.
    pub fn revoke(&self, tenant: &Tenant, prefix: &str, at: Timestamp) -> Result<bool, StoreError> {
        let _lock = self.lock().map_err(unwritable)?;
        let found = self.get(prefix)?.filter(|credential| credential.tenant == *tenant);
        let Some(mut credential) = found else { return Ok(false) };
        credential.revoked_at.get_or_insert(at);
        self.write(credential).map_err(unwritable)?;
        Ok(true)
    }

    /// Lets a credential expire at an instant, unless it does so before. False when the tenant has none with this prefix.
    pub fn expire(&self, tenant: &Tenant, prefix: &str, at: Timestamp) -> Result<bool, StoreError> {
        let _lock = self.lock().map_err(unwritable)?;
        let found = self.get(prefix)?.filter(|credential| credential.tenant == *tenant);
        let Some(mut credential) = found else { return Ok(false) };
        credential.expire_by(at);
        self.write(credential).map_err(unwritable)?;
        Ok(true)
    }

    /// A credential.
    pub fn get(&self, prefix: &str) -> Result<Option<Credential>, StoreError> {
        Ok(self.read(&paths::credential(prefix))?.filter(|credential| credential.prefix == prefix))
    }

    /// The credentials of a tenant, by prefix.
    pub fn list(&self, tenant: &Tenant) -> Result<Vec<Credential>, StoreError> {
        let names = self.folder.names(FOLDER).map_err(unwritable)?;
        let mut found = Vec::new();
        for name in names.into_iter().filter(|name| name.ends_with(".json")) {
            found.extend(self.read(&format!("{FOLDER}/{name}"))?);
        }
        found.retain(|credential| credential.tenant == *tenant);
        found.sort_by(|one, other| one.prefix.cmp(&other.prefix));
        Ok(found)
    }

    fn read(&self, path: &str) -> Result<Option<Credential>, StoreError> {
        let Some(bytes) = self.folder.read(path).map_err(unwritable)? else { return Ok(None) };
        let document: CredentialDocument = serde_json::from_slice(&bytes).map_err(|error| {
            let path = self.folder.at(path);
            StoreError::unavailable(format!(
                "{} is damaged ({error}); restore it from a backup, or remove it to end that key",
                path.display()
            ))
        })?;
        Ok(Some(document.credential()))
    }

    fn write(&self, credential: Credential) -> io::Result<()> {
        let path = paths::credential(&credential.prefix);
        let text = pretty(&CredentialDocument::of(credential));
        // Synced before it has its name: a crash leaves the old file or the new one.
        let beside = format!("{path}.new");
        let file = self.folder.create(&beside)?;
        file.write_all_at(text.as_bytes(), 0)?;
        file.sync_all()?;
        std::fs::rename(self.folder.at(&beside), self.folder.at(&path))?;
        File::open(self.folder.at(FOLDER))?.sync_all()
    }

    fn lock(&self) -> io::Result<File> {
        let folder = self.folder.at(FOLDER);
        if !folder.exists() {
            use std::os::unix::fs::DirBuilderExt;
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            self.folder.sync_root()?;
        }
        let lock = self.folder.create(&format!("{FOLDER}/lock"))?;
        lock.lock()?;
        Ok(lock)
    }
}

fn unwritable(error: io::Error) -> StoreError {
    StoreError::unavailable(format!("the files of keys cannot be read or written: {error}"))
}

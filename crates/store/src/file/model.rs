//! What an open file store knows: the rows, where logs end, which calls and conversations have files.
//!
//! Made from the files at every start (`load.rs`), changed by transactions (`transaction.rs`). Logs and large values stay
//! in their files and are read from there; changes that are in the journal and not in their files yet are read through.

use std::collections::{BTreeMap, HashMap};

use standfast_core::digest::Digest;
use standfast_core::id::{RunId, Seq};
use standfast_core::link::Link;
use standfast_core::name::Tenant;
use standfast_core::run::Facts;

use super::calls::Calls;
use super::documents::AuditLine;
use super::folder::{FileChange, Folder};
use super::sessions::Sessions;
use super::{log, paths};
use crate::error::StoreError;
use crate::memory::state::State;
use crate::query::AuditEntry;

/// A run whose files cannot be read.
#[derive(Debug, Clone)]
pub(super) struct UnreadableFiles {
    pub(super) facts: Option<Facts>,
    pub(super) why: FileDamage,
}

/// What is wrong with them.
#[derive(Debug, Clone)]
pub(super) enum FileDamage {
    /// They are damaged.
    Damaged(String),
    /// A newer version wrote them.
    Newer(u32),
}

impl UnreadableFiles {
    pub(super) fn error(&self, run: RunId) -> StoreError {
        match &self.why {
            FileDamage::Damaged(why) => StoreError::Corrupt { run, why: why.clone() },
            FileDamage::Newer(found) => StoreError::Newer { run, found: *found },
        }
    }
}

/// A table that is a log of changes.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct TableLog {
    pub(super) bytes: u64,
    /// How long it was when it was last rewritten.
    pub(super) compact: u64,
}

impl TableLog {
    /// Whether most of it has ended.
    pub(super) fn is_stale(self) -> bool {
        self.bytes > self.compact.saturating_mul(4).saturating_add(1024 * 1024)
    }
}

/// What an open store knows.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) folder: Folder,
    pub(super) state: State,
    /// How long the log of each run is.
    pub(super) logs: HashMap<RunId, u64>,
    /// How long the audit of each tenant is.
    pub(super) audits: HashMap<Tenant, u64>,
    pub(super) tables: BTreeMap<&'static str, TableLog>,
    pub(super) unreadable: BTreeMap<RunId, UnreadableFiles>,
    pub(super) calls: Calls,
    pub(super) sessions: Sessions,
    /// Changes that are in the journal and not in their files yet.
    pub(super) unmade: Vec<FileChange>,
    /// Why nothing of this may be shown, if so: some of it may not be durable.
    pub(super) lost: Option<String>,
}

impl Model {
    /// Nothing.
    pub(super) fn empty(folder: Folder) -> Model {
        Model {
            folder,
            state: State::rows_only(),
            logs: HashMap::new(),
            audits: HashMap::new(),
            tables: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            calls: Calls::default(),
            sessions: Sessions::default(),
            unmade: Vec::new(),
            lost: None,
        }
    }

    /// The bytes of a file as the journal has it.
    pub(super) fn bytes(&self, path: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let bytes = self.folder.read(path).map_err(|error| {
            StoreError::unavailable(format!("{} cannot be read: {error}", self.folder.at(path).display()))
        })?;
        let newer = self.unmade.iter().filter(|change| change.path() == path);
        Ok(newer.fold(bytes, |bytes, change| change.made_of(bytes)))
    }

    /// Whether the run can be used at all.
    pub(super) fn check_readable(&self, run: RunId) -> Result<(), StoreError> {
        self.unreadable.get(&run).map_or(Ok(()), |files| Err(files.error(run)))
    }

    /// Clients are told it, too: the file by its place in the folder, not where that lies on this machine.
    pub(super) fn corrupt(&self, run: RunId, path: &str, why: &str) -> StoreError {
        StoreError::Corrupt { run, why: format!("{path}: {why}") }
    }

    /// The log of a run.
    pub(super) fn log(&self, run: RunId) -> Result<Vec<u8>, StoreError> {
        let wanted = *self.logs.get(&run).ok_or(StoreError::NotFound { run })?;
        let path = paths::log(run);
        let bytes = self.bytes(&path)?.unwrap_or_default();
        if bytes.len() as u64 == wanted {
            Ok(bytes)
        } else {
            let why = format!("it has {} bytes, and {wanted} were written", bytes.len());
            Err(self.corrupt(run, &path, &why))
        }
    }

    pub(super) fn links(&self, run: RunId, after: Seq, limit: usize) -> Result<Vec<Link>, StoreError> {
        if let (false, Some(files)) = (self.logs.contains_key(&run), self.unreadable.get(&run)) {
            return Err(files.error(run));
        }
        let bytes = self.log(run)?;
        log::links(run, &bytes, after, limit).map_err(|why| self.corrupt(run, &paths::log(run), &why))
    }

    pub(super) fn blob(&self, run: RunId, digest: Digest) -> Result<Option<String>, StoreError> {
        let path = paths::blob(run, digest);
        let Some(bytes) = self.bytes(&path)? else { return Ok(None) };
        let text = String::from_utf8(bytes).map_err(|error| self.corrupt(run, &path, &error.to_string()))?;
        Ok(Some(text))
    }

    pub(super) fn definition(&self, tenant: &Tenant, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(text) = self.bytes(&paths::definition(tenant, digest, "json"))? {
            return Ok(Some(text));
        }
        let hex = self.bytes(&paths::definition(tenant, digest, "hex"))?;
        Ok(hex.map(|digits| from_hex(&digits)))
    }

    pub(super) fn audit(&self, tenant: &Tenant) -> Result<Vec<AuditEntry>, StoreError> {
        let path = paths::audit(tenant);
        let bytes = self.bytes(&path)?.unwrap_or_default();
        let entries = AuditLine::entries(&bytes).map_err(|why| {
            StoreError::unavailable(format!("{} is damaged: {why}", self.folder.at(&path).display()))
        })?;
        Ok(entries.into_iter().map(|(_, entry)| entry).collect())
    }

    pub(super) fn facts(&self, run: RunId) -> Option<Facts> {
        self.state.facts(run).or_else(|| self.unreadable.get(&run)?.facts.clone())
    }
}

/// Bytes as hex digits.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(digits: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or_default();
    let byte = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(*high) * 16 + digit(*low)).unwrap_or_default(),
        _ => 0,
    };
    digits.chunks(2).map(byte).collect()
}

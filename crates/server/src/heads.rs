//! Signed heads: where every chain of a database ended at an instant, signed with a key that is not in it (T32).
//!
//! Whoever can write a database can also reseal its chains, or take a run out of it without a trace. What they cannot
//! do is sign. A head has the last event and hash of each run that changed since the head before, the last entry of each
//! tenant's audit, and the digest of the head before; all heads of a file together say what must still be there. The
//! file belongs on another machine, or at least to another user. Knows nothing of how a database is proven right: that is
//! the store's.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use standfast_core::digest::{self, Digest};
use standfast_core::id::{RunId, Seq};
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::clock::Clock;
use standfast_store::audit::SignedCoverage;
use standfast_store::{file, postgres, sqlite};
use tokio::sync::watch;

use crate::database::Database;

/// Goes before what is signed, so that no signature for anything else fits.
const LABEL: &[u8] = b"standfast.head.1\0";

/// What a private key looks like in a file, and a public one.
const PRIVATE: [&str; 2] = ["-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"];
const PUBLIC: [&str; 2] = ["-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----"];

/// What stands before the 32 bytes of a public key.
const PUBLIC_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// How often a server signs when nobody says.
pub const USUAL_INTERVAL: Millis = Millis::hours(1);

/// Where the private key comes from. It is read each time, and kept nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file.
    File(PathBuf),
    /// What a program prints.
    Command(Vec<String>),
}

/// How a server signs heads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadSettings {
    /// The file that they are added to.
    pub file: PathBuf,
    /// What they are signed with.
    pub key: KeySource,
    /// How often.
    pub every: Millis,
    /// What each is handed to; nothing where it is empty.
    pub send_command: Vec<String>,
}

/// Why heads were not written, or do not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// The key cannot be had.
    #[error("the audit key {from} cannot be used: {why}")]
    Key {
        /// Where it should come from.
        from: String,
        /// What is wrong.
        why: String,
    },
    /// The file cannot be read or written.
    #[error("the heads file {path} cannot be used: {why}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// A line is not what was signed.
    #[error("line {line} of the heads file {path}: {why}", path = path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Which line.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// The database cannot be read.
    #[error("{0}")]
    Database(String),
    /// The database no longer has what was signed.
    #[error(
        "not signed: {what}, which was signed before; run `standfast audit verify --heads` and restore a backup"
    )]
    Lost {
        /// What is missing.
        what: String,
    },
}

/// A key that signs. Never stored, listed or logged.
pub struct HeadKey(Ed25519KeyPair);

/// The half of a key that everybody may know.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublicKey([u8; 32]);

impl fmt::Debug for HeadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeadKey({})", self.public())
    }
}

impl fmt::Display for PublicKey {
    /// A name of the key: the beginning of its digest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = digest::of_bytes(&self.0).to_string();
        f.write_str(digest.get(..16).unwrap_or_default())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn inside(pem: &str, [begin, end]: [&str; 2]) -> Option<Vec<u8>> {
    let text = pem.trim().strip_prefix(begin)?.strip_suffix(end)?;
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    BASE64_STANDARD.decode(text).ok()
}

impl HeadKey {
    /// Reads a private key in PEM.
    #[must_use]
    pub fn read(pem: &str) -> Option<HeadKey> {
        Ed25519KeyPair::from_pkcs8(&inside(pem, PRIVATE)?).ok().map(HeadKey)
    }

    /// Its other half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; 32];
        bytes.iter_mut().zip(self.0.public_key().as_ref()).for_each(|(to, from)| *to = *from);
        PublicKey(bytes)
    }
}

impl PublicKey {
    /// Reads a key in PEM: a public one, or the public half of a private one.
    #[must_use]
    pub fn read(pem: &str) -> Option<PublicKey> {
        let own = HeadKey::read(pem).map(|key| key.public());
        own.or_else(|| {
            let bytes = inside(pem, PUBLIC)?;
            bytes.strip_prefix(&PUBLIC_PREFIX)?.try_into().ok().map(PublicKey)
        })
    }
}

impl KeySource {
    /// The text of the key, from wherever it is.
    fn text(&self) -> Result<String, HeadError> {
        let failed = |why: String| HeadError::Key { from: self.to_string(), why };
        match self {
            KeySource::File(path) => std::fs::read_to_string(path).map_err(|error| failed(error.to_string())),
            KeySource::Command(argv) => {
                let (program, arguments) = argv.split_first().ok_or_else(|| failed("it is empty".into()))?;
                let mut command = Command::new(program);
                command.args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit());
                let output = command.output().map_err(|error| failed(error.to_string()))?;
                if output.status.success() {
                    String::from_utf8(output.stdout).map_err(|_| failed("it prints no text".into()))
                } else {
                    Err(failed(format!("it ended with {}", output.status)))
                }
            }
        }
    }

    /// The key.
    pub fn key(&self) -> Result<HeadKey, HeadError> {
        let no_key =
            "it is not an Ed25519 key in PKCS#8; create one with `openssl genpkey -algorithm ed25519`";
        let wrong = || HeadError::Key { from: self.to_string(), why: no_key.into() };
        HeadKey::read(&self.text()?).ok_or_else(wrong)
    }

    /// Its public half; a public key will do.
    pub fn public(&self) -> Result<PublicKey, HeadError> {
        let wrong =
            || HeadError::Key { from: self.to_string(), why: "it is not an Ed25519 key in PEM".into() };
        PublicKey::read(&self.text()?).ok_or_else(wrong)
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::File(path) => write!(f, "{}", path.display()),
            // Its arguments may be nobody's business.
            KeySource::Command(argv) => {
                write!(f, "of the command {}", argv.first().map(String::as_str).unwrap_or_default())
            }
        }
    }
}

/// One line of a file.
#[derive(Serialize, Deserialize)]
struct Line {
    /// Byte for byte what was signed.
    head: Box<RawValue>,
    /// The public key, in base64.
    key: String,
    /// In base64.
    signature: String,
}

/// What is signed.
#[derive(Serialize, Deserialize)]
struct Head {
    /// Counts the heads of a file from 1.
    no: u64,
    at: Timestamp,
    /// Digest of the head before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<Digest>,
    /// How many runs there were.
    runs: u64,
    /// Those that are new or went on since the head before: last event, and hash of the link that it stands in.
    changed: Vec<(RunId, Seq, Digest)>,
    /// The last entry of each tenant's audit.
    entries: BTreeMap<String, (u64, Digest)>,
}

/// What the heads of a file say together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignedHeads {
    /// What must still be there.
    pub covered: SignedCoverage,
    /// How many heads there are.
    pub heads: u64,
    /// When the newest was signed.
    pub newest: Option<Timestamp>,
    /// Who signed them.
    pub keys: BTreeSet<PublicKey>,
    last: Option<Digest>,
}

/// A head that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenHead {
    /// Its number.
    pub no: u64,
    /// How many runs there are.
    pub runs: u64,
    /// How many of them it names.
    pub changed: usize,
    /// The key that it is signed with.
    pub key: PublicKey,
}

/// Reads the heads of a file: every signature, and that none is missing between two. With `trusted`, only these keys
/// count; without, any key that signed all of them, which the caller should tell.
pub fn read(path: &Path, trusted: &[PublicKey]) -> Result<SignedHeads, HeadError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| HeadError::File { path: path.to_owned(), why: error.to_string() })?;
    understood(path, &text, trusted)
}

fn understood(path: &Path, text: &str, trusted: &[PublicKey]) -> Result<SignedHeads, HeadError> {
    let mut signed = SignedHeads::default();
    for (at, line) in text.lines().enumerate() {
        let added = signed.add(line, trusted);
        added.map_err(|why| HeadError::Line { path: path.to_owned(), line: at + 1, why: why.into() })?;
    }
    Ok(signed)
}

impl SignedHeads {
    fn add(&mut self, line: &str, trusted: &[PublicKey]) -> Result<(), &'static str> {
        const NO_HEAD: &str = "it is not a signed head";
        let line: Line = serde_json::from_str(line).map_err(|_| NO_HEAD)?;
        let decoded = |text: &str| BASE64_STANDARD.decode(text).map_err(|_| NO_HEAD);
        let key = PublicKey(decoded(&line.key)?.try_into().map_err(|_| NO_HEAD)?);
        if !trusted.is_empty() && !trusted.contains(&key) {
            return Err("it is signed with another key");
        }
        let body = line.head.get();
        let message = [LABEL, body.as_bytes()].concat();
        let verified = UnparsedPublicKey::new(&ED25519, key.0).verify(&message, &decoded(&line.signature)?);
        verified.map_err(|_| "its signature is not right: it was changed")?;
        let head: Head = serde_json::from_str(body).map_err(|_| NO_HEAD)?;
        if head.no != self.heads + 1 || head.previous != self.last {
            return Err("it does not follow the head before it: one is missing or was changed");
        }
        self.covered.runs.extend(head.changed.into_iter().map(|(run, seq, hash)| (run, (seq, hash))));
        self.covered.entries.extend(head.entries);
        self.heads = head.no;
        self.newest = Some(head.at);
        self.keys.insert(key);
        self.last = Some(digest::of_bytes(body.as_bytes()));
        Ok(())
    }
}

/// Where every chain of a database ends now.
fn current(database: &Database) -> Result<SignedCoverage, HeadError> {
    let mut now = SignedCoverage::default();
    let failed = |error: &dyn fmt::Display| HeadError::Database(error.to_string());
    let (runs, entries) = (&mut now.runs, &mut now.entries);
    let take_run = |run, seq, hash| {
        runs.insert(run, (seq, hash));
    };
    let take_entry = |tenant: &str, entry: standfast_store::AuditEntry| {
        entries.insert(tenant.to_owned(), (entry.no, entry.hash));
        ControlFlow::Continue(())
    };
    match database {
        Database::Sqlite(file) => {
            sqlite::heads(file, take_run).map_err(|error| failed(&error))?;
            sqlite::audit_entries(file, take_entry).map_err(|error| failed(&error))?;
        }
        Database::Files(files) => {
            file::heads(&files.path, take_run).map_err(|error| failed(&error))?;
            file::audit_entries(&files.path, take_entry).map_err(|error| failed(&error))?;
        }
        Database::Postgres(named) => {
            let options = named.options();
            postgres::heads(&options, take_run).map_err(|error| failed(&error))?;
            postgres::audit_entries(&options, take_entry).map_err(|error| failed(&error))?;
        }
    }
    Ok(now)
}

/// Adds a head to a file, unless nothing changed and `always` is not wanted. Several may do so at once: each waits for the
/// one before. Must not be called inside a runtime.
pub fn append(
    database: &Database,
    path: &Path,
    key: &KeySource,
    at: Timestamp,
    always: bool,
) -> Result<Option<WrittenHead>, HeadError> {
    let failed = |error: std::io::Error| HeadError::File { path: path.to_owned(), why: error.to_string() };
    let key = key.key()?;
    let mut options = File::options();
    options.read(true).append(true).create(true).mode(0o600);
    let mut file = options.open(path).map_err(failed)?;
    file.lock().map_err(failed)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    // What was written last and broken off is not a head.
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    if whole < text.len() {
        file.set_len(whole as u64).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        text.truncate(whole);
    }
    let before = understood(path, &text, &[])?;
    let now = current(database)?;
    refuse_lost(&before.covered, &now)?;
    let is_new = |run: &RunId, end: &(Seq, Digest)| before.covered.runs.get(run) != Some(end);
    let changed = now.runs.iter().filter(|(run, end)| is_new(run, end));
    let mut changed: Vec<(RunId, Seq, Digest)> =
        changed.map(|(run, (seq, hash))| (*run, *seq, *hash)).collect();
    changed.sort_unstable_by_key(|(run, ..)| *run);
    let is_quiet = changed.is_empty() && before.covered.entries == now.entries;
    if is_quiet && !always && before.heads > 0 {
        return Ok(None);
    }
    let head = Head {
        no: before.heads + 1,
        at,
        previous: before.last,
        runs: now.runs.len() as u64,
        changed,
        entries: now.entries.into_iter().collect(),
    };
    let written =
        WrittenHead { no: head.no, runs: head.runs, changed: head.changed.len(), key: key.public() };
    let line = signed(&head, &key).map_err(|error| HeadError::File {
        path: path.to_owned(),
        why: format!("a head cannot be written as JSON: {error}"),
    })?;
    file.write_all(line.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(Some(written))
}

/// Adds a head now and then until the server stops, and one at the end.
pub async fn keep_signing(
    settings: HeadSettings,
    database: Database,
    clock: Clock,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        let (now, settings_now, database) = (clock.now(), settings.clone(), database.clone());
        let append = move || append(&database, &settings_now.file, &settings_now.key, now, false);
        // Read without the store's own connections, which must not wait for it.
        match tokio::task::spawn_blocking(append).await {
            Ok(Ok(Some(head))) => {
                tracing::info!(
                    no = head.no,
                    runs = head.runs,
                    changed = head.changed,
                    "audit: signed a head"
                );
            }
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::error!(%error, "audit: could not sign a head"),
            Err(panic) => tracing::error!(%panic, "audit: could not sign a head"),
        }
        send_on(&settings).await;
        if *stopping.borrow() {
            return;
        }
        tokio::select! {
            () = clock.sleep(settings.every) => {}
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
    }
}

/// Sends on what was signed, also by others and at earlier times.
async fn send_on(settings: &HeadSettings) {
    if settings.send_command.is_empty() {
        return;
    }
    let (file, command) = (settings.file.clone(), settings.send_command.clone());
    match tokio::task::spawn_blocking(move || sending::send(&file, &command)).await {
        Ok(Ok(0)) => {}
        Ok(Ok(sent)) => tracing::info!(sent, "audit: sent heads on"),
        Ok(Err(error)) => tracing::error!(error, "audit: could not send a head on; it is sent again later"),
        Err(panic) => tracing::error!(%panic, "audit: could not send a head on"),
    }
}

fn signed(head: &Head, key: &HeadKey) -> Result<String, serde_json::Error> {
    let body = RawValue::from_string(serde_json::to_string(head)?)?;
    let message = [LABEL, body.get().as_bytes()].concat();
    let line = Line {
        signature: BASE64_STANDARD.encode(key.0.sign(&message)),
        key: BASE64_STANDARD.encode(key.public().0),
        head: body,
    };
    Ok(format!("{}\n", serde_json::to_string(&line)?))
}

/// A database that lost something is not signed over: the head would say that all is well.
fn refuse_lost(before: &SignedCoverage, now: &SignedCoverage) -> Result<(), HeadError> {
    let lost = |what: String| Err(HeadError::Lost { what });
    let mut runs: Vec<(&RunId, &(Seq, Digest))> = before.runs.iter().collect();
    runs.sort_unstable_by_key(|(run, _)| **run);
    for (run, (seq, hash)) in runs {
        match now.runs.get(run) {
            None => return lost(format!("{run} is gone")),
            Some((found, _)) if found < seq => {
                return lost(format!("{run} was rolled back before event {seq}"));
            }
            Some((found, other)) if found == seq && other != hash => {
                return lost(format!("{run} was rewritten at event {seq}"));
            }
            Some(_) => {}
        }
    }
    let entries: HashMap<&String, &(u64, Digest)> = now.entries.iter().collect();
    for (tenant, (no, hash)) in &before.entries {
        match entries.get(tenant) {
            Some((found, _)) if found > no => {}
            Some((found, other)) if found == no && other == hash => {}
            Some(_) | None => return lost(format!("entry {no} of the audit of tenant {tenant} is gone")),
        }
    }
    Ok(())
}

mod sending;
#[cfg(test)]
mod tests;

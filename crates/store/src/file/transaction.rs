//! One transaction: what operations do to the rows, and which files change for it.
//!
//! Operations change the rows at once and leave marks of what they touched; when all of a group are done, the touched
//! documents are written out as changes of files. Nothing here writes: the writer hands the changes to the journal first
//! (`writer.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use serde_json::value::RawValue;
use standfast_core::definition::Definition;
use standfast_core::event::Envelope;
use standfast_core::execution_state::execution_state;
use standfast_core::hold::HoldKind;
use standfast_core::id::{RunId, Seq};
use standfast_core::link::Link;
use standfast_core::name::Tenant;
use standfast_core::project::{HoldChange, RunRow};
use standfast_core::run::{Run, Status, status};
use standfast_core::time::{Millis, Timestamp};

use super::documents::{AuditLine, KeyDocument, SealedDocument, SubscriptionDocument, TableLine, pretty};
use super::folder::FileChange;
use super::model::{Model, to_hex};
use super::sessions::{SessionFile, status_of};
use super::{calls, log, paths};
use crate::batch::{Batch, SideWrite};
use crate::columns::json;
use crate::error::StoreError;
use crate::memory::state::ChangeMark;
use crate::query::{KeyNote, SessionKey};
use crate::row_audit::RowEntry;

/// What a call begins with in the log: its id is stored before the job gets it.
const PENDING: &[u8] = b"\"pending\"";

/// A transaction under way.
#[derive(Debug)]
pub(super) struct Transaction<'a> {
    pub(super) model: &'a mut Model,
    pub(super) changes: Vec<FileChange>,
    touched: BTreeSet<ChangeMark>,
    /// Runs whose log changed.
    moved: BTreeSet<RunId>,
    /// Runs that may have calls now.
    may_have_calls: BTreeSet<RunId>,
    /// The newest instant in it.
    now: Timestamp,
    /// Something was erased: it must not live on in the journal.
    pub(super) has_erased: bool,
}

impl<'a> Transaction<'a> {
    pub(super) fn on(model: &'a mut Model) -> Transaction<'a> {
        Transaction {
            model,
            changes: Vec::new(),
            touched: BTreeSet::new(),
            moved: BTreeSet::new(),
            may_have_calls: BTreeSet::new(),
            now: Timestamp(0),
            has_erased: false,
        }
    }

    pub(super) fn append(&mut self, batches: Vec<Batch>) -> Result<(), StoreError> {
        for batch in &batches {
            self.model.check_readable(batch.run())?;
        }
        let written: Vec<WrittenBatch> = batches.iter().map(WrittenBatch::of).collect();
        self.model.state.append(batches)?;
        for batch in written {
            for (tenant, digest, bytes) in batch.definitions {
                self.put_definition(&tenant, digest, bytes);
            }
            for (digest, text) in batch.blobs {
                self.changes.push(FileChange::Put { path: paths::blob(batch.run, digest), text });
            }
            let at = self.model.logs.entry(batch.run).or_default();
            let (path, begins) = (paths::log(batch.run), *at);
            *at += batch.line.len() as u64;
            self.changes.push(FileChange::Append { path, at: begins, text: batch.line });
            self.now = self.now.max(batch.at);
            self.moved.insert(batch.run);
            if batch.may_have_calls {
                self.may_have_calls.insert(batch.run);
            }
        }
        Ok(())
    }

    fn put_definition(&mut self, tenant: &Tenant, digest: standfast_core::digest::Digest, bytes: Vec<u8>) {
        let (path, text) = match String::from_utf8(bytes) {
            Ok(text) => (paths::definition(tenant, digest, "json"), text),
            Err(error) => (paths::definition(tenant, digest, "hex"), to_hex(error.as_bytes())),
        };
        // The digest names the first, in whichever of the two forms it is kept.
        let names = ["json", "hex"].map(|ending| paths::definition(tenant, digest, ending));
        let is_coming = |change: &FileChange| names.iter().any(|name| change.path() == name);
        let is_known = names.iter().any(|name| self.model.folder.at(name).exists())
            || self.changes.iter().any(is_coming)
            || self.model.unmade.iter().any(is_coming);
        if !is_known {
            self.changes.push(FileChange::Put { path, text });
        }
    }

    pub(super) fn erase(&mut self, run: RunId) -> Result<(), StoreError> {
        self.model.check_readable(run)?;
        let mut links = if self.model.logs.contains_key(&run) { self.links(run)? } else { Vec::new() };
        self.model.state.erase(run)?;
        // The event that says so stays readable, and so does what followed it.
        let said_at = links.iter().position(Link::says_erased).unwrap_or(0);
        links.iter_mut().take(said_at).for_each(Link::erase);
        let text: String = links.iter().map(log::line).collect();
        self.model.logs.insert(run, text.len() as u64);
        self.changes.push(FileChange::Put { path: paths::log(run), text });
        let folder = paths::blobs(run);
        let names = self.model.folder.names(&folder).unwrap_or_default();
        let mut blobs: BTreeSet<String> = names.into_iter().map(|name| format!("{folder}/{name}")).collect();
        let coming = self.changes.iter().chain(&self.model.unmade).map(FileChange::path);
        blobs.extend(coming.filter(|path| path.starts_with(&format!("{folder}/"))).map(str::to_owned));
        self.changes.extend(blobs.into_iter().map(|path| FileChange::Delete { path }));
        self.moved.insert(run);
        self.has_erased = true;
        Ok(())
    }

    pub(super) fn quarantine(&mut self, run: RunId, why: String) -> Result<(), StoreError> {
        if self.model.unreadable.contains_key(&run) {
            // It is never due and takes nothing already.
            return Ok(());
        }
        self.model.state.quarantine(run, why)
    }

    /// Keeps keys; a note that only says the same for a little longer is left out.
    pub(super) fn note_keys(&mut self, notes: Vec<KeyNote>) {
        let state = &self.model.state;
        let is_news = |note: &KeyNote| {
            let known = state.find_key(note.tenant.clone(), note.key.clone());
            match (&known, &note.kept) {
                (Some(known), Some((request, until))) => {
                    known.request != *request
                        || known.expires_at.0 < until.0.saturating_sub(KeyNote::REFRESHED_MILLIS)
                }
                (None, None) => false,
                (Some(_), None) | (None, Some(_)) => true,
            }
        };
        let news: Vec<KeyNote> = KeyNote::last_of_each(notes).into_iter().filter(is_news).collect();
        self.model.state.note_keys(news);
    }

    /// Adds the entry of a row beside the runs to the audit, at the time of the machine that has the files.
    pub(super) fn put_row(&mut self, tenant: Tenant, row: &RowEntry) {
        #[expect(
            clippy::disallowed_methods,
            reason = "as a database does: nobody says when such a row is changed"
        )]
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let at = now.ok().and_then(|since| i64::try_from(since.as_millis()).ok()).unwrap_or_default();
        self.put_audit(tenant, Timestamp(at), row.text());
    }

    /// Adds an entry to a tenant's audit.
    pub(super) fn put_audit(&mut self, tenant: Tenant, at: Timestamp, entry: String) {
        self.model.state.put_audit(tenant.clone(), at, entry);
        for last in self.model.state.audit_entries(&tenant, 0, usize::MAX) {
            let length = self.model.audits.entry(tenant.clone()).or_default();
            let (begins, text) = (*length, AuditLine::text(&tenant, &last));
            *length += text.len() as u64;
            self.changes.push(FileChange::Append { path: paths::audit(&tenant), at: begins, text });
        }
    }

    /// After each operation: what it touched is remembered.
    pub(super) fn gather(&mut self) {
        let touched = self.model.state.take_touched();
        self.touched.extend(touched);
    }

    /// Writes out every document that was touched, as of transaction `no`.
    pub(super) fn write_out(&mut self, no: u64, keep: Option<Millis>) {
        self.gather();
        let mut touched = std::mem::take(&mut self.touched);
        self.write_calls();
        touched.extend(self.forget_calls(keep).into_iter().map(ChangeMark::Run));
        let mut sessions = BTreeSet::new();
        for one in &touched {
            match one {
                ChangeMark::Run(run) => self.write_run(*run, no),
                ChangeMark::Session(key) => drop(sessions.insert(key.clone())),
                ChangeMark::Key(tenant, key) => {
                    let record = self.model.state.find_key(tenant.clone(), key.clone());
                    let text = TableLine::text(&[tenant.as_str(), key], record.map(KeyDocument::of).as_ref());
                    self.add_line(paths::KEYS, text);
                }
                ChangeMark::Counter(tenant, name) => {
                    let value = self.model.state.counter(tenant, name);
                    self.add_line(paths::COUNTERS, TableLine::text(&[tenant.as_str(), name], value.as_ref()));
                }
                ChangeMark::Notice(no) => {
                    let document = self.model.state.notice_document(*no);
                    let text = TableLine::text(&["notice", &no.to_string()], document.as_ref());
                    self.add_line(paths::NOTICES, text);
                }
                ChangeMark::Letter(no) => {
                    let document = self.model.state.letter_document(*no);
                    let text = TableLine::text(&["letter", &no.to_string()], document.as_ref());
                    self.add_line(paths::NOTICES, text);
                }
                ChangeMark::Subscription(tenant, id) => {
                    let found = self.model.state.subscription(tenant.clone(), id.clone());
                    let text = found.map(|one| pretty(&SubscriptionDocument::of(one)));
                    self.put_or_delete(paths::subscription(tenant, id), text);
                }
                ChangeMark::Sealed(tenant, name) => {
                    let value = self.model.state.sealed(tenant, name);
                    let document =
                        |value| SealedDocument { tenant: tenant.clone(), name: name.clone(), value };
                    let text = value.map(|value| pretty(&document(value)));
                    self.put_or_delete(paths::sealed(tenant, name), text);
                }
                // Entries are added when they are made; credentials are files of their own.
                ChangeMark::Audit(_) | ChangeMark::Credential(_) => {}
            }
        }
        self.write_sessions(sessions);
    }

    fn put_or_delete(&mut self, path: String, text: Option<String>) {
        self.changes.push(match text {
            Some(text) => FileChange::Put { path, text },
            None => FileChange::Delete { path },
        });
    }

    fn add_line(&mut self, table: &'static str, text: String) {
        let log = self.model.tables.entry(table).or_default();
        let at = log.bytes;
        log.bytes += text.len() as u64;
        self.changes.push(FileChange::Append { path: table.to_owned(), at, text });
    }

    fn write_run(&mut self, run: RunId, no: u64) {
        let Some(mut document) = self.model.state.run_document(run) else { return };
        document.log_bytes = self.model.logs.get(&run).copied().unwrap_or_default();
        document.calls = self.model.calls.count(run);
        document.written = no;
        self.changes.push(FileChange::Put { path: paths::row(run), text: json(&document) + "\n" });
    }

    /// The bytes of a file as this transaction leaves it.
    fn bytes(&self, path: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let before = self.model.bytes(path)?;
        let newer = self.changes.iter().filter(|change| change.path() == path);
        Ok(newer.fold(before, |bytes, change| change.made_of(bytes)))
    }

    fn links(&self, run: RunId) -> Result<Vec<Link>, StoreError> {
        let path = paths::log(run);
        let bytes = self.bytes(&path)?.unwrap_or_default();
        log::links(run, &bytes, Seq(0), usize::MAX).map_err(|why| self.model.corrupt(run, &path, &why))
    }

    /// The events of a run with their large values in place; none when they cannot be read.
    fn events(&self, run: RunId) -> Option<Vec<Envelope>> {
        let mut events = Vec::new();
        for link in self.links(run).ok()? {
            for mut envelope in link.events().ok()? {
                for name in envelope.event.blobs() {
                    let text = self.bytes(&paths::blob(run, name.digest)).ok()??;
                    // What is missing or changed stays a reference; whoever reads the run is notified.
                    let _ = envelope.event.fill(&name, std::str::from_utf8(&text).ok()?);
                }
                events.push(envelope);
            }
        }
        Some(events)
    }

    fn write_calls(&mut self) {
        let runs: Vec<RunId> = self
            .moved
            .iter()
            .copied()
            .filter(|run| self.may_have_calls.contains(run) || self.model.calls.has(*run))
            .collect();
        for run in runs {
            let Some(row) = self.model.state.any_row(run).cloned() else { continue };
            self.write_calls_of(&row);
        }
    }

    /// Makes the files of a run's calls what its log says.
    pub(super) fn write_calls_of(&mut self, row: &RunRow) {
        let facts = &row.run.facts;
        let records = if row.run.state.erased {
            Vec::new()
        } else {
            let Some(events) = self.events(facts.id) else { return };
            calls::records(facts, &events)
        };
        let mut gone = self.model.calls.of_run(facts.id);
        for record in records {
            gone.retain(|id| *id != record.id);
            let path = paths::call(&facts.tenant, record.id);
            if self.bytes(&path).ok().flatten().as_deref() != Some(record.text.as_bytes()) {
                self.changes.push(FileChange::Put { path, text: record.text });
            }
            self.model.calls.put(record.id, record.entry);
        }
        for id in gone {
            self.model.calls.forget(id);
            self.changes.push(FileChange::Delete { path: paths::call(&facts.tenant, id) });
        }
    }

    /// S2-42: calls that have been over for long are no longer shown; the log of their run keeps them.
    fn forget_calls(&mut self, keep: Option<Millis>) -> BTreeSet<RunId> {
        let past = keep.map(|keep| self.model.calls.past(keep, self.now)).unwrap_or_default();
        for id in &past {
            if let Some(entry) = self.model.calls.forget(*id) {
                self.changes.push(FileChange::Delete { path: paths::call(&entry.tenant, *id) });
            }
        }
        past.into_iter().map(|id| id.run).collect()
    }

    fn write_sessions(&mut self, touched: BTreeSet<SessionKey>) {
        let mut moved: BTreeMap<SessionKey, Vec<RunId>> =
            touched.iter().map(|key| (key.clone(), Vec::new())).collect();
        for run in &self.moved {
            if let Some(row) = self.model.state.any_row(*run) {
                moved.entry(SessionKey::of(&row.run.facts)).or_default().push(*run);
            }
        }
        for (key, runs) in moved {
            self.write_session(&key, &runs, &touched);
        }
    }

    fn write_session(&mut self, key: &SessionKey, runs: &[RunId], touched: &BTreeSet<SessionKey>) {
        let entry = self.model.sessions.entry(key);
        for run in runs {
            let row = self.model.state.any_row(*run);
            if row.is_some_and(|row| row.run.outcome().is_none()) {
                entry.open.insert(*run);
            } else {
                entry.open.remove(run);
            }
        }
        let open: Vec<&RunRow> = entry.open.iter().filter_map(|run| self.model.state.any_row(*run)).collect();
        let status = status_of(&open);
        let is_shown = |run: &RunId| entry.shown.contains(run);
        let is_held = |run: &RunId| self.model.state.any_row(*run).is_some_and(|row| is_held(&row.run));
        let changes_shown = runs.iter().any(|run| is_shown(run) || is_held(run));
        if !touched.contains(key) && !changes_shown && status == entry.status {
            return;
        }
        let (path, held): (String, Vec<RunId>) =
            (entry.path.clone(), runs.iter().copied().filter(is_held).collect());
        let before = self.bytes(&path).ok().flatten();
        let mut pending = before
            .and_then(|bytes| SessionFile::parse(&bytes).ok())
            .map(|file| file.pending_executions)
            .unwrap_or_default();
        runs.iter().for_each(|run| drop(pending.remove(run)));
        for run in held {
            pending.extend(self.execution_state(run).map(|state| (run, state)));
        }
        let Some(document) = self.model.state.session_document(key) else { return };
        let entry = self.model.sessions.entry(key);
        (entry.status, entry.shown) = (status.clone(), pending.keys().copied().collect());
        self.changes.push(FileChange::Put { path, text: SessionFile::text(document, &status, pending) });
    }

    /// What is needed to go on with a run that waits.
    fn execution_state(&self, run: RunId) -> Option<Box<RawValue>> {
        let row = self.model.state.any_row(run)?;
        let (tenant, digest) = (&row.run.facts.tenant, row.run.state.definition);
        let bytes = self.bytes(&paths::definition(tenant, digest, "json")).ok()??;
        let definition: Definition = serde_json::from_slice(&bytes).ok()?;
        let state = execution_state(&row.run, &definition, &self.events(run)?);
        RawValue::from_string(String::from_utf8(state.to_json()).ok()?).ok()
    }
}

fn is_held(run: &Run) -> bool {
    match status(run) {
        Status::Held(_) => true,
        Status::Queued | Status::Claimed | Status::Working | Status::Retrying(_) | Status::Ended(_) => false,
    }
}

/// What a batch writes beside the rows.
struct WrittenBatch {
    run: RunId,
    at: Timestamp,
    line: String,
    blobs: Vec<(standfast_core::digest::Digest, String)>,
    definitions: Vec<(Tenant, standfast_core::digest::Digest, Vec<u8>)>,
    may_have_calls: bool,
}

impl WrittenBatch {
    fn of(batch: &Batch) -> WrittenBatch {
        let mut written = WrittenBatch {
            run: batch.run(),
            at: batch.link.header.at,
            line: log::line(&batch.link),
            blobs: Vec::new(),
            definitions: Vec::new(),
            may_have_calls: batch.holds.iter().any(is_external),
        };
        written.may_have_calls |=
            written.line.as_bytes().windows(PENDING.len()).any(|window| window == PENDING);
        for put in &batch.puts {
            match put {
                SideWrite::Blob(blob) => written.blobs.push((blob.name.digest, blob.text.clone())),
                SideWrite::Definition { digest, bytes } => {
                    written.definitions.push((batch.tenant().clone(), *digest, bytes.to_vec()));
                }
                SideWrite::Key { .. }
                | SideWrite::Notice(_)
                | SideWrite::Audience { .. }
                | SideWrite::Wake { .. } => {}
            }
        }
        written
    }
}

fn is_external(change: &HoldChange) -> bool {
    let (HoldChange::Open(row) | HoldChange::Update(row) | HoldChange::Close(row)) = change;
    row.kind == HoldKind::External
}

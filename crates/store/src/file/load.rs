//! Opening a folder: the journal is made good, then every file is read once.
//!
//! What is damaged is said with the name of its file. Files of one run put that run aside and no other (its row, its log);
//! files that many runs need are refused as a whole. Files that follow from the log (calls) are made again from it, which
//! is said too.

use std::collections::BTreeSet;
use std::io;

use standfast_core::apply;
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::link::Contents;
use standfast_core::name::Tenant;
use standfast_core::project::{self, RunRow};
use standfast_core::run::FOLD_VERSION;

use super::documents::{AuditLine, KeyDocument, SealedDocument, SubscriptionDocument, TableLine};
use super::folder::{FileChange, Folder, UnsyncedPaths};
use super::journal::{self, FORMAT, JOURNAL, Journal, ROW_AUDIT, SEALED_AUDIT, WriteFailure};
use super::model::{FileDamage, Model, TableLog, UnreadableFiles};
use super::sessions::SessionFile;
use super::transaction::Transaction;
use super::{FileOptions, OpenError, audit, log, paths};
use crate::memory::state::{LetterDocument, NoticeDocument, RunDocument};
use crate::query::{SealedChange, SessionKey};
use crate::row_audit::{Adoption, RowEntry};

/// An open folder.
pub(super) struct OpenFolder {
    pub(super) model: Model,
    pub(super) journal: Journal,
}

/// Makes the journal good and reads everything.
pub(super) fn open(folder: Folder, options: &FileOptions) -> Result<OpenFolder, OpenError> {
    let unusable = |error: std::io::Error| OpenError::unusable(folder.named(), error);
    let (format, no, last_number) = match journal::read(&folder)? {
        None => {
            check_new(&folder)?;
            (FORMAT, 0, 0)
        }
        Some(found) => {
            if found.torn > 0 {
                folder.report(&format!(
                    "{}: the last {} bytes were cut by a crash before they were acknowledged; dropped",
                    folder.at(JOURNAL).display(),
                    found.torn
                ));
            }
            let mut unsynced = UnsyncedPaths::default();
            for change in &found.changes {
                let path = folder.at(change.path());
                folder.make(change, &mut unsynced).map_err(|error| OpenError::unusable(&path, error))?;
            }
            folder.sync(&unsynced).map_err(unusable)?;
            (found.format, found.no, found.last_number)
        }
    };
    let mut model = read_all(&folder, no)?;
    model.state.number_after(last_number);
    let from = (no, model.state.last_number());
    let mut journal = Journal::begin(&folder, format, from, options.room).map_err(unusable)?;
    if format < SEALED_AUDIT {
        let adoption = if format < ROW_AUDIT { Adoption::Everything } else { Adoption::Sealed };
        let unsaid = audit::rows(folder.named())?.unsaid(adoption);
        journal = adopt_rows(&folder, &mut model, journal, unsaid).map_err(unusable)?;
    }
    Ok(OpenFolder { model, journal })
}

/// Takes rows into the audit that an older version wrote, whose audit has no entries for them. The journal has its new format
/// only after that: a crash in between begins it again.
fn adopt_rows(
    folder: &Folder,
    model: &mut Model,
    mut journal: Journal,
    unsaid: Vec<(Tenant, RowEntry)>,
) -> io::Result<Journal> {
    let mut transaction = Transaction::on(model);
    for (tenant, row) in unsaid {
        transaction.put_row(tenant, &row);
    }
    let changes = std::mem::take(&mut transaction.changes);
    model.state.take_touched();
    let last_number = model.state.last_number();
    if !changes.is_empty() {
        journal.write(last_number, &changes).map_err(|failure| match failure {
            WriteFailure::Nothing(error) | WriteFailure::Unknown(error) => error,
        })?;
        journal.sync()?;
        let mut unsynced = UnsyncedPaths::default();
        changes.iter().try_for_each(|change| folder.make(change, &mut unsynced))?;
        folder.sync(&unsynced)?;
    }
    Journal::begin(folder, FORMAT, (journal.no(), last_number), journal.room())
}

/// A folder without a journal must be empty.
fn check_new(folder: &Folder) -> Result<(), OpenError> {
    let unusable = |error: std::io::Error| OpenError::unusable(folder.named(), error);
    let names = folder.names("").map_err(unusable)?;
    if names.iter().any(|name| name == paths::RUNS) {
        let why = "it is missing, and there are runs in the folder; restore it from the backup that the runs are from";
        return Err(OpenError::unusable(&folder.at(JOURNAL), why));
    }
    // A key may have been made before the first start.
    match names.iter().find(|name| !["lock", "credential"].contains(&name.as_str())) {
        Some(name) => {
            let why = format!(
                "it is not the folder of a file store, and not empty: `{name}` is in it; name another folder"
            );
            Err(OpenError::unusable(folder.named(), why))
        }
        None => Ok(()),
    }
}

/// Reads everything, as of transaction `no`.
pub(super) fn read_all(folder: &Folder, no: u64) -> Result<Model, OpenError> {
    let mut loader = Loader { model: Model::empty(folder.clone()), no, wanted_calls: Vec::new() };
    loader.runs()?;
    loader.tables()?;
    let mut bases = vec![String::new()];
    for name in loader.names(paths::TENANTS)? {
        bases.push(format!("{}/{name}/", paths::TENANTS));
    }
    for base in &bases {
        loader.sessions(base)?;
        loader.subscriptions(base)?;
        loader.sealed(base)?;
        loader.audit(base)?;
    }
    loader.open_runs()?;
    let damaged = bases.iter().map(|base| loader.calls(base)).collect::<Result<Vec<_>, _>>()?;
    loader.mend_calls(damaged.into_iter().flatten().collect())?;
    loader.model.state.take_touched();
    Ok(loader.model)
}

struct Loader {
    model: Model,
    no: u64,
    /// How many calls each run says that it has.
    wanted_calls: Vec<(RunId, u32)>,
}

impl Loader {
    fn refused(&self, path: &str, why: impl ToString) -> OpenError {
        OpenError::unusable(&self.model.folder.at(path), why)
    }

    fn names(&self, path: &str) -> Result<Vec<String>, OpenError> {
        self.model.folder.names(path).map_err(|error| self.refused(path, error))
    }

    fn bytes(&self, path: &str) -> Result<Option<Vec<u8>>, OpenError> {
        self.model.folder.read(path).map_err(|error| self.refused(path, error))
    }

    /// A document that many need.
    fn document<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, OpenError> {
        let bytes = self.bytes(path)?.unwrap_or_default();
        serde_json::from_slice(&bytes).map_err(|error| self.refused(path, damaged(&error.to_string())))
    }

    fn runs(&mut self) -> Result<(), OpenError> {
        let mut ids = BTreeSet::new();
        for name in self.names(paths::RUNS)? {
            let id = name.strip_suffix(".jsonl").or_else(|| name.strip_suffix(".json"));
            let id = id.and_then(|id| id.parse::<RunId>().ok());
            ids.insert(id.ok_or_else(|| {
                self.refused(
                    &format!("{}/{name}", paths::RUNS),
                    "it is not the file of a run; move it elsewhere",
                )
            })?);
        }
        for run in ids {
            let length = std::fs::metadata(self.model.folder.at(&paths::log(run))).map(|found| found.len());
            if let Ok(length) = length {
                self.model.logs.insert(run, length);
            }
            let path = paths::row(run);
            let bytes = self.bytes(&path)?;
            let document = match bytes {
                None => Err("it is missing".to_owned()),
                Some(bytes) => {
                    serde_json::from_slice::<RunDocument>(&bytes).map_err(|error| error.to_string())
                }
            };
            let taken = match document {
                Ok(document) if document.id == run => self.run(document)?,
                Ok(document) => Err((path, format!("it is about run {}", document.id))),
                Err(why) => Err((path, why)),
            };
            if let Err((path, why)) = taken {
                let why = format!("{path}: {}", damaged(&why));
                let facts = self.folded(run).ok().map(|row| row.run.facts.clone());
                let files = UnreadableFiles { facts, why: FileDamage::Damaged(why) };
                self.model.unreadable.insert(run, files);
            }
        }
        Ok(())
    }

    /// Takes a run; or which of its files says what that cannot be.
    fn run(&mut self, document: RunDocument) -> Result<Result<(), (String, String)>, OpenError> {
        let run = document.id;
        if document.written > self.no {
            let why = format!(
                "its last transaction is {}, and run {run} was written by {}: its end is missing; restore the folder from a \
                 backup",
                self.no, document.written
            );
            return Err(self.refused(JOURNAL, why));
        }
        self.model.state.number_after(document.no);
        if document.fold > FOLD_VERSION {
            let (facts, why) = (Some(document.facts()), FileDamage::Newer(document.fold));
            self.model.unreadable.insert(run, UnreadableFiles { facts, why });
            return Ok(Ok(()));
        }
        let length = self.model.logs.get(&run).copied().unwrap_or_default();
        if length != document.log_bytes {
            let why = format!("it has {length} bytes, and {} were written", document.log_bytes);
            return Ok(Err((paths::log(run), why)));
        }
        let (calls, path) = (document.calls, paths::row(run));
        let row = if document.fold < FOLD_VERSION && !document.erased {
            self.folded(run).map_err(|why| (paths::log(run), why))
        } else {
            document.row().map_err(|why| (path.clone(), why))
        };
        let row = match row {
            Ok(row) => row,
            Err(wrong) => return Ok(Err(wrong)),
        };
        if let Err(why) = self.model.state.restore_run(document, row) {
            return Ok(Err((path, why)));
        }
        self.wanted_calls.push((run, calls));
        Ok(Ok(()))
    }

    /// The row that the log of a run folds into.
    fn folded(&self, run: RunId) -> Result<RunRow, String> {
        let bytes = self.model.folder.read(&paths::log(run)).map_err(|error| error.to_string())?;
        let links = log::links(run, &bytes.unwrap_or_default(), Seq(0), usize::MAX)?;
        let mut events = Vec::new();
        for link in &links {
            if matches!(link.contents, Contents::Erased { .. }) {
                return Err("its events were erased".into());
            }
            events.extend(link.events().map_err(|bad| bad.to_string())?);
        }
        let folded = apply::fold(run, &events).zip(links.last());
        let (folded, last) = folded.ok_or("its events do not begin a run")?;
        Ok(project::run_row(folded, last.hash))
    }

    fn tables(&mut self) -> Result<(), OpenError> {
        for table in [paths::KEYS, paths::COUNTERS, paths::NOTICES] {
            let bytes = self.bytes(table)?.unwrap_or_default();
            let length = bytes.len() as u64;
            self.model.tables.insert(table, TableLog { bytes: length, compact: 0 });
            let rows = TableLine::table(&bytes).map_err(|why| self.refused(table, damaged(&why)))?;
            for (of, value) in rows {
                self.table_row(table, &of, value).map_err(|why| self.refused(table, damaged(&why)))?;
            }
        }
        Ok(())
    }

    fn table_row(
        &mut self,
        table: &'static str,
        of: &[String],
        value: serde_json::Value,
    ) -> Result<(), String> {
        let [first, second] = of else { return Err(format!("nothing is called {of:?}")) };
        let tenant = || Tenant::new(first.as_str()).map_err(|error| error.to_string());
        let number = || second.parse::<i64>().map_err(|error| error.to_string());
        let bad = |error: serde_json::Error| error.to_string();
        let state = &mut self.model.state;
        match (table, first.as_str()) {
            (paths::KEYS, _) => {
                let record: KeyDocument = serde_json::from_value(value).map_err(bad)?;
                state.restore_key(tenant()?, second.clone(), record.record());
            }
            (paths::COUNTERS, _) => {
                let count: i64 = serde_json::from_value(value).map_err(bad)?;
                state.restore_counter(tenant()?, second.clone(), count);
            }
            (_, "notice") => {
                let document: NoticeDocument = serde_json::from_value(value).map_err(bad)?;
                state.restore_notice(number()?, document);
            }
            (_, "letter") => {
                let document: LetterDocument = serde_json::from_value(value).map_err(bad)?;
                state.restore_letter(number()?, document);
            }
            (_, other) => return Err(format!("nothing is called `{other}`")),
        }
        Ok(())
    }

    fn sessions(&mut self, base: &str) -> Result<(), OpenError> {
        let folder = format!("{base}session");
        for agent in self.names(&folder)? {
            for name in self.names(&format!("{folder}/{agent}"))? {
                let path = format!("{folder}/{agent}/{name}");
                let bytes = self.bytes(&path)?.unwrap_or_default();
                let file = SessionFile::parse(&bytes).map_err(|why| self.refused(&path, damaged(&why)))?;
                let (key, status) = (file.key(), file.status().to_owned());
                self.model.sessions.enter(key.clone(), path.clone());
                let entry = self.model.sessions.entry(&key);
                (entry.status, entry.shown) = (status, file.pending_executions.keys().copied().collect());
                if self.model.state.session(&key).is_some() {
                    return Err(
                        self.refused(&path, "another file is about the same session; remove the copy")
                    );
                }
                self.model.state.restore_session(file.document());
            }
        }
        Ok(())
    }

    /// Which runs of which session are not over.
    fn open_runs(&mut self) -> Result<(), OpenError> {
        let runs: Vec<RunId> = self.model.state.run_ids().collect();
        for run in runs {
            let Some(row) = self.model.state.any_row(run) else { continue };
            let (key, is_over) = (SessionKey::of(&row.run.facts), row.run.outcome().is_some());
            if self.model.state.session(&key).is_none() {
                let why = format!("it is missing, and run {run} belongs to it; restore it from a backup");
                return Err(self.refused(&paths::session(&key), why));
            }
            if !is_over {
                self.model.sessions.entry(&key).open.insert(run);
            }
        }
        Ok(())
    }

    fn subscriptions(&mut self, base: &str) -> Result<(), OpenError> {
        for name in self.names(&format!("{base}subscription"))? {
            let path = format!("{base}subscription/{name}");
            let document: SubscriptionDocument = self.document(&path)?;
            let one = document.subscription().map_err(|why| self.refused(&path, damaged(&why)))?;
            self.model.state.put_subscription(one);
        }
        Ok(())
    }

    fn sealed(&mut self, base: &str) -> Result<(), OpenError> {
        for name in self.names(&format!("{base}sealed"))? {
            let SealedDocument { tenant, name, value } = self.document(&format!("{base}sealed/{name}"))?;
            let change = SealedChange { tenant, name, before: None, after: Some(value) };
            self.model.state.change_sealed(change);
        }
        Ok(())
    }

    fn audit(&mut self, base: &str) -> Result<(), OpenError> {
        let path = format!("{base}audit.jsonl");
        let Some(bytes) = self.bytes(&path)? else { return Ok(()) };
        let entries = AuditLine::entries(&bytes).map_err(|why| self.refused(&path, damaged(&why)))?;
        if let Some((tenant, last)) = entries.into_iter().next_back() {
            self.model.audits.insert(tenant.clone(), bytes.len() as u64);
            self.model.state.restore_audit(tenant, last);
        }
        Ok(())
    }

    /// Takes the files of calls into the index; the runs of those that cannot be read.
    fn calls(&mut self, base: &str) -> Result<Vec<RunId>, OpenError> {
        let folder = format!("{base}pending_tool");
        let mut damaged = Vec::new();
        for name in self.names(&folder)? {
            let path = format!("{folder}/{name}");
            let id = name.strip_suffix(".json").and_then(|id| id.parse::<HoldId>().ok());
            let Some(id) = id else {
                if name == "index.json" {
                    continue;
                }
                return Err(self.refused(&path, "it is not the file of a call; move it elsewhere"));
            };
            let Some(facts) = self.model.facts(id.run) else {
                if self.model.unreadable.contains_key(&id.run) {
                    continue;
                }
                let row = self.model.folder.at(&paths::row(id.run));
                let why =
                    format!("its run has no files: {} is missing; restore it from a backup", row.display());
                return Err(self.refused(&path, why));
            };
            let bytes = self.bytes(&path)?.unwrap_or_default();
            if let Err(why) = self.model.calls.take_file(&facts.tenant, &bytes) {
                let folder = &self.model.folder;
                let path = folder.at(&path);
                folder.report(&format!("{}: {why}; rebuilding it from the log of its run", path.display()));
                damaged.push(id.run);
            }
        }
        Ok(damaged)
    }

    /// Makes the files of calls again that are damaged or missing.
    fn mend_calls(&mut self, damaged: BTreeSet<RunId>) -> Result<(), OpenError> {
        let wanted = std::mem::take(&mut self.wanted_calls);
        let missing = wanted.into_iter().filter(|(run, count)| self.model.calls.count(*run) < *count);
        let runs: BTreeSet<RunId> = missing.map(|(run, _)| run).chain(damaged).collect();
        let rows: Vec<RunRow> =
            runs.iter().filter_map(|run| self.model.state.any_row(*run).cloned()).collect();
        let mut transaction = Transaction::on(&mut self.model);
        rows.iter().for_each(|row| transaction.write_calls_of(row));
        let changes: Vec<FileChange> = std::mem::take(&mut transaction.changes);
        let mut unsynced = UnsyncedPaths::default();
        for change in &changes {
            let made = self.model.folder.make(change, &mut unsynced);
            made.map_err(|error| self.refused(change.path(), error))?;
        }
        self.model.folder.sync(&unsynced).map_err(|error| self.refused("pending_tool", error))
    }
}

fn damaged(why: &str) -> String {
    format!("it is damaged ({why}); restore it from a backup")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::support::{NewRun, Scribe, block_on};
    use crate::contract::{DeliveryStore, RunStore, SecretStore, SessionStore};
    use crate::file::FileStore;
    use crate::query::SessionChange;
    use crate::subscription::{Scope, Subscription};

    /// T32: rows that the version before wrote are taken into the audit when the folder is opened, once.
    #[test]
    fn rows_of_an_older_version_are_taken_into_the_audit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let store = FileStore::open(&FileOptions::at(path)).unwrap();
        let subscription = Subscription {
            tenant: Tenant::default_tenant(),
            id: "sub-1".into(),
            scope: Scope::Tenant,
            owner: "ann".into(),
            wants: 1,
            is_active: true,
            facts: "{}".into(),
        };
        assert!(block_on(store.put_subscription(subscription)).unwrap());
        let mut scribe = Scribe::new(5);
        let notes = SessionChange::Metadata { before: "{}".into(), after: "{\"a\": 1}".into() };
        for (session, change) in [("with-notes", notes), ("closed", SessionChange::Close)] {
            let mut batch = scribe.start(&NewRun::of("helper").in_session(session));
            batch.puts.push(scribe.pinned(&batch.row));
            let key = SessionKey::of(&batch.row.run.facts);
            block_on(store.append(vec![batch])).unwrap();
            assert!(block_on(store.change_session(key, change, scribe.now)).unwrap());
        }
        let tenant = Tenant::default_tenant();
        let book =
            SealedChange { tenant, name: "grants a".into(), before: None, after: Some("sealed".into()) };
        assert!(block_on(store.change_sealed(book)).unwrap());
        drop(store);
        let findings = || audit::verify(path, |_| {}).unwrap().findings.len();
        let entries = || std::fs::read_to_string(path.join("audit.jsonl")).unwrap_or_default();
        assert_eq!((findings(), entries().lines().count()), (0, 4));
        // As the version before left it: a journal of the earlier format, and no entries.
        std::fs::remove_file(path.join("audit.jsonl")).unwrap();
        assert_eq!(findings(), 4);
        let folder = Folder::open(path).unwrap();
        let found = journal::read(&folder).unwrap().unwrap();
        Journal::begin(&folder, 1, (found.no, found.last_number), None).unwrap();
        assert_eq!(findings(), 0);
        for _ in 0..2 {
            drop(FileStore::open(&FileOptions::at(path)).unwrap());
            assert_eq!((findings(), entries().matches("adopted").count()), (0, 4));
        }
        assert_eq!(journal::read(&folder).unwrap().unwrap().format, FORMAT);
        std::fs::remove_file(path.join("audit.jsonl")).unwrap();
        drop(FileStore::open(&FileOptions::at(path)).unwrap());
        assert_eq!(findings(), 4);
        // As the version left it whose audit spoke of all but sealed documents: those alone are taken in.
        let found = journal::read(&folder).unwrap().unwrap();
        Journal::begin(&folder, 2, (found.no, found.last_number), None).unwrap();
        assert_eq!(findings(), 3);
        drop(FileStore::open(&FileOptions::at(path)).unwrap());
        assert_eq!((findings(), entries().lines().count()), (3, 1));
    }
}

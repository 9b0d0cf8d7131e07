//! The writer: one thread, one line in the journal for everything that waits, an answer after its sync.
//!
//! It has the rows for itself while it works: whoever reads sees what is durable and nothing else. A failed sync is fatal:
//! the kernel may have dropped the pages, so nothing that this process believes about the folder can be trusted any more.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use standfast_core::time::Millis;
use tokio::sync::{RwLock, oneshot};

use super::documents::TableLine;
use super::folder::{FileChange, Folder, UnsyncedPaths};
use super::journal::{FORMAT, JOURNAL, Journal, WriteFailure};
use super::load::{self, OpenFolder};
use super::model::{Model, TableLog};
use super::redis::{IndexJob, RedisIndex};
use super::resp::RedisAddress;
use super::transaction::Transaction;
use super::{FileOptions, OpenError, paths};
use crate::contract::Answer;
use crate::error::StoreError;
use crate::observer::Observer;

/// How many operations share a sync at most: bounds the time until the first of them is answered.
const GROUP_MAX: usize = 512;

/// Bytes of the journal after which the files are synced and it starts over.
const CHECKPOINT_BYTES: u64 = 8 * 1024 * 1024;

/// Groups after which the index is written although more waits.
const INDEX_EVERY: usize = 32;

/// Answers once it is known whether the transaction is durable.
type Completion = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Does something in a transaction, or hears why it is not done.
type Work = Box<dyn FnOnce(Result<&mut Transaction<'_>, StoreError>) -> Completion + Send>;

/// Something for the writer to do.
pub(super) struct Job {
    /// What it does.
    run: Work,
    /// Whether its answer means that it survives a crash of the machine.
    durability: Durability,
}

/// What an answer promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// It is synced.
    Synced,
    /// It is synced with the next one that is.
    WithTheNext,
}

/// The handle of the writer's thread. Dropping it lets the thread finish what is pending and stop.
pub(super) struct Writer {
    queue: Option<SyncSender<Job>>,
    stopped: Arc<OnceLock<String>>,
    thread: Option<JoinHandle<()>>,
    folder: Folder,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("stopped", &self.stopped.get()).finish_non_exhaustive()
    }
}

/// A writer at work, what it writes, and the Redis that follows it.
pub(super) struct RunningWriter {
    pub(super) writer: Writer,
    pub(super) model: Arc<RwLock<Model>>,
    pub(super) redis: Option<RedisIndex>,
}

impl Writer {
    pub(super) fn start(
        opened: OpenFolder,
        lock: File,
        options: &FileOptions,
    ) -> Result<RunningWriter, OpenError> {
        let folder = opened.model.folder.clone();
        let stopped = Arc::new(OnceLock::new());
        let mut model = opened.model;
        if options.redis.is_some() {
            model.calls.remember_changes();
        }
        let model = Arc::new(RwLock::new(model));
        let redis = match &options.redis {
            None => None,
            Some(url) => {
                let address = RedisAddress::parse(url).map_err(|why| OpenError::Redis { why })?;
                let started = RedisIndex::start(address, model.clone(), folder.clone());
                Some(started.map_err(|error| OpenError::unusable(folder.named(), error))?)
            }
        };
        let state = WriterState {
            model: model.clone(),
            folder: folder.clone(),
            journal: opened.journal,
            unsynced: UnsyncedPaths::default(),
            stopped: stopped.clone(),
            observer: options.observer.clone(),
            keep_settled: options.keep_settled,
            groups: 0,
            redis: redis.clone(),
            _lock: lock,
        };
        let (sender, receiver) = sync_channel(options.queue);
        let thread = std::thread::Builder::new().name("standfast-files".into());
        let thread = thread.spawn(move || state.run(&receiver));
        let thread = thread.map_err(|error| OpenError::unusable(folder.named(), error))?;
        Ok(RunningWriter {
            writer: Writer { queue: Some(sender), stopped, thread: Some(thread), folder },
            model,
            redis,
        })
    }

    /// Queues an operation at once; the future is only about its answer.
    pub(super) fn hand_over<T: Send + 'static>(
        &self,
        durability: Durability,
        operation: impl FnOnce(&mut Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        if let Some(why) = self.stopped() {
            return refused(stopped_error(&why));
        }
        if let Err(why) = self.folder.check_room() {
            return refused(StoreError::unavailable(why));
        }
        let Some(queue) = &self.queue else { return refused(StoreError::unavailable("the store is closed")) };
        let run = Box::new(move |work: Result<&mut Transaction<'_>, StoreError>| -> Completion {
            let result = work.and_then(operation);
            Box::new(move |committed: Result<(), StoreError>| {
                // Whoever asked may be gone.
                let _ = reply.send(result.and_then(|done| committed.map(|()| done)));
            })
        });
        match queue.try_send(Job { run, durability }) {
            Ok(()) => Box::pin(async move {
                answer.await.unwrap_or_else(|_| {
                    Err(StoreError::Unknown { why: "the writer ended before it answered".into() })
                })
            }),
            Err(TrySendError::Full(_)) => {
                refused(StoreError::unavailable("too many appends wait for the disk; try again in a moment"))
            }
            Err(TrySendError::Disconnected(_)) => refused(StoreError::unavailable("the writer has ended")),
        }
    }

    pub(super) fn stopped(&self) -> Option<String> {
        self.stopped.get().cloned()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // A panic in the thread was reported when it happened; there is nobody left to tell.
            let _ = thread.join();
        }
    }
}

fn refused<T: Send + 'static>(error: StoreError) -> Answer<T> {
    Box::pin(std::future::ready(Err(error)))
}

fn stopped_error(why: &str) -> StoreError {
    StoreError::unavailable(format!("the store stopped writing: {why}; restart the server"))
}

struct WriterState {
    model: Arc<RwLock<Model>>,
    folder: Folder,
    journal: Journal,
    unsynced: UnsyncedPaths,
    stopped: Arc<OnceLock<String>>,
    observer: Option<Arc<dyn Observer>>,
    keep_settled: Option<Millis>,
    /// Groups since the index was last written.
    groups: usize,
    redis: Option<RedisIndex>,
    _lock: File,
}

impl WriterState {
    fn run(mut self, queue: &Receiver<Job>) {
        self.write_index();
        while let Ok(first) = queue.recv() {
            let mut next = Some(first);
            while let Some(first) = next {
                let mut group = vec![first];
                while group.len() < GROUP_MAX
                    && let Ok(one) = queue.try_recv()
                {
                    group.push(one);
                }
                self.commit(group);
                self.groups += 1;
                if self.journal.length() > CHECKPOINT_BYTES && self.stopped.get().is_none() {
                    self.checkpoint();
                }
                next = queue.try_recv().ok();
                // The index waits for a quiet moment, within bounds.
                if (next.is_none() || self.groups >= INDEX_EVERY) && self.stopped.get().is_none() {
                    self.write_index();
                }
            }
        }
        if self.stopped.get().is_none() {
            // The next start would make everything from the journal just as well.
            self.checkpoint();
            self.write_index();
        }
    }

    fn stop(&self, why: String) -> StoreError {
        self.folder.report(&format!("the file store stopped writing: {why}"));
        let why = self.stopped.get_or_init(|| why);
        stopped_error(why)
    }

    /// One transaction for all of them.
    fn commit(&mut self, group: Vec<Job>) {
        let model = self.model.clone();
        let mut model = model.blocking_write();
        if let Some(why) = self.stopped.get() {
            let error = stopped_error(why);
            return refuse(group, &error);
        }
        if let Err(why) = self.folder.check().and_then(|()| self.journal.check(&self.folder)) {
            let error = self.stop(format!("{why}, so nothing more can be kept in it"));
            return refuse(group, &error);
        }
        let needs_sync = group.iter().any(|job| job.durability == Durability::Synced);
        let durability = if needs_sync { Durability::Synced } else { Durability::WithTheNext };
        let mut transaction = Transaction::on(&mut model);
        let mut completions = Vec::new();
        for job in group {
            completions.push((job.run)(Ok(&mut transaction)));
            transaction.gather();
        }
        transaction.write_out(self.journal.no() + 1, self.keep_settled);
        let changes = std::mem::take(&mut transaction.changes);
        let has_erased = transaction.has_erased;
        let result = self.make_durable(&mut model, changes, durability);
        if result.is_ok() && has_erased {
            self.checkpoint_of(&mut model);
        }
        let changed = model.calls.take_changes();
        drop(model);
        // S2-26: the files first, then Redis.
        if let (Some(redis), false) = (&self.redis, changed.is_empty()) {
            redis.tell(IndexJob::Changed(changed));
        }
        if let (Ok(()), Some(observer)) = (&result, &self.observer) {
            observer.committed(completions.len());
        }
        for completion in completions {
            completion(result.clone());
        }
    }

    /// Into the journal, synced, then into the files.
    fn make_durable(
        &mut self,
        model: &mut Model,
        changes: Vec<FileChange>,
        durability: Durability,
    ) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        match self.journal.write(model.state.last_number(), &changes) {
            Ok(()) => {}
            Err(WriteFailure::Nothing(error)) => {
                self.undo(model)?;
                return Err(StoreError::unavailable(self.sentence(&error)));
            }
            Err(WriteFailure::Unknown(error)) => {
                return Err(self.lose(model, format!("the journal could not be written ({error})")));
            }
        }
        if durability == Durability::WithTheNext {
            model.unmade.extend(changes);
            return Ok(());
        }
        if let Err(error) = self.journal.sync() {
            return Err(self.lose(model, format!("a sync of the journal failed ({error})")));
        }
        // Durable is what can be found again: a folder that lost its name meanwhile ends with this process.
        if let Err(why) = self.folder.check().and_then(|()| self.journal.check(&self.folder)) {
            return Err(self.lose(model, why));
        }
        model.unmade.extend(changes);
        self.make(model);
        Ok(())
    }

    /// Nobody knows whether a transaction is durable: nothing more is written, and nobody is shown what it did.
    fn lose(&self, model: &mut Model, why: String) -> StoreError {
        let error = StoreError::Unknown { why: self.stop(why.clone()).to_string() };
        match load::read_all(&self.folder, self.journal.no()) {
            Ok(read) => *model = read,
            Err(_) => model.lost = Some(why),
        }
        error
    }

    /// Makes the changes in the files. What cannot be made now stays readable from the journal and is made later.
    fn make(&mut self, model: &mut Model) {
        let mut unmade = std::mem::take(&mut model.unmade).into_iter();
        for change in unmade.by_ref() {
            if let Err(error) = self.folder.make(&change, &mut self.unsynced) {
                let path = self.folder.at(change.path());
                if !is_full(&error) {
                    self.stop(format!("{} could not be written ({error})", path.display()));
                }
                model.unmade.push(change);
                break;
            }
        }
        model.unmade.extend(unmade);
    }

    /// The rows as they are in the files: a transaction that was refused is undone.
    fn undo(&mut self, model: &mut Model) -> Result<(), StoreError> {
        let made = model.unmade.iter().try_for_each(|change| self.folder.make(change, &mut self.unsynced));
        let last = model.state.last_number();
        let read = made.map_err(|error| error.to_string()).and_then(|()| {
            load::read_all(&self.folder, self.journal.no()).map_err(|error| error.to_string())
        });
        match read {
            Ok(read) => {
                *model = read;
                if let Some(redis) = &self.redis {
                    model.calls.remember_changes();
                    redis.tell(IndexJob::Wrong);
                }
            }
            Err(why) => return Err(self.stop(format!("a refused transaction could not be undone ({why})"))),
        }
        model.state.number_after(last);
        Ok(())
    }

    fn sentence(&self, error: &io::Error) -> String {
        let named = self.folder.named().display();
        if is_full(error) {
            format!("the disk of {named} is full ({error}); free some space, nothing else is needed")
        } else {
            format!("the journal of {named} could not be written ({error})")
        }
    }

    fn checkpoint(&mut self) {
        let model = self.model.clone();
        self.checkpoint_of(&mut model.blocking_write());
    }

    /// Everything into its own file and synced; then the journal starts over.
    fn checkpoint_of(&mut self, model: &mut Model) {
        if let Err(error) = self.journal.sync() {
            self.stop(format!("a sync of the journal failed ({error})"));
            return;
        }
        self.make(model);
        if !model.unmade.is_empty() || self.stopped.get().is_some() {
            // There was no room: the journal keeps them.
            return;
        }
        let unsynced = std::mem::take(&mut self.unsynced);
        if let Err(error) = self.folder.sync(&unsynced) {
            self.stop(format!("a sync of the files failed ({error})"));
            return;
        }
        let from = (self.journal.no(), model.state.last_number());
        match Journal::begin(&self.folder, FORMAT, from, self.journal.room()) {
            Ok(journal) => self.journal = journal,
            Err(error) if is_full(&error) => return,
            Err(error) => {
                self.stop(format!(
                    "the journal {} could not be restarted ({error})",
                    self.folder.at(JOURNAL).display()
                ));
                return;
            }
        }
        self.compact(model);
    }

    /// Rewrites tables that consist mostly of what is gone.
    fn compact(&mut self, model: &mut Model) {
        let mut changes = Vec::new();
        for table in [paths::KEYS, paths::COUNTERS, paths::NOTICES] {
            let log = model.tables.get(table).copied().unwrap_or_default();
            if !log.is_stale() {
                continue;
            }
            let Ok(Some(bytes)) = model.bytes(table) else { continue };
            let Ok(text) = TableLine::compacted(&bytes) else { continue };
            let bytes = text.len() as u64;
            model.tables.insert(table, TableLog { bytes, compact: bytes });
            changes.push(FileChange::Put { path: table.to_owned(), text });
        }
        if let Err(error) = self.make_durable(model, changes, Durability::Synced) {
            self.folder.report(&format!("the tables of the file store could not be rewritten: {error}"));
        }
    }

    /// The index follows from the files of calls, so it is neither in the journal nor synced.
    fn write_index(&mut self) {
        self.groups = 0;
        let stale = self.model.blocking_write().calls.take_stale();
        for (tenant, text) in stale {
            let change = FileChange::Put { path: paths::call_index(&tenant), text };
            if let Err(error) = self.folder.make(&change, &mut self.unsynced) {
                let path = self.folder.at(change.path());
                self.folder.report(&format!("{} could not be written ({error})", path.display()));
            }
        }
    }
}

/// Answers everything that waits with a refusal.
fn refuse(group: Vec<Job>, error: &StoreError) {
    group.into_iter().for_each(|job| (job.run)(Err(error.clone()))(Ok(())));
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

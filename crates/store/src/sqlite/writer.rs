//! The writer: one thread, one transaction for everything that waits, an answer after COMMIT.
//!
//! Group commit is what lets many runs share one sync. A failed sync is fatal: the kernel may have dropped the pages,
//! so nothing that this process believes about the file can be trusted any more.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use rusqlite::config::DbConfig;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, ErrorCode, ffi};
use standfast_core::id::RunId;
use tokio::sync::oneshot;

use super::append::{self, EncodedBatch};
use super::files::OpenFiles;
use super::gather::{self, Bell, GROUP_MAX, GroupGatherer, Interest};
use super::job::{Failure, HandedOver, Job, JobResult, Reply};
use super::names::Texts;
use super::payload_keys::PayloadKeys;
use super::schema::{OpenError, OpenFile};
use super::tally::{Tallies, Tally};
use super::writer_memory::WriterMemory;
use super::{SqliteOptions, efforts};
use crate::contract::Answer;
use crate::error::StoreError;
use crate::observer::{self, Effort, Observer};

/// WAL pages after which they are moved into the file.
const CHECKPOINT_PAGES: i32 = 4000;

/// The handle of the writer's thread. Dropping it lets the thread finish what is pending and stop.
pub(super) struct Writer {
    queue: Option<Arc<SyncSender<Job>>>,
    bell: Arc<Bell>,
    stopped: Arc<OnceLock<String>>,
    /// The last write found the disk full.
    is_full: Arc<AtomicBool>,
    /// Commits that put notices.
    notices: Arc<AtomicU64>,
    files: OpenFiles,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("stopped", &self.stopped.get()).finish_non_exhaustive()
    }
}

impl Writer {
    pub(super) fn start(
        file: OpenFile,
        options: &SqliteOptions,
        keys: Option<Arc<PayloadKeys>>,
        tallies: Arc<Tallies>,
    ) -> Result<Writer, OpenError> {
        let (sender, receiver) = sync_channel(options.queue);
        let (stopped, bell) = (Arc::new(OnceLock::new()), Arc::new(Bell::default()));
        let is_full = Arc::new(AtomicBool::new(false));
        let notices = Arc::new(AtomicU64::new(0));
        let files = file.files.clone();
        let path = file.connection.path().unwrap_or_default().to_owned();
        let texts = Texts::with(keys);
        let thread = std::thread::Builder::new().name("standfast-writer".into()).spawn({
            let (stopped, observer) = (stopped.clone(), options.observer.clone());
            let (is_full, notices, bell) = (is_full.clone(), notices.clone(), bell.clone());
            move || {
                let state = WriterState::new(file, stopped, is_full, notices, tallies, observer);
                WriterState { texts, ..state }.run(&receiver, &bell)
            }
        });
        let thread =
            thread.map_err(|error| OpenError::Unusable { path: path.into(), why: error.to_string() })?;
        Ok(Writer {
            queue: Some(Arc::new(sender)),
            bell,
            stopped,
            is_full,
            notices,
            files,
            thread: Some(thread),
        })
    }

    /// Queues a job at once; the future is only about its answer.
    pub(super) fn hand_over<T: Send + 'static>(&self, job: impl FnOnce(Reply<T>) -> Job) -> Answer<T> {
        match self.enqueue(job) {
            Ok(answer) => Box::pin(answered(answer)),
            Err(refusal) => refused(refusal),
        }
    }

    /// Queues an append at once. Until somebody waits for the answer, it may wait a moment for the next one.
    pub(super) fn hand_over_append(&self, batches: Vec<EncodedBatch>, at: u64) -> Answer<()> {
        let interest = Arc::new(Interest::default());
        let handed = HandedOver { batches, at, interest: interest.clone() };
        let (bell, queue) = (self.bell.clone(), gather::weak(self.queue.as_ref()));
        match self.enqueue(|reply| Job::Append(handed, reply)) {
            Ok(answer) => Box::pin(async move {
                // Runs when the answer is first asked for.
                bell.ring(&interest, &queue);
                answered(answer).await
            }),
            Err(refusal) => refused(refusal),
        }
    }

    fn enqueue<T>(
        &self,
        job: impl FnOnce(Reply<T>) -> Job,
    ) -> Result<oneshot::Receiver<Result<T, StoreError>>, StoreError> {
        let (reply, answer) = oneshot::channel();
        if let Some(why) = self.stopped.get() {
            return Err(stopped_error(why));
        }
        let Some(queue) = &self.queue else { return Err(StoreError::unavailable("the store is closed")) };
        match queue.try_send(job(reply)) {
            Ok(()) => Ok(answer),
            Err(TrySendError::Full(_)) => {
                Err(StoreError::unavailable("too many appends wait for the disk; try again in a moment"))
            }
            Err(TrySendError::Disconnected(_)) => Err(StoreError::unavailable("the writer has ended")),
        }
    }

    /// Whether an append could be written now.
    pub(super) fn probe(&self) -> Answer<Vec<RunId>> {
        if let Err(why) = self.files.check_room() {
            return refused(StoreError::unavailable(why));
        }
        let is_full = self.is_full.load(Ordering::Relaxed);
        self.hand_over(|reply| Job::Probe(is_full, reply))
    }

    /// See [`crate::contract::DeliveryStore::notices_put`].
    pub(super) fn notices_put(&self) -> u64 {
        self.notices.load(Ordering::SeqCst)
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

async fn answered<T>(answer: oneshot::Receiver<Result<T, StoreError>>) -> Result<T, StoreError> {
    answer
        .await
        .unwrap_or_else(|_| Err(StoreError::Unknown { why: "the writer ended before it answered".into() }))
}

fn refused<T: Send + 'static>(error: StoreError) -> Answer<T> {
    Box::pin(std::future::ready(Err(error)))
}

fn stopped_error(why: &str) -> StoreError {
    StoreError::unavailable(format!("the store stopped writing: {why}; restart the server"))
}

struct WriterState {
    connection: Connection,
    memory: WriterMemory,
    texts: Texts,
    /// How many runs the last group was about.
    company: usize,
    /// The transaction under way erased something.
    has_erased: bool,
    /// Pages in the WAL after the last commit.
    wal_pages: Arc<AtomicI32>,
    /// Whether commits wait for the disk.
    is_synced: Arc<AtomicBool>,
    stopped: Arc<OnceLock<String>>,
    is_full: Arc<AtomicBool>,
    notices: Arc<AtomicU64>,
    files: OpenFiles,
    tallies: Arc<Tallies>,
    observer: Option<Arc<dyn Observer>>,
    _lock: std::fs::File,
}

impl WriterState {
    fn new(
        mut file: OpenFile,
        stopped: Arc<OnceLock<String>>,
        is_full: Arc<AtomicBool>,
        notices: Arc<AtomicU64>,
        tallies: Arc<Tallies>,
        observer: Option<Arc<dyn Observer>>,
    ) -> WriterState {
        // Checkpoints are ours: SQLite's own would hide a failed sync.
        let wal_pages = Arc::new(AtomicI32::new(0));
        let (seen, was_full) = (wal_pages.clone(), is_full.clone());
        let (counts, is_synced) = (efforts::counting(observer.as_ref()), Arc::new(AtomicBool::new(true)));
        let is_waited_for = is_synced.clone();
        let hook = file.connection.wal_hook(Some(move |_: &mut Wal, pages: i32| {
            seen.store(pages, Ordering::Relaxed);
            // Something was written: there is room again.
            was_full.store(false, Ordering::Relaxed);
            if let Some(observer) = &counts
                && is_waited_for.load(Ordering::Relaxed)
            {
                observer.spent(Effort::Sync);
            }
            Ok(())
        }));
        if let Err(error) = hook {
            unreachable!("the connection is ours alone: {error}");
        }
        if let Some(observer) = efforts::counting(observer.as_ref())
            && let Err(error) = efforts::count(&mut file.connection, observer, Effort::WriteStatement)
        {
            unreachable!("the connection is ours alone: {error}");
        }
        WriterState {
            wal_pages,
            is_synced,
            has_erased: false,
            connection: file.connection,
            memory: WriterMemory::default(),
            texts: Texts::default(),
            company: 0,
            stopped,
            is_full,
            notices,
            files: file.files,
            tallies,
            observer,
            _lock: file.lock,
        }
    }

    fn run(mut self, queue: &Receiver<Job>, bell: &Bell) {
        while let Ok(first) = queue.recv() {
            match self.stopped.get() {
                Some(why) => first.answer(Err(stopped_error(why))),
                None if matches!(first, Job::Hurry) => {}
                None => self.commit(GroupGatherer::begin(first, queue, bell), queue),
            }
        }
        if self.stopped.get().is_none() {
            // Leaves a small file behind; the next start would recover it from the WAL just as well.
            let is_clean = self.checkpoint("TRUNCATE").is_ok();
            let _ = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, !is_clean);
        }
    }

    /// Everything that waits in one transaction; if the database refuses it, each on its own, so that only the culprit
    /// fails.
    fn commit(&mut self, group: Vec<Job>, queue: &Receiver<Job>) {
        self.has_erased = false;
        let group = if group.iter().all(Job::needs_no_sync) {
            self.transact_unsynced(group)
        } else {
            // What arrives while the first ones are written still shares their sync.
            let mut gathering = GroupGatherer::of(queue, self.company);
            self.transact(group, || gathering.next())
        };
        for job in group {
            if let Some(why) = self.stopped.get() {
                job.answer(Err(stopped_error(why)));
                continue;
            }
            let failed = self.transact(vec![job], || None);
            failed
                .into_iter()
                .for_each(|job| job.answer(Err(StoreError::unavailable("it could not be written"))));
        }
        if self.stopped.get().is_some() {
            return;
        }
        let checkpoint = if self.has_erased {
            // What was erased must not live on in the WAL.
            self.checkpoint("TRUNCATE")
        } else if self.wal_pages.load(Ordering::Relaxed) >= CHECKPOINT_PAGES {
            self.checkpoint("PASSIVE")
        } else {
            Ok(())
        };
        if let Err(error) = checkpoint {
            self.stop_if_untrustworthy(&error);
        }
    }

    /// One transaction that the next one syncs: its pages are in the WAL in front of that one's.
    fn transact_unsynced(&mut self, group: Vec<Job>) -> Vec<Job> {
        let synchronous = |mode: &str| self.connection.pragma_update(None, "synchronous", mode);
        if synchronous("NORMAL").is_err() {
            return self.transact(group, || None);
        }
        self.is_synced.store(false, Ordering::Relaxed);
        let undone = self.transact(group, || None);
        self.is_synced.store(true, Ordering::Relaxed);
        if let Err(error) = self.connection.pragma_update(None, "synchronous", "FULL") {
            self.stop(format!("commits can no longer be synced ({error})"));
        }
        undone
    }

    /// One transaction. Gives the jobs back, unanswered and undone, when they should be tried one by one.
    fn transact(&mut self, mut group: Vec<Job>, mut next: impl FnMut() -> Option<Job>) -> Vec<Job> {
        if let Err(why) = self.files.check() {
            self.stop(format!("{why}, so nothing more can be kept in it"));
            let refusal =
                self.stopped.get().map_or_else(|| StoreError::unavailable(why), |why| stopped_error(why));
            group.into_iter().for_each(|job| job.answer(Err(refusal.clone())));
            return Vec::new();
        }
        let begun = self.connection.execute_batch("BEGIN IMMEDIATE");
        if let Err(error) = begun {
            let refusal = unavailable(&error);
            group.into_iter().for_each(|job| job.answer(Err(refusal.clone())));
            return Vec::new();
        }
        if let Err(error) = self.memory.begin(&self.connection) {
            return self.undo(group, &error);
        }
        let mut done: Vec<Result<JobResult, StoreError>> = Vec::new();
        let mut changed = Tally::default();
        while let Some(job) = group.get(done.len()) {
            self.has_erased |= matches!(job, Job::Erase(..));
            // Other jobs read runs from the file.
            if !matches!(job, Job::Append(..))
                && let Err(failure) = self.write_rows(&group)
            {
                return self.undo(group, &failure);
            }
            match job.perform(done.len(), &self.connection, &mut self.memory, &self.texts) {
                Ok(mut result) => {
                    if let JobResult::Changed(tally) = &mut result {
                        changed.take_in(tally);
                    }
                    done.push(Ok(result));
                }
                Err(Failure::Refused(error)) => done.push(Err(error)),
                Err(Failure::Database(error)) => return self.undo(group, &error),
            }
            if done.len() == group.len() && group.len() < GROUP_MAX {
                group.extend(next());
            }
        }
        if let Err(failure) = self.write_rows(&group) {
            return self.undo(group, &failure);
        }
        // A key is durable before anything is that was sealed with it.
        if let Some(keys) = self.texts.keys()
            && let Err(error) = keys.write_pending()
        {
            return self.undo(group, &error);
        }
        self.company = gather::company(&group);
        let result = self.tallies.commit(&changed, || self.connection.execute_batch("COMMIT"));
        let refusal = match result {
            // Durable is what can be found again: a file that lost its name meanwhile ends with this process.
            Ok(()) => self.files.check().err().map(|why| self.lost(why)),
            Err(error) => Some(self.commit_failed(&error)),
        };
        if refusal.is_none() {
            if self.memory.has_put_notices() {
                self.notices.fetch_add(1, Ordering::SeqCst);
            }
            self.tell_observer(&group, &done);
        }
        for (job, result) in group.into_iter().zip(done) {
            job.answer(refusal.clone().map_or(result, Err));
        }
        Vec::new()
    }

    fn write_rows(&mut self, group: &[Job]) -> rusqlite::Result<()> {
        append::write_rows(&self.connection, &mut self.memory, |index| {
            group.get(index.job).and_then(|job| job.batches().get(index.batch))
        })
    }

    fn tell_observer(&self, group: &[Job], done: &[Result<JobResult, StoreError>]) {
        let Some(observer) = &self.observer else { return };
        let mut appends = 0;
        for (job, result) in group.iter().zip(done) {
            if let (Job::Append(handed, _), Ok(_)) = (job, result) {
                appends += 1;
                for encoded in &handed.batches {
                    observer.appended(handed.at, &encoded.batch.holds);
                }
            }
        }
        if appends > 0 {
            observer.committed(appends);
        }
    }

    /// Rolls back. One job alone gets the error; several are tried again one by one.
    fn undo(&mut self, group: Vec<Job>, error: &rusqlite::Error) -> Vec<Job> {
        self.roll_back();
        self.remember_full(error);
        self.stop_if_untrustworthy(error);
        if group.len() > 1 {
            return group;
        }
        let refusal = unavailable(error);
        group.into_iter().for_each(|job| job.answer(Err(refusal.clone())));
        Vec::new()
    }

    /// A full disk undoes the transaction for certain. After any other failure nobody knows.
    fn commit_failed(&mut self, error: &rusqlite::Error) -> StoreError {
        self.roll_back();
        self.remember_full(error);
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::ReadOnly) => unavailable(error),
            _ => {
                self.stop(format!("a commit failed ({error}), so the disk can no longer be trusted"));
                StoreError::Unknown { why: error.to_string() }
            }
        }
    }

    /// What was just written is in a file that nobody can open any more.
    fn lost(&self, why: String) -> StoreError {
        self.stop(format!("{why}, so nothing more can be kept in it"));
        StoreError::Unknown { why }
    }

    fn roll_back(&mut self) {
        self.memory.forget();
        self.texts.forget();
        // Fails when SQLite has rolled back by itself.
        let _ = self.connection.execute_batch("ROLLBACK");
    }

    fn remember_full(&self, error: &rusqlite::Error) {
        if error.sqlite_error_code() == Some(ErrorCode::DiskFull) {
            self.is_full.store(true, Ordering::Relaxed);
        }
    }

    fn checkpoint(&self, mode: &str) -> rusqlite::Result<()> {
        let statement = format!("PRAGMA wal_checkpoint({mode})");
        let (busy, log, moved): (i64, i64, i64) =
            self.connection.query_row(&statement, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        if busy == 0 && log == moved {
            self.wal_pages.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    fn stop_if_untrustworthy(&self, error: &rusqlite::Error) {
        let syncs = [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_DIR_FSYNC];
        let is_sync = error.sqlite_error().is_some_and(|failure| syncs.contains(&failure.extended_code));
        if is_sync {
            self.stop(format!("a sync failed ({error}), so the disk can no longer be trusted"));
        }
    }

    fn stop(&self, why: String) {
        observer::report(self.observer.as_deref(), "store", &format!("the database stopped writing: {why}"));
        // The first reason is the one that counts.
        let _ = self.stopped.set(why);
    }
}

fn unavailable(error: &rusqlite::Error) -> StoreError {
    let why = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            format!("the disk is full ({error}); free some space, nothing else is needed")
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            format!("another process has the database locked ({error}); end it")
        }
        Some(ErrorCode::ReadOnly) => {
            format!("the database cannot be written ({error}); check its permissions")
        }
        _ => error.to_string(),
    };
    StoreError::unavailable(why)
}

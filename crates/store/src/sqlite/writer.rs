//! The writer: one thread, one transaction for everything that waits, an answer after COMMIT.
//!
//! Group commit is what lets many runs share one sync. A failed sync is fatal: the kernel may have dropped the pages,
//! so nothing that this process believes about the file can be trusted any more.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use rusqlite::config::DbConfig;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, ErrorCode, ffi};
use standfast_core::id::{Incarnation, RunId};
use standfast_core::name::Tenant;
use standfast_core::time::Timestamp;
use tokio::sync::oneshot;

use super::append::{self, EncodedBatch};
use super::credentials::{self, CredentialChange};
use super::deliveries::{self, SubscriptionChange};
use super::files::OpenFiles;
use super::names::{Numbers, Texts};
use super::schema::{OpenError, OpenFile};
use super::tally::{Tallies, Tally};
use super::{SqliteOptions, erase, work};
use crate::contract::Answer;
use crate::error::StoreError;
use crate::observer::Observer;
use crate::query::{Claim, ClaimedRun, KeyNote, SealedChange, SessionChange, SessionKey, SettleNotice};

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// Something for the writer to do, and where its answer goes.
pub(super) enum Job {
    /// With the instant at which it was handed over, by the observer's clock.
    Append(Vec<EncodedBatch>, u64, Reply<()>),
    Claim(Claim, Reply<Vec<ClaimedRun>>),
    Renew(Vec<RunId>, Incarnation, Timestamp, Reply<Vec<RunId>>),
    /// Whether an append could be written now. Tried with a write of its own when the last one found no room.
    Probe(bool, Reply<Vec<RunId>>),
    Release(RunId, Incarnation, Option<Timestamp>, Reply<()>),
    ForgetKeys(Timestamp, usize, Reply<usize>),
    /// Needs no sync of its own.
    NoteKeys(Vec<KeyNote>, Reply<()>),
    SettleNotice(i64, SettleNotice, Reply<()>),
    ChangeSession(SessionKey, SessionChange, Timestamp, Reply<bool>),
    Erase(RunId, Reply<()>),
    Credential(CredentialChange, Reply<bool>),
    Sealed(SealedChange, Reply<bool>),
    Subscription(SubscriptionChange, Reply<bool>),
    Quarantine(RunId, String, Reply<()>),
    Audit(Tenant, Timestamp, String, Reply<()>),
}

/// Why a job did not get done.
#[derive(Debug)]
pub(super) enum Failure {
    /// A refusal: nothing was written for it, the others in the transaction go on.
    Refused(StoreError),
    /// The database said no: the whole transaction is undone.
    Database(rusqlite::Error),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::Refused(error)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Failure {
        Failure::Database(error)
    }
}

/// How many jobs share a transaction at most: bounds the time until the first of them is answered.
const GROUP_MAX: usize = 512;

/// WAL pages after which they are moved into the file.
const CHECKPOINT_PAGES: i32 = 4000;

/// The handle of the writer's thread. Dropping it lets the thread finish what is pending and stop.
pub(super) struct Writer {
    queue: Option<SyncSender<Job>>,
    stopped: Arc<OnceLock<String>>,
    /// The last write found the disk full.
    is_full: Arc<AtomicBool>,
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
        tallies: Arc<Tallies>,
    ) -> Result<Writer, OpenError> {
        let (sender, receiver) = sync_channel(options.queue);
        let stopped = Arc::new(OnceLock::new());
        let is_full = Arc::new(AtomicBool::new(false));
        let files = file.files.clone();
        let path = file.connection.path().unwrap_or_default().to_owned();
        let thread = std::thread::Builder::new().name("standfast-writer".into()).spawn({
            let (stopped, observer) = (stopped.clone(), options.observer.clone());
            let is_full = is_full.clone();
            move || WriterState::new(file, stopped, is_full, tallies, observer).run(&receiver)
        });
        let thread =
            thread.map_err(|error| OpenError::Unusable { path: path.into(), why: error.to_string() })?;
        Ok(Writer { queue: Some(sender), stopped, is_full, files, thread: Some(thread) })
    }

    /// Queues a job at once; the future is only about its answer.
    pub(super) fn hand_over<T: Send + 'static>(&self, job: impl FnOnce(Reply<T>) -> Job) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        if let Some(why) = self.stopped() {
            return refused(stopped_error(&why));
        }
        let Some(queue) = &self.queue else { return refused(StoreError::unavailable("the store is closed")) };
        match queue.try_send(job(reply)) {
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

    /// Whether an append could be written now.
    pub(super) fn probe(&self) -> Answer<Vec<RunId>> {
        if let Err(why) = self.files.check_room() {
            return refused(StoreError::unavailable(why));
        }
        let is_full = self.is_full.load(Ordering::Relaxed);
        self.hand_over(|reply| Job::Probe(is_full, reply))
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
    connection: Connection,
    numbers: Numbers,
    texts: Texts,
    /// The transaction under way erased something.
    has_erased: bool,
    /// Pages in the WAL after the last commit.
    wal_pages: Arc<AtomicI32>,
    stopped: Arc<OnceLock<String>>,
    is_full: Arc<AtomicBool>,
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
        tallies: Arc<Tallies>,
        observer: Option<Arc<dyn Observer>>,
    ) -> WriterState {
        // Checkpoints are ours: SQLite's own would hide a failed sync.
        let wal_pages = Arc::new(AtomicI32::new(0));
        let (seen, was_full) = (wal_pages.clone(), is_full.clone());
        let hook = file.connection.wal_hook(Some(move |_: &mut Wal, pages: i32| {
            seen.store(pages, Ordering::Relaxed);
            // Something was written: there is room again.
            was_full.store(false, Ordering::Relaxed);
            Ok(())
        }));
        if let Err(error) = hook {
            unreachable!("the connection is ours alone: {error}");
        }
        WriterState {
            wal_pages,
            has_erased: false,
            connection: file.connection,
            numbers: Numbers::default(),
            texts: Texts::default(),
            stopped,
            is_full,
            files: file.files,
            tallies,
            observer,
            _lock: file.lock,
        }
    }

    fn run(mut self, queue: &Receiver<Job>) {
        while let Ok(first) = queue.recv() {
            match self.stopped.get() {
                Some(why) => first.answer(Err(stopped_error(why))),
                None => self.commit(first, queue),
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
    fn commit(&mut self, first: Job, queue: &Receiver<Job>) {
        self.has_erased = false;
        let mut group = vec![first];
        while group.iter().all(Job::needs_no_sync)
            && group.len() < GROUP_MAX
            && let Ok(next) = queue.try_recv()
        {
            group.push(next);
        }
        let group = if group.iter().all(Job::needs_no_sync) {
            self.transact_unsynced(group)
        } else {
            // What arrives while the first ones are written still shares their sync.
            self.transact(group, || queue.try_recv().ok())
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
        let undone = self.transact(group, || None);
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
        if let Err(error) = self.connection.execute_batch("BEGIN IMMEDIATE") {
            let refusal = unavailable(&error);
            group.into_iter().for_each(|job| job.answer(Err(refusal.clone())));
            return Vec::new();
        }
        let mut done: Vec<Result<JobResult, StoreError>> = Vec::new();
        let mut changed = Tally::default();
        while let Some(job) = group.get(done.len()) {
            self.has_erased |= matches!(job, Job::Erase(..));
            match job.perform(&self.connection, &mut self.numbers, &self.texts) {
                Ok(result) => {
                    if let JobResult::Changed(tally) = &result {
                        changed.add(tally, 1);
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
        let result = self.tallies.commit(&changed, || self.connection.execute_batch("COMMIT"));
        let refusal = match result {
            // Durable is what can be found again: a file that lost its name meanwhile ends with this process.
            Ok(()) => self.files.check().err().map(|why| self.lost(why)),
            Err(error) => Some(self.commit_failed(&error)),
        };
        if refusal.is_none() {
            self.tell_observer(&group, &done);
        }
        for (job, result) in group.into_iter().zip(done) {
            job.answer(refusal.clone().map_or(result, Err));
        }
        Vec::new()
    }

    fn tell_observer(&self, group: &[Job], done: &[Result<JobResult, StoreError>]) {
        let Some(observer) = &self.observer else { return };
        let mut appends = 0;
        for (job, result) in group.iter().zip(done) {
            if let (Job::Append(batches, handed_over, _), Ok(_)) = (job, result) {
                appends += 1;
                for encoded in batches {
                    observer.appended(*handed_over, &encoded.batch.holds);
                }
            }
        }
        if appends > 0 {
            observer.committed(appends);
        }
    }

    /// Rolls back. One job alone is told why; several are tried again one by one.
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
        self.numbers.forget();
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
        eprintln!("standfast: {why}");
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

/// The result of a job.
enum JobResult {
    Nothing,
    Claimed(Vec<ClaimedRun>),
    Runs(Vec<RunId>),
    Found(bool),
    /// What it changed of the numbers.
    Changed(Tally),
    Forgot(usize),
}

impl Job {
    /// Whether it may be lost with the machine, and is synced with whatever follows.
    fn needs_no_sync(&self) -> bool {
        matches!(self, Job::NoteKeys(..))
    }

    /// Does the job inside the transaction.
    fn perform(
        &self,
        connection: &Connection,
        numbers: &mut Numbers,
        texts: &Texts,
    ) -> Result<JobResult, Failure> {
        match self {
            Job::Append(batches, _, _) => {
                append::append(connection, numbers, batches).map(JobResult::Changed)
            }
            Job::Claim(claim, _) => {
                work::claim_due(connection, numbers, texts, claim).map(JobResult::Claimed)
            }
            Job::Renew(runs, node, until, _) => {
                work::renew(connection, runs, *node, *until).map(JobResult::Runs)
            }
            // Any page will do: the header's, whose number nobody else uses.
            Job::Probe(true, _) => connection
                .query_row("PRAGMA user_version", [], |row| row.get::<_, i32>(0))
                .and_then(|no| connection.pragma_update(None, "user_version", no.wrapping_add(1)))
                .map(|()| JobResult::Nothing)
                .map_err(Failure::from),
            Job::Probe(false, _) => Ok(JobResult::Nothing),
            Job::Release(run, node, wake_at, _) => {
                work::release(connection, numbers, texts, *run, *node, *wake_at).map(|()| JobResult::Nothing)
            }
            Job::ForgetKeys(until, limit, _) => {
                work::forget_keys(connection, *until, *limit).map(JobResult::Forgot)
            }
            Job::NoteKeys(notes, _) => {
                work::note_keys(connection, numbers, notes).map(|()| JobResult::Nothing)
            }
            Job::SettleNotice(no, outcome, _) => {
                deliveries::settle_notice(connection, *no, outcome).map(|()| JobResult::Nothing)
            }
            Job::ChangeSession(key, change, at, _) => {
                work::change_session(connection, numbers, key, change, *at).map(JobResult::Found)
            }
            Job::Erase(run, _) => erase::erase(connection, texts, *run).map(|()| JobResult::Nothing),
            Job::Credential(change, _) => {
                credentials::change(connection, numbers, change).map(JobResult::Found).map_err(Failure::from)
            }
            Job::Sealed(change, _) => work::change_sealed(connection, numbers, change).map(JobResult::Found),
            Job::Subscription(change, _) => {
                deliveries::change(connection, numbers, change).map(JobResult::Found).map_err(Failure::from)
            }
            Job::Audit(tenant, at, entry, _) => {
                work::put_audit(connection, numbers, tenant, *at, entry).map(|()| JobResult::Nothing)
            }
            Job::Quarantine(run, why, _) => work::quarantine(connection, *run, why).map(JobResult::Changed),
        }
    }

    /// Sends the answer: only after COMMIT, or when it is certain that nothing was written.
    fn answer(self, result: Result<JobResult, StoreError>) {
        match self {
            Job::Append(_, _, reply)
            | Job::Quarantine(_, _, reply)
            | Job::Audit(_, _, _, reply)
            | Job::Release(_, _, _, reply)
            | Job::SettleNotice(_, _, reply)
            | Job::NoteKeys(_, reply)
            | Job::Erase(_, reply) => send(reply, result.map(|_| ())),
            Job::Claim(_, reply) => send(
                reply,
                result.map(|done| match done {
                    JobResult::Claimed(claimed) => claimed,
                    JobResult::Nothing
                    | JobResult::Runs(_)
                    | JobResult::Found(_)
                    | JobResult::Changed(_)
                    | JobResult::Forgot(_) => Vec::new(),
                }),
            ),
            Job::Renew(_, _, _, reply) | Job::Probe(_, reply) => send(
                reply,
                result.map(|done| match done {
                    JobResult::Runs(runs) => runs,
                    JobResult::Nothing
                    | JobResult::Claimed(_)
                    | JobResult::Found(_)
                    | JobResult::Changed(_)
                    | JobResult::Forgot(_) => Vec::new(),
                }),
            ),
            Job::ForgetKeys(_, _, reply) => send(
                reply,
                result.map(|done| match done {
                    JobResult::Forgot(count) => count,
                    JobResult::Nothing
                    | JobResult::Claimed(_)
                    | JobResult::Runs(_)
                    | JobResult::Found(_)
                    | JobResult::Changed(_) => 0,
                }),
            ),
            Job::ChangeSession(_, _, _, reply)
            | Job::Credential(_, reply)
            | Job::Sealed(_, reply)
            | Job::Subscription(_, reply) => {
                send(reply, result.map(|done| matches!(done, JobResult::Found(true))));
            }
        }
    }
}

fn send<T>(reply: Reply<T>, result: Result<T, StoreError>) {
    // Whoever asked may have gone away; what was written stays written.
    let _ = reply.send(result);
}

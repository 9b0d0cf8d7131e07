//! Appends on their way: handed over at the call, grouped, written in order for each run.
//!
//! A few connections take turns. Each takes everything that waits, except what concerns a run that another one is
//! writing, into one transaction, so that many runs share one commit. With nothing to do none of them has a task.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use standfast_core::id::RunId;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::PostgresOptions;
use super::append::{self, GroupFailure, GroupResult, GroupWrite};
use super::connect::{Connection, Connector, answered};
use super::failure::Failure;
use super::group::EncodedBatch;
use super::hints::Hints;
use super::known_rows::KnownRows;
use super::numbers::Numbers;
use super::pool::{TRIES, pause};
use crate::contract::Answer;
use crate::error::StoreError;
use crate::observer::Observer;

/// How many appends share a transaction at most: bounds the time until the first of them is answered.
const GROUP_MAX: usize = 128;

/// How long a store that is closed waits for what was handed over.
const LAST_WAIT: Duration = Duration::from_secs(10);

/// An append that waits, and where its answer goes.
struct QueuedAppend {
    batches: Vec<EncodedBatch>,
    /// When it was handed over, by the observer's clock.
    handed_over: u64,
    reply: oneshot::Sender<Result<(), StoreError>>,
}

impl QueuedAppend {
    fn runs(&self) -> impl Iterator<Item = RunId> {
        self.batches.iter().map(|encoded| encoded.batch.run())
    }
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<QueuedAppend>,
    /// Runs that are being written.
    busy: HashSet<RunId>,
    /// Connections that nobody uses; none where there is no connection yet.
    free: Vec<Option<Connection>>,
    active: usize,
}

impl Queue {
    /// What can be written now, in the order in which it was handed over.
    fn take(&mut self) -> Vec<QueuedAppend> {
        let (mut group, mut later) = (Vec::new(), VecDeque::new());
        let mut passed: HashSet<RunId> = HashSet::new();
        while group.len() < GROUP_MAX {
            let Some(next) = self.waiting.pop_front() else { break };
            let is_free = next.runs().all(|run| !self.busy.contains(&run) && !passed.contains(&run));
            if is_free {
                // Further appends of its runs follow it in the same transaction.
                group.push(next);
            } else {
                passed.extend(next.runs());
                later.push_back(next);
            }
        }
        later.append(&mut self.waiting);
        self.waiting = later;
        self.busy.extend(group.iter().flat_map(QueuedAppend::runs));
        group
    }
}

/// What the connections share.
pub(super) struct Writer {
    shared: Arc<WriterState>,
    handle: Handle,
    room: usize,
}

struct WriterState {
    queue: Mutex<Queue>,
    idle: Condvar,
    connector: Arc<Connector>,
    numbers: Numbers,
    known: KnownRows,
    hints: Arc<Hints>,
    /// Commits that put notices.
    notices: AtomicU64,
    observer: Option<Arc<dyn Observer>>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("waiting", &self.shared.queue().waiting.len()).finish_non_exhaustive()
    }
}

impl Writer {
    pub(super) fn new(
        connector: Arc<Connector>,
        numbers: Numbers,
        hints: Arc<Hints>,
        handle: Handle,
        options: &PostgresOptions,
    ) -> Writer {
        let (room, observer) = (options.queue, options.observer.clone());
        let free = (0..options.writers.max(1)).map(|_| None).collect();
        let queue = Mutex::new(Queue { free, ..Queue::default() });
        Writer {
            shared: Arc::new(WriterState {
                queue,
                idle: Condvar::new(),
                connector,
                numbers,
                known: KnownRows::default(),
                hints,
                notices: AtomicU64::new(0),
                observer,
            }),
            handle,
            room,
        }
    }

    /// Queues an append at once; the future is only about its answer.
    pub(super) fn hand_over(&self, batches: Vec<EncodedBatch>) -> Answer<()> {
        let (reply, answer) = oneshot::channel();
        let mut queue = self.shared.queue();
        if queue.waiting.len() >= self.room {
            let why = "too many appends wait for the database; try again in a moment";
            return Box::pin(std::future::ready(Err(StoreError::unavailable(why))));
        }
        let handed_over = self.shared.observer.as_ref().map_or(0, |observer| observer.now());
        queue.waiting.push_back(QueuedAppend { batches, handed_over, reply });
        if let Some(connection) = queue.free.pop() {
            queue.active += 1;
            self.handle.spawn(work(self.shared.clone(), connection));
        }
        drop(queue);
        Box::pin(async move {
            answer.await.unwrap_or_else(|_| {
                Err(StoreError::Unknown { why: "the store was closed before it answered".into() })
            })
        })
    }
}

impl Writer {
    /// See [`crate::contract::DeliveryStore::notices_put`].
    pub(super) fn notices_put(&self) -> u64 {
        self.shared.notices.load(Ordering::SeqCst)
    }

    /// Waits until what was handed over is written.
    pub(super) fn finish(&self) {
        let queue = self.shared.queue();
        let is_busy = |queue: &mut Queue| queue.active > 0;
        // Whoever holds out longer than that hears that the outcome is unknown.
        drop(self.shared.idle.wait_timeout_while(queue, LAST_WAIT, is_busy));
    }
}

impl WriterState {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_observer(&self, group: &[QueuedAppend], answers: &[Result<(), StoreError>]) {
        let Some(observer) = &self.observer else { return };
        let mut appends = 0;
        for (waiting, _) in group.iter().zip(answers).filter(|(_, answer)| answer.is_ok()) {
            appends += 1;
            for encoded in &waiting.batches {
                observer.appended(waiting.handed_over, &encoded.batch.holds);
            }
        }
        if appends > 0 {
            observer.committed(appends);
        }
    }
}

/// Writes groups until nothing is left that could be written.
async fn work(shared: Arc<WriterState>, mut connection: Option<Connection>) {
    loop {
        let group = {
            let mut queue = shared.queue();
            let group = queue.take();
            if group.is_empty() {
                queue.free.push(connection);
                queue.active -= 1;
                shared.idle.notify_all();
                return;
            }
            group
        };
        let runs: Vec<RunId> = group.iter().flat_map(QueuedAppend::runs).collect();
        let answers = shared.settle(&mut connection, group.iter().map(|one| &*one.batches).collect()).await;
        // The next append of a run may begin before the answer is heard.
        let mut queue = shared.queue();
        for run in &runs {
            queue.busy.remove(run);
        }
        drop(queue);
        shared.tell_observer(&group, &answers);
        for (waiting, answer) in group.into_iter().zip(answers) {
            // Whoever asked may have gone away; what was written stays written.
            let _ = waiting.reply.send(answer);
        }
    }
}

impl WriterState {
    /// Writes a group as one; if the database refuses it, each on its own, so that only the culprit fails.
    async fn settle(
        &self,
        connection: &mut Option<Connection>,
        group: Vec<&[EncodedBatch]>,
    ) -> Vec<Result<(), StoreError>> {
        match self.write(connection, &group).await {
            Ok(written) => {
                self.tell(&written);
                written.answers
            }
            Err(undone) if group.len() > 1 && !is_over(&undone) => {
                let mut answers = Vec::with_capacity(group.len());
                for one in &group {
                    match self.write(connection, std::slice::from_ref(one)).await {
                        Ok(written) => {
                            self.tell(&written);
                            answers.extend(written.answers);
                        }
                        Err(undone) => answers.push(Err(told(undone))),
                    }
                }
                answers
            }
            Err(undone) => {
                let refusal = told(undone);
                group.iter().map(|_| Err(refusal.clone())).collect()
            }
        }
    }

    /// Lets others know what a group has changed.
    fn tell(&self, written: &GroupResult) {
        if written.has_notices {
            self.notices.fetch_add(1, Ordering::SeqCst);
        }
        self.hints.tell(&written.shards);
    }

    /// Tries until it is written, refused, or not worth trying.
    async fn write(
        &self,
        connection: &mut Option<Connection>,
        group: &[&[EncodedBatch]],
    ) -> Result<GroupResult, GroupFailure> {
        let (mut tries, mut losses) = (0, 0);
        loop {
            tries += 1;
            let undone = match self.once(connection, group).await {
                Ok(written) => return Ok(written),
                Err(undone) => undone,
            };
            match &undone.failure {
                Failure::Again(_) if tries < TRIES => pause(tries).await,
                // A connection that was idle may have been closed meanwhile: nothing was written, another may work.
                Failure::Lost(_) if !undone.is_sent && losses == 0 => losses += 1,
                Failure::Again(_) | Failure::Lost(_) | Failure::Standby(_) | Failure::Refused(_) => {
                    return Err(undone);
                }
            }
        }
    }

    async fn once(
        &self,
        connection: &mut Option<Connection>,
        group: &[&[EncodedBatch]],
    ) -> Result<GroupResult, GroupFailure> {
        let before = |failure| GroupFailure { failure, is_sent: false };
        let kept = connection.take().filter(|kept| !kept.client.is_closed());
        let used = match kept {
            Some(kept) => kept,
            None => self.connector.connect(None).await.map_err(before)?,
        };
        // When no answer comes nobody knows how far it got.
        let silence = |failure| GroupFailure { failure, is_sent: true };
        let needs = GroupWrite { numbers: &self.numbers, known: &self.known };
        let writing = async { Ok(append::write(&used, &needs, group).await) };
        let result = answered(writing).await.map_err(silence).and_then(|written| written);
        let is_clean = match &result {
            Ok(_) => true,
            Err(undone) if undone.failure.ends_the_connection() => false,
            Err(_) => used.client.batch_execute("ROLLBACK").await.is_ok(),
        };
        if is_clean {
            *connection = Some(used);
        }
        result
    }
}

/// Whether trying each append on its own is of no use.
fn is_over(undone: &GroupFailure) -> bool {
    matches!(undone.failure, Failure::Lost(_) | Failure::Standby(_))
}

fn told(undone: GroupFailure) -> StoreError {
    if undone.is_sent { undone.failure.after_sending() } else { undone.failure.before_sending() }
}

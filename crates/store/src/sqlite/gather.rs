//! What is pending for the writer, and how it gathers groups: many runs share one sync.
//!
//! An append that nobody awaits yet may wait for the next one, a moment at most, so that what one drive hands over before
//! it waits is one commit. Where groups are large already the writer listens a little longer before it commits: whoever
//! is about to ask shares the sync. With one caller at a time there is nobody to listen for.
//! A store reads no clock: waits are bounded by how often and how long each is.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::job::Job;

/// How many jobs share a transaction at most: bounds the time until the first of them is answered.
pub(super) const GROUP_MAX: usize = 512;

/// An append that nobody awaits yet waits this long, so many times, for another job.
const LINGER: Duration = Duration::from_micros(250);
const LINGERS: usize = 4;

/// So many different runs in a group are a crowd.
const CROWD: usize = 3;
/// In a crowd the writer commits when nobody came for so long, or so many came.
const QUIET: Duration = Duration::from_micros(100);
const ARRIVALS: usize = 32;

/// Whether anybody waits for an append, and whether the writer has it.
#[derive(Debug, Default)]
pub(super) struct Interest(AtomicU8);

const AWAITED: u8 = 1;
const TAKEN: u8 = 2;

impl Interest {
    /// The writer has it; whether nobody awaits it yet.
    pub(super) fn is_taken_unawaited(&self) -> bool {
        self.0.fetch_or(TAKEN, Ordering::SeqCst) & AWAITED == 0
    }

    /// Somebody waits from now on; whether the writer had it already.
    fn is_awaited_taken(&self) -> bool {
        self.0.fetch_or(AWAITED, Ordering::SeqCst) & TAKEN != 0
    }
}

/// What callers and the writer know of each other.
#[derive(Debug, Default)]
pub(super) struct Bell {
    /// The writer has only what nobody awaits yet, and listens.
    is_lingering: AtomicBool,
}

impl Bell {
    /// Somebody waits for an append from now on.
    pub(super) fn ring(&self, interest: &Interest, queue: &Weak<SyncSender<Job>>) {
        if interest.is_awaited_taken()
            && self.is_lingering.load(Ordering::SeqCst)
            && let Some(queue) = queue.upgrade()
        {
            // When it is full the writer has enough to do.
            let _ = queue.try_send(Job::Hurry);
        }
    }
}

/// The jobs of one transaction as they come in.
pub(super) struct GroupGatherer<'a> {
    queue: &'a Receiver<Job>,
    arrivals_left: usize,
}

impl<'a> GroupGatherer<'a> {
    /// Begins with everything that is there. If nobody awaits any of it yet, listens for more.
    pub(super) fn begin(first: Job, queue: &'a Receiver<Job>, bell: &Bell) -> Vec<Job> {
        let mut group = vec![first];
        while group.len() < GROUP_MAX
            && let Some(next) = next_of(queue)
        {
            group.push(next);
        }
        bell.is_lingering.store(true, Ordering::SeqCst);
        for _ in 0..LINGERS {
            if group.len() >= GROUP_MAX || !group.iter().all(Job::can_wait) {
                break;
            }
            match queue.recv_timeout(LINGER) {
                Ok(Job::Hurry) => break,
                Ok(job) => group.push(job),
                Err(_) => {}
            }
        }
        bell.is_lingering.store(false, Ordering::SeqCst);
        group
    }

    /// What may still join a transaction that has begun.
    pub(super) fn of(queue: &'a Receiver<Job>, company: usize) -> GroupGatherer<'a> {
        GroupGatherer { queue, arrivals_left: if company >= CROWD { ARRIVALS } else { 0 } }
    }

    /// The next job that shares the transaction.
    pub(super) fn next(&mut self) -> Option<Job> {
        if let Some(job) = next_of(self.queue) {
            return Some(job);
        }
        while let Some(left) = self.arrivals_left.checked_sub(1) {
            self.arrivals_left = left;
            match self.queue.recv_timeout(QUIET) {
                Ok(Job::Hurry) => {}
                Ok(job) => return Some(job),
                Err(_) => self.arrivals_left = 0,
            }
        }
        None
    }
}

fn next_of(queue: &Receiver<Job>) -> Option<Job> {
    loop {
        match queue.try_recv().ok()? {
            Job::Hurry => {}
            job => return Some(job),
        }
    }
}

/// How many different runs these jobs append to.
pub(super) fn company(group: &[Job]) -> usize {
    // Alone most of the time.
    if let [job] = group {
        return job.batches().len();
    }
    let mut runs: Vec<_> = group.iter().flat_map(Job::batches).map(|encoded| encoded.batch.run()).collect();
    runs.sort_unstable();
    runs.dedup();
    runs.len()
}

/// A handle to the queue that keeps nobody from closing it.
pub(super) fn weak(queue: Option<&Arc<SyncSender<Job>>>) -> Weak<SyncSender<Job>> {
    queue.map(Arc::downgrade).unwrap_or_default()
}

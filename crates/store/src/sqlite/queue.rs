//! What waits for the writer, and when it begins with it.
//!
//! A job is in line as soon as it is handed over, but only one that somebody waits for wakes the writer: what is handed
//! over before that is taken along in the same transaction, and shares its sync. Whoever drops an answer unread wants it
//! written as well. Nothing here knows what a job is.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::error::StoreError;

/// Jobs in the order in which they were handed over.
#[derive(Debug)]
pub(super) struct Queue<Job> {
    state: Mutex<State<Job>>,
    woken: Condvar,
    capacity: usize,
}

#[derive(Debug)]
struct State<Job> {
    jobs: VecDeque<Job>,
    /// How many jobs were ever taken out.
    taken: u64,
    /// Everything in line up to this number is waited for.
    wanted: u64,
    /// Whether the writer sleeps.
    is_idle: bool,
    /// Nothing more comes; what waits is still written.
    is_closed: bool,
    /// Nobody takes anything out any more.
    is_ended: bool,
}

/// Why a job was not taken into the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotQueued {
    /// Too many wait.
    Full,
    /// The writer is gone.
    Ended,
}

impl<Job> Queue<Job> {
    pub(super) fn new(capacity: usize) -> Queue<Job> {
        let state = State {
            jobs: VecDeque::new(),
            taken: 0,
            wanted: 0,
            is_idle: false,
            is_closed: false,
            is_ended: false,
        };
        Queue { state: Mutex::new(state), woken: Condvar::new(), capacity }
    }

    /// Puts a job in line; its place, for whoever waits for it.
    pub(super) fn push(&self, job: Job) -> Result<u64, NotQueued> {
        let mut state = self.state();
        if state.is_ended || state.is_closed {
            return Err(NotQueued::Ended);
        }
        if state.jobs.len() >= self.capacity {
            return Err(NotQueued::Full);
        }
        state.jobs.push_back(job);
        Ok(state.taken + state.jobs.len() as u64)
    }

    /// Somebody waits for the job in this place, and so for everything before it.
    fn want(&self, place: u64) {
        let mut state = self.state();
        state.wanted = state.wanted.max(place);
        let is_asleep = state.is_idle && state.is_wanted();
        state.is_idle &= !is_asleep;
        drop(state);
        if is_asleep {
            self.woken.notify_one();
        }
    }

    /// The next job, once somebody waits for one; none when no more comes.
    pub(super) fn next(&self) -> Option<Job> {
        let mut state = self.state();
        while !state.is_wanted() && !state.is_closed {
            state.is_idle = true;
            state = self.woken.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_idle = false;
        state.take()
    }

    /// The next job, if there is one, whether or not somebody waits for it.
    pub(super) fn try_next(&self) -> Option<Job> {
        self.state().take()
    }

    /// Nothing more comes.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.woken.notify_one();
    }

    /// Nobody takes anything out any more: whoever waits hears so.
    fn end(&self) {
        let mut state = self.state();
        state.is_ended = true;
        let unwritten = std::mem::take(&mut state.jobs);
        drop(state);
        drop(unwritten);
    }

    fn state(&self) -> MutexGuard<'_, State<Job>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Job> State<Job> {
    /// Whether somebody waits for what is in line.
    fn is_wanted(&self) -> bool {
        !self.jobs.is_empty() && self.wanted > self.taken
    }

    fn take(&mut self) -> Option<Job> {
        let job = self.jobs.pop_front()?;
        self.taken += 1;
        Some(job)
    }
}

/// The end of the queue that the writer has: with it the queue ends, however the writer does.
pub(super) struct QueueEnd<Job>(pub(super) Arc<Queue<Job>>);

impl<Job> Drop for QueueEnd<Job> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The answer to a job in line. The writer is woken when somebody begins to wait for it, or drops it.
pub(super) struct QueuedAnswer<Job, T> {
    answer: oneshot::Receiver<Result<T, StoreError>>,
    queue: Arc<Queue<Job>>,
    /// Its place in the line, until the writer was told that somebody waits for it.
    unwanted: Option<u64>,
}

impl<Job, T> QueuedAnswer<Job, T> {
    pub(super) fn new(
        queue: Arc<Queue<Job>>,
        place: u64,
        answer: oneshot::Receiver<Result<T, StoreError>>,
    ) -> QueuedAnswer<Job, T> {
        QueuedAnswer { answer, queue, unwanted: Some(place) }
    }
}

impl<Job, T> Future for QueuedAnswer<Job, T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(place) = self.unwanted.take() {
            self.queue.want(place);
        }
        Pin::new(&mut self.answer).poll(context).map(|answer| {
            answer.unwrap_or_else(|_| {
                Err(StoreError::Unknown { why: "the writer ended before it answered".into() })
            })
        })
    }
}

impl<Job, T> Drop for QueuedAnswer<Job, T> {
    fn drop(&mut self) {
        if let Some(place) = self.unwanted.take() {
            self.queue.want(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    fn answered<T>(answer: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        answer.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn handed(queue: &Arc<Queue<u8>>, job: u8) -> QueuedAnswer<u8, ()> {
        let (_, answer) = oneshot::channel();
        QueuedAnswer::new(queue.clone(), queue.push(job).unwrap(), answer)
    }

    fn is_wanted(queue: &Queue<u8>) -> bool {
        queue.state().is_wanted()
    }

    /// What nobody waits for yet wakes nobody; the next one that is waited for takes it along.
    #[test]
    fn only_what_is_waited_for_wakes_the_writer() {
        let queue = Arc::new(Queue::new(8));
        let (first, second) = (handed(&queue, 1), handed(&queue, 2));
        assert!(!is_wanted(&queue));
        let mut second = pin!(second);
        let _ = answered(second.as_mut());
        assert!(is_wanted(&queue));
        assert_eq!((queue.next(), queue.try_next(), queue.try_next()), (Some(1), Some(2), None));
        // The writer has it already: waiting for it now says nothing of what comes.
        let _ = answered(pin!(first));
        let third = handed(&queue, 3);
        assert!(!is_wanted(&queue));
        drop(third);
        assert!(is_wanted(&queue), "whoever does not wait wants it written as well");
    }

    #[test]
    fn a_writer_that_sleeps_is_woken() {
        let queue = Arc::new(Queue::new(8));
        let writer = std::thread::spawn({
            let queue = queue.clone();
            move || std::iter::from_fn(|| queue.next()).collect::<Vec<u8>>()
        });
        for job in 0..3 {
            let mut answer = pin!(handed(&queue, job));
            let _ = answered(answer.as_mut());
        }
        queue.close();
        assert_eq!(writer.join().unwrap(), [0, 1, 2]);
    }

    #[test]
    fn what_waits_when_no_more_comes_is_still_taken() {
        let queue = Arc::new(Queue::new(2));
        let _answers = (handed(&queue, 1), handed(&queue, 2));
        assert_eq!(queue.push(3), Err(NotQueued::Full));
        queue.close();
        assert_eq!((queue.next(), queue.next(), queue.next()), (Some(1), Some(2), None));
        assert_eq!(queue.push(4), Err(NotQueued::Ended));
    }

    /// However the writer ends, whoever waits hears of it.
    #[test]
    fn a_writer_that_is_gone_answers_nobody_and_is_noticed() {
        let queue: Arc<Queue<oneshot::Sender<Result<(), StoreError>>>> = Arc::new(Queue::new(8));
        let (reply, answer) = oneshot::channel();
        let place = queue.push(reply).unwrap();
        let mut answer = pin!(QueuedAnswer::new(queue.clone(), place, answer));
        assert!(answered(answer.as_mut()).is_pending());
        drop(QueueEnd(queue.clone()));
        assert!(matches!(answered(answer.as_mut()), Poll::Ready(Err(StoreError::Unknown { .. }))));
        assert_eq!(queue.push(oneshot::channel().0), Err(NotQueued::Ended));
    }
}

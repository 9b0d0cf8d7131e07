//! Time, randomness and ids: the one file that takes them from the system.
//!
//! Everything else gets them as arguments, and sleeps by the clock too. A virtual clock stands still until it is moved
//! on, for scenarios that wait for weeks (`manual.rs`); one that was made from a seed also draws everything from it.

mod manual;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use standfast_core::command::Entropy;
use standfast_core::id::{Incarnation, RunId, StorageKind};
use standfast_core::name::Tenant;
use standfast_core::time::{Millis, Timestamp};

pub use manual::ManualClock;

/// Says what time it is, and lets tasks sleep. A handle: clones of a virtual clock show the same time.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The wall clock at the start plus monotonic time, so that nobody's change of the wall clock moves it; and what
    /// the nodes agreed on beside it.
    System {
        /// Milliseconds since 1970 at the start.
        began_at: i64,
        /// The same moment on the monotonic clock.
        began: Instant,
        /// By how many milliseconds the time that all nodes go by is ahead of this one.
        ahead: Arc<AtomicI64>,
    },
    /// Stands still until it is moved.
    Virtual(Arc<ManualClock>),
}

impl Clock {
    /// The real one.
    #[must_use]
    pub fn system() -> Clock {
        Clock::wrong_by(Millis(0))
    }

    /// The real one of a machine whose wall clock is wrong by a span.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place where time is read")]
    pub fn wrong_by(span: Millis) -> Clock {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began_at = i64::try_from(since.as_millis()).unwrap_or(i64::MAX).saturating_add(span.0);
        Clock::System { began_at, began: Instant::now(), ahead: Arc::default() }
    }

    /// One that stands at this instant.
    #[must_use]
    pub fn standing_at(at: Timestamp) -> Clock {
        Clock::Virtual(Arc::new(ManualClock::at(at)))
    }

    /// The instant now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match self {
            Clock::System { ahead, .. } => self.own().plus(Millis(ahead.load(Ordering::Relaxed))),
            Clock::Virtual(time) => time.now(),
        }
    }

    /// The instant now by this machine's own clock, whatever the nodes agreed on.
    #[must_use]
    pub fn own(&self) -> Timestamp {
        match self {
            Clock::System { began_at, began, .. } => Timestamp(
                began_at.saturating_add(i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX)),
            ),
            Clock::Virtual(time) => time.now(),
        }
    }

    /// The instant now in microseconds since 1970: for what is measured, never for what is decided.
    #[must_use]
    pub fn micros(&self) -> u64 {
        let micros = match self {
            Clock::System { began_at, began, ahead } => {
                let passed = i64::try_from(began.elapsed().as_micros()).unwrap_or(i64::MAX);
                began_at
                    .saturating_add(ahead.load(Ordering::Relaxed))
                    .saturating_mul(1_000)
                    .saturating_add(passed)
            }
            Clock::Virtual(time) => time.now().0.saturating_mul(1_000),
        };
        u64::try_from(micros).unwrap_or(0)
    }

    /// From now on goes by a time that is so much ahead of this machine's own. Answers by how much that moved it. What is
    /// within the error of the measurement changes nothing; a virtual clock is always right.
    pub fn agree(&self, ahead_by: Millis, error: Millis) -> Millis {
        match self {
            Clock::System { ahead, .. } => {
                let moved = ahead_by.0.saturating_sub(ahead.load(Ordering::Relaxed));
                if moved.saturating_abs() <= error.0 {
                    return Millis(0);
                }
                ahead.store(ahead_by.0, Ordering::Relaxed);
                Millis(moved)
            }
            Clock::Virtual(_) => Millis(0),
        }
    }

    /// Moves a virtual clock; the real one goes by itself.
    pub fn advance(&self, span: Millis) {
        match self {
            Clock::System { .. } => {}
            Clock::Virtual(time) => time.move_to(time.now().plus(span)),
        }
    }

    /// Sleeps for a span of this clock's time; not at all when it is negative.
    pub fn sleep(&self, span: Millis) -> impl Future<Output = ()> + Send + use<> {
        let standing = match self {
            Clock::System { .. } => None,
            Clock::Virtual(time) => Some(time.sleep(span)),
        };
        async move {
            match standing {
                Some(sleep) => sleep.await,
                None => tokio::time::sleep(duration(span)).await,
            }
        }
    }

    /// Waits for something, but no longer than a span; none when it took longer.
    pub async fn timeout<T>(&self, span: Millis, awaited: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = awaited => Some(done),
            () = self.sleep(span) => None,
        }
    }

    /// A task that goes by this clock. On a virtual one its polls are counted, and it can be stopped.
    pub fn follows<F: Future + Send>(&self, task: F) -> impl Future<Output = F::Output> + Send + use<F> {
        let standing = match self {
            Clock::System { .. } => None,
            Clock::Virtual(time) => Some(time.clone()),
        };
        async move {
            let Some(standing) = standing else { return task.await };
            let mut task = pin!(task);
            poll_fn(|context| {
                if standing.is_stopped(context.waker()) {
                    Poll::Pending
                } else {
                    standing.count_poll();
                    task.as_mut().poll(context)
                }
            })
            .await
        }
    }

    /// Fresh random bytes for a decision.
    #[must_use]
    pub fn entropy(&self) -> Entropy {
        match self {
            Clock::System { .. } => entropy(),
            Clock::Virtual(time) => time.draw().unwrap_or_else(entropy),
        }
    }

    /// The name of a process among all nodes, for as long as it lives.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        Incarnation(self.entropy().draw("node", 0).0)
    }

    /// The id of a new run.
    #[must_use]
    pub fn run_id(&self, tenant: &Tenant, place: StorageKind) -> RunId {
        let random = self.entropy().draw("run", 0).0;
        RunId::new(tenant, place, self.now(), [random[0], random[1], random[2], random[3], random[4]])
    }
}

/// Measures spans, on the monotonic clock.
#[derive(Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place where time is read")]
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// Microseconds since it was started.
    #[must_use]
    pub fn micros(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// How long to sleep for a span; never negative.
#[must_use]
pub fn duration(span: Millis) -> Duration {
    Duration::from_millis(u64::try_from(span.0).unwrap_or(0))
}

/// Fresh random bytes for a decision.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place where randomness is drawn")]
pub fn entropy() -> Entropy {
    Entropy(rand::random())
}

/// Fresh random bytes that nobody can guess.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place where randomness is drawn")]
pub fn random_bytes<const N: usize>() -> [u8; N] {
    rand::random()
}

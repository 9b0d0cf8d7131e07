//! Time that stands still until it is moved: scenarios wait for weeks in no time.
//!
//! Whoever sleeps is woken when time is moved past their instant. Polls of the tasks that go by this time are counted,
//! so that whoever moves it can tell when nobody has anything left to do at this instant.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use holdpoint_core::time::{Millis, Timestamp};

/// Time that stands still.
#[derive(Debug)]
pub struct Standing {
    state: Mutex<State>,
    polls: AtomicU64,
}

#[derive(Debug)]
struct State {
    now: Timestamp,
    /// Who sleeps, by the instant they want to be woken at.
    sleepers: BTreeMap<(Timestamp, u64), Waker>,
    ever_slept: u64,
}

impl Standing {
    /// Time that stands at this instant.
    #[must_use]
    pub fn at(now: Timestamp) -> Standing {
        let state = State { now, sleepers: BTreeMap::new(), ever_slept: 0 };
        Standing { state: Mutex::new(state), polls: AtomicU64::new(0) }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.state().now
    }

    /// Moves time to an instant, never back, and wakes whoever slept until then.
    pub fn move_to(&self, at: Timestamp) {
        let woken: Vec<Waker> = {
            let mut state = self.state();
            state.now = state.now.max(at);
            let later = (Timestamp(state.now.0.saturating_add(1)), 0);
            let later = state.sleepers.split_off(&later);
            std::mem::replace(&mut state.sleepers, later).into_values().collect()
        };
        woken.into_iter().for_each(Waker::wake);
    }

    /// The first instant at which somebody wants to be woken.
    #[must_use]
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.state().sleepers.keys().next().map(|(at, _)| *at)
    }

    /// How often tasks that go by this time were polled.
    #[must_use]
    pub fn polls(&self) -> u64 {
        self.polls.load(Ordering::SeqCst)
    }

    pub(super) fn count_poll(&self) {
        self.polls.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn sleep(self: &Arc<Standing>, span: Millis) -> Sleep {
        let mut state = self.state();
        state.ever_slept += 1;
        let key = (state.now.plus(Millis(span.0.max(0))), state.ever_slept);
        Sleep { time: self.clone(), key }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody who sleeps until an instant.
#[derive(Debug)]
pub(super) struct Sleep {
    time: Arc<Standing>,
    key: (Timestamp, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.time.state();
        if state.now >= self.key.0 {
            return Poll::Ready(());
        }
        state.sleepers.insert(self.key, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.time.state().sleepers.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Clock;
    use super::*;

    #[tokio::test]
    async fn sleepers_wake_in_order_and_only_when_time_is_moved() {
        let clock = Clock::standing_at(Timestamp(1_000));
        let Clock::Virtual(time) = &clock else { panic!("not virtual") };
        let (short, long) = (clock.sleep(Millis(10)), clock.sleep(Millis(20)));
        let (short, long) = (tokio::spawn(short), tokio::spawn(long));
        tokio::task::yield_now().await;
        assert_eq!(time.next_wake(), Some(Timestamp(1_010)));
        clock.advance(Millis(10));
        short.await.unwrap();
        assert_eq!((clock.now(), time.next_wake()), (Timestamp(1_010), Some(Timestamp(1_020))));
        assert!(!long.is_finished());
        clock.advance(Millis(15));
        long.await.unwrap();
        assert_eq!((clock.now(), time.next_wake()), (Timestamp(1_025), None));
    }

    #[tokio::test]
    async fn whoever_stops_sleeping_is_forgotten() {
        let clock = Clock::standing_at(Timestamp(0));
        let Clock::Virtual(time) = &clock else { panic!("not virtual") };
        assert_eq!(clock.timeout(Millis(10), std::future::ready(7)).await, Some(7));
        assert_eq!(time.next_wake(), None);
        clock.sleep(Millis(-5)).await;
    }
}

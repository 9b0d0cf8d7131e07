//! Time that stands still until it is moved: scenarios wait for weeks in no time.
//!
//! Whoever sleeps is woken when time is moved past their instant. Polls of the tasks that go by this time are counted,
//! so that whoever moves it can tell when nobody has anything left to do at this instant. They can be stopped where they
//! are and go on later, as a process that gets no processor time; and what they draw can follow from a seed.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use standfast_core::command::Entropy;
use standfast_core::digest;
use standfast_core::time::{Millis, Timestamp};

/// Time that stands still.
#[derive(Debug)]
pub struct ManualClock {
    state: Mutex<State>,
    polls: AtomicU64,
    /// Whatever is drawn follows from it, and from how much was drawn before.
    seed: Option<u64>,
    drawn: AtomicU64,
}

#[derive(Debug)]
struct State {
    now: Timestamp,
    /// Who sleeps, by the instant they want to be woken at.
    sleepers: BTreeMap<(Timestamp, u64), Waker>,
    ever_slept: u64,
    /// The tasks that wait to go on, while they are stopped.
    stopped: Option<Vec<Waker>>,
}

impl ManualClock {
    /// Time that stands at this instant.
    #[must_use]
    pub fn at(now: Timestamp) -> ManualClock {
        let state = State { now, sleepers: BTreeMap::new(), ever_slept: 0, stopped: None };
        ManualClock {
            state: Mutex::new(state),
            polls: AtomicU64::new(0),
            seed: None,
            drawn: AtomicU64::new(0),
        }
    }

    /// The same, and whatever is drawn by this clock follows from a seed: never for what nobody may guess.
    #[must_use]
    pub fn seeded(now: Timestamp, seed: u64) -> ManualClock {
        ManualClock { seed: Some(seed), ..ManualClock::at(now) }
    }

    /// Random bytes of the seed; none when there is no seed.
    pub(super) fn draw(&self) -> Option<Entropy> {
        let seed = self.seed?.to_be_bytes();
        let drawn = self.drawn.fetch_add(1, Ordering::SeqCst).to_be_bytes();
        Some(Entropy(digest::of_parts("standfast.seeded.1", &[&seed, &drawn]).0))
    }

    /// Stops the tasks that go by this time: none is polled again before they go on.
    pub fn stop(&self) {
        self.state().stopped.get_or_insert_default();
    }

    /// Lets stopped tasks go on where they were.
    pub fn go_on(&self) {
        let waiting = self.state().stopped.take();
        waiting.into_iter().flatten().for_each(Waker::wake);
    }

    /// Whether the tasks are stopped; whoever asks is woken when they go on.
    pub(super) fn is_stopped(&self, task: &Waker) -> bool {
        let mut state = self.state();
        let Some(waiting) = &mut state.stopped else { return false };
        waiting.push(task.clone());
        true
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

    pub(super) fn sleep(self: &Arc<ManualClock>, span: Millis) -> Sleep {
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
    time: Arc<ManualClock>,
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
    async fn stopped_tasks_go_on_where_they_were() {
        let clock = Clock::standing_at(Timestamp(0));
        let Clock::Virtual(time) = &clock else { panic!("not virtual") };
        let sleeper = tokio::spawn(clock.follows(clock.sleep(Millis(10))));
        time.stop();
        clock.advance(Millis(20));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(!sleeper.is_finished());
        assert_eq!(time.polls(), 0);
        time.go_on();
        sleeper.await.unwrap();
    }

    #[test]
    fn what_a_seeded_clock_draws_follows_from_its_seed() {
        let drawn = |seed| {
            let clock = Clock::Virtual(Arc::new(ManualClock::seeded(Timestamp(0), seed)));
            [clock.entropy().0, clock.entropy().0]
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
        assert_ne!(drawn(7)[0], drawn(7)[1]);
        let seedless = || Clock::standing_at(Timestamp(0)).entropy().0;
        assert_ne!(seedless(), seedless());
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

//! How often somebody may report, and how often about one call (S2-41).
//!
//! Counted by the minute, in a table of bounded size: whoever was counted longest ago is forgotten first.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use standfast_core::digest::{self, Digest};
use standfast_core::time::{Millis, Timestamp};

/// How long is counted.
const WINDOW: Millis = Millis::seconds(60);

/// How many are counted at once.
const COUNTED_MAX: usize = 20_000;

/// Who reported how often lately.
#[derive(Debug, Default)]
pub(super) struct Rate {
    counted: Mutex<HashMap<Digest, SenderCount>>,
}

#[derive(Debug)]
struct SenderCount {
    since: Timestamp,
    times: u32,
}

/// Who or what is counted.
#[derive(Debug, Clone, Copy)]
pub(super) enum RateSubject<'a> {
    /// A caller.
    Caller(&'a str),
    /// A call.
    Call(&'a str),
}

impl Rate {
    /// Counts one more. When that is too many: after how many seconds it may be tried again.
    pub(super) fn take(&self, of: RateSubject<'_>, most: u32, now: Timestamp) -> Result<(), u32> {
        let key = match of {
            RateSubject::Caller(name) => digest::of_parts("caller", &[name.as_bytes()]),
            RateSubject::Call(id) => digest::of_parts("call", &[id.as_bytes()]),
        };
        let mut all = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = |counted: &SenderCount| now.since(counted.since) < WINDOW;
        if let Some(counted) = all.get_mut(&key).filter(|counted| is_current(counted)) {
            if counted.times >= most {
                let left = WINDOW.0.saturating_sub(now.since(counted.since).0);
                return Err(u32::try_from(left.saturating_add(999) / 1000).unwrap_or(60).max(1));
            }
            counted.times += 1;
            return Ok(());
        }
        if all.len() >= COUNTED_MAX {
            all.retain(|_, counted| is_current(counted));
        }
        if all.len() >= COUNTED_MAX {
            let oldest = all.iter().min_by_key(|(_, counted)| counted.since).map(|(key, _)| *key);
            oldest.map(|key| all.remove(&key));
        }
        all.insert(key, SenderCount { since: now, times: 1 });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S2-41, T37: counted for each by itself, and forgotten after a minute.
    #[test]
    fn whoever_reports_too_often_waits() {
        let rate = Rate::default();
        let at = |seconds: i64| Timestamp(seconds * 1000);
        for _ in 0..3 {
            assert_eq!(rate.take(RateSubject::Caller("ann"), 3, at(0)), Ok(()));
        }
        assert_eq!(rate.take(RateSubject::Caller("ann"), 3, at(20)), Err(40));
        assert_eq!(rate.take(RateSubject::Caller("bob"), 3, at(20)), Ok(()));
        assert_eq!(
            rate.take(RateSubject::Call("ann"), 3, at(20)),
            Ok(()),
            "a call of that name is not a caller"
        );
        assert_eq!(rate.take(RateSubject::Caller("ann"), 3, at(60)), Ok(()));
    }

    /// A flood of callers fills no memory, and what was counted last stays.
    #[test]
    fn so_many_are_counted_and_no_more() {
        let rate = Rate::default();
        for n in 0..COUNTED_MAX + 100 {
            let now = Timestamp(i64::try_from(n / 1000).unwrap());
            assert_eq!(rate.take(RateSubject::Caller(&n.to_string()), 1, now), Ok(()));
        }
        assert_eq!(rate.counted.lock().unwrap().len(), COUNTED_MAX);
        let last = (COUNTED_MAX + 99).to_string();
        assert!(rate.take(RateSubject::Caller(&last), 1, Timestamp(25)).is_err());
    }
}

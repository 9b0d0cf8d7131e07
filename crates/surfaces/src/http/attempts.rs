//! Failed authentications, counted by the address and by the key prefix that they come with: whoever fails often gets 429.
//!
//! A credential is always looked up first, so a valid one is never throttled, whatever others at its address send. Two
//! tables of bounded size, one number for each entry; whoever was counted longest ago is forgotten first.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use standfast_core::time::{Millis, Timestamp};

/// Failures of one source within [`WINDOW`] before more of them are answered with 429.
const MOST: u32 = 20;
/// How long failures are counted.
const WINDOW: Millis = Millis::seconds(60);
/// Addresses, and prefixes, that are remembered at once.
const SOURCES: usize = 4096;

/// Who has failed lately.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    by_address: Mutex<Sources<IpAddr>>,
    by_prefix: Mutex<Sources<String>>,
}

/// Failures by what they came with.
#[derive(Debug)]
struct Sources<K>(HashMap<K, Failures>);

#[derive(Debug)]
struct Failures {
    since: Timestamp,
    count: u32,
}

/// What follows from a failure for whoever caused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Throttle {
    /// It is only a failure.
    No,
    /// One too many. The wait is in seconds; `is_new` the first time within the window, for the log.
    Wait { seconds: u32, is_new: bool },
}

impl Attempts {
    /// Counts a failed authentication, by the client's address and by the prefix of the key if it was one.
    pub(super) fn fail(&self, from: Option<IpAddr>, prefix: Option<&str>, now: Timestamp) -> Throttle {
        let of_address = from.map(|from| lock(&self.by_address).count(network(from), now));
        let of_prefix = prefix.map(|prefix| lock(&self.by_prefix).count(prefix.to_owned(), now));
        of_address.into_iter().chain(of_prefix).fold(Throttle::No, Throttle::stricter)
    }
}

impl Throttle {
    fn stricter(self, other: Throttle) -> Throttle {
        match (self, other) {
            (Throttle::No, throttle) | (throttle, Throttle::No) => throttle,
            (Throttle::Wait { seconds: a, is_new: x }, Throttle::Wait { seconds: b, is_new: y }) => {
                Throttle::Wait { seconds: a.max(b), is_new: x || y }
            }
        }
    }
}

impl<K> Default for Sources<K> {
    fn default() -> Sources<K> {
        Sources(HashMap::new())
    }
}

impl<K: Hash + Eq + Clone> Sources<K> {
    fn count(&mut self, source: K, now: Timestamp) -> Throttle {
        let is_current = |failures: &Failures| now.since(failures.since) < WINDOW;
        if let Some(failures) = self.0.get_mut(&source).filter(|failures| is_current(failures)) {
            failures.count = failures.count.saturating_add(1);
            let left = WINDOW.0.saturating_sub(now.since(failures.since).0);
            let seconds = u32::try_from(left.saturating_add(999) / 1000).unwrap_or(u32::MAX).max(1);
            return if failures.count > MOST {
                Throttle::Wait { seconds, is_new: failures.count == MOST + 1 }
            } else {
                Throttle::No
            };
        }
        if self.0.len() >= SOURCES {
            self.0.retain(|_, failures| is_current(failures));
        }
        if self.0.len() >= SOURCES {
            // Whoever has been counted the longest is nearest to the end of their minute.
            let oldest = self.0.iter().min_by_key(|(_, failures)| failures.since).map(|(key, _)| key.clone());
            oldest.map(|key| self.0.remove(&key));
        }
        self.0.insert(source, Failures { since: now, count: 1 });
        Throttle::No
    }
}

fn lock<K>(sources: &Mutex<Sources<K>>) -> MutexGuard<'_, Sources<K>> {
    sources.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whoever has one address of version 6 has 2^64 of them.
pub(super) fn network(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp(1_762_000_000_000);

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    fn wait(throttle: Throttle) -> Option<u32> {
        match throttle {
            Throttle::No => None,
            Throttle::Wait { seconds, .. } => Some(seconds),
        }
    }

    /// T37: failures of one address, and of its neighbours of version 6, are throttled; nobody else's are.
    #[test]
    fn an_address_with_many_failures_is_throttled() {
        let attempts = Attempts::default();
        let fail = |text: &str, now| wait(attempts.fail(address(text), None, now));
        for _ in 0..MOST {
            assert_eq!(fail("10.0.0.1", NOON), None);
        }
        assert_eq!(fail("10.0.0.1", NOON.plus(Millis::seconds(10))), Some(50));
        assert_eq!(fail("::ffff:10.0.0.1", NOON), Some(60));
        assert_eq!(fail("10.0.0.2", NOON), None);
        assert_eq!(fail("10.0.0.1", NOON.plus(Millis::seconds(60))), None, "a minute later");
        for host in 0..MOST {
            assert_eq!(fail(&format!("2001:db8::{host:x}"), NOON), None);
        }
        assert_eq!(fail("2001:db8::ffff:1", NOON), Some(60));
        assert_eq!(fail("2001:db8:0:1::1", NOON), None);
    }

    /// T37: guesses at one key are throttled wherever they come from, and it is logged once.
    #[test]
    fn a_prefix_with_many_failures_is_throttled_from_every_address() {
        let attempts = Attempts::default();
        let fail = |host: u32, prefix| {
            attempts.fail(Some(IpAddr::V4(std::net::Ipv4Addr::from_bits(host))), Some(prefix), NOON)
        };
        for host in 0..MOST {
            assert_eq!(fail(host, "aaaaaaaa"), Throttle::No);
        }
        assert_eq!(fail(1000, "aaaaaaaa"), Throttle::Wait { seconds: 60, is_new: true });
        assert_eq!(fail(1001, "aaaaaaaa"), Throttle::Wait { seconds: 60, is_new: false });
        assert_eq!(fail(1002, "bbbbbbbb"), Throttle::No);
    }

    #[test]
    fn memory_is_bounded_however_many_addresses_and_prefixes_are_tried() {
        let attempts = Attempts::default();
        for n in 0..3 * SOURCES as u32 {
            let now = NOON.plus(Millis(i64::from(n)));
            let from = IpAddr::V4(std::net::Ipv4Addr::from_bits(n));
            attempts.fail(Some(from), Some(&n.to_string()), now);
        }
        assert!(lock(&attempts.by_address).0.len() <= SOURCES);
        assert!(lock(&attempts.by_prefix).0.len() <= SOURCES);
    }
}

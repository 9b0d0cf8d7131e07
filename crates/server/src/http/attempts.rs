//! Wrong keys and tokens, counted by the address that they come from: whoever tries many is made to wait.
//!
//! Bounded: a table of so many addresses, each with one number and the last few credentials that were right. An address
//! may stand for many people (a proxy, a company), so a credential that was right lately is still looked at; nothing
//! else from there is, until the minute is over.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdpoint_core::digest::Digest;
use holdpoint_core::time::{Millis, Timestamp};

/// Wrong credentials of one address within [`WINDOW`] before it has to wait.
const MOST: u32 = 20;
/// How long they are counted, and how long the wait is at most.
const WINDOW: Millis = Millis::seconds(60);
/// Addresses that are remembered at once.
const ADDRESSES: usize = 4096;
/// Right credentials that are remembered for an address.
const KNOWN: usize = 8;

/// Who has shown wrong credentials lately.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    by_address: Mutex<HashMap<IpAddr, Entry>>,
}

#[derive(Debug)]
struct Entry {
    since: Timestamp,
    wrong: u32,
    right: Vec<Digest>,
}

impl Attempts {
    /// After how many seconds this credential may be shown again; none when it is looked at now.
    pub(super) fn wait(&self, from: IpAddr, shown: Digest, now: Timestamp) -> Option<u32> {
        let mut entries = self.entries();
        let entry = current(&mut entries, network(from), now)?;
        let has_to_wait = entry.wrong >= MOST && !entry.right.contains(&shown);
        let left = Millis(WINDOW.0.saturating_sub(now.since(entry.since).0));
        has_to_wait.then(|| u32::try_from(left.0.saturating_add(999) / 1000).unwrap_or(u32::MAX).max(1))
    }

    /// It was wrong.
    pub(super) fn wrong(&self, from: IpAddr, now: Timestamp) {
        let mut entries = self.entries();
        let from = network(from);
        if let Some(entry) = current(&mut entries, from, now) {
            entry.wrong = entry.wrong.saturating_add(1);
            return;
        }
        if entries.len() >= ADDRESSES {
            entries.retain(|_, entry| now.since(entry.since) < WINDOW);
        }
        if entries.len() >= ADDRESSES {
            // Whoever has been counted the longest is forgotten first: they are nearest to the end of their minute.
            let oldest = entries.iter().min_by_key(|(_, entry)| entry.since).map(|(address, _)| *address);
            oldest.map(|address| entries.remove(&address));
        }
        entries.insert(from, Entry { since: now, wrong: 1, right: Vec::new() });
    }

    /// It was right. Remembered where somebody else's were wrong, so that they do not lock this one out.
    pub(super) fn right(&self, from: IpAddr, shown: Digest, now: Timestamp) {
        let mut entries = self.entries();
        let Some(entry) = current(&mut entries, network(from), now) else { return };
        if !entry.right.contains(&shown) {
            entry.right.truncate(KNOWN - 1);
            entry.right.insert(0, shown);
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<IpAddr, Entry>> {
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is counted of an address in the minute that is under way.
fn current(entries: &mut HashMap<IpAddr, Entry>, from: IpAddr, now: Timestamp) -> Option<&mut Entry> {
    entries.get_mut(&from).filter(|entry| now.since(entry.since) < WINDOW)
}

/// Whoever has one address of version 6 has 2^64 of them.
fn network(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp(1_762_000_000_000);

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Guessing is slow, for one address and for its neighbours of version 6; nobody else notices.
    #[test]
    fn an_address_with_many_wrong_keys_waits() {
        let attempts = Attempts::default();
        let (one, guess) = (address("10.0.0.1"), Digest([1; 32]));
        for _ in 0..MOST {
            assert_eq!(attempts.wait(one, guess, NOON), None);
            attempts.wrong(one, NOON);
        }
        assert_eq!(attempts.wait(one, guess, NOON.plus(Millis::seconds(10))), Some(50));
        assert_eq!(attempts.wait(address("::ffff:10.0.0.1"), guess, NOON), Some(60));
        assert_eq!(attempts.wait(address("10.0.0.2"), guess, NOON), None);
        assert_eq!(attempts.wait(one, guess, NOON.plus(Millis::seconds(60))), None, "a minute later");
        for host in 0..MOST {
            attempts.wrong(address(&format!("2001:db8::{host:x}")), NOON);
        }
        assert_eq!(attempts.wait(address("2001:db8::ffff:1"), guess, NOON), Some(60));
        assert_eq!(attempts.wait(address("2001:db8:0:1::1"), guess, NOON), None);
    }

    #[test]
    fn a_key_that_was_right_is_still_looked_at() {
        let attempts = Attempts::default();
        let (proxy, good) = (address("10.0.0.1"), Digest([2; 32]));
        attempts.wrong(proxy, NOON);
        attempts.right(proxy, good, NOON);
        for _ in 0..MOST {
            attempts.wrong(proxy, NOON);
        }
        assert_eq!(attempts.wait(proxy, good, NOON), None);
        assert!(attempts.wait(proxy, Digest([3; 32]), NOON).is_some());
        for n in 0..100 {
            attempts.right(proxy, Digest([n; 32]), NOON);
        }
        assert_eq!(attempts.entries()[&proxy].right.len(), KNOWN);
    }

    #[test]
    fn memory_is_bounded_however_many_addresses_try() {
        let attempts = Attempts::default();
        for n in 0..3 * ADDRESSES as u32 {
            let now = NOON.plus(Millis(i64::from(n)));
            attempts.wrong(IpAddr::V4(std::net::Ipv4Addr::from_bits(n)), now);
        }
        assert!(attempts.entries().len() <= ADDRESSES);
    }
}

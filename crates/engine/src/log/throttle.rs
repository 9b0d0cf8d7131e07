//! How many entries of the audit may be about one user in a minute: everything that somebody can cause without end is counted here.
//!
//! Each node counts for itself, in memory of bounded size. What was left out is said with the next entry.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use standfast_core::name::{Tenant, UserId};
use standfast_core::time::{Millis, Timestamp};

/// Entries about one user within a minute.
const MOST: u32 = 20;

/// Users who are remembered at once.
const USERS: usize = 4096;

/// Who has caused entries lately.
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<HashMap<(Tenant, UserId), Tries>>);

#[derive(Debug, Clone, Copy)]
struct Tries {
    since: Timestamp,
    count: u32,
    left_out: u32,
}

impl Throttle {
    /// How many were left out before this one; none where this one is left out too.
    pub(super) fn count(&self, tenant: &Tenant, user: &UserId, now: Timestamp) -> Option<u32> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = |tries: &Tries| now.since(tries.since) < Millis::seconds(60);
        if all.len() >= USERS {
            all.retain(|_, tries| is_current(tries));
        }
        if all.len() >= USERS {
            all.clear();
        }
        let fresh = Tries { since: now, count: 0, left_out: 0 };
        let tries = all.entry((tenant.clone(), user.clone())).or_insert(fresh);
        if !is_current(tries) {
            *tries = Tries { left_out: tries.left_out, ..fresh };
        }
        tries.count = tries.count.saturating_add(1);
        if tries.count > MOST {
            tries.left_out = tries.left_out.saturating_add(1);
            return None;
        }
        Some(std::mem::take(&mut tries.left_out))
    }
}

/// Whether nothing was left out, for entries that then do not say so.
pub(super) fn is_none(left_out: &u32) -> bool {
    *left_out == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T37: whoever tries without end fills no disk, and it is said how often they did.
    #[test]
    fn t37_entries_about_one_user_are_bounded() {
        let (refused, tenant) = (Throttle::default(), Tenant::default_tenant());
        let [ann, bob] = ["ann", "bob"].map(|user| UserId::new(user).unwrap());
        let noon = Timestamp(1_762_000_000_000);
        let later = |seconds| noon.plus(Millis::seconds(seconds));
        let written = (0..100).filter_map(|_| refused.count(&tenant, &ann, noon)).count();
        assert_eq!(written, MOST as usize);
        assert_eq!(refused.count(&tenant, &bob, noon), Some(0));
        assert_eq!(refused.count(&tenant, &ann, later(60)), Some(80));
        assert_eq!(refused.count(&tenant, &ann, later(61)), Some(0));
    }
}

//! That somebody tried to decide what they may not: entries of their tenant's audit.
//!
//! Only of those whom the run is visible to, or whose credential is not for deciding: whoever guesses ids is told that there is
//! nothing, and the log of the server says so. Every entry is a write, so somebody who tries again and again gets as many as
//! [`MOST`] in a minute; the next entry says how many were left out.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use standfast_core::id::HoldId;
use standfast_core::name::{Tenant, UserId};
use standfast_core::refusal::Refusal;
use standfast_core::time::{Millis, Timestamp};

use super::Log;
use crate::EngineError;
use crate::auth::{Identification, Principal};
use crate::request_context;

/// Entries about one user within a minute.
const MOST: u32 = 20;

/// Users who are remembered at once.
const USERS: usize = 4096;

/// Who has tried lately what they may not.
#[derive(Debug, Default)]
pub(crate) struct RefusedDecisions(Mutex<HashMap<(Tenant, UserId), Tries>>);

#[derive(Debug, Clone, Copy)]
struct Tries {
    since: Timestamp,
    count: u32,
    left_out: u32,
}

/// The entry.
#[derive(Debug, Serialize)]
struct RefusedDecision<'a> {
    kind: &'static str,
    user: &'a UserId,
    /// How they were identified, without anything that one could sign in with.
    by: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    holds: Vec<String>,
    channel: &'static str,
    why: &'static str,
    #[serde(skip_serializing_if = "is_none")]
    left_out: u32,
}

fn is_none(left_out: &u32) -> bool {
    *left_out == 0
}

impl RefusedDecisions {
    /// Writes an entry, if it was a no that says who may decide. A store that cannot keep it changes nothing of the no.
    pub(crate) async fn record(&self, log: &Log, who: &Principal, holds: Vec<HoldId>, error: &EngineError) {
        let Some(why) = why(error) else { return };
        let now = log.host.clock.now();
        let Some(left_out) = self.count(who, now) else { return };
        let (by, key) = match &who.by {
            Identification::Local => ("nothing", None),
            Identification::ApiKey { prefix } => ("api_key", Some(prefix.as_str())),
            Identification::Token { .. } => ("token", None),
            Identification::Link => ("link", None),
            Identification::Configured => ("configuration", None),
        };
        let holds = holds.iter().map(ToString::to_string).collect();
        let (kind, channel) = ("decision.refused", request_context::channel().as_str());
        let entry = RefusedDecision { kind, user: &who.user, by, key, holds, channel, why, left_out };
        let entry = serde_json::to_string(&entry).unwrap_or_default();
        if let Err(error) = log.store.put_audit(who.tenant.clone(), now, entry).await {
            tracing::warn!(user = %who.user, %error, "audit: a refused decision could not be recorded");
        }
    }

    /// How many were left out before this one; none where this one is left out too.
    fn count(&self, who: &Principal, now: Timestamp) -> Option<u32> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = |tries: &Tries| now.since(tries.since) < Millis::seconds(60);
        if all.len() >= USERS {
            all.retain(|_, tries| is_current(tries));
        }
        if all.len() >= USERS {
            all.clear();
        }
        let fresh = Tries { since: now, count: 0, left_out: 0 };
        let tries = all.entry((who.tenant.clone(), who.user.clone())).or_insert(fresh);
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

/// The no as one word; none where somebody was only late or wrong.
fn why(error: &EngineError) -> Option<&'static str> {
    match error {
        EngineError::Refused(Refusal::NotAllowed(_)) => Some("not_an_approver"),
        EngineError::MissingScope(_) => Some("missing_scope"),
        EngineError::StaleSignIn { .. } => Some("stale_sign_in"),
        EngineError::Refused(_)
        | EngineError::Store(_)
        | EngineError::NoSuchAgent { .. }
        | EngineError::BreaksSchema(_)
        | EngineError::KeyReused { .. }
        | EngineError::SessionClosed { .. }
        | EngineError::NotFound => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T37: whoever tries without end fills no disk, and it is said how often they did.
    #[test]
    fn t37_entries_about_one_user_are_bounded() {
        let refused = RefusedDecisions::default();
        let ann = Principal::of(UserId::new("ann").unwrap());
        let bob = Principal::of(UserId::new("bob").unwrap());
        let noon = Timestamp(1_762_000_000_000);
        assert_eq!((0..100).filter_map(|_| refused.count(&ann, noon)).count(), MOST as usize);
        assert_eq!(refused.count(&bob, noon), Some(0));
        assert_eq!(refused.count(&ann, noon.plus(Millis::seconds(60))), Some(80));
        assert_eq!(refused.count(&ann, noon.plus(Millis::seconds(61))), Some(0));
    }
}

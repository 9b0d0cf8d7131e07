//! That somebody took data out, or looked at what is left of an erased run: entries of their tenant's audit.
//!
//! An export is recorded before it is handed over, so that there is none of which the audit does not know. Whoever has the page of an
//! erased run open looks at it again and again: that is one entry an hour for each run, and there is a bound for each user
//! (`throttle.rs`). Nothing here is asked about runs that are not erased.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use standfast_core::id::RunId;
use standfast_core::name::UserId;
use standfast_core::time::{Millis, Timestamp};
use standfast_store::StoreError;

use super::Log;
use super::refused_decisions::shown_by;
use super::throttle::{Throttle, is_none};
use crate::auth::Principal;
use crate::request_context;

/// How long looking at the same erased run again is no news.
const NEWS_AFTER: Millis = Millis::hours(1);

/// Readers of runs who are remembered at once.
const READERS: usize = 4096;

/// What somebody takes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExportedData {
    /// Decided holds, as a table.
    HistoryCsv,
    /// Decided holds, as JSON.
    HistoryJson,
    /// A run as one value, for another server.
    ExecutionState,
}

/// The entry of an export.
#[derive(Debug, Serialize)]
struct Export<'a> {
    kind: &'static str,
    user: &'a UserId,
    by: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    what: ExportedData,
    count: usize,
    channel: &'static str,
}

/// The entry of a look at what is left of an erased run.
#[derive(Debug, Serialize)]
struct ErasedRead<'a> {
    kind: &'static str,
    user: &'a UserId,
    by: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    run: RunId,
    channel: &'static str,
    #[serde(skip_serializing_if = "is_none")]
    left_out: u32,
}

/// Who has looked lately at what is left of erased runs.
#[derive(Debug, Default)]
pub(crate) struct ErasedReads {
    seen: Mutex<HashMap<(UserId, RunId), Timestamp>>,
    throttle: Throttle,
}

/// Records that somebody is about to be handed data.
pub(crate) async fn record_export(
    log: &Log,
    who: &Principal,
    what: ExportedData,
    count: usize,
) -> Result<(), StoreError> {
    let (by, key) = shown_by(who);
    let (kind, channel) = ("data.exported", request_context::channel().as_str());
    let entry = Export { kind, user: &who.user, by, key, what, count, channel };
    let entry = serde_json::to_string(&entry).unwrap_or_default();
    log.store.put_audit(who.tenant.clone(), log.host.clock.now(), entry).await
}

impl ErasedReads {
    /// Records that somebody looks at what is left of an erased run. A store that cannot keep it hides nothing from them.
    pub(crate) async fn record(&self, log: &Log, who: &Principal, run: RunId) {
        let now = log.host.clock.now();
        if !self.is_news(&who.user, run, now) {
            return;
        }
        let Some(left_out) = self.throttle.count(&who.tenant, &who.user, now) else { return };
        let (by, key) = shown_by(who);
        let (kind, channel) = ("erased.read", request_context::channel().as_str());
        let entry = ErasedRead { kind, user: &who.user, by, key, run, channel, left_out };
        let entry = serde_json::to_string(&entry).unwrap_or_default();
        if let Err(error) = log.store.put_audit(who.tenant.clone(), now, entry).await {
            tracing::warn!(user = %who.user, %run, %error, "audit: a look at an erased run could not be recorded");
        }
    }

    /// Whether somebody has not looked at a run lately; from now on they have. The id of a run has its tenant.
    fn is_news(&self, user: &UserId, run: RunId, now: Timestamp) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |at: &Timestamp| now.since(*at) < NEWS_AFTER;
        if seen.len() >= READERS {
            seen.retain(|_, at| is_recent(at));
        }
        if seen.len() >= READERS {
            seen.clear();
        }
        let reader = (user.clone(), run);
        if seen.get(&reader).is_some_and(is_recent) {
            return false;
        }
        seen.insert(reader, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use standfast_core::id::StorageKind;
    use standfast_core::name::Tenant;

    use super::*;

    /// T37: a page that stays open writes an entry an hour, and memory is bounded however many runs somebody looks at.
    #[test]
    fn t37_looking_again_at_an_erased_run_is_no_news() {
        let reads = ErasedReads::default();
        let [ann, bob] = ["ann", "bob"].map(|user| UserId::new(user).unwrap());
        let noon = Timestamp(1_762_000_000_000);
        let run = |n: u32| {
            let [a, b, c, d] = n.to_be_bytes();
            RunId::new(&Tenant::default_tenant(), StorageKind::Durable, noon, [0, a, b, c, d])
        };
        assert!(reads.is_news(&ann, run(0), noon) && reads.is_news(&ann, run(1), noon));
        assert!(!reads.is_news(&ann, run(0), noon.plus(Millis(NEWS_AFTER.0 - 1))));
        assert!(reads.is_news(&bob, run(0), noon));
        assert!(reads.is_news(&ann, run(0), noon.plus(NEWS_AFTER)));
        for n in 0..10_000 {
            assert!(reads.is_news(&bob, run(n + 2), noon));
        }
        assert!(reads.seen.lock().unwrap().len() <= READERS);
    }
}

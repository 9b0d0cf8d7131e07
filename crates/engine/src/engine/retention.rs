//! Retention: the contents of runs that have been over for long enough are erased, if the configuration says so.
//!
//! A run says `run.erased` in its own log first, then the tenant's audit gets the proof of it, then its contents go; a
//! server that ends in between is found out by the next look. Headers, commitments and hashes stay, so the chain still verifies. Each run is erased by the node that has
//! its shard, a few at a time.

use std::sync::Arc;

use serde::Serialize;
use standfast_core::command::Command;
use standfast_core::digest::Digest;
use standfast_core::id::{RunId, Seq};
use standfast_core::link::{BadLink, Contents, Link};
use standfast_core::name::Tenant;
use standfast_core::project::hold_rows;
use standfast_core::time::{Millis, Timestamp};
use standfast_store::audit::remains_digest;
use standfast_store::{EndedQuery, StoreError};

use super::{Engine, EngineError};

/// Runs erased at once at most.
const AT_ONCE: usize = 50;

/// A moment for others between two pages.
const PAUSE: Millis = Millis(100);

/// How often old runs are looked for, at least and at most.
const EVERY: [Millis; 2] = [Millis::seconds(1), Millis::hours(1)];

/// What the audit says about runs whose time was over.
#[derive(Serialize)]
struct Proof {
    kind: &'static str,
    /// How long runs are kept, in milliseconds.
    kept_ms: Millis,
    erased: Vec<ErasedRun>,
}

/// A run whose contents go, with the head of the chain that stays.
#[derive(Serialize)]
pub(super) struct ErasedRun {
    pub(super) run: RunId,
    pub(super) seq: Seq,
    pub(super) hash: Digest,
    /// What else stays of it: there will be nothing to fold it from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remains: Option<Digest>,
}

impl Engine {
    /// Erases old runs from now on, for as long as the settings say how old.
    pub(super) fn keep_retention(&self) {
        let (mut stopping, mut reloads) = (self.shared.stopping.subscribe(), self.shared.reloads.subscribe());
        let shared = Arc::downgrade(&self.shared);
        self.shared.spawn(async move {
            while let Some(shared) = shared.upgrade().filter(|shared| !shared.is_stopping()) {
                let engine = Engine { shared };
                let keep = engine.settings().keep_ended;
                if let Some(keep) = keep
                    && let Err(error) = engine.erase_old(keep).await
                {
                    tracing::warn!(%error, "old runs could not be looked for; trying again later");
                }
                let clock = engine.shared.clock.clone();
                drop(engine);
                let next = async {
                    match keep {
                        Some(keep) => clock.sleep(Millis(keep.0 / 10).clamp(EVERY[0], EVERY[1])).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    _ = stopping.wait_for(|stopping| *stopping) => return,
                    changed = reloads.changed() => if changed.is_err() { return },
                    () = next => {}
                }
            }
        });
    }

    /// Erases what has been over for longer than this and is this node's to erase.
    async fn erase_old(&self, keep: Millis) -> Result<(), StoreError> {
        let shared = &self.shared;
        let before = Timestamp(shared.clock.now().0.saturating_sub(keep.0));
        for tenant in shared.tenants().await? {
            self.erase_old_of(tenant, keep, before).await?;
        }
        Ok(())
    }

    async fn erase_old_of(&self, tenant: Tenant, keep: Millis, before: Timestamp) -> Result<(), StoreError> {
        let shared = &self.shared;
        let mut cursor = None;
        while !shared.is_stopping() {
            let query = EndedQuery { tenant: tenant.clone(), before, cursor, limit: AT_ONCE };
            let page = shared.store.ended_runs(query).await?;
            let mut erased = Vec::new();
            for run in page.items {
                // Asked for each of them: a shard may go to another node at any moment.
                if !shared.is_own(&shared.shards(), run) {
                    continue;
                }
                match self.erase_ended(run).await {
                    Ok(proof) => erased.extend(proof),
                    Err(error) => tracing::warn!(%run, %error, "not erased; trying again later"),
                }
            }
            if !erased.is_empty() {
                let runs: Vec<RunId> = erased.iter().map(|proof| proof.run).collect();
                let proof = Proof { kind: "runs.erased", kept_ms: keep, erased };
                let entry = serde_json::to_string(&proof).unwrap_or_default();
                shared.store.put_audit(tenant.clone(), shared.clock.now(), entry).await?;
                for run in &runs {
                    shared.store.erase(*run).await?;
                }
                tracing::info!(
                    runs = runs.len(),
                    "erased the contents of runs that were over for long enough"
                );
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
            shared.clock.sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Lets a run that is over say that it is erased; none when that has to wait. A sub-run is kept while whoever asked for it goes on.
    async fn erase_ended(&self, run: RunId) -> Result<Option<ErasedRun>, EngineError> {
        let store = &self.shared.store;
        let stored = store.load(run).await?;
        if let Some(parent) = &stored.row.run.facts.parent
            && store.load(parent.run).await?.row.run.outcome().is_none()
        {
            return Ok(None);
        }
        let reason = Some("it was kept for as long as server.retention says".to_owned());
        self.by_the_clock(run, Command::Erase { reason }).await?;
        Ok(Some(self.remains_of(run).await?))
    }

    /// What stays of a run that says it is erased, for the proof of that: made while its contents are still there.
    pub(super) async fn remains_of(&self, run: RunId) -> Result<ErasedRun, StoreError> {
        let store = &self.shared.store;
        let row = store.load(run).await?.row;
        let links = store.links(run, Seq(0), usize::MAX).await?;
        let is_whole = links.iter().all(|link| matches!(link.contents, Contents::Whole { .. }));
        let events = links.iter().map(Link::events).collect::<Result<Vec<_>, BadLink>>();
        let events = events.map_err(|bad| StoreError::Corrupt { run, why: bad.to_string() })?.concat();
        let remains = is_whole.then(|| remains_digest(&row.run, &hold_rows(run, &events)));
        Ok(ErasedRun { run, seq: row.run.state.seq, hash: row.head, remains })
    }
}

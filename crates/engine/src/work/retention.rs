//! Retention: the contents of runs that have been over for long enough are erased, if the configuration says so; for some agents
//! earlier or later than for the others.
//!
//! A run says `run.erased` in its own log first, then the tenant's audit gets the proof of it, then its contents go; a
//! server that ends in between is found out by the next look. Headers, commitments and hashes stay, so the chain still verifies. Each run is erased by the node that has
//! its shard, a few at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use standfast_core::command::Command;
use standfast_core::id::RunId;
use standfast_core::name::{AgentName, Tenant};
use standfast_core::time::{Millis, Timestamp};
use standfast_store::{EndedQuery, StoreError};

use super::Work;
use crate::EngineError;
use crate::log::ErasedRun;
use crate::settings::Settings;

/// Runs erased at once at most.
const AT_ONCE: usize = 50;

/// A moment for others between two pages.
const PAUSE: Millis = Millis(100);

/// How often old runs are looked for, at least and at most.
const EVERY: [Millis; 2] = [Millis::seconds(1), Millis::hours(1)];

/// How long the contents of runs are kept that have ended.
#[derive(Debug, Clone)]
struct RetentionTimes {
    /// For ever where nothing is said.
    usual: Option<Millis>,
    /// Of agents that say otherwise.
    of_agents: BTreeMap<AgentName, Millis>,
}

impl RetentionTimes {
    fn of_settings(settings: &Settings) -> RetentionTimes {
        let said = settings.agents.iter().filter_map(|(name, agent)| Some((name.clone(), agent.keep_ended?)));
        RetentionTimes { usual: settings.keep_ended, of_agents: said.collect() }
    }

    /// The shortest; none when everything is kept for ever.
    fn shortest(&self) -> Option<Millis> {
        self.of_agents.values().chain(&self.usual).min().copied()
    }

    fn of(&self, agent: &AgentName) -> Option<Millis> {
        self.of_agents.get(agent).copied().or(self.usual)
    }
}

/// What the audit says about runs whose time was up.
#[derive(Serialize)]
struct Proof {
    kind: &'static str,
    /// How long such runs are kept, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_ms: Option<Millis>,
    erased: Vec<ErasedRun>,
}

impl Work {
    /// Erases old runs from now on, for as long as the settings say how old.
    pub(super) fn keep_retention(self: &Arc<Work>) {
        let (mut stopping, mut reloads) = (self.host.stopping(), self.host.reloads());
        let shared = Arc::downgrade(self);
        self.host.spawn(async move {
            while let Some(shared) = shared.upgrade().filter(|shared| !shared.host.is_stopping()) {
                let settings = shared.host.settings();
                let kept = RetentionTimes::of_settings(&settings);
                drop(settings);
                let keep = kept.shortest();
                if keep.is_some()
                    && let Err(error) = shared.erase_old(&kept).await
                {
                    tracing::warn!(%error, "retention: old runs could not be listed; trying again later");
                }
                let clock = shared.host.clock.clone();
                drop(shared);
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
    async fn erase_old(&self, kept: &RetentionTimes) -> Result<(), StoreError> {
        for tenant in self.log.tenants().await? {
            self.erase_old_of(tenant, kept).await?;
        }
        Ok(())
    }

    async fn erase_old_of(&self, tenant: Tenant, kept: &RetentionTimes) -> Result<(), StoreError> {
        let now = self.host.clock.now();
        let before = |keep: Millis| Timestamp(now.0.saturating_sub(keep.0));
        // What is kept for ever is never old enough.
        let usual = kept.usual.map_or(Timestamp(i64::MIN), before);
        let agents: BTreeMap<AgentName, Timestamp> =
            kept.of_agents.iter().map(|(agent, keep)| (agent.clone(), before(*keep))).collect();
        let mut cursor = None;
        while !self.host.is_stopping() {
            let query = EndedQuery {
                tenant: tenant.clone(),
                before: usual,
                agents: agents.clone(),
                cursor,
                limit: AT_ONCE,
            };
            let page = self.log.store.ended_runs(query).await?;
            let mut erased = Vec::new();
            for run in page.items {
                // Asked for each of them: a shard may go to another node at any moment.
                if !self.nodes.is_own(&self.nodes.shards(), run) {
                    continue;
                }
                match self.erase_ended(run, kept).await {
                    Ok(proof) => erased.extend(proof),
                    Err(error) => {
                        tracing::warn!(%run, %error, "retention: a run was not erased; trying again later")
                    }
                }
            }
            let spans: BTreeSet<Option<Millis>> = erased.iter().map(|(keep, _)| *keep).collect();
            for kept_ms in spans {
                let of_span: Vec<ErasedRun> =
                    erased.extract_if(.., |(keep, _)| *keep == kept_ms).map(|(_, proof)| proof).collect();
                let runs: Vec<RunId> = of_span.iter().map(|proof| proof.run).collect();
                let proof = Proof { kind: "runs.erased", kept_ms, erased: of_span };
                let entry = serde_json::to_string(&proof).unwrap_or_default();
                self.log.store.put_audit(tenant.clone(), self.host.clock.now(), entry).await?;
                for run in &runs {
                    self.log.store.erase(*run).await?;
                }
                tracing::info!(runs = runs.len(), "retention: erased the contents of old runs");
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
            self.host.clock.sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Lets a run that has ended say that it is erased; none when that has to wait. A sub-run is kept while whoever asked for it goes on.
    /// With it comes how long such runs are kept.
    async fn erase_ended(
        &self,
        run: RunId,
        kept: &RetentionTimes,
    ) -> Result<Option<(Option<Millis>, ErasedRun)>, EngineError> {
        let store = &self.log.store;
        let stored = store.load(run).await?;
        if let Some(parent) = &stored.row.run.facts.parent
            && store.load(parent.run).await?.row.run.outcome().is_none()
        {
            return Ok(None);
        }
        let agent = &stored.row.run.facts.agent;
        let said = if kept.of_agents.contains_key(agent) {
            format!("agents.{agent}.retention")
        } else {
            "server.retention".to_owned()
        };
        let reason = Some(format!("it was kept for as long as {said} says"));
        self.commit.commit_by_clock(run, Command::Erase { reason }).await?;
        Ok(Some((kept.of(agent), self.log.remains_of(run).await?)))
    }
}

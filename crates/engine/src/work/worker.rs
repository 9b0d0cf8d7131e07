//! Finding due runs: claim, drive, look again.
//!
//! Whatever is due is claimed through one list: runs whose node died, deadlines that passed, retries, runs that waited
//! for room. Claims skip agents at their limit, so one backlog does not starve others; when a place of such an agent is
//! free again, its next run is looked for at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use standfast_core::id::Seq;
use standfast_core::name::{AgentName, Tenant};
use standfast_core::project::Phase;
use standfast_core::time::{Millis, Timestamp};
use standfast_store::{Claim, ClaimedRun, Lease, StoreError, StoredRun};

use standfast_store::pipeline::has_relatives;

use super::Work;
use crate::EngineError;
use crate::drive::{Crowd, Queue, TakenRun};

/// Runs claimed at once at most.
const CLAIM_MAX: usize = 64;

/// How often old idempotency keys are looked for.
const KEYS_EVERY: Millis = Millis::hours(1);

/// How often the runs that wait for a slot are counted, while there are some.
const QUEUE_EVERY: Millis = Millis::seconds(1);

/// How often measurements are summed up, whether somebody scrapes or not.
const UPKEEP: Duration = Duration::from_secs(5);

impl Work {
    /// Looks for due runs from now on, until the engine is dropped or dies.
    pub(crate) fn begin(self: &Arc<Work>) {
        self.nodes.stay();
        self.begin_startup_report();
        let telemetry = self.host.fixed.telemetry.clone();
        let mut stopping = self.host.stopping();
        self.host.spawn(async move {
            let stopped = stopping.wait_for(|stopping| *stopping);
            tokio::select! {
                _ = stopped => {}
                () = telemetry.keep_up(UPKEEP) => {}
            }
        });
        self.keep_issuer_fresh();
        self.serve_inboxes();
        self.poll_remote_tasks();
        self.keep_retention();
        let shared = Arc::downgrade(self);
        self.host.spawn(async move {
            let (mut keys_seen_to, mut queue_seen_to) = (None, None);
            while let Some(shared) = shared.upgrade().filter(|shared| !shared.host.is_stopping()) {
                let found = shared.claim_and_drive().await;
                shared.see_to_keys(&mut keys_seen_to).await;
                shared.see_to_queue(&mut queue_seen_to).await;
                if found == 0 {
                    shared.end_startup_report();
                    let _ =
                        shared.host.clock.timeout(shared.host.fixed.poll, shared.wakes.worker_woken()).await;
                }
            }
        });
    }

    /// Has the keys of the identity provider fetched now and then: of the one that the settings name at the time.
    fn keep_issuer_fresh(self: &Arc<Work>) {
        let (mut stopping, mut reloads) = (self.host.stopping(), self.host.reloads());
        let shared = Arc::downgrade(self);
        self.host.spawn(async move {
            while let Some((issuer, clock)) = shared.upgrade().map(|shared| {
                (shared.host.settings().access.auth.issuer().cloned(), shared.host.clock.clone())
            }) {
                let fetches = async {
                    match &issuer {
                        Some(issuer) => issuer.keep_fresh(&clock).await,
                        None => std::future::pending().await,
                    }
                };
                let is_other = async {
                    while reloads.changed().await.is_ok() {
                        let now = shared
                            .upgrade()
                            .and_then(|shared| shared.host.settings().access.auth.issuer().cloned());
                        if now != issuer {
                            return;
                        }
                    }
                };
                tokio::select! {
                    _ = stopping.wait_for(|stopping| *stopping) => return,
                    () = fetches => {}
                    () = is_other => {}
                }
            }
        });
    }

    /// Forgets old idempotency keys now and then.
    async fn see_to_keys(&self, last: &mut Option<Timestamp>) {
        let now = self.host.clock.now();
        if last.is_some_and(|last| now.since(last) < KEYS_EVERY) {
            return;
        }
        *last = Some(now);
        if let Err(error) = self.commit.forget_keys().await {
            tracing::warn!(%error, "worker: expired idempotency keys could not be deleted; trying again later");
        }
    }

    /// Counts the runs that wait for a slot now and then, while there may be some.
    async fn see_to_queue(&self, last: &mut Option<Timestamp>) {
        let now = self.host.clock.now();
        if !self.pool.is_crowded() {
            return self.host.note_queued_runs(0);
        }
        if last.is_some_and(|last| now.since(last) < QUEUE_EVERY && now >= last) {
            return;
        }
        *last = Some(now);
        let mut queued = 0;
        for tenant in self.log.known_tenants() {
            match self.log.store.counts(tenant).await {
                Ok(counts) => queued += counts.runs.get(&Phase::Queued).copied().unwrap_or(0),
                Err(error) => {
                    tracing::warn!(%error, "worker: queued runs could not be counted; trying again");
                    return;
                }
            }
        }
        self.host.note_queued_runs(queued);
    }

    /// Claims what is due and there is room for; says how many runs that was.
    async fn claim_and_drive(self: &Arc<Work>) -> usize {
        let now = self.host.clock.now();
        let settings = self.host.settings();
        let rooms: Vec<(AgentName, usize)> =
            settings.agents.keys().map(|agent| (agent.clone(), self.pool.room(agent))).collect();
        let tenants = self.log.known_tenants();
        let room_of = |tenant: &Tenant| -> Vec<(Tenant, AgentName, usize)> {
            rooms.iter().map(|(agent, room)| (tenant.clone(), agent.clone(), *room)).collect()
        };
        let claim = Claim {
            node: self.host.node,
            now,
            until: now.plus(self.host.fixed.lease),
            shards: self.nodes.shards(),
            limit: CLAIM_MAX,
            room: tenants.iter().flat_map(room_of).collect(),
        };
        let claimed = match self.log.store.claim_due(claim).await {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::warn!(%error, "worker: due runs could not be claimed; trying again");
                return 0;
            }
        };
        self.note_crowds(&rooms, &claimed);
        let since = |claimed: &ClaimedRun| match claimed {
            ClaimedRun::Run { stored, from } => from.map(|lease| lease.until).or(stored.row.due_at),
            ClaimedRun::Corrupt { .. } => None,
        };
        let longest = claimed.iter().filter_map(since).min();
        let behind = longest.map_or(Millis(0), |at| now.since(at));
        self.host.fixed.telemetry.behind_by(behind.0);
        self.nodes.is_behind(behind);
        let mut taken = 0;
        for claimed in claimed {
            match claimed {
                ClaimedRun::Run { stored, from } => taken += usize::from(self.take_over(*stored, from).await),
                ClaimedRun::Corrupt { run, why } => {
                    tracing::error!(%run, why, "worker: quarantined: failed to load execution state")
                }
            }
        }
        taken
    }

    /// Remembers of which agents there may be more due than they have room for: all of their room was used up.
    fn note_crowds(&self, rooms: &[(AgentName, usize)], claimed: &[ClaimedRun]) {
        let mut taken: HashMap<&AgentName, usize> = HashMap::new();
        for claimed in claimed {
            if let ClaimedRun::Run { stored, .. } = claimed {
                *taken.entry(&stored.row.run.facts.agent).or_default() += 1;
            }
        }
        let crowd = |agent: &AgentName, room: usize| {
            let is_full = taken.get(agent).copied().unwrap_or(0) >= room || claimed.len() >= CLAIM_MAX;
            if is_full { Crowd::There } else { Crowd::Gone }
        };
        self.pool.note_crowds(rooms.iter().map(|(agent, room)| (agent, crowd(agent, *room))));
    }

    /// Drives a run that was claimed; says whether it is driven from here on.
    async fn take_over(self: &Arc<Work>, stored: StoredRun, from: Option<Lease>) -> bool {
        let facts = stored.row.run.facts.clone();
        self.log.heard_of(&facts.tenant);
        let (run, agent) = (facts.id, facts.agent.clone());
        // A drive whose lease ran out while it was alive has it again now.
        let Some(guard) = self.drives.guard_of_claimed(run) else { return false };
        self.recovered(&stored.row, from);
        if from.is_some() {
            self.host.fixed.telemetry.took_over();
        }
        let Some(slot) = self.pool.slot(&agent, Queue::of(&facts)) else {
            // The claim has used up a wake that may have been there: it is given back with the lease.
            let wake_at = has_relatives(&stored.row.run).then(|| self.host.clock.now());
            self.drives.release(run, wake_at).await;
            return false;
        };
        let taken = async {
            let row = self.drives.count_cut_off(stored.row, from).await?;
            Ok((row, self.log.events(run, Seq(0)).await?))
        };
        match taken.await {
            Ok((row, log)) => self.drives.drive(row, TakenRun { slot, guard, log: Arc::new(log) }),
            Err(EngineError::Store(StoreError::Corrupt { why, .. })) => {
                self.commit.quarantine(run, &why).await
            }
            Err(error) => {
                tracing::warn!(%run, %error, "worker: could not take over a run; trying again later");
                self.drives.release_later(guard);
            }
        }
        true
    }
}

//! Jobs that said they are worked on and went silent: they are written down as waiting again.
//!
//! `reads/jobs.rs` shows them so at once; this is for other readers of the database.

use std::sync::{Arc, PoisonError};

use standfast_core::body::Body;
use standfast_core::command::Command;
use standfast_core::hold::HoldKind;
use standfast_core::id::HoldId;
use standfast_core::job::JobProgress;
use standfast_core::name::Tenant;
use standfast_core::time::Millis;
use standfast_store::{Audience, HoldFilter, HoldQuery};

use super::Work;
use crate::EngineError;

/// Holds that are read at once.
const AT_ONCE: usize = 200;

/// How long there is between two looks for jobs that went silent: as long as a job may be silent, within these bounds.
const SWEEP_AT_MOST_EVERY: Millis = Millis::seconds(1);
const SWEEP_AT_LEAST_EVERY: Millis = Millis::seconds(60);

impl Work {
    /// Looks for jobs that went silent, now and once in a while, until the engine stops.
    pub fn sweep_jobs(self: &Arc<Work>) {
        let shared = Arc::downgrade(self);
        self.host.spawn(async move {
            while let Some(shared) = shared.upgrade().filter(|shared| !shared.host.is_stopping()) {
                match shared.sweep().await {
                    Ok(0) => {}
                    Ok(silent) => tracing::info!(silent, "jobs: silent jobs wait again"),
                    Err(error) => tracing::warn!(%error, "jobs: silent jobs could not be listed"),
                }
                let mut stopping = shared.host.stopping();
                let may_be_silent = shared.host.settings().jobs.processing_lasts;
                let pause = may_be_silent.clamp(SWEEP_AT_MOST_EVERY, SWEEP_AT_LEAST_EVERY);
                tokio::select! {
                    () = shared.host.clock.sleep(pause) => {}
                    _ = stopping.wait_for(|stopping| *stopping) => return,
                }
            }
        });
    }

    /// How many jobs of a tenant were found silent since this server started.
    #[must_use]
    pub fn silent_jobs(&self, tenant: &Tenant) -> u64 {
        let found = self.silent_jobs.lock().unwrap_or_else(PoisonError::into_inner);
        found.get(tenant).copied().unwrap_or(0)
    }

    /// S2-37: what is `processing` on record and has been silent for too long goes back to waiting.
    async fn sweep(&self) -> Result<u64, EngineError> {
        let mut silent = 0;
        for tenant in self.log.tenants().await? {
            let found = self.sweep_of(tenant.clone()).await?;
            if found > 0 {
                let mut known = self.silent_jobs.lock().unwrap_or_else(PoisonError::into_inner);
                *known.entry(tenant).or_default() += found;
            }
            silent += found;
        }
        Ok(silent)
    }

    async fn sweep_of(&self, tenant: Tenant) -> Result<u64, EngineError> {
        let shards = self.nodes.shards();
        let (mut silent, mut cursor) = (0, None);
        loop {
            let query = HoldQuery {
                tenant: tenant.clone(),
                audience: Audience::Everyone,
                filter: HoldFilter::All,
                kinds: vec![HoldKind::External],
                cursor,
                limit: AT_ONCE,
            };
            let page = self.log.store.list_holds(query).await?;
            let own =
                page.items.iter().filter(|row| row.processing && self.nodes.is_own(&shards, row.id.run));
            for row in own {
                match self.log.any_job(row.id).await {
                    Ok(view) if view.job.stands == (JobProgress::Waiting { processing: false }) => {
                        self.goes_back(row.id).await?;
                        silent += 1;
                    }
                    Ok(_) | Err(EngineError::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(silent);
            }
        }
    }

    async fn goes_back(&self, id: HoldId) -> Result<(), EngineError> {
        let note = Body::text("no word for a while");
        let command = Command::Progress { call: id.key.call, note, processing: Some(false) };
        match self.commit.commit_by_clock(id.run, command).await {
            // It has moved on meanwhile.
            Ok(_) | Err(EngineError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

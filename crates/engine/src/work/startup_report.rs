//! What a server finds when it starts: who waits, what expired meanwhile, what a dead node left behind.
//!
//! Nothing is brought back here: runs that wait are rows and need nothing. It only counts, and says so once (S0-46).

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use standfast_core::hold::OnTimeout;
use standfast_core::name::Tenant;
use standfast_core::project::{Phase, RunRow};
use standfast_core::time::Timestamp;
use standfast_store::{Counts, Lease, StoreError};

use super::Work;

/// What a server found when it started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartupReport {
    /// When it began to look.
    pub began_at: Timestamp,
    /// When it had seen everything; none while it still looks.
    pub ended_at: Option<Timestamp>,
    /// Runs that wait for a person: a decision, an answer, a login.
    pub waiting_for_person: u64,
    /// Runs that wait for outside systems only.
    pub waiting_for_outside: u64,
    /// Runs whose deadline passed while no server looked.
    pub expired: u64,
    /// Runs that a server which is gone had at work.
    pub taken_over: u64,
    /// Runs whose rows cannot be read.
    pub quarantined: u64,
}

/// The report as it grows, tenant by tenant: each gets its own runs alone.
#[derive(Debug, Default)]
pub(super) struct StartupScan {
    began_at: Timestamp,
    ended_at: Option<Timestamp>,
    /// Whether every tenant was counted.
    is_counted: bool,
    tenants: BTreeMap<Tenant, TenantScan>,
}

/// What was found of one tenant.
#[derive(Debug, Default)]
struct TenantScan {
    counts: Counts,
    expired: u64,
    taken_over: u64,
    /// Runs that were counted as waiting and do not wait any more, because they expired: for persons, for the outside.
    no_longer: (u64, u64),
}

impl TenantScan {
    fn of(&self, phase: Phase) -> u64 {
        self.counts.runs.get(&phase).copied().unwrap_or(0)
    }

    fn add_to(&self, report: &mut StartupReport) {
        let persons = self.of(Phase::HeldForPerson) + self.of(Phase::HeldForAuth);
        report.waiting_for_person += persons.saturating_sub(self.no_longer.0);
        report.waiting_for_outside += self.of(Phase::HeldForExternal).saturating_sub(self.no_longer.1);
        report.expired += self.expired;
        report.taken_over += self.taken_over;
        report.quarantined += self.counts.quarantined;
    }
}

impl StartupScan {
    /// What was found of one tenant, or of all.
    fn so_far(&self, of: Option<&Tenant>) -> StartupReport {
        let mut report =
            StartupReport { began_at: self.began_at, ended_at: self.ended_at, ..StartupReport::default() };
        let wanted = self.tenants.iter().filter(|(tenant, _)| of.is_none_or(|of| of == *tenant));
        wanted.for_each(|(_, found)| found.add_to(&mut report));
        report
    }

    /// Whether some run may still be under the lease of a server that is gone.
    fn may_be_leased(&self) -> bool {
        let at_work = [Phase::Queued, Phase::Claimed, Phase::Working, Phase::Retrying];
        self.tenants.values().any(|found| at_work.iter().any(|phase| found.counts.runs.contains_key(phase)))
    }
}

impl Work {
    /// What this server found when it started: of one tenant, or of all.
    #[must_use]
    pub fn startup_report(&self, of: Option<&Tenant>) -> StartupReport {
        self.looking().so_far(of)
    }

    pub(super) fn looking(&self) -> MutexGuard<'_, StartupScan> {
        self.looking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to look. What there is now is counted in the background; the instant that counts is this one.
    pub(super) fn begin_startup_report(self: &Arc<Work>) {
        self.looking().began_at = self.host.clock.now();
        let own = self.host.fixed.tenant.clone();
        let counting = self.log.store.counts(own.clone());
        let shared = self.clone();
        self.host.spawn(async move {
            shared.count(own.clone(), counting.await);
            // Runs of other tenants are claimed once this node knows of those: they are counted before.
            match shared.log.store.tenants().await {
                Ok(tenants) => {
                    for tenant in tenants.into_iter().filter(|tenant| *tenant != own) {
                        let counted = shared.log.store.counts(tenant.clone()).await;
                        shared.count(tenant, counted);
                    }
                }
                Err(error) => tracing::warn!(%error, "startup: tenants could not be counted"),
            }
            if let Err(error) = shared.log.tenants().await {
                tracing::warn!(%error, "startup: tenants could not be listed; each is known from its first request on");
            }
            shared.looking().is_counted = true;
            shared.wakes.wake_worker();
        });
    }

    /// What a tenant has was counted.
    fn count(&self, tenant: Tenant, counted: Result<Counts, StoreError>) {
        match counted {
            Ok(counts) => self.looking().tenants.entry(tenant).or_default().counts = counts,
            Err(error) => tracing::warn!(%error, %tenant, "startup: pending runs could not be counted"),
        }
    }

    /// A due run was found.
    pub(super) fn recovered(&self, row: &RunRow, from: Option<Lease>) {
        let mut looking = self.looking();
        if looking.ended_at.is_some() {
            return;
        }
        let began_at = looking.began_at;
        // A lease that was given before this server began belongs to one that is gone.
        let is_left_behind = |lease: &Lease| {
            lease.node != self.host.node && lease.until <= began_at.plus(self.host.fixed.lease)
        };
        let is_left_behind = from.as_ref().is_some_and(is_left_behind);
        let mut expired = row.run.state.holds.iter().filter(|hold| {
            let at = hold.expires_at.filter(|_| hold.kind.can_expire() && hold.expired_at.is_none());
            at.is_some_and(|at| at <= began_at)
        });
        let expired = expired.next();
        if !is_left_behind && expired.is_none() {
            return;
        }
        let found = looking.tenants.entry(row.run.facts.tenant.clone()).or_default();
        found.taken_over += u64::from(is_left_behind);
        let Some(hold) = expired else { return };
        found.expired += 1;
        if hold.policy.on_timeout == OnTimeout::Keep {
            return;
        }
        match row.phase {
            Phase::HeldForPerson | Phase::HeldForAuth => found.no_longer.0 += 1,
            Phase::HeldForExternal => found.no_longer.1 += 1,
            Phase::Queued
            | Phase::Claimed
            | Phase::Working
            | Phase::Retrying
            | Phase::Completed
            | Phase::Failed
            | Phase::Canceled
            | Phase::Rejected => {}
        }
    }

    /// Nothing more is due: says what was found, once everything is counted and every lease of a server that is gone
    /// has run out.
    pub(super) fn end_startup_report(&self) {
        let mut looking = self.looking();
        let now = self.host.clock.now();
        let leases_end = looking.began_at.plus(self.host.fixed.lease);
        let is_over = looking.is_counted && (!looking.may_be_leased() || now > leases_end);
        if looking.ended_at.is_some() || !is_over {
            return;
        }
        looking.ended_at = Some(now);
        let found = looking.so_far(None);
        drop(looking);
        tracing::info!(
            waiting_for_person = found.waiting_for_person,
            waiting_for_outside = found.waiting_for_outside,
            expired = found.expired,
            taken_over = found.taken_over,
            quarantined = found.quarantined,
            "startup: Found {} tasks waiting for input",
            found.waiting_for_person
        );
    }
}

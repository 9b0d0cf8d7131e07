//! What a server finds when it starts: who waits, what expired meanwhile, what a dead node left behind.
//!
//! Nothing is brought back here: runs that wait are rows and need nothing. It only counts, and says so once (S0-46).

use std::sync::{Arc, MutexGuard, PoisonError};

use standfast_core::hold::OnTimeout;
use standfast_core::project::{Phase, RunRow};
use standfast_core::time::Timestamp;
use standfast_store::{Counts, Lease};

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

/// The report as it grows.
#[derive(Debug, Default)]
pub(super) struct StartupScan {
    report: StartupReport,
    counts: Option<Counts>,
    /// Runs that were counted as waiting and do not wait any more, because they expired.
    no_longer: (u64, u64),
}

impl StartupScan {
    fn so_far(&self) -> StartupReport {
        let of =
            |phase| self.counts.as_ref().and_then(|counts| counts.runs.get(&phase)).copied().unwrap_or(0);
        let persons = of(Phase::HeldForPerson) + of(Phase::HeldForAuth);
        StartupReport {
            waiting_for_person: persons.saturating_sub(self.no_longer.0),
            waiting_for_outside: of(Phase::HeldForExternal).saturating_sub(self.no_longer.1),
            quarantined: self.counts.as_ref().map_or(0, |counts| counts.quarantined),
            ..self.report.clone()
        }
    }

    /// Whether some run may still be under the lease of a server that is gone.
    fn may_be_leased(&self) -> bool {
        let at_work = [Phase::Queued, Phase::Claimed, Phase::Working, Phase::Retrying];
        self.counts.as_ref().is_none_or(|counts| at_work.iter().any(|phase| counts.runs.contains_key(phase)))
    }
}

impl Work {
    /// What this server found when it started.
    pub(crate) fn startup_report(&self) -> StartupReport {
        self.looking().so_far()
    }

    pub(super) fn looking(&self) -> MutexGuard<'_, StartupScan> {
        self.looking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to look. What there is now is counted in the background; the instant that counts is this one.
    pub(super) fn begin_startup_report(self: &Arc<Work>) {
        self.looking().report.began_at = self.host.clock.now();
        let counting = self.log.store.counts(self.host.settings().fixed.tenant.clone());
        let shared = self.clone();
        self.host.spawn(async move {
            if let Err(error) = shared.log.tenants().await {
                tracing::warn!(%error, "startup: tenants could not be listed; each is known from its first request on");
            }
            match counting.await {
                Ok(counts) => shared.looking().counts = Some(counts),
                Err(error) => {
                    tracing::warn!(%error, "startup: pending runs could not be counted");
                    shared.looking().counts = Some(Counts::default());
                }
            }
            shared.wakes.wake_worker();
        });
    }

    /// A due run was found.
    pub(super) fn recovered(&self, row: &RunRow, from: Option<Lease>) {
        let mut looking = self.looking();
        let began_at = looking.report.began_at;
        if looking.report.ended_at.is_some() {
            return;
        }
        // A lease that was given before this server began belongs to one that is gone.
        let is_left_behind = |lease: &Lease| {
            lease.node != self.host.node && lease.until <= began_at.plus(self.host.settings().fixed.lease)
        };
        looking.report.taken_over += u64::from(from.as_ref().is_some_and(is_left_behind));
        let mut expired = row.run.state.holds.iter().filter(|hold| {
            let at = hold.expires_at.filter(|_| hold.kind.can_expire() && hold.expired_at.is_none());
            at.is_some_and(|at| at <= began_at)
        });
        let Some(hold) = expired.next() else { return };
        looking.report.expired += 1;
        if hold.policy.on_timeout == OnTimeout::Keep {
            return;
        }
        match row.phase {
            Phase::HeldForPerson | Phase::HeldForAuth => looking.no_longer.0 += 1,
            Phase::HeldForExternal => looking.no_longer.1 += 1,
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
        let leases_end = looking.report.began_at.plus(self.host.settings().fixed.lease);
        let is_over = looking.counts.is_some() && (!looking.may_be_leased() || now > leases_end);
        if looking.report.ended_at.is_some() || !is_over {
            return;
        }
        looking.report.ended_at = Some(now);
        let found = looking.so_far();
        drop(looking);
        tracing::info!(
            waiting_for_person = found.waiting_for_person,
            waiting_for_outside = found.waiting_for_outside,
            expired = found.expired,
            taken_over = found.taken_over,
            quarantined = found.quarantined,
            "Found {} tasks waiting for input",
            found.waiting_for_person
        );
    }
}

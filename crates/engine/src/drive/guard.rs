//! The right to drive a run in this process, and the lease of its node.
//!
//! Two drives of one run in a process would each take the other's tools for lost. A lease always has somebody who works
//! under it, or is about to give it back.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use standfast_core::id::RunId;
use standfast_core::time::Timestamp;

use super::Drives;
use crate::wakes::Continuation;

/// The right to drive a run in this process, given back when it is dropped. Two drives of one run would each take the
/// other's tools for lost.
pub(crate) struct DriveGuard {
    pub(super) drives: Arc<Drives>,
    pub(super) run: RunId,
}

impl DriveGuard {
    /// Whether the run was claimed once more since this was last asked. The lease of such a claim is this node's, and
    /// whoever asks has it from now on.
    pub(super) fn was_claimed(&self) -> bool {
        let mut driven = self.drives.driven();
        driven.get_mut(&self.run).is_some_and(|driven| std::mem::take(&mut driven.is_claimed))
    }

    /// Lets the run be seen, and says whether it goes on; `counted` gets the number of changes of which it is the last.
    pub(super) fn show(&self, continuation: Continuation, counted: impl FnOnce(u64)) {
        self.drives.wakes.show(self.run, continuation, counted);
    }
}

impl Drop for DriveGuard {
    fn drop(&mut self) {
        let mut all = self.drives.driven();
        let Some(driven) = all.remove(&self.run) else { return };
        self.drives.wakes.end_drive(self.run);
        drop(all);
        self.drives.host.at_work.fetch_sub(1, Ordering::Relaxed);
        if driven.is_claimed {
            self.drives.return_claim(self.run);
        }
    }
}

/// A run that is driven here.
#[derive(Debug)]
pub(super) struct DrivenRun {
    /// Whether it was claimed once more meanwhile.
    is_claimed: bool,
}

impl Drives {
    /// The right to drive a run, unless it is driven here already. What its holder read of the run before may be older
    /// than what is stored: the first append finds that out.
    pub(crate) fn guard(self: &Arc<Drives>, run: RunId) -> Option<DriveGuard> {
        let mut driven = self.driven();
        match driven.entry(run) {
            Entry::Occupied(_) => None,
            Entry::Vacant(free) => {
                free.insert(DrivenRun { is_claimed: false });
                self.wakes.begin_drive(run);
                self.host.at_work.fetch_add(1, Ordering::Relaxed);
                Some(DriveGuard { drives: self.clone(), run })
            }
        }
    }

    /// The right to drive a run that was claimed. Whoever has it already is notified of the claim: that may have been for a
    /// wake, which is used up now.
    pub(crate) fn guard_of_claimed(self: &Arc<Drives>, run: RunId) -> Option<DriveGuard> {
        let guard = self.guard(run);
        if guard.is_none()
            && let Some(driven) = self.driven().get_mut(&run)
        {
            driven.is_claimed = true;
        }
        guard
    }

    /// Gives back the lease of a claim that found its run driven here, by somebody who has left it since without a look:
    /// a lease always has somebody who works under it.
    fn return_claim(self: &Arc<Drives>, run: RunId) {
        if self.host.is_dead() {
            return;
        }
        let drives = self.clone();
        self.host.spawn(async move {
            // Whoever drives it by now has the claim.
            let Some(guard) = drives.guard_of_claimed(run) else { return };
            drives.release(run, Some(drives.host.clock.now())).await;
            drop(guard);
            drives.wakes.wake_worker();
        });
    }

    /// Gives a lease of this node back after a while: trying again at once would fail at once.
    pub(crate) fn release_later(self: &Arc<Drives>, guard: DriveGuard) {
        let drives = self.clone();
        self.host.spawn(async move {
            drives.host.sleep_unless_stopping(drives.host.fixed.lease).await;
            drives.release(guard.run, Some(drives.host.clock.now())).await;
            drop(guard);
            drives.wakes.wake_worker();
        });
    }

    /// Gives a lease of this node back. If the store is away, it runs out.
    pub(crate) async fn release(&self, run: RunId, wake_at: Option<Timestamp>) {
        if let Err(error) = self.log.store.release(run, self.host.node, wake_at).await {
            tracing::warn!(%run, %error, "engine: could not release a lease; it expires by itself");
        }
    }

    pub(super) fn driven(&self) -> MutexGuard<'_, HashMap<RunId, DrivenRun>> {
        self.driven.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

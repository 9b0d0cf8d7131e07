//! The lease of a run that is driven here: renewed in time, lost when another node has taken the run over.
//!
//! Losing it never harms state, as the sequence of the log tells who has taken over: what is in hand is still written, and only
//! the lease is left alone. Appends renew it too (`appends.rs`); who may take a run at all is `guard.rs`.

use standfast_store::pipeline::LeaseRule;

use super::Drive;
use crate::EngineError;

impl Drive {
    /// Keeps the lease, and looks at what others have appended: that makes up for a wake that was lost.
    pub(super) async fn keep(&mut self) -> Result<(), EngineError> {
        self.renews_at = self.drives.host.clock.now().plus(self.drives.renewal());
        let until = self.drives.host.clock.now().plus(self.drives.host.fixed.lease);
        // Losing a lease never harms state: the sequence tells who has taken over.
        let kept = self.drives.log.store.renew(vec![self.run], self.drives.host.node, until).await;
        match kept {
            Ok(kept) if kept.is_empty() && self.is_leased => self.lose(),
            Ok(kept) if !kept.is_empty() => self.leased_until = until,
            Ok(_) | Err(_) => {}
        }
        self.refresh().await
    }

    /// Until it must say that it is still there.
    pub(super) fn until_renewal(&self) -> impl Future<Output = ()> + Send + use<> {
        self.drives.host.clock.sleep(self.renews_at.since(self.drives.host.clock.now()))
    }

    /// Another node has taken the run: this one was silent for too long.
    pub(super) fn lose(&mut self) {
        if !self.is_lost {
            self.drives.host.fixed.telemetry.lease_lost();
            tracing::warn!(run = %self.run, "drive: lease lost to another node; recording finished tool results, then stopping");
        }
        (self.is_lost, self.is_leased) = (true, false);
    }

    /// What this drive has in hand is still written, with everything that belongs beside it and without a word about the
    /// lease, which is another node's. Only after a guard has refused it: then nothing of it was written.
    pub(super) fn leave_the_lease_alone(&mut self) {
        for mut order in self.pipeline.take_back() {
            order.writes.lease = LeaseRule::UNTOUCHED;
            self.pipeline.push(order);
        }
    }
}

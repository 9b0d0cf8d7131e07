//! Retries of deliveries that failed: when the next one is, and when it is given up as a dead letter.
//!
//! The pauses are settings; a receiver may ask for longer ones, within bounds. Who is called and how it went is `rounds.rs`; dead
//! letters are resent by `subscriptions.rs`.

use standfast_core::id::Seq;
use standfast_core::time::Millis;
use standfast_store::{DueNotice, SettleNotice};

use super::Deliveries;
use crate::clock;

/// How long a receiver can ask to be left alone.
const RETRY_AFTER_MAX: Millis = Millis::hours(24);

impl Deliveries {
    /// When it is tried again, or that it is given up.
    pub(super) fn failed(
        &self,
        notice: &DueNotice,
        from: Seq,
        why: String,
        after: Option<Millis>,
    ) -> SettleNotice {
        let tries = if from > notice.from { 1 } else { notice.attempts.saturating_add(1) };
        let settings = self.host.settings();
        let again = settings.webhooks.retries.get(usize::try_from(tries).unwrap_or(usize::MAX) - 1);
        let Some(pause) = again else {
            let (subscription, seq) = (&notice.subscription, from.0);
            tracing::warn!(subscription, run = %notice.run, seq, tries, why, "deliveries: gave up; kept as a dead letter");
            return self.dead(from, why);
        };
        self.host.fixed.telemetry.delivery_failed();
        // A receiver that says when is not asked sooner, but it cannot put off the end of the tries for ever.
        let wished = after.map_or(Millis(0), |after| Millis(after.0.min(RETRY_AFTER_MAX.0)));
        let at = self.host.clock.now().plus(Millis(around(*pause).0.max(wished.0)));
        tracing::info!(
            subscription = notice.subscription, run = %notice.run, seq = from.0, tries, why, "deliveries: not delivered; trying again later"
        );
        SettleNotice::Retry { at, from }
    }

    pub(super) fn dead(&self, from: Seq, why: String) -> SettleNotice {
        self.host.fixed.telemetry.delivery_dead();
        SettleNotice::Dead { at: self.host.clock.now(), from, why }
    }
}

/// A span that is up to a fifth longer or shorter, so that what failed together is not tried together.
fn around(span: Millis) -> Millis {
    let [random] = clock::random_bytes::<1>();
    let fifth = span.0 / 5;
    Millis(span.0 - fifth + fifth * 2 * i64::from(random) / 255)
}

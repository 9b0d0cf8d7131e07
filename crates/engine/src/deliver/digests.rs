//! Digests: one message about everything that is pending, for people who want that instead of one about each hold.
//!
//! The ends of digests are multiples of their span, so that nobody has to remember when the next one is. The notices of a span all
//! wait for its end; the first one that is due then has the message sent, and a row says so to the others. A crash in between sends
//! the same message again, under the same name.

use standfast_core::event::{Envelope, Event};
use standfast_core::name::UserId;
use standfast_core::time::{Millis, Timestamp};
use standfast_store::{Audience, HoldFilter, HoldQuery, SealedChange, StoreError, Subscription};

use super::rounds::DeliveryOutcome;
use super::{Deliveries, DeliveryPayload, ReceiverKind};
use crate::auth::{Identification, Principal};
use crate::log::{HoldView, audience_member};
use crate::receivers::Receiver;
use crate::settings::{Channel, ConfiguredPerson};

/// Holds that one message names; of more it says how many there are.
const NAMED: usize = 50;

/// Rows that are looked at for one message.
const LOOKED_AT: usize = 200;

/// What becomes of one notice.
pub(super) enum DigestState {
    /// It is told by itself.
    NotWanted,
    /// It waits for the end of its span.
    Later(Timestamp),
    /// A message of after it has been sent.
    Told,
    /// The message is to be sent.
    Due(DueDigest),
}

/// A message that is to be sent.
pub(super) struct DueDigest {
    /// The end of its span.
    until: Timestamp,
    /// The name of the row that says which one was sent last.
    name: String,
    /// What it says.
    before: Option<String>,
}

impl Deliveries {
    /// What becomes of a notice to somebody.
    pub(super) async fn digest_state(
        &self,
        one: &ConfiguredPerson,
        user: &UserId,
        channel: &Channel,
        event: &Envelope,
    ) -> Result<DigestState, StoreError> {
        // Whoever is asked because others did not decide is asked at once.
        let Some(span) = one.notify.digest.filter(|_| !matches!(event.event, Event::HoldEscalated(_))) else {
            return Ok(DigestState::NotWanted);
        };
        // What was decided is pending no more: the next message is without it.
        if matches!(event.event, Event::HoldResolved(_)) {
            return Ok(DigestState::Told);
        }
        let until = end_of(event.at, span);
        if self.host.clock.now() < until {
            return Ok(DigestState::Later(until));
        }
        let name = format!("digest {} {user}", channel.name);
        let before = self.log.store.sealed(one.tenant.clone(), name.clone()).await?;
        let last = before.as_ref().and_then(|text| text.parse::<i64>().ok());
        if last.is_some_and(|last| last >= until.0) {
            return Ok(DigestState::Told);
        }
        Ok(DigestState::Due(DueDigest { until, name, before }))
    }

    /// Sends what is pending for somebody, if anything is.
    pub(super) async fn send_digest(
        &self,
        one: &ConfiguredPerson,
        kind: &dyn ReceiverKind,
        (subscription, receiver, channel, address): (&Subscription, &Receiver, &Channel, &str),
        DueDigest { until, name, before }: DueDigest,
    ) -> DeliveryOutcome {
        let who = one.principal(&receiver.owner.user, Identification::Configured);
        // As of before the look: what opens meanwhile belongs to the next one.
        let now = self.host.clock.now();
        let (holds, more) = match self.pending_for(&who).await {
            Ok(found) => found,
            Err(error) => return DeliveryOutcome::failed(error.to_string()),
        };
        if !holds.is_empty() {
            let id = format!("{name} {}", until.0);
            let what = DeliveryPayload::Digest { id: &id, holds: &holds, more };
            let told = self.hand_over(subscription, receiver, kind, (channel, address, None), what).await;
            if !matches!(told, DeliveryOutcome::Taken { .. }) {
                return told;
            }
        }
        let span = one.notify.digest.unwrap_or(Millis(1));
        let last = Timestamp(until.0.max(end_of(now, span).0 - span.0));
        let after = Some(last.0.to_string());
        let change = SealedChange { tenant: one.tenant.clone(), name, before, after };
        match self.log.store.change_sealed(change).await {
            Ok(true) => DeliveryOutcome::Taken { status: 250 },
            // Somebody else has just sent it.
            Ok(false) => DeliveryOutcome::Taken { status: 0 },
            Err(error) => DeliveryOutcome::failed(error.to_string()),
        }
    }

    /// What waits for somebody's decision, oldest first, and how many there are beyond what is named.
    async fn pending_for(&self, who: &Principal) -> Result<(Vec<HoldView>, usize), StoreError> {
        let query = HoldQuery {
            tenant: who.tenant.clone(),
            audience: Audience::AnyOf(who.parties().map(|party| audience_member(&party)).collect()),
            filter: HoldFilter::All,
            kinds: Vec::new(),
            cursor: None,
            limit: LOOKED_AT,
        };
        let found = self.log.store.list_holds(query).await?;
        let (mut holds, mut more) = (Vec::new(), 0);
        for row in found.items {
            let Ok(view) = self.views.hold(who, row.id).await else { continue };
            if !view.may_decide || view.row.closed.is_some() {
                continue;
            }
            if holds.len() < NAMED {
                holds.push(view);
            } else {
                more += 1;
            }
        }
        Ok((holds, more))
    }
}

/// The end of the span that an instant is in.
fn end_of(at: Timestamp, span: Millis) -> Timestamp {
    let span = span.0.max(1);
    Timestamp(at.0.div_euclid(span).saturating_add(1).saturating_mul(span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_end_at_their_multiples() {
        let hour = Millis::hours(1);
        assert_eq!(end_of(Timestamp(0), hour), Timestamp(3_600_000));
        assert_eq!(end_of(Timestamp(3_599_999), hour), Timestamp(3_600_000));
        assert_eq!(end_of(Timestamp(3_600_000), hour), Timestamp(7_200_000));
        assert_eq!(end_of(Timestamp(5), Millis(0)), Timestamp(6));
    }
}

//! The rounds of the deliverer: what is due, who is notified, how it went. When a failed delivery is tried again, and when it is
//! given up, is `retries.rs`.
//!
//! One notice stands for one subscription and one run, so whoever holds it sends in order. What is delivered is settled after
//! it was told: a crash in between tells it again, with the same id. A receiver that fails, hangs or answers slowly has
//! few places, and its notices are left out while those are taken; so do all receivers of one owner together, and all at
//! one host (`delivery_slots.rs`): the others do not wait for them. Whoever loses a shard stops telling what belongs to it, so
//! that one node tells at a time. What the owner of a subscription may see is worked out again for each delivery.

use std::sync::{Arc, Weak};

use super::delivery_slots::{OF_OWNER, UnderWay};
use super::spans::{end_delivery_span, run_of};
use super::{Deliveries, Delivery, DeliveryPayload, DeliveryRequest, Frame, FrameSource, ReceiverKind};
use crate::EngineError;
use crate::auth::{self, Identification, Principal};
use crate::http_date::retry_after;
use crate::outbound::http::{self, HttpLimits, Request};
use crate::receivers::{Deactivation, NO_KEY, Receiver};
use crate::request_context::{self, RequestContext};
use crate::settings::Webhooks;
use standfast_core::event::{Envelope, Event};
use standfast_core::id::{HoldId, Seq};
use standfast_core::project::hold_of;
use standfast_core::run::Facts;
use standfast_core::time::{Millis, Timestamp};
use standfast_store::{
    DueNotice, NoticeQuery, Recipient, Scope, SessionKey, SettleNotice, StoreError, Subscription,
};

/// Notices that are looked for at once, beside those that are under way.
const LOOK: usize = 32;

/// News that come together are looked for together.
const GATHER: Millis = Millis(20);

/// How long to wait when the store does not answer.
const STORE_AWAY: Millis = Millis::seconds(1);

/// How long to wait when files cannot be written.
const COPY_AGAIN: Millis = Millis::seconds(5);

/// Bytes of an answer that are read.
const ANSWER_BYTES: usize = 4096;

/// Bytes that are sent at most.
const REQUEST_BYTES: usize = 8 * 1024 * 1024;

/// Events of one run that are delivered before the position of its notice is stored.
const FRAMES: usize = 200;

/// Behind every event: settles a notice that nobody wants.
pub(super) const ALL: Seq = Seq(1 << 40);

/// How a try to tell something went.
pub(super) enum DeliveryOutcome {
    /// It was taken.
    Taken {
        /// What the receiver answered.
        status: u16,
    },
    /// It was not; later it may be.
    Failed {
        /// Why not.
        why: String,
        /// How long the receiver wants to be left alone.
        after: Option<Millis>,
    },
    /// It is not to be told before this instant.
    Later(Timestamp),
    /// The receiver wants nothing any more.
    Gone,
}

impl DeliveryOutcome {
    pub(super) fn failed(why: impl Into<String>) -> DeliveryOutcome {
        DeliveryOutcome::Failed { why: why.into(), after: None }
    }
}

/// A notice that is due, with what is stored of its run and of whom it is for.
struct DueDelivery<'a> {
    notice: &'a DueNotice,
    run: Facts,
    found: Subscription,
    receiver: Receiver,
}

/// The next delivery.
enum DeliveryItem<'a> {
    Event(&'a Envelope),
    Frame(Frame),
}

impl DeliveryItem<'_> {
    fn seq(&self) -> Seq {
        match self {
            DeliveryItem::Event(event) => event.seq,
            DeliveryItem::Frame(frame) => frame.seq,
        }
    }
}

impl Deliveries {
    /// Tells the outside from now on, until the engine stops. Each kind of receiver is brought along by whoever knows it.
    pub(crate) fn deliver(self: &Arc<Deliveries>, kinds: Vec<Arc<dyn ReceiverKind>>) {
        let deliveries = Arc::downgrade(self);
        let kinds = self.kinds.get_or_init(|| kinds);
        let hear_below = kinds.iter().filter(|kind| kind.hears_below());
        self.callbacks.ancestor_kinds.get_or_init(|| hear_below.map(|kind| kind.name()).collect());
        let store = self.log.store.clone();
        self.wakes.count_notices(move || store.notices_put());
        let delivering = self.nodes.delivering.clone();
        self.host.spawn(async move {
            let _delivering = delivering.lock_owned().await;
            rounds(deliveries).await;
        });
    }
}

async fn rounds(shared: Weak<Deliveries>) {
    let mut under_way = UnderWay::default();
    let mut channels_of = None;
    while let Some(shared) = shared.upgrade().filter(|shared| !shared.host.is_stopping()) {
        shared.keep_channels(&mut channels_of).await;
        // Read first: what is put while it looks is looked for again.
        let put = shared.log.store.notices_put();
        let found = shared.due(&under_way).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "deliveries: due notices cannot be listed; trying again");
            Vec::new()
        });
        let due = found.len().max(under_way.len());
        shared.host.fixed.telemetry.due_deliveries(due);
        let mut has_begun = false;
        for notice in found {
            if under_way.has_place_for(&shared, &notice) {
                under_way.begin(&notice, shared.clone().tell(notice.clone()));
                has_begun = true;
            }
        }
        // There may be more, behind those that now have all their places.
        if has_begun {
            continue;
        }
        let mut stopping = shared.host.stopping();
        let is_news = tokio::select! {
            () = shared.news(put) => true,
            () = under_way.ended() => false,
            () = shared.host.clock.sleep(shared.host.fixed.poll) => false,
            _ = stopping.wait_for(|stopping| *stopping) => false,
        };
        if is_news {
            shared.host.clock.sleep(GATHER).await;
        }
    }
    // Whatever is under way is delivered again by whoever comes next.
    under_way.shutdown().await;
}

impl Deliveries {
    /// Waits until there may be something to tell that was not there when this many commits had put notices: most runs have
    /// nobody to tell, and their appends cost no look.
    async fn news(&self, put: Option<u64>) {
        let appended = async {
            loop {
                self.wakes.appended().await;
                if put.is_none() || self.log.store.notices_put() != put {
                    return;
                }
            }
        };
        tokio::select! {
            () = self.wakes.deliverer_woken() => {}
            () = appended => {}
        }
    }

    async fn due(&self, under_way: &UnderWay) -> Result<Vec<DueNotice>, StoreError> {
        if under_way.is_full() {
            return Ok(Vec::new());
        }
        let query = NoticeQuery {
            shards: self.nodes.shards(),
            now: self.host.clock.now(),
            // Those that are under way are found again.
            limit: under_way.len() + LOOK,
            each: OF_OWNER + LOOK,
            without: under_way.busy_subscriptions(),
            without_owners: under_way.busy_owners(),
        };
        self.log.store.due_notices(query).await
    }

    /// Tells what one notice is about, and settles it. Stops when its shard becomes another node's: that one tells it
    /// again from the first event that was not settled.
    async fn tell(self: Arc<Deliveries>, notice: DueNotice) {
        if let Err(error) = self.log.hear_of_tenant(notice.run).await {
            tracing::warn!(run = %notice.run, %error, "deliveries: not delivered; trying again");
            return self.host.clock.sleep(STORE_AWAY).await;
        }
        let telling = async {
            match self.told(&notice).await {
                Ok(Some(settle)) => self.log.store.settle_notice(notice.no, settle).await,
                // Its host has no place: it stays due.
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            }
        };
        let settled = tokio::select! {
            biased;
            () = self.nodes.no_longer_own(notice.run) => {
                tracing::info!(subscription = notice.subscription, run = %notice.run, "deliveries: left to another node");
                return;
            }
            settled = telling => settled,
        };
        if let Err(error) = settled {
            tracing::warn!(subscription = notice.subscription, run = %notice.run, %error, "deliveries: not delivered; trying again");
            self.host.clock.sleep(STORE_AWAY).await;
        }
    }

    /// Sends event after event; what became of it. None when it is left for later.
    async fn told(&self, notice: &DueNotice) -> Result<Option<SettleNotice>, StoreError> {
        let nobody = Ok(Some(SettleNotice::Delivered { upto: ALL }));
        let dead = |why: String| Ok(Some(self.dead(notice.from, why)));
        let id = match notice.recipient() {
            Recipient::RemoteTasks => return self.cancel_remote_tasks(notice).await.map(Some),
            Recipient::FileCopies => return self.copy_session(notice).await,
            Recipient::Subscription(id) => id,
        };
        let Some(run) = self.log.store.facts(notice.run).await? else { return nobody };
        let Some(found) = self.log.store.subscription(run.tenant.clone(), id).await? else { return nobody };
        let receiver = match Receiver::read(&found.facts) {
            Ok(receiver) if found.is_active => receiver,
            Ok(receiver) => {
                let why = receiver.disabled.map_or_else(String::new, |disabled| disabled.why);
                return dead(format!("the subscription is disabled: {why}"));
            }
            Err(why) => return dead(why),
        };
        let Some(_place) = self.hosts.enter(&found.id, &receiver.url) else { return Ok(None) };
        let due = DueDelivery { notice, run, found, receiver };
        let who = match self.listener(&due.found, &due.receiver, &due.run).await? {
            Ok(who) => who,
            Err(why) => return self.shut_out(&due.found, due.receiver, why, notice.from).await.map(Some),
        };
        let seen = self.last_word(&due.receiver, notice).await?;
        let events = match self.views.log(&who, notice.run, Seq(notice.from.0.saturating_sub(1))).await {
            Ok(events) => events,
            // Whoever subscribed to all runs of an agent may not see this one.
            Err(EngineError::NotFound) => return Ok(Some(SettleNotice::Delivered { upto: seen })),
            Err(EngineError::Store(StoreError::Corrupt { why, .. })) => return dead(why),
            Err(EngineError::Store(error)) => return Err(error),
            Err(other) => return dead(other.to_string()),
        };
        let all = match self.all_of(&who, &due.receiver, notice, &due.found, &events).await {
            Ok(all) => all,
            Err(EngineError::Store(StoreError::Corrupt { why, .. })) => return dead(why),
            Err(EngineError::Store(error)) => return Err(error),
            Err(other) => return dead(other.to_string()),
        };
        let last = events.last().map_or(notice.from, |last| last.seq);
        self.send_in_order(due, last, &all).await.map(Some)
    }

    /// Sends one after another until one is not taken; what became of it. `last` is the last event that was looked at.
    async fn send_in_order(
        &self,
        due: DueDelivery<'_>,
        last: Seq,
        all: &[DeliveryItem<'_>],
    ) -> Result<SettleNotice, StoreError> {
        let DueDelivery { notice, run, found, receiver } = due;
        // What is left for later begins with another event than what was told ends with.
        let rest = all.get(FRAMES).map(DeliveryItem::seq);
        let mut upto = last;
        for next in all.iter().take_while(|next| rest.is_none_or(|rest| next.seq() < rest)) {
            let seq = next.seq();
            // Asked again for each: a slow receiver may be told for minutes, and rights end in between.
            let who = match self.listener(&found, &receiver, &run).await? {
                Ok(who) => who,
                Err(why) => return self.shut_out(&found, receiver, why, seq).await,
            };
            let what = self.payload(&who, &run, next).await;
            match self.send(&found, &receiver, what).await {
                DeliveryOutcome::Taken { .. } => self.host.fixed.telemetry.delivered(),
                DeliveryOutcome::Failed { why, after } => return Ok(self.failed(notice, seq, why, after)),
                DeliveryOutcome::Later(at) => return Ok(SettleNotice::Retry { at, from: seq }),
                DeliveryOutcome::Gone => {
                    let why = "the receiver answered 410 Gone".to_owned();
                    self.disable(&found, receiver, &why).await?;
                    return Ok(self.dead(seq, why));
                }
            }
            if let DeliveryItem::Event(event) = next
                && self.kind(&receiver.kind).is_some_and(|kind| kind.is_last(&receiver, event))
            {
                self.log.store.delete_subscription(found.tenant.clone(), found.id.clone()).await?;
                return Ok(SettleNotice::Delivered { upto: ALL });
            }
            upto = if rest.is_some() { seq } else { upto.max(seq) };
        }
        Ok(SettleNotice::Delivered { upto })
    }

    /// What is sent of one item, as its listener may see it.
    async fn payload<'a>(
        &self,
        who: &Principal,
        run: &'a Facts,
        item: &'a DeliveryItem<'a>,
    ) -> DeliveryPayload<'a> {
        match item {
            DeliveryItem::Event(event) => {
                let hold = match hold_of(&event.event) {
                    Some(key) => self.views.hold(who, HoldId { run: run.id, key }).await.ok().map(Box::new),
                    None => None,
                };
                DeliveryPayload::Event { run, event, hold }
            }
            DeliveryItem::Frame(frame) => DeliveryPayload::Frame { run, frame },
        }
    }

    /// Has the session of a run copied into files; none when that did not work and is tried again.
    async fn copy_session(&self, notice: &DueNotice) -> Result<Option<SettleNotice>, StoreError> {
        let nobody = Ok(Some(SettleNotice::Delivered { upto: ALL }));
        let Some(copies) = self.copies.get() else { return nobody };
        let upto = match self.log.store.load(notice.run).await {
            Ok(stored) => stored.row.run.state.seq,
            Err(StoreError::NotFound { .. }) => return nobody,
            // It is quarantined; what can be read of it is copied.
            Err(StoreError::Corrupt { .. }) => ALL,
            Err(error) => return Err(error),
        };
        let Some(facts) = self.log.store.facts(notice.run).await? else { return nobody };
        match copies.copy(SessionKey::of(&facts)).await {
            Ok(()) => Ok(Some(SettleNotice::Delivered { upto })),
            Err(why) => {
                tracing::warn!(run = %notice.run, why, "mirror: could not write files; retrying");
                self.host.clock.sleep(COPY_AGAIN).await;
                Ok(None)
            }
        }
    }

    /// Cancels remote tasks whose calls were given up; what became of it.
    async fn cancel_remote_tasks(&self, notice: &DueNotice) -> Result<SettleNotice, StoreError> {
        let told = self.tell_outside(notice.run, notice.from).await?;
        let Err(why) = told.heard else { return Ok(SettleNotice::Delivered { upto: told.upto }) };
        let settled = self.failed(notice, notice.from, why.clone(), None);
        if matches!(settled, SettleNotice::Dead { .. }) {
            tracing::warn!(run = %notice.run, why, "deliveries: gave up cancelling a remote task; it may still be running");
        }
        Ok(settled)
    }

    /// Whoever is notified of a run by a subscription, with the rights of this instant; or why nobody does any more.
    async fn listener(
        &self,
        found: &Subscription,
        receiver: &Receiver,
        run: &Facts,
    ) -> Result<Result<Principal, String>, StoreError> {
        let needs = self.kind(&receiver.kind).map_or(auth::Scope::RunsRead, |kind| kind.needs());
        let who = match self.identity.owner_now(&found.tenant, &receiver.owner, needs).await? {
            Ok(who) => who,
            Err(why) => return Ok(Err(why)),
        };
        // Whom the configuration names has subscribed to nothing: of each run it is seen whether they are asked.
        if receiver.owner.by == Some(Identification::Configured) {
            return Ok(Ok(who));
        }
        let still_hears = match &found.scope {
            Scope::Tenant if !who.operates() || !who.sees_all() => {
                Err(format!("{} is no longer an administrator", who.user))
            }
            Scope::Tenant => Ok(()),
            Scope::Agent(name) => {
                let agent = self.host.agent(name).ok();
                let is_theirs = who.operates() || agent.is_none_or(|agent| agent.approvers.include(&who));
                if !who.reads(name) {
                    Err(format!("the credential of {} is not for reading agent {name}", who.user))
                } else if is_theirs {
                    Ok(())
                } else {
                    Err(format!("{} is no longer an approver of agent {name}", who.user))
                }
            }
            Scope::Run(named) => {
                let named = if *named == run.id {
                    Some(run.clone())
                } else {
                    // A run above it.
                    self.log.store.facts(*named).await?
                };
                if named.is_none_or(|named| self.log.may_see(&who, &named)) {
                    Ok(())
                } else {
                    Err(format!("{} may no longer see this run", who.user))
                }
            }
        };
        Ok(still_hears.map(|()| who))
    }

    /// Disables a subscription whose owner may no longer see it. They, and administrators, see why.
    async fn shut_out(
        &self,
        found: &Subscription,
        receiver: Receiver,
        why: String,
        from: Seq,
    ) -> Result<SettleNotice, StoreError> {
        let why = format!("{why}; its owner can enable it again with a valid key or token");
        self.disable(found, receiver, &why).await?;
        Ok(self.dead(from, why))
    }

    /// What is to be told, in order: events, or what the kind makes of them.
    async fn all_of<'a>(
        &self,
        who: &Principal,
        receiver: &Receiver,
        notice: &DueNotice,
        found: &Subscription,
        events: &'a [Envelope],
    ) -> Result<Vec<DeliveryItem<'a>>, EngineError> {
        let named_for = match found.scope {
            Scope::Run(run) => run,
            Scope::Agent(_) | Scope::Tenant => notice.run,
        };
        let reading =
            FrameSource { views: &self.views, who, receiver, run: notice.run, named_for, from: notice.from };
        let frames = self.kind(&receiver.kind).and_then(|kind| kind.frames(reading));
        if let Some(frames) = frames {
            return Ok(frames.await?.into_iter().map(DeliveryItem::Frame).collect());
        }
        let wanted = |event: &&Envelope| {
            Event::bit(event.event.kind()).is_some_and(|bit| found.wants & bit != 0)
                && !is_muted(&event.event)
        };
        Ok(events.iter().filter(wanted).map(DeliveryItem::Event).collect())
    }

    fn kind(&self, name: &str) -> Option<&Arc<dyn ReceiverKind>> {
        self.kinds.get()?.iter().find(|kind| kind.name() == name)
    }

    /// Sends one thing to one receiver.
    pub(super) async fn send(
        &self,
        subscription: &Subscription,
        receiver: &Receiver,
        what: DeliveryPayload<'_>,
    ) -> DeliveryOutcome {
        let settings = self.host.settings();
        let Webhooks { key, guard, timeout, .. } = &settings.webhooks;
        let Some(kind) = self.kind(&receiver.kind) else {
            return DeliveryOutcome::failed(format!(
                "this server knows no receivers of the kind {:?}",
                receiver.kind
            ));
        };
        if receiver.owner.by == Some(Identification::Configured) {
            return self.send_by_channel(subscription, receiver, kind.as_ref(), what).await;
        }
        let Some(key) = key else { return DeliveryOutcome::failed(NO_KEY) };
        let (now, run) = (self.host.clock.now(), run_of(&what));
        let secrets = receiver.secrets(key, &subscription.tenant, &subscription.id, now);
        let brought = match receiver.brought_secrets(key, &subscription.tenant, &subscription.id) {
            Ok(brought) => brought,
            Err(why) => return DeliveryOutcome::failed(why),
        };
        let telling = Delivery {
            subscription: &subscription.id,
            receiver,
            what,
            now,
            secrets: &secrets,
            brought: brought.as_deref(),
            public_url: settings.public_url.as_deref(),
            target: None,
        };
        let Some(DeliveryRequest { id, headers, body }) = kind.request(&telling) else {
            return DeliveryOutcome::Taken { status: 0 };
        };
        let request = Request {
            method: reqwest::Method::POST,
            url: receiver.url.clone(),
            headers,
            body: Some(body),
            idempotency_key: id,
        };
        let limits = HttpLimits { time: *timeout, answer_bytes: ANSWER_BYTES, request_bytes: REQUEST_BYTES };
        let span = self.begin_delivery_span(run, &subscription.id, receiver).await;
        let context = RequestContext::of_work(span.as_ref().map(|(_, span)| span.context));
        let sent = request_context::within(context, http::send(guard, &limits, request)).await;
        if let Some((traces, span)) = span {
            end_delivery_span(&traces, span, &sent);
        }
        match sent {
            Ok(answer) => match answer.status {
                status @ 200..=299 => DeliveryOutcome::Taken { status },
                410 => DeliveryOutcome::Gone,
                status @ 300..=399 => DeliveryOutcome::failed(format!(
                    "the receiver answered {status}; redirects are not followed"
                )),
                status => {
                    let after = answer.retry_after.and_then(|text| retry_after(&text, self.host.clock.now()));
                    DeliveryOutcome::Failed { why: format!("the receiver answered {status}"), after }
                }
            },
            Err(trouble) => DeliveryOutcome::failed(trouble.to_string()),
        }
    }

    /// Tells a subscription nothing more. When somebody changed it meanwhile, the next try finds out again.
    async fn disable(&self, found: &Subscription, receiver: Receiver, why: &str) -> Result<(), StoreError> {
        let disabled = Some(Deactivation { at: self.host.clock.now(), why: why.to_owned() });
        let facts = Receiver { disabled, ..receiver }.text();
        let after = Subscription { is_active: false, facts, ..found.clone() };
        if self.log.store.change_subscription(found.facts.clone(), after).await? {
            tracing::warn!(subscription = found.id, why, "deliveries: subscription disabled");
        }
        Ok(())
    }
}

/// A hold over the cap is listed and nobody is notified.
fn is_muted(event: &Event) -> bool {
    matches!(event, Event::HoldOpened(opened) if opened.muted)
}

/// The instant at which a rotated secret ends.
pub(super) fn old_secret_until(now: Timestamp) -> Timestamp {
    now.plus(Millis::hours(24))
}

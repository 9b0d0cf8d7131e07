//! The rounds of the deliverer: what is due, who is told, how it went.
//!
//! One notice stands for one subscription and one run, so whoever holds it sends in order. What is told is settled after
//! it was told: a crash in between tells it again, with the same id. A receiver that fails, hangs or answers slowly has
//! few places, and its notices are left out while those are taken: the others do not wait for it. Whoever loses a shard
//! stops telling what belongs to it, so that one node tells at a time.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use holdpoint_core::event::{Envelope, Event};
use holdpoint_core::id::{HoldId, Seq};
use holdpoint_core::project::hold_of;
use holdpoint_core::time::{Millis, Timestamp};
use holdpoint_store::{DueNotice, NoticeQuery, Scope, SettleNotice, StoreError, Subscription};
use tokio::task::JoinSet;

use super::{Disabled, Frame, Kind, Reading, Receiver, Sending, Telling, What};
use crate::auth::Principal;
use crate::clock;
use crate::engine::abandon::ABANDONED;
use crate::engine::{Engine, EngineError, Shared};
use crate::http_date::retry_after;
use crate::settings::Webhooks;
use crate::tool::http::{self, HttpLimits, Request};

/// Deliveries at once.
const AT_ONCE: usize = 32;

/// Deliveries to one subscription at once, each of another run.
const AT_ONCE_EACH: usize = 4;

/// News that come together are looked for together.
const GATHER: Millis = Millis(20);

/// How long to wait when the store does not answer.
const STORE_AWAY: Millis = Millis::seconds(1);

/// Bytes of an answer that are read.
const ANSWER_BYTES: usize = 4096;

/// Bytes that are sent at most.
const REQUEST_BYTES: usize = 8 * 1024 * 1024;

/// What is told of one run before it is noted how far that came.
const FRAMES: usize = 200;

/// How long a receiver can ask to be left alone.
const RETRY_AFTER_MAX: Millis = Millis::hours(24);

/// Behind every event: settles a notice that nobody wants.
const ALL: Seq = Seq(1 << 40);

/// How a try to tell something went.
pub(in crate::engine) enum Tried {
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
    /// The receiver wants nothing any more.
    Gone,
}

impl Tried {
    fn failed(why: impl Into<String>) -> Tried {
        Tried::Failed { why: why.into(), after: None }
    }
}

/// What is told next.
enum Next<'a> {
    Event(&'a Envelope),
    Frame(Frame),
}

impl Next<'_> {
    fn seq(&self) -> Seq {
        match self {
            Next::Event(event) => event.seq,
            Next::Frame(frame) => frame.seq,
        }
    }
}

impl Engine {
    /// Tells the outside from now on, until the engine stops. Each kind of receiver is brought along by whoever knows it.
    pub fn deliver(&self, kinds: Vec<Arc<dyn Kind>>) {
        let shared = Arc::downgrade(&self.shared);
        self.shared.kinds.get_or_init(|| kinds);
        let delivering = self.shared.delivering.clone();
        self.shared.spawn(async move {
            let _delivering = delivering.lock_owned().await;
            rounds(shared).await;
        });
    }
}

async fn rounds(shared: Weak<Shared>) {
    let mut under_way = UnderWay::default();
    while let Some(shared) = shared.upgrade().filter(|shared| !shared.is_stopping()) {
        let found = shared.due(&under_way).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "notices cannot be looked for; trying again");
            Vec::new()
        });
        for notice in found {
            under_way.begin(&shared, notice);
        }
        let mut stopping = shared.stopping.subscribe();
        let is_news = tokio::select! {
            () = shared.wakes.news() => true,
            () = under_way.ended() => false,
            () = shared.clock.sleep(shared.settings().poll) => false,
            _ = stopping.wait_for(|stopping| *stopping) => false,
        };
        if is_news {
            shared.clock.sleep(GATHER).await;
        }
    }
    // Whatever is under way is told again by whoever comes next.
    under_way.tasks.shutdown().await;
}

/// What is being told.
#[derive(Default)]
struct UnderWay {
    tasks: JoinSet<()>,
    notices: HashMap<tokio::task::Id, (i64, String)>,
}

impl UnderWay {
    fn begin(&mut self, shared: &Arc<Shared>, notice: DueNotice) {
        let is_known = self.notices.values().any(|(no, _)| *no == notice.no);
        if is_known || self.tasks.len() >= AT_ONCE || self.count(&notice.subscription) >= AT_ONCE_EACH {
            return;
        }
        let named = (notice.no, notice.subscription.clone());
        let task = self.tasks.spawn(shared.clone().tell(notice));
        self.notices.insert(task.id(), named);
    }

    fn count(&self, subscription: &str) -> usize {
        self.notices.values().filter(|(_, of)| of == subscription).count()
    }

    /// Waits until one of them ends; for ever when there is none.
    async fn ended(&mut self) {
        let id = match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => id,
            Some(Err(error)) => {
                tracing::error!(%error, "a delivery broke off; it is tried again");
                error.id()
            }
            None => return std::future::pending().await,
        };
        self.notices.remove(&id);
    }

    /// Subscriptions that have all their places.
    fn busy(&self) -> Vec<String> {
        let mut busy: Vec<String> = self.notices.values().map(|(_, of)| of.clone()).collect();
        busy.sort_unstable();
        busy.dedup();
        busy.retain(|subscription| self.count(subscription) >= AT_ONCE_EACH);
        busy
    }
}

impl Shared {
    async fn due(&self, under_way: &UnderWay) -> Result<Vec<DueNotice>, StoreError> {
        if under_way.tasks.len() >= AT_ONCE {
            return Ok(Vec::new());
        }
        let query = NoticeQuery {
            shards: self.shards(),
            now: self.clock.now(),
            // Those that are under way are found again.
            limit: AT_ONCE * 2,
            without: under_way.busy(),
        };
        self.store.due_notices(query).await
    }

    /// Tells what one notice is about, and settles it. Stops when its shard becomes another node's: that one tells it
    /// again from the first event that was not settled.
    async fn tell(self: Arc<Shared>, notice: DueNotice) {
        let telling = async {
            match self.told(&notice).await {
                Ok(settle) => self.store.settle_notice(notice.no, settle).await,
                Err(error) => Err(error),
            }
        };
        let settled = tokio::select! {
            biased;
            () = self.no_longer_own(notice.run) => {
                tracing::info!(subscription = notice.subscription, run = %notice.run, "left to another node");
                return;
            }
            settled = telling => settled,
        };
        if let Err(error) = settled {
            tracing::warn!(subscription = notice.subscription, run = %notice.run, %error, "not delivered; trying again");
            self.clock.sleep(STORE_AWAY).await;
        }
    }

    /// Sends event after event; what became of it.
    async fn told(self: &Arc<Shared>, notice: &DueNotice) -> Result<SettleNotice, StoreError> {
        let nobody = SettleNotice::Delivered { upto: ALL };
        if notice.subscription == ABANDONED {
            let told = self.tell_outside(notice.run, notice.from).await?;
            let Err(why) = told.heard else { return Ok(SettleNotice::Delivered { upto: told.upto }) };
            let settled = self.failed(notice, notice.from, why.clone(), None);
            if matches!(settled, SettleNotice::Dead { .. }) {
                tracing::warn!(run = %notice.run, why, "what a call began outside goes on, and nobody waits for it");
            }
            return Ok(settled);
        }
        let Some(run) = self.store.facts(notice.run).await? else { return Ok(nobody) };
        let id = notice.subscription.clone();
        let Some(found) = self.store.subscription(run.tenant.clone(), id).await? else { return Ok(nobody) };
        let receiver = match Receiver::read(&found.facts) {
            Ok(receiver) if found.is_active => receiver,
            Ok(receiver) => {
                let why = receiver.disabled.map_or_else(String::new, |disabled| disabled.why);
                return Ok(self.dead(notice.from, format!("the subscription is disabled: {why}")));
            }
            Err(why) => return Ok(self.dead(notice.from, why)),
        };
        let engine = Engine { shared: self.clone() };
        let who = receiver.owner.principal(run.tenant.clone());
        let events = match engine.log(&who, notice.run, Seq(notice.from.0.saturating_sub(1))).await {
            Ok(events) => events,
            // Whoever subscribed may no longer see it.
            Err(EngineError::NotFound) => return Ok(nobody),
            Err(EngineError::Store(StoreError::Corrupt { why, .. })) => {
                return Ok(self.dead(notice.from, why));
            }
            Err(EngineError::Store(error)) => return Err(error),
            Err(other) => return Ok(self.dead(notice.from, other.to_string())),
        };
        let all = match self.all_of(&engine, &who, &receiver, notice, &found, &events).await {
            Ok(all) => all,
            Err(EngineError::Store(StoreError::Corrupt { why, .. })) => {
                return Ok(self.dead(notice.from, why));
            }
            Err(EngineError::Store(error)) => return Err(error),
            Err(other) => return Ok(self.dead(notice.from, other.to_string())),
        };
        // What is left for later begins with another event than what was told ends with.
        let rest = all.get(FRAMES).map(Next::seq);
        let mut upto = events.last().map_or(notice.from, |last| last.seq);
        for next in all.iter().take_while(|next| rest.is_none_or(|rest| next.seq() < rest)) {
            let seq = next.seq();
            let what = match next {
                Next::Event(event) => {
                    let hold = match hold_of(&event.event) {
                        Some(key) => {
                            engine.hold(&who, HoldId { run: notice.run, key }).await.ok().map(Box::new)
                        }
                        None => None,
                    };
                    What::Event { run: &run, event, hold }
                }
                Next::Frame(frame) => What::Frame { run: &run, frame },
            };
            match self.send(&found, &receiver, what).await {
                Tried::Taken { .. } => self.settings().telemetry.delivered(),
                Tried::Failed { why, after } => return Ok(self.failed(notice, seq, why, after)),
                Tried::Gone => {
                    let why = "the receiver answered 410 Gone".to_owned();
                    self.disable(&found, receiver, &why).await?;
                    return Ok(self.dead(seq, why));
                }
            }
            if let Next::Event(event) = next
                && self.kind(&receiver.kind).is_some_and(|kind| kind.is_last(&receiver, event))
            {
                self.store.delete_subscription(found.tenant.clone(), found.id.clone()).await?;
                return Ok(nobody);
            }
            upto = if rest.is_some() { seq } else { upto.max(seq) };
        }
        Ok(SettleNotice::Delivered { upto })
    }

    /// What is to be told, in order: events, or what the kind makes of them.
    async fn all_of<'a>(
        &self,
        engine: &Engine,
        who: &Principal,
        receiver: &Receiver,
        notice: &DueNotice,
        found: &Subscription,
        events: &'a [Envelope],
    ) -> Result<Vec<Next<'a>>, EngineError> {
        let named_for = match found.scope {
            Scope::Run(run) => run,
            Scope::Agent(_) | Scope::Tenant => notice.run,
        };
        let reading = Reading { engine, who, receiver, run: notice.run, named_for, from: notice.from };
        let frames = self.kind(&receiver.kind).and_then(|kind| kind.frames(reading));
        if let Some(frames) = frames {
            return Ok(frames.await?.into_iter().map(Next::Frame).collect());
        }
        let wanted = |event: &&Envelope| {
            Event::bit(event.event.kind()).is_some_and(|bit| found.wants & bit != 0)
                && !is_muted(&event.event)
        };
        Ok(events.iter().filter(wanted).map(Next::Event).collect())
    }

    fn kind(&self, name: &str) -> Option<&Arc<dyn Kind>> {
        self.kinds.get()?.iter().find(|kind| kind.name() == name)
    }

    /// Sends one thing to one receiver.
    pub(in crate::engine) async fn send(
        &self,
        subscription: &Subscription,
        receiver: &Receiver,
        what: What<'_>,
    ) -> Tried {
        let settings = self.settings();
        let Webhooks { key, guard, timeout, .. } = &settings.webhooks;
        let Some(key) = key else { return Tried::failed(NO_KEY) };
        let Some(kind) = self.kind(&receiver.kind) else {
            return Tried::failed(format!("this server knows no receivers of the kind {:?}", receiver.kind));
        };
        let now = self.clock.now();
        let secrets = receiver.secrets(key, &subscription.tenant, &subscription.id, now);
        let brought = match receiver.brought_secrets(key, &subscription.tenant, &subscription.id) {
            Ok(brought) => brought,
            Err(why) => return Tried::failed(why),
        };
        let telling = Telling {
            subscription: &subscription.id,
            receiver,
            what,
            now,
            secrets: &secrets,
            brought: brought.as_deref(),
            public_url: settings.public_url.as_deref(),
        };
        let Some(Sending { id, headers, body }) = kind.request(&telling) else {
            return Tried::Taken { status: 0 };
        };
        let request = Request {
            method: reqwest::Method::POST,
            url: receiver.url.clone(),
            headers,
            body: Some(body),
            idempotency_key: id,
        };
        let limits = HttpLimits { time: *timeout, answer_bytes: ANSWER_BYTES, request_bytes: REQUEST_BYTES };
        match http::send(guard, &limits, request).await {
            Ok(answer) => match answer.status {
                status @ 200..=299 => Tried::Taken { status },
                410 => Tried::Gone,
                status @ 300..=399 => {
                    Tried::failed(format!("the receiver answered {status}; redirects are not followed"))
                }
                status => {
                    let after = answer.retry_after.and_then(|text| retry_after(&text, self.clock.now()));
                    Tried::Failed { why: format!("the receiver answered {status}"), after }
                }
            },
            Err(trouble) => Tried::failed(trouble.to_string()),
        }
    }

    /// When it is tried again, or that it is given up.
    fn failed(&self, notice: &DueNotice, from: Seq, why: String, after: Option<Millis>) -> SettleNotice {
        let tries = if from > notice.from { 1 } else { notice.attempts.saturating_add(1) };
        let settings = self.settings();
        let again = settings.webhooks.retries.get(usize::try_from(tries).unwrap_or(usize::MAX) - 1);
        let Some(pause) = again else { return self.dead(from, why) };
        settings.telemetry.delivery_failed();
        // A receiver that says when is not asked sooner, but it cannot put off the end of the tries for ever.
        let wished = after.map_or(Millis(0), |after| Millis(after.0.min(RETRY_AFTER_MAX.0)));
        let at = self.clock.now().plus(Millis(around(*pause).0.max(wished.0)));
        tracing::info!(
            subscription = notice.subscription, run = %notice.run, seq = from.0, tries, why, "not delivered; trying again later"
        );
        SettleNotice::Retry { at, from }
    }

    fn dead(&self, from: Seq, why: String) -> SettleNotice {
        self.settings().telemetry.delivery_dead();
        SettleNotice::Dead { at: self.clock.now(), from, why }
    }

    /// Tells a subscription nothing more. When somebody changed it meanwhile, the next try finds out again.
    async fn disable(&self, found: &Subscription, receiver: Receiver, why: &str) -> Result<(), StoreError> {
        let disabled = Some(Disabled { at: self.clock.now(), why: why.to_owned() });
        let facts = Receiver { disabled, ..receiver }.text();
        let after = Subscription { is_active: false, facts, ..found.clone() };
        if self.store.change_subscription(found.facts.clone(), after).await? {
            tracing::warn!(subscription = found.id, why, "subscription disabled");
        }
        Ok(())
    }
}

/// Why nothing can be signed.
pub(in crate::engine) const NO_KEY: &str =
    "this server has no key to sign with: set server.webhooks.key, the same on every node";

/// A hold over the cap is listed and nobody is told.
fn is_muted(event: &Event) -> bool {
    matches!(event, Event::HoldOpened(opened) if opened.muted)
}

/// A span that is up to a fifth longer or shorter, so that what failed together is not tried together.
fn around(span: Millis) -> Millis {
    let [random] = clock::random_bytes::<1>();
    let fifth = span.0 / 5;
    Millis(span.0 - fifth + fifth * 2 * i64::from(random) / 255)
}

/// The instant at which a rotated secret ends.
pub(in crate::engine) fn old_secret_until(now: Timestamp) -> Timestamp {
    now.plus(Millis::hours(24))
}

//! Subscriptions: who wants to be notified of what, and failed deliveries.
//!
//! Whoever subscribes hears only what they may see: a run that they may see, an agent whose approver they are, the whole
//! tenant as its administrator; and it is looked at again at every delivery. A subscription belongs to
//! whoever made it; administrators may see and change all of the tenant.

use std::sync::Arc;

use standfast_core::base32;
use standfast_core::digest::{self, Digest};
use standfast_core::event::Event;
use standfast_core::id::RunId;
use standfast_core::name::AgentName;
use standfast_store::{
    DeadLetter, DeadQuery, Page, Scope as Hears, StoreError, Subscription, SubscriptionCount,
    SubscriptionQuery,
};

use super::{Deliveries, DeliveryOutcome, DeliveryPayload, SigningSecret, old_secret_until};
use crate::EngineError;
use crate::auth::{Identification, Principal, Scope};
use crate::clock;
use crate::commit::IdempotencyKey;
use crate::host::Host;
use crate::identity::{Identity, Owner};
use crate::log::{Log, needs, needs_for};
use crate::receivers::{Deactivation, Receiver, SubscriptionError, UnresolvedHost};
use crate::wakes::Wakes;

/// Active subscriptions to an agent or a tenant that a tenant may have: every append looks at them.
const BROAD_MAX: usize = 100;

/// Those of one owner: nobody uses up what all share.
const BROAD_OF_ONE_MAX: usize = 20;

/// Active subscriptions of one owner to one run.
const OF_RUN_MAX: usize = 20;

/// Rows of others that a list reads at most before it answers with what it has.
const PAGES_MAX: usize = 4;

/// What is delivered by default.
pub const USUAL_EVENTS: [&str; 7] = [
    "hold.opened",
    "hold.edited",
    "hold.reminded",
    "hold.escalated",
    "hold.expired",
    "hold.resolved",
    "run.ended",
];

/// What somebody wants to be told.
#[derive(Debug, Clone)]
pub struct NewSubscription {
    /// The kind of receiver.
    pub kind: &'static str,
    /// Of which runs.
    pub hears: Hears,
    /// Where to send.
    pub url: String,
    /// Kinds of events; none means the usual ones, `*` all.
    pub events: Option<Vec<String>>,
    /// The sender's key, if it has one.
    pub once: Option<IdempotencyKey>,
}

/// A subscription as its owner sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionView {
    /// Its id.
    pub id: String,
    /// Of which runs.
    pub hears: Hears,
    /// Whether anything is delivered to it.
    pub is_active: bool,
    /// The rest.
    pub receiver: Receiver,
}

/// Who is notified of what.
pub struct Subscriptions {
    host: Arc<Host>,
    log: Arc<Log>,
    wakes: Arc<Wakes>,
    identity: Arc<Identity>,
    deliveries: Arc<Deliveries>,
}

impl Subscriptions {
    pub(crate) fn new(deliveries: Arc<Deliveries>) -> Subscriptions {
        let Deliveries { host, log, wakes, identity, .. } = &*deliveries;
        let (host, log, wakes, identity) = (host.clone(), log.clone(), wakes.clone(), identity.clone());
        Subscriptions { host, log, wakes, identity, deliveries }
    }

    /// Makes a subscription; its secret is shown this once.
    pub async fn subscribe(
        &self,
        who: &Principal,
        new: NewSubscription,
    ) -> Result<(SubscriptionView, SigningSecret), SubscriptionError> {
        needs(who, Scope::RunsRead)?;
        needs(who, Scope::RunsWrite)?;
        self.may_hear(who, &new.hears).await?;
        let settings = self.host.settings();
        let key = settings.webhooks.key.as_ref().ok_or(SubscriptionError::NoKey)?;
        let (events, wants) = wanted(new.events)?;
        let (id, request) = match &new.once {
            Some(once) => (named_by(who, once), Some(once.request)),
            None => (format!("sub_{}", base32::encode(&clock::random_bytes::<10>())), None),
        };
        if let Some(known) = self.find(who, &id).await? {
            let secret = key.secret(&who.tenant, &id, known.receiver.secret);
            return same(known, request, new.once).map(|known| (known, secret));
        }
        self.deliveries.callbacks.check_address(&new.url, UnresolvedHost::Refused).await?;
        self.check_number(who, &new.hears).await?;
        self.identity.keep_rights(who, true).await?;
        let receiver = Receiver {
            kind: new.kind.to_owned(),
            url: new.url,
            events,
            owner: Owner::of(who),
            created_at: self.host.clock.now(),
            secret: 1,
            previous_until: None,
            disabled: None,
            request,
            brought: None,
        };
        let row = Subscription {
            tenant: who.tenant.clone(),
            id: id.clone(),
            scope: new.hears.clone(),
            owner: Owner::turn(&who.tenant, &who.user),
            wants,
            is_active: true,
            facts: receiver.text(),
        };
        let secret = key.secret(&who.tenant, &id, receiver.secret);
        if !self.log.store.put_subscription(row).await? {
            // The same request, a moment earlier.
            let known = self.subscription(who, &id).await?;
            return same(known, request, new.once).map(|known| (known, secret));
        }
        Ok((SubscriptionView { id, hears: new.hears, is_active: true, receiver }, secret))
    }

    /// A subscription, if the caller may see it.
    pub async fn subscription(
        &self,
        who: &Principal,
        id: &str,
    ) -> Result<SubscriptionView, SubscriptionError> {
        self.find(who, id).await?.ok_or(SubscriptionError::Engine(EngineError::NotFound))
    }

    /// The caller's subscriptions, and for administrators everybody's, by id.
    pub async fn list(
        &self,
        who: &Principal,
        after: Option<String>,
        limit: usize,
    ) -> Result<(Vec<SubscriptionView>, Option<String>), SubscriptionError> {
        let (mut found, mut after) = (Vec::new(), after);
        let owner = (!who.sees_all()).then(|| Owner::turn(&who.tenant, &who.user));
        for _ in 0..PAGES_MAX {
            let query = SubscriptionQuery {
                tenant: who.tenant.clone(),
                owner: owner.clone(),
                after: after.clone(),
                limit: limit + 1,
            };
            let rows = self.log.store.list_subscriptions(query).await?;
            let is_last = rows.len() <= limit;
            for row in rows.into_iter().take(limit) {
                after = Some(row.id.clone());
                if let Some(view) = visible(who, &row) {
                    found.push(view);
                }
                if found.len() >= limit {
                    return Ok((found, after));
                }
            }
            if is_last {
                return Ok((found, None));
            }
        }
        Ok((found, after))
    }

    /// Ends a subscription.
    pub async fn unsubscribe(&self, who: &Principal, id: &str) -> Result<(), SubscriptionError> {
        needs(who, Scope::RunsWrite)?;
        self.subscription(who, id).await?;
        self.log.store.delete_subscription(who.tenant.clone(), id.to_owned()).await?;
        Ok(())
    }

    /// Gives a subscription another secret. For a day both sign, so that the receiver can change over.
    pub async fn rotate(
        &self,
        who: &Principal,
        id: &str,
    ) -> Result<(SubscriptionView, SigningSecret), SubscriptionError> {
        let settings = self.host.settings();
        let key = settings.webhooks.key.as_ref().ok_or(SubscriptionError::NoKey)?;
        let now = self.host.clock.now();
        let rotated = |receiver: Receiver| Receiver {
            secret: receiver.secret.saturating_add(1),
            previous_until: Some(old_secret_until(now)),
            ..receiver
        };
        let view = self.change(who, id, rotated).await?;
        let secret = key.secret(&who.tenant, id, view.receiver.secret);
        Ok((view, secret))
    }

    /// Tells a subscription again that was disabled. From then on it goes by the credential that its owner shows now; for
    /// anybody else its owner must still be somebody.
    pub async fn enable(&self, who: &Principal, id: &str) -> Result<SubscriptionView, SubscriptionError> {
        needs(who, Scope::RunsWrite)?;
        let view = self.subscription(who, id).await?;
        // Whom the configuration names stays who it says.
        if view.receiver.owner.by == Some(Identification::Configured) {
            return self.change(who, id, |receiver| Receiver { disabled: None, ..receiver }).await;
        }
        let is_owners = view.receiver.owner.user == who.user;
        let owner = if is_owners {
            who.clone()
        } else {
            let now = self.identity.owner_now(&who.tenant, &view.receiver.owner, Scope::RunsRead).await?;
            now.map_err(|why| {
                let owner = &view.receiver.owner.user;
                SubscriptionError::Invalid(format!("{why}; {owner} must enable this subscription"))
            })?
        };
        needs(&owner, Scope::RunsRead)?;
        self.may_hear(&owner, &view.hears).await?;
        if !view.is_active {
            self.check_number(&owner, &view.hears).await?;
        }
        self.identity.keep_rights(who, is_owners).await?;
        let enabled = |receiver: Receiver| {
            let owner = if is_owners { Owner::of(who) } else { receiver.owner };
            Receiver { disabled: None, owner, ..receiver }
        };
        self.change(who, id, enabled).await
    }

    /// Tells a subscription nothing until it is enabled again.
    pub async fn disable(&self, who: &Principal, id: &str) -> Result<SubscriptionView, SubscriptionError> {
        let disabled = Deactivation { at: self.host.clock.now(), why: format!("by {}", who.user) };
        self.change(who, id, |receiver| Receiver { disabled: Some(disabled.clone()), ..receiver }).await
    }

    /// Sends a test to a receiver and says what it answered, or why it did not.
    pub async fn ping(&self, who: &Principal, id: &str) -> Result<Result<u16, String>, SubscriptionError> {
        needs(who, Scope::RunsWrite)?;
        let view = self.subscription(who, id).await?;
        let found = self.log.store.subscription(who.tenant.clone(), id.to_owned()).await?;
        let found = found.ok_or(EngineError::NotFound)?;
        let ping = format!("{id}-ping-{}", base32::encode(&clock::random_bytes::<5>()));
        Ok(match self.deliveries.send(&found, &view.receiver, DeliveryPayload::Ping { id: &ping }).await {
            DeliveryOutcome::Taken { status: 0 } => Err("receivers of this kind are sent no tests".into()),
            DeliveryOutcome::Taken { status } => Ok(status),
            DeliveryOutcome::Failed { why, after: _ } => Err(why),
            DeliveryOutcome::Later(_) => Err("it is not to be disturbed now".into()),
            DeliveryOutcome::Gone => {
                Err("the receiver answered 410; a delivery would disable the subscription".into())
            }
        })
    }

    /// Failed deliveries of a subscription, oldest first.
    pub async fn dead_letters(
        &self,
        who: &Principal,
        id: &str,
        cursor: Option<u64>,
        limit: usize,
    ) -> Result<Page<DeadLetter>, SubscriptionError> {
        self.subscription(who, id).await?;
        let query = DeadQuery { tenant: who.tenant.clone(), subscription: id.to_owned(), cursor, limit };
        Ok(self.log.store.dead_letters(query).await?)
    }

    /// Resends a failed delivery, from that event on.
    pub async fn resend(&self, who: &Principal, id: &str, letter: i64) -> Result<(), SubscriptionError> {
        needs(who, Scope::RunsWrite)?;
        self.subscription(who, id).await?;
        // The number is looked for among those of this subscription.
        let before = u64::try_from(letter).ok().and_then(|no| no.checked_sub(1));
        let page = self.dead_letters(who, id, before, 1).await?;
        let is_its = page.items.first().is_some_and(|found| found.no == letter);
        let now = self.host.clock.now();
        if !is_its || !self.log.store.resend(who.tenant.clone(), letter, now).await? {
            return Err(EngineError::NotFound.into());
        }
        self.wakes.wake_deliverer();
        Ok(())
    }

    async fn find(&self, who: &Principal, id: &str) -> Result<Option<SubscriptionView>, SubscriptionError> {
        let found = self.log.store.subscription(who.tenant.clone(), id.to_owned()).await?;
        Ok(found.and_then(|row| visible(who, &row)))
    }

    /// Changes what is known of a receiver; again when somebody else did at the same moment.
    async fn change(
        &self,
        who: &Principal,
        id: &str,
        how: impl Fn(Receiver) -> Receiver,
    ) -> Result<SubscriptionView, SubscriptionError> {
        needs(who, Scope::RunsWrite)?;
        for _ in 0..5 {
            let found = self.log.store.subscription(who.tenant.clone(), id.to_owned()).await?;
            let Some((row, view)) = found.and_then(|row| visible(who, &row).map(|view| (row, view))) else {
                return Err(EngineError::NotFound.into());
            };
            let receiver = how(view.receiver);
            let is_active = receiver.disabled.is_none();
            let after = Subscription { is_active, facts: receiver.text(), ..row.clone() };
            if self.log.store.change_subscription(row.facts, after).await? {
                return Ok(SubscriptionView { is_active, receiver, ..view });
            }
        }
        let why = "the subscription is being changed by others".to_owned();
        Err(StoreError::Unavailable { why }.into())
    }

    async fn may_hear(&self, who: &Principal, hears: &Hears) -> Result<(), SubscriptionError> {
        match hears {
            Hears::Run(run) => drop(self.log.see(who, *run).await?),
            Hears::Agent(name) => {
                let agent = self.host.agent(name)?;
                needs_for(who, Scope::RunsRead, name)?;
                if !who.operates() && !agent.approvers.include(who) {
                    return Err(SubscriptionError::NotAllowed(
                        "only admins and approvers of an agent can subscribe to all its runs; subscribe to one run",
                    ));
                }
            }
            Hears::Tenant if who.operates() && who.sees_all() => {}
            Hears::Tenant => {
                return Err(SubscriptionError::NotAllowed(
                    "only admins and operators can subscribe to all runs; subscribe to an agent or a run",
                ));
            }
        }
        Ok(())
    }

    /// Whether one more may be active: of one owner to one run, of one owner to agents or everything, and of all together.
    async fn check_number(&self, who: &Principal, hears: &Hears) -> Result<(), SubscriptionError> {
        let count = async |is_own: bool, run: Option<RunId>| {
            let owner = is_own.then(|| Owner::turn(&who.tenant, &who.user));
            let count = SubscriptionCount { tenant: who.tenant.clone(), owner, run };
            self.log.store.count_subscriptions(count).await
        };
        let too_many = |why: String| Err(SubscriptionError::Invalid(format!("{why}; delete one first")));
        if let Hears::Run(run) = hears {
            return if count(true, Some(*run)).await? < OF_RUN_MAX {
                Ok(())
            } else {
                too_many(format!("you have {OF_RUN_MAX} subscriptions to {run} already"))
            };
        }
        if count(true, None).await? >= BROAD_OF_ONE_MAX {
            return too_many(format!(
                "you have {BROAD_OF_ONE_MAX} subscriptions to agents or everything already"
            ));
        }
        if count(false, None).await? < BROAD_MAX + self.deliveries.channel_rows(&who.tenant).await? {
            Ok(())
        } else {
            too_many(format!("there are {BROAD_MAX} subscriptions to agents or everything already"))
        }
    }
}

/// A subscription that this principal may see.
fn visible(who: &Principal, row: &Subscription) -> Option<SubscriptionView> {
    let receiver = Receiver::read(&row.facts)
        .inspect_err(|why| {
            tracing::warn!(subscription = row.id, why, "deliveries: a stored subscription cannot be read")
        })
        .ok()?;
    let is_theirs = who.sees_all() || receiver.owner.user == who.user;
    is_theirs.then(|| SubscriptionView {
        id: row.id.clone(),
        hears: row.scope.clone(),
        is_active: row.is_active,
        receiver,
    })
}

/// The id of a subscription that was asked for under a key: the same request finds it again.
fn named_by(who: &Principal, once: &IdempotencyKey) -> String {
    let parts = [who.user.as_str().as_bytes(), once.route.as_bytes(), once.key.as_bytes()];
    let Digest(bytes) = digest::of_parts("standfast.subscription.1", &parts);
    format!("sub_{}", base32::encode(bytes.get(..10).unwrap_or_default()))
}

fn same(
    known: SubscriptionView,
    request: Option<Digest>,
    once: Option<IdempotencyKey>,
) -> Result<SubscriptionView, SubscriptionError> {
    if known.receiver.request == request {
        Ok(known)
    } else {
        let key = once.map(|once| once.key).unwrap_or_default();
        Err(EngineError::KeyReused { key }.into())
    }
}

/// The kinds that are wanted, and their bits.
fn wanted(events: Option<Vec<String>>) -> Result<(Vec<String>, u64), SubscriptionError> {
    let events = events.unwrap_or_else(|| USUAL_EVENTS.map(str::to_owned).to_vec());
    let events =
        if events.iter().any(|kind| kind == "*") { Event::KINDS.map(str::to_owned).to_vec() } else { events };
    let mut wants = 0;
    for kind in &events {
        let Some(bit) = Event::bit(kind) else {
            return Err(SubscriptionError::Invalid(format!(
                "there is no kind of event {kind:?}; there are: *, {}",
                Event::KINDS.join(", ")
            )));
        };
        wants |= bit;
    }
    match wants {
        0 => Err(SubscriptionError::Invalid("events is empty; leave it out for the usual ones".into())),
        wants => Ok((events, wants)),
    }
}

/// Of which runs, by what a caller says: a run, an agent, or everything.
pub fn hears(run: Option<RunId>, agent: Option<AgentName>) -> Result<Hears, SubscriptionError> {
    match (run, agent) {
        (Some(run), None) => Ok(Hears::Run(run)),
        (None, Some(agent)) => Ok(Hears::Agent(agent)),
        (None, None) => Ok(Hears::Tenant),
        (Some(_), Some(_)) => Err(SubscriptionError::Invalid(
            "name a run or an agent, not both; neither means everything".into(),
        )),
    }
}

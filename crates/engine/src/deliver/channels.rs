//! Channels: the people whom the configuration names, and rooms of chats, are notified of pending holds, by the same notices,
//! retries and dead letters as webhooks.
//!
//! Each person has a subscription to each agent about whose holds they may be asked; who really is asked is seen of each
//! hold when it is delivered. A room has one to each agent, and sees what an auditor sees. The rows follow the configuration
//! (`keep_channels`), and their owners can disable their own. What somebody wants, and when, is asked at each delivery.

use std::collections::BTreeMap;
use std::sync::Arc;

use standfast_core::approver::Approver;
use standfast_core::base32;
use standfast_core::digest::{self, Digest};
use standfast_core::event::Event;
use standfast_core::id::Seq;
use standfast_core::name::{AgentName, Tenant, UserId};
use standfast_store::{DueNotice, Scope, StoreError, Subscription, SubscriptionQuery};

use super::digests::DigestState;
use super::rounds::{ALL, DeliveryOutcome};
use super::spans::{end_channel_span, run_of};
use super::{ChannelPosts, ChannelTarget, Deliveries, Delivery, DeliveryPayload, ReceiverKind, SendFailure};
use crate::auth::{Identification, person};
use crate::identity::Owner;
use crate::log::HoldView;
use crate::nodes::LINK_LEVEL;
use crate::receivers::{ACCOUNT_PREFIX, Receiver};
use crate::request_context::{self, RequestContext};
use crate::settings::{Agent, Channel, ConfiguredPerson, GATE, ROOM, Settings};

/// What the ids of such subscriptions begin with: no others do.
const PREFIX: &str = "chan_";

/// That a hold opened, as webhooks call it.
const OPENED: &str = "hold.opened";

/// Rows that are looked at in one go.
const PAGE: usize = 200;

impl Deliveries {
    /// Brings the subscriptions of channels in line with the settings, if these are others than at the last look. What does
    /// not work is tried again at the next one.
    pub(super) async fn keep_channels(&self, seen: &mut Option<Arc<Settings>>) {
        let settings = self.host.settings();
        if seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &settings)) {
            return;
        }
        // A server that has none asks the store for nothing: rows of before are deleted when they are due.
        if !settings.channels.is_empty()
            && let Err(error) = self.align_channels(&settings).await
        {
            tracing::warn!(%error, "channels: subscriptions cannot be brought in line; trying again");
            return;
        }
        *seen = Some(settings);
    }

    /// The same before the first round: holds from now on are delivered.
    pub(crate) async fn begin_channels(&self) {
        self.keep_channels(&mut None).await;
    }

    async fn align_channels(&self, settings: &Settings) -> Result<(), StoreError> {
        let mut wanted: BTreeMap<(Tenant, String), Subscription> = BTreeMap::new();
        for row in self.wanted_rows(settings) {
            wanted.insert((row.tenant.clone(), row.id.clone()), row);
        }
        let of_people = settings.people.values().map(|one| one.tenant.clone());
        let mut tenants: Vec<Tenant> =
            of_people.chain(settings.channels.iter().map(|one| one.tenant.clone())).collect();
        tenants.sort_unstable();
        tenants.dedup();
        for tenant in tenants {
            let mut after = Some(PREFIX.to_owned());
            while let Some(from) = after.take() {
                let query =
                    SubscriptionQuery { tenant: tenant.clone(), owner: None, after: Some(from), limit: PAGE };
                let found = self.log.store.list_subscriptions(query).await?;
                let is_full = found.len() >= PAGE;
                for row in found.into_iter().take_while(|row| row.id.starts_with(PREFIX)) {
                    after = is_full.then(|| row.id.clone());
                    match wanted.remove(&(tenant.clone(), row.id.clone())) {
                        Some(now) if now.wants != row.wants => {
                            let after = with_events_of(row.clone(), now);
                            self.log.store.change_subscription(row.facts, after).await?;
                        }
                        Some(_) => {}
                        None => drop(self.log.store.delete_subscription(tenant.clone(), row.id).await?),
                    }
                }
            }
        }
        for row in wanted.into_values() {
            self.log.store.put_subscription(row).await?;
        }
        Ok(())
    }

    /// What there is to be: one for each channel, person and agent about whose holds they may be asked, and one for each room and
    /// agent.
    fn wanted_rows(&self, settings: &Settings) -> Vec<Subscription> {
        let mut rows = Vec::new();
        for channel in &settings.channels {
            let gate = AgentName::new(GATE).ok().map(|name| (name, settings.gate.clone()));
            let all = settings.agents.iter().map(|(name, agent)| (name.clone(), agent.clone()));
            let told = |name: &AgentName| channel.agents.as_ref().is_none_or(|only| only.contains(name));
            let agents: Vec<(AgentName, Arc<Agent>)> =
                all.chain(gate).filter(|(name, _)| told(name)).collect();
            if channel.is_room() {
                let Ok(room) = UserId::new(address(channel)) else { continue };
                let row = |(name, _): &(AgentName, Arc<Agent>)| {
                    self.row(channel, (&room, &channel.tenant, name), &channel.events)
                };
                rows.extend(agents.iter().map(row));
                continue;
            }
            for (user, one) in settings.people.iter().filter(|(_, one)| is_reached(one, channel)) {
                for (name, agent) in &agents {
                    let Some(events) = events_for(settings, channel, (user, one), agent) else { continue };
                    rows.push(self.row(channel, (user, &one.tenant, name), &events));
                }
            }
        }
        rows
    }

    fn row(
        &self,
        channel: &Channel,
        (user, tenant, agent): (&UserId, &Tenant, &AgentName),
        events: &[&'static str],
    ) -> Subscription {
        let parts = [channel.name.as_bytes(), user.as_str().as_bytes(), agent.as_str().as_bytes()];
        let Digest(bytes) = digest::of_parts("standfast.channel.1", &parts);
        let receiver = Receiver {
            kind: channel.kind().to_owned(),
            url: address(channel),
            events: events.iter().map(|kind| (*kind).to_owned()).collect(),
            owner: Owner {
                user: user.clone(),
                groups: Default::default(),
                roles: Default::default(),
                is_admin: false,
                by: Some(Identification::Configured),
            },
            created_at: self.host.clock.now(),
            secret: 1,
            previous_until: None,
            disabled: None,
            request: None,
            brought: None,
        };
        Subscription {
            tenant: tenant.clone(),
            id: format!("{PREFIX}{}", base32::encode(bytes.get(..10).unwrap_or_default())),
            scope: Scope::Agent(agent.clone()),
            owner: Owner::turn(tenant, user),
            wants: events.iter().filter_map(|kind| Event::bit(kind)).fold(0, |all, bit| all | bit),
            is_active: true,
            facts: receiver.text(),
        }
    }

    /// How many subscriptions channels and accounts in chats have of a tenant: they count for nobody's limit.
    pub(super) async fn channel_rows(&self, tenant: &Tenant) -> Result<usize, StoreError> {
        let settings = self.host.settings();
        if settings.channels.is_empty() {
            return Ok(0);
        }
        let mut count = self.wanted_rows(&settings).iter().filter(|row| row.tenant == *tenant).count();
        let mut after = Some(ACCOUNT_PREFIX.to_owned());
        while let Some(from) = after.take() {
            let query =
                SubscriptionQuery { tenant: tenant.clone(), owner: None, after: Some(from), limit: PAGE };
            let found = self.log.store.list_subscriptions(query).await?;
            let is_full = found.len() >= PAGE;
            for row in found.into_iter().take_while(|row| row.id.starts_with(ACCOUNT_PREFIX)) {
                count += 1;
                after = is_full.then_some(row.id);
            }
        }
        Ok(count)
    }

    /// The last event that a notice of a run which its receiver does not see is settled for. Whom the configuration names may be
    /// asked later on (an escalation), so that what comes after this look is looked at again.
    pub(super) async fn last_word(&self, receiver: &Receiver, notice: &DueNotice) -> Result<Seq, StoreError> {
        if receiver.owner.by != Some(Identification::Configured) {
            return Ok(ALL);
        }
        match self.log.store.load(notice.run).await {
            Ok(stored) => Ok(stored.row.run.state.seq),
            Err(StoreError::NotFound { .. } | StoreError::Corrupt { .. }) => Ok(ALL),
            Err(error) => Err(error),
        }
    }

    /// Tells somebody whom the configuration names, if they are asked, or a room.
    pub(super) async fn send_by_channel(
        &self,
        subscription: &Subscription,
        receiver: &Receiver,
        kind: &dyn ReceiverKind,
        what: DeliveryPayload<'_>,
    ) -> DeliveryOutcome {
        let settings = self.host.settings();
        let user = &receiver.owner.user;
        let channel = settings
            .channels
            .iter()
            .find(|one| address(one) == receiver.url && one.kind() == receiver.kind)
            .filter(|one| !one.is_room() || one.tenant == subscription.tenant);
        let person = settings.person(&subscription.tenant, user);
        let own = channel.zip(person).and_then(|(channel, one)| channel.address_of(one));
        let (Some(channel), Some(address)) =
            (channel, channel.and_then(|one| if one.is_room() { Some("") } else { own }))
        else {
            // The configuration has this channel or address no longer.
            let (tenant, id) = (subscription.tenant.clone(), subscription.id.clone());
            return match self.log.store.delete_subscription(tenant, id).await {
                Ok(_) => DeliveryOutcome::Taken { status: 0 },
                Err(error) => DeliveryOutcome::failed(error.to_string()),
            };
        };
        let person = person.filter(|_| !channel.is_room());
        if channel.is_room()
            && let DeliveryPayload::Event { event, .. } = &what
            && let Some(until) = channel.quiet_until(&event.event, self.host.clock.now())
        {
            return DeliveryOutcome::Later(until);
        }
        if let (Some(one), DeliveryPayload::Event { event, hold, .. }) = (person, &what) {
            let is_for_others =
                matches!(&event.event, Event::HoldDelegated(handed) if handed.delegation.to != *user);
            if is_for_others || !wants(one, channel, event.event.kind()) {
                return DeliveryOutcome::Taken { status: 0 };
            }
            // What they are not asked about is settled below, at any time.
            let is_theirs = hold.as_ref().is_some_and(|view| view.may_decide);
            if is_theirs && let Some(until) = one.notify.quiet_until(self.host.clock.now()) {
                return DeliveryOutcome::Later(until);
            }
            match self.digest_state(one, user, channel, event).await {
                Ok(DigestState::NotWanted) => {}
                Ok(DigestState::Later(at)) => return DeliveryOutcome::Later(at),
                Ok(DigestState::Told) => return DeliveryOutcome::Taken { status: 0 },
                Ok(DigestState::Due(due)) => {
                    let target = (subscription, receiver, channel, address);
                    return self.send_digest(one, kind, target, due).await;
                }
                Err(error) => return DeliveryOutcome::failed(error.to_string()),
            }
        }
        let link = match self.link_for(&settings, subscription, user, channel, kind, &what).await {
            Ok(link) => link,
            Err(error) => return DeliveryOutcome::failed(error.to_string()),
        };
        self.hand_over(subscription, receiver, kind, (channel, address, link.as_deref()), what).await
    }

    /// Sends something by a channel.
    pub(super) async fn hand_over(
        &self,
        subscription: &Subscription,
        receiver: &Receiver,
        kind: &dyn ReceiverKind,
        (channel, address, link): (&Channel, &str, Option<&str>),
        what: DeliveryPayload<'_>,
    ) -> DeliveryOutcome {
        let settings = self.host.settings();
        let run = run_of(&what);
        let posts = ChannelPosts {
            log: self.log.clone(),
            tenant: subscription.tenant.clone(),
            subscription: subscription.id.clone(),
        };
        let person = (!channel.is_room()).then_some(&receiver.owner.user);
        let target = ChannelTarget { channel, person, address, posts: &posts, link };
        let telling = Delivery {
            subscription: &subscription.id,
            receiver,
            what,
            now: self.host.clock.now(),
            secrets: &[],
            brought: None,
            public_url: settings.public_url.as_deref(),
            target: Some(target),
        };
        let Some(sending) = kind.send(&telling) else { return DeliveryOutcome::Taken { status: 0 } };
        let span = self.begin_channel_span(run, &subscription.id, channel).await;
        let context = RequestContext::of_work(span.as_ref().map(|(_, span)| span.context));
        let sent = request_context::within(context, sending).await;
        if let Some((traces, span)) = span {
            end_channel_span(&traces, span, &sent);
        }
        match sent {
            Ok(()) => DeliveryOutcome::Taken { status: 250 },
            Err(SendFailure { why, after }) => DeliveryOutcome::Failed { why, after },
        }
    }

    /// The approval link of the receiver, where there is one: an entry of the audit says so before it is sent.
    async fn link_for(
        &self,
        settings: &Settings,
        subscription: &Subscription,
        user: &UserId,
        channel: &Channel,
        kind: &dyn ReceiverKind,
        what: &DeliveryPayload<'_>,
    ) -> Result<Option<String>, StoreError> {
        let DeliveryPayload::Event { event, hold: Some(view), .. } = what else { return Ok(None) };
        let (Some(links), Some(url)) = (&settings.links, &settings.public_url) else { return Ok(None) };
        let can_be_read = self.nodes.feature_level() >= LINK_LEVEL;
        if !can_be_read || !is_asked(view) || !kind.wants_link(event, view) {
            return Ok(None);
        }
        let now = self.host.clock.now();
        let link = links.link_to(&view.row, subscription.tenant.clone(), user.clone(), now);
        self.log.record_link(&link, &address(channel)).await?;
        Ok(Some(format!("{}/link/{}", url.trim_end_matches('/'), links.keys.sign(&link))))
    }
}

/// Whether somebody is asked about a hold that is still open.
fn is_asked(view: &HoldView) -> bool {
    view.row.closed.is_none() && view.may_decide
}

/// A row that is there, with the events that it is to have.
fn with_events_of(row: Subscription, wanted: Subscription) -> Subscription {
    let (Ok(mut receiver), Ok(now)) = (Receiver::read(&row.facts), Receiver::read(&wanted.facts)) else {
        return Subscription { wants: wanted.wants, ..row };
    };
    receiver.events = now.events;
    Subscription { wants: wanted.wants, facts: receiver.text(), ..row }
}

/// What names a channel where webhooks have an address.
fn address(channel: &Channel) -> String {
    format!("{ROOM}{}", channel.name)
}

/// Whether a channel reaches somebody by themselves.
fn is_reached(one: &ConfiguredPerson, channel: &Channel) -> bool {
    channel.address_of(one).is_some()
        && one.notify.channels.as_ref().is_none_or(|only| only.contains(&channel.name))
}

/// Whether somebody wants to be notified of such an event by this channel.
fn wants(one: &ConfiguredPerson, channel: &Channel, kind: &str) -> bool {
    is_reached(one, channel) && one.notify.events.as_ref().is_none_or(|only| only.contains(kind))
}

/// The events of an agent's holds by which somebody is notified; none when they are never asked. Whoever stands in for others is told what
/// is handed on to them, and what comes after.
fn events_for(
    settings: &Settings,
    channel: &Channel,
    (user, one): (&UserId, &ConfiguredPerson),
    agent: &Agent,
) -> Option<Vec<&'static str>> {
    if may_be_asked(user, one, agent) {
        return Some(channel.events.clone());
    }
    let stands_in = settings.people.iter().any(|(away, other)| {
        let is_they = other.away.as_ref().is_some_and(|absence| absence.stand_in == *user);
        is_they && other.tenant == one.tenant && may_be_asked(away, other, agent)
    });
    let later = channel.events.iter().copied().filter(|kind| *kind != OPENED);
    stands_in.then(|| later.collect())
}

/// Whether somebody may be asked about holds of an agent: now, later on, or because they are their own.
fn may_be_asked(user: &UserId, one: &ConfiguredPerson, agent: &Agent) -> bool {
    let who = one.principal(user, Identification::Configured);
    let named = agent.approvers.named.as_ref();
    let of_owner = named.is_none_or(|named| named.contains(&Approver::Owner));
    let as_core = person(&who);
    let escalates = agent.definition.holds.escalate_to.iter().any(|to| to.means(&as_core, user));
    of_owner || escalates || agent.approvers.include(&who)
}

//! Accounts in chats: whose they are, and who somebody is who clicks there (T13).
//!
//! An account is what its provider names by ids: workspace and user, never a display name. It is somebody's once they have signed in
//! on our pages and said so; the row is a subscription to nothing, so that it is listed, disabled and deleted like those, and is part
//! of the audit. What they may do is asked for as everywhere (`auth/may_decide.rs`), with the groups and roles of now.

use std::sync::Arc;

use serde::Serialize;
use standfast_core::base32;
use standfast_core::digest::{self, Digest};
use standfast_core::id::HoldId;
use standfast_core::name::{Tenant, UserId};
use standfast_core::time::Millis;
use standfast_store::{Scope as SubscriptionScope, StoreError, Subscription};

use super::Receiver;
use crate::auth::{Identification, Principal};
use crate::identity::Owner;
use crate::log::Log;
use crate::secrets::{AccountLink, AccountLinkKey, channel_of};
use crate::settings::{Channel, ChannelVia};

/// What the ids of accounts in chats begin with, which are subscriptions to nothing.
pub(crate) const ACCOUNT_PREFIX: &str = "chat_";

/// The kind that the rows of accounts have among receivers.
const KIND: &str = "chat-account";

/// How long somebody has to sign in and say that an account is theirs.
const OFFER_FOR: Millis = Millis::seconds(15 * 60);

/// Characters of what a chat calls an account.
const SHOWN_MAX: usize = 80;

/// An account in a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatAccount {
    /// The kind of chat.
    pub chat: &'static str,
    /// The workspace or server, by its id.
    pub team: String,
    /// The user, by their id.
    pub user: String,
}

impl ChatAccount {
    /// An account, if its names are ids.
    #[must_use]
    pub fn new(chat: &'static str, team: &str, user: &str) -> Option<ChatAccount> {
        let is_id =
            |text: &str| (1..=64).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_alphanumeric());
        let account = || ChatAccount { chat, team: team.to_owned(), user: user.to_owned() };
        (is_id(team) && is_id(user)).then(account)
    }

    fn id(&self) -> String {
        let parts = [self.chat.as_bytes(), self.team.as_bytes(), self.user.as_bytes()];
        let Digest(bytes) = digest::of_parts("standfast.chat-account.1", &parts);
        format!("{ACCOUNT_PREFIX}{}", base32::encode(bytes.get(..15).unwrap_or_default()))
    }
}

impl std::fmt::Display for ChatAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}/{}", self.chat, self.team, self.user)
    }
}

/// An account that somebody can say is theirs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountOffer {
    /// The account.
    pub account: ChatAccount,
    /// What its chat calls it.
    pub shown: String,
    /// Whose holds are decided by it.
    pub tenant: Tenant,
}

/// Why an account is not linked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccountRefusal {
    /// The link is none of ours, or is too old.
    #[error("This link was changed or is too old. Click the button in the chat again.")]
    NoOffer,
    /// They are of another tenant.
    #[error("The channel is another tenant's.")]
    OtherTenant,
    /// The configuration does not name them.
    #[error(
        "{0} is not among the people of the configuration, who alone can decide in chats. Ask an administrator."
    )]
    NoSuchPerson(UserId),
    /// It is somebody else's.
    #[error("This account belongs to somebody else already. Whoever it is can delete its subscription.")]
    SomebodyElses,
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An entry of the audit.
#[derive(Debug, Serialize)]
struct AccountRecord<'a> {
    kind: &'static str,
    account: String,
    channel: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a UserId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold: Option<HoldId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
}

/// What became of a click.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClickResult<'a> {
    /// It decided as somebody.
    Decided(&'a UserId),
    /// It did not.
    Refused(&'a str),
}

/// Whose accounts in chats are.
pub struct ChatAccounts {
    log: Arc<Log>,
}

impl ChatAccounts {
    pub(crate) fn new(log: Arc<Log>) -> ChatAccounts {
        ChatAccounts { log }
    }

    /// What stands in the address of the page where somebody says that an account is theirs.
    #[must_use]
    pub fn offer(&self, channel: &Channel, account: &ChatAccount, shown: &str) -> Option<String> {
        let link = AccountLink {
            channel: channel.name.clone(),
            team: account.team.clone(),
            user: account.user.clone(),
            shown: shown.chars().filter(|c| !c.is_control()).take(SHOWN_MAX).collect(),
            expires_at: self.log.host.clock.now().plus(OFFER_FOR),
        };
        key_of(channel).map(|key| key.sign(&link))
    }

    /// The account that a link offers to whoever has signed in.
    pub fn open(&self, who: &Principal, token: &str) -> Result<AccountOffer, AccountRefusal> {
        self.opened(who, token).map(|(offer, _)| offer)
    }

    fn opened(&self, who: &Principal, token: &str) -> Result<(AccountOffer, Channel), AccountRefusal> {
        let settings = self.log.host.settings();
        let named = channel_of(token);
        let channel = settings.channels.iter().find(|one| Some(one.name.as_str()) == named);
        let opened =
            channel.and_then(|channel| Some((channel, key_of(channel)?.open(token)?, chat_of(channel)?)));
        let Some((channel, link, chat)) = opened else { return Err(AccountRefusal::NoOffer) };
        if self.log.host.clock.now() >= link.expires_at {
            return Err(AccountRefusal::NoOffer);
        }
        if channel.tenant != who.tenant {
            return Err(AccountRefusal::OtherTenant);
        }
        if settings.person(&who.tenant, &who.user).is_none() {
            return Err(AccountRefusal::NoSuchPerson(who.user.clone()));
        }
        let account = ChatAccount::new(chat, &link.team, &link.user).ok_or(AccountRefusal::NoOffer)?;
        Ok((AccountOffer { account, shown: link.shown, tenant: channel.tenant.clone() }, channel.clone()))
    }

    /// From now on whoever clicks with this account is whoever has signed in here.
    pub async fn link(&self, who: &Principal, token: &str) -> Result<AccountOffer, AccountRefusal> {
        let (offer, channel) = self.opened(who, token)?;
        let receiver = Receiver {
            kind: KIND.to_owned(),
            url: offer.account.to_string(),
            events: Vec::new(),
            owner: Owner {
                user: who.user.clone(),
                groups: Default::default(),
                roles: Default::default(),
                is_admin: false,
                by: Some(Identification::Configured),
            },
            created_at: self.log.host.clock.now(),
            secret: 1,
            previous_until: None,
            disabled: None,
            request: None,
            brought: None,
        };
        let row = Subscription {
            tenant: who.tenant.clone(),
            id: offer.account.id(),
            scope: SubscriptionScope::Tenant,
            owner: Owner::turn(&who.tenant, &who.user),
            wants: 0,
            is_active: true,
            facts: receiver.text(),
        };
        if !self.log.store.put_subscription(row).await? {
            let known = self.row(&who.tenant, &offer.account).await?;
            return match known {
                Some(known) if known.owner.user == who.user && known.disabled.is_none() => Ok(offer),
                Some(_) | None => Err(AccountRefusal::SomebodyElses),
            };
        }
        self.record(&channel, &offer.account, "chat.linked", Some(&who.user), None, None).await?;
        Ok(offer)
    }

    /// Who somebody is who clicks with this account: as the configuration names them now; none whom nobody knows.
    pub async fn person(
        &self,
        channel: &Channel,
        account: &ChatAccount,
    ) -> Result<Option<Principal>, StoreError> {
        let found = self.row(&channel.tenant, account).await?.filter(|row| row.disabled.is_none());
        let Some(receiver) = found else { return Ok(None) };
        let settings = self.log.host.settings();
        let person = settings.person(&channel.tenant, &receiver.owner.user);
        Ok(person.map(|one| one.principal(&receiver.owner.user, Identification::Configured)))
    }

    /// Writes into the audit what became of a click.
    pub async fn record_click(
        &self,
        channel: &Channel,
        account: &ChatAccount,
        hold: Option<HoldId>,
        result: ClickResult<'_>,
    ) -> Result<(), StoreError> {
        let (kind, user, why) = match result {
            ClickResult::Decided(user) => ("chat.decided", Some(user), None),
            ClickResult::Refused(why) => ("chat.refused", None, Some(why)),
        };
        self.record(channel, account, kind, user, hold, why).await
    }

    async fn record(
        &self,
        channel: &Channel,
        account: &ChatAccount,
        kind: &'static str,
        user: Option<&UserId>,
        hold: Option<HoldId>,
        why: Option<&str>,
    ) -> Result<(), StoreError> {
        let account = account.to_string();
        let record = AccountRecord { kind, account, channel: &channel.name, user, hold, why };
        let entry = serde_json::to_string(&record).unwrap_or_default();
        self.log.store.put_audit(channel.tenant.clone(), self.log.host.clock.now(), entry).await
    }

    async fn row(&self, tenant: &Tenant, account: &ChatAccount) -> Result<Option<Receiver>, StoreError> {
        let found = self.log.store.subscription(tenant.clone(), account.id()).await?;
        let receiver = found.and_then(|row| Receiver::read(&row.facts).ok());
        Ok(receiver.filter(|row| row.kind == KIND && row.url == account.to_string()))
    }
}

/// The kind of chat whose accounts click in a channel; none where nobody can click.
fn chat_of(channel: &Channel) -> Option<&'static str> {
    match &channel.via {
        ChannelVia::Slack(room) => room.interactive.as_ref().map(|_| "slack"),
        ChannelVia::Discord(room) => room.interactive.as_ref().map(|_| "discord"),
        ChannelVia::Mail(_) | ChannelVia::Teams(_) | ChannelVia::Ntfy(_) | ChannelVia::Webhook(_) => None,
    }
}

/// What offers of accounts of a channel are signed with.
fn key_of(channel: &Channel) -> Option<AccountLinkKey> {
    match &channel.via {
        ChannelVia::Slack(room) => {
            let by = room.interactive.as_ref()?;
            let secret = by.signing_secret.as_ref().or(by.app_token.as_ref())?;
            Some(AccountLinkKey::of_secret(&secret.0))
        }
        ChannelVia::Discord(room) => Some(AccountLinkKey::of_secret(&room.token.0)),
        ChannelVia::Mail(_) | ChannelVia::Teams(_) | ChannelVia::Ntfy(_) | ChannelVia::Webhook(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T13: an account is its ids; what is none of them is nobody.
    #[test]
    fn t13_an_account_is_what_its_provider_names_by_ids() {
        let account = ChatAccount::new("slack", "T1", "U1").unwrap();
        assert_eq!(account.to_string(), "slack:T1/U1");
        let others =
            [("discord", "T1", "U1"), ("slack", "T2", "U1"), ("slack", "T1", "U2"), ("slack", "T1U", "1")];
        for (chat, team, user) in others {
            assert_ne!(ChatAccount::new(chat, team, user).unwrap().id(), account.id());
        }
        for (team, user) in
            [("", "U1"), ("T1", ""), ("T1", "U1/x"), ("T1", "@ann"), ("T 1", "U1"), ("T1", "ü")]
        {
            assert_eq!(ChatAccount::new("slack", team, user), None, "{team} {user}");
        }
    }
}

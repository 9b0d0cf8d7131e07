//! Who is behind a key or a token, what their credential is for, and what whoever subscribed may still see.
//!
//! The store is asked each time, so that a key works as soon as it is made and stops as soon as it is revoked. Scopes
//! are checked below every surface (`needs` in `log/visibility.rs`): all changes come through the engine, so no route can forget it. A subscription
//! outlives its request, so its owner is identified again for each delivery: by the key that they had, or by the latest
//! token that they showed, of which the server keeps what it said until it expires. `session_rows.rs` is what is stored of
//! sessions, `browser_sessions.rs` what they let do, `sign_ins.rs` how one begins at an identity provider.

mod browser_sessions;
mod session_rows;
mod sign_ins;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use standfast_core::name::{GroupName, InboxName, RoleName, Tenant, UserId};
use standfast_core::time::Timestamp;
use standfast_store::{SealedChange, StoreError};

use self::session_rows::SessionRows;
use super::EngineError;
use super::host::Host;
use super::log::Log;
use crate::auth::{
    ApiKey, Identification, IdentityProvider, NotLetIn, Principal, Scope, ScopeLimits, stands_for,
};
use crate::log::refused_sign_ins::RefusedSignIns;
use crate::settings::Auth;

pub use browser_sessions::{Activity, BrowserSession, SessionSource, SignInView};
pub use sign_ins::{BegunSignIn, CommandLineOffer, FinishedSignIn, SignInFailure, bound_nonce};

/// The column that rights are sealed for.
const COLUMN: &str = "rights";

/// Token holders whose latest token is remembered, so that the store is asked once for each token.
const SEEN_MAX: usize = 10_000;

/// What the latest token of somebody said; kept sealed for those who have subscriptions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TokenRights {
    groups: BTreeSet<GroupName>,
    roles: BTreeSet<RoleName>,
    scopes: BTreeSet<Scope>,
    /// The inboxes that `inbox:work` is for, as rights were kept before other scopes could be narrowed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    inboxes: BTreeSet<InboxName>,
    #[serde(default, skip_serializing_if = "ScopeLimits::is_empty")]
    limits: ScopeLimits,
    issued_at: Timestamp,
    expires_at: Timestamp,
}

impl TokenRights {
    /// What a token said of its holder; none of somebody who is known by something else.
    fn of(who: &Principal) -> Option<TokenRights> {
        let Identification::Token { issued_at, expires_at, .. } = who.by else { return None };
        Some(TokenRights {
            groups: who.groups.clone(),
            roles: who.roles.clone(),
            scopes: who.scopes.clone(),
            inboxes: BTreeSet::new(),
            limits: who.limits.clone(),
            issued_at,
            expires_at,
        })
    }

    /// What its scopes are narrowed to, whenever it was kept.
    fn all_limits(&self) -> ScopeLimits {
        let mut limits = self.limits.clone();
        self.inboxes.iter().for_each(|inbox| limits.narrow(Scope::InboxWork, inbox.as_str()));
        limits
    }

    /// Nothing at all.
    fn none(now: Timestamp) -> TokenRights {
        TokenRights {
            groups: BTreeSet::new(),
            roles: BTreeSet::new(),
            scopes: BTreeSet::new(),
            inboxes: BTreeSet::new(),
            limits: ScopeLimits::default(),
            issued_at: now,
            expires_at: now,
        }
    }
}

/// The latest tokens that this node has seen.
#[derive(Debug, Default)]
struct SeenTokens(Mutex<HashMap<(Tenant, UserId), (Timestamp, Timestamp)>>);

impl SeenTokens {
    /// Whether a token is later than what was seen of its holder; from now on it is not.
    fn is_news(&self, who: &Principal, token: (Timestamp, Timestamp)) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let holder = (who.tenant.clone(), who.user.clone());
        if seen.get(&holder).is_some_and(|known| *known >= token) {
            return false;
        }
        if seen.len() >= SEEN_MAX {
            seen.clear();
        }
        seen.insert(holder, token);
        true
    }
}

/// Whoever made a subscription, as they were then. What they may see is worked out again for each delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Who they are.
    pub user: UserId,
    /// Their groups.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub groups: BTreeSet<GroupName>,
    /// Their roles.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub roles: BTreeSet<RoleName>,
    /// Whether they administer.
    #[serde(default)]
    pub is_admin: bool,
    /// How they were identified; none for subscriptions of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Identification>,
}

impl Owner {
    /// Whoever is calling.
    #[must_use]
    pub fn of(who: &Principal) -> Owner {
        let (user, groups, roles) = (who.user.clone(), who.groups.clone(), who.roles.clone());
        Owner { user, groups, roles, is_admin: who.is_admin(), by: Some(who.by.clone()) }
    }

    /// Whose turn a delivery counts for.
    #[must_use]
    pub fn turn(tenant: &Tenant, user: &UserId) -> String {
        format!("{tenant} {user}")
    }

    /// Somebody who may look at what they could see when they subscribed, and nothing else.
    #[must_use]
    pub fn principal(&self, tenant: Tenant) -> Principal {
        let scope = if self.is_admin { Scope::Admin } else { Scope::RunsRead };
        Principal {
            tenant,
            user: self.user.clone(),
            groups: self.groups.clone(),
            roles: self.roles.clone(),
            scopes: BTreeSet::from([scope]),
            limits: ScopeLimits::default(),
            by: self.by.clone().unwrap_or_default(),
        }
    }
}

/// Who callers are, and what whoever subscribed may still see.
pub struct Identity {
    host: Arc<Host>,
    log: Arc<Log>,
    rows: SessionRows,
    seen_tokens: SeenTokens,
    refused: RefusedSignIns,
}

impl Identity {
    pub(crate) fn new(log: Arc<Log>) -> Identity {
        Identity {
            host: log.host.clone(),
            rows: SessionRows::new(log.clone()),
            log,
            seen_tokens: SeenTokens::default(),
            refused: RefusedSignIns::default(),
        }
    }

    /// Whom a key stands for; none when it opens nothing, which the audit of its tenant then says if it is known whose it is.
    pub async fn identify(&self, key: &ApiKey) -> Result<Option<Principal>, EngineError> {
        let Some(kept) = self.log.store.credential(key.prefix().to_owned()).await? else { return Ok(None) };
        let who = key.opens(&kept, self.host.clock.now());
        if who.is_none() {
            self.refused.record(&self.log, &kept).await;
        }
        Ok(who)
    }

    /// Whom a token of an identity provider stands for. What a later token says counts for the subscriptions of its holder
    /// at once.
    pub async fn identify_token(
        &self,
        issuer: &dyn IdentityProvider,
        token: &str,
    ) -> Result<Principal, NotLetIn> {
        let who = issuer.identify(token, &self.host.clock).await?;
        self.note_rights(&who).await;
        Ok(who)
    }

    /// Has what a newer token says count for the subscriptions of its holder.
    async fn note_rights(&self, who: &Principal) {
        if let Identification::Token { issued_at, expires_at, .. } = who.by
            && self.seen_tokens.is_news(who, (issued_at, expires_at))
            && let Err(error) = self.keep_rights(who, false).await
        {
            tracing::warn!(user = %who.user, %error, "auth: the rights of a newer token were not stored; deliveries go by the older one");
        }
    }

    /// Keeps what the token of somebody says, for their subscriptions. Without `is_needed` only where something of an older
    /// token is kept: whoever has no subscriptions needs nothing.
    pub(crate) async fn keep_rights(&self, who: &Principal, is_needed: bool) -> Result<(), StoreError> {
        let Some(rights) = TokenRights::of(who) else { return Ok(()) };
        let (issued_at, expires_at) = (rights.issued_at, rights.expires_at);
        let settings = self.host.settings();
        let Some(key) = &settings.webhooks.key else { return Ok(()) };
        let (tenant, name) = (who.tenant.clone(), rights_name(&who.user));
        for _ in 0..5 {
            let before = self.log.store.sealed(tenant.clone(), name.clone()).await?;
            if before.is_none() && !is_needed {
                return Ok(());
            }
            let opened =
                before.as_ref().and_then(|sealed| key.open(COLUMN, &[tenant.as_str(), &name], sealed));
            let known = opened.and_then(|text| serde_json::from_str::<TokenRights>(&text).ok());
            let is_older =
                |known: &TokenRights| (issued_at, expires_at) <= (known.issued_at, known.expires_at);
            if known.as_ref().is_some_and(is_older) {
                return Ok(());
            }
            let text = serde_json::to_string(&rights).unwrap_or_default();
            let after = Some(key.seal(COLUMN, &[tenant.as_str(), &name], &text));
            let change = SealedChange { tenant: tenant.clone(), name: name.clone(), before, after };
            if self.log.store.change_sealed(change).await? {
                return Ok(());
            }
        }
        Err(StoreError::Unavailable { why: "the rights of a token are being changed by others".into() })
    }

    /// Whoever made a subscription, with the rights that they have at this instant; or why they have none any more, or not the one
    /// that is needed to be notified.
    pub(crate) async fn owner_now(
        &self,
        tenant: &Tenant,
        owner: &Owner,
        needs: Scope,
    ) -> Result<Result<Principal, String>, StoreError> {
        let settings = self.host.settings();
        let auth = &settings.access.auth;
        // People are not distinguished here: whoever subscribed is as good as whoever looks. Whom the configuration names is
        // somebody all the same.
        let is_configured = owner.by == Some(Identification::Configured);
        if matches!(auth, Auth::Local) && !is_configured {
            return Ok(Ok(owner.principal(tenant.clone())));
        }
        let found = match &owner.by {
            Some(Identification::ApiKey { .. }) if !auth.takes_keys() => {
                Err("this server does not accept API keys any more".to_owned())
            }
            Some(Identification::ApiKey { prefix }) => self.key_now(tenant, prefix).await?,
            Some(Identification::Token { .. }) if auth.issuer().is_none() => {
                Err("this server does not accept tokens any more".to_owned())
            }
            Some(Identification::Token { .. }) => self.token_now(tenant, owner).await?,
            Some(Identification::Configured) if settings.room(tenant, &owner.user).is_some() => {
                Ok(Principal::room(tenant.clone(), owner.user.clone()))
            }
            Some(Identification::Configured) => {
                let named = settings.person(tenant, &owner.user);
                named.map(|person| person.principal(&owner.user, Identification::Configured)).ok_or_else(
                    || format!("{} is not among the people of the configuration any more", owner.user),
                )
            }
            Some(Identification::Local | Identification::Link) => {
                Err("it was created before this server asked for keys or tokens".to_owned())
            }
            None => self.keys_now(tenant, owner).await?,
        };
        let who = match found {
            Ok(who) => who,
            Err(why) => return Ok(Err(why)),
        };
        if who.user != owner.user || who.tenant != *tenant {
            return Ok(Err("the credential that created it belongs to somebody else now".to_owned()));
        }
        if !who.has(needs) {
            let why = format!("the credential of {} has no scope {needs}", who.user);
            return Ok(Err(why));
        }
        Ok(Ok(who))
    }

    async fn key_now(&self, tenant: &Tenant, prefix: &str) -> Result<Result<Principal, String>, StoreError> {
        let kept = self.log.store.credential(prefix.to_owned()).await?.filter(|kept| kept.tenant == *tenant);
        let Some(kept) = kept else { return Ok(Err(format!("API key {prefix} does not exist any more"))) };
        Ok(stands_for(&kept, self.host.clock.now()).map_err(|end| format!("API key {prefix} {end}")))
    }

    /// By the latest token that they showed.
    async fn token_now(
        &self,
        tenant: &Tenant,
        owner: &Owner,
    ) -> Result<Result<Principal, String>, StoreError> {
        let settings = self.host.settings();
        let name = rights_name(&owner.user);
        let sealed = self.log.store.sealed(tenant.clone(), name.clone()).await?;
        let opened = sealed.zip(settings.webhooks.key.as_ref());
        let opened = opened.and_then(|(sealed, key)| key.open(COLUMN, &[tenant.as_str(), &name], &sealed));
        let rights = opened.and_then(|text| serde_json::from_str::<TokenRights>(&text).ok());
        let Some(rights) = rights else {
            return Ok(Err(format!("no token of {} is known", owner.user)));
        };
        let limits = rights.all_limits();
        let TokenRights { groups, roles, scopes, issued_at, expires_at, .. } = rights;
        if self.host.clock.now() >= expires_at {
            return Ok(Err(format!("the latest token of {} has expired", owner.user)));
        }
        let by = Identification::Token { issued_at, expires_at, signed_in_at: None };
        Ok(Ok(Principal {
            tenant: tenant.clone(),
            user: owner.user.clone(),
            groups,
            roles,
            scopes,
            limits,
            by,
        }))
    }

    /// What an older version kept says only who it was: it counts as long as they have a key, or have shown a token, that
    /// gives them what they had then.
    async fn keys_now(
        &self,
        tenant: &Tenant,
        owner: &Owner,
    ) -> Result<Result<Principal, String>, StoreError> {
        let (mut found, now) = (Vec::new(), self.host.clock.now());
        if self.host.settings().access.auth.takes_keys() {
            let kept = self.log.store.list_credentials(tenant.clone()).await?;
            found.extend(kept.iter().filter_map(|kept| stands_for(kept, now).ok()));
        }
        if self.host.settings().access.auth.issuer().is_some() {
            found.extend(self.token_now(tenant, owner).await?);
        }
        let fits = |who: &Principal| {
            who.user == owner.user
                && who.groups.is_superset(&owner.groups)
                && who.roles.is_superset(&owner.roles)
                && (who.is_admin() || !owner.is_admin)
        };
        let why = format!(
            "{} has no valid key or token with the groups and roles that it was created with",
            owner.user
        );
        Ok(found.into_iter().find(fits).ok_or(why))
    }
}

/// The name under which the rights of a token holder are kept.
fn rights_name(user: &UserId) -> String {
    format!("rights of {user}")
}

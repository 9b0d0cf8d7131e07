//! Sessions of browsers: a random cookie stands for the key or token that somebody signed in with.
//!
//! Of a cookie only a digest is stored, in one sealed row for each key, or for each holder of tokens, so that there are never
//! more rows than credentials. The credential is asked again with every request: a session ends with its key or token, when
//! somebody signs out, or by itself. What a browser sends and how it is read is the door's (`http/guard.rs` of the surfaces).

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use serde::{Deserialize, Serialize};
use standfast_core::digest::{self, Digest};
use standfast_core::name::{Tenant, UserId};
use standfast_core::time::{Millis, Timestamp};
use standfast_store::{SealedChange, StoreError};

use super::Identity;
use crate::EngineError;
use crate::auth::{Identification, NotLetIn, Principal};
use crate::clock;
use crate::settings::Auth;

/// The column that sessions are sealed for.
const COLUMN: &str = "browser sessions";

/// How long a session lasts at most.
const LASTS: Millis = Millis::seconds(7 * 24 * 60 * 60);

/// Sessions of one credential at once; the oldest ends when another one begins.
const SESSIONS_MAX: usize = 32;

/// A new session.
#[derive(Clone, PartialEq, Eq)]
pub struct BrowserSession {
    /// What the browser keeps.
    pub cookie: String,
    /// For how long.
    pub lasts: Millis,
}

/// Never the cookie.
impl std::fmt::Debug for BrowserSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BrowserSession({:?}, ..)", self.lasts)
    }
}

/// What is kept of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct KeptSession {
    id: Digest,
    expires_at: Timestamp,
    /// The token that it stands for; a key is found by its row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

/// Whose sessions a row has.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Holder {
    Key { prefix: String },
    User { tenant: Tenant, user: UserId },
}

impl Holder {
    fn of(who: &Principal) -> Option<Holder> {
        match &who.by {
            Identification::ApiKey { prefix } => Some(Holder::Key { prefix: prefix.clone() }),
            Identification::Token { .. } => {
                Some(Holder::User { tenant: who.tenant.clone(), user: who.user.clone() })
            }
            Identification::Local => None,
        }
    }

    /// The name of the row.
    fn row(&self) -> String {
        match self {
            Holder::Key { prefix } => format!("browser sessions of key {prefix}"),
            Holder::User { user, .. } => format!("browser sessions of user {user}"),
        }
    }

    fn cookie(&self, secret: Digest) -> String {
        match self {
            Holder::Key { prefix } => format!("k.{prefix}.{secret}"),
            Holder::User { tenant, user } => {
                let name = BASE64_URL_SAFE_NO_PAD.encode(format!("{tenant}\n{user}"));
                format!("u.{name}.{secret}")
            }
        }
    }

    /// Whose cookie this is, and its secret; none when it cannot be one.
    fn read(cookie: &str) -> Option<(Holder, Digest)> {
        let mut parts = cookie.split('.');
        let (kind, name, secret) = (parts.next()?, parts.next()?, parts.next()?.parse().ok()?);
        if parts.next().is_some() {
            return None;
        }
        let holder = match kind {
            "k" if name.len() <= 16 && name.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                Holder::Key { prefix: name.to_owned() }
            }
            "u" => {
                let text = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(name).ok()?).ok()?;
                let (tenant, user) = text.split_once('\n')?;
                Holder::User { tenant: Tenant::new(tenant).ok()?, user: UserId::new(user).ok()? }
            }
            _ => return None,
        };
        Some((holder, secret))
    }
}

impl Identity {
    /// Begins a session of somebody who has just shown their key or token; the latter is kept, sealed, until it ends.
    pub async fn open_browser_session(
        &self,
        who: &Principal,
        token: Option<&str>,
    ) -> Result<BrowserSession, EngineError> {
        let Some(holder) = Holder::of(who) else { return Err(EngineError::NotFound) };
        let now = self.host.clock.now();
        let expires_at = match who.by {
            Identification::Token { expires_at, .. } => expires_at.min(now.plus(LASTS)),
            Identification::ApiKey { .. } | Identification::Local => now.plus(LASTS),
        };
        let secret = Digest(clock::random_bytes());
        let token = matches!(holder, Holder::User { .. }).then(|| token.map(str::to_owned)).flatten();
        let new = KeptSession { id: kept_id(secret), expires_at, token };
        self.change_sessions(&who.tenant, &holder, |sessions| {
            sessions.retain(|session| session.expires_at > now);
            let too_many = (sessions.len() + 1).saturating_sub(SESSIONS_MAX);
            sessions.drain(..too_many);
            sessions.push(new.clone());
        })
        .await?;
        Ok(BrowserSession { cookie: holder.cookie(secret), lasts: expires_at.since(now) })
    }

    /// Whom a cookie stands for at this instant.
    pub async fn identify_browser(&self, cookie: &str) -> Result<Result<Principal, NotLetIn>, EngineError> {
        let refused = Ok(Err(NotLetIn::Refused));
        let Some((holder, secret)) = Holder::read(cookie) else { return refused };
        let settings = self.host.settings();
        let auth = &settings.access.auth;
        let Some(tenant) = self.tenant_of(&holder).await? else { return refused };
        let (sessions, _) = self.sessions(&tenant, &holder).await?;
        let (id, now) = (kept_id(secret), self.host.clock.now());
        // What is compared is a digest of 256 random bits: the time that it takes tells nothing about them.
        let found = sessions.into_iter().find(|session| session.id == id && session.expires_at > now);
        let Some(session) = found else { return refused };
        match (&holder, session.token) {
            (Holder::Key { prefix }, _) if auth.takes_keys() => {
                Ok(self.key_now(&tenant, prefix).await?.map_err(|_| NotLetIn::Refused))
            }
            (Holder::User { user, .. }, Some(token)) => match auth.issuer() {
                Some(issuer) => {
                    let who = self.identify_token(issuer.as_ref(), &token).await;
                    // The row says whose sessions it has; a token of somebody else was never put there.
                    let is_theirs = |who: &Principal| who.user == *user && who.tenant == tenant;
                    Ok(who.and_then(|who| if is_theirs(&who) { Ok(who) } else { Err(NotLetIn::Refused) }))
                }
                None => refused,
            },
            (Holder::Key { .. } | Holder::User { .. }, _) => refused,
        }
    }

    /// Ends the session of a cookie; one that has expired, or never was, is no mistake.
    pub async fn close_browser_session(&self, cookie: &str) -> Result<(), EngineError> {
        let Some((holder, secret)) = Holder::read(cookie) else { return Ok(()) };
        let Some(tenant) = self.tenant_of(&holder).await? else { return Ok(()) };
        let id = kept_id(secret);
        self.change_sessions(&tenant, &holder, |sessions| sessions.retain(|session| session.id != id)).await
    }

    /// Whether browsers have anything to sign in with here.
    #[must_use]
    pub fn has_sign_in(&self) -> bool {
        !matches!(self.host.settings().access.auth, Auth::Local)
    }

    async fn tenant_of(&self, holder: &Holder) -> Result<Option<Tenant>, StoreError> {
        match holder {
            Holder::Key { prefix } => {
                Ok(self.log.store.credential(prefix.clone()).await?.map(|kept| kept.tenant))
            }
            Holder::User { tenant, .. } => Ok(Some(tenant.clone())),
        }
    }

    /// The sessions of a row, and the row as it is stored. What cannot be opened is as good as not there.
    async fn sessions(
        &self,
        tenant: &Tenant,
        holder: &Holder,
    ) -> Result<(Vec<KeptSession>, Option<String>), StoreError> {
        let row = holder.row();
        let sealed = self.log.store.sealed(tenant.clone(), row.clone()).await?;
        let settings = self.host.settings();
        let opened = sealed.as_ref().zip(settings.webhooks.key.as_ref());
        let text = opened.and_then(|(sealed, key)| key.open(COLUMN, &[tenant.as_str(), &row], sealed));
        Ok((text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(), sealed))
    }

    async fn change_sessions(
        &self,
        tenant: &Tenant,
        holder: &Holder,
        change: impl Fn(&mut Vec<KeptSession>),
    ) -> Result<(), EngineError> {
        let settings = self.host.settings();
        let unavailable = |why: &str| EngineError::Store(StoreError::Unavailable { why: why.into() });
        let key = settings.webhooks.key.as_ref();
        let key = key.ok_or_else(|| unavailable("this server has no key to seal sessions with"))?;
        for _ in 0..5 {
            let (mut sessions, before) = self.sessions(tenant, holder).await?;
            change(&mut sessions);
            let row = holder.row();
            let after = match sessions.as_slice() {
                [] => None,
                kept => {
                    let text = serde_json::to_string(kept).unwrap_or_default();
                    Some(key.seal(COLUMN, &[tenant.as_str(), &row], &text))
                }
            };
            if before.is_none() && after.is_none() {
                return Ok(());
            }
            let change = SealedChange { tenant: tenant.clone(), name: row, before, after };
            if self.log.store.change_sealed(change).await? {
                return Ok(());
            }
        }
        Err(unavailable("the sessions of this credential are being changed by others"))
    }
}

/// What is kept instead of the secret.
fn kept_id(secret: Digest) -> Digest {
    digest::of_parts("standfast.browser-session.1", &[secret.0.as_slice()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Digest {
        Digest([7; 32])
    }

    #[test]
    fn a_cookie_names_its_holder_and_its_secret() {
        let key = Holder::Key { prefix: "abcd1234".into() };
        let user =
            Holder::User { tenant: Tenant::default_tenant(), user: UserId::new("Ann Müller").unwrap() };
        for holder in [key, user] {
            assert_eq!(Holder::read(&holder.cookie(secret())), Some((holder, secret())));
        }
    }

    #[test]
    fn what_is_no_cookie_of_ours_is_none() {
        let good = Holder::Key { prefix: "abcd1234".into() }.cookie(secret());
        for cookie in
            ["", "k", "k..", "k.abcd1234.", &good.replace("k.", "x."), &format!("{good}.x"), "u.%.x"]
        {
            assert_eq!(Holder::read(cookie), None, "{cookie}");
        }
    }

    #[test]
    fn what_is_kept_says_nothing_of_the_secret() {
        let kept = KeptSession { id: kept_id(secret()), expires_at: Timestamp(1), token: None };
        assert!(!serde_json::to_string(&kept).unwrap().contains(&secret().to_string()));
    }
}

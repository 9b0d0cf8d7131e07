//! What is stored of sessions: one sealed row for each key, or for each person who signs in, with the sessions of it.
//!
//! Of what a browser or the command line shows only a digest is stored. A row is changed if it still is what was read, so two
//! nodes never lose each other's sessions. What a session lets do is `browser_sessions.rs`.

use std::sync::Arc;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use serde::{Deserialize, Serialize};
use standfast_core::digest::{self, Digest};
use standfast_core::name::{Tenant, UserId};
use standfast_core::time::Timestamp;
use standfast_store::{SealedChange, StoreError};

use super::TokenRights;
use crate::EngineError;
use crate::auth::{Identification, Principal, SessionClient};
use crate::log::Log;

/// The column that sessions are sealed for.
const COLUMN: &str = "browser sessions";

/// Sessions of one holder at once; the oldest ends when another one begins.
const SESSIONS_MAX: usize = 32;

/// How often a change is tried when others change the same row.
const TRIES: usize = 8;

/// How many characters of the id of a session people are shown.
const SHOWN_ID: usize = 12;

/// What is kept of a session. What an older version wrote says less.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptSession {
    pub(super) id: Digest,
    pub(super) expires_at: Timestamp,
    /// The token that it stands for; a key is found by its row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) began_at: Option<Timestamp>,
    /// When its holder last did something, as far as it was written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) seen_at: Option<Timestamp>,
    #[serde(default)]
    pub(super) client: SessionClient,
    /// What the program said of itself, for its holder to tell sessions apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) label: Option<String>,
    /// The sign-in at the identity provider that it stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sign_in: Option<KeptSignIn>,
}

/// What is kept of a sign-in at the identity provider.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptSignIn {
    pub(super) issuer: String,
    pub(super) subject: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) provider_session: Option<String>,
    /// What this sign-in is told from others by: it begins one session.
    pub(super) once: Digest,
    /// Until when that is remembered, also when the session has ended.
    pub(super) spent_until: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) signed_in_at: Option<Timestamp>,
    /// What the provider said of its holder, and when.
    pub(super) rights: TokenRights,
    pub(super) rights_at: Timestamp,
    /// When it was last asked again.
    pub(super) tried_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refresh_token: Option<String>,
}

impl KeptSession {
    /// Its id as people are shown it: nothing that anybody could sign in with.
    pub(super) fn shown_id(&self) -> String {
        shown_id(self.id)
    }

    /// Ends it. What it was told from others by is remembered for as long as it could be shown again.
    fn end(&mut self, now: Timestamp) {
        self.expires_at = now;
        self.token = None;
        if let Some(sign_in) = &mut self.sign_in {
            sign_in.refresh_token = None;
        }
    }

    fn is_remembered(&self, now: Timestamp) -> bool {
        self.expires_at > now || self.sign_in.as_ref().is_some_and(|sign_in| sign_in.spent_until > now)
    }
}

/// The sessions of one row.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct SessionList(Vec<KeptSession>);

impl SessionList {
    /// Those that have not ended.
    pub(super) fn live(&self, now: Timestamp) -> impl Iterator<Item = &KeptSession> {
        self.0.iter().filter(move |session| session.expires_at > now)
    }

    /// The one of this secret.
    pub(super) fn of(&self, secret: Digest, now: Timestamp) -> Option<&KeptSession> {
        // What is compared is a digest of 256 random bits: the time that it takes tells nothing about them.
        let id = kept_id(secret);
        self.live(now).find(|session| session.id == id)
    }

    /// Adds a session. False when its sign-in has begun one before: nothing is added.
    pub(super) fn add(&mut self, new: KeptSession, now: Timestamp) -> bool {
        self.0.retain(|session| session.is_remembered(now));
        let once = |session: &KeptSession| session.sign_in.as_ref().map(|sign_in| sign_in.once);
        if once(&new).is_some() && self.0.iter().any(|session| once(session) == once(&new)) {
            return false;
        }
        let too_many = (self.0.len() + 1).saturating_sub(SESSIONS_MAX);
        self.0.drain(..too_many);
        self.0.push(new);
        true
    }

    /// Ends those that fit; their ids, as people are shown them.
    pub(super) fn end(&mut self, now: Timestamp, fits: impl Fn(&KeptSession) -> bool) -> Vec<String> {
        let mut ended = Vec::new();
        for session in self.0.iter_mut().filter(|session| session.expires_at > now && fits(session)) {
            session.end(now);
            ended.push(session.shown_id());
        }
        self.0.retain(|session| session.is_remembered(now));
        ended
    }

    /// Changes the one with this id, if it has not ended: what has ended gets no new secret.
    pub(super) fn change(&mut self, id: Digest, now: Timestamp, change: impl FnOnce(&mut KeptSession)) {
        if let Some(session) = self.0.iter_mut().find(|session| session.id == id && session.expires_at > now)
        {
            change(session);
        }
    }
}

/// Whose sessions a row has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Holder {
    Key { prefix: String },
    User { tenant: Tenant, user: UserId },
}

impl Holder {
    pub(super) fn of(who: &Principal) -> Option<Holder> {
        match &who.by {
            Identification::ApiKey { prefix } => Some(Holder::Key { prefix: prefix.clone() }),
            Identification::Token { .. } => {
                Some(Holder::User { tenant: who.tenant.clone(), user: who.user.clone() })
            }
            Identification::Local | Identification::Link | Identification::Configured => None,
        }
    }

    /// The name of the row.
    fn row(&self) -> String {
        match self {
            Holder::Key { prefix } => format!("browser sessions of key {prefix}"),
            Holder::User { user, .. } => format!("browser sessions of user {user}"),
        }
    }

    /// What a browser, or the command line, shows.
    pub(super) fn cookie(&self, secret: Digest) -> String {
        match self {
            Holder::Key { prefix } => format!("k.{prefix}.{secret}"),
            Holder::User { tenant, user } => {
                let name = BASE64_URL_SAFE_NO_PAD.encode(format!("{tenant}\n{user}"));
                format!("u.{name}.{secret}")
            }
        }
    }

    /// Whose cookie this is, and its secret; none when it cannot be one.
    pub(super) fn read(cookie: &str) -> Option<(Holder, Digest)> {
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

/// The rows, as they are stored.
pub(super) struct SessionRows {
    log: Arc<Log>,
}

impl SessionRows {
    pub(super) fn new(log: Arc<Log>) -> SessionRows {
        SessionRows { log }
    }

    pub(super) async fn tenant_of(&self, holder: &Holder) -> Result<Option<Tenant>, StoreError> {
        match holder {
            Holder::Key { prefix } => {
                Ok(self.log.store.credential(prefix.clone()).await?.map(|kept| kept.tenant))
            }
            Holder::User { tenant, .. } => Ok(Some(tenant.clone())),
        }
    }

    /// The sessions of a row. What cannot be opened is as good as not there.
    pub(super) async fn sessions(&self, tenant: &Tenant, holder: &Holder) -> Result<SessionList, StoreError> {
        let text = self.open_sealed(tenant, &holder.row(), COLUMN).await?.0;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
    }

    /// Changes the sessions of a row; what the change says.
    pub(super) async fn change_sessions<T>(
        &self,
        tenant: &Tenant,
        holder: &Holder,
        change: impl Fn(&mut SessionList) -> T,
    ) -> Result<T, EngineError> {
        let row = holder.row();
        for _ in 0..TRIES {
            let (text, before) = self.open_sealed(tenant, &row, COLUMN).await?;
            let known: SessionList =
                text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
            let mut sessions = known.clone();
            let said = change(&mut sessions);
            if sessions == known {
                return Ok(said);
            }
            let after = match sessions.0.as_slice() {
                [] => None,
                kept => Some(serde_json::to_string(kept).unwrap_or_default()),
            };
            if self.put_sealed(tenant, &row, COLUMN, before, after).await? {
                return Ok(said);
            }
        }
        Err(unavailable("the sessions of this credential are being changed by others"))
    }

    /// A sealed text, opened, and as it is stored.
    pub(super) async fn open_sealed(
        &self,
        tenant: &Tenant,
        name: &str,
        column: &str,
    ) -> Result<(Option<String>, Option<String>), StoreError> {
        let sealed = self.log.store.sealed(tenant.clone(), name.to_owned()).await?;
        let settings = self.log.host.settings();
        let opened = sealed.as_ref().zip(settings.webhooks.key.as_ref());
        let text = opened.and_then(|(sealed, key)| key.open(column, &[tenant.as_str(), name], sealed));
        Ok((text, sealed))
    }

    /// Seals a text, if what is stored still is what was read.
    pub(super) async fn put_sealed(
        &self,
        tenant: &Tenant,
        name: &str,
        column: &str,
        before: Option<String>,
        after: Option<String>,
    ) -> Result<bool, EngineError> {
        let settings = self.log.host.settings();
        let key = settings.webhooks.key.as_ref();
        let key = key.ok_or_else(|| unavailable("this server has no key to seal sessions with"))?;
        let after = after.map(|text| key.seal(column, &[tenant.as_str(), name], &text));
        if before.is_none() && after.is_none() {
            return Ok(true);
        }
        let change = SealedChange { tenant: tenant.clone(), name: name.to_owned(), before, after };
        Ok(self.log.store.change_sealed(change).await?)
    }
}

pub(super) fn unavailable(why: &str) -> EngineError {
    EngineError::Store(StoreError::Unavailable { why: why.into() })
}

/// What is kept instead of the secret.
pub(super) fn kept_id(secret: Digest) -> Digest {
    digest::of_parts("standfast.browser-session.1", &[secret.0.as_slice()])
}

pub(super) fn shown_id(id: Digest) -> String {
    id.to_string().chars().take(SHOWN_ID).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Digest {
        Digest([7; 32])
    }

    fn session(n: u8, once: Option<u8>, expires_at: i64, spent_until: i64) -> KeptSession {
        let rights = TokenRights {
            groups: Default::default(),
            roles: Default::default(),
            scopes: Default::default(),
            inboxes: Default::default(),
            limits: Default::default(),
            issued_at: Timestamp(0),
            expires_at: Timestamp(expires_at),
        };
        let sign_in = once.map(|once| KeptSignIn {
            issuer: "https://login.example".into(),
            subject: "1".into(),
            provider_session: None,
            once: Digest([once; 32]),
            spent_until: Timestamp(spent_until),
            signed_in_at: None,
            rights,
            rights_at: Timestamp(0),
            tried_at: Timestamp(0),
            refresh_token: Some("secret".into()),
        });
        KeptSession {
            id: kept_id(Digest([n; 32])),
            expires_at: Timestamp(expires_at),
            token: None,
            began_at: Some(Timestamp(0)),
            seen_at: None,
            client: SessionClient::Browser,
            label: None,
            sign_in,
        }
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
        let kept = KeptSession { id: kept_id(secret()), ..session(7, None, 1, 1) };
        assert!(!serde_json::to_string(&kept).unwrap().contains(&secret().to_string()));
    }

    /// What the version before wrote is a session that says less of itself.
    #[test]
    fn sessions_of_before_are_read() {
        let text = format!(r#"[{{"id":"{}","expires_at":5}}]"#, kept_id(secret()));
        let list: SessionList = serde_json::from_str(&text).unwrap();
        let found = list.of(secret(), Timestamp(4)).unwrap();
        assert_eq!((found.client, found.began_at), (SessionClient::Browser, None));
        assert!(list.of(secret(), Timestamp(5)).is_none());
    }

    /// T5: a sign-in that is shown again begins no second session, also when the first one was ended.
    #[test]
    fn a_sign_in_begins_one_session() {
        let (mut list, now) = (SessionList::default(), Timestamp(1));
        assert!(list.add(session(1, Some(1), 100, 50), now));
        assert!(!list.add(session(2, Some(1), 100, 50), now));
        assert!(list.add(session(3, Some(2), 100, 50), now));
        assert_eq!(list.end(now, |one| one.id == kept_id(Digest([1; 32]))).len(), 1);
        assert_eq!(list.live(now).count(), 1);
        assert!(
            !serde_json::to_string(&list.0[0]).unwrap().contains("secret"),
            "an ended session keeps none"
        );
        // Whoever was asking the provider for it meanwhile brings nothing back.
        let (before, renewed) = (list.clone(), session(1, Some(1), 100, 50).sign_in);
        list.change(kept_id(Digest([1; 32])), now, |session| session.sign_in = renewed);
        assert!(list == before, "an ended session is renewed");
        assert!(!list.add(session(4, Some(1), 100, 50), Timestamp(49)));
        assert!(
            list.add(session(4, Some(1), 100, 50), Timestamp(50)),
            "forgotten when it is too old to count"
        );
    }

    #[test]
    fn the_oldest_ends_when_there_are_too_many() {
        let mut list = SessionList::default();
        for n in 0..40 {
            assert!(list.add(session(n, None, 100, 0), Timestamp(1)));
        }
        assert_eq!(list.live(Timestamp(1)).count(), SESSIONS_MAX);
        assert!(list.of(Digest([39; 32]), Timestamp(1)).is_some());
        assert!(list.of(Digest([0; 32]), Timestamp(1)).is_none());
    }

    /// T9: a million cookies with the right holder and another secret are nobody's session.
    #[test]
    fn t9_a_million_secrets_are_no_session() {
        let (mut list, now) = (SessionList::default(), Timestamp(1));
        for n in 0..3 {
            assert!(list.add(session(n, None, 100, 0), now));
        }
        let mut guess = Digest([9; 32]);
        for _ in 0..1_000_000 {
            guess = kept_id(guess);
            assert!(list.of(guess, now).is_none());
        }
        assert!(list.of(Digest([1; 32]), now).is_some());
    }
}

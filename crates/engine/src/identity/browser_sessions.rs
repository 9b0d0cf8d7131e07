//! Sessions of browsers and of the command line: a random text stands for the key, token or sign-in that somebody showed.
//!
//! Whatever stands behind a session is asked again with every request: it ends with its key or token, when the identity
//! provider says so (`sign_ins.rs`), when its holder ends it, when nobody has used it for a while, or by itself. What is stored
//! is `session_rows.rs`; what a browser sends and how it is read is the door's (`http/guard.rs` of the surfaces).

use standfast_core::digest::Digest;
use standfast_core::name::{Tenant, UserId};
use standfast_core::time::{Millis, Timestamp};

use super::Identity;
use super::session_rows::{Holder, KeptSession, kept_id, shown_id};
use crate::EngineError;
use crate::auth::{Identification, NotLetIn, Principal, Scope, SessionClient, stands_for};
use crate::clock;
use crate::log::session_records;
use crate::settings::Auth;

/// How much of what a program says of itself is kept.
const LABEL_MAX: usize = 300;

/// How long after the last note the next one is made that a session is used; less where it soon ends without.
const NOTE_EVERY: Millis = Millis::seconds(60);

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

/// Whether a request is something that a person did, or something that a page does by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// The session is used.
    Person,
    /// A page that is open keeps itself up to date: nobody need be there.
    Background,
}

/// A session as its holder is shown it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignInView {
    /// Names it; nothing that anybody could sign in with.
    pub id: String,
    /// Whose it is.
    pub client: SessionClient,
    /// What stands behind it.
    pub by: SessionSource,
    /// What the program said of itself.
    pub label: Option<String>,
    /// When it began, if that is known.
    pub began_at: Option<Timestamp>,
    /// When it was last used, to about a minute.
    pub seen_at: Option<Timestamp>,
    /// When it ends at the latest.
    pub expires_at: Timestamp,
    /// Whether it is the one that asks.
    pub is_current: bool,
}

/// What stands behind a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionSource {
    /// An API key.
    Key {
        /// The part of it that is no secret.
        prefix: String,
    },
    /// A token that was pasted.
    Token,
    /// A sign-in at the identity provider.
    SignIn,
}

impl Identity {
    /// Begins a session of somebody who has just shown their key or token; the latter is kept, sealed, until it ends.
    pub async fn open_browser_session(
        &self,
        who: &Principal,
        token: Option<&str>,
        label: Option<&str>,
    ) -> Result<BrowserSession, EngineError> {
        let Some(holder) = Holder::of(who) else { return Err(EngineError::NotFound) };
        let now = self.host.clock.now();
        let lasts = self.host.settings().access.sessions.lasts;
        let expires_at = match who.by {
            Identification::Token { expires_at, .. } => expires_at.min(now.plus(lasts)),
            Identification::ApiKey { .. }
            | Identification::Local
            | Identification::Link
            | Identification::Configured => now.plus(lasts),
        };
        let secret = Digest(clock::random_bytes());
        let token = matches!(holder, Holder::User { .. }).then(|| token.map(str::to_owned)).flatten();
        let new = KeptSession {
            id: kept_id(secret),
            expires_at,
            token,
            began_at: Some(now),
            seen_at: Some(now),
            client: SessionClient::Browser,
            label: label.map(shortened),
            sign_in: None,
        };
        let (tenant, user) = (&who.tenant, &who.user);
        self.rows.change_sessions(tenant, &holder, |sessions| sessions.add(new.clone(), now)).await?;
        session_records::record_start(&self.log, tenant, user, &new.shown_id(), source(&holder, &new).name())
            .await?;
        Ok(BrowserSession { cookie: holder.cookie(secret), lasts: expires_at.since(now) })
    }

    /// Whom a cookie stands for at this instant.
    pub async fn identify_browser(
        &self,
        cookie: &str,
        activity: Activity,
    ) -> Result<Result<Principal, NotLetIn>, EngineError> {
        self.identify_session(cookie, SessionClient::Browser, activity).await
    }

    /// Whom a token of the command line stands for at this instant.
    pub async fn identify_command_line(
        &self,
        token: &str,
    ) -> Result<Result<Principal, NotLetIn>, EngineError> {
        self.identify_session(token, SessionClient::CommandLine, Activity::Person).await
    }

    async fn identify_session(
        &self,
        shown: &str,
        client: SessionClient,
        activity: Activity,
    ) -> Result<Result<Principal, NotLetIn>, EngineError> {
        let refused = Ok(Err(NotLetIn::Refused));
        let Some((holder, secret)) = Holder::read(shown) else { return refused };
        let settings = self.host.settings();
        let (auth, idle) = (&settings.access.auth, settings.access.sessions.idle);
        let Some(tenant) = self.rows.tenant_of(&holder).await? else { return refused };
        let sessions = self.rows.sessions(&tenant, &holder).await?;
        let now = self.host.clock.now();
        let Some(session) = sessions.of(secret, now).filter(|session| session.client == client) else {
            return refused;
        };
        if session.seen_at.is_some_and(|seen| now.since(seen) >= idle) {
            return refused;
        }
        let who = match (&holder, &session.sign_in, &session.token) {
            (Holder::Key { prefix }, None, _) if auth.takes_keys() => {
                self.key_now(&tenant, prefix).await?.map_err(|_| NotLetIn::Refused)
            }
            (Holder::User { tenant, user }, Some(sign_in), _) => {
                self.by_sign_in((tenant, user), session, sign_in).await?
            }
            (Holder::User { user, .. }, None, Some(token)) => match auth.issuer() {
                Some(issuer) => {
                    let who = self.identify_token(issuer.as_ref(), token).await;
                    // The row says whose sessions it has; a token of somebody else was never put there.
                    let is_theirs = |who: &Principal| who.user == *user && who.tenant == tenant;
                    who.and_then(|who| if is_theirs(&who) { Ok(who) } else { Err(NotLetIn::Refused) })
                }
                None => return refused,
            },
            (Holder::Key { .. } | Holder::User { .. }, _, _) => return refused,
        };
        if who.is_ok() && activity == Activity::Person {
            self.note_use(&tenant, &holder, session, (now, idle)).await;
        }
        Ok(who)
    }

    /// Writes down now and then that a session is used. What is not written lets it end early, and nothing worse.
    async fn note_use(
        &self,
        tenant: &Tenant,
        holder: &Holder,
        session: &KeptSession,
        (now, idle): (Timestamp, Millis),
    ) {
        let pause = NOTE_EVERY.min(Millis(idle.0 / 10));
        if session.seen_at.is_some_and(|seen| now.since(seen) < pause) {
            return;
        }
        let note = |session: &mut KeptSession| session.seen_at = session.seen_at.max(Some(now));
        let noted = self
            .rows
            .change_sessions(tenant, holder, |sessions| sessions.change(session.id, now, note))
            .await;
        if let Err(error) = noted {
            tracing::debug!(%error, "auth: the use of a session was not noted");
        }
    }

    /// Ends the session of a cookie, or of a token of the command line; one that has expired, or never was, is no mistake. The
    /// id of the one that ended.
    pub async fn close_browser_session(&self, shown: &str) -> Result<Option<String>, EngineError> {
        let Some((holder, secret)) = Holder::read(shown) else { return Ok(None) };
        let Some(tenant) = self.rows.tenant_of(&holder).await? else { return Ok(None) };
        let ended = self.end_where(&tenant, &holder, "signed out", |one| one.id == kept_id(secret)).await?;
        Ok(ended.into_iter().next())
    }

    /// The sessions of somebody, the last used first: those of their sign-ins and of all their keys.
    pub async fn my_sessions(
        &self,
        who: &Principal,
        shown: Option<&str>,
    ) -> Result<Vec<SignInView>, EngineError> {
        let current = shown.and_then(Holder::read).map(|(_, secret)| kept_id(secret));
        let now = self.host.clock.now();
        let idle = self.host.settings().access.sessions.idle;
        let mut views = Vec::new();
        for holder in self.holders_of(who).await? {
            let sessions = self.rows.sessions(&who.tenant, &holder).await?;
            let is_used = |one: &&KeptSession| one.seen_at.is_none_or(|seen| now.since(seen) < idle);
            views.extend(sessions.live(now).filter(is_used).map(|session| SignInView {
                id: shown_id(session.id),
                client: session.client,
                by: source(&holder, session),
                label: session.label.clone(),
                began_at: session.began_at,
                seen_at: session.seen_at,
                expires_at: session.expires_at,
                is_current: current == Some(session.id),
            }));
        }
        views.sort_by_key(|view| std::cmp::Reverse((view.seen_at, view.began_at)));
        Ok(views)
    }

    /// Ends one of somebody's own sessions. Not found when they have none with this id. A credential that changes nothing else
    /// ends those that began with it, and no others.
    pub async fn end_my_session(&self, who: &Principal, id: &str) -> Result<(), EngineError> {
        for holder in self.holders_of(who).await? {
            if !ends_sessions_of(who, &holder) {
                let sessions = self.rows.sessions(&who.tenant, &holder).await?;
                if sessions.live(self.host.clock.now()).any(|session| session.shown_id() == id) {
                    return Err(EngineError::MissingScope(Scope::RunsWrite.into()));
                }
                continue;
            }
            let ended = self
                .end_where(&who.tenant, &holder, "ended by its holder", |session| session.shown_id() == id)
                .await?;
            if !ended.is_empty() {
                return Ok(());
            }
        }
        Err(EngineError::NotFound)
    }

    /// Ends all of somebody's own sessions but the one that asks; how many that were. Of a credential that changes nothing else
    /// those that began with it.
    pub async fn end_my_other_sessions(
        &self,
        who: &Principal,
        shown: Option<&str>,
    ) -> Result<usize, EngineError> {
        let current = shown.and_then(Holder::read).map(|(_, secret)| kept_id(secret));
        let mut count = 0;
        for holder in self.holders_of(who).await?.into_iter().filter(|holder| ends_sessions_of(who, holder)) {
            let is_other = |session: &KeptSession| Some(session.id) != current;
            count += self.end_where(&who.tenant, &holder, "ended by its holder", is_other).await?.len();
        }
        Ok(count)
    }

    /// Whether browsers have anything to sign in with here.
    #[must_use]
    pub fn has_sign_in(&self) -> bool {
        !matches!(self.host.settings().access.auth, Auth::Local)
    }

    /// The rows that have sessions of somebody. Nobody has any where only this machine may call.
    async fn holders_of(&self, who: &Principal) -> Result<Vec<Holder>, EngineError> {
        if Holder::of(who).is_none() {
            return Ok(Vec::new());
        }
        let of_user = Holder::User { tenant: who.tenant.clone(), user: who.user.clone() };
        let now = self.host.clock.now();
        let keys = self.log.store.list_credentials(who.tenant.clone()).await?;
        let is_theirs = |user: UserId| user == who.user;
        let theirs =
            keys.into_iter().filter(|kept| stands_for(kept, now).is_ok_and(|one| is_theirs(one.user)));
        let of_keys = theirs.map(|kept| Holder::Key { prefix: kept.prefix });
        Ok(std::iter::once(of_user).chain(of_keys).collect())
    }

    /// Ends the sessions of a row that fit, and records each in the audit.
    pub(super) async fn end_where(
        &self,
        tenant: &Tenant,
        holder: &Holder,
        why: &str,
        fits: impl Fn(&KeptSession) -> bool,
    ) -> Result<Vec<String>, EngineError> {
        let now = self.host.clock.now();
        let ended = self.rows.change_sessions(tenant, holder, |sessions| sessions.end(now, &fits)).await?;
        for id in &ended {
            if let Err(error) = session_records::record_end(&self.log, tenant, id, why).await {
                tracing::error!(session = id, %error, "auth: the end of a session is not in the audit");
            }
        }
        Ok(ended)
    }
}

impl SessionSource {
    /// How the audit calls it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            SessionSource::Key { .. } => "api_key",
            SessionSource::Token => "token",
            SessionSource::SignIn => "sign_in",
        }
    }
}

/// Whether a credential may end the sessions of a row. A key that is for looking, scraping or gates, such as an agent's, does not
/// sign its owner out.
fn ends_sessions_of(who: &Principal, holder: &Holder) -> bool {
    who.has(Scope::RunsWrite) || who.has(Scope::HoldsDecide) || Holder::of(who).as_ref() == Some(holder)
}

fn source(holder: &Holder, session: &KeptSession) -> SessionSource {
    match (holder, &session.sign_in) {
        (Holder::Key { prefix }, _) => SessionSource::Key { prefix: prefix.clone() },
        (Holder::User { .. }, Some(_)) => SessionSource::SignIn,
        (Holder::User { .. }, None) => SessionSource::Token,
    }
}

/// What a program says of itself, as far as it is kept: printable and short.
pub(super) fn shortened(label: &str) -> String {
    label.chars().filter(|letter| !letter.is_control()).take(LABEL_MAX).collect()
}

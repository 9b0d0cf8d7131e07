//! Signing in at an identity provider (OpenID Connect), from the first redirect to the session and its end.
//!
//! While somebody is at the provider, nothing is kept here: what their browser needs to come back with it keeps itself, in a
//! sealed cookie, so any node can finish what another one began. A sign-in begins one session. Whom it stands for is what the
//! provider said last; it is asked again now and then, and ends sessions when it says so. How it is asked is `jwt` of the
//! surfaces.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use serde::{Deserialize, Serialize};
use standfast_core::digest::{self, Digest};
use standfast_core::name::{Tenant, UserId};
use standfast_core::time::{Millis, Timestamp};

use super::browser_sessions::{BrowserSession, SessionSource, shortened};
use super::session_rows::{Holder, KeptSession, KeptSignIn, kept_id, unavailable};
use super::{Identity, TokenRights};
use crate::EngineError;
use crate::auth::{
    AuthorizationCode, AuthorizationRequest, Identification, IdentityProvider, LogoutNotice, NotLetIn,
    Principal, ProvenSignIn, SessionClient, SignInError, SignInProvider,
};
use crate::clock;
use crate::log::session_records;
use crate::settings::Settings;

/// What the sealed texts of this file are sealed for.
const PENDING: &str = "sign-in";
const NONCE: &str = "sign-in nonce";
const SUBJECT: &str = "sign-in subject";

/// How long somebody may take at the provider.
const AT_PROVIDER: Millis = Millis::seconds(15 * 60);

/// How long what the provider said of somebody counts, when it cannot be asked again.
const RIGHTS_COUNT: Millis = Millis::hours(12);

/// How often the row of a subject is tried to be changed.
const TRIES: usize = 8;

/// Rows that one subject of the provider may have sessions in: its name here may have changed.
const HOLDERS_MAX: usize = 16;

/// A sign-in that has begun.
#[derive(Clone, PartialEq, Eq)]
pub struct BegunSignIn {
    /// Where the browser goes.
    pub url: String,
    /// The cookie that it keeps meanwhile: name and value.
    pub cookie: (String, String),
    /// For how long.
    pub lasts: Millis,
}

/// A sign-in that is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedSignIn {
    /// Who it was.
    pub who: Principal,
    /// Their session.
    pub session: BrowserSession,
    /// Where they were going.
    pub next: String,
}

/// What the command line needs to let somebody sign in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLineOffer {
    /// The provider.
    pub issuer: String,
    /// The client id there.
    pub client_id: String,
    /// What to ask for.
    pub scopes: Vec<String>,
    /// What the `nonce` of the ID token is made of, with the address of the server.
    pub nonce: String,
    /// The address of this server. The command line refuses an offer of another one than it was told to sign in at: a server
    /// that hands on another one's offer gets no token that counts there.
    pub server: String,
}

/// Why nobody is signed in.
#[derive(Debug, thiserror::Error)]
pub enum SignInFailure {
    /// Nobody signs in by an identity provider here.
    #[error("this server has no sign-in by an identity provider")]
    Off,
    /// It began in another browser, or too long ago.
    #[error("this sign-in was not started in this browser, or it took too long; start again")]
    Stale,
    /// It has begun a session before.
    #[error("this sign-in has been used; sign in again")]
    Used,
    /// By the provider, or because of what it sent.
    #[error(transparent)]
    Provider(#[from] SignInError),
    /// By this server.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// What a browser keeps while its user is at the provider.
#[derive(Serialize, Deserialize)]
struct PendingSignIn {
    request: AuthorizationRequest,
    next: String,
    began_at: Timestamp,
}

/// Whose sessions a subject of the provider has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SubjectHolder {
    tenant: Tenant,
    user: UserId,
}

impl Identity {
    /// What the provider is called at which people sign in, if they do.
    #[must_use]
    pub fn sign_in_label(&self) -> Option<String> {
        let settings = self.host.settings();
        provider(&settings).ok().map(|(provider, _)| provider.terms().label.clone())
    }

    /// The name of the cookie that a browser keeps for a sign-in with this state: several may be under way.
    #[must_use]
    pub fn sign_in_cookie(state: &str) -> String {
        let digest = digest::of_parts("standfast.sign-in-cookie.1", &[state.as_bytes()]).to_string();
        format!("standfast_sign_in_{}", digest.chars().take(10).collect::<String>())
    }

    /// Begins a sign-in that goes on to `next`. With `max_age` the person is asked again unless they signed in at the provider
    /// so recently.
    pub async fn begin_sign_in(
        &self,
        next: &str,
        max_age: Option<Millis>,
    ) -> Result<BegunSignIn, SignInFailure> {
        let settings = self.host.settings();
        let (provider, base) = provider(&settings)?;
        let key = settings.webhooks.key.as_ref().ok_or_else(|| unavailable(NO_KEY))?;
        let request = AuthorizationRequest {
            state: random_text(),
            nonce: random_text(),
            verifier: random_text(),
            redirect_uri: format!("{base}/sign-in/callback"),
            max_age,
        };
        let url = provider.authorization_url(&request, &self.host.clock).await.inspect_err(log_failure)?;
        let state = request.state.clone();
        let pending = PendingSignIn { request, next: next.to_owned(), began_at: self.host.clock.now() };
        let text = serde_json::to_string(&pending).unwrap_or_default();
        let value = key.seal(PENDING, &[&state], &text);
        Ok(BegunSignIn { url, cookie: (Identity::sign_in_cookie(&state), value), lasts: AT_PROVIDER })
    }

    /// Finishes a sign-in in the browser that began it, on whichever node.
    pub async fn finish_sign_in(
        &self,
        cookie: &str,
        state: &str,
        code: &AuthorizationCode,
        label: Option<&str>,
    ) -> Result<FinishedSignIn, SignInFailure> {
        let settings = self.host.settings();
        let (provider, _) = provider(&settings)?;
        let pending = self.pending(cookie, state)?;
        let opening = async {
            let proven = provider.redeem(&pending.request, code, &self.host.clock).await;
            let proven = proven.inspect_err(log_failure)?;
            self.open_session(provider, proven, (SessionClient::Browser, once(state)), label).await
        };
        let opened = self.recording(SessionClient::Browser, opening.await).await;
        opened.map(|(who, session)| FinishedSignIn { who, session, next: pending.next })
    }

    /// The provider sent a browser back with an error in the place of a code. What its user is told.
    pub async fn refused_by_provider(&self, cookie: &str, state: &str, error: &str) -> SignInFailure {
        let refused = SignInError::Refused(format!("the identity provider answered {error:?}"));
        // Anybody can come with an error; whoever began no sign-in here fills no audit.
        match self.pending(cookie, state) {
            Ok(_) => {
                log_failure(&refused);
                let failure = refused.into();
                self.record_refused(SessionClient::Browser, &failure).await;
                failure
            }
            Err(failure) => failure,
        }
    }

    /// What a browser kept while its user was at the provider.
    fn pending(&self, cookie: &str, state: &str) -> Result<PendingSignIn, SignInFailure> {
        let settings = self.host.settings();
        let key = settings.webhooks.key.as_ref().ok_or_else(|| unavailable(NO_KEY))?;
        let text = key.open(PENDING, &[state], cookie).ok_or(SignInFailure::Stale)?;
        let pending: PendingSignIn = serde_json::from_str(&text).map_err(|_| SignInFailure::Stale)?;
        let is_old = self.host.clock.now().since(pending.began_at) >= AT_PROVIDER;
        if is_old || pending.request.state != state { Err(SignInFailure::Stale) } else { Ok(pending) }
    }

    /// Puts a sign-in that was refused into the audit.
    async fn recording<T>(
        &self,
        client: SessionClient,
        done: Result<T, SignInFailure>,
    ) -> Result<T, SignInFailure> {
        if let Err(failure) = &done {
            self.record_refused(client, failure).await;
        }
        done
    }

    /// That nobody could be asked is no refusal.
    async fn record_refused(&self, client: SessionClient, failure: &SignInFailure) {
        let why = match failure {
            SignInFailure::Provider(SignInError::Refused(detail)) => ("refused", Some(detail.as_str())),
            SignInFailure::Stale => ("stale", None),
            SignInFailure::Used => ("used", None),
            SignInFailure::Provider(SignInError::Unavailable(_))
            | SignInFailure::Off
            | SignInFailure::Engine(_) => return,
        };
        self.refused.record_at_provider(&self.log, client, why).await;
    }

    /// What the command line needs, if people may sign in there.
    pub fn command_line_offer(&self) -> Result<CommandLineOffer, SignInFailure> {
        let settings = self.host.settings();
        let (provider, base) = provider(&settings)?;
        let key = settings.webhooks.key.as_ref().ok_or_else(|| unavailable(NO_KEY))?;
        let terms = provider.terms();
        let client_id = terms.command_line_client.clone().ok_or(SignInFailure::Off)?;
        let nonce = key.seal(NONCE, &[&terms.issuer], &self.host.clock.now().0.to_string());
        Ok(CommandLineOffer {
            issuer: terms.issuer.clone(),
            client_id,
            scopes: terms.scopes.clone(),
            nonce,
            server: base.to_owned(),
        })
    }

    /// Begins a session of the command line, by the ID token that it got for itself. The token must be new: its nonce is made of
    /// one that this server just offered, or, from a device, which may have none, it was just issued. It counts once.
    pub async fn accept_command_line(
        &self,
        id_token: &str,
        offered: &str,
        refresh_token: Option<String>,
        label: Option<&str>,
    ) -> Result<FinishedSignIn, SignInFailure> {
        let accepted = self.accept_id_token(id_token, offered, refresh_token, label).await;
        self.recording(SessionClient::CommandLine, accepted).await
    }

    async fn accept_id_token(
        &self,
        id_token: &str,
        offered: &str,
        refresh_token: Option<String>,
        label: Option<&str>,
    ) -> Result<FinishedSignIn, SignInFailure> {
        let settings = self.host.settings();
        let (provider, base) = provider(&settings)?;
        let key = settings.webhooks.key.as_ref().ok_or_else(|| unavailable(NO_KEY))?;
        let proven = provider.accept(id_token, &self.host.clock).await.inspect_err(log_failure)?;
        let now = self.host.clock.now();
        let offered_at = key.open(NONCE, &[&provider.terms().issuer], offered);
        let offered_at = offered_at.and_then(|at| at.parse().ok()).map(Timestamp);
        let is_ours = proven.nonce.as_ref().is_none_or(|nonce| *nonce == bound_nonce(offered, base));
        let issued_at = TokenRights::of(&proven.who).map(|rights| rights.issued_at);
        let is_new = |at: Option<Timestamp>| at.is_some_and(|at| now.since(at) < AT_PROVIDER);
        if !is_ours || !is_new(offered_at) || !is_new(issued_at) {
            return Err(SignInFailure::Stale);
        }
        let once = once(signed_part(id_token));
        let proven = ProvenSignIn { refresh_token, ..proven };
        let (who, session) =
            self.open_session(provider, proven, (SessionClient::CommandLine, once), label).await?;
        Ok(FinishedSignIn { who, session, next: String::new() })
    }

    /// Ends the sessions that a logout token of the provider names; how many that were.
    pub async fn end_by_provider(&self, token: &str) -> Result<usize, SignInFailure> {
        let settings = self.host.settings();
        let (provider, _) = provider(&settings)?;
        let notice = provider.logout_notice(token, &self.host.clock).await.inspect_err(log_failure)?;
        let LogoutNotice { subject, provider_session } = notice;
        let mut count = 0;
        for SubjectHolder { tenant, user } in self.holders_of_subject(provider, &subject).await?.0 {
            let holder = Holder::User { tenant: tenant.clone(), user };
            // A session whose name at the provider is not known may be the one that is meant.
            let is_meant = |kept: &KeptSignIn| {
                let (ours, theirs) = (&kept.provider_session, &provider_session);
                kept.subject == subject
                    && ours.as_ref().zip(theirs.as_ref()).is_none_or(|(ours, theirs)| ours == theirs)
            };
            let fits = |session: &KeptSession| session.sign_in.as_ref().is_some_and(is_meant);
            count += self.end_where(&tenant, &holder, "the identity provider ended it", fits).await?.len();
        }
        tracing::info!(sessions = count, "auth: the identity provider ended sessions");
        Ok(count)
    }

    /// Where a browser goes to sign out at the provider as well.
    pub async fn sign_out_url(&self) -> Option<String> {
        let settings = self.host.settings();
        let (provider, base) = provider(&settings).ok()?;
        provider.sign_out_url(&format!("{base}/sign-in"), &self.host.clock).await
    }

    async fn open_session(
        &self,
        provider: &dyn SignInProvider,
        proven: ProvenSignIn,
        (client, once): (SessionClient, Digest),
        label: Option<&str>,
    ) -> Result<(Principal, BrowserSession), SignInFailure> {
        let (now, lasts) = (self.host.clock.now(), self.host.settings().access.sessions.lasts);
        let (tenant, user) = (proven.who.tenant.clone(), proven.who.user.clone());
        // What cannot be asked again does not count for long.
        let lasts = if proven.refresh_token.is_some() { lasts } else { lasts.min(RIGHTS_COUNT) };
        let secret = Digest(clock::random_bytes());
        let kept = KeptSignIn {
            issuer: provider.terms().issuer.clone(),
            subject: proven.subject,
            provider_session: proven.provider_session,
            once,
            spent_until: now.plus(AT_PROVIDER).plus(AT_PROVIDER),
            signed_in_at: signed_in_at(&proven.who),
            rights: TokenRights::of(&proven.who).unwrap_or_else(|| TokenRights::none(now)),
            rights_at: now,
            tried_at: now,
            refresh_token: proven.refresh_token,
        };
        let new = KeptSession {
            id: kept_id(secret),
            expires_at: now.plus(lasts),
            token: None,
            began_at: Some(now),
            seen_at: Some(now),
            client,
            label: label.map(shortened),
            sign_in: Some(kept.clone()),
        };
        let holder = Holder::User { tenant: tenant.clone(), user: user.clone() };
        let who = kept.principal((&tenant, &user), &new);
        // First where a logout token finds it.
        self.keep_holder_of_subject(provider, &kept.subject, SubjectHolder { tenant, user }).await?;
        let is_first =
            self.rows.change_sessions(&who.tenant, &holder, |sessions| sessions.add(new.clone(), now));
        if !is_first.await? {
            tracing::warn!(user = %who.user, "auth: a sign-in was shown again and refused");
            return Err(SignInFailure::Used);
        }
        let by = SessionSource::SignIn.name();
        let recorded =
            session_records::record_start(&self.log, &who.tenant, &who.user, &new.shown_id(), by).await;
        recorded.map_err(EngineError::from)?;
        self.note_rights(&who).await;
        Ok((who, BrowserSession { cookie: holder.cookie(secret), lasts }))
    }

    /// Whom a session by a sign-in stands for: as the provider said it last, which it is asked for now and then.
    pub(super) async fn by_sign_in(
        &self,
        holder: (&Tenant, &UserId),
        session: &KeptSession,
        kept: &KeptSignIn,
    ) -> Result<Result<Principal, NotLetIn>, EngineError> {
        let settings = self.host.settings();
        let Ok((provider, _)) = provider(&settings) else { return Ok(Err(NotLetIn::Refused)) };
        let now = self.host.clock.now();
        if kept.issuer != provider.terms().issuer {
            return Ok(Err(NotLetIn::Refused));
        }
        let is_due = now.since(kept.tried_at) >= provider.terms().renew_every;
        let renewed = match &kept.refresh_token {
            Some(token) if is_due => self.renew(provider, holder, (session, kept), token).await?,
            Some(_) | None => Renewal::Not,
        };
        let kept = match &renewed {
            Renewal::Done(kept) => kept.as_ref(),
            Renewal::Not => kept,
            Renewal::Ended => return Ok(Err(NotLetIn::Refused)),
        };
        if now.since(kept.rights_at) >= RIGHTS_COUNT {
            return Ok(Err(NotLetIn::Refused));
        }
        Ok(Ok(kept.principal(holder, session)))
    }

    /// Asks the provider again. One request of one node does it: a refresh token counts once, and the provider takes the second
    /// use of one for a theft. The others go on with what is known.
    async fn renew(
        &self,
        provider: &dyn SignInProvider,
        (tenant, user): (&Tenant, &UserId),
        (session, kept): (&KeptSession, &KeptSignIn),
        refresh_token: &str,
    ) -> Result<Renewal, EngineError> {
        let holder = Holder::User { tenant: tenant.clone(), user: user.clone() };
        let now = self.host.clock.now();
        let claim = self.rows.change_sessions(tenant, &holder, |sessions| {
            let mut is_ours = false;
            sessions.change(session.id, now, |one| {
                if let Some(sign_in) = one.sign_in.as_mut().filter(|one| one.tried_at == kept.tried_at) {
                    sign_in.tried_at = now;
                    is_ours = true;
                }
            });
            is_ours
        });
        if !claim.await? {
            return Ok(Renewal::Not);
        }
        let proven = match provider.renew(session.client, refresh_token, &self.host.clock).await {
            Ok(proven) => proven,
            Err(error @ SignInError::Unavailable(_)) => {
                tracing::warn!(%user, %error, "auth: a sign-in could not be renewed; the rights of before count for some hours");
                return Ok(Renewal::Not);
            }
            Err(SignInError::Refused(why)) => {
                tracing::info!(%user, why, "auth: the identity provider does not renew a sign-in; its session ends");
                return self.end_renewed(tenant, &holder, session.id).await;
            }
        };
        let is_same =
            proven.subject == kept.subject && proven.who.user == *user && proven.who.tenant == *tenant;
        let Some(rights) = TokenRights::of(&proven.who).filter(|_| is_same) else {
            tracing::warn!(%user, "auth: a renewed sign-in stands for somebody else; its session ends");
            return self.end_renewed(tenant, &holder, session.id).await;
        };
        let renewed = KeptSignIn {
            // Renewing is nothing that a person does: when they signed in stays what it was.
            signed_in_at: kept.signed_in_at,
            rights,
            rights_at: now,
            tried_at: now,
            refresh_token: proven.refresh_token.or_else(|| kept.refresh_token.clone()),
            ..kept.clone()
        };
        let stored = self.rows.change_sessions(tenant, &holder, |sessions| {
            sessions.change(session.id, now, |one| one.sign_in = Some(renewed.clone()));
        });
        if let Err(error) = stored.await {
            tracing::warn!(%user, %error, "auth: a renewed sign-in was not stored; it may have to be repeated");
        }
        self.note_rights(&renewed.principal((tenant, user), session)).await;
        Ok(Renewal::Done(Box::new(renewed)))
    }

    async fn end_renewed(
        &self,
        tenant: &Tenant,
        holder: &Holder,
        id: Digest,
    ) -> Result<Renewal, EngineError> {
        let why = "the identity provider did not renew it";
        self.end_where(tenant, holder, why, |session| session.id == id).await?;
        Ok(Renewal::Ended)
    }

    async fn holders_of_subject(
        &self,
        provider: &dyn SignInProvider,
        subject: &str,
    ) -> Result<(Vec<SubjectHolder>, Option<String>), EngineError> {
        let name = subject_row(&provider.terms().issuer, subject);
        let (text, sealed) = self.rows.open_sealed(&Tenant::default_tenant(), &name, SUBJECT).await?;
        Ok((text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(), sealed))
    }

    async fn keep_holder_of_subject(
        &self,
        provider: &dyn SignInProvider,
        subject: &str,
        holder: SubjectHolder,
    ) -> Result<(), EngineError> {
        let name = subject_row(&provider.terms().issuer, subject);
        for _ in 0..TRIES {
            let (mut holders, before) = self.holders_of_subject(provider, subject).await?;
            if holders.contains(&holder) {
                return Ok(());
            }
            let too_many = (holders.len() + 1).saturating_sub(HOLDERS_MAX);
            holders.drain(..too_many);
            holders.push(holder.clone());
            let text = serde_json::to_string(&holders).unwrap_or_default();
            if self.rows.put_sealed(&Tenant::default_tenant(), &name, SUBJECT, before, Some(text)).await? {
                return Ok(());
            }
        }
        Err(unavailable("the sessions of this person are being changed by others"))
    }
}

const NO_KEY: &str = "this server has no key to seal sign-ins with";

/// What came of asking the provider again.
enum Renewal {
    /// It was not asked, or could not be.
    Not,
    Done(Box<KeptSignIn>),
    Ended,
}

impl KeptSignIn {
    /// Whom it stands for, for as long as that counts.
    fn principal(&self, (tenant, user): (&Tenant, &UserId), session: &KeptSession) -> Principal {
        let limits = self.rights.all_limits();
        let TokenRights { groups, roles, scopes, issued_at, .. } = self.rights.clone();
        let expires_at = session.expires_at.min(self.rights_at.plus(RIGHTS_COUNT));
        let by = Identification::Token { issued_at, expires_at, signed_in_at: self.signed_in_at };
        Principal { tenant: tenant.clone(), user: user.clone(), groups, roles, scopes, limits, by }
    }
}

/// The provider at which people sign in, and the address that they come back to.
fn provider(settings: &Settings) -> Result<(&dyn SignInProvider, &str), SignInFailure> {
    let issuer: Option<&dyn IdentityProvider> = settings.access.auth.issuer().map(AsRef::as_ref);
    let provider = issuer.and_then(IdentityProvider::sign_in).ok_or(SignInFailure::Off)?;
    let base = settings.public_url.as_deref().ok_or(SignInFailure::Off)?;
    Ok((provider, base.trim_end_matches('/')))
}

fn signed_in_at(who: &Principal) -> Option<Timestamp> {
    match who.by {
        Identification::Token { signed_in_at, .. } => signed_in_at,
        Identification::Local
        | Identification::ApiKey { .. }
        | Identification::Link
        | Identification::Configured => None,
    }
}

fn log_failure(error: &SignInError) {
    tracing::warn!(%error, "auth: sign-in failed");
}

/// The `nonce` with which the command line signs in at this server: it counts at no other one.
#[must_use]
pub fn bound_nonce(offered: &str, server: &str) -> String {
    digest::of_parts("standfast.command-line-nonce.1", &[offered.as_bytes(), server.as_bytes()]).to_string()
}

/// 256 random bits, as addresses and headers write them.
fn random_text() -> String {
    BASE64_URL_SAFE_NO_PAD.encode(clock::random_bytes::<32>())
}

/// What a sign-in is told from others by.
fn once(text: &str) -> Digest {
    digest::of_parts("standfast.sign-in-once.1", &[text.as_bytes()])
}

/// What of a token is signed. Some signatures can be written in another way by anybody, and the token stays the one that it is.
fn signed_part(token: &str) -> &str {
    token.rsplit_once('.').map_or(token, |(signed, _)| signed)
}

fn subject_row(issuer: &str, subject: &str) -> String {
    let parts = [issuer.as_bytes(), subject.as_bytes()];
    format!("sign-in subject {}", digest::of_parts("standfast.sign-in-subject.1", &parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T5: a token that was used is used, however its signature is written: that of ES256 has two spellings.
    #[test]
    fn t5_a_token_with_another_signature_is_the_same_token() {
        let same = once(signed_part("header.claims.signature"));
        assert_eq!(once(signed_part("header.claims.s1gnature")), same);
        assert_ne!(once(signed_part("header.other.signature")), same);
        assert_ne!(once(signed_part("other.claims.signature")), same);
        assert_eq!(signed_part("no token"), "no token");
    }
}

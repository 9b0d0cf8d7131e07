//! An identity provider: its keys as they were fetched last, and whom its tokens stand for.
//!
//! Keys are fetched at the start, every `refresh`, and when a token names one that is not known; then at most every ten
//! seconds, whoever asks, so that made-up names cannot make this server hammer its provider. While the provider is away
//! the keys that are there are used until `max_age`. After that, and when there never were any, nobody can be told
//! from anybody, so nobody is let in.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use reqwest::{Client, Url};
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::auth::{IdentityProvider, NotLetIn, Principal};
use standfast_engine::clock::Clock;

use super::jwks::{self, BadAddress, Keys};
use super::token::{Token, TokenRefusal, TokenRules};

/// How long after a try, right or wrong, the next one may be.
pub const TRY_AGAIN: Millis = Millis::seconds(10);

/// How often the log says that keys cannot be fetched.
const SAY_AWAY: Millis = Millis::seconds(300);

/// How often the log says why a token was refused, above `debug`.
const SAY_REFUSED: Millis = Millis::seconds(10);

/// What is configured of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerSettings {
    /// Where it publishes its keys.
    pub jwks_url: String,
    /// How often they are fetched again.
    pub refresh: Millis,
    /// How long they may be used when they cannot be fetched again.
    pub max_age: Millis,
    /// What its tokens must be.
    pub rules: TokenRules,
}

/// Why there is no provider.
#[derive(Debug, thiserror::Error)]
pub enum BadIssuer {
    /// Its address is none.
    #[error("server.auth.jwt.jwks_url {0}")]
    Address(#[from] BadAddress),
    /// There is no client to fetch its keys with.
    #[error("the keys of the identity provider cannot be fetched: {0}")]
    Client(#[from] reqwest::Error),
}

/// An identity provider.
pub struct Issuer {
    settings: IssuerSettings,
    url: Url,
    client: Client,
    kept: Mutex<CachedKeys>,
    /// Held by whoever fetches; the others wait and use what it brought.
    fetching: tokio::sync::Mutex<()>,
}

/// Why a token lets nobody in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenError {
    /// It opens nothing. Why is in the log.
    Refused(TokenRefusal),
    /// It cannot be told: there are no keys that may be used.
    NoKeys {
        /// When to ask again.
        retry_after: Millis,
    },
}

#[derive(Default)]
struct CachedKeys {
    keys: Option<(Arc<Keys>, Timestamp)>,
    /// When the last try ended.
    tried_at: Option<Timestamp>,
    is_away: bool,
    said_away_at: Option<Timestamp>,
    said_refused_at: Option<Timestamp>,
    /// Tokens that were refused since then.
    refused: u64,
}

impl Issuer {
    /// A provider of which nothing is known yet.
    pub fn new(settings: IssuerSettings) -> Result<Issuer, BadIssuer> {
        let url = jwks::keys_address(&settings.jwks_url)?;
        let client = jwks::client(&url)?;
        Ok(Issuer { settings, url, client, kept: Mutex::default(), fetching: tokio::sync::Mutex::default() })
    }

    /// Whom a token stands for.
    pub async fn identify(&self, token: &str, clock: &Clock) -> Result<Principal, TokenError> {
        let checked = self.check(token, clock).await;
        if let Err(TokenError::Refused(why)) = &checked {
            self.say_refused(why, clock.now());
        }
        checked
    }

    async fn check(&self, token: &str, clock: &Clock) -> Result<Principal, TokenError> {
        let token = Token::parse(token)?;
        let keys = match self.keys(clock.now()) {
            Some(keys) => keys,
            None => {
                self.look_again(clock).await;
                self.keys(clock.now()).ok_or_else(|| self.no_keys(clock.now()))?
            }
        };
        match keys.check(&token) {
            Err(TokenRefusal::UnknownKey(_)) => {
                self.look_again(clock).await;
                let keys = self.keys(clock.now()).ok_or_else(|| self.no_keys(clock.now()))?;
                keys.check(&token)?;
            }
            checked => checked?,
        }
        Ok(token.principal(&self.settings.rules, clock.now())?)
    }

    /// Fetches the keys now and then, for ever.
    pub async fn keep_fresh(&self, clock: &Clock) {
        loop {
            let fetched = {
                let _alone = self.fetching.lock().await;
                self.fetch(clock).await
            };
            let pause = match fetched {
                FetchResult::Yes => self.settings.refresh,
                FetchResult::No => self.settings.refresh.min(TRY_AGAIN),
            };
            clock.sleep(pause).await;
        }
    }

    /// Fetches the keys unless somebody just did.
    async fn look_again(&self, clock: &Clock) {
        let _alone = self.fetching.lock().await;
        let tried_at = self.kept().tried_at;
        if tried_at.is_none_or(|at| clock.now().since(at) >= TRY_AGAIN) {
            self.fetch(clock).await;
        }
    }

    async fn fetch(&self, clock: &Clock) -> FetchResult {
        let asked_at = clock.now();
        let fetched = jwks::fetch(&self.client, &self.url).await;
        let now = clock.now();
        let mut kept = self.kept();
        kept.tried_at = Some(now);
        match fetched {
            Ok(keys) => {
                if keys.len() == 0 {
                    tracing::warn!(url = %self.url, "auth: the identity provider publishes no usable key; every token is refused");
                } else if kept.is_away {
                    tracing::info!(url = %self.url, "auth: fetched the keys of the identity provider again");
                }
                kept.is_away = false;
                kept.said_away_at = None;
                kept.keys = Some((Arc::new(keys), asked_at));
                FetchResult::Yes
            }
            Err(error) => {
                kept.is_away = true;
                if kept.said_away_at.is_none_or(|at| now.since(at) >= SAY_AWAY) {
                    kept.said_away_at = Some(now);
                    let meanwhile = if self.is_usable(&kept, now) {
                        "the cached keys are used until max_age"
                    } else {
                        "tokens get 503 until they are available"
                    };
                    tracing::warn!(url = %self.url, %error, "auth: could not fetch the keys of the identity provider; {meanwhile}");
                }
                FetchResult::No
            }
        }
    }

    /// The keys, unless they are too old.
    fn keys(&self, now: Timestamp) -> Option<Arc<Keys>> {
        let kept = self.kept();
        if self.is_usable(&kept, now) { kept.keys.as_ref().map(|(keys, _)| keys.clone()) } else { None }
    }

    fn is_usable(&self, kept: &CachedKeys, now: Timestamp) -> bool {
        kept.keys.as_ref().is_some_and(|(_, asked_at)| now.since(*asked_at) <= self.settings.max_age)
    }

    fn no_keys(&self, now: Timestamp) -> TokenError {
        let since = self.kept().tried_at.map_or(Millis(0), |at| now.since(at));
        TokenError::NoKeys { retry_after: Millis((TRY_AGAIN.0 - since.0).max(1000)) }
    }

    fn say_refused(&self, why: &TokenRefusal, now: Timestamp) {
        let mut kept = self.kept();
        kept.refused += 1;
        if kept.said_refused_at.is_some_and(|at| now.since(at) < SAY_REFUSED) {
            tracing::debug!(%why, "auth: token refused");
            return;
        }
        tracing::warn!(%why, tokens = kept.refused, "auth: token refused; further ones are logged at debug for some seconds");
        kept.said_refused_at = Some(now);
        kept.refused = 0;
    }

    fn kept(&self) -> MutexGuard<'_, CachedKeys> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether keys came.
#[derive(Clone, Copy)]
enum FetchResult {
    Yes,
    No,
}

/// Two are the same when they are configured the same.
impl PartialEq for Issuer {
    fn eq(&self, other: &Issuer) -> bool {
        self.settings == other.settings
    }
}

impl Eq for Issuer {}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

impl From<TokenRefusal> for TokenError {
    fn from(why: TokenRefusal) -> TokenError {
        TokenError::Refused(why)
    }
}

impl From<TokenError> for NotLetIn {
    fn from(error: TokenError) -> NotLetIn {
        match error {
            TokenError::Refused(_) => NotLetIn::Refused,
            TokenError::NoKeys { retry_after } => NotLetIn::NoKeys { retry_after },
        }
    }
}

impl IdentityProvider for Issuer {
    fn identify<'a>(
        &'a self,
        token: &'a str,
        clock: &'a Clock,
    ) -> BoxFuture<'a, Result<Principal, NotLetIn>> {
        Box::pin(async move { Ok(Issuer::identify(self, token, clock).await?) })
    }

    fn keep_fresh<'a>(&'a self, clock: &'a Clock) -> BoxFuture<'a, ()> {
        Box::pin(Issuer::keep_fresh(self, clock))
    }

    fn is_same(&self, other: &dyn IdentityProvider) -> bool {
        (other as &dyn Any).downcast_ref::<Issuer>().is_some_and(|other| self == other)
    }
}

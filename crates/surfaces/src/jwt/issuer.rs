//! An identity provider: whom its tokens stand for, and whether people sign in there.
//!
//! When its keys are fetched and what happens while they cannot be is `key_source.rs`, what it publishes of itself
//! `discovery.rs`, how people sign in `sign_in_client.rs`.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use standfast_core::time::Millis;
use standfast_engine::auth::{IdentityProvider, NotLetIn, Principal, SignInProvider};
use standfast_engine::clock::Clock;

use super::discovery::Discovery;
use super::jwks::{self, BadAddress};
use super::key_source::{KeySource, KeysAddress};
use super::sign_in_client::{SignInClient, SignInSettings};
use super::token::{TokenRefusal, TokenRules};

/// How long after a try to fetch keys, right or wrong, the next one may be.
pub const TRY_AGAIN: Millis = Millis::seconds(10);

/// What is configured of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerSettings {
    /// Where it publishes its keys; without it, where its discovery document says.
    pub jwks_url: Option<String>,
    /// How often they are fetched again.
    pub refresh: Millis,
    /// How long they may be used when they cannot be fetched again.
    pub max_age: Millis,
    /// What its tokens must be.
    pub rules: TokenRules,
    /// How people sign in there, if they do.
    pub sign_in: Option<SignInSettings>,
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
    keys: Arc<KeySource>,
    sign_in: Option<SignInClient>,
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

impl Issuer {
    /// A provider of which nothing is known yet.
    pub fn new(settings: IssuerSettings) -> Result<Issuer, BadIssuer> {
        let (refresh, max_age) = (settings.refresh, settings.max_age);
        let discovery = Arc::new(Discovery::new(&settings.rules.issuer, refresh, max_age));
        let address = match &settings.jwks_url {
            Some(url) => {
                let url = jwks::keys_address(url)?;
                KeysAddress::Fixed { client: jwks::client(&url)?, url }
            }
            None => KeysAddress::Discovered(discovery.clone()),
        };
        let keys = Arc::new(KeySource::new(address, refresh, max_age));
        let sign_in = settings.sign_in.clone();
        let sign_in = sign_in
            .map(|sign_in| SignInClient::new(sign_in, settings.rules.clone(), keys.clone(), discovery));
        Ok(Issuer { settings, keys, sign_in })
    }

    /// Whom a token stands for.
    pub async fn identify(&self, token: &str, clock: &Clock) -> Result<Principal, TokenError> {
        let checked = self.check(token, clock).await;
        if let Err(TokenError::Refused(why)) = &checked {
            self.keys.say_refused(why, clock.now());
        }
        checked
    }

    async fn check(&self, token: &str, clock: &Clock) -> Result<Principal, TokenError> {
        let token = self.keys.signed(token, clock).await?;
        Ok(token.principal(&self.settings.rules, clock.now())?)
    }

    /// Fetches the keys now and then, for ever.
    pub async fn keep_fresh(&self, clock: &Clock) {
        self.keys.keep_fresh(clock).await;
    }
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

    fn sign_in(&self) -> Option<&dyn SignInProvider> {
        self.sign_in.as_ref().map(|client| client as &dyn SignInProvider)
    }

    fn is_same(&self, other: &dyn IdentityProvider) -> bool {
        (other as &dyn Any).downcast_ref::<Issuer>().is_some_and(|other| self == other)
    }
}

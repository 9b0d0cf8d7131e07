//! The keys of an identity provider as they were fetched last, and whether they signed a token.
//!
//! Keys are fetched at the start, every `refresh`, and when a token names one that is not known; then at most every ten
//! seconds, whoever asks, so that made-up names cannot make this server hammer its provider. While the provider is away
//! the keys that are there are used until `max_age`. After that, and when there never were any, nobody can be told
//! from anybody, so nobody is let in. Where they are is configured, or what the provider publishes (`discovery.rs`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::{Client, Url};
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::clock::Clock;

use super::discovery::Discovery;
use super::issuer::{TRY_AGAIN, TokenError};
use super::jwks::{self, Keys};
use super::token::{Token, TokenRefusal};

/// How often the log says that keys cannot be fetched.
const SAY_AWAY: Millis = Millis::seconds(300);

/// How often the log says why a token was refused, above `debug`.
const SAY_REFUSED: Millis = Millis::seconds(10);

/// Where keys are.
pub(super) enum KeysAddress {
    /// As configured.
    Fixed { url: Url, client: Client },
    /// As the provider says.
    Discovered(Arc<Discovery>),
}

/// The keys of a provider.
pub(super) struct KeySource {
    address: KeysAddress,
    refresh: Millis,
    max_age: Millis,
    kept: Mutex<CachedKeys>,
    /// Held by whoever fetches; the others wait and use what it brought.
    fetching: tokio::sync::Mutex<()>,
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

/// Whether keys came.
#[derive(Clone, Copy)]
enum FetchResult {
    Yes,
    No,
}

impl KeySource {
    /// Keys of which none is known yet.
    pub(super) fn new(address: KeysAddress, refresh: Millis, max_age: Millis) -> KeySource {
        KeySource {
            address,
            refresh,
            max_age,
            kept: Mutex::default(),
            fetching: tokio::sync::Mutex::default(),
        }
    }

    /// A token that the provider signed.
    pub(super) async fn signed<'t>(&self, text: &'t str, clock: &Clock) -> Result<Token<'t>, TokenError> {
        let token = Token::parse(text)?;
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
        Ok(token)
    }

    /// Fetches the keys now and then, for ever.
    pub(super) async fn keep_fresh(&self, clock: &Clock) {
        loop {
            let fetched = {
                let _alone = self.fetching.lock().await;
                self.fetch(clock).await
            };
            let pause = match fetched {
                FetchResult::Yes => self.refresh,
                FetchResult::No => self.refresh.min(TRY_AGAIN),
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

    /// The keys as they are now, and where they are; why there are none.
    async fn ask(&self, clock: &Clock) -> (String, Result<Keys, String>) {
        let told = |error: jwks::NoKeys| error.to_string();
        match &self.address {
            KeysAddress::Fixed { url, client } => {
                (url.to_string(), jwks::fetch(client, url).await.map_err(told))
            }
            KeysAddress::Discovered(discovery) => {
                let metadata = match discovery.metadata(clock).await {
                    Ok(metadata) => metadata,
                    Err(why) => return ("the discovery document".to_owned(), Err(why)),
                };
                let address = metadata.jwks_uri.clone();
                let fetched = match jwks::keys_address(&address).map(|url| (jwks::client(&url), url)) {
                    Ok((Ok(client), url)) => jwks::fetch(&client, &url).await.map_err(told),
                    Ok((Err(error), _)) => Err(error.to_string()),
                    Err(bad) => Err(format!("its address {bad}")),
                };
                (address, fetched)
            }
        }
    }

    async fn fetch(&self, clock: &Clock) -> FetchResult {
        let asked_at = clock.now();
        let (url, fetched) = self.ask(clock).await;
        let now = clock.now();
        let mut kept = self.kept();
        kept.tried_at = Some(now);
        match fetched {
            Ok(keys) => {
                if keys.len() == 0 {
                    tracing::warn!(
                        url,
                        "auth: the identity provider publishes no usable key; every token is refused"
                    );
                } else if kept.is_away {
                    tracing::info!(url, "auth: fetched the keys of the identity provider again");
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
                    tracing::warn!(url, %error, "auth: could not fetch the keys of the identity provider; {meanwhile}");
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
        kept.keys.as_ref().is_some_and(|(_, asked_at)| now.since(*asked_at) <= self.max_age)
    }

    fn no_keys(&self, now: Timestamp) -> TokenError {
        let since = self.kept().tried_at.map_or(Millis(0), |at| now.since(at));
        TokenError::NoKeys { retry_after: Millis((TRY_AGAIN.0 - since.0).max(1000)) }
    }

    /// Says why a token was refused, now and then.
    pub(super) fn say_refused(&self, why: &TokenRefusal, now: Timestamp) {
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

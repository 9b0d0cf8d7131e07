//! What an identity provider publishes of itself (OpenID Connect Discovery): where it signs people in, where its keys are.
//!
//! The address comes from the configuration; what is found there must say that it is that issuer's, and every address in it
//! must be https, or of this machine where the issuer is. It is asked through the engine's guard and limits: the issuer's own
//! host is named by the configuration, any other one must be public.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::{Method, Url};
use serde::Deserialize;
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::clock::Clock;
use standfast_engine::outbound::guard::Guard;
use standfast_engine::outbound::http::{self, Answer, HttpLimits, Request};

use super::jwks::{BadAddress, keys_address};

/// How long the provider may take, and what it may send.
const LIMITS: HttpLimits =
    HttpLimits { time: Millis::seconds(10), answer_bytes: 256 * 1024, request_bytes: 64 * 1024 };

/// How long after a failure it is asked again.
const TRY_AGAIN: Millis = Millis::seconds(2);

/// What is used of what a provider publishes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct ProviderMetadata {
    issuer: String,
    pub(super) authorization_endpoint: Option<String>,
    pub(super) token_endpoint: Option<String>,
    pub(super) jwks_uri: String,
    pub(super) end_session_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    /// Whether every answer says who gave it (RFC 9207).
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

impl ProviderMetadata {
    /// Whether the secret of a client goes into the header: it does unless the provider only takes it in the body.
    pub(super) fn takes_basic(&self) -> bool {
        let methods = self.token_endpoint_auth_methods_supported.as_ref();
        methods.is_none_or(|methods| {
            let takes = |name: &str| methods.iter().any(|method| method == name);
            takes("client_secret_basic") || !takes("client_secret_post")
        })
    }
}

/// Where a provider publishes what it is, and what was last found there.
#[derive(Debug)]
pub(super) struct Discovery {
    issuer: String,
    /// How long what was found counts before it is looked for again, and when it cannot be.
    refresh: Millis,
    max_age: Millis,
    guard: Guard,
    known: Mutex<KnownMetadata>,
    /// Held by whoever asks; the others wait and use what it brought.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct KnownMetadata {
    found: Option<(Arc<ProviderMetadata>, Timestamp)>,
    failed: Option<(String, Timestamp)>,
}

impl Discovery {
    /// A provider of which nothing is known yet.
    pub(super) fn new(issuer: &str, refresh: Millis, max_age: Millis) -> Discovery {
        let named = Url::parse(issuer).ok().and_then(|url| {
            let host = url.host_str()?.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
            Some(format!("{host}:{}", url.port_or_known_default()?))
        });
        let guard = Guard { allowed_hosts: named.into_iter().collect(), ..Guard::default() };
        Discovery {
            issuer: issuer.to_owned(),
            refresh,
            max_age,
            guard,
            known: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
        }
    }

    /// What the provider is; why it cannot be told.
    pub(super) async fn metadata(&self, clock: &Clock) -> Result<Arc<ProviderMetadata>, String> {
        if let Some(found) = self.recent(clock.now(), self.refresh) {
            return Ok(found);
        }
        let _alone = self.asking.lock().await;
        let now = clock.now();
        if let Some(found) = self.recent(now, self.refresh) {
            return Ok(found);
        }
        let failed = self.known().failed.clone();
        if let Some((why, _)) = failed.filter(|(_, at)| now.since(*at) < TRY_AGAIN) {
            return self.recent(now, self.max_age).ok_or(why);
        }
        match self.ask().await {
            Ok(metadata) => {
                let metadata = Arc::new(metadata);
                *self.known() = KnownMetadata { found: Some((metadata.clone(), now)), failed: None };
                Ok(metadata)
            }
            Err(why) => {
                self.known().failed = Some((why.clone(), clock.now()));
                self.recent(now, self.max_age).ok_or(why)
            }
        }
    }

    fn recent(&self, now: Timestamp, within: Millis) -> Option<Arc<ProviderMetadata>> {
        let known = self.known();
        known.found.as_ref().filter(|(_, at)| now.since(*at) < within).map(|(found, _)| found.clone())
    }

    async fn ask(&self) -> Result<ProviderMetadata, String> {
        let url = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        let answer = self.send(Method::GET, &url, Vec::new(), None).await?;
        if answer.status != 200 {
            return Err(format!("{url} answered {}", answer.status));
        }
        let metadata: ProviderMetadata = serde_json::from_str(&answer.body)
            .map_err(|error| format!("{url} is not a discovery document: {error}"))?;
        self.check(&metadata)?;
        Ok(metadata)
    }

    fn check(&self, metadata: &ProviderMetadata) -> Result<(), String> {
        if metadata.issuer != self.issuer {
            return Err(format!(
                "the discovery document is of the issuer {:?}, and {:?} is configured",
                metadata.issuer, self.issuer
            ));
        }
        let is_here = keys_address(&self.issuer).is_ok_and(|url| url.scheme() == "http");
        let endpoints = [
            ("authorization_endpoint", &metadata.authorization_endpoint),
            ("token_endpoint", &metadata.token_endpoint),
            ("jwks_uri", &Some(metadata.jwks_uri.clone())),
            ("end_session_endpoint", &metadata.end_session_endpoint),
        ];
        for (name, address) in endpoints {
            let Some(address) = address else { continue };
            let read = keys_address(address).and_then(|url| {
                // A provider elsewhere has nothing to say about this machine.
                if url.scheme() == "http" && !is_here { Err(BadAddress::NotSecure) } else { Ok(()) }
            });
            read.map_err(|bad| format!("{name} of the discovery document {bad}"))?;
        }
        Ok(())
    }

    /// One request to the provider, within limits.
    pub(super) async fn send(
        &self,
        method: Method,
        url: &str,
        headers: Vec<(String, String)>,
        body: Option<String>,
    ) -> Result<Answer, String> {
        let request = Request {
            method,
            url: url.to_owned(),
            headers: headers.into_iter().chain([("accept".into(), "application/json".into())]).collect(),
            body,
            idempotency_key: standfast_core::digest::Digest(standfast_engine::clock::random_bytes())
                .to_string(),
        };
        let answer =
            http::send(&self.guard, &LIMITS, request).await.map_err(|trouble| trouble.to_string())?;
        if answer.truncated {
            return Err("it sent more than 256 KiB".to_owned());
        }
        Ok(answer)
    }

    fn known(&self) -> MutexGuard<'_, KnownMetadata> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// T11: a document of another issuer, or one that leads elsewhere without TLS, is not used.
    #[test]
    fn a_document_is_its_issuers_own() {
        let document = |more: serde_json::Value| {
            let mut all = json!({"issuer": "https://login.example", "jwks_uri": "https://login.example/keys",
                "authorization_endpoint": "https://login.example/auth", "token_endpoint": "https://api.example/token"});
            for (name, value) in more.as_object().unwrap() {
                all[name] = value.clone();
            }
            serde_json::from_value::<ProviderMetadata>(all).unwrap()
        };
        let discovery = Discovery::new("https://login.example", Millis(1), Millis(1));
        assert_eq!(discovery.check(&document(json!({}))), Ok(()));
        for more in [
            json!({"issuer": "https://login.example/"}),
            json!({"issuer": "https://evil.example"}),
            json!({"token_endpoint": "http://login.example/token"}),
            json!({"token_endpoint": "http://127.0.0.1/token"}),
            json!({"jwks_uri": "file:///etc/passwd"}),
            json!({"end_session_endpoint": "javascript:alert(1)"}),
            json!({"authorization_endpoint": "https://user:password@login.example/auth"}),
        ] {
            assert!(discovery.check(&document(more.clone())).is_err(), "{more}");
        }
    }

    #[test]
    fn how_a_secret_is_sent() {
        let takes = |methods: serde_json::Value| {
            let document =
                json!({"issuer": "i", "jwks_uri": "k", "token_endpoint_auth_methods_supported": methods});
            serde_json::from_value::<ProviderMetadata>(document).unwrap().takes_basic()
        };
        assert!(takes(json!(null)) && takes(json!(["client_secret_basic", "client_secret_post"])));
        assert!(!takes(json!(["client_secret_post"])));
    }
}

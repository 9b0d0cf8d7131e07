//! Signing people in at an identity provider: the authorization code flow with PKCE, renewal, logout (OpenID Connect Core,
//! RFC 7636, RFC 9207, Back-Channel Logout, RP-Initiated Logout).
//!
//! What the tokens must be is `id_token.rs`, where the provider is asked `discovery.rs`. What becomes of a sign-in is the
//! engine's (`identity/sign_ins.rs`). Nothing here keeps state: what one node asked another one can redeem.

use std::fmt;
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine as _};
use futures_util::future::BoxFuture;
use reqwest::{Method, Url};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use standfast_core::time::Millis;
use standfast_engine::auth::{
    AuthorizationCode, AuthorizationRequest, LogoutNotice, ProvenSignIn, SessionClient, SignInError,
    SignInProvider, SignInTerms,
};
use standfast_engine::clock::Clock;
use standfast_engine::secrets::SecretText;

use super::discovery::{Discovery, ProviderMetadata};
use super::id_token::IdToken;
use super::issuer::TokenError;
use super::key_source::KeySource;
use super::token::{TokenRefusal, TokenRules};

/// How people sign in.
#[derive(Clone, PartialEq, Eq)]
pub struct SignInSettings {
    /// The client id of this server.
    pub client_id: String,
    /// Its secret; none for a client that has none.
    pub client_secret: Option<SecretText>,
    /// What the provider is called on the button.
    pub label: String,
    /// What is asked for.
    pub scopes: Vec<String>,
    /// How often the provider is asked again.
    pub renew_every: Millis,
    /// The client id of the command line.
    pub command_line_client: Option<String>,
}

/// Never the secret.
impl fmt::Debug for SignInSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignInSettings({:?}, {:?}, ..)", self.client_id, self.scopes)
    }
}

/// A client of the provider at which people sign in.
pub(super) struct SignInClient {
    settings: SignInSettings,
    terms: SignInTerms,
    rules: TokenRules,
    keys: Arc<KeySource>,
    discovery: Arc<Discovery>,
}

/// What the token endpoint answers. Access tokens are of no use here.
#[derive(Deserialize)]
struct TokenResponse {
    id_token: Option<String>,
    refresh_token: Option<String>,
}

/// What it answers when it does not.
#[derive(Deserialize)]
struct ErrorResponse {
    error: String,
}

impl fmt::Debug for SignInClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

impl SignInClient {
    pub(super) fn new(
        settings: SignInSettings,
        rules: TokenRules,
        keys: Arc<KeySource>,
        discovery: Arc<Discovery>,
    ) -> SignInClient {
        let terms = SignInTerms {
            issuer: rules.issuer.clone(),
            label: settings.label.clone(),
            renew_every: settings.renew_every,
            scopes: settings.scopes.clone(),
            command_line_client: settings.command_line_client.clone(),
        };
        SignInClient { settings, terms, rules, keys, discovery }
    }

    async fn metadata(&self, clock: &Clock) -> Result<Arc<ProviderMetadata>, SignInError> {
        self.discovery.metadata(clock).await.map_err(SignInError::Unavailable)
    }

    async fn url_for(&self, request: &AuthorizationRequest, clock: &Clock) -> Result<String, SignInError> {
        let metadata = self.metadata(clock).await?;
        let mut url = endpoint(&metadata.authorization_endpoint, "authorization_endpoint")?;
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(request.verifier.as_bytes()));
        {
            let mut query = url.query_pairs_mut();
            query
                .append_pair("response_type", "code")
                .append_pair("client_id", &self.settings.client_id)
                .append_pair("redirect_uri", &request.redirect_uri)
                .append_pair("scope", &self.settings.scopes.join(" "))
                .append_pair("state", &request.state)
                .append_pair("nonce", &request.nonce)
                .append_pair("code_challenge", &challenge)
                .append_pair("code_challenge_method", "S256");
            if let Some(max_age) = request.max_age {
                // Some providers know only one of the two; whether it was done, the ID token says.
                query.append_pair("max_age", &(max_age.0 / 1000).to_string()).append_pair("prompt", "login");
            }
        }
        Ok(url.into())
    }

    async fn redeem_code(
        &self,
        request: &AuthorizationRequest,
        code: &AuthorizationCode,
        clock: &Clock,
    ) -> Result<ProvenSignIn, SignInError> {
        let metadata = self.metadata(clock).await?;
        // RFC 9207: an answer of another provider is not taken to this one.
        let must_say = metadata.authorization_response_iss_parameter_supported;
        if code.issuer.as_ref().map_or(must_say, |issuer| *issuer != self.terms.issuer) {
            return Err(SignInError::Refused("the browser came back from another identity provider".into()));
        }
        let grant: [(&str, &str); 4] = [
            ("grant_type", "authorization_code"),
            ("code", &code.code),
            ("redirect_uri", &request.redirect_uri),
            ("code_verifier", &request.verifier),
        ];
        let answer = self.ask_tokens(&metadata, SessionClient::Browser, &grant).await?;
        let id_token = answer.id_token.ok_or_else(no_id_token)?;
        let token = self.check(&id_token, &self.settings.client_id, clock).await?;
        if token.nonce.as_deref() != Some(request.nonce.as_str()) {
            return Err(refused(&TokenRefusal::Nonce));
        }
        if let Some(max_age) = request.max_age {
            let oldest = Millis(max_age.0.saturating_add(self.rules.skew.0));
            let now = clock.now();
            if token.signed_in_at.is_none_or(|at| now.since(at) > oldest) {
                return Err(refused(&TokenRefusal::Stale));
            }
        }
        Ok(proven(token, answer.refresh_token))
    }

    async fn renew_tokens(
        &self,
        client: SessionClient,
        refresh_token: &str,
        clock: &Clock,
    ) -> Result<ProvenSignIn, SignInError> {
        let metadata = self.metadata(clock).await?;
        let grant = [("grant_type", "refresh_token"), ("refresh_token", refresh_token)];
        let answer = self.ask_tokens(&metadata, client, &grant).await?;
        // One that renews and does not say for whom: what it said last counts for its time.
        let none = || SignInError::Unavailable("it renews without an ID token".into());
        let id_token = answer.id_token.ok_or_else(none)?;
        let token = self.check(&id_token, self.client_id(client)?, clock).await?;
        Ok(proven(token, answer.refresh_token))
    }

    fn client_id(&self, client: SessionClient) -> Result<&str, SignInError> {
        match client {
            SessionClient::Browser => Ok(&self.settings.client_id),
            SessionClient::CommandLine => {
                let id = self.settings.command_line_client.as_deref();
                id.ok_or_else(|| SignInError::Refused("nobody signs in on the command line here".into()))
            }
        }
    }

    async fn check(&self, id_token: &str, client: &str, clock: &Clock) -> Result<IdToken, SignInError> {
        let token = self.keys.signed(id_token, clock).await.map_err(|error| match error {
            TokenError::Refused(why) => refused(&why),
            TokenError::NoKeys { .. } => SignInError::Unavailable("its keys cannot be fetched".into()),
        })?;
        token.id_token(&self.rules, client, clock.now()).map_err(|why| refused(&why))
    }

    async fn ask_tokens(
        &self,
        metadata: &ProviderMetadata,
        client: SessionClient,
        grant: &[(&str, &str)],
    ) -> Result<TokenResponse, SignInError> {
        let url = endpoint(&metadata.token_endpoint, "token_endpoint")?;
        let client_id = self.client_id(client)?;
        // The command line is a program on other machines: it has no secret.
        let secret = match client {
            SessionClient::Browser => self.settings.client_secret.as_ref().map(SecretText::expose),
            SessionClient::CommandLine => None,
        };
        let mut fields = grant.to_vec();
        let mut headers = vec![("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned())];
        match secret {
            Some(secret) if metadata.takes_basic() => {
                let pair = format!("{}:{}", form(&[("", client_id)]), form(&[("", secret)])).replace('=', "");
                headers.push(("authorization".into(), format!("Basic {}", BASE64_STANDARD.encode(pair))));
            }
            Some(secret) => fields.extend([("client_id", client_id), ("client_secret", secret)]),
            None => fields.push(("client_id", client_id)),
        }
        let answer = self.discovery.send(Method::POST, url.as_str(), headers, Some(form(&fields))).await;
        let answer = answer.map_err(SignInError::Unavailable)?;
        match answer.status {
            200 => serde_json::from_str(&answer.body)
                .map_err(|_| SignInError::Refused("the token response cannot be read".into())),
            400..=499 if answer.status != 429 => {
                let error = serde_json::from_str::<ErrorResponse>(&answer.body).ok();
                let word = error.map_or_else(|| answer.status.to_string(), |answer| plain(&answer.error));
                // Only this server's own credentials are wrong then; nobody's session ends for it.
                if word == "invalid_client" {
                    return Err(SignInError::Unavailable(
                        "it does not accept this server's client id and secret".into(),
                    ));
                }
                Err(SignInError::Refused(format!("the identity provider refused it: {word}")))
            }
            status => Err(SignInError::Unavailable(format!("it answered {status}"))),
        }
    }

    async fn notice(&self, token: &str, clock: &Clock) -> Result<LogoutNotice, SignInError> {
        let token = self.keys.signed(token, clock).await.map_err(|error| match error {
            TokenError::Refused(why) => refused(&why),
            TokenError::NoKeys { .. } => SignInError::Unavailable("its keys cannot be fetched".into()),
        })?;
        let clients: Vec<&str> = std::iter::once(self.settings.client_id.as_str())
            .chain(self.settings.command_line_client.as_deref())
            .collect();
        token.logout(&self.rules, &clients, clock.now()).map_err(|why| refused(&why))
    }
}

impl SignInProvider for SignInClient {
    fn terms(&self) -> &SignInTerms {
        &self.terms
    }

    fn authorization_url<'a>(
        &'a self,
        request: &'a AuthorizationRequest,
        clock: &'a Clock,
    ) -> BoxFuture<'a, Result<String, SignInError>> {
        Box::pin(self.url_for(request, clock))
    }

    fn redeem<'a>(
        &'a self,
        request: &'a AuthorizationRequest,
        code: &'a AuthorizationCode,
        clock: &'a Clock,
    ) -> BoxFuture<'a, Result<ProvenSignIn, SignInError>> {
        Box::pin(self.redeem_code(request, code, clock))
    }

    fn accept<'a>(
        &'a self,
        id_token: &'a str,
        clock: &'a Clock,
    ) -> BoxFuture<'a, Result<ProvenSignIn, SignInError>> {
        Box::pin(async move {
            let token = self.check(id_token, self.client_id(SessionClient::CommandLine)?, clock).await?;
            Ok(proven(token, None))
        })
    }

    fn renew<'a>(
        &'a self,
        client: SessionClient,
        refresh_token: &'a str,
        clock: &'a Clock,
    ) -> BoxFuture<'a, Result<ProvenSignIn, SignInError>> {
        Box::pin(self.renew_tokens(client, refresh_token, clock))
    }

    fn logout_notice<'a>(
        &'a self,
        token: &'a str,
        clock: &'a Clock,
    ) -> BoxFuture<'a, Result<LogoutNotice, SignInError>> {
        Box::pin(self.notice(token, clock))
    }

    fn sign_out_url<'a>(&'a self, back_to: &'a str, clock: &'a Clock) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let metadata = self.metadata(clock).await.ok()?;
            let mut url = endpoint(&metadata.end_session_endpoint, "end_session_endpoint").ok()?;
            url.query_pairs_mut()
                .append_pair("client_id", &self.settings.client_id)
                .append_pair("post_logout_redirect_uri", back_to);
            Some(url.into())
        })
    }
}

fn proven(token: IdToken, refresh_token: Option<String>) -> ProvenSignIn {
    let IdToken { who, subject, session, nonce, .. } = token;
    ProvenSignIn { who, subject, provider_session: session, nonce, refresh_token }
}

fn refused(why: &TokenRefusal) -> SignInError {
    SignInError::Refused(format!("the ID token of the identity provider is refused: {why}"))
}

fn no_id_token() -> SignInError {
    SignInError::Refused("the identity provider sent no ID token; ask for the scope openid".into())
}

fn endpoint(address: &Option<String>, name: &str) -> Result<Url, SignInError> {
    let missing = || SignInError::Unavailable(format!("its discovery document has no {name}"));
    let address = address.as_ref().ok_or_else(missing)?;
    Url::parse(address).map_err(|error| SignInError::Unavailable(format!("its {name}: {error}")))
}

/// Fields as forms send them.
fn form(fields: &[(&str, &str)]) -> String {
    let Ok(mut url) = Url::parse("http://form/") else { return String::new() };
    url.query_pairs_mut().extend_pairs(fields);
    url.query().unwrap_or_default().to_owned()
}

/// An error code of a provider, for logs and pages: letters and nothing else.
fn plain(code: &str) -> String {
    code.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '_').take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_sent_as_forms_send_them() {
        assert_eq!(form(&[("a", "b c"), ("d", "é&=")]), "a=b+c&d=%C3%A9%26%3D");
        assert_eq!(form(&[("", "a:b=")]).replace('=', ""), "a%3Ab%3D");
    }

    #[test]
    fn what_a_provider_says_is_shown_as_letters() {
        assert_eq!(plain("access_denied<script>"), "access_deniedscript");
    }
}

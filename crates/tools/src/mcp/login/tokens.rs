//! Tokens: a client to ask for them with, a code for a token, a new token for an old one.
//!
//! None of them is in a log line or an error: what an authorization server answers to a refusal is shown by its `error`
//! and `error_description` alone.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use reqwest::{Method, Url};
use serde::{Deserialize, Serialize};
use standfast_core::name::UserId;
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::outbound::http::Request;
use standfast_engine::tool::login::{CLIENT_DOCUMENT, NoLogin, client_document};
use standfast_engine::vault::StoredSecret;

use super::discover::{AuthorizationServer, checked, send};
use super::{Desk, OnTheWay};

/// A token is renewed when it has less than this left.
const LEFT: Millis = Millis::seconds(30);

/// Who asks for tokens.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Client {
    pub(super) id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    /// Whether its secret goes into a header; else into the body.
    #[serde(default)]
    in_header: bool,
}

/// A login of a user at a server.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Login {
    access_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refresh_token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    token_endpoint: String,
    client: Client,
    resource: String,
}

#[derive(Deserialize)]
struct RegistrationResponse {
    client_id: String,
    client_secret: Option<String>,
    token_endpoint_auth_method: Option<String>,
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    token_type: String,
    expires_in: Option<i64>,
    refresh_token: Option<String>,
}

#[derive(Deserialize, Default)]
struct TokenError {
    #[serde(default)]
    error: String,
    #[serde(default)]
    error_description: String,
}

/// Why there is no token.
enum NoToken {
    /// The authorization server refused it, in these words.
    Refused(String),
    /// It could not be asked.
    NotAsked(String),
}

impl From<NoToken> for NoLogin {
    fn from(no: NoToken) -> NoLogin {
        match no {
            NoToken::Refused(why) | NoToken::NotAsked(why) => NoLogin(why),
        }
    }
}

impl Desk {
    /// The client that this server is to an authorization server: configured, described by a document of ours, or
    /// registered, once.
    pub(super) async fn client(
        &self,
        found: &AuthorizationServer,
        base: &str,
        redirect_uri: &str,
    ) -> Result<Client, NoLogin> {
        if let Some(own) = &self.options.client {
            let (id, secret) = (own.id.clone(), own.secret.clone());
            return Ok(Client { id, secret, in_header: found.takes_header });
        }
        if found.reads_documents && base.starts_with("https://") {
            return Ok(Client { id: format!("{base}{CLIENT_DOCUMENT}"), secret: None, in_header: false });
        }
        let place = self.named("client", &format!("{} {redirect_uri}", found.issuer));
        let known = self.vault().get(&place).await.map_err(|error| NoLogin(error.to_string()))?;
        if let Some(client) = known.and_then(|kept| serde_json::from_str(&kept.text).ok()) {
            return Ok(client);
        }
        let Some(url) = found.registration_endpoint.clone() else {
            return Err(NoLogin(format!(
                "{} has no dynamic client registration: register {redirect_uri} there, and give the server's entry \
                 `oauth: {{client_id: …}}`",
                found.issuer
            )));
        };
        let client = self.registered(url, base).await?;
        let text = serde_json::to_string(&client).map_err(|error| NoLogin(error.to_string()))?;
        self.vault().put(&place, &text).await.map_err(|error| NoLogin(error.to_string()))?;
        Ok(client)
    }

    async fn registered(&self, url: String, base: &str) -> Result<Client, NoLogin> {
        let mut wanted = client_document(base);
        if let Some(wanted) = wanted.as_object_mut() {
            wanted.remove("client_id");
            wanted.remove("client_uri");
        }
        let request = Request {
            method: Method::POST,
            url: checked(self, url.clone())?,
            headers: vec![("content-type".into(), "application/json".into())],
            body: Some(wanted.to_string()),
            idempotency_key: "registration".into(),
        };
        let answer = send(self, request).await?;
        if !(200..300).contains(&answer.status) {
            return Err(NoLogin(format!(
                "{url} refused to register a client: {}",
                refusal(answer.status, &answer.body)
            )));
        }
        let read: Result<RegistrationResponse, _> = serde_json::from_str(&answer.body);
        let RegistrationResponse { client_id, client_secret, token_endpoint_auth_method } =
            read.map_err(|error| NoLogin(format!("{url} cannot be read: {error}")))?;
        let in_header = token_endpoint_auth_method.as_deref() == Some("client_secret_basic");
        Ok(Client { id: client_id, secret: client_secret, in_header })
    }

    /// A code for a token.
    pub(super) async fn exchanged(&self, way: &OnTheWay, code: &str) -> Result<Login, NoLogin> {
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &way.redirect_uri),
            ("code_verifier", &way.verifier),
            ("resource", &way.resource),
        ];
        let granted = self.granted(&way.token_endpoint, &way.client, &form).await?;
        Ok(Login {
            expires_at: self.expires_at(&granted),
            access_token: granted.access_token,
            refresh_token: granted.refresh_token,
            token_endpoint: way.token_endpoint.clone(),
            client: way.client.clone(),
            resource: way.resource.clone(),
        })
    }

    fn expires_at(&self, granted: &TokenResponse) -> Option<Timestamp> {
        granted.expires_in.map(|seconds| self.clock.now().plus(Millis::seconds(seconds)))
    }

    async fn granted(
        &self,
        url: &str,
        client: &Client,
        form: &[(&str, &str)],
    ) -> Result<TokenResponse, NoToken> {
        let not_asked = |no: NoLogin| NoToken::NotAsked(no.0);
        let mut headers = vec![
            ("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned()),
            ("accept".to_owned(), "application/json".to_owned()),
        ];
        let mut fields: Vec<(&str, &str)> = form.to_vec();
        // Also where a header says it: servers of the official Python SDK look for it here alone.
        fields.push(("client_id", &client.id));
        match &client.secret {
            Some(secret) if client.in_header => {
                let pair = BASE64_STANDARD.encode(format!("{}:{}", encoded(&client.id), encoded(secret)));
                headers.push(("authorization".to_owned(), format!("Basic {pair}")));
            }
            Some(secret) => fields.push(("client_secret", secret)),
            None => {}
        }
        let request = Request {
            method: Method::POST,
            url: checked(self, url.to_owned()).map_err(not_asked)?,
            headers,
            body: Some(form_text(&fields)),
            idempotency_key: "token".into(),
        };
        let answer = send(self, request).await.map_err(not_asked)?;
        match answer.status {
            200..300 => {}
            400..500 => {
                let why = format!("{url} gives no token: {}", refusal(answer.status, &answer.body));
                return Err(NoToken::Refused(why));
            }
            status => return Err(NoToken::NotAsked(format!("{url} answered {status}"))),
        }
        // Not with what was read: it is a token, or nearly one.
        let granted: TokenResponse = serde_json::from_str(&answer.body)
            .map_err(|_| NoToken::NotAsked(format!("{url} answered with no token that can be read")))?;
        if granted.token_type.eq_ignore_ascii_case("bearer") {
            Ok(granted)
        } else {
            Err(NoToken::NotAsked(format!("{url} gives tokens of another kind than Bearer")))
        }
    }

    /// The token of a user, renewed if it is about to end; none when they are not logged in.
    pub async fn token(&self, owner: &UserId) -> Result<Option<String>, NoLogin> {
        match self.login(owner).await? {
            Some((_, login)) if !self.is_about_to_end(&login) => Ok(Some(login.access_token)),
            Some((_, login)) => self.renewed(owner, &login.access_token).await,
            None => Ok(None),
        }
    }

    /// What of a user's login, and of this server as a client, nobody else may read. Nothing is renewed for it.
    pub(in crate::mcp) async fn known_secrets(&self, owner: &UserId) -> Vec<String> {
        let own = self.options.client.as_ref().and_then(|client| client.secret.clone());
        let login = self.login(owner).await.ok().flatten();
        let tokens =
            login.map(|(_, login)| [Some(login.access_token), login.refresh_token, login.client.secret]);
        own.into_iter().chain(tokens.into_iter().flatten().flatten()).collect()
    }

    fn is_about_to_end(&self, login: &Login) -> bool {
        login.expires_at.is_some_and(|at| at < self.clock.now().plus(LEFT))
    }

    /// Another token for one that is not taken any more; none when they have to log in again.
    pub async fn renewed(&self, owner: &UserId, old: &str) -> Result<Option<String>, NoLogin> {
        let _one_at_a_time = self.renewing.lock().await;
        let Some((kept, login)) = self.login(owner).await? else { return Ok(None) };
        if login.access_token != old {
            // Somebody was faster.
            return Ok(Some(login.access_token));
        }
        let place = self.place(owner);
        let store = |error: standfast_engine::StoreError| NoLogin(error.to_string());
        let Some(refresh) = &login.refresh_token else {
            self.vault().change(&place, Some(&kept), None).await.map_err(store)?;
            return Ok(None);
        };
        let form =
            [("grant_type", "refresh_token"), ("refresh_token", refresh), ("resource", &login.resource)];
        match self.granted(&login.token_endpoint, &login.client, &form).await {
            Ok(granted) => {
                let new = Login {
                    expires_at: self.expires_at(&granted),
                    access_token: granted.access_token,
                    refresh_token: granted.refresh_token.or(login.refresh_token),
                    ..login
                };
                let text = serde_json::to_string(&new).map_err(|error| NoLogin(error.to_string()))?;
                if self.vault().change(&place, Some(&kept), Some(&text)).await.map_err(store)? {
                    Ok(Some(new.access_token))
                } else {
                    Ok(self.login(owner).await?.map(|(_, login)| login.access_token))
                }
            }
            Err(NoToken::Refused(why)) => {
                tracing::info!(server = self.server(), %owner, why, "mcp: login ended");
                if self.vault().change(&place, Some(&kept), None).await.map_err(store)? {
                    Ok(None)
                } else {
                    // Another node has renewed it with the same token.
                    Ok(self.login(owner).await?.map(|(_, login)| login.access_token))
                }
            }
            Err(NoToken::NotAsked(why)) => Err(NoLogin(why)),
        }
    }

    async fn login(&self, owner: &UserId) -> Result<Option<(StoredSecret, Login)>, NoLogin> {
        let kept = self.vault().get(&self.place(owner)).await.map_err(|error| NoLogin(error.to_string()))?;
        Ok(kept.and_then(|kept| serde_json::from_str(&kept.text).ok().map(|login| (kept, login))))
    }
}

/// What an authorization server said, without anything else that may be in its answer.
fn refusal(status: u16, body: &str) -> String {
    let TokenError { error, error_description } = serde_json::from_str(body).unwrap_or_default();
    let said = format!("{error} {error_description}");
    match said.trim() {
        "" => format!("HTTP {status}"),
        said => said.chars().take(300).collect(),
    }
}

fn form_text(fields: &[(&str, &str)]) -> String {
    // The query of an address is written like a form.
    let Ok(mut url) = Url::parse("form:") else { unreachable!("a scheme is an address") };
    url.query_pairs_mut().extend_pairs(fields);
    url.query().unwrap_or_default().to_owned()
}

fn encoded(text: &str) -> String {
    form_text(&[(text, "")]).trim_end_matches('=').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_and_refusals_are_written_as_the_standard_has_them() {
        assert_eq!(form_text(&[("a", "b c&d"), ("e", "ü")]), "a=b+c%26d&e=%C3%BC");
        assert_eq!(encoded("a:b=c"), "a%3Ab%3Dc");
        assert_eq!(
            refusal(400, r#"{"error":"invalid_grant","error_description":"gone","access_token":"x"}"#),
            "invalid_grant gone"
        );
        assert_eq!(refusal(418, "<html>token</html>"), "HTTP 418");
    }
}

//! Logins at MCP servers, by OAuth 2.1 as the protocol of MCP has it: discovery, a client of our own, PKCE, `resource`.
//!
//! A call whose server asks for a login waits in a hold. The owner of its run is led to the authorization server by a
//! page of ours and comes back to `/login/callback`. In between, everything that must not be lost or guessed is in a
//! sealed cookie of that one browser: any node can finish the login, also after a restart. The tokens are sealed too
//! (the vault of the engine), and belong to one user and one server.

mod discover;
mod tokens;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use futures_util::future::BoxFuture;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use standfast_core::body::Body;
use standfast_core::command::SuspendFor;
use standfast_core::digest;
use standfast_core::hold::Ask;
use standfast_core::id::{HoldId, Secret};
use standfast_core::json::RawJson;
use standfast_core::name::UserId;
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::clock::{Clock, random_bytes};
use standfast_engine::outbound::guard::Guard;
use standfast_engine::tool::Suspension;
use standfast_engine::tool::login::{
    AuthorizationResponse, CALLBACK, LoginDesk, NoLogin, ON_THE_WAY, StartedLogin, cookie_name,
};
use standfast_engine::vault::Vault;
use tokio::sync::{Mutex, Notify};

use self::discover::AuthorizationServer;
use self::tokens::{Client, Login};

/// How long a person may take at the authorization server.
const TIME_TO_LOG_IN: Millis = Millis::seconds(15 * 60);

/// Where browsers find this server, and who is notified of changes of logins.
#[derive(Debug, Default)]
pub struct Site {
    address: OnceLock<String>,
    news: Notify,
}

impl Site {
    /// Where it listens: what counts where nobody said under which address others reach it.
    pub fn listens_on(&self, address: String) {
        let _ = self.address.set(address);
    }

    /// What a server offers is known now, and was not when the configuration was read.
    pub fn tell(&self) {
        self.news.notify_one();
    }

    /// Waits for such news.
    pub async fn news(&self) {
        self.news.notified().await;
    }
}

/// What logins need of this server.
#[derive(Debug, Clone)]
pub struct Logins {
    /// Where tokens are kept.
    pub vault: Arc<Vault>,
    /// Where browsers find this server.
    pub site: Arc<Site>,
}

/// A client that was registered by hand.
#[derive(Clone)]
pub struct OwnClient {
    /// Its id.
    pub id: String,
    /// Its secret, if it has one. Never listed or logged.
    pub secret: Option<String>,
}

/// What a desk is for.
pub struct DeskOptions {
    /// What the configuration calls the MCP server.
    pub server: String,
    /// Its address.
    pub url: String,
    /// What is sent to it with every request.
    pub headers: BTreeMap<String, String>,
    /// A client that was registered by hand; without it one is registered.
    pub client: Option<OwnClient>,
    /// What is asked for, instead of what the server names.
    pub scopes: Option<Vec<String>>,
    /// Which addresses are called: the server's own, public ones, and those that are named.
    pub guard: Guard,
    /// The address that others reach this server by.
    pub public_url: Option<String>,
}

/// Logs people in at one MCP server.
pub struct Desk {
    options: DeskOptions,
    logins: Logins,
    clock: Clock,
    /// So that a token is not renewed twice at the same moment.
    renewing: Mutex<()>,
    /// What the server last said of the login that it wants.
    challenge: RwLock<String>,
}

/// What must not be lost or guessed while a browser is at the authorization server.
#[derive(Serialize, Deserialize)]
struct OnTheWay {
    hold: String,
    state: String,
    verifier: String,
    redirect_uri: String,
    issuer: String,
    names_issuer: bool,
    token_endpoint: String,
    client: Client,
    resource: String,
    scopes: Vec<String>,
    until: Timestamp,
}

struct Sha([u8; 32]);

impl Sha {
    fn of(text: &str) -> Sha {
        Sha(Sha256::digest(text.as_bytes()).into())
    }
}

impl Desk {
    /// A desk for one server.
    #[must_use]
    pub fn new(options: DeskOptions, logins: Logins, clock: Clock) -> Desk {
        Desk { options, logins, clock, renewing: Mutex::default(), challenge: RwLock::default() }
    }

    /// What the configuration calls the server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.options.server
    }

    /// Where the server is, and what is sent to it with every request.
    pub(super) fn address(&self) -> (String, BTreeMap<String, String>) {
        (self.options.url.clone(), self.options.headers.clone())
    }

    /// Where tokens are kept.
    #[must_use]
    pub fn vault(&self) -> &Vault {
        &self.logins.vault
    }

    /// What a server offers is known now.
    pub fn tell(&self) {
        self.logins.site.tell();
    }

    /// Remembers what the server said of the login that it wants.
    pub(super) fn was_told(&self, challenge: &str) {
        challenge.clone_into(&mut self.challenge.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn challenge(&self) -> String {
        self.challenge.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn base(&self) -> Result<String, NoLogin> {
        let known = self.options.public_url.as_deref().or(self.logins.site.address.get().map(String::as_str));
        let known = known.ok_or_else(|| NoLogin("this server does not know its own address yet".into()))?;
        Ok(known.trim_end_matches('/').to_owned())
    }

    /// What a person is asked for a login. The hold is known before, so that the address can name it.
    pub async fn asks(&self, hold: HoldId, owner: &UserId) -> Suspension {
        let server = self.server();
        let found = match self.discover().await {
            Ok(found) => self.base().map(|base| (found, format!("{base}/login/{hold}"))),
            Err(why) => Err(why),
        };
        let ask = match found {
            Ok((found, auth_url)) => {
                let question = format!(
                    "The MCP server `{server}` wants a login at {}. Open {auth_url} in a browser and log in there; the run \
                     goes on by itself. Runs of {owner} use this login from then on.",
                    found.issuer
                );
                let data = json!({
                    "server_name": server,
                    "auth_server": found.issuer,
                    "scopes": found.scopes,
                    "auth_url": auth_url,
                });
                Ask {
                    reason: Some(format!("the MCP server `{server}` requires a login")),
                    question: Some(Body::text(question)),
                    data: RawJson::parse(&data.to_string()).ok().map(Body::Json),
                    ..Ask::default()
                }
            }
            Err(NoLogin(why)) => {
                let said = match self.challenge() {
                    said if said.is_empty() => String::new(),
                    said => format!(" It said: {said}"),
                };
                let reason = format!(
                    "the MCP server `{server}` requires a login, and the login cannot be started: {why}.{said}"
                );
                let question = "Repair what is named, or give the server's entry below `tools` a header that it takes; \
                                then answer: the call is made again.";
                Ask { reason: Some(reason), question: Some(Body::text(question)), ..Ask::default() }
            }
        };
        let secret: Option<Secret> = Some(hold.key.secret);
        Suspension { kind: SuspendFor::Auth, ask, timeout: None, secret }
    }

    async fn discover(&self) -> Result<AuthorizationServer, NoLogin> {
        discover::find(self, &self.challenge()).await
    }

    /// Begins a login for a hold.
    pub async fn begin(&self, hold: HoldId) -> Result<StartedLogin, NoLogin> {
        let (found, base) = (self.discover().await?, self.base()?);
        let redirect_uri = format!("{base}{CALLBACK}");
        let client = self.client(&found, &base, &redirect_uri).await?;
        let random = || BASE64_URL_SAFE_NO_PAD.encode(random_bytes::<32>());
        let (state, verifier) = (random(), random());
        let Sha(hash) = Sha::of(&verifier);
        let mut url = Url::parse(&found.authorization_endpoint)
            .map_err(|error| NoLogin(format!("the address of the login page is invalid: {error}")))?;
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &client.id)
            .append_pair("redirect_uri", &redirect_uri)
            .append_pair("state", &state)
            .append_pair("code_challenge", &BASE64_URL_SAFE_NO_PAD.encode(hash))
            .append_pair("code_challenge_method", "S256")
            .append_pair("resource", &found.resource);
        if !found.scopes.is_empty() {
            url.query_pairs_mut().append_pair("scope", &found.scopes.join(" "));
        }
        let way = OnTheWay {
            hold: hold.to_string(),
            state: state.clone(),
            verifier,
            redirect_uri,
            issuer: found.issuer,
            names_issuer: found.names_issuer,
            token_endpoint: found.token_endpoint,
            client,
            resource: found.resource,
            scopes: found.scopes,
            until: self.clock.now().plus(TIME_TO_LOG_IN),
        };
        let way = serde_json::to_string(&way).map_err(|error| NoLogin(error.to_string()))?;
        let cookie = (cookie_name(&state), self.vault().seal(ON_THE_WAY, &way));
        Ok(StartedLogin { url: url.into(), cookie })
    }

    /// Finishes a login with what the browser came back with, and keeps the tokens for this user.
    pub async fn finish(
        &self,
        hold: HoldId,
        owner: &UserId,
        cookie: &str,
        returned: &AuthorizationResponse,
    ) -> Result<(), NoLogin> {
        let no = |why: &str| NoLogin(why.to_owned());
        let way = self.vault().open(ON_THE_WAY, cookie);
        let way: Option<OnTheWay> = way.and_then(|way| serde_json::from_str(&way).ok());
        let way = way.filter(|way| {
            way.hold == hold.to_string()
                && returned.state.as_deref().is_some_and(|state| same(state, &way.state))
        });
        let way = way.ok_or_else(|| no("this login was not started in this browser; start it again"))?;
        if self.clock.now() > way.until {
            return Err(no("the login expired; start it again"));
        }
        // Whoever answers must be whom the browser was sent to, or a code could be meant for somebody else (RFC 9207).
        match &returned.iss {
            Some(issuer) if !discover::is_same_issuer(issuer, &way.issuer) => {
                return Err(NoLogin(format!(
                    "the answer comes from {issuer:?}, and not from {}",
                    way.issuer
                )));
            }
            None if way.names_issuer => {
                return Err(NoLogin(format!("the answer does not say that it comes from {}", way.issuer)));
            }
            Some(_) | None => {}
        }
        if let Some(error) = &returned.error {
            let more = returned.error_description.as_deref().unwrap_or_default();
            return Err(NoLogin(
                format!("{} refused the login: {error} {more}", way.issuer).trim_end().to_owned(),
            ));
        }
        let code = returned.code.as_deref().ok_or_else(|| no("the answer has no code"))?;
        let login = self.exchanged(&way, code).await?;
        self.keep(owner, &login).await
    }

    /// Under what the login of a user is kept: another address is another server.
    fn place(&self, owner: &UserId) -> String {
        self.named("login", owner.as_str())
    }

    fn named(&self, what: &str, of: &str) -> String {
        let parts = [self.options.server.as_bytes(), self.options.url.as_bytes(), of.as_bytes()];
        format!("{what} {}", digest::of_parts("standfast.login.1", &parts))
    }

    async fn keep(&self, owner: &UserId, login: &Login) -> Result<(), NoLogin> {
        let text = serde_json::to_string(login).map_err(|error| NoLogin(error.to_string()))?;
        self.vault().put(&self.place(owner), &text).await.map_err(|error| NoLogin(error.to_string()))
    }

    /// Remembers what the server offers, for a start at which nobody is logged in.
    pub(super) async fn remember(&self, tools: &[rmcp::model::Tool]) {
        let Ok(text) = serde_json::to_string(tools) else { return };
        let name = self.named("offers", "");
        match self.vault().get(&name).await {
            Ok(Some(kept)) if kept.text == text => {}
            Ok(_) | Err(_) => {
                if let Err(error) = self.vault().put(&name, &text).await {
                    tracing::warn!(server = self.server(), %error, "mcp: could not cache the tools of the server");
                }
            }
        }
    }

    /// What the server offered the last time that anybody could ask it.
    pub(super) async fn remembered(&self) -> Option<Vec<rmcp::model::Tool>> {
        let kept = self.vault().get(&self.named("offers", "")).await.ok()??;
        serde_json::from_str(&kept.text).ok()
    }

    /// Whether that is known.
    pub async fn knows_offers(&self) -> bool {
        self.remembered().await.is_some()
    }
}

/// Compares in a time that says nothing about where they differ.
fn same(given: &str, ours: &str) -> bool {
    let differ = given.bytes().zip(ours.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b));
    given.len() == ours.len() && differ == 0
}

impl LoginDesk for Desk {
    fn server(&self) -> &str {
        Desk::server(self)
    }

    fn asks<'a>(&'a self, hold: HoldId, owner: &'a UserId) -> BoxFuture<'a, Suspension> {
        Box::pin(Desk::asks(self, hold, owner))
    }

    fn begin(&self, hold: HoldId) -> BoxFuture<'_, Result<StartedLogin, NoLogin>> {
        Box::pin(Desk::begin(self, hold))
    }

    fn finish<'a>(
        &'a self,
        hold: HoldId,
        owner: &'a UserId,
        cookie: &'a str,
        returned: &'a AuthorizationResponse,
    ) -> BoxFuture<'a, Result<(), NoLogin>> {
        Box::pin(Desk::finish(self, hold, owner, cookie, returned))
    }

    fn learn<'a>(self: Arc<Self>, user: &'a UserId) -> BoxFuture<'a, Result<(), NoLogin>> {
        Box::pin(async move { Desk::learn(&self, user).await })
    }

    fn knows_offers(&self) -> BoxFuture<'_, bool> {
        Box::pin(Desk::knows_offers(self))
    }

    fn tell(&self) {
        Desk::tell(self);
    }
}

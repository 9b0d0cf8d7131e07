//! Logins that tools need: what the engine asks of whoever logs people in, and what passes between them.
//!
//! The engine leads the owner of a run to an authorization server and back; it does not know how tokens are got or kept.
//! Whoever knows that (for MCP servers `mcp/login.rs` of the tools) is a [`LoginDesk`].

use std::sync::Arc;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use standfast_core::base32;
use standfast_core::digest;
use standfast_core::id::HoldId;
use standfast_core::name::{Tenant, UserId};

use super::Suspension;
use crate::vault::Vault;

/// The path that authorization servers send browsers back to.
pub const CALLBACK: &str = "/login/callback";

/// The path of the document that describes this server to authorization servers that read such documents.
pub const CLIENT_DOCUMENT: &str = "/login/client.json";

/// What is sealed in the cookie of a browser on its way. Whatever else it has, it has the id of the hold as `hold`.
pub const ON_THE_WAY: &str = "login on its way";

/// Why there is no login, for the person who wanted one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoLogin(pub String);

/// A login that has begun.
pub struct StartedLogin {
    /// Where the browser goes.
    pub url: String,
    /// What it brings back: the name of a cookie and its value.
    pub cookie: (String, String),
}

/// What an authorization server sent a browser back with.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct AuthorizationResponse {
    /// What names the login that was begun.
    pub state: Option<String>,
    /// What tokens are got for.
    pub code: Option<String>,
    /// Who says so.
    pub iss: Option<String>,
    /// Why there is no code.
    pub error: Option<String>,
    /// The same in words.
    pub error_description: Option<String>,
}

impl AuthorizationResponse {
    /// The cookie that must come with it.
    #[must_use]
    pub fn cookie(&self) -> Option<String> {
        self.state.as_deref().map(cookie_name)
    }
}

/// Logs people in at one server.
pub trait LoginDesk: Send + Sync {
    /// What the configuration calls the server.
    fn server(&self) -> &str;

    /// What a person is asked for a login. The hold is known before, so that the address can name it.
    fn asks<'a>(&'a self, hold: HoldId, owner: &'a UserId) -> BoxFuture<'a, Suspension>;

    /// Begins a login for a hold.
    fn begin(&self, hold: HoldId) -> BoxFuture<'_, Result<StartedLogin, NoLogin>>;

    /// Finishes a login with what the browser came back with, and keeps the tokens for this user.
    fn finish<'a>(
        &'a self,
        hold: HoldId,
        owner: &'a UserId,
        cookie: &'a str,
        returned: &'a AuthorizationResponse,
    ) -> BoxFuture<'a, Result<(), NoLogin>>;

    /// Asks the server what it offers with the login of this user, and remembers it.
    fn learn<'a>(self: Arc<Self>, user: &'a UserId) -> BoxFuture<'a, Result<(), NoLogin>>;

    /// Whether it is known what the server offers.
    fn knows_offers(&self) -> BoxFuture<'_, bool>;

    /// Says that what the server offers is known now, and was not when the configuration was read.
    fn tell(&self);
}

/// Under what name the logins of a user are kept: users of the same name in two tenants are two people.
#[must_use]
pub fn account(tenant: &Tenant, owner: &UserId) -> UserId {
    if *tenant == Tenant::default_tenant() {
        return owner.clone();
    }
    let parts = [tenant.as_str().as_bytes(), owner.as_str().as_bytes()];
    let digest::Digest(bytes) = digest::of_parts("standfast.account.1", &parts);
    let tag = base32::encode(bytes.get(..15).unwrap_or_default());
    // A name that would be too long is shown by its tag alone.
    UserId::new(format!("{owner} of {tenant} ({tag})")).unwrap_or_else(|_| match UserId::new(tag) {
        Ok(account) => account,
        Err(bad) => unreachable!("24 letters and digits are a name: {bad}"),
    })
}

/// The cookie that belongs to a state.
#[must_use]
pub fn cookie_name(state: &str) -> String {
    let hash: [u8; 32] = Sha256::digest(state.as_bytes()).into();
    format!("standfast_login_{}", BASE64_URL_SAFE_NO_PAD.encode(hash.get(..9).unwrap_or_default()))
}

/// Which hold a login is for, by the cookie of the browser that comes back.
#[must_use]
pub fn hold_of(vault: &Vault, cookie: &str) -> Option<HoldId> {
    #[derive(Deserialize)]
    struct OnTheWay {
        hold: String,
    }
    let way: OnTheWay = serde_json::from_str(&vault.open(ON_THE_WAY, cookie)?).ok()?;
    way.hold.parse().ok()
}

/// Describes this server to an authorization server: the client's own document, or a registration.
#[must_use]
pub fn client_document(base: &str) -> serde_json::Value {
    let base = base.trim_end_matches('/');
    json!({
        "client_id": format!("{base}{CLIENT_DOCUMENT}"),
        "client_name": "Standfast",
        "client_uri": base,
        "redirect_uris": [format!("{base}{CALLBACK}")],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    })
}

//! What the server asks of an identity provider at which people sign in (OpenID Connect): where to send a browser, whom the
//! provider says that it was, and whether it still says so.
//!
//! How it is asked and what its tokens must be is not known here: see `jwt` of the surfaces. What becomes of a sign-in, a
//! session, is `identity/sign_ins.rs`. Whom claims stand for is told by the same function as for bearer tokens.

use std::fmt;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use standfast_core::time::Millis;

use super::principal::Principal;
use crate::clock::Clock;

/// A provider at which people sign in.
pub trait SignInProvider: fmt::Debug + Send + Sync {
    /// What is configured of it.
    fn terms(&self) -> &SignInTerms;

    /// Where a browser goes to sign in.
    fn authorization_url<'a>(
        &'a self,
        request: &'a AuthorizationRequest,
        clock: &'a Clock,
    ) -> BoxFuture<'a, Result<String, SignInError>>;

    /// Who signed in, by what the browser came back with.
    fn redeem<'a>(
        &'a self,
        request: &'a AuthorizationRequest,
        code: &'a AuthorizationCode,
        clock: &'a Clock,
    ) -> BoxFuture<'a, Result<ProvenSignIn, SignInError>>;

    /// Who signed in, by an ID token that the command line got for itself.
    fn accept<'a>(
        &'a self,
        id_token: &'a str,
        clock: &'a Clock,
    ) -> BoxFuture<'a, Result<ProvenSignIn, SignInError>>;

    /// Whom the provider says it is now; refused when they may not be signed in any more.
    fn renew<'a>(
        &'a self,
        client: SessionClient,
        refresh_token: &'a str,
        clock: &'a Clock,
    ) -> BoxFuture<'a, Result<ProvenSignIn, SignInError>>;

    /// Whose sessions a logout token of the provider ends.
    fn logout_notice<'a>(
        &'a self,
        token: &'a str,
        clock: &'a Clock,
    ) -> BoxFuture<'a, Result<LogoutNotice, SignInError>>;

    /// Where a browser goes to sign out at the provider as well, if it has such a place.
    fn sign_out_url<'a>(&'a self, back_to: &'a str, clock: &'a Clock) -> BoxFuture<'a, Option<String>>;
}

/// What is configured of signing in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignInTerms {
    /// Who the provider is, exactly as in its tokens.
    pub issuer: String,
    /// What it is called on the button.
    pub label: String,
    /// How often it is asked whether somebody who signed in still is who they were.
    pub renew_every: Millis,
    /// What is asked for.
    pub scopes: Vec<String>,
    /// The client id of the command line; without it nobody signs in there.
    pub command_line_client: Option<String>,
}

/// What a browser is sent to the provider with. Kept, sealed, by that browser until it comes back.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationRequest {
    /// Comes back with the browser.
    pub state: String,
    /// Comes back in the ID token.
    pub nonce: String,
    /// What the code is redeemed with (PKCE).
    pub verifier: String,
    /// Where the browser comes back to.
    pub redirect_uri: String,
    /// How long ago the person may have signed in at the provider; older makes it ask them again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Millis>,
}

/// Never what is in it: with verifier and code somebody else could sign in.
impl fmt::Debug for AuthorizationRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AuthorizationRequest({}, ..)", self.redirect_uri)
    }
}

/// What a browser comes back with.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthorizationCode {
    /// The code.
    pub code: String,
    /// Who says that they issued it (RFC 9207).
    pub issuer: Option<String>,
}

/// Which program a session belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionClient {
    /// A browser, by its cookie.
    #[default]
    Browser,
    /// The command line, by a token in its profile.
    CommandLine,
}

/// Somebody of whom the provider says that they signed in.
#[derive(Clone, PartialEq, Eq)]
pub struct ProvenSignIn {
    /// Who, by the same claims as those of bearer tokens; identified by a token that says when they signed in.
    pub who: Principal,
    /// The provider's own name of them.
    pub subject: String,
    /// The provider's session, if it has a name.
    pub provider_session: Option<String>,
    /// The nonce of the ID token.
    pub nonce: Option<String>,
    /// What the provider is asked with whether they still are who they were.
    pub refresh_token: Option<String>,
}

/// Whose sessions are to be ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogoutNotice {
    /// The provider's own name of somebody.
    pub subject: String,
    /// The one session of theirs; none means all.
    pub provider_session: Option<String>,
}

/// Why nobody is signed in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignInError {
    /// The provider, or what it sent, does not let them in.
    #[error("{0}")]
    Refused(String),
    /// The provider cannot be asked now.
    #[error("the identity provider cannot be reached: {0}")]
    Unavailable(String),
}

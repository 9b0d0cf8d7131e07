//! Tokens of an identity provider: whom they stand for, checked with the keys that it publishes; and signing in there.
//!
//! `token.rs` says what a token must be, `id_token.rs` what one of a sign-in or a logout must be beside that, `jwks.rs` reads
//! the provider's keys, `key_source.rs` says when they are fetched and what happens while they cannot be, `discovery.rs` what the
//! provider publishes of itself, `sign_in_client.rs` how people sign in, `issuer.rs` is all of it. What a principal may do is not
//! its business: that is `auth`.

mod discovery;
mod id_token;
mod issuer;
mod jwks;
mod key_source;
mod sign_in_client;
#[cfg(test)]
mod strangers;
mod token;

pub use issuer::{BadIssuer, Issuer, IssuerSettings, TRY_AGAIN, TokenError};
pub use jwks::{BadAddress, keys_address};
pub use sign_in_client::SignInSettings;
pub use token::{MAX_TOKEN, TokenRefusal, TokenRules};

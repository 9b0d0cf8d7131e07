//! Tokens of an identity provider: whom they stand for, checked with the keys that it publishes.
//!
//! `token.rs` says what a token must be, `jwks.rs` reads the provider's keys, `issuer.rs` when they are fetched and what
//! happens while they cannot be. What a principal may do is not its business: that is `auth`.

mod issuer;
mod jwks;
mod token;

pub use issuer::{BadIssuer, Issuer, IssuerSettings, TRY_AGAIN, TokenError};
pub use jwks::{BadAddress, keys_address};
pub use token::{MAX_TOKEN, TokenRefusal, TokenRules};

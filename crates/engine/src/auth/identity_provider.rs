//! What the server asks of an identity provider: whom a token stands for.
//!
//! How tokens are checked, and where the keys for that come from, is not known here: see `jwt`.

use std::any::Any;
use std::fmt;

use futures_util::future::BoxFuture;
use standfast_core::time::Millis;

use super::principal::Principal;
use super::sign_in_provider::SignInProvider;
use crate::clock::Clock;

/// Somebody whose tokens say who is calling.
pub trait IdentityProvider: Any + fmt::Debug + Send + Sync {
    /// Whom a token stands for.
    fn identify<'a>(&'a self, token: &'a str, clock: &'a Clock)
    -> BoxFuture<'a, Result<Principal, NotLetIn>>;

    /// Keeps what tokens are checked with fresh, for ever.
    fn keep_fresh<'a>(&'a self, clock: &'a Clock) -> BoxFuture<'a, ()>;

    /// The same provider where people sign in, if they may.
    fn sign_in(&self) -> Option<&dyn SignInProvider>;

    /// Whether both are configured the same.
    fn is_same(&self, other: &dyn IdentityProvider) -> bool;
}

impl PartialEq for dyn IdentityProvider {
    fn eq(&self, other: &dyn IdentityProvider) -> bool {
        self.is_same(other)
    }
}

impl Eq for dyn IdentityProvider {}

/// Why a token lets nobody in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotLetIn {
    /// It opens nothing. Why is in the log.
    Refused,
    /// It cannot be told: there are no keys that may be used.
    NoKeys {
        /// When to ask again.
        retry_after: Millis,
    },
}

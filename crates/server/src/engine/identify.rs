//! Who is behind a key or a token, and what their credential is for.
//!
//! The store is asked each time, so that a key works as soon as it is made and stops as soon as it is revoked. Scopes
//! are checked here, below every surface: all changes come through the engine, so no route can forget it.

use super::{Engine, EngineError};
use crate::auth::{ApiKey, Issuer, NotLetIn, Principal, Scope};

impl Engine {
    /// Whom a key stands for; none when it opens nothing.
    pub async fn identify(&self, key: &ApiKey) -> Result<Option<Principal>, EngineError> {
        let kept = self.shared.store.credential(key.prefix().to_owned()).await?;
        Ok(kept.and_then(|kept| key.opens(&kept, self.shared.clock.now())))
    }

    /// Whom a token of an identity provider stands for.
    pub async fn identify_token(&self, issuer: &Issuer, token: &str) -> Result<Principal, NotLetIn> {
        issuer.identify(token, &self.shared.clock).await
    }
}

/// Refuses a caller whose credential is not for this.
pub(super) fn needs(who: &Principal, scope: Scope) -> Result<(), EngineError> {
    match who.has(scope) {
        true => Ok(()),
        false => Err(EngineError::MissingScope(scope)),
    }
}

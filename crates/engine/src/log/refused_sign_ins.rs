//! That somebody showed a key that opens nothing, of which it is known whose it is or was: entries of that tenant's audit.
//!
//! What cannot be a key, and keys that nobody knows, are in the log of the server: they are nobody's. An entry has the part of the key
//! that is no secret, and there is a bound for each user (`throttle.rs`).

use serde::Serialize;
use standfast_core::name::UserId;
use standfast_store::Credential;

use super::Log;
use super::throttle::{Throttle, is_none};
use crate::auth::{KeyEnd, KeyFacts, stands_for};
use crate::request_context;

/// Whose keys have been refused lately.
#[derive(Debug, Default)]
pub(crate) struct RefusedSignIns(Throttle);

/// The entry.
#[derive(Debug, Serialize)]
struct RefusedSignIn<'a> {
    kind: &'static str,
    user: &'a UserId,
    by: &'static str,
    key: &'a str,
    channel: &'static str,
    why: &'static str,
    #[serde(skip_serializing_if = "is_none")]
    left_out: u32,
}

impl RefusedSignIns {
    /// Writes an entry about a key that opened nothing. A store that cannot keep it changes nothing of the no.
    pub(crate) async fn record(&self, log: &Log, kept: &Credential) {
        let now = log.host.clock.now();
        let Ok(KeyFacts { user, .. }) = serde_json::from_str(&kept.facts) else { return };
        let Some(left_out) = self.0.count(&kept.tenant, &user, now) else { return };
        let why = match stands_for(kept, now) {
            Err(KeyEnd::Revoked) => "revoked",
            Err(KeyEnd::Expired) => "expired",
            Err(KeyEnd::Unreadable) => "unreadable",
            // The part of it that is no secret is right, the rest is not.
            Ok(_) => "wrong_secret",
        };
        let (kind, channel) = ("sign_in.refused", request_context::channel().as_str());
        let entry =
            RefusedSignIn { kind, user: &user, by: "api_key", key: &kept.prefix, channel, why, left_out };
        let entry = serde_json::to_string(&entry).unwrap_or_default();
        if let Err(error) = log.store.put_audit(kept.tenant.clone(), now, entry).await {
            tracing::warn!(%user, %error, "audit: a refused sign-in could not be recorded");
        }
    }
}

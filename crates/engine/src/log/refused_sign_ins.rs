//! That somebody showed a key that opens nothing, of which it is known whose it is or was: entries of that tenant's audit. And that a
//! sign-in at the identity provider was refused, by it or because of what it sent: entries of the usual tenant, as it is nobody's.
//!
//! What cannot be a key, and keys that nobody knows, are in the log of the server: they are nobody's. An entry has the part of the key
//! that is no secret, and there is a bound for each user, and for the provider (`throttle.rs`).

use serde::Serialize;
use standfast_core::name::{Tenant, UserId};
use standfast_store::Credential;

use super::Log;
use super::throttle::{Throttle, is_none};
use crate::auth::{KeyEnd, KeyFacts, SessionClient, stands_for};
use crate::request_context;

/// Whose keys have been refused lately, and how often sign-ins at the provider were.
#[derive(Debug, Default)]
pub(crate) struct RefusedSignIns {
    of_users: Throttle,
    at_provider: Throttle,
}

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

/// The entry of a sign-in at the provider. Who it would have been nobody has proven.
#[derive(Debug, Serialize)]
struct RefusedAtProvider<'a> {
    kind: &'static str,
    by: &'static str,
    client: SessionClient,
    channel: &'static str,
    why: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(skip_serializing_if = "is_none")]
    left_out: u32,
}

impl RefusedSignIns {
    /// Writes an entry about a sign-in that the provider, or what it sent, did not let in.
    pub(crate) async fn record_at_provider(
        &self,
        log: &Log,
        client: SessionClient,
        (why, detail): (&'static str, Option<&str>),
    ) {
        let (tenant, now) = (Tenant::default_tenant(), log.host.clock.now());
        let Some(left_out) = self.at_provider.count(&tenant, &UserId::local(), now) else { return };
        let (kind, by) = ("sign_in.refused", "identity_provider");
        let channel = request_context::channel().as_str();
        let entry = RefusedAtProvider { kind, by, client, channel, why, detail, left_out };
        let entry = serde_json::to_string(&entry).unwrap_or_default();
        if let Err(error) = log.store.put_audit(tenant, now, entry).await {
            tracing::warn!(%error, "audit: a refused sign-in at the identity provider could not be recorded");
        }
    }

    /// Writes an entry about a key that opened nothing. A store that cannot keep it changes nothing of the no.
    pub(crate) async fn record(&self, log: &Log, kept: &Credential) {
        let now = log.host.clock.now();
        let Ok(KeyFacts { user, .. }) = serde_json::from_str(&kept.facts) else { return };
        let Some(left_out) = self.of_users.count(&kept.tenant, &user, now) else { return };
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

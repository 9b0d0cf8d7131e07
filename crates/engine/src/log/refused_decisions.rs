//! That somebody tried to decide what they may not: entries of their tenant's audit.
//!
//! Only of those whom the run is visible to, or whose credential is not for deciding: whoever guesses ids is told that there is
//! nothing, and the log of the server says so. Every entry is a write, so there is a bound for each user (`throttle.rs`).

use serde::Serialize;
use standfast_core::id::HoldId;
use standfast_core::name::UserId;
use standfast_core::refusal::Refusal;

use super::Log;
use super::throttle::{Throttle, is_none};
use crate::EngineError;
use crate::auth::{Identification, Principal};
use crate::request_context;

/// Who has tried lately what they may not.
#[derive(Debug, Default)]
pub(crate) struct RefusedDecisions(Throttle);

/// The entry.
#[derive(Debug, Serialize)]
struct RefusedDecision<'a> {
    kind: &'static str,
    user: &'a UserId,
    /// How they were identified, without anything that one could sign in with.
    by: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    holds: Vec<String>,
    channel: &'static str,
    why: &'static str,
    #[serde(skip_serializing_if = "is_none")]
    left_out: u32,
}

impl RefusedDecisions {
    /// Writes an entry, if it was a no that says who may decide. A store that cannot keep it changes nothing of the no.
    pub(crate) async fn record(&self, log: &Log, who: &Principal, holds: Vec<HoldId>, error: &EngineError) {
        let Some(why) = why(error) else { return };
        let now = log.host.clock.now();
        let Some(left_out) = self.0.count(&who.tenant, &who.user, now) else { return };
        let (by, key) = shown_by(who);
        let holds = holds.iter().map(ToString::to_string).collect();
        let (kind, channel) = ("decision.refused", request_context::channel().as_str());
        let entry = RefusedDecision { kind, user: &who.user, by, key, holds, channel, why, left_out };
        let entry = serde_json::to_string(&entry).unwrap_or_default();
        if let Err(error) = log.store.put_audit(who.tenant.clone(), now, entry).await {
            tracing::warn!(user = %who.user, %error, "audit: a refused decision could not be recorded");
        }
    }
}

/// How somebody was identified, without anything that one could sign in with.
pub(super) fn shown_by(who: &Principal) -> (&'static str, Option<&str>) {
    match &who.by {
        Identification::Local => ("nothing", None),
        Identification::ApiKey { prefix } => ("api_key", Some(prefix.as_str())),
        Identification::Token { .. } => ("token", None),
        Identification::Link => ("link", None),
        Identification::Configured => ("configuration", None),
    }
}

/// The no as one word; none where somebody was only late or wrong.
fn why(error: &EngineError) -> Option<&'static str> {
    match error {
        EngineError::Refused(Refusal::NotAllowed(_)) => Some("not_an_approver"),
        EngineError::MissingScope(_) => Some("missing_scope"),
        EngineError::StaleSignIn { .. } => Some("stale_sign_in"),
        EngineError::Refused(_)
        | EngineError::Store(_)
        | EngineError::NoSuchAgent { .. }
        | EngineError::BreaksSchema(_)
        | EngineError::KeyReused { .. }
        | EngineError::SessionClosed { .. }
        | EngineError::NotFound => None,
    }
}

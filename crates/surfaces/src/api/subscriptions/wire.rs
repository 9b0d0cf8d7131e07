//! The bodies of subscriptions, as clients write and read them.
//!
//! A secret is in the answer that makes it, and in no other.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A webhook subscription: who is notified of what.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"url": "https://example.com/hooks/standfast", "agent": "ops", "events": ["hold.opened"]}))]
pub(super) struct NewSubscriptionBody {
    /// Where to send: https, unless the host is named in the configuration.
    pub(super) url: String,
    /// Only this run.
    pub(super) run: Option<String>,
    /// Only runs of this agent. Without run and agent: everything.
    pub(super) agent: Option<String>,
    /// Kinds of events, or `*` for all. Without it: what holds do, and the end of runs.
    pub(super) events: Option<Vec<String>>,
}

/// A subscription.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SubscriptionBody {
    pub(super) id: String,
    pub(super) kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) agent: Option<String>,
    pub(super) url: String,
    pub(super) events: Vec<String>,
    pub(super) owner: String,
    pub(super) state: SubscriptionState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) disabled_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) disabled_because: Option<String>,
    pub(super) created_at: String,
    /// Until when deliveries also have the signature of the secret before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) old_secret_until: Option<String>,
}

/// Whether anything is delivered to it.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum SubscriptionState {
    Active,
    Disabled,
}

/// A subscription with its secret.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WithSecret {
    #[serde(flatten)]
    pub(super) subscription: SubscriptionBody,
    /// What its deliveries are signed with. Keep it: it is not shown again.
    pub(super) secret: String,
}

/// A page of subscriptions.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Subscriptions {
    pub(super) subscriptions: Vec<SubscriptionBody>,
    pub(super) next_cursor: Option<String>,
}

/// Which subscriptions.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SubscriptionsArgs {
    pub(super) cursor: Option<String>,
    pub(super) limit: Option<usize>,
}

/// What came of a test.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PingResult {
    pub(super) delivered: bool,
    /// What the receiver answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// Which dead letters.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DeadLettersArgs {
    #[param(format = "uint64")]
    pub(super) cursor: Option<u64>,
    pub(super) limit: Option<usize>,
}

/// A page of dead letters.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DeadLetters {
    pub(super) dead_letters: Vec<DeadLetterBody>,
    pub(super) next_cursor: Option<String>,
}

/// Events of a run that could not be delivered.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DeadLetterBody {
    pub(super) id: String,
    pub(super) run: String,
    /// The first event that was not delivered.
    pub(super) from_seq: u64,
    /// How often it was tried.
    pub(super) tries: u32,
    pub(super) given_up_at: String,
    /// What happened the last time.
    pub(super) reason: String,
}

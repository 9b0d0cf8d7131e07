//! Why the engine did not do what it was asked: the one error of every component.
//!
//! Surfaces map it to the words of their protocols; nothing here knows one of them.

use standfast_core::name::{AgentName, SessionId};
use standfast_core::refusal::Refusal;
use standfast_core::time::Millis;
use standfast_store::StoreError;

use crate::auth::NamedScope;
use crate::schema::SchemaMismatch;

/// Why the engine did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// A rule refuses it.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The store refuses it, or is not available.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// There is no such agent.
    #[error("there is no agent {agent}; the agents are: {known}")]
    NoSuchAgent {
        /// The name that was asked for.
        agent: AgentName,
        /// The names there are.
        known: String,
    },
    /// Edited arguments or an answer do not keep to their schema.
    #[error("{}", .0.why)]
    BreaksSchema(SchemaMismatch),
    /// An idempotency key was sent before, with another body.
    #[error("the idempotency key {key} was used for another request; a new request needs a new key")]
    KeyReused {
        /// The key.
        key: String,
    },
    /// The conversation takes no more runs.
    #[error("session {session} of agent {agent} is closed; begin another one")]
    SessionClosed {
        /// Of which agent.
        agent: AgentName,
        /// Its name.
        session: SessionId,
    },
    /// The caller's credential is not for this.
    #[error("this needs a key with the scope {0}")]
    MissingScope(NamedScope),
    /// A rule wants whoever approves to have signed in lately, and the caller has not.
    #[error(
        "this approval needs a sign-in at the identity provider within the last {max_age}; API keys and links do not count. Sign in \
         again on the page of the hold, or with `standfast login --fresh URL`, and approve again. A denial needs no sign-in"
    )]
    StaleSignIn {
        /// How long ago it may have been.
        max_age: Millis,
    },
    /// There is nothing with this id that the caller may see.
    #[error("not found")]
    NotFound,
}

impl EngineError {
    /// The rule that denied it, if one did.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            EngineError::Refused(refusal) => Some(refusal),
            EngineError::Store(_)
            | EngineError::NoSuchAgent { .. }
            | EngineError::BreaksSchema(_)
            | EngineError::KeyReused { .. }
            | EngineError::SessionClosed { .. }
            | EngineError::MissingScope(_)
            | EngineError::StaleSignIn { .. }
            | EngineError::NotFound => None,
        }
    }
}

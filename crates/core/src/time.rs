//! Instants and spans as integers.
//!
//! The core never asks what time it is: an instant comes in with each command. Milliseconds since 1970 fit every
//! store and every language that reads the log; zones and calendars belong to the surfaces.

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

/// A span in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub i64);

impl Timestamp {
    /// This instant moved by a span; stays at the end of time instead of wrapping.
    #[must_use]
    pub fn plus(self, span: Millis) -> Timestamp {
        Timestamp(self.0.saturating_add(span.0))
    }

    /// The span from `earlier` to this instant, never negative.
    #[must_use]
    pub fn since(self, earlier: Timestamp) -> Millis {
        Millis(self.0.saturating_sub(earlier.0).max(0))
    }
}

impl Millis {
    /// A span of whole seconds.
    #[must_use]
    pub const fn seconds(n: i64) -> Millis {
        Millis(n.saturating_mul(1000))
    }

    /// A span of whole hours.
    #[must_use]
    pub const fn hours(n: i64) -> Millis {
        Millis::seconds(n.saturating_mul(3600))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_never_wrap_and_never_run_backwards() {
        assert_eq!(Timestamp(i64::MAX).plus(Millis::hours(1)), Timestamp(i64::MAX));
        assert_eq!(Timestamp(5).since(Timestamp(9)), Millis(0));
        assert_eq!(Millis::seconds(i64::MAX), Millis(i64::MAX));
    }
}

//! Instants and spans as integers.
//!
//! The core never asks what time it is: an instant comes in with each command. Milliseconds since 1970 fit every
//! store and every language that reads the log; zones and calendars belong to the surfaces.

use std::fmt;

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

/// As people say it: the largest unit that leaves nothing over.
impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
        let fits = units.into_iter().find(|(unit, _)| self.0 > 0 && self.0 % unit == 0);
        let (unit, name) = fits.unwrap_or((1, "ms"));
        write!(f, "{}{name}", self.0 / unit)
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

    #[test]
    fn a_span_is_said_in_its_largest_whole_unit() {
        let said =
            [86_400_000, 90_000_000, 120_000, 61_000, 1_500, 0, -60_000].map(|ms| Millis(ms).to_string());
        assert_eq!(said, ["1d", "25h", "2m", "61s", "1500ms", "0ms", "-60000ms"]);
    }
}

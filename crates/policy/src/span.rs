//! Spans of time as the configuration writes them: `90`, `30s`, `10m`, `24h`, `7d`.
//!
//! The same forms that the rest of the configuration takes. Knows nothing of calendars: those are `hours.rs`.

use std::fmt;

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use standfast_core::time::Millis;

/// A span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Millis);

impl Span {
    /// Reads a whole number of seconds, or a number with its unit.
    #[must_use]
    pub fn parse(text: &str) -> Option<Span> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at_checked(digits)?;
        let unit = match unit {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        number.parse::<i64>().ok()?.checked_mul(unit).map(|millis| Span(Millis(millis)))
    }

    /// A number of days.
    #[must_use]
    pub const fn days(n: i64) -> Span {
        Span(Millis::hours(n.saturating_mul(24)))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = Span;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("seconds, or a duration such as 30s, 10m, 24h or 7d")
            }
            fn visit_u64<E: Error>(self, seconds: u64) -> Result<Span, E> {
                self.visit_str(&seconds.to_string())
            }
            fn visit_i64<E: Error>(self, seconds: i64) -> Result<Span, E> {
                self.visit_str(&seconds.to_string())
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
                Span::parse(text).ok_or_else(|| {
                    E::custom(format!("{text:?} is not a duration; write 600, 30s, 10m, 24h or 7d"))
                })
            }
        }
        deserializer.deserialize_any(V)
    }
}

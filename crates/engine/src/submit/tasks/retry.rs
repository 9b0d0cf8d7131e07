//! When a failed task is tried again (S4-29): which errors look as if they may pass, and how long to wait.
//!
//! How often is the core's business: it counts the attempts.

use standfast_core::command::Entropy;
use standfast_core::time::Millis;

/// The first pause; each further one is twice as long.
const FIRST: i64 = 1_000;
/// No pause is longer.
const LONGEST: i64 = 60 * 60 * 1_000;

/// Words of errors that may pass by themselves.
const TRANSIENT: [&str; 20] = [
    "timeout",
    "timed out",
    "rate limit",
    "too many requests",
    "overloaded",
    "unavailable",
    "temporar",
    "try again",
    "connection",
    "econnreset",
    "econnrefused",
    "etimedout",
    "socket hang up",
    "network",
    "429",
    "502",
    "503",
    "504",
    "529",
    "deadlock",
];

/// Whether an error reads as if it may pass by itself.
pub(super) fn looks_transient(message: &str) -> bool {
    let message = message.to_lowercase();
    TRANSIENT.iter().any(|word| message.contains(word))
}

/// How long to wait after so many attempts: doubled each time, a quarter more or less, so that workers which failed
/// together do not come back together.
pub(super) fn pause(attempts: u32, entropy: &Entropy) -> Millis {
    let doubled = 1_i64.checked_shl(attempts.saturating_sub(1).min(30)).unwrap_or(i64::MAX);
    let plain = FIRST.saturating_mul(doubled).min(LONGEST);
    let [low, high, ..] = entropy.draw("retry", attempts).0;
    let share = i64::from(u16::from_be_bytes([low, high]));
    Millis((plain - plain / 4 + plain / 2 * share / i64::from(u16::MAX)).min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S4-29: 1 s, doubled, up to 1 h, with jitter.
    #[test]
    fn pauses_double_up_to_an_hour() {
        for seed in 0..=255 {
            let entropy = Entropy([seed; 32]);
            let mut before = Millis(0);
            for (attempts, plain) in [(1, 1_000), (2, 2_000), (3, 4_000), (12, 2_048_000)] {
                let pause = pause(attempts, &entropy);
                assert!(pause.0 >= plain * 3 / 4 && pause.0 <= plain * 5 / 4, "{attempts}: {pause:?}");
                assert!(pause > before);
                before = pause;
            }
            for attempts in [13, 64, u32::MAX] {
                let pause = pause(attempts, &entropy).0;
                assert!((LONGEST * 3 / 4..=LONGEST).contains(&pause), "{attempts}: {pause}");
            }
        }
        let pauses: std::collections::BTreeSet<i64> =
            (0..=255).map(|seed| pause(4, &Entropy([seed; 32])).0).collect();
        assert!(pauses.len() > 200, "they come back together");
    }

    /// S4-29: only what looks transient is tried again.
    #[test]
    fn what_may_pass_is_told_by_its_words() {
        for message in
            ["Request timed out", "HTTP 503", "Rate limit exceeded", "read ECONNRESET", "Overloaded"]
        {
            assert!(looks_transient(message), "{message}");
        }
        for message in ["no such customer", "invalid payload", "TypeError: x is not a function", ""] {
            assert!(!looks_transient(message), "{message}");
        }
    }
}

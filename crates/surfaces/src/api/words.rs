//! Words that clients choose from, read so that a slip is answered with the words that there are.
//!
//! `"wait": true` is the common one. A derived reader says of it that a value was expected, which is no help.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

use super::wire::{ResolutionWord, Wait};

/// One of some words.
struct Choice<T: 'static> {
    /// What each word stands for.
    words: &'static [(&'static str, T)],
    /// The words as they are shown to whoever wrote something else.
    expected: &'static str,
}

impl<T: Copy + 'static> Visitor<'_> for Choice<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        let found = self.words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        found.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

impl<'de> Deserialize<'de> for Wait {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Wait, D::Error> {
        from.deserialize_any(Choice {
            words: &[("accepted", Wait::Accepted), ("settled", Wait::Settled)],
            expected: "`wait` to be \"settled\" (respond when the run is held or has ended) or \"accepted\" (respond \
                       when it is durable, the default)",
        })
    }
}

impl<'de> Deserialize<'de> for ResolutionWord {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<ResolutionWord, D::Error> {
        from.deserialize_any(Choice {
            words: &[
                ("approve", ResolutionWord::Approve),
                ("deny", ResolutionWord::Deny),
                ("answer", ResolutionWord::Answer),
                ("fail", ResolutionWord::Fail),
            ],
            expected: "`resolution` to be \"approve\", \"deny\", \"answer\" or \"fail\"",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_answered_with_the_words_that_there_are() {
        for slip in ["true", "1", "null", "\"yes\"", "[]", "{}"] {
            let why = serde_json::from_str::<Wait>(slip).unwrap_err().to_string();
            assert!(why.contains("expected `wait` to be \"settled\""), "{slip}: {why}");
            let why = serde_json::from_str::<ResolutionWord>(slip).unwrap_err().to_string();
            assert!(why.contains("expected `resolution` to be \"approve\", \"deny\""), "{slip}: {why}");
        }
        assert!(matches!(serde_json::from_str("\"settled\""), Ok(Wait::Settled)));
        assert!(matches!(serde_json::from_str("\"deny\""), Ok(ResolutionWord::Deny)));
    }
}

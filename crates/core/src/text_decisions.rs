//! What free text means to a hold (C20, C23).
//!
//! A run is never decided by accident: text decides an approval only if it is one word of a fixed list. Which hold a
//! decision without an id means is worked out by whoever knows what its sender was shown (C26); data parts are read by
//! the surfaces.

use serde::Deserialize;

use crate::body::Body;
use crate::command::Choice;
use crate::hold::{Ask, HoldKind};
use crate::json::RawJson;

/// Words that approve, trimmed and in lower case.
pub const APPROVE: [&str; 3] = ["approve", "approved", "yes"];
/// Words that deny, trimmed and in lower case.
pub const DENY: [&str; 4] = ["deny", "denied", "no", "reject"];

/// What a text means to a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextMeaning {
    /// It decides.
    Decide(Choice),
    /// It is this answer, if the answer schema takes it; the caller checks that.
    CheckAnswer(RawJson),
    /// It decides nothing; the run stays held and the reply says so.
    NotADecision,
}

/// What a text means to an open hold of this kind that asks this.
#[must_use]
pub fn read_text(kind: HoldKind, ask: &Ask, text: &str) -> TextMeaning {
    match kind {
        HoldKind::Approval => read_word(text),
        HoldKind::Input => read_answer(ask, text),
        HoldKind::External | HoldKind::Auth | HoldKind::Recovery => TextMeaning::NotADecision,
    }
}

fn read_word(text: &str) -> TextMeaning {
    let word = text.trim().to_lowercase();
    if APPROVE.contains(&word.as_str()) {
        TextMeaning::Decide(Choice::Approve)
    } else if DENY.contains(&word.as_str()) {
        TextMeaning::Decide(Choice::Deny { reason: None })
    } else {
        TextMeaning::NotADecision
    }
}

fn read_answer(ask: &Ask, text: &str) -> TextMeaning {
    match &ask.answer_schema {
        Some(schema) if is_string_schema(schema) => TextMeaning::CheckAnswer(RawJson::string(text)),
        Some(_) => RawJson::parse(text).map_or(TextMeaning::NotADecision, TextMeaning::CheckAnswer),
        None if ask.options.is_empty() || ask.options.iter().any(|option| option == text) => {
            TextMeaning::Decide(Choice::Answer { value: Body::text(text) })
        }
        None => TextMeaning::NotADecision,
    }
}

fn is_string_schema(schema: &RawJson) -> bool {
    #[derive(Deserialize)]
    struct TypedSchema {
        #[serde(rename = "type")]
        kind: String,
    }
    serde_json::from_str::<TypedSchema>(schema.text()).is_ok_and(|typed| typed.kind == "string")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::json;

    fn approval(text: &str) -> TextMeaning {
        read_text(HoldKind::Approval, &Ask::default(), text)
    }

    /// C20, C23: exactly the words of the list, whatever their case and the space around them.
    #[test]
    fn one_word_of_the_list_decides_an_approval() {
        for word in ["approve", "approved", "yes", " Yes\n", "APPROVE"] {
            assert_eq!(approval(word), TextMeaning::Decide(Choice::Approve), "{word:?}");
        }
        for word in ["deny", "denied", "no", "reject", "\tNO "] {
            assert_eq!(approval(word), TextMeaning::Decide(Choice::Deny { reason: None }), "{word:?}");
        }
    }

    /// C20: text that merely contains a word decides nothing.
    #[test]
    fn anything_else_leaves_an_approval_waiting() {
        for text in ["", "I approve", "yes!", "ok", "modify", "do not approve", "yes no", "y", "rejected"] {
            assert_eq!(approval(text), TextMeaning::NotADecision, "{text:?}");
        }
    }

    /// C23: for a question the whole text is the answer; with options, one of them.
    #[test]
    fn a_question_takes_the_text_as_its_answer() {
        let answer = |text: &str| TextMeaning::Decide(Choice::Answer { value: Body::text(text) });
        let open = Ask::default();
        assert_eq!(read_text(HoldKind::Input, &open, " yes, but later "), answer(" yes, but later "));
        let choice = Ask { options: vec!["Red".into(), "Blue".into()], ..Ask::default() };
        assert_eq!(read_text(HoldKind::Input, &choice, "Red"), answer("Red"));
        assert_eq!(read_text(HoldKind::Input, &choice, "red"), TextMeaning::NotADecision);
    }

    /// C23: with an answer schema the text is JSON, or the string itself where a string is wanted.
    #[test]
    fn an_answer_schema_decides_how_text_is_read() {
        let read = |schema: &str, text: &str| {
            let ask = Ask { answer_schema: Some(json(schema)), ..Ask::default() };
            read_text(HoldKind::Input, &ask, text)
        };
        assert_eq!(
            read(r#"{"type":"object"}"#, r#"{"n": 1}"#),
            TextMeaning::CheckAnswer(json(r#"{"n": 1}"#))
        );
        assert_eq!(read(r#"{"type":"object"}"#, "one"), TextMeaning::NotADecision);
        assert_eq!(read(r#"{"type":"object"}"#, r#"{"n":1,"n":2}"#), TextMeaning::NotADecision);
        assert_eq!(read(r#"{"type":"string"}"#, "one"), TextMeaning::CheckAnswer(json(r#""one""#)));
        assert_eq!(read(r#"{"type":"string"}"#, "1"), TextMeaning::CheckAnswer(json(r#""1""#)));
        assert_eq!(read(r#"{"type":["string","null"]}"#, "null"), TextMeaning::CheckAnswer(json("null")));
        assert_eq!(read("true", "one"), TextMeaning::NotADecision);
    }

    /// C23: no text resolves an outside job, a login or an unknown outcome.
    #[test]
    fn text_never_resolves_the_other_kinds() {
        for kind in [HoldKind::External, HoldKind::Auth, HoldKind::Recovery] {
            assert_eq!(read_text(kind, &Ask::default(), "yes"), TextMeaning::NotADecision, "{kind:?}");
        }
    }
}

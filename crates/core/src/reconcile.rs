//! Reconciling: what a read-only call says of a start whose outcome nobody knows.
//!
//! The call is made by the engine before a person is asked, and changes nothing; which call, and how its answer is read, is
//! configuration. *Happened* settles the start without another one. *Did not happen* settles nothing by itself: it may only not
//! have happened yet, so a person is shown it and decides. What follows is `decide/calls.rs`.

use serde::{Deserialize, Serialize};

use crate::body::Body;
use crate::hold::Finding;
use crate::json::RawJson;

/// Characters of why a call did not answer, within a sentence.
const WHY_CHARS: usize = 300;

/// What a read-only call said of a start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reconciliation {
    /// Whether the effect happened.
    pub says: EffectAnswer,
    /// The call and its result.
    pub finding: Finding,
}

/// Whether the effect of a start happened, as far as somebody who looked can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectAnswer {
    /// It did.
    Happened,
    /// It did not, so far.
    DidNotHappen,
    /// The answer does not say, or there was none.
    CannotTell,
}

impl EffectAnswer {
    /// Its word, for protocols and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            EffectAnswer::Happened => "happened",
            EffectAnswer::DidNotHappen => "did_not_happen",
            EffectAnswer::CannotTell => "cannot_tell",
        }
    }
}

impl Reconciliation {
    /// The same for people.
    #[must_use]
    pub fn sentence(&self) -> String {
        let tool = &self.finding.tool;
        match self.says {
            EffectAnswer::Happened => format!("{tool} was asked whether it happened: it did"),
            EffectAnswer::DidNotHappen => {
                format!("{tool} was asked whether it happened: it had not happened by then")
            }
            EffectAnswer::CannotTell if self.finding.fails => {
                let why: String = self.finding.result.chars().take(WHY_CHARS).collect();
                format!("{tool} was asked whether it happened, and did not answer: {why}")
            }
            EffectAnswer::CannotTell => format!("{tool} was asked whether it happened, and cannot tell"),
        }
    }

    /// The result of a call that happened: its own is lost, so it is said who found what.
    #[must_use]
    pub fn result(&self) -> Body {
        let text = |text: &str| serde_json::Value::from(text).to_string();
        let found = match RawJson::parse(&self.finding.result) {
            Ok(json) => json.text().to_owned(),
            // Plain text, or JSON that was cut.
            Err(_) => text(&self.finding.result),
        };
        let tool = text(&self.finding.tool);
        let said = format!(
            r#"{{"executed":true,"own_result":"lost: the server that ran the call stopped","checked_with":{tool},"found":{found}}}"#
        );
        match RawJson::parse(&said) {
            Ok(json) => Body::Json(json),
            // A result that is nested deeper than JSON may be.
            Err(_) => Body::text(said),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;

    fn found(result: &str) -> Reconciliation {
        let finding = Finding {
            tool: "find_refund".into(),
            arguments: "{}".into(),
            result: result.into(),
            fails: false,
            digest: Digest::default(),
        };
        Reconciliation { says: EffectAnswer::Happened, finding }
    }

    #[test]
    fn a_result_says_who_found_what() {
        for (result, found_as) in [
            (
                r#"{"status":"paid","amount":9007199254740993}"#,
                r#"{"status":"paid","amount":9007199254740993}"#,
            ),
            ("paid \"twice\"", r#""paid \"twice\"""#),
            (r#"{"cut":"#, r#""{\"cut\":""#),
        ] {
            let body = found(result).result();
            let Body::Json(json) = &body else { panic!("{body:?}") };
            assert!(json.text().ends_with(&format!(r#""found":{found_as}}}"#)), "{}", json.text());
            assert!(json.text().contains(r#""checked_with":"find_refund""#));
        }
    }
}

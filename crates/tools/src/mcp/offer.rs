//! What an MCP server says of one of its tools, and what that means here: what the model gets, whether a person is
//! asked, whether a lost call may simply be made again.
//!
//! Hints are a server's own word. They relax only what the configuration lets them relax.

use standfast_core::definition::ToolSpec;
use standfast_core::json::RawJson;
use standfast_core::message::Replay;
use standfast_engine::tool::preview::Risk;

/// The longest description that is taken.
const DESCRIPTION_BYTES: usize = 16 * 1024;

/// The longest schema that is taken.
const SCHEMA_BYTES: usize = 128 * 1024;

/// A tool as its server describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments.
    pub schema: RawJson,
    /// What the server promises of it.
    pub hints: Hints,
}

/// What a server promises of a tool; none where it says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hints {
    /// It changes nothing.
    pub read_only: Option<bool>,
    /// It may destroy something.
    pub destructive: Option<bool>,
    /// Calling it twice is as good as calling it once.
    pub idempotent: Option<bool>,
}

/// What the configuration says of a tool, beside what its server says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Terms {
    /// Whether hints count at all.
    pub ignores_hints: bool,
    /// What is said of every tool of the server.
    pub all_ask: Option<bool>,
    /// What is said of this one.
    pub asks: Option<bool>,
    /// Whether a call of it may be made twice, whatever its server says.
    pub may_repeat: Option<bool>,
    /// Another description.
    pub description: Option<String>,
}

impl Offer {
    /// Takes what a server says, or says why not.
    pub fn read(tool: &rmcp::model::Tool) -> Result<Offer, String> {
        let description = tool.description.as_deref().unwrap_or_default().to_owned();
        if description.len() > DESCRIPTION_BYTES {
            return Err(format!("its description has more than {DESCRIPTION_BYTES} bytes"));
        }
        let schema = serde_json::to_string(&tool.input_schema).map_err(|error| error.to_string())?;
        if schema.len() > SCHEMA_BYTES {
            return Err(format!("the schema of its arguments has more than {SCHEMA_BYTES} bytes"));
        }
        let schema = RawJson::parse(&schema).map_err(|error| format!("its schema: {error}"))?;
        let hints = tool.annotations.as_ref().map_or(Hints::default(), |said| Hints {
            read_only: said.read_only_hint,
            destructive: said.destructive_hint,
            idempotent: said.idempotent_hint,
        });
        Ok(Offer { description, schema, hints })
    }

    fn hints(&self, terms: &Terms) -> Hints {
        if terms.ignores_hints { Hints::default() } else { self.hints }
    }

    /// Whether a person is asked about a call. What a server calls destructive is freed by its own name only; what it
    /// does not call harmless is held.
    #[must_use]
    pub fn asks(&self, terms: &Terms) -> bool {
        let hints = self.hints(terms);
        match (terms.asks, hints.destructive) {
            (Some(asks), _) => asks,
            (None, Some(true)) => true,
            (None, Some(false) | None) => terms.all_ask.unwrap_or(hints.read_only != Some(true)),
        }
    }

    /// What its server says of the harm that it can do; where it says nothing, nothing is known.
    #[must_use]
    pub fn risk(&self, terms: &Terms) -> Option<Risk> {
        let hints = self.hints(terms);
        match (hints.read_only, hints.destructive) {
            (Some(true), _) => Some(Risk::ReadOnly),
            (_, Some(true)) => Some(Risk::Destructive),
            (_, Some(false)) => Some(Risk::Reversible),
            (_, None) => None,
        }
    }

    /// How it is described to the model.
    #[must_use]
    pub fn spec(&self, terms: &Terms) -> ToolSpec {
        let hints = self.hints(terms);
        let promised = hints.read_only == Some(true) || hints.idempotent == Some(true);
        let may_repeat = terms.may_repeat.unwrap_or(promised);
        ToolSpec {
            description: terms.description.clone().unwrap_or_else(|| self.description.clone()),
            schema: self.schema.clone(),
            replay: if may_repeat { Replay::Idempotent } else { Replay::Never },
            reversible: hints.read_only == Some(true) || hints.destructive == Some(false),
            approval_prompt: None,
            holds: None,
        }
    }
}

/// What is different about a tool from how it was shown, in words; none when nothing is that matters.
#[must_use]
pub fn difference(shown: &ToolSpec, now: &ToolSpec) -> Option<String> {
    let mut parts = Vec::new();
    if shown.description != now.description {
        parts.push(format!("its description, which is now: {}", start_of(&now.description)));
    }
    if shown.schema != now.schema {
        parts.push(format!("what it takes, which is now: {}", start_of(now.schema.text())));
    }
    match (shown.replay, now.replay) {
        (Replay::Idempotent, Replay::Never) => {
            parts.push("that calling it twice does no harm: it no longer says so".to_owned());
        }
        (Replay::Never, Replay::Idempotent) => {
            parts.push("what it promises: it now says that calling it twice does no harm".to_owned());
        }
        (Replay::Never, Replay::Never) | (Replay::Idempotent, Replay::Idempotent) => {}
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn start_of(text: &str) -> String {
    const SHOWN: usize = 600;
    let start: String = text.chars().take(SHOWN).collect();
    if start.len() < text.len() { format!("{start} …") } else { start }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(read_only: Option<bool>, destructive: Option<bool>) -> Offer {
        let hints = Hints { read_only, destructive, idempotent: None };
        Offer { description: "d".into(), schema: RawJson::parse("{}").unwrap(), hints }
    }

    /// C32: a hint relaxes or forces; what nobody says anything about is held.
    #[test]
    fn who_is_asked() {
        let (yes, no) = (Some(true), Some(false));
        for (read_only, destructive, all_ask, asks, expected) in [
            (None, None, None, None, true),
            (yes, None, None, None, false),
            (no, no, None, None, true),
            (yes, yes, None, None, true),
            (None, yes, no, None, true),
            (None, yes, no, no, false),
            (None, None, no, None, false),
            (yes, None, yes, None, true),
            (yes, None, None, yes, true),
        ] {
            let terms = Terms { all_ask, asks, ..Terms::default() };
            let asked = offer(read_only, destructive).asks(&terms);
            assert_eq!(asked, expected, "{read_only:?} {destructive:?} {all_ask:?} {asks:?}");
        }
        let distrusted = Terms { ignores_hints: true, ..Terms::default() };
        assert!(offer(yes, None).asks(&distrusted));
        assert_eq!(offer(yes, None).spec(&distrusted).replay, Replay::Never);
    }

    /// T3: a changed description or schema, and a promise that is taken back.
    #[test]
    fn what_changed_is_said() {
        let shown = offer(Some(true), None).spec(&Terms::default());
        assert_eq!(difference(&shown, &shown.clone()), None);
        let reworded = ToolSpec { description: "also sends it on".into(), ..shown.clone() };
        assert!(difference(&shown, &reworded).unwrap().contains("also sends it on"));
        let wider = ToolSpec { schema: RawJson::parse(r#"{"type":"object"}"#).unwrap(), ..shown.clone() };
        assert!(difference(&shown, &wider).unwrap().contains(r#"{"type":"object"}"#));
        let riskier = ToolSpec { replay: Replay::Never, ..shown.clone() };
        assert!(difference(&shown, &riskier).unwrap().contains("no longer says so"));
    }
}

//! The parts that many sentences share: which call, what was seen, with which key, why, for how long.
//!
//! They may stand in any order after the verb. A word that is no such part is an error, so that a misspelt sentence
//! never passes for a shorter one.

use standfast_core::body::Body;
use standfast_core::command::SuspendFor;
use standfast_core::json::RawJson;
use standfast_core::time::Millis;

use super::script::Tok;
use super::script::Tok::{Json, Text, Word};

/// What a sentence says beside who and what.
#[derive(Debug, Clone, Default)]
pub(crate) struct Details {
    pub(crate) target: Option<Target>,
    pub(crate) attempt: Option<u32>,
    pub(crate) revision: Option<u32>,
    pub(crate) digest: Option<SeenDigest>,
    pub(crate) key: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) value: Option<Body>,
    pub(crate) arguments: Option<String>,
    pub(crate) to: Option<String>,
    pub(crate) span: Option<Millis>,
    pub(crate) retry_in: Option<Millis>,
    pub(crate) suspend_for: Option<SuspendFor>,
    pub(crate) question: Option<String>,
    pub(crate) options: Vec<String>,
    pub(crate) schema: Option<RawJson>,
    pub(crate) interim: Option<String>,
    pub(crate) external_ref: Option<String>,
    pub(crate) too_late: bool,
    pub(crate) superseding: bool,
    pub(crate) processing: Option<bool>,
}

/// What a sentence is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// A call, or its latest hold.
    Call(u32),
    /// A hold, counted in the order of opening.
    Hold(usize),
    /// The run itself.
    Run,
}

/// Which digest a decider repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeenDigest {
    /// What the hold opened with.
    First,
    /// What would run now.
    Current,
    /// Of something else.
    Another,
}

impl Details {
    /// Reads the rest of a sentence.
    pub(crate) fn read(toks: &[Tok<'_>]) -> Result<Details, String> {
        let mut details = Details::default();
        let mut rest = toks;
        while !rest.is_empty() {
            rest = details.take(rest)?;
        }
        Ok(details)
    }

    fn take<'t, 'a>(&mut self, toks: &'t [Tok<'a>]) -> Result<&'t [Tok<'a>], String> {
        let rest = match toks {
            [Word("call"), Word(no), rest @ ..] => self.aim(Target::Call(number(no)?), rest),
            [Word("hold"), Word(no), rest @ ..] => self.aim(Target::Hold(number(no)? as usize), rest),
            [Word("the"), Word("run"), rest @ ..] => self.aim(Target::Run, rest),
            [Word("attempt"), Word(no), rest @ ..] => set(&mut self.attempt, number(no)?, rest),
            [Word("seeing"), Word("revision"), Word(no), rest @ ..] => {
                set(&mut self.revision, number(no)?, rest)
            }
            [Word("seeing"), Word("the"), Word("first"), Word("digest"), rest @ ..] => {
                set(&mut self.digest, SeenDigest::First, rest)
            }
            [Word("seeing"), Word("the"), Word("digest"), rest @ ..] => {
                set(&mut self.digest, SeenDigest::Current, rest)
            }
            [Word("seeing"), Word("another"), Word("digest"), rest @ ..] => {
                set(&mut self.digest, SeenDigest::Another, rest)
            }
            [Word("with"), Word("key"), Text(key), rest @ ..] => set(&mut self.key, (*key).into(), rest),
            [Word("because"), Text(why), rest @ ..] => set(&mut self.reason, (*why).into(), rest),
            [Word("with"), Text(text), rest @ ..] => set(&mut self.value, Body::text(*text), rest),
            [Word("with"), Json(json), rest @ ..] => set(&mut self.value, Body::Json(parsed(json)?), rest),
            [Word("with"), Word(count), Word("letters"), rest @ ..] => {
                set(&mut self.value, Body::text("x".repeat(number(count)? as usize)), rest)
            }
            [Word("as" | "to" | "reading"), Json(json), rest @ ..] => {
                set(&mut self.arguments, (*json).into(), rest)
            }
            [Word("to"), Word(name), rest @ ..] => set(&mut self.to, (*name).into(), rest),
            [Word("retrying"), Word("in"), Word(count), Word(unit), rest @ ..] => {
                set(&mut self.retry_in, span(count, unit)?, rest)
            }
            [Word("for"), Word("input"), rest @ ..] => set(&mut self.suspend_for, SuspendFor::Input, rest),
            [Word("for"), Word("a"), Word("login"), rest @ ..] => {
                set(&mut self.suspend_for, SuspendFor::Auth, rest)
            }
            [Word("for"), Word("an"), Word("outside"), Word("system"), rest @ ..] => {
                set(&mut self.suspend_for, SuspendFor::External, rest)
            }
            [Word("for"), Word(count), Word(unit), rest @ ..] => {
                set(&mut self.span, span(count, unit)?, rest)
            }
            [Word("asking"), Text(question), rest @ ..] => set(&mut self.question, (*question).into(), rest),
            [Word("offering"), Text(option), rest @ ..] => {
                self.options.push((*option).to_owned());
                rest
            }
            [Word("expecting"), Json(schema), rest @ ..] => set(&mut self.schema, parsed(schema)?, rest),
            [Word("showing"), Text(text), rest @ ..] => set(&mut self.interim, (*text).into(), rest),
            [Word("known"), Word("as"), Text(name), rest @ ..] => {
                set(&mut self.external_ref, (*name).into(), rest)
            }
            [Word("too"), Word("late"), rest @ ..] => {
                self.too_late = true;
                rest
            }
            [Word("superseding"), rest @ ..] => {
                self.superseding = true;
                rest
            }
            [Word("processing"), rest @ ..] => set(&mut self.processing, true, rest),
            [Word("waiting"), Word("again"), rest @ ..] => set(&mut self.processing, false, rest),
            other => return Err(not_understood(other)),
        };
        Ok(rest)
    }

    fn aim<'t, 'a>(&mut self, target: Target, rest: &'t [Tok<'a>]) -> &'t [Tok<'a>] {
        set(&mut self.target, target, rest)
    }

    /// The call that the sentence names.
    pub(crate) fn call(&self) -> Result<u32, String> {
        match self.target {
            Some(Target::Call(no)) => Ok(no),
            Some(Target::Run) => Ok(0),
            Some(Target::Hold(_)) | None => Err("say which call".into()),
        }
    }

    /// The value that the sentence gives.
    pub(crate) fn value(&self) -> Result<Body, String> {
        self.value.clone().ok_or_else(|| "say with what: `with \"text\"` or `with {\"json\": 1}`".into())
    }

    /// The arguments that the sentence gives, as JSON.
    pub(crate) fn arguments(&self) -> Result<RawJson, String> {
        let text = self.arguments.as_deref().ok_or("say to what: `to {\"json\": 1}`")?;
        parsed(text)
    }
}

fn set<'t, 'a, T>(place: &mut Option<T>, value: T, rest: &'t [Tok<'a>]) -> &'t [Tok<'a>] {
    *place = Some(value);
    rest
}

/// What is said of a sentence that means nothing.
pub(crate) fn not_understood(toks: &[Tok<'_>]) -> String {
    let pieces = toks.iter().map(|tok| match tok {
        Word(word) => (*word).to_owned(),
        Text(text) => format!("\"{text}\""),
        Json(json) => (*json).to_owned(),
    });
    format!("not understood: {}", pieces.collect::<Vec<_>>().join(" "))
}

/// A number.
pub(crate) fn number(word: &str) -> Result<u32, String> {
    word.parse().map_err(|_| format!("{word} is no number"))
}

/// A span such as `10 minutes`.
pub(crate) fn span(count: &str, unit: &str) -> Result<Millis, String> {
    let seconds = match unit {
        "second" | "seconds" => 1,
        "minute" | "minutes" => 60,
        "hour" | "hours" => 3600,
        "day" | "days" => 24 * 3600,
        other => return Err(not_understood(&[Word(other)])),
    };
    Ok(Millis::seconds(i64::from(number(count)?) * seconds))
}

/// JSON that is taken.
pub(crate) fn parsed(text: &str) -> Result<RawJson, String> {
    RawJson::parse(text).map_err(|bad| bad.to_string())
}

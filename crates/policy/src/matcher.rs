//! What a rule may ask of one value: equality, sets, globs, exact ranges, commands, and their contraries.
//!
//! Every test has three outcomes (`truth.rs`): a value that is missing or of another type is neither a yes nor a no. Which
//! of them counts for a rule is `evaluate.rs`.

use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Serialize, Serializer};

use crate::argv::{Argv, Extent};
use crate::decimal::{self, Decimal};
use crate::glob::{Glob, is_roundabout};
use crate::truth::Truth;
use crate::value::{Value, quoted};

/// A text, a number or a truth value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scalar {
    /// A text.
    Text(String),
    /// A number.
    Number(Decimal),
    /// `true` or `false`.
    Bool(bool),
}

/// What a rule asks of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Matcher {
    /// It is this one.
    Eq(Scalar),
    /// It is one of these.
    In(Vec<Scalar>),
    /// All of these tests hold.
    Tests(Box<Tests>),
}

/// Tests of one value; all that are given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tests {
    /// It is this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eq: Option<Scalar>,
    /// It is one of these.
    #[serde(default, rename = "in", skip_serializing_if = "Option::is_none")]
    pub one_of: Option<Vec<Scalar>>,
    /// A text that fits the pattern, or one of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glob: Option<Globs>,
    /// A number above this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gt: Option<Decimal>,
    /// A number that is this one or above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ge: Option<Decimal>,
    /// A number below this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lt: Option<Decimal>,
    /// A number that is this one or below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub le: Option<Decimal>,
    /// A command that begins with these words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Argv>,
    /// A command that has these words and no others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv_exact: Option<Argv>,
    /// Whether there is a value at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
    /// This does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not: Option<Matcher>,
    /// At least one of these holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub any: Option<Vec<Matcher>>,
}

/// One pattern or several.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Globs(pub Vec<Glob>);

impl Globs {
    /// Whether one of them matches.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        self.0.iter().any(|glob| glob.matches(text))
    }
}

impl Scalar {
    fn test(&self, value: &Value) -> Truth {
        match (self, value) {
            (Scalar::Text(wanted), Value::Text(found)) => Truth::of(wanted == found),
            (Scalar::Number(wanted), Value::Number(Some(found))) => Truth::of(wanted == found),
            (Scalar::Bool(wanted), Value::Bool(found)) => Truth::of(wanted == found),
            (Scalar::Text(_) | Scalar::Number(_) | Scalar::Bool(_), _) => Truth::Unknown,
        }
    }

    /// The value that it is equal to.
    #[must_use]
    pub fn value(&self) -> Value {
        match self {
            Scalar::Text(text) => Value::Text(text.clone()),
            Scalar::Number(number) => Value::Number(Some(number.clone())),
            Scalar::Bool(truth) => Value::Bool(*truth),
        }
    }
}

/// Equal to one is enough; of another type than all of them cannot be told.
fn one_of(scalars: &[Scalar], value: &Value) -> Truth {
    let tested = scalars.iter().map(|scalar| scalar.test(value));
    let (mut has_kind, mut is_equal) = (false, false);
    for truth in tested {
        has_kind |= truth != Truth::Unknown;
        is_equal |= truth == Truth::Yes;
    }
    if has_kind { Truth::of(is_equal) } else { Truth::Unknown }
}

impl Matcher {
    /// What it says of a value, or of there being none.
    #[must_use]
    pub fn test(&self, value: Option<&Value>) -> Truth {
        match self {
            Matcher::Tests(tests) => tests.test(value),
            Matcher::Eq(scalar) => value.map_or(Truth::Unknown, |value| scalar.test(value)),
            Matcher::In(scalars) => value.map_or(Truth::Unknown, |value| one_of(scalars, value)),
        }
    }

    /// The patterns of commands in it that say yes: not those under a `not`.
    pub(crate) fn commands(&self) -> Vec<&Argv> {
        match self {
            Matcher::Eq(_) | Matcher::In(_) => Vec::new(),
            Matcher::Tests(tests) => {
                let below = tests.any.iter().flatten().flat_map(Matcher::commands);
                tests.argv.iter().chain(&tests.argv_exact).chain(below).collect()
            }
        }
    }

    /// What is wrong with it, whatever the rule.
    pub(crate) fn misfit(&self) -> Option<String> {
        match self {
            Matcher::Eq(_) => None,
            Matcher::In(scalars) => scalars.is_empty().then(|| "an empty list matches nothing".to_owned()),
            Matcher::Tests(tests) => tests.misfit(),
        }
    }
}

impl Tests {
    /// The bounds of a number: above, at least, below, at most.
    pub(crate) fn bounds(&self) -> [Option<&Decimal>; 4] {
        [self.gt.as_ref(), self.ge.as_ref(), self.lt.as_ref(), self.le.as_ref()]
    }

    fn test(&self, value: Option<&Value>) -> Truth {
        let presence = self.present.map(|wanted| Truth::of(value.is_some() == wanted));
        if self.present == Some(false) {
            // The other tests of an absent value would all be unknown.
            return presence.unwrap_or(Truth::Unknown);
        }
        let with = |test: &dyn Fn(&Value) -> Truth| value.map_or(Truth::Unknown, test);
        let found = [
            presence,
            self.eq.as_ref().map(|scalar| with(&|value| scalar.test(value))),
            self.one_of.as_ref().map(|scalars| with(&|value| one_of(scalars, value))),
            self.glob.as_ref().map(|globs| with(&|value| glob(globs, value))),
            self.bounds().iter().any(Option::is_some).then(|| with(&|value| self.range(value))),
            self.argv.as_ref().map(|argv| with(&|value| argv.test(value, Extent::Prefix))),
            self.argv_exact.as_ref().map(|argv| with(&|value| argv.test(value, Extent::Whole))),
            self.not.as_ref().map(|not| not.test(value).negated()),
            self.any.as_ref().map(|any| any.iter().map(|one| one.test(value)).fold(Truth::No, Truth::or)),
        ];
        found.into_iter().flatten().fold(Truth::Yes, Truth::and)
    }

    fn range(&self, value: &Value) -> Truth {
        let Value::Number(Some(number)) = value else { return Truth::Unknown };
        let [gt, ge, lt, le] = self.bounds();
        Truth::of(
            gt.is_none_or(|bound| number > bound)
                && ge.is_none_or(|bound| number >= bound)
                && lt.is_none_or(|bound| number < bound)
                && le.is_none_or(|bound| number <= bound),
        )
    }

    fn misfit(&self) -> Option<String> {
        if *self == Tests::default() {
            return Some(
                "it asks for nothing; name a test such as `eq`, `in`, `glob`, `ge` or `argv`".into(),
            );
        }
        if self.present == Some(false) && (Tests { present: None, ..self.clone() }) != Tests::default() {
            return Some("`present: false` stands alone: what is not there cannot be tested".into());
        }
        let [gt, ge, lt, le] = self.bounds();
        let low = gt.max(ge);
        let is_empty = lt.into_iter().chain(le).any(|high| low.is_some_and(|low| low > high))
            || gt.is_some_and(|gt| le.into_iter().chain(lt).any(|high| gt >= high))
            || ge.is_some_and(|ge| lt.is_some_and(|lt| ge >= lt));
        if is_empty {
            return Some("no number is in this range".into());
        }
        if self.one_of.as_ref().is_some_and(Vec::is_empty) || self.any.as_ref().is_some_and(Vec::is_empty) {
            return Some("an empty list matches nothing".into());
        }
        if self.glob.as_ref().is_some_and(|globs| globs.0.is_empty()) {
            return Some("an empty list matches nothing".into());
        }
        let commands =
            self.argv.iter().chain(&self.argv_exact).find_map(|argv| argv.misfit().map(str::to_owned));
        let below = || self.not.iter().chain(self.any.iter().flatten()).find_map(Matcher::misfit);
        commands.or_else(below)
    }
}

/// A path that leads elsewhere than it reads can be told nothing of.
fn glob(globs: &Globs, value: &Value) -> Truth {
    match value {
        Value::Text(text) if is_roundabout(text) => Truth::Unknown,
        Value::Text(text) => Truth::of(globs.matches(text)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => Truth::Unknown,
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Text(text) => f.write_str(&quoted(text)),
            Scalar::Number(number) => write!(f, "{number}"),
            Scalar::Bool(truth) => write!(f, "{truth}"),
        }
    }
}

fn listed<T: fmt::Display>(items: &[T], between: &str) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(between)
}

/// As people read it: `≥ 0 and ≤ 100`.
impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Matcher::Eq(scalar) => write!(f, "= {scalar}"),
            Matcher::In(scalars) => write!(f, "one of {}", listed(scalars, ", ")),
            Matcher::Tests(tests) => {
                let said = [
                    tests.eq.as_ref().map(|scalar| format!("= {scalar}")),
                    tests.one_of.as_ref().map(|scalars| format!("one of {}", listed(scalars, ", "))),
                    tests.glob.as_ref().map(|globs| format!("like {}", listed(&globs.0, " or "))),
                    tests.gt.as_ref().map(|bound| format!("> {bound}")),
                    tests.ge.as_ref().map(|bound| format!("≥ {bound}")),
                    tests.lt.as_ref().map(|bound| format!("< {bound}")),
                    tests.le.as_ref().map(|bound| format!("≤ {bound}")),
                    tests.argv.as_ref().map(|argv| format!("a command `{argv} …`")),
                    tests.argv_exact.as_ref().map(|argv| format!("the command `{argv}`")),
                    tests
                        .present
                        .map(|is_present| (if is_present { "present" } else { "absent" }).to_owned()),
                    tests.not.as_ref().map(|not| format!("not ({not})")),
                    tests.any.as_ref().map(|any| format!("({})", listed(any, ") or ("))),
                ];
                f.write_str(&said.into_iter().flatten().collect::<Vec<_>>().join(" and "))
            }
        }
    }
}

impl Serialize for Scalar {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Scalar::Text(text) => serializer.serialize_str(text),
            Scalar::Number(number) => match number.to_string().parse::<i64>() {
                Ok(whole) => serializer.serialize_i64(whole),
                // As a test, since a text alone would be read as one.
                Err(_) => serializer.collect_map([("number", number.to_string())]),
            },
            Scalar::Bool(truth) => serializer.serialize_bool(*truth),
        }
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scalar, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Scalar;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number, or true or false")
            }
            fn visit_bool<E: Error>(self, truth: bool) -> Result<Scalar, E> {
                Ok(Scalar::Bool(truth))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Scalar, E> {
                Ok(Scalar::Number(Decimal::from(number)))
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Scalar, E> {
                Decimal::parse(&number.to_string())
                    .map(Scalar::Number)
                    .ok_or_else(|| E::custom("not a number"))
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<Scalar, E> {
                decimal::from_float(number).map(Scalar::Number).ok_or_else(|| {
                    E::custom("a number with more than 15 digits is written {number: \"…\"}, so that no digit is lost")
                })
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(text.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Scalar, A::Error> {
                #[derive(Deserialize)]
                #[serde(deny_unknown_fields)]
                struct Exact {
                    number: Decimal,
                }
                Exact::deserialize(MapAccessDeserializer::new(map)).map(|exact| Scalar::Number(exact.number))
            }
        }
        deserializer.deserialize_any(V)
    }
}

impl Serialize for Matcher {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Matcher::Eq(Scalar::Number(number)) if number.to_string().parse::<i64>().is_err() => {
                let tests = Tests { eq: Some(Scalar::Number(number.clone())), ..Tests::default() };
                tests.serialize(serializer)
            }
            Matcher::Eq(scalar) => scalar.serialize(serializer),
            Matcher::In(scalars) => scalars.serialize(serializer),
            Matcher::Tests(tests) => tests.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Matcher {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Matcher, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Matcher;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value, a list of values, or tests such as {ge: 0, le: 100}")
            }
            fn visit_bool<E: Error>(self, truth: bool) -> Result<Matcher, E> {
                Ok(Matcher::Eq(Scalar::Bool(truth)))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Matcher, E> {
                Ok(Matcher::Eq(Scalar::Number(Decimal::from(number))))
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Matcher, E> {
                Decimal::parse(&number.to_string())
                    .map(|number| Matcher::Eq(Scalar::Number(number)))
                    .ok_or_else(|| E::custom("not a number"))
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<Matcher, E> {
                let number = decimal::from_float(number).ok_or_else(|| {
                    E::custom("a number with more than 15 digits is written {eq: {number: \"…\"}}, so that no digit is lost")
                })?;
                Ok(Matcher::Eq(Scalar::Number(number)))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Matcher, E> {
                Ok(Matcher::Eq(Scalar::Text(text.to_owned())))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Matcher, A::Error> {
                let mut scalars = Vec::new();
                while let Some(scalar) = seq.next_element()? {
                    scalars.push(scalar);
                }
                Ok(Matcher::In(scalars))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Matcher, A::Error> {
                Tests::deserialize(MapAccessDeserializer::new(map))
                    .map(|tests| Matcher::Tests(Box::new(tests)))
            }
        }
        deserializer.deserialize_any(V)
    }
}

impl Serialize for Globs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [only] => only.serialize(serializer),
            several => several.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Globs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Globs, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Globs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a pattern such as \"mcp__*\", or a list of patterns")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Globs, E> {
                Glob::parse(text).map(|glob| Globs(vec![glob])).map_err(E::custom)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Globs, A::Error> {
                let mut globs = Vec::new();
                while let Some(glob) = seq.next_element()? {
                    globs.push(glob);
                }
                Ok(Globs(globs))
            }
        }
        deserializer.deserialize_any(V)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Arguments;

    fn test(matcher: &str, value: &str) -> Truth {
        let matcher: Matcher = serde_json::from_str(matcher).unwrap();
        let written = serde_json::to_string(&matcher).unwrap();
        assert_eq!(serde_json::from_str::<Matcher>(&written).unwrap(), matcher, "{written}");
        matcher.test(Arguments::parse(value).value())
    }

    #[test]
    fn tests_have_three_outcomes() {
        for (matcher, value, truth) in [
            (r#""EUR""#, r#""EUR""#, Truth::Yes),
            (r#""EUR""#, r#""USD""#, Truth::No),
            (r#""EUR""#, "1", Truth::Unknown),
            (r#"["EUR","USD"]"#, r#""USD""#, Truth::Yes),
            (r#"["EUR",1]"#, "2", Truth::No),
            (r#"["EUR",1]"#, "null", Truth::Unknown),
            (r#"{"ge":0,"le":100}"#, "100.0", Truth::Yes),
            (r#"{"ge":0,"le":100}"#, "100.00000000000000000001", Truth::No),
            (r#"{"ge":0,"le":100}"#, "-0.01", Truth::No),
            (r#"{"ge":0,"le":100}"#, r#""50""#, Truth::Unknown),
            (r#"{"ge":0,"le":100}"#, "1e99999", Truth::Unknown),
            (r#"{"gt":"0.12345678901234567"}"#, "0.12345678901234568", Truth::Yes),
            (r#"{"glob":"src/**"}"#, r#""src/a/b""#, Truth::Yes),
            (r#"{"glob":"src/**"}"#, r#""src/../etc/passwd""#, Truth::Unknown),
            (r#"{"glob":["a*","b*"]}"#, r#""bc""#, Truth::Yes),
            (r#"{"not":"prod"}"#, r#""dev""#, Truth::Yes),
            (r#"{"not":"prod"}"#, "1", Truth::Unknown),
            (r#"{"not":{"argv":["git","push"]}}"#, r#""git log""#, Truth::Yes),
            (r#"{"not":{"argv":["git","push"]}}"#, r#""ls; git push""#, Truth::Unknown),
            (r#"{"any":[{"lt":0},{"gt":10}]}"#, "11", Truth::Yes),
            (r#"{"any":["a",{"gt":10}]}"#, "5", Truth::Unknown),
            (r#"{"present":true}"#, "null", Truth::Yes),
            (r#"{"present":false}"#, "1", Truth::No),
            (r#"{"eq":{"number":"0.1234567890123456789"}}"#, "0.1234567890123456789", Truth::Yes),
            ("true", "true", Truth::Yes),
        ] {
            assert_eq!(test(matcher, value), truth, "{matcher} {value}");
        }
        let absent: Matcher = serde_json::from_str(r#"{"present":false}"#).unwrap();
        assert_eq!(absent.test(None), Truth::Yes);
        let range: Matcher = serde_json::from_str(r#"{"ge":0}"#).unwrap();
        assert_eq!(range.test(None), Truth::Unknown);
    }

    #[test]
    fn tests_that_match_nothing_are_found() {
        for matcher in [
            "{}",
            "[]",
            r#"{"ge":5,"le":1}"#,
            r#"{"gt":5,"le":5}"#,
            r#"{"in":[]}"#,
            r#"{"argv":[]}"#,
            r#"{"present":false,"eq":1}"#,
            r#"{"not":{}}"#,
        ] {
            let matcher: Matcher = serde_json::from_str(matcher).unwrap();
            assert!(matcher.misfit().is_some(), "{matcher:?}");
        }
        assert!(
            serde_json::from_str::<Matcher>(r#"{"gte":5}"#)
                .unwrap_err()
                .to_string()
                .contains("unknown field `gte`")
        );
    }
}

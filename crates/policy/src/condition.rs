//! What a matcher asks of a value, taken apart: all of its parts must hold, and each is of a kind that many rules can be
//! prepared for.
//!
//! Says the same as `matcher.rs`, which stays the plain way; what is prepared of it is `prepared_policy.rs` and `index.rs`. Knows
//! nothing of rules.

use std::cmp::Ordering;

use crate::argv::{Argv, Extent};
use crate::decimal::Decimal;
use crate::matcher::{Globs, Matcher, Scalar, Tests};
use crate::ranges::{Bounds, RangeEnd};

/// A part of what a matcher asks.
#[derive(Debug, Clone)]
pub(crate) enum Condition<'a> {
    /// A text that is one of these.
    Texts(Vec<&'a str>),
    /// A number that is one of these.
    Numbers(Vec<&'a Decimal>),
    /// One of these, of which there are several kinds, or truth values.
    Mixed(&'a [Scalar]),
    /// A number in this range.
    Range(Bounds),
    /// Whether there is a value at all.
    Present(bool),
    /// Not all of these hold.
    Not(Vec<Condition<'a>>),
    /// All parts of one of these hold.
    Any(Vec<Vec<Condition<'a>>>),
    /// A text that fits one of these patterns.
    Glob(&'a Globs),
    /// A command with these words.
    Command(&'a Argv, Extent),
}

impl Matcher {
    /// Its parts: it holds where all of them hold, does not where one does not, and cannot be told otherwise.
    pub(crate) fn conditions(&self) -> Vec<Condition<'_>> {
        match self {
            Matcher::Eq(scalar) => vec![one_of(std::slice::from_ref(scalar))],
            Matcher::In(scalars) => vec![one_of(scalars)],
            Matcher::Tests(tests) => tests.conditions(),
        }
    }
}

fn one_of(scalars: &[Scalar]) -> Condition<'_> {
    let text = |scalar: &'_ Scalar| matches!(scalar, Scalar::Text(_));
    let number = |scalar: &'_ Scalar| matches!(scalar, Scalar::Number(_));
    if !scalars.is_empty() && scalars.iter().all(text) {
        let texts = scalars.iter().filter_map(|scalar| match scalar {
            Scalar::Text(text) => Some(text.as_str()),
            Scalar::Number(_) | Scalar::Bool(_) => None,
        });
        return Condition::Texts(texts.collect());
    }
    if !scalars.is_empty() && scalars.iter().all(number) {
        let numbers = scalars.iter().filter_map(|scalar| match scalar {
            Scalar::Number(number) => Some(number),
            Scalar::Text(_) | Scalar::Bool(_) => None,
        });
        return Condition::Numbers(numbers.collect());
    }
    Condition::Mixed(scalars)
}

impl Tests {
    fn conditions(&self) -> Vec<Condition<'_>> {
        if self.present == Some(false) {
            // What is absent is tested by nothing else.
            return vec![Condition::Present(false)];
        }
        let [gt, ge, lt, le] = self.bounds();
        let has_bounds = self.bounds().iter().any(Option::is_some);
        let range = has_bounds.then(|| {
            let low = RangeEnd::tighter(ge, gt, Ordering::Less);
            Condition::Range(Bounds { low, high: RangeEnd::tighter(le, lt, Ordering::Greater) })
        });
        let found = [
            self.eq.as_ref().map(|scalar| one_of(std::slice::from_ref(scalar))),
            self.one_of.as_ref().map(|scalars| one_of(scalars)),
            range,
            self.glob.as_ref().map(Condition::Glob),
            self.argv.as_ref().map(|argv| Condition::Command(argv, Extent::Prefix)),
            self.argv_exact.as_ref().map(|argv| Condition::Command(argv, Extent::Whole)),
            self.present.map(Condition::Present),
            self.not.as_ref().map(|not| Condition::Not(not.conditions())),
            self.any.as_ref().map(|any| Condition::Any(any.iter().map(Matcher::conditions).collect())),
        ];
        found.into_iter().flatten().collect()
    }
}

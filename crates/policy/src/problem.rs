//! What is wrong with a policy, as data: where, what, and what to do.
//!
//! Paths are those of the configuration file below `policy`; whoever read the file knows its name and lines.

use std::fmt;

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A key.
    Key(String),
    /// An item of a list.
    Item(usize),
}

/// Where something stands, from the section that was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RulePath(pub Vec<Step>);

impl RulePath {
    /// A key below this place.
    #[must_use]
    pub fn key(&self, key: &str) -> RulePath {
        let mut steps = self.0.clone();
        steps.push(Step::Key(key.to_owned()));
        RulePath(steps)
    }

    /// An item of this list.
    #[must_use]
    pub fn item(&self, index: usize) -> RulePath {
        let mut steps = self.0.clone();
        steps.push(Step::Item(index));
        RulePath(steps)
    }
}

impl fmt::Display for RulePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (no, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if no == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Item(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// Whether a problem keeps the policy from being used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The policy is refused.
    Error,
    /// It is taken, and people should know.
    Warning,
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: RulePath,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub help: String,
    /// Whether it keeps the policy from being used.
    pub severity: Severity,
}

impl Problem {
    /// A mistake that keeps the policy from being used.
    #[must_use]
    pub fn error(place: RulePath, what: impl Into<String>, help: impl Into<String>) -> Problem {
        Problem { place, what: what.into(), help: help.into(), severity: Severity::Error }
    }

    /// Something that is taken, and that people should know.
    #[must_use]
    pub fn warning(place: RulePath, what: impl Into<String>, help: impl Into<String>) -> Problem {
        Problem { place, what: what.into(), help: help.into(), severity: Severity::Warning }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.place, self.what, self.help)
    }
}

/// The known word that was most likely meant.
#[must_use]
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let scored = known.iter().map(|one| (distance(word, one), *one));
    scored.filter(|(distance, one)| *distance <= 1 + one.len() / 4).min().map(|(_, one)| one)
}

fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (no, c) in left.chars().enumerate() {
        let mut next = vec![no + 1];
        for (at, other) in right.iter().enumerate() {
            let get = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX / 2);
            let changed = get(&row, at) + usize::from(c != *other);
            next.push(changed.min(get(&row, at + 1) + 1).min(get(&next, at) + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

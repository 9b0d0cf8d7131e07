//! One broken rule: where, what is wrong, and what to do about it.
//!
//! Every rule returns these, and they sort by file and line, so that the output reads like a compiler's.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) problem: String,
    pub(crate) remedy: String,
}

impl Violation {
    pub(crate) fn new(
        path: &str,
        line: usize,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Violation {
        Violation { path: path.to_owned(), line, problem: problem.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { path, line, problem, remedy } = self;
        write!(f, "{path}:{line}: {problem}; {remedy}")
    }
}

/// The violations as `path:line`, which is what most tests of rules compare.
#[cfg(test)]
pub(crate) fn places(violations: &[Violation]) -> Vec<String> {
    violations.iter().map(|violation| format!("{}:{}", violation.path, violation.line)).collect()
}

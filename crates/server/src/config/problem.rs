//! What is wrong with a configuration, and what to do about it.
//!
//! Problems are collected, never thrown: whoever repairs a file wants all of them at once.

use std::fmt::Write;

use super::path::Path;
use super::source::{Source, Spot};

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub at: Spot,
    /// Which key.
    pub path: Path,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub help: String,
}

/// Something that is right and that one should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Where.
    pub at: Spot,
    /// Which key.
    pub path: Path,
    /// What.
    pub what: String,
}

impl Problem {
    /// As people read it.
    #[must_use]
    pub fn show(&self, source: &Source) -> String {
        let margin = " ".repeat(self.at.line.to_string().len());
        let mut out = format!("error: {}\n{}", self.what, source.show(self.at));
        let _ = writeln!(out, "{margin} = help: {}", self.help);
        out
    }
}

impl Notice {
    /// As people read it.
    #[must_use]
    pub fn show(&self, source: &Source) -> String {
        format!("notice: {}:{}: {}\n", source.name, self.at.line, self.what)
    }
}

/// Every mistake of a file, in the order of its lines.
#[derive(Debug)]
pub struct Problems {
    /// The file.
    pub source: Source,
    /// The mistakes.
    pub problems: Vec<Problem>,
    /// What one should know all the same.
    pub notices: Vec<Notice>,
}

impl Problems {
    /// All of them as people read them, and how many there are.
    #[must_use]
    pub fn show(&self) -> String {
        let mut out = String::new();
        for problem in &self.problems {
            let _ = writeln!(out, "{}", problem.show(&self.source));
        }
        let count = match self.problems.len() {
            1 => "1 error".to_owned(),
            n => format!("{n} errors"),
        };
        let _ = writeln!(out, "{}: {count}", self.source.name);
        out
    }
}

//! The path of a key: `agents.assistant.tools[1]`.
//!
//! How messages name a place, and how `tree.rs` finds it.

use std::fmt;

/// The path of a key from the top of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Path(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Item(usize),
}

impl Path {
    /// The top of the file.
    #[must_use]
    pub fn top() -> Path {
        Path::default()
    }

    /// A key below this one.
    #[must_use]
    pub fn key(&self, key: &str) -> Path {
        let mut steps = self.0.clone();
        steps.push(Step::Key(key.to_owned()));
        Path(steps)
    }

    /// An item of this list.
    #[must_use]
    pub fn item(&self, index: usize) -> Path {
        let mut steps = self.0.clone();
        steps.push(Step::Item(index));
        Path(steps)
    }

    /// The keys one after the other.
    #[must_use]
    pub fn of(keys: &[&str]) -> Path {
        Path(keys.iter().map(|key| Step::Key((*key).to_owned())).collect())
    }

    /// Whether this is the top of the file.
    #[must_use]
    pub fn is_top(&self) -> bool {
        self.0.is_empty()
    }

    /// The first step and the rest.
    pub(super) fn split_first(&self) -> Option<(Result<&str, usize>, Path)> {
        let (first, rest) = self.0.split_first()?;
        let first = match first {
            Step::Key(key) => Ok(key.as_str()),
            Step::Item(index) => Err(*index),
        };
        Some((first, Path(rest.to_vec())))
    }
}

impl fmt::Display for Path {
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

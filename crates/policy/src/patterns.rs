//! What is found by a name: under the whole of it, under how it begins, or under how it ends.
//!
//! What a pattern is filed under is found for every name that the pattern matches, and for some that it does not.

use std::collections::{BTreeSet, HashMap};

use crate::glob::Glob;

/// What every name that a pattern matches has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum NamePart {
    Whole(String),
    Beginning(String),
    End(String),
}

impl NamePart {
    /// The longer of the two ends, where it is not all of it.
    pub(crate) fn of(glob: &Glob) -> NamePart {
        if let Some(name) = glob.literal() {
            return NamePart::Whole(name.to_owned());
        }
        let (beginning, end) = (glob.prefix(), glob.suffix());
        if end.len() > beginning.len() {
            NamePart::End(end.to_owned())
        } else {
            NamePart::Beginning(beginning.to_owned())
        }
    }
}

/// Values by parts of names.
#[derive(Debug)]
pub(crate) struct ByName<T> {
    whole: HashMap<String, T>,
    beginning: HashMap<String, T>,
    end: HashMap<String, T>,
    /// How long the beginnings are.
    beginnings: BTreeSet<usize>,
    /// How long the ends are.
    ends: BTreeSet<usize>,
}

impl<T> Default for ByName<T> {
    fn default() -> ByName<T> {
        ByName {
            whole: HashMap::new(),
            beginning: HashMap::new(),
            end: HashMap::new(),
            beginnings: BTreeSet::new(),
            ends: BTreeSet::new(),
        }
    }
}

impl<T: Default> ByName<T> {
    /// What is filed under this.
    pub(crate) fn entry(&mut self, part: NamePart) -> &mut T {
        match part {
            NamePart::Whole(name) => self.whole.entry(name).or_default(),
            NamePart::Beginning(text) => {
                self.beginnings.insert(text.len());
                self.beginning.entry(text).or_default()
            }
            NamePart::End(text) => {
                self.ends.insert(text.len());
                self.end.entry(text).or_default()
            }
        }
    }
}

impl<T> ByName<T> {
    /// Everything that is filed under this name or a part of it.
    pub(crate) fn find<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a T> {
        let beginnings = self.beginnings.iter().filter_map(|length| self.beginning.get(name.get(..*length)?));
        let ends = self.ends.iter().filter_map(|length| {
            let from = name.len().checked_sub(*length)?;
            self.end.get(name.get(from..)?)
        });
        self.whole.get(name).into_iter().chain(beginnings).chain(ends)
    }

    /// The same with other values.
    pub(crate) fn map<U>(self, change: impl Fn(T) -> U) -> ByName<U> {
        let of = |all: HashMap<String, T>| {
            all.into_iter().map(|(part, value)| (part, change(value))).collect::<HashMap<String, U>>()
        };
        let (whole, beginning, end) = (of(self.whole), of(self.beginning), of(self.end));
        ByName { whole, beginning, end, beginnings: self.beginnings, ends: self.ends }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_by_what_it_has() {
        let mut all = ByName::<Vec<&str>>::default();
        for pattern in ["refund", "re*", "*fund", "*", "pay*", "*__do", "r?fund", "ä*", "*ä"] {
            all.entry(NamePart::of(&Glob::parse(pattern).unwrap())).push(pattern);
        }
        let found = |name: &str| {
            let mut found: Vec<&str> = all.find(name).flatten().copied().collect();
            found.sort_unstable();
            found
        };
        assert_eq!(found("refund"), ["*", "*fund", "r?fund", "re*", "refund"]);
        assert_eq!(found("x__do"), ["*", "*__do"]);
        assert_eq!(found("ä"), ["*", "*ä", "ä*"]);
        assert_eq!(found(""), ["*"]);
        let counts = all.map(|patterns| patterns.len());
        assert_eq!(counts.find("pay").sum::<usize>(), 2);
    }
}

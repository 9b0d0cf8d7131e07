//! The numbers of requirements (`S0-1`, `S0-38a`) and of decisions about conflicts (`C12`), and how text
//! names them.
//!
//! Knows the form of the numbers only; which of them exist is in docs/requirements.md, read by
//! `requirements.rs`.

use std::fmt;

/// A number; sorts by group, then count, then suffix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Number {
    pub(crate) group: Group,
    count: u32,
    suffix: Option<char>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    /// Requirements of one of the sources S0 to S4.
    Source(u8),
    /// Decisions where the sources are in conflict.
    Conflicts,
}

/// What a text names: one number (first and last are the same) or all from first to last.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mention {
    pub(crate) first: Number,
    pub(crate) last: Number,
}

/// Which numbers count in a text. `C` and digits are found in many texts that mean something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looking {
    ForSources,
    ForSourcesAndConflicts,
}

impl Number {
    /// The number that a text consists of.
    pub(crate) fn parse(text: &str) -> Option<Number> {
        let (number, rest) = leading_number(text)?;
        rest.is_empty().then_some(number)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Group::Source(source) => write!(f, "S{source}"),
            Group::Conflicts => write!(f, "C"),
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dash = match self.group {
            Group::Source(_) => "-",
            Group::Conflicts => "",
        };
        write!(f, "{}{dash}{}", self.group, self.count)?;
        self.suffix.map_or(Ok(()), |suffix| write!(f, "{suffix}"))
    }
}

/// The numbers that a line names, as whole words, in order.
pub(crate) fn mentions(line: &str, looking: Looking) -> Vec<Mention> {
    let mut found: Vec<Mention> = Vec::new();
    let mut end_of_last = 0;
    for (at, _) in line.char_indices() {
        let inside_a_word = line[..at].ends_with(|c: char| is_word_part(c) || c == '-');
        if at < end_of_last || inside_a_word {
            continue;
        }
        let Some((number, rest)) = leading_number(&line[at..]) else {
            continue;
        };
        if number.group == Group::Conflicts && looking == Looking::ForSources {
            continue;
        }
        match found.last_mut() {
            Some(previous) if previous.last.group == number.group && joins(&line[end_of_last..at]) => {
                previous.last = number;
            }
            Some(_) | None => found.push(Mention { first: number.clone(), last: number }),
        }
        end_of_last = line.len() - rest.len();
    }
    found
}

/// Whether the text between two numbers makes a range of them.
fn joins(between: &str) -> bool {
    ["…", "..", "...", "..=", "–", "-", "to"].contains(&between.trim_matches([' ', '`']))
}

/// The number at the start of a text, and what follows; a letter or digit that follows makes it no number.
fn leading_number(text: &str) -> Option<(Number, &str)> {
    let (group, rest) = if let Some(rest) = text.strip_prefix('C') {
        (Group::Conflicts, rest)
    } else {
        let rest = text.strip_prefix('S')?;
        let source = rest.chars().next().filter(|c| ('0'..='4').contains(c))?;
        let source = u8::try_from(source.to_digit(10)?).ok()?;
        (Group::Source(source), rest[1..].strip_prefix('-')?)
    };
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let most_digits = match group {
        Group::Source(_) => 4,
        Group::Conflicts => 2,
    };
    if digits == 0 || digits > most_digits {
        return None;
    }
    let count = rest[..digits].parse().ok()?;
    let rest = &rest[digits..];
    // Any letter is taken, not only the `a` in use, so that a slip such as S0-38b is reported and not passed
    // over.
    let suffix = match group {
        Group::Source(_) => rest.chars().next().filter(char::is_ascii_lowercase),
        Group::Conflicts => None,
    };
    let rest = &rest[suffix.map_or(0, char::len_utf8)..];
    let ends = !rest.starts_with(is_word_part);
    ends.then_some((Number { group, count, suffix }, rest))
}

fn is_word_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str, looking: Looking) -> Vec<String> {
        let show = |Mention { first, last }: &Mention| {
            if first == last { first.to_string() } else { format!("{first}>{last}") }
        };
        mentions(line, looking).iter().map(show).collect()
    }

    #[test]
    fn whole_words_only() {
        let line = "(S0-1), S0-38a; `S4-31`: S5-1 XS0-2 S0-3_x S0-4ab S0- S2-12345 s0-5";
        assert_eq!(shown(line, Looking::ForSources), ["S0-1", "S0-38a", "S4-31"]);
    }

    #[test]
    fn ranges_in_every_spelling() {
        let line = "S0-15 … S0-22, S1-1..S1-3, `S2-24` to `S2-26`, S3-1–S3-4, S0-1, S0-2, S1-9 … S2-1";
        let expected =
            ["S0-15>S0-22", "S1-1>S1-3", "S2-24>S2-26", "S3-1>S3-4", "S0-1", "S0-2", "S1-9", "S2-1"];
        assert_eq!(shown(line, Looking::ForSources), expected);
    }

    #[test]
    fn conflicts_only_when_looked_for() {
        let line = "shows: C7, C23 … C25, C100, C1x, S0-1";
        assert_eq!(shown(line, Looking::ForSourcesAndConflicts), ["C7", "C23>C25", "S0-1"]);
        assert_eq!(shown(line, Looking::ForSources), ["S0-1"]);
    }

    #[test]
    fn numbers_sort_as_people_count() {
        let mut numbers: Vec<Number> = ["C2", "S0-38a", "S0-10", "S1-1", "S0-38", "S0-9"]
            .iter()
            .filter_map(|text| Number::parse(text))
            .collect();
        numbers.sort();
        let shown: Vec<String> = numbers.iter().map(Number::to_string).collect();
        assert_eq!(shown, ["S0-9", "S0-10", "S0-38", "S0-38a", "S1-1", "C2"]);
    }
}

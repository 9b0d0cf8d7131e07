//! The file `.env` beside the configuration: variables for those who do not set them in the environment.
//!
//! Lines of `NAME=value`, `export NAME=value`, comments and empty ones. Single quotes keep everything, double quotes
//! know `\n`, `\"`, `\\` and `\$`; without quotes a ` #` begins a comment. The environment wins.

use std::collections::BTreeMap;

/// A line that is not `NAME=value`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadLine(pub(super) usize);

/// Reads the variables.
pub(super) fn parse(text: &str) -> Result<BTreeMap<String, String>, BadLine> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#')
    });
    lines.map(|(no, line)| variable(line).ok_or(BadLine(no))).collect()
}

fn variable(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=')?;
    let name = name.trim();
    let is_name = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then(|| value_of(value.trim())).flatten().map(|value| (name.to_owned(), value))
}

fn value_of(text: &str) -> Option<String> {
    if let Some(rest) = text.strip_prefix('\'') {
        let (value, after) = rest.split_once('\'')?;
        return is_over(after).then(|| value.to_owned());
    }
    if let Some(rest) = text.strip_prefix('"') {
        return double_quoted(rest);
    }
    let end = text.find(" #").unwrap_or(text.len());
    Some(text[..end].trim_end().to_owned())
}

fn double_quoted(text: &str) -> Option<String> {
    let (mut out, mut chars) = (String::new(), text.chars());
    loop {
        match chars.next()? {
            '"' => return is_over(chars.as_str()).then_some(out),
            '\\' => match chars.next()? {
                'n' => out.push('\n'),
                c @ ('"' | '\\' | '$') => out.push(c),
                c => out.extend(['\\', c]),
            },
            c => out.push(c),
        }
    }
}

/// Whether nothing but a comment follows a closing quote.
fn is_over(text: &str) -> bool {
    let text = text.trim_start();
    text.is_empty() || text.starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_line() {
        let text = "# keys\n\nA=1\nexport B = two words # said\nC='it # stays'  # said\nD=\"a\\n\\\"b\\\" \\$\"\nE=\nF=a#b\n";
        let read = parse(text).unwrap();
        let of = |name: &str| read.get(name).map(String::as_str);
        assert_eq!([of("A"), of("B"), of("C")], [Some("1"), Some("two words"), Some("it # stays")]);
        assert_eq!([of("D"), of("E"), of("F")], [Some("a\n\"b\" $"), Some(""), Some("a#b")]);
        assert_eq!(read.len(), 6);
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        for line in ["A", "1A=x", "A-B=x", "=x", "A='x", "A=\"x", "A='x' y"] {
            assert_eq!(parse(&format!("OK=1\n{line}\n")), Err(BadLine(2)), "{line}");
        }
    }
}

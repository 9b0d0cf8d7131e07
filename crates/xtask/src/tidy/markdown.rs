//! The lines of a Markdown page, each with whether it is prose or code.
//!
//! Only fenced blocks count as code; what stands between backticks in a line can be cut out with
//! [`without_code_spans`].

use std::collections::BTreeSet;

/// A line of a page, its number from 1, and where it stands. The fences themselves are left out.
pub(crate) struct PageLine<'a> {
    pub(crate) number: usize,
    pub(crate) text: &'a str,
    pub(crate) place: Place,
}

/// Fenced blocks are numbered, so that the lines of one block can be told from those of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Prose,
    Fence(usize),
}

pub(crate) fn page_lines(page: &str) -> Vec<PageLine<'_>> {
    let mut lines = Vec::new();
    let mut open: Option<&str> = None;
    let mut fences = 0;
    for (index, text) in page.lines().enumerate() {
        match (open, fence(text)) {
            (None, Some(ticks)) => {
                open = Some(ticks);
                fences += 1;
            }
            (Some(opening), Some(ticks)) if ticks.starts_with(opening) && text.trim() == ticks => open = None,
            (Some(_), _) => lines.push(PageLine { number: index + 1, text, place: Place::Fence(fences) }),
            (None, None) => lines.push(PageLine { number: index + 1, text, place: Place::Prose }),
        }
    }
    lines
}

/// The line with everything between backticks blanked out.
pub(crate) fn without_code_spans(line: &str) -> String {
    let parts = line.split('`').enumerate();
    parts.map(|(index, part)| if index % 2 == 0 { part } else { " " }).collect()
}

/// The text of a heading and how many marks it has.
pub(crate) fn heading<'a>(line: &PageLine<'a>) -> Option<(usize, &'a str)> {
    let marks = line.text.len() - line.text.trim_start_matches('#').len();
    let text = line.text[marks..].strip_prefix(' ')?;
    (line.place == Place::Prose && (1..=6).contains(&marks)).then(|| (marks, text.trim()))
}

/// The names that the headings of a page can be linked by, as mdBook and the usual viewers make them: letters,
/// digits, `-` and `_` stay, spaces become `-`, the second of the same name gets `-1`.
pub(crate) fn heading_ids(page: &str) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for (_, text) in page_lines(page).iter().filter_map(heading) {
        let kept = text.chars().filter_map(|c| match c {
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            c if c.is_whitespace() => Some('-'),
            _ => None,
        });
        let id = kept.collect::<String>().to_lowercase();
        let numbered = (1..).map(|number| format!("{id}-{number}"));
        let free = std::iter::once(id.clone()).chain(numbered).find(|id| !ids.contains(id));
        ids.extend(free);
    }
    ids
}

/// The cells of a row of a table; `\|` does not part cells.
pub(crate) fn table_cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?;
    let inner = inner.strip_suffix('|').unwrap_or(inner).replace("\\|", "\u{0}");
    Some(inner.split('|').map(|cell| cell.trim().replace('\u{0}', "|")).collect())
}

/// The backticks or tildes that open or close a block, if the line starts with three or more.
fn fence(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let mark = line.chars().next().filter(|c| ['`', '~'].contains(c))?;
    let length = line.len() - line.trim_start_matches(mark).len();
    (length >= 3).then(|| &line[..length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_part_code_from_prose() {
        let page = "a\n```sh\nb\n```\nc\n````\n```\nd\n````\ne";
        let shown: Vec<(usize, &str, Place)> =
            page_lines(page).iter().map(|line| (line.number, line.text, line.place)).collect();
        let expected = [
            (1, "a", Place::Prose),
            (3, "b", Place::Fence(1)),
            (5, "c", Place::Prose),
            (7, "```", Place::Fence(2)),
            (8, "d", Place::Fence(2)),
            (10, "e", Place::Prose),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn code_spans_are_cut_out() {
        assert_eq!(without_code_spans("a `[b](c)` d"), "a   d");
    }

    #[test]
    fn headings_have_names() {
        let page = "# What `a_b` is\n```\n# no heading\n```\n## Twice, or more\n## Twice, or more\n#none";
        let expected = ["twice-or-more", "twice-or-more-1", "what-a_b-is"];
        assert_eq!(heading_ids(page), BTreeSet::from(expected.map(str::to_owned)));
    }

    #[test]
    fn cells_keep_escaped_bars() {
        assert_eq!(table_cells("| C1 | a \\| b | |"), Some(vec!["C1".into(), "a | b".into(), String::new()]));
        assert_eq!(table_cells("no row"), None);
    }
}

//! Rule: the error texts that docs/troubleshooting.md explains are texts that the product says.
//!
//! Each heading of the third level on that page quotes one, with `…` where something is filled in. It must be found in
//! the source, or in a golden file of what the product prints, so that the page changes with the texts.

use super::markdown::{heading, page_lines};
use super::repository::{Repository, SourceFile};
use super::violation::Violation;

const PAGE: &str = "docs/troubleshooting.md";

/// How far apart the pieces around a `…` may be in the source: a placeholder, or a value in a golden file.
const GAP: usize = 100;

/// Less than this would be found anywhere.
const SHORTEST: usize = 10;

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let Some(page) = repository.file(PAGE) else { return Vec::new() };
    let said: Vec<String> = repository.files().iter().filter_map(said_by).collect();
    let lines = page_lines(&page.text);
    let headings = lines.iter().filter_map(|line| Some((line.number, heading(line)?)));
    let third = headings.filter(|(_, (level, _))| *level == 3);
    third.filter_map(|(line, (_, text))| problem(line, text, &said)).collect()
}

fn problem(line: usize, heading: &str, said: &[String]) -> Option<Violation> {
    let violation = |problem: String, remedy| Some(Violation::new(PAGE, line, problem, remedy));
    let Some(quoted) = code_span(heading) else {
        return violation(
            format!("the heading `{heading}` quotes no error text"),
            "write the text between backticks, with `…` where something is filled in",
        );
    };
    let pieces: Vec<&str> = quoted.split('…').map(str::trim).filter(|piece| !piece.is_empty()).collect();
    if pieces.iter().all(|piece| piece.chars().count() < SHORTEST) {
        return violation(format!("`{quoted}` is too short to be found again"), "quote more of the text");
    }
    if said.iter().any(|text| has(text, &pieces)) {
        return None;
    }
    violation(
        format!("the product does not say `{quoted}`"),
        "quote the text as it stands in the source, with `…` where something is filled in, or remove its entry",
    )
}

/// What stands between the backticks, if the heading is nothing else.
fn code_span(heading: &str) -> Option<&str> {
    let ticks = &heading[..heading.len() - heading.trim_start_matches('`').len()];
    let inner = heading.strip_prefix(ticks)?.strip_suffix(ticks)?;
    (!ticks.is_empty() && !inner.contains(ticks)).then(|| inner.trim())
}

/// Whether the pieces stand in the text, in order and near to each other.
fn has(text: &str, pieces: &[&str]) -> bool {
    let Some((first, rest)) = pieces.split_first() else { return false };
    text.match_indices(first).any(|(at, _)| {
        let mut after = &text[at + first.len()..];
        rest.iter().all(|piece| match after.find(piece) {
            Some(gap) if gap <= GAP => {
                after = &after[gap + piece.len()..];
                true
            }
            Some(_) | None => false,
        })
    })
}

/// What a file lets the product say: for source, without comments and tests, with its literals as they are printed.
fn said_by(file: &SourceFile) -> Option<String> {
    if file.path.ends_with(".expected") {
        return Some(file.text.clone());
    }
    let is_test = file.path.contains("/tests/") || file.path.ends_with("/tests.rs");
    if !file.is_crate_source() || file.crate_folder() == Some("xtask") || is_test {
        return None;
    }
    let code = file.text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut text = String::new();
    for line in lines {
        let line = line.trim_start();
        match line.strip_suffix('\\') {
            Some(goes_on) => text.push_str(goes_on),
            None => text.extend([line, "\n"]),
        }
    }
    Some(text.replace("\\\"", "\"").replace("{{", "{").replace("}}", "}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "/// commented: not a text\nlet a = \"no server answers at {base}: {why}, \\\n    \
        start one\";\nlet b = \"the key `{key}` is {{\\\"odd\\\"}}\";\n#[cfg(test)]\nmod tests { \"only in a test\" }";

    fn found(page: &str) -> Vec<String> {
        let files = [
            (PAGE, page),
            ("crates/server/src/a.rs", SOURCE),
            ("crates/server/tests/config/a.expected", "error: there is no llm `gtp`\n"),
            ("crates/server/tests/a.rs", "let c = \"said by a test\";"),
            ("crates/xtask/src/a.rs", "let c = \"said by the tools\";"),
        ];
        check(&Repository::of(&files))
            .iter()
            .map(|violation| format!("{}: {}", violation.line, violation.problem))
            .collect()
    }

    #[test]
    fn what_the_product_says_may_be_quoted() {
        let page = "## Any heading\n### `no server answers at …, start one`\n### ``the key `…` is {\"odd\"}``\n\
            ### `` there is no llm `…` ``\n```\n### no heading\n```";
        assert_eq!(found(page), Vec::<String>::new());
    }

    #[test]
    fn anything_else_may_not() {
        let page = "### `start one … no server answers at`\n### `commented: not a text`\n### `only in a test`\n\
            ### `said by a test`\n### `said by the tools`\n### `the key`\n### no quote";
        let expected = [
            "1: the product does not say `start one … no server answers at`",
            "2: the product does not say `commented: not a text`",
            "3: the product does not say `only in a test`",
            "4: the product does not say `said by a test`",
            "5: the product does not say `said by the tools`",
            "6: `the key` is too short to be found again",
            "7: the heading `no quote` quotes no error text",
        ];
        assert_eq!(found(page), expected);
    }
}

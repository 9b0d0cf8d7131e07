//! Text of models as Markdown: headings, lists, tables, quotes, code, emphasis. Never raw HTML, never a link that leads away
//! unseen, never an image.
//!
//! What is not understood stays as it is written. Everything passes the same escape as any other text, with hidden
//! characters marked; an address stands beside its words and is not a link.

use super::render::marked;

/// The text as markup of this server's own making.
pub(crate) fn html(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = String::with_capacity(text.len() + 64);
    blocks(&lines, &mut out, 0);
    out
}

/// Quotes within quotes, and no deeper: nobody writes more, and a thousand `>` must not cost anything.
const DEPTH: usize = 4;

fn blocks(lines: &[&str], out: &mut String, depth: usize) {
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let trimmed = line.trim_start();
        if trimmed.is_empty() {
            at += 1;
        } else if let Some(fence) = fence(trimmed) {
            let code: Vec<&str> = lines[at + 1..]
                .iter()
                .copied()
                .take_while(|line| !line.trim_start().starts_with(fence))
                .collect();
            at += code.len() + 2;
            out.push_str(&format!("<pre class=\"code\">{}</pre>", marked(&code.join("\n"))));
        } else if let Some((level, words)) = heading(trimmed) {
            // The page has the first levels.
            let level = (level + 3).min(6);
            out.push_str(&format!("<h{level}>{}</h{level}>", inline(words)));
            at += 1;
        } else if trimmed.starts_with('>') && depth < DEPTH {
            let quoted: Vec<&str> = lines[at..]
                .iter()
                .map_while(|line| line.trim_start().strip_prefix('>'))
                .map(|line| line.strip_prefix(' ').unwrap_or(line))
                .collect();
            at += quoted.len();
            out.push_str("<blockquote>");
            blocks(&quoted, out, depth + 1);
            out.push_str("</blockquote>");
        } else if let Some((list, _)) = item(trimmed) {
            let mut items: Vec<String> = Vec::new();
            while let Some(line) = lines.get(at) {
                match (item(line.trim_start()), items.last_mut()) {
                    (Some((of, words)), _) if of == list => items.push(words.to_owned()),
                    (None, Some(last)) if line.starts_with(' ') && !line.trim().is_empty() => {
                        last.push('\n');
                        last.push_str(line.trim());
                    }
                    (Some(_) | None, _) => break,
                }
                at += 1;
            }
            let tag = match list {
                ListKind::Bullets => "ul",
                ListKind::Numbers => "ol",
            };
            let items: String = items.iter().map(|words| format!("<li>{}</li>", inline(words))).collect();
            out.push_str(&format!("<{tag}>{items}</{tag}>"));
        } else if let Some(columns) = columns(&lines[at..]) {
            let rows = lines[at + 2..].iter().take_while(|line| line.contains('|')).count();
            table(&lines[at..at + 2 + rows], columns, out);
            at += 2 + rows;
        } else {
            let starts_block = |next: usize| {
                let line = lines[next].trim_start();
                line.is_empty()
                    || fence(line).is_some()
                    || heading(line).is_some()
                    || item(line).is_some()
                    || (line.starts_with('>') && depth < DEPTH)
                    || columns(&lines[next..]).is_some()
            };
            let more = (at + 1..lines.len()).take_while(|next| !starts_block(*next)).count();
            let words = lines[at..=at + more].join("\n");
            out.push_str(&format!("<p>{}</p>", inline(&words)));
            at += more + 1;
        }
    }
}

/// How many columns the table has that these lines begin with: a line of names, and one of dashes below it.
fn columns(lines: &[&str]) -> Option<usize> {
    let (names, rule) = (lines.first()?, lines.get(1)?);
    let is_rule = |cell: &str| {
        let dashes = cell.strip_prefix(':').unwrap_or(cell);
        let dashes = dashes.strip_suffix(':').unwrap_or(dashes);
        !dashes.is_empty() && dashes.bytes().all(|byte| byte == b'-')
    };
    let columns = cells(names).count();
    let is_table = names.contains('|') && rule.contains('|') && cells(rule).all(is_rule);
    (is_table && cells(rule).count() == columns).then_some(columns)
}

fn cells(line: &str) -> impl Iterator<Item = &str> {
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    line.strip_suffix('|').unwrap_or(line).split('|').map(str::trim)
}

/// A table; a row that has more cells than there are columns keeps them in its last one.
fn table(lines: &[&str], columns: usize, out: &mut String) {
    out.push_str(
        "<div class=\"wide-table\" role=\"group\" aria-label=\"Table\" tabindex=\"0\"><table><thead><tr>",
    );
    for name in cells(lines[0]) {
        out.push_str(&format!("<th scope=\"col\">{}</th>", inline(name)));
    }
    out.push_str("</tr></thead><tbody>");
    for line in &lines[2..] {
        let row: Vec<&str> = cells(line).collect();
        let (shown, rest) = row.split_at(row.len().min(columns - 1));
        out.push_str("<tr>");
        for cell in shown {
            out.push_str(&format!("<td>{}</td>", inline(cell)));
        }
        if !rest.is_empty() {
            out.push_str(&format!("<td>{}</td>", inline(&rest.join(" | "))));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
}

fn fence(line: &str) -> Option<&'static str> {
    ["```", "~~~"].into_iter().find(|fence| line.starts_with(fence))
}

fn heading(line: &str) -> Option<(usize, &str)> {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    let words = line[level..].strip_prefix(' ')?;
    (1..=6).contains(&level).then_some((level, words.trim()))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ListKind {
    Bullets,
    Numbers,
}

fn item(line: &str) -> Option<(ListKind, &str)> {
    let bullet = ["- ", "* ", "+ "].into_iter().find_map(|bullet| line.strip_prefix(bullet));
    if let Some(words) = bullet {
        return Some((ListKind::Bullets, words));
    }
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let words = line[digits..].strip_prefix(". ").or_else(|| line[digits..].strip_prefix(") "))?;
    (1..=9).contains(&digits).then_some((ListKind::Numbers, words))
}

/// Code, strong and emphasised words. A sign without its partner is a sign.
fn inline(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find(['`', '*']) {
        out.push_str(&marked(&rest[..at]));
        let here = &rest[at..];
        let found = [("`", "code"), ("**", "strong"), ("*", "em")].into_iter().find_map(|(sign, tag)| {
            let inner = here.strip_prefix(sign)?;
            let end = inner.find(sign).filter(|end| *end > 0)?;
            let words = &inner[..end];
            let is_tight = sign == "`" || !(words.starts_with(' ') || words.ends_with(' '));
            is_tight.then(|| (format!("<{tag}>{}</{tag}>", marked(words)), &inner[end + sign.len()..]))
        });
        match found {
            Some((html, after)) => {
                out.push_str(&html);
                rest = after;
            }
            None => {
                let signs = here.bytes().take_while(|byte| *byte == here.as_bytes()[0]).count();
                out.push_str(&marked(&here[..signs]));
                rest = &here[signs..];
            }
        }
    }
    out.push_str(&marked(rest));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_text_becomes_markup() {
        let text = "# Plan\n\nFirst **this**, then *that* with `a<b`.\nStill here.\n\n- one\n- two\n  more\n\n1. x\n2. y\n\n> said\n\n```sh\nrm -rf <x>\n```\n";
        assert_eq!(
            html(text),
            "<h4>Plan</h4><p>First <strong>this</strong>, then <em>that</em> with <code>a&lt;b</code>.\nStill here.</p>\
             <ul><li>one</li><li>two\nmore</li></ul><ol><li>x</li><li>y</li></ol><blockquote><p>said</p></blockquote>\
             <pre class=\"code\">rm -rf &lt;x&gt;</pre>"
        );
    }

    /// T17, T20: no markup of the text's own, no address that is followed, hidden characters seen.
    #[test]
    fn nothing_of_the_text_is_markup() {
        for text in [
            "<script>alert(1)</script>",
            "<img src=x onerror=alert(1)>",
            "[x](javascript:alert(1))",
            "![x](http://evil.example/x.png)",
            "<https://evil.example>",
            "`<b>`**<i>***<u>*",
            "```\n</pre><script>\n```",
            "> <iframe>",
            "- <svg onload=x>",
            "# <style>",
            "*a\u{202e}b*",
        ] {
            let made = html(text);
            let bare: String =
                ["p", "pre class=\"code\"", "/pre", "/p", "code", "/code", "strong", "/strong", "em", "/em"]
                    .iter()
                    .chain(&[
                        "blockquote",
                        "/blockquote",
                        "ul",
                        "/ul",
                        "li",
                        "/li",
                        "h4",
                        "/h4",
                        "span class=\"mark\"",
                        "/span",
                    ])
                    .fold(made.clone(), |text, tag| text.replace(&format!("<{tag}>"), ""));
            assert!(!bare.contains('<') && !made.contains('\u{202e}'), "{text} became {made}");
        }
    }

    /// T20: cells are text too, none is left out, and what only looks like a table is text.
    #[test]
    fn tables_have_their_cells_and_no_markup_of_their_own() {
        let head =
            "<div class=\"wide-table\" role=\"group\" aria-label=\"Table\" tabindex=\"0\"><table><thead><tr>";
        assert_eq!(
            html("Sizes:\n| file | size |\n|:---|---:|\n| `a` | <b> |\n| x | y | z |\n\nafter"),
            format!(
                "<p>Sizes:</p>{head}<th scope=\"col\">file</th><th scope=\"col\">size</th></tr></thead><tbody>\
                 <tr><td><code>a</code></td><td>&lt;b&gt;</td></tr><tr><td>x</td><td>y | z</td></tr></tbody></table></div>\
                 <p>after</p>"
            )
        );
        assert_eq!(
            html("a | b\n--- | --"),
            format!(
                "{head}<th scope=\"col\">a</th><th scope=\"col\">b</th></tr></thead><tbody></tbody></table></div>"
            )
        );
        for text in ["a | b", "| a | b |\n|---|", "a\n---", "a | b\n-- x -- | --"] {
            assert!(!html(text).contains("<table>"), "{text}");
        }
        assert!(html(&"|-".repeat(50_000)).len() < 1_000_000);
        assert!(html(&"|-\n".repeat(20_000)).len() < 4_000_000);
    }

    #[test]
    fn odd_text_costs_nothing() {
        assert!(html(&">".repeat(100_000)).len() < 1_000_000);
        assert!(html(&"*".repeat(100_000)).len() < 1_000_000);
        assert_eq!(html("2 * 3 * 4"), "<p>2 * 3 * 4</p>");
        assert_eq!(html("```\nopen"), "<pre class=\"code\">open</pre>");
        assert_eq!(html(""), "");
    }
}

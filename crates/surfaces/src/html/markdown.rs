//! Text of models as Markdown: headings, lists, quotes, code, emphasis. Never raw HTML, never a link that leads away
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
        } else {
            let starts_block = |line: &str| {
                let line = line.trim_start();
                line.is_empty()
                    || fence(line).is_some()
                    || heading(line).is_some()
                    || item(line).is_some()
                    || (line.starts_with('>') && depth < DEPTH)
            };
            let more = lines[at + 1..].iter().take_while(|line| !starts_block(line)).count();
            let words = lines[at..=at + more].join("\n");
            out.push_str(&format!("<p>{}</p>", inline(&words)));
            at += more + 1;
        }
    }
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

    #[test]
    fn odd_text_costs_nothing() {
        assert!(html(&">".repeat(100_000)).len() < 1_000_000);
        assert!(html(&"*".repeat(100_000)).len() < 1_000_000);
        assert_eq!(html("2 * 3 * 4"), "<p>2 * 3 * 4</p>");
        assert_eq!(html("```\nopen"), "<pre class=\"code\">open</pre>");
        assert_eq!(html(""), "");
    }
}

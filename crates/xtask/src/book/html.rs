//! What a page that mdBook made links to, and what can be linked on it.
//!
//! Reads tags and their attributes and nothing else: text, comments, scripts and styles are passed over. Enough for
//! pages that a program made; no parser for HTML at large.

use std::collections::BTreeSet;

/// A page as `book.rs` needs it.
pub(super) struct Page {
    /// The values of `href` and `src`, in their order.
    pub(super) links: Vec<String>,
    /// The values of `id`.
    pub(super) ids: BTreeSet<String>,
}

impl Page {
    pub(super) fn read(html: &str) -> Page {
        let mut page = Page { links: Vec::new(), ids: BTreeSet::new() };
        let mut rest = html;
        while let Some(start) = rest.find('<') {
            rest = &rest[start + 1..];
            if let Some(comment) = rest.strip_prefix("!--") {
                rest = after(comment, "-->");
                continue;
            }
            let (tag, behind) = rest.split_at(end_of_tag(rest));
            rest = behind;
            page.take(tag);
            for silent in ["script", "style"] {
                if tag.split([' ', '\n']).next() == Some(silent) {
                    rest = after(rest, &format!("</{silent}"));
                }
            }
        }
        page
    }

    fn take(&mut self, tag: &str) {
        for (name, value) in attributes(tag) {
            let value = value.replace("&#x27;", "'").replace("&quot;", "\"").replace("&amp;", "&");
            match name {
                "href" | "src" => self.links.push(value),
                "id" => {
                    self.ids.insert(value);
                }
                _ => {}
            }
        }
    }
}

/// A part of an address with its `%20` and the like read.
pub(super) fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let written =
            behind.get(..2).filter(|_| *first == b'%').and_then(|pair| std::str::from_utf8(pair).ok());
        match written.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn after<'a>(text: &'a str, end: &str) -> &'a str {
    text.find(end).map_or("", |at| &text[at + end.len()..])
}

/// Where a tag ends: at the first `>` that is in no quotes.
fn end_of_tag(text: &str) -> usize {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c == '>' => return at,
            None => {}
        }
    }
    text.len()
}

/// The attributes of a tag that have a value in quotes.
fn attributes(tag: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = tag;
    while let Some(at) = rest.find('=') {
        let name = rest[..at].rsplit(|c: char| c.is_whitespace()).next().unwrap_or_default();
        rest = &rest[at + 1..];
        let Some(quote) = rest.chars().next().filter(|c| ['"', '\''].contains(c)) else { continue };
        let Some((value, behind)) = rest[1..].split_once(quote) else { break };
        found.push((name, value));
        rest = behind;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_attributes_of_tags_count() {
        let page = Page::read(
            "<!-- <a href=\"no\"> --><a class=\"x > y\" href='yes?a&amp;b' id=\"i\">text href=\"no\"</a>\
             <script src=\"s.js\">\"<a href='no'>\"</script><pre>&lt;a href=\"no\"&gt;</pre><img src=\"p.png\" alt>",
        );
        assert_eq!(page.links, ["yes?a&b", "s.js", "p.png"]);
        assert_eq!(page.ids, BTreeSet::from(["i".to_owned()]));
    }

    #[test]
    fn escapes_are_read() {
        assert_eq!(decoded("a%20b%C3%A4"), "a bä");
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(decoded("%zz%ä"), "%zz%ä");
    }
}

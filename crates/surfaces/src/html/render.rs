//! The templates, and how a value becomes a page.
//!
//! Everything is escaped unless it was made safe here, and every hidden character is marked wherever it stands (T17,
//! T20): a template that forgets something shows marks, not tricks. `marked` makes the marks stand out; `exact` is for
//! text that a person typed and gets back to go on with.

use std::sync::LazyLock;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, HtmlEscape, UndefinedBehavior, context, escape_formatter};
use serde::Serialize;
use standfast_engine::auth::Principal;

use super::csrf::{Token, once};
use super::{assets, markdown};
use crate::labels::hidden::{is_hidden_in_lines, mark, visible};

/// Work that a page may cost; far more than the longest timeline needs.
const FUEL: u64 = 50_000_000;

/// The frame of every page, and the page that says one thing.
const FRAME: [(&str, &str); 2] = [
    ("layout.html", include_str!("templates/layout.html")),
    ("message.html", include_str!("templates/message.html")),
];

/// What every page has.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Site {
    /// Who looks at it, where that is known.
    who: Option<String>,
    /// The token of its forms.
    csrf: String,
    /// Names this showing of the page.
    once: String,
    /// Names the style sheet's contents.
    assets: &'static str,
    /// What stands before every path of this server, where something in front of it takes that away again.
    base: String,
}

impl Site {
    pub(crate) fn of(who: &Principal, token: &Token) -> Site {
        Site {
            who: Some(who.user.to_string()),
            csrf: token.value.clone(),
            once: once(),
            assets: &assets::VERSION,
            base: String::new(),
        }
    }

    /// The same on a server that others reach below a path.
    pub(crate) fn below(self, base: &str) -> Site {
        Site { base: base.to_owned(), ..self }
    }

    pub(crate) fn anonymous() -> Site {
        Site {
            who: None,
            csrf: String::new(),
            once: String::new(),
            assets: &assets::VERSION,
            base: String::new(),
        }
    }
}

/// The pages of one surface: its own templates within the frame.
pub(crate) struct Templates(Result<Environment<'static>, minijinja::Error>);

impl Templates {
    pub(crate) fn new(own: &[(&'static str, &'static str)]) -> Templates {
        Templates(environment(own))
    }

    /// A page with this status.
    pub(crate) fn page(
        &self,
        status: StatusCode,
        template: &str,
        site: &Site,
        page: &impl Serialize,
    ) -> Response {
        let values = context! { template, site => Serde(site), page => Serde(page) };
        let rendered = match &self.0 {
            Ok(pages) => pages.get_template(template).and_then(|template| template.render(values)),
            Err(error) => Err(minijinja::Error::new(error.kind(), error.to_string())),
        };
        let html = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
        match rendered {
            Ok(text) => (status, html, text).into_response(),
            Err(error) => {
                tracing::error!(template, error = %format!("{error:#}"), "web: could not render a page");
                let sorry = "<!doctype html><title>Standfast</title><p>This page could not be rendered. Nothing was \
                             changed; see the log of the server.";
                (StatusCode::INTERNAL_SERVER_ERROR, html, sorry).into_response()
            }
        }
    }
}

/// What needs no templates but the frame.
pub(super) static MESSAGES: LazyLock<Templates> = LazyLock::new(|| Templates::new(&[]));

fn environment(own: &[(&'static str, &'static str)]) -> Result<Environment<'static>, minijinja::Error> {
    let mut pages = Environment::new();
    pages.set_undefined_behavior(UndefinedBehavior::Strict);
    pages.set_fuel(Some(FUEL));
    pages.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    pages.add_filter("marked", |text: String| Value::from_safe_string(marked(&text)));
    pages.add_filter("markdown", |text: String| Value::from_safe_string(markdown::html(&text)));
    // Markup that this server made itself, of text that it escaped.
    pages.add_filter("made", |html: String| Value::from_safe_string(html));
    pages.add_filter("exact", |text: String| Value::from_safe_string(HtmlEscape(&text).to_string()));
    pages.set_formatter(|out, state, value| match value.as_str() {
        Some(text) if !value.is_safe() => Ok(write!(out, "{}", HtmlEscape(&visible(text)))?),
        Some(_) | None if value.is_none() => Ok(()),
        Some(_) | None => escape_formatter(out, state, value),
    });
    for (name, source) in FRAME.iter().chain(own) {
        pages.add_template(name, source)?;
    }
    Ok(pages)
}

/// Text for the eye: escaped, with each hidden character in a box of its own.
pub(crate) fn marked(text: &str) -> String {
    let mut html = String::with_capacity(text.len() + 16);
    for part in text.split_inclusive(is_hidden_in_lines) {
        let hidden = part.chars().next_back().filter(|c| is_hidden_in_lines(*c));
        let seen = hidden.map_or(part, |c| &part[..part.len() - c.len_utf8()]);
        html.push_str(&HtmlEscape(seen).to_string());
        html.extend(hidden.map(|c| format!("<span class=\"mark\">{}</span>", mark(c))));
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T17, T20: markup is text, and hidden characters are seen.
    #[test]
    fn text_is_escaped_and_marked() {
        let text = "<b>\u{202e}x\u{200b}\u{200b}</b>\n'\"";
        assert_eq!(
            marked(text),
            "&lt;b&gt;<span class=\"mark\">⟨U+202E⟩</span>x<span class=\"mark\">⟨U+200B⟩</span>\
             <span class=\"mark\">⟨U+200B⟩</span>&lt;&#x2f;b&gt;\n&#x27;&quot;"
        );
    }

    #[test]
    fn a_template_that_forgets_everything_still_escapes_and_marks() {
        let pages = environment(&[]).unwrap();
        let shown =
            pages.render_named_str("x.html", "{{ t }}|{{ n }}", context! { t => "<\u{202e}", n => () });
        assert_eq!(shown.unwrap(), "&lt;⟨U+202E⟩|");
    }
}

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
use standfast_core::hold::HoldKind;
use standfast_engine::auth::{Identification, Principal};

use super::csrf::{Extent, Token, once};
use super::{assets, filters, markdown};
use crate::http::filters::KINDS;
use crate::labels;
use crate::labels::hidden_characters::{is_hidden_in_lines, mark, visible};

/// Work that a page may cost; far more than the longest timeline needs.
const FUEL: u64 = 50_000_000;

/// The frame of every page, the page that says one thing, and the one to sign in.
const FRAME: [(&str, &str); 3] = [
    ("layout.html", include_str!("templates/layout.html")),
    ("message.html", include_str!("templates/message.html")),
    ("sign_in.html", include_str!("templates/sign_in.html")),
];

/// What every page has.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Site {
    /// Who looks at it, where that is known.
    who: Option<String>,
    /// Whether they came in with something that can be put away again.
    can_sign_out: bool,
    /// The token of its forms.
    csrf: String,
    /// Names this showing of the page.
    once: String,
    /// Names the contents of styles and icons.
    assets: &'static str,
    /// The address of the script, which has its digest.
    script: &'static str,
    /// What stands before every path of this server, where something in front of it takes that away again.
    base: String,
    /// The page is open, and only what stands within its frame is wanted.
    is_fragment: bool,
    /// What is pending, for the navigation.
    pending: Option<PendingCount>,
    /// The server has a first minute to show.
    has_tour: bool,
}

/// How much is pending for whoever looks, by kind: in the navigation, and in the title of the tab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct PendingCount {
    /// All kinds of which there is something, in words: `3 approvals, 1 question`.
    kinds: String,
    /// The same, one by one.
    badges: Vec<KindBadge>,
}

/// How much is pending of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct KindBadge {
    /// The kind, as the filter of the list has it.
    word: &'static str,
    /// `3 approvals`, or `19+ approvals` where not all are counted.
    text: String,
}

impl PendingCount {
    /// More than this is shown as so many and a plus, and not counted.
    pub(crate) const MOST: usize = 20;

    /// So many of each kind, and what stands behind each number.
    fn counted(counts: &[(HoldKind, u64)], more: &str) -> Option<PendingCount> {
        let word = |kind| KINDS.iter().find(|(.., known)| *known == kind).map_or("", |(word, ..)| *word);
        let badge =
            |kind, count| KindBadge { word: word(kind), text: labels::counted_kind(kind, count, more) };
        let some = counts.iter().filter(|(_, count)| *count > 0);
        let badges: Vec<KindBadge> = some.map(|(kind, count)| badge(*kind, *count)).collect();
        let kinds = badges.iter().map(|badge| badge.text.as_str()).collect::<Vec<_>>().join(", ");
        (!badges.is_empty()).then_some(PendingCount { kinds, badges })
    }

    /// Of the first ones that are pending, up to one more than are counted; none when there is nothing to count.
    pub(crate) fn of(kinds: impl Iterator<Item = HoldKind>) -> Option<PendingCount> {
        let mut counts: Vec<(HoldKind, u64)> = HoldKind::ALL.into_iter().map(|kind| (kind, 0)).collect();
        let mut is_cut = false;
        for (at, kind) in kinds.enumerate() {
            is_cut = at >= Self::MOST;
            let known = counts.iter_mut().find(|(known, _)| *known == kind).filter(|_| !is_cut);
            known.into_iter().for_each(|(_, count)| *count += 1);
        }
        PendingCount::counted(&counts, if is_cut { "+" } else { "" })
    }
}

impl Site {
    pub(crate) fn of(who: &Principal, token: &Token) -> Site {
        Site {
            who: Some(who.user.to_string()),
            can_sign_out: who.by != Identification::Local,
            csrf: token.value.clone(),
            once: once(),
            is_fragment: token.extent == Extent::Fragment,
            has_tour: token.has_tour,
            pending: token.pending.clone(),
            ..Site::anonymous()
        }
    }

    /// The same where the page itself has counted what is pending.
    pub(crate) fn with_pending(self, counts: &[(HoldKind, u64)], more: &str) -> Site {
        Site { pending: PendingCount::counted(counts, more), ..self }
    }

    /// The same on a server that others reach below a path.
    pub(crate) fn below(self, base: &str) -> Site {
        Site { base: base.to_owned(), ..self }
    }

    pub(crate) fn anonymous() -> Site {
        Site {
            who: None,
            can_sign_out: false,
            csrf: String::new(),
            once: String::new(),
            assets: &assets::VERSION,
            script: &assets::SCRIPT,
            base: String::new(),
            is_fragment: false,
            pending: None,
            has_tour: false,
        }
    }
}

/// The page where a browser signs in.
#[derive(Debug, Default, Serialize)]
pub(crate) struct SignInPage {
    /// Where to go afterwards; empty means to what is pending.
    pub(crate) next: String,
    /// What went wrong.
    pub(crate) notice: Option<String>,
    /// What the identity provider is called at which people sign in.
    pub(crate) provider: Option<String>,
    /// Where to sign out there as well, for somebody who has just signed out here.
    pub(crate) sign_out_url: Option<String>,
}

/// The page where a browser signs in, with the token of that browser.
pub(crate) fn sign_in_page(status: StatusCode, token: &Token, page: &SignInPage) -> Response {
    let site = Site { csrf: token.value.clone(), ..Site::anonymous() };
    MESSAGES.page(status, "sign_in.html", &site, page)
}

/// The pages of one surface: its own templates within the frame.
pub(crate) struct Templates(Result<Environment<'static>, minijinja::Error>);

impl Templates {
    pub(crate) fn new(own: &[(&'static str, &'static str)]) -> Templates {
        Templates(environment(own))
    }

    /// The text of a template that stands by itself; none when it cannot be rendered, which the log says.
    pub(crate) fn text(&self, template: &str, page: &impl Serialize) -> Option<String> {
        let rendered = match &self.0 {
            Ok(pages) => pages
                .get_template(template)
                .and_then(|template| template.render(context! { page => Serde(page) })),
            Err(error) => Err(minijinja::Error::new(error.kind(), error.to_string())),
        };
        let log = |error: &minijinja::Error| {
            tracing::error!(template, error = %format!("{error:#}"), "mail: could not render a template");
        };
        rendered.inspect_err(log).ok()
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
    pages.add_filter("with_code", |text: String| Value::from_safe_string(with_code(&text)));
    // Markup that this server made itself, of text that it escaped.
    pages.add_filter("made", |html: String| Value::from_safe_string(html));
    pages.add_filter("id", filters::id);
    pages.add_filter("when", filters::when);
    pages.add_filter("encoded", filters::encoded);
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

/// A message with what stands between backticks as code. One backtick alone is only itself.
fn with_code(text: &str) -> String {
    let html = marked(text);
    let parts: Vec<&str> = html.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return html;
    }
    let each = parts.iter().enumerate();
    each.map(
        |(at, part)| if at.is_multiple_of(2) { (*part).to_owned() } else { format!("<code>{part}</code>") },
    )
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_between_backticks_is_code() {
        assert_eq!(with_code("Run `a <b>` or `c`."), "Run <code>a &lt;b&gt;</code> or <code>c</code>.");
        assert_eq!(with_code("one ` alone"), "one ` alone");
    }

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

    #[test]
    fn what_is_pending_is_counted_by_kind() {
        let counted = |approvals: usize, questions: usize| {
            let approvals = std::iter::repeat_n(HoldKind::Approval, approvals);
            PendingCount::of(approvals.chain(std::iter::repeat_n(HoldKind::Input, questions)))
        };
        let told = |count: Option<PendingCount>| count.map(|count| count.kinds);
        assert_eq!(counted(0, 0), None);
        assert_eq!(told(counted(1, 2)).as_deref(), Some("1 approval, 2 questions"));
        assert_eq!(told(counted(20, 0)).as_deref(), Some("20 approvals"));
        // Of each there are at least so many.
        assert_eq!(told(counted(19, 2)).as_deref(), Some("19+ approvals, 1+ questions"));
        let badges: Vec<_> = counted(1, 2).into_iter().flat_map(|count| count.badges).collect();
        let badge = |word, text: &str| KindBadge { word, text: text.to_owned() };
        assert_eq!(badges, [badge("approval", "1 approval"), badge("input", "2 questions")]);
    }

    /// T17, T20: of 300 strings nothing is markup on a page but the marks of what is hidden.
    #[test]
    fn t20_300_strings_are_text_on_a_page() {
        for line in include_str!("../../../testkit/corpus/display.jsonl").lines() {
            let (text, hidden): (String, usize) = serde_json::from_str(line).unwrap();
            let shown = marked(&text);
            let rest = shown.replace("<span class=\"mark\">", "").replace("</span>", "");
            assert!(!rest.contains(['<', '>', '"', '\'']), "{text:?}: {shown}");
            assert!(shown.matches("<span class=\"mark\">").count() >= hidden, "{text:?}: {shown}");
        }
    }
}

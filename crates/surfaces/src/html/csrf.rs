//! The token that every form carries: a random cookie, and the same value in a hidden field (T21).
//!
//! Nothing is kept on the server, so a page that was shown before a restart still works after it. The door checks the
//! `Origin` as well. [`PostedForm`] is the only way to a form's contents, so that no handler can forget the check. Only the page
//! of an approval link has another token, which it checks itself (`web/links.rs`).

use axum::extract::rejection::FormRejection;
use axum::extract::{Form, FromRequest, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use standfast_core::digest::Digest;
use standfast_engine::auth::Principal;
use standfast_engine::{HoldList, HoldListPart, clock};

use super::failure::Failure;
use super::render::PendingCount;
use crate::http::{App, HasTour, cookie_of};

/// The cookie.
const COOKIE: &str = "standfast_csrf";
/// The hidden field.
const FIELD: &str = "csrf";
/// The stream of an open page, which is not a page.
const EVENTS: &str = "/events";
/// With it the script of a page asks for what stands within the frame.
const FRAGMENT: &str = "x-standfast-fragment";

/// The token of a browser, and how much of a page it wants.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    /// What forms carry.
    pub(crate) value: String,
    pub(super) extent: Extent,
    /// The server has a first minute to show.
    pub(super) has_tour: bool,
    /// What is pending for whoever looks.
    pub(super) pending: Option<PendingCount>,
    origin: Origin,
}

/// How much of a page is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// All of it.
    Page,
    /// Navigation and contents, to be morphed into the page that is open.
    Fragment,
}

/// Where a token comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The browser sent it.
    Browser,
    /// It was made for this answer.
    New,
}

/// Gives every request a token, and every browser without one a cookie. Whoever asks for a page also gets what the frame of
/// every page shows.
pub(crate) async fn keep(State(app): State<App>, request: Request, next: Next) -> Response {
    let pending = match request.extensions().get::<Principal>() {
        // The list of what is pending counts by itself.
        Some(who) if *request.method() == Method::GET && !matches!(request.uri().path(), EVENTS | "/") => {
            pending(&app, who).await
        }
        Some(_) | None => None,
    };
    keep_with(pending, request, next).await
}

/// The same for pages that are not part of the others: without what is pending.
pub(crate) async fn keep_alone(request: Request, next: Next) -> Response {
    keep_with(None, request, next).await
}

async fn keep_with(pending: Option<PendingCount>, mut request: Request, next: Next) -> Response {
    let has_tour = request.extensions().get::<HasTour>().is_some();
    let token = Token { has_tour, pending, ..token_of(request.headers()) };
    request.extensions_mut().insert(token.clone());
    let mut response = next.run(request).await;
    set_cookie(&token, &mut response);
    response
}

/// How much is pending; a frame without a number is better than no page.
async fn pending(app: &App, who: &Principal) -> Option<PendingCount> {
    let list = HoldList {
        kind: None,
        agent: None,
        tool: None,
        session: None,
        part: HoldListPart::All,
        cursor: None,
        limit: PendingCount::MOST + 1,
    };
    let found = app.engine.reads().holds(who, list).await.ok()?;
    PendingCount::of(found.items.iter().map(|row| row.kind))
}

/// The token of a request, or a new one.
pub(super) fn token_of(headers: &HeaderMap) -> Token {
    let token = sent(headers).unwrap_or_else(new);
    let extent = if headers.contains_key(FRAGMENT) { Extent::Fragment } else { Extent::Page };
    Token { extent, ..token }
}

/// Gives a browser its token, if it is a new one.
pub(super) fn set_cookie(token: &Token, response: &mut Response) {
    if token.origin == Origin::New
        && let Ok(cookie) = HeaderValue::try_from(cookie(token))
    {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

/// Random letters that name one showing of a page, so that a form that is sent twice decides once.
pub(crate) fn once() -> String {
    Digest(clock::entropy().0).to_string().chars().take(26).collect()
}

/// What a form says, after its token was checked.
#[derive(Debug, Clone, Default)]
pub(crate) struct PostedForm(Vec<(String, String)>);

impl PostedForm {
    /// The value of a field, with line breaks as one character; browsers send two.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.replace("\r\n", "\n"))
    }

    /// The form as it would be for one of several items: fields that carry its name stand under their own.
    pub(crate) fn of_item(&self, item: &str, fields: &[&str]) -> PostedForm {
        let own = fields
            .iter()
            .filter_map(|field| Some(((*field).to_owned(), self.get(&format!("{field}-{item}"))?)));
        PostedForm(own.chain(self.0.iter().cloned()).collect())
    }

    /// A form whose page has a token of its own, which was checked: it decides this, and its other fields say nothing of that.
    pub(crate) fn checked(fields: Vec<(String, String)>, given: Vec<(String, String)>) -> PostedForm {
        PostedForm(given.into_iter().chain(fields).collect())
    }

    /// Every value of a field that may be there several times.
    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        let found = self.0.iter().filter(|(known, _)| known == name);
        found.map(|(_, value)| value.replace("\r\n", "\n")).collect()
    }
}

#[cfg(test)]
impl PostedForm {
    pub(crate) fn of(fields: Vec<(String, String)>) -> PostedForm {
        PostedForm(fields)
    }
}

impl<S: Send + Sync> FromRequest<S> for PostedForm {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<PostedForm, Failure> {
        let token = request.extensions().get::<Token>().cloned();
        let Form(fields) =
            Form::<Vec<(String, String)>>::from_request(request, state).await.map_err(unread)?;
        let posted = PostedForm(fields);
        let (Some(token), Some(given)) = (token, posted.get(FIELD)) else { return Err(refused()) };
        if token.origin == Origin::Browser && is_same(&token.value, &given) {
            Ok(posted)
        } else {
            Err(refused())
        }
    }
}

fn sent(headers: &HeaderMap) -> Option<Token> {
    let value = cookie_of(headers, COOKIE)?;
    // Only what could have been made here.
    value.parse::<Digest>().ok()?;
    Some(Token {
        value: value.to_owned(),
        extent: Extent::Page,
        has_tour: false,
        pending: None,
        origin: Origin::Browser,
    })
}

fn new() -> Token {
    let value = Digest(clock::entropy().0).to_string();
    Token { value, extent: Extent::Page, has_tour: false, pending: None, origin: Origin::New }
}

/// `Lax`, because a link in a mail opens a page without a `Strict` cookie: the new one that it would get makes every form that is
/// open elsewhere a stale one. Nothing is lost by it: forms of other sites are refused by their `Origin`, and carry no token.
/// `Secure` is not said: the cookie is not a secret to whoever can read the forms, and worth nothing without a session, which
/// has it where the server is reached by https.
fn cookie(token: &Token) -> String {
    format!("{COOKIE}={}; HttpOnly; SameSite=Lax; Path=/", token.value)
}

/// Compares in a time that says nothing about where they differ.
fn is_same(ours: &str, given: &str) -> bool {
    let differ = ours.bytes().zip(given.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b));
    ours.len() == given.len() && differ == 0
}

fn refused() -> Failure {
    Failure::new(
        StatusCode::FORBIDDEN,
        "Form rejected",
        "Nothing was changed. The form has no valid CSRF token: cookies may be disabled, or the form comes from \
         another page. Reload the page and decide there.",
    )
}

fn unread(rejection: FormRejection) -> Failure {
    Failure::new(rejection.status(), "Unreadable form", &rejection.body_text())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_cookie(value: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, value.parse().unwrap());
        sent(&headers).map(|token| token.value)
    }

    #[test]
    fn the_token_is_found_among_other_cookies() {
        let token = new().value;
        assert_eq!(with_cookie(&format!("a=b; {COOKIE}={token}; c")), Some(token.clone()));
        assert_eq!(with_cookie(&format!("{COOKIE}={token}")), Some(token));
        assert_eq!(with_cookie(&format!("{COOKIE}=guess")), None);
        assert_eq!(with_cookie("a=b"), None);
    }

    #[test]
    fn only_the_same_token_is_the_same() {
        let token = new().value;
        assert!(is_same(&token, &token));
        assert!(!is_same(&token, &new().value));
        assert!(!is_same(&token, &token[1..]));
        assert!(!is_same(&token, ""));
    }
}

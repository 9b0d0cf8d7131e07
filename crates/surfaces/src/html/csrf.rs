//! The token that every form carries: a random cookie, and the same value in a hidden field (T21).
//!
//! Nothing is kept on the server, so a page that was shown before a restart still works after it. The door checks the
//! `Origin` as well. [`PostedForm`] is the only way to a form's contents, so that no handler can forget the check.

use axum::extract::rejection::FormRejection;
use axum::extract::{Form, FromRequest, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use standfast_core::digest::Digest;
use standfast_engine::clock;

use super::failure::Failure;

/// The cookie.
const COOKIE: &str = "standfast_csrf";
/// The hidden field.
const FIELD: &str = "csrf";

/// The token of a browser.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    /// What forms carry.
    pub(crate) value: String,
    origin: Origin,
}

/// Where a token comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The browser sent it.
    Browser,
    /// It was made for this answer.
    New,
}

/// Gives every request a token, and every browser without one a cookie.
pub(crate) async fn keep(mut request: Request, next: Next) -> Response {
    let token = sent(request.headers()).unwrap_or_else(new);
    request.extensions_mut().insert(token.clone());
    let mut response = next.run(request).await;
    if token.origin == Origin::New
        && let Ok(cookie) = HeaderValue::try_from(cookie(&token))
    {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
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

/// A cookie of a request.
pub(crate) fn cookie_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

fn sent(headers: &HeaderMap) -> Option<Token> {
    let value = cookie_of(headers, COOKIE)?;
    // Only what could have been made here.
    value.parse::<Digest>().ok()?;
    Some(Token { value: value.to_owned(), origin: Origin::Browser })
}

fn new() -> Token {
    Token { value: Digest(clock::entropy().0).to_string(), origin: Origin::New }
}

/// `Secure` belongs here as soon as a server can know that it is reached by https.
fn cookie(token: &Token) -> String {
    format!("{COOKIE}={}; HttpOnly; SameSite=Strict; Path=/", token.value)
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

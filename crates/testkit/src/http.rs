//! Asking a server over HTTP: any request, and the whole answer.
//!
//! Knows no route of the product; what a protocol's clients ask stands with the tests of that protocol.

use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::Value;

/// How long any answer may take: the machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(120);

/// A client that uses no proxy and follows no redirect.
///
/// # Panics
///
/// When there is no TLS on this machine.
#[must_use]
pub fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap()
}

/// An answer over HTTP.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status code.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body as it came.
    pub text: String,
    /// Its body as JSON; null when it is none.
    pub body: Value,
}

impl Answer {
    /// The value of a field of a form, as it stands on a page.
    ///
    /// # Panics
    ///
    /// When the page has no such field.
    #[must_use]
    pub fn field(&self, name: &str) -> &str {
        let begin = format!("name=\"{name}\" value=\"");
        let found = self.text.split_once(&begin).and_then(|(_, rest)| rest.split_once('"'));
        found.unwrap_or_else(|| panic!("there is no field {name}: {}", self.text)).0
    }
}

/// One who asks a server, with a key or without.
#[derive(Debug, Clone)]
pub struct Http {
    /// What comes before every path.
    pub base: String,
    /// The connections.
    pub client: reqwest::Client,
    /// Sent as a bearer token.
    pub key: Option<String>,
}

impl Http {
    /// Asks the server at this address, or below this path of it.
    #[must_use]
    pub fn new(base: &str) -> Http {
        Http { base: base.to_owned(), client: client(), key: None }
    }

    /// The same with a key.
    #[must_use]
    pub fn with_key(&self, key: &str) -> Http {
        Http { key: Some(key.to_owned()), ..self.clone() }
    }

    /// Any request; a body is sent as JSON unless the headers say otherwise. A whole address is taken as it is.
    pub async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let url = if path.starts_with("http") { path.to_owned() } else { format!("{}{path}", self.base) };
        let mut request = self.client.request(method.parse().unwrap(), url).timeout(PATIENCE);
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        if !body.is_empty() && !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answer(request.body(body.to_owned())).await
    }

    /// Any request with a body in JSON, or without one.
    pub async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        self.send(method, path, &[], &body.map(Value::to_string).unwrap_or_default()).await
    }

    /// Reads something.
    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    /// Sends something.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[], &body.to_string()).await
    }
}

/// The whole answer to a request.
///
/// # Panics
///
/// When there is none.
pub async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = String::from_utf8_lossy(&response.bytes().await.unwrap()).into_owned();
    let body = serde_json::from_str(&text).unwrap_or(Value::Null);
    Answer { status, headers, text, body }
}

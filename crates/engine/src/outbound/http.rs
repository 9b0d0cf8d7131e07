//! One HTTP request to somebody else: to a checked address, without redirects, proxies or cookies, bounded in time and
//! size.
//!
//! What matters for a call is whether the request can have had an effect: [`Trouble`] tells what was never sent from
//! what was.

use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Method};
use standfast_core::time::Millis;

use super::guard::{BlockReason, CheckedAddress, Guard};
use crate::clock::duration;
use crate::request_context;

/// The header that names a span.
const TRACEPARENT: &str = "traceparent";

/// How long making a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// How far a request may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpLimits {
    /// From beginning to end.
    pub time: Millis,
    /// Bytes of the answer that are kept.
    pub answer_bytes: usize,
    /// Bytes that may be sent.
    pub request_bytes: usize,
}

impl Default for HttpLimits {
    fn default() -> HttpLimits {
        HttpLimits { time: Millis::seconds(60), answer_bytes: 256 * 1024, request_bytes: 1024 * 1024 }
    }
}

/// What is sent.
#[derive(Debug, Clone)]
pub struct Request {
    /// How.
    pub method: Method,
    /// Where to.
    pub url: String,
    /// With which headers.
    pub headers: Vec<(String, String)>,
    /// What.
    pub body: Option<String>,
    /// The same for every sending of the same request.
    pub idempotency_key: String,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// What the body is.
    pub content_type: Option<String>,
    /// Where it points to; it is not followed.
    pub location: Option<String>,
    /// When it wants to be asked again, as it said it.
    pub retry_after: Option<String>,
    /// The body, as far as it is kept; what is not UTF-8 is shown as U+FFFD.
    pub body: String,
    /// Whether there was more.
    pub truncated: bool,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// It may not be called.
    #[error(transparent)]
    Blocked(#[from] BlockReason),
    /// Nothing was sent.
    #[error("nothing was sent: {0}")]
    NotSent(String),
    /// It was sent, and may have had any effect.
    #[error("the request was sent, but the response is incomplete: {0}")]
    Broken(String),
}

/// Sends a request and waits for its answer.
pub async fn send(guard: &Guard, limits: &HttpLimits, request: Request) -> Result<Answer, Trouble> {
    if request.body.as_ref().is_some_and(|body| body.len() > limits.request_bytes) {
        return Err(Trouble::NotSent(format!("the body has more than {} bytes", limits.request_bytes)));
    }
    let headers = headers(&request)?;
    let checked = guard.check(&request.url).await?;
    let client = client(&checked, limits).map_err(|error| Trouble::NotSent(told(&error)))?;
    let mut sending = client.request(request.method, checked.url).headers(headers);
    if let Some(body) = request.body {
        sending = sending.body(body);
    }
    let mut answer = sending.send().await.map_err(|error| {
        if error.is_connect() || error.is_builder() {
            Trouble::NotSent(told(&error))
        } else {
            Trouble::Broken(told(&error))
        }
    })?;
    let named = |name: &str| Some(answer.headers().get(name)?.to_str().ok()?.to_owned());
    let (content_type, location) = (named("content-type"), named("location"));
    let retry_after = named("retry-after");
    let status = answer.status().as_u16();
    let (mut bytes, mut truncated) = (Vec::new(), false);
    while let Some(chunk) = answer.chunk().await.map_err(|error| Trouble::Broken(told(&error)))? {
        let room = limits.answer_bytes - bytes.len();
        bytes.extend_from_slice(chunk.get(..room.min(chunk.len())).unwrap_or_default());
        if chunk.len() > room {
            truncated = true;
            break;
        }
    }
    let body = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Answer { status, content_type, location, retry_after, body, truncated })
}

/// A client that connects to what was checked and to nothing else: it never looks up the name again.
fn client(checked: &CheckedAddress, limits: &HttpLimits) -> reqwest::Result<Client> {
    connecting(checked).timeout(duration(limits.time)).build()
}

/// The same, without an end of its requests.
pub(super) fn connecting(checked: &CheckedAddress) -> ClientBuilder {
    Client::builder()
        .resolve_to_addrs(&checked.host, &checked.addresses)
        .redirect(Policy::none())
        .no_proxy()
        .referer(false)
        .retry(reqwest::retry::never())
        .connect_timeout(CONNECT)
        .user_agent(concat!("standfast/", env!("CARGO_PKG_VERSION")))
}

/// Headers that belong to the connection, or that this server sets itself.
const RESERVED: [&str; 10] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "keep-alive",
    "idempotency-key",
];

fn headers(request: &Request) -> Result<HeaderMap, Trouble> {
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        let bad = |why: &str| Trouble::NotSent(format!("the header {name:?} cannot be sent: {why}"));
        let name = HeaderName::try_from(name.as_str()).map_err(|_| bad("it is not a header name"))?;
        if RESERVED.contains(&name.as_str()) || name.as_str().starts_with("proxy-") {
            return Err(bad("it is set by this server"));
        }
        headers.append(name, HeaderValue::try_from(value.as_str()).map_err(|_| bad("its value"))?);
    }
    let key = HeaderValue::try_from(request.idempotency_key.as_str());
    headers.insert(
        "idempotency-key",
        key.map_err(|_| Trouble::NotSent("the key of the call is not a valid header".into()))?,
    );
    // The span that it is sent within, unless the request names one itself.
    if let Some(span) = request_context::span()
        && !headers.contains_key(TRACEPARENT)
        && let Ok(value) = HeaderValue::try_from(span.to_string())
    {
        headers.insert(TRACEPARENT, value);
    }
    Ok(headers)
}

/// The error with what is below it, without the address: it may have secrets in its query.
pub(super) fn told(error: &reqwest::Error) -> String {
    let mut text = match (error.is_timeout(), error.is_connect()) {
        (true, _) => "it timed out".to_owned(),
        (false, true) => "no connection".to_owned(),
        (false, false) => "the connection broke".to_owned(),
    };
    let mut below = std::error::Error::source(error);
    while let Some(error) = below {
        text.push_str(&format!(": {error}"));
        below = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// T11: between the check and the connection a name is not looked up again, so it cannot lead elsewhere by then.
    #[tokio::test]
    async fn a_connection_goes_to_the_address_that_was_checked() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = format!("http://no-such-name.invalid:{}/", address.port()).parse().unwrap();
        let checked = CheckedAddress { url, host: "no-such-name.invalid".into(), addresses: vec![address] };
        let serve = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let read = stream.read(&mut request).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhere").await.unwrap();
            String::from_utf8_lossy(&request[..read]).to_ascii_lowercase()
        });
        let client = client(&checked, &HttpLimits::default()).unwrap();
        let answer = client.get(checked.url).send().await.unwrap().text().await.unwrap();
        assert_eq!(answer, "here");
        assert!(serve.await.unwrap().contains("host: no-such-name.invalid:"));
    }

    /// T11: whoever answers with another address is not followed there, inside or not; nor does a name that resolved to a public
    /// address at first and to an inside one later lead there, as it is looked up once.
    #[tokio::test]
    async fn t11_no_redirect_is_followed() {
        for to in [
            "http://169.254.169.254/latest/meta-data/",
            "http://127.0.0.1:1/",
            "//localhost/",
            "/other",
            "file:///etc/passwd",
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let url = format!("http://no-such-name.invalid:{}/", address.port()).parse().unwrap();
            let checked =
                CheckedAddress { url, host: "no-such-name.invalid".into(), addresses: vec![address] };
            let serve = tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await.unwrap();
                let answer = format!("HTTP/1.1 307 Elsewhere\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            });
            let client = client(&checked, &HttpLimits::default()).unwrap();
            let answer = client.get(checked.url).send().await.unwrap();
            assert_eq!(answer.status().as_u16(), 307, "{to}");
            serve.await.unwrap();
        }
    }
}

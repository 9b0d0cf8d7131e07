//! One request to a chat: to the host that the configuration names, and to no other.
//!
//! Neither addresses nor tokens stand in what went wrong: the address of a webhook is a secret.

use reqwest::{Method, Url};
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::SendFailure;
use standfast_engine::http_date::retry_after;
use standfast_engine::outbound::guard::{BlockReason, Guard, UnnamedHosts};
use standfast_engine::outbound::http::{self, Answer, HttpLimits, Request, Trouble};

/// Bytes of an answer that are read: a page of messages fits.
const ANSWER_BYTES: usize = 1024 * 1024;

/// Bytes that are sent at most.
const REQUEST_BYTES: usize = 256 * 1024;

/// How long a chat can ask to be left alone.
const AFTER_MAX: Millis = Millis::hours(1);

/// What is asked of a chat.
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) url: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: String,
    /// The same for every sending of the same request.
    pub(super) id: String,
}

/// Sends it; what was answered, if that was a yes.
pub(super) async fn send(call: Call, timeout: Millis, now: Timestamp) -> Result<Answer, SendFailure> {
    let unusable = || {
        SendFailure::from(
            "the address of the channel is invalid or has no host; repair its entry below `channels`",
        )
    };
    let url = Url::parse(&call.url).map_err(|_| unusable())?;
    let host = url.host_str().zip(url.port_or_known_default()).ok_or_else(unusable)?;
    let named = format!("{}:{}", host.0.to_ascii_lowercase(), host.1);
    let guard = Guard { allowed_hosts: [named].into(), others: UnnamedHosts::Never };
    let limits = HttpLimits { time: timeout, answer_bytes: ANSWER_BYTES, request_bytes: REQUEST_BYTES };
    let request = Request {
        method: call.method,
        url: call.url,
        headers: call.headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        body: Some(call.body),
        idempotency_key: call.id,
    };
    let answer = http::send(&guard, &limits, request).await.map_err(|trouble| match trouble {
        Trouble::Blocked(BlockReason::Url { .. } | BlockReason::NotNamed(_)) => unusable(),
        other => other.to_string().into(),
    })?;
    match answer.status {
        200..=299 => Ok(answer),
        status => {
            let after = answer.retry_after.as_deref().and_then(|text| retry_after(text, now));
            let after = after.map(|after| Millis(after.0.min(AFTER_MAX.0)));
            Err(SendFailure { why: format!("the chat answered {status}{}", said(&answer.body)), after })
        }
    }
}

/// The code of an error that a chat names in its answer.
fn said(body: &str) -> String {
    let said: Option<serde_json::Value> = serde_json::from_str(body).ok();
    let code = said.and_then(|said| {
        ["error", "message", "code"].iter().find_map(|key| match said.get(key)? {
            serde_json::Value::String(text) => Some(text.clone()),
            serde_json::Value::Number(number) => Some(number.to_string()),
            _ => None,
        })
    });
    let plain = |text: String| text.chars().filter(|c| !c.is_control()).take(100).collect::<String>();
    code.map(|code| format!(": {}", plain(code))).unwrap_or_default()
}

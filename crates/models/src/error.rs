//! Why a provider gave no reply: one kind for each cause, each with its own sentence.
//!
//! Says also whether asking again can help, and when. What was said is cut short, and no secret is in it.

use std::fmt;

use serde_json::Value;
use standfast_core::time::Millis;

/// How much of a provider's own words is kept.
const SAID_MAX: usize = 400;

/// The longest wait that a provider may ask for. What would take longer is reported to a person instead.
pub const WAIT_MAX: Millis = Millis::hours(24);

/// Why there is no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// What went wrong.
    pub kind: TroubleKind,
    /// What the provider, or the network, said about it; may be empty.
    pub said: String,
}

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TroubleKind {
    /// Its name leads nowhere.
    UnknownHost,
    /// Nobody answers there.
    Unreachable,
    /// The connection cannot be trusted.
    Untrusted,
    /// It took too long.
    Slow,
    /// The key is not right.
    BadKey,
    /// The key may not do this.
    Forbidden,
    /// There is no such model, or no such address.
    NotFound,
    /// It points elsewhere.
    Redirects,
    /// Too much was asked of it in a short time.
    RateLimited {
        /// How long it wants to be left alone.
        wait: Option<Millis>,
    },
    /// What was paid for is used up.
    OutOfCredit,
    /// It has trouble of its own.
    Busy {
        /// The status that it answered with; none within a stream.
        status: Option<u16>,
        /// How long it wants to be left alone.
        wait: Option<Millis>,
    },
    /// The conversation does not fit into the model.
    TooLong,
    /// It does not take the request.
    Refused {
        /// The status that it answered with.
        status: u16,
    },
    /// What came back is not a stream of a reply.
    NotAStream,
    /// A piece of the stream is not what it should be.
    Garbled,
    /// The stream ended before the reply did.
    Cut,
    /// The provider's filter stopped the reply.
    Filtered,
    /// All tokens of the reply were used up before a word was said.
    OutOfTokens,
    /// The reply is larger than any reply should be.
    TooLarge,
    /// Too many wait for this provider already.
    Crowded,
}

impl Trouble {
    /// Trouble of this kind, with what was said about it.
    pub(crate) fn new(kind: TroubleKind, said: impl AsRef<str>) -> Trouble {
        Trouble { kind, said: shortened(said.as_ref()) }
    }

    /// Whether asking again can help.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        use TroubleKind as K;
        match self.kind {
            K::UnknownHost | K::Unreachable | K::Slow | K::NotAStream | K::Garbled | K::Cut | K::Crowded => {
                true
            }
            K::RateLimited { wait } | K::Busy { wait, .. } => wait.is_none_or(|wait| wait <= WAIT_MAX),
            K::Untrusted
            | K::BadKey
            | K::Forbidden
            | K::NotFound
            | K::Redirects
            | K::OutOfCredit
            | K::TooLong
            | K::Refused { .. }
            | K::Filtered
            | K::OutOfTokens
            | K::TooLarge => false,
        }
    }

    /// How long the provider wants to be left alone, if it says so.
    #[must_use]
    pub fn wait(&self) -> Option<Millis> {
        match self.kind {
            TroubleKind::RateLimited { wait } | TroubleKind::Busy { wait, .. } => wait,
            TroubleKind::UnknownHost
            | TroubleKind::Unreachable
            | TroubleKind::Untrusted
            | TroubleKind::Slow
            | TroubleKind::BadKey
            | TroubleKind::Forbidden
            | TroubleKind::NotFound
            | TroubleKind::Redirects
            | TroubleKind::OutOfCredit
            | TroubleKind::TooLong
            | TroubleKind::Refused { .. }
            | TroubleKind::NotAStream
            | TroubleKind::Garbled
            | TroubleKind::Cut
            | TroubleKind::Filtered
            | TroubleKind::OutOfTokens
            | TroubleKind::TooLarge
            | TroubleKind::Crowded => None,
        }
    }

    /// The kind as one word, for machines.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self.kind {
            TroubleKind::UnknownHost => "unknown_host",
            TroubleKind::Unreachable => "unreachable",
            TroubleKind::Untrusted => "untrusted",
            TroubleKind::Slow => "slow",
            TroubleKind::BadKey => "bad_key",
            TroubleKind::Forbidden => "forbidden",
            TroubleKind::NotFound => "not_found",
            TroubleKind::Redirects => "redirects",
            TroubleKind::RateLimited { .. } => "rate_limited",
            TroubleKind::OutOfCredit => "out_of_credit",
            TroubleKind::Busy { .. } => "busy",
            TroubleKind::TooLong => "too_long",
            TroubleKind::Refused { .. } => "refused",
            TroubleKind::NotAStream => "not_a_stream",
            TroubleKind::Garbled => "garbled",
            TroubleKind::Cut => "cut",
            TroubleKind::Filtered => "filtered",
            TroubleKind::OutOfTokens => "out_of_tokens",
            TroubleKind::TooLarge => "too_large",
            TroubleKind::Crowded => "crowded",
        }
    }

    /// What one can do about it.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self.kind {
            TroubleKind::UnknownHost => "check base_url, and DNS on this machine",
            TroubleKind::Unreachable => "check base_url, and whether the server there is running",
            TroubleKind::Untrusted => "check the certificate of the server at base_url",
            TroubleKind::Slow => "raise timeout, or use a faster model",
            TroubleKind::BadKey => "check api_key: it is wrong, revoked, or of another provider",
            TroubleKind::Forbidden => "check what the key may do, and whether the account may use this model",
            TroubleKind::NotFound => "check model and base_url: one of them does not exist there",
            TroubleKind::Redirects => "write the final address as base_url: redirects are not followed",
            TroubleKind::RateLimited { .. } => {
                "wait, or lower max_concurrent, or ask the provider for a higher limit"
            }
            TroubleKind::OutOfCredit => "check billing and quota of the account",
            TroubleKind::Busy { .. } => "wait, and check the provider's status page",
            TroubleKind::TooLong => "start a new run, or use a model with a larger context",
            TroubleKind::Refused { .. } => "check model, temperature, max_tokens and parameters",
            TroubleKind::NotAStream => "check type and base_url: something else answers there",
            TroubleKind::Garbled => "check type and base_url: what answers there speaks another protocol",
            TroubleKind::Cut => "check proxies and limits between here and the provider",
            TroubleKind::Filtered => "rephrase the request, or use another model",
            TroubleKind::OutOfTokens => "raise max_tokens",
            TroubleKind::TooLarge => "set max_tokens",
            TroubleKind::Crowded => "raise max_concurrent, or give agents a smaller worker_pool",
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            TroubleKind::UnknownHost => write!(f, "its host name cannot be resolved")?,
            TroubleKind::Unreachable => write!(f, "it cannot be reached")?,
            TroubleKind::Untrusted => write!(f, "its certificate is not trusted")?,
            TroubleKind::Slow => write!(f, "the reply timed out")?,
            TroubleKind::BadKey => write!(f, "the API key was rejected (401)")?,
            TroubleKind::Forbidden => write!(f, "the API key may not do this (403)")?,
            TroubleKind::NotFound => write!(f, "there is no such model or address (404)")?,
            TroubleKind::Redirects => write!(f, "it redirects to another URL")?,
            TroubleKind::RateLimited { wait: None } => write!(f, "too many requests (429)")?,
            TroubleKind::RateLimited { wait: Some(wait) } => {
                write!(f, "too many requests (429); retry after {} s", (wait.0 + 999) / 1000)?;
            }
            TroubleKind::OutOfCredit => write!(f, "the account's quota is used up")?,
            TroubleKind::Busy { status: Some(status), .. } => {
                write!(f, "provider error ({status})")?;
            }
            TroubleKind::Busy { status: None, .. } => write!(f, "provider error in the stream")?,
            TroubleKind::TooLong => write!(f, "the conversation exceeds the model's context window")?,
            TroubleKind::Refused { status } => write!(f, "the request was rejected ({status})")?,
            TroubleKind::NotAStream => write!(f, "the response is not an event stream")?,
            TroubleKind::Garbled => write!(f, "a malformed event in the stream")?,
            TroubleKind::Cut => write!(f, "the stream ended before the reply did")?,
            TroubleKind::Filtered => write!(f, "the provider's content filter blocked the reply")?,
            TroubleKind::OutOfTokens => {
                write!(f, "max_tokens was reached before any text")?;
            }
            TroubleKind::TooLarge => write!(f, "the reply exceeds the size limit")?,
            TroubleKind::Crowded => write!(f, "the request queue is full")?,
        }
        if self.said.is_empty() { Ok(()) } else { write!(f, ": {}", self.said) }
    }
}

/// What an answer that is not a reply means.
pub(super) fn of_status(status: u16, wait: Option<Millis>, body: &str) -> Trouble {
    let words = words(body);
    let has = |marks: &[&str]| {
        let all = body.to_ascii_lowercase();
        marks.iter().any(|mark| all.contains(mark))
    };
    let kind = match status {
        300..=399 => TroubleKind::Redirects,
        401 => TroubleKind::BadKey,
        // Google answers a wrong key with 400.
        400 if has(&["api_key_invalid"]) => TroubleKind::BadKey,
        402 => TroubleKind::OutOfCredit,
        403 => TroubleKind::Forbidden,
        404 => TroubleKind::NotFound,
        413 => TroubleKind::TooLong,
        400 | 422 if has(TOO_LONG) => TroubleKind::TooLong,
        429 if has(&["insufficient_quota", "billing_hard_limit", "credit balance"]) => {
            TroubleKind::OutOfCredit
        }
        429 => TroubleKind::RateLimited { wait: wait.or_else(|| delay_in(body)) },
        408 | 409 | 425 | 500..=599 => TroubleKind::Busy { status: Some(status), wait },
        other => TroubleKind::Refused { status: other },
    };
    Trouble::new(kind, words)
}

/// How providers say that a conversation is too long.
const TOO_LONG: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "prompt is too long",
    "context window",
    "input token count",
    "exceeds the maximum number of tokens",
    "input length",
];

/// What an error within a stream means, by its type, code or status.
pub(super) fn of_stream_error(kind: &str, error: &Value) -> Trouble {
    let said = error["message"].as_str().or(error.as_str()).unwrap_or_default();
    let code = match &error["code"] {
        Value::Number(number) => number.as_u64().and_then(|code| u16::try_from(code).ok()),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
    };
    if let Some(status @ 400..=599) = code {
        return of_status(status, None, &error.to_string());
    }
    let all = format!("{kind} {error}").to_ascii_lowercase();
    let has = |marks: &[&str]| marks.iter().any(|mark| all.contains(mark));
    let kind = if has(&["insufficient_quota"]) {
        TroubleKind::OutOfCredit
    } else if has(&["rate_limit"]) {
        TroubleKind::RateLimited { wait: None }
    } else if has(TOO_LONG) {
        TroubleKind::TooLong
    } else if has(&["authentication"]) {
        TroubleKind::BadKey
    } else if has(&["invalid_request", "invalid_prompt", "not_found", "badrequesterror", "notfounderror"]) {
        TroubleKind::Refused { status: 400 }
    } else {
        TroubleKind::Busy { status: None, wait: None }
    };
    Trouble::new(kind, said)
}

/// The words in the body of an error, wherever this provider keeps them.
fn words(body: &str) -> String {
    let Ok(json) = serde_json::from_str::<Value>(body) else {
        // A page for people says nothing in its first lines.
        return if body.trim_start().starts_with('<') { String::new() } else { body.trim().to_owned() };
    };
    let places = ["/error/message", "/0/error/message", "/error", "/message", "/detail", "/detail/0/msg"];
    let found = places.into_iter().find_map(|place| json.pointer(place)?.as_str());
    found.map_or_else(|| json.to_string(), str::to_owned)
}

/// Google says in the body how long to wait: `"retryDelay": "34s"`.
fn delay_in(body: &str) -> Option<Millis> {
    let rest = &body[body.find("\"retryDelay\"")? + "\"retryDelay\"".len()..];
    let text = rest.split('"').nth(1)?.strip_suffix('s')?;
    let seconds: f64 = text.parse().ok()?;
    (0.0..1e9).contains(&seconds).then(|| Millis((seconds * 1000.0).ceil() as i64))
}

fn shortened(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(SAID_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F26: what each answer means, as providers really word it.
    #[test]
    fn answers_are_understood() {
        use TroubleKind as K;
        for (status, body, kind, said) in [
            (
                401,
                r#"{"error":{"message":"Incorrect API key provided"}}"#,
                K::BadKey,
                "Incorrect API key provided",
            ),
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","code":"context_length_exceeded"}}"#,
                K::TooLong,
                "This model's maximum context length is 8192 tokens.",
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
                K::TooLong,
                "prompt is too long: 210000 tokens > 200000 maximum",
            ),
            (
                429,
                r#"[{"error":{"message":"Quota","details":[{"retryDelay": "34.5s"}]}}]"#,
                K::RateLimited { wait: Some(Millis(34_500)) },
                "Quota",
            ),
            (429, r#"{"error":{"code":"insufficient_quota","message":"x"}}"#, K::OutOfCredit, "x"),
            (
                404,
                r#"{"error":"model \"x\" not found, try pulling it first"}"#,
                K::NotFound,
                "model \"x\" not found, try pulling it first",
            ),
            (
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                K::Busy { status: Some(529), wait: None },
                "Overloaded",
            ),
            (502, "<html>\n<body>Bad gateway", K::Busy { status: Some(502), wait: None }, ""),
            (302, "", K::Redirects, ""),
            (422, r#"{"detail":"no"}"#, K::Refused { status: 422 }, "no"),
            (
                400,
                r#"{"error":{"message":"API key not valid.","details":[{"reason":"API_KEY_INVALID"}]}}"#,
                K::BadKey,
                "API key not valid.",
            ),
        ] {
            assert_eq!(of_status(status, None, body), Trouble { kind, said: said.into() }, "{status} {body}");
        }
        let long = of_status(500, None, &"word ".repeat(1000));
        assert_eq!(long.said.chars().count(), SAID_MAX + 1);
    }

    #[test]
    fn a_wait_of_days_is_not_waited_for() {
        let asked = |hours| of_status(429, Some(Millis::hours(hours)), "").may_pass();
        assert_eq!((asked(1), asked(24), asked(25)), (true, true, false));
    }
}

//! `http_request`: the model calls a web address.
//!
//! Which addresses is the guard's business, how far a request goes that of `http.rs`. An answer is a result whatever its
//! status; a connection that breaks after sending is an unknown outcome unless the method promises that it does not
//! matter.

use reqwest::Method;
use serde::{Deserialize, Serialize};
use standfast_core::body::Body;
use standfast_core::definition::ToolSpec;
use standfast_core::json::RawJson;
use standfast_core::message::{Replay, ToolResult};
use standfast_engine::outbound::guard::Guard;
use standfast_engine::outbound::http::{self, Answer, HttpLimits, Request, Trouble};
use standfast_engine::tool::preview::{CallPreview, RequestPreview};
use standfast_engine::tool::{HoldReason, Invocation, Judgement, Outcome, Tool, ToolFuture};

/// The rule of addresses that are never called.
pub const ADDRESS_RULE: &str = "http:address";

const DESCRIPTION: &str = "Send one HTTP request and get the answer. Redirects are not followed.";

const SCHEMA: &str = r#"{"type":"object","properties":{"method":{"type":"string","enum":["GET","HEAD","POST","PUT","PATCH","DELETE"]},"url":{"type":"string","minLength":1},"headers":{"type":"object","additionalProperties":{"type":"string"}},"body":{"type":"string"}},"required":["url"],"additionalProperties":false}"#;

/// Where it may call, and how far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HttpRequestOptions {
    /// Where.
    pub guard: Guard,
    /// How far.
    pub limits: HttpLimits,
}

/// Sends requests.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    options: HttpRequestOptions,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(default = "get")]
    method: String,
    url: String,
    #[serde(default)]
    headers: std::collections::BTreeMap<String, String>,
    body: Option<String>,
}

fn get() -> String {
    "GET".into()
}

impl HttpRequest {
    /// Whether a person is asked when the configuration does not say: what is asked for can tell secrets.
    pub const NEEDS_APPROVAL: bool = true;

    /// A tool with these options.
    #[must_use]
    pub fn new(options: HttpRequestOptions) -> HttpRequest {
        HttpRequest { options }
    }

    /// How it is described to a model.
    #[must_use]
    pub fn spec() -> ToolSpec {
        let Ok(schema) = RawJson::parse(SCHEMA) else { unreachable!("a constant that the tests read") };
        ToolSpec {
            description: DESCRIPTION.into(),
            schema,
            replay: Replay::Never,
            reversible: false,
            approval_prompt: None,
            holds: None,
        }
    }

    fn request(&self, invocation: &Invocation) -> Result<Request, String> {
        let (asked, method) = read(&invocation.arguments)?;
        Ok(Request {
            method,
            url: asked.url,
            headers: asked.headers.into_iter().collect(),
            body: asked.body,
            idempotency_key: invocation.token(),
        })
    }
}

impl Tool for HttpRequest {
    fn run(&self, invocation: Invocation) -> ToolFuture {
        let (request, options) = (self.request(&invocation), self.options.clone());
        Box::pin(async move {
            let request = match request {
                Ok(request) => request,
                Err(why) => return Outcome::Done(ToolResult::Failed(Body::text(format!("not sent: {why}")))),
            };
            let is_repeatable = request.method.is_idempotent();
            match http::send(&options.guard, &options.limits, request).await {
                Ok(answer) => Outcome::Done(ToolResult::Ok(shown(answer))),
                Err(Trouble::Broken(why)) if !is_repeatable => {
                    Outcome::Unknown(Trouble::Broken(why).to_string())
                }
                Err(trouble) => Outcome::Done(ToolResult::Failed(Body::text(trouble.to_string()))),
            }
        })
    }

    fn judge(&self, arguments: &str) -> Judgement {
        let checked = read(arguments).and_then(|(asked, _)| {
            self.options.guard.check_text(&asked.url).map_err(|blocked| blocked.to_string())
        });
        match checked {
            Ok(_) => Judgement::Allow,
            Err(why) => {
                Judgement::Forbid(HoldReason { rule: ADDRESS_RULE, reason: format!("not sent: {why}") })
            }
        }
    }

    fn preview(&self, arguments: &str) -> Option<CallPreview> {
        let (asked, _) = read(arguments).ok()?;
        Some(CallPreview::Request(RequestPreview {
            method: asked.method,
            url: asked.url,
            headers: asked.headers.into_iter().collect(),
            body: asked.body,
        }))
    }
}

fn read(arguments: &str) -> Result<(Arguments, Method), String> {
    RawJson::parse(arguments).map_err(|error| error.to_string())?;
    let asked: Arguments = serde_json::from_str(arguments).map_err(|error| error.to_string())?;
    let method = match asked.method.as_str() {
        "GET" => Method::GET,
        "HEAD" => Method::HEAD,
        "POST" => Method::POST,
        "PUT" => Method::PUT,
        "PATCH" => Method::PATCH,
        "DELETE" => Method::DELETE,
        other => return Err(format!("there is no method {other:?}")),
    };
    Ok((asked, method))
}

fn shown(answer: Answer) -> Body {
    #[derive(Serialize)]
    struct ShownRequest {
        status: u16,
        #[serde(skip_serializing_if = "Option::is_none")]
        content_type: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        location: Option<String>,
        body: String,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        truncated: bool,
    }
    let Answer { status, content_type, location, retry_after: _, body, truncated } = answer;
    let shown = ShownRequest { status, content_type, location, body, truncated };
    let json = serde_json::to_string(&shown).ok().and_then(|text| RawJson::parse(&text).ok());
    let Some(json) = json else { unreachable!("strings and numbers are JSON") };
    Body::Json(json)
}

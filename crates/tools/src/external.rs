//! `external`: starts a job somewhere else by HTTP, and the call waits until that system reports the result.
//!
//! The start request has the id of the hold that the call is about to wait in, drawn before: an answer cannot come
//! before its id is known. What the answer says of the job is shown while it runs.

use hmac::{Hmac, KeyInit, Mac};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use standfast_core::body::Body;
use standfast_core::command::SuspendFor;
use standfast_core::definition::ToolSpec;
use standfast_core::hold::Ask;
use standfast_core::id::HoldId;
use standfast_core::json::RawJson;
use standfast_core::message::{Replay, ToolResult};
use standfast_core::time::Millis;
use standfast_engine::clock::Clock;
use standfast_engine::outbound::guard::Guard;
use standfast_engine::outbound::http::{self, Answer, HttpLimits, Request, Trouble};
use standfast_engine::schema;
use standfast_engine::tool::{
    HoldReason, Invocation, Judgement, Nature, Outcome, OutsideJobs, SecretsFuture, Suspension, Tool,
    ToolFuture,
};

/// How long an outside job may take when nobody says.
pub const USUAL_TIMEOUT: Millis = Millis::seconds(24 * 60 * 60);

/// Where the job is started, and who may finish it.
#[derive(Clone)]
pub struct ExternalOptions {
    /// The address of the start request.
    pub url: String,
    /// Where requests may go: a host that is not public must be named.
    pub guard: Guard,
    /// How far the start request goes.
    pub limits: HttpLimits,
    /// How long the job may take.
    pub timeout: Millis,
    /// The address of this server as others know it, for the answer; none where nobody told it.
    pub public_url: Option<String>,
    /// What an answer may be signed with, the newest first: the job gets the first one.
    pub secrets: Vec<CallbackSecret>,
    /// Who is notified when the call is settled, unless the job says otherwise.
    pub webhook_url: Option<String>,
    /// What a result must keep to.
    pub result_schema: Option<RawJson>,
}

/// What an answer is signed with. Never stored, listed or logged.
#[derive(Clone)]
pub enum CallbackSecret {
    /// The same for every call, known to both sides.
    Shared(String),
    /// Of each call its own, made from this key of the server and the id of the hold.
    Derived([u8; 32]),
}

impl std::fmt::Debug for CallbackSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CallbackSecret(..)")
    }
}

impl CallbackSecret {
    /// The secret of the call that waits in this hold.
    #[must_use]
    pub fn of(&self, pending: &str) -> String {
        match self {
            CallbackSecret::Shared(secret) => secret.clone(),
            CallbackSecret::Derived(key) => {
                let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
                    unreachable!("any length is a key")
                };
                mac.update(b"standfast.callback.1\0");
                mac.update(pending.as_bytes());
                mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
            }
        }
    }
}

/// Starts jobs.
pub struct External {
    options: ExternalOptions,
    clock: Clock,
    parameters: Option<RawJson>,
}

/// The rule of arguments that a job does not take.
pub const PARAMETERS_RULE: &str = "external:parameters";

/// The start request.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StartRequest<'a> {
    tool: &'a str,
    input: &'a serde_json::value::RawValue,
    #[serde(rename = "pendingID")]
    pending: &'a str,
    #[serde(rename = "sessionID")]
    session: &'a str,
    #[serde(rename = "messageID")]
    message: String,
    #[serde(rename = "callID")]
    call: &'a str,
    #[serde(rename = "callbackURL", skip_serializing_if = "Option::is_none")]
    callback_url: Option<String>,
    #[serde(rename = "callbackID")]
    callback: &'a str,
    callback_secret: String,
}

/// What the other system answers.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct StartResponse {
    #[serde(rename = "async")]
    is_async: Option<bool>,
    result: Option<RawJson>,
    error: Option<RawJson>,
    external_ref: Option<String>,
    estimated_duration: Option<i64>,
    output: Option<String>,
    #[serde(rename = "webhookURL")]
    webhook_url: Option<String>,
}

impl External {
    /// A tool that starts jobs there.
    #[must_use]
    pub fn new(options: ExternalOptions, clock: Clock) -> External {
        External { options, clock, parameters: None }
    }

    /// The same for jobs that take what this schema says, and nothing else.
    #[must_use]
    pub fn taking(self, parameters: RawJson) -> External {
        External { parameters: Some(parameters), ..self }
    }

    /// How it is described to a model: the description and the arguments are the job's own.
    #[must_use]
    pub fn spec(description: &str, schema: RawJson) -> ToolSpec {
        ToolSpec {
            description: description.to_owned(),
            schema,
            // A job that may have begun is not begun again without a person: the key is another one then.
            replay: Replay::Never,
            reversible: false,
            approval_prompt: None,
            holds: None,
        }
    }

    fn request(&self, invocation: &Invocation) -> Result<Request, String> {
        RawJson::parse(&invocation.arguments).map_err(|error| error.to_string())?;
        let input = serde_json::from_str(&invocation.arguments).map_err(|error| error.to_string())?;
        let pending = invocation.pending.to_string();
        let callback_url = self.options.public_url.as_deref();
        let start = StartRequest {
            tool: invocation.tool.as_str(),
            input,
            pending: &pending,
            session: invocation.session.as_str(),
            message: invocation.message.to_string(),
            call: &invocation.asked_as,
            callback_url: callback_url.map(|url| format!("{}/async-tool/webhook", url.trim_end_matches('/'))),
            callback: &pending,
            callback_secret: self
                .options
                .secrets
                .first()
                .map(|secret| secret.of(&pending))
                .unwrap_or_default(),
        };
        Ok(Request {
            method: Method::POST,
            url: self.options.url.clone(),
            headers: vec![("content-type".into(), "application/json".into())],
            body: Some(serde_json::to_string(&start).map_err(|error| error.to_string())?),
            idempotency_key: pending,
        })
    }
}

impl OutsideJobs for External {
    fn secrets(&self, pending: HoldId) -> Vec<String> {
        let pending = pending.to_string();
        self.options.secrets.iter().map(|secret| secret.of(&pending)).collect()
    }

    fn timeout(&self) -> Millis {
        self.options.timeout
    }

    fn result_schema(&self) -> Option<&RawJson> {
        self.options.result_schema.as_ref()
    }
}

impl Tool for External {
    fn nature(&self) -> Nature<'_> {
        Nature::OutsideJobs(self)
    }

    /// A job that echoes its request would give everybody who reads the log what its reports are signed with.
    fn secrets(&self, invocation: &Invocation) -> Option<SecretsFuture> {
        let handed = self.handed(invocation.pending);
        Some(Box::pin(std::future::ready(handed)))
    }

    /// What the job does not take is refused before anybody is asked.
    fn judge(&self, arguments: &str) -> Judgement {
        let checked = RawJson::parse(arguments).map_err(|error| error.to_string());
        let checked = checked.and_then(|arguments| match &self.parameters {
            Some(parameters) => schema::check(parameters, &arguments)
                .map_err(|broken| format!("{} at {:?}", broken.why, broken.pointer)),
            None => Ok(()),
        });
        match checked {
            Ok(()) => Judgement::Allow,
            Err(why) => {
                let reason = format!("the job was not started: the arguments do not fit: {why}");
                Judgement::Forbid(HoldReason { rule: PARAMETERS_RULE, reason })
            }
        }
    }

    fn run(&self, invocation: Invocation) -> ToolFuture {
        let request = self.request(&invocation);
        let (options, clock) = (self.options.clone(), self.clock.clone());
        Box::pin(async move {
            let request = match request {
                Ok(request) => request,
                Err(why) => return failed(format!("the job was not started: {why}")),
            };
            match http::send(&options.guard, &options.limits, request).await {
                Ok(answer) => understood(answer, &invocation, &options, &clock),
                Err(trouble @ Trouble::Broken(_)) => Outcome::Unknown(trouble.to_string()),
                Err(trouble) => failed(format!("the job was not started: {trouble}")),
            }
        })
    }
}

/// What the answer to the start request means.
fn understood(answer: Answer, invocation: &Invocation, options: &ExternalOptions, clock: &Clock) -> Outcome {
    if !(200..300).contains(&answer.status) {
        let said: String = answer.body.chars().take(1_000).collect();
        return failed(format!("the job was not started: the answer was {}: {said}", answer.status));
    }
    let started = match answer.body.trim() {
        "" => Ok(StartResponse::default()),
        body => serde_json::from_str::<StartResponse>(body),
    };
    let started = match started {
        Ok(started) => started,
        Err(error) => {
            return Outcome::Unknown(format!(
                "the job may have begun, but the answer cannot be read: {error}"
            ));
        }
    };
    if started.is_async == Some(false) {
        return Outcome::Done(match (started.result, started.error) {
            (Some(result), None) => ToolResult::Ok(Body::Json(result)),
            (_, Some(error)) => ToolResult::Failed(Body::Json(error)),
            (None, None) => ToolResult::Ok(Body::text("")),
        });
    }
    let expected = started.estimated_duration.filter(|span| *span > 0).map(Millis);
    let timeout = expected.map_or(options.timeout, |expected| Millis(expected.0.max(options.timeout.0)));
    let webhook = started.webhook_url.or_else(|| options.webhook_url.clone()).and_then(|url| {
        let text = serde_json::json!({ "webhookURL": url }).to_string();
        Some(Body::Json(RawJson::parse(&text).ok()?))
    });
    let ask = Ask {
        interim: started.output.map(Body::text),
        external_ref: started.external_ref,
        expected_at: expected.map(|span| clock.now().plus(span)),
        data: webhook,
        answer_schema: options.result_schema.clone(),
        ..Ask::default()
    };
    let secret = Some(invocation.pending.key.secret);
    Outcome::Pending(Box::new(Suspension { kind: SuspendFor::External, ask, timeout: Some(timeout), secret }))
}

fn failed(why: String) -> Outcome {
    Outcome::Done(ToolResult::Failed(Body::text(why)))
}

//! Push notifications: receivers that a client names for a task, and what they are sent.
//!
//! A configuration is a callback of the engine's: kept with its secrets sealed, told by the one deliverer, in order and
//! with retries. What is sent are the frames of the task's stream, so that a receiver and a subscriber hear the same.
//! The version of the protocol is kept with each: whoever registered by an older one gets its format.

use std::fmt;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use standfast_core::digest;
use standfast_core::hold::HoldKind;
use standfast_core::id::{RunId, Seq};
use standfast_engine::secrets::{seconds, signature};
use standfast_engine::{
    Callback, CallbackView, Delivery, DeliveryPayload, DeliveryRequest, EngineError, Frame, FrameSource,
    ReceiverKind, SubscriptionError,
};

use super::card::{VERSION, can_push};
use super::error::{A2aError, Kind};
use super::map::{self, TaskIds};
use super::negotiate::{A2A_JSON, JSON, V03};
use super::operations::{HISTORY, OperationContext, asks, task_id};
use super::progress::{Progress, StatusText};
use super::wire::{
    AuthenticationInfo, ListPushRequest, PushConfigs, PushRequest, Secret, StreamResponse, Task,
    TaskPushNotificationConfig, TaskStatusUpdateEvent,
};
use super::{stream, v03};

/// Bytes of an id, a token or credentials at most.
const TEXT_MAX: usize = 4096;

/// Receivers of push notifications.
#[derive(Debug, Clone, Copy)]
pub struct Push;

impl Push {
    /// The name of this kind of receiver.
    const NAME: &'static str = "a2a";
}

/// What is remembered of a configuration beside its address.
#[derive(Debug, Serialize, Deserialize)]
struct Details {
    /// The protocol's version that it was made by.
    version: String,
}

/// What the receiver knows the sender by; kept sealed.
#[derive(Default, Serialize, Deserialize)]
struct Secrets {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scheme: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    credentials: Option<String>,
}

/// `CreateTaskPushNotificationConfig`: also on a task that has ended. The same id again replaces what it named.
pub(super) async fn create(
    asked: &OperationContext,
    config: &TaskPushNotificationConfig,
) -> Result<TaskPushNotificationConfig, A2aError> {
    let run = run_of(asked, config.task_id.as_deref()).await?;
    let callback = callback(asked, config)?;
    let shown = shown(run, view_of(&callback));
    asked
        .app
        .engine
        .callbacks()
        .call_back(&asked.who, run, callback)
        .await
        .map_err(|error| refused(Some(run), &error))?;
    Ok(shown)
}

/// `GetTaskPushNotificationConfig`.
pub(super) async fn get(
    asked: &OperationContext,
    request: &PushRequest,
) -> Result<TaskPushNotificationConfig, A2aError> {
    let run = run_of(asked, Some(&request.task_id)).await?;
    let found = all(asked, run).await?.into_iter().find(|view| view.name == request.id);
    found.map(|view| shown(run, view)).ok_or_else(|| {
        let message = format!("task {run} has no push notification config {:?} of yours", request.id);
        A2aError::new(Kind::TaskNotFound, message)
    })
}

/// `ListTaskPushNotificationConfigs`: there are few, so a page token is a number of those before it.
pub(super) async fn list(
    asked: &OperationContext,
    request: &ListPushRequest,
) -> Result<PushConfigs, A2aError> {
    let run = run_of(asked, Some(&request.task_id)).await?;
    let wrong = |_| A2aError::invalid("pageToken", "was not issued by this server");
    let token = request.page_token.as_deref().filter(|token| !token.is_empty());
    let before = token.map_or(Ok(0), str::parse::<usize>).map_err(wrong)?;
    let size = match request.page_size.unwrap_or_default() {
        0 => usize::MAX,
        size => usize::try_from(size).map_err(|_| A2aError::invalid("pageSize", "must not be negative"))?,
    };
    let views = all(asked, run).await?;
    let count = views.len();
    let configs: Vec<_> = views.into_iter().skip(before).take(size).map(|view| shown(run, view)).collect();
    let end = before.saturating_add(configs.len());
    let next_page_token = if end < count { end.to_string() } else { String::new() };
    Ok(PushConfigs { configs, next_page_token })
}

/// `DeleteTaskPushNotificationConfig`: once more changes nothing.
pub(super) async fn delete(asked: &OperationContext, request: &PushRequest) -> Result<(), A2aError> {
    let run = run_of(asked, Some(&request.task_id)).await?;
    let forgotten =
        asked.app.engine.callbacks().forget_callback(&asked.who, run, Push::NAME, &request.id).await;
    forgotten.map_err(|error| refused(Some(run), &error))
}

async fn all(asked: &OperationContext, run: RunId) -> Result<Vec<CallbackView>, A2aError> {
    let found = asked.app.engine.callbacks().list(&asked.who, run, Push::NAME).await;
    found.map_err(|error| refused(Some(run), &error))
}

/// The task that is meant, if the caller may see it.
async fn run_of(asked: &OperationContext, task: Option<&str>) -> Result<RunId, A2aError> {
    supported(asked)?;
    let task = task.filter(|task| !task.is_empty());
    let run = task_id(task.ok_or_else(|| A2aError::invalid("taskId", "is empty; name the task"))?)?;
    asked.find(run).await?;
    Ok(run)
}

fn supported(asked: &OperationContext) -> Result<(), A2aError> {
    if can_push(&asked.app.engine.settings()) { Ok(()) } else { Err(not_supported()) }
}

fn not_supported() -> A2aError {
    let message = "push notifications are not supported; subscribe to the task instead";
    A2aError::new(Kind::PushNotificationNotSupported, message)
}

/// A configuration as the engine keeps it.
pub(super) fn callback(
    asked: &OperationContext,
    config: &TaskPushNotificationConfig,
) -> Result<Callback, A2aError> {
    supported(asked)?;
    if config.url.is_empty() {
        return Err(A2aError::invalid("url", "is empty; name the URL to notify"));
    }
    let text = |field: &str, text: Option<&Secret>| -> Result<Option<String>, A2aError> {
        let Some(Secret(text)) = text.filter(|text| !text.0.is_empty()) else { return Ok(None) };
        let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && text.len() <= TEXT_MAX;
        let wrong = || {
            let why = format!("must be plain text of at most {TEXT_MAX} characters: it is sent as a header");
            A2aError::invalid(field, why)
        };
        is_plain.then(|| Some(text.clone())).ok_or_else(wrong)
    };
    let authentication = config.authentication.as_ref();
    let scheme = authentication.map(|known| known.scheme.clone()).filter(|scheme| !scheme.is_empty());
    let is_word = |scheme: &String| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if scheme.as_ref().is_some_and(|scheme| !is_word(scheme) || scheme.len() > 64) {
        return Err(A2aError::invalid("authentication.scheme", "must be one word, as Bearer"));
    }
    let secrets = Secrets {
        token: text("token", config.token.as_ref())?,
        scheme,
        credentials: text(
            "authentication.credentials",
            authentication.and_then(|it| it.credentials.as_ref()),
        )?,
    };
    let has_secrets = secrets.token.is_some() || secrets.scheme.is_some() || secrets.credentials.is_some();
    // Clients that name no id send the same address with every message: that is one receiver.
    let name = match config.id.as_deref().filter(|id| !id.is_empty()) {
        Some(id) if id.len() <= TEXT_MAX => id.to_owned(),
        Some(_) => return Err(A2aError::invalid("id", format!("has more than {TEXT_MAX} bytes"))),
        None => {
            let digest = digest::of_parts("standfast.push-config.1", &[config.url.as_bytes()]);
            format!("push-{}", BASE64_URL_SAFE_NO_PAD.encode(digest.0.get(..9).unwrap_or_default()))
        }
    };
    Ok(Callback {
        kind: Push::NAME,
        name,
        url: config.url.clone(),
        details: written(&Details { version: asked.version.to_owned() }),
        secrets: has_secrets.then(|| written(&secrets)),
    })
}

fn written(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn view_of(callback: &Callback) -> CallbackView {
    let Callback { name, url, details, secrets, kind: _ } = callback.clone();
    CallbackView { name, url, details, secrets }
}

/// A configuration as its client sees it. What it authenticates with is not shown again.
fn shown(run: RunId, view: CallbackView) -> TaskPushNotificationConfig {
    let secrets = read_secrets(view.secrets.as_deref());
    TaskPushNotificationConfig {
        tenant: None,
        id: Some(view.name),
        task_id: Some(run.to_string()),
        url: view.url,
        token: secrets.token.map(Secret),
        authentication: secrets.scheme.map(|scheme| AuthenticationInfo { scheme, credentials: None }),
    }
}

fn read_secrets(text: Option<&str>) -> Secrets {
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

pub(super) fn refused(run: Option<RunId>, error: &SubscriptionError) -> A2aError {
    match error {
        SubscriptionError::Engine(error) => A2aError::of(run, error),
        SubscriptionError::Invalid(why) => A2aError::invalid("url", why.clone()),
        SubscriptionError::NotAllowed(why) => A2aError::new(Kind::PermissionDenied, *why),
        SubscriptionError::NoKey => not_supported(),
    }
}

impl ReceiverKind for Push {
    fn name(&self) -> &'static str {
        Push::NAME
    }

    fn request(&self, telling: &Delivery<'_>) -> Option<DeliveryRequest> {
        // There is nothing in the protocol that only says hello.
        let DeliveryPayload::Frame { run, frame } = &telling.what else { return None };
        let id = match frame.number {
            Some(number) => format!("{}-{number}", telling.subscription),
            None => format!("{}-{}-{}", telling.subscription, run.id, frame.seq),
        };
        let signed = signature(telling.secrets, &id, telling.now, &frame.body);
        let (media, version) = match version_of(telling.receiver)? {
            Version::One => (A2A_JSON, VERSION),
            Version::ZeroThree => (JSON, V03),
        };
        let mut headers = vec![
            ("content-type", media.to_owned()),
            ("a2a-version", version.to_owned()),
            ("webhook-id", id.clone()),
            ("webhook-timestamp", seconds(telling.now).to_string()),
            ("webhook-signature", signed),
        ];
        if let Some(number) = frame.number {
            headers.push(("x-a2a-notification-sequence", number.to_string()));
        }
        let secrets = read_secrets(telling.brought);
        if let Some(token) = secrets.token {
            headers.push(("x-a2a-notification-token", token));
        }
        if let (Some(scheme), Some(credentials)) = (secrets.scheme, secrets.credentials) {
            headers.push(("authorization", format!("{scheme} {credentials}")));
        }
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Some(DeliveryRequest { id, headers, body: frame.body.clone() })
    }

    fn hears_below(&self) -> bool {
        true
    }

    fn frames<'a>(
        &'a self,
        reading: FrameSource<'a>,
    ) -> Option<BoxFuture<'a, Result<Vec<Frame>, EngineError>>> {
        Some(Box::pin(frames(reading)))
    }
}

/// The versions that receivers are served in. Another one is a line here, one in `request` and one in `body`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    /// Receivers get the whole task at each change.
    ZeroThree,
}

/// The version that a receiver was registered by.
fn version_of(receiver: &standfast_engine::Receiver) -> Option<Version> {
    let details: Details = serde_json::from_str(&receiver.brought.as_ref()?.details).ok()?;
    match details.version.as_str() {
        VERSION => Some(Version::One),
        V03 => Some(Version::ZeroThree),
        other => {
            tracing::warn!(
                version = other,
                "a2a: ignoring a push notification config of an unsupported protocol version"
            );
            None
        }
    }
}

fn body(version: Version, frame: &StreamResponse) -> String {
    match version {
        Version::One => written(frame),
        Version::ZeroThree => v03::pushed(frame),
    }
}

/// The frames of a task's log whose append ends with that event or a later one. Their numbers count from the beginning of
/// the log, so they are the same whenever and wherever they are made.
async fn frames(reading: FrameSource<'_>) -> Result<Vec<Frame>, EngineError> {
    let FrameSource { views, who, receiver, run, named_for, from } = reading;
    let Some(version) = version_of(receiver) else { return Ok(Vec::new()) };
    if named_for != run {
        return asked_below(reading, version).await;
    }
    let (mut frames, mut number, mut progress) = (Vec::new(), 0, Progress::of(run));
    for (index, append) in views.appends(run, Seq(0)).await?.into_iter().enumerate() {
        let last = append.last().map_or(Seq(0), |event| event.seq);
        let change = progress.take(append, &[]);
        let Some(now) = progress.run() else { continue };
        let is_wanted = last >= from;
        let question = if is_wanted
            && change.as_ref().is_some_and(|change| matches!(change.says, StatusText::Question))
        {
            map::prompt(TaskIds::of(now), &asks(views, who, now, &[]).await?)
        } else {
            None
        };
        let told = match (index, version, change) {
            (0, _, _) | (_, Version::ZeroThree, Some(_)) => {
                let mut task = map::task(now, &[], progress.events(), question);
                map::shorten(&mut task, HISTORY);
                vec![StreamResponse::Task(Box::new(task))]
            }
            (_, Version::One, Some(change)) => stream::updates(now, change, question),
            (_, _, None) => Vec::new(),
        };
        for one in told {
            number += 1;
            if is_wanted {
                frames.push(Frame { seq: last, number: Some(number), body: body(version, &one) });
            }
        }
    }
    Ok(frames)
}

/// What a task asks because a run below it does: told as long as it is asked. It stands in no place of the task's own log.
async fn asked_below(reading: FrameSource<'_>, version: Version) -> Result<Vec<Frame>, EngineError> {
    let FrameSource { views, who, receiver: _, run, named_for, from } = reading;
    let view = match views.run(who, named_for).await {
        Ok(view) => view,
        Err(EngineError::NotFound) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    // Decided meanwhile, or over.
    if view.run.outcome().is_some() || !view.holds_below.iter().any(|(hold, _)| hold.run == run) {
        return Ok(Vec::new());
    }
    let question =
        map::prompt(TaskIds::of(&view.run), &asks(views, who, &view.run, &view.holds_below).await?);
    let below: Vec<HoldKind> = view.holds_below.iter().map(|(_, kind)| *kind).collect();
    let log = views.appends(named_for, Seq(0)).await?.concat();
    let mut task = map::task(&view.run, &below, &log, question);
    map::shorten(&mut task, HISTORY);
    let told = match version {
        Version::ZeroThree => StreamResponse::Task(Box::new(task)),
        Version::One => {
            let Task { id: task_id, context_id, status, .. } = task;
            StreamResponse::StatusUpdate(Box::new(TaskStatusUpdateEvent { task_id, context_id, status }))
        }
    };
    Ok(vec![Frame { seq: from, number: None, body: body(version, &told) }])
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(..)")
    }
}

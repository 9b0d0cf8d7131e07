//! Messages in a channel of Slack: posted when a hold opens, changed when it is edited or decided, by whomever and wherever.
//!
//! The deliverer says when; a row remembers which message is about which hold (`ChannelPosts`). A message is named in its metadata, so
//! that one which was posted just before a crash is found again instead of being posted twice.

use futures_util::future::BoxFuture;
use reqwest::{Method, Url};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use standfast_core::base32;
use standfast_core::digest;
use standfast_core::event::{Envelope, Event};
use standfast_core::id::HoldId;
use standfast_core::run::Facts;
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::settings::{ChannelSecret, ChannelVia, SlackRoom};
use standfast_engine::{
    ChannelTarget, Delivery, DeliveryPayload, DeliveryRequest, HoldView, ReceiverKind, SendFailure,
    delivery_id,
};

use super::call::{self, Call};
use super::rooms::{is_told, test};
use super::slack_message::{self, WHOLE};
use crate::labels::notice::{DigestNotice, HoldNotice};

/// What the metadata of our messages are called.
const METADATA: &str = "standfast_hold";

/// How much earlier than we said so Slack may think that a message was posted.
const CLOCKS: Millis = Millis::seconds(60);

/// What Slack says of a message that is not there any more: nothing is left to change.
const GONE: [&str; 4] =
    ["message_not_found", "cant_update_message", "edit_window_closed", "thread_not_found"];

/// Channels of Slack.
#[derive(Debug, Clone, Copy)]
pub struct Slack;

/// What is remembered of the message about a hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Post {
    /// It is being posted since then.
    Posting(Timestamp),
    /// It stands there.
    Posted {
        /// The channel, as Slack says it.
        room: String,
        /// What it is called there.
        ts: String,
    },
}

impl ReceiverKind for Slack {
    fn name(&self) -> &'static str {
        "slack"
    }

    fn request(&self, _telling: &Delivery<'_>) -> Option<DeliveryRequest> {
        None
    }

    fn send<'a>(&'a self, telling: &'a Delivery<'a>) -> Option<BoxFuture<'a, Result<(), SendFailure>>> {
        let target = telling.target?;
        let ChannelVia::Slack(room) = &target.channel.via else { return None };
        let place = room.room.as_deref().unwrap_or(target.address);
        let api = SlackApi::of(room, place, target.channel.timeout, telling.now);
        match &telling.what {
            DeliveryPayload::Frame { .. } => None,
            DeliveryPayload::Digest { id, holds, more } => {
                let digest = DigestNotice::of(telling.public_url, holds, *more);
                let message = slack_message::of_digest(&digest);
                Some(Box::pin(async move {
                    api.ask("chat.postMessage", api.in_room(message), id).await?;
                    Ok(())
                }))
            }
            DeliveryPayload::Ping { id } => {
                let message = slack_message::of_notice(&test(telling.public_url));
                Some(Box::pin(async move {
                    api.ask("chat.postMessage", api.in_room(message), id).await?;
                    Ok(())
                }))
            }
            DeliveryPayload::Event { run, event, hold } => {
                let view = hold.as_deref().filter(|view| is_told(event, view.row.closed.is_some()))?;
                // By themselves people are told of what they may decide.
                if target.person.is_some() && !view.may_decide {
                    return None;
                }
                Some(Box::pin(tell((api, room), telling, target, (run, event, view))))
            }
        }
    }
}

/// Tells of an event, by the message that is there or by a new one.
async fn tell(
    (api, room): (SlackApi<'_>, &SlackRoom),
    telling: &Delivery<'_>,
    target: ChannelTarget<'_>,
    (run, event, view): (&Facts, &Envelope, &HoldView),
) -> Result<(), SendFailure> {
    let hold = view.row.id;
    let kept = target.posts.of(hold).await?;
    let known = match kept.as_deref().map(serde_json::from_str) {
        Some(Ok(Post::Posted { room, ts })) => Some((room, ts)),
        Some(Ok(Post::Posting(since))) => api.find(hold, since).await?,
        Some(Err(_)) | None => None,
    };
    let notice = HoldNotice::of(telling.public_url, run, event, view, WHOLE);
    let decide = room.interactive.as_ref().map(|by| by.decide);
    let message = slack_message::of_hold(&notice, view, decide);
    let id = delivery_id(telling.subscription, run.id, event);
    if let Event::HoldResolved(_) = event.event {
        match known {
            Some(place) => api.change(place, message, hold, &id).await?,
            // Somebody by themselves may want to hear of nothing but decisions.
            None if target.person.is_some() => {
                api.ask("chat.postMessage", api.in_room(message), &id).await?;
            }
            None => {}
        }
        return target.posts.keep(hold, kept, None).await;
    }
    let Some(place) = known else {
        let posting = text(&Post::Posting(telling.now));
        target.posts.keep(hold, kept, posting.clone()).await?;
        let mut body = api.in_room(message);
        body["metadata"] = metadata(hold);
        let answer = api.ask("chat.postMessage", body, &id).await?;
        let said = |name: &str| answer.get(name).and_then(Value::as_str).map(str::to_owned);
        let (Some(room), Some(ts)) = (said("channel"), said("ts")) else {
            return Err("Slack did not say where the message is".into());
        };
        return target.posts.keep(hold, posting, text(&Post::Posted { room, ts })).await;
    };
    match event.event {
        // It was posted before a crash.
        Event::HoldOpened(_) => {}
        Event::HoldEdited(_) | Event::HoldDelegated(_) => {
            api.change(place.clone(), message, hold, &id).await?
        }
        // Others may decide now, or until another time: the message says so, and a reply is noticed.
        Event::HoldEscalated(_) | Event::HoldExpired(_) => {
            api.change(place.clone(), message, hold, &format!("{id}-message")).await?;
            api.reply(&place, &notice, &id).await?;
        }
        _ => api.reply(&place, &notice, &id).await?,
    }
    let (room, ts) = place;
    target.posts.keep(hold, kept, text(&Post::Posted { room, ts })).await
}

fn text(post: &Post) -> Option<String> {
    serde_json::to_string(post).ok()
}

/// Names the message about a hold, without giving the hold away.
fn key(hold: HoldId) -> String {
    let name = digest::of_parts("standfast.slack-post.1", &[hold.to_string().as_bytes()]).0;
    base32::encode(name.get(..15).unwrap_or_default())
}

fn metadata(hold: HoldId) -> Value {
    json!({"event_type": METADATA, "event_payload": {"post": key(hold)}})
}

/// The Web API of Slack.
#[derive(Clone, Copy)]
pub(super) struct SlackApi<'a> {
    /// Its address.
    pub(super) api: &'a str,
    pub(super) token: &'a ChannelSecret,
    /// The channel.
    pub(super) room: &'a str,
    pub(super) timeout: Millis,
    pub(super) now: Timestamp,
}

/// Why Slack did not do it.
pub(super) enum SlackRefusal {
    /// It says no, with a code.
    Said(String),
    /// It could not be asked.
    Failed(SendFailure),
}

impl From<SlackRefusal> for SendFailure {
    fn from(why: SlackRefusal) -> SendFailure {
        match why {
            SlackRefusal::Said(code) => format!("Slack answered {code}").into(),
            SlackRefusal::Failed(failure) => failure,
        }
    }
}

impl<'a> SlackApi<'a> {
    /// With the token of the bot.
    pub(super) fn of(room: &'a SlackRoom, place: &'a str, timeout: Millis, now: Timestamp) -> SlackApi<'a> {
        SlackApi { api: &room.api, token: &room.token, room: place, timeout, now }
    }

    /// A sentence that nobody but this user sees.
    pub(super) async fn whisper(
        &self,
        room: &str,
        user: &str,
        text: &str,
        id: &str,
    ) -> Result<(), SendFailure> {
        let body = json!({
            "channel": room,
            "user": user,
            "text": slack_message::said(text),
            "link_names": false,
            "parse": "none",
        });
        self.ask("chat.postEphemeral", body, id).await?;
        Ok(())
    }

    fn in_room(&self, mut message: Value) -> Value {
        message["channel"] = json!(self.room);
        for name in ["unfurl_links", "unfurl_media", "link_names"] {
            message[name] = json!(false);
        }
        message
    }

    async fn change(
        &self,
        (room, ts): (String, String),
        mut message: Value,
        hold: HoldId,
        id: &str,
    ) -> Result<(), SendFailure> {
        message["channel"] = json!(room);
        message["ts"] = json!(ts);
        message["link_names"] = json!(false);
        message["metadata"] = metadata(hold);
        self.unless_gone("chat.update", message, id).await
    }

    async fn reply(
        &self,
        (room, ts): &(String, String),
        notice: &HoldNotice,
        id: &str,
    ) -> Result<(), SendFailure> {
        let mut body = self.in_room(slack_message::reply(notice));
        body["channel"] = json!(room);
        body["thread_ts"] = json!(ts);
        body["reply_broadcast"] = json!(true);
        self.unless_gone("chat.postMessage", body, id).await
    }

    async fn unless_gone(&self, method: &str, body: Value, id: &str) -> Result<(), SendFailure> {
        match self.ask(method, body, id).await {
            Ok(_) => Ok(()),
            Err(SlackRefusal::Said(code)) if GONE.contains(&code.as_str()) => {
                tracing::warn!(method, code, "chats: a message of Slack is not there any more");
                Ok(())
            }
            Err(why) => Err(why.into()),
        }
    }

    /// The message about a hold that may have been posted before a crash. Where the bot may not read the channel nobody knows, and it is
    /// posted once more.
    async fn find(&self, hold: HoldId, since: Timestamp) -> Result<Option<(String, String)>, SendFailure> {
        let oldest = since.0.saturating_sub(CLOCKS.0).div_euclid(1000).to_string();
        let pairs = [
            ("channel", self.room),
            ("oldest", oldest.as_str()),
            ("include_all_metadata", "true"),
            ("limit", "200"),
        ];
        // The one encoder of forms that is at hand is that of addresses.
        let form = Url::parse_with_params("https://form.invalid/", pairs);
        let form = form.ok().and_then(|url| url.query().map(str::to_owned)).unwrap_or_default();
        let id = format!("find-{}", key(hold));
        let found = match self
            .send("conversations.history", "application/x-www-form-urlencoded", form, &id)
            .await
        {
            Ok(found) => found,
            Err(SlackRefusal::Said(code)) => {
                tracing::warn!(code, "chats: Slack does not say whether a message was posted before a crash");
                return Ok(None);
            }
            Err(why) => return Err(why.into()),
        };
        let wanted = key(hold);
        let is_it = |message: &&Value| {
            let metadata = message.get("metadata");
            let post = metadata.and_then(|metadata| metadata.pointer("/event_payload/post"));
            metadata.and_then(|metadata| metadata.get("event_type")).and_then(Value::as_str) == Some(METADATA)
                && post.and_then(Value::as_str) == Some(wanted.as_str())
        };
        let messages = found.get("messages").and_then(Value::as_array);
        let ts = messages.and_then(|all| all.iter().find(is_it)).and_then(|message| message.get("ts"));
        Ok(ts.and_then(Value::as_str).map(|ts| (self.room.to_owned(), ts.to_owned())))
    }

    async fn ask(&self, method: &str, body: Value, id: &str) -> Result<Value, SlackRefusal> {
        self.send(method, "application/json; charset=utf-8", body.to_string(), id).await
    }

    /// Calls a method, with a body of this kind.
    pub(super) async fn send(
        &self,
        method: &str,
        kind: &str,
        body: String,
        id: &str,
    ) -> Result<Value, SlackRefusal> {
        let call = Call {
            method: Method::POST,
            url: format!("{}/{method}", self.api.trim_end_matches('/')),
            headers: vec![
                ("authorization", format!("Bearer {}", self.token.0)),
                ("content-type", kind.to_owned()),
            ],
            body,
            id: id.to_owned(),
        };
        let answer = call::send(call, self.timeout, self.now).await.map_err(SlackRefusal::Failed)?;
        let said: Value = serde_json::from_str(&answer.body)
            .map_err(|_| SlackRefusal::Failed("the answer of Slack cannot be read".into()))?;
        if said.get("ok").and_then(Value::as_bool) == Some(true) {
            return Ok(said);
        }
        let code = said.get("error").and_then(Value::as_str).unwrap_or("no error code");
        Err(SlackRefusal::Said(code.chars().filter(|c| !c.is_control()).take(100).collect()))
    }
}

//! Rooms that take messages and send nothing back: workflows of Teams, topics of ntfy, and any chat that has an address for messages.
//!
//! A message leads to the page where people sign in and decide. It is not changed afterwards: the decision is a message of its own.

use futures_util::future::BoxFuture;
use reqwest::Method;
use serde_json::{Value, json};
use standfast_core::base32;
use standfast_core::digest;
use standfast_core::event::{Envelope, Event};
use standfast_core::time::Timestamp;
use standfast_engine::settings::{Channel, ChannelVia, NtfyTopic, WebhookFormat, WebhookRoom};
use standfast_engine::{Delivery, DeliveryPayload, DeliveryRequest, ReceiverKind, SendFailure, delivery_id};

use super::call::{self, Call};
use super::{card, template};
use crate::http::rfc3339;
use crate::labels::hidden_characters::{escaped_json, visible};
use crate::labels::notice::{HoldNotice, prefix};

/// Bytes of arguments and question that a message shows where it shows them.
const WHOLE: usize = 8 * 1024;

/// Bytes of arguments in a message of Discord, whose texts are short.
const WHOLE_CONTENT: usize = 1_200;

/// Characters of a text that is sent to Discord.
const CONTENT_MAX: usize = 2_000;

/// Workflows of Teams.
#[derive(Debug, Clone, Copy)]
pub struct Teams;

/// Topics of ntfy.
#[derive(Debug, Clone, Copy)]
pub struct Ntfy;

/// Any chat that takes messages at an address.
#[derive(Debug, Clone, Copy)]
pub struct Webhook;

macro_rules! room {
    ($kind:ty, $name:literal) => {
        impl ReceiverKind for $kind {
            fn name(&self) -> &'static str {
                $name
            }

            fn request(&self, _telling: &Delivery<'_>) -> Option<DeliveryRequest> {
                None
            }

            fn send<'a>(
                &'a self,
                telling: &'a Delivery<'a>,
            ) -> Option<BoxFuture<'a, Result<(), SendFailure>>> {
                let channel = telling.target?.channel;
                let call = told(telling, channel)?;
                let (timeout, now) = (channel.timeout, telling.now);
                Some(Box::pin(async move { call::send(call, timeout, now).await.map(drop) }))
            }
        }
    };
}

room!(Teams, "teams");
room!(Ntfy, "ntfy");
room!(Webhook, "chat-webhook");

/// The request that tells this; none when there is nothing to tell.
fn told(telling: &Delivery<'_>, channel: &Channel) -> Option<Call> {
    let message = Message::of(telling, bytes_of(channel))?;
    match &channel.via {
        ChannelVia::Teams(room) | ChannelVia::Webhook(room) => Some(message.to_address(room)),
        ChannelVia::Ntfy(topic) => Some(message.to_topic(topic)),
        ChannelVia::Mail(_) | ChannelVia::Slack(_) | ChannelVia::Discord(_) => None,
    }
}

fn bytes_of(channel: &Channel) -> usize {
    match &channel.via {
        ChannelVia::Webhook(room) if room.format == WebhookFormat::Content => WHOLE_CONTENT,
        _ => WHOLE,
    }
}

/// Whether a room is told of this now: as long as there is something to decide, and of the decision.
pub(super) fn is_told(event: &Envelope, is_closed: bool) -> bool {
    is_closed == matches!(event.event, Event::HoldResolved(_))
}

/// What is said, whoever takes it.
struct Message {
    id: String,
    notice: HoldNotice,
    /// What happened, by the name that webhooks have for it.
    event: String,
    hold: Option<String>,
    /// What the same notice is called that changes: the hold, but for what is to be noticed once more.
    thread: Option<String>,
    at: Timestamp,
}

impl Message {
    fn of(telling: &Delivery<'_>, bytes: usize) -> Option<Message> {
        match &telling.what {
            DeliveryPayload::Frame { .. } | DeliveryPayload::Digest { .. } => None,
            DeliveryPayload::Ping { id } => Some(Message {
                id: (*id).to_owned(),
                notice: test(telling.public_url),
                event: "ping".into(),
                hold: None,
                thread: None,
                at: telling.now,
            }),
            DeliveryPayload::Event { run, event, hold } => {
                // Nothing new is asked of the room.
                if let Event::HoldDelegated(_) = event.event {
                    return None;
                }
                let view = hold.as_ref().filter(|view| is_told(event, view.row.closed.is_some()))?;
                let is_once_more = matches!(
                    event.event,
                    Event::HoldReminded(_) | Event::HoldEscalated(_) | Event::HoldExpired(_)
                );
                let id = delivery_id(telling.subscription, run.id, event);
                let hold = view.row.id.to_string();
                let mut notice = HoldNotice::of(telling.public_url, run, event, view, bytes);
                notice.title = format!("{}{}", prefix(event), notice.title);
                Some(Message {
                    thread: Some(if is_once_more { id.clone() } else { hold.clone() }),
                    id,
                    notice,
                    event: event.event.kind().to_owned(),
                    hold: Some(hold),
                    at: event.at,
                })
            }
        }
    }

    fn to_address(&self, room: &WebhookRoom) -> Call {
        let usual = if room.shows_arguments { template::USUAL_WITH_CALL } else { template::USUAL };
        let text = || {
            let text = room.text.as_deref().unwrap_or(usual);
            template::filled(text, &self.notice, room.shows_arguments)
        };
        let body = match room.format {
            WebhookFormat::Card => card::message(&self.notice, room.shows_arguments),
            // Slack and its kin read `<…>` and `&` as markup.
            WebhookFormat::Text => json!({"text": escaped(&text())}),
            WebhookFormat::Content => json!({
                "content": cut(&text(), CONTENT_MAX),
                "allowed_mentions": {"parse": []},
            }),
            WebhookFormat::Json => self.everything(room.shows_arguments),
        };
        let headers = vec![("content-type", "application/json".to_owned())];
        // What is hidden in a value stays what it is, and is seen by whoever looks at the text.
        let (url, body) = (room.url.0.clone(), escaped_json(&body.to_string()).into_owned());
        Call { method: Method::POST, url, headers, body, id: self.id.clone() }
    }

    /// Everything that is known, each under its name.
    fn everything(&self, shows_arguments: bool) -> Value {
        let notice = &self.notice;
        let facts: serde_json::Map<String, Value> = notice
            .facts
            .iter()
            .map(|(name, value)| (name.to_lowercase().replace(' ', "_"), json!(value)))
            .collect();
        json!({
            "id": self.id,
            "type": self.event,
            "timestamp": rfc3339(self.at),
            "hold": self.hold,
            "title": notice.title,
            "news": notice.news,
            "facts": facts,
            "reason": notice.reason,
            "tool": notice.tool,
            "question": notice.question.as_ref().filter(|_| shows_arguments),
            "arguments": notice.arguments.as_ref().filter(|_| shows_arguments),
            "decided": notice.is_decided,
            "page": notice.page,
        })
    }

    /// A topic may be read by whoever knows its name: without arguments, and with nothing that decides.
    fn to_topic(&self, topic: &NtfyTopic) -> Call {
        let text = topic.text.as_deref().unwrap_or("{news}\n{facts}");
        let open = |page: &String| json!({"action": "view", "label": "Open", "url": page, "clear": true});
        let mut body = json!({
            "topic": topic.topic,
            "title": visible(&self.notice.title),
            "message": template::filled(text, &self.notice, false),
            "tags": [if self.notice.is_decided { "white_check_mark" } else { "raised_hand" }],
            "priority": if self.notice.is_decided { 2 } else { 4 },
            "actions": self.notice.page.iter().map(open).collect::<Vec<_>>(),
        });
        if let Some(page) = &self.notice.page {
            body["click"] = json!(page);
        }
        // Servers that know it put a notice in the place of the one before that has the same name.
        if let Some(thread) = &self.thread {
            let name = digest::of_bytes(thread.as_bytes()).0;
            body["sequence_id"] = json!(base32::encode(name.get(..15).unwrap_or_default()));
        }
        let mut headers = vec![("content-type", "application/json".to_owned())];
        headers.extend(topic.token.as_ref().map(|token| ("authorization", format!("Bearer {}", token.0))));
        let url = format!("{}/", topic.server.trim_end_matches('/'));
        Call { method: Method::POST, url, headers, body: body.to_string(), id: self.id.clone() }
    }
}

/// What is said to find out whether a room is reached.
pub(super) fn test(public_url: Option<&str>) -> HoldNotice {
    HoldNotice {
        title: "Test of the channel".into(),
        news: "This is a test. Nothing is asked.".into(),
        facts: Vec::new(),
        reason: None,
        reason_label: "Why it is held",
        question: None,
        tool: None,
        arguments: None,
        is_whole: true,
        is_decided: true,
        page: public_url.map(str::to_owned),
    }
}

/// Text of others, where `<…>` and `&` are markup.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The first characters of a text, with a sign where there were more.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use standfast_engine::settings::ChannelSecret;

    use super::super::display::{assert_nothing_is_hidden, corpus, notice};
    use super::*;
    use crate::labels::hidden_characters::is_hidden_in_lines;

    fn bodies(message: &Message) -> Vec<(WebhookFormat, String)> {
        let formats = [WebhookFormat::Card, WebhookFormat::Text, WebhookFormat::Content, WebhookFormat::Json];
        let sent = |format| {
            let url = ChannelSecret("https://chat.example/x".into());
            let room = WebhookRoom { url, format, text: None, shows_arguments: true };
            (format, message.to_address(&room).body)
        };
        formats.map(sent).into()
    }

    /// T17: of 300 strings nothing is hidden in any format, nor in a topic. As JSON for programs a value is what it is, written with
    /// escapes.
    #[test]
    fn t17_300_strings_show_what_they_are_in_rooms() {
        let token = Some(ChannelSecret("tk_x".into()));
        let topic = NtfyTopic { server: "https://n.example".into(), topic: "t".into(), token, text: None };
        for text in corpus() {
            let (id, event) = ("1".to_owned(), "hold.opened".to_owned());
            let at = Timestamp(0);
            let message = Message { id, notice: notice(&text), event, hold: None, thread: None, at };
            for (format, body) in bodies(&message) {
                assert!(!body.contains(is_hidden_in_lines), "{text:?}: {body}");
                let read: Value = serde_json::from_str(&body).unwrap();
                if format == WebhookFormat::Json {
                    assert_eq!(read["reason"], *text);
                } else {
                    assert_nothing_is_hidden(&read, &text);
                }
            }
            let topic = serde_json::from_str(&message.to_topic(&topic).body).unwrap();
            assert_nothing_is_hidden(&topic, &text);
        }
    }
}

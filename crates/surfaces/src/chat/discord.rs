//! Messages in a channel of Discord: posted when a hold opens, changed when it is edited or decided, by whomever and wherever.
//!
//! Each message has a name of its own (`nonce`), by which Discord itself does not post it twice within some minutes. Text of others is
//! escaped, arguments stand in a block of code; what would end that block is not shown, and such a message has no buttons (T19, T20).

use futures_util::future::BoxFuture;
use reqwest::Method;
use serde_json::{Value, json};
use standfast_core::base32;
use standfast_core::digest;
use standfast_core::event::{Envelope, Event};
use standfast_core::run::Facts;
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::settings::{ChannelVia, DecideInChat, DiscordRoom};
use standfast_engine::{
    ChannelTarget, Delivery, DeliveryPayload, DeliveryRequest, HoldView, ReceiverKind, SendFailure,
    delivery_id,
};

use super::call::{self, Call};
use super::clicks::{Button, has_buttons, is_whole};
use super::rooms::{cut, is_told, test};
use super::slack_clicks::hex;
use crate::labels::hidden_characters::visible;
use crate::labels::notice::HoldNotice;

/// Bytes of arguments and question that are shown; a description takes 4,096 characters.
pub(super) const WHOLE: usize = 2_800;

/// Kinds of components, and styles of buttons.
const ROW: u8 = 1;
const BUTTON: u8 = 2;
const GREEN: u8 = 3;
const RED: u8 = 4;
const LINK: u8 = 5;

/// Channels of Discord.
#[derive(Debug, Clone, Copy)]
pub struct Discord;

/// The public key of an application, as Discord shows it.
#[must_use]
pub fn public_key(text: &str) -> Option<[u8; 32]> {
    hex(text)?.try_into().ok()
}

impl ReceiverKind for Discord {
    fn name(&self) -> &'static str {
        "discord"
    }

    fn request(&self, _telling: &Delivery<'_>) -> Option<DeliveryRequest> {
        None
    }

    fn send<'a>(&'a self, telling: &'a Delivery<'a>) -> Option<BoxFuture<'a, Result<(), SendFailure>>> {
        let target = telling.target?;
        let ChannelVia::Discord(room) = &target.channel.via else { return None };
        let api = DiscordApi { room, timeout: target.channel.timeout, now: telling.now };
        match &telling.what {
            DeliveryPayload::Frame { .. } | DeliveryPayload::Digest { .. } => None,
            DeliveryPayload::Ping { id } => {
                let notice = test(telling.public_url);
                let message = json!({
                    "embeds": [{"title": notice.title, "description": notice.news}],
                    "allowed_mentions": {"parse": []},
                });
                Some(Box::pin(async move { api.post(message, id).await.map(drop) }))
            }
            DeliveryPayload::Event { run, event, hold } => {
                let view = hold.as_deref().filter(|view| is_told(event, view.row.closed.is_some()))?;
                Some(Box::pin(tell(api, telling, target, (run, event, view))))
            }
        }
    }
}

/// Tells of an event, by the message that is there or by a new one.
async fn tell(
    api: DiscordApi<'_>,
    telling: &Delivery<'_>,
    target: ChannelTarget<'_>,
    (run, event, view): (&Facts, &Envelope, &HoldView),
) -> Result<(), SendFailure> {
    let hold = view.row.id;
    let kept = target.posts.of(hold).await?;
    let notice = HoldNotice::of(telling.public_url, run, event, view, WHOLE);
    let decide = api.room.interactive.as_ref().map(|by| by.decide);
    let message = of_hold(&notice, view, decide);
    let id = delivery_id(telling.subscription, run.id, event);
    let Some(posted) = kept.clone() else {
        if let Event::HoldResolved(_) = event.event {
            return Ok(());
        }
        // Named by the hold: what was posted just before a crash is what Discord answers with.
        let posted = api.post(message, &format!("{hold}")).await?;
        return target.posts.keep(hold, None, Some(posted)).await;
    };
    match event.event {
        Event::HoldOpened(_) => Ok(()),
        Event::HoldEdited(_) | Event::HoldDelegated(_) => api.change(&posted, message, &id).await,
        Event::HoldResolved(_) => {
            api.change(&posted, message, &id).await?;
            target.posts.keep(hold, kept, None).await
        }
        _ => {
            // Others may decide now, or until another time: the message says so, and a reply is noticed.
            if let Event::HoldEscalated(_) | Event::HoldExpired(_) = event.event {
                api.change(&posted, message, &format!("{id}-message")).await?;
            }
            let mut reply = json!({
                "embeds": [{"title": escaped(&cut(&notice.title, 120)), "description": escaped(&notice.news)}],
                "allowed_mentions": {"parse": []},
            });
            reply["message_reference"] = json!({"message_id": posted, "fail_if_not_exists": false});
            api.post(reply, &id).await.map(drop)
        }
    }
}

/// What a message about a hold says.
pub(super) fn of_hold(notice: &HoldNotice, view: &HoldView, decide: Option<DecideInChat>) -> Value {
    let mut lines = vec![escaped(&notice.news)];
    lines.extend(
        notice
            .reason
            .as_ref()
            .map(|reason| format!("{}: {}", notice.reason_label, escaped(&cut(reason, 600)))),
    );
    let is_shown = is_shown(notice, view);
    if is_shown {
        lines.extend(notice.question.as_deref().map(quoted));
        if let (Some(tool), Some(arguments)) = (&notice.tool, &notice.arguments) {
            lines.push(format!("{}: arguments, byte for byte", escaped(tool)));
            lines.push(quoted(arguments));
        }
    } else if !notice.is_decided {
        lines.push("It cannot be shown here whole. Sign in to see all of it and to decide.".to_owned());
    }
    if !notice.is_decided {
        lines.push(format!("Who may decide: {}", escaped(&cut(&view.deciders, 200))));
    }
    let fact = |(name, value): &(&str, String)| json!({"name": name, "value": escaped(&cut(value, 400)), "inline": true});
    let mut buttons = Vec::new();
    if is_shown && decide.is_some_and(|decide| has_buttons(view, decide, WHOLE)) {
        for (label, style, approves) in [("Approve", GREEN, true), ("Deny", RED, false)] {
            let id = Button::of(view, approves).text();
            buttons.push(json!({"type": BUTTON, "style": style, "label": label, "custom_id": id}));
        }
    }
    if let Some(page) = notice.page.as_ref().filter(|page| page.len() <= 512) {
        buttons.push(json!({"type": BUTTON, "style": LINK, "label": "Open", "url": page}));
    }
    let rows = if buttons.is_empty() { json!([]) } else { json!([{"type": ROW, "components": buttons}]) };
    json!({
        "embeds": [{
            "title": escaped(&cut(&visible(&notice.title), 120)),
            "description": lines.join("\n"),
            "fields": notice.facts.iter().map(fact).collect::<Vec<_>>(),
        }],
        "components": rows,
        "allowed_mentions": {"parse": []},
    })
}

/// Whether all that is decided can stand in blocks of code.
fn is_shown(notice: &HoldNotice, view: &HoldView) -> bool {
    let is_plain = |text: &Option<String>| text.as_ref().is_none_or(|text| !text.contains("```"));
    is_whole(view, WHOLE) && is_plain(&notice.arguments) && is_plain(&notice.question)
}

fn quoted(text: &str) -> String {
    format!("```\n{}\n```", visible(text))
}

/// Text of others, in which nothing is Markdown, a mention or an address that is shown as something else.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in visible(text).chars() {
        if c.is_ascii_punctuation()
            && !matches!(c, '.' | ',' | '\'' | '"' | '?' | '!' | ';' | '/' | '%' | '=')
        {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// The API of Discord.
#[derive(Clone, Copy)]
struct DiscordApi<'a> {
    room: &'a DiscordRoom,
    timeout: Millis,
    now: Timestamp,
}

impl DiscordApi<'_> {
    /// Posts a message; what it is called there.
    async fn post(&self, mut message: Value, id: &str) -> Result<String, SendFailure> {
        let name = digest::of_parts("standfast.discord-post.1", &[id.as_bytes()]).0;
        message["nonce"] = json!(base32::encode(name.get(..15).unwrap_or_default()));
        message["enforce_nonce"] = json!(true);
        let said = self.send(Method::POST, "", message, id).await?;
        let posted = said.get("id").and_then(Value::as_str);
        let posted = posted.filter(|id| !id.is_empty() && id.bytes().all(|c| c.is_ascii_alphanumeric()));
        posted.map(str::to_owned).ok_or_else(|| "Discord did not say what the message is called".into())
    }

    async fn change(&self, posted: &str, message: Value, id: &str) -> Result<(), SendFailure> {
        match self.send(Method::PATCH, &format!("/{posted}"), message, id).await {
            Err(failure) if failure.why.starts_with("the chat answered 404") => {
                tracing::warn!(why = failure.why, "chats: a message of Discord is not there any more");
                Ok(())
            }
            other => other.map(drop),
        }
    }

    async fn send(&self, method: Method, below: &str, body: Value, id: &str) -> Result<Value, SendFailure> {
        let DiscordRoom { api, room, token, .. } = self.room;
        let call = Call {
            method,
            url: format!("{}/channels/{room}/messages{below}", api.trim_end_matches('/')),
            headers: vec![
                ("authorization", format!("Bot {}", token.0)),
                ("content-type", "application/json".to_owned()),
            ],
            body: body.to_string(),
            id: id.to_owned(),
        };
        let answer = call::send(call, self.timeout, self.now).await?;
        serde_json::from_str(&answer.body).map_err(|_| "the answer of Discord cannot be read".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T20: nothing of others is Markdown, a mention of everybody, or a link that looks like another.
    #[test]
    fn t20_nothing_of_others_is_markdown() {
        assert_eq!(
            escaped("@everyone [a](https://b) `x` **y** <@1>"),
            "\\@everyone \\[a\\]\\(https\\://b\\) \\`x\\` \\*\\*y\\*\\* \\<\\@1\\>"
        );
        assert_eq!(escaped("a\u{202e}b"), "a⟨U\\+202E⟩b");
    }

    #[test]
    fn a_public_key_is_32_bytes() {
        assert_eq!(public_key(&"0a".repeat(32)), Some([10; 32]));
        assert_eq!(public_key(&"0a".repeat(31)), None);
        assert_eq!(public_key(&"0A".repeat(32)), None);
    }
}

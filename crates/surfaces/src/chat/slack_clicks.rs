//! The door for what Slack signed: clicks on buttons (T5, T8, T10, T13).
//!
//! A request counts when its signature covers its time and its bytes, and its time is about now. A request that is sent again decides
//! nothing anew: a button is bound to one version of one hold, and a click to its name. Clicks over a socket (`slack_socket.rs`) are taken
//! by the same function.

use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use sha2::Sha256;
use standfast_core::digest;
use standfast_engine::ChatAccount;
use standfast_engine::settings::{Channel, ChannelSecret, ChannelVia, SlackInteractive, SlackRoom};

use super::clicks::{self, Button, Click};
use super::is_fresh;
use super::slack::SlackApi;
use super::slack_message::{APPROVE, DENY, WHOLE};
use crate::http::{App, Problem};

/// How long telling somebody why their click did not count may take: Slack waits for three seconds.
const WHISPER: Duration = Duration::from_millis(2_000);

pub(super) fn routes() -> Router<App> {
    Router::new().route("/chat/slack/{channel}", post(clicked))
}

/// What Slack says of a click.
#[derive(Debug, Deserialize)]
pub(super) struct Payload {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    team: Option<SlackPlace>,
    #[serde(default)]
    user: Option<User>,
    #[serde(default)]
    channel: Option<SlackPlace>,
    #[serde(default)]
    container: Option<Container>,
    #[serde(default)]
    actions: Vec<Action>,
}

impl Payload {
    /// The room that the message is in.
    pub(super) fn place(&self) -> Option<String> {
        let place = self.channel.as_ref().map(|place| place.id.clone());
        place.or_else(|| self.container.as_ref()?.channel_id.clone())
    }
}

#[derive(Debug, Deserialize)]
struct SlackPlace {
    id: String,
}

#[derive(Debug, Deserialize)]
struct User {
    id: String,
    /// Of whoever is from another workspace, in a shared channel.
    #[serde(default)]
    team_id: Option<String>,
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    name: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Container {
    #[serde(default)]
    channel_id: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Action {
    action_id: String,
    #[serde(default)]
    value: Option<String>,
    #[serde(default)]
    action_ts: Option<String>,
}

async fn clicked(
    State(app): State<App>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    let settings = app.engine.settings();
    let channel = settings.channels.iter().find(|one| one.name == name);
    let found = channel.and_then(|channel| match &channel.via {
        ChannelVia::Slack(room) => {
            let by = room.interactive.as_ref()?;
            Some((channel, room, by, by.signing_secret.as_ref()?))
        }
        _ => None,
    });
    let Some((channel, room, interactive, secret)) = found else {
        let detail = format!("there is no channel {name:?} of Slack that takes signed clicks");
        return Err(Problem::new(StatusCode::NOT_FOUND, "no-such-channel", "No such channel", detail));
    };
    let now = app.engine.clock().now();
    let is_genuine = is_signed(secret, &headers, &body)
        && header(&headers, "x-slack-request-timestamp").is_some_and(|at| is_fresh(at, now));
    if !is_genuine {
        tracing::warn!(channel = channel.name, "chats: a request was not signed by Slack, or too long ago");
        let detail =
            "the request is not signed with the secret of this channel, or its time is not about now";
        return Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "bad-signature",
            "Bad signature",
            detail.to_owned(),
        ));
    }
    if let Some(payload) = payload_of(&body) {
        take(&app, channel, (room, interactive), payload).await;
    }
    Ok(StatusCode::OK)
}

/// Decides as a click says that is known to come from Slack, or tells whoever clicked why not. What is no click (a test of the address, a
/// link that was opened) changes nothing.
pub(super) async fn take(
    app: &App,
    channel: &Channel,
    (room, interactive): (&SlackRoom, &SlackInteractive),
    payload: Payload,
) {
    let place = payload.place();
    let Payload { kind, team, user, actions, .. } = payload;
    if kind != "block_actions" {
        return;
    }
    let decides = |action: &&Action| matches!(action.action_id.as_str(), APPROVE | DENY);
    let (Some(user), Some(action)) = (user, actions.iter().find(decides)) else { return };
    let installed = team.map(|team| team.id).unwrap_or_default();
    let own = user.team_id.as_deref().unwrap_or(&installed);
    let is_ours = installed == interactive.team && own == interactive.team;
    let account = ChatAccount::new("slack", own, &user.id).filter(|_| is_ours);
    let sentence = match account {
        Some(account) => {
            let button = action.value.as_deref().and_then(Button::read);
            let button = button.filter(|button| button.approves == (action.action_id == APPROVE));
            let at = action.action_ts.as_deref().unwrap_or_default();
            let value = action.value.as_deref().unwrap_or_default();
            let parts = [own.as_bytes(), user.id.as_bytes(), at.as_bytes(), value.as_bytes()];
            let click = Click {
                account,
                shown: user.username.or(user.name).unwrap_or_default(),
                button,
                once: format!("slack:{}", digest::of_parts("standfast.slack-click.1", &parts)),
            };
            clicks::decide(app, channel, (interactive.decide, WHOLE), click).await
        }
        None => {
            tracing::warn!(channel = channel.name, "chats: a click from another workspace was refused");
            Some("Nothing was decided: this workspace is not the one whose members decide here.".to_owned())
        }
    };
    let Some(sentence) = sentence else { return };
    let api = SlackApi::of(room, "", channel.timeout, app.engine.clock().now());
    let place = place.or_else(|| room.room.clone()).unwrap_or_else(|| user.id.clone());
    let parts = [user.id.as_bytes(), sentence.as_bytes()];
    let id = format!("whisper-{}", digest::of_parts("standfast.slack-whisper.1", &parts));
    let whisper = api.whisper(&place, &user.id, &sentence, &id);
    match tokio::time::timeout(WHISPER, whisper).await {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => {
            tracing::warn!(
                channel = channel.name,
                why = failure.why,
                "chats: could not explain to the user why the click was refused"
            );
        }
        Err(_) => {
            tracing::warn!(
                channel = channel.name,
                "chats: explaining to the user why the click was refused timed out"
            )
        }
    }
}

/// The one value of a header; none when there are several.
fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first)
}

/// Whether the bytes and their time were signed with the secret of the channel.
fn is_signed(secret: &ChannelSecret, headers: &HeaderMap, body: &[u8]) -> bool {
    let signed = header(headers, "x-slack-request-timestamp").zip(header(headers, "x-slack-signature"));
    signed.is_some_and(|(at, signature)| is_signature(&secret.0, at, body, signature))
}

/// Whether this is the signature, version 0, of a time and bytes.
fn is_signature(secret: &str, at: &str, body: &[u8], signature: &str) -> bool {
    let given = signature.strip_prefix("v0=").and_then(hex);
    let (Some(given), Ok(mut mac)) = (given, Hmac::<Sha256>::new_from_slice(secret.as_bytes())) else {
        return false;
    };
    mac.update(b"v0:");
    mac.update(at.as_bytes());
    mac.update(b":");
    mac.update(body);
    mac.verify_slice(&given).is_ok()
}

/// Bytes that are written as pairs of letters.
pub(super) fn hex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    if text.is_empty() || !text.len().is_multiple_of(2) || text.len() > 256 {
        return None;
    }
    text.as_bytes().chunks(2).map(|pair| Some(digit(pair[0])? * 16 + digit(pair[1])?)).collect()
}

fn payload_of(body: &[u8]) -> Option<Payload> {
    let form: Vec<(String, String)> = form_of(body)?;
    let mut payloads = form.into_iter().filter(|(name, _)| name == "payload");
    let (_, payload) = payloads.next()?;
    // Of two nobody knows which one was meant.
    if payloads.next().is_some() {
        return None;
    }
    serde_json::from_str(&payload).ok()
}

/// A form, by the one decoder that is at hand: that of addresses.
fn form_of(body: &[u8]) -> Option<Vec<(String, String)>> {
    let mut url = reqwest::Url::parse("https://form.invalid/").ok()?;
    url.set_query(Some(std::str::from_utf8(body).ok()?));
    Some(url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
}

#[cfg(test)]
mod tests {
    use standfast_testkit::damage::{each, each_text};

    use super::*;

    const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";
    /// The example of Slack's own documentation.
    const BODY: &str = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
    const AT: &str = "1531420618";
    const SIGNATURE: &str = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";

    /// T8, T10: the signature of Slack's own example counts, and nothing beside it: no other time, byte, secret, letter or version.
    #[test]
    fn t8_slacks_own_example_and_nothing_beside_it() {
        assert!(is_signature(SECRET, AT, BODY.as_bytes(), SIGNATURE));
        for (secret, at, body, signature) in [
            ("", AT, BODY, SIGNATURE),
            (&SECRET[1..], AT, BODY, SIGNATURE),
            (SECRET, "1531420619", BODY, SIGNATURE),
            (SECRET, "01531420618", BODY, SIGNATURE),
            (SECRET, "", BODY, SIGNATURE),
            (SECRET, AT, &BODY[1..], SIGNATURE),
            (SECRET, AT, "", SIGNATURE),
            (SECRET, AT, BODY, ""),
            (SECRET, AT, BODY, "v0="),
            (SECRET, AT, BODY, &SIGNATURE[3..]),
            (SECRET, AT, BODY, &SIGNATURE.replace("v0", "v1")),
            (SECRET, AT, BODY, &SIGNATURE.to_uppercase()),
            (SECRET, AT, BODY, &SIGNATURE[..SIGNATURE.len() - 2]),
            (SECRET, AT, BODY, &format!("{SIGNATURE}00")),
            (SECRET, AT, BODY, &format!("{SIGNATURE} ")),
        ] {
            assert!(!is_signature(secret, at, body.as_bytes(), signature), "{at} {signature}");
        }
        for at in 3..SIGNATURE.len() {
            let mut letters = SIGNATURE.as_bytes().to_vec();
            letters[at] = if letters[at] == b'0' { b'1' } else { b'0' };
            let changed = String::from_utf8(letters).unwrap();
            assert!(!is_signature(SECRET, AT, BODY.as_bytes(), &changed), "{at}");
        }
        // The time and the body cannot be cut elsewhere.
        let moved = format!("{AT}:token");
        assert!(!is_signature(SECRET, &moved, &BODY.as_bytes()[6..], SIGNATURE));
    }

    /// T31: whatever form Slack is said to have sent, its fields are the same when they are written again, and it has one payload or none.
    #[test]
    fn t31_any_form_of_slack_is_read_or_refused() {
        let good: [&[u8]; 3] = [
            b"payload=%7B%22type%22%3A%22block_actions%22%2C%22team%22%3A%7B%22id%22%3A%22T1%22%7D%2C%22user%22%3A%7B%22id%22%3A%22U1%22%7D%2C%22actions%22%3A%5B%7B%22action_id%22%3A%22a%22%2C%22value%22%3A%22v%22%7D%5D%7D",
            BODY.as_bytes(),
            b"ssl_check=1&token=x&payload=%7B%7D&payload=%7B%7D",
        ];
        let (mut read, mut payloads) = (0, 0);
        each(&good, 30_000, |body| {
            let Some(form) = form_of(body) else { return };
            read += 1;
            let mut url = reqwest::Url::parse("https://form.invalid/").unwrap();
            url.query_pairs_mut().extend_pairs(form.iter());
            assert_eq!(form_of(url.query().unwrap_or_default().as_bytes()).as_ref(), Some(&form));
            if payload_of(body).is_some() {
                payloads += 1;
                assert_eq!(form.iter().filter(|(name, _)| name == "payload").count(), 1);
            }
        });
        assert!(read > 50 && payloads > 50, "{read} read, {payloads} payloads");
    }

    /// T31: headers and bodies with things wrong in them are signed only where nothing is different, and no body makes its reader panic.
    #[test]
    fn t31_what_slack_signed_and_was_damaged_is_not_signed() {
        let (mut signed, mut read) = (0, 0);
        each_text(&[SIGNATURE, AT, "v0=00", "1531420619"], 8_000, |text| {
            let is_signed = is_signature(SECRET, AT, BODY.as_bytes(), text);
            assert_eq!(is_signed, text == SIGNATURE, "{text}");
            assert_eq!(is_signature(SECRET, text, BODY.as_bytes(), SIGNATURE), text == AT, "{text}");
            signed += usize::from(is_signed);
        });
        let click =
            b"payload=%7B%22type%22%3A%22block_actions%22%2C%22user%22%3A%7B%22id%22%3A%22U1%22%7D%7D";
        each(&[BODY.as_bytes(), click], 8_000, |body| {
            assert_eq!(is_signature(SECRET, AT, body, SIGNATURE), body == BODY.as_bytes());
            read += usize::from(payload_of(body).is_some());
        });
        assert!(signed > 0 && read > 50, "{signed} {read}");
    }

    /// T13: who clicked is what Slack names by ids; a form with two payloads says nothing.
    #[test]
    fn t13_a_form_has_one_payload() {
        let one = "payload=%7B%22type%22%3A%22block_actions%22%2C%22user%22%3A%7B%22id%22%3A%22U1%22%7D%7D";
        assert_eq!(payload_of(one.as_bytes()).unwrap().user.unwrap().id, "U1");
        assert!(payload_of(format!("{one}&{one}").as_bytes()).is_none());
        assert!(
            payload_of(b"payload=").is_none() && payload_of(b"").is_none() && payload_of(b"\xff").is_none()
        );
    }

    #[test]
    fn hex_is_pairs_of_small_letters() {
        assert_eq!(hex("00ff"), Some(vec![0, 255]));
        for odd in ["", "0", "0g", "FF", "+1", "0x"] {
            assert_eq!(hex(odd), None, "{odd}");
        }
    }
}

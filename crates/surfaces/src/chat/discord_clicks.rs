//! The door for what Discord signed: clicks on buttons (T5, T8, T10, T13).
//!
//! Discord signs the time and the bytes of each request with the key of the application, and tries from time to time whether that is
//! checked. The answer to a click is what whoever clicked is shown, and nobody else.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use standfast_core::digest;
use standfast_engine::ChatAccount;
use standfast_engine::settings::{Channel, ChannelVia, DiscordInteractive};

use super::clicks::{self, Button, Click};
use super::discord::WHOLE;
use super::is_fresh;
use super::rooms::cut;
use super::slack_clicks::hex;
use crate::http::{App, Problem};
use crate::labels::hidden_characters::visible;

/// Kinds of interactions, and of answers.
const PING: u8 = 1;
const COMPONENT: u8 = 3;
const PONG: u8 = 1;
const MESSAGE: u8 = 4;
const NOTHING_NOW: u8 = 6;

/// Only whoever clicked sees it.
const EPHEMERAL: u32 = 64;

/// Characters of an answer.
const ANSWER_MAX: usize = 1_900;

pub(super) fn routes() -> Router<App> {
    Router::new().route("/chat/discord/{channel}", post(clicked))
}

#[derive(Debug, Deserialize)]
struct Interaction {
    #[serde(rename = "type")]
    kind: u8,
    #[serde(default)]
    id: String,
    #[serde(default)]
    guild_id: Option<String>,
    #[serde(default)]
    member: Option<Member>,
    #[serde(default)]
    data: Option<ComponentData>,
}

#[derive(Debug, Deserialize)]
struct Member {
    user: User,
}

#[derive(Debug, Deserialize)]
struct User {
    id: String,
    #[serde(default)]
    username: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ComponentData {
    #[serde(default)]
    custom_id: Option<String>,
}

async fn clicked(
    State(app): State<App>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Problem> {
    let settings = app.engine.settings();
    let channel = settings.channels.iter().find(|one| one.name == name);
    let found = channel.and_then(|channel| match &channel.via {
        ChannelVia::Discord(room) => room.interactive.as_ref().map(|by| (channel, by)),
        _ => None,
    });
    let Some((channel, interactive)) = found else {
        let detail = format!("there is no channel {name:?} of Discord that takes clicks");
        return Err(Problem::new(StatusCode::NOT_FOUND, "no-such-channel", "No such channel", detail));
    };
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (at, signature) = (header("x-signature-timestamp"), header("x-signature-ed25519"));
    let is_genuine =
        is_signature(&interactive.public_key, at, &body, signature) && is_fresh(at, app.engine.clock().now());
    if !is_genuine {
        tracing::warn!(channel = channel.name, "chats: a request was not signed by Discord, or too long ago");
        let detail =
            "the request is not signed for the application of this channel, or its time is not about now";
        return Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "bad-signature",
            "Bad signature",
            detail.to_owned(),
        ));
    }
    let unreadable = || {
        let detail = "the interaction cannot be read".to_owned();
        Problem::new(StatusCode::BAD_REQUEST, "unreadable", "Unreadable", detail)
    };
    let interaction: Interaction = serde_json::from_slice(&body).map_err(|_| unreadable())?;
    match interaction.kind {
        PING => Ok(Json(json!({"type": PONG}))),
        COMPONENT => Ok(Json(match take(&app, channel, interactive, interaction).await {
            None => json!({"type": NOTHING_NOW}),
            Some(sentence) => json!({
                "type": MESSAGE,
                "data": {
                    "content": cut(&visible(&sentence), ANSWER_MAX),
                    "flags": EPHEMERAL,
                    "allowed_mentions": {"parse": []},
                },
            }),
        })),
        _ => Err(unreadable()),
    }
}

/// Decides as the click says; otherwise what whoever clicked is told.
async fn take(
    app: &App,
    channel: &Channel,
    interactive: &DiscordInteractive,
    interaction: Interaction,
) -> Option<String> {
    let guild = interaction.guild_id.unwrap_or_default();
    let user = interaction.member.map(|member| member.user).filter(|_| guild == interactive.guild);
    let account = user.as_ref().and_then(|user| ChatAccount::new("discord", &guild, &user.id));
    let (Some(account), Some(user)) = (account, user) else {
        tracing::warn!(channel = channel.name, "chats: a click from another server of Discord was refused");
        return Some("Nothing was decided: this is not the server whose members decide here.".to_owned());
    };
    let id = interaction.data.and_then(|data| data.custom_id).unwrap_or_default();
    let parts = [interaction.id.as_bytes(), account.user.as_bytes(), id.as_bytes()];
    let once = format!("discord:{}", digest::of_parts("standfast.discord-click.1", &parts));
    let (shown, button) = (user.username.unwrap_or_default(), Button::read(&id));
    let click = Click { account, shown, button, once };
    clicks::decide(app, channel, (interactive.decide, WHOLE), click).await
}

/// Whether this is the signature of a time and bytes.
fn is_signature(key: &[u8; 32], at: &str, body: &[u8], signature: &str) -> bool {
    let Some(signature) = hex(signature).filter(|bytes| bytes.len() == 64) else { return false };
    let signed = [at.as_bytes(), body].concat();
    UnparsedPublicKey::new(&ED25519, key).verify(&signed, &signature).is_ok()
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
    use standfast_testkit::damage::{each, each_text};

    use super::*;

    /// T8, T10: a signature covers time and bytes, is of this key, and has no other form.
    #[test]
    fn t8_a_signature_covers_time_and_bytes() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let key: [u8; 32] = pair.public_key().as_ref().try_into().unwrap();
        let other = Ed25519KeyPair::from_seed_unchecked(&[8; 32]).unwrap();
        let written = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let (at, body) = ("1800000000", b"{\"type\":1}".as_slice());
        let signed = [at.as_bytes(), body].concat();
        let signature = written(pair.sign(&signed).as_ref());
        assert!(is_signature(&key, at, body, &signature));
        assert!(!is_signature(&key, "1800000001", body, &signature));
        assert!(!is_signature(&key, at, b"{\"type\":3}", &signature));
        assert!(!is_signature(&key, "", body, &signature));
        assert!(!is_signature(&key, at, body, &written(other.sign(&signed).as_ref())));
        assert!(!is_signature(&[0; 32], at, body, &signature));
        for odd in ["", "00", &signature[2..], &format!("{signature}00"), &signature.to_uppercase()] {
            assert!(!is_signature(&key, at, body, odd), "{odd}");
        }
        for at_letter in (0..signature.len()).step_by(5) {
            let mut letters = signature.clone().into_bytes();
            letters[at_letter] = if letters[at_letter] == b'0' { b'1' } else { b'0' };
            assert!(!is_signature(&key, at, body, &String::from_utf8(letters).unwrap()), "{at_letter}");
        }
    }
    /// T31: headers and bodies with things wrong in them are signed only where nothing is different.
    #[test]
    fn t31_what_discord_signed_and_was_damaged_is_not_signed() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let key: [u8; 32] = pair.public_key().as_ref().try_into().unwrap();
        let (at, body) = ("1800000000", b"{\"type\":1}".as_slice());
        let signature = pair.sign(&[at.as_bytes(), body].concat());
        let signature: String = signature.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut signed = 0;
        each_text(&[&signature, at], 4_000, |text| {
            let is_signed = is_signature(&key, at, body, text);
            assert_eq!(is_signed, text == signature, "{text}");
            assert_eq!(is_signature(&key, text, body, &signature), text == at, "{text}");
            signed += usize::from(is_signed);
        });
        assert!(signed > 0);
        each(&[body], 4_000, |damaged| {
            assert_eq!(is_signature(&key, at, damaged, &signature), damaged == body);
        });
    }
}

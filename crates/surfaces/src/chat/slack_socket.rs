//! Socket Mode: clicks that Slack sends over a connection which this server opened, for servers that Slack cannot reach (T5, T13).
//!
//! Every node keeps one connection for each app-level token; Slack hands each envelope to one of an app's connections, and whichever node
//! gets it decides. A click goes the way of one that was signed and sent to us (`slack_clicks.rs`). An envelope is acknowledged when its
//! click is decided, and after two seconds in any case: Slack waits for three, and what a crash leaves without an acknowledgement was not
//! swallowed. Sent again it decides nothing anew.

use std::collections::BTreeMap;

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::Value;
use standfast_core::time::Millis;
use standfast_engine::clock::{Clock, random_bytes};
use standfast_engine::outbound::guard::{Guard, UnnamedHosts};
use standfast_engine::outbound::http::Trouble;
use standfast_engine::outbound::upgrade::{UpgradeRequest, upgrade};
use standfast_engine::settings::{Channel, ChannelSecret, ChannelVia, Settings, SlackRoom};
use tokio::task::{AbortHandle, JoinSet};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::slack::{SlackApi, SlackRefusal};
use super::slack_clicks;
use super::socket_connection::{Connection, ConnectionEnd, stopped};
use crate::http::App;

/// How often it is looked whether the configuration names other apps.
const LOOK_EVERY: Millis = Millis::seconds(2);

/// The pause after the first failure, and the longest one.
const PAUSE: Millis = Millis::seconds(1);
const LONGEST_PAUSE: Millis = Millis::seconds(60);

/// How long opening a connection may take.
const OPEN_WITHIN: Millis = Millis::seconds(20);

/// Bytes of one message: a click brings the message that was clicked.
const MESSAGE_BYTES: usize = 1024 * 1024;

/// An app whose clicks come over a socket: what its channels share.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SocketApp {
    /// The address of the Web API.
    api: String,
    /// The app-level token.
    token: String,
}

impl SocketApp {
    fn of(room: &SlackRoom) -> Option<SocketApp> {
        let token = room.interactive.as_ref()?.app_token.as_ref()?;
        Some(SocketApp { api: room.api.clone(), token: token.0.clone() })
    }

    /// The channels of this app.
    fn channels<'a>(&self, settings: &'a Settings) -> Vec<(&'a Channel, &'a SlackRoom)> {
        let rooms = settings.channels.iter().filter_map(|channel| match &channel.via {
            ChannelVia::Slack(room) => Some((channel, room)),
            _ => None,
        });
        rooms.filter(|(_, room)| SocketApp::of(room).as_ref() == Some(self)).collect()
    }

    /// What its channels are called.
    fn names(&self, settings: &Settings) -> String {
        let names: Vec<&str> = self.channels(settings).iter().map(|(one, _)| one.name.as_str()).collect();
        names.join(", ")
    }
}

/// Keeps a connection for each app that the settings name, until the server stops.
pub async fn keep_sockets(app: App) {
    let mut stopping = app.stopping.clone();
    let mut tasks = JoinSet::new();
    let mut kept: BTreeMap<SocketApp, AbortHandle> = BTreeMap::new();
    loop {
        let settings = app.engine.settings();
        let rooms = settings.channels.iter().filter_map(|channel| match &channel.via {
            ChannelVia::Slack(room) => SocketApp::of(room),
            _ => None,
        });
        let wanted: Vec<SocketApp> = rooms.collect();
        kept.retain(|of, task| {
            let stays = wanted.contains(of);
            if !stays {
                task.abort();
            }
            stays
        });
        for of in wanted {
            kept.entry(of.clone()).or_insert_with(|| tasks.spawn(keep_one(app.clone(), of)));
        }
        while tasks.try_join_next().is_some() {}
        tokio::select! {
            () = stopped(&mut stopping) => break,
            () = app.engine.clock().sleep(LOOK_EVERY) => {}
        }
    }
    // Each finishes what it has begun, and ends.
    while tasks.join_next().await.is_some() {}
}

/// Keeps the connection of one app.
async fn keep_one(app: App, of: SocketApp) {
    let clock = app.engine.clock().clone();
    let mut stopping = app.stopping.clone();
    let mut ending = JoinSet::new();
    let mut failures = 0;
    loop {
        let opened = tokio::select! {
            () = stopped(&mut stopping) => break,
            opened = open(&app, &of) => opened,
        };
        let pause = match opened {
            Ok(frames) => {
                let (clicks, by) = (app.clone(), of.clone());
                let handle = move |payload| taken(clicks.clone(), by.clone(), payload);
                let mut connection = Connection::new(frames, clock.clone(), stopping.clone(), handle);
                let end = connection.run().await;
                failures = if connection.is_ready() { 0 } else { failures + 1 };
                let pause = after(&app, &of, &end, failures);
                let is_replaced = end == ConnectionEnd::Refresh;
                // What was begun on it is finished there, while the next one is open.
                ending.spawn(async move {
                    if is_replaced {
                        connection.linger().await;
                    }
                    connection.close().await;
                });
                pause
            }
            Err(failure) => {
                failures += 1;
                let channel = of.names(&app.engine.settings());
                tracing::error!(
                    channel,
                    why = failure.why,
                    "chats: Slack opens no socket, so nobody can decide there; {}",
                    failure.advice
                );
                backoff(failures)
            }
        };
        while ending.try_join_next().is_some() {}
        tokio::select! {
            () = stopped(&mut stopping) => break,
            () = clock.sleep(pause) => {}
        }
    }
    while ending.join_next().await.is_some() {}
}

/// Says that a connection ended, and how long it is until the next one.
fn after(app: &App, of: &SocketApp, end: &ConnectionEnd, failures: u32) -> Millis {
    let channel = of.names(&app.engine.settings());
    match end {
        ConnectionEnd::Stopping => Millis(0),
        ConnectionEnd::Refresh => {
            tracing::info!(channel, "chats: Slack asks for a new socket; opening it");
            // A little later, so that Slack cannot make this node spin.
            Millis(200)
        }
        ConnectionEnd::Disabled => {
            tracing::error!(
                channel,
                "chats: Socket Mode is off for this app, so nobody can decide there; switch it on in the settings of the app at Slack, \
                 or remove `app_token`"
            );
            LONGEST_PAUSE
        }
        ConnectionEnd::Lost(why) => {
            tracing::warn!(channel, why, "chats: the socket of Slack was lost; opening another one");
            backoff(failures.max(1))
        }
    }
}

/// The pause after so many failures in a row, up to a fifth longer, so that nodes do not come back together.
fn backoff(failures: u32) -> Millis {
    let doubled = PAUSE.0.saturating_mul(1 << failures.saturating_sub(1).min(16));
    let pause = doubled.min(LONGEST_PAUSE.0);
    let [random] = random_bytes::<1>();
    Millis(pause + pause / 5 * i64::from(random) / 255)
}

/// Why there is no connection.
pub(super) struct SocketFailure {
    pub(super) why: String,
    /// What to do.
    pub(super) advice: &'static str,
}

/// What to do about a code of Slack.
fn advice(code: &str) -> &'static str {
    match code {
        "invalid_auth"
        | "not_authed"
        | "not_allowed_token_type"
        | "token_revoked"
        | "token_expired"
        | "account_inactive" => {
            "create an app-level token with the scope connections:write (Basic Information) and write it into `app_token`"
        }
        "missing_scope" | "no_permission" => {
            "give the app-level token in `app_token` the scope connections:write"
        }
        "access_denied" => "switch on Socket Mode in the settings of the app at Slack",
        _ => "trying again; if it stays so, look at the settings of the app at Slack",
    }
}

/// The address of a connection, which is good for one.
pub(super) async fn address(api: &SlackApi<'_>) -> Result<String, SocketFailure> {
    let answer =
        api.send("apps.connections.open", "application/x-www-form-urlencoded", String::new(), "open");
    let answer = answer.await.map_err(|refusal| match refusal {
        SlackRefusal::Said(code) => {
            SocketFailure { advice: advice(&code), why: format!("Slack answered {code}") }
        }
        SlackRefusal::Failed(failure) => SocketFailure { advice: advice(""), why: failure.why },
    })?;
    let found = answer.get("url").and_then(Value::as_str).map(str::to_owned);
    found.ok_or_else(|| SocketFailure { why: "Slack named no address".to_owned(), advice: advice("") })
}

async fn open(app: &App, of: &SocketApp) -> Result<WebSocketStream<reqwest::Upgraded>, SocketFailure> {
    let token = ChannelSecret(of.token.clone());
    let now = app.engine.clock().now();
    let api = SlackApi { api: &of.api, token: &token, room: "", timeout: OPEN_WITHIN, now };
    let address = address(&api).await?;
    let failed = |why: String| SocketFailure { why, advice: advice("") };
    let (guard, url) = leads_to(&of.api, &address).map_err(|why| failed(why.to_owned()))?;
    let key = generate_key();
    let mut headers = HeaderMap::new();
    headers.insert("sec-websocket-version", HeaderValue::from_static("13"));
    let value = HeaderValue::try_from(key.as_str()).map_err(|error| failed(error.to_string()))?;
    headers.insert("sec-websocket-key", value);
    let asked = UpgradeRequest { url, protocol: "websocket", headers };
    let opened = upgrade(&guard, OPEN_WITHIN, asked).await.map_err(|trouble| match trouble {
        // Its address is good for whoever knows it.
        Trouble::Blocked(_) => failed("Slack named an address that is not called".to_owned()),
        other => failed(other.to_string()),
    })?;
    let accepted = opened.headers.get("sec-websocket-accept").map(HeaderValue::as_bytes);
    if accepted != Some(derive_accept_key(key.as_bytes()).as_bytes()) {
        return Err(failed("what answered does not speak WebSocket".to_owned()));
    }
    let config = WebSocketConfig::default();
    let config = config.max_message_size(Some(MESSAGE_BYTES)).max_frame_size(Some(MESSAGE_BYTES));
    Ok(WebSocketStream::from_raw_socket(opened.bytes, Role::Client, Some(config)).await)
}

/// Where an address that Slack named leads to, and which hosts may be called for it: public ones, and that of the Web API. Nothing goes
/// over it in the clear, unless the Web API is asked so.
fn leads_to(api: &str, address: &str) -> Result<(Guard, String), &'static str> {
    let unusable = "Slack named an address that cannot be used";
    let api = Url::parse(api).map_err(|_| unusable)?;
    let url = match address.split_once("://") {
        Some(("wss", rest)) => format!("https://{rest}"),
        Some(("ws", rest)) if api.scheme() == "http" => format!("http://{rest}"),
        _ => return Err(unusable),
    };
    let named = api.host_str().zip(api.port_or_known_default()).ok_or(unusable)?;
    let named = format!("{}:{}", named.0.to_ascii_lowercase(), named.1);
    Ok((Guard { allowed_hosts: [named].into(), others: UnnamedHosts::Public }, url))
}

/// Decides as a click says, for the channel whose room it names; an app with one channel needs none.
async fn taken(app: App, of: SocketApp, payload: Value) {
    let Ok(payload) = slack_clicks::Payload::deserialize(payload) else {
        tracing::warn!("chats: Slack sent a click over its socket that cannot be read");
        return;
    };
    let settings = app.engine.settings();
    let channels = of.channels(&settings);
    let place = payload.place();
    // The ids of direct messages begin with a D.
    let is_direct = place.as_ref().is_some_and(|place| place.starts_with('D'));
    let is_its = |room: &SlackRoom| match &room.room {
        Some(room) => Some(room) == place.as_ref(),
        None => is_direct,
    };
    let by_room = channels.iter().find(|(_, room)| is_its(room));
    let found = by_room.or_else(|| channels.first().filter(|_| channels.len() == 1));
    let Some((channel, room)) = found else {
        tracing::warn!(
            channel = of.names(&settings),
            "chats: a click from a room that no channel names was refused"
        );
        return;
    };
    if let Some(interactive) = &room.interactive {
        slack_clicks::take(&app, channel, (room, interactive), payload).await;
    }
}

/// Whether Slack would open a connection for the clicks of a channel; none where they do not come that way.
pub async fn reach_socket(channel: &Channel) -> Option<Result<(), String>> {
    let ChannelVia::Slack(room) = &channel.via else { return None };
    let token = room.interactive.as_ref()?.app_token.as_ref()?;
    let now = Clock::system().now();
    let api = SlackApi { api: &room.api, token, room: "", timeout: channel.timeout, now };
    let found = address(&api).await;
    Some(found.map(drop).map_err(|failure| format!("{}; {}", failure.why, failure.advice)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T11: an address that Slack names is a public one, or on the host of the Web API, and protected like it.
    #[test]
    fn t11_a_socket_leads_to_slack() {
        let (guard, url) =
            leads_to("https://slack.com/api", "wss://wss-primary.slack.com/link/?ticket=x").unwrap();
        assert_eq!(url, "https://wss-primary.slack.com/link/?ticket=x");
        assert!(guard.check_text(&url).is_ok());
        for inside in
            ["wss://127.0.0.1/link", "wss://10.0.0.1:443/link", "wss://[::1]/link", "wss://169.254.169.254/"]
        {
            let (guard, url) = leads_to("https://slack.com/api", inside).unwrap();
            assert!(guard.check_text(&url).is_err(), "{inside}");
        }
        for odd in
            ["ws://wss-primary.slack.com/link", "https://slack.com/", "file:///etc/passwd", "", "wss:/x"]
        {
            assert!(leads_to("https://slack.com/api", odd).is_err(), "{odd}");
        }
        let (guard, url) = leads_to("http://127.0.0.1:8123/api", "ws://127.0.0.1:8123/link").unwrap();
        assert!(guard.check_text(&url).is_ok());
        let (guard, url) = leads_to("http://127.0.0.1:8123/api", "ws://127.0.0.1:8124/link").unwrap();
        assert!(guard.check_text(&url).is_err());
    }

    #[test]
    fn pauses_grow_up_to_a_minute() {
        let minute = LONGEST_PAUSE.0;
        for (failures, least, most) in
            [(1, 1_000, 1_200), (2, 2_000, 2_400), (4, 8_000, 9_600), (90, minute, minute * 6 / 5)]
        {
            let pause = backoff(failures).0;
            assert!((least..=most).contains(&pause), "{failures}: {pause}");
        }
    }
}

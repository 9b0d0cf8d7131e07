//! One connection of Socket Mode: its frames, acknowledgements, pings, and why it ended.
//!
//! What a click decides is its handler's business; who opens connections, and when, is `slack_socket.rs`.

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use standfast_core::time::Millis;
use standfast_engine::clock::Clock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{self, Bytes, Message};

/// How long a click can take before it is acknowledged anyway: Slack waits for three seconds.
const ACKNOWLEDGED_AFTER: Millis = Millis::seconds(2);

/// How long it can be quiet before the other side is asked whether it is there, and again before it is given up.
const QUIET: Millis = Millis::seconds(20);

/// How long sending something may take.
const SENT_WITHIN: Millis = Millis::seconds(10);

/// How long a connection that Slack is about to close is still read.
const LINGER: Millis = Millis::seconds(20);

/// How long what was begun may take to finish when a connection ends.
const FINISHED_WITHIN: Millis = Millis::seconds(10);

/// Clicks that are decided at once; more wait in the connection.
const AT_ONCE: usize = 32;

/// Characters of the name of an envelope.
const NAME_MAX: usize = 200;

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConnectionEnd {
    /// Slack asks for another one, and closes this one soon.
    Refresh,
    /// Socket Mode was switched off.
    Disabled,
    /// It broke, or was closed.
    Lost(String),
    /// The server stops.
    Stopping,
}

/// What Slack sends.
#[derive(Debug, Deserialize)]
struct Frame {
    #[serde(rename = "type", default)]
    kind: String,
    /// What it is acknowledged by.
    #[serde(default)]
    envelope_id: Option<String>,
    /// Why the connection is to end.
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    payload: Value,
}

/// One connection.
pub(super) struct Connection<S, H> {
    frames: WebSocketStream<S>,
    clock: Clock,
    stopping: watch::Receiver<bool>,
    handle: H,
    /// Clicks that are being decided.
    work: JoinSet<()>,
    /// The names of envelopes, once each is to be acknowledged.
    acknowledged: FuturesUnordered<BoxFuture<'static, String>>,
    is_ready: bool,
    /// Whether it was asked if it is there, and has not answered.
    is_asked: bool,
}

impl<S, H, F> Connection<S, H>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    H: Fn(Value) -> F + Send,
    F: Future<Output = ()> + Send + 'static,
{
    pub(super) fn new(
        frames: WebSocketStream<S>,
        clock: Clock,
        stopping: watch::Receiver<bool>,
        handle: H,
    ) -> Connection<S, H> {
        Connection {
            frames,
            clock,
            stopping,
            handle,
            work: JoinSet::new(),
            acknowledged: FuturesUnordered::new(),
            is_ready: false,
            is_asked: false,
        }
    }

    /// Whether Slack has greeted.
    pub(super) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Takes what comes, until it ends.
    pub(super) async fn run(&mut self) -> ConnectionEnd {
        loop {
            while self.work.try_join_next().is_some() {}
            let has_room = self.acknowledged.len() < AT_ONCE;
            let ended = tokio::select! {
                () = stopped(&mut self.stopping) => Some(ConnectionEnd::Stopping),
                Some(name) = self.acknowledged.next(), if !self.acknowledged.is_empty() => {
                    self.acknowledge(&name).await.err()
                }
                frame = self.frames.next(), if has_room => self.read(frame),
                () = self.clock.sleep(QUIET) => self.ask().await,
            };
            if let Some(end) = ended {
                return end;
            }
        }
    }

    /// Goes on for a while with a connection that Slack closes soon.
    pub(super) async fn linger(&mut self) {
        let clock = self.clock.clone();
        let _ = clock.timeout(LINGER, self.run()).await;
    }

    /// Finishes what was begun, acknowledges it if that is still possible, and closes.
    pub(super) async fn close(mut self) {
        let clock = self.clock.clone();
        let finished = async {
            let mut is_open = true;
            while let Some(name) = self.acknowledged.next().await {
                is_open = is_open && self.acknowledge(&name).await.is_ok();
            }
            while self.work.join_next().await.is_some() {}
        };
        let _ = clock.timeout(FINISHED_WITHIN, finished).await;
        let _ = clock.timeout(Millis::seconds(1), self.frames.close(None)).await;
    }

    fn read(&mut self, frame: Option<Result<Message, tungstenite::Error>>) -> Option<ConnectionEnd> {
        self.is_asked = false;
        match frame {
            None => Some(ConnectionEnd::Lost("it was closed".to_owned())),
            Some(Err(error)) => Some(ConnectionEnd::Lost(error.to_string())),
            Some(Ok(Message::Text(text))) => self.take(&text),
            // The library answers pings and closes.
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Binary(_) | Message::Frame(_))) => None,
            Some(Ok(Message::Close(_))) => Some(ConnectionEnd::Lost("Slack closed it".to_owned())),
        }
    }

    fn take(&mut self, text: &str) -> Option<ConnectionEnd> {
        let Ok(frame) = serde_json::from_str::<Frame>(text) else {
            tracing::warn!(
                bytes = text.len(),
                "chats: Slack sent something over its socket that cannot be read"
            );
            return None;
        };
        match frame.kind.as_str() {
            "hello" => {
                self.is_ready = true;
                tracing::info!("chats: Slack sends clicks over a socket");
                return None;
            }
            "disconnect" => {
                return Some(match frame.reason.as_deref() {
                    Some("link_disabled") => ConnectionEnd::Disabled,
                    _ => ConnectionEnd::Refresh,
                });
            }
            _ => {}
        }
        let name = frame.envelope_id.filter(|name| name.chars().count() <= NAME_MAX)?;
        let (done, when_done) = oneshot::channel();
        // What is no click (a command, an event) is acknowledged and changes nothing.
        if frame.kind == "interactive" {
            let work = (self.handle)(frame.payload);
            self.work.spawn(async move {
                work.await;
                let _ = done.send(());
            });
        }
        let clock = self.clock.clone();
        self.acknowledged.push(Box::pin(async move {
            let _ = clock.timeout(ACKNOWLEDGED_AFTER, when_done).await;
            name
        }));
        None
    }

    async fn acknowledge(&mut self, name: &str) -> Result<(), ConnectionEnd> {
        self.send(Message::text(json!({"envelope_id": name}).to_string())).await
    }

    /// Asks whether the other side is there; it is not when it has not answered since the last time.
    async fn ask(&mut self) -> Option<ConnectionEnd> {
        if self.is_asked {
            return Some(ConnectionEnd::Lost("it does not answer".to_owned()));
        }
        self.is_asked = true;
        self.send(Message::Ping(Bytes::new())).await.err()
    }

    async fn send(&mut self, message: Message) -> Result<(), ConnectionEnd> {
        match self.clock.timeout(SENT_WITHIN, self.frames.send(message)).await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(ConnectionEnd::Lost(error.to_string())),
            None => Err(ConnectionEnd::Lost("nothing could be sent".to_owned())),
        }
    }
}

/// Waits until the server stops.
pub(super) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // Without anybody who could say so there is no server any more.
    let _ = stopping.wait_for(|is_stopping| *is_stopping).await;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use standfast_testkit::damage::each_text;
    use tokio::io::DuplexStream;
    use tokio::task::JoinHandle;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    /// Slack's side of a connection, and ours at work: how it ended, and how many clicks were handled.
    struct Pair {
        slack: WebSocketStream<DuplexStream>,
        ours: JoinHandle<ConnectionEnd>,
        handled: Arc<AtomicUsize>,
        stop: watch::Sender<bool>,
    }

    /// Clicks take so long.
    async fn pair(takes: Millis) -> Pair {
        let (near, far) = tokio::io::duplex(1 << 20);
        let slack = WebSocketStream::from_raw_socket(far, Role::Server, None).await;
        let frames = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
        let (stop, stopping) = watch::channel(false);
        let handled = Arc::<AtomicUsize>::default();
        let count = handled.clone();
        let clock = Clock::system();
        let handle = move |_: Value| {
            let (count, slow) = (count.clone(), Clock::system());
            async move {
                slow.sleep(takes).await;
                count.fetch_add(1, Ordering::SeqCst);
            }
        };
        let ours = tokio::spawn(async move {
            let mut connection = Connection::new(frames, clock, stopping, handle);
            let end = connection.run().await;
            connection.close().await;
            end
        });
        Pair { slack, ours, handled, stop }
    }

    impl Pair {
        async fn say(&mut self, value: Value) {
            self.slack.send(Message::text(value.to_string())).await.unwrap();
        }

        async fn click(&mut self, name: &str) {
            self.say(
                json!({"type": "interactive", "envelope_id": name, "payload": {"type": "block_actions"}}),
            )
            .await;
        }

        /// The next frame but pings; none when it was closed.
        async fn heard(&mut self) -> Option<Value> {
            loop {
                match self.slack.next().await {
                    Some(Ok(Message::Text(text))) => return serde_json::from_str(&text).ok(),
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    _ => return None,
                }
            }
        }
    }

    /// Every envelope is acknowledged by its name once, clicks when they are decided; what is no click is acknowledged as well.
    #[tokio::test]
    async fn every_envelope_is_acknowledged_once() {
        let mut pair = pair(Millis(0)).await;
        pair.say(json!({"type": "hello", "num_connections": 1})).await;
        for name in ["one", "two"] {
            pair.click(name).await;
            assert_eq!(pair.heard().await, Some(json!({"envelope_id": name})));
        }
        assert_eq!(pair.handled.load(Ordering::SeqCst), 2);
        pair.say(json!({"type": "slash_commands", "envelope_id": "three", "payload": {}})).await;
        assert_eq!(pair.heard().await, Some(json!({"envelope_id": "three"})));
        pair.slack.send(Message::text("no JSON")).await.unwrap();
        pair.say(json!({"type": "hello"})).await;
        assert_eq!(pair.handled.load(Ordering::SeqCst), 2);
        pair.stop.send(true).unwrap();
        assert_eq!(pair.ours.await.unwrap(), ConnectionEnd::Stopping);
    }

    /// A click that takes long is acknowledged before Slack gives it up, and goes on; it is finished though the connection ends.
    #[tokio::test(start_paused = true)]
    async fn a_slow_click_is_acknowledged_and_finished() {
        let mut pair = pair(Millis::seconds(5)).await;
        pair.click("slow").await;
        assert_eq!(pair.heard().await, Some(json!({"envelope_id": "slow"})));
        assert_eq!(pair.handled.load(Ordering::SeqCst), 0);
        pair.say(json!({"type": "disconnect", "reason": "refresh_requested"})).await;
        assert_eq!(pair.ours.await.unwrap(), ConnectionEnd::Refresh);
        assert_eq!(pair.handled.load(Ordering::SeqCst), 1);
    }

    /// Why Slack ends a connection, and one that says nothing any more.
    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_as_slack_says() {
        for (reason, end) in [
            ("warning", ConnectionEnd::Refresh),
            ("refresh_requested", ConnectionEnd::Refresh),
            ("link_disabled", ConnectionEnd::Disabled),
            ("something new", ConnectionEnd::Refresh),
        ] {
            let mut pair = pair(Millis(0)).await;
            pair.say(json!({"type": "disconnect", "reason": reason})).await;
            assert_eq!(pair.ours.await.unwrap(), end, "{reason}");
        }
        let mut closed = pair(Millis(0)).await;
        closed.slack.close(None).await.unwrap();
        assert!(matches!(closed.ours.await.unwrap(), ConnectionEnd::Lost(_)));
        // Nobody reads there, so nobody answers the ping.
        let silent = pair(Millis(0)).await;
        assert_eq!(silent.ours.await.unwrap(), ConnectionEnd::Lost("it does not answer".to_owned()));
    }

    /// T31: frames with things wrong in them are read or left, and end nothing but as a whole one says.
    #[test]
    fn t31_no_damaged_frame_is_more_than_it_says() {
        let click = r#"{"type":"interactive","envelope_id":"e-1","accepts_response_payload":false,"payload":{"type":"block_actions"}}"#;
        let (mut read, mut named) = (0, 0);
        each_text(&[click, r#"{"type":"disconnect","reason":"warning"}"#], 8_000, |text| {
            let Ok(frame) = serde_json::from_str::<Frame>(text) else { return };
            read += 1;
            let Some(name) = frame.envelope_id else { return };
            named += 1;
            assert!(text.contains("envelope_id") || text.contains("\\u"), "{text}: {name}");
        });
        assert!(read > 50 && named > 10, "{read} {named}");
    }
}

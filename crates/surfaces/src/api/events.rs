//! The events of a run as a stream: server-sent events whose id is the sequence.
//!
//! `Last-Event-ID` is the cursor, so a client that comes back, on any server, misses and repeats nothing. The stream
//! stays open, also after the run's end, until the reader goes, their key or token ends, or the server stops; comments
//! keep it alive. What the
//! model is streaming comes as `delta` without an id: it moves no cursor and is never repeated.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use standfast_core::id::{RunId, Seq};
use standfast_engine::auth::Principal;
use standfast_engine::{EngineError, Follower, News};
use tokio::sync::watch;

use super::{map, wire};
use crate::http::{App, INVALID, Pass, Problem, Stay, refusal};

/// How often a comment shows that the stream is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The events after a position, and those to come.
pub(super) fn stream(app: &App, (pass, who): (Pass, Principal), run: RunId, after: Seq) -> Response {
    let reading = EventReader {
        stay: Stay::new(app, pass, who, run),
        run,
        follower: app.engine.reads().follow_live(run, after),
        stopping: app.stopping.clone(),
        ready: VecDeque::new(),
        is_over: false,
    };
    let events = futures_util::stream::unfold(reading, |mut reading| async move {
        let event = reading.next().await?;
        Some((Ok::<Event, Infallible>(event), reading))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

struct EventReader {
    stay: Stay,
    run: RunId,
    follower: Follower,
    stopping: watch::Receiver<bool>,
    ready: VecDeque<News>,
    is_over: bool,
}

impl EventReader {
    async fn next(&mut self) -> Option<Event> {
        while self.ready.is_empty() && !self.is_over {
            let read = tokio::select! {
                read = self.follower.news() => Some(read),
                () = self.stay.is_over() => None,
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
            };
            let Some(read) = read else { return Some(self.shut_out(INVALID)) };
            if read.is_ok()
                && let Some(why) = self.stay.is_shut_out().await
            {
                return Some(self.shut_out(why));
            }
            match read {
                Ok(news) => self.ready.extend(news),
                Err(error) => return Some(self.fail(&error)),
            }
        }
        Some(match self.ready.pop_front()? {
            News::Event(envelope) => {
                let event = map::event(self.run, &envelope);
                let sse = Event::default().id(envelope.seq.to_string()).event(event.kind);
                sse.json_data(&event).unwrap_or_default()
            }
            News::Delta(delta) => {
                let body = wire::DeltaBody { turn: delta.turn, no: delta.no, text: delta.text };
                Event::default().event("delta").json_data(&body).unwrap_or_default()
            }
        })
    }

    /// The reader's key was revoked, their token has run out, or they may not see the run any more: they get the same error as at the door, and nothing more.
    fn shut_out(&mut self, why: &'static str) -> Event {
        self.is_over = true;
        let problem = Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "Authentication required", why);
        Event::default().event("problem").json_data(&problem).unwrap_or_default()
    }

    /// The last thing a reader hears: without an id, so that coming back goes on in the same place.
    fn fail(&mut self, failure: &EngineError) -> Event {
        self.is_over = true;
        let problem = refusal::problem(Some(self.run), failure);
        Event::default().event("problem").json_data(&problem).unwrap_or_default()
    }
}

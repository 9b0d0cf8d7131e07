//! A task as a stream: pieces of the output while the model speaks, then the answer, and it closes.
//!
//! What is heard live may have gaps; with the whole reply in hand the rest of it is sent. Only where a model started over
//! can the pieces not be taken back; the answer has the whole output in any case. Comments keep the connection alive
//! (S1-34).

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use standfast_core::event::{Envelope, Event as CoreEvent};
use standfast_core::id::Seq;
use standfast_engine::{Delta, EngineError, Follower, News, ShownHolds};
use tokio::sync::watch;

use super::error::{body, problem};
use super::reply::{self, Asker};
use super::resume::{LogPoint, NOW, ResumedTask};
use super::wire::{StreamData, StreamedEvent, TaskAnswer, TaskStatus, TealAgentsPartialResponse};
use crate::http::{INVALID, Pass, Problem, Stay};

/// How often a comment shows that the stream is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A task from there on.
pub(super) async fn stream(asker: Asker, pass: Pass, resumed: ResumedTask) -> Result<Response, Problem> {
    let (speaker, since) = asker.speaker(resumed.task, resumed.since).await?;
    let from = if since == NOW { Seq(0) } else { since };
    let resumed = ResumedTask { since: LogPoint::Event(since), ..resumed };
    let streaming = TealStream {
        follower: asker.app.engine.reads().follow_live(resumed.task, from),
        stopping: asker.app.stopping.clone(),
        stay: Stay::new(&asker.app, pass, asker.who.clone(), resumed.task),
        asker,
        resumed,
        speaker,
        reply: Reply::default(),
        ready: VecDeque::new(),
        waits_below: false,
        is_over: false,
        showing: None,
    };
    let events = futures_util::stream::unfold(streaming, |mut streaming| async move {
        let event = streaming.next().await?;
        Some((Ok::<Event, Infallible>(event), streaming))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

struct TealStream {
    asker: Asker,
    stay: Stay,
    resumed: ResumedTask,
    /// Who speaks, with nothing said.
    speaker: TealAgentsPartialResponse,
    follower: Follower,
    stopping: watch::Receiver<bool>,
    reply: Reply,
    ready: VecDeque<Event>,
    /// Whether sub-runs are at work: what happens there wakes nobody here.
    waits_below: bool,
    is_over: bool,
    /// What the last event shows: it was written when more is asked for.
    showing: Option<ShownHolds>,
}

/// Why a stream wakes.
enum StreamWake {
    News(Result<Vec<News>, EngineError>),
    /// Nothing, and a sub-run may have moved.
    Nothing,
    /// That the reader may hear nothing any more.
    ShutOut(&'static str),
}

/// The reply that is being told.
#[derive(Debug, Default)]
struct Reply {
    turn: u32,
    /// What of it was told.
    told: String,
    /// The number of the next piece; after a gap none is sent until the whole reply is there.
    next: u32,
}

impl Reply {
    /// What a piece adds to what was told.
    fn heard(&mut self, delta: &Delta) -> Option<String> {
        if delta.turn != self.turn || delta.no == 1 {
            // A new turn, or a new try at this one: what was sent of an older attempt cannot be taken back.
            if delta.turn == self.turn && !self.told.is_empty() {
                self.next = u32::MAX;
                return None;
            }
            *self = Reply { turn: delta.turn, told: String::new(), next: 1 };
        }
        if delta.no != self.next {
            return None;
        }
        self.next = self.next.saturating_add(1);
        self.told.push_str(&delta.text);
        Some(delta.text.clone())
    }

    /// What of the whole reply was not told yet.
    fn whole(&mut self, text: &str) -> Option<String> {
        let told = std::mem::take(&mut self.told);
        *self = Reply { turn: self.turn + 1, told: String::new(), next: 1 };
        text.strip_prefix(told.as_str()).filter(|rest| !rest.is_empty()).map(str::to_owned)
    }
}

impl TealStream {
    async fn next(&mut self) -> Option<Event> {
        while self.ready.is_empty() && !self.is_over {
            let (clock, poll) = (self.asker.app.engine.clock(), self.asker.app.engine.fixed().poll);
            let heard = tokio::select! {
                read = self.follower.news() => StreamWake::News(read),
                () = clock.sleep(poll), if self.waits_below => StreamWake::Nothing,
                () = self.stay.is_over() => StreamWake::ShutOut(INVALID),
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
            };
            let is_news = matches!(heard, StreamWake::News(Ok(_)) | StreamWake::Nothing);
            let why = if is_news { self.stay.is_shut_out().await } else { None };
            let heard = why.map_or(heard, StreamWake::ShutOut);
            let taken = match heard {
                StreamWake::News(Ok(news)) => self.take(news).await,
                StreamWake::News(Err(error)) => Err(problem(&error)),
                StreamWake::Nothing => self.end_if_settled().await,
                StreamWake::ShutOut(why) => Err(shut_out(why)),
            };
            if let Err(failure) = taken {
                self.fail(&failure);
            }
        }
        let next = self.ready.pop_front();
        // With the last event, not after it: who has read that may already decide (see `http/written_answers.rs`).
        if let Some(showing) = self.showing.take_if(|_| self.is_over && self.ready.is_empty()) {
            self.asker.app.engine.shown().note_written(&self.asker.who, &[showing], None);
        }
        next
    }

    async fn take(&mut self, news: Vec<News>) -> Result<(), Problem> {
        let mut has_events = false;
        for one in news {
            match one {
                News::Delta(delta) => {
                    let piece = self.reply.heard(&delta);
                    self.say(piece);
                }
                News::Event(envelope) => {
                    has_events = true;
                    let rest = self.rest(&envelope);
                    self.say(rest);
                }
            }
        }
        if has_events { self.end_if_settled().await } else { Ok(()) }
    }

    fn rest(&mut self, envelope: &Envelope) -> Option<String> {
        let CoreEvent::ModelReplied(replied) = &envelope.event else { return None };
        let text = replied.reply.text.as_ref().and_then(|text| text.inline()).unwrap_or_default();
        self.reply.whole(text)
    }

    fn say(&mut self, piece: Option<String>) {
        let Some(output_partial) = piece.filter(|piece| !piece.is_empty()) else { return };
        let partial = TealAgentsPartialResponse { output_partial, ..self.speaker.clone() };
        self.ready.push_back(named("partial-response", &StreamData::Partial(partial)));
    }

    /// The answer, if there is one by now. Looks at the row first: nobody's log is read for nothing.
    async fn end_if_settled(&mut self) -> Result<(), Problem> {
        let engine = &self.asker.app.engine;
        let found = engine.reads().snapshot(&self.asker.who, self.resumed.task).await;
        let found = found.map_err(|error| problem(&error))?;
        let run = found.run();
        self.waits_below = run.state.holds.iter().any(|hold| hold.child.is_some());
        if run.outcome().is_none() && !run.is_held() {
            return Ok(());
        }
        let reply::Reply { answer, showing } =
            self.asker.look(self.resumed.task, self.resumed.since, Some(&found)).await?;
        let name = match &answer {
            TaskAnswer::State(state) if state.status == TaskStatus::Running => return Ok(()),
            TaskAnswer::State(_) => "state-response",
            TaskAnswer::Output(_) => "final-response",
            TaskAnswer::Hitl(_) => "hitl-response",
            TaskAnswer::Auth(_) => "auth-response",
        };
        (self.is_over, self.showing) = (true, showing);
        self.ready.push_back(named(name, &StreamData::Answered(answer)));
        Ok(())
    }

    fn fail(&mut self, failure: &Problem) {
        self.is_over = true;
        self.ready.push_back(named("error", &StreamData::Error(body(failure))));
    }
}

/// The reader's key was revoked, or their token has run out.
fn shut_out(why: &'static str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "Authentication required", why)
}

fn named(event: &'static str, value: &StreamData) -> Event {
    let StreamedEvent { event, data } =
        StreamedEvent { event, data: serde_json::to_string(value).unwrap_or_default() };
    Event::default().event(event).data(data)
}

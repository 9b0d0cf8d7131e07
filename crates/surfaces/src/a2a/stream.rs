//! What goes on with a task, as frames: the task first, then each change.
//!
//! A frame's id is the sequence of the append that it tells of, so `Last-Event-ID` is a cursor: a client that comes back,
//! to any server, after any restart, gets the task as it was there and then exactly the rest. What a sub-run asks is
//! sent without an id, because it stands in another log; so are the tokens that the model is streaming (`live.rs`), because it
//! stands in none. Known errors come before the first frame.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use standfast_core::event::{Envelope, Event as CoreEvent};
use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, MessageId, RunId, Seq};
use standfast_core::run::Run;
use standfast_engine::{EngineError, Follower, IdempotencyKey, ShownHolds, Step};
use tokio::sync::watch;

use super::error::{A2aError, Kind};
use super::live::{Live, Piece};
use super::map::{self, TaskIds};
use super::operations::{HISTORY, OperationContext};
use super::progress::{Change, Progress, StatusText};
use super::wire::{
    Artifact, Message, Part, StreamResponse, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus,
    TaskStatusUpdateEvent,
};
use crate::http::{INVALID, Stay, rfc3339};

/// How often a comment shows that the stream is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Where a stream begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamStart {
    /// With the task as its first append left it.
    Beginning,
    /// With the task as it is.
    Now,
    /// Behind what a client got last.
    After {
        /// The append.
        seq: Seq,
        /// How many frames of it, where it is not all of them.
        frames: Option<usize>,
    },
}

/// When a stream closes by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// When a person is needed, or the task has ended.
    AtAQuestion,
    /// When the task has ended.
    AtTheEnd,
}

/// One event of a stream.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) id: Option<String>,
    pub(super) body: Result<StreamResponse, A2aError>,
}

/// A stream of frames.
pub(super) struct Frames {
    asked: OperationContext,
    progress: Progress,
    below: Vec<(HoldId, HoldKind)>,
    follower: Follower,
    live: Live,
    stay: Stay,
    stopping: watch::Receiver<bool>,
    closes: StreamEnd,
    ready: VecDeque<ReadyFrame>,
    is_over: bool,
    /// The message that the stream answers, until what it leads to was written.
    answers: Option<(RunId, IdempotencyKey)>,
}

/// A frame with what it shows.
struct ReadyFrame {
    frame: Frame,
    shows: Option<ShownHolds>,
}

impl std::convert::From<Frame> for ReadyFrame {
    fn from(frame: Frame) -> ReadyFrame {
        ReadyFrame { frame, shows: None }
    }
}

/// Why a stream wakes.
enum StreamWake {
    Steps(Result<Vec<Step>, EngineError>),
    /// Nothing, and a sub-run may have moved.
    Nothing,
    /// That the reader may hear nothing any more.
    ShutOut(&'static str),
}

impl StreamStart {
    /// The id of a frame, as clients send it back.
    pub(super) fn parse(id: &str) -> Result<StreamStart, A2aError> {
        let read = || {
            let (seq, frames) = match id.split_once('.') {
                Some((seq, frames)) => (seq, Some(frames.parse().ok()?)),
                None => (id, None),
            };
            Some(StreamStart::After { seq: Seq(seq.parse().ok()?), frames })
        };
        read().ok_or_else(|| A2aError::invalid("Last-Event-ID", "was not issued by this server"))
    }

    /// Whether an append with this last event was before it; the first one always is.
    fn covers(self, index: usize, last: Seq) -> bool {
        match self {
            StreamStart::Now => true,
            StreamStart::Beginning => index == 0,
            StreamStart::After { seq, frames: None } => index == 0 || last <= seq,
            StreamStart::After { seq, frames: Some(_) } => index == 0 || last < seq,
        }
    }
}

impl Frames {
    /// Follows a task from there on.
    pub(super) async fn open(
        asked: &OperationContext,
        run: RunId,
        from: StreamStart,
        closes: StreamEnd,
    ) -> Result<Frames, A2aError> {
        let about = |error| A2aError::of(Some(run), &error);
        let engine = &asked.app.engine;
        // Listens before it reads, so that no words fall between the two.
        let mut follower = engine.reads().follow_live(run, Seq(0));
        let appends = engine.reads().appends(run, Seq(0)).await.map_err(about)?;
        let last = appends.last().and_then(|events| events.last()).map_or(Seq(0), |event| event.seq);
        follower.skip_to(last);
        let mut frames = Frames {
            asked: asked.clone(),
            progress: Progress::of(run),
            below: Vec::new(),
            follower,
            live: Live::default(),
            stay: Stay::new(&asked.app, asked.pass.clone(), asked.who.clone(), run),
            stopping: asked.app.stopping.clone(),
            closes,
            ready: VecDeque::new(),
            is_over: false,
            answers: asked.shows.take_answered(),
        };
        let (mut before, mut rest) = (Vec::new(), Vec::new());
        for (index, append) in appends.into_iter().enumerate() {
            let last = append.last().map_or(Seq(0), |event| event.seq);
            if from.covers(index, last) && rest.is_empty() { before.push(append) } else { rest.push(append) }
        }
        for append in before {
            frames.progress.take(append, &[]);
        }
        if rest.is_empty() {
            frames.look_below().await?;
        }
        let is_over = |progress: &Progress| progress.run().is_none_or(|run| run.outcome().is_some());
        if rest.is_empty() && is_over(&frames.progress) && closes == StreamEnd::AtTheEnd {
            let message = format!("task {run} has ended; get the task instead of subscribing");
            return Err(A2aError::new(Kind::UnsupportedOperation, message));
        }
        frames.show_task().await?;
        if let StreamStart::After { frames: Some(got), .. } = from
            && !rest.is_empty()
        {
            let shown = frames.ready.len();
            frames.tell(rest.remove(0)).await?;
            drop(frames.ready.drain(shown..(shown + got).min(frames.ready.len())));
        }
        frames.tell_all(rest).await?;
        Ok(frames)
    }

    /// Says in the first frame why nothing was decided.
    pub(super) fn add_notice(&mut self, notice: &str) {
        if let Some(ReadyFrame { frame: Frame { body: Ok(StreamResponse::Task(task)), .. }, .. }) =
            self.ready.front_mut()
        {
            map::add_notice(task, notice);
        }
    }

    /// The state of the task in the first frame, and the holds that the frame shows.
    pub(super) fn first(&self) -> Option<(TaskState, Vec<HoldId>)> {
        let ReadyFrame { frame: Frame { body: Ok(StreamResponse::Task(task)), .. }, shows } =
            self.ready.front()?
        else {
            return None;
        };
        let holds = shows.iter().flat_map(|shows| shows.holds.iter().map(|hold| hold.id));
        Some((task.status.state, holds.collect()))
    }

    /// Notes what a frame shows in the moment in which it is handed over: over HTTP/2 another task may have sent it before
    /// the next one is asked for, and who has read it may already decide (see `http/written_answers.rs`).
    fn note_written(&mut self, showing: ShownHolds) {
        let answers = self.answers.take();
        let answered = answers.as_ref().map(|(run, once)| (*run, once));
        self.asked.app.engine.shown().note_written(&self.asked.who, &[showing], answered);
    }

    /// Notes that the stream was written to its end.
    fn note_end(&mut self) {
        if let Some((run, once)) = self.answers.take().filter(|_| self.is_over) {
            self.asked.app.engine.shown().note_written(&self.asked.who, &[], Some((run, &once)));
        }
    }

    /// The next frame that the client accepts anything of; none when the stream closes.
    pub(super) async fn next(&mut self) -> Option<Frame> {
        loop {
            let Some(ReadyFrame { frame: Frame { id, body }, shows }) = self.whole().await else {
                self.note_end();
                return None;
            };
            let body = body.map(|event| self.asked.accepts.tailored(event)).transpose();
            if let Some(body) = body {
                if let Some(showing) = shows.filter(|shows| !shows.holds.is_empty()) {
                    self.note_written(showing);
                }
                return Some(Frame { id, body });
            }
        }
    }

    async fn whole(&mut self) -> Option<ReadyFrame> {
        while self.ready.is_empty() && !self.is_over {
            let has_children =
                |run: &standfast_core::run::Run| run.state.holds.iter().any(|hold| hold.child.is_some());
            let looks_below = self.progress.run().is_some_and(has_children);
            let (clock, poll) = (self.asked.app.engine.clock(), self.asked.app.engine.fixed().poll);
            let heard = tokio::select! {
                read = self.follower.steps() => StreamWake::Steps(read),
                () = clock.sleep(poll), if looks_below => StreamWake::Nothing,
                () = self.stay.is_over() => StreamWake::ShutOut(INVALID),
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
            };
            let is_news = matches!(heard, StreamWake::Steps(Ok(_)) | StreamWake::Nothing);
            let why = if is_news { self.stay.is_shut_out().await } else { None };
            let heard = why.map_or(heard, StreamWake::ShutOut);
            let told = match heard {
                StreamWake::Steps(Ok(steps)) => self.take(steps).await,
                StreamWake::Steps(Err(error)) => Err(A2aError::of(None, &error)),
                StreamWake::Nothing => self.tell_below().await,
                StreamWake::ShutOut(why) => Err(shut_out(why)),
            };
            if let Err(error) = told {
                // Without an id, so that coming back goes on in the same place.
                self.is_over = true;
                self.ready.push_back(Frame { id: None, body: Err(error) }.into());
            }
        }
        self.ready.pop_front()
    }

    /// What happened, in order; what was said in one go is sent in one.
    async fn take(&mut self, steps: Vec<Step>) -> Result<(), A2aError> {
        let (mut piece, mut has_appends) = (None, false);
        for step in steps {
            match step {
                Step::Delta(delta) => {
                    let turn = self.progress.run().map_or(0, |run| run.state.turn);
                    if let Some(next) = self.live.hear(delta, turn) {
                        piece = Some(Piece::and(piece, next));
                    }
                }
                Step::Append(append) => {
                    has_appends = true;
                    self.say(piece.take());
                    self.tell(append).await?;
                }
            }
        }
        self.say(piece);
        if has_appends { self.tell_below().await } else { Ok(()) }
    }

    /// Words that are being said. Without an id: nobody can come back to them.
    fn say(&mut self, piece: Option<Piece>) {
        let (Some(Piece { text, append }), Some(run)) = (piece, self.progress.run()) else { return };
        let chunk = if append { Chunk::Follows } else { Chunk::Begins };
        let body = made(run, map::words(&text), chunk);
        self.ready.push_back(Frame { id: None, body: Ok(body) }.into());
    }

    /// The words of a reply that is not the answer are none of the result.
    fn take_back(&mut self) {
        self.say(Some(Piece { text: String::new(), append: false }));
    }

    async fn tell_all(&mut self, appends: Vec<Vec<Envelope>>) -> Result<(), A2aError> {
        for append in appends {
            self.tell(append).await?;
        }
        self.tell_below().await
    }

    async fn tell(&mut self, append: Vec<Envelope>) -> Result<(), A2aError> {
        if self.is_over {
            return Ok(());
        }
        // What the log says is the same for every reader; what sub-runs ask is sent behind it.
        self.below.clear();
        let had_words = ends_a_reply(&append) && self.live.end();
        let change = self.progress.take(append, &[]);
        let is_answered = change.as_ref().is_some_and(|change| answer(change).is_some());
        if had_words && !is_answered {
            self.take_back();
        }
        match change {
            Some(change) => self.show(change, true).await,
            None => Ok(()),
        }
    }

    async fn tell_below(&mut self) -> Result<(), A2aError> {
        if self.is_over {
            return Ok(());
        }
        self.look_below().await?;
        let below: Vec<HoldKind> = self.below.iter().map(|(_, kind)| *kind).collect();
        match self.progress.look(&below) {
            Some(change) => self.show(change, false).await,
            None => Ok(()),
        }
    }

    /// Finds out what sub-runs wait for.
    async fn look_below(&mut self) -> Result<(), A2aError> {
        let Some(run) = self.progress.run() else { return Ok(()) };
        let id = run.facts.id;
        if run.state.holds.iter().any(|hold| hold.child.is_some()) {
            let view = self.asked.app.engine.reads().run(&self.asked.who, id).await;
            self.below = view.map_err(|error| A2aError::of(Some(id), &error))?.holds_below;
        } else {
            self.below.clear();
        }
        Ok(())
    }

    /// The task as it is here.
    async fn show_task(&mut self) -> Result<(), A2aError> {
        let Some(run) = self.progress.run() else { return Err(A2aError::task_not_found()) };
        let (asked, shows) = self.asked.shown(run, &self.below).await?;
        let below: Vec<HoldKind> = self.below.iter().map(|(_, kind)| *kind).collect();
        let question = map::prompt(TaskIds::of(run), &asked);
        let mut task: Task = map::task(run, &below, self.progress.events(), question);
        map::shorten(&mut task, HISTORY);
        let (state, id) = (task.status.state, run.state.seq.to_string());
        let frame = Frame { id: Some(id), body: Ok(StreamResponse::Task(Box::new(task))) };
        self.ready.push_back(ReadyFrame { frame, shows: Some(shows) });
        self.close_at(state);
        // What was shown needs no telling.
        let _ = self.progress.look(&below);
        Ok(())
    }

    async fn show(&mut self, change: Change, is_in_the_log: bool) -> Result<(), A2aError> {
        let Some(run) = self.progress.run() else { return Ok(()) };
        let (question, mut shows) = match change.says {
            StatusText::Question => {
                let (asked, shows) = self.asked.shown(run, &self.below).await?;
                (map::prompt(TaskIds::of(run), &asked), Some(shows))
            }
            StatusText::Nothing | StatusText::Message(_) => (None, None),
        };
        let (state, seq) = (change.state, change.seq);
        let bodies = updates(run, change, question);
        let count = bodies.len();
        for (index, body) in bodies.into_iter().enumerate() {
            let id = if index + 1 == count { seq.to_string() } else { format!("{seq}.{}", index + 1) };
            let shows = shows.take_if(|_| index + 1 == count);
            self.ready.push_back(ReadyFrame {
                frame: Frame { id: is_in_the_log.then_some(id), body: Ok(body) },
                shows,
            });
        }
        self.close_at(state);
        Ok(())
    }

    fn close_at(&mut self, state: TaskState) {
        let at_a_question = self.closes == StreamEnd::AtAQuestion && state == TaskState::InputRequired;
        self.is_over = self.is_over || state.is_terminal() || at_a_question;
    }
}

/// Whether what a model was saying has ended: it is in the log, or will never be.
fn ends_a_reply(append: &[Envelope]) -> bool {
    let ends = |event: &CoreEvent| {
        matches!(event, CoreEvent::ModelReplied(_) | CoreEvent::ModelFailed(_) | CoreEvent::RunEnded(_))
    };
    append.iter().any(|envelope| ends(&envelope.event))
}

/// What a task that completed made.
fn answer(change: &Change) -> Option<Artifact> {
    match (change.state, &change.says) {
        (TaskState::Completed, StatusText::Message(words)) => Some(map::artifact(words)),
        (_, _) => None,
    }
}

/// An artifact as an event of the stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chunk {
    /// Its beginning, in place of whatever was sent of it.
    Begins,
    /// More, behind what was sent of it.
    Follows,
    /// All of it, in place of whatever was sent of it.
    Whole,
}

fn made(run: &Run, artifact: Artifact, chunk: Chunk) -> StreamResponse {
    StreamResponse::ArtifactUpdate(Box::new(TaskArtifactUpdateEvent {
        task_id: run.facts.id.to_string(),
        context_id: run.facts.session.to_string(),
        artifact,
        append: chunk == Chunk::Follows,
        last_chunk: chunk == Chunk::Whole,
    }))
}

/// What a reader hears last whose key was revoked, or whose token has run out.
fn shut_out(why: &'static str) -> A2aError {
    A2aError::new(Kind::Unauthenticated, why)
}

/// What a change is sent as: what the task made, then where it stands.
pub(super) fn updates(run: &Run, change: Change, question: Option<Message>) -> Vec<StreamResponse> {
    let answer = answer(&change);
    let said = match change.says {
        StatusText::Nothing => None,
        StatusText::Message(message) => Some(*message),
        StatusText::Question => question,
    };
    let message = beside(run, change.seq, said, change.denials);
    let (task_id, context_id) = (run.facts.id.to_string(), run.facts.session.to_string());
    let (message, timestamp) = (message.and_then(map::spoken), rfc3339(run.state.at));
    let status = TaskStatus { state: change.state, message, timestamp };
    let update = TaskStatusUpdateEvent { task_id, context_id, status };
    let answer = answer.map(|artifact| made(run, artifact, Chunk::Whole));
    answer.into_iter().chain([StreamResponse::StatusUpdate(Box::new(update))]).collect()
}

/// What is said, and behind it what did not go on; that alone where nothing else is said.
fn beside(run: &Run, seq: Seq, said: Option<Message>, denials: Vec<Part>) -> Option<Message> {
    if denials.is_empty() {
        return said;
    }
    let id = MessageId { run: run.facts.id, seq };
    let message = said.unwrap_or_else(|| TaskIds::of(run).agent(id, Vec::new()));
    Some(Message { parts: message.parts.into_iter().chain(denials).collect(), ..message })
}

/// Frames as server-sent events; `write` says what a frame looks like in its binding.
pub(super) fn events(frames: Frames, write: impl Fn(&Frame) -> String + Send + 'static) -> Response {
    named_events(frames, move |frame| Some((None, write(frame))))
}

/// The same where events have names, and where not every frame is one.
pub(super) fn named_events(
    frames: Frames,
    write: impl Fn(&Frame) -> Option<(Option<&'static str>, String)> + Send + 'static,
) -> Response {
    let events = futures_util::stream::unfold((frames, write), |(mut frames, write)| async move {
        let (frame, name, data) = loop {
            let frame = frames.next().await?;
            if let Some((name, data)) = write(&frame) {
                break (frame, name, data);
            }
        };
        // The name first: some readers take a frame line by line (S3-25).
        let mut event = match name.or(frame.body.is_err().then_some("error")) {
            Some(name) => Event::default().event(name),
            None => Event::default(),
        }
        .data(data);
        if let Some(id) = frame.id {
            event = event.id(id);
        }
        Some((Ok::<Event, Infallible>(event), (frames, write)))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// A stream of one event.
pub(super) fn once(name: Option<&'static str>, data: String) -> Response {
    let event = match name {
        Some(name) => Event::default().event(name),
        None => Event::default(),
    }
    .data(data);
    Sse::new(futures_util::stream::iter([Ok::<Event, Infallible>(event)])).into_response()
}

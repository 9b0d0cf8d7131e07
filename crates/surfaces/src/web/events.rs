//! What tells an open page that something changed: server-sent events without contents.
//!
//! `?run=` follows one run by its sequence, which `Last-Event-ID` repeats, so that a page that comes back misses nothing;
//! `?lists=true` says that something changed that the caller may see, and always once at the start, because a list has no
//! sequence (nor has a page that does not say where it stands). What is new, the page asks for by its own address: rights are checked there as for every page, and here before
//! each news. Words of a model that is just speaking come as they are, without an id. The API's own stream, with contents,
//! is `api/events.rs`.

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use standfast_core::id::{RunId, Seq};
use standfast_engine::auth::Principal;
use standfast_engine::{Follower, News};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use crate::html::Failure;
use crate::http::{App, Args, INVALID, Pass, Stay};

/// How often a page hears that its stream is alive: it then also shows how long ago things were.
const ALIVE: Duration = Duration::from_secs(20);
/// How often a comment keeps connections open that end when nothing is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// When a browser comes back after the stream was cut.
const COME_BACK: Duration = Duration::from_secs(2);
/// What changes within this is one piece of news: lists are read once for all of it.
const GATHER: Duration = Duration::from_millis(150);
/// Changes of others that are looked at, at most, before the next news.
const LOOKED_AT_MAX: usize = 200;

/// What a page follows.
#[derive(Debug, Deserialize)]
pub(super) struct FollowArgs {
    run: Option<String>,
    after: Option<u64>,
    #[serde(default)]
    lists: bool,
}

/// Something changed. What, the page asks for itself.
#[derive(Debug, Serialize)]
struct Change<'a> {
    run: Option<&'a str>,
}

/// Tokens that a model is streaming.
#[derive(Debug, Serialize)]
struct TokenDelta {
    turn: u32,
    no: u32,
    text: String,
}

pub(super) async fn events(
    State(app): State<App>,
    Extension(who): Extension<Principal>,
    Extension(pass): Extension<Pass>,
    headers: HeaderMap,
    Args(wanted): Args<FollowArgs>,
) -> Result<Response, Failure> {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(|id| id.parse().ok());
    let run = wanted.run.as_deref().map(|run| run.parse::<RunId>().map_err(|_| Failure::not_found()));
    let run = run.transpose()?;
    let after = last.or(wanted.after);
    let (stay, follower) = match run {
        Some(run) => {
            let now = app.engine.reads().see(&who, run).await?.state.seq;
            let follower = app.engine.reads().follow_live(run, after.map_or(now, Seq));
            (Stay::new(&app, pass, who, run), Some((run, follower)))
        }
        None => (Stay::for_lists(&app, pass, who), None),
    };
    let mut alive = tokio::time::interval(ALIVE);
    alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    alive.reset();
    let reader = PageReader {
        stay,
        follower,
        changes: wanted.lists.then(|| {
            let receiver = app.engine.reads().changes();
            Changes { receiver, gathered: None, is_behind: false }
        }),
        alive,
        stopping: app.stopping.clone(),
        ready: VecDeque::new(),
        is_over: false,
    };
    // Headers alone may be kept back by what stands in between: something is said at once.
    let is_behind = wanted.lists || after.is_none();
    let hello =
        Event::default().retry(COME_BACK).event(if is_behind { "changed" } else { "hello" }).data("{}");
    let first = futures_util::stream::once(async move { Ok::<Event, Infallible>(hello) });
    let rest = futures_util::stream::unfold(reader, |mut reader| async move {
        let event = reader.next().await?;
        Some((Ok(event), reader))
    });
    let stream = futures_util::StreamExt::chain(first, rest);
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

struct PageReader {
    stay: Stay,
    follower: Option<(RunId, Follower)>,
    changes: Option<Changes>,
    alive: Interval,
    stopping: watch::Receiver<bool>,
    ready: VecDeque<Event>,
    is_over: bool,
}

/// What woke a reader.
enum Wake {
    /// Its run.
    Run(Result<Vec<News>, ()>),
    /// Runs that changed; none when too many did to know which.
    Lists(Option<BTreeSet<RunId>>),
    /// Nothing happened for a while.
    Alive,
    /// Whoever listens would not be let in any more.
    ShutOut,
    /// The server stops.
    Stop,
}

impl PageReader {
    async fn next(&mut self) -> Option<Event> {
        while self.ready.is_empty() && !self.is_over {
            match self.woken().await {
                Wake::Stop => return None,
                Wake::ShutOut => return Some(self.shut_out(INVALID)),
                Wake::Alive => return Some(Event::default().event("alive").data("{}")),
                Wake::Run(Err(())) => return None,
                Wake::Run(Ok(news)) => {
                    if let Some(why) = self.stay.is_shut_out().await {
                        return Some(self.shut_out(why));
                    }
                    self.tell(news);
                }
                Wake::Lists(runs) => {
                    if let Some(why) = self.stay.is_shut_out().await {
                        return Some(self.shut_out(why));
                    }
                    if self.concerns(runs).await {
                        return Some(changed(None));
                    }
                }
            }
        }
        self.ready.pop_front()
    }

    async fn woken(&mut self) -> Wake {
        let PageReader { stay, follower, changes, alive, stopping, .. } = self;
        tokio::select! {
            news = news(follower) => Wake::Run(news),
            runs = gathered(changes) => Wake::Lists(runs),
            _ = alive.tick() => Wake::Alive,
            () = stay.is_over() => Wake::ShutOut,
            _ = stopping.wait_for(|stopping| *stopping) => Wake::Stop,
        }
    }

    /// The events of a run are one piece of news, whose id is the last of them; words are sent one by one.
    fn tell(&mut self, news: Vec<News>) {
        let run = self.follower.as_ref().map(|(run, _)| run.to_string());
        let mut last = None;
        for one in news {
            match one {
                News::Event(envelope) => last = Some(envelope.seq),
                News::Delta(delta) => {
                    let words = TokenDelta { turn: delta.turn, no: delta.no, text: delta.text };
                    self.ready
                        .push_back(Event::default().event("words").json_data(&words).unwrap_or_default());
                }
            }
        }
        if let Some(seq) = last {
            self.ready.push_back(changed(run.as_deref()).id(seq.to_string()));
        }
    }

    /// Whether any of the runs is one that the caller may see.
    async fn concerns(&self, runs: Option<BTreeSet<RunId>>) -> bool {
        let Some(runs) = runs else { return true };
        for run in runs {
            if self.stay.may_see(run).await {
                return true;
            }
        }
        false
    }

    /// The last event of somebody who may not see more; the page then asks for itself, and gets the reason.
    fn shut_out(&mut self, why: &'static str) -> Event {
        self.is_over = true;
        Event::default().event("gone").data(why)
    }
}

fn changed(run: Option<&str>) -> Event {
    Event::default().event("changed").json_data(Change { run }).unwrap_or_default()
}

async fn news(follower: &mut Option<(RunId, Follower)>) -> Result<Vec<News>, ()> {
    match follower {
        // The page comes back and asks again; what is wrong is in the log and on the page.
        Some((_, follower)) => follower.news().await.map(|news| news.into_iter().collect()).map_err(|_| ()),
        None => std::future::pending().await,
    }
}

/// Changes of runs, as they come.
struct Changes {
    receiver: Receiver<RunId>,
    /// Those that were not sent yet, and until when they are gathered. Kept here, so that whoever breaks off waiting loses
    /// none.
    gathered: Option<(Instant, BTreeSet<RunId>)>,
    /// Too many came to know which.
    is_behind: bool,
}

impl Changes {
    /// Runs that changed, once the first of them did; none when it is not known which.
    async fn next(&mut self) -> Option<BTreeSet<RunId>> {
        loop {
            let until = self.gathered.as_ref().map(|(until, _)| *until);
            let received = match until {
                None => self.receiver.recv().await,
                Some(until) if self.is_behind || Instant::now() >= until => break,
                Some(until) => tokio::select! {
                    received = self.receiver.recv() => received,
                    () = tokio::time::sleep_until(until) => break,
                },
            };
            let (_, runs) = self.gathered.get_or_insert_with(|| (Instant::now() + GATHER, BTreeSet::new()));
            match received {
                Ok(run) => drop(runs.insert(run)),
                Err(RecvError::Lagged(_)) => self.is_behind = true,
                Err(RecvError::Closed) => return std::future::pending().await,
            }
            self.is_behind |= runs.len() > LOOKED_AT_MAX;
        }
        let runs = self.gathered.take().map(|(_, runs)| runs);
        if std::mem::take(&mut self.is_behind) { None } else { runs }
    }
}

async fn gathered(changes: &mut Option<Changes>) -> Option<BTreeSet<RunId>> {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use standfast_core::id::StorageKind;
    use standfast_core::name::Tenant;
    use standfast_core::time::Timestamp;
    use tokio::sync::broadcast;

    use super::*;

    fn run(no: u8) -> RunId {
        RunId::new(&Tenant::default_tenant(), StorageKind::Durable, Timestamp(0), [no; 5])
    }

    fn changes(room: usize) -> (broadcast::Sender<RunId>, Changes) {
        let (sender, receiver) = broadcast::channel(room);
        (sender, Changes { receiver, gathered: None, is_behind: false })
    }

    #[tokio::test(start_paused = true)]
    async fn what_changes_together_is_told_once_also_when_the_wait_was_broken_off() {
        let (sender, mut changes) = changes(16);
        sender.send(run(1)).unwrap();
        let broken_off = tokio::time::timeout(GATHER / 2, changes.next()).await;
        assert!(broken_off.is_err());
        sender.send(run(2)).unwrap();
        assert_eq!(changes.next().await, Some(BTreeSet::from([run(1), run(2)])));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_falls_behind_is_told_that_something_changed() {
        let (sender, mut changes) = changes(1);
        for no in 1..4 {
            sender.send(run(no)).unwrap();
        }
        assert_eq!(changes.next().await, None);
        assert_eq!(changes.next().await, Some(BTreeSet::from([run(3)])), "what was still there");
        sender.send(run(9)).unwrap();
        assert!(changes.next().await.is_some_and(|runs| runs.contains(&run(9))));
    }
}

//! Calls as they change, as a stream of server-sent events: each event is a tool part.
//!
//! It begins with the calls that wait, tells each change at least once, and goes on until the reader goes or the server
//! stops. What happens on this node is heard at once, what happens on others is looked for. The id of an event is the
//! instant up to which everything was told: a reader that was away comes back with it and hears what was settled since,
//! some of it perhaps again.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use standfast_core::id::{HoldId, RunId, Seq};
use standfast_core::job::JobProgress;
use standfast_core::name::SessionId;
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::auth::Principal;
use standfast_engine::{EngineError, JobList, JobView};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior};

use super::map;
use crate::http::{App, Pass};

/// How often a comment shows that the stream is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How often it is looked for what happened elsewhere, and whether the reader may still hear it.
const LOOK: Duration = Duration::from_secs(2);

/// How much earlier than where a reader was is looked: appends are sent in the order in which they are written, which need
/// not be that of their instants.
const OVERLAP: Millis = Millis::seconds(60);

/// Calls that are followed at most.
const FOLLOWED_MAX: usize = 1000;

/// What a reader wants to hear.
pub(super) struct StreamStart {
    /// Of one conversation only.
    pub(super) session: Option<SessionId>,
    /// Where it was when it went away.
    pub(super) from: Option<Timestamp>,
}

/// The calls that wait, and everything that happens to calls from now on, or from where the reader was.
pub(super) fn stream(app: &App, who: Principal, pass: Pass, wanted: StreamStart) -> Response {
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let reading = EventReader {
        changes: app.engine.reads().changes(),
        stopping: app.stopping.clone(),
        app: app.clone(),
        who,
        pass,
        session: wanted.session,
        look,
        cursor: wanted.from.unwrap_or_else(|| app.engine.clock().now()),
        looked_at: None,
        missed: wanted.from,
        told: BTreeMap::new(),
        ready: VecDeque::new(),
    };
    let events = futures_util::stream::unfold(reading, |mut reading| async move {
        let event = reading.next().await?;
        Some((Ok::<Event, Infallible>(event), reading))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

struct EventReader {
    app: App,
    who: Principal,
    pass: Pass,
    session: Option<SessionId>,
    changes: Receiver<RunId>,
    stopping: watch::Receiver<bool>,
    look: Interval,
    /// Up to when everything was told.
    cursor: Timestamp,
    /// Up to when everything will have been told once what is ready is.
    looked_at: Option<Timestamp>,
    /// From when on changes may have been missed.
    missed: Option<Timestamp>,
    /// How far each call has been sent, by its text, and whether it had ended by then.
    told: BTreeMap<String, (HoldId, Seq, bool)>,
    ready: VecDeque<JobView>,
}

impl EventReader {
    async fn next(&mut self) -> Option<Event> {
        while self.ready.is_empty() {
            let heard = tokio::select! {
                heard = self.changes.recv() => Some(heard),
                _ = self.look.tick() => None,
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
            };
            let looked = match heard {
                Some(Ok(run)) => self.look_at(run).await,
                Some(Err(RecvError::Lagged(_))) => {
                    self.missed = self.missed.or(Some(self.cursor));
                    self.look_at_all().await
                }
                Some(Err(RecvError::Closed)) => return None,
                None => {
                    if self.pass.renew(&self.app, &mut self.who).await {
                        self.look_at_all().await
                    } else {
                        // The key was revoked, or the token has run out.
                        return None;
                    }
                }
            };
            if let Err(error) = looked {
                tracing::debug!(%error, "async-tool: could not read calls");
            }
        }
        let view = self.ready.pop_front()?;
        if self.ready.is_empty()
            && let Some(looked_at) = self.looked_at.take()
        {
            self.cursor = looked_at.max(self.cursor);
        }
        let event = Event::default().event("message.part.updated").id(self.cursor.0.to_string());
        Some(event.json_data(map::part(&view)).unwrap_or_default())
    }

    /// A run changed here.
    async fn look_at(&mut self, run: RunId) -> Result<(), EngineError> {
        let views = match self.app.engine.jobs().run_jobs(&self.who, run).await {
            Ok(views) => views,
            Err(EngineError::NotFound) => return Ok(()),
            Err(error) => return Err(error),
        };
        views.into_iter().for_each(|view| self.take(view));
        Ok(())
    }

    /// What is pending, and what waited when it was last looked at.
    async fn look_at_all(&mut self) -> Result<(), EngineError> {
        let began = self.app.engine.clock().now();
        if let Some(from) = self.missed {
            self.look_at_settled(Timestamp(from.0.saturating_sub(OVERLAP.0))).await?;
            self.missed = None;
        }
        let list = JobList { session: self.session.clone(), limit: FOLLOWED_MAX, ..JobList::default() };
        for view in self.app.engine.jobs().list(&self.who, list).await?.items {
            self.take(view);
        }
        let open = self.told.values().filter(|(_, _, over)| !over);
        let known: Vec<HoldId> = open.map(|(id, _, _)| *id).collect();
        for id in known {
            match self.app.engine.jobs().job(&self.who, id).await {
                Ok(view) => self.take(view),
                Err(EngineError::NotFound) => drop(self.told.remove(&id.to_string())),
                Err(error) => return Err(error),
            }
        }
        self.looked_at = Some(began);
        if self.ready.is_empty() {
            self.cursor = began.max(self.cursor);
        }
        Ok(())
    }

    /// What was settled since an instant.
    async fn look_at_settled(&mut self, since: Timestamp) -> Result<(), EngineError> {
        let mut list = JobList {
            session: self.session.clone(),
            over: true,
            since: Some(since),
            limit: FOLLOWED_MAX,
            ..JobList::default()
        };
        loop {
            let page = self.app.engine.jobs().list(&self.who, list.clone()).await?;
            for view in page.items {
                if matches!(view.job.stands, JobProgress::Over { at, .. } if at >= since) {
                    self.take(view);
                }
            }
            list.cursor = page.next;
            if list.cursor.is_none() {
                return Ok(());
            }
        }
    }

    /// Tells a call, unless it was told as it is.
    fn take(&mut self, view: JobView) {
        if self.session.as_ref().is_some_and(|session| *session != view.run.session) {
            return;
        }
        let (id, at) = (view.id(), view.job.at);
        let text = id.to_string();
        if self.told.get(&text).is_some_and(|(_, told, _)| *told >= at) {
            return;
        }
        // What has ended is remembered too, for as long as there is room: its run may change again.
        if self.told.len() >= FOLLOWED_MAX * 4 {
            self.told.pop_first();
        }
        self.told.insert(text, (id, at, !view.job.is_open()));
        self.ready.push_back(view);
    }
}

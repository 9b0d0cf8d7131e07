//! What came of a task: waiting for it, and reading the answer from its log.
//!
//! The answer to a request is what the log says at the first point behind it where somebody is needed or the task is
//! over. So a repeat answers the same, whatever has happened since (C30).

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use standfast_core::apply;
use standfast_core::event::Envelope;
use standfast_core::hold::HoldKind;
use standfast_core::id::{RunId, Seq};
use standfast_core::run::{Run, Status, WaitKind, status};
use standfast_core::time::Millis;
use standfast_engine::auth::Principal;
use standfast_engine::{EngineError, LookedUpRun, ShownHolds, Snapshot};

use super::error::problem;
use super::map::{self, TaskLog};
use super::resume::LogPoint;
use super::wire::{AgentTask, TaskAnswer, TaskStatus, TealAgentsPartialResponse};
use crate::http::{App, Problem, rfc3339, when_written};

/// Who asks, and by which address.
#[derive(Clone)]
pub(super) struct Asker {
    pub(super) app: App,
    pub(super) who: Principal,
    pub(super) site: String,
}

/// An answer, and what of the open holds it shows.
pub(super) struct Reply {
    pub(super) answer: TaskAnswer,
    pub(super) showing: Option<ShownHolds>,
}

impl Asker {
    /// The answer as soon as somebody is needed or the task has ended; as it is when that takes too long.
    pub(super) async fn answer(
        &self,
        task: RunId,
        since: LogPoint,
        wait: Option<Millis>,
    ) -> Result<Reply, Problem> {
        let reads = self.app.engine.reads();
        let longest = self.app.engine.settings().max_wait;
        let at_most = wait.map_or(longest, |wait| wait.min(longest));
        let found =
            reads.needs_somebody(&self.who, task, None, at_most).await.map_err(|error| problem(&error))?;
        let found = match found {
            LookedUpRun::Run(snapshot) => Some(snapshot),
            LookedUpRun::Quarantined(_) => None,
        };
        self.look(task, since, found.as_deref()).await
    }

    /// The answer now, with what was read of the task if it was.
    pub(super) async fn look(
        &self,
        task: RunId,
        since: LogPoint,
        found: Option<&Snapshot>,
    ) -> Result<Reply, Problem> {
        let engine = &self.app.engine;
        let appends = match found {
            Some(found) => found.appends().await.map_err(EngineError::from),
            None => engine.reads().appends(task, Seq(0)).await,
        };
        let appends = appends.map_err(|error| problem(&error))?;
        let since = match since {
            LogPoint::Event(seq) => seq,
            LogPoint::Now | LogPoint::Invoked | LogPoint::Decided(_) => since.seq(&appends.concat()),
        };
        let settled = map::settled(task, &appends, since);
        let log: Vec<Envelope> = appends.into_iter().take(settled.unwrap_or(usize::MAX)).flatten().collect();
        let run = apply::fold(task, &log).ok_or_else(Problem::not_found)?;
        let told = TaskLog { run: &run, log: &log };
        let below = if asks(&run) { None } else { self.below(task, found).await? };
        let waiting = match &below {
            Some((run, log)) => TaskLog { run, log },
            None => told,
        };
        let answer = map::answer(told, Some(waiting), &self.site).map_err(failed)?;
        let showing = match &answer {
            TaskAnswer::Hitl(_) | TaskAnswer::Auth(_) => Some(ShownHolds::of(waiting.run, map::is_asked)),
            TaskAnswer::Output(_) | TaskAnswer::State(_) => None,
        };
        Ok(Reply { answer, showing })
    }

    /// The sub-run that somebody is needed for, with its log.
    async fn below(
        &self,
        task: RunId,
        found: Option<&Snapshot>,
    ) -> Result<Option<(Run, Vec<Envelope>)>, Problem> {
        let engine = &self.app.engine;
        let below = match found {
            Some(found) => engine.reads().holds_below(found.run()).await,
            None => engine.reads().run(&self.who, task).await.map(|view| view.holds_below),
        };
        for (hold, _) in
            below.map_err(|error| problem(&error))?.iter().filter(|(_, kind)| map::is_asked(*kind))
        {
            let log = engine.reads().events(hold.run, Seq(0)).await.map_err(|error| problem(&error))?;
            if let Some(run) = apply::fold(hold.run, &log).filter(asks) {
                return Ok(Some((run, log)));
            }
        }
        Ok(None)
    }

    /// The task that a run works for: itself, or the run above it, as far as the caller may see.
    pub(super) async fn root(&self, run: &Run) -> RunId {
        let (mut root, mut above) = (run.facts.id, run.facts.parent);
        while let Some(parent) = above {
            let Ok(found) = self.app.engine.reads().see(&self.who, parent.run).await else { break };
            (root, above) = (found.facts.id, found.facts.parent);
        }
        root
    }

    /// Who speaks on a stream of a task, with nothing said yet, and the event behind which the stream begins.
    pub(super) async fn speaker(
        &self,
        task: RunId,
        since: LogPoint,
    ) -> Result<(TealAgentsPartialResponse, Seq), Problem> {
        let snapshot = self.app.engine.reads().snapshot(&self.who, task).await;
        let snapshot = snapshot.map_err(|error| problem(&error))?;
        let (run, log) = (snapshot.run(), snapshot.log().await.map_err(|error| problem(&error.into()))?);
        let speaker = TealAgentsPartialResponse {
            session_id: run.facts.session.to_string(),
            task_id: task.to_string(),
            request_id: TaskLog { run, log }.request_id(),
            output_partial: String::new(),
            source: run.facts.agent.to_string(),
        };
        Ok((speaker, since.seq(log)))
    }

    /// A task, also one whose rows cannot be read, if the caller may see it.
    pub(super) async fn look_up(&self, task: RunId) -> Result<LookedUpRun, Problem> {
        self.app.engine.reads().look_up(&self.who, task).await.map_err(|error| problem(&error))
    }

    /// The task with its trail, and what of its own open holds that shows.
    pub(super) async fn task(&self, found: LookedUpRun) -> Result<(AgentTask, Option<ShownHolds>), Problem> {
        let engine = &self.app.engine;
        let snapshot = match found.whole().await {
            LookedUpRun::Run(snapshot) => snapshot,
            LookedUpRun::Quarantined(found) => {
                let facts = found.facts.as_ref().ok_or_else(Problem::not_found)?;
                let failed = AgentTask {
                    session_id: facts.session.to_string(),
                    task_id: found.run.to_string(),
                    user_id: facts.owner.to_string(),
                    items: Vec::new(),
                    created_at: rfc3339(facts.started_at),
                    last_updated: rfc3339(facts.started_at),
                    status: TaskStatus::Failed,
                };
                return Ok((failed, None));
            }
        };
        let log = snapshot.log().await.map_err(|error| problem(&error.into()))?;
        let run = snapshot.run();
        let below = engine.reads().holds_below(run).await.map_err(|error| problem(&error))?;
        let below: Vec<HoldKind> = below.iter().map(|(_, kind)| *kind).collect();
        let showing = ShownHolds::of(run, map::is_asked);
        Ok((map::task(TaskLog { run, log }, &below), Some(showing)))
    }

    /// An answer that shows this, noted once it is written (C26).
    pub(super) fn shows(&self, response: impl IntoResponse, showing: Option<ShownHolds>) -> Response {
        let (engine, who) = (self.app.engine.clone(), self.who.clone());
        match showing.filter(|showing| !showing.holds.is_empty()) {
            Some(showing) => when_written(response.into_response(), move || {
                engine.shown().note_written(&who, &[showing], None);
            }),
            None => response.into_response(),
        }
    }
}

fn asks(run: &Run) -> bool {
    match status(run) {
        Status::Held(WaitKind::Person | WaitKind::Auth) => true,
        Status::Held(WaitKind::External)
        | Status::Queued
        | Status::Claimed
        | Status::Working
        | Status::Retrying(_)
        | Status::Ended(_) => false,
    }
}

/// A task that failed has no output: the client gets an error as for any other failure here.
fn failed(detail: String) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", "The task failed", detail)
}

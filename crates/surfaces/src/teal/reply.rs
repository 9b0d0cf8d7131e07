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
use standfast_core::run::{Run, Status, Waiting, status};
use standfast_engine::auth::Principal;
use standfast_engine::{Seen, Showing};

use super::error::problem;
use super::map::{self, Told};
use super::wire::{AgentTask, Answered, TaskStatus, TealAgentsPartialResponse};
use crate::http::{App, Problem, rfc3339, when_written};

/// Behind everything: the answer is what is true now.
pub(super) const NOW: Seq = Seq(u64::MAX);

/// Who asks, and by which address.
#[derive(Clone)]
pub(super) struct Asker {
    pub(super) app: App,
    pub(super) who: Principal,
    pub(super) site: String,
}

/// An answer, and what of the open holds it shows.
pub(super) struct Reply {
    pub(super) answer: Answered,
    pub(super) showing: Option<Showing>,
}

impl Asker {
    /// The answer as soon as somebody is needed or the task is over; as it is when that takes too long.
    pub(super) async fn answer(&self, task: RunId, since: Seq) -> Result<Reply, Problem> {
        let engine = &self.app.engine;
        let at_most = engine.settings().max_wait;
        engine.needs_somebody(task, at_most).await.map_err(|error| problem(&error))?;
        self.look(task, since).await
    }

    /// The answer now.
    pub(super) async fn look(&self, task: RunId, since: Seq) -> Result<Reply, Problem> {
        let engine = &self.app.engine;
        let appends = engine.appends(task, Seq(0)).await.map_err(|error| problem(&error))?;
        let settled = map::settled(task, &appends, since);
        let log: Vec<Envelope> = appends.into_iter().take(settled.unwrap_or(usize::MAX)).flatten().collect();
        let run = apply::fold(task, &log).ok_or_else(Problem::not_found)?;
        let told = Told { run: &run, log: &log };
        let below = match asks(&run) {
            true => None,
            false => self.below(task).await?,
        };
        let waiting = match &below {
            Some((run, log)) => Told { run, log },
            None => told,
        };
        let answer = map::answer(told, Some(waiting), &self.site).map_err(failed)?;
        let showing = match &answer {
            Answered::Hitl(_) | Answered::Auth(_) => Some(Showing::of(waiting.run, map::is_asked)),
            Answered::Output(_) | Answered::State(_) => None,
        };
        Ok(Reply { answer, showing })
    }

    /// The sub-run that somebody is needed for, with its log.
    async fn below(&self, task: RunId) -> Result<Option<(Run, Vec<Envelope>)>, Problem> {
        let engine = &self.app.engine;
        let view = engine.run(&self.who, task).await.map_err(|error| problem(&error))?;
        for (hold, _) in view.holds_below.iter().filter(|(_, kind)| map::is_asked(*kind)) {
            let log = engine.events(hold.run, Seq(0)).await.map_err(|error| problem(&error))?;
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
            let Ok(found) = self.app.engine.see(&self.who, parent.run).await else { break };
            (root, above) = (found.facts.id, found.facts.parent);
        }
        root
    }

    /// Who speaks on a stream of a task, with nothing said yet.
    pub(super) async fn speaker(&self, task: RunId) -> Result<TealAgentsPartialResponse, Problem> {
        let log = self.app.engine.log(&self.who, task, Seq(0)).await.map_err(|error| problem(&error))?;
        let run = apply::fold(task, &log).ok_or_else(Problem::not_found)?;
        Ok(TealAgentsPartialResponse {
            session_id: run.facts.session.to_string(),
            task_id: task.to_string(),
            request_id: Told { run: &run, log: &log }.request_id(),
            output_partial: String::new(),
            source: run.facts.agent.to_string(),
        })
    }

    /// The task with its trail, and what of its own open holds that shows.
    pub(super) async fn task(&self, task: RunId) -> Result<(AgentTask, Option<Showing>), Problem> {
        let engine = &self.app.engine;
        let view = match engine.look_up(&self.who, task).await.map_err(|error| problem(&error))? {
            Seen::Run(view) => view,
            Seen::Quarantined(found) => {
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
        let log = engine.log(&self.who, task, Seq(0)).await.map_err(|error| problem(&error))?;
        // What is shown belongs together: where the log has gone on meanwhile, it counts.
        let run = apply::fold(task, &log).unwrap_or(view.run);
        let below: Vec<HoldKind> = view.holds_below.iter().map(|(_, kind)| *kind).collect();
        let showing = Showing::of(&run, map::is_asked);
        Ok((map::task(Told { run: &run, log: &log }, &below), Some(showing)))
    }

    /// An answer that shows this, noted once it is written (C26).
    pub(super) fn shows(&self, response: impl IntoResponse, showing: Option<Showing>) -> Response {
        let (engine, who) = (self.app.engine.clone(), self.who.clone());
        match showing.filter(|showing| !showing.holds.is_empty()) {
            Some(showing) => when_written(response.into_response(), move || {
                engine.note_written(&who, &[showing], None);
            }),
            None => response.into_response(),
        }
    }
}

fn asks(run: &Run) -> bool {
    match status(run) {
        Status::Held(Waiting::Person | Waiting::Auth) => true,
        Status::Held(Waiting::External)
        | Status::Queued
        | Status::Claimed
        | Status::Working
        | Status::Retrying(_)
        | Status::Ended(_) => false,
    }
}

/// A task that failed has no output: the client is told as of any other failure here.
fn failed(detail: String) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", "The task failed", detail)
}

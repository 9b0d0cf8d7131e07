//! Tasks as answers: what they show of an open question is noted once the answer was completely written (C26, C36).
//!
//! So that a `resume` without `holdId` answers what its sender saw. What counts is the engine's.

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use standfast_engine::auth::Principal;
use standfast_engine::{Engine, Page, ShownHold, ShownHolds, TaskView};

use super::{map, wire};
use crate::http::{App, when_written};

/// A body with what it shows to whom.
pub(super) struct ShownBody<T> {
    pub(super) body: T,
    engine: Engine,
    who: Principal,
    showings: Vec<ShownHolds>,
}

impl ShownBody<wire::Task> {
    pub(super) fn task(app: &App, who: &Principal, task: &TaskView) -> ShownBody<wire::Task> {
        ShownBody::new(app, who, map::task(task), std::slice::from_ref(task))
    }

    /// One that cannot be read asks nothing.
    pub(super) fn failed(app: &App, who: &Principal, task: wire::Task) -> ShownBody<wire::Task> {
        ShownBody::new(app, who, task, &[])
    }
}

impl ShownBody<wire::Tasks> {
    pub(super) fn tasks(app: &App, who: &Principal, page: &Page<TaskView>) -> ShownBody<wire::Tasks> {
        ShownBody::new(app, who, map::tasks(page), &page.items)
    }
}

impl<T> ShownBody<T> {
    fn new(app: &App, who: &Principal, body: T, tasks: &[TaskView]) -> ShownBody<T> {
        let showings = tasks.iter().map(showing).filter(|showing| !showing.holds.is_empty()).collect();
        ShownBody { body, engine: app.engine.clone(), who: who.clone(), showings }
    }
}

/// A task shows the first of its questions.
fn showing(task: &TaskView) -> ShownHolds {
    ShownHolds {
        run: task.run.facts.id,
        holds: task.waits_for.first().map(ShownHold::from).into_iter().collect(),
    }
}

impl<T: Serialize> IntoResponse for ShownBody<T> {
    fn into_response(self) -> Response {
        let ShownBody { body, engine, who, showings } = self;
        let response = Json(body).into_response();
        if showings.is_empty() {
            response
        } else {
            when_written(response, move || engine.shown().note_written(&who, &showings, None))
        }
    }
}

//! What an answer shows of a task, and which message it answers: noted once the answer was completely written (C26).
//!
//! A slip that travels with a request: operations write on it, and whoever hands the answer to the connection has it noted.
//! Streams note by themselves, event by event. What counts is the engine's.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::Extensions;
use axum::response::Response;
use standfast_core::id::{HoldId, RunId};
use standfast_engine::auth::Principal;
use standfast_engine::{IdempotencyKey, ShownHolds};

use crate::http::{App, when_written};

/// What the answer to a request shows.
#[derive(Debug, Clone, Default)]
pub(super) struct AnswerSlip(Arc<Mutex<Slip>>);

#[derive(Debug, Default)]
struct Slip {
    showings: Vec<ShownHolds>,
    /// A message without an id: sent again before its answer was written, it is the same one.
    answers: Option<(RunId, IdempotencyKey)>,
}

impl AnswerSlip {
    /// Puts a slip beside a request.
    pub(super) fn put(extensions: &mut Extensions) -> AnswerSlip {
        let shows = AnswerSlip::default();
        extensions.insert(shows.clone());
        shows
    }

    /// The slip beside a request.
    pub(super) fn of(extensions: &Extensions) -> AnswerSlip {
        extensions.get::<AnswerSlip>().cloned().unwrap_or_default()
    }

    fn slip(&self) -> MutexGuard<'_, Slip> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer shows these holds.
    pub(super) fn show(&self, showing: ShownHolds) {
        if !showing.holds.is_empty() {
            self.slip().showings.push(showing);
        }
    }

    /// The answer shows that a task has ended: what was shown of it before is asked no more.
    pub(super) fn show_end(&self, run: RunId) {
        self.slip().showings.push(ShownHolds { run, holds: Vec::new() });
    }

    /// The holds of a task that the answer shows.
    pub(super) fn holds(&self, run: RunId) -> Vec<HoldId> {
        let slip = self.slip();
        let of_task = slip.showings.iter().filter(|showing| showing.run == run);
        of_task.flat_map(|showing| showing.holds.iter().map(|hold| hold.id)).collect()
    }

    /// It is the answer to this message.
    pub(super) fn answer(&self, run: RunId, message: IdempotencyKey) {
        self.slip().answers = Some((run, message));
    }

    /// The message that is answered, for a stream, which notes by itself.
    pub(super) fn take_answered(&self) -> Option<(RunId, IdempotencyKey)> {
        self.slip().answers.take()
    }

    /// Has all of it noted when the answer was written.
    pub(super) fn noted(self, app: &App, who: Option<Principal>, response: Response) -> Response {
        let Slip { showings, answers } = std::mem::take(&mut *self.slip());
        let Some(who) = who.filter(|_| response.status().is_success()) else { return response };
        if showings.is_empty() && answers.is_none() {
            return response;
        }
        let engine = app.engine.clone();
        when_written(response, move || {
            engine.shown().note_written(&who, &showings, answers.as_ref().map(|(run, once)| (*run, once)));
        })
    }
}

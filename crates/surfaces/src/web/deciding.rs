//! Deciding a hold as a posted form says, for every page that has such a form.
//!
//! What a form means is `forms.rs`, whether it counts the engine's to say. A no comes back with the place in the answer that
//! it is about, so that a page can show it there.

use axum::http::StatusCode;
use standfast_core::id::HoldId;
use standfast_engine::auth::Principal;
use standfast_engine::{EngineError, HoldView, RestTicket, Snapshot};

use super::forms::{self, Mistake};
use super::routes::SETTLE;
use crate::html::{Failure, PostedForm};
use crate::http::App;

/// Why a decision did not count.
pub(super) struct Objection {
    pub(super) failure: Failure,
    /// JSON pointer to what is wrong in the answer.
    pub(super) pointer: Option<String>,
}

impl Objection {
    /// The form says nothing that could be decided.
    fn of(Mistake(text): Mistake) -> Objection {
        let failure = Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid input", &text);
        Objection { failure, pointer: None }
    }
}

/// Waits a moment until a decided run rests. One that is driven elsewhere goes on when whoever drives it looks again, which nobody
/// waits for here.
pub(super) async fn settled(
    app: &App,
    who: &Principal,
    snapshot: &Snapshot,
    rest: Option<RestTicket>,
) -> Result<(), EngineError> {
    if !snapshot.run().facts.driver.is_elsewhere() {
        app.engine.reads().settled(who, snapshot.id(), rest, SETTLE).await?;
    }
    Ok(())
}

/// Decides; comes back when the run rests, or after a moment.
pub(super) async fn decide(
    app: &App,
    who: &Principal,
    hold: HoldId,
    posted: &PostedForm,
) -> Result<Result<(), Objection>, Failure> {
    let snapshot = app.engine.reads().snapshot(who, hold.run).await?;
    let view = app.engine.reads().hold_view(who, &snapshot, hold).await?;
    decide_on(app, who, (&snapshot, &view), posted).await
}

/// The same, on what the caller has read of the run and of its hold.
pub(super) async fn decide_on(
    app: &App,
    who: &Principal,
    (snapshot, view): (&Snapshot, &HoldView),
    posted: &PostedForm,
) -> Result<Result<(), Objection>, Failure> {
    let decision = match forms::decision(view, posted) {
        Ok(decision) => decision,
        Err(mistake) => return Ok(Err(Objection::of(mistake))),
    };
    match app.engine.submit().decide_on(who, decision.into(), snapshot).await {
        Ok(accepted) => {
            settled(app, who, snapshot, accepted.rest).await?;
            Ok(Ok(()))
        }
        Err(EngineError::NotFound) => Err(Failure::not_found()),
        Err(error) => {
            let pointer = match &error {
                EngineError::BreaksSchema(broken) => Some(broken.pointer.clone()),
                EngineError::Refused(_)
                | EngineError::Store(_)
                | EngineError::NoSuchAgent { .. }
                | EngineError::KeyReused { .. }
                | EngineError::SessionClosed { .. }
                | EngineError::MissingScope(_)
                | EngineError::StaleSignIn { .. }
                | EngineError::NotFound => None,
            };
            Ok(Err(Objection { failure: error.into(), pointer }))
        }
    }
}

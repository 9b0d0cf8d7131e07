//! The handlers of conversations: list, show, metadata, what is pending in them and its way back, delete.
//!
//! The name of a conversation may be that of several agents; `?agent=` says which. Of several users', the caller's own is
//! meant; `?owner=` names another's.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::{Extension, Json};
use standfast_core::execution_state::ExecutionState;
use standfast_core::name::{AgentName, SessionId, UserId};
use standfast_engine::{ExportedData, RestoreError, RestoredState, SessionError, SessionList, SessionName};

use super::routes::{ApiResult, CallerOf, DefaultAnswers, PAGE, PAGE_MAX, bad_name, placed};
use super::{map, wire};
use crate::http::{App, Args, JsonBody, Problem, ProblemDetails, Segment, refusal};

/// The execution state of a run as somebody sends it: kept as bytes, so that values in it keep their text.
type SentState = Box<serde_json::value::RawValue>;

/// Lists sessions, newest first.
#[utoipa::path(
    get, path = "/sessions", tag = "sessions", params(wire::SessionsArgs),
    responses((status = 200, body = wire::Sessions), DefaultAnswers)
)]
pub(super) async fn sessions(
    State(app): State<App>,
    Extension(who): CallerOf,
    Args(args): Args<wire::SessionsArgs>,
) -> ApiResult<Json<wire::Sessions>> {
    let list = SessionList {
        agent: args.agent.map(AgentName::new).transpose().map_err(bad_name)?,
        cursor: args.cursor,
        limit: args.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX),
    };
    let page =
        app.engine.sessions().list(&who, list).await.map_err(|error| refusal::problem(None, &error))?;
    let sessions = page.items.iter().map(map::session).collect();
    Ok(Json(wire::Sessions { sessions, next_cursor: page.next.map(|next| next.to_string()) }))
}

/// A session; its metadata have the runs that wait under `pending_executions`.
#[utoipa::path(
    get, path = "/sessions/{session}", tag = "sessions",
    params(("session" = String, Path, description = "The session's name"), wire::SessionArgs),
    responses((status = 200, body = wire::SessionBody), DefaultAnswers)
)]
pub(super) async fn session(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(session): Segment,
    Args(args): Args<wire::SessionArgs>,
) -> ApiResult<Json<wire::SessionBody>> {
    let name = name(session, args.agent, args.owner)?;
    let view = app.engine.sessions().session(&who, &name).await.map_err(|error| session_problem(&error))?;
    Ok(Json(map::session_view(&view)))
}

/// Merges into a session's metadata; a null takes a key away.
#[utoipa::path(
    patch, path = "/sessions/{session}", tag = "sessions",
    params(("session" = String, Path, description = "The session's name"), wire::SessionArgs),
    request_body = wire::ChangeSession,
    responses((status = 200, body = wire::SessionBody), DefaultAnswers)
)]
pub(super) async fn change_session(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(session): Segment,
    Args(args): Args<wire::SessionArgs>,
    JsonBody(body): JsonBody<wire::ChangeSession>,
) -> ApiResult<Json<wire::SessionBody>> {
    let name = name(session, args.agent, args.owner)?;
    let changed = app.engine.sessions().merge_metadata(&who, &name, &body.metadata).await;
    changed.map_err(|error| session_problem(&error))?;
    let view = app.engine.sessions().session(&who, &name).await.map_err(|error| session_problem(&error))?;
    Ok(Json(map::session_view(&view)))
}

/// Deletes a session: its runs are stopped and their contents erased; the hashes stay.
#[utoipa::path(
    delete, path = "/sessions/{session}", tag = "sessions",
    params(("session" = String, Path, description = "The session's name"), wire::DeleteSessionArgs),
    responses((status = 200, body = wire::DeletedSession), DefaultAnswers)
)]
pub(super) async fn delete_session(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(session): Segment,
    Args(args): Args<wire::DeleteSessionArgs>,
) -> ApiResult<Json<wire::DeletedSession>> {
    let name = name(session, args.agent, args.owner)?;
    let deleted = app.engine.submit().delete_session(&who, &name, args.force.unwrap_or(false)).await;
    Ok(Json(map::deleted(&deleted.map_err(|error| session_problem(&error))?)))
}

/// The execution state of one run of a session that waits.
#[utoipa::path(
    get, path = "/sessions/{session}/pending_executions/{run}", tag = "sessions",
    params(
        ("session" = String, Path, description = "The session's name"),
        ("run" = String, Path, description = "The run's id"),
        wire::SessionArgs
    ),
    responses((status = 200, body = serde_json::Value), DefaultAnswers)
)]
pub(super) async fn pending(
    State(app): State<App>,
    Extension(who): CallerOf,
    Path((session, run)): Path<(String, String)>,
    Args(args): Args<wire::SessionArgs>,
) -> ApiResult<Json<wire::ExecutionBody>> {
    let name = name(session, args.agent, args.owner)?;
    let state =
        app.engine.sessions().pending(&who, &name, &run).await.map_err(|error| session_problem(&error))?;
    let recorded = app.engine.record_export(&who, ExportedData::ExecutionState, 1).await;
    recorded.map_err(|error| refusal::problem(None, &error))?;
    Ok(Json(wire::ExecutionBody(state)))
}

/// Restores a run from its execution state, as the same address showed it, here or on another server. Each call that was
/// open is held for a person. For administrators; sending it again changes nothing.
#[utoipa::path(
    put, path = "/sessions/{session}/pending_executions/{run}", tag = "sessions",
    params(
        ("session" = String, Path, description = "The session's name"),
        ("run" = String, Path, description = "The run's id"),
        wire::RestoreArgs
    ),
    request_body = serde_json::Value,
    responses(
        (status = 201, body = wire::RunBody),
        (status = 200, description = "There is a run with this state already", body = wire::RunBody),
        DefaultAnswers
    )
)]
pub(super) async fn restore(
    State(app): State<App>,
    Extension(who): CallerOf,
    Path((session, run)): Path<(String, String)>,
    Args(args): Args<wire::RestoreArgs>,
    JsonBody(body): JsonBody<SentState>,
) -> ApiResult<Response> {
    let state = ExecutionState::from_json(body.get().as_bytes())
        .map_err(|error| restore_problem(&RestoreError::State(error)))?;
    if state.task_id.to_string() != run || state.context_id.as_str() != session {
        return Err(Problem::invalid("the address names another run or session than the execution state"));
    }
    let owner = args.owner.map(UserId::new).transpose().map_err(bad_name)?;
    let restored = app.engine.submit().restore(&who, &state, owner).await;
    let (status, id) = match restored.map_err(|error| restore_problem(&error))? {
        RestoredState::Restored(id) => (StatusCode::CREATED, id),
        RestoredState::AlreadyThere(id) => (StatusCode::OK, id),
    };
    let reads = app.engine.reads();
    let view = match reads.snapshot(&who, id).await {
        Ok(snapshot) => reads.run_view(&snapshot).await,
        Err(error) => Err(error),
    };
    let view = view.map_err(|error| refusal::problem(Some(id), &error))?;
    Ok(placed(status, id, view))
}

/// The engine's no to a state that somebody sent.
fn restore_problem(error: &RestoreError) -> Problem {
    let (invalid, conflict) = (StatusCode::UNPROCESSABLE_ENTITY, StatusCode::CONFLICT);
    let (status, kind, title) = match error {
        RestoreError::Engine(error) => return refusal::problem(None, error),
        RestoreError::State(_) | RestoreError::Misplaced { .. } => {
            (invalid, "bad-execution-state", "No run can be made of this execution state")
        }
        RestoreError::Exists(_) => (conflict, "run-exists", "The run exists"),
    };
    Problem::new(status, kind, title, error.to_string())
}

/// What is not a name at all is answered like the name of nothing.
fn name(session: String, agent: Option<String>, owner: Option<String>) -> ApiResult<SessionName> {
    let session = SessionId::new(session).map_err(|_| Problem::not_found())?;
    let owner = owner.map(UserId::new).transpose().map_err(bad_name)?;
    Ok(SessionName { session, agent: agent.map(AgentName::new).transpose().map_err(bad_name)?, owner })
}

/// The engine's no to a request about a conversation.
fn session_problem(error: &SessionError) -> Problem {
    let (conflict, invalid) = (StatusCode::CONFLICT, StatusCode::UNPROCESSABLE_ENTITY);
    let (status, kind, title) = match error {
        SessionError::Engine(error) => return refusal::problem(None, error),
        SessionError::Ambiguous { .. } => {
            (conflict, "ambiguous-session", "Ambiguous session: several agents")
        }
        SessionError::AmbiguousOwner { .. } => {
            (conflict, "ambiguous-session", "Ambiguous session: several owners")
        }
        SessionError::Metadata(_) => (invalid, "invalid", "Invalid request"),
        SessionError::NotYours(_) => (StatusCode::FORBIDDEN, "not-allowed", "Not your session"),
        SessionError::CallStarted { .. } => (conflict, "call-started", "A call has started"),
        SessionError::BadMetadata(_) => {
            (StatusCode::INTERNAL_SERVER_ERROR, "bad-metadata", "The session's metadata cannot be read")
        }
        SessionError::NoState(_) => (StatusCode::NOT_FOUND, "no-execution-state", "No execution state"),
    };
    let problem = Problem::new(status, kind, title, error.to_string());
    match error {
        SessionError::Ambiguous { agents } => {
            let agents = agents.iter().map(ToString::to_string).collect();
            problem.with(ProblemDetails { agents, ..ProblemDetails::default() })
        }
        SessionError::Engine(_)
        | SessionError::AmbiguousOwner { .. }
        | SessionError::Metadata(_)
        | SessionError::NotYours(_)
        | SessionError::CallStarted { .. }
        | SessionError::BadMetadata(_)
        | SessionError::NoState(_) => problem,
    }
}

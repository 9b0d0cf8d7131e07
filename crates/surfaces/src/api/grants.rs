//! Standing approvals: the rule before it is saved, the list, one of them, and its end. And the receipts of calls, where the
//! use of one stands.
//!
//! Bodies, their maps and the handlers. The approval that saves one is a decision (`routes.rs`); what one covers is the policy's.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use standfast_core::id::CallNo;
use standfast_core::name::GrantId;
use standfast_engine::{
    ArgumentPath, Freedom, GrantError, GrantProposal, GrantReach, GrantRefusal, GrantRequest, GrantState,
    GrantView,
};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::people::instant;
use super::routes::{ApiResult, CallerOf, DefaultAnswers, about, hold_id, run_id};
use super::{map, wire};
use crate::http::{App, Problem, Repeatable, Segment, refusal, rfc3339};
use crate::labels::grant_rule as lines;

/// What an approver wants to approve beside this call. Each bound that is left out is the policy's.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"uses": 5, "until": "2026-12-24T18:00:00Z", "like": [{"argument": "amount", "may_be": "up_to"}]}))]
pub(super) struct GrantWish {
    /// How many further calls.
    pub(super) uses: Option<u32>,
    /// Until when.
    pub(super) until: Option<String>,
    /// In what they may differ from this call. Default: in nothing.
    #[serde(default)]
    pub(super) like: Vec<FreedomBody>,
    /// Only calls of the same session.
    #[serde(default)]
    pub(super) same_session: bool,
}

/// In what a call may differ from the one that was shown.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FreedomBody {
    /// The argument: a name, or a JSON Pointer.
    pub(super) argument: String,
    pub(super) may_be: FreedomWord,
    /// Of a command: how many words at its beginning stay as they are.
    pub(super) words: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum FreedomWord {
    /// A number from zero up to the one that was shown.
    UpTo,
    /// A command that begins with the same words.
    Command,
    /// A file in the same folder.
    SameFolder,
    /// Any text.
    AnyText,
}

/// A standing approval that an approval saves: what was asked for, and the digest of the rule that was shown.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GrantToSave {
    pub(super) uses: u32,
    pub(super) until: String,
    #[serde(default)]
    pub(super) like: Vec<FreedomBody>,
    #[serde(default)]
    pub(super) same_session: bool,
    /// The digest that came with the rule. Where it would be another rule by now, nothing is decided.
    pub(super) digest: String,
}

/// The rule of a standing approval, as it would be saved.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct GrantRuleBody {
    /// The rule in words, a line for each part. What is not in it is not covered.
    pub(super) rule: Vec<String>,
    pub(super) uses: u32,
    pub(super) until: String,
    /// What the approval must repeat.
    pub(super) digest: String,
}

/// Standing approvals.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct GrantsBody {
    pub(super) grants: Vec<GrantBody>,
}

/// A standing approval.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct GrantBody {
    pub(super) id: String,
    pub(super) state: GrantWord,
    /// The rule in words.
    pub(super) rule: Vec<String>,
    pub(super) tool: String,
    pub(super) agent: String,
    /// Whose runs.
    pub(super) owner: String,
    pub(super) uses: u32,
    pub(super) used: u32,
    /// The runs that used it, the first use first.
    pub(super) used_by: Vec<String>,
    pub(super) made_at: String,
    pub(super) until: String,
    pub(super) approved_by: Vec<String>,
    /// The hold whose approval saved it.
    pub(super) hold: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) revoked_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) revoked_at: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum GrantWord {
    Live,
    UsedUp,
    Expired,
    Revoked,
    /// The tool has another schema now.
    SchemaChanged,
    /// A rule that it answers is another one now.
    RuleChanged,
}

/// The routes, each with its description.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(grant_rule))
        .routes(routes!(grants))
        .routes(routes!(grant))
        .routes(routes!(revoke))
        .routes(routes!(call_receipt))
}

/// The rule of a standing approval for calls like the held one. It saves nothing: an approval that repeats its digest does.
#[utoipa::path(
    post, path = "/holds/{hold}/grant-rule", tag = "grants",
    params(("hold" = String, Path, description = "The hold's id")),
    request_body = GrantWish,
    responses((status = 200, body = GrantRuleBody), DefaultAnswers)
)]
async fn grant_rule(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(hold): Segment,
    Repeatable { body: wish, once: _ }: Repeatable<GrantWish>,
) -> ApiResult<Json<GrantRuleBody>> {
    let hold = hold_id(&hold)?;
    let request = request(&wish)?;
    let proposed = app.engine.grants().propose(&who, hold, &request).await;
    Ok(Json(rule(&proposed.map_err(|error| no_grant(hold.run, error))?)))
}

/// Lists standing approvals of runs that you may see, also those that have ended lately.
#[utoipa::path(
    get, path = "/grants", tag = "grants", responses((status = 200, body = GrantsBody), DefaultAnswers)
)]
async fn grants(State(app): State<App>, Extension(who): CallerOf) -> ApiResult<Json<GrantsBody>> {
    let found = app.engine.grants().list(&who).await.map_err(|error| refusal::problem(None, &error))?;
    Ok(Json(GrantsBody { grants: found.iter().map(body).collect() }))
}

/// A standing approval.
#[utoipa::path(
    get, path = "/grants/{grant}", tag = "grants", params(("grant" = String, Path, description = "The grant's id")),
    responses((status = 200, body = GrantBody), DefaultAnswers)
)]
async fn grant(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(grant): Segment,
) -> ApiResult<Json<GrantBody>> {
    let found = app.engine.grants().show(&who, &grant_id(grant)?).await;
    Ok(Json(body(&found.map_err(|error| refusal::problem(None, &error))?)))
}

/// Revokes a standing approval. From then on no call starts by it; a call that has started goes on.
#[utoipa::path(
    post, path = "/grants/{grant}/revoke", tag = "grants",
    params(("grant" = String, Path, description = "The grant's id")),
    responses((status = 200, body = GrantBody), DefaultAnswers)
)]
async fn revoke(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(grant): Segment,
) -> ApiResult<Json<GrantBody>> {
    let ended = app.engine.grants().revoke(&who, &grant_id(grant)?).await;
    Ok(Json(body(&ended.map_err(|error| refusal::problem(None, &error))?)))
}

/// The receipt of a call, also of one that nobody was asked about: what was asked for, by which rule or standing approval it
/// ran, and what came of it.
#[utoipa::path(
    get, path = "/runs/{run}/calls/{call}/receipt", tag = "runs",
    params(
        ("run" = String, Path, description = "The run's id"),
        ("call" = u32, Path, description = "The number of the call in its run")
    ),
    responses((status = 200, body = wire::CallReceiptBody), DefaultAnswers)
)]
async fn call_receipt(
    State(app): State<App>,
    Extension(who): CallerOf,
    Path((run, call)): Path<(String, String)>,
) -> ApiResult<Json<wire::CallReceiptBody>> {
    let run = run_id(&run)?;
    let call: u32 = call.parse().map_err(|_| Problem::not_found())?;
    let snapshot = app.engine.reads().snapshot(&who, run).await.map_err(about(run))?;
    let receipt = snapshot.call_receipt(CallNo(call)).await.map_err(about(run))?;
    Ok(Json(map::call_receipt(run, call, &receipt)))
}

fn grant_id(text: String) -> ApiResult<GrantId> {
    GrantId::new(text).map_err(|_| Problem::not_found())
}

/// What is asked for, as the engine takes it.
pub(super) fn request(wish: &GrantWish) -> ApiResult<GrantRequest> {
    Ok(GrantRequest {
        uses: wish.uses,
        until: wish.until.as_deref().map(|text| instant("until", text)).transpose()?,
        like: wish.like.iter().map(freedom).collect::<ApiResult<_>>()?,
        reach: if wish.same_session { GrantReach::Session } else { GrantReach::Owner },
    })
}

/// The same of an approval.
pub(super) fn request_of(saved: &GrantToSave) -> ApiResult<GrantRequest> {
    let GrantToSave { uses, until, like, same_session, .. } = saved.clone();
    request(&GrantWish { uses: Some(uses), until: Some(until), like, same_session })
}

fn freedom(body: &FreedomBody) -> ApiResult<Freedom> {
    let path = ArgumentPath::parse(&body.argument)
        .map_err(|why| Problem::invalid(format!("like: {:?}: {why}", body.argument)))?;
    match (body.may_be, body.words) {
        (FreedomWord::Command, Some(words)) => Ok(Freedom::Command(path, words)),
        (FreedomWord::Command, None) => {
            Err(Problem::invalid("like: a command needs `words`: how many of them stay as they are"))
        }
        (_, Some(_)) => Err(Problem::invalid("like: only a command takes `words`")),
        (FreedomWord::UpTo, None) => Ok(Freedom::UpTo(path)),
        (FreedomWord::SameFolder, None) => Ok(Freedom::SameFolder(path)),
        (FreedomWord::AnyText, None) => Ok(Freedom::AnyText(path)),
    }
}

fn rule(proposal: &GrantProposal) -> GrantRuleBody {
    GrantRuleBody {
        rule: lines(proposal),
        uses: proposal.uses,
        until: rfc3339(proposal.until),
        digest: proposal.digest().to_string(),
    }
}

fn body(view: &GrantView) -> GrantBody {
    let of = &view.grant.proposal;
    let (state, revoked) = match &view.state {
        GrantState::Live => (GrantWord::Live, None),
        GrantState::UsedUp => (GrantWord::UsedUp, None),
        GrantState::Expired => (GrantWord::Expired, None),
        GrantState::Revoked(revoked) => (GrantWord::Revoked, revoked.as_ref()),
        GrantState::SchemaChanged => (GrantWord::SchemaChanged, None),
        GrantState::RuleChanged => (GrantWord::RuleChanged, None),
    };
    GrantBody {
        id: view.grant.id.to_string(),
        state,
        rule: lines(of),
        tool: of.tool.to_string(),
        agent: of.agent.to_string(),
        owner: of.owner.to_string(),
        uses: of.uses,
        used: view.used,
        used_by: view.used_by.iter().map(ToString::to_string).collect(),
        made_at: rfc3339(view.grant.made_at),
        until: rfc3339(of.until),
        approved_by: view.grant.approved_by.iter().map(ToString::to_string).collect(),
        hold: view.hold.to_string(),
        revoked_by: revoked.map(|revoked| revoked.by.to_string()),
        revoked_at: revoked.map(|revoked| rfc3339(revoked.at)),
    }
}

/// Why there is no standing approval, as a problem.
pub(super) fn no_grant(run: standfast_core::id::RunId, error: GrantError) -> Problem {
    let (status, kind, title) = match &error {
        GrantError::Engine(error) => return refusal::problem(Some(run), error),
        GrantError::Refused(GrantRefusal::NotAsShown) => {
            (StatusCode::CONFLICT, "grant-not-as-shown", "The rule is another one by now")
        }
        GrantError::Refused(_) | GrantError::Elsewhere | GrantError::Quorum | GrantError::TooLong => {
            (StatusCode::UNPROCESSABLE_ENTITY, "no-grant", "No standing approval for this")
        }
        GrantError::TooMany => (StatusCode::CONFLICT, "too-many-grants", "Too many standing approvals"),
        GrantError::NoKey => (StatusCode::SERVICE_UNAVAILABLE, "no-key", "No key to seal it with"),
    };
    Problem::new(status, kind, title, error.to_string())
}

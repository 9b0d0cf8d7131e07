//! What people do to a hold without deciding it: how the vote stands, who is asked, who stands in, the deadline, the arguments.
//!
//! Bodies, their maps and the handlers. Decisions are `routes.rs`; who may do what is the engine's business.

use axum::extract::State;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use standfast_core::decide::Answer;
use standfast_core::digest::Digest;
use standfast_core::hold::{Delegation, Escalation, Hold};
use standfast_core::json::RawJson;
use standfast_core::name::UserId;
use standfast_core::time::Timestamp;
use standfast_engine::auth::Principal;
use standfast_engine::{Adjustment, HoldAdjustment, IdempotencyKey};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::routes::{ApiResult, CallerOf, DefaultAnswers, about, bad_name, hold_id};
use super::{map, wire};
use crate::http::{App, Problem, Repeatable, Segment, parse_rfc3339, rfc3339};

/// How the vote on a hold stands.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(super) struct VotesBody {
    /// Who has agreed with what is shown now. An edit restarts the vote.
    pub(super) agreed: Vec<String>,
    /// How many must still agree, at least.
    pub(super) missing: u32,
}

/// Others who are, or will be, asked as well.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(super) struct EscalationBody {
    /// When.
    pub(super) at: String,
    /// Who.
    pub(super) to: Vec<String>,
    /// Whether they are asked by now.
    pub(super) done: bool,
}

/// Somebody who decides in the place of another person for a while.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(super) struct DelegationBody {
    pub(super) by: String,
    pub(super) to: String,
    pub(super) until: String,
}

/// An assignment; without `to` the hold is assigned to nobody.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"to": "bob", "until": "2026-12-24T18:00:00Z"}))]
pub(super) struct AssignHold {
    pub(super) to: Option<String>,
    /// When it ends by itself. Default: when it is ended by a request.
    pub(super) until: Option<String>,
}

/// A delegation: somebody else decides in your place until an instant.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"to": "bob", "until": "2026-12-24T18:00:00Z"}))]
pub(super) struct DelegateHold {
    pub(super) to: String,
    pub(super) until: String,
}

/// A new deadline for a hold that expired and was kept.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"expires_at": "2026-12-24T18:00:00Z"}))]
pub(super) struct ReopenHold {
    /// Default: without limit.
    pub(super) expires_at: Option<String>,
}

/// Other arguments, without deciding yet.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"arguments": {"path": "/tmp/old"}, "revision": 0}))]
pub(super) struct EditHold {
    #[schema(value_type = serde_json::Value)]
    pub(super) arguments: Box<RawValue>,
    pub(super) digest: Option<String>,
    pub(super) revision: Option<u32>,
}

/// What was shown, if it is repeated: then what changed since is not asked again by accident.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"revision": 0}))]
pub(super) struct AskHoldAgain {
    pub(super) digest: Option<String>,
    pub(super) revision: Option<u32>,
}

/// How the vote on an open hold stands.
pub(super) fn votes(hold: &Hold) -> VotesBody {
    VotesBody { agreed: texts(&hold.votes), missing: hold.votes_missing() }
}

/// Who is asked as well, and who will be.
pub(super) fn escalations(hold: &Hold) -> Vec<EscalationBody> {
    let body =
        |done| move |one: &Escalation| EscalationBody { at: rfc3339(one.at), to: texts(&one.to), done };
    hold.escalated.iter().map(body(true)).chain(hold.escalations.iter().map(body(false))).collect()
}

/// Who decides in whose place.
pub(super) fn delegations(hold: &Hold) -> Vec<DelegationBody> {
    let body = |one: &Delegation| DelegationBody {
        by: one.by.to_string(),
        to: one.to.to_string(),
        until: rfc3339(one.until),
    };
    hold.delegations.iter().map(body).collect()
}

fn texts<T: ToString>(all: &[T]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

/// What became of a change that decides nothing.
fn adjusted(answer: &Answer, hold: wire::HoldDetail) -> wire::DecisionResult {
    let result = map::resolved(answer, hold);
    let outcome = if *answer == Answer::Done { wire::OutcomeWord::Changed } else { result.outcome };
    wire::DecisionResult { outcome, ..result }
}

/// The routes, each with its description.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(assign))
        .routes(routes!(take))
        .routes(routes!(release))
        .routes(routes!(delegate))
        .routes(routes!(reopen))
        .routes(routes!(edit))
        .routes(routes!(ask_again))
}

/// Assigns a hold to a person, or to nobody. It decides nothing.
#[utoipa::path(
    post, path = "/holds/{hold}/assign", tag = "holds",
    params(
        ("hold" = String, Path, description = "The hold's id"),
        ("idempotency-key" = Option<String>, Header, description = "Idempotency key: makes a retry safe")
    ),
    request_body = AssignHold,
    responses((status = 200, body = wire::DecisionResult), DefaultAnswers)
)]
async fn assign(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(hold): Segment,
    Repeatable { body, once }: Repeatable<AssignHold>,
) -> ApiResult<Json<wire::DecisionResult>> {
    let to = body.to.map(UserId::new).transpose().map_err(bad_name)?;
    let until = body.until.as_deref().map(|text| instant("until", text)).transpose()?;
    adjust(&app, &who, &hold, Adjustment::Assign { to, until }, once).await
}

/// Assigns a hold to yourself.
#[utoipa::path(
    post, path = "/holds/{hold}/take", tag = "holds", params(("hold" = String, Path, description = "The hold's id")),
    request_body = Option<NoDetails>,
    responses((status = 200, body = wire::DecisionResult), DefaultAnswers)
)]
async fn take(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(hold): Segment,
    Repeatable { body: NoDetails {}, once }: Repeatable<NoDetails>,
) -> ApiResult<Json<wire::DecisionResult>> {
    let to = Some(who.user.clone());
    adjust(&app, &who, &hold, Adjustment::Assign { to, until: None }, once).await
}

/// Removes the assignment of a hold.
#[utoipa::path(
    post, path = "/holds/{hold}/release", tag = "holds",
    params(("hold" = String, Path, description = "The hold's id")),
    request_body = Option<NoDetails>,
    responses((status = 200, body = wire::DecisionResult), DefaultAnswers)
)]
async fn release(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(hold): Segment,
    Repeatable { body: NoDetails {}, once }: Repeatable<NoDetails>,
) -> ApiResult<Json<wire::DecisionResult>> {
    adjust(&app, &who, &hold, Adjustment::Assign { to: None, until: None }, once).await
}

/// Lets somebody else decide a hold in your place until an instant. You may still decide it; of the two of you one counts.
#[utoipa::path(
    post, path = "/holds/{hold}/delegate", tag = "holds",
    params(
        ("hold" = String, Path, description = "The hold's id"),
        ("idempotency-key" = Option<String>, Header, description = "Idempotency key: makes a retry safe")
    ),
    request_body = DelegateHold,
    responses((status = 200, body = wire::DecisionResult), DefaultAnswers)
)]
async fn delegate(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(hold): Segment,
    Repeatable { body, once }: Repeatable<DelegateHold>,
) -> ApiResult<Json<wire::DecisionResult>> {
    let to = UserId::new(body.to).map_err(bad_name)?;
    let until = instant("until", &body.until)?;
    adjust(&app, &who, &hold, Adjustment::Delegate { to, until }, once).await
}

/// Gives a hold that expired and was kept a new deadline.
#[utoipa::path(
    post, path = "/holds/{hold}/reopen", tag = "holds",
    params(
        ("hold" = String, Path, description = "The hold's id"),
        ("idempotency-key" = Option<String>, Header, description = "Idempotency key: makes a retry safe")
    ),
    request_body = Option<ReopenHold>,
    responses((status = 200, body = wire::DecisionResult), DefaultAnswers)
)]
async fn reopen(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(hold): Segment,
    Repeatable { body, once }: Repeatable<ReopenHold>,
) -> ApiResult<Json<wire::DecisionResult>> {
    let expires_at = body.expires_at.as_deref().map(|text| instant("expires_at", text)).transpose()?;
    adjust(&app, &who, &hold, Adjustment::Reopen { expires_at }, once).await
}

/// Changes the arguments of a held call without deciding it. Votes so far are void.
#[utoipa::path(
    post, path = "/holds/{hold}/edit", tag = "holds",
    params(
        ("hold" = String, Path, description = "The hold's id"),
        ("idempotency-key" = Option<String>, Header, description = "Idempotency key: makes a retry safe")
    ),
    request_body = EditHold,
    responses((status = 200, body = wire::DecisionResult), DefaultAnswers)
)]
async fn edit(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(hold): Segment,
    Repeatable { body, once }: Repeatable<EditHold>,
) -> ApiResult<Json<wire::DecisionResult>> {
    let invalid = |bad: standfast_core::json::BadJson| Problem::invalid(format!("arguments: {bad}"));
    let arguments = RawJson::parse(body.arguments.get()).map_err(invalid)?;
    let edit =
        Adjustment::Edit { arguments, digest: shown(body.digest.as_deref())?, revision: body.revision };
    adjust(&app, &who, &hold, edit, once).await
}

/// Asks about a held call again, by what is there now: the rules, the files that it names and what rules want looked up. The
/// arguments stay, votes so far are void, and a decision must repeat the new digest or revision.
#[utoipa::path(
    post, path = "/holds/{hold}/ask-again", tag = "holds",
    params(
        ("hold" = String, Path, description = "The hold's id"),
        ("idempotency-key" = Option<String>, Header, description = "Idempotency key: makes a retry safe")
    ),
    request_body = Option<AskHoldAgain>,
    responses((status = 200, body = wire::DecisionResult), DefaultAnswers)
)]
async fn ask_again(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(hold): Segment,
    Repeatable { body, once }: Repeatable<AskHoldAgain>,
) -> ApiResult<Json<wire::DecisionResult>> {
    let again = Adjustment::AskAgain { digest: shown(body.digest.as_deref())?, revision: body.revision };
    adjust(&app, &who, &hold, again, once).await
}

/// The digest that a caller repeats.
fn shown(digest: Option<&str>) -> ApiResult<Option<Digest>> {
    let no_digest = |_| Problem::invalid("invalid digest; send the digest shown with the hold");
    digest.map(str::parse).transpose().map_err(no_digest)
}

async fn adjust(
    app: &App,
    who: &Principal,
    hold: &str,
    what: Adjustment,
    once: Option<IdempotencyKey>,
) -> ApiResult<Json<wire::DecisionResult>> {
    let hold = hold_id(hold)?;
    let wanted = HoldAdjustment { hold, what, once };
    let answer = app.engine.submit().adjust(who, wanted).await.map_err(about(hold.run))?;
    let view = app.engine.reads().hold(who, hold).await.map_err(about(hold.run))?;
    Ok(Json(adjusted(&answer, map::hold_view(view))))
}

pub(super) fn instant(name: &str, text: &str) -> ApiResult<Timestamp> {
    parse_rfc3339(text).ok_or_else(|| {
        Problem::invalid(format!("{name} is not an instant in UTC; write it as 2026-12-24T18:00:00Z"))
    })
}

/// A request that has nothing to say beside its address.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoDetails {}

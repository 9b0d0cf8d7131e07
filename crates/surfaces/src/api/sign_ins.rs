//! Where the caller is signed in, and the sign-in of the command line.
//!
//! Bodies and handlers. The command line signs its user in at the identity provider itself and shows the ID token here; what it
//! gets for it is a session like a browser's, which its holder sees and ends. What one is, is the engine's business.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use standfast_engine::auth::{SessionClient, SignInError};
use standfast_engine::{CommandLineOffer, FinishedSignIn, SessionSource, SignInFailure, SignInView};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::routes::{ApiResult, CallerOf, DefaultAnswers};
use crate::http::{
    App, JsonBody, Problem, ProblemDetails, Segment, command_line_token, refusal, rfc3339, shown_session,
};

/// The routes, each with its description.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(sign_ins, sign_in))
        .routes(routes!(offer))
        .routes(routes!(end_sign_in))
}

/// Where the caller is signed in.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SignIns {
    sign_ins: Vec<SignInBody>,
}

/// A session of a browser or of the command line.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SignInBody {
    id: String,
    client: SignInClientBody,
    by: SignInSourceBody,
    /// The prefix of the key, if one stands behind it.
    key: Option<String>,
    /// The name that the client program gave itself.
    label: Option<String>,
    began_at: Option<String>,
    /// When it was last used, to about a minute.
    seen_at: Option<String>,
    expires_at: String,
    /// Whether this request came with it.
    current: bool,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum SignInClientBody {
    Browser,
    CommandLine,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum SignInSourceBody {
    ApiKey,
    Token,
    IdentityProvider,
}

/// What a program needs to let its user sign in at the identity provider.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SignInOffer {
    /// The provider; its discovery document says where it is asked.
    issuer: String,
    /// The client id there.
    client_id: String,
    scopes: Vec<String>,
    /// What the `nonce` of the ID token is made of, for fifteen minutes.
    nonce: String,
    /// The address of this server, which the nonce is bound to.
    server: String,
}

/// An ID token that was issued to the client of the offer.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewSignIn {
    id_token: String,
    /// The `nonce` of the offer.
    nonce: String,
    /// Lets the server ask the provider now and then whether the person still is who they were.
    refresh_token: Option<String>,
    /// What the program is called, for its user to tell sessions apart.
    label: Option<String>,
}

/// A session of the command line.
#[derive(Serialize, ToSchema)]
pub(super) struct NewSignInBody {
    /// Send it as `Authorization: Bearer …`. A secret, shown this once.
    token: String,
    user: String,
    expires_in: i64,
}

/// Where the caller is signed in: browsers, and the command line.
#[utoipa::path(get, path = "/sign-ins", tag = "sign-ins", responses((status = 200, body = SignIns), DefaultAnswers))]
async fn sign_ins(
    State(app): State<App>,
    Extension(who): CallerOf,
    headers: HeaderMap,
) -> ApiResult<Json<SignIns>> {
    let found = app.engine.identity().my_sessions(&who, shown_session(&headers)).await;
    let found = found.map_err(|error| refusal::problem(None, &error))?;
    Ok(Json(SignIns { sign_ins: found.into_iter().map(body).collect() }))
}

/// What the command line needs to let somebody sign in. 404 where nobody can.
#[utoipa::path(
    get, path = "/sign-ins/offer", tag = "sign-ins", responses((status = 200, body = SignInOffer), DefaultAnswers)
)]
async fn offer(State(app): State<App>) -> ApiResult<Json<SignInOffer>> {
    let offer = app.engine.identity().command_line_offer().map_err(|failure| problem(&failure))?;
    let CommandLineOffer { issuer, client_id, scopes, nonce, server } = offer;
    Ok(Json(SignInOffer { issuer, client_id, scopes, nonce, server }))
}

/// Begins a session of the command line for the person that an ID token names. It counts once.
#[utoipa::path(
    post, path = "/sign-ins", tag = "sign-ins", request_body = NewSignIn,
    responses((status = 201, body = NewSignInBody), DefaultAnswers)
)]
async fn sign_in(
    State(app): State<App>,
    JsonBody(new): JsonBody<NewSignIn>,
) -> ApiResult<(StatusCode, Json<NewSignInBody>)> {
    let NewSignIn { id_token, nonce, refresh_token, label } = new;
    let identity = app.engine.identity();
    let done = identity.accept_command_line(&id_token, &nonce, refresh_token, label.as_deref()).await;
    let FinishedSignIn { who, session, .. } = done.map_err(|failure| problem(&failure))?;
    let body = NewSignInBody {
        token: command_line_token(&session),
        user: who.user.to_string(),
        expires_in: session.lasts.0 / 1000,
    };
    Ok((StatusCode::CREATED, Json(body)))
}

/// Ends one of the caller's own sessions; `current` is the one that this request came with.
#[utoipa::path(
    delete, path = "/sign-ins/{sign_in}", tag = "sign-ins",
    params(("sign_in" = String, Path, description = "The session's id, or `current`")),
    responses((status = 204, description = "It has ended"), DefaultAnswers)
)]
async fn end_sign_in(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
    headers: HeaderMap,
) -> ApiResult<StatusCode> {
    let identity = app.engine.identity();
    let ended = match (id.as_str(), shown_session(&headers)) {
        ("current", Some(shown)) => identity.close_browser_session(shown).await.map(|_| ()),
        (id, _) => identity.end_my_session(&who, id).await,
    };
    ended.map_err(|error| refusal::problem(None, &error))?;
    Ok(StatusCode::NO_CONTENT)
}

fn body(view: SignInView) -> SignInBody {
    let (by, key) = match view.by {
        SessionSource::Key { prefix } => (SignInSourceBody::ApiKey, Some(prefix)),
        SessionSource::Token => (SignInSourceBody::Token, None),
        SessionSource::SignIn => (SignInSourceBody::IdentityProvider, None),
    };
    SignInBody {
        id: view.id,
        client: match view.client {
            SessionClient::Browser => SignInClientBody::Browser,
            SessionClient::CommandLine => SignInClientBody::CommandLine,
        },
        by,
        key,
        label: view.label,
        began_at: view.began_at.map(rfc3339),
        seen_at: view.seen_at.map(rfc3339),
        expires_at: rfc3339(view.expires_at),
        current: view.is_current,
    }
}

fn problem(failure: &SignInFailure) -> Problem {
    let refused = || {
        let title = "Sign-in refused";
        Problem::new(StatusCode::FORBIDDEN, "sign-in-refused", title, failure.to_string())
    };
    match failure {
        SignInFailure::Off => Problem::not_found(),
        SignInFailure::Engine(error) => refusal::problem(None, error),
        SignInFailure::Stale | SignInFailure::Used | SignInFailure::Provider(SignInError::Refused(_)) => {
            refused()
        }
        SignInFailure::Provider(SignInError::Unavailable(_)) => {
            let detail = "the identity provider cannot be reached; retry";
            let status = StatusCode::SERVICE_UNAVAILABLE;
            Problem::new(status, "unavailable", "Temporarily unavailable", detail)
                .with(ProblemDetails { retry_after: Some(5), ..ProblemDetails::default() })
        }
    }
}

//! Lists of the async-tool protocol: calls, and conversations that wait for some.
//!
//! The body is an array (S2-16), so where a list goes on stands in the header `Link`, with `rel="next"`.

use axum::Extension;
use axum::Json;
use axum::extract::State;
use axum::http::header::LINK;
use axum::http::{HeaderMap, HeaderValue, Uri};
use standfast_core::name::{AgentName, SessionId};
use standfast_engine::{JobList, JobView};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::JobProblem;
use super::routes::{CallerOf, JobResult};
use super::{map, wire};
use crate::http::{App, Args};

/// Calls of a page, unless the caller wants fewer.
const LISTED_MAX: usize = 1000;

/// Pages that are read for one answer, at most: those of a status may be few among many.
const PAGES_MAX: usize = 32;

/// What stands before the paths of these routes.
const BELOW: &str = "/async-tool";

/// The routes, each with its description.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(pending)).routes(routes!(waiting_sessions))
}

/// Lists calls: those that wait, oldest first; with a `status` of settled ones those, of the newest runs first. Where there
/// are more, the header `Link` names the next page.
#[utoipa::path(
    get, path = "/pending", tag = "async tools", params(wire::PendingArgs),
    responses(
        (status = 200, body = Vec<wire::PendingToolCall>, headers(("link" = String, description = "The next page, with rel=\"next\""))),
        (status = "default", body = wire::ErrorBody)
    )
)]
async fn pending(
    State(app): State<App>,
    Extension(who): CallerOf,
    uri: Uri,
    Args(args): Args<wire::PendingArgs>,
) -> JobResult<(HeaderMap, Json<Vec<wire::PendingToolCall>>)> {
    let over = match args.status {
        None | Some(wire::CallStatus::Waiting | wire::CallStatus::Processing) => false,
        Some(wire::CallStatus::Completed | wire::CallStatus::Failed | wire::CallStatus::Expired) => true,
    };
    let invalid = |bad: standfast_core::name::BadName| JobProblem::invalid(bad.to_string());
    let limit = args.limit.unwrap_or(LISTED_MAX).clamp(1, LISTED_MAX);
    let mut list = JobList {
        agent: args.agent.map(AgentName::new).transpose().map_err(invalid)?,
        session: args.session_id.map(SessionId::new).transpose().map_err(invalid)?,
        over,
        since: None,
        cursor: args.cursor,
        limit,
    };
    let is_wanted =
        |view: &&JobView| args.status.is_none_or(|status| status == map::status(&view.job.stands));
    let mut found = Vec::new();
    for _ in 0..PAGES_MAX {
        list.limit = limit.saturating_sub(found.len()).max(1);
        let page = app.engine.jobs().list(&who, list.clone()).await?;
        found.extend(page.items.iter().filter(is_wanted).map(map::record));
        list.cursor = page.next;
        if list.cursor.is_none() || found.len() >= limit {
            break;
        }
    }
    Ok((next(&uri, list.cursor), Json(found)))
}

/// Lists conversations that wait for outside jobs, the longest waiting first (S2-12).
#[utoipa::path(
    get, path = "/sessions/waiting", tag = "async tools", params(wire::PageArgs),
    responses(
        (status = 200, body = Vec<wire::WaitingSession>, headers(("link" = String, description = "The next page, with rel=\"next\""))),
        (status = "default", body = wire::ErrorBody)
    )
)]
async fn waiting_sessions(
    State(app): State<App>,
    Extension(who): CallerOf,
    uri: Uri,
    Args(args): Args<wire::PageArgs>,
) -> JobResult<(HeaderMap, Json<Vec<wire::WaitingSession>>)> {
    let limit = args.limit.unwrap_or(LISTED_MAX).clamp(1, LISTED_MAX);
    let page = app.engine.jobs().waiting_sessions(&who, (args.cursor, limit)).await?;
    let found = page.items.into_iter().map(map::waiting_session).collect();
    Ok((next(&uri, page.next), Json(found)))
}

/// Where the list goes on: the same question with another cursor.
fn next(uri: &Uri, cursor: Option<u64>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let Some(cursor) = cursor else { return headers };
    let others = uri.query().unwrap_or_default().split('&');
    let kept = others.filter(|part| !part.is_empty() && !part.starts_with("cursor="));
    let query: Vec<String> = kept.map(str::to_owned).chain([format!("cursor={cursor}")]).collect();
    let link = format!("<{BELOW}{}?{}>; rel=\"next\"", uri.path(), query.join("&"));
    if let Ok(link) = HeaderValue::from_str(&link) {
        headers.insert(LINK, link);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S2-16: the next page is the same question with another cursor.
    #[test]
    fn the_next_page_keeps_the_question() {
        for (asked, expected) in [
            ("/pending", "</async-tool/pending?cursor=7>; rel=\"next\""),
            (
                "/pending?status=failed&cursor=3&limit=2",
                "</async-tool/pending?status=failed&limit=2&cursor=7>; rel=\"next\"",
            ),
        ] {
            let uri: Uri = asked.parse().unwrap();
            assert_eq!(next(&uri, Some(7)).get(LINK).unwrap(), expected);
            assert!(next(&uri, None).is_empty());
        }
    }
}

//! The handlers of the pages: read, one engine call, render; or decide and redirect.
//!
//! Rules live in the core, authority in `auth`. A form that was taken answers 303, so that loading a page again never
//! sends it again.

use std::sync::LazyLock;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::{Deserialize, Serialize};
use standfast_core::event::{Envelope, Event};
use standfast_core::id::{HoldId, RunId};
use standfast_core::name::{AgentName, BadName, SessionId, UserId};
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::auth::{Principal, Scope};
use standfast_engine::{EngineError, ExportedData, HistoryList, HoldList, HoldListPart, RunList};

use super::pages::charts::{self, ChartRows, Figures, Partial};
use super::pages::history::{self, DecidedRow, ExportedHold};
use super::pages::run::{self, RunsPage, SubRun};
use super::pages::waiting::{self, Pager};
use super::{
    conversation, events, grants, holds, inboxes, jobs, links, login, media, provider_sign_in, receipts,
    sign_in, svg, tour,
};
use crate::html::{self, Failure, PostedForm, Site, Templates, Token};
use crate::http::filters::{HistoryFilters, PendingFilters, written};
use crate::http::{App, Args, Segment, rfc3339};

/// Items of a page of holds, each read with what it asks.
const HOLDS: usize = 25;
/// Holds that are counted, of somebody who does not see all; of more only that there are so many.
const COUNTED: u64 = 500;
/// Items of a page of runs.
const RUNS: usize = 50;
/// Pages of runs that are looked through for one that is shown.
const LOOKS: usize = 20;
/// Items of a page of the history.
const HISTORY: usize = 50;
/// Decisions of one export.
const EXPORT: usize = 10_000;
/// Decisions that charts are drawn from, at most.
const CHARTED: usize = 20_000;
/// How deep sub-runs are shown within each other, and how many.
const DEPTH: usize = 4;
const SUB_RUNS: usize = 20;
/// How long a form waits for what follows from it, so that the next page shows it.
pub(super) const SETTLE: Millis = Millis(1_500);

/// The pages within their frame.
pub(super) static PAGES: LazyLock<Templates> = LazyLock::new(|| {
    Templates::new(&[
        ("waiting.html", include_str!("templates/waiting.html")),
        ("login.html", include_str!("templates/login.html")),
        ("link.html", include_str!("templates/link.html")),
        ("hold.html", include_str!("templates/hold.html")),
        ("call.html", include_str!("templates/call.html")),
        ("grant.html", include_str!("templates/grant.html")),
        ("grants.html", include_str!("templates/grants.html")),
        ("grant_offer.html", include_str!("templates/grant_offer.html")),
        ("receipt.html", include_str!("templates/receipt.html")),
        ("stakes.html", include_str!("templates/stakes.html")),
        ("parts.html", include_str!("templates/parts.html")),
        ("before.html", include_str!("templates/before.html")),
        ("people.html", include_str!("templates/people.html")),
        ("review.html", include_str!("templates/review.html")),
        ("history.html", include_str!("templates/history.html")),
        ("charts.html", include_str!("templates/charts.html")),
        ("runs.html", include_str!("templates/runs.html")),
        ("run.html", include_str!("templates/run.html")),
        ("me.html", include_str!("templates/me.html")),
        ("sessions.html", include_str!("templates/sessions.html")),
        ("session.html", include_str!("templates/session.html")),
        ("remembered.html", include_str!("templates/remembered.html")),
        ("widget.html", include_str!("templates/widget.html")),
        ("fields.html", include_str!("templates/fields.html")),
        ("inboxes.html", include_str!("templates/inboxes.html")),
        ("inbox.html", include_str!("templates/inbox.html")),
        ("jobs.html", include_str!("templates/jobs.html")),
        ("tour.html", include_str!("templates/tour.html")),
    ])
});

/// Who is calling, and with which token.
pub(super) type CallerOf = Extension<Principal>;
pub(super) type Browser = Extension<Token>;

/// The routes.
pub fn routes(app: &App) -> Router<App> {
    let with_forms = Router::new()
        .merge(holds::routes())
        .merge(grants::routes())
        .merge(conversation::routes())
        .merge(inboxes::routes())
        .merge(jobs::routes())
        .layer(from_fn(readers_only));
    let pages = Router::new()
        .route("/", get(waiting))
        .route("/runs", get(runs).post(start))
        .route("/runs/{run}", get(run))
        .route("/runs/{run}/cancel", post(cancel))
        .route("/runs/{run}/timeline.svg", get(timeline))
        .route("/runs/{run}/events.json", get(raw_events))
        .route("/history", get(history))
        .route("/history.csv", get(history_csv))
        .route("/history.json", get(history_json))
        .route("/charts", get(charts))
        .route("/charts.json", get(charts_json))
        .merge(with_forms)
        .merge(receipts::routes())
        .merge(login::routes())
        .merge(sign_in::routes())
        .merge(provider_sign_in::routes())
        .merge(tour::routes())
        .route("/events", get(events::events))
        .layer(from_fn_with_state(app.clone(), html::keep_token))
        .layer(from_fn(html::add_headers));
    pages.merge(html::asset_routes()).merge(links::routes())
}

/// A form that does not count is answered with its page, which shows the call: a form is for whoever may look at the page.
async fn readers_only(request: Request, next: Next) -> Result<Response, Failure> {
    let who = request.extensions().get::<Principal>();
    if who.is_some_and(|who| !who.has(Scope::RunsRead)) {
        return Err(EngineError::MissingScope(Scope::RunsRead.into()).into());
    }
    Ok(next.run(request).await)
}

async fn waiting(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Args(filters): Args<PendingFilters>,
) -> Result<Response, Failure> {
    let (engine, now) = (&app.engine, app.engine.clock().now());
    let found = engine.reads().find_holds(&who, &filters.search(now, HOLDS)?).await?;
    let counts = engine.reads().pending_counts(&who, COUNTED).await?;
    let is_cut = !who.sees_all() && counts.iter().map(|(_, count)| count).sum::<u64>() >= COUNTED;
    let page = waiting::page(&filters, &found, (&counts, is_cut), &engine.settings(), now);
    let site = Site::of(&who, &token).with_pending(&counts, page.more);
    Ok(PAGES.page(StatusCode::OK, "waiting.html", &site, &page))
}

/// Which runs are wanted.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunFilters {
    #[serde(default)]
    agent: String,
    #[serde(default)]
    session: String,
    #[serde(default)]
    owner: String,
    #[serde(default)]
    state: String,
    #[serde(default)]
    cursor: String,
    #[serde(default)]
    back: String,
}

async fn runs(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Args(filters): Args<RunFilters>,
) -> Result<Response, Failure> {
    let reads = app.engine.reads();
    let invalid = |text: String| Failure::new(StatusCode::BAD_REQUEST, "Invalid filter", &text);
    let bad = |bad: BadName| invalid(format!("{bad}."));
    let given = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    let state = run::state(&filters.state)?;
    let owner = given(&filters.owner).map(UserId::new).transpose().map_err(bad)?;
    let cursor = given(&filters.cursor).map(|text| text.parse::<u64>()).transpose();
    let mut list = RunList {
        agent: given(&filters.agent).map(AgentName::new).transpose().map_err(bad)?,
        session: given(&filters.session).map(SessionId::new).transpose().map_err(bad)?,
        cursor: cursor.map_err(|_| invalid("Invalid cursor; use one that a page gave.".into()))?,
        limit: RUNS,
    };
    let (mut items, now) = (Vec::new(), app.engine.clock().now());
    // What a store has no index for is looked through, up to a bound; the page says that there is more.
    for _ in 0..LOOKS {
        let found = reads.runs(&who, RunList { limit: RUNS - items.len(), ..list.clone() }).await?;
        for row in &found.items {
            let facts = &row.run.facts;
            let is_wanted = state.is_none_or(|state| state.includes(row.phase))
                && owner.as_ref().is_none_or(|owner| facts.owner == *owner);
            if is_wanted {
                let opening = reads.opening(&who, facts.id).await.unwrap_or_default();
                items.push(run::item(row, &opening, now));
            }
        }
        list.cursor = found.next;
        if list.cursor.is_none() || items.len() >= RUNS {
            break;
        }
    }
    let query = written(&[
        ("agent", &filters.agent),
        ("session", &filters.session),
        ("owner", &filters.owner),
        ("state", &filters.state),
    ]);
    let page = RunsPage {
        runs: items,
        pager: Pager::of("/runs", &query, (&filters.cursor, &filters.back), list.cursor),
        agent: filters.agent.clone(),
        session: filters.session.clone(),
        owner: filters.owner.clone(),
        states: run::states(&filters.state),
        is_filtered: !query.is_empty(),
    };
    Ok(PAGES.page(StatusCode::OK, "runs.html", &Site::of(&who, &token), &page))
}

async fn start(
    State(app): State<App>,
    Extension(who): CallerOf,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let id = conversation::begin(&app, &who, &posted).await?.id;
    Ok(see_other(&format!("/runs/{id}")))
}

/// Which part of a long timeline is wanted.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimelineArgs {
    before: Option<u64>,
}

async fn run(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Segment(id): Segment,
    Args(args): Args<TimelineArgs>,
) -> Result<Response, Failure> {
    let id = run_id(&id)?;
    let reads = app.engine.reads();
    let snapshot = reads.snapshot(&who, id).await?;
    let view = reads.run_view(&snapshot).await?;
    let log = snapshot.log().await.map_err(EngineError::from)?;
    let now = app.engine.clock().now();
    let mut below = Vec::new();
    sub_runs(&app, &who, log, 0, &mut below).await?;
    let page = run::page(&view, log, &below, args.before, now);
    Ok(PAGES.page(StatusCode::OK, "run.html", &Site::of(&who, &token), &page))
}

/// The runs that a run started, and theirs, each with its log; those that the caller may not see are left out.
async fn sub_runs(
    app: &App,
    who: &Principal,
    log: &[Envelope],
    depth: usize,
    found: &mut Vec<SubRun>,
) -> Result<(), Failure> {
    for id in run::children(log) {
        if depth >= DEPTH || found.len() >= SUB_RUNS {
            return Ok(());
        }
        let snapshot = match app.engine.reads().snapshot(who, id).await {
            Ok(snapshot) => snapshot,
            Err(EngineError::NotFound) => continue,
            Err(error) => return Err(error.into()),
        };
        let log = snapshot.log().await.map_err(EngineError::from)?.to_vec();
        found.push(SubRun { run: snapshot.run().clone(), log: log.clone() });
        Box::pin(sub_runs(app, who, &log, depth + 1, found)).await?;
    }
    Ok(())
}

/// The timeline as a picture that can be kept.
async fn timeline(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
) -> Result<Response, Failure> {
    let snapshot = app.engine.reads().snapshot(&who, run_id(&id)?).await?;
    let log = snapshot.log().await.map_err(EngineError::from)?;
    let svg = svg::timeline(snapshot.run(), log, app.engine.clock().now());
    Ok((StatusCode::OK, picture("timeline.svg"), svg).into_response())
}

/// Every event as it is stored. The API has the same in pages, for programs; a browser has no key to show there.
async fn raw_events(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
) -> Result<Response, Failure> {
    #[derive(Serialize)]
    struct StoredEvent<'a> {
        seq: u64,
        at: String,
        actor: String,
        event: &'a Event,
    }
    let snapshot = app.engine.reads().snapshot(&who, run_id(&id)?).await?;
    let log = snapshot.log().await.map_err(EngineError::from)?;
    let events: Vec<StoredEvent<'_>> = log
        .iter()
        .map(|envelope| StoredEvent {
            seq: envelope.seq.0,
            at: rfc3339(envelope.at),
            actor: envelope.actor.to_string(),
            event: &envelope.event,
        })
        .collect();
    let headers = media::harmless("application/json", "inline; filename=\"events.json\"");
    Ok((headers, Json(events)).into_response())
}

/// A picture that this server made. Opened by itself it has its own styles, and nothing else.
fn picture(name: &str) -> [(header::HeaderName, String); 3] {
    [
        (header::CONTENT_TYPE, "image/svg+xml".to_owned()),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; sandbox".to_owned(),
        ),
        (header::CONTENT_DISPOSITION, format!("inline; filename=\"{name}\"")),
    ]
}

async fn history(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Args(filters): Args<HistoryFilters>,
) -> Result<Response, Failure> {
    let reads = app.engine.reads();
    let found = reads.history(&who, &filters.list(HISTORY)?).await?;
    let mut rows = Vec::with_capacity(found.items.len());
    for row in found.items {
        // A decision stays in the list when its run is gone, or cannot be read.
        let view = reads.hold(&who, row.id).await.ok();
        rows.push(DecidedRow { row, summary: view.as_ref().and_then(waiting::summary) });
    }
    let page = history::page(&filters, &rows, found.next, app.engine.clock().now());
    Ok(PAGES.page(StatusCode::OK, "history.html", &Site::of(&who, &token), &page))
}

async fn history_csv(
    State(app): State<App>,
    Extension(who): CallerOf,
    Args(filters): Args<HistoryFilters>,
) -> Result<Response, Failure> {
    let (rows, next) = exported(&app, &who, &filters).await?;
    app.engine.record_export(&who, ExportedData::HistoryCsv, rows.len()).await?;
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"history.csv\""),
    ];
    Ok((headers, history::csv(&rows, next)).into_response())
}

async fn history_json(
    State(app): State<App>,
    Extension(who): CallerOf,
    Args(filters): Args<HistoryFilters>,
) -> Result<Response, Failure> {
    #[derive(Serialize)]
    struct History {
        holds: Vec<ExportedHold>,
        next_cursor: Option<String>,
    }
    let (holds, next) = exported(&app, &who, &filters).await?;
    app.engine.record_export(&who, ExportedData::HistoryJson, holds.len()).await?;
    let disposition = [(header::CONTENT_DISPOSITION, "attachment; filename=\"history.json\"")];
    let body = Json(History { holds, next_cursor: next.map(|next| next.to_string()) });
    Ok((disposition, body).into_response())
}

/// Everything that the filters leave, up to a bound, and where to go on.
async fn exported(
    app: &App,
    who: &Principal,
    filters: &HistoryFilters,
) -> Result<(Vec<ExportedHold>, Option<u64>), Failure> {
    let mut list = filters.list(EXPORT)?;
    let mut rows = Vec::new();
    loop {
        list.limit = EXPORT - rows.len();
        let found = app.engine.reads().history(who, &list).await?;
        rows.extend(found.items.iter().filter_map(history::exported));
        list.cursor = found.next;
        if found.next.is_none() || rows.len() >= EXPORT {
            return Ok((rows, found.next));
        }
    }
}

/// Over which time charts are.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChartArgs {
    #[serde(default)]
    over: String,
}

async fn charts(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Args(args): Args<ChartArgs>,
) -> Result<Response, Failure> {
    let page = charts::page(&figures(&app, &who, &args).await?);
    Ok(PAGES.page(StatusCode::OK, "charts.html", &Site::of(&who, &token), &page))
}

async fn charts_json(
    State(app): State<App>,
    Extension(who): CallerOf,
    Args(args): Args<ChartArgs>,
) -> Result<Response, Failure> {
    Ok(Json(figures(&app, &who, &args).await?).into_response())
}

/// What charts are drawn from: everything that was decided in a time, and what is pending now.
async fn figures(app: &App, who: &Principal, args: &ChartArgs) -> Result<Figures, Failure> {
    let (reads, now) = (app.engine.reads(), app.engine.clock().now());
    let over = charts::span(&args.over)?;
    let mut list = HistoryList {
        since: Some(Timestamp(now.0.saturating_sub(over.0))),
        limit: CHARTED,
        ..HistoryList::default()
    };
    let mut decided = Vec::new();
    loop {
        let found = reads.history(who, &list).await?;
        decided.extend(found.items);
        list.cursor = found.next;
        if found.next.is_none() || decided.len() >= CHARTED {
            break;
        }
    }
    let mut partial = Partial { decisions: list.cursor.is_some(), open_holds: false };
    let most = u64::try_from(CHARTED).unwrap_or(u64::MAX);
    let counts = reads.pending_counts(who, most).await?;
    let open_now = counts.iter().map(|(_, count)| count).sum();
    let mut open = Vec::new();
    let mut cursor = None;
    loop {
        let list = HoldList {
            kind: None,
            agent: None,
            tool: None,
            session: None,
            part: HoldListPart::All,
            cursor,
            limit: CHARTED - open.len(),
        };
        let found = reads.holds(who, list).await?;
        open.extend(found.items.iter().map(|row| row.opened_at));
        cursor = found.next;
        if cursor.is_none() || open.len() >= CHARTED {
            break;
        }
    }
    partial.open_holds = cursor.is_some();
    Ok(charts::figures(
        &args.over,
        over,
        now,
        ChartRows { decided: &decided, open: &open, open_now, partial },
    ))
}

async fn cancel(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let id = run_id(&id)?;
    let reason = posted.get("reason").filter(|reason| !reason.trim().is_empty());
    app.engine.submit().cancel(&who, id, reason, None).await?;
    Ok(see_other(&format!("/runs/{id}")))
}

/// Post, redirect, get.
pub(super) fn see_other(path: &str) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, path)]).into_response()
}

/// What is not an id at all is answered like the id of nothing.
pub(super) fn run_id(text: &str) -> Result<RunId, Failure> {
    text.parse().map_err(|_| Failure::not_found())
}

pub(super) fn hold_id(text: &str) -> Result<HoldId, Failure> {
    text.parse().map_err(|_| Failure::not_found())
}

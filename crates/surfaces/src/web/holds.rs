//! The handlers of holds: one by itself, its raw bytes and files, and several together.
//!
//! GET changes nothing. A decision that was taken answers 303: to the next hold of the list that this one was opened from,
//! or to its own page.

use axum::Extension;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;
use standfast_core::id::HoldId;
use standfast_engine::auth::Principal;
use standfast_engine::{EngineError, HoldView};

use super::forms;
use super::media;
use super::pages::hold::{self, DoneLine, FailedDecision, HoldPageParts, Queue};
use super::pages::review::{self, ReviewPage};
use super::routes::{Browser, CallerOf, PAGES, SETTLE, hold_id, see_other};
use crate::html::{Failure, PostedForm, Site, Token};
use crate::http::filters::{PendingFilters, encoded};
use crate::http::{App, Args, Segment};
use crate::labels;

/// Holds of a list that are looked through for the next one.
const QUEUE: usize = 25;
/// Holds that are decided together at most.
const TOGETHER: usize = 50;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/approve/{hold}", get(hold).post(decide))
        .route("/approve/{hold}/raw", get(raw))
        .route("/approve/{hold}/media", get(file))
        .route("/review", get(review).post(decide_together))
}

/// Where a hold was opened from, and what was decided just before.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct HoldArgs {
    from: Option<String>,
    done: Option<String>,
}

async fn hold(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Segment(id): Segment,
    Args(args): Args<HoldArgs>,
) -> Result<Response, Failure> {
    let visitor = Visitor { app: &app, who: &who, token: &token };
    visitor.hold_page(hold_id(&id)?, &args, None).await
}

/// The arguments as they are stored, and nothing else.
async fn raw(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
) -> Result<Response, Failure> {
    let view = app.engine.hold(&who, hold_id(&id)?).await?;
    let arguments = view.arguments.ok_or_else(Failure::not_found)?;
    let headers = media::harmless("text/plain; charset=utf-8", "inline; filename=\"arguments.json\"");
    Ok((StatusCode::OK, headers, arguments.text().to_owned()).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileArgs {
    at: String,
}

/// A picture or file inside of the arguments.
async fn file(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
    Args(FileArgs { at }): Args<FileArgs>,
) -> Result<Response, Failure> {
    let view = app.engine.hold(&who, hold_id(&id)?).await?;
    let arguments = view.arguments.ok_or_else(Failure::not_found)?;
    media::serve(arguments.text(), &at)
}

async fn decide(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Segment(id): Segment,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let id = hold_id(&id)?;
    let visitor = Visitor { app: &app, who: &who, token: &token };
    let args = HoldArgs { from: posted.get("from"), done: None };
    let snapshot = app.engine.reads().snapshot(&who, id.run).await?;
    let view = app.engine.reads().hold_view(&who, &snapshot, id).await?;
    if posted.get("decision").is_some_and(|word| word.starts_with("more:")) {
        let tried = FailedDecision { posted: &posted, failure: None, pointer: None };
        return visitor.hold_page(id, &args, Some(tried)).await;
    }
    let decision = match forms::decision(&view, &posted) {
        Ok(decision) => decision,
        Err(forms::Mistake(text)) => {
            let failure = Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid input", &text);
            let tried = FailedDecision { posted: &posted, failure: Some(failure), pointer: None };
            return visitor.hold_page(id, &args, Some(tried)).await;
        }
    };
    match app.engine.submit().decide_on(&who, decision.into(), &snapshot).await {
        Ok(accepted) => {
            app.engine.reads().settled(&who, id.run, accepted.rest, SETTLE).await?;
            Ok(see_other(&visitor.after(id, &posted).await?))
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
                | EngineError::NotFound => None,
            };
            let failure = Some(error.into());
            let tried = FailedDecision { posted: &posted, failure, pointer: pointer.as_deref() };
            visitor.hold_page(id, &args, Some(tried)).await
        }
    }
}

/// Several holds, each with what it decides.
async fn review(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Query(asked): Query<Vec<(String, String)>>,
) -> Result<Response, Failure> {
    let unknown = asked.iter().find(|(name, _)| !matches!(name.as_str(), "hold" | "from"));
    if let Some((name, _)) = unknown {
        let text = format!("Unknown parameter {name:?}; use hold and from.");
        return Err(Failure::new(StatusCode::BAD_REQUEST, "Invalid request", &text));
    }
    let of =
        |wanted: &'static str| asked.iter().filter(move |(name, _)| name == wanted).map(|(_, value)| value);
    let visitor = Visitor { app: &app, who: &who, token: &token };
    let holds: Vec<&String> = of("hold").collect();
    let items = visitor.review_items(&holds).await?;
    let page = ReviewPage::of(items.into_iter().map(|(_, item)| item).collect(), queue_of(of("from").next()));
    Ok(PAGES.page(StatusCode::OK, "review.html", &Site::of(&who, &token), &page))
}

/// Decides what was shown, one by one: each counts or not by itself, and the page says which.
async fn decide_together(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let visitor = Visitor { app: &app, who: &who, token: &token };
    let word = posted.get("decision").unwrap_or_default();
    if !matches!(word.as_str(), "approve" | "deny") {
        let text = "The form has no decision. Nothing was decided.";
        return Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid input", text));
    }
    let named = posted.all("hold");
    let holds: Vec<&String> = named.iter().collect();
    check_number(&holds)?;
    let mut failures: Vec<(HoldId, String)> = Vec::new();
    for text in &holds {
        let id = hold_id(text)?;
        if let Err(failure) = visitor.decide_one(id, &posted).await {
            failures.push((id, format!("{}: {}", failure.title, failure.text)));
        }
    }
    let mut items = visitor.review_items(&holds).await?;
    for (id, item) in &mut items {
        item.failure = failures.iter().find(|(failed, _)| failed == id).map(|(_, text)| text.clone());
    }
    let status = if failures.is_empty() { StatusCode::OK } else { StatusCode::CONFLICT };
    let queue = queue_of(posted.get("from").as_ref());
    let mut page = ReviewPage::of(items.into_iter().map(|(_, item)| item).collect(), queue);
    page.is_result = true;
    Ok(PAGES.page(status, "review.html", &Site::of(&who, &token), &page))
}

fn check_number(holds: &[&String]) -> Result<(), Failure> {
    if holds.len() <= TOGETHER {
        return Ok(());
    }
    let text =
        format!("{} holds are too many at once; at most {TOGETHER} are decided together.", holds.len());
    Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Too many holds", &text))
}

/// The filters of a list, if they are some: nothing else gets into a link.
fn queue_of(from: Option<&String>) -> String {
    from.and_then(|from| filters(from)).map(|filters| filters.query()).unwrap_or_default()
}

/// The filters that an address has.
fn filters(query: &str) -> Option<PendingFilters> {
    let uri: Uri = format!("/?{query}").parse().ok()?;
    Query::<PendingFilters>::try_from_uri(&uri).ok().map(|Query(filters)| filters)
}

/// Somebody who looks at pages.
struct Visitor<'a> {
    app: &'a App,
    who: &'a Principal,
    token: &'a Token,
}

impl Visitor<'_> {
    /// The page of a hold as it is now; after a decision that did not count, with what was wrong.
    async fn hold_page(
        &self,
        id: HoldId,
        args: &HoldArgs,
        tried: Option<FailedDecision<'_>>,
    ) -> Result<Response, Failure> {
        let Visitor { app, who, token } = self;
        let reads = app.engine.reads();
        let snapshot = reads.snapshot(who, id.run).await?;
        let view = reads.hold_view(who, &snapshot, id).await?;
        let receipt = match view.row.closed {
            Some(_) => Some(reads.receipt_in(&snapshot, id).await?),
            None => None,
        };
        let parts = HoldPageParts {
            run: snapshot.run(),
            view: &view,
            log: snapshot.log().await.map_err(EngineError::from)?,
            preview: reads.views().preview(&snapshot, &view).await,
            receipt: receipt.as_ref(),
            caller: who.user.to_string(),
            queue: self.queue(id, args.from.as_deref()).await?,
            done: self.done(args.done.as_deref()).await?,
            now: app.engine.clock().now(),
        };
        let failure = tried.as_ref().and_then(|tried| tried.failure.as_ref());
        let status = failure.map_or(StatusCode::OK, |failure| failure.status);
        let page = hold::page(parts, tried.as_ref());
        Ok(PAGES.page(status, "hold.html", &Site::of(who, token), &page))
    }

    /// The list that a hold was opened from, and the hold behind it; the first one of the list where this is the last.
    async fn queue(&self, id: HoldId, from: Option<&str>) -> Result<Option<Queue>, Failure> {
        let Some(filters) = from.and_then(filters) else { return Ok(None) };
        let next = self.next_of(id, &filters).await?;
        let query = filters.query();
        Ok(Some(Queue { encoded: encoded(&query), query, next: next.map(|next| next.to_string()) }))
    }

    async fn next_of(&self, id: HoldId, filters: &PendingFilters) -> Result<Option<HoldId>, Failure> {
        let engine = &self.app.engine;
        let search = PendingFilters { cursor: String::new(), ..filters.clone() };
        let search = search.search(engine.clock().now(), QUEUE)?;
        let found = engine.reads().find_holds(self.who, &search).await?;
        let ids: Vec<HoldId> =
            found.items.iter().filter(|view| view.may_decide).map(|view| view.row.id).collect();
        let behind = ids.iter().position(|known| *known == id).and_then(|at| ids.get(at + 1));
        Ok(behind.or_else(|| ids.iter().find(|known| **known != id)).copied())
    }

    /// Where to go after a decision: to the next hold of the list, or to the page of this one.
    async fn after(&self, id: HoldId, posted: &PostedForm) -> Result<String, Failure> {
        let own = format!("/approve/{id}");
        let Some(filters) = posted.get("from").as_deref().and_then(filters) else { return Ok(own) };
        let planned = posted.get("next").and_then(|next| next.parse::<HoldId>().ok());
        let is_open = |view: &HoldView| view.row.closed.is_none() && view.may_decide;
        let planned = match planned {
            Some(next) => {
                self.app.engine.hold(self.who, next).await.ok().filter(is_open).map(|view| view.row.id)
            }
            None => None,
        };
        let next = match planned {
            Some(next) => Some(next),
            None => self.next_of(id, &filters).await?,
        };
        let from = encoded(&filters.query());
        Ok(match next {
            Some(next) => format!("/approve/{next}?from={from}&done={id}"),
            None => format!("{own}?from={from}"),
        })
    }

    /// What was just decided, as it is recorded: the address names only the hold.
    async fn done(&self, done: Option<&str>) -> Result<Option<DoneLine>, Failure> {
        let Some(id) = done.and_then(|done| done.parse::<HoldId>().ok()) else { return Ok(None) };
        let view = match self.app.engine.hold(self.who, id).await {
            Ok(view) => view,
            Err(EngineError::NotFound) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let what = view.row.tool.as_ref().map_or_else(|| view.row.agent.to_string(), ToString::to_string);
        Ok(view.row.closed.as_ref().map(|closed| DoneLine {
            id: id.to_string(),
            what: format!("{}: {what}", labels::decision(Some(view.row.kind), closed.how)),
        }))
    }

    /// Holds of a review that the caller may see, in the order in which they are named.
    async fn review_items(&self, holds: &[&String]) -> Result<Vec<(HoldId, review::ReviewItem)>, Failure> {
        check_number(holds)?;
        let reads = self.app.engine.reads();
        let mut items: Vec<(HoldId, review::ReviewItem)> = Vec::new();
        for text in holds {
            let id = hold_id(text)?;
            if items.iter().any(|(known, _)| *known == id) {
                continue;
            }
            let snapshot = reads.snapshot(self.who, id.run).await?;
            let view = reads.hold_view(self.who, &snapshot, id).await?;
            let preview = reads.views().preview(&snapshot, &view).await;
            items.push((id, review::item(&view, preview, self.app.engine.clock().now())));
        }
        Ok(items)
    }

    /// One of several: with the digest and revision that it was shown with.
    async fn decide_one(&self, id: HoldId, posted: &PostedForm) -> Result<(), Failure> {
        let engine = &self.app.engine;
        let snapshot = engine.reads().snapshot(self.who, id.run).await?;
        let view = engine.reads().hold_view(self.who, &snapshot, id).await?;
        let shown = posted.of_item(&id.to_string(), &["digest", "revision"]);
        let decision = forms::decision(&view, &shown).map_err(|forms::Mistake(text)| {
            Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid input", &text)
        })?;
        engine.submit().decide_on(self.who, decision.into(), &snapshot).await?;
        Ok(())
    }
}

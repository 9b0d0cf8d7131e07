//! The handlers of holds: one by itself, its raw bytes and files, and several together.
//!
//! GET changes nothing. A decision that was taken answers 303: to the next hold of the list that this one was opened from,
//! or to its own page.

use axum::Extension;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use standfast_core::id::HoldId;
use standfast_core::project::HoldRow;
use standfast_engine::auth::Principal;
use standfast_engine::{EngineError, HoldView, Snapshot};

use super::deciding::{self, Objection};
use super::media;
use super::pages::hold::{self, DoneLine, FailedDecision, HoldPageParts, Queue};
use super::pages::review::{self, ReviewPage, ReviewParts, ReviewedRun};
use super::routes::{Browser, CallerOf, PAGES, hold_id, see_other};
use super::widget::{self, WidgetFailure};
use super::{forms, grants, people, queue};
use crate::html::{Failure, PostedForm, Site, Token};
use crate::http::filters::{PendingFilters, encoded, written};
use crate::http::{App, Args, Segment};
use crate::labels;

/// Holds that are decided together at most.
const TOGETHER: usize = 50;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/approve/{hold}", get(hold).post(decide))
        .route("/approve/{hold}/people", post(adjust))
        .route("/approve/{hold}/raw", get(raw))
        .route("/approve/{hold}/media", get(file))
        .route("/review", get(review).post(decide_together))
        .route("/review/{hold}", post(answer))
}

/// Where a hold was opened from, and what was decided just before.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct HoldArgs {
    from: Option<String>,
    done: Option<String>,
}

impl HoldArgs {
    /// The list, as the address of the page has it: nothing but its filters and the place in it.
    fn query(&self) -> String {
        let from = self.from.as_deref().and_then(filters);
        from.map_or_else(String::new, |from| format!("?from={}", encoded(&from.place())))
    }
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
    let view = app.engine.reads().hold(&who, hold_id(&id)?).await?;
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
    let view = app.engine.reads().hold(&who, hold_id(&id)?).await?;
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
    if forms::asks_for_more(&posted) {
        let tried = FailedDecision { posted: &posted, failure: None, pointer: None };
        return visitor.hold_page(id, &args, Some(tried)).await;
    }
    match deciding::decide(&app, &who, id, &posted).await? {
        Ok(()) => Ok(see_other(&visitor.after(id, &posted).await?)),
        Err(Objection { failure, pointer }) => {
            let tried =
                FailedDecision { posted: &posted, failure: Some(failure), pointer: pointer.as_deref() };
            visitor.hold_page(id, &args, Some(tried)).await
        }
    }
}

/// Changes who is asked, or until when; the page of the hold says what came of it.
async fn adjust(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Segment(id): Segment,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let id = hold_id(&id)?;
    let visitor = Visitor { app: &app, who: &who, token: &token };
    let args = HoldArgs { from: posted.get("from"), done: None };
    let failure = match people::adjustment(&who, id, &posted, app.engine.clock().now()) {
        Ok(wanted) => match app.engine.submit().adjust(&who, wanted).await {
            Ok(_) => return Ok(see_other(&format!("/approve/{id}{}", args.query()))),
            Err(EngineError::NotFound) => return Err(Failure::not_found()),
            Err(error) => error.into(),
        },
        Err(forms::Mistake(text)) => Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid input", &text),
    };
    let tried = FailedDecision { posted: &posted, failure: Some(failure), pointer: None };
    visitor.hold_page(id, &args, Some(tried)).await
}

/// Which holds a review is of, and the list that they were chosen from.
struct ReviewOf {
    holds: Vec<String>,
    /// The filters of the list and the place in it: nothing else gets into a link.
    queue: String,
}

impl ReviewOf {
    /// As an address has it.
    fn read(asked: Vec<(String, String)>) -> Result<ReviewOf, Failure> {
        let mut of = ReviewOf { holds: Vec::new(), queue: String::new() };
        for (name, value) in asked {
            match name.as_str() {
                "hold" => of.holds.push(value),
                "from" => of.queue = queue_of(Some(&value)),
                _ => {
                    let text = format!("Unknown parameter {name:?}; use hold and from.");
                    return Err(Failure::new(StatusCode::BAD_REQUEST, "Invalid request", &text));
                }
            }
        }
        Ok(of)
    }

    /// As an address has it.
    fn query(&self) -> String {
        let holds = self.holds.iter().map(|hold| ("hold", hold.as_str()));
        written(&holds.chain([("from", self.queue.as_str())]).collect::<Vec<_>>())
    }
}

/// Several holds, each with what it decides.
async fn review(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Query(asked): Query<Vec<(String, String)>>,
) -> Result<Response, Failure> {
    let visitor = Visitor { app: &app, who: &who, token: &token };
    visitor.review_page(&ReviewOf::read(asked)?, None).await
}

/// Answers one question of a review; the others are not touched.
async fn answer(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Segment(id): Segment,
    Query(asked): Query<Vec<(String, String)>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let (id, of) = (hold_id(&id)?, ReviewOf::read(asked)?);
    let visitor = Visitor { app: &app, who: &who, token: &token };
    match widget::decide(&app, &who, id, posted).await? {
        Ok(()) => Ok(see_other(&format!("/review?{}#hold-{id}", of.query()))),
        Err(failed) => visitor.review_page(&of, Some(&failed)).await,
    }
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
    let of = ReviewOf { holds: posted.all("hold"), queue: queue_of(posted.get("from").as_ref()) };
    check_number(&of.holds)?;
    let mut failures: Vec<(HoldId, String)> = Vec::new();
    for text in &of.holds {
        let id = hold_id(text)?;
        if let Err(failure) = visitor.decide_one(id, &posted).await {
            failures.push((id, format!("{}: {}", failure.title, failure.text)));
        }
    }
    // Those that were only looked at stay on the page.
    let mut holds = posted.all("shown");
    holds.extend(of.holds.into_iter().filter(|hold| !holds.contains(hold)).collect::<Vec<_>>());
    let of = ReviewOf { holds, queue: of.queue };
    let mut items = visitor.review_items(&of, None).await?;
    for (id, item) in &mut items {
        item.failure = failures.iter().find(|(failed, _)| failed == id).map(|(_, text)| text.clone());
    }
    let status = if failures.is_empty() { StatusCode::OK } else { StatusCode::CONFLICT };
    let mut page = ReviewPage::of(items.into_iter().map(|(_, item)| item).collect(), of.queue);
    page.is_result = true;
    Ok(PAGES.page(status, "review.html", &Site::of(&who, &token), &page))
}

fn check_number(holds: &[String]) -> Result<(), Failure> {
    if holds.len() <= TOGETHER {
        return Ok(());
    }
    let text =
        format!("{} holds are too many at once; at most {TOGETHER} are decided together.", holds.len());
    Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Too many holds", &text))
}

/// The filters of a list, if they are some: nothing else gets into a link.
fn queue_of(from: Option<&String>) -> String {
    from.and_then(|from| filters(from)).map(|filters| filters.place()).unwrap_or_default()
}

/// The filters that an address has.
fn filters(query: &str) -> Option<PendingFilters> {
    let uri: Uri = format!("/?{query}").parse().ok()?;
    Query::<PendingFilters>::try_from_uri(&uri).ok().map(|Query(filters)| filters)
}

/// A hold; of one that is open also what is different now from when it was asked.
async fn shown_now(
    app: &App,
    who: &Principal,
    snapshot: &Snapshot,
    id: HoldId,
) -> Result<HoldView, EngineError> {
    let reads = app.engine.reads();
    match snapshot.run().hold(id.key) {
        Some(_) => reads.views().hold_with_drift(who, snapshot, id).await,
        None => reads.hold_view(who, snapshot, id).await,
    }
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
        let view = shown_now(app, who, &snapshot, id).await?;
        let receipt = match view.row.closed {
            Some(_) => Some(reads.receipt_in(&snapshot, id).await?),
            None => None,
        };
        let root = match view.path.first() {
            // Whoever may see a sub-run may not be let into the run above it.
            Some((root, _)) => reads.opening(who, *root).await.unwrap_or_default(),
            None => Vec::new(),
        };
        let parts = HoldPageParts {
            run: snapshot.run(),
            root: &root,
            view: &view,
            who: &who.user,
            log: snapshot.log().await.map_err(EngineError::from)?,
            preview: reads.views().preview(&view).await,
            receipt: receipt.as_ref(),
            queue: self.queue(&view.row, args.from.as_deref()).await?,
            done: self.done(args.done.as_deref(), &snapshot).await?,
            grant_offer: grants::offer_of(app, who, &view, &snapshot).await,
            now: app.engine.clock().now(),
        };
        let failure = tried.as_ref().and_then(|tried| tried.failure.as_ref());
        let status = failure.map_or(StatusCode::OK, |failure| failure.status);
        let page = hold::page(parts, tried.as_ref());
        Ok(PAGES.page(status, "hold.html", &Site::of(who, token), &page))
    }

    /// The list that a hold was opened from, and the hold behind it; the first one of the list where this is the last.
    async fn queue(&self, row: &HoldRow, from: Option<&str>) -> Result<Option<Queue>, Failure> {
        let Some(filters) = from.and_then(filters) else { return Ok(None) };
        let walk = queue::walk(self.app, self.who, row, &filters).await?;
        let (next, place) = walk.next.map(|next| (next.hold.to_string(), next.place)).unzip();
        let encoded = encoded(place.as_ref().unwrap_or(&walk.here));
        Ok(Some(Queue { query: walk.here, encoded, next }))
    }

    /// Where to go after a decision: to the next hold of the list, or to the page of this one.
    async fn after(&self, id: HoldId, posted: &PostedForm) -> Result<String, Failure> {
        let own = format!("/approve/{id}");
        let Some(filters) = posted.get("from").as_deref().and_then(filters) else { return Ok(own) };
        let reads = self.app.engine.reads();
        let planned = posted.get("next").and_then(|next| next.parse::<HoldId>().ok());
        let planned = match planned {
            Some(next) => reads.hold(self.who, next).await.ok(),
            None => None,
        };
        if let Some(next) = &planned
            && next.row.closed.is_none()
            && next.may_decide
        {
            let from = encoded(&filters.place());
            return Ok(format!("/approve/{}?from={from}&done={id}", next.row.id));
        }
        // Somebody was faster with that one: the next one is behind it.
        let behind = match planned {
            Some(planned) => planned.row,
            None => reads.hold(self.who, id).await?.row,
        };
        let walk = queue::walk(self.app, self.who, &behind, &filters).await?;
        Ok(match walk.next.filter(|next| next.hold != id) {
            Some(next) => format!("/approve/{}?from={}&done={id}", next.hold, encoded(&next.place)),
            None => format!("{own}?from={}", encoded(&filters.place())),
        })
    }

    /// What was just decided, as it is recorded: the address names only the hold.
    async fn done(&self, done: Option<&str>, snapshot: &Snapshot) -> Result<Option<DoneLine>, Failure> {
        let Some(id) = done.and_then(|done| done.parse::<HoldId>().ok()) else { return Ok(None) };
        let reads = self.app.engine.reads();
        // Often it was the same run that asked before.
        let found = if id.run == snapshot.id() {
            reads.hold_view(self.who, snapshot, id).await
        } else {
            reads.hold(self.who, id).await
        };
        let view = match found {
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

    /// A review as it is now; after an answer that did not count, with what was wrong.
    async fn review_page(&self, of: &ReviewOf, tried: Option<&WidgetFailure>) -> Result<Response, Failure> {
        let mut items = self.review_items(of, tried).await?;
        // Somebody else was faster: the hold has no form any more that could say so.
        for (id, item) in &mut items {
            let failed = tried.filter(|tried| tried.hold == *id && !item.has_form());
            let failure = failed.and_then(|tried| tried.failure.as_ref());
            item.failure = failure.map(|failure| format!("{}: {}", failure.title, failure.text));
        }
        let status = tried.map_or(StatusCode::OK, WidgetFailure::status);
        let page = ReviewPage::of(items.into_iter().map(|(_, item)| item).collect(), of.queue.clone());
        Ok(PAGES.page(status, "review.html", &Site::of(self.who, self.token), &page))
    }

    /// Holds of a review that the caller may see, in the order in which they are named.
    async fn review_items(
        &self,
        of: &ReviewOf,
        tried: Option<&WidgetFailure>,
    ) -> Result<Vec<(HoldId, review::ReviewItem)>, Failure> {
        check_number(&of.holds)?;
        let (reads, query) = (self.app.engine.reads(), of.query());
        let now = self.app.engine.clock().now();
        let parts = ReviewParts { query: &query, tried, who: &self.who.user, now };
        let mut items: Vec<(HoldId, review::ReviewItem)> = Vec::new();
        for text in &of.holds {
            let id = hold_id(text)?;
            if items.iter().any(|(known, _)| *known == id) {
                continue;
            }
            let snapshot = reads.snapshot(self.who, id.run).await?;
            let view = shown_now(self.app, self.who, &snapshot, id).await?;
            let preview = reads.views().preview(&view).await;
            let root = match view.path.first() {
                None => Vec::new(),
                Some((root, _)) => reads.opening(self.who, *root).await.unwrap_or_default(),
            };
            let log = snapshot.log().await.map_err(EngineError::from)?;
            let of_run = ReviewedRun { run: snapshot.run(), log, root: &root };
            items.push((id, review::item(of_run, &view, preview, &parts)));
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

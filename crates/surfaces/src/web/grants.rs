//! Standing approvals on pages: the rule before it is saved, the approval that saves it, the list, and the end of one.
//!
//! The rule is shown whole, and the form that saves it repeats its digest: what is saved is what was on the page. What a grant
//! covers is the policy's, who may decide the engine's.

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde::Serialize;
use standfast_core::name::GrantId;
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::auth::Principal;
use standfast_engine::{
    ArgumentPath, Freedom, GrantCondition, GrantError, GrantProposal, GrantReach, GrantRequest, GrantState,
    GrantView, HoldView, Snapshot,
};

use super::pages::ShownInstant;
use super::routes::{Browser, CallerOf, PAGES, hold_id, see_other};
use super::{deciding, forms};
use crate::html::{Failure, PostedForm, Site};
use crate::http::{App, Segment, parse_rfc3339, rfc3339};
use crate::labels::grant_rule as lines;

/// Words of a command that may be kept, at most.
const WORDS: usize = 4;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/approve/{hold}/grant", get(offer).post(approve))
        .route("/grants", get(grants))
        .route("/grants/{grant}/revoke", post(revoke))
}

/// What may be approved beside one call.
#[derive(Debug, Serialize)]
struct OfferPage {
    id: String,
    tool: String,
    digest: String,
    revision: u32,
    uses: u32,
    hours: i64,
    same_session: bool,
    leaves: Vec<Leaf>,
    rule: Option<Rule>,
    problem: Option<String>,
}

/// A value of the call, and in what others may differ.
#[derive(Debug, Serialize)]
struct Leaf {
    field: String,
    path: String,
    value: String,
    choices: Vec<LeafChoice>,
}

#[derive(Debug, Serialize)]
struct LeafChoice {
    word: String,
    text: String,
    is_taken: bool,
}

/// The rule as it would be saved.
#[derive(Debug, Serialize)]
struct Rule {
    lines: Vec<String>,
    digest: String,
    until: String,
    uses: u32,
}

/// A standing approval in the list.
#[derive(Debug, Serialize)]
struct GrantItem {
    id: String,
    tool: String,
    agent: String,
    owner: String,
    hold: String,
    status: &'static str,
    tone: &'static str,
    is_live: bool,
    used: u32,
    uses: u32,
    used_by: Vec<String>,
    lines: Vec<String>,
    approved_by: String,
    made: ShownInstant,
    until: ShownInstant,
    revoked_by: Option<String>,
}

#[derive(Debug, Serialize)]
struct GrantsPage {
    grants: Vec<GrantItem>,
}

/// What somebody has entered, by field.
struct GrantFields(Vec<(String, String)>);

impl GrantFields {
    fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
        found.filter(|value| !value.is_empty())
    }
}

async fn offer(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Segment(id): Segment,
    Query(entered): Query<Vec<(String, String)>>,
) -> Result<Response, Failure> {
    let id = hold_id(&id)?;
    let (reads, grants) = (app.engine.reads(), app.engine.grants());
    let snapshot = reads.snapshot(&who, id.run).await?;
    let view = reads.hold_view(&who, &snapshot, id).await?;
    let exact = grants.propose_on(&who, id, &GrantRequest::default(), &snapshot).await;
    let exact = exact.map_err(no_grant)?;
    let (entered, now) = (GrantFields(entered), app.engine.clock().now());
    let (rule, problem) = match entered.get("uses") {
        None => (None, None),
        Some(_) => match request(&entered, &exact, now) {
            Err(why) => (None, Some(why)),
            Ok(request) => match grants.propose_on(&who, id, &request, &snapshot).await {
                Ok(proposal) => (Some(rule(&proposal)), None),
                Err(error @ GrantError::Engine(_)) => return Err(no_grant(error)),
                Err(error) => (None, Some(error.to_string())),
            },
        },
    };
    let status = if problem.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    let page = OfferPage {
        id: id.to_string(),
        tool: view.row.tool.as_ref().map(ToString::to_string).unwrap_or_default(),
        digest: view.row.digest.map(|digest| digest.to_string()).unwrap_or_default(),
        revision: view.row.revision,
        uses: entered.get("uses").and_then(|text| text.parse().ok()).unwrap_or(5.min(exact.uses)),
        hours: entered.get("hours").and_then(|text| text.parse().ok()).unwrap_or(24),
        same_session: entered.get("same_session").is_some(),
        leaves: leaves(&entered, &exact),
        rule,
        problem,
    };
    Ok(PAGES.page(status, "grant.html", &Site::of(&who, &token), &page))
}

/// What the form asks for.
fn request(entered: &GrantFields, exact: &GrantProposal, now: Timestamp) -> Result<GrantRequest, String> {
    let uses = entered.get("uses").and_then(|text| text.trim().parse().ok());
    let hours = entered.get("hours").and_then(|text| text.trim().parse::<i64>().ok());
    let until = match entered.get("until") {
        Some(text) => parse_rfc3339(text),
        None => hours.filter(|hours| (1..=24 * 366).contains(hours)).map(|hours| {
            // Whole seconds: what is shown is what is meant.
            let at = now.plus(Millis::hours(hours));
            Timestamp(at.0 - at.0.rem_euclid(1_000))
        }),
    };
    Ok(GrantRequest {
        uses: Some(uses.ok_or("Enter how many further calls.")?),
        until: Some(until.ok_or("Enter for how many hours.")?),
        like: exact
            .conditions
            .iter()
            .enumerate()
            .filter_map(|(no, (path, _))| freedom(path, entered.get(&field(no))?))
            .collect(),
        reach: match entered.get("same_session") {
            Some(_) => GrantReach::Session,
            None => GrantReach::Owner,
        },
    })
}

fn field(no: usize) -> String {
    format!("like-{no}")
}

fn freedom(path: &ArgumentPath, word: &str) -> Option<Freedom> {
    match word {
        "up_to" => Some(Freedom::UpTo(path.clone())),
        "any_text" => Some(Freedom::AnyText(path.clone())),
        "same_folder" => Some(Freedom::SameFolder(path.clone())),
        _ => {
            let words = word.strip_prefix("command-")?.parse().ok()?;
            Some(Freedom::Command(path.clone(), words))
        }
    }
}

/// Each value of the call with what others may have in its place.
fn leaves(entered: &GrantFields, exact: &GrantProposal) -> Vec<Leaf> {
    let leaf = |(no, (path, condition)): (usize, &(ArgumentPath, GrantCondition))| {
        let GrantCondition::Exactly(value) = condition else { return None };
        let field = field(no);
        let taken = entered.get(&field).unwrap_or_default();
        let mut choices = vec![(String::new(), "exactly this".to_owned())];
        let parsed = serde_json::from_str::<serde_json::Value>(value).ok();
        if value.starts_with(|c: char| c.is_ascii_digit()) {
            choices.push(("up_to".into(), format!("from 0 to {value}")));
        }
        if let Some(text) = parsed.as_ref().and_then(serde_json::Value::as_str) {
            if text.contains('/') && !text.contains(' ') {
                choices.push(("same_folder".into(), "a file in the same folder".into()));
            }
            let words: Vec<&str> = text.split_whitespace().collect();
            for kept in 1..words.len().min(WORDS + 1) {
                let begins = words.get(..kept).unwrap_or_default().join(" ");
                choices.push((format!("command-{kept}"), format!("a command that begins with {begins}")));
            }
            choices.push(("any_text".into(), "any text".into()));
        }
        let choices = choices
            .into_iter()
            .map(|(word, text)| LeafChoice { is_taken: word == taken, word, text })
            .collect();
        Some(Leaf { field, path: path.to_string(), value: value.clone(), choices })
    };
    exact.conditions.iter().enumerate().filter_map(leaf).collect()
}

fn rule(proposal: &GrantProposal) -> Rule {
    Rule {
        lines: lines(proposal),
        digest: proposal.digest().to_string(),
        until: rfc3339(proposal.until),
        uses: proposal.uses,
    }
}

/// Approves the call, and saves the rule that the page showed.
async fn approve(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let id = hold_id(&id)?;
    let invalid = |text: &str| Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid input", text);
    let (reads, grants) = (app.engine.reads(), app.engine.grants());
    let snapshot = reads.snapshot(&who, id.run).await?;
    let view = reads.hold_view(&who, &snapshot, id).await?;
    let decision = decision(&view, &posted).map_err(|forms::Mistake(text)| invalid(&text))?;
    let shown = posted.get("grant_digest").and_then(|text| text.parse().ok());
    let shown = shown.ok_or_else(|| invalid("The form is incomplete. Reload the page."))?;
    let request = if view.row.closed.is_some() {
        // No rule is made of what was decided: the same form again is answered as before, any other is refused.
        GrantRequest::default()
    } else {
        let exact =
            grants.propose_on(&who, id, &GrantRequest::default(), &snapshot).await.map_err(no_grant)?;
        let mut fields = vec!["uses".to_owned(), "until".into(), "same_session".into()];
        fields.extend((0..exact.conditions.len()).map(field));
        let entered = fields.into_iter().filter_map(|name| Some((name.clone(), posted.get(&name)?)));
        request(&GrantFields(entered.collect()), &exact, app.engine.clock().now())
            .map_err(|why| invalid(&why))?
    };
    let accepted = grants.approve_on(&who, decision, (&request, shown), &snapshot).await;
    let accepted = accepted.map_err(no_grant)?;
    deciding::settled(&app, &who, &snapshot, accepted.rest).await?;
    Ok(see_other("/grants"))
}

fn decision(view: &HoldView, posted: &PostedForm) -> Result<standfast_engine::Decision, forms::Mistake> {
    match posted.get("decision").as_deref() {
        Some("approve") => forms::decision(view, posted),
        _ => Err(forms::Mistake("The form has no decision. Nothing was decided.".into())),
    }
}

async fn grants(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
) -> Result<Response, Failure> {
    let now = app.engine.clock().now();
    let mut found = app.engine.grants().list(&who).await?;
    found.sort_by_key(|view| (view.state != GrantState::Live, std::cmp::Reverse(view.grant.made_at)));
    let page = GrantsPage { grants: found.iter().map(|view| item(view, now)).collect() };
    Ok(PAGES.page(StatusCode::OK, "grants.html", &Site::of(&who, &token), &page))
}

fn item(view: &GrantView, now: Timestamp) -> GrantItem {
    let of = &view.grant.proposal;
    let (status, tone) = match &view.state {
        GrantState::Live => ("Live", "works"),
        GrantState::UsedUp => ("Used up", "over"),
        GrantState::Expired => ("Expired", "over"),
        GrantState::Revoked(_) => ("Revoked", "bad"),
        GrantState::SchemaChanged => ("Ended: the tool has changed", "bad"),
        GrantState::RuleChanged => ("Ended: a rule has changed", "bad"),
    };
    let revoked = if let GrantState::Revoked(revoked) = &view.state { revoked.as_ref() } else { None };
    let revoked_by = revoked.map(|revoked| revoked.by.to_string());
    let names: Vec<&str> = view.grant.approved_by.iter().map(standfast_core::name::UserId::as_str).collect();
    GrantItem {
        id: view.grant.id.to_string(),
        tool: of.tool.to_string(),
        agent: of.agent.to_string(),
        owner: of.owner.to_string(),
        hold: view.hold.to_string(),
        status,
        tone,
        is_live: view.state == GrantState::Live,
        used: view.used,
        uses: of.uses,
        used_by: view.used_by.iter().map(ToString::to_string).collect(),
        lines: lines(of),
        approved_by: names.join(", "),
        made: ShownInstant::new(view.grant.made_at, now),
        until: ShownInstant::new(of.until, now),
        revoked_by,
    }
}

async fn revoke(
    State(app): State<App>,
    Extension(who): CallerOf,
    Segment(id): Segment,
    _posted: PostedForm,
) -> Result<Response, Failure> {
    let id = GrantId::new(id).map_err(|_| Failure::not_found())?;
    app.engine.grants().revoke(&who, &id).await?;
    Ok(see_other("/grants"))
}

fn no_grant(error: GrantError) -> Failure {
    match error {
        GrantError::Engine(error) => error.into(),
        other @ (GrantError::Refused(_)
        | GrantError::Elsewhere
        | GrantError::Quorum
        | GrantError::TooMany
        | GrantError::TooLong
        | GrantError::NoKey) => {
            let text = format!("{other}. Nothing was decided.");
            Failure::new(StatusCode::CONFLICT, "No standing approval", &text)
        }
    }
}

/// Where a hold page leads to for further calls like this one; none where there would be no rule.
pub(super) async fn offer_of(
    app: &App,
    who: &Principal,
    view: &HoldView,
    snapshot: &Snapshot,
) -> Option<String> {
    let settings = app.engine.settings();
    let agent = settings.configured_or_built_in(&view.row.agent);
    let takes = agent.is_some_and(|agent| agent.rules.takes_grants());
    if !takes || !view.may_decide || view.row.closed.is_some() {
        return None;
    }
    let id = view.row.id;
    app.engine.grants().propose_on(who, id, &GrantRequest::default(), snapshot).await.ok()?;
    Some(format!("/approve/{id}/grant"))
}

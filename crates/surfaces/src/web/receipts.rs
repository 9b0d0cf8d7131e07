//! Receipts as pages made for printing: what was asked for and shown, by which rule, grant or votes, who decided, what ran, and what
//! came of it.
//!
//! Everything on it is from the log, with its place there; the same as JSON is the API's. How the log is proven is `standfast audit
//! verify`.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use serde::Serialize;
use standfast_core::actor::Actor;
use standfast_core::body::Body;
use standfast_core::event::{Envelope, Event};
use standfast_core::grant::GrantUse;
use standfast_core::id::CallNo;
use standfast_core::message::{PolicyVerdict, ToolResult};
use standfast_core::name::{GrantId, RuleId};
use standfast_core::policy::Effect;
use standfast_core::receipt::{Attempt, Receipt};
use standfast_core::time::Timestamp;
use standfast_engine::{EngineError, Snapshot};

use super::pages::ShownInstant;
use super::routes::{Browser, CallerOf, PAGES, hold_id, run_id};
use crate::html::{Failure, Site};
use crate::http::{App, Segment};
use crate::labels;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/approve/{hold}/receipt", get(of_hold))
        .route("/runs/{run}/calls/{call}/receipt", get(of_call))
}

#[derive(Debug, Serialize)]
struct ReceiptPage {
    run: String,
    hold: Option<String>,
    title: String,
    made: ShownInstant,
    json: String,
    asked: Option<AskedRow>,
    shown: Vec<RevisionRow>,
    votes: Vec<VoteRow>,
    decision: Option<DecisionRow>,
    effect: Option<&'static str>,
    attempts: Vec<AttemptRow>,
    ended: Option<EndedRow>,
    contradictions: Vec<String>,
    events: String,
    head: String,
    seq: u64,
}

#[derive(Debug, Serialize)]
struct AskedRow {
    seq: u64,
    at: ShownInstant,
    by: String,
    tool: String,
    arguments: String,
    digest: Option<String>,
    judged: Option<String>,
    grant_use: Option<String>,
}

#[derive(Debug, Serialize)]
struct RevisionRow {
    seq: u64,
    at: ShownInstant,
    by: String,
    revision: u32,
    arguments: Option<String>,
    digest: Option<String>,
    rules: String,
    policy: Option<String>,
    reason: Option<String>,
    because: Vec<String>,
    /// What read-only calls said that were made before.
    findings: Vec<String>,
    demands: Vec<String>,
}

#[derive(Debug, Serialize)]
struct VoteRow {
    seq: u64,
    at: ShownInstant,
    by: String,
    in_place_of: Option<String>,
    rules: String,
    revision: u32,
}

#[derive(Debug, Serialize)]
struct DecisionRow {
    seq: u64,
    at: ShownInstant,
    by: String,
    in_place_of: Option<String>,
    what: String,
    said: Option<String>,
    late: bool,
    digest: Option<String>,
    grant: Option<String>,
}

#[derive(Debug, Serialize)]
struct AttemptRow {
    seq: u64,
    at: ShownInstant,
    no: u32,
    node: String,
    digest: Option<String>,
    /// What policy said directly before, where that is not what it said when it was asked for.
    judged: Option<String>,
    grant_use: Option<String>,
    /// What was said of it when nobody knew whether it had its effect.
    reconciled: Option<String>,
    effects: Vec<String>,
    takes: Vec<String>,
}

/// How a call ended.
#[derive(Debug, Serialize)]
struct EndedRow {
    seq: u64,
    at: ShownInstant,
    what: &'static str,
}

async fn of_hold(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Segment(id): Segment,
) -> Result<Response, Failure> {
    let id = hold_id(&id)?;
    let reads = app.engine.reads();
    let snapshot = reads.snapshot(&who, id.run).await?;
    let receipt = reads.receipt_in(&snapshot, id).await?;
    let json = format!("/api/v1/holds/{id}/receipt");
    let log = snapshot.log().await.map_err(EngineError::Store)?;
    let page = page(&receipt, json, (&snapshot, log), app.engine.clock().now());
    Ok(PAGES.page(StatusCode::OK, "receipt.html", &Site::of(&who, &token), &page))
}

async fn of_call(
    State(app): State<App>,
    Extension(who): CallerOf,
    Extension(token): Browser,
    Path((run, call)): Path<(String, String)>,
) -> Result<Response, Failure> {
    let run = run_id(&run)?;
    let no: u32 = call.parse().map_err(|_| Failure::not_found())?;
    let snapshot = app.engine.reads().snapshot(&who, run).await?;
    let receipt = snapshot.call_receipt(CallNo(no)).await?;
    let json = format!("/api/v1/runs/{run}/calls/{no}/receipt");
    let log = snapshot.log().await.map_err(EngineError::Store)?;
    let page = page(&receipt, json, (&snapshot, log), app.engine.clock().now());
    Ok(PAGES.page(StatusCode::OK, "receipt.html", &Site::of(&who, &token), &page))
}

fn page(
    receipt: &Receipt,
    json: String,
    (snapshot, log): (&Snapshot, &[Envelope]),
    now: Timestamp,
) -> ReceiptPage {
    let run = snapshot.id();
    let at = |instant: Timestamp| ShownInstant::new(instant, now);
    let tool = receipt.asked.as_ref().map(|asked| asked.tool.to_string());
    let hold = receipt.hold.map(|key| standfast_core::id::HoldId { run, key }.to_string());
    ReceiptPage {
        run: run.to_string(),
        hold,
        title: tool.unwrap_or_else(|| "the run".into()),
        made: at(now),
        json,
        asked: receipt.asked.as_ref().map(|asked| AskedRow {
            seq: asked.seq.0,
            at: at(asked.at),
            by: match &asked.by {
                // A node wrote it down; who asked is the agent, by its model.
                Actor::Node(_) => format!("agent {}", snapshot.run().facts.agent),
                Actor::Person(_)
                | Actor::Link(_)
                | Actor::Client(_)
                | Actor::Callback(_)
                | Actor::Outside(_)
                | Actor::Clock => labels::actor(&asked.by),
            },
            tool: asked.tool.to_string(),
            arguments: text(&asked.arguments),
            digest: asked.digest.map(|digest| digest.to_string()),
            judged: asked.judged.as_ref().map(judged),
            grant_use: asked
                .grant_use
                .as_ref()
                .map(|used| self::used(used, asked.judged.as_ref().and_then(|judged| judged.grant.as_ref()))),
        }),
        shown: receipt.shown.iter().map(|shown| shown_row(shown, now)).collect(),
        votes: receipt
            .votes
            .iter()
            .map(|vote| VoteRow {
                seq: vote.seq.0,
                at: at(vote.at),
                by: vote.by.to_string(),
                in_place_of: vote.in_place_of.as_ref().map(ToString::to_string),
                rules: names(&vote.counts_for),
                revision: vote.revision,
            })
            .collect(),
        decision: receipt.decision.as_ref().map(|decision| {
            let how = standfast_core::project::ResolutionKind::from(&decision.resolution);
            let said = labels::decided(&decision.resolution);
            DecisionRow {
                seq: decision.seq.0,
                at: at(decision.at),
                by: labels::actor(&decision.by),
                in_place_of: decision.in_place_of.as_ref().map(ToString::to_string),
                what: labels::decision(receipt.kind, how).to_owned(),
                said: said.map(|said| said.text),
                late: decision.late,
                digest: decision.digest.map(|digest| digest.to_string()),
                grant: decision.grant.as_ref().map(|grant| {
                    let until = ShownInstant::new(grant.until, now);
                    let calls = if grant.uses == 1 { "call" } else { "calls" };
                    format!("{} (at most {} further {calls}, until {})", grant.id, grant.uses, until.text())
                }),
            }
        }),
        effect: receipt.call.as_ref().map(labels::effect),
        attempts: receipt
            .call
            .iter()
            .flat_map(|call| &call.attempts)
            .map(|attempt| attempt_row(attempt, receipt, now))
            .collect(),
        ended: ended(receipt, log, now),
        contradictions: receipt
            .call
            .iter()
            .flat_map(|call| &call.contradictions)
            .map(|one| {
                format!("{} reported a result of attempt {} anyway", labels::actor(&one.by), one.attempt)
            })
            .collect(),
        events: receipt.events.iter().map(|seq| seq.0.to_string()).collect::<Vec<_>>().join(", "),
        head: snapshot.head().to_string(),
        seq: snapshot.run().state.seq.0,
    }
}

fn attempt_row(attempt: &Attempt, receipt: &Receipt, now: Timestamp) -> AttemptRow {
    let asked = receipt.asked.as_ref().and_then(|asked| asked.judged.as_ref());
    let named = [asked, Some(&attempt.judged)].into_iter().flatten().find_map(|judged| judged.grant.as_ref());
    AttemptRow {
        seq: attempt.seq.0,
        at: ShownInstant::new(attempt.at, now),
        no: attempt.attempt,
        node: attempt.node.to_string(),
        digest: attempt.digest.map(|digest| digest.to_string()),
        judged: (asked != Some(&attempt.judged)).then(|| judged(&attempt.judged)),
        grant_use: attempt.grant_use.as_ref().map(|used| self::used(used, named)),
        reconciled: attempt
            .reconciled
            .as_deref()
            .map(|found| format!("{} ({})", found.sentence(), found.finding.result)),
        effects: attempt.effects.iter().map(|claim| format!("{} ({})", claim.key, claim.no)).collect(),
        takes: attempt
            .takes
            .iter()
            .map(|take| format!("{} of {} ({}, for {})", take.amount, take.account, take.no, take.window))
            .collect(),
    }
}

/// How the last start of a call ended; none where nothing was started.
fn ended(receipt: &Receipt, log: &[Envelope], now: Timestamp) -> Option<EndedRow> {
    let call = receipt.call.as_ref().filter(|call| !call.attempts.is_empty())?;
    log.iter().rev().find_map(|envelope| match &envelope.event {
        Event::CallFinished(finished) if finished.call == call.no => Some(EndedRow {
            seq: envelope.seq.0,
            at: ShownInstant::new(envelope.at, now),
            what: match (&finished.refused, &finished.result) {
                (Some(_), _) => "blocked by a rule",
                (None, ToolResult::Ok(_)) => "succeeded",
                (None, ToolResult::Failed(_)) => "failed",
            },
        }),
        _ => None,
    })
}

fn shown_row(shown: &standfast_core::receipt::ShownRevision, now: Timestamp) -> RevisionRow {
    RevisionRow {
        seq: shown.seq.0,
        at: ShownInstant::new(shown.at, now),
        by: labels::actor(&shown.by),
        revision: shown.revision,
        arguments: shown.arguments.as_ref().map(text),
        digest: shown.digest.map(|digest| digest.to_string()),
        rules: names(&shown.rules),
        policy: shown.policy.map(|policy| policy.to_string()),
        reason: shown.ask.reason.clone(),
        because: shown.ask.stakes.because.clone(),
        findings: shown
            .ask
            .stakes
            .findings
            .iter()
            .map(|found| {
                format!("{} {}: {} (digest {})", found.tool, found.arguments, found.result, found.digest)
            })
            .collect(),
        demands: shown
            .demands
            .iter()
            .map(|demand| {
                let who = demand.approvers.as_ref().map_or_else(
                    || "whoever the agent says".to_owned(),
                    |all| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or "),
                );
                format!("{}: {} of {who}", demand.rule, demand.quorum.max(1))
            })
            .collect(),
    }
}

fn text(body: &Body) -> String {
    body.inline().unwrap_or("a large value, which the log has by its digest").to_owned()
}

/// A use of a standing approval, with its id unless that stands beside it.
fn used(used: &GrantUse, named: Option<&GrantId>) -> String {
    if named == Some(&used.grant) {
        format!("use {}", used.no)
    } else {
        format!("{}, use {}", used.grant, used.no)
    }
}

/// What the policy said. The rules that a standing approval answers have held the call.
fn judged(verdict: &PolicyVerdict) -> String {
    let rules = names(&verdict.rules);
    if let Some(grant) = &verdict.grant {
        return format!("held by {rules}, answered by standing approval {grant}");
    }
    let effect = match verdict.effect {
        Effect::Allow => "allowed",
        Effect::Hold => "held",
        Effect::Deny => "denied",
    };
    format!("{effect} by {rules}")
}

fn names(rules: &[RuleId]) -> String {
    rules.iter().map(RuleId::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A standing approval answers the rules that hold a call; those do not allow it.
    #[test]
    fn a_standing_approval_answers_rules_that_hold() {
        let mut verdict: PolicyVerdict = serde_json::from_value(
            serde_json::json!({"effect": "allow", "rules": ["tool:requires_approval"]}),
        )
        .unwrap();
        assert_eq!(judged(&verdict), "allowed by tool:requires_approval");
        let grant = GrantId::new("grant_a").unwrap();
        verdict.grant = Some(grant.clone());
        assert_eq!(judged(&verdict), "held by tool:requires_approval, answered by standing approval grant_a");
        let use_of_it = GrantUse { grant: grant.clone(), no: 2 };
        assert_eq!(used(&use_of_it, None), "grant_a, use 2");
        assert_eq!(used(&use_of_it, Some(&grant)), "use 2");
    }
}

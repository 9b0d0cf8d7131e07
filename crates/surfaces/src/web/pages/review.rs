//! Several holds on one page, each with what it decides, before they are decided together; and what came of it.
//!
//! Approvals only: anything else needs an answer of its own and is listed with a link.

use serde::Serialize;
use standfast_core::time::Timestamp;
use standfast_engine::HoldView;
use standfast_engine::tool::preview::CallPreview;

use super::call::{self, CallShown, RiskShown};
use super::{ShownInstant, waiting};
use crate::labels;

/// The page.
#[derive(Debug, Serialize)]
pub(in crate::web) struct ReviewPage {
    pub(in crate::web) items: Vec<ReviewItem>,
    /// How many of them can be decided here.
    pub(in crate::web) open: usize,
    /// Among those, how many are known to be destructive.
    pub(in crate::web) destructive: usize,
    /// The list that they were chosen from.
    pub(in crate::web) queue: String,
    /// Whether a decision was just tried.
    pub(in crate::web) is_result: bool,
}

/// One of them.
#[derive(Debug, Serialize)]
pub(in crate::web) struct ReviewItem {
    pub(in crate::web) id: String,
    kind: &'static str,
    title: String,
    agent: String,
    opened: ShownInstant,
    reason: Option<String>,
    risk: Option<RiskShown>,
    shown: Option<CallShown>,
    digest: String,
    revision: u32,
    /// What it was decided as.
    decided: Option<String>,
    /// Whether it can be decided together with others.
    pub(in crate::web) is_open: bool,
    /// Why it cannot.
    why_not: Option<&'static str>,
    /// What went wrong with the decision that was just tried.
    pub(in crate::web) failure: Option<String>,
}

pub(in crate::web) fn item(view: &HoldView, preview: Option<CallPreview>, now: Timestamp) -> ReviewItem {
    let row = &view.row;
    let is_approval = row.kind == standfast_core::hold::HoldKind::Approval;
    let why_not = match (row.closed.is_some(), is_approval, view.may_decide) {
        (true, _, _) => None,
        (false, false, _) => Some("It needs an answer of its own."),
        (false, true, false) => Some("You are not one of its approvers."),
        (false, true, true) => None,
    };
    let decided = row.closed.as_ref().map(|closed| {
        format!("{} by {}", labels::decision(Some(row.kind), closed.how), labels::actor(&closed.by))
    });
    ReviewItem {
        id: row.id.to_string(),
        kind: labels::kind(row.kind),
        title: waiting::title(view),
        agent: row.agent.to_string(),
        opened: ShownInstant::new(row.opened_at, now),
        reason: view.ask.reason.clone(),
        risk: call::risk(view.risk),
        shown: call::shown(view, preview, now),
        digest: row.digest.map(|digest| digest.to_string()).unwrap_or_default(),
        revision: row.revision,
        is_open: row.closed.is_none() && is_approval && view.may_decide,
        decided,
        why_not,
        failure: None,
    }
}

impl ReviewPage {
    pub(in crate::web) fn of(items: Vec<ReviewItem>, queue: String) -> ReviewPage {
        let is_destructive = |item: &&ReviewItem| {
            item.is_open && item.risk.as_ref().is_some_and(|risk| risk.word == "destructive")
        };
        ReviewPage {
            open: items.iter().filter(|item| item.is_open).count(),
            destructive: items.iter().filter(is_destructive).count(),
            items,
            queue,
            is_result: false,
        }
    }
}

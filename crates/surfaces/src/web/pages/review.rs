//! Several holds on one page, each with what it decides, before they are decided together; and what came of it.
//!
//! Approvals are decided together, with one button. A question has the form of its answer here; what needs more room than that
//! is listed with a link.

use serde::Serialize;
use standfast_core::event::Envelope;
use standfast_core::hold::HoldKind;
use standfast_core::name::UserId;
use standfast_core::run::Run;
use standfast_core::time::Timestamp;
use standfast_engine::HoldView;
use standfast_engine::tool::preview::CallPreview;

use super::ShownInstant;
use super::call::{self, CallShown, RiskShown};
use super::context::{self, Conversation};
use super::hold::readable;
use super::stakes::{self, Stakes};
use crate::labels;
use crate::labels::hidden_characters::count_hidden;
use crate::web::media::FileAccess;
use crate::web::widget::{self, Widget, WidgetFailure, WidgetParts};

/// The page.
#[derive(Debug, Serialize)]
pub(in crate::web) struct ReviewPage {
    pub(in crate::web) items: Vec<ReviewItem>,
    /// How many of them can be decided here.
    pub(in crate::web) open: usize,
    /// Among those, why no single key approves them.
    pub(in crate::web) needs_care: Option<&'static str>,
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
    owner: String,
    run: String,
    conversation: Conversation,
    /// How many hidden characters it shows as marks.
    hidden: usize,
    opened: ShownInstant,
    stakes: Stakes,
    risk: Option<RiskShown>,
    shown: Option<CallShown>,
    needs_care: Option<&'static str>,
    digest: String,
    revision: u32,
    /// What it was decided as.
    decided: Option<String>,
    /// Whether it can be decided together with others.
    pub(in crate::web) is_open: bool,
    /// Where its answer is given.
    widget: Option<Widget>,
    /// Why it cannot.
    why_not: Option<String>,
    /// What went wrong with the decision that was just tried.
    pub(in crate::web) failure: Option<String>,
}

/// A review as its address names it, and the answer in it that was just tried.
pub(in crate::web) struct ReviewParts<'a> {
    /// Its holds and the list that they are from, as an address has them.
    pub(in crate::web) query: &'a str,
    pub(in crate::web) tried: Option<&'a WidgetFailure>,
    /// Who looks.
    pub(in crate::web) who: &'a UserId,
    pub(in crate::web) now: Timestamp,
}

/// The run of one of them, and what was said before in it.
pub(in crate::web) struct ReviewedRun<'a> {
    pub(in crate::web) run: &'a Run,
    pub(in crate::web) log: &'a [Envelope],
    /// How the run at the top began, of a sub-run.
    pub(in crate::web) root: &'a [Envelope],
}

pub(in crate::web) fn item(
    ReviewedRun { run, log, root }: ReviewedRun<'_>,
    view: &HoldView,
    preview: Option<CallPreview>,
    review: &ReviewParts<'_>,
) -> ReviewItem {
    let (row, now) = (&view.row, review.now);
    let is_approval = row.kind == HoldKind::Approval;
    let is_question = row.kind == HoldKind::Input && view.ask.child.is_none();
    let why_not = match (row.closed.is_some(), view.may_decide) {
        (true, _) => None,
        (false, false) => {
            let why = view.why_not.as_ref().map(ToString::to_string);
            Some(format!(
                "You may not decide it: {}.",
                why.unwrap_or_else(|| "you are not one of its approvers".into())
            ))
        }
        (false, true) if view.needs_sign_in.is_some() => {
            Some("Approving it needs a more recent sign-in.".to_owned())
        }
        (false, true) if is_approval || is_question => None,
        (false, true) => Some("It needs a page of its own.".to_owned()),
    };
    let conversation = context::conversation(run, view, log, root);
    let may_answer = view.may_decide && view.needs_sign_in.is_none();
    let widget = (is_question && row.closed.is_none() && may_answer).then(|| {
        let action = format!("/review/{}?{}", row.id, review.query);
        let (files, said_before) = (FileAccess::Open, conversation.hidden());
        let parts =
            WidgetParts { view, action, now, tried: review.tried, who: review.who, files, said_before };
        widget::widget(parts, None)
    });
    let decided = row.closed.as_ref().map(|closed| {
        format!("{} by {}", labels::decision(Some(row.kind), closed.how), labels::actor(&closed.by))
    });
    let stakes = Stakes::of(view, review.who, now);
    let arguments = view.arguments.as_ref().map_or(0, |json| count_hidden(&readable(json.text())));
    let shown = call::shown(view, preview, FileAccess::Open, now);
    let in_files = shown.as_ref().map_or(0, |shown| shown.hidden_in_files);
    let hidden = arguments + in_files + stakes.hidden() + conversation.hidden();
    ReviewItem {
        id: row.id.to_string(),
        kind: call::kind(view),
        title: stakes::title(view),
        agent: row.agent.to_string(),
        owner: run.facts.owner.to_string(),
        run: row.id.run.to_string(),
        conversation,
        hidden,
        opened: ShownInstant::new(row.opened_at, now),
        stakes,
        risk: call::risk(view.risk),
        needs_care: call::care(view.risk, hidden),
        shown,
        digest: row.digest.map(|digest| digest.to_string()).unwrap_or_default(),
        revision: row.revision,
        is_open: row.closed.is_none() && is_approval && view.may_decide && view.needs_sign_in.is_none(),
        decided,
        why_not,
        widget,
        failure: None,
    }
}

impl ReviewItem {
    /// Whether it has a form of its own.
    pub(in crate::web) fn has_form(&self) -> bool {
        self.widget.is_some()
    }
}

impl ReviewPage {
    pub(in crate::web) fn of(items: Vec<ReviewItem>, queue: String) -> ReviewPage {
        let is_destructive = |item: &&ReviewItem| {
            item.is_open && item.risk.as_ref().is_some_and(|risk| risk.word == "destructive")
        };
        ReviewPage {
            needs_care: items.iter().filter(|item| item.is_open).filter_map(|item| item.needs_care).min(),
            open: items.iter().filter(|item| item.is_open).count(),
            destructive: items.iter().filter(is_destructive).count(),
            items,
            queue,
            is_result: false,
        }
    }
}

//! What is pending (S4-17, S4-26), and a form to start something.
//!
//! Oldest first, as it is answered; each item says enough to choose it, and its own page everything.

use serde::Serialize;
use standfast_core::body::Body;
use standfast_core::hold::HoldKind;
use standfast_core::time::Timestamp;
use standfast_engine::HoldView;
use standfast_engine::settings::Settings;

use super::ShownInstant;
use crate::labels;

/// Characters of a summary.
const SUMMARY_MAX: usize = 160;

/// Every kind under the word that addresses use.
pub(in crate::web) const KINDS: [(&str, &str, HoldKind); 5] = [
    ("approval", "Approvals", HoldKind::Approval),
    ("input", "Questions", HoldKind::Input),
    ("recovery", "Unknown outcomes", HoldKind::Recovery),
    ("external", "External jobs", HoldKind::External),
    ("auth", "Logins", HoldKind::Auth),
];

/// The page.
#[derive(Debug, Serialize)]
pub(in crate::web) struct WaitingPage {
    pub(in crate::web) filters: Vec<Filter>,
    pub(in crate::web) items: Vec<Item>,
    /// The address of the next page.
    pub(in crate::web) next: Option<String>,
    /// Whom something can be asked of.
    pub(in crate::web) agents: Vec<String>,
}

/// A link that shows one kind.
#[derive(Debug, Serialize)]
pub(in crate::web) struct Filter {
    label: &'static str,
    href: String,
    is_current: bool,
}

/// Something that waits.
#[derive(Debug, Serialize)]
pub(in crate::web) struct Item {
    id: String,
    kind: &'static str,
    kind_word: &'static str,
    title: String,
    reason: Option<String>,
    summary: Option<String>,
    agent: String,
    opened: ShownInstant,
    expires: Option<ShownInstant>,
    is_late: bool,
    assignee: Option<String>,
}

pub(in crate::web) fn filters(current: Option<HoldKind>) -> Vec<Filter> {
    let all = Filter { label: "All", href: "/".into(), is_current: current.is_none() };
    let of_kind = KINDS.iter().map(|(word, label, kind)| Filter {
        label,
        href: format!("/?kind={word}"),
        is_current: current == Some(*kind),
    });
    std::iter::once(all).chain(of_kind).collect()
}

pub(in crate::web) fn agents(settings: &Settings) -> Vec<String> {
    settings.agents.keys().map(ToString::to_string).collect()
}

pub(in crate::web) fn item(view: &HoldView, now: Timestamp) -> Item {
    let row = &view.row;
    let tool = row.tool.as_ref().map_or_else(|| "the run".to_owned(), ToString::to_string);
    let question = view.ask.question.as_ref().and_then(Body::inline).map(str::to_owned);
    let arguments = view.arguments.as_ref().map(|arguments| shortened(arguments.text()));
    let (title, summary) = match row.kind {
        HoldKind::Approval => (format!("Approve {tool}?"), arguments),
        HoldKind::Input => (question.unwrap_or_else(|| "The agent asks for input".into()), None),
        HoldKind::External => (question.unwrap_or_else(|| format!("Waiting for the result of {tool}")), None),
        HoldKind::Auth => (question.unwrap_or_else(|| format!("{tool} needs a login")), None),
        HoldKind::Recovery => (format!("Did {tool} take effect?"), arguments),
    };
    let (word, ..) = KINDS[KINDS.iter().position(|(.., kind)| *kind == row.kind).unwrap_or_default()];
    Item {
        id: row.id.to_string(),
        kind: labels::kind(row.kind),
        kind_word: word,
        title: shortened(&title),
        reason: view.ask.reason.as_deref().map(shortened),
        summary,
        agent: row.agent.to_string(),
        opened: ShownInstant::new(row.opened_at, now),
        expires: row.expires_at.map(|at| ShownInstant::new(at, now)),
        is_late: row.expires_at.is_some_and(|at| at <= now),
        assignee: row.assignee.as_ref().map(ToString::to_string),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SUMMARY_MAX) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text.to_owned(),
    }
}

//! What is pending (S4-17, S4-26): filters, a search, pages forwards and back, several at once; and a form to start something.
//!
//! Each item says enough to choose it, and its own page everything. Filters live in the address.

use serde::Serialize;
use standfast_core::body::Body;
use standfast_core::hold::HoldKind;
use standfast_core::json::RawJson;
use standfast_core::time::Timestamp;
use standfast_engine::settings::Settings;
use standfast_engine::{HoldView, HoldsFound};

use super::ShownInstant;
use super::call::{self, RiskShown};
use super::stakes;
use crate::http::filters::{DEADLINES, KINDS, PendingFilters, RISKS, encoded};
use crate::web::fields::Members;

/// Characters of a summary.
const SUMMARY_MAX: usize = 160;
/// Cursors that an address carries for the way back.
const BACK_MAX: usize = 50;

/// The page.
#[derive(Debug, Serialize)]
pub(in crate::web) struct WaitingPage {
    pub(in crate::web) kinds: Vec<KindLink>,
    /// How many there are of every kind.
    pub(in crate::web) total: u64,
    /// Stands behind the numbers where more were not counted.
    pub(in crate::web) more: &'static str,
    pub(in crate::web) filters: FilterForm,
    pub(in crate::web) items: Vec<Item>,
    /// The filters as they stand in an address; with the place in the list as one value of another, and as they stand there.
    pub(in crate::web) query: String,
    pub(in crate::web) queue: String,
    pub(in crate::web) place: String,
    pub(in crate::web) pager: Pager,
    /// Whom something can be asked of.
    pub(in crate::web) agents: Vec<String>,
}

/// Where to go on, and back.
#[derive(Debug, Default, Serialize)]
pub(in crate::web) struct Pager {
    pub(in crate::web) next: Option<String>,
    pub(in crate::web) back: Option<String>,
    pub(in crate::web) first: Option<String>,
}

/// A link that shows one kind, with how many there are.
#[derive(Debug, Serialize)]
pub(in crate::web) struct KindLink {
    label: &'static str,
    href: String,
    is_current: bool,
    /// None where a filter leaves out some of them.
    count: Option<u64>,
}

/// What the filters are set to, and can be set to.
#[derive(Debug, Serialize)]
pub(in crate::web) struct FilterForm {
    q: String,
    kind: String,
    agent: String,
    tool: String,
    session: String,
    owner: String,
    risk: String,
    deadline: String,
    mine: bool,
    sort: String,
    is_filtered: bool,
    tools: Vec<String>,
    risks: Vec<(&'static str, &'static str)>,
    deadlines: Vec<(&'static str, &'static str)>,
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
    owner: String,
    opened: ShownInstant,
    expires: Option<ShownInstant>,
    is_late: bool,
    assignee: Option<String>,
    risk: Option<RiskShown>,
    may_decide: bool,
    /// Whether it can be decided on one page with others.
    is_selectable: bool,
}

impl Pager {
    /// The ways on and back of a list at this place. `back` has the cursors of the pages before, the nearest last.
    pub(in crate::web) fn of(path: &str, query: &str, at: (&str, &str), next: Option<u64>) -> Pager {
        let (cursor, back) = at;
        let address = |cursor: &str, back: &str| {
            let place = crate::http::filters::written(&[("cursor", cursor), ("back", back)]);
            let all: Vec<&str> =
                [query, place.as_str()].into_iter().filter(|part| !part.is_empty()).collect();
            match all.as_slice() {
                [] => path.to_owned(),
                all => format!("{path}?{}", all.join("&")),
            }
        };
        let before: Vec<&str> = back.split('.').filter(|part| !part.is_empty()).collect();
        let behind = |last: &str| {
            let all: Vec<&str> = before.iter().copied().chain([last]).collect();
            all[all.len().saturating_sub(BACK_MAX)..].join(".")
        };
        // The first page has no cursor; 0 stands for it.
        let here = if cursor.is_empty() { "0" } else { cursor };
        let previous = before.split_last().map(|(last, rest)| {
            let last = if *last == "0" { "" } else { *last };
            address(last, &rest.join("."))
        });
        Pager {
            next: next.map(|next| address(&next.to_string(), &behind(here))),
            back: previous,
            first: (!cursor.is_empty()).then(|| address("", "")),
        }
    }
}

pub(in crate::web) fn page(
    filters: &PendingFilters,
    found: &HoldsFound,
    (counts, is_cut): (&[(HoldKind, u64)], bool),
    settings: &Settings,
    now: Timestamp,
) -> WaitingPage {
    let query = filters.query();
    let total = counts.iter().map(|(_, count)| count).sum();
    WaitingPage {
        kinds: kinds(filters, counts),
        total,
        more: if is_cut { "+" } else { "" },
        filters: form(filters, settings),
        items: found.items.iter().map(|view| item(view, now)).collect(),
        queue: encoded(&filters.place()),
        place: filters.place(),
        pager: Pager::of("/", &query, (&filters.cursor, &filters.back), found.next),
        query,
        agents: settings.agents.keys().map(ToString::to_string).collect(),
    }
}

/// The other filters stay when another kind is chosen.
fn kinds(filters: &PendingFilters, counts: &[(HoldKind, u64)]) -> Vec<KindLink> {
    // What is counted is everything that is pending; a filter shows fewer.
    let is_counted = !PendingFilters { kind: String::new(), ..filters.clone() }.is_filtered();
    let link = |word: &str, label: &'static str, count: u64| {
        let query = PendingFilters { kind: word.to_owned(), ..filters.clone() }.query();
        let href = if query.is_empty() { "/".to_owned() } else { format!("/?{query}") };
        KindLink { label, href, is_current: filters.kind == word, count: is_counted.then_some(count) }
    };
    let of = |kind: HoldKind| counts.iter().find(|(known, _)| *known == kind).map_or(0, |(_, count)| *count);
    let all = link("", "All", counts.iter().map(|(_, count)| count).sum());
    std::iter::once(all).chain(KINDS.iter().map(|(word, label, kind)| link(word, label, of(*kind)))).collect()
}

fn form(filters: &PendingFilters, settings: &Settings) -> FilterForm {
    let mut tools: Vec<String> =
        settings.agents.values().flat_map(|agent| agent.tools.keys()).map(ToString::to_string).collect();
    tools.sort();
    tools.dedup();
    FilterForm {
        q: filters.q.clone(),
        kind: filters.kind.clone(),
        agent: filters.agent.clone(),
        tool: filters.tool.clone(),
        session: filters.session.clone(),
        owner: filters.owner.clone(),
        risk: filters.risk.clone(),
        deadline: filters.deadline.clone(),
        mine: filters.mine == "1",
        sort: filters.sort.clone(),
        is_filtered: filters.is_filtered(),
        tools,
        risks: RISKS.map(|(word, label, _)| (word, label)).to_vec(),
        deadlines: DEADLINES.to_vec(),
    }
}

pub(in crate::web) fn item(view: &HoldView, now: Timestamp) -> Item {
    let (row, title) = (&view.row, stakes::title(view));
    let question = view.ask.question.as_ref().and_then(Body::inline).filter(|question| *question != title);
    let summary = match row.kind {
        HoldKind::Approval | HoldKind::Recovery => arguments(view),
        HoldKind::Input | HoldKind::External | HoldKind::Auth => question.map(shortened),
    };
    let (word, ..) = KINDS[KINDS.iter().position(|(.., kind)| *kind == row.kind).unwrap_or_default()];
    Item {
        id: row.id.to_string(),
        kind: call::kind(view),
        kind_word: word,
        title: shortened(&title),
        reason: view.ask.reason.as_deref().map(shortened),
        summary,
        agent: row.agent.to_string(),
        owner: view.owner.to_string(),
        opened: ShownInstant::new(row.opened_at, now),
        expires: row.expires_at.map(|at| ShownInstant::new(at, now)),
        is_late: row.expires_at.is_some_and(|at| at <= now),
        assignee: row.assignee.as_ref().map(ToString::to_string),
        risk: call::risk(view.risk),
        may_decide: view.may_decide,
        is_selectable: view.may_decide && matches!(row.kind, HoldKind::Approval | HoldKind::Input),
    }
}

/// The arguments of a call, in a line.
fn arguments(view: &HoldView) -> Option<String> {
    view.arguments.as_ref().map(|json| shortened(&readable(json.text())))
}

/// What was asked, in a line, where its title is not shown: the arguments of the call, or the question.
pub(in crate::web) fn summary(view: &HoldView) -> Option<String> {
    match view.row.kind {
        HoldKind::Input => Some(shortened(&stakes::title(view))),
        HoldKind::Approval | HoldKind::Recovery | HoldKind::External | HoldKind::Auth => arguments(view),
    }
}

/// The only text of the arguments, where there is one; otherwise each with its name, in their order, with real characters.
pub(in crate::web) fn readable(json: &str) -> String {
    let Ok(Members(members)) = serde_json::from_str::<Members>(json) else { return json.to_owned() };
    let text = |value: &RawJson| {
        serde_json::from_str::<String>(value.text()).unwrap_or_else(|_| with_real_characters(value.text()))
    };
    match members.as_slice() {
        [] => json.to_owned(),
        [(_, only)] => text(only),
        several => {
            let all = several.iter().map(|(name, value)| format!("{name}: {}", text(value)));
            all.collect::<Vec<String>>().join(" · ")
        }
    }
}

/// JSON whose escapes of letters are the letters. Quotes, backslashes and control characters stay escaped.
fn with_real_characters(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut left = json;
    while let Some(at) = left.find('\\') {
        out.push_str(&left[..at]);
        // One escape, or the two halves of a character beyond the first plane.
        let lengths = [12, 6].into_iter().filter_map(|length| left.get(at..at + length));
        let found = lengths.filter(|escape| escape.starts_with("\\u")).find_map(|escape| {
            let text: String = serde_json::from_str(&format!("\"{escape}\"")).ok()?;
            let mut letters = text.chars();
            let letter = letters.next().filter(|letter| letters.next().is_none() && !letter.is_ascii())?;
            Some((letter, escape.len()))
        });
        let length = match found {
            Some((letter, length)) => {
                out.push(letter);
                length
            }
            None => {
                let length = left[at..].char_indices().nth(2).map_or(left.len() - at, |(end, _)| end);
                out.push_str(&left[at..at + length]);
                length
            }
        };
        left = &left[at + length..];
    }
    out.push_str(left);
    out
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SUMMARY_MAX) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_walked_forwards_and_back() {
        let first = Pager::of("/", "kind=input", ("", ""), Some(7));
        assert_eq!(first.next.as_deref(), Some("/?kind=input&cursor=7&back=0"));
        assert_eq!((first.back, first.first), (None, None));
        let second = Pager::of("/", "", ("7", "0"), Some(9));
        assert_eq!(second.next.as_deref(), Some("/?cursor=9&back=0.7"));
        assert_eq!((second.back.as_deref(), second.first.as_deref()), (Some("/"), Some("/")));
        let third = Pager::of("/", "", ("9", "0.7"), None);
        assert_eq!((third.next, third.back.as_deref()), (None, Some("/?cursor=7&back=0")));
        let long = vec!["1"; 50].join(".");
        let far = Pager::of("/", "", ("2", &long), Some(3)).next.unwrap();
        assert_eq!(far.split('.').count(), BACK_MAX);
    }

    /// What is counted is everything that is pending, which a filter makes untrue.
    #[test]
    fn kinds_have_counts_where_no_filter_leaves_out_any() {
        let counted = |filters: PendingFilters| {
            let all = kinds(&filters, &[(HoldKind::Approval, 2), (HoldKind::Input, 1)]);
            all.iter().take(3).map(|link| link.count).collect::<Vec<_>>()
        };
        let of_kind =
            PendingFilters { kind: "input".into(), sort: "deadline".into(), ..PendingFilters::default() };
        assert_eq!(counted(of_kind), [Some(3), Some(2), Some(1)]);
        assert_eq!(counted(PendingFilters { tool: "a".into(), ..PendingFilters::default() }), [None; 3]);
    }

    #[test]
    fn a_summary_is_what_people_read() {
        assert_eq!(readable(r#"{"command": "echo M\u00fcller"}"#), "echo Müller");
        assert_eq!(readable(r#"{"a": 1, "b": "x"}"#), "a: 1 · b: x");
        let nested =
            r#"{"a": {"name": "M\u00fcller \ud83d\ude00 \u0022 \\u00fc \n", "size": 9007199254740993.10}}"#;
        let shown = r#"{"name": "Müller 😀 \u0022 \\u00fc \n", "size": 9007199254740993.10}"#;
        assert_eq!(readable(nested), shown);
        assert_eq!(readable(r#"{"a": [], "b": ["\u00fc"]}"#), "a: [] · b: [\"ü\"]");
    }
}

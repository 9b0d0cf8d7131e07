//! Figures of the last day, week or month, as numbers and as pictures: open holds over time, time to decision by tool and by
//! person, outcomes by tool, expiries.
//!
//! Worked out from the rows of holds; what was not looked at is said.

use std::collections::BTreeMap;

use serde::Serialize;
use standfast_core::actor::Actor;
use standfast_core::project::{HoldRow, ResolutionKind};
use standfast_core::time::{Millis, Timestamp};

use crate::http::filters::{OUTCOMES, chosen};
use crate::http::{Problem, rfc3339};
use crate::labels;
use crate::web::svg::{self, Bar, BarPart};

/// Points of a line.
const POINTS: i64 = 48;
/// Parts of the time that expiries are counted in.
const PARTS: i64 = 24;
/// Bars of a chart; more are not looked at by anybody.
const BARS: usize = 12;
/// The spans that can be chosen.
const SPANS: [(&str, &str, Millis); 3] =
    [("24h", "24 hours", Millis::hours(24)), USUAL, ("30d", "30 days", Millis::hours(30 * 24))];

/// The one that is shown where none is chosen.
const USUAL: (&str, &str, Millis) = ("7d", "7 days", Millis::hours(7 * 24));

/// The span that a word means.
pub(in crate::web) fn span(word: &str) -> Result<Millis, Problem> {
    Ok(chosen("over", word, &SPANS.map(|(word, _, span)| (word, span)))?.unwrap_or(USUAL.2))
}

/// The numbers.
#[derive(Debug, PartialEq, Serialize)]
pub(in crate::web) struct Figures {
    over: String,
    from: String,
    to: String,
    /// There was more than was looked at.
    is_partial: bool,
    /// Of what.
    partial: Partial,
    open_over_time: Vec<OpenAt>,
    open_now: u64,
    decided: usize,
    expired: usize,
    expired_over_time: Vec<ExpiredIn>,
    time_to_decision_by_tool: Vec<Times>,
    time_to_decision_by_person: Vec<Times>,
    outcomes_by_tool: Vec<Outcomes>,
}

#[derive(Debug, PartialEq, Serialize)]
struct OpenAt {
    at: String,
    open: u64,
}

/// How many expired from an instant until the next.
#[derive(Debug, PartialEq, Serialize)]
struct ExpiredIn {
    from: String,
    expired: u64,
}

/// What there was more of than is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(in crate::web) struct Partial {
    /// Only the latest decisions are in the figures.
    pub(in crate::web) decisions: bool,
    /// Only the oldest pending holds are in the line over time.
    pub(in crate::web) open_holds: bool,
}

/// What figures are made of.
pub(in crate::web) struct ChartRows<'a> {
    pub(in crate::web) decided: &'a [HoldRow],
    /// When each of those that are pending was opened.
    pub(in crate::web) open: &'a [Timestamp],
    pub(in crate::web) open_now: u64,
    pub(in crate::web) partial: Partial,
}

/// How long decisions took.
#[derive(Debug, PartialEq, Serialize)]
struct Times {
    name: String,
    decisions: usize,
    p50_ms: i64,
    p95_ms: i64,
}

/// What became of the holds of a tool.
#[derive(Debug, PartialEq, Serialize)]
struct Outcomes {
    tool: String,
    total: u64,
    outcomes: BTreeMap<&'static str, u64>,
}

/// The page.
#[derive(Debug, Serialize)]
pub(in crate::web) struct ChartsPage {
    spans: Vec<SpanLink>,
    over: String,
    open_now: u64,
    decided: usize,
    expired: usize,
    partial: Partial,
    is_empty: bool,
    open: String,
    by_tool: Option<String>,
    by_person: Option<String>,
    outcomes: Option<String>,
    expiries: Option<String>,
    /// What the colours mean.
    legend: Vec<(&'static str, &'static str)>,
}

#[derive(Debug, Serialize)]
struct SpanLink {
    word: &'static str,
    label: &'static str,
    is_current: bool,
}

pub(in crate::web) fn figures(word: &str, over: Millis, now: Timestamp, counted: ChartRows<'_>) -> Figures {
    let ChartRows { decided, open, open_now, partial } = counted;
    let from = Timestamp(now.0.saturating_sub(over.0));
    let closed: Vec<(&HoldRow, Timestamp, ResolutionKind)> = decided
        .iter()
        .filter_map(|row| row.closed.as_ref().map(|closed| (row, closed.at, closed.how)))
        .collect();
    let at = |point: i64| Timestamp(from.0 + over.0 * point / (POINTS - 1));
    let open_at = |at: Timestamp| {
        let still = open.iter().filter(|opened| **opened <= at).count();
        let then = closed.iter().filter(|(row, closed, _)| row.opened_at <= at && *closed > at).count();
        u64::try_from(still + then).unwrap_or(u64::MAX)
    };
    let (mut by_tool, mut by_person) = (BTreeMap::new(), BTreeMap::new());
    let mut outcomes: BTreeMap<String, BTreeMap<&'static str, u64>> = BTreeMap::new();
    for (row, closed_at, how) in &closed {
        let took = closed_at.since(row.opened_at).0;
        let tool = row.tool.as_ref().map_or_else(|| "(the run itself)".to_owned(), ToString::to_string);
        *outcomes.entry(tool.clone()).or_default().entry(word_of(*how)).or_default() += 1;
        if is_decision(*how) {
            by_tool.entry(tool).or_insert_with(Vec::new).push(took);
            if let Some(Actor::Person(user) | Actor::Link(user) | Actor::Client(user)) =
                row.closed.as_ref().map(|closed| &closed.by)
            {
                by_person.entry(user.to_string()).or_insert_with(Vec::new).push(took);
            }
        }
    }
    let mut outcomes: Vec<Outcomes> = outcomes
        .into_iter()
        .map(|(tool, outcomes)| Outcomes { tool, total: outcomes.values().sum(), outcomes })
        .collect();
    outcomes.sort_by_key(|of| std::cmp::Reverse(of.total));
    Figures {
        over: if word.is_empty() { USUAL.0.to_owned() } else { word.to_owned() },
        from: rfc3339(from),
        to: rfc3339(now),
        is_partial: partial.decisions || partial.open_holds,
        partial,
        open_over_time: (0..POINTS).map(at).map(|at| OpenAt { at: rfc3339(at), open: open_at(at) }).collect(),
        open_now,
        decided: closed.iter().filter(|(.., how)| is_decision(*how)).count(),
        expired: closed.iter().filter(|(.., how)| *how == ResolutionKind::Expired).count(),
        expired_over_time: expired_over_time(from, over, &closed),
        time_to_decision_by_tool: times(by_tool),
        time_to_decision_by_person: times(by_person),
        outcomes_by_tool: outcomes,
    }
}

/// How many expired in each of equal parts of the time.
fn expired_over_time(
    from: Timestamp,
    over: Millis,
    closed: &[(&HoldRow, Timestamp, ResolutionKind)],
) -> Vec<ExpiredIn> {
    let at = |part: i64| Timestamp(from.0 + over.0 * part / PARTS);
    let expired = |part: i64| {
        let is_in = |closed: Timestamp| at(part) <= closed && (closed < at(part + 1) || part + 1 == PARTS);
        closed.iter().filter(|(_, closed, how)| *how == ResolutionKind::Expired && is_in(*closed)).count()
    };
    (0..PARTS)
        .map(|part| ExpiredIn {
            from: rfc3339(at(part)),
            expired: u64::try_from(expired(part)).unwrap_or(u64::MAX),
        })
        .collect()
}

/// Somebody decided; it did not merely end.
fn is_decision(how: ResolutionKind) -> bool {
    match how {
        ResolutionKind::Approved
        | ResolutionKind::Edited
        | ResolutionKind::Denied
        | ResolutionKind::Answered
        | ResolutionKind::Failed => true,
        ResolutionKind::Expired | ResolutionKind::Withdrawn | ResolutionKind::Superseded => false,
    }
}

fn word_of(how: ResolutionKind) -> &'static str {
    OUTCOMES.iter().find(|(.., known)| *known == how).map_or("", |(word, ..)| *word)
}

fn times(by: BTreeMap<String, Vec<i64>>) -> Vec<Times> {
    let mut all: Vec<Times> = by
        .into_iter()
        .map(|(name, mut took)| {
            took.sort_unstable();
            Times {
                name,
                decisions: took.len(),
                p50_ms: percentile(&took, 50),
                p95_ms: percentile(&took, 95),
            }
        })
        .collect();
    all.sort_by_key(|times| std::cmp::Reverse(times.decisions));
    all
}

/// How long something took, in words. Below a second in milliseconds, which the bar beside it is drawn of.
fn in_words(ms: i64) -> String {
    if ms < 1_000 { format!("{ms} ms") } else { labels::span(Millis(ms)) }
}

/// The value that so many in a hundred do not exceed, by nearest rank.
fn percentile(sorted: &[i64], hundredths: usize) -> i64 {
    let rank = (sorted.len() * hundredths).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

pub(in crate::web) fn page(figures: &Figures) -> ChartsPage {
    let open: Vec<u64> = figures.open_over_time.iter().map(|point| point.open).collect();
    let expired: Vec<u64> = figures.expired_over_time.iter().map(|part| part.expired).collect();
    let ends = (day(&figures.from), day(&figures.to));
    let bars = |title: &str, times: &[Times]| {
        let bar = |times: &Times| Bar {
            name: times.name.clone(),
            parts: vec![
                BarPart { value: times.p50_ms.unsigned_abs(), class: "half" },
                BarPart { value: (times.p95_ms - times.p50_ms).unsigned_abs(), class: "rest" },
            ],
            text: format!("{} / {} ({})", in_words(times.p50_ms), in_words(times.p95_ms), times.decisions),
        };
        (!times.is_empty()).then(|| svg::bars(title, &times.iter().take(BARS).map(bar).collect::<Vec<Bar>>()))
    };
    let outcome = |of: &Outcomes| Bar {
        name: of.tool.clone(),
        parts: OUTCOMES
            .iter()
            .filter_map(|(word, _, how)| Some(BarPart { value: *of.outcomes.get(word)?, class: class(*how) }))
            .collect(),
        text: of.total.to_string(),
    };
    let outcomes: Vec<Bar> = figures.outcomes_by_tool.iter().take(BARS).map(outcome).collect();
    ChartsPage {
        spans: SPANS
            .iter()
            .map(|(word, label, _)| SpanLink { word, label, is_current: figures.over == *word })
            .collect(),
        over: figures.over.clone(),
        open_now: figures.open_now,
        decided: figures.decided,
        expired: figures.expired,
        partial: figures.partial,
        is_empty: figures.decided == 0 && figures.expired == 0 && figures.open_now == 0,
        expiries: (figures.expired > 0)
            .then(|| svg::columns("Expired holds over time", &expired, (&ends.0, &ends.1))),
        open: svg::line("Open holds over time", &open, (&ends.0, &ends.1)),
        by_tool: bars(
            "Time to decision by tool: median, and 95th percentile",
            &figures.time_to_decision_by_tool,
        ),
        by_person: bars(
            "Time to decision by person: median, and 95th percentile",
            &figures.time_to_decision_by_person,
        ),
        outcomes: (!outcomes.is_empty()).then(|| svg::bars("Outcomes by tool", &outcomes)),
        legend: OUTCOMES.iter().map(|(_, label, how)| (*label, class(*how))).collect(),
    }
}

fn day(iso: &str) -> String {
    format!("{} {} UTC", iso.get(..10).unwrap_or_default(), iso.get(11..16).unwrap_or_default())
}

fn class(how: ResolutionKind) -> &'static str {
    match how {
        ResolutionKind::Approved => "c-approved",
        ResolutionKind::Edited => "c-edited",
        ResolutionKind::Denied => "c-denied",
        ResolutionKind::Answered => "c-answered",
        ResolutionKind::Failed => "c-failed",
        ResolutionKind::Expired => "c-expired",
        ResolutionKind::Withdrawn => "c-withdrawn",
        ResolutionKind::Superseded => "c-superseded",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let all: Vec<i64> = (1..=100).collect();
        assert_eq!((percentile(&all, 50), percentile(&all, 95)), (50, 95));
        assert_eq!((percentile(&[7], 50), percentile(&[7], 95), percentile(&[], 95)), (7, 7, 0));
        assert_eq!((in_words(40), in_words(90_000)), ("40 ms".to_owned(), labels::span(Millis(90_000))));
    }

    /// Each expiry is in one part of the time, and the last instant belongs to the last part.
    #[test]
    fn expiries_are_counted_by_time() {
        use standfast_core::hold::HoldKind;
        use standfast_core::id::{CallNo, HoldId, HoldKey, RunId, Secret, Seq};
        use standfast_core::name::{AgentName, SessionId};
        use standfast_core::project::HoldClosure;
        let (over, now) = (Millis::hours(24), Timestamp(1_762_000_000_000));
        let row = |ago: Millis, how: ResolutionKind| HoldRow {
            id: HoldId {
                run: RunId::from_bytes([1; 16]),
                key: HoldKey { call: CallNo(1), secret: Secret([1; 16]) },
            },
            agent: AgentName::new("ops").unwrap(),
            session: SessionId::new("s").unwrap(),
            inbox: None,
            request: None,
            message: None,
            at: Seq(4),
            kind: HoldKind::Approval,
            tool: None,
            opened_at: Timestamp(now.0 - over.0),
            expires_at: None,
            expired_at: None,
            digest: None,
            revision: 0,
            muted: false,
            assignee: None,
            processing: false,
            closed: Some(HoldClosure { at: Timestamp(now.0 - ago.0), how, by: Actor::Clock, seq: Seq(5) }),
        };
        let rows = [
            row(Millis(0), ResolutionKind::Expired),
            row(Millis::hours(1), ResolutionKind::Expired),
            row(Millis::hours(24), ResolutionKind::Expired),
            row(Millis::hours(2), ResolutionKind::Withdrawn),
        ];
        let partial = Partial { decisions: false, open_holds: true };
        let counted = ChartRows { decided: &rows, open: &[], open_now: 7, partial };
        let figures = figures("24h", over, now, counted);
        let expired: Vec<u64> = figures.expired_over_time.iter().map(|part| part.expired).collect();
        assert_eq!((expired[0], expired[23], expired.iter().sum::<u64>()), (1, 2, 3));
        assert_eq!((figures.open_now, figures.is_partial, figures.expired), (7, true, 3));
        assert!(page(&figures).expiries.is_some_and(|svg| svg.contains("c-expired")));
    }

    #[test]
    fn an_unknown_span_is_an_error() {
        assert_eq!(span("").unwrap(), Millis::hours(168));
        assert!(span("1y").is_err());
    }
}

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
/// Bars of a chart; more are not looked at by anybody.
const BARS: usize = 12;
/// The spans that can be chosen, the usual one first.
const SPANS: [(&str, &str, Millis); 3] = [
    ("7d", "7 days", Millis::hours(7 * 24)),
    ("24h", "24 hours", Millis::hours(24)),
    ("30d", "30 days", Millis::hours(30 * 24)),
];

/// The span that a word means.
pub(in crate::web) fn span(word: &str) -> Result<Millis, Problem> {
    Ok(chosen("over", word, &SPANS.map(|(word, _, span)| (word, span)))?.unwrap_or(SPANS[0].2))
}

/// The numbers.
#[derive(Debug, PartialEq, Serialize)]
pub(in crate::web) struct Figures {
    over: String,
    from: String,
    to: String,
    /// There was more than was looked at: what follows is of the latest part of it.
    is_partial: bool,
    open_over_time: Vec<OpenAt>,
    open_now: usize,
    decided: usize,
    expired: usize,
    time_to_decision_by_tool: Vec<Times>,
    time_to_decision_by_person: Vec<Times>,
    outcomes_by_tool: Vec<Outcomes>,
}

#[derive(Debug, PartialEq, Serialize)]
struct OpenAt {
    at: String,
    open: u64,
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
    open_now: usize,
    decided: usize,
    expired: usize,
    is_partial: bool,
    is_empty: bool,
    open: String,
    by_tool: Option<String>,
    by_person: Option<String>,
    outcomes: Option<String>,
    /// What the colours mean.
    legend: Vec<(&'static str, &'static str)>,
}

#[derive(Debug, Serialize)]
struct SpanLink {
    word: &'static str,
    label: &'static str,
    is_current: bool,
}

pub(in crate::web) fn figures(
    word: &str,
    over: Millis,
    now: Timestamp,
    decided: &[HoldRow],
    open: &[Timestamp],
    is_partial: bool,
) -> Figures {
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
            if let Some(Actor::Person(user) | Actor::Client(user)) =
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
        over: if word.is_empty() { SPANS[0].0.to_owned() } else { word.to_owned() },
        from: rfc3339(from),
        to: rfc3339(now),
        is_partial,
        open_over_time: (0..POINTS).map(at).map(|at| OpenAt { at: rfc3339(at), open: open_at(at) }).collect(),
        open_now: open.len(),
        decided: closed.iter().filter(|(.., how)| is_decision(*how)).count(),
        expired: closed.iter().filter(|(.., how)| *how == ResolutionKind::Expired).count(),
        time_to_decision_by_tool: times(by_tool),
        time_to_decision_by_person: times(by_person),
        outcomes_by_tool: outcomes,
    }
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

/// The value that so many in a hundred do not exceed, by nearest rank.
fn percentile(sorted: &[i64], hundredths: usize) -> i64 {
    let rank = (sorted.len() * hundredths).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

pub(in crate::web) fn page(figures: &Figures) -> ChartsPage {
    let open: Vec<u64> = figures.open_over_time.iter().map(|point| point.open).collect();
    let ends = (day(&figures.from), day(&figures.to));
    let bars = |title: &str, times: &[Times]| {
        let bar = |times: &Times| Bar {
            name: times.name.clone(),
            parts: vec![
                BarPart { value: times.p50_ms.unsigned_abs(), class: "half" },
                BarPart { value: (times.p95_ms - times.p50_ms).unsigned_abs(), class: "rest" },
            ],
            text: format!(
                "{} / {} ({})",
                labels::span(Millis(times.p50_ms)),
                labels::span(Millis(times.p95_ms)),
                times.decisions
            ),
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
        is_partial: figures.is_partial,
        is_empty: figures.decided == 0 && figures.expired == 0 && figures.open_now == 0,
        open: svg::line("Open holds over time", &open, (&ends.0, &ends.1)),
        by_tool: bars(
            "Time to decision by tool: half of them, and 95 of 100",
            &figures.time_to_decision_by_tool,
        ),
        by_person: bars(
            "Time to decision by person: half of them, and 95 of 100",
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
    }

    #[test]
    fn an_unknown_span_is_an_error() {
        assert_eq!(span("").unwrap(), Millis::hours(168));
        assert!(span("1y").is_err());
    }
}

//! Decided, expired and withdrawn holds: who, when, how, with a link to the receipt; and the same as CSV and JSON.
//!
//! A cell of CSV that a spreadsheet would take for a formula is made a text.

use serde::Serialize;
use standfast_core::project::HoldRow;
use standfast_core::time::Timestamp;

use super::ShownInstant;
use super::waiting::Pager;
use crate::http::filters::{HistoryFilters, KINDS, OUTCOMES};
use crate::http::rfc3339;
use crate::labels;

/// The page.
#[derive(Debug, Serialize)]
pub(in crate::web) struct HistoryPage {
    items: Vec<HistoryItem>,
    pager: Pager,
    by: String,
    tool: String,
    agent: String,
    kind: String,
    outcome: String,
    since: String,
    until: String,
    is_filtered: bool,
    kinds: Vec<(&'static str, &'static str)>,
    outcomes: Vec<(&'static str, &'static str)>,
    /// The filters as they stand in an address.
    query: String,
}

/// A decided hold with what was asked.
#[derive(Debug)]
pub(in crate::web) struct DecidedRow {
    pub(in crate::web) row: HoldRow,
    /// None of a hold whose run cannot be read any more.
    pub(in crate::web) summary: Option<String>,
}

/// One decision.
#[derive(Debug, Serialize)]
struct HistoryItem {
    id: String,
    run: String,
    kind: &'static str,
    tool: Option<String>,
    /// What was asked, in a line.
    summary: Option<String>,
    agent: String,
    what: &'static str,
    tone: &'static str,
    by: String,
    at: ShownInstant,
    /// How long it was pending.
    took: String,
}

pub(in crate::web) fn page(
    filters: &HistoryFilters,
    rows: &[DecidedRow],
    next: Option<u64>,
    now: Timestamp,
) -> HistoryPage {
    let query = filters.query();
    HistoryPage {
        items: rows.iter().filter_map(|row| item(row, now)).collect(),
        pager: Pager::of("/history", &query, (&filters.cursor, &filters.back), next),
        by: filters.by.clone(),
        tool: filters.tool.clone(),
        agent: filters.agent.clone(),
        kind: filters.kind.clone(),
        outcome: filters.outcome.clone(),
        since: filters.since.clone(),
        until: filters.until.clone(),
        is_filtered: !query.is_empty(),
        kinds: KINDS.map(|(word, label, _)| (word, label)).to_vec(),
        outcomes: OUTCOMES.map(|(word, label, _)| (word, label)).to_vec(),
        query,
    }
}

fn item(decided: &DecidedRow, now: Timestamp) -> Option<HistoryItem> {
    let DecidedRow { row, summary } = decided;
    let closed = row.closed.as_ref()?;
    Some(HistoryItem {
        id: row.id.to_string(),
        run: row.id.run.to_string(),
        kind: labels::kind(row.kind),
        tool: row.tool.as_ref().map(ToString::to_string),
        summary: summary.clone(),
        agent: row.agent.to_string(),
        what: labels::decision(Some(row.kind), closed.how),
        tone: super::resolution_tone(closed.how),
        by: labels::actor(&closed.by),
        at: ShownInstant::new(closed.at, now),
        took: labels::span(closed.at.since(row.opened_at)),
    })
}

/// A decision as a program reads it.
#[derive(Debug, Serialize)]
pub(crate) struct ExportedHold {
    hold: String,
    run: String,
    kind: &'static str,
    agent: String,
    session: String,
    tool: Option<String>,
    outcome: &'static str,
    by: String,
    opened_at: String,
    decided_at: String,
    pending_ms: i64,
    digest: Option<String>,
    revision: u32,
    receipt: String,
}

/// The columns of a CSV export.
const COLUMNS: [&str; 14] = [
    "hold",
    "run",
    "kind",
    "agent",
    "session",
    "tool",
    "outcome",
    "by",
    "opened_at",
    "decided_at",
    "pending_ms",
    "digest",
    "revision",
    "receipt",
];

pub(crate) fn exported(row: &HoldRow) -> Option<ExportedHold> {
    let closed = row.closed.as_ref()?;
    let word = |how| OUTCOMES.iter().find(|(.., known)| *known == how).map_or("", |(word, ..)| *word);
    let kind = KINDS.iter().find(|(.., kind)| *kind == row.kind).map_or("", |(word, ..)| *word);
    Some(ExportedHold {
        hold: row.id.to_string(),
        run: row.id.run.to_string(),
        kind,
        agent: row.agent.to_string(),
        session: row.session.to_string(),
        tool: row.tool.as_ref().map(ToString::to_string),
        outcome: word(closed.how),
        by: labels::actor(&closed.by),
        opened_at: rfc3339(row.opened_at),
        decided_at: rfc3339(closed.at),
        pending_ms: closed.at.since(row.opened_at).0,
        digest: row.digest.map(|digest| digest.to_string()),
        revision: row.revision,
        receipt: format!("/api/v1/holds/{}/receipt", row.id),
    })
}

/// RFC 4180, with a head. Where there is more, the last line says how to go on.
pub(crate) fn csv(rows: &[ExportedHold], next: Option<u64>) -> String {
    let mut text = format!("{}\r\n", COLUMNS.join(","));
    for row in rows {
        let cells = [
            row.hold.clone(),
            row.run.clone(),
            row.kind.to_owned(),
            row.agent.clone(),
            row.session.clone(),
            row.tool.clone().unwrap_or_default(),
            row.outcome.to_owned(),
            row.by.clone(),
            row.opened_at.clone(),
            row.decided_at.clone(),
            row.pending_ms.to_string(),
            row.digest.clone().unwrap_or_default(),
            row.revision.to_string(),
            row.receipt.clone(),
        ];
        text.push_str(&cells.map(|cell| quoted(&cell)).join(","));
        text.push_str("\r\n");
    }
    if let Some(next) = next {
        text.push_str(&format!("more rows: ask again with cursor={next}\r\n"));
    }
    text
}

fn quoted(cell: &str) -> String {
    let harmless =
        if cell.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{cell}") } else { cell.to_owned() };
    if harmless.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", harmless.replace('"', "\"\""))
    } else {
        harmless
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_no_formulas() {
        assert_eq!(quoted("a"), "a");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(quoted("=HYPERLINK(1)"), "'=HYPERLINK(1)");
        assert_eq!(quoted("@x\ny"), "\"'@x\ny\"");
        assert_eq!(csv(&[], Some(7)).lines().last(), Some("more rows: ask again with cursor=7"));
    }
}

//! Filters of lists of holds, as they stand in an address: the same words for pages and for the API.
//!
//! An empty value is not a filter, because forms send one for each field. What cannot be understood is an error that names
//! what can, and an unknown filter is one too: a list that ignores half of what it was asked lies.

use serde::Deserialize;
use standfast_core::hold::HoldKind;
use standfast_core::name::{AgentName, BadName, SessionId, ToolName, UserId};
use standfast_core::project::ResolutionKind;
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::tool::preview::Risk;
use standfast_engine::{DeadlineFilter, HistoryList, HoldListScope, HoldOrder, HoldSearch, RiskFilter};

use super::{Problem, parse_rfc3339};

/// Every kind under the word that addresses use.
pub(crate) const KINDS: [(&str, &str, HoldKind); 5] = [
    ("approval", "Approvals", HoldKind::Approval),
    ("input", "Questions", HoldKind::Input),
    ("recovery", "Unknown outcomes", HoldKind::Recovery),
    ("external", "Jobs and sub-runs", HoldKind::External),
    ("auth", "Logins", HoldKind::Auth),
];

/// Every risk.
pub(crate) const RISKS: [(&str, &str, RiskFilter); 4] = [
    ("read_only", "Read-only", RiskFilter::Known(Risk::ReadOnly)),
    ("reversible", "Can be undone", RiskFilter::Known(Risk::Reversible)),
    ("destructive", "Destructive", RiskFilter::Known(Risk::Destructive)),
    ("unknown", "Unknown", RiskFilter::Unknown),
];

/// What can be said of a deadline.
pub(crate) const DEADLINES: [(&str, &str); 5] = [
    ("passed", "Passed"),
    ("1h", "Within an hour"),
    ("24h", "Within a day"),
    ("7d", "Within a week"),
    ("none", "No deadline"),
];

/// Every way in which a hold is decided.
pub(crate) const OUTCOMES: [(&str, &str, ResolutionKind); 8] = [
    ("approved", "Approved", ResolutionKind::Approved),
    ("edited", "Approved with edited arguments", ResolutionKind::Edited),
    ("denied", "Denied", ResolutionKind::Denied),
    ("answered", "Answered", ResolutionKind::Answered),
    ("failed", "Failed", ResolutionKind::Failed),
    ("expired", "Expired", ResolutionKind::Expired),
    ("withdrawn", "Withdrawn", ResolutionKind::Withdrawn),
    ("superseded", "Superseded", ResolutionKind::Superseded),
];

/// Filters of pending holds.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PendingFilters {
    #[serde(default)]
    pub(crate) q: String,
    #[serde(default)]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) agent: String,
    #[serde(default)]
    pub(crate) tool: String,
    #[serde(default)]
    pub(crate) session: String,
    #[serde(default)]
    pub(crate) owner: String,
    #[serde(default)]
    pub(crate) risk: String,
    #[serde(default)]
    pub(crate) deadline: String,
    #[serde(default)]
    pub(crate) mine: String,
    #[serde(default)]
    pub(crate) sort: String,
    #[serde(default)]
    pub(crate) cursor: String,
    /// Cursors of the pages before this one, for the way back.
    #[serde(default)]
    pub(crate) back: String,
}

impl PendingFilters {
    /// What is asked for.
    pub(crate) fn search(&self, now: Timestamp, limit: usize) -> Result<HoldSearch, Problem> {
        Ok(HoldSearch {
            kind: chosen("kind", &self.kind, &KINDS.map(|(word, _, kind)| (word, kind)))?,
            agent: named("agent", &self.agent, AgentName::new)?,
            tool: named("tool", &self.tool, ToolName::new)?,
            session: named("session", &self.session, SessionId::new)?,
            owner: named("owner", &self.owner, UserId::new)?,
            text: given(&self.q).map(str::to_owned),
            risk: chosen("risk", &self.risk, &RISKS.map(|(word, _, risk)| (word, risk)))?,
            deadline: self.deadline(now)?,
            audience: chosen(
                "mine",
                &self.mine,
                &[("1", HoldListScope::Caller), ("0", HoldListScope::Anybody)],
            )?
            .unwrap_or_default(),
            order: chosen("sort", &self.sort, &[("age", HoldOrder::Age), ("deadline", HoldOrder::Deadline)])?
                .unwrap_or_default(),
            cursor: number("cursor", &self.cursor)?,
            limit,
        })
    }

    fn deadline(&self, now: Timestamp) -> Result<Option<DeadlineFilter>, Problem> {
        let within = |span: Millis| DeadlineFilter::Until(now.plus(span));
        let all = [
            ("passed", DeadlineFilter::Passed),
            ("1h", within(Millis::hours(1))),
            ("24h", within(Millis::hours(24))),
            ("7d", within(Millis::hours(7 * 24))),
            ("none", DeadlineFilter::None),
        ];
        chosen("deadline", &self.deadline, &all)
    }

    /// The filters as they stand in an address, without the place in the list.
    pub(crate) fn query(&self) -> String {
        written(&[
            ("q", &self.q),
            ("kind", &self.kind),
            ("agent", &self.agent),
            ("tool", &self.tool),
            ("session", &self.session),
            ("owner", &self.owner),
            ("risk", &self.risk),
            ("deadline", &self.deadline),
            ("mine", &self.mine),
            ("sort", &self.sort),
        ])
    }

    /// The filters with the place in the list: without the way back, which only the list itself needs.
    pub(crate) fn place(&self) -> String {
        let (filters, place) = (self.query(), written(&[("cursor", &self.cursor)]));
        let all = [filters, place].into_iter().filter(|part| !part.is_empty());
        all.collect::<Vec<_>>().join("&")
    }

    /// Whether anything is filtered by.
    pub(crate) fn is_filtered(&self) -> bool {
        !PendingFilters { sort: String::new(), ..self.clone() }.query().is_empty()
    }
}

/// Filters of the history.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HistoryFilters {
    #[serde(default)]
    pub(crate) by: String,
    #[serde(default)]
    pub(crate) tool: String,
    #[serde(default)]
    pub(crate) agent: String,
    #[serde(default)]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) outcome: String,
    #[serde(default)]
    pub(crate) since: String,
    #[serde(default)]
    pub(crate) until: String,
    #[serde(default)]
    pub(crate) cursor: String,
    #[serde(default)]
    pub(crate) back: String,
}

impl HistoryFilters {
    /// What is asked for.
    pub(crate) fn list(&self, limit: usize) -> Result<HistoryList, Problem> {
        let how = chosen("outcome", &self.outcome, &OUTCOMES.map(|(word, _, how)| (word, how)))?;
        Ok(HistoryList {
            since: instant("since", &self.since)?,
            before: instant("until", &self.until)?,
            agent: named("agent", &self.agent, AgentName::new)?,
            tool: named("tool", &self.tool, ToolName::new)?,
            kind: chosen("kind", &self.kind, &KINDS.map(|(word, _, kind)| (word, kind)))?,
            how: how.into_iter().collect(),
            by: named("by", &self.by, UserId::new)?,
            cursor: number("cursor", &self.cursor)?,
            limit,
        })
    }

    /// The filters as they stand in an address, without the place in the list.
    pub(crate) fn query(&self) -> String {
        written(&[
            ("by", &self.by),
            ("tool", &self.tool),
            ("agent", &self.agent),
            ("kind", &self.kind),
            ("outcome", &self.outcome),
            ("since", &self.since),
            ("until", &self.until),
        ])
    }
}

/// Fields of an address, without the empty ones.
pub(crate) fn written(fields: &[(&str, &str)]) -> String {
    let given = fields.iter().filter(|(_, value)| !value.is_empty());
    given.map(|(name, value)| format!("{name}={}", encoded(value))).collect::<Vec<_>>().join("&")
}

/// A value as it may stand in an address.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn given(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}

/// One of several words.
pub(crate) fn chosen<T: Copy>(name: &str, text: &str, all: &[(&str, T)]) -> Result<Option<T>, Problem> {
    let Some(text) = given(text) else { return Ok(None) };
    match all.iter().find(|(word, _)| *word == text) {
        Some((_, value)) => Ok(Some(*value)),
        None => {
            let known: Vec<&str> = all.iter().map(|(word, _)| *word).collect();
            Err(Problem::bad_request(format!("unknown {name} {text:?}; use one of: {}", known.join(", "))))
        }
    }
}

fn named<T>(
    name: &str,
    text: &str,
    read: impl Fn(String) -> Result<T, BadName>,
) -> Result<Option<T>, Problem> {
    let Some(text) = given(text) else { return Ok(None) };
    read(text.to_owned()).map(Some).map_err(|bad| Problem::invalid(format!("{name}: {bad}")))
}

fn number(name: &str, text: &str) -> Result<Option<u64>, Problem> {
    let bad = |_| Problem::bad_request(format!("invalid {name} {text:?}; use one that a page gave"));
    given(text).map(str::parse).transpose().map_err(bad)
}

/// A day, or an instant of RFC 3339.
fn instant(name: &str, text: &str) -> Result<Option<Timestamp>, Problem> {
    let Some(text) = given(text) else { return Ok(None) };
    let whole = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() };
    let read = parse_rfc3339(&whole);
    read.map(Some).ok_or_else(|| {
        Problem::bad_request(format!(
            "invalid {name} {text:?}; use a day (2026-11-18) or an instant (2026-11-18T09:30:00Z)"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_written_as_they_are_read() {
        let filters =
            PendingFilters { q: "a b&c".into(), kind: "approval".into(), ..PendingFilters::default() };
        assert_eq!(filters.query(), "q=a%20b%26c&kind=approval");
        let search = filters.search(Timestamp(0), 5).unwrap();
        assert_eq!((search.text.as_deref(), search.kind), (Some("a b&c"), Some(HoldKind::Approval)));
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for filters in [
            PendingFilters { kind: "aproval".into(), ..PendingFilters::default() },
            PendingFilters { risk: "high".into(), ..PendingFilters::default() },
            PendingFilters { deadline: "soon".into(), ..PendingFilters::default() },
            PendingFilters { cursor: "x".into(), ..PendingFilters::default() },
        ] {
            assert!(filters.search(Timestamp(0), 5).is_err(), "{filters:?}");
        }
        assert!(PendingFilters::default().search(Timestamp(0), 5).is_ok());
        let history = HistoryFilters { since: "yesterday".into(), ..HistoryFilters::default() };
        assert!(history.list(5).is_err());
        let history = HistoryFilters { since: "2026-11-18".into(), ..HistoryFilters::default() };
        assert_eq!(history.list(5).unwrap().since, Some(Timestamp(1_794_960_000_000)));
    }
}

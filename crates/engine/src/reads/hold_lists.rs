//! Lists of holds as people look for them: pending ones by everything that can be said of them, and the history.
//!
//! A store narrows by what it has an index for; the rest is looked at here, hold by hold, up to a bound, and a cursor says
//! where a page stopped. Whoever asks is shown only what they may see.

use standfast_core::body::Body;
use standfast_core::hold::HoldKind;
use standfast_core::name::{AgentName, SessionId, ToolName, UserId};
use standfast_core::project::{HoldRow, ResolutionKind};
use standfast_core::time::Timestamp;
use standfast_store::{DecidedQuery, Page, StoreError};

use super::{HoldList, HoldListPart, HoldScan, PAGES_MAX, Reads};
use crate::EngineError;
use crate::auth::Principal;
use crate::log::HoldView;
use crate::tool::preview::Risk;

/// How often a page asks the store at most; what it did not come to is behind its cursor.
const LOOKS_MAX: usize = 64;
/// What a look at many rows counts for.
const SPARSE_LOOK: usize = 4;
/// Rows of one look where few of them may be wanted.
const SPARSE_ROWS: usize = 250;
/// Holds that a page looks into, at most: each costs the log of its run.
const LOOKED_INTO_MAX: usize = 500;
/// In a cursor of the order by deadline: those with a deadline are done, what is left are those without.
const UNDATED: u64 = 1 << 62;

/// Which pending holds are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HoldSearch {
    /// Of one kind.
    pub kind: Option<HoldKind>,
    /// Of one agent.
    pub agent: Option<AgentName>,
    /// Of one tool.
    pub tool: Option<ToolName>,
    /// Of one conversation.
    pub session: Option<SessionId>,
    /// Of runs that one user started.
    pub owner: Option<UserId>,
    /// With this text in what is asked, in any case of letters.
    pub text: Option<String>,
    /// With this risk.
    pub risk: Option<RiskFilter>,
    /// With such a deadline.
    pub deadline: Option<DeadlineFilter>,
    /// For whom.
    pub audience: HoldListScope,
    /// In which order.
    pub order: HoldOrder,
    /// Where to go on.
    pub cursor: Option<u64>,
    /// How many at most.
    pub limit: usize,
}

/// What is said of the risk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RiskFilter {
    /// Exactly this is known.
    Known(Risk),
    /// Nothing is known.
    Unknown,
}

/// What is said of the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadlineFilter {
    /// There is none.
    None,
    /// It has passed.
    Passed,
    /// It is at this instant or earlier, and has not passed.
    Until(Timestamp),
}

/// For whom a hold waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HoldListScope {
    /// For anybody.
    #[default]
    Anybody,
    /// For the caller: assigned to them, or to nobody and they may decide it.
    Caller,
}

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HoldOrder {
    /// Oldest first.
    #[default]
    Age,
    /// Earliest deadline first; those without one last.
    Deadline,
}

/// A page of pending holds.
#[derive(Debug)]
pub struct HoldsFound {
    /// Each with everything that is shown of it.
    pub items: Vec<HoldView>,
    /// Where to go on; none when there is no more.
    pub next: Option<u64>,
}

/// Which decided holds are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HistoryList {
    /// Decided at this instant or later.
    pub since: Option<Timestamp>,
    /// Decided before this instant.
    pub before: Option<Timestamp>,
    /// Of one agent.
    pub agent: Option<AgentName>,
    /// Of one tool.
    pub tool: Option<ToolName>,
    /// Of one kind.
    pub kind: Option<HoldKind>,
    /// With one of these resolutions; empty means any.
    pub how: Vec<ResolutionKind>,
    /// Decided by one user.
    pub by: Option<UserId>,
    /// Where to go on.
    pub cursor: Option<u64>,
    /// How many at least, if there are so many.
    pub limit: usize,
}

impl HoldSearch {
    /// Where the list goes on after a cursor. Of holds with a deadline, or without, only those are read: a list of holds
    /// whose deadline is near is in the order of deadlines.
    fn place(&self, cursor: Option<u64>) -> (HoldListPart, Option<u64>) {
        let after = cursor.map(|cursor| cursor & !UNDATED).filter(|after| *after > 0);
        let is_undated = cursor.is_some_and(|cursor| cursor & UNDATED != 0);
        match (self.deadline, self.order) {
            (Some(DeadlineFilter::Passed | DeadlineFilter::Until(_)), _) => (HoldListPart::Dated, after),
            (Some(DeadlineFilter::None), _) => (HoldListPart::Undated, after),
            (None, HoldOrder::Age) => (HoldListPart::All, cursor),
            (None, HoldOrder::Deadline) if is_undated => (HoldListPart::Undated, after),
            (None, HoldOrder::Deadline) => (HoldListPart::Dated, after),
        }
    }

    /// The cursor of the list after a page of a part.
    fn cursor(&self, part: HoldListPart, next: Option<u64>) -> Option<u64> {
        match (part, next) {
            (HoldListPart::All | HoldListPart::Dated, Some(next)) => Some(next),
            (HoldListPart::Undated, Some(next)) => Some(UNDATED | next),
            (HoldListPart::Dated, None) if self.deadline.is_none() => Some(UNDATED),
            (HoldListPart::All | HoldListPart::Dated | HoldListPart::Undated, None) => None,
        }
    }

    /// The last deadline that is wanted.
    fn until(&self, now: Timestamp) -> Option<Timestamp> {
        match self.deadline {
            Some(DeadlineFilter::Passed) => Some(now),
            Some(DeadlineFilter::Until(until)) => Some(until),
            Some(DeadlineFilter::None) | None => None,
        }
    }

    /// Whether few of the rows that are read may be wanted.
    fn is_sparse(&self, part: HoldListPart) -> bool {
        let has_names = self.agent.is_some() || self.tool.is_some() || self.session.is_some();
        self.audience == HoldListScope::Caller
            || matches!(self.deadline, Some(DeadlineFilter::Until(_)))
            || (part != HoldListPart::All && has_names)
    }

    fn list(&self, part: HoldListPart, cursor: Option<u64>, limit: usize) -> HoldList {
        HoldList {
            part,
            kind: self.kind,
            agent: self.agent.clone(),
            tool: self.tool.clone(),
            session: self.session.clone(),
            cursor,
            limit,
        }
    }

    /// What its row alone says.
    fn may_want(&self, row: &HoldRow, who: &Principal, now: Timestamp) -> bool {
        let is_for_caller = match self.audience {
            HoldListScope::Anybody => true,
            HoldListScope::Caller => row.assignee.as_ref().is_none_or(|assignee| *assignee == who.user),
        };
        let is_due = match (self.deadline, row.expires_at) {
            (None, _) | (Some(DeadlineFilter::None), None) => true,
            (Some(DeadlineFilter::Passed), Some(at)) => at <= now,
            (Some(DeadlineFilter::Until(until)), Some(at)) => at > now && at <= until,
            (Some(DeadlineFilter::None), Some(_))
            | (Some(DeadlineFilter::Passed | DeadlineFilter::Until(_)), None) => false,
        };
        is_for_caller && is_due
    }

    /// What can be told only from what is asked.
    fn wants(&self, view: &HoldView) -> bool {
        let is_for_caller = self.audience == HoldListScope::Anybody || view.may_decide;
        let is_of_risk = match self.risk {
            None => true,
            Some(RiskFilter::Known(risk)) => view.risk == Some(risk),
            Some(RiskFilter::Unknown) => view.risk.is_none(),
        };
        is_for_caller && is_of_risk && self.text.as_ref().is_none_or(|text| has_text(view, text))
    }
}

/// Whether what is asked has a text, in any case of letters. Escapes of JSON are read first: people search for what they see.
fn has_text(view: &HoldView, text: &str) -> bool {
    let wanted = text.to_lowercase();
    let has = |text: &str| text.to_lowercase().contains(&wanted);
    let arguments = view.arguments.as_ref().map(|json| json.text());
    let readable = arguments.and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok());
    let readable = readable.map(|value| value.to_string());
    let question = view.ask.question.as_ref().and_then(Body::inline);
    let data = view.ask.data.as_ref().and_then(Body::inline);
    let id = view.row.id.to_string();
    let tool = view.row.tool.as_ref().map(ToolName::as_str);
    [arguments, readable.as_deref(), question, data, tool, view.ask.reason.as_deref()]
        .into_iter()
        .flatten()
        .chain([view.row.agent.as_str(), view.row.session.as_str(), id.as_str()])
        .chain(view.ask.options.iter().map(String::as_str))
        .any(has)
}

impl Reads {
    /// Pending holds that fit everything that is asked for, with what is shown of each.
    pub async fn find_holds(&self, who: &Principal, search: &HoldSearch) -> Result<HoldsFound, EngineError> {
        let now = self.host.clock.now();
        let mut found = HoldsFound { items: Vec::new(), next: search.cursor };
        let (mut looked_into, mut looks) = (0, LOOKS_MAX);
        loop {
            let (part, after) = search.place(found.next);
            let left = search.limit - found.items.len();
            let (rows, weight) =
                if search.is_sparse(part) { (left.max(SPARSE_ROWS), SPARSE_LOOK) } else { (left, 1) };
            let scan = |looks| HoldScan { owner: search.owner.as_ref(), until: search.until(now), looks };
            let mut bounded = scan(looks / weight);
            let mut page = self.holds_of(who, search.list(part, after, rows), &mut bounded).await?;
            looks -= (looks / weight - bounded.looks) * weight;
            let fitting = |row: &HoldRow| search.may_want(row, who, now);
            let places: Vec<usize> = (0..page.items.len()).filter(|at| fitting(&page.items[*at])).collect();
            // The cursor of a page is where its last hold is: if more fit than are wanted, it is read again up to there.
            if places.len() > left {
                let list = search.list(part, after, places[left - 1] + 1);
                page = self.holds_of(who, list, &mut scan(PAGES_MAX)).await?;
            }
            for row in page.items.iter().filter(|row| fitting(row)) {
                looked_into += 1;
                found.items.extend(self.wanted(who, row, search).await?);
            }
            found.next = search.cursor(part, page.next);
            let is_enough = found.items.len() >= search.limit || looked_into >= LOOKED_INTO_MAX;
            if found.next.is_none() || is_enough || looks < SPARSE_LOOK {
                return Ok(found);
            }
        }
    }

    /// A hold of a list, if it is wanted and still there.
    async fn wanted(
        &self,
        who: &Principal,
        row: &HoldRow,
        search: &HoldSearch,
    ) -> Result<Option<HoldView>, EngineError> {
        if let Some(owner) = &search.owner
            && self.facts(row.id.run).await?.is_none_or(|facts| facts.owner != *owner)
        {
            return Ok(None);
        }
        match self.hold(who, row.id).await {
            Ok(view) => Ok(Some(view).filter(|view| view.row.closed.is_none() && search.wants(view))),
            Err(EngineError::NotFound) => Ok(None),
            // Its run is shown as what it is; one that cannot be read does not hide the others (C35).
            Err(EngineError::Store(StoreError::Corrupt { run, why })) => {
                tracing::warn!(%run, why, "holds: the run of a pending hold cannot be read; left out of the list");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Decided, expired and withdrawn holds that the caller may see, the latest first.
    pub async fn history(&self, who: &Principal, list: &HistoryList) -> Result<Page<HoldRow>, EngineError> {
        let mut page = Page::of(Vec::new(), list.cursor);
        for _ in 0..PAGES_MAX {
            let query = DecidedQuery {
                tenant: who.tenant.clone(),
                since: list.since,
                before: list.before,
                agent: list.agent.clone(),
                tool: list.tool.clone(),
                kinds: list.kind.into_iter().collect(),
                how: list.how.clone(),
                by: list.by.clone(),
                cursor: page.next,
                limit: list.limit - page.items.len(),
            };
            let found = self.log.store.decided_holds(query).await?;
            for row in found.items {
                let facts = self.facts(row.id.run).await?;
                if facts.is_some_and(|facts| self.log.may_see(who, &facts)) {
                    page.items.push(row);
                }
            }
            page.next = found.next;
            if page.next.is_none() || page.items.len() >= list.limit {
                break;
            }
        }
        Ok(page)
    }

    /// How many holds the caller sees pending, by kind; of more than `most` only that there are so many.
    pub async fn pending_counts(
        &self,
        who: &Principal,
        most: u64,
    ) -> Result<Vec<(HoldKind, u64)>, EngineError> {
        let mut counts: Vec<(HoldKind, u64)> = HoldKind::ALL.into_iter().map(|kind| (kind, 0)).collect();
        if who.sees_all() {
            let counted = self.log.store.counts(who.tenant.clone()).await?;
            for of in counted.holds {
                let count = counts.iter_mut().find(|(kind, _)| *kind == of.kind);
                count.into_iter().for_each(|(_, count)| *count += of.count);
            }
        } else {
            let limit = usize::try_from(most).unwrap_or(usize::MAX);
            let list = HoldList {
                kind: None,
                agent: None,
                tool: None,
                session: None,
                part: HoldListPart::All,
                cursor: None,
                limit,
            };
            for row in self.holds(who, list).await?.items {
                let count = counts.iter_mut().find(|(kind, _)| *kind == row.kind);
                count.into_iter().for_each(|(_, count)| *count += 1);
            }
        }
        Ok(counts)
    }
}

//! The next hold of a list: what opens after a decision, and what *Skip* opens.
//!
//! Only what whoever looks may decide, in the order of the list, from the part of it on which the hold before was found. The list
//! changes under the walk: a hold may be decided meanwhile, and one that is no longer there is followed by what stood behind it.

use standfast_core::id::HoldId;
use standfast_core::project::HoldRow;
use standfast_core::time::Timestamp;
use standfast_engine::HoldView;
use standfast_engine::auth::Principal;

use crate::html::Failure;
use crate::http::App;
use crate::http::filters::PendingFilters;

/// Holds of one part of the list.
const PART: usize = 25;
/// Parts that are looked through for the next hold.
const PARTS_MAX: usize = 4;

/// Where a list goes on behind a hold.
#[derive(Debug)]
pub(super) struct Walk {
    /// The part of the list that has the hold, as an address has it.
    pub(super) here: String,
    pub(super) next: Option<NextHold>,
}

/// The next hold, and the part of the list that has it, as an address has it.
#[derive(Debug, Clone)]
pub(super) struct NextHold {
    pub(super) hold: HoldId,
    pub(super) place: String,
}

/// The hold behind this one; the first of the list where this is the last.
pub(super) async fn walk(
    app: &App,
    who: &Principal,
    row: &HoldRow,
    filters: &PendingFilters,
) -> Result<Walk, Failure> {
    let order = ListOrder::of(filters);
    let mut here = filters.place();
    let mut part = filters.clone();
    // What stands behind the place where this one was, of a hold that is not in the list any more.
    let mut behind: Option<NextHold> = None;
    let mut is_found = false;
    let mut is_end = false;
    for _ in 0..PARTS_MAX {
        let (items, next) = decidable(app, who, &part).await?;
        for view in items {
            if view.row.id == row.id {
                (is_found, here) = (true, part.place());
            } else if is_found {
                let next = NextHold { hold: view.row.id, place: part.place() };
                return Ok(Walk { here, next: Some(next) });
            } else if behind.is_none() && order.key(&view.row) >= order.key(row) {
                behind = Some(NextHold { hold: view.row.id, place: part.place() });
            }
        }
        let Some(next) = next else {
            is_end = true;
            break;
        };
        part.cursor = next.to_string();
    }
    if !is_found && behind.is_some() {
        return Ok(Walk { here, next: behind });
    }
    let next = if is_end { first(app, who, row.id, filters).await? } else { None };
    Ok(Walk { here, next })
}

/// The first hold of the list that is not this one.
async fn first(
    app: &App,
    who: &Principal,
    id: HoldId,
    filters: &PendingFilters,
) -> Result<Option<NextHold>, Failure> {
    let mut part = PendingFilters { cursor: String::new(), ..filters.clone() };
    for _ in 0..PARTS_MAX {
        let (items, next) = decidable(app, who, &part).await?;
        if let Some(view) = items.iter().find(|view| view.row.id != id) {
            return Ok(Some(NextHold { hold: view.row.id, place: part.place() }));
        }
        let Some(next) = next else { break };
        part.cursor = next.to_string();
    }
    Ok(None)
}

/// What whoever looks may decide on a part of the list, and where it goes on. A sub-run that works is nobody's to decide.
async fn decidable(
    app: &App,
    who: &Principal,
    part: &PendingFilters,
) -> Result<(Vec<HoldView>, Option<u64>), Failure> {
    let mine = PendingFilters { mine: "1".to_owned(), ..part.clone() };
    let search = mine.search(app.engine.clock().now(), PART)?;
    let found = app.engine.reads().find_holds(who, &search).await?;
    let items = found.items.into_iter().filter(|view| view.ask.child.is_none());
    Ok((items.collect(), found.next))
}

/// The order of a list.
#[derive(Debug, Clone, Copy)]
enum ListOrder {
    Age,
    Deadline,
}

impl ListOrder {
    fn of(filters: &PendingFilters) -> ListOrder {
        let has_deadlines = matches!(filters.deadline.as_str(), "passed" | "1h" | "24h" | "7d");
        if filters.sort == "deadline" || has_deadlines { ListOrder::Deadline } else { ListOrder::Age }
    }

    /// Where a hold stands.
    fn key(self, row: &HoldRow) -> (bool, Timestamp) {
        match (self, row.expires_at) {
            (ListOrder::Deadline, Some(at)) => (false, at),
            (ListOrder::Deadline, None) => (true, row.opened_at),
            (ListOrder::Age, _) => (false, row.opened_at),
        }
    }
}

//! What `GET /holds` asks for: open holds by what a store has an index for, by more than that, or decided ones.
//!
//! The words of the filters are `crate::http::filters`, the same as on the pages. A filter that does not belong to the state that is
//! asked for is an error, not ignored.

use standfast_core::project::ResolutionKind;
use standfast_core::time::Timestamp;
use standfast_engine::{HistoryList, HoldList, HoldListPart, HoldOrder, HoldSearch};

use super::map;
use super::wire::{HoldsArgs, ListedState};
use crate::http::Problem;
use crate::http::filters::{HistoryFilters, PendingFilters};

/// What is asked for.
pub(super) enum AskedHolds {
    /// Open ones, by what their rows say.
    Open(HoldList),
    /// Open ones, by what is asked in them, or in another order.
    Found(Box<HoldSearch>),
    /// Decided ones.
    Decided(Box<HistoryList>),
}

pub(super) fn asked(args: HoldsArgs, now: Timestamp, limit: usize) -> Result<AskedHolds, Problem> {
    match args.state.unwrap_or(ListedState::Open) {
        ListedState::Open => open(args, now, limit),
        ListedState::Decided => decided(args, None, limit),
        ListedState::Approved => decided(args, Some(ResolutionKind::Approved), limit),
        ListedState::Edited => decided(args, Some(ResolutionKind::Edited), limit),
        ListedState::Denied => decided(args, Some(ResolutionKind::Denied), limit),
        ListedState::Answered => decided(args, Some(ResolutionKind::Answered), limit),
        ListedState::Failed => decided(args, Some(ResolutionKind::Failed), limit),
        ListedState::Expired => decided(args, Some(ResolutionKind::Expired), limit),
        ListedState::Withdrawn => decided(args, Some(ResolutionKind::Withdrawn), limit),
        ListedState::Superseded => decided(args, Some(ResolutionKind::Superseded), limit),
    }
}

fn open(args: HoldsArgs, now: Timestamp, limit: usize) -> Result<AskedHolds, Problem> {
    foreign("open", &[("by", &args.by), ("since", &args.since), ("until", &args.until)])?;
    let text = Option::<String>::unwrap_or_default;
    let filters = PendingFilters {
        q: text(args.q),
        agent: text(args.agent),
        tool: text(args.tool),
        session: text(args.session),
        owner: text(args.owner),
        risk: text(args.risk),
        deadline: text(args.deadline),
        mine: text(args.mine),
        sort: text(args.sort),
        ..PendingFilters::default()
    };
    let search = HoldSearch {
        kind: args.kind.map(map::core_kind),
        cursor: args.cursor,
        ..filters.search(now, limit)?
    };
    let plain = HoldSearch {
        kind: search.kind,
        agent: search.agent.clone(),
        tool: search.tool.clone(),
        session: search.session.clone(),
        cursor: search.cursor,
        order: HoldOrder::Age,
        limit,
        ..HoldSearch::default()
    };
    if search != plain {
        return Ok(AskedHolds::Found(Box::new(search)));
    }
    let HoldSearch { kind, agent, tool, session, cursor, .. } = search;
    Ok(AskedHolds::Open(HoldList { kind, agent, tool, session, part: HoldListPart::All, cursor, limit }))
}

fn decided(args: HoldsArgs, how: Option<ResolutionKind>, limit: usize) -> Result<AskedHolds, Problem> {
    foreign(
        "decided",
        &[
            ("session", &args.session),
            ("q", &args.q),
            ("owner", &args.owner),
            ("risk", &args.risk),
            ("deadline", &args.deadline),
            ("mine", &args.mine),
            ("sort", &args.sort),
        ],
    )?;
    let text = Option::<String>::unwrap_or_default;
    let filters = HistoryFilters {
        by: text(args.by),
        tool: text(args.tool),
        agent: text(args.agent),
        since: text(args.since),
        until: text(args.until),
        ..HistoryFilters::default()
    };
    let list = HistoryList {
        kind: args.kind.map(map::core_kind),
        how: how.into_iter().collect(),
        cursor: args.cursor,
        ..filters.list(limit)?
    };
    Ok(AskedHolds::Decided(Box::new(list)))
}

fn foreign(state: &str, fields: &[(&str, &Option<String>)]) -> Result<(), Problem> {
    match fields.iter().find(|(_, given)| given.is_some()) {
        Some((name, _)) => Err(Problem::invalid(format!("{name} is not a filter of {state} holds"))),
        None => Ok(()),
    }
}

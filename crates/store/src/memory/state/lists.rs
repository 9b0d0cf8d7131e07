//! Lists of the memory store: due work, runs, holds.
//!
//! Each list looks at everything in order and stops where a backend with indexes would.

use std::collections::BTreeMap;

use holdpoint_core::id::{HoldId, RunId};
use holdpoint_core::name::{AgentName, Tenant};
use holdpoint_core::project::{HoldRow, RunRow};
use holdpoint_core::time::Timestamp;

use super::{HoldEntry, RunEntry, State};
use crate::batch::LeaseChange;
use crate::query::{
    Audience, Claim, Claimed, HoldFilter, HoldQuery, Page, RunFilter, RunQuery, SCAN_MAX, Stored,
};
use crate::turns::take_turns;

impl State {
    pub(in crate::memory) fn claim_due(&mut self, claim: &Claim) -> Vec<Claimed> {
        let mut queues: BTreeMap<(Tenant, AgentName), Vec<(Timestamp, i64)>> = BTreeMap::new();
        for (no, entry) in &self.runs {
            let facts = &entry.row.run.facts;
            let Some(due_at) = entry.due_at.filter(|at| *at <= claim.now) else { continue };
            if claim.shards.contains(facts.id.shard(&facts.tenant)) {
                let agent = (facts.tenant.clone(), facts.agent.clone());
                queues.entry(agent).or_default().push((due_at, *no));
            }
        }
        let cut = |((tenant, agent), mut queue): ((Tenant, AgentName), Vec<(Timestamp, i64)>)| {
            queue.sort_unstable();
            let room = claim.room.iter().find(|(t, a, _)| *t == tenant && *a == agent);
            queue.truncate(room.map_or(claim.limit, |(_, _, room)| *room));
            queue
        };
        let taken = take_turns(queues.into_iter().map(cut).collect(), claim.limit);
        let lease = |no: i64| {
            let entry = self.runs.get_mut(&no)?;
            entry.lease = None;
            entry.change_lease(LeaseChange::Take { node: claim.node, until: claim.until });
            Some(Claimed::Run(Box::new(Stored { row: entry.row.clone(), lease: entry.lease })))
        };
        taken.into_iter().filter_map(lease).collect()
    }

    pub(in crate::memory) fn list_runs(&self, query: &RunQuery) -> Page<RunRow> {
        if let RunFilter::Claimable(inbox, now) = &query.filter {
            let is_claimable = |entry: &&RunEntry| {
                let place = entry.row.run.facts.inbox.as_ref();
                entry.row.run.facts.tenant == query.tenant
                    && place.is_some_and(|place| place.inbox == *inbox)
                    && entry.row.claimable_at.is_some_and(|at| at <= *now)
                    && (query.phases.is_empty() || query.phases.contains(&entry.row.phase))
            };
            let mut items: Vec<RunRow> =
                self.runs.values().filter(is_claimable).map(|entry| entry.row.clone()).collect();
            items.sort_by_key(|row| {
                std::cmp::Reverse(row.run.facts.inbox.as_ref().map_or(0, |place| place.priority))
            });
            items.truncate(query.limit);
            return Page { items, next: None };
        }
        let before = query.cursor.map_or(i64::MAX, |cursor| i64::try_from(cursor).unwrap_or(i64::MAX));
        let is_wanted = |entry: &RunEntry| {
            entry.row.run.facts.tenant == query.tenant
                && matches_run(&query.filter, &entry.row)
                && (query.phases.is_empty() || query.phases.contains(&entry.row.phase))
        };
        let rows = self.runs.range(..before).rev().map(|(no, entry)| (*no, is_wanted(entry), entry));
        page(rows, query.limit, |entry| entry.row.clone())
    }

    pub(in crate::memory) fn list_holds(&self, query: &HoldQuery) -> Page<HoldRow> {
        let after = query.cursor.map_or(0, |cursor| i64::try_from(cursor).unwrap_or(i64::MAX));
        let is_wanted = |entry: &HoldEntry| {
            entry.row.closed.is_none()
                && self.tenant_of(entry.row.id.run) == Some(&query.tenant)
                && matches_hold(&query.filter, &entry.row)
                && (query.kinds.is_empty() || query.kinds.contains(&entry.row.kind))
                && match &query.audience {
                    Audience::Everyone => true,
                    Audience::AnyOf(who) => entry.audience.iter().any(|one| who.contains(one)),
                }
        };
        let rows = self.holds.range(after + 1..).map(|(no, entry)| (*no, is_wanted(entry), entry));
        page(rows, query.limit, |entry| entry.row.clone())
    }

    fn tenant_of(&self, run: RunId) -> Option<&Tenant> {
        self.entry(run).map(|entry| &entry.row.run.facts.tenant)
    }
}

fn page<'a, E: 'a, T>(
    rows: impl Iterator<Item = (i64, bool, &'a E)>,
    limit: usize,
    row: impl Fn(&E) -> T,
) -> Page<T> {
    let mut items = Vec::new();
    for (looked_at, (no, is_wanted, entry)) in rows.enumerate() {
        if is_wanted {
            items.push(row(entry));
        }
        if items.len() >= limit || looked_at + 1 >= SCAN_MAX {
            return Page { items, next: u64::try_from(no).ok() };
        }
    }
    Page { items, next: None }
}

fn matches_run(filter: &RunFilter, row: &RunRow) -> bool {
    let facts = &row.run.facts;
    match filter {
        RunFilter::All => true,
        RunFilter::Agent(agent) => facts.agent == *agent,
        RunFilter::Session(agent, session) => facts.agent == *agent && facts.session == *session,
        RunFilter::Claimable(..) => false,
    }
}

fn matches_hold(filter: &HoldFilter, row: &HoldRow) -> bool {
    let HoldId { run, .. } = row.id;
    match filter {
        HoldFilter::All => true,
        HoldFilter::Agent(agent) => row.agent == *agent,
        HoldFilter::Tool(tool) => row.tool.as_ref() == Some(tool),
        HoldFilter::Session(agent, session) => row.agent == *agent && row.session == *session,
        HoldFilter::Run(wanted) => run == *wanted,
    }
}

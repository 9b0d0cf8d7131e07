//! Lists of the memory store: due work, runs, holds.
//!
//! Each list looks at everything in order and stops where a backend with indexes would.

use std::collections::BTreeMap;

use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, RunId};
use standfast_core::name::{AgentName, Tenant};
use standfast_core::project::{HoldRow, Phase, RunRow};
use standfast_core::time::Timestamp;

use super::{ChangeMark, HoldEntry, RunEntry, SessionEntry, State};
use crate::batch::LeaseChange;
use crate::columns::deadline;
use crate::fairness::take_turns;
use crate::query::{
    Audience, Claim, ClaimedRun, Counts, DecidedQuery, EndedQuery, EndedRun, HoldFilter, HoldQuery,
    InboxCounts, OpenHolds, Page, RunFilter, RunQuery, SCAN_MAX, ScannedRun, SessionQuery, SessionRow,
    StoredRun, UnreadableRun,
};

impl State {
    pub(crate) fn ended_runs(&self, query: &EndedQuery) -> Page<RunId> {
        let (after, last_before) = (query.cursor.map_or(0, u64::cast_signed), query.last_before());
        let looked_at = self.runs.range(after.saturating_add(1)..).take(EndedQuery::LOOKS_AT);
        let look = |(no, entry): (&i64, &RunEntry)| {
            let run = &entry.row.run;
            let is_over = run.outcome().is_some() && !entry.is_erased && entry.quarantined.is_none();
            let is_left = run.facts.tenant != query.tenant || !is_over || self.is_to_be_told(run.facts.id);
            let ended = match (is_left, run.state.erased) {
                (true, _) => EndedRun::No,
                (false, true) => EndedRun::ToErase,
                (false, false) => EndedRun::Old,
            };
            let before = query.agents.get(&run.facts.agent).copied();
            ScannedRun {
                no: *no,
                run: run.facts.id,
                is_wanted: query.wants(ended, before, run.state.at),
                is_old: run.facts.started_at < last_before,
            }
        };
        query.page(&looked_at.map(look).collect::<Vec<ScannedRun>>())
    }

    pub(crate) fn claim_due(&mut self, claim: &Claim) -> Vec<ClaimedRun> {
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
            let from = entry.lease.take();
            entry.change_lease(LeaseChange::Take { node: claim.node, until: claim.until });
            let stored = Box::new(StoredRun { row: entry.row.clone(), lease: entry.lease });
            self.touch(|| ChangeMark::Run(stored.row.run.facts.id));
            Some(ClaimedRun::Run { stored, from })
        };
        taken.into_iter().filter_map(lease).collect()
    }

    pub(crate) fn list_runs(&self, query: &RunQuery) -> Page<RunRow> {
        if let RunFilter::Claimable(inbox, now, claimant) = &query.filter {
            let is_claimable = |entry: &&RunEntry| {
                let place = entry.row.run.facts.inbox.as_ref();
                entry.row.run.facts.tenant == query.tenant
                    && entry.quarantined.is_none()
                    && place.is_some_and(|place| place.inbox == *inbox)
                    && entry.row.claimable_at.is_some_and(|at| at <= *now)
                    && claimant.suits(&entry.row.run.facts)
                    && query.since.is_none_or(|since| entry.row.run.state.at >= since)
                    && (query.phases.is_empty() || query.phases.contains(&entry.row.phase))
            };
            let mut items: Vec<RunRow> =
                self.runs.values().filter(is_claimable).map(|entry| entry.row.clone()).collect();
            items.sort_by_key(|row| {
                std::cmp::Reverse(row.run.facts.inbox.as_ref().map_or(0, |place| place.priority))
            });
            items.truncate(query.limit);
            return Page::of(items, None);
        }
        let before = query.cursor.map_or(i64::MAX, |cursor| i64::try_from(cursor).unwrap_or(i64::MAX));
        let is_wanted = |entry: &RunEntry| {
            // A quarantined run counts as failed.
            let phase = match entry.quarantined {
                Some(_) => Phase::Failed,
                None => entry.row.phase,
            };
            entry.row.run.facts.tenant == query.tenant
                && matches_run(&query.filter, &entry.row)
                && (query.filter != RunFilter::WithJobs || self.has_jobs(entry))
                && query.since.is_none_or(|since| entry.row.run.state.at >= since)
                && (query.phases.is_empty() || query.phases.contains(&phase))
        };
        let rows = self.runs.range(..before).rev().map(|(no, entry)| (*no, is_wanted(entry), entry));
        let found = page(rows, query.limit, |entry| (entry.row.clone(), entry.quarantined.clone()));
        let mut page = Page::of(Vec::new(), found.next);
        for (row, quarantined) in found.items {
            match quarantined {
                Some(why) => {
                    let (run, facts) = (row.run.facts.id, Some(row.run.facts.clone()));
                    page.unreadable.push(UnreadableRun { run, facts, why });
                }
                None => page.items.push(row),
            }
        }
        page
    }

    pub(crate) fn list_sessions(&self, query: &SessionQuery) -> Page<SessionRow> {
        let before = query.cursor.map_or(i64::MAX, |cursor| i64::try_from(cursor).unwrap_or(i64::MAX));
        let mut all: Vec<&SessionEntry> = self.sessions.values().filter(|entry| entry.no < before).collect();
        all.sort_by_key(|entry| std::cmp::Reverse(entry.no));
        let is_wanted = |entry: &SessionEntry| {
            let key = &entry.row.key;
            key.tenant == query.tenant
                && query.owner.as_ref().is_none_or(|owner| key.owner == *owner)
                && query.agent.as_ref().is_none_or(|agent| key.agent == *agent)
                && query.session.as_ref().is_none_or(|session| key.session == *session)
        };
        page(all.into_iter().map(|entry| (entry.no, is_wanted(entry), entry)), query.limit, |entry| {
            entry.row.clone()
        })
    }

    pub(crate) fn counts(&self, tenant: &Tenant) -> Counts {
        let mut counts = Counts::default();
        for entry in self.runs.values().filter(|entry| entry.row.run.facts.tenant == *tenant) {
            match entry.quarantined {
                Some(_) => counts.quarantined += 1,
                None => *counts.runs.entry(entry.row.phase).or_default() += 1,
            }
        }
        let mut holds: BTreeMap<(AgentName, HoldKind), OpenHolds> = BTreeMap::new();
        for HoldEntry { row, .. } in self.holds.values() {
            if row.closed.is_some() || self.tenant_of(row.id.run) != Some(tenant) {
                continue;
            }
            let key = (row.agent.clone(), row.kind);
            let (agent, kind) = key.clone();
            let of = holds.entry(key).or_insert(OpenHolds { kind, agent, count: 0, oldest: None });
            of.count += 1;
            if self.entry(row.id.run).is_some_and(|entry| entry.quarantined.is_none()) {
                of.oldest = of.oldest.or(Some(row.opened_at));
            }
        }
        counts.holds = holds.into_values().collect();
        counts
    }

    pub(crate) fn inbox_counts(&self, tenant: &Tenant) -> Vec<InboxCounts> {
        let of_tenant = self.runs.values().filter(|entry| entry.row.run.facts.tenant == *tenant);
        InboxCounts::gathered(of_tenant.filter_map(|entry| {
            let place = entry.row.run.facts.inbox.as_ref()?;
            let phase = if entry.quarantined.is_some() { Phase::Failed } else { entry.row.phase };
            Some((place.inbox.clone(), phase, 1))
        }))
    }

    pub(crate) fn list_holds(&self, query: &HoldQuery) -> Page<HoldRow> {
        let after = query.cursor.map_or(0, |cursor| i64::try_from(cursor).unwrap_or(i64::MAX));
        let is_wanted = |entry: &HoldEntry| {
            entry.row.closed.is_none()
                && self.entry(entry.row.id.run).is_some_and(|run| run.quarantined.is_none())
                && self.tenant_of(entry.row.id.run) == Some(&query.tenant)
                && matches_hold(&query.filter, &entry.row)
                && (query.kinds.is_empty() || query.kinds.contains(&entry.row.kind))
                && match &query.audience {
                    Audience::Everyone => true,
                    Audience::AnyOf(who) => entry.audience.iter().any(|one| who.contains(one)),
                }
        };
        if query.filter == HoldFilter::Dated {
            let at = |no: i64, entry: &HoldEntry| (deadline(&entry.row), no);
            let after = self.holds.get(&after).map_or((0, after), |entry| at(after, entry));
            let mut dated: Vec<_> =
                self.holds.iter().filter(|(_, entry)| entry.row.expires_at.is_some()).collect();
            dated.retain(|(no, entry)| entry.row.closed.is_none() && at(**no, entry) > after);
            dated.sort_unstable_by_key(|(no, entry)| at(**no, entry));
            let rows = dated.into_iter().map(|(no, entry)| (*no, is_wanted(entry), entry));
            return page(rows, query.limit, |entry| entry.row.clone());
        }
        let rows = self.holds.range(after + 1..).map(|(no, entry)| (*no, is_wanted(entry), entry));
        page(rows, query.limit, |entry| entry.row.clone())
    }

    pub(crate) fn decided_holds(&self, query: &DecidedQuery) -> Page<HoldRow> {
        let (since, until) = (query.since.unwrap_or(Timestamp(i64::MIN)), query.until());
        let mut decided: Vec<(i64, i64, &HoldRow)> = self
            .holds
            .iter()
            .filter_map(|(no, entry)| Some((entry.row.closed.as_ref()?.at.0, *no, &entry.row)))
            .filter(|(at, ..)| (since.0..until.0).contains(at))
            .filter(|(.., row)| self.tenant_of(row.id.run) == Some(&query.tenant))
            .collect();
        decided.sort_unstable_by_key(|(at, no, _)| std::cmp::Reverse((*at, *no)));
        let looked_at = decided.into_iter().take(DecidedQuery::LOOKS_AT);
        query.page(looked_at.map(|(at, _, row)| (at, Some(row.clone()))).collect())
    }

    /// Whether outside systems were asked to do something for it, as long as it has its contents.
    fn has_jobs(&self, entry: &RunEntry) -> bool {
        let run = entry.row.run.facts.id;
        let is_job = |hold: &HoldEntry| hold.row.id.run == run && hold.row.kind == HoldKind::External;
        !entry.is_erased && self.holds.values().any(is_job)
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
            return Page::of(items, u64::try_from(no).ok());
        }
    }
    Page::of(items, None)
}

fn matches_run(filter: &RunFilter, row: &RunRow) -> bool {
    let facts = &row.run.facts;
    match filter {
        RunFilter::All | RunFilter::WithJobs => true,
        RunFilter::Agent(agent) => facts.agent == *agent,
        RunFilter::Session(agent, session) => facts.agent == *agent && facts.session == *session,
        RunFilter::SessionOf(owner, agent, session) => {
            facts.owner == *owner && facts.agent == *agent && facts.session == *session
        }
        RunFilter::Owner(owner) => facts.owner == *owner,
        RunFilter::Inbox(inbox) => facts.inbox.as_ref().is_some_and(|place| place.inbox == *inbox),
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
        HoldFilter::Inbox(inbox) => row.inbox.as_ref() == Some(inbox),
        HoldFilter::Dated => row.expires_at.is_some(),
        HoldFilter::Undated => row.expires_at.is_none(),
    }
}

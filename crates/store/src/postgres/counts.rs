//! How much there is of what, counted by the database whenever somebody asks.
//!
//! It looks at every run of the tenant each time. A tally that follows appends, as SQLite has one, would have to be
//! shared by all nodes.

use standfast_core::hold::HoldKind;
use standfast_core::name::{AgentName, InboxName, Tenant};
use standfast_core::project::Phase;
use standfast_core::time::Timestamp;
use tokio_postgres::Row;

use super::lists;
use super::pool::Pool;
use super::read::unreadable;
use super::rows::column;
use super::sql;
use crate::columns::{CorruptRow, kind_number};
use crate::error::StoreError;
use crate::query::{Audience, Counts, HoldFilter, HoldQuery, InboxCounts, OpenHolds};

/// Quarantined runs are counted apart; their holds stay open until somebody sees to them.
pub(super) async fn counts(pool: &Pool, tenant: &Tenant) -> Result<Counts, StoreError> {
    let mut counts = Counts::default();
    for row in pool.read(sql::COUNT_RUNS, &[&tenant.as_str()]).await? {
        let (phase, is_aside, count) = runs(&row).map_err(unreadable)?;
        match (is_aside, phase) {
            (true, _) => counts.quarantined += count,
            (false, Some(phase)) => *counts.runs.entry(phase).or_default() += count,
            // A newer version's phase.
            (false, None) => {}
        }
    }
    for row in pool.read(sql::COUNT_HOLDS, &[&tenant.as_str()]).await? {
        let Some((agent, kind, count)) = holds(&row).map_err(unreadable)? else { continue };
        let oldest = oldest(pool, tenant, &agent, kind).await?;
        counts.holds.push(OpenHolds { kind, agent, count, oldest });
    }
    counts.holds.sort_by(|a, b| (&a.agent, a.kind).cmp(&(&b.agent, b.kind)));
    Ok(counts)
}

/// How many runs the inboxes of a tenant have in which phase.
pub(super) async fn inboxes(pool: &Pool, tenant: &Tenant) -> Result<Vec<InboxCounts>, StoreError> {
    let rows = pool.read(sql::INBOX_COUNTS, &[&tenant.as_str()]).await?;
    let counted = rows.iter().map(inbox).collect::<Result<Vec<_>, CorruptRow>>().map_err(unreadable)?;
    // A newer version's phase is left out.
    let known = counted.into_iter().filter_map(|(inbox, phase, count)| Some((inbox, phase?, count)));
    Ok(InboxCounts::gathered(known))
}

fn inbox(row: &Row) -> Result<(InboxName, Option<Phase>, u64), CorruptRow> {
    let phase = i64::from(column::<i32>(row, 1)?);
    let phase = u8::try_from(phase).ok().and_then(Phase::from_number);
    Ok((InboxName::new(column::<&str>(row, 0)?)?, phase, count(row, 2)?))
}

fn runs(row: &Row) -> Result<(Option<Phase>, bool, u64), CorruptRow> {
    let phase = u8::try_from(column::<i16>(row, 0)?).ok().and_then(Phase::from_number);
    Ok((phase, column(row, 1)?, count(row, 2)?))
}

fn holds(row: &Row) -> Result<Option<(AgentName, HoldKind, u64)>, CorruptRow> {
    let number = i64::from(column::<i16>(row, 1)?);
    let kind = HoldKind::ALL.into_iter().find(|kind| kind_number(*kind) == number);
    let agent = AgentName::new(column::<&str>(row, 0)?)?;
    let count = count(row, 2)?;
    Ok(kind.map(|kind| (agent, kind, count)))
}

fn count(row: &Row, index: usize) -> Result<u64, CorruptRow> {
    Ok(u64::try_from(column::<i64>(row, index)?).unwrap_or_default())
}

/// When the oldest open hold that can be read opened.
async fn oldest(
    pool: &Pool,
    tenant: &Tenant,
    agent: &AgentName,
    kind: HoldKind,
) -> Result<Option<Timestamp>, StoreError> {
    let mut query = HoldQuery {
        tenant: tenant.clone(),
        audience: Audience::Everyone,
        filter: HoldFilter::Agent(agent.clone()),
        kinds: vec![kind],
        cursor: None,
        limit: 1,
    };
    loop {
        let page = lists::list_holds(pool, &query).await?;
        match (page.items.first(), page.next) {
            (Some(hold), _) => return Ok(Some(hold.opened_at)),
            (None, None) => return Ok(None),
            (None, next) => query.cursor = next,
        }
    }
}

/// Lists name the phase of a failed run by its number.
#[cfg(test)]
#[test]
fn a_run_put_aside_is_listed_as_failed() {
    let by_number = format!("ELSE {} END", Phase::Failed as u8);
    assert!(sql::RUNS_ALL.contains(&by_number) && sql::RUNS_BY_AGENT.contains(&by_number));
}

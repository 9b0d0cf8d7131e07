//! Deliveries: subscriptions, the notices that an append puts for them, and dead letters.
//!
//! The writer makes these changes inside its transactions, so an append sees every subscription that was acknowledged
//! before it. A tenant without subscriptions costs an append one look into a map.

use rusqlite::{Connection, OptionalExtension, Row, params};
use standfast_core::id::Seq;
use standfast_core::name::Tenant;
use standfast_core::time::Timestamp;

use super::append::{self, write_notice};
use super::job::Failure;
use super::names::{self, Texts};
use super::writer_memory::WriterMemory;
use super::{sql, work};
use crate::batch::{Batch, Notice};
use crate::query::{Page, SettleNotice};
use crate::row_audit::RowEntry;
use crate::subscription::{DeadLetter, DeadQuery, Scope, Subscription, SubscriptionCount, SubscriptionQuery};

/// How subscriptions and dead letters change.
pub(super) enum SubscriptionChange {
    Put(Subscription),
    Change { before: String, after: Subscription },
    Delete { tenant: Tenant, id: String },
    Resend { tenant: Tenant, no: i64, at: Timestamp },
}

/// Makes a change inside a transaction; false when there was nothing to change.
pub(super) fn change(
    connection: &Connection,
    memory: &mut WriterMemory,
    change: &SubscriptionChange,
) -> rusqlite::Result<bool> {
    memory.forget_listeners();
    let changed = match change {
        SubscriptionChange::Put(new) => {
            let tenant = memory.number(connection, new.tenant.as_str())?;
            let (topic, wants) = (new.scope.topic(), new.wants.cast_signed());
            let row = params![tenant, new.id, topic, wants, new.is_active, new.facts, new.owner];
            connection.prepare_cached(sql::SUBSCRIPTION_ADD)?.execute(row)?
        }
        SubscriptionChange::Change { before, after } => {
            let tenant = memory.number(connection, after.tenant.as_str())?;
            let row =
                params![tenant, after.id, before, after.wants.cast_signed(), after.is_active, after.facts];
            connection.prepare_cached(sql::SUBSCRIPTION_CHANGE)?.execute(row)?
        }
        SubscriptionChange::Delete { tenant, id } => {
            let tenant = memory.number(connection, tenant.as_str())?;
            let subscription = memory.number(connection, id)?;
            connection.prepare_cached(sql::DEAD_DELETE)?.execute(params![tenant, subscription])?;
            connection.prepare_cached(sql::SUBSCRIPTION_DELETE)?.execute(params![tenant, id])?
        }
        SubscriptionChange::Resend { tenant, no, at } => {
            let tenant = memory.number(connection, tenant.as_str())?;
            connection.prepare_cached(sql::DEAD_RESEND)?.execute(params![no, tenant, at.0])?;
            connection.prepare_cached(sql::DEAD_TAKE)?.execute(params![no, tenant])?
        }
    };
    if changed > 0 {
        let entry = match change {
            SubscriptionChange::Put(Subscription { tenant, id, .. })
            | SubscriptionChange::Change { after: Subscription { tenant, id, .. }, .. } => {
                find(connection, tenant, id)?.map(|now| (tenant, RowEntry::subscription(&now)))
            }
            SubscriptionChange::Delete { tenant, id } => {
                Some((tenant, RowEntry::no_subscription(id.clone())))
            }
            SubscriptionChange::Resend { .. } => None,
        };
        if let Some((tenant, row)) = entry {
            work::put_row(connection, memory, tenant, &row)?;
        }
    }
    Ok(changed > 0)
}

/// Puts a notice for each subscription that matches this batch.
pub(super) fn put_notices(
    connection: &Connection,
    memory: &mut WriterMemory,
    batch: &Batch,
    run: i64,
    tenant: i64,
) -> Result<(), Failure> {
    if !memory.has_listeners(connection, tenant)? {
        return Ok(());
    }
    let [all, agent, one] = Scope::of_batch(batch).map(|scope| scope.topic());
    let mut statement = connection.prepare_cached(sql::LISTENERS)?;
    let listeners = statement
        .query_map(params![tenant, all, agent, one], |row| {
            Ok((row.get(0)?, row.get::<_, i64>(1)?, row.get(2)?))
        })?
        .collect::<rusqlite::Result<Vec<(String, i64, String)>>>()?;
    for (id, wants, owner) in listeners {
        if wants.cast_unsigned() & batch.tells != 0 {
            write_notice(connection, memory, batch, &Notice::of_batch(batch, id, owner), run)?;
        }
    }
    Ok(())
}

pub(super) fn settle_notice(connection: &Connection, no: i64, settle: &SettleNotice) -> Result<(), Failure> {
    match settle {
        SettleNotice::Delivered { upto } => {
            let done = connection.prepare_cached(sql::NOTICE_DONE)?.execute(params![no, upto.0])?;
            if done == 0 {
                connection.prepare_cached(sql::NOTICE_MORE)?.execute(params![no, upto.plus(1).0])?;
            }
        }
        SettleNotice::Retry { at, from } => {
            connection.prepare_cached(sql::NOTICE_RETRY)?.execute(params![no, at.0, from.0])?;
        }
        SettleNotice::Dead { at, from, why } => {
            connection.prepare_cached(sql::NOTICE_BURY)?.execute(params![no, at.0, from.0, why])?;
            connection.prepare_cached(sql::NOTICE_REMOVE)?.execute(params![no])?;
        }
    }
    Ok(())
}

pub(super) fn find(
    connection: &Connection,
    tenant: &Tenant,
    id: &str,
) -> rusqlite::Result<Option<Subscription>> {
    let Some(number) = names::find(connection, tenant.as_str())? else { return Ok(None) };
    let mut statement = connection.prepare_cached(sql::SUBSCRIPTION)?;
    statement.query_row(params![number, id], |row| read(tenant, row)).optional()
}

pub(super) fn list(
    connection: &Connection,
    query: &SubscriptionQuery,
) -> rusqlite::Result<Vec<Subscription>> {
    let Some(number) = names::find(connection, query.tenant.as_str())? else { return Ok(Vec::new()) };
    let after = query.after.as_deref().unwrap_or_default();
    let read = |row: &Row<'_>| read(&query.tenant, row);
    match &query.owner {
        Some(owner) => {
            let mut statement = connection.prepare_cached(sql::SUBSCRIPTIONS_OF)?;
            statement.query_map(params![number, after, query.limit, owner], read)?.collect()
        }
        None => {
            let mut statement = connection.prepare_cached(sql::SUBSCRIPTIONS)?;
            statement.query_map(params![number, after, query.limit], read)?.collect()
        }
    }
}

pub(super) fn count(connection: &Connection, count: &SubscriptionCount) -> rusqlite::Result<usize> {
    let Some(tenant) = names::find(connection, count.tenant.as_str())? else { return Ok(0) };
    let number = |row: &Row<'_>| row.get(0);
    match (count.run, &count.owner) {
        (Some(run), owner) => {
            let mut statement = connection.prepare_cached(sql::SUBSCRIPTIONS_TO)?;
            statement.query_row(params![tenant, Scope::Run(run).topic(), owner], number)
        }
        (None, Some(owner)) => {
            let mut statement = connection.prepare_cached(sql::SUBSCRIPTIONS_BROAD_OF)?;
            statement.query_row(params![tenant, owner], number)
        }
        (None, None) => {
            let mut statement = connection.prepare_cached(sql::SUBSCRIPTIONS_BROAD)?;
            statement.query_row(params![tenant], number)
        }
    }
}

fn read(tenant: &Tenant, row: &Row<'_>) -> rusqlite::Result<Subscription> {
    let topic: String = row.get(1)?;
    let scope = Scope::of_topic(&topic).ok_or_else(|| {
        let why = format!("a subscription is about {topic:?}, which is nothing");
        rusqlite::Error::FromSqlConversionFailure(1, rusqlite::types::Type::Text, why.into())
    })?;
    Ok(Subscription {
        tenant: tenant.clone(),
        id: row.get(0)?,
        scope,
        wants: row.get::<_, i64>(2)?.cast_unsigned(),
        is_active: row.get(3)?,
        facts: row.get(4)?,
        owner: row.get(5)?,
    })
}

pub(super) fn dead_letters(
    connection: &Connection,
    texts: &Texts,
    query: &DeadQuery,
) -> rusqlite::Result<Page<DeadLetter>> {
    let names =
        (names::find(connection, query.tenant.as_str())?, names::find(connection, &query.subscription)?);
    let (Some(tenant), Some(subscription)) = names else { return Ok(Page::of(Vec::new(), None)) };
    let after = query.cursor.unwrap_or_default().cast_signed();
    let mut statement = connection.prepare_cached(sql::DEAD_LETTERS)?;
    let wanted = params![tenant, subscription, after, query.limit.saturating_add(1)];
    let letter = |row: &Row<'_>| -> rusqlite::Result<DeadLetter> {
        Ok(DeadLetter {
            no: row.get(0)?,
            subscription: texts.text(connection, row.get(1)?)?.to_string(),
            run: append::id_of(connection, row.get(2)?)?,
            from: Seq(row.get(3)?),
            attempts: row.get(4)?,
            at: Timestamp(row.get(5)?),
            why: row.get(6)?,
        })
    };
    let found = statement.query_map(wanted, letter)?.collect::<rusqlite::Result<Vec<DeadLetter>>>()?;
    Ok(DeadLetter::page(found, query.limit))
}

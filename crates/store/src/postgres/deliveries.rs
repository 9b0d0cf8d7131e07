//! Deliveries: subscriptions, notices that are due, dead letters.
//!
//! A subscription is added while no append is under way: appends lock the rows of their runs first and look for
//! listeners afterwards, so whichever commits later has seen the other. Waiting takes as long as the appends that have
//! begun; it costs appends nothing while nobody subscribes.

use standfast_core::name::Tenant;
use standfast_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::pool::Pool;
use super::read::{shard_numbers, unreadable};
use super::rows::{column, seq};
use super::side::SideConnection;
use super::sql;
use super::types::{self, Bytes16, signed};
use super::work::put_row;
use crate::columns::CorruptRow;
use crate::error::StoreError;
use crate::query::{DueNotice, Page, SettleNotice};
use crate::row_audit::RowEntry;
use crate::subscription::{
    DeadLetter, DeadQuery, NoticeQuery, Scope, Subscription, SubscriptionCount, SubscriptionQuery,
};

pub(super) async fn due_notices(pool: &Pool, query: &NoticeQuery) -> Result<Vec<DueNotice>, StoreError> {
    let without: Vec<&[u8]> = query.without.iter().map(String::as_bytes).collect();
    let shards = shard_numbers(&query.shards);
    let (limit, each) = (types::rows(query.limit), types::rows(query.each));
    let params: [&(dyn ToSql + Sync); 7] =
        [&query.now.0, &shards, &limit, &without, &types::fold(), &query.without_owners, &each];
    let rows = pool.read(sql::NOTICES_DUE, &params).await?;
    // A row that cannot be read must not keep the others from being told.
    Ok(rows.iter().filter_map(|row| due_notice(row).ok()).collect())
}

fn due_notice(row: &Row) -> Result<DueNotice, CorruptRow> {
    Ok(DueNotice {
        no: column(row, 0)?,
        subscription: subscription_id(row, 1)?,
        owner: column(row, 5)?,
        run: column::<Bytes16>(row, 2)?.run(),
        from: seq(row, 3)?,
        attempts: attempts(row, 4)?,
    })
}

fn subscription_id(row: &Row, at: usize) -> Result<String, CorruptRow> {
    String::from_utf8(column(row, at)?).map_err(|_| CorruptRow("a subscription is not text".into()))
}

fn attempts(row: &Row, at: usize) -> Result<u32, CorruptRow> {
    Ok(u32::try_from(column::<i32>(row, at)?).unwrap_or_default())
}

pub(super) async fn settle_notice(pool: &Pool, no: i64, settle: SettleNotice) -> Result<(), StoreError> {
    let settled = match settle {
        SettleNotice::Delivered { upto } => pool.write(sql::NOTICE_DELIVERED, &[&no, &signed(upto.0)]).await,
        SettleNotice::Retry { at, from } => {
            pool.write(sql::NOTICE_RETRY, &[&no, &at.0, &signed(from.0)]).await
        }
        SettleNotice::Dead { at, from, why } => {
            // Text has no NUL.
            let why = why.replace('\0', " ");
            pool.write(sql::NOTICE_BURY, &[&no, &at.0, &signed(from.0), &why]).await
        }
    };
    settled.map(|_| ())
}

pub(super) async fn put(side: &SideConnection, new: Subscription) -> Result<bool, StoreError> {
    let added = side.transact(|connection| {
        let new = new.clone();
        Box::pin(async move {
            connection.client.batch_execute(sql::APPENDS_STOP).await?;
            let topic = new.scope.topic();
            let (tenant, wants) = (new.tenant.as_str(), new.wants.cast_signed());
            let params: [&(dyn ToSql + Sync); 7] =
                [&tenant, &new.id, &topic, &wants, &new.is_active, &new.facts, &new.owner];
            let is_new = !connection.query(sql::SUBSCRIPTION_ADD, &params).await?.is_empty();
            if is_new {
                put_row(connection, tenant, &RowEntry::subscription(&new)).await?;
            }
            Ok(is_new)
        })
    });
    added.await
}

pub(super) async fn change(
    side: &SideConnection,
    before: String,
    after: Subscription,
) -> Result<bool, StoreError> {
    let changed = side.transact(|connection| {
        let (before, after) = (before.clone(), after.clone());
        Box::pin(async move {
            // Nobody misses anything when one ends.
            if after.is_active {
                connection.client.batch_execute(sql::APPENDS_STOP).await?;
            }
            let params: [&(dyn ToSql + Sync); 6] = [
                &after.tenant.as_str(),
                &after.id,
                &before,
                &after.wants.cast_signed(),
                &after.is_active,
                &after.facts,
            ];
            let is_changed = !connection.query(sql::SUBSCRIPTION_CHANGE, &params).await?.is_empty();
            // Its scope and its owner stay, whatever the caller says.
            let now = connection.query(sql::SUBSCRIPTION, &[&after.tenant.as_str(), &after.id]).await?;
            if let (true, Some(now)) = (is_changed, now.first()) {
                let now = read(&after.tenant, now).map_err(unreadable)?;
                put_row(connection, after.tenant.as_str(), &RowEntry::subscription(&now)).await?;
            }
            Ok(is_changed)
        })
    });
    changed.await
}

pub(super) async fn delete(side: &SideConnection, tenant: Tenant, id: String) -> Result<bool, StoreError> {
    let deleted = side.transact(|connection| {
        let (tenant, id) = (tenant.clone(), id.clone());
        Box::pin(async move {
            let params: [&(dyn ToSql + Sync); 3] = [&tenant.as_str(), &id, &id.as_bytes()];
            let is_deleted = !connection.query(sql::SUBSCRIPTION_DELETE, &params).await?.is_empty();
            if is_deleted {
                put_row(connection, tenant.as_str(), &RowEntry::no_subscription(id)).await?;
            }
            Ok(is_deleted)
        })
    });
    deleted.await
}

pub(super) async fn resend(pool: &Pool, tenant: &Tenant, no: i64, at: Timestamp) -> Result<bool, StoreError> {
    Ok(!pool.write(sql::DEAD_RESEND, &[&no, &tenant.as_str(), &at.0]).await?.is_empty())
}

pub(super) async fn find(pool: &Pool, tenant: &Tenant, id: &str) -> Result<Option<Subscription>, StoreError> {
    // Text has no NUL, so nobody has such an id.
    if id.contains('\0') {
        return Ok(None);
    }
    let rows = pool.read(sql::SUBSCRIPTION, &[&tenant.as_str(), &id]).await?;
    rows.first().map(|row| read(tenant, row)).transpose().map_err(unreadable)
}

pub(super) async fn list(pool: &Pool, query: &SubscriptionQuery) -> Result<Vec<Subscription>, StoreError> {
    let after = query.after.clone().unwrap_or_default();
    let (tenant, limit) = (query.tenant.as_str(), types::rows(query.limit));
    let rows = match &query.owner {
        Some(owner) => pool.read(sql::SUBSCRIPTIONS_OF, &[&tenant, &after, &limit, owner]).await?,
        None => pool.read(sql::SUBSCRIPTIONS, &[&tenant, &after, &limit]).await?,
    };
    rows.iter().map(|row| read(&query.tenant, row)).collect::<Result<_, CorruptRow>>().map_err(unreadable)
}

pub(super) async fn count(pool: &Pool, count: &SubscriptionCount) -> Result<usize, StoreError> {
    let tenant = count.tenant.as_str();
    let rows = match count.run {
        Some(run) => {
            let topic = Scope::Run(run).topic();
            pool.read(sql::SUBSCRIPTIONS_TO, &[&tenant, &topic, &count.owner]).await?
        }
        None => pool.read(sql::SUBSCRIPTIONS_BROAD, &[&tenant, &count.owner]).await?,
    };
    let found: Option<i64> = rows.first().map(|row| column(row, 0)).transpose().map_err(unreadable)?;
    Ok(usize::try_from(found.unwrap_or_default()).unwrap_or_default())
}

fn read(tenant: &Tenant, row: &Row) -> Result<Subscription, CorruptRow> {
    let topic: &str = column(row, 1)?;
    let scope = Scope::of_topic(topic)
        .ok_or_else(|| CorruptRow(format!("a subscription is about {topic:?}, which is nothing")))?;
    Ok(Subscription {
        tenant: tenant.clone(),
        id: column(row, 0)?,
        scope,
        wants: column::<i64>(row, 2)?.cast_unsigned(),
        is_active: column(row, 3)?,
        facts: column(row, 4)?,
        owner: column(row, 5)?,
    })
}

/// A subscription whose tenant stands behind its columns.
pub(super) fn read_any(row: &Row) -> Result<Subscription, CorruptRow> {
    read(&Tenant::new(column::<&str>(row, 6)?)?, row)
}

pub(super) async fn dead_letters(pool: &Pool, query: &DeadQuery) -> Result<Page<DeadLetter>, StoreError> {
    let after = query.cursor.unwrap_or_default().cast_signed();
    let limit = types::rows(query.limit.saturating_add(1));
    let params: [&(dyn ToSql + Sync); 4] =
        [&query.tenant.as_str(), &query.subscription.as_bytes(), &after, &limit];
    let rows = pool.read(sql::DEAD_LETTERS, &params).await?;
    let letter = |row: &Row| -> Result<DeadLetter, CorruptRow> {
        Ok(DeadLetter {
            no: column(row, 0)?,
            subscription: subscription_id(row, 1)?,
            run: column::<Bytes16>(row, 2)?.run(),
            from: seq(row, 3)?,
            attempts: attempts(row, 4)?,
            at: Timestamp(column(row, 5)?),
            why: column(row, 6)?,
        })
    };
    let found = rows.iter().map(letter).collect::<Result<Vec<_>, CorruptRow>>().map_err(unreadable)?;
    Ok(DeadLetter::page(found, query.limit))
}

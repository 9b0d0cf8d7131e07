//! Which nodes are there, and which shards of the work each has.
//!
//! Each node says from time to time that it is there. At that moment it renews its shards, gives back what is more
//! than its fair share, and takes what is free up to it. Nobody is asked and nobody decides for others; after two turns
//! of everyone the shards are spread evenly.

use std::sync::Arc;

use standfast_core::id::{Incarnation, Shard};
use standfast_core::time::{Millis, Timestamp};
use tokio_postgres::Row;

use super::connect::Connection;
use super::failure::Failure;
use super::pool::Pool;
use super::rows::column;
use super::side::SideConnection;
use super::sql;
use super::types::Bytes16;
use crate::columns::CorruptRow;
use crate::error::StoreError;
use crate::query::{Heartbeat, NodeRow, ShardSet};
use crate::shard_balance::{HANDED_OVER_AFTER, ShardHolding, rebalance};

/// A node that has been silent for so long is no longer listed.
const FORGOTTEN_AFTER: Millis = Millis::hours(24);

impl ShardHolding {
    fn read(row: &Row) -> Result<ShardHolding, StoreError> {
        let read = || -> Result<ShardHolding, CorruptRow> {
            let shard: i16 = column(row, 0)?;
            Ok(ShardHolding {
                shard: Shard(
                    u8::try_from(shard).map_err(|_| CorruptRow(format!("there is no shard {shard}")))?,
                ),
                node: column::<Option<Bytes16>>(row, 1)?.map(|node| Incarnation(node.0)),
                until: Timestamp(column(row, 2)?),
            })
        };
        read().map_err(|corrupt| StoreError::unavailable(corrupt.0))
    }
}

pub(super) async fn beat(side: &SideConnection, beat: Heartbeat) -> Result<ShardSet, StoreError> {
    let beat = Arc::new(beat);
    side.transact(|connection| {
        let beat = beat.clone();
        Box::pin(async move { take_turn(connection, &beat).await })
    })
    .await
}

async fn take_turn(connection: &Connection, beat: &Heartbeat) -> Result<ShardSet, Failure> {
    let node = Bytes16(beat.node.0);
    // The lock on the shards makes the turns of all nodes follow each other.
    let rows = connection.query(sql::SHARDS_LOCK, &[]).await?;
    let held = rows.iter().map(ShardHolding::read).collect::<Result<Vec<ShardHolding>, StoreError>>()?;
    connection.query(sql::NODE_SET, &[&node, &beat.facts, &beat.until.0]).await?;
    let long_ago = beat.now.0.saturating_sub(FORGOTTEN_AFTER.0);
    connection.query(sql::NODES_FORGET, &[&long_ago]).await?;
    let there = connection.query(sql::NODES, &[&beat.now.0]).await?;
    let turn = rebalance(&held, beat.node, beat.now, there.len());
    if !turn.gives.is_empty() {
        let free_at = beat.now.plus(HANDED_OVER_AFTER);
        connection.query(sql::SHARDS_FREE, &[&numbers(&turn.gives), &free_at.0]).await?;
    }
    connection.query(sql::SHARDS_TAKE, &[&numbers(&turn.keeps), &node, &beat.until.0]).await?;
    Ok(ShardSet::of(turn.keeps))
}

pub(super) async fn leave(side: &SideConnection, node: Incarnation) -> Result<(), StoreError> {
    side.transact(|connection| {
        Box::pin(async move {
            connection.query(sql::SHARDS_LOCK, &[]).await?;
            connection.query(sql::SHARDS_LEAVE, &[&Bytes16(node.0)]).await?;
            connection.query(sql::NODE_GONE, &[&Bytes16(node.0)]).await?;
            Ok(())
        })
    })
    .await
}

pub(super) async fn nodes(pool: &Pool, now: Timestamp) -> Result<Vec<NodeRow>, StoreError> {
    let there = pool.read(sql::NODES, &[&now.0]).await?;
    let held = pool.read(sql::SHARDS, &[]).await?;
    let held = held.iter().map(ShardHolding::read).collect::<Result<Vec<ShardHolding>, StoreError>>()?;
    let row = |row: &Row| -> Result<NodeRow, CorruptRow> {
        let node = Incarnation(column::<Bytes16>(row, 0)?.0);
        let mine = held.iter().filter(|held| held.node == Some(node) && held.until > now);
        Ok(NodeRow {
            node,
            facts: column(row, 1)?,
            seen_until: Timestamp(column(row, 2)?),
            shards: ShardSet::of(mine.map(|held| held.shard)),
        })
    };
    let rows = there.iter().map(|one| row(one).map_err(|corrupt| StoreError::unavailable(corrupt.0)));
    rows.collect()
}

fn numbers(shards: &[Shard]) -> Vec<i16> {
    shards.iter().map(|shard| i16::from(shard.0)).collect()
}

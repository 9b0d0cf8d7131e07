//! Nodes and shards of a store that only one process can have open: that node has all of them.
//!
//! Shared by the memory and the SQLite store.

use std::future::ready;
use std::sync::{Mutex, MutexGuard, PoisonError};

use standfast_core::id::Incarnation;
use standfast_core::time::Timestamp;

use crate::contract::Answer;
use crate::query::{Heartbeat, NodeRow, ShardSet};

/// The only node, as it last said that it is there.
#[derive(Debug, Default)]
pub(crate) struct SingleNode {
    last: Mutex<Option<Heartbeat>>,
}

impl SingleNode {
    pub(crate) fn shards(&self, beat: Heartbeat) -> Answer<ShardSet> {
        *self.last() = Some(beat);
        Box::pin(ready(Ok(ShardSet::all())))
    }

    pub(crate) fn leave(&self, node: Incarnation) -> Answer<()> {
        self.last().take_if(|last| last.node == node);
        Box::pin(ready(Ok(())))
    }

    pub(crate) fn nodes(&self, now: Timestamp) -> Answer<Vec<NodeRow>> {
        let there = self.last().clone().filter(|last| last.until > now);
        let row = there.map(|last| NodeRow {
            node: last.node,
            facts: last.facts,
            seen_until: last.until,
            shards: ShardSet::all(),
        });
        Box::pin(ready(Ok(row.into_iter().collect())))
    }

    fn last(&self) -> MutexGuard<'_, Option<Heartbeat>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

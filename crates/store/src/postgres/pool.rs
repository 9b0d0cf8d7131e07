//! Connections that are shared: single statements of any number of tasks go down a few connections, pipelined.
//!
//! A connection is made when the others are busy, and made again when it was lost. Reads are tried again by
//! themselves; of a change whose answer was lost nobody knows whether it happened.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_postgres::Row;

use super::connect::{Connection, Connector, Params, answered};
use super::failure::Failure;
use crate::error::StoreError;
use crate::observer::Effort;

/// How often something is tried that other transactions are in the way of.
pub(super) const TRIES: u32 = 20;

/// Tries to read before the caller gets the error that the database is away.
const READ_TRIES: u32 = 3;

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) connector: Arc<Connector>,
    slots: Vec<Slot>,
}

#[derive(Default)]
struct Slot {
    in_flight: AtomicUsize,
    connection: Mutex<Option<Arc<Connection>>>,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

impl Slot {
    async fn connection(&self, connector: &Connector) -> Result<Arc<Connection>, Failure> {
        let mut kept = self.connection.lock().await;
        if let Some(connection) = kept.as_ref().filter(|kept| !kept.client.is_closed()) {
            return Ok(connection.clone());
        }
        let connection = Arc::new(connector.connect(None).await?);
        *kept = Some(connection.clone());
        Ok(connection)
    }

    /// Uses a connection no more; another one that somebody made meanwhile stays.
    async fn forget(&self, lost: &Arc<Connection>) {
        let mut kept = self.connection.lock().await;
        kept.take_if(|kept| Arc::ptr_eq(kept, lost));
    }
}

/// A slot in use.
struct SlotGuard<'a>(&'a Slot);

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    pub(super) fn new(connector: Arc<Connector>, size: usize) -> Pool {
        Pool { connector, slots: (0..size.max(1)).map(|_| Slot::default()).collect() }
    }

    /// The least busy connection; the first ones are used first, so that a quiet store keeps few.
    fn slot(&self) -> SlotGuard<'_> {
        let by_load = |slot: &&Slot| slot.in_flight.load(Ordering::Relaxed);
        let Some(slot) = self.slots.iter().min_by_key(by_load) else {
            unreachable!("a pool has at least one slot");
        };
        slot.in_flight.fetch_add(1, Ordering::Relaxed);
        SlotGuard(slot)
    }

    /// A statement that changes nothing.
    pub(super) async fn read(&self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.once(sql, params, Effort::ReadStatement).await {
                Ok(rows) => return Ok(rows),
                Err((_, Failure::Lost(_) | Failure::Again(_))) if tries < READ_TRIES => {}
                Err((_, failure)) => return Err(failure.before_sending()),
            }
        }
    }

    /// A statement that changes something, all of it or nothing.
    pub(super) async fn write(&self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.once(sql, params, Effort::WriteStatement).await {
                Ok(rows) => return Ok(rows),
                Err((_, Failure::Again(_))) if tries < TRIES => pause(tries).await,
                Err((true, failure)) => return Err(failure.after_sending()),
                Err((false, failure)) => return Err(failure.before_sending()),
            }
        }
    }

    /// With a failure it says whether the statement had been sent.
    async fn once(
        &self,
        sql: &'static str,
        params: Params<'_>,
        effort: Effort,
    ) -> Result<Vec<Row>, (bool, Failure)> {
        let slot = self.slot();
        let connection = slot.0.connection(&self.connector).await.map_err(|failure| (false, failure))?;
        let prepared = answered(async { Ok(connection.statement(sql).await?) }).await;
        let (is_sent, failure) = match prepared {
            Ok(statement) => {
                connection.count_trip(effort, 1);
                match answered(async { Ok(connection.client.query(&statement, params).await?) }).await {
                    Ok(rows) => return Ok(rows),
                    Err(failure) => (true, failure),
                }
            }
            Err(failure) => (false, failure),
        };
        if failure.ends_the_connection() {
            slot.0.forget(&connection).await;
        }
        Err((is_sent, failure))
    }
}

/// A moment for whoever is in the way, longer each time.
pub(super) async fn pause(tries: u32) {
    tokio::time::sleep(Duration::from_millis(u64::from(tries.min(10)))).await;
}

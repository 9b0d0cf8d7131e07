//! Transactions of several statements that are not appends: erasing, and the nodes' shards.
//!
//! Rare, so one connection is enough for them; those of a node that says it is there have one of their own.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::Mutex;

use super::connect::{Connection, Connector, answered};
use super::failure::Failure;
use super::pool::{TRIES, pause};
use crate::error::StoreError;

/// What happens inside a transaction.
pub(super) type Work<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

pub(super) struct SideConnection {
    connector: Arc<Connector>,
    connection: Mutex<Option<Connection>>,
}

impl std::fmt::Debug for SideConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Side").finish_non_exhaustive()
    }
}

impl SideConnection {
    pub(super) fn new(connector: Arc<Connector>) -> SideConnection {
        SideConnection { connector, connection: Mutex::default() }
    }

    /// Does all of it or nothing; again when others were in the way.
    pub(super) async fn transact<T>(
        &self,
        work: impl for<'a> Fn(&'a Connection) -> Work<'a, T>,
    ) -> Result<T, StoreError> {
        let mut kept = self.connection.lock().await;
        let (mut tries, mut losses) = (0, 0);
        loop {
            tries += 1;
            let connection = match kept.take().filter(|kept| !kept.client.is_closed()) {
                Some(connection) => connection,
                None => self.connector.connect(None).await.map_err(Failure::before_sending)?,
            };
            let failure = match answered(before_commit(&connection, &work)).await {
                Ok(done) => {
                    let commit = async { Ok(connection.client.batch_execute("COMMIT").await?) };
                    answered(commit).await.map_err(Failure::after_sending)?;
                    *kept = Some(connection);
                    return Ok(done);
                }
                Err(failure) => failure,
            };
            if !failure.ends_the_connection() && connection.client.batch_execute("ROLLBACK").await.is_ok() {
                *kept = Some(connection);
            }
            match &failure {
                Failure::Again(_) if tries < TRIES => pause(tries).await,
                Failure::Lost(_) if losses == 0 => losses += 1,
                Failure::Again(_) | Failure::Lost(_) | Failure::Standby(_) | Failure::Refused(_) => {
                    return Err(failure.before_sending());
                }
            }
        }
    }
}

async fn before_commit<T>(
    connection: &Connection,
    work: &impl for<'a> Fn(&'a Connection) -> Work<'a, T>,
) -> Result<T, Failure> {
    connection.client.batch_execute("BEGIN").await?;
    work(connection).await
}

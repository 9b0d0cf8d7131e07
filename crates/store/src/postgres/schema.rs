//! The database: opening it, its schema, and what is refused.
//!
//! Many nodes may start at once: one of them migrates, under a lock, while the others wait for it.
//! Migrations have the numbers of the SQLite store's, with the same gaps; why those do no harm is in `sqlite/schema.rs`.

use super::connect::Connector;
use super::failure::{Failure, describe};
use super::sql;

mod embedded {
    refinery::embed_migrations!("src/postgres/migrations");
}

/// Why a database could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address is invalid.
    #[error("invalid database address: {why}; expected postgres://user@host/database")]
    BadUrl {
        /// What is wrong with it.
        why: String,
    },
    /// It was written by a newer version.
    #[error(
        "{place} has schema {found}, but this version of Standfast knows only {known}; \
         upgrade Standfast, or open a backup from before the upgrade"
    )]
    NewerSchema {
        /// The database.
        place: String,
        /// Its schema.
        found: i32,
        /// The newest schema that this program knows.
        known: i32,
    },
    /// It holds something else.
    #[error("{place} has tables of another program; give Standfast a database of its own")]
    NotOurs {
        /// The database.
        place: String,
    },
    /// It cannot be used.
    #[error("cannot open {place}: {why}")]
    Unusable {
        /// The database.
        place: String,
        /// What the system said.
        why: String,
    },
}

/// A database with the schema of this program.
pub(super) struct OpenDatabase {
    /// The highest number in use.
    pub(super) highest: i64,
    /// Whether there was nothing before.
    pub(super) is_new: bool,
}

/// Brings the schema up to date.
pub(super) async fn open(connector: &Connector) -> Result<OpenDatabase, OpenError> {
    let place = connector.place().to_owned();
    let unusable = |why: String| OpenError::Unusable { place: place.clone(), why };
    let mut connection = connector.connect(None).await.map_err(|failure| unusable(unreachable(failure)))?;
    let said = |error: tokio_postgres::Error| unusable(describe(&error));
    let is_standby = connection.query(sql::IS_STANDBY, &[]).await.map_err(said)?;
    if is_standby.first().is_some_and(|row| row.get(0)) {
        return Err(unusable("it is a standby and takes no writes; name the primary".into()));
    }
    // Others may be migrating: waiting for them is not a failure.
    connection.client.batch_execute("SET lock_timeout = 0; SET statement_timeout = 0").await.map_err(said)?;
    connection.query(sql::MIGRATION_LOCK, &[]).await.map_err(said)?;
    let newest = newest(&connection).await.map_err(said)?;
    let known = known();
    match newest {
        Some(found) if found > known => return Err(OpenError::NewerSchema { place, found, known }),
        Some(found) if found == known => {}
        Some(_) => migrate(&mut connection.client).await.map_err(unusable)?,
        None => {
            let tables = connection.query(sql::FOREIGN_TABLES, &[]).await.map_err(said)?;
            if tables.first().is_some_and(|row| row.get(0)) {
                return Err(OpenError::NotOurs { place });
            }
            migrate(&mut connection.client).await.map_err(unusable)?;
        }
    }
    let highest = connection.query(sql::HIGHEST_NUMBER, &[]).await.map_err(said)?;
    // The lock goes with the connection.
    let highest = highest.first().and_then(|row| row.get::<_, Option<i64>>(0)).unwrap_or(0);
    Ok(OpenDatabase { highest, is_new: newest.is_none() })
}

/// Refuses what this program cannot read, and changes nothing.
pub(super) async fn check_readable(connector: &Connector) -> Result<(), OpenError> {
    let place = connector.place().to_owned();
    let unusable = |why: String| OpenError::Unusable { place: place.clone(), why };
    let connection = connector.connect(None).await.map_err(|failure| unusable(unreachable(failure)))?;
    let newest = newest(&connection).await.map_err(|error| unusable(describe(&error)))?;
    match (newest, known()) {
        (None, _) => Err(unusable("it is not a Standfast database".into())),
        (Some(found), known) if found > known => Err(OpenError::NewerSchema { place, found, known }),
        (Some(found), known) if found < known => Err(unusable(format!(
            "it has schema {found}, and this version reads {known}; start this version of the server on it once, or \
             use the standfast of its time"
        ))),
        (Some(_), _) => Ok(()),
    }
}

pub(super) fn unreachable(failure: Failure) -> String {
    match failure {
        Failure::Lost(why) | Failure::Again(why) | Failure::Standby(why) => why,
        Failure::Refused(error) => error.to_string(),
    }
}

fn known() -> i32 {
    let runner = embedded::migrations::runner();
    runner.get_migrations().iter().map(refinery::Migration::version).max().unwrap_or(0)
}

/// The number of the newest migration; none when there is no schema of ours yet.
async fn newest(connection: &super::connect::Connection) -> Result<Option<i32>, tokio_postgres::Error> {
    let has_history = connection.query(sql::HAS_HISTORY, &[]).await?;
    if has_history.first().is_some_and(|row| row.get(0)) {
        let newest = connection.client.query(sql::NEWEST_MIGRATION, &[]).await?;
        Ok(newest.first().and_then(|row| row.get(0)))
    } else {
        Ok(None)
    }
}

async fn migrate(client: &mut tokio_postgres::Client) -> Result<(), String> {
    // All in one transaction: a crash between a migration and the record of it would lock everybody out.
    let runner = embedded::migrations::runner().set_grouped(true);
    runner.run_async(client).await.map(|_| ()).map_err(|error| error.to_string())
}

//! A database of its own for a while: made beside those that a Postgres has, and removed with everything in it.
//!
//! For whoever tries something out that must not meet anybody's data. What is stored in it is not known here; the schema
//! comes with the first store that opens it.

use tokio::runtime::Builder;

use super::PostgresOptions;
use super::connect::Connector;
use super::failure::describe;
use super::schema::{OpenError, unreachable};

/// A database that is removed when this is dropped.
#[derive(Debug)]
pub struct ScratchDatabase {
    connector: Connector,
    name: String,
    address: String,
}

impl ScratchDatabase {
    /// Makes a database of this name, in small letters, digits and `_`, at the Postgres of this address. The user that the
    /// address names must be allowed to. Blocks until it is there.
    pub fn create(address: &str, name: &str) -> Result<ScratchDatabase, OpenError> {
        let connector = Connector::new(&PostgresOptions::at(address))?;
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if name.is_empty() || !name.chars().all(is_plain) {
            let why = format!("{name:?} is not a name for a database");
            return Err(OpenError::Unusable { place: connector.place().to_owned(), why });
        }
        run(&connector, &format!("CREATE DATABASE {name}"))?;
        Ok(ScratchDatabase { connector, name: name.to_owned(), address: with_database(address, name) })
    }

    /// Its address; it may have a password in it.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Removes it now, whoever is connected.
    pub fn remove(&self) -> Result<(), OpenError> {
        run(&self.connector, &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name))
    }
}

impl Drop for ScratchDatabase {
    fn drop(&mut self) {
        // Whoever cannot reach it any more cannot remove it either.
        let _ = self.remove();
    }
}

/// Sends one statement, on a thread of its own: whoever calls may be inside of a runtime.
fn run(connector: &Connector, statement: &str) -> Result<(), OpenError> {
    let unusable = |why: String| OpenError::Unusable { place: connector.place().to_owned(), why };
    let sent = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
            runtime.block_on(async {
                let connection = connector.connect(None).await.map_err(unreachable)?;
                connection.client.batch_execute(statement).await.map_err(|error| describe(&error))
            })
        });
        thread.join().unwrap_or_else(|_| Err("the thread that asked it ended".to_owned()))
    });
    sent.map_err(unusable)
}

/// The address of another database of the same server.
fn with_database(address: &str, name: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else {
        // Of a key that is said twice the last counts.
        return format!("{address} dbname={name}");
    };
    let (before, query) = rest.split_once('?').map_or((rest, None), |(before, query)| (before, Some(query)));
    let server = before.split_once('/').map_or(before, |(server, _)| server);
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{scheme}://{server}/{name}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_that_of_the_same_server() {
        for (address, expected) in [
            (
                "postgres://me:pw@host:5433/mine?sslmode=require",
                "postgres://me:pw@host:5433/x?sslmode=require",
            ),
            ("postgresql://host", "postgresql://host/x"),
            ("host=/run user=me dbname=mine", "host=/run user=me dbname=mine dbname=x"),
        ] {
            assert_eq!(with_database(address, "x"), expected);
            let named: tokio_postgres::Config = with_database(address, "x").parse().unwrap();
            assert_eq!(named.get_dbname(), Some("x"));
        }
    }
}

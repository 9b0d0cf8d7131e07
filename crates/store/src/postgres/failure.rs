//! What went wrong with the database, and what that means for whoever asked.
//!
//! Three things matter: whether it is worth trying again at once, whether something may have been written, and what an
//! operator can do. Details that a server adds to its errors may contain data and are left out.

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::error::StoreError;

/// Why a job did not get done.
#[derive(Debug)]
pub(super) enum Failure {
    /// A business no, or a row that cannot be read: nothing was written.
    Refused(StoreError),
    /// Another transaction was in the way and this one was undone: try again.
    Again(String),
    /// The connection is gone. Whether anything was written depends on what had been sent.
    Lost(String),
    /// The database takes no writes, so nothing was written; another connection may lead to one that does.
    Standby(String),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::Refused(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let text = describe(&error);
        let Some(code) = error.code() else {
            return if is_about_a_value(&error) {
                Failure::Refused(StoreError::unavailable(text))
            } else {
                Failure::Lost(text)
            };
        };
        match class(code) {
            Class::Again => Failure::Again(text),
            Class::Lost => Failure::Lost(text),
            Class::Standby => Failure::Standby(text),
            Class::Refused => Failure::Refused(StoreError::unavailable(advice(code, &text))),
        }
    }
}

impl Failure {
    /// Whether the connection that it came from is of no more use.
    pub(super) fn ends_the_connection(&self) -> bool {
        matches!(self, Failure::Lost(_) | Failure::Standby(_))
    }

    /// The error for the caller when something may have been written.
    pub(super) fn after_sending(self) -> StoreError {
        if let Failure::Lost(why) = self {
            return StoreError::Unknown { why };
        }
        self.before_sending()
    }

    /// The error for the caller when nothing can have been written.
    pub(super) fn before_sending(self) -> StoreError {
        match self {
            Failure::Refused(error) => error,
            Failure::Again(why) => StoreError::unavailable(format!(
                "other transactions were in the way too often ({why}); try again"
            )),
            Failure::Lost(why) => StoreError::unavailable(away(&why)),
            Failure::Standby(why) => StoreError::unavailable(format!(
                "the database takes no writes ({why}); wait for the failover, or name the primary"
            )),
        }
    }
}

/// The database cannot be reached.
pub(super) fn away(why: &str) -> String {
    format!("the database cannot be reached ({why}); check that Postgres runs and takes connections")
}

enum Class {
    Again,
    Lost,
    Standby,
    Refused,
}

fn class(code: &SqlState) -> Class {
    // A number that another node took at the same instant, or a run that it created: the next look tells which.
    let again = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::UNIQUE_VIOLATION,
    ];
    let lost = [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ];
    match code {
        code if again.contains(code) => Class::Again,
        code if *code == SqlState::READ_ONLY_SQL_TRANSACTION => Class::Standby,
        code if lost.contains(code) || code.code().starts_with("08") => Class::Lost,
        _ => Class::Refused,
    }
}

fn advice(code: &SqlState, text: &str) -> String {
    let advice = match code {
        code if *code == SqlState::DISK_FULL => "free some space on the database's disk",
        code if *code == SqlState::TOO_MANY_CONNECTIONS => {
            "raise max_connections, or use fewer connections for each node"
        }
        code if *code == SqlState::QUERY_CANCELED => "it took too long; the database is overloaded",
        code if *code == SqlState::INSUFFICIENT_PRIVILEGE => "grant the user the right to use the tables",
        code if *code == SqlState::UNDEFINED_TABLE => "the schema is missing; restart the server to make it",
        _ => return text.to_owned(),
    };
    format!("{text}; {advice}")
}

/// A value that could not be sent or read, rather than a connection that failed.
fn is_about_a_value(error: &Error) -> bool {
    let text = error.to_string();
    ["error serializing", "error deserializing", "invalid column", "expected ", "query returned"]
        .iter()
        .any(|start| text.starts_with(start))
}

/// What the database or the driver said, without data.
pub(super) fn describe(error: &Error) -> String {
    if let Some(database) = error.as_db_error() {
        return format!("{} ({})", database.message(), database.code().code());
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

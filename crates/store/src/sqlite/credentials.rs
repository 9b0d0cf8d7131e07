//! API keys: what is known of them, and changing it, also beside a running server.
//!
//! The writer makes these changes inside its transactions. [`CredentialFile`] makes the same ones from another process:
//! each is one short transaction that waits its turn, and the server, which reads credentials from the file each time,
//! sees it at once.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Row, params};
use standfast_core::digest::Digest;
use standfast_core::name::Tenant;
use standfast_core::time::Timestamp;

use super::names;
use super::read::{self, unreadable};
use super::schema::{self, OpenError};
use super::writer_memory::WriterMemory;
use super::{sql, work};
use crate::error::StoreError;
use crate::query::Credential;
use crate::row_audit::RowEntry;

/// How credentials change.
pub(super) enum CredentialChange {
    Put(Credential),
    Revoke { tenant: Tenant, prefix: String, at: Timestamp },
    Expire { tenant: Tenant, prefix: String, at: Timestamp },
}

/// Makes a change inside a transaction; false when there was nothing to change.
pub(super) fn change(
    connection: &Connection,
    memory: &mut WriterMemory,
    change: &CredentialChange,
) -> rusqlite::Result<bool> {
    let changed = match change {
        CredentialChange::Put(new) => {
            let tenant = memory.number(connection, new.tenant.as_str())?;
            connection.prepare_cached(sql::CREDENTIAL_ADD)?.execute(params![
                tenant,
                new.prefix,
                new.hash.0,
                new.facts,
                new.expires_at.map(|at| at.0),
                new.revoked_at.map(|at| at.0),
            ])?
        }
        CredentialChange::Revoke { tenant, prefix, at } => match names::find(connection, tenant.as_str())? {
            Some(tenant) => {
                connection.prepare_cached(sql::CREDENTIAL_REVOKE)?.execute(params![tenant, prefix, at.0])?
            }
            None => 0,
        },
        CredentialChange::Expire { tenant, prefix, at } => match names::find(connection, tenant.as_str())? {
            Some(tenant) => {
                connection.prepare_cached(sql::CREDENTIAL_EXPIRE)?.execute(params![tenant, prefix, at.0])?
            }
            None => 0,
        },
    };
    // Keys are few, and made and revoked by hand.
    if changed > 0
        && let Some(key) = find(connection, change.prefix())?
    {
        work::put_row(connection, memory, &key.tenant, &RowEntry::key(&key))?;
    }
    Ok(changed > 0)
}

impl CredentialChange {
    fn prefix(&self) -> &str {
        match self {
            CredentialChange::Put(new) => &new.prefix,
            CredentialChange::Revoke { prefix, .. } | CredentialChange::Expire { prefix, .. } => prefix,
        }
    }
}

pub(super) fn find(connection: &Connection, prefix: &str) -> rusqlite::Result<Option<Credential>> {
    let mut statement = connection.prepare_cached(sql::CREDENTIAL)?;
    statement.query_row(params![prefix], |row| read(connection, row)).optional()
}

pub(super) fn of_tenant(connection: &Connection, tenant: &Tenant) -> rusqlite::Result<Vec<Credential>> {
    let Some(number) = names::find(connection, tenant.as_str())? else { return Ok(Vec::new()) };
    let mut statement = connection.prepare_cached(sql::CREDENTIALS)?;
    let rows = statement.query_map(params![number], |row| read(connection, row))?;
    rows.collect()
}

fn read(connection: &Connection, row: &Row<'_>) -> rusqlite::Result<Credential> {
    let tenant: String = connection
        .prepare_cached(sql::NAME_TEXT)?
        .query_row(params![row.get::<_, i64>(0)?], |name| name.get(0))?;
    let bad_name =
        |bad| rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(bad));
    Ok(Credential {
        tenant: Tenant::new(tenant).map_err(bad_name)?,
        prefix: row.get(1)?,
        hash: Digest(row.get(2)?),
        facts: row.get(3)?,
        expires_at: row.get::<_, Option<i64>>(4)?.map(Timestamp),
        revoked_at: row.get::<_, Option<i64>>(5)?.map(Timestamp),
    })
}

/// The credentials of a file, for whoever has no store open on it. A server may be running on it.
#[derive(Debug)]
pub struct CredentialFile {
    connection: Connection,
}

impl CredentialFile {
    /// Opens the file; makes it when it is missing.
    pub fn open(path: impl AsRef<Path>) -> Result<CredentialFile, OpenError> {
        Ok(CredentialFile { connection: schema::open_beside(path.as_ref())? })
    }

    /// Keeps a new credential. False when its prefix is taken.
    pub fn put(&mut self, credential: Credential) -> Result<bool, StoreError> {
        self.change(&CredentialChange::Put(credential))
    }

    /// Marks a credential as revoked; the first instant stays. False when there is none with this prefix.
    pub fn revoke(&mut self, tenant: Tenant, prefix: String, at: Timestamp) -> Result<bool, StoreError> {
        self.change(&CredentialChange::Revoke { tenant, prefix, at })
    }

    /// Lets a credential expire at an instant, unless it does so before. False when there is none with this prefix.
    pub fn expire(&mut self, tenant: Tenant, prefix: String, at: Timestamp) -> Result<bool, StoreError> {
        self.change(&CredentialChange::Expire { tenant, prefix, at })
    }

    /// The credentials of a tenant, by prefix.
    pub fn list(&self, tenant: &Tenant) -> Result<Vec<Credential>, StoreError> {
        of_tenant(&self.connection, tenant).map_err(unreadable)
    }

    /// The tenants that there are.
    pub fn tenants(&self) -> Result<Vec<Tenant>, StoreError> {
        read::tenants(&self.connection)
    }

    /// Adds an entry to the audit of a tenant.
    pub fn record(&mut self, tenant: &Tenant, at: Timestamp, entry: &str) -> Result<(), StoreError> {
        self.transact(|transaction, memory| work::put_audit(transaction, memory, tenant, at, entry))
    }

    fn change(&mut self, wanted: &CredentialChange) -> Result<bool, StoreError> {
        self.transact(|transaction, memory| change(transaction, memory, wanted))
    }

    /// A transaction that has the right to write from its beginning: it waits for the server's instead of failing.
    fn transact<T>(
        &mut self,
        work: impl FnOnce(&Connection, &mut WriterMemory) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let transact = || -> rusqlite::Result<T> {
            let behavior = rusqlite::TransactionBehavior::Immediate;
            let transaction = self.connection.transaction_with_behavior(behavior)?;
            let done = work(&transaction, &mut WriterMemory::default())?;
            transaction.commit()?;
            Ok(done)
        };
        transact()
            .map_err(|error| StoreError::unavailable(format!("the database cannot be written: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::SecretStore;
    use crate::sqlite::{SqliteOptions, SqliteStore};

    fn credential(prefix: &str) -> Credential {
        Credential {
            tenant: Tenant::default_tenant(),
            prefix: prefix.into(),
            hash: Digest([7; 32]),
            facts: "{}".into(),
            expires_at: None,
            revoked_at: None,
        }
    }

    fn known(store: &SqliteStore, prefix: &str) -> Option<Credential> {
        let mut answer = store.credential(prefix.into());
        match answer.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(found) => found.unwrap(),
            std::task::Poll::Pending => unreachable!("reads answer at once"),
        }
    }

    /// The store holds its lock all the while.
    #[test]
    fn a_running_store_sees_what_another_process_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("standfast.db");
        let mut beside = CredentialFile::open(&path).unwrap();
        assert_eq!(beside.put(credential("before")), Ok(true));

        let store = SqliteStore::open(&SqliteOptions::at(&path)).unwrap();
        assert_eq!(known(&store, "before"), Some(credential("before")));
        let mut beside_it = CredentialFile::open(&path).unwrap();
        assert_eq!(beside_it.put(credential("after")), Ok(true));
        assert_eq!(known(&store, "after"), Some(credential("after")));
        let at = Timestamp(5);
        assert_eq!(beside.revoke(Tenant::default_tenant(), "after".into(), at), Ok(true));
        assert_eq!(known(&store, "after"), Some(Credential { revoked_at: Some(at), ..credential("after") }));
        assert_eq!(beside_it.list(&Tenant::default_tenant()).unwrap().len(), 2);
    }

    /// Neither refuses nor loses what the other writes.
    #[test]
    fn a_store_and_another_process_write_at_the_same_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("standfast.db");
        let store = SqliteStore::open(&SqliteOptions::at(&path)).unwrap();
        let beside = std::thread::spawn({
            let path = path.clone();
            move || {
                let mut file = CredentialFile::open(&path).unwrap();
                (0..100).for_each(|no| assert_eq!(file.put(credential(&format!("b-{no:03}"))), Ok(true)));
            }
        });
        // Handed over at once, whether or not anybody waits for the answers.
        let answers: Vec<_> =
            (0..100).map(|no| store.put_credential(credential(&format!("s-{no:03}")))).collect();
        drop(answers);
        beside.join().unwrap();
        drop(store);
        let all = CredentialFile::open(&path).unwrap().list(&Tenant::default_tenant()).unwrap();
        assert_eq!(all.len(), 200);
    }

    #[test]
    fn what_is_no_database_of_ours_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(CredentialFile::open(directory.path()), Err(OpenError::Unusable { .. })));
        let text = directory.path().join("notes.txt");
        std::fs::write(&text, "x".repeat(5000)).unwrap();
        assert!(matches!(CredentialFile::open(&text), Err(OpenError::Unusable { .. })));
    }
}

//! That somebody takes data out by a command: an entry of the audit of each tenant whose data it is, before they get it.
//!
//! Only of a database that the configuration or the data directory names. A file that is named itself is a copy or evidence, and reading it
//! changes nothing. Who may read the database may also keep this from being written: what cannot be written is said and stops nobody.

use serde_json::json;
use standfast::database::Database;
use standfast_core::name::Tenant;
use standfast_engine::clock::Clock;
use standfast_store::Store;
use standfast_store::file::{FileOptions, FileStore};
use standfast_store::postgres::PostgresStore;
use standfast_store::sqlite::CredentialFile;

use super::plain::plain;

/// What is taken out.
#[derive(Debug, Clone, Copy)]
pub(super) enum TakenOut {
    /// By `audit export`.
    Events,
    /// By `audit bundle`.
    Bundle,
    /// By `export`.
    Runs,
    /// By `export --files`.
    Files,
}

impl TakenOut {
    fn as_str(self) -> &'static str {
        match self {
            TakenOut::Events => "audit_export",
            TakenOut::Bundle => "audit_bundle",
            TakenOut::Runs => "export",
            TakenOut::Files => "export_files",
        }
    }
}

/// Records it for one tenant, or for all that there are.
pub(super) fn record(database: &Database, what: TakenOut, only: Option<&Tenant>) {
    if let Err(why) = recorded(database, what, only) {
        let what = what.as_str();
        eprintln!("standfast: that this was taken out ({what}) is not in the audit: {}", plain(&why));
    }
}

fn recorded(database: &Database, what: TakenOut, only: Option<&Tenant>) -> Result<(), String> {
    let user = format!("uid {}", rustix::process::getuid().as_raw());
    let entry = json!({
        "kind": "data.exported", "user": user, "by": "machine", "what": what.as_str(), "channel": "cli",
    });
    let (entry, now) = (entry.to_string(), Clock::system().now());
    match database {
        // What is not there yet has nothing that could be taken out.
        Database::Sqlite(path) if !path.exists() => Ok(()),
        Database::Sqlite(path) => {
            let mut file = CredentialFile::open(path).map_err(|error| error.to_string())?;
            let all = || file.tenants().map_err(|error| error.to_string());
            for tenant in only.map_or_else(all, |only| Ok(vec![only.clone()]))? {
                file.record(&tenant, now, &entry).map_err(|error| error.to_string())?;
            }
            Ok(())
        }
        Database::Files(files) => {
            let store = FileStore::open(&FileOptions { redis: None, ..files.options() })
                .map_err(|error| error.to_string())?;
            record_in(&store, only, &entry)
        }
        Database::Postgres(named) => {
            let store = PostgresStore::open(&named.options()).map_err(|error| error.to_string())?;
            record_in(&store, only, &entry)
        }
    }
}

fn record_in(store: &dyn Store, only: Option<&Tenant>, entry: &str) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let work = async {
        let tenants = match only {
            Some(only) => vec![only.clone()],
            None => store.tenants().await?,
        };
        for tenant in tenants {
            store.put_audit(tenant, Clock::system().now(), entry.to_owned()).await?;
        }
        Ok(())
    };
    let done = runtime.map_err(|error| error.to_string())?.block_on(work);
    done.map_err(|error: standfast_store::StoreError| error.to_string())
}

//! `standfast keys create | list | rotate | revoke`: who may call a server that asks for API keys.
//!
//! Works on the server's database, so whoever may write that may make keys; no other right exists. The server may be
//! running: it reads credentials from there each time. A key is shown once, alone on standard output.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use standfast::database::Database;
use standfast_core::name::{GroupName, InboxName, RoleName, Tenant, UserId};
use standfast_core::time::{Millis, Timestamp};
use standfast_engine::auth::{ApiKey, KeyFacts, NamedScope, Scope, ScopeLimits};
use standfast_engine::clock::{self, Clock};
use standfast_store::file::{self, CredentialFolder};
use standfast_store::postgres::{self, PostgresStore};
use standfast_store::sqlite::{CredentialFile, OpenError};
use standfast_store::{Answer, Credential, SecretStore, StoreError};
use standfast_surfaces::http::rfc3339;

use super::data::{self, NoDatabase};
use super::plain::{plain, table};
use super::running::{self, RunningServer};

/// Tries for a prefix that nobody has: there are 2^40 of them.
const TRIES: usize = 8;

#[derive(Debug, Subcommand)]
pub(super) enum Keys {
    /// Create a key. It is shown once; only its hash is stored.
    Create(Create),
    /// List keys with their user, scopes and expiry.
    List(KeyStoreArgs),
    /// Create a key with the user, groups, roles and scopes of another one, which expires after a while.
    Rotate {
        /// The part of the old key between `sf_` and the next `_`.
        prefix: String,
        /// How long both keys are valid: 1h, 7d. The old one ends earlier if it would.
        #[arg(long, value_name = "SPAN", default_value = "7d", value_parser = span)]
        overlap: Millis,
        /// When the new key expires: 12h, 30d, 8w. Default: never.
        #[arg(long, value_name = "SPAN", value_parser = span)]
        expires: Option<Millis>,
        #[command(flatten)]
        which: KeyStoreArgs,
    },
    /// Revoke a key. The next request with it is refused.
    Revoke {
        /// The part of the key between `sf_` and the next `_`.
        prefix: String,
        #[command(flatten)]
        which: KeyStoreArgs,
    },
}

/// Which data directory, and how to print.
#[derive(Debug, Args)]
pub(super) struct KeyStoreArgs {
    /// The server's data directory. Default: $XDG_DATA_HOME/standfast, else ~/.local/share/standfast.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The server's configuration file, if it names the database: SQLite or Postgres.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The tenant. Tenants share nothing but the server; the first key of a tenant creates it.
    #[arg(long, value_name = "T", default_value_t = Tenant::default_tenant(), value_parser = |text: &str| Tenant::new(text))]
    tenant: Tenant,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Create {
    /// The user that the key authenticates.
    #[arg(long, value_name = "U", value_parser = |text: &str| UserId::new(text))]
    user: UserId,
    /// A name for the key, such as the machine it is for.
    #[arg(long, value_name = "N")]
    name: Option<String>,
    /// A group of the user. May be repeated.
    #[arg(long = "group", value_name = "G", value_parser = |text: &str| GroupName::new(text))]
    groups: Vec<GroupName>,
    /// A role of the user: `admin` sees and changes everything, `operator` sees everything, runs it and decides nothing, `auditor` sees
    /// everything and changes nothing. May be repeated.
    #[arg(long = "role", value_name = "R", value_parser = |text: &str| RoleName::new(text))]
    roles: Vec<RoleName>,
    /// What the key may do: runs:read, runs:write, holds:decide, inbox:work, gates:open (which never decides), metrics:read, admin. May be repeated. Default: runs:read,
    /// runs:write, holds:decide. With a name it is for that alone: runs:read:AGENT, runs:write:AGENT, holds:decide:AGENT,
    /// inbox:work:INBOX, gates:open:GATEWAY.
    #[arg(long = "scope", value_name = "S")]
    scopes: Vec<NamedScope>,
    /// An inbox that the key may work in, the same as --scope inbox:work:INBOX. May be repeated.
    #[arg(long = "inbox", value_name = "I", value_parser = |text: &str| InboxName::new(text))]
    inboxes: Vec<InboxName>,
    /// When the key expires: 12h, 30d, 8w. Default: never.
    #[arg(long, value_name = "SPAN", value_parser = span)]
    expires: Option<Millis>,
    #[command(flatten)]
    which: KeyStoreArgs,
}

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    NoDatabase(#[from] NoDatabase),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Folder(#[from] file::OpenError),
    #[error("{setting}: {error}")]
    Database { setting: String, error: postgres::OpenError },
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("no unused key prefix was found; try again")]
    NoPrefix,
    #[error(
        "no key was created: this would write to {here}, but the server that runs with this data directory uses \
         {theirs}; {advice}"
    )]
    OtherServer { here: String, theirs: String, advice: String },
    #[error("tenant {1} has no key with the prefix {0}; `standfast keys list --tenant {1}` lists its keys")]
    Unknown(String, String),
    #[error("key {0} is {1}, so nothing takes its place; create a new one with `standfast keys create`")]
    Ended(String, &'static str),
}

pub(super) fn run(keys: &Keys) -> ExitCode {
    let done = match keys {
        Keys::Create(order) => create(order),
        Keys::List(which) => list(which),
        Keys::Rotate { prefix, overlap, expires, which } => rotate(prefix, *overlap, *expires, which),
        Keys::Revoke { prefix, which } => revoke(prefix, which),
    };
    match done {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("standfast: {failure}");
            match failure {
                Failure::Unknown(..) | Failure::Ended(..) | Failure::OtherServer { .. } => ExitCode::FAILURE,
                Failure::NoDatabase(_)
                | Failure::Open(_)
                | Failure::Folder(_)
                | Failure::Database { .. }
                | Failure::Store(_)
                | Failure::Json(_)
                | Failure::NoPrefix => ExitCode::from(2),
            }
        }
    }
}

fn open(which: &KeyStoreArgs) -> Result<KeyStore, Failure> {
    open_database(data::of_server(which.config.as_deref(), which.data.as_deref())?)
}

fn open_database(database: Database) -> Result<KeyStore, Failure> {
    Ok(match database {
        Database::Sqlite(path) => {
            // Keys may be made before the first start.
            data::make_folder_of(&path).map_err(NoDatabase::from)?;
            KeyStore::File(CredentialFile::open(path)?)
        }
        Database::Files(files) => KeyStore::Folder(CredentialFolder::open(&files.path)?),
        Database::Postgres(named) => {
            let refused = |error| Failure::Database { setting: named.setting.clone(), error };
            KeyStore::Postgres(PostgresStore::open(&named.options()).map_err(refused)?)
        }
    })
}

/// Where the keys of a server are. The server may be running.
enum KeyStore {
    File(CredentialFile),
    Folder(CredentialFolder),
    Postgres(PostgresStore),
}

impl KeyStore {
    fn put(&mut self, credential: Credential) -> Result<bool, StoreError> {
        match self {
            KeyStore::File(file) => file.put(credential),
            KeyStore::Folder(folder) => folder.put(credential),
            KeyStore::Postgres(store) => wait(store.put_credential(credential)),
        }
    }

    fn list(&self, tenant: &Tenant) -> Result<Vec<Credential>, StoreError> {
        match self {
            KeyStore::File(file) => file.list(tenant),
            KeyStore::Folder(folder) => folder.list(tenant),
            KeyStore::Postgres(store) => wait(store.list_credentials(tenant.clone())),
        }
    }

    fn revoke(&mut self, tenant: Tenant, prefix: String, at: Timestamp) -> Result<bool, StoreError> {
        match self {
            KeyStore::File(file) => file.revoke(tenant, prefix, at),
            KeyStore::Folder(folder) => folder.revoke(&tenant, &prefix, at),
            KeyStore::Postgres(store) => wait(store.revoke_credential(tenant, prefix, at)),
        }
    }

    fn expire(&mut self, tenant: Tenant, prefix: String, at: Timestamp) -> Result<bool, StoreError> {
        match self {
            KeyStore::File(file) => file.expire(tenant, prefix, at),
            KeyStore::Folder(folder) => folder.expire(&tenant, &prefix, at),
            KeyStore::Postgres(store) => wait(store.expire_credential(tenant, prefix, at)),
        }
    }
}

/// The store works by itself; here is only waited.
fn wait<T>(answer: Answer<T>) -> Result<T, StoreError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let no_runtime = |error: std::io::Error| StoreError::Unavailable { why: error.to_string() };
    runtime.map_err(no_runtime)?.block_on(answer)
}

/// A key in a database that no running server reads would be refused by the one that does.
fn refuse_other_server(which: &KeyStoreArgs, here: &str) -> Result<(), Failure> {
    let data = data::directory(which.data.as_deref()).map_err(NoDatabase::from)?;
    let servers = running::running(&data);
    let Some(RunningServer { config, database, .. }) = servers.first() else { return Ok(()) };
    if servers.iter().any(|server| server.database == here) {
        return Ok(());
    }
    // Whoever names a configuration means its database.
    if which.config.is_some() {
        eprintln!(
            "note: the server that runs with this data directory uses another database, {}",
            plain(database)
        );
        return Ok(());
    }
    let advice = match config {
        Some(config) => format!("pass its configuration: --config '{}'", config.display()),
        None => "it serves the demo: run this where no standfast.yaml is".to_owned(),
    };
    Err(Failure::OtherServer { here: plain(here), theirs: plain(database), advice: plain(&advice) })
}

fn create(order: &Create) -> Result<String, Failure> {
    let database = data::of_server(order.which.config.as_deref(), order.which.data.as_deref())?;
    let place = running::name_of(&database);
    refuse_other_server(&order.which, &place)?;
    let is_new = database.file().is_some_and(|file| !file.exists());
    let mut file = open_database(database)?;
    let now = Clock::system().now();
    let (mut scopes, mut limits) = match order.scopes.as_slice() {
        [] => (Scope::usual(), ScopeLimits::default()),
        named => ScopeLimits::of(named.iter().cloned()),
    };
    // Whoever names inboxes means these alone.
    for inbox in &order.inboxes {
        scopes.insert(Scope::InboxWork);
        limits.narrow(Scope::InboxWork, inbox.as_str());
    }
    let facts = KeyFacts {
        name: order.name.clone(),
        user: order.user.clone(),
        groups: order.groups.iter().cloned().collect(),
        roles: order.roles.iter().cloned().collect(),
        scopes,
        inboxes: BTreeSet::new(),
        limits,
        created_at: now,
    };
    let expires_at = order.expires.map(|span| now.plus(span));
    let (key, credential) = put_new(&mut file, &order.which.tenant, &facts, expires_at)?;
    if order.which.json {
        let mut shown = as_json(&credential, now);
        shown["key"] = key.reveal().into();
        shown["database"] = place.into();
        return Ok(format!("{shown}\n"));
    }
    // Beside standard output, so that `STANDFAST_KEY=$(standfast keys create …)` has the key alone.
    eprintln!("{}", remark(&facts, key.prefix(), expires_at, &order.which.tenant));
    let new = if is_new { ", a new database that no server has used yet" } else { "" };
    eprintln!("written to {}{new}", plain(&place));
    Ok(format!("{}\n", key.reveal()))
}

/// Keys of the usual tenant in a database that no server has opened yet; each as its user needs it.
pub(super) fn make(database: Database, facts: &[KeyFacts]) -> Result<Vec<String>, String> {
    let mut store = open_database(database).map_err(|failure| failure.to_string())?;
    let mut keys = Vec::new();
    for facts in facts {
        let made = put_new(&mut store, &Tenant::default_tenant(), facts, None);
        keys.push(made.map_err(|failure| failure.to_string())?.0.reveal());
    }
    Ok(keys)
}

/// A key with a prefix that nobody has.
fn put_new(
    store: &mut KeyStore,
    tenant: &Tenant,
    facts: &KeyFacts,
    expires_at: Option<Timestamp>,
) -> Result<(ApiKey, Credential), Failure> {
    for _ in 0..TRIES {
        let key = ApiKey::new(clock::random_bytes());
        let credential = key.credential(tenant.clone(), facts, expires_at)?;
        if store.put(credential.clone())? {
            return Ok((key, credential));
        }
    }
    Err(Failure::NoPrefix)
}

fn remark(facts: &KeyFacts, prefix: &str, expires_at: Option<Timestamp>, tenant: &Tenant) -> String {
    let of_tenant = if *tenant == Tenant::default_tenant() {
        String::new()
    } else {
        format!(" --tenant {}", plain(tenant.as_str()))
    };
    let until =
        expires_at.map_or("it does not expire".to_owned(), |at| format!("it expires at {}", rfc3339(at)));
    format!(
        "key {prefix} of {} for {}; {until}\nsave it now, it is not shown again; `standfast keys revoke {prefix}{of_tenant}` revokes it",
        plain(facts.user.as_str()),
        held_scopes(facts).join(", ")
    )
}

fn list(which: &KeyStoreArgs) -> Result<String, Failure> {
    let (credentials, now) = (open(which)?.list(&which.tenant)?, Clock::system().now());
    if which.json {
        let keys: Vec<Value> = credentials.iter().map(|one| as_json(one, now)).collect();
        return Ok(format!("{}\n", json!({ "keys": keys })));
    }
    if credentials.is_empty() {
        return Ok("no keys\n".into());
    }
    let rows: Vec<Vec<String>> = credentials.iter().map(|one| row(one, now)).collect();
    Ok(table(&["PREFIX", "STATE", "USER", "NAME", "GROUPS", "ROLES", "SCOPES", "CREATED", "EXPIRES"], &rows))
}

/// A new key for whoever has this one, which ends after the overlap: whoever is told the new one in time notices nothing.
fn rotate(
    prefix: &str,
    overlap: Millis,
    expires: Option<Millis>,
    which: &KeyStoreArgs,
) -> Result<String, Failure> {
    let prefix = prefix_of(prefix);
    let database = data::of_server(which.config.as_deref(), which.data.as_deref())?;
    let place = running::name_of(&database);
    refuse_other_server(which, &place)?;
    let (mut store, now) = (open_database(database)?, Clock::system().now());
    let unknown = || Failure::Unknown(plain(&prefix), plain(which.tenant.as_str()));
    let old = store.list(&which.tenant)?.into_iter().find(|one| one.prefix == prefix).ok_or_else(unknown)?;
    let how_it_stands = state(&old, now);
    if how_it_stands != "valid" {
        return Err(Failure::Ended(plain(&prefix), how_it_stands));
    }
    let before: KeyFacts = serde_json::from_str(&old.facts)?;
    let facts = KeyFacts { created_at: now, ..before };
    // The new one first: whatever happens in between, somebody has a key.
    let (key, credential) = put_new(&mut store, &which.tenant, &facts, expires.map(|span| now.plus(span)))?;
    let ends = now.plus(overlap);
    let ends = old.expires_at.map_or(ends, |before| before.min(ends));
    if !store.expire(which.tenant.clone(), prefix.clone(), ends)? {
        return Err(unknown());
    }
    if which.json {
        let mut shown = as_json(&credential, now);
        shown["key"] = key.reveal().into();
        shown["database"] = place.into();
        shown["replaces"] = json!({ "prefix": prefix, "expires_at": rfc3339(ends) });
        return Ok(format!("{shown}\n"));
    }
    eprintln!("{}", remark(&facts, key.prefix(), credential.expires_at, &which.tenant));
    eprintln!(
        "key {} expires at {}; webhook subscriptions made with it are enabled again with the new one",
        plain(&prefix),
        rfc3339(ends)
    );
    Ok(format!("{}\n", key.reveal()))
}

/// A whole key is taken too, because that is what people have at hand.
fn prefix_of(text: &str) -> String {
    let prefix = text.strip_prefix("sf_").unwrap_or(text);
    prefix.split_once('_').map_or(prefix, |(prefix, _)| prefix).to_owned()
}

fn revoke(prefix: &str, which: &KeyStoreArgs) -> Result<String, Failure> {
    let prefix = prefix_of(prefix);
    let at = Clock::system().now();
    if !open(which)?.revoke(which.tenant.clone(), prefix.clone(), at)? {
        return Err(Failure::Unknown(plain(&prefix), plain(which.tenant.as_str())));
    }
    if which.json {
        Ok(format!("{}\n", json!({ "prefix": prefix, "state": "revoked" })))
    } else {
        Ok(format!("{prefix} is revoked\n"))
    }
}

fn state(credential: &Credential, now: Timestamp) -> &'static str {
    match (credential.revoked_at, credential.expires_at) {
        (Some(_), _) => "revoked",
        (None, Some(at)) if at <= now => "expired",
        (None, Some(_) | None) => "valid",
    }
}

fn row(credential: &Credential, now: Timestamp) -> Vec<String> {
    let expires = credential.expires_at.map_or("never".into(), rfc3339);
    let start = [credential.prefix.clone(), state(credential, now).to_owned()];
    let facts = match serde_json::from_str::<KeyFacts>(&credential.facts) {
        Ok(facts) => [
            facts.user.to_string(),
            facts.name.clone().unwrap_or_default(),
            texts(&facts.groups).join(","),
            texts(&facts.roles).join(","),
            held_scopes(&facts).join(","),
            rfc3339(facts.created_at),
        ],
        Err(_) => ["?"; 6].map(str::to_owned),
    };
    start.into_iter().chain(facts).chain([expires]).collect()
}

fn as_json(credential: &Credential, now: Timestamp) -> Value {
    let mut shown = json!({
        "tenant": credential.tenant,
        "prefix": credential.prefix,
        "state": state(credential, now),
        "expires_at": credential.expires_at.map(rfc3339),
        "revoked_at": credential.revoked_at.map(rfc3339),
    });
    if let Ok(facts) = serde_json::from_str::<KeyFacts>(&credential.facts) {
        let held = held_scopes(&facts);
        let KeyFacts { name, user, groups, roles, created_at, .. } = facts;
        let more = [
            ("name", json!(name)),
            ("user", json!(user)),
            ("groups", json!(groups)),
            ("roles", json!(roles)),
            ("scopes", json!(held)),
            ("created_at", json!(rfc3339(created_at))),
        ];
        more.into_iter().for_each(|(name, value)| shown[name] = value);
    }
    shown
}

/// The scopes of a key, with what they are narrowed to.
fn held_scopes(facts: &KeyFacts) -> Vec<String> {
    texts(facts.all_limits().named(&facts.scopes))
}

fn texts<T: ToString>(items: impl IntoIterator<Item = T>) -> Vec<String> {
    items.into_iter().map(|item| item.to_string()).collect()
}

/// A span as people write it: a whole number above 0 and `m`, `h`, `d` or `w`.
fn span(text: &str) -> Result<Millis, String> {
    let wrong = || format!("{text:?} is not a span such as 12h, 30d or 8w");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let minutes = match unit {
        "m" => 1,
        "h" => 60,
        "d" => 24 * 60,
        "w" => 7 * 24 * 60,
        _ => return Err(wrong()),
    };
    let span = number.parse::<i64>().ok().filter(|number| *number > 0);
    let span = span.and_then(|number| number.checked_mul(minutes * 60_000));
    span.map(Millis).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_whole_and_have_a_unit() {
        assert_eq!(span("30d"), Ok(Millis::hours(24 * 30)));
        assert_eq!(span("90m"), Ok(Millis::seconds(5400)));
        for text in ["", "30", "d", "0d", "-1d", "1.5h", "30 d", "9223372036854775807w"] {
            assert!(span(text).is_err(), "{text:?}");
        }
    }
}

//! Going on with a changed configuration: on SIGHUP, and by itself when the file changes.
//!
//! The new file is checked as a whole first. One that has a mistake, or that needs another database, changes nothing:
//! the old one stays, and the log says why.

use std::path::Path;
use std::time::Duration;

use standfast::config::{self, BuildError, LoadError, RestartKey, ServerParts, Surroundings, Unset};
use standfast::database::Database;
use standfast_engine::Engine;
use standfast_engine::settings::Settings;
use tokio::signal::unix::{SignalKind, signal};

use super::data;
use super::known_configuration::KnownConfiguration;

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How often in a row it cannot be read before that is said: an editor may be about to put a new file in the place of the old one.
const FAILURES_TOLD: u32 = 3;

/// What a reload must leave as it is.
#[derive(Debug, Clone)]
pub(super) struct FixedAtStart {
    /// The database.
    pub(super) database: Option<Database>,
    /// What the server has beside its configuration.
    pub(super) around: Surroundings,
    /// Whether there is a memory store beside it.
    pub(super) uses_memory: bool,
    /// What the keys said that only a start reads.
    pub(super) restart_keys: Vec<RestartKey>,
    /// The file as it was before the start read it: what is written while the server starts is a change.
    pub(super) file: Option<Vec<u8>>,
}

#[derive(Debug, thiserror::Error)]
enum NotTaken {
    #[error("{0}")]
    Load(#[from] LoadError),
    #[error("{0}")]
    Build(#[from] BuildError),
    #[error("it names another database; restart the server to change it")]
    OtherStore,
    #[error("{0}")]
    Refused(String),
}

/// Keeps an engine up with a file, for as long as it is polled. `overrule` is what the command line says against it.
pub(super) async fn keep_up(
    path: &Path,
    engine: &Engine,
    fixed: &FixedAtStart,
    overrule: impl Fn(&mut Settings) -> Result<(), String>,
) -> std::io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    let (mut seen, mut failures) = (fixed.file.clone(), 0);
    let known = KnownConfiguration::below(&fixed.around.data);
    known.note(engine, seen.as_deref()).await;
    loop {
        let is_asked = tokio::select! {
            _ = hangup.recv() => true,
            // Somebody logged in at a server whose tools were not known.
            () = news(fixed) => true,
            () = tokio::time::sleep(LOOK_EVERY) => false,
        };
        let now = match std::fs::read(path) {
            Ok(now) => now,
            Err(error) => {
                failures += 1;
                if is_asked || failures == FAILURES_TOLD {
                    tracing::error!(
                        "config: the configuration cannot be read, the old one stays in use: {error}"
                    );
                    seen = None;
                }
                continue;
            }
        };
        failures = 0;
        if !is_asked && seen.as_ref() == Some(&now) {
            continue;
        }
        seen = Some(now);
        match taken(path, fixed, &overrule).await {
            Ok((settings, restart)) => {
                let agents: Vec<&str> = settings.agents.keys().map(|name| name.as_str()).collect();
                let agents = agents.join(", ");
                engine.reload(settings);
                tracing::info!(agents, "config: configuration reloaded");
                known.note(engine, seen.as_deref()).await;
                if !restart.is_empty() {
                    let keys = restart.join(", ");
                    tracing::warn!(
                        keys,
                        "config: changed keys that need a restart, the old values stay in use"
                    );
                }
            }
            Err(error) => {
                tracing::error!(
                    "config: the changed configuration is invalid, the old one stays in use: {error}"
                )
            }
        }
    }
}

async fn news(fixed: &FixedAtStart) {
    match &fixed.around.logins {
        Some(logins) => logins.site.news().await,
        None => std::future::pending().await,
    }
}

/// The new settings, and the keys that changed and need a restart.
async fn taken(
    path: &Path,
    fixed: &FixedAtStart,
    overrule: impl Fn(&mut Settings) -> Result<(), String>,
) -> Result<(Settings, Vec<&'static str>), NotTaken> {
    let config = config::load(path, Unset::Refuse)?;
    let restart = RestartKey::changed(&fixed.restart_keys, &config.restart_keys());
    let ServerParts { mut settings, database, uses_memory, fixed: _ } = config.build(&fixed.around).await?;
    // A memory store that is not needed any more does no harm.
    if database != fixed.database || (uses_memory && !fixed.uses_memory) {
        return Err(NotTaken::OtherStore);
    }
    overrule(&mut settings).map_err(NotTaken::Refused)?;
    let key = data::webhook_key(&fixed.around.data, settings.webhooks.key.take());
    settings.webhooks.key = Some(key.map_err(|no| NotTaken::Refused(no.to_string()))?);
    Ok((settings, restart))
}

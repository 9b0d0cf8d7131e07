//! `standfast encryption status | reseal`: which keys wrap the keys of runs, and wrapping them by the first one.
//!
//! Works on the file of keys beside the database; the server may be running. What keys are is the store's.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use standfast::config::{self, Unset};
use standfast::database::Database;
use standfast::encryption::EncryptionSettings;
use standfast_store::sqlite;

use super::data;
use super::plain::{lines, plain};

#[derive(Debug, Subcommand)]
pub(super) enum Encryption {
    /// Show how many runs each key protects.
    Status(Place),
    /// Wrap the keys of all runs with the first key of the configuration. The server may be running; an interrupted reseal
    /// continues where it stopped. Afterwards the other keys can be removed.
    Reseal(Place),
}

/// Which database, and how to print.
#[derive(Debug, Args)]
pub(super) struct Place {
    /// The server's configuration file. Default: `standfast.yaml` in the current directory.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The server's data directory, if the configuration names no database. Default: $XDG_DATA_HOME/standfast, else
    /// ~/.local/share/standfast.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: &Encryption) -> ExitCode {
    let (place, done) = match command {
        Encryption::Status(place) => (place, status(place)),
        Encryption::Reseal(place) => (place, reseal(place)),
    };
    match (done, place.json) {
        (Ok((body, _)), true) => {
            println!("{body}");
            ExitCode::SUCCESS
        }
        (Ok((_, text)), false) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        (Err(why), true) => {
            println!("{}", json!({ "error": why }));
            ExitCode::from(2)
        }
        (Err(why), false) => {
            eprintln!("standfast: {}", lines(&why));
            ExitCode::from(2)
        }
    }
}

impl Place {
    /// How payloads are sealed, and of which database.
    fn settings(&self) -> Result<(EncryptionSettings, PathBuf), String> {
        let path = data::config_file(self.config.as_deref());
        let path = path.ok_or("there is no standfast.yaml here; name a configuration file with --config")?;
        let config = config::load(&path, Unset::Ask).map_err(|error| error.to_string())?;
        let none = || format!("{} has no server.encryption", path.display());
        let settings = config.encryption().ok_or_else(none)?;
        let database =
            data::of_server(Some(&path), self.data.as_deref()).map_err(|error| error.to_string())?;
        match database {
            Database::Sqlite(file) => Ok((settings, file)),
            other @ (Database::Files(_) | Database::Postgres(_)) => {
                Err(format!("{other} has no sealed payloads"))
            }
        }
    }
}

fn status(place: &Place) -> Result<(Value, String), String> {
    let (settings, database) = place.settings()?;
    let file = settings.file_for(&database);
    let wrapped = sqlite::wrapped_keys(&file)?;
    let first = settings.keys.first().map(|(id, _)| id.clone()).unwrap_or_default();
    let count = |id: &str| wrapped.iter().find(|one| one.wrapped_by == id).map_or(0, |one| one.runs);
    let unknown = wrapped.iter().filter(|one| settings.keys.iter().all(|(id, _)| *id != one.wrapped_by));
    let ids: Vec<&str> = settings.keys.iter().map(|(id, _)| id.as_str()).collect();
    let all = ids.iter().copied().chain(unknown.map(|one| one.wrapped_by.as_str()));
    let (mut keys, mut text) = (Vec::new(), format!("payload keys in {}\n", file.display()));
    for id in all {
        let (runs, is_known) = (count(id), ids.contains(&id));
        let what = match (id == first, is_known, runs) {
            (true, ..) => "wraps new ones",
            (_, true, 0) => "can be removed",
            (_, true, _) => "standfast encryption reseal frees it",
            (_, false, _) => "missing: a server does not start without it",
        };
        text.push_str(&format!("{}: {runs} runs, {what}\n", plain(id)));
        keys.push(json!({ "id": id, "runs": runs, "first": id == first, "configured": is_known }));
    }
    Ok((json!({ "key_file": file.display().to_string(), "keys": keys }), text))
}

fn reseal(place: &Place) -> Result<(Value, String), String> {
    let (settings, database) = place.settings()?;
    let sealing = settings.sealing(&database).map_err(|error| error.to_string())?;
    let shows_progress = std::io::stderr().is_terminal() && !place.json;
    let done = sqlite::reseal(&sealing, |runs| {
        if shows_progress {
            // Nobody needs to hear that a progress line could not be written.
            let _ = write!(std::io::stderr(), "\r{runs} keys wrapped");
        }
    });
    if shows_progress {
        eprintln!();
    }
    let done = done?;
    let first = settings.keys.first().map(|(id, _)| id.clone()).unwrap_or_default();
    let text =
        format!("the keys of {done} runs were wrapped anew: all are wrapped by {} now\n", plain(&first));
    Ok((json!({ "wrapped": done, "by": first }), text))
}

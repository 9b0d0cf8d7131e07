//! `standfast schema`: the JSON Schema of the configuration file, or the page about its keys.
//!
//! Both are made from the types in `config/file.rs`.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use standfast::config;

/// What `schema` can be told.
#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// Print the page docs/configuration.md instead.
    #[arg(long)]
    markdown: bool,
}

pub(crate) fn run(arguments: &Schema) -> ExitCode {
    let text = if arguments.markdown { config::reference() } else { format!("{:#}\n", config::schema()) };
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(2),
    }
}

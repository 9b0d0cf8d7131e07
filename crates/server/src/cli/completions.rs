//! `standfast completions` and `standfast man`: what shells and `man` know of the command line, made from its definition.
//!
//! Packages call them when they are made, so that neither can be older than the program.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

/// What `completions` can be told.
#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell.
    shell: Shell,
}

/// What `man` can be told.
#[derive(Debug, Args)]
pub(super) struct Man {
    /// Write one page for each command to this folder, which must exist, instead of printing that of `standfast`.
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(super) fn completions(mut command: Command, arguments: &Completions) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "standfast", &mut text);
    finish(io::stdout().lock().write_all(&text))
}

pub(super) fn man(command: Command, arguments: &Man) -> ExitCode {
    finish(match &arguments.folder {
        Some(folder) => clap_mangen::generate_to(command, folder),
        None => clap_mangen::Man::new(command).render(&mut io::stdout().lock()),
    })
}

fn finish(done: io::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read it has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("standfast: {error}");
            ExitCode::from(2)
        }
    }
}

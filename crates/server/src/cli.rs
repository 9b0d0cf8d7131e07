//! The command line: what can be asked of the program, and who answers.
//!
//! Every command has `--json` for machines. Exit codes: 0 all is well, 1 the answer is no, 2 the question could not be
//! answered.

mod audit;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A server for AI agents that must stop and wait: for a person's approval, an answer, a long job, a login.
#[derive(Debug, Parser)]
#[command(name = "holdpoint", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Prove what is stored.
    #[command(subcommand)]
    Audit(Audit),
}

#[derive(Debug, Subcommand)]
enum Audit {
    /// Check every hash chain of a database, and that each run's events reproduce its row. Reads only; the server may
    /// be running.
    Verify {
        /// The SQLite file of a server.
        file: PathBuf,
        /// Print one JSON object instead of text.
        #[arg(long)]
        json: bool,
    },
}

/// Does what the arguments say.
pub(crate) fn run() -> ExitCode {
    match Arguments::parse().command {
        Command::Audit(Audit::Verify { file, json }) => audit::verify(&file, json),
    }
}

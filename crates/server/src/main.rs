//! The program `standfast`.
//!
//! Arguments become a typed command once, in `cli`; each command is one file there and answers with an exit code.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}

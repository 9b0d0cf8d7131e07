//! The program `standfast`.
//!
//! Arguments become a typed command once, in `cli`; each command is one file there and answers with an exit code.

mod cli;

use std::process::ExitCode;

/// Less processor time than the system's, above all where several threads allocate; measured in docs/performance.md.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run()
}

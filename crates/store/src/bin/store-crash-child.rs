//! The process that the fault tests kill and starve of its disk. Not part of the product.
//!
//! What it does is in `conformance::faults::child`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    standfast_store::conformance::faults::child::run(&arguments)
}

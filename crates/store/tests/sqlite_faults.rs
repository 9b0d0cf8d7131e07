//! A few of each row of the SQLite store's fault matrix; `store-faults` runs them all.
//!
//! What is broken and what must hold is in `src/conformance/faults`.

use std::path::PathBuf;

use standfast_store::conformance::faults::child::Program;
use standfast_store::conformance::faults::{
    corrupt_rows, full_disk, io_errors, kills, torn_tails, unusable_files,
};

fn program() -> Program {
    Program { path: PathBuf::from(env!("CARGO_BIN_EXE_store-crash-child")), arguments: Vec::new() }
}

/// How often, unless the environment says otherwise.
fn count(usual: usize) -> usize {
    std::env::var("STANDFAST_FAULTS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn kill_9_loses_nothing_that_was_acknowledged() {
    kills::kills(&program(), count(8)).assert_clean();
}

#[test]
fn a_full_disk_is_said_and_survived() {
    full_disk::full_disk(count(20)).assert_clean();
}

#[test]
fn an_io_error_stops_the_writer_and_loses_nothing() {
    io_errors::io_errors(&program(), count(10)).assert_clean();
}

/// F16, I1, T29.
#[test]
fn unusable_files_are_refused_with_a_reason() {
    unusable_files::unusable_files(count(14)).assert_clean();
}

#[test]
fn a_torn_tail_gives_a_prefix_of_history() {
    torn_tails::torn_tails(count(50)).assert_clean();
}

#[test]
fn a_corrupt_row_quarantines_its_run_and_no_other() {
    corrupt_rows::corrupt_rows(count(400)).assert_clean();
}

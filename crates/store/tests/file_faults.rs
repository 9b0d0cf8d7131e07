//! A few of each row of the file store's fault matrix; `store-faults` runs them all.
//!
//! What is broken and what must hold is in `src/conformance/faults/files.rs`.

use std::path::PathBuf;

use standfast_store::conformance::faults::child::Program;
use standfast_store::conformance::faults::files::{self, fresh_folder};
use standfast_store::conformance::faults::{io_errors, kills};

fn program() -> Program {
    Program { path: PathBuf::from(env!("CARGO_BIN_EXE_store-crash-child")), arguments: Vec::new() }
}

/// How often, unless the environment says otherwise.
fn count(usual: usize) -> usize {
    std::env::var("STANDFAST_FAULTS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// S2-24, F2: `kill -9` inside appends of the file store, at random moments: the journal decides, and what was acknowledged is in
/// the files after the next start, whole.
#[test]
fn kill_9_loses_nothing_that_was_acknowledged() {
    kills::kills_of(&program(), count(8), fresh_folder).assert_clean();
}

/// S2-24, F14: a full disk refuses appends with its reason, and they go on when there is room.
#[test]
fn a_full_disk_is_said_and_survived() {
    files::full_disk(count(20)).assert_clean();
}

/// S2-24, F15: a failed write or sync stops the writer; nothing is acknowledged after it, and nothing before it is lost.
#[test]
fn an_io_error_stops_the_writer_and_loses_nothing() {
    io_errors::io_errors_of(&program(), count(12), fresh_folder).assert_clean();
}

/// F16, I1, T29: a folder that cannot be written, is another's or has gone is refused with a reason.
#[test]
fn unusable_folders_are_refused_with_a_reason() {
    files::unusable_folders(count(10)).assert_clean();
}

/// S2-24, F17: a journal that is cut at any byte gives exactly the appends that were acknowledged, several runs all or none.
#[test]
fn torn_writes_give_exactly_what_was_acknowledged() {
    files::torn_writes(count(60)).assert_clean();
}

/// S2-24, F18: a damaged file is named, its run quarantined, and the others go on.
#[test]
fn a_damaged_file_is_named_and_stops_no_other_run() {
    files::damaged_files(count(120)).assert_clean();
}

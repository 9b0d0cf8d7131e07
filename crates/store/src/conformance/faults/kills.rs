//! Kill -9 in the middle of appends, again and again on the same file.
//!
//! Every acknowledged append is there afterwards, every chain verifies, every fold equals its row.

use std::time::Duration;

use super::super::random::Random;
use super::child::{Program, Work, check_after};
use super::{FreshPlace, Report, fresh_file};

/// A run of the process starts over with a new file after so many kills, so that checking stays quick.
const KILLS_OF_A_FILE: usize = 10;

/// Kills the process so many times.
#[must_use]
pub fn kills(program: &Program, count: usize) -> Report {
    kills_of(program, count, fresh_file)
}

/// The same for stores in other places.
#[must_use]
pub fn kills_of(program: &Program, count: usize, fresh: FreshPlace) -> Report {
    let mut random = Random::new(9);
    let mut violations = Vec::new();
    let (mut directory, mut file) = fresh();
    let mut acked = Vec::new();
    for n in 0..count {
        if n % KILLS_OF_A_FILE == 0 {
            (directory, file) = fresh();
            acked.clear();
        }
        let work = Work { seed: n as u64, threads: 4, cycles: 1_000_000 };
        let running = program.start(&[], &file, work);
        let said = running.kill_after(Duration::from_secs(30), Duration::from_millis(random.below(60)));
        if said.acked.is_empty() {
            violations.push(format!("kill {n}: nothing was acknowledged before it: {said:?}"));
        }
        acked.extend(said.acked);
        violations.extend(check_after(&file, &acked).into_iter().map(|why| format!("kill {n}: {why}")));
    }
    drop(directory);
    Report { id: "F2", what: "kill -9 of the store's process", count, violations }
}

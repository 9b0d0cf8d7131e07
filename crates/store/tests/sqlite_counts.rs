//! What a cycle costs the SQLite store, in counts that no busy machine can change: statements, syncs, reads.
//!
//! The cycle is the one of the bench: start, held, approve, tool, end, written as an engine writes it.

#![expect(clippy::unwrap_used, reason = "helpers of tests: a failed expectation is a failed test")]

#[expect(dead_code, reason = "the bench uses the rest")]
#[path = "../benches/cycle/cycle.rs"]
mod cycle;
#[expect(dead_code, reason = "the bench uses the rest")]
#[path = "../benches/cycle/measure.rs"]
mod measure;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use standfast_core::project::HoldChange;
use standfast_store::conformance::faults::fresh_file;
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use standfast_store::{Effort, Observer};

use cycle::Bench;

/// Counts what a store does.
#[derive(Debug, Default)]
struct Counter {
    efforts: Mutex<BTreeMap<Effort, u64>>,
    commits: Mutex<Vec<usize>>,
}

impl Observer for Counter {
    fn now(&self) -> u64 {
        0
    }

    fn committed(&self, appends: usize) {
        self.commits.lock().unwrap().push(appends);
    }

    fn appended(&self, _: u64, _: &[HoldChange]) {}

    fn counts_efforts(&self) -> bool {
        true
    }

    fn spent(&self, effort: Effort) {
        *self.efforts.lock().unwrap().entry(effort).or_default() += 1;
    }
}

impl Counter {
    /// What was counted since the last time.
    fn take(&self) -> BTreeMap<Effort, u64> {
        std::mem::take(&mut *self.efforts.lock().unwrap())
    }
}

fn counted(file: &Path) -> (Arc<Counter>, Arc<Bench>) {
    let counter = Arc::new(Counter::default());
    let options = SqliteOptions { observer: Some(counter.clone()), ..SqliteOptions::at(file) };
    let store = Arc::new(SqliteStore::open(&options).unwrap());
    (counter, Arc::new(Bench::new(store)))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn a_cycle_has_few_statements() {
    let (_directory, file) = fresh_file();
    let (counter, bench) = counted(&file);
    const CYCLES: u64 = 50;
    runtime().block_on(async {
        // What is written once in the life of a store is not part of a cycle.
        let hold = bench.start_until_held().await;
        bench.approve_until_done(hold).await;
        counter.take();
        for _ in 0..CYCLES {
            let hold = bench.start_until_held().await;
            bench.approve_until_done(hold).await;
        }
    });
    let all = counter.take();
    let each = |effort| all.get(&effort).copied().unwrap_or_default() as f64 / CYCLES as f64;
    println!("a cycle: {:?}", all.keys().map(|effort| (*effort, each(*effort))).collect::<Vec<_>>());
}

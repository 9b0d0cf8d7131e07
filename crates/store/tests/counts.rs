//! What a cycle costs a store, in counts that no busy machine can change: statements, syncs, trips, reads.
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

use rusqlite::Connection;
use standfast_core::command::{Choice, Command};
use standfast_core::digest::Digest;
use standfast_core::id::Seq;
use standfast_core::project::{HoldChange, RunRow};
use standfast_core::time::Timestamp;
use standfast_store::conformance::appending::say;
use standfast_store::conformance::cluster::{OwnServer, Replication, query_count, run, shared};
use standfast_store::conformance::faults::fresh_file;
use standfast_store::conformance::support::{
    NewRun, SHELL, Scribe, block_on, checked, resolve, tenant, the_hold,
};
use standfast_store::postgres::{PostgresOptions, PostgresStore};
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use standfast_store::{Batch, Effort, IdempotencyStore, KeyNote, Observer, RunStore, Store};

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
        self.commits.lock().unwrap().clear();
        std::mem::take(&mut *self.efforts.lock().unwrap())
    }
}

fn sqlite(file: &Path) -> (Arc<Counter>, Arc<SqliteStore>) {
    let counter = Arc::new(Counter::default());
    let options = SqliteOptions { observer: Some(counter.clone()), ..SqliteOptions::at(file) };
    (counter, Arc::new(SqliteStore::open(&options).unwrap()))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// What each of many cycles costs, one after the other, once the store knows what is written once in its life.
fn cost_of_a_cycle(counter: &Counter, store: Arc<dyn Store>) -> impl Fn(Effort) -> f64 {
    const CYCLES: u64 = 50;
    let bench = Bench::new(store);
    runtime().block_on(async {
        for n in 0..=CYCLES {
            let hold = bench.start_until_held().await;
            bench.approve_until_done(hold).await;
            if n == 0 {
                counter.take();
            }
        }
    });
    let all = counter.take();
    let each = move |effort| all.get(&effort).copied().unwrap_or_default() as f64 / CYCLES as f64;
    let efforts =
        [Effort::WriteStatement, Effort::Sync, Effort::ReadTransaction, Effort::ReadStatement, Effort::Trip];
    println!("a cycle: {:?}", efforts.map(|effort| (effort, each(effort))));
    each
}

#[test]
fn a_cycle_has_few_statements() {
    let (_directory, file) = fresh_file();
    let (counter, store) = sqlite(&file);
    let each = cost_of_a_cycle(&counter, store);
    assert!(each(Effort::WriteStatement) <= 18.0);
    // More than three only where the machine was so busy that nobody came in time to wait for it.
    assert!(each(Effort::Sync) <= 4.0, "what nobody awaits is synced with what follows");
    assert!(each(Effort::ReadStatement) <= 2.0, "one for the run, one for its log");
}

#[test]
fn a_cycle_on_postgres_has_few_trips() {
    let url = shared().database();
    let counter = Arc::new(Counter::default());
    let options = PostgresOptions { observer: Some(counter.clone()), ..PostgresOptions::at(&url) };
    let store = Arc::new(PostgresStore::open(&options).unwrap());
    let each = cost_of_a_cycle(&counter, store);
    assert!(each(Effort::Trip) <= 8.0, "one for each commit, one for each read");
    assert!(each(Effort::WriteStatement) <= 30.0);
}

/// Lets everything that is handed over wait for a lock on the file, and so gather into one group.
fn gathered<T>(file: &Path, store: &SqliteStore, scribe: &mut Scribe, work: impl FnOnce() -> T) -> T {
    let lock = Connection::open(file).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let first = store.append(vec![scribe.start(&NewRun::of("helper"))]);
    std::thread::sleep(std::time::Duration::from_millis(200));
    let result = work();
    drop(lock);
    block_on(first).unwrap();
    result
}

/// The appends of a run from its start until it is approved.
fn appends_of_one_run(scribe: &mut Scribe) -> (Vec<Batch>, RunRow) {
    let start = scribe.start(&NewRun::of("helper"));
    let reply = scribe.reply(&start.row, &[SHELL]);
    let approval = scribe.batch(&reply.row, &resolve(the_hold(&reply.row).key, Choice::Approve));
    let cancel = scribe.batch(&approval.row, &Command::Cancel { reason: None });
    let row = cancel.row.clone();
    (vec![start, reply, approval, cancel], row)
}

/// Several appends of one run in a group: all their links, its row once.
#[test]
fn appends_of_one_run_share_its_row() {
    let (_directory, file) = fresh_file();
    let (counter, store) = sqlite(&file);
    let mut scribe = Scribe::new(1);
    // What is written once in the life of a store is there.
    for batch in appends_of_one_run(&mut scribe).0 {
        block_on(store.append(vec![batch])).unwrap();
    }
    let (batches, row) = appends_of_one_run(&mut scribe);
    let answers = gathered(&file, &store, &mut scribe, || {
        counter.take();
        batches.into_iter().map(|batch| store.append(vec![batch])).collect::<Vec<_>>()
    });
    for answer in answers {
        block_on(answer).unwrap();
    }
    assert_eq!(checked(&*store, row.run.facts.id), Ok(row));
    let commits = counter.commits.lock().unwrap().clone();
    assert_eq!(commits, [5], "one commit for all that waited");
    let counted = counter.take();
    // One look whether the file changed, two new runs, five links, a hold that opens and closes, one row.
    assert!(counted[&Effort::WriteStatement] <= 11, "{counted:?}");
    assert_eq!(counted[&Effort::Sync], 1);
}

/// Everything that waits is one commit.
#[test]
fn many_callers_share_a_commit() {
    let (_directory, file) = fresh_file();
    let (counter, store) = sqlite(&file);
    let mut scribe = Scribe::new(2);
    let starts: Vec<Batch> = (0..64).map(|_| scribe.start(&NewRun::of("helper"))).collect();
    let answers = gathered(&file, &store, &mut scribe, || {
        starts.into_iter().map(|batch| store.append(vec![batch])).collect::<Vec<_>>()
    });
    for answer in answers {
        block_on(answer).unwrap();
    }
    assert_eq!(*counter.commits.lock().unwrap(), [65]);
}

/// Many callers at once, as the bench has them: commits carry many appends.
#[test]
fn a_crowd_shares_commits() {
    let (_directory, file) = fresh_file();
    let (counter, store) = sqlite(&file);
    let bench = Arc::new(Bench::new(store));
    runtime().block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..64 {
            let bench = bench.clone();
            tasks.spawn(async move {
                for _ in 0..40 {
                    let hold = bench.start_until_held().await;
                    bench.approve_until_done(hold).await;
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    });
    let commits = counter.commits.lock().unwrap().clone();
    let appends: usize = commits.iter().sum();
    assert_eq!(appends, 64 * 40 * 5);
    let each = appends as f64 / commits.len() as f64;
    let statements = counter.take()[&Effort::WriteStatement] as f64 / (64.0 * 40.0);
    println!("at 64: {each:.1} appends a commit, {statements:.1} statements a cycle");
    assert!(each >= 16.0, "{each:.1} appends a commit");
    assert!(statements <= 18.0, "{statements:.1} statements a cycle");
}

/// A note of a key is there for everybody at once and waits for no disk: the append that follows it syncs both.
#[test]
fn a_note_costs_no_sync_of_its_own() {
    let (_directory, file) = fresh_file();
    let (counter, store) = sqlite(&file);
    let mut scribe = Scribe::new(5);
    let start = scribe.start(&NewRun::of("helper"));
    let row = start.row.clone();
    let syncs = || counter.take().get(&Effort::Sync).copied().unwrap_or_default();
    block_on(store.append(vec![start])).unwrap();
    assert_eq!(syncs(), 1, "an append is one");
    for n in 0..3_u8 {
        block_on(store.note_keys(vec![note(&row, n)])).unwrap();
        assert_eq!(syncs(), 0, "a note is none");
        assert!(block_on(store.find_key(tenant("default"), format!("k-{n}"))).unwrap().is_some());
    }
    block_on(store.append(vec![scribe.batch(&row, &say("go on, please"))])).unwrap();
    assert_eq!(syncs(), 1, "the notes rode with the append");
}

/// The same on Postgres. Whatever is to last waits there for a standby that never comes, and a note is none of that.
#[test]
fn a_note_on_postgres_waits_for_no_sync() {
    let server = OwnServer::replicating(Replication::Synchronous);
    // Nothing waits for the standby where the session says so.
    let alone = format!("{} options='-c synchronous_commit=local'", server.url());
    let mut scribe = Scribe::new(6);
    let start = scribe.start(&NewRun::of("helper"));
    let row = start.row.clone();
    block_on(PostgresStore::open(&PostgresOptions::at(&alone)).unwrap().append(vec![start])).unwrap();
    let store = Arc::new(PostgresStore::open(&PostgresOptions::at(server.url())).unwrap());
    let waits = || query_count(&alone, "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'") > 0;
    let appends = |batch: Batch| {
        let answer = store.append(vec![batch]);
        while !waits() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let go_on = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        run(&alone, &[go_on.to_owned()]);
        block_on(answer).unwrap();
    };
    let said = scribe.batch(&row, &say("an append waits"));
    let row = said.row.clone();
    appends(said);
    let (noting, new) = (store.clone(), note(&row, 1));
    let noting = std::thread::spawn(move || block_on(noting.note_keys(vec![new])));
    while !noting.is_finished() {
        assert!(!waits(), "a note waits as well");
    }
    noting.join().unwrap().unwrap();
    assert!(block_on(store.find_key(tenant("default"), "k-1".to_owned())).unwrap().is_some());
    appends(scribe.batch(&row, &say("and so does the next one")));
}

fn note(row: &RunRow, n: u8) -> KeyNote {
    let until = Timestamp(row.run.facts.started_at.0 + 3_600_000);
    let kept = Some((Digest([n; 32]), until));
    KeyNote { tenant: tenant("default"), key: format!("k-{n}"), run: row.run.facts.id, kept }
}

/// However long a run's log is, the next append and the next read cost what the first ones did.
#[test]
fn a_long_log_makes_nothing_dearer() {
    let (_directory, file) = fresh_file();
    let (counter, store) = sqlite(&file);
    let mut scribe = Scribe::new(4);
    let start = scribe.start(&NewRun::of("helper"));
    let (run, mut row) = (start.run(), start.row.clone());
    block_on(store.append(vec![start])).unwrap();
    let mut costs = Vec::new();
    for n in 1..=1000 {
        let said = scribe.batch(&row, &say("go on, please"));
        row = said.row.clone();
        counter.take();
        block_on(store.append(vec![said])).unwrap();
        let after = Seq(row.run.state.seq.0 - 1);
        assert_eq!(block_on(store.links(run, after, 10)).unwrap().len(), 1);
        assert_eq!(block_on(store.load(run)).unwrap().row, row);
        if n == 10 || n == 1000 {
            costs.push(counter.take());
        }
    }
    assert_eq!(costs[0], costs[1]);
    assert_eq!(costs[0][&Effort::WriteStatement], 3, "a look at the file, the link, the row");
    assert_eq!(costs[0][&Effort::ReadStatement], 2, "one for the log, one for the run");
    let fold: i64 = Connection::open(&file)
        .unwrap()
        .query_row("SELECT length(packed) FROM runs", [], |row| row.get(0))
        .unwrap();
    assert!(fold < 100, "the fold does not grow with the log: {fold} bytes");
}

/// What a waiting run costs is rows, and those are small.
#[test]
fn a_held_run_takes_at_most_1500_bytes() {
    const RUNS: usize = 3000;
    let (_directory, file) = fresh_file();
    let size = |file: &Path| {
        let connection = Connection::open(file).unwrap();
        let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        let free: i64 = connection.query_row("PRAGMA freelist_count", [], |row| row.get(0)).unwrap();
        (pages - free) * 4096
    };
    let hold_some = |number: u64, runs: usize| {
        let (_, store) = sqlite(&file);
        let bench = Arc::new(Bench::numbered(store, number));
        runtime().block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..60 {
                let bench = bench.clone();
                tasks.spawn(async move {
                    for _ in 0..runs / 60 {
                        bench.start_until_held().await;
                    }
                });
            }
            while let Some(done) = tasks.join_next().await {
                done.unwrap();
            }
        });
    };
    // What is there once does not count.
    hold_some(1_000, 60);
    let before = size(&file);
    hold_some(2_000, RUNS);
    let each = (size(&file) - before) / i64::try_from(RUNS).unwrap();
    println!("a held run: {each} bytes");
    let connection = Connection::open(&file).unwrap();
    let mut statement = connection
        .prepare("SELECT name, sum(length(payload) + length(hash) + length(salt)) FROM (SELECT 'links' AS name, * FROM links) UNION ALL SELECT 'fold', sum(length(packed)) FROM runs")
        .unwrap();
    let parts = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))).unwrap();
    for (name, bytes) in parts.map(Result::unwrap) {
        println!("of which {name}: {}", bytes / i64::try_from(RUNS + 60).unwrap());
    }
    assert!(each <= 1500, "a held run takes {each} bytes");
}

/// What was handed over is written also when nobody ever asks what became of it.
#[test]
fn an_append_that_nobody_waits_for_is_written() {
    let (_directory, file) = fresh_file();
    let (_, store) = sqlite(&file);
    let mut scribe = Scribe::new(3);
    let (kept, dropped) = (scribe.start(&NewRun::of("helper")), scribe.start(&NewRun::of("helper")));
    let rows = [kept.row.clone(), dropped.row.clone()];
    let answer = store.append(vec![kept]);
    drop(store.append(vec![dropped]));
    for row in rows {
        let is_there = || block_on(store.load(row.run.facts.id)).is_ok();
        let waited = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            is_there()
        });
        assert!(waited, "{}", row.run.facts.id);
    }
    assert_eq!(block_on(answer), Ok(()));
}

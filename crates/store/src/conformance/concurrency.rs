//! Many threads at once: one winner for each sequence, no append lost, counters exact, no run claimed twice.
//!
//! Threads begin together; what each was told is compared with what the store holds afterwards.

use std::collections::HashSet;
use std::sync::{Arc, Barrier};
use std::thread;

use standfast_core::budget::{BudgetTake, StoredTake};
use standfast_core::command::Choice;
use standfast_core::id::{CallNo, HoldId, Incarnation, RunId};
use standfast_core::name::Tenant;
use standfast_core::project::RunRow;
use standfast_core::time::Millis;

use super::Factory;
use super::appending::say;
use super::support::{NewRun, Scribe, World, block_on, checked, claimed_runs, resolve};
use crate::{Claim, ClaimedRun, Guard, KeyQuery, SideWrite, Store, StoreError};

const THREADS: u64 = 16;

/// What each thread does with its own scribe, all at once.
fn at_once<T: Send>(world: &World, work: impl Fn(u64, &dyn Store, Scribe) -> T + Sync) -> Vec<T> {
    let (store, barrier) = (world.store(), Arc::new(Barrier::new(usize::try_from(THREADS).unwrap())));
    thread::scope(|scope| {
        let begin = |n: u64| {
            let (store, barrier, work) = (store.clone(), barrier.clone(), &work);
            scope.spawn(move || {
                barrier.wait();
                work(n, &*store, Scribe::new(1000 + n))
            })
        };
        let threads: Vec<_> = (0..THREADS).map(begin).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

pub fn one_of_many_appends_wins_each_sequence(factory: &Factory) {
    let mut world = World::new(factory);
    let row = world.queued_run("helper");
    let run = row.run.facts.id;
    let wins = at_once(&world, |n, store, mut scribe| {
        let mut wins = Vec::new();
        for _ in 0..20 {
            let row = block_on(store.load(run)).unwrap().row;
            let batch = scribe.batch(&row, &say(&format!("from {n}")));
            let hash = batch.link.hash;
            match block_on(store.append(vec![batch])) {
                Ok(()) => wins.push(hash),
                Err(error) => assert_eq!(error, StoreError::Conflict { run }),
            }
        }
        wins
    });
    let links = world.links(run);
    let stored: HashSet<_> = links[1..].iter().map(|link| link.hash).collect();
    let acknowledged: HashSet<_> = wins.concat().into_iter().collect();
    assert_eq!(stored, acknowledged);
    assert_eq!(links.len() - 1, wins.concat().len(), "each append is there once");
    checked(&*world.store(), run).unwrap();
}

pub fn appends_to_different_runs_are_all_written(factory: &Factory) {
    let mut world = World::new(factory);
    let rows = at_once(&world, |n, store, mut scribe| {
        let start =
            scribe.start(&NewRun::of(&format!("agent-{}", n % 3)).in_session(&format!("s-{}", n % 5)));
        let mut row = start.row.clone();
        block_on(store.append(vec![start])).unwrap();
        for step in 0..20 {
            let batch = scribe.batch(&row, &say(&format!("{step}")));
            row = batch.row.clone();
            block_on(store.append(vec![batch])).unwrap();
        }
        row
    });
    rows.iter().for_each(|row: &RunRow| world.expect_stored(row));
    world.reopen();
    rows.iter().for_each(|row| world.expect_stored(row));
}

pub fn counters_stay_exact(factory: &Factory) {
    let mut world = World::new(factory);
    let max = 100;
    let within = Guard::CounterWithin { counter: "runs".into(), add: 1, max };
    let written = at_once(&world, |_, store, mut scribe| {
        let mut written = 0;
        for _ in 0..10 {
            let mut batch = scribe.start(&NewRun::of("helper"));
            batch.guards.push(within.clone());
            match block_on(store.append(vec![batch])) {
                Ok(()) => written += 1,
                Err(StoreError::Guard { which: 0, .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        written
    });
    assert_eq!(written.iter().sum::<i64>(), max);
    let mut batch = world.scribe.start(&NewRun::of("helper"));
    batch.guards.push(within);
    let why = "runs is at 100 of 100".into();
    assert_eq!(world.append(vec![batch]), Err(StoreError::Guard { which: 0, why }));
}

/// Whoever reads how much was taken and takes the next, behind the guard, never takes more than there is together with others.
pub fn a_budget_is_never_exceeded(factory: &Factory) {
    const LIMIT: usize = 25;
    let account = r#"["rule:refunds","daily"]"#;
    let list = |store: &dyn Store, prefix: String, limit: usize| -> Vec<String> {
        let query =
            KeyQuery { tenant: Tenant::default_tenant(), prefix: prefix.clone(), before: None, limit };
        let found = block_on(store.keys_under(query)).unwrap();
        found.iter().map(|(key, _)| key.strip_prefix(&prefix).unwrap().to_owned()).collect()
    };
    let taken = |store: &dyn Store| -> usize {
        let found = list(store, BudgetTake::prefix(account), 1000);
        found.iter().filter(|rest| StoredTake::read(rest).is_some()).count()
    };
    let mut world = World::new(factory);
    let written = at_once(&world, |_, store, mut scribe| {
        let mut written = 0;
        loop {
            // The number before what it stands for: what is taken in between is then counted, and refused.
            let last = list(store, BudgetTake::number_prefix(account), 1);
            let after: u32 = last.first().map_or(0, |last| last.parse().unwrap());
            if taken(store) >= LIMIT {
                return written;
            }
            let (amount, window) = ("1".to_owned(), Millis::hours(24));
            let take = BudgetTake { account: account.into(), no: after + 1, after, amount, window };
            let mut batch = scribe.start(&NewRun::of("helper"));
            batch.guards.extend(take.numbers().map(|key| Guard::KeyUnused { key }));
            let (request, expires_at) = (batch.link.hash, take.expires_at(scribe.now));
            let keys = take.numbers().chain([take.stored(scribe.now, CallNo(1), 1)]);
            batch.puts.extend(keys.map(|key| SideWrite::Key { key, request, expires_at }));
            match block_on(store.append(vec![batch])) {
                Ok(()) => written += 1,
                Err(StoreError::Guard { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
    });
    assert_eq!(written.iter().sum::<usize>(), LIMIT);
    world.reopen();
    assert_eq!(taken(&*world.store()), LIMIT);
}

pub fn a_key_is_used_once(factory: &Factory) {
    let world = World::new(factory);
    let used = at_once(&world, |_, store, mut scribe| {
        let mut batch = scribe.start(&NewRun::of("helper"));
        let (key, expires_at) = ("the only one".to_owned(), scribe.now);
        batch.guards.push(Guard::KeyUnused { key: key.clone() });
        batch.puts.push(crate::SideWrite::Key { key, request: batch.link.hash, expires_at });
        block_on(store.append(vec![batch])).is_ok()
    });
    assert_eq!(used.iter().filter(|used| **used).count(), 1);
}

pub fn no_run_is_claimed_by_two_nodes(factory: &Factory) {
    let mut world = World::new(factory);
    let runs: HashSet<RunId> =
        (0..100).map(|n| world.queued_run(&format!("agent-{}", n % 7)).run.facts.id).collect();
    let asking = world.asking(3);
    let claimed = at_once(&world, |n, store, _| {
        let node = Incarnation([u8::try_from(n).unwrap(); 16]);
        let mut mine = Vec::new();
        for _ in 0..10 {
            let claim = Claim { node, ..asking.clone() };
            mine.extend(claimed_runs(&block_on(store.claim_due(claim)).unwrap()));
        }
        for run in &mine {
            assert_eq!(block_on(store.load(*run)).unwrap().lease.map(|lease| lease.node), Some(node));
        }
        mine
    });
    let all: Vec<RunId> = claimed.concat();
    assert_eq!(all.len(), runs.len());
    assert_eq!(all.into_iter().collect::<HashSet<_>>(), runs);
}

/// Readers see whole appends, never a row without its link.
pub fn readers_see_whole_appends(factory: &Factory) {
    let mut world = World::new(factory);
    let (row, _) = world.held_run("helper");
    let run = row.run.facts.id;
    at_once(&world, |n, store, mut scribe| {
        for turn in 0..15 {
            if n == 0 {
                let row = block_on(store.load(run)).unwrap().row;
                let hold = row.run.state.holds[0].key;
                let to = Some(super::support::user(&format!("user-{turn}")));
                let batch =
                    scribe.batch(&row, &standfast_core::command::Command::Assign { hold, to, until: None });
                block_on(store.append(vec![batch])).unwrap();
            } else {
                block_on(store.load(run)).unwrap();
                let listed =
                    block_on(store.list_holds(super::support::holds_by(crate::HoldFilter::All))).unwrap();
                assert_eq!(listed.items.len(), 1);
            }
        }
    });
    checked(&*world.store(), run).unwrap();
}

/// A claim and an append that meet at one run: whoever waited for the other finds a whole run.
pub fn a_run_that_is_appended_to_while_it_is_claimed_is_whole(factory: &Factory) {
    let mut world = World::new(factory);
    let runs: Vec<RunId> = (0..8).map(|_| world.queued_run("helper").run.facts.id).collect();
    // Leases that end as they begin: everything stays due, and everybody claims it again and again.
    let asking = Claim { until: world.now(), ..world.asking(8) };
    at_once(&world, |n, store, mut scribe| {
        let (node, run) = (u8::try_from(n).unwrap(), runs[usize::try_from(n / 2).unwrap()]);
        for _ in 0..20 {
            if n % 2 == 0 {
                let row = block_on(store.load(run)).unwrap().row;
                let written = block_on(store.append(vec![scribe.batch(&row, &say("meanwhile"))]));
                assert!(matches!(written, Ok(()) | Err(StoreError::Conflict { .. })), "{written:?}");
            } else {
                let claim = Claim { node: Incarnation([node; 16]), ..asking.clone() };
                for claimed in block_on(store.claim_due(claim)).unwrap() {
                    assert!(matches!(claimed, ClaimedRun::Run { .. }), "{claimed:?}");
                }
            }
        }
    });
    runs.iter().for_each(|run| drop(checked(&*world.store(), *run).unwrap()));
}

/// A hold is found at every moment, also at the one between being open and having its record.
pub fn a_hold_that_is_decided_while_it_is_looked_for_is_found(factory: &Factory) {
    let mut world = World::new(factory);
    let holds: Vec<(RunRow, HoldId)> = (0..12).map(|_| world.held_run("helper")).collect();
    at_once(&world, |n, store, mut scribe| {
        for (row, hold) in &holds {
            if n == 0 {
                let batch = scribe.batch(row, &resolve(hold.key, Choice::Approve));
                block_on(store.append(vec![batch])).unwrap();
            } else {
                for _ in 0..5 {
                    let found = block_on(store.find_hold(*hold)).unwrap();
                    assert_eq!(found.map(|row| row.id), Some(*hold));
                }
            }
        }
    });
}

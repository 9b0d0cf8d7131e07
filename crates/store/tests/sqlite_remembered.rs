//! What the SQLite writer remembers is right: after a rollback, after a refusal, and when others change the file.

#![expect(clippy::unwrap_used, reason = "helpers of tests: a failed expectation is a failed test")]

use rusqlite::Connection;
use standfast_core::command::{Choice, Command};
use standfast_core::time::Millis;
use standfast_store::conformance::faults::corrupt_rows::overwrite;
use standfast_store::conformance::faults::{fresh_file, open};
use standfast_store::conformance::support::{
    NODE, NewRun, OTHER_NODE, SHELL, Scribe, block_on, checked, resolve, tenant, the_hold,
};
use standfast_store::sqlite::{self, SqliteOptions, SqliteStore};
use standfast_store::{
    Batch, Claim, Guard, LeaseChange, RunStore, SessionKey, SessionStore, ShardSet, StoreError, WorkStore,
};

/// The first append of a run, with the definition that it is pinned to.
fn pinned(scribe: &mut Scribe, new: &NewRun) -> Batch {
    let mut batch = scribe.start(new);
    batch.puts.push(scribe.pinned(&batch.row));
    batch
}

/// Its tenant, its conversation and its definition are there.
fn expect_beside(store: &SqliteStore, batch: &Batch) {
    let facts = &batch.row.run.facts;
    assert!(block_on(store.session(SessionKey::of(facts))).unwrap().is_some());
    assert!(block_on(store.tenants()).unwrap().contains(&facts.tenant));
    let definition = store.definition(facts.tenant.clone(), batch.row.run.state.definition);
    assert!(block_on(definition).unwrap().is_some());
    assert_eq!(checked(store, batch.run()).as_ref(), Ok(&batch.row));
}

/// A group that does not fit is undone and tried again one by one: what its first part wrote must be written again.
#[test]
fn what_was_undone_is_not_remembered() {
    let (_directory, file) = fresh_file();
    drop(open(&file).unwrap());
    let pages = u32::try_from(std::fs::metadata(&file).unwrap().len() / 4096).unwrap() + 40;
    let store =
        SqliteStore::open(&SqliteOptions { max_pages: Some(pages), ..SqliteOptions::at(&file) }).unwrap();
    let mut scribe = Scribe::new(1);
    let first = pinned(&mut scribe, &NewRun::of("helper"));
    let new = pinned(&mut scribe, &NewRun::of("another").of_tenant("acme").in_session("s-7").of_user("eve"));
    let reply = scribe.reply(&new.row, &[SHELL]);
    let huge = scribe.start(&NewRun::of("helper").saying("x".repeat(1_000_000)));
    let lock = Connection::open(&file).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut answers = vec![store.append(vec![first])];
    std::thread::sleep(std::time::Duration::from_millis(200));
    answers.push(store.append(vec![new.clone()]));
    answers.push(store.append(vec![reply.clone()]));
    let refused = store.append(vec![huge]);
    drop(lock);
    answers.into_iter().for_each(|answer| assert_eq!(block_on(answer), Ok(())));
    assert!(matches!(block_on(refused), Err(StoreError::Unavailable { .. })));
    expect_beside(&store, &Batch { row: reply.row.clone(), ..new });
    let approval = scribe.batch(&reply.row, &resolve(the_hold(&reply.row).key, Choice::Approve));
    let row = approval.row.clone();
    assert_eq!(block_on(store.append(vec![approval])), Ok(()));
    assert_eq!(checked(&store, row.run.facts.id), Ok(row));
    drop(store);
    assert_eq!(sqlite::verify(&file, |_| {}).unwrap().findings, []);
}

/// A start that lost, and one whose guard does not hold, leave nothing behind that a later one relies on.
#[test]
fn what_was_refused_is_not_remembered() {
    let (_directory, file) = fresh_file();
    let store = open(&file).unwrap();
    let mut scribe = Scribe::new(2);
    let run = pinned(&mut scribe, &NewRun::of("helper"));
    assert_eq!(block_on(store.append(vec![run.clone()])), Ok(()));
    let strange = NewRun::of("another").of_tenant("acme").in_session("s-9").of_user("eve");
    let again = pinned(&mut scribe, &NewRun { id: Some(run.run()), ..strange.clone() });
    assert_eq!(block_on(store.append(vec![again])), Err(StoreError::Conflict { run: run.run() }));
    let mut guarded = pinned(&mut scribe, &strange);
    guarded.guards.push(Guard::CounterWithin { counter: "runs".into(), add: 2, max: 1 });
    assert!(matches!(block_on(store.append(vec![guarded])), Err(StoreError::Guard { .. })));
    assert_eq!(block_on(store.tenants()), Ok(vec![tenant("default")]));
    // One that was never there.
    let reply = scribe.reply(&pinned(&mut scribe.clone(), &strange).row, &[SHELL]);
    assert_eq!(block_on(store.append(vec![reply.clone()])), Err(StoreError::NotFound { run: reply.run() }));
    let taken = pinned(&mut scribe, &strange);
    assert_eq!(block_on(store.append(vec![taken.clone()])), Ok(()));
    expect_beside(&store, &taken);
    drop(store);
    assert_eq!(sqlite::verify(&file, |_| {}).unwrap().findings, []);
}

/// Somebody changes the file beside the server, as a person with an SQL shell does.
#[test]
fn what_others_changed_in_the_file_is_seen() {
    let (_directory, file) = fresh_file();
    let store = open(&file).unwrap();
    let mut scribe = Scribe::new(3);
    let first = pinned(&mut scribe, &NewRun::of("helper"));
    assert_eq!(block_on(store.append(vec![first.clone()])), Ok(()));
    let reply = scribe.reply(&first.row, &[SHELL]);
    overwrite(&file, "DELETE FROM definitions; DELETE FROM sessions; UPDATE runs SET session = 0").unwrap();
    let second = pinned(&mut scribe, &NewRun::of("helper"));
    assert_eq!(block_on(store.append(vec![second.clone()])), Ok(()));
    expect_beside(&store, &second);
    overwrite(&file, "UPDATE runs SET quarantined = 'by hand' WHERE no = 1").unwrap();
    let answer = block_on(store.append(vec![reply]));
    assert_eq!(answer, Err(StoreError::Corrupt { run: first.run(), why: "by hand".into() }));
}

/// Leases are changed by others jobs of the same writer.
#[test]
fn a_lease_that_was_taken_or_given_back_is_seen() {
    let (_directory, file) = fresh_file();
    let store = open(&file).unwrap();
    let mut scribe = Scribe::new(4);
    let mut start = pinned(&mut scribe, &NewRun::of("helper"));
    start.lease = LeaseChange::Take { node: NODE, until: scribe.now.plus(Millis::seconds(1)) };
    assert_eq!(block_on(store.append(vec![start.clone()])), Ok(()));
    scribe.now = scribe.now.plus(Millis::seconds(2));
    let claim = Claim {
        node: OTHER_NODE,
        now: scribe.now,
        until: scribe.now.plus(Millis::seconds(60)),
        shards: ShardSet::all(),
        limit: 5,
        room: Vec::new(),
    };
    assert_eq!(block_on(store.claim_due(claim)).unwrap().len(), 1);
    let mut reply = scribe.reply(&start.row, &[SHELL]);
    reply.guards.push(Guard::NotLeased { node: NODE, now: scribe.now });
    assert!(matches!(block_on(store.append(vec![reply.clone()])), Err(StoreError::Guard { .. })));
    assert_eq!(block_on(store.release(start.run(), OTHER_NODE, None)), Ok(()));
    assert_eq!(block_on(store.append(vec![reply.clone()])), Ok(()));
    assert_eq!(checked(&*store, start.run()), Ok(reply.row.clone()));
    // Kept, renewed, and still there with the next append.
    let mut approval = scribe.batch(&reply.row, &resolve(the_hold(&reply.row).key, Choice::Approve));
    approval.lease = LeaseChange::Take { node: NODE, until: scribe.now.plus(Millis::seconds(1)) };
    assert_eq!(block_on(store.append(vec![approval.clone()])), Ok(()));
    let until = scribe.now.plus(Millis::seconds(30));
    assert_eq!(block_on(store.renew(vec![start.run()], NODE, until)), Ok(vec![start.run()]));
    let cancel = scribe.batch(&approval.row, &Command::Cancel { reason: None });
    assert_eq!(block_on(store.append(vec![cancel])), Ok(()));
    let lease = block_on(store.load(start.run())).unwrap().lease.unwrap();
    assert_eq!((lease.node, lease.until), (NODE, until));
}

/// A run that ended is erased, and what follows is read from the file.
#[test]
fn an_erased_run_is_looked_up() {
    let (_directory, file) = fresh_file();
    let store = open(&file).unwrap();
    let mut scribe = Scribe::new(5);
    let start = pinned(&mut scribe, &NewRun::of("helper"));
    let cancel = scribe.batch(&start.row, &Command::Cancel { reason: None });
    let erase = scribe.batch(&cancel.row, &Command::Erase { reason: None });
    for batch in [start.clone(), cancel, erase.clone()] {
        assert_eq!(block_on(store.append(vec![batch])), Ok(()));
    }
    assert_eq!(block_on(store.erase(start.run())), Ok(()));
    assert_eq!(block_on(store.append(vec![start.clone()])), Err(StoreError::Conflict { run: start.run() }));
    assert_eq!(checked(&*store, start.run()), Ok(erase.row));
    // What it was pinned to is still there for others.
    let next = pinned(&mut scribe, &NewRun::of("helper"));
    assert_eq!(block_on(store.append(vec![next.clone()])), Ok(()));
    expect_beside(&store, &next);
}

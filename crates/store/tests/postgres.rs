//! What only a database shared by several nodes can show: shards, hints, races between nodes, lost connections, and
//! what is refused when it is opened.
//!
//! Everything that every backend must do is in the conformance suite.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use standfast_core::id::{Incarnation, Seq};
use standfast_core::project::RunRow;
use standfast_core::time::{Millis, Timestamp};
use standfast_store::conformance::appending::say;
use standfast_store::conformance::cluster::{query_count, query_text, run, shared};
use standfast_store::conformance::support::{BEGIN, NewRun, Scribe, block_on, checked, events_of};
use standfast_store::postgres::{OpenError, PostgresOptions, PostgresStore};
use standfast_store::{
    Claim, ClaimedRun, DeliveryStore, Guard, Heartbeat, NoticeQuery, RunFilter, RunStore, Scope, ShardSet,
    SideWrite, StoreError, Subscription, WorkStore,
};

fn open(url: &str) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::open(&PostgresOptions::at(url)).unwrap())
}

fn start(store: &PostgresStore, scribe: &mut Scribe) -> RunRow {
    let batch = scribe.start(&NewRun::of("helper"));
    let row = batch.row.clone();
    block_on(store.append(vec![batch])).unwrap();
    row
}

fn beat(node: u8, now: i64) -> Heartbeat {
    let now = BEGIN.plus(Millis::seconds(now));
    let node = Incarnation([node; 16]);
    Heartbeat { node, facts: "{}".into(), now, until: now.plus(Millis::seconds(10)) }
}

/// Each shard has one node; nodes that come get their share, and those of a node that goes silent are taken over.
#[test]
fn shards_are_spread_over_the_nodes_that_are_there() {
    let url = shared().database();
    let stores = [open(&url), open(&url), open(&url)];
    let turn = |node: u8, now: i64| block_on(stores[usize::from(node)].shards(beat(node, now))).unwrap();
    assert_eq!(turn(0, 0), ShardSet::all());
    assert_eq!(turn(1, 1).len(), 0, "nothing is free yet");
    assert_eq!(turn(0, 2).len(), 128);
    assert_eq!(turn(1, 3).len(), 128);
    assert_eq!(turn(2, 4).len(), 0);
    let (first, second) = (turn(0, 5), turn(1, 5));
    let third = turn(2, 6);
    assert_eq!((first.len(), second.len(), third.len()), (86, 86, 84));
    for shard in ShardSet::all().iter() {
        let owners = [&first, &second, &third].iter().filter(|set| set.contains(shard)).count();
        assert_eq!(owners, 1, "{shard:?}");
    }
    // The first node is silent past its time, the second goes in order: the third has everything in the end.
    block_on(stores[1].leave(Incarnation([1; 16]))).unwrap();
    assert_eq!(turn(2, 16), ShardSet::all());
    let nodes = block_on(stores[0].nodes(BEGIN.plus(Millis::seconds(16)))).unwrap();
    let [only] = nodes.try_into().unwrap();
    assert_eq!((only.node, only.shards), (Incarnation([2; 16]), ShardSet::all()));
}

/// An append through one node reaches the others, by its shard; a node does not hear itself.
#[test]
fn a_change_is_told_to_the_other_nodes() {
    let url = shared().database();
    let (one, other) = (open(&url), open(&url));
    let (mut at_one, mut at_other) = (one.hints().unwrap(), other.hints().unwrap());
    // Both hear "anything" once they listen.
    assert_eq!(block_on(at_one.recv()), Ok(ShardSet::all()));
    assert_eq!(block_on(at_other.recv()), Ok(ShardSet::all()));
    let row = start(&one, &mut Scribe::new(1));
    let facts = &row.run.facts;
    assert_eq!(block_on(at_other.recv()), Ok(ShardSet::of([facts.id.shard(&facts.tenant)])));
    // What the other one tells is the first that this one hears: nothing of its own came before.
    let row = start(&other, &mut Scribe::new(2));
    let facts = &row.run.facts;
    assert_eq!(block_on(at_one.recv()), Ok(ShardSet::of([facts.id.shard(&facts.tenant)])));
}

/// Many nodes start at once on an empty database: one migrates, all open.
#[test]
fn many_nodes_open_an_empty_database_at_once() {
    let url = shared().empty_database();
    thread::scope(|scope| {
        let opening: Vec<_> = (0..6).map(|_| scope.spawn(|| open(&url))).collect();
        let stores: Vec<_> = opening.into_iter().map(|one| one.join().unwrap()).collect();
        let row = start(&stores[0], &mut Scribe::new(1));
        for store in stores {
            assert_eq!(block_on(store.load(row.run.facts.id)).unwrap().row, row);
        }
    });
    let migrations =
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/postgres/migrations")).unwrap();
    assert_eq!(query_count(&url, "SELECT FROM refinery_schema_history"), migrations.count(), "each ran once");
}

#[test]
fn what_is_not_ours_or_newer_is_refused() {
    let url = shared().empty_database();
    run(&url, &["CREATE TABLE somebody (elses int)".into()]);
    let error = PostgresStore::open(&PostgresOptions::at(&url)).unwrap_err();
    assert!(matches!(error, OpenError::NotOurs { .. }), "{error}");
    assert_eq!(query_count(&url, "SELECT FROM pg_tables WHERE schemaname = 'public'"), 1, "nothing was made");

    let url = shared().database();
    let newer = "INSERT INTO refinery_schema_history SELECT 9999, 'later', applied_on, checksum \
                 FROM refinery_schema_history LIMIT 1";
    run(&url, &[newer.into()]);
    let error = PostgresStore::open(&PostgresOptions::at(&url)).unwrap_err();
    assert!(matches!(error, OpenError::NewerSchema { found: 9999, .. }), "{error}");

    // Something listens there and says nothing: it is not waited for without end.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://me@127.0.0.1:{}/db", silent.local_addr().unwrap().port());
    let error = PostgresStore::open(&PostgresOptions::at(url)).unwrap_err();
    assert!(error.to_string().contains("it did not answer within"), "{error}");

    let error = PostgresStore::open(&PostgresOptions::at("postgres://me@127.0.0.1:1/db")).unwrap_err();
    assert!(error.to_string().starts_with("cannot open 127.0.0.1:1/db: "), "{error}");
}

/// Two nodes append to the same runs, use the same keys and count with the same counters.
#[test]
fn nodes_race_and_one_wins_each_sequence() {
    let url = shared().database();
    let stores = [open(&url), open(&url)];
    let run = start(&stores[0], &mut Scribe::new(1)).run.facts.id;
    let counted = Guard::CounterWithin { counter: "appends".into(), add: 1, max: 25 };
    let wins: usize = thread::scope(|scope| {
        let racing: Vec<_> = (0..8u64)
            .map(|n| {
                let (store, counted) = (&stores[usize::try_from(n % 2).unwrap()], &counted);
                scope.spawn(move || {
                    let mut scribe = Scribe::new(100 + n);
                    let mut wins = 0;
                    for turn in 0..12 {
                        let row = block_on(store.load(run)).unwrap().row;
                        let mut batch = scribe.batch(&row, &say("race"));
                        let key = format!("{turn}");
                        batch.guards = vec![Guard::KeyUnused { key: key.clone() }, counted.clone()];
                        batch.puts.push(SideWrite::Key {
                            key,
                            request: batch.link.hash,
                            expires_at: scribe.now,
                        });
                        match block_on(store.append(vec![batch])) {
                            Ok(()) => wins += 1,
                            Err(StoreError::Conflict { .. } | StoreError::Guard { .. }) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                    wins
                })
            })
            .collect();
        racing.into_iter().map(|one| one.join().unwrap()).sum()
    });
    let links = block_on(stores[1].links(run, Seq(0), usize::MAX)).unwrap();
    assert_eq!(links.len() - 1, wins);
    assert!((1..=12).contains(&wins), "each key is used once: {wins}");
    let value = query_text(&url, "SELECT value FROM counters").unwrap();
    assert_eq!(value, wins.to_string(), "refused appends count nothing");
    assert_eq!(query_count(&url, "SELECT FROM keys"), wins, "no reservation is left behind");
    checked(&*stores[0], run).unwrap();
}

/// Connections are cut at any moment: what was acknowledged is there, what is unknown is settled by its link, and
/// nothing is there twice (F10).
#[test]
fn connections_are_cut_while_appends_are_under_way() {
    let url = shared().database();
    let store = open(&url);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                       WHERE datname = current_database() AND pid <> pg_backend_pid()";
            while !is_over.load(Ordering::Relaxed) {
                query_count(&url, cut);
            }
        });
        let writers: Vec<_> = (0..4)
            .map(|n| {
                let store = &store;
                scope.spawn(move || {
                    let mut scribe = Scribe::new(n);
                    let first = scribe.start(&NewRun::of("helper"));
                    let (run, mut row) = (first.row.run.facts.id, first.row.clone());
                    insist(store, first);
                    for step in 0..40 {
                        let batch = scribe.batch(&row, &say(&format!("{step}")));
                        row = batch.row.clone();
                        insist(store, batch);
                    }
                    (run, row)
                })
            })
            .collect();
        let rows: Vec<_> = writers.into_iter().map(|one| one.join().unwrap()).collect();
        is_over.store(true, Ordering::Relaxed);
        for (run, row) in rows {
            let found = until_available(|| checked(&*store, run));
            assert_eq!(found, row);
        }
    });
    assert_eq!(query_count(&url, "SELECT FROM links"), 4 * 41);
}

/// Appends until it is written, once: whoever does not know looks for the link.
fn insist(store: &PostgresStore, batch: standfast_store::Batch) {
    let (run, before, hash) = (batch.run(), batch.expected.seq, batch.link.hash);
    loop {
        match block_on(store.append(vec![batch.clone()])) {
            Ok(()) => return,
            Err(StoreError::Unavailable { .. }) => {}
            Err(StoreError::Unknown { .. }) => {
                let links = until_available(|| match block_on(store.links(run, before, 1)) {
                    Err(StoreError::NotFound { .. }) => Ok(Vec::new()),
                    other => other.map_err(|error| error.to_string()),
                });
                match links.first() {
                    Some(link) if link.hash == hash => return,
                    Some(other) => panic!("somebody else wrote {other:?}"),
                    None => {}
                }
            }
            Err(other) => panic!("{other}"),
        }
    }
}

fn until_available<T>(ask: impl Fn() -> Result<T, String>) -> T {
    loop {
        match ask() {
            Ok(found) => return found,
            Err(why) if why.contains("not available") => {}
            Err(why) => panic!("{why}"),
        }
    }
}

/// A database that takes no writes says so, and the store goes on by itself once it does again.
#[test]
fn a_database_that_takes_no_writes_is_unavailable_for_a_while() {
    let url = shared().database();
    let name = query_text(&url, "SELECT current_database()").unwrap();
    let store = open(&url);
    let mut scribe = Scribe::new(1);
    let row = start(&store, &mut scribe);
    let batch = scribe.batch(&row, &say("later"));
    let switch = |to: &str| {
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let switch = format!("ALTER DATABASE {name} SET default_transaction_read_only = {to}");
        run(&url, &["SET default_transaction_read_only = off".into(), switch, cut.into()]);
    };
    switch("on");
    match block_on(store.append(vec![batch.clone()])) {
        Err(StoreError::Unavailable { why }) => assert!(why.contains("takes no writes"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(block_on(store.load(row.run.facts.id)).unwrap().row, row, "reads go on");
    switch("off");
    insist(&store, batch.clone());
    assert_eq!(block_on(store.load(row.run.facts.id)).unwrap().row, batch.row);
}

/// Appends that wait together share a transaction, whatever the order of their answers.
#[test]
fn appends_that_wait_together_share_a_commit() {
    let url = shared().database();
    let store = open(&url);
    let mut scribe = Scribe::new(1);
    let batches: Vec<_> = (0..300).map(|_| scribe.start(&NewRun::of("helper"))).collect();
    let runs: Vec<_> = batches.iter().map(|batch| batch.run()).collect();
    let answers: Vec<_> = batches.into_iter().map(|batch| store.append(vec![batch])).collect();
    answers.into_iter().for_each(|answer| block_on(answer).unwrap());
    let commits = query_count(&url, "SELECT DISTINCT xmin::text FROM links");
    assert!(commits <= 100, "300 appends took {commits} transactions");
    assert_eq!(query_count(&url, "SELECT FROM links"), 300);
    assert_eq!(events_of(&block_on(store.links(runs[299], Seq(0), 1)).unwrap()).len() as u64, 2);
}

/// F13: while the database is held up so many appends wait and no more: the others get a retry, nothing of them
/// is written, and what waited is written once it can be.
#[test]
fn more_appends_than_may_wait_are_told_to_come_back() {
    let url = shared().database();
    let store = PostgresStore::open(&PostgresOptions { queue: 4, ..PostgresOptions::at(&url) }).unwrap();
    let mut scribe = Scribe::new(1);
    thread::scope(|scope| {
        let held_up = "BEGIN; LOCK TABLE runs IN EXCLUSIVE MODE; SELECT pg_sleep(3); COMMIT";
        scope.spawn(|| run(&url, &[held_up.into()]));
        let is_locked =
            "SELECT FROM pg_locks WHERE relation = 'runs'::regclass AND mode = 'ExclusiveLock' AND granted";
        while query_count(&url, is_locked) == 0 {
            thread::yield_now();
        }
        let handed_over: Vec<_> =
            (0..60).map(|_| store.append(vec![scribe.start(&NewRun::of("helper"))])).collect();
        let (mut written, mut refused) = (0, 0);
        for answer in handed_over {
            match block_on(answer) {
                Ok(()) => written += 1,
                Err(StoreError::Unavailable { why }) => {
                    assert!(why.contains("too many appends wait"), "{why}");
                    refused += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert!(written >= 4 && refused > 0, "{written} were written, {refused} refused");
        assert_eq!(query_count(&url, "SELECT FROM runs"), written);
    });
}

/// Updates of a run write no index: they stay on their page (HOT), also with leases and holds. Now and then one moves: a
/// transaction elsewhere in the cluster that still may see the older versions keeps them from being pruned, and the page
/// is full. Were an index concerned, none would stay.
#[test]
fn updates_of_runs_stay_on_their_page() {
    const UPDATES: i64 = 50;
    let url = shared().database();
    let store = open(&url);
    let mut scribe = Scribe::new(1);
    let mut row = start(&store, &mut scribe);
    for step in 0..UPDATES {
        let mut batch = scribe.batch(&row, &say(&format!("{step}")));
        batch.lease = match step % 3 {
            0 => standfast_store::LeaseChange::Take { node: Incarnation([1; 16]), until: Timestamp(step) },
            1 => standfast_store::LeaseChange::Keep,
            _ => standfast_store::LeaseChange::Release,
        };
        row = batch.row.clone();
        block_on(store.append(vec![batch])).unwrap();
    }
    drop(store);
    let count = |column: &str| {
        let counts = format!("SELECT {column}::text FROM pg_stat_user_tables WHERE relname = 'runs'");
        query_text(&url, &counts).unwrap().parse::<i64>().unwrap()
    };
    // Each connection of the store reports what it did when it ends, at a time of its own.
    for _ in 0..3_000 {
        if count("n_tup_upd") == UPDATES {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    let (updates, hot) = (count("n_tup_upd"), count("n_tup_hot_upd"));
    assert_eq!(updates, UPDATES);
    assert!(hot >= UPDATES * 9 / 10, "{hot} of {updates} updates stayed on their page");
}

/// A row that cannot be read is reported once and leaves the work list; other runs go on. One of a newer version is left
/// alone, one of an older version is made again from its events.
#[test]
fn a_row_that_cannot_be_read_concerns_its_own_run_only() {
    let url = shared().database();
    let store = open(&url);
    let mut scribe = Scribe::new(1);
    let listener = Subscription {
        tenant: NewRun::of("helper").tenant,
        id: "sub_1".into(),
        scope: Scope::Tenant,
        owner: String::new(),
        wants: u64::MAX,
        is_active: true,
        facts: "{}".into(),
    };
    assert!(block_on(store.put_subscription(listener)).unwrap());
    let rows: Vec<RunRow> = (0..4).map(|_| start(&store, &mut scribe)).collect();
    let [broken, newer, older, whole] = [0, 1, 2, 3].map(|n: usize| rows[n].run.facts.id);
    let change = |change: &str, run: standfast_core::id::RunId| {
        let id: String = run.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("UPDATE runs SET {change} WHERE id = '{id}'")
    };
    let nonsense = "state = '{\"nonsense\":1}'";
    run(&url, &[change(nonsense, broken), change("fold = 99", newer)]);
    run(&url, &[change(&format!("fold = 0, {nonsense}"), older)]);
    assert!(matches!(block_on(store.load(broken)), Err(StoreError::Corrupt { run, .. }) if run == broken));
    assert_eq!(block_on(store.load(newer)), Err(StoreError::Newer { run: newer, found: 99 }));
    assert_eq!(block_on(store.load(older)).unwrap().row, rows[2]);
    let due = block_on(store.due_notices(NoticeQuery::all(scribe.now, 10))).unwrap();
    let told: Vec<_> = due.iter().map(|notice| notice.run).collect();
    assert_eq!(told, [broken, older, whole], "the record of a newer version is for whoever can read it");

    let (now, until) = (scribe.now, scribe.now.plus(Millis::seconds(60)));
    let node = Incarnation([1; 16]);
    let claim = Claim { node, now, until, shards: ShardSet::all(), limit: 10, room: Vec::new() };
    let claimed = block_on(store.claim_due(claim.clone())).unwrap();
    let runs: Vec<_> = claimed
        .iter()
        .map(|one| match one {
            ClaimedRun::Run { stored, .. } => (stored.row.run.facts.id, true),
            ClaimedRun::Corrupt { run, .. } => (*run, false),
        })
        .collect();
    assert_eq!(runs, [(broken, false), (older, true), (whole, true)]);
    assert_eq!(block_on(store.claim_due(claim)).unwrap(), []);
    let query = standfast_store::conformance::support::runs_by(RunFilter::All);
    assert_eq!(block_on(store.list_runs(query)).unwrap().items, [rows[3].clone(), rows[2].clone()]);
}

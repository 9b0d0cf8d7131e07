//! F29: a database that is full of waiting runs and has the schema of an earlier version is opened by this one.
//!
//! For each earlier schema a database is made by its migrations alone and filled with what a store wrote; then the store
//! opens it, and every hold can be decided. Whoever adds a migration has the new case without writing it. What SQLite
//! databases are filled with was written by the last version whose rows had the form of the first: it is a file here.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use standfast_core::body::Body;
use standfast_core::command::{Choice, Command};
use standfast_core::digest::Digest;
use standfast_core::hold::HoldPolicy;
use standfast_core::id::{CallNo, HoldId};
use standfast_core::name::Tenant;
use standfast_core::project::RunRow;
use standfast_core::time::Millis;
use standfast_store::conformance::cluster::{self, query_text, shared};
use standfast_store::conformance::faults::files::job;
use standfast_store::conformance::faults::{fresh_file, open};
use standfast_store::conformance::support::{
    NewRun, SHELL, Scribe, block_on, checked, hold_ids, holds_by, resolve, runs_by, the_hold,
};
use standfast_store::memory::MemoryStore;
use standfast_store::postgres::{PostgresOptions, PostgresStore};
use standfast_store::{
    Credential, HoldFilter, RunFilter, Scope, SealedChange, SessionChange, SessionKey, Store, Subscription,
    postgres, sqlite,
};

/// The texts of the migrations, by number.
fn migrations(backend: &str) -> Vec<(u32, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(backend).join("migrations");
    let mut all: Vec<(u32, String)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| {
            let file = file.unwrap();
            let name = file.file_name().into_string().unwrap();
            let number = name.strip_prefix('V').unwrap().split_once("__").unwrap().0.parse().unwrap();
            (number, std::fs::read_to_string(file.path()).unwrap())
        })
        .collect();
    all.sort();
    all
}

/// Runs that wait, one that has ended, two that wait for a node: one of them of another user, in a conversation of the same name.
fn fill(store: &dyn Store, scribe: &mut Scribe) -> (Vec<(RunRow, HoldId)>, Vec<RunRow>) {
    let write = |batch: standfast_store::Batch| {
        let row = batch.row.clone();
        block_on(store.append(vec![batch])).unwrap();
        row
    };
    let started = |scribe: &mut Scribe, new: &NewRun| {
        let mut batch = scribe.start(new);
        batch.puts.push(scribe.pinned(&batch.row));
        batch
    };
    let mut held = Vec::new();
    for n in 0..5 {
        let row = write(started(scribe, &NewRun::of("helper").in_session(&format!("s-{n}"))));
        let row = write(scribe.reply(&row, &[SHELL]));
        held.push((row.clone(), the_hold(&row)));
    }
    for (tenant, entry) in [("default", "{\"n\":1}"), ("acme", "{}"), ("default", "{\"n\":\"é\"}")] {
        block_on(store.put_audit(Tenant::new(tenant).unwrap(), scribe.now, entry.into())).unwrap();
    }
    let first = SessionKey::of(&held[0].0.run.facts);
    let notes = SessionChange::Metadata { before: "{}".into(), after: "{\"a\":1}".into() };
    assert!(block_on(store.change_session(first, notes, scribe.now)).unwrap());
    // One that was begun without naming a conversation.
    let id = scribe.run_id(&Tenant::new("default").unwrap());
    let alone = NewRun { id: Some(id), session: id.own_session(), ..NewRun::of("helper") };
    let alone = write(started(scribe, &alone));
    let alone = write(scribe.reply(&alone, &[SHELL]));
    held.push((alone.clone(), the_hold(&alone)));
    let queued = write(started(scribe, &NewRun::of("other")));
    let shared = write(started(scribe, &NewRun::of("helper").in_session("s-0").of_user("eve")));
    let ended = write(started(scribe, &NewRun::of("other")));
    let ended = write(scribe.batch(&ended, &Command::Cancel { reason: None }));
    (held, vec![queued, shared, ended])
}

/// Everything is there as it was, and every hold can be decided.
fn expect_whole(store: &dyn Store, scribe: &mut Scribe, held: &[(RunRow, HoldId)], others: &[RunRow]) {
    for row in others {
        assert_eq!(checked(store, row.run.facts.id).as_ref(), Ok(row));
    }
    // Each user has the conversation with what was theirs: whoever began it has its metadata.
    for (row, metadata) in [(&held[0].0, "{\"a\":1}"), (&others[1], "{}")] {
        let key = SessionKey::of(&row.run.facts);
        let found = block_on(store.session(key.clone())).unwrap().unwrap();
        assert_eq!((found.metadata.as_str(), found.closed), (metadata, false), "{key:?}");
        let filter = RunFilter::SessionOf(key.owner, key.agent, key.session);
        assert_eq!(block_on(store.list_runs(runs_by(filter))).unwrap().items, std::slice::from_ref(row));
    }
    // One that nobody named is found by its run's name.
    let (alone, _) = held.last().unwrap();
    let key = SessionKey::of(&alone.run.facts);
    assert_eq!(key.session, alone.run.facts.id.own_session());
    assert!(block_on(store.session(key.clone())).unwrap().is_some());
    let filter = RunFilter::SessionOf(key.owner, key.agent, key.session);
    assert_eq!(block_on(store.list_runs(runs_by(filter))).unwrap().items, std::slice::from_ref(alone));
    let open = block_on(store.list_holds(holds_by(HoldFilter::All))).unwrap();
    assert_eq!(open.items.len(), held.len());
    for (row, hold) in held {
        assert_eq!(checked(store, row.run.facts.id).as_ref(), Ok(row));
        let batch = scribe.batch(row, &resolve(hold.key, Choice::Approve));
        let after = batch.row.clone();
        block_on(store.append(vec![batch])).unwrap();
        assert_eq!(checked(store, row.run.facts.id), Ok(after));
    }
    assert_eq!(block_on(store.list_holds(holds_by(HoldFilter::All))).unwrap().items, []);
}

/// A file that the version with schema 16 filled in the way that [`fill`] does.
fn written_before() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/databases/schema-16.sqlite")
}

#[test]
fn sqlite_files_of_every_earlier_schema_are_upgraded() {
    let all = migrations("sqlite");
    for earlier in 1..all.len() {
        // Numbers may have gaps.
        let version = all[earlier - 1].0;
        // Later ones have columns that the file does not: what fills them is tested where it is written.
        if version > 16 {
            break;
        }
        let (_directory, full) = fresh_file();
        std::fs::copy(written_before(), &full).unwrap();
        let mut scribe = Scribe::new(1);
        let (held, others) = fill(&MemoryStore::new(), &mut scribe);
        let (_directory, file) = fresh_file();
        let old = Connection::open(&file).unwrap();
        for (_, text) in all.iter().take(earlier) {
            old.execute_batch(text).unwrap();
        }
        old.execute("ATTACH ? AS newer", [full.to_str().unwrap()]).unwrap();
        let history: String = old
            .query_row(
                "SELECT sql FROM newer.sqlite_master WHERE name = 'refinery_schema_history'",
                [],
                |row| row.get(0),
            )
            .unwrap();
        old.execute_batch(&history).unwrap();
        for table in
            texts(&old, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        {
            let columns = texts(&old, &format!("SELECT name FROM pragma_table_info('{table}')")).join(", ");
            let kept = if table == "refinery_schema_history" {
                format!("version <= {version}")
            } else {
                "true".into()
            };
            old.execute_batch(&format!(
                "DELETE FROM {table}; INSERT OR IGNORE INTO {table} ({columns}) SELECT {columns} FROM newer.{table} WHERE {kept}"
            ))
            .unwrap();
        }
        // Before conversations had owners there was one of each name.
        if version < 16 {
            old.execute_batch(
                "UPDATE runs SET session = (SELECT o.no FROM newer.sessions n JOIN sessions o ON o.tenant = n.tenant \
                 AND o.agent = n.agent AND o.session = n.session WHERE n.no = runs.session)",
            )
            .unwrap();
        }
        drop(old);
        let store = open(&file).unwrap_or_else(|error| panic!("schema {version}: {error}"));
        expect_whole(&*store, &mut scribe, &held, &others);
        drop(store);
        assert_eq!(sqlite::verify(&file, |_| {}).unwrap().findings, []);
    }
}

fn texts(connection: &Connection, question: &str) -> Vec<String> {
    let mut statement = connection.prepare(question).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

#[test]
fn postgres_databases_of_every_earlier_schema_are_upgraded() {
    let all = migrations("postgres");
    for earlier in 1..all.len() {
        let version = all[earlier - 1].0;
        let url = shared().database();
        let mut scribe = Scribe::new(2);
        let store = PostgresStore::open(&PostgresOptions::at(&url)).unwrap();
        let (held, others) = fill(&store, &mut scribe);
        drop(store);
        // The full tables are put aside, the old ones made and filled from them.
        let mut statements =
            vec!["ALTER SCHEMA public RENAME TO newer".to_owned(), "CREATE SCHEMA public".to_owned()];
        statements.extend(all.iter().take(earlier).map(|(_, text)| text.clone()));
        statements.push(
            "CREATE TABLE refinery_schema_history (LIKE newer.refinery_schema_history INCLUDING ALL)".into(),
        );
        cluster::run(&url, &statements);
        let copy = "SELECT string_agg(format('DELETE FROM public.%1$I; INSERT INTO public.%1$I (%2$s) SELECT %2$s FROM \
                    newer.%1$I ON CONFLICT DO NOTHING', t, c), '; ') FROM (SELECT table_name AS t, string_agg(quote_ident(column_name), ', ' \
                    ORDER BY ordinal_position) AS c FROM information_schema.columns JOIN information_schema.tables \
                    USING (table_schema, table_name) WHERE table_schema = 'public' AND table_type = 'BASE TABLE' \
                    GROUP BY table_name) AS tables";
        let copy = query_text(&url, copy).unwrap();
        let newer = format!("DELETE FROM refinery_schema_history WHERE version > {version}");
        cluster::run(&url, &[copy, newer, "DROP SCHEMA newer CASCADE".into()]);
        let store = Arc::new(PostgresStore::open(&PostgresOptions::at(&url)).unwrap());
        expect_whole(&*store, &mut scribe, &held, &others);
        drop(store);
        assert_eq!(postgres::verify(&PostgresOptions::at(&url), |_| {}).unwrap().findings, []);
    }
}

/// What stands beside the runs: a key, a subscription, a session with metadata, one that is closed, a sealed document.
fn put_rows(store: &dyn Store, scribe: &mut Scribe) {
    let tenant = Tenant::new("default").unwrap();
    let credential = Credential {
        tenant: tenant.clone(),
        prefix: "k1".into(),
        hash: Digest([1; 32]),
        facts: "{}".into(),
        expires_at: None,
        revoked_at: None,
    };
    assert!(block_on(store.put_credential(credential)).unwrap());
    let subscription = Subscription {
        tenant,
        id: "sub-1".into(),
        scope: Scope::Tenant,
        owner: "ann".into(),
        wants: 1,
        is_active: true,
        facts: "{}".into(),
    };
    assert!(block_on(store.put_subscription(subscription)).unwrap());
    let notes = SessionChange::Metadata { before: "{}".into(), after: "{\"a\":1}".into() };
    for (session, change) in [("with-notes", notes), ("closed", SessionChange::Close)] {
        let mut batch = scribe.start(&NewRun::of("helper").in_session(session));
        batch.puts.push(scribe.pinned(&batch.row));
        let key = SessionKey::of(&batch.row.run.facts);
        block_on(store.append(vec![batch])).unwrap();
        assert!(block_on(store.change_session(key, change, scribe.now)).unwrap());
    }
    let tenant = Tenant::new("default").unwrap();
    let book = SealedChange { tenant, name: "grants a".into(), before: None, after: Some("sealed".into()) };
    assert!(block_on(store.change_sealed(book)).unwrap());
}

/// The same for the version before payloads could be sealed, which is SQLite's alone.
fn before_sealed_payloads() -> Vec<String> {
    ["DROP TABLE payload_keys", "ALTER TABLE blobs DROP COLUMN sealed"].map(str::to_owned).into()
}

/// The same for the version before outside jobs were found by rows of their own, which is one of Postgres.
fn before_external_rows() -> Vec<String> {
    [
        "DROP VIEW pending_tool_calls",
        "DROP TABLE external_holds",
        "DROP FUNCTION external_hold_opened() CASCADE",
        "DROP FUNCTION external_hold_changed() CASCADE",
        "DROP FUNCTION external_holds_erased() CASCADE",
        "DELETE FROM refinery_schema_history WHERE version >= 28",
    ]
    .map(str::to_owned)
    .into()
}

/// The statements that make a database what the version before the audit of sealed documents left, after it changed one.
fn before_sealed_audit() -> Vec<String> {
    [
        "ALTER TABLE unsaid_rows DROP COLUMN kind",
        "DELETE FROM unsaid_rows",
        "DELETE FROM refinery_schema_history WHERE version >= 26",
        "UPDATE sealed SET value = 'changed'",
    ]
    .map(str::to_owned)
    .into()
}

/// The statements that make a database what the version before the audit of rows left.
fn before_row_audit() -> Vec<String> {
    [
        "DROP INDEX holds_by_deadline",
        "DROP INDEX holds_without_look",
        "ALTER TABLE holds DROP COLUMN expires_at",
        "DROP TABLE unsaid_rows",
        "DELETE FROM refinery_schema_history WHERE version >= 22",
        "DELETE FROM audit",
    ]
    .map(str::to_owned)
    .into()
}

/// Holds with deadlines in another order than they were opened in, and one without.
fn put_deadlines(store: &dyn Store, scribe: &mut Scribe) -> Vec<HoldId> {
    let mut write = |timeout: Option<i64>| {
        let policy = HoldPolicy { timeout: timeout.map(Millis::seconds), ..HoldPolicy::default() };
        let mut batch = scribe.start(&NewRun::of("helper").holding(policy));
        batch.puts.push(scribe.pinned(&batch.row));
        let row = batch.row.clone();
        block_on(store.append(vec![batch])).unwrap();
        let batch = scribe.reply(&row, &[SHELL]);
        let row = batch.row.clone();
        block_on(store.append(vec![batch])).unwrap();
        the_hold(&row)
    };
    let (late, none, early) = (write(Some(900)), write(None), write(Some(60)));
    vec![early, late, none]
}

/// S2-27: what the view finds outside jobs by is made from what an older version left, and is gone with what was erased.
#[test]
fn postgres_jobs_of_an_older_version_are_found_by_the_view() {
    let url = shared().database();
    let open = || PostgresStore::open(&PostgresOptions::at(&url)).unwrap();
    let opened = open();
    let store: &dyn Store = &opened;
    let mut scribe = Scribe::new(7);
    let written = |batch: standfast_store::Batch| {
        let row = batch.row.clone();
        block_on(store.append(vec![batch])).unwrap();
        row
    };
    let mut of_session = |session: &str| {
        let batches = job(&mut scribe, &NewRun::of("deployer").in_session(session));
        batches.into_iter().fold(None, |_, batch| Some(written(batch))).unwrap()
    };
    let [_, worked_on, done, failed, erased] = ["s-0", "s-1", "s-2", "s-3", "s-4"].map(&mut of_session);
    let news = Command::Progress { call: CallNo(1), note: Body::text("half way"), processing: Some(true) };
    written(scribe.batch(&worked_on, &news));
    let answer = Choice::Answer { value: Body::text("ok") };
    written(scribe.batch(&done, &resolve(the_hold(&done).key, answer)));
    let error = Choice::Fail { error: Body::text("exit 1") };
    written(scribe.batch(&failed, &resolve(the_hold(&failed).key, error)));
    let cancelled = written(scribe.batch(&erased, &Command::Cancel { reason: None }));
    written(scribe.batch(&cancelled, &Command::Erase { reason: None }));
    block_on(store.erase(erased.run.facts.id)).unwrap();
    let text = |question: &str| query_text(&url, question).unwrap();
    let stands =
        "SELECT string_agg(session_id || ' ' || status, ', ' ORDER BY session_id) FROM pending_tool_calls";
    let rows = "SELECT string_agg(external_holds::text, ', ' ORDER BY hold) FROM external_holds";
    let expected = "s-0 waiting, s-1 processing, s-2 completed, s-3 failed";
    let kept = text(rows);
    assert_eq!(text(stands), expected);
    assert_eq!(
        text("SELECT count(timeout)::text FROM external_holds"),
        "4",
        "of what was erased nothing is left"
    );
    drop(opened);
    cluster::run(&url, &before_external_rows());
    drop(open());
    assert_eq!((text(stands).as_str(), text(rows)), (expected, kept));
}

/// Open holds in the order of their deadlines.
fn by_deadline(store: &dyn Store) -> Vec<HoldId> {
    let listed = |filter| hold_ids(&block_on(store.list_holds(holds_by(filter))).unwrap().items);
    [listed(HoldFilter::Dated), listed(HoldFilter::Undated)].concat()
}

#[test]
fn sqlite_deadlines_of_an_older_version_are_put_in_order() {
    let (_directory, file) = fresh_file();
    let store = open(&file).unwrap();
    let held = put_deadlines(&*store, &mut Scribe::new(5));
    assert_eq!(by_deadline(&*store), held);
    drop(store);
    Connection::open(&file).unwrap().execute_batch("UPDATE holds SET expires_at = NULL").unwrap();
    assert_eq!(by_deadline(&*open(&file).unwrap()), held);
}

#[test]
fn postgres_deadlines_of_an_older_version_are_put_in_order() {
    let url = shared().database();
    let open = || PostgresStore::open(&PostgresOptions::at(&url)).unwrap();
    let store = open();
    let held = put_deadlines(&store, &mut Scribe::new(6));
    assert_eq!(by_deadline(&store), held);
    // A node of the version before knows nothing of the column.
    cluster::run(&url, &["UPDATE holds SET expires_at = NULL".to_owned()]);
    assert_eq!(by_deadline(&store).len(), held.len(), "they are listed all the same");
    drop(store);
    assert_eq!(by_deadline(&open()), held);
}

/// The entries that say of rows that they were found at an upgrade.
fn adopted(entries: &[String]) -> usize {
    entries.iter().filter(|entry| entry.contains("\"adopted\":true")).count()
}

/// T32: rows that an older version wrote are taken into the audit once; what is changed after that is noticed.
#[test]
fn sqlite_rows_of_an_older_version_are_taken_into_the_audit() {
    let (_directory, file) = fresh_file();
    let store = open(&file).unwrap();
    put_rows(&*store, &mut Scribe::new(3));
    drop(store);
    let run = |statements: &[String]| {
        let database = Connection::open(&file).unwrap();
        statements.iter().for_each(|one| database.execute_batch(one).unwrap());
    };
    let findings = || -> Vec<String> {
        let found = sqlite::verify(&file, |_| {}).unwrap().findings;
        found.into_iter().map(|finding| format!("{}: {}", finding.run, finding.what)).collect()
    };
    assert_eq!(findings(), [""; 0]);
    run(&before_sealed_payloads());
    run(&before_row_audit());
    // Nothing is said of rows before anything could have been.
    assert_eq!(findings(), [""; 0]);
    drop(open(&file).unwrap());
    assert_eq!(findings(), [""; 0]);
    let entries = || texts(&Connection::open(&file).unwrap(), "SELECT entry FROM audit ORDER BY no");
    assert_eq!((entries().len(), adopted(&entries())), (5, 5));
    // A crash after the change of the schema, before they were taken: the next start does it.
    run(&["DELETE FROM audit".into(), "INSERT INTO unsaid_rows (waiting) VALUES (1)".into()]);
    assert_eq!(findings().len(), 5);
    drop(open(&file).unwrap());
    assert_eq!(findings(), [""; 0]);
    // From now on it is not an upgrade any more.
    run(&["UPDATE credentials SET facts = '{\"user\":\"eve\"}'".into()]);
    drop(open(&file).unwrap());
    let changed = ["key k1 of tenant default: it is not what the audit says of it"];
    assert_eq!(findings(), changed);
    assert_eq!(entries().len(), 5);
    // An upgrade that takes sealed documents in does not say of other rows that they are as they should be.
    run(&before_sealed_payloads());
    run(&before_sealed_audit());
    assert_eq!(findings(), changed);
    drop(open(&file).unwrap());
    assert_eq!(findings(), changed);
    assert_eq!((entries().len(), adopted(&entries())), (6, 6));
    run(&["UPDATE sealed SET value = 'older'".into()]);
    drop(open(&file).unwrap());
    assert_eq!(findings().len(), 2);
}

/// T32: the same on Postgres, where nodes of the version before may go on for a while.
#[test]
fn postgres_rows_of_an_older_version_are_taken_into_the_audit() {
    let url = shared().database();
    let options = PostgresOptions::at(&url);
    let open = || drop(PostgresStore::open(&options).unwrap());
    put_rows(&PostgresStore::open(&options).unwrap(), &mut Scribe::new(4));
    let findings = || postgres::verify(&options, |_| {}).unwrap().findings.len();
    let entries = || {
        let all =
            query_text(&url, "SELECT string_agg(entry, E'\n' ORDER BY no) FROM audit").unwrap_or_default();
        all.lines().map(str::to_owned).collect::<Vec<String>>()
    };
    assert_eq!(findings(), 0);
    cluster::run(&url, &before_external_rows());
    cluster::run(&url, &before_row_audit());
    open();
    assert_eq!(findings(), 0);
    assert_eq!((entries().len(), adopted(&entries())), (5, 5));
    // An older node revokes a key, adds one and deletes a subscription; then it is replaced.
    let older = [
        "UPDATE credentials SET revoked_at = 5",
        "INSERT INTO credentials (tenant, prefix, hash, facts) SELECT tenant, 'k2', hash, facts FROM credentials",
        "DELETE FROM subscriptions",
    ];
    cluster::run(&url, &older.map(str::to_owned));
    assert_eq!(findings(), 3);
    open();
    assert_eq!(findings(), 0);
    assert_eq!((entries().len(), adopted(&entries())), (8, 8));
    // A day later no start takes anything in any more.
    let later = ["UPDATE unsaid_rows SET until = 1", "UPDATE credentials SET revoked_at = NULL"];
    cluster::run(&url, &later.map(str::to_owned));
    open();
    open();
    assert_eq!(findings(), 1);
    assert_eq!(entries().len(), 8);
    cluster::run(&url, &before_external_rows());
    cluster::run(&url, &before_sealed_audit());
    open();
    assert_eq!(findings(), 1, "an upgrade that takes sealed documents in takes nothing else in");
    assert_eq!(entries().len(), 9);
    let older = "UPDATE sealed SET value = 'older'";
    cluster::run(&url, &[older.to_owned()]);
    assert_eq!(findings(), 2);
    open();
    assert_eq!(findings(), 1, "a node of the version before may have written it");
    cluster::run(&url, &["UPDATE unsaid_rows SET until = 1".to_owned(), older.replace("older", "old")]);
    open();
    assert_eq!(findings(), 2);
}

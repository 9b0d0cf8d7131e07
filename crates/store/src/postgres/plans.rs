//! The plans of all statements: none of them may read a whole table, and updates of runs stay on their page.
//!
//! A store that is quick with a hundred runs and slow with a million has a statement that this test would name.

use tokio_postgres::{Client, NoTls};

use super::connect::{Connector, SESSION};
use super::{PostgresOptions, sql};
use crate::conformance::cluster;

/// Tables that have as many rows as there are machines, shards or tables.
const SMALL: [&str; 3] = [" on nodes", " on shards", " on pg_class"];

fn in_a_runtime<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

async fn connect(url: &str) -> Client {
    let config: tokio_postgres::Config = url.parse().unwrap();
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(SESSION).await.unwrap();
    client
}

#[test]
fn no_statement_reads_a_whole_table() {
    let url = cluster::shared().database();
    let scans = in_a_runtime(async {
        let client = connect(&url).await;
        let mut scans = Vec::new();
        for (name, statement) in named_statements() {
            scans.extend(whole_tables(&client, name, statement).await);
        }
        scans
    });
    assert!(scans.is_empty(), "these read a whole table:\n{}", scans.join("\n"));
}

/// The steps of a statement's plan that read a whole table, or an index without looking for anything in it.
async fn whole_tables(client: &Client, name: &str, statement: &str) -> Vec<String> {
    let prepared = client.prepare(statement).await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    let nulls = vec!["NULL"; prepared.params().len()].join(", ");
    client.batch_execute(&format!("PREPARE looked_at AS {statement}")).await.unwrap();
    let arguments = if nulls.is_empty() { String::new() } else { format!("({nulls})") };
    let explained = client.simple_query(&format!("EXPLAIN EXECUTE looked_at{arguments}")).await;
    client.batch_execute("DEALLOCATE looked_at").await.unwrap();
    let explained = explained.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    let steps = explained.iter().filter_map(|message| {
        let tokio_postgres::SimpleQueryMessage::Row(row) = message else { return None };
        row.get(0)
    });
    let is_whole = |step: &&str| step.contains("Seq Scan") && !SMALL.iter().any(|table| step.contains(table));
    steps.filter(is_whole).map(|step| format!("{name}: {}", step.trim())).collect()
}

/// Every statement of `sql.rs` that has a plan, by its name.
fn named_statements() -> Vec<(&'static str, &'static str)> {
    let utilities = ["LISTEN", "APPENDS_STOP"];
    sql::ALL.iter().copied().filter(|(name, _)| !utilities.contains(name)).collect()
}

/// A statement that is not in the list would not be looked at.
#[test]
fn every_statement_is_in_the_list() {
    let source = include_str!("sql.rs");
    let declared = source.lines().filter_map(|line| line.trim().strip_prefix("pub(super) const "));
    let declared: Vec<&str> =
        declared.filter_map(|rest| rest.split_once(": &str").map(|(name, _)| name)).collect();
    let listed: Vec<&str> = sql::ALL.iter().map(|(name, _)| *name).collect();
    assert_eq!(listed, declared);
}

/// Every statement stands in `sql.rs`, or its plan would not be looked at.
#[test]
fn no_statement_stands_elsewhere() {
    let sources = [
        include_str!("append.rs"),
        include_str!("counts.rs"),
        include_str!("group.rs"),
        include_str!("hints.rs"),
        include_str!("lists.rs"),
        include_str!("nodes.rs"),
        include_str!("pool.rs"),
        include_str!("read.rs"),
        include_str!("rows.rs"),
        include_str!("side.rs"),
        include_str!("deliveries.rs"),
        include_str!("work.rs"),
        include_str!("writer.rs"),
    ];
    for source in sources {
        for word in ["SELECT ", "INSERT INTO ", "UPDATE ", "DELETE FROM "] {
            assert!(!source.contains(word), "a statement with {word:?} outside sql.rs");
        }
    }
}

/// The password is in no message, whatever is wrong with the address.
#[test]
fn no_message_has_the_password() {
    let urls = [
        "postgres://me:hunter2@localhost:1/db",
        "postgres://me:hunter2@localhost:1/db?sslmode=nonsense",
        "postgres://me:hunter2@localhost:notaport/db",
        "host=localhost port=1 password=hunter2 nonsense=1",
    ];
    for url in urls {
        let options = PostgresOptions::at(url);
        assert!(
            !format!("{options:?} {:?}", Connector::new(&options).map(|c| c.place().to_owned()))
                .contains("hunter2")
        );
        let error = super::PostgresStore::open(&options).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
}

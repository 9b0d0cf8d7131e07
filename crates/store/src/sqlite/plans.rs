//! The plans of all statements: none of them may read a whole table.
//!
//! A store that is quick with a hundred runs and slow with a million has a statement that this test would name.

use rusqlite::{Connection, params_from_iter};

use super::{SqliteOptions, schema, sql};

#[test]
fn no_statement_reads_a_whole_table() {
    let directory = tempfile::tempdir().unwrap();
    let connection = schema::open(&SqliteOptions::at(directory.path().join("plans.db"))).unwrap().connection;
    let scans: Vec<String> = sql::ALL.iter().flat_map(|statement| scans(&connection, statement)).collect();
    assert!(scans.is_empty(), "these read a whole table:\n{}", scans.join("\n"));
}

/// The steps of a statement's plan that read a whole table or index.
fn scans(connection: &Connection, statement: &str) -> Vec<String> {
    let mut explained = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
    let unbound = vec![rusqlite::types::Null; explained.parameter_count()];
    let steps = explained.query_map(params_from_iter(unbound), |row| row.get::<_, String>(3));
    let steps: Vec<String> = steps.unwrap().collect::<Result<_, _>>().unwrap();
    // A list that the caller gives is not a table.
    let is_given = |step: &str| step == "SCAN CONSTANT ROW" || step.starts_with("SCAN json_each ");
    let is_scan = |step: &String| step.starts_with("SCAN") && !is_given(step);
    steps.into_iter().filter(is_scan).map(|step| format!("{step}: {statement}")).collect()
}

/// A statement that is not in the list would not be looked at.
#[test]
fn every_statement_is_in_the_list() {
    let source = include_str!("sql.rs");
    let (_, list) = source.split_once("const ALL: &[&str] = &[").unwrap();
    let listed: Vec<&str> = list.split([',', ']', ';']).map(str::trim).collect();
    let declared = source.lines().filter_map(|line| line.strip_prefix("pub(super) const "));
    for name in declared.filter_map(|rest| rest.split_once(": &str").map(|(name, _)| name)) {
        assert!(listed.contains(&name), "{name} is not in ALL");
    }
    assert_eq!(sql::ALL.len(), source.matches("const ").count() - source.matches("const ALL").count());
}

/// Every statement stands in `sql.rs`, or its plan would not be looked at.
#[test]
fn no_statement_stands_elsewhere() {
    let sources = [
        include_str!("append.rs"),
        include_str!("conversations.rs"),
        include_str!("credentials.rs"),
        include_str!("erase.rs"),
        include_str!("holds.rs"),
        include_str!("names.rs"),
        include_str!("read.rs"),
        include_str!("read/lists.rs"),
        include_str!("read/sessions.rs"),
        include_str!("writer_memory.rs"),
        include_str!("rows.rs"),
        include_str!("tally.rs"),
        include_str!("deliveries.rs"),
        include_str!("work.rs"),
    ];
    for source in sources {
        for word in ["SELECT ", "INSERT INTO ", "UPDATE ", "DELETE FROM "] {
            assert!(!source.contains(word), "a statement with {word:?} outside sql.rs");
        }
    }
}

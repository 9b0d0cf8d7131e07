//! `--counts`: what one cycle at one client costs, counted, beside a checked-in table.
//!
//! No stopwatch: the counts are the same on any machine, so a read-back or a sync that comes back fails here. What a node does
//! by itself while time passes (it looks for due runs twice a second) is counted while nothing happens, and taken off for
//! as long as the cycles took: a slow machine does not make a cycle dearer. The table is `counts.json` beside the package;
//! `--counts --write` replaces it, for a change that means it.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::counting::{Counts, IS_COUNTING};
use crate::measure::{connected, cycles, now};
use crate::ours;
use crate::process::{Build, Served, runtime};

/// Cycles before anything is counted: statements are prepared, connections opened, buffers grown.
const WARM_UP: usize = 50;
/// Cycles that are counted.
const CYCLES: usize = 200;
/// How long nothing happens before, to count what a node does by itself: four of its looks.
const IDLE: Duration = Duration::from_millis(4 * ours::POLL_MS as u64);

/// The checked-in table: at most so many a cycle.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    syncs: f64,
    read_transactions: f64,
    read_statements: f64,
    write_statements: f64,
    allocations: f64,
}

/// A line of the table: its name, the figure of it, and how far off it may be before it is reported.
struct Line {
    name: &'static str,
    figure: fn(&Table) -> f64,
    /// A look for due work more or less may fall into the cycles, and a busy machine groups appends differently.
    slack: f64,
}

const LINES: [Line; 5] = [
    Line { name: "syncs", figure: |table| table.syncs, slack: 0.1 },
    Line { name: "read transactions", figure: |table| table.read_transactions, slack: 0.1 },
    Line { name: "read statements", figure: |table| table.read_statements, slack: 0.5 },
    Line { name: "writer statements", figure: |table| table.write_statements, slack: 0.5 },
    Line { name: "allocations", figure: |table| table.allocations, slack: 10.0 },
];

impl From<Counts> for Table {
    fn from(counts: Counts) -> Table {
        let hundredths = |figure: f64| (figure * 100.0).round() / 100.0;
        Table {
            syncs: hundredths(counts.syncs),
            read_transactions: hundredths(counts.read_transactions),
            read_statements: hundredths(counts.read_statements),
            write_statements: hundredths(counts.write_statements),
            allocations: counts.allocations.round(),
        }
    }
}

/// Counts, and compares with the table or replaces it.
pub(crate) fn check(replaces: Replaces) -> Result<(), String> {
    if !IS_COUNTING {
        return Err("this build counts nothing; `cargo xtask bench --counts` builds one that does".into());
    }
    let counted = Table::from(count());
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("counts.json");
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    match replaces {
        Replaces::Table => {
            let text = serde_json::to_string_pretty(&counted).map_err(|error| failed(&error))?;
            std::fs::write(&file, text + "\n").map_err(|error| failed(&error))?;
            println!("written to {}", file.display());
            Ok(())
        }
        Replaces::Nothing => {
            let text = std::fs::read_to_string(&file).map_err(|error| failed(&error))?;
            compare(&serde_json::from_str(&text).map_err(|error| failed(&error))?, &counted)
        }
    }
}

/// What becomes of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replaces {
    Table,
    Nothing,
}

fn count() -> Counts {
    let directory = tempfile::tempdir().unwrap();
    let mut served = Served::start(Build::This, "ours", directory.path(), "0");
    runtime().block_on(async {
        let mut connection = connected(&[&served.address], 1).await.remove(0);
        cycles(&mut connection, WARM_UP, |connection| Box::pin(ours::cycle(connection))).await;
        let idle = served.counts().unwrap();
        tokio::time::sleep(IDLE).await;
        let (before, begin) = (served.counts().unwrap(), now());
        cycles(&mut connection, CYCLES, |connection| Box::pin(ours::cycle(connection))).await;
        let waits = begin.elapsed().as_secs_f64() / IDLE.as_secs_f64();
        served.counts().unwrap().since(before, CYCLES).less(before.since(idle, CYCLES), waits)
    })
}

fn compare(table: &Table, counted: &Table) -> Result<(), String> {
    let mut more = Vec::new();
    println!("{:20} {:>9} {:>9}", "a cycle at 1", "table", "counted");
    for Line { name, figure, slack } in LINES {
        let (expected, is) = (figure(table), figure(counted));
        let note = if is > expected + slack {
            more.push(format!("{name} {is}, not {expected}"));
            "  more"
        } else if is < expected - slack {
            "  less: `cargo xtask bench --counts --write` keeps it so"
        } else {
            ""
        };
        println!("{name:20} {expected:>9} {is:>9}{note}");
    }
    if more.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "a cycle costs more than crates/bench/counts.json says: {}; find out what came back, or, if it is meant, `cargo xtask bench --counts --write`",
            more.join("; ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Table = Table {
        syncs: 3.0,
        read_transactions: 1.0,
        read_statements: 4.0,
        write_statements: 18.0,
        allocations: 500.0,
    };

    #[test]
    fn one_more_of_anything_fails_and_is_named() {
        assert_eq!(compare(&TABLE, &TABLE), Ok(()));
        assert_eq!(compare(&TABLE, &Table { allocations: 505.0, ..TABLE }), Ok(()));
        assert_eq!(compare(&TABLE, &Table { syncs: 2.0, ..TABLE }), Ok(()));
        let worse = [
            (Table { syncs: 4.0, ..TABLE }, "syncs 4, not 3"),
            (Table { read_transactions: 2.0, ..TABLE }, "read transactions 2, not 1"),
            (Table { read_statements: 5.0, ..TABLE }, "read statements 5, not 4"),
            (Table { write_statements: 19.0, ..TABLE }, "writer statements 19, not 18"),
            (Table { allocations: 520.0, ..TABLE }, "allocations 520, not 500"),
        ];
        for (counted, expected) in worse {
            let why = compare(&TABLE, &counted).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
    }

    #[test]
    fn the_checked_in_table_can_be_read() {
        let text = include_str!("../counts.json");
        assert!(serde_json::from_str::<Table>(text).is_ok());
    }
}

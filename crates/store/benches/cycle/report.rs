//! The table, and the same numbers as JSON.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::Plan;
use crate::held::HeldRuns;
use crate::measure::{Measurement, percentile};

/// Everything that was measured.
#[derive(Debug, Default)]
pub(crate) struct Results {
    floor: BTreeMap<usize, Measurement>,
    statements: BTreeMap<usize, Measurement>,
    ours: BTreeMap<usize, Measurement>,
    pub(crate) held: Vec<HeldRuns>,
}

impl Results {
    pub(crate) fn floor(&mut self, concurrency: usize, measured: Measurement) {
        self.floor.entry(concurrency).or_default().add(measured);
    }

    pub(crate) fn statements(&mut self, concurrency: usize, measured: Measurement) {
        self.statements.entry(concurrency).or_default().add(measured);
    }

    pub(crate) fn ours(&mut self, concurrency: usize, measured: Measurement) {
        self.ours.entry(concurrency).or_default().add(measured);
    }
}

pub(crate) fn print(plan: &Plan, results: &Results) {
    println!("store level, SQLite FULL, without HTTP; {} s for each figure", plan.seconds);
    println!(
        "{:>5} | {:>10} {:>10} {:>10} | {:>9} {:>10} | {:>9} {:>9} {:>11} | p50 of floor",
        "at", "floor/s", "stmts/s", "ours/s", "of floor", "of stmts", "p50 ms", "p99 ms", "approve p50"
    );
    for (at, ours) in &results.ours {
        let (floor, statements) = (&results.floor[at], &results.statements[at]);
        let p50 = percentile(&ours.cycle_ms, 0.5);
        println!(
            "{at:>5} | {:>10.0} {:>10.0} {:>10.0} | {:>9.2} {:>10.2} | {:>9.3} {:>9.3} {:>11.3} | {:.2}",
            floor.per_second(),
            statements.per_second(),
            ours.per_second(),
            ours.per_second() / floor.per_second(),
            ours.per_second() / statements.per_second(),
            p50,
            percentile(&ours.cycle_ms, 0.99),
            percentile(&ours.approve_ms, 0.5),
            p50 / percentile(&floor.cycle_ms, 0.5),
        );
    }
    for held in &results.held {
        println!("held {}: filled at {:.0}/s", held.count, held.fill_per_second);
        println!(
            "  approve→done p50 {:.3} ms, p99 {:.3} ms; at 64: old {:.0}/s, fresh {:.0}/s ({:.2})",
            held.approve_p50_ms,
            held.approve_p99_ms,
            held.old_per_second_64,
            held.fresh_per_second_64,
            held.old_per_second_64 / held.fresh_per_second_64
        );
        println!(
            "  page of 50: {:.3} ms, by audience {:.3} ms; open {:.1} ms; resident {:.1} MB",
            held.page50_ms, held.page50_audience_ms, held.open_ms, held.rss_mb
        );
        println!(
            "  counting all runs once: {:.0} ms; counts after that: {:.3} ms",
            held.first_count_ms, held.count_ms
        );
        println!(
            "  bytes a held run: {:.0}, of which outside the events {:.0}",
            held.bytes_per_run, held.bytes_outside_events
        );
    }
    if let Some(path) = &plan.json {
        std::fs::write(path, format!("{:#}\n", as_json(results))).unwrap();
        println!("written to {}", path.display());
    }
}

fn as_json(results: &Results) -> Value {
    let mut sqlite = figures(&results.ours);
    sqlite["held"] = results
        .held
        .iter()
        .map(|held| {
            let figures = json!({
                "approve_p50_ms": held.approve_p50_ms,
                "approve_p99_ms": held.approve_p99_ms,
                "old_per_s_64": held.old_per_second_64,
                "fresh_per_s_64": held.fresh_per_second_64,
                "rss_mb": held.rss_mb,
                "ready_ms": held.open_ms,
                "first_count_ms": held.first_count_ms,
                "count_ms": held.count_ms,
                "page50_ms": held.page50_ms,
                "page50_audience_ms": held.page50_audience_ms,
                "bytes_per_run": held.bytes_per_run,
                "bytes_outside_events": held.bytes_outside_events,
            });
            (held.count.to_string(), figures)
        })
        .collect();
    json!({
        "floor": figures(&results.floor),
        "statements_floor": figures(&results.statements),
        "sqlite": sqlite,
    })
}

fn figures(all: &BTreeMap<usize, Measurement>) -> Value {
    let of = |figure: &dyn Fn(&Measurement) -> f64| -> Value {
        all.iter().map(|(at, measured)| (at.to_string(), json!(figure(measured)))).collect()
    };
    json!({
        "cycles_per_s": of(&|m| m.per_second()),
        "cycle_p50_ms": of(&|m| percentile(&m.cycle_ms, 0.5)),
        "cycle_p99_ms": of(&|m| percentile(&m.cycle_ms, 0.99)),
        "approve_p50_ms": of(&|m| percentile(&m.approve_ms, 0.5)),
    })
}

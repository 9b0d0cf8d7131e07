//! What was measured on Postgres, as tables and as JSON.

use serde_json::{Value, json};

use super::{BESIDE_A_SNAPSHOT, Results};
use crate::Plan;
use crate::measure::percentile;
use crate::ours::POLL_MS;
use crate::report::{figures, held_figures, print_held, write_json};

pub(crate) fn print(plan: &Plan, results: &Results) {
    println!(
        "over HTTP, servers, client and Postgres on the same machine; {} s for each figure; a cycle is {} statements in {} trips of pgbench",
        plan.seconds, results.statements, results.trips
    );
    println!(
        "{:>5} {:>9} | {:>9} {:>8} {:>10} {:>10} | {:>8} {:>8} {:>11}",
        "at", "nodes", "pgbench/s", "ours/s", "of pgbench", "of 1 node", "p50 ms", "p99 ms", "approve p50"
    );
    for (at, pgbench) in &results.pgbench {
        let configurations = results.nodes.iter().map(|(count, figures)| (count.to_string(), figures));
        for (name, figures) in configurations.chain([("3 crossed".to_owned(), &results.crossed)]) {
            let ours = &figures[at];
            println!(
                "{at:>5} {name:>9} | {:>9.0} {:>8.0} {:>10.2} {:>10.2} | {:>8.2} {:>8.2} {:>11.2}",
                pgbench.per_second(),
                ours.per_second(),
                ours.per_second() / pgbench.per_second(),
                ours.per_second() / results.nodes[&1][at].per_second(),
                percentile(&ours.cycle_ms, 0.5),
                percentile(&ours.cycle_ms, 0.99),
                percentile(&ours.approve_ms, 0.5),
            );
            let usage = ours.usage_per_cycle();
            println!(
                "{:>15} | {:.0} µs of all nodes, {:.0} µs of Postgres, {:.1} switches of the nodes a cycle",
                "",
                usage.writer_us + usage.other_us,
                usage.database_us,
                usage.switches
            );
        }
        if let Some(counts) = results.counts.get(at) {
            println!(
                "{:>15} | {:.2} trips, {:.1} appends a transaction, {:.0} allocations a cycle with one node",
                "",
                counts.trips,
                counts.appends_per_commit(),
                counts.allocations
            );
        }
    }
    print_together(results);
    println!("goals: of pgbench ≥ 0.45 at 64 with one node; two and three nodes never less than one");
    let snapshot = &results.snapshot;
    println!(
        "beside an old snapshot, at {BESIDE_A_SNAPSHOT}: {:.0}/s, before {:.0}/s ({:.2}); looking for due runs p50 {:.2} ms, p99 {:.2} ms, before {:.2} and {:.2} ms",
        snapshot.during.per_second(),
        snapshot.before.per_second(),
        snapshot.during.per_second() / snapshot.before.per_second(),
        percentile(&snapshot.claims_during, 0.5),
        percentile(&snapshot.claims_during, 0.99),
        percentile(&snapshot.claims_before, 0.5),
        percentile(&snapshot.claims_before, 0.99),
    );
    let hints = &results.hints;
    println!(
        "approval on one node, seen by a reader on another: p50 {:.1} ms, p99 {:.1} ms, the end of the run {:.1} and {:.1} ms; by a reader on the same node {:.1} and {:.1} ms; a node looks by itself every {POLL_MS} ms",
        percentile(&hints.other_node, 0.5),
        percentile(&hints.other_node, 0.99),
        percentile(&hints.other_node_end, 0.5),
        percentile(&hints.other_node_end, 0.99),
        percentile(&hints.same_node, 0.5),
        percentile(&hints.same_node, 0.99),
    );
    print_held(&results.held);
    results.backlog.print("Postgres");
    write_json(plan, &as_json(results));
}

/// What pgbench reaches with the same statements in the same groups.
fn print_together(results: &Results) {
    let together = &results.together;
    let ours = results.nodes.get(&1).and_then(|figures| figures.get(&together.cycles));
    let ours = ours.map_or(f64::NAN, |measured| measured.per_second());
    println!(
        "the statements of {} cycles at once: {} in {} trips",
        together.cycles, together.statements, together.trips
    );
    for (connections, measured) in &together.measured {
        println!(
            "  pgbench with {connections} connections: {:.0} cycles/s; ours with one node {:.2} of it",
            measured.per_second(),
            ours / measured.per_second()
        );
    }
}

fn as_json(results: &Results) -> Value {
    let by_nodes = |count: usize| results.nodes.get(&count).map(figures);
    let mut postgres = by_nodes(1).unwrap_or_default();
    postgres["nodes"] = json!({"2": by_nodes(2), "3": by_nodes(3), "3_crossed": figures(&results.crossed)});
    postgres["held"] = held_figures(&results.held);
    postgres["backlog"] = results.backlog.figures();
    let spread =
        |samples: &[f64]| json!({"p50_ms": percentile(samples, 0.5), "p99_ms": percentile(samples, 0.99)});
    let snapshot = &results.snapshot;
    postgres["old_snapshot"] = json!({
        "cycles_per_s": snapshot.during.per_second(),
        "cycles_per_s_before": snapshot.before.per_second(),
        "claims": spread(&snapshot.claims_during),
        "claims_before": spread(&snapshot.claims_before),
    });
    postgres["hints"] = json!({
        "other_node": spread(&results.hints.other_node),
        "other_node_end": spread(&results.hints.other_node_end),
        "same_node": spread(&results.hints.same_node),
        "poll_ms": POLL_MS,
    });
    let per_second: Value =
        results.pgbench.iter().map(|(at, one)| (at.to_string(), json!(one.per_second()))).collect();
    let together = results.together.measured.iter();
    let together: Value = together.map(|(no, one)| (no.to_string(), json!(one.per_second()))).collect();
    json!({
        "pgbench": {
            "cycles_per_s": per_second, "statements": results.statements,
            "together_cycles_per_s": together, "together_statements": results.together.statements,
        },
        "postgres": postgres,
    })
}

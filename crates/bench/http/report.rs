//! The table with its goals, and the same numbers as JSON.

use serde_json::{Value, json};

use crate::held::Held;
use crate::measure::{ByConcurrency, Measured, Memory, Results, percentile};
use crate::{Plan, markdown};

pub(crate) fn print(plan: &Plan, results: &Results) {
    println!("over HTTP, SQLite FULL, client on the same machine; {} s for each figure", plan.seconds);
    println!(
        "{:>5} | {:>8} {:>8} {:>8} | {:>8} {:>8} | {:>8} {:>8} {:>11} | {:>12} {:>12}",
        "at",
        "floor/s",
        "stmts/s",
        "ours/s",
        "of floor",
        "of stmts",
        "p50 ms",
        "p99 ms",
        "approve p50",
        "p50/floor",
        "approve/floor"
    );
    for (at, ours) in &results.ours {
        let (floor, statements) = (&results.floor[at], &results.statements[at]);
        println!(
            "{at:>5} | {:>8.0} {:>8.0} {:>8.0} | {:>8.2} {:>8.2} | {:>8.3} {:>8.3} {:>11.3} | {:>12.2} {:>12.2}",
            floor.per_second(),
            statements.per_second(),
            ours.per_second(),
            ours.per_second() / floor.per_second(),
            ours.per_second() / statements.per_second(),
            percentile(&ours.cycle_ms, 0.5),
            percentile(&ours.cycle_ms, 0.99),
            percentile(&ours.approve_ms, 0.5),
            percentile(&ours.cycle_ms, 0.5) / percentile(&floor.cycle_ms, 0.5),
            percentile(&ours.approve_ms, 0.5) / percentile(&floor.approve_ms, 0.5),
        );
    }
    println!("goals: of floor ≥ 0.45 at 16 and 64 (stretch 0.6); p50/floor ≤ 1.5 at 1 (stretch 1.3)");
    print_costs(results);
    let Memory { base_mb, loaded_mb, idle_mb } = results.memory;
    println!(
        "resident: {base_mb:.1} MB at the start, {loaded_mb:.1} MB after the load, {idle_mb:.1} MB some seconds later (goals: 40, 60)"
    );
    if plan.markdown {
        markdown::print(results);
    }
    if plan.only_cycles {
        return write_json(plan, &as_json(results));
    }
    if let Some(alone) = results.ours.get(&1) {
        println!(
            "a pause and its resume, all of it durable and over HTTP: p50 {:.1} ms, p99 {:.1} ms; Hector says 5–25 ms (S0-65)",
            percentile(&alone.cycle_ms, 0.5),
            percentile(&alone.cycle_ms, 0.99),
        );
        println!(
            "the same in blocking mode, in memory: p50 {:.2} ms, p99 {:.2} ms, so being durable costs {:.1} ms; Hector says ≈ 0 ms \
             for blocking (S0-65)",
            percentile(&results.blocking.cycle_ms, 0.5),
            percentile(&results.blocking.cycle_ms, 0.99),
            percentile(&alone.cycle_ms, 0.5) - percentile(&results.blocking.cycle_ms, 0.5),
        );
    }
    println!("with a model that takes 50 ms, asked twice a cycle:");
    for (at, with_model) in &results.with_model {
        println!(
            "{at:>5} | {:>8.1}/s | cycle p50 {:.1} ms, p99 {:.1} ms; beside the model p50 {:.1} ms",
            with_model.per_second(),
            percentile(&with_model.cycle_ms, 0.5),
            percentile(&with_model.cycle_ms, 0.99),
            percentile(&with_model.cycle_ms, 0.5) - 100.0,
        );
    }
    print_held(&results.held);
    results.backlog.print("SQLite FULL");
    results.big.print();
    write_json(plan, &as_json(results));
}

/// What one cycle costs a server, in processor time and in what was counted inside it: what noise moves least.
fn print_costs(results: &Results) {
    println!(
        "a cycle costs the server {:20} | {:>8} {:>9} {:>8} {:>8} | {:>6} {:>9} {:>7} {:>7} {:>7} {:>7} {:>8}",
        "",
        "all µs",
        "writer µs",
        "other µs",
        "switches",
        "syncs",
        "app/commit",
        "read tx",
        "reads",
        "writes",
        "allocs",
        "KiB"
    );
    let kinds = [("floor", &results.floor), ("statements", &results.statements), ("ours", &results.ours)];
    for at in results.ours.keys() {
        for (kind, measured) in kinds.iter().map(|(kind, all)| (kind, &all[at])) {
            let usage = measured.usage_per_cycle();
            print!(
                "{:>22} {kind:>11} at {at:>3} | {:>8.0} {:>9.0} {:>8.0} {:>8.1} | ",
                "",
                usage.all_us(),
                usage.writer_us,
                usage.other_us,
                usage.switches
            );
            match measured.counts {
                Some(counts) => println!(
                    "{:>6.2} {:>10.1} {:>7.2} {:>7.1} {:>7.1} {:>7.0} {:>8.1}",
                    counts.syncs,
                    counts.appends_per_commit(),
                    counts.read_transactions,
                    counts.read_statements,
                    counts.write_statements,
                    counts.allocations,
                    counts.bytes / 1024.0,
                ),
                None => println!("not counted: `cargo xtask bench` builds what counts"),
            }
        }
    }
    println!(
        "goals: ≤ 260 µs at 64 (stretch 180); at 1 3.0 syncs, ≤ 1 read transaction, ≤ 18 writer statements, ≤ 500 allocations"
    );
}

/// What many held runs cost, in words.
pub(crate) fn print_held(all: &[Held]) {
    for held in all {
        println!("held {}: filled at {:.0}/s", held.count, held.fill_per_second);
        println!(
            "  approve→done p50 {:.3} ms (fresh {:.3}: {:+.0} %), p99 {:.3} ms; at 64: old {:.0}/s, fresh {:.0}/s ({:.2})",
            held.approve_p50_ms,
            held.fresh_p50_ms,
            (held.approve_p50_ms / held.fresh_p50_ms - 1.0) * 100.0,
            held.approve_p99_ms,
            held.old_per_second_64,
            held.fresh_per_second_64,
            held.old_per_second_64 / held.fresh_per_second_64
        );
        println!(
            "  page of 50: {:.3} ms; ready after {:.0} ms; resident {:.1} MB; {:.0} bytes a held run",
            held.page50_ms, held.ready_ms, held.rss_mb, held.bytes_per_run
        );
    }
}

/// Keeps the numbers where the plan says.
pub(crate) fn write_json(plan: &Plan, numbers: &Value) {
    if let Some(path) = &plan.json {
        std::fs::write(path, format!("{numbers:#}\n")).unwrap();
        println!("written to {}", path.display());
    }
}

fn as_json(results: &Results) -> Value {
    let mut sqlite = figures(&results.ours);
    let Memory { base_mb, loaded_mb, idle_mb } = results.memory;
    sqlite["rss_mb"] = json!(loaded_mb);
    sqlite["base_rss_mb"] = json!(base_mb);
    sqlite["idle_rss_mb"] = json!(idle_mb);
    sqlite["model_50ms"] = figures(&results.with_model);
    sqlite["blocking"] = figures(&ByConcurrency::from([(1, results.blocking.clone())]));
    sqlite["held"] = held_figures(&results.held);
    sqlite["backlog"] = results.backlog.figures();
    sqlite["big"] = results.big.figures();
    json!({
        "floor": figures(&results.floor),
        "statements_floor": figures(&results.statements),
        "sqlite": sqlite,
    })
}

/// What many held runs cost, by how many they are.
pub(crate) fn held_figures(all: &[Held]) -> Value {
    all.iter()
        .map(|held| {
            let figures = json!({
                "approve_p50_ms": held.approve_p50_ms,
                "approve_p99_ms": held.approve_p99_ms,
                "fresh_approve_p50_ms": held.fresh_p50_ms,
                "old_per_s_64": held.old_per_second_64,
                "fresh_per_s_64": held.fresh_per_second_64,
                "rss_mb": held.rss_mb,
                "ready_ms": held.ready_ms,
                "page50_ms": held.page50_ms,
                "bytes_per_run": held.bytes_per_run,
            });
            (held.count.to_string(), figures)
        })
        .collect()
}

pub(crate) fn figures(all: &ByConcurrency) -> Value {
    let of = |figure: &dyn Fn(&Measured) -> f64| -> Value {
        all.iter().map(|(at, measured)| (at.to_string(), json!(figure(measured)))).collect()
    };
    json!({
        "cycles_per_s": of(&|m| m.per_second()),
        "cycle_p50_ms": of(&|m| percentile(&m.cycle_ms, 0.5)),
        "cycle_p99_ms": of(&|m| percentile(&m.cycle_ms, 0.99)),
        "approve_p50_ms": of(&|m| percentile(&m.approve_ms, 0.5)),
        "writer_cpu_us": of(&|m| m.usage_per_cycle().writer_us),
        "other_cpu_us": of(&|m| m.usage_per_cycle().other_us),
        "context_switches": of(&|m| m.usage_per_cycle().switches),
        "counts": all.iter().map(|(at, m)| (at.to_string(), json!(m.counts))).collect::<Value>(),
    })
}

//! The tables of docs/performance.md as they stand there, for `--markdown`: a run is copied into it, not typed.
//!
//! Only forms what `report.rs` prints for people; what is measured is `measure.rs`.

use crate::measure::{ByConcurrency, Measured, Memory, Results, percentile};

/// Every table that the run has figures for, in the order of the page.
pub(crate) fn print(results: &Results) {
    println!("\n{}", speed(results));
    println!("{}", costs(results));
    println!("{}", memory(results.memory));
    if !results.with_model.is_empty() {
        println!("{}", with_model(&results.with_model));
    }
    if !results.held.is_empty() {
        println!("{}", held(results));
    }
}

fn table(heads: &[&str], rows: Vec<Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let heads: Vec<String> = heads.iter().map(ToString::to_string).collect();
    let rule = format!("|{}\n", "---|".repeat(heads.len()));
    let rows: String = rows.iter().map(|row| line(row)).collect();
    line(&heads) + &rule + &rows
}

fn speed(results: &Results) -> String {
    let heads = [
        "at",
        "of the floor",
        "of the statements",
        "cycle p50 of the floor",
        "approve→done p50 of the floor",
        "floor cycles/s",
        "statements/s",
        "ours/s",
        "cycle p50 / p99 ms",
        "approve→done p50 ms",
    ];
    let rows = results.ours.iter().map(|(at, ours)| {
        let (floor, statements) = (&results.floor[at], &results.statements[at]);
        let p50 = |of: &[f64]| percentile(of, 0.5);
        vec![
            at.to_string(),
            format!("{:.2}", ours.per_second() / floor.per_second()),
            format!("{:.2}", ours.per_second() / statements.per_second()),
            format!("{:.2}", p50(&ours.cycle_ms) / p50(&floor.cycle_ms)),
            format!("{:.2}", p50(&ours.approve_ms) / p50(&floor.approve_ms)),
            format!("{:.0}", floor.per_second()),
            format!("{:.0}", statements.per_second()),
            format!("{:.0}", ours.per_second()),
            format!("{:.2} / {:.1}", p50(&ours.cycle_ms), percentile(&ours.cycle_ms, 0.99)),
            format!("{:.2}", p50(&ours.approve_ms)),
        ]
    });
    table(&heads, rows.collect())
}

fn costs(results: &Results) -> String {
    let heads = [
        "a cycle costs the server",
        "processor µs",
        "of that the writer",
        "switches",
        "syncs",
        "appends a commit",
        "read transactions",
        "statements read",
        "written",
        "allocations",
        "KiB",
    ];
    let row = |kind: &str, at: usize, measured: &Measured| {
        let usage = measured.usage_per_cycle();
        let used = [
            format!("{kind} at {at}"),
            format!("{:.0}", usage.all_us()),
            format!("{:.0}", usage.writer_us),
            format!("{:.1}", usage.switches),
        ];
        let counted = measured.counts.map_or_else(
            || vec!["–".to_owned(); 7],
            |counts| {
                vec![
                    format!("{:.2}", counts.syncs),
                    format!("{:.1}", counts.appends_per_commit()),
                    format!("{:.2}", counts.read_transactions),
                    format!("{:.1}", counts.read_statements),
                    format!("{:.1}", counts.write_statements),
                    format!("{:.0}", counts.allocations),
                    format!("{:.0}", counts.bytes / 1024.0),
                ]
            },
        );
        used.into_iter().chain(counted).collect()
    };
    let kinds: [(&str, &ByConcurrency); 3] =
        [("floor", &results.floor), ("statements", &results.statements), ("ours", &results.ours)];
    let rows = results.ours.keys().flat_map(|at| kinds.map(|(kind, all)| row(kind, *at, &all[at])));
    table(&heads, rows.collect())
}

fn memory(memory: Memory) -> String {
    let Memory { base_mb, loaded_mb, idle_mb } = memory;
    let row = [base_mb, loaded_mb, idle_mb].map(|mb| format!("{mb:.1}"));
    table(&["resident MB at the start", "after the load", "some seconds later"], vec![row.to_vec()])
}

fn with_model(all: &ByConcurrency) -> String {
    let heads = [
        "with a model that takes 50 ms, asked twice a cycle",
        "cycles/s",
        "cycle p50 / p99 ms",
        "beside the model p50 ms",
    ];
    let rows = all.iter().map(|(at, measured)| {
        let p50 = percentile(&measured.cycle_ms, 0.5);
        vec![
            at.to_string(),
            format!("{:.1}", measured.per_second()),
            format!("{p50:.1} / {:.1}", percentile(&measured.cycle_ms, 0.99)),
            format!("{:.1}", p50 - 100.0),
        ]
    });
    table(&heads, rows.collect())
}

fn held(results: &Results) -> String {
    let heads = [
        "held",
        "approve→done p50, old / fresh ms",
        "p99 ms",
        "at 64: old/s, fresh/s",
        "page of 50 ms",
        "ready ms",
        "resident MB",
        "bytes a run",
    ];
    let rows = results.held.iter().map(|held| {
        let more = (held.approve_p50_ms / held.fresh_p50_ms - 1.0) * 100.0;
        let (old, fresh) = (held.old_per_second_64, held.fresh_per_second_64);
        vec![
            held.count.to_string(),
            format!("{:.2} / {:.2} ({more:+.0} %)", held.approve_p50_ms, held.fresh_p50_ms),
            format!("{:.1}", held.approve_p99_ms),
            format!("{old:.0}, {fresh:.0} ({:.2})", old / fresh),
            format!("{:.2}", held.page50_ms),
            format!("{:.0}", held.ready_ms),
            format!("{:.1}", held.rss_mb),
            format!("{:.0}", held.bytes_per_run),
        ]
    });
    table(&heads, rows.collect())
}

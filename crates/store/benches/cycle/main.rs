//! The cycle of performance.md at store level: start, held, approve, tool, end; through core and store, without HTTP.
//!
//! Beside it, in the same run: the floor (three group-committed 4 KiB rows a cycle, no logic) and the same statements
//! without logic (the appends were sealed before). What counts is the ratio: machines are noisy.
//! `cargo xtask bench [--quick] [--json FILE] [--held N,N] [--seconds N]`.

#![expect(clippy::unwrap_used, reason = "a bench stops where something is missing")]

mod cycle;
mod floor;
mod held;
mod measure;
mod report;
mod statements;

use std::path::PathBuf;

/// What was asked for.
#[derive(Debug, Clone)]
struct Plan {
    seconds: f64,
    concurrency: Vec<usize>,
    held: Vec<usize>,
    json: Option<PathBuf>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = arguments.iter().position(|argument| argument == held::CHILD) {
        return held::child(&arguments[at + 1..]);
    }
    match plan(&arguments) {
        Ok(plan) => report::print(&plan, &run(&plan)),
        Err(why) => {
            eprintln!("bench: {why}");
            std::process::exit(2);
        }
    }
}

fn plan(arguments: &[String]) -> Result<Plan, String> {
    let mut plan =
        Plan { seconds: 5.0, concurrency: vec![1, 16, 64], held: vec![100_000, 1_000_000], json: None };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = |what: &str| rest.next().ok_or(format!("{what} needs a value")).cloned();
        match argument.as_str() {
            "--bench" => {}
            "--quick" => (plan.seconds, plan.held) = (1.0, vec![10_000]),
            "--seconds" => {
                plan.seconds = value("--seconds")?.parse().map_err(|e| format!("--seconds: {e}"))?
            }
            "--json" => plan.json = Some(value("--json")?.into()),
            "--held" => {
                let list = value("--held")?;
                let counts = list.split(',').filter(|n| !n.is_empty()).map(str::parse);
                plan.held = counts.collect::<Result<_, _>>().map_err(|e| format!("--held: {e}"))?;
            }
            other => return Err(format!("unknown argument {other}; known: --quick --seconds --json --held")),
        }
    }
    Ok(plan)
}

fn run(plan: &Plan) -> report::Results {
    let runtime = measure::runtime();
    let mut results = report::Results::default();
    for concurrency in &plan.concurrency {
        eprintln!("bench: {concurrency} concurrent …");
        // Alternating rounds, so that a slow minute of the machine hits all three alike.
        for _ in 0..2 {
            let seconds = plan.seconds / 2.0;
            results.floor(*concurrency, runtime.block_on(floor::run(*concurrency, seconds)));
            results.statements(*concurrency, runtime.block_on(statements::run(*concurrency, seconds)));
            results.ours(*concurrency, runtime.block_on(cycle::run(*concurrency, seconds)));
        }
    }
    for count in &plan.held {
        eprintln!("bench: {count} held …");
        results.held.push(held::run(&runtime, *count));
    }
    results
}

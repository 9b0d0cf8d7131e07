//! The cycle of performance.md over HTTP: start, held, approve, tool, end; the client in a process of its own.
//!
//! Beside it, in alternating rounds of the same run and on the same HTTP stack: the floor (three group-committed 4 KiB
//! rows a cycle, no logic) and our own statements without logic. What counts is the ratio: machines are noisy.
//! Times and processor time are those of this program, built as what is shipped is; what is counted inside the servers comes from a
//! second build of it (`counting.rs`). `cargo xtask bench --counts` only counts, and compares (`counts.rs`).
//! `cargo xtask bench [--postgres] [--quick] [--full] [--cycles] [--at N,N] [--seconds N] [--held N,N] [--backlog N]
//! [--markdown] [--json FILE]`; with `--cycles` it is nothing but the cycle, beside its floors, with so many clients as `--at` says; with
//! `--postgres` it is several servers on one Postgres, beside pgbench (`postgres.rs`); with `--a2a [--subscribers N,N]` it
//! is A2A, beside the server of the official Python SDK (`a2a.rs`); with `--backlog N` only that (`backlog.rs`).

#![expect(clippy::unwrap_used, reason = "a bench stops where something is missing")]

mod a2a;
mod backlog;
mod big;
mod client;
mod counting;
mod counts;
mod floor;
mod held;
mod markdown;
mod measure;
mod ours;
#[cfg(feature = "postgres")]
mod postgres;
mod process;
mod report;
mod statements;
mod usage;

use std::path::PathBuf;

use counts::Replaces;

#[cfg(feature = "counting")]
#[global_allocator]
static ALLOCATOR: &stats_alloc::StatsAlloc<std::alloc::System> = &stats_alloc::INSTRUMENTED_SYSTEM;

#[cfg(all(feature = "jemalloc", not(feature = "counting")))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[cfg(all(feature = "mimalloc", not(feature = "jemalloc"), not(feature = "counting")))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What was asked for.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seconds: f64,
    pub(crate) concurrency: Vec<usize>,
    pub(crate) held: Vec<usize>,
    /// How many queued runs are worked off.
    pub(crate) backlog: usize,
    /// Nothing but that.
    pub(crate) only_backlog: bool,
    /// Nothing but the cycle.
    pub(crate) only_cycles: bool,
    pub(crate) json: Option<PathBuf>,
    /// The tables of docs/performance.md as well.
    pub(crate) markdown: bool,
    /// Nothing but counting a cycle, beside the table.
    pub(crate) counts: Option<Replaces>,
    /// Several servers on one Postgres instead of one on a file.
    pub(crate) postgres: bool,
    /// A2A instead, beside another server that speaks it.
    pub(crate) a2a: bool,
    /// How many turns the long run has.
    pub(crate) turns: usize,
    /// How many follow runs.
    pub(crate) readers: usize,
    /// With A2A: how many follow one task.
    pub(crate) subscribers: Vec<usize>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = arguments.iter().position(|argument| argument == process::SERVE) {
        return process::serve(&arguments[at + 1..]);
    }
    match plan(&arguments) {
        Ok(Plan { counts: Some(replaces), .. }) => counts::check(replaces).unwrap_or_else(|why| stop(&why)),
        #[cfg(not(feature = "postgres"))]
        Ok(plan) if plan.postgres => stop("this build has no Postgres; `cargo xtask bench --postgres` has"),
        Ok(plan) if plan.only_backlog => measure::only_backlog(&plan),
        #[cfg(feature = "postgres")]
        Ok(plan) if plan.postgres => postgres::print(&plan, &postgres::all(&plan)),
        Ok(plan) if plan.a2a => match a2a::all(&plan) {
            Ok(results) => a2a::print(&plan, &results),
            Err(why) => stop(&why),
        },
        Ok(plan) => report::print(&plan, &measure::all(&plan)),
        Err(why) => stop(&why),
    }
}

fn stop(why: &str) {
    eprintln!("bench: {why}");
    std::process::exit(2);
}

fn plan(arguments: &[String]) -> Result<Plan, String> {
    let mut plan = Plan {
        seconds: 4.0,
        concurrency: vec![1, 16, 64],
        held: vec![100_000],
        backlog: 10_000,
        only_backlog: false,
        only_cycles: false,
        json: None,
        markdown: false,
        counts: None,
        postgres: false,
        a2a: false,
        turns: 1_000,
        readers: 10_000,
        subscribers: vec![1_000, 10_000],
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = |what: &str| rest.next().ok_or(format!("{what} needs a value")).cloned();
        match argument.as_str() {
            "--postgres" => plan.postgres = true,
            "--counts" => plan.counts = Some(plan.counts.unwrap_or(Replaces::Nothing)),
            "--write" => plan.counts = Some(Replaces::Table),
            "--a2a" => plan.a2a = true,
            "--quick" => {
                (plan.seconds, plan.held, plan.subscribers) = (1.0, vec![2_000], vec![1_000]);
                (plan.backlog, plan.turns, plan.readers) = (1_000, 200, 1_000);
            }
            "--full" => plan.held = vec![100_000, 1_000_000],
            "--seconds" => {
                plan.seconds = value("--seconds")?.parse().map_err(|e| format!("--seconds: {e}"))?
            }
            "--markdown" => plan.markdown = true,
            "--at" => plan.concurrency = counts("--at", &value("--at")?)?,
            "--cycles" => {
                (plan.only_cycles, plan.held, plan.backlog) = (true, Vec::new(), 0);
            }
            "--json" => plan.json = Some(value("--json")?.into()),
            "--backlog" => {
                plan.backlog = value("--backlog")?.parse().map_err(|e| format!("--backlog: {e}"))?;
                plan.only_backlog = true;
            }
            "--turns" => plan.turns = value("--turns")?.parse().map_err(|e| format!("--turns: {e}"))?,
            "--readers" => {
                plan.readers = value("--readers")?.parse().map_err(|e| format!("--readers: {e}"))?
            }
            "--held" => plan.held = counts("--held", &value("--held")?)?,
            "--subscribers" => plan.subscribers = counts("--subscribers", &value("--subscribers")?)?,
            other => {
                return Err(format!(
                    "unknown argument {other}; known: --counts [--write] --postgres --a2a --quick --full --cycles --at --seconds --markdown --json --held --backlog --turns --readers --subscribers"
                ));
            }
        }
    }
    Ok(plan)
}

/// Numbers with commas between them.
fn counts(name: &str, list: &str) -> Result<Vec<usize>, String> {
    let counts = list.split(',').filter(|n| !n.is_empty()).map(str::parse);
    counts.collect::<Result<_, _>>().map_err(|e| format!("{name}: {e}"))
}

//! F9: the real engine in a world without chance: several nodes, one store, virtual time, one thread, one seed.
//!
//! One binary, three uses: the tests (500 seeds), `--full` (what `cargo xtask faults` runs, 10,000 seeds) and
//! `--seed N` (the history of one seed, in words; with `--sqlite` on a real file, with `--deaf` without hints between
//! nodes). `docs/faults.md` says what happens.

#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

mod agents;
mod backend;
mod check;
#[path = "../faults/facts.rs"]
mod facts;
mod people;
#[path = "../faults/report.rs"]
mod report;
mod requests;
mod wire;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use standfast_core::mutant::Mutant;

use backend::Ground;
use report::{Row, reported};
use world::{Blind, Hints, How, play};

/// Seeds in the test command, in parts that can run beside each other.
const FEW: u64 = 500;
const PARTS: u64 = 5;
/// Seeds of `cargo xtask faults`.
const MANY: u64 = 10_000;
/// The same with power cuts, on a real file.
const FEW_CUTS: u64 = 12;
const MANY_CUTS: u64 = 400;
const CUTS: How = How { ground: Ground::Sqlite, ..How::USUAL };
/// The same where no node ever learns of another: everything happens, only later.
const FEW_DEAF: u64 = 60;
const MANY_DEAF: u64 = 1_000;
const DEAF: How = How { hints: Hints::None, ..How::USUAL };
const ON_SQLITE: &str = "--sqlite";
const WITHOUT_HINTS: &str = "--deaf";
/// Seeds within which a mutation must be noticed.
const NOTICED_WITHIN: u64 = 200;

/// Plays a seed with a rule switched off; what the oracle says of it.
type Mutated = fn(u64) -> Vec<String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let after = |name: &str| {
        arguments.iter().position(|argument| argument == name).and_then(|at| arguments.get(at + 1))
    };
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    if let Some(seed) = after("--seed") {
        let ground = if has(ON_SQLITE) { Ground::Sqlite } else { Ground::Memory };
        let hints = if has(WITHOUT_HINTS) { Hints::None } else { Hints::Some };
        return tell(seed.parse().unwrap(), How { aloud: true, ground, hints, ..How::USUAL });
    }
    if !has("--full") {
        return libtest_mimic::run(&Arguments::from_args(), trials()).exit_code();
    }
    if after("--only").is_some_and(|only| only.split(',').all(|one| one != "F9")) {
        return ExitCode::SUCCESS;
    }
    let of = |seeds: u64| if has("--quick") { seeds / 20 } else { seeds };
    let json = after("--json").map(PathBuf::from);
    let mut is_clean = reported(|| simulate(0..of(MANY), How::USUAL), json.as_deref());
    is_clean &= reported(|| simulate(0..of(MANY_CUTS), CUTS), json.as_deref());
    is_clean &= reported(|| simulate(0..of(MANY_DEAF), DEAF), json.as_deref());
    if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn trials() -> Vec<Trial> {
    let part = FEW / PARTS;
    let mut trials: Vec<Trial> = (0..PARTS)
        .map(|no| {
            let seeds = no * part..(no + 1) * part;
            let name =
                format!("f9_nothing_is_lost_or_repeated_in_seeds_{}_to_{}", seeds.start, seeds.end - 1);
            Trial::test(name, move || simulate(seeds, How::USUAL).verdict())
        })
        .collect();
    let cuts = || simulate(0..FEW_CUTS, CUTS).verdict();
    trials.push(Trial::test("f9_power_cuts_lose_and_repeat_nothing_on_sqlite", cuts));
    let deaf = || simulate(0..FEW_DEAF, DEAF).verdict();
    trials.push(Trial::test("f9_nothing_is_lost_or_repeated_when_every_hint_is_lost", deaf));
    trials.push(Trial::test("f9_a_seed_replays_exactly", replays));
    let mutants: [(&str, Mutated); 7] = [
        ("the_sequence_is_not_checked", |seed| Mutant::SequenceUnchecked.with(|| violations(seed))),
        ("an_orphan_is_retried_blindly", |seed| Mutant::OrphanRetriedBlindly.with(|| violations(seed))),
        ("a_decision_is_not_consumed", |seed| Mutant::DecisionConsumedTwice.with(|| violations(seed))),
        ("a_model_hears_decisions_that_lost", |seed| Mutant::DecisionsAskedAhead.with(|| violations(seed))),
        ("start_by_is_not_checked", |seed| blind(seed, Blind::ToPauses)),
        ("shards_of_the_dead_are_not_taken_over", |seed| blind(seed, Blind::ToSilence)),
        ("nodes_look_only_when_they_are_told", |seed| blind(seed, Blind::ToTime)),
    ];
    for (name, mutant) in mutants {
        let name = format!("f9_notices_that_{name}");
        trials.push(Trial::test(name.clone(), move || notices(&name, mutant)));
    }
    trials
}

fn violations(seed: u64) -> Vec<String> {
    blind(seed, Blind::Nothing)
}

fn blind(seed: u64, blind: Blind) -> Vec<String> {
    play(seed, How { blind, ..How::USUAL }).violations
}

/// Plays these seeds; every violation says how to see it again.
fn simulate(seeds: std::ops::Range<u64>, how: How) -> Row {
    let (count, mut wrong, mut lines) = (seeds.end - seeds.start, Vec::new(), 0);
    for seed in seeds {
        let report = play(seed, how);
        lines += report.lines;
        let mut again = format!("cargo test -p standfast --test simulation -- --seed {seed}");
        for (is_so, option) in
            [(how.ground == Ground::Sqlite, ON_SQLITE), (how.hints == Hints::None, WITHOUT_HINTS)]
        {
            if is_so {
                again.push(' ');
                again.push_str(option);
            }
        }
        wrong.extend(report.violations.into_iter().map(|why| format!("seed {seed}: {why} (see: {again})")));
    }
    let count = usize::try_from(count).unwrap();
    let what = match (how.ground, how.hints) {
        (Ground::Memory, Hints::Some) => "simulated nodes under every fault",
        (Ground::Memory, Hints::None) => "the same with every hint between nodes lost",
        (Ground::Sqlite, _) => "the same on SQLite, with power cuts",
    };
    Row::new("F9", what, count, wrong).with(format!("{lines} steps"))
}

/// The same seed twice: the same history.
fn replays() -> Result<(), Failed> {
    for seed in 0..10 {
        let [first, second] = [(); 2].map(|()| play(seed, How::USUAL));
        if (first.trace, first.lines) != (second.trace, second.lines) {
            return Err(format!("seed {seed} has two histories: {first:?} and {second:?}").into());
        }
    }
    if play(0, How::USUAL).trace == play(1, How::USUAL).trace {
        Err("two seeds have one history: nothing is traced".into())
    } else {
        Ok(())
    }
}

/// A rule is off: some seed shows it.
fn notices(name: &str, mutant: Mutated) -> Result<(), Failed> {
    for seed in 0..NOTICED_WITHIN {
        if let Some(first) = mutant(seed).first() {
            println!("{name}: seed {seed}: {first}");
            return Ok(());
        }
    }
    Err(format!("{name}: nothing is wrong with {NOTICED_WITHIN} seeds").into())
}

/// Tells the history of a seed.
fn tell(seed: u64, how: How) -> ExitCode {
    let report = play(seed, how);
    println!("seed {seed}: {} steps, trace {:016x}", report.lines, report.trace);
    report.violations.iter().for_each(|why| println!("VIOLATION {why}"));
    if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

//! The server under faults: real processes, real SQLite and Postgres, real kills, and an oracle outside the store.
//!
//! One binary, three uses: the tests (a few of each row), `--full` (what `cargo xtask faults` runs, with the counts of
//! the fault matrix) and `--serve` (the server under test, started by the other two). `docs/faults.md` says what is
//! injected.

#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

mod agents;
mod boundaries;
mod check;
mod child;
mod commands;
mod disk;
mod expiry;
mod facts;
mod kills;
mod malformed;
mod nodes;
mod one_node;
mod oracle;
mod paused;
mod points;
mod proxy;
mod races;
mod report;
mod restores;
mod server;
mod site;
mod slow;
mod soak;
mod stops;
mod story;
mod streams;
mod trouble;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use standfast_engine::settings::FixedSettings;

use nodes::Plan;
use one_node::Database;
use report::{Row, reported};
use site::Kept::{File, Folder, Postgres};
use standfast_store::conformance::cluster::Replication;
use story::Wish;
use trouble::Fault;

/// The product's own program: built by itself, without the mutants of the core.
pub(crate) fn standfast() -> PathBuf {
    standfast_testkit::binary::path()
}

/// A row with the count of a test, and one with its full count.
type Few = Box<dyn FnOnce() -> Row + Send>;
type Many = Box<dyn Fn() -> Row>;

fn main() -> ExitCode {
    raise_descriptors();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some((child::SERVE, rest)) => child::serve(rest),
        Some(("--full", rest)) => full(rest),
        Some(_) | None => libtest_mimic::run(&Arguments::from_args(), trials()).exit_code(),
    }
}

/// A few of each row. The name of a test begins with its row.
fn trials() -> Vec<Trial> {
    let few = [Wish::Approve, Wish::Deny, Wish::Edit, Wish::Answer, Wish::Result, Wish::Cancel];
    let rows: Vec<(&str, Few)> = vec![
        ("the_oracle_notices_what_is_wrong", Box::new(oracle::notices)),
        (
            "f1_a_crash_around_any_write_loses_and_repeats_nothing",
            Box::new(move || boundaries::boundaries(&few, 1, 2, File)),
        ),
        ("f2_kill_9_under_load_loses_and_repeats_nothing", Box::new(|| kills::kills(5, 1, File))),
        ("f3_a_stop_in_order_leaves_what_a_kill_leaves", Box::new(|| stops::stops(3, File))),
        (
            "f1_a_crash_around_any_write_loses_and_repeats_nothing_in_files",
            Box::new(move || boundaries::boundaries(&few, 1, 5, Folder)),
        ),
        ("f2_kill_9_under_load_loses_and_repeats_nothing_in_files", Box::new(|| kills::kills(5, 1, Folder))),
        ("f3_a_stop_in_order_leaves_what_a_kill_leaves_in_files", Box::new(|| stops::stops(3, Folder))),
        ("f5_of_many_decisions_one_counts_in_files", Box::new(|| races::on_one_hold(12, Folder))),
        (
            "f6_at_the_same_instant_one_thing_happens_in_files",
            Box::new(|| races::at_the_same_instant(3, Folder)),
        ),
        ("f7_two_engines_resume_a_run_once_in_files", Box::new(|| races::both_nodes_claim(24, Folder))),
        (
            "f8_results_come_early_late_and_for_nothing_in_files",
            Box::new(|| races::early_and_late_results(16, Folder)),
        ),
        ("f21_many_holds_expire_at_once_in_files", Box::new(|| expiry::expiry(200, Folder))),
        ("f3_a_stop_in_order_leaves_what_a_kill_leaves_on_postgres", Box::new(|| stops::stops(3, Postgres))),
        ("f5_of_many_decisions_on_two_nodes_one_counts", Box::new(|| races::on_one_hold(12, File))),
        (
            "f5_of_many_decisions_through_one_node_the_model_hears_the_one_that_counts",
            Box::new(|| one_node::on_one_hold(25, Database::Sqlite)),
        ),
        (
            "f5_of_many_decisions_through_one_node_the_model_hears_the_one_that_counts_in_memory",
            Box::new(|| one_node::on_one_hold(25, Database::Memory)),
        ),
        (
            "f5_of_many_decisions_through_one_node_the_model_hears_the_one_that_counts_in_files",
            Box::new(|| one_node::on_one_hold(25, Database::Files)),
        ),
        (
            "f5_of_many_decisions_through_one_node_the_model_hears_the_one_that_counts_on_postgres",
            Box::new(|| one_node::on_one_hold(25, Database::Postgres)),
        ),
        ("f6_at_the_same_instant_one_thing_happens", Box::new(|| races::at_the_same_instant(3, File))),
        ("f7_two_nodes_resume_a_run_once", Box::new(|| races::both_nodes_claim(24, File))),
        ("f8_results_come_early_late_and_for_nothing", Box::new(|| races::early_and_late_results(16, File))),
        ("f21_many_holds_expire_at_once", Box::new(|| expiry::expiry(200, File))),
        ("f23_slow_clients_stop_nobody_else", Box::new(|| slow::slow_clients(60, 2))),
        ("f24_malformed_bodies_are_refused", Box::new(|| malformed::malformed(1_500))),
        ("streams_across_kills_miss_and_repeat_nothing", Box::new(|| streams::across_kills(4))),
        ("idle_readers_cost_little_and_sleep_on", Box::new(|| streams::idle_readers(300))),
        ("a_killed_server_leaves_no_command_behind_and_asks", Box::new(|| commands::commands(1))),
        (
            "f1_a_crash_around_any_write_loses_and_repeats_nothing_on_postgres",
            Box::new(move || boundaries::boundaries(&few, 1, 6, Postgres)),
        ),
        (
            "f2_kill_9_under_load_loses_and_repeats_nothing_on_postgres",
            Box::new(|| kills::kills(5, 1, Postgres)),
        ),
        ("f5_of_many_decisions_on_two_processes_one_counts", Box::new(|| races::on_one_hold(12, Postgres))),
        (
            "f6_at_the_same_instant_one_thing_happens_on_postgres",
            Box::new(|| races::at_the_same_instant(3, Postgres)),
        ),
        ("f7_two_processes_resume_a_run_once", Box::new(|| races::both_nodes_claim(24, Postgres))),
        (
            "f8_results_come_early_late_and_for_nothing_on_postgres",
            Box::new(|| races::early_and_late_results(16, Postgres)),
        ),
        ("f21_many_holds_expire_at_once_on_postgres", Box::new(|| expiry::expiry(200, Postgres))),
        (
            "nodes_that_are_killed_while_postgres_crashes_lose_and_repeat_nothing",
            Box::new(|| nodes::run(&Plan { clients: 8, ..three_nodes(90) })),
        ),
        (
            "f4_a_node_that_stood_still_past_its_leases_does_nothing_twice",
            Box::new(|| nodes::run(&Plan { clients: 6, ..zombies(60) })),
        ),
        (
            "f11_lost_answers_of_commit_are_settled",
            Box::new(|| nodes::run(&Plan { clients: 6, ..lost_answers(60) })),
        ),
        (
            "f12_a_standby_that_takes_over_has_everything",
            Box::new(|| nodes::run(&Plan { clients: 6, ..fail_overs(40, Replication::Synchronous) })),
        ),
        (
            "f12_a_standby_that_follows_late_leaves_nothing_broken",
            Box::new(|| nodes::run(&Plan { clients: 6, ..fail_overs(40, Replication::Asynchronous) })),
        ),
        (
            "f13_writes_that_are_undone_locks_and_no_connections_lose_nothing",
            Box::new(|| nodes::run(&Plan { clients: 6, ..trouble(60) })),
        ),
        ("f19_after_an_older_backup_nothing_else_runs", Box::new(|| restores::restores(1, File))),
        ("f19_after_an_older_backup_nothing_else_runs_in_files", Box::new(|| restores::restores(1, Folder))),
        ("f19_after_an_older_dump_nothing_else_runs", Box::new(|| restores::restores(1, Postgres))),
        ("f28_runs_that_wait_cost_a_start_nothing", Box::new(|| paused::paused(400, 1, File))),
        ("f28_runs_that_wait_cost_a_start_their_rows_in_files", Box::new(|| paused::paused(400, 1, Folder))),
        (
            "f28_runs_that_wait_cost_a_start_nothing_on_postgres",
            Box::new(|| paused::paused(400, 1, Postgres)),
        ),
        ("f31_the_same_load_takes_no_more_and_more", Box::new(|| soak::soak(Duration::from_secs(9), File))),
        (
            "f31_the_same_load_takes_no_more_and_more_in_files",
            Box::new(|| soak::soak(Duration::from_secs(9), Folder)),
        ),
        ("f20_nodes_with_wrong_clocks_go_by_the_database", Box::new(|| nodes::run(&wrong_clocks(30)))),
        ("nodes_that_hear_no_hint_go_on_all_the_same", Box::new(|| nodes::run(&deaf(30)))),
    ];
    rows.into_iter().map(|(name, row)| Trial::test(name, move || row().verdict())).collect()
}

/// What the many-nodes part of the product is done by: nodes are killed every few seconds and Postgres crashes.
fn three_nodes(cycles: usize) -> Plan {
    let faults = [Fault::Kill, Fault::Kill, Fault::Kill, Fault::Crash];
    let plan = Plan::new("NODES", "three nodes: kill -9, crashes of Postgres", cycles);
    // The lease that the product has when nobody says otherwise.
    Plan { lease: FixedSettings::default().lease, ..plan }.with(&faults)
}

/// F4: SIGSTOP past the lease; others take over; SIGCONT.
fn zombies(cycles: usize) -> Plan {
    let plan =
        Plan { between: (300, 700), nodes: 2, ..Plan::new("F4", "nodes that stand still and go on", cycles) };
    plan.with(&[Fault::Pause])
}

/// F10: Postgres crashes every few seconds.
fn crashes(cycles: usize) -> Plan {
    Plan::new("F10", "crashes of Postgres under load", cycles).with(&[Fault::Crash])
}

/// F11: COMMIT is written and nobody gets the answer.
fn lost_answers(cycles: usize) -> Plan {
    let plan =
        Plan { between: (100, 300), nodes: 2, ..Plan::new("F11", "answers of COMMIT are lost", cycles) };
    plan.with(&[Fault::LoseAnswers])
}

/// F13: connections end at any moment.
fn disconnects(cycles: usize) -> Plan {
    let plan = Plan { between: (200, 500), ..Plan::new("F13", "every connection to Postgres ends", cycles) };
    plan.with(&[Fault::Disconnect])
}

/// F12: the primary is gone for good, its standby takes over.
fn fail_overs(cycles: usize, replication: Replication) -> Plan {
    let (id, what) = match replication {
        Replication::Synchronous => ("F12", "failover to a synchronous standby"),
        Replication::Asynchronous => ("F12-ASYNC", "failover to an asynchronous standby"),
    };
    let plan = Plan { replication: Some(replication), between: (500, 1_500), ..Plan::new(id, what, cycles) };
    plan.with(&[Fault::FailOver])
}

/// F13: writes are undone, locks are held, connections are all taken.
fn trouble(cycles: usize) -> Plan {
    let plan = Plan {
        between: (300, 700),
        ..Plan::new("F13-BUSY", "undone writes, locks, no connection left", cycles)
    };
    plan.with(&[Fault::Refuse, Fault::Refuse, Fault::Stall, Fault::Exhaust])
}

/// F20: clocks that are an hour ahead, a day behind, ten minutes ahead.
fn wrong_clocks(cycles: usize) -> Plan {
    let wrong_by = vec![3_600_000, -86_400_000, 600_000];
    Plan { wrong_by, clients: 6, ..Plan::new("F20", "nodes with wrong clocks", cycles) }
}

/// Hints are lost, all of them.
fn deaf(cycles: usize) -> Plan {
    Plan { is_deaf: true, clients: 6, ..Plan::new("HINTS", "nodes that hear no hint", cycles) }
}

/// Every row with its full count.
fn full(arguments: &[String]) -> ExitCode {
    let is_quick = arguments.iter().any(|argument| argument == "--quick");
    let of = move |count: usize| if is_quick { count.div_ceil(20) } else { count };
    let only =
        arguments.iter().position(|argument| argument == "--only").and_then(|at| arguments.get(at + 1));
    let json =
        arguments.iter().position(|argument| argument == "--json").and_then(|at| arguments.get(at + 1));
    let json = json.map(PathBuf::from);
    let rows: Vec<(&str, Many)> = vec![
        ("F1", Box::new(move || boundaries::boundaries(&Wish::ALL, of(5), 1, File))),
        ("F2", Box::new(move || kills::kills(of(200), 1, File))),
        ("F3", Box::new(move || stops::stops(of(200), File))),
        ("F5", Box::new(move || races::on_one_hold(of(10_000), File))),
        ("F5-NODE", Box::new(move || one_node::on_one_hold(of(1_000), Database::Sqlite))),
        ("F5-NODE-MEM", Box::new(move || one_node::on_one_hold(of(1_000), Database::Memory))),
        ("F5-NODE-FILES", Box::new(move || one_node::on_one_hold(of(1_000), Database::Files))),
        ("F5-NODE-PG", Box::new(move || one_node::on_one_hold(of(1_000), Database::Postgres))),
        ("F6", Box::new(move || races::at_the_same_instant(of(2_000), File))),
        ("F7", Box::new(move || races::both_nodes_claim(of(10_000), File))),
        ("F8", Box::new(move || races::early_and_late_results(of(1_000), File))),
        ("F14", Box::new(move || disk::full_disk(of(100), File))),
        ("F21", Box::new(move || expiry::expiry(of(10_000), File))),
        ("F23", Box::new(move || slow::slow_clients(500, if is_quick { 60 } else { 600 }))),
        ("F24", Box::new(move || malformed::malformed(of(1_000_000)))),
        ("I7", Box::new(move || streams::across_kills(of(100)))),
        ("I9", Box::new(move || streams::idle_readers(if is_quick { 1_000 } else { 10_000 }))),
        ("F27", Box::new(move || commands::commands(of(20)))),
        ("F1-PG", Box::new(move || boundaries::boundaries(&Wish::ALL, of(5), 1, Postgres))),
        ("F2-PG", Box::new(move || kills::kills(of(200), 1, Postgres))),
        ("F3-PG", Box::new(move || stops::stops(of(200), Postgres))),
        ("F5-PG", Box::new(move || races::on_one_hold(of(10_000), Postgres))),
        ("F6-PG", Box::new(move || races::at_the_same_instant(of(2_000), Postgres))),
        ("F7-PG", Box::new(move || races::both_nodes_claim(of(10_000), Postgres))),
        ("F8-PG", Box::new(move || races::early_and_late_results(of(1_000), Postgres))),
        ("F21-PG", Box::new(move || expiry::expiry(of(10_000), Postgres))),
        ("NODES", Box::new(move || nodes::run(&three_nodes(of(2_000))))),
        ("F4", Box::new(move || nodes::run(&zombies(of(1_000))))),
        ("F10", Box::new(move || nodes::run(&crashes(of(5_000))))),
        ("F11", Box::new(move || nodes::run(&lost_answers(of(1_000))))),
        ("F13", Box::new(move || nodes::run(&disconnects(of(1_000))))),
        ("F12", Box::new(move || nodes::run(&fail_overs(of(1_200), Replication::Synchronous)))),
        ("F12-ASYNC", Box::new(move || nodes::run(&fail_overs(of(1_200), Replication::Asynchronous)))),
        ("F13-BUSY", Box::new(move || nodes::run(&trouble(of(1_000))))),
        ("F1-FILES", Box::new(move || boundaries::boundaries(&Wish::ALL, of(5), 1, Folder))),
        ("F2-FILES", Box::new(move || kills::kills(of(200), 1, Folder))),
        ("F3-FILES", Box::new(move || stops::stops(of(200), Folder))),
        ("F5-FILES", Box::new(move || races::on_one_hold(of(10_000), Folder))),
        ("F6-FILES", Box::new(move || races::at_the_same_instant(of(2_000), Folder))),
        ("F7-FILES", Box::new(move || races::both_nodes_claim(of(10_000), Folder))),
        ("F8-FILES", Box::new(move || races::early_and_late_results(of(1_000), Folder))),
        ("F14-FILES", Box::new(move || disk::full_disk(of(100), Folder))),
        ("F21-FILES", Box::new(move || expiry::expiry(of(10_000), Folder))),
        ("F19", Box::new(move || restores::restores(of(20), File))),
        ("F19-FILES", Box::new(move || restores::restores(of(20), Folder))),
        ("F19-PG", Box::new(move || restores::restores(of(20), Postgres))),
        ("F28", Box::new(move || paused::paused(of(100_000), 5, File))),
        ("F28-FILES", Box::new(move || paused::paused(of(100_000), 5, Folder))),
        ("F28-PG", Box::new(move || paused::paused(of(100_000), 5, Postgres))),
        ("F31", Box::new(move || soak::soak(Duration::from_secs(of(3_600) as u64), File))),
        ("F31-FILES", Box::new(move || soak::soak(Duration::from_secs(of(3_600) as u64), Folder))),
        ("F31-PG", Box::new(move || soak::soak(Duration::from_secs(of(3_600) as u64), Postgres))),
        ("F20", Box::new(move || nodes::run(&wrong_clocks(of(200))))),
        ("HINTS", Box::new(move || nodes::run(&deaf(of(200))))),
    ];
    let mut is_clean = true;
    for (id, row) in rows {
        if only.is_none_or(|only| only.split(',').any(|one| one == id)) {
            is_clean &= reported(row, json.as_deref());
        }
    }
    if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Descriptors that a process may have.
pub(crate) fn descriptors() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.and_then(|current| usize::try_from(current).ok()).unwrap_or(usize::MAX)
}

/// As many as the system allows, here and in every server that is started from here.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

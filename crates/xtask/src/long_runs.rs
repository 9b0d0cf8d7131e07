//! `cargo xtask bench` and `cargo xtask faults`: what takes too long for the everyday tests.
//!
//! The programs themselves are targets of the crates that they measure and break; this knows how they are started.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{needs, process, product};

/// Names the build of the bench that counts to the one that measures; the bench says the same.
const COUNTING_BENCH: &str = "STANDFAST_COUNTING_BENCH";

/// The approval cycle, as what is shipped is built: over HTTP, or with `--store` as the first argument the store's part of it alone. With `--a2a`, what it
/// is compared with is installed before; with `--counts` nothing is measured by the clock.
pub(crate) fn bench(root: &Path, arguments: &[OsString]) -> Result<()> {
    match arguments.split_first() {
        Some((first, rest)) if first == "--store" => process::cargo_with(
            root,
            &["bench", "--profile", "dist", "-p", "standfast-store", "--bench", "cycle", "--"],
            rest,
        ),
        Some(_) | None if has(arguments, "--counts") => counts(root, arguments),
        Some(_) | None => {
            if has(arguments, "--a2a") {
                needs::install_for_a2a_bench(root)?;
            }
            let (allocator, arguments) = allocator(arguments)?;
            let postgres = if has(&arguments, "--postgres") { "postgres" } else { "" };
            let features = [allocator, postgres].join(" ");
            let counting = counting_bench(root, "release")?;
            let bench =
                ["run", "--profile", "dist", "-p", "standfast-bench", "--no-default-features", "--features"];
            let mut measure = process::cargo_command(&[&bench[..], &[&features, "--"]].concat());
            measure.args(&arguments).env(COUNTING_BENCH, counting);
            process::run(root, measure)
        }
    }
}

/// The feature of the bench for `--allocator NAME`, and the other arguments. As the program is shipped, unless another one is
/// asked for.
fn allocator(arguments: &[OsString]) -> Result<(&'static str, Vec<OsString>)> {
    let Some(at) = arguments.iter().position(|argument| argument == "--allocator") else {
        return Ok(("mimalloc", arguments.to_vec()));
    };
    let feature = match arguments.get(at + 1).and_then(|name| name.to_str()) {
        Some("mimalloc") => "mimalloc",
        Some("jemalloc") => "jemalloc",
        Some("system") => "",
        Some(_) | None => bail!("--allocator is one of mimalloc, jemalloc, system"),
    };
    Ok((feature, [&arguments[..at], &arguments[at + 2..]].concat()))
}

/// What one cycle costs, counted and compared with the checked-in table: the same in any profile, so the quickest to build
/// will do.
pub(crate) fn counts(root: &Path, arguments: &[OsString]) -> Result<()> {
    let mut count = std::process::Command::new(counting_bench(root, "dev")?);
    count.arg("--counts").args(arguments.iter().filter(|argument| *argument != "--counts"));
    process::run(root, count)
}

/// Builds the bench that counts; where it is. Kept under a name of its own, as the one that measures has the same.
fn counting_bench(root: &Path, profile: &str) -> Result<PathBuf> {
    process::cargo(
        root,
        &["build", "--quiet", "--profile", profile, "-p", "standfast-bench", "--features", "counting"],
    )?;
    let folder = if profile == "dev" { "debug" } else { profile };
    let built = process::target_folder(root).join(folder).join("standfast-bench");
    let kept = process::target_folder(root).join("product/standfast-bench-counting");
    product::keep(&built, &kept).with_context(|| format!("{} cannot be kept", kept.display()))?;
    Ok(kept)
}

fn has(arguments: &[OsString], name: &str) -> bool {
    arguments.iter().any(|argument| argument == name)
}

/// Every row of the fault matrix: those of the store, those of the server, the simulation. All are run, whatever one of
/// them finds.
pub(crate) fn faults(root: &Path, arguments: &[OsString]) -> Result<()> {
    if let Some(file) = json_file(arguments)? {
        // Every program adds its lines to it.
        std::fs::write(root.join(file), "")
            .with_context(|| format!("{} cannot be written", file.display()))?;
    }
    let product = product::build_release(root)?;
    let cargo = |arguments: &[&str]| {
        let mut command = process::cargo_command(arguments);
        command.env(product::VARIABLE, &product);
        command
    };
    let store =
        ["run", "--release", "-p", "standfast-store", "--features", "faults", "--bin", "store-faults", "--"];
    let server = ["test", "--release", "-p", "standfast", "--test", "faults", "--", "--full"];
    let only = arguments.iter().skip_while(|argument| *argument != "--only").nth(1);
    let simulation = ["test", "--release", "-p", "standfast", "--test", "simulation", "--", "--full"];
    let programs = [&store[..], &server, &simulation];
    let mut found = Vec::new();
    if only.is_none() {
        // Tests that are too long for every run.
        let nightly = ["nextest", "run", "--profile", "nightly", "-p", "standfast"];
        let nightly = [&nightly[..], &["--test", "faults", "--test", "simulation"]].concat();
        found.push(process::run(root, cargo(&nightly)));
    }
    for program in programs {
        let mut command = cargo(program);
        command.args(arguments);
        found.push(process::run(root, command));
    }
    // These are tests that play each case as often as they are told to.
    let races = ("F5-SURFACES", "standfast-e2e", "protocols", "race", 1000);
    let kills = ["protocols", "program"].map(|test| ("F2-SURFACES", "standfast-e2e", test, "a_kill_", 200));
    let of_server = [("F27", "standfast", "sandbox", "f27", 40), ("F30", "standfast", "engine", "f30", 20)];
    let receivers = ("F25", "standfast-e2e", "protocols", "f25", 100);
    for (row, package, test, filter, rounds) in of_server.into_iter().chain([races, receivers]).chain(kills) {
        let is_wanted = only.is_none_or(|only| only.to_string_lossy().split(',').any(|one| one == row));
        if is_wanted {
            let is_quick = arguments.iter().any(|argument| argument == "--quick");
            let rounds = if is_quick { 2 } else { rounds };
            let line = ["test", "--release", "-p", package, "--test", test, "--", filter];
            println!("{row}: the tests {filter}* of {test}, {rounds} rounds");
            let mut command = cargo(&line);
            command.env("STANDFAST_FAULT_ROUNDS", rounds.to_string());
            found.push(process::run(root, command));
        }
    }
    let broken: Vec<String> = found.into_iter().filter_map(|one| Some(one.err()?.to_string())).collect();
    match broken.as_slice() {
        [] => Ok(()),
        broken => bail!("something happened that should not be possible: {}", broken.join("; ")),
    }
}

/// The file of `--json FILE`.
fn json_file(arguments: &[OsString]) -> Result<Option<&Path>> {
    let Some(at) = arguments.iter().position(|argument| argument == "--json") else { return Ok(None) };
    let file = arguments.get(at + 1).context("--json needs the name of a file")?;
    Ok(Some(Path::new(file)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn the_bench_is_built_as_the_program_is_shipped_unless_it_is_told_otherwise() {
        let chosen = |line: &str| allocator(&arguments(line)).ok();
        assert_eq!(chosen("--quick"), Some(("mimalloc", arguments("--quick"))));
        assert_eq!(chosen("--quick --allocator system --full"), Some(("", arguments("--quick --full"))));
        assert_eq!(chosen("--allocator jemalloc"), Some(("jemalloc", Vec::new())));
        assert_eq!((chosen("--allocator"), chosen("--allocator other")), (None, None));
    }

    #[test]
    fn the_json_file_is_found() {
        assert_eq!(json_file(&arguments("--quick")).unwrap(), None);
        assert_eq!(json_file(&arguments("--quick --json out.json")).unwrap(), Some(Path::new("out.json")));
        assert!(json_file(&arguments("--json")).is_err());
    }
}

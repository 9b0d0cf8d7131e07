//! `cargo xtask fuzz`: the parsers that meet a stranger's bytes, with inputs that libFuzzer makes, guided by the code that they reach.
//!
//! The tests are those of every day (`standfast_testkit::damage`), built with counters at every branch: with the stable compiler, which has them
//! behind options of LLVM, and without a sanitizer, which it has not. What was found interesting is kept in `target/fuzz/corpus`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;

/// What every crate is built with.
const FLAGS: &str = "--cfg fuzzing_libfuzzer -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";

/// How long each parser is shown inputs, unless somebody says so.
const SECONDS: u32 = 60;

/// The packages whose unit tests show parsers damaged bytes.
const PACKAGES: [&str; 1] = ["standfast-surfaces"];

/// What a line of the list of a test program ends with.
const A_TEST: &str = ": test";

/// Shows every parser, or those whose test has a name with one of these in it, inputs for a while. All are tried, whatever one of them finds.
pub(crate) fn fuzz(root: &Path, arguments: &[OsString]) -> Result<()> {
    let (seconds, names) = wanted(arguments)?;
    let folder = process::target_folder(root).join("fuzz");
    let mut failed = Vec::new();
    let mut shown = 0;
    for package in PACKAGES {
        let program = build(root, &folder, package)?;
        for test in tests_of(root, &program)? {
            if !names.is_empty() && !names.iter().any(|name| test.contains(name.as_str())) {
                continue;
            }
            shown += 1;
            if let Err(error) = show(root, &folder, &program, &test, seconds) {
                eprintln!("{test}: {error}");
                failed.push(test);
            }
        }
    }
    if shown == 0 {
        bail!("no parser's test has such a name; `cargo xtask fuzz` without a name tries all");
    }
    if failed.is_empty() {
        println!("{shown} parsers, {seconds} s each: nothing found");
        return Ok(());
    }
    bail!("{} found something; the inputs are in {}", failed.join(", "), folder.join("found").display())
}

fn wanted(arguments: &[OsString]) -> Result<(u32, Vec<String>)> {
    let (mut seconds, mut names) = (SECONDS, Vec::new());
    let mut arguments = arguments.iter().map(|argument| argument.to_string_lossy().into_owned());
    while let Some(argument) = arguments.next() {
        if argument == "--seconds" {
            let number = arguments.next().and_then(|number| number.parse().ok());
            seconds = number.filter(|number| *number > 0).context("--seconds takes a number above 0")?;
        } else if argument.starts_with('-') {
            bail!("there is no option {argument}; `cargo xtask fuzz` takes names of tests and --seconds N");
        } else {
            names.push(argument);
        }
    }
    Ok((seconds, names))
}

/// Builds the unit tests of a package with counters, beside the usual build; where the program is.
fn build(root: &Path, folder: &Path, package: &str) -> Result<PathBuf> {
    let version = String::from_utf8(process::output(root, "rustc", &["-vV"])?)?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("`rustc -vV` names no host")?;
    // For a named target, so that scripts and macros are built without the counters.
    let mut command = process::cargo_command(&["test", "--no-run", "--lib", "-p", package, "--target", host]);
    command.args(["--message-format", "json-render-diagnostics"]);
    command.arg("--target-dir").arg(folder).env("RUSTFLAGS", FLAGS);
    command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
    let done = command.current_dir(root).stderr(std::process::Stdio::inherit()).output()?;
    if !done.status.success() {
        bail!("the tests of {package} could not be built for fuzzing; see above");
    }
    let said = String::from_utf8_lossy(&done.stdout);
    // The last program that was made is the test itself.
    let found = said.lines().rev().find_map(|line| {
        let (_, path) = line.split_once("\"executable\":\"")?;
        Some(PathBuf::from(path.split('"').next()?))
    });
    found.with_context(|| format!("cargo named no test program of {package}"))
}

/// The tests that show a parser bytes; the others would only run as they do every day.
fn tests_of(root: &Path, program: &Path) -> Result<Vec<String>> {
    let listed = process::output(root, &program.to_string_lossy(), &["--list", "--format", "terse"])?;
    let listed = String::from_utf8(listed)?;
    Ok(listed
        .lines()
        .filter_map(|line| line.strip_suffix(A_TEST))
        .filter(|name| is_of_a_parser(name))
        .map(str::to_owned)
        .collect())
}

/// By the names that they have: `t31_any_…`, and those of other threats that say so of every input.
fn is_of_a_parser(name: &str) -> bool {
    let name = name.rsplit("::").next().unwrap_or(name);
    let said = ["t31_", "t9_no_token", "t1_no_line", "t8_no_button", "t37_any_"];
    said.iter().any(|start| name.starts_with(start))
}

fn show(root: &Path, folder: &Path, program: &Path, test: &str, seconds: u32) -> Result<()> {
    let file_name = test.replace("::", ".");
    let (corpus, found) = (folder.join("corpus").join(&file_name), folder.join("found"));
    for place in [&corpus, &found] {
        std::fs::create_dir_all(place).with_context(|| format!("{} cannot be made", place.display()))?;
    }
    let options = format!(
        "-max_total_time={seconds} -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 -artifact_prefix={}/{file_name}. {}",
        found.display(),
        corpus.display()
    );
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture"]);
    command.env("STANDFAST_FUZZ_CORPUS", &corpus).env("BOLERO_LIBFUZZER_ARGS", options);
    process::run(root, command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_seconds_are_read() {
        let wanted = |line: &str| wanted(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(wanted("").unwrap(), (SECONDS, Vec::new()));
        assert_eq!(wanted("cookie --seconds 5").unwrap(), (5, vec!["cookie".to_owned()]));
        for wrong in ["--seconds", "--seconds 0", "--minutes 5"] {
            assert!(wanted(wrong).is_err(), "{wrong}");
        }
        assert!(is_of_a_parser("jwt::strangers::t31_any_set_of_keys_is_read_or_refused"));
        assert!(!is_of_a_parser("html::render::t20_300_strings_are_text_on_a_page"));
    }
}

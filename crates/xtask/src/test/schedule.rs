//! The steps of `cargo xtask test`: in order up to the first failure, some of them beside another; and the table of what each
//! took.
//!
//! Knows nothing of what the steps are; `test.rs` has the list.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use crate::process;

pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) work: Work,
}

/// What a step does.
pub(super) enum Work {
    /// It begins when all before it has ended.
    Alone(fn(&Path) -> Result<()>),
    /// A program, and the folder that it runs in. It begins with the step before it; what it writes is shown when it has
    /// ended, so that lines of two programs do not mix.
    Beside(fn(&Path) -> (PathBuf, Command)),
}

/// How long a step took and whether it passed.
struct Timing {
    name: &'static str,
    took: Duration,
    passed: bool,
}

/// How a step ended.
type Ended = (Timing, Result<()>);

/// Runs every step and prints what each took, also after a failure; the first that failed is the error. What programs beside
/// others write is kept in `outputs`.
pub(super) fn run(root: &Path, steps: &[Step], outputs: &Path) -> Result<()> {
    let begun = now();
    let mut timings: Vec<Timing> = Vec::new();
    let mut result = Ok(());
    while result.is_ok() {
        let Some((first, after)) = steps.get(timings.len()..).and_then(<[Step]>::split_first) else { break };
        let count = after.iter().take_while(|step| matches!(step.work, Work::Beside(_))).count();
        let beside = &after[..count];
        eprintln!("\n== {} ({} of {}){}", first.name, timings.len() + 1, steps.len(), announced(beside));
        for (timing, ended) in run_together(root, first, beside, outputs) {
            timings.push(timing);
            result = result.and(ended);
        }
    }
    print!("\n{}", table(&timings, &steps[timings.len()..], begun.elapsed()));
    result
}

/// The part of a headline that names what begins at the same time.
fn announced(beside: &[Step]) -> String {
    let names: Vec<&str> = beside.iter().map(|step| step.name).collect();
    if names.is_empty() { String::new() } else { format!(", and beside it {}", names.join(", ")) }
}

/// Runs a step here and what is beside it in threads; all of them to their end, whatever one of them finds.
fn run_together(root: &Path, first: &Step, beside: &[Step], outputs: &Path) -> Vec<Ended> {
    std::thread::scope(|scope| {
        let running: Vec<_> = beside
            .iter()
            .map(|step| {
                let output = outputs.join(format!("{}.txt", step.name));
                (step, output.clone(), scope.spawn(move || timed(step, || in_file(root, step, &output))))
            })
            .collect();
        let mut ended = vec![timed(first, || in_terminal(root, first))];
        for (step, output, thread) in running {
            ended.push(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            eprintln!("\n== {} (began with {})", step.name, first.name);
            eprint!("{}", fs::read_to_string(&output).unwrap_or_default());
        }
        ended
    })
}

fn timed(step: &Step, work: impl FnOnce() -> Result<()>) -> Ended {
    let begun = now();
    let result = work().with_context(|| format!("step `{}` failed", step.name));
    (Timing { name: step.name, took: begun.elapsed(), passed: result.is_ok() }, result)
}

fn in_terminal(root: &Path, step: &Step) -> Result<()> {
    match step.work {
        Work::Alone(work) => work(root),
        Work::Beside(program) => {
            let (folder, command) = program(root);
            process::run(&folder, command)
        }
    }
}

fn in_file(root: &Path, step: &Step, output: &Path) -> Result<()> {
    let Work::Beside(program) = step.work else { return in_terminal(root, step) };
    let (folder, mut command) = program(root);
    let file = created(output).with_context(|| format!("{} cannot be written", output.display()))?;
    command.stdout(file.try_clone()?).stderr(file);
    process::run(&folder, command).map_err(|error| anyhow!("{error:#} (kept in {})", output.display()))
}

fn created(file: &Path) -> std::io::Result<File> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    File::create(file)
}

/// What every step took, what all of them took together, and a last line in the form that test runners close with.
fn table(timings: &[Timing], not_run: &[Step], all: Duration) -> String {
    let mut text = format!("{:12}{:>9}\n", "step", "seconds");
    for Timing { name, took, passed } in timings {
        let mark = if *passed { "" } else { "  failed" };
        text.push_str(&format!("{name:12}{:9.1}{mark}\n", took.as_secs_f64()));
    }
    for step in not_run {
        text.push_str(&format!("{:12}{:>9}  not run\n", step.name, "-"));
    }
    let passed = timings.iter().filter(|timing| timing.passed).count();
    text.push_str(&format!("{:12}{:9.1}\n\n", "all", all.as_secs_f64()));
    text.push_str(&format!("steps: {passed} passed, {} failed", timings.len() - passed));
    if !not_run.is_empty() {
        text.push_str(&format!(", {} skipped", not_run.len()));
    }
    text.push('\n');
    text
}

#[expect(clippy::disallowed_methods, reason = "the fence is for the product; this only times the steps")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What steps say to each other in the test of those that run together.
    fn meeting() -> PathBuf {
        std::env::temp_dir().join(format!("standfast-schedule-{}", std::process::id()))
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_failing_step_stops_the_rest_and_is_named() {
        let steps = [
            Step { name: "first", work: Work::Alone(|_| Ok(())) },
            Step { name: "second", work: Work::Alone(|_| anyhow::bail!("a reason")) },
            Step { name: "third", work: Work::Alone(|_| panic!("must not be reached")) },
        ];
        let error = run(Path::new("."), &steps, Path::new("unused")).unwrap_err();
        assert_eq!(format!("{error:#}"), "step `second` failed: a reason");
    }

    /// Two steps that wait for each other end only if they run at the same time; the one that fails is named with where its
    /// output is, and what comes after both is not run.
    #[test]
    fn a_step_beside_another_runs_with_it_and_its_failure_is_named() {
        let folder = meeting();
        fs::create_dir_all(&folder).unwrap();
        let first =
            |_: &Path| process::run(&meeting(), shell("touch one; until [ -e two ]; do sleep 0.01; done"));
        let second = |_: &Path| {
            (meeting(), shell("until [ -e one ]; do sleep 0.01; done; touch two; echo said; exit 3"))
        };
        let steps = [
            Step { name: "first", work: Work::Alone(first) },
            Step { name: "second", work: Work::Beside(second) },
            Step { name: "third", work: Work::Alone(|_| panic!("must not be reached")) },
        ];
        let outputs = folder.join("outputs");
        let error = format!("{:#}", run(&folder, &steps, &outputs).unwrap_err());
        let said = fs::read_to_string(outputs.join("second.txt")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert!(error.starts_with("step `second` failed: `sh -c "), "{error}");
        assert!(error.contains("exit status: 3") && error.contains("second.txt"), "{error}");
        assert_eq!(said, "said\n");
    }

    #[test]
    fn the_table_has_every_step_and_the_time_of_all() {
        let timings = [
            Timing { name: "needs", took: Duration::from_millis(100), passed: true },
            Timing { name: "clippy", took: Duration::from_millis(2300), passed: false },
        ];
        let not_run = [Step { name: "tests", work: Work::Alone(|_| Ok(())) }];
        let expected = "\
step          seconds
needs             0.1
clippy            2.3  failed
tests               -  not run
all               2.4

steps: 1 passed, 1 failed, 1 skipped
";
        assert_eq!(table(&timings, &not_run, Duration::from_millis(2400)), expected);
        let passed = table(&timings[..1], &[], Duration::from_millis(100));
        assert!(passed.ends_with("\n\nsteps: 1 passed, 0 failed\n"), "{passed}");
    }
}

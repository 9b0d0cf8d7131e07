//! The long fault runs of the SQLite store: each row of the fault matrix with its full count.
//!
//! Prints one line for each row and ends with 1 if anything happened that should not be possible. `--quick` runs 5 %.

use std::process::ExitCode;
use std::time::Instant;

use holdpoint_store::conformance::faults::child::{self, Program};
use holdpoint_store::conformance::faults::{
    Report, corrupt_rows, full_disk, io_errors, kills, torn_tails, unusable_files,
};

#[expect(
    clippy::disallowed_methods,
    reason = "a report of how long each row took; nothing else depends on it"
)]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("--child", rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return child::run(rest);
    }
    let is_quick = arguments.iter().any(|argument| argument == "--quick");
    let of = |count: usize| if is_quick { count.div_ceil(20) } else { count };
    let path = match std::env::current_exe() {
        Ok(path) => path,
        Err(error) => {
            eprintln!("store-faults cannot find itself: {error}");
            return ExitCode::FAILURE;
        }
    };
    let program = Program { path, arguments: vec!["--child".into()] };
    let rows: [&dyn Fn() -> Report; 6] = [
        &|| kills::kills(&program, of(200)),
        &|| full_disk::full_disk(of(200)),
        &|| io_errors::io_errors(&program, of(200)),
        &|| unusable_files::unusable_files(of(50)),
        &|| torn_tails::torn_tails(of(1000)),
        &|| corrupt_rows::corrupt_rows(of(120)),
    ];
    let mut violations = 0;
    for row in rows {
        let begin = Instant::now();
        let Report { id, what, count, violations: found } = row();
        let seconds = begin.elapsed().as_secs_f64();
        println!("{id:4} {what:42} {count:6} times {seconds:8.1} s {:4} violations", found.len());
        found.iter().take(10).for_each(|violation| println!("     {violation}"));
        violations += found.len();
    }
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

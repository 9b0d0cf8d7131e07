//! The long fault runs of the SQLite store and of the file store: each row of the fault matrix with its full count.
//!
//! Prints one line for each row and ends with 1 if anything happened that should not be possible. `--quick` runs 5 %,
//! `--only F2,F17` some rows, `--json FILE` adds a line of JSON for each to a file.

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use standfast_store::conformance::faults::child::{self, Program};
use standfast_store::conformance::faults::{
    Report, corrupt_rows, files, full_disk, io_errors, kills, torn_tails, unusable_files,
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
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    let (only, json) = (value("--only"), value("--json"));
    let fresh = files::fresh_folder;
    let rows: [(&str, &dyn Fn() -> Report); 12] = [
        ("F2", &|| kills::kills(&program, of(200))),
        ("F14", &|| full_disk::full_disk(of(200))),
        ("F15", &|| io_errors::io_errors(&program, of(200))),
        ("F16", &|| unusable_files::unusable_files(of(50))),
        ("F17", &|| torn_tails::torn_tails(of(1000))),
        ("F18", &|| corrupt_rows::corrupt_rows(of(120))),
        ("F2-files", &|| kills::kills_of(&program, of(200), fresh)),
        ("F14-files", &|| files::full_disk(of(200))),
        ("F15-files", &|| io_errors::io_errors_of(&program, of(200), fresh)),
        ("F16-files", &|| files::unusable_folders(of(50))),
        ("F17-files", &|| files::torn_writes(of(1000))),
        ("F18-files", &|| files::damaged_files(of(400))),
    ];
    let mut violations = 0;
    for (name, row) in rows {
        if only.is_some_and(|only| only.split(',').all(|one| one != name)) {
            continue;
        }
        let begin = Instant::now();
        let Report { what, count, violations: found, .. } = row();
        let id = name;
        let seconds = begin.elapsed().as_secs_f64();
        println!("{id:9} {what:42} {count:7} times {seconds:8.1} s {:4} violations", found.len());
        found.iter().take(10).for_each(|violation| println!("     {violation}"));
        violations += found.len();
        let line = serde_json::json!({
            "row": id, "what": what, "count": count, "seconds": seconds, "violations": found, "note": "",
        });
        if let Some(why) = json.and_then(|file| add_line(file, &line.to_string()).err()) {
            eprintln!("store-faults cannot write its JSON: {why}");
            return ExitCode::FAILURE;
        }
    }
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn add_line(file: &str, line: &str) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file)?;
    writeln!(file, "{line}")
}

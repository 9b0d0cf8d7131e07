//! F15: the k-th sync or write fails, by `strace` under the process.
//!
//! After a failed sync the store stops writing and says why, and the process touches the file no more. Every
//! acknowledged append is there after a clean start.

use std::path::Path;
use std::process::Command;

use super::child::{ProcessReport, Program, REFUSED, STOPPED, UNAVAILABLE, Work, check_after};
use super::{FreshPlace, Report, fresh_file};

/// What fails: which calls, and how.
const FAILURES: [(&str, &str); 4] =
    [("fdatasync,fsync", "EIO"), ("pwrite64", "EIO"), ("fdatasync,fsync", "ENOSPC"), ("pwrite64", "ENOSPC")];

/// Fails so many syncs and writes, each the k-th of its process.
#[must_use]
pub fn io_errors(program: &Program, count: usize) -> Report {
    io_errors_of(program, count, fresh_file)
}

/// The same for stores in other places.
#[must_use]
pub fn io_errors_of(program: &Program, count: usize, fresh: FreshPlace) -> Report {
    let id = "F15";
    let what = "I/O error at the k-th sync or write";
    if Command::new("strace").arg("-V").output().is_err() {
        let violations =
            vec!["strace is missing: install it (apt install strace) to inject I/O errors".into()];
        return Report { id, what, count, violations };
    }
    let mut violations = Vec::new();
    for n in 0..count {
        let (calls, error) = FAILURES[n % FAILURES.len()];
        // Few syncs and many writes for each append: the later ones are spread out.
        let k = 1 + n / FAILURES.len() * if calls == "pwrite64" { 7 } else { 1 };
        if let Err(why) = fail(program, (calls, error), k, fresh) {
            violations.push(format!("{error} at {calls} number {k}: {why}"));
        }
    }
    Report { id, what, count, violations }
}

fn fail(program: &Program, (calls, error): (&str, &str), k: usize, fresh: FreshPlace) -> Result<(), String> {
    let (directory, file) = fresh();
    let trace = directory.path().join("trace");
    let under = [
        "strace".to_owned(),
        "-f".into(),
        "-qq".into(),
        "-y".into(),
        "-o".into(),
        trace.to_string_lossy().into_owned(),
        "-e".into(),
        "trace=fdatasync,fsync,pwrite64,ftruncate".into(),
        "-e".into(),
        format!("inject={calls}:error={error}:when={k}"),
    ];
    let work = Work { seed: 15, threads: 1, cycles: 8 };
    let said = program.start(&under, &file, work).wait();
    let trace = std::fs::read_to_string(&trace).map_err(|error| format!("strace wrote no trace: {error}"))?;
    all_there(&file, &said)?;
    if calls == "pwrite64" {
        return ended_with(&said, &[0, REFUSED, STOPPED, UNAVAILABLE]);
    }
    // SQLite overlooks a failed sync of the directory; that of the file and its WAL is ours to notice.
    let failed = trace.lines().position(|line| line.contains("(INJECTED)") && is_of_database(line));
    // The file store refuses to begin in a folder whose name may be lost.
    let overlooked = if file.extension().is_some() { &[0][..] } else { &[0, REFUSED] };
    let Some(failed) = failed else { return ended_with(&said, overlooked) };
    let touches = trace.lines().skip(failed + 1).filter(|line| is_write(line)).count();
    match touches {
        // Nothing was there yet: an open that is refused takes back what it began.
        _ if said.code == Some(i32::from(REFUSED)) => ended_with(&said, &[REFUSED]),
        // At the very end, when everything is acknowledged, a sync may fail without harm.
        0 => ended_with(&said, &[0, STOPPED]),
        // After a failed sync nobody knows what the kernel still has of the file: nothing more may be written to it.
        more => Err(format!("it wrote {more} times after the failed sync, and ended with {:?}", said.code)),
    }
}

fn is_of_database(line: &str) -> bool {
    let is_sqlite = line.contains("standfast.db") && !line.contains("standfast.db-shm");
    is_sqlite || line.contains("standfast-files")
}

fn is_write(line: &str) -> bool {
    let writes = line.contains("pwrite64(") || line.contains("ftruncate(");
    writes && is_of_database(line)
}

fn all_there(file: &Path, said: &ProcessReport) -> Result<(), String> {
    check_after(file, &said.acked).first().map_or(Ok(()), |why| Err(why.clone()))
}

fn ended_with(said: &ProcessReport, codes: &[u8]) -> Result<(), String> {
    let is_expected = said.code.is_some_and(|code| codes.iter().any(|one| i32::from(*one) == code));
    let has_reason = said.code == Some(0) || said.last_words.is_some();
    if is_expected && has_reason {
        Ok(())
    } else {
        Err(format!("it ended with {:?} and the words {:?}", said.code, said.last_words))
    }
}

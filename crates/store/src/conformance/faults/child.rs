//! The process that is killed and starved of its disk: appends full cycles and says what was acknowledged.
//!
//! It prints `acked <run> <seq>` after each acknowledged append, and `stopped <why>` when the store stops; its exit
//! code says how it ended. The other half here starts it and reads what it says.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use standfast_core::id::{RunId, Seq};

use super::super::support::{NewRun, Scribe, block_on, checked};
use super::{StoppableStore, check_all, cycle, open_any};
use crate::StoreError;

/// The file could not be opened.
pub const REFUSED: u8 = 3;
/// The store stopped writing for good.
pub const STOPPED: u8 = 4;
/// The store could not write for now.
pub const UNAVAILABLE: u8 = 5;

/// What the process does: `<file> <seed> <threads> <cycles>`.
#[must_use]
pub fn run(arguments: &[String]) -> ExitCode {
    let [file, seed, threads, cycles] = arguments else {
        eprintln!("usage: <file> <seed> <threads> <cycles>");
        return ExitCode::FAILURE;
    };
    let number = |text: &str| text.parse::<u64>().unwrap();
    let store = match open_any(Path::new(file)) {
        Ok(store) => store,
        Err(error) => {
            say(&format!("refused {error}"));
            return ExitCode::from(REFUSED);
        }
    };
    let ends: Vec<Option<u8>> = std::thread::scope(|scope| {
        let work = |thread| {
            let (store, seed) = (store.clone(), number(seed) * 1000 + thread);
            let cycles = number(cycles);
            scope.spawn(move || (0..cycles).find_map(|n| one_cycle(&*store, seed * 100_000 + n)))
        };
        let threads: Vec<_> = (0..number(threads)).map(work).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    drop(store);
    ends.into_iter().flatten().next().map_or(ExitCode::SUCCESS, ExitCode::from)
}

/// Appends one cycle; how the process ends, if it does.
fn one_cycle(store: &dyn StoppableStore, seed: u64) -> Option<u8> {
    for batch in cycle(&mut Scribe::new(seed), &NewRun::of("helper")) {
        let (run, seq) = (batch.run(), batch.row.run.state.seq);
        match (block_on(store.append(vec![batch])), store.stopped()) {
            (Ok(()), _) => say(&format!("acked {run} {seq}")),
            (Err(_), Some(why)) => {
                say(&format!("stopped {why}"));
                return Some(STOPPED);
            }
            (Err(StoreError::Unavailable { why } | StoreError::Unknown { why }), None) => {
                say(&format!("unavailable {why}"));
                return Some(UNAVAILABLE);
            }
            (Err(other), None) => panic!("{other}"),
        }
    }
    None
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever listened may be gone.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// How to start the process.
#[derive(Debug, Clone)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// What comes before the file.
    pub arguments: Vec<String>,
}

/// What the process is to do.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// Makes its runs different from those of every other.
    pub seed: u64,
    /// How many append at once.
    pub threads: u64,
    /// How many cycles each.
    pub cycles: u64,
}

/// A started process and what it says.
pub struct ChildProcess {
    child: Child,
    lines: Receiver<String>,
}

/// What a process said until it ended.
#[derive(Debug)]
pub struct ProcessReport {
    /// Acknowledged appends.
    pub acked: Vec<(RunId, Seq)>,
    /// Why it ended by itself.
    pub last_words: Option<String>,
    /// Its exit code; none when it was killed.
    pub code: Option<i32>,
}

impl Program {
    /// Starts it on a file, perhaps under another program.
    #[must_use]
    pub fn start(&self, under: &[String], file: &Path, work: Work) -> ChildProcess {
        let program = under.first().map_or(self.path.as_os_str(), |first| first.as_ref());
        let mut command = Command::new(program);
        if let Some(rest) = under.get(1..) {
            command.args(rest).arg(&self.path);
        }
        command.args(&self.arguments).arg(file);
        command.args([work.seed, work.threads, work.cycles].map(|number| number.to_string()));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (sender, lines) = channel();
        let out = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            // A line that was cut by a kill is not an acknowledgement: it ends without a line feed.
            let mut reader = BufReader::new(out);
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|read| read > 0) && line.ends_with('\n') {
                if sender.send(line.trim_end().to_owned()).is_err() {
                    break;
                }
                line.clear();
            }
        });
        ChildProcess { child, lines }
    }
}

impl ChildProcess {
    /// Kills it without warning after it has worked for so long.
    pub fn kill_after(mut self, first_word_within: Duration, then: Duration) -> ProcessReport {
        let first = self.lines.recv_timeout(first_word_within).ok();
        std::thread::sleep(then);
        self.child.kill().unwrap();
        self.said(first)
    }

    /// Waits until it ends by itself.
    pub fn wait(self) -> ProcessReport {
        self.said(None)
    }

    fn said(mut self, first: Option<String>) -> ProcessReport {
        let mut said = ProcessReport { acked: Vec::new(), last_words: None, code: None };
        for line in first.into_iter().chain(self.lines.iter()) {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["acked", run, seq] => {
                    said.acked.push((RunId::from_str(run).unwrap(), Seq(seq.parse().unwrap())))
                }
                _ => said.last_words = Some(line),
            }
        }
        said.code = self.child.wait().unwrap().code();
        said
    }
}

/// What is wrong with a file after its process ended: an acknowledged append that is gone, or a run that is not whole.
pub fn check_after(file: &Path, acked: &[(RunId, Seq)]) -> Vec<String> {
    let store = match open_any(file) {
        Ok(store) => store,
        Err(error) => return vec![format!("it cannot be opened: {error}")],
    };
    let lost = |(run, seq): &(RunId, Seq)| match checked(&*store, *run) {
        Ok(row) if row.run.state.seq >= *seq => None,
        Ok(row) => Some(format!("run {run} is at {}, but {seq} was acknowledged", row.run.state.seq)),
        Err(why) => Some(format!("run {run} was acknowledged up to {seq}: {why}")),
    };
    let mut last: Vec<(RunId, Seq)> = acked.to_vec();
    last.sort();
    last.dedup_by(|later, earlier| {
        let is_same = later.0 == earlier.0;
        if is_same {
            earlier.1 = earlier.1.max(later.1);
        }
        is_same
    });
    let mut wrong: Vec<String> = last.iter().filter_map(lost).collect();
    wrong.extend(check_all(&*store));
    wrong
}

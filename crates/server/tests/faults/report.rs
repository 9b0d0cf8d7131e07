//! The result of a row of the fault matrix: a line for people, a line of JSON for machines.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use standfast_engine::clock::Stopwatch;

/// The result of a row of the fault matrix.
#[derive(Debug)]
pub(crate) struct Row {
    /// The row, such as `F2`.
    pub(crate) id: &'static str,
    /// What was broken.
    pub(crate) what: &'static str,
    /// How often.
    pub(crate) count: usize,
    /// What should not have been possible.
    pub(crate) violations: Vec<String>,
    /// What was seen beside it.
    pub(crate) note: String,
}

impl Row {
    pub(crate) fn new(id: &'static str, what: &'static str, count: usize, violations: Vec<String>) -> Row {
        Row { id, what, count, violations, note: String::new() }
    }

    pub(crate) fn with(self, note: impl Into<String>) -> Row {
        Row { note: note.into(), ..self }
    }

    /// What a test fails with.
    pub(crate) fn verdict(self) -> Result<(), libtest_mimic::Failed> {
        match (self.violations.is_empty(), self.count) {
            (true, 1..) => Ok(()),
            (true, 0) => Err(format!("{} ({}) did nothing", self.id, self.what).into()),
            (false, _) => Err(format!("{} ({}): {:#?}", self.id, self.what, self.violations).into()),
        }
    }
}

/// Runs a row, prints its line, and says whether nothing was wrong.
pub(crate) fn reported(row: impl FnOnce() -> Row, json_lines: Option<&Path>) -> bool {
    let begin = Stopwatch::start();
    let Row { id, what, count, violations, note } = row();
    let seconds = begin.micros() as f64 / 1e6;
    println!("{id:6} {what:42} {count:7} times {seconds:8.1} s {:4} violations", violations.len());
    if !note.is_empty() {
        println!("     {note}");
    }
    violations.iter().take(10).for_each(|violation| println!("     {violation}"));
    if let Some(path) = json_lines {
        let line = json!({
            "row": id, "what": what, "count": count, "seconds": seconds, "violations": violations, "note": note,
        });
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        writeln!(file.unwrap(), "{line}").unwrap();
    }
    violations.is_empty()
}

//! The oracle itself: what it says of a story without any fault, and of the same story with its evidence tampered with.
//!
//! A checker that finds nothing is worth something only if it would find it.

use std::io::Write;

use crate::agents::{ARGUMENTS, EFFECTS};
use crate::check::check;
use crate::child::Options;
use crate::report::Row;
use crate::server::Server;
use crate::story::{Acked, ClearUp, Story, Wish};

/// Tampers with the evidence in every way that the checker should notice.
pub(crate) fn notices() -> Row {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path(), &Options::default());
    let mut story = Story::new("oracle", Wish::Approve, ClearUp::ByLooking);
    crate::runtime().block_on(story.live(&server.http(), data.path())).unwrap();
    server.kill();
    let run = story.run.clone().unwrap();
    let mut missed = check(data.path(), "standfast.db", &story.acked);
    let mut expect = |invariant: &str, line: Option<String>, acked: &[Acked]| {
        let file = data.path().join(EFFECTS);
        let before = std::fs::read_to_string(&file).unwrap();
        let mut writing = std::fs::OpenOptions::new().append(true).open(&file).unwrap();
        line.into_iter().for_each(|line| writeln!(writing, "{line}").unwrap());
        let found = check(data.path(), "standfast.db", acked);
        if !found.iter().any(|found| found.starts_with(invariant)) {
            missed.push(format!("{invariant} is not noticed: {found:?}"));
        }
        std::fs::write(&file, before).unwrap();
    };
    expect("I3", Some(format!("{run}/1/1 {ARGUMENTS}")), &[]);
    expect("I3", Some(format!("{run}/1/2 {ARGUMENTS}")), &[]);
    expect("I4", Some(format!("{run}/1/1 {{}}")), &[]);
    expect("I4", Some(format!("{run}/7/1 {ARGUMENTS}")), &[]);
    expect("I1", None, &[Acked::Canceled { run: run.clone() }]);
    let mut other = story.acked.clone();
    for acked in &mut other {
        if let Acked::Decided { word, .. } = acked {
            *word = "deny";
        }
    }
    expect("I2", None, &other);
    Row::new("F1", "the oracle notices what is wrong", 6, missed)
}

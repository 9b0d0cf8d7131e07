//! The real binary, once it says where it listens.
//!
//! Shared by the test programs that start it; what they ask it is their own.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A running server; dropping it is `kill -9`.
pub(crate) struct Started {
    pub(crate) child: Child,
    pub(crate) base: String,
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts it, and waits until it says where it listens.
pub(crate) fn started(command: &mut Command) -> Started {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let base = line.trim().strip_prefix("Standfast listens on ");
    let base = base.unwrap_or_else(|| panic!("the server did not start: {line:?}")).to_owned();
    Started { child, base }
}

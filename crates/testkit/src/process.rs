//! The product as a process: started, listening, killed.
//!
//! The one place that reads the line in which a server says where it listens. What it is asked: `cli.rs`, `http.rs`.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

/// What a server says once it can be asked, before its address.
pub const GREETING: &str = "Standfast listens on ";

/// A running server; dropping it is `kill -9`.
#[derive(Debug)]
pub struct Process {
    /// The process itself, for signals.
    pub child: Child,
    /// Where it listens: `http://127.0.0.1:PORT`.
    pub base: String,
}

impl Process {
    /// Its address without the scheme: `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> &str {
        self.base.strip_prefix("http://").unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts it, and waits until it says where it listens.
///
/// # Panics
///
/// When it ends, or says anything else, before that.
pub fn start(command: &mut Command) -> Process {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let base = listens_on(&line).unwrap_or_else(|| panic!("the server did not start: {line:?}")).to_owned();
    Process { child, base }
}

/// The address in the line that a server prints when it listens.
#[must_use]
pub fn listens_on(line: &str) -> Option<&str> {
    line.trim().strip_prefix(GREETING)
}

/// A port that nobody has.
#[must_use]
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

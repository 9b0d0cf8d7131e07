//! The product as a process: started, listening, killed.
//!
//! The one place that reads the line in which a server says where it listens. What it is asked: `cli.rs`, `http.rs`.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// What a server says once it can be asked, before its address.
pub const GREETING: &str = "Standfast listens on ";

/// The ports that tests choose from: Linux begins its own choice at 32,768.
const FIRST_PORT: u16 = 12_000;
const PORTS: u32 = 20_000;

/// How many ports a test may need before it comes to those of the next one.
const PORTS_EACH: u32 = 8;

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

/// A port that nobody has and that the system hands to nobody by itself: it lies below those of its own choice, and a test
/// that kills a server and starts it again at its address meets no connection of another test there.
///
/// # Panics
///
/// When no port is free.
#[must_use]
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Tests that run at the same time are processes of their own, and begin at different places.
    let own = std::process::id() * PORTS_EACH;
    let places = (0..PORTS).map(|_| own + NEXT.fetch_add(1, Ordering::Relaxed));
    let mut ports = places.map(|place| FIRST_PORT + u16::try_from(place % PORTS).unwrap());
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

//! A Redis of its own for a test: started on a free port, asked, flushed, killed.
//!
//! It keeps nothing: after a kill it begins empty. `redis-server` comes from the system (`cargo xtask test` installs it).

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::free_port;

/// A running Redis; dropping it is `kill -9`.
#[derive(Debug)]
pub struct Redis {
    port: u16,
    child: Option<Child>,
}

impl Redis {
    /// Starts one.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    #[must_use]
    pub fn start() -> Redis {
        let mut redis = Redis { port: free_port(), child: None };
        redis.restart();
        redis
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// Kills it without warning.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again on the same port, empty.
    ///
    /// # Panics
    ///
    /// When it does not come up within ten seconds.
    pub fn restart(&mut self) {
        let port = self.port.to_string();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child =
            child.unwrap_or_else(|error| panic!("apt install redis-server; it cannot be started: {error}"));
        self.child = Some(child);
        for _ in 0..100 {
            if self.ask(&["PING"]) == ["PONG"] {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("the Redis on port {port} did not come up");
    }

    /// The lines of an answer.
    ///
    /// # Panics
    ///
    /// When `redis-cli` cannot be started.
    #[must_use]
    pub fn ask(&self, words: &[&str]) -> Vec<String> {
        let mut command = Command::new("redis-cli");
        let output = command.args(["-p", &self.port.to_string()]).args(words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

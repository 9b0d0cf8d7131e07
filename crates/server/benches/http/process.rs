//! The servers that are measured, each a process of its own: the bench starts itself.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use axum::Router;
use standfast_engine::settings::Settings;
use standfast_surfaces::http;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::measure::now;
use crate::{floor, ours, statements};

/// The argument that makes the bench a server.
pub(crate) const SERVE: &str = "--serve";

/// A server that is measured; it ends with its handle.
pub(crate) struct Served {
    child: Child,
    pub(crate) address: String,
    /// From starting the process to listening.
    pub(crate) ready: Duration,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    /// Starts a server of this kind on a place.
    pub(crate) fn start(kind: &str, place: &Path, more: &str) -> Served {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([SERVE, kind]).arg(place).arg(more);
        Served::by(&mut command).unwrap()
    }

    /// Starts a server that says where it listens, and ends when its standard input does.
    pub(crate) fn by(command: &mut Command) -> std::io::Result<Served> {
        let begin = now();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Ok(Served { child, address: line.trim().to_owned(), ready: begin.elapsed() })
    }

    /// Resident memory in MB.
    pub(crate) fn resident_mb(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
        let kilobytes = line.split_whitespace().nth(1).and_then(|text| text.parse::<f64>().ok());
        kilobytes.unwrap_or(f64::NAN) / 1024.0
    }
}

/// Is such a server until standard input closes.
pub(crate) fn serve(arguments: &[String]) {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    let [kind, place, more] = arguments else { panic!("a kind, a place and a number") };
    let place = Path::new(place);
    let runtime = runtime();
    runtime.block_on(async {
        let router = match kind.as_str() {
            "ours" => ours::router(place, more.parse().unwrap()).await,
            "floor" => floor::router(place),
            "statements" => statements::router(place, more.parse().unwrap()).await,
            other => panic!("there is no server {other}"),
        };
        listen(router).await;
    });
}

async fn listen(router: Router) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    // Never told to stop: the process is killed.
    let (_stop, stopping) = watch::channel(false);
    http::serve(listener, router, &Settings::usual().fixed.connections, stopping).await;
}

/// The runtime that a server of this machine has.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap()
}

//! The servers that are measured, each a process of its own: the bench starts itself.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use axum::Router;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use standfast_engine::settings::Connections;
use standfast_surfaces::http;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::counting::{ASK, Counts};
use crate::measure::now;
use crate::usage::{self, Usage};
use crate::{floor, ours, statements};

/// Names the program that counts, of which `cargo xtask bench` builds one.
const COUNTING_BENCH: &str = "STANDFAST_COUNTING_BENCH";

/// The argument that makes the bench a server.
pub(crate) const SERVE: &str = "--serve";

/// A server that is measured; it ends with its handle.
pub(crate) struct Served {
    child: Child,
    says: BufReader<ChildStdout>,
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
    pub(crate) fn start(build: Build, kind: &str, place: &Path, more: &str) -> Served {
        let mut command = Command::new(build.program().unwrap());
        command.args([SERVE, kind]).arg(place).arg(more);
        Served::by(&mut command).unwrap()
    }

    /// Starts a server that says where it listens, and ends when its standard input does.
    pub(crate) fn by(command: &mut Command) -> std::io::Result<Served> {
        let begin = now();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let mut says = BufReader::new(child.stdout.take().unwrap());
        says.read_line(&mut line).unwrap();
        Ok(Served { child, says, address: line.trim().to_owned(), ready: begin.elapsed() })
    }

    /// Resident memory in MB.
    pub(crate) fn resident_mb(&self) -> f64 {
        usage::resident_mb(self.child.id())
    }

    /// What it has used since it began.
    pub(crate) fn usage(&self) -> Usage {
        Usage::of(self.child.id())
    }

    /// What it has counted since it began.
    pub(crate) fn counts(&mut self) -> std::io::Result<Counts> {
        let asked = self.child.stdin.as_mut().unwrap();
        writeln!(asked, "{ASK}")?;
        asked.flush()?;
        let mut line = String::new();
        self.says.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

/// Which build of a server is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    /// The program itself.
    This,
    /// The one that counts.
    Counting,
}

impl Build {
    /// None where no such program was named.
    pub(crate) fn program(self) -> Option<PathBuf> {
        match self {
            Build::This => std::env::current_exe().ok(),
            Build::Counting => std::env::var_os(COUNTING_BENCH).map(PathBuf::from),
        }
    }
}

/// Is such a server until standard input closes.
pub(crate) fn serve(arguments: &[String]) {
    let [kind, place, more] = arguments else { panic!("a kind, a place and a number") };
    std::thread::spawn(|| {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if line == ASK {
                println!("{}", serde_json::to_string(&Counts::here()).unwrap());
            }
        }
        std::process::exit(0);
    });
    let place = Path::new(place);
    let runtime = runtime();
    runtime.block_on(async {
        let router = match kind.as_str() {
            "ours" => ours::router(place, more.parse().unwrap()).await,
            "blocking" => ours::blocking_router(place).await,
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
    http::serve(listener, router, &Connections::default(), stopping).await;
}

/// The runtime that a server of this machine has.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap()
}

/// Lets this process, and those it starts, have so many files open.
pub(crate) fn make_room(files: u64) -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= files) {
        return Ok(());
    }
    let wanted = Rlimit { current: Some(files), maximum: limit.maximum };
    match limit.maximum.filter(|maximum| *maximum < files) {
        Some(maximum) => Err(format!(
            "{files} open files are needed and {maximum} are allowed: as root, `ulimit -Hn {files}` in the shell that \
             runs this, or ask for fewer with --subscribers or --readers"
        )),
        None => setrlimit(Resource::Nofile, wanted)
            .map_err(|error| format!("the limit of open files cannot be raised to {files}: {error}")),
    }
}

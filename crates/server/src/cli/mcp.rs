//! `standfast mcp`: for MCP clients. `standfast mcp proxy` is an MCP server of somebody else whose tool calls are judged and approved before they reach it.
//!
//! Lines go through as they are, both ways; only `tools/call` stops at a gate. What lines mean and how a call that waits is
//! shown is the surface's (`standfast_surfaces::mcp`), `keeper.rs` asks a server about calls, `waiting.rs` remembers which calls wait, `link.rs` is the two ends and the calls between them,
//! `tasks.rs` calls that are asked for later.
//! `standfast mcp serve` is `bridge.rs`: the server's own MCP tools for clients that start a program.

mod bridge;
mod keeper;
mod link;
mod tasks;
mod waiting;

use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::client::{Failure, Form, Server, ServerArgs};
use super::plain::plain;
use keeper::Keeper;
use link::Link;
use waiting::WaitingCalls;

/// How long a server whose client has left may take to end by itself.
const GOODBYE: Duration = Duration::from_secs(5);

/// How long calls that were under way may take to say what came of them.
const LAST_WORDS: Duration = Duration::from_secs(20);

/// Where the proxy's key comes from.
const KEY: &str = "STANDFAST_KEY";

/// What can be done for MCP clients.
#[derive(Debug, Subcommand)]
pub(super) enum Mcp {
    /// Run an MCP server behind the policy: put this in the place of its command in the settings of a client. Everything goes
    /// through unchanged but tool calls, which are judged, held and approved first.
    Proxy(Proxy),
    /// Offer the server's own tools to an MCP client that starts a program: request_approval, ask_human, check, standfast_result.
    /// The same as the server's address /mcp, over standard input and output.
    Serve(Serve),
}

#[derive(Debug, Args)]
pub(super) struct Serve {
    #[command(flatten)]
    asking: ServerArgs,
}

#[derive(Debug, Args)]
pub(super) struct Proxy {
    /// What the server is called in rules, where its tools are `mcp__NAME__TOOL`. Default: the name of the command.
    #[arg(long)]
    name: Option<String>,
    /// How many seconds a call may wait for a decision before the model gets a receipt and comes back later. Default: 45, with a client
    /// that follows progress 240, with Claude Code 1500. The request for approval stays open all the same.
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u64>,
    #[command(flatten)]
    asking: ServerArgs,
    /// The command that starts the MCP server, and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Which end closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PipeEnd {
    Client,
    Upstream,
}

impl Mcp {
    pub(super) fn run(&self) -> ExitCode {
        let served = match self {
            Mcp::Proxy(proxy) => proxy.serve(),
            Mcp::Serve(serve) => Server::at(&serve.asking, Form::Json).map_err(in_words).map(bridge::serve),
        };
        match served {
            Ok(code) => code,
            Err(why) => {
                eprintln!("standfast: {}", plain(&why.replace('\n', "; ")));
                ExitCode::from(2)
            }
        }
    }
}

impl Proxy {
    fn serve(&self) -> Result<ExitCode, String> {
        let server = Server::at(&self.asking, Form::Json).map_err(in_words)?;
        let [program, arguments @ ..] = &self.command[..] else {
            return Err("no command is named".to_owned());
        };
        let usual = || Path::new(program).file_name().map_or("mcp".into(), |name| name.to_string_lossy());
        let name = self.name.clone().unwrap_or_else(|| usual().into_owned());
        let keeper = Keeper::new(server, name, self.wait, WaitingCalls::of_this_user());
        let mut child = Command::new(program)
            .args(arguments)
            // It is the proxy's, not the server's.
            .env_remove(KEY)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| not_started(program, &error))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else { return Err("it has no pipes".to_owned()) };
        let (alive, at_work) = mpsc::channel::<()>();
        let link = Arc::new(Link::new(keeper, stdin, alive));
        let (closed, first) = mpsc::channel();
        let reader = (link.clone(), closed.clone());
        std::thread::spawn(move || {
            read_lines(BufReader::new(stdout), |line| reader.0.hear_upstream(line));
            // Nobody listens once the other end was first.
            let _ = reader.1.send(PipeEnd::Upstream);
        });
        let reader = link.clone();
        std::thread::spawn(move || {
            read_lines(std::io::stdin().lock(), |line| Link::hear_client(&reader, line));
            let _ = closed.send(PipeEnd::Client);
        });
        let was_first = first.recv().unwrap_or(PipeEnd::Client);
        link.close();
        if was_first == PipeEnd::Client && first.recv_timeout(GOODBYE).is_err() {
            drop(child.kill());
        }
        link.abandon();
        drop(link);
        // Calls that were started say what came of them; nobody sends anything else here.
        let _ = at_work.recv_timeout(LAST_WORDS);
        Ok(ended(&mut child))
    }
}

fn not_started(program: &str, error: &std::io::Error) -> String {
    let next = match error.kind() {
        ErrorKind::NotFound => {
            "install it, or name it by its whole path behind `--`: clients often start programs with another PATH"
        }
        ErrorKind::PermissionDenied => "make it executable, or name another program behind `--`",
        _ => "run the command behind `--` by itself to see why",
    };
    format!("cannot start the MCP server `{program}`: {error}; {next}")
}

fn ended(child: &mut Child) -> ExitCode {
    let code = child.wait().ok().and_then(|status| status.code());
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Every line until there is no more. What is not text is not a message either, and ends it.
fn read_lines(mut from: impl BufRead, mut with: impl FnMut(&str)) {
    let mut line = String::new();
    while from.read_line(&mut line).is_ok_and(|read| read > 0) {
        with(line.trim_end_matches(['\n', '\r']));
        line.clear();
    }
}

fn in_words(failure: Failure) -> String {
    match failure {
        Failure::Refused { said, .. } => said,
        Failure::CouldNotAsk(why) => why,
    }
}

//! The command line: what can be asked of the program, and who answers.
//!
//! Every command that answers has `--json` for machines. Exit codes: 0 all is well, 1 the answer is no, 2 the question
//! could not be answered.

mod audit;
mod audit_export;
mod client;
mod colour;
mod data;
mod edit;
mod holds;
mod inbox;
mod keys;
mod llm;
mod moving;
mod nodes;
mod plain;
mod reload;
mod runs;
mod schema;
mod send;
mod serve;
mod subscriptions;
mod test;
mod timeline;
mod validate;
mod watch;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use standfast_tools::exec_child;

/// A server for AI agents that must stop and wait: for a person's approval, an answer, a long job, a login.
///
/// Without a command it serves.
#[derive(Debug, Parser)]
#[command(name = "standfast", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: serve::Serve,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve what a configuration file says, or without one the embedded demo: a scripted agent that asks before it
    /// deletes something, without key and network.
    Serve(serve::Serve),
    /// Send a message to an agent; it begins a run.
    Send(send::Send),
    /// List runs, newest first.
    Runs(runs::Runs),
    /// Show a run: how it stands, and everything that happened.
    Show(runs::Show),
    /// List what waits, look at it, decide it.
    Holds(holds::Holds),
    /// Go through the tasks that wait in inboxes and answer them; list, add and stop tasks.
    Inbox(inbox::Inbox),
    /// Stop a run.
    Cancel(runs::Cancel),
    /// Follow a run until it waits or ends; without a run, follow what waits.
    Watch(watch::Watch),
    /// Play scenarios: a scripted model, scripted people and tools, a virtual clock, the real engine. No server.
    Test(test::Test),
    /// List the servers that share a database: which are there, of which version, with how much of the work.
    Nodes(nodes::Nodes),
    /// Make, list and revoke API keys, in a server's database. The server may be running.
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Say who is told of what: list, make, test and delete subscriptions, and send again what could not be told.
    #[command(subcommand)]
    Subscriptions(subscriptions::Subscriptions),
    /// Try out the models of a configuration.
    #[command(subcommand)]
    Llm(llm::Llm),
    /// Check a configuration file and say what each agent comes to.
    Validate(validate::Validate),
    /// Print the JSON Schema of the configuration file; editors complete with it.
    Schema(schema::Schema),
    /// Write everything of a database, or one conversation, as JSON lines; or readable files.
    Export(moving::Export),
    /// Read the lines of an export into a database. Runs that wait go on waiting there.
    Import(moving::Import),
    /// Prove what is stored.
    #[command(subcommand)]
    Audit(Audit),
    /// Run one command for the server and end it with the server.
    #[command(hide = true)]
    ExecChild(exec_child::ExecChild),
}

#[derive(Debug, Subcommand)]
enum Audit {
    /// Check every hash chain of a database, SQLite or Postgres, and that everything stored of a run follows from its
    /// events; with signed heads also that nothing is gone or was rolled back. Reads only; the server may be running.
    Verify {
        #[command(flatten)]
        what: audit::Audited,
        #[command(flatten)]
        signed: audit::Signed,
        /// Print one JSON object instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Sign where every hash chain of a database ends now, and add that to a file of signed heads. A server does it by
    /// itself when its configuration has `server.audit`.
    Head {
        #[command(flatten)]
        what: audit::Audited,
        #[command(flatten)]
        signed: audit::Signed,
        /// Print one JSON object instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Print the log of every run, or of one, as JSON lines: one for each event, with the hash of its link. Verified as
    /// it is read; the server may be running.
    Export {
        #[command(flatten)]
        what: audit::Audited,
        /// Only this run.
        #[arg(long, value_name = "ID")]
        run: Option<String>,
        /// Print the summary, on standard error, as one JSON object too.
        #[arg(long)]
        json: bool,
    },
}

/// Does what the arguments say.
pub(crate) fn run() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.command.unwrap_or(Command::Serve(arguments.serve)) {
        Command::Serve(serve) => serve::run(&serve),
        Command::Send(send) => send::run(&send),
        Command::Runs(runs) => runs::list(&runs),
        Command::Show(show) => runs::show(&show),
        Command::Holds(holds) => holds::run(&holds),
        Command::Inbox(inbox) => inbox::run(&inbox),
        Command::Cancel(cancel) => runs::cancel(&cancel),
        Command::Watch(watch) => watch::run(&watch),
        Command::Test(test) => test::run(&test),
        Command::Nodes(nodes) => nodes::run(&nodes),
        Command::Keys(keys) => keys::run(&keys),
        Command::Subscriptions(command) => subscriptions::run(&command),
        Command::Llm(llm) => llm::run(&llm),
        Command::Validate(validate) => validate::run(&validate),
        Command::Schema(schema) => schema::run(&schema),
        Command::Export(export) => moving::export(&export),
        Command::Import(import) => moving::import(&import),
        Command::Audit(Audit::Verify { what, signed, json }) => audit::verify(&what, &signed, json),
        Command::Audit(Audit::Head { what, signed, json }) => audit::head(&what, &signed, json),
        Command::Audit(Audit::Export { what, run, json }) => audit_export::run(&what, run.as_deref(), json),
        Command::ExecChild(order) => exec_child::run(&order),
    }
}

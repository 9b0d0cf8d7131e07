//! The command line: what can be asked of the program, and who answers.
//!
//! Every command that answers has `--json` for machines. Exit codes: 0 all is well, 1 the answer is no, 2 the question
//! could not be answered.

mod audit;
mod audit_bundle;
mod audit_export;
mod audit_receipt;
mod backup;
mod client;
mod colour;
mod completions;
mod connect;
mod data;
mod doctor;
mod edit;
mod encryption;
mod export;
mod export_record;
mod grants;
mod greeting;
mod holds;
mod hook;
mod inbox;
mod init;
mod keys;
mod known_configuration;
mod llm;
mod logging;
mod mcp;
mod nodes;
#[cfg(target_os = "linux")]
mod notify;
mod plain;
mod policy;
mod profile;
mod reload;
mod restore_run;
mod running;
mod runs;
mod schema;
mod send;
mod serve;
mod sign_in;
mod sign_ins;
mod subscriptions;
mod test;
mod timeline;
mod trust;
mod validate;
mod verify;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use standfast_tools::exec_child;

/// A server for AI agents that must stop and wait: for a person's approval, an answer, a long job, a login.
///
/// Without a command it serves.
#[derive(Debug, Parser)]
#[command(name = "standfast", version = env!("STANDFAST_VERSION"), args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: serve::Serve,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the server, with a configuration file or with the embedded demo: a scripted agent that needs approval to
    /// delete a file. The demo needs no API key and no network.
    Serve(serve::Serve),
    /// Write a first configuration file, with comments: for a provider of models and a store of your choice.
    Init(init::Init),
    /// Send a message to an agent and start a run.
    Send(send::Send),
    /// List runs, newest first.
    Runs(runs::Runs),
    /// Show a run: its status and its event log.
    Show(runs::Show),
    /// List pending holds, show one, approve, deny or answer it.
    Holds(holds::Holds),
    /// Answer pending tasks of inboxes one by one; list, add and cancel tasks.
    Inbox(inbox::Inbox),
    /// Ask a server before a coding agent runs something: called by its hooks. `install` sets them up.
    Hook(hook::Hook),
    /// Put an MCP server behind approvals: a proxy in the place of its command.
    #[command(subcommand)]
    Mcp(mcp::Mcp),
    /// Cancel a run.
    Cancel(runs::Cancel),
    /// Follow a run until it waits or ends; without a run, follow pending holds.
    Watch(watch::Watch),
    /// Run scenario tests: scripted model, people and tools, a virtual clock, the real engine. Needs no server.
    Test(test::Test),
    /// Check a server and a credential and remember them for your later commands: sign in at the server's identity provider,
    /// or give an API key, by STANDFAST_KEY or on standard input.
    Login(profile::Login),
    /// Remove the remembered server and credential; ends the session at the server.
    Logout,
    /// List where you are signed in, and end sessions.
    #[command(subcommand)]
    SignIns(sign_ins::SignIns),
    /// List the nodes that share a database, with version and load.
    Nodes(nodes::Nodes),
    /// Create, list and revoke API keys in a server's database. The server may be running.
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Show which keys seal the payloads of a SQLite database, and reseal them under the first one. The server may be running.
    #[command(subcommand)]
    Encryption(encryption::Encryption),
    /// List standing approvals with their usage, and revoke them.
    #[command(subcommand)]
    Grants(grants::Grants),
    /// Manage webhook subscriptions: list, create, test and delete them, resend failed deliveries.
    #[command(subcommand)]
    Subscriptions(subscriptions::Subscriptions),
    /// Test the models of a configuration file.
    #[command(subcommand)]
    Llm(llm::Llm),
    /// Validate a config file and show each agent's effective settings.
    Validate(validate::Validate),
    /// Test the guarantees of Standfast with your own configuration file: kills, double approvals, stale digests, expiry, a
    /// lost store. Uses a scripted model, stand-ins for tools and a store of its own; your data stays untouched.
    Verify(verify::Verify),
    /// Print the JSON Schema of the configuration file, for completion in editors.
    Schema(schema::Schema),
    /// Check everything that a server needs, and say what to do: configuration, database, clock, disk, models, MCP servers,
    /// webhooks, sandbox, limits.
    Doctor(doctor::Doctor),
    /// Ask a server whether it is ready: exit code 0 when it is. For health checks of containers.
    Health(connect::Health),
    /// Back up the SQLite database of a server, while it runs: one verified file.
    Backup(backup::Backup),
    /// Restore a backup where no database is yet, and list the holds, jobs and runs that become active again.
    Restore(backup::Restore),
    /// Export a database, or one session, as JSON lines or as readable files.
    Export(export::Export),
    /// Import an export into a database. Pending holds stay pending.
    Import(export::Import),
    /// Restore held runs from their exported execution state. Each open call is held for a person.
    RestoreRun(restore_run::RestoreRun),
    /// Try the rules of configuration files on stored calls: back-test, compare, explain. Needs no server.
    #[command(subcommand)]
    Policy(policy::Policy),
    /// Verify and export the audit log.
    #[command(subcommand)]
    Audit(Audit),
    /// Print the completions of a shell.
    Completions(completions::Completions),
    /// Print the man page, or write the pages of all commands to a folder.
    Man(completions::Man),
    /// Run one command for the server and end it with the server.
    #[command(hide = true)]
    ExecChild(exec_child::ExecChild),
}

#[derive(Debug, Subcommand)]
enum Audit {
    /// Verify every hash chain of a database, SQLite or Postgres, and that every row follows from the events of its run;
    /// with signed heads also that nothing was deleted or rolled back. Read-only; the server may be running.
    Verify {
        #[command(flatten)]
        what: audit::AuditTarget,
        #[command(flatten)]
        signed: audit::SignedHeadsArgs,
        /// Also compare this receipt, as the API answers it, with what is stored; may be repeated.
        #[arg(long = "receipt", value_name = "FILE")]
        receipts: Vec<PathBuf>,
        /// Print one JSON object instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Sign the current end of every hash chain and append it to a file of signed heads. A server does this itself when
    /// its configuration has `server.audit`.
    Head {
        #[command(flatten)]
        what: audit::AuditTarget,
        #[command(flatten)]
        signed: audit::SignedHeadsArgs,
        /// Print one JSON object instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Print the event log of every run, or of one, as JSON lines, each with the hash of its link. Verified while reading;
    /// the server may be running.
    Export {
        #[command(flatten)]
        what: audit::AuditTarget,
        /// Only this run.
        #[arg(long, value_name = "ID")]
        run: Option<String>,
        /// Also print the summary, on standard error, as one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Write everything that an auditor needs into one file: chains, receipts, definitions, the audit, signed heads, and a
    /// program that verifies them with nothing but Python; of everything, or of some time. The server may be running.
    Bundle(audit_bundle::BundleArgs),
    /// Print the program that is in bundles, to compare it or to verify with it.
    Verifier,
}

/// Does what the arguments say.
pub(crate) fn run() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.command.unwrap_or(Command::Serve(arguments.serve)) {
        Command::Serve(serve) => serve::run(&serve),
        Command::Init(init) => init::run(&init),
        Command::Send(send) => send::run(&send),
        Command::Runs(runs) => runs::list(&runs),
        Command::Show(show) => runs::show(&show),
        Command::Holds(holds) => holds::run(&holds),
        Command::Hook(hook) => hook.run(),
        Command::Mcp(mcp) => mcp.run(),
        Command::Inbox(inbox) => inbox::run(&inbox),
        Command::Cancel(cancel) => runs::cancel(&cancel),
        Command::Watch(watch) => watch::run(&watch),
        Command::Test(test) => test::run(&test),
        Command::Login(login) => profile::login(&login),
        Command::Logout => profile::logout(),
        Command::SignIns(command) => sign_ins::run(&command),
        Command::Nodes(nodes) => nodes::run(&nodes),
        Command::Keys(keys) => keys::run(&keys),
        Command::Encryption(command) => encryption::run(&command),
        Command::Grants(command) => grants::run(&command),
        Command::Subscriptions(command) => subscriptions::run(&command),
        Command::Llm(llm) => llm::run(&llm),
        Command::Validate(validate) => validate::run(&validate),
        Command::Verify(verify) => verify::run(verify),
        Command::Schema(schema) => schema::run(&schema),
        Command::Doctor(doctor) => doctor::run(&doctor),
        Command::Health(health) => connect::health(&health),
        Command::Backup(arguments) => backup::backup(&arguments),
        Command::Restore(arguments) => backup::restore(&arguments),
        Command::Export(export) => export::export(&export),
        Command::Import(import) => export::import(&import),
        Command::RestoreRun(restore) => restore_run::run(&restore),
        Command::Policy(policy) => policy::run(&policy),
        Command::Audit(Audit::Verify { what, signed, receipts, json }) => {
            audit::verify(&what, &signed, &receipts, json)
        }
        Command::Audit(Audit::Head { what, signed, json }) => audit::head(&what, &signed, json),
        Command::Audit(Audit::Bundle(bundle)) => audit_bundle::run(&bundle),
        Command::Audit(Audit::Verifier) => audit_bundle::verifier(),
        Command::Audit(Audit::Export { what, run, json }) => audit_export::run(&what, run.as_deref(), json),
        Command::Completions(arguments) => completions::completions(Arguments::command(), &arguments),
        Command::Man(arguments) => completions::man(Arguments::command(), &arguments),
        Command::ExecChild(order) => exec_child::run(&order),
    }
}

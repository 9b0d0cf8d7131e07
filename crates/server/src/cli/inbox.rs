//! `standfast inbox`: tasks of inboxes, and answering what they wait for.
//!
//! Without a command, at a terminal, it goes through what is pending: shows it, takes an answer, goes on. The types are what
//! these commands read of the inbox routes.

use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::client::{Failure, Form, Patience, Server, ServerArgs, ask, read, segment};
use super::plain::{Text, block, plain, table};

/// What is wanted of inboxes; without a command what is pending is gone through.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Inbox {
    #[command(subcommand)]
    command: Option<InboxCommand>,
    #[command(flatten)]
    asking: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum InboxCommand {
    /// List inboxes, with the number of tasks in each status.
    List(List),
    /// List the tasks of an inbox, newest first.
    Tasks(Tasks),
    /// List tasks that wait for a person, the oldest first.
    Waiting(WaitingArgs),
    /// Show a task.
    Show(OneTask),
    /// Add a task to an inbox.
    Add(Add),
    /// Answer the question of a task.
    Resume(Resume),
    /// Cancel a task.
    Cancel(Cancel),
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    asking: ServerArgs,
}

#[derive(Debug, Args)]
struct Tasks {
    /// The inbox.
    inbox: String,
    /// Only tasks in this status, such as waiting_for_input.
    #[arg(long)]
    status: Option<String>,
    /// Only tasks of this type.
    #[arg(long = "type")]
    kind: Option<String>,
    #[command(flatten)]
    asking: ServerArgs,
}

#[derive(Debug, Args)]
struct WaitingArgs {
    /// The inbox. Default: all inboxes.
    inbox: Option<String>,
    #[command(flatten)]
    asking: ServerArgs,
}

#[derive(Debug, Args)]
struct OneTask {
    /// The inbox.
    inbox: String,
    /// The id of the task.
    task: String,
    #[command(flatten)]
    asking: ServerArgs,
}

#[derive(Debug, Args)]
struct Add {
    /// The inbox.
    inbox: String,
    /// The payload: JSON if it parses as JSON, else text.
    payload: String,
    /// The type of the task.
    #[arg(long = "type")]
    kind: String,
    /// low, normal, high or urgent.
    #[arg(long)]
    priority: Option<String>,
    /// A title.
    #[arg(long)]
    title: Option<String>,
    /// The only agent that may claim the task.
    #[arg(long)]
    agent: Option<String>,
    #[command(flatten)]
    asking: ServerArgs,
}

#[derive(Debug, Args)]
struct Resume {
    /// The inbox.
    inbox: String,
    /// The id of the task.
    task: String,
    /// The answer: JSON if it parses as JSON, else text.
    #[arg(allow_negative_numbers = true)]
    answer: String,
    /// The hold to answer, if several are open.
    #[arg(long, value_name = "ID")]
    hold: Option<String>,
    #[command(flatten)]
    asking: ServerArgs,
}

#[derive(Debug, Args)]
struct Cancel {
    /// The inbox.
    inbox: String,
    /// The id of the task.
    task: String,
    /// The reason.
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    asking: ServerArgs,
}

pub(super) fn run(inbox: &Inbox) -> ExitCode {
    match &inbox.command {
        None if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() => {
            ask(&inbox.asking, go_through)
        }
        None => ask(&inbox.asking, |server| listed(server, "/api/inboxes/tasks/waiting", &[])),
        Some(InboxCommand::List(List { asking })) => ask(asking, inboxes),
        Some(InboxCommand::Tasks(Tasks { inbox, status, kind, asking })) => ask(asking, |server| {
            listed(server, &format!("{}/tasks", path(inbox)), &[("status", status), ("type", kind)])
        }),
        Some(InboxCommand::Waiting(WaitingArgs { inbox, asking })) => ask(asking, |server| {
            let of = inbox.as_ref().map_or("/api/inboxes".to_owned(), |inbox| path(inbox));
            listed(server, &format!("{of}/tasks/waiting"), &[])
        }),
        Some(InboxCommand::Show(OneTask { inbox, task, asking })) => {
            ask(asking, |server| answered(server, server.get(&of_task(inbox, task))?))
        }
        Some(InboxCommand::Add(wanted)) => ask(&wanted.asking, |server| add(server, wanted)),
        Some(InboxCommand::Resume(Resume { inbox, task, answer, hold, asking })) => {
            let body = Answer { payload: &json_or_text(answer), hold_id: hold.as_deref() };
            ask(asking, |server| {
                let text = post(server, &format!("{}/resume", of_task(inbox, task)), &body)?;
                match server.form {
                    Form::Json => Ok(text),
                    Form::Text => Ok(format!("answered {}", plain(task))),
                }
            })
        }
        Some(InboxCommand::Cancel(Cancel { inbox, task, reason, asking })) => ask(asking, |server| {
            let body = Reason { reason: reason.as_deref() };
            answered(server, post(server, &format!("{}/cancel", of_task(inbox, task)), &body)?)
        }),
    }
}

fn path(inbox: &str) -> String {
    format!("/api/inboxes/{}", segment(inbox))
}

fn of_task(inbox: &str, task: &str) -> String {
    format!("{}/tasks/{}", path(inbox), segment(task))
}

fn json_or_text(text: &str) -> Box<RawValue> {
    let raw = serde_json::from_str(text).or_else(|_| to_raw_value(text));
    raw.unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn post(server: &Server, path: &str, body: &impl Serialize) -> Result<String, Failure> {
    server.post(path, &serde_json::to_string(body).unwrap_or_default(), Patience::Usual)
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    payload: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold_id: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Reason<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NewTask<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    payload: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_agent_id: Option<&'a str>,
}

fn add(server: &Server, add: &Add) -> Result<String, Failure> {
    let body = NewTask {
        kind: &add.kind,
        payload: &json_or_text(&add.payload),
        priority: add.priority.as_deref(),
        title: add.title.as_deref(),
        target_agent_id: add.agent.as_deref(),
    };
    answered(server, post(server, &format!("{}/tasks", path(&add.inbox)), &body)?)
}

#[derive(Debug, Deserialize)]
struct Inboxes {
    inboxes: Vec<OneInbox>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OneInbox {
    inbox_id: Text,
    agents: Vec<Text>,
    stats: Stats,
}

#[derive(Debug, Deserialize)]
struct Stats {
    pending: u64,
    claimed: u64,
    in_progress: u64,
    waiting_for_input: u64,
    completed: u64,
    failed: u64,
    cancelled: u64,
}

fn inboxes(server: &Server) -> Result<String, Failure> {
    let text = server.get("/api/inboxes")?;
    if server.form == Form::Json {
        return Ok(text);
    }
    let found: Inboxes = read(&text)?;
    if found.inboxes.is_empty() {
        return Ok("no inboxes".into());
    }
    let row = |inbox: &OneInbox| {
        let agents: Vec<String> = inbox.agents.iter().map(Text::to_string).collect();
        let Stats { pending, claimed, in_progress, waiting_for_input, completed, failed, cancelled } =
            &inbox.stats;
        let counts = [pending, claimed, in_progress, waiting_for_input, completed, failed, cancelled];
        let mut row =
            vec![inbox.inbox_id.to_string(), if agents.is_empty() { "-".into() } else { agents.join(", ") }];
        row.extend(counts.map(ToString::to_string));
        row
    };
    let rows: Vec<Vec<String>> = found.inboxes.iter().map(row).collect();
    let head = [
        "INBOX",
        "AGENTS",
        "PENDING",
        "CLAIMED",
        "IN PROGRESS",
        "WAITING",
        "COMPLETED",
        "FAILED",
        "CANCELLED",
    ];
    Ok(table(&head, &rows))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Task {
    id: Text,
    inbox_id: Text,
    #[serde(rename = "type")]
    kind: Text,
    status: Text,
    priority: u8,
    title: Option<Text>,
    claimed_by: Option<Text>,
    created_at: Text,
    payload: Box<RawValue>,
    result: Option<Box<RawValue>>,
    error: Option<TaskError>,
    suspend_payload: Option<TaskQuestion>,
    resume_schema: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
struct TaskError {
    message: Text,
}

#[derive(Debug, Deserialize)]
struct TaskQuestion {
    reason: Option<Text>,
    question: Option<Text>,
    #[serde(default)]
    options: Vec<Text>,
}

fn listed(server: &Server, path: &str, only: &[(&str, &Option<String>)]) -> Result<String, Failure> {
    let items = server.list(path, only)?;
    if server.form == Form::Json {
        let items: Vec<&str> = items.iter().map(|item| item.get()).collect();
        return Ok(format!(r#"{{"tasks":[{}],"nextCursor":null}}"#, items.join(",")));
    }
    if items.is_empty() {
        return Ok("no tasks".into());
    }
    let row = |item: &RawValue| {
        let task: Task = read(item.get())?;
        let is_waiting = task.status.raw() == "waiting_for_input";
        let why = task.suspend_payload.filter(|_| is_waiting).and_then(|asked| asked.reason);
        let said = why.or(task.title).map_or("-".into(), |text| text.to_string());
        let by = task.claimed_by.map_or("-".into(), |by| by.to_string());
        let [id, inbox, kind, status, created] =
            [&task.id, &task.inbox_id, &task.kind, &task.status, &task.created_at].map(Text::to_string);
        Ok(vec![id, inbox, kind, status, task.priority.to_string(), by, created, said])
    };
    let rows: Vec<Vec<String>> = items.iter().map(|item| row(item)).collect::<Result<_, Failure>>()?;
    Ok(table(&["TASK", "INBOX", "TYPE", "STATUS", "PRIORITY", "CLAIMED BY", "CREATED", "WHAT"], &rows))
}

fn answered(server: &Server, text: String) -> Result<String, Failure> {
    match server.form {
        Form::Json => Ok(text),
        Form::Text => Ok(shown(&read(&text)?)),
    }
}

/// A task in lines, with nothing in it that could drive a terminal.
fn shown(task: &Task) -> String {
    let mut lines = vec![format!("{} in {}: {}", task.id, task.inbox_id, task.status)];
    let title = task.title.as_ref().map_or(String::new(), |title| format!(", {title}"));
    lines.push(format!("{}, priority {}{title}", task.kind, task.priority));
    lines.push(format!("payload:\n{}", block(task.payload.get())));
    if let Some(asked) = &task.suspend_payload {
        let words = [("reason", &asked.reason), ("question", &asked.question)];
        for (name, text) in words {
            lines.extend(text.iter().map(|text| format!("{name}: {text}")));
        }
        lines.extend(asked.options.iter().enumerate().map(|(at, option)| format!("  {}. {option}", at + 1)));
    }
    if let Some(schema) = &task.resume_schema {
        lines.push(format!("answer schema:\n{}", block(schema.get())));
    }
    lines.extend(task.result.as_ref().map(|result| format!("result:\n{}", block(result.get()))));
    lines.extend(task.error.as_ref().map(|error| format!("error: {}", error.message)));
    lines.join("\n")
}

/// Goes through what is pending: a number takes an option, an empty line leaves it, `q` ends.
fn go_through(server: &Server) -> Result<String, Failure> {
    let items = server.list("/api/inboxes/tasks/waiting", &[])?;
    if items.is_empty() {
        return Ok("no pending tasks".into());
    }
    let mut answers = 0;
    let lines = std::io::stdin().lock();
    let mut lines = lines.lines();
    for (at, item) in items.iter().enumerate() {
        let task: Task = read(item.get())?;
        println!("\n[{} of {}] {}", at + 1, items.len(), shown(&task));
        loop {
            print!("answer (empty: skip, q: quit): ");
            let _ = std::io::stdout().flush();
            let Some(Ok(line)) = lines.next() else { return Ok(told(answers)) };
            let options = task.suspend_payload.as_ref().map_or(&[][..], |asked| &asked.options);
            let chosen = line.trim().parse::<usize>().ok().and_then(|no| options.get(no.checked_sub(1)?));
            let payload = match (line.trim(), chosen) {
                ("", _) => break,
                ("q", _) => return Ok(told(answers)),
                (_, Some(option)) => to_raw_value(option.raw()).unwrap_or_else(|_| RawValue::NULL.to_owned()),
                (text, None) => json_or_text(text),
            };
            let path = format!("{}/resume", of_task(task.inbox_id.raw(), task.id.raw()));
            match post(server, &path, &Answer { payload: &payload, hold_id: None }) {
                Ok(_) => {
                    answers += 1;
                    break;
                }
                Err(Failure::Refused { said, .. }) => println!("{said}"),
                Err(other) => return Err(other),
            }
        }
    }
    Ok(told(answers))
}

fn told(answers: usize) -> String {
    format!("{answers} answered")
}

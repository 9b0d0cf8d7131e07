//! What people and the model get to see of a command: its code, its output, and in a sentence which limit ended it.
//!
//! A program cannot know the limits that it ran into. So each is named here with the key that raises it; what the sandbox
//! refused is `sandbox/refusal.rs`.

use std::path::Path;

use serde::Serialize;
use standfast_core::body::Body;
use standfast_core::json::RawJson;
use standfast_core::message::ToolResult;
use standfast_core::time::Millis;
use standfast_engine::tool::Outcome;

use crate::child::{CapturedStream, CommandResult, End, MissingReport, Order, Report};

/// What the kernel sends to a program that writes on where a file may not grow.
const FILE_TOO_LARGE: i32 = 25;

/// What came of it. A command that ended by itself is a result, whatever its exit code says.
pub(super) fn outcome(report: Result<Report, MissingReport>, order: &Order) -> Outcome {
    Outcome::Done(match report {
        Ok(Report::Ran(ran)) => match ran.end {
            End::Exit(_) => ToolResult::Ok(shown(ran, order)),
            End::Signal(_) | End::TimedOut | End::TooManyProcesses | End::WroteTooMuch => {
                ToolResult::Failed(shown(ran, order))
            }
        },
        Ok(Report::NotStarted(why)) => ToolResult::Failed(Body::text(format!("not executed: {why}"))),
        Err(lost @ MissingReport::Unknown(_)) => return Outcome::Unknown(lost.to_string()),
        Err(lost) => ToolResult::Failed(Body::text(lost.to_string())),
    })
}

fn shown(ran: CommandResult, order: &Order) -> Body {
    #[derive(Serialize)]
    struct ShownCommand {
        exit_code: Option<i32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        stdout: String,
        stderr: String,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        truncated: bool,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        timed_out: bool,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        too_many_processes: bool,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        wrote_too_much: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    }
    let (exit_code, signal) = match ran.end {
        End::Exit(code) => (Some(code), None),
        End::Signal(signal) => (None, Some(signal)),
        End::TimedOut | End::TooManyProcesses | End::WroteTooMuch => (None, None),
    };
    let shown = ShownCommand {
        exit_code,
        signal,
        truncated: ran.stdout.dropped > 0 || ran.stderr.dropped > 0,
        timed_out: ran.end == End::TimedOut,
        too_many_processes: ran.end == End::TooManyProcesses,
        wrote_too_much: ran.end == End::WroteTooMuch,
        note: note(&ran, order),
        stdout: noted(ran.stdout, order),
        stderr: noted(ran.stderr, order),
    };
    let json = serde_json::to_string(&shown).ok().and_then(|text| RawJson::parse(&text).ok());
    let Some(json) = json else { unreachable!("strings and numbers are JSON") };
    Body::Json(json)
}

/// Which limit or refusal a command ran into, and the key that says so.
fn note(ran: &CommandResult, order: &Order) -> Option<String> {
    match ran.end {
        End::Exit(0) => None,
        End::Exit(_) => {
            let directory = order.directory.as_deref().unwrap_or(Path::new("."));
            let named = order.argv.iter().skip(1).map(String::as_str);
            order.plan.as_ref()?.explain(&ran.stderr.text, named, directory)
        }
        End::Signal(FILE_TOO_LARGE) => Some(format!(
            "it was ended because a file that it wrote would have had more than {} bytes (`max_file_size`)",
            order.file_limit
        )),
        End::Signal(_) => None,
        End::TimedOut => {
            let Millis(limit) = order.time_limit;
            Some(format!("it was ended after {limit} milliseconds (`max_execution_time`)"))
        }
        End::TooManyProcesses => Some(format!(
            "it was ended because it had more than {} processes at a time (`max_processes`)",
            order.process_limit
        )),
        End::WroteTooMuch => Some(format!(
            "it was ended because it wrote more than {} bytes to files (`max_disk`); what it wrote is still there",
            order.disk_limit
        )),
    }
}

/// The text with a note where something is missing.
fn noted(kept: CapturedStream, order: &Order) -> String {
    match kept.dropped {
        0 => kept.text,
        dropped => {
            format!("{}\n[{dropped} more bytes; {} bytes of output are kept]", kept.text, order.output_limit)
        }
    }
}

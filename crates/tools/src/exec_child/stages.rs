//! How a confined command gets a process tree and mounts of its own: three stages of the same program.
//!
//! The first stage stays outside: it makes the temporary directory and the control group and removes them. The second one
//! leaves the server's namespaces and starts the third, which is then the first process of its own tree: when that ends, for
//! whatever reason, the kernel ends everything in it. Only the third one (`exec_child.rs`) starts the command. None of
//! them reads what the command says.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use crate::cgroup::{Bounds, ControlGroups};
use crate::descendants::end_below;
use crate::sandbox::{self, Isolation, Plan, Spaces};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, geteuid, getpid, set_parent_process_death_signal, setrlimit,
};

use super::{ExecChild, Stage};

/// Threads count as tasks, and usual programs have some: only four times as many tasks as processes are too many.
const TASKS_PER_PROCESS: u32 = 4;

/// What the stages themselves need.
const OWN_TASKS: u32 = 16;

/// What the kernel counts for a command.
pub(super) fn bounds(order: &ExecChild) -> Bounds {
    let tasks = order.process_limit.saturating_mul(TASKS_PER_PROCESS).saturating_add(OWN_TASKS);
    Bounds { memory: Some(order.memory_limit).filter(|bytes| *bytes > 0), tasks }
}

/// The first stage: what must outlive the namespaces.
pub(super) fn outside(order: &ExecChild, plan: Plan) -> Result<ExitCode, String> {
    let scratch = tempfile::Builder::new().prefix("standfast-").tempdir();
    let scratch = scratch.map_err(|error| format!("no directory for temporary files: {error}"))?;
    let groups = ControlGroups::join(&bounds(order));
    let started = again(order, &plan, Stage::Between, scratch.path(), &groups);
    groups.leave();
    let mut next = started?;
    let ended = next.wait();
    // Without namespaces somebody may be left; they are below this process by now.
    end_below(getpid());
    drop(groups);
    drop(scratch);
    Ok(if ended.is_ok_and(|status| status.success()) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The second stage: leaves, starts the third, waits.
pub(super) fn between(order: &ExecChild, mut plan: Plan, scratch: &Path) -> Result<ExitCode, String> {
    end_with_parent();
    if plan.isolation == Isolation::Namespaces {
        let writable: Vec<_> =
            plan.writable.iter().cloned().chain(std::iter::once(scratch.to_owned())).collect();
        plan.spaces = leave(order, &writable)?;
        if plan.spaces.mounts && order.disk_limit > 0 {
            sandbox::bound_scratch(scratch, order.disk_limit);
        }
    }
    let mut next = again(order, &plan, Stage::Inside, scratch, &ControlGroups::default())?;
    let ended = next.wait();
    Ok(if ended.is_ok_and(|status| status.success()) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Leaves the server's namespaces, as a user of its own where nobody else counts the tasks of root and where that can be had.
fn leave(order: &ExecChild, writable: &[PathBuf]) -> Result<Spaces, String> {
    let mut holder = if order.own_user { namespace_holder() } else { None };
    let spaces = match &holder {
        Some(holder) => sandbox::leave_as_own_user(Pid::from_child(holder), writable),
        None => Ok(None),
    };
    if let Some(holder) = &mut holder {
        drop(holder.stdin.take());
        let _ = holder.wait();
    }
    // Another user than before: the kernel has forgotten whom this process ends with.
    end_with_parent();
    Ok(spaces?.unwrap_or_else(|| sandbox::leave(writable)))
}

/// A process with a user namespace of its own: only a process can be named as having one.
fn namespace_holder() -> Option<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("exec-child").arg(word("--stage=", Stage::Namespace.name())).args(["--", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    // It says so once it has it. One that ends before leaves no number to be named.
    let mut ready = [0];
    let said = child.stdout.take().map(|mut stdout| stdout.read_exact(&mut ready));
    if matches!(said, Some(Ok(()))) {
        return Some(child);
    }
    let _ = child.wait();
    None
}

/// What the third stage does before it starts the command.
pub(super) fn inside(plan: &mut Plan) {
    end_with_parent();
    if plan.spaces.processes {
        plan.spaces.proc = sandbox::own_proc();
    }
}

/// Limits of this process, which the command inherits: no core, no huge files, and where nobody counts them together,
/// memory of each process, and tasks of a user who has a namespace alone.
pub(super) fn limit(order: &ExecChild, plan: Option<&Plan>) {
    let set = |resource: Resource, value: u64| {
        let _ = setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) });
    };
    set(Resource::Core, 0);
    if order.file_limit > 0 {
        set(Resource::Fsize, order.file_limit);
    }
    if order.data_limit > 0 {
        set(Resource::Data, order.data_limit);
    }
    // Without a namespace everything of the user would count.
    if plan.is_some_and(|plan| plan.spaces.users) {
        set(Resource::Nproc, u64::from(bounds(order).tasks));
    }
}

/// The stage before is the only one who waits for this one.
fn end_with_parent() {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
}

/// Starts this program again as the next stage, with the same standard streams.
fn again(
    order: &ExecChild,
    plan: &Plan,
    stage: Stage,
    scratch: &Path,
    groups: &ControlGroups,
) -> Result<std::process::Child, String> {
    let plan = serde_json::to_string(plan).map_err(|error| error.to_string())?;
    let mut command = Command::new("/proc/self/exe");
    command.arg("exec-child").arg(word("--stage=", stage.name())).arg(word("--scratch=", scratch));
    if order.relay {
        command.arg("--relay");
    }
    let data_limit = match (groups.has_memory, stage) {
        (true, _) => 0,
        (false, Stage::Inside) => order.data_limit,
        (false, Stage::Outside | Stage::Between | Stage::Namespace) => order.memory_limit,
    };
    // A limit on processes does not bind root.
    if stage == Stage::Between && !groups.has_tasks && geteuid().is_root() {
        command.arg("--own-user");
    }
    for (name, value) in [
        ("--time-limit-ms=", order.time_limit_ms),
        ("--output-limit=", order.output_limit),
        ("--process-limit=", u64::from(order.process_limit)),
        ("--file-limit=", order.file_limit),
        ("--disk-limit=", order.disk_limit),
        ("--data-limit=", data_limit),
    ] {
        command.arg(format!("{name}{value}"));
    }
    command.arg(word("--sandbox=", plan));
    if let Some(directory) = &order.directory {
        command.arg(word("--directory=", directory));
    }
    command.arg("--").args(&order.argv).stdin(Stdio::inherit());
    command.spawn().map_err(|error| format!("its own program cannot be started again: {error}"))
}

fn word(name: &str, value: impl AsRef<std::ffi::OsStr>) -> OsString {
    let mut word = OsString::from(name);
    word.push(value);
    word
}

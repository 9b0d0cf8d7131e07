//! The kernel's side of a plan: Landlock rules, filters of system calls, and no capability that a command has no use for.
//!
//! All three hold for one thread and what it starts, and none of them can be taken back. Which calls there are is
//! `linux/calls.rs`, the process tree and the mounts of a command `linux/namespaces.rs`,
//! its user `linux/own_user.rs`.

mod calls;
pub(super) mod namespaces;
pub(super) mod own_user;

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

use self::calls::Situation;
use super::{NoSandbox, Plan, Reach};

/// Without this a file could be emptied that cannot be written (`truncate`).
const NEEDED: ABI = ABI::V3;

/// What is used where the kernel has it: devices' ioctl, TCP, signals, abstract sockets.
const WANTED: ABI = ABI::V6;

/// Devices that programs expect; they hold nothing.
const DEVICES: [&str; 5] = ["/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"];

/// Where the kernel tells of itself and of processes.
const PROC: &str = "/proc";

/// What root keeps: to work on the files of the working directory whoever owns them.
const KEPT: [CapabilitySet; 4] =
    [CapabilitySet::CHOWN, CapabilitySet::DAC_OVERRIDE, CapabilitySet::FOWNER, CapabilitySet::FSETID];

pub(super) fn apply(plan: &Plan) -> Result<(), NoSandbox> {
    drop_capabilities();
    restrict_files(plan).map_err(NoSandbox::Kernel)?;
    let situation = Situation {
        network: plan.network,
        has_own_mounts: plan.spaces.mounts,
        has_own_processes: plan.spaces.processes,
    };
    let filters = calls::filters(&situation)
        .map_err(|error| NoSandbox::Kernel(format!("no filter of system calls: {error}")))?;
    for filter in filters {
        seccompiler::apply_filter(&filter)
            .map_err(|error| NoSandbox::Kernel(format!("the filter of system calls was refused: {error}")))?;
    }
    Ok(())
}

/// A program that root starts gets what is left of the bounding set. Whoever may not drop one has none to pass on,
/// except what this thread was given for its namespaces.
fn drop_capabilities() {
    for capability in CapabilitySet::all().iter().filter(|capability| !KEPT.contains(capability)) {
        let _ = remove_capability_from_bounding_set(capability);
    }
    let _ = clear_ambient_capability_set();
    if let Ok(sets) = capabilities(None) {
        let _ = set_capabilities(None, CapabilitySets { inheritable: CapabilitySet::empty(), ..sets });
    }
}

fn restrict_files(plan: &Plan) -> Result<(), String> {
    let refused = |error: landlock::RulesetError| format!("Landlock: {error}");
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(NEEDED))
        .map_err(refused)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(WANTED))
        .map_err(refused)?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)
        .map_err(refused)?;
    if plan.network == Reach::None {
        rules = rules.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp).map_err(refused)?;
    }
    let mut rules = rules.create().map_err(refused)?;
    let mut open = |path: &Path, access: BitFlags<AccessFs>| -> Result<(), String> {
        // What is gone by now cannot be reached either.
        let Ok(file) = PathFd::new(path) else { return Ok(()) };
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(WANTED) };
        (&mut rules).add_rule(PathBeneath::new(file, access)).map(drop).map_err(refused)
    };
    let processes = if plan.spaces.proc { vec![PathBuf::from(PROC)] } else { proc_without_processes() };
    for path in plan.readable.iter().chain(&processes) {
        open(path, AccessFs::from_read(WANTED))?;
    }
    for path in &plan.writable {
        // Everything but device nodes and their controls.
        let access =
            AccessFs::from_all(WANTED) & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
        open(path, access)?;
    }
    for device in DEVICES {
        open(Path::new(device), AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate)?;
    }
    let status = rules.restrict_self().map_err(refused)?;
    match (status.ruleset, status.no_new_privs) {
        (RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced, true) => Ok(()),
        (enforced, _) => Err(format!("Landlock is not enforced ({enforced:?})")),
    }
}

/// What the kernel tells of the machine. Where processes that are not the command's are in sight, none is: not their
/// command lines either. A program's own entry is closed with them, because its number is not known before.
fn proc_without_processes() -> Vec<PathBuf> {
    let is_process = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.chars().all(|c| c.is_ascii_digit())
    };
    let entries = std::fs::read_dir(PROC).into_iter().flatten().flatten();
    let entries = entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
    entries.map(|entry| entry.path()).filter(|path| !is_process(path)).collect()
}

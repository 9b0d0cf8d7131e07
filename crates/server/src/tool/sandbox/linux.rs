//! The kernel's side of a plan: Landlock rules, a seccomp filter, and no capability that a command has no use for.
//!
//! All three hold for one thread and what it starts, and none of them can be taken back. The filter lists what is
//! refused: a list of what is allowed would break programs with every new libc, and files are Landlock's business.

use std::collections::BTreeMap;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::process::{Pid, getpid, getppid};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::{NoSandbox, Plan, Reach};

/// Without this a file could be emptied that cannot be written (`truncate`).
const NEEDED: ABI = ABI::V3;

/// What is used where the kernel has it: devices' ioctl, TCP, signals, abstract sockets.
const WANTED: ABI = ABI::V6;

/// Devices that programs expect; they hold nothing.
const DEVICES: [&str; 5] = ["/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"];

/// What root keeps: to work on the files of the working directory whoever owns them.
const KEPT: [CapabilitySet; 4] =
    [CapabilitySet::CHOWN, CapabilitySet::DAC_OVERRIDE, CapabilitySet::FOWNER, CapabilitySet::FSETID];

pub(super) fn apply(plan: &Plan) -> Result<(), NoSandbox> {
    drop_capabilities();
    restrict_files(plan).map_err(NoSandbox::Kernel)?;
    let filter = filter(plan.network)
        .map_err(|error| NoSandbox::Kernel(format!("no filter of system calls: {error}")))?;
    seccompiler::apply_filter(&filter)
        .map_err(|error| NoSandbox::Kernel(format!("the filter of system calls was refused: {error}")))
}

/// A program that root starts gets what is left of the bounding set. Whoever may not drop one has none to pass on.
fn drop_capabilities() {
    for capability in CapabilitySet::all().iter().filter(|capability| !KEPT.contains(capability)) {
        let _ = remove_capability_from_bounding_set(capability);
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
    for path in &plan.readable {
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

/// What no command needs and what leads out: other processes' memory, namespaces, mounts, kernel modules, file handles,
/// keys, the clock. `io_uring` is here because it makes sockets past this filter.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
];

/// On x86-64 the same calls have a second set of numbers (x32), and some of them a third.
#[cfg(target_arch = "x86_64")]
const OTHER_NUMBERS: &[libc::c_long] = &[521, 528, 539, 540];
#[cfg(not(target_arch = "x86_64"))]
const OTHER_NUMBERS: &[libc::c_long] = &[];

fn filter(network: Reach) -> Result<BpfProgram, String> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let refused = REFUSED.iter().chain(OTHER_NUMBERS);
    rules.extend(refused.map(|number| (*number, Vec::new())));
    rules.insert(libc::SYS_socket, sockets(network).map_err(|error| error.to_string())?);
    // Landlock keeps signals inside from Linux 6.12 on. Before that, at least these numbers get none.
    for call in [libc::SYS_kill, libc::SYS_tgkill, libc::SYS_tkill] {
        rules.insert(call, untouchable().map_err(|error| error.to_string())?);
    }
    if cfg!(target_arch = "x86_64") {
        let again: Vec<_> = rules.iter().map(|(number, rule)| (number | 0x4000_0000, rule.clone())).collect();
        rules.extend(again);
    }
    let errno = u32::try_from(libc::EPERM).unwrap_or(1);
    let architecture = std::env::consts::ARCH.try_into().map_err(|error| format!("{error}"))?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), architecture);
    filter.and_then(BpfProgram::try_from).map_err(|error| error.to_string())
}

/// No sockets at all, or only those of IP and the list of addresses that names are looked up with. Sockets of this
/// machine's services (`AF_UNIX`, a container engine's for one) are never open; pairs of sockets are.
fn sockets(network: Reach) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    match network {
        Reach::None => Ok(Vec::new()),
        Reach::Internet => {
            let open = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
            let other = open.map(|family| is(SeccompCmpOp::Ne, i64::from(family)));
            Ok(vec![SeccompRule::new(other.into_iter().collect::<Result<_, _>>()?)?])
        }
    }
}

/// The shim, the server, their groups, and everybody.
fn untouchable() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let server = getppid();
    let group = server.and_then(group_of).map(|group| -group);
    let numbers =
        [Some(getpid()), server].into_iter().flatten().map(|pid| i64::from(pid.as_raw_nonzero().get()));
    let numbers = numbers.chain(group).chain(std::iter::once(-1));
    numbers.map(|number| SeccompRule::new(vec![is(SeccompCmpOp::Eq, number)?])).collect()
}

/// The group of a process; none where its leader is outside of this container, as that of the first process often is.
/// Taken from the file: rustix counts on a number that is never 0.
fn group_of(process: Pid) -> Option<i64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    parse_group(&stat)
}

/// The name of a program may have spaces and brackets in it; what follows it has none.
fn parse_group(stat: &str) -> Option<i64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(2)?.parse().ok().filter(|group| *group > 0)
}

/// Compares the first argument as 32 bits.
fn is(how: SeccompCmpOp, value: i64) -> Result<SeccompCondition, seccompiler::BackendError> {
    let bits = value.cast_unsigned() & 0xffff_ffff;
    SeccompCondition::new(0, SeccompCmpArgLen::Dword, how, bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server whose parent has a group outside of its container is confined all the same.
    #[test]
    fn a_group_outside_of_the_container_is_none() {
        assert_eq!(parse_group("7 (sh) S 1 7 7 0 -1"), Some(7));
        assert_eq!(parse_group("1 (a) b (c) S 0 0 0 0 -1"), None);
        assert_eq!(parse_group("nonsense"), None);
    }
}

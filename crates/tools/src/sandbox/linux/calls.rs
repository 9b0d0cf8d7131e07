//! Which system calls a command may make: an allow-list, and what of it is refused by its arguments.
//!
//! Three filters. The first knows numbers only: a call that is not listed does not exist here (`ENOSYS`), so a libc that
//! tries a newer one falls back to an older one, and what a later kernel adds is closed until somebody has looked at it.
//! The second refuses (`EPERM`) what is listed but reaches other processes, makes namespaces or opens sockets, and what
//! programs should be told plainly that they may not do. The third says of one call that no file system here has it, so
//! that programs write what they would have reserved. Files are Landlock's business. ADR 0012 has the reasons.

use std::collections::BTreeMap;

use rustix::process::getpid;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use super::super::Reach;

/// What programs need on every architecture.
const LISTED: &[libc::c_long] = &[
    // Files.
    libc::SYS_chdir,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fchdir,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_flock,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getxattr,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_ioctl,
    libc::SYS_lgetxattr,
    libc::SYS_linkat,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_lremovexattr,
    libc::SYS_lseek,
    libc::SYS_lsetxattr,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readahead,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_removexattr,
    libc::SYS_renameat2,
    libc::SYS_sendfile,
    libc::SYS_setxattr,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_sync,
    libc::SYS_syncfs,
    libc::SYS_tee,
    libc::SYS_truncate,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_vmsplice,
    libc::SYS_write,
    libc::SYS_writev,
    // Memory.
    libc::SYS_brk,
    libc::SYS_get_mempolicy,
    libc::SYS_madvise,
    libc::SYS_mbind,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mlockall,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_mseal,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munlockall,
    libc::SYS_munmap,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect,
    libc::SYS_set_mempolicy,
    // Itself, its threads and its children.
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_clone,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getitimer,
    libc::SYS_getpgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getrandom,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrusage,
    libc::SYS_getsid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_ioprio_get,
    libc::SYS_ioprio_set,
    libc::SYS_kill,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_personality,
    libc::SYS_pidfd_open,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getattr,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_rr_get_interval,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_yield,
    libc::SYS_seccomp,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setfsgid,
    libc::SYS_setfsuid,
    libc::SYS_setgid,
    libc::SYS_setgroups,
    libc::SYS_setitimer,
    libc::SYS_setpgid,
    libc::SYS_setpriority,
    libc::SYS_setregid,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_setreuid,
    libc::SYS_setsid,
    libc::SYS_setuid,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_tgkill,
    libc::SYS_times,
    libc::SYS_tkill,
    libc::SYS_uname,
    libc::SYS_wait4,
    libc::SYS_waitid,
    // Time and waiting.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_signalfd4,
    libc::SYS_timer_create,
    libc::SYS_timer_delete,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_gettime,
    libc::SYS_timer_settime,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    // Sockets: which of them can be made is decided below.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socket,
    libc::SYS_socketpair,
];

/// Calls whose numbers are the same everywhere and that libc does not name on every architecture.
const LISTED_NUMBERS: &[libc::c_long] = &[
    451, // cachestat
    452, // fchmodat2
    453, // map_shadow_stack
    454, // futex_wake
    455, // futex_wait
    456, // futex_requeue
];

/// Older calls that only this architecture has.
#[cfg(target_arch = "x86_64")]
const LISTED_HERE: &[libc::c_long] = &[
    libc::SYS_access,
    libc::SYS_alarm,
    libc::SYS_arch_prctl,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_creat,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_fork,
    libc::SYS_futimesat,
    libc::SYS_getdents,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_inotify_init,
    libc::SYS_lchown,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_mknod,
    libc::SYS_open,
    libc::SYS_pause,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_setrlimit,
    libc::SYS_signalfd,
    libc::SYS_stat,
    libc::SYS_symlink,
    libc::SYS_sync_file_range,
    libc::SYS_time,
    libc::SYS_unlink,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_vfork,
];
#[cfg(not(target_arch = "x86_64"))]
const LISTED_HERE: &[libc::c_long] = &[
    38,  // renameat
    84,  // sync_file_range
    163, // getrlimit
    164, // setrlimit
];

/// What is refused with a plain "not permitted", because a program that tries it should say so.
const REFUSED: &[libc::c_long] = &[
    // Other processes: their memory, files, signals.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // System V IPC belongs to a user, not to a command.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    // It makes sockets past this filter.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Namespaces and mounts.
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
    // The kernel and the machine.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_kexec_load,
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

/// What changes the mode, owner, times and attributes of a file: Landlock does not look at it, a read-only mount does.
const MARKS_FILES: &[libc::c_long] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    452, // fchmodat2
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
];
#[cfg(target_arch = "x86_64")]
const MARKS_FILES_HERE: &[libc::c_long] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
const MARKS_FILES_HERE: &[libc::c_long] = &[];

/// What a filter is made for.
pub(super) struct Situation {
    /// What of the network is open.
    pub(super) network: Reach,
    /// Whether everything that the command may not change is mounted read-only.
    pub(super) has_own_mounts: bool,
    /// Whether there are no processes in sight but those of the command and its shim.
    pub(super) has_own_processes: bool,
}

/// The filters, in the order in which they are applied. Of two that refuse the later one is heard.
pub(super) fn filters(situation: &Situation) -> Result<[BpfProgram; 3], String> {
    let listed = LISTED.iter().chain(LISTED_NUMBERS).chain(LISTED_HERE);
    let listed = listed.map(|number| (*number, Vec::new())).collect();
    let refused = refused(situation).map_err(|error| error.to_string())?;
    Ok([
        filter(listed, errno(libc::ENOSYS), SeccompAction::Allow)?,
        filter(refused, SeccompAction::Allow, errno(libc::EPERM))?,
        filter(uncounted(), SeccompAction::Allow, errno(libc::EOPNOTSUPP))?,
    ])
}

/// What takes room on a disk without being counted as written. Libraries write zeros instead.
fn uncounted() -> BTreeMap<i64, Vec<SeccompRule>> {
    [(libc::SYS_fallocate, Vec::new())].into()
}

fn errno(number: i32) -> SeccompAction {
    SeccompAction::Errno(number.unsigned_abs())
}

fn filter(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matching: SeccompAction,
) -> Result<BpfProgram, String> {
    let architecture = std::env::consts::ARCH.try_into().map_err(|error| format!("{error}"))?;
    let filter = SeccompFilter::new(rules, otherwise, matching, architecture);
    filter.and_then(BpfProgram::try_from).map_err(|error| error.to_string())
}

/// An empty list of rules refuses a call whatever its arguments are.
fn refused(situation: &Situation) -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    if !situation.has_own_mounts {
        rules.extend(MARKS_FILES.iter().chain(MARKS_FILES_HERE).map(|call| (*call, Vec::new())));
    }
    rules.insert(libc::SYS_socket, sockets(situation.network)?);
    rules.insert(libc::SYS_socketpair, pairs()?);
    rules.insert(libc::SYS_clone, namespaces()?);
    // Only itself: 0. A number may be anybody's, also its own by the time it is compared.
    let others = |position| other_than(position, 0);
    for call in [
        libc::SYS_prlimit64,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setattr,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setscheduler,
    ] {
        rules.insert(call, vec![others(0)?]);
    }
    rules.insert(libc::SYS_setpriority, vec![other_than(0, i64::from(libc::PRIO_PROCESS))?, others(1)?]);
    rules.insert(libc::SYS_ioprio_set, vec![other_than(0, IOPRIO_WHO_PROCESS)?, others(1)?]);
    // What is set on a file for when something can be read: signal whoever is named.
    let owners = [libc::F_SETOWN, F_SETSIG, F_SETOWN_EX].map(i64::from);
    rules.insert(libc::SYS_fcntl, owners.into_iter().map(|name| equal(1, name)).collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_ioctl, IOCTLS.iter().map(|name| equal(1, *name)).collect::<Result<_, _>>()?);
    // Reading what it is, or the usual: nothing that makes a program easier to attack.
    let usual = [0, 0xffff_ffff].map(|value| compare(0, SeccompCmpOp::Ne, value));
    let usual = usual.into_iter().collect::<Result<Vec<_>, _>>()?;
    rules.insert(libc::SYS_personality, vec![SeccompRule::new(usual)?]);
    // Landlock keeps signals inside from Linux 6.12 on. Before that, at least these numbers get none.
    for call in [libc::SYS_kill, libc::SYS_tgkill, libc::SYS_tkill] {
        rules.insert(call, untouchable(situation)?);
    }
    Ok(rules)
}

const IOPRIO_WHO_PROCESS: i64 = 1;
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;

/// Input for terminals, who is signalled by a file, and attributes of files, which Landlock does not look at.
const IOCTLS: &[i64] = &[
    0x5412,      // TIOCSTI
    0x541c,      // TIOCLINUX
    0x8901,      // FIOSETOWN
    0x8902,      // SIOCSPGRP
    0x4008_6602, // FS_IOC_SETFLAGS
    0x4004_6602, // FS_IOC32_SETFLAGS
    0x401c_5820, // FS_IOC_FSSETXATTR
];

/// No sockets at all, or only those of IP and the list of addresses that names are looked up with. Sockets of this
/// machine's services (`AF_UNIX`, a container engine's for one) are never open.
fn sockets(network: Reach) -> Result<Vec<SeccompRule>, BackendError> {
    match network {
        Reach::None => Ok(Vec::new()),
        Reach::Internet => {
            let open = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
            let other = open.map(|family| compare(0, SeccompCmpOp::Ne, i64::from(family)));
            let other = SeccompRule::new(other.into_iter().collect::<Result<_, _>>()?)?;
            let netlink = compare(0, SeccompCmpOp::Eq, i64::from(libc::AF_NETLINK))?;
            let route = compare(2, SeccompCmpOp::Ne, i64::from(libc::NETLINK_ROUTE))?;
            Ok(vec![other, SeccompRule::new(vec![netlink, route])?])
        }
    }
}

/// Pairs are open, but not of datagrams: either end could send to any socket of this machine by its path. No condition
/// says "masked and different", so every other kind is refused by itself; the flags in the higher bits do not matter.
fn pairs() -> Result<Vec<SeccompRule>, BackendError> {
    let open = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET].map(i32::unsigned_abs);
    let refused = (0..16u32).filter(|kind| !open.contains(kind));
    refused.map(|kind| masked(1, 0xf, u64::from(kind))).collect()
}

/// `clone` with any flag that makes a namespace. `clone3` hides its flags in memory, so it does not exist here.
fn namespaces() -> Result<Vec<SeccompRule>, BackendError> {
    let flags = [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
    ];
    flags.map(|flag| u64::from(flag.cast_unsigned())).into_iter().map(|flag| masked(0, flag, flag)).collect()
}

/// Every process above, the group that they are in, and everybody; in a process tree of its own the shim is all that is
/// above.
fn untouchable(situation: &Situation) -> Result<Vec<SeccompRule>, BackendError> {
    let mut numbers = vec![-1];
    // Its group is the shim's, too, where the shim could not be kept out of sight.
    numbers.extend((!situation.has_own_processes).then_some(0));
    let mut above = Some(i64::from(getpid().as_raw_nonzero().get()));
    while let Some(process) = above.filter(|_| numbers.len() < MOST_ABOVE) {
        numbers.push(process);
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let (parent, group) = parse_stat(&stat);
        numbers.extend(group.map(|group| -group));
        above = parent;
    }
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into_iter().map(|number| equal(0, number)).collect()
}

/// How many numbers are looked after.
const MOST_ABOVE: usize = 64;

/// The parent and the group of a process; none where they are outside of this container. Taken from the file: rustix
/// counts on numbers that are never 0. The name of a program may have spaces and brackets in it; what follows it has none.
fn parse_stat(stat: &str) -> (Option<i64>, Option<i64>) {
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut numbers =
        rest.split_whitespace().skip(1).map(|field| field.parse().ok().filter(|number| *number > 0));
    (numbers.next().flatten(), numbers.next().flatten())
}

/// A rule for one argument that has this value.
fn equal(position: u8, value: i64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![compare(position, SeccompCmpOp::Eq, value)?])
}

/// A rule for one argument that has any other value.
fn other_than(position: u8, value: i64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![compare(position, SeccompCmpOp::Ne, value)?])
}

/// A rule for one argument that has this value in these of its bits.
fn masked(position: u8, mask: u64, value: u64) -> Result<SeccompRule, BackendError> {
    let how = SeccompCmpOp::MaskedEq(mask);
    SeccompRule::new(vec![SeccompCondition::new(position, SeccompCmpArgLen::Dword, how, value)?])
}

/// Compares an argument as 32 bits, as the kernel reads these.
fn compare(position: u8, how: SeccompCmpOp, value: i64) -> Result<SeccompCondition, BackendError> {
    let bits = value.cast_unsigned() & 0xffff_ffff;
    SeccompCondition::new(position, SeccompCmpArgLen::Dword, how, bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server whose parent has a group outside of its container is confined all the same.
    #[test]
    fn a_group_outside_of_the_container_is_none() {
        assert_eq!(parse_stat("7 (sh) S 1 7 7 0 -1"), (Some(1), Some(7)));
        assert_eq!(parse_stat("1 (a) b (c) S 0 0 0 0 -1"), (None, None));
        assert_eq!(parse_stat("nonsense"), (None, None));
    }

    /// T24: what reaches other processes by a number is in no list, or refused by its arguments.
    #[test]
    fn what_is_refused_for_any_argument_is_not_listed() {
        for call in REFUSED.iter().chain([&libc::SYS_clone3]) {
            assert!(!LISTED.contains(call) && !LISTED_HERE.contains(call), "{call}");
        }
        let marks = MARKS_FILES.iter().chain(MARKS_FILES_HERE);
        let listed: Vec<_> = LISTED.iter().chain(LISTED_NUMBERS).chain(LISTED_HERE).collect();
        for call in marks {
            assert!(
                listed.contains(&call),
                "{call} is refused where there are no own mounts, and missing otherwise"
            );
        }
    }
}

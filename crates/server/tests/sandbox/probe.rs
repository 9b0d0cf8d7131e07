//! A program inside tries to get out: more than 120 attempts by the kernel's own rules (T24, T26).
//!
//! What it tries is `corpus/probe.py`; what is right is decided here.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use standfast_core::body::Body;
use standfast_core::message::ToolResult;
use standfast_engine::tool::{Outcome, Tool};
use standfast_tools::command::{CommandOptions, CommandTool};
use standfast_tools::sandbox::Isolation;

use super::tooling::invocation;
use super::{Place, Who, shell};

const PROBE: &str = include_str!("../corpus/probe.py");

/// T24, T26: a program inside tries more than 120 ways out, as root and as another user, with namespaces of its own and
/// without. Each is refused by the kernel; what a command needs still works; nobody outside is touched.
#[tokio::test]
async fn t24_a_program_inside_finds_no_way_out() {
    for who in Who::all() {
        for isolation in [Isolation::Namespaces, Isolation::Strict] {
            a_probe(who, isolation).await;
        }
    }
}

async fn a_probe(who: Who, isolation: Isolation) {
    let place = Place::new();
    let Some(tool) = who.tool(&place, CommandOptions { isolation, output_limit: 1 << 20, ..place.options() })
    else {
        return;
    };
    std::fs::write(place.at("work/probe.py"), PROBE).unwrap();
    std::fs::create_dir(place.at("other-tenant/empty")).unwrap();
    let heard = std::os::unix::net::UnixDatagram::bind(place.at("other-tenant/s")).unwrap();
    std::fs::set_permissions(place.at("other-tenant/s"), std::fs::Permissions::from_mode(0o777)).unwrap();
    heard.set_nonblocking(true).unwrap();
    let mut bystander = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let has_namespaces = isolation == Isolation::Namespaces && has_namespaces(&tool).await;
    let told = json!({
        "calls": calls(),
        "server": bystander.id(),
        "file": place.at("other-tenant/theirs.txt"),
        "directory": place.at("other-tenant"),
        "secret": place.at("data/keys"),
        "socket": place.at("other-tenant/s"),
        "mounts": has_namespaces,
    });
    let before = std::fs::metadata(place.at("other-tenant/theirs.txt")).unwrap();
    let arguments = json!({ "argv": ["/usr/bin/python3", "probe.py", told.to_string()] });
    let Outcome::Done(ToolResult::Ok(Body::Json(said))) = tool.run(invocation(&arguments)).await else {
        panic!("{who:?} {isolation:?}: the probe did not run")
    };
    let said: Value = serde_json::from_str(said.text()).unwrap();
    assert_eq!(said["exit_code"], 0, "{who:?} {isolation:?}: {said}");
    let mut refused = 0;
    let mut wrong = Vec::new();
    for line in said["stdout"].as_str().unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let (name, outcome) = (line["name"].as_str().unwrap(), line["outcome"].as_str().unwrap());
        let first = name.split([' ', '(']).next().unwrap();
        let is_right = if name == "processes in sight" {
            // The shim and the probe.
            !has_namespaces || outcome == "2"
        } else if name.starts_with("own: ") {
            outcome == "worked"
        } else if calls().get(first).is_some() {
            refused += 1;
            // Any other error would be the kernel's opinion of the arguments, not of who asks.
            ["refused EPERM", "refused ENOSYS", "refused ESRCH"].contains(&outcome)
        } else {
            refused += 1;
            outcome.starts_with("refused ")
        };
        if !is_right {
            wrong.push(format!("{name}: {outcome}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new(), "{who:?} {isolation:?}");
    assert!(refused >= 120, "only {refused} attempts");
    assert!(bystander.try_wait().unwrap().is_none(), "the bystander is gone");
    bystander.kill().unwrap();
    bystander.wait().unwrap();
    assert_eq!(std::fs::read_to_string("/proc/self/limits").unwrap(), limits);
    assert!(heard.recv(&mut [0; 8]).is_err(), "a datagram came out");
    let after = std::fs::metadata(place.at("other-tenant/theirs.txt")).unwrap();
    assert_eq!(
        (before.permissions(), before.modified().unwrap()),
        (after.permissions(), after.modified().unwrap())
    );
    println!("{who:?}, {isolation:?} (namespaces: {has_namespaces}): {refused} attempts, none worked");
}

/// Whether this kernel gives a command a process tree of its own: then the shim is its first process.
async fn has_namespaces(tool: &CommandTool) -> bool {
    let said = shell(tool, "echo $PPID").await;
    let has = said["stdout"] == "1\n";
    if !has {
        println!("no namespaces on this machine: the stricter rules are what is shown");
    }
    has
}

/// The numbers of the system calls that the probe makes, on this architecture.
fn calls() -> Value {
    let all = [
        ("acct", libc::SYS_acct),
        ("add_key", libc::SYS_add_key),
        ("adjtimex", libc::SYS_adjtimex),
        ("bpf", libc::SYS_bpf),
        ("chroot", libc::SYS_chroot),
        ("clock_adjtime", libc::SYS_clock_adjtime),
        ("clock_settime", libc::SYS_clock_settime),
        ("clone", libc::SYS_clone),
        ("clone3", libc::SYS_clone3),
        ("delete_module", libc::SYS_delete_module),
        ("fanotify_init", libc::SYS_fanotify_init),
        ("finit_module", libc::SYS_finit_module),
        ("fsconfig", libc::SYS_fsconfig),
        ("fsmount", libc::SYS_fsmount),
        ("fsopen", libc::SYS_fsopen),
        ("fspick", libc::SYS_fspick),
        ("init_module", libc::SYS_init_module),
        ("io_uring_enter", libc::SYS_io_uring_enter),
        ("io_uring_register", libc::SYS_io_uring_register),
        ("io_uring_setup", libc::SYS_io_uring_setup),
        ("ioprio_set", libc::SYS_ioprio_set),
        ("kcmp", libc::SYS_kcmp),
        ("kexec_load", libc::SYS_kexec_load),
        ("keyctl", libc::SYS_keyctl),
        ("kill", libc::SYS_kill),
        ("migrate_pages", libc::SYS_migrate_pages),
        ("mount", libc::SYS_mount),
        ("mount_setattr", libc::SYS_mount_setattr),
        ("move_mount", libc::SYS_move_mount),
        ("move_pages", libc::SYS_move_pages),
        ("mq_open", libc::SYS_mq_open),
        ("mq_unlink", libc::SYS_mq_unlink),
        ("msgctl", libc::SYS_msgctl),
        ("msgget", libc::SYS_msgget),
        ("msgrcv", libc::SYS_msgrcv),
        ("msgsnd", libc::SYS_msgsnd),
        ("name_to_handle_at", libc::SYS_name_to_handle_at),
        ("open_by_handle_at", libc::SYS_open_by_handle_at),
        ("open_tree", libc::SYS_open_tree),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("personality", libc::SYS_personality),
        ("pidfd_getfd", libc::SYS_pidfd_getfd),
        ("pidfd_send_signal", libc::SYS_pidfd_send_signal),
        ("pivot_root", libc::SYS_pivot_root),
        ("prlimit64", libc::SYS_prlimit64),
        ("process_madvise", libc::SYS_process_madvise),
        ("process_vm_readv", libc::SYS_process_vm_readv),
        ("process_vm_writev", libc::SYS_process_vm_writev),
        ("ptrace", libc::SYS_ptrace),
        ("quotactl", libc::SYS_quotactl),
        ("reboot", libc::SYS_reboot),
        ("request_key", libc::SYS_request_key),
        ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo),
        ("rt_tgsigqueueinfo", libc::SYS_rt_tgsigqueueinfo),
        ("sched_setaffinity", libc::SYS_sched_setaffinity),
        ("sched_setattr", libc::SYS_sched_setattr),
        ("sched_setparam", libc::SYS_sched_setparam),
        ("sched_setscheduler", libc::SYS_sched_setscheduler),
        ("semctl", libc::SYS_semctl),
        ("semget", libc::SYS_semget),
        ("semop", libc::SYS_semop),
        ("setdomainname", libc::SYS_setdomainname),
        ("sethostname", libc::SYS_sethostname),
        ("setns", libc::SYS_setns),
        ("setpriority", libc::SYS_setpriority),
        ("settimeofday", libc::SYS_settimeofday),
        ("shmat", libc::SYS_shmat),
        ("shmctl", libc::SYS_shmctl),
        ("shmdt", libc::SYS_shmdt),
        ("shmget", libc::SYS_shmget),
        ("socket", libc::SYS_socket),
        ("socketpair", libc::SYS_socketpair),
        ("swapoff", libc::SYS_swapoff),
        ("swapon", libc::SYS_swapon),
        ("syslog", libc::SYS_syslog),
        ("tgkill", libc::SYS_tgkill),
        ("tkill", libc::SYS_tkill),
        ("umount2", libc::SYS_umount2),
        ("unshare", libc::SYS_unshare),
        ("userfaultfd", libc::SYS_userfaultfd),
        ("vhangup", libc::SYS_vhangup),
    ];
    Value::Object(all.into_iter().map(|(name, number)| (name.to_owned(), number.into())).collect())
}

"""Tries to get out of the sandbox, from inside: more than 120 attempts, by the kernel's own rules.

Arguments: a JSON object with the numbers of system calls (`calls`), the number of the server's process (`server`), paths
outside of the workspace (`file`, `directory`, `secret`, `socket`) and whether there are own mounts (`mounts`). Prints one
JSON object for each attempt: its name, and what came of it. Whoever reads it decides what is right. Signals are always
number 0, and every argument is harmless: a hole must show, not do damage.
"""
import ctypes
import json
import os
import socket
import struct
import sys

told = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
parent, server = os.getppid(), told["server"]


def report(name, outcome):
    print(json.dumps({"name": name, "outcome": outcome}), flush=True)


def attempt(name, action):
    """`refused` with the error's name, or `worked`."""
    import errno

    try:
        action()
    except OSError as error:
        return report(name, "refused " + errno.errorcode.get(error.errno, str(error.errno)))
    except PermissionError:
        return report(name, "refused EPERM")
    report(name, "worked")


def call(name, *arguments):
    """A raw system call; an error becomes an exception."""
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(told["calls"][name]), *[
        ctypes.c_long(value) if isinstance(value, int) else value for value in arguments
    ])
    if result == -1:
        raise OSError(ctypes.get_errno(), name)
    return result


def raw(name, *arguments, label=None):
    attempt(label or f"{name}{arguments if arguments else ''}", lambda: call(name, *arguments))


# What is closed whatever its arguments are.
for name in [
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "pidfd_send_signal",
    "rt_sigqueueinfo", "rt_tgsigqueueinfo", "kcmp", "migrate_pages", "move_pages", "shmat", "shmctl", "shmdt", "semop",
    "semctl", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink", "io_uring_setup", "io_uring_enter",
    "io_uring_register", "unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount",
    "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "open_by_handle_at", "name_to_handle_at", "bpf",
    "perf_event_open", "userfaultfd", "add_key", "request_key", "keyctl", "kexec_load", "init_module", "finit_module",
    "delete_module", "reboot", "swapon", "swapoff", "acct", "quotactl", "settimeofday", "clock_settime",
    "clock_adjtime", "adjtimex", "sethostname", "setdomainname", "syslog", "vhangup", "fanotify_init", "clone3",
]:
    raw(name, 0, 0, 0, 0, 0)
raw("shmget", 0, 4096, 0o1600)
raw("semget", 0, 1, 0o1600)
raw("msgget", 0, 0o1600)

# Limits, priorities and processors of others: the shim above, the server.
nothing = (ctypes.c_uint64 * 2)(0, 0)
for resource in range(16):
    raw("prlimit64", parent, resource, nothing, 0, label=f"prlimit64 of the shim, resource {resource}")
for resource in (1, 7):
    raw("prlimit64", server, resource, nothing, 0, label=f"prlimit64 of the server, resource {resource}")
raw("prlimit64", parent, 7, 0, nothing, label="prlimit64 of the shim, to read")
for who in (parent, server):
    raw("setpriority", 0, who, 19)
    raw("ioprio_set", 1, who, 0)
    raw("sched_setaffinity", who, 8, (ctypes.c_uint64 * 1)(1), label=f"sched_setaffinity {who}")
    raw("sched_setscheduler", who, 0, (ctypes.c_int * 1)(0), label=f"sched_setscheduler {who}")
    raw("sched_setparam", who, (ctypes.c_int * 1)(0), label=f"sched_setparam {who}")
    raw("sched_setattr", who, (ctypes.c_uint32 * 16)(48), 0, label=f"sched_setattr {who}")
    raw("kill", who, 0)
    raw("tgkill", who, who, 0)
    raw("tkill", who, 0)
    attempt(f"F_SETOWN {who}", lambda: __import__("fcntl").fcntl(0, 8, who))
raw("setpriority", 1, 0, 19)
raw("setpriority", 2, 0, 19)
raw("ioprio_set", 2, 0, 0)
raw("ioprio_set", 3, 0, 0)
raw("kill", -1, 0)
attempt("F_SETSIG", lambda: __import__("fcntl").fcntl(0, 10, 9))
raw("personality", 0x0040000)

# Namespaces, one by one.
for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
    def cloned(flag=flag):
        if call("clone", flag | 17, 0, 0, 0, 0) == 0:
            os._exit(0)

    attempt(f"clone {flag:#x}", cloned)
    raw("unshare", flag)

# Sockets.
for family in (1, 2, 10, 15, 16, 17, 21, 29, 30, 31, 38, 40, 44):
    raw("socket", family, 1, 0)
    raw("socket", family, 2, 0)


def datagram():
    mine, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    mine.sendto(b"x", told["socket"])


attempt("datagram to a socket of the machine", datagram)
raw("socketpair", 1, 2, 0, (ctypes.c_int * 2)())

# Files outside: contents, names, modes, owners, times, attributes.
file, directory = told["file"], told["directory"]
for name, action in {
    "write": lambda: os.open(file, os.O_WRONLY),
    "append": lambda: os.open(file, os.O_WRONLY | os.O_APPEND),
    "truncate by opening": lambda: os.open(file, os.O_RDONLY | os.O_TRUNC),
    "truncate": lambda: os.truncate(file, 0),
    "read": lambda: os.open(file, os.O_RDONLY),
    "read a secret": lambda: os.open(told["secret"], os.O_RDONLY),
    "make": lambda: os.open(directory + "/new", os.O_WRONLY | os.O_CREAT),
    "make what is missing": lambda: os.open(directory + "/config.yaml", os.O_WRONLY | os.O_CREAT),
    "remove": lambda: os.unlink(file),
    "rename away": lambda: os.rename(file, "taken"),
    "rename over": lambda: os.rename("mine.txt", file),
    "link in": lambda: os.link(file, "hard"),
    "link out": lambda: os.link("mine.txt", directory + "/hard"),
    "symlink": lambda: os.symlink("x", directory + "/soft"),
    "mkdir": lambda: os.mkdir(directory + "/made"),
    "rmdir": lambda: os.rmdir(directory + "/empty"),
    "mkfifo": lambda: os.mkfifo(directory + "/fifo"),
    "device": lambda: os.mknod("device", 0o20666, os.makedev(1, 1)),
    "chmod": lambda: os.chmod(file, 0o777),
    "chmod of a directory": lambda: os.chmod(directory, 0o777),
    "chown": lambda: os.chown(file, os.getuid(), os.getgid()),
    "lchown": lambda: os.lchown(file, os.getuid(), os.getgid()),
    "utime": lambda: os.utime(file, (1, 1)),
    "utime of a directory": lambda: os.utime(directory, (1, 1)),
    "setxattr": lambda: os.setxattr(file, "user.x", b"y"),
    "removexattr": lambda: os.removexattr(file, "user.there"),
    "fchmod of a readable file": lambda: os.fchmod(os.open("/etc/passwd", os.O_RDONLY), 0o644),
    "futimens of a readable file": lambda: os.utime(os.open("/etc/passwd", os.O_RDONLY), (1, 1)),
    "chmod of a system file": lambda: os.chmod("/etc/passwd", 0o644),
    "list": lambda: os.listdir(directory),
    "shadow": lambda: os.open("/etc/shadow", os.O_RDONLY),
    "root's home": lambda: os.listdir("/root"),
    "temporary files": lambda: os.open("/tmp/standfast-probe", os.O_WRONLY | os.O_CREAT),
    "hostname": lambda: os.open("/proc/sys/kernel/hostname", os.O_WRONLY),
    "core pattern": lambda: os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY),
    "sysrq": lambda: os.open("/proc/sysrq-trigger", os.O_WRONLY),
    "memory of the machine": lambda: os.open("/dev/mem", os.O_RDONLY),
    "messages of the kernel": lambda: os.open("/dev/kmsg", os.O_RDONLY),
    "control groups": lambda: os.open("/sys/fs/cgroup/cgroup.procs", os.O_WRONLY),
    "control groups of tasks": lambda: os.open("/sys/fs/cgroup/pids/cgroup.procs", os.O_WRONLY),
    "pipe of the shim": lambda: os.open(f"/proc/{parent}/fd/0", os.O_RDONLY),
}.items():
    attempt(name, action)

# Other processes, in /proc.
for process in (parent, server):
    for entry in ("environ", "mem", "root/etc/hostname", "cwd/mine.txt", "fd/1", "maps", "oom_score_adj"):
        mode = os.O_WRONLY if entry == "oom_score_adj" else os.O_RDONLY
        attempt(f"/proc/{process}/{entry}", lambda: os.open(f"/proc/{process}/{entry}", mode))
attempt("command line of the server", lambda: open(f"/proc/{server}/cmdline").read())
attempt("status of the server", lambda: open(f"/proc/{server}/status").read())

# What has to work, so that a refusal means something.
def child():
    number = os.fork()
    if number == 0:
        os.pause() if hasattr(os, "pause") else __import__("signal").pause()
        os._exit(0)
    os.kill(number, 15)
    os.waitpid(number, 0)


for name, action in {
    "own: signal a child": child,
    "own: write": lambda: os.write(os.open("own", os.O_WRONLY | os.O_CREAT), b"x"),
    "own: limit": lambda: call("prlimit64", 0, 4, 0, nothing),
    "own: priority": lambda: call("setpriority", 0, 0, 5),
    "own: pair": lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM),
    "own: thread": lambda: __import__("threading").Thread(target=lambda: None).start(),
    "own: temporary file": lambda: __import__("tempfile").mkstemp(),
}.items():
    attempt(name, action)
if told["mounts"]:
    attempt("own: chmod", lambda: os.chmod("own", 0o600))
    attempt("own: utime", lambda: os.utime("own", (1, 1)))
else:
    attempt("chmod without own mounts", lambda: os.chmod("own", 0o600))
processes = [name for name in os.listdir("/proc") if name.isdigit()] if told["mounts"] else []
report("processes in sight", str(len(processes)))

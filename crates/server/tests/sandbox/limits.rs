//! What is bounded: processes, memory, files and what is written in all (F27), and whose the files are in the end.
//!
//! Each as root, as root where no control group counts, and as another user.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use standfast_tools::command::CommandOptions;
use standfast_tools::sandbox::Confinement;

use super::{Place, Who, processes_with, rounds, shell, wait_until, with};

/// F27: a fork bomb, a slow and a fast one, is stopped when it has too many processes, never has many more than that where
/// the kernel counts them, and nothing of it is left.
#[tokio::test]
async fn f27_a_fork_bomb_ends_at_the_limit() {
    for _ in 0..rounds() {
        for who in Who::all() {
            for (confinement, pause) in
                [(Confinement::Off, "sleep 0.01;"), (Confinement::On, "sleep 0.01;"), (Confinement::On, "")]
            {
                a_fork_bomb(who, confinement, pause).await;
            }
        }
    }
}

async fn a_fork_bomb(who: Who, confinement: Confinement, pause: &str) {
    let place = Place::new();
    let options = CommandOptions { process_limit: 20, confinement, ..place.options() };
    let Some(tool) = who.tool(&place, options) else { return };
    let word = format!("3000.{}{}", std::process::id(), pause.len());
    let script = format!("while true; do setsid sleep {word} & {pause} done");
    let call = tokio::spawn(async move { shell(&tool, &script).await });
    let mut most = 0;
    while !call.is_finished() {
        most = most.max(processes_with(&word).len());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let result = call.await.unwrap();
    // The kernel may have been faster than whoever counts.
    let is_refused = result["stderr"].as_str().unwrap().contains("annot fork");
    assert!(result["too_many_processes"] == true || is_refused, "{who:?} {confinement:?}: {result}");
    wait_until(|| processes_with(&word).is_empty()).await;
    // Four tasks for each process that is allowed, and the shim's own.
    if confinement == Confinement::On {
        assert!(most <= 4 * 20 + 16, "{most} at a time for {who:?}");
    }
    println!("{who:?}, {confinement:?}: {most} processes at most");
}

/// F27: memory and files have their limits too.
#[tokio::test]
async fn f27_memory_and_files_are_bounded() {
    for who in Who::all() {
        let place = Place::new();
        let options = CommandOptions { memory_limit: 150 << 20, file_limit: 1 << 20, ..place.options() };
        let Some(tool) = who.tool(&place, options) else { continue };
        let within = shell(&tool, "python3 -c 'x = bytearray(20 << 20); print(len(x))'").await;
        assert_eq!(within["stdout"], "20971520\n", "{who:?}: {within}");
        let beyond = shell(&tool, "python3 -c 'x = bytearray(600 << 20); print(len(x))'").await;
        assert_ne!(beyond["exit_code"], 0, "{who:?}: {beyond}");
        assert_eq!(beyond["stdout"], "", "{who:?}: {beyond}");
        shell(&tool, "head -c 5000000 /dev/zero > large; true").await;
        let large = std::fs::metadata(place.at("work/large")).unwrap().len();
        assert!(large <= 1 << 20, "{large} bytes");
    }
}

/// F27: where this process may make control groups, a command is in groups of its own, and its memory is counted for all of its
/// processes together: two of them, each of which would fit, do not.
#[tokio::test]
async fn f27_control_groups_count_all_processes_together() {
    let place = Place::new();
    let options = CommandOptions { memory_limit: 300 << 20, process_limit: 20, ..place.options() };
    let Some(tool) = with(options) else { return };
    let seen = shell(&tool, "cat /proc/self/cgroup").await;
    let is_in_own_group = |controller: &str| {
        let groups = seen["stdout"].as_str().unwrap().lines();
        let mut of_controller = groups.filter(|line| line.contains(&format!(":{controller}:")));
        of_controller.any(|line| line.contains("standfast-command-"))
    };
    for controller in ["memory", "pids"] {
        let may = may_make_a_group(controller);
        println!("a group of version 1 for {controller} can be made here: {may}");
        assert!(!may || is_in_own_group(controller), "{controller}: {seen}");
    }
    if !is_in_own_group("memory") {
        return;
    }
    let two = "import os, signal\nready, tell = os.pipe()\nfirst = os.fork()\nif first == 0:\n    held = b'x' * (200 << 20)\n    \
               os.write(tell, b'1')\n    signal.pause()\nos.read(ready, 1)\nsecond = os.fork()\nif second == 0:\n    \
               held = b'x' * (200 << 20)\n    os._exit(0)\n_, status = os.wait()\nprint(os.WIFSIGNALED(status), flush=True)\n\
               os.kill(first, 9)\nos._exit(0)\n";
    std::fs::write(place.at("work/two.py"), two).unwrap();
    let said = shell(&tool, "/usr/bin/python3 two.py").await;
    assert_eq!(said["stdout"], "True\n", "{said}");
}

/// Whether there can be a group of version 1 below the one of this process.
fn may_make_a_group(controller: &str) -> bool {
    let mine = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some((_, own)) = mine.lines().find_map(|line| line.split_once(&format!(":{controller}:"))) else {
        return false;
    };
    let group = format!("/sys/fs/cgroup/{controller}{own}/tried-{}", std::process::id());
    std::fs::create_dir(&group).is_ok_and(|()| std::fs::remove_dir(&group).is_ok())
}

/// F27: root without control groups: the kernel itself stops a fork bomb, whoever counts or not, because the command is
/// another user for it. Seen from inside and on disk it is the same user as the server.
#[tokio::test]
async fn f27_root_without_control_groups_is_bound_by_a_user_of_its_own() {
    if !rustix::process::geteuid().is_root() {
        println!("not root: there is nothing to show");
        return;
    }
    let place = Place::new();
    let options = CommandOptions { process_limit: 20, ..place.options() };
    let Some(tool) = Who::WithoutGroups.tool(&place, options) else { return };
    // Threads are tasks, and no processes: only the kernel counts them.
    let tasks = "import os, threading, time\nthreading.stack_size(1 << 18)\nmade = 0\ntry:\n    for _ in range(2000):\n        \
                 threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n        made += 1\n\
                 except RuntimeError:\n    pass\nprint(made, flush=True)\nos._exit(0)\n";
    std::fs::write(place.at("work/tasks.py"), tasks).unwrap();
    let said = shell(&tool, "/usr/bin/python3 tasks.py").await;
    let made: usize = said["stdout"].as_str().unwrap().trim().parse().unwrap_or(0);
    assert!((20..=4 * 20 + 16).contains(&made), "{made} tasks: {said}");
    println!("{made} tasks, then the kernel said no");
    let said = shell(
        &tool,
        "id -u; stat -c %u . mine.txt; echo x > made; mkdir -p deep/er; cp mine.txt deep/er/; ln -s made link; \
         chown 1234 mine.txt; stat -c %u mine.txt; t=$(mktemp); stat -c %u $t; cat /proc/self/uid_map | wc -l",
    )
    .await;
    assert_eq!(said["stdout"], "0\n0\n0\n1234\n0\n4\n", "{said}");
    for path in ["work", "work/made", "work/deep", "work/deep/er", "work/deep/er/mine.txt", "work/link"] {
        let owner = std::fs::symlink_metadata(place.at(path)).unwrap();
        assert_eq!((owner.uid(), owner.gid()), (0, 0), "{path}");
    }
    assert_eq!(std::fs::metadata(place.at("work/mine.txt")).unwrap().uid(), 1234);
}

/// F27: what a command writes is bounded in all, not only file by file; what it wrote and removed counts.
#[tokio::test]
async fn f27_what_is_written_is_bounded_in_all() {
    for who in Who::all() {
        let place = Place::new();
        let options = CommandOptions { disk_limit: 32 << 20, ..place.options() };
        let Some(tool) = who.tool(&place, options) else { continue };
        let within =
            shell(&tool, "for i in 1 2 3 4; do head -c 4000000 /dev/zero > f$i; done; sync; sleep 0.3").await;
        assert_eq!(within["exit_code"], 0, "{who:?}: {within}");
        for script in [
            "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); head -c 1000000 /dev/zero > g$i; sleep 0.01; done",
            "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); head -c 1000000 /dev/zero > $TMPDIR/h; rm $TMPDIR/h; sleep 0.01; \
             done",
            "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); fallocate -l 1000000 h$i || exit 3; sleep 0.01; done",
        ] {
            let beyond = shell(&tool, script).await;
            let is_refused = script.contains("fallocate") && beyond["exit_code"] == 3;
            assert!(beyond["wrote_too_much"] == true || is_refused, "{who:?} {script}: {beyond}");
            if !is_refused {
                let note = beyond["note"].as_str().unwrap();
                assert!(note.contains("more than 33554432 bytes") && note.contains("`max_disk`"), "{note}");
            }
        }
        let all = bytes_below(&place.at("work"));
        assert!(all < 512 << 20, "{who:?}: {all} bytes are there");
    }
}

/// F27: temporary files in memory have the same bound: nothing counts them as written.
#[tokio::test]
async fn f27_temporary_files_in_memory_are_bounded() {
    if !rustix::process::geteuid().is_root() {
        println!("not root: nothing can be put into memory here");
        return;
    }
    let place = Place::new();
    let options = CommandOptions { disk_limit: 8 << 20, ..place.options() };
    if with(options.clone()).is_none() {
        return;
    }
    // A place of its own: the tests, their workspace and the program may all be below /tmp.
    let memory = place.at("memory");
    std::fs::create_dir(&memory).unwrap();
    let words = format!(
        "unshare --mount --propagation private sh -c 'mount -t tmpfs none {0} && TMPDIR={0} exec \"$@\"' sh",
        memory.display()
    );
    let wrapper = place.wrapper("tmp-in-memory", &words);
    let tool = standfast_tools::command::CommandTool::through(options, wrapper).unwrap();
    let said = shell(
        &tool,
        "head -c 4000000 /dev/zero > $TMPDIR/a && echo fits; head -c 40000000 /dev/zero > $TMPDIR/b",
    )
    .await;
    assert_eq!(said["stdout"], "fits\n", "{said}");
    assert!(said["stderr"].as_str().unwrap().contains("No space left on device"), "{said}");
    assert_ne!(said["exit_code"], 0, "{said}");
}

fn bytes_below(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    entries.map(|entry| entry.metadata().map_or(0, |meta| meta.blocks() * 512)).sum()
}

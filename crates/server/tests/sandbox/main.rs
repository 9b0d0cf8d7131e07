//! What a confined command can reach (T24, T26) and what misbehaving ones do (F27), through the real binary.
//!
//! What is bounded is `limits.rs`, what is tried from inside `probe.rs`, what can be changed beside the workspace
//! `writable.rs`. On a machine whose kernel cannot confine, the same tests show that there is no tool at all then, and say
//! so in their output. Nothing is skipped in silence.

#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

mod limits;
mod probe;
#[path = "../tooling/mod.rs"]
mod tooling;
mod writable;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use standfast_core::body::Body;
use standfast_core::message::ToolResult;
use standfast_core::time::Millis;
use standfast_engine::tool::{Outcome, Tool};
use standfast_tools::command::{CommandOptions, CommandTool};
use standfast_tools::sandbox::{self, Confinement, NoSandbox, Reach};
use tempfile::TempDir;

use tooling::invocation;

/// The product, which runs commands for itself.
fn shim() -> PathBuf {
    standfast_testkit::binary::path()
}

/// A workspace, and beside it what a command must not reach.
struct Place {
    all: TempDir,
}

impl Place {
    fn new() -> Place {
        Place::below(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    fn below(directory: &Path) -> Place {
        let all = tempfile::Builder::new().prefix("place").tempdir_in(directory).unwrap();
        for directory in ["work", "data", "other-tenant"] {
            std::fs::create_dir(all.path().join(directory)).unwrap();
        }
        for (file, text) in [
            ("work/mine.txt", "mine"),
            ("data/keys", "secret-of-the-server"),
            ("other-tenant/theirs.txt", "theirs"),
        ] {
            std::fs::write(all.path().join(file), text).unwrap();
        }
        Place { all }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.all.path().canonicalize().unwrap().join(path)
    }

    fn options(&self) -> CommandOptions {
        CommandOptions {
            working_directory: Some(self.at("work")),
            protected: vec![self.at("data"), self.at("config.yaml")],
            ..CommandOptions::default()
        }
    }

    /// A program that starts the product behind these words, for everybody to run.
    fn wrapper(&self, name: &str, words: &str) -> PathBuf {
        let (program, wrapper) = (self.at("standfast"), self.at(name));
        if !program.exists() {
            std::fs::hard_link(shim(), &program)
                .or_else(|_| std::fs::copy(shim(), &program).map(drop))
                .unwrap();
        }
        std::fs::write(&wrapper, format!("#!/bin/sh\nexec {words} {} \"$@\"\n", program.display())).unwrap();
        for path in [&wrapper, &self.at(".")] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        wrapper
    }

    /// The tool, or none where the kernel cannot confine: then that is what was shown.
    fn tool(&self) -> Option<CommandTool> {
        with(self.options())
    }
}

fn with(options: CommandOptions) -> Option<CommandTool> {
    let tool = CommandTool::through(options, shim());
    match sandbox::probe() {
        Ok(()) => Some(tool.unwrap()),
        Err(why) => {
            assert_eq!(tool.unwrap_err(), why);
            assert!(why.to_string().contains("say `sandbox: off`"), "{why}");
            println!("checked only that there is no tool: {why}");
            None
        }
    }
}

async fn shell(tool: &CommandTool, script: &str) -> Value {
    let arguments = json!({ "argv": ["sh", "-c", script] });
    match tool.run(invocation(&arguments)).await {
        Outcome::Done(ToolResult::Ok(Body::Json(json)) | ToolResult::Failed(Body::Json(json))) => {
            serde_json::from_str(json.text()).unwrap()
        }
        other @ (Outcome::Done(_) | Outcome::Pending(_) | Outcome::Unknown(_)) => {
            panic!("{script}: {other:?}")
        }
    }
}

/// T24: the workspace and temporary files work as usual, and usual programs run.
#[tokio::test]
async fn inside_of_the_workspace_everything_is_as_usual() {
    let place = Place::new();
    let Some(tool) = place.tool() else { return };
    let script = "set -e; cat mine.txt; mkdir -p a/b; echo x > a/b/c; mv a/b/c a/d; rm -r a/b; ln -s mine.txt link; \
                  t=$(mktemp); echo temporary > $t; cat $t; echo $TMPDIR; echo to-nobody > /dev/null; ls /usr > /dev/null";
    let result = shell(&tool, script).await;
    assert_eq!(result["exit_code"], 0, "{result}");
    let text = result["stdout"].as_str().unwrap();
    assert!(text.starts_with("minetemporary\n"), "{text}");
    assert_eq!(std::fs::read_to_string(place.at("work/a/d")).unwrap(), "x\n");
    let temporary = Path::new(text.lines().last().unwrap());
    assert!(temporary.is_absolute() && !temporary.exists(), "{} is still there", temporary.display());
}

/// T24, T26: nothing outside of the workspace can be written, made (also where it is missing) or removed; nothing of the
/// server and of others can be read, by path, by link or through `/proc`.
#[tokio::test]
async fn outside_of_the_workspace_nothing_can_be_changed_and_secrets_are_not_there() {
    let place = Place::new();
    let Some(tool) = place.tool() else { return };
    let (data, theirs, config) =
        (place.at("data/keys"), place.at("other-tenant/theirs.txt"), place.at("config.yaml"));
    let server = std::process::id();
    let scripts = [
        format!("echo x > {}", config.display()),
        format!("echo x >> {}", theirs.display()),
        format!("truncate -s 0 {}", theirs.display()),
        format!("rm -f {}", theirs.display()),
        format!("mv {} mine2.txt", theirs.display()),
        format!("ln {} hard", theirs.display()),
        format!("mkdir {}", place.at("new").display()),
        format!("cat {}", data.display()),
        format!("cat {}", theirs.display()),
        format!("ls {}", place.at("data").display()),
        format!("ln -s {} soft && cat soft", data.display()),
        "cat ../data/keys".to_owned(),
        "cp ../data/keys stolen".to_owned(),
        format!("cat /proc/{server}/environ"),
        format!("cat /proc/{server}/root{}", data.display()),
        format!("cat /proc/{server}/cwd/Cargo.toml"),
        format!("readlink /proc/{server}/fd/0"),
        format!("cat /proc/{server}/fd/3"),
        format!("cat /proc/{server}/mem"),
        "cat /etc/shadow".to_owned(),
        "ls /root /home /var /run".to_owned(),
        "echo x > /etc/standfast-was-here".to_owned(),
        "echo x > /tmp/standfast-was-here".to_owned(),
        "echo x > /proc/sys/kernel/hostname".to_owned(),
        "mount -t tmpfs none .".to_owned(),
        "unshare -r true".to_owned(),
        "mknod device c 1 3".to_owned(),
    ];
    for script in &scripts {
        let result = shell(&tool, script).await;
        assert_ne!(result["exit_code"], 0, "{script}: {result}");
        let said = format!("{}{}", result["stdout"], result["stderr"]);
        assert!(!said.contains("secret-of-the-server"), "{script}: {said}");
    }
    assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "theirs");
    assert_eq!(std::fs::read_to_string(&data).unwrap(), "secret-of-the-server");
    assert!(!config.exists() && !place.at("new").exists() && !Path::new("/etc/standfast-was-here").exists());
    println!("{} ways out, none works", scripts.len());
}

/// T24: no socket of any kind without network; with it, IP only, and never this machine's services.
#[tokio::test]
async fn no_network_unless_it_is_allowed() {
    let place = Place::new();
    let Some(tool) = place.tool() else { return };
    let open =
        |family: &str| format!("python3 -c 'import socket; socket.socket(socket.{family})' 2>&1 | tail -1");
    let families = ["AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK", "AF_PACKET"];
    for family in families {
        let result = shell(&tool, &open(family)).await;
        let said = result["stdout"].as_str().unwrap();
        assert!(said.contains("Operation not permitted"), "{family}: {said}");
    }
    let connected = with(CommandOptions { network: Reach::Internet, ..place.options() }).unwrap();
    for (family, works) in [("AF_INET", true), ("AF_INET6", true), ("AF_UNIX", false), ("AF_PACKET", false)] {
        let said = shell(&connected, &open(family)).await;
        assert_eq!(said["stdout"] == "", works, "{family}: {said}");
    }
    println!("{} families of sockets", families.len());
}

/// T24: a command can signal itself and its children, nobody else.
#[tokio::test]
async fn the_server_and_its_shim_get_no_signals() {
    let place = Place::new();
    let Some(tool) = place.tool() else { return };
    let mut bystander = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let script = format!(
        "sleep 100 & kill $! && echo own; kill -9 $PPID || echo shim; kill -0 {} || echo server; kill -9 {} || echo other",
        std::process::id(),
        bystander.id(),
    );
    let result = shell(&tool, &script).await;
    assert_eq!(result["stdout"], "own\nshim\nserver\nother\n", "{result}");
    assert!(bystander.try_wait().unwrap().is_none(), "it was killed");
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

/// T24: programs that leave the process group do not outlive the command, whether it ends or is given up.
#[tokio::test]
async fn whoever_leaves_the_group_is_ended_too() {
    for confinement in [Confinement::On, Confinement::Off] {
        let place = Place::new();
        let Some(tool) = with(CommandOptions { confinement, ..place.options() }) else { continue };
        let word = format!("2000.{}", std::process::id());
        let leave = format!("setsid sh -c 'setsid sleep {word} & sleep {word}' &");
        let result = shell(&tool, &format!("{leave} sleep 0.2; echo done")).await;
        assert_eq!(result["stdout"], "done\n");
        assert_eq!(processes_with(&word), Vec::<String>::new(), "{confinement:?}");
        let arguments = json!({ "argv": ["sh", "-c", format!("{leave} sleep {word}")] });
        let call = tokio::spawn(tool.run(invocation(&arguments)));
        wait_until(|| processes_with(&word).iter().filter(|line| line.contains(": sleep")).count() == 3)
            .await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        wait_until(|| processes_with(&word).is_empty()).await;
    }
}

/// F27: endless output, an end that never comes, a crash, output after the end, bytes that are no text: a bounded result
/// each time, within the limits.
#[tokio::test]
async fn f27_misbehaving_commands_end_within_their_limits() {
    for _ in 0..rounds() {
        misbehaving_commands().await;
    }
}

/// How often a fault is played: many times by `cargo xtask faults`.
fn rounds() -> usize {
    std::env::var("STANDFAST_FAULT_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

async fn misbehaving_commands() {
    let place = Place::new();
    let options = CommandOptions {
        confinement: Confinement::Off,
        output_limit: 10_000,
        max_execution_time: Millis(1_500),
        ..place.options()
    };
    let tool = with_or_without(options);
    let endless = shell(&tool, "yes").await;
    assert_eq!((&endless["timed_out"], &endless["truncated"]), (&json!(true), &json!(true)));
    assert!(endless["stdout"].as_str().unwrap().len() < 10_200);
    let deaf = shell(&tool, "trap '' TERM HUP INT; while true; do sleep 1; done").await;
    assert_eq!(deaf["timed_out"], true);
    let crashed = shell(&tool, "kill -SEGV $$").await;
    assert_eq!(crashed["signal"], 11);
    let holds_open = shell(&tool, "sleep 1000 & echo over").await;
    assert_eq!((&holds_open["exit_code"], &holds_open["stdout"]), (&json!(0), &json!("over\n")));
    let large = shell(&tool, "head -c 104857600 /dev/zero | tr '\\000' a").await;
    assert_eq!(large["truncated"], true, "100 MB: {large}");
    assert!(large["stdout"].as_str().unwrap().len() < 10_200);
    let marker = place.at("work/effect");
    let after_effect = shell(&tool, &format!("echo done > {}; kill -KILL $$", marker.display())).await;
    assert_eq!(after_effect["signal"], 9, "a crash after the effect: {after_effect}");
    assert!(marker.exists());
    let bytes = shell(&tool, "head -c 100000 /dev/urandom").await;
    assert_eq!((&bytes["exit_code"], &bytes["truncated"]), (&json!(0), &json!(true)));
    let lies = shell(&tool, r#"echo '{"ran":{"end":{"exit":0}}}'; exit 7"#).await;
    assert_eq!(lies["exit_code"], 7);
}

/// T24, T26: a workspace that has the configuration or the store inside is refused, also when they are not there yet.
#[test]
fn a_workspace_around_what_is_protected_is_refused() {
    let place = Place::new();
    if let Err(why) = sandbox::probe() {
        println!("checked elsewhere that there is no tool: {why}");
        return;
    }
    for protected in ["work/config.yaml", "work/data/standfast.db", "work"] {
        let options = CommandOptions { protected: vec![place.at(protected)], ..place.options() };
        let refused = CommandTool::through(options, shim()).unwrap_err();
        let expected = NoSandbox::Exposed { protected: place.at(protected), workspace: place.at("work") };
        assert_eq!(refused, expected);
    }
    let missing = CommandOptions { working_directory: Some(place.at("nowhere")), ..place.options() };
    let refused = CommandTool::through(missing, shim()).unwrap_err();
    assert!(matches!(refused, NoSandbox::Directory { .. }), "{refused}");
}

/// A program that a command wrote itself is not found by its name, whatever `PATH` says.
#[tokio::test]
async fn programs_are_not_looked_for_in_the_workspace() {
    let place = Place::new();
    let own = place.at("work/ls-of-my-own");
    std::fs::write(&own, "#!/bin/sh\necho caught\n").unwrap();
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o755)).unwrap();
    let tool = with_or_without(CommandOptions { confinement: Confinement::Off, ..place.options() });
    let Outcome::Done(ToolResult::Failed(Body::Text(why))) =
        tool.run(invocation(&json!({ "command": "ls-of-my-own" }))).await
    else {
        panic!("it ran")
    };
    assert!(why.contains("cannot be started: No such file"), "{why}");
}

/// Whose server starts commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// Whoever runs the tests.
    Oneself,
    /// Root on a machine without control groups.
    WithoutGroups,
    /// Somebody with no rights at all.
    Nobody,
}

impl Who {
    /// Only root can be somebody else.
    fn all() -> Vec<Who> {
        if rustix::process::geteuid().is_root() {
            vec![Who::Oneself, Who::WithoutGroups, Who::Nobody]
        } else {
            println!("not root: tried as this user only");
            vec![Who::Oneself]
        }
    }

    /// The tool with its commands started by this user; none where the kernel cannot confine.
    fn tool(self, place: &Place, options: CommandOptions) -> Option<CommandTool> {
        let wrapper = match self {
            Who::Oneself => return with(options),
            Who::WithoutGroups => place.wrapper("without-groups", WITHOUT_GROUPS),
            Who::Nobody => {
                for path in ["work", "work/mine.txt", "other-tenant", "other-tenant/theirs.txt"] {
                    std::os::unix::fs::chown(place.at(path), Some(65534), Some(65534)).unwrap();
                }
                place.wrapper("as-nobody", "setpriv --reuid=65534 --regid=65534 --clear-groups --")
            }
        };
        with(options.clone())?;
        Some(CommandTool::through(options, wrapper).unwrap())
    }
}

/// Starts what follows where no control group is in sight.
const WITHOUT_GROUPS: &str = "unshare --mount --propagation private sh -c \
                              'umount --lazy --recursive /sys/fs/cgroup 2>/dev/null; exec \"$@\"' sh";

/// T24: what people run works inside: git, npm, node, python and cargo, as root and as another user.
#[tokio::test]
async fn t24_usual_tools_work_inside() {
    let sysroot = std::process::Command::new("rustc").args(["--print", "sysroot"]).output().unwrap();
    let sysroot = PathBuf::from(String::from_utf8(sysroot.stdout).unwrap().trim());
    for who in Who::all() {
        // Cargo looks for settings in every directory above, and the repository has some.
        let place = Place::below(&std::env::temp_dir());
        // Only root can read a toolchain in root's home.
        let has_cargo = who == Who::Oneself && sysroot.join("bin/cargo").exists();
        let readable = if has_cargo { vec![sysroot.clone()] } else { Vec::new() };
        let Some(tool) = who.tool(&place, CommandOptions { readable, ..place.options() }) else { continue };
        let mut scripts = vec![
            "git init -q . && git config user.email a@example.org && git config user.name a && git add mine.txt && git \
             commit -qm first && git status --short && git log --oneline && git diff HEAD && git gc -q"
                .to_owned(),
            "/usr/bin/python3 -c 'import subprocess, threading, os, shutil; t = threading.Thread(target=print); t.start(); \
             t.join(); print(subprocess.check_output([\"echo\", \"x\"])); open(\"a\", \"w\").write(\"x\"); os.chmod(\"a\", \
             0o755); os.utime(\"a\", (1, 1)); shutil.copytree(\".git\", \"copied\")'"
                .to_owned(),
        ];
        if Path::new("/usr/bin/node").exists() && Path::new("/usr/bin/npm").exists() {
            scripts.push(
                "node -e 'const {Worker} = require(\"worker_threads\"); new Worker(\"1\", {eval: true}); \
                 console.log(require(\"child_process\").execSync(\"echo y\").toString()); \
                 require(\"fs\").writeFileSync(\"n\", \"x\")'"
                    .to_owned(),
            );
            scripts.push(
                "mkdir -p dep app && (cd dep && npm init -y > /dev/null) && cd app && npm init -y > /dev/null && npm install \
                 --offline --no-audit --no-fund ../dep && npm ls && npm pkg set scripts.test='echo tested' && npm test"
                    .to_owned(),
            );
        }
        if has_cargo {
            let cargo = sysroot.join("bin/cargo");
            scripts.push(format!(
                "mkdir -p c/src && cd c && printf '[package]\nname = \"c\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n' > \
                 Cargo.toml && echo 'fn main() {{ println!(\"built\") }}' > src/main.rs && RUSTC={} {} run --offline",
                sysroot.join("bin/rustc").display(),
                cargo.display()
            ));
        }
        for script in scripts {
            let said = shell(&tool, &script).await;
            assert_eq!(said["exit_code"], 0, "{who:?} {script}: {said}");
        }
    }
}

/// T23: a repository that somebody made starts nothing from its settings, and neither do a user's settings in the working
/// directory, hooks and pagers; whichever way it came to be there.
#[tokio::test]
async fn t23_git_starts_no_program_that_files_name() {
    for arrival in ["mv made/.git .git", "cp -r made/.git .git", "tar cf - -C made .git | tar xf -"] {
        let place = Place::new();
        let Some(tool) = place.tool() else { return };
        let marker = place.at("work/ran");
        std::fs::write(place.at("work/x"), "#!/bin/sh\ntouch ran\n").unwrap();
        std::fs::set_permissions(place.at("work/x"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let x = place.at("work/x");
        let setup = format!(
            "git init -q made && cp x made/.git/hooks/post-index-change && cp x made/.git/hooks/pre-commit && \
             git -C made config core.fsmonitor {0} && git -C made config core.pager {0} && {arrival} && \
             printf '[core]\nfsmonitor = {0}\n[alias]\nst = !{0}\n' > .gitconfig && rm -f ran",
            x.display()
        );
        let said = shell(&tool, &setup).await;
        assert_eq!(said["exit_code"], 0, "{arrival}: {said}");
        for command in [
            "git status",
            "git log",
            "git add mine.txt",
            "git -c user.name=a -c user.email=a@b commit -m x",
            "git st",
        ] {
            shell(&tool, command).await;
            assert!(!marker.exists(), "{arrival}: {command} started it");
        }
        // A repository that is a plain directory in the workspace is none unless somebody names it.
        let bare = "git init -q --bare bare && git -C bare config core.fsmonitor ../x; cd bare && git status";
        shell(&tool, bare).await;
        assert!(!marker.exists(), "{arrival}: a bare one started it");
    }
}

fn with_or_without(options: CommandOptions) -> CommandTool {
    CommandTool::through(options, shim()).unwrap()
}

/// Living processes with this word among their arguments.
fn processes_with(word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        if arguments.contains(word) {
            found.push(format!("{}: {arguments}", entry.file_name().to_string_lossy()));
        }
    }
    found
}

async fn wait_until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..500 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it did not become so within ten seconds");
}

//! The file tools in a real directory: what they do, and that nothing leads out of it (T25, T26).

#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

mod tooling;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};
use standfast_core::body::Body;
use standfast_core::message::{Replay, ToolResult};
use standfast_engine::tool::{HoldReason, Judgement, Outcome, Tool};
use standfast_tools::files::{FileKind, FileLimits, FileTool, PATH_RULE};
use standfast_tools::workspace::{BadWorkspace, Workspace};
use tempfile::TempDir;

use tooling::invocation;

struct Place {
    all: TempDir,
    workspace: Arc<Workspace>,
}

/// A directory `root` with some files, a neighbour `root-evil`, and a secret beside both.
fn place() -> Place {
    let all = tempfile::tempdir().unwrap();
    let make = |path: &str, text: &str| {
        let path = all.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    make("root/notes.txt", "one\ntwo\nthree\n");
    make("root/src/main.rs", "fn main() {\n    // TODO: all of it\n}\n");
    make("root/.git/config", "[core]\n");
    make("root/.standfast/standfast.db", "the store");
    make("root-evil/file.txt", "evil");
    make("secret.txt", "SECRET");
    let protected = [all.path().join("root/.standfast"), all.path().join("root/config.yaml")];
    let workspace = Arc::new(Workspace::open(&all.path().join("root"), &protected).unwrap());
    Place { all, workspace }
}

impl Place {
    fn at(&self, path: &str) -> PathBuf {
        self.all.path().join(path)
    }

    fn tool(&self, kind: FileKind) -> FileTool {
        FileTool::new(kind, self.workspace.clone(), FileLimits::default())
    }

    async fn run(&self, kind: FileKind, arguments: Value) -> Result<String, String> {
        outcome(&self.tool(kind), arguments).await
    }

    async fn refuses(&self, kind: FileKind, arguments: Value) -> String {
        let came = self.run(kind, arguments.clone()).await;
        came.err().unwrap_or_else(|| panic!("{}: {arguments} was not refused", kind.name()))
    }
}

async fn outcome(tool: &FileTool, arguments: Value) -> Result<String, String> {
    match tool.run(invocation(&arguments)).await {
        Outcome::Done(ToolResult::Ok(Body::Text(text))) => Ok(text),
        Outcome::Done(ToolResult::Failed(Body::Text(text))) => Err(text),
        other @ (Outcome::Done(_) | Outcome::Pending(_) | Outcome::Unknown(_)) => panic!("{other:?}"),
    }
}

/// Arguments of each tool for the same path.
fn arguments(kind: FileKind, path: &str) -> Value {
    match kind {
        FileKind::Read | FileKind::Delete | FileKind::List => json!({ "path": path }),
        FileKind::Write => json!({ "path": path, "content": "changed" }),
        FileKind::Search => json!({ "path": path, "pattern": "SECRET" }),
        FileKind::Edit => json!({ "path": path, "old": "SECRET", "new": "changed" }),
    }
}

#[tokio::test]
async fn a_file_is_read_whole_or_in_part() {
    let place = place();
    assert_eq!(place.run(FileKind::Read, json!({"path": "notes.txt"})).await.unwrap(), "one\ntwo\nthree\n");
    let some = json!({"path": "./notes.txt", "first_line": 2, "lines": 1});
    assert_eq!(place.run(FileKind::Read, some).await.unwrap(), "two\n");
    std::fs::write(place.at("root/binary"), [0xff, 0xfe]).unwrap();
    assert!(place.refuses(FileKind::Read, json!({"path": "binary"})).await.contains("not UTF-8 text"));
    assert!(place.refuses(FileKind::Read, json!({"path": "none"})).await.contains("there is no such file"));
    assert!(place.refuses(FileKind::Read, json!({"path": "src"})).await.contains("is a directory"));
    let small = FileLimits { file_bytes: 5, ..FileLimits::default() };
    let tool = FileTool::new(FileKind::Read, place.workspace.clone(), small);
    assert!(outcome(&tool, json!({"path": "notes.txt"})).await.unwrap_err().contains("at most 5 are used"));
    let short = FileLimits { result_bytes: 4, ..FileLimits::default() };
    let tool = FileTool::new(FileKind::Read, place.workspace.clone(), short);
    assert_eq!(outcome(&tool, json!({"path": "notes.txt"})).await.unwrap(), "one\n\n[10 more bytes]");
}

#[tokio::test]
async fn a_file_is_written_replaced_edited_and_deleted() {
    let place = place();
    let write = json!({"path": "new/deep/a.txt", "content": "x y x"});
    assert_eq!(place.run(FileKind::Write, write).await.unwrap(), "wrote 5 bytes to new/deep/a.txt");
    let file = place.at("root/new/deep/a.txt");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o750)).unwrap();
    let unclear =
        place.refuses(FileKind::Edit, json!({"path": "new/deep/a.txt", "old": "x", "new": "z"})).await;
    assert!(unclear.contains("has the text 2 times"), "{unclear}");
    let missing =
        place.refuses(FileKind::Edit, json!({"path": "new/deep/a.txt", "old": "q", "new": "z"})).await;
    assert!(missing.contains("does not have the text"), "{missing}");
    let all = json!({"path": "new/deep/a.txt", "old": "x", "new": "z", "all": true});
    assert_eq!(place.run(FileKind::Edit, all).await.unwrap(), "replaced 2 in new/deep/a.txt");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "z y z");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o750);
    let left: Vec<_> = std::fs::read_dir(place.at("root/new/deep")).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    place.run(FileKind::Delete, json!({"path": "new/deep/a.txt"})).await.unwrap();
    assert!(!file.exists());
    assert!(place.refuses(FileKind::Delete, json!({"path": "new/deep"})).await.contains("is a directory"));
    assert!(place.refuses(FileKind::Delete, json!({"path": "new/none"})).await.contains("no such file"));
}

#[tokio::test]
async fn directories_are_listed_and_searched_within_limits() {
    let place = place();
    symlink("/etc", place.at("root/link")).unwrap();
    let listed = place.run(FileKind::List, json!({})).await.unwrap();
    assert_eq!(listed, ".git/\nlink (a symbolic link)\nnotes.txt (14 bytes)\nsrc/\n");
    let found = place.run(FileKind::Search, json!({"pattern": "TODO"})).await.unwrap();
    assert_eq!(found, "src/main.rs:2:    // TODO: all of it\n");
    let found =
        place.run(FileKind::Search, json!({"pattern": "^T.o$", "regex": true, "ignore_case": true})).await;
    assert_eq!(found.unwrap(), "notes.txt:2:two\n");
    let none =
        place.run(FileKind::Search, json!({"pattern": "o", "path": "src", "name": ".txt"})).await.unwrap();
    assert_eq!(none, "nothing found in 0 files");
    let broken = place.refuses(FileKind::Search, json!({"pattern": "(", "regex": true})).await;
    assert!(broken.contains("the pattern cannot be used"), "{broken}");
    let huge = place.refuses(FileKind::Search, json!({"pattern": "(a{1000}){1000}", "regex": true})).await;
    assert!(huge.contains("the pattern cannot be used"), "{huge}");
    std::fs::write(place.at("root/many.txt"), "hit\n".repeat(1_000)).unwrap();
    let many = place.run(FileKind::Search, json!({"pattern": "hit"})).await.unwrap();
    assert_eq!(many.lines().count(), 201);
    assert!(many.ends_with("[more lines were not shown]\n"));
}

/// T25: `..`, absolute paths, the neighbour with the same beginning, links to files and directories, hard links, pipes,
/// devices, `/proc`: refused by every tool, and nothing outside is read or changed.
#[tokio::test]
async fn t25_no_path_leads_out() {
    let place = place();
    symlink(place.at("secret.txt"), place.at("root/soft.txt")).unwrap();
    symlink(place.all.path(), place.at("root/up")).unwrap();
    symlink("../secret.txt", place.at("root/relative.txt")).unwrap();
    symlink("/proc/self", place.at("root/process")).unwrap();
    symlink("notes.txt", place.at("root/harmless.txt")).unwrap();
    std::fs::hard_link(place.at("secret.txt"), place.at("root/hard.txt")).unwrap();
    assert!(Command::new("mkfifo").arg(place.at("root/pipe")).status().unwrap().success());
    let device = Command::new("mknod").arg(place.at("root/device")).args(["c", "1", "3"]).status().unwrap();
    println!("a device could be made: {}", device.success());
    let secret = place.at("secret.txt");
    let mut paths = vec![
        "../secret.txt",
        "src/../../secret.txt",
        "..",
        "/etc/passwd",
        "/",
        "//etc/passwd",
        "../root-evil/file.txt",
        "soft.txt",
        "up/secret.txt",
        "up/root-evil/file.txt",
        "relative.txt",
        "process/environ",
        "process/root/etc/passwd",
        "harmless.txt",
        "hard.txt",
        "pipe",
        "/proc/self/environ",
        "./../secret.txt",
        "src/./../../secret.txt",
        "a\u{0}b",
        secret.to_str().unwrap(),
        "soft.txt/",
        "up",
    ];
    if device.success() {
        paths.push("device");
    }
    for path in &paths {
        for kind in FileKind::ALL {
            let why = place.refuses(kind, arguments(kind, path)).await;
            assert!(!why.contains("SECRET") && !why.contains("evil\n"), "{why}");
        }
    }
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "SECRET");
    assert_eq!(std::fs::read_to_string(place.at("root-evil/file.txt")).unwrap(), "evil");
    let search = place.run(FileKind::Search, json!({"pattern": "SECRET"})).await.unwrap();
    assert!(search.starts_with("nothing found"), "{search}");
    println!("{} paths by {} tools, all refused", paths.len(), FileKind::ALL.len());
}

/// T25: a directory that is swapped for a link again and again while files are opened, read and written below it.
#[tokio::test]
async fn a_link_that_is_swapped_in_during_the_open_leads_nowhere() {
    let place = place();
    std::fs::create_dir_all(place.at("root/swap")).unwrap();
    std::fs::write(place.at("root/swap/secret.txt"), "harmless").unwrap();
    symlink(place.all.path(), place.at("root/evil")).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, root) = (stop.clone(), place.at("root"));
    let swapper = std::thread::spawn(move || {
        let mut swaps = 0u32;
        while !stopped.load(Ordering::Relaxed) {
            // One step, so that there is always something under the name.
            let (swap, evil) = (root.join("swap"), root.join("evil"));
            renameat_with(CWD, &swap, CWD, &evil, RenameFlags::EXCHANGE).unwrap();
            swaps += 1;
        }
        swaps
    });
    let (mut read, mut refused) = (0, 0);
    for _ in 0..2_000 {
        match place.workspace.read("swap/secret.txt", 100) {
            Ok(text) => {
                assert_eq!(text, "harmless");
                read += 1;
            }
            Err(_) => refused += 1,
        }
        let _ = place.workspace.write("swap/written.txt", "inside");
        let _ = place.workspace.delete("swap/written.txt");
    }
    stop.store(true, Ordering::Relaxed);
    let swaps = swapper.join().unwrap();
    assert!(read > 0 && swaps > 0, "{read} read, {refused} refused, {swaps} swaps");
    assert_eq!(std::fs::read_to_string(place.at("secret.txt")).unwrap(), "SECRET");
    assert!(!place.at("written.txt").exists());
    println!("{read} read, {refused} refused, {swaps} swaps");
}

/// T26: the server's own files and what git would run are out of reach, before anybody is asked.
#[tokio::test]
async fn configuration_store_and_hooks_are_out_of_reach() {
    let place = place();
    for path in [".standfast/standfast.db", "config.yaml", "./.standfast/new", "src/../.standfast/x"] {
        for kind in FileKind::ALL {
            let judged = place.tool(kind).judge(&arguments(kind, path).to_string());
            assert!(
                matches!(judged, Judgement::Forbid(HoldReason { rule: PATH_RULE, .. })),
                "{path}: {judged:?}"
            );
            place.refuses(kind, arguments(kind, path)).await;
        }
    }
    for path in [".git/config", ".git/hooks/pre-commit", "sub/.GIT/config"] {
        for kind in [FileKind::Write, FileKind::Edit, FileKind::Delete] {
            let why = place.refuses(kind, arguments(kind, path)).await;
            assert!(why.contains("changed with git") || why.contains("there is no such file"), "{why}");
        }
    }
    assert_eq!(place.run(FileKind::Read, json!({"path": ".git/config"})).await.unwrap(), "[core]\n");
    assert!(!place.run(FileKind::List, json!({})).await.unwrap().contains(".standfast"));
    assert_eq!(std::fs::read_to_string(place.at("root/.standfast/standfast.db")).unwrap(), "the store");
}

/// S3-13: looking needs no person, changing does; a change whose outcome is unknown is not simply made again.
#[test]
fn changes_ask_and_looking_does_not() {
    for kind in FileKind::ALL {
        let changes = matches!(kind, FileKind::Write | FileKind::Delete | FileKind::Edit);
        assert_eq!(kind.needs_approval(), changes, "{}", kind.name());
        let spec = kind.spec();
        assert_eq!(spec.replay, if changes { Replay::Never } else { Replay::Idempotent });
        assert!(spec.schema.text().contains(r#""additionalProperties":false"#));
    }
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_refused_before_anybody_is_asked() {
    let place = place();
    for bad in
        ["", "[]", "{}", r#"{"path": 1}"#, r#"{"path": "a", "path": "b"}"#, r#"{"path": "a", "mode": 7}"#]
    {
        let judged = place.tool(FileKind::Delete).judge(bad);
        assert!(matches!(judged, Judgement::Forbid(_)), "{bad}: {judged:?}");
    }
    assert_eq!(place.tool(FileKind::Delete).judge(r#"{"path": "notes.txt"}"#), Judgement::Allow);
}

#[test]
fn the_whole_machine_is_no_workspace() {
    assert_eq!(Workspace::open("/".as_ref(), &[]).unwrap_err(), BadWorkspace::Everything);
    let missing = Workspace::open("/no/such/place".as_ref(), &[]).unwrap_err();
    assert!(matches!(missing, BadWorkspace::Closed { .. }), "{missing}");
}

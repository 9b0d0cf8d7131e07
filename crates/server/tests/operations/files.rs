//! The database's files under a running server: deleted, replaced, linked, on a full disk, read by others.
//!
//! F16, I1: what the server acknowledges can be found again by the name that its operator knows, or it is not
//! acknowledged.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{Server, log, serve};

const START: &str = r#"{"input": "Free some space"}"#;

/// How often a condition is looked at before a test gives up on it.
const LOOKS: usize = 200;

async fn started_run(server: &Server) -> u16 {
    let body = serde_json::from_str(START).unwrap();
    server.ask("POST", "/api/v1/agents/ops/runs", Some(body)).await.0
}

/// What `/readyz` answers.
async fn readiness(server: &Server) -> (u16, String) {
    let answer = server.http.get("/readyz").await;
    (answer.status, answer.text)
}

async fn until_readiness(server: &Server, wanted: u16) -> String {
    for _ in 0..LOOKS {
        let (status, text) = readiness(server).await;
        if status == wanted {
            return text;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("/readyz never answered {wanted}");
}

fn delete(data: &Path, names: &[&str]) {
    for name in names {
        std::fs::remove_file(data.join(name)).unwrap();
    }
}

/// F16, I1: eight starts after the files were deleted: not one is acknowledged, `/readyz` is red, and the log says why.
#[tokio::test]
async fn f16_nothing_is_acknowledged_into_a_deleted_database() {
    for names in [
        &["standfast.db", "standfast.db-wal", "standfast.db-shm"][..],
        &["standfast.db"],
        &["standfast.db-wal"],
    ] {
        let data = tempfile::tempdir().unwrap();
        let server = serve(data.path());
        assert_eq!(started_run(&server).await, 201);
        assert_eq!(readiness(&server).await.0, 200);
        delete(data.path(), names);
        for _ in 0..8 {
            let status = started_run(&server).await;
            assert!(status >= 500, "{names:?}: a start is answered with {status}");
        }
        let (status, why) = readiness(&server).await;
        assert_eq!(status, 503, "{names:?}: {why}");
        assert!(why.contains("was deleted or moved while the server had it open"), "{names:?}: {why}");
        let said = log(data.path());
        assert!(said.contains("was deleted or moved while the server had it open"), "{names:?}: {said}");
    }
}

/// F16: without any request, the look-out for due runs notices it.
#[tokio::test]
async fn readiness_notices_deleted_files_by_itself() {
    let data = tempfile::tempdir().unwrap();
    let server = serve(data.path());
    delete(data.path(), &["standfast.db", "standfast.db-wal", "standfast.db-shm"]);
    let why = until_readiness(&server, 503).await;
    assert!(why.contains("was deleted or moved while the server had it open"), "{why}");
}

/// F16: one file, one server, by whichever link it is reached.
#[tokio::test]
async fn a_linked_file_admits_no_second_server() {
    let data = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let server = serve(data.path());
    symlink(data.path().join("standfast.db"), other.path().join("standfast.db")).unwrap();
    let second = refused(other.path());
    assert!(second.contains("is in use by another Standfast server"), "{second}");
    std::fs::remove_file(other.path().join("standfast.db")).unwrap();
    std::fs::hard_link(data.path().join("standfast.db"), other.path().join("standfast.db")).unwrap();
    let second = refused(other.path());
    assert!(second.contains("it has more than one name"), "{second}");
    assert_eq!(started_run(&server).await, 201);
}

/// What a server says that does not start.
fn refused(data: &Path) -> String {
    let mut command = standfast_testkit::standfast();
    let output = command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).output().unwrap();
    assert!(!output.status.success(), "a second server starts: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// T29: whatever the server writes into its data directory is for its own eyes.
#[tokio::test]
async fn what_is_stored_is_for_the_servers_own_eyes() {
    let data = tempfile::tempdir().unwrap();
    let server = serve(data.path());
    assert_eq!(started_run(&server).await, 201);
    for name in ["standfast.db", "standfast.db-wal", "standfast.db-shm", "standfast.db.lock"] {
        let mode = std::fs::metadata(data.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{name} has mode {mode:o}");
    }
}

/// A small file system of its own; unmounted when it is dropped. None where mounting is not allowed.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mounted() -> Option<SmallDisk> {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=12m", "none"]).arg(directory.path());
        mount.output().is_ok_and(|output| output.status.success()).then_some(SmallDisk(directory))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).output();
    }
}

/// F14, F16: `/readyz` is red while the disk is full, whether or not anything was tried, and green once there is room.
#[tokio::test]
async fn readiness_is_red_on_a_full_disk() {
    let Some(disk) = SmallDisk::mounted() else {
        eprintln!(
            "mounting a small disk is not allowed here; the store's F14 fills one by SQLite's own limit"
        );
        return;
    };
    let server = serve(disk.path());
    assert_eq!(started_run(&server).await, 201);
    assert_eq!(readiness(&server).await.0, 200);
    let filler = disk.path().join("filler");
    let mut fill = Command::new("dd");
    fill.args(["if=/dev/zero", "bs=64k", &format!("of={}", filler.display())]);
    assert!(!fill.output().unwrap().status.success(), "the disk takes more than it has");
    let why = until_readiness(&server, 503).await;
    assert!(why.contains("is full"), "{why}");
    std::fs::remove_file(&filler).unwrap();
    until_readiness(&server, 200).await;
    assert_eq!(started_run(&server).await, 201);
}

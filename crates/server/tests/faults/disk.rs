//! F14 through the server: the disk is full, then there is room again, without a restart.
//!
//! Needs the right to mount a small file system of memory; without it the row says that it did nothing.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::check::check;
use crate::child::Options;
use crate::report::Row;
use crate::server::{Http, Server, now, pause};
use crate::site::{FOLDER, Kept};
use crate::story::{Acked, ClearUp, Story, Wish};

/// The log before a checkpoint takes room too: a file system serves for so many fillings.
const FILLINGS_OF_A_DISK: usize = 5;

/// Fills the disk so many times.
pub(crate) fn full_disk(count: usize, kept: Kept) -> Row {
    let id = kept.row("F14", "F14-PG");
    let what = "disk full under the server, then room again";
    let mut violations = Vec::new();
    for first in (0..count).step_by(FILLINGS_OF_A_DISK) {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=3m", "none"]).arg(directory.path()).stderr(Stdio::null());
        if !mount.status().is_ok_and(|status| status.success()) {
            let note = "not done: no right to mount a small file system here";
            return Row::new(id, what, 0, violations).with(note);
        }
        let fillings = FILLINGS_OF_A_DISK.min(count - first);
        violations.extend(crate::runtime().block_on(fill(directory.path(), fillings, kept)));
        let _ = Command::new("umount").arg(directory.path()).status();
    }
    Row::new(id, what, count, violations)
}

async fn fill(data: &Path, count: usize, kept: Kept) -> Vec<String> {
    let mut wrong = Vec::new();
    let in_folder = kept == Kept::Folder;
    let mut server = Server::start(data, &Options { in_folder, ..Options::default() });
    let http = server.http();
    let mut acked: Vec<Acked> = Vec::new();
    for n in 0..count {
        let ballast = data.join("ballast");
        // Everything that is left, up to the last page.
        let mut file = std::fs::File::create(&ballast).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
        drop(file);
        match refused(&http).await {
            Ok(()) => {}
            Err(why) => wrong.push(why),
        }
        std::fs::remove_file(&ballast).unwrap();
        let mut story = Story::new(format!("disk-{n}"), Wish::Approve, ClearUp::ByLooking);
        if story.live(&http, data).await.is_err() {
            wrong.push("I6: the server is gone".into());
        }
        wrong.extend(story.violations);
        acked.extend(story.acked);
    }
    server.kill();
    wrong.extend(check(data, if in_folder { FOLDER } else { "standfast.db" }, &acked));
    wrong
}

/// Starts runs until one is refused for want of room.
async fn refused(http: &Http) -> Result<(), String> {
    let begin = now();
    while begin.elapsed() < Duration::from_secs(20) {
        let body = format!(r#"{{"input": "{}"}}"#, "word ".repeat(10_000));
        let (status, body) = http
            .post("/api/v1/agents/asks/runs", &body, None)
            .await
            .map_err(|_| "I6: no response from a server whose disk is full".to_owned())?;
        match status {
            201 => pause().await,
            503 if body["detail"].as_str().is_some_and(|detail| detail.contains("full")) => return Ok(()),
            _ => return Err(format!("I1: a full disk is answered with {status} {body}")),
        }
    }
    Err("the disk never got full".into())
}

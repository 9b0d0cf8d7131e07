//! T32: a bundle of some time, such as last month: what changed then verifies by itself, what did not is known by signed heads, and nothing that
//! did can be left out.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::json;
use standfast_testkit::wait::now_ms as now;
use standfast_testkit::{Http, folder, serve_command, standfast, start, text as string, until};

use super::bundle::{changed, run};
use super::text;

const SCRIPT: &str =
    "replies:\n- calls: [{tool: write_file, arguments: {path: a.txt, content: once}}]\n- text: done\n";

const CONFIG: &str = "session_stores: {db: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}}
agents: {ops: {llm: script, session_store: db, tools: [write_file], task: {}}}
";

/// An instant that everything before this is before, and everything after it after.
fn instant() -> String {
    let at = now() + 2;
    until("the clock goes on", || now() > at);
    let when = format!("@{}.{:03}", at / 1000, at % 1000);
    let done = Command::new("date").args(["-u", "-d", &when, "+%Y-%m-%dT%H:%M:%S.%3NZ"]).output().unwrap();
    text(&done.stdout).trim().to_owned()
}

struct Site {
    folder: PathBuf,
}

impl Site {
    fn audit(&self, arguments: &[&str]) -> Output {
        let mut command = standfast();
        let done = command.arg("audit").args(arguments).arg(self.folder.join("kept.db"));
        let done = done
            .arg("--heads")
            .arg(self.folder.join("heads.jsonl"))
            .arg("--key")
            .arg(self.folder.join("key.pem"));
        done.output().unwrap()
    }

    fn sign(&self) {
        let done = self.audit(&["head"]);
        assert!(done.status.success(), "{}", text(&done.stderr));
    }

    fn bundle(&self, name: &str, range: &[&str]) -> PathBuf {
        let path = self.folder.join(name);
        let done = self.audit(&[&["bundle", "--out", path.to_str().unwrap()], range].concat());
        assert!(done.status.success(), "{}", text(&done.stderr));
        path
    }
}

/// A run that waits, or one that is approved and goes on to its end.
async fn begin(http: &Http, session: &str) -> (String, String) {
    let body = json!({"input": "please", "session": session, "wait": "settled"});
    let run = http.post("/api/v1/agents/ops/runs", &body).await.body;
    (string(&run["id"]).to_owned(), string(&run["holds"][0]["id"]).to_owned())
}

async fn approve(http: &Http, hold: &str) {
    let body = json!({"resolution": "approve", "wait": "settled"});
    assert_eq!(http.post(&format!("/api/v1/holds/{hold}/resolve"), &body).await.status, 200);
}

fn said(bundle: &Path, more: &[&str]) -> (Option<i32>, String) {
    let done = run(bundle, more);
    (done.status.code(), text(&done.stdout) + &text(&done.stderr))
}

/// T32: of five runs, the bundle has the one that began in the time, the one that was decided then and the one that was deleted then; it
/// verifies with nothing but Python and the auditor's key, and whatever of it is left out is missed.
#[tokio::test]
async fn t32_an_auditor_proves_last_month() {
    let directory = folder(&[("script", SCRIPT)], CONFIG);
    let site = Site { folder: directory.path().to_owned() };
    std::fs::create_dir(site.folder.join("workspace")).unwrap();
    let key = Command::new("openssl")
        .args(["genpkey", "-algorithm", "ed25519", "-out"])
        .arg(site.folder.join("key.pem"))
        .output()
        .unwrap();
    assert!(key.status.success(), "{key:?}");
    let public = Command::new("openssl")
        .args(["pkey", "-pubout", "-in"])
        .arg(site.folder.join("key.pem"))
        .output()
        .unwrap();
    std::fs::write(site.folder.join("public.pem"), public.stdout).unwrap();
    let server = start(&mut serve_command(&site.folder));
    let http = Http::new(&server.base);
    let erase = async |session: &str| {
        let path = format!("/api/v1/sessions/{session}?force=true");
        assert_eq!(http.send("DELETE", &path, &[], "").await.status, 200);
    };
    let (before, hold) = begin(&http, "before").await;
    approve(&http, &hold).await;
    let (decided, pending) = begin(&http, "decided").await;
    let (deleted, _) = begin(&http, "deleted").await;
    begin(&http, "gone-before").await;
    erase("gone-before").await;
    site.sign();
    let from = instant();
    approve(&http, &pending).await;
    erase("deleted").await;
    let (begun, late) = begin(&http, "begun").await;
    let to = instant();
    site.sign();
    approve(&http, &late).await;
    let (after, _) = begin(&http, "after").await;
    site.sign();
    let bundle = site.bundle("month.zip", &["--from", &from, "--to", &to]);
    let public = site.folder.join("public.pem");
    let (code, told) = said(&bundle, &["--key", public.to_str().unwrap(), "--show"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("3 runs") && told.contains("1 erased") && told.contains("2 heads"), "{told}");
    assert!(
        told.contains("only what changed from ") && told.contains("everything in this bundle verifies"),
        "{told}"
    );
    let shown = |run: &str| told.lines().any(|line| line.starts_with(run));
    assert!(shown(&decided) && !shown(&before), "{told}");
    // What happened afterwards is not in it: the run was begun then, and approved later.
    let names = |name: &str| {
        let code = format!(
            "import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read('{name}'))"
        );
        text(&Command::new("python3").args(["-c", &code]).arg(&bundle).output().unwrap().stdout)
    };
    let links = names("links.jsonl");
    assert!(links.contains(&begun) && !links.contains(&after) && !links.contains(&before));
    let of_begun: Vec<&str> = links.lines().filter(|line| line.contains(&begun)).collect();
    assert!(
        !of_begun.is_empty() && !of_begun.iter().any(|line| line.contains("hold.resolved")),
        "{of_begun:?}"
    );
    // Whatever is left out is missed, and so is what the audit said then.
    for (code, says) in [
        (format!("drop('links.jsonl', '{decided}')"), "it is gone"),
        (format!("drop('links.jsonl', '{begun}')"), "it is gone"),
        (format!("drop('links.jsonl', '{deleted}')"), "it is gone"),
        (
            "files['entries.jsonl'] = b''.join(files['entries.jsonl'].splitlines(True)[1:])".to_owned(),
            "is missing",
        ),
        ("edit('links.jsonl', 'person:local', 'person:mallory')".to_owned(), "does not fit its contents"),
        (
            "files['heads.jsonl'] = files['heads.jsonl'].splitlines(True)[1]".to_owned(),
            "does not follow the head before",
        ),
    ] {
        let (status, told) = said(&changed(&bundle, &code), &[]);
        assert!(status == Some(1) && told.contains(says), "{code}: {told}");
    }
    // All of it, and without heads.
    let (code, told) = said(&site.bundle("whole.zip", &[]), &[]);
    assert!(code == Some(0) && told.contains("6 runs") && told.contains("3 heads"), "{told}");
    let out = site.folder.join("plain.zip");
    let mut command = standfast();
    command.args(["audit", "bundle", "--from", &from, "--to", &to, "--out"]).arg(&out);
    assert!(command.arg(site.folder.join("kept.db")).output().unwrap().status.success());
    let (code, told) = said(&out, &[]);
    assert!(code == Some(0) && told.contains("3 runs") && told.contains("no signed heads"), "{told}");
}

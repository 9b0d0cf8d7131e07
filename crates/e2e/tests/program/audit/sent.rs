//! T32: heads that a server sends on by itself, with a key that changes while it runs, verified where they arrived.

use std::path::Path;
use std::process::{Command, Output};

use standfast_testkit::{Process, folder, standfast, start, text as string, until};

use super::tampered::pem;
use super::text;

/// A server that signs every second and hands each head to a command, which keeps them in the file `sent`.
fn serve(folder: &Path) -> Process {
    let rest = format!(
        "session_stores: {{main: {{backend: sql, sql: {{driver: sqlite, database: a.db}}}}}}
agents: {{ops: {{llm: script, session_store: main, task: {{}}}}}}
server: {{audit: {{heads: heads.jsonl, key_file: key.pem, every: 1s, send_command: [sh, -c, 'cat >> {}']}}}}
",
        folder.join("sent").display()
    );
    let config = folder.join("standfast.yaml");
    let llms = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{llms}{rest}")).unwrap();
    let mut command = standfast();
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(config);
    start(command.arg("--data").arg(folder.join("data")))
}

/// Waits until a head that names this run has arrived.
fn arrived(folder: &Path, run: &str) {
    let is_there = || std::fs::read_to_string(folder.join("sent")).is_ok_and(|sent| sent.contains(run));
    until(&format!("a head of {run} was sent on"), is_there);
}

/// Names the key that the server reads for the next head.
fn take_key(folder: &Path, name: &str) {
    let part = folder.join("key.part");
    std::fs::write(folder.join(name), pem()).unwrap();
    std::fs::copy(folder.join(name), &part).unwrap();
    // In one step: a head may be signed at any moment.
    std::fs::rename(part, folder.join("key.pem")).unwrap();
    let public = Command::new("openssl").args(["pkey", "-pubout", "-in"]).arg(folder.join(name)).output();
    std::fs::write(folder.join(format!("public-{name}")), public.unwrap().stdout).unwrap();
}

/// Runs `standfast audit COMMAND` for the database, with the heads that arrived and these keys.
fn audit(folder: &Path, command: &str, keys: &[&str], more: &[&str]) -> Output {
    let at = |name: &str| folder.join(name).display().to_string();
    let mut program = standfast();
    program.args(["audit", command, &at("a.db"), "--heads", &at("sent")]).args(more);
    for key in keys {
        program.args(["--key", &at(key)]);
    }
    program.output().unwrap()
}

/// T32: each head is sent on once it is signed; after a change of keys those that arrived verify with both keys, by the program and by
/// the bundle, and with one key alone they do not.
#[test]
fn t32_heads_are_sent_on_and_verify_across_a_change_of_keys() {
    let directory = folder(&[("script", "replies:\n- text: done\n- text: done\n")], "");
    let folder = directory.path();
    take_key(folder, "old.pem");
    let server = serve(folder);
    for key in ["old.pem", "new.pem"] {
        if key == "new.pem" {
            take_key(folder, key);
        }
        let run = server.send("ops");
        assert_eq!(run["status"], "completed", "{run}");
        arrived(folder, string(&run["id"]));
    }
    drop(server);
    let [sent, heads] =
        ["sent", "heads.jsonl"].map(|name| std::fs::read_to_string(folder.join(name)).unwrap());
    assert!(sent.lines().count() >= 2 && heads.starts_with(&sent), "{sent}\n{heads}");
    let both = audit(folder, "verify", &["public-old.pem", "public-new.pem"], &[]);
    assert_eq!(both.status.code(), Some(0), "{both:?}");
    for alone in ["public-old.pem", "public-new.pem"] {
        let one = audit(folder, "verify", &[alone], &[]);
        let said = text(&one.stderr);
        assert!(one.status.code() == Some(2) && said.contains("signed with another key"), "{alone}: {one:?}");
    }
    let bundle = folder.join("bundle.zip").display().to_string();
    let made = audit(folder, "bundle", &["public-old.pem", "public-new.pem"], &["--out", &bundle]);
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    let verified = |keys: &[&str]| {
        let mut python = Command::new("python3");
        python.args(["-I", "-S", "-B", &bundle]);
        for key in keys {
            python.arg("--key").arg(folder.join(key));
        }
        python.output().unwrap()
    };
    let both = verified(&["public-old.pem", "public-new.pem"]);
    assert_eq!(both.status.code(), Some(0), "{both:?}");
    let one = verified(&["public-new.pem"]);
    assert!(one.status.code() == Some(1) && text(&one.stdout).contains("signed with another key"), "{one:?}");
}

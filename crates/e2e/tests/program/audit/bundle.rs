//! T32: the auditor's bundle, verified by the program that is in it: by Python alone, in an empty folder with an empty
//! environment, far from the server, its database and its keys.
//!
//! What is changed in a bundle is changed as somebody would who knows the format: the list of digests is written anew as well.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use super::tampered::{change, copy, left, pem};
use super::text;

/// Reads an archive, changes it with the code that it is given, and writes it with a list of digests that fits.
const CHANGE: &str = r#"
import hashlib, json, sys, zipfile
source, target, code = sys.argv[1:]
with zipfile.ZipFile(source) as archive:
    files = {name: archive.read(name) for name in archive.namelist()}
def edit(name, old, new):
    assert old.encode() in files[name], (name, old, files[name][:2000])
    files[name] = files[name].replace(old.encode(), new.encode())
def drop(name, part):
    lines = files[name].splitlines(True)
    kept = [line for line in lines if part.encode() not in line]
    assert len(kept) < len(lines), (name, part)
    files[name] = b''.join(kept)
exec(code)
manifest = json.loads(files.pop('manifest.json'))
manifest['sha256'] = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
with zipfile.ZipFile(target, 'w') as archive:
    for name, data in files.items():
        archive.writestr(name, data)
    archive.writestr('manifest.json', json.dumps(manifest))
"#;

fn standfast(arguments: &[&str]) -> Output {
    standfast_testkit::standfast().args(arguments).output().unwrap()
}

/// A bundle with two signed heads of what a server left, and the public half of their key.
fn bundle() -> (TempDir, PathBuf) {
    let (directory, database) = copy();
    let at = |name: &str| directory.path().join(name);
    let (heads, key) = (at("heads.jsonl"), at("key.pem"));
    let shown = |path: &Path| path.to_str().unwrap().to_owned();
    for _ in 0..2 {
        let done = standfast(&[
            "audit",
            "head",
            &shown(&database),
            "--heads",
            &shown(&heads),
            "--key",
            &shown(&key),
        ]);
        assert!(done.status.success(), "{done:?}");
    }
    let path = at("bundle.zip");
    let made = standfast(&[
        "audit",
        "bundle",
        &shown(&database),
        "--heads",
        &shown(&heads),
        "--key",
        &shown(&key),
        "--out",
        &shown(&path),
    ]);
    let said = text(&made.stdout);
    assert!(made.status.success() && said.contains("4 runs") && said.contains("2 signed heads"), "{made:?}");
    let public = Command::new("openssl").args(["pkey", "-pubout", "-in"]).arg(&key).output().unwrap();
    std::fs::write(at("public.pem"), public.stdout).unwrap();
    (directory, path)
}

/// Runs a bundle where there is nothing but Python.
pub(super) fn run(bundle: &Path, more: &[&str]) -> Output {
    let empty = tempfile::tempdir().unwrap();
    let mut command = Command::new("python3");
    // No variables, no folder of the user's, no packages of the machine, no network that it would ask.
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).current_dir(empty.path());
    command.args(["-I", "-S", "-B"]).arg(bundle).args(more).output().unwrap()
}

pub(super) fn changed(bundle: &Path, code: &str) -> PathBuf {
    let target = bundle.with_file_name("changed.zip");
    let _ = std::fs::remove_file(&target);
    let done =
        Command::new("python3").args(["-c", CHANGE]).args([bundle, &target]).arg(code).output().unwrap();
    assert!(done.status.success(), "{code}: {}", text(&done.stderr));
    target
}

/// T32: everything in it verifies, by the key that the auditor has; the receipts say who decided what.
#[test]
fn t32_a_bundle_verifies_with_nothing_but_python() {
    let (directory, bundle) = bundle();
    let public = directory.path().join("public.pem");
    let done = run(&bundle, &["--key", public.to_str().unwrap(), "--show"]);
    let said = text(&done.stdout);
    assert_eq!(done.status.code(), Some(0), "{said} {}", text(&done.stderr));
    assert!(said.contains("everything in this bundle verifies"), "{said}");
    assert!(said.contains("4 runs") && said.contains("1 erased") && said.contains("2 heads"), "{said}");
    let [first, held, ..] = &left().runs;
    assert!(said.lines().any(|line| line.starts_with(first.as_str()) && line.contains("approved")), "{said}");
    assert!(!said.lines().any(|line| line.starts_with(held.as_str())), "nobody has decided it: {said}");
    // The program that is in it is the one that the server prints, and takes a bundle as well.
    let printed = standfast(&["audit", "verifier"]).stdout;
    let program = directory.path().join("verify.py");
    std::fs::write(&program, printed).unwrap();
    let other = run(&program, &[bundle.to_str().unwrap()]);
    assert_eq!(other.status.code(), Some(0), "{}", text(&other.stderr));
    // A key that signed nothing here.
    std::fs::write(directory.path().join("other.pem"), pem()).unwrap();
    let stranger = Command::new("openssl")
        .args(["pkey", "-pubout", "-in"])
        .arg(directory.path().join("other.pem"))
        .output()
        .unwrap();
    std::fs::write(directory.path().join("other.pem"), stranger.stdout).unwrap();
    let done = run(&bundle, &["--key", directory.path().join("other.pem").to_str().unwrap()]);
    assert!(
        done.status.code() == Some(1) && text(&done.stdout).contains("signed with another key"),
        "{done:?}"
    );
}

/// T32: whatever is changed, left out or put in is named, also where the digests of the archive were written anew.
#[test]
fn t32_a_changed_bundle_does_not_verify() {
    let (_directory, bundle) = bundle();
    let [first, held, erased, last] = &left().runs;
    let resign = "import json\nlines = [json.loads(line) for line in files['heads.jsonl'].splitlines()]\n";
    for (code, says) in [
        ("edit('links.jsonl', 'Free some space', 'Free more space')".to_owned(), "does not fit its contents"),
        ("edit('links.jsonl', 'person:local', 'person:mallory')".to_owned(), "does not fit its contents"),
        (format!("drop('links.jsonl', '{last}')"), "it is gone"),
        (format!("drop('links.jsonl', '\"run\":\"{held}\",\"first\":1,')"), "event 1 is missing"),
        (
            format!(
                "lines = files['links.jsonl'].splitlines(True)\nmine = [at for at, line in enumerate(lines) if b'{first}' in line]\ndel lines[mine[-1]]\nfiles['links.jsonl'] = b''.join(lines)"
            ),
            "was rolled back",
        ),
        ("drop('definitions.jsonl', 'digest')".to_owned(), "that it is pinned to is missing"),
        ("edit('definitions.jsonl', 'delete', 'create')".to_owned(), "its bytes do not have this digest"),
        (format!("drop('receipts.jsonl', '{first}')"), "there is no receipt of its hold"),
        ("edit('receipts.jsonl', '\"by\":\"person:local\"', '\"by\":\"person:mallory\"')".to_owned(), "another decision"),
        ("files['entries.jsonl'] = b''.join(files['entries.jsonl'].splitlines(True)[1:])".to_owned(), "entry 1 is missing"),
        ("files['entries.jsonl'] = b''".to_owned(), "no proof of that"),
        (
            "import json\nlines = [json.loads(line) for line in files['entries.jsonl'].splitlines()]\nlines[0]['at'] -= 1\nfiles['entries.jsonl'] = '\\n'.join(map(json.dumps, lines)).encode()".to_owned(),
            "the hash of entry 1 does not fit",
        ),
        ("edit('heads.jsonl', '\"no\":1,', '\"no\":1, ')".to_owned(), "its signature is not right"),
        ("files['heads.jsonl'] = files['heads.jsonl'].splitlines(True)[1]".to_owned(), "does not follow the head before"),
        (format!("{resign}files['heads.jsonl'] = (json.dumps(lines[0]) + '\\n').encode()"), "its signature is not right"),
    ] {
        let done = run(&changed(&bundle, &code), &[]);
        let said = text(&done.stdout);
        assert_eq!(done.status.code(), Some(1), "{code}: {said} {}", text(&done.stderr));
        assert!(said.contains(says), "{code}: {said}");
    }
    // The same bytes in the other order of runs are the same bundle.
    let same = changed(&bundle, "files['README.txt'] += b'\\n'");
    assert_eq!(run(&same, &[]).status.code(), Some(0));
    assert!(!erased.is_empty());
    // What is no bundle is not checked.
    let done = run(&changed(&bundle, "files['links.jsonl'] = b'{}'"), &[]);
    assert_ne!(done.status.code(), Some(0), "{}", text(&done.stdout));
}

/// T32: a database with a finding gives a bundle that says so, and none is written over.
#[test]
fn t32_what_does_not_verify_is_said_in_the_bundle() {
    let (directory, database) = copy();
    change(
        &database,
        "UPDATE holds SET record = replace(record, 'person:local', 'person:mallory') WHERE run = 1",
    );
    let path = directory.path().join("bundle.zip");
    let (database, out) = (database.to_str().unwrap(), path.to_str().unwrap());
    let made = standfast(&["audit", "bundle", database, "--out", out, "--json"]);
    assert_eq!(made.status.code(), Some(1), "{made:?}");
    let done = run(&path, &[]);
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("found when the bundle was made"), "{}", text(&done.stdout));
    let again = standfast(&["audit", "bundle", database, "--out", out]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("is there already"), "{again:?}");
}

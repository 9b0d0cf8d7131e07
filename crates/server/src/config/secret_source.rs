//! Values that are kept elsewhere: `${file:PATH}` is what a file says, `${command:PROGRAM ARGUMENTS}` what a program prints.
//!
//! Read once for each reading of the configuration, so a reload has the newest. A value stands in no message; of a command only the
//! program does, as its arguments may be nobody's business. There is no shell: arguments are separated by spaces.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use super::expand::Unset;
use super::stores::absolute;

/// How long a command may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The most that a value may have, in bytes.
const MOST: u64 = 256 * 1024;

/// What has a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Keeper {
    /// A file, relative to that of the configuration.
    File,
    /// A program with its arguments.
    Command,
}

/// Why there is no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NoValue {
    pub(super) what: String,
    pub(super) help: String,
}

/// What was asked for already.
#[derive(Debug)]
pub(super) struct SecretSources {
    folder: PathBuf,
    unset: Unset,
    known: RefCell<BTreeMap<(Keeper, String), Result<String, NoValue>>>,
    files: RefCell<BTreeSet<PathBuf>>,
}

impl Keeper {
    /// What stands between the braces, and the name behind it; none when it is a variable.
    pub(super) fn of(inside: &str) -> Option<(Keeper, &str)> {
        let named = |word: &str| inside.strip_prefix(word);
        let kept = named("file:").map(|name| (Keeper::File, name));
        let kept = kept.or_else(|| named("command:").map(|name| (Keeper::Command, name)));
        // `${file:-x}` is a variable with a default.
        kept.filter(|(_, name)| !name.starts_with(['-', '?']))
    }
}

impl SecretSources {
    pub(super) fn new(folder: &FilePath, unset: Unset) -> SecretSources {
        SecretSources {
            folder: folder.to_owned(),
            unset,
            known: RefCell::default(),
            files: RefCell::default(),
        }
    }

    /// The files that values are in: no tool may reach them.
    pub(super) fn files(self) -> Vec<PathBuf> {
        self.files.into_inner().into_iter().collect()
    }

    pub(super) fn value(&self, keeper: Keeper, name: &str) -> Result<String, NoValue> {
        let place = (keeper, name.trim().to_owned());
        if let Some(known) = self.known.borrow().get(&place) {
            return known.clone();
        }
        let bytes = match keeper {
            Keeper::File => self.read(&place.1),
            Keeper::Command => self.run(&place.1),
        };
        let value = bytes.and_then(|bytes| one_value(keeper, &place.1, bytes));
        self.known.borrow_mut().insert(place, value.clone());
        value
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, NoValue> {
        if path.is_empty() {
            return Err(NoValue::new("`${file:}` names no file", "write ${file:PATH}"));
        }
        let file = absolute(&self.folder, path);
        self.files.borrow_mut().insert(file.clone());
        let mut bytes = Vec::new();
        let read = std::fs::File::open(&file).and_then(|open| open.take(MOST + 1).read_to_end(&mut bytes));
        match read {
            Ok(_) => Ok(bytes),
            Err(error) => Err(NoValue::new(
                &format!("the file {path} of `${{file:…}}` cannot be read: {error}"),
                "write the value into that file, readable for the server's user",
            )),
        }
    }

    fn run(&self, line: &str) -> Result<Vec<u8>, NoValue> {
        let mut words = line.split_whitespace();
        let Some(program) = words.next() else {
            return Err(NoValue::new("`${command:}` names no program", "write ${command:PROGRAM ARGUMENTS}"));
        };
        let failed = |why: &str| {
            NoValue::new(
                &format!("the command {program} of `${{command:…}}` {why}"),
                "run it by hand in the folder of this file: it must print the value and end with 0",
            )
        };
        if self.unset == Unset::Allow {
            return Err(failed("was not run"));
        }
        let mut command = Command::new(program);
        command.args(words).current_dir(&self.folder).stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.spawn().map_err(|error| failed(&format!("cannot be started: {error}")))?;
        let (printed, status) = output(child).ok_or_else(|| failed("took longer than 30 seconds"))?;
        if status.success() { Ok(printed) } else { Err(failed(&format!("ended with {status}"))) }
    }
}

/// What a program prints, once it has ended; none when it takes too long.
fn output(mut child: Child) -> Option<(Vec<u8>, std::process::ExitStatus)> {
    let stdout = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut printed = Vec::new();
        // Beyond the limit it is refused, whatever follows.
        let _ = stdout.take(MOST + 1).read_to_end(&mut printed);
        let _ = sender.send(printed);
    });
    let printed = receiver.recv_timeout(PATIENCE).ok();
    if printed.is_none() {
        let _ = child.kill();
    }
    let status = child.wait().ok();
    printed.zip(status)
}

/// The bytes as a value: text, without the line break at its end, and not nothing.
fn one_value(keeper: Keeper, name: &str, bytes: Vec<u8>) -> Result<String, NoValue> {
    let named = match keeper {
        Keeper::File => format!("the file {name} of `${{file:…}}`"),
        Keeper::Command => {
            let program = name.split_whitespace().next().unwrap_or_default();
            format!("what the command {program} of `${{command:…}}` printed")
        }
    };
    let wrong = |why: &str| NoValue::new(&format!("{named} {why}"), "it must be the value alone, as text");
    if u64::try_from(bytes.len()).is_ok_and(|bytes| bytes > MOST) {
        return Err(wrong("has more than 256 KiB"));
    }
    let mut text = String::from_utf8(bytes).map_err(|_| wrong("is no text"))?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    if text.is_empty() { Err(wrong("is empty")) } else { Ok(text) }
}

impl NoValue {
    fn new(what: &str, help: &str) -> NoValue {
        NoValue { what: what.to_owned(), help: help.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value is what the file says without its last line break; whatever is wrong is said without it.
    #[test]
    fn a_file_has_one_value() {
        let folder = tempfile::tempdir().unwrap();
        let sources = SecretSources::new(folder.path(), Unset::Refuse);
        for (name, bytes) in [
            ("plain", &b"canary"[..]),
            ("line", b"canary\n"),
            ("windows", b"canary\r\n"),
            ("lines", b"one\ntwo\n"),
            ("empty", b"\n"),
            ("bytes", b"\xff\xfe"),
        ] {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        std::fs::write(folder.path().join("large"), "x".repeat(300_000)).unwrap();
        for name in ["plain", "line", "windows"] {
            assert_eq!(sources.value(Keeper::File, name), Ok("canary".to_owned()), "{name}");
        }
        assert_eq!(sources.value(Keeper::File, "lines"), Ok("one\ntwo".to_owned()));
        for (name, why) in
            [("empty", "is empty"), ("bytes", "is no text"), ("large", "256 KiB"), ("none", "cannot be read")]
        {
            let wrong = sources.value(Keeper::File, name).unwrap_err();
            assert!(wrong.what.contains(why) && wrong.what.contains(name), "{wrong:?}");
        }
        assert!(sources.value(Keeper::File, " ").is_err());
        let files = sources.files();
        assert!(files.contains(&folder.path().join("plain")) && files.contains(&folder.path().join("none")));
    }

    /// A program is run once, in the folder of the file, without a shell, and not where values need not be there.
    #[test]
    fn a_command_prints_one_value() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), "canary\n").unwrap();
        let sources = SecretSources::new(folder.path(), Unset::Refuse);
        assert_eq!(sources.value(Keeper::Command, "cat secret"), Ok("canary".to_owned()));
        std::fs::write(folder.path().join("secret"), "another\n").unwrap();
        assert_eq!(sources.value(Keeper::Command, "cat secret"), Ok("canary".to_owned()), "it was run once");
        assert_eq!(sources.value(Keeper::Command, "printf %s $HOME;id"), Ok("$HOME;id".to_owned()));
        for (line, why) in [
            ("false --token=canary", "ended with"),
            ("true", "is empty"),
            ("no-such-program-of-ours canary", "cannot be started"),
            (" ", "names no program"),
        ] {
            let wrong = sources.value(Keeper::Command, line).unwrap_err();
            assert!(wrong.what.contains(why), "{wrong:?}");
            assert!(!wrong.what.contains("canary"), "{wrong:?}");
        }
        let only_looked_at = SecretSources::new(folder.path(), Unset::Allow);
        std::fs::write(folder.path().join("touched"), "").unwrap();
        assert!(
            only_looked_at.value(Keeper::Command, "rm touched").unwrap_err().what.contains("was not run")
        );
        assert!(folder.path().join("touched").exists());
    }

    #[test]
    fn a_default_is_no_place() {
        for (inside, is_place) in [
            ("file:/a", true),
            ("command:a b", true),
            ("file:-x", false),
            ("command:?x", false),
            ("FILE:/a", false),
        ] {
            assert_eq!(Keeper::of(inside).is_some(), is_place, "{inside}");
        }
    }
}

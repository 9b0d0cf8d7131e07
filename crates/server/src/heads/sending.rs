//! Heads are sent on: each is handed to a command, once it has been signed and in the order of their numbers.
//!
//! How far that came stands beside the heads, in `HEADS.sent`. What could not be sent is sent again with the next round, so a
//! receiver may get a head twice and never misses one. What the command does with it (a webhook, a bucket, a log host) is its own.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long a command may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(20);

/// Sends what has not been sent, each line on the standard input of the command, in whose arguments `{no}` is its number. How
/// many were sent; an error says which was not, and why.
pub(super) fn send(heads: &Path, command: &[String]) -> Result<u64, String> {
    let text =
        std::fs::read_to_string(heads).map_err(|error| format!("the heads cannot be read: {error}"))?;
    let mark = mark(heads);
    let before: usize =
        std::fs::read_to_string(&mark).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let mut sent = 0;
    for (at, line) in text.lines().enumerate().skip(before) {
        let no = at + 1;
        hand_over(command, no, line).map_err(|why| format!("head {no} was not sent: {why}"))?;
        let marked = std::fs::write(&mark, format!("{no}\n"));
        marked.map_err(|error| format!("{} cannot be written: {error}", mark.display()))?;
        sent += 1;
    }
    Ok(sent)
}

fn mark(heads: &Path) -> PathBuf {
    let mut name = heads.as_os_str().to_owned();
    name.push(".sent");
    name.into()
}

fn hand_over(command: &[String], no: usize, line: &str) -> Result<(), String> {
    let (program, arguments) = command.split_first().ok_or("the command is empty")?;
    let arguments = arguments.iter().map(|argument| argument.replace("{no}", &no.to_string()));
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|error| format!("the command cannot be started: {error}"))?;
    let input = child.stdin.take();
    let line = format!("{line}\n");
    // A command that reads nothing, and one that reads slowly, are waited for in the same way.
    let writing =
        std::thread::spawn(move || input.map_or(Ok(()), |mut input| input.write_all(line.as_bytes())));
    let mut looks = PATIENCE.as_millis() / LOOK.as_millis();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if looks > 0 => {
                looks -= 1;
                std::thread::sleep(LOOK);
            }
            Ok(None) => break Err(format!("the command took longer than {} s", PATIENCE.as_secs())),
            Err(error) => break Err(format!("the command cannot be waited for: {error}")),
        }
    };
    if status.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let status = status?;
    if !status.success() {
        return Err(format!("the command ended with {status}"));
    }
    match writing.join() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!("the command did not read it: {error}")),
        Err(_) => Err("the command did not read it".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T32: every head is sent once and in order; one that fails is sent again, and nothing before it is.
    #[test]
    fn t32_heads_are_sent_in_order_until_they_are_taken() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let (heads, out) = (at("heads"), at("out"));
        let script = format!(
            "test -e {} || exit 3; printf '%s ' {{no}} >> {}; cat >> {}",
            at("open").display(),
            out.display(),
            out.display()
        );
        let command = ["sh".to_owned(), "-c".to_owned(), script];
        std::fs::write(&heads, "one\ntwo\n").unwrap();
        let refused = send(&heads, &command).unwrap_err();
        assert!(refused.contains("head 1 was not sent") && refused.contains("exit status: 3"), "{refused}");
        std::fs::write(at("open"), "").unwrap();
        assert_eq!(send(&heads, &command), Ok(2));
        assert_eq!(send(&heads, &command), Ok(0));
        std::fs::write(&heads, "one\ntwo\nthree\n").unwrap();
        std::fs::remove_file(at("open")).unwrap();
        assert!(send(&heads, &command).unwrap_err().contains("head 3"));
        std::fs::write(at("open"), "").unwrap();
        assert_eq!(send(&heads, &command), Ok(1));
        assert_eq!(std::fs::read_to_string(out).unwrap(), "1 one\n2 two\n3 three\n");
        assert!(send(&heads, &["no-such-program".to_owned()]).is_ok(), "nothing is left to send");
        std::fs::write(&heads, "one\ntwo\nthree\nfour\n").unwrap();
        assert!(send(&heads, &["no-such-program".to_owned()]).unwrap_err().contains("cannot be started"));
    }
}

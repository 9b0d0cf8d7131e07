//! The collector as a process, and the spans that it got.
//!
//! Dropping it kills it; what it got is a file of lines, whatever becomes of it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use standfast_testkit::binary::{repository_root, target_folder};
use standfast_testkit::{certify, until};
use tempfile::TempDir;

/// A running collector.
pub(super) struct Collector {
    child: Child,
    pub(super) port: u16,
    folder: TempDir,
}

/// Spans in the order of their beginnings.
#[derive(Debug)]
pub(super) struct Spans(pub(super) Vec<Value>);

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Collector {
    pub(super) fn start(mode: &str) -> Collector {
        let folder = tempfile::tempdir().unwrap();
        if mode.ends_with('s') {
            certify(folder.path(), 1);
        }
        let mut command = Command::new(target_folder().join("trace-collector/bin/python"));
        command.arg(repository_root().join("crates/e2e/tests/outside/traces/collector.py"));
        command.arg(folder.path().join("spans")).arg(mode);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap_or_else(|_| panic!("the collector did not start: {line:?}"));
        Collector { child, port, folder }
    }

    /// Who signed the certificate of an encrypted one.
    pub(super) fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("spans")
    }

    /// Answers with an error from now on, or no longer.
    pub(super) fn refuse(&self, refuses: bool) {
        let file = self.folder.path().join("spans.refuse");
        if refuses {
            std::fs::write(file, "").unwrap();
        } else {
            std::fs::remove_file(file).unwrap();
        }
    }

    pub(super) fn text(&self) -> String {
        std::fs::read_to_string(self.file()).unwrap()
    }

    /// All spans so far.
    pub(super) fn spans(&self) -> Spans {
        let text = self.text();
        // The last line may be half written.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let mut spans: Vec<Value> = whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        spans.sort_by_key(|span| span["begun"].as_u64());
        Spans(spans)
    }

    /// Waits until the spans are as wanted.
    pub(super) fn until(&self, what: &str, is_so: impl Fn(&Spans) -> bool) {
        until(what, || is_so(&self.spans()));
    }
}

impl Spans {
    pub(super) fn all(&self, is_it: impl Fn(&Value) -> bool) -> Vec<&Value> {
        self.0.iter().filter(|span| is_it(span)).collect()
    }

    pub(super) fn one(&self, is_it: impl Fn(&Value) -> bool) -> &Value {
        let found = self.all(is_it);
        let [one] = found.as_slice() else { panic!("not one but {found:#?} of {:#?}", self.0) };
        one
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|span| span["name"] == name)
    }
}

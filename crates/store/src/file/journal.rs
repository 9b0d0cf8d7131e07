//! The journal: the commit point of the file store.
//!
//! A transaction is one line, with everything that it changes in the files, and it counts once that line is synced. The
//! files follow after it; what a crash left of them is made again from the journal. A line is `["sum",{…}]`: the sum ties
//! it to the line before, so a line that is missing or changed is noticed. A line that was cut by a crash was never
//! acknowledged and is dropped; anything else that does not fit is refused, because something acknowledged may be lost.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};
use standfast_core::digest::{self, Digest};

use super::OpenError;
use super::folder::{FileChange, Folder};

/// Its name.
pub(super) const JOURNAL: &str = "journal.jsonl";

/// The version of the files that this program writes; it reads the earlier ones too.
pub(super) const FORMAT: u32 = 3;

/// The version since which the audit speaks of subscriptions and sessions.
pub(super) const ROW_AUDIT: u32 = 2;

/// The version since which it speaks of sealed documents too.
pub(super) const SEALED_AUDIT: u32 = 3;

/// The sum of a line, and what stands around it.
const SUM_CHARS: usize = 52;
const BODY_AT: usize = SUM_CHARS + 4;

/// The first line: everything up to this transaction is in the files.
#[derive(Debug, Serialize, Deserialize)]
struct Heading {
    standfast_file_store: u32,
    after: u64,
    last_number: i64,
}

/// A line as it is written.
#[derive(Serialize)]
struct LineToWrite<'a> {
    no: u64,
    last_number: i64,
    changes: &'a [FileChange],
}

/// A line as it is read.
#[derive(Debug, Deserialize)]
struct ParsedLine {
    no: u64,
    last_number: i64,
    changes: Vec<FileChange>,
}

/// The open journal.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    length: u64,
    /// What the next line is tied to.
    last_sum: Digest,
    /// The last transaction.
    no: u64,
    /// How much may still be written; none means as much as the disk holds.
    room: Option<u64>,
}

/// What stands in a journal.
#[derive(Debug)]
pub(super) struct JournalContents {
    /// The version of the files.
    pub(super) format: u32,
    pub(super) changes: Vec<FileChange>,
    /// The last transaction.
    pub(super) no: u64,
    pub(super) last_number: i64,
    /// The bytes that a crash left of a line that was never acknowledged.
    pub(super) torn: usize,
    length: usize,
    last_sum: Digest,
}

/// Why a line was not written.
#[derive(Debug)]
pub(super) enum WriteFailure {
    /// Nothing of it is there.
    Nothing(io::Error),
    /// Nobody knows.
    Unknown(io::Error),
}

/// Reads a journal; none when there is none.
pub(super) fn read(folder: &Folder) -> Result<Option<JournalContents>, OpenError> {
    let path = folder.at(JOURNAL);
    let bytes = folder.read(JOURNAL).map_err(|error| OpenError::unusable(&path, error))?;
    bytes.map(|bytes| parse(&bytes).map_err(|why| OpenError::unusable(&path, why))).transpose()
}

fn parse(bytes: &[u8]) -> Result<JournalContents, String> {
    let damaged = |line: usize, what: &str| {
        format!(
            "line {line} is damaged: {what}. Transactions that were acknowledged may be in it or behind it, so nothing was \
             opened; restore the folder from a backup, or move the file away to go on with what the other files say"
        )
    };
    let mut found = JournalContents {
        format: FORMAT,
        changes: Vec::new(),
        no: 0,
        last_number: 0,
        torn: 0,
        length: 0,
        last_sum: Digest([0; 32]),
    };
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        let shown = at + 1;
        let is_last = lines.peek().is_none();
        // What was added to a file and not synced is missing at its end, or zeros.
        let is_cut = is_last && at > 0 && (!line.ends_with(b"\n") || line.contains(&0));
        let is_zeros_from_here = at > 0 && line.contains(&0) && bytes[found.length..].ends_with(&[0]);
        let body = match checked(line, found.last_sum) {
            Ok((sum, body)) => {
                found.last_sum = sum;
                body
            }
            Err(_) if is_cut || is_zeros_from_here => {
                found.torn = bytes.len() - found.length;
                return Ok(found);
            }
            Err(what) => return Err(damaged(shown, what)),
        };
        if at == 0 {
            let heading: Heading =
                serde_json::from_slice(body).map_err(|error| damaged(shown, &error.to_string()))?;
            if heading.standfast_file_store > FORMAT {
                return Err(format!(
                    "the folder was written by a newer version (format {}; this one knows {FORMAT}); upgrade this program",
                    heading.standfast_file_store
                ));
            }
            found.format = heading.standfast_file_store;
            (found.no, found.last_number) = (heading.after, heading.last_number);
        } else {
            let line: ParsedLine =
                serde_json::from_slice(body).map_err(|error| damaged(shown, &error.to_string()))?;
            if line.no != found.no + 1 {
                return Err(damaged(shown, &format!("transaction {} follows {}", line.no, found.no)));
            }
            (found.no, found.last_number) = (line.no, line.last_number);
            found.changes.extend(line.changes);
        }
        found.length += line.len();
    }
    if found.length == 0 {
        return Err(damaged(1, "it is empty"));
    }
    Ok(found)
}

/// The sum of a line that fits, and what it is about.
fn checked(line: &[u8], previous: Digest) -> Result<(Digest, &[u8]), &'static str> {
    let inner = line.strip_prefix(b"[\"").and_then(|line| line.strip_suffix(b"]\n"));
    let inner = inner.ok_or("it is not whole")?;
    let (sum, rest) = inner.split_at_checked(SUM_CHARS).ok_or("it is not whole")?;
    let body = rest.strip_prefix(b"\",").ok_or("it is not whole")?;
    let sum: Digest =
        std::str::from_utf8(sum).ok().and_then(|sum| sum.parse().ok()).ok_or("it has no sum")?;
    if sum_of(previous, body) == sum { Ok((sum, body)) } else { Err("its sum does not fit") }
}

fn sum_of(previous: Digest, body: &[u8]) -> Digest {
    digest::of_parts("standfast.journal.1", &[&previous.0, body])
}

fn line_of(previous: Digest, body: &[u8]) -> (Digest, Vec<u8>) {
    let sum = sum_of(previous, body);
    let mut line = Vec::with_capacity(BODY_AT + body.len() + 2);
    line.extend_from_slice(b"[\"");
    line.extend_from_slice(sum.to_string().as_bytes());
    line.extend_from_slice(b"\",");
    line.extend_from_slice(body);
    line.extend_from_slice(b"]\n");
    (sum, line)
}

impl Journal {
    /// A journal without transactions: everything up to `no` is in the files and synced.
    pub(super) fn begin(
        folder: &Folder,
        format: u32,
        (no, last_number): (u64, i64),
        room: Option<u64>,
    ) -> io::Result<Journal> {
        let heading = Heading { standfast_file_store: format, after: no, last_number };
        let (last_sum, line) = line_of(Digest([0; 32]), &serde_json::to_vec(&heading)?);
        let beside = format!("{JOURNAL}.new");
        let file = folder.create(&beside)?;
        file.write_all_at(&line, 0)?;
        file.sync_all()?;
        std::fs::rename(folder.at(&beside), folder.at(JOURNAL))?;
        folder.sync_root()?;
        Ok(Journal { file, length: line.len() as u64, last_sum, no, room })
    }

    /// How long it is.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// The last transaction.
    pub(super) fn no(&self) -> u64 {
        self.no
    }

    /// How much may still be written.
    pub(super) fn room(&self) -> Option<u64> {
        self.room
    }

    /// Writes a transaction. It counts after [`Journal::sync`].
    pub(super) fn write(&mut self, last_number: i64, changes: &[FileChange]) -> Result<(), WriteFailure> {
        let written = LineToWrite { no: self.no + 1, last_number, changes };
        let body = serde_json::to_vec(&written).map_err(|error| WriteFailure::Nothing(error.into()))?;
        let (sum, line) = line_of(self.last_sum, &body);
        let length = line.len() as u64;
        if let Err(error) = self.put(&line) {
            return match self.file.set_len(self.length) {
                Ok(()) => Err(WriteFailure::Nothing(error)),
                Err(_) => Err(WriteFailure::Unknown(error)),
            };
        }
        self.room = self.room.map(|room| room.saturating_sub(length));
        (self.length, self.last_sum, self.no) = (self.length + length, sum, self.no + 1);
        Ok(())
    }

    fn put(&self, line: &[u8]) -> io::Result<()> {
        if self.room.is_some_and(|room| room < line.len() as u64) {
            return Err(io::Error::from(ErrorKind::StorageFull));
        }
        self.file.write_all_at(line, self.length)
    }

    /// Makes everything durable that was written.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Whether the name still stands for it.
    pub(super) fn check(&self, folder: &Folder) -> Result<(), String> {
        use std::os::unix::fs::MetadataExt;
        let path = folder.at(JOURNAL);
        let shown = path.display();
        match (std::fs::metadata(&path), self.file.metadata()) {
            (Ok(named), Ok(open)) if named.ino() == open.ino() && named.dev() == open.dev() => Ok(()),
            (Ok(_), Ok(_)) => {
                Err(format!("the journal {shown} was replaced by another file while the server had it open"))
            }
            (Err(_), _) | (_, Err(_)) => {
                Err(format!("the journal {shown} was deleted or moved while the server had it open"))
            }
        }
    }
}

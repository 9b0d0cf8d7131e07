//! Faults of the file store's folder and disk, by the rows of the fault matrix.
//!
//! What must hold is what holds for SQLite: acknowledged is durable, what is stored is whole or said to be broken with the
//! name of its file, one broken run stops no other.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use standfast_core::command::SuspendFor;
use standfast_core::digest::Digest;
use standfast_core::id::{RunId, Seq};

use super::super::random::Random;
use super::super::support::{LOOKUP, NewRun, Scribe, begin, block_on, checked, suspend};
use super::child::check_after;
use super::{Report, check_all, cycle};
use crate::file::{FileOptions, FileStore, OpenError, verify};
use crate::{Batch, RunStore, StoreError, WorkStore};

/// A folder for a store in a directory of its own.
#[must_use]
pub fn fresh_folder() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("standfast-files");
    (directory, folder)
}

/// Opens the store in this folder.
pub fn open(folder: &Path) -> Result<Arc<FileStore>, OpenError> {
    FileStore::open(&FileOptions::at(folder)).map(Arc::new)
}

/// The files of a folder, by their paths in it.
type Files = BTreeMap<String, Vec<u8>>;

/// Every file of a folder but its lock.
#[must_use]
pub fn files_of(folder: &Path) -> Files {
    let (mut files, mut folders) = (Files::new(), vec![folder.to_owned()]);
    while let Some(one) = folders.pop() {
        for entry in std::fs::read_dir(&one).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_none_or(|name| name != "lock") {
                let name = path.strip_prefix(folder).unwrap().to_string_lossy().into_owned();
                // One that is just being renamed has another name now.
                files.extend(std::fs::read(&path).ok().map(|bytes| (name, bytes)));
            }
        }
    }
    files
}

/// Writes files below a folder.
pub fn write_files(folder: &Path, files: &Files) {
    for (name, bytes) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

/// The appends of a run that waits for an outside job.
pub fn job(scribe: &mut Scribe, new: &NewRun) -> Vec<Batch> {
    let mut batches = vec![scribe.start(new)];
    let last = |batches: &[Batch]| batches.last().map(|batch| batch.row.clone()).unwrap();
    batches.push(scribe.reply(&last(&batches), &[LOOKUP]));
    let events: Vec<_> = batches.iter().flat_map(|batch| batch.link.events().unwrap()).collect();
    let command = begin(&events, standfast_core::id::CallNo(1), scribe.now);
    batches.push(scribe.batch(&last(&batches), &command));
    batches.push(scribe.batch(&last(&batches), &suspend(1, 1, SuspendFor::External)));
    batches
}

/// A history of runs that take turns.
fn history(seed: u64) -> Vec<Batch> {
    let mut scribe = Scribe::new(seed);
    let large = NewRun::of("large").saying("word ".repeat(5000));
    let runs = [
        cycle(&mut scribe, &NewRun::of("helper")),
        job(&mut scribe, &NewRun::of("deployer")),
        cycle(&mut scribe, &large),
        job(&mut scribe, &NewRun::of("deployer").of_tenant("acme")),
    ];
    let longest = runs.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|n| runs.iter().filter_map(move |run| run.get(n).cloned())).collect()
}

/// What a power cut leaves: the journal as far as it was synced and a piece of the next line; of the files that were not
/// synced any older version, a piece, or nothing. Opening gives exactly what was acknowledged.
#[must_use]
pub fn torn_writes(count: usize) -> Report {
    let (_directory, folder) = fresh_folder();
    let history = history(17);
    let store = open(&folder).unwrap();
    let mut moments = vec![files_of(&folder)];
    for batch in &history {
        block_on(store.append(vec![batch.clone()])).unwrap();
        // The files follow behind the answer at the latest with the next one's turn.
        block_on(store.renew(Vec::new(), super::super::support::NODE, batch.link.header.at)).unwrap();
        moments.push(files_of(&folder));
    }
    drop(store);
    let (mut random, mut violations) = (Random::new(17), Vec::new());
    for n in 0..count {
        let at = random.index(history.len());
        let left = power_cut(&mut random, &moments, at);
        let (_directory, folder) = fresh_folder();
        write_files(&folder, &left);
        if let Err(why) = is_as_of(&folder, &history[..at]) {
            violations.push(format!("cut {n} after {at} appends: {why}"));
        }
    }
    Report { id: "F17", what: "torn writes of the file store", count, violations }
}

fn power_cut(random: &mut Random, moments: &[Files], at: usize) -> Files {
    let journal = "journal.jsonl";
    let mut left = Files::new();
    for (name, newest) in &moments[at] {
        let older = moments[random.index(at + 1)].get(name);
        let bytes = match random.below(5) {
            0 => older.cloned(),
            1 => Some(newest[..random.index(newest.len() + 1)].to_vec()),
            2 => Some(vec![0; newest.len()]),
            3 => moments[0].get(name).cloned(),
            _ => Some(newest.clone()),
        };
        left.extend(bytes.map(|bytes| (name.clone(), bytes)));
    }
    let (synced, next) = (&moments[at][journal], &moments[at + 1][journal]);
    let mut torn = next[synced.len()..].to_vec();
    let cut = random.index(torn.len());
    match random.below(3) {
        0 => torn.truncate(cut),
        1 => torn[cut..].fill(0),
        _ => torn.clear(),
    }
    left.insert(journal.into(), [synced.clone(), torn].concat());
    left.insert("run/half.json.new".into(), b"{\"half".to_vec());
    left
}

/// The folder opens with the state after exactly these appends.
fn is_as_of(folder: &Path, appended: &[Batch]) -> Result<(), String> {
    let store = open(folder).map_err(|error| error.to_string())?;
    let mut wanted: HashMap<RunId, (Seq, Digest)> = HashMap::new();
    for batch in appended {
        wanted.insert(batch.run(), (batch.row.run.state.seq, batch.row.head));
    }
    for (run, (seq, head)) in wanted {
        let row = checked(&*store, run)?;
        if (row.run.state.seq, row.head) != (seq, head) {
            return Err(format!("run {run} is at {}, not at {seq}", row.run.state.seq));
        }
    }
    drop(store);
    let mut report = verify(folder, |_| {}).map_err(|error| error.to_string())?;
    // What is appended here pins definitions that nobody stores.
    report.findings.retain(|finding| !finding.what.contains("that it is pinned to"));
    if report.findings.is_empty() { Ok(()) } else { Err(format!("{:?}", report.findings)) }
}

/// Files are cut, emptied, overwritten and deleted. Each time the folder is refused with the name of the file, or the run
/// that it belongs to is said to be broken and every other is whole, or the file is made again as it was.
#[must_use]
pub fn damaged_files(count: usize) -> Report {
    let (_directory, folder) = fresh_folder();
    let history = history(18);
    let store = open(&folder).unwrap();
    for batch in &history {
        block_on(store.append(vec![batch.clone()])).unwrap();
    }
    drop(store);
    let files = files_of(&folder);
    let names: Vec<&String> = files.keys().collect();
    let (mut random, mut violations) = (Random::new(18), Vec::new());
    for n in 0..count {
        let name = names[n % names.len()];
        let mut damaged = files.clone();
        let what = damage(&mut random, &mut damaged, name);
        let (_directory, copy) = fresh_folder();
        write_files(&copy, &damaged);
        if let Err(why) = is_told(&copy, name, &files, &history) {
            violations.push(format!("{name} {what}: {why}"));
        }
    }
    Report { id: "F18", what: "damaged files of the file store", count, violations }
}

fn damage(random: &mut Random, files: &mut Files, name: &str) -> &'static str {
    let bytes = files.get_mut(name).unwrap();
    let middle = random.index(bytes.len());
    match random.below(4) {
        0 => {
            bytes.truncate(middle);
            "cut"
        }
        1 => {
            bytes.clear();
            "emptied"
        }
        2 => {
            bytes[middle] = 7;
            "overwritten"
        }
        _ => {
            files.remove(name);
            "deleted"
        }
    }
}

fn is_told(folder: &Path, name: &str, files: &Files, history: &[Batch]) -> Result<(), String> {
    let store = match open(folder) {
        Ok(store) => store,
        Err(error) => {
            let text = error.to_string();
            let file = Path::new(name).file_name().unwrap().to_string_lossy().into_owned();
            return if text.contains(&file) {
                Ok(())
            } else {
                Err(format!("refused without its name: {text}"))
            };
        }
    };
    let mut broken = Vec::new();
    for run in history.iter().map(Batch::run) {
        match checked(&*store, run) {
            Ok(_) => {}
            Err(why) => broken.push((run, why)),
        }
    }
    drop(store);
    if files_of(folder).get(name) == files.get(name) && broken.is_empty() {
        return Ok(());
    }
    let is_own = |run: &RunId| name.contains(&run.to_string());
    if let Some((run, why)) = broken.iter().find(|(run, _)| !is_own(run)) {
        return Err(format!("run {run} is broken by it: {why}"));
    }
    // Clients are told it: the file by its place in the folder.
    let place = folder.to_string_lossy();
    if let Some((run, why)) = broken.iter().find(|(_, why)| why.contains(&*place)) {
        return Err(format!("run {run} says where the folder lies: {why}"));
    }
    let report = verify(folder, |_| {}).map_err(|error| error.to_string())?;
    if report.findings.is_empty() && broken.is_empty() {
        return Err("nobody says that it is damaged".into());
    }
    Ok(())
}

/// The disk is full at so many places: said, survived, and written when there is room.
#[must_use]
pub fn full_disk(count: usize) -> Report {
    let mut violations = Vec::new();
    for n in 0..count {
        let room = 400 + 937 * u64::try_from(n).unwrap();
        if let Err(why) = fill(room) {
            violations.push(format!("with {room} bytes: {why}"));
        }
    }
    Report { id: "F14", what: "disk full under the file store", count, violations }
}

fn fill(room: u64) -> Result<(), String> {
    let (_directory, folder) = fresh_folder();
    let open = |room| {
        let options = FileOptions { room: Some(room), ..FileOptions::at(&folder) };
        FileStore::open(&options).map_err(|error| error.to_string())
    };
    let store = open(room)?;
    let (mut acked, mut refused) = (Vec::new(), None);
    let mut scribe = Scribe::new(room);
    'all: for n in 0..200 {
        for batch in cycle(&mut scribe, &NewRun::of(&format!("agent-{n}"))) {
            match block_on(store.append(vec![batch.clone()])) {
                Ok(()) => acked.push((batch.run(), batch.row.run.state.seq)),
                Err(StoreError::Unavailable { why }) => {
                    refused = Some((batch, why));
                    break 'all;
                }
                Err(other) => return Err(format!("not said to be unavailable: {other}")),
            }
        }
    }
    let (batch, why) = refused.ok_or("the disk never got full")?;
    if !(why.contains("disk") && why.contains("full")) {
        return Err(format!("the reason does not name the disk: {why}"));
    }
    for (run, _) in &acked {
        checked(&store, *run)?;
    }
    match (block_on(store.load(batch.run())), batch.expected.seq.0) {
        (Err(StoreError::NotFound { .. }), 0) => {}
        (Ok(stored), seq) if stored.row.run.state.seq.0 == seq => {}
        (other, _) => return Err(format!("half-written: {other:?}")),
    }
    if store.stopped().is_some() {
        return Err("a full disk is no reason to stop for good".into());
    }
    drop(store);
    if let Some(why) = check_after(&folder, &acked).first() {
        return Err(format!("after reopening: {why}"));
    }
    let store = open(room + 10_000_000)?;
    let row = batch.row.clone();
    block_on(store.append(vec![batch])).map_err(|error| format!("with room again: {error}"))?;
    if checked(&store, row.run.facts.id)? == row { Ok(()) } else { Err("something else was written".into()) }
}

type Case = (&'static str, fn() -> Result<(), String>);

const CASES: [Case; 10] = [
    ("a directory that is not there", missing_directory),
    ("a file in the place of the folder", file_as_folder),
    ("a folder with something else in it", foreign_folder),
    ("a folder that another store has", in_use),
    ("a folder of a newer version", newer),
    ("a folder that is deleted", deleted),
    ("a journal that is deleted", journal_deleted),
    ("a folder that is replaced by another", replaced),
    ("a journal that is missing", journal_missing),
    ("files that others may read", modes),
];

/// Opens so many unusable folders, each case in turn.
#[must_use]
pub fn unusable_folders(count: usize) -> Report {
    let mut violations = Vec::new();
    for (what, case) in CASES.iter().cycle().take(count) {
        if let Err(why) = case() {
            violations.push(format!("{what}: {why}"));
        }
    }
    Report { id: "F16", what: "unusable folders", count, violations }
}

fn refused(folder: &Path, says: &str) -> Result<(), String> {
    let Err(error) = open(folder) else { return Err("it opens".into()) };
    let text = error.to_string();
    let is_named = text.contains(&*folder.to_string_lossy());
    if is_named && text.contains(says) { Ok(()) } else { Err(format!("the message is: {text}")) }
}

fn append(store: &FileStore, seed: u64) -> Result<(), StoreError> {
    block_on(store.append(vec![Scribe::new(seed).start(&NewRun::of("helper"))]))
}

fn works(folder: &Path) -> Result<(), String> {
    let store = open(folder).map_err(|error| error.to_string())?;
    append(&store, 16).map_err(|error| error.to_string())?;
    check_all(&*store).first().map_or(Ok(()), |why| Err(why.clone()))
}

fn missing_directory() -> Result<(), String> {
    let (directory, _) = fresh_folder();
    let below = directory.path().join("missing");
    refused(&below.join("files"), "No such file or directory")?;
    std::fs::create_dir(&below).unwrap();
    works(&below.join("files"))
}

fn file_as_folder() -> Result<(), String> {
    let (_directory, folder) = fresh_folder();
    std::fs::write(&folder, "Dear diary").unwrap();
    refused(&folder, "it is a file")?;
    std::fs::remove_file(&folder).unwrap();
    works(&folder)
}

fn foreign_folder() -> Result<(), String> {
    let (_directory, folder) = fresh_folder();
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("diary.txt"), "Dear diary").unwrap();
    refused(&folder, "`diary.txt` is in it")?;
    std::fs::remove_file(folder.join("diary.txt")).unwrap();
    works(&folder)
}

fn in_use() -> Result<(), String> {
    let (directory, folder) = fresh_folder();
    let first = open(&folder).map_err(|error| error.to_string())?;
    refused(&folder, "is in use by another Standfast server, and a file store has one")?;
    let link = directory.path().join("link");
    symlink(&folder, &link).unwrap();
    refused(&link, "is in use by another Standfast server")?;
    drop(first);
    works(&folder)
}

fn newer() -> Result<(), String> {
    let (_directory, folder) = fresh_folder();
    drop(open(&folder).map_err(|error| error.to_string())?);
    let journal = folder.join("journal.jsonl");
    let kept = std::fs::read(&journal).unwrap();
    let body = br#"{"standfast_file_store":99,"after":0,"last_number":0}"#;
    let sum = standfast_core::digest::of_parts("standfast.journal.1", &[&[0; 32], body]);
    std::fs::write(&journal, format!("[\"{sum}\",{}]\n", String::from_utf8_lossy(body))).unwrap();
    refused(&folder, "was written by a newer version (format 99")?;
    std::fs::write(&journal, kept).unwrap();
    works(&folder)
}

/// Appends fail with this from now on, and nothing is acknowledged.
fn stops(store: &FileStore, says: &str) -> Result<(), String> {
    for seed in 1..3 {
        match append(store, seed) {
            Err(error) if error.to_string().contains(says) => {}
            other => return Err(format!("the answer is {other:?}")),
        }
    }
    if store.stopped().is_some_and(|why| why.contains(says)) { Ok(()) } else { Err("it did not stop".into()) }
}

fn deleted() -> Result<(), String> {
    let (_directory, folder) = fresh_folder();
    let store = open(&folder).map_err(|error| error.to_string())?;
    append(&store, 9).map_err(|error| error.to_string())?;
    std::fs::remove_dir_all(&folder).unwrap();
    stops(&store, "was deleted or moved while the server had it open")
}

fn journal_deleted() -> Result<(), String> {
    let (_directory, folder) = fresh_folder();
    let store = open(&folder).map_err(|error| error.to_string())?;
    std::fs::remove_file(folder.join("journal.jsonl")).unwrap();
    stops(&store, "was deleted or moved while the server had it open")
}

fn replaced() -> Result<(), String> {
    let (directory, folder) = fresh_folder();
    let store = open(&folder).map_err(|error| error.to_string())?;
    std::fs::rename(&folder, directory.path().join("old")).unwrap();
    std::fs::create_dir(&folder).unwrap();
    stops(&store, "was replaced by another while the server had it open")
}

fn journal_missing() -> Result<(), String> {
    let (_directory, folder) = fresh_folder();
    works(&folder)?;
    std::fs::remove_file(folder.join("journal.jsonl")).unwrap();
    refused(&folder, "journal.jsonl: it is missing, and there are runs in the folder")
}

/// T29: what is stored is for the server's own eyes.
fn modes() -> Result<(), String> {
    let (_directory, folder) = fresh_folder();
    works(&folder)?;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for name in files_of(&folder).keys() {
        if mode(&folder.join(name)) != 0o600 {
            return Err(format!("{name} has mode {:o}", mode(&folder.join(name))));
        }
    }
    if mode(&folder) != 0o700 || mode(&folder.join("run")) != 0o700 {
        return Err("others may look into the folder".into());
    }
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    drop(open(&folder).map_err(|error| error.to_string())?);
    if mode(&folder) == 0o700 { Ok(()) } else { Err("a folder for everybody was not tightened".into()) }
}

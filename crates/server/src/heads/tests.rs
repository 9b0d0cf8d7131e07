//! What heads notice, on a file of SQLite: lines that were changed, left out or signed by somebody else, and databases
//! that lost something.
//!
//! How people ask for it is tested with the real program, in `tests/audit.rs`.

use aws_lc_rs::rand::SystemRandom;
use standfast_store::RunStore;
use standfast_store::conformance::support::{NewRun, Scribe, block_on};
use standfast_store::sqlite::{SqliteOptions, SqliteStore};
use tempfile::TempDir;

use super::*;

fn pem() -> String {
    let bytes = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    format!("{}\n{}\n{}\n", PRIVATE[0], BASE64_STANDARD.encode(bytes.as_ref()), PRIVATE[1])
}

struct World {
    directory: TempDir,
    store: SqliteStore,
    scribe: Scribe,
}

impl World {
    fn new() -> World {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&SqliteOptions::at(directory.path().join("a.db"))).unwrap();
        std::fs::write(directory.path().join("key.pem"), pem()).unwrap();
        let mut world = World { directory, store, scribe: Scribe::new(3) };
        world.start();
        world.start();
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn start(&mut self) {
        block_on(self.store.append(vec![self.scribe.start(&NewRun::of("ops"))])).unwrap();
    }

    fn sign(&self, key: &str, always: bool) -> Result<Option<WrittenHead>, HeadError> {
        let database = Database::Sqlite(self.path("a.db"));
        append(&database, &self.path("heads"), &KeySource::File(self.path(key)), Timestamp(5), always)
    }

    fn heads(&self) -> String {
        std::fs::read_to_string(self.path("heads")).unwrap()
    }
}

/// T32: a head names what changed; nothing is signed when nothing did, unless somebody asks.
#[test]
fn heads_follow_each_other_and_name_what_changed() {
    let mut world = World::new();
    let first = world.sign("key.pem", false).unwrap().unwrap();
    assert_eq!((first.no, first.runs, first.changed), (1, 2, 2));
    assert_eq!(world.sign("key.pem", false).unwrap(), None);
    world.start();
    let second = world.sign("key.pem", false).unwrap().unwrap();
    assert_eq!((second.no, second.runs, second.changed), (2, 3, 1));
    assert_eq!(world.sign("key.pem", true).unwrap().unwrap().no, 3);
    let trusted = PublicKey::read(&std::fs::read_to_string(world.path("key.pem")).unwrap()).unwrap();
    let signed = read(&world.path("heads"), &[trusted]).unwrap();
    assert_eq!((signed.heads, signed.covered.runs.len()), (3, 3));
    assert_eq!(signed.keys, BTreeSet::from([trusted]));
}

/// T32: a line that was changed, left out, put elsewhere or signed by somebody else is named.
#[test]
fn a_changed_file_is_noticed() {
    let mut world = World::new();
    for _ in 0..3 {
        world.sign("key.pem", true).unwrap();
        world.start();
    }
    let text = world.heads();
    let lines: Vec<&str> = text.lines().collect();
    let path = world.path("changed");
    for (changed, says) in [
        (text.replace("\"runs\":3", "\"runs\":2"), "line 2 of the heads file"),
        (text.replace("\"at\":5", "\"at\":6"), "its signature is not right"),
        (format!("{}\n{}\n", lines[0], lines[2]), "it does not follow the head before it"),
        (format!("{}\n{}\n", lines[1], lines[0]), "line 1"),
        ("{}\n".to_owned(), "it is not a signed head"),
    ] {
        std::fs::write(&path, changed).unwrap();
        let no = read(&path, &[]).unwrap_err().to_string();
        assert!(no.contains(says), "{no}");
    }
    std::fs::write(world.path("other.pem"), pem()).unwrap();
    let other = PublicKey::read(&std::fs::read_to_string(world.path("other.pem")).unwrap()).unwrap();
    let no = read(&world.path("heads"), &[other]).unwrap_err().to_string();
    assert!(no.contains("it is signed with another key"), "{no}");
}

/// T32: a database that lost something is not signed over.
#[test]
fn what_lost_something_is_not_signed() {
    let world = World::new();
    world.sign("key.pem", false).unwrap();
    let other = rusqlite::Connection::open(world.path("a.db")).unwrap();
    other.execute_batch("UPDATE runs SET head = zeroblob(32) WHERE no = 1").unwrap();
    let no = world.sign("key.pem", true).unwrap_err().to_string();
    assert!(no.contains("was rewritten at event"), "{no}");
    other.execute_batch("DELETE FROM runs WHERE no = 1").unwrap();
    let no = world.sign("key.pem", true).unwrap_err().to_string();
    assert!(no.contains("is gone, which was signed before"), "{no}");
}

/// A server that ended while it wrote: what is broken off is not a head, and the next one follows the last whole one.
#[test]
fn a_head_that_was_broken_off_is_left_out() {
    let world = World::new();
    world.sign("key.pem", true).unwrap();
    let whole = world.heads();
    std::fs::write(world.path("heads"), format!("{whole}{}", whole.get(..20).unwrap())).unwrap();
    assert_eq!(world.sign("key.pem", true).unwrap().unwrap().no, 2);
    assert_eq!(read(&world.path("heads"), &[]).unwrap().heads, 2);
}

#[test]
fn a_key_comes_from_a_file_or_a_command() {
    let world = World::new();
    let path = world.path("key.pem").display().to_string();
    let command = KeySource::Command(vec!["cat".into(), path]);
    assert_eq!(command.public().unwrap(), KeySource::File(world.path("key.pem")).public().unwrap());
    for (source, says) in [
        (KeySource::Command(vec!["false".into()]), "it ended with"),
        (KeySource::Command(Vec::new()), "it is empty"),
        (KeySource::File(world.path("missing")), "No such file"),
        (KeySource::File(world.path("a.db")), "cannot be used"),
    ] {
        let no = source.key().unwrap_err().to_string();
        assert!(no.contains(says), "{no}");
    }
    let public = command.public().unwrap();
    let der = [PUBLIC_PREFIX.as_slice(), &public.0].concat();
    let text = format!("{}\n{}\n{}", PUBLIC[0], BASE64_STANDARD.encode(der), PUBLIC[1]);
    assert_eq!(PublicKey::read(&text), Some(public));
}

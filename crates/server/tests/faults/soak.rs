//! F31: the same load for a long time. Memory, descriptors and connections must not grow with it.
//!
//! The first third of the time is for warming up; the last third is compared with the second. What is stored grows with
//! the runs, which are kept; how much a run takes is reported. In the end a server is told to keep them for a second only:
//! then the contents of all of them must go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use standfast_core::time::Millis;
use standfast_store::conformance::cluster;
use standfast_store::conformance::random::Random;
use standfast_store::postgres::{self, PostgresOptions};
use standfast_store::{file, sqlite};
use tokio::task::JoinSet;

use crate::agents::Behaviour;
use crate::child::Options;
use crate::expiry::percentile;
use crate::report::Row;
use crate::server::{Server, now};
use crate::site::{FOLDER, Field, Kept};
use crate::story::{Acked, ClearUp, Story, Wish};

const CLIENTS: u64 = 8;
/// A client begins a run so often, whether the last one took long or not.
const EVERY: Duration = Duration::from_millis(250);
const LOOKS: u32 = 60;
/// Within which everything that has ended must have been erased.
const ERASED_WITHIN: Duration = Duration::from_secs(300);

/// Works for so long.
pub(crate) fn soak(span: Duration, kept: Kept) -> Row {
    let field = Field::new(kept);
    let behaviour = Behaviour { tool: Duration::from_millis(5), ..Options::default().behaviour };
    let mut server = field.start(&Options { behaviour, ..Options::default() });
    let runtime = crate::runtime();
    let (stories, looks) = runtime.block_on(load(&field, &server, span));
    server.kill();
    let acked: Vec<Acked> = stories.iter().flat_map(|story| story.acked.clone()).collect();
    let mut violations: Vec<String> = stories.iter().flat_map(|story| story.violations.clone()).collect();
    let memory = Growth::of(&looks, |look| look.memory_kb);
    let descriptors = Growth::of(&looks, |look| look.descriptors);
    // A folder of files has the rows of its runs in memory: those of the third that lies between the two.
    let rows_kb = match kept {
        Kept::File | Kept::Postgres => 0.0,
        Kept::Folder => 10.0 * stories.len() as f64 / 3.0,
    };
    // An allocator keeps some of what it once needed; a leak of a page for each run is far above this.
    if memory.grew() > memory.middle * 0.1 + 4.0 * 1024.0 + rows_kb {
        violations.push(format!("F31: memory grew from {:.0} to {:.0} KB", memory.middle, memory.last));
    }
    if descriptors.grew() > 8.0 {
        let Growth { middle, last } = descriptors;
        violations.push(format!("F31: descriptors grew from {middle:.0} to {last:.0}"));
    }
    violations.extend(field.check(&acked));
    let bytes = stored(&field) / stories.len().max(1) as u64;
    let (took, left) = retention(&field);
    if left > 0 {
        violations.push(format!("F31: {left} runs were over for long enough and are not erased"));
    }
    // Nobody compares with what was acknowledged any more; everything else must still be right.
    violations.extend(verified(&field));
    let note = format!(
        "{} runs; memory {:.1} → {:.1} MB, descriptors {:.0} → {:.0}; {} bytes stored for each run; all erased by age in {:.1} s",
        stories.len(),
        memory.middle / 1024.0,
        memory.last / 1024.0,
        descriptors.middle,
        descriptors.last,
        bytes,
        took.as_secs_f64()
    );
    let seconds = usize::try_from(span.as_secs()).unwrap_or(usize::MAX);
    Row::new(kept.row("F31", "F31-PG"), "seconds of the same load", seconds, violations).with(note)
}

/// Has everything that has ended erased. How long that took, and what is left.
fn retention(field: &Field) -> (Duration, usize) {
    let behaviour = Options::default().behaviour;
    let mut server =
        field.start(&Options { behaviour, keep: Some(Millis::seconds(1)), ..Options::default() });
    let begin = now();
    while begin.elapsed() < ERASED_WITHIN && still_full(field) > 0 {
        std::thread::sleep(Duration::from_millis(500));
    }
    let took = begin.elapsed();
    server.kill();
    (took, still_full(field))
}

/// How many runs have ended and have their contents.
fn still_full(field: &Field) -> usize {
    match &field.url {
        None if field.kept() == Kept::Folder => full_in_folder(field),
        None => {
            let file = rusqlite::Connection::open(field.data().join("standfast.db")).unwrap();
            let count = "SELECT count(*) FROM runs WHERE phase >= 8 AND erased = 0";
            file.query_row(count, [], |row| row.get(0)).unwrap()
        }
        Some(url) => cluster::query_count(url, "SELECT FROM runs WHERE phase >= 8 AND NOT erased"),
    }
}

/// The same in a folder of files, whose rows can be read beside a server: each is replaced as a whole.
fn full_in_folder(field: &Field) -> usize {
    let rows = std::fs::read_dir(field.data().join(FOLDER).join("run")).unwrap();
    let rows = rows.filter_map(Result::ok).map(|entry| entry.path());
    let rows = rows.filter(|path| path.extension().is_some_and(|kind| kind == "json"));
    let is_full = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let row: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        row["erased"] != true && row["phase"].as_u64().is_some_and(|phase| phase >= 8)
    };
    rows.filter(is_full).count()
}

/// What the audit finds wrong.
fn verified(field: &Field) -> Vec<String> {
    let found = match &field.url {
        None if field.kept() == Kept::Folder => {
            file::verify(&field.data().join(FOLDER), |_| {}).unwrap().findings
        }
        None => sqlite::verify(&field.data().join("standfast.db"), |_| {}).unwrap().findings,
        Some(url) => postgres::verify(&PostgresOptions::at(url), |_| {}).unwrap().findings,
    };
    found.iter().map(|finding| format!("I8: {finding:?}")).collect()
}

struct Look {
    memory_kb: f64,
    descriptors: f64,
}

/// The middle of the second third and that of the last.
struct Growth {
    middle: f64,
    last: f64,
}

impl Growth {
    fn of(looks: &[Look], what: impl Fn(&Look) -> f64) -> Growth {
        let third = looks.len() / 3;
        let median = |part: &[Look]| percentile(part.iter().map(&what).collect(), 0.5);
        let (second, last) = looks.split_at(third).1.split_at(third);
        Growth { middle: median(second), last: median(last) }
    }

    fn grew(&self) -> f64 {
        self.last - self.middle
    }
}

async fn load(field: &Field, server: &Server, span: Duration) -> (Vec<Story>, Vec<Look>) {
    let (is_over, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (http, data) = (server.http(), field.data().to_owned());
        let (is_over, begun) = (is_over.clone(), begun.clone());
        clients.spawn(async move {
            let (mut random, mut stories) = (Random::new(client), Vec::new());
            let mut tick = tokio::time::interval(EVERY);
            while !is_over.load(Ordering::SeqCst) {
                tick.tick().await;
                let no = begun.fetch_add(1, Ordering::SeqCst);
                let mut story = Story::new(format!("k-{no}"), *random.pick(&Wish::ALL), ClearUp::ByLooking);
                if story.live(&http, &data).await.is_err() {
                    story.violations.push(format!("I6: no answer to {}", story.name));
                }
                stories.push(story);
            }
            stories
        });
    }
    let (begin, mut looks) = (now(), Vec::new());
    while begin.elapsed() < span {
        tokio::time::sleep(span / LOOKS).await;
        let open = std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).into_iter().flatten();
        looks.push(Look { memory_kb: server.resident_kb() as f64, descriptors: open.count() as f64 });
    }
    is_over.store(true, Ordering::SeqCst);
    (clients.join_all().await.concat(), looks)
}

/// Bytes that the store takes.
fn stored(field: &Field) -> u64 {
    match &field.url {
        None if field.kept() == Kept::Folder => bytes_below(&field.data().join(FOLDER)),
        None => std::fs::metadata(field.data().join("standfast.db")).map_or(0, |file| file.len()),
        Some(url) => cluster::query_text(url, "SELECT pg_database_size(current_database())")
            .and_then(|text| text.parse().ok())
            .unwrap_or(0),
    }
}

fn bytes_below(folder: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().filter_map(Result::ok);
    let bytes = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => bytes_below(&entry.path()),
        _ => entry.metadata().map_or(0, |file| file.len()),
    };
    entries.map(bytes).sum()
}

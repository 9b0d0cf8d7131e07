//! F28: a server starts on a store in which very many runs wait.
//!
//! It is ready soon, holds none of them in memory, shows the first page, and nothing goes on by itself. Times are
//! reported, not judged: what else a machine does is not the server's fault.

use std::time::Duration;

use standfast_engine::clock::Clock;
use standfast_store::conformance::support::{block_on, runs_by};
use standfast_store::{RunFilter, RunQuery, Store};

use crate::child::Options;
use crate::expiry::{fill, percentile};
use crate::report::Row;
use crate::server::{now, pause};
use crate::site::{Field, Kept};
use crate::story::lines;

/// What a server may have in memory, however many runs wait.
const MEMORY_KB: u64 = 100 * 1024;
/// What a run that waits may take of it in addition where the store is a folder of files, which has its rows in memory.
const OF_A_RUN_KB: u64 = 10;

/// Starts a server so many times on a store with so many runs that wait.
pub(crate) fn paused(runs: usize, starts: usize, kept: Kept) -> Row {
    let field = Field::new(kept);
    let runtime = crate::runtime();
    let options = Options::default();
    runtime.block_on(fill(&field, "ops", runs, &options.behaviour, Clock::system()));
    let before = written(&field);
    let mut violations = Vec::new();
    let (mut ready, mut page, mut memory) = (Vec::new(), Vec::new(), 0);
    for _ in 0..starts {
        let begin = now();
        let mut server = field.start(&options);
        let http = server.http();
        runtime.block_on(async {
            while !matches!(http.get("/readyz").await, Ok((200, _))) && begin.elapsed().as_secs() < 60 {
                pause().await;
            }
            ready.push(begin.elapsed().as_secs_f64() * 1000.0);
            let begin = now();
            let (_, list) = http.get("/api/v1/holds?limit=50").await.unwrap();
            page.push(begin.elapsed().as_secs_f64() * 1000.0);
            let shown = list["holds"].as_array().map_or(0, Vec::len);
            if shown != runs.min(50) {
                violations.push(format!("I6: the first page has {shown} holds"));
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        });
        memory = memory.max(server.resident_kb());
        server.kill();
    }
    let in_memory = match kept {
        Kept::File | Kept::Postgres => 0,
        Kept::Folder => OF_A_RUN_KB * runs as u64,
    };
    if memory > MEMORY_KB + in_memory {
        violations.push(format!("I9: {memory} KB in memory while everything waits"));
    }
    if written(&field) != before {
        violations.push("I6: something went on by itself".into());
    }
    if !lines(field.data()).is_empty() {
        violations.push("I4: a tool ran without a decision".into());
    }
    let note = format!(
        "{runs} runs wait; ready after {:.0} ms (goal 2,000), first page {:.0} ms (goal 50), {:.0} MB in memory",
        percentile(ready, 0.5),
        percentile(page, 0.5),
        memory as f64 / 1024.0
    );
    Row::new(kept.row("F28", "F28-PG"), "started where very many runs wait", starts, violations).with(note)
}

/// How many runs there are, and how many events they have.
fn written(field: &Field) -> (usize, u64) {
    let store = field.store();
    std::thread::scope(|scope| scope.spawn(|| count(&*store)).join().unwrap())
}

fn count(store: &dyn Store) -> (usize, u64) {
    let (mut cursor, mut runs, mut events) = (None, 0, 0);
    loop {
        let query = RunQuery { cursor, limit: 500, ..runs_by(RunFilter::All) };
        let page = block_on(store.list_runs(query)).unwrap();
        runs += page.items.len();
        events += page.items.iter().map(|row| row.run.state.seq.0).sum::<u64>();
        match page.next {
            Some(next) => cursor = Some(next),
            None => return (runs, events),
        }
    }
}

//! F14: the disk is full, at every page that an append may need.
//!
//! Nothing is acknowledged that is not durable, the reason names the disk, nothing is half-written, and with more
//! room the same append is written.

use std::path::Path;
use std::sync::Arc;

use super::super::support::{NewRun, Scribe, block_on, checked};
use super::child::check_after;
use super::{Report, cycle, fresh_file, open};
use crate::sqlite::{OpenError, SqliteOptions, SqliteStore};
use crate::{Batch, RunStore, StoreError};

/// Fills the disk so many times, each time at another page.
#[must_use]
pub fn full_disk(count: usize) -> Report {
    let mut violations = Vec::new();
    let (_directory, file) = fresh_file();
    drop(open(&file).unwrap());
    let empty = u32::try_from(std::fs::metadata(&file).unwrap().len() / 4096).unwrap();
    for n in 0..u32::try_from(count).unwrap() {
        // First the pages that the schema needs, then those of appends.
        let pages = if n < empty && count > 100 { n + 1 } else { empty + n % 97 };
        if let Err(why) = fill(pages) {
            violations.push(format!("with {pages} pages: {why}"));
        }
    }
    Report { id: "F14", what: "disk full", count, violations }
}

fn open_with(file: &Path, pages: u32) -> Result<Arc<SqliteStore>, OpenError> {
    SqliteStore::open(&SqliteOptions { max_pages: Some(pages), ..SqliteOptions::at(file) }).map(Arc::new)
}

fn fill(pages: u32) -> Result<(), String> {
    let (_directory, file) = fresh_file();
    let mut scribe = Scribe::new(u64::from(pages));
    let mut acked = Vec::new();
    let mut refused = None;
    match open_with(&file, pages) {
        // Too small for the schema: refused with the disk as the reason, and no harm done.
        Err(error) => names_the_disk(&error.to_string())?,
        Ok(store) => {
            for n in 0..60 {
                let new = NewRun::of(&format!("agent-{n}")).saying("word ".repeat(100 * (n % 7) * (n % 7)));
                refused = append_all(&store, cycle(&mut scribe, &new), &mut acked)?;
                if refused.is_some() {
                    break;
                }
            }
            let (refused, why) = refused.as_ref().ok_or("the disk never got full")?;
            names_the_disk(why)?;
            still_reads(&store, refused, &acked)?;
            if store.stopped().is_some() {
                return Err("a full disk is no reason to stop for good".into());
            }
        }
    }
    if let Some(why) = check_after(&file, &acked).first() {
        return Err(format!("after reopening: {why}"));
    }
    if let Some((batch, _)) = refused {
        let store = open_with(&file, pages + 5000).map_err(|error| error.to_string())?;
        let row = batch.row.clone();
        block_on(store.append(vec![batch])).map_err(|error| format!("with room again: {error}"))?;
        let stored = checked(&*store, row.run.facts.id)?;
        if stored != row {
            return Err("with room again something else was written".into());
        }
    }
    Ok(())
}

type Acknowledgement = (standfast_core::id::RunId, standfast_core::id::Seq);

/// Appends until one is refused; that one and the reason.
fn append_all(
    store: &SqliteStore,
    batches: Vec<Batch>,
    acked: &mut Vec<Acknowledgement>,
) -> Result<Option<(Batch, String)>, String> {
    for batch in batches {
        match block_on(store.append(vec![batch.clone()])) {
            Ok(()) => acked.push((batch.run(), batch.row.run.state.seq)),
            Err(StoreError::Unavailable { why }) => return Ok(Some((batch, why))),
            Err(other) => return Err(format!("not said to be unavailable: {other}")),
        }
    }
    Ok(None)
}

/// What was acknowledged can be read, and nothing of what was refused is there.
fn still_reads(store: &SqliteStore, refused: &Batch, acked: &[Acknowledgement]) -> Result<(), String> {
    for (run, _) in acked {
        checked(store, *run)?;
    }
    match (block_on(store.load(refused.run())), refused.expected.seq.0) {
        (Err(StoreError::NotFound { .. }), 0) => Ok(()),
        (Ok(stored), seq) if stored.row.run.state.seq.0 == seq => Ok(()),
        (other, _) => Err(format!("half-written: {other:?}")),
    }
}

fn names_the_disk(why: &str) -> Result<(), String> {
    if why.contains("disk") && why.contains("full") {
        Ok(())
    } else {
        Err(format!("the reason does not name the disk: {why}"))
    }
}

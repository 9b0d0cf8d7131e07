//! What this node remembers of the rows that it wrote last, so that most groups need one round trip instead of two.
//!
//! Nothing is believed: a group that is judged on what is remembered is sent together with a statement that locks its
//! runs and fails unless every one of them still is what is remembered, and unless nobody listens. Whatever fails then
//! undoes the whole transaction, and the group is looked at in the database before it is written.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use standfast_core::digest::Digest;
use standfast_core::id::{RunId, Seq};

use super::group::{EncodedBatch, Picture, RunPosition};
use crate::batch::{Batch, Guard, SideWrite};

/// Runs in one generation of what is remembered; there are two.
const GENERATION: usize = 4096;

/// Tenants and definitions that are remembered; past it the set starts over.
const NAMES_MAX: usize = 50_000;

/// What this node remembers.
#[derive(Debug, Default)]
pub(super) struct KnownRows(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    young: HashMap<RunId, RunPosition>,
    old: HashMap<RunId, RunPosition>,
    /// Tenants that have their row: none is ever removed.
    tenants: HashSet<String>,
    /// Definitions that are there: none is ever removed.
    definitions: HashSet<(String, Digest)>,
    /// Whether somebody listened to the runs of the last group that was looked at.
    is_listened_to: bool,
}

impl KnownRows {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is remembered of the runs of a group, if that is everything that can refuse its appends.
    pub(super) fn picture(&self, group: &[&[EncodedBatch]]) -> Option<Picture> {
        let mut memory = self.memory();
        if memory.is_listened_to {
            return None;
        }
        let mut places = BTreeMap::new();
        let mut begun: Vec<RunId> = Vec::new();
        for EncodedBatch { batch, .. } in group.iter().copied().flatten() {
            let run = batch.run();
            if !needs_only_its_run(batch) {
                return None;
            }
            let position = memory.get(run);
            if batch.expected.seq == Seq(0) {
                if position.is_some() || begun.contains(&run) {
                    return None;
                }
                begun.push(run);
            } else if !begun.contains(&run) {
                places.insert(run, position?.clone());
            }
        }
        Some(Picture::of(places))
    }

    /// A group was written.
    pub(super) fn remember(&self, picture: Picture, batches: &[&EncodedBatch], numbers: &[(RunId, i64)]) {
        let mut memory = self.memory();
        if memory.young.len() >= GENERATION {
            memory.old = std::mem::take(&mut memory.young);
        }
        for EncodedBatch { batch, .. } in batches.iter().copied() {
            memory.meet(batch);
        }
        for (run, place) in picture.places {
            let no = place.no.or_else(|| numbers.iter().find(|(of, _)| *of == run).map(|(_, no)| *no));
            memory.forget(run);
            if place.is_written && !place.is_over {
                memory.young.insert(run, place.at_rest(no));
            }
        }
    }

    /// What was seen of listeners.
    pub(super) fn saw(&self, picture: &Picture) {
        self.memory().is_listened_to = picture.is_listened_to();
    }

    /// These are looked at in the database next time.
    pub(super) fn forget(&self, group: &[&[EncodedBatch]]) {
        let mut memory = self.memory();
        group.iter().copied().flatten().for_each(|encoded| memory.forget(encoded.batch.run()));
    }

    /// Whether a tenant is known to have its row.
    pub(super) fn has_tenant(&self, tenant: &str) -> bool {
        self.memory().tenants.contains(tenant)
    }

    /// Whether a definition is known to be there.
    pub(super) fn has_definition(&self, tenant: &str, digest: Digest) -> bool {
        self.memory().definitions.contains(&(tenant.to_owned(), digest))
    }
}

impl Memory {
    fn get(&mut self, run: RunId) -> Option<&RunPosition> {
        if let Some(found) = self.old.remove(&run) {
            self.young.insert(run, found);
        }
        self.young.get(&run)
    }

    fn forget(&mut self, run: RunId) {
        self.young.remove(&run);
        self.old.remove(&run);
    }

    fn meet(&mut self, batch: &Batch) {
        if self.tenants.len() + self.definitions.len() >= NAMES_MAX {
            self.tenants.clear();
            self.definitions.clear();
        }
        let tenant = batch.tenant().as_str();
        if !self.tenants.contains(tenant) {
            self.tenants.insert(tenant.to_owned());
        }
        for put in &batch.puts {
            if let SideWrite::Definition { digest, .. } = put {
                self.definitions.insert((tenant.to_owned(), *digest));
            }
        }
    }
}

/// Whether nothing but its own run can refuse a batch, and nothing but its own run is changed by it.
fn needs_only_its_run(batch: &Batch) -> bool {
    let run = batch.run();
    let guards = batch.guards.iter().all(|guard| match guard {
        Guard::NotLeased { .. } => true,
        // A run's own conversation begins with it: nobody can have closed it.
        Guard::SessionOpen { session } => {
            batch.expected.seq == Seq(0) && RunId::of_own_session(&session.session) == Some(run)
        }
        Guard::KeyUnused { .. } | Guard::CounterWithin { .. } => false,
    });
    guards && !batch.puts.iter().any(|put| matches!(put, SideWrite::Wake { .. }))
}

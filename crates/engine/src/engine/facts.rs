//! What never changes of runs, asked for before anything else of them: who may see a run is decided by it alone.
//!
//! A run of somebody else, one that does not exist and one that cannot be read cost their caller the same one look, so
//! that no answer tells them apart, neither by its words nor by its time (T15). Only whoever may see a run waits for
//! the rest of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use standfast_core::id::{RunId, tenant_tag};
use standfast_core::run::Facts;
use standfast_store::Stored;

use super::{Engine, EngineError};
use crate::auth::Principal;

/// Runs whose facts are remembered.
const REMEMBERED: usize = 8192;

/// Facts of runs that somebody was allowed to see lately.
#[derive(Default)]
pub(super) struct KnownFacts(Mutex<HashMap<RunId, Arc<Facts>>>);

impl KnownFacts {
    fn get(&self, run: RunId) -> Option<Arc<Facts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&run).cloned()
    }

    pub(super) fn put(&self, facts: Facts) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(facts.id, Arc::new(facts));
    }
}

impl Engine {
    /// A run as it is stored, if the caller may see runs with such facts.
    pub(super) async fn stored_if(
        &self,
        who: &Principal,
        run: RunId,
        may: impl Fn(&Facts) -> bool,
    ) -> Result<Stored, EngineError> {
        // What is remembered only saves a look for whoever may see the run: for anybody else it would answer sooner.
        if !self.shared.facts.get(run).is_some_and(|facts| may(&facts)) {
            match self.shared.store.facts(run).await? {
                Some(facts) if may(&facts) => self.shared.facts.put(facts),
                // A row that does not even say whose it is concerns whoever runs the tenant; loading says what it is.
                None if who.is_admin() && run.tenant_tag() == tenant_tag(&who.tenant) => {}
                Some(_) | None => return Err(EngineError::NotFound),
            }
        }
        self.load(run).await
    }
}

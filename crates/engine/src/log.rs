//! What is stored of runs: rows, events, large values, definitions, and who may see them.
//!
//! Everything above reads through here; only `commit` and `drive` append. `visibility.rs` says who may see a run before
//! anything else of it is read, `snapshot.rs` is what one request reads of one run, `views.rs` and `jobs.rs` what is shown
//! of it, `relatives.rs` looks at sub-runs and parents, `conversation.rs` says what came
//! before a run in its session, `tenants.rs` knows whose runs there are, `remains.rs` what stays of
//! a run that is erased, `lines.rs` what the operator's log says of events, `run_traces.rs` where its spans belong, `link_issues.rs`
//! and `session_records.rs` what the audit says of approval links and of who signed in, `refused_decisions.rs`, `refused_sign_ins.rs` and
//! `data_reads.rs` of who tried what they may not and of who took data out, `config_changes.rs` of changes of the configuration; `throttle.rs` bounds what somebody can make it say.

pub(crate) mod config_changes;
mod conversation;
pub(crate) mod data_reads;
mod drift;
mod grants;
mod jobs;
mod lines;
mod link_issues;
pub(crate) mod refused_decisions;
pub(crate) mod refused_sign_ins;
mod relatives;
mod remains;
mod run_traces;
pub(crate) mod session_records;
mod snapshot;
mod tenants;
mod throttle;
mod views;
mod visibility;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use standfast_core::definition::Definition;
use standfast_core::digest::Digest;
use standfast_core::event::Envelope;
use standfast_core::id::{RunId, Seq};
use standfast_core::link::Link;
use standfast_core::name::AgentName;
use standfast_store::{SideWrite, Store, StoreError, StoredRun};

use super::EngineError;
use super::host::Host;

pub use drift::{Drift, DriftKind};
pub use grants::{KeptGrant, Revocation};
pub use jobs::JobView;
pub(crate) use lines::log_events;
pub(crate) use remains::ErasedRun;
pub(crate) use run_traces::{trace_decided, trace_of};
pub use snapshot::Snapshot;
pub use views::{HoldView, RunView, Views};
pub(crate) use views::{asked, demands, recorded, result_of};
pub(crate) use visibility::{audience_member, needs, needs_for};

/// Definitions that are remembered beside those of the settings.
const DEFINITIONS: usize = 256;

/// What is stored of runs.
pub(crate) struct Log {
    pub(crate) host: Arc<Host>,
    pub(crate) store: Arc<dyn Store>,
    /// The tenants that have runs, as far as this node knows.
    tenants: tenants::Tenants,
    /// Facts of runs that somebody was allowed to see lately.
    pub(crate) known: visibility::KnownFacts,
    /// Definitions of older configurations that runs are pinned to. A digest names one for ever.
    definitions: Mutex<HashMap<Digest, Arc<Definition>>>,
    /// The same as they are stored, of those that runs are begun with.
    stored_definitions: Mutex<HashMap<Digest, Arc<[u8]>>>,
}

impl Log {
    pub(crate) fn new(host: Arc<Host>, store: Arc<dyn Store>) -> Log {
        Log {
            host,
            store,
            tenants: tenants::Tenants::default(),
            known: visibility::KnownFacts::default(),
            definitions: Mutex::default(),
            stored_definitions: Mutex::default(),
        }
    }

    /// A run as it is stored.
    pub(crate) async fn load(&self, run: RunId) -> Result<StoredRun, EngineError> {
        match self.store.load(run).await {
            Err(StoreError::NotFound { .. }) => Err(EngineError::NotFound),
            other => Ok(other?),
        }
    }

    /// The events of a run after a position, with large values in their places.
    pub(crate) async fn events(&self, run: RunId, after: Seq) -> Result<Vec<Envelope>, StoreError> {
        Ok(self.appends(run, after).await?.into_iter().flatten().collect())
    }

    /// The same, those of one append together: between them the run was never seen.
    pub(crate) async fn appends(&self, run: RunId, after: Seq) -> Result<Vec<Vec<Envelope>>, StoreError> {
        let links = self.store.links(run, after, usize::MAX).await?;
        self.opened(run, after, links).await
    }

    /// The events of a run's first append.
    pub(crate) async fn opening(&self, run: RunId) -> Result<Vec<Envelope>, StoreError> {
        let links = self.store.links(run, Seq(0), 1).await?;
        Ok(self.opened(run, Seq(0), links).await?.into_iter().flatten().collect())
    }

    /// The events after a position in these links.
    async fn opened(
        &self,
        run: RunId,
        after: Seq,
        links: Vec<Link>,
    ) -> Result<Vec<Vec<Envelope>>, StoreError> {
        let mut appends = Vec::new();
        for link in links {
            let corrupt =
                |bad: standfast_core::link::BadLink| StoreError::Corrupt { run, why: bad.to_string() };
            let mut events = link.events().map_err(corrupt)?;
            events.retain(|envelope| envelope.seq > after);
            for envelope in &mut events {
                self.fill(run, envelope).await?;
            }
            if !events.is_empty() {
                appends.push(events);
            }
        }
        Ok(appends)
    }

    /// Puts large values back in their places.
    async fn fill(&self, run: RunId, envelope: &mut Envelope) -> Result<(), StoreError> {
        for name in envelope.event.blobs() {
            let value = self.store.blob(run, name.digest).await?;
            let missing =
                || StoreError::Corrupt { run, why: format!("the large value {} is missing", name.digest) };
            let wrong =
                |bad: standfast_core::body::WrongBlob| StoreError::Corrupt { run, why: bad.to_string() };
            envelope.event.fill(&name, &value.ok_or_else(missing)?).map_err(wrong)?;
        }
        Ok(())
    }

    /// The definition that a run is pinned to.
    pub(crate) async fn definition(
        &self,
        agent: &AgentName,
        digest: Digest,
    ) -> Result<Arc<Definition>, EngineError> {
        let settings = self.host.settings();
        if let Some(agent) = settings.agents.get(agent) {
            if agent.digest == digest {
                return Ok(agent.definition.clone());
            }
            if let Some(serves) = agent.serves.as_ref().filter(|serves| serves.digest == digest) {
                return Ok(serves.definition.clone());
            }
            if let Some(batched) = agent.batched.as_ref().filter(|batched| batched.digest == digest) {
                return Ok(batched.definition.clone());
            }
        }
        if let Some(known) = self.definitions.lock().unwrap_or_else(PoisonError::into_inner).get(&digest) {
            return Ok(known.clone());
        }
        // Named by what it says, so it is the same whoever keeps it.
        for tenant in self.known_tenants() {
            let bytes = self.store.definition(tenant, digest).await?;
            if let Some(parsed) = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
                let found = Arc::new(parsed);
                self.remember(digest, &found);
                return Ok(found);
            }
        }
        Err(EngineError::NotFound)
    }

    /// What is written with a run that is pinned to a definition. Every run of an agent has the same, so it is made once.
    pub(crate) fn put_definition(&self, digest: Digest, definition: &Definition) -> SideWrite {
        let mut stored = self.stored_definitions.lock().unwrap_or_else(PoisonError::into_inner);
        if stored.len() >= DEFINITIONS && !stored.contains_key(&digest) {
            stored.clear();
        }
        let bytes = stored.entry(digest).or_insert_with(|| definition.to_bytes().into()).clone();
        SideWrite::Definition { digest, bytes }
    }

    fn remember(&self, digest: Digest, definition: &Arc<Definition>) {
        let mut known = self.definitions.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= DEFINITIONS {
            known.clear();
        }
        known.insert(digest, definition.clone());
    }
}

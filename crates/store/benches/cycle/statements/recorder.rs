//! A store that keeps a copy of every append it passes on.

use std::sync::Mutex;

use standfast_store::memory::MemoryStore;
use standfast_store::{
    Answer, AuditLayer, Batch, DeliveryLayer, IdempotencyLayer, Layer, RunLayer, RunStore, SecretLayer,
    SessionLayer, Store, WorkLayer,
};

pub(crate) struct Recorder {
    inner: MemoryStore,
    appends: Mutex<Vec<Vec<Batch>>>,
}

impl Recorder {
    pub(crate) fn new(inner: MemoryStore) -> Recorder {
        Recorder { inner, appends: Mutex::default() }
    }

    pub(crate) fn taken(&self) -> Vec<Vec<Batch>> {
        std::mem::take(&mut self.appends.lock().unwrap())
    }
}

impl Layer for Recorder {
    fn below(&self) -> &dyn Store {
        &self.inner
    }
}

impl RunLayer for Recorder {
    fn append(&self, batches: Vec<Batch>) -> Answer<()> {
        self.appends.lock().unwrap().push(batches.clone());
        self.inner.append(batches)
    }
}

impl WorkLayer for Recorder {}
impl DeliveryLayer for Recorder {}
impl SessionLayer for Recorder {}
impl IdempotencyLayer for Recorder {}
impl SecretLayer for Recorder {}
impl AuditLayer for Recorder {}

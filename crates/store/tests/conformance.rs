//! Every case of the suite for every backend.
//!
//! What a case shows is its name; its body is in `src/conformance`.

use std::sync::Arc;

use standfast_store::conformance::Backend;
use standfast_store::memory::MemoryStore;
use standfast_store::{
    AuditLayer, DeliveryLayer, IdempotencyLayer, Layer, RunLayer, SecretLayer, SessionLayer, Store, WorkLayer,
};

mod memory {
    standfast_store::conformance!(standfast_store::conformance::memory);
}

mod sqlite {
    standfast_store::conformance!(standfast_store::conformance::sqlite);
}

/// T29: with payloads that are sealed.
mod sealed_sqlite {
    standfast_store::conformance!(standfast_store::conformance::sealed_sqlite);
}

/// S2-24, C9.
mod file {
    standfast_store::conformance!(standfast_store::conformance::file);
}

mod postgres {
    standfast_store::conformance!(standfast_store::conformance::postgres);
}

mod split {
    standfast_store::conformance!(standfast_store::conformance::split);
}

mod layered {
    standfast_store::conformance!(crate::layered);
}

/// A layer that changes nothing: whatever it hands down must arrive as the same call.
struct UnchangedLayer(Arc<MemoryStore>);

impl Layer for UnchangedLayer {
    fn below(&self) -> &dyn Store {
        &*self.0
    }
}

impl RunLayer for UnchangedLayer {}
impl WorkLayer for UnchangedLayer {}
impl DeliveryLayer for UnchangedLayer {}
impl SessionLayer for UnchangedLayer {}
impl IdempotencyLayer for UnchangedLayer {}
impl SecretLayer for UnchangedLayer {}
impl AuditLayer for UnchangedLayer {}

struct LayeredBackend(Arc<UnchangedLayer>);

impl Backend for LayeredBackend {
    fn open(&self) -> Arc<dyn Store> {
        self.0.clone()
    }
}

fn layered() -> Box<dyn Backend> {
    Box::new(LayeredBackend(Arc::new(UnchangedLayer(Arc::new(MemoryStore::new())))))
}

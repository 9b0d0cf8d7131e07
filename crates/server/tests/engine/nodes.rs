//! An engine that shares its store with others: which time it goes by.
//!
//! Real nodes on a real database are in `many_nodes.rs` and in the fault tests; here one store stands in for theirs.

use std::sync::Arc;
use std::time::Duration;

use standfast_core::time::{Millis, Timestamp};
use standfast_engine::Engine;
use standfast_engine::clock::Clock;
use standfast_store::memory::MemoryStore;
use standfast_store::{
    Answer, AuditLayer, DeliveryLayer, IdempotencyLayer, Layer, RunLayer, SecretLayer, SessionLayer,
    ShardSet, Store, WorkLayer,
};
use tokio::sync::broadcast;

use crate::Site;

/// A store that others have open too, and that takes its time to say what time it is.
struct Slow {
    inner: MemoryStore,
    clock: Clock,
    takes: Duration,
    hints: broadcast::Sender<ShardSet>,
}

impl Layer for Slow {
    fn below(&self) -> &dyn Store {
        &self.inner
    }
}

impl WorkLayer for Slow {
    fn time(&self) -> Answer<Option<Timestamp>> {
        let (clock, takes) = (self.clock.clone(), self.takes);
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            Ok(Some(clock.now()))
        })
    }

    fn hints(&self) -> Option<broadcast::Receiver<ShardSet>> {
        Some(self.hints.subscribe())
    }
}

impl RunLayer for Slow {}
impl DeliveryLayer for Slow {}
impl SessionLayer for Slow {}
impl IdempotencyLayer for Slow {}
impl SecretLayer for Slow {}
impl AuditLayer for Slow {}

/// F20: a node whose clock is an hour off goes by the shared time from its first moment, also where asking for it takes
/// long: by its own clock it would take the others for dead.
#[tokio::test]
async fn the_first_look_at_the_shared_clock_counts_however_slow_it_is() {
    let (site, shared) = (Site::new(), Clock::system());
    let (hints, _) = broadcast::channel(1);
    let store =
        Slow { inner: MemoryStore::new(), clock: shared.clone(), takes: Duration::from_millis(2_300), hints };
    let own = Clock::wrong_by(Millis::hours(1));
    let engine = Engine::new(Arc::new(store), own.clone(), crate::fixed(), site.settings());
    engine.join().await.unwrap();
    let apart = own.now().0.abs_diff(shared.now().0);
    assert!(apart < 60_000, "the node is {apart} ms off");
}

//! Where scenarios keep their runs, and what a restart leaves of it.
//!
//! Memory keeps its instance, as a process would that loses everything but its store; SQLite is closed and its file
//! opened again. A scenario cannot tell which of them it runs on.

use std::sync::Arc;

use standfast_store::Store;
use standfast_store::memory::MemoryStore;

/// Where runs are kept.
pub(crate) trait Backend {
    /// An empty store.
    fn open(&mut self) -> Result<Arc<dyn Store>, String>;

    /// The store as a new process finds it.
    fn reopen(&mut self, store: Arc<dyn Store>) -> Result<Arc<dyn Store>, String>;
}

/// Keeps runs in memory.
pub(crate) struct MemoryBackend;

impl Backend for MemoryBackend {
    fn open(&mut self) -> Result<Arc<dyn Store>, String> {
        Ok(Arc::new(MemoryStore::new()))
    }

    fn reopen(&mut self, store: Arc<dyn Store>) -> Result<Arc<dyn Store>, String> {
        Ok(store)
    }
}

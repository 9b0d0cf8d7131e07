//! What every handler has at hand: the engine, and whether the server is about to stop.
//!
//! Who is calling is not here: the door puts a `Principal` on each request.

use standfast_engine::Engine;
use tokio::sync::watch;

/// What every handler has at hand.
#[derive(Clone)]
pub struct App {
    /// Everything is done by it.
    pub engine: Engine,
    /// Becomes true when the server stops; streams end then.
    pub stopping: watch::Receiver<bool>,
}

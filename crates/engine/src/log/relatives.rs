//! Sub-runs and parents of a run: what is asked below it, and the path to it from the root.
//!
//! Depth and number are capped by the core.

use standfast_core::hold::HoldKind;
use standfast_core::id::{HoldId, RunId};
use standfast_core::name::AgentName;
use standfast_core::run::Run;

use super::Log;
use crate::EngineError;

impl Log {
    /// Open holds of the sub-runs that a run waits for, and of theirs.
    pub(crate) async fn holds_below(&self, run: &Run) -> Result<Vec<(HoldId, HoldKind)>, EngineError> {
        let mut found = Vec::new();
        let mut children: Vec<RunId> = run.state.holds.iter().filter_map(|hold| hold.child).collect();
        while let Some(child) = children.pop() {
            // One that is promised and not begun yet holds nothing.
            let Ok(stored) = self.store.load(child).await else { continue };
            for hold in &stored.row.run.state.holds {
                match hold.child {
                    Some(grandchild) => children.push(grandchild),
                    None => found.push((HoldId { run: child, key: hold.key }, hold.kind)),
                }
            }
        }
        Ok(found)
    }

    /// Runs above a run, the root first, each with its agent.
    pub(crate) async fn path_to(&self, run: &Run) -> Result<Vec<(RunId, AgentName)>, EngineError> {
        let (mut path, mut above) = (Vec::new(), run.facts.parent);
        while let Some(parent) = above {
            let facts = self.load(parent.run).await?.row.run.facts.clone();
            path.push((facts.id, facts.agent));
            above = facts.parent;
        }
        path.reverse();
        Ok(path)
    }
}

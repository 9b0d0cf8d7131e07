//! Blocking or async: the effective mode of an agent, and why (S0-56, C10).
//!
//! One table. What the two differ in is `plan.rs` (deadlines) and `stores.rs` (where runs live); docs/blocking-or-async.md
//! tells people.

use super::file::Mode;

/// S0-57: the error for an async agent without a store.
pub(super) const ASYNC_NEEDS_STORE: &str = "async HITL requires session_store to be configured";

/// The effective mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectiveMode {
    /// Decisions within minutes.
    Blocking,
    /// Decisions whenever they come.
    Async,
}

/// The effective mode, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effective {
    /// The effective mode.
    pub mode: EffectiveMode,
    /// Why.
    pub why: &'static str,
}

impl EffectiveMode {
    /// As it is written in the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            EffectiveMode::Blocking => "blocking",
            EffectiveMode::Async => "async",
        }
    }
}

/// Whether an agent has a `session_store`. Nothing else counts, also not `task.backend` (C28).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Store {
    /// It has.
    Named,
    /// It has none.
    None,
}

/// The matrix of S0-56. None is the bad row: async without a store.
#[must_use]
pub(super) fn effective(wanted: Option<Mode>, store: Store) -> Option<Effective> {
    let (mode, why) = match (wanted, store) {
        (None, Store::None) => {
            (EffectiveMode::Blocking, "mode is auto by default, and there is no session_store")
        }
        (None, Store::Named) => {
            (EffectiveMode::Async, "mode is auto by default, and there is a session_store")
        }
        (Some(Mode::Auto), Store::None) => {
            (EffectiveMode::Blocking, "mode is auto, and there is no session_store")
        }
        (Some(Mode::Auto), Store::Named) => {
            (EffectiveMode::Async, "mode is auto, and there is a session_store")
        }
        (Some(Mode::Blocking), Store::None | Store::Named) => (EffectiveMode::Blocking, "mode is blocking"),
        (Some(Mode::Async), Store::Named) => {
            (EffectiveMode::Async, "mode is async, and there is a session_store")
        }
        (Some(Mode::Async), Store::None) => return None,
    };
    Some(Effective { mode, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S0-55, S0-56, S0-59, C38: all rows; without a `hitl` block it is auto.
    #[test]
    fn the_matrix() {
        let mode = |wanted, store| effective(wanted, store).map(|effective| effective.mode);
        let (blocking, async_) = (Some(EffectiveMode::Blocking), Some(EffectiveMode::Async));
        for (wanted, without, with) in [
            (None, blocking, async_),
            (Some(Mode::Auto), blocking, async_),
            (Some(Mode::Blocking), blocking, blocking),
            (Some(Mode::Async), None, async_),
        ] {
            assert_eq!(
                (mode(wanted, Store::None), mode(wanted, Store::Named)),
                (without, with),
                "{wanted:?}"
            );
        }
    }
}

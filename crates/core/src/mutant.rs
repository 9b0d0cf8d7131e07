//! Rules that tests can switch off, to prove that the tests would notice.
//!
//! Without the feature `mutants` every question here is the constant `false`; the product is never built with it.

/// A rule that can be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// The store appends whatever sequence was expected.
    SequenceUnchecked,
    /// A hold stays open after its decision, so that it can be decided again.
    DecisionConsumedTwice,
    /// A call with an unknown outcome is started again without asking.
    OrphanRetriedBlindly,
    /// A call is started after its `start_by`.
    StartByUnchecked,
    /// The stored arguments are not compared with what was decided on.
    DigestUnchecked,
    /// A decision after the deadline is taken.
    ExpiryUnchecked,
    /// Anyone may decide.
    AuthorityUnchecked,
    /// A call that no rule judged is allowed.
    MissingVerdictAllows,
    /// A reply counts whatever the model was asked with.
    TranscriptUnchecked,
    /// A model is asked with a decision before it is known whether that counts. A rule of the engine, which the simulation
    /// must notice; nothing below it can.
    DecisionsAskedAhead,
}

impl Mutant {
    /// All of them but those of the engine.
    pub const ALL: [Mutant; 9] = [
        Mutant::SequenceUnchecked,
        Mutant::DecisionConsumedTwice,
        Mutant::OrphanRetriedBlindly,
        Mutant::StartByUnchecked,
        Mutant::DigestUnchecked,
        Mutant::ExpiryUnchecked,
        Mutant::AuthorityUnchecked,
        Mutant::MissingVerdictAllows,
        Mutant::TranscriptUnchecked,
    ];

    /// Whether the rule is switched off on this thread.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn is_on(self) -> bool {
        switch::ON.with(|on| on.get() == Some(self))
    }

    /// Whether the rule is switched off: never.
    #[cfg(not(feature = "mutants"))]
    #[must_use]
    pub const fn is_on(self) -> bool {
        false
    }

    /// Runs `test` on this thread with the rule switched off.
    #[cfg(feature = "mutants")]
    pub fn with<T>(self, test: impl FnOnce() -> T) -> T {
        let _off = switch::MutantGuard;
        switch::ON.with(|on| on.set(Some(self)));
        test()
    }
}

#[cfg(feature = "mutants")]
mod switch {
    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        pub(super) static ON: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Switches the rule on again, also when the test panics.
    pub(super) struct MutantGuard;

    impl Drop for MutantGuard {
        fn drop(&mut self) {
            ON.with(|on| on.set(None));
        }
    }
}

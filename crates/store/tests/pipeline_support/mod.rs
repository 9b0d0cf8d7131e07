//! What the tests of the pipeline are made of.
//!
//! `script.rs` makes up a run command by command, one settled before the next: the truth that everything else is
//! compared with. `faulty.rs` is a store that fails, forgets to answer, loses reads and lets others in between.

pub(crate) mod faulty;
pub(crate) mod script;

//! The rules of Standfast as pure functions: what a file says, what that means for a call, and what follows.
//!
//! No IO, no clock, no randomness, and no wait: time and arguments come in as values. [`rule`] is the language, [`policy`]
//! turns a file into something that can be asked, [`decision`] asks it. The engine combines what comes out with what tools
//! say of themselves; the core records it. Knows nothing of stores, surfaces or the configuration's file format.

#![warn(missing_docs, clippy::wildcard_enum_match_arm)]

pub mod argv;
pub mod backtest;
pub mod budget;
pub mod call;
mod check;
mod condition;
pub mod decimal;
pub mod decision;
pub mod diff;
pub mod effect_key;
mod examples;
pub mod explain;
pub mod glob;
pub mod grant;
pub mod hours;
mod index;
pub mod matcher;
pub mod matching;
mod patterns;
pub mod policy;
mod prepared_policy;
pub mod problem;
mod programs;
pub mod quorum;
mod ranges;
pub mod read;
pub mod reconcile;
pub mod rule;
pub mod shell;
pub mod span;
mod template;
pub mod truth;
pub mod value;
mod when;
pub mod witness;

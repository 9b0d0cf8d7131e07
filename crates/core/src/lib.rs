//! The pure middle of Standfast: what a run is, what may happen to it, and what follows.
//!
//! Three functions are the product: [`decide`] says which events follow from a command, [`apply`] folds an event into
//! a run, [`next`] says what to do now. None of them does IO, reads a clock, draws a random number or fails other
//! than by refusing. The durable format is [`event`]; how it is chained is [`link`].

#![warn(missing_docs, clippy::wildcard_enum_match_arm)]

pub mod actor;
pub mod apply;
pub mod approver;
pub mod base32;
pub mod body;
pub mod budget;
pub mod command;
pub mod decide;
pub mod definition;
pub mod denials;
pub mod digest;
pub mod effect;
pub mod event;
pub mod execution_state;
pub mod grant;
pub mod hold;
pub mod id;
pub mod job;
pub mod json;
pub mod link;
pub mod message;
pub mod mutant;
pub mod name;
pub mod next;
pub mod policy;
pub mod project;
pub mod receipt;
pub mod reconcile;
pub mod refusal;
pub mod request;
pub mod run;
#[cfg(test)]
mod testing;
pub mod text_decisions;
pub mod time;
pub mod trace;
pub mod transcript;
pub mod verdict;
pub mod work_time;

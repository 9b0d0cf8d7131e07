//! Tests of the rule language as its users meet it: YAML in, decisions, problems and explanations out.
//!
//! One program for all of them. `argv_corpus.txt` and `../../policy.md` are data: adding a case is adding a line.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod argv_corpus;
mod common;
mod policy_page;
mod problems;
mod properties;
mod rehearsed;

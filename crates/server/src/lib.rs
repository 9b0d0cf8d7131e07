//! The server: everything between the stored runs and the world.
//!
//! Direction inside: surfaces → engine → (store, model, tool). `engine` is the only write path; `policy` and `auth` work
//! out verdicts and authority before the core is asked; `clock` is the one file that reads time and draws randomness.

pub mod auth;
pub mod clock;
pub mod engine;
pub mod model;
pub mod policy;
pub mod settings;
pub mod tool;

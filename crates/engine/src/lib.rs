//! The engine of Standfast: everything between the stored runs and whoever asks, decides and works.
//!
//! `engine` is the only write path and is what this crate is: [`Engine`]. `policy` and `auth` work out verdicts and
//! authority before the core is asked; `settings` say what a server is made of; `tool` and `model` are what it asks of
//! tools and models, which are crates of their own; `clock` is the one file that reads time and draws randomness.
//! `secrets` and `vault` keep what must not be read, `outbound` calls others, `telemetry` measures. No protocol, no
//! provider and no configuration file is known here.

pub mod auth;
pub mod card_key;
pub mod clock;
mod engine;
pub mod http_date;
pub mod model;
pub mod outbound;
pub mod policy;
pub mod schema;
pub mod secrets;
pub mod settings;
pub mod telemetry;
pub mod tool;
pub mod vault;

pub use engine::*;

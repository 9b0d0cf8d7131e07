//! The server: everything between the stored runs and the world.
//!
//! Direction inside: surfaces → engine → (store, model, tool). `engine` is the only write path; `policy` and `auth` work
//! out verdicts and authority before the core is asked; `clock` is the one file that reads time and draws randomness.
//! `surface` has one folder for each protocol, `http` what they share, `html` what their pages share; `scenario` plays
//! people's own tests. `telemetry` is what the server measures of itself, `vault` the secrets that it keeps, `heads` what it signs
//! of its database. `config` turns a
//! file into `settings`.

pub mod auth;
pub mod card_key;
pub mod clock;
pub mod config;
pub mod demo;
pub mod engine;
pub mod heads;
mod html;
pub mod http;
mod http_date;
pub mod labels;
pub mod model;
pub mod policy;
pub mod scenario;
pub mod schema;
pub mod settings;
pub mod surface;
pub mod telemetry;
pub mod tool;
pub mod vault;

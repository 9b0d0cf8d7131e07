//! The server: everything between the engine and the world.
//!
//! `surface` has one folder for each protocol, `http` what they share, `html` what their pages share, `app` puts them
//! together; `model` and `tool` are what agents are made of. `config` turns a file into the engine's settings; `scenario`
//! plays people's own tests, `demo` needs no file, `heads` is what the server signs of its database.

pub mod app;
pub mod config;
pub mod conformance;
pub mod demo;
pub mod heads;
pub mod scenario;

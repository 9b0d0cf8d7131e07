//! The server: what makes one program of the engine, its models and tools, and the surfaces.
//!
//! `config` turns a file into the engine's settings, with models and tools; `demo` and `conformance` are agents that need
//! no file; `app` puts the surfaces together; `scenario` plays people's own tests; `heads` is what the server signs of its
//! database; `otlp` sends traces to a collector. The command line is the program's (`main.rs`, `cli/`).

pub mod app;
pub mod config;
pub mod database;
pub mod demo;
pub mod encryption;
pub mod heads;
pub mod otlp;
pub mod scenario;

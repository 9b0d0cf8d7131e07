//! The log of a server, on standard error: lines of text, or one JSON object a line.
//!
//! What is logged is said where it happens; here is only how it is written, and from which level on. `RUST_LOG` wins over
//! the configuration, so that one start can be looked at more closely without changing a file.

use std::io::IsTerminal;

use standfast::config::file::{Log, LogFormat};
use tracing_subscriber::EnvFilter;

/// The level without a word from anybody.
const USUAL: &str = "info";

/// What the client of MCP servers has to say, we say ourselves.
const QUIET: &str = "rmcp=off";

/// Begins to write the log. What the command line says wins.
pub(super) fn begin(format: Option<LogFormat>, config: Option<&Log>) {
    let said = config.and_then(|log| log.level.as_deref()).unwrap_or(USUAL);
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(format!("{said},{QUIET}")));
    let written = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format.or(config.and_then(|log| log.format)).unwrap_or(LogFormat::Text) {
        LogFormat::Text => written.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => written.json().flatten_event(true).with_current_span(false).init(),
    }
}

//! Which keys only a start reads: a reload that changes one of them says so.
//!
//! A value is compared by how it is written for debugging, in which secrets are cut out; it is never shown. A key that
//! `FixedSettings` or the start of the server reads belongs into the list: what such a key says is in no `Settings`, so that
//! nothing goes by the new value before a restart. Mirrors are compared with the agents that they are kept of.

use super::Config;

/// A key that a reload does not apply, and what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestartKey {
    name: &'static str,
    value: String,
}

impl RestartKey {
    /// The names of the keys that say something else now.
    #[must_use]
    pub fn changed(before: &[RestartKey], now: &[RestartKey]) -> Vec<&'static str> {
        let differs = |(one, other): &(&RestartKey, &RestartKey)| one != other;
        before.iter().zip(now).filter(differs).map(|(one, _)| one.name).collect()
    }
}

impl Config {
    /// The keys that a reload does not apply.
    #[must_use]
    pub fn restart_keys(&self) -> Vec<RestartKey> {
        let server = &self.file.server;
        let key = |name, value: &dyn std::fmt::Debug| RestartKey { name, value: format!("{value:?}") };
        vec![
            key("server.listen", &server.listen),
            key("server.nodes.name", &server.nodes.name),
            key("server.nodes.take_over_after", &server.nodes.take_over_after),
            key("server.nodes.poll", &server.nodes.poll),
            key("server.limits.max_connections", &server.limits.max_connections),
            key("server.limits.max_body", &server.limits.max_body),
            key("server.audit", &server.audit),
            key("server.encryption", &server.encryption),
            key("server.log", &server.log),
            key("server.tls", &server.tls),
            key("server.traces", &server.traces),
            key("session_stores.<name>.mirror", &self.mirrors()),
        ]
    }
}

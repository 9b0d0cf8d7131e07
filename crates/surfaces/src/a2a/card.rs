//! What agents say about themselves: the public card for everyone, and the extended one for those who are known.
//!
//! The public card names the agent and what it is for; which tools it has is only in the extended one.

use std::collections::BTreeMap;

use standfast_core::digest;
use standfast_core::name::AgentName;
use standfast_engine::settings::{Agent, Auth, CardReaders, Settings};

use super::error::{A2aError, Kind};
use super::operations::OperationContext;
use super::signature::signed;
use super::wire::{
    AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill, Scopes, SecurityRequirement,
    SecurityScheme,
};
use super::{intercept, modes, v03};

/// The extension by which a message may carry a key that makes its repeat safe.
pub(super) const IDEMPOTENCY: &str = "https://a2a-rust.com/extensions/idempotency/v1";

/// The versions that are spoken here.
pub(super) const VERSION: &str = "1.0";

/// The agent at the root: the one that is configured, or the only one.
pub(super) fn default_agent(settings: &Settings) -> Option<&AgentName> {
    let only = settings.agents.keys().next().filter(|_| settings.agents.len() == 1);
    settings.default_agent.as_ref().or(only)
}

/// The card that everyone may read.
pub(super) fn public(settings: &Settings, name: &str, agent: &Agent, site: &str) -> AgentCard {
    signed(settings.a2a.card_key.as_ref(), unsigned(settings, name, agent, site))
}

fn unsigned(settings: &Settings, name: &str, agent: &Agent, site: &str) -> AgentCard {
    let url = format!("{site}/v1/agents/{name}");
    let interface = |protocol_binding| AgentInterface {
        url: url.clone(),
        protocol_binding,
        protocol_version: VERSION,
        tenant: None,
    };
    let grpc = AgentInterface {
        url: host_and_port(site),
        protocol_binding: "GRPC",
        protocol_version: VERSION,
        tenant: Some(name.to_owned()),
    };
    let mut supported_interfaces = vec![interface("JSONRPC"), interface("HTTP+JSON"), grpc];
    if agent.card.readers == CardReaders::CurrentAndV03 {
        let is_default = default_agent(settings).is_some_and(|default| default.as_str() == name);
        supported_interfaces.extend(v03::card::interfaces(&url, is_default.then(|| host_and_port(site))));
    }
    let (security_schemes, security_requirements) = security(settings);
    let description = agent.purpose.clone().unwrap_or_else(|| {
        format!("The agent {name} of a Standfast server: it stops and waits where a person decides.")
    });
    AgentCard {
        name: name.to_owned(),
        description: description.clone(),
        supported_interfaces,
        version: version(agent),
        capabilities: AgentCapabilities {
            streaming: settings.a2a.streaming,
            push_notifications: can_push(settings),
            extended_agent_card: has_extended(settings),
            extensions: extensions(settings),
        },
        security_schemes,
        security_requirements,
        default_input_modes: modes::input(agent),
        default_output_modes: modes::output(agent),
        skills: skills(agent, name, description),
        signatures: Vec::new(),
    }
}

fn extensions(settings: &Settings) -> Vec<AgentExtension> {
    let idempotency = AgentExtension {
        uri: IDEMPOTENCY,
        description: "A key in a message's metadata makes sending it again safe.",
        required: false,
    };
    std::iter::once(idempotency).chain(intercept::extension(settings)).collect()
}

/// What an agent is good at: as the configuration says it, or else its purpose.
fn skills(agent: &Agent, name: &str, description: String) -> Vec<AgentSkill> {
    let said: Vec<AgentSkill> = agent
        .card
        .skills
        .iter()
        .map(|skill| AgentSkill {
            id: skill.id.clone(),
            name: skill.name.clone(),
            description: skill.description.clone(),
            tags: skill.tags.clone(),
            examples: skill.examples.clone(),
        })
        .collect();
    if !said.is_empty() {
        return said;
    }
    let (id, tags) = (name.to_owned(), vec!["agent".to_owned()]);
    vec![AgentSkill { id, name: name.to_owned(), description, tags, examples: Vec::new() }]
}

/// An address as clients of gRPC want it: `host:port`, with the port even where it goes without saying.
fn host_and_port(site: &str) -> String {
    let (scheme, rest) = site.split_once("://").unwrap_or(("http", site));
    let host = rest.split('/').next().unwrap_or_default();
    let port = if scheme == "https" { 443 } else { 80 };
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.is_empty() && !port.ends_with(']'));
    if has_port { host.to_owned() } else { format!("{host}:{port}") }
}

/// Whether receivers of push notifications may be named. Without a key nothing could be signed or sealed.
pub(super) fn can_push(settings: &Settings) -> bool {
    settings.a2a.push_notifications && settings.webhooks.key.is_some()
}

/// Whether there is an extended card: where callers are authenticated (1.0.1, section 13.3), unless it is switched off.
pub(super) fn has_extended(settings: &Settings) -> bool {
    let is_authenticated = match &settings.access.auth {
        Auth::Local => intercept::guards_extended_card(settings),
        Auth::Keys | Auth::Tokens(_) | Auth::KeysAndTokens(_) => true,
    };
    settings.a2a.extended_card && is_authenticated
}

/// The same with the agent's tools, for those who are known.
pub(super) fn extended(asked: &OperationContext) -> Result<AgentCard, A2aError> {
    let settings = asked.app.engine.settings();
    if !has_extended(&settings) {
        let message = "this agent has no extended card: extended cards are for authenticated callers; configure server.auth";
        return Err(A2aError::new(Kind::UnsupportedOperation, message));
    }
    let missing = || A2aError::new(Kind::ExtendedAgentCardNotConfigured, "this agent is gone");
    let agent = settings.agents.get(&asked.agent).ok_or_else(missing)?;
    let mut card = unsigned(&settings, asked.agent.as_str(), agent, &asked.site);
    for (tool, spec) in &agent.definition.tools {
        let tag = if agent.needs_approval.contains(tool) { "needs-approval" } else { "tool" };
        card.skills.push(AgentSkill {
            id: format!("tool:{tool}"),
            name: tool.to_string(),
            description: spec.description.clone(),
            tags: vec![tag.to_owned()],
            examples: Vec::new(),
        });
    }
    Ok(signed(settings.a2a.card_key.as_ref(), card))
}

/// A card's version is that of the agent's definition: it changes when the agent does.
fn version(agent: &Agent) -> String {
    format!("1.0.0+{}", agent.digest.to_string().get(..12).unwrap_or_default())
}

fn security(settings: &Settings) -> (BTreeMap<&'static str, SecurityScheme>, Vec<SecurityRequirement>) {
    let description = match (&settings.access.auth, intercept::credential(settings)) {
        (Auth::Local, Some(description)) => description,
        (Auth::Local, None) => return (BTreeMap::new(), Vec::new()),
        (Auth::Keys, _) => "An API key of this server",
        (Auth::Tokens(_), _) => "A token of the identity provider",
        (Auth::KeysAndTokens(_), _) => "An API key of this server, or a token of the identity provider",
    };
    let scheme = SecurityScheme::HttpAuthSecurityScheme { scheme: "Bearer", description };
    let schemes = BTreeMap::from([("bearer", Scopes { list: Vec::new() })]);
    (BTreeMap::from([("bearer", scheme)]), vec![SecurityRequirement { schemes }])
}

/// What names this very card.
pub(super) fn etag(card: &[u8]) -> String {
    format!("\"{}\"", digest::of_bytes(card))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_is_found_by_host_and_port() {
        for (site, expected) in [
            ("http://127.0.0.1:8080", "127.0.0.1:8080"),
            ("https://standfast.example", "standfast.example:443"),
            ("https://standfast.example:8443/below", "standfast.example:8443"),
            ("http://[::1]", "[::1]:80"),
            ("http://[::1]:9000", "[::1]:9000"),
        ] {
            assert_eq!(host_and_port(site), expected, "{site}");
        }
    }
}

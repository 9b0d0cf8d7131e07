//! The card of a remote agent: where it can be spoken to, and what names it, so that another card shows (T3).
//!
//! A card may name any address. Requests carry the secrets of the configuration, so they go to the host that the
//! configuration names, and elsewhere only where `allowed_hosts` says so.

use std::collections::BTreeMap;

use reqwest::{Method, Url};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use standfast_core::digest;
use standfast_core::time::Millis;
use standfast_engine::outbound::http::{self, HttpLimits, Request};

use super::RemoteOptions;
use super::asks::shortened;

/// Where cards are, below the address of an agent.
const WELL_KNOWN: &str = "/.well-known/agent-card.json";

/// The extension by which an agent says that a first message that is sent again does not begin a second task.
pub(super) const IDEMPOTENCY: &str = "https://a2a-rust.com/extensions/idempotency/v1";

const CARD_BYTES: usize = 256 * 1024;
const NAME_BYTES: usize = 100;

/// Who a remote agent is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// What it calls itself.
    pub(super) name: String,
    /// What it says of itself.
    pub(super) description: String,
    pub(super) endpoint: Endpoint,
    /// Whether it promises that a message with the same key begins one task.
    pub(super) is_idempotent: bool,
    /// Names this very card.
    pub(super) digest: String,
}

/// Where and how it is spoken to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) url: String,
    pub(super) binding: Binding,
    pub(super) tenant: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binding {
    JsonRpc,
    HttpJson,
}

/// Why there is no card.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// It cannot be fetched now.
    #[error("its card cannot be fetched from {url}: {why}")]
    Away {
        /// Where it should be.
        url: String,
        /// Why.
        why: String,
    },
    /// It is there, and cannot be used.
    #[error("its card at {url} cannot be used: {why}")]
    Unusable {
        /// Where it is.
        url: String,
        /// Why.
        why: String,
    },
}

impl Card {
    /// In words, for whoever is asked whether this is still the agent that was meant.
    pub(super) fn told(&self) -> String {
        format!(
            "{:?} at {}, which says of itself: {} (card {})",
            self.name,
            self.endpoint.url,
            shortened(&self.description, 600),
            self.digest
        )
    }
}

/// What stands for a card in the description of the tool.
pub(super) fn pin(card: Option<&Card>) -> String {
    match card {
        Some(card) => format!("[agent card {}]", card.digest),
        None => "[agent card not seen yet]".to_owned(),
    }
}

/// Fetches the card of an agent.
pub(super) async fn fetch(options: &RemoteOptions) -> Result<Card, Trouble> {
    let url = address(&options.url);
    let away = |why: String| Trouble::Away { url: url.clone(), why };
    let unusable = |why: String| Trouble::Unusable { url: url.clone(), why };
    let mut headers = options.headers.clone();
    headers.push(("accept".into(), "application/json".into()));
    headers.push(("a2a-version".into(), "1.0".into()));
    let request = Request {
        method: Method::GET,
        url: url.clone(),
        headers,
        body: None,
        idempotency_key: format!("card-{}", options.name),
    };
    let limits = HttpLimits { time: Millis::seconds(20), answer_bytes: CARD_BYTES, ..HttpLimits::default() };
    let answer = http::send(&options.guard, &limits, request).await.map_err(|trouble| match trouble {
        http::Trouble::Blocked(blocked) => unusable(blocked.to_string()),
        trouble @ (http::Trouble::NotSent(_) | http::Trouble::Broken(_)) => away(trouble.to_string()),
    })?;
    match answer.status {
        200..=299 if answer.truncated => Err(unusable(format!("it has more than {CARD_BYTES} bytes"))),
        // What it says of itself is stored with the agents that call it.
        200..=299 => read(&options.secrets().cut(answer.body), options).map_err(unusable),
        status @ (429 | 500..=599) => Err(away(format!("the answer was {status}"))),
        status @ (401 | 403) => {
            Err(unusable(format!("the answer was {status}; give the entry `headers` that it takes")))
        }
        status => Err(unusable(format!("the answer was {status}"))),
    }
}

/// Where the card of an agent is: the address itself where it names a file.
fn address(url: &str) -> String {
    if url.ends_with(".json") { url.to_owned() } else { format!("{}{WELL_KNOWN}", url.trim_end_matches('/')) }
}

/// A card as it is written.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CardText {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    version: String,
    #[serde(default)]
    supported_interfaces: Vec<Interface>,
    #[serde(default)]
    capabilities: Capabilities,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    security_schemes: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    security_requirements: Vec<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    default_input_modes: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    default_output_modes: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    skills: Vec<Skill>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol_version: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Interface {
    url: String,
    protocol_binding: String,
    protocol_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Capabilities {
    streaming: bool,
    push_notifications: bool,
    extended_agent_card: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    extensions: Vec<Extension>,
}

#[derive(Serialize, Deserialize)]
struct Extension {
    #[serde(default)]
    uri: String,
    #[serde(default)]
    required: bool,
}

#[derive(Serialize, Deserialize)]
struct Skill {
    id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    tags: Vec<String>,
}

/// Reads a card; an error says what is wrong with it.
fn read(text: &str, options: &RemoteOptions) -> Result<Card, String> {
    let mut whole: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    let written: CardText = serde_json::from_value(whole.clone()).map_err(|error| error.to_string())?;
    if let Some(members) = whole.as_object_mut() {
        members.remove("signatures");
    }
    let speaks = |one: &&Interface| is_1_0(&one.protocol_version) && binding(one).is_some();
    let Some(interface) = written.supported_interfaces.iter().find(speaks) else {
        return Err(unspoken(&written));
    };
    let Some(binding) = binding(interface) else { return Err(unspoken(&written)) };
    let extensions = &written.capabilities.extensions;
    if let Some(needed) = extensions.iter().find(|one| one.required && one.uri != IDEMPOTENCY) {
        return Err(format!("it requires the extension {}, which this version does not have", needed.uri));
    }
    may_get_secrets(&interface.url, options)?;
    let endpoint = Endpoint {
        url: interface.url.clone(),
        binding,
        tenant: interface.tenant.clone().filter(|tenant| !tenant.is_empty()),
    };
    let digest = digest::of_bytes(sorted(&whole).as_bytes()).to_string();
    Ok(Card {
        name: shortened(&written.name, NAME_BYTES),
        description: written.description,
        endpoint,
        is_idempotent: extensions.iter().any(|one| one.uri == IDEMPOTENCY),
        // Enough of it that nobody makes another card with the same.
        digest: digest.chars().take(32).collect(),
    })
}

fn binding(interface: &Interface) -> Option<Binding> {
    match interface.protocol_binding.as_str() {
        "JSONRPC" => Some(Binding::JsonRpc),
        "HTTP+JSON" => Some(Binding::HttpJson),
        _ => None,
    }
}

fn is_1_0(version: &str) -> bool {
    version == "1.0" || version.starts_with("1.0.")
}

fn unspoken(written: &CardText) -> String {
    let offers = written
        .supported_interfaces
        .iter()
        .map(|one| format!("{} {}", one.protocol_binding, one.protocol_version));
    let offers: Vec<String> = if written.supported_interfaces.is_empty() {
        vec![format!("A2A {}", written.protocol_version.as_deref().unwrap_or("0.3 or older"))]
    } else {
        offers.collect()
    };
    format!("it offers {}; this version speaks A2A 1.0 over JSONRPC or HTTP+JSON", offers.join(", "))
}

/// Whether requests with the configured headers may go to this address.
fn may_get_secrets(url: &str, options: &RemoteOptions) -> Result<(), String> {
    let there = options.guard.check_text(url).map_err(|blocked| blocked.to_string())?;
    let is_same = Url::parse(&options.url).is_ok_and(|named| named.origin() == there.origin());
    if is_same || options.guard.is_named(&there) {
        Ok(())
    } else {
        Err(format!(
            "it names the address {url}, which is another host than that of `url`; name it in `allowed_hosts` if it may \
             get the requests and their headers"
        ))
    }
}

/// JSON with its members in order, so that only what it says counts.
fn sorted(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            let members: Vec<String> = members
                .into_iter()
                .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), sorted(value)))
                .collect();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(sorted).collect::<Vec<_>>().join(",")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use standfast_engine::outbound::guard::Guard;

    use super::*;

    fn options(url: &str, allowed: &[&str]) -> RemoteOptions {
        RemoteOptions {
            name: "bank".into(),
            url: url.into(),
            headers: Vec::new(),
            guard: Guard {
                allowed_hosts: allowed.iter().map(|host| (*host).to_owned()).collect(),
                ..Guard::default()
            },
            answer_bytes: 1,
            timeout: Millis(1),
            idempotent: None,
            description: None,
        }
    }

    fn card(interfaces: Value) -> String {
        json!({"name": "Bank", "description": "Pays.", "supportedInterfaces": interfaces}).to_string()
    }

    fn interface(url: &str, binding: &str, version: &str) -> Value {
        json!({"url": url, "protocolBinding": binding, "protocolVersion": version})
    }

    #[test]
    fn the_first_interface_that_is_spoken_is_taken() {
        let offered = json!([
            interface("grpc.example.org:443", "GRPC", "1.0"),
            interface("https://bank.example.org/old", "JSONRPC", "0.3"),
            interface("https://bank.example.org/rest", "HTTP+JSON", "1.0"),
            interface("https://bank.example.org/rpc", "JSONRPC", "1.0"),
        ]);
        let read = read(&card(offered), &options("https://bank.example.org", &[])).unwrap();
        assert_eq!(read.endpoint.url, "https://bank.example.org/rest");
        assert_eq!((read.endpoint.binding, read.is_idempotent), (Binding::HttpJson, false));
    }

    #[test]
    fn a_card_of_another_version_says_what_it_offers() {
        let old = json!({"name": "Bank", "url": "https://bank.example.org", "protocolVersion": "0.3.0"});
        let why = read(&old.to_string(), &options("https://bank.example.org", &[])).unwrap_err();
        assert!(why.contains("A2A 0.3.0") && why.contains("speaks A2A 1.0"), "{why}");
        let grpc = card(json!([interface("bank:443", "GRPC", "1.0")]));
        assert!(read(&grpc, &options("https://bank.example.org", &[])).unwrap_err().contains("GRPC 1.0"));
    }

    /// T11, T33: what the configuration sends as a secret goes to the host that it names, not to any that a card names.
    #[test]
    fn a_card_cannot_send_the_secrets_elsewhere() {
        let elsewhere = card(json!([interface("https://evil.example.net/rpc", "JSONRPC", "1.0")]));
        let why = read(&elsewhere, &options("https://bank.example.org", &[])).unwrap_err();
        assert!(why.contains("another host"), "{why}");
        let inside = card(json!([interface("http://169.254.169.254/rpc", "JSONRPC", "1.0")]));
        let why = read(&inside, &options("https://bank.example.org", &[])).unwrap_err();
        assert!(why.contains("not a public address"), "{why}");
        assert!(read(&elsewhere, &options("https://bank.example.org", &["evil.example.net"])).is_ok());
    }

    /// T3: the order of members is nothing, a changed address is.
    #[test]
    fn a_changed_card_has_another_digest() {
        let at = |url: &str| card(json!([interface(url, "JSONRPC", "1.0")]));
        let options = options("https://bank.example.org", &[]);
        let one = read(&at("https://bank.example.org/a"), &options).unwrap();
        let other = read(&at("https://bank.example.org/b"), &options).unwrap();
        assert_ne!(one.digest, other.digest);
        let turned = r#"{"supportedInterfaces":[{"protocolVersion":"1.0","protocolBinding":"JSONRPC",
            "url":"https://bank.example.org/a"}],"description":"Pays.","name":"Bank","signatures":[]}"#;
        assert_eq!(read(turned, &options).unwrap().digest, one.digest);
    }

    #[test]
    fn a_card_is_below_the_address_or_is_the_address() {
        assert_eq!(
            address("https://a.org/v1/agents/x/"),
            "https://a.org/v1/agents/x/.well-known/agent-card.json"
        );
        assert_eq!(address("https://a.org/cards/x.json"), "https://a.org/cards/x.json");
    }
}

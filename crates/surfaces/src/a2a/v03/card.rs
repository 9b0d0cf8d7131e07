//! A card that clients of 1.0 and of 0.3 both read: that of 1.0, with what 0.3 needs beside it.
//!
//! An agent has it only where its configuration says so, because strict readers of 1.0 refuse members that they do not
//! know. Ways to say who you are have another shape in each version; both shapes stand in one object.

use serde_json::{Map, Value, json};

use super::super::wire::{AgentCard, AgentInterface};

/// The version as cards of 0.3 write it.
pub(super) const PROTOCOL_VERSION: &str = "0.3.0";

/// What a client of 0.3 uses unless it wants something else.
pub(super) const PREFERRED: &str = "JSONRPC";

/// The name of that binding, in both versions.
const GRPC: &str = "GRPC";

/// What clients of 0.3 read of an agent.
pub(in crate::a2a) fn hybrid(card: &AgentCard) -> Value {
    let Ok(Value::Object(mut both)) = serde_json::to_value(card) else { return Value::Null };
    let url = card.supported_interfaces.first().map_or("", |interface| interface.url.as_str());
    both.insert("protocolVersion".into(), json!(PROTOCOL_VERSION));
    both.insert("url".into(), json!(url));
    both.insert("preferredTransport".into(), json!(PREFERRED));
    let interface = |(transport, url): (&str, &str)| json!({"url": url, "transport": transport});
    let interfaces: Vec<Value> = transports(card).into_iter().map(interface).collect();
    both.insert("additionalInterfaces".into(), Value::Array(interfaces));
    both.insert("supportsAuthenticatedExtendedCard".into(), json!(card.capabilities.extended_agent_card));
    if let Some(Value::Object(schemes)) = both.get_mut("securitySchemes") {
        let names: Vec<String> = schemes.keys().cloned().collect();
        schemes.values_mut().filter_map(Value::as_object_mut).for_each(older_scheme);
        let security: Vec<Value> = names.iter().map(|name| json!({name: []})).collect();
        both.insert("security".into(), Value::Array(security));
    }
    Value::Object(both)
}

/// `{"httpAuthSecurityScheme": {…}}` with `{"type": "http", …}` beside it.
fn older_scheme(scheme: &mut Map<String, Value>) {
    let Some(Value::Object(inner)) = scheme.get("httpAuthSecurityScheme").cloned() else { return };
    scheme.insert("type".into(), json!("http"));
    scheme.extend(inner);
}

/// The ways to speak 0.3 with an agent, each with its address; gRPC only where the card names it.
pub(super) fn transports(card: &AgentCard) -> Vec<(&str, &str)> {
    let url = card.supported_interfaces.first().map_or("", |interface| interface.url.as_str());
    let is_grpc = |interface: &&AgentInterface| {
        interface.protocol_version == super::super::negotiate::V03 && interface.protocol_binding == GRPC
    };
    let grpc = card.supported_interfaces.iter().find(is_grpc).map(|interface| (GRPC, interface.url.as_str()));
    [(PREFERRED, url), ("HTTP+JSON", url)].into_iter().chain(grpc).collect()
}

/// How a client of 1.0 learns that an agent also speaks 0.3. Its gRPC service cannot name an agent: `grpc` is the address of that
/// of the default agent.
pub(in crate::a2a) fn interfaces(url: &str, grpc: Option<String>) -> Vec<AgentInterface> {
    let interface = |protocol_binding, url: String| AgentInterface {
        url,
        protocol_binding,
        protocol_version: super::super::negotiate::V03,
        tenant: None,
    };
    let over_http = [PREFERRED, "HTTP+JSON"].map(|binding| interface(binding, url.to_owned()));
    over_http.into_iter().chain(grpc.map(|address| interface(GRPC, address))).collect()
}

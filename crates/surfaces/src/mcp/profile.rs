//! What an MCP client can do, as it says itself: at the beginning of a session, or with each request. Pure.
//!
//! Two generations of the protocol say it in different places; whoever asks about a client need not know which one it speaks.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// From this version on there are no sessions, and each request says what its client can do.
const SESSIONLESS: &str = "2026-07-28";

/// From this version on a client may be asked to open an address.
const ADDRESSES: &str = "2025-11-25";

/// The extension by which a call becomes something that is asked for later.
const TASKS: &str = "io.modelcontextprotocol/tasks";

/// What a client can do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientProfile {
    /// What it calls itself.
    pub name: String,
    /// The version of the protocol that it speaks.
    pub version: String,
    /// Whether it shows its user an address to open.
    #[serde(default)]
    pub opens_addresses: bool,
    /// Whether it asks its user something.
    #[serde(default)]
    pub asks_user: bool,
    /// Whether it comes back for results that take long.
    #[serde(default)]
    pub follows_tasks: bool,
}

#[derive(Deserialize)]
struct RequestMeta {
    #[serde(default, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<String>,
    #[serde(default, rename = "io.modelcontextprotocol/clientInfo")]
    client: Value,
    #[serde(default, rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Value,
}

impl ClientProfile {
    /// What a client says with the parameters of `initialize`.
    #[must_use]
    pub fn of_hello(params: &Value) -> ClientProfile {
        let version = params["protocolVersion"].as_str().unwrap_or_default();
        ClientProfile::of(version, &params["clientInfo"], &params["capabilities"])
    }

    /// What a client says in the `_meta` of a request; none where it says nothing there.
    pub fn of_request(meta: &RawValue) -> serde_json::Result<Option<ClientProfile>> {
        let said: RequestMeta = serde_json::from_str(meta.get())?;
        Ok(said.version.map(|version| ClientProfile::of(&version, &said.client, &said.capabilities)))
    }

    fn of(version: &str, client: &Value, capabilities: &Value) -> ClientProfile {
        let elicitation = capabilities["elicitation"].as_object();
        let can = |mode: &str| elicitation.is_some_and(|modes| modes.contains_key(mode));
        ClientProfile {
            name: client["name"].as_str().unwrap_or_default().to_owned(),
            version: version.to_owned(),
            opens_addresses: can("url") && version >= ADDRESSES,
            // Before there were modes, whoever said anything meant forms.
            asks_user: can("form") || elicitation.is_some_and(serde_json::Map::is_empty),
            follows_tasks: version >= SESSIONLESS && capabilities["extensions"][TASKS].is_object(),
        }
    }

    /// Whether it speaks a version without sessions.
    #[must_use]
    pub fn is_sessionless(&self) -> bool {
        self.version.as_str() >= SESSIONLESS
    }
}

/// Whether this is a version without sessions.
#[must_use]
pub fn is_sessionless(version: &str) -> bool {
    version >= SESSIONLESS
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_generations_say_what_they_can() {
        let capabilities = json!({"elicitation": {"url": {}}, "extensions": {TASKS: {}}});
        let hello = |version: &str, capabilities: &Value| {
            ClientProfile::of_hello(
                &json!({"protocolVersion": version, "clientInfo": {"name": "a"}, "capabilities": capabilities}),
            )
        };
        let old = hello("2025-11-25", &capabilities);
        assert_eq!((old.opens_addresses, old.asks_user, old.follows_tasks), (true, false, false));
        assert!(!hello("2025-06-18", &capabilities).opens_addresses);
        assert!(hello("2025-06-18", &json!({"elicitation": {}})).asks_user);
        assert_eq!(
            hello("2025-06-18", &json!({})),
            ClientProfile { name: "a".into(), version: "2025-06-18".into(), ..Default::default() }
        );
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "b"},
            "io.modelcontextprotocol/clientCapabilities": capabilities,
            "x": 1,
        });
        let meta = serde_json::value::to_raw_value(&meta).unwrap();
        let new = ClientProfile::of_request(&meta).unwrap().unwrap();
        assert!(new.is_sessionless() && new.opens_addresses && new.follows_tasks && new.name == "b");
        let silent = serde_json::value::to_raw_value(&json!({"progressToken": 1})).unwrap();
        assert_eq!(ClientProfile::of_request(&silent).unwrap(), None);
    }
}

//! An agent as a run is pinned to it.
//!
//! Stored once by the digest of its bytes; runs name the digest. It holds prompt, model, tools and the policy as it
//! was, never credentials, endpoints, limits or who may decide: those are always the current ones (rule 8).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::digest::{self, Digest};
use crate::hold::HoldPolicy;
use crate::json::RawJson;
use crate::message::{Replay, is_default};
use crate::name::{AgentName, ToolName};

/// An agent as a run is pinned to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// The agent.
    pub agent: AgentName,
    /// Its instructions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prompt: String,
    /// The model's name as configured.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Its parameters, as configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_parameters: Option<RawJson>,
    /// The tools it may call.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<ToolName, ToolSpec>,
    /// The policy as it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<RawJson>,
    /// Agents it may hand work to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sub_agents: Vec<AgentName>,
    /// Whether its thinking is shown.
    #[serde(default, skip_serializing_if = "is_default")]
    pub show_thinking: bool,
    /// Whether one held call holds its whole turn (C6).
    #[serde(default, skip_serializing_if = "is_default")]
    pub hold_batch: bool,
    /// What deny and expiry do, unless a tool says otherwise.
    #[serde(default, skip_serializing_if = "is_default")]
    pub holds: HoldPolicy,
}

/// A tool as it was described to the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// What it does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// JSON Schema of its arguments.
    pub schema: RawJson,
    /// Whether it may be started again by itself after a crash.
    #[serde(default, skip_serializing_if = "is_default")]
    pub replay: Replay,
    /// Whether what it does can be undone; shown to approvers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reversible: bool,
    /// The text people are asked with; `{tool}` and `{input}` are filled in (S3-11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_prompt: Option<String>,
    /// What deny and expiry do for this tool; wins over the agent's (C7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<HoldPolicy>,
}

impl Definition {
    /// An agent without instructions and tools, and with everything else as usual.
    #[must_use]
    pub fn new(agent: AgentName) -> Definition {
        Definition {
            agent,
            prompt: String::new(),
            model: String::new(),
            model_parameters: None,
            tools: BTreeMap::new(),
            policy: None,
            sub_agents: Vec::new(),
            show_thinking: false,
            hold_batch: false,
            holds: HoldPolicy::default(),
        }
    }

    /// The bytes as stored.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match serde_json::to_vec(self) {
            Ok(bytes) => bytes,
            Err(_) => unreachable!("a definition has only string keys"),
        }
    }

    /// The name by which runs are pinned to it.
    #[must_use]
    pub fn digest(&self) -> Digest {
        digest::of_bytes(&self.to_bytes())
    }

    /// What deny and expiry do for holds of this tool's calls.
    #[must_use]
    pub fn policy_for(&self, tool: &ToolName) -> HoldPolicy {
        self.tools.get(tool).and_then(|spec| spec.holds.clone()).unwrap_or_else(|| self.holds.clone())
    }
}

impl ToolSpec {
    /// A tool that is never started again by itself and whose effect cannot be undone.
    #[must_use]
    pub fn new(description: &str, schema: RawJson) -> ToolSpec {
        ToolSpec {
            description: description.to_owned(),
            schema,
            replay: Replay::default(),
            reversible: false,
            approval_prompt: None,
            holds: None,
        }
    }

    /// The digest of the tool as it was described to the model: a changed description is a changed tool (T3).
    #[must_use]
    pub fn schema_digest(&self) -> Digest {
        digest::of_parts("standfast.tool.1", &[self.description.as_bytes(), self.schema.text().as_bytes()])
    }
}

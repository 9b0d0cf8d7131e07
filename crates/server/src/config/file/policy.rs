//! The section `policy`, and the rules of an agent or a tool.
//!
//! Rules and business hours are kept as they are written: the crate `standfast-policy` reads them, and `check/policy.rs`
//! gives its mistakes their lines.

use std::collections::BTreeMap;

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values::{Parameters, Span};

/// Which tool calls run, which wait for a person, and which never run; see docs/policy.md.
#[derive(Debug, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Policy {
    /// What happens to a call that no rule matches, of a tool that may change something and whose entry does not say
    /// `requires_approval`.
    #[schemars(extend("default" = "hold"))]
    pub default: Option<PolicyEffect>,
    /// Whether rules act. With `observe` they change nothing, and what they would have done is recorded.
    #[schemars(extend("default" = "enforce"))]
    pub mode: Option<PolicyMode>,
    /// Calls of tools with these names always need approval.
    #[schemars(extend("default" = ["ShellCommand"]))]
    pub high_risk_tools: Vec<String>,
    /// The rules, for all agents. Their order means nothing: every rule that matches counts, and the strictest wins.
    pub rules: Vec<Parameters>,
    /// How far standing approvals may reach.
    #[garde(dive)]
    pub grants: Grants,
    /// Working hours by name, for `business_hours` of rules: `time_zone`, `days`, `holidays`.
    pub business_hours: BTreeMap<String, Parameters>,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            default: None,
            mode: None,
            high_risk_tools: vec!["ShellCommand".into()],
            rules: Vec::new(),
            grants: Grants::default(),
            business_hours: BTreeMap::new(),
        }
    }
}

/// Rules of one agent, or of one tool.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct ScopedPolicy {
    /// The rules, in addition to those of the file; see docs/policy.md.
    pub rules: Vec<Parameters>,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyEffect {
    /// It runs.
    Allow,
    /// A person is asked.
    Hold,
    /// It does not run.
    Deny,
}

/// Whether rules act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyMode {
    /// They do.
    Enforce,
    /// They only record what they would have done.
    Observe,
}

/// How far standing approvals may reach.
#[derive(Debug, Default, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Grants {
    /// How long one may last.
    #[schemars(extend("default" = "7d"))]
    pub max_duration: Option<Span>,
    /// How many calls one may cover.
    #[schemars(extend("default" = 100))]
    pub max_uses: Option<u32>,
    /// Whether there may be any for calls of the risk class `destructive`, for what cannot be undone and for high-risk
    /// tools.
    #[schemars(extend("default" = "never"))]
    pub destructive: Option<GrantsFor>,
}

/// Whether there may be standing approvals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GrantsFor {
    /// There may not.
    Never,
    /// There may, within the limits.
    Allow,
}

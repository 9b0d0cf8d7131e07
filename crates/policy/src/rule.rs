//! The rule language as types: what stands under `policy` in the configuration.
//!
//! Serde reads and writes them, from YAML as from JSON. Which combinations make sense is `compile.rs`; what they do to a
//! call is `evaluate.rs`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use standfast_core::approver::{Approver, SelfApproval};
use standfast_core::digest::{self, Digest};
use standfast_core::hold::{OnDeny, OnTimeout, Risk};
use standfast_core::policy::Effect;

use crate::budget::Budget;
use crate::effect_key::KeyTemplate;
use crate::hours::BusinessHours;
use crate::matcher::{Globs, Matcher};
use crate::span::Span;
use crate::value::ArgumentPath;

/// The section `policy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyFile {
    /// What happens to a call that no rule matches, of a tool that changes the world and says nothing itself.
    pub default: Effect,
    /// Whether rules act or only report.
    pub mode: Mode,
    /// Calls of these tools are held, whatever an allow rule says.
    pub high_risk_tools: Vec<String>,
    /// The rules; their order means nothing.
    pub rules: Vec<Rule>,
    /// How far standing approvals may reach.
    pub grants: GrantLimits,
    /// Whether the file says something of standing approvals: then there may be some for calls that no rule is about, too.
    #[serde(skip)]
    pub names_grants: bool,
    /// Working hours by name, for `business_hours` of rules.
    pub business_hours: BTreeMap<String, BusinessHours>,
}

impl Default for PolicyFile {
    fn default() -> PolicyFile {
        PolicyFile {
            default: Effect::Hold,
            mode: Mode::Enforce,
            high_risk_tools: vec!["ShellCommand".into()],
            rules: Vec::new(),
            grants: GrantLimits::default(),
            names_grants: false,
            business_hours: BTreeMap::new(),
        }
    }
}

/// Whether rules act or only report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Rules allow, hold and deny.
    #[default]
    Enforce,
    /// Rules change nothing; what they would have done is recorded.
    Observe,
}

/// How far standing approvals may reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GrantLimits {
    /// The longest that one may last.
    pub max_duration: Span,
    /// The most calls that one may cover.
    pub max_uses: u32,
    /// Whether there may be any for calls of the risk class `destructive` and for what cannot be undone.
    pub destructive: GrantRule,
}

impl Default for GrantLimits {
    fn default() -> GrantLimits {
        GrantLimits { max_duration: Span::days(7), max_uses: 100, destructive: GrantRule::Never }
    }
}

/// Whether there may be standing approvals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantRule {
    /// None.
    Never,
    /// Within the limits.
    #[default]
    Allow,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rule {
    /// Its name in the log: letters, digits, `.`, `_` and `-`.
    pub id: String,
    /// Tools whose calls may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Globs>,
    /// Tools about whose calls a person is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<Globs>,
    /// Tools whose calls must not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deny: Option<Globs>,
    /// Agents that it is about; all if none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<Globs>,
    /// Whose runs it is about: users, groups, roles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<Vec<Approver>>,
    /// Sessions that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Globs>,
    /// What it asks of the arguments, by path; all of it must hold.
    #[serde(rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    pub conditions: BTreeMap<ArgumentPath, Matcher>,
    /// A further condition as a CEL expression; on hold and deny rules only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// Why; approvers see it, and the model when it denies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// How bad it can get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
    /// Whether what the call does can be undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reversible: Option<bool>,
    /// Exactly who may decide; without it, whoever the agent says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approvers: Option<Vec<Approver>>,
    /// How many of them must agree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quorum: Option<u32>,
    /// Whether whoever started the run may be one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_approval: Option<SelfApproval>,
    /// How long ago whoever approves may have signed in at the identity provider (`max_age` of OpenID Connect).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sign_in_max_age: Option<Span>,
    /// How long before people are reminded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remind_after: Option<Span>,
    /// How long before others are asked as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub escalate_after: Option<Span>,
    /// Who may decide after that, beside the approvers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub escalate_to: Option<Vec<Approver>>,
    /// How long it may wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expire_after: Option<Span>,
    /// How long a kept hold still takes an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiry_grace: Option<Span>,
    /// The working hours in which these spans are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub business_hours: Option<String>,
    /// What happens when it is denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_deny: Option<OnDeny>,
    /// What happens when nobody decides in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_timeout: Option<OnTimeout>,
    /// Whether there may be standing approvals for what it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grants: Option<GrantRule>,
    /// What names the effect of a call, of which there is at most one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect_key: Option<KeyTemplate>,
    /// How much of it there may be in a span of time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<Budget>,
    /// A read-only call whose result is shown, and made again right before the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precondition: Option<Precondition>,
    /// Calls that it must match, checked when it is loaded.
    #[serde(rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Example>,
    /// Calls that it must not match.
    #[serde(rename = "no_match", skip_serializing_if = "Vec::is_empty")]
    pub counterexamples: Vec<Example>,
    /// Where it stands in its list, where others of it may have been left out.
    #[serde(skip)]
    pub position: Option<usize>,
}

/// A read-only call before the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Precondition {
    /// The tool; it must be one that changes nothing.
    pub tool: String,
    /// Its arguments: where each comes from in the call that is held.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, ArgumentPath>,
}

/// A call that a rule must match, or must not: a command, arguments, or more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Example {
    /// The value of the rule's only condition, such as a command.
    Text(String),
    /// The arguments; or `{tool, agent, user, groups, roles, session, arguments}`.
    Object(serde_json::Map<String, serde_json::Value>),
}

impl Rule {
    /// What it does and to which tools; none unless it says exactly one.
    #[must_use]
    pub fn effect(&self) -> Option<(Effect, &Globs)> {
        match (&self.allow, &self.hold, &self.deny) {
            (Some(tools), None, None) => Some((Effect::Allow, tools)),
            (None, Some(tools), None) => Some((Effect::Hold, tools)),
            (None, None, Some(tools)) => Some((Effect::Deny, tools)),
            (_, _, _) => None,
        }
    }

    /// What it is known by when somebody goes by it later: another digest is another rule.
    #[must_use]
    pub fn digest(&self) -> Digest {
        // Examples change nothing.
        let plain = Rule { examples: Vec::new(), counterexamples: Vec::new(), ..self.clone() };
        match serde_json::to_vec(&plain) {
            Ok(bytes) => digest::of_parts("standfast.rule.1", &[&bytes]),
            Err(_) => unreachable!("a rule has only string keys"),
        }
    }
}

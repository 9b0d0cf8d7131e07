//! A call as rules see it: tool, agent, caller, session, arguments; and what the tool says where no rule speaks.
//!
//! One shape for configured tools, MCP tools, sub-agents and gates. Knows nothing of rules.

use standfast_core::name::{AgentName, SessionId, ToolName};
use standfast_core::policy::Effect;

use crate::value::Arguments;
use standfast_core::approver::Person;

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The tool.
    pub tool: ToolName,
    /// The agent that asks for it.
    pub agent: AgentName,
    /// Whose run it is.
    pub caller: Person,
    /// The session, where there is one.
    pub session: Option<SessionId>,
    /// The arguments.
    pub arguments: Arguments,
}

/// What a tool says of its calls where no rule matches (C32).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToolDefault {
    /// `requires_approval: true`
    RequiresApproval,
    /// `requires_approval: false`
    NeedsNoApproval,
    /// Nothing, and it changes nothing in the world.
    ReadOnly,
    /// Nothing, and it may change the world.
    ChangesWorld,
}

impl ToolDefault {
    /// What happens where no rule matches, with the policy's default for what changes the world.
    #[must_use]
    pub fn effect(self, default: Effect) -> Effect {
        match self {
            ToolDefault::RequiresApproval => Effect::Hold,
            ToolDefault::NeedsNoApproval | ToolDefault::ReadOnly => Effect::Allow,
            ToolDefault::ChangesWorld => default,
        }
    }

    /// Why, for people.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            ToolDefault::RequiresApproval => "the tool requires approval",
            ToolDefault::NeedsNoApproval => "the tool needs no approval",
            ToolDefault::ReadOnly => "the tool changes nothing",
            ToolDefault::ChangesWorld => "the policy's default for tools that change something",
        }
    }
}

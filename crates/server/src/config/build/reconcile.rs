//! `reconcile` of an agent's tools, once it is known what its MCP servers offer.
//!
//! A call that changes the world is refused here as well: a server may say now what the file could not know. What a server does
//! not offer at the moment is asked for when it is needed, and *cannot tell* until then.

use std::collections::BTreeMap;
use std::sync::Arc;

use standfast_core::name::ToolName;
use standfast_engine::settings::Agent;
use standfast_policy::call::ToolDefault;
use standfast_policy::reconcile::Reconcile;

use super::BuildError;
use crate::config::Config;
use crate::config::check::reconcile_overrides;
use crate::config::mcp::our_name;
use crate::config::plan::AgentPlan;

impl Config {
    /// The calls that an agent's tools name; what cannot be read has been refused before.
    pub(super) fn reconcile(
        &self,
        plan: &AgentPlan,
    ) -> Result<BTreeMap<ToolName, Arc<Reconcile>>, BuildError> {
        let mut all = BTreeMap::new();
        for tool in &plan.tools {
            let Some(entry) = self.file.tools.get(&tool.name) else { continue };
            let own = entry.common.reconcile.as_ref().and_then(|own| own.read(None).ok());
            if let Some(own) = own {
                all.insert(ToolName::new(&tool.name)?, Arc::new(own));
            }
            for (theirs, own) in reconcile_overrides(entry) {
                if let (Ok(own), Ok(name)) = (own.read(Some(&tool.name)), our_name(&tool.name, theirs)) {
                    all.insert(name, Arc::new(own));
                }
            }
        }
        Ok(all)
    }
}

/// Refuses a call that may change something.
pub(super) fn checked(agent: Agent) -> Result<Agent, BuildError> {
    for (tool, wanted) in &agent.reconcile {
        let name = ToolName::new(&wanted.tool)?;
        if agent.tools.contains_key(&name) && agent.tool_default(&name) != ToolDefault::ReadOnly {
            let (tool, asked) = (tool.to_string(), name.to_string());
            return Err(BuildError::Reconcile { tool, asked });
        }
    }
    Ok(agent)
}

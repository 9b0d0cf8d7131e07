//! Putting work into an inbox.
//!
//! Who drives it is settled here, once: the agent of this server that it is meant for or that serves the inbox, else
//! whoever claims it from elsewhere.

use std::sync::Arc;

use standfast_core::command::Admission;
use standfast_core::definition::Definition;
use standfast_core::event::{Driver, Inbox};
use standfast_core::id::{RunId, StorageKind};
use standfast_core::name::AgentName;

use super::{NewTask, TaskQueue};
use crate::EngineError;
use crate::auth::Principal;
use crate::settings::Agent;
use crate::submit::RunBasis;

impl TaskQueue {
    /// Puts work into an inbox. It is durable when this comes back.
    pub async fn add(&self, who: &Principal, mut new: NewTask) -> Result<RunId, EngineError> {
        let ttl = new.ttl.or(self.host.settings().task_ttl);
        new.inbox.expires_at = ttl.map(|ttl| self.host.clock.now().plus(ttl));
        let beginning = match self.server_of(&new.inbox) {
            Some((name, agent)) => {
                let own = (agent.digest, agent.definition.clone());
                let definition =
                    agent.serves.as_ref().map(|serves| (serves.digest, serves.definition.clone()));
                RunBasis {
                    agent: name,
                    driver: Driver::Loop,
                    definition: definition.unwrap_or(own),
                    id: self.host.clock.run_id(&who.tenant, agent.lives),
                    session: None,
                    inbox: Some(new.inbox),
                    message: new.message,
                    taken: Admission::Queued,
                    once: new.once,
                }
            }
            None => {
                let name = outside_agent(&new.inbox).ok_or(EngineError::NotFound)?;
                let definition = outside(name.clone());
                RunBasis {
                    definition: (definition.digest(), Arc::new(definition)),
                    agent: name,
                    driver: Driver::Outside,
                    id: self.host.clock.run_id(&who.tenant, StorageKind::Durable),
                    session: None,
                    inbox: Some(new.inbox),
                    message: new.message,
                    taken: Admission::Queued,
                    once: new.once,
                }
            }
        };
        Ok(self.submit.begin(who, beginning).await?.id)
    }

    /// The agent of this server that is to work on such a task: the one it is meant for, if that serves the inbox, or the
    /// least busy of those that serve it. None when it is for workers elsewhere.
    fn server_of(&self, inbox: &Inbox) -> Option<(AgentName, Arc<Agent>)> {
        let settings = self.host.settings();
        let serves = |agent: &Agent| agent.serves.as_ref().is_some_and(|serves| serves.takes(inbox));
        let is_meant = |name: &AgentName| inbox.target_agent.as_ref().is_none_or(|target| target == name);
        let mut serving: Vec<(&AgentName, &Arc<Agent>)> =
            settings.agents.iter().filter(|(name, agent)| is_meant(name) && serves(agent)).collect();
        serving.sort_by_key(|(name, _)| self.drives.pool.tasks_at_work(name));
        serving.first().map(|(name, agent)| ((*name).clone(), (*agent).clone()))
    }
}

/// Whose run it is while nobody has claimed it: the agent it is meant for, else the inbox itself.
fn outside_agent(inbox: &Inbox) -> Option<AgentName> {
    inbox.target_agent.clone().or_else(|| AgentName::new(inbox.inbox.as_str()).ok())
}

/// What an outside run is pinned to: prompt, model and tools are the worker's own.
fn outside(agent: AgentName) -> Definition {
    Definition {
        agent,
        prompt: String::new(),
        model: String::new(),
        model_parameters: None,
        tools: Default::default(),
        policy: None,
        sub_agents: Vec::new(),
        show_thinking: false,
        hold_batch: false,
        holds: Default::default(),
    }
}

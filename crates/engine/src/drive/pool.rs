//! How many runs of an agent are worked on at once: a slot for each, given back when it is dropped.
//!
//! Whoever finds a pool full notes that more may be due; whoever leaves a slot of such an agent has the next run looked
//! for at once.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use standfast_core::name::AgentName;
use standfast_core::run::Facts;

use crate::host::Host;
use crate::wakes::Wakes;

/// How many runs of an agent that is gone are looked at at once: each only asks its question.
const OF_MISSING_AGENT: usize = 64;

/// The slots of all agents.
pub(crate) struct Pool {
    host: Arc<Host>,
    wakes: Arc<Wakes>,
    /// How many runs of each agent are worked on here.
    busy: Mutex<HashMap<AgentName, usize>>,
    /// How many of those came from an inbox.
    serving: Mutex<HashMap<AgentName, usize>>,
    /// The agents of which more runs may be due than there are slots.
    crowded: Mutex<HashSet<AgentName>>,
}

/// A slot of an agent's pool, given back when it is dropped.
pub(crate) struct Slot {
    pool: Arc<Pool>,
    agent: AgentName,
    queue: Queue,
}

/// Where a run that is worked on came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queue {
    /// From an inbox: an agent takes so many of those at once.
    Inbox,
    /// From anywhere else.
    Other,
}

impl Queue {
    pub(crate) fn of(facts: &Facts) -> Queue {
        if facts.inbox.is_some() { Queue::Inbox } else { Queue::Other }
    }
}

impl Pool {
    pub(crate) fn new(host: Arc<Host>, wakes: Arc<Wakes>) -> Pool {
        Pool { host, wakes, busy: Mutex::default(), serving: Mutex::default(), crowded: Mutex::default() }
    }

    /// Takes a slot of an agent's pool; none when it is full.
    pub(crate) fn slot(self: &Arc<Pool>, name: &AgentName, queue: Queue) -> Option<Slot> {
        if self.host.is_stopping() {
            return None;
        }
        let size = self.host.settings().agents.get(name).map_or(OF_MISSING_AGENT, |agent| agent.worker_pool);
        let mut busy = self.busy();
        let count = busy.entry(name.clone()).or_default();
        if *count >= size {
            drop(busy);
            self.crowded().insert(name.clone());
            return None;
        }
        *count += 1;
        if queue == Queue::Inbox {
            *self.serving().entry(name.clone()).or_default() += 1;
        }
        Some(Slot { pool: self.clone(), agent: name.clone(), queue })
    }

    /// How many tasks of inboxes an agent works on here.
    pub(crate) fn tasks_at_work(&self, name: &AgentName) -> usize {
        self.serving().get(name).copied().unwrap_or(0)
    }

    /// How many more runs of an agent may be worked on here.
    pub(crate) fn room(&self, name: &AgentName) -> usize {
        let size = self.host.settings().agents.get(name).map_or(0, |agent| agent.worker_pool);
        size.saturating_sub(self.busy().get(name).copied().unwrap_or(0))
    }

    /// Whether more runs of some agent may be due than it has slots.
    pub(crate) fn is_crowded(&self) -> bool {
        !self.crowded().is_empty()
    }

    /// Remembers whether more runs of an agent may be due than there are slots.
    pub(crate) fn note_crowds<'a>(&self, agents: impl Iterator<Item = (&'a AgentName, Crowd)>) {
        let mut crowded = self.crowded();
        for (agent, crowd) in agents {
            match crowd {
                Crowd::Gone => drop(crowded.remove(agent)),
                Crowd::There if !crowded.contains(agent) => drop(crowded.insert(agent.clone())),
                Crowd::There => {}
            }
        }
    }

    fn busy(&self) -> MutexGuard<'_, HashMap<AgentName, usize>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serving(&self) -> MutexGuard<'_, HashMap<AgentName, usize>> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn crowded(&self) -> MutexGuard<'_, HashSet<AgentName>> {
        self.crowded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether more runs of an agent may be due than there are slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crowd {
    /// They may.
    There,
    /// They are not.
    Gone,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(count) = self.pool.busy().get_mut(&self.agent) {
            *count = count.saturating_sub(1);
        }
        // Looking for due runs costs the writer's time: only when there may be one.
        if self.pool.crowded().contains(&self.agent) {
            self.pool.wakes.wake_worker();
        }
        if self.queue == Queue::Inbox {
            if let Some(count) = self.pool.serving().get_mut(&self.agent) {
                *count = count.saturating_sub(1);
            }
            // There may be room for the next task.
            self.pool.wakes.wake_inboxes();
        }
    }
}

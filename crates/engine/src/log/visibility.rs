//! Who may see a run, decided by what never changes of it, before anything else of it is read.
//!
//! A run of somebody else, one that does not exist and one that cannot be read cost their caller the same one look, so
//! that no answer tells them apart, neither by its words nor by its time (T15). Only whoever may see a run waits for
//! the rest of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use standfast_core::id::{RunId, tenant_tag};
use standfast_core::name::{AgentName, SessionId};
use standfast_core::run::{Facts, Run};
use standfast_store::{AudienceMember, RunFilter, StoredRun, UnreadableRun};

use super::Log;
use crate::EngineError;
use crate::auth::{Party, Principal, Scope, is_let_in, may_see};
use crate::settings::GATE;

/// Runs whose facts are remembered.
const REMEMBERED: usize = 8192;

/// Facts of runs that somebody was allowed to see lately.
#[derive(Default)]
pub(crate) struct KnownFacts(Mutex<HashMap<RunId, Arc<Facts>>>);

impl KnownFacts {
    fn get(&self, run: RunId) -> Option<Arc<Facts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&run).cloned()
    }

    pub(crate) fn put(&self, facts: Facts) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(facts.id, Arc::new(facts));
    }
}

impl Log {
    /// A run as it is stored, if the caller may see runs with such facts.
    pub(crate) async fn stored_if(
        &self,
        who: &Principal,
        run: RunId,
        may: impl Fn(&Facts) -> bool,
    ) -> Result<StoredRun, EngineError> {
        self.known_to(who, run, may).await?;
        self.load(run).await
    }

    /// Finds nothing unless the caller may see runs with such facts.
    pub(crate) async fn known_to(
        &self,
        who: &Principal,
        run: RunId,
        may: impl Fn(&Facts) -> bool,
    ) -> Result<(), EngineError> {
        // What is remembered only saves a look for whoever may see the run: for anybody else it would answer sooner.
        if !self.known.get(run).is_some_and(|facts| may(&facts)) {
            match self.store.facts(run).await? {
                Some(facts) if may(&facts) => self.known.put(facts),
                // A row that does not even say whose it is concerns whoever runs the tenant; loading says what it is.
                None if who.sees_all() && run.tenant_tag() == tenant_tag(&who.tenant) => {}
                Some(_) | None => return Err(EngineError::NotFound),
            }
        }
        Ok(())
    }

    /// The fold of a run, if the caller may see it.
    pub(crate) async fn see(&self, who: &Principal, run: RunId) -> Result<Arc<Run>, EngineError> {
        Ok(self.visible(who, run).await?.row.run)
    }

    /// A run as it is stored, if the caller may see it. A foreign run and one that does not exist look alike (T15).
    pub(crate) async fn visible(&self, who: &Principal, run: RunId) -> Result<StoredRun, EngineError> {
        self.seen_by(who, run).await?;
        self.load(run).await
    }

    /// Finds nothing unless the caller may see the run: by what never changes of it, or because something of it was
    /// escalated or handed on to them. Whoever may not see it costs two looks, whether there is such a run or not.
    pub(crate) async fn seen_by(&self, who: &Principal, run: RunId) -> Result<(), EngineError> {
        match self.known_to(who, run, |facts| self.may_see(who, facts)).await {
            Err(EngineError::NotFound) => match self.load(run).await {
                Ok(stored) if is_let_in(who, &stored.row.run) => Ok(()),
                Ok(_) | Err(_) => Err(EngineError::NotFound),
            },
            known => known,
        }
    }

    /// Owners, approvers, administrators, operators and auditors of the run's tenant, with a credential for its agent.
    pub(crate) fn may_see(&self, who: &Principal, facts: &Facts) -> bool {
        let agent = self.host.agent(&facts.agent).ok();
        may_see(who, facts, agent.as_ref().map(|agent| &agent.approvers))
    }

    /// The same of a run that was read: also whoever something of it was escalated or handed on to.
    pub(crate) fn may_see_run(&self, who: &Principal, run: &Run) -> bool {
        self.may_see(who, &run.facts) || is_let_in(who, run)
    }

    /// Of a run that does not even say whose it is, only its id speaks, and only to whoever sees everything.
    pub(crate) fn may_see_unreadable(&self, who: &Principal, found: &UnreadableRun) -> bool {
        match &found.facts {
            Some(facts) => self.may_see(who, facts),
            None => who.sees_all() && found.run.tenant_tag() == tenant_tag(&who.tenant),
        }
    }

    /// Whether somebody sees runs of others: of this agent, or of any.
    pub(crate) fn sees_others(&self, who: &Principal, agent: Option<&AgentName>) -> bool {
        let settings = self.host.settings();
        let is_gate = agent.is_none_or(|agent| agent.as_str() == GATE);
        let mut agents = settings.agents.iter().filter(|(name, _)| agent.is_none_or(|agent| agent == *name));
        who.oversees()
            || agents.any(|(_, agent)| agent.approvers.include(who))
            || (is_gate && settings.gate.approvers.include(who))
    }

    /// By what a list of runs is looked for: whoever sees only their own runs looks at no others.
    pub(crate) fn run_filter(
        &self,
        who: &Principal,
        agent: Option<&AgentName>,
        session: Option<&SessionId>,
    ) -> RunFilter {
        match (self.sees_others(who, agent), agent.cloned(), session.cloned()) {
            (false, Some(agent), Some(session)) => RunFilter::SessionOf(who.user.clone(), agent, session),
            (false, _, _) => RunFilter::Owner(who.user.clone()),
            (true, Some(agent), Some(session)) => RunFilter::Session(agent, session),
            (true, Some(agent), None) => RunFilter::Agent(agent),
            (true, None, _) => RunFilter::All,
        }
    }
}

/// Refuses a caller whose credential is not for this.
pub(crate) fn needs(who: &Principal, scope: Scope) -> Result<(), EngineError> {
    if who.has(scope) { Ok(()) } else { Err(EngineError::MissingScope(scope.into())) }
}

/// Refuses a caller whose credential is not for this, or not of this agent.
pub(crate) fn needs_for(who: &Principal, scope: Scope, agent: &AgentName) -> Result<(), EngineError> {
    who.lacks(scope, agent.as_str()).map_or(Ok(()), |lacked| Err(EngineError::MissingScope(lacked)))
}

/// How audiences name a user, a group or a role.
pub(crate) fn audience_member(party: &Party) -> AudienceMember {
    AudienceMember(party.to_string())
}

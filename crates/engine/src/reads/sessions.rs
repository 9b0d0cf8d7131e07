//! Conversations: which there are, what of theirs waits, and their metadata. `submit/session_delete.rs` deletes one.
//!
//! `pending_executions` is a view of the runs that wait, made whenever somebody asks; nothing is stored for it (C27). A
//! conversation belongs to the user whose runs are in it: the same name of another user is another conversation. Approvers
//! of its agent and administrators may see it, because they may see its runs; its metadata are for its user, administrators and
//! auditors.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::value::RawValue;
use standfast_core::execution_state::{ExecutionState, execution_state};
use standfast_core::id::{CallNo, RunId, Seq};
use standfast_core::name::{AgentName, SessionId, Tenant, UserId};
use standfast_core::project::{Phase, RunRow};
use standfast_core::run::Run;
use standfast_store::{
    Page, RunFilter, RunQuery, SessionChange, SessionKey, SessionQuery, SessionRow, StoreError,
};

use super::Reads;
use crate::EngineError;
use crate::auth::{Principal, Scope};
use crate::host::Host;
use crate::log::{Log, needs, needs_for};

/// The key of the metadata that is a view of what is pending.
pub const PENDING: &str = "pending_executions";

/// Runs of one conversation that are looked at, at most.
const RUNS_MAX: usize = 1000;
/// Pages that a list reads before it answers with what it has.
const PAGES_MAX: usize = 16;
/// Bytes of a conversation's metadata at most.
const METADATA_MAX: usize = 64 * 1024;
/// Conversations of one name that are looked at, at most.
const OWNERS_MAX: usize = 100;
/// How often a change of metadata is tried when others change them too.
const TRIES: usize = 16;

/// A JSON object whose values keep their text.
pub type Metadata = BTreeMap<String, Box<RawValue>>;

/// Names a conversation; without an agent its name must be that of one only. Without a user it is the caller's own, and
/// somebody else's only where the caller has none of this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionName {
    /// Its name.
    pub session: SessionId,
    /// With which agent.
    pub agent: Option<AgentName>,
    /// Whose.
    pub owner: Option<UserId>,
}

/// A conversation with what of it waits.
#[derive(Debug)]
pub struct SessionView {
    /// The conversation.
    pub row: SessionRow,
    /// The runs that wait, newest first.
    pub pending: Vec<ExecutionState>,
    /// Runs that should wait and cannot be read, and why.
    pub unreadable: Vec<(RunId, String)>,
}

/// Which conversations are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionList {
    /// With one agent.
    pub agent: Option<AgentName>,
    /// Where to go on.
    pub cursor: Option<u64>,
    /// How many at most.
    pub limit: usize,
}

/// Why a conversation was not shown, changed or deleted.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// As everywhere.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Several agents have a conversation of this name.
    #[error("several agents have a session of this name: {}; say which with ?agent=", names(.agents))]
    Ambiguous {
        /// Which.
        agents: Vec<AgentName>,
    },
    /// Several users have a conversation of this name with one agent.
    #[error("several users have a session of this name: {}; say whose with ?owner=", names(.owners))]
    AmbiguousOwner {
        /// Who.
        owners: Vec<UserId>,
    },
    /// The metadata cannot become that.
    #[error("{0}")]
    Metadata(String),
    /// It is somebody else's.
    #[error("this session belongs to {0}; only they and administrators can change or delete it")]
    NotYours(UserId),
    /// A call that changes the world has started.
    #[error(
        "call {call} of run {run} has started and may have an effect; wait for it, or delete with ?force=true"
    )]
    CallStarted {
        /// The run.
        run: RunId,
        /// Its call.
        call: CallNo,
    },
    /// The metadata as stored are no metadata (S0-24).
    #[error("failed to get session metadata: {0}")]
    BadMetadata(String),
    /// There is no state of this run (S0-25).
    #[error("{0}")]
    NoState(String),
}

impl From<StoreError> for SessionError {
    fn from(error: StoreError) -> SessionError {
        SessionError::Engine(error.into())
    }
}

fn names<T: ToString>(all: &[T]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Conversations, as callers see them.
pub struct Sessions {
    host: Arc<Host>,
    log: Arc<Log>,
}

impl Sessions {
    pub(crate) fn new(reads: &Reads) -> Sessions {
        Sessions { host: reads.host.clone(), log: reads.log.clone() }
    }

    /// The tenants whose sessions there may be: for what is done for all of them.
    pub async fn tenants(&self) -> Result<Vec<Tenant>, EngineError> {
        Ok(self.log.tenants().await?)
    }

    /// Conversations, newest first.
    pub async fn list(&self, who: &Principal, list: SessionList) -> Result<Page<SessionRow>, EngineError> {
        let mut page = Page::of(Vec::new(), list.cursor);
        // Whoever sees only their own conversations looks at no others.
        let owner = (!self.log.sees_others(who, list.agent.as_ref())).then(|| who.user.clone());
        for _ in 0..PAGES_MAX {
            let query = SessionQuery {
                tenant: who.tenant.clone(),
                owner: owner.clone(),
                agent: list.agent.clone(),
                session: None,
                cursor: page.next,
                limit: list.limit - page.items.len(),
            };
            let found = self.log.store.list_sessions(query).await?;
            page.items.extend(found.items.into_iter().filter_map(|row| self.seen_session(who, row)));
            page.next = found.next;
            if page.next.is_none() || page.items.len() >= list.limit {
                break;
            }
        }
        Ok(page)
    }

    /// A conversation, if the caller may see it.
    pub async fn session(&self, who: &Principal, name: &SessionName) -> Result<SessionView, SessionError> {
        let row = self.find_session(who, name).await?;
        metadata(&row).map_err(|error| SessionError::BadMetadata(error.to_string()))?;
        let waiting = vec![Phase::HeldForPerson, Phase::HeldForAuth, Phase::HeldForExternal];
        let (mut pending, mut unreadable) = (Vec::new(), Vec::new());
        for held in self.runs_of(&row.key, waiting).await?.items {
            if !self.log.may_see(who, &held.run.facts) {
                continue;
            }
            match self.state_of(&held.run).await {
                Ok(state) => pending.push(state),
                // One run that cannot be read does not hide the others (C35).
                Err(EngineError::Store(StoreError::Corrupt { run, why })) => unreadable.push((run, why)),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(SessionView { row, pending, unreadable })
    }

    /// The runs of a conversation that the caller may see, newest first.
    pub(crate) async fn session_runs(
        &self,
        who: &Principal,
        name: &SessionName,
    ) -> Result<Vec<RunRow>, SessionError> {
        let row = self.find_session(who, name).await?;
        let runs = self.runs_of(&row.key, Vec::new()).await?.items.into_iter();
        Ok(runs.filter(|row| self.log.may_see(who, &row.run.facts)).collect())
    }

    /// The state of one run of a conversation that waits (S0-25).
    pub async fn pending(
        &self,
        who: &Principal,
        name: &SessionName,
        run: &str,
    ) -> Result<ExecutionState, SessionError> {
        let mut view = match self.session(who, name).await {
            Err(SessionError::Engine(EngineError::NotFound)) => {
                return Err(SessionError::NoState(format!("no execution state found for task {run}")));
            }
            Err(SessionError::Engine(EngineError::Store(StoreError::Unavailable { why }))) => {
                let why = format!("session service not available: {why}");
                return Err(StoreError::Unavailable { why }.into());
            }
            other => other?,
        };
        if let Some(at) = view.pending.iter().position(|state| state.task_id.to_string() == run) {
            return Ok(view.pending.swap_remove(at));
        }
        if let Some((run, why)) = view.unreadable.iter().find(|(id, _)| id.to_string() == run) {
            return Err(StoreError::Corrupt { run: *run, why: why.clone() }.into());
        }
        self.is_readable(who, &view.row.key, run).await?;
        Err(SessionError::NoState(if view.pending.is_empty() {
            "no pending executions in session".into()
        } else {
            format!("execution state not found for task {run}")
        }))
    }

    /// That no run of this name is one of the conversation whose row cannot be read: no list of what waits has it.
    async fn is_readable(&self, who: &Principal, key: &SessionKey, run: &str) -> Result<(), SessionError> {
        let Ok(run) = run.parse::<RunId>() else { return Ok(()) };
        match self.log.seen_by(who, run).await {
            Ok(()) => {}
            Err(EngineError::NotFound) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let loaded = self.log.load(run).await.map(drop);
        let Err(EngineError::Store(StoreError::Corrupt { run, why })) = loaded else { return Ok(()) };
        let facts = self.log.store.facts(run).await.map_err(EngineError::from)?;
        if facts.is_some_and(|facts| SessionKey::of(&facts) == *key) {
            return Err(StoreError::Corrupt { run, why }.into());
        }
        Ok(())
    }

    /// Merges into a conversation's metadata: a null takes a key away.
    pub async fn merge_metadata(
        &self,
        who: &Principal,
        name: &SessionName,
        change: &Metadata,
    ) -> Result<(), SessionError> {
        if let Some(value) = change.get(PENDING) {
            let why = if value.get().starts_with('{') {
                format!("{PENDING} is a view of the runs that wait; it cannot be written")
            } else {
                "invalid pending_executions format".to_owned()
            };
            return Err(SessionError::Metadata(why));
        }
        for _ in 0..TRIES {
            let row = self.find_own_session(who, name).await?;
            let read = metadata(&row);
            let mut metadata = read.map_err(|error| SessionError::BadMetadata(error.to_string()))?;
            for (key, value) in change {
                match value.get() {
                    "null" => drop(metadata.remove(key)),
                    _ => drop(metadata.insert(key.clone(), value.clone())),
                }
            }
            let after = serde_json::to_string(&metadata).unwrap_or_default();
            if after.len() > METADATA_MAX {
                let why = format!("metadata would have {} bytes; {METADATA_MAX} is the most", after.len());
                return Err(SessionError::Metadata(why));
            }
            let change = SessionChange::Metadata { before: row.metadata, after };
            if self.log.store.change_session(row.key, change, self.host.clock.now()).await? {
                return Ok(());
            }
        }
        let why = "others change this session's metadata all the time; try again".to_owned();
        Err(StoreError::Unavailable { why }.into())
    }

    /// A conversation that the caller may see: their own, or the one that is named.
    async fn find_session(&self, who: &Principal, name: &SessionName) -> Result<SessionRow, SessionError> {
        let agents = match &name.agent {
            Some(agent) => vec![agent.clone()],
            None => self.host.settings().agents.keys().cloned().collect(),
        };
        let mut found = Vec::new();
        for agent in &agents {
            let key = SessionKey {
                tenant: who.tenant.clone(),
                agent: agent.clone(),
                owner: name.owner.clone().unwrap_or_else(|| who.user.clone()),
                session: name.session.clone(),
            };
            let row = self.log.store.session(key).await?;
            found.extend(row.and_then(|row| self.seen_session(who, row)));
        }
        if found.is_empty() && name.owner.is_none() {
            for agent in agents.iter().filter(|agent| self.log.sees_others(who, Some(agent))) {
                let others = SessionQuery {
                    tenant: who.tenant.clone(),
                    owner: None,
                    agent: Some(agent.clone()),
                    session: Some(name.session.clone()),
                    cursor: None,
                    limit: OWNERS_MAX,
                };
                let others = self.log.store.list_sessions(others).await?;
                found.extend(others.items.into_iter().filter_map(|row| self.seen_session(who, row)));
            }
        }
        let agents: BTreeSet<&AgentName> = found.iter().map(|row| &row.key.agent).collect();
        match (agents.len(), found.len()) {
            (0, _) | (_, 0) => Err(EngineError::NotFound.into()),
            (1, 1) => found.pop().ok_or(EngineError::NotFound.into()),
            (1, _) => {
                let owners = found.into_iter().map(|row| row.key.owner).collect();
                Err(SessionError::AmbiguousOwner { owners })
            }
            (_, _) => Err(SessionError::Ambiguous { agents: agents.into_iter().cloned().collect() }),
        }
    }

    /// Who was the first to use the name of a conversation with its agent.
    pub async fn first_of_name(&self, key: &SessionKey) -> Result<Option<UserId>, EngineError> {
        let (mut first, mut cursor) = (None, None);
        loop {
            let query = SessionQuery {
                tenant: key.tenant.clone(),
                owner: None,
                agent: Some(key.agent.clone()),
                session: Some(key.session.clone()),
                cursor,
                limit: OWNERS_MAX,
            };
            let page = self.log.store.list_sessions(query).await?;
            first = page.items.into_iter().next_back().map(|row| row.key.owner).or(first);
            cursor = page.next;
            if cursor.is_none() {
                return Ok(first);
            }
        }
    }

    /// A conversation that the caller may change: with a credential that is for changes.
    pub(crate) async fn find_own_session(
        &self,
        who: &Principal,
        name: &SessionName,
    ) -> Result<SessionRow, SessionError> {
        needs(who, Scope::RunsWrite)?;
        let row = self.find_session(who, name).await?;
        needs_for(who, Scope::RunsWrite, &row.key.agent)?;
        if who.operates() || row.key.owner == who.user {
            Ok(row)
        } else {
            Err(SessionError::NotYours(row.key.owner))
        }
    }

    /// A conversation as somebody may see it: its user, administrators, operators and auditors with its metadata, approvers of its agent
    /// without them, everyone else not at all.
    fn seen_session(&self, who: &Principal, row: SessionRow) -> Option<SessionRow> {
        if who.tenant != row.key.tenant || !who.reads(&row.key.agent) {
            return None;
        }
        if who.oversees() || row.key.owner == who.user {
            return Some(row);
        }
        let is_approver = self.host.agent(&row.key.agent).is_ok_and(|agent| agent.approvers.include(who));
        is_approver.then(|| SessionRow { metadata: "{}".into(), ..row })
    }

    pub(crate) async fn runs_of(
        &self,
        key: &SessionKey,
        phases: Vec<Phase>,
    ) -> Result<Page<RunRow>, EngineError> {
        let mut page = Page::of(Vec::new(), None);
        loop {
            let query = RunQuery {
                tenant: key.tenant.clone(),
                filter: RunFilter::SessionOf(key.owner.clone(), key.agent.clone(), key.session.clone()),
                phases: phases.clone(),
                since: None,
                cursor: page.next,
                limit: RUNS_MAX,
            };
            let found = self.log.store.list_runs(query).await?;
            page.items.extend(found.items);
            page.unreadable.extend(found.unreadable);
            page.next = found.next;
            if page.next.is_none() || page.items.len() >= RUNS_MAX {
                return Ok(page);
            }
        }
    }

    /// A run as one flat value.
    pub(crate) async fn state_of(&self, run: &Run) -> Result<ExecutionState, EngineError> {
        let definition = self.log.definition(&run.facts.agent, run.state.definition).await?;
        let events = self.log.events(run.facts.id, Seq(0)).await?;
        Ok(execution_state(run, &definition, &events))
    }
}

/// The user's own metadata, as stored.
pub fn metadata(row: &SessionRow) -> Result<Metadata, serde_json::Error> {
    serde_json::from_str(&row.metadata)
}

//! Conversations: which there are, what of theirs waits, their metadata, and deleting them.
//!
//! `pending_executions` is a view of the runs that wait, made whenever somebody asks; nothing is stored for it (C27). A
//! conversation belongs to the user whose runs are in it: the same name of another user is another conversation. Approvers
//! of its agent and administrators may see it, because they may see its runs; its metadata are for its user and
//! administrators.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::value::RawValue;
use standfast_core::command::Command;
use standfast_core::execution_state::{ExecutionState, execution_state};
use standfast_core::id::{CallNo, RunId, Seq};
use standfast_core::message::Replay;
use standfast_core::name::{AgentName, SessionId, UserId};
use standfast_core::project::{Phase, RunRow};
use standfast_core::run::{CallState, Run};
use standfast_store::{
    Page, RunFilter, RunQuery, SessionChange, SessionKey, SessionQuery, SessionRow, StoreError,
};

use super::retention::ErasedRun;
use super::{Engine, EngineError};
use crate::auth::Principal;

/// The key of the metadata that is a view of what waits.
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

/// What deleting a conversation came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deleted {
    /// Runs whose contents are gone.
    pub erased: Vec<RunId>,
    /// Runs that cannot be read, and so not be erased either.
    pub left: Vec<RunId>,
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

impl Engine {
    /// Conversations, newest first.
    pub async fn sessions(
        &self,
        who: &Principal,
        list: SessionList,
    ) -> Result<Page<SessionRow>, EngineError> {
        let mut page = Page::of(Vec::new(), list.cursor);
        // Whoever sees only their own conversations looks at no others.
        let owner = (!self.sees_others(who, list.agent.as_ref())).then(|| who.user.clone());
        for _ in 0..PAGES_MAX {
            let query = SessionQuery {
                tenant: who.tenant.clone(),
                owner: owner.clone(),
                agent: list.agent.clone(),
                session: None,
                cursor: page.next,
                limit: list.limit - page.items.len(),
            };
            let found = self.shared.store.list_sessions(query).await?;
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
            if !self.may_see(who, &held.run.facts) {
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
    pub(super) async fn session_runs(
        &self,
        who: &Principal,
        name: &SessionName,
    ) -> Result<Vec<RunRow>, SessionError> {
        let row = self.find_session(who, name).await?;
        let runs = self.runs_of(&row.key, Vec::new()).await?.items.into_iter();
        Ok(runs.filter(|row| self.may_see(who, &row.run.facts)).collect())
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
        if let Some((run, why)) = view.unreadable.iter().find(|(id, _)| id.to_string() == run) {
            return Err(StoreError::Corrupt { run: *run, why: why.clone() }.into());
        }
        if view.pending.is_empty() {
            return Err(SessionError::NoState("no pending executions in session".into()));
        }
        let found = view.pending.iter().position(|state| state.task_id.to_string() == run);
        let missing = || SessionError::NoState(format!("execution state not found for task {run}"));
        Ok(view.pending.swap_remove(found.ok_or_else(missing)?))
    }

    /// Merges into a conversation's metadata: a null takes a key away.
    pub async fn merge_metadata(
        &self,
        who: &Principal,
        name: &SessionName,
        change: &Metadata,
    ) -> Result<(), SessionError> {
        if let Some(value) = change.get(PENDING) {
            let why = match value.get().starts_with('{') {
                true => format!("{PENDING} is a view of the runs that wait; it cannot be written"),
                false => "invalid pending_executions format".to_owned(),
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
            if self.shared.store.change_session(row.key, change, self.shared.clock.now()).await? {
                return Ok(());
            }
        }
        let why = "others change this session's metadata all the time; try again".to_owned();
        Err(StoreError::Unavailable { why }.into())
    }

    /// Deletes a conversation: no more runs, those under way are stopped, and the contents of all are erased (S0-12).
    /// The chains of hashes stay.
    pub async fn delete_session(
        &self,
        who: &Principal,
        name: &SessionName,
        force: bool,
    ) -> Result<Deleted, SessionError> {
        let row = self.find_own_session(who, name).await?;
        for run in self.runs_of(&row.key, Vec::new()).await?.items {
            if let (false, Some(call)) = (force, may_have_run(&run.run)) {
                return Err(SessionError::CallStarted { run: run.run.facts.id, call });
            }
        }
        let (store, now) = (&self.shared.store, self.shared.clock.now());
        store.change_session(row.key.clone(), SessionChange::Close, now).await?;
        // Once it is closed no run is added any more.
        let runs = self.runs_of(&row.key, Vec::new()).await?;
        let mut deleted = Deleted::default();
        let mut proven = Vec::new();
        deleted.left.extend(runs.unreadable.into_iter().map(|found| found.run));
        for RunRow { run, .. } in runs.items {
            let id = run.facts.id;
            let reason = Some("its session was deleted".to_owned());
            if run.outcome().is_none() {
                self.unless_over(self.cancel(who, id, reason.clone(), None).await)?;
            }
            self.submit(who, id, Command::Erase { reason }, None).await?;
            proven.push(self.remains_of(id).await?);
            deleted.erased.push(id);
        }
        let proof = Proof {
            kind: "session.deleted",
            agent: &row.key.agent,
            session: &row.key.session,
            owner: &row.key.owner,
            by: &who.user,
            forced: force,
            erased: proven,
            left: &deleted.left,
        };
        // Written before anything goes, so that nothing is gone without its proof. A server that ends in between has not
        // answered, and whoever asks again gets it.
        let entry = serde_json::to_string(&proof).unwrap_or_default();
        store.put_audit(who.tenant.clone(), self.shared.clock.now(), entry).await?;
        for run in &deleted.erased {
            store.erase(*run).await?;
        }
        let empty = SessionChange::Metadata { before: row.metadata, after: "{}".into() };
        store.change_session(row.key, empty, now).await?;
        Ok(deleted)
    }

    /// A run that ended by itself meanwhile needs no cancelling.
    fn unless_over<T>(&self, answer: Result<T, EngineError>) -> Result<(), EngineError> {
        match answer {
            Ok(_) | Err(EngineError::Refused(standfast_core::refusal::Refusal::Ended(_))) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// A conversation that the caller may see: their own, or the one that is named.
    async fn find_session(&self, who: &Principal, name: &SessionName) -> Result<SessionRow, SessionError> {
        let agents = match &name.agent {
            Some(agent) => vec![agent.clone()],
            None => self.shared.settings().agents.keys().cloned().collect(),
        };
        let mut found = Vec::new();
        for agent in &agents {
            let key = SessionKey {
                tenant: who.tenant.clone(),
                agent: agent.clone(),
                owner: name.owner.clone().unwrap_or_else(|| who.user.clone()),
                session: name.session.clone(),
            };
            let row = self.shared.store.session(key).await?;
            found.extend(row.and_then(|row| self.seen_session(who, row)));
        }
        if found.is_empty() && name.owner.is_none() {
            for agent in agents.iter().filter(|agent| self.sees_others(who, Some(agent))) {
                let others = SessionQuery {
                    tenant: who.tenant.clone(),
                    owner: None,
                    agent: Some(agent.clone()),
                    session: Some(name.session.clone()),
                    cursor: None,
                    limit: OWNERS_MAX,
                };
                let others = self.shared.store.list_sessions(others).await?;
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
            let page = self.shared.store.list_sessions(query).await?;
            first = page.items.into_iter().next_back().map(|row| row.key.owner).or(first);
            cursor = page.next;
            if cursor.is_none() {
                return Ok(first);
            }
        }
    }

    /// A conversation that the caller may change.
    async fn find_own_session(
        &self,
        who: &Principal,
        name: &SessionName,
    ) -> Result<SessionRow, SessionError> {
        let row = self.find_session(who, name).await?;
        match who.is_admin() || row.key.owner == who.user {
            true => Ok(row),
            false => Err(SessionError::NotYours(row.key.owner)),
        }
    }

    /// A conversation as somebody may see it: its user and administrators with its metadata, approvers of its agent without
    /// them, everyone else not at all.
    fn seen_session(&self, who: &Principal, row: SessionRow) -> Option<SessionRow> {
        if who.tenant != row.key.tenant {
            return None;
        }
        if who.is_admin() || row.key.owner == who.user {
            return Some(row);
        }
        let is_approver = self.shared.agent(&row.key.agent).is_ok_and(|agent| agent.approvers.include(who));
        is_approver.then(|| SessionRow { metadata: "{}".into(), ..row })
    }

    async fn runs_of(&self, key: &SessionKey, phases: Vec<Phase>) -> Result<Page<RunRow>, EngineError> {
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
            let found = self.shared.store.list_runs(query).await?;
            page.items.extend(found.items);
            page.unreadable.extend(found.unreadable);
            page.next = found.next;
            if page.next.is_none() || page.items.len() >= RUNS_MAX {
                return Ok(page);
            }
        }
    }

    async fn state_of(&self, run: &Run) -> Result<ExecutionState, EngineError> {
        let definition = self.shared.definition(&run.facts.agent, run.state.definition).await?;
        let events = self.shared.events(run.facts.id, Seq(0)).await?;
        Ok(execution_state(run, &definition, &events))
    }
}

/// The user's own metadata, as stored.
pub fn metadata(row: &SessionRow) -> Result<Metadata, serde_json::Error> {
    serde_json::from_str(&row.metadata)
}

/// The proof that a conversation was deleted, as it stands in the audit.
#[derive(Serialize)]
struct Proof<'a> {
    kind: &'static str,
    agent: &'a AgentName,
    session: &'a SessionId,
    owner: &'a UserId,
    by: &'a UserId,
    /// Whether calls that had started were no hindrance.
    forced: bool,
    /// The runs whose contents are gone, with the head of the chain that stays.
    erased: Vec<ErasedRun>,
    /// Runs that could not be read, and so not be erased either.
    left: &'a [RunId],
}

/// A call that has started and changes the world.
fn may_have_run(run: &Run) -> Option<CallNo> {
    let started = run
        .state
        .calls
        .iter()
        .find(|call| matches!(call.state, CallState::Started { .. }) && call.replay == Replay::Never);
    started.map(|call| call.no)
}
